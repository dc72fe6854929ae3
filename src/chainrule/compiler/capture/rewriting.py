"""Reads made visible: while a function is recorded, its subscripts and identity tests call hooks.

In: the Python functions that a recording may run. Out: the same functions with rewritten code, for
as long as the recording takes: ``xs[i]`` calls ``Hooks.read(xs, i)``, ``xs[i] = x`` calls
``Hooks.store(x, xs, i)``, ``xs += x`` calls one of ``Hooks.in_place``, ``x.name = y`` calls
``Hooks.changing(x, name)``, ``a < b`` calls one of ``Hooks.compare``, ``a is b`` calls
``Hooks.same(a, b)``, ``a in b`` calls ``Hooks.contains(a, b)``, ``x.name`` calls
``Hooks.asked(x, name)``, ``f(*x)``, ``[*x]`` and ``a, *b = x`` call ``Hooks.spread(x)``,
``module.Random(seed)`` looks up its name in ``Hooks.making(module)``, and a call of one of the
``WATCHED`` builtins asks ``Hooks.called`` which function to call. Names in ``CELLS`` are loaded and
stored by hooks too. Where ``both`` sides of branches are to be computed, the code is converted by
``sides`` before. So the recorder sees the container and the key of every read, which overloading
cannot show: a list's subscript asks an integer for nothing but its value.

Other threads may run these functions meanwhile: the hooks do what Python does unless the calling
thread records. What cannot be rewritten stays as it is; integers are static there.
"""

from __future__ import annotations

import dis
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import bytecode
from bytecode.instr import InstrLocation

from chainrule.compiler.capture import sides
from chainrule.compiler.capture.templates import PLACEHOLDER

_NEWER_CALLS = sys.version_info >= (3, 13)  # the callable comes before self or NULL
_HAS_PRECALL = sys.version_info < (3, 12)
_HAS_SPREAD_LAST = sys.version_info < (3, 14)  # what ``f(*x)`` spreads is on top of the stack
_TAKES_ANY = ("STORE_", "BINARY_OP", "LIST_APPEND", "CALL", "YIELD_VALUE", "RETURN_VALUE", "BUILD_")
_LOAD_CELL = "LOAD_FAST" if sys.version_info >= (3, 13) else "LOAD_CLOSURE"
#: functions in C whose calls are looked at, by the names under which code loads them
WATCHED = frozenset(
    "int float bool ord map type isinstance hasattr getattr sorted len set frozenset "
    "list tuple sum min max enumerate zip any all".split()
)
#: attributes of modules that make generators of random numbers, containers, spans of time, or what
#: asks for attributes
MAKERS = frozenset(
    "Random default_rng Counter defaultdict deque timedelta attrgetter methodcaller".split()
)
#: names under which functions that keep their results in a cache were found so far
CACHED: set[str] = set()
#: global names and those of closures under which functions reach what they change outside
CELLS: set[str] = set()


