"""Large graphs made small enough to look at: nodes in, at most ``target`` parts out.

The method looks at nothing but structure, and goes no further than it must:

1. *units*: a chain of ``+`` with the products it adds up is one "dot product of 16";
2. *groups*: units of one shape at one depth, used alike, are one "16 × dot product of 16";
3. *runs*: a group that feeds one other group is drawn with it: "16 × dot product of 16 → tanh";
4. *bands*: what is left is cut into slices of depth.

Whatever is joined, no part is both before and after another, so the picture has no cycle.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from chainrule.core.backend import Value
from chainrule.see.drawing.fusing import Unit, fuse, title
from chainrule.see.names import Kind, elide

_MOST_ROUNDS = 2  # of telling groups apart
_LONGEST_RUN = 3  # groups named in a run's title
_LONGEST_TITLE = 60

LeafKind = Literal["input", "weight", "data"]

#: a group number for each unit
Grouping = list[int]


@dataclass(frozen=True)
class Part:
    """Some nodes of a graph that are drawn as one box."""

    title: str
    nodes: tuple[int, ...]  # places in the topological order
    results: tuple[int, ...]  # the nodes whose numbers stand for the part
    leaves: LeafKind | None = None  # of a part without operations


def collapse(
    order: Sequence[Value],
    names: Sequence[str],
    target: int,
    kinds: Sequence[Kind] | None = None,
) -> list[Part]:
    """The nodes of a topological order in at most ``target`` parts, each node in one of them."""
    units = fuse(order, names)
    grouping: Grouping | None = list(range(len(units)))
    if len(units) > target:
        grouping = _absorb_leaves(units)
        if len(set(grouping)) > target:
            grouping = _finest_grouping(units, target)
    if grouping is None:
        grouping = _place_leaves(units, _contract(units, target * 2 // 3), target)
    members: defaultdict[int, list[int]] = defaultdict(list)
    for n, group in enumerate(grouping):
        members[group].append(n)
    return [_part(units, part, kinds) for part in members.values()]


def _absorb_leaves(units: list[Unit]) -> Grouping:
    """Every unit by itself, but leaves that only one unit uses inside it."""
    grouping = list(range(len(units)))
    for n, users in enumerate(_consumers(units)):
        different = {user for user, _ in users}
        if units[n].is_leaf and len(different) == 1:
            grouping[n] = different.pop()
    return grouping


# --- step 2: groups -----------------------------------------------------------------------------


def _finest_grouping(units: list[Unit], target: int) -> Grouping | None:
    """The finest grouping that fits, or None where even the coarsest does not.

    Units of one kind at one level are told apart by what they use and what uses them, then by what
    uses those, and so on: queries, keys and values come out as three groups. Leaves are told apart
    by their uses, and by their names where those fit too.
    """
    after = _consumers(units)
    best = None
    for by_name in (False, True):
        grouping = _coarsest(units)
        for _ in range(_MOST_ROUNDS):
            grouping = _group_leaves(units, after, grouping, by_name)
            if len(set(grouping)) > 3 * target:
                break
            joined = _join_layers(units, grouping)
            if len(set(joined)) > target:
                break
            if best is None or len(set(joined)) > len(set(best)):
                best = joined
            grouping = _refine(units, after, grouping)
    return best


def _consumers(units: list[Unit]) -> list[list[tuple[int, str]]]:
    after: list[list[tuple[int, str]]] = [[] for _ in units]
    for n, unit in enumerate(units):
        for producer, use in unit.before:
            after[producer].append((n, use))
    return after


def _coarsest(units: list[Unit]) -> Grouping:
    return _numbered((-1 if u.is_leaf else (u.level, u.shape.kind)) for u in units)


def _refine(units: list[Unit], after: list[list[tuple[int, str]]], grouping: Grouping) -> Grouping:
    return _numbered(
        (
            grouping[n],
            frozenset([(grouping[c], use) for c, use in after[n]]),
        )
        for n in range(len(units))
    )


def _group_leaves(
    units: list[Unit], after: list[list[tuple[int, str]]], grouping: Grouping, by_name: bool
) -> Grouping:
    return _numbered(
        (
            frozenset([(grouping[c], use) for c, use in after[n]]),
            _pattern(unit.name) if by_name else "",
        )
        if unit.is_leaf
        else grouping[n]
        for n, unit in enumerate(units)
    )


def _numbered(keys: Iterable[Hashable]) -> Grouping:
    number: dict[Hashable, int] = {}
    return [number.setdefault(key, len(number)) for key in keys]


# --- steps 3 and 4: runs and bands --------------------------------------------------------------


def _join_layers(units: list[Unit], grouping: Grouping) -> Grouping:
    """Groups in single file joined, a few at a time: a layer is its dot products and its tanh."""
    blocks = _Blocks(units, grouping)
    pairs = zip(units, grouping, strict=True)
    reductions = {group for unit, group in pairs if unit.shape.is_reduction}
    length = dict.fromkeys(blocks.after, 1)
    for block in list(blocks.after):
        user = blocks.next_in_file(block)
        if user is None or user in reductions:
            continue
        if length[block] + length[user] <= _LONGEST_RUN:
            length[user] += length[block]
            blocks.join(block, user)
    return blocks.grouping()


def _contract(units: list[Unit], target: int) -> Grouping:
    """Groups of operations joined until at most ``target`` are left."""
    blocks = _Blocks(units, _coarsest(units))
    largest = 2
    while len(blocks.after) > target and largest < 2 * len(units):
        blocks.join_runs(largest, target)
        largest *= 2
    if len(blocks.after) > target:
        blocks.cut_bands(target)
    blocks.join_repeats()
    return blocks.grouping()


class _Blocks:
    """Groups of operations that are being joined: which uses which, and how large each is."""

    def __init__(self, units: list[Unit], grouping: Grouping) -> None:
        self._units, self._grouping = units, grouping
        operations = [n for n, unit in enumerate(units) if not unit.is_leaf]
        self.size = Counter(grouping[n] for n in operations)
        self.before: dict[int, set[int]] = {g: set() for g in self.size}
        self.after: dict[int, set[int]] = {g: set() for g in self.size}
        for n in operations:
            for p, _ in units[n].before:
                if not units[p].is_leaf:
                    self.before[grouping[n]].add(grouping[p])
                    self.after[grouping[p]].add(grouping[n])
        self._named = {grouping[n] for n in operations if units[n].shape.name}
        self._joined: dict[int, int] = {}

    def find(self, block: int) -> int:
        """What a group is part of by now."""
        while block in self._joined:
            block = self._joined[block]
        return block

    def grouping(self) -> Grouping:
        """The result: a group number for each unit, leaves as they were."""
        pairs = zip(self._units, self._grouping, strict=True)
        return [g if unit.is_leaf else self.find(g) for unit, g in pairs]

    def join(self, block: int, into: int) -> None:
        self._joined[block] = into
        self.size[into] += self.size.pop(block)
        for p in self.before[block] - {into}:
            self.after[p].discard(block)
            self.after[p].add(into)
        for c in self.after[block] - {into}:
            self.before[c].discard(block)
            self.before[c].add(into)
        self.before[into] = (self.before[into] | self.before.pop(block)) - {block, into}
        self.after[into] = (self.after[into] | self.after.pop(block)) - {block, into}

    def next_in_file(self, block: int) -> int | None:
        """The block's only user, if it uses nothing but this block and neither was named."""
        if len(self.after[block]) == 1:
            (user,) = self.after[block]
            if len(self.before[user]) == 1 and not {block, user} & self._named:
                return user
        return None

    def join_runs(self, largest: int, target: int) -> None:
        """Join each block with its only user, up to a size, so that the blocks stay alike."""
        for block in list(self.after):
            if len(self.after) <= target:
                return
            if len(self.after[block]) == 1:
                (user,) = self.after[block]
                # Every way out of the block leads through its only user: no cycle can arise.
                if self.size[block] + self.size[user] <= largest:
                    self.join(block, user)

    def cut_bands(self, target: int) -> None:
        """Join whatever lies in the same slice of depth."""
        level: dict[int, int] = {}
        waiting = {block: len(before) for block, before in self.before.items()}
        ready = [block for block, count in waiting.items() if not count]
        for block in ready:  # which grows as it is walked
            level[block] = max((level[p] + 1 for p in self.before[block]), default=0)
            for user in self.after[block]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        band: dict[int, int] = {}
        filled = 0
        for depth, count in sorted(Counter(level.values()).items()):
            band[depth] = filled * target // len(level)
            filled += count
        first: dict[int, int] = {}
        for block in ready:
            into = first.setdefault(band[level[block]], block)
            if into != block:
                self.join(block, into)

    def join_repeats(self) -> None:
        """Join blocks in single file that do the same things: the rounds of a loop."""
        kinds: defaultdict[int, set[Hashable]] = defaultdict(set)
        for unit, group in zip(self._units, self._grouping, strict=True):
            if not unit.is_leaf:
                kinds[self.find(group)].add(unit.shape.kind)
        for block in list(self.after):
            user = self.next_in_file(block)
            if user is not None and kinds[block] == kinds[user]:
                self.join(block, user)


