"""Whether a recording of ``value_and_grad`` holds for a plain call too, with numbers for Values.

In: everything that a function reaches, and what its recorded run did. Out: an ``Alike``. Where the
parameters are Values while the function is recorded, they are floats in a plain call. Both runs do
the same as long as nobody can tell a Value from a float, and as long as they compute the same, to
rounding, with both. That is so of what is listed here and of nothing else: the instructions of
code, the functions, classes and objects that it reaches, by what they are; and, as hooks and the
recorder see it, the attributes that are read, comparisons, and the operations that are recorded.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import itertools
import math
import sys
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture import disassembly, known
from chainrule.compiler.capture.certain import Certain
from chainrule.compiler.capture.recordings import FIRST_RULE, Output, Recording
from chainrule.compiler.capture.standins import StandIn
from chainrule.core import functions, ops
from chainrule.core.backend import Value, dot, linear, vsum
from chainrule.trees import FLOAT, INT, Branch, Dict, List, Node, Numbers, Static, Tuple

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder


class Alike(enum.IntEnum):
    """For which plain calls a recording of ``value_and_grad`` holds."""

    NONE = 0
    #: those that pass Python's own floats, and no arrays
    FLOATS = 1
    #: those with arrays too, if ``max`` and ``min`` are only asked for numbers of one type
    CHOOSING = 2
    #: those with arrays too: nothing is compared, and no number is one of several
    ARRAYS = 3


class Reach(enum.IntEnum):
    """What is known of something that a function reaches."""

    UNKNOWN = 0  # it may tell
    VALUES = 1  # it gives Values, of plain numbers too
    NUMPYS = 2  # floats are not the only numbers in a plain call: there are some of numpy's
    KNOWN = 3


# --- code -----------------------------------------------------------------------------------------

#: What these do with a number is an operation that is recorded, or a hook sees it, or it is to pass
#: it on. Not among them: ``import``, ``class``, ``match``, ``with``, sets, ``global``, ``del x.y``.
_STEPS = frozenset(
    "BINARY_OP BINARY_SLICE BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SLICE "
    "BUILD_STRING BUILD_TUPLE CACHE CALL CALL_FUNCTION_EX CALL_KW COMPARE_OP CONTAINS_OP "
    "CONVERT_VALUE COPY COPY_FREE_VARS DELETE_FAST DICT_MERGE DICT_UPDATE END_FOR END_SEND "
    "EXTENDED_ARG FORMAT_SIMPLE FORMAT_VALUE FORMAT_WITH_SPEC FOR_ITER GET_ITER GET_LEN "
    "GET_YIELD_FROM_ITER IS_OP JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD "
    "JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP KW_NAMES LIST_APPEND LIST_EXTEND LIST_TO_TUPLE "
    "LOAD_ASSERTION_ERROR LOAD_ATTR LOAD_CLOSURE LOAD_CONST LOAD_DEREF LOAD_FAST "
    "LOAD_FAST_AND_CLEAR LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_CHECK "
    "LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_METHOD LOAD_SMALL_INT MAKE_CELL MAKE_FUNCTION MAP_ADD "
    "NOP NOT_TAKEN POP_ITER POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE "
    "POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE "
    "POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE "
    "POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PRECALL "
    "PUSH_NULL RAISE_VARARGS RERAISE RESUME RETURN_CONST RETURN_GENERATOR RETURN_VALUE SEND "
    "SET_FUNCTION_ATTRIBUTE STORE_ATTR STORE_DEREF STORE_FAST STORE_FAST_LOAD_FAST "
    "STORE_FAST_STORE_FAST STORE_SLICE STORE_SUBSCR SWAP TO_BOOL UNARY_NEGATIVE UNARY_NOT "
    "UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE YIELD_VALUE".split()
)


def code_is_known(code: types.CodeType) -> bool:
    """Whether all instructions of a function, and of those inside it, are known."""
    return disassembly.operations(code) <= _STEPS


# --- what code reaches ----------------------------------------------------------------------------

#: Builtins that pass numbers on, or do with them what code could do with operators. ``float``,
#: ``int`` and the functions of ``math`` raise where they are given a Value, which ends the
#: recording.
_BUILTINS = (
    *(abs, all, any, chr, dict, enumerate, filter, float, int, iter, len, list, map),
    *(max, min, next, ord, range, reversed, slice, sorted, sum, tuple, zip, functools.reduce),
    *(itertools.accumulate, itertools.chain, itertools.combinations, itertools.count),
    *(itertools.cycle, itertools.islice, itertools.pairwise, itertools.permutations),
    *(itertools.product, itertools.repeat, itertools.starmap, itertools.zip_longest),
)
_MATH = (
    "acos acosh asin asinh atan atan2 atanh comb copysign cos cosh degrees erf erfc exp expm1 fabs "
    "factorial gamma gcd isclose isfinite isinf isnan lgamma log log10 log1p log2 perm pow radians "
    "sin sinh sqrt tan tanh"
)
#: operations that jump, or give another type of number than Python's operators do
_JUMPING = frozenset("floor ceil trunc round sign floor_divide mod ramp".split())
_SMOOTH = frozenset(functions.__all__) - _JUMPING
_LISTED = (
    *_BUILTINS,
    *[getattr(math, name) for name in _MATH.split()],
    *[getattr(functions, name) for name in _SMOOTH],
)
_KNOWN = frozenset(map(id, _LISTED))
VALUES_OF_NUMBERS = (dot, linear, vsum)  # these give Values in any case
_MAKERS = frozenset(map(id, VALUES_OF_NUMBERS))
ATOMS = frozenset((int, float, bool, str, bytes, type(None), range, types.MemberDescriptorType))
_CONTAINERS = frozenset((list, tuple, dict))
_PARTS = frozenset((property, staticmethod, classmethod, types.MethodType))
#: methods with two underscores that a class may have, and what Python writes into one; not
#: ``__len__``, whose errors are no matter to ``list`` and ``[*x]``
_METHODS = frozenset(
    "__init__ __post_init__ __call__ __iter__ __next__ __getitem__ __repr__ __str__ __eq__ "
    "__module__ __qualname__ __dict__ __weakref__ __doc__ __annotations__ __match_args__ __hash__ "
    "__dataclass_fields__ __dataclass_params__ __replace__ __firstlineno__ __static_attributes__ "
    "__annotate__ __annotate_func__ __annotations_cache__ __slots__".split()
)
_EXACT = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_))


#: what a class may hold that was made by code: functions, of which the code is looked at, and data
_PARAMETERS = type(vars(dataclasses.make_dataclass("_", []))["__dataclass_params__"])
_CODE = frozenset((types.FunctionType, int, float, bool, str, type(None)))
#: what else Python writes into classes, and into dataclasses
_OF_PYTHON = _CODE | {types.GetSetDescriptorType, dict, tuple, _PARAMETERS}
#: functions and classes written as users write theirs that do the same with numbers as with
#: Values: some ask which they have
_EVEN = {
    "chainrule.nn": frozenset("softmax log_softmax rmsnorm cross_entropy mse".split()),
    "chainrule.vectors": frozenset("logsumexp norm".split()),
    "chainrule.gpt.model": frozenset("GPT Cache add ignore".split()),
    "chainrule.gpt.config": frozenset(("Config",)),
}


def _is_even(x: Any) -> bool:
    """Whether this is one of these, and not another under its name."""
    if type(x) is not types.FunctionType and type(x) is not type:
        return False
    if x.__name__ not in _EVEN.get(x.__module__, ()):
        return False
    is_here = vars(sys.modules[x.__module__]).get(x.__name__) is x
    return is_here and (type(x) is types.FunctionType or all(map(_holds_code, x.__mro__[:-1])))


def _holds_code(cls: type) -> bool:
    """Whether nobody has put into a class what is no code of Python's, such as ``isinstance``."""
    items = [(name, type(getattr(x, "__func__", x))) for name, x in vars(cls).items()]
    return all(kind in (_OF_PYTHON if name[:2] == "__" else _CODE) for name, kind in items)


