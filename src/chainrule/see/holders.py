"""Where a user keeps Values: variables, lists, dictionaries, models; and what each is called there.

The frame of a caller comes in; out come names for the Values that its variables hold. What lies in
a model, that is in the attributes of an object or in a dictionary of matrices, has the name that
the model gives it, ``layers.0.w[3,5]`` or ``wq[2,7]``, and counts as a weight. Anything else is
called as Python would write it: ``a``, ``w[0][1]``, ``table['bias']``.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from chainrule.core.backend import Value

_MOST_ITEMS = 100_000  # looked at inside the caller's lists, dictionaries and objects
_DEEPEST = 8  # attributes, keys and indices on the way to a weight
_TRANSPARENT = {"weights", "params", "parameters", "state_dict", "_parameters", "_modules"}
# Objects of Python's own and of notebooks, which know their whole surroundings.
_STRANGERS = {*sys.stdlib_module_names, "IPython", "ipykernel", "numpy"} - {"__main__"}
_NO_MODEL = (
    *(type, ModuleType, FunctionType, MethodType, BuiltinFunctionType),
    *(str, bytes, int, float, list, tuple, set, frozenset, np.ndarray),
)


@dataclass
class Held:
    """What was found: names by the ``id`` of a Value, weights first, and the caller's numbers."""

    weights: dict[int, str] = field(default_factory=dict)
    variables: dict[int, str] = field(default_factory=dict)
    numbers: set[float] = field(default_factory=set)  # of lists and arrays: what data look like


def held_by(frame: FrameType, wanted: set[int]) -> Held:
    """The names under which a frame's variables hold the wanted objects."""
    held = Held()
    budget = _Budget(_MOST_ITEMS)
    seen = {id(frame.f_locals), id(frame.f_globals)}  # what leads back here is no model
    models: list[tuple[str, Any]] = []
    for namespace in (frame.f_locals, frame.f_globals):
        listed: list[tuple[str, Any]] = []
        for name, thing in list(namespace.items()):
            # names with underscores, a notebook's history, and what a test runner rewrites
            if name.startswith("_") or name in ("In", "Out") or not name.isidentifier():
                continue
            if isinstance(thing, Value):
                if id(thing) in wanted:
                    held.variables.setdefault(id(thing), name)
            elif _is_model(thing):
                models.append((name, thing))
            elif isinstance(thing, (list, tuple, dict)):
                listed.append((name, thing))
            elif isinstance(thing, np.ndarray) and thing.dtype.kind == "f":
                held.numbers.update(thing.ravel()[:_MOST_ITEMS].tolist())
        _look_into_lists(listed, wanted, held, budget)
    _look_into_models(models, wanted, held, budget, seen)
    return held


def held_in(model: Any, wanted: set[int]) -> Held:
    """The names that one model gives to the wanted objects."""
    held = Held()
    _look_into_models([("", model)], wanted, held, _Budget(_MOST_ITEMS), set())
    return held


class _Budget:
    """How much may still be looked at."""

    def __init__(self, items: int) -> None:
        self.left = items

    def allows(self, items: int) -> bool:
        self.left -= items
        return self.left >= 0


def _is_model(thing: Any) -> bool:
    """An object of a class of somebody's own, or a dictionary of lists by their names."""
    if isinstance(thing, dict):
        inside = [v for k, v in list(thing.items())[:50] if isinstance(k, str)]
        return bool(inside) and all(isinstance(v, (list, tuple, np.ndarray)) for v in inside)
    if isinstance(thing, (*_NO_MODEL, Value)) or not hasattr(thing, "__dict__"):
        return False
    return type(thing).__module__.partition(".")[0] not in _STRANGERS


# --- lists and dictionaries -----------------------------------------------------------------------


def _look_into_lists(
    holders: list[tuple[str, Any]], wanted: set[int], held: Held, budget: _Budget
) -> None:
    for _depth in range(2):
        inner: list[tuple[str, Any]] = []
        for name, holder in holders:
            if not budget.allows(len(holder)):
                return
            for key, thing in _items(holder):
                if isinstance(thing, Value):
                    if id(thing) in wanted:
                        held.variables.setdefault(id(thing), f"{name}[{key!r}]")
                elif isinstance(thing, (list, tuple, dict)):
                    inner.append((f"{name}[{key!r}]", thing))
                elif isinstance(thing, float):
                    held.numbers.add(thing)
        holders = inner


def _items(holder: Sequence[Any] | Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    if isinstance(holder, Mapping):
        return [(k, v) for k, v in list(holder.items()) if isinstance(k, (str, int))]
    return enumerate(list(holder))


# --- models ---------------------------------------------------------------------------------------


def _look_into_models(
    models: list[tuple[str, Any]],
    wanted: set[int],
    held: Held,
    budget: _Budget,
    seen: set[int],
) -> None:
    """The weights of every model; a name that two models have gets the variable's in front."""
    found: list[tuple[int, str, str]] = []
    missing = set(wanted)
    for variable, model in models:
        for place, name in _weights(model, budget, seen):
            if place in missing:
                missing.discard(place)
                found.append((place, variable, name))
        if not missing:
            break
    owners = Counter(name for name, _ in {(name, variable) for _, variable, name in found})
    for place, variable, name in found:
        held.weights[place] = f"{variable}.{name}" if owners[name] > 1 else name


def _weights(model: Any, budget: _Budget, seen: set[int]) -> Iterator[tuple[int, str]]:
    """Every Value in a model with its name there, nearest first."""
    queue: deque[tuple[Any, str, tuple[int, ...], int]] = deque([(model, "", (), 0)])
    while queue:
        thing, path, index, depth = queue.popleft()
        if isinstance(thing, Value):
            yield id(thing), f"{path}[{','.join(map(str, index))}]" if index else path
            continue
        if id(thing) in seen or depth > _DEEPEST:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            if thing.dtype == object and budget.allows(thing.size):
                for place in np.ndindex(thing.shape):
                    queue.append((thing[place], path, (*index, *place), depth + 1))
        elif isinstance(thing, (list, tuple)):
            if budget.allows(len(thing)):
                for i, inner in enumerate(thing):
                    queue.append((inner, path, (*index, i), depth + 1))
        elif isinstance(thing, dict) or (_is_model(thing) and not isinstance(thing, type)):
            named = thing if isinstance(thing, dict) else vars(thing)
            if budget.allows(len(named)):
                inside = ".".join([path, *map(str, index)]) if path or index else ""
                for key, inner in list(named.items()):
                    if isinstance(key, (str, int)):
                        hidden = key in _TRANSPARENT and isinstance(inner, dict)
                        name = inside if hidden else f"{inside}.{key}".lstrip(".")
                        queue.append((inner, name, (), depth + 1))
