"""Random programs over all operations against two oracles: mpmath at 60 digits and HIPS autograd.

A gradient is compared where it is well conditioned: where relative noise on every number read or
made changes it by at most WELL_CONDITIONED times that noise (high_precision.py measures it).
Rounding is noise of 1.1e-16, so 1e-12 leaves a margin of ten for what partials and long sums add.
"""

import math
from random import Random

import autograd
import autograd.numpy as anp
import high_precision
import pytest
from hypothesis import given
from number_systems import AUTOGRAD, METHODS, NAMES, chainrule_functions
from programs import ALL_OPS, Program, count, programs, random_program, run

from chainrule import Value, gradients

WELL_CONDITIONED = 1_000
TOLERANCE = 1e-12
FUNCTIONS = chainrule_functions()


def our_gradient(program: Program, functions=FUNCTIONS):
    leaves = [Value(x) for x in program.inputs]
    output = run(program, leaves, functions)[-1]
    output.backward()
    return output, [leaf.grad for leaf in leaves]


def autograd_gradient(program: Program):
    def f(xs):
        leaves = [xs[i] for i in range(len(program.inputs))]
        return run(program, leaves, AUTOGRAD)[-1] + 0.0 * xs[0]  # else it warns of a constant

    return autograd.grad(f)(anp.array(program.inputs, dtype=float))


def seeded(name: str, number: int):
    return [random_program(Random(f"{name} {i}"), ALL_OPS, 3, 16) for i in range(number)]


def check_against_mpmath(program: Program) -> tuple[int, int]:
    """Asserts the well-conditioned components; returns how many those were, of how many."""
    exact = high_precision.gradient(program)
    conditions = high_precision.gradient_condition(program, exact)
    _, ours = our_gradient(program)
    checked = 0
    for i, condition in enumerate(conditions):
        if condition <= WELL_CONDITIONED:
            checked += 1
            error = high_precision.relative_error(ours[i], exact[i])
            assert error <= TOLERANCE, (program, i, ours[i], exact[i], condition)
    return checked, len(conditions)


@pytest.mark.parametrize("block", range(4))
def test_gradients_agree_with_mpmath(block):
    results = [check_against_mpmath(p) for p in seeded(f"mp {block}", count(ci=150, soak=2_500))]
    checked, of = (sum(column) for column in zip(*results, strict=True))
    assert checked >= 0.9 * of, "the criterion must not skip what it should test"


@given(programs(ALL_OPS, inputs=2, instructions=6))
def test_gradients_of_drawn_programs_agree_with_mpmath(program):
    checked, of = check_against_mpmath(program)
    assert 0 <= checked <= of


@pytest.mark.parametrize("block", range(4))
def test_gradients_agree_with_autograd(block):
    checked = of = 0
    for program in seeded(f"hips {block}", count(ci=150, soak=2_500)):
        exact = high_precision.gradient(program)
        conditions = high_precision.gradient_condition(program, exact)
        _, ours = our_gradient(program)
        theirs = autograd_gradient(program)
        for i, condition in enumerate(conditions):
            of += 1
            if condition <= WELL_CONDITIONED:
                checked += 1
                absolute = (
                    1e-13 if abs(exact[i]) < 1e-30 else 0.0
                )  # both round what is exactly zero
                expected = pytest.approx(theirs[i], rel=TOLERANCE, abs=absolute)
                assert ours[i] == expected, (program, i)
    assert checked >= 0.9 * of


def test_seeded_programs_use_every_operation():
    seen = {i.op for p in seeded("mp 0", 160) for i in p.instructions}
    assert seen == set(ALL_OPS.rules)
    assert set(NAMES) <= seen


def test_functions_and_methods_build_the_same_graph():
    unary = [name for name in NAMES if name in ALL_OPS.rules and ALL_OPS.rules[name].arity == 1]
    for name in unary:
        x = 1.5 if name == "acosh" else 0.4
        parameters = {"clip": (-1.0, 1.0), "leaky_relu": (0.1,)}.get(name, ())
        if name == "clip":
            continue  # a function only
        by_function = FUNCTIONS[name](Value(x), *parameters)
        by_method = abs(Value(x)) if name == "abs" else METHODS[name](Value(x), *parameters)
        assert by_function.data == by_method.data, name
        assert by_function.local_grads == by_method.local_grads, name
        assert by_function.op == by_method.op, name


def test_functions_of_floats_are_the_data_of_functions_of_values():
    for program in seeded("floats", 100):
        values = run(program, map(Value, program.inputs), FUNCTIONS)
        floats = run(program, program.inputs, FUNCTIONS)
        # a - b of floats is one rounding, of Values the seeds' a + (-b): the same. a / b is not.
        for v, x in zip(values, floats, strict=True):
            number = v.data if isinstance(v, Value) else v
            assert number == pytest.approx(x, rel=1e-10, abs=1e-12)


def test_gradients_function_equals_backward():
    for program in seeded("transform", 100):
        leaves = [Value(x) for x in program.inputs]
        output = run(program, leaves, FUNCTIONS)[-1]
        by_function = [float(g) for g in gradients(output, leaves)]
        assert all(leaf.grad == 0.0 for leaf in leaves)
        output.backward()
        assert by_function == [leaf.grad for leaf in leaves]
        assert all(math.isfinite(g) for g in by_function)
