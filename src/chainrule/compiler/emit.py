"""Machine code of an array program: forward, and the reverse of it.

In: a ``Program``. Out: LLVM IR of two functions, ``forward(V, G)``, which fills the arena V and returns
nan if anything in it is not finite, and ``backward(V, D, G)``, which fills the adjoints D. Everything
that adds up products is one form, O[..] += A[..] * B[..] over strided loops, and goes through one
emitter: the forward sums, both of their adjoints, broadcasts and biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.arrays import STOPS
from chainrule.compiler.canonicalise import NotLiftable
from chainrule.compiler.group import Addresses, Instruction, Program
from chainrule.compiler.index import Loop, Space, space
from chainrule.compiler.ir import Code, Terms, Vector

Body = Callable[[list[Terms], tuple[Loop, ...]], None]
FEW_TERMS = 4  # sums of so many plain terms are added in one go


class Emitter:
    """Writes the loops of one function."""

    def __init__(self, program: Program, width: int) -> None:
        self.program = program
        self.code = Code()
        self.width = width

    # --- loops --------------------------------------------------------------------------------------

    def nest(self, columns: Sequence[Addresses], body: Body) -> None:
        """Loops over the rows and runs of some columns; the body gets the rest."""
        found = space(columns)
        code = self.code
        if found.rows == 1:
            run = () if found.lengths is None else (Loop(int(found.lengths[0]), found.run),)
            body([[(None, int(base))] for base in found.bases[0]], run + found.loops)
            return
        with code.loop(found.rows) as row:
            terms = [self._column(found.bases[:, c], row) for c in range(len(columns))]
            if found.lengths is None:
                body(terms, found.loops)
                return
            with code.loop(code.table(found.lengths, row)) as step:
                body([t + [(step, s)] for t, s in zip(terms, found.run, strict=True)], found.loops)

    def _column(self, bases: Addresses, row: str) -> Terms:
        """A base address per row: by a stride where there is one, else from a table."""
        steps = np.diff(bases)
        if (steps == steps[0]).all():
            return [(None, int(bases[0])), (row, int(steps[0]))]
        return [(self.code.table(bases, row), 1)]

    def over(
        self, loops: Sequence[Loop], terms: list[Terms], body: Callable[[list[Terms]], None]
    ) -> None:
        """All of some loops, outermost first."""
        if not loops:
            body(terms)
            return
        with self.code.loop(loops[0].count) as i:
            moved = [t + [(i, s)] for t, s in zip(terms, loops[0].strides, strict=True)]
            self.over(loops[1:], moved, body)

    def chunks(self, count: int) -> list[tuple[int, int]]:
        """Offsets and widths that cover ``count`` lanes: whole vectors, then powers of two."""
        found, at, width = [], 0, self.width
        while at < count:
            while width > count - at:
                width //= 2
            found.append((at, width))
            at += width
        return found

    # --- elementwise --------------------------------------------------------------------------------

    def elementwise(
        self, columns: Sequence[Addresses], body: Callable[[list[Terms], list[int], int], None]
    ) -> None:
        """The body once per vector: ``body(terms, strides of the lanes, width)``."""

        def inner(terms: list[Terms], loops: tuple[Loop, ...]) -> None:
            lanes = [l for l in loops if l.strides[0] == 1 and set(l.strides) <= {0, 1}]
            if not lanes:
                self.over(loops, terms, lambda t: body(t, [0] * len(t), 1))
                return
            lane = max(lanes, key=lambda l: l.count)
            rest = [l for l in loops if l is not lane]
            self.over(rest, terms, lambda t: self._lanes(lane, t, body))

        self.nest(columns, inner)

    def _lanes(
        self, lane: Loop, terms: list[Terms], body: Callable[[list[Terms], list[int], int], None]
    ) -> None:
        strides, whole = list(lane.strides), lane.count // self.width
        start = 0
        if whole > 2:
            with self.code.loop(whole) as i:
                moved = [t + [(i, s * self.width)] for t, s in zip(terms, strides, strict=True)]
                body(moved, strides, self.width)
            start = whole * self.width
        for at, width in self.chunks(lane.count - start):
            shift = start + at
            body(
                [t + [(None, s * shift)] for t, s in zip(terms, strides, strict=True)],
                strides,
                width,
            )

    def read(self, array: str, terms: Terms, stride: int, width: int) -> Vector:
        """A vector, or one number in every lane."""
        if stride or width == 1:
            return self.code.load(array, terms, width)
        return self.code.load(array, terms, 1).splat(width)

    # --- contractions -------------------------------------------------------------------------------

    def contract(
        self,
        arrays: Sequence[str],
        columns: Sequence[Addresses],
        accumulate: bool,
    ) -> None:
        """O += A * B (or O += A) along columns of addresses; O, A, B in these arrays."""
        targets = columns[0]

        def inner(terms: list[Terms], loops: tuple[Loop, ...]) -> None:
            outer = [l for l in loops if l.strides[0] != 0]
            points = int(np.prod([l.count for l in outer], dtype=np.int64))
            if len(loops) and _overlaps(outer, points):
                # Two points of the loops are one address: add through memory, one by one.
                self.over(loops, terms, lambda t: self._add_product(arrays, t, accumulate=True))
                return
            self._block(arrays, terms, loops, accumulate)

        if not accumulate and space(columns).rows > 1:
            self._clear(arrays[0], np.unique(targets))
            accumulate = True
        self.nest(columns, inner)

    def _clear(self, array: str, targets: Addresses) -> None:
        zero = self.code.constant(0.0, 1)
        with self.code.loop(len(targets)) as i:
            self.code.store(array, [(None, int(targets[0])), (i, 1)], zero)

    def _add_product(self, arrays: Sequence[str], terms: list[Terms], accumulate: bool) -> None:
        value = self.code.load(arrays[1], terms[1])
        old = self.code.load(arrays[0], terms[0]) if accumulate else None
        if len(arrays) == 3:
            factor = self.code.load(arrays[2], terms[2])
            value = self.code.fma(value, factor, old) if old is not None else value * factor
        elif old is not None:
            value = value + old
        self.code.store(arrays[0], terms[0], value)

    def _block(
        self, arrays: Sequence[str], terms: list[Terms], loops: tuple[Loop, ...], accumulate: bool
    ) -> None:
        """Choose what the lanes are and what stays in registers, then loop over the rest."""
        outer = [l for l in loops if l.strides[0] != 0]
        inner = [l for l in loops if l.strides[0] == 0]
        across = [l for l in outer if l.strides[0] == 1 and set(l.strides[1:]) <= {0, 1}]
        along = [l for l in inner if set(l.strides[1:]) == {1}]
        lane = max(across, key=lambda l: l.count, default=None)
        reduced = False
        if lane is None or (lane.count < 4 and any(l.count >= 4 for l in along)):
            best = max(along, key=lambda l: l.count, default=None)
            if best is not None and best.count >= 4:
                lane, reduced = best, True
        rest = [l for l in outer if l is not lane]
        sums = [l for l in inner if l is not lane]
        blocks: list[tuple[Loop, int]] = []
        if sums or reduced:
            vectors = 1 if reduced or lane is None else min(2, max(1, lane.count // self.width))
            room = 8 // vectors
            for loop in sorted(rest, key=lambda l: (0 not in l.strides[1:], -l.count))[:2]:
                size = min(loop.count, 4, room)
                if size > 1:
                    blocks.append((loop, size))
                    room //= size
        for loop, _ in blocks:
            rest = [l for l in rest if l is not loop]
        kernel = _Kernel(self, arrays, lane, reduced, sums, accumulate)
        self.over(rest, terms, lambda t: self._tiles(blocks, [], t, kernel))

    def _tiles(
        self,
        blocks: list[tuple[Loop, int]],
        chosen: list[tuple[Loop, int]],
        terms: list[Terms],
        kernel: _Kernel,
    ) -> None:
        """Loops over whole tiles, and once more for what is left over."""
        if not blocks:
            kernel.emit(terms, chosen)
            return
        (loop, size), others = blocks[0], blocks[1:]
        whole, left = divmod(loop.count, size)

        def at(register: str | None, factor: int) -> list[Terms]:
            return [t + [(register, s * factor)] for t, s in zip(terms, loop.strides, strict=True)]

        if whole == 1:
            self._tiles(others, [*chosen, (loop, size)], terms, kernel)
        elif whole:
            with self.code.loop(whole) as i:
                self._tiles(others, [*chosen, (loop, size)], at(i, size), kernel)
        if left:
            self._tiles(others, [*chosen, (loop, left)], at(None, whole * size), kernel)


class _Kernel:
    """The innermost part of a contraction: a tile of results held in registers."""

    def __init__(
        self,
        emitter: Emitter,
        arrays: Sequence[str],
        lane: Loop | None,
        reduced: bool,
        sums: list[Loop],
        accumulate: bool,
    ) -> None:
        self.emitter, self.code = emitter, emitter.code
        self.arrays, self.lane, self.reduced = arrays, lane, reduced
        self.sums, self.accumulate = sums, accumulate

    def emit(self, terms: list[Terms], blocks: list[tuple[Loop, int]]) -> None:
        points: list[tuple[int, ...]] = [(0,) * len(terms)]
        for loop, size in blocks:
            points = [
                tuple(p + i * s for p, s in zip(point, loop.strides, strict=True))
                for point in points
                for i in range(size)
            ]
        if self.lane is None:
            self._tile(terms, points, [(0, 1)])
        elif self.reduced:
            self._reduced_tile(terms, points)
        else:
            step = 2 * self.emitter.width
            whole = self.lane.count // step
            if whole > 1:
                with self.code.loop(whole) as i:
                    moved = self._moved(terms, [(i, step)])
                    self._tile(moved, points, self.emitter.chunks(step))
                left = self.lane.count - whole * step
                if left:
                    moved = self._moved(terms, [(None, whole * step)])
                    self._tile(moved, points, self.emitter.chunks(left))
            else:
                self._tile(terms, points, self.emitter.chunks(self.lane.count))

    def _moved(self, terms: list[Terms], steps: list[tuple[str | None, int]]) -> list[Terms]:
        assert self.lane is not None
        return [
            t + [(register, s * factor) for register, factor in steps]
            for t, s in zip(terms, self.lane.strides, strict=True)
        ]

    def _stride(self, column: int) -> int:
        return self.lane.strides[column] if self.lane is not None else 0

    def _reader(self, terms: list[Terms]) -> Callable[[int, tuple[int, ...], int, int], Vector]:
        """Loads of this place in the code, each done once."""
        done: dict[Any, Vector] = {}

        def read(column: int, point: tuple[int, ...], at: int, width: int) -> Vector:
            stride = self._stride(column)
            key = (column, point[column], at if stride else None, width)
            if key not in done:
                place = terms[column] + [(None, point[column] + at * stride)]
                if stride or width == 1:
                    done[key] = self.code.load(self.arrays[column], place, width)
                else:
                    single = (column, point[column], None, 1)
                    if single not in done:
                        done[single] = self.code.load(self.arrays[column], place, 1)
                    done[key] = done[single].splat(width)
            return done[key]

        return read

    def _term(
        self, read: Any, point: tuple[int, ...], at: int, width: int, old: Vector | None
    ) -> Vector:
        value: Vector = read(1, point, at, width)
        if len(self.arrays) == 3:
            factor = read(2, point, at, width)
            return value * factor if old is None else self.code.fma(value, factor, old)
        return value if old is None else value + old

    def _tile(
        self, terms: list[Terms], points: list[tuple[int, ...]], chunks: list[tuple[int, int]]
    ) -> None:
        keys = [(point, at, width) for point in points for at, width in chunks]
        if not self.sums:
            read = self._reader(terms)
            for point, at, width in keys:
                old = read(0, point, at, width) if self.accumulate else None
                self._store(terms, point, at, self._term(read, point, at, width, old))
            return
        totals = [self.code.variable(self.code.constant(0.0, width)) for _, _, width in keys]

        def add(moved: list[Terms]) -> None:
            read = self._reader(moved)
            for (point, at, width), total in zip(keys, totals, strict=True):
                total.set(self._term(read, point, at, width, total.get()))

        self.emitter.over(self.sums, terms, add)
        read = self._reader(terms)
        for (point, at, width), total in zip(keys, totals, strict=True):
            value = total.get()
            if self.accumulate:
                value = value + read(0, point, at, width)
            self._store(terms, point, at, value)

    def _store(self, terms: list[Terms], point: tuple[int, ...], at: int, value: Vector) -> None:
        place = terms[0] + [(None, point[0] + at * self._stride(0))]
        self.code.store(self.arrays[0], place, value)

    def _reduced_tile(self, terms: list[Terms], points: list[tuple[int, ...]]) -> None:
        """The lanes run along the sum; they are added up at the end."""
        assert self.lane is not None
        parts: dict[int, list[int]] = {}
        for at, width in self.emitter.chunks(self.lane.count):
            parts.setdefault(width, []).append(at)
        results: list[Vector | None] = [None] * len(points)
        for width, places in parts.items():
            totals = [self.code.variable(self.code.constant(0.0, width)) for _ in points]

            def add(moved: list[Terms], at: int, width: int = width, totals: Any = totals) -> None:
                read = self._reader(moved)
                for point, total in zip(points, totals, strict=True):
                    total.set(self._term(read, point, at, width, total.get()))

            def addends(moved: list[Terms], places: list[int] = places, width: int = width) -> None:
                if len(places) > 4:
                    with self.code.loop(len(places)) as i:
                        add(self._moved(moved, [(i, width), (None, places[0])]), 0, width)
                else:
                    for at in places:
                        add(moved, at, width)

            self.emitter.over(self.sums, terms, addends)
            for k, total in enumerate(totals):
                whole = total.get().total()
                results[k] = whole if results[k] is None else results[k] + whole  # type: ignore[operator]
        for point, result in zip(points, results, strict=True):
            assert result is not None
            place = terms[0] + [(None, point[0])]
            if self.accumulate:
                result = result + self.code.load(self.arrays[0], place)
            self.code.store(self.arrays[0], place, result)


def _overlaps(loops: list[Loop], points: int) -> bool:
    """Whether the results' address comes twice in these loops."""
    addresses = np.zeros(1, np.int64)
    for loop in loops:
        addresses = (addresses[:, None] + loop.strides[0] * np.arange(loop.count)).ravel()
    return len(np.unique(addresses)) != points


