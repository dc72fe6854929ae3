"""LLVM IR as text, with loops, vectors and the op table's arithmetic on them.

In: calls of a ``Code`` and operators on its ``Vector``s. Out: the lines of one function, over
numbers of one type, double or float. A Vector takes part in the op table through ``_apply_op``, so
a row's formula, forward or partial, writes its own machine code; functions of the C library come
from ``elementary`` where it has them, else they are called lane by lane.
"""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainrule.compiler import elementary
from chainrule.compiler.canonicalise import NotLiftable
from chainrule.ops import Op

Term = tuple[str | None, int]  # a register (None: 1) times a factor
Terms = list[Term]


def literal(x: float) -> str:
    """A double as LLVM writes it exactly."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


@dataclass
class _Place:
    """Where the text has got to; shared by the views of one function."""

    count: int = 0
    block: str = "start"
    #: addresses known here: made in this block or one that always comes before it
    pointers: dict[tuple[Any, ...], str] = field(default_factory=dict)


class Code:
    """One function under construction, over float64 or float32."""

    def __init__(self, dtype: str = "float64") -> None:
        self.lines: list[str] = []
        self.slots: list[str] = []  # variables, to be promoted to registers
        self.tables: dict[bytes, tuple[str, np.ndarray[Any, Any]]] = {}
        self.declarations: set[str] = set()  # and definitions of functions it calls
        self._place = _Place()
        self._set_type(dtype)

    def _set_type(self, dtype: str) -> None:
        if dtype not in ("float64", "float32"):
            raise ValueError(f"dtype must be 'float64' or 'float32', not {dtype!r}")
        self.dtype = dtype
        self.bits = 64 if dtype == "float64" else 32
        self.number = "double" if dtype == "float64" else "float"
        self.bytes = self.bits // 8

    def over(self, dtype: str) -> Code:
        """The same function, to go on with in numbers of another type."""
        other = copy.copy(self)
        other._set_type(dtype)
        return other

    # --- types ------------------------------------------------------------------------------------

    def kind(self, width: int) -> str:
        """The type of so many numbers."""
        return self.number if width == 1 else f"<{width} x {self.number}>"

    def suffix(self, width: int) -> str:
        """That type in the name of an intrinsic."""
        return f"f{self.bits}" if width == 1 else f"v{width}f{self.bits}"

    def whole(self, width: int) -> str:
        """The type of integers as wide as the numbers."""
        return f"i{self.bits}" if width == 1 else f"<{width} x i{self.bits}>"

    def integers(self, x: int, width: int) -> str:
        """One integer in every lane."""
        return str(x) if width == 1 else "<" + ", ".join([f"i{self.bits} {x}"] * width) + ">"

    def literal(self, x: float) -> str:
        """A number of this type; LLVM writes a float as the double it is."""
        if self.dtype == "float32":
            with np.errstate(all="ignore"):
                x = float(np.float32(x))
        return literal(x)

    # --- text -------------------------------------------------------------------------------------

    def name(self, kind: str = "t") -> str:
        self._place.count += 1
        return f"%{kind}{self._place.count}"

    def emit(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str) -> str:
        """A new register holding an instruction's result."""
        register = self.name()
        self.emit(f"{register} = {text}")
        return register

    def label(self, block: str) -> None:
        """Begin a block."""
        self.lines.append(f"{block}:")
        self._place.block = block

    @contextmanager
    def loop(self, count: int | str) -> Iterator[str]:
        """Repeat what is emitted inside; gives the counter. A register count may be zero."""
        n = self.name("n")[1:]
        head, latch, done, before = f"head_{n}", f"latch_{n}", f"done_{n}", self._place.block
        if isinstance(count, str):
            positive = self.let(f"icmp sgt i64 {count}, 0")
            self.emit(f"br i1 {positive}, label %{head}, label %{done}")
        else:
            self.emit(f"br label %{head}")
        counter, following = f"%i_{n}", f"%j_{n}"
        self.label(head)
        self.emit(f"{counter} = phi i64 [0, %{before}], [{following}, %{latch}]")
        outside = dict(self._place.pointers)
        yield counter
        self._place.pointers = outside
        self.emit(f"br label %{latch}")
        self.lines.append(f"{latch}:")
        self.emit(f"{following} = add nuw nsw i64 {counter}, 1")
        more = self.let(f"icmp ult i64 {following}, {count}")
        self.emit(f"br i1 {more}, label %{head}, label %{done}")
        self.label(done)

    @contextmanager
    def when(self, truth: str) -> Iterator[None]:
        """Do what is emitted inside only where an i1 register holds."""
        n = self.name("n")[1:]
        self.emit(f"br i1 {truth}, label %then_{n}, label %past_{n}")
        self.label(f"then_{n}")
        outside = dict(self._place.pointers)
        yield
        self._place.pointers = outside
        self.emit(f"br label %past_{n}")
        self.label(f"past_{n}")

    # --- memory -----------------------------------------------------------------------------------

    def pointer(self, array: str, terms: Terms) -> str:
        """The address of array[sum of terms]: a step per register, shared by what begins alike."""
        constant = 0
        moving: dict[str, int] = {}
        for register, factor in terms:
            if register is None:
                constant += factor
            elif factor:
                moving[register] = moving.get(register, 0) + factor
        at = array
        for register, factor in moving.items():
            if factor:
                at = self._step(at, register, factor)
        return self._step(at, str(constant), 1) if constant else at

    def _step(self, at: str, by: str, factor: int) -> str:
        known, key = self._place.pointers, (self.number, at, by, factor)
        if key not in known:
            unit = self.number
            if factor > 1:
                unit = f"[{factor} x {unit}]"
            elif factor < 1:
                by = self.let(f"mul nsw i64 {by}, {factor}")
            known[key] = self.let(f"getelementptr {unit}, ptr {at}, i64 {by}")
        return known[key]

    def load(self, array: str, terms: Terms, width: int = 1) -> Vector:
        at = self.pointer(array, terms)
        text = f"load {self.kind(width)}, ptr {at}, align {self.bytes}"
        return Vector(self, self.let(text), width)

    def store(self, array: str, terms: Terms, value: Vector) -> None:
        at = self.pointer(array, terms)
        kind = self.kind(value.width)
        self.emit(f"store {kind} {value.register}, ptr {at}, align {self.bytes}")

    def mask(self, width: int, count: str) -> Condition:
        """The lanes before an i64 register, which may be negative or beyond the width."""
        if width == 1:
            return Condition(self, self.let(f"icmp sgt i64 {count}, 0"), 1)
        size = 64 if width <= 8 else 32  # one register of the machine for the comparison
        if size == 32:
            within = self.let(f"icmp slt i64 {count}, {width}")
            bounded = self.let(f"select i1 {within}, i64 {count}, i64 {width}")
            positive = self.let(f"icmp sgt i64 {bounded}, 0")
            bounded = self.let(f"select i1 {positive}, i64 {bounded}, i64 0")
            count = self.let(f"trunc i64 {bounded} to i32")
        kind = f"<{width} x i{size}>"
        first = self.let(f"insertelement {kind} poison, i{size} {count}, i64 0")
        every = f"{kind} {first}, {kind} poison, <{width} x i32> zeroinitializer"
        splat = self.let(f"shufflevector {every}")
        lanes = ", ".join(f"i{size} {i}" for i in range(width))
        return Condition(self, self.let(f"icmp sgt {kind} {splat}, <{lanes}>"), width)

    def masked_load(self, array: str, terms: Terms, width: int, count: str | Condition) -> Vector:
        """The lanes before ``count`` (or of a mask), zero in the others, which are not touched."""
        mask = self.mask(width, count) if isinstance(count, str) else count
        at, kind, name = self.pointer(array, terms), *self._masked("load", width)
        text = f"call {kind} @{name}(ptr {at}, i32 {self.bytes}, {mask.vector()}, "
        self.declarations.add(f"declare {kind} @{name}(ptr, i32, <{width} x i1>, {kind})")
        found = self.let(f"{text}{kind} zeroinitializer)")
        if width == 1:
            found = self.let(f"extractelement {kind} {found}, i64 0")
        return Vector(self, found, width)

    def masked_store(self, array: str, terms: Terms, value: Vector, count: str | Condition) -> None:
        """Store the lanes before ``count`` (or of a mask)."""
        width, register = value.width, value.register
        mask = self.mask(width, count) if isinstance(count, str) else count
        at, kind, name = self.pointer(array, terms), *self._masked("store", width)
        if width == 1:
            register = self.let(f"insertelement {kind} poison, {self.number} {register}, i64 0")
        self.declarations.add(f"declare void @{name}({kind}, ptr, i32, <{width} x i1>)")
        given = f"{kind} {register}, ptr {at}, i32 {self.bytes}, {mask.vector()}"
        self.emit(f"call void @{name}({given})")

    def _masked(self, what: str, width: int) -> tuple[str, str]:
        return f"<{width} x {self.number}>", f"llvm.masked.{what}.v{width}f{self.bits}.p0"

    def variable(self, value: Vector) -> Variable:
        slot = self.name("v")
        self.slots.append(f"  {slot} = alloca {self.kind(value.width)}, align 64")
        made = Variable(self, slot, value.width)
        made.set(value)
        return made

    def table(self, numbers: np.ndarray[Any, Any], at: str) -> str:
        """numbers[at], from a table in the module."""
        key = numbers.astype(np.int64).tobytes()
        label = self.tables.setdefault(key, (f"@table{len(self.tables)}", numbers))[0]
        place = self.let(f"getelementptr inbounds i64, ptr {label}, i64 {at}")
        return self.let(f"load i64, ptr {place}, align 8")

    # --- numbers ----------------------------------------------------------------------------------

    def constant(self, x: float, width: int) -> Vector:
        if width == 1:
            return Vector(self, self.literal(x), 1)
        lanes = ", ".join([f"{self.number} {self.literal(x)}"] * width)
        return Vector(self, f"<{lanes}>", width)

    def whole_constant(self, x: int, width: int) -> Integers:
        return Integers(self, self.integers(x, width), width)

    def call(self, function: str, operands: Sequence[Vector]) -> Vector:
        """An intrinsic, or another function of numbers of this type, on operands of one width."""
        width = operands[0].width
        kind = self.kind(width)
        self.declarations.add(f"declare {kind} @{function}({', '.join([kind] * len(operands))})")
        given = ", ".join(f"{kind} {x.register}" for x in operands)
        return Vector(self, self.let(f"call {kind} @{function}({given})"), width)

    def fma(self, a: Vector, b: Vector, c: Vector) -> Vector:
        return self.call(f"llvm.fma.{self.suffix(a.width)}", (a, b, c))

    def rescue(self, y: Vector, lanes: Condition, function: str, xs: Sequence[Vector]) -> Vector:
        """``y``, but what the C library says in these lanes, which are rare."""
        n, before, kind = self.name("n")[1:], self._place.block, self.kind(y.width)
        self.emit(f"br i1 {lanes.any()}, label %rare_{n}, label %past_{n}")
        self.label(f"rare_{n}")
        chosen = lanes.choose(by_lanes(self, function, xs, " cold"), y)
        self.emit(f"br label %past_{n}")
        self.label(f"past_{n}")
        pair = f"[{y.register}, %{before}], [{chosen.register}, %rare_{n}]"
        return Vector(self, self.let(f"phi {kind} {pair}"), y.width)


