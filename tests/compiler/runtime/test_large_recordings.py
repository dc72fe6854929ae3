"""Recordings without a graph in memory, and how large ones are checked without a tape.

``large``: every recording counts as a large one.
"""

import gc
import math
import warnings

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import Value, exp, tanh
from chainrule.compiler.capture import undisturbed
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.runtime import heap, notices, pipeline, verification
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.pipeline import Pipeline
from chainrule.compiler.runtime.variants import Path, Variant
from chainrule.core.backend import kernels, modes
from chainrule.core.errors import GraphNeeded

native = pytest.mark.skipif(kernels is None, reason="the reference engine keeps every graph")


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(heap, "LARGE", 0)


def arithmetic(p, xs):
    """All that makes instructions: operators, functions, rows in Python, data, max, branches."""
    total = Value(0.5)
    for a, x in zip(p, xs, strict=True):
        y = (a * x + 2.0) ** 3 / (a - x) + exp(-a) * abs(a)
        total = total + y * y.data + max(a, y) - tanh(x)
    with chainrule.no_grad():
        scale = total * 2.0
    return total * scale if total > 0.0 else total


def detached(p, xs):
    """Many short-lived Values whose numbers are read: each is detached by itself."""
    total = p[0] * 0.0
    for k in range(200):
        total = total + (p[k % 3] * float(k)) * (p[(k + 1) % 3] + k).data
    return total


def compared(p, xs):
    """What recording itself makes: data, comparisons, and max and min of both."""
    total = p[0] * 1.0
    for a, x in zip(p, xs, strict=True):
        top, bottom = max(a.data, x, 0.25), min(v.data for v in p)
        total = total + (a - top) * (bottom - a) - x * (2.0 - x) + max(a, total) - min(a, 1.0)
        total = total + chainrule.where(a < x, a, x) * chainrule.where(a == x, 1.0, a)
        total = total * (3.0 if a.data <= x else 0.5) - (x - a) / (1.0 + x * x)
    return total


def selecting(p, tokens):
    return sum(tanh(p[t] * (t + 1)) for t in tokens) * p[0]


def own_derivative(p, xs):
    inner = chainrule.grad(lambda q: q * q * p[0] + tanh(q))
    return inner(p[1]) * xs[0] + p[2]


def clipped(p, xs):
    """An operation with two static parameters after many that have one, and one that is 0."""
    total = p[0] * 1.0
    for k in range(2_000):
        total = total * 0.5 + p[k % 3]
        if k > 1_500:
            total = (total + xs[0]).clip(-0.5, 0.0) + total.clip(0.25, 1.5 + k)
    return total


def in_arrays(p, xs):
    """Rows of arrays, gone through side by side, in loops and while they are written into."""
    total = p[0, 0] * 0.0
    for row, x in zip(p, xs, strict=True):
        total = total + sum(a * b for a, b in zip(row, x, strict=True)) + sum(b for b in x)
        work = np.array([row[0], row[1]])
        for k, a in enumerate(work):
            work[1] = a * x[0] + k
            total = total + a * work[1]
        for a, b in zip(work, work[::-1], strict=True):
            work[0] = b + 1.0
            total = total + a * b
    return total


CALLS = [
    (clipped, ([0.3, -0.4, 0.5], [1.5])),
    (in_arrays, (np.array([[0.3, -0.4], [0.5, 2.0]]), np.array([[1.0, -2.0], [2.0, 0.5]]))),
    (arithmetic, ([0.3, -0.4, 0.5], [1.0, 2.0, -3.0])),
    (detached, ([0.3, -0.4, 0.5], [1.0])),
    (compared, ([0.3, -0.4, 2.0], [1.0, -2.0, 2.0])),
    (compared, (np.array([0.3, -0.4, 2.0]), np.array([1.0, -2.0, 2.0]))),
    (selecting, ([0.3, -0.4, 0.5], [2, 0, 1, 1])),
    (own_derivative, ([0.3, -0.4, 0.5], [1.5])),
]


@native
@pytest.mark.parametrize(("function", "arguments"), CALLS)
def test_a_recording_is_the_same_with_and_without_its_graph(function, arguments):
    state, call = survey(function), flatten_call(arguments, {}, differentiate=True)
    light, whole = (trace(function, state, call, whole=w).recording for w in (False, True))
    light.verify()
    assert whole.differs(light) is None
    assert whole.fingerprint() == light.fingerprint()
    assert np.array_equal(whole.selection.places, light.selection.places)
    assert np.array_equal(whole.selection.owners, light.selection.owners)


