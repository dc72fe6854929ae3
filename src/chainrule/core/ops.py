"""The op table: every operation chainrule knows, one row each.

A row holds the forward rule and one partial derivative per operand, written with ordinary operators
and the rows themselves (``exp(x)``, ``where(c, a, b)``, ``div(a, b)``). A row is a function over
*whatever it is given*: floats and numpy arrays follow IEEE rules and never raise; any other type
takes part by offering a static method ``_apply_op(op, operands, parameters)``, as ``Value`` does.
So one line of maths serves evaluation, higher derivatives, array programs and code generation.

Two habits keep that possible: rows branch only through ``where``, and compare operands only with
``<  <=  >  >=`` (``==`` between Values is identity).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Rule = Callable[..., Any]

NAN = math.nan
INF = math.inf


def no_gradient(*_: Any) -> float:
    """The partial derivative of an operand that no gradient flows through."""
    return 0.0


def _always(*_: Any) -> bool:
    return True


@dataclass(frozen=True)
class Edge:
    """A point where a derivative is a convention, and the convention chosen."""

    operands: tuple[float, ...]
    parameters: tuple[float, ...]
    value: float
    partials: tuple[float, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Op:
    """One operation: how to compute it and how to differentiate it.

    ``forward(*operands, *parameters)`` gives the value ``y``; ``partials[i](y, *operands,
    *parameters)`` gives ∂y/∂operand i. Parameters are static numbers such as a constant exponent.

    >>> from chainrule.core import ops
    >>> ops.tanh
    tanh: y = tanh(x)
    >>> ops.tanh(0.5) == __import__("math").tanh(0.5)
    True
    >>> ops.log(0.0)
    -inf
    """

    name: str
    symbol: str
    formula: str
    forward: Rule
    partials: tuple[Rule, ...]
    parameters: tuple[str, ...] = ()
    defaults: tuple[float, ...] = ()
    #: what the operands must satisfy, in words; None where every real number will do
    domain: str | None = None
    #: the error of an infinite result that is not an overflow, or None if it is one
    pole: Callable[..., type[ArithmeticError] | type[ValueError] | None] = lambda *_: None
    #: given the parameters: where its domain ends, as pairs of an operand's position and a number
    ends: Callable[..., tuple[tuple[int, float], ...]] = lambda *_: ()
    #: given the parameters: whether the result is not finite wherever an operand is not
    shows_nonfinite: Callable[..., bool] = lambda *_: False
    edges: tuple[Edge, ...] = ()
    #: operands for the documentation's example
    example: tuple[float, ...] = (0.5, 2.0)
    #: other spellings of the method; numpy looks methods up under its own names
    aliases: tuple[str, ...] = ()
    #: the positions of the operands that a gradient flows through
    differentiable: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        flows = tuple(i for i, rule in enumerate(self.partials) if rule is not no_gradient)
        object.__setattr__(self, "differentiable", flows)

    @property
    def arity(self) -> int:
        """How many operands it takes."""
        return len(self.partials)

    @property
    def is_operator(self) -> bool:
        """Whether it is written ``a + b``; the others are functions and methods."""
        return self.symbol in ("+", "*", "**")

    def __repr__(self) -> str:
        return f"{self.name}: y = {self.formula}"

    def __call__(self, *arguments: Any) -> Any:
        """Apply the operation to floats, arrays, Values or anything with ``_apply_op``."""
        arity = len(self.partials)
        for x in arguments:
            kind = type(x)
            if kind is float or kind is bool:
                continue
            if hasattr(kind, "_apply_op"):
                return kind._apply_op(self, arguments[:arity], self.complete(arguments[arity:]))
        operands = [
            x if type(x) is float else float(x) if isinstance(x, (int, np.floating)) else x
            for x in arguments[:arity]
        ]
        return self.forward(*operands, *self.complete(arguments[arity:]))

    def complete(self, parameters: tuple[Any, ...]) -> tuple[Any, ...]:
        """The static parameters, with defaults in the places left out."""
        missing = len(self.parameters) - len(parameters)
        if missing == 0:
            return parameters
        if missing < 0 or missing > len(self.defaults):
            wanted = ", ".join(("x",) * self.arity + self.parameters)
            raise TypeError(f"{self.name}({wanted}) got {len(parameters)} parameters")
        return parameters + self.defaults[-missing:]

    def local_grads(self, y: Any, operands: Any, parameters: Any) -> tuple[Any, ...]:
        """Every partial derivative at one point."""
        if parameters:
            operands = (*operands, *parameters)
        return tuple([partial(y, *operands) for partial in self.partials])

    def display(self, parameters: tuple[float, ...]) -> str:
        """The symbol shown in drawings: ``**`` carries its exponent, as in ``**2``."""
        if self is pow:
            return f"**{format_number(parameters[0])}"
        return self.symbol

    def call_text(self, operands: tuple[float, ...], parameters: tuple[float, ...] = ()) -> str:
        """The call as a person would write it: ``2 * 3``, ``0**-1``, ``log(-1)``."""
        words = [format_number(x) for x in (*operands, *parameters)]
        if self.is_operator:
            # A negative left operand binds looser than **, so it needs its brackets.
            left = f"({words[0]})" if self.symbol == "**" and words[0].startswith("-") else words[0]
            space = "" if self.symbol == "**" else " "
            return f"{left}{space}{self.symbol}{space}{words[1]}"
        return f"{self.name}({', '.join(words)})"


def format_number(x: float) -> str:
    """A number without a useless ``.0``: 2.0 → ``2``, 0.1 → ``0.1``."""
    return str(int(x)) if x == x and abs(x) < 1e16 and x == int(x) else repr(float(x))


#: every row by its name
TABLE: dict[str, Op] = {}
_followers: list[Callable[[Op], None]] = []


def row(name: str, formula: str, forward: Rule, *partials: Rule, **fields: Any) -> Op:
    """Add an operation to the table and return it.

    This is all there is to do: the function, the method, the command line's expressions,
    explanations, tapes and machine code follow from the row. (Documentation, declarations and
    tests: CONTRIBUTING.md.)
    """
    if name in TABLE:
        raise ValueError(f"the op table already has a row named {name!r}")
    symbol = fields.pop("symbol", name)
    op = Op(name, symbol, formula, forward, partials, **fields)
    TABLE[name] = op
    for follower in _followers:
        follower(op)
    return op


def follow(follower: Callable[[Op], None]) -> None:
    """Call ``follower`` with every row: now those of the table, later each one added."""
    for op in TABLE.values():
        follower(op)
    _followers.append(follower)


def libm(scalar: Callable[..., float], array: Callable[..., Any]) -> Rule:
    """A function given by the C library: over floats, over arrays, IEEE rules in both."""

    def forward(*xs: Any) -> Any:
        for x in xs:
            if isinstance(x, np.ndarray):
                return array(*xs)
        try:
            return scalar(*xs)
        except (ValueError, ArithmeticError):  # Python raises where IEEE gives inf or nan
            with np.errstate(all="ignore"):
                return float(array(*xs))

    forward.scalar = scalar  # type: ignore[attr-defined]  # code generation has its own way
    return forward


def div(a: Any, b: Any) -> Any:
    """``a / b`` by IEEE rules. Not a row: between Values it is ``a * b**-1``."""
    try:
        return a / b
    except ZeroDivisionError:
        if type(a) in (int, float) and type(b) in (int, float):
            with np.errstate(all="ignore"):
                return float(np.divide(float(a), float(b)))
        raise


def elementwise(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """``function`` over arrays, for the few that numpy does not have."""
    return np.vectorize(function, otypes=[float])


def _choose(a: Any, b: Any, c: Any) -> Any:
    return np.where(c, a, b) if isinstance(c, np.ndarray) else (a if c else b)


def _at(*numbers: float) -> Callable[..., tuple[tuple[int, float], ...]]:
    """The domain of the first operand ends there."""
    ends = tuple([(0, x) for x in numbers])
    return lambda *_: ends


# --- choosing -----------------------------------------------------------------------------------
# The condition is a parameter: it selects, and nothing is differentiated through it.

_where = row(
    "where",
    "a if condition else b",
    _choose,
    lambda y, a, b, c: where(c, 1.0, 0.0),
    lambda y, a, b, c: where(c, 0.0, 1.0),
    parameters=("condition",),
)


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` where the condition holds, else ``b``, over whatever the three are."""
    if type(condition) is bool and type(a) is float and type(b) is float:
        return a if condition else b
    if hasattr(type(condition), "_apply_op"):
        return type(condition)._apply_op(_where, (a, b), (condition,))
    return _where(a, b, condition)


