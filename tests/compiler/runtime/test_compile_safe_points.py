"""Ctrl-C at every safe point of a first call: nothing half-made stays, and the next call works."""

import signal

import numpy as np
import pytest
from test_compile_interrupts import state

import chainrule
from chainrule import Value, where
from chainrule.compiler.runtime import verification
from chainrule.core.interrupts import stoppable

SCALE = [Value(0.5), Value(1.5)]  # reached by the function itself


def mixture(p, xs):
    """One formula for lists of any length."""
    total = 0.0
    for x in xs:
        total = total + ((x - p[0]) * p[1]).exp() * SCALE[0]
    return total.log() * SCALE[1]


def branching(p, xs):
    total = 0.0
    for x in xs:
        h = x * p[0]
        total = total + (h.tanh() if h > 0.1 else h * p[1])
    return total


def chosen(p, xs):
    total = 0.0
    for x in xs:
        total = total + where(x * p[0] > 0.1, p[1] * x, p[0]).sin()
    return total


def calls(length):
    rng = np.random.default_rng(length)
    return rng.normal(0.0, 1.0, 2), rng.normal(0.0, 1.0, length).tolist()


class Pressed:
    """Presses Ctrl-C at one safe point, and counts those that are met afterwards."""

    def __init__(self, moment):
        self.left, self.after = moment, 0

    def ask(self):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        self.after += self.left < 0
        return False


@pytest.mark.parametrize("loss", [mixture, branching, chosen])
@pytest.mark.parametrize("lift", [True, False])
def test_ctrl_c_at_each_safe_point_leaves_a_function_that_works(loss, lift):
    before, interrupted, lengths = state(), 0, (40, 60, 25)
    wanted = [chainrule.value_and_grad(loss)(*calls(n)) for n in lengths]
    for moment in range(1, 10**6):
        fast = chainrule.compile(loss, lift=lift, on_fallback="raise")
        pressed, errors = Pressed(moment), 0
        with stoppable(pressed.ask):
            for n in lengths:
                try:
                    fast.value_and_grad(*calls(n))
                except KeyboardInterrupt:
                    errors += 1
                    assert pressed.after <= 1, f"pressed at {moment}, it went on"
                    break
        assert state() == before, f"left behind by Ctrl-C at safe point {moment}"
        if pressed.left > 0:
            break
        assert errors == 1
        interrupted += 1
        for n, (value, gradient) in zip(lengths, wanted, strict=True):
            found = fast.value_and_grad(*calls(n))
            assert found[0] == pytest.approx(value, rel=1e-12)
            assert found[1].tolist() == pytest.approx(gradient.tolist(), rel=1e-9)
        assert ("machine code" in fast.report()) or not lift
    assert interrupted > 5


def test_ctrl_c_at_each_safe_point_with_sizes():
    def examples(n=5):
        return calls(n)

    def loss(p, xs):
        total = 0.0
        for x in xs:
            total = total + ((x - p[0]) * p[1]).exp()
        return total.log()

    arguments, interrupted = calls(50), 0
    value, gradient = chainrule.value_and_grad(loss)(*arguments)
    for moment in range(1, 10**6, 3):
        fast = chainrule.compile(loss, sizes=examples, on_fallback="raise")
        pressed = Pressed(moment)
        with stoppable(pressed.ask):
            try:
                fast.value_and_grad(*arguments)
            except KeyboardInterrupt:
                interrupted += 1
        if pressed.left > 0:
            break
        found = fast.value_and_grad(*arguments)
        assert found[0] == pytest.approx(value, rel=1e-12)
        assert found[1].tolist() == pytest.approx(gradient.tolist(), rel=1e-9)
    assert interrupted > 5


def test_while_eager_runs_to_be_compared_ctrl_c_does_not_wait(monkeypatch):
    run, went_on = verification.Eager.run, []

    def pressed(eager, function):
        def pressing(*arguments, **keywords):
            signal.raise_signal(signal.SIGINT)
            went_on.append("too late")
            return function(*arguments, **keywords)

        return run(eager, pressing)

    before, fast = state(), chainrule.compile(mixture, lift=True, on_fallback="raise")
    with monkeypatch.context() as patched:
        patched.setattr(verification.Eager, "run", pressed)
        with pytest.raises(KeyboardInterrupt):
            fast.value_and_grad(*calls(30))
    assert went_on == []
    assert state() == before
    value, _ = chainrule.value_and_grad(mixture)(*calls(30))
    assert fast.value_and_grad(*calls(30))[0] == pytest.approx(value, rel=1e-12)


def test_a_function_that_catches_whatever_is_raised_is_not_recorded_as_that_went(many):
    def loss(p, xs):
        total = 0.0
        for x in xs:
            try:
                total = total + p[0] * x
            except BaseException:
                total = total + 1e6
        return total * p[1]

    p, xs = calls(many)  # there are safe points inside
    wanted, _ = chainrule.value_and_grad(loss)(p, xs)
    for moment in (1, 2, 3):
        fast, pressed = chainrule.compile(loss, lift=False), Pressed(moment)
        with stoppable(pressed.ask), pytest.raises(KeyboardInterrupt):
            fast.value_and_grad(p, xs)
        assert fast.value_and_grad(p, xs)[0] == pytest.approx(wanted, rel=1e-12)
