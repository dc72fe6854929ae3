"""Functions that keep their results: asked again at every call, and refused where time matters."""

import functools

import pytest

import chainrule

SCALE = 2.0


@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@functools.cache
def window(n):
    return [1.0 / (k + 1) for k in range(n)]


@functools.lru_cache
def scaled(n):
    return n * SCALE


@functools.cache
def product(a, b):
    return a * b


@functools.cache
def doubled(x):
    return x * 2


def summed(w, n):
    return sum(fibonacci(k + n) * a * a for k, a in enumerate(w))


def weighted(w, n):
    return sum(a * b for a, b in zip(w, window(n), strict=False)) ** 2


def changing(w, n):
    weights = window(n)
    weights.append(1.0)
    return w[0] * len(weights)


@pytest.mark.parametrize("function", [summed, weighted])
def test_kept_results_are_recorded_for_each_argument(function):
    fast = chainrule.compile(function, on_fallback="raise")
    eager = chainrule.value_and_grad(function)
    for k in range(40):
        arguments = [0.1 * k, 0.5, -0.25 * k, 1.0], k % 4
        assert fast.value_and_grad(*arguments) == eager(*arguments)
    assert "; 4 recordings" in fast.report()
    assert type(fibonacci) is type(functools.cache(len))


def test_what_a_cache_gives_now_counts():
    fast = chainrule.compile(weighted)
    fast.value_and_grad([1.0, 2.0], 2)
    assert fast.value_and_grad([1.0, 2.0], 2)[0] == 4.0
    window(2)[0] = 3.0  # whoever keeps the list may change it
    try:
        assert fast.value_and_grad([1.0, 2.0], 2)[0] == 16.0
    finally:
        window.cache_clear()
    assert fast.value_and_grad([1.0, 2.0], 2)[0] == 4.0


def test_a_recorded_run_leaves_a_kept_list_as_it_was():
    fast = chainrule.compile(changing, on_fallback="eager")
    window.cache_clear()
    assert [fast.value_and_grad([1.0], 2)[0] for _ in range(3)] == [3.0, 4.0, 5.0]
    window.cache_clear()


def test_a_function_that_reads_more_than_its_arguments_runs_eagerly():
    global SCALE
    fast = chainrule.compile(lambda w: w * scaled(3), on_fallback="eager")
    assert fast.value_and_grad(1.0)[0] == 6.0
    SCALE = 5.0
    assert fast.value_and_grad(1.0)[0] == 6.0  # as the cache says
    scaled.cache_clear()
    assert fast.value_and_grad(1.0)[0] == 15.0
    SCALE = 2.0
    scaled.cache_clear()


def test_values_are_not_kept():
    fast = chainrule.compile(lambda w: doubled(w) + 1.0, on_fallback="eager")
    assert fast.value_and_grad(2.0) == (5.0, 2.0)
    assert doubled.cache_info().currsize == 1
    doubled.cache_clear()


def test_equal_arguments_of_another_type_may_share_a_result():
    @chainrule.compile
    def f(w, n):
        return w * product(n, 2)

    product.cache_clear()
    assert product(True, 2) == 2  # and so is what 1 gives from now on
    assert f.value_and_grad(1.0, 1) == (2.0, 2.0)
    assert f.value_and_grad(3.0, 1) == (6.0, 2.0)
    product.cache_clear()
