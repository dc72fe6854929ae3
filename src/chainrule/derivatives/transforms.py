"""Derivatives of functions: ``grad``, ``value_and_grad``, ``jacobian``, ``hessian``, ``hvp``.

A function of numbers comes in, a function that gives its derivative goes out, in the structure of
the argument. All of them stand on ``gradients``, which differentiates one Value with respect to
others without touching any ``.grad``; asked to create a graph it evaluates the op table's partials
over Values, so that the result can be differentiated again, to any order.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Literal, overload

import numpy as np

from chainrule.core import errors
from chainrule.core.backend import Value, _mode, modes, nonfinite, topological_order, vsum
from chainrule.core.graph import depending_on
from chainrule.core.ops import Op
from chainrule.derivatives.arguments import (
    Argument,
    array_of,
    flatten_argument,
    is_number,
    is_sequence,
    stacked,
    usual_like,
    usual_values,
)
from chainrule.trees import Array


def recording() -> AbstractContextManager[None]:
    """Keep the graph, even inside ``no_grad``: a derivative without one would be 0."""
    return _mode("grad", True)


# --- one Value with respect to others -------------------------------------------------------------


@overload
def gradients(y: Value, xs: Value, create_graph: Literal[False] = False) -> float: ...
@overload
def gradients(y: Value, xs: Value, create_graph: Literal[True]) -> Value: ...
@overload
def gradients(y: Value, xs: Array, create_graph: bool = False) -> Array: ...
@overload
def gradients(
    y: Value, xs: Iterable[Value], create_graph: Literal[False] = False
) -> list[float]: ...
@overload
def gradients(y: Value, xs: Iterable[Value], create_graph: Literal[True]) -> list[Value]: ...
@overload
def gradients(y: Value, xs: Any, create_graph: bool = False) -> Any: ...
def gradients(y: Value, xs: Any, create_graph: bool = False) -> Any:
    """The derivative of ``y`` with respect to each of ``xs``; no ``.grad`` is touched.

    For one Value the result is one number, for a sequence a list, for an array an array; where
    ``y`` does not depend on an x, 0. With ``create_graph`` the results are Values, to be
    differentiated further.

    >>> from chainrule import Value, gradients
    >>> x = Value(3.0)
    >>> gradients(x**3, x)
    27.0
    >>> slope = gradients(x**3, x, create_graph=True)
    >>> gradients(slope, x), x.grad
    (18.0, 0.0)
    """
    if not isinstance(y, Value):
        raise TypeError(
            f"gradients differentiates a Value, not {errors.describe(y)}; "
            "grad(f) differentiates a function"
        )
    elements = xs.flat if isinstance(xs, np.ndarray) else xs
    nodes = list(elements) if isinstance(elements, Iterable) else [xs]
    for x in nodes:
        if not isinstance(x, Value):
            raise TypeError(
                f"gradients takes a Value or a sequence of Values as xs, not {errors.describe(x)}"
            )
    results = _differentiable(y, nodes) if create_graph else _numbers(y, nodes)
    if isinstance(xs, Value):
        return results[0]
    if isinstance(xs, np.ndarray):
        return array_of(results, xs.shape, object if create_graph else np.float64)
    return results


def _numbers(y: Value, xs: list[Value]) -> list[float]:
    """The derivatives as numbers; a compiled function records how they are computed."""
    if modes.recorder is None:
        return y._gradients(xs, False)
    return [slope.data for slope in _differentiable(y, xs)]


def _differentiable(y: Value, xs: list[Value]) -> list[Value]:
    """The same sums as Values, each partial derivative evaluated over the node's children."""
    if modes.recorder is not None:
        modes.recorder.selector.differentiated(y, xs)
    order = depending_on(y, xs)
    on_path = set(map(id, order))
    totals: dict[int, Value] = {id(y): Value(1.0)}
    # Partials never raise. While a compiled function is recorded they do: a replay cannot tell what
    # is infinite, and leaves that to eager.
    with recording(), nonfinite("allow" if modes.recorder is None else "raise"):
        for node in reversed(order):
            total = totals.get(id(node))
            if total is None:
                continue
            for i, child in enumerate(node.children):
                if id(child) in on_path:
                    share = _share(total, _slope(node, i))
                    if share is not None:
                        before = totals.get(id(child))
                        totals[id(child)] = share if before is None else before + share
    return [totals[id(x)] if id(x) in on_path and id(x) in totals else Value(0.0) for x in xs]


