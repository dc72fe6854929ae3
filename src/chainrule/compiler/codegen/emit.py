"""Machine code of an array program: forward, and the reverse of it.

In: a ``Program``, and which of its loops are of run-time length. Out: LLVM IR of two functions over
the arrays P and V (numbers that all samples share, and each sample's own), Q and D (their
adjoints), G (the addresses that gathers select) and N (run-time trip counts). ``forward`` returns a
number that is finite only if all of V is and every guard holds; ``backward`` likewise for the
gradient, ``reverse`` is the same without looking. S is the adjoint of the result, one for each
sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainrule.compiler.codegen import registers
from chainrule.compiler.codegen.contraction import ADJOINT, VALUE, Emitter
from chainrule.compiler.codegen.ir import Code, Integers, Terms, Vector
from chainrule.compiler.codegen.walks import Walk, Walks
from chainrule.compiler.lift.canonical import EXTREME, GATHER, SUM, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Program, Repeat
from chainrule.core import ops

FEW_TERMS = 4  # sums of so many plain terms are added in one go
FEW_PIECES = 16  # as many separate stretches of memory are zeroed one by one


@dataclass
class Machine:
    """The text of a program's machine code and what it takes for granted of shorter programs."""

    text: str = ""
    scratch: int = 0  # numbers of each sample's own after all others
    walks: list[Walk] = field(default_factory=list)
    stores: list[tuple[Walk, Addresses]] = field(default_factory=list)  # targets written first
    optional: set[int] = field(default_factory=set)  # instructions that may be left out


def machine(
    program: Program,
    root: int,
    width: int,
    varying: set[tuple[int, str]] | None = None,
    batch: int = 1,
    dtype: str = "float64",
    contract: bool = True,
    optional: set[int] | None = None,
) -> Machine:
    """The IR of forward and backward, ready to be parsed.

    An instruction that is optional is left out where the count of its first walk is 0. Without
    ``contract`` products are rounded before they are added, and sums keep their order.
    """
    walks = Walks(program, varying or set(), contract)
    made = Machine(walks=walks.all, optional=optional or set())
    forward = Emitter(walks, width, batch, dtype)
    flags = forward.new_flags()
    watched = _watched(program)
    for k, instruction in enumerate(program.instructions):
        forward.flags = flags if watched[k] else None
        if instruction.loop is None:
            with _where_present(forward, k, k in made.optional):
                _forward(forward, k, instruction)
        elif k == program.loops[instruction.loop].first:
            _forward_loop(forward, program.loops[instruction.loop], watched, flags)
    forward.flags = flags
    flag = _guards(forward, _flag(forward))
    backward = _Backward(walks, width, batch, dtype, made)
    made.scratch = walks.scratch
    backward.emit(root)
    arguments = "ptr noalias %P, ptr noalias %V"
    more = "ptr noalias %Q, ptr noalias %D, ptr noalias %S"
    tail = "ptr noalias readonly %G, ptr noalias readonly %N"
    number = forward.code.kind(1)
    looking = Emitter(walks, width, batch, dtype)
    looking.code.emit("call void @reverse({})".format(", ".join(f"ptr %{x}" for x in "PVQDSGN")))
    _look(looking)
    parts = [
        _function(forward.code, f"{number} @forward({arguments}, {tail})", flag),
        _function(backward.emitter.code, f"void @reverse({arguments}, {more}, {tail})"),
        _function(looking.code, f"{number} @backward({arguments}, {more}, {tail})", _flag(looking)),
    ]
    declarations = forward.code.declarations | backward.emitter.code.declarations
    made.text = "\n".join([*sorted(declarations), *parts])
    return made


def _look(emitter: Emitter) -> None:
    """Let the flags see the gradient."""
    program, code = emitter.program, emitter.code
    emitter.flags = emitter.new_flags()
    whole, own = program.inputs // emitter.width, _varied(program) * emitter.batch
    if whole:
        with code.loop(whole) as i:
            emitter.watch(code.load("%Q", [(i, emitter.width)], emitter.width))
    for at in range(whole * emitter.width, program.inputs):
        emitter.watch(code.load("%Q", [(None, at)]))
    if own:
        with code.loop(own) as i:
            emitter.watch(code.load("%D", [(i, 1)]))


def _varied(program: Program) -> int:
    """How many of the inputs that samples have of their own have a derivative."""
    return len(program.private) - program.fixed


