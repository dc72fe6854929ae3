"""One operation is one row: everything else finds a row that is added now."""

import sys

import mpmath
import numpy as np
import pytest
from temporary_rows import temporary_row

import chainrule
from chainrule import Value, check_gradients, draw, explain, explore, grad, gradients, hessian
from chainrule.cli import main
from chainrule.core import ops


@pytest.fixture(autouse=True)
def softsign():
    with temporary_row(
        "softsign",
        "x / (1 + |x|)",
        lambda x: ops.div(x, 1.0 + ops.abs(x)),
        lambda y, x: ops.div(1.0, (1.0 + ops.abs(x)) * (1.0 + ops.abs(x))),
    ) as row:
        yield row


def test_as_a_function():
    assert chainrule.softsign(3.0) == 0.75
    assert chainrule.softsign(np.array([1.0, -3.0])).tolist() == [0.5, -0.75]
    y = chainrule.softsign(Value(-1.0))
    assert (y.data, y.op, y.local_grads) == (-0.5, "softsign", (0.25,))
    assert "softsign" in dir(chainrule)
    assert "x / (1 + |x|)" in chainrule.softsign.__doc__


def test_as_a_method_that_is_differentiated():
    x = Value(1.0)
    y = x.softsign() * 8.0
    y.backward()
    assert (y.data, x.grad, gradients(y, x)) == (4.0, 2.0, 2.0)
    assert grad(lambda v: v.softsign())(1.0) == 0.25
    assert hessian(lambda v: v.softsign())(1.0) == pytest.approx(-0.25)  # -2 / (1 + x)³


def test_as_a_row_with_parameters():
    with temporary_row(
        "softsign_of_two",
        "scale·a / (1 + |b|)",
        lambda a, b, scale: ops.div(scale * a, 1.0 + ops.abs(b)),
        lambda y, a, b, scale: ops.div(scale, 1.0 + ops.abs(b)),
        lambda y, a, b, scale: ops.where(b > 0, -1.0, 1.0) * ops.div(y, 1.0 + ops.abs(b)),
        parameters=("scale",),
        defaults=(2.0,),
    ):
        a, b = Value(3.0), Value(1.0)
        calls = [
            chainrule.softsign_of_two(a, b, scale=4.0),
            chainrule.softsign_of_two(a, b, 4.0),
            a.softsign_of_two(b, 4.0),
        ]
        assert [(y.data, y.local_grads) for y in calls] == [(6.0, (2.0, -3.0))] * 3
        assert chainrule.softsign_of_two(3.0, 1.0) == 3.0
        with pytest.raises(TypeError, match="missing a required argument: 'b'"):
            chainrule.softsign_of_two(3.0)
        check_gradients(lambda a, b: a.softsign_of_two(b, 0.5), 3.0, -1.5)


def test_in_what_people_look_at():
    x = Value(1.0, label="x")
    y = x.softsign()
    assert explain(y).forward[-1].formula == "softsign(x)"
    (contribution,) = explain(y).backward[0].contributions
    assert contribution.formula == "1 / ((1 + abs(x)) * (1 + abs(x)))"
    assert "softsign" in draw(y).svg
    assert "softsign" in draw(y).dot
    assert "softsign" in explore(y).html


def test_in_checks_and_errors():
    assert check_gradients(lambda a: a.softsign(), 0.7).ok
    assert not check_gradients(lambda a: a.softsign(), 0.0).wrong
    with pytest.raises(TypeError, match="an operand of softsign must be a real number"):
        chainrule.softsign("3")


@pytest.mark.parametrize("name", ["explain", "draw", "check"])
def test_on_the_command_line(name, monkeypatch, capsys, tmp_path):
    out = ["-o", str(tmp_path / "graph.svg")] if name == "draw" else []
    monkeypatch.setattr(sys, "argv", ["chainrule", name, "softsign(a) * b", "a=2", "b=3", *out])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code, capsys.readouterr().err


@pytest.mark.parametrize("lift", [False, True])
def test_on_the_tape_and_in_machine_code(lift):
    def f(p):
        return sum((p[i] * p[i + 6]).softsign() * p[i] for i in range(6))

    fast = chainrule.compile(f, lift=lift, on_fallback="raise")
    for seed in range(3):
        p = np.random.default_rng(seed).normal(size=12)
        value, slopes = fast.value_and_grad(p)
        wanted, by_eager = chainrule.value_and_grad(f)(p)
        assert value == pytest.approx(wanted, rel=1e-13)
        np.testing.assert_allclose(slopes, by_eager, rtol=1e-12, atol=1e-14)
    assert ("lifted to" in fast.report()) == lift
    assert "0 eager" in fast.report()


def test_its_value_is_right_to_the_last_digits(softsign):
    for x in np.random.default_rng(0).normal(size=100):
        assert softsign(x) == pytest.approx(float(mpmath.mpf(x) / (1 + abs(mpmath.mpf(x)))))
