"""Numbers read from ``.data``: followed where a recording can, else refused with the line."""

import math
import statistics

import numpy as np
import pytest
from compile_twins import (
    DATA,
    all_replayed,
    at,
    by_numbers,
    eager_because,
    graded,
    numbers,
    same,
)

import chainrule
from chainrule import Value, maximum, minimum, vsum, where


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x * x.data,
        lambda x, y: x - x.data + y,
        lambda x, y: x * (x.data + y.data),
        lambda x, y: x * (x.data - y.data),
        lambda x, y: x * (1 - x.data) + x * (x.data - 1),
        lambda x, y: x * (x.data * y.data),
        lambda x, y: x * (x.data / y.data),
        lambda x, y: x * (1 / x.data) + x / y.data,
        lambda x, y: x * x.data**2,
        lambda x, y: x * x.data**-1,
        lambda x, y: x * -x.data + +y.data,
        lambda x, y: x * abs(x.data),
        lambda x, y: x + (2 if x.data > y.data else 3),
        lambda x, y: x + (2 if x.data == 1.5 else 3),
        lambda x, y: x + (2 if x.data != 1.5 else 3),
        lambda x, y: x + (2 if 0 <= x.data < 2 else 3),
        lambda x, y: x + (2 if x.data in (2.0, 0.25) else 3),
        lambda x, y: x + [1.5, 7.0, x.data].index(x.data),
        lambda x, y: Value(x.data) * x,
        lambda x, y: Value(x.data * 2) * y,
        lambda x, y: (x.data + y) * x,
        lambda x, y: (x.data * y) * x,
        lambda x, y: (x.data - y) * x,
        lambda x, y: (x.data / y) * x,
        lambda x, y: x * sum([x.data, y.data]),
        lambda x, y: x * sum(v.data for v in (x, y)) / 2,
        lambda x, y: x * max(x.data, y.data),
        lambda x, y: x * min([x.data, y.data, 1.0]),
        lambda x, y: x * (x.data or 5.0),
        lambda x, y: x * sorted([x.data, y.data, 1.0])[1],
        lambda x, y: x * where(x.data > 1, x.data, y.data),
        lambda x, y: x * maximum(x.data, y.data),
        lambda x, y: x * (3 if isinstance(x.data, float) else 4),
        lambda x, y: vsum([x, y.data]) * chainrule.dot([x, y], [y.data, x.data]),
        lambda x, y: x.maximum(y.data) + minimum(x.data, y),
        lambda x, y: chainrule.hypot(x.data, y) * x,
    ],
)
def test_numbers_from_data_are_read_afresh(f):
    for first in range(len(DATA)):
        same(by_numbers(f, *DATA[first:], *DATA))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x * x.data,
        lambda x, y: x * (x.data / y.data) + x.data**2 - abs(y.data),
        lambda x, y: x * (x.data + y.data - 1) * Value(x.data),
        lambda x, y: x * sum(v.data for v in (x, y)) / 2,
    ],
)
def test_arithmetic_on_data_is_replayed_from_one_recording(f):
    assert all_replayed(by_numbers(f, *DATA)).recordings == 1


