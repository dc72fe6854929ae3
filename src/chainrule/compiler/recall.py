"""A call like the last one, without taking its arguments apart again.

Training asks for the same gradient over and over: the same dict of arrays, with other numbers in
them, and some integers. In: the arguments of a call that ran lifted. Out: a ``Recall``, which knows
such a call again by the identity of its containers and arrays, and answers it from the machine
code. Whatever it does not know again goes the long way.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.inputs import Call
from chainrule.compiler.lifted import Fit, Lifted
from chainrule.compiler.program import Addresses
from chainrule.compiler.record import Output
from chainrule.compiler.variants import Variant
from chainrule.engine import kernels

DOUBLE = np.dtype(np.float64)
LENGTHS = 64  # that are known again
MOST = 2**28  # numbers: one item of a numpy array has less than 2**31 bytes


@dataclass(frozen=True, eq=False)
class Known:
    """What answers calls with lists of certain lengths."""

    variant: Variant
    lifted: Lifted
    fit: Fit
    plan: Any  # a kernels.Plan


def _choose(variant: Variant, fit: Fit, ids: tuple[int, ...]) -> Addresses | None:
    """What the gathers of a variant select for these integers, if that is known."""
    return variant.gathered(ids) if variant.fit is fit else None


def _is_plain(array: npt.NDArray[Any]) -> bool:
    return array.dtype is DOUBLE and array.flags.c_contiguous


class Recall:
    """The first argument of a call, as it was, and what answers calls with it."""

    def __init__(self, call: Call) -> None:
        self.first = call.arguments[0]
        self.arrays: list[npt.NDArray[np.float64]] = []
        self.known = kernels is not None
        self.plans: dict[tuple[int, ...], Known] = {}
        checks: list[tuple[Any, ...]] = []
        self._template = self._name(self.first, checks)
        self._shapes = [a.shape for a in self.arrays]
        self.known &= 0 < sum([a.size for a in self.arrays]) < MOST
        self._checks = None if kernels is None else kernels.Checks(tuple(checks))

    def is_of(self, nest: Any) -> bool:
        """Whether this is the first argument, and as it was."""
        if nest is not self.first or self._checks is None or self._checks.failed() >= 0:
            return False
        return all(
            _is_plain(a) and a.shape == s for a, s in zip(self.arrays, self._shapes, strict=True)
        )

    @functools.cached_property
    def _record(self) -> np.dtype[Any]:
        """The gradient as one item, with a field for each array."""
        return np.dtype([(f"f{k}", DOUBLE, shape) for k, shape in enumerate(self._shapes)])

    def _name(self, nest: Any, checks: list[tuple[Any, ...]]) -> Any:
        """Take in a nest; gives one like it, with the name of its field for each array."""
        kind = type(nest)
        if kind is np.ndarray and _is_plain(nest) and nest.size:
            self.arrays.append(nest)
            return f"f{len(self.arrays) - 1}"
        if kind is dict:
            checks.append((nest, tuple([x for pair in nest.items() for x in pair])))
            return {key: self._name(x, checks) for key, x in nest.items()}
        if kind in (list, tuple):
            if kind is list:
                checks.append((nest, tuple(nest)))
            return kind([self._name(x, checks) for x in nest])
        self.known = False
        return None

    def learn(self, call: Call, variant: Variant) -> None:
        """Let a variant answer calls such as this from now on."""
        lifted, fit, result = variant.lifted, variant.fit, variant.recording.result
        if not self.known or lifted is None or fit is None or variant.captured or variant.static:
            return
        if call.size != call.first or lifted.reads_private or call.keywords or variant.numeric:
            return
        if not isinstance(result, Output) or len(self.plans) >= LENGTHS:
            return
        assert kernels is not None
        found, root = kernels.integers(call.arguments), int(fit.address[result.position])
        known = None if found is None else self.plans.get(found[0])
        if found is None or root < 0 or (known is not None and known.fit is fit):
            return
        indexing = variant.indexing if variant.family is None else variant.family.indexing
        plan = kernels.Plan(
            tuple(self.arrays),
            self._template,
            self._record,
            np.ndarray,
            functools.partial(_choose, variant, fit),
            indexing.ids,
            *lifted.code.parts(fit),
            root,
        )
        self.plans[found[0]] = Known(variant, lifted, fit, plan)

    def answer(self, arguments: tuple[Any, ...]) -> tuple[float, Any] | None:
        """The value and its gradient, if the call is known again and everything is finite."""
        if arguments[0] is not self.first or kernels is None or self._checks is None:
            return None
        found = kernels.integers(arguments)
        known = None if found is None else self.plans.get(found[0])
        if known is None or self._checks.failed() >= 0:
            return None
        if known.lifted.current is not known.fit:
            known.lifted.settle(known.fit)
        answer: tuple[float, Any] | None = known.plan.run(found[1])
        known.variant.ran_lifted = answer is not None
        return answer
