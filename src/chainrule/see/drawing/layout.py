"""Places for boxes and ways for wires: a ``Picture`` in, coordinates out.

fast-sugiyama puts the boxes into ranks and orders each rank so that few wires cross. It knows
neither sizes nor double edges, so this module gives the ranks their extents and draws the wires:
each runs straight through the ranks it passes (the library's dummy vertices are those points) and
bends in the gaps between them.

``along`` is the direction the graph runs in, ``across`` the other: x and y for ``rankdir="LR"``.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from chainrule.see.drawing.picture import Picture, Wire
from chainrule.see.drawing.plain_ranks import plain_ranks

MARGIN = 24.0
OP_RADIUS = 16.0
_BETWEEN_RANKS = 48.0
_BETWEEN_BOXES = 20.0
_BEFORE_BODY = 16.0  # from an operation's circle to its box
_LANE = 9.0  # between the two wires of a + a
_ARROW = 5.0


@dataclass(frozen=True)
class Size:
    """What one box needs, along and across the drawing's direction."""

    along: float
    across: float
    op_along: float = 0.0  # the operation's circle; 0 where there is none
    op_across: float = 0.0


@dataclass(frozen=True)
class Place:
    """Where a box is, and the circle of its operation before it."""

    start: float  # along
    end: float
    middle: float  # across
    rank: int
    op_start: float  # the body's start where there is no circle
    op_end: float


@dataclass(frozen=True)
class Layout:
    """Where everything is, in the drawing's own directions."""

    places: tuple[Place, ...]
    paths: tuple[str, ...]  # SVG path data, one per wire
    along: float
    across: float


@dataclass(frozen=True)
class Ranks:
    """What fast-sugiyama decides: places across are in units of one box."""

    rank: tuple[int, ...]  # by box
    across: tuple[float, ...]  # by box
    bends: dict[tuple[int, int], tuple[float, ...]]  # where a wire crosses the ranks it passes


def rank_boxes(picture: Picture) -> Ranks:
    """Rank and order the boxes."""
    count = len(picture.boxes)
    edges = sorted({(wire.source, wire.target) for wire in picture.wires})
    if not edges:
        return Ranks((0,) * count, tuple(map(float, range(count))), {})
    try:
        from fast_sugiyama import from_edges
    except ImportError:
        warnings.warn(
            "fast-sugiyama is not installed, so drawings are laid out by a simpler rule, in which "
            "more wires cross: pip install fast-sugiyama",
            stacklevel=1,  # one place, so that Python shows it once
        )
        rank_of, across_of, passing = plain_ranks(count, edges)
        return Ranks(tuple(rank_of), tuple(across_of), passing)
    ((positions, _, _, links),) = from_edges(edges, vertex_spacing=1.0, dummy_vertices=True)
    # Boxes keep their numbers; the numbers above them are dummy vertices, points a wire passes.
    place = {int(i): (float(x), float(y)) for i, (x, y) in positions}
    last = max(y for _, y in place.values())
    across = {i: x for i, (x, _) in place.items()}
    if _first_operands_last(picture, across):
        across = {i: -x for i, x in across.items()}
    least = min(across.values())
    following: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in links or ():
        following[int(source)].append(int(target))
    bends = {}
    for source in range(count):
        for step in following[source]:
            chain = []
            while step >= count:
                chain.append(across[step] - least)
                (step,) = following[step]
            bends[source, step] = tuple(chain)
    rank = tuple(round(last - place[i][1]) for i in range(count))
    return Ranks(rank, tuple(across[i] - least for i in range(count)), bends)


def _first_operands_last(picture: Picture, across: dict[int, float]) -> bool:
    """Whether most operations have their first operand after their second, across."""
    operands: defaultdict[int, list[float]] = defaultdict(list)
    for wire in picture.wires:
        operands[wire.target].append(across[wire.source])
    return sum((xs[0] > xs[-1]) - (xs[0] < xs[-1]) for xs in operands.values()) > 0


def arrange(picture: Picture, ranks: Ranks, sizes: Sequence[Size], rankdir: str) -> Layout:
    """Coordinates for boxes of these sizes."""
    largest = max(max(size.across, size.op_across) for size in sizes)
    grid = _Grid(ranks, sizes, first=MARGIN + largest / 2, pitch=largest + _BETWEEN_BOXES)
    places = []
    for n, size in enumerate(sizes):
        rank = ranks.rank[n]
        end = grid.end[rank]
        start = end - size.along
        op_end = start - _BEFORE_BODY if size.op_along else start
        middle = grid.across(ranks.across[n])
        places.append(Place(start, end, middle, rank, op_end - size.op_along, op_end))
    router = _Router(picture, ranks, grid, sizes, places, sideways=rankdir == "LR")
    widest = max([*ranks.across, *(x for chain in ranks.bends.values() for x in chain)])
    across = grid.across(widest) + grid.first
    return Layout(tuple(places), tuple(router.paths()), grid.end[-1] + MARGIN, across)


