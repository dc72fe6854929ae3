"""The fast path: a call like an earlier one, answered without flattening its arguments again.

Training asks for the same gradient over and over: the same dict of arrays with other numbers in
them, and some data. In: a call that ran on machine code or the tape. Out: a ``FastPath``, which
has the cached calls by their ``signature``, a row of bytes that C writes as it looks at the
arguments. The function's ``Gate``, in C, finds them there and answers without Python; all other
calls take the slow path.
"""

from __future__ import annotations

import enum
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import float64, ndarray

from chainrule.compiler.capture.arguments import Call, Texts
from chainrule.compiler.capture.captured import CapturedState, dict_of, identity_checks
from chainrule.compiler.capture.recordings import ArrayOutput, Output
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.assembly import are_free, with_attributes
from chainrule.compiler.runtime.decisions import decider_of
from chainrule.compiler.runtime.results import array_of_values, has_extras, root_of
from chainrule.compiler.runtime.signature import BUILT, Opened, Signature, signature
from chainrule.compiler.runtime.variants import Binding, Variant
from chainrule.core.backend import Value, kernels
from chainrule.trees import (
    Branch,
    Deque,
    Floats,
    Namespace,
    Node,
    Numbers,
    Ordered,
    Record,
    Shape,
    field_names,
    map_leaves,
    unflatten,
)

DOUBLE = np.dtype(float64)
STRUCTURES = 1024  # that are cached, as many as a function keeps
VARIANTS = 64  # of each, as many as a structure has; the least recently used goes
MOST_SEEN = 256  # containers that C tells from each other, as in src/native/call.h
MOST_UNDECIDED = 4096  # instructions of a tape that is kept beside machine code: what it takes to
# look at a call in Python is little beside running a longer one
MOST = 2**28  # numbers: one item of a numpy array has less than 2**31 bytes


class _Row:
    """Numbers and arrays in one row of numbers."""

    def __init__(self) -> None:
        self._fields: list[tuple[int, Shape]] = []  # where each array begins
        self._size = 0

    @property
    def record(self) -> np.dtype[Any] | None:
        """The row as one item, with a field for each array."""
        if not self._fields:
            return None
        return np.dtype(
            {
                "names": [f"f{k}" for k in range(len(self._fields))],
                "formats": [(DOUBLE, shape) for _, shape in self._fields],
                "offsets": [DOUBLE.itemsize * at for at, _ in self._fields],
                "itemsize": DOUBLE.itemsize * self._size,
            }
        )

    def _numbered(self) -> int:
        """The position of the next number."""
        self._size += 1
        return self._size - 1

    def _named(self, shape: Shape) -> str:
        """The name of the next array's field."""
        self._fields.append((self._size, shape))
        self._size += math.prod(shape)
        return f"f{len(self._fields) - 1}"


def _as_tuple(node: Branch, items: list[Any], original: Any) -> Any:
    return tuple(items) if isinstance(node, BUILT) else node.build(items, original)


def _is_built(node: Node) -> bool:
    """Whether something in a structure is neither a list, tuple or dict nor a number."""
    return isinstance(node, Branch) and (isinstance(node, BUILT) or any(map(_is_built, node.items)))


def _as_it_is(gradient: Any) -> Any:
    return gradient


def _building(node: Node) -> Callable[[Any], Any]:
    """What brings a gradient into the structure of the first argument.

    A Plan knows lists, tuples and dicts; what else there is to know is found out once.
    """
    if not isinstance(node, Branch) or not _is_built(node):
        return _as_it_is
    inside = [_building(item) for item in node.items]
    every = all(build is _as_it_is for build in inside)

    def items_of(gradient: Any) -> Any:
        parts = gradient.values() if isinstance(gradient, dict) else gradient
        if every:
            return parts
        return [build(part) for build, part in zip(inside, parts, strict=True)]

    if not isinstance(node, Record):
        return lambda gradient: node.build(list(items_of(gradient)), gradient)
    kind, names = node.type, field_names(node.type)

    def record(gradient: Any) -> Any:
        made = object.__new__(kind)
        for name, item in zip(names, items_of(gradient), strict=True):
            object.__setattr__(made, name, item)  # a frozen one too
        return made

    return record


