"""What the forward and the backward pass share: how an instruction is walked and read.

In: an ``Instruction`` and the ``Emitter`` of the function under construction. Out: its columns of
addresses, the ``Walk``s over them, its operands as vectors, and small pieces of code that both
passes emit. ``Machine`` is what the passes leave behind for the run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chainrule.compiler.codegen.contraction import VALUE, Emitter
from chainrule.compiler.codegen.ir import Code, Offset, Vector
from chainrule.compiler.codegen.walks import Walk
from chainrule.compiler.lift.exactness import COMPARISONS
from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Program
from chainrule.core.ops import Op

FEW_TERMS = 4  # sums of at most so many plain terms are added elementwise
FEW_PIECES = 16  # at most so many separate stretches of memory are zeroed one by one


@dataclass
class Machine:
    """The text of a program's machine code, and what a shorter call must respect to use it."""

    text: str = ""
    scratch: int = 0  # numbers of each sample's own after all others
    walks: list[Walk] = field(default_factory=list)
    #: walks that store adjoints instead of adding to them, and the addresses that they initialise
    stores: list[tuple[Walk, Addresses]] = field(default_factory=list)
    optional: set[int] = field(default_factory=set)  # instructions that may be skipped
    stripped: set[int] = field(default_factory=set)  # instructions that no shorter call may cut
    #: addresses of results, and where they are instead, after all other numbers
    moved: list[tuple[Addresses, Addresses]] = field(default_factory=list)
    table: Addresses | None = None  # N of a program with steps: its commands
    numbers: int = 0  # in N

    @property
    def columns(self) -> list[Addresses]:
        """All of its arrays, those of the program among them."""
        found = [column for walk in self.walks for column in (*walk.columns, walk.space.bases)]
        found += [
            x for walk in self.walks for x in (walk.chosen, walk.space.lengths) if x is not None
        ]
        found += [x for _, x in self.stores] + [x for pair in self.moved for x in pair]
        return found if self.table is None else [*found, self.table]

    def forget_columns(self) -> None:
        """Let go of what nobody asks for once the text is written, of a large program many bytes.

        That is what walks read of each sample's own numbers, unless the rows are data.
        """
        for walk in self.walks:
            if walk.rows is None:
                pairs = zip(walk.columns, walk.shared, strict=True)
                walk.columns = [
                    column if is_shared else column[:0].copy() for column, is_shared in pairs
                ]

    def place(self, addresses: Addresses, size: int) -> Addresses:
        """Where what has these addresses in a program of this size is; -1 stays -1."""
        if not self.moved:
            return addresses
        to = np.arange(size + 1)
        to[-1] = -1
        for here, there in self.moved:
            to[here] = there
        return to[addresses]


def differentiated(program: Program) -> int:
    """How many private inputs have a derivative."""
    return len(program.private) - program.fixed


# --- columns and walks ----------------------------------------------------------------------------


def columns_of(instruction: Instruction, what: str) -> list[Addresses]:
    """The columns that are walked together, the one that is written first.

    ``what``: "out" is results and operands (the terms of sums with few), "products" and "plains"
    are the terms of sums and the sum that each belongs to, "sums" is "out" and then the two
    factors of each sum's one product.
    """
    if what == "out" and instruction.kind != SUM:
        return [instruction.out, *instruction.columns]
    terms = instruction.products if what == "products" else instruction.plains
    assert terms is not None
    if what not in ("out", "sums"):
        return [terms.owners, *terms.columns]
    table = terms.columns[0].reshape(-1, terms.each)
    columns = [instruction.out, *(table[:, j] for j in range(terms.each))]
    if what == "sums":
        assert instruction.products is not None
        columns += instruction.products.columns
    return columns


def read_by(instruction: Instruction) -> list[Addresses]:
    """Every column of addresses whose adjoints an instruction may add to."""
    if instruction.candidates is not None:
        return [instruction.candidates]
    columns = list(instruction.operands)
    for terms in instruction.sums:
        columns += list(terms.columns)
    return columns


def differentiated_by(instruction: Instruction) -> list[Addresses]:
    """The columns it reads and passes a gradient to."""
    rule, operands = instruction.rule, len(instruction.operands)
    return [
        column
        for j, column in enumerate(read_by(instruction))
        if j >= operands or rule is None or j in rule.differentiable
    ]


def rule_of(instruction: Instruction) -> Op:
    """The operation to emit: a comparison of exact numbers needs no care near a tie."""
    rule = instruction.rule
    assert rule is not None
    return _EXACT.get(rule, rule) if instruction.is_exact else rule


