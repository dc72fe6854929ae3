"""LLVM IR as text, with loops, vectors and the op table's arithmetic on them.

In: calls of a ``Code`` and operators on its ``Vector``s. Out: the lines of one function. A Vector
takes part in the op table through ``_apply_op``, so a row's formula, forward or partial, writes its
own machine code; functions of the C library that have no vector form here are called lane by lane.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.canonicalise import NotLiftable
from chainrule.ops import Op

Term = tuple[str | None, int]  # a register (None: 1) times a factor
Terms = list[Term]


def literal(x: float) -> str:
    """A double as LLVM writes it exactly."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


class Code:
    """One function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.slots: list[str] = []  # variables, to be promoted to registers
        self.tables: dict[bytes, tuple[str, np.ndarray[Any, Any]]] = {}
        self.declarations: set[str] = set()
        self._count = 0
        self._block = "start"

    def name(self, kind: str = "t") -> str:
        self._count += 1
        return f"%{kind}{self._count}"

    def emit(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str) -> str:
        """A new register holding an instruction's result."""
        register = self.name()
        self.emit(f"{register} = {text}")
        return register

    @contextmanager
    def loop(self, count: int | str) -> Iterator[str]:
        """Repeat what is emitted inside; gives the counter. A register count may be zero."""
        n = self.name("n")[1:]
        head, latch, done, before = f"head_{n}", f"latch_{n}", f"done_{n}", self._block
        if isinstance(count, str):
            positive = self.let(f"icmp sgt i64 {count}, 0")
            self.emit(f"br i1 {positive}, label %{head}, label %{done}")
        else:
            self.emit(f"br label %{head}")
        counter, following = f"%i_{n}", f"%j_{n}"
        self.lines.append(f"{head}:")
        self.emit(f"{counter} = phi i64 [0, %{before}], [{following}, %{latch}]")
        self._block = head
        yield counter
        self.emit(f"br label %{latch}")
        self.lines.append(f"{latch}:")
        self.emit(f"{following} = add nuw nsw i64 {counter}, 1")
        more = self.let(f"icmp ult i64 {following}, {count}")
        self.emit(f"br i1 {more}, label %{head}, label %{done}")
        self.lines.append(f"{done}:")
        self._block = done

    # --- memory ---------------------------------------------------------------------------------

    def pointer(self, array: str, terms: Terms) -> str:
        """The address of array[sum of terms]."""
        constant = sum(factor for register, factor in terms if register is None)
        moving: dict[str, int] = {}
        for register, factor in terms:
            if register is not None and factor:
                moving[register] = moving.get(register, 0) + factor
        at = array
        for register, factor in moving.items():
            scaled = register if factor == 1 else self.let(f"mul nsw i64 {register}, {factor}")
            at = self.let(f"getelementptr inbounds double, ptr {at}, i64 {scaled}")
        if constant:
            at = self.let(f"getelementptr inbounds double, ptr {at}, i64 {constant}")
        return at

    def load(self, array: str, terms: Terms, width: int = 1) -> Vector:
        at = self.pointer(array, terms)
        return Vector(self, self.let(f"load {kind(width)}, ptr {at}, align 8"), width)

    def store(self, array: str, terms: Terms, value: Vector) -> None:
        at = self.pointer(array, terms)
        self.emit(f"store {kind(value.width)} {value.register}, ptr {at}, align 8")

    def variable(self, value: Vector) -> Variable:
        slot = self.name("v")
        self.slots.append(f"  {slot} = alloca {kind(value.width)}, align 64")
        made = Variable(self, slot, value.width)
        made.set(value)
        return made

    def table(self, numbers: np.ndarray[Any, Any], at: str) -> str:
        """numbers[at], from a table in the module."""
        key = numbers.astype(np.int64).tobytes()
        label = self.tables.setdefault(key, (f"@table{len(self.tables)}", numbers))[0]
        place = self.let(f"getelementptr inbounds i64, ptr {label}, i64 {at}")
        return self.let(f"load i64, ptr {place}, align 8")

    def constant(self, x: float, width: int) -> Vector:
        if width == 1:
            return Vector(self, literal(x), 1)
        lanes = ", ".join([f"double {literal(x)}"] * width)
        return Vector(self, f"<{lanes}>", width)

    def call(self, function: str, operands: Sequence[Vector]) -> Vector:
        """An intrinsic or C function on operands of one width."""
        width = operands[0].width
        types = ", ".join([kind(width)] * len(operands))
        self.declarations.add(f"declare {kind(width)} @{function}({types})")
        given = ", ".join(f"{kind(width)} {x.register}" for x in operands)
        return Vector(self, self.let(f"call {kind(width)} @{function}({given})"), width)

    def fma(self, a: Vector, b: Vector, c: Vector) -> Vector:
        return self.call(f"llvm.fma.{suffix(a.width)}", (a, b, c))


