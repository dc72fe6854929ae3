"""The structures of one function's calls, each with its variants: met, kept and let go.

In: the key of a call. Out: its ``Structure``. Only so many structures are kept, and so many
variants of each: those used least recently go.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from chainrule.compiler.runtime.lengths import has_lengths, outline_of
from chainrule.compiler.runtime.variants import Structure, Variant, branches

STRUCTURES = 1024  # of arguments, the least recently used goes
VARIANTS = 64  # of one structure, likewise


class Structures(dict[Any, Structure]):
    """By key, the last that was met at the end."""

    def meet(self, key: Any) -> tuple[Structure, list[Variant]]:
        """What is known of calls with a key, and the variants that are let go for it."""
        structure = self.pop(key, None) or Structure()
        self[key] = structure
        return structure, self._drop_one(key) if len(self) > STRUCTURES else []

    def _drop_one(self, newest: Any) -> list[Variant]:
        """Let go of the oldest structure without variants, or that whose were used least recently.

        Calls that the fast path answers do not come here: which was met last says little.
        """
        others = [key for key in self if key != newest]
        empty = next((key for key in others if not self[key].variants), None)
        dropped = empty or min(others, key=lambda key: max(v.used for v in self[key].variants))
        return self.pop(dropped).variants

    def variants(self) -> list[Variant]:
        """All variants."""
        return [v for structure in list(self.values()) for v in structure.variants]

    def put_first(self, structure: Structure, variant: Variant) -> None:
        """One more variant of a structure, which is tried before the others."""
        structure.variants.insert(0, variant)
        del structure.variants[VARIANTS:]

    def drop(self, variants: Collection[Variant]) -> None:
        """Let go of some variants."""
        gone = set(map(id, variants))
        for structure in self.values():
            structure.variants = [v for v in structure.variants if id(v) not in gone]

    def of_other_lengths(self, shape: Any) -> list[Variant]:
        """The variants of calls alike but for the lengths of their lists: they branch on the same.

        ``shape``: the outline of such a call.
        """
        if not has_lengths(shape):
            return []
        known = [(key, x) for (key, _), x in self.items() if x.variants]
        for key, x in known:
            if x.outline is None:
                x.outline = outline_of(key)
        return [v for _, x in known if x.outline == shape for v in x.variants]

    @property
    def are_served_by_sides(self) -> bool:
        """Whether recordings of both sides of branches serve all calls of most structures."""
        known = [structure for structure in self.values() if structure.sides]
        served = sum(any(branches(v) == 0 for v in structure.variants) for structure in known)
        return 2 * served > len(known)