# --- instructions -----------------------------------------------------------------------------------


def module(program: Program, root: int, width: int) -> str:
    """The IR of forward and backward, ready to be parsed."""
    forward, backward = Emitter(program, width), Emitter(program, width)
    flag = forward.code.variable(forward.code.constant(0.0, 1))
    for instruction in program.instructions:
        _forward(forward, instruction)
        _watch(forward, instruction, flag)
    result = flag.get()
    found = reached(program, root)
    backward.code.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    backward.code.emit(
        f"call void @llvm.memset.p0.i64(ptr align 8 %D, i8 0, i64 {8 * program.size}, i1 false)"
    )
    one = backward.code.constant(1.0, 1)
    backward.code.store("%D", [(None, root)], one)
    for instruction in reversed(program.instructions):
        if _is_reached(instruction, found):
            _backward(backward, instruction)
    parts = []
    for code, head, tail in (
        (
            forward.code,
            "define double @forward(ptr noalias %V, ptr noalias %G)",
            f"ret double {result.register}",
        ),
        (
            backward.code,
            "define void @backward(ptr noalias %V, ptr noalias %D, ptr noalias %G)",
            "ret void",
        ),
    ):
        body = "\n".join(code.lines).replace("@table", f"@{head.split('@')[1].split('(')[0]}_table")
        slots = "\n".join(code.slots)
        parts.append(
            f'{head} nounwind "prefer-vector-width"="512" {{\nentry:\n{slots}\n  br label %start\nstart:\n{body}\n  {tail}\n}}'
        )
        for label, numbers in code.tables.values():
            name = label.replace("@table", f"@{head.split('@')[1].split('(')[0]}_table")
            items = ", ".join(f"i64 {int(x)}" for x in numbers)
            parts.append(f"{name} = private constant [{len(numbers)} x i64] [{items}], align 64")
    return "\n".join([*sorted(forward.code.declarations | backward.code.declarations), *parts])