@native
def test_a_function_that_asks_for_its_graph_is_recorded_with_it(monkeypatch):
    from chainrule.compiler.capture import tracing

    tried, real = [], tracing.run_recorded
    monkeypatch.setattr(tracing, "run_recorded", lambda *a: (tried.append(a[6]), real(*a))[1])
    state = survey(own_derivative)
    call = flatten_call(([0.3, -0.4, 0.5], [1.5]), {}, differentiate=True)
    tracing.trace(own_derivative, state, call)
    assert tried == [False, True]


@native
def test_an_error_that_the_function_swallows_does_not_hide_the_question():
    def swallowing(p):
        y = p[0] * p[1]
        try:
            count = len(chainrule.topological_order(y))
        except BaseException:
            count = 7
        return y * count

    fast = chainrule.compile(swallowing, on_fallback="eager")
    assert fast.value_and_grad([2.0, 3.0]) == chainrule.value_and_grad(swallowing)([2.0, 3.0])


@native
@pytest.mark.parametrize(
    "ask",
    [
        lambda v: v.backward(),
        lambda v: v.zero_grad(),
        lambda v: v.children,
        lambda v: v.op,
        lambda v: v.local_grads,
        lambda v: v.grad,
        lambda v: setattr(v, "grad", 1.0),
        hash,
        chainrule.topological_order,
    ],
)
def test_nothing_answers_for_a_graph_that_is_not_made(ask):
    a = Value(2.0)
    modes.tangents = True
    try:
        y = a * a
        with pytest.raises(GraphNeeded):
            ask(y)
        assert modes.graph_asked
    finally:
        modes.tangents = modes.graph_asked = False
    assert (a * a).children == (a, a)


@native
def test_tangents_are_the_gradient_along_a_direction():
    p, direction = [Value(0.3), Value(-0.4), Value(0.5)], np.array([0.7, -0.2, 1.1])
    wanted = np.array(chainrule.gradients(arithmetic(p, [1.0, 2.0, -3.0]), p), float) @ direction
    tangents = direction.copy()
    kernels.swap_grads(p, tangents)
    modes.tangents = True
    try:
        y = arithmetic(p, [1.0, 2.0, -3.0])
    finally:
        modes.tangents = False
        kernels.swap_grads(p, tangents)
    assert math.isclose(y.grad, wanted, rel_tol=1e-12)
    assert [v.grad for v in p] == [0.0, 0.0, 0.0]
    assert tangents.tolist() == direction.tolist()


def variant_of(function, arguments):
    state, call = survey(function), flatten_call(arguments, {}, differentiate=True)
    return state, call, Variant.of(trace(function, state, call))


@native
def test_a_gradient_that_only_detaching_changes_is_noticed(large):
    def recorded(p):
        return sum(a * a for a in p)

    def eager(p):
        return sum(a * a.data for a in p)  # the same numbers, half the gradient

    state, call, variant = variant_of(recorded, ([0.5, -1.5, 2.0],))
    assert verification.check_against_eager(recorded, state, variant, call) is not None
    with pytest.raises(Unrecordable):
        verification.check_against_eager(eager, state, variant, call)


def many(p, tokens):
    """Enough instructions for machine code, which is made at the first call."""
    return sum(tanh(p[t] * (t + k)) for k in range(40) for t in tokens) * p[0]


@native
@pytest.mark.parametrize("lift", [True, None])
def test_machine_code_is_compared_with_eager_and_no_tape_is_made(large, monkeypatch, lift):
    made = []
    monkeypatch.setattr(
        "chainrule.compiler.runtime.variants.executor", lambda r: made.append(r) or 1 / 0
    )
    monkeypatch.setattr(verification, "gradient_up_to", lambda *_: 1 / 0)
    monkeypatch.setattr(Pipeline, "affords_building", lambda *_: True)
    fast = chainrule.compile(many, lift=lift, on_fallback="raise")
    p = [0.3, -0.4, 0.5]
    found = fast.value_and_grad(p, [2, 0, 1, 1])
    wanted = chainrule.value_and_grad(many)(p, [2, 0, 1, 1])
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12)
    assert fast.dispatch.last is Path.MACHINE
    assert View(fast).variant.recording.shed
    assert made == []