def kind(width: int) -> str:
    return "double" if width == 1 else f"<{width} x double>"


def suffix(width: int) -> str:
    return "f64" if width == 1 else f"v{width}f64"


class Variable:
    """A mutable vector, which LLVM turns into registers."""

    def __init__(self, code: Code, slot: str, width: int) -> None:
        self.code, self.slot, self.width = code, slot, width

    def get(self) -> Vector:
        return Vector(
            self.code, self.code.let(f"load {kind(self.width)}, ptr {self.slot}"), self.width
        )

    def set(self, value: Vector) -> None:
        self.code.emit(f"store {kind(self.width)} {value.register}, ptr {self.slot}")


class Condition:
    """A vector of truths."""

    def __init__(self, code: Code, register: str, width: int) -> None:
        self.code, self.register, self.width = code, register, width

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Vector:
        """``where`` is all that can be done with it."""
        condition: Condition = parameters[0]
        code, width = condition.code, condition.width
        a, b = (x if isinstance(x, Vector) else code.constant(float(x), width) for x in operands)
        truth = "i1" if width == 1 else f"<{width} x i1>"
        pair = f"{kind(width)} {a.register}, {kind(width)} {b.register}"
        text = f"select {truth} {condition.register}, {pair}"
        return Vector(code, code.let(text), width)


