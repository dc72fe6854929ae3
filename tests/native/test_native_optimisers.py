"""The native Adam and SGD: the plain Python formulas, to the last bit."""

import math
from random import Random

import numpy as np
import pytest
from native_engines import NATIVE, REFERENCE, bits, outcome
from programs import count

from chainrule import _native
from chainrule.core.native import Value

Adam = dict[str, float]


def settings(rng: Random) -> Adam:
    step = rng.randint(1, 50)
    beta1, beta2 = rng.choice([0.9, 0.85, 0.0, 0.999]), rng.choice([0.999, 0.99, 0.95])
    return {
        "lr": rng.choice([0.01, 0.001, 1.0, 0.3]),
        "beta1": beta1,
        "beta2": beta2,
        "epsilon": rng.choice([1e-8, 1e-5, 0.0]),
        "bias1": 1 - beta1**step,
        "bias2": 1 - beta2**step,
        "decay": rng.choice([0.0, 0.0, 0.1, 0.01]),
    }


def numbers(rng: Random, n: int) -> list[float]:
    stock = [0.0, -0.0, 1e-12, 1e10, -1e5, 5e-324]
    return [rng.choice(stock) if rng.random() < 0.1 else rng.gauss(0, 1) for _ in range(n)]


def plain_adam(p, g, m, v, o):
    """microgpt's lines, with decoupled weight decay before them."""
    if o["decay"]:
        p -= o["lr"] * o["decay"] * p
    m = o["beta1"] * m + (1 - o["beta1"]) * g
    v = o["beta2"] * v + (1 - o["beta2"]) * g**2
    m_hat, v_hat = m / o["bias1"], v / o["bias2"]
    p -= o["lr"] * m_hat / (v_hat**0.5 + o["epsilon"])
    return p, m, v


def all_bits(xs) -> list[str]:
    return [bits(float(x)) for x in xs]


def test_adam_over_values_is_the_plain_formula():
    for i in range(count(ci=100, soak=3_000)):
        rng = Random(f"adam {i}")
        n, o = rng.randint(0, 40), settings(rng)
        if o["epsilon"] == 0.0:
            o["epsilon"] = 1e-8  # v may be 0
        p, g, m = numbers(rng, n), numbers(rng, n), numbers(rng, n)
        v = [abs(x) for x in numbers(rng, n)]
        values = [Value(x) for x in p]
        for value, x in zip(values, g, strict=True):
            value.grad = x
        m_array, v_array = np.array(m), np.array(v)
        _native.adam(values, m_array, v_array, *o.values())
        expected = [plain_adam(*row, o) for row in zip(p, g, m, v, strict=True)]
        assert all_bits([x.data for x in values]) == all_bits([e[0] for e in expected])
        assert all_bits(m_array) == all_bits([e[1] for e in expected])
        assert all_bits(v_array) == all_bits([e[2] for e in expected])
        assert all_bits([x.grad for x in values]) == all_bits(g), "gradients are only read"


def test_adam_squares_and_takes_roots_with_libms_power():
    """A compiler may turn pow(x, 2) into x * x, which differs once in 1,200 numbers."""
    rng = Random("squares")
    n, o = 20_000, settings(rng) | {"epsilon": 1e-8, "lr": 1.0, "decay": 0.0}
    p, g, m, v = ([rng.uniform(0.1, 2.0) for _ in range(n)] for _ in range(4))
    values = [Value(x) for x in p]
    for value, x in zip(values, g, strict=True):
        value.grad = x
    m_array, v_array = np.array(m), np.array(v)
    _native.adam(values, m_array, v_array, *o.values())
    expected = [plain_adam(*row, o) for row in zip(p, g, m, v, strict=True)]
    assert all_bits([x.data for x in values]) == all_bits([e[0] for e in expected])
    assert all_bits(v_array) == all_bits([e[2] for e in expected])
    assert any(x**2 != x * x for x in g)


def test_sgd_over_values_is_the_plain_formula():
    for i in range(count(ci=100, soak=3_000)):
        rng = Random(f"sgd {i}")
        n = rng.randint(0, 40)
        lr, momentum, decay = (
            rng.choice([0.1, 0.01]),
            rng.choice([0.0, 0.9]),
            rng.choice([0.0, 0.1]),
        )
        p, g, speed = numbers(rng, n), numbers(rng, n), numbers(rng, n)
        values = [Value(x) for x in p]
        for value, x in zip(values, g, strict=True):
            value.grad = x
        velocity = np.array(speed) if rng.random() < 0.5 else None
        expected, speeds = [], []
        for x, y, s in zip(p, g, speed, strict=True):
            if decay:
                x -= lr * decay * x
            if velocity is not None:
                y = momentum * s + y
            speeds.append(y)
            expected.append(x - lr * y)
        _native.sgd(values, velocity, lr, momentum, decay)
        assert all_bits([x.data for x in values]) == all_bits(expected)
        if velocity is not None:
            assert all_bits(velocity) == all_bits(speeds)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_adam_over_arrays_is_the_plain_formula(dtype):
    """One rounding per operation in the array's own precision."""
    for i in range(count(ci=100, soak=3_000)):
        rng = Random(f"adam array {i}")
        n, o = rng.randint(0, 50), settings(rng)
        p, g, m = (np.array(numbers(rng, n)).clip(-1e6, 1e6).astype(dtype) for _ in range(3))
        v = np.abs(np.array(numbers(rng, n))).clip(1e-3, 1e6).astype(dtype)
        c = {name: dtype(x) for name, x in o.items()}
        shrink = dtype(o["lr"] * o["decay"])
        first, second = dtype(1.0 - o["beta1"]), dtype(1.0 - o["beta2"])
        m2 = c["beta1"] * m + first * g
        v2 = c["beta2"] * v + second * (g * g)
        p2 = (p - shrink * p) - c["lr"] * (m2 / c["bias1"]) / (
            np.sqrt(v2 / c["bias2"]) + c["epsilon"]
        )
        _native.adam_array(p, g, m, v, *o.values())
        assert (all_bits(p), all_bits(m), all_bits(v)) == (all_bits(p2), all_bits(m2), all_bits(v2))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sgd_over_arrays_is_the_plain_formula(dtype):
    for i in range(count(ci=100, soak=3_000)):
        rng = Random(f"sgd array {i}")
        n = rng.randint(0, 50)
        lr, momentum, decay = (
            rng.choice([0.1, 0.01]),
            rng.choice([0.0, 0.9]),
            rng.choice([0.0, 0.1]),
        )
        p, g, speed = (np.array(numbers(rng, n)).clip(-1e6, 1e6).astype(dtype) for _ in range(3))
        velocity = speed if rng.random() < 0.5 else None
        step = g if velocity is None else dtype(momentum) * speed + g
        expected = (p - dtype(lr * decay) * p) - dtype(lr) * step
        _native.sgd_array(p, g, velocity, lr, momentum, decay)
        assert all_bits(p) == all_bits(expected)
        if velocity is not None:
            assert all_bits(velocity) == all_bits(step)