def is_in_even(code: types.CodeType) -> bool:
    """Whether code is of the modules of these: of a function that is known, of no other."""
    modules = [sys.modules.get(name) for name in _EVEN]  # a GPT may not be imported
    return code.co_filename in [module.__file__ for module in modules if module is not None]


def is_trusted(x: Any) -> bool:
    """Whether this is listed itself, with all that it reaches in its turn."""
    return id(x) in _KNOWN or id(x) in _MAKERS or _is_even(x)


def reach_of(x: Any) -> Reach:
    """What is known of something that a function reaches, but for what is inside it.

    Of a function of the user's, its code is looked at as well.
    """
    kind = type(x)
    if kind in ATOMS or kind in _CONTAINERS or id(x) in _KNOWN:
        return Reach.KNOWN
    if id(x) in _MAKERS:
        return Reach.VALUES
    if kind is np.ndarray:
        return Reach.NUMPYS if x.dtype in _EXACT else Reach.UNKNOWN
    if kind in (np.float64, np.int64):
        return Reach.NUMPYS
    if kind is types.FunctionType:  # of a library, nobody looks at its code
        is_listed = _is_even(x) or x.__module__ not in _EVEN
        return Reach.KNOWN if is_listed and not known.is_pure_python(x) else Reach.UNKNOWN
    if kind in _PARTS:
        return Reach.KNOWN
    if isinstance(x, type):
        return Reach.KNOWN if _is_simple_class(x) or _is_error(x) else Reach.UNKNOWN
    return Reach.KNOWN if _is_simple_class(kind) else Reach.UNKNOWN


