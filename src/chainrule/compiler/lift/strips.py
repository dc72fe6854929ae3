"""Strips: runs of array instructions whose elements do not depend on each other.

In: a ``Program`` and the addresses of what it returns. Out: an order of its instructions in
which some are a ``Run``: their numbers fall into elements (an observation, a path, a row), and an
element reads nothing of another. Such a run is computed element after element, so that only what
others read needs memory. Elements are the connected components of the columns of addresses, so
nothing is assumed about where they lie. ``str(run)`` prints it; ``run.verify(program)`` checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.graph import GATHER
from chainrule.compiler.lift.program import Addresses, Instruction, Program, Terms

LEAST = 64  # elements of the most frequent form; fewer are soon done by other means
FEWEST = 3  # instructions of a run
MOST_TERMS = 64  # of one sum: longer ones are better added up by vectors along them
MOST_POINTS = 2_000  # numbers and terms of one element: they become straight-line code
MOST_CODE = 6_000  # and of all forms of elements of a run
MOST_FORMS = 64
ROUNDS = 16  # runs of one program
TRIES = 3  # of them that come to nothing, one after the other

Source = int | Addresses  # a number of the same element, or an address for each element


@dataclass(frozen=True, eq=False)
class Point:
    """One number that every element of a strip computes."""

    instruction: int
    out: Addresses  # its address, for each element
    operands: tuple[Source, ...]  # of a rule, or the plain terms of a sum
    products: tuple[tuple[Source, Source], ...]
    is_kept: bool  # somebody reads it later, at its address
    is_result: bool  # it is returned, and nobody else reads it: it may be stored anywhere

    @property
    def sources(self) -> Iterator[Source]:
        """Everything it reads."""
        yield from self.operands
        for pair in self.products:
            yield from pair

    @property
    def work(self) -> int:
        """Itself and the terms of its sum."""
        return 1 + len(self.operands) + len(self.products)


@dataclass(frozen=True, eq=False)
class Strip:
    """Elements of one form: the same operations on the same of their own numbers."""

    count: int
    points: tuple[Point, ...]  # in order: each reads earlier ones only

    @property
    def outside(self) -> list[Addresses]:
        """The different columns that its elements read and that the run does not compute."""
        found = {id(s): s for point in self.points for s in point.sources if not isinstance(s, int)}
        return list(found.values())

    def addresses(self, source: Source) -> Addresses:
        """Where each element has a number."""
        return self.points[source].out if isinstance(source, int) else source

    def __str__(self) -> str:
        kept = sum(point.is_kept or point.is_result for point in self.points)
        return f"{self.count} × {len(self.points)} numbers, {kept} kept, {len(self.outside)} read"


@dataclass(frozen=True, eq=False)
class Run:
    """Instructions that are computed together, and their elements, one strip for each form."""

    instructions: tuple[int, ...]
    strips: tuple[Strip, ...]

    def __str__(self) -> str:
        return f"{len(self.instructions)} instructions: " + "; ".join(map(str, self.strips))

    def verify(self, program: Program) -> None:
        """Raise AssertionError unless its strips compute exactly what its instructions do."""
        wanted = _points(program, self.instructions)
        made = np.concatenate([program.instructions[k].out for k in self.instructions])
        for strip in self.strips:
            for n, point in enumerate(strip.points):
                operands, products = wanted[point.instruction]
                for source in point.sources:
                    if isinstance(source, int):
                        assert source < n, "a number is read before it is computed"
                    else:
                        assert not np.isin(source, made).any(), "an element reads another"
                columns = [strip.addresses(s).tolist() for s in point.operands]
                pairs = [strip.addresses(s).tolist() for pair in point.products for s in pair]
                for e, out in enumerate(point.out.tolist()):
                    assert [c[e] for c in columns] == operands.pop(out), "other operands"
                    assert [c[e] for c in pairs] == products.pop(out), "other products"
        for operands, products in wanted.values():
            assert not operands, "a result is in no strip"
            assert not products


def _points(
    program: Program, members: Sequence[int]
) -> dict[int, tuple[dict[int, list[int]], dict[int, list[int]]]]:
    """Per instruction: the addresses that each result reads, one by one; for ``verify``."""
    found = {}
    for k in members:
        instruction = program.instructions[k]
        operands: dict[int, list[int]] = {a: [] for a in instruction.out.tolist()}
        products: dict[int, list[int]] = {a: [] for a in instruction.out.tolist()}
        for column in instruction.columns:
            for out, address in zip(instruction.out.tolist(), column.tolist(), strict=True):
                operands[out].append(address)
        for terms, into in ((instruction.products, products), (instruction.plains, operands)):
            if terms is not None:
                for out, *read in zip(
                    terms.owners.tolist(), *[c.tolist() for c in terms.columns], strict=True
                ):
                    into[out] += read
        found[k] = (operands, products)
    return found


# --- which instructions ---------------------------------------------------------------------------


def schedule(program: Program, root: int, returned: Addresses) -> list[int | Run]:
    """The instructions in an order of execution, some of them as runs.

    ``root`` and ``returned``: the addresses that are read when all is computed; elements come in
    the order in which they are returned. An instruction that does not fit into a run comes before
    it if it reads nothing of it, else after it.
    """
    plain: list[int | Run] = list(range(len(program.instructions)))
    if program.loops or program.steps is not None:
        return plain
    # With many elements each is a small part of all. What is more is several that were joined.
    most = min(MOST_POINTS, 4 * sum(map(_work, program.instructions)) // LEAST)
    rank = np.full(program.size, -1, np.int64)
    rank[returned[::-1]] = np.arange(len(returned))[::-1]
    order: list[int | Run] = []
    left, tries = list(range(len(program.instructions))), TRIES
    for _ in range(ROUNDS):
        members, before, left, components = _gathered(program, left, most)
        order += before
        run = _run(program, members, components, root, rank) if members else None
        order += members if run is None else [run]
        tries = TRIES if run is not None else tries - 1
        if not left or not tries:
            break
    order += left
    return order if any(isinstance(item, Run) for item in order) else plain


def _gathered(
    program: Program, left: Sequence[int], most: int
) -> tuple[list[int], list[int], list[int], _Components]:
    """The next run's instructions, what comes before them and after, and their elements."""
    components = _Components(program.size, most)
    late = np.zeros(program.size, np.bool_)
    members: list[int] = []
    before: list[int] = []
    after: list[int] = []
    for k in left:
        instruction = program.instructions[k]
        reads = instruction.reads
        is_late = any(late[column].any() for column in reads)
        if not is_late and _is_eligible(instruction) and components.add(instruction):
            members.append(k)
        elif not is_late and not any((components.parent[c] >= 0).any() for c in reads):
            before.append(k)
        else:
            after.append(k)
            late[instruction.out] = True
    return members, before, after, components