class _Gradient(_Row):
    """How the gradient of the first argument lies in one row of numbers."""

    def __init__(self, structure: Node, argument: Any) -> None:
        super().__init__()
        #: the argument with a field's name for each array and its position for each float; a tuple
        #: in the place of what is built of its items
        self.template = unflatten(structure, self._name, argument, _as_tuple)

    def _name(self, structure: Node, _: Any) -> str | int:
        if isinstance(structure, Numbers):
            return self._named(structure.shape)
        return self._numbered()


def _plan_of(call: Call, shape: Signature, variant: Variant, binding: Binding | None) -> Any:
    """What runs such calls on the code or the tape of a variant; None where it cannot."""
    differentiate, result = bool(call.key[0]), variant.recording.result
    selection = variant.recording.selection
    decider = selection.decider if binding is None else decider_of(selection, binding.fit)
    if decider is None or call.values or call.size >= MOST or kernels is None:
        return None
    with_gradient = differentiate and not variant.is_derivative
    if variant.captured and not (with_gradient and binding is None):
        return None  # a plain call gives a node over these Values
    if with_gradient and not (root_of(result) and call.first):
        return None
    outputs = variant.recording.outputs
    if not (outputs or variant.is_derivative):
        return None
    positions = [x.position for x in outputs] or [0]  # of a constant matrix: an input
    parts = (_tape_parts if binding is None else _code_parts)(call, variant, positions)
    begins = np.zeros(0, np.int64) if binding is None else _begins(shape, binding.fit.private)
    if parts is None or begins is None or not len(variant.inputs):  # C looks for a first number
        return None
    template: Any = None
    record: Any = None
    row: tuple[Any, Any] = (None, None)
    if with_gradient:
        gradient = _Gradient(call.structure[0][0], call.arguments[0])
        template, record = gradient.template, gradient.record
    extras: tuple[Any, Any] = (None, None)
    if with_gradient and has_extras(result):
        beside = _Results(result[1])
        if beside.others or beside.record is not None:
            return None
        extras = beside.template, np.asarray(parts[-1][1:], np.int64) if len(outputs) > 1 else None
    is_assembled = not differentiate and _is_assembled(variant)
    if with_gradient or (isinstance(result, Output) and not is_assembled):
        parts = (*parts[:-1], int(parts[-1][0]))
    else:
        results = _Results(list(variant.assembly.leaves) if is_assembled else result)
        if results.others:
            return None
        template, record = results.template, results.record
        if record is not None:
            row = results.row
    return kernels.Plan(
        shape.shapes,
        shape.first,
        template,
        record,
        ndarray,
        decider,
        *parts,
        *row,
        variant.is_derivative or (variant.uses_math and bool(variant.captured)),
        variant.captured,
        *extras,
        begins if len(begins) else None,
    )


def _is_assembled(variant: Variant) -> bool:
    """Whether it returns more than numbers in new containers, so that Python puts it together."""
    if variant.is_derivative:
        return False
    return variant.recording.hands_back or bool(_Results(variant.recording.result).others)


