"""Ctrl-C at random moments of backward, recording, replay and train.

Each signal must arrive as KeyboardInterrupt, leave everything as it was before or as it is after,
and what was interrupted must give the right numbers when it is done again.
"""

import builtins
import math
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from trials import Outcome

import chainrule
from chainrule import Value, optim, tanh, topological_order
from chainrule.compiler.runtime.ledger import allowance
from chainrule.core.backend import modes

COUNT = 15_764
THINGS = "signals"
STEPS = 12
SAMPLES = [([0.5, -1.0, 2.0], 0), ([1.5, 0.25, -0.75], 1), ([-0.1, 0.2, 0.3], 2)]


def loss(params: dict[str, Any], point: list[float], target: int) -> Any:
    scores = [tanh(sum(w * x for w, x in zip(row, point, strict=True))) for row in params["W"]]
    largest = max(score.data for score in scores)
    exps = [(score - largest).exp() for score in scores]
    return -(exps[target] / sum(exps)).log() + sum(b * b for b in params["b"])


def parameters() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"W": rng.normal(size=(3, 3)), "b": rng.normal(size=3)}


def numbers(result: tuple[Any, Any]) -> list[float]:
    value, gradient = result
    return [value, *gradient["W"].ravel().tolist(), *gradient["b"].tolist()]


def surroundings() -> tuple[Any, ...]:
    """What a recording replaces for a while, and must put back."""
    return (
        builtins.max,
        builtins.sum,
        sys.stdout,
        modes.grad,
        modes.allow_nonfinite,
        modes.debug,
        modes.recorder,
        signal.getsignal(signal.SIGINT),
    )


def close(found: list[float], wanted: list[float]) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-14) for a, b in pairs)


class Backward:
    """Gradients are all old or all new."""

    def __init__(self) -> None:
        leaves = [Value(0.5 + i / 10) for i in range(5)]
        y = leaves[0]
        for i in range(3_000):
            y = y * 0.999 + leaves[i % 5]
        self.y, self.nodes = y, topological_order(y)
        self.old = [k + 0.5 for k in range(len(self.nodes))]
        self.prepare()
        y.backward()
        self.new = self.now()

    def now(self) -> list[float]:
        return [v.grad for v in self.nodes]

    def prepare(self) -> None:
        for v, gradient in zip(self.nodes, self.old, strict=True):
            v.grad = gradient

    def act(self) -> None:
        self.y.backward()

    def wrong(self) -> str:
        if self.now() not in (self.old, self.new):
            return "some gradients are old and some new"
        self.prepare()
        self.y.backward()
        return "" if self.now() == self.new else "the next pass has other gradients"


class Compile:
    """A function whose first call was interrupted is recorded at the next."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.wanted = numbers(chainrule.value_and_grad(loss)(parameters(), *SAMPLES[0]))
        self.prepare()

    def prepare(self) -> None:
        self.params = parameters()
        self.fast = chainrule.compile(loss, **self.options)

    def act(self) -> None:
        self.fast.value_and_grad(self.params, *SAMPLES[0])

    def wrong(self) -> str:
        for time_ in ("next", "second", "third"):
            found = numbers(self.fast.value_and_grad(self.params, *SAMPLES[0]))
            if not close(found, self.wanted):
                return f"the {time_} call gives {found}, not {self.wanted}"
        report = self.fast.report()
        wanted = "loss: lifted" if self.options.get("lift") else "loss: native tape"
        if chainrule.engine == "reference":
            wanted = "loss: "
        same = report.startswith(wanted) and "eager because" not in report
        return "" if same else f"it is not compiled as without the signal: {report}"


class Replay(Compile):
    """A recorded function is interrupted, and gives the same bits as before."""

    def prepare(self) -> None:
        if not hasattr(self, "fast"):
            super().prepare()
            for _ in range(3):
                self.act()
            self.bits = numbers(self.fast.value_and_grad(self.params, *SAMPLES[0]))

    def act(self) -> None:
        for _ in range(20):
            self.fast.value_and_grad(self.params, *SAMPLES[0])

    def wrong(self) -> str:
        found = numbers(self.fast.value_and_grad(self.params, *SAMPLES[0]))
        return "" if found == self.bits else f"the next call gives {found}, not {self.bits}"


class Train:
    """Parameters and moments are those between two steps, and training goes on from there."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.fast = chainrule.compile(loss, **options)
        self.prepare()
        self.act()  # recorded
        self.states = []
        self.prepare()
        for _ in range(STEPS + 1):
            self.states.append(self.state())
            self.fast.train(self.params, SAMPLES, self.optimiser, 1)

    def state(self) -> list[float]:
        saved = self.optimiser.state_dict()
        arrays = [*self.params.values(), saved["m"], saved["v"]]
        return [x for array in arrays for x in np.ravel(array).tolist()]

    def prepare(self) -> None:
        self.params = parameters()
        self.optimiser = optim.Adam(self.params, lr=0.05)

    def act(self) -> None:
        self.fast.train(self.params, SAMPLES, self.optimiser, STEPS)

    def wrong(self) -> str:
        steps = self.optimiser.steps
        if self.state() != self.states[steps]:
            return f"the state is none that is between two steps: {steps} are counted"
        self.fast.train(self.params, SAMPLES, self.optimiser, STEPS - steps)
        same = self.state() == self.states[STEPS]
        return "" if same else f"interrupted after step {steps}, it ends elsewhere"


