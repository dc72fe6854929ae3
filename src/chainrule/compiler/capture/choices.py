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

from chainrule.compiler.capture.standins import Condition, Detached, Unrecordable
from chainrule.compiler.capture.traced import Traced
from chainrule.core import errors
from chainrule.core.backend import Value, modes

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

_NUMBERS = frozenset((float, int, Value, Detached, Traced, np.float64))
_MOST_SORTED = 40  # numbers, by up to 780 exchanges
_EQUAL = 2  # as ``Recorder.compare`` counts
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
    truth = _truth(condition)
    results: list[Any] = []
    try:
        for side, taken in ((then, truth), (other, not truth)):
            found = _taken(side, state, condition) if taken else _tried(recorder, side, state)
            results.append(found)
        pairs = [tuple(results)] if augmented < 0 else list(zip(*results, strict=True))
        chosen = tuple([_chosen(recorder, condition, *pair) for pair in pairs])
        recorder.has_merged = True
        return chosen[0] if augmented < 0 else chosen
    except _Different:
        if not condition:
            return results[1] if len(results) > 1 else other(*state)
        return results[0]


def method(x: Any, name: str) -> Any:
    """``x.log()`` and its like, which only a number is asked for on a side that is not taken."""
    recorder = modes.recorder
    if recorder is not None and recorder.speculates and type(x) not in (Value, Detached):
        raise _Different
    return getattr(x, name)()


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


def _truth(condition: Any) -> bool:
    """Which way the branch goes in this recording, without a guard."""
    if type(condition) is Traced:
        return bool(condition.value)
    return (condition.node._number != 0.0) is not condition.negated


def _taken(side: Any, state: Any, condition: Any) -> Any:
    """The results of the side that is taken."""
    try:
        return side(*state)
    except Exception:
        bool(condition)  # a guard: it raises for such conditions only
        raise


def _tried(recorder: Recorder, side: Any, state: Any) -> Any:
    """The results of the other one, if it did nothing but compute them."""
    before, profile = (recorder.refused, recorder.undefined), sys.getprofile()
    recorder.speculates += 1
    sys.setprofile(_only_ours)
    try:
        return side(*state)
    except (Exception, Unrecordable):
        raise _Different from None
    finally:
        sys.setprofile(profile)
        recorder.speculates -= 1
        recorder.refused, recorder.undefined = before


def _only_ours(frame: types.FrameType, event: str, argument: Any) -> None:
    """Stop where Python code of the user's own is run, as an operator or a property may be."""
    if event != "call" or frame.f_code.co_filename.startswith((errors.PACKAGE, "<frozen ")):
        return
    if not frame.f_code.co_name.startswith(("__chainrule_", "<lambda>")):
        raise _Different


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
