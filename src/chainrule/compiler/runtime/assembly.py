"""What a call hands to its caller: new containers, the caller's own ones, and changes of these.

In: a recording, and at each call the numbers that a replay gave and the arguments. Out: what the
function returned, once the arguments are changed as eager mode would have changed them. Nothing is
changed before all is known, so that a call which is left to eager mode has left no sign.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.handing import Attribute, Change, First, Passed, Queue, Same
from chainrule.compiler.capture.recordings import ArrayOutput, Output, Recording
from chainrule.compiler.runtime.results import array_of_values
from chainrule.core.backend import Value
from chainrule.trees import Array, field_names, is_named_tuple, is_record

#: what makes a part of the result of a call's numbers, arguments, keywords and containers so far
Build = Callable[[Sequence[Any], Sequence[Any], dict[str, Any], dict[int, Any]], Any]


class Assembly:
    """Puts together what a function returns, and changes what it was passed."""

    def __init__(self, recording: Recording) -> None:
        #: the numbers and arrays that it takes, in their order
        self.leaves: list[Output | ArrayOutput] = []
        self._stored = [self._items(change.items) for change in recording.changes]
        self._result = self._of(recording.result)
        self._places = [_found(change.place) for change in recording.changes]
        self._commits = [_commit(change) for change in recording.changes]

    def run(
        self,
        numbers: Sequence[Any],
        arguments: Sequence[Any],
        keywords: dict[str, Any],
        may_change: Callable[[list[Any]], bool],
    ) -> Any:
        """What a call returns; NotImplemented where only eager mode can do what it does.

        ``may_change``: whether these containers are no others that the function reads too.
        """
        made: dict[int, Any] = {}
        given = numbers, arguments, keywords, made
        try:
            changed = [find(*given) for find in self._places]
            if changed and not may_change(changed):
                return NotImplemented
            stored = [build(*given) for build in self._stored]
            result = self._result(*given)
        except (LookupError, AttributeError):  # another thread has changed them meanwhile
            return NotImplemented
        for commit, container, items in zip(self._commits, changed, stored, strict=True):
            commit(container, items)
        return result

    def _leaf(self, x: Output | ArrayOutput) -> int:
        self.leaves.append(x)
        return len(self.leaves) - 1

    def _of(self, x: Any) -> Build:
        """What makes a part of the result."""
        kind = type(x)
        if kind is Output or kind is ArrayOutput:
            return _number(x, self._leaf(x))
        if kind is Passed:
            return _found(x)
        if kind is Same:
            return lambda *given: given[3][x.number]
        if kind is First:
            return _kept(self._of(x.item), x.number)
        if kind is list:
            return self._items(x)
        if kind is tuple:
            items = self._items(list(x))
            return lambda *given: tuple(items(*given))
        if kind is dict:
            keys, items = list(x), self._items(list(x.values()))
            return lambda *given: dict(zip(keys, items(*given), strict=True))
        if kind is Queue:
            items = self._items(x.items)
            return lambda *given: deque(items(*given), x.most)
        if is_named_tuple(x):
            items = self._items(list(x))
            return lambda *given: kind._make(items(*given))
        if is_record(x):
            names = field_names(kind)
            items = self._items([getattr(x, name) for name in names])
            return lambda *given: _record(kind, names, items(*given))
        return lambda *given: x

    def _items(self, items: list[Any]) -> Build:
        """What makes the list of some items: parts of lists are taken at once."""
        parts: list[Build] = []
        at = 0
        while at < len(items):
            end = at + 1
            if type(items[at]) is Output:
                while end < len(items) and _is_like(items[end], items[at]):
                    end += 1
                first, *_ = [self._leaf(x) for x in items[at:end]]
                parts.append(_slice(items[at], first, first + end - at))
            elif type(items[at]) is Passed and type(items[at].path[-1]) is int:
                while end < len(items) and _comes_after(items[end - 1], items[end]):
                    end += 1
                parts.append(_part(items[at], end - at))
            else:
                parts.append(_single(self._of(items[at])))
            at = end
        if len(parts) == 1:
            return parts[0]
        return lambda *given: [x for part in parts for x in part(*given)]


def _is_like(x: Any, other: Output) -> bool:
    """Whether it is a number of the same type as another."""
    return type(x) is Output and x.moved(lambda _: other.position) == other


def _comes_after(a: Any, b: Any) -> bool:
    """Whether something that was passed comes after another in one list."""
    if type(b) is not Passed or type(b.path[-1]) is not int or len(b.path) < 2:
        return False
    return bool(b.path[:-1] == a.path[:-1] and b.path[-1] == a.path[-1] + 1)


def _number(x: Output | ArrayOutput, k: int) -> Build:
    if isinstance(x, ArrayOutput):
        if x.is_value:
            return lambda numbers, *_: array_of_values(numbers[k])
        return lambda numbers, *_: numbers[k]
    kind = _kind(x)
    if kind is float:
        return lambda numbers, *_: numbers[k]
    return lambda numbers, *_: kind(numbers[k])


def _kind(x: Output) -> Callable[[float], Any]:
    if x.is_value:
        return Value
    return int if x.is_integer else np.float64 if x.is_numpys else float


def _slice(x: Output, start: int, stop: int) -> Build:
    """Some numbers in a row, all of this type."""
    kind = _kind(x)
    if kind is float:
        return lambda numbers, *_: numbers[start:stop]
    return lambda numbers, *_: list(map(kind, numbers[start:stop]))


def _single(build: Build) -> Build:
    return lambda *given: [build(*given)]


def _part(first: Passed, count: int) -> Build:
    """Some things in a row that were passed in one list, tuple, deque or dict, or a single one."""
    if count == 1 or len(first.path) < 2:
        return _single(_found(first))
    container, start = _found(Passed(first.path[:-1])), first.path[-1]

    def part(*given: Any) -> Any:
        items = container(*given)
        if isinstance(items, dict):
            return [items[start + k] for k in range(count)]
        if type(items) is deque:
            items = list(items)
        found = items[start : start + count]
        if len(found) < count:
            raise IndexError
        return found if type(found) is list else list(found)

    return part


def _kept(build: Build, number: int) -> Build:
    def kept(*given: Any) -> Any:
        found = given[3][number] = build(*given)
        return found

    return kept


def _record(kind: Any, names: list[str], items: list[Any]) -> Any:
    made = object.__new__(kind)
    for name, item in zip(names, items, strict=True):
        object.__setattr__(made, name, item)  # a frozen one too
    return made


def _found(place: Passed) -> Build:
    """What finds something that was passed."""
    first, *steps = place.path
    is_named = type(first) is str

    def find(numbers: Any, arguments: Any, keywords: Any, made: Any) -> Any:
        x = (keywords if is_named else arguments)[first]
        for step in steps:
            x = _attribute(x, step.name) if type(step) is Attribute else x[step]
        return x

    return find


def _attribute(x: Any, name: str) -> Any:
    attributes = getattr(x, "__dict__", {})
    return attributes[name] if name in attributes else getattr(x, name)


# --- changes --------------------------------------------------------------------------------------


def _commit(change: Change) -> Callable[[Any, list[Any]], None]:
    """What changes a container."""
    keys = change.keys
    if change.how == "end":

        def end(x: Any, items: list[Any]) -> None:
            if type(x) is list:
                del x[:keys]
            else:
                for _ in range(keys):
                    x.popleft()
            x.extend(items)

        return end
    if change.how == "numbers":
        places = np.array(keys, np.intp)
        return lambda x, items: x.put(places, items) if items else None

    def put(x: Any, items: list[Any]) -> None:
        to = x.__dict__ if change.how == "attributes" else x
        for key, item in zip(keys, items, strict=True):
            to[key] = item

    return put


def are_free(captured: CapturedState, changed: Sequence[Any]) -> bool:
    """Whether the function has none of some containers by itself, and may write into the arrays."""
    if any(captured.has(x) for x in changed):
        return False
    return all(map(_is_writeable, [x for x in changed if isinstance(x, np.ndarray)]))


def _is_writeable(array: Array) -> bool:
    """Whether each of its numbers can be written, and is another one's nowhere."""
    reach = array.itemsize
    for stride, count in sorted(
        (abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)
    ):
        if count > 1 and stride < reach:
            return False
        reach += (count - 1) * stride
    return array.flags.writeable


