"""What a recorded run returned and changed, as far as a replay can do it too.

In: the result of a run, and what it was passed. Out: what a replay returns and changes, or a
refusal: a replay makes new containers, so none that others hold may be among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, Rebuilt
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.handing import AMONG_VALUES, Handed, handed
from chainrule.compiler.capture.reading import Observed
from chainrule.compiler.capture.recorder import Recorder
from chainrule.compiler.capture.standins import StandIn, Unrecordable
from chainrule.core.backend import Value
from chainrule.trees import is_named_tuple, is_record, map_leaves


def _tuples_in(tree: Any) -> set[int]:
    """The ids of the tuples in nested arguments."""
    found, stack = set[int](), [tree]
    while stack:
        x = stack.pop()
        if isinstance(x, tuple):
            found.add(id(x))
        items = x.values() if isinstance(x, dict) else x
        stack += [y for y in items if issubclass(type(y), (list, tuple, dict))]
    return found


def handed_out(
    result: Any,
    recorder: Recorder,
    state: CapturedState,
    rebuilt: Rebuilt,
    call: Call,
    has_graph: Any,
) -> Handed:
    """What the function returned, and what it changed, as a replay can do it too.

    Where Values are around, it may change nothing, and return nothing that it was passed.
    """
    outside = {id(x) for x, *_ in (*state.lists, *state.dicts, *state.arrays, *state.sets)}
    arrays = [x for x, _ in rebuilt.arrays]
    if call.key[0] or has_graph or state.outside or recorder.marker is not None:
        if type(result) is Value:
            return Handed(result)
        tuples = _tuples_in([rebuilt.arguments, rebuilt.keywords])
        if not call.key[0]:
            _look_for_copies(result, recorder)
        try:
            _check_returned(result, outside | recorder.passed, tuples, state, arrays)
        except Unrecordable as reason:
            among_values = has_graph and not call.key[0]
            raise Unrecordable(f"{reason}{AMONG_VALUES if among_values else ''}") from None
        return Handed(result)
    stored, others = recorder.stores_into.keys(), outside | state.objects_by_id.keys()
    # What integers selected is a copy of what was passed.
    found = handed(rebuilt, result, stored.__contains__, others, recorder.selector.observed)
    new: list[Any] = []
    map_leaves(new.append, [found.result, [x.items for x in found.changes]], records=True)
    new = [x for x in new if isinstance(x, np.ndarray)]
    _check_returned(new, outside, set(), state, arrays)
    return found


def _look_for_copies(x: Any, recorder: Recorder) -> None:
    """``Observed`` where a container is returned that is a copy of what an integer selected."""
    kind = type(x)
    if kind in (list, tuple, dict) or isinstance(x, np.ndarray):
        recorder.selector.observed(x)
    if kind in (list, tuple, dict):
        for item in x.values() if kind is dict else x:
            _look_for_copies(item, recorder)


def _check_returned(
    result: Any, outside: set[int], tuples: set[int], state: CapturedState, arrays: list[Any]
) -> None:
    """Refuse a result that is, or holds, a container which others hold too: it would be a copy.

    ``outside``: the ids of those. ``arrays``: those that were passed; what shares memory with one
    is a view of it.
    """
    stack, seen = [result], set[int]()
    held = [np.ndarray.view(x, np.ndarray) for x in (*arrays, *[x for x, *_ in state.arrays])]
    while stack:
        x = stack.pop()
        if isinstance(x, np.ndarray):
            memory = np.ndarray.view(x, np.ndarray)
            if any(np.may_share_memory(memory, other) for other in held):
                raise Unrecordable("it returns an array whose memory is used elsewhere too")
            held.append(memory)
        if type(x) in (list, dict) or (type(x) is tuple and x):
            if id(x) in outside or id(x) in seen:
                kind = type(x).__name__
                raise Unrecordable(f"it returns a {kind} that is held elsewhere too")
            seen.add(id(x))
        if is_named_tuple(x) or is_record(x):
            raise Unrecordable(f"it returns a {type(x).__name__}")
        if id(x) in tuples:
            raise Unrecordable("it returns a tuple that it was passed")
        if type(x) is dict and any(isinstance(key, StandIn) for key in x):
            raise Unrecordable("it returns a dict with keys that it was passed")
        if type(x) in (list, tuple, dict):
            stack.extend(x.values() if type(x) is dict else x)


def check_identities(result: Any, held: set[int], recorder: Recorder) -> None:
    """Refuse a result that is a Value which others hold: it would be another one.

    What max or min chose is not known to be: it is recorded again by branches.
    """
    returned = {id(x): x for x in values_in(result)}
    if not held.isdisjoint(returned):
        raise Unrecordable("it returns a Value that it was passed or reaches by itself")
    for key, x in returned.items():
        others = recorder.selector.origins(x) - {key}
        if not others.isdisjoint(held) or not others.isdisjoint(returned):
            raise Observed


def values_in(result: Any) -> list[Value]:
    """The Values of a result, in lists, dicts and arrays too."""
    found: list[Value] = []

    def note(leaf: Any) -> None:
        items = leaf.flat if isinstance(leaf, np.ndarray) and leaf.dtype == object else [leaf]
        found.extend(x for x in items if isinstance(x, Value))

    map_leaves(note, result, records=True)
    return found