def reached(program: Program, root: int) -> Any:
    """A truth per address: whether a gradient from ``root`` can reach it."""
    found = np.zeros(program.size, np.bool_)
    found[root] = True
    for instruction in reversed(program.instructions):
        if _is_reached(instruction, found):
            for column in _read_by(program, instruction):
                found[column] = True
    return found


def _is_reached(instruction: Instruction, found: Any) -> bool:
    here = found[instruction.start : instruction.start + instruction.count]
    return bool(here.any()) and instruction.rule not in STOPS


def _read_by(program: Program, instruction: Instruction) -> list[Addresses]:
    if instruction.kind == "gather":
        rows = [r for p in instruction.places for r in program.gathers[p][1]]
        return [program.address[np.array(rows, np.int64)]]
    columns = [x for x in instruction.operands if not isinstance(x, float)]
    for terms in (instruction.products, instruction.plains):
        columns += list(terms.columns) if terms is not None else []
    if instruction.rule is ops.select:
        columns = columns[1:]
    return columns


def _watch(emitter: Emitter, instruction: Instruction, flag: Any) -> None:
    """Let the flag become nan if a result is not finite."""

    def body(terms: list[Terms], strides: list[int], width: int) -> None:
        y = emitter.code.load("%V", terms[0], width)
        flag.set(flag.get() + (y * 0.0).total())

    emitter.elementwise([instruction.out], body)