def _work(instruction: Instruction) -> int:
    """How many numbers it computes, reads as operands, or adds up."""
    operands = instruction.count * (1 + len(instruction.columns))
    return operands + sum(map(len, instruction.sums))


def _is_eligible(instruction: Instruction) -> bool:
    if instruction.kind == GATHER or instruction.loop is not None or instruction.scaled is not None:
        return False
    if instruction.count < LEAST:
        return False
    sums = [np.bincount(t.owners - instruction.start).max() for t in instruction.sums if len(t)]
    return not sums or int(max(sums)) <= MOST_TERMS


class _Components:
    """The elements of a run so far: numbers that depend on each other, or a third on both."""

    def __init__(self, size: int, most: int) -> None:
        self.parent = np.full(size, -1, np.int64)  # towards the least address; -1: not in the run
        self.most = most
        self._work = np.zeros(size, np.int64)  # of an element, at its least address

    def roots(self, addresses: Addresses) -> Addresses:
        """The least address of the element that each is in."""
        found = self.parent[addresses]
        while True:
            above = self.parent[found]
            if np.array_equal(above, found):
                return found
            found = above

    def add(self, instruction: Instruction) -> bool:
        """Let an instruction join, unless an element becomes too large."""
        out, start = instruction.out, instruction.start
        edges = [(out, column) for column in instruction.columns]
        work = np.full(instruction.count, 1 + len(edges), np.int64)
        for terms in instruction.sums:
            edges += [(terms.owners, column) for column in terms.columns]
            work += np.bincount(terms.owners - start, minlength=instruction.count)
        owners = np.concatenate([a for a, _ in edges])
        read = np.concatenate([b for _, b in edges])
        inside = self.parent[read] >= 0
        owners, read = owners[inside] - start, read[inside]
        roots = self.roots(read)
        home = out.copy()
        home[owners] = roots  # one of them; the others join it
        joined = self._join(roots, home[owners])
        home[owners] = self.roots(home[owners])
        self.parent[out] = home
        np.add.at(self._work, home, work)
        if int(self._work[home].max()) <= self.most:
            self.parent[read] = home[owners]
            return True
        np.subtract.at(self._work, home, work)
        self.parent[out] = -1
        for gone, into, old in reversed(joined):
            np.subtract.at(self._work, into, old)
            self._work[gone], self.parent[gone] = old, gone
        return False

    def _join(self, a: Addresses, b: Addresses) -> list[tuple[Addresses, Addresses, Addresses]]:
        """Make one element of those of each pair; gives what undoes it."""
        done: list[tuple[Addresses, Addresses, Addresses]] = []
        while True:
            apart = a != b
            if not apart.any():
                return done
            low, high = np.minimum(a, b)[apart], np.maximum(a, b)[apart]
            np.minimum.at(self.parent, high, low)
            gone = np.unique(high)
            into, old = self.roots(gone), self._work[gone]
            np.add.at(self._work, into, old)
            self._work[gone] = 0
            done.append((gone, into, old))
            a, b = self.roots(low), self.roots(high)


