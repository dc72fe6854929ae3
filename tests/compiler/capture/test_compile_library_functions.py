"""Functions and classes of Python's library that read or change more than their arguments."""

import abc
import contextlib
import copyreg
import functools
import inspect
import math
import os
import pathlib
import sys
import threading
import typing
import weakref

import numpy as np
import pytest

import chainrule
from chainrule.compiler.runtime.ledger import allowance

KIND: typing.Any = int


@pytest.fixture(autouse=True)
def recorded_at_once(monkeypatch):
    monkeypatch.setattr(allowance, "left", math.inf)


class Weight:
    pass


WEIGHT, OTHER = Weight(), []
LOCK = threading.Lock()


def annotated(x: "KIND") -> "KIND":
    return x


def compare(function, change, times=4):
    """Compare calls with eager ones, before and after a change that makes a difference."""
    fast = chainrule.compile(function, on_fallback="eager").value_and_grad
    eager = chainrule.value_and_grad(function)
    before = eager([3.0])
    assert [fast([3.0]) for _ in range(times)] == [before] * times
    change()
    after = eager([3.0])
    assert after != before
    assert [fast([3.0]) for _ in range(times)] == [after] * times


@pytest.mark.parametrize(
    "kind",
    [
        lambda: typing.get_type_hints(annotated)["x"],
        lambda: inspect.get_annotations(annotated, eval_str=True)["x"],
        lambda: inspect.signature(annotated, eval_str=True).parameters["x"].annotation,
    ],
    ids="hints annotations signature".split(),
)
def test_what_the_text_of_an_annotation_stands_for_is_no_constant(kind, monkeypatch):
    change = functools.partial(monkeypatch.setitem, globals(), "KIND", float)
    compare(lambda p: p[0] * (2.0 if kind() is int else 5.0), change)


def register():
    class Registry(abc.ABC):  # noqa: B024
        pass

    Registry.register(type("Registered", (), {}))


@pytest.mark.parametrize(
    ("read", "change"),
    [
        (lambda: weakref.getweakrefcount(WEIGHT), lambda: OTHER.append(weakref.ref(WEIGHT))),
        (lambda: WEIGHT.__weakref__ is None, lambda: OTHER.append(weakref.ref(WEIGHT))),
        (abc.get_cache_token, register),
    ],
    ids="references reference token".split(),
)
def test_what_python_counts_is_no_constant(read, change):
    OTHER.clear()
    compare(lambda p: p[0] * (1.0 + read()), change)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing keeps them from Python 3.11 on")
def test_overloads_that_are_registered_later_are_seen():
    def register():
        def other(x): ...

        other.__qualname__ = annotated.__qualname__
        typing.overload(other)

    try:
        compare(lambda p: p[0] * (1.0 + len(typing.get_overloads(annotated))), register)
    finally:
        typing.clear_overloads()