def with_attributes(containers: Sequence[Any]) -> list[Any]:
    """Some containers, and the dicts in which those of them that are objects have attributes."""
    objects = [x for x in containers if hasattr(x, "__dict__") and not isinstance(x, dict)]
    return [*containers, *map(vars, objects)]


def come_once(changed: Sequence[Any], arguments: Sequence[Any], keywords: dict[str, Any]) -> bool:
    """Whether some containers are each but one of all in the arguments, and arrays lie apart."""
    held = list(_containers([*arguments, *keywords.values()]))
    ids = [id(x) for x in held]
    arrays = [x for x in held if isinstance(x, np.ndarray)]
    changed = with_attributes(changed)
    return all(
        ids.count(id(x)) == 1 and not any(x is not y and np.may_share_memory(x, y) for y in arrays)
        if isinstance(x, np.ndarray)
        else ids.count(id(x)) == 1
        for x in changed
    )


def _containers(items: Sequence[Any]) -> Iterator[Any]:
    """All containers in a tree, as often as they come in it."""
    stack = list(items)
    while stack:
        x = stack.pop()
        if isinstance(x, (list, tuple, deque)):
            stack += x
        elif isinstance(x, dict):
            stack += x.values()
        elif isinstance(x, np.ndarray):
            stack += x.ravel().tolist() if x.dtype == object else []
        elif hasattr(x, "__dict__") and not isinstance(x, type):
            yield x.__dict__
            stack += x.__dict__.values()
        elif dataclasses.is_dataclass(x):
            stack += [getattr(x, name) for name in field_names(type(x))]
        else:
            continue
        if not isinstance(x, tuple):
            yield x
