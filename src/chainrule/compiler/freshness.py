"""What a function reads without being passed it, and whether that has changed.

In: a function. Out: a ``Surroundings``: the Values it may reach through its global names, closure,
defaults, ``self`` and Python helpers, and a check, quick enough for every call, that everything else
reached so (numbers, strings, arrays, the containers themselves) is as it was. Values are known by
identity and read afresh, so a changed ``p.data`` needs no new recording.
"""

from __future__ import annotations

import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainrule import errors
from chainrule.engine import Value, kernels

_ATOMS = (int, float, complex, str, bytes, bool, type(None))
_LIBRARIES = tuple(
    path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))
)
_LIMIT = 1_000_000


@dataclass(eq=False)
class Surroundings:
    """What a function reaches, as it was when it was walked."""

    values: list[Value] = field(default_factory=list)
    lists: list[tuple[list[Any], tuple[Any, ...]]] = field(default_factory=list)
    dicts: list[tuple[Any, dict[Any, Any]]] = field(default_factory=list)  # dicts, __dict__s
    names: list[tuple[Any, str, Any]] = field(default_factory=list)  # namespace, name, object
    cells: list[tuple[Any, Any]] = field(default_factory=list)
    arrays: list[tuple[Any, Any]] = field(default_factory=list)
    _pairs: tuple[Any, ...] = ()

    def changed(self) -> str | None:
        """What is no longer as it was, in words, or None."""
        for namespace, name, before in self.names:
            now = _look_up(namespace, name)
            if now is not before and not _same(now, before):
                return f"the global {name!r}"
        for cell, before in self.cells:
            if not _same(cell.cell_contents, before):
                return "a variable of an enclosing function"
        for mapping, contents in self.dicts:
            if len(mapping) != len(contents) or mapping.keys() != contents.keys():
                return "the keys of a dict or the attributes of an object"
            for key, before in contents.items():
                if mapping[key] is not before and not _same(mapping[key], before):
                    return f"{key!r}"
        if self._changed_list() is not None:
            return "an item of a list"
        for array, before in self.arrays:
            if array.shape != before.shape or not np.array_equal(array, before, equal_nan=True):
                return "the contents of an array"
        return None

    def _changed_list(self) -> int | None:
        """The first list whose items changed; by identity in C, then numbers by value."""
        if kernels is not None:
            if len(self._pairs) != len(self.lists):
                self._pairs = tuple(self.lists)
            if kernels.same_items(self._pairs) < 0:
                return None
        for i, (items, before) in enumerate(self.lists):
            if len(items) != len(before) or not all(map(_same, items, before)):
                return i
        return None

    def restore(self) -> None:
        """Put lists and dicts back as they were: a recorded run must leave no trace."""
        for items, before in self.lists:
            if len(items) != len(before) or any(a is not b for a, b in zip(items, before, strict=True)):
                items[:] = before
        for mapping, contents in self.dicts:
            if isinstance(mapping, dict) and (
                mapping.keys() != contents.keys()
                or any(mapping[k] is not x for k, x in contents.items())
            ):
                mapping.clear()
                mapping.update(contents)


def _same(now: Any, before: Any) -> bool:
    """Identical, or an equal number or text."""
    if now is before:
        return True
    if type(now) is not type(before) or not isinstance(now, (*_ATOMS, np.generic)):
        return False
    return bool(now == before) or (now != now and before != before)


_MISSING = object()


def _look_up(namespace: Any, name: str) -> Any:
    if isinstance(namespace, dict):
        return namespace.get(name, _MISSING)
    return getattr(namespace, name, _MISSING)


def survey(function: Callable[..., Any]) -> Surroundings:
    """Walk everything the function reaches."""
    found = Surroundings()
    seen: set[int] = set()
    kept: list[Any] = []  # so that no id is used twice
    stack: list[Any] = [function]
    while stack:
        x = stack.pop()
        if id(x) in seen or isinstance(x, _ATOMS):
            continue
        seen.add(id(x))
        kept.append(x)
        if len(kept) > _LIMIT:
            break
        stack.extend(reversed(list(_reached(x, found))))  # depth first, in the order of the source
    found.values = list({id(v): v for v in found.values}.values())
    return found


def _reached(x: Any, found: Surroundings) -> Iterator[Any]:
    """Note what can change about ``x`` and give what is inside it."""
    if isinstance(x, Value):
        found.values.append(x)
    elif isinstance(x, types.MethodType):
        yield from (x.__func__, x.__self__)
    elif isinstance(x, types.FunctionType):
        if not _is_library(x.__code__.co_filename):
            yield from _reached_by_code(x, found)
    elif isinstance(x, list):
        found.lists.append((x, tuple(x)))
        yield from x
    elif isinstance(x, (tuple, set, frozenset)):
        yield from x
    elif isinstance(x, dict):
        found.dicts.append((x, dict(x)))
        yield from x.values()
    elif isinstance(x, np.ndarray):
        if x.dtype == object:
            yield from x.ravel().tolist()
        found.arrays.append((x, x.copy()))
    elif isinstance(x, type):
        if not _is_library(getattr(sys.modules.get(x.__module__), "__file__", None)):
            yield from (item for item in vars(x).values() if not isinstance(item, types.GetSetDescriptorType))
    elif isinstance(x, (staticmethod, classmethod)):
        yield x.__func__
    elif isinstance(x, property):
        yield from (f for f in (x.fget,) if f is not None)
    elif hasattr(x, "__wrapped__"):
        yield x.__wrapped__
    elif not isinstance(x, types.ModuleType) and not errors.is_real(x):
        yield type(x)
        attributes = getattr(x, "__dict__", None)
        if isinstance(attributes, dict):
            found.dicts.append((attributes, dict(attributes)))
            yield from attributes.values()


def _is_library(filename: str | None) -> bool:
    """Whether code comes with Python or an installed package, and so keeps its globals."""
    return filename is None or filename.startswith((*_LIBRARIES, errors.PACKAGE, "<frozen"))


def _reached_by_code(function: types.FunctionType, found: Surroundings) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        found.cells.append((cell, content))
        yield content
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    namespace = function.__globals__
    for name in _names(function.__code__):
        if name not in namespace:
            continue
        x = namespace[name]
        found.names.append((namespace, name, x))
        yield x
        if isinstance(x, types.ModuleType) and not _is_library(getattr(x, "__file__", None)):
            for attribute in _names(function.__code__):
                item = getattr(x, attribute, _MISSING)
                if item is not _MISSING:
                    found.names.append((x, attribute, item))
                    yield item


def _names(code: types.CodeType) -> set[str]:
    """Every global or attribute name in a function and the functions inside it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names