class _Results(_Row):
    """How what a function returned lies in one row of numbers."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._targets: list[Addresses] = []
        self._fixed: list[Floats] = []
        self.others: list[Any] = []  # leaves that are no numbers: no plan returns them
        self.template = map_leaves(self._leaf, result)

    def _leaf(self, x: Any) -> Any:
        if isinstance(x, ArrayOutput):
            self._targets.append(self._size + x.places)
            self._fixed.append(x.fixed)
            return self._named(x.shape)
        if isinstance(x, Output):
            self._targets.append(np.array([self._size]))
            self._fixed.append(np.zeros(1))
            return self._numbered()
        if type(x) is not float:
            self.others.append(x)
        return x

    @property
    def row(self) -> tuple[Addresses, Floats]:
        """Where in the row each number goes, and what else is in it."""
        nothing = np.zeros(0)
        targets = np.concatenate([nothing, *self._targets]).astype(np.int64)
        fixed = np.concatenate([nothing, *self._fixed])
        if not len(targets):  # one number goes after the others, where nobody looks
            return np.array([len(fixed)]), np.append(fixed, 0.0)
        return targets, fixed


def why_in_python(result: Any) -> str:
    """Why a call that the fast path cannot serve takes long, by what the function returned."""
    others = _Results(result[1] if has_extras(result) else result).others
    if others:
        kind = type(others[0]).__name__
        return f"its results are put together in Python, for one is of type {kind}; return floats"
    return "its arguments are taken apart in Python"


def _assembling(variant: Variant, captured: CapturedState) -> Callable[..., Any]:
    """What puts together what a plain call returns, and changes what it was passed."""
    run = variant.assembly.run

    def finish(numbers: Any, arguments: Any, passed: Any) -> Any:
        def may_change(changed: list[Any]) -> bool:
            return are_free(captured, changed) and passed.come_once(with_attributes(changed))

        return run(numbers, arguments, {}, may_change)

    return finish


def _finish(call: Call, variant: Variant) -> Callable[[Any], Any] | None:
    """What makes Values, and sparse matrices, of their numbers; None where there are none."""
    if call.key[0] and not variant.is_derivative:  # the value and its gradient are numbers
        first: Node = call.structure[0][0]
        build, extras = _building(first), _with_kinds(variant.recording.result)
        if build is _as_it_is and extras is _as_it_is:
            return None
        return lambda answer: (extras(answer[0]), build(answer[1]))
    made = [_made_of(leaf) for leaf in _leaves(variant.recording.result)]
    if not any(made):
        return None
    if isinstance(variant.recording.result, Output):
        return made[0]

    def finish(answer: Any) -> Any:
        rest = iter(made)
        return map_leaves(lambda x: x if (make := next(rest)) is None else make(x), answer)

    return finish


def _with_kinds(result: Any) -> Callable[[Any], Any]:
    """What makes integers and numbers of numpy's of those extras that are; the value is a float."""
    leaves = _leaves(result[1]) if has_extras(result) else []
    kinds = [_kind_beside(leaf) for leaf in leaves]
    if not any(kinds):
        return _as_it_is

    def make(answer: Any) -> Any:
        if type(answer) is not tuple:  # a mean of several calls has no extras
            return answer
        rest = iter(kinds)
        return answer[0], map_leaves(lambda x: x if (k := next(rest)) is None else k(x), answer[1])

    return make


def _kind_beside(leaf: Any) -> type | None:
    """What makes of a number something beside the value; None: it is a float."""
    if not isinstance(leaf, Output):
        return None
    return int if leaf.is_integer else np.float64 if leaf.is_numpys else None


def _made_of(leaf: Any) -> Callable[[Any], Any] | None:
    """What makes of its numbers something that the function returned; None: they are it."""
    if isinstance(leaf, ArrayOutput) and leaf.sparse is not None:
        filled: Callable[[Any], Any] = leaf.sparse.filled
        return filled
    if isinstance(leaf, ArrayOutput) and leaf.is_value:
        return array_of_values
    if isinstance(leaf, Output):
        kind = int if leaf.is_integer else np.float64 if leaf.is_numpys else None
        return Value if leaf.is_value else kind
    return None


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    map_leaves(found.append, tree)
    return found


def _code_parts(call: Call, variant: Variant, positions: Sequence[int]) -> tuple[Any, ...] | None:
    """What a Plan takes of machine code, and the addresses of what is returned."""
    binding, floats = variant.binding, call.size - call.first
    assert binding is not None
    machine, fit = binding.machine, binding.fit
    roots = fit.at(positions)
    if (roots < 0).any():
        return None
    numbers = fit.private[floats:]
    returned = min(positions) < variant.recording.inputs  # though no code may read it
    if not (floats or variant.numeric or machine.reads_private or returned):
        numbers = numbers[:0]
    return (*machine.code.parts(fit, numbers), roots)


def _begins(shape: Signature, private: Addresses) -> Addresses | None:
    """Where the numbers of each float and array after the first argument begin; none: in a row.

    None where those of an array do not lie in one piece: its rows are longer in a longer call.
    """
    sizes = [1 if x is None else math.prod(x) for x in shape.shapes[shape.first :]]
    ends = np.cumsum([0, *sizes])
    if np.array_equal(private[: ends[-1]], np.arange(ends[-1])):
        return np.zeros(0, np.int64)
    each = np.split(private[: ends[-1]], ends[1:-1])
    if any((np.diff(places) != 1).any() for places in each):
        return None
    return np.array([places[0] if len(places) else 0 for places in each], np.int64)