#: copies of the rows: ``elementary`` has no code for these but their formulas
_EXACT = {rule: replace(rule) for rule in COMPARISONS}


def is_few(emitter: Emitter, k: int, terms: Any) -> bool:
    """Whether all sums of an instruction have the same few plain terms, at every length."""
    if terms is None or (k, "each") in emitter.walks.varying:
        return False
    return bool(0 < terms.each <= FEW_TERMS)


def takes_product(emitter: Emitter, instruction: Instruction) -> bool:
    """Whether sums of few terms compute their one product along with them, in lanes of samples."""
    products = instruction.products
    one = products is not None and products.each == 1 and len(products.columns) == 2
    return one and emitter.batch > 1 and instruction.loop is None and not emitter.walks.varying


def ends_late(emitter: Emitter, instruction: Instruction) -> bool:
    """Whether it copies the last iteration of a loop, which is known at run time."""
    return instruction.ends is not None and emitter.walks.turns(instruction.ends) is not None


def one_walk(walks: list[Walk]) -> Walk:
    """The single walk of a maximum."""
    if len(walks) > 1:
        raise NotLiftable("a maximum over shared and private numbers")
    return walks[0]


# --- code that both passes emit -------------------------------------------------------------------


@contextmanager
def if_present(emitter: Emitter, k: int, optional: bool) -> Iterator[None]:
    """Skip what is emitted inside at run time where an optional instruction has no points."""
    if not optional:
        yield
        return
    code, instruction = emitter.code, emitter.program.instructions[k]
    what = "plains" if instruction.kind == EXTREME else "out"
    if instruction.kind == SUM and not is_few(emitter, k, instruction.plains):
        what = "plains"
    if instruction.products is not None:
        what = "products"
    columns = [instruction.out] if instruction.kind == GATHER else columns_of(instruction, what)
    count = emitter.run_time_count(emitter.walks.of(k, what, columns)[0])
    there = code.let(f"icmp sgt i64 {count}, 0")
    with code.loop(code.let(f"zext i1 {there} to i64")):
        yield


#: gets where a gather writes, where it reads, the width, and whether it reads from P
GatherBody = Callable[[Offset, Offset, int, bool], None]


def each_gathered(emitter: Emitter, k: int, instruction: Instruction, body: GatherBody) -> None:
    """Loops over the numbers of a gather.

    Numbers that lie side by side go as a vector, such as a row of a table that a token selects:
    the addresses of each vector are looked at. In lanes it goes sample by sample, so that
    consecutive additions in the backward pass go to different places.
    """
    code, batch, candidates = emitter.code, emitter.batch, instruction.candidates
    assert candidates is not None
    shared = candidates < emitter.program.shared
    if shared.any() != shared.all():
        raise NotLiftable("an integer selects among shared and private numbers")
    earlier = emitter.program.instructions[:k]
    first = sum(i.count for i in earlier if i.kind == GATHER)
    (walk,) = emitter.walks.of(k, "out", [instruction.out])
    count = emitter.run_time_count(walk) if walk.varies else instruction.count
    start = (instruction.start - emitter.program.shared) * batch

    def address(at: str, width: int) -> str:
        place = code.let(f"getelementptr inbounds i64, ptr %G, i64 {at}")
        kind = "i64" if width == 1 else f"<{width} x i64>"
        return code.let(f"load {kind}, ptr {place}, align 8")

    def some(i: str, lane: str, address: str, width: int) -> None:
        here: Offset = [(None, start), (i, batch), (lane, 1)]
        there: Offset = [(address, 1)]
        if not shared.all():
            there = [(address, batch), (None, -emitter.program.shared * batch), (lane, 1)]
        body(here, there, width, bool(shared.all()))

    def one_by_one(i: str, lane: str) -> None:
        at = code.let(f"mul nuw nsw i64 {lane}, {len(emitter.program.places)}")
        at = code.let(f"add nuw nsw i64 {at}, {first}")
        some(i, lane, address(code.let(f"add nuw nsw i64 {at}, {i}"), 1), 1)

    width = emitter.width
    if batch > 1 or width == 1 or instruction.count < width:
        with code.loop(batch) as lane, code.loop(count) as i:
            one_by_one(i, lane)
        return
    whole = code.let(f"lshr i64 {count}, {width.bit_length() - 1}")
    with code.loop(whole) as vector:
        i = code.let(f"mul nuw nsw i64 {vector}, {width}")
        places = address(code.let(f"add nuw nsw i64 {i}, {first}"), width)
        lowest = code.let(f"extractelement <{width} x i64> {places}, i64 0")
        row = _follow_each_other(code, places, lowest, width)
        with code.when(row):
            some(i, "0", lowest, width)
        with code.when(code.let(f"xor i1 {row}, true")), code.loop(width) as more:
            one_by_one(code.let(f"add nuw nsw i64 {i}, {more}"), "0")
    done = code.let(f"mul nuw nsw i64 {whole}, {width}")
    with code.loop(code.let(f"sub nuw nsw i64 {count}, {done}")) as more:
        one_by_one(code.let(f"add nuw nsw i64 {done}, {more}"), "0")


