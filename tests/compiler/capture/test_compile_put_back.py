"""What a function changes and puts back within a call: what else reads it meanwhile is seen."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import chainrule

CAPTURED, CAPTURED_DICT = [1.0, 2.0], {"a": 1.0}


@dataclass
class Record:
    w: float


def items(p, a, b):
    old, a[0] = a[0], 9.0
    found, a[0] = b[0] * p, old
    return found


def entries(p, a, b):
    old, a["a"] = a["a"], 9.0
    found, a["a"] = b["a"] * p, old
    return found


def attributes(p, a, b):
    old, a.w = a.w, 9.0
    found, a.w = b.w * p, old
    return found


def push_and_pop(p, a, b):
    a.append(9.0)
    found = b[-1] * p + len(b)
    a.pop()
    return found


def captured_list(p, a, _):
    old, a[0] = a[0], 9.0
    found, a[0] = CAPTURED[0] * p, old
    return found


def captured_dict(p, a, _):
    old, a["a"] = a["a"], 9.0
    found, a["a"] = CAPTURED_DICT["a"] * p, old
    return found


one, two = [1.0, 2.0], {"a": 1.0}
record, namespace, array = Record(1.0), SimpleNamespace(w=1.0), np.array([1.0, 2.0])


@pytest.mark.parametrize("lift", [None, False])
@pytest.mark.parametrize(
    ("f", "apart", "same"),
    [
        (items, ([1.0, 2.0], [1.0, 2.0]), (one, one)),
        (items, (np.array([1.0, 2.0]), np.array([1.0, 2.0])), (array, array)),
        (entries, ({"a": 1.0}, {"a": 1.0}), (two, two)),
        (attributes, (Record(1.0), Record(1.0)), (record, record)),
        (attributes, (SimpleNamespace(w=1.0), SimpleNamespace(w=1.0)), (namespace, namespace)),
        (push_and_pop, ([1.0, 2.0], [1.0, 2.0]), (one, one)),
        (captured_list, ([1.0, 2.0], 0.0), (CAPTURED, 0.0)),
        (captured_dict, ({"a": 1.0}, 0.0), (CAPTURED_DICT, 0.0)),
    ],
)
def test_arguments_that_are_one_object_in_some_calls(f, apart, same, lift):
    fast = chainrule.compile(f, lift=lift, on_fallback="eager")
    for arguments in [apart] * 4 + [same] * 2 + [apart]:
        wanted = chainrule.value_and_grad(f)(1.3, *arguments)
        assert fast.value_and_grad(1.3, *arguments) == wanted
        assert fast(1.3, *arguments) == f(1.3, *arguments)


@pytest.mark.parametrize("kind", [dict, list])
def test_rows_that_are_exchanged_for_a_while(kind):
    def f(p, k):
        first, second, third = [p, p * 2], [p * 3, p * 4], [p * 5, p * 6]
        rows = {0: first, 1: second} if kind is dict else [first, second]
        a = rows[k][0]
        rows[0] = third
        b = rows[k][0]
        rows[0] = first
        return a + 10 * b

    fast = chainrule.compile(f, on_fallback="eager")
    for k in (1, 1, 1, 0, 1, 0):
        assert fast.value_and_grad(1.3, k) == chainrule.value_and_grad(f)(1.3, k)


def test_a_selected_row_that_is_longer_for_a_while():
    def f(p, k):
        rows = [[p, p * 2], [p * 3, p * 4]]
        row = rows[k]
        row.append(p * 5)
        last = rows[0][-1]
        row.pop()
        return row[0] + 10 * last

    fast = chainrule.compile(f, on_fallback="eager")
    for k in (1, 1, 1, 0, 1, 0):
        assert fast.value_and_grad(1.3, k) == chainrule.value_and_grad(f)(1.3, k)
