"""First results are compared: a recording's with eager's, machine code's with the tape's.

In: a variant and the call it was built from. Out: nothing where they agree; else an
``Unrecordable``, or False, and the slower path stays.
"""

from __future__ import annotations

import functools
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from chainrule.compiler.capture.arguments import Call, copied_arguments, eager_arguments, nudges
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.carried import Carried, carrying, random_direction
from chainrule.compiler.capture.handing import Containers
from chainrule.compiler.capture.recordings import ArrayOutput, Output
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.undisturbed import moved, nudged_numbers, plain_modes
from chainrule.compiler.runtime.heap import is_large, return_free_memory
from chainrule.compiler.runtime.results import (
    arguments_with,
    first_of,
    gradient_up_to,
    nodes_of,
    root_of,
    value_places,
)
from chainrule.compiler.runtime.variants import Binding, Path, Run, Variant
from chainrule.compiler.workers import are_alone
from chainrule.core import errors
from chainrule.core.backend import Value, kernels, modes
from chainrule.core.interrupts import open_to_signals, safe_point
from chainrule.derivatives.transforms import differentiating
from chainrule.trees import Floats, children, field_names, is_record, map_leaves

_T = TypeVar("_T")
OF_NODES = 4  # operations on plain numbers, which have no graph, take about as long as one node


@dataclass(frozen=True, eq=False)
class Expected:
    """What the tape gave for a call: all numbers that are returned, and the gradient if any."""

    positions: Sequence[int]  # of the instructions that are returned
    values: Floats
    gradient: Floats

    @functools.cached_property
    def numbers(self) -> dict[int, float]:
        """The numbers by the instructions that gave them."""
        return dict(zip(self.positions, self.values.tolist(), strict=True))


def check_against_eager(
    function: Callable[..., Any], captured: CapturedState, variant: Variant, call: Call
) -> Expected | None:
    """Compare the first result with an eager run, there and a little way off.

    Returns what the tape gave for the call itself. Whatever the tape computes comes first: a large
    one is freed before an eager run makes its graph.
    """
    seed = len(variant.recording)
    expected, nearby = on_tape(variant, call), _Nearby(call, captured, seed, 1e-3)
    replayed = nearby.on_tape(variant)
    if is_large(seed):
        variant.forget_tape()
    return_free_memory(seed)
    if expected is not None:
        _compare(function, variant, call, expected)
        return_free_memory(seed)
    # A factor of 0 hides what it multiplies: it is moved too, unless a branch asks for it.
    if not nearby.agrees(function, variant, replayed):
        nearby = _Nearby(call, captured, seed, 0.0)
        nearby.agrees(function, variant, nearby.on_tape(variant))
    return expected


def machine_code_agrees(
    function: Callable[..., Any],
    captured: CapturedState,
    variant: Variant,
    call: Call,
    binding: Binding,
    carried: Carried | None = None,
) -> bool:
    """Whether machine code gives eager's result, there and a little way off.

    False where that does not tell, because a number is not finite or the function asks for its
    graph, or where they differ: then the tape has to tell what is wrong. ``carried``: what a
    recorded run computed a little way off; where they agree the function need not run there again.
    """
    hands_back = variant.recording.hands_back  # and its arguments would be changed
    if variant.is_derivative or hands_back or binding.machine.dtype != "float64":
        return False
    seed = len(variant.recording)
    try:
        found = on_machine(variant, call, binding)
        if found is None or not _agrees_along(function, variant, call, found):
            return False
        if carried is not None and _agrees_with(carried, captured, variant, binding):
            return True
        for from_zero in (1e-3, 0.0):
            nearby = _Nearby(call, captured, seed, from_zero)
            found = nearby.attempt(lambda near: on_machine(variant, near, binding))
            if found is None:
                continue
            agree = nearby.attempt(
                functools.partial(_agrees_along, function, variant, expected=found)
            )
            if agree is not None:
                return agree
    except Unrecordable:
        return False
    return True


def _agrees_with(
    carried: Carried, captured: CapturedState, variant: Variant, binding: Binding
) -> bool:
    """Whether machine code gives what a recorded run computed; False where that does not tell."""
    if carried.captured and threading.active_count() > 1:  # other threads must not see it
        return False
    try:
        with moved(captured.values, carried.captured):
            found = on_machine(variant, carried.call, binding)
    except Exception:
        return False
    if found is None:
        return False
    root = root_of(variant.recording.result)
    position = None if root is None else root.position
    return carried.agrees(found.positions, found.values, position, found.gradient)


