"""Functions that may catch what their arithmetic raises have no source; others that catch do."""

import contextlib

import numpy as np
import pytest

import chainrule
from chainrule import TranslationError, log

ERROR = ZeroDivisionError
TABLE = {1: 2.0}


class Swallow:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


@contextlib.contextmanager
def swallowing():
    try:  # noqa: SIM105
        yield
    except ArithmeticError:
        pass


def by_except(p, x):
    try:
        return p[0] / x
    except ZeroDivisionError:
        return p[0] * 100


def by_a_second_except(p, x):
    try:
        return p[0] / x
    except (KeyError, IndexError):
        return p[0]
    except (TypeError, ArithmeticError) as error:
        return p[0] * len(str(error))


def by_a_bare_except(p, x):
    try:
        return p[0] / x
    except KeyError:
        return p[0]
    except:  # noqa: E722
        return p[0] * 100


def by_another_name(p, x):
    try:
        return p[0] / x
    except ERROR:
        return p[0] * 100


def by_suppress(p, x):
    y = p[0] * 100
    with contextlib.suppress(ZeroDivisionError):
        y = p[0] / x
    return y


def by_a_manager(p, x):
    y = p[0] * 100
    with Swallow():
        y = p[0] / x
    return y


def by_a_generator(p, x):
    y = p[0] * 100
    with swallowing():
        y = p[0] / x
    return y


def by_finally(p, x):
    try:
        return p[0] / x
    finally:
        return p[0] * 100  # noqa: B012, SIM107


def by_a_helper(p, x):
    return by_except(p, x) + 1.0


def hidden_by_the_rest(p, x):
    return 1.0 / (1.0 + by_except(p, x))


CATCHING = [
    *(by_except, by_a_second_except, by_a_bare_except, by_another_name, by_suppress),
    *(by_a_manager, by_a_generator, by_finally, by_a_helper, hidden_by_the_rest),
]


@pytest.mark.parametrize("specialise", [False, True])
@pytest.mark.parametrize("f", CATCHING)
def test_what_may_catch_an_error_of_arithmetic_is_refused_with_its_line(f, specialise):
    with pytest.raises(TranslationError, match=r"may catch an error of arithmetic, at test_caugh"):
        chainrule.compile(f).to_numpy([2.0], 1.0, specialise=specialise)


@pytest.mark.parametrize("f", [by_except, hidden_by_the_rest])
def test_so_it_is_in_c_and_for_several_examples(f):
    with pytest.raises(TranslationError, match="may catch an error"):
        chainrule.compile(f).to_c([2.0], 1.0)
    with pytest.raises(TranslationError, match="may catch an error"):
        chainrule.compile(f).to_numpy([2.0], 1.0, specialise=[([2.0], 2.0)])


def of_keys(p, x):
    try:
        scale = TABLE[2]
    except (KeyError, IndexError):
        scale = 3.0
    return p[0] / x * scale


def without_gradient(p, x):
    with chainrule.no_grad():
        y = p[0] / x
    return y + p[0]


def cleaning_up(p, x):
    try:
        y = log(p[0]) / x
    finally:
        z = x * 2.0
    return y + z


@pytest.mark.parametrize("f", [of_keys, without_gradient, cleaning_up])
def test_what_catches_no_error_of_arithmetic_has_a_source(f):
    model = chainrule.compile(f).to_numpy([2.0], 1.0)
    assert model([3.0], 4.0) == pytest.approx(f([3.0], 4.0))


def test_a_negative_exponent_is_another_case():
    def power(p, n):
        return p[0] ** n + 2**n * p[1]

    model = chainrule.compile(power).to_numpy([2.0, 1.0], 2, specialise=True)
    assert model([3.0, 2.0], 2) == (17.0, True)
    result, valid = model([2.0, 1.0], -1)
    assert np.isfinite(result)
    assert not valid