def _is_error(x: type) -> bool:
    return issubclass(x, BaseException) and vars(builtins).get(x.__name__) is x


def _is_simple_class(cls: type) -> bool:
    """Whether it is a class of the user's that has nothing to do with numbers, or a listed one."""
    if cls is object or _is_even(cls):
        return True
    if type(cls) is not type or not known.is_python_class(cls) or known.is_pure_class(cls):
        return False
    names = [name for name in vars(cls) if name.startswith("__") and name.endswith("__")]
    return _METHODS.issuperset(names) and all(map(_is_simple_class, cls.__bases__))


# --- what the recorded run did --------------------------------------------------------------------

#: of an array: what is the same of an array of Values as of one of numbers, to rounding
_SAME_OF_ARRAYS = frozenset("T dot flatten ndim ravel reshape shape size sum transpose".split())


#: whose attributes say nothing of numbers that they hold, but for those that format: what is read
#: from a module is known by then
SILENT = frozenset(
    (*_CONTAINERS, int, float, bool, str, types.ModuleType, types.FunctionType, types.MethodType)
)
FORMATTING = frozenset(("format", "format_map"))  # which read attributes, as ``"{0.name}"`` says


def may_tell(recorder: Recorder, x: Any, name: str) -> bool:
    """Whether an attribute that is read may tell a Value from a float, or an array of them."""
    kind = type(x)
    if name[:2] == "__" or name in FORMATTING:
        return True
    if kind in SILENT or kind in recorder.simple:
        return False
    if isinstance(x, np.ndarray):  # of Values, ``tolist`` gives parameters of another type
        gives_data = name == "tolist" and x.dtype != object
        return bool(name) and name not in _SAME_OF_ARRAYS and not gives_data
    if isinstance(x, type):
        return bool(name) and not _is_simple_class(x)
    if issubclass(kind, StandIn) or (kind is not Value and _is_simple_class(kind)):
        recorder.simple.add(kind)
        return False
    return True


def is_method(recorder: Recorder, x: Any, name: str) -> bool:
    """Whether it is the method of an operation, of what may be a Value in a plain call too.

    Whether it is one is found out in the end.
    """
    if type(x) is not Value or name not in _SMOOTH or not recorder.given:
        return False
    recorder.methods[id(x)] = x
    return True


_PLAIN_RULES = frozenset(("add", "mul", "pow", "divide", "detach", ops._where.name, *_SMOOTH))
_FUNCTIONS = _SMOOTH - {"abs", "maximum", "minimum", "where", "clip"}
_CHOOSING = frozenset(("first_max", "first_min"))
_COMPARING = _CHOOSING | {"less", "less_equal", "equal", "select"}