class _Nearby:
    """A call with all numbers a little off, also those of captured Values while it runs."""

    def __init__(self, call: Call, captured: CapturedState, seed: int, from_zero: float) -> None:
        """``from_zero``: how far a number that is 0 is moved."""
        nudge = nudges(seed, 1e-3, from_zero)
        self._values = captured.values
        self._numbers = nudged_numbers(captured.values, nudge)
        self._call = call.nudged(nudge, captured.place)

    def attempt(self, do: Callable[[Call], _T]) -> _T | None:
        """What can be done with that call; None where it is out of a domain."""
        try:
            with moved(self._values, self._numbers):
                return do(self._call)
        except Exception:
            return None

    def on_tape(self, variant: Variant) -> Expected | None:
        """The tape's result there; None where there is none."""
        return self.attempt(lambda near: on_tape(variant, near))

    def agrees(
        self, function: Callable[..., Any], variant: Variant, replayed: Expected | None
    ) -> bool:
        """Whether there was something to compare with eager; Unrecordable where that differs."""
        if replayed is None:
            return False

        def compare(near: Call) -> bool:
            _compare(function, variant, near, replayed)
            return True

        return self.attempt(compare) is not None


def _compare(
    function: Callable[..., Any], variant: Variant, call: Call, expected: Expected
) -> None:
    """Compare one result with eager's; Unrecordable where they differ."""
    if variant.is_derivative:
        _compare_derivative(function, expected, variant, call)
        return
    if variant.recording.hands_back:
        _compare_handed(function, variant, call, expected)
        return
    if is_large(len(variant.recording)) and _agrees_along(function, variant, call, expected):
        return
    eager = Eager(call, variant)
    with plain_modes(), differentiating(eager.inputs if call.key[0] else []):
        result = eager.run(function)
    variant.eager_nodes = nodes_of(result) or len(variant.recording) // OF_NODES
    _compare_numbers(expected, variant.recording.result, result)
    if root_of(variant.recording.result) is None:
        return
    wanted, found = gradient_up_to(first_of(result), eager.inputs), eager.among(expected.gradient)
    if found.tolist() == wanted.tolist():
        return
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    if not np.isfinite(scale):
        scale = 1.0
    agree = np.allclose(found, wanted, rtol=0.0, atol=1e-9 * scale, equal_nan=True)
    if not agree:
        raise Unrecordable(_DIFFERS)


class Eager:
    """An eager call to compare with: its arguments, and all Values that have a gradient."""

    def __init__(self, call: Call, variant: Variant) -> None:
        self.inputs: list[Value] = []
        self._arguments, self._keywords = arguments_with(call, self.inputs)
        known = set(map(id, self.inputs))
        self.inputs += [v for v in call.values if id(v) not in known]
        self.inputs += variant.captured
        #: whether some of these are the user's own
        self.are_users = bool(call.values or variant.captured)
        first = call.first if call.key[0] else 0  # which are Values here, whatever was passed
        others = value_places(call, len(variant.captured))
        self._places = [*range(first), *[place for place in others if place >= first]]

    def run(self, function: Callable[..., Any]) -> Any:
        """What the function returns."""
        with open_to_signals():
            return function(*self._arguments, **self._keywords)

    def among(self, gradient: Floats) -> Floats:
        """Of a gradient by all inputs of a recording, the part by these Values."""
        found: Floats = gradient[self._places]
        return found


@dataclass(frozen=True, eq=False)
class AlongDirection:
    """An eager result, and its derivative along a direction."""

    result: Any
    slope: float  # 0.0 where it is no Value
    direction: Floats  # a number for each Value that was differentiated by


def along_direction(
    function: Callable[..., Any], call: Call, eager: Eager, seed: int, has_slope: bool
) -> AlongDirection | None:
    """What a function returns, and the derivative along one random direction.

    It needs no graph, and so no memory: every node carries its derivative along with its number.
    None where that does not tell: the function asks for its graph, or there is no native engine.
    """
    inputs = eager.inputs
    twice = len(set(map(id, inputs))) < len(inputs)
    others = eager.are_users and not are_alone()  # who must not see it
    if kernels is None or twice or others:
        return None
    direction = random_direction(len(inputs), seed)
    slope, modes.graph_asked = 0.0, False
    try:
        with carrying(inputs, direction):
            with plain_modes(), differentiating(inputs if call.key[0] else []):
                modes.tangents = True
                try:
                    result = eager.run(function)
                finally:
                    modes.tangents = False
            if has_slope and isinstance(first_of(result), Value):
                slope = first_of(result).grad
    except errors.GraphNeeded:
        return None
    return None if modes.graph_asked else AlongDirection(result, slope, direction)


