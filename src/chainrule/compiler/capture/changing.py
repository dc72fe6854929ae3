"""Whether a run of a function could change what it reaches, as far as its code shows.

In: the captured state of a function. Out: False where nothing in its code stores outside of its own
variables, calls what changes containers, or where there are none. Samples of a batch may then be
computed in any order, also those that run eagerly.
"""

from __future__ import annotations

import dis
import types
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainrule.compiler.capture.captured import CapturedState

_STORES = frozenset(
    "STORE_ATTR DELETE_ATTR STORE_SUBSCR DELETE_SUBSCR STORE_SLICE DELETE_SLICE".split()
)
_OUTSIDE = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL"))
_CELLS = frozenset(("STORE_DEREF", "DELETE_DEREF"))
#: of methods and functions that change what they are called on, or with
_CHANGING = frozenset(
    "append extend insert pop remove clear sort reverse update setdefault popitem add discard "
    "appendleft extendleft popleft rotate difference_update intersection_update subtract "
    "symmetric_difference_update move_to_end heappush heappop heapreplace heappushpop heapify "
    "insort insort_left insort_right shuffle setattr delattr fill put partition resize copyto "
    "setitem delitem next vars globals exec eval data grad backward zero_grad".split()
)


def may_change(state: CapturedState) -> bool:
    """Whether running the function could change its captured state."""
    codes = [code for f in state.functions for code in _all(f.__code__)]
    if any(_stores_outside(code) for code in codes):
        return True
    containers = (state.lists, state.sets, state.arrays, state.objects, state.generators)
    mappings = [mapping for mapping, contents, _ in state.dicts if contents]
    if not any(containers) and not mappings and not state.values:
        return False
    if any(isinstance(mapping, defaultdict) for mapping in mappings):
        return True  # reading it may insert
    methods = [x for _, _, x in state.names if isinstance(x, types.BuiltinMethodType)]
    if any(not isinstance(x.__self__, types.ModuleType) for x in methods):
        return True
    return any(_changes(code) for code in codes)


def _all(code: types.CodeType) -> list[types.CodeType]:
    inner = [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return [code, *[each for x in inner for each in _all(x)]]


def _stores_outside(code: types.CodeType) -> bool:
    """Whether it assigns to a global name, or to a variable of an enclosing function."""
    return any(
        step.opname in _OUTSIDE or (step.opname in _CELLS and step.argval in code.co_freevars)
        for step in dis.get_instructions(code)
    )


def _changes(code: types.CodeType) -> bool:
    """Whether it stores items or attributes, or may change a container in place."""
    if not _CHANGING.isdisjoint(code.co_names) or any("__" in name for name in code.co_names):
        return True
    return any(
        step.opname in _STORES or (step.opname == "BINARY_OP" and step.argrepr.endswith("="))
        for step in dis.get_instructions(code)
    )
