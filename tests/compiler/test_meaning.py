"""Compiled means what Python means: named examples, each compared with the eager call.

Both sides run in a fresh world of their own, on equal arguments, and values, gradients, types,
exceptions, prints, globals and arguments are compared. Cases that are wrong today are marked, and
the mark fails as soon as they are right.
"""

import dataclasses
import os
import sys
import time
from pathlib import Path

import mpmath
import numpy as np
import pytest
from fuzz_compare import differences
from fuzz_programs import HEADER, Call, Program
from known import CASES, Case

import chainrule
from chainrule import Value
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.runtime.variants import Variant
from chainrule.compiler.runtime.verification import check_against_eager


def check(case: Case) -> None:
    calls = []
    for text in case.calls:
        before, _, arguments = text.rpartition(" ;; ")
        calls.append(Call(before, arguments))
    program = Program(0, HEADER + case.source, tuple(calls), case.mode, case.options)
    found = differences(program, case.strict)
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("name", CASES)
def test_compiled_means_what_eager_means(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    check(CASES[name])


# --- what a case cannot say: files, clocks, installed packages ------------------------------------


def compiled(f):
    return chainrule.compile(f, on_fallback="eager").value_and_grad


def test_a_global_of_an_installed_package_is_read_afresh(monkeypatch):
    monkeypatch.setattr(mpmath, "TEMPERATURE", 1.0, raising=False)
    fast = compiled(lambda x: x * mpmath.TEMPERATURE)
    assert fast(3.0) == (3.0, 1.0)
    mpmath.TEMPERATURE = 2.0
    assert fast(3.0) == (6.0, 2.0)


def test_a_list_of_an_installed_package_is_read_afresh(monkeypatch):
    monkeypatch.setattr(mpmath, "SCALES", [1.0, 5.0], raising=False)
    fast = compiled(lambda x, i: x * mpmath.SCALES[i])
    assert fast(3.0, 0) == (3.0, 1.0)
    mpmath.SCALES[0] = 2.0
    assert fast(3.0, 0) == (6.0, 2.0)


def test_a_class_attribute_of_an_installed_package_is_read_afresh(monkeypatch):
    monkeypatch.setattr(mpmath.mpf, "temperature", 1.0, raising=False)
    fast = compiled(lambda x: x * mpmath.mpf.temperature)
    assert fast(3.0) == (3.0, 1.0)
    mpmath.mpf.temperature = 2.0
    assert fast(3.0) == (6.0, 2.0)


@pytest.mark.parametrize("module", ["helpers_of_site_packages"])
def test_a_package_in_site_packages_is_read_afresh(module, tmp_path, monkeypatch):
    place = tmp_path / "lib" / "python3" / "site-packages"
    place.mkdir(parents=True)
    (place / f"{module}.py").write_text("RATE = 1.0\n\ndef scaled(x):\n    return x * RATE\n")
    monkeypatch.syspath_prepend(str(place))
    package = __import__(module)
    fast = compiled(lambda x: package.scaled(x))
    assert fast(3.0) == (3.0, 1.0)
    package.RATE = 2.0
    assert fast(3.0) == (6.0, 2.0)


@pytest.mark.parametrize("clock", ["time", "monotonic", "perf_counter", "time_ns"])
def test_a_clock_is_read_in_every_call(clock):
    fast = compiled(lambda x: x * getattr(time, clock)())
    assert len({fast(1.0)[0] for _ in range(10)}) > 1


def test_time_time_is_read_in_every_call():
    fast = compiled(lambda x: x * time.time())
    first = fast(1.0)[0]
    while time.time() == first:
        pass
    assert fast(1.0)[0] > first


def test_sleeping_happens_in_every_call():
    def f(x):
        time.sleep(0.01)
        return x * x

    fast = compiled(f)
    began = time.perf_counter()
    for _ in range(10):
        fast(2.0)
    assert time.perf_counter() - began >= 0.1


def test_a_file_that_appears_is_seen(tmp_path):
    path = str(tmp_path / "flag")
    fast = compiled(lambda x: x * 2 if os.path.exists(path) else x)
    assert fast(3.0) == (3.0, 1.0)
    Path(path).touch()
    assert fast(3.0) == (6.0, 2.0)


def test_a_file_of_numbers_is_read_in_every_call(tmp_path):
    path = tmp_path / "numbers.npy"
    fast = compiled(lambda x: x * float(np.load(path)[0]))
    for number in (1.0, 2.0):
        np.save(path, np.array([number]))
        assert fast(3.0) == (3.0 * number, number)


def test_a_file_is_written_in_every_call(tmp_path):
    path = tmp_path / "log.txt"

    def f(x, t):
        np.savetxt(path, np.array([float(t)]))
        return x * t

    fast = compiled(f)
    for t in (1.0, 2.0, 3.0, 2.0):
        fast(2.0, t)
        assert np.loadtxt(path) == t


def test_derivatives_inside_are_derivatives_of_what_is_outside():
    f = lambda a: chainrule.grad(lambda q: a * q * q)(3.0) * a  # noqa: E731
    assert compiled(f)(2.0) == (24.0, 24.0)


def test_eager_derivatives_inside_are_derivatives_of_what_is_outside():
    f = lambda a: chainrule.grad(lambda q: a * q * q)(3.0) * a  # noqa: E731
    assert chainrule.value_and_grad(f)(2.0) == (24.0, 24.0)


def test_a_plain_nested_gradient_is_whole_or_refused():
    a = Value(2.0)
    try:
        result = chainrule.grad(lambda q: a * q * q)(3.0) * a
    except TypeError:
        return
    result.backward()
    assert a.grad == 24.0


@pytest.mark.parametrize("transform", [chainrule.value_and_grad, compiled])
def test_a_value_equals_its_number(transform):
    fast = transform(lambda x: x * 2 if x == 0 else x * 3)
    assert fast(0.0) == (0.0, 2.0)
    assert fast(1.0) == (3.0, 3.0)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_gradient_of_a_dataclass_is_one(frozen):
    P = dataclasses.make_dataclass("P", [("a", float), ("b", float)], frozen=frozen)
    for transform in (chainrule.value_and_grad, compiled):
        assert transform(lambda p: p.a * p.a * p.b)(P(3.0, 2.0)) == (18.0, P(12.0, 9.0))


def test_a_label_that_the_function_sets_is_set():
    def named(a, b):
        a.label = "q"
        return a * b

    fast = chainrule.compile(named, on_fallback="eager")
    for _ in range(3):
        a, b = Value(1.0), Value(3.0)
        assert fast(a, b).data == 3.0
        assert (a.label, b.label) == ("q", "")


def cube(w):
    return w**3 * 2


SECOND = {
    "hessian": lambda f: chainrule.hessian(f)(1.5),
    "grad of grad": lambda f: chainrule.grad(chainrule.grad(f))(1.5),
    "hvp": lambda f: chainrule.hvp(f)(1.5, 2.0),
    "grad at a Value": lambda f: chainrule.grad(chainrule.grad(f))(Value(1.5)).data,
    "jacobian of grad": lambda f: chainrule.jacobian(chainrule.grad(f))(1.5),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_go_through_compiled_functions(name):
    fast = chainrule.compile(cube)
    for _ in range(3):
        assert SECOND[name](lambda v: fast(v)) == SECOND[name](cube)
        assert SECOND[name](fast) == SECOND[name](cube)
        fast(Value(1.5))  # which is recorded


def test_an_argument_that_is_returned_is_that_object():
    fast = chainrule.compile(lambda a: a, on_fallback="eager")
    x, t = Value(1.0), (0, 1.5)
    for _ in range(3):
        assert fast(x) is x
        assert fast(t) is t
        assert fast([x, t]) == [x, t]


def test_an_argument_may_be_called_self():
    def f(p, self=2.0):
        return p * self

    fast = chainrule.compile(f)
    for x in (3.0, 4.0):
        assert fast(1.0, self=x) == x
        assert fast.value_and_grad(1.0, self=x) == (x, x)


def test_an_argument_called_out_is_passed_by_position():
    def f(p, out=2.0):
        return p * out

    fast = chainrule.compile(f)
    assert fast(1.0, out=3.0) == 3.0
    assert fast.value_and_grad(1.0, 3.0) == (3.0, 3.0)
    with pytest.raises(TypeError, match="named out is passed by position"):
        fast.value_and_grad(1.0, out=3.0)


@pytest.mark.parametrize(
    ("recorded", "eager"),
    [
        (lambda x: x * 2, lambda x: x * 3),
        (lambda x: x * 2, lambda x: x * 2 + (x - 1.5) * 10),  # the same here, not beside it
        (lambda x: (x, [x * 2]), lambda x: (x, [x * 3])),
        (lambda x: {"a": x, "b": 1}, lambda x: {"a": x, "b": 2}),
        (lambda x: x * 2, lambda x: Value(x) * 2),
    ],
)
def test_the_first_result_of_a_plain_call_is_compared_with_eager(recorded, eager):
    call, state = flatten_call((1.5,), {}, differentiate=False), survey(recorded)
    variant = Variant.of(trace(recorded, state, call))
    check_against_eager(recorded, state, variant, call)
    with pytest.raises(Unrecordable):
        check_against_eager(eager, state, variant, call)


@pytest.mark.parametrize(
    ("f", "x", "reason"),
    [
        (
            lambda p, x: p * x["a"][0],
            np.array([(1.0, 2)], dtype=[("a", float), ("b", int)]),
            r"an argument of type ndarray of \[\('a', '<f8'\), \('b', '<i8'\)\]",
        ),
        (lambda p, x: p * int(x == x) * float(f"{x}"), float("nan"), "a NaN used through"),
        (
            lambda p, x: p * (x.sort() or x[0]),
            np.array([1.0, 2.0]),
            "'sort' of an array of data at",
        ),
        (lambda p, x: p * np.ravel(x)[0] * x.put(0, 1), np.ones(2), "'put' of an array of data at"),
    ],
)
def test_reasons_name_what_it_is(f, x, reason):
    fast = chainrule.compile(f, on_fallback="raise")
    with pytest.raises(chainrule.FallbackError, match=reason):
        fast.value_and_grad(1.0, x)