class FirstTrain(Train):
    """The same, where the function is recorded on the way."""

    def prepare(self) -> None:
        super().prepare()
        if hasattr(self, "states"):
            self.fast = chainrule.compile(loss, **self.options)


SITUATIONS: dict[str, Callable[[], Any]] = {
    "backward": Backward,
    "recording": lambda: Compile(lift=False),
    "replay on the tape": lambda: Replay(lift=False),
    "training on the tape": lambda: Train(lift=False),
    "replay in machine code": lambda: Replay(lift=True),
    "making machine code": lambda: Compile(lift=True),
    "first training": FirstTrain,
    "training in machine code": lambda: Train(lift=True),
}


class Swallowed:
    """Python prints an exception that a finaliser raises, and goes on: a signal may end there."""

    def __init__(self) -> None:
        self.where: list[str] = []

    def __call__(self, unraisable: Any) -> None:
        self.where.append(f"{unraisable.exc_type.__name__} in {unraisable.object!r}")


def interrupted(act: Callable[[], None], delay: float, swallowed: Swallowed) -> tuple[str, float]:
    """How it went, and how long the act took, if it was not interrupted."""
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    taken = 0.0
    try:
        began = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, max(1e-6, delay))
        act()
        taken = time.perf_counter() - began
        late = began + delay + 30.0
        while time.perf_counter() < late and not swallowed.where:
            time.sleep(0.0005)
    except KeyboardInterrupt:
        return ("interrupted" if taken == 0.0 else "interrupted after the end"), taken
    return ("swallowed" if swallowed.where else "lost"), taken


def trials(count: int, seed: int) -> Iterator[Outcome]:
    rng = random.Random(f"signals {seed}")
    allowance.left = math.inf  # every function is recorded at its first call
    before, hook, swallowed = surroundings(), sys.unraisablehook, Swallowed()
    sys.unraisablehook = swallowed
    made: dict[str, Any] = {}
    durations: dict[str, float] = {}
    try:
        for number in range(count):
            name = list(SITUATIONS)[number % len(SITUATIONS)]
            if name not in made:
                situation = made[name] = SITUATIONS[name]()
                situation.prepare()
                began = time.perf_counter()
                situation.act()
                durations[name] = time.perf_counter() - began
            situation = made[name]
            situation.prepare()
            delay = rng.uniform(0, 1.1) * durations[name]
            how, taken = interrupted(situation.act, delay, swallowed)
            if taken:  # the machine is as busy as it is now
                durations[name] += (taken - durations[name]) / 4
            else:
                durations[name] = max(durations[name], delay)
            found = "the signal did not arrive" if how == "lost" else situation.wrong()
            if surroundings() != before:
                found = f"left behind: {surroundings()}, not {before}"
            if found:
                found = f"{name}, signal {number} of seed {seed}, {how}: {found}"
            if how == "swallowed":
                how += f" ({swallowed.where[0]})"
            swallowed.where.clear()
            yield Outcome(f"{name}: {how}", found)
    finally:
        sys.unraisablehook = hook
        signal.setitimer(signal.ITIMER_REAL, 0)
