"""Both sides of a branch, recorded, and a choice between their results.

In: a condition that is decided when a recording runs, and two small functions made by ``branches``
that compute the sides of an ``if``. Out: for each name that they assign one number that stands for
both. Where the results cannot stand for each other, or a side raises or may do more than compute,
the branch is a guard after all, as if nothing had been tried.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.arrays import DataArray
from chainrule.compiler.capture.standins import Condition, Detached, Unrecordable
from chainrule.compiler.capture.traced import Traced
from chainrule.core import errors
from chainrule.core.backend import Value, modes

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

_NUMBERS = frozenset((float, int, Value, Detached, Traced, np.float64))
_MOST_SORTED = 40  # numbers, by up to 780 exchanges
_EQUAL = 2  # as ``Recorder.compare`` counts
_LISTS = frozenset((list, tuple, np.ndarray, DataArray))
_ATOMS = (bool, int, float, str, type(None))


class _Different(Exception):
    """The two sides cannot stand for each other."""


def fork(augmented: int, condition: Any, then: Any, other: Any, *state: Any) -> Any:
    """What ``then`` or ``other`` gives of the state, as the condition says.

    ``augmented``: so many items of the state are changed by ``+=``, which may be in place; -1
    where there is no state, and each side gives one number.
    """
    recorder = modes.recorder
    kind = type(condition)
    is_open = kind is Condition or (kind is Traced and condition.__class__ in (bool, np.bool_))
    if recorder is None or not is_open or not recorder.merges:
        return then(*state) if condition else other(*state)
    if any(type(x) not in _NUMBERS for x in state[: max(augmented, 0)]):
        return then(*state) if condition else other(*state)
    try:
        results = [_tried(recorder, side, state) for side in (then, other)]
        pairs = [tuple(results)] if augmented < 0 else list(zip(*results, strict=True))
        chosen = tuple([_chosen(recorder, condition, *pair) for pair in pairs])
        recorder.has_merged = True
        return chosen[0] if augmented < 0 else chosen
    except _Different:
        return then(*state) if condition else other(*state)  # a guard


def method(x: Any, function: Any, *others: Any) -> Any:
    """``x.log()`` and its like, by name, or ``dot(x, ...)``.

    On a side of a branch only a number is asked for a method, and only lists are read.
    """
    recorder = modes.recorder
    is_tried = recorder is not None and recorder.speculates
    if isinstance(function, str):
        if is_tried and type(x) not in (Value, Detached):
            raise _Different
        return getattr(x, function)()
    if is_tried and not all(type(one) in _LISTS for one in (x, *others)):
        raise _Different
    return function(x, *others)


def ordered(items: list[Any], reverse: bool) -> list[Any]:
    """``sorted(items)``; of numbers by exchanges of neighbours, whatever their order is.

    As Python's it leaves equal ones in their order, and so passes gradients on to the same ones.
    """
    recorder = modes.recorder
    kinds = {type(x) for x in items}
    if recorder is None or not recorder.merges or not 1 < len(items) <= _MOST_SORTED:
        return sorted(items, reverse=reverse)
    alike = len({x.__class__ for x in items}) == 1 and not isinstance(items[0], np.integer)
    if len(kinds) != 1 or not kinds <= {Value, Detached, Traced} or not alike:
        return sorted(items, reverse=reverse)
    if kinds != {Traced} and not all(_is_number(recorder, x) for x in items):
        return sorted(items, reverse=reverse)
    found = list(items)
    for start in range(len(found)):
        for k in range(start % 2, len(found) - 1, 2):
            a, b = found[k], found[k + 1]
            late = a < b if reverse else b < a
            found[k : k + 2] = _chosen(recorder, late, b, a), _chosen(recorder, late, a, b)
    recorder.has_merged = True
    return found


def _is_number(recorder: Recorder, x: Any) -> bool:
    """Whether this is not a NaN, which has no place in an order: a guard."""
    value = x if type(x) is Value else x._value
    return bool(recorder.compare(value, value, _EQUAL))


def _tried(recorder: Recorder, side: Any, state: Any) -> Any:
    """The results of a side, if it does nothing but compute them."""
    before, profile = (recorder.refused, recorder.undefined), sys.getprofile()

    def watch(frame: types.FrameType, event: str, argument: Any) -> None:
        """Note that code of the user's own is run, as by an operator or a property."""
        if event == "call" and frame.f_code is not side.__code__:
            recorder.spoiled |= not _is_harmless(frame)

    recorder.speculates += 1
    sys.setprofile(watch)
    try:
        return side(*state)
    except (Exception, Unrecordable):
        raise _Different from None
    finally:
        sys.setprofile(profile)
        recorder.speculates -= 1
        recorder.refused, recorder.undefined = before


def _is_harmless(frame: types.FrameType) -> bool:
    """Whether this is code of a library's, or what a dataclass of chainrule's is made by."""
    code, caller = frame.f_code, frame.f_back
    if (code.co_filename, code.co_name) == ("<string>", "__init__") and caller is not None:
        return caller.f_code.co_filename.startswith(errors.PACKAGE)
    return errors.is_librarys(code.co_filename)


def _chosen(recorder: Recorder, condition: Any, a: Any, b: Any) -> Any:
    """One number for two, of which the condition says which one it is."""
    kinds = {type(a), type(b)}
    if a is b or (len(kinds) == 1 and type(a) in _ATOMS and repr(a) == repr(b)):
        return a
    if kinds == {Value}:
        return recorder.where(condition, a, b)
    if Value in kinds and kinds <= _NUMBERS and recorder.mixes and _are_plain(a, b):
        recorder.mixed = True
        return recorder.where(condition, *map(recorder.operand, (a, b)))
    classes = {a.__class__, b.__class__}
    if len(classes) == 1 and kinds <= _NUMBERS:
        (kind,) = classes
        if kind is float or kind is np.float64:
            return _number(recorder, condition, a, b, kind)
        if kind is int and type(condition) is Traced:
            return _integer(recorder, condition, a, b)
    raise _Different


def _are_plain(*numbers: Any) -> bool:
    """Whether these are Values, floats or integers of Python's."""
    return all(type(x) is Value or x.__class__ in (float, int) for x in numbers)


def _number(recorder: Recorder, condition: Any, a: Any, b: Any, kind: type) -> Detached:
    pair = [recorder.detached_operand(x) for x in (a, b)]
    is_data = type(condition) is Traced or condition.is_data
    is_data = is_data and all(x.is_data for x in (a, b) if type(x) is Detached)
    return Detached(recorder, recorder.where(condition, *pair), is_data, kind)


def _integer(recorder: Recorder, condition: Traced, a: Any, b: Any) -> Traced:
    integers = recorder.integers
    nodes = [x.node if type(x) is Traced else integers.constant(x) for x in (b, a)]
    which = integers.step("int", condition.node)
    return Traced(recorder, integers.step("choose", which, *nodes))
