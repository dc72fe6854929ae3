"""Places in an array as slices, reshapes and windows.

In: the text of an array, its dimensions, and an index for each of them, affine in axes or chosen by
integers. Out: a ``Term`` over these axes. Most indices are slices (``x[1:]``), parts of a dimension
that is two (``x[4h+i]`` is a reshape), or overlapping windows; arrays of indices are written only
where none of these will do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chainrule.compiler.formulas.notation import AffineIndex, Axis, Select
from chainrule.compiler.translate.dialects import Dialect
from chainrule.compiler.translate.terms import PRODUCT, SUM, Term, Untranslatable

Known = AffineIndex | Select


@dataclass(frozen=True)
class Plan:
    """How one dimension is read: ``cut`` is a slice, ``axes`` what it becomes (one, or several).

    ``window``: (start, step) of overlapping windows instead.
    """

    axes: tuple[Axis, ...] = ()
    cut: str = ":"
    window: tuple[int, int] | None = None
    turned: str = ""  # the same slice forwards, where ``cut`` goes backwards


def axes_of(place: Known) -> list[Axis]:
    """The axes that an index depends on."""
    indices = [place] if isinstance(place, AffineIndex) else [i for i in place.at if i is not None]
    return [axis for index in indices for _, axis in index.parts]


@dataclass(eq=False)
class Viewer:
    """Writes views; ``rank`` orders axes, ``chosen`` gives the term of an integer."""

    dialect: Dialect
    helpers: set[str]
    rank: Callable[[Axis], int]
    chosen: Callable[[Select], Term]

    def view(self, code: str, sizes: Sequence[int], places: Sequence[Known]) -> Term:
        """An array of these sizes, read at these places."""
        counts = Counter(axis for place in places for axis in set(axes_of(place)))
        plans: list[Plan | None] = []
        for size, place in zip(sizes, places, strict=True):
            alone = all(counts[axis] == 1 for axis in axes_of(place))
            fits = isinstance(place, AffineIndex) and alone
            plans.append(_plan(size, place) if fits else None)  # type: ignore[arg-type]
        if None in plans:  # windows do not go together with arrays of indices
            plans = [None if p is not None and p.window is not None else p for p in plans]
        marks = [":" if plan is None else plan.cut for plan in plans]
        left = [k for k, plan in enumerate(plans) if plan is None or plan.axes]
        flips = list[int]()
        for k, plan in enumerate(plans):
            if plan is not None and plan.turned and not self.dialect.backwards:
                marks[k] = plan.turned
                flips.append(left.index(k))
        while marks and marks[-1] == ":":
            marks.pop()
        code += f"[{', '.join(marks)}]" if marks else ""
        code += f".flip({', '.join(map(str, flips))})" if flips else ""
        if None in plans:
            return self._indexed(code, [(plans[k], places[k], sizes[k]) for k in left])
        return self._sliced(code, [plan for plan in plans if plan is not None and plan.axes])

    def _sliced(self, code: str, plans: Sequence[Plan]) -> Term:
        axes: list[Axis] = []
        split = False
        for plan in plans:
            if plan.window is not None:
                outer, inner = plan.axes
                self.helpers.add("windows")
                words = [code, str(len(axes)), str(outer.count), str(inner.count)]
                start, step = plan.window
                words += [str(start)] * (start != 0 or step != 1) + [str(step)] * (step != 1)
                code = f"windows({', '.join(words)})"
            split |= len(plan.axes) > 1 and plan.window is None
            axes += plan.axes
        if not split:
            return Term(code, tuple(axes))
        parts = tuple([plan.axes for plan in plans if len(plan.axes) > 1 and plan.window is None])
        return Term(reshaped(code, axes), tuple(axes), unsplit=code, splits=parts)

    def _indexed(self, code: str, left: Sequence[tuple[Plan | None, Known, int]]) -> Term:
        """With arrays of indices in the places that need them."""
        needs = [k for k, (plan, _, _) in enumerate(left) if plan is None]
        own = {axis for k in needs for axis in axes_of(left[k][1])}
        axes = sorted(own, key=self.rank)
        marks, chosen = [], 0
        for plan, place, size in left:
            if plan is not None:
                marks.append(":")
            elif isinstance(place, Select):
                chosen += 1
                marks.append(self.chosen(place).aligned(axes))
            else:
                marks.append(_positions(place, axes, size, self.dialect.constants))
        together = needs == list(range(needs[0], needs[-1] + 1))
        where = needs[0] if together else 0
        code = self._read(code, marks, needs, bool(chosen))
        made: list[Axis] = []
        split = False
        for k, (plan, _, _) in enumerate(left):
            if k == where:
                made += axes
            if plan is not None:
                made += plan.axes
                split |= len(plan.axes) > 1
        return Term(reshaped(code, made) if split else code, tuple(made))

    def _read(self, code: str, marks: list[str], needs: list[int], chosen: bool) -> str:
        while marks[-1] == ":":
            marks.pop()
        if not chosen or not self.dialect.clamps:
            return f"{code}[{', '.join(marks)}]"
        if len(needs) == 1:
            self.helpers.add("take")
            return f"take({code}, {marks[needs[0]]}, {needs[0]})"
        self.helpers.add("pick")
        words = ["slice(None)" if mark == ":" else mark for mark in marks]
        return f"pick({code}, {', '.join(words)})"


def reshaped(code: str, axes: Sequence[Axis]) -> str:
    """An array with a dimension for each axis."""
    return f"{code}.reshape({', '.join(str(axis.count) for axis in axes)})"


def _plan(size: int, place: AffineIndex) -> Plan | None:
    """How an index is reached by slicing a dimension of this size."""
    start, parts = place.constant, place.parts
    if not parts:
        if not 0 <= start < size:
            raise Untranslatable("a number is read from outside of its array")
        return Plan(cut=str(start))
    if len(parts) == 1:
        ((step, axis),) = parts
        last = start + step * (axis.count - 1)
        inside = 0 <= start < size and 0 <= last < size
        turned = _cut(last, start, -step, size) if step < 0 else ""
        return Plan((axis,), _cut(start, last, step, size), turned=turned) if inside else None
    parts = tuple(sorted(parts, key=lambda part: -abs(part[0])))
    extent = 1
    for step, axis in reversed(parts):
        if step != extent or axis.length is not None:
            return _window(size, start, parts)
        extent *= axis.count
    if not 0 <= start <= start + extent <= size:
        return None
    return Plan(tuple([axis for _, axis in parts]), _cut(start, start + extent - 1, 1, size))


def _cut(start: int, last: int, step: int, size: int) -> str:
    if step > 0:
        end = "" if last + step >= size else str(last + 1)
        return f"{start or ''}:{end}" + (f":{step}" if step > 1 else "")
    return f"{start if start != size - 1 else ''}:{last - 1 if last else ''}:{step}"


def _window(size: int, start: int, parts: Sequence[tuple[int, Axis]]) -> Plan | None:
    """Windows of neighbours that overlap, or leave some out."""
    if len(parts) != 2 or parts[1][0] != 1 or parts[0][0] < 1 or start < 0:
        return None
    (step, outer), (_, inner) = parts
    if step == 1 and outer.count < inner.count:
        outer, inner = inner, outer
    inside = start + step * (outer.count - 1) + inner.count <= size
    few = inner.count <= 32 and outer.length is None and inner.length is None
    return Plan((outer, inner), window=(start, step)) if inside and few else None


def _positions(place: AffineIndex, axes: Sequence[Axis], size: int, np_: str) -> str:
    """An index as an array; one beyond the end of a ragged axis is moved into the array."""
    terms = []
    for times, axis in place.parts:
        counted = f"{np_}.arange({axis.count})"
        scaled = Term(counted) if times == 1 else Term(f"{times} * {counted}", (), PRODUCT)
        terms.append(Term(scaled.code, (axis,), scaled.level))
    code = " + ".join(term.aligned(axes, SUM) for term in terms)
    if place.constant:
        code += f" {'+' if place.constant > 0 else '-'} {abs(place.constant)}"
    ends = [times * (axis.count - 1) for times, axis in place.parts]
    low = place.constant + sum(min(0, end) for end in ends)
    high = place.constant + sum(max(0, end) for end in ends)
    return code if low >= 0 and high < size else f"{np_}.clip({code}, 0, {size - 1})"
