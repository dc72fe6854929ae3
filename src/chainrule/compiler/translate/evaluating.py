"""A translated function evaluated by JAX or torch, in double precision, with its gradient.

In: the function of a source. Out: an ``Evaluate``, which ``checking`` compares with eager mode:
plain arguments go in, the result and the gradient by the first argument come out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.runtime.results import has_extras
from chainrule.compiler.translate.checking import Evaluate
from chainrule.trees import map_leaves


def evaluated_by_jax(jax: Any, specialised: bool, function: Any) -> Evaluate:
    """Under ``jit``; ``specialised``: it returns beside its result whether that holds."""

    def first(*arguments: Any) -> tuple[Any, Any]:
        result = function(*arguments)
        value = result[0] if specialised else result
        return (value[0] if has_extras(value) else value), result

    def both(*arguments: Any) -> tuple[Any, Any]:
        result = function(*arguments)
        value = result[0] if specialised else result
        if isinstance(value, list | dict | tuple) and not has_extras(value):
            return result, None
        return result, jax.grad(first, has_aux=True)(*arguments)[0]

    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    compiled = jax.jit(both, compiler_options=quick)  # for few calls of small arrays

    def evaluate(arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        with jax.enable_x64(True):
            try:
                return compiled(*arguments)  # type: ignore[no-any-return]
            except TypeError:  # an argument that is no number: jit takes none
                return both(*arguments)

    return evaluate


def evaluated_by_torch(torch: Any, specialised: bool, function: Any) -> Evaluate:
    """By ``torch.autograd``; see ``evaluated_by_jax``."""

    def evaluate(arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        leaves: list[Any] = []

        def tensor(x: Any) -> Any:
            if not isinstance(x, float | np.ndarray | np.generic):
                return x
            return torch.as_tensor(np.asarray(x))

        def is_number(x: Any) -> bool:
            return isinstance(x, int | float | np.ndarray | np.generic) and not isinstance(x, bool)

        def leaf(x: Any) -> Any:
            if not is_number(x):
                return x
            leaves.append(torch.as_tensor(x, dtype=torch.float64).requires_grad_())
            return leaves[-1]

        def plain(x: Any) -> Any:
            return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x

        first, *others = arguments
        others = [map_leaves(tensor, x, True) for x in others]
        with torch.enable_grad():  # also where the caller needs none
            result = function(map_leaves(leaf, first, True), *others)
        value = result[0] if specialised else result
        value = value[0] if has_extras(value) else value
        found, gradient = map_leaves(plain, result, True), None
        if isinstance(value, torch.Tensor):
            slopes = [torch.zeros_like(x) for x in leaves]
            if value.requires_grad:
                slopes = torch.autograd.grad(
                    value, leaves, allow_unused=True, materialize_grads=True
                )
            found_slopes = iter(slopes)
            gradient = map_leaves(
                lambda x: plain(next(found_slopes)) if is_number(x) else x, first, True
            )
        return found, gradient

    return evaluate
