"""The result of a compiled call is differentiated again, as that of the function itself is.

``fast(values)`` gives one node where the function gives a graph. Derivatives of any order by
``create_graph=True`` are those of the graph, whichever path answered the call.
"""

import copy
import math
import pickle

import numpy as np
import pytest

import chainrule
from chainrule import (
    Value,
    draw,
    explain,
    exp,
    gradients,
    grad,
    hessian,
    hvp,
    jacobian,
    log,
    no_grad,
    sin,
    sqrt,
    tanh,
    topological_order,
    where,
)
from chainrule.compiler.runtime import heap

PATHS = pytest.mark.parametrize("lift", [None, True, False])


def derivatives(y, xs, order):
    """All derivatives of one order, as numbers."""
    if order == 1:
        return gradients(y, xs)
    return [derivatives(g, xs, order - 1) for g in gradients(y, xs, create_graph=True)]


def smooth(a, b):
    return tanh(a * b) * a + sum(a**k * sin(b) for k in range(2, 6)) / b


def straight(a, b):
    return a + 2 * b


def first(a, b):
    return a


def constant(a, b):
    return Value(4.0) * 2


def larger(a, b):
    return max(a * a, b * a, 0.0) + min(b**3, a)


def one_side(a, b):
    return a * a * b if a > b else b**3


def kinks(a, b):
    return chainrule.relu(a * a - b) + where(a > 0, a**3, b**2) + abs(a * b) + chainrule.maximum(a, b) ** 2


def detached(a, b):
    with no_grad():
        c = a * b
    return a.data * b**2 + Value((a * a).data) * a**2 + c * a**2


def by_exponent(a, b):
    return a**b + b**-2 + 2.0**a


FUNCTIONS = [
    smooth,
    straight,
    first,
    constant,
    larger,
    one_side,
    kinks,
    detached,
    by_exponent,
]


@PATHS
@pytest.mark.parametrize("f", FUNCTIONS)
def test_derivatives_of_every_order_are_those_of_the_graph_on_every_path(f, lift):
    fast = chainrule.compile(f, lift=lift, on_fallback="eager")
    kinds = set()
    for call in range(8):
        a, b = Value(0.3 + 0.01 * call), Value(0.7 - 0.2 * (call % 3))
        y, wanted = fast(a, b), f(a, b)
        kinds.add(len(topological_order(y)))
        for g, of in ((lambda y: y, 3), (lambda y: y**2 * a, 3), (lambda y: exp(y * b) + y * a, 2)):
            for order in range(1, of + 1):
                found = derivatives(g(y), [a, b], order)
                assert np.ravel(found) == pytest.approx(
                    np.ravel(derivatives(g(wanted), [a, b], order)), rel=1e-9, abs=1e-11
                )
    assert kinds