def found_alike(recorder: Recorder, made: Recording, first: int, reach: Reach) -> Alike:
    """For which plain calls a recording holds, by what it did and all that its function reaches.

    ``first``: how many of its inputs are the parameters.
    """
    result = made.result
    if not (isinstance(result, Output) and result.is_value and result.position >= made.inputs):
        return Alike.NONE
    seen = recorder.told or recorder.identity or recorder.both or recorder.narrow
    others = recorder.stores or recorder.selects or recorder.keyed_sites or recorder.texts
    if seen or others or recorder.memory is not None or made.unflagged.any():
        return Alike.NONE
    if made.selection.called:  # which draws random numbers, or looks into a cache
        return Alike.NONE
    rules = {rule.name for rule in made.rules}
    if not rules <= _PLAIN_RULES | _COMPARING:
        return Alike.NONE
    given, methods = recorder.certain
    certain = Certain(made, given)
    if not certain.are_all(methods):
        return Alike.NONE
    compares = bool(made.guards) or not rules.isdisjoint(_COMPARING - _CHOOSING)
    if not compares and _has_one_type(made, result.position, first, reach, certain):
        return Alike.ARRAYS if rules.isdisjoint(_CHOOSING) else Alike.CHOOSING
    return Alike.FLOATS if reach is Reach.KNOWN else Alike.NONE


def _has_one_type(made: Recording, root: int, first: int, reach: Reach, certain: Certain) -> bool:
    """Whether the type of the result cannot depend on what integers select.

    Parameters are all of one type. A number that was computed may be Python's or numpy's; of both,
    functions give Python's, and operators the one or the other. What is ``certain`` to be a Value
    is none of these; where there are Values, functions give these too.
    """
    selection = made.selection
    tables = {id(g.candidates): g.candidates for g in selection.gathers}  # which many share
    of_computed = {
        key
        for key, table in tables.items()
        if (table >= first).any() and not certain.are_all(np.unique(table).tolist())
    }
    computed = [k for k, g in enumerate(selection.gathers) if id(g.candidates) in of_computed]
    if not computed:
        return True
    gives_values = reach is Reach.VALUES
    operators = [
        k for k, rule in enumerate(made.rules) if gives_values or rule.name not in _FUNCTIONS
    ]
    passes_on = np.isin(made.codes - FIRST_RULE, operators)
    new = np.unique(selection.places[np.isin(selection.owners, computed)] // made.operands.shape[1])
    unclear = np.zeros(len(made.codes) + 1, np.bool_)  # the last one for no operand
    met = unclear[:-1].copy()
    while len(new := new[passes_on[new] & ~met[new]]):
        met[new] = True
        unclear[[k for k in new.tolist() if not certain.is_one(k)]] = True
        new = np.flatnonzero(unclear[made.operands].any(axis=1) & ~met)
    return not unclear[root]


# --- a call ---------------------------------------------------------------------------------------

_STATIC = frozenset((str, bytes, bool, type(None)))


def needed(first: Node, others: Iterable[Node]) -> Alike:
    """What a recording must be for a plain call with these arguments; NONE where nothing will do.

    Parameters are floats, or arrays of them, not both: an integer may select any of them.
    """
    kinds = {*_kinds(first)}
    if kinds not in ({Alike.FLOATS}, {Alike.ARRAYS}) or _holds_integers(first):
        return Alike.NONE
    kinds.update(itertools.chain(*map(_kinds, others)))
    if Alike.NONE in kinds:
        return Alike.NONE
    return Alike.CHOOSING if Alike.ARRAYS in kinds else Alike.FLOATS


def _kinds(node: Node) -> Iterable[Alike]:
    if type(node) in (List, Tuple, Dict):
        assert isinstance(node, Branch)
        return {kind for item in node.kinds for kind in _kinds(item)}
    if isinstance(node, Numbers):
        return (Alike.ARRAYS,)
    if node in (FLOAT, INT) or (isinstance(node, Static) and node.type in _STATIC):
        return (Alike.FLOATS,)
    return (Alike.NONE,)


def _holds_integers(node: Node) -> bool:
    if isinstance(node, Branch):
        return any(map(_holds_integers, node.kinds))
    return (node.kind if isinstance(node, Numbers) else node) is not FLOAT
