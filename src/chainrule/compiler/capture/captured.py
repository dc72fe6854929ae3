"""What a function reads without being passed it, and whether that has changed.

In: what ``walking`` found: the Values a function may reach through its global names, closure,
defaults, ``self`` and Python helpers, and everything else reached so. Out: a check, quick enough
for every call, that all of it is as it was. Values are known by identity and read afresh, so a
changed ``p.data`` needs no new recording.
"""

from __future__ import annotations

import abc
import collections
import copy
import functools
import gc
import itertools
import random
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.alike import Reach
from chainrule.compiler.capture.comparing import Compared
from chainrule.compiler.capture.rewriting import original
from chainrule.core.backend import Value, kernels

if TYPE_CHECKING:
    from chainrule.compiler.capture.arguments import Call

MISSING = object()
#: in the place of what a dict held: whatever it holds; see ``Checks`` in C
ANY: Any = object() if kernels is None else kernels.Checks
_TEXTS = frozenset((str, bytes))
REPLACES = "_chainrule_replaces"  # attribute of a function that stands for another for a while


class _Registrations:
    """Which classes were registered as subclasses of abstract ones: another mark after each."""

    def __init__(self) -> None:
        self._count, self._mark = abc.get_cache_token(), object()

    @property
    def mark(self) -> object:
        """The same object as long as no class was registered."""
        if (count := abc.get_cache_token()) != self._count:
            self._count, self._mark = count, object()
        return self._mark

    @mark.setter
    def mark(self, before: object) -> None:
        """What was registered stays so."""


class _Printing:
    """How numpy writes arrays: another mark once somebody sets that."""

    def __init__(self) -> None:
        module = sys.modules.get("numpy._core.printoptions")  # np has a function of this name
        #: what numpy replaces where options are set; None: of an older numpy that is not known
        self._options = getattr(module, "format_options", None)

    @property
    def mark(self) -> Any:
        """The same, or equal, as long as nothing was set."""
        options = self._options
        return repr(np.get_printoptions()) if options is None else options.get()

    @mark.setter
    def mark(self, before: Any) -> None:
        """What was set stays so."""


REGISTRATIONS, PRINTING = _Registrations(), _Printing()


class Replacement:
    """An object that stands for a function for a while."""


