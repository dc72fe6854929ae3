"""Derivatives of functions: ``gradients``, ``grad``, ``value_and_grad``; ``matrices`` has others.

A function of numbers comes in, a function that gives its derivative goes out, in the structure of
the argument. All of them stand on ``gradients``, which differentiates one Value with respect to
others without touching any ``.grad``; asked to create a graph it evaluates the op table's partials
over Values, so that the result can be differentiated again, to any order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any

import numpy as np

from chainrule.core import errors
from chainrule.core.backend import Value, kernels, modes, topological_order
from chainrule.derivatives.arguments import (
    Argument,
    Block,
    array_of,
    flatten_argument,
    flatten_results,
    is_number,
    is_sequence,
    usual,
    usual_like,
    usual_values,
)
from chainrule.derivatives.backward import differentiable, gradients, numbers, recording
from chainrule.trees import Array, map_leaves

# --- a function, called ---------------------------------------------------------------------------


class _Enclosing(threading.local):
    """The inputs of the transforms whose functions are running: transforms nest."""

    def __init__(self) -> None:
        self.inputs: list[list[Value]] = []


_enclosing = _Enclosing()


def is_nested() -> bool:
    """Whether this runs inside a function that another transform differentiates."""
    return modes.nested > 0


def is_differentiated_again() -> bool:
    """Whether the derivative of what runs may be differentiated: it is needed as Values."""
    return modes.again > 0 or modes.nested > 1


@dataclass(frozen=True)
class Call:
    """One call of a user's function: what went in, and the nodes that came out."""

    argument: Argument
    leaves: list[Value]
    outputs: list[Value]
    results: Argument  # what it returned, a Block in the place of each number or array
    create_graph: bool  # somebody differentiates the result again
    aux: tuple[Any, ...] = ()  # what else it returned, with ``has_aux``

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
    has_aux: bool = False,
) -> Call:
    """Call ``f`` with fresh Values in place of the numbers of its first argument.

    ``twice``: its derivative is differentiated. ``has_aux``: it returns a pair, as in ``grad``.
    """
    leaves = _fresh(argument.numbers)
    again = twice or argument.has_values
    returned = _run(f, argument.filled(leaves), leaves, args, kwargs or {}, again)
    result, *aux = parts_of(returned, transform, f) if has_aux else (returned,)
    results = results_of(result, transform, f, several)
    outputs = [y if isinstance(y, Value) else Value(y) for y in results.numbers]
    create_graph = argument.has_values or _is_wanted_again(f, outputs)
    extras = [x if create_graph else as_numbers(x) for x in aux]
    return Call(argument, leaves, outputs, results, create_graph, tuple(extras))


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
        modes.nested += 1
        modes.again += self._again

    def __exit__(self, *_: object) -> None:
        modes.again -= self._again
        modes.nested -= 1
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
    found = usual_values(x)
    if found is None:
        argument = flatten_argument(x)
        leaves = _fresh(argument.numbers)
        found = argument.filled(leaves), leaves
    filled, leaves = found
    result = _run(f, filled, leaves, args, kwargs, argument is not None and argument.has_values)
    main_result = result if main is None else main(result)
    return *derived(transform, f, x, argument, leaves, main_result), result


def derived(
    transform: str,
    f: Callable[..., Any],
    x: Any,
    argument: Argument | None,
    leaves: list[Value],
    y: Any,
) -> tuple[Any, Any]:
    """The value and the derivative, from what ``f`` returned; ``argument``: ``x``, if not usual."""
    if type(y) is not Value:
        y = node_of(y, transform, f)
    create_graph = argument is not None and argument.has_values
    create_graph = create_graph or _is_wanted_again(f, [y])
    slopes: list[Any] = differentiable(y, leaves) if create_graph else numbers(y, leaves)
    like = usual_like(x, slopes) if argument is None else argument.like(slopes)
    return y if create_graph else y.data, like


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
    f = getattr(f, "_in_order", f)
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
    if not modes.nested:
        return False
    inputs = {id(x) for leaves in (modes.outermost or (), *_enclosing.inputs) for x in leaves}
    return not inputs.isdisjoint(_reached(outputs))


def _reached(outputs: list[Value]) -> set[int]:
    """The ids of all Values in these graphs; of those too that another call would select."""
    if modes.recorder is not None:
        found: set[int] = modes.recorder.selector.reached(outputs)
        return found
    return {id(v) for y in outputs for v in topological_order(y)}