def _agrees_along(
    function: Callable[..., Any], variant: Variant, call: Call, expected: Expected
) -> bool:
    """Compare a result with eager's, and the derivative along one random direction.

    False where that does not tell, or they do not agree. Unrecordable where the results differ.
    """
    eager, root = Eager(call, variant), root_of(variant.recording.result)
    seed = zlib.crc32(expected.values.tobytes())  # another direction for other numbers
    wanted = along_direction(function, call, eager, seed, root is not None)
    if wanted is None:
        return False
    _compare_numbers(expected, variant.recording.result, wanted.result)
    if root is None:
        return True
    found = eager.among(expected.gradient)
    scale = max(1.0, float(np.max(np.abs(found), initial=0.0)))
    return bool(abs(float(found @ wanted.direction) - wanted.slope) <= 1e-9 * scale)


def _compare_derivative(
    function: Callable[..., Any], expected: Expected, variant: Variant, call: Call
) -> None:
    """All that a derivative returns, with what eager returns, which are numbers too."""
    arguments: Sequence[Any] = call.arguments
    keywords = call.keywords
    if call.copied:
        arguments, keywords = eager_arguments(call, float)
    with plain_modes(), open_to_signals():
        result = function(*arguments, **keywords)
    found = _filled(expected, variant.recording.result)
    pairs = zip(_leaves(found), _leaves(result), strict=True)
    try:
        agree = all(_agree(x, y) for x, y in pairs)
    except ValueError:  # another number of them
        agree = False
    if not agree:
        raise Unrecordable(_DIFFERS)


def _compare_handed(
    function: Callable[..., Any], variant: Variant, call: Call, expected: Expected
) -> None:
    """All that a call returns, and what is in its arguments then, with what eager leaves there."""
    eager, replayed = copied_arguments(call), copied_arguments(call)
    with plain_modes(), open_to_signals():
        result = function(*eager.arguments, **eager.keywords)
    variant.eager_nodes = nodes_of(result) or len(variant.recording) // OF_NODES
    leaves = list(map(functools.partial(_filled_leaf, expected.numbers), variant.assembly.leaves))
    given = replayed.arguments, replayed.keywords
    found = variant.assembly.run(leaves, *given, lambda changed: True)
    mine, eagers = Containers(replayed), Containers(eager)
    places = mine.touched() | eagers.touched()
    wanted = eagers.state_after(result, places)
    if not _are_alike(mine.state_after(found, places), wanted):
        raise Unrecordable(_DIFFERS)


def _are_alike(a: Any, b: Any) -> bool:
    """Whether two trees are the same, numbers to rounding."""
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is Value:
        return _are_alike(a.data, b.data)
    if isinstance(a, np.ndarray) and a.dtype == object:
        return a.shape == b.shape and _are_alike(a.ravel().tolist(), b.ravel().tolist())
    if kind is float or kind is np.float64:
        return bool(a == b or abs(a - b) <= 1e-12 + 1e-9 * abs(b) or (a != a and b != b))
    if isinstance(a, np.ndarray):
        same = a.shape == b.shape and a.dtype == b.dtype
        if same and a.dtype.kind == "f":
            return bool(np.isclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True).all())
        return same and bool((a == b).all())
    inside = children(a)
    if inside is not None:
        others = dict(children(b) or ())
        mine = dict(inside)
        return list(mine) == list(others) and all(_are_alike(x, others[k]) for k, x in mine.items())
    if is_record(a):
        return all(_are_alike(getattr(a, n), getattr(b, n)) for n in field_names(kind))
    return bool(a is b or a == b)


def _filled_leaf(numbers: dict[int, float], x: Any) -> Any:
    if isinstance(x, ArrayOutput):
        return x.filled(np.array([numbers[p] for p in x.positions.tolist()], np.float64))
    return numbers[x.position]


def _filled(expected: Expected, recorded: Any) -> Any:
    """What a replay returns."""
    numbers = expected.numbers

    def read(x: Any) -> Any:
        if isinstance(x, ArrayOutput):
            return x.filled(np.array([numbers[p] for p in x.positions.tolist()], np.float64))
        return numbers[x.position] if isinstance(x, Output) else x

    return map_leaves(read, recorded, records=True)


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    map_leaves(found.append, tree, records=True)
    return found


