"""Batches, single precision and whole training steps in machine code, beside the tape's.

The judge is a loop in Python over the tape's gradients, which are eager's to the last bit.
"""

import math
import random
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from compile_view import View
from test_compile_lifted import (
    VOCAB,
    Pair,
    distance,
    flat,
    gpt_params,
    layer_major,
    microgpt,
    mlp,
    mlp_params,
    normal,
)

import chainrule
from chainrule import exp, log, maximum, sqrt, tanh, vsum, where
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.mapping import costs
from chainrule.compiler.runtime.machine import Kernel
from chainrule.compiler.runtime.tape import Interpreter
from chainrule.compiler.training import batches, step_code
from chainrule.optim import SGD, Adam, AdamW, cosine, warmup

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def few_go_together(monkeypatch):
    """A batch may be small for its lengths: it runs as a large one would."""
    monkeypatch.setattr(batches, "ALIKE", 0)
    monkeypatch.setattr(batches, "FEWEST", 2)
    monkeypatch.setattr(costs, "PREPARE", 0.0)
    monkeypatch.setattr(batches, "PACKING", 0.0)


# --- side by side ---------------------------------------------------------------------------------


def copied(nest: Any) -> Any:
    if isinstance(nest, dict):
        return {key: copied(x) for key, x in nest.items()}
    if isinstance(nest, (list, tuple)):
        return type(nest)(copied(x) for x in nest)
    return nest.copy()


def chosen(samples: Sequence[Any], step: int, batch: int) -> list[Any]:
    return [samples[(step * batch + i) % len(samples)] for i in range(batch)]


def by_hand(
    function: Any, params: Any, samples: Any, optimiser: Any, steps: int, batch: int
) -> np.ndarray:
    """The loop that train() stands for, over the tape."""
    tape = chainrule.compile(function, lift=False, on_fallback="eager")
    losses = []
    for step in range(steps):
        total, sums = 0.0, None
        for sample in chosen(samples, step, batch):
            value, grads = tape.value_and_grad(params, *sample)
            total += value[0] if isinstance(value, tuple) else value
            sums = flat(grads) if sums is None else sums + flat(grads)
        optimiser.step(shaped(sums / batch, params))
        losses.append(total / batch)
    return np.array(losses)


def shaped(row: Any, nest: Any) -> Any:
    """The numbers of a row in the shape of a nest."""
    rest = iter(np.split(row, np.cumsum([a.size for a in arrays_of(nest)])[:-1]))

    def fill(x: Any) -> Any:
        if isinstance(x, dict):
            return {key: fill(item) for key, item in x.items()}
        if isinstance(x, (list, tuple)):
            return type(x)(fill(item) for item in x)
        return next(rest).reshape(x.shape)

    return fill(nest)


def arrays_of(nest: Any) -> list[Any]:
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, (list, tuple)):
        return [a for x in nest for a in arrays_of(x)]
    return [nest]


def trained(
    function: Any,
    params: Any,
    samples: Any,
    optimiser: Callable[..., Any],
    steps: int,
    batch: int = 1,
    limit: float = 1e-9,
    **options: Any,
) -> Any:
    """Train both ways: the losses, the parameters and the moments must be the same."""
    fast = chainrule.compile(function, lift=True, on_fallback="eager", **options)
    mine, theirs = copied(params), copied(params)
    first, second = optimiser(mine), optimiser(theirs)
    found = fast.train(mine, samples, first, steps, batch=batch)
    wanted = by_hand(function, theirs, samples, second, steps, batch)
    assert len(found) == steps
    scale = max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=limit * scale)
    for a, b in zip(arrays_of(mine), arrays_of(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=limit * max(1.0, np.abs(b).max()))
    for name in first.moments:
        a, b = getattr(first, name), getattr(second, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=limit * max(1.0, np.abs(b).max()))
    assert first.steps == second.steps == steps
    return fast


# --- programs -------------------------------------------------------------------------------------


def names(seed: int, count: int, longest: int = 6) -> list[Any]:
    """Samples of random tokens, of all lengths."""
    rng = random.Random(seed)
    return [([rng.randrange(VOCAB) for _ in range(rng.randint(3, longest))],) for _ in range(count)]


def points(seed: int, count: int) -> list[Any]:
    """Samples of floats and a label."""
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(1, 2)), [float(rng.choice((-1, 1)))]) for _ in range(count)]


