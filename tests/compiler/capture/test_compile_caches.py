"""Helpers that keep their results in a cache."""

import functools
import math
import threading
import types
from math import cos

import numpy as np
import pytest

import chainrule

P = [0.3, -1.2, 0.7, 1.1]
FACTOR = 2
ORDERS = []


@functools.lru_cache(maxsize=None)  # noqa: UP033
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@functools.cache
def kernel(n):
    return [1.0 / (k + 1) for k in range(n)]


@functools.lru_cache(maxsize=2)
def scaled(n):
    return n * FACTOR


@functools.lru_cache(typed=True)
def half(x):
    return x / 2


@functools.cache
def pair(a, b=1, *, c=0):
    return (a + b, (float(c), "text", None, True))


@functools.cache
def text(n):
    return "even" if n % 2 == 0 else "odd"


@functools.cache
def raising(n):
    if n > 2:
        raise RuntimeError(f"no {n}")
    return n * 0.5


@functools.cache
def array(n):
    return np.arange(float(n))


@functools.cache
def identity(x):
    return x


@functools.cache
def table(n):
    return {"a": float(n)}


@functools.cache
def infinite(n):
    return float("inf") * n


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def clear():
    for cached in (fibonacci, kernel, scaled, half, pair, text, raising, array, identity, table):
        cached.cache_clear()


def same(function, calls, recordings=None, between=None):
    clear()
    fast = chainrule.compile(function, on_fallback="eager")
    eager = chainrule.value_and_grad(function)
    for k, arguments in enumerate([*calls, *calls, *calls]):
        if between is not None:
            between(k)
        got = outcome(lambda a=arguments: fast.value_and_grad(*a))
        wanted = outcome(lambda a=arguments: eager(*a))
        assert repr(got) == repr(wanted), (k, arguments)
    if recordings is not None:
        assert fast.dispatch.counts.traces <= recordings, fast.report()
        assert fast.dispatch.counts.replayed > len(calls), fast.report()
    return fast


def by_constants(p):
    return sum(fibonacci(i) * w for i, w in enumerate(p)) ** 2


def by_integers(p, n):
    return p[0] * fibonacci(n) + p[1] * half(n)


def by_list(p, n):
    return sum(k * w for k, w in zip(kernel(n), p, strict=False)) ** 2


def by_pair(p, n):
    a, (c, word, nothing, truth) = pair(n, c=2)
    return p[0] * a + p[1] * c if word == "text" and nothing is None and truth else p[2] * 1


def by_text(p, n):
    return p[0] * n if text(n) == "even" else p[1] * n


def as_index(p, n):
    return p[fibonacci(n) % 4] * 2 + p[fibonacci(3)]


INTEGERS = [(P, n) for n in (1, 2, 3, 4, 2, 1, 3)]


def test_helpers_with_a_cache_are_called_again():
    same(by_constants, [(P,), ([2 * w for w in P],), (P,)], recordings=1)
    same(by_integers, INTEGERS, recordings=4)
    same(by_list, INTEGERS, recordings=4)
    same(by_pair, INTEGERS, recordings=4)
    same(by_text, INTEGERS, recordings=4)
    same(as_index, INTEGERS, recordings=4)


RATE = 0.5


@functools.lru_cache(maxsize=2)
def rated(n):
    return RATE * n


def on_one_path(p, x):
    return p[0] * rated(3) if x > 0 else p[1] * rated(2)


@pytest.mark.parametrize("lift", [None, True, False])
def test_a_recording_of_another_path_leaves_no_trace_in_a_cache(lift, monkeypatch):
    """What it calls in vain would keep an entry that eager calls let go, with an old rate."""

    def results(value_and_grad):
        rated.cache_clear()
        found = []
        for x, rate, other in [(-1.0, 0.5, 0), (1.0, 0.5, 7), (1.0, 0.5, 8), (-1.0, 3.0, 0)]:
            monkeypatch.setitem(globals(), "RATE", rate)
            if other:
                rated(other)
            found.append(value_and_grad(P, x))
        return found

    fast = chainrule.compile(on_one_path, on_fallback="eager", lift=lift)
    assert results(fast.value_and_grad) == results(chainrule.value_and_grad(on_one_path))