@native
def test_where_machine_code_turns_out_too_dear_the_tape_is_compared_with_eager(large, monkeypatch):
    """What it costs is known once it is lifted, and by then its instructions are gone."""
    asked, compared = [], []
    real = pipeline.check_against_eager
    monkeypatch.setattr(pipeline, "check_against_eager", lambda *a: compared.append(a) or real(*a))
    monkeypatch.setattr(Pipeline, "affords_building", lambda *_: True)
    monkeypatch.setattr(Ledger, "affords_building", lambda *a: asked.append(a) and False)
    fast = chainrule.compile(many)
    p = [0.3, -0.4, 0.5]
    assert fast.value_and_grad(p, [2, 0, 1, 1]) == chainrule.value_and_grad(many)(p, [2, 0, 1, 1])
    assert fast.dispatch.last is Path.TAPE
    assert View(fast).variant.waits
    assert asked
    assert len(compared) == 1


@pytest.mark.parametrize("factor", [1.0 + 1e-6, -1.0])
def test_machine_code_that_differs_from_eager_is_not_used(large, monkeypatch, factor):
    real = verification._results

    def wrong(run, variant):
        results = real(run, variant)
        if run.path is Path.MACHINE:
            results.gradient[1] *= factor
        return results

    monkeypatch.setattr(verification, "_results", wrong)
    fast = chainrule.compile(selecting, lift=True, on_fallback="eager")
    p = [0.3, -0.4, 0.5]
    found = fast.value_and_grad(p, [2, 0, 1, 1])
    assert found == chainrule.value_and_grad(selecting)(p, [2, 0, 1, 1])
    assert fast.dispatch.last is Path.TAPE
    assert "its result differs" in fast.report()


def test_users_gradients_are_as_they_were(large):
    weights = [Value(0.3), Value(-0.4)]
    weights[0].grad = 5.0

    def script(x):
        return sum(tanh(w * x) for w in weights) * weights[0]

    fast = chainrule.compile(script, lift=True)
    fast(0.7)
    assert [w.grad for w in weights] == [5.0, 0.0]


@native
def test_a_row_that_is_not_finite_is_left_to_the_op_table():
    def function(p, xs):
        return p[0] * max(x * 1e300 for x in xs)

    state = survey(function)
    call = flatten_call(([0.5], [1e300, 1.0]), {}, differentiate=True)
    light, whole = (trace(function, state, call, whole=w).recording for w in (False, True))
    assert whole.fingerprint() == light.fingerprint()


@native
def test_a_recorded_call_lets_go_of_its_nodes_without_the_garbage_collector():
    def function(p, xs):
        return sum(a * max(x, 0.5) for a, x in zip(p["w"], xs["x"], strict=True))

    state = survey(function)
    call = flatten_call(({"w": np.ones(50)}, {"x": np.ones(50)}), {}, differentiate=True)
    trace(function, state, call)
    gc.collect()
    gc.disable()
    try:
        before = kernels.allocation_counts()[0]
        trace(function, state, call)
        assert kernels.allocation_counts()[0] == before
    finally:
        gc.enable()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("count", [3, undisturbed.MANY])
