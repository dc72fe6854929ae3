"""The op table's rows as JavaScript: rows in, the text of ``const RULES = {...}`` out.

A row's rule, called with a ``Script``, writes itself down, as it does with machine code and words.
What it writes asks a *kit* ``k`` for every operation, ``k.sub(1, k.mul(y, y))``, so the page can
evaluate one text over numbers and over words. There is no derivative in the page's own files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from chainrule.core import ops, rounding
from chainrule.core.ops import Op, Rule

#: what the page's number kit has of the C library (``maths.js``)
LIBRARY = frozenset(
    "exp expm1 log log1p log2 log10 tanh sin cos tan asin acos atan atan2 sinh cosh asinh acosh"
    " atanh hypot sqrt pow erf erfc lgamma floor ceil trunc fmod".split()
)
#: characters of a formula that are not repeated
_LONG = 120
#: of these, what IEEE 754 fixes to the last bit
_EXACT = frozenset(["sqrt", "floor", "ceil", "trunc", "fmod"])


class NotWritten(TypeError):
    """A rule that asks for something JavaScript does not have."""


@dataclass(frozen=True, eq=False)
class Script:
    """A piece of JavaScript that behaves like a number, or like a condition."""

    text: str
    calls: frozenset[str] = frozenset()  # rows and library functions used so far
    #: the rule's statements before this one: what is long, and may be used twice, gets a name
    names: list[str] | None = None

    def __add__(self, other: Any) -> Script:
        return _call("add", self, other)

    def __radd__(self, other: Any) -> Script:
        return _call("add", other, self)

    def __sub__(self, other: Any) -> Script:
        return _call("sub", self, other)

    def __rsub__(self, other: Any) -> Script:
        return _call("sub", other, self)

    def __mul__(self, other: Any) -> Script:
        return _call("mul", self, other)

    def __rmul__(self, other: Any) -> Script:
        return _call("mul", other, self)

    def __truediv__(self, other: Any) -> Script:
        return _call("div", self, other)

    def __rtruediv__(self, other: Any) -> Script:
        return _call("div", other, self)

    def __neg__(self) -> Script:
        return _call("neg", self)

    def __abs__(self) -> Script:
        return _call("abs", self)

    def __lt__(self, other: Any) -> Script:
        return _call("lt", self, other)

    def __le__(self, other: Any) -> Script:
        return _call("le", self, other)

    def __gt__(self, other: Any) -> Script:
        return _call("gt", self, other)

    def __ge__(self, other: Any) -> Script:
        return _call("ge", self, other)

    def __eq__(self, other: object) -> Any:
        return _call("eq", self, other)

    def __hash__(self) -> int:
        return hash(self.text)

    def __bool__(self) -> bool:
        raise NotWritten("a rule branches in Python; rows branch through where() only")

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Script:
        if op is ops._where:
            return _call("where", parameters[0], *operands)
        xs, ps = [_script(x) for x in operands], [_script(p) for p in parameters]
        arguments = ", ".join([_quoted(op.name), _listed(xs), _listed(ps)])
        return _named(f"k.apply({arguments})", _calls([*xs, *ps]) | {op.name}, [*xs, *ps])


def _listed(scripts: Sequence[Script]) -> str:
    return f"[{', '.join(script.text for script in scripts)}]"


def _calls(scripts: Iterable[Script]) -> frozenset[str]:
    return frozenset().union(*(script.calls for script in scripts))


def _call(name: str, *arguments: Any) -> Script:
    scripts = [_script(x) for x in arguments]
    return _named(f"k.{name}({', '.join(s.text for s in scripts)})", _calls(scripts), scripts)


def _named(text: str, calls: frozenset[str], parts: Sequence[Script]) -> Script:
    """A call as it is, or under a name if it is long."""
    names = next((s.names for s in parts if s.names is not None), None)
    if names is not None and len(text) > _LONG:
        names.append(text)
        text = f"t{len(names)}"
    return Script(text, calls, names)


def _script(x: Any) -> Script:
    if isinstance(x, Script):
        return x
    if isinstance(x, bool):
        return Script("true" if x else "false")
    if isinstance(x, (int, float)):
        return Script(literal(float(x)))
    raise NotWritten(f"{x!r} cannot be written in JavaScript")


def literal(x: float) -> str:
    """A float as JavaScript, to the last bit: both languages write the shortest that reads back."""
    if math.isfinite(x):
        return repr(x).removesuffix(".0")
    return "NaN" if x != x else "Infinity" if x > 0 else "-Infinity"


@dataclass(frozen=True)
class WrittenRow:
    """One row as JavaScript."""

    op: Op
    text: str
    calls: frozenset[str]
    #: whether JavaScript gives the engine's value, and its derivatives, to the last bit
    exact_forward: bool
    exact_partials: bool


@cache
def write_row(op: Op) -> WrittenRow | None:
    """The row in JavaScript, or None where some rule of it asks for what JavaScript lacks."""
    letters = ["x"] if op.arity == 1 else [f"x{i}" for i in range(op.arity)]
    names = [*letters, *(f"p{i}" for i in range(len(op.parameters)))]
    try:
        forward = _write(op.forward, names)
        partials = [_write(partial, ["y", *names]) for partial in op.partials]
    except Exception:  # a row of the user's own may do anything to its operands
        return None
    head = ", ".join(["k", *names])
    slopes = [f"({', '.join(['k', 'y', *names])}) => {partial.text}" for partial in partials]
    text = (
        f"{_quoted(op.name)}: {{\n  symbol: {_quoted(op.symbol)}, formula: {_quoted(op.formula)},"
        f" domain: {_quoted(op.domain or '')},\n"
        f"  forward: ({head}) => {forward.text},\n"
        f"  partials: [{', '.join(slopes)}],\n}}"
    )
    calls = forward.calls | _calls(partials)
    return WrittenRow(op, text, calls, _is_exact(forward.calls), _is_exact(_calls(partials)))


def _write(rule: Rule, names: Sequence[str]) -> Script:
    if rule is ops._where.forward:  # what all other rows branch through
        rule = _where
    scalar = getattr(rule, "scalar", None)  # a function of the C library
    if scalar is not None:
        if scalar.__name__ not in LIBRARY or getattr(math, scalar.__name__) is not scalar:
            raise NotWritten(f"JavaScript has no {scalar.__name__}")
        call = _call(scalar.__name__, *map(Script, names))
        return Script(call.text, frozenset([f"Math.{scalar.__name__}"]))
    named: list[str] = []
    found = _script(rule(*[Script(name, names=named) for name in names]))
    if not named:
        return found
    lines = [f"const t{i} = {text};" for i, text in enumerate(named, 1)]
    return Script(f"{{ {' '.join(lines)} return {found.text}; }}", found.calls)


def _where(a: Any, b: Any, condition: Any) -> Any:
    return ops.where(condition, a, b)


def _is_exact(calls: Iterable[str]) -> bool:
    """Whether IEEE 754 fixes every bit of what is called."""
    for name in calls:
        if name.startswith("Math."):
            if name.removeprefix("Math.") not in _EXACT:
                return False
            continue
        row = _row(name)
        written = None if row is None else write_row(row)
        if written is None or not written.exact_forward:
            return False
    return True


#: what rows call that are no rows
_BLOCKS = {op.name: op for op in (ops.raw_power, rounding.raw_floor, rounding.fmod)}


def _row(name: str) -> Op | None:
    """The row, or None for an operation of the user's own."""
    return _BLOCKS.get(name) or ops.TABLE.get(name)