# --- arithmetic ---------------------------------------------------------------------------------

add = row(
    "add",
    "a + b",
    operator.add,
    lambda y, a, b: 1.0,
    lambda y, a, b: 1.0,
    symbol="+",
    shows_nonfinite=_always,
)
mul = row(
    "mul",
    "a * b",
    operator.mul,
    lambda y, a, b: b,
    lambda y, a, b: a,
    symbol="*",
    shows_nonfinite=_always,
)

pow: Op = row(
    "pow",
    "x**p, p constant",
    libm(math.pow, np.power),
    lambda y, x, p: where(p == 0, 0.0, p * pow(x, p - 1.0)),
    parameters=("exponent",),
    symbol="**",
    domain="a base that is not 0 for a negative exponent, not negative for a fractional one",
    ends=lambda p: ((0, 0.0),) if p < 0.0 or p != math.floor(p) else (),
    pole=lambda x, p: ZeroDivisionError if x == 0 else None,
    shows_nonfinite=lambda p: p > 0.0,
    edges=(
        Edge((0.0,), (0.0,), 1.0, (0.0,)),
        Edge((0.0,), (1.0,), 0.0, (1.0,)),
        Edge((0.0,), (0.5,), 0.0, (INF,)),
    ),
)

# The C library's pow of two variables, without power's restriction: a building block, not a row.
raw_power = Op("raw_power", "**", "pow(x, p)", pow.forward, (lambda *_: NAN, lambda *_: NAN))