def ragged(p, tokens, x):
    """Tokens, numbers and the length; every sample has its own of each."""
    rows = [tanh(p["e"][t][0] * x[0] + p["e"][t][1]) for t in tokens]
    top = max(rows)
    pooled = sum(exp(r - top) * (i + 1) for i, r in enumerate(rows)) / len(tokens)
    picked = where(pooled > 2.0, pooled, pooled * p["u"][2] + maximum(rows[0], x[1]))
    return (picked + top * p["u"][0]) ** 2 + 0.01 * vsum(a * a for row in p["e"] for a in row)


def ragged_params(seed: int) -> Any:
    return {"e": normal(seed, VOCAB, 2), "u": normal(seed + 1, 3), "unused": normal(seed + 2, 2, 2)}


def ragged_samples(seed: int, count: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [(tokens, rng.normal(size=2)) for (tokens,) in names(seed, count, 5)]


PROGRAMS: dict[str, Any] = {
    "gpt": (microgpt, lambda: gpt_params(1), lambda: names(1, 40)),
    "mlp": (mlp, lambda: mlp_params(2), lambda: points(2, 30)),
    "ragged": (ragged, lambda: ragged_params(3), lambda: ragged_samples(3, 50)),
}
OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: SGD(p, lr=0.02),
    "momentum": lambda p: SGD(p, lr=0.01, momentum=0.9),
    "decay": lambda p: SGD(p, lr=0.02, momentum=0.5, weight_decay=0.05),
    "adam": lambda p: Adam(p, lr=0.01),
    "betas": lambda p: Adam(p, lr=warmup(cosine(0.02, 300), 10), betas=(0.8, 0.95), eps=1e-6),
    "adamw": lambda p: AdamW(p, lr=0.01, weight_decay=0.1),
}

# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "optimiser"),
    [
        *(("ragged", name) for name in OPTIMISERS),
        ("gpt", "adam"),
        ("gpt", "decay"),
        ("mlp", "adamw"),
    ],
)
def test_training_is_the_loop_in_python(program, optimiser, machine_steps):
    function, params, samples = PROGRAMS[program]
    trained(function, params(), samples(), OPTIMISERS[optimiser], steps=210)
    assert machine_steps[0] > 150


@pytest.mark.parametrize(
    ("program", "batch"),
    [
        *(("ragged", batch) for batch in (2, 3, 4, 7, 8, 13, 16, 31, 64)),
        *(("gpt", batch) for batch in (3, 16, 64)),
        *(("mlp", batch) for batch in (5, 32)),
    ],
)
def test_batches_of_any_size(program, batch, machine_steps):
    function, params, samples = PROGRAMS[program]
    optimiser = list(OPTIMISERS.values())[batch % len(OPTIMISERS)]
    steps = 12 if batch > 16 else 30
    trained(function, params(), samples(), optimiser, steps, batch)
    assert machine_steps[0] > steps // 2


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("function", [microgpt, layer_major], ids=lambda f: f.__name__)
def test_lists_of_any_length_are_one_batch(function, batch, machine_steps):
    """Down to two tokens, of which a GPT sees one."""
    rng = random.Random(batch)
    samples = [([rng.randrange(VOCAB) for _ in range(rng.randint(2, 6))],) for _ in range(40)]
    params = gpt_params(1, 2, gain=(8,), bias=(8,))
    trained(function, params, samples, OPTIMISERS["adam"], 30, batch)
    assert machine_steps[0] > 20


def test_two_hundred_steps_of_batches(machine_steps):
    trained(ragged, ragged_params(5), ragged_samples(5, 70), OPTIMISERS["adam"], 220, batch=8)
    assert machine_steps[0] > 150


def test_training_goes_on_where_it_stopped(machine_steps):
    function, params, samples = PROGRAMS["ragged"]
    data = samples()
    mine, theirs = params(), params()
    fast = chainrule.compile(function, lift=True, on_fallback="eager")
    a, b = Adam(mine, lr=0.01), Adam(theirs, lr=0.01)
    found = [fast.train(mine, data, a, steps, batch=4) for steps in (1, 7, 20, 2, 30)]
    wanted = by_hand(function, theirs, data, b, 60, 4)
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=0, atol=1e-9)
    assert machine_steps[0] > 30


def static_power(p, x, k):
    return sum((a * x) ** k for a in p["w"])


def static_branch(p, x, k):
    return sum((a - x) ** 2 if k == 1 else (a * x + 2) ** 2 for a in p["w"])