def _quoted(text: str) -> str:
    """A JavaScript string that can stand inside a script element."""
    safe = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "<": "\\u003c"}
    return '"' + "".join(safe.get(c, c) for c in text) + '"'


def write_rules(wanted: Iterable[Op]) -> tuple[str, dict[Op, WrittenRow]]:
    """``const RULES`` with these rows and all that they call; and the rows that could be written.

    >>> from chainrule.core import ops
    >>> print(write_rules([ops.tanh])[0])
    const RULES = {
    "tanh": {
      symbol: "tanh", formula: "tanh(x)", domain: "",
      forward: (k, x) => k.tanh(x),
      partials: [(k, y, x) => k.sub(1, k.mul(y, y))],
    },
    };
    """
    rows: dict[str, WrittenRow | None] = {}
    given: dict[str, Op | None] = {}
    for op in wanted:  # two operations of the user's own may have one name: then neither is written
        given[op.name] = op if given.get(op.name, op) is op else None
    waiting = list(given)
    while waiting:
        name = waiting.pop(0)
        if name in rows:
            continue
        known = given[name] if name in given else _row(name)
        row = rows[name] = None if known is None else write_row(known)
        if row is not None:
            waiting += sorted(call for call in row.calls if not call.startswith("Math."))
    written = {name: row for name, row in rows.items() if row is not None}
    while True:  # a row whose call could not be written cannot be used either
        broken = [
            name
            for name, row in written.items()
            if any(not c.startswith("Math.") and c not in written for c in row.calls)
        ]
        if not broken:
            break
        for name in broken:
            del written[name]
    lines = ["const RULES = {", *(f"{row.text}," for row in written.values()), "};"]
    return "\n".join(lines), {row.op: row for row in written.values()}
