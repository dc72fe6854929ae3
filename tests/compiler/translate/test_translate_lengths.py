"""``lengths=``: one source for lists of any length, padded.

Every translation was compared with eager, at each length and with junk behind the end of shorter
lists, before it was returned; the tests below add single calls, batches and what is refused.
"""

from itertools import pairwise

import numpy as np
import pytest

import chainrule
from chainrule import TranslationError, gpt, log, tanh
from chainrule.cli import app
from chainrule.nn import softmax

NUMBERS = [0.3, -0.5, 0.8, 0.1, -0.7, 0.4]


def squares(p, xs, ys):
    return sum((p["w"] * x + p["b"] - y) ** 2 for x, y in zip(xs, ys, strict=True)) / len(xs)


def products(p, xs):
    return sum(p["w"] * x for x in xs) / (len(xs) + 1)


def rows(p, table):
    return sum(tanh(sum(w * x for w, x in zip(p["w"], row, strict=True))) for row in table)


def last_state(p, xs):
    state = 0.0
    for x in xs:
        state = tanh(p["w"] * x + p["u"] * state)
    return state


def pooled(p, xs):
    shares = softmax([p["w"] * x for x in xs])
    return sum(s * x for s, x in zip(shares, xs, strict=True))


def largest(p, xs):
    return max(p["w"] * x for x in xs)


def first(p, xs):
    return p["w"] * xs[0]


def bag(p, ids):
    hidden = [sum(p["E"][i][k] for i in ids) / len(ids) for k in range(2)]
    return sum(tanh(h) for h in hidden)


def two_results(p, xs):
    total = sum(p["w"] * x for x in xs)
    return total * total, {"total": total.data}


CASES = [
    (squares, {"w": 0.5, "b": 0.1}, NUMBERS, NUMBERS[::-1]),
    (products, {"w": 0.5}, NUMBERS),
    (rows, {"w": [0.1, -0.2]}, np.reshape(NUMBERS, (3, 2))),
    (last_state, {"w": 0.5, "u": 0.7}, NUMBERS),
    (pooled, {"w": 0.5}, NUMBERS),
    (largest, {"w": 0.5}, NUMBERS),
    (first, {"w": 0.5}, NUMBERS),
    (bag, {"E": [[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]]}, [0, 2, 1, 1]),
    (two_results, {"w": 0.5}, NUMBERS),
]


@pytest.mark.parametrize(("function", "params", "lists"), [(f, p, x) for f, p, *x in CASES])
def test_one_source_serves_every_length(function, params, lists):
    model = chainrule.compile(function).to_numpy(params, *lists, lengths=True)
    most = len(lists[0])
    assert model.lengths == tuple(range(1, most + 1))
    for count in model.lengths:
        wanted = function(
            chainrule.trees.map_leaves(chainrule.Value, params), *[x[:count] for x in lists]
        )
        padded = [np.array([*x[:count], *[x[0]] * (most - count)]) for x in lists]
        found = model(params, *padded, count)
        if function is two_results:
            assert found[1]["total"] == pytest.approx(wanted[1]["total"], abs=1e-12)
            wanted, found = wanted[0], found[0]
        assert found == pytest.approx(wanted.data, abs=1e-12)
    for unknown in (0, -1, most + 1):
        with np.errstate(invalid="ignore"):
            found = model(params, *lists, unknown)
        assert np.isnan(found[0] if function is two_results else found)


def test_lists_of_another_length_than_the_longest_stay_as_they_are():
    def weighted(p, xs, query):
        return sum(p["w"] * x * query[0] + query[1] for x in xs)

    model = chainrule.compile(weighted).to_numpy(
        {"w": 2.0}, [1.0, 2.0, 3.0], [4.0, 5.0], lengths=True
    )
    assert model({"w": 2.0}, [1.0, 2.0, 9.0], [4.0, 5.0], 2) == 34.0
    assert "how many items of xs count: 1 to 3." in model.source


def test_the_lengths_may_be_named():
    model = chainrule.compile(products).to_numpy({"w": 0.5}, NUMBERS, lengths=(2, 6))
    assert model.lengths == (2, 6)
    assert np.isnan(model({"w": 0.5}, NUMBERS, 3))
    assert model({"w": 0.5}, NUMBERS, 2) == pytest.approx(-0.1 / 3)


def in_order(p, xs):
    return sum(p["w"] * log(b - a) for a, b in pairwise(xs))


def last_token(p, ids):
    return p["t"][ids[-1]] * sum(p["t"][i] for i in ids)


