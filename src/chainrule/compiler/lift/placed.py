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

    @property
    def stretches(self) -> Addresses:
        """Where the arrays begin that an integer may select from."""


def add_operands(
    made: Instruction, places: Places, nodes: Addresses, number: Addresses | None
) -> None:
    """Give an instruction its rule and operands; the terms of a sum or extreme are not among them.

    ``number``: addresses of the plain numbers that are second operands.
    """
    graph, first = places.graph, nodes[0]
    if made.kind in (RULE, EXTREME):
        made.rule = graph.rules[graph.code_of(first) - FIRST_RULE]
    if made.kind == RULE:
        plain_at = graph.plain_at[nodes]
        assert made.rule is not None
        arity = int(graph.plain_at[first + 1]) - int(plain_at[0])
        made.parameters = tuple(graph.constants_of(first)[: len(made.rule.parameters)].tolist())
        made.operands = [places.address[graph.plains[plain_at + j]] for j in range(arity)]
        made.number = number
    elif made.kind == GATHER:
        made.places = graph.places_of(nodes)
        made.slots = None if places.slots is None else places.slots[made.places]
        found = _candidates(places, made.places)
        chosen = np.unique(np.searchsorted(places.stretches, found, side="right") - 1)
        begin, end = places.stretches[chosen], places.stretches[chosen + 1]
        made.candidates = ranges(begin, end - begin)


def _candidates(places: Places, gathers: Addresses) -> Addresses:
    """All that some gathers may select; many have the same table of candidates."""
    selection = places.recording.selection
    owners = np.unique(selection.owners[gathers]).tolist()
    tables = {id(table): table for table in (selection.gathers[k].candidates for k in owners)}
    positions = np.unique(np.concatenate(list(tables.values())))
    return np.unique(places.address[places.graph.at[positions]])