class Method:
    """A function and the instance it is bound to, which it does not keep alive if it can."""

    def __init__(
        self, function: Callable[..., Any], instance: Any, gone: Callable[[Any], object]
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        try:
            self.instance: Callable[[], Any] = weakref.ref(instance, gone)
        except TypeError:
            self.instance = lambda: instance

    @property
    def attributes(self) -> Any:
        """The instance's own."""
        return getattr(self.instance(), "__dict__", None)

    @attributes.setter
    def attributes(self, attributes: Any) -> None:
        self.instance().__dict__ = attributes

    @property
    def kind(self) -> type:
        """The instance's class."""
        return type(self.instance())

    @kind.setter
    def kind(self, kind: type) -> None:
        self.instance().__class__ = kind

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Call the method."""
        return self.function(self.instance(), *arguments, **keywords)


@dataclass(eq=False)
class CapturedState:
    """What a function reaches, as it was when it was walked."""

    values: list[Value] = field(default_factory=list)
    lists: list[tuple[list[Any], tuple[Any, ...]]] = field(default_factory=list)
    dicts: list[tuple[Any, dict[Any, Any], Any]] = field(default_factory=list)  # and its owner
    sets: list[tuple[set[Any], tuple[Any, ...]]] = field(default_factory=list)  # in order
    names: list[tuple[Any, str, Any]] = field(default_factory=list)  # namespace, name, object
    cells: list[tuple[Any, Any]] = field(default_factory=list)
    cell_names: list[str] = field(default_factory=list)  # of each of these
    arrays: list[tuple[Any, Any, bytes]] = field(default_factory=list)
    objects: list[tuple[Any, list[Any]]] = field(default_factory=list)  # arrays of objects
    generators: list[tuple[Any, Any, str]] = field(default_factory=list)  # its state, and as text
    place: dict[int, int] = field(default_factory=dict)  # of each Value in ``values``
    identity: bool = False  # some code asks which Value or list it has, as by ``is``
    asks: bool = False  # likewise, by what neither a Value nor a hook is told of
    asks_texts: bool = False  # a recording asked by ``is`` which of two equal texts it had
    contains: bool = False  # likewise by ``in``, which a hook sees
    hashes: bool = False  # some code may ask for hashes, or the order of a set that these decide
    looks: bool = False  # some code may read a Value's label or operation
    draws: bool = False  # some code makes a generator of random numbers, which hooks must see
    tells: bool = False  # some code in C may tell a Value from a number
    reach: Reach = Reach.KNOWN  # whether all that it reaches is known to treat floats as Values
    asks_types: bool = False  # some code may tell a list from a tuple or an array, as by isinstance
    asks_classes: bool = False  # some code may ask for the class of an object, and what that holds
    catches: set[types.CodeType] = field(default_factory=set)  # code that may catch errors
    bound: set[int] = field(default_factory=set)  # ids of instances that are not to be kept alive
    functions: list[types.FunctionType] = field(default_factory=list)  # Python code it may run
    objects_by_id: dict[int, type] = field(default_factory=dict)  # reached: no lists and the like
    makes_names: bool = False  # some code asks for attributes by names that it makes
    makes_getters: bool = False  # likewise, by an ``attrgetter`` or ``methodcaller`` that it makes
    unasked: frozenset[str] = frozenset()  # names that a recording must not ask for so
    module_names: set[str] = field(default_factory=set)  # under which modules are followed
    whole_modules: set[int] = field(default_factory=set)  # ids of those that are as a whole
    plain_sites: set[str] = field(default_factory=set)  # branches that run one side only
    keys_tried: bool = False  # once it was found that they might be
    keyed: bool = False  # traced integers are keys of containers that it builds
    true_sites: set[str] = field(default_factory=set)  # where these are true containers
    reached: set[Any] = field(default_factory=set)  # places outside, and ids of their holders
    outside: Any = None  # where it keeps numbers, an ``Outside``; None where that is not asked
    changes_in_calls: bool = False  # a run that was recorded has changed it
    searched: int = 0  # objects that were gone through to find it, items of lists among them
    _labels: list[str] = field(default_factory=list)

    def marks(self, passed: list[Value]) -> tuple[Any, ...]:
        """What a recording takes for granted of the Values that are passed."""
        places = tuple([self.place.get(id(v), -1) for v in passed])
        return (places, *[(v.label, v.op) for v in passed]) if self.looks else places

    def belonging(self, call: Call) -> Collection[Any]:
        """The classes and functions that a call brings, and that belong to this state."""
        return {**call.roots, **call.records} if self.asks_classes else call.roots

    def reaches(self, passed: Collection[int]) -> bool:
        """Whether something with one of these ids is an object that the function has by itself.

        It would be told from the copy that is passed while it is recorded, by ``is`` and ``==``;
        all others are objects of their own to the function, as copies are.
        """
        return not self.objects_by_id.keys().isdisjoint(passed)

    def has(self, x: Any) -> bool:
        """Whether a container is one that the function reads by itself, or in the memory of one."""
        if id(x) in self._containers or id(getattr(x, "__dict__", None)) in self._containers:
            return True
        arrays = [array for array, *_ in (*self.arrays, *self.objects)]
        return isinstance(x, np.ndarray) and any(np.may_share_memory(x, y) for y in arrays)

    @functools.cached_property
    def ids(self) -> frozenset[int]:
        """The ids of all that it has: what is passed may be one of them."""
        return self._containers | {id(array) for array, *_ in (*self.arrays, *self.objects)}

    @functools.cached_property
    def _containers(self) -> frozenset[int]:
        """The ids of all that it holds."""
        held = [x for x, *_ in (*self.lists, *self.dicts, *self.sets, *self.names)]
        inside = [getattr(x, "__dict__", None) for x in held]
        found = map(id, [*held, *[x for x in inside if x is not None]])
        return frozenset((*found, *self.objects_by_id, *[id(x) for x in self.watched_dicts()]))

    def changed(self) -> str | None:
        """What is no longer as it was, in words, or None."""
        if self._only_identities and self._by_identity.failed() < 0:
            return None
        if self.looks and [v.label for v in self.values] != self._labels:
            return "the label of a Value"
        if self._has_other_keys():
            return "which of two equal texts it has"
        if self._by_identity is not None and self._by_identity.failed() < 0:
            return self._changed_contents()
        if (self.asks or self.asks_texts) and self._has_other_texts():
            return "which of two equal texts it has"
        for namespace, name, before in self.names:
            now = look_up(namespace, name)
            if now is before or _same(now, before):
                continue
            if original(now) is not before and unreplaced(now) is not before:
                return f"{name!r}"
        for cell, before in self.cells:
            now = content_of(cell)
            if now is not before and not _same(now, before):
                return "a variable of an enclosing function"
        for mapping, contents, _ in self.dicts:
            if (change := _changed_mapping(mapping, contents)) is not None:
                return change
        for items, before_items in self.lists:
            if not are_same(items, before_items):
                return "an item of a list"
        return self._changed_contents()

    def _has_other_texts(self) -> bool:
        """Whether another text is where one was, be it equal: code may ask for that by ``is``."""
        pairs = [(look_up(namespace, name), before) for namespace, name, before in self.names]
        pairs += [(content_of(cell), before) for cell, before in self.cells]
        for items, before_items in self.lists:
            pairs += zip(items, before_items, strict=False)
        for mapping, contents, _ in self.dicts:
            pairs += [(mapping.get(key), before) for key, before in contents.items()]
        return any(type(x) in _TEXTS and now is not x for now, x in pairs)

    def _has_other_keys(self) -> bool:
        """Likewise, where the check in C looks only whether texts are equal."""
        return any(
            type(x) in _TEXTS and now is not x
            for items, before in self._compared_by_equality
            for now, x in zip(items, before, strict=False)
        )

    @functools.cached_property
    def _compared_by_equality(self) -> list[tuple[Collection[Any], tuple[Any, ...]]]:
        """Keys, members and items with texts among them, where code asks which these are."""
        if not self.asks_texts:
            return []
        groups = [*((mapping, tuple(held)) for mapping, held, _ in self.dicts), *self.sets]
        groups += [(m.values(), tuple(held.values())) for m, held in self._other_mappings]
        return [(items, before) for items, before in groups if _has_texts(before)]

    def watched_dicts(self) -> Iterator[Any]:
        """The dicts that are compared, those of classes' attributes too."""
        return (dict_of(mapping) for mapping, _, _ in self.dicts)

    @property
    def check(self) -> Any:
        """``changed`` for the gate of a function: where C can do it all, a ``kernels.Checks``."""
        return self._by_identity if self._only_identities else self.changed

    @functools.cached_property
    def _by_identity(self) -> Any:
        """What is as it was if certain objects are still the same, for the check in C."""
        if kernels is None:
            return None
        names = [*self.names, *[(cell, "cell_contents", before) for cell, before in self.cells]]
        once = {(id(s), name, id(x)): (s, name, x) for s, name, x in names}.values()
        return kernels.Checks(
            (
                *[(s, name, None, None) if x is MISSING else (s, name, x) for s, name, x in once],
                *_by_items([(m, c) for m, c, _ in self.dicts]),
                *self.lists,
            )
        )

    def compare_texts(self) -> None:
        """From here on, equal texts are not the same: a recording asked by ``is`` which it had."""
        if not self.asks_texts:
            self.asks_texts = True
            for known in ("_compared_by_equality", "_only_identities", "compared"):
                vars(self).pop(known, None)

    @functools.cached_property
    def _only_identities(self) -> bool:
        """Whether the check in C is all there is to check."""
        others = (self._other_mappings, self.sets, self.arrays, self.generators)
        others_are_none = not any(others) and not self._compared_by_equality
        return self._by_identity is not None and not self.looks and others_are_none

    @functools.cached_property
    def compared(self) -> Compared:
        """How much ``changed`` looks at."""
        return self.compared_so_far(only_in_c=self._only_identities)

    def compared_so_far(self, *more: Any, only_in_c: bool = True) -> Compared:
        """The same of what was found until now; ``only_in_c``: there is nothing else.

        ``more``: a list or dict, or several, that are not gone through yet.
        """
        in_c: list[Collection[Any]] = [x for x in more if type(x) is dict]
        in_c += [held for mapping, held, _ in self.dicts if dict_of(mapping) is not None]
        others: list[Collection[Any]] = [held for _, held in self.sets]
        others += [held for mapping, held, _ in self.dicts if dict_of(mapping) is None]
        lists: list[Collection[Any]] = [x for x in more if type(x) is list]
        lists += [held for _, held in self.lists]
        arrays = [held for _, _, held in self.arrays]
        return Compared.of(lists, in_c, others, arrays, only_in_c)

    @functools.cached_property
    def _other_mappings(self) -> list[tuple[Any, dict[Any, Any]]]:
        return [(m, c) for m, c, _ in self.dicts if dict_of(m) is None]

    def _changed_contents(self) -> str | None:
        """What the check in C leaves out."""
        for mapping, contents in self._other_mappings:
            if (change := _changed_mapping(mapping, contents)) is not None:
                return change
        for members, before in self.sets:
            if not are_same(members, before):
                return "the members of a set, or their order"
        for array, shape, contents_ in self.arrays:
            if array.shape != shape or not _holds(array, contents_):
                return "the contents of an array"
        for generator, _, text in self.generators:
            if repr(state_of(generator)) != text:
                return "the state of a random generator"
        return None

    def restore(self) -> None:
        """Put everything back as it was: a recorded run must leave no trace."""
        for namespace, name, before in self.names:
            if look_up(namespace, name) is not before:
                _put(namespace, name, before)
        for cell, before in self.cells:
            if content_of(cell) is not before and before is not MISSING:
                cell.cell_contents = before
        for items, before_items in self.lists:
            if len(items) != len(before_items) or any(
                a is not b for a, b in zip(items, before_items, strict=True)
            ):
                items[:] = before_items
        for mapping, contents, owner in self.dicts:
            _restore_mapping(mapping, contents, owner)
        for members, before_members in self.sets:
            if not are_same(members, before_members):
                members.clear()
                members.update(before_members)
        for array, shape, contents_ in self.arrays:
            if array.shape == shape and array.dtype != object and array.tobytes() != contents_:
                array[...] = np.frombuffer(contents_, array.dtype).reshape(shape)
        for array, contained in self.objects:
            for place, item in zip(np.ndindex(array.shape), contained, strict=False):
                if array[place] is not item:
                    array[place] = item
        for generator, state, _ in self.generators:
            _set_state(generator, state)


def identity_checks(mapping: Any) -> Any:
    """A check in C of whether a dict holds what it holds now."""
    assert kernels is not None
    return kernels.Checks(tuple(_by_items([(mapping, dict(mapping))])))


def _by_items(mappings: list[tuple[Any, dict[Any, Any]]]) -> list[tuple[Any, tuple[Any, ...]]]:
    """Dicts, each with its keys and items in a row."""
    dicts = [(dict_of(mapping), contents) for mapping, contents in mappings]
    return [(m, (*itertools.chain(*c.items()),)) for m, c in dicts if m is not None]


def unreplaced(x: Any) -> Any:
    """What a recording in some thread has replaced for now: ``max``, ``math.exp``; else itself."""
    replaced = isinstance(x, types.FunctionType) or issubclass(type(x), Replacement)
    return getattr(x, REPLACES, x) if replaced else x


def _holds(array: Any, contents: bytes) -> bool:
    """Whether an array holds these bytes."""
    if kernels is None or not array.flags.c_contiguous or array.dtype == object:
        return bool(array.tobytes() == contents)
    return kernels.same_bytes(array, contents)  # type: ignore[no-any-return]


def _changed_mapping(mapping: Any, contents: dict[Any, Any]) -> str | None:
    if not are_same(mapping, contents):
        return "the keys of a dict or the attributes of an object"
    for key, before in contents.items():
        now = mapping[key]
        if before is ANY:
            continue
        if now is not before and not _same(now, before) and unreplaced(now) is not before:
            return f"{key!r}"
    return None


def _restore_mapping(mapping: Any, contents: dict[Any, Any], owner: Any) -> None:
    if are_same(mapping, contents) and all(
        x is ANY or mapping[key] is x for key, x in contents.items()
    ):
        return
    if isinstance(mapping, dict):
        contents = {key: mapping[key] if x is ANY else x for key, x in contents.items()}
        mapping.clear()
        mapping.update(contents)
        return
    if owner is None:
        return
    for key in [*mapping]:  # a class's attributes
        if key not in contents:
            delattr(owner, key)
    for key, x in contents.items():
        if mapping.get(key) is not x:
            setattr(owner, key, x)


def are_same(now: Collection[Any], before: Collection[Any]) -> bool:
    """Whether items, members or keys are the same, in the same order.

    Equal ones may differ in what ``==`` does not ask for.
    """
    return len(now) == len(before) and all(map(_same, now, before))


def _same(now: Any, before: Any) -> bool:
    """Identical, or an equal number or text, zeros by their sign too.

    What is not a number is equal to itself alone, as ``in`` tells; what is of a class of the user's
    may have attributes, so it is the same as itself alone.
    """
    if now is before:
        return True
    if type(now) is not type(before):
        return False
    if type(now) in (int, bool, str, bytes):
        return bool(now == before)
    if type(now) in (float, complex) or type(now).__module__ == "numpy":
        return isinstance(now, (float, complex, np.generic)) and _same_bits(now, before)
    return False


def _same_bits(now: Any, before: Any) -> bool:
    here, there = np.asarray(now), np.asarray(before)  # with units, where numpy's have some
    same = here.dtype == there.dtype and here.tobytes() == there.tobytes()
    return same and bool(now == before)


def dict_of(mapping: Any) -> dict[Any, Any] | None:
    """The dict itself, also of a class's attributes, where only the collector shows it.

    None for an OrderedDict: it has an order of its own, which C code does not see.
    """
    if isinstance(mapping, dict):
        return None if isinstance(mapping, collections.OrderedDict) else mapping
    found = gc.get_referents(mapping) if type(mapping) is types.MappingProxyType else []
    return found[0] if [type(x) for x in found] == [dict] else None


def look_up(namespace: Any, name: str) -> Any:
    """What a name stands for: in globals, or as an attribute, also of a dict of another class."""
    if type(namespace) is dict:
        return namespace.get(name, MISSING)
    return getattr(namespace, name, MISSING)


def _put(namespace: Any, name: str, x: Any) -> None:
    if type(namespace) is dict:
        if x is MISSING:
            namespace.pop(name, None)
        else:
            namespace[name] = x
    elif x is not MISSING and type(namespace) is not functools.partial:  # which allows none
        setattr(namespace, name, x)


def _has_texts(items: Collection[Any]) -> bool:
    return any(type(x) in _TEXTS for x in items)


def content_of(cell: Any) -> Any:
    """What is in a closure's cell."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def state_of(generator: Any) -> Any:
    """The state of a random generator."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state()
    return copy.deepcopy(generator.bit_generator.state)


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state
