"""Large recordings let go of their instructions once machine code serves, and get them again.

``large``: every recording counts as a large one.
"""

import gc
import math
import weakref

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import Value, log, sqrt, tanh
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.runtime import heap
from chainrule.compiler.runtime.variants import Path, Variant
from chainrule.core.backend import kernels


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(heap, "LARGE", 0)


def check(fast, function, *arguments):
    """A call equals eager's; which path answered it."""
    value, grad = fast.value_and_grad(*arguments)
    wanted, gradient = chainrule.value_and_grad(function)(*arguments)
    assert math.isclose(value, wanted, rel_tol=1e-12, abs_tol=1e-13)
    np.testing.assert_allclose(grad, gradient, rtol=1e-11, atol=1e-12)
    return fast.dispatch.last


def branching(p, xs):
    total = sum(tanh(a * x) for a, x in zip(p, xs, strict=True))
    return total * 2.0 if total > 0.0 else total - 1.0


def rooted(p, xs):
    return sum(sqrt(a) * x + log(a + x) for a, x in zip(p, xs, strict=True))


def rooted_tokens(p, tokens):
    return sum(sqrt(p[t]) * (k + 1.0) for k, t in enumerate(tokens))


def tokens_of(p, tokens):
    return sum(tanh(p[t]) * p[t] for t in tokens) / len(tokens)


def test_machine_code_needs_no_instructions(large):
    fast, p, xs = chainrule.compile(branching, lift=True), [0.1, 0.2, 0.3], [1.0, 2.0, 3.0]
    for _ in range(3):
        assert check(fast, branching, p, xs) is Path.MACHINE
    variant = View(fast).variant
    assert variant.recording.shed == len(variant.recording) > 10
    assert len(variant.recording.codes) == 0
    assert not variant.has_tape
    assert variant.recording.nbytes == 0
    assert "recorded again" in fast.report(stage="recorded")
    assert "tanh" in fast.report(stage="lifted")


def test_a_branch_that_goes_the_other_way_is_recorded(large):
    fast, p = chainrule.compile(branching, lift=True), [0.1, 0.2, 0.3]
    for sign in (1.0, -1.0, 1.0, -1.0):
        assert check(fast, branching, p, [sign, 2.0 * sign, 3.0 * sign]) is Path.MACHINE
    assert len(View(fast).variants) == 2
    assert all(v.recording.shed for v in View(fast).variants)


def test_what_only_the_tape_can_tell_is_recorded_again(large):
    fast, xs = chainrule.compile(rooted, lift=True), [1.0, 2.0, 3.0]
    assert check(fast, rooted, [0.1, 0.2, 0.3], xs) is Path.MACHINE
    assert View(fast).variant.recording.shed
    value, grad = fast.value_and_grad([0.0, 0.2, 0.3], xs)  # sqrt has the slope infinity at 0
    wanted, gradient = chainrule.value_and_grad(rooted)([0.0, 0.2, 0.3], xs)
    assert value == pytest.approx(wanted, rel=1e-12)
    assert grad == gradient == [math.inf, grad[1], grad[2]]
    assert not View(fast).variant.recording.shed
    assert check(fast, rooted, [0.1, 0.2, 0.3], xs) is Path.MACHINE


def test_a_call_that_selects_something_else_gets_the_instructions_too(large):
    fast, p = chainrule.compile(rooted_tokens, lift=True), [0.1, 0.2, 0.3]
    assert check(fast, rooted_tokens, p, [0, 1, 1]) is Path.MACHINE
    variant = View(fast).variant
    other = flatten_call((p, [2, 0, 1]), {}, differentiate=True)
    assert variant.recording.shed
    assert variant.recover(other)
    assert variant.run(other, None).path is Path.TAPE
    variant.shed(lambda call: trace(rooted_tokens, survey(rooted_tokens), call).recording)
    leaves = [Value(x) for x in p]
    fast(leaves, [2, 2, 0]).backward()
    assert [v.grad for v in leaves] == chainrule.value_and_grad(rooted_tokens)(p, [2, 2, 0])[1]


def test_an_undefined_value_raises_as_in_eager(large):
    fast, xs = chainrule.compile(rooted, lift=True), [1.0, 2.0, 3.0]
    check(fast, rooted, [0.1, 0.2, 0.3], xs)
    for wrong in ([-0.5, 0.2, 0.3], [0.5, 0.2, -3.0]):
        with pytest.raises(ValueError, match="undefined") as eager:
            chainrule.value_and_grad(rooted)(wrong, xs)
        with pytest.raises(ValueError, match="undefined") as compiled:
            fast.value_and_grad(wrong, xs)
        assert str(compiled.value) == str(eager.value)
    assert check(fast, rooted, [0.1, 0.2, 0.3], xs) is Path.MACHINE


def test_a_recording_that_another_call_does_not_repeat_is_not_taken_for_it(large):
    fast, p = chainrule.compile(branching, lift=True), [0.1, 0.2, 0.3]
    check(fast, branching, p, [1.0, 2.0, 3.0])
    variant = View(fast).variant
    other = flatten_call((p, [-1.0, -2.0, -3.0]), {}, differentiate=True)
    assert not variant.recover(other)
    assert variant.recording.shed
    assert variant.run(other, None) is None
    again = flatten_call((p, [1.5, 2.5, 3.5]), {}, differentiate=True)
    assert variant.recover(again)
    assert not variant.recording.shed
    assert variant.run(again, None).path is Path.TAPE


