"""Arrays of objects are no lists, though both hold numbers one by one."""

import numpy as np
import pytest

import chainrule


def doubled(w):
    return (w * 2)[1]  # of a list, the list twice


@pytest.mark.parametrize("lift", [True, False])
def test_an_array_of_objects_has_no_recording_of_a_list(lift):
    fast, eager = chainrule.compile(doubled, lift=lift), chainrule.value_and_grad(doubled)
    for _ in range(2):
        for w in ([1.0, 2.0], np.array([1.0, 2.0], object)):
            assert fast(w) == doubled(w)
            value, gradient = fast.value_and_grad(w)
            assert (value, list(gradient)) == (eager(w)[0], list(eager(w)[1]))


def test_nor_where_it_is_data():
    def f(p, w):
        return p * (w * 2)[1]

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for w in ([1.0, 2.0], np.array([1.0, 2.0], object), np.array([[1.0, 2.0]], object).reshape(2)):
        assert fast.value_and_grad(1.5, w) == eager(1.5, w)
