"""Matrices of derivatives: ``jacobian``, ``hessian``; and products: ``hvp``, ``jvp``, ``vjp``.

A function comes in; for a compiled one the derivative is compiled too. Out goes the function of the
same arguments that gives the matrix of derivatives, or its product with a vector. Every row is a
backward pass over the part of the graph that it depends on, so that zeros cost nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.core.backend import Value, modes, nonfinite, topological_order, vsum
from chainrule.core.condensed import Parts
from chainrule.core.graph import depending_on, steps_on
from chainrule.derivatives.arguments import Argument, flatten_argument, flatten_results
from chainrule.derivatives.backward import gradients, recording, share_of, slope_of
from chainrule.derivatives.transforms import (
    Call,
    Transform,
    _depends_on_enclosing,
    as_numbers,
    call,
    compiled_derivative,
    value_and_slopes,
)
from chainrule.trees import Array, Floats

Argnums = int | tuple[int, ...]


# --- matrices -------------------------------------------------------------------------------------


def jacobian(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, sparse: bool = False
) -> Callable[..., Any]:
    """The function that gives the derivative of every result of ``f`` by every number it is given.

    ``f`` returns a Value, a sequence or array of them, or a tree of those; the derivative has the
    shape of the result followed by that of the argument.

    >>> from chainrule import jacobian
    >>> jacobian(lambda x: [x[0] * x[1], x[0] + x[1]])([2.0, 3.0])
    array([[3., 2.],
           [1., 1.]])

    ``argnums`` and ``has_aux`` are as in ``grad``. With ``sparse`` it is scipy's sparse matrix, a
    row for each result and a column for each number, which holds what may differ from 0:

    >>> jacobian(lambda x: [y * y for y in x], sparse=True)([1.0, 2.0, 3.0]).nnz
    3
    """
    transform = Transform("jacobian", argnums, has_aux, sparse)
    compiled = compiled_derivative(f, transform)
    if compiled is not None:
        return compiled  # type: ignore[no-any-return]
    return _calling(f, transform, _jacobian)


def _jacobian(f: Callable[..., Any], transform: Transform, x: Any, *others: Any, **kw: Any) -> Any:
    argument = transform.flatten(x)
    made = call("jacobian", f, argument, others, kw, True, has_aux=transform.has_aux)
    if transform.sparse:
        return _with_aux(made, _sparse(made, made.outputs))
    matrix = made.rows(made.outputs)
    return _with_aux(made, blocks(made.results, made.argument, matrix))


def hessian(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, sparse: bool = False
) -> Callable[..., Any]:
    """The function that gives the second derivatives of ``f``: argument's shape, twice.

    For a tree it is a tree of trees: ``h["w"]["b"]`` is ∂²f/∂w∂b. The other arguments are as in
    ``jacobian``.

    >>> from chainrule import hessian
    >>> hessian(lambda x: x[0] ** 2 * x[1])([3.0, 5.0])
    array([[10.,  6.],
           [ 6.,  0.]])
    """
    transform = Transform("hessian", argnums, has_aux, sparse)
    compiled = compiled_derivative(f, transform)
    if compiled is not None:
        return compiled  # type: ignore[no-any-return]
    return _calling(f, transform, _hessian)


def _hessian(f: Callable[..., Any], transform: Transform, x: Any, *others: Any, **kw: Any) -> Any:
    argument = transform.flatten(x)
    made = call("hessian", f, argument, others, kw, twice=True, has_aux=transform.has_aux)
    if transform.sparse:
        return _with_aux(made, _sparse(made, made.gradients()))
    matrix = made.rows(made.gradients())
    return _with_aux(made, blocks(argument, argument, matrix))


def blocks(rows: Argument, columns: Argument, matrix: Array) -> Any:
    """A matrix as a tree of trees: for each block of rows, its columns in the argument's tree."""
    return rows.map(lambda block: columns.results(matrix[block.start : block.stop], block.shape))