# --- their elements -------------------------------------------------------------------------------


class _Irregular(Exception):
    """The elements have no common form."""


def _run(
    program: Program,
    members: list[int],
    components: _Components,
    root: int,
    returned: Addresses,
) -> Run | None:
    """The run of these instructions; None where it is none, or not worth it.

    ``returned``: per address, how many numbers are returned before it, or -1.
    """
    if len(members) < FEWEST:
        return None
    live = np.zeros(program.size, np.bool_)
    live[root] = True
    live[program.guards] = True
    if any(i.kind == GATHER for i in program.instructions):
        live[returned >= 0] = True  # what integers select must be where it is looked for
    inside = set(members)
    for k, instruction in enumerate(program.instructions):
        if k not in inside:
            for column in instruction.reads:
                live[column] = True
    try:
        strips = _strips(program, members, components, live, returned)
    except _Irregular:
        return None
    if max(strip.count for strip in strips) < LEAST:
        return None
    if sum(point.work for strip in strips for point in strip.points) > MOST_CODE:
        return None
    run = Run(tuple(members), strips)
    return run if all(map(_is_worth_it, strips)) else None


def _is_worth_it(strip: Strip) -> bool:
    """Whether most of what elements read is their own, or lies side by side."""
    scattered = sum(not is_strided(column) for column in strip.outside)
    return 2 * scattered <= sum(point.work for point in strip.points)


def is_strided(column: Addresses) -> bool:
    """Whether all elements read one number, or neighbours read neighbours."""
    steps = np.diff(column)
    return not len(steps) or bool(steps[0] in (0, 1) and (steps == steps[0]).all())


def _strips(
    program: Program,
    members: list[int],
    components: _Components,
    live: npt.NDArray[np.bool_],
    returned: Addresses,
) -> tuple[Strip, ...]:
    """The elements by their forms: how many numbers they have of each instruction."""
    outs = [program.instructions[k].out for k in members]
    roots, element = np.unique(components.roots(np.concatenate(outs)), return_inverse=True)
    parts = np.split(element.ravel(), np.cumsum([len(out) for out in outs])[:-1])
    marks = np.zeros(len(roots), np.uint64)
    for n, part in enumerate(parts):
        counts = np.bincount(part, minlength=len(roots)).astype(np.uint64)
        marks += counts * _scrambled(n)  # wraps around
    forms, form = np.unique(marks, return_inverse=True)
    if len(forms) > MOST_FORMS:
        raise _Irregular
    local = np.full(program.size, -1, np.int64)
    found = []
    for n in range(len(forms)):
        which = np.flatnonzero(form.ravel() == n)
        rank = np.full(len(roots), -1, np.int64)
        rank[which] = np.arange(len(which))
        made = _strip(program, members, [rank[part] for part in parts], local, live, returned)
        found.append(_in_order(made, returned))
    return tuple(found)


