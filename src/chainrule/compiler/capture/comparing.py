"""How long it takes to find out whether what a function reads by itself is as it was.

In: how much there is of each kind. Out: seconds, estimated, and what there is in words. Every call
of compiled code compares all of it first, which may take longer than to run the function.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from chainrule.compiler.capture.standins import Unrecordable
from chainrule.core.backend import kernels

BEGINNING, EACH_BYTE = 5e-7, 2.2e-11  # seconds, for arrays and whatever else C does not look at
EACH_OTHER = 6e-8  # for what is compared in Python, such as the members of a set
EACH_LIST, EACH_ITEM, EACH_KEY = (EACH_OTHER,) * 3 if kernels is None else (2e-8, 1.7e-9, 7e-9)


@dataclass(frozen=True)
class Compared:
    """How much is compared before each call."""

    lists: int  # that C looks at, and dicts likewise
    items: int  # of these lists
    keys: int  # of these dicts, with what they stand for
    others: int  # members of sets and the like
    array_bytes: int
    only_in_c: bool

    @staticmethod
    def of(
        lists: Iterable[Collection[object]],
        dicts: Iterable[Collection[object]],
        others: Iterable[Collection[object]],
        arrays: Iterable[bytes],
        only_in_c: bool,
    ) -> Compared:
        """Of what there is of each kind."""
        lengths, keys = [*map(len, lists)], [*map(len, dicts)]
        return Compared(
            len(lengths) + len(keys),
            sum(lengths),
            sum(keys),
            sum(map(len, others)),
            sum(map(len, arrays)),
            only_in_c,
        )

    @staticmethod
    def of_containers(held: Collection[Any]) -> Compared:
        """Of the lists and dicts among some containers."""
        lists = [x for x in held if type(x) is list]
        return Compared.of(lists, [x for x in held if type(x) is dict], (), (), True)

    @property
    def seconds(self) -> float:
        """An estimate for one call."""
        in_c = EACH_LIST * self.lists + EACH_ITEM * self.items + EACH_KEY * self.keys
        slowly = 0.0 if self.only_in_c else BEGINNING
        return in_c + slowly + EACH_OTHER * self.others + EACH_BYTE * self.array_bytes

    def __str__(self) -> str:
        held = self.items + self.keys + self.others
        step = 10 ** max(0, len(str(held)) - 2)  # two digits: what grows has not a text each time
        in_arrays = EACH_BYTE * self.array_bytes > 0.5 * self.seconds
        return (
            f"{self.array_bytes / 1e6:,.2g} MB of arrays"
            if in_arrays and self.array_bytes >= 1e6
            else f"{self.array_bytes:,} bytes of arrays"
            if in_arrays
            else f"{held // step * step:,} items of lists, dicts and sets"
        )


def why_too_much(compared: Compared) -> str:
    """Why a function that reads so much by itself runs eagerly."""
    return (
        f"a replay would compare the {compared} that it reads from outside, which takes longer "
        "than to run it: pass it the rows that it needs"
    )


class TooMuch(Unrecordable):
    """Replays could not pay for what the function reads by itself."""

    def __init__(self, reason: str, objects: int) -> None:
        """``objects``: that were gone through to find it out."""
        super().__init__(reason)
        self.objects = objects


@dataclass(frozen=True)
class Bound:
    """What replays of a function can pay for, at most."""

    comparing: float  # seconds before each of them
    objects: float  # to be found, one by one

    def check(self, compared: Compared, objects: int) -> None:
        """Raise TooMuch where more than that was found, so that it is not all gone through."""
        if compared.seconds > self.comparing:
            raise TooMuch(why_too_much(compared), objects)

    def check_objects(self, found: int, more: int) -> None:
        """The same of the objects alone; ``more``: that are there for certain."""
        if found + more > self.objects:
            raise TooMuch(
                "it reaches so many objects that to follow them takes longer than replays would "
                "save: pass it those that it needs",
                found,
            )


ENDLESS = Bound(math.inf, math.inf)