def test_new_lengths_join_and_supersede_what_has_no_instructions(large):
    fast, p = chainrule.compile(tokens_of, lift=True), [0.1 * k for k in range(8)]
    for n in (24, 12, 7, 40, 24, 13, 3, 100, 99):
        assert check(fast, tokens_of, p, [k % 8 for k in range(n)]) is Path.MACHINE
    assert len({id(v.machine) for v in View(fast).variants}) == 1
    assert all(v.recording.shed for v in View(fast).variants)


def test_samples_side_by_side_get_their_instructions_again(large):
    def loss(p, x):
        return sum(tanh(a * x) for a in p)

    fast, p, xs = chainrule.compile(loss, lift=True), np.array([0.1, 0.2]), np.linspace(0, 1, 40)
    fast.value_and_grad(p, xs[20])
    assert View(fast).latest.recording.shed
    values, grads = fast.map_value_and_grad(p, xs)
    for x, value, grad in zip(xs.tolist(), values, grads, strict=True):
        wanted, gradient = chainrule.value_and_grad(loss)(p, x)
        assert value == pytest.approx(wanted)
        assert grad == pytest.approx(gradient)
    assert any(v.lanes for v in View(fast).variants)


def test_changed_state_is_recorded_anew(large):
    state = {"scale": 2.0}

    def scaled(p, xs):
        return state["scale"] * sum(tanh(a * x) for a, x in zip(p, xs, strict=True))

    fast = chainrule.compile(scaled, lift=True)
    for scale in (2.0, 3.0, 2.0):
        state["scale"] = scale
        assert check(fast, scaled, [0.1, 0.2], [1.0, 2.0]) is Path.MACHINE


def test_an_eager_run_waits_until_a_large_tape_is_gone(large):
    tapes = []

    def watched(p, xs):
        tapes.append(variant.has_tape)
        return branching(p, xs)

    fast = chainrule.compile(branching, lift=False)
    p, xs = [0.1, 0.2, 0.3], [1.0, 2.0, 3.0]
    captured = survey(branching)
    call = flatten_call((p, xs), {}, differentiate=True)
    variant = Variant.of(trace(branching, captured, call))
    from chainrule.compiler.runtime.verification import check_against_eager

    expected = check_against_eager(watched, captured, variant, call)
    assert tapes == [False, False]
    assert expected.values.tolist() == [fast.value_and_grad(p, xs)[0]]


@pytest.mark.skipif(kernels is None, reason="the native engine counts its nodes")
def test_nodes_of_a_recording_do_not_wait_for_the_garbage_collector():
    captured, live = survey(branching), kernels.allocation_counts
    call = flatten_call(([0.1] * 50, np.linspace(0.1, 1.0, 50)), {}, differentiate=True)
    trace(branching, captured, call)
    gc.collect()
    gc.disable()
    try:
        before = live()[0]
        made = trace(branching, captured, call)
        assert len(made.recording) > 200
        assert live()[0] <= before + made.recording.inputs
    finally:
        gc.enable()


@pytest.mark.skipif(kernels is None, reason="the reference engine has no such arrays")
def test_a_recording_that_repeats_another_shares_its_arrays():
    captured = survey(tokens_of)
    call = flatten_call(([0.1, 0.2, 0.3], [2, 0, 1, 1]), {}, differentiate=True)
    first = trace(tokens_of, captured, call).recording
    again = trace(tokens_of, captured, call, like=first).recording
    for name in ("codes", "operands", "constants", "number"):
        assert getattr(again, name) is getattr(first, name)
    assert first.differs(again) is None
    for tokens in ([2, 0, 1, 0], [2, 0, 1], [2, 0, 1, 1, 1]):  # another operand, other lengths
        call = flatten_call(([0.1, 0.2, 0.3], tokens), {}, differentiate=True)
        alone = trace(tokens_of, captured, call).recording
        other = trace(tokens_of, captured, call, like=first).recording
        assert other.operands is not first.operands
        assert alone.differs(other) is None
        assert first.differs(other) is not None


def test_a_hundred_functions_leave_nothing_behind(large):
    kept = []
    p, xs = [0.1, 0.2, 0.3], [1.0, 2.0, 3.0]
    for k in range(100):

        def function(p, xs, k=k):
            return sum(tanh(a * x) for a, x in zip(p, xs, strict=True)) * (1.0 + k)

        fast = chainrule.compile(function, lift=k % 10 == 0)
        fast.value_and_grad(p, xs)
        kept.append(weakref.ref(View(fast).variant))
    del fast, function
    gc.collect()
    assert sum(ref() is not None for ref in kept) == 0


def test_a_hundred_recordings_of_one_function_keep_one(large):
    state = {"scale": 1.0}

    def scaled(p, xs):
        return state["scale"] * sum(tanh(a * x) for a, x in zip(p, xs, strict=True))

    fast, kept = chainrule.compile(scaled, lift=False), []
    for k in range(100):
        for _ in range(2):  # what changes all the time runs eagerly
            state["scale"] = 1.0 + k
            fast.value_and_grad([0.1, 0.2], [1.0, 2.0])
        kept.append(weakref.ref(View(fast).variant))
    gc.collect()
    assert sum(ref() is not None for ref in kept) == 1
