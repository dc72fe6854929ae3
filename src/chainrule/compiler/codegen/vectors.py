"""Vectors in registers, with operators that write LLVM IR.

In: operators and methods. Out: instructions in the ``Code`` of a Vector. The op table calls
``_apply_op``, so the formula of an operation or of its partial emits its own machine code.
Functions of the C library come from ``elementary`` where it has them, else they are called lane by
lane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainrule.compiler.codegen import elementary, jit
from chainrule.compiler.lift.graph import NotLiftable
from chainrule.core.operations import Opaque
from chainrule.core.ops import Op

if TYPE_CHECKING:
    from chainrule.compiler.codegen.ir import Code


class Variable:
    """A mutable vector, which LLVM promotes to registers."""

    def __init__(self, code: Code, slot: str, width: int) -> None:
        self.code, self.slot, self.width = code, slot, width

    def get(self) -> Vector:
        """Its value."""
        text = f"load {self.code.kind(self.width)}, ptr {self.slot}"
        return Vector(self.code, self.code.let(text), self.width)

    def set(self, value: Vector) -> None:
        """Assign a value."""
        self.code.emit(f"store {self.code.kind(self.width)} {value.register}, ptr {self.slot}")


class Condition:
    """A vector of booleans."""

    def __init__(self, code: Code, register: str, width: int) -> None:
        self.code, self.register, self.width = code, register, width

    @property
    def kind(self) -> str:
        """Its type."""
        return "i1" if self.width == 1 else f"<{self.width} x i1>"

    def choose(self, a: Any, b: Any) -> Vector:
        """``a`` where it holds, else ``b``."""
        code, width = self.code, self.width
        x, y = (v if isinstance(v, Vector) else code.constant(float(v), width) for v in (a, b))
        code = x.code  # the type of the numbers, which booleans do not have
        pair = f"{code.kind(width)} {x.register}, {code.kind(width)} {y.register}"
        return Vector(code, code.let(f"select {self.kind} {self.register}, {pair}"), width)

    def _logic(self, instruction: str, other: Condition) -> Condition:
        text = f"{instruction} {self.kind} {self.register}, {other.register}"
        return Condition(self.code, self.code.let(text), self.width)

    def __and__(self, other: Condition) -> Condition:
        return self._logic("and", other)

    def __or__(self, other: Condition) -> Condition:
        return self._logic("or", other)

    def any(self) -> str:
        """An i1 register: whether it holds in some lane."""
        if self.width == 1:
            return self.register
        name = f"llvm.vector.reduce.or.v{self.width}i1"
        self.code.declarations.add(f"declare i1 @{name}({self.kind})")
        return self.code.let(f"call i1 @{name}({self.kind} {self.register})")

    def vector(self) -> str:
        """Its type and register, as a vector even if it has one lane."""
        if self.width > 1:
            return f"{self.kind} {self.register}"
        made = self.code.let(f"insertelement <1 x i1> poison, i1 {self.register}, i64 0")
        return f"<1 x i1> {made}"

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Vector:
        """The only operation of the op table that takes a condition is ``where``."""
        condition: Condition = parameters[0]
        return condition.choose(*operands)


class Integers:
    """A vector of integers as wide as the numbers: a view of their bits."""

    def __init__(self, code: Code, register: str, width: int) -> None:
        self.code, self.register, self.width = code, register, width

    def _binary(self, instruction: str, other: Integers | int) -> Integers:
        code, width = self.code, self.width
        right = code.integers(other, width) if isinstance(other, int) else other.register
        text = f"{instruction} {code.whole(width)} {self.register}, {right}"
        return Integers(code, code.let(text), width)

    def __add__(self, other: Integers | int) -> Integers:
        return self._binary("add", other)

    def __sub__(self, other: Integers | int) -> Integers:
        return self._binary("sub", other)

    def __mul__(self, other: Integers | int) -> Integers:
        return self._binary("mul", other)

    def __and__(self, other: Integers | int) -> Integers:
        return self._binary("and", other)

    def __or__(self, other: Integers | int) -> Integers:
        return self._binary("or", other)

    def __xor__(self, other: Integers | int) -> Integers:
        return self._binary("xor", other)

    def __lshift__(self, by: int) -> Integers:
        return self._binary("shl", by)

    def __rshift__(self, by: int) -> Integers:
        """Keeps the sign."""
        return self._binary("ashr", by)

    def compare(self, relation: str, other: Integers | int) -> Condition:
        """Such as "eq", "slt", "ult"."""
        found = self._binary(f"icmp {relation}", other)
        return Condition(self.code, found.register, self.width)

    def numbers(self) -> Vector:
        """The numbers that have these bits."""
        code, width = self.code, self.width
        text = f"bitcast {code.whole(width)} {self.register} to {code.kind(width)}"
        return Vector(code, code.let(text), width)

    def converted(self) -> Vector:
        """The integers converted to numbers."""
        code, width = self.code, self.width
        text = f"sitofp {code.whole(width)} {self.register} to {code.kind(width)}"
        return Vector(code, code.let(text), width)


class Vector:
    """Numbers in a register, one per lane."""

    def __init__(self, code: Code, register: str, width: int) -> None:
        self.code, self.register, self.width = code, register, width

    def lift(self, x: Any) -> Vector:
        """A Vector unchanged; a plain number in every lane."""
        return x if isinstance(x, Vector) else self.code.constant(float(x), self.width)

    @property
    def kind(self) -> str:
        """Its type."""
        return self.code.kind(self.width)

    def _binary(self, instruction: str, a: Any, b: Any) -> Vector:
        left, right = self.lift(a), self.lift(b)
        text = f"{instruction} {self.kind} {left.register}, {right.register}"
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
        return Vector(self.code, self.code.let(f"fneg {self.kind} {self.register}"), self.width)

    def __abs__(self) -> Vector:
        return self.intrinsic("fabs")

    def intrinsic(self, name: str, *others: Vector) -> Vector:
        """An LLVM intrinsic by name, such as "sqrt" or "copysign"."""
        return self.code.call(f"llvm.{name}.{self.code.suffix(self.width)}", (self, *others))

    @property
    def is_scaled(self) -> bool:
        """Whether ``scaled`` is there: one instruction of AVX-512 for whole vectors."""
        return self.width * self.code.bits == 512 and jit.vector_width() == 8

    def scaled(self, n: Vector) -> Vector:
        """``self * 2**n`` for whole numbers n, rounded once, also to 0 or infinity."""
        kind, code, mask = self.kind, self.code, f"i{self.width}"
        name = f"@llvm.x86.avx512.mask.scalef.p{'d' if code.bits == 64 else 's'}.512"
        code.declarations.add(f"declare {kind} {name}({kind}, {kind}, {kind}, {mask}, i32)")
        given = ", ".join(f"{kind} {x}" for x in (self.register, n.register, "zeroinitializer"))
        return Vector(code, code.let(f"call {kind} {name}({given}, {mask} -1, i32 4)"), self.width)

    def times_plus(self, factor: Any, addend: Any) -> Vector:
        """``self * factor + addend``, rounded once."""
        return self.code.fma(self, self.lift(factor), self.lift(addend))

    def _compare(self, relation: str, other: Any) -> Condition:
        right = self.lift(other)
        text = f"fcmp {relation} {self.kind} {self.register}, {right.register}"
        return Condition(self.code, self.code.let(text), self.width)

    def __lt__(self, other: Any) -> Condition:
        return self._compare("olt", other)

    def __le__(self, other: Any) -> Condition:
        return self._compare("ole", other)

    def __gt__(self, other: Any) -> Condition:
        return self._compare("ogt", other)

    def __ge__(self, other: Any) -> Condition:
        return self._compare("oge", other)

    def not_less(self, other: Any) -> Condition:
        """Not ``self < other``: true for a nan."""
        return self._compare("uge", other)

    def not_more(self, other: Any) -> Condition:
        """Not ``self > other``: true for a nan."""
        return self._compare("ule", other)

    def bits(self) -> Integers:
        """Its bits as integers."""
        text = f"bitcast {self.kind} {self.register} to {self.code.whole(self.width)}"
        return Integers(self.code, self.code.let(text), self.width)

    def over(self, dtype: str) -> Vector:
        """Its numbers converted to another type."""
        if dtype == self.code.dtype:
            return self
        code = self.code.over(dtype)
        step = "fpext" if dtype == "float64" else "fptrunc"
        text = f"{step} {self.kind} {self.register} to {code.kind(self.width)}"
        return Vector(code, code.let(text), self.width)

    def lanes(self) -> list[Vector]:
        """Its numbers, one by one."""
        if self.width == 1:
            return [self]
        text = f"extractelement {self.kind} {self.register}, i64"
        return [Vector(self.code, self.code.let(f"{text} {i}"), 1) for i in range(self.width)]

    def splat(self, width: int) -> Vector:
        """One number in every lane."""
        if width == 1:
            return self
        code, kind = self.code, self.code.kind(width)
        first = code.let(f"insertelement {kind} poison, {self.kind} {self.register}, i64 0")
        pair = f"{kind} {first}, {kind} poison"
        text = f"shufflevector {pair}, <{width} x i32> zeroinitializer"
        return Vector(code, code.let(text), width)

    def total(self) -> Vector:
        """The sum of its lanes."""
        if self.width == 1:
            return self
        code, number = self.code, self.code.number
        name = f"llvm.vector.reduce.fadd.{code.suffix(self.width)}"
        code.declarations.add(f"declare {number} @{name}({number}, {self.kind})")
        given = f"{number} {code.literal(-0.0)}, {self.kind} {self.register}"
        return Vector(code, code.let(f"call reassoc {number} @{name}({given})"), 1)

    def greatest(self) -> Vector:
        """The largest of its lanes, none of which may be a nan."""
        if self.width == 1:
            return self
        code, number = self.code, self.code.number
        name = f"llvm.vector.reduce.fmax.{code.suffix(self.width)}"
        code.declarations.add(f"declare {number} @{name}({self.kind})")
        text = f"call nnan {number} @{name}({self.kind} {self.register})"
        return Vector(code, code.let(text), 1)

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Any:
        """Any row of the op table, by its own formula or as a function of the C library."""
        vector: Vector = next(x for x in operands if isinstance(x, Vector))
        xs = [vector.lift(x) for x in operands]
        direct = elementary.ROWS.get(op)
        if direct is not None:
            return direct(*xs, *parameters)
        if isinstance(op.forward, Opaque):
            raise NotLiftable(f"{op.name} is opaque, so it is called from the tape")
        scalar = getattr(op.forward, "scalar", None)
        if scalar is None:
            return op.forward(*xs, *parameters)
        name = getattr(scalar, "__name__", "")
        if getattr(math, name, None) is not scalar:
            raise NotLiftable(f"there is no machine code for {op.name}")
        inline = elementary.INLINE.get(name)
        if inline is not None:
            return inline(*xs, *parameters)
        return vector.code.by_lanes(name, [*xs, *map(vector.lift, parameters)])


def shuffled(a: Vector, b: Vector, picks: Sequence[int]) -> Vector:
    """Lanes of two vectors; ``picks`` count those of the second after those of the first."""
    code, kind = a.code, a.code.kind(a.width)
    which = ", ".join(f"i32 {p}" for p in picks)
    text = f"shufflevector {kind} {a.register}, {kind} {b.register}, <{len(picks)} x i32> <{which}>"
    return Vector(code, code.let(text), len(picks))