power: Op = row(
    "power",
    "x**p, both variable",
    lambda x, p: where(x > 0, raw_power(x, p), NAN),
    lambda y, x, p: p * power(x, p - 1.0),
    lambda y, x, p: y * log(x),
    symbol="**",
    domain="a base > 0; write the exponent as a plain number for other bases",
    ends=_at(0.0),
)

sqrt = row(
    "sqrt",
    "√x",
    libm(math.sqrt, np.sqrt),
    lambda y, x: div(0.5, y),
    domain="x >= 0",
    ends=_at(0.0),
    shows_nonfinite=_always,
    edges=(Edge((0.0,), (), 0.0, (INF,)),),
)

hypot = row(
    "hypot",
    "√(a² + b²)",
    libm(math.hypot, np.hypot),
    lambda y, a, b: where(y > 0, div(a, y), 0.0),
    lambda y, a, b: where(y > 0, div(b, y), 0.0),
    edges=(Edge((0.0, 0.0), (), 0.0, (0.0, 0.0)),),
)

abs = row(
    "abs",
    "|x|",
    operator.abs,
    lambda y, x: where(x > 0, 1.0, where(x < 0, -1.0, 0.0)),
    edges=(Edge((0.0,), (), 0.0, (0.0,)),),
)

# --- exponentials and logarithms ----------------------------------------------------------------


def _log_pole(x: float) -> type[ValueError]:
    return ValueError  # Python's own: math.log(0) is a ValueError