def _forward(emitter: Emitter, instruction: Instruction) -> None:
    code, out = emitter.code, instruction.out
    if instruction.kind == "gather":
        with code.loop(instruction.count) as i:
            address = _gathered(emitter, instruction, i)
            code.store("%V", [(None, instruction.start), (i, 1)], code.load("%V", [(address, 1)]))
        return
    if instruction.kind == "sum":
        _sum(emitter, instruction)
        return
    if instruction.kind == "extreme":
        _extreme(emitter, instruction)
        return
    rule = instruction.rule
    assert rule is not None
    columns = [x for x in instruction.operands if not isinstance(x, float)]

    def body(terms: list[Terms], strides: list[int], width: int) -> None:
        xs = _operands(emitter, instruction, terms[1:], strides[1:], width)
        code.store("%V", terms[0], _vector(code, rule(*xs, *instruction.parameters), width))

    emitter.elementwise([out, *columns], body)


def _vector(code: Code, x: Any, width: int) -> Vector:
    return x if isinstance(x, Vector) else code.constant(float(x), width)


def _operands(
    emitter: Emitter, instruction: Instruction, terms: list[Terms], strides: list[int], width: int
) -> list[Any]:
    """The operands of a rule as vectors; shared numbers stay numbers."""
    columns = iter(zip(terms, strides, strict=True))
    return [
        x if isinstance(x, float) else emitter.read("%V", *next(columns), width)
        for x in instruction.operands
    ]