def changing(p, xs):
    return sum(tanh(p["w"] * x) if len(xs) > 2 else p["w"] * x for x in xs)


@pytest.mark.parametrize(
    ("function", "arguments", "lengths", "words"),
    [
        (in_order, ({"w": 0.5}, [0.1, 0.2, 0.4]), True, "something is not finite"),
        (last_token, ({"t": [0.1, 0.2]}, [0, 1, 1]), True, "with 2 items instead of 3"),
        (changing, ({"w": 0.5}, NUMBERS), True, "with 2 items instead of 6 another length does"),
        (products, ({"w": 0.5}, NUMBERS), [2, 7], "from 1 to 6, the length of the example"),
        (products, ({"w": 0.5}, NUMBERS), [2, 3], "and include that"),
        (products, ({"w": 0.5}, NUMBERS), 3, "lengths is True, or which"),
        (lambda p, x: p[0] * x, ([0.5], 2.0), True, "no argument after the first is a list"),
        (
            lambda p, xs: p[0] * sum(a * b for a, b in xs),
            ([0.5], [(1.0, 2.0)] * 3),
            True,
            "no array",
        ),
        (lambda p, length: p[0] * sum(length), ([0.5], [1.0, 2.0]), True, "the name length"),
        (lambda p, xs: p[0] if p[0] > sum(xs) else p[0] * 2, ([0.5], [1.0, 2.0]), True, "one case"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(function, arguments, lengths, words):
    with pytest.raises(TranslationError, match=words) as caught:
        chainrule.compile(function).to_numpy(*arguments, lengths=lengths)
    assert "\n" not in str(caught.value)


def test_the_command_line_writes_padded_source(tmp_path, capsys):
    file = tmp_path / "line.py"
    file.write_text(
        "def total(p, xs):\n    return sum(p[0] * x for x in xs)\n"
        "example = [2.0], [1.0, 2.0, 3.0]\n"
    )
    with pytest.raises(SystemExit) as ended:
        app(["translate", f"{file}:total", "--lengths"])
    assert ended.value.code == 0
    assert "def total(p, xs, length):" in capsys.readouterr().out


def test_padded_batches_of_a_gpt_are_the_mean_of_single_calls():
    jax = pytest.importorskip("jax")
    config = gpt.Config(width=4, heads=2, block=5)

    def loss(weights, tokens):
        return gpt.GPT.of(config, weights).loss(tokens)

    weights = gpt.GPT(config, vocabulary=6).arrays()
    model = chainrule.compile(loss).to_jax(weights, [5, 0, 1, 2, 3, 4], lengths=True)
    assert "PLACES" not in model.source
    assert model.lengths == (2, 3, 4, 5, 6)
    documents = [[5, 1], [5, 3, 2], [5, 0, 0, 1], [5, 4, 3, 2, 1], [5, 1, 2, 3, 4, 5]]
    eager = chainrule.value_and_grad(loss)
    single = [eager(weights, tokens) for tokens in documents]
    tokens = np.full((5, 6), -1)
    for row, document in zip(tokens, documents, strict=True):
        row[: len(document)] = document
    lengths = np.array([len(document) for document in documents])

    def mean(weights):
        return jax.vmap(model, (None, 0, 0))(weights, tokens, lengths).mean()

    with jax.enable_x64(True):
        value, slopes = jax.jit(jax.value_and_grad(mean))(weights)
    assert value == pytest.approx(np.mean([value for value, _ in single]), abs=1e-9)
    for name, found in slopes.items():
        wanted = np.mean([gradient[name] for _, gradient in single], axis=0)
        assert found == pytest.approx(wanted, abs=1e-9)
    with jax.enable_x64(True):
        assert np.isnan(jax.jit(model)(weights, tokens[0], 7))
        assert np.isnan(jax.grad(model)(weights, tokens[0], 1)["head"]).any()


def test_a_padded_source_is_exported_with_its_length(tmp_path):
    jax = pytest.importorskip("jax")
    model = chainrule.compile(products).to_jax({"w": 0.5}, NUMBERS, lengths=True)
    model.save(tmp_path / "model.stablehlo")
    loaded = jax.export.deserialize(bytearray((tmp_path / "model.stablehlo").read_bytes()))
    arguments = {"w": np.float32(0.5)}, np.array(NUMBERS, np.float32), np.int32(2)
    assert float(loaded.call(*arguments)) == pytest.approx(-0.1 / 3, rel=1e-6)