exp = row("exp", "eˣ", libm(math.exp, np.exp), lambda y, x: y)
expm1 = row("expm1", "eˣ - 1", libm(math.expm1, np.expm1), lambda y, x: exp(x))
log: Op = row(
    "log",
    "ln x",
    libm(math.log, np.log),
    lambda y, x: div(1.0, x),
    domain="x > 0",
    ends=_at(0.0),
    pole=_log_pole,
    shows_nonfinite=_always,
)
log1p = row(
    "log1p",
    "ln(1 + x)",
    libm(math.log1p, np.log1p),
    lambda y, x: div(1.0, 1.0 + x),
    domain="x > -1",
    ends=_at(-1.0),
    pole=_log_pole,
)
log2 = row(
    "log2",
    "log₂ x",
    libm(math.log2, np.log2),
    lambda y, x: div(1.0, x * math.log(2.0)),
    domain="x > 0",
    ends=_at(0.0),
    pole=_log_pole,
)
log10 = row(
    "log10",
    "log₁₀ x",
    libm(math.log10, np.log10),
    lambda y, x: div(1.0, x * math.log(10.0)),
    domain="x > 0",
    ends=_at(0.0),
    pole=_log_pole,
)

# --- activations --------------------------------------------------------------------------------

relu = row(
    "relu",
    "max(0, x)",
    lambda x: where(x <= 0, 0.0, x),
    lambda y, x: where(x > 0, 1.0, 0.0),
    edges=(Edge((0.0,), (), 0.0, (0.0,)),),
)
leaky_relu = row(
    "leaky_relu",
    "x if x > 0 else slope·x",
    lambda x, slope: where(x > 0, x, slope * x),
    lambda y, x, slope: where(x > 0, 1.0, slope),
    parameters=("slope",),
    defaults=(0.01,),
    edges=(Edge((0.0,), (0.25,), 0.0, (0.25,)),),
)
tanh = row("tanh", "tanh(x)", libm(math.tanh, np.tanh), lambda y, x: 1.0 - y * y)


def _sigmoid(x: Any) -> Any:
    e = exp(-abs(x))  # in (0, 1]: neither branch can overflow
    return div(where(x >= 0, 1.0, e), 1.0 + e)


sigmoid = row("sigmoid", "1 / (1 + e⁻ˣ)", _sigmoid, lambda y, x: y * (1.0 - y))
softplus = row(
    "softplus",
    "ln(1 + eˣ)",
    lambda x: where(x > 0, x, 0.0) + log1p(exp(-abs(x))),
    lambda y, x: sigmoid(x),
)
silu = row(
    "silu",
    "x·sigmoid(x)",
    lambda x: x * sigmoid(x),
    lambda y, x: sigmoid(x) * (1.0 + x * sigmoid(-x)),
)

_ROOT_HALF = math.sqrt(0.5)
_GELU_SCALE = math.sqrt(2.0 / math.pi)
_GELU_CUBIC = 0.044715

# erfc rather than 1 + erf keeps the far negative tail exact.
gelu = row(
    "gelu",
    "x·Φ(x), exact",
    lambda x: 0.5 * x * erfc(-_ROOT_HALF * x),
    lambda y, x: (
        0.5 * erfc(-_ROOT_HALF * x) + x * exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))
    ),
)


def _gelu_tanh_slope(y: Any, x: Any) -> Any:
    x = clip(x, -1e3, 1e3)  # the slope is 0 or 1 beyond, and x * x would overflow
    t = tanh(_GELU_SCALE * (x + _GELU_CUBIC * x * x * x))
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * (
        _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBIC * x * x)
    )


gelu_tanh = row(
    "gelu_tanh",
    "½x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))",
    lambda x: 0.5 * x * (1.0 + tanh(_GELU_SCALE * (x + _GELU_CUBIC * x * x * x))),
    _gelu_tanh_slope,
)

# --- trigonometry -------------------------------------------------------------------------------

