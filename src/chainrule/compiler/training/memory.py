"""The memory that training steps work in, and what the loop of ``step_code`` reads of it.

In: how samples go through machine code, how many parameters there are, and the update. Out: a
``Memory``: arrays for parameters, moments and sums, arenas for each thread, and the words of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.compiler.runtime.machine import cache_aligned
from chainrule.compiler.training import step_code, updates
from chainrule.compiler.training.lanes import Arrangement, Rows
from chainrule.compiler.training.stretches import AHEAD
from chainrule.trees import Array


class Memory:
    """What the steps work in, whoever takes them, and where it is."""

    def __init__(
        self,
        made: Sequence[Arrangement],
        size: int,
        parts: int,
        kind: str,
        clipped: bool = False,
    ) -> None:
        """``kind``: of the update, one of ``updates.UPDATES``."""
        self.made, dtype = list(made), made[0].code.shared.dtype
        self.dtype: np.dtype[Any] = dtype
        self.dtype_name = str(dtype)
        self.parameters: Array = made[0].code.shared[:size]
        number, shared = dtype.itemsize, max(one.program.shared for one in made)
        self._replicated = size < step_code.SMALL  # each thread has parameters of its own
        self.moments: list[Array] = [
            cache_aligned(size, dtype) for _ in range(updates.UPDATES[kind][1])
        ]
        self._arenas: list[list[list[Array]]] = []  # of each thread, for each code
        self._words: list[list[dict[str, int]]] = []  # likewise, what the loop reads of it
        self._replicas: list[list[Array]] = []  # of each further thread: parameters, moments, sums
        part = -(-(shared * number + 128) // 64) * 64
        update = updates.update(kind, size, str(dtype), clipped)
        first, second = (*self.moments, np.zeros(1))[:2]
        arrays = {
            "parameters": made[0].code.shared,
            "parts": cache_aligned(2 * part * parts, np.uint8),  # a thread may be a step ahead
            "part_losses": cache_aligned(2 * parts * step_code.LINE, np.int64),
            "total": cache_aligned(shared, dtype),
            "first_moment": first,
            "second_moment": second,
        }
        # Code that adds to a gradient needs zeros, and code without one leaves what is there.
        adds = made[0].code.many or not all(one.machine.differentiates for one in made)
        constants = [one.constants.astype(dtype) for one in made]
        self._codes = [_words_of(one, row) for one, row in zip(made, constants, strict=True)]
        self._kept = (arrays, update, constants)
        self.fields = {name: step_code.words(array) for name, array in arrays.items()} | {
            "update": update.address("update"),
            "part_bytes": part,
            "most_parts": parts,
            "gradient_bytes": size * number,
            "zeroed_bytes": shared * number if adds else 0,
            "clipped": int(clipped),
        }

    def is_finite(self) -> bool:
        """Whether all parameters and moments are."""
        return all(bool(np.isfinite(x).all()) for x in (self.parameters, *self.moments))

    def shares(self, threads: int, rows: Sequence[Rows]) -> list[step_code.Share]:
        """What the loop reads for each thread: the codes' own arenas for the first.

        ``rows``: what the groups of samples that run on each code read.
        """
        while len(self._arenas) < threads:
            own: list[list[Array]] = [
                [one.code.shared, one.code.own, one.code.adjoints] for one in self.made
            ]
            if self._arenas:
                own = [[cache_aligned(len(x), x.dtype) for x in some] for some in own]
            for one, some in zip(self.made, own, strict=True):
                count = one.lanes * len(one.program.places) + AHEAD
                some.append(cache_aligned(count, np.int64))
            self._arenas.append(own)
            names = ("shared", "own", "adjoints", "selected")
            words = [dict(zip(names, map(step_code.words, x), strict=True)) for x in own]
            self._words.append(
                [{**code, **here} for code, here in zip(self._codes, words, strict=True)]
            )
        read = [_words_of_rows(some) for some in rows]
        replicated = self._replicated and threads > 1
        return [
            step_code.Share(
                [{**code, **mine} for code, mine in zip(here, read, strict=True)],
                {"replicated": int(replicated), **(self._replica(k) if k and replicated else {})},
            )
            for k, here in enumerate(self._words[:threads])
        ]

    def _replica(self, thread: int) -> dict[str, int]:
        """Parameters and moments of a thread's own, as they are now, and room for its sums."""
        names = ("parameters", "total", "first_moment", "second_moment")
        while len(self._replicas) < thread:
            shared, size = self._arenas[len(self._replicas) + 1][0][0], len(self.parameters)
            moments = [cache_aligned(size, self.dtype) for _ in self.moments]
            total = cache_aligned(len(self._kept[0]["total"]), self.dtype)
            self._replicas.append([shared, total, *moments])
        mine = self._replicas[thread - 1]
        mine[0][: len(self.parameters)] = self.parameters
        for moment, copy in zip(self.moments, mine[2:], strict=True):
            copy[:] = moment
        return dict(zip(names, map(step_code.words, mine), strict=False))


def _words_of_rows(rows: Rows) -> dict[str, int]:
    """What the loop reads of samples, and how their addresses are stretched, if they are."""
    stretches = rows.stretches
    is_single = stretches.are_single
    return {
        "samples": step_code.words(rows.own),
        "gathers": step_code.words(rows.gathers),
        "members": step_code.words(rows.members),
        "member_fits": 0 if rows.fits is None else step_code.words(rows.fits),
        "seeds": step_code.words(rows.seeds),
        "sample_count": rows.own.shape[1],
        "gather_words": rows.gathers.shape[1],
        "run_starts": 0 if is_single else step_code.words(stretches.starts),
        "run_lengths": 0 if is_single else step_code.words(stretches.lengths),
        "runs": 0 if is_single else len(stretches.starts),
    }


def _words_of(made: Arrangement, constants: Array) -> dict[str, int]:
    """What the loop reads of a code, whatever its samples."""
    code, program = made.code, made.program
    return {
        "pack": code.pack,
        "forward": code.forward,
        "reverse": code.reverse,
        "constants": step_code.words(constants),
        "counts": step_code.words(made.counts),
        "extra": 0 if made.extra is None else step_code.words(made.extra),
        "extra_count": 0 if made.extra is None else made.extra.shape[1],
        "moves": 0 if made.moves is None else step_code.words(made.moves),
        "gather_count": len(program.places),
        "inputs": program.inputs,
        "constant_bytes": constants.shape[1] * constants.itemsize,
        "count_words": made.counts.shape[1],
        "lanes": made.lanes,
        "root": made.root - program.shared,
    }