def parts_of(returned: Any, transform: str, f: Callable[..., Any]) -> tuple[Any, Any]:
    """The result and the rest of a function that returns both; else a TypeError."""
    if isinstance(returned, tuple) and len(returned) == 2:
        return returned
    raise TypeError(
        f"{transform} with has_aux takes a function that returns a pair (result, aux) but "
        f"{name_of(f)} returned {errors.describe(returned)}"
    )


def as_numbers(tree: Any) -> Any:
    """A tree with the numbers of its Values."""

    def number(x: Any) -> Any:
        if isinstance(x, np.ndarray) and x.dtype == object:
            items = x.ravel().tolist()
            numbers = [y.data if isinstance(y, Value) else y for y in items]
            plain = all(is_number(y) for y in items)
            return array_of(numbers, x.shape, np.float64 if plain else object)
        return x.data if isinstance(x, Value) else x

    return map_leaves(number, tree, records=True)


def node_of(result: Any, transform: str, f: Callable[..., Any]) -> Value:
    """The one number that ``f`` returned as a Value, or a TypeError that says what to return."""
    (y,) = results_of(result, transform, f).numbers
    return y if isinstance(y, Value) else Value(y)


def results_of(
    result: Any, transform: str, f: Callable[..., Any], several: bool = False
) -> Argument:
    """What ``f`` returned as a tree and its numbers, or a TypeError that says what to return."""
    found = flatten_results(result)
    numbers = found.numbers
    one = isinstance(found.tree, Block) and not found.tree.shape
    if not (several or one) or not all(map(is_number, numbers)):
        raise _wrong_result(transform, f, result, several)
    return found


def name_of(f: Callable[..., Any]) -> str:
    """The function's name."""
    return str(getattr(f, "__name__", type(f).__name__))


def _wrong_result(transform: str, f: Callable[..., Any], result: Any, several: bool) -> TypeError:
    wanted = "a Value, or a sequence or array of Values," if several else "one Value"
    if result is None:
        advice = "; is a return missing?"
    elif not several and (is_sequence(result) or isinstance(result, np.ndarray)):
        advice = "; return one number, such as its sum, or use jacobian"
    else:
        advice = ""
    return TypeError(
        f"{transform} takes a function that returns {wanted} but {name_of(f)} returned "
        f"{errors.describe(result)}{advice}"
    )


# --- the transforms -------------------------------------------------------------------------------