def _tape_parts(call: Call, variant: Variant, positions: Sequence[int]) -> tuple[Any, ...]:
    """What a Plan takes of a tape: its inputs are the call's numbers, one after the other."""
    inputs, grads, first = variant.inputs, variant.grads, call.first
    nothing = np.zeros(1, np.int64)
    places = variant.recording.selection.places.astype(np.int64)
    integers = np.arange(call.size + len(variant.captured) - first, len(inputs) - first)
    arenas = (inputs, inputs[first:], grads, grads[first:], np.ones(1), nothing, nothing)
    return variant.executor, 0, 0, (*arenas, places, integers), np.array(positions, np.int64)


class ClosedGate:
    """The gate of a function without the C one: every call takes the slow path."""

    def __init__(self, *_: Any) -> None:
        self.busy = False  # a call is being computed
        self.path: FastPath | None = None
        self.quick = self.resting = self.tried = self.failed = self.due = 0
        self.is_due = False  # calls such as the last one came so often that one may be recorded
        self.answered: Variant | None = None
        self.derivation: Any = None

    def answer(self, arguments: tuple[Any, ...], differentiate: bool, out: Any = None) -> Any:
        """None: the slow path must."""

    def mean(self, params: Any, samples: list[Any]) -> Any:
        """None: each sample is a call."""

    def rows(self, params: Any, samples: list[Any]) -> tuple[bytearray, bytearray] | None:
        """The same."""
        return None

    def rest(self) -> bool:
        """Whether a call is to run eagerly at once: the slow path says so."""
        return False

    def take_rested(self) -> int:
        """How many calls did."""
        return 0


if TYPE_CHECKING:
    Gate = ClosedGate
else:
    Gate = ClosedGate if kernels is None else kernels.Gate


def new_lock() -> threading.RLock:
    """A lock for a gate: C takes its own without a call of Python's."""
    return threading.RLock() if kernels is None else kernels.Lock()


def gate(lock: threading.RLock, enter: Callable[[], None]) -> Gate:
    """What the calls of a function pass first; ``enter`` counts those that it answered.

    ``answer`` gives the value of a cached call, with its gradient or alone, and None for the slow
    path; an ``out`` that holds the gradient by then leaves the value alone. ``mean`` adds up such
    calls; where only the first of them were cached, it says what these add, and how many they are.
    """
    return Gate(lock, ndarray, float64, enter)


