"""The mean over a batch of samples and its gradient, many samples at a time in machine code.

In: a function's ``Dispatch``, parameters and samples. Out: the mean value and its gradient. Samples
of one structure go the way of ``map``. Those with lists of integers of several lengths share the
code of the longest, and what does not run on it is computed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.arguments import flatten_call, like_first
from chainrule.compiler.capture.tracing import is_internal
from chainrule.compiler.mapping.blocks import thread_count
from chainrule.compiler.mapping.calls import reduced
from chainrule.compiler.mapping.rounds import Rounds
from chainrule.compiler.mapping.stacks import Batch
from chainrule.compiler.runtime.calls import value_and_grad
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.results import NUMERIC, fill, numeric_leaves
from chainrule.compiler.training import step_code
from chainrule.compiler.training.lanes import Arrangement
from chainrule.compiler.training.packing import PackedSamples
from chainrule.core.backend import Value, modes
from chainrule.derivatives import transforms
from chainrule.trees import map_leaves

Floats = npt.NDArray[Any]

PACKED = 64  # samples of each length for which packing pays where each has a lane of its own
ALIKE = 8  # samples of each length, on average, for which it pays to look at all of them first


def batch_value_and_grad(
    dispatch: Dispatch,
    params: Any,
    samples: Sequence[Sequence[Any]],
    out: Any = None,
    threads: int | None = None,
) -> Any:
    """``CompiledFunction.batch_value_and_grad``; see there."""
    samples = list(samples)
    if not samples:
        raise ValueError("batch_value_and_grad needs at least one sample")
    for sample in samples:
        if not isinstance(sample, tuple):
            raise TypeError(
                "a sample is a tuple of the arguments after the first: "
                f"got a {type(sample).__name__}"
            )
    results = _mapped(dispatch, params, samples, thread_count(threads))
    if results is not None:
        return results[0], fill(out, results[1])
    mean, grads, left = _batched(dispatch, params, samples) or (0.0, None, samples)
    if len(left) < len(samples) and not all(_may_be_overtaken(dispatch, params, x) for x in left):
        mean, grads, left = 0.0, None, samples
    sums = None if grads is None else _Sums(_arrays(grads))
    for sample in left:
        value, grads = value_and_grad(dispatch, (params, *sample), {}, at_once=True)
        mean += (value[0] if isinstance(value, tuple) else value) / len(samples)
        found = _arrays(grads)
        if sums is None:
            sums = _Sums([a / len(samples) for a in found])
        else:
            sums.add(found, len(samples))
    rest = iter(sums.every() if sums is not None else [])
    filled = map_leaves(lambda x: next(rest) if isinstance(x, NUMERIC) else x, grads, True)
    return mean, fill(out, filled)


def _may_be_overtaken(dispatch: Dispatch, params: Any, sample: Any) -> bool:
    return dispatch.may_be_overtaken(flatten_call((params, *sample), {}, differentiate=True))


class _Sums:
    """The sums of gradients, in one row where they are arrays of one type: that is quicker."""

    def __init__(self, first: list[Any]) -> None:
        self._leaves: list[Any] = first
        self._kinds = [(type(a), getattr(a, "shape", None)) for a in first]
        self._row: Floats | None = None
        kinds = {getattr(a, "dtype", None) for a in first}
        if len(first) > 1 and len(kinds) == 1 and {type(a) for a in first} == {np.ndarray}:
            self._row = np.concatenate([a.ravel() for a in first])
            self._more = np.empty_like(self._row)

    def add(self, found: list[Any], count: int) -> None:
        """Add a gradient, divided by ``count``."""
        row, kinds = self._row, [(type(a), getattr(a, "shape", None)) for a in found]
        if row is not None and kinds == self._kinds and all(a.dtype == row.dtype for a in found):
            np.concatenate([a.ravel() for a in found], out=self._more)
            self._more /= count
            row += self._more
            return
        pairs = zip(self.every(), found, strict=True)
        self._leaves, self._row = [a + b / count for a, b in pairs], None

    def every(self) -> list[Any]:
        """The sums, as the gradients are."""
        if self._row is None:
            return self._leaves
        ends = np.cumsum([a.size for a in self._leaves])[:-1]
        parts = np.split(self._row, ends)
        return [part.reshape(shape) for part, (_, shape) in zip(parts, self._kinds, strict=True)]


def _arrays(tree: Any) -> list[Any]:
    """The numbers and arrays of a gradient, in order."""
    if type(tree) is dict and set(map(type, tree.values())) == {np.ndarray}:
        return list(tree.values())
    return numeric_leaves(tree)


def _mapped(
    dispatch: Dispatch, params: Any, samples: list[Any], threads: int
) -> tuple[float, Any] | None:
    """The mean and its gradient, where all samples have one structure and run in lanes."""
    if len(samples) < 2 or modes.recorder is not None or transforms.is_nested() or is_internal():
        return None
    batch = Batch.of(params, samples)
    if batch is None:
        return None
    rounds = Rounds(dispatch, batch, True, rows=False, threads=threads)
    if dispatch.tells_apart(rounds.call):
        return None
    results = rounds.run_in_lanes()
    if results is None:
        return None
    made: tuple[float, Any] = reduced(results, rounds.call.structure[0][0], params, mean=True)
    return made


def _batched(
    dispatch: Dispatch, params: Any, samples: list[Any]
) -> tuple[float, Any, list[Any]] | None:
    """What most samples add to the mean, many at a time in machine code, and the others."""
    if len(samples) < 2 or dispatch.options.lift is False or modes.recorder is not None:
        return None
    call = flatten_call((params, *samples[0]), {}, differentiate=True)
    if call.refused is not None or any(isinstance(x, Value) for x in call.floats):
        return None
    with dispatch.lock:
        if dispatch.busy:
            return None
        dispatch.busy = True
        try:
            if len(samples) < dispatch.one_by_one:
                return None
            packed = PackedSamples(dispatch, params, samples)
            if len(packed.structures(np.arange(len(samples)))) * ALIKE > len(samples):
                return None
            if packed.kind_of(packed.longest()) is None:
                return None
            row = np.empty(call.size)
            call.write(row)
            answer = _mean_of(packed, row[: call.first])
        finally:
            dispatch.busy = False
        if answer is None:
            return None
        value, slopes, left = answer
        dispatch.count_replayed(len(samples) - len(left))
    gradient = np.concatenate([slopes, np.zeros(call.size - call.first)])
    return value, like_first(call.structure[0][0], params, gradient), [samples[k] for k in left]


def _mean_of(packed: PackedSamples, parameters: Floats) -> tuple[float, Floats, list[int]] | None:
    """What samples add to the mean value of all, and to its gradient by the parameters.

    These come in one row. At the end: which samples do not run on the code of the others, and are
    left out. None where too few are left, or something is not finite.
    """
    count, size = len(packed.samples), len(parameters)
    packed.look_at(np.arange(count))
    machine, chosen = packed.machine, np.flatnonzero(packed.fit_of >= 0)
    if machine is None or len(chosen) < 2:
        return None
    made = Arrangement(packed, chosen, len(chosen))
    few = PACKED * len(packed.fits)
    if made.lanes == 1 and count < few:
        packed.dispatch.one_by_one = few
        return None
    code, groups = made.code, made.groups(chosen)
    gathers, own = groups.gathers(), groups.own()
    constants, counts = made.constants, made.counts
    root = (made.root - made.program.shared) * made.lanes
    machine.current = None
    code.shared[:size] = parameters
    value, gradient = 0.0, np.zeros(size)
    for g, fit in enumerate(groups.fits.tolist()):
        code.shared[made.program.inputs :] = constants[fit]
        code.gathers[:] = gathers[g].ravel()
        code.own[: own[g].size] = own[g].ravel()
        code.seeds[:] = groups.counted[g]  # 1 where there is one lane, as everybody expects
        trips = step_code.words(counts[fit])
        if not code.run(trips) or not code.sweep(trips):
            return None
        value += float(code.own[root : root + made.lanes] @ code.seeds)
        gradient += code.shared_adjoints[:size]
    return value / count, gradient / count, np.flatnonzero(packed.fit_of < 0).tolist()