def _slope(node: Value, i: int) -> Value | float:
    """∂node/∂child i as an expression of Values, or a float where the row says a constant."""
    rule = node._rule
    if not isinstance(rule, Op):
        label = f" labelled {node.label!r}" if node.label else ""
        raise TypeError(
            f"the custom operation {rule!r}{label} gave its derivatives as numbers, so they cannot "
            "be differentiated again: write it with chainrule's own operations, or add a row for "
            "it to the op table (chainrule.core.ops.row)"
        )
    slope: Value | float = rule.partials[i](node, *node.children, *node._parameters)
    return slope


def _share(total: Value, slope: Value | float) -> Value | None:
    """What a node passes on to one child; None for nothing.

    A total or slope that is 0 here may still have a derivative, so it is passed on, except where
    the other is infinite. A slope that is the constant 0 has none.
    """
    if not isinstance(slope, Value):
        if slope == 1.0:
            return total
        if slope == 0.0:
            return None
    if modes.recorder is not None:
        return total * slope  # both are finite
    number = slope.data if isinstance(slope, Value) else slope
    zero = total.data == 0.0 or number == 0.0
    return None if zero and not math.isfinite(total.data * number) else total * slope


# --- a function, called ---------------------------------------------------------------------------


class _Enclosing(threading.local):
    """The inputs of the transforms whose functions are running: transforms nest."""

    def __init__(self) -> None:
        self.inputs: list[list[Value]] = []
        self.again = 0  # how many of them are known to need a derivative that has one itself


_enclosing = _Enclosing()


def is_nested() -> bool:
    """Whether this runs inside a function that another transform differentiates."""
    return bool(_enclosing.inputs)


def is_differentiated_again() -> bool:
    """Whether the derivative of what runs may be differentiated: it is needed as Values."""
    return _enclosing.again > 0 or len(_enclosing.inputs) > 1


@dataclass(frozen=True)
class Call:
    """One call of a user's function: what went in, and the nodes that came out."""

    argument: Argument
    leaves: list[Value]
    outputs: list[Value]
    shape: tuple[int, ...]  # of the outputs
    create_graph: bool  # somebody differentiates the result again

    def gradients(self) -> list[Value]:
        """The derivative of the only output with respect to every leaf, to be used once more."""
        return gradients(self.outputs[0], self.leaves, create_graph=True)

    def rows(self, nodes: Sequence[Value]) -> Array:
        """The derivatives of some nodes with respect to the leaves, one row each."""
        entries = [g for y in nodes for g in gradients(y, self.leaves, self.create_graph)]
        dtype = object if self.create_graph else np.float64
        return array_of(entries, (len(nodes), len(self.leaves)), dtype)


def call(
    transform: str,
    f: Callable[..., Any],
    argument: Argument,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    several: bool = False,
    twice: bool = False,
) -> Call:
    """Call ``f`` with fresh Values in place of the numbers of its first argument.

    ``twice``: its derivative is differentiated.
    """
    leaves = _fresh(argument.numbers)
    again = twice or argument.has_values
    result = _run(f, argument.filled(leaves), leaves, args, kwargs or {}, again)
    outputs, shape = nodes_of(result, transform, f, several)
    create_graph = argument.has_values or _is_wanted_again(f, outputs)
    return Call(argument, leaves, outputs, shape, create_graph)


def _run(
    f: Callable[..., Any],
    x: Any,
    leaves: list[Value],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    again: bool,
) -> Any:
    """``f`` with its graph kept; ``leaves``: the Values in ``x``."""
    with differentiating(leaves, again or bool(values_around(f))):  # see _closes_over
        if modes.grad:
            return f(x, *args, **kwargs)
        with recording():
            return f(x, *args, **kwargs)


class differentiating:  # a context manager, quicker than a generator
    """Inside, a function runs that will be differentiated by some Values: transforms in it nest.

    ``again``: its derivative will be differentiated too.
    """

    def __init__(self, leaves: list[Value], again: bool = False) -> None:
        self._leaves = leaves
        self._again = again

    def __enter__(self) -> None:
        _enclosing.inputs.append(self._leaves)
        _enclosing.again += self._again

    def __exit__(self, *_: object) -> None:
        _enclosing.again -= self._again
        _enclosing.inputs.pop()


def _is_wanted_again(f: Callable[..., Any], outputs: list[Value]) -> bool:
    """Whether somebody differentiates the derivative: an outer transform, or a graph around it."""
    return _depends_on_enclosing(outputs) or _closes_over(f, outputs)