def test_values_of_subclasses_and_inner_nodes_are_updated_too():
    class Parameter(Value):
        pass

    values = [Parameter(1.0), Value(2.0) * 3.0]
    values[1].backward()
    values[0].grad = 0.5
    _native.sgd(values, None, 0.5, 0.0, 0.0)
    assert [v.data for v in values] == [0.75, 5.5]
    _native.sgd([values[0], values[0]], None, 0.5, 0.0, 0.0)
    assert values[0].data == 0.25, "named twice, moved twice"
    _native.sgd(iter(values), None, 0.5, 0.0, 0.0)
    assert values[0].data == 0.0


STATE = [
    lambda values, m, v: _native.adam(values, m, v, 0.1, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.0),
    lambda values, m, v: _native.sgd(values, m, 0.1, 0.9, 0.0),
]


@pytest.mark.parametrize("update", STATE)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(1),
        np.zeros(2, np.float32),
        np.zeros(4)[::2],
        "x",
        b"12345678" * 2,
        [0.0, 0.0],
        3,
        np.zeros(2, ">f8"),
    ],
)
def test_nothing_changes_unless_everything_fits(update, place, wrong):
    values = [Value(1.0), Value(2.0)]
    values[0].grad = values[1].grad = 1.0
    state = [np.ones(2), np.ones(2)]
    right = state[1 - place]
    state[place] = wrong
    if update is STATE[1]:
        state[0] = wrong
    result = outcome(update, values, *state)
    assert isinstance(result, tuple)
    assert result[0] in ("TypeError", "ValueError", "BufferError"), result
    assert [v.data for v in values] == [1.0, 2.0]
    assert right.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("update", STATE)
@pytest.mark.parametrize(
    "values",
    [None, 3, [Value(1.0), None], [1.0, 2.0], [Value(1.0), REFERENCE.Value(2.0)], "ab", [Value]],
)
def test_only_values_are_updated(update, values):
    m, v = np.ones(2), np.ones(2)
    assert outcome(update, values, m, v)[0] == "TypeError"
    assert (m.tolist(), v.tolist()) == ([1.0, 1.0], [1.0, 1.0])


def test_a_read_only_array_is_refused():
    p, g = np.ones(2), np.ones(2)
    g.flags.writeable = False
    _native.sgd_array(p, g, None, 0.5, 0.0, 0.0)
    assert p.tolist() == [0.5, 0.5]
    with pytest.raises((ValueError, BufferError)):
        _native.sgd_array(g, p, None, 0.5, 0.0, 0.0)
    with pytest.raises((ValueError, BufferError)):
        _native.adam([Value(1.0)], np.zeros(1), g[:1], 0.1, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.0)


@pytest.mark.parametrize(
    "arrays",
    [
        (np.ones(2), np.ones(3), np.ones(2)),
        (np.ones(2), np.ones(1), np.ones(2)),
        (np.ones(2), np.ones(2), np.ones(3)),
        (np.ones(2), np.ones(2, np.float32), np.ones(2)),
        (np.ones(2, np.float32), np.ones(2), np.ones(2, np.float32)),
        (np.ones(2, int), np.ones(2, int), np.ones(2, int)),
        (np.ones(4)[::2], np.ones(2), np.ones(2)),
        (None, np.ones(2), np.ones(2)),
        (np.ones(2), None, np.ones(2)),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(arrays):
    before = [None if a is None else a.tolist() for a in arrays]
    for call in (
        lambda: _native.sgd_array(*arrays, 0.1, 0.9, 0.0),
        lambda: _native.adam_array(*arrays, arrays[2], 0.1, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.0),
    ):
        assert outcome(call)[0] in ("TypeError", "ValueError", "BufferError")
    assert [None if a is None else a.tolist() for a in arrays] == before


def test_one_array_in_all_places_is_harmless():
    x = np.full(7, 0.5)
    _native.adam_array(x, x, x, x, 0.1, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.0)
    _native.sgd_array(x, x, x, 0.1, 0.9, 0.0)
    assert np.isfinite(x).all()


def test_numbers_that_are_not_finite_stay_where_they_are():
    values = [Value(1.0), Value(math.inf), Value(2.0)]
    values[0].grad = math.nan
    values[2].grad = 1.0
    _native.sgd(values, None, 0.5, 0.0, 0.0)
    assert math.isnan(values[0].data)
    assert (values[1].data, values[2].data) == (math.inf, 1.5)
    assert NATIVE.Value is Value
