"""Machine code of an array program: forward, and the reverse of it.

In: a ``Program``. Out: LLVM IR of two functions. ``forward(V, G)`` fills the arena V, and gives nan
if anything in it is not finite; ``backward(V, D, G)`` fills the adjoints D. G holds the addresses
that gathers select.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.arrays import STOPS
from chainrule.compiler.canonicalise import NotLiftable
from chainrule.compiler.contraction import Emitter, Lanes, overlaps
from chainrule.compiler.group import Addresses, Instruction, Program
from chainrule.compiler.index import Loop
from chainrule.compiler.ir import Code, Terms, Vector

FEW_TERMS = 4  # sums of so many plain terms are added in one go


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
            f'{head} nounwind "prefer-vector-width"="512" {{\nentry:\n{slots}\n'
            f"  br label %start\nstart:\n{body}\n  {tail}\n}}"
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
    """Let the flag become nan if a result is not finite, or so large that a part may not be."""

    def body(terms: list[Terms], strides: list[int], width: int) -> None:
        y = emitter.code.load("%V", terms[0], width)
        flag.set(flag.get() + (y * y * 0.0).total())

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
            emitter.clear("%V", out)
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
        emitter.clear("%V", out)
        stored = True
    columns = [np.repeat(out, plains.counts), *plains.columns]
    emitter.contract(("%V", "%V"), columns, accumulate=stored)


def _extreme(emitter: Emitter, instruction: Instruction) -> None:
    code, plains, rule = emitter.code, instruction.plains, instruction.rule
    assert plains is not None
    assert rule is not None
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


def _elementwise_into(emitter: Emitter, columns: list[Addresses], body: Lanes) -> None:
    """Like elementwise, but the first column may stay in place or come twice."""

    def inner(terms: list[Terms], loops: tuple[Loop, ...]) -> None:
        outer = [each for each in loops if each.strides[0] != 0]
        points = int(np.prod([each.count for each in outer], dtype=np.int64))
        lanes = [each for each in loops if set(each.strides) <= {0, 1}]
        if not lanes or overlaps(outer, points):
            emitter.over(loops, terms, lambda t: body(t, [0] * len(t), 1))
            return
        lane = max(lanes, key=lambda each: each.count)
        rest = [each for each in loops if each is not lane]
        emitter.over(rest, terms, lambda t: emitter.lanes(lane, t, body))

    emitter.nest(columns, inner)