LEAKS = {
    "float": lambda x, y: x * float(x.data),
    "int": lambda x, y: x * int(x.data),
    "int as an index": lambda x, y: [x, y, x * y][abs(int(y.data)) % 3] * 2,
    "round": lambda x, y: x * round(x.data),
    "round to digits": lambda x, y: x * round(x.data, 1),
    "floor": lambda x, y: x * math.floor(x.data),
    "ceil": lambda x, y: x * math.ceil(x.data),
    "trunc": lambda x, y: x * math.trunc(x.data),
    "floor division": lambda x, y: x * (x.data // 2),
    "modulo": lambda x, y: x * (x.data % 2),
    "reflected modulo": lambda x, y: x * (7 % x.data),
    "divmod": lambda x, y: x * divmod(x.data, 2)[0],
    "isclose": lambda x, y: x * 2 if math.isclose(x.data, 2.0) else x * 3,
    "isnan": lambda x, y: x * 2 if math.isnan(x.data) or y.data > 1 else x * 3,
    "math": lambda x, y: x * math.exp(x.data),
    "fsum": lambda x, y: x * math.fsum([x.data, y.data]),
    "format": lambda x, y: x * len(f"{x.data:.3f}"),
    "str": lambda x, y: x * len(str(x.data)),
    "repr": lambda x, y: x * len(repr(x.data)),
    "percent": lambda x, y: x * float("%.2f" % x.data),  # noqa: UP031
    "hash": lambda x, y: x * {2.0: 5}.get(x.data, 7),
    "set": lambda x, y: x * len({x.data, y.data}),
    "reflected power": lambda x, y: x * 2**x.data,
    "power": lambda x, y: x * abs(x.data) ** y.data,
    "exponent": lambda x, y: (x * x) ** y.data,
    "is_integer": lambda x, y: x * (2 if x.data.is_integer() else 3),
    "as_integer_ratio": lambda x, y: x * x.data.as_integer_ratio()[0],
    "mean": lambda x, y: x * statistics.mean([x.data, y.data]),
    "median": lambda x, y: x * statistics.median([x.data, y.data, 1.0]),
    "numpy scalar": lambda x, y: x * np.float64(x.data),
    "numpy array": lambda x, y: x * np.array([x.data, y.data], dtype=float).sum(),
    "numpy list": lambda x, y: x * float(np.sum([x.data, y.data])),
    "numpy argmax": lambda x, y: [x, y][np.argmax([x.data, y.data])] * 2,
    "numpy sign": lambda x, y: x * np.sign(x.data),
    "numpy round": lambda x, y: x * np.round(x.data),
    "complex": lambda x, y: x * complex(x.data).real,
    "conjugate": lambda x, y: x * x.data.real,
    "range": lambda x, y: x * len(range(int(abs(x.data)))),
    "parameter": lambda x, y: chainrule.leaky_relu(y, abs(x.data) / 10),
    "bounds": lambda x, y: chainrule.clip(y, -abs(x.data), abs(x.data)),
    "text of a Value": lambda x, y: x * len(f"{x:.2f}"),
    "repr of a Value": lambda x, y: x * len(repr(y)),
    "gradient": lambda x, y: x * (x.grad + 1),
    "local gradients": lambda x, y: (x * y) * (1 + (x * y).local_grads[1]),
    "local gradients of relu": lambda x, y: y * (1 + x.relu().local_grads[0]),
    "type": lambda x, y: x * (3 if type(x.data) is float else 4),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_number_from_data_that_leaves_sight_is_not_frozen(name):
    for first in range(len(DATA)):
        same(by_numbers(LEAKS[name], *DATA[first:], *DATA))


def leaking_isclose(x):
    return x * 2 if math.isclose(x.data, 0) else x * 3  # here


def leaking_round(x):
    return x * round(x.data)  # here


def leaking_index(x):
    return [x, x * 2, x * 3][int(x.data)] * 2  # here


def leaking_format(x):
    return x * len(f"{x.data}")  # here


def leaking_hash(x):
    return x * {1.0: 2.0}.get(x.data, 3.0)  # here


def leaking_floor(x):
    return x * (x.data // 1)  # here


def leaking_backward(x):
    y = x * x
    y.backward()  # here
    return y


def leaking_grad(x):
    return x * x.grad  # here


def setting_data(x):
    y = Value(1.0)
    y.data = 5.0  # here
    return x * y


@pytest.mark.parametrize(
    "f",
    [
        *(leaking_isclose, leaking_round, leaking_index, leaking_format),
        *(leaking_hash, leaking_floor, leaking_backward, leaking_grad, setting_data),
    ],
)
def test_a_leak_is_reported_with_its_line(f):
    def script(compile):
        x = Value(1.0)
        fast = compile(f)
        for number in (1.0, 0.0, 2.0, 1.5):
            x.data, x.grad = number, 0.0
            yield fast(x)

    ran = eager_because(at(f), script)
    assert ran.replayed == 0


def test_an_accuracy_counter_computed_from_data_is_counted_anew():
    def f(scores, labels):
        loss = vsum((1 - s * y).relu() for s, y in zip(scores, labels, strict=True))
        hits = [(s.data > 0) == (y > 0) for s, y in zip(scores, labels, strict=True)]
        return loss, sum(hits) / len(hits)

    def script(compile):
        scores = numbers(0.5, -0.5, 2.0)
        fast = compile(f)
        for signs in ((1, 1, 1), (-1, 1, 1), (-1, -1, -1), (1, -1, 1), (1, 1, 1)):
            for s, sign in zip(scores, signs, strict=True):
                s.data = sign * abs(s.data)
            for labels in ([1, 1, -1], [-1, -1, -1]):
                loss, accuracy = fast(scores, labels)
                yield graded(loss, *scores), accuracy

    same(script)


def test_statistics_of_data_as_extras_are_fresh():
    def f(x, y):
        return x * y, {"x": x.data, "twice": 2 * x.data, "larger": max(x.data, y.data), "n": 2}

    def script(compile):
        fast = compile(f)
        x, y = numbers(1.0, 2.0)
        for number in (1.0, 5.0, -3.0):
            x.data = number
            loss, extras = fast(x, y)
            yield loss, extras

    assert same(script).eager == 0


def test_chainrules_functions_of_plain_numbers_are_recorded():
    def f(p, x):
        return p * chainrule.exp(x * p) + chainrule.sqrt(x) + maximum(x, p) + chainrule.relu(x - 1)

    def script(compile):
        fast = compile(f)
        for x in (3.0, 0.5, 2, np.float64(1.5), math.inf, math.nan, 3, -1.0, 2000.0):
            try:
                yield fast(2.0, x)
            except (ValueError, OverflowError) as error:
                yield type(error), str(error)

    assert same(script).replayed >= 5


TINY = [0.0, -0.0, 1e-17, -1e-17, 5e-324, -5e-324, 1e-300, 0.0]


@pytest.mark.parametrize("lift", [None, True])
@pytest.mark.parametrize(
    "used",
    [
        math.cbrt,
        math.floor,
        math.ceil,
        math.ulp,
        np.sign,
        np.floor,
        float.is_integer,
        hash,
        lambda x: x % 0.3,
        lambda x: math.copysign(2.0, x),
        lambda x: math.modf(x)[0],
        lambda x: len(f"{x}"),
    ],
)
def test_a_number_that_is_static_while_it_is_zero_is_not_so_for_tiny_ones(used, lift):
    def f(p, x):
        return p[0] * used(x)

    fast, eager = chainrule.compile(f, lift=lift, on_fallback="eager"), chainrule.value_and_grad(f)
    found = [repr(fast.value_and_grad([2.0], x)) for x in TINY]
    assert found == [repr(eager([2.0], x)) for x in TINY]
