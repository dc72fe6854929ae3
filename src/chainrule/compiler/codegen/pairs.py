"""Two short loops as the lanes of one vector.

In: the loops of a sum of products, none of which fills a vector. Out: a ``Pair`` of them whose
results lie side by side, such as the numbers of each head of attention, head after head. An operand
that only one of the loops moves is read once and spread over the lanes. Where the inner loop is the
sum, its lanes are added up, and the sums of several points fill a vector again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainrule.compiler.codegen.vectors import Vector, shuffled
from chainrule.compiler.codegen.walks import Trip

if TYPE_CHECKING:
    from chainrule.compiler.codegen.ir import Code, Offset


@dataclass(frozen=True)
class Pair(Trip):
    """Lanes of two loops: a column moves by ``far`` in each trip of the outer, else by ``near``."""

    inner: int = 1  # trips of the inner loop
    far: tuple[int, ...] = ()
    near: tuple[int, ...] = ()
    is_sum: bool = False  # the inner loop is one of the sum

    def read(
        self, code: Code, array: str, at: Offset, column: int, lane: int, width: int
    ) -> Vector:
        """Some lanes of an operand, from ``lane`` on; ``at`` is where the first lane's is."""
        far, near = self.far[column], self.near[column]
        if near and far:
            return code.load(array, [*at, (None, lane)], width)
        if not near and not far:
            return code.load(array, at).splat(width)
        if near:
            found = code.load(array, at, self.inner)
            return picked(found, [k % self.inner for k in range(width)])
        found = code.load(array, [*at, (None, lane // self.inner)], width // self.inner)
        return picked(found, [k // self.inner for k in range(width)])


def pair_of(loops: Sequence[Trip], width: int) -> tuple[Trip, Trip, Pair] | None:
    """Two loops that make the lanes of a vector, and these lanes."""
    small = [x for x in loops if x.fixed and 1 < x.most < width and _is_power(x.most)]
    for outer in small:
        for inner in small:
            if outer is inner or not width // 2 <= outer.most * inner.most <= 2 * width:
                continue
            made = _pair(outer, inner)
            if made is not None:
                return outer, inner, made
    return None


def _pair(outer: Trip, inner: Trip) -> Pair | None:
    whole, size = (inner.most, 1), outer.most * inner.most
    result, *others = zip(outer.strides, inner.strides, strict=True)
    is_sum = result == (1, 0)
    allowed = [whole] if is_sum else [whole, (1, 0), (0, 1), (0, 0)]
    if result not in ((1, 0), whole) or any(x not in allowed for x in others):
        return None
    strides = tuple([1 if x == whole else 0 for x in (result, *others)])
    return Pair(size, size, strides, inner.most, outer.strides, inner.strides, is_sum)


def _is_power(x: int) -> bool:
    return x & (x - 1) == 0


def sums_of_segments(vectors: list[Vector], size: int) -> Vector:
    """Each vector's stretches of ``size`` lanes added up.

    The sums of a stretch, one for each vector, come in its lanes; then again from the first one.
    """
    width = vectors[0].width
    for _ in range(size.bit_length() - 1):
        if len(vectors) == 1:
            vectors = vectors * 2
        made = []
        for a, b in zip(vectors[::2], vectors[1::2], strict=True):
            even, odd = (
                [
                    side + start + k
                    for start in range(0, width, size)
                    for side in (0, width)
                    for k in range(parity, size, 2)
                ]
                for parity in (0, 1)
            )
            made.append(shuffled(a, b, even) + shuffled(a, b, odd))
        vectors = made
    (total,) = vectors
    return total


def picked(a: Vector, lanes: Sequence[int], b: Vector | None = None) -> Vector:
    """Lanes of a vector, or of two; a single number is in all of them."""
    if a.width == 1:
        return a.splat(len(lanes))
    return shuffled(a, a if b is None else b, lanes)