def test_a_helper_that_reads_more_than_its_arguments_is_refused_by_name():
    with pytest.warns(chainrule.FallbackWarning, match="calls 'rated', .* reads more than its"):
        chainrule.compile(on_one_path).value_and_grad(P, 1.0)


@functools.cache
def products(n):
    return math.factorial(n) * max(n, 2) * abs(-n)


@functools.lru_cache(maxsize=4)
def waves(n):
    return tuple(math.cos(math.pi * k / n) + float(np.sqrt(k)) for k in range(n))


@functools.cache
def cosine(n):
    return cos(n)


def test_helpers_that_name_functions_in_c_are_followed(monkeypatch):
    same(lambda p, n: p[0] * products(n), INTEGERS, recordings=4)
    fast = same(lambda p, n: sum(a * b for a, b in zip(p, waves(n), strict=False)), INTEGERS, 4)
    eager = chainrule.value_and_grad(fast.__wrapped__)
    monkeypatch.setattr(math, "cos", lambda x: x + 1.0)
    for between in (lambda: None, waves.cache_clear, waves.cache_clear):
        for n in (3, 2):
            between()
            assert fast.value_and_grad(P, n) == eager(P, n)
    waves.cache_clear()


def test_the_name_that_may_change_is_told_with_what_to_write():
    with pytest.warns(chainrule.FallbackWarning, match="names 'cos', which .*: write math.cos"):
        chainrule.compile(lambda p: p[0] * cosine(3)).value_and_grad(P)
    with pytest.warns(chainrule.FallbackWarning, match="more than its arguments: 'RATE', at"):
        chainrule.compile(lambda p: p[0] * rated(3)).value_and_grad(P)


def settings():
    """A function for its attributes."""


settings.rate = 0.5


@functools.cache
def by_attribute(n):
    return n * settings.rate


@functools.cache
def by_default(n, rates=[0.5]):  # noqa: B006
    return n * rates[0]


def enclosing():
    rate = [0.5]

    @functools.cache
    def by_cell(n):
        return n * rate[0]

    return by_cell


by_cell = enclosing()


@functools.cache
def by_import(n):
    import numbers

    return n * numbers.__dict__.get("rate", 0.5)


@functools.cache
def by_another(n):
    return n * rated(2)


@pytest.mark.parametrize("helper", [by_attribute, by_default, by_cell, by_import, by_another])
def test_helpers_that_may_read_what_changes_are_not_called_in_vain(helper, monkeypatch):
    monkeypatch.setitem(globals(), "helper", helper)

    def f(p, x):
        return p[0] * helper(3) if x > 0 else p[1] * helper(2)

    namespace = {**globals(), "helper": helper}
    code = types.FunctionType(f.__code__, namespace, closure=f.__closure__)
    fast = chainrule.compile(code, on_fallback="eager")
    for x in (1.0, -1.0, 1.0):
        helper.cache_clear()
        fast.value_and_grad(P, x)
        assert helper.cache_info().currsize == 1


def test_other_kinds_of_arguments():
    calls = [(P, n) for n in (1, True, 1.0, np.int64(1), np.float64(1.0), 2, 2.0, False, 0)]
    same(by_integers, calls)
    same(lambda p, x: p[0] * half(x) * 1.5, calls)
    same(lambda p, x: p[0] * identity((x, "a"))[0], calls)


def test_what_is_more_than_numbers():
    same(lambda p, n: p[0] * array(n).sum(), INTEGERS)
    same(lambda p, n: p[0] * table(n)["a"], INTEGERS)
    same(lambda p, n: identity(p[0]) * n, INTEGERS)
    same(lambda p, n: sum(identity(tuple(p))) * n, INTEGERS)
    same(lambda p, n: p[0] * (infinite(n) > 0), INTEGERS)
    same(lambda p, n: p[0] * sum(map(fibonacci, range(n))), INTEGERS)
    same(lambda p, n: p[0] * fibonacci.__wrapped__(n), INTEGERS)
    same(lambda p, n: p[0] * len(fibonacci.__name__), INTEGERS)
    clear()
    assert identity.cache_info().currsize == 0


