"""What a recorded run computes: large machine code is compared with it, so that eager runs once.

``large``: every recording counts as a large one.
"""

import gc
import math
import weakref
from itertools import pairwise

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import Value, exp, tanh
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.tracing import confirm, trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.runtime import heap, verification
from chainrule.compiler.runtime.pipeline import Pipeline
from chainrule.compiler.runtime.variants import Path
from chainrule.core.backend import kernels

native = pytest.mark.skipif(kernels is None, reason="the reference engine keeps every graph")


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(heap, "LARGE", 0)
    monkeypatch.setattr(Pipeline, "affords_building", lambda *_: True)


def everything(p, xs, tokens):
    """Operators, functions, data, choices, what integers select, and what passes nothing on."""
    total = Value(0.5)
    for (a, b), x, t in zip(pairwise(p), xs, tokens, strict=True):
        y = (a * x + 2.0) ** 3 / (a - x) + exp(-a) * abs(b) + p[t] * t
        total = total + y * y.data + max(a, y) - tanh(x) + chainrule.where(a < x, a * 2.0, x)
        total = total + (a - max(a.data, x, 0.25)) * min(v.data for v in p) + y.clip(-0.5, 0.75)
        total = total + chainrule.dot([a, b, x], [y, 2.0, a]) + sum([a, b, 1.0]) / total
    with chainrule.no_grad():
        scale = total * 2.0
    return total * scale


def in_arrays(p, xs, tokens):
    return (np.tanh(p[tokens] * xs) ** 2).sum() + p.sum() * p[0]


@native
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (everything, ([0.3, -0.4, 0.5], [1.0, 2.0], [2, 1])),
        (everything, (np.array([0.3, -0.4, 0.5]), np.array([1.0, 2.0]), np.array([2, 0]))),
        (in_arrays, (np.array([0.3, -0.4, 0.5]), np.array([1.0, 2.0]), np.array([2, 0]))),
    ],
)
def test_a_recorded_run_carries_eagers_numbers_and_their_derivative(function, arguments):
    call = flatten_call(arguments, {}, differentiate=True)
    made = trace(function, survey(function), call, carries=True)
    value, gradient = chainrule.value_and_grad(function)(*arguments)
    position = made.recording.result.position
    assert made.carried.numbers == {position: value}
    wanted = float(np.ravel(gradient) @ made.carried.direction)
    assert wanted != 0.0
    assert math.isclose(made.carried.slopes[position], wanted, rel_tol=1e-12)
    assert not trace(function, survey(function), call).carried


@native
def test_derivatives_are_carried_from_captured_values_and_their_gradients_stay():
    weights = [Value(0.3), Value(-0.4)]
    weights[0].grad = 5.0

    def script(x):
        return sum(tanh(w * x) for w in weights) * weights[0]

    call = flatten_call((0.7,), {}, differentiate=False)
    made = trace(script, survey(script), call, carries=True)
    assert [w.grad for w in weights] == [5.0, 0.0]
    slopes = np.array(chainrule.gradients(script(0.7), weights), float)
    wanted = float(slopes @ made.carried.direction)
    assert math.isclose(*made.carried.slopes.values(), wanted, rel_tol=1e-12)


@native
@pytest.mark.parametrize(
    ("function", "hides"),
    [
        (lambda p, x: p[0] * x + p[1], True),
        (lambda p, x: p[0] * p[1] + x, False),
        (lambda p, x: p[0] * (p[1] - p[1].data), True),
        (lambda p, x: p[0] + (p[1] - 0.5) ** 2, True),
        (lambda p, x: p[0] + (p[1] - 0.25) ** 2, False),
        (lambda p, x: p[0] * (p[1] - 0.5).relu(), True),
        (lambda p, x: p[0] + (p[1] - 0.75).relu(), False),
        (lambda p, x: p[0] + max(p[1], p[0]) + p[1].maximum(0.75), False),
        (lambda p, x: p[0] + chainrule.sin(p[1] * 1.5) + abs(p[1]), False),
        (lambda p, x: p[0] + chainrule.cos(p[1] * x), True),
    ],
)
def test_a_factor_of_0_is_known_to_hide_what_it_multiplies(function, hides):
    call = flatten_call(([0.25, 0.5], 0.0), {}, differentiate=True)
    assert trace(function, survey(function), call).hides is hides


@native
@pytest.mark.parametrize(("number", "runs"), [(0.5, 1), (0.0, 2)])
def test_eager_runs_a_little_way_off_only_where_something_may_be_hidden(
    large, monkeypatch, number, runs
):
    compared, real = [], verification.along_direction
    monkeypatch.setattr(verification, "along_direction", lambda *a: compared.append(a) or real(*a))

    def function(p, xs):
        return sum(tanh(p[0] * x + p[1]) for x in xs)

    fast = chainrule.compile(function, lift=True, on_fallback="raise")
    arguments = [0.3, -0.4], [1.0, 2.0, number]
    found, wanted = (
        f.value_and_grad(*arguments) if f is fast else f(*arguments)
        for f in (fast, chainrule.value_and_grad(function))
    )
    assert fast.dispatch.last is Path.MACHINE
    assert len(compared) == runs
    assert math.isclose(found[0], wanted[0], rel_tol=1e-12)
    assert np.allclose(found[1], wanted[1], rtol=1e-12)


@native
@pytest.mark.parametrize("what", ["values", "gradient"])
def test_machine_code_that_is_wrong_only_a_little_way_off_is_not_used(large, monkeypatch, what):
    real, seen = verification._results, []

    def wrong(run, variant):
        results = real(run, variant)
        if run.path is Path.MACHINE:
            seen.append(run)
            if len(seen) > 1:  # not at the call itself
                getattr(results, what)[0] *= 1.0 + 1e-6
        return results

    monkeypatch.setattr(verification, "_results", wrong)

    def function(p, xs):
        return sum(tanh(p[0] * x + p[1]) for x in xs)

    fast = chainrule.compile(function, lift=True, on_fallback="eager")
    arguments = [0.3, -0.4], [1.0, 2.0, 0.5]
    assert fast.value_and_grad(*arguments) == chainrule.value_and_grad(function)(*arguments)
    assert len(seen) > 2
    assert fast.dispatch.last is Path.TAPE
    assert "its result differs" in fast.report()


@native
def test_where_data_became_static_eager_shows_what_it_computes_there():
    def function(p, x):
        return p[0] * p[1] + int(x)

    state, call = survey(function), flatten_call(([0.3, 0.4], 2.0), {}, differentiate=True)
    first = trace(function, state, call)
    assert first.settled
    assert confirm(function, state, call, first, carries=True) is None


@native
def test_what_was_carried_is_let_go_of_once_machine_code_is_checked(large, monkeypatch):
    noted, real = [], verification._agrees_with
    monkeypatch.setattr(
        verification, "_agrees_with", lambda *a: noted.append(weakref.ref(a[0])) or real(*a)
    )

    def function(p, xs):
        return sum(tanh(p[0] * x + p[1]) for x in xs)

    fast = chainrule.compile(function, lift=True, on_fallback="raise")
    fast.value_and_grad([0.3, -0.4], [1.0, 2.0, 0.5])
    gc.collect()
    assert View(fast).variant.recording.shed
    assert [ref() for ref in noted] == [None]