class Variable:
    """A mutable vector, which LLVM turns into registers."""

    def __init__(self, code: Code, slot: str, width: int) -> None:
        self.code, self.slot, self.width = code, slot, width

    def get(self) -> Vector:
        text = f"load {self.code.kind(self.width)}, ptr {self.slot}"
        return Vector(self.code, self.code.let(text), self.width)

    def set(self, value: Vector) -> None:
        self.code.emit(f"store {self.code.kind(self.width)} {value.register}, ptr {self.slot}")


class Condition:
    """A vector of truths."""

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
        code = x.code  # truths have no type of numbers
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
        """Itself as an operand that is a vector even of one lane."""
        if self.width > 1:
            return f"{self.kind} {self.register}"
        made = self.code.let(f"insertelement <1 x i1> poison, i1 {self.register}, i64 0")
        return f"<1 x i1> {made}"

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Vector:
        """``where`` is all of the op table that can be done with it."""
        condition: Condition = parameters[0]
        return condition.choose(*operands)


class Integers:
    """Some integers in a register, as wide as the numbers: a view of their bits."""

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
        """The numbers with these bits."""
        code, width = self.code, self.width
        text = f"bitcast {code.whole(width)} {self.register} to {code.kind(width)}"
        return Vector(code, code.let(text), width)

    def converted(self) -> Vector:
        """The numbers of this value."""
        code, width = self.code, self.width
        text = f"sitofp {code.whole(width)} {self.register} to {code.kind(width)}"
        return Vector(code, code.let(text), width)