def _with_aux(made: Call, result: Any) -> Any:
    return (result, *made.aux) if made.aux else result


def _calling(
    f: Callable[..., Any], transform: Transform, computing: Callable[..., Any]
) -> Callable[..., Any]:
    function = transform.in_order(f)

    @wraps(f)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        x, others = transform.pick(args)
        return computing(function, transform, x, *others, **kwargs)

    _TRANSFORMED[derivative] = transform, f
    return derivative


#: the derivatives of plain functions that were made here, so that ``compile`` knows them
_TRANSFORMED: weakref.WeakKeyDictionary[Any, tuple[Transform, Callable[..., Any]]] = (
    weakref.WeakKeyDictionary()
)


def transformed(derivative: Any) -> tuple[Transform, Callable[..., Any]] | None:
    """Which derivative of which function this is, if it is a matrix."""
    return _TRANSFORMED.get(derivative) if isinstance(derivative, FunctionType) else None


def compute(
    transform: Transform, f: Callable[..., Any], x: Any, *others: Any, **kwargs: Any
) -> Any:
    """The derivative of ``f`` by ``x``; of a product, ``x`` is a pair with the vector."""
    if transform.name in _COMPUTE:
        return _COMPUTE[transform.name](f, transform, x, *others, **kwargs)
    return transform.wanted(*value_and_slopes(f, transform, x, *others, **kwargs))


# --- sparse matrices ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where a sparse matrix has numbers, row after row: scipy's ``indices`` and ``indptr``."""

    shape: tuple[int, int]
    indices: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int32]

    @classmethod
    def of(cls, columns: Sequence[Sequence[int]], width: int) -> Pattern:
        """The pattern with these columns in each row, in order."""
        counts = np.cumsum([0, *map(len, columns)])
        found = [k for row in columns for k in row]
        return cls((len(columns), width), np.array(found, np.int32), counts.astype(np.int32))

    def filled(self, numbers: Floats) -> Any:
        """The matrix with these numbers, in that order."""
        arrays = _scipy_sparse()
        parts = (numbers, self.indices.copy(), self.indptr.copy())
        return arrays.csr_array(parts, shape=self.shape)

    def __str__(self) -> str:
        return f"{self.shape[0]}×{self.shape[1]}, {len(self.indices)} entries"


def _scipy_sparse() -> Any:
    try:
        import scipy.sparse  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError("sparse=True needs scipy: pip install 'chainrule[scipy]'") from None
    return scipy.sparse


def _sparse(made: Call, nodes: Sequence[Value]) -> Any:
    """The derivatives of some nodes by the leaves that each depends on."""
    if modes.recorder is not None:
        modes.recorder.forbid("a sparse matrix")
    if made.create_graph:
        raise TypeError("a sparse matrix holds numbers: sparse=True takes no argument with Values")
    place = {id(x): k for k, x in enumerate(made.leaves)}
    columns: list[list[int]] = []
    numbers: list[float] = []
    for y in nodes:
        reached = sorted([place[id(v)] for v in topological_order(y) if id(v) in place])
        columns.append(reached)
        numbers += gradients(y, [made.leaves[k] for k in reached])
    return Pattern.of(columns, len(made.leaves)).filled(np.array(numbers, np.float64))


# --- products -------------------------------------------------------------------------------------