def test_a_source_is_no_constant(tmp_path, monkeypatch):
    path = tmp_path / "chainrule_source.py"
    path.write_text("def helper():\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import chainrule_source

    def change():
        path.write_text("def helper():\n    pass; pass\n")

    try:
        compare(lambda p: p[0] * len(inspect.getsource(chainrule_source.helper)), change)
    finally:
        del sys.modules["chainrule_source"]


def members(path):
    return dict(inspect.getmembers(path))["exists"]()


def static(path):
    return inspect.getattr_static(path, "exists")(path)


@pytest.mark.parametrize("ask", [members, static])
def test_members_that_inspect_finds_are_asked_anew(ask, tmp_path):
    path = pathlib.Path(tmp_path / "file")
    compare(lambda p: p[0] * (2.0 if ask(path) else 5.0), path.touch)


EFFECTS = {
    "stdout": (
        lambda: contextlib.redirect_stdout(None).__enter__(),
        lambda: sys.stdout,
    ),
    "stderr": (
        lambda: contextlib.redirect_stderr(None).__enter__(),
        lambda: sys.stderr,
    ),
    "folder": (lambda: contextlib.chdir("/").__enter__(), os.getcwd),
    "pickle": (
        lambda: copyreg.pickle(Weight, lambda _: "WEIGHT"),
        lambda: Weight in copyreg.dispatch_table,
    ),
    "errors": (lambda: np.errstate(divide="raise").__enter__(), lambda: np.geterr()["divide"]),
    "stack": (
        lambda: contextlib.ExitStack().enter_context(np.errstate(divide="raise")),
        lambda: np.geterr()["divide"],
    ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_what_is_entered_is_so_after_every_call(name, monkeypatch, tmp_path):
    if name == "folder" and sys.version_info < (3, 11):
        pytest.skip("contextlib has it from Python 3.11 on")
    enter, look = EFFECTS[name]
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(copyreg, "dispatch_table", copyreg.dispatch_table)
    monkeypatch.chdir(tmp_path)
    streams, before = (sys.stdout, sys.stderr), look()

    def f(p):
        enter()
        return p[0] * 2.0

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(4):
        with np.errstate():
            result = fast.value_and_grad([1.0])
            found = look()
            sys.stdout, sys.stderr = streams
            os.chdir(tmp_path)
            copyreg.dispatch_table.pop(Weight, None)
        assert result == (2.0, [2.0])
        assert found != before


@pytest.mark.parametrize(
    "take",
    [lambda: LOCK.__enter__(), lambda: contextlib.ExitStack().enter_context(LOCK)],
    ids="enter stack".split(),
)
def test_a_lock_that_a_call_leaves_taken_is_taken_once(take):
    def f(p):
        take()
        return p[0] * 2.0

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(3):
        assert fast.value_and_grad([1.0]) == (2.0, [2.0])
        assert LOCK.locked()
        LOCK.release()


def test_functions_that_say_they_are_of_the_library_are_followed():
    namespace = {"__name__": "string", "RATE": 1.0}
    exec("def scale(x): return x * RATE", namespace)
    scale = namespace["scale"]
    compare(lambda p: scale(p[0]), lambda: namespace.update(RATE=7.0))


@pytest.mark.parametrize(
    "read",
    [
        lambda: typing.cast(typing.Optional[float], 2.0),  # noqa: UP045
        lambda: float(len(inspect.signature(annotated).parameters)),
        lambda: float(inspect.isfunction(annotated)),
    ],
    ids="cast signature isfunction".split(),
)
def test_pure_functions_of_the_library_are_recorded(read):
    fast = chainrule.compile(lambda p: p[0] * read())
    for _ in range(4):
        assert fast.value_and_grad([3.0])[0] == 3.0 * read()
    assert " 0 replayed" not in fast.report()
    assert "eager because" not in fast.report()


def quiet(p):
    with np.errstate(divide="ignore"):
        return p[0] * 2.0


def locked(p):
    with LOCK:
        return p[0] * 2.0


@pytest.mark.parametrize("f", [quiet, locked])
def test_what_is_entered_and_left_by_with_is_recorded(f):
    fast = chainrule.compile(f)
    for _ in range(4):
        assert fast.value_and_grad([3.0]) == (6.0, [2.0])
    assert " 0 replayed" not in fast.report()
    assert "eager because" not in fast.report()


# --- errors that whoever calls has caught ---------------------------------------------------------


def context(p):
    try:
        raise ValueError
    except ValueError as error:
        return p[0] * (2.0 if error.__context__ is None else 5.0)


def current(p):
    return p[0] * (2.0 if sys.exc_info()[0] is None else 5.0)


def again(p):
    try:
        raise
    except KeyError:
        return p[0] * 5.0
    except RuntimeError:
        return p[0] * 2.0


@pytest.mark.parametrize("f", [context, current, again])
def test_an_error_that_the_caller_has_caught_is_no_constant(f):
    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for _ in range(4):
        assert fast.value_and_grad([1.0]) == eager([1.0]) == (2.0, [2.0])
    for _ in range(4):
        try:
            {}["x"]
        except KeyError:
            assert fast.value_and_grad([1.0]) == eager([1.0]) == (5.0, [5.0])


def handled(p, x):
    """Each bare ``raise`` stands in a handler of its own."""
    try:
        try:
            with contextlib.nullcontext():
                return p[0] / x
        except ZeroDivisionError as error:
            with contextlib.nullcontext():
                try:
                    if error.args:
                        raise
                except TypeError:
                    pass
            return p[0]
    except ArithmeticError:
        return p[0] * 5.0


def test_code_that_raises_again_what_it_caught_itself_is_recorded():
    fast, eager = chainrule.compile(handled), chainrule.value_and_grad(handled)
    for _ in range(4):
        assert fast.value_and_grad([1.0], 2.0) == eager([1.0], 2.0)
    assert " 0 replayed" not in fast.report()
    assert "eager because" not in fast.report()
