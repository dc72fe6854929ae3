"""The lifted path beside the tape: the same numbers, to rounding, from array code."""

import gc
import itertools
import math
import random
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compile_view import View
from structured_programs import HEADER, Writer

import chainrule
from chainrule import (
    Value,
    atan2,
    dot,
    exp,
    gelu,
    linear,
    log,
    maximum,
    relu,
    sin,
    sqrt,
    tanh,
    vsum,
    where,
)
from chainrule.compiler.runtime import fast_path, structures
from chainrule.core import ops

pytest.importorskip("llvmlite")

LIMIT = 1e-12

# --- side by side --------------------------------------------------------------------------------


def flat(nest: Any) -> Any:
    """The numbers of a nest in one row."""
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, (list, tuple)):
        return np.concatenate([flat(x) for x in nest]) if nest else np.zeros(0)
    return np.ravel(np.asarray(nest, float))


def outcome(f: Any, *arguments: Any) -> Any:
    try:
        return f.value_and_grad(*arguments)
    except Exception as error:
        return type(error).__name__, str(error)


class Pair:
    """One function compiled with and without lifting."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.lifted = chainrule.compile(function, on_fallback="eager", lift=True)
        self.tape = chainrule.compile(function, on_fallback="eager", lift=False)
        self.worst = 0.0

    @property
    def variants(self) -> list[Any]:
        return View(self.lifted).variants

    @property
    def ran_lifted(self) -> bool:
        """Whether the last call's variant ran as array code."""
        return View(self.lifted).ran_machine_code

    def same(self, *arguments: Any, lifted: bool | None = None) -> Any:
        """Call both; equal to rounding, or the same error."""
        found, wanted = outcome(self.lifted, *arguments), outcome(self.tape, *arguments)
        if isinstance(wanted[1], str):
            assert found == wanted
            return wanted
        assert not isinstance(found[1], str), found
        x, y = flat(found[0]), flat(wanted[0])
        a, b = flat(found[1]), flat(wanted[1])
        assert np.array_equal(np.isfinite(a), np.isfinite(b)), (a, b)
        error = max(distance(np.append(a, x), np.append(b, y)), distance(a, b))
        self.worst = max(self.worst, error)
        assert error <= LIMIT, f"{error} away: {found} is not {wanted}\n{self.lifted.report()}"
        if lifted is not None:
            assert self.ran_lifted is lifted, self.lifted.report()
        return wanted


