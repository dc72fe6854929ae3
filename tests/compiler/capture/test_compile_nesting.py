"""Compiled functions inside compiled functions, and in several threads at once."""

import builtins
import itertools
import sys
import threading
import time

import numpy as np
import pytest
from compile_twins import (
    P,
    by_numbers,
    graded,
    numbers,
    plain,
    same,
)

import chainrule
from chainrule import Value, vsum
from chainrule.compiler.capture import known


def test_a_compiled_function_inside_a_compiled_function():
    def script(compile):
        w = Value(2.0)
        inner = compile(lambda x: (x * w).tanh() if x > 0 else x * 3)
        outer = compile(lambda x, n: inner(x) * inner(x * -1) + n)
        x = Value(0.5)
        for x.data, n in [(0.5, 1), (-0.5, 2), (0.7, 3)]:
            yield graded(outer(x, n), x, w)
            yield graded(inner(x), x, w)
            w.data += 0.5

    ran = same(script)
    assert ran.eager == 0


def test_a_plain_number_or_a_value_may_be_the_largest():
    def script(compile):
        fast = compile(lambda x: max(0.0, x))
        for number in (1.0, -1.0, 2.0, -2.0):
            result = fast(Value(number))
            yield result.data if isinstance(result, Value) else result
            yield fast.value_and_grad(number)

    same(script)


def test_what_an_inner_compiled_function_captures_is_seen_by_the_outer_one():
    def script(compile):
        factor, w = [2.0], Value(3.0)
        inner = compile(lambda x: x * factor[0] * w)
        outer = compile(lambda x: inner(x) + 1)
        x = Value(0.5)
        yield graded(outer(x), x, w)
        factor[0] = 5.0
        yield graded(outer(x), x, w)
        w = Value(-1.0)
        yield graded(outer(x), x, w)

    same(script)


def test_gradients_of_a_compiled_function_inside_a_compiled_function():
    def script(compile):
        inner = compile(lambda x: x * x * x)

        def f(x):
            value, slope = inner.value_and_grad(x)
            return x * slope + value

        outer = compile(f)
        x = Value(0.5)
        for x.data in (0.5, 2.0, -1.0):
            yield graded(outer(x), x)
        yield type(x.data) is float

    same(script)


def test_compiling_inside_a_compiled_function():
    def script(compile):
        def f(x):
            return chainrule.compile(lambda v: v * v, on_fallback="eager")(x) + 1

        outer = compile(f)
        x = Value(0.5)
        for x.data in (0.5, 2.0, -1.0):
            yield graded(outer(x), x)

    same(script)


def test_compiling_a_compiled_function_is_no_change():
    fast = chainrule.compile(lambda x: x * 2)
    assert chainrule.compile(fast) is fast


def test_captured_interior_values_beside_their_own_inputs():
    def script(compile):
        p = Value(2.0)
        q = p * 3
        fast = compile(lambda x: p * q * x)
        x = Value(1.5)
        yield graded(fast(x), x, p)
        yield graded(fast(x), x, p)
        passed = compile(lambda a, b, x: a * b * x)
        yield graded(passed(p, q, x), x, p)
        yield graded(passed(q, p, x), x, p)
        yield graded(passed(q, q * p, x), x, p)

    assert same(script).eager == 0


def test_a_captured_result_of_backward_passes_is_a_plain_input():
    def script(compile):
        p = Value(2.0)
        q = p * p
        fast = compile(lambda x: q * x)
        x = Value(1.5)
        yield graded(fast(x), x, p)
        q.data = 100.0
        yield graded(fast(x), x, p)
        p.data = 7.0
        yield graded(fast(x), x, p)

    assert same(script).eager == 0


def in_threads(*tasks):
    errors, barrier = [], threading.Barrier(len(tasks))

    def run(task):
        try:
            barrier.wait()
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


def behind_our_back(x, y):
    return x * y[0] + x._number * y[0]._number