def test_errors_of_a_helper():
    def caught(p, n):
        try:
            return p[0] * raising(n)
        except RuntimeError:
            return p[1] * n

    same(lambda p, n: p[0] * raising(n), INTEGERS)
    same(caught, INTEGERS)


def test_a_list_that_the_cache_holds():
    def changed(p, n):
        ks = kernel(n)
        ks[0] += 1.0
        return p[0] * ks[0]

    def compared(p, n):
        return p[0] * (2 if kernel(n) is kernel(n) else 3)

    def returned(p, n):
        ks = kernel(n)
        return p[0] * ks[0], ks

    def doubled(p, n):
        return p[0] * sum(kernel(n) + kernel(n))

    for f in (compared, doubled):
        same(f, INTEGERS)
    for f in (changed, returned):
        clear()
        fast = chainrule.compile(f, on_fallback="eager")
        got = [fast.value_and_grad(*arguments) for arguments in INTEGERS * 3]
        clear()
        eager = []
        for p, n in INTEGERS * 3:
            result = f(p, n)
            eager.append(result if isinstance(result, float) else (result[0], list(result[1])))
        found = [value if isinstance(value, float) else (value[0], value[1]) for value, _ in got]
        assert repr(found) == repr(eager)
    clear()
    fast = chainrule.compile(returned, on_fallback="eager")
    for _ in range(5):
        assert fast(P, 3)[1] is kernel(3)


def test_what_the_cache_holds_may_change():
    global FACTOR

    def f(p, n):
        return p[0] * scaled(n) + p[1] * scaled(n + 1)

    clear()
    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    try:
        for _ in range(8):
            assert fast.value_and_grad(P, 3) == eager(P, 3)
        FACTOR = 5  # the cache still holds the old ones
        for _ in range(3):
            assert fast.value_and_grad(P, 3) == eager(P, 3)
        scaled.cache_clear()
        for _ in range(3):
            assert fast.value_and_grad(P, 3) == eager(P, 3)
        scaled(3), scaled(4)
        FACTOR = 2  # as it was when it was recorded, and the cache is not
        for _ in range(3):
            assert fast.value_and_grad(P, 3) == eager(P, 3)
            assert fast.value_and_grad(P, 7) == eager(P, 7)
        scaled.cache_clear()
        for _ in range(3):
            assert fast.value_and_grad(P, 3) == eager(P, 3)
    finally:
        FACTOR = 2
        clear()


def test_the_cache_is_used_as_in_eager_mode():
    clear()
    fast = chainrule.compile(by_constants)
    for _ in range(10):
        fast.value_and_grad(P)
    before = fibonacci.cache_info()
    for _ in range(100):
        fast.value_and_grad(P)
    after = fibonacci.cache_info()
    assert after.misses == before.misses
    assert after.hits - before.hits == 4 * 100 or chainrule.engine != "native"
    fibonacci.cache_clear()
    assert fast.value_and_grad(P) == chainrule.value_and_grad(by_constants)(P)


def test_another_function_under_the_name(monkeypatch):
    fast, eager = chainrule.compile(by_constants), chainrule.value_and_grad(by_constants)
    for _ in range(6):
        assert fast.value_and_grad(P) == eager(P)
    monkeypatch.setitem(globals(), "fibonacci", lambda n: 10.0 * n)
    assert fast.value_and_grad(P) == eager(P)
    monkeypatch.setitem(globals(), "fibonacci", functools.cache(lambda n: 3 * n))
    for _ in range(3):
        assert fast.value_and_grad(P) == eager(P)
    monkeypatch.undo()
    for _ in range(3):
        assert fast.value_and_grad(P) == eager(P)


def test_a_helper_with_effects_runs_eagerly():
    fast = chainrule.compile(lambda p: p[0] * ordered(3), on_fallback="eager")
    for _ in range(5):
        ordered.cache_clear()
        ORDERS.clear()
        assert fast.value_and_grad(P)[0] == P[0] * 1
        assert ORDERS == [3]


