"""LLVM IR as text: the loops, memory and calls of one function.

In: method calls on a ``Code``, and operators on its ``Vector``s. Out: the lines of a function over
numbers of one type, double or float, and the declarations, tables and helper functions it needs.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainrule.compiler.codegen.vectors import Condition, Integers, Variable, Vector

__all__ = [
    "Code",
    "Condition",
    "Integers",
    "Offset",
    "OffsetTerm",
    "Variable",
    "Vector",
    "literal",
    "table_text",
]

OffsetTerm = tuple[str | None, int]  # a register (None: 1) times a factor
Offset = list[OffsetTerm]  # an index into an array: the sum of its terms
FEW_NUMBERS = 256  # of a table that are written as numbers
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def literal(x: float) -> str:
    """A double as LLVM writes it exactly."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


@dataclass
class _Place:
    """The state of a function under construction; shared by its views in other number types."""

    count: int = 0
    block: str = "start"
    #: addresses computed in this block or one that dominates it
    pointers: dict[tuple[Any, ...], str] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)  # helper functions defined so far
    inline: bool = False  # inline them instead


def _stored(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A table as it is in the module: of a long one with 32 bits for each number, if these fit."""
    fits = len(numbers) > FEW_NUMBERS and numbers.min() >= -(2**31) and numbers.max() < 2**31
    return numbers.astype(np.int32 if fits else np.int64)


def table_text(row: np.ndarray[Any, Any]) -> str:
    """Its type and its numbers; many as their bytes, which LLVM reads in a fraction of the time."""
    if len(row) <= FEW_NUMBERS:
        return f"[{len(row)} x i64] [{', '.join(f'i64 {x}' for x in row.tolist())}]"
    found = np.frombuffer(row.tobytes(), np.uint8)
    shown = np.stack([np.full_like(found, ord("\\")), _DIGITS[found >> 4], _DIGITS[found & 15]], 1)
    return f'[{len(found)} x i8] c"{shown.tobytes().decode()}"'


class Code:
    """One function under construction, over float64 or float32."""

    def __init__(self, dtype: str = "float64") -> None:
        self.lines: list[str] = []
        self.slots: list[str] = []  # allocas of variables; LLVM promotes them to registers
        self.tables: dict[tuple[str, bytes], tuple[str, np.ndarray[Any, Any]]] = {}
        self.declarations: set[str] = set()  # declarations and definitions of what it calls
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
        """The same function, continued in numbers of another type."""
        other = copy.copy(self)
        other._set_type(dtype)
        return other

    # --- types ------------------------------------------------------------------------------------

    def kind(self, width: int) -> str:
        """The type of a vector of this width."""
        return self.number if width == 1 else f"<{width} x {self.number}>"

    def suffix(self, width: int) -> str:
        """This type as it appears in the name of an intrinsic."""
        return f"f{self.bits}" if width == 1 else f"v{width}f{self.bits}"

    def whole(self, width: int) -> str:
        """The type of integers as wide as the numbers."""
        return f"i{self.bits}" if width == 1 else f"<{width} x i{self.bits}>"

    def integers(self, x: int, width: int) -> str:
        """One integer in every lane."""
        return str(x) if width == 1 else "<" + ", ".join([f"i{self.bits} {x}"] * width) + ">"

    def rounded(self, x: float) -> float:
        """The nearest number of this type."""
        with np.errstate(all="ignore"):
            return float(x) if self.dtype == "float64" else float(np.float32(x))

    def literal(self, x: float) -> str:
        """A number of this type; LLVM writes a float as the equal double."""
        return literal(self.rounded(x))

    # --- text -------------------------------------------------------------------------------------

    def name(self, kind: str = "t") -> str:
        self._place.count += 1
        return f"%{kind}{self._place.count}"

    def emit(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str) -> str:
        """A new register that holds an instruction's result."""
        register = self.name()
        self.emit(f"{register} = {text}")
        return register

    def label(self, block: str) -> None:
        """Begin a block."""
        self.lines.append(f"{block}:")
        self._place.block = block

    @contextmanager
    def loop(self, count: int | str) -> Iterator[str]:
        """A loop around what is emitted inside; gives the counter. A run-time count may be 0."""
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
    def inlining(self) -> Iterator[None]:
        """Inline helper functions: a call spills all registers."""
        self._place.inline = True
        try:
            yield
        finally:
            self._place.inline = False

    @contextmanager
    def when(self, truth: str) -> Iterator[None]:
        """A branch around what is emitted inside, taken unless an i1 register is true."""
        n = self.name("n")[1:]
        self.emit(f"br i1 {truth}, label %then_{n}, label %past_{n}")
        self.label(f"then_{n}")
        outside = dict(self._place.pointers)
        yield
        self._place.pointers = outside
        self.emit(f"br label %past_{n}")
        self.label(f"past_{n}")

    def cases(self, which: str, count: int) -> Iterator[int]:
        """A branch for each value of an i64 register; all of them continue after the last."""
        n = self.name("n")[1:]
        targets = " ".join(f"i64 {k}, label %case_{n}_{k}" for k in range(count))
        self.emit(f"switch i64 {which}, label %past_{n} [{targets}]")
        outside = dict(self._place.pointers)
        for k in range(count):
            self.label(f"case_{n}_{k}")
            yield k
            self._place.pointers = dict(outside)
            self.emit(f"br label %past_{n}")
        self.label(f"past_{n}")

    # --- memory -----------------------------------------------------------------------------------

    def pointer(self, array: str, offset: Offset) -> str:
        """The address array[offset], one step per register; equal prefixes are computed once."""
        constant = 0
        moving: dict[str, int] = {}
        for register, factor in offset:
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

    def load(self, array: str, offset: Offset, width: int = 1) -> Vector:
        at = self.pointer(array, offset)
        text = f"load {self.kind(width)}, ptr {at}, align {self.bytes}"
        return Vector(self, self.let(text), width)

    def store(self, array: str, offset: Offset, value: Vector) -> None:
        at = self.pointer(array, offset)
        kind = self.kind(value.width)
        self.emit(f"store {kind} {value.register}, ptr {at}, align {self.bytes}")

    def mask(self, width: int, count: str) -> Condition:
        """The lanes below an i64 register, which may be negative or beyond the width."""
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

    def masked_load(
        self, array: str, offset: Offset, width: int, count: str | Condition, rest: float = 0.0
    ) -> Vector:
        """Load the lanes below ``count`` (or of a mask); the others are not accessed."""
        mask = self.mask(width, count) if isinstance(count, str) else count
        at, kind, name = self.pointer(array, offset), *self._masked("load", width)
        text = f"call {kind} @{name}(ptr {at}, i32 {self.bytes}, {mask.vector()}, "
        self.declarations.add(f"declare {kind} @{name}(ptr, i32, <{width} x i1>, {kind})")
        lanes = ", ".join([f"{self.number} {self.literal(rest)}"] * width)
        found = self.let(f"{text}{kind} <{lanes}>)")
        if width == 1:
            found = self.let(f"extractelement {kind} {found}, i64 0")
        return Vector(self, found, width)

    def masked_store(
        self, array: str, offset: Offset, value: Vector, count: str | Condition
    ) -> None:
        """Store the lanes below ``count`` (or of a mask)."""
        width, register = value.width, value.register
        mask = self.mask(width, count) if isinstance(count, str) else count
        at, kind, name = self.pointer(array, offset), *self._masked("store", width)
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
        row = _stored(numbers)
        bits, key = 8 * row.itemsize, (row.dtype.char, row.tobytes())
        label = self.tables.setdefault(key, (f"@table{len(self.tables)}", row))[0]
        place = self.let(f"getelementptr inbounds i{bits}, ptr {label}, i64 {at}")
        found = self.let(f"load i{bits}, ptr {place}, align {row.itemsize}")
        return found if bits == 64 else self.let(f"sext i{bits} {found} to i64")

    # --- numbers ----------------------------------------------------------------------------------

    def constant(self, x: float, width: int) -> Vector:
        if width == 1:
            return Vector(self, self.literal(x), 1)
        lanes = ", ".join([f"{self.number} {self.literal(x)}"] * width)
        return Vector(self, f"<{lanes}>", width)

    def call(self, function: str, operands: Sequence[Vector]) -> Vector:
        """An intrinsic, or another function of numbers of this type, on operands of one width."""
        width = operands[0].width
        kind = self.kind(width)
        self.declarations.add(f"declare {kind} @{function}({', '.join([kind] * len(operands))})")
        given = ", ".join(f"{kind} {x.register}" for x in operands)
        return Vector(self, self.let(f"call {kind} @{function}({given})"), width)

    def fma(self, a: Vector, b: Vector, c: Vector) -> Vector:
        return self.call(f"llvm.fma.{self.suffix(a.width)}", (a, b, c))

    def shared(
        self,
        name: str,
        xs: Sequence[Vector],
        body: Callable[..., Vector],
        attribute: str = "",
    ) -> Vector:
        """``body(*xs)`` as a call of a helper function, which is defined once per width."""
        if self._place.inline and not attribute:
            return body(*xs)
        width = xs[0].width
        kind, label = self.kind(width), f"{name}.{self.suffix(width)}"
        if label not in self._place.functions:
            self._place.functions.add(label)
            inner = Code(self.dtype)
            y = body(*[Vector(inner, f"%x{k}", width) for k in range(len(xs))])
            given = ", ".join(f"{kind} %x{k}" for k in range(len(xs)))
            head = f'define internal {kind} @"{label}"({given}) nounwind noinline'
            lines = "\n".join(["start:", *inner.lines, f"  ret {kind} {y.register}"])
            self.declarations |= inner.declarations
            self.declarations.add(f'{head} "prefer-vector-width"="512" {{\n{lines}\n}}')
        values = ", ".join(f"{kind} {x.register}" for x in xs)
        return Vector(self, self.let(f'call {kind} @"{label}"({values}){attribute}'), width)

    def by_lanes(self, function: str, xs: Sequence[Vector], attribute: str = "") -> Vector:
        """A function of the C library on each lane, in double whatever the type."""
        width = xs[0].width
        if width == 1:
            doubles = [x.over("float64") for x in xs]
            return doubles[0].code.call(function, doubles).over(self.dtype)

        def body(*xs: Vector) -> Vector:
            code, y = xs[0].code, "poison"
            for i, lane in enumerate(zip(*[x.lanes() for x in xs], strict=True)):
                one = code.by_lanes(function, lane).register
                y = code.let(f"insertelement {xs[0].kind} {y}, {code.number} {one}, i64 {i}")
            return Vector(code, y, width)

        return self.shared(f"lanes.{function}", xs, body, attribute)

    def rescue(self, y: Vector, lanes: Condition, function: str, xs: Sequence[Vector]) -> Vector:
        """``y``, with the C library's result in these lanes, which are rare."""
        n, before, kind = self.name("n")[1:], self._place.block, self.kind(y.width)
        self.emit(f"br i1 {lanes.any()}, label %rare_{n}, label %past_{n}")
        self.label(f"rare_{n}")
        chosen = lanes.choose(self.by_lanes(function, xs, " cold"), y)
        self.emit(f"br label %past_{n}")
        self.label(f"past_{n}")
        pair = f"[{y.register}, %{before}], [{chosen.register}, %rare_{n}]"
        return Vector(self, self.let(f"phi {kind} {pair}"), y.width)
