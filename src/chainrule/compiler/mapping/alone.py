"""Few samples of a map: calls one after the other, as long as lanes would take longer to prepare.

In: what a map was asked for. Out: whether its samples are few, and of these values and gradients, a
row for each, where the function's gate has cached calls like these and answers all of them in C.
Few samples of which nothing is cached yet are calls in Python: so a function that is only ever
mapped is recorded and cached as one that is called. Where that is in vain they go in lanes, and
those like them go on to go there: one map has the same bits whenever it is asked for again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.mapping.costs import most_alone
from chainrule.compiler.mapping.prepared import MOST, Asked
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.trees import Floats, Node

FEWEST = 16  # samples that go in lanes while nobody knows how much there is to do for one of them
VAIN = 3  # maps in a row that the gate does not answer once they were recorded: then lanes do


def are_few(dispatch: Dispatch, asked: Asked) -> bool:
    """Whether samples, which share the first argument alone, had better be calls."""
    if not asked.has_parameters:
        return False
    variant = dispatch.gate.answered
    # What a sample takes on the tape says nothing: calls earn machine code, as they always do.
    waits = variant is not None and variant.binding is None and variant.waits
    most = None if waits else most_alone(dispatch)
    few = len(asked.stacked[0]) <= (FEWEST - 1 if most is None else most)
    return few and _in_lanes(asked) not in dispatch.prepared


def one_by_one(dispatch: Dispatch, asked: Asked) -> tuple[Floats, Floats, Node] | None:
    """Values and gradients of few samples, and the structure of the first argument.

    None: nothing is cached.
    """
    (params,) = asked.shared
    found = dispatch.gate.rows(params, [*zip(*asked.stacked, strict=True)])
    if found is None:
        return None
    dispatch.prepared.pop(("vain", asked.key), None)
    values, gradients = np.frombuffer(found[0]), np.frombuffer(found[1])
    return values, gradients.reshape(len(values), -1), _first(dispatch, asked)


def _first(dispatch: Dispatch, asked: Asked) -> Node:
    """The structure of the first argument, which is kept for the next map like it."""
    key = "few", asked.key
    found: Node | None = dispatch.prepared.get(key)
    if found is None:
        found = flatten_call(asked.shared, {}, differentiate=True).structure[0][0]
        _keep(dispatch, key, found)
    return found


def stay_in_lanes(dispatch: Dispatch, asked: Asked) -> None:
    """Let maps of about so many samples go in lanes from now on, as this one did: to its bits."""
    with dispatch.lock:
        _keep(dispatch, _in_lanes(asked), True)


def were_calls(dispatch: Dispatch, asked: Asked, call: Call) -> None:
    """Few samples were calls in Python; ``call``: the first. Others may be answered by the gate.

    If not, though the function was recorded, they go in lanes soon.
    """
    with dispatch.lock:
        if dispatch.known(call):
            key = "vain", asked.key
            times = dispatch.prepared.get(key, 0) + 1
            _keep(dispatch, key, times)
            if times >= VAIN:
                _keep(dispatch, _in_lanes(asked), True)


def _in_lanes(asked: Asked) -> tuple[Any, ...]:
    return "lanes", asked.key, len(asked.stacked[0]).bit_length()


def _keep(dispatch: Dispatch, key: Any, found: Any) -> None:
    """Remember something about maps like one, for a while."""
    if key not in dispatch.prepared and len(dispatch.prepared) >= MOST:
        dispatch.prepared.clear()
    dispatch.prepared[key] = found