class Vector:
    """Some numbers in a register."""

    def __init__(self, code: Code, register: str, width: int) -> None:
        self.code, self.register, self.width = code, register, width

    def lift(self, x: Any) -> Vector:
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
        """An instruction that LLVM has by name: "sqrt", "copysign"."""
        return self.code.call(f"llvm.{name}.{self.code.suffix(self.width)}", (self, *others))

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
        """Not ``self < other``: so it is of a nan."""
        return self._compare("uge", other)

    def bits(self) -> Integers:
        """Its bits as integers."""
        text = f"bitcast {self.kind} {self.register} to {self.code.whole(self.width)}"
        return Integers(self.code, self.code.let(text), self.width)

    def over(self, dtype: str) -> Vector:
        """Its numbers in another type."""
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
        given = f"{number} {literal(-0.0)}, {self.kind} {self.register}"
        return Vector(code, code.let(f"call reassoc {number} @{name}({given})"), 1)

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Any:
        """Any row of the op table: by its own formula, or as a function of the C library."""
        vector: Vector = next(x for x in operands if isinstance(x, Vector))
        xs = [vector.lift(x) for x in operands]
        direct = elementary.ROWS.get(op)
        if direct is not None:
            return direct(*xs, *parameters)
        scalar = getattr(op.forward, "scalar", None)
        if scalar is None:
            return op.forward(*xs, *parameters)
        name = getattr(scalar, "__name__", "")
        if getattr(math, name, None) is not scalar:
            raise NotLiftable(f"there is no machine code for {op.name}")
        inline = elementary.INLINE.get(name)
        if inline is not None:
            return inline(*xs, *parameters)
        return by_lanes(vector.code, name, [*xs, *map(vector.lift, parameters)])


