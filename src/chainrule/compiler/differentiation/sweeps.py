"""Forward and reverse mode over a recording: the sweep is appended to it as instructions.

In: an ``Extension``, the inputs to differentiate by and the instructions to differentiate. Out: for
each of these its derivatives by the inputs that it depends on, and by no others: the pattern of
zeros is exact. Every local derivative is computed once, whatever the number of sweeps, so that a
sweep consists of products and sums only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chainrule.compiler.differentiation.symbols import Extension, Term

Row = dict[int, Term]  # by an input, or by a direction: the derivative
Edges = dict[int, list[tuple[int, Term]]]  # by an instruction: operands, and the slope by each


def active_edges(extension: Extension, inputs: Iterable[int], outputs: Iterable[int]) -> Edges:
    """The instructions on a path from an input to an output, in order, with the slopes on it.

    Inputs are not among them.
    """
    sources = set(inputs)
    wanted = set(outputs)
    last = max(wanted, default=-1)
    depends = sources.copy()
    between: list[int] = []
    for i, operands in enumerate(extension.operands[: last + 1]):
        if any(p in depends for p in operands) and i not in sources:
            depends.add(i)
            between.append(i)
    needed = wanted & depends
    found: Edges = {}
    for i in reversed(between):
        if i in needed:
            edges = [(p, slope) for p, slope in extension.slopes(i) if p in depends]
            found[i] = edges
            needed.update([p for p, _ in edges])
    return dict(reversed(found.items()))


def reverse(
    extension: Extension,
    edges: Edges,
    seeds: Mapping[int, Term],
    inputs: range,
) -> Row:
    """The derivative of the sum of ``seeds`` times their instructions, by each of the inputs."""
    reached = set(seeds)
    stack = list(seeds)
    while stack:
        for p, _ in edges.get(stack.pop(), ()):
            if p not in reached:
                reached.add(p)
                stack.append(p)
    totals = dict(seeds)
    add, multiply = extension.add, extension.multiply
    for i in sorted(reached, reverse=True):
        total = totals.get(i)
        if total is None:
            continue
        for p, slope in edges.get(i, ()):
            share = multiply(total, slope)
            before = totals.get(p)
            totals[p] = share if before is None else add(before, share)
    return {x: total for x, total in totals.items() if x in inputs}


def forward(
    extension: Extension,
    edges: Edges,
    seeds: Mapping[int, Row],
    outputs: Iterable[int],
) -> dict[int, Row]:
    """The derivative of each output along every direction; ``seeds``: those of the inputs."""
    tangents: dict[int, Row] = dict(seeds)
    add, multiply = extension.add, extension.multiply
    for i, into in edges.items():
        row: Row = {}
        for p, slope in into:
            for k, tangent in tangents.get(p, {}).items():
                share = multiply(slope, tangent)
                row[k] = add(row[k], share) if k in row else share
        tangents[i] = row
    return {y: tangents.get(y, {}) for y in outputs}


def rows(
    extension: Extension, inputs: range, outputs: Sequence[int], most: int
) -> dict[int, Row] | None:
    """The Jacobian: for each output, its derivative by each input that it depends on.

    By forward or reverse mode, whichever is less work; None where that is more than ``most``
    products.
    """
    edges = active_edges(extension, inputs, outputs)
    by_reverse = _by_reverse(edges, outputs, most)
    by_forward = _by_forward(edges, inputs, min(by_reverse, most))
    if min(by_forward, by_reverse) > most:
        return None
    if by_forward < by_reverse:
        return forward(extension, edges, {x: {x: 1.0} for x in inputs}, outputs)
    return {y: reverse(extension, edges, {y: 1.0}, inputs) for y in set(outputs)}


def _by_forward(edges: Edges, inputs: Sequence[int], most: int) -> int:
    """How many products that mode takes, an input crossing an edge each; beyond ``most``: more."""
    sources = {x: 1 << k for k, x in enumerate(inputs)}  # sets of inputs, as bits
    count = 0
    for i, into in edges.items():
        bits = 0
        for p, _ in into:
            bits |= sources.get(p, 0)
            count += sources.get(p, 0).bit_count()
        if count > most:
            break
        sources[i] = bits
    return count


def _by_reverse(edges: Edges, outputs: Sequence[int], most: int) -> int:
    """The same of reverse mode, an output crossing an edge each."""
    targets = {y: 1 << k for k, y in enumerate(dict.fromkeys(outputs))}
    count = 0
    for i in reversed(edges):
        bits = targets.pop(i, 0)  # nothing asks for it any more
        count += len(edges[i]) * bits.bit_count()
        if count > most:
            break
        for p, _ in edges[i]:
            targets[p] = targets.get(p, 0) | bits
    return count