@pytest.mark.parametrize("passed", ["alone", "and captured"])
def test_passed_values_are_nudged_while_another_thread_lives(passed):
    """As in a notebook, which always has several. Only the copies are nudged."""
    stop, seen = threading.Event(), set()
    x, y = numbers(1.0, 2.0)
    f = behind_our_back if passed == "alone" else lambda x, ys: behind_our_back(x, ys) * y

    def watch():
        while not stop.is_set():
            seen.update((x.data, y.data))
            time.sleep(0.0)

    def script(compile):
        fast = compile(f)
        for number in (1.0, 2.0, 3.0):
            yield graded(fast(Value(number), [y]), y)
            yield fast(x, [Value(number)])
            yield fast.value_and_grad(number, [y])

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        ran = same(script)
    finally:
        stop.set()
        thread.join()
    assert ran.replayed == 0
    assert seen == {1.0, 2.0}


def test_two_threads_compile_and_call_one_function():
    def loss(p, tokens):
        y = vsum(p[t] * (i + 1) for i, t in enumerate(tokens))
        return max(y * 2, y * y) if y > 0 else min(y, -y) * 3

    for round_number in range(5):
        fast = chainrule.compile(loss, on_fallback="eager")
        results = {}

        def work(name, fast=fast, results=results, round_number=round_number):
            rng = np.random.default_rng([round_number, name])
            found = []
            for _ in range(30):
                p, tokens = rng.normal(size=4), rng.integers(0, 4, size=rng.integers(1, 4)).tolist()
                values = numbers(*p)
                y = loss(values, tokens)
                y.backward()
                wanted = y.data, np.array([v.grad for v in values])
                found.append(plain(fast.value_and_grad(p, tokens)) == plain(wanted))
            results[name] = found

        in_threads(*[lambda name=name, work=work: work(name) for name in range(4)])
        assert all(all(found) for found in results.values())
        assert len(results) == 4


def test_two_threads_compile_different_functions_over_shared_parameters():
    """Recording nudges captured Values for a moment; no other thread may compute with that."""
    p = numbers(*P)
    wrong = []

    def work(k):
        for i in range(12):
            fast = chainrule.compile(
                lambda t, k=k, i=i: p[t] * p[(t + k) % 6] + i, on_fallback="eager"
            )
            for t in (0, 3, 5):
                expected = P[t] * P[(t + k) % 6] + i
                found = fast(t).data
                if found != expected:
                    wrong.append((found, expected))

    in_threads(*[lambda k=k: work(k) for k in range(3)])
    assert not wrong
    assert [v.data for v in p] == P


def test_recording_in_one_thread_does_not_disturb_eager_code_in_another(monkeypatch):
    monkeypatch.setattr(known, "_PURE_MODULES", known._PURE_MODULES | {"time"})
    p = Value(2.0)
    seen, done = [], []

    def f(x):
        time.sleep(0.02)
        return x * p + max(x, p)

    def other():
        while not done:
            seen.append((p.data, max(Value(1.0), Value(2.0)).data, max(3, 5), type(p.data)))
            time.sleep(0.001)

    def compiled():
        fast = chainrule.compile(f, on_fallback="eager")
        try:
            assert fast(Value(3.0)).data == 9.0
            assert "1 replayed" in fast.report()
        finally:
            done.append(True)

    in_threads(compiled, other)
    assert set(seen) == {(2.0, 2.0, 5, float)}
    assert len(seen) > 10


def test_eager_fallback_in_threads_is_not_serialised_into_a_deadlock():
    def script_a(x):
        return x * float(x.data)

    a = chainrule.compile(script_a, on_fallback="eager")
    b = chainrule.compile(lambda x: a(x) * float(x.data), on_fallback="eager")
    results = []

    def work(f, n):
        for _ in range(20):
            results.append(f.value_and_grad(float(n))[0])

    in_threads(lambda: work(a, 2), lambda: work(b, 3), lambda: work(a, 3), lambda: work(b, 2))
    assert sorted(set(results)) == [4.0, 8.0, 9.0, 27.0]


def square(v):
    return v * v


def hinge(v):
    return v.relu()