def _place_leaves(units: list[Unit], grouping: Grouping, target: int) -> Grouping:
    """Leaves by the blocks that use them, or inside their only user where that is too many."""
    users: list[set[int]] = [set() for _ in units]
    for n, unit in enumerate(units):
        for p, _ in unit.before:
            users[p].add(grouping[n])
    leaves = [n for n, unit in enumerate(units) if unit.is_leaf]
    room = target - len({g for g, unit in zip(grouping, units, strict=True) if not unit.is_leaf})
    apart: dict[int, Hashable] = {n: frozenset(users[n]) for n in leaves}
    if len(set(apart.values())) > room:
        apart = {n: key for n, key in apart.items() if len(users[n]) != 1}
    if len(set(apart.values())) > room:
        apart = dict.fromkeys(apart, "shared")
    keys: list[Hashable] = list(grouping)
    for n in leaves:
        keys[n] = ("leaf", apart[n]) if n in apart else min(users[n])
    return _numbered(keys)


# --- from groups to parts -----------------------------------------------------------------------


def _part(units: list[Unit], members: list[int], kinds: Sequence[Kind] | None) -> Part:
    inside = [units[n] for n in members]
    nodes = tuple(sorted(i for unit in inside for i in unit.nodes))
    if all(unit.is_leaf for unit in inside):
        different = {kinds[i] for i in nodes} if kinds else set()
        leaves: LeafKind = "input"
        if different in ({"weight"}, {"data"}):
            leaves = "weight" if "weight" in different else "data"
        return Part(_leaf_title(inside, leaves), nodes, nodes, leaves)
    used_inside = {p for unit in inside for p, _ in unit.before}
    results = [units[n] for n in members if n not in used_inside] or inside[-1:]
    alike: defaultdict[Hashable, list[Unit]] = defaultdict(list)
    for unit in inside:
        if not unit.is_leaf:
            alike[unit.level, unit.shape.kind].append(unit)
    text = _run_title(list(alike.values()))
    return Part(elide(text, _LONGEST_TITLE), nodes, tuple(sorted(u.result for u in results)))


