"""Write from the op table what cannot follow from it by itself.

That is the table of docs/operations.md, and core/declarations.pyi, which tells type checkers of the
functions and methods that are made from the rows when the package is imported.

python tools/make_operations.py           write them
python tools/make_operations.py --check   only say what is out of date, exit status 1 if anything is

The derivatives shown are the table's own: each row's partials are evaluated over formulas instead
of numbers.
"""

import inspect
import math
import re
import sys
from pathlib import Path

from chainrule.core import functions, ops

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operations.md"
DECLARATIONS = ROOT / "src" / "chainrule" / "core" / "declarations.pyi"

SUM, PRODUCT, SIGN, ATOM = range(4)  # how tightly a formula's outermost operator binds
LONGEST = 80  # characters of a formula that helps anybody
SYMBOLS = {
    math.sqrt(0.5): "√½",
    math.log(2.0): "ln 2",
    math.log(10.0): "ln 10",
    2.0 / math.sqrt(math.pi): "2/√π",
    math.sqrt(2.0 / math.pi): "√(2/π)",
    1.0 / math.sqrt(2.0 * math.pi): "1/√(2π)",
}


class Formula:
    """A piece of formula that behaves like a number."""

    def __init__(self, text, binding=ATOM):
        self.text, self.binding = text, binding

    def within(self, binding):
        return self.text if self.binding >= binding else f"({self.text})"

    def __add__(self, other):
        other = formula(other)
        return Formula(f"{self.text} + {other.within(SUM)}", SUM)

    def __radd__(self, other):
        return formula(other) + self

    def __sub__(self, other):
        return Formula(f"{self.text} - {formula(other).within(PRODUCT)}", SUM)

    def __rsub__(self, other):
        return formula(other) - self

    def __mul__(self, other):
        other = formula(other)
        if other.text == self.text and self.binding == ATOM:
            return Formula(f"{self.text}²")
        return Formula(f"{self.within(PRODUCT)} · {other.within(SIGN)}", PRODUCT)

    def __rmul__(self, other):
        return formula(other) * self

    def __truediv__(self, other):
        return Formula(f"{self.within(PRODUCT)} / {formula(other).within(SIGN)}", PRODUCT)

    def __rtruediv__(self, other):
        return formula(other) / self

    def __neg__(self):
        return Formula(f"-{self.within(SIGN)}", SIGN)

    def __abs__(self):
        return Formula(f"|{self.text}|")

    def __lt__(self, other):
        return self.compared("<", other)

    def __le__(self, other):
        return self.compared("≤", other)

    def __gt__(self, other):
        return self.compared(">", other)

    def __ge__(self, other):
        return self.compared("≥", other)

    def __eq__(self, other):
        return self.compared("=", other)

    __hash__ = None

    def compared(self, sign, other):
        return Formula(f"{self.text} {sign} {formula(other).text}", SUM)

    @staticmethod
    def _apply_op(op, operands, parameters):
        xs = [formula(x) for x in operands]
        if op is ops._where:
            return Formula(f"{xs[0].text} if {parameters[0].text}, else {xs[1].text}", SUM)
        if op.symbol == "**":
            exponent = xs[1] if op is ops.power else formula(parameters[0])
            return Formula(f"{xs[0].within(ATOM)}**{exponent.within(ATOM)}", SIGN)
        words = ", ".join(x.text for x in (*xs, *map(formula, parameters)))
        return Formula(f"{op.name}({words})")


def formula(x):
    if isinstance(x, Formula):
        return x
    known = SYMBOLS.get(abs(x))
    text = known or ops.format_number(abs(float(x)))
    atom = ATOM if known is None or "/" not in known else PRODUCT
    return Formula(f"-{text}", SIGN) if x < 0 else Formula(text, atom)


def operand_names(op):
    """The names that a row's own rule uses: x, or a and b."""
    return list(inspect.signature(op.partials[0]).parameters)[1 : 1 + op.arity]


def derivatives(op):
    names, parameters = operand_names(op), [Formula(p) for p in op.parameters]
    symbols = [Formula(name) for name in names]
    texts = [formula(p(Formula("y"), *symbols, *parameters)).text for p in op.partials]
    if max(map(len, texts)) > LONGEST:
        return "its exact derivative, see `ops.py`"
    if op.arity == 1:
        return code(texts[0])
    return "; ".join(code(f"∂{n}: {text}") for n, text in zip(names, texts, strict=True))


def code(text):
    return f"`{text}`".replace("|", "\\|")


