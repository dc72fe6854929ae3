"""Whether a recording, or machine code, is worth what it costs.

In: how many instructions a call has. Out: yes or no. A function owes what its recordings and its
machine code cost, and each call pays back: half of its eager time where it ran eagerly, all of it
where it was replayed. So no function gets much slower than eager, however its calls differ. A part
of what replays save is put by for machine code, which may cost more than any hundred calls save.

Costs are estimated from the number of instructions (``costs.py``) and not read from a clock. Only
where one turns out ``FAR`` dearer than its estimate does the time that the processor took for it
count. What machine code costs is estimated twice: from the instructions of the recording, and once
these are lifted, from those of the array program, on which LLVM's time depends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from chainrule.compiler.runtime.costs import (
    BUILD,
    CALLING,
    CONVERTING,
    COUNTING,
    EAGER,
    FINDING,
    FLATTENING,
    JOIN,
    KEEPING,
    RECORD,
    REPLAY,
    SAVED,
    SEARCHING,
    TRACING,
    Beside,
    allowance,
    recording_takes,
    trying_takes,
)
from chainrule.compiler.runtime.resting import Rest

MOST_DOUBLINGS = 6  # of what a recording must have earned,
JOINING_DOUBLINGS = 4  # and where machine code is there for it: lengths come again
FAR = 8.0  # times its estimate
OF_SIDES = 8.0  # times the cost, where both sides of branches are computed and
SIDES = 2.5  # times as many instructions are recorded as an eager call has
CALLS = 50  # whose eager time a function may owe: half of what 100 calls take
IN_RUN = 0.75  # of what the calls that it may serve take eagerly: replays take less than the rest
MOST_SAVED = 0.1  # seconds that a function can have earned, beside these; more for a dear recording
PUT_BY = 0.25  # the part of a replayed call's eager time that is put by for machine code,
MOST_PUT_BY = 2.0  # and how many seconds of it there can be
STEADY = 256  # replays in a row, before it is spent
FORGIVEN = 8192  # eager calls for which one recording that was in vain counts no longer
COMING = 10.0  # times a replay is likely to come again: so much of a recording it pays for,
EXPECTED = 3000  # and no more once there were so many calls, as these tell how often it will
IN_VAIN = 4.0  # recordings that were, and then none is made but of calls that come again and again
DUE = 2.0  # times what a recording costs, which these have to take eagerly before,
LEAST_DUE = 4  # and how many they are at least
ASKED = 4  # recordings in a row, in vain, that are made for who asks for machine code
UNKNOWN = 100  # instructions of a function that was never recorded
MOST_EXPECTED = 10_000  # for the numbers it is called with
FOLLOWED = 4096  # objects that are always gone through for what a function reaches
SETTLED = 8  # replays in which no call went a new way


class Run(NamedTuple):
    """What is still to come of a run of training."""

    calls: int
    alike: float  # of one structure, if each has its share
    builds: bool  # machine code for calls, where there can be none for whole steps


class Ledger:
    """What one function has spent on recordings and machine code, and what that saved."""

    def __init__(self) -> None:
        self.instructions: int | None = None  # of its last recording, or of an eager call
        self._has_sides = False  # its recordings compute both sides of branches
        self._finding = FINDING  # seconds that the first recording takes besides
        self._balance = self._put_by = 0.0
        self._calls = 0
        self._recordings = self._recorded = 0  # how many, and their instructions
        self._counts_alike = False  # only these are recorded: see ``calls_due``
        self._is_due = False  # what is recorded now has come again and again
        self._in_a_row = 0  # replays since a call that no variant served
        self._eager_calls = 0  # since a recording was forgiven
        self._has_built = False  # machine code
        self._unused = 0.0  # recordings that no replays have paid for
        self._unsettled = 0  # replays to wait for, as calls may go still other ways
        self._rest = Rest()
        self._dearest = 0.0  # seconds of a recording that was far dearer than its estimate
        self._trained = 0.0  # put by in training steps that were calls, for those that are not
        self._run: Run | None = None  # of training, whose steps are calls just now

    def affords_recording(
        self,
        joins: bool = False,
        asked: bool = False,
        of_numbers: bool = False,
        integers: int = 0,
    ) -> bool:
        """Whether one more recording may be made now.

        It is to be the better earned the longer nothing has been replayed: calls may all differ.
        ``joins``: there is machine code of a longer call that this one can use. ``asked``: the user
        wants machine code and does not wait for it. ``of_numbers``: nothing is differentiated.
        ``integers``: how many are passed.
        """
        doublings = min(self._unused, JOINING_DOUBLINGS if joins else MOST_DOUBLINGS)
        doublings = 0.0 if self._is_due else doublings
        whole = self._finding + self._dear * recording_takes(self._size, of_numbers, integers)
        joining = TRACING * whole + self._dear * JOIN.of(self._size)
        dearest = 0.0 if self._is_due else self._dearest  # one may have been, for another reason
        cost = joining if joins else max(whole, dearest)
        credit, has_saved = self._credit(self._size), self._balance >= MOST_SAVED
        if not self._pays_in_run(cost - self._finding):
            return False
        affords = (cost if has_saved else 2.0**doublings * cost) <= credit
        return affords or (asked and self._unused < ASKED)

    @property
    def calls_due(self) -> int:
        """How many calls of one structure take twice as long as a recording; 0: they do not count.

        They count where recordings at the first sight were in vain: those of lists whose lengths
        vary independently, each of which comes again after hundreds of others.
        """
        self._counts_alike = self._counts_alike or self._unused >= IN_VAIN
        if not self._counts_alike or allowance.is_endless:
            return 0
        size = self._recorded // self._recordings  # the last one may have been far from the usual
        return max(LEAST_DUE, math.ceil(DUE * RECORD.of(size) / EAGER.of(size)))

    @contextmanager
    def is_due(self) -> Iterator[None]:
        """What is recorded meanwhile has come as often as that: it is not in vain."""
        self._is_due = True
        try:
            yield
        finally:
            self._is_due = False

    def affords_building(self, instructions: int, cost: float | None = None) -> bool:
        """Whether machine code may be built for a recording now; ``cost``: where it is known.

        The allowance is for the first time only: whoever has several paths is to earn the others'.
        While calls may go new ways it is for recordings, one of which may be for all of them.
        """
        if self._run is not None and not self._run.builds:
            return False
        withheld = allowance.left if self._has_built or self._unsettled else 0.0
        credit = self._credit(self._of_eager(instructions)) - withheld
        cost = BUILD.of(instructions) if cost is None else cost
        put_by = self._put_by if self._in_a_row >= STEADY else 0.0
        return cost <= max(credit, put_by) or allowance.is_endless

    def pays_for_one(self, instructions: int, calls: int, cost: float) -> bool:
        """Whether so many calls of one structure have put by what code for them alone costs."""
        return calls * PUT_BY * EAGER.of(self._of_eager(instructions)) >= cost

    def affords_joining(self, instructions: int, calls: int | None) -> bool:
        """Whether a recording may be compared with the code of a longer call now.

        ``calls``: that its tape answered and that have to have taken as long, where many wait.
        """
        if self._run is not None and not self._run.builds:
            return False
        cost = JOIN.of(instructions)
        taken = cost if calls is None else calls * REPLAY.each * instructions
        return cost <= min(taken, self._credit(instructions)) or allowance.is_endless

    def affords_training(self, short: float, longer: float = 0.0) -> bool:
        """Whether to make code for training steps that costs so much more than they can pay for.

        How many steps there will be is known, so nothing is owed: half of what they take eagerly is
        spent already. The rest is what earlier steps put by that were calls, and the allowance; but
        that is not for a run which takes ``longer`` with it than without, by so many seconds.
        """
        return short <= self._trained + allowance.left and longer <= self._trained

    def begins_training(self, short: float) -> None:
        """It is made; recordings and machine code book themselves."""
        self._trained -= min(self._trained, max(0.0, short))

    @contextmanager
    def trains(self, instructions: int, run: Run) -> Iterator[None]:
        """A sample of a training step, which has so many ``instructions``, is a call of its own.

        Half of what all calls to come take eagerly may be spent, and is not owed; on a recording
        part of what those take that it may serve, as there may be none after them.
        """
        self._trained += 0.5 * EAGER.of(instructions)
        self._run = run
        try:
            yield
        finally:
            self._run = None

    def recorded(
        self,
        instructions: int,
        goes_other_ways: bool = False,
        of_numbers: bool = False,
        of_sides: bool = False,
        integers: int = 0,
    ) -> None:
        """A recording was made, to which others may have to be compared.

        ``goes_other_ways``: the next call may need another, as there are branches.
        ``of_numbers``, ``integers``: as above. ``of_sides``: both sides of branches are computed.
        """
        if of_sides and not self._has_sides:
            allowance.left = max(0.0, allowance.left - CONVERTING)
        self._has_sides = of_sides
        instructions = self._of_eager(instructions)
        cost = self._dear * recording_takes(instructions, of_numbers, integers)
        doubled = (2.0 ** min(self._unused, JOINING_DOUBLINGS) - 1.0) * cost
        self.instructions = instructions
        self._recordings += 1
        self._recorded += instructions
        self._unsettled = SETTLED if goes_other_ways else self._unsettled
        self._pay(self._finding + TRACING * cost)
        if not self._is_due:
            self._unused += 1.0
            self._balance -= min(doubled, max(self._balance, 0.0))  # the next is to be earned anew
        self._finding = 0.0

    def recorded_in_vain(self, seconds: float, of_numbers: bool = False) -> None:
        """No recording came of a run of the function, which was refused or ended in an error.

        ``seconds``: of the processor. ``of_numbers``: as above.
        """
        cost = TRACING * recording_takes(self._size, of_numbers)
        self._pay(self._finding + (seconds if seconds > FAR * cost else cost))
        self._unused += 1.0
        self._finding = 0.0

    def searches_again(self) -> None:
        """What the function reaches has changed: it is found again with the next recording."""
        self._finding = FINDING

    def checked(
        self, instructions: int, seconds: float, of_numbers: bool = False, integers: int = 0
    ) -> None:
        """It was compared with another, and with eager; ``seconds``: of the processor.

        Making it took about as long as that. Where it is far dearer than estimated, as the next one
        will be, that is what it costs.
        """
        instructions = self._of_eager(instructions)
        cost = self._dear * recording_takes(instructions, of_numbers, integers)
        if seconds > FAR * cost:
            self._dearest = max(self._dearest, 2.0 * seconds)
            self._pay(2.0 * seconds)
        else:
            self._pay((1.0 - TRACING) * cost)

    def joined(self, instructions: int) -> None:
        """A recording was compared with the code of a longer call, which took long or serves it."""
        self._pay(self._dear * JOIN.of(self._of_eager(instructions)))

    def put_off(self, lifting: float, seconds: float) -> None:
        """A recording was lifted, and LLVM would take more than has been earned.

        ``lifting``: seconds, as it is estimated; ``seconds``: of the processor.
        """
        self._pay_for_code(seconds if seconds > FAR * lifting else lifting)

    def built(self, instructions: int, seconds: float, cost: float | None = None) -> None:
        """Machine code was built, or it was tried; ``seconds``: of the processor."""
        self._has_built = True
        estimate = BUILD.of(instructions) if cost is None else cost
        self._pay_for_code(seconds if seconds > FAR * estimate else estimate)

    def expect(self, numbers: int) -> None:
        """A function of so many numbers was called: it is likely to do something with each."""
        if self.instructions is None and numbers > UNKNOWN:
            self.instructions = min(numbers, MOST_EXPECTED)

    def ran_eagerly(self, calls: int = 1) -> None:
        """Some calls took eager's time."""
        self._rest.succeeded()
        self._ran(calls, EAGER.of(self._size))

    def failed(self, calls: int = 1) -> None:
        """Some eager calls ended in an error, perhaps in their first lines."""
        self._ran(calls, EAGER.fixed)
        self._rest.failed(calls)

    def _ran(self, calls: int, seconds: float) -> None:
        """Some calls ran eagerly, each for so long."""
        self._calls += calls
        self._earn(calls * 0.5 * seconds)
        self._rest.ran(calls, seconds)
        forgiven, self._eager_calls = divmod(self._eager_calls + calls, FORGIVEN)
        self._unused = max(0.0, self._unused - forgiven)

    def replayed(
        self,
        instructions: int,
        calls: int = 1,
        quickly: bool = False,
        nodes: int | None = None,
        tried: int = 0,
    ) -> None:
        """A variant answered calls; ``quickly``: through the fast path.

        ``nodes``: what an eager call makes, where that is known. Recordings may have more.
        ``tried``: how many variants were before it, in vain.
        """
        instructions = self._of_eager(instructions)
        each, took = EAGER.of(instructions), 0.0
        eager = calls * each
        if not quickly:
            took = REPLAY.of(instructions) + tried * trying_takes(instructions)
        self._calls += calls
        coming = min(COMING, max(1.0, EXPECTED / self._calls))
        self._unused = max(0.0, self._unused - coming * eager / RECORD.of(instructions))
        self._in_a_row += calls
        self._unsettled = max(0, self._unsettled - calls)
        self._earn(1.5 * eager - took)
        least = instructions if nodes is None else min(nodes, instructions)
        self._put_by = min(MOST_PUT_BY, self._put_by + calls * PUT_BY * EAGER.of(least))
        if quickly:
            saved = calls * (each - REPLAY.each * instructions)
            self._rest.answered(eager, saved, EAGER.of(self._size))
        else:
            self._rest.replayed(took - eager)

    def replays_pay(self, instructions: int) -> bool:
        """Whether a replay beside the fast path is quicker than an eager call."""
        return allowance.is_endless or REPLAY.of(instructions) <= EAGER.of(instructions)

    def quick_replays_pay(self, instructions: int, comparing: float, beside: Beside) -> bool:
        """Whether the fast path is quicker than an eager call, beside what both of them do.

        ``comparing``: seconds that it takes to compare the captured state.
        """
        extra = comparing + beside.called * CALLING + beside.reading
        return self.is_endless or extra <= SAVED * instructions + beside.steps * COUNTING

    @property
    def saved_by_a_replay(self) -> float:
        """Seconds at most that one saves, by the fast path."""
        return SAVED * self._size

    @property
    def objects_affordable(self) -> float:
        """How many objects may be gone through for what the function reaches."""
        known = self.instructions is not None
        return max(FOLLOWED, self._credit(self._size) / SEARCHING if known else 0.0)

    def searched_in_vain(self, objects: int) -> None:
        """So many were, and replays could not pay for what there is."""
        self._pay(SEARCHING * objects)

    def declined(self, variants: int) -> bool:
        """Whether the fast path is to be given up: it tried so many variants in vain.

        Each was left where its guards fail, half way on average.
        """
        gives_up = self._rest.declined(variants * 0.5 * REPLAY.each * self._size, self._eager)
        if gives_up:
            self.refused()
        return gives_up

    def kept_replays_pay(self, instructions: int) -> bool:
        """Whether the fast path is quicker than an eager call where numbers are kept outside."""
        return allowance.is_endless or EAGER.of(instructions) >= KEEPING

    def missed(self, variants: int, numbers: int = 0) -> None:
        """So many variants were tried in vain; ``numbers``: that were passed."""
        cost = REPLAY.fixed + variants * trying_takes(self._size) + FLATTENING * numbers
        self._in_a_row = 0
        self._pay(cost)
        self._rest.looked(cost)

    def undefined(self, variants: int, others_go_on: bool) -> None:
        """A call is eager's, as a number is undefined, which so many variants took to find out.

        ``others_go_on``: while calls rest, the fast path answers those that it can all the same.
        """
        self._pay(REPLAY.fixed + variants * trying_takes(self._size))
        if others_go_on:
            self._rest.undefined()

    def refused(self) -> None:
        """It was found out, which takes long, that the function had better run eagerly."""
        self._rest.refused()

    def searched(self, objects: int) -> None:
        """What the function reaches was found again, as it had changed, among so many objects."""
        self._rest.looked(SEARCHING * objects)

    def changed(self) -> None:
        """Calls are recorded in another way from now on: what was in vain before may be of use."""
        self._unused, self._rest.calls, self._counts_alike = 0.0, 0, False

    @contextmanager
    def asked_for(self) -> Iterator[None]:
        """What is spent meanwhile was asked for whatever it costs: nothing has to be earned."""
        before = self._balance
        try:
            yield
        finally:
            self._balance = max(before, self._balance)

    @property
    def is_endless(self) -> bool:
        """Whether cost is no object."""
        return allowance.is_endless

    @property
    def rests(self) -> bool:
        """Whether even looking for a variant is too dear for now."""
        return self.longest_rest > 0

    @property
    def longest_rest(self) -> int:
        """How many calls are to run eagerly before it may be otherwise."""
        return self._rest.longest(-self._credit(self._size) / 0.5, self._eager)

    @property
    def longest_rest_unsized(self) -> int:
        """The same where nobody knows how much a call computes: the next one may tell."""
        return min(self.longest_rest, self._rest.failures)

    def calls_to_recording(self, asked: bool = False) -> int:
        """How many calls are to run eagerly before the first recording can be paid for."""
        if self.affords_recording(asked=asked):
            return 0
        cost = RECORD.of(self._size)
        if self._run is not None and not self._pays_in_run(cost):
            return self._run.calls
        missing = self._finding + cost - self._credit(self._size)
        return math.ceil(missing / (0.5 * EAGER.of(self._size)))

    def _pays_in_run(self, cost: float) -> bool:
        """Whether a recording makes a run of training, after which no calls may come, quicker."""
        return self._run is None or cost <= IN_RUN * self._run.alike * self._eager

    @property
    def _dear(self) -> float:
        """How many times as much a recording costs as one of a single side."""
        return OF_SIDES if self._has_sides else 1.0

    def _of_eager(self, instructions: int) -> int:
        """How many operations an eager call has, where so many instructions are recorded."""
        return int(instructions / SIDES) if self._has_sides else instructions

    @property
    def _size(self) -> int:
        return UNKNOWN if self.instructions is None else self.instructions

    @property
    def _eager(self) -> float:
        """Seconds of an eager call."""
        return EAGER.of(self._size)

    def _credit(self, instructions: int) -> float:
        """What may be spent at once; what cannot be owed, the allowance pays."""
        calls = CALLS if self._run is None else max(CALLS, 0.5 * self._run.calls)
        return self._balance + calls * EAGER.of(instructions) + allowance.left

    def _earn(self, seconds: float) -> None:
        dearest = max(MOST_SAVED, recording_takes(self._size, of_numbers=True))
        most = dearest + CALLS * EAGER.of(self._size)
        self._balance = min(most, self._balance + seconds)

    def _pay_for_code(self, seconds: float) -> None:
        """Pay for machine code, first with what was put by for it."""
        put_by = min(seconds, self._put_by)
        self._put_by -= put_by
        self._pay(seconds - put_by)

    def _pay(self, seconds: float) -> None:
        self._balance -= seconds
        if self._run is not None:
            self._trained -= min(self._trained, seconds)
        short = -CALLS * EAGER.of(self._size) - self._balance
        if short > 0.0 and allowance.left > 0.0:
            paid = min(short, allowance.left)
            allowance.left -= paid
            self._balance += paid