def _follow_each_other(code: Code, places: str, lowest: str, width: int) -> str:
    """Whether integers are consecutive, as an i1 register; ``lowest`` is the first of them."""
    kind = f"<{width} x i64>"
    single = code.let(f"insertelement {kind} poison, i64 {lowest}, i64 0")
    every = f"{kind} {single}, {kind} poison, <{width} x i32> zeroinitializer"
    steps = ", ".join(f"i64 {j}" for j in range(width))
    wanted = code.let(f"add {kind} {code.let(f'shufflevector {every}')}, <{steps}>")
    alike = code.let(f"icmp eq {kind} {places}, {wanted}")
    bits = code.let(f"bitcast <{width} x i1> {alike} to i{width}")
    return code.let(f"icmp eq i{width} {bits}, -1")


def operands(
    emitter: Emitter, walk: Walk, first: int, offsets: list[Offset], strides: list[int], width: int
) -> list[Vector]:
    """The operands of a rule as vectors: the columns of the walk after its first."""
    return [
        emitter.read(VALUE[0] if shared else VALUE[1], offsets[k], strides[k], width)
        for k, shared in enumerate(walk.shared[1:], first)
    ]


def as_vector(code: Code, x: Any, width: int) -> Vector:
    """The result of a formula of the op table, which may be a plain number."""
    return x if isinstance(x, Vector) else code.constant(float(x), width)


def seed(emitter: Emitter, root: Offset, shared: bool) -> None:
    """Store the adjoint of the result, whose place this is."""
    code = emitter.code
    if shared:
        code.store("%Q", root, code.load("%S", []))
        return
    # As wide as it is read again: a processor waits for narrower stores to reach the memory.
    width = math.gcd(emitter.batch, emitter.width)
    with code.loop(emitter.batch // width) as lanes:
        code.store("%D", [*root, (lanes, width)], code.load("%S", [(lanes, width)], width))


def clear(emitter: Emitter, array: str, local: Addresses, step: int = 0) -> None:
    """Zero some places of an array; ``step``: how far they move per iteration of a loop in time."""
    if not len(local):
        return
    code, factor = emitter.code, 1 if array in ("%P", "%Q") else emitter.batch
    ends = np.flatnonzero(np.diff(local) != 1)
    starts = np.concatenate([[0], ends + 1])
    lengths = np.diff(np.concatenate([starts, [len(local)]]))
    size = factor * code.bytes
    moved: Offset = [] if emitter.counter is None else [(emitter.counter, step * factor)]
    if len(starts) <= FEW_PIECES:
        for start, length in zip(local[starts].tolist(), lengths.tolist(), strict=True):
            zero(code, array, [*moved, (None, start * factor)], str(length * size))
        return
    with code.loop(len(starts)) as i:
        count = code.let(f"mul nuw nsw i64 {code.table(lengths, i)}, {size}")
        zero(code, array, [*moved, (code.table(local[starts], i), factor)], count)


def clear_results(emitter: Emitter, array: str, k: int, count: int) -> None:
    """Zero what is for the results of an instruction, or for ``count`` of them in each turn."""
    instruction, local = emitter.program.instructions[k], -emitter.program.shared
    if emitter.walks.others is None:
        clear(emitter, array, instruction.out[:count] + local, count)
        return
    code = emitter.code
    size = code.let(f"mul nuw nsw i64 {emitter.results(k)}, {emitter.batch * code.bytes}")
    zero(code, array, [(None, (instruction.start + local) * emitter.batch)], size)


def zero(code: Code, array: str, offset: Offset, size: str) -> None:
    """Zero so many bytes of an array."""
    code.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    at = code.pointer(array, offset)
    code.emit(
        f"call void @llvm.memset.p0.i64(ptr align {code.bytes} {at}, i8 0, i64 {size}, i1 false)"
    )
