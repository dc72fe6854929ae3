"""Where the integers of a recording read, which proves what any integer would select."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.infer import Indexing
from chainrule.compiler.capture.tracing import Trace
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.learning.families import Choices
from chainrule.compiler.runtime.machine import Fit


class Provenance:
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

    def is_like(self, longest: Provenance, gathers: Addresses, slots: Addresses) -> bool:
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