#: attributes through which globals, closures and frames can be read
_REVEALING = frozenset(
    ("__globals__", "__closure__", "cell_contents", "f_globals", "f_locals", "f_back", "_getframe")
)
#: instructions on names that have no hook
_UNSEEN = frozenset(
    (
        *("LOAD_NAME", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"),
        *("DELETE_NAME", "DELETE_GLOBAL", "DELETE_DEREF"),
    )
)
_EMPTY = ("BUILD_MAP", "BUILD_SET")
_JOINING = ("DICT_UPDATE", "DICT_MERGE", "SET_UPDATE")  # which fill true containers only
_SPREADING = ("UNPACK_EX", "LIST_EXTEND")  # what is on top of the stack
_ADDED = ("MAP_ADD", "SET_ADD")  # as comprehensions do
_DEEPER = 4  # the call of a hook has two things more on the stack than the instruction itself
_COLUMNS = 128  # the library writes those from here on as CPython does not: as parts of their own
_MOST = 10_000  # code objects that are kept rewritten
_Key = tuple[int, int, int]
_originals: dict[int, tuple[types.CodeType, types.CodeType]] = {}  # by the id of the rewritten code


def original(code: Any) -> Any:
    """The code as the user wrote it, where this is a rewritten copy; anything else as it is."""
    kept = _originals.get(id(code))
    return code if kept is None or kept[0] is not code else kept[1]


def calls_attribute(frame: types.FrameType) -> bool:
    """Whether rewritten code reads an attribute to call it there and then."""
    return _is_at(frame, ("LOAD_METHOD",)) or (
        _is_at(frame, ("LOAD_ATTR",)) and sys.version_info >= (3, 12) and _argument(frame) & 1 == 1
    )


def goes_through(frame: types.FrameType) -> bool:
    """Whether rewritten code itself goes through something.

    Of other instructions that take items, what does so might be C code that they call.
    """
    return _is_at(frame, ("GET_ITER",))


def _is_at(frame: types.FrameType, names: tuple[str, ...]) -> bool:
    code = frame.f_code
    return original(code) is not code and dis.opname[code.co_code[frame.f_lasti]] in names


def _argument(frame: types.FrameType) -> int:
    return frame.f_code.co_code[frame.f_lasti + 1]


@dataclass(frozen=True)
class Hooks:
    """What rewritten code calls."""

    read: Callable[[Any, Any], Any]  # container, key -> container[key]
    store: Callable[[Any, Any, Any], None]  # value, container, key: container[key] = value
    changing: Callable[[Any, str], Any]  # what has an attribute that is set, its name -> the same
    same: Callable[[Any, Any], bool]  # a, b -> a is b
    contains: Callable[[Any, Any], Any]  # a, b -> a in b
    lacks: Callable[[Any, Any], Any]  # a, b -> a not in b
    called: Callable[[Any], Any]  # a builtin -> what to call in its place
    cached: Callable[[Any], Any]  # a function with a cache -> what to call; or anything else
    asked: Callable[[Any, str], Any]  # what has an attribute that is read, its name -> the same
    making: Callable[[Any, str], Any]  # what has one that is called -> where to look it up
    loaded: Callable[[Any, str], Any]  # what a global name stands for, the name -> what code gets
    stored: Callable[[Any, str], None]  # value, global name
    loaded_from: Callable[[Any, Any], Any]  # what is in a cell, the cell -> what code gets
    stored_in: Callable[[Any, Any], None]  # value, cell
    make_dict: Callable[[], Any]  # -> {}
    make_set: Callable[[], Any]  # -> set()
    put_pair: Callable[[Any, Any], None]  # (key, value), mapping: mapping[key] = value
    put: Callable[[Any, Any], None]  # item, set: adds it
    spread: Callable[[Any], Any]  # what is spread as ``*x`` -> the same, or a tuple
    compare: Mapping[str, Callable[[Any, Any], Any]]  # by name, as "LT": a, b -> a < b
    in_place: Mapping[str, Callable[[Any, Any], Any]]  # by name, as "INPLACE_ADD": a, b -> a += b
    sides: Any  # what code converted by ``sides`` calls


class Rewriter:
    """Swaps functions' code for rewritten code while at least one thread records."""

    def __init__(self, hooks: Hooks, watched: frozenset[str] = WATCHED) -> None:
        self._hooks = hooks
        self._watched = watched
        self._lock = threading.Lock()
        #: by its id, and how many names of CACHED and CELLS there were
        self._rewritten: dict[_Key, tuple[types.CodeType, types.CodeType | None]] = {}
        self._converted: dict[_Key, tuple[types.CodeType, types.CodeType | None]] = {}
        self._users: dict[int, int] = {}  # recordings that need a function rewritten, by its id

    @contextmanager
    def visible(
        self, functions: Iterable[types.FunctionType], both: bool = False
    ) -> Iterator[None]:
        """Inside this block these functions run rewritten; ``both``: converted, where they can be.

        Where another thread records them at the same time, they stay as that one needs them.
        """
        functions = list({id(f): f for f in functions}.values())
        with self._lock:
            for f in functions:
                if id(f) not in self._users:
                    made = self._with_both_sides(f.__code__) if both else None
                    f.__code__ = made or self.rewritten(f.__code__) or f.__code__
                self._users[id(f)] = self._users.get(id(f), 0) + 1
        try:
            yield
        finally:
            with self._lock:
                for f in functions:
                    self._users[id(f)] -= 1
                    if not self._users[id(f)]:
                        del self._users[id(f)]
                        f.__code__ = original(f.__code__)
                if len(self._rewritten) > _MOST and not self._users:
                    self._rewritten.clear()
                    self._converted.clear()
                    _originals.clear()

    def rewritten(self, code: types.CodeType) -> types.CodeType | None:
        """The code with hooks; None where this Python's code cannot be rewritten."""
        key = id(code), len(CACHED), len(CELLS)
        if key not in self._rewritten:
            try:
                made = self._rewrite(code)
            except Exception:  # an instruction that the library does not know
                made = None
            self._rewritten[key] = code, made
            if made is not None:
                _originals[id(made)] = made, code
        return self._rewritten[key][1]

    def sees_all(self, code: types.CodeType) -> bool:
        """Whether the code has hooks, and so have the functions inside it."""
        inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
        return self.rewritten(code) is not None and all(map(self.sees_all, inner))

    def _with_both_sides(self, code: types.CodeType) -> types.CodeType | None:
        """The code with hooks that may compute both sides of branches; None where it has none."""
        key = id(code), len(CACHED), len(CELLS)
        if key not in self._converted:
            found = sides.converted(code)
            made = None if found is None else self.rewritten(found)
            self._converted[key] = code, made
            if made is not None:
                _originals[id(made)] = made, code
        return self._converted[key][1]

    def _rewrite(self, code: types.CodeType) -> types.CodeType:
        steps = bytecode.Bytecode.from_code(code)
        making = _callees(steps, MAKERS) if MAKERS.intersection(code.co_names) else []
        joins = any(getattr(step, "name", "") in _JOINING for step in steps)
        found: list[Any] = []
        for k, step in enumerate(steps):
            if not isinstance(step, bytecode.Instr):
                found.append(step)
                continue
            is_empty = step.name in _EMPTY and not step.arg
            if is_empty and (not joins or _stays(steps[k + 1 : k + 2])):
                found += self._made_empty(step)
                continue
            found += self._replaced(step, any(step is x for x in making))
            if step.name == "CONTAINS_OP" and _want_bool(steps[k + 1 : k + 3]):
                found.append(bytecode.Instr("TO_BOOL", location=step.location))
        steps[:] = found
        for step in found:
            if isinstance(step, bytecode.Instr):
                step.location = _narrow(step.location)
        if code.co_exceptiontable:  # which tells how deep the stack is there
            made = steps.to_code()
        else:  # to find out how deep it may get takes longer than all the rest
            deepest = code.co_stacksize + _DEEPER
            made = steps.to_code(stacksize=deepest, compute_exception_stack_depths=False)
        if not _has_sound_lines(made):
            raise ValueError("its table of lines does not fit")
        return made

    def _made_empty(self, step: bytecode.Instr) -> list[bytecode.Instr]:
        """The instructions in place of one that makes an empty dict or set."""
        make = self._hooks.make_dict if step.name == "BUILD_MAP" else self._hooks.make_set
        null, load = bytecode.Instr("PUSH_NULL"), bytecode.Instr("LOAD_CONST", make)
        before = [bytecode.Instr("PRECALL", 0)] if _HAS_PRECALL else []
        made = [*((load, null) if _NEWER_CALLS else (null, load)), *before]
        made.append(bytecode.Instr("CALL", 0))
        for new in made:
            new.location = step.location
        return made

    def _replaced(self, step: bytecode.Instr, makes: bool) -> list[bytecode.Instr]:
        """The instructions in place of one; ``makes``: it loads one of the MAKERS to call it."""

        def instruction(name: str, *argument: Any) -> bytecode.Instr:
            return bytecode.Instr(name, *argument, location=step.location)

        def call(count: int) -> list[bytecode.Instr]:
            before = [instruction("PRECALL", count)] if _HAS_PRECALL else []
            return [*before, instruction("CALL", count)]

        def of_two(hook: Callable[..., Any]) -> list[bytecode.Instr]:
            # a b -> hook a b: called like a method of a
            below = [instruction("SWAP", 3), instruction("SWAP", 2)]
            return [instruction("LOAD_CONST", hook), *below, *call(1)]

        if step.name == "BINARY_SUBSCR" or _is_new_subscript(step):
            return of_two(self._hooks.read)
        if step.name == "STORE_SLICE":
            made = [instruction("BUILD_SLICE", 2), instruction("STORE_SUBSCR")]
            return [x for one in made for x in self._replaced(one, makes)]
        if step.name == "BINARY_OP" and getattr(step.arg, "name", "") in self._hooks.in_place:
            return of_two(self._hooks.in_place[step.arg.name])  # type: ignore[union-attr]
        if step.name == "STORE_SUBSCR":  # a b c -> hook a b c: called like a method of a
            below = [instruction("SWAP", n) for n in (4, 3, 2)]
            hook = [instruction("LOAD_CONST", self._hooks.store), *below]
            return [*hook, *call(2), instruction("POP_TOP")]
        if step.name in _ADDED:  # ... xs a (b) -> hook (a, b) xs
            assert isinstance(step.arg, int)
            is_pair = step.name == "MAP_ADD"
            pair = [instruction("BUILD_TUPLE", 2)] if is_pair else []
            put = of_two(self._hooks.put_pair if is_pair else self._hooks.put)
            return [*pair, instruction("COPY", step.arg + 1), *put, instruction("POP_TOP")]
        spreads = step.name == "CALL_FUNCTION_EX" and _HAS_SPREAD_LAST and step.arg == 0
        if spreads or step.name in _SPREADING:
            hook = [instruction("LOAD_CONST", self._hooks.spread), instruction("SWAP", 2)]
            return [*hook, *call(0), step]
        if step.name == "STORE_ATTR":
            hook = [instruction("LOAD_CONST", self._hooks.changing), instruction("SWAP", 2)]
            return [*hook, instruction("LOAD_CONST", step.arg), *call(1), step]
        if step.name == "IS_OP":
            same = of_two(self._hooks.same)
            return [*same, instruction("UNARY_NOT")] if step.arg else same
        if step.name == "CONTAINS_OP":
            return of_two(self._hooks.lacks if step.arg else self._hooks.contains)
        if step.name == "COMPARE_OP":  # 3.13 has others, of which only the truth counts
            compare = self._hooks.compare.get(getattr(step.arg, "name", ""))
            return [step] if compare is None else of_two(compare)
        if step.name in ("LOAD_ATTR", "LOAD_METHOD"):
            name = step.arg[1] if isinstance(step.arg, tuple) else step.arg
            asked = self._hooks.making if makes else self._hooks.asked
            hook = [instruction("LOAD_CONST", asked), instruction("SWAP", 2)]
            return [*hook, instruction("LOAD_CONST", name), *call(1), step]
        if step.name == "LOAD_DEREF" and getattr(step.arg, "name", None) in CACHED - CELLS:
            hook = [instruction("LOAD_CONST", self._hooks.cached), instruction("SWAP", 2)]
            return [step, *hook, *call(0)]
        if _name_in(step, CELLS):

            def told(hook: Callable[..., Any], *which: bytecode.Instr) -> list[bytecode.Instr]:
                return [instruction("LOAD_CONST", hook), instruction("SWAP", 2), *which, *call(1)]

            name = _name_of(step)
            if step.name == "LOAD_GLOBAL":
                to_call = isinstance(step.arg, tuple) and step.arg[0]
                around = [instruction("SWAP", 2)] if _NEWER_CALLS and to_call else []
                found = told(self._hooks.loaded, instruction("LOAD_CONST", name))
                return [step, *around, *found, *around]
            if step.name == "STORE_GLOBAL":
                found = told(self._hooks.stored, instruction("LOAD_CONST", name))
                return [*found, instruction("POP_TOP")]
            cell = instruction(_LOAD_CELL, step.arg)
            if step.name == "LOAD_DEREF":
                return [step, *told(self._hooks.loaded_from, cell)]
            return [*told(self._hooks.stored_in, cell), instruction("POP_TOP")]
        if step.name == "LOAD_CONST" and isinstance(step.arg, types.CodeType):
            inner = self.rewritten(step.arg)
            if inner is None and PLACEHOLDER in step.arg.co_names:
                raise ValueError("a part of it cannot be rewritten")
            return [step if inner is None else instruction("LOAD_CONST", inner)]
        if step.name == "LOAD_GLOBAL" and isinstance(step.arg, tuple):
            to_call, name = step.arg
            if name == PLACEHOLDER:
                null = [instruction("PUSH_NULL")] if to_call else []
                return [*null, instruction("LOAD_CONST", self._hooks.sides)]
            if to_call and (name in self._watched or name in CACHED):
                around = [instruction("SWAP", 2)] if _NEWER_CALLS else []
                hook = [instruction("LOAD_CONST", self._hooks.called), instruction("SWAP", 2)]
                return [step, *around, *hook, *call(0), *around]
        return [step]


def _name_in(step: bytecode.Instr, names: Collection[str]) -> bool:
    """Whether an instruction loads or stores one of these names, of globals or of closures."""
    if step.name in ("LOAD_GLOBAL", "STORE_GLOBAL"):
        return _name_of(step) in names
    is_cell = step.name in ("LOAD_DEREF", "STORE_DEREF")
    return is_cell and getattr(step.arg, "name", None) in names


def only_calls(code: types.CodeType, name: str) -> bool:
    """Whether code does nothing with what has this name but to call it there and then."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    if name in (*code.co_varnames, *code.co_freevars, *code.co_cellvars):
        return False
    if name in code.co_names:
        try:
            steps = bytecode.Bytecode.from_code(code)
        except Exception:  # an instruction that the library does not know
            return False
        named = [x for x in steps if isinstance(x, bytecode.Instr) and _name_of(x) == name]
        callees = [id(x) for x in _callees(steps, {name})]
        if any(id(x) not in callees for x in named):
            return False
    return all(only_calls(c, name) for c in inner)


def unseen(code: types.CodeType) -> Iterator[str]:
    """Names by which code may get unseen at what is under ``CELLS``, or delete it."""
    for step in dis.get_instructions(code):
        if step.opname in _UNSEEN and step.argval in CELLS:
            yield step.argval
    yield from {x for x in (*code.co_names, *code.co_consts) if isinstance(x, str)} & _REVEALING
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from unseen(constant)


def _callees(steps: Iterable[Any], names: Collection[str]) -> list[bytecode.Instr]:
    """The instructions that load something of these names, as a global or an attribute, to call."""
    found, before = [], list[bytecode.Instr]()
    steps = [step for step in steps if isinstance(step, bytecode.Instr)]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        before.append(step)
        if step.name not in _ATTRIBUTES:
            before = [step]  # attributes of it may follow
        if _name_of(step) not in names:
            continue
        to_call = isinstance(step.arg, tuple) and step.arg[0]
        if to_call or step.name == "LOAD_METHOD":
            found.append(step)
        elif step.name == "LOAD_ATTR" and after is not None:
            to_call = isinstance(before[0].arg, tuple) and before[0].arg[0]
            if _NEWER_CALLS:
                to_call = after.name == "PUSH_NULL"
            if to_call and after.name not in _ATTRIBUTES:
                found.append(step)
    return found


_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


def _name_of(step: bytecode.Instr) -> Any:
    """The name that an instruction is about; None where it is about something else."""
    if step.name == "LOAD_CONST":
        return None
    name = step.arg[-1] if isinstance(step.arg, tuple) and step.arg else step.arg
    return name if isinstance(name, str) else None


def _narrow(location: InstrLocation | None) -> InstrLocation | None:
    """The place of an instruction in the source, by its line alone where columns are large."""
    if location is None or max(location.col_offset or 0, location.end_col_offset or 0) < _COLUMNS:
        return location
    return InstrLocation(location.lineno, None, None, None)


def _has_sound_lines(code: types.CodeType) -> bool:
    """Whether its table of lines is for as many instructions as there are.

    Debuggers and coverage make CPython write a row for each, and it does not look where it ends.
    """
    starts = [byte for byte in code.co_linetable if byte & 128]  # the first byte of an entry
    return sum((byte & 7) + 1 for byte in starts) == len(code.co_code) // 2


def _want_bool(following: Sequence[Any]) -> bool:
    """Whether the next instructions may take what ``in`` gives for a bool, without asking for it.

    From 3.13 on jumps do. What only stores it, computes with it or hands it on does not.
    """
    if not _NEWER_CALLS:
        return False
    names = [getattr(step, "name", "") for step in following]
    if names and names[0] in ("LOAD_CONST", "LOAD_FAST") and names[-1] == "BINARY_OP":
        return False
    return not names or not names[0].startswith(_TAKES_ANY)


def _stays(following: Sequence[Any]) -> bool:
    """Whether an empty container is given a name, or filled by a comprehension."""
    (step,) = following or (None,)
    name = getattr(step, "name", "")
    if name == "LOAD_FAST":  # what a comprehension goes through
        return getattr(step, "arg", "") == ".0"
    return name in ("STORE_FAST", "STORE_DEREF", "SWAP")


def _is_new_subscript(step: bytecode.Instr) -> bool:
    """Whether this is how Python 3.14 spells ``xs[i]``."""
    return step.name == "BINARY_OP" and getattr(step.arg, "name", "") == "SUBSCR"