@lru_cache(256)
def _places(name: str, argnums: Any, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which of so many arguments are differentiated by, and which are not."""
    places = argnums if isinstance(argnums, tuple) else (argnums,)
    wrong = [place for place in places if not -count <= place < count]
    if wrong:
        raise TypeError(
            f"{name} differentiates by argument {wrong[0]}, and the function was passed {count} by "
            "position"
        )
    chosen = tuple([place % count for place in places])
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"argnums has an argument twice: {argnums}")
    return chosen, tuple([k for k in range(count) if k not in chosen])


@lru_cache(256)
def _order(name: str, argnums: Any, count: int) -> list[int]:
    """Where each of so many arguments is, after those that are differentiated by come first."""
    chosen, others = _places(name, argnums, count)
    return sorted(range(count), key=(*chosen, *others).__getitem__)


@dataclass(frozen=True)
class Transform:
    """Which derivative of a function is wanted; ``sparse``: as a sparse matrix."""

    name: str
    argnums: int | tuple[int, ...] = 0
    has_aux: bool = False
    sparse: bool = False

    def check(self, f: object) -> None:
        """Raise a TypeError unless ``f`` is a function, and argnums positions of arguments."""
        if not callable(f):
            advice = "; for a Value use gradients(y, xs)" if isinstance(f, Value) else ""
            raise TypeError(f"{self.name} takes a function, not {errors.describe(f)}{advice}")
        places = self.argnums if isinstance(self.argnums, tuple) else (self.argnums,)
        if not places or not all(type(place) is int for place in places):
            raise TypeError(
                f"argnums is the position of an argument, or a tuple of some, not {self.argnums!r}"
            )

    def pick(self, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """The argument to differentiate by, or a tuple of those, and the others."""
        if self.argnums == 0 and args:
            return args[0], args[1:]
        chosen, others = _places(self.name, self.argnums, len(args))
        rest = tuple([args[k] for k in others])
        if isinstance(self.argnums, tuple):
            return tuple([args[k] for k in chosen]), rest
        return args[chosen[0]], rest

    def flatten(self, x: Any, name: str = "x") -> Argument:
        """What is picked as a tree of its own numbers."""
        return flatten_argument(x, name, several=isinstance(self.argnums, tuple))

    @property
    def has_value(self) -> bool:
        """Whether the value comes with its derivative."""
        return self.name == "value_and_grad"

    def main(self, returned: Any, f: Callable[..., Any]) -> Any:
        """What is differentiated of what ``f`` returned."""
        return parts_of(returned, self.name, f)[0] if self.has_aux else returned

    def with_aux(self, value: Any, returned: Any) -> Any:
        """The value, and what comes along: of Values if it is one, else of numbers."""
        if not self.has_aux:
            return value
        return value, returned[1] if isinstance(value, Value) else as_numbers(returned[1])

    def wanted(self, value: Any, slopes: Any) -> Any:
        """What it gives, of the value, with what comes along, and the derivative."""
        if self.has_value:
            return value, slopes
        return (slopes, value[1]) if self.has_aux else slopes

    def in_order(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """``f`` as a function of what is picked, and the others."""
        if self.argnums == 0:
            return f
        name, argnums = self.name, self.argnums

        @wraps(f)
        def arranged(x: Any, *others: Any, **kwargs: Any) -> Any:
            args = (*x, *others) if isinstance(argnums, tuple) else (x, *others)
            return f(*[args[k] for k in _order(name, argnums, len(args))], **kwargs)

        arranged._in_order = f  # type: ignore[attr-defined]
        return arranged


def compiled_derivative(f: Any, transform: Transform) -> Any:
    """The derivative of a compiled function, compiled too; None for any other function."""
    transform.check(f)
    derive = getattr(type(f), "_derivative", None)
    return None if derive is None else derive(f, transform)


def grad(
    f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
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

    ``argnums`` is the position of another argument, or a tuple of several. With ``has_aux``, ``f``
    returns a pair, and the second of it comes along.

    >>> grad(lambda x, y: x * y**2, argnums=(0, 1))(2.0, 3.0)
    (9.0, 12.0)

    An argument that holds Values gives a derivative of Values, part of the same graph. So
    derivatives nest, to any order:

    >>> grad(grad(grad(lambda x: x**4)))(2.0)
    48.0
    """
    transform = Transform("grad", argnums, has_aux)
    compiled = compiled_derivative(f, transform)
    if compiled is not None:
        return compiled  # type: ignore[no-any-return]
    return _eager(f, transform)


def value_and_grad(
    f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the value of ``f`` and its derivative, as ``grad`` does, together.

    With ``has_aux``, ``f`` returns a pair, and so is the value: ``(value, aux), slopes``.

    >>> from scipy.optimize import minimize
    >>> from chainrule import value_and_grad
    >>> value_and_grad(lambda x: x[0] * x[1])([2.0, 3.0])
    (6.0, [3.0, 2.0])
    >>> def rosenbrock(x):
    ...     return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    >>> minimize(value_and_grad(rosenbrock), [-1.0, 2.0], jac=True).x.round(4)
    array([1., 1.])
    """
    transform = Transform("value_and_grad", argnums, has_aux)
    compiled = compiled_derivative(f, transform)
    return _eager(f, transform) if compiled is None else compiled


def _eager(f: Callable[..., Any], transform: Transform) -> Callable[..., Any]:
    """What ``grad`` and ``value_and_grad`` make of a function; the usual calls run in C."""
    function = transform.in_order(f)

    def slow(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        x, others = transform.pick(args)
        return transform.wanted(*value_and_slopes(function, transform, x, *others, **kwargs))

    def finish(x: Any, leaves: list[Value], returned: Any) -> Any:
        y = transform.main(returned, f)
        value, slopes = derived(transform.name, function, x, None, leaves, y)
        return transform.wanted(transform.with_aux(value, returned), slopes)

    answer = slow
    if kernels is not None:
        places, aux = transform.argnums, int(transform.has_aux)
        answer = kernels.Derivation(
            f, usual, slow, finish, as_numbers, places, aux, not transform.has_value
        ).answer

    @wraps(f)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        return answer(args, kwargs)

    return derivative


def value_and_slopes(
    f: Callable[..., Any], transform: Transform, x: Any, *others: Any, **kwargs: Any
) -> tuple[Any, Any]:
    """The value of ``f``, with what comes along, and its derivative by ``x``."""
    value, slopes, returned = value_and_derivative(
        transform.name, f, x, others, kwargs, lambda returned: transform.main(returned, f)
    )
    return transform.with_aux(value, returned), slopes