def _agree(x: Any, y: Any) -> bool:
    """Whether two numbers, arrays or sparse matrices agree to rounding."""
    if hasattr(y, "toarray"):
        if x.shape != y.shape:
            return False
        difference, size = np.abs((x - y).data), np.abs(y.data)
    elif isinstance(y, np.ndarray) or (errors.is_real(y) and not isinstance(y, (bool, np.bool_))):
        if np.shape(x) != np.shape(y):
            return False
        difference, size = np.abs(np.subtract(x, y)), np.abs(y)
    else:
        return bool(x is y or x == y)
    scale = max(1.0, float(np.max(size, initial=0.0)))
    return bool(np.max(difference, initial=0.0) <= 1e-9 * scale)


_DIFFERS = "the replay does not give eager's result"


def _compare_numbers(expected: Expected, recorded: Any, eager: Any) -> None:
    """All that the function returned, with what it returns eagerly."""
    found: list[Any] = []
    wanted: list[Any] = []
    map_leaves(lambda x: _add_items(x, found), recorded, records=True)
    map_leaves(lambda x: _add_items(x, wanted), eager, records=True)
    if len(found) != len(wanted):
        raise Unrecordable(_DIFFERS)
    for x, y in zip(found, wanted, strict=True):
        if isinstance(y, Value) is not (isinstance(x, Output) and x.is_value):
            raise Unrecordable("eager gives no Value" if isinstance(x, Output) else _DIFFERS)
        if isinstance(x, Output):
            number = y.data if isinstance(y, Value) else y
            if type(number) in (float, np.float64) and x.is_numpys is not (type(y) is np.float64):
                raise Unrecordable(_DIFFERS)
            if x.is_integer is not (type(y) is int):
                raise Unrecordable(_DIFFERS)
            found_number = expected.numbers[x.position]
            same = errors.is_real(number) and (
                found_number == number
                or np.isclose(found_number, number, rtol=1e-9, atol=1e-12, equal_nan=True)
            )
        else:
            same = x is y or x == y or (x != x and y != y)
        if not same:
            raise Unrecordable(_DIFFERS)


def _add_items(leaf: Any, found: list[Any]) -> None:
    """Note a leaf; of an array its shape and its items."""
    if isinstance(leaf, ArrayOutput):
        found += [leaf.shape, *leaf.items]
    elif isinstance(leaf, np.ndarray):
        found += [leaf.shape, *leaf.ravel().tolist()]
    else:
        found.append(leaf)


def on_tape(variant: Variant, call: Call) -> Expected | None:
    """The tape's result for a call; None where it has none."""
    safe_point()
    run = variant.run(call, None)
    if run is None or run.path is Path.EAGER:
        return None
    return _results(run, variant)


def on_machine(variant: Variant, call: Call, binding: Binding) -> Expected | None:
    """The result of machine code for a call; None where it has none."""
    safe_point()
    run = variant.run(call, binding)
    if run is None or run.path is not Path.MACHINE:
        return None
    return _results(run, variant)


def _results(run: Run, variant: Variant) -> Expected | None:
    """What a run gave; None where a derivative is not finite."""
    recording = variant.recording
    positions, root = [x.position for x in recording.outputs], root_of(recording.result)
    values = run.numbers(positions)
    safe_point()
    swept = np.zeros(0) if root is None else run.sweep(root.position)
    return None if swept is None else Expected(positions, values, swept.copy())


def agrees(variant: Variant, call: Call, binding: Binding, expected: Expected) -> bool:
    """Whether machine code gives the tape's result, where it gives one."""
    results = on_machine(variant, call, binding)
    if results is None:
        return True
    found = np.concatenate([results.values, results.gradient])
    gradient = expected.gradient.copy()
    if len(gradient) and not binding.machine.derives:
        gradient[binding.fit.inputs] = 0.0  # by data, which the tape has all the same
    wanted = np.concatenate([expected.values, gradient])
    return are_close(found, wanted, binding.machine.dtype)


def are_close(found: Floats, wanted: Floats, dtype: str) -> bool:
    """Whether machine code's numbers are the tape's to rounding."""
    if not np.isfinite(wanted).all() or not np.isfinite(found).all():
        return bool(np.array_equal(found, wanted, equal_nan=True))
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    error = float(np.max(np.abs(found - wanted), initial=0.0))
    return error <= (1e-9 if dtype == "float64" else 1e-3) * scale
