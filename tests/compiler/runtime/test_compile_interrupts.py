"""Ctrl-C while a function is recorded: nothing of the recording stays behind."""

import builtins
import random
import signal
import sys

import numpy as np
import pytest
from programs import count
from test_interrupts import Injector

import chainrule
from chainrule import Value
from chainrule.core.backend import modes

BIAS = [Value(0.25), Value(-0.5), Value(1.0)]  # nudged between two recordings


def loss(params, target):
    scores = [p * p + b for p, b in zip(params, BIAS, strict=True)]
    largest = max(score.data for score in scores)  # replaced while it records
    exps = [(score - largest).exp() for score in scores]
    return -(exps[target] / sum(exps)).log()


def state():
    """What a recording changes for a while."""
    return (
        builtins.max,
        builtins.min,
        sys.stdout,
        sys.stderr,
        modes.recorder,
        modes.grad,
        modes.allow_nonfinite,
        modes.debug,
        [b.data for b in BIAS],
        random.getstate(),
        signal.getsignal(signal.SIGINT),
    )


@pytest.mark.parametrize("call", ["value_and_grad", "plain"])
def test_ctrl_c_at_any_bytecode_of_a_recording_leaves_nothing_behind(call):
    params = np.array([0.3, -0.7, 1.1])

    def run(fast):
        if call == "plain":
            return fast(params, 2).data
        value, grads = fast.value_and_grad(params, 2)
        return value, *grads.tolist()

    whole = chainrule.compile(loss, lift=False)
    wanted, report = run(whole), whole.report().splitlines()[2]
    assert "0 guards" in report, "max is one instruction, not a branch"
    before, interrupted = state(), 0
    for moment in range(1, 10**7, count(ci=997, soak=53)):
        fast = chainrule.compile(loss, lift=False)
        injector = Injector(moment)
        previous = sys.gettrace()
        sys.settrace(injector.trace)
        try:
            run(fast)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(previous)  # perhaps coverage's
        assert state() == before, f"left behind by a signal at bytecode {moment}"
        assert run(fast) == wanted
        assert fast.report().splitlines()[2] == report
        if injector.left > 0:
            break
    assert interrupted > 10