def _function(code: Code, head: str, result: Vector | None = None) -> str:
    """A whole function, its variables and its tables."""
    name = head.split("@")[1].split("(")[0]
    body = "\n".join(code.lines).replace("@table", f"@{name}_table")
    end = "void" if result is None else f"{code.kind(1)} {result.register}"
    text = (
        f'define {head} nounwind "prefer-vector-width"="512" {{\nentry:\n'
        + "\n".join(code.slots)
        + f"\n  br label %start\nstart:\n{body}\n  ret {end}\n}}"
    )
    for label, numbers in code.tables.values():
        items = ", ".join(f"i64 {int(x)}" for x in numbers)
        text += (
            f"\n{label.replace('@table', f'@{name}_table')} = private constant "
            f"[{len(numbers)} x i64] [{items}], align 64"
        )
    return text


def _flag(emitter: Emitter) -> Vector:
    """One number of all flags."""
    total = emitter.code.constant(0.0, 1)
    for variable in (emitter.flags or {}).values():
        total = total + variable.get().total()
    return total


def _watched(program: Program) -> list[bool]:
    """Per instruction: whether its results must be looked at.

    They need not be if something that is not finite shows in what is computed from them. Sums of
    several terms are always looked at: in another order than eager's they may stay finite where
    eager's overflow on the way.
    """
    shows = np.zeros(program.size, np.bool_)
    found = []
    for instruction in reversed(program.instructions):
        long = instruction.products is not None or (
            instruction.plains is not None and instruction.plains.each not in (1, 2)
        )
        copied = instruction.kind == GATHER
        out = slice(instruction.start, instruction.start + instruction.count)
        hides = instruction.kind == EXTREME
        found.append(not copied and (hides or long or not bool(shows[out].all())))
        rule = instruction.rule
        is_open = rule is not None and rule.shows_nonfinite(*instruction.parameters)
        if instruction.kind == SUM or is_open:
            for column in _read_by(instruction):
                shows[column] = True
    return found[::-1]


def _guards(emitter: Emitter, flag: Vector) -> Vector:
    """The flag, not finite if a guard goes the other way in any sample."""
    program, code = emitter.program, emitter.code
    if not len(program.guards):
        return flag
    walks = emitter.walks.of(len(program.instructions), "guards", [program.guards])
    infinite = code.variable(flag)
    expected = np.ascontiguousarray(program.expected).view(np.int64)
    for walk in walks:
        wanted = expected if walk.chosen is None else expected[walk.chosen]
        place = code.let(f"getelementptr inbounds i64, ptr %N, i64 {walk.slot}")
        count: Any = code.let(f"load i64, ptr {place}, align 8") if walk.varies else len(wanted)
        local = walk.columns[0] - (0 if walk.shared[0] else program.shared)
        lanes = 1 if walk.shared[0] else emitter.batch
        with code.loop(count) as i:
            right = Integers(code.over("float64"), code.table(wanted, i), 1).numbers()
            right = right.over(code.dtype)
            address = code.table(local, i)
            for lane in range(lanes):
                array = "%P" if walk.shared[0] else "%V"
                x = code.load(array, [(address, lanes), (None, lane)])
                infinite.set(infinite.get() + x._compare("une", right).choose(float("inf"), 0.0))
    return infinite.get()


# --- forward --------------------------------------------------------------------------------------


def _forward_loop(
    emitter: Emitter, loop: Repeat, watched: list[bool], flags: dict[int, Any]
) -> None:
    """A loop in time, a slice of its instructions in each iteration."""
    number = emitter.program.loops.index(loop)
    if registers.is_small(emitter.program, loop):
        registers.forward(emitter, number, watched, flags)
        return
    emitter.flags = None
    for k in range(loop.first, loop.last):
        if emitter.program.instructions[k].products is not None and emitter.batch == 1:
            _transpose(emitter, k)
    with registers.inlining(emitter, loop), emitter.code.loop(loop.count) as emitter.counter:
        for k in range(loop.first, loop.last):
            emitter.flags = flags if watched[k] else None
            _forward(emitter, k, emitter.program.instructions[k])
    emitter.counter = None


