"""A compiler that is right, because it runs eagerly: what tests break in one place."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from fuzz_compare import eager_batch, eager_train, eager_value_and_grad
from fuzz_ways import refill, together


class Eager:
    """Stands for ``chainrule.compile``, and has all ways to call a compiled function."""

    def __init__(self, f: Any, **options: Any) -> None:
        self.f, self.right = f, eager_value_and_grad(f)
        self.batch_value_and_grad = eager_batch(f)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.f(*arguments, **keywords)

    def value_and_grad(self, *arguments: Any, out: Any = None) -> Any:
        value, gradient = self.right(*arguments)
        if out is None:
            return value, gradient
        refill(out, gradient)
        return value, out

    def bound(self, *arguments: Any) -> Bound:
        return Bound(self, arguments)

    def map_value_and_grad(self, params: Any, *stacks: Any, reduce: str | None = None) -> Any:
        each = [self.right(params, *sample) for sample in zip(*stacks, strict=True)]
        values, gradients = zip(*each, strict=True)
        if reduce is None:
            return np.array(values), together(np.array, list(gradients))
        total = np.sum if reduce == "sum" else np.mean
        return total(values).item(), together(lambda x: total(x, axis=0), list(gradients))

    def train(self, params: Any, samples: Any, optimiser: Any, steps: int) -> Any:
        return eager_train(self.f)(params, samples)[0]


class Bound:
    """A bound call."""

    def __init__(self, compiled: Eager, arguments: tuple[Any, ...]) -> None:
        self.compiled, self.arguments = compiled, arguments
        self.gradient = copy.deepcopy(arguments[0])

    def __call__(self) -> Any:
        return self.compiled.value_and_grad(*self.arguments, out=self.gradient)[0]
