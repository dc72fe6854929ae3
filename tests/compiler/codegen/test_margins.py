"""Comparisons where terms cancel: rounding is as large as the largest term, not as the sum."""

import math

import numpy as np
import pytest

import chainrule
from chainrule import atan2, exp, floor, log, relu, sign, sin, tanh, where

eager = chainrule.value_and_grad
PERMUTED = (
    [-100.0, 0.1, 1.0, -100.0, 0.3, 0.7, 0.7, 0.7],
    [-100.0, 0.7, 1.0, 0.3, 0.1, 0.7, -100.0, 0.7],
)


def squares(p, x):
    return p[0] if sum(a * a for a in p) - sum(b * b for b in x) > 0 else p[1] * 5


def sums(p, x):
    return p[0] if sum(p) > sum(x) else p[1] * 5


def selected(p, x):
    return where(sum(p) >= sum(x), p[0], p[1] * 5)


def floored(p, x):
    return floor(sum(p) - sum(x)) * p[0]


def signed(p, x):
    return sign(sum(p) - sum(x)) * p[0]


def divided(p, x):
    return p[0] * ((sum(x) - sum(x[::-1])) // 0.5)


def data(p, x):
    return p[0] if sum(x) - sum(reversed(x)) > 0 else p[1] * 5


def deep(p, x):
    # The differences are amplified before they are compared.
    difference = sum(a * 3.0 for a in p) - sum(b * 3.0 for b in x)
    return where(sin(difference * 1e4) + tanh(difference * 1e6) > 0, p[0], p[1] * 5)


def scaled(p, x):
    return where((sum(p) - sum(x)) * p[0] * x[0] * 1e6 > relu(p[1] - p[1]), p[0], p[1] * 5)


def largest(p, x):
    return p[0] if max(sum(p), -1e300) > min(sum(x), 1e300) else p[1] * 5


def counted(p, x):
    total, count = 0.0, 0
    for a, b in zip(p, x, strict=True):
        total = total + a - b
        if total > 0:
            count += 1
    return p[0] * count + p[1]


FUNCTIONS = [
    squares,
    sums,
    selected,
    floored,
    signed,
    divided,
    data,
    deep,
    scaled,
    largest,
    counted,
]


def agree(fast, f, *arguments):
    value, gradient = fast.value_and_grad(*arguments)
    expected, slopes = eager(f)(*arguments)
    assert value == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-9, atol=1e-9 * max(map(abs, slopes)))


@pytest.mark.parametrize("f", FUNCTIONS)
def test_the_same_numbers_in_another_order_are_compared_as_eagerly(f):
    rng = np.random.default_rng(0)
    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    fast.value_and_grad([1.0] * 8, [2.0] * 8)
    agree(fast, f, *PERMUTED)
    for size in 10.0 ** np.arange(-8, 9, 2):
        for _ in range(4):
            p = rng.choice([size, -size, 1.0, 0.1, 0.3, 1 / 3], 8)
            agree(fast, f, p.tolist(), rng.permutation(p).tolist())
            p = rng.normal(size=8) * size
            agree(fast, f, p.tolist(), rng.permutation(p).tolist())


@pytest.mark.parametrize("f", FUNCTIONS)
def test_other_numbers_are_compared_in_machine_code(f):
    rng = np.random.default_rng(1)
    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    for size in (1e-3, 1.0, 1e3):
        for _ in range(10):
            p, x = rng.normal(size=(2, 8)) * size
            agree(fast, f, p.tolist(), x.tolist())
    assert fast.report().startswith(f"{f.__name__}: lifted")


@pytest.mark.parametrize("f", [squares, selected])
def test_many_terms_and_samples_in_lanes_are_compared_as_eagerly(f):
    rng = np.random.default_rng(2)
    p = rng.normal(size=100) * 100
    fast = chainrule.compile(f, lift=True)
    many = np.array([rng.permutation(p) for _ in range(64)])
    fast.map(p, rng.normal(size=(64, 100)))
    expected = [eager(f)(p.tolist(), x.tolist())[0] for x in many]
    assert fast.map(p, many).tolist() == pytest.approx(expected, rel=1e-12)