class Vector:
    """Some doubles in a register."""

    def __init__(self, code: Code, register: str, width: int) -> None:
        self.code, self.register, self.width = code, register, width

    def lift(self, x: Any) -> Vector:
        return x if isinstance(x, Vector) else self.code.constant(float(x), self.width)

    def _binary(self, instruction: str, a: Any, b: Any) -> Vector:
        left, right = self.lift(a), self.lift(b)
        text = f"{instruction} {kind(self.width)} {left.register}, {right.register}"
        return Vector(self.code, self.code.let(text), self.width)

    def __add__(self, other: Any) -> Vector:
        return self._binary("fadd", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Vector:
        return self._binary("fsub", self, other)

    def __rsub__(self, other: Any) -> Vector:
        return self._binary("fsub", other, self)

    def __mul__(self, other: Any) -> Vector:
        return self._binary("fmul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Vector:
        return self._binary("fdiv", self, other)

    def __rtruediv__(self, other: Any) -> Vector:
        return self._binary("fdiv", other, self)

    def __neg__(self) -> Vector:
        return Vector(
            self.code, self.code.let(f"fneg {kind(self.width)} {self.register}"), self.width
        )

    def __abs__(self) -> Vector:
        return self.code.call(f"llvm.fabs.{suffix(self.width)}", (self,))

    def _compare(self, relation: str, other: Any) -> Condition:
        right = self.lift(other)
        text = f"fcmp {relation} {kind(self.width)} {self.register}, {right.register}"
        return Condition(self.code, self.code.let(text), self.width)

    def __lt__(self, other: Any) -> Condition:
        return self._compare("olt", other)

    def __le__(self, other: Any) -> Condition:
        return self._compare("ole", other)

    def __gt__(self, other: Any) -> Condition:
        return self._compare("ogt", other)

    def __ge__(self, other: Any) -> Condition:
        return self._compare("oge", other)

    def lanes(self) -> list[Vector]:
        """Its doubles, one by one."""
        if self.width == 1:
            return [self]
        text = f"extractelement {kind(self.width)} {self.register}, i64"
        return [Vector(self.code, self.code.let(f"{text} {i}"), 1) for i in range(self.width)]

    def splat(self, width: int) -> Vector:
        """One double in every lane."""
        if width == 1:
            return self
        first = self.code.let(f"insertelement {kind(width)} poison, double {self.register}, i64 0")
        pair = f"{kind(width)} {first}, {kind(width)} poison"
        text = f"shufflevector {pair}, <{width} x i32> zeroinitializer"
        return Vector(self.code, self.code.let(text), width)

    def total(self) -> Vector:
        """The sum of its lanes."""
        if self.width == 1:
            return self
        name = f"llvm.vector.reduce.fadd.{suffix(self.width)}"
        self.code.declarations.add(f"declare double @{name}(double, {kind(self.width)})")
        given = f"double {literal(-0.0)}, {kind(self.width)} {self.register}"
        text = f"call reassoc double @{name}({given})"
        return Vector(self.code, self.code.let(text), 1)

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Any:
        """Any row of the op table: by its own formula, or as a function of the C library."""
        vector: Vector = next(x for x in operands if isinstance(x, Vector))
        xs = [vector.lift(x) for x in operands]
        scalar = getattr(op.forward, "scalar", None)
        if scalar is None:
            return op.forward(*xs, *parameters)
        name = getattr(scalar, "__name__", "")
        if getattr(math, name, None) is not scalar:
            raise NotLiftable(f"there is no machine code for {op.name}")
        inline = INLINE.get(name)
        return (
            by_lanes(vector.code, name, xs)
            if inline is None
            else inline(vector.code, *xs, *parameters)
        )


def by_lanes(code: Code, function: str, xs: Sequence[Vector]) -> Vector:
    """A C function of each lane."""
    width = xs[0].width
    if width == 1:
        return code.call(function, xs)
    register = "poison"
    for i, lane in enumerate(zip(*[x.lanes() for x in xs], strict=True)):
        y = code.call(function, lane)
        register = code.let(f"insertelement {kind(width)} {register}, double {y.register}, i64 {i}")
    return Vector(code, register, width)


# --- elementary functions, inline -----------------------------------------------------------------


def _bits(code: Code, x: Vector) -> str:
    return code.let(f"bitcast {kind(x.width)} {x.register} to {whole(x.width)}")


def whole(width: int) -> str:
    return "i64" if width == 1 else f"<{width} x i64>"


def integers(x: int, width: int) -> str:
    return str(x) if width == 1 else "<" + ", ".join([f"i64 {x}"] * width) + ">"


def _power_of_two(code: Code, n: str, width: int) -> Vector:
    """2**n for an integer register within the exponents of normal doubles."""
    biased = code.let(f"add {whole(width)} {n}, {integers(1023, width)}")
    shifted = code.let(f"shl {whole(width)} {biased}, {integers(52, width)}")
    return Vector(code, code.let(f"bitcast {whole(width)} {shifted} to {kind(width)}"), width)


def exponential(code: Code, x: Vector) -> Vector:
    """e**x: 2**n times a polynomial in the remainder; scaled in two halves, for the subnormals."""
    magic = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer in the low bits
    x = ops.where(x > 710.0, 710.0, x)
    x = ops.where(x < -746.0, -746.0, x)
    shifted = code.fma(x, code.constant(math.log2(math.e), x.width), code.constant(magic, x.width))
    n = shifted - magic
    r = code.fma(n, code.constant(-0.693147180369123816490, x.width), x)
    r = code.fma(n, code.constant(-1.90821492927058770002e-10, x.width), r)
    p = code.constant(1.0 / math.factorial(13), x.width)
    for k in range(12, -1, -1):
        p = code.fma(p, r, code.constant(1.0 / math.factorial(k), x.width))
    exponent = code.let(
        f"sub {whole(x.width)} {_bits(code, shifted)}, {_magic_bits(magic, x.width)}"
    )
    half = code.let(f"ashr {whole(x.width)} {exponent}, {integers(1, x.width)}")
    rest = code.let(f"sub {whole(x.width)} {exponent}, {half}")
    return p * _power_of_two(code, half, x.width) * _power_of_two(code, rest, x.width)


def _magic_bits(magic: float, width: int) -> str:
    return integers(struct.unpack("<q", struct.pack("<d", magic))[0], width)


_LOG = (
    *(6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01),
    *(2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01),
    1.479819860511658591e-01,
)


def logarithm(code: Code, x: Vector) -> Vector:
    """ln x: the exponent times ln 2 plus a series in (m - 1)/(m + 1) of the mantissa m."""
    width = x.width
    tiny = x < 2.2250738585072014e-308
    scaled = ops.where(tiny, x * 18014398509481984.0, x)
    bits = _bits(code, scaled)
    # The mantissa goes to [sqrt(1/2), sqrt(2)): the offset makes the rounding of the exponent so.
    offset = integers(0x3FE6A09E667F3BCD, width)
    moved = code.let(f"sub {whole(width)} {bits}, {offset}")
    k = code.let(f"ashr {whole(width)} {moved}, {integers(52, width)}")
    up = code.let(f"shl {whole(width)} {k}, {integers(52, width)}")
    mantissa = code.let(f"sub {whole(width)} {bits}, {up}")
    m = Vector(code, code.let(f"bitcast {whole(width)} {mantissa} to {kind(width)}"), width)
    exponent = Vector(code, code.let(f"sitofp {whole(width)} {k} to {kind(width)}"), width)
    exponent = exponent - ops.where(tiny, 54.0, code.constant(0.0, width))
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    p = code.constant(_LOG[-1], width)
    for c in reversed(_LOG[:-1]):
        p = code.fma(p, z, code.constant(c, width))
    half = f * f * 0.5
    low = exponent * 1.90821492927058770002e-10
    y = exponent * 6.93147180369123816490e-01 - ((half - (s * (half + z * p) + low)) - f)
    y = ops.where(x < math.inf, y, x)  # inf and nan stay what they are
    outside = ops.where(x < 0.0, math.nan, ops.where(x >= 0.0, -math.inf, x))
    result: Vector = ops.where(x > 0.0, y, outside)
    return result


def power(code: Code, x: Vector, p: Vector | float) -> Vector:
    """x**p: common constant exponents by arithmetic, others by the C library."""
    if isinstance(p, Vector):
        return by_lanes(code, "pow", (x, p))
    if p == 2.0:
        return x * x
    if p == -1.0:
        return 1.0 / x
    if p in (0.5, -0.5):
        root = code.call(f"llvm.sqrt.{suffix(x.width)}", (x,))
        return root if p > 0 else 1.0 / root
    if p in (0.0, 1.0, 3.0, -2.0, -3.0):
        cube = {0.0: lambda: x * 0.0 + 1.0, 1.0: lambda: x, 3.0: lambda: x * x * x}
        return cube.get(p, lambda: 1.0 / power(code, x, -p))()
    if p == -1.5:
        return 1.0 / (x * code.call(f"llvm.sqrt.{suffix(x.width)}", (x,)))
    return by_lanes(code, "pow", (x, code.constant(p, x.width)))


INLINE: dict[str, Callable[..., Vector]] = {
    "exp": exponential,
    "log": logarithm,
    "sqrt": lambda code, x: code.call(f"llvm.sqrt.{suffix(x.width)}", (x,)),
    "pow": power,
}