def hvp(f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function of ``x`` and ``v`` that gives the Hessian of ``f`` at ``x`` times ``v``.

    The Hessian itself is never made: the cost is a few evaluations of ``f``, however many numbers
    ``x`` has. ``v`` has the structure of ``x``, and so has the result. It is always the second
    argument, also where ``argnums`` names another argument of ``f`` than the first.

    >>> from chainrule import hvp
    >>> hvp(lambda x: x[0] ** 2 * x[1])([3.0, 5.0], [1.0, 0.0])
    array([10.,  6.])
    """
    transform = Transform("hvp", argnums, has_aux)
    compiled = compiled_derivative(f, transform)
    if compiled is not None:
        return compiled  # type: ignore[no-any-return]
    function = transform.in_order(f)

    @wraps(f)
    def product(x: Any, v: Any, /, *args: Any, **kwargs: Any) -> Any:
        first, others = transform.pick((x, *args))
        return _hvp(function, transform, (first, v), *others, **kwargs)

    _TRANSFORMED[product] = transform, f
    return product


def _hvp(f: Callable[..., Any], transform: Transform, xv: Any, *others: Any, **kw: Any) -> Any:
    x, v = xv
    argument, direction = transform.flatten(x), transform.flatten(ordered_like(v, x), "v")
    check_structure("hvp needs v", direction, "x", argument)
    made = call("hvp", f, argument, others, kw, twice=True, has_aux=transform.has_aux)
    with recording(), nonfinite("allow"):  # only its derivative counts, not the sum itself
        along = vsum(g * step for g, step in zip(made.gradients(), direction.numbers, strict=True))
    keep = made.create_graph or direction.has_values or _depends_on_enclosing([along])
    return _with_aux(made, argument.results(replace(made, create_graph=keep).rows([along])))


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """``f(*primals)``, and its derivative along ``tangents``: the Jacobian times a vector.

    Both come in the structure of what ``f`` returns; with ``has_aux`` its second result follows.
    The cost is about that of ``f``, however many results it has.

    >>> from chainrule import jvp
    >>> jvp(lambda x, y: [x * y, x + y], (2.0, 3.0), (1.0, 0.0))
    ([6.0, 5.0], [3.0, 1.0])
    """
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)) or not given:
            raise TypeError(f"jvp takes {name} as a tuple, an item for each argument of f")
    transform = Transform("jvp", tuple(range(len(primals))), has_aux)
    compiled = compiled_derivative(f, transform)
    if compiled is not None:
        return compiled(tuple(primals), tuple(tangents))  # type: ignore[no-any-return]
    return _jvp(transform.in_order(f), transform, (tuple(primals), tuple(tangents)))


def _jvp(f: Callable[..., Any], transform: Transform, xv: Any) -> tuple[Any, ...]:
    x, v = xv
    argument, direction = transform.flatten(x, "primals"), transform.flatten(v, "tangents")
    check_structure("jvp needs tangents", direction, "primals", argument)
    made = call("jvp", f, argument, several=True, has_aux=transform.has_aux)
    keep = made.create_graph or direction.has_values
    along = _tangents(made, direction, keep or modes.recorder is not None)
    if keep:
        return (made.results.like(made.outputs), made.results.like(along), *made.aux)
    numbers = [y.data for y in made.outputs]
    return made.results.like(numbers), made.results.like(as_numbers(along)), *made.aux


def _tangents(made: Call, direction: Argument, differentiable: bool) -> list[Any]:
    """The derivative of each output along a direction, node by node from the inputs on."""
    found: dict[int, Any] = {}
    for leaf, step in zip(made.leaves, direction.numbers, strict=True):
        plain = isinstance(step, Value) or not differentiable
        found[id(leaf)] = step if plain else Value(step)
    zero: Any = Value(0.0) if differentiable else 0.0
    with recording(), nonfinite("allow" if modes.recorder is None else "raise"):
        for y in made.outputs:
            if modes.recorder is not None:
                modes.recorder.selector.differentiated(y, made.leaves)
            if differentiable:
                steps = steps_on(y, made.leaves)
            else:
                steps = [(node, Parts.of(node)) for node in depending_on(y, made.leaves)]
            for node, parts in steps:
                if id(node) not in found:
                    found[id(node)] = _tangent(node, parts, found, differentiable, zero)
    return [found.get(id(y), zero) for y in made.outputs]


def _tangent(
    node: Value, parts: Parts, found: Mapping[int, Any], differentiable: bool, zero: Any
) -> Any:
    total = None
    for i, child in enumerate(parts.children):
        step = found.get(id(child))
        if step is None:
            continue
        if differentiable:
            share = share_of(step, slope_of(node, parts, i))
        else:
            slope = node.local_grads[i]
            share = step * slope if step and slope else None
        if share is not None:
            total = share if total is None else total + share
    return zero if total is None else total


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """``f(*primals)``, and the function that gives a vector times the Jacobian.

    That one takes a number for each result of ``f``, in the same structure, and gives a tuple: the
    derivative of the weighted sum of the results by each argument. With ``has_aux`` the second
    result of ``f`` follows.

    >>> from chainrule import vjp
    >>> results, pull_back = vjp(lambda x, y: [x * y, x + y], 2.0, 3.0)
    >>> results, pull_back([1.0, 10.0])
    ([6.0, 5.0], (13.0, 12.0))
    """
    if not primals:
        raise TypeError("vjp takes the arguments of f after it")
    transform = Transform("vjp", tuple(range(len(primals))), has_aux)
    compiled = compiled_derivative(f, transform)
    function = transform.in_order(f)
    if compiled is not None:
        returned = compiled_derivative(f, replace(transform, name="results"))(*primals)
        result, *aux = returned if has_aux else (returned,)

        def pull_back(weights: Any) -> Any:
            return compiled(primals, weights)

        return (result, pull_back, *aux)
    made = call("vjp", function, transform.flatten(primals), several=True, has_aux=has_aux)

    def pull_back_eagerly(weights: Any) -> Any:
        return _pulled_back(made, weights)

    return (made.results.like(_shown(made)), pull_back_eagerly, *made.aux)


def _vjp(f: Callable[..., Any], transform: Transform, xv: Any) -> Any:
    x, weights = xv
    made = call("vjp", f, transform.flatten(x), several=True, has_aux=transform.has_aux)
    return _pulled_back(made, weights)


def _results(f: Callable[..., Any], transform: Transform, x: Any) -> Any:
    """What ``f`` returns, as ``vjp`` shows it."""
    made = call("vjp", f, transform.flatten(x), several=True, has_aux=transform.has_aux)
    return _with_aux(made, made.results.like(_shown(made)))


def _shown(made: Call) -> list[Any]:
    return [*made.outputs] if made.create_graph else [y.data for y in made.outputs]


def _pulled_back(made: Call, weights: Any) -> Any:
    given = flatten_results(weights)
    check_structure("vjp needs weights", given, "what f returns", made.results)
    flat = flatten_argument(weights, "weights")
    with recording(), nonfinite("allow"):
        along = vsum(y * w for y, w in zip(made.outputs, flat.numbers, strict=True))
    keep = made.create_graph or flat.has_values
    return made.argument.like(gradients(along, made.leaves, create_graph=keep))


_COMPUTE: dict[str, Callable[..., Any]] = {
    "jacobian": _jacobian,
    "hessian": _hessian,
    "hvp": _hvp,
    "jvp": _jvp,
    "vjp": _vjp,
    "results": _results,
}


def ordered_like(v: Any, x: Any) -> Any:
    """``v`` with the keys of its dicts in the order that ``x`` has them."""
    if isinstance(v, Mapping) and isinstance(x, Mapping) and v.keys() == x.keys():
        return {key: ordered_like(v[key], item) for key, item in x.items()}
    if type(v) is type(x) and type(v) in (list, tuple) and len(v) == len(x):
        return type(v)([ordered_like(a, b) for a, b in zip(v, x, strict=True)])
    return v


def check_structure(needed: str, given: Argument, of: str, wanted: Argument) -> None:
    """Raise a ValueError unless two trees have the same blocks."""
    if _shapes(given) != _shapes(wanted):
        raise ValueError(
            f"{needed} in the structure of {of}: {_shapes(wanted)}, not {_shapes(given)}"
        )


def _shapes(argument: Argument) -> Any:
    return argument.map(lambda block: block.shape)
