"""Ctrl-C during ``fast.train``: parameters and moments are always those between two steps."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import count
from test_compile_train import Pretended, by_hand, quadratic, same, simple, state
from test_interrupts import Injector

import chainrule
from chainrule import optim
from chainrule.compiler.training import driver as training
from chainrule.compiler.training.function import TrainableFunction
from chainrule.core.interrupts import Held


def steps_by_hand(number):
    """The states before the first step and after each."""
    fast, params, optimiser = simple()
    states = [state(params, optimiser)]
    for _ in range(number):
        by_hand(fast, params, [(0.5,), (1.5,)], optimiser, 1)
        states.append(state(params, optimiser))
    return states


@pytest.mark.parametrize("native", [False, True])
def test_ctrl_c_at_any_bytecode_leaves_a_whole_number_of_steps(native):
    wanted = steps_by_hand(3)
    fast, samples = chainrule.compile(quadratic), [(0.5,), (1.5,)]
    function = (
        Pretended(fast, lambda step: step == 1) if native else TrainableFunction(fast.dispatch)
    )
    warm = {"p": np.array([1.0, -2.0])}
    fast.train(warm, samples, optim.Adam(warm), 4)  # recorded: what follows is the loop alone
    stride = count(ci=37, soak=3)
    interrupted = 0
    for moment in range(1, 10**6, stride):
        params = {"p": np.array([1.0, -2.0])}
        optimiser = optim.Adam(params, lr=0.1)
        before = signal.getsignal(signal.SIGINT)
        injector = Injector(moment)
        previous = sys.gettrace()
        sys.settrace(injector.trace)
        try:
            training.train(function, params, samples, optimiser, 3)
            arrived = False
        except KeyboardInterrupt:
            arrived = True
        finally:
            sys.settrace(previous)  # perhaps coverage's
        assert signal.getsignal(signal.SIGINT) is before
        assert same(state(params, optimiser), wanted[optimiser.steps]), f"torn at bytecode {moment}"
        if injector.left > 0:
            break
        assert arrived, f"lost at bytecode {moment}"
        interrupted += 1
    assert interrupted > 10
    assert optimiser.steps == 3


SCRIPT = """
import json, pathlib, random, signal, sys, time
import numpy as np
sys.path[:0] = [sys.argv[1], str(pathlib.Path(sys.argv[1]).parents[1])]
import chainrule
from test_compile_train import OPTIMISERS, loss, parameters, same, sequences, state

runs, steps, chance = int(sys.argv[2]), 24, random.Random("train")
samples = sequences()

def fresh():
    params = parameters()
    return params, OPTIMISERS["adam"](params)

fast = chainrule.compile(loss)
params, optimiser = fresh()
fast.train(params, samples, optimiser, steps)   # everything is recorded
states = {}
params, optimiser = fresh()
started = time.perf_counter()
fast.train(params, samples, optimiser, steps, every=1,
           callback=lambda *_: states.update({optimiser.steps: state(params, optimiser)}))
duration = time.perf_counter() - started

signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
tally = {"whole": 0, "torn": 0, "resumed": 0, "stopped at": []}
run = 0
# On a busy machine signals may all come too early or too late: then there are more of them.
while run < runs or len(set(tally["stopped at"])) < 3 and run < 20 * runs:
    run += 1
    # now and then from the beginning, so that recordings are interrupted too
    function = chainrule.compile(loss) if run % 8 == 0 else fast
    params, optimiser = fresh()
    states[0] = state(params, optimiser)
    delay = chance.uniform(0, 1.2) * duration * (4 if run % 8 == 0 else 1)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(1e-6, delay))
        function.train(params, samples, optimiser, steps)
        while True:
            time.sleep(0.001)
    except KeyboardInterrupt:
        pass
    found = state(params, optimiser)
    tally["whole" if same(found, states[optimiser.steps]) else "torn"] += 1
    tally["stopped at"].append(optimiser.steps)
    function.train(params, samples, optimiser, steps - optimiser.steps)
    tally["resumed"] += same(state(params, optimiser), states[steps])
print(json.dumps(tally))
"""


def test_sigint_at_random_moments_leaves_a_whole_number_of_steps_and_the_run_goes_on():
    runs = count(ci=60, soak=1000)
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(runs)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    tally = json.loads(result.stdout)
    assert tally["torn"] == 0, tally
    assert tally["whole"] == tally["resumed"] == len(tally["stopped at"]) >= runs, tally
    assert len(set(tally["stopped at"])) > 2, "some signals must land inside the run"


def test_a_handler_of_ones_own_gets_its_ctrl_c_after_the_step():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(optimiser.steps))
    try:

        def pressing(params, target):
            return quadratic(params, target)

        fast, params, optimiser = chainrule.compile(pressing), {"p": np.ones(2)}, None
        optimiser = optim.Adam(params, lr=lambda step: signal.raise_signal(signal.SIGINT) or 0.1)
        fast.train(params, [(0.0,)], optimiser, 1)
        assert seen == [1]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_ctrl_c_does_not_wait_unless_the_block_is_firm():
    log = []

    def press_twice(firm):
        with Held(firm):
            signal.raise_signal(signal.SIGINT)
            log.append("held")
            signal.raise_signal(signal.SIGINT)
            log.append("held again")

    with pytest.raises(KeyboardInterrupt):
        press_twice(firm=False)
    assert log == ["held"]
    with pytest.raises(KeyboardInterrupt):
        press_twice(firm=True)
    assert log == ["held", "held", "held again"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Held():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