def _run_title(groups: list[list[Unit]]) -> str:
    """ "16 × dot product of 16 → tanh", or the ends of a run that is longer."""
    titles = [title([unit.shape for unit in group]) for group in groups]
    times = {len(group) for group in groups}
    if len(times) > 1:
        counted = [_times(len(g)) + text for g, text in zip(groups, titles, strict=True)]
        return " → ".join(
            counted if len(groups) <= _LONGEST_RUN else [counted[0], "…", counted[-1]]
        )
    prefix = _times(times.pop())
    for period in range(1, _LONGEST_RUN + 1):
        rounds = len(titles) // period
        if rounds > 1 and titles == titles[:period] * rounds + titles[: len(titles) % period]:
            return f"{prefix}{' → '.join(titles[:period])}, {rounds:,} times in a row"
    shown = titles if len(titles) <= _LONGEST_RUN else [titles[0], "…", titles[-1]]
    return prefix + " → ".join(shown)


def _times(count: int) -> str:
    return f"{count:,} × " if count > 1 else ""


def _leaf_title(leaves: list[Unit], kind: LeafKind) -> str:
    if len(leaves) == 1:
        return leaves[0].name
    stem = _shared_stem([_stem(leaf.name) for leaf in leaves])
    plural = {"input": "inputs", "weight": "weights", "data": "numbers of data"}[kind]
    return f"{len(leaves):,} × {stem}" if stem else f"{len(leaves):,} {plural}"


def _pattern(name: str) -> str:
    """A stem without the numbers on its way: ``layers.*.w`` of ``layers.0.w[3,5]``."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", _stem(name))


def _shared_stem(stems: list[str]) -> str:
    """The one stem of all, a star for a number that varies: ``layers.0.neurons.*.w``."""
    if len({_pattern(stem) for stem in stems}) > 1:
        return ""
    places = zip(*(stem.split(".") for stem in set(stems)), strict=True)
    return ".".join(place[0] if len(set(place)) == 1 else "*" for place in places)


def _stem(name: str) -> str:
    """What the names of items share: ``w`` of ``w[0][1]`` and of ``w[0,1]``, ``x`` of ``x12``."""
    stem = re.sub(r"(\[[\d,]+\]|\d+|#)+$", "", name)
    return stem if re.match(r"[^\W\d]", stem) else ""
