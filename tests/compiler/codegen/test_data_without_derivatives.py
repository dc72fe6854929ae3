"""Machine code has derivatives by parameters and Values, and none by data: nobody asks for them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import Value, relu, tanh

pytest.importorskip("llvmlite")

RNG = np.random.default_rng(3)
PARAMETERS = {"k": RNG.normal(size=(4, 3)), "v": RNG.normal(size=4)}
XS = RNG.normal(size=12)


def convolution(p, xs, y=0.5):
    total = 0.0
    for kernel, v in zip(p["k"], p["v"], strict=True):
        found = [relu(sum(w * xs[i + j] for j, w in enumerate(kernel))) for i in range(len(xs) - 2)]
        total = total + v * sum(found) * (1.0 / len(found))
    return (total - y) ** 2


def same(found, wanted):
    assert found[0] == pytest.approx(wanted[0], rel=1e-12)
    for name, array in wanted[1].items():
        np.testing.assert_allclose(found[1][name], array, rtol=1e-9, atol=1e-12)


def machines(fast):
    return {v.machine for v in View(fast).variants if v.machine is not None}


def test_data_have_none():
    fast, eager = chainrule.compile(convolution, lift=True), chainrule.value_and_grad(convolution)
    for _ in range(4):
        same(fast.value_and_grad(PARAMETERS, XS, 0.3), eager(PARAMETERS, XS, 0.3))
    (machine,) = machines(fast)
    assert not machine.derives
    own = machine.program.shared + np.arange(len(machine.program.private))
    assert not any(np.isin(targets, own).any() for _, targets in machine.code.machine.stores)


@dataclass
class Sample:
    xs: Any
    y: Any


FORMS = {
    "a list": lambda xs, y: (PARAMETERS, [Value(x) for x in xs], y),
    "one of them": lambda xs, y: (PARAMETERS, [Value(xs[0]), *xs[1:].tolist()], y),
    "the last": lambda xs, y: (PARAMETERS, xs, Value(y)),
    "all": lambda xs, y: (
        {name: [[Value(x) for x in np.ravel(row)] for row in array] if name == "k" else
         [Value(x) for x in array] for name, array in PARAMETERS.items()},
        [Value(x) for x in xs],
        Value(y),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [True, False])
def test_values_among_the_data_have_them(form, before):
    """Also after calls that passed numbers there, and in machine code."""
    fast = chainrule.compile(convolution, lift=True)
    for times in range(4):
        if before:
            fast.value_and_grad(PARAMETERS, XS, 0.3)
            fast(PARAMETERS, XS.tolist(), 0.3)
        found, wanted = [], []
        for f, to in ((fast, found), (convolution, wanted)):
            arguments = FORMS[form](XS + 0.1 * times, 0.3)
            f(*arguments).backward()
            to.extend(values_in(arguments))
        assert wanted
        assert any(x.grad for x in wanted)
        for x, y in zip(found, wanted, strict=True):
            assert x.grad == pytest.approx(y.grad, rel=1e-10, abs=1e-13)


def values_in(tree):
    if isinstance(tree, Value):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        return []
    return [x for item in tree for x in values_in(item)]


def test_values_in_a_record_and_by_keyword():
    def f(p, *, sample):
        return convolution(p, sample.xs, sample.y)

    fast = chainrule.compile(f, lift=True)
    for _ in range(4):
        grads = []
        for function in (fast, f):
            y = Value(0.7)
            function(PARAMETERS, sample=Sample(XS.tolist(), y)).backward()
            grads.append(y.grad)
        assert grads[0] == pytest.approx(grads[1], rel=1e-12)


def test_a_slope_by_data_that_is_infinite_is_nobodys_concern():
    """The root of 0 has no slope there; that of the parameter is 0, and machine code gives it."""

    def f(p, xs):
        return sum(tanh(w) * x**0.5 for w, x in zip(p["v"], xs, strict=True)) * p["k"][0][0]

    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    for xs in (np.ones(4), np.zeros(4), np.array([0.0, 1.0, 2.0, 0.0]), np.zeros(4)):
        same(fast.value_and_grad(PARAMETERS, xs), eager(PARAMETERS, xs))
    assert View(fast).ran_machine_code


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_saved_function_has_the_bits_of_the_first(tmp_path, dtype):
    fast = chainrule.compile(convolution, lift=True, dtype=dtype)
    fast.value_and_grad(PARAMETERS, XS, 0.3)
    fast.save(tmp_path / "f.chainrule")
    loaded = chainrule.load(tmp_path / "f.chainrule")
    for _ in range(40):  # until it has machine code, too
        found, wanted = (f.value_and_grad(PARAMETERS, XS, 0.25) for f in (loaded, fast))
    assert found[0] == wanted[0]
    for name, array in wanted[1].items():
        assert found[1][name].tobytes() == array.tobytes()