class _Grid:
    """Where each rank starts and ends, and how far apart boxes are across."""

    def __init__(self, ranks: Ranks, sizes: Sequence[Size], first: float, pitch: float) -> None:
        self.first, self.pitch = first, pitch
        extents = [0.0] * (max(ranks.rank) + 1)
        for rank, size in zip(ranks.rank, sizes, strict=True):
            before = size.op_along + _BEFORE_BODY if size.op_along else 0.0
            extents[rank] = max(extents[rank], size.along + before)
        self.start: list[float] = []
        self.end: list[float] = []
        along = MARGIN
        for extent in extents:
            self.start.append(along)
            self.end.append(along + extent)
            along += extent + _BETWEEN_RANKS

    def across(self, x: float) -> float:
        return self.first + x * self.pitch


@dataclass(frozen=True)
class _Router:
    """The ways of the wires."""

    picture: Picture
    ranks: Ranks
    grid: _Grid
    sizes: Sequence[Size]
    places: Sequence[Place]
    sideways: bool

    def paths(self) -> list[str]:
        ports = self._ports()
        return [self._path(wire, ports[n]) for n, wire in enumerate(self.picture.wires)]

    def _bends(self, wire: Wire) -> list[float]:
        chain = self.ranks.bends.get((wire.source, wire.target), ())
        return [self.grid.across(x) + _lane(wire) for x in chain]

    def _ports(self) -> list[float]:
        """Where each wire arrives, across: side by side, in the order in which they come in."""
        arriving: defaultdict[int, list[tuple[float, int, int]]] = defaultdict(list)
        for n, wire in enumerate(self.picture.wires):
            came_from = [self.places[wire.source].middle, *self._bends(wire)][-1]
            arriving[wire.target].append((came_from, wire.operand, n))
        ports = [0.0] * len(self.picture.wires)
        for target, wires in arriving.items():
            size = self.sizes[target]
            room = 1.25 * OP_RADIUS if size.op_along else size.across - 24.0
            step = min(10.0 if size.op_along else 18.0, room / max(1, len(wires) - 1))
            for k, (_, _, n) in enumerate(sorted(wires)):
                ports[n] = self.places[target].middle + (k - (len(wires) - 1) / 2) * step
        return ports

    def _path(self, wire: Wire, port: float) -> str:
        source, target = self.places[wire.source], self.places[wire.target]
        along, across = source.end, source.middle + _lane(wire)
        end = target.op_start + self._inset(wire.target, port - target.middle)
        stops = [
            (self.grid.start[source.rank + k], self.grid.end[source.rank + k], bend)
            for k, bend in enumerate(self._bends(wire), 1)
        ]
        stops.append((self.grid.start[target.rank], end, port))
        path = f"M{self._point(along, across)}"
        for start, stop, level in stops:
            middle = (along + start) / 2
            bend = [(middle, across), (middle, level), (start, level)]
            path += "C" + " ".join(self._point(*point) for point in bend)
            if stop > start:
                path += f"L{self._point(stop, level)}"
            along, across = stop, level
        side = 0.8 * _ARROW
        path += f"M{self._point(end - _ARROW, port - side)}"
        return f"{path}L{self._point(end, port)} {self._point(end - _ARROW, port + side)}"

    def _inset(self, target: int, offset: float) -> float:
        """How far behind its foremost point a circle (or a pill) is, off its middle."""
        size = self.sizes[target]
        if not size.op_along:
            return 0.0
        off = max(0.0, abs(offset) - (size.op_across / 2 - OP_RADIUS))
        return OP_RADIUS - math.sqrt(max(0.0, OP_RADIUS**2 - off * off))

    def _point(self, along: float, across: float) -> str:
        x, y = (along, across) if self.sideways else (across, along)
        return f"{coordinate(x)},{coordinate(y)}"


def _lane(wire: Wire) -> float:
    return (wire.lane - (wire.lanes - 1) / 2) * _LANE


def coordinate(x: float) -> str:
    """A length as SVG text, to a tenth of a pixel."""
    return f"{x:.1f}".removesuffix(".0")