def _transpose(emitter: Emitter, k: int) -> None:
    """Copy the matrices that all iterations multiply by, if they lie the wrong way."""
    columns = _columns(emitter.program.instructions[k], "products")
    for walk in emitter.walks.in_loop(k, "products", columns, sliced=True):
        made = emitter.walks.transposed(walk)
        if made is None:
            continue
        other, copying = made
        emitter.copies[walk.slot] = other

        def body(
            terms: list[Terms], strides: list[int], width: int, copying: Walk = copying
        ) -> None:
            emitter.write("%V", terms[0], *_operands(emitter, copying, 1, terms, strides, width))

        emitter.elementwise(copying, (0, 1), body)


@contextmanager
def _where_present(emitter: Emitter, k: int, optional: bool) -> Iterator[None]:
    """What is emitted is left out at run time if the instruction is."""
    if not optional:
        yield
        return
    code, instruction = emitter.code, emitter.program.instructions[k]
    what = "plains" if instruction.kind == EXTREME else "out"
    if instruction.kind == SUM and not _is_few(emitter, k, instruction.plains):
        what = "plains"
    if instruction.products is not None:
        what = "products"
    columns = [instruction.out] if instruction.kind == GATHER else _columns(instruction, what)
    walk = emitter.walks.of(k, what, columns)[0]
    place = code.let(f"getelementptr inbounds i64, ptr %N, i64 {walk.slot}")
    count = code.let(f"load i64, ptr {place}, align 8")
    there = code.let(f"icmp sgt i64 {count}, 0")
    with code.loop(code.let(f"zext i1 {there} to i64")):
        yield


def _walks(emitter: Emitter, k: int, what: str, columns: Sequence[Addresses]) -> list[Walk]:
    """The walks of an instruction, in a loop in time those of one iteration."""
    if emitter.counter is None:
        return emitter.walks.of(k, what, columns)
    walks = emitter.walks.in_loop(k, what, columns, sliced=True)
    return [emitter.copies.get(walk.slot, walk) for walk in walks]


def _columns(instruction: Instruction, what: str) -> list[Addresses]:
    """What is walked together: results and operands, or the terms of sums and to whom they go."""
    if what == "out" and instruction.kind != SUM:
        return [instruction.out, *instruction.columns]
    terms = instruction.products if what == "products" else instruction.plains
    assert terms is not None
    if what != "out":
        return [terms.owners, *terms.columns]
    table = terms.columns[0].reshape(-1, terms.each)
    return [instruction.out, *(table[:, j] for j in range(terms.each))]


def _forward(emitter: Emitter, k: int, instruction: Instruction) -> None:
    if instruction.kind == GATHER:
        _gather(emitter, k, instruction, forward=True)
    elif instruction.kind == SUM:
        _sum(emitter, k, instruction)
    elif instruction.kind == EXTREME:
        assert instruction.plains is not None
        for walk in _one(_walks(emitter, k, "plains", _columns(instruction, "plains"))):
            if not emitter.stores(walk, 0, sums=False):
                raise NotLiftable("a maximum over irregular places")
            _watch_inputs(emitter, walk)
            emitter.extreme(walk, instruction.rule is ops.first_max)
    else:
        for walk in _walks(emitter, k, "out", _columns(instruction, "out")):
            _rule(emitter, walk, instruction)


def _watch_inputs(emitter: Emitter, walk: Walk) -> None:
    """Let the flags see the inputs that a maximum is of: it might hide one that is no number.

    So it might where integers select them.
    """
    program, code = emitter.program, emitter.code
    plain = np.zeros(program.size, np.bool_)
    plain[: program.shared + len(program.private)] = True
    for instruction in program.instructions:
        if instruction.kind == GATHER:
            plain[instruction.out] = True
    found = np.unique(walk.columns[1][plain[walk.columns[1]]])
    if not len(found) or emitter.flags is None:
        return
    shared = walk.shared[1]
    lanes = 1 if shared else emitter.batch
    local = found if shared else found - program.shared
    with code.loop(len(found)) as i, code.loop(lanes) as lane:
        address = code.table(local, i)
        emitter.watch(code.load("%P" if shared else "%V", [(address, lanes), (lane, 1)]))


def _one(walks: list[Walk]) -> list[Walk]:
    if len(walks) > 1:
        raise NotLiftable("a maximum over shared and private numbers")
    return walks


def _operands(
    emitter: Emitter, walk: Walk, first: int, terms: list[Terms], strides: list[int], width: int
) -> list[Vector]:
    """The operands of a rule as vectors: the columns of the walk after its first."""
    return [
        emitter.read(VALUE[0] if shared else VALUE[1], terms[first + j], strides[first + j], width)
        for j, shared in enumerate(walk.shared[1:])
    ]