def _gathered(emitter: Emitter, instruction: Instruction, i: str) -> str:
    """The address that a gather selects, from G."""
    code, places = emitter.code, np.array(instruction.places)
    if (np.diff(places) == 1).all():
        at = code.let(f"add i64 {i}, {int(places[0])}")
    else:
        at = code.table(places, i)
    place = code.let(f"getelementptr inbounds i64, ptr %G, i64 {at}")
    return code.let(f"load i64, ptr {place}, align 8")


def _uniform(counts: Addresses) -> int:
    """How many terms each sum has, if all have as many; else 0."""
    return int(counts[0]) if (counts == counts[0]).all() else 0


def _sum(emitter: Emitter, instruction: Instruction) -> None:
    out, products, plains = instruction.out, instruction.products, instruction.plains
    stored = False
    if products is not None:
        columns = [np.repeat(out, products.counts), *products.columns]
        if not products.counts.all():
            emitter._clear("%V", out)
            stored = True
        emitter.contract(("%V", "%V", "%V"), columns, accumulate=stored)
        stored = True
    if plains is None:
        return
    each = _uniform(plains.counts)
    if 0 < each <= FEW_TERMS:
        terms = plains.columns[0].reshape(-1, each)

        def body(at: list[Terms], strides: list[int], width: int) -> None:
            total = emitter.code.load("%V", at[0], width) if stored else None
            for t, s in zip(at[1:], strides[1:], strict=True):
                x = emitter.read("%V", t, s, width)
                total = x if total is None else total + x
            assert total is not None
            emitter.code.store("%V", at[0], total)

        emitter.elementwise([out, *(terms[:, k] for k in range(each))], body)
        return
    if not plains.counts.all() and not stored:
        emitter._clear("%V", out)
        stored = True
    columns = [np.repeat(out, plains.counts), *plains.columns]
    emitter.contract(("%V", "%V"), columns, accumulate=stored)


