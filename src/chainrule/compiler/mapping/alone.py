"""Few samples of a map: calls one after the other, as long as lanes would take longer to prepare.

In: what a map was asked for. Out: values and gradients, a row for each sample, where the function's
gate has cached calls like these and answers all of them in C; else None, and they go in lanes,
where those like them go on to go: one map has the same bits whenever it is asked for again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.mapping.costs import most_alone
from chainrule.compiler.mapping.prepared import MOST, Asked
from chainrule.compiler.mapping.results import Results
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.trees import Node


def one_by_one(dispatch: Dispatch, asked: Asked, rows: bool) -> tuple[Results, Node] | None:
    """What samples give that share the first argument alone, and the structure of that."""
    count, most = len(asked.stacked[0]), most_alone(dispatch)
    if most is None or count > most or not asked.has_parameters:
        return None
    if _in_lanes(asked) in dispatch.prepared:
        return None
    (params,) = asked.shared
    found = dispatch.gate.rows(params, [*zip(*asked.stacked, strict=True)])
    if found is None:
        return None
    values, gradients = (np.frombuffer(x).reshape(count, -1) for x in found)
    results = Results(True, gradients.shape[1], count, rows, 0)
    if rows:
        results.values, results.gradients = values, gradients
    else:
        results.value, results.gradient = float(values.sum()), gradients.sum(axis=0)
    return results, _first(dispatch, asked)


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


def _in_lanes(asked: Asked) -> tuple[Any, ...]:
    return "lanes", asked.key, len(asked.stacked[0]).bit_length()


def _keep(dispatch: Dispatch, key: Any, found: Any) -> None:
    if key not in dispatch.prepared and len(dispatch.prepared) >= MOST:
        dispatch.prepared.clear()
    dispatch.prepared[key] = found