class FastPath:
    """The cached calls of a function, for its gate."""

    def __init__(self, captured: CapturedState, texts: Texts = frozenset()) -> None:
        """``texts``: the arguments whose strings are integers."""
        self.plans: dict[bytes, list[Any]] = {}  # by signature: each a kernels.CachedCall
        self._texts = texts
        self.texts = sum(1 << place for place in texts if isinstance(place, int))  # for C
        self.opened: Opened = {}  # the types of arguments that are looked into beside the usual
        #: by id: whether these and their bases, and items of enums, are as they were
        self.classes: dict[int, Any] = {}
        self.changed = captured.check
        self.tells = False  # whether C looks which containers are one
        self._captured = captured
        self._is_watched = {id(mapping) for mapping in captured.watched_dicts()}
        self._kept: list[Any] = []  # classes and items of enums, which are known by their addresses
        self._keys: dict[bytes, list[Any]] = {}  # likewise what is in a signature
        self._met: dict[Any, bool] = {}  # what was learnt before, and whether there is a plan

    def learn(self, call: Call, variant: Variant, on_tape: bool) -> bool:
        """Let a variant answer calls such as this from now on; whether it can.

        ``on_tape``: so it answered this one, perhaps as its machine code could not.
        """
        binding, met = variant.binding, _met_by(variant, variant.binding)
        if met not in self._met and not call.keywords:
            self._met[met] = self._learn(call, variant, binding)
        served = self._met.get(met, False)
        if served and on_tape and binding is not None and len(variant.recording) <= MOST_UNDECIDED:
            self._learn_tape(call, variant, binding)
        return served

    def _learn_tape(self, call: Call, variant: Variant, binding: Binding) -> None:
        """Let the tape answer calls in which a comparison is near a tie, as in this one."""
        shape = signature(call.structure[0], call.arguments, bool(call.key[0]), self.opened)
        if shape is None:
            return
        for cached in self.plans.get(shape.row, []):
            if cached.variant is variant and cached.binding is binding and not cached.otherwise:
                cached.otherwise = _plan_of(call, shape, variant, None)

    def forget(self, variants: Collection[Variant], for_good: bool = False) -> None:
        """Let the slow path answer the calls of variants that may get machine code, or are gone.

        Not ``for_good``: the next one takes the slow path even where calls rest.
        """
        gone = set(map(id, variants))
        for row, cached in list(self.plans.items()):
            for one in cached:
                if id(one.variant) in gone:
                    self._met.pop(_met_by(one.variant, one.binding), None)
            cached[:] = [one for one in cached if id(one.variant) not in gone]
            if not cached and for_good:
                del self.plans[row]

    def _learn(self, call: Call, variant: Variant, binding: Binding | None) -> bool:
        shape = None
        if kernels is None:
            return False
        asks = self._captured.identity and variant.asks and call.may_come_again
        if (asks or call.roots) and len(call.containers) > MOST_SEEN:
            return False
        if self._captured.objects_by_id and not self._are_others(call):
            return False
        same = (call.texts or frozenset()) == self._texts  # C looks at strings in the same way
        if same and not call.labels and all(kind == DOUBLE.str for _, kind in call.narrow):
            differentiate = bool(call.key[0])
            shape = signature(call.structure[0], call.arguments, differentiate, self.opened)
            self._watch_classes(call)
        plan = None if shape is None else _plan_of(call, shape, variant, binding)
        if shape is None or plan is None:
            return False
        if shape.row not in self.plans and len(self.plans) >= STRUCTURES:
            return False
        if len(self._keys) > 2 * STRUCTURES:
            self._keys = {row: self._keys[row] for row in self.plans}
        self._keys[shape.row] = shape.keys
        self.changed = self._captured.check  # a recording may have asked which texts there are
        self.tells |= asks
        cached = self.plans.setdefault(shape.row, [])
        is_assembled = not call.key[0] and _is_assembled(variant)
        finish = _assembling(variant, self._captured) if is_assembled else _finish(call, variant)
        made = kernels.CachedCall(plan, variant, binding, finish, variant.uses_math, is_assembled)
        cached.insert(0, made)
        for one in cached[VARIANTS:]:
            self._met.pop(_met_by(one.variant, one.binding), None)
        del cached[VARIANTS:]
        return True

    def _are_others(self, call: Call) -> bool:
        """Whether no object of a call's types is captured; C does not see whether it is that one.

        Then none that a later call passes can be, as long as the captured state is as it was.
        """
        kinds = set(self._captured.objects_by_id.values())
        nodes = [*call.structure[0], *call.structure[1].values()]
        return kinds.isdisjoint(_types_in(nodes))

    def _watch_classes(self, call: Call) -> None:
        """Fields are read as attributes, which no code of the user's may answer for.

        Classes with methods are captured state, and watched as such.
        """
        for kind, how in self.opened.items():
            is_enum = how is True and issubclass(kind, enum.Enum)
            if (isinstance(how, tuple) or is_enum) and kind not in call.roots:
                items: list[Any] = [*vars(kind)["_member_map_"].values()] if is_enum else []
                classes = [c for c in kind.__mro__ if c.__module__ not in ("builtins", "enum")]
                for x in (*classes, *items):
                    attributes = dict_of(vars(x))
                    if id(x) not in self.classes and id(attributes) not in self._is_watched:
                        self.classes[id(x)] = identity_checks(attributes)
                        self._kept.append(x)


def _met_by(variant: Variant, binding: Binding | None) -> Any:
    """What tells a variant on the tape, and with machine code, from all others."""
    return variant if binding is None or variant.borrows else binding.fit


def _types_in(nodes: Iterable[Node]) -> Iterator[type]:
    """The types of the objects in some structures."""
    for node in nodes:
        if isinstance(node, Record | Namespace):
            yield node.type
        elif isinstance(node, Deque):
            yield deque
        elif isinstance(node, Ordered):
            yield OrderedDict
        if isinstance(node, Branch):
            yield from _types_in(node.kinds)