def distance(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest number."""
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    scale = np.abs(wanted[finite]).max(initial=1e-3)  # below, it is what terms near 1 leave over
    return float(np.abs(found[finite] - wanted[finite]).max(initial=0.0) / scale)


def normal(seed: int, *shape: int, scale: float = 1.0) -> Any:
    return np.random.default_rng(seed).normal(size=shape) * scale


# --- models --------------------------------------------------------------------------------------


def softmax(xs):
    top = max(x.data for x in xs)
    es = [exp(x - top) for x in xs]
    total = sum(es)
    return [e / total for e in es]


def matvec(x, w):
    return [sum(wi * xi for wi, xi in zip(row, x, strict=True)) for row in w]


def rmsnorm(x):
    scale = (sum(xi * xi for xi in x) / len(x) + 1e-5) ** -0.5
    return [xi * scale for xi in x]


VOCAB, WIDTH, HEADS, BLOCK = 7, 8, 2, 6


def gpt_params(seed: int, layers: int = 1, **more: tuple[int, ...]) -> Any:
    shapes: dict[str, tuple[int, ...]] = {"wte": (VOCAB, WIDTH), "wpe": (BLOCK, WIDTH)}
    shapes["head"] = (VOCAB, WIDTH)
    for i in range(layers):
        for name in ("wq", "wk", "wv", "wo"):
            shapes[f"{name}{i}"] = (WIDTH, WIDTH)
        shapes[f"up{i}"], shapes[f"down{i}"] = (2 * WIDTH, WIDTH), (WIDTH, 2 * WIDTH)
    shapes |= more
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) * 0.3 for name, shape in shapes.items()}


def microgpt(p, tokens):
    """One position after the other, keys and values kept."""
    keys, values, losses = [], [], []
    n = len(tokens) - 1
    for pos in range(n):
        x = [t + q for t, q in zip(p["wte"][tokens[pos]], p["wpe"][pos], strict=True)]
        x = rmsnorm(x)
        kept = x
        x = rmsnorm(x)
        q, k, v = matvec(x, p["wq0"]), matvec(x, p["wk0"]), matvec(x, p["wv0"])
        keys.append(k)
        values.append(v)
        out = []
        size = WIDTH // HEADS
        for h in range(HEADS):
            at = slice(h * size, (h + 1) * size)
            qh, kh, vh = q[at], [k[at] for k in keys], [v[at] for v in values]
            logits = [
                sum(qh[j] * kh[t][j] for j in range(size)) / size**0.5 for t in range(len(kh))
            ]
            weights = softmax(logits)
            out += [sum(weights[t] * vh[t][j] for t in range(len(vh))) for j in range(size)]
        x = [a + b for a, b in zip(matvec(out, p["wo0"]), kept, strict=True)]
        kept = x
        x = matvec(rmsnorm(x), p["up0"])
        x = [relu(a) for a in x]
        x = [a + b for a, b in zip(matvec(x, p["down0"]), kept, strict=True)]
        probs = softmax(matvec(x, p["head"]))
        losses.append(-log(probs[tokens[pos + 1]]))
    return (1 / n) * sum(losses)


def layer_major(p, tokens):
    """Layer by layer; LayerNorm with biases, GELU, logsumexp, tied embeddings."""
    inputs, targets = tokens[:-1], tokens[1:]
    n = len(inputs)
    xs = [
        [a + b for a, b in zip(p["wte"][t], p["wpe"][i], strict=True)] for i, t in enumerate(inputs)
    ]

    def norm(x, gain, bias):
        mean = sum(x) / len(x)
        off = [xi - mean for xi in x]
        scale = 1.0 / sqrt(sum(o * o for o in off) / len(x) + 1e-5)
        return [o * scale * g + b for o, g, b in zip(off, gain, bias, strict=True)]

    for layer in range(2):
        normed = [norm(x, p["gain"], p["bias"]) for x in xs]
        q, k, v = ([matvec(x, p[f"{name}{layer}"]) for x in normed] for name in ("wq", "wk", "wv"))
        mixed = []
        for t in range(n):
            scores = [
                sum(a * b for a, b in zip(q[t], k[s], strict=True)) * 0.35 for s in range(t + 1)
            ]
            weights = softmax(scores)
            mixed.append([sum(weights[s] * v[s][j] for s in range(t + 1)) for j in range(WIDTH)])
        xs = [
            [a + b for a, b in zip(x, matvec(m, p[f"wo{layer}"]), strict=True)]
            for x, m in zip(xs, mixed, strict=True)
        ]
        hidden = [
            [gelu(a) for a in matvec(norm(x, p["gain"], p["bias"]), p[f"up{layer}"])] for x in xs
        ]
        xs = [
            [a + b for a, b in zip(x, matvec(h, p[f"down{layer}"]), strict=True)]
            for x, h in zip(xs, hidden, strict=True)
        ]
    total = 0.0
    for x, target in zip(xs, targets, strict=True):
        logits = matvec(x, p["wte"])  # tied
        top = max(v.data for v in logits)
        total = total + log(sum(exp(v - top) for v in logits)) + top - logits[target]
    return total / n


def with_helpers(p, tokens):
    """dot, vsum and linear; manual accumulation loops."""
    n = len(tokens) - 1
    loss = 0.0
    state = [
        [a + b for a, b in zip(p["wte"][tokens[i]], p["wpe"][i], strict=True)] for i in range(n)
    ]
    ks = [linear(x, p["wk0"]) for x in state]
    vs = [linear(x, p["wv0"]) for x in state]
    for i in range(n):
        q = linear(state[i], p["wq0"])
        weights = softmax([dot(q, ks[j]) * 0.3 for j in range(i + 1)])
        out = []
        for c in range(WIDTH):
            acc = 0.0
            for j in range(i + 1):
                acc += weights[j] * vs[j][c]
            out.append(acc)
        hidden = [tanh(h) for h in linear(out, p["up0"])]
        logits = linear(linear(hidden, p["down0"]), p["head"])
        es = [exp(v) for v in logits]
        loss = loss - log(es[tokens[i + 1]] / vsum(es))
    return loss / n


def with_object_arrays(p, tokens):
    """numpy object arrays of Values instead of lists."""
    wte, wpe = np.array(p["wte"], object), np.array(p["wpe"], object)
    wq, wk, head = (np.array(p[name], object) for name in ("wq0", "wk0", "head"))
    n = len(tokens) - 1
    x = np.array([wte[tokens[i]] + wpe[i] for i in range(n)], object)
    scores = (x @ wq.T) @ (x @ wk.T).T
    loss = 0.0
    for i in range(n):
        weights = np.array(softmax(list(scores[i, : i + 1])), object)
        logits = head @ (weights @ x[: i + 1])
        loss = loss - log(softmax(list(logits))[tokens[i + 1]])
    return loss / n


LAYERED = {"gain": (WIDTH,), "bias": (WIDTH,)}
GPTS = [
    (microgpt, lambda seed: gpt_params(seed)),
    (layer_major, lambda seed: gpt_params(seed, 2, **LAYERED)),
    (with_helpers, lambda seed: gpt_params(seed)),
]


@pytest.mark.parametrize(("model", "params"), GPTS, ids=lambda x: x.__name__.strip("<>"))
def test_gpts_lift(model, params):
    pair, rng = Pair(model), random.Random(1)
    for seed, length in enumerate((5, 3, 5, 3, 6)):
        pair.same(params(seed), [rng.randrange(VOCAB) for _ in range(length + 1)])
    for token in range(VOCAB):  # every token in every place has been seen: lifted, whatever comes
        pair.same(params(token), [token] * 6)
    for seed in range(6):
        pair.same(params(seed), [rng.randrange(VOCAB) for _ in range(6)], lifted=True)
    assert "not lifted" not in pair.lifted.report()


def test_a_gpt_of_object_arrays_agrees():
    pair, rng = Pair(with_object_arrays), random.Random(1)
    tokens = [rng.randrange(VOCAB) for _ in range(5)]
    for seed in range(3):
        pair.same(gpt_params(seed), tokens, lifted=True)
    pair.same(gpt_params(9), tokens[::-1])


def test_a_gpt_of_values_backpropagates_through_one_node():
    numbers = gpt_params(3)
    made: dict[str, Any] = {
        name: [[Value(x) for x in row] for row in table.tolist()] for name, table in numbers.items()
    }
    fast = chainrule.compile(lambda tokens: microgpt(made, tokens), lift=True, on_fallback="raise")
    leaves = [v for table in made.values() for row in table for v in row]
    for tokens in ([1, 2, 3, 4], [4, 0, 6, 1], [5, 5, 5, 5]):
        grads = []
        for run in (fast, lambda t: microgpt(made, t)):
            loss = run(tokens)
            loss.backward()
            grads.append([loss.data, *(v.grad for v in leaves)])
            for v in leaves:
                v.grad = 0.0
        assert distance(*map(np.array, grads)) <= LIMIT


# --- other programs ------------------------------------------------------------------------------


def mlp(p, xs, ys):
    """micrograd's: hinge loss and a regulariser over a set of points."""
    scores = []
    for x in xs:
        h = [
            relu(sum(w * v for w, v in zip(row, x, strict=True)) + b)
            for row, b in zip(p["w1"], p["b1"], strict=True)
        ]
        h = [
            relu(sum(w * v for w, v in zip(row, h, strict=True)) + b)
            for row, b in zip(p["w2"], p["b2"], strict=True)
        ]
        scores.append(sum(w * v for w, v in zip(p["w3"], h, strict=True)) + p["b3"][0])
    losses = [relu(1 + -y * s) for y, s in zip(ys, scores, strict=True)]
    penalty = 1e-4 * sum(w * w for row in [*p["w1"], *p["w2"]] for w in row)
    return sum(losses) * (1.0 / len(losses)) + penalty


def mlp_params(seed: int) -> Any:
    shapes = {"w1": (5, 2), "b1": (5,), "w2": (5, 5), "b2": (5,), "w3": (5,), "b3": (1,)}
    return {name: normal(seed + k, *shape) for k, (name, shape) in enumerate(shapes.items())}


def mixture(p, xs):
    """The likelihood of points under Gaussians of diagonal covariance."""
    means, logs, weights = p
    parts = softmax(weights)
    total = 0.0
    for x in xs:
        each = []
        for mean, scale, part in zip(means, logs, parts, strict=True):
            z = sum(((xi - m) * exp(-s)) ** 2 for xi, m, s in zip(x, mean, scale, strict=True))
            each.append(log(part) - 0.5 * z - sum(scale))
        top = max(e.data for e in each)
        total = total + log(sum(exp(e - top) for e in each)) + top
    return -total / len(xs)


def option(p, paths):
    """Monte Carlo: an Asian call under Black and Scholes."""
    spot, rate, vol, strike = p
    dt = 0.25
    payoffs = []
    for path in paths:
        s, mean = spot, 0.0
        for z in path:
            s = s * exp((rate - 0.5 * vol * vol) * dt + vol * dt**0.5 * z)
            mean = mean + s
        payoffs.append(maximum(mean / len(path) - strike, 0.0))
    return exp(-rate) * sum(payoffs) / len(payoffs)


def convolution(p, image):
    kernels, head = p
    size, k = len(image), 3
    total = 0.0
    for c, kernel in enumerate(kernels):
        plane = []
        for i in range(size - k + 1):
            for j in range(size - k + 1):
                plane.append(
                    tanh(
                        sum(kernel[a][b] * image[i + a][j + b] for a in range(k) for b in range(k))
                    )
                )
        total = total + sum(w * v for w, v in zip(head[c], plane, strict=True))
    return total**2


def rosenbrock(p):
    return sum(100.0 * (p[i + 1] - p[i] ** 2) ** 2 + (1 - p[i]) ** 2 for i in range(len(p) - 1))


def rnn(p, xs):
    w, u, b = p
    h = [0.0] * len(b)
    for x in xs:
        h = [
            tanh(sum(wij * hj for wij, hj in zip(row, h, strict=True)) + u[i] * x + b[i])
            for i, row in enumerate(w)
        ]
    return sum(v * v for v in h)


def lorenz(p, steps=40):
    x, y, z, s, r, b = p
    for _ in range(steps):
        x, y, z = (
            x + 0.01 * s * (y - x),
            y + 0.01 * (x * (r - z) - y),
            z + 0.01 * (x * y - b * z),
        )
    return x * x + y + z


OTHERS = {
    "mlp": (
        mlp,
        lambda s: (
            mlp_params(s),
            normal(s, 20, 2),
            [random.Random(s + i).choice((-1, 1)) for i in range(20)],
        ),
    ),
    "mixture": (
        mixture,
        lambda s: (
            (normal(s, 3, 2), normal(s + 1, 3, 2, scale=0.3), normal(s + 2, 3)),
            normal(s + 3, 25, 2),
        ),
    ),
    "option": (option, lambda s: (np.array([1.0, 0.05, 0.2 + 0.01 * s, 0.98]), normal(s, 30, 5))),
    "convolution": (
        convolution,
        lambda s: ((normal(s, 2, 3, 3), normal(s + 1, 2, 36)), normal(s + 2, 8, 8)),
    ),
    "rosenbrock": (rosenbrock, lambda s: (normal(s, 50),)),
    "rnn": (
        rnn,
        lambda s: (
            (normal(s, 6, 6, scale=0.4), normal(s + 1, 6), normal(s + 2, 6)),
            normal(s + 3, 12),
        ),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_programs_lift(name):
    function, arguments = OTHERS[name]
    pair = Pair(function)
    for seed in range(5):
        pair.same(*arguments(seed), lifted=True)
    assert f"{function.__name__}: lifted" in pair.lifted.report()


@pytest.mark.parametrize("size", [2, 3, 17, 64])
def test_other_lengths(size):
    pair = Pair(rosenbrock)
    pair.same(normal(1, size), lifted=True)
    pair.same(normal(2, size + 1), lifted=True)
    pair.same(normal(3, size), lifted=True)


def test_a_long_chain_agrees():
    pair = Pair(lorenz)
    for seed in range(3):
        pair.same(np.array([1.0, 1.0, 1.0, 10.0, 28.0, 8 / 3]) + normal(seed, 6, scale=0.1))


def test_an_irregular_graph_is_left_to_the_tape():
    rng = random.Random(5)
    plan = [
        (rng.randrange(1, 9 + min(k, 51)), rng.randrange(8 + k), rng.randrange(4))
        for k in range(2500)
    ]

    def f(p):
        made = list(p)
        for back, place, kind in plan:
            a, b = made[-back], made[place]
            if kind == 0:
                made.append(tanh(a * b))
            elif kind == 1:
                made.append(sin(a + b))
            else:
                made.append(a * 0.5 - b if kind == 2 else tanh(a * b + a))
        return sum(made[-20:])

    pair = Pair(f)
    for seed in range(2):
        pair.same(normal(seed, 8), lifted=False)
    assert "no structure" in pair.lifted.report()
    assert pair.variants[0].machine is None


# --- what eager does at the edges ----------------------------------------------------------------


def test_guards_choose_the_branch():
    def f(p):
        total = sum(x * x for x in p)
        if total > 4:
            return sqrt(total)
        return total * 0.25 + (p[0] if p[1] > 0 else p[2])

    pair = Pair(f)
    for seed in range(8):
        pair.same(normal(seed, 6, scale=0.4 + 0.2 * seed))
    pair.same(normal(3, 6), lifted=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda p: sum(log(x) for x in p),
        lambda p: sum(1 / x for x in p),
        lambda p: sum(sqrt(x) for x in p),
        lambda p: sum(x**-1.5 for x in p),
        lambda p: sum(exp(x * 100) for x in p),
        lambda p: sum(p[0] ** x for x in p),
        lambda p: sum(sqrt(x * x) for x in p),
        lambda p: sum(sqrt(x * x) * 0 + x for x in p),
        lambda p: sum(where(x > 0.5, sqrt(x * x), x) for x in p),
        lambda p: sum((x * x * x) ** 0.5 for x in p),
        lambda p: sum(tanh(x) for x in p),
        lambda p: max(x.data for x in p) * sum(p),
        lambda p: sum(maximum(x, 0.0) for x in p),
        lambda p: sum(x * y for x, y in itertools.pairwise(p)),
    ],
)
def test_undefined_and_infinite_numbers_are_eagers(function):
    good = np.linspace(0.5, 2, 9)
    pair = Pair(function)
    pair.same(good, lifted=True)
    for number in (0.0, -1.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 8.0):
        bad = good.copy()
        bad[4] = number
        pair.same(bad)
        pair.same(np.full(9, number))
        pair.same(good, lifted=True)
    other = Pair(function)  # and where the first call is the bad one
    other.same(np.full(9, math.nan))
    other.same(good)


def test_no_warnings_for_huge_gradients(recwarn):
    pair = Pair(lambda p: sum(x * y for x, y in zip(p[:4], p[4:], strict=True)))
    pair.same(np.ones(8))
    pair.same(np.array([1e200, 1e-200] * 4))
    assert not list(recwarn)


def test_overflow_in_a_sum_is_noticed():
    pair = Pair(lambda p: p[0] * p[1] + p[2] * p[3])
    pair.same(np.ones(4))
    assert pair.same(np.array([-1e308, 1, 1.5e308, 1.5]))[0] == "OverflowError"


@pytest.mark.parametrize(
    "function",
    [
        lambda p: sum(atan2(x, 0.0) + 2 * atan2(x, -0.0) for x in p),
        lambda p: sum(atan2(x, Value(-0.0)) for x in p),
        lambda p: sum(atan2(Value(0.0), maximum(x, -0.0)) for x in p),
    ],
)
def test_minus_zero_is_not_zero(function):
    pair = Pair(function)
    pair.same(np.linspace(0.5, 1, 6))
    pair.same(np.zeros(6))
    pair.same(np.zeros(6) - 0.0)


def test_extras_are_this_calls():
    def f(p):
        squares = [x * x for x in p]
        total = sum(squares)
        return total * p[0], {"total": total, "top": max(s.data for s in squares), "each": squares}

    pair = Pair(f)
    for seed in range(3):
        found, wanted = (
            pair.lifted.value_and_grad(normal(seed, 7)),
            pair.tape.value_and_grad(normal(seed, 7)),
        )
        assert distance(flat(found[0][0]), flat(wanted[0][0])) <= LIMIT
        assert distance(flat(found[0][1]), flat(wanted[0][1])) <= LIMIT
        assert distance(found[1], wanted[1]) <= LIMIT
    assert pair.ran_lifted


@pytest.mark.parametrize(
    "function",
    [
        lambda p: p[3],
        lambda p: p[3] * 1.0,
        lambda p: Value(2.0) * 3 + 0 * p[0],
        lambda p: sum(p),
        lambda p: sum(p) + sum(p),
        lambda p: sum(x * x for x in p) + sum(x * x for x in p),
        lambda p: vsum([p[0]] * 9) * p[0],
        lambda p: dot(p, p[::-1]) + dot(p, p),
        lambda p: sum(sum(p[: i + 1]) * p[i] for i in range(9)),
        lambda p: sum(p[i] * p[8 - i] + p[(2 * i) % 9] for i in range(9)),
        lambda p: max(p) * min(p) + p[0],
        lambda p: (p[0] * p[1] + p[2]) * (p[0] * p[1]),
        lambda p: sum(x.data * x for x in p),
        lambda p: sum((x - x.data) * x for x in p),
        lambda p: sum(p[i] for i in range(9) for _ in range(i)),
        lambda p: sum(sum(p[i] * p[j] for j in range(9) if j != i) ** 2 for i in range(9)),
        lambda p: sum(where(a > b, a, b * 2) for a in p for b in p),
    ],
)
def test_small_shapes(function):
    pair = Pair(function)
    for seed in range(3):
        pair.same(normal(seed, 9))


# --- integers learnt after lifting ---------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda p, i: sum(p[k] * p[k] for k in i) + p[i[0]],
        lambda p, i: sum([*p, *[exp(x) for x in p]][k] for k in i),  # another shape later
        lambda p, i: sum([x * x for x in p][k] for k in i) + sum(x * x for x in p),
        lambda p, i: (
            tanh(sum([x * y for x, y in zip(p, p[::-1], strict=True)]))
            + [x * 2 for x in p][i[0]] * [tanh(x) for x in p][i[1]] * p[i[2]]
        ),
        lambda p, i: sum(p[i[k]] if k < 2 else p[i[k]] * 2 for k in range(3)),
        lambda p, i: sum([x.data for x in p][k] * p[k] for k in i),
        lambda p, i: sum(row[i[0]] * row[i[1]] for row in [[x * c for x in p] for c in range(3)]),
        lambda p, i: [[x * y for x in p] for y in p][i[0]][i[1]] + p[i[2]],
        lambda p, i: sum([*[x * x for x in p], p[0], Value(2.0)][-k - 1] for k in i),
        lambda p, i: exp([sum(p[: k + 1]) for k in range(8)][i[0]]) + p[i[1]] - p[i[2]],
    ],
)
def test_integers_learnt_after_lifting(function):
    pair, rng = Pair(function), random.Random(7)
    pair.same(normal(0, 8), [0, 0, 0])
    for seed in range(25):
        top = rng.choice((2, 4, 8))
        pair.same(normal(seed, 8), [rng.randrange(top) for _ in range(3)])