@functools.cache
def ordered(n):
    ORDERS.append(n)
    return len(ORDERS)


def test_threads():
    fast, eager = chainrule.compile(by_integers), chainrule.value_and_grad(by_integers)
    wanted, wrong = {n: eager(P, n) for n in range(12)}, []

    def work(first):
        for k in range(300):
            n = (first + k) % 12
            if fast.value_and_grad(P, n) != wanted[n]:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_batches_derivatives_and_files(tmp_path):
    fast, eager = chainrule.compile(by_integers), chainrule.value_and_grad(by_integers)
    value, gradient = fast.batch_value_and_grad(np.array(P), [(n,) for n in (1, 2, 3, 4, 5, 2)])
    found = [eager(np.array(P), n) for n in (1, 2, 3, 4, 5, 2)]
    assert value == pytest.approx(np.mean([v for v, _ in found]), rel=1e-12)
    assert gradient == pytest.approx(np.mean([g for _, g in found], axis=0), rel=1e-12)
    assert chainrule.jacobian(fast)(P, 5) == pytest.approx(np.array(eager(P, 5)[1]))
    with pytest.raises(chainrule.SaveError, match="a function with a cache"):
        fast.save(tmp_path / "file", P, 3)
    with pytest.raises(chainrule.TranslationError, match="a function with a cache"):
        chainrule.compile(by_constants).to_numpy(P)


def test_what_it_became_in_words():
    fast = chainrule.compile(by_constants, lift=True)
    fast.value_and_grad(P)
    assert "cached" in fast.report(stage="lifted") or "…" in fast.report(stage="lifted")
    assert "fibonacci(1)" in fast.report(stage="integers")


def test_methods_and_helpers_inside():
    class Model:
        @functools.lru_cache  # noqa: B019
        def scale(self, n):
            return n * 2

        def loss(self, p, n):
            return p[0] * self.scale(n)

    model = Model()
    same(model.loss, INTEGERS)

    @functools.cache
    def inner(n):
        return n * 3

    same(lambda p, n: p[0] * inner(n), INTEGERS)


# --- reached through a closure --------------------------------------------------------------------


def helpers_inside():
    @functools.cache
    def grown(n):
        total = 1
        for k in range(n):
            total *= k + 1
        return total

    @functools.cache
    def recursive(n):
        return 1 if n < 2 else n * recursive(n - 1)

    return grown, recursive


def test_helpers_of_the_function_around_are_called_again():
    for helper in helpers_inside():

        def f(p, n):
            return p[0] * helper(n) + p[1] * helper(n + 1)  # noqa: B023

        fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
        for n in (3, 4, 3, 4, 3, 2, 3, 4):
            assert fast.value_and_grad([1.0, 2.0], n) == eager([1.0, 2.0], n)
        assert "8 replayed, 0 eager" in fast.report()
        assert helper.cache_info().currsize


def test_what_is_done_with_such_a_helper_but_calling_it_is_refused_with_what_to_do():
    helper, _ = helpers_inside()

    def mapped(p, n):
        return p[0] * sum(map(helper, [n, 2]))

    def asked(p, n):
        return p[0] * helper(n) + helper.cache_info().currsize

    def read(p, n):
        return p[0] * (helper if n else len)(n)

    for f in (mapped, asked, read):
        helper.cache_clear()
        fast = chainrule.compile(f, on_fallback="eager")
        fast.value_and_grad([1.0, 2.0], 3)
        assert "keeps results in a cache, at test_compile_caches.py" in fast.report()
        assert "call it by its name alone, or pass what it gives as an argument" in fast.report()


def test_another_helper_in_the_cell_is_seen():
    helper, other = helpers_inside()[0], functools.cache(lambda n: n / 2)

    def f(p, n):
        return p[0] * helper(n)

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for k in range(8):
        if k == 4:
            helper = other
        assert fast.value_and_grad([1.5], 3) == eager([1.5], 3)