sin = row("sin", "sin x", libm(math.sin, np.sin), lambda y, x: cos(x))
cos: Op = row("cos", "cos x", libm(math.cos, np.cos), lambda y, x: -sin(x))
tan = row("tan", "tan x", libm(math.tan, np.tan), lambda y, x: 1.0 + y * y)
asin = row(
    "asin",
    "arcsin x",
    libm(math.asin, np.arcsin),
    lambda y, x: div(1.0, sqrt((1.0 - x) * (1.0 + x))),
    domain="-1 <= x <= 1",
    ends=_at(-1.0, 1.0),
    edges=(Edge((1.0,), (), math.pi / 2, (INF,)),),
    aliases=("arcsin",),
)
acos = row(
    "acos",
    "arccos x",
    libm(math.acos, np.arccos),
    lambda y, x: div(-1.0, sqrt((1.0 - x) * (1.0 + x))),
    domain="-1 <= x <= 1",
    ends=_at(-1.0, 1.0),
    edges=(Edge((1.0,), (), 0.0, (-INF,)),),
    aliases=("arccos",),
)
atan = row(
    "atan",
    "arctan x",
    libm(math.atan, np.arctan),
    lambda y, x: div(1.0, 1.0 + x * x),
    aliases=("arctan",),
)


def _over_square(a: Any, h: Any) -> Any:
    """``a / h²`` without squaring h, which could overflow; 0 at the origin."""
    return where(h > 0, div(div(a, h), h), 0.0)


atan2 = row(
    "atan2",
    "the angle of the point (b, a)",
    libm(math.atan2, np.arctan2),
    lambda y, a, b: _over_square(b, hypot(a, b)),
    lambda y, a, b: _over_square(-a, hypot(a, b)),
    edges=(Edge((0.0, 0.0), (), 0.0, (0.0, 0.0)),),
    aliases=("arctan2",),
)
sinh = row("sinh", "sinh x", libm(math.sinh, np.sinh), lambda y, x: cosh(x))
cosh: Op = row("cosh", "cosh x", libm(math.cosh, np.cosh), lambda y, x: sinh(x))
asinh = row(
    "asinh",
    "arsinh x",
    libm(math.asinh, np.arcsinh),
    lambda y, x: div(1.0, hypot(x, 1.0)),
    aliases=("arcsinh",),
)
acosh = row(
    "acosh",
    "arcosh x",
    libm(math.acosh, np.arccosh),
    lambda y, x: div(1.0, sqrt(x - 1.0) * sqrt(x + 1.0)),
    domain="x >= 1",
    ends=_at(1.0),
    example=(1.5,),
    edges=(Edge((1.0,), (), 0.0, (INF,)),),
    aliases=("arccosh",),
)
atanh = row(
    "atanh",
    "artanh x",
    libm(math.atanh, np.arctanh),
    lambda y, x: div(1.0, (1.0 - x) * (1.0 + x)),
    domain="-1 < x < 1",
    ends=_at(-1.0, 1.0),
    pole=_log_pole,
    aliases=("arctanh",),
)

_ERF_SLOPE = 2.0 / math.sqrt(math.pi)

erf = row(
    "erf",
    "2/√π · ∫₀ˣ e^(-t²) dt",
    libm(math.erf, elementwise(math.erf)),
    lambda y, x: _ERF_SLOPE * exp(-x * x),
)
erfc: Op = row(
    "erfc",
    "1 - erf(x)",
    libm(math.erfc, elementwise(math.erfc)),
    lambda y, x: -_ERF_SLOPE * exp(-x * x),
)

# --- comparing and picking ----------------------------------------------------------------------

maximum = row(
    "maximum",
    "the larger of a and b",
    lambda a, b: where(a >= b, a, where(b > a, b, a + b)),  # a + b: only a nan gets there
    lambda y, a, b: where(a > b, 1.0, where(a < b, 0.0, 0.5)),
    lambda y, a, b: where(a > b, 0.0, where(a < b, 1.0, 0.5)),
    edges=(Edge((2.0, 2.0), (), 2.0, (0.5, 0.5)),),
)
minimum = row(
    "minimum",
    "the smaller of a and b",
    lambda a, b: where(a <= b, a, where(b < a, b, a + b)),
    lambda y, a, b: where(a < b, 1.0, where(a > b, 0.0, 0.5)),
    lambda y, a, b: where(a < b, 0.0, where(a > b, 1.0, 0.5)),
    edges=(Edge((2.0, 2.0), (), 2.0, (0.5, 0.5)),),
)
clip: Op = row(
    "clip",
    "x held between low and high",
    lambda x, low, high: where(x < low, low, where(x > high, high, x)),
    lambda y, x, low, high: where(x < low, 0.0, where(x > high, 0.0, 1.0)),
    parameters=("low", "high"),
    defaults=(-INF, INF),
    edges=(Edge((1.0,), (-1.0, 1.0), 1.0, (1.0,)), Edge((-1.0,), (-1.0, 1.0), -1.0, (1.0,))),
)