def _rule(emitter: Emitter, walk: Walk, instruction: Instruction) -> None:
    rule, code = instruction.rule, emitter.code
    assert rule is not None

    def body(terms: list[Terms], strides: list[int], width: int) -> None:
        xs = _operands(emitter, walk, 1, terms, strides, width)
        emitter.write("%V", terms[0], _vector(code, rule(*xs, *instruction.parameters), width))

    emitter.elementwise(walk, range(len(walk.columns)), body)


def _vector(code: Code, x: Any, width: int) -> Vector:
    return x if isinstance(x, Vector) else code.constant(float(x), width)


def _gather(emitter: Emitter, k: int, instruction: Instruction, forward: bool) -> None:
    """Numbers from (adjoints to) the addresses in G, sample by sample."""
    code, batch = emitter.code, emitter.batch
    candidates = instruction.candidates
    assert candidates is not None
    shared = candidates < emitter.program.shared
    if shared.any() != shared.all():
        raise NotLiftable("an integer selects among shared and private numbers")
    first = _gathers_before(emitter.program, k)
    (walk,) = emitter.walks.of(k, "out", [instruction.out])
    count: Any = instruction.count
    if walk.varies:
        place = code.let(f"getelementptr inbounds i64, ptr %N, i64 {walk.slot}")
        count = code.let(f"load i64, ptr {place}, align 8")
    start = (instruction.start - emitter.program.shared) * batch
    # Sample by sample: what is added to one place does not wait for what was added just before.
    with code.loop(batch) as lane, code.loop(count) as i:
        at = code.let(f"mul nuw nsw i64 {lane}, {len(emitter.program.places)}")
        at = code.let(f"add nuw nsw i64 {at}, {first}")
        at = code.let(f"add nuw nsw i64 {at}, {i}")
        place = code.let(f"getelementptr inbounds i64, ptr %G, i64 {at}")
        address = code.let(f"load i64, ptr {place}, align 8")
        here: Terms = [(None, start), (i, batch), (lane, 1)]
        there: Terms = [(address, 1)]
        if not shared.all():
            there = [(address, batch), (None, -emitter.program.shared * batch), (lane, 1)]
        arrays = VALUE if forward else ADJOINT
        array = arrays[0] if shared.all() else arrays[1]
        if forward:
            code.store("%V", here, code.load(array, there))
        else:
            code.store(array, there, code.load(array, there) + code.load("%D", here))


def _gathers_before(program: Program, k: int) -> int:
    return sum(i.count for i in program.instructions[:k] if i.kind == GATHER)


def _is_few(emitter: Emitter, k: int, terms: Any) -> bool:
    """Whether all sums of an instruction have as many plain terms, at every length, and few."""
    if terms is None or (k, "each") in emitter.walks.varying:
        return False
    return bool(0 < terms.each <= FEW_TERMS)


def _sum(emitter: Emitter, k: int, instruction: Instruction) -> None:
    products, plains = instruction.products, instruction.plains
    few = _is_few(emitter, k, plains)
    complete = False  # every result has something stored
    if products is not None:
        walks = _walks(emitter, k, "products", _columns(instruction, "products"))
        complete = _add_up(emitter, instruction, walks, (VALUE, VALUE, VALUE), started=False)
    if plains is None:
        return
    if not few:
        walks = _walks(emitter, k, "plains", _columns(instruction, "plains"))
        _add_up(emitter, instruction, walks, (VALUE, VALUE), started=complete)
        return
    columns = _columns(instruction, "out")
    for walk in _walks(emitter, k, "out", columns):

        def body(at: list[Terms], strides: list[int], width: int, walk: Walk = walk) -> None:
            total = emitter.read("%V", at[0], strides[0], width) if complete else None
            for x in _operands(emitter, walk, 1, at, strides, width):
                total = x if total is None else total + x
            assert total is not None
            emitter.write("%V", at[0], total)

        emitter.elementwise(walk, range(len(columns)), body)


def _add_up(
    emitter: Emitter,
    instruction: Instruction,
    walks: list[Walk],
    arrays: Sequence[tuple[str, str]],
    started: bool,
) -> bool:
    """Sums of products or terms; whatever is not wholly stored by one walk is cleared first."""
    (walk, *more) = walks
    count = instruction.count // walk.iterations
    # In a loop in time, the first of several walks may store if it comes to every result.
    whole = (not more or bool(walk.steps)) and len(np.unique(walk.columns[0])) == count
    store = not started and whole and emitter.stores(walk, 0)
    if not store and not started:
        clear(emitter, "%V", instruction.out[:count] - emitter.program.shared, count)
    for each in walks:
        emitter.contract(each, range(len(arrays)), arrays, store=store and each is walk)
    return True


