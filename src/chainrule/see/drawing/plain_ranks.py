"""Ranks for the boxes of a drawing where fast-sugiyama is not installed: edges in, places out.

Every box comes one rank after the last of its operands, and a leaf just before the first box that
uses it. A wire has a place of its own in each rank that it passes. The ranks are then sorted a few
times, each by the mean place of its neighbours in the rank beside it. More wires cross than must.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

Edge = tuple[int, int]
Point = tuple[int, int]  # a box, as (n, n), or a wire where it passes a rank
_SWEEPS = 4


def plain_ranks(
    count: int, edges: Sequence[Edge]
) -> tuple[list[int], list[float], dict[Edge, tuple[float, ...]]]:
    """The rank of each box, its place across, and where each wire passes the ranks between."""
    rank = _ranks(count, edges)
    rows: list[list[Point]] = [[] for _ in range(max(rank) + 1)]
    for box in range(count):
        rows[rank[box]].append((box, box))
    beside: defaultdict[tuple[int, Point], list[tuple[int, Point]]] = defaultdict(list)
    for source, target in edges:
        way = [(rank[source], (source, source))]
        for passed in range(rank[source] + 1, rank[target]):
            rows[passed].append((source, target))
            way.append((passed, (source, target)))
        way.append((rank[target], (target, target)))
        for a, b in pairwise(way):
            beside[a].append(b)
            beside[b].append(a)
    across = {
        (r, point): _centred(i, row) for r, row in enumerate(rows) for i, point in enumerate(row)
    }
    for sweep in range(_SWEEPS):
        step = -1 if sweep % 2 else 1
        for r in range(len(rows))[::step]:
            _sort(rows[r], r, r - step, beside, across)
    least = min(across.values())
    bends = {
        (s, t): tuple(across[r, (s, t)] - least for r in range(rank[s] + 1, rank[t]))
        for s, t in edges
    }
    return rank, [across[rank[box], (box, box)] - least for box in range(count)], bends


def _ranks(count: int, edges: Iterable[Edge]) -> list[int]:
    """One more than the largest rank among a box's operands; leaves come just before their use."""
    operands: list[list[int]] = [[] for _ in range(count)]
    users: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        operands[target].append(source)
        users[source].append(target)
    rank, missing = [0] * count, [len(found) for found in operands]
    ready = [box for box in range(count) if not operands[box]]
    while ready:
        box = ready.pop()
        for user in users[box]:
            rank[user] = max(rank[user], rank[box] + 1)
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    for box in range(count):
        if not operands[box] and users[box]:
            rank[box] = min(rank[user] for user in users[box]) - 1
    return rank


def _centred(index: int, row: Sequence[Point]) -> float:
    return index - (len(row) - 1) / 2


def _sort(
    row: list[Point],
    rank: int,
    other: int,
    beside: dict[tuple[int, Point], list[tuple[int, Point]]],
    across: dict[tuple[int, Point], float],
) -> None:
    """Sort one rank by where its neighbours in another stand; what has none there stays."""

    def wish(point: Point) -> float:
        places = [across[n] for n in beside[rank, point] if n[0] == other]
        return sum(places) / len(places) if places else across[rank, point]

    row.sort(key=wish)
    for index, point in enumerate(row):
        across[rank, point] = _centred(index, row)