def test_an_item_that_an_integer_selects_is_among_the_terms():
    def f(p, tokens, limit):
        total = 0.0
        for t in tokens:
            total = total + p[t]
        return p[0] if total > limit else p[1] * 5

    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    p, rng = [0.3, 1e8, 0.1, -1e8, 1.0], np.random.default_rng(3)
    for _ in range(30):
        tokens = [0, 0, 1, 2, 0, 3, 0, 2]
        rng.shuffle(tokens)
        agree(fast, f, p, tokens, 1.4)
        agree(fast, f, p, tokens, float(sum(np.sort(p)[tokens])))
        agree(fast, f, p, tokens, float(sum(p[t] for t in tokens)))


def test_a_loop_in_time_compares_what_it_has_added_as_eagerly():
    def f(p, forces):
        place, speed, hits = p[0], p[1], 0.0
        for force in forces:
            speed = speed + force * p[2] - speed * p[3]
            place = place + speed * 0.1
            hits = hits + where(place > p[0], 1.0, 0.0) * speed
        return hits

    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    rng = np.random.default_rng(4)
    for _ in range(4):
        agree(fast, f, [0.1, 0.2, 0.3, 0.1], rng.normal(size=200).tolist())
    assert fast.report().startswith("f: lifted")
    assert "4 replayed" in fast.report()
    for k in range(200):  # it comes back to where it was but for rounding
        forces = rng.choice([0.1, 0.3, 0.7, 1e6], 100)
        both = np.concatenate([forces, -forces[:: 1 if k % 2 else -1]])
        agree(fast, f, [0.1, 0.0, 0.3, 0.0], both.tolist())


ANGLES = {
    "a difference from zero": lambda p: atan2(0.0 - p[0], p[1]),
    "a sum with zero": lambda p: atan2(p[0] + 0.0, p[1]),
    "a sum that begins with an integer": lambda p: atan2(sum(p[:1]), p[1]),
    "terms that cancel": lambda p: atan2(p[0] + 0.1 + p[1] - 0.1 - p[1], p[1]),
    "one of a product": lambda p: atan2((p[0] + 0.0) * p[1], p[1]),
}


@pytest.mark.parametrize("name", ANGLES)
def test_angles_at_the_cut_have_eagers_sign(name):
    f = ANGLES[name]
    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    for p in ([1.0, 1.0], [1.0, -1.0], [0.0, -1.0], [-0.0, -1.0], [0.0, 1.0], [-0.0, 1.0]):
        agree(fast, f, p)


def test_angles_of_data_at_the_cut_have_eagers_sign():
    def f(p, x):
        return p[0] * math.atan2(sum(x), -1.0)

    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    for x in ([1.0, 1.0, 2.0], [0.1, 0.2, -0.3], [-0.0, -0.0, -0.0], [0.3, -0.1, -0.2]):
        agree(fast, f, [1.5], x)
    angles = chainrule.compile(lambda p, y: atan2(0 - p[0] * y, -1.0))
    for y in (np.linspace(-1, 1, 3001), np.zeros(3001)):
        values, _ = angles.map_value_and_grad([1.0], y)
    assert set(values.tolist()) == {eager(lambda p: atan2(0 - p[0] * 0.0, -1.0))([1.0])[0]}


def distances(p, x):
    near = [sum((a - b) * (a - b) for a, b in zip(p, [y, y + 1.0], strict=True)) for y in x]
    return sum(where(d < 1.0, exp(-d), 0.0) for d in near)


def data_alone(p, x):
    return sum(where(a > 0.5, b, log(b)) for a, b in zip(x, [p[0] + 3.0] * 9, strict=True))


@pytest.mark.parametrize("f", [distances, data_alone])
def test_where_no_terms_cancel_nothing_more_is_computed(f):
    fast = chainrule.compile(f, lift=True)
    fast.value_and_grad([0.5, 0.7], np.linspace(0, 1, 9))
    (structure,) = fast.dispatch.structures.values()
    (variant,) = structure.variants
    rules = {i.name for i in variant.machine.lifted.instructions}
    assert not [name for name in rules if name.startswith("near")]
