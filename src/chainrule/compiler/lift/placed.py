"""The operands of an array instruction, once its nodes and what they read have addresses.

In: nodes of one shape, and where everything is. Out: the instruction with its rule, its columns of
operands, or what integers select from. Groups and steps place nodes in their own ways; what an
instruction reads follows from the places alike.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from chainrule.compiler.capture.recordings import FIRST_RULE, Recording
from chainrule.compiler.lift.graph import EXTREME, GATHER, RULE, Graph
from chainrule.compiler.lift.program import Addresses, Instruction, ranges


class Places(Protocol):
    """Where everything is."""

    graph: Graph
    recording: Recording
    address: Addresses  # of each node
    slots: Addresses | None  # of the integers, where a longer call's are others
    stretches: Addresses  # where the arrays begin that an integer may select from


def add_operands(
    made: Instruction, places: Places, nodes: Addresses, number: Addresses | None
) -> None:
    """Give an instruction its rule and operands; the terms of a sum or extreme are not among them.

    ``number``: addresses of the plain numbers that are second operands.
    """
    graph, first = places.graph, nodes[0]
    if made.kind in (RULE, EXTREME):
        made.rule = places.recording.rules[int(graph.codes[first]) - FIRST_RULE]
    plain_at, counts = graph.plain_at[nodes], np.diff(graph.plain_at)[nodes]
    if made.kind == RULE:
        assert made.rule is not None
        made.parameters = tuple(graph.constants[first, : len(made.rule.parameters)].tolist())
        made.operands = [places.address[graph.plains[plain_at + j]] for j in range(int(counts[0]))]
        made.number = number
    elif made.kind == GATHER:
        made.places = graph.places[nodes].astype(np.int64)
        made.slots = None if places.slots is None else places.slots[made.places]
        found = np.unique(places.address[graph.plains[ranges(plain_at, counts)]])
        chosen = np.unique(np.searchsorted(places.stretches, found, side="right") - 1)
        begin, end = places.stretches[chosen], places.stretches[chosen + 1]
        made.candidates = ranges(begin, end - begin)
