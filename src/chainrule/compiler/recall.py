"""A call like the last one, without taking its arguments apart again.

Training asks for the same gradient over and over: the same dict of arrays, with other numbers in
them, and some integers. In: the arguments of a call that ran lifted. Out: a ``Recall``, which knows
such a call again by the identity of its containers and arrays, and answers it from the machine
code. Whatever it does not know again goes the long way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.inputs import Call
from chainrule.compiler.record import Output
from chainrule.compiler.variants import Variant
from chainrule.engine import kernels

Floats = npt.NDArray[np.float64]
DOUBLE = np.dtype(np.float64)
VARIANTS = 64  # lengths that are known again


class Recall:
    """The first argument of a call, as it was, and the variants that served calls with it."""

    def __init__(self, call: Call) -> None:
        self.first = call.arguments[0]
        self.size = call.first
        self.arrays: list[npt.NDArray[np.float64]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.checks: list[tuple[Any, ...]] = []
        self.known = kernels is not None
        self._build = self._template(self.first)
        self.flat = [a.reshape(-1) for a in self.arrays] if self.known else []
        self.variants: dict[tuple[int, ...], Variant] = {}
        self._checks = tuple(self.checks)

    def _template(self, nest: Any) -> Callable[[Floats], Any]:
        """Take in a nest; gives what makes the gradient like it from all numbers in a row."""
        kind = type(nest)
        if kind is np.ndarray and nest.dtype is DOUBLE and nest.flags.c_contiguous and nest.size:
            start = sum(a.size for a in self.arrays)
            stop, shape = start + nest.size, nest.shape
            self.arrays.append(nest)
            self.shapes.append(shape)
            if len(shape) == 1:
                return lambda row: row[start:stop]
            return lambda row: row[start:stop].reshape(shape)
        if kind is dict:
            self.checks.append((nest, tuple([x for pair in nest.items() for x in pair])))
            parts = [(key, self._template(x)) for key, x in nest.items()]
            return lambda row: {key: part(row) for key, part in parts}
        if kind in (list, tuple):
            if kind is list:
                self.checks.append((nest, tuple(nest)))
            items = [self._template(x) for x in nest]
            return lambda row: kind([item(row) for item in items])
        self.known = False
        return lambda row: None

    def learn(self, call: Call, variant: Variant) -> None:
        """Let a variant serve calls such as this from now on."""
        lifted, fit = variant.lifted, variant.fit
        if not self.known or lifted is None or fit is None or variant.captured or variant.static:
            return
        if call.size != call.first or lifted.reads_private or call.keywords or variant.numeric:
            return
        if not isinstance(variant.recording.result, Output) or self.ids(call.arguments) is None:
            return
        if len(self.variants) < VARIANTS:
            self.variants[self._lengths(call.arguments)] = variant

    @staticmethod
    def _lengths(arguments: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple([len(x) for x in arguments[1:]])

    @staticmethod
    def ids(arguments: tuple[Any, ...]) -> tuple[int, ...] | None:
        """The integers of a call that passes nothing but lists of integers after the first."""
        if len(set(map(id, arguments))) < len(arguments):
            return None  # one list twice is not two lists
        ids: list[int] = []
        for x in arguments[1:]:
            if type(x) is not list or not x:
                return None
            ids += x
        return tuple(ids) if {int}.issuperset(map(type, ids)) else None

    def find(self, arguments: tuple[Any, ...]) -> tuple[Variant, Any] | None:
        """The variant for a call and what its gathers select, if the call is known again."""
        if arguments[0] is not self.first or not self.variants:
            return None
        ids = self.ids(arguments)
        variant = None if ids is None else self.variants.get(self._lengths(arguments))
        if variant is None or kernels is None or kernels.same_items(self._checks) >= 0:
            return None
        for a, shape in zip(self.arrays, self.shapes, strict=True):
            if a.shape != shape or a.dtype is not DOUBLE:
                return None
        gathered = variant.gathered(ids or ())
        return None if gathered is None else (variant, gathered)

    def compute(self, variant: Variant, gathered: Any) -> tuple[float, Any] | None:
        """The value and its gradient; None where something is not finite."""
        lifted, fit = variant.lifted, variant.fit
        assert lifted is not None
        assert fit is not None
        if not lifted.run_over(fit, gathered, self.flat, self.size) or not lifted.code.sweep(
            fit.counts_at
        ):
            return None
        result: Output = variant.recording.result
        variant.ran_lifted = True
        value = lifted.number(result.position)
        row = np.array(lifted.code.shared_adjoints[: self.size], np.float64)
        return None if value is None else (value, self._build(row))
