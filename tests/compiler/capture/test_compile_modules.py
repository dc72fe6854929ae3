"""Modules that code has as objects, and what it stores in them."""

import importlib
import math
import os
import sys
import textwrap
import types

import pytest

import chainrule
from chainrule.compiler.runtime.ledger import allowance

FILES = {
    "shop/__init__.py": "",
    "shop/rates.py": """
        RATE = 2.0
        TABLE = {"a": 2.0}

        class Box:
            size = 2.0

        box = Box()

        def scaled(x):
            return x * RATE
    """,
    "shop/answers.py": """
        known, asked = {"rate": 2.0}, []

        def __getattr__(name):
            if name not in known:
                raise AttributeError(name)
            asked.append(name)
            return known[name]
    """,
    "shop/counts.py": """
        calls = 0

        def __getattr__(name):
            global calls
            if name != "tick":
                raise AttributeError(name)
            calls += 1
            return float(calls)
    """,
    "shop/state.py": """
        import functools
        import operator
        from shop import rates

        current = rates
        rate_of = operator.attrgetter("RATE")
        asked = functools.partial(getattr, rates)
        own_method = rates.__getattribute__

        def of(module):
            return module.RATE
    """,
    "shop/readers.py": """
        import inspect
        import shop.rates
        from shop import rates, state

        def to_a_helper(x):
            return x * state.of(state.current)

        def as_a_variable(x):
            some = shop.rates
            return x * some.RATE

        def in_a_list(x):
            return x * [state.current][0].RATE

        def chosen(x):
            return x * (shop.rates if x > 0 else shop.state).RATE

        def matched(x):
            match state.current:
                case object(RATE=rate):
                    return x * rate

        def by_attrgetter(x):
            return x * state.rate_of(rates)

        def by_partial(x):
            return x * state.asked("RATE")

        def by_its_own_method(x):
            return x * state.own_method("RATE")

        def by_object(x):
            return x * object.__getattribute__(rates, "RATE")

        def by_dict(x):
            return x * rates.__dict__["RATE"]

        def by_inspect(x):
            return x * sum(v for _, v in inspect.getmembers(rates) if isinstance(v, float))

        def by_a_name_that_is_made(x):
            return x * getattr(rates, "RA" + state.__name__[:0] + "TE")

        def inside_by_getattr(x):
            return x * getattr(rates, "TABLE")["a"]

        def attribute_by_getattr(x):
            return x * getattr(rates, "box").size

        def called_by_getattr(x):
            return getattr(rates, "scaled")(x)
    """,
    "shop/writers.py": """
        import shop.rates
        from shop import rates, state

        def put(module, x):
            module.last = x

        def new_name(x, n):
            rates.last = n
            return x * n

        def dotted(x, n):
            shop.rates.last = n
            return x * n

        def to_a_helper(x, n):
            put(state.current, n)
            return x * n

        def imported(x, n):
            from . import rates as some
            some.last = n
            return x * n

        def loop_variable(x, n):
            for rates.last in range(n + 1):
                pass
            return x * n

        def two_names(x, n):
            rates.first, rates.last = x, n
            return x * n

        def a_text(x, n):
            rates.last = f"{n}"
            return x * n

        def a_copy(x, numbers):
            rates.last = list(numbers)
            return x * numbers[0]
    """,
}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(allowance, "left", math.inf)
    yield lambda name: importlib.import_module(f"shop.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def compiled(function):
    return chainrule.compile(function, on_fallback="eager").value_and_grad


READERS = [
    *("to_a_helper", "as_a_variable", "in_a_list", "chosen", "matched", "by_attrgetter"),
    *("by_partial", "by_its_own_method", "by_object", "by_dict", "by_inspect"),
    *("by_a_name_that_is_made", "inside_by_getattr", "attribute_by_getattr", "called_by_getattr"),
]


@pytest.mark.parametrize("name", READERS)
def test_what_is_read_from_a_module_in_its_hands_is_read_afresh(shop, name):
    rates, fast = shop("rates"), compiled(getattr(shop("readers"), name))
    for number in (2.0, 2.0, 5.0, 5.0, 2.0):
        if name == "inside_by_getattr":
            rates.TABLE["a"] = number
        elif name == "attribute_by_getattr":
            rates.box.size = number
        else:
            rates.RATE = number
        assert fast(3.0) == (3.0 * number, number)


def test_another_module_in_its_place_is_seen(shop):
    state, fast = shop("state"), compiled(shop("readers").to_a_helper)
    assert fast(3.0) == fast(3.0) == (6.0, 2.0)
    state.current = shop("readers")
    state.current.RATE = 7.0
    assert fast(3.0) == (21.0, 7.0)


def test_a_name_that_a_module_gets_later_is_seen(shop):
    rates, state = shop("rates"), shop("state")

    def f(x):
        some = state.current
        try:
            return x * some.LATER
        except AttributeError:
            return x

    fast = compiled(f)
    assert fast(3.0) == fast(3.0) == (3.0, 1.0)
    rates.LATER = 4.0
    assert fast(3.0) == (12.0, 4.0)


def test_the_names_of_a_module_are_counted_afresh(shop):
    rates = shop("rates")
    fast = compiled(lambda x: x * len(dir(rates)))
    before = fast(1.0)[0]
    rates.LATER = 4.0
    assert fast(1.0)[0] == before + 1


WRITERS = [
    *("new_name", "dotted", "to_a_helper", "imported", "loop_variable", "two_names", "a_text"),
]


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_stored_in_a_module_is_stored_at_every_call(shop, name):
    rates, fast = shop("rates"), compiled(getattr(shop("writers"), name))
    for n in (1, 2, 3, 2, 1, 1, 3):
        assert fast(3.0, n) == (3.0 * n, n)
        assert rates.last == (f"{n}" if name == "a_text" else n)
        if n == 3:
            del rates.last


def test_what_is_stored_in_a_module_are_the_numbers_of_the_call(shop):
    """A recorded run and its check with other numbers leave nothing there."""
    rates, fast = shop("rates"), compiled(shop("writers").a_copy)
    for numbers in ([1.0, 2.0], [0.25, 3.0], [5.0]):
        fast(3.0, numbers)
        assert rates.last == numbers


def test_a_module_that_answers_for_names_is_asked_once_a_call(shop):
    answers = shop("answers")
    fast = compiled(lambda x: x * answers.rate)
    for number in (2.0, 2.0, 4.0):
        answers.known["rate"] = number
        answers.asked.clear()
        assert fast(3.0) == (3.0 * number, number)
        assert answers.asked == ["rate"]


def test_a_module_that_counts_what_it_is_asked_for(shop):
    counts = shop("counts")
    fast = compiled(lambda x: x * counts.tick)
    for number in range(1, 6):
        assert fast(3.0) == (3.0 * number, number)
        assert counts.calls == number
    assert "tick" not in vars(counts)


PATHS = [os.path]


def exists(module, path):
    return module.exists(path)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, path: x * 2 if exists(os.path, path) else x,
        lambda x, path: x * 2 if PATHS[0].exists(path) else x,
        lambda x, path: (lambda some: x * 2 if some.exists(path) else x)(os.path),
    ],
    ids=["helper", "list", "variable"],
)
def test_a_library_in_its_hands_is_no_more_than_under_its_name(f, tmp_path, monkeypatch):
    """What is not known to be pure is not recorded, however it is reached."""
    monkeypatch.setattr(allowance, "left", math.inf)
    path, fast = tmp_path / "flag", compiled(f)
    for there in (False, False, True, False):
        path.touch() if there else path.unlink(missing_ok=True)
        assert fast(3.0, str(path)) == ((6.0, 2.0) if there else (3.0, 1.0))


def test_a_module_of_the_function_around_that_is_only_read_from_is_followed_by_what_is_read():
    import random as generators

    def drawn(p, seed):
        return p * generators.Random(seed).random()

    fast, eager = chainrule.compile(drawn), chainrule.value_and_grad(drawn)
    for seed in (1, 2, 3, 2, 1):
        assert fast.value_and_grad(2.0, seed) == eager(2.0, seed)
    assert "5 replayed, 0 eager" in fast.report()


def test_a_module_of_the_function_around_that_is_handed_on_is_followed_as_an_object():
    import random as generators

    def drawn(p, seed):
        module = generators
        return p * module.Random(seed).random()

    fast = chainrule.compile(drawn, on_fallback="eager")
    fast.value_and_grad(2.0, 1)
    assert "it reaches random.Random otherwise than by calling it" in fast.report()


def test_what_is_read_of_such_a_module_may_change():
    module = types.ModuleType("of_the_function_around")
    module.rate = 2.0

    def scaled(p):
        return p * module.rate

    fast = chainrule.compile(scaled)
    for k in range(8):
        module.rate = 2.0 if k < 4 else 3.0
        assert fast.value_and_grad(1.5) == (1.5 * module.rate, module.rate)
    assert fast.dispatch.counts.eager < 8