def value_and_derivative(
    transform: str,
    f: Callable[..., Any],
    x: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    main: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any, Any]:
    """The value of ``f``, its derivative by ``x``, and all that ``f`` returned.

    ``main`` takes the Value to differentiate out of what it returned.
    """
    argument: Argument | None = None
    usual = usual_values(x)
    if usual is None:
        argument = flatten_argument(x)
        leaves = _fresh(argument.numbers)
        usual = argument.filled(leaves), leaves
    filled, leaves = usual
    result = _run(f, filled, leaves, args, kwargs, argument is not None and argument.has_values)
    y = result if main is None else main(result)
    if type(y) is not Value:
        ((y,), _) = nodes_of(y, transform, f)
    create_graph = argument is not None and argument.has_values
    create_graph = create_graph or _is_wanted_again(f, [y])
    slopes: list[Any] = _differentiable(y, leaves) if create_graph else _numbers(y, leaves)
    like = usual_like(x, slopes) if argument is None else argument.like(slopes)
    return y if create_graph else y.data, like, result


def _fresh(numbers: Sequence[Value | float]) -> list[Value]:
    """Inputs for a function.

    That of a Value stays connected to it, yet is a node of its own: one Value in two places, or
    one made from another, are two arguments.
    """
    with recording():
        inputs = [x * 1.0 if isinstance(x, Value) else Value(x) for x in numbers]
    for x, fresh in zip(numbers, inputs, strict=True):
        if isinstance(x, Value):
            fresh.label = x.label
    return inputs


def _closes_over(f: Callable[..., Any], outputs: list[Value]) -> bool:
    """Whether a variable of an enclosing function, or a global one, is a Value in these graphs.

    The derivative is part of that one's graph then: as a number it would lose its gradient.
    """
    held = {id(x) for _, x in values_around(f)}
    return bool(held) and not held.isdisjoint(_reached(outputs))


def values_around(f: Callable[..., Any]) -> list[tuple[str, Value]]:
    """The Values among the variables of enclosing functions and the global ones, by name."""
    code, outside = getattr(f, "__code__", None), getattr(f, "__globals__", {})
    found = [(name, outside.get(name)) for name in getattr(code, "co_names", ())]
    cells = getattr(f, "__closure__", None) or ()
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # nothing in it yet
            continue
    return [(name, x) for name, x in found if isinstance(x, Value)]


def _depends_on_enclosing(outputs: list[Value]) -> bool:
    """Whether an outer transform is differentiating with respect to something in these graphs."""
    if not _enclosing.inputs:
        return False
    inputs = {id(x) for leaves in _enclosing.inputs for x in leaves}
    return not inputs.isdisjoint(_reached(outputs))


def _reached(outputs: list[Value]) -> set[int]:
    """The ids of all Values in these graphs; of those too that another call would select."""
    if modes.recorder is not None:
        found: set[int] = modes.recorder.selector.reached(outputs)
        return found
    return {id(v) for y in outputs for v in topological_order(y)}


def nodes_of(
    result: Any, transform: str, f: Callable[..., Any], several: bool = False
) -> tuple[list[Value], tuple[int, ...]]:
    """What ``f`` returned as nodes and their shape, or a TypeError that says what to return."""
    items: list[Any] = []
    shape = _output_shape(result, items)
    if shape is None or (shape and not several) or not all(map(is_number, items)):
        raise _wrong_result(transform, f, result, several)
    return [y if isinstance(y, Value) else Value(y) for y in items], shape


def _output_shape(result: Any, items: list[Any]) -> tuple[int, ...] | None:
    """The shape of what a function returned, None if ragged; its elements go to ``items``."""
    if isinstance(result, np.ndarray):
        items.extend(result.flat)
        shape: tuple[int, ...] = result.shape
        return shape
    if not is_sequence(result):
        items.append(result)
        return ()
    return stacked([_output_shape(item, items) for item in result])


def _wrong_result(transform: str, f: Callable[..., Any], result: Any, several: bool) -> TypeError:
    name = getattr(f, "__name__", type(f).__name__)
    wanted = "a Value, or a sequence or array of Values," if several else "one Value"
    if result is None:
        advice = "; is a return missing?"
    elif not several and (is_sequence(result) or isinstance(result, np.ndarray)):
        advice = "; return one number, such as its sum, or use jacobian"
    else:
        advice = ""
    return TypeError(
        f"{transform} takes a function that returns {wanted} but {name} returned "
        f"{errors.describe(result)}{advice}"
    )


# --- the transforms -------------------------------------------------------------------------------


def _check_callable(transform: str, f: object) -> None:
    if not callable(f):
        advice = "; for a Value use gradients(y, xs)" if isinstance(f, Value) else ""
        raise TypeError(f"{transform} takes a function, not {errors.describe(f)}{advice}")


def grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function that gives the derivative of ``f`` with respect to its first argument.

    That argument is a number, an array, or a tree (dicts, lists, tuples, dataclasses) of those;
    ``f`` gets it with Values in place of the numbers and returns one Value. The derivative comes
    as floats and float64 arrays in the argument's own containers. Further arguments are passed on
    as they are.

    >>> from chainrule import grad
    >>> grad(lambda x: x**3)(2.0)
    12.0
    >>> grad(lambda p: p["w"][0] * p["w"][1] + p["b"])({"w": [2.0, 3.0], "b": 1.0})
    {'w': [3.0, 2.0], 'b': 1.0}

    An argument that holds Values gives a derivative of Values, part of the same graph. So
    derivatives nest, to any order:

    >>> grad(grad(grad(lambda x: x**4)))(2.0)
    48.0
    """
    _check_callable("grad", f)

    @wraps(f)
    def derivative(x: Any, /, *args: Any, **kwargs: Any) -> Any:
        return value_and_derivative("grad", f, x, args, kwargs)[1]

    return derivative


def value_and_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function that gives the value of ``f`` and its derivative, as ``grad`` does, together.

    >>> from scipy.optimize import minimize
    >>> from chainrule import value_and_grad
    >>> value_and_grad(lambda x: x[0] * x[1])([2.0, 3.0])
    (6.0, [3.0, 2.0])
    >>> def rosenbrock(x):
    ...     return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    >>> minimize(value_and_grad(rosenbrock), [-1.0, 2.0], jac=True).x.round(4)
    array([1., 1.])
    """
    _check_callable("value_and_grad", f)

    @wraps(f)
    def both(x: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return value_and_derivative("value_and_grad", f, x, args, kwargs)[:2]

    return both


def jacobian(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function that gives the derivative of every result of ``f`` by every number it is given.

    ``f`` returns a Value or a sequence or array of them; the derivative has the shape of the
    result followed by that of the argument.

    >>> from chainrule import jacobian
    >>> jacobian(lambda x: [x[0] * x[1], x[0] + x[1]])([2.0, 3.0])
    array([[3., 2.],
           [1., 1.]])
    """
    _check_callable("jacobian", f)

    @wraps(f)
    def derivative(x: Any, /, *args: Any, **kwargs: Any) -> Any:
        made = call("jacobian", f, flatten_argument(x), args, kwargs, several=True)
        return made.argument.results(made.rows(made.outputs), made.shape)

    return derivative


def hessian(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function that gives the second derivatives of ``f``: argument's shape, twice.

    For a tree it is a tree of trees: ``h["w"]["b"]`` is ∂²f/∂w∂b.

    >>> from chainrule import hessian
    >>> hessian(lambda x: x[0] ** 2 * x[1])([3.0, 5.0])
    array([[10.,  6.],
           [ 6.,  0.]])
    """
    _check_callable("hessian", f)

    @wraps(f)
    def second_derivative(x: Any, /, *args: Any, **kwargs: Any) -> Any:
        made = call("hessian", f, flatten_argument(x), args, kwargs, twice=True)
        matrix = made.rows(made.gradients())
        argument = made.argument
        return argument.map(
            lambda block: argument.results(matrix[block.start : block.stop], block.shape)
        )

    return second_derivative


def hvp(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function of ``x`` and ``v`` that gives the Hessian of ``f`` at ``x`` times ``v``.

    The Hessian itself is never made: the cost is a few evaluations of ``f``, however many numbers
    ``x`` has. ``v`` has the structure of ``x``, and so has the result.

    >>> from chainrule import hvp
    >>> hvp(lambda x: x[0] ** 2 * x[1])([3.0, 5.0], [1.0, 0.0])
    array([10.,  6.])
    """
    _check_callable("hvp", f)

    @wraps(f)
    def product(x: Any, v: Any, /, *args: Any, **kwargs: Any) -> Any:
        argument, direction = flatten_argument(x), flatten_argument(_ordered_like(v, x), "v")
        if _shapes(argument) != _shapes(direction):
            raise ValueError(
                f"hvp needs v in the structure of x: {_shapes(argument)}, not {_shapes(direction)}"
            )
        made = call("hvp", f, argument, args, kwargs, twice=True)
        with recording(), nonfinite("allow"):  # only its derivative counts, not the sum itself
            along = vsum(
                g * step for g, step in zip(made.gradients(), direction.numbers, strict=True)
            )
        keep = made.create_graph or direction.has_values or _depends_on_enclosing([along])
        return argument.results(replace(made, create_graph=keep).rows([along]))

    return product


def _ordered_like(v: Any, x: Any) -> Any:
    """``v`` with the keys of its dicts in the order that ``x`` has them."""
    if isinstance(v, Mapping) and isinstance(x, Mapping) and v.keys() == x.keys():
        return {key: _ordered_like(v[key], item) for key, item in x.items()}
    if type(v) is type(x) and type(v) in (list, tuple) and len(v) == len(x):
        return type(v)([_ordered_like(a, b) for a, b in zip(v, x, strict=True)])
    return v


def _shapes(argument: Argument) -> Any:
    return argument.map(lambda block: block.shape)
