"""Integer arguments as exponents and in functions of integers: eager's numbers, bits and errors."""

import math
import random

import numpy as np
import pytest
from compile_twins import outcome, recordings

import chainrule

pytestmark = pytest.mark.usefixtures("unchecked")


def compared(f, exponents, lift=None, count=60):
    """The function compiled, after calls with these exponents that gave eager's results."""
    rng = random.Random(f.__name__)
    fast = chainrule.compile(f, on_fallback="eager", lift=lift)
    eager = chainrule.value_and_grad(f)
    for _ in range(count):
        p = [rng.choice((rng.uniform(-2, 2), rng.uniform(0.1, 2), 0.0)) for _ in range(3)]
        arguments = p, rng.choice(exponents)
        got, wanted = outcome(fast.value_and_grad, *arguments), outcome(eager, *arguments)
        if isinstance(wanted[0], str) or lift is False:  # of the tape, every bit
            assert got == wanted
            continue
        assert type(got[0]) is type(wanted[0])
        assert got[0] == pytest.approx(wanted[0], rel=1e-12, abs=1e-13)
        assert got[1] == pytest.approx(wanted[1], rel=1e-12, abs=1e-13)
    return fast


def of_a_value(p, n):
    return p[0] ** n + p[1] ** 2


def of_a_sum(p, n):
    return sum(p[0] ** (n + i) * p[i] for i in range(3))


def of_a_number(p, n):
    return sum(p) / 2.0**n + p[0] * (-0.5) ** n


def of_integers(p, n):
    return p[0] * 2**n + p[1] * (-1) ** n + p[2 ** abs(n) % 3]


def of_the_integer(p, n):
    return p[0] * n**0.5 + p[1] * n**-1 + p[2] * n**2


def by_math(p, n):
    return p[0] * math.pow(1.5, n) + p[1] * math.pow(n, 2) + p[2] * math.pow(abs(n), 0.5)


def by_builtin(p, n):
    return pow(p[0], n) + pow(2.0, n) + p[1] * pow(n, 3, 7)


def of_functions(p, n):
    return p[0] * math.factorial(n) + p[1] * math.comb(n, 2) + p[2] * math.comb(6, n)


def of_gammas(p, n):
    return p[0] * math.lgamma(n + 1) + p[1] * math.gamma(n)


def by_a_truth(p, n):
    return p[0] ** (n > 2) + 2.0 ** (n > 1) + p[1] * 2 ** (n > 0)


def by_numpy(p, n):
    return p[0] ** np.int64(n) * 1.0


def in_branches(p, n):
    return p[0] ** n if n > 2 else p[1] ** (n + 1)


def differentiated(p, n):
    return chainrule.grad(lambda x: x**n)(p[0]) * p[1]


def of_data(p, n):
    return p[0] * p[1].data ** n


ALL = [
    *(of_a_value, of_a_sum, of_a_number, of_integers, of_the_integer, by_math, by_builtin),
    *(of_functions, of_gammas, by_a_truth, by_numpy, in_branches, differentiated, of_data),
]


@pytest.mark.parametrize("lift", [None, True, False])
@pytest.mark.parametrize("f", ALL)
def test_results_and_errors_are_eagers(f, lift):
    compared(f, range(-4, 9), lift)


@pytest.mark.parametrize(
    "f", [of_a_value, of_a_number, of_integers, by_math, of_functions, of_gammas]
)
def test_large_exponents_overflow_as_in_eager_mode(f):
    compared(f, (0, 1, 52, 53, 54, 63, 64, 65, 100, 1100, -1100))


@pytest.mark.parametrize("f", [of_a_value, of_a_sum])
def test_the_second_exponent_of_a_value_is_recorded_for_all(f):
    assert recordings(compared(f, range(1, 9))) == 2


@pytest.mark.parametrize(
    "f", [of_a_number, of_integers, of_the_integer, by_math, of_functions, of_gammas]
)
def test_one_recording_answers_all_exponents_of_numbers(f):
    assert recordings(compared(f, range(1, 9))) == 1


def test_an_exponent_that_stays_the_same_is_part_of_the_instruction():
    fast = chainrule.compile(lambda p, n: p**n)
    for x in (1.5, -2.5, 0.5):
        assert fast.value_and_grad(x, 3) == chainrule.value_and_grad(lambda x: x**3)(x)
    assert "pow %0 3" in fast.report(stage="recorded")


def test_a_saved_recording_raises_to_the_same_powers(tmp_path):
    fast = compared(of_a_value, range(1, 9))
    fast.save(tmp_path / "powers.chainrule")
    loaded = chainrule.load(tmp_path / "powers.chainrule")
    for n in range(1, 9):
        arguments = [0.7, -1.2, 0.4], n
        assert loaded.value_and_grad(*arguments) == fast.value_and_grad(*arguments)


def test_many_exponents_are_mapped_at_once():
    fast = chainrule.compile(lambda p, n: p**n)
    for base in (1.5, -1.5):
        values, slopes = fast.map_value_and_grad(base, np.arange(1, 40))
        assert list(values) == pytest.approx([base**n for n in range(1, 40)], rel=1e-12)
        expected = [n * base ** (n - 1) for n in range(1, 40)]
        assert list(slopes) == pytest.approx(expected, rel=1e-12)
