"""A call's arguments, flattened.

In: the arguments as the user gave them. Out: a ``Call``: their structure as a hashable key, the
numbers in one row, the integers in another, and the Values among them; and the arguments again, as
the recorded function sees them. Where the first argument is differentiated its ints are floats.
"""

from __future__ import annotations

import copy
import enum
import math
import operator
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

import numpy as np

from chainrule.compiler.capture.arrays import (
    DataArray,
    data_array,
    data_view,
    items_of,
    object_array,
)
from chainrule.compiler.capture.objects import (
    has_identity,
    is_constant,
    is_itself,
    is_ordinary,
    is_plain_item,
    is_plain_record,
    is_record_with_methods,
)
from chainrule.core.backend import Value
from chainrule.trees import (
    FLOAT,
    INT,
    TRUTH,
    VALUE,
    Again,
    Array,
    Branch,
    Deque,
    Dict,
    Flat,
    Floats,
    List,
    Namespace,
    Node,
    Number,
    Numbers,
    Record,
    SameValue,
    Shape,
    Text,
    field_names,
    is_record,
    map_leaves,
    unflatten,
)

#: The arguments, by their place or keyword, whose strings are integers.
Texts = frozenset[int | str]

#: Moves a number a little, or every number of an array.
Nudge = Callable[[Any], Any]

MANY = 64  # numbers that numpy moves sooner than Python


