"""Expressions as typed on the command line: ``relu(a*b + d)``, or ``c = a*b; L = c + a``.

Text and numbers come in, the graph of Values goes out. The text is parsed by ``ast`` and walked
over a whitelist: arithmetic, names, the op table's functions, assignments. Nothing is ever
``eval``-ed, numbers are floats before any arithmetic, length and nesting are bounded. Every error
points at its place in the text.
"""

from __future__ import annotations

import ast
import difflib
import keyword
import math
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from chainrule.core import errors, ops
from chainrule.core.backend import Value
from chainrule.core.ops import Op
from chainrule.see.names import printable

LONGEST = 2_000  # characters
DEEPEST = 60  # brackets, signs and powers inside one another
CONSTANTS = {"pi": math.pi, "e": math.e}
_SHOWN = 72  # characters of a long expression in an error

FUNCTIONS: dict[str, Op] = {}


@ops.follow
def _name(op: Op) -> None:
    if not op.is_operator:
        FUNCTIONS.update(dict.fromkeys((op.name, *op.aliases), op))


# What people write who have another library in mind.
_OTHER_NAMES = {"ln": "log", "max": "maximum", "min": "minimum", "logistic": "sigmoid"}

Number = Value | float


class ExpressionError(ValueError):
    """What is wrong, and where: ``str`` is one line of words, the text, and a caret under it."""

    def __init__(self, message: str, source: str = "", column: int = 0) -> None:
        self.message, self.source, self.column = message, source, column
        super().__init__(message)

    def __str__(self) -> str:
        if not self.source:
            return self.message
        start = max(0, min(self.column - _SHOWN // 2, len(self.source) - _SHOWN))
        before = printable(self.source[start : self.column], _SHOWN)
        after = printable(self.source[self.column : start + _SHOWN], _SHOWN)
        dots = "…" if start else ""
        more = "…" if start + _SHOWN < len(self.source) else ""
        caret = " " * (len(dots) + _width(before))
        return f"{self.message}\n  {dots}{before}{after}{more}\n  {caret}^"


def _width(text: str) -> int:
    """Terminal columns of a text."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


@dataclass(frozen=True)
class Expression:
    """A parsed expression, ready to be evaluated for any values of its inputs."""

    text: str
    statements: tuple[ast.stmt, ...]
    inputs: tuple[str, ...]  # names that need a value, in the order they are first used

    def __call__(self, **values: Number) -> Value:
        """The graph of the expression; numbers become inputs labelled by their names.

        >>> from chainrule.see.expressions import parse
        >>> f = parse("relu(a*b + d)")(a=2, b=-3, d=10)
        >>> f.data
        4.0
        """
        leaves = {
            name: x if isinstance(x, Value) else Value(x, label=name) for name, x in values.items()
        }
        return _Evaluation(self.text, leaves).run(self.statements)


def parse(text: str, given: Iterable[str] = ()) -> Expression:
    """The expression, or an ExpressionError. Names ``given`` a value hide constants."""
    text = text.strip()
    if not text:
        raise ExpressionError('the expression is empty: write one such as "relu(a*b + d)"')
    if len(text) > LONGEST:
        raise ExpressionError(
            f"the expression is too long: {len(text):,} characters, not {LONGEST:,}"
        )
    statements = tuple(_parse_python(text).body)
    if not statements:
        raise ExpressionError("there is no expression here", text)
    return Expression(text, statements, _inputs(text, statements, set(given)))


def _parse_python(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the tokenizer's advice about things we refuse anyway
            # A syntax error makes Python look for the line in the file: no file has this name.
            return ast.parse(text, filename="")
    except SyntaxError as error:
        raise _syntax_error(text, error) from None
    except (RecursionError, MemoryError):
        raise ExpressionError("the expression is nested too deeply") from None
    except ValueError as error:  # a null byte
        raise ExpressionError(f"the expression cannot be read: {error}") from None


def _syntax_error(text: str, error: SyntaxError) -> ExpressionError:
    lines = text.splitlines()
    row = min(max(error.lineno or 1, 1), len(lines)) - 1
    column = min(max((error.offset or 1) - 1, 0), len(lines[row]))
    message = error.msg
    if "nested" in message or "recursion" in message:
        message = "nested too deeply"
    elif "decimal literal" in message:
        message = "a number runs into a name; write 2*a for 2 times a"
    elif message.startswith("invalid syntax"):
        message = "this cannot be read"
    return ExpressionError(f"syntax error: {message}", lines[row], column)


def _inputs(text: str, statements: Sequence[ast.stmt], given: set[str]) -> tuple[str, ...]:
    """The names read before any assignment to them, functions and unhidden constants apart."""
    reader = _Evaluation(text, {})
    found: dict[str, None] = {}
    assigned: set[str] = set()
    for statement in statements:
        target, value = reader.assignment(statement)
        if isinstance(statement, ast.AugAssign) and target and target not in assigned:
            found.setdefault(target)
        called = {id(n.func) for n in ast.walk(value) if isinstance(n, ast.Call)}
        names = [n for n in ast.walk(value) if isinstance(n, ast.Name) and id(n) not in called]
        for name in sorted(names, key=lambda n: (n.lineno, n.col_offset)):
            constant = name.id in CONSTANTS and name.id not in given
            if name.id not in assigned and not constant:
                found.setdefault(name.id)
        if target:
            assigned.add(target)
    return tuple(found)


class _Evaluation:
    """One walk over the statements: names to Values, every error with its column."""

    def __init__(self, text: str, names: Mapping[str, Value]) -> None:
        self.lines = text.splitlines()
        self.names: dict[str, Number] = dict(names)

    def run(self, statements: Sequence[ast.stmt]) -> Value:
        """The value of the last statement."""
        result: Number = math.nan
        for statement in statements:
            target, value = self.assignment(statement)
            if target is None and statement is not statements[-1]:
                self.fail("only the last statement may go without a name", statement)
            result = self.number(value, DEEPEST)
            if isinstance(statement, ast.AugAssign) and target:
                before = self.name(statement.target)
                result = self.binary(statement, statement.op, before, result)
            if target:
                result = self.names[target] = self.labelled(result, target)
        if isinstance(result, Value):
            return result
        self.fail(
            f"there is nothing to differentiate: the result is the plain number {result:g}",
            statements[-1],
        )

    @staticmethod
    def labelled(result: Number, label: str) -> Value:
        """The result of an assignment: a node is called by it, a number becomes an input."""
        if not isinstance(result, Value):
            return Value(result, label=label)
        if not result.label:
            result.label = label
        return result

    def assignment(self, statement: ast.stmt) -> tuple[str | None, ast.expr]:
        """The name a statement assigns to, if it does, and its expression."""
        if isinstance(statement, ast.Expr):
            return None, statement.value
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target: ast.expr = statement.targets[0]
        elif isinstance(statement, ast.AugAssign):
            target = statement.target
        else:
            self.fail("only expressions and assignments such as c = a*b are allowed", statement)
        if not isinstance(target, ast.Name):
            self.fail("only a name can be assigned to", target)
        if target.id in FUNCTIONS:
            self.fail(f"{target.id!r} is a function, so it cannot be a name", target)
        return target.id, statement.value

    def number(self, node: ast.AST, room: int) -> Number:
        """The value of one expression; ``room`` is how much deeper it may go."""
        if room <= 0:
            self.fail(f"nested too deeply: more than {DEEPEST} levels", node)
        if isinstance(node, ast.BinOp):
            return self.chain(node, room)
        if isinstance(node, ast.UnaryOp):
            return self.unary(node, room)
        if isinstance(node, ast.Call):
            return self.call(node, room)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.Compare):
            self.fail("a comparison can only be the condition of where(condition, a, b)", node)
        kind = _KINDS.get(type(node), "this")
        self.fail(f"{kind} is not allowed: use names, numbers, + - * / ** and functions", node)

    def chain(self, node: ast.BinOp, room: int) -> Number:
        """``a + b + c + ...`` without recursion along the left, so that long sums are no depth."""
        links: list[ast.BinOp] = []
        first: ast.AST = node
        while isinstance(first, ast.BinOp):
            links.append(first)
            first = first.left
        result = self.number(first, room - 1)
        for link in reversed(links):
            result = self.binary(link, link.op, result, self.number(link.right, room - 1))
        return result

    def binary(self, node: ast.AST, op: ast.operator, a: Number, b: Number) -> Number:
        function = _OPERATORS.get(type(op))
        if function is None:
            hint = "; a power is written **" if isinstance(op, ast.BitXor) else ""
            sign = _SIGNS.get(type(op), "this operator")
            self.fail(f"{sign} is not allowed{hint}", getattr(node, "right", node))
        return self.attempt(node, lambda: function(a, b))

    def unary(self, node: ast.UnaryOp, room: int) -> Number:
        x = self.number(node.operand, room - 1)
        if isinstance(node.op, ast.USub):
            return -x
        if isinstance(node.op, ast.UAdd):
            return x
        self.fail("only the signs + and - are allowed here", node)

    def call(self, node: ast.Call, room: int) -> Number:
        if not isinstance(node.func, ast.Name):
            self.fail(
                "only functions such as tanh(x) can be called; write 2*(a) for a product", node
            )
        name = node.func.id
        op = FUNCTIONS.get(name)
        if op is None:
            shown = printable(name)
            if name in self.names or name in CONSTANTS:
                self.fail(f"{shown!r} is a number, not a function; write {shown}*(...)", node)
            self.fail(f"unknown function {shown!r}{_suggest(name, FUNCTIONS)}", node)
        arguments = [self.argument(op, i, node, room) for i in range(len(node.args))]
        arguments += self.keywords(op, node, len(arguments), room)
        wanted = op.arity + len(op.parameters)
        if not wanted - len(op.defaults) <= len(arguments) <= wanted:
            names = ("x",) if op.arity == 1 else ("a", "b")
            call = (*op.parameters, *names) if op is ops._where else (*names, *op.parameters)
            self.fail(f"{name} is called as {name}({', '.join(call)})", node)
        if op is ops._where:
            arguments = [*arguments[1:], arguments[0]]
        operands, parameters = arguments[: op.arity], arguments[op.arity :]
        for parameter in parameters:
            if isinstance(parameter, Value):
                names_of_them = " and ".join(op.parameters)
                self.fail(f"{name}'s {names_of_them} must be plain numbers", node)
        return self.attempt(node, lambda: _apply(op, operands, op.complete(tuple(parameters))))

    def argument(self, op: Op, i: int, call: ast.Call, room: int) -> Any:
        node = call.args[i]
        if op is ops._where and i == 0:
            return self.condition(node, room)
        return self.number(node, room - 1)

    def keywords(self, op: Op, node: ast.Call, positional: int, room: int) -> list[Any]:
        """Parameters given by name, ``slope=0.1``, in their places."""
        if not node.keywords:
            return []
        named = {k.arg: k.value for k in node.keywords if k.arg}
        missing = op.parameters[max(positional - op.arity, 0) :]
        if len(named) != len(node.keywords) or not named.keys() <= set(missing) or op is ops._where:
            self.fail(f"{op.name} has no such named argument", node.keywords[0].value)
        defaults = dict(zip(op.parameters[::-1], op.defaults[::-1], strict=False))
        return [self.number(named[p], room - 1) if p in named else defaults[p] for p in missing]

    def condition(self, node: ast.AST, room: int) -> bool:
        if not isinstance(node, ast.Compare):
            return bool(self.number(node, room - 1))
        compare = _COMPARISONS.get(type(node.ops[0])) if len(node.ops) == 1 else None
        if compare is None:
            self.fail("a condition is one comparison with <, <=, > or >=", node)
        left, right = (self.number(x, room - 1) for x in (node.left, node.comparators[0]))
        return compare(_data(left), _data(right))

    def name(self, node: ast.AST) -> Number:
        assert isinstance(node, ast.Name)
        if node.id in self.names:
            return self.names[node.id]
        if node.id in CONSTANTS:
            return CONSTANTS[node.id]
        if node.id in FUNCTIONS:
            self.fail(f"{node.id} is a function: write {node.id}(...)", node)
        close, shown = _suggest(node.id, [*self.names, *FUNCTIONS]), printable(node.id)
        self.fail(f"{shown!r} has no value: add {shown}=NUMBER{close}", node)

    def constant(self, node: ast.Constant) -> float:
        if type(node.value) not in (int, float):
            self.fail("only real numbers are allowed", node)
        try:
            number = float(node.value)  # type: ignore[arg-type]
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            self.fail("this number is too large for a float", node)
        return number

    def attempt(self, node: ast.AST, compute: Callable[[], Number]) -> Number:
        """Compute, and say where in the text an undefined value arose."""
        try:
            return compute()
        except (ValueError, ArithmeticError) as error:
            self.fail(str(error), node)

    def fail(self, message: str, node: ast.AST) -> NoReturn:
        """Raise the error that points at a node."""
        line = self.lines[getattr(node, "lineno", 1) - 1]
        place = line.encode()[: getattr(node, "col_offset", 0)]
        raise ExpressionError(message, line, len(place.decode())) from None


def _apply(op: Op, operands: Sequence[Number], parameters: Sequence[Any]) -> Number:
    if any(isinstance(x, Value) for x in operands):
        return Value._apply_op(op, operands, parameters)
    return errors.evaluate(op, [_data(x) for x in operands], parameters, False)


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, Value) or isinstance(b, Value):
        power: Number = a**b
        return power
    return errors.evaluate(ops.pow, (a,), (b,), False)


def _divide(a: Number, b: Number) -> Number:
    if isinstance(a, Value) or isinstance(b, Value):
        return a / b
    if b == 0:
        raise ZeroDivisionError(f"{a:g} / 0 is undefined: division by zero")
    if math.isinf(a / b):
        raise OverflowError(f"{a:g} / {b:g} overflows: the result is too large for a float")
    return a / b


def _data(x: Number) -> float:
    return x.data if isinstance(x, Value) else x


_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda a, b: _apply(ops.add, (a, b), ()) if _plain(a, b) else a + b,
    ast.Sub: lambda a, b: _apply(ops.add, (a, -b), ()) if _plain(a, b) else a - b,
    ast.Mult: lambda a, b: _apply(ops.mul, (a, b), ()) if _plain(a, b) else a * b,
    ast.Div: _divide,
    ast.Pow: _power,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
_SIGNS: dict[type[ast.operator], str] = {
    ast.BitXor: "^",
    ast.Mod: "%",
    ast.FloorDiv: "//",
    ast.MatMult: "@",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
_KINDS: dict[type[ast.AST], str] = {
    ast.Attribute: "an attribute",
    ast.Subscript: "an index",
    ast.Lambda: "a lambda",
    ast.IfExp: "if-else (write where(condition, a, b))",
    ast.BoolOp: "and/or",
    ast.Tuple: "a comma",
    ast.List: "a list",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.JoinedStr: "a string",
}


def _plain(a: Number, b: Number) -> bool:
    return not (isinstance(a, Value) or isinstance(b, Value))


def _suggest(name: str, known: Iterable[str]) -> str:
    if name in _OTHER_NAMES:
        return f"; did you mean {_OTHER_NAMES[name]!r}?"
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


# --- values: a=2 b=-3 -----------------------------------------------------------------------------


def parse_values(arguments: Sequence[str]) -> dict[str, float]:
    """``["a=2", "b=-3"]`` as numbers by name; a number may be computed, as in ``a=pi/2``.

    >>> from chainrule.see.expressions import parse_values
    >>> parse_values(["a=2", "b=-3"])
    {'a': 2.0, 'b': -3.0}
    """
    line = " ".join(arguments)
    values: dict[str, float] = {}
    column = 0
    for argument in arguments:
        name, equals, number = argument.partition("=")
        name = unicodedata.normalize("NFKC", name.strip())
        shown = printable(name)
        if not equals or not number.strip():
            raise ExpressionError(
                f"{printable(argument)!r} is not a value: write {shown or 'a'}=2", line, column
            )
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ExpressionError(f"{shown!r} cannot be a name", line, column)
        if name in FUNCTIONS:
            raise ExpressionError(f"{name!r} is a function, so it cannot be a name", line, column)
        if name in values:
            raise ExpressionError(f"{shown!r} is given twice", line, column)
        values[name] = _plain_number(argument, number, line, column)
        column += len(argument) + 1
    return values


def _plain_number(argument: str, text: str, line: str, column: int) -> float:
    start = column + len(argument) - len(text)
    try:
        body = _parse_python(text.strip()).body
        if len(text) > LONGEST or len(body) != 1 or not isinstance(body[0], ast.Expr):
            raise ExpressionError("not a number")
        return float(_Evaluation(text.strip(), {}).number(body[0].value, DEEPEST))
    except ExpressionError as error:
        inner = error.column if error.source else 0
        reason = "" if "has no value" in error.message else f": {error.message}"
        shown = printable(text.strip())
        raise ExpressionError(f"{shown!r} is not a number{reason}", line, start + inner) from None


def evaluate(text: str, arguments: Sequence[str]) -> tuple[Expression, dict[str, Value], Value]:
    """The whole job of a command: the expression, its inputs by name, and its graph.

    >>> from chainrule.see.expressions import evaluate
    >>> _, inputs, L = evaluate("c = a*b; L = c + a", ["a=2", "b=3"])
    >>> L
    Value(data=8.0, grad=0.0, label='L')
    """
    numbers = parse_values(arguments)
    expression = parse(text, numbers)
    inputs = {name: Value(number, label=name) for name, number in numbers.items()}
    result = expression(**inputs)
    for name in numbers:
        if name not in expression.inputs:
            line = " ".join(arguments)
            column = [a.partition("=")[0].strip() for a in arguments].index(name)
            start = sum(len(a) + 1 for a in arguments[:column])
            close = _suggest(name, expression.inputs)
            unused = f"{printable(name)!r} is given but not used by {printable(text, _SHOWN)!r}"
            raise ExpressionError(f"{unused}{close}", line, start)
    return expression, inputs, result
