"""Transposed copies of the matrices that many samples are multiplied by.

In: the loops of a sum of products of which one factor is a matrix of parameters, row by row. Out:
the same loops over a copy in which the factors of neighbouring results lie side by side, so that
these results are the lanes of a vector, and the code that makes the copies. They are made once for
all samples that meet the same parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chainrule.compiler.codegen.ir import Code, Offset, Vector
from chainrule.compiler.codegen.tiles import joined
from chainrule.compiler.codegen.vectors import shuffled
from chainrule.compiler.codegen.walks import Trip, Walks

FEWEST_RESULTS = 4  # side by side that are worth a copy


@dataclass(frozen=True)
class Matrix:
    """A matrix of parameters as it lies in P."""

    base: int
    rows: int
    row_stride: int
    columns: int


@dataclass(frozen=True)
class PackedSum:
    """A sum of products over a transposed copy."""

    arrays: list[str]
    offsets: list[Offset]
    loops: tuple[Trip, ...]
    lane: Trip  # along the rows of the matrix, which end with zeros in the copy


class Packing:
    """The copies that a forward pass reads, and the function that makes them."""

    def __init__(self, walks: Walks, width: int, dtype: str) -> None:
        self.code = Code(dtype)
        self._walks, self._width = walks, width
        self._copies: dict[Matrix, int] = {}  # where each begins in V

    def of(
        self, arrays: Sequence[str], offsets: list[Offset], loops: tuple[Trip, ...]
    ) -> PackedSum | None:
        """The same sum over a transposed copy, where a factor is a matrix of parameters."""
        if len(arrays) != 3:
            return None
        for factor in (1, 2):
            found = self._matrix(factor, arrays, offsets, loops)
            if found is not None:
                return self._over_copy(factor, *found, arrays, offsets, loops)
        return None

    def _matrix(
        self, factor: int, arrays: Sequence[str], offsets: list[Offset], loops: tuple[Trip, ...]
    ) -> tuple[Matrix, Trip, Trip] | None:
        """The matrix that a factor is, the loop over its rows and that along them."""
        if arrays[factor] != "%P" or any(register and by for register, by in offsets[factor]):
            return None
        moving = [x for x in loops if x.strides[factor]]
        if len(moving) != 2 or not all(x.fixed for x in moving) or len(loops) == 2:
            return None
        rows, terms = sorted(moving, key=lambda x: -x.strides[factor])
        each_row = (rows.strides[0], rows.strides[3 - factor]) == (1, 0)
        along = (terms.strides[0], terms.strides[factor]) == (0, 1)
        if not (each_row and along) or rows.strides[factor] < 2 or rows.most < FEWEST_RESULTS:
            return None
        base = sum(by for _, by in offsets[factor])
        made = Matrix(base, rows.most, rows.strides[factor], terms.most)
        last = base + (rows.most - 1) * made.row_stride + terms.most
        return (made, rows, terms) if last <= self._walks.program.inputs else None

    def _over_copy(
        self,
        factor: int,
        matrix: Matrix,
        rows: Trip,
        terms: Trip,
        arrays: Sequence[str],
        offsets: list[Offset],
        loops: tuple[Trip, ...],
    ) -> PackedSum:
        stride = self._padded(matrix.rows)
        if matrix not in self._copies:
            self._copies[matrix] = self._place(matrix.columns * stride)
            self._transpose(matrix, self._copies[matrix], stride)
        changed = {rows: 1, terms: stride}
        made: list[Trip] = []
        for loop in loops:
            strides = list(loop.strides)
            strides[factor] = changed.get(loop, 0)
            made.append(replace(loop, strides=tuple(strides)))
        names, places = list(arrays), list(offsets)
        names[factor], places[factor] = "%V", [(None, self._copies[matrix])]
        return PackedSum(names, places, tuple(made), made[loops.index(rows)])

    def _padded(self, count: int) -> int:
        return -(-count // self._width) * self._width

    def _place(self, size: int) -> int:
        """Where so many numbers are free in V, on a whole vector."""
        program = self._walks.program
        own = program.size - program.shared
        at = self._padded(own + self._walks.scratch)
        self._walks.scratch = at - own + size
        return at

    # --- copies -----------------------------------------------------------------------------------

    def _transpose(self, matrix: Matrix, to: int, stride: int) -> None:
        """Copy a square of a vector's width at a time; what is left, number by number."""
        code, width = self.code, self._width
        whole = matrix.columns // width
        for first in range(0, matrix.rows, width):
            count = min(width, matrix.rows - first)
            if whole:
                with code.loop(whole) as i:
                    lines = [
                        code.load("%P", [(None, self._row(matrix, first + k)), (i, width)], width)
                        for k in range(count)
                    ]
                    lines += [code.constant(0.0, width)] * (width - count)
                    for k, line in enumerate(_transposed(lines)):
                        code.store(
                            "%V", [(None, to + k * stride + first), (i, width * stride)], line
                        )
            for column in range(whole * width, matrix.columns):
                numbers = [
                    code.load("%P", [(None, self._row(matrix, first + k) + column)])
                    for k in range(count)
                ]
                numbers += [code.constant(0.0, 1)] * (width - count)
                code.store("%V", [(None, to + column * stride + first)], joined(numbers))

    @staticmethod
    def _row(matrix: Matrix, row: int) -> int:
        return matrix.base + row * matrix.row_stride


def _transposed(lines: list[Vector]) -> list[Vector]:
    """The columns of a square, given its rows: each step exchanges blocks of half the size."""
    size = len(lines)
    block = size // 2
    while block:
        made = list(lines)
        for k in range(size):
            if k & block:
                continue
            a, b = lines[k], lines[k + block]
            low = [size + j - block if j & block else j for j in range(size)]
            high = [size + j if j & block else j + block for j in range(size)]
            made[k], made[k + block] = shuffled(a, b, low), shuffled(a, b, high)
        lines, block = made, block // 2
    return lines
