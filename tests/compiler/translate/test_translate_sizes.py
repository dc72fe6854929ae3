"""``sizes=``: one source for arrays of any size, from recordings at small ones."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import chainrule
from chainrule import TranslationError, exp, log, relu, tanh
from chainrule.compiler.translate.sizes.laws import Sizes, integer, real
from chainrule.compiler.translate.terms import Untranslatable


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def translated(function, sizes, to="numpy", **options):
    return getattr(chainrule.compile(function), f"to_{to}")(sizes=sizes, **options)


@cache
def once(function, sizes):
    """The numpy source of a program that several tests look at."""
    return translated(function, sizes)


def refusal(function, sizes, **options):
    with pytest.raises(TranslationError) as error:
        translated(function, sizes, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


# --- programs -------------------------------------------------------------------------------------


def variance(xs):
    mean = sum(xs) / len(xs)
    return sum((x - mean) ** 2 for x in xs) / (len(xs) - 1)


def network(params, points, targets):
    total = 0.0
    for point, target in zip(points, targets, strict=True):
        hidden = [tanh(sum(w * x for w, x in zip(row, point, strict=True))) for row in params["w"]]
        output = sum(v * h for v, h in zip(params["v"], hidden, strict=True))
        total = total + (output - target) ** 2
    return total / len(points)


def network_example(N=5, H=6, D=7):
    return {"w": normal(H, D), "v": normal(H)}, normal(N, D), normal(N)


def cross_entropy(rows, x, target):
    scores = [sum(w * v for w, v in zip(row, x, strict=True)) for row in rows]
    top = max(v.data for v in scores)
    return log(sum(exp(v - top) for v in scores)) + top - scores[target]


def price(params, normals):
    spot, rate, volatility = params["spot"], params["rate"], params["volatility"]
    steps = len(normals[0])
    drift = (rate - volatility * volatility * 0.5) * (1 / steps)
    total = 0
    for path in normals:
        value, values = spot, 0
        for number in path:
            value = value * exp(volatility * math.sqrt(1 / steps) * number + drift)
            values = values + value
        total = total + relu(values * (1 / steps) - 100)
    return total * (1 / len(normals)) * exp(-rate)


def price_example(N=5, T=6):
    return {"spot": 100.0, "rate": 0.05, "volatility": 0.2}, normal(N, T)


def pooled_convolution(params, image):
    kernel, steps = params["kernel"], range(len(params["kernel"]))
    span = range(len(image) - len(kernel) + 1)
    map_ = [
        [relu(sum(kernel[i][j] * image[y + i][x + j] for i in steps for j in steps)) for x in span]
        for y in span
    ]
    pooled = [
        (map_[y][x] + map_[y][x + 1] + map_[y + 1][x] + map_[y + 1][x + 1]) / 4
        for y in span[::2]
        for x in span[::2]
    ]
    return sum(w * v for w, v in zip(params["dense"], pooled, strict=True))


def convolution_example(P=3):
    return {"kernel": normal(3, 3), "dense": normal(P * P)}, normal(2 * P + 2, 2 * P + 2)


def recurrent(params, xs):
    state, total = params["start"], 0
    for x, target in pairwise(xs):
        state = [
            tanh(sum(w * h for w, h in zip(row, state, strict=True)) + v * x)
            for row, v in zip(params["w"], params["v"], strict=True)
        ]
        total = total + (sum(state) - target) ** 2
    return total / (len(xs) - 1)


def recurrent_example(T=6, W=5):
    params = {"start": normal(W), "w": normal(W, W) * 0.3, "v": normal(W)}
    return params, normal(T + 1)


HEADS = 2


def attention(params, tokens):
    keys, values, total = [], [], 0
    size = len(params["embedding"][0]) // HEADS
    for position, token in enumerate(tokens[:-1]):
        x = [
            a + b
            for a, b in zip(params["embedding"][token], params["where"][position], strict=True)
        ]
        scale = (sum(v * v for v in x) / len(x) + 1e-5) ** -0.5
        x = [v * scale for v in x]
        query, key, value = (
            [sum(w * v for w, v in zip(row, x, strict=True)) for row in params[name]]
            for name in ("query", "key", "value")
        )
        keys.append(key)
        values.append(value)
        made = []
        for head in range(HEADS):
            mine = range(head * size, (head + 1) * size)
            shares = [exp(sum(query[j] * key[j] for j in mine) / size**0.5) for key in keys]
            whole = sum(shares)
            made += [
                sum(s * value[j] for s, value in zip(shares, values, strict=True)) / whole
                for j in mine
            ]
        total = total + cross_entropy(params["embedding"], made, tokens[position + 1])
    return total / (len(tokens) - 1)


def attention_example(D=3, T=5, B=9, V=7):
    params = {name: normal(2 * D, 2 * D) for name in ("query", "key", "value")}
    params |= {"embedding": normal(V, 2 * D), "where": normal(max(B, T), 2 * D)}
    return params, [3 * k % V for k in range(T + 1)]


PROGRAMS = {
    "variance": (variance, lambda n: (normal(n),), (40,)),
    "network": (network, network_example, (30, 2, 21)),
    "cross-entropy": (cross_entropy, lambda V=5, W=6: (normal(V, W), normal(W), 1), (3, 40)),
    "price": (price, price_example, (31, 2)),
    "convolution": (pooled_convolution, convolution_example, (9,)),
    "recurrent": (recurrent, recurrent_example, (50, 3)),
    "attention": (attention, attention_example, (5, 17, 20, 30)),
}


@pytest.mark.parametrize(("function", "example", "sizes"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_source_is_right_at_sizes_never_recorded(function, example, sizes):
    model = once(function, example)
    assert "PLACES" not in model.source
    arguments = example(*sizes)
    expected = chainrule.value_and_grad(function)(*arguments)[0]
    assert model(*arguments) == pytest.approx(expected, rel=1e-9)


def test_the_jax_source_has_eager_gradients_at_sizes_never_recorded():
    jax = pytest.importorskip("jax")
    model = translated(recurrent, recurrent_example, "jax")
    assert "lax.scan" in model.source
    arguments = recurrent_example(40, 7)
    value, gradient = chainrule.value_and_grad(recurrent)(*arguments)
    with jax.enable_x64(True):
        found, slopes = jax.jit(jax.value_and_grad(model))(*arguments)
    assert found == pytest.approx(value, rel=1e-9)
    model.check(*arguments)
    for name, wanted in gradient.items():
        np.testing.assert_allclose(slopes[name], wanted, rtol=1e-9, atol=1e-12)


def test_sizes_have_names_and_are_read_from_the_shapes_of_arguments():
    source = once(price, price_example).source
    assert "N, T = normals.shape" in source
    assert "b = spot * np.exp(np.cumsum(volatility * normals / (T ** 0.5) + a / T, 1))" in source
    assert "# b[t,u] = b[t-1,u]·exp(volatility·normals[u,t] / √T + a / T)  [T×N]" in source
    assert "normals [N×T]" in source.split('"""')[1]


