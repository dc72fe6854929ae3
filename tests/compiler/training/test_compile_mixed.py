"""Samples of different lengths in the lanes of one vector, beside one sample at a time."""

import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
from programs import count
from test_compile_batches import by_hand, copied, names
from test_compile_lifted import VOCAB, flat, gpt_params, microgpt, normal

import chainrule
from chainrule import dot, exp, log, tanh, vsum
from chainrule.compiler.mapping import costs
from chainrule.compiler.training import batches, lanes
from chainrule.compiler.training.mixed import Mixed
from chainrule.optim import SGD, Adam

pytest.importorskip("llvmlite")


@pytest.fixture
def arranged(monkeypatch):
    """Every arrangement of samples that is made, as (lanes, whether lengths are mixed).

    Lanes count as cheap, so that programs whose own loops fill vectors go into them too.
    """
    counted = costs._counted

    def cheap(machine, fit):
        alone, together = counted(machine, fit)
        return alone, together / 12

    monkeypatch.setattr(costs, "_counted", cheap)
    monkeypatch.setattr(batches, "ALIKE", 0)  # few samples of each length go together too
    monkeypatch.setattr(batches, "FEWEST", 2)
    monkeypatch.setattr(costs, "PREPARE", 0.0)
    monkeypatch.setattr(batches, "PACKING", 0.0)
    seen: list[tuple[int, bool]] = []
    original = lanes.Arrangement.__init__

    def watching(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        seen.append((self.lanes, self._mixed is not None))

    monkeypatch.setattr(lanes.Arrangement, "__init__", watching)
    return seen


def of_lengths(lengths: list[int], seed: int = 0) -> list[Any]:
    chance = random.Random(seed)
    return [([chance.randrange(VOCAB) for _ in range(n)],) for n in lengths]


def long_params(seed: int) -> Any:
    """A GPT for sixteen positions."""
    made = gpt_params(seed)
    return {**made, "wpe": normal(seed + 100, 16, made["wpe"].shape[1])}


def mean(function: Any, params: Any, samples: list[Any]) -> tuple[float, np.ndarray]:
    tape = chainrule.compile(function, lift=False, on_fallback="raise")
    found = [tape.value_and_grad(params, *sample) for sample in samples]
    grads = np.mean([flat(grads) for _, grads in found], axis=0)
    return float(np.mean([value for value, _ in found])), grads


def close(found: Any, wanted: Any, limit: float = 1e-12) -> None:
    value, grads = found
    scale = max(1.0, abs(wanted[0]), float(np.abs(wanted[1]).max()))
    assert abs(value - wanted[0]) <= limit * scale
    assert np.abs(flat(grads) - wanted[1]).max() <= limit * scale


# --- programs whose lengths differ in other ways --------------------------------------------------


def embedding(p, tokens):
    """A number of its own at each length, in the terms of a sum."""
    scores = [vsum([tanh(w) * 0.3 for w in p["table"][t]]) for t in tokens]
    weight = 1 / len(tokens)
    return vsum([tanh(s) * weight for s in scores])


def many_constants(p, tokens):
    """Several numbers that follow the length."""
    n = len(tokens)
    scores = [vsum([tanh(w + 0.1 * n) for w in p["table"][t]]) for t in tokens]
    return vsum(scores) / n + vsum([w * w for row in p["table"] for w in row]) * (0.01 * n)


def products(p, tokens):
    """Fewer products of Values in a sum."""
    scores = [vsum([tanh(w) for w in p["table"][t]]) for t in tokens]
    weights = [vsum([exp(w) for w in p["table"][t]]) for t in tokens]
    return vsum([a * b for a, b in zip(scores, weights, strict=True)])


def largest(p, tokens):
    """A maximum over all positions."""
    scores = [vsum([tanh(w) for w in p["table"][t]]) * 0.1 for t in tokens]
    top = scores[0]
    for s in scores[1:]:
        top = top if top > s else s
    return vsum(scores) + top


def fragile(p, tokens, xs):
    """Numbers of samples, of which none but those at hand have a logarithm."""
    scores = [vsum([tanh(w) * x for w in p["table"][t]]) for t, x in zip(tokens, xs, strict=True)]
    return vsum([log(x) * s for x, s in zip(xs, scores, strict=True)]) / len(tokens)


def random_source(chance: random.Random) -> str:
    """A function of token lists: embeddings, some layers, a loss for each position, their sum."""
    lines = ["def f(p, tokens):", "    n = len(tokens)", "    hs = [p['E'][t] for t in tokens]"]
    if chance.random() < 0.5:
        lines.append("    hs = [[a + b for a, b in zip(h, q)] for h, q in zip(hs, p['P'])]")
    layers = [
        "    hs = [[tanh(dot(row, h)) for row in p['W']] for h in hs]",
        "    hs = [[x * (vsum([y * y for y in h]) / 5 + 0.1) ** -0.5 for x in h] for h in hs]",
        "    hs = [hs[0]] + [[a + b / 2 for a, b in zip(h, g)] for g, h in zip(hs, hs[1:])]",
        "    mean = [vsum([h[i] for h in hs]) / n for i in range(5)]\n"
        "    hs = [[a - b for a, b in zip(h, mean)] for h in hs]",
        "    new = []\n"
        "    for k in range(n):\n"
        "        s = [exp(dot(hs[k], h) * 0.1) for h in hs[: k + 1]]\n"
        "        z = vsum(s)\n"
        "        new.append([vsum([a * h[i] for a, h in zip(s, hs)]) / z for i in range(5)])\n"
        "    hs = new",
    ]
    lines += chance.choices(layers, k=chance.randrange(3))
    lines.append("    ls = [log(vsum([exp(x) for x in h])) - h[t] for h, t in zip(hs, tokens)]")
    results = [
        *(
            "vsum(ls) / n",
            "sum(ls) * (1 / n)",
            "vsum([x * (1 / n) for x in ls])",
            "max(ls) + vsum(ls)",
        ),
        *("vsum([x * x for x in ls]) / n", "vsum([x * w for x, w in zip(ls, p['w'])])"),
        *("ls[-1] + vsum(ls) * 0.1", "vsum(ls) / n ** 0.5 + vsum([x * x for x in p['w']])"),
    ]
    return "\n".join([*lines, f"    return {chance.choice(results)}"])


def table_params(seed: int) -> Any:
    return {"table": normal(seed, VOCAB, 12)}


# --- tests ----------------------------------------------------------------------------------------


def test_few_samples_of_many_lengths_are_computed_one_by_one(arranged, monkeypatch):
    monkeypatch.setattr(batches, "ALIKE", 2)
    params, samples = long_params(1), of_lengths([3, 4, 5, 6, 6], 1)
    fast = chainrule.compile(microgpt, on_fallback="raise")
    close(fast.batch_value_and_grad(params, samples), mean(microgpt, params, samples), 1e-12)
    assert not arranged
    samples = of_lengths([3, 3, 6, 6], 1)
    close(fast.batch_value_and_grad(params, samples), mean(microgpt, params, samples), 1e-12)
    assert arranged


def test_lengths_of_many_small_batches_are_looked_up_once(arranged, monkeypatch):
    monkeypatch.setattr(batches, "ALIKE", 2)
    params, samples = long_params(1), of_lengths([3, 4, 5, 6, 6], 1)
    fast = chainrule.compile(microgpt, on_fallback="raise")
    for _ in range(3):
        close(fast.batch_value_and_grad(params, samples), mean(microgpt, params, samples), 1e-12)
    assert len(arranged) == 1  # the second batch has come often enough, and serves the third
    longer = of_lengths([3, 5, 8, 7, 6, 4], 2)
    for _ in range(4):
        close(fast.batch_value_and_grad(params, longer), mean(microgpt, params, longer), 1e-12)
    assert len(arranged) == 2


def test_batches_keep_neither_samples_nor_parameters(arranged):
    params, samples = long_params(1), of_lengths([3, 3, 6, 6], 1)
    fast = chainrule.compile(microgpt, on_fallback="raise")
    fast.batch_value_and_grad(params, samples)
    kept = weakref.ref(params["wte"])
    (means,) = fast.dispatch.prepared.values()
    assert means.packed.params is None
    assert not means.packed.samples
    del params
    fast.dispatch.fast_path = None
    gc.collect()
    assert kept() is None


def test_what_batches_keep_is_forgotten_when_a_global_changes(arranged):
    state = {"scale": 0.0}

    def scaled(p, tokens):
        return vsum([tanh(x * state["scale"]) for t in tokens for x in p["table"][t]])

    params, samples = table_params(1), of_lengths([3, 3, 5, 5, 4, 4], 1)
    fast = chainrule.compile(scaled, on_fallback="raise", lift=True)
    for scale in (1.5, 0.5, -2.0, 1.5):
        state["scale"] = scale
        for _ in range(3):
            close(fast.batch_value_and_grad(params, samples), mean(scaled, params, samples))
    assert arranged


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("batch", [4, 7, 8, 15, 16, 17, 33, 64])
def test_lengths_up_to_sixteen_in_one_batch(batch, dtype, arranged):
    chance = random.Random(batch)
    lengths = [2 + k % 15 for k in range(batch)]
    chance.shuffle(lengths)
    params, samples = long_params(batch), of_lengths(lengths, batch)
    fast = chainrule.compile(microgpt, on_fallback="raise", dtype=dtype)
    limit = 1e-12 if dtype == "float64" else 2e-6
    close(fast.batch_value_and_grad(params, samples), mean(microgpt, params, samples), limit)
    assert arranged
    if batch in (16, 64):
        assert any(mixed for _, mixed in arranged)


@pytest.mark.parametrize("program", [embedding, many_constants, products, largest])
def test_what_differs_between_lengths(program, arranged):
    params = table_params(1)
    samples = of_lengths([3, 9, 5, 5, 4, 9, 8, 7, 6, 3, 9, 4, 5, 6, 7, 8], 1)
    fast = chainrule.compile(program, on_fallback="raise", lift=True)
    wanted = mean(program, params, samples)
    for _ in range(3):
        close(fast.batch_value_and_grad(params, samples), wanted)
    assert any(mixed for _, mixed in arranged) == (program in (embedding, many_constants))


def test_lengths_that_come_later_need_no_other_code(arranged):
    params, fast = table_params(2), chainrule.compile(many_constants, on_fallback="raise")
    first, later = of_lengths([12, 4, 7, 9] * 4, 2), of_lengths([12, 5, 8, 10] * 4, 3)
    close(fast.batch_value_and_grad(params, first), mean(many_constants, params, first))
    made: list[Any] = []
    original = Mixed.__init__
    Mixed.__init__ = lambda *a: (made.append(a), original(*a))[1]  # type: ignore[method-assign]
    try:
        close(fast.batch_value_and_grad(params, later), mean(many_constants, params, later))
    finally:
        Mixed.__init__ = original  # type: ignore[method-assign]
    assert [mixed for _, mixed in arranged] == [True, True]
    assert not made


def test_numbers_beyond_the_end_of_a_sample_do_no_harm(arranged):
    chance, samples = random.Random(4), []
    for n in [6, 2, 4, 3, 5, 6, 2, 4] * 2:
        xs = [0.5 + chance.random() for _ in range(n)]
        samples.append(([chance.randrange(VOCAB) for _ in range(n)], np.array(xs)))
    params = table_params(4)
    fast = chainrule.compile(fragile, on_fallback="raise", lift=True)
    close(fast.batch_value_and_grad(params, samples), mean(fragile, params, samples))


def test_a_lane_that_is_undefined_is_reported_whatever_its_length():
    def program(p, tokens):
        scores = [vsum([log(w) for w in p["table"][t]]) for t in tokens]
        return vsum(scores) / len(tokens)

    params = {"table": np.abs(normal(5, VOCAB, 12)) + 0.1}
    params["table"][VOCAB - 1] = -1.0
    samples = of_lengths([9, 3, 5, 8] * 4, 5)
    samples = [([t % (VOCAB - 1) for t in tokens],) for (tokens,) in samples]
    fast = chainrule.compile(program, on_fallback="raise", lift=True)
    close(fast.batch_value_and_grad(params, samples), mean(program, params, samples))
    samples[5][0][-1] = VOCAB - 1
    with pytest.raises(ValueError, match="log"):
        fast.batch_value_and_grad(params, samples)
    samples[5][0][-1] = 0
    close(fast.batch_value_and_grad(params, samples), mean(program, params, samples))


@pytest.mark.parametrize("seed", range(count(ci=10, soak=300)))
def test_random_programs(seed):
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    source = random_source(chance)
    env: dict[str, Any] = {"tanh": tanh, "exp": exp, "log": log, "vsum": vsum, "dot": dot}
    exec(source, env)
    shapes = {"E": (5, 5), "P": (12, 5), "W": (5, 5), "w": (12,)}
    params = {name: rng.normal(size=shape) * 0.7 for name, shape in shapes.items()}
    fast = chainrule.compile(env["f"], lift=True, on_fallback="raise")
    for _ in range(3):
        most, size = chance.choice([4, 8, 12]), chance.choice([4, 8, 16, 20])
        lengths = [chance.randrange(1, most + 1) for _ in range(size)]
        samples = [([chance.randrange(5) for _ in range(n)],) for n in lengths]
        try:
            close(
                fast.batch_value_and_grad(params, samples), mean(env["f"], params, samples), 1e-11
            )
        except AssertionError:
            print(source, lengths)
            raise


@pytest.mark.parametrize("optimiser", [SGD, Adam])
def test_training_on_mixed_lengths_is_the_loop_in_python(optimiser, arranged):
    samples = names(6, 40, longest=10)
    first, second = long_params(6), long_params(6)
    assert [a.tobytes() for a in first.values()] == [a.tobytes() for a in second.values()]
    fast = chainrule.compile(microgpt, on_fallback="raise")
    losses = fast.train(first, samples, optimiser(first, lr=0.01), steps=30, batch=8)
    wanted = by_hand(microgpt, second, samples, optimiser(second, lr=0.01), 30, 8)
    assert any(mixed for _, mixed in arranged)
    assert np.abs(losses - wanted).max() <= 1e-10
    assert np.abs(flat(first) - flat(second)).max() <= 1e-9


def test_the_result_does_not_follow_the_order_of_samples_or_what_ran_before():
    params, fast = long_params(7), chainrule.compile(microgpt, on_fallback="raise")
    samples = names(7, 16, longest=9)
    before = fast.batch_value_and_grad(copied(params), samples)
    fast.batch_value_and_grad({k: 2 * v for k, v in params.items()}, names(8, 16, longest=9))
    again = fast.batch_value_and_grad(copied(params), samples)
    assert before[0] == again[0]
    assert flat(before[1]).tobytes() == flat(again[1]).tobytes()
    turned = fast.batch_value_and_grad(params, samples[::-1])
    close(turned, (before[0], flat(before[1])))


def test_kinds_as_long_as_each_other_go_in_the_same_order_whenever_they_are_compiled():
    """Five or four different tokens of five: the same lengths, and other constants."""

    def loss(p, tokens):
        return (sum(p["e"][t] for t in set(tokens)) * len(tokens) - p["e"][0]) ** 2

    samples = [[5], [8, 2, 1, 7], [3, 5], [6, 8, 4], [5, 4, 8, 4, 2], [1], [8, 5, 7, 0], [3]]
    found = set()
    for _ in range(16):
        params = {"e": normal(5, 10)}
        fast = chainrule.compile(loss, lift=True)
        losses = fast.train(params, [(x,) for x in samples], Adam(params, lr=0.01), 6, 50)
        found.add((losses.tobytes(), params["e"].tobytes()))
    assert len(found) == 1
