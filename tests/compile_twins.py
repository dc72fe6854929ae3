"""Compiled and eager side by side.

A *script* is a function of `compile` that yields what it sees. `same(script)` runs it twice, with a
`compile` that leaves functions as they are and with chainrule's, and everything they yield must be
equal to the last bit. So a test is an ordinary program, and whatever eager Python does is right.

With `CHAINRULE_TEST_LIFT=1` the compiled functions are lifted to array code, however small, and
equal means equal to rounding: the same traps for the other path.
"""

import inspect
import math
import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.derivatives import transforms

Script = Callable[..., Iterator[Any]]
LIFT = os.environ.get("CHAINRULE_TEST_LIFT") == "1"


class Near:
    """A number that is equal to others within rounding."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Near):
            return NotImplemented
        a, b = self.number, other.number
        return (a != a and b != b) or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-13)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.number)


def bits(number: float) -> Any:
    """A float to the last bit; every nan is the same."""
    if LIFT:
        return Near(number)
    return "nan" if math.isnan(number) else struct.pack(">d", number).hex() + f" {number!r}"


def plain(x: Any) -> Any:
    """A result as data that `==` compares to the last bit."""
    if isinstance(x, Value):
        assert type(x.data) is float, f"the data of a Value is a {type(x.data)}"
        return "Value", bits(x.data)
    if type(x) is float or isinstance(x, np.floating):
        return bits(float(x))
    if isinstance(x, np.ndarray):
        return "array", x.shape, [plain(item) for item in x.ravel().tolist()]
    if isinstance(x, dict):
        return {key: plain(item) for key, item in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x).__name__, [plain(item) for item in x]
    assert type(x).__module__ != "chainrule.compiler.capture.standins", (
        f"a stand-in escaped: {type(x)}"
    )
    return x


def outcome(f: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """The result, or the error's type and message."""
    try:
        return f(*arguments, **keywords)
    except Exception as error:
        return type(error).__name__, str(error)


def assert_eagers_outcome(fast: Any, eager: Callable[..., Any], *arguments: Any) -> None:
    """What a compiled function's `value_and_grad` gives, or raises, is what eager gives."""
    got, wanted = outcome(fast.value_and_grad, *arguments), outcome(eager, *arguments)
    if isinstance(wanted[0], str):
        assert got == wanted
        return
    assert type(got[0]) is type(wanted[0])
    assert got[0] == pytest.approx(wanted[0], rel=1e-12)
    assert got[1] == pytest.approx(wanted[1], rel=1e-12)


def recordings(fast: Any) -> int:
    """How many recordings a report says there were."""
    return int(fast.report().splitlines()[1].split("; ")[1].split(" ")[0])


def graded(loss: Value, *params: Value) -> list[float]:
    """A loss and its derivatives by `params`, whose `.grad` is zero again afterwards."""
    loss.backward()
    found = [loss.data, *(p.grad for p in params)]
    for p in params:
        p.grad = 0.0
    return found


class Eager:
    """A function as it was written, under the names that a compiled one has."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else Eager(self.function.__get__(instance, owner))

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)

    def value_and_grad(self, *arguments: Any, **keywords: Any) -> Any:
        def main(result: Any) -> Any:
            return result[0] if isinstance(result, tuple) and len(result) == 2 else result

        x, *others = arguments
        value, gradient, result = transforms.value_and_derivative(
            "value_and_grad", self.function, x, others, keywords, main
        )
        if isinstance(result, tuple) and len(result) == 2:
            value = (value, floats(result[1]))
        return value, gradient


def floats(result: Any) -> Any:
    """A returned nest with numbers in place of Values."""
    if isinstance(result, (list, tuple)):
        return type(result)(floats(x) for x in result)
    if isinstance(result, dict):
        return {key: floats(x) for key, x in result.items()}
    return result.data if isinstance(result, Value) else result


@dataclass
class Ran:
    """How the compiled functions of a script fared."""

    functions: list[Any] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)

    def _counted(self, pattern: str) -> int:
        reports = [f.report() for f in self.functions]
        return sum(int(found.replace(",", "")) for r in reports for found in re.findall(pattern, r))

    @property
    def replayed(self) -> int:
        return self._counted(r"([\d,]+) replayed")

    @property
    def eager(self) -> int:
        return self._counted(r"([\d,]+) eager;")

    @property
    def recordings(self) -> int:
        return self._counted(r"; ([\d,]+) recordings in")

    @property
    def reasons(self) -> str:
        lines = [line for f in self.functions for line in f.report().splitlines()]
        return "\n".join(line for line in lines if "because" in line)


def same(script: Script, lift: bool | None = LIFT, **options: Any) -> Ran:
    """Run a script eagerly and compiled: what it yields must be equal. Returns how it fared."""
    expected = [plain(x) for x in script(Eager)]
    ran = Ran()

    def compile(function: Callable[..., Any]) -> Any:
        ran.functions.append(chainrule.compile(function, on_fallback="eager", lift=lift, **options))
        return ran.functions[-1]

    ran.results = [plain(x) for x in script(compile)]
    for i, (found, wanted) in enumerate(zip(ran.results, expected, strict=True)):
        assert found == wanted, f"result {i}: {found} is not eager's {wanted}\n{reports(ran)}"
    assert expected, "a script that yields nothing shows nothing"
    return ran


def reports(ran: Ran) -> str:
    return "\n".join(f.report() for f in ran.functions)


def all_replayed(script: Script) -> Ran:
    """Equal to eager, and no call ran eagerly."""
    ran = same(script)
    assert ran.eager == 0, reports(ran)
    assert ran.replayed, reports(ran)
    return ran


def eager_because(reason: str, script: Script) -> Ran:
    """Equal to eager, and run eagerly for a reason that the report tells."""
    ran = same(script)
    assert ran.eager, reports(ran)
    assert re.search(reason, ran.reasons), reports(ran)
    return ran


def at(function: Callable[..., Any]) -> str:
    """`file.py:line` of the line of a function that has the comment `# here`."""
    source, start = inspect.getsourcelines(function)
    lines = [start + i for i, line in enumerate(source) if "# here" in line]
    assert len(lines) == 1, "one line is marked"
    return f"{inspect.getsourcefile(function).rsplit('/', 1)[-1]}:{lines[0]}"


# --- scripts that many tests share ----------------------------------------------------------------


def numbers(*xs):
    return [Value(x) for x in xs]


P = [0.5, -1.5, 2.5, 3.5, -0.25, 1.25]


def by_ids(f, *calls):
    """A script: the loss and the gradient of `f(p, *ids)` for each tuple of integers."""

    def script(compile):
        p = numbers(*P)
        fast = compile(f)
        for ids in calls:
            yield graded(fast(p, *ids), *p)

    return script


def by_numbers(f, *calls):
    """A script: the result and the gradient of `f(*values)` for each tuple of numbers."""

    def script(compile):
        xs = numbers(*calls[0])
        fast = compile(f)
        for call in calls:
            for x, number in zip(xs, call, strict=True):
                x.data = number
            result = outcome(fast, *xs)
            yield result
            if isinstance(result, Value):
                yield graded(result, *xs)

    return script


BOTH_SIDES = [
    (2.0, 1.0),
    (-2.0, 1.0),
    (1.0, 1.0),
    (0.5, -3.0),
    (0.0, 0.0),
    (-1.0, -1.0),
    (2.0, 5.0),
]


DATA = [(2.0, 1.0), (-2.0, 3.5), (1.5, 1.5), (0.25, -3.0), (7.0, -0.5), (2.0, 1.0)]


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)