def test_an_index_out_of_range_raises_as_eager():
    pair = Pair(lambda p, i: sum(p[k] * 2 for k in i))
    pair.same(normal(0, 5), [0, 1, 4])
    assert pair.same(normal(0, 5), [0, 5, 1])[0] == "IndexError"
    pair.same(normal(0, 5), [-1, -5, 1])
    pair.same(normal(0, 5), [4, 3, 1])


# --- rows added ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        'ops.libm(lambda x: 2.0 * x, lambda x: 2.0 * x), lambda y, x: 2.0',
        'lambda x: math.exp(x), lambda y, x: y',
        'lambda x: x * x, lambda y, x: float(x) * 2.0',
    ],
)  # fmt: skip
def test_a_row_without_machine_code_is_left_to_the_tape(row):
    """In a process of its own: what the linker does not find may take everything down."""
    program = f"""
        import math
        import numpy as np
        import chainrule
        from chainrule import Value; from chainrule.core import ops

        row = ops.row("added_without_code", "f(x)", {row})
        f = lambda p: sum(Value._apply_op(row, (x,), ()) * x for x in p)
        p = np.linspace(0.5, 1, 9)
        for lift in (True, False):
            fast = chainrule.compile(f, lift=lift, on_fallback="raise")
            print([fast.value_and_grad(p)[0] for _ in range(2)], "0 eager" in fast.report())
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first == second


def test_every_row_works_lifted():
    for name, op in ops.TABLE.items():
        parameters = {"pow": (1.7,), "clip": (0.2, 1.4), "where": (1.0,)}.get(name, op.defaults)

        def f(p, op=op, parameters=parameters):
            half = len(p) // 2
            made = []
            for x, y in zip(p[:half], p[half:], strict=True):
                operands = (x, y)[: op.arity]
                made.append(Value._apply_op(op, operands, parameters) * y)
            return sum(made)

        pair = Pair(f)
        for seed in range(2):
            p = np.random.default_rng(seed).uniform(0.1, 0.9, size=14) + (name == "acosh")
            pair.same(p, lifted=True)


# --- memory and threads --------------------------------------------------------------------------


def test_machine_code_goes_with_its_function():
    fast = chainrule.compile(rosenbrock, lift=True)
    fast.value_and_grad(normal(0, 12))
    lifted = View(fast).variant.machine
    gone = [weakref.ref(x) for x in (fast, lifted, lifted.code.library)]
    del fast, lifted
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_many_compilations_do_not_grow():
    def once(k: int) -> None:
        fast = chainrule.compile(lambda p: sum(tanh(x * k) for x in p), lift=True)
        fast.value_and_grad(normal(k, 20))

    for k in range(15):
        once(k)
    gc.collect()
    before = resident()
    for k in range(60):
        once(k)
    gc.collect()
    assert resident() - before < 6e6


def test_variants_dropped_release_their_code(monkeypatch):
    for module in (structures, fast_path):
        monkeypatch.setattr(module, "VARIANTS", 16)
    fast = chainrule.compile(
        lambda p, k: sum(x * float(f"{k}") for x in p), lift=True, on_fallback="eager"
    )
    kept = []
    for k in range(2, 30):
        fast.value_and_grad(normal(1, 5), k)
        kept.append(weakref.ref(View(fast).variant))
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= 16


def test_two_threads_call_one_function():
    fast = chainrule.compile(microgpt, lift=True, on_fallback="raise")
    alone = chainrule.compile(microgpt, on_fallback="raise")
    cases = [(gpt_params(s), [(s * 3 + i * i) % VOCAB for i in range(4 + s % 2)]) for s in range(6)]
    wanted = [alone.value_and_grad(*case) for case in cases]
    failures: list[str] = []

    def work(offset: int) -> None:
        for turn in range(24):
            k = (turn + offset) % len(cases)
            value, grads = fast.value_and_grad(*cases[k])
            if distance(flat(value), flat(wanted[k][0])) > LIMIT:
                failures.append(f"value of {k}")
            if distance(flat(grads), flat(wanted[k][1])) > LIMIT:
                failures.append(f"gradient of {k}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- random structured programs ------------------------------------------------------------------
def check_source(source: str, seed: int, calls: int = 4) -> Pair:
    world: dict[str, Any] = {}
    exec(compile(source, f"<program {seed}>", "exec"), world)
    pair, rng, numbers = Pair(world["f"]), random.Random(seed), np.random.default_rng(seed)
    for _ in range(calls):
        params = tuple([numbers.normal(size=shape) for shape in (7, 4, (4, 5), (5, 3))])
        try:
            pair.same(params, [rng.randrange(4) for _ in range(3)], rng.choice((1, -1, 2)))
        except AssertionError as error:
            raise AssertionError(f"{source}\n{error}") from None
    assert "differs" not in pair.lifted.report(), source
    return pair


def test_random_structured_programs():
    lifted = 0
    for seed in range(40):
        pair = check_source(Writer(random.Random(seed)).source(), seed)
        lifted += any(v.machine is not None for v in pair.variants)
    assert lifted >= 36


KEPT: list[str] = [
    # a gradient that is truly zero is rounding noise on both paths
    "return sum((x - sum(p) / 7) * (sum(y * y for y in p) + 1) ** -0.5 for x in p)",
    # a product of two huge numbers, absorbed into a sum
    "return sum(x * 1e160 * (y * 1e-160) + y * x for x, y in zip(p, q))",
    # sums of five and more lengths, in reverse, of shared terms
    "return sum(sum(p[k] * p[6 - k] for k in range(n + 1)) ** 2 for n in range(7)) + p[0] * p[6]",
    # an integer chooses a row, another an element of it; the row is also used as it is
    "return sum(A[ids[0]]) * A[ids[1]][ids[2]] + A[1][2]",
]


@pytest.mark.parametrize("body", KEPT)
def test_programs_that_went_wrong_once(body):
    check_source(HEADER + f"    {body}\n", 0)
