"""Sums over windows of an image, as the convolution that a library has.

In: the axes of a sum and its body. Out: a ``Term`` where the body is a kernel times an image that
is read in windows, as in ``Σ_kl kernel[h,k,l]·image[i+k,j+l]``; else None. Windows side by side
would be a copy of the image for each number of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainrule.compiler.formulas.notation import AffineIndex, Axis, Expression, Product, Ref
from chainrule.compiler.translate.terms import ATOM, Term

if TYPE_CHECKING:
    from chainrule.compiler.translate.expressions import Writer

MOST = 3  # that torch has convolutions for
FEWEST = 2  # dimensions that have windows: one is done as well by slices


@dataclass(frozen=True)
class Window:
    """A dimension of the image: ``step * outer + inner``."""

    outer: Axis
    inner: Axis
    step: int


def convolved(writer: Writer, axes: Sequence[Axis], body: Expression) -> Term | None:
    """A sum over windows as a convolution, if it is one and the dialect has it."""
    if "convolve" not in writer.dialect.helpers or writer.in_loop or not isinstance(body, Product):
        return None
    pair = [x for x in body.over if isinstance(x, Ref) and len(x.arrays) == 1]
    if body.number != 1.0 or body.under or len(body.over) != 2 or len(pair) != 2:
        return None
    for kernel, image in (pair, pair[::-1]):
        found = _convolution(writer, axes, kernel, image)
        if found is not None:
            return found
    return None


def _convolution(writer: Writer, axes: Sequence[Axis], kernel: Ref, image: Ref) -> Term | None:
    pixels = writer.scope.stored.get(image.arrays[0])
    if pixels is None or pixels.integers or pixels.offset:
        return None
    read = zip(pixels.turns, pixels.sizes, strict=True)
    dims = [_dimension(image.places[k], size, axes) for k, size in read]
    windows = [x for x in dims if isinstance(x, Window)]
    if None in dims or not FEWEST <= len(windows) <= MOST:
        return None
    weights = writer.ref(kernel)
    known = list(weights.axes)
    inner = [window.inner for window in windows]
    batch = [x for x in dims if isinstance(x, Axis) and x not in axes]
    channels = [x for x in dims if isinstance(x, Axis) and x in axes]
    outs = [axis for axis in known if axis not in axes]
    made = [*batch, *outs, *[window.outer for window in windows]]
    fits = (
        max(len(batch), len(channels), len(outs)) <= 1
        and {*axes} == {*inner, *channels}
        and {*known} == {*outs, *inner, *channels}
        and len({*made, *axes}) == len(made) + len(axes)
        and all(axis.length is None for axis in (*made, *axes))
    )
    if not fits:
        return None
    marks = [str(x) if isinstance(x, int) else ":" for x in dims]
    fixed = f"{pixels.code}[{', '.join(marks)}]" if {*marks} != {":"} else pixels.code
    left = [x for x in dims if not isinstance(x, int)]
    images = _arranged(fixed, left, [batch, channels, windows])
    kernels = _arranged(weights.bracketed(ATOM), known, [outs, channels, inner])
    steps = ", ".join(str(window.step) for window in windows)
    writer.scope.helpers.add("convolve")
    marks = [":" if batch else "0", ":" if outs else "0"]
    while marks and marks[-1] == ":":
        marks.pop()
    code = f"convolve({images}, {kernels}, {steps})" + (f"[{', '.join(marks)}]" if marks else "")
    for axis in made:
        writer.rank(axis)
    writer.seen.append(tuple(made))
    return Term(code, tuple(made))


def _dimension(place: object, size: int, summed: Sequence[Axis]) -> Axis | Window | int | None:
    """A dimension of the image: a place in it, an axis, or windows that cover it."""
    if not isinstance(place, AffineIndex):
        return None
    if not place.parts:
        return place.constant
    if len(place.parts) == 1:
        return place.plain if place.plain is not None and place.plain.count == size else None
    (step, outer), (times, inner), *more = sorted(place.parts, key=lambda x: x[1] in summed)
    if more or place.constant or times != 1 or step < 1 or outer in summed or inner not in summed:
        return None
    rest = size - (step * (outer.count - 1) + inner.count)
    return Window(outer, inner, step) if 0 <= rest < step else None


def _arranged(code: str, dims: Sequence[object], groups: Sequence[Sequence[object]]) -> str:
    """An array with its dimensions in the order of the groups; an empty one is a dimension of 1."""
    turns = [list(dims).index(x) for group in groups for x in group]
    if turns != list(range(len(turns))):
        code = f"{code}.transpose{tuple(turns)}"
    marks = ["None" if not group else ":" for group in groups[:2]]
    while marks and marks[-1] == ":":
        marks.pop()
    return f"{code}[{', '.join(marks)}]" if marks else code
