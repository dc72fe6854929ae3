"""Second derivatives of random programs: symmetric, and as mpmath and HIPS autograd have them."""

from random import Random

import autograd
import autograd.numpy as anp
import high_precision
import numpy as np
import pytest
from number_systems import AUTOGRAD, chainrule_functions
from programs import ALL_OPS, Program, count, random_program, run

from chainrule import hessian, hvp

FUNCTIONS = chainrule_functions()


def our_function(program: Program):
    return lambda xs: run(program, list(xs), FUNCTIONS)[-1]


def their_function(program: Program):
    def f(xs):
        leaves = [xs[i] for i in range(len(program.inputs))]
        flat = 0.0 * anp.sum(xs * xs)  # else autograd warns of a constant
        return run(program, leaves, AUTOGRAD)[-1] + flat

    return f


@pytest.mark.parametrize("block", range(4))
def test_hessians_of_random_programs_agree_with_mpmath_and_are_symmetric(block):
    checked = of = 0
    for i in range(count(ci=50, soak=500)):
        program = random_program(Random(f"hessian {block} {i}"), ALL_OPS, 3, 10)
        ours = np.asarray(hessian(our_function(program))(np.array(program.inputs)))
        exact = high_precision.hessian(program)
        disturbed = [high_precision.hessian(program, noise=f"n {k}") for k in range(3)]
        n = len(program.inputs)
        assert ours.shape == (n, n)
        scale = np.abs(ours).max()
        np.testing.assert_allclose(ours, ours.T, rtol=1e-9, atol=1e-10 * scale)
        for row, column in np.ndindex(n, n):
            entry = exact[row][column]
            condition = max(high_precision.amplification(entry, d[row][column]) for d in disturbed)
            of += 1
            if condition <= 1_000:  # as in test_oracles.py; a second order sums over more paths
                checked += 1
                error = high_precision.relative_error(float(ours[row, column]), entry)
                assert error <= 1e-11, (program, row, column, float(entry), condition)
    assert checked >= 0.8 * of


def test_hessians_of_random_programs_agree_with_autograd():
    checked = 0
    for i in range(count(ci=30, soak=300)):
        program = random_program(Random(f"hips hessian {i}"), ALL_OPS, 3, 8)
        x = np.array(program.inputs)
        n = len(x)
        theirs = autograd.hessian(their_function(program))(anp.array(x))
        ours = np.asarray(hessian(our_function(program))(x))
        scale = max(np.abs(theirs).max(), 1e-3)
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10 * scale)
        checked += bool(np.abs(theirs).max() > 0)
        v = np.linspace(-1.0, 1.0, n)
        product = np.asarray(hvp(our_function(program))(x, v))
        np.testing.assert_allclose(product, ours @ v, rtol=1e-9, atol=1e-10 * scale * n)
    assert checked >= 20
