"""Plain calls on the machine code of ``value_and_grad``.

In: a plain call, and the variants of ``value_and_grad`` for the same arguments. Out: a variant that
has the machine code of one of them, where the recording is proven to hold for plain numbers too
(``capture.alike``). It has no tape: that of ``value_and_grad`` divides by ``a * b**-1``, and a
plain call by ``a / b``. What machine code leaves to the tape is left to eager mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from chainrule.compiler.capture import alike
from chainrule.compiler.capture.alike import Alike
from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.recordings import Output
from chainrule.compiler.capture.replacing import choices_watched
from chainrule.compiler.capture.undisturbed import plain_modes
from chainrule.compiler.runtime.results import root_of
from chainrule.compiler.runtime.variants import Variant
from chainrule.compiler.runtime.verification import are_close
from chainrule.core.backend import Value


def differentiated(call: Call) -> Call | None:
    """The call of ``value_and_grad`` with the arguments of a plain one; None: not to be shared."""
    if call.key[0] or call.values or call.narrow or call.roots or not call.arguments:
        return None
    structures = [*call.structure[0], *call.structure[1].values()]
    if alike.needed(structures[0], structures[1:]) is Alike.NONE:
        return None
    made = flatten_call(call.arguments, call.keywords, differentiate=True, texts=call.texts)
    is_same = made.sizes == call.sizes and made.ints == call.ints and made.first == call.first
    return made if is_same and made.refused is None else None


def shared(
    function: Callable[..., Any], call: Call, candidates: list[Variant], known: list[Variant]
) -> Variant | bool:
    """A variant for a plain call, on the machine code of one of those for ``value_and_grad``.

    ``known``: those that such calls have already. It was compared with an eager run; True where
    that gave something else, and False where no other variant is for the call.
    """
    structures = [*call.structure[0], *call.structure[1].values()]
    least = alike.needed(structures[0], structures[1:])
    taken = {id(variant.binding) for variant in known if variant.borrows}
    for candidate in candidates:
        is_known = candidate.binding is None or id(candidate.binding) in taken
        if is_known or candidate.alike < least:
            continue
        made = _of_numbers(candidate)
        made.example = replace(call, copied=True)
        run = made.run(call, made.binding)
        if run is not None and run.variant is not None:
            found = run.number(_root(made).position)
            return made if _is_confirmed(function, call, made, found) else True
    return False


def _of_numbers(variant: Variant) -> Variant:
    """The same recording and machine code, for numbers."""
    root = root_of(variant.recording.result)
    assert root is not None
    recording = variant.recording.without_instructions()
    recording = replace(recording, result=Output(root.position, is_value=False))
    inputs, grads = np.zeros_like(variant.inputs), np.zeros(0)
    return Variant(
        recording,
        (),
        variant.numeric,
        inputs,
        grads,
        binding=variant.binding,
        settled=variant.settled,
        uses_math=variant.uses_math,
        asks=variant.asks,
        alike=variant.alike,
        borrows=True,
    )


def _root(variant: Variant) -> Output:
    root: Output = variant.recording.result
    return root


def _is_confirmed(function: Callable[..., Any], call: Call, variant: Variant, found: float) -> bool:
    """Whether eager gives this number; the variant is told its type.

    Which type each number of a plain call has depends on the path through the function and on the
    types of its arguments, no more, as long as numbers of several types are never chosen from: what
    one run shows of types is so in all of them.
    """
    try:
        with plain_modes(), choices_watched() as types:
            result = function(*call.arguments, **call.keywords)
    except Exception:  # which the call itself raises too
        return False
    if variant.alike is Alike.CHOOSING and any(len(several) != 1 for several in types):
        return False
    number = result.data if type(result) is Value else result
    if type(number) not in (float, np.float64):
        return False
    variant.recording = replace(
        variant.recording,
        result=replace(
            _root(variant), is_value=type(result) is Value, is_numpys=type(result) is np.float64
        ),
    )
    assert variant.binding is not None
    return are_close(np.array([found]), np.array([number]), variant.binding.machine.dtype)