def returned(p, x):
    """A parameter is the result, beside other work."""
    s = sum(tanh(w * x) for w in p["w"])
    return p["w"][2] if s > -1e9 else s


def number_returned(p, x):
    return sum(w for w in p["w"]) * 0 + 2.0


def one_number(p, x):
    return p["w"][0] * x


def branching(p, x):
    """Which way depends on the sample and the parameters."""
    total = sum(w * x for w in p["w"])
    return (total - 1) ** 2 if total > 0.2 else exp(-total) + p["w"][0]


def extras(p, x):
    squares = [(w - x) ** 2 for w in p["w"]]
    return sum(squares), {"top": max(s.data for s in squares)}


def labelled(p, x, label):
    """An integer that is a number."""
    return (sum(w * x for w in p["w"]) - label) ** 2


SMALL: dict[str, tuple[Any, list[Any]]] = {
    "powers": (static_power, [(0.5, 2), (0.2, 3), (0.3, 4), (0.1, 2)]),
    "branches": (static_branch, [(0.5, 1), (0.2, 0), (0.3, 1), (0.1, 0), (0.7, 3)]),
    "parameter": (returned, [(0.5,), (0.2,)]),
    "number": (number_returned, [(0.5,), (0.2,)]),
    "one number": (one_number, [(0.5,), (0.2,), (-0.3,)]),
    "guards": (branching, [(0.5,), (-0.2,), (0.1,), (0.3,), (-0.5,)]),
    "extras": (extras, [(0.5,), (0.2,), (-0.3,)]),
    "labels": (labelled, [(0.5, 1), (0.2, -1), (0.3, 2), (0.3, 0)]),
}


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("name", SMALL)
def test_small_programs_train(name, batch):
    function, samples = SMALL[name]
    trained(function, {"w": normal(3, 6)}, samples, OPTIMISERS["momentum"], 40, batch)