def written(op):
    """How a person writes the operation."""
    if op.symbol in ("+", "*"):
        return code(f"a {op.symbol} b")
    if op.symbol == "**":
        kind = ("exponent", "a number") if op is ops.pow else ("p", "a Value")
        return f"{code(f'x**{kind[0]}')}, the exponent {kind[1]}"
    parameters = list(op.parameters)
    for i, default in enumerate(reversed(op.defaults), 1):
        parameters[-i] += f"={default:g}"
    words = [*operand_names(op), *parameters]
    if op is ops._where:  # the only one whose parameter comes first
        words = [*parameters, *operand_names(op)]
    return code(f"{op.name}({', '.join(words)})")


def remarks(op):
    """What the operands must satisfy, what was chosen where a derivative is a convention."""
    parts = [f"needs {op.domain}"] if op.domain else []
    for edge in op.edges:
        slopes = list(dict.fromkeys(map(ops.format_number, edge.partials)))
        each = " each" if len(slopes) < op.arity else ""
        call = op.call_text(edge.operands, edge.parameters)
        parts.append(f"derivative {', '.join(slopes)}{each} at {code(call)}")
    if op.aliases:
        parts.append(f"method also called {', '.join(map(code, op.aliases))}")
    return "; ".join(parts)


def table():
    lines = ["| written | value y | derivative | remarks |", "|---|---|---|---|"]
    for op in ops.TABLE.values():
        cells = [written(op), op.formula.replace("|", "\\|"), derivatives(op), remarks(op)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page():
    text = PAGE.read_text(encoding="utf-8")
    made = f"<!-- generated: operations -->\n{table()}\n<!-- end -->"
    return re.sub(
        r"<!-- generated: operations -->.*?<!-- end -->", lambda _: made, text, flags=re.S
    )


# --- declarations --------------------------------------------------------------------------------

HEAD = '''\
"""The op table's functions and methods, for type checkers. Written by tools/make_operations.py."""

from typing import Any, Protocol, overload

import numpy.typing as npt

from chainrule.core.value import Value

_Array = npt.NDArray[Any]

class _Unary(Protocol):
    @overload
    def __call__(self, x: Value, /) -> Value: ...
    @overload
    def __call__(self, x: float, /) -> float: ...
    @overload
    def __call__(self, x: _Array, /) -> _Array: ...

class _Binary(Protocol):
    @overload
    def __call__(self, a: Value, b: Value | float, /) -> Value: ...
    @overload
    def __call__(self, a: float, b: Value, /) -> Value: ...
    @overload
    def __call__(self, a: float, b: float, /) -> float: ...
    @overload
    def __call__(self, a: _Array, b: Any, /) -> _Array: ...
    @overload
    def __call__(self, a: Any, b: _Array, /) -> _Array: ...
'''

WRITTEN_OUT = ("clip", "where")  # functions with declarations of their own


def function_declared(op):
    """The declaration of a row's function."""
    if not op.parameters:
        return f"{op.name}: _{'Unary' if op.arity == 1 else 'Binary'}"
    words = [
        f"{p.name}: {'Any' if p.default is p.empty else 'float | None = ...'}"
        for p in inspect.signature(getattr(functions, op.name)).parameters.values()
    ]
    return f"def {op.name}({', '.join(words)}) -> Any: ..."


def methods_declared(op):
    """The declarations of a row's methods, numpy's spellings too."""
    others = ["other: Value | float"] * (op.arity - 1)
    words = ["self", *others, *(f"{name}: float = ..." for name in op.parameters)]
    if len(words) > 1:
        words.append("/")
    return [f"    def {name}({', '.join(words)}) -> Value: ..." for name in (op.name, *op.aliases)]


def declarations():
    """The whole of declarations.pyi."""
    rows = [op for op in ops.TABLE.values() if not op.is_operator]
    lines = [HEAD, "class Methods:"]
    lines += [line for op in rows if op.name != "where" for line in methods_declared(op)]
    declared = [function_declared(op) for op in rows if op.name not in WRITTEN_OUT]
    lines += ["", *sorted(declared, key=lambda line: line.startswith("def")), ""]
    return "\n".join(lines).replace("\ndef", "\n\ndef", 1)


def main():
    status = 0
    for file, wanted in ((PAGE, page()), (DECLARATIONS, declarations())):
        if file.exists() and file.read_text(encoding="utf-8") == wanted:
            continue
        if "--check" in sys.argv:
            status = 1
            print(f"out of date: {file.relative_to(ROOT)}; tools/make_operations.py writes it")
        else:
            file.write_text(wanted, encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
