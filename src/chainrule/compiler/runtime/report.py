"""What became of a compiled function, as text: a pure function of its ``Dispatch``."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

from chainrule.compiler.formulas import input_names
from chainrule.compiler.formulas.decoding import Choice
from chainrule.compiler.formulas.reading import WIDTH, read, size_text
from chainrule.compiler.runtime.causes import (
    SEVERAL,
    Reason,
    differing_argument,
    reasons_for_recordings,
)
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.variants import Variant
from chainrule.core.backend import engine

REASONS = 5  # for recordings that are listed


class Report(str):
    """A report is text; a notebook shows it line by line."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from chainrule.see.tables import preformatted_html

        return preformatted_html(self)


def report(dispatch: Dispatch, stage: str = "summary") -> Report:
    """``CompiledFunction.report``; see there."""
    return Report(_text(dispatch.serving, stage))


def _text(dispatch: Dispatch, stage: str) -> str:
    if stage == "summary":
        return _summary(dispatch)
    if stage == "recorded":
        recorded = [variant for _, variant in _variants(dispatch) if not variant.borrows]
        return "\n\n".join(map(_recorded, recorded))
    if stage == "sizes":
        return dispatch.formulas_text
    if stage == "integers":
        selections = [variant.recording.selection for _, variant in _variants(dispatch)]
        return "\n\n".join(map(str, selections))
    if stage == "lifted":
        return _formulas(dispatch)
    raise ValueError(
        f'stage is "summary", "recorded", "integers", "lifted" or "sizes", not {stage!r}'
    )


def _recorded(variant: Variant) -> str:
    """The instructions of a variant."""
    if variant.sizes is not None:
        return f"not recorded: built from formulas at {variant.sizes}"
    return str(variant.recording)


def path(dispatch: Dispatch) -> str:
    """The fastest path that a call has taken."""
    dispatch = dispatch.serving
    variants = [variant for _, variant in _variants(dispatch)]
    if any(variant.binding is not None or _lane_codes(variant) for variant in variants):
        return "lifted"
    if variants:
        return "native tape" if engine == "native" else "tape in Python"
    if dispatch.notices.reasons:
        return "eager"
    return "eager so far" if dispatch.counts.calls else "not called yet"


def _variants(dispatch: Dispatch) -> list[tuple[Any, Variant]]:
    """All variants, each with the key of its structure."""
    return [(key, v) for key, s in dispatch.structures.items() for v in s.variants]


def _lane_codes(variant: Variant) -> list[Any]:
    """Its machine code for many samples at once."""
    return [code for code in variant.lanes.values() if not isinstance(code, str)]


def _summary(dispatch: Dispatch) -> str:
    counts = dispatch.counts
    lines = [f"{dispatch.name}: {path(dispatch)}"]
    lines.append(
        f"  {counts.calls} calls: {counts.replayed} replayed, {counts.eager} eager; "
        f"{counts.traces} recordings in {counts.recording_seconds:.3f} s"
    )
    if path(dispatch) == "lifted":
        kept = _from_cache(dispatch)
        lines.append(f"  machine code built in {counts.lifting_seconds:.3f} s{kept}")
    for _, variant in _variants(dispatch):
        recording, binding = variant.recording, variant.binding
        how = f"{len(recording):,} instructions"
        if variant.sizes is not None:
            how = f"built from formulas at {variant.sizes}"
        lines.append(
            f"  variant: {how}, {recording.inputs:,} inputs, "
            f"{len(recording.guards)} guards, {recording.selection.summary()}"
        )
        if binding is not None:
            program = binding.machine.program
            where = "" if binding.is_own else " of a longer call"
            if variant.borrows:
                where += ", those of value_and_grad"
            elif program.steps is not None:
                where = f", done in {len(program.steps):,} steps"
            elif binding.machine.code.machine.stripped:
                where = f", {len(binding.machine.code.machine.stripped)} of them by elements"
            lines.append(f"    lifted to {len(program.instructions)} array instructions{where}")
        elif variant.may_join:
            lines.append("    on the machine code of a longer call from its next call on")
        elif variant.waits:
            which = "single calls " if _lane_codes(variant) else ""
            lines.append(f"    {which}on the tape until machine code pays")
        elif variant.not_lifted is not None:
            lines.append(f"    not lifted: {variant.not_lifted}")
        for code in variant.lanes.values():
            one_by_one = isinstance(code, str)
            how = f"one by one: {code}" if one_by_one else f"{code.lanes} at a time"
            lines.append(f"    many samples: {how}")
    lines += _causes(dispatch)
    if counts.replayed:
        each = 1e6 * counts.checking_seconds / max(1, counts.checks)
        found = f"found in {1e3 * counts.finding_seconds:.1f} ms in all"
        lines.append(f"  captured state: {found}, compared in {each:.1f} µs each time")
    lines += [f"  {reason}" for reason in dispatch.notices.reasons_to_record]
    lines += [
        f"  eager because {reason} ({n} times)" for reason, n in dispatch.notices.reasons.items()
    ]
    lines += _quiet_reasons(dispatch)
    return "\n".join(lines)


