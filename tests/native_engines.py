"""Both engines in one process, and how to compare what they make.

`ENGINES` are the reference and the native engine behind one face. `bits` and `graph` turn numbers
and graphs into plain data; two engines agree when that data is equal. `outcome` does the same for
something that may raise. The tests named test_native_*.py stand on this; they are skipped where the
native engine is not the one in use.
"""

import math
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import chainrule

if chainrule.engine != "native":
    pytest.skip("the native engine is not in use", allow_module_level=True)

from chainrule.core import native, ops, reference


@dataclass(frozen=True)
class Engine:
    name: str
    Value: Any
    topological_order: Any
    vsum: Any
    dot: Any
    linear: Any
    modes: Any

    def function(self, name: str) -> Any:
        """One row of the op table, called in the way that is shortest for this class."""
        row = ops.TABLE[name]

        def call(*arguments: Any) -> Any:
            first = arguments[0]
            if name != "where" and isinstance(first, self.Value):
                return getattr(first, name)(*arguments[1:])
            return self.Value._apply_op(row, arguments[: row.arity], arguments[row.arity :])

        return call

    @property
    def functions(self) -> dict[str, Any]:
        return {name: self.function(name) for name in ops.TABLE}


def _engine(name: str, module: Any) -> Engine:
    names = ("Value", "topological_order", "vsum", "dot", "linear", "modes")
    return Engine(name, *(getattr(module, n) for n in names))


REFERENCE = _engine("reference", reference)
NATIVE = _engine("native", native)
ENGINES = (REFERENCE, NATIVE)


def bits(number: float) -> str:
    """A float to the last bit; every nan is the same."""
    assert type(number) is float, f"{number!r} is a {type(number).__name__}"
    return "nan" if math.isnan(number) else struct.pack(">d", number).hex()


def described(v: Any) -> tuple[Any, ...]:
    """One node without its children."""
    rule = v._rule
    return (
        bits(v.data),
        bits(v.grad),
        v.label,
        v.op,
        rule.name if isinstance(rule, ops.Op) else f"word {rule}",
        [bits(p) for p in v._parameters],
        [bits(g) for g in v.local_grads],
        v._location,
        type(v).__name__,
    )


def graph(engine: Engine, *roots: Any) -> list[Any]:
    """Graphs without identity: per node, in order, what it is and where its children are."""
    places: dict[int, int] = {}
    rows: list[Any] = []
    keep = []  # an id is only good while its node lives
    for root in roots:
        order = engine.topological_order(root)
        keep.append(order)
        assert type(order) is list
        for v in order:
            if id(v) not in places:
                places[id(v)] = len(places)
                rows.append((described(v), [places[id(c)] for c in v.children]))
            else:
                rows.append(places[id(v)])
    return rows


def outcome(f: Any, *arguments: Any) -> Any:
    """The result, or the error's type and message."""
    try:
        return f(*arguments)
    except Exception as error:
        return type(error).__name__, str(error)


def both(f: Any) -> Any:
    """`f(engine)` of either engine; they must agree, and what they agree on is returned."""
    expected, actual = f(REFERENCE), f(NATIVE)
    assert actual == expected, f"reference: {expected!r:.3000}\nnative:    {actual!r:.3000}"
    return actual


def run_python(script: str, *arguments: Any, timeout: float = 600, **environment: str) -> str:
    """A script in a process of its own; its standard output. A crash or an error fails the test."""
    tests = Path(__file__).parent
    folders = [str(tests), str(tests / "native"), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, folders))
    result = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )
    assert result.returncode == 0, (
        f"exit status {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-6000:]}"
    )
    return result.stdout
