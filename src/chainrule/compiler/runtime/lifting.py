"""When recordings become machine code, and for which calls it serves.

In: the variants of a compiled function as they are recorded. Out: variants that run lifted: each
with its own array program, or, where its lists of integers are no longer than some other's, with
that one's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import Surroundings
from chainrule.compiler.capture.infer import Indexing, misaligned
from chainrule.compiler.capture.recorder import Recording
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Trace, trace
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.families import (
    Choices,
    Family,
    Runs,
    resized,
    runs_of,
    shorter,
    slots_among,
    split,
)
from chainrule.compiler.runtime.lifted import Fit, Lifted, Source
from chainrule.compiler.runtime.results import root_of
from chainrule.compiler.runtime.tape import FINE
from chainrule.compiler.runtime.variants import Variant, other_integers

SMALL = 256  # instructions: fewer are as quick on the tape, and keep eager's bits
FAMILIES = 64  # of calls whose lengths differ; the oldest goes

Try = Callable[[Variant, Call], "int | None"]


class Read:
    """Where the integers of a recording read, in terms of the machine code's addresses.

    ``gathers``: for each gather the containers its choice was read from. ``slots``: for each
    integer all containers it read from. A container is a number, for one that was there before the
    run, or the addresses of what it holds; None stands for one that is not known so well.
    """

    def __init__(self, made: Trace, fit: Fit, indexing: Indexing) -> None:
        self._address = fit.address
        chosen = [made.values[int(indexing.rows[0][place])] for place in fit.places]
        self._sources = [made.sources.get(id(v), set()) for v in chosen]
        self._contents, self._chains = made.contents, made.chains
        self._identity = made.identity
        held = {i for ids in made.contents.values() for i in _flat(ids)}
        for source in {s for sources in self._sources for _, s in sources}.union(
            *made.chains.values()
        ):
            held.update(i for x in source if not isinstance(x, int) for i in _flat(x[1]))
        self._place = {i: k for k, i in enumerate(map(id, made.values)) if i in held}
        #: for each gather the integer that was seen to select it
        self.owners = [indexing.owner(place) for place in fit.places.tolist()]
        self._tables: dict[Any, Addresses | None] = {}
        self.gathers = [self._known([s for _, s in sources]) for sources in self._sources]
        self.slots = {slot: self._known(chains) for slot, chains in made.chains.items()}

    def _known(self, sources: Collection[tuple[Any, ...]]) -> frozenset[Any] | None:
        found = frozenset([tuple([self._container(x) for x in source]) for source in sources])
        return None if not found or any(None in source for source in found) else found

    def _container(self, x: Any) -> Any:
        return x if isinstance(x, int) else self._addresses(x[1])

    def _addresses(self, ids: Any) -> Any:
        if isinstance(ids, tuple):
            found = tuple([self._addresses(i) for i in ids])
            return None if None in found else found
        place = self._place.get(ids)
        address = -1 if place is None else int(self._address[place])
        return address if address >= 0 else None

    def proof(self, indexing: Indexing, fit: Fit, base: Sequence[int]) -> Choices | None:
        """What any integer selects: the item of the container that it was seen to read from.

        None where a gather is not seen to follow one integer, read from one container of Values
        that are arranged alike.
        """
        if not indexing.apart or self._identity:
            return None
        slots: dict[int, list[tuple[int, Addresses]]] = {}
        covered: dict[tuple[int, Any], set[int]] = {}  # columns of a container that are gathered
        for g, place in enumerate(fit.places.tolist()):
            slot = indexing.owner(place)
            sources = {s for k, s in self._sources[g] if k == slot}
            if slot is None or len(sources) != 1 or len(next(iter(sources))) != 1:
                return None
            table = self._table(next(iter(sources))[0])
            if table is None or not -len(table) <= base[slot] < len(table):
                return None
            (column,) = np.nonzero(table[base[slot]] == fit.address[indexing.rows[0][place]])
            if len(column) != 1:
                return None
            slots.setdefault(slot, []).append((g, table[:, column[0]]))
            covered.setdefault((slot, next(iter(sources))), set()).add(int(column[0]))
        if not self._all_covered(covered):
            return None
        made = {}
        for slot, columns in slots.items():
            most = min(len(column) for _, column in columns)
            ids = (
                np.arange(-most, most)
                if len({len(c) for _, c in columns}) == 1
                else np.arange(most)
            )
            followers = np.array([g for g, _ in columns])
            found = np.stack([column[ids] for _, column in columns], axis=1)
            found = np.where(fit.allowed[fit.choosers[followers], found], found, -1)
            made[slot] = (ids, followers, found)
        return Choices(-1, made)

    def _all_covered(self, covered: dict[tuple[int, Any], set[int]]) -> bool:
        """Whether all that integers read was seen to go somewhere, but for what is always the same.

        What never differed in the recordings might with other integers.
        """
        for slot, chains in self._chains.items():
            for chain in chains:
                columns = covered.get((slot, chain))
                table = None if columns is None else self._table(chain[0])
                if columns is None or table is None:
                    return False
                varies = np.flatnonzero((table != table[:1]).any(axis=0))
                if not columns.issuperset(varies.tolist()):
                    return False
        return True

    def _table(self, container: Any) -> Addresses | None:
        """The addresses of what a container holds, a row for each item."""
        if container not in self._tables:
            ids = self._contents.get(container) if isinstance(container, int) else container[1]
            found = None if ids is None else self._addresses(ids)
            try:
                table = None if found is None else np.array(found, np.int64)
            except ValueError:  # items of different lengths
                table = None
            self._tables[container] = None if table is None else table.reshape(len(table), -1)
        return self._tables[container]

    def is_like(self, longest: Read, gathers: Addresses, slots: Addresses) -> bool:
        """Whether everything read is read from the same containers in the longest call."""
        if self._identity or longest._identity:
            return False
        for here, owner, g in zip(self.gathers, self.owners, gathers.tolist(), strict=True):
            if here is None or here != longest.gathers[g]:
                return False
            if owner is None or int(slots[owner]) != longest.owners[g]:
                return False
        for slot, chains in self.slots.items():
            others = longest.slots.get(int(slots[slot]))
            if chains is None or others is None or not chains <= others:
                return False
        return True


def _flat(ids: Any) -> Iterator[int]:
    """All of a nest of ids."""
    if isinstance(ids, tuple):
        for i in ids:
            yield from _flat(i)
    else:
        yield ids


class Lifter:
    """Lifts the variants of one function while its surroundings stay the same."""

    def __init__(
        self,
        function: Callable[..., Any],
        surroundings: Surroundings,
        dtype: str,
        always: bool,
        contract: bool,
    ) -> None:
        self.function, self.surroundings = function, surroundings
        self.dtype, self.always, self.contract = dtype, always, contract
        self.families: dict[Any, Family] = {}
        self.traces = 0
        self.outgrown: Family | None = None  # whose place a longer one took

    def _trace(self, call: Call, ids: Sequence[int] | None = None) -> Trace | None:
        """One more recording; None where the function fails with these integers."""
        self.traces += 1
        try:
            return trace(
                self.function, self.surroundings, call, ids=None if ids is None else tuple(ids)
            )
        except (Exception, Unrecordable):
            self.surroundings.restore()
            return None

    def family(self, call: Call) -> tuple[Any, Family | None, Runs] | None:
        """The key of a call's family, what there is of it, and the call's own lengths.

        None where it passes no list of integers.
        """
        key, runs = runs_of(call)
        if not any(is_list for _, is_list in runs):
            return None
        key = (key, self.surroundings.marks(call.values))
        family = self.families.pop(key, None)
        if family is not None:
            self.families[key] = family
        while len(self.families) > FAMILIES:
            del self.families[next(iter(self.families))]
        return key, family, runs

    # --- a program of its own ---------------------------------------------------------------------

    def lift(self, variant: Variant, call: Call, made: Trace, run: Try) -> None:
        """Make an array program of a variant, if it has the structure, and check its result."""
        root = root_of(variant.recording.result)
        if root is None:
            variant.not_lifted = "it returns no single Value"
            return
        if len(variant.recording) < SMALL and not self.always:
            variant.not_lifted = f"it is small (under {SMALL} instructions)"
            return
        if variant.lifted is None and run(variant, call) != FINE:
            variant.not_lifted = "there is no result to check it by"
            return
        swept, value = variant.sweep(root.position), variant.number(root.position)
        if swept is None:
            variant.not_lifted = "there is no gradient to check it by"
            return
        wanted = swept.copy()
        found = self.family(call) if not variant.static else None
        short = self._shorter(call, found[2], 1) if found is not None else None
        source = self._source(call, variant.recording, variant.indexing, root.position)
        try:
            lifted = Lifted(
                source,
                short,
                self.dtype,
                self.contract,
                None if found is None else lambda: self._shortest(call, found[2]),
            )
        except NotLiftable as reason:
            variant.not_lifted = str(reason)
            return
        except Exception as error:  # the tape still serves: say why, and go on
            variant.not_lifted = f"{type(error).__name__}: {error}"
            return
        variant.lifted, variant.fit = lifted, lifted.fit
        if not self.agrees(variant, call, run, value, wanted):
            return
        if found is not None and lifted.varying:
            key, self.outgrown, runs = found
            read = Read(made, lifted.fit, variant.indexing)
            family = Family(runs, lifted, variant.indexing, variant.indexed, tuple(call.ints), read)
            if not self.surroundings.identity:
                family.proved = read.proof(variant.indexing, lifted.fit, call.ints)
            self.families[key] = family
            variant.family, variant.slots = family, source.slots

    def agrees(self, variant: Variant, call: Call, run: Try, value: float, wanted: Any) -> bool:
        """Compare a first lifted result with the tape's."""
        root = root_of(variant.recording.result)
        assert root is not None
        run(variant, call)
        if not variant.ran_lifted:
            return True
        found = variant.sweep(root.position)
        if found is None:
            return True
        if not np.isfinite(wanted).all() or not np.isfinite(found).all():
            return bool(np.array_equal(found, wanted, equal_nan=True))
        scale = max(1.0, abs(value), float(np.max(np.abs(wanted), initial=0.0)))
        limit = 1e-9 if self.dtype == "float64" else 1e-3
        error = max(
            abs(variant.number(root.position) - value),
            float(np.max(np.abs(found - wanted), initial=0.0)),
        )
        if error <= limit * scale:
            return True
        variant.lifted, variant.fit = None, None
        variant.not_lifted = "its result differs (please report this)"
        return False

    def _source(
        self,
        call: Call,
        recording: Recording,
        indexing: Indexing,
        root: int,
        slots: Addresses | None = None,
    ) -> Source:
        ints = np.arange(len(call.ints))
        first = recording.inputs - len(ints)
        private = np.concatenate([np.arange(call.first, call.size), first + ints])
        arrays = (*np.cumsum([0, *call.sizes]).tolist(), first)
        return Source(recording, indexing, root, private, ints if slots is None else slots, arrays)

    def _shorter(self, call: Call, runs: Runs, less: int) -> Source | None:
        """The same call with so many integers less in each list, recorded twice."""
        rows = shorter(runs, call.ints, less)
        if rows is None:
            return None
        call = resized(call, rows)
        _, short_runs = runs_of(call)
        slots = slots_among(short_runs, runs)
        made = self._trace(call)
        if made is None or made.static or slots is None:
            return None
        root = root_of(made.recording.result)
        indexed = tuple(sorted(made.indexed))
        others = other_integers(indexed, call.ints)[0] if indexed else list(call.ints)
        indexing = self._twice(call, made, others)
        if indexing is None:  # perhaps not all of these may stand there
            indexing = self._twice(call, made, self._others(call.ints))
        if root is None or indexing is None:
            return None
        return self._source(call, made.recording, indexing, root.position, slots)

    def _shortest(self, call: Call, runs: Runs) -> Source | None:
        """The same call with two integers in its shortest list, recorded twice."""
        less = min([count for count, is_list in runs if is_list]) - 2
        return self._shorter(call, runs, less) if less > 0 else None

    @staticmethod
    def _others(ids: Sequence[int]) -> list[int]:
        """Other integers in every place, from among those that occur."""
        values = sorted(set(ids))
        other = dict(zip(values, [*values[1:], values[0]], strict=True))
        return [other[i] if len(values) > 1 else max(0, i - 1) for i in ids]

    def _twice(self, call: Call, made: Trace, ids: Sequence[int]) -> Indexing | None:
        """What differs between a recording and one with these integers."""
        again = self._trace(call, ids)
        if again is None or misaligned(made.recording, again.recording) is not None:
            return None
        slots = sorted(made.indexed)
        indexing = Indexing(made.recording, tuple([call.ints[k] for k in slots]))
        indexing.learn(again.recording, tuple([ids[k] for k in slots]))
        indexing.settle(made, again)
        return indexing

    # --- the program of a longer call -------------------------------------------------------------

    def join(self, call: Call, made: Trace) -> Variant | None:
        """A variant that runs on the code of a longer call, if there is one and it fits."""
        root = root_of(made.recording.result)
        found = self.family(call)
        if found is None or made.static or root is None:
            return None
        _, family, runs = found
        if family is None:
            return None
        slots = slots_among(runs, family.runs)
        if slots is None:
            return None
        indexed = tuple(sorted(made.indexed))
        ids = other_integers(indexed, call.ints)[0] if indexed else list(call.ints)
        indexing = self._twice(call, made, ids)
        if indexing is None:  # perhaps not all of these may stand there
            ids = family.other_integers(slots, call.ints)
            indexing = self._twice(call, made, ids)
        if indexing is None:
            return None
        source = self._source(call, made.recording, indexing, root.position, slots)
        fit = family.lifted.fitted(source)
        if fit is None:
            return None
        variant = Variant(
            made.recording,
            made.captured,
            {},
            indexing,
            tuple(sorted(made.indexed)),
            made.numeric,
            np.zeros(made.recording.inputs),
            np.zeros(made.recording.inputs),
        )
        variant.lifted, variant.fit = family.lifted, fit
        if self._reads_alike(family, fit, made, indexing, call, slots, ids):
            variant.family, variant.slots = family, slots
        return variant

    def _reads_alike(
        self,
        family: Family,
        fit: Fit,
        made: Trace,
        indexing: Indexing,
        call: Call,
        slots: Addresses,
        others: Sequence[int],
    ) -> bool:
        """Whether integers select here what they select in the longest.

        That is so if they read from the same containers. If not, each integer in each place must
        be seen at this length too.
        """
        if self.surroundings.identity:
            return False
        if not Read(made, fit, indexing).is_like(family.read, fit.gathers, slots):
            return False
        for row, given in ((indexing.rows[0], call.ints), (indexing.rows[1], others)):
            here = fit.gathered(row)
            known = self.choice(family, fit, slots, call, given)
            if here is None or known is None or not np.array_equal(here, known):
                return False
        return True

    def choice(
        self, family: Family, fit: Any, slots: Addresses, call: Call, ids: Sequence[int]
    ) -> Addresses | None:
        """What a member's gathers select; learnt from a recording of the longest if need be."""
        known = family.gathered(fit, slots, tuple(ids))
        if (
            known is None
            and family.proved is None
            and self.teach(family, call, family.padded(slots, ids))
        ):
            known = family.gathered(fit, slots, tuple(ids))
        return known

    def teach(self, family: Family, call: Call, ids: Sequence[int]) -> bool:
        """Record the longest call with these integers; whether something was learnt."""
        made = self._trace(resized(call, split(family.runs, ids)))
        if made is None or misaligned(family.indexing.base, made.recording) is not None:
            return False
        family.indexing.learn(made.recording, tuple([ids[k] for k in family.indexed]))
        return True

    def taught(self, variant: Variant, call: Call) -> bool:
        """Learn what the integers of this call select, for a variant on the code of a longer."""
        family, fit, slots = variant.family, variant.fit, variant.slots
        if family is None or fit is None or slots is None:
            return False
        if family.gathered(fit, slots, tuple(call.ints)) is not None:
            return False  # known already: it failed for another reason
        return self.choice(family, fit, slots, call, call.ints) is not None

    def longer(self, call: Call) -> Call | None:
        """A call half as long again, if this one outgrew its family's code and that can be run."""
        found = self.family(call)
        if found is None:
            return None
        _, family, runs = found
        if family is None or slots_among(runs, family.runs) is not None:
            return None
        rows = [
            (row * 2)[: len(row) + len(row) // 2] if is_list else row
            for row, (_, is_list) in zip(split(runs, call.ints), runs, strict=True)
        ]
        stretched = resized(call, rows)
        return stretched if self._trace(stretched) is not None else None
