"""What a recording cannot be used for, though it was made: a replay would return something else.

In: a call, and its recording. Out: nothing, or ``Unrecordable``, with the reason; and in words, why
there is no recording where only a recorded run fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.recordings import ArrayOutput
from chainrule.compiler.capture.running import Trace
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.runtime.causes import own_paths, reasons_for_recordings
from chainrule.compiler.runtime.results import carriers, has_no_graph, root_of, value_places
from chainrule.compiler.runtime.variants import Structure
from chainrule.core import errors
from chainrule.derivatives.transforms import values_around
from chainrule.trees import map_leaves

FEW = 32  # recordings of one structure in training, before most calls must have had one already


def is_of_numbers(call: Call) -> bool:
    """Whether no Values are passed: all that is computed then are stand-ins for numbers."""
    return not call.key[0] and not call.values


def refuse_arrays_of_values(call: Call, made: Trace) -> None:
    """Refuse a function that returns an array of Values with a graph: a replay has none for it.

    So is one that holds plain numbers too, whose types are not known.
    """
    leaves: list[Any] = []
    map_leaves(leaves.append, made.recording.returned, records=True)
    found = [x for x in leaves if isinstance(x, ArrayOutput) and x.is_value]
    mixed = any(len(x.places) < len(x.fixed) for x in found)
    if mixed or (found and not has_no_graph(call, made.captured)):
        raise Unrecordable("it returns an array of Values")


def refuse_values_around(function: Callable[..., Any], call: Call, made: Trace) -> None:
    """Where the function itself has a Value in its graph, its derivative is a Value, not a number.

    That one's gradient would be lost otherwise: see ``transforms.value_and_derivative``.
    """
    around = {id(x): name for name, x in values_around(function)}
    if not around:
        return
    outer, roots = made.recording, [root_of(made.recording.result)]
    while made.derived_from is not None:  # eager asks for the graph of the function itself
        made = made.derived_from
        roots = [x for x in made.recording.outputs if x.is_value]
    recording = made.recording
    reached: set[int] = set()
    for root in roots:
        if root is not None and root.position not in reached:
            reached |= carriers(recording, root.position)
    values = [*call.values, *made.captured]  # one that is passed too is not among the latter
    # The vector of a product comes before them, of which the function itself knows nothing.
    added = outer.inputs - recording.inputs
    for place, value in zip(value_places(call, len(made.captured)), values, strict=True):
        if id(value) in around and not reached.isdisjoint({place, place - added}):
            raise Unrecordable(
                f"it uses the Value {around[id(value)]} from outside, and so its derivative is a "
                "Value: pass it as an argument, or as a number"
            )


def refuse_many(structure: Structure) -> None:
    """Refuse one more recording of a structure, where those so far served few calls."""
    structure.recordings += 1
    if structure.recordings > FEW and structure.hits < structure.recordings:
        raise Unrecordable(own_paths(next(iter(reasons_for_recordings(structure.variants)), None)))


def failure_of(error: Exception) -> str:
    """What is told where only a recorded run raises: stand-ins went where they are not taken."""
    line, called = errors.line_of(error), errors.called_in_library(error)
    place = "" if line is None else f", at {line}"
    if called is None:
        return (
            f"recording it raised {type(error).__name__}{_message(error)}{place}: what stands for "
            "numbers while it is recorded was not taken there"
        )
    return (
        f"it calls {called}, which fails on what stands for numbers while it is recorded{place}; "
        "write it with operators and functions of chainrule, or pass its result as an argument"
    )


def _message(error: Exception) -> str:
    """What an error says, unless a stand-in in it cannot be shown."""
    try:
        return f": {error}"
    except BaseException:
        return ""