def test_sizes_are_found_by_comparing_examples():
    examples = [price_example(*sizes) for sizes in ((6, 10), (7, 12), (9, 13), (13, 30))]
    model = translated(price, examples)
    assert "N, M = normals.shape" in model.source
    arguments = price_example(40, 17)
    expected = chainrule.value_and_grad(price)(*arguments)[0]
    assert model(*arguments) == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ValueError, match="N >= 6"):
        model(*price_example(5, 17))  # smaller than all that was compared


def test_a_call_of_any_size_can_be_checked_without_a_graph():
    def jumping(xs):
        return sum(xs) * len(xs) if len(xs) < 100 else sum(xs)

    model = translated(jumping, lambda n: (normal(n),))
    model.check(normal(99))
    with pytest.raises(TranslationError, match="its value differs from eager's"):
        model.check(normal(100))


def test_examples_whose_sizes_go_together_are_for_such_sizes_only():
    def scaled(xs, ys):
        return sum(x * len(ys) for x in xs) + sum(ys)

    model = translated(scaled, [(normal(n), normal(n + 2)) for n in (5, 6, 8, 12)])
    assert model(normal(20), normal(22)) == pytest.approx(scaled(normal(20), normal(22)))
    with pytest.raises(ValueError, match=r"this source is for shape \(22\), not \(21,\)"):
        model(normal(20), normal(21))


def test_sizes_that_do_not_fit_are_refused():
    model = once(attention, attention_example)
    params, tokens = attention_example(3, 8, 9, 7)
    with pytest.raises(ValueError, match="B >= T"):  # a slice would just be shorter
        model({**params, "where": params["where"][:1]}, tokens)
    with pytest.raises(ValueError, match=r"query has shape \(2 \* D, 2 \* D\)"):
        model({**params, "query": params["query"][:5, :5]}, tokens)
    with pytest.raises(ValueError, match=r"this source is for shape \(any, 6\), not \(7, 5\)"):
        model({**params, "embedding": params["embedding"][:, 1:]}, tokens)
    with pytest.raises(ValueError, match=r"this source is for shape \(any, any\), not \(6,\)"):
        model({**params, "query": params["query"][0]}, tokens)