@pytest.mark.parametrize("kinds", [2, 3, 5])
def test_few_tokens_are_told_apart(kinds, machine_steps):
    """Where many integers could explain what is selected."""
    rng = random.Random(kinds)

    def f(p, tokens):
        return sum((tanh(p["w"][t]) - 0.3 * (i + 1)) ** 2 for i, t in enumerate(tokens))

    for length in (8, 12):
        for first in ([0] * length, [kinds - 1] * length, [1, 0] * (length // 2)):
            samples = [(first,)]
            samples += [([rng.randrange(kinds) for _ in range(length)],) for _ in range(40)]
            trained(f, {"w": normal(2, kinds)}, samples, OPTIMISERS["sgd"], 45)
    assert machine_steps[0] > 6 * 30


def test_integers_out_of_range_raise_as_in_python():
    def f(p, tokens):
        return sum((tanh(p["w"][t]) - 0.3 * (i + 1)) ** 2 for i, t in enumerate(tokens))

    rng = random.Random(1)
    for bad in ([0, 9, 1, 3], [9, 0], [-5, 1, 1], [3, 2, 1, 0, 4]):
        samples = [([rng.randrange(3) for _ in range(rng.randint(2, 4))],) for _ in range(30)]
        samples.append((bad,))
        samples += [([3, 3, rng.randrange(4)],) for _ in range(5)]
        for batch in (1, 4):
            outcomes = []
            for lift in (True, False):
                params = {"w": normal(2, 4)}
                fast = chainrule.compile(f, lift=lift, on_fallback="eager")
                optimiser = SGD(params, lr=0.01)
                with pytest.raises(IndexError):
                    fast.train(params, samples, optimiser, 60, batch=batch)
                outcomes.append((optimiser.steps, params["w"]))
            assert outcomes[0][0] == outcomes[1][0]
            np.testing.assert_allclose(outcomes[0][1], outcomes[1][1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 4, 6])
def test_undefined_and_infinite_steps_raise_as_in_python(batch):
    def f(p, x):
        return sum(log(w * x) for w in p["w"])

    def g(p, x):
        return sum(exp(w * x) for w in p["w"])

    for function, samples, lr in (
        (f, [(0.5,), (0.2,)] * 9 + [(-1.0,)], 0.001),
        (f, [(0.5,), (0.2,)] * 9 + [(0.0,)], 0.001),
        (g, [(0.5,), (0.2,)] * 9 + [(800.0,)], 0.001),
        (g, [(-1.0,), (-0.5,)], 50.0),
        (lambda p, x: sum(sqrt(w * x) for w in p["w"]), [(1.0,), (0.2,)] * 5 + [(0.0,)], 0.001),
    ):
        outcomes = []
        for lift in (True, False):
            params = {"w": np.linspace(0.5, 1.5, 5)}
            optimiser = SGD(params, lr=lr)
            fast = chainrule.compile(function, lift=lift, on_fallback="eager")
            try:
                fast.train(params, samples, optimiser, 60, batch=batch)
                error: Any = None
            except Exception as raised:
                error = raised
            outcomes.append((type(error).__name__, str(error), optimiser.steps, params["w"]))
        (*one, w), (*two, v) = outcomes
        assert one == two
        np.testing.assert_allclose(w, v, rtol=1e-11)


# --- what may change while it trains --------------------------------------------------------------


def test_a_callback_may_change_parameters_and_rates():
    function, params, samples = PROGRAMS["ragged"]
    data, outcomes = samples(), []
    for lift in (True, False):
        mine = params()
        optimiser = Adam(mine, lr=lambda step: 0.01 / (1 + step))

        def callback(losses, step, mine=mine):
            mine["u"] *= 0.9
            return step >= 40

        fast = chainrule.compile(function, lift=lift, on_fallback="eager")
        losses = fast.train(mine, data, optimiser, 100, batch=4, callback=callback, every=10)
        outcomes.append(np.concatenate([losses, flat(mine)]))
    np.testing.assert_allclose(*outcomes, rtol=0, atol=1e-10)


def test_what_the_function_reads_by_itself_may_change():
    scale = [1.0]

    def f(p, x):
        return sum((w * scale[0] - x) ** 2 for w in p["w"])

    outcomes = []
    for lift in (True, False):
        params = {"w": normal(3, 6)}
        scale[0] = 1.0

        def callback(losses, step):
            scale[0] += 0.5

        fast = chainrule.compile(f, lift=lift, on_fallback="eager")
        optimiser = SGD(params, lr=0.01)
        data = [(0.3,), (0.5,), (0.1,)]
        losses = fast.train(params, data, optimiser, 60, callback=callback, every=20)
        outcomes.append(np.concatenate([losses, params["w"]]))
    np.testing.assert_allclose(*outcomes, rtol=0, atol=1e-10)


@pytest.mark.parametrize("how", ["closure", "tied", "views", "samples"])
def test_parameters_that_are_reached_twice(how):
    outcomes = []
    for lift in (True, False):
        w = normal(4, 6)
        params: Any = {"w": w}
        samples: list[Any] = [(0.3,), (0.5,)]

        def f(p, x, w=w):
            return sum((a - x) ** 2 for a in p["w"])

        if how == "closure":

            def f(p, x, w=w):
                return sum((a - x) ** 2 + a * float(c) for a, c in zip(p["w"], w, strict=True))

        elif how == "tied":
            params = {"w": w, "v": w}

            def f(p, x):
                return sum((a * x + b - 1) ** 2 for a, b in zip(p["w"], p["v"], strict=True))

        elif how == "views":
            params = {"w": w[:4], "v": w[2:]}

            def f(p, x):
                return sum((a * x + b - 1) ** 2 for a, b in zip(p["w"], p["v"], strict=True))

        else:
            samples = [(w,), (w[::-1],)]

            def f(p, x):
                return sum((a * b - 1) ** 2 for a, b in zip(p["w"], x, strict=True))

        fast = chainrule.compile(f, lift=lift, on_fallback="eager")
        optimiser = SGD(params, lr=0.01)
        losses = fast.train(params, samples, optimiser, 40)
        outcomes.append(np.concatenate([losses, w]))
    np.testing.assert_allclose(*outcomes, rtol=0, atol=1e-10)


def test_strange_arrays_train():
    base = normal(5, 8, 8)
    for lift_params in (
        lambda: {"w": np.asfortranarray(base)},
        lambda: {"w": base[::2, ::-1].copy()[::-1, ::2]},
        lambda: {"w": base.T[1:4]},
        lambda: {"w": base[:1, :1]},
    ):

        def f(p, x):
            return sum(tanh(a * x - 0.1) ** 2 for row in p["w"] for a in row)

        trained(f, lift_params(), [(0.3,), (0.6,)], OPTIMISERS["adam"], 50)


def test_training_and_calling_at_once():
    function, params, samples = PROGRAMS["ragged"]
    data, mine, theirs, other = samples(), params(), params(), ragged_params(8)
    fast = chainrule.compile(function, lift=True, on_fallback="raise")
    tape = chainrule.compile(function, lift=False, on_fallback="raise")
    wanted = [tape.value_and_grad(other, *sample) for sample in data[:6]]
    stop, wrong, calls = threading.Event(), [], [0]

    def work() -> None:
        while not stop.is_set():
            k = calls[0] % 6
            try:
                found = fast.value_and_grad(other, *data[k])
                if distance(flat(found), flat(wanted[k])) > 1e-12:
                    wrong.append((found, wanted[k]))
            except BaseException as error:
                wrong.append(error)
            calls[0] += 1

    def turn(*_: Any) -> None:
        """Wait for a call, also where the machine is busy."""
        before = calls[0]
        while calls[0] == before:
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        losses = fast.train(mine, data, Adam(mine, lr=0.01), 1000, 4, callback=turn, every=200)
    finally:
        stop.set()
        thread.join()
    assert not wrong
    assert calls[0] > 3
    first = by_hand(function, theirs, data, Adam(theirs, lr=0.01), 50, 4)
    np.testing.assert_allclose(losses[:50], first, rtol=0, atol=1e-9)


# --- batch_value_and_grad -------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_mean_of_samples(program):
    function, params, samples = PROGRAMS[program]
    data, rng = samples(), random.Random(1)
    fast = chainrule.compile(function, lift=True, on_fallback="raise")
    tape = chainrule.compile(function, lift=False, on_fallback="raise")
    for size in (1, 2, 3, 4, 7, 8, 9, 16, 23, 64):
        some = [data[rng.randrange(len(data))] for _ in range(size)]
        mine = copied(params())
        for a in arrays_of(mine):
            a += 0.01 * size
        value, grads = fast.batch_value_and_grad(mine, some)
        each = [tape.value_and_grad(mine, *sample) for sample in some]
        wanted = np.mean([flat(v) for v, _ in each]), np.mean([flat(g) for _, g in each], axis=0)
        assert value == pytest.approx(wanted[0], rel=1e-12)
        assert distance(flat(grads), wanted[1]) <= 1e-12
        assert [a.shape for a in arrays_of(grads)] == [a.shape for a in arrays_of(mine)]
    single = fast.value_and_grad(params(), *data[0])  # which shares the code
    alone = tape.value_and_grad(params(), *data[0])
    assert distance(flat(single), flat(alone)) <= 1e-12


@pytest.mark.parametrize("name", SMALL)
def test_the_mean_of_small_programs(name):
    function, samples = SMALL[name]
    fast = chainrule.compile(function, lift=True, on_fallback="eager")
    tape = chainrule.compile(function, lift=False, on_fallback="eager")
    for seed in range(4):
        p = {"w": normal(seed, 6)}
        for some in (samples, samples[::-1] * 2, samples[:2] * 3, samples[:1] * 9):
            found, wanted = (f.batch_value_and_grad(p, some) for f in (fast, tape))
            assert distance(flat(found), flat(wanted)) <= 1e-12


def test_the_mean_of_undefined_samples_is_an_error():
    def f(p, x, ids):
        return sum(log(w * x) * p["w"][i] for w, i in zip(p["w"], ids, strict=True))

    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    p = {"w": np.linspace(0.5, 1.5, 4)}
    good = [(0.5, [0, 1, 2, 3]), (0.2, [3, 2, 1, 0])] * 3
    wanted = fast.batch_value_and_grad(p, good)[0]
    with pytest.raises(ValueError, match="log"):
        fast.batch_value_and_grad(p, [*good, (-1.0, [0, 1, 2, 3])])
    with pytest.raises(IndexError):
        fast.batch_value_and_grad(p, [*good, (0.5, [0, 1, 2, 4])])
    assert fast.batch_value_and_grad(p, good)[0] == wanted


def test_the_mean_into_arrays_of_the_caller():
    fast = chainrule.compile(ragged, lift=True, on_fallback="raise")
    p, data = ragged_params(1), ragged_samples(1, 9)
    wanted = fast.batch_value_and_grad(p, data)
    out = copied(p)
    value, grads = fast.batch_value_and_grad(p, data, out=out)
    assert value == wanted[0]
    assert all(a is b for a, b in zip(arrays_of(grads), arrays_of(out), strict=True))
    assert distance(flat(out), flat(wanted[1])) == 0


# --- single precision -----------------------------------------------------------------------------


class Rounded(Interpreter):
    """A recording in which every operation is rounded to single precision."""

    def run(self, inputs: Any, /) -> tuple[int, int]:
        recording = self.recording
        self.data[: recording.inputs] = [float(np.float32(x)) for x in inputs]
        with np.errstate(all="ignore"):
            for i in range(recording.inputs, len(recording)):
                if recording.codes[i] == 1:
                    self.data[i] = float(np.float32(recording.constants[i, 0]))
                    continue
                rule, xs, parameters = self._arguments(i)
                xs = [float(np.float32(x)) for x in xs]
                self.data[i] = float(np.float32(rule.forward(*xs, *parameters)))
        return 0, -1

    def sweep(self, root: int, seed: float, out: Any, /) -> None:
        recording = self.recording
        totals = [np.float32(0)] * len(recording)
        totals[root] = np.float32(seed)
        for i in reversed(self._order(root)):
            rule, xs, parameters = self._arguments(i)
            slopes = rule.local_grads(self.data[i], xs, tuple(parameters))
            for p, slope in zip(self.operands[i], slopes, strict=False):
                if p >= 0:
                    totals[p] += np.float32(slope) * totals[i]
        out[: recording.inputs] = totals[: recording.inputs]


def rounded(tape: Any, *arguments: Any) -> tuple[float, Any]:
    """Value and gradient of eager rounded to single precision, by the recording of the tape."""
    View(tape).forget_fast_path()
    tape.value_and_grad(*arguments)
    variant = View(tape).latest
    oracle = Rounded(variant.recording)
    decided = variant.decide(flatten_call(arguments, {}, differentiate=True).ints)
    assert decided is not None
    if len(decided[0]):
        oracle.point(variant.recording.selection.places, decided[0])
    oracle.run(variant.inputs)
    root = variant.recording.result.position
    slopes = np.zeros(variant.recording.inputs)
    oracle.sweep(root, 1.0, slopes)
    return oracle.number(root), slopes


EPS = float(np.finfo(np.float32).eps)


def away(found: Any, wanted: Any) -> float:
    """The largest difference in units of single precision of the largest number."""
    scale = np.abs(wanted).max()
    return float(np.abs(found - wanted).max() / max(scale, 1e-3) / EPS)


SINGLES: dict[str, Any] = {
    "gpt": (microgpt, gpt_params, lambda s: names(s, 1)[0]),
    "layers": (
        layer_major,
        lambda s: gpt_params(s, 2, gain=(8,), bias=(8,)),
        lambda s: names(s, 1)[0],
    ),
    "mlp": (mlp, mlp_params, lambda s: (normal(s, 12, 2), [(-1) ** k for k in range(12)])),
    "powers": (
        lambda p, x: sum((w * w + 1) ** -0.5 * v for w, v in zip(p, x, strict=True)) ** 3,
        lambda s: normal(s, 20),
        lambda s: (normal(s + 1, 20),),
    ),
}


@pytest.mark.parametrize("name", SINGLES)
def test_single_precision_is_as_good_as_eager_rounded(name):
    function, params, sample = SINGLES[name]
    fast = chainrule.compile(function, lift=True, on_fallback="raise", dtype="float32")
    tape = chainrule.compile(function, lift=False, on_fallback="raise")
    seen = 0
    for seed in range(5):
        p, arguments = params(seed), sample(seed)
        value, grads = fast.value_and_grad(p, *arguments)
        wanted = tape.value_and_grad(p, *arguments)
        number, slopes = rounded(tape, p, *arguments)
        exact = flat(wanted[1])
        allowed = 10 * max(1.0, away(slopes[: len(exact)], exact))
        assert away(flat(grads), exact) <= allowed
        assert away(value, wanted[0]) <= 10 * max(1.0, away(number, wanted[0]))
        seen += View(fast).ran_machine_code
    assert seen == 5


@pytest.mark.parametrize(
    ("program", "optimiser", "batch"),
    [
        *(("ragged", name, batch) for name in ("momentum", "adam") for batch in (1, 4, 24)),
        ("gpt", "adam", 16),
        ("gpt", "momentum", 1),
        ("mlp", "adamw", 17),
    ],
)
def test_single_precision_trains_as_well(program, optimiser, batch, machine_steps):
    """Beside float32 arrays that Python moves along gradients rounded to float32."""
    function, params, samples = PROGRAMS[program]
    data, make, steps = samples(), OPTIMISERS[optimiser], 20
    single, double, singly = params(), params(), params()
    singly = {name: a.astype(np.float32) for name, a in singly.items()}
    fast = chainrule.compile(function, lift=True, on_fallback="raise", dtype="float32")
    losses = fast.train(single, data, make(single), steps, batch=batch)
    assert machine_steps[0] > steps // 2
    exact = by_hand(function, double, data, make(double), steps, batch)
    coarse = by_hand(function, singly, data, make(singly), steps, batch)
    allowed = 10 * max(4.0, away(coarse, exact))
    assert away(losses, exact) <= allowed
    parameters = away(flat(singly).astype(float), flat(double))
    assert away(flat(single), flat(double)) <= 10 * max(4.0, parameters)


def test_single_precision_of_batches():
    function, params, samples = PROGRAMS["ragged"]
    data, p = samples(), params()
    fast = chainrule.compile(function, lift=True, on_fallback="raise", dtype="float32")
    tape = chainrule.compile(function, lift=False, on_fallback="raise")
    for size in (2, 5, 16, 33):
        found = fast.batch_value_and_grad(p, data[:size])
        wanted = tape.batch_value_and_grad(p, data[:size])
        assert away(flat(found), flat(wanted)) < 200


def test_numbers_too_large_for_single_precision_are_the_tapes():
    fast = chainrule.compile(
        lambda p: sum(x * x for x in p), lift=True, on_fallback="raise", dtype="float32"
    )
    fast.value_and_grad(np.ones(6))
    value, grads = fast.value_and_grad(np.full(6, 1e30))
    assert value == pytest.approx(6e60)
    np.testing.assert_allclose(grads, 2e30)
    value, grads = fast.value_and_grad(np.full(6, 1e-30))
    assert value == pytest.approx(6e-60, abs=1e-37)


def test_guards_in_single_precision_take_a_branch_that_is_there():
    """Numbers that are equal once rounded: either branch, but a whole one."""

    def f(p):
        total = sum(x * x for x in p)
        return total * 2 if total > 1.0 else total + 10

    fast = chainrule.compile(f, lift=True, on_fallback="raise", dtype="float32")
    for x in (2.0, 0.1, 1.0, math.nextafter(1.0, 2), 1 + 1e-8, 1 - 1e-8, math.nextafter(1.0, 0)):
        value, grads = fast.value_and_grad(np.array([x, 0.0, 0.0]))
        branch = 2.0 if value < 10 else 1.0
        assert grads[0] == pytest.approx(2 * x * branch, rel=1e-6)


# --- the updates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 15, 16, 17, 33, 64, 100])
def test_every_parameter_moves_whatever_their_number(size):
    def f(p, x):
        return sum((w * x - 0.1 * i) ** 2 for i, w in enumerate(p["w"]))

    for name in ("decay", "adamw"):
        params = {"w": normal(1, size), "more": normal(2, 3)}
        trained(f, params, [(0.3,), (0.7,)], OPTIMISERS[name], 12, batch=1 + size % 3)
        trained(f, params, [(0.3,), (0.7,)], OPTIMISERS[name], 6, batch=8)


def test_training_is_the_same_every_time():
    """However many steps are taken at once, which depends on the clock."""
    function, params, samples = PROGRAMS["ragged"]
    data = samples()
    for dtype, kind in (("float64", np.float64), ("float32", np.float64), ("float32", np.float32)):
        results = []
        for every in (100, 7, 1):
            mine = {name: a.astype(kind) for name, a in params().items()}
            fast = chainrule.compile(function, lift=True, on_fallback="raise", dtype=dtype)
            optimiser = AdamW(mine, lr=0.01)

            def callback(losses, step):
                return False

            losses = fast.train(mine, data, optimiser, 60, 4, callback=callback, every=every)
            results.append(np.concatenate([losses, flat(mine)]))
        assert all(np.array_equal(results[0], other) for other in results[1:])


def test_no_warnings_while_training():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function, params, samples in PROGRAMS.values():
            mine = params()
            fast = chainrule.compile(function, lift=True)
            fast.train(mine, samples(), Adam(mine, lr=0.01), 10, batch=4)


def test_a_pair_stays_equal_after_training():
    """The machine code of single calls is not disturbed by that of batches."""
    function, _, samples = PROGRAMS["ragged"]
    data, pair = samples(), Pair(function)
    for seed in range(3):
        mine = ragged_params(seed)
        for sample in data[:4]:
            pair.same(mine, *sample)
        pair.lifted.train(mine, data, SGD(mine, lr=0.01), 20, batch=1 + 5 * seed)
        pair.lifted.batch_value_and_grad(mine, data[:9])
        for sample in data[:6]:
            pair.same(mine, *sample)


@pytest.mark.parametrize("optimiser", [lambda p: SGD(p, lr=0.1, momentum=0.5), Adam])
def test_the_optimiser_may_have_the_parameters_in_another_order(optimiser, machine_steps):
    def build():
        arrays = {"a": np.array([0.3, -0.2, 0.1]), "b": np.array([1.5]), "c": np.full((2, 2), 0.7)}
        return arrays, optimiser({name: arrays[name] for name in ("c", "a", "b")})

    def program(p, x):
        weights = [w for row in p["c"] for w in row]
        return vsum([tanh(w * x) + w * w for w in [*p["a"], *p["b"], *weights]]) * p["b"][0]

    first, second = build(), build()
    samples = [(0.5,), (-1.0,), (0.25,)]
    fast = chainrule.compile(program, lift=True, on_fallback="raise")
    losses = fast.train(first[0], samples, first[1], 7)
    wanted = by_hand(program, second[0], samples, second[1], 7, 1)
    assert machine_steps[0] == 7
    assert np.abs(losses - wanted).max() <= 1e-12
    assert np.abs(flat(first[0]) - flat(second[0])).max() <= 1e-12
    for name in first[1].moments:
        assert np.abs(getattr(first[1], name) - getattr(second[1], name)).max() <= 1e-12


@pytest.mark.parametrize("lift", [True, False])
def test_a_callback_leaves_samples_what_they_are(lift):
    def program(p, x, a, b):
        again = 0 if a is b else vsum(p["w"])
        return vsum([tanh(w) * y for w, y in zip(p["w"], x, strict=True)]) + p["w"][a[0]] + again

    losses = []
    for callback in (None, lambda losses, step: None):
        params = {"w": np.array([0.5, 0.7, -0.3])}
        tokens = [1, 2]
        samples = [(params["w"], tokens, tokens), (params["w"][:], tokens, tokens)]
        fast = chainrule.compile(program, lift=lift, on_fallback="eager")
        losses.append(fast.train(params, samples, SGD(params, lr=0.1), 10, callback=callback))
    assert losses[0].tolist() == losses[1].tolist()


def test_branches_in_batches_of_few_integers():
    def program(p, tokens):
        scores = []
        for t in tokens:
            w = p["w"][t]
            scores.append(tanh(w) if w > 0.0 else w * w)
        top = scores[0]
        for s in scores[1:]:
            top = top if top > s else s
        return top + vsum(scores) / len(tokens)

    for seed in range(40):
        rng = np.random.default_rng(seed)
        params = {"w": rng.normal(size=4)}
        samples = [([0, 3],), ([0, 1],), ([0],), ([3],)]
        fast = chainrule.compile(program, lift=True, on_fallback="eager")
        tape = chainrule.compile(program, lift=False, on_fallback="eager")
        for _ in range(2):
            wanted = [tape.value_and_grad(params, *sample) for sample in samples]
            value, grads = fast.batch_value_and_grad(params, samples)
            assert abs(value - np.mean([v for v, _ in wanted])) <= 1e-12
            mean = np.mean([g["w"] for _, g in wanted], axis=0)
            assert np.abs(grads["w"] - mean).max() <= 1e-12
            params = {"w": rng.normal(size=4)}


def test_an_interrupted_batch_leaves_no_trace(monkeypatch):
    params, samples = gpt_params(3), names(3, 6)
    fast = chainrule.compile(microgpt, on_fallback="raise")
    for _ in range(2):  # the longest may come late
        before = [fast.value_and_grad(params, *sample) for sample in samples]

    def interrupted(run):
        def stopped(*given, **named):
            run(*given, **named)
            raise KeyboardInterrupt

        return stopped

    for size in (2, 3, 6):
        View(fast).forget_fast_path()  # C would add up cached calls
        with monkeypatch.context() as patched:
            patched.setattr(Kernel, "sweep", interrupted(Kernel.sweep))
            patched.setattr(step_code, "take", interrupted(step_code.take))
            with pytest.raises(KeyboardInterrupt):
                fast.batch_value_and_grad(params, samples[:size])
        after = [fast.value_and_grad(params, *sample) for sample in samples]
        assert [v for v, _ in after] == [v for v, _ in before]
        assert [flat(g).tobytes() for _, g in after] == [flat(g).tobytes() for _, g in before]
