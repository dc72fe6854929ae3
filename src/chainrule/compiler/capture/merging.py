"""One thing that stands for two, of which a condition chooses when the recording runs.

In: a test that is known only at a call, and what is to be had where it holds and where not. Out:
one number that stands for both; ``CannotMerge`` where there is none. A store whose place is a
traced integer is such a choice for every place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.capture.logs import Log
from chainrule.compiler.capture.standins import Condition, Detached
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole, whole
from chainrule.core import ops
from chainrule.core.backend import Value, modes

_MERGEABLE = frozenset(
    (Value, Detached, Traced, Whole, Condition, int, float, bool, np.float64, np.int64)
)
_PLACES = 32  # a list with more of them is stored into by static integers
_STORES = 4096  # places that all stores of a recording may choose for


class CannotMerge(Exception):
    """Two things of which no single one can be made."""


def is_open(test: Any) -> bool:
    """Whether it is known only at a call which way a test goes."""
    return type(test) is Condition or type(test) is Traced


def truth_of(test: Any) -> bool:
    """Which way an open test goes in this run; nobody is told."""
    if type(test) is Condition:
        return (test.node._number != 0.0) is not test.negated
    return bool(test.value)


def as_bool(test: Traced) -> Traced:
    """A traced integer as a truth."""
    made: Traced = test if isinstance(test.value, bool) else test.step("bool")
    return made


def one_of(test: Any, a: Any, b: Any) -> Any:
    """The one thing that stands for ``a if test else b``."""
    recorder = modes.recorder
    assert recorder is not None
    kinds = {type(a), type(b)}
    if a is b or (kinds <= {int} and a == b):
        return a
    if kinds <= {tuple} and len(a) == len(b):
        return tuple([one_of(test, x, y) for x, y in zip(a, b, strict=True)])
    if kinds == {Log} and type(test) is Traced:
        return a.merged(test, b)
    if not kinds <= _MERGEABLE:
        raise CannotMerge
    if Value in kinds:
        pair = [x if type(x) is Value else _operand(x) for x in (a, b)]
        made = selected(test, *pair)
        recorder.selector.chosen[id(made)] = made, pair  # in eager mode it is one of them
        if kinds != {Value}:
            recorder.either[id(made)] = made
        return made
    classes = {x.__class__ for x in (a, b)}
    if len(classes) > 1:
        raise CannotMerge
    if kinds <= {Detached, float, np.float64} and classes <= {float, np.float64}:
        values = [x._value if type(x) is Detached else Value(float(x)) for x in (a, b)]
        data = type(test) is Traced and all(x.is_data for x in (a, b) if type(x) is Detached)
        return Detached(recorder, selected(test, *values), data, a.__class__)
    if classes == {bool} and Condition in {*kinds, type(test)}:
        return Condition(recorder, selected(test, _bit(a), _bit(b)))
    if classes <= {int, np.int64} and (type(test) is Condition or Whole in kinds):
        return _one_integer(test, a, b)
    if type(test) is Traced and classes <= {int, bool} and Condition not in kinds:
        integers = recorder.integers
        nodes = [x.node if type(x) is Traced else integers.constant(x) for x in (b, a)]
        place = integers.step("int", as_bool(test).node)
        return Traced(recorder, integers.step("choose", place, *nodes))
    raise CannotMerge


def _one_integer(test: Any, a: Any, b: Any) -> Whole:
    """An integer that is known only when the recording runs."""
    recorder = modes.recorder
    assert recorder is not None
    pair: list[tuple[Value, int, int, bool]] = []
    for x in (a, b):
        found = whole(x)
        if found is not None:
            pair.append((found._value, found.low, found.high, found.is_data))
        elif abs(int(x)) <= EXACT:
            pair.append((Value(float(x)), int(x), int(x), True))
        else:
            raise CannotMerge
    (left, low, high, data), (right, least, most, is_data) = pair
    is_data = is_data and data and (type(test) is Traced or test.is_data)
    value = selected(test, left, right)
    return Whole(recorder, value, min(low, least), max(high, most), is_data, a.__class__)


def store_by_integer(value: Any, container: Any, key: Any) -> bool:
    """``container[key] = value`` for a traced key: each place gets the value or keeps its own.

    False where nothing was stored.
    """
    recorder = modes.recorder
    is_known = type(key) is Traced or type(key) is Whole
    if not is_known or recorder is None or not recorder.selector.enabled:
        return False
    is_array = type(container) is np.ndarray and container.dtype == object and container.ndim == 1
    if type(container) is not list and not is_array:
        return False
    if recorder.exact and any(isinstance(x, Value) for x in (value, *container)):
        return False  # the derivatives of what is selected are added up in another order
    count = len(container)
    sort: Any = key.__class__
    is_index = sort is int or issubclass(sort, np.integer)
    if not is_index or count > _PLACES or not -count <= key.value < count:
        return False
    if recorder.stores + count > _STORES:
        return False
    integers, place = recorder.integers, key.as_kind(int)
    if type(key) is Traced:
        place = Traced(recorder, integers.step("wrap", key.node, integers.constant(count)))
    elif key.low < 0 or key.high >= count:
        return False
    try:
        made = [one_of(place == k, value, old) for k, old in enumerate(container)]
    except CannotMerge:
        return False
    recorder.stores += count
    for k, x in enumerate(made):
        container[k] = x
    return True


def _bit(test: Any) -> Value:
    """1 or 0, when the recording runs."""
    recorder = modes.recorder
    assert recorder is not None
    if type(test) is Traced:
        found: Value = recorder.number_of(as_bool(test))
        return found
    if type(test) is bool:
        return Value(float(test))
    bit: Value = recorder.bit(test)
    return bit


def selected(test: Any, a: Value, b: Value) -> Value:
    """One of two Values, when the recording runs."""
    if type(test) is Condition and test.negated:
        a, b = b, a
    node = test.node if type(test) is Condition else _bit(test)
    return Value._apply_op(ops.select, (node, a, b), ())


def _operand(x: Any) -> Value:
    """A number beside a Value, as a Value without gradient."""
    recorder = modes.recorder
    assert recorder is not None
    if type(x) is Condition or type(x) is bool or (type(x) is int and abs(x) > EXACT):
        raise CannotMerge
    found = recorder.operand(x)
    return found if isinstance(found, Value) else Value(float(found))
