"""Packed samples: rows of numbers and addresses for machine code.

In: samples of training, or of a batch, and their structures. Out: ``PackedSamples``: for each
sample which fit of the code it runs with, the numbers it has of its own, and the addresses that its
gathers read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, Texts, flatten_call
from chainrule.compiler.lift.program import Addresses, Program
from chainrule.compiler.mapping.prepared import MOST
from chainrule.compiler.runtime.decisions import Decisions
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.machine import Fit, MachineCode, beyond
from chainrule.compiler.runtime.memory import memory as recordings
from chainrule.compiler.runtime.variants import Run, Variant
from chainrule.compiler.training.kinds import Kind, Table
from chainrule.compiler.training.steps import Progress, Steps, unnoticed
from chainrule.compiler.training.stretches import Stretches
from chainrule.compiler.training.structures import AT_ONCE, Structures, increasing
from chainrule.core.backend import kernels
from chainrule.trees import Array, Floats
from chainrule.windows import Windows

UNKNOWN, ODD = -1, -2  # a sample not looked at yet, one that runs otherwise
PACKED = 4  # times ``AT_ONCE`` samples in a call, where all stay packed: threads wait in between
MEMORY = 1 << 27  # bytes: for packed samples
READ_ONCE = 1 << 21  # bytes: for those that are not read again, which stay near the processor
MOST_KINDS = 64  # of samples of one structure that run on the code


class PackedSamples:
    """Samples packed for machine code when they are needed.

    ``fit_of[k]`` is the place in ``fits`` of what sample k fits (or UNKNOWN, or ODD). Row
    ``row_of[k]`` of ``gathered`` is what its gathers select, the first of each of the
    ``stretches``, that of ``own`` are the numbers it has of its own. There are rows for so many
    samples as fit into some memory; then they are worked out anew.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        params: Any,
        samples: list[tuple[Any, ...]] | Windows,
        key: Floats | None = None,
        memory: int = MEMORY,
        at_any_cost: bool = True,
    ) -> None:
        """``key``: what a sample has besides as its last argument, another one whenever it is read;
        the numbers of this one are packed in its place. ``memory``: for rows, in bytes.
        ``at_any_cost``: samples of which nothing is known are recorded and built at once; if not,
        where that can be paid for.
        """
        self.dispatch, self._key = dispatch, () if key is None else (key,)
        self._at_any_cost = at_any_cost
        self._memory = memory
        self.params = params
        texts: Texts = frozenset()  # arguments of the function whose strings are integers
        if not isinstance(samples, Windows):
            texts = dispatch.meet(samples)
        self.structures = Structures(samples, self._key, texts)
        #: what samples of each structure ran on when others were prepared; see ``_remembered``
        self._ran: dict[Any, Variant] = {}
        self.fit_of: Addresses
        self.row_of: Addresses
        self.own: Array
        self.gathered: Addresses
        self.forget()

    @property
    def samples(self) -> Sequence[tuple[Any, ...]]:
        """The samples; of windows those that are needed next."""
        return self.structures.samples

    def choose(self, first: int, count: int) -> Addresses:
        """Which samples are read next, those number ``first`` and on of a run, in order."""
        shown = max(1, count)
        if not self.structures.show_windows(first, shown):
            start, end = first % len(self.samples), len(self.samples)
            found = np.arange(start, start + count)
            return found if start + count <= end else found % end
        self.fit_of = np.full(shown, UNKNOWN, np.int64)
        self.row_of = np.full(shown, -1, np.int64)
        self._forget_rows()
        return np.arange(count)

    def choose_all(self, taken: int, steps: Steps) -> Addresses:
        """Which samples a run reads, after so many steps of the optimiser; some more than once."""
        count = len(self.samples)
        if steps.most is not None:
            count = min(count, steps.most * steps.batch)
        return self.choose(taken * steps.batch, count)

    def prepare(self, chosen: Addresses, progress: Progress) -> bool:
        """Record a sample of each structure among some, so that no step has to wait.

        First the longest of all, then in an order that depends on the structures alone: so does
        the code. Returns whether there is machine code.
        """
        every = self.structures.first_of_each(chosen)
        progress(0, len(every))
        windowed = self.structures.windowed
        if not windowed:
            self.dispatch.expect([self.whole(k) for k in every[:2]])
        with nullcontext() if progress is unnoticed else self.dispatch.notices.shown():
            is_first = not self.kinds
            if self.kind_of(self.structures.leader(chosen)) is None:
                return False
            with self.dispatch.lock:
                self._ran = self._remembered() if is_first else {}
            for done, k in enumerate(every, 1):
                if not windowed:
                    self.kind_of(k)
                progress(done, len(every))
            self._ran = {}
        return self.machine is not None

    def forget(self) -> None:
        """Look at every sample again."""
        self.fits: list[Fit] = []
        self.kinds: list[Kind] = []  #: that were met, in the order of their fits
        self._alike: dict[Any, list[Kind]] = {}  # by the structure of a sample
        self._ran = {}
        self._plain: dict[tuple[int, ...], Any] = {}  # structures, by the lengths of lists
        self._table: Table | None = None
        self.structures.forget_read()
        self.machine: MachineCode | None = None
        self.stretches = Stretches.single(0)
        self.fit_of = np.full(len(self.samples), UNKNOWN, np.int64)
        self.row_of = np.full(len(self.samples), -1, np.int64)
        self._forget_rows()

    def show(self, params: Any, samples: list[tuple[Any, ...]]) -> None:
        """Go on with other samples, of a run with parameters of the same structure."""
        self.params = params
        self.structures.show(samples)
        self.fit_of = np.full(len(samples), UNKNOWN, np.int64)
        self.row_of = np.full(len(samples), -1, np.int64)
        self._forget_rows()
        if self.machine is not None and len(self.own) * self._row_bytes > READ_ONCE:
            self.own, self.gathered = self.own[:0].copy(), self.gathered[:0].copy()

    def unmet(self) -> int | None:
        """How many structures there are among samples that are lists of integers, not met so far.

        None where there are other samples.
        """
        found, others = self.structures.shapes(np.arange(len(self.samples)))
        lengths = {tuple(map(len, self.samples[k])) for k in found}
        return None if others else len(lengths - self._plain.keys())

    def _forget_rows(self) -> None:
        self.fit_of[self.fit_of >= 0] = UNKNOWN
        self.row_of[:] = -1
        self._used = 0  # rows
        self.structures.forget_calls()

    # --- kinds of samples -------------------------------------------------------------------------

    def whole(self, k: int) -> Call:
        """Sample k as a call of the function, flattened."""
        return self.structures.whole(self.params, k)

    def _run(self, k: int) -> Run:
        """Compute a sample as a call of its own."""
        with self.dispatch.lock:
            if self._at_any_cost:
                return self.dispatch.run(self.whole(k), at_once=True)
            return self.dispatch.look(self.whole(k))

    def has_code(self, k: int) -> bool:
        """Whether there is machine code for a sample by itself, perhaps made now."""
        variant = self._run(k).variant
        return variant is not None and variant.binding is not None

    def kind_of(self, k: int) -> Kind | None:
        """What this sample runs on; None where it is not the others' code."""
        call, captured = self.structures.call(k), self.dispatch.captured
        if call.roots or (captured is not None and captured.reaches(call.containers)):
            return None  # objects are looked at as they are when their sample's turn comes
        try:
            ids = np.array([call.ints], np.int64)
        except OverflowError:  # too large for machine code
            return None
        for kind in self._alike.get(call.key, ()):
            if kind.decide(ids).known.all():
                return kind
        return self._new_kind(k, ids)

    def _new_kind(self, k: int, ids: Addresses) -> Kind | None:
        """What a sample runs on that is of no kind that was met."""
        key = self.structures.call(k).key
        found = self._kind_on(self._ran.get(key), k, ids)
        if found is None:
            found = self._kind_on(self._run(k).variant, k, ids)
        if found is None:
            return None
        made, decided = found
        if not len(made.variant.recording.guards):  # it may go no other way with other parameters
            self._ran[key] = made.variant
        if self.machine is None:
            self._begin(made, k, ids, decided)
        places = self.stretches.places(made.gathers, made.decided.follows)
        if places is None:
            self._lay_out_singly()
        else:
            made = replace(made, gathers=places)
        if kernels is not None and not self.structures.windowed:
            lengths = self.structures.lengths(k)
            if lengths is not None:
                self._plain[lengths] = key
        self._alike.setdefault(key, []).append(made)
        self.kinds.append(made)
        self.fits.append(made.binding.fit)
        return made

    def _kind_on(
        self, variant: Variant | None, k: int, ids: Addresses
    ) -> tuple[Kind, Decisions] | None:
        """A sample as the first of those that run on a variant, and what it decides."""
        if variant is None or variant.binding is None:
            return None
        if self.dispatch.texts != self.structures.texts:
            return None
        call = self.structures.call(k)
        machine, alike = variant.binding.machine, self._alike.get(call.key, ())
        if machine.root < machine.program.shared or any(x.variant is variant for x in alike):
            return None
        if len(variant.captured) or (self.machine or machine) is not machine:
            return None
        gathers = variant.binding.fit.gathers
        made = Kind(variant, variant.binding, len(self.fits), call.size, gathers)
        decided = made.decide(ids)
        return (made, decided) if decided.known.all() else None

    def _remembered(self) -> dict[Any, Variant]:
        """What samples of each structure ran on when others were prepared, with these parameters.

        To be asked for after one has been computed, which sees to it that the captured state is as
        it was.
        """
        call = flatten_call((self.params,), {}, differentiate=True)
        kept, key = self.dispatch.prepared, ("kinds", call.key, self.structures.texts)
        if key not in kept:
            if len(kept) >= MOST:
                kept.clear()
            kept[key] = {}
        found: dict[Any, Variant] = kept[key]
        for structure, variant in list(found.items()):
            variant.used = recordings.now
            if variant.may_join or variant.waits:
                del found[structure]
        return found

    def _begin(self, kind: Kind, k: int, ids: Addresses, decided: Decisions) -> None:
        """Pack samples for the code that this one runs on."""
        self.machine = machine = kind.binding.machine
        self.own = np.empty((0, len(machine.program.private)), machine.dtype)
        # What a short sample leaves open is as good as anything.
        self._open = np.ones(len(machine.program.private))
        numbers = self._numbers([k], ids, decided)[0]
        usual = np.where(beyond(machine.dtype, numbers), 1.0, numbers)
        self._open[kind.binding.fit.private] = usual
        self._some_choices, gathers = _some_choices(machine.program), kind.binding.fit.gathers
        self._some_choices[gathers] = decided.gathered[0]
        self._lay_out(Stretches.of(len(self._some_choices), gathers, kind.decided.follows))

    def _lay_out(self, stretches: Stretches) -> None:
        """Begin rows of addresses, one for each of these."""
        self.stretches, self._some_choice = stretches, self._some_choices[stretches.starts]
        self.gathered = np.empty((len(self.own), len(self._some_choice)), np.int64)

    def _lay_out_singly(self) -> None:
        """Pack all anew, an address for each gather: there are samples without the stretches."""
        self._lay_out(Stretches.single(len(self._some_choices)))
        self._forget_rows()
        self._table = None
        singly = {kind: replace(kind, gathers=kind.binding.fit.gathers) for kind in self.kinds}
        self.kinds = [singly[kind] for kind in self.kinds]
        for alike in self._alike.values():
            alike[:] = [singly[kind] for kind in alike]

    def _numbers(self, members: list[int], ids: Addresses, decided: Decisions) -> Array:
        """The numbers that samples of one kind have of their own, in the order of the inputs."""
        call = self.structures.call
        size = call(members[0]).size
        floats = np.empty((len(members), size))
        if size and size == sum(map(len, self._key)):
            call(members[0]).write(floats[0])
            floats[1:] = floats[0]
        elif size:
            for row, k in zip(floats, members, strict=True):
                call(k).write(row)
        return np.concatenate([floats, ids, decided.numbers], axis=1)

    # --- what they select -------------------------------------------------------------------------

    def look_at(self, wanted: Addresses) -> None:
        """Work out what some samples run on."""
        unknown = self._unknown(wanted)
        if self.machine is not None and len(unknown):
            if self._used and (self._used + len(unknown)) * self._row_bytes > self._memory:
                self._forget_rows()
                unknown = self._unknown(wanted)
            self._reserve(len(unknown))
            unknown = self._pack_known(unknown)
        if not len(unknown):
            return
        before = self.stretches
        for members, ids in self.structures.groups(unknown):
            if ids is None:
                self.fit_of[members] = ODD
                continue
            chosen, key = np.array(members), self.structures.call(members[0]).key
            for kind in self._alike.get(key, ()):
                chosen, ids = self._take(kind, chosen, ids)
            while len(chosen):
                new = self._new_kind(int(chosen[0]), ids[:1])
                if new is not None:
                    chosen, ids = self._take(new, chosen, ids)
                    continue
                some = 1 if 0 < len(self._alike.get(key, ())) < MOST_KINDS else len(chosen)
                self.fit_of[chosen[:some]] = ODD
                chosen, ids = chosen[some:], ids[some:]
        if self.stretches is not before:
            self.look_at(wanted)  # those packed before have been forgotten

    def _unknown(self, wanted: Addresses) -> Addresses:
        """Those of some samples that have not been looked at, in order."""
        unknown = self.fit_of[wanted] == UNKNOWN
        return increasing(wanted if unknown.all() else wanted[unknown])

    def _pack_known(self, chosen: Addresses) -> Addresses:
        """Pack those of some samples that are lists of integers of known kinds; the others."""
        if kernels is None or self.structures.windowed:
            return chosen
        met, kept = (len(self.kinds), len(self._plain)), self.structures.kept
        if self._table is None or self._table.met != met or self._table.kept is not kept:
            self._table = Table.of(self._plain, self._alike, kept, met)
        if not self._table.kinds:
            return chosen
        self._used = kernels.pack_samples(
            self.samples,
            self._table.kinds,
            self._used,
            chosen,
            self._table.shapes,
            self._open,
            self._some_choice,
            kept.integers,
            kept.starts,
            self._table.numbers,
            self.own,
            self.gathered,
            self.fit_of,
            self.row_of,
        )
        unknown = self.fit_of[chosen] == UNKNOWN
        return chosen[unknown] if unknown.any() else chosen[:0]

    def _take(self, kind: Kind, chosen: Addresses, ids: Addresses) -> tuple[Addresses, Addresses]:
        """Pack those of some samples that are of one kind; returns the others."""
        decided = kind.decide(ids)
        known = decided.known
        if known.any():
            if known.all():
                mine, integers = chosen, ids
            else:
                mine, integers, decided = chosen[known], ids[known], decided.only(known)
            rows, fit = self._take_rows(mine), kind.binding.fit
            numbers = self._numbers(mine.tolist(), integers, decided)
            strange = beyond(kind.binding.machine.dtype, numbers)
            self.own[rows, fit.private] = np.where(strange, 1.0, numbers)
            firsts = kind.gathers >= 0
            self.gathered[rows, kind.gathers[firsts]] = decided.gathered[:, firsts]
            self.fit_of[mine] = kind.place
            if kind.variant.uses_math:
                strange |= ~np.isfinite(numbers)
            self.fit_of[mine[strange.any(axis=1)]] = ODD
        return chosen[~known], ids[~known]

    def _take_rows(self, members: Addresses) -> slice:
        """Rows for samples that have none, with nothing in them."""
        used, need = self._used, self._used + len(members)
        self._reserve(len(members))
        self.own[used:need], self.gathered[used:need] = self._open, self._some_choice
        self.row_of[members], self._used = np.arange(used, need), need
        return slice(used, need)

    def _reserve(self, count: int) -> None:
        """Have memory for so many more rows."""
        need = self._used + count
        if need > len(self.own):
            more = max(need, 2 * len(self.own))
            self.own, self.gathered = (
                _longer(rows, self._used, more) for rows in (self.own, self.gathered)
            )

    @property
    def _row_bytes(self) -> int:
        return int(self.own.shape[1] * self.own.itemsize + self.gathered.shape[1] * 8)

    @property
    def at_once(self) -> int:
        """How many samples are looked at in one go, so that their rows fit into memory."""
        each = self._row_bytes if self.machine is not None else 1
        return max(1, min(AT_ONCE, self._memory // max(1, each)))

    @property
    def in_one_call(self) -> int:
        """How many samples go through the machine code in one call."""
        if self.machine is None or self.structures.windowed:
            return self.at_once
        stay = len(self.samples) * self._row_bytes <= self._memory
        return PACKED * self.at_once if stay else self.at_once

    # --- for the code -----------------------------------------------------------------------------

    def key_columns(self) -> Addresses:
        """Which numbers of ``own`` are the key of a sample, a row for each fit."""
        length = sum(map(len, self._key))
        found = []
        for kind in self.kinds:
            own = kind.numbers - length  # the key comes last
            found.append(kind.binding.fit.private[own : kind.numbers])
        return np.stack(found)


def _longer(rows: Array, used: int, more: int) -> Array:
    """So many rows, of which those used are the same."""
    made = np.empty((more, rows.shape[1]), rows.dtype)
    made[:used] = rows[:used]
    return made


def _some_choices(program: Program) -> Addresses:
    """Something that each gather may select."""
    found = [np.zeros(0, np.int64)]
    for instruction in program.instructions:
        if instruction.candidates is not None:
            found.append(np.full(instruction.count, instruction.candidates[0]))
    choice = np.concatenate(found)
    return choice if len(choice) else np.zeros(1, np.int64)