def clear(emitter: Emitter, array: str, local: Addresses, step: int = 0) -> None:
    """Zero some places of an array; in a loop in time they move on by a step."""
    if not len(local):
        return
    code, factor = emitter.code, 1 if array in ("%P", "%Q") else emitter.batch
    ends = np.flatnonzero(np.diff(local) != 1)
    starts = np.concatenate([[0], ends + 1])
    lengths = np.diff(np.concatenate([starts, [len(local)]]))
    size = factor * code.bytes
    moved: Terms = [] if emitter.counter is None else [(emitter.counter, step * factor)]
    if len(starts) <= FEW_PIECES:
        for start, length in zip(local[starts].tolist(), lengths.tolist(), strict=True):
            _zero(code, array, [*moved, (None, start * factor)], str(length * size))
        return
    with code.loop(len(starts)) as i:
        count = code.let(f"mul nuw nsw i64 {code.table(lengths, i)}, {size}")
        _zero(code, array, [*moved, (code.table(local[starts], i), factor)], count)


def _zero(code: Code, array: str, terms: Terms, size: str) -> None:
    code.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    at = code.pointer(array, terms)
    code.emit(
        f"call void @llvm.memset.p0.i64(ptr align {code.bytes} {at}, i8 0, i64 {size}, i1 false)"
    )


# --- backward -------------------------------------------------------------------------------------


