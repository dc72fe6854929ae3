"""Whether eager calls are quicker than replays, for what a replay does beside its instructions.

In: a call, or the captured state that it needs. Out: nothing, or why, in words. A small function
may save less than it takes to compare captured state, to read all numbers of a list or to keep
numbers outside.
"""

from __future__ import annotations

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.comparing import ENDLESS, Bound, why_too_much
from chainrule.compiler.runtime.costs import Beside
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.variants import EAGERLY, Path, Run, Variant

MUCH = 2e-5  # seconds to compare the captured state, which a recording has to be worth


def run_if_too_much(captured: CapturedState, ledger: Ledger) -> Run | None:
    """An eager run, where replays would compare more than they save; None where they may pay.

    Of much captured state an eager call tells first how much there is to compute.
    """
    comparing, size = captured.compared.seconds, ledger.instructions
    if comparing <= MUCH or ledger.is_endless:
        return None
    if size is None:
        return EAGERLY
    if ledger.quick_replays_pay(size, comparing, Beside()):
        return None
    ledger.refused()
    return Run(Path.EAGER, reason=why_too_much(captured.compared))


def run_if_too_long(call: Call, ledger: Ledger) -> Run | None:
    """An eager run, where replays would read more numbers of lists than they save; None otherwise.

    A recording reads them all, be it a hundred thousand of which the function looks at ten. An
    eager call tells first how much there is to compute.
    """
    most = len(call.ints) + call.size
    if Beside(listed=most).reading <= MUCH or ledger.is_endless:
        return None
    lists, size = Beside(listed=call.listed), ledger.instructions
    if lists.reading <= MUCH:
        return None
    if size is None:
        return EAGERLY
    if ledger.quick_replays_pay(size, 0.0, lists):
        return None
    ledger.refused()
    return Run(Path.EAGER, reason=_why_too_long(lists))


def bound_of(ledger: Ledger) -> Bound:
    """How much captured state replays can pay for: beyond, it is not even gone through."""
    if ledger.is_endless:
        return ENDLESS
    return Bound(max(MUCH, ledger.saved_by_a_replay), ledger.objects_affordable)


def beside(call: Call, variant: Variant, counts: bool) -> Beside:
    """What a replay of a call does beside its instructions.

    ``counts``: what is read of its lists does, as nothing is cached; the next calls may pass others
    once some call is quick.
    """
    selection = variant.recording.selection
    if not counts:
        return Beside(selection.called)
    steps = [name for name, _ in selection.program.steps]
    choices = steps.count("choose")
    return Beside(selection.called, call.listed, choices, len(steps) - choices)


def why_quicker(
    call: Call,
    variant: Variant,
    beside: Beside,
    captured: CapturedState,
    ledger: Ledger,
    is_kept: bool,
) -> str | None:
    """What takes long beside the replay of a small function, in words; None: nothing does.

    ``is_kept``: numbers outside are kept around its calls.
    """
    size = len(variant.recording)
    computed = size - len(call.ints) - call.size + call.first if beside.listed else size
    comparing = captured.compared.seconds
    if ledger.quick_replays_pay(computed, comparing, beside):
        if is_kept and not ledger.kept_replays_pay(size):
            return "numbers that it keeps outside are read and written around a replay"
        return None
    if beside.called:
        return "a replay calls functions of Python's, as those that draw from a seed"
    if beside.reading > comparing:
        return _why_too_long(beside)
    return f"{captured.compared} that it reads by itself are compared before a replay"


def _why_too_long(beside: Beside) -> str:
    return f"a replay reads all of the {beside.listed:,} numbers that it is passed in lists"