def by_lanes(code: Code, function: str, xs: Sequence[Vector], attribute: str = "") -> Vector:
    """A C function of each lane, in double whatever the type: a function of the module."""
    width = xs[0].width
    if width == 1:
        doubles = [x.over("float64") for x in xs]
        return doubles[0].code.call(function, doubles).over(code.dtype)
    kind, name = code.kind(width), f"lanes.{function}.{code.suffix(width)}"
    given = [f"{kind} %x{k}" for k in range(len(xs))]
    inner = Code(code.dtype)
    register = "poison"
    parts = [Vector(inner, f"%x{k}", width).lanes() for k in range(len(xs))]
    for i, lane in enumerate(zip(*parts, strict=True)):
        y = by_lanes(inner, function, lane).register
        register = inner.let(f"insertelement {kind} {register}, {code.number} {y}, i64 {i}")
    body = "\n".join(inner.lines)
    code.declarations |= inner.declarations
    code.declarations.add(
        f"define internal {kind} @{name}({', '.join(given)}) nounwind noinline "
        f'"prefer-vector-width"="512" {{\n{body}\n  ret {kind} {register}\n}}'
    )
    values = ", ".join(f"{kind} {x.register}" for x in xs)
    return Vector(code, code.let(f"call {kind} @{name}({values}){attribute}"), width)