# --- building blocks of recordings ----------------------------------------------------------------
# What a recorded function computes beside differentiable operations: numbers read from ``.data``,
# comparisons, Python's own max. None of them is in the table; gradients flow through the last four
# only.


def _block(name: str, formula: str, forward: Rule, *partials: Rule, **fields: Any) -> Op:
    return Op(name, name, formula, forward, partials, **fields)


detach = _block("detach", "x.data", lambda x: x, no_gradient, shows_nonfinite=_always)
divide = _block(
    "divide",
    "a / b of two floats",
    div,
    no_gradient,
    no_gradient,
    ends=lambda *_: ((1, 0.0),),
    pole=lambda a, b: ZeroDivisionError if b == 0 else None,
)
less = _block("less", "a < b", lambda a, b: where(a < b, 1.0, 0.0), no_gradient, no_gradient)
less_equal = _block(
    "less_equal", "a <= b", lambda a, b: where(a <= b, 1.0, 0.0), no_gradient, no_gradient
)
equal = _block(
    "equal",
    "a == b",
    lambda a, b: where(a <= b, where(a >= b, 1.0, 0.0), 0.0),
    no_gradient,
    no_gradient,
)
select = _block(
    "select",
    "a if c else b",
    lambda c, a, b: where(c > 0, a, b),
    no_gradient,
    lambda y, c, a, b: where(c > 0, 1.0, 0.0),
    lambda y, c, a, b: where(c > 0, 0.0, 1.0),
)
first_max = _block(
    "first_max",
    "max(a, b), the first of equals",
    lambda a, b: where(b > a, b, a),
    lambda y, a, b: where(b > a, 0.0, 1.0),
    lambda y, a, b: where(b > a, 1.0, 0.0),
)
first_min = _block(
    "first_min",
    "min(a, b), the first of equals",
    lambda a, b: where(b < a, b, a),
    lambda y, a, b: where(b < a, 0.0, 1.0),
    lambda y, a, b: where(b < a, 1.0, 0.0),
)


def _integer_power_slope(y: Any, n: Any, x: Any) -> Any:
    slope = n * integer_power(n - 1.0, x)
    return where(n <= 0, where(n >= 0, 0.0, slope), slope)


# What ``pow`` is, with an exponent that is known only at a call: the first operand, without slope.
integer_power: Op = _block(
    "integer_power",
    "x**n, n an integer",
    lambda n, x: raw_power(x, n),
    no_gradient,
    _integer_power_slope,
    domain="a base that is not 0 for a negative exponent",
    ends=lambda *_: ((1, 0.0),),
    pole=lambda n, x: ZeroDivisionError if x == 0 else None,
)
# What ``pow`` is, with the exponent as an operand, so that powers with other exponents are the same
# operation. Array programs have it, recordings do not.
number_power: Op = _block(
    "number_power",
    "x**p, p a plain number",
    raw_power.forward,
    lambda y, x, p: _integer_power_slope(y, p, x),
    no_gradient,
    domain=pow.domain,
    pole=pow.pole,
)
#: by name, for those who read recordings
BLOCKS = {
    op.name: op
    for op in (
        *(detach, divide, less, less_equal, equal, select),
        *(first_max, first_min, integer_power),
    )
}

#: rows by what ``Value.op`` shows, for constructors that name an operation by its symbol
BY_SYMBOL: dict[str, Op] = {op.symbol: op for op in TABLE.values() if op is not pow}