def nudges(seed: int, scale: float, from_zero: float) -> Nudge:
    """Nudges by a random share, at most ``scale``; of a number that is 0 at most ``from_zero``."""
    chance = random.Random(seed)
    many: list[np.random.Generator] = []  # of what is seldom needed, and takes long to make

    def nudge(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            many[:] = many or [np.random.default_rng(seed)]
            steps = many[0].uniform(-1.0, 1.0, x.shape)
            with np.errstate(all="ignore"):  # as Python's floats
                return np.where(x == 0.0, from_zero * np.abs(steps), x * (1.0 + scale * steps))
        step = chance.uniform(-1.0, 1.0)
        return x * (1.0 + scale * step) if x else from_zero * abs(step)

    return nudge


@dataclass(eq=False)
class Call(Flat):
    """One call's arguments: ``key`` is equal for calls that one recording may serve."""

    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    structure: tuple[tuple[Node, ...], dict[str, Node]] = ((), {})
    first: int = 0  # how many of the floats are the first argument's
    key: Any = None
    refused: str | None = None  # why such arguments cannot be recorded
    failed: str | None = None  # an error that recording it raised
    copied: bool = False  # its Values are copies of the user's
    texts: Texts | None = None  #: None: whoever made the call takes static strings only
    roots: dict[Any, None] = field(default_factory=dict)  # classes and functions that it brings
    #: classes of records and enums that have fields alone, which code may ask for all the same
    records: dict[type, None] = field(default_factory=dict)
    has_identity: bool = False  # an object among them has a hash by its address
    _ordinary: dict[type, bool] = field(default_factory=dict)  # classes of objects

    def flatten_again(self, texts: Texts) -> None:
        """Let the strings of other arguments be integers."""
        made = flatten_call(self.arguments, self.keywords, bool(self.key[0]), texts)
        for one in fields(self):
            setattr(self, one.name, getattr(made, one.name))

    def opens(self, x: Any) -> bool:
        """Whether its fields are all there is to it, or what else there is can be walked."""
        if isinstance(x, enum.Enum):
            self.records[type(x)] = None
            return is_plain_item(x)
        if not isinstance(x, tuple):
            self.has_identity |= has_identity(type(x))
        if is_plain_record(x):
            self.records[type(x)] = None
            return True
        with_methods = not isinstance(x, tuple) and is_record_with_methods(x)
        if with_methods:
            self.roots[type(x)] = None
        return with_methods

    def opens_object(self, x: Any) -> bool:
        """Whether it is an instance of an ordinary class."""
        kind = type(x)
        if kind not in self._ordinary:
            self._ordinary[kind] = is_ordinary(kind)
        if not self._ordinary[kind] or type(vars(x)) is not dict:
            return False
        self.roots[kind] = None
        self.has_identity |= has_identity(kind)
        return True

    def is_key(self, x: Any) -> bool:
        """Whether a key of a dict never changes, all the way down."""
        if isinstance(x, (tuple, frozenset)):
            is_usual = type(x) in (tuple, frozenset) or (hasattr(x, "_make") and self.opens(x))
            return is_usual and all(map(self.is_key, x))
        return is_constant(x) or (isinstance(x, enum.Enum) and is_plain_item(x))

    def stands_for_itself(self, x: Any) -> bool:
        """Whether it is a function, which is walked as a helper is."""
        found = is_itself(x)
        if found:
            self.roots[x] = None
        return found

    @property
    def containers(self) -> Collection[int]:
        """The ids of what it was passed as copies of, but for the first argument."""
        return self._containers.keys()

    @property
    def comes_again(self) -> bool:
        """Whether a container was passed twice."""
        return any(_any_node(node, lambda x: isinstance(x, Again)) for node in self._nodes())

    @property
    def may_come_again(self) -> bool:
        """Whether another call of this structure could pass one container of floats twice."""
        nodes = self._nodes()[1 if self.key[0] else 0 :]
        return sum(_containers_of_floats(node) for node in nodes) > 1

    @property
    def listed(self) -> int:
        """How many numbers it passes one by one, not in arrays, after what it differentiates by."""
        return sum(map(_listed, self._nodes()[1 if self.key[0] else 0 :]))

    def _nodes(self) -> list[Node]:
        return [*self.structure[0], *self.structure[1].values()]

    def nudged(self, nudge: Nudge, captured: Container[int], data: bool = True) -> Call:
        """The same call with its numbers a little off (without ``data`` the first argument's).

        Values are copied, so that nobody else sees it, but for the captured ones (their ids): a
        function that reaches them by another way too must find the same ones.
        """
        made = copy.copy(self)
        made.copied = True
        if data and len(self.floats) >= MANY and self._are_pythons:
            made.floats = nudge(np.array(self.floats)).tolist()
            return made
        moved: list[Any] = []
        at = 0
        for x, size in zip(self.floats, self.sizes, strict=True):
            at += size
            if at > self.first and not data:
                moved.append(x)
            elif type(x) is float:
                moved.append(nudge(x))
            elif isinstance(x, np.ndarray):
                moved.append(nudge(x.astype(np.float64)).astype(x.dtype))
            elif not isinstance(x, Value):
                moved.append(type(x)(nudge(float(x))))
            elif id(x) in captured:
                moved.append(x)
            else:
                moved.append(Value(nudge(x._number), label=x.label))
        made.floats = moved
        return made

    @property
    def _are_pythons(self) -> bool:
        """Whether all its floats are Python's own, each by itself."""
        return set(map(type, self.floats)) == {float}

    def write(self, out: Floats) -> None:
        """Write every float of the call into ``out``."""
        if self._are_pythons:
            out[: len(self.floats)] = self.floats
            return
        at = 0
        for x, size in zip(self.floats, self.sizes, strict=True):
            if isinstance(x, np.ndarray):
                out[at : at + size] = x.ravel()
            else:
                out[at] = x._number if isinstance(x, Value) else x
            at += size


def flatten_call(
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    differentiate: bool,
    texts: Texts | None = None,
) -> Call:
    """The arguments of one call; ``differentiate``: by the first of them.

    ``texts``: the arguments whose strings are integers, one for each character, and so are bools
    and the items of arrays of these and of integers of few bits; those of others are static.
    """
    call = Call(arguments=arguments, keywords=keywords, texts=texts)
    structures: list[Node] = []
    named: dict[str, Node] = {}
    try:
        for i, x in enumerate(arguments):
            call.traces_text = texts is not None and i in texts
            structures.append(call.add(x, differentiate and i == 0))
            if i == 0:
                call.first = call.size
        for name, x in keywords.items():
            call.traces_text = texts is not None and name in texts
            named[name] = call.add(x)
    except RecursionError:
        call.refused = "its arguments are nested too deeply"
    call.structure = (tuple(structures), named)
    call.key = (
        differentiate,
        call.structure[0],
        tuple(named.items()),
        (*call.labels, *call.narrow),
    )
    if call.refused is not None:
        return call
    if differentiate and arguments and not _is_differentiable(call.structure[0][0]):
        kind = type(arguments[0])
        call.refused = (
            f"its first argument is of type {kind.__name__}: pass {_FIRST_INSTEAD[kind]} there"
            if kind in _FIRST_INSTEAD
            else "not everything in its first argument is a number"
        )
    elif call.opaque is not None:
        call.refused = f"an argument of type {call.opaque} cannot be followed: {_advice(call)}"
    elif differentiate and arguments and holds_values(arguments[0]):
        call.refused = (
            "its first argument holds Values, and so does its derivative: pass numbers, or call "
            "the function itself and backward()"
        )
    return call


#: of containers that eager mode differentiates by, and a recording does not
_FIRST_INSTEAD: dict[type, str] = {OrderedDict: "a dict", deque: "a list"}
_INSTEAD = {  # of types that hold, or stand for, numbers
    "Series": "pass its numbers by to_numpy()",
    "DataFrame": "pass its columns by to_numpy()",
    "range": "pass list(...) of it, or its ends",
    "set": "it has no order of its own; pass a list of what is in it",
    "frozenset": "it has no order of its own; pass a list of what is in it",
    "datetime": "pass a number, as its timestamp(), or those that are read of it, as its hour",
    "time": "pass the numbers that are read of it, as its hour",
    "Timestamp": "pass a number, as its timestamp(), or those that are read of it, as its hour",
    "Timedelta": "pass a number, as its total_seconds()",
    "datetime64": "pass a number, as x.astype(float) of it",
    "timedelta64": "pass a number, as x / np.timedelta64(1, 's') of it",
}


def _advice(call: Call) -> str:
    """What to pass instead of something that nobody looks into."""
    words = str(call.opaque).strip(",").split()
    return _INSTEAD.get(
        words[-1],
        "pass its numbers, in arrays, lists, tuples, dicts, dataclasses, or objects of classes of "
        "your own, or let the function read it as a global",
    )


def _any_node(node: Node, test: Callable[[Node], bool]) -> bool:
    """Whether a test holds for a node or one inside it."""
    if test(node):
        return True
    return isinstance(node, Branch) and any(_any_node(item, test) for item in node.kinds)


def _listed(node: Node) -> int:
    if isinstance(node, Branch):
        plain = all(isinstance(kind, Number) for kind in node.kinds)
        return len(node.items) if plain else sum(map(_listed, node.items))
    return int(isinstance(node, Number))


def _containers_of_floats(node: Node) -> int:
    inside = sum(map(_containers_of_floats, node.items)) if isinstance(node, Branch) else 0
    return inside + (node.holds_floats and not isinstance(node, Number))


def holds_values(tree: Any) -> bool:
    """Whether there is a Value in a tree."""
    found: list[bool] = []
    map_leaves(lambda x: found.append(_is_value(x)), tree, records=True)
    return any(found)


def _is_value(x: Any) -> bool:
    if isinstance(x, np.ndarray):
        return x.dtype == object and any(isinstance(item, Value) for item in x.ravel().tolist())
    return isinstance(x, Value)


_NUMBERS = (Number, Numbers, SameValue, Again)


def _is_differentiable(node: Node) -> bool:
    """Whether all leaves are numbers; eager mode says what is wrong with the others."""
    if isinstance(node, Branch):
        return all(map(_is_differentiable, node.items))
    return isinstance(node, _NUMBERS)


@dataclass
class Rebuilt:
    """The arguments as the function sees them, and the containers that were made for it."""

    arguments: list[Any]
    keywords: dict[str, Any]
    lists: list[tuple[Any, tuple[Any, ...]]]
    dicts: list[tuple[dict[Any, Any], dict[Any, Any]]]
    arrays: list[tuple[Any, Any]]  # and what each looked like
    records: list[tuple[Any, type, dict[str, Any]]]  # objects, their classes and attributes

    def changed(self) -> bool:
        """Whether the function changed a list, dict, array or object it was passed."""
        if any(_looks(array) != before for array, before in self.arrays):
            return True
        if any(type(x) is not kind for x, kind, _ in self.records):
            return True
        if any(has_attributes(x) for x, _ in self.dicts):
            return True
        dicts = [*self.dicts, *[(_fields(x), before) for x, _, before in self.records]]
        return any(
            len(now) != len(before) or not all(map(operator.is_, now, before))
            for now, before in ((_contents(items), before) for items, before in self.lists)
        ) or any(
            list(now) != list(before) or any(now[key] is not before[key] for key in before)
            for now, before in dicts
        )


def has_attributes(x: Any) -> bool:
    """Whether a dict has attributes too, as an OrderedDict may, which was passed without any."""
    return type(x) is OrderedDict and bool(vars(x))


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, and whatever else an object has as attributes."""
    if not is_record(record) or is_ordinary(type(record)):
        return dict(vars(record))
    names = [name for name in field_names(record) if hasattr(record, name)]
    return {name: getattr(record, name) for name in names} | getattr(record, "__dict__", {})


def _contents(container: Any) -> Any:
    return items_of(container) if isinstance(container, np.ndarray) else container


def _looks(array: Any) -> Any:
    """What an array is in memory: of objects, which ones."""
    memory = np.ndarray.view(array, np.ndarray)
    return memory.shape, memory.strides, memory.dtype, memory.tobytes()


def _laid_out(built: Any, original: Any) -> Any:
    """The array with its axes in the order in which those of another lie in memory.

    It decides whether ``ravel`` and ``reshape`` give views; recordings are for one order.
    """
    memory = np.ndarray.view(built, np.ndarray)
    laid = np.empty_like(original, memory.dtype, subok=False)
    laid[...] = memory
    return data_view(laid, built) if isinstance(built, DataArray) else laid


@dataclass(frozen=True)
class Makers:
    """What stands for each leaf of the arguments, in their order.

    ``value``: for a number of the first argument, or a Value anywhere; ``number``: for a number
    elsewhere, with the type it came in; ``integer``: for an integer; ``array``: for an array of
    such numbers or integers, from them, its shape and its type; ``text`` and ``truth``: for a
    string that is integers and a bool that is one, where not they themselves do.
    """

    value: Callable[[Any], Any]
    number: Callable[[float, type], Any]
    integer: Callable[[int, type], Any]
    array: Callable[[list[Any], Shape, np.dtype[Any]], Array] = data_array
    #: as ``value`` and ``number``, for all of an array or list at once: there may be very many
    values: Callable[[list[float]], list[Any]] | None = None
    numbers: Callable[[list[float], type], list[Any]] | None = None
    #: a whole array of numbers outside of the first argument, where no stand-ins are in it
    whole: Callable[[Floats, np.dtype[Any]], Array] | None = None
    text: Callable[[str], Any] | None = None
    truth: Callable[[bool], Any] | None = None


def rebuild(call: Call, makers: Makers, keep: bool = False) -> Rebuilt:
    """The arguments again, with something made for each number in its place.

    An array of the first argument becomes an array of objects.
    ``keep``: containers that hold no floats are the caller's own.
    """
    keep = keep and not call.copied
    numbers = iter(call.floats)
    containers: list[Any] = []  # the lists and dicts, for one that comes again
    made: list[Any] = []  # what stands for each float, for a Value that comes again
    lists: list[tuple[Any, tuple[Any, ...]]] = []
    dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
    arrays: list[tuple[Any, Any]] = []
    records: list[tuple[Any, type, dict[str, Any]]] = []
    first = bool(call.key[0])  # it is differentiated by the first argument

    def number(x: Any, kind: type) -> Any:
        return makers.value(x) if first or isinstance(x, Value) else makers.number(x, kind)

    def array(items: list[Any], original: Any, integers: bool) -> Any:
        if first and not integers:  # in order, as eager mode makes it
            built = kept(object_array(items, original.shape))
        else:
            built = kept(laid_out(makers.array(items, original.shape, original.dtype), original))
        lists.append((built, tuple(items)))
        arrays.append((built, _looks(built)))
        return built

    def laid_out(built: Any, original: Any) -> Any:
        # Of one that repeats its numbers, numpy's arithmetic gives an array in order.
        in_order = original.flags.c_contiguous or 0 in original.strides
        return built if in_order else _laid_out(built, original)

    def kept(built: Any) -> Any:
        if not (first and call.key[0]):  # by which it is differentiated: no argument comes again
            containers.append(built)
        return built

    def make(node: Node, original: Any) -> Any:
        if node is FLOAT or node is VALUE:
            made.append(number(next(numbers), type(original)))
            if node is FLOAT and isinstance(original, Value):
                made[-1].label = original.label
            return made[-1]
        if node is INT:
            return makers.integer(int(original), type(original))
        if isinstance(node, Text) and makers.text is not None:
            return makers.text(original)
        if node is TRUTH and makers.truth is not None:
            return makers.truth(original)
        if isinstance(node, SameValue):
            return made[node.place]
        if isinstance(node, Again):
            return containers[node.number]
        if not isinstance(node, Numbers):
            if not isinstance(original, np.ndarray):
                return original
            static = original if keep else original.copy("K")
            arrays.append((static, _looks(static)))
            containers.append(static)
            return static
        if node.kind is not FLOAT:
            kind = np.int64 if node.kind is INT else original.dtype.type
            return array(
                [makers.integer(i, kind) for i in original.ravel().tolist()], original, True
            )
        made.append(None)
        row = next(numbers)
        if not first and makers.whole is not None:
            return kept(laid_out(makers.whole(row, original.dtype), original))
        items = row.ravel().astype(float).tolist()
        kind = original.dtype.type
        if first and makers.values is not None:
            return array(makers.values(items), original, False)
        if not first and makers.numbers is not None:
            return array(makers.numbers(items, kind), original, False)
        return array([number(x, kind) for x in items], original, False)

    def contain(node: Branch, items: list[Any], original: Any) -> Any:
        if keep and not node.holds_floats:
            built = original
        elif isinstance(original, np.ndarray):
            built = np.empty(original.shape, object)
            for k, item in enumerate(items):
                built[k] = item
            lists.append((built, tuple(_contents(built))))
        else:
            built = node.build(items, original)
            if isinstance(node, List | Deque):
                lists.append((built, tuple(built)))
            elif isinstance(node, Dict):
                dicts.append((built, dict(built)))
            elif isinstance(node, Record | Namespace):
                records.append((built, type(built), _fields(built)))
        if node.is_mutable:
            containers.append(built)
        return built

    def row(count: int) -> list[Any]:
        items = list(islice(numbers, count))
        if first:
            found = (
                list(map(makers.value, items)) if makers.values is None else makers.values(items)
            )
        elif makers.numbers is None:
            found = [makers.number(x, float) for x in items]
        else:
            found = makers.numbers(items, float)
        made.extend(found)
        return found

    structures, named = call.structure
    arguments = []
    for part, x in zip(structures, call.arguments, strict=True):
        arguments.append(unflatten(part, make, x, contain, row))
        first = False
    keywords = {
        name: unflatten(part, make, call.keywords[name], contain, row)
        for name, part in named.items()
    }
    return Rebuilt(arguments, keywords, lists, dicts, arrays, records)


def copied_arguments(call: Call) -> Rebuilt:
    """Copies of the arguments of a call, for an eager run that may change them."""
    made = copy.copy(call)
    made.copied = True
    return rebuild(made, _eager_makers(lambda x: x, None))


def _eager_makers(
    value: Callable[[Any], Any], values: Callable[[list[float]], list[Any]] | None
) -> Makers:
    return Makers(
        value,
        lambda x, kind: kind(x),
        lambda i, kind: kind(i),
        lambda items, shape, dtype: np.array(items, dtype).reshape(shape),
        values,
        lambda items, kind: list(map(kind, items)),
        whole=lambda row, dtype: np.array(row, np.float64).astype(dtype, "C"),
    )


def eager_arguments(
    call: Call,
    value: Callable[[Any], Any],
    values: Callable[[list[float]], list[Any]] | None = None,
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of an eager call: the first with Values in it, the others as they were passed.

    Those of a nudged call are made anew. ``value`` and ``values`` are those of ``Makers``.
    """
    makers = _eager_makers(value, values)
    if call.copied:
        rebuilt = rebuild(call, makers)
        return rebuilt.arguments, rebuilt.keywords
    only = copy.copy(call)
    only.arguments, only.keywords = call.arguments[:1], {}
    only.structure = call.structure[0][:1], {}
    rebuilt = rebuild(only, makers, keep=True)
    return [*rebuilt.arguments, *call.arguments[1:]], call.keywords


def as_float(i: int) -> float:
    """An integer argument as a number; nan where it is beyond floats, and so unusable as one."""
    try:
        return float(i)
    except OverflowError:
        return math.nan


def like_first(structure: Node, original: Any, gradient: Floats) -> Any:
    """The gradient of the first argument, in its own structure."""
    place = 0

    def make(node: Node, original: Any) -> Any:
        nonlocal place
        if node is FLOAT or node is VALUE:
            place += 1
            return float(gradient[place - 1])
        if isinstance(node, Numbers):
            start, place = place, place + math.prod(node.shape)
            return gradient[start:place].reshape(node.shape).copy()
        # A Value of the user's own class: the whole gradient stands where it came first.
        return 0.0 if isinstance(node, SameValue) else original

    def branch(node: Branch, items: list[Any], original: Any) -> Any:
        if isinstance(original, np.ndarray):
            return np.array(items, np.float64).reshape(original.shape)
        return node.build(items, original)

    return unflatten(structure, make, original, branch)
