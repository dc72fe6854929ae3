"""A map like an earlier one, without taking its arguments apart again.

In: the arguments of ``map``. Out: its results, if arguments of the same structure, shapes and types
went through one piece of machine code before, and these do now; else None, and the slow path does
it. What may differ from the earlier map is looked at here: structure and types in C, captured
state, numbers and branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.mapping.blocks import Blocks, Destination
from chainrule.compiler.mapping.lane_code import LaneCode
from chainrule.compiler.mapping.results import Results
from chainrule.compiler.mapping.rounds import Rounds
from chainrule.compiler.mapping.stacks import Layout, Source
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.variants import Structure
from chainrule.core.backend import kernels
from chainrule.trees import Floats, Node

MOST = 16  # kinds of maps that are kept, each with its memory
DOUBLE = np.dtype(np.float64)


@dataclass(eq=False, slots=True)
class Asked:
    """What a map was asked for, as far as C takes its arguments apart."""

    key: Any  # equal for maps that may be prepared alike
    shared: tuple[Any, ...]  # the arguments that all samples share
    stacked: tuple[Any, ...]  # the arrays that hold the samples
    has_parameters: bool  # a gradient is wanted by the first argument, the only one that is shared

    @classmethod
    def of(
        cls, arguments: Sequence[Any], axes: Sequence[int | None], rows: bool, differentiate: bool
    ) -> Asked | None:
        """The arguments of a map; None where they are not plain, or hold Values or integers."""
        if kernels is None:
            return None
        shared, stacked, shapes, count = [], [], [], 0
        for x, axis in zip(arguments, axes, strict=True):
            if axis is None:
                shared.append(x)
            elif axis == 0 and type(x) is np.ndarray and x.dtype is DOUBLE and x.ndim and len(x):
                if len(x) != (count or len(x)):
                    return None
                count = len(x)
                stacked.append(x)
                shapes.append(x.shape[1:])
            else:
                return None
        if not stacked:
            return None
        is_first = differentiate and axes[0] is None
        passed = kernels.passed(tuple(shared), np.ndarray, np.float64, is_first, {}, True)
        if passed is None or passed.ids:
            return None
        key = (passed.signature, tuple(shapes), tuple(axes), rows, differentiate)
        return cls(key, tuple(shared), tuple(stacked), is_first and len(shared) == 1)

    def numbers(self, count: int) -> Floats | None:
        """The numbers that all samples share; None where they are not so many floats."""
        row, none = np.empty((1, count)), np.empty((1, 0), np.int64)
        assert kernels is not None
        found = kernels.sample_numbers([self.shared], np.ndarray, np.float64, row, none)
        return row[0] if found else None


@dataclass(eq=False)
class Prepared:
    """A function over samples, by one piece of machine code."""

    code: LaneCode
    lanes: Any  # where the variant has the code
    structure: Structure  # what is known of one sample's call
    state: Any  # the captured state
    first: Node  # the structure of the first argument
    template: Any  # what a sample returns, without its numbers
    differentiates: bool
    rows: bool  # a row for each sample; else totals
    places: Addresses  # among the floats of a call, those of shared arguments
    sources: tuple[tuple[int, int], ...]  # of each stacked array: its first float, and how many
    blocks: Blocks | None = None  # of the last such map

    @classmethod
    def of(cls, dispatch: Dispatch, asked: Asked, rounds: Rounds) -> Prepared | None:
        """What a map has prepared; None where the next one like it must look at more."""
        call, code, layout, results = rounds.call, rounds.only, rounds.layout, rounds.results
        if code is None or layout is None or call.ints or not _is_plain(dispatch, call):
            return None
        is_shared = np.ones(call.size, np.bool_)
        for source in layout.floats:
            is_shared[source.first : source.first + source.count] = False
        places, whole = np.flatnonzero(is_shared), np.empty(call.size)
        call.write(whole)
        numbers = asked.numbers(len(places))
        if numbers is None or numbers.tobytes() != whole[places].tobytes():
            return None
        return cls(
            code,
            rounds.key,
            dispatch.structure_of(call),
            dispatch.captured,
            call.structure[0][0],
            results.template,
            results.differentiates,
            results.rows,
            places,
            tuple([(s.first, s.count) for s in layout.floats]),
        )

    def is_current(self, dispatch: Dispatch) -> bool:
        """Whether all but the arguments is as it was."""
        variant, captured = self.code.variant, dispatch.captured
        return (
            captured is self.state
            and captured is not None
            and captured.changed() is None
            and variant in self.structure.variants
            and variant.lanes.get(self.lanes) is self.code
        )

    def run(self, dispatch: Dispatch, asked: Asked, threads: int) -> Results | None:
        """What the samples give; None where the slow path must find it."""
        code, count, numbers = self.code, len(asked.stacked[0]), asked.numbers(len(self.places))
        if numbers is None:
            return None
        inputs = np.zeros(code.variant.recording.inputs)
        inputs[self.places] = numbers
        shared = code.with_shared(inputs)
        if shared is None:
            return None
        results = Results(self.differentiates, code.parameters, count, self.rows, self.template)
        if self.rows:
            results.values = np.empty((count, len(code.outputs)))
        to = Destination(results.values, results.gradients)
        pairs = zip(asked.stacked, self.sources, strict=True)
        layout = Layout(tuple([Source(array, *at) for array, at in pairs]), ())
        if self.blocks is None or not self.blocks.again(shared, layout, to):
            if self.blocks is not None:
                self.blocks.close()
            self.blocks = Blocks(code, shared, (), layout, to)
        left = results.take(self.blocks.run(range(count), threads), code)
        self.blocks.let_go()
        if left is None or len(left):
            return None
        dispatch.count_mapped(count, self.structure, code.variant)
        return results


def _is_plain(dispatch: Dispatch, call: Call) -> bool:
    """Whether what C does not look at makes no difference for such calls."""
    captured = dispatch.captured
    if captured is None or call.labels or call.comes_again:
        return False
    if any(kind != DOUBLE.str for _, kind in call.narrow):
        return False
    return not (captured.identity and call.may_come_again)


def answer(dispatch: Dispatch, asked: Asked, threads: int) -> tuple[Results, Prepared] | None:
    """The results of a map like an earlier one; None: the slow path must find them."""
    with dispatch.lock:
        found = dispatch.prepared.get(asked.key)
        if found is None or dispatch.busy:
            return None
        dispatch.busy = True
        try:
            results = found.run(dispatch, asked, threads) if found.is_current(dispatch) else None
        finally:
            dispatch.busy = False
        if results is None:
            del dispatch.prepared[asked.key]
            return None
        return results, found


def prepare(dispatch: Dispatch, asked: Asked, rounds: Rounds) -> None:
    """Let maps such as this one be answered at once from now on, if they can."""
    with dispatch.lock:
        made = Prepared.of(dispatch, asked, rounds)
        if made is not None and made.is_current(dispatch):
            if len(dispatch.prepared) >= MOST:
                dispatch.prepared.clear()
            dispatch.prepared[asked.key] = made
