"""The mean over a batch of samples and its gradient, many samples at a time in machine code.

In: a function's ``Dispatch``, parameters and samples. Out: the mean value and its gradient. Samples
of one structure go the way of ``map``. Those with lists of integers of several lengths share the
code of the longest. What does not run on it is computed one by one, and so are samples that are too
few for all that: in C, by the function's gate, as far as that has cached calls like them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.arguments import Call, flatten_call, like_first
from chainrule.compiler.capture.undisturbed import is_internal
from chainrule.compiler.mapping.blocks import thread_count
from chainrule.compiler.mapping.calls import reduced
from chainrule.compiler.mapping.costs import most_alone, saved
from chainrule.compiler.mapping.prepared import MOST
from chainrule.compiler.mapping.rounds import Rounds
from chainrule.compiler.mapping.stacks import Batch
from chainrule.compiler.runtime.calls import unanswered_value_and_grad
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.results import NUMERIC, fill, numeric_leaves
from chainrule.compiler.training.means import Means
from chainrule.core.backend import kernels, modes
from chainrule.derivatives import transforms
from chainrule.trees import arrays_in, like_arrays, map_leaves

Floats = npt.NDArray[Any]

DOUBLE = np.dtype(np.float64)

FEWEST = 16  # samples for which it pays to pack them
#: what packing a sample takes that is not lists of integers, as ``mapping.costs`` counts
PACKING = 120_000.0
MOST_LISTS = 64  # gradients that are kept to be added together
LOOKED = 12  # objects that could be followed while lanes are looked for in vain
ALIKE = 8  # samples for which it pays to look for the code of a length that was not met


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
    count, answer, found = len(samples), None, None
    is_few = count <= _most_alone(dispatch)
    if is_few:
        answer = dispatch.gate.mean(params, samples)
        if answer is not None and len(answer) == 2:
            return answer[0], fill(out, answer[1])
    for sample in samples:
        if not isinstance(sample, tuple):
            raise TypeError(
                "a sample is a tuple of the arguments after the first: "
                f"got a {type(sample).__name__}"
            )
    if not (is_few or dispatch.waits()):
        results = _mapped(dispatch, params, samples, thread_count(threads))
        if results is not None:
            return results[0], fill(out, results[1])
        found = _with_cached(dispatch, params, _batched(dispatch, params, samples), count)
        if found is None:
            dispatch.ledger.searched(LOOKED)
        elif any(dispatch.waits() or not may_be_overtaken(dispatch, params, x) for x in found[2]):
            found = None  # to find that out takes a while, too
    if found is None and not is_few and kernels is not None:
        answer = dispatch.gate.mean(params, samples)
        if answer is not None and len(answer) == 2:
            return answer[0], fill(out, answer[1])
    if found is None:
        found = (0.0, None, samples) if answer is None else _begun(params, samples, *answer)
    mean, grads, left = found
    sums = None if grads is None else _Sums(grads, 1)
    at_once = dispatch.spends_freely
    for sample in left:
        arguments = (params, *sample)
        answer = dispatch.answer(arguments, True)
        if answer is None:
            answer = unanswered_value_and_grad(dispatch, arguments, {}, at_once=at_once)
        value, grads = answer
        mean += (value[0] if isinstance(value, tuple) else value) / count
        if sums is None:
            sums = _Sums(grads, count)
        else:
            sums.add(grads, count)
    return mean, fill(out, None if sums is None else sums.tree())


def _most_alone(dispatch: Dispatch) -> int:
    """How many samples are sooner done one by one than lanes are prepared for them."""
    if kernels is None:  # nothing adds them up
        return 0
    found = most_alone(dispatch)  # what a sample is like is seen when some have been computed
    return FEWEST - 1 if found is None else found


def _begun(
    params: Any, samples: list[Any], mean: float, gradient: bytearray, done: int
) -> tuple[float, Any, list[Any]]:
    """What the first samples add to the mean, and the others."""
    first = flatten_call((params,), {}, differentiate=True).structure[0][0]
    return mean, like_first(first, params, np.frombuffer(gradient)), samples[done:]


def _with_cached(
    dispatch: Dispatch, params: Any, found: tuple[float, Any, list[Any]] | None, count: int
) -> tuple[float, Any, list[Any]] | None:
    """The same with the samples that are left, where cached calls answer all of them."""
    if found is None or not found[2]:
        return found
    mean, grads, left = found
    answer = dispatch.gate.mean(params, left)
    if answer is None or len(answer) != 2:
        return found
    sums = _Sums(grads, 1)
    sums.add(answer[1], count / len(left))
    return mean + answer[0] * len(left) / count, sums.tree(), []


def may_be_overtaken(dispatch: Dispatch, params: Any, sample: Any) -> bool:
    """Whether samples that come after this one may be computed before it."""
    call = flatten_call((params, *sample), {}, differentiate=True, texts=dispatch.texts)
    return dispatch.may_be_overtaken(call)


class _Sums:
    """The sum of gradients; in one row where they are trees of arrays, which is quicker."""

    def __init__(self, first: Any, count: int) -> None:
        self._first, self._row, arrays = first, None, _doubles_in(first)
        self._is_plain = type(first) is list and set(map(type, first)) == {float}
        self._lists: list[list[float]] = []  # that are still to be added, and
        self._count = 0.0  # what they are divided by
        if arrays is None:
            self._leaves = [_as(x, x / count) for x in numeric_leaves(first)]
        else:
            self._shapes = [a.shape for a in arrays]
            self._row = _joined(arrays) / count
            self._more = np.empty_like(self._row)

    def add(self, tree: Any, count: float) -> None:
        """Add a gradient, divided by ``count``."""
        if self._is_plain and type(tree) is list and self._count in (0.0, count):
            self._count = count
            self._lists.append(tree)
            if len(self._lists) >= MOST_LISTS:
                self._add_lists()
            return
        self._add_lists()
        self._add(tree, count)

    def _add_lists(self) -> None:
        """Add lists of floats, many at a time: most functions that run eagerly have such."""
        lists, count, self._lists, self._count = self._lists, self._count, [], 0.0
        if not lists:
            return
        try:
            rows = np.array([self._leaves, *lists])
        except ValueError:  # of another length
            rows = np.zeros(0, object)
        if rows.dtype is DOUBLE and rows.ndim == 2:
            with np.errstate(all="ignore"):
                rows[1:] /= count
                self._leaves = np.add.reduce(rows, axis=0).tolist()
            return
        for tree in lists:
            self._add(tree, count)

    def _add(self, tree: Any, count: float) -> None:
        arrays = None if self._row is None else _doubles_in(tree)
        if self._row is not None and arrays and [a.shape for a in arrays] == self._shapes:
            _joined(arrays, self._more)
            self._more /= count
            self._row += self._more
            return
        if self._row is not None:
            self._leaves, self._row = numeric_leaves(self.tree()), None
        pairs = zip(self._leaves, numeric_leaves(tree), strict=True)
        self._leaves = [_as(a, a + b / count) for a, b in pairs]

    def tree(self) -> Any:
        """The sum, as the gradients are."""
        self._add_lists()
        if self._is_plain:
            return list(self._leaves)
        if self._row is not None:
            return like_arrays(self._first, self._row)
        rest = iter(self._leaves)
        return map_leaves(lambda x: next(rest) if isinstance(x, NUMERIC) else x, self._first, True)


def _as(x: Any, result: Any) -> Any:
    """What was computed from a number; of an array with no axes numpy makes a number."""
    return np.asarray(result) if isinstance(x, np.ndarray) else result


def _doubles_in(tree: Any) -> list[Floats] | None:
    """The arrays of a tree that has some and nothing else, all of doubles."""
    arrays = arrays_in(tree)
    return arrays if arrays and all(a.dtype is DOUBLE for a in arrays) else None


def _joined(arrays: list[Floats], out: Floats | None = None) -> Floats:
    return np.concatenate([a.ravel() for a in arrays], out=out)


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
    if rounds.only is not None:
        dispatch.lane_work = rounds.only.machine.work
    made: tuple[float, Any] = reduced(results, rounds.call.structure[0][0], params, mean=True)
    return made


def _batched(
    dispatch: Dispatch, params: Any, samples: list[Any]
) -> tuple[float, Any, list[Any]] | None:
    """What most samples add to the mean, many at a time in machine code, and the others."""
    if len(samples) < FEWEST or dispatch.options.lift is False or modes.recorder is not None:
        return None
    if transforms.is_nested() or is_internal():
        return None
    call = flatten_call((params,), {}, differentiate=True)
    if call.refused is not None:
        return None
    with dispatch.lock:
        if dispatch.busy:
            return None
        dispatch.busy = True
        try:
            answer = _sums(dispatch, call, samples)
        finally:
            dispatch.busy = False
        if answer is None:
            return None
        value, slopes, left = answer
        dispatch.count_replayed(len(samples) - len(left))
    gradient = like_first(call.structure[0][0], params, slopes / len(samples))
    return value / len(samples), gradient, [samples[k] for k in left]


def _sums(
    dispatch: Dispatch, call: Call, samples: list[Any]
) -> tuple[float, Floats, list[int]] | None:
    """The sums over samples that machine code computes, and which it does not; ``call``: params.

    What was found out about lists of integers is kept for the next batch. A structure that was not
    met yet has to be recorded or looked up, which must pay for itself.
    """
    (params,) = call.arguments
    key = "batch", call.key
    means = dispatch.prepared.get(key)
    if means is None or means.captured is not dispatch.captured or not dispatch.is_fresh():
        means = Means(dispatch, params)
    means.packed.show(params, samples)
    try:
        unmet = means.packed.unmet()
        keeps = unmet is not None and arrays_in(params) is not None
        means.seen = means.seen + len(samples) if keeps else len(samples)
        if unmet is None:
            each = saved(dispatch)
            if (0.0 if each is None else each) < PACKING:
                return None
            whole = flatten_call((params, *samples[0]), {}, differentiate=True)
            if whole.refused is not None or whole.values:
                return None
            unmet = len(means.packed.structures.first_of_each(np.arange(len(samples))))
        answer = means.sums(call) if unmet * ALIKE <= means.seen else None
        if answer is not None:
            dispatch.lane_work = means.work
        if keeps:
            if len(dispatch.prepared) >= MOST:
                dispatch.prepared.clear()
            dispatch.prepared[key] = means
        return answer
    finally:
        means.packed.show(None, [])