def test_recording_inside_a_recording_does_not_end_it():
    def f(x):
        y = x * 3
        slope = chainrule.compile(square, on_fallback="eager").value_and_grad(2.0)[1]
        if x.data > 0:
            return y + slope * 0
        return y * 10

    def early(x):
        y = x * 3
        chainrule.compile(square, on_fallback="eager").value_and_grad(2.0)
        if x.data > 0:
            return y
        return y * 10

    same(by_numbers(f, (1.0,), (-1.0,), (2.0,)))
    same(by_numbers(early, (1.0,), (-1.0,), (2.0,)))


def test_a_slope_computed_inside_is_not_frozen():
    inner = chainrule.compile(hinge, on_fallback="eager")

    def by_compiled(x):
        return x * (1 + inner.value_and_grad(x)[1])

    def by_batch(x):
        return x * (1 + inner.batch_value_and_grad(x, [()])[1])

    def by_grad(x):
        return x * (1 + chainrule.grad(hinge)(x))

    def by_numbers_only(x):
        return x * (1 + chainrule.gradients(x.relu(), x))

    def by_value_and_grad(x):
        return x * (1 + chainrule.value_and_grad(hinge)(x)[1])

    def by_jacobian(x):
        return x * (1 + chainrule.jacobian(lambda v: [hinge(v[0])])([x])[0][0])

    def by_data(x):
        return x * (1 + chainrule.grad(hinge)(float(x.data)))

    for f in (
        by_compiled,
        by_batch,
        by_grad,
        by_numbers_only,
        by_value_and_grad,
        by_jacobian,
        by_data,
    ):
        same(by_numbers(f, (1.0,), (-1.0,), (2.0,)))


def test_recordings_that_overlap_put_everything_back(monkeypatch):
    monkeypatch.setattr(known, "_PURE_MODULES", known._PURE_MODULES | {"time"})
    before = builtins.max, builtins.min, sys.stdout
    functions = [
        chainrule.compile(lambda x: (time.sleep(0.05), max(x, x * 2))[1], on_fallback="eager"),
        chainrule.compile(lambda x: (time.sleep(0.11), max(x, x * 3))[1], on_fallback="eager"),
    ]
    results = []

    def run(k):
        time.sleep(0.02 * k)
        results.append(functions[k](Value(1.0)).data)

    in_threads(lambda: run(0), lambda: run(1))
    assert sorted(results) == [2.0, 3.0]
    assert all("1 replayed" in f.report() for f in functions)
    assert (builtins.max, builtins.min, sys.stdout) == before


def test_functions_that_call_each_other_eagerly_in_two_threads_do_not_wait_for_ever():
    def even(x, n):
        float(x.data)
        return x * 1 if n == 0 else odd(x, n - 1) * 2

    def odd(x, n):
        float(x.data)
        return x * 1 if n == 0 else even(x, n - 1) * 3

    even, odd = (chainrule.compile(f, on_fallback="eager") for f in (even, odd))
    results = []

    def work(f):
        for _ in range(100):
            results.append(f.value_and_grad(2.0, 4)[0])

    in_threads(lambda: work(even), lambda: work(odd))
    assert set(results) == {72.0}
    assert len(results) == 200


def test_a_function_used_by_threads_of_its_own_does_not_wait_for_ever():
    from concurrent.futures import ThreadPoolExecutor

    inner = chainrule.compile(square, on_fallback="eager")

    def f(x):
        with ThreadPoolExecutor(2) as pool:
            return vsum(pool.map(inner, [x, x * 2])) + x

    fast = chainrule.compile(f, on_fallback="eager")
    results = []

    def work():
        x = Value(1.0)
        for x.data in (1.0, 2.0, -3.0):
            results.append(graded(fast(x), x))

    in_threads(work)
    assert results == [[6.0, 11.0], [22.0, 21.0], [42.0, -29.0]]


def test_a_derivative_that_depends_on_a_value_from_outside_is_a_value():
    """As a number it would lose its gradient, compiled as well as not."""
    a = Value(2.0)

    def outer(q):
        return a * q * q

    fast = chainrule.compile(outer)
    with pytest.warns(chainrule.FallbackWarning, match="uses the Value a from outside"):
        value, slope = fast.value_and_grad(3.0)
    (slope * a).backward()
    assert (value.data, slope.data, a.grad) == (18.0, 12.0, 24.0)
    number = a.data
    assert chainrule.compile(lambda q: number * q * q).value_and_grad(3.0) == (18.0, 12.0)