def test_the_garbage_collector_is_as_it_was_after_many_stand_ins_were_made(count, enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with undisturbed.collector_paused(count):
            inside = gc.isenabled()
        assert gc.isenabled() is enabled
        assert inside is (enabled and count < undisturbed.MANY)
    finally:
        (gc.enable if before else gc.disable)()


# --- told while it goes on ------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(notices, "LONG", 0.0)


@pytest.fixture
def long_one(many):
    def long_one(p):
        total = p[0]
        for _ in range(many):
            total = total * 0.5 + p[1]
        return total

    return long_one


@pytest.mark.usefixtures("impatient")
def test_a_long_recording_is_told_of_once_while_it_goes_on(long_one, many):
    fast = chainrule.compile(long_one, lift=False)
    wanted = chainrule.value_and_grad(long_one)([1.0, 2.0])
    operations = "65,53" if many > 65_536 else "1,02"
    with pytest.warns(chainrule.FallbackWarning, match=f"one recording of {operations}") as told:
        results = [fast.value_and_grad([1.0, 2.0]) for _ in range(2)]
    assert results == [wanted, wanted]
    assert len(told) == 1
    assert "test_large_recordings.py" in str(told[0].message)
    assert "1 recordings" in fast.report()


@pytest.mark.usefixtures("impatient")
def test_with_on_fallback_eager_nothing_is_told(long_one, recwarn):
    fast = chainrule.compile(long_one, lift=False, on_fallback="eager")
    fast.value_and_grad([1.0, 2.0])
    assert not recwarn.list
    assert "1 recordings" in fast.report()


@pytest.mark.usefixtures("impatient")
def test_where_warnings_are_errors_the_function_does_not_see_them(long_one):
    caught = []

    def guarded(p):
        try:
            return long_one(p)
        except UserWarning:
            caught.append(1)
            raise

    fast = chainrule.compile(guarded, lift=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", chainrule.FallbackWarning)
        with pytest.raises(chainrule.FallbackWarning):
            fast.value_and_grad([1.0, 2.0])
    assert not caught
    assert fast.value_and_grad([1.0, 2.0]) == chainrule.value_and_grad(long_one)([1.0, 2.0])


@pytest.mark.usefixtures("impatient")
def test_what_shows_the_warning_may_print_and_compute(long_one, monkeypatch):
    """It runs as if nothing were recorded."""
    shown = []

    def show(message, *_, **__):
        print(message)
        shown.append((Value(2.0) * 3.0).data + max(1, 2))

    fast = chainrule.compile(long_one, lift=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        fast.value_and_grad([1.0, 2.0])
    assert shown == [8.0]
    assert "1 calls: 1 replayed" in fast.report()


# --- what each instruction takes ------------------------------------------------------------------


@native
def test_an_instruction_has_one_constant_unless_some_operation_has_two_parameters():
    found = {}
    for function, arguments in CALLS[:3]:
        call = flatten_call(arguments, {}, differentiate=True)
        for whole in (False, True):
            made = trace(function, survey(function), call, whole=whole).recording
            found[function.__name__, whole] = made.constants.shape[1]
            assert made.nbytes == len(made) * (18 + 8 * made.constants.shape[1])
    assert found == {(f.__name__, w): 1 + (f is clipped) for f, _ in CALLS[:3] for w in (0, 1)}


@native
@pytest.mark.parametrize("low", [0.0, -0.0, 0.25])
@pytest.mark.parametrize("high", [1.0, 2.0])
def test_two_static_parameters_are_compared_with_those_of_another_recording(low, high):
    """Also where a run is the first to have any: its second one may be the only difference."""
    limits = [0.0, 1.0]

    def f(p):
        total = p[0] * 2.0
        for _ in range(2_000):
            total = total + p[0]
        return total if limits is None else total.clip(*limits) * p[1] + total * 3.0

    call = flatten_call(([0.25, 0.0],), {}, differentiate=True)
    first = trace(f, survey(f), call).recording
    limits[:] = [low, high]
    second = trace(f, survey(f), call, like=first).recording
    same = math.copysign(1.0, low) == 1.0 and (low, high) == (0.0, 1.0)
    assert (first.differs(second) is None) == same
    limits = None
    assert first.differs(trace(f, survey(f), call, like=first).recording) is not None
    plain = trace(f, survey(f), call).recording
    limits = [low, high]
    wide = trace(f, survey(f), call, like=plain).recording
    assert plain.differs(wide) is not None
    assert wide.differs(trace(f, survey(f), call).recording) is None


@native
def test_what_an_array_holds_while_it_is_gone_through_counts_though_it_is_hidden_at_first(large):
    """A difference that the first call multiplies by 0 shows in the next one."""
    fast = chainrule.compile(in_arrays, lift=True, on_fallback="raise")
    xs = np.array([[1.0, -2.0], [2.0, 0.5]])
    for p in ([[0.0, 0.0], [0.0, 0.0]], [[0.3, -0.4], [0.5, 2.0]], [[-1.0, 3.0], [0.0, 2.0]]):
        found = fast.value_and_grad(np.array(p), xs)
        wanted = chainrule.value_and_grad(in_arrays)(np.array(p), xs)
        assert math.isclose(found[0], wanted[0], rel_tol=1e-12, abs_tol=1e-12)
        assert np.allclose(found[1], wanted[1], rtol=1e-12, atol=1e-12)