class _Backward:
    """The reverse of a program. Adjoints are stored by whoever comes first, if it covers them."""

    def __init__(self, walks: Walks, width: int, batch: int, dtype: str, made: Machine) -> None:
        self.emitter = Emitter(walks, width, batch, dtype)
        self.program = walks.program
        self.made = made
        self.touched = np.zeros(self.program.size, np.bool_)

    def emit(self, root: int) -> None:
        """Everything that a gradient of ``root`` reaches, last things first."""
        program = self.program
        found = reached(program, root)
        never = self._never_reached(found)
        self._clear(never)
        self._seed(root)
        for k in reversed(range(len(program.instructions))):
            instruction = program.instructions[k]
            if instruction.loop is not None:
                if k == program.loops[instruction.loop].first:
                    self._loop(instruction.loop, found)
            elif _is_reached(instruction, found):
                self._clear(instruction.out)
                is_optional = k in self.made.optional
                for column in _differentiated(instruction) if is_optional else ():
                    self._clear(column)  # whether it is there or not
                with _where_present(self.emitter, k, is_optional):
                    self._instruction(k, instruction)
        self._clear(np.arange(program.inputs))
        self._clear(np.arange(program.shared, program.shared + _varied(program)))

    def _never_reached(self, found: Any) -> Addresses:
        """Shared inputs without a gradient."""
        return np.flatnonzero(~found[: self.program.inputs])

    def _seed(self, root: int) -> None:
        code, emitter, program = self.emitter.code, self.emitter, self.program
        self.touched[root] = True
        if root < program.shared:
            code.store("%Q", [(None, root)], code.load("%S", []))
            return
        start = (root - program.shared) * emitter.batch
        with code.loop(emitter.batch) as lane:
            code.store("%D", [(None, start), (lane, 1)], code.load("%S", [(lane, 1)]))

    def _clear(self, addresses: Addresses, step: int = 0, count: int = 1) -> None:
        """Zero those of these adjoints that nobody has written; in each of so many iterations."""
        wanted = np.unique(addresses[~self.touched[addresses]])
        self._touch(wanted, step, count)
        split = int(np.searchsorted(wanted, self.program.shared))
        clear(self.emitter, "%Q", wanted[:split], step)
        clear(self.emitter, "%D", wanted[split:] - self.program.shared, step)

    def _touch(self, addresses: Addresses, step: int, count: int) -> None:
        self.touched[addresses + step * np.arange(count)[:, None]] = True

    # --- loops in time ----------------------------------------------------------------------------

    def _loop(self, number: int, found: Any) -> None:
        """A loop backwards, then what comes from outside of it, for all iterations at once."""
        emitter, program = self.emitter, self.program
        loop = program.loops[number]
        core = [
            k
            for k in reversed(range(loop.first, loop.last))
            if _is_reached(program.instructions[k], found)
        ]
        if core and registers.is_small(program, loop):
            reverse = registers.Reverse(emitter, number, core, self.touched)
            self._clear(reverse.wanted())
            reverse.emit()
        elif core:
            self._sliced(number, core)
        for k in core:
            self._instruction(k, program.instructions[k])

    def _sliced(self, number: int, core: list[int]) -> None:
        """The loop itself, where its iterations are slices of arrays."""
        emitter, code, program = self.emitter, self.emitter.code, self.program
        loop = program.loops[number]
        self._clear(self._open(number, core))
        with registers.inlining(emitter, loop), code.loop(loop.count) as i:
            emitter.counter = code.let(f"sub nsw i64 {loop.count - 1}, {i}")
            for k in core:
                instruction = program.instructions[k]
                each = instruction.count // loop.count
                self._clear(instruction.out[:each], each, loop.count)
                self._instruction(k, instruction)
        emitter.counter = None

    def _open(self, number: int, core: list[int]) -> Addresses:
        """The results of a loop whose adjoints an iteration finds begun, of all iterations."""
        program, loop = self.program, self.program.loops[number]
        found = np.zeros(program.size, np.bool_)
        slot = np.zeros(program.size, np.int64)
        when = np.full(program.size, loop.count)
        for instruction in program.instructions[loop.first : loop.last]:
            each = instruction.count // loop.count
            here = np.arange(-loop.reach * each, instruction.count)
            slot[instruction.start + here] = instruction.start + here % each
            when[instruction.start + here] = here // each
        found[slot[self.touched & (when < loop.count)]] = True
        for k in core:
            for column in _differentiated(program.instructions[k]):
                last = column.reshape(loop.count, -1)[-1]
                found[slot[last[when[last] < loop.count - 1]]] = True
        return np.flatnonzero((when < loop.count) & found[slot])

    def _walks(self, k: int, what: str) -> list[Walk]:
        """The walks of an instruction, in a loop in time those of one iteration."""
        emitter, instruction = self.emitter, self.program.instructions[k]
        if instruction.loop is None:
            return emitter.walks.of(k, what, [])
        sliced = emitter.counter is not None
        return emitter.walks.in_loop(k, what, _columns(instruction, what), sliced)

    def _begin(self, walk: Walk, column: int, sums: bool) -> bool:
        """Before a walk adds to a column of adjoints: whether it may store instead.

        ``sums``: it keeps the sum of what goes to one place, over all lanes, until it is complete.
        """
        targets, shared = walk.columns[column], walk.shared[column]
        fresh = not self.touched[targets].any()
        if sums:
            whole = self.emitter.stores(walk, column)
        else:
            whole = len(np.unique(targets)) == len(targets) and not (
                shared and self.emitter.batch > 1
            )
        moves = walk.varies and shared  # what a shorter call leaves out must be zero
        step = walk.steps[column] if walk.steps else 0
        if fresh and whole and not moves:
            self._touch(targets, step, walk.iterations)
            if not walk.steps:
                self.made.stores.append((walk, targets))
            return True
        self._clear(targets, step, walk.iterations)
        return False

    def _instruction(self, k: int, instruction: Instruction) -> None:
        emitter = self.emitter
        if instruction.kind == GATHER:
            assert instruction.candidates is not None
            self._clear(instruction.candidates)
            _gather(emitter, k, instruction, forward=False)
        elif instruction.kind == EXTREME:
            assert instruction.plains is not None
            for walk in _one(self._walks(k, "plains")):
                if self._wanted(walk, 1):
                    self._clear(walk.columns[1], sum(walk.steps[1:2]), walk.iterations)
                    self._extreme(walk)
        elif instruction.kind == SUM:
            for what, terms in (("products", instruction.products), ("plains", instruction.plains)):
                if terms is None:
                    continue
                if what == "plains" and _is_few(emitter, k, terms):
                    what = "out"
                for walk in self._walks(k, what):
                    self._sum(walk, what == "products")
        else:
            for walk in self._walks(k, "out"):
                self._rule(walk, instruction)

    def _wanted(self, walk: Walk, column: int) -> bool:
        """Whether anybody reads the adjoints of a column: constants and the like have none.

        A loop in time adds to those of its own results; the others come after it.
        """
        targets, program = walk.columns[column], self.program
        if walk.core and walk.core[column] != bool(walk.steps):
            return False
        last = program.shared + len(program.private)
        constant = (targets >= program.inputs) & (targets < program.shared)
        return not bool((constant | ((targets >= last - program.fixed) & (targets < last))).all())

    def _sum(self, walk: Walk, products: bool) -> None:
        for column in range(1, len(walk.columns)):
            if not self._wanted(walk, column):
                continue
            selection, arrays = [column, 0], [ADJOINT, ADJOINT]
            if products:
                selection, arrays = [column, 0, 3 - column], [ADJOINT, ADJOINT, VALUE]
            store = self._begin(walk, column, sums=True)
            self.emitter.contract(walk, selection, arrays, store=store)

    def _extreme(self, walk: Walk) -> None:
        """The first term that is the result takes its gradient."""
        emitter, code = self.emitter, self.emitter.code
        shared = walk.shared[1]
        values, adjoints = ("%P", "%Q") if shared else ("%V", "%D")

        def inner(terms: list[Terms], loops: Any) -> None:
            def one(t: list[Terms]) -> None:
                g = code.load("%D", t[0])
                chosen = code.load(values, t[1])._compare("oeq", code.load("%V", t[0]))
                share = chosen.choose(g, 0.0)
                code.store(adjoints, t[1], code.load(adjoints, t[1]) + share)
                code.store("%D", t[0], g - share)

            emitter.over(loops, terms, one)

        emitter.nest(walk, (0, 1), inner)

    def _rule(self, walk: Walk, instruction: Instruction) -> None:
        """D[x] += partial * g for each operand."""
        rule = instruction.rule
        assert rule is not None
        for j in range(len(instruction.operands)):
            if j not in rule.differentiable or not self._wanted(walk, j + 1):
                continue
            store = self._begin(walk, j + 1, sums=False)
            self._partial(walk, instruction, j, store)

    def _partial(self, walk: Walk, instruction: Instruction, j: int, store: bool) -> None:
        emitter, code, rule = self.emitter, self.emitter.code, instruction.rule
        assert rule is not None
        target = ADJOINT[0] if walk.shared[j + 1] else ADJOINT[1]

        def body(terms: list[Terms], strides: list[int], width: int) -> None:
            xs = _operands(emitter, walk, 2, terms, strides, width)
            y = emitter.read("%V", terms[1], strides[1], width)
            g = emitter.read("%D", terms[1], strides[1], width)
            slope = rule.partials[j](y, *xs, *instruction.parameters)
            plain = isinstance(slope, float) and slope == 1.0
            share = emitter.only_active(_vector(code, g if plain else slope * g, width))
            if strides[0] == 0 and width > 1:
                share = share.total()
                code.store(target, terms[0], code.load(target, terms[0]) + share)
            elif store:
                emitter.write(target, terms[0], share)
            else:
                old = emitter.read(target, terms[0], strides[0], width)
                emitter.write(target, terms[0], old + share)

        selection = [j + 1, *range(len(walk.columns))]
        emitter.elementwise(walk, selection, body, reduces=True)


def reached(program: Program, root: int) -> Any:
    """A truth per address: whether a gradient from ``root`` can reach it."""
    found = np.zeros(program.size, np.bool_)
    found[root] = True
    before, now = -1, 1
    while before != now:  # once, but for loops in time
        for instruction in reversed(program.instructions):
            if _is_reached(instruction, found):
                for column in _differentiated(instruction):
                    found[column] = True
        before, now = now, int(found.sum()) if program.loops else now
    return found


def _is_reached(instruction: Instruction, found: Any) -> bool:
    here = found[instruction.start : instruction.start + instruction.count]
    return bool(here.any()) and (instruction.rule is None or bool(instruction.rule.differentiable))


def _differentiated(instruction: Instruction) -> list[Addresses]:
    """What it reads and passes a gradient to."""
    rule, operands = instruction.rule, len(instruction.operands)
    return [
        column
        for j, column in enumerate(_read_by(instruction))
        if j >= operands or rule is None or j in rule.differentiable
    ]


def _read_by(instruction: Instruction) -> list[Addresses]:
    if instruction.candidates is not None:
        return [instruction.candidates]
    columns = list(instruction.operands)
    for terms in (instruction.products, instruction.plains):
        columns += list(terms.columns) if terms is not None else []
    return columns