def test_a_value_from_outside_whose_gradient_does_not_count_is_no_hindrance():
    a = Value(2.0)
    fast = chainrule.compile(lambda q: (q * a.data if a > 1.0 else q) * q, on_fallback="raise")
    assert fast.value_and_grad(3.0) == (18.0, 12.0)


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_plain_numbers_are_recorded(order):
    """``compile(grad(f))``: how the derivative is computed is part of the recording."""

    def f(x):
        return sum(a * b.tanh() + (a - 0.5) ** 3 / (1.0 + b * b) for a, b in itertools.pairwise(x))

    slope = chainrule.grad(f)
    if order == 2:
        slope = chainrule.grad(lambda x: chainrule.grad(f)(x)[1])
    fast = chainrule.compile(slope, on_fallback="raise")
    for shift in (0.0, 0.25, -1.0):
        x = [shift + 0.1 * k for k in range(6)]
        assert fast(x) == pytest.approx(slope(x), rel=1e-13, abs=1e-15)
    assert fast.dispatch.counts.traces == 1


def test_a_derivative_that_is_infinite_is_left_to_eager():
    slope = chainrule.grad(lambda x: (x * x).sqrt() * x)
    fast = chainrule.compile(slope)
    assert fast(2.0) == pytest.approx(4.0)
    assert fast(0.0) == slope(0.0)


def test_a_derivative_inside_depends_on_what_is_differentiated_by():
    """However the function inside gets hold of it."""

    def f(p, t):
        inside = chainrule.grad(lambda q: p["w"] * q * q * t)(3.0)
        number = chainrule.grad(lambda q: t * q * q)(3.0)
        if not isinstance(inside, Value) or isinstance(number, Value):
            raise TypeError("a Value and a number")
        return inside * number * p["w"]

    fast = chainrule.compile(f, on_fallback="raise")
    for w, t in ((0.5, 2.0), (-1.5, 0.25), (3.0, 1.0)):
        assert fast.value_and_grad({"w": w}, t) == chainrule.value_and_grad(f)({"w": w}, t)


INSIDE = {
    "of a selected one": lambda p, i: chainrule.grad(lambda q: p[i] * q * q + p[0] * q)(2.0),
    "of one in a variable": lambda p, i: (lambda w: chainrule.grad(lambda q: w * q)(2.0))(p[i]),
    "among its own": lambda p, i: chainrule.grad(lambda q: [q, 2 * q, q * q * p[0]][i])(3.0),
    "computed from its own": lambda p, i: chainrule.grad(
        lambda q: [[q, 2 * q, q * p[0]][i] * 3, p[0], q][(i + 1) % 3]
    )(2.0),
    "by a selected one": lambda p, i: chainrule.gradients(
        p[0] * p[1] * p[2] + p[i] * p[i], p[i], create_graph=True
    ),
    "by others": lambda p, i: chainrule.gradients(
        p[0] * p[1] * p[2] + p[i] * p[i], [p[1], p[0]], create_graph=True
    )[1],
    "of a derivative": lambda p, i: chainrule.grad(
        lambda q: q * chainrule.grad(lambda r: p[i] * r * q * r)(2.0)
    )(3.0),
    "along a selected direction": lambda p, i: chainrule.hvp(lambda q: q[0] * q[0] * p[i] * q[1])(
        [1.0, 2.0], [p[i], 1.0]
    )[0],
}


@pytest.mark.parametrize("inside", INSIDE.values(), ids=INSIDE)
def test_a_derivative_inside_keeps_its_gradient_whatever_integers_select(inside):
    # The first scale is 0: no first result would tell that a gradient is lost.
    def script(compile):
        fast = compile(lambda p, i, scale: inside(p, i) * scale + p[1])
        for i, scale in itertools.product((2, 0, 1), (0.0, 1.0, -2.0)):
            yield fast.value_and_grad([1.0, 0.5, 0.25], i, scale)

    same(script)