def _causes(dispatch: Dispatch) -> Iterator[str]:
    """Why there are several recordings; what to write instead once for each kind of reason."""
    told: set[str] = set()

    def instead(reason: Reason) -> str:
        advice = "" if reason.advice in told else reason.advice
        told.add(advice)
        return advice

    recorded = sum(bool(structure.variants) for structure in dispatch.structures.values())
    argument = differing_argument(dispatch.function, dispatch.structures)
    if recorded >= SEVERAL and argument is not None:
        yield f"  {recorded} kinds of calls are recorded: {argument}{instead(argument)}"
    reasons = reasons_for_recordings([variant for _, variant in _variants(dispatch)])
    for reason, count in list(reasons.items())[:REASONS]:
        recordings = "1 recording holds" if count == 1 else f"{count} recordings hold"
        yield f"  {recordings} for one case only: {reason}{instead(reason)}"


def _quiet_reasons(dispatch: Dispatch) -> Iterator[str]:
    """Why calls run eagerly where that is quicker, of which nobody is warned."""
    counts, notices = dispatch.counts, dispatch.notices
    if notices.reasons or counts.eager <= counts.replayed:
        return
    if notices.dear is not None:
        yield f"  eager as that is quicker: {notices.dear}"
    elif not counts.traces:
        yield "  eager until its calls have taken as long as recording one of them will"
    else:
        yield "  eager where no recording serves a call, until another one is worth its cost"


def _from_cache(dispatch: Dispatch) -> str:
    """How much of the machine code came from the folder that CHAINRULE_CODE_CACHE names."""
    machines = {}
    for _, variant in _variants(dispatch):
        for machine in (variant.machine, *[code.machine for code in _lane_codes(variant)]):
            if machine is not None:
                machines[id(machine)] = machine
    modules = [kept for machine in machines.values() for kept in machine.from_cache]
    return f", {sum(modules)} of {len(modules)} modules from the cache" if any(modules) else ""


def _formulas(dispatch: Dispatch) -> str:
    """The array programs in index notation; those of shorter calls are the longest's."""
    found: list[str] = []
    variants = [(key, variant) for key, variant in _variants(dispatch) if not variant.borrows]
    served = Counter(id(v.machine) for _, v in variants if v.machine is not None)
    for key, variant in variants:
        binding, lanes = variant.binding, _lane_codes(variant)
        if binding is None and not lanes:
            waits = "machine code would not pay yet; lift=True does not wait"
            found.append(
                f"not lifted: {variant.not_lifted or (waits if variant.waits else 'lift=False')}"
            )
        elif binding is None or binding.is_own:
            machine = lanes[0].machine if binding is None else binding.machine
            (_, arguments, named, _), _ = key
            inputs = input_names.inputs(
                dispatch.function, arguments, named, variant.captured, dispatch.captured
            )
            words = ", ".join(f"{x.name} {size_text(x.shape)}".rstrip() for x in inputs)
            program, root = machine.lifted, machine.lifted_root
            count, shorter = len(program.instructions), max(0, served[id(machine)] - 1)
            serves = f", which serve {shorter} shorter calls too" if shorter else ""
            choice = Choice(variant.recording)
            lines = textwrap.wrap(f"of {words}", WIDTH, initial_indent="  ", subsequent_indent="  ")
            lines = [f"{count} array instructions{serves}", *lines[: 1 + (len(lines) < 5) * 4]]
            results = [int(program.address[x.position]) for x in variant.recording.outputs]
            others = results[1:] if results and results[0] == root else []
            found.append("\n".join([*lines, "", read(program, inputs, choice, root, others)]))
    return "\n\n".join(found)
