"""Sound arguments of the native engine's entry points, for tests that let them fail."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np

from chainrule import _native


def decider_parts() -> tuple[Any, ...]:
    """Of a program that adds two integers, gathers by the sum, and computes it as a number."""
    rows = ([9], [[0, 3, 0, 1, 0]], [], [[3, 0, 4]], [5, 6, 7, 8], [[3, 0]])
    constants, steps, pool, gathers, candidates, numbers = (np.array(x, np.int64) for x in rows)
    return 2, constants, steps, pool, np.zeros(0), gathers, candidates, numbers


def selecting(arguments: int, which: int, addresses: list[int]) -> Any:
    """A Decider whose one gather selects the address that one of the integers says."""
    none, gathers = np.zeros(0, np.int64), np.array([[which, 0, len(addresses)]])
    candidates = np.array(addresses, np.int64)
    return _native.Decider(
        arguments, none, none, none, np.zeros(0), gathers, candidates, np.zeros((0, 2), np.int64)
    )


def plan_parts() -> tuple[Any, ...]:
    """Of a Plan whose machine code is C's atof: its parameters, read as text, are zero."""
    own = np.full(1, 4.0)
    record, places = np.dtype([("x", np.float64, (2, 1))]), np.zeros(1, np.int64)
    atof = ctypes.cast(ctypes.CDLL(None).atof, ctypes.c_void_p).value
    arenas = (
        np.zeros(8),
        own,
        np.full(8, 3.0),
        own,
        own,
        places.copy(),
        places,
        places,
        places[:0],
    )
    decider = selecting(1, 0, [0] * 8)
    shapes, template = ((2, 1), None), {"k": ["x", 2]}
    return shapes, 2, template, record, np.ndarray, decider, None, atof, atof, arenas, 8


def vector_parts() -> tuple[Any, ...]:
    """Of a Plan whose gradient is one array."""
    shapes, _, _, record, *others = plan_parts()
    return shapes[:1], 1, "x", record, *others


def vector_call() -> Any:
    return _native.passed((np.full((2, 1), 0.5), 7), np.ndarray, np.float64, True, {})


LOCK = _native.Lock()  # without memory Python has another error for it than MemoryError


def gate_for(plan: Any, finish: Any = None, changed: Any = None) -> Any:
    """A gate with a path to this plan, for calls like ``vector_call``."""
    variant = SimpleNamespace(binding=None, waits=False)
    cached = _native.CachedCall(plan, variant, None, finish, True)
    path = SimpleNamespace(
        plans={vector_call().signature: [cached]},
        opened={},
        classes={id(int): _native.Checks(())},
        changed=changed or _native.Checks(()),
        texts=0,
        tells=False,
    )
    gate = _native.Gate(LOCK, np.ndarray, np.float64, lambda: None)
    gate.path = path
    return gate


class Bound(_native.Bound):
    """A bound call that leaves the gradient where it is, if the gate has not written it."""

    def finish(self, answer: Any) -> Any:
        return answer[0]


def bound_to(gate: Any, argument: Any) -> Any:
    """A bound call of ``vector_call`` whose gate has it."""
    bound = Bound()
    bound.gate, bound.arguments = gate, (argument, 7)
    bound.gradient = np.zeros((2, 1))
    return bound


class Entrance(_native.Entrance):
    """The calls of a function of ``vector_call`` that the gate answers; others are refused."""

    def _unanswered(self, arguments: Any, keywords: Any) -> Any:
        return None

    def _differentiate(self, arguments: Any, keywords: Any, out: Any, answer: Any) -> Any:
        return answer


class DerivedEntrance(_native.DerivedEntrance):
    """Likewise of its gradient."""

    def _unanswered(self, arguments: Any, keywords: Any) -> Any:
        return None

    def _derived(self, answer: Any, arguments: Any) -> Any:
        return answer


def entered(gate: Any, kind: type[Any] = Entrance, wanted: int = 0) -> Any:
    """What calls pass whose gate this is."""
    made = kind()
    made._gate, made._wanted = gate, wanted
    return made


def plan_call() -> Any:
    return _native.passed(([np.full((2, 1), 0.5), 0.5], 7), np.ndarray, np.float64, True, {})


def packing_parts() -> tuple[Any, ...]:
    """What ``pack_samples`` takes: two samples, of which the first is of a known kind."""
    decider = _native.Decider(
        2,
        *[np.zeros(0, np.int64)] * 3,
        np.zeros(0),
        np.array([[0, 0, 2]]),
        np.array([5, 6]),
        np.zeros(0, np.int64),
    )
    kind = decider, np.arange(2), np.arange(1), np.arange(1), 4
    return (
        [([1, 2],), ([3],)],
        [[kind]],
        0,
        np.arange(2),
        np.array([2]),
        np.ones(2),
        np.array([9]),
        np.array([0, 1, 2], np.int32),
        np.array([0, -1]),
        np.zeros(1, np.int64),
        np.zeros((1, 2)),
        np.zeros((1, 1), np.int64),
        np.full(2, -1),
        np.full(2, -1),
    )