def _extreme(emitter: Emitter, instruction: Instruction) -> None:
    code, plains, rule = emitter.code, instruction.plains, instruction.rule
    assert plains is not None and rule is not None
    starts = np.cumsum(plains.counts) - plains.counts
    first = plains.columns[0][starts]

    def copy(terms: list[Terms], strides: list[int], width: int) -> None:
        code.store("%V", terms[0], emitter.read("%V", terms[1], strides[1], width))

    emitter.elementwise([instruction.out, first], copy)

    def better(terms: list[Terms], loops: tuple[Loop, ...]) -> None:
        def one(t: list[Terms]) -> None:
            best, x = code.load("%V", t[0]), code.load("%V", t[1])
            code.store("%V", t[0], rule(best, x))

        emitter.over(loops, terms, one)

    emitter.nest([np.repeat(instruction.out, plains.counts), plains.columns[0]], better)


def _backward(emitter: Emitter, instruction: Instruction) -> None:
    code, out = emitter.code, instruction.out
    if instruction.kind == "gather":
        with code.loop(instruction.count) as i:
            address = _gathered(emitter, instruction, i)
            g = code.load("%D", [(None, instruction.start), (i, 1)])
            code.store("%D", [(address, 1)], code.load("%D", [(address, 1)]) + g)
        return
    if instruction.kind == "extreme":
        raise NotLiftable("a gradient goes through Python's max")
    if instruction.kind == "sum":
        if instruction.products is not None:
            a, b = instruction.products.columns
            owners = np.repeat(out, instruction.products.counts)
            for target, factor in ((a, b), (b, a)):
                _contract_into(emitter, target, [owners, factor], ("%D", "%D", "%V"))
        if instruction.plains is not None:
            plains = instruction.plains
            each = _uniform(plains.counts)
            if 0 < each <= FEW_TERMS:
                columns = plains.columns[0].reshape(-1, each)
                for k in range(each):
                    _contract_into(emitter, columns[:, k], [out], ("%D", "%D"))
            else:
                owners = np.repeat(out, plains.counts)
                _contract_into(emitter, plains.columns[0], [owners], ("%D", "%D"))
        return
    _rule_backward(emitter, instruction)


def _contract_into(
    emitter: Emitter, target: Addresses, others: list[Addresses], arrays: Sequence[str]
) -> None:
    """D[target] += ...; constants have no adjoint that anybody reads."""
    program = emitter.program
    wanted = (target < program.inputs) | (target >= program.first_result)
    if wanted.any():
        emitter.contract(arrays, [c[wanted] for c in (target, *others)], accumulate=True)


def _rule_backward(emitter: Emitter, instruction: Instruction) -> None:
    """D[x] += partial * g for each operand: lanes where x moves on, one by one where it stays."""
    code, rule, program = emitter.code, instruction.rule, emitter.program
    assert rule is not None
    columns = [x for x in instruction.operands if not isinstance(x, float)]
    for j, target in enumerate(instruction.operands):
        if isinstance(target, float) or (rule is ops.select and j == 0):
            continue
        if ((target >= program.inputs) & (target < program.first_result)).all():
            continue

        def body(terms: list[Terms], strides: list[int], width: int, j: int = j) -> None:
            xs = _operands(emitter, instruction, terms[3:], strides[3:], width)
            y = emitter.read("%V", terms[2], strides[2], width)
            g = emitter.read("%D", terms[1], strides[1], width)
            slope = rule.partials[j](y, *xs, *instruction.parameters)
            share = _vector(
                code, g if isinstance(slope, float) and slope == 1.0 else slope * g, width
            )
            if strides[0] == 0 and width > 1:
                share = share.total()
            width = share.width
            code.store("%D", terms[0], code.load("%D", terms[0], width) + share)

        _elementwise_into(emitter, [target, instruction.out, instruction.out, *columns], body)


def _elementwise_into(
    emitter: Emitter, columns: list[Addresses], body: Callable[[list[Terms], list[int], int], None]
) -> None:
    """Like elementwise, but the first column may stay in place or come twice."""

    def inner(terms: list[Terms], loops: tuple[Loop, ...]) -> None:
        outer = [l for l in loops if l.strides[0] != 0]
        points = int(np.prod([l.count for l in outer], dtype=np.int64))
        lanes = [l for l in loops if set(l.strides) <= {0, 1}]
        if not lanes or _overlaps(outer, points):
            emitter.over(loops, terms, lambda t: body(t, [0] * len(t), 1))
            return
        lane = max(lanes, key=lambda l: l.count)
        rest = [l for l in loops if l is not lane]
        emitter.over(rest, terms, lambda t: emitter._lanes(lane, t, body))

    emitter.nest(columns, inner)