def _scrambled(n: int) -> np.uint64:
    """An odd number without pattern; equal sums of different ones are found out later."""
    x = (n + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    return np.uint64(x | 1)


def _strip(
    program: Program,
    members: list[int],
    ranks: list[Addresses],
    local: Addresses,
    live: npt.NDArray[np.bool_],
    returned: Addresses,
) -> Strip:
    """The strip of some elements; ``ranks``: per instruction, the element of each result, or -1."""
    count = max(int(rank.max()) for rank in ranks) + 1
    points: list[Point] = []
    reading = _Sources(program.shared, local)
    for k, rank in zip(members, ranks, strict=True):
        instruction = program.instructions[k]
        mine = np.flatnonzero(rank >= 0)
        order = mine[np.argsort(rank[mine], kind="stable")]
        if len(order) % count:
            raise _Irregular
        rows = order.reshape(count, -1)  # the results of each element
        if not (rank[rows] == np.arange(count)[:, None]).all():
            raise _Irregular
        local[instruction.start + rows] = len(points) + np.arange(rows.shape[1])
        for result in rows.T:
            out = instruction.start + result
            is_kept = bool(live[out].any())
            points.append(
                Point(
                    k,
                    out,
                    tuple([reading.of(column) for column in _operands(instruction, result)]),
                    tuple([(reading.of(a), reading.of(b)) for a, b in _pairs(instruction, result)]),
                    is_kept,
                    not is_kept and bool((returned[out] >= 0).any()),
                )
            )
    return Strip(count, tuple(points))


def _in_order(strip: Strip, returned: Addresses) -> Strip:
    """The strip with its elements in the order of what it returns, or else in which most lies."""
    results = [returned[p.out] for p in strip.points if p.is_result]
    if results:
        places = np.stack(results)
        first = np.where(places < 0, len(returned), places).min(axis=0)
        order = np.argsort(first, kind="stable")
    else:
        votes: dict[bytes, int] = {}
        for column in [*[p.out for p in strip.points if p.is_kept], *strip.outside]:
            if column[0] != column[-1]:
                found = np.argsort(column, kind="stable").tobytes()
                votes[found] = votes.get(found, 0) + 1
        if not votes:
            return strip
        order = np.frombuffer(max(votes, key=lambda order: votes[order]), np.int64)
    moved = {id(column): column[order] for column in strip.outside}

    def there(source: Source) -> Source:
        return source if isinstance(source, int) else moved[id(source)]

    points = [
        replace(
            point,
            out=point.out[order],
            operands=tuple(map(there, point.operands)),
            products=tuple([(there(a), there(b)) for a, b in point.products]),
        )
        for point in strip.points
    ]
    return Strip(strip.count, tuple(points))


def _operands(instruction: Instruction, result: Addresses) -> Iterator[Addresses]:
    for column in instruction.columns:
        yield column[result]
    if instruction.plains is not None:
        for (column,) in _terms(instruction, instruction.plains, result):
            yield column


def _pairs(instruction: Instruction, result: Addresses) -> Iterator[tuple[Addresses, ...]]:
    if instruction.products is not None:
        yield from _terms(instruction, instruction.products, result)


def _terms(
    instruction: Instruction, terms: Terms, result: Addresses
) -> Iterator[tuple[Addresses, ...]]:
    """The terms of some sums: the first of each, the second, and so on."""
    if terms.each:
        first, counts = result * terms.each, np.full(len(result), terms.each)
    else:
        terms = terms.side_by_side()
        ends = np.searchsorted(terms.owners, instruction.start + np.arange(instruction.count + 1))
        first, counts = ends[result], ends[result + 1] - ends[result]
    if (counts != counts[0]).any():
        raise _Irregular
    for t in range(int(counts[0])):
        yield tuple([column[first + t] for column in terms.columns])


class _Sources:
    """Columns of addresses as numbers of the same element, or as columns, each of them once."""

    def __init__(self, shared: int, local: Addresses) -> None:
        self._shared, self._local = shared, local
        self._known: dict[bytes, Addresses] = {}

    def of(self, column: Addresses) -> Source:
        """What these addresses are."""
        own = self._local[column]
        inside = own >= 0
        if inside.all():
            if (own != own[0]).any():
                raise _Irregular
            return int(own[0])
        if inside.any() or len(np.unique(column < self._shared)) > 1:
            raise _Irregular
        return self._known.setdefault(column.tobytes(), column)
