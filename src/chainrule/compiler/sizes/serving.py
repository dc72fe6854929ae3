"""Which calls are answered by formulas for any size, and the machine code that answers them.

In: calls that no variant serves yet. Out: variants whose machine code was built from the formulas
and checked against eager mode; None for calls that have to be recorded, and why. A call with
shorter lists of integers runs on the code of a longer one where it is a prefix of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.running import Trace
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.lift.alignment import Layout, Prefix, RecordedCall
from chainrule.compiler.lift.graph import NotLiftable
from chainrule.compiler.lift.program import Program
from chainrule.compiler.runtime.counts import Counts
from chainrule.compiler.runtime.decisions import slots_among
from chainrule.compiler.runtime.heap import return_free_memory
from chainrule.compiler.runtime.machine import Fit, MachineCode
from chainrule.compiler.runtime.results import wanted_of
from chainrule.compiler.runtime.unrecorded import Unrecorded
from chainrule.compiler.runtime.variants import Binding, Variant
from chainrule.compiler.sizes.checking import check, run_forward
from chainrule.compiler.sizes.meaning import Meaning
from chainrule.compiler.sizes.recording import Family, family_of, form_of
from chainrule.compiler.sizes.unified import Point
from chainrule.compiler.translate.terms import Untranslatable

MOST_REFUSED = 256  # structures of calls that are known to be recorded
FEW = 8  # a shorter call to see what depends on the length has one of so many of its items


@dataclass(frozen=True, eq=False)
class FormulaCall(RecordedCall):
    """A call whose program was made from formulas."""

    own: Program | None = field(default=None, repr=False)

    def program(self, like: Program | None = None, loops: bool = True) -> Program:
        """Its program, whose order is that of any longer one."""
        assert self.own is not None
        return self.own


@dataclass(frozen=True, eq=False)
class _Code:
    """Machine code, and the sizes it was built for."""

    family: Family
    point: Point
    machine: MachineCode

    def is_like(self, family: Family, point: Point) -> bool:
        """Whether calls of these sizes differ in the lengths of their lists alone."""
        k = family.unified.length
        if self.family is not family or k is None:
            return False
        return _with(self.point, k, point[k]) == point

    def is_shorter(self, family: Family, point: Point) -> bool:
        """Whether code for calls of these sizes can do what it does."""
        k = family.unified.length
        like = self.is_like(family, point) and k is not None and self.point[k] < point[k]
        return like and bool(self.machine.varying)


def _with(point: Point, k: int, size: int) -> Point:
    """The same sizes but for one."""
    return (*point[:k], size, *point[k + 1 :])


@dataclass(frozen=True)
class AnySize:
    """What a user says about sizes: see ``compile``."""

    given: Any

    def of(
        self, tracer: Tracer, captured: CapturedState, dtype: str, contract: bool, counts: Counts
    ) -> Serving:
        """The variants of a function."""
        return Serving(self.given, tracer, captured, dtype, contract, counts)


def any_size(given: Any, lift: bool | None) -> AnySize:
    """What ``compile`` was given, if it can be that."""
    if not callable(given) and not isinstance(given, list | tuple):
        raise TypeError(
            "sizes is a function that makes example arguments for given sizes, or a list of "
            f"examples, not a {type(given).__name__}"
        )
    if lift is False:
        raise ValueError("sizes builds machine code, which lift=False forbids")
    return AnySize(given)


class Serving:
    """Variants of one function while its captured state stays the same."""

    def __init__(
        self,
        given: Any,
        tracer: Tracer,
        captured: CapturedState,
        dtype: str,
        contract: bool,
        counts: Counts,
    ) -> None:
        self._given, self._tracer, self._captured = given, tracer, captured
        self._dtype, self._contract, self._counts = dtype, contract, counts
        self._families: dict[bool, Family | None] = {}  # by whether it is differentiated
        self._codes: list[_Code] = []
        self._refused: set[Any] = set()  # keys of calls that have to be recorded
        self.refusals: list[str] = []  #: why calls are recorded all the same

    def __str__(self) -> str:
        if not self._codes:
            return "\n".join(self.refusals) or "no call of these sizes yet"
        return "\n\n".join(
            f"at {code.family.text(code.point)}:\n{code.family.formulas(code.point).formulas}"
            for code in self._codes
        )

    def forget(self, machine: MachineCode | None) -> None:
        """Let no further call join this code."""
        self._codes = [code for code in self._codes if code.machine is not machine]

    def serve(self, call: Call) -> Unrecorded | None:
        """A variant for a call; None where it has to be recorded."""
        if call.comes_again or call.values or call.key in self._refused:
            return None
        if len(self._refused) > MOST_REFUSED:
            self._refused.clear()
        family = self._family(call)
        point = None if family is None else family.point(self._tracer.function, call)
        if family is None or point is None:
            return None
        try:
            return self._served(family, point, call)
        except NotLiftable:  # beyond the sizes that the formulas are for
            self._refused.add(call.key)
        except Untranslatable as reason:
            self._refuse(f"at {family.text(point)}, {reason}")
            self._refused.add(call.key)
        finally:
            self._counts.doing = ""
        return None

    def _refuse(self, reason: str) -> None:
        self.refusals.append(f"sizes do not serve: {reason}")

    def _family(self, call: Call) -> Family | None:
        """The formulas for such calls, made when they are first needed."""
        differentiate, form = bool(call.key[0]), form_of(call)
        if differentiate in self._families:
            return self._families[differentiate]
        found: Family | None = None
        self._counts.doing = "recording small sizes"
        try:
            found = family_of(self._tracer, self._captured, self._given, differentiate, form)
            if found is None:
                self._refused.add(call.key)
                return None  # other calls may be like the examples
            self._counts.traces += len(found.unified.found)
        except (Untranslatable, NotLiftable) as reason:
            self._refuse(str(reason))
        except Unrecordable as reason:
            self._refuse(f"it runs eagerly: {reason}")
        except Exception as error:  # of the function, or of what makes examples
            self._captured.restore()
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            self._refuse(f"recording its examples raised {text}")
        finally:
            self._counts.doing = ""
        self._families[differentiate] = found
        return found

    # --- machine code -----------------------------------------------------------------------------

    def _served(self, family: Family, point: Point, call: Call) -> Unrecorded:
        own = self._made(family, point, call)
        work, meaning = own.program().work, Meaning(family, own.program(), own.recording)
        self._counts.doing = "comparing with the function itself"
        forward = run_forward(self._tracer, self._captured, meaning, call)
        return_free_memory(work)
        code, fit = self._joined(own, family, point)
        shorter: list[_Code] = []
        if code is None or fit is None:
            shorter = [x for x in self._codes if x.is_shorter(family, point)]
            code, fit = self._longer(own, family, point, call) if shorter else (None, None)
        if code is None or fit is None:
            code = _Code(family, point, self._compiled(own, family, point, call))
            fit = code.machine.fit
        variant = self._variant(family, point, own, Binding(code.machine, fit))
        self._counts.doing = "comparing with the function itself"
        check(self._tracer, variant, call, work, forward)
        if code not in self._codes:
            self._codes = [*[x for x in self._codes if x not in shorter], code]
        return_free_memory(work)
        return Unrecorded(variant, frozenset([x.machine for x in shorter]))

    def _made(self, family: Family, point: Point, call: Call) -> FormulaCall:
        """The program at some sizes, for calls like this one but for the lengths of lists."""
        made = family.program(point, call.first)
        recording = family.recording(made)
        layout = Layout(call.first, tuple(call.sizes), recording.inputs - call.size)
        root = wanted_of(recording)
        assert root is not None
        plain = RecordedCall.laid_out(layout, recording, root.position)
        return FormulaCall(
            recording, root.position, plain.private, plain.slots, plain.arrays, own=made.program
        )

    def _compiled(self, own: FormulaCall, family: Family, point: Point, call: Call) -> MachineCode:
        """Machine code of a program; counts the time it takes."""
        started = time.thread_time()
        self._counts.doing = "building machine code"
        try:
            return self._built(own, family, point, call)
        finally:
            self._counts.lifting_seconds += time.thread_time() - started

    def _built(self, own: FormulaCall, family: Family, point: Point, call: Call) -> MachineCode:
        """Machine code of a program, which serves shorter calls too if it can."""
        program, k = own.program(), family.unified.length
        plain = self._dtype, self._contract
        few = point if k is None else _with(point, k, max(family.least[k], point[k] // FEW))
        if few != point:
            try:
                other = self._among(self._made(family, few, call), family, few, point)
                less = Prefix(other, program)
                made = MachineCode(own, program, *plain, less.varying(), less.missing)
                if made.fit_of(other, less) is not None:
                    return made
            except NotLiftable:
                pass  # each length has code of its own then
        return MachineCode(own, program, *plain)

    def _among(self, own: FormulaCall, family: Family, point: Point, longer: Point) -> FormulaCall:
        """A call with its integers in their places among those of a longer one."""
        slots = slots_among(family.runs(point), family.runs(longer))
        assert slots is not None
        return replace(own, slots=slots)

    def _joined(
        self, own: FormulaCall, family: Family, point: Point
    ) -> tuple[_Code | None, Fit | None]:
        """The code of a longer call, and how this one uses it; None where there is none."""
        k = family.unified.length
        for code in self._codes:
            if k is not None and code.is_like(family, point) and code.point[k] >= point[k]:
                fit = code.machine.fit_for(self._among(own, family, point, code.point))
                if fit is not None:
                    return code, fit
        return None, None

    def _longer(
        self, own: FormulaCall, family: Family, point: Point, call: Call
    ) -> tuple[_Code | None, Fit | None]:
        """Code of a call half as long again, so that not every length builds again."""
        k = family.unified.length
        assert k is not None
        longer = _with(point, k, point[k] + point[k] // 2)
        try:
            made = self._made(family, longer, call)
            code = _Code(family, longer, self._compiled(made, family, longer, call))
        except NotLiftable:  # lists cannot be as long
            return None, None
        return code, code.machine.fit_for(self._among(own, family, point, longer))

    def _variant(self, family: Family, point: Point, own: FormulaCall, binding: Binding) -> Variant:
        integers = sum(count for count, _ in family.runs(point))
        numeric = frozenset(range(integers if family.numeric else 0))
        made = Variant.of(Trace(own.recording, (), numeric, (), family.uses_math))
        made.binding, made.sizes = binding, family.text(point)
        return made