def test_sizes_at_which_the_function_is_not_defined_are_refused():
    model = translated(variance, lambda n: (normal(n),))
    assert model([1.0, 3.0]) == 2.0
    with pytest.raises(ValueError, match="this source is for sizes where n >= 2"):
        model([1.0])


def test_a_number_that_no_size_explains_is_refused_with_its_line():
    def wave(xs):
        return sum(x * math.sin(len(xs)) for x in xs)

    text = refusal(wave, lambda n: (normal(n),))
    assert "no size explains the number that is -0.544021 at n=10, -0.99999 at n=11" in text
    assert text.endswith("result = -0.544021·Σ_i xs[i]")


def test_what_depends_on_sizes_without_a_formula_is_refused():
    def weighted(xs):
        return sum(x / (k * k + 1) for k, x in enumerate(xs))

    def primes(xs):
        return sum(x for k, x in enumerate(xs) if k in (2, 3, 5, 7, 11, 13, 17, 19, 23))

    def jumping(xs):
        return sum(xs) * len(xs) if len(xs) < 16 else sum(xs)

    assert "a table of numbers depends on sizes" in refusal(weighted, lambda n: (normal(n),))
    few = [(normal(n),) for n in (5, 6, 7, 9)]
    assert "another structure at other sizes; larger sizes may be alike" in refusal(primes, few)
    text = refusal(jumping, lambda n: (normal(n),))
    assert text.endswith("at n=21, which was not recorded, its value differs from eager's")


def test_branches_on_numbers_are_refused_or_give_a_flag():
    def branching(xs):
        return sum(xs) if xs[0] > 0 else sum(xs) * 2

    def example(n):
        return (abs(normal(n)),)

    assert "a branch at test_translate_sizes.py" in refusal(branching, example)
    model = translated(branching, example, specialise=True)
    assert model([1.0, 2.0, 3.0]) == (6.0, True)
    assert not model([-1.0, 2.0])[1]


def test_bad_use_is_one_clear_line():
    with pytest.raises(TranslationError, match="sizes takes the place of example arguments"):
        chainrule.compile(variance).to_numpy([1.0, 2.0], sizes=lambda n: (normal(n),))
    assert "at least 4 examples" in refusal(variance, [(normal(5),), (normal(6),)])
    assert "all of one size" in refusal(variance, [(normal(5),)] * 4)
    assert "has the sizes of another" in refusal(variance, [(normal(n),) for n in (5, 6, 7, 6)])
    assert "one parameter for each size" in refusal(variance, lambda: (normal(5),))
    assert "not int" in refusal(variance, 3)
    assert "a size and an argument are both called xs" in refusal(variance, lambda xs: normal(xs))
    text = refusal(variance, lambda n, m: (normal(n),))
    assert "no argument's shape depends on m" in text
    assert "(at n=1" in refusal(
        lambda xs: sum(xs[1:]) if len(xs) > 12 else 0.0, lambda n: normal(n)
    )


def test_laws_are_the_simplest_that_all_recordings_agree_with():
    one = Sizes(("T",), ((5,), (6,), (7,), (9,)))
    assert integer([4, 5, 6, 8], one).code == "T - 1"
    assert integer([15, 21, 28, 45], one).code == "(T ** 2 + T) // 2"
    assert integer([1, 2, 4, 8], one) is None
    assert real([5**-0.5, 6**-0.5, 7**-0.5, 1 / 3], one).code == "1.0 / (T ** 0.5)"
    assert real([math.log(n) * 0.3 for n in (5, 6, 7, 9)], one).code == "0.3 * math.log(T)"
    assert real([0.3, 0.1, 0.7, 0.2], one) is None
    two = Sizes(("N", "T"), ((5, 7), (6, 7), (7, 7), (5, 8), (5, 9), (6, 8)))
    assert integer([35, 42, 49, 40, 45, 48], two).code == "N * T"
    assert integer([13, 14, 15, 14, 15, 15], two).code == "N + T + 1"
    together = Sizes(("N", "T"), ((5, 7), (6, 8), (7, 9), (9, 11)))
    with pytest.raises(Untranslatable, match="may be N or T - 2"):
        integer([5, 6, 7, 9], together)
