"""One call of a compiled function, from its arguments to what it returns.

In: the arguments as the user gave them. Out: the value, or the value and its gradient, in the
user's own structure: from the fast path, from a ``Run``, or from the function itself, eagerly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call, holds_values, like_first
from chainrule.compiler.capture.recordings import ArrayOutput, Output
from chainrule.compiler.capture.undisturbed import is_internal
from chainrule.compiler.runtime.assembly import are_free, come_once
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.expansion import Expansion
from chainrule.compiler.runtime.keeping import Keeping, note_changes
from chainrule.compiler.runtime.results import (
    compiled_node,
    fill,
    first_of,
    has_extras,
    nodes_of,
    root_of,
    value_places,
)
from chainrule.compiler.runtime.variants import EAGERLY, Path, Run
from chainrule.core.backend import Value, kernels, modes
from chainrule.core.condensed import Condensed
from chainrule.derivatives import transforms
from chainrule.derivatives.arguments import usual
from chainrule.trees import Floats, map_leaves

PAIR_IF_TUPLE = 2  # to a Derivation: what a function returns may be a pair of a value and extras


def value(dispatch: Dispatch, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """What the function returns: a Value where Values are involved, else floats."""
    if not keywords:
        answer = dispatch.answer(arguments, False)
        if answer is not None:
            return None if answer is NotImplemented else answer
    return unanswered_value(dispatch, arguments, keywords)


def unanswered_value(
    dispatch: Dispatch, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """The same, where the gate has no answer."""
    if dispatch.gate.rest():
        return _rested_value(dispatch, arguments, keywords)
    # Part of another recording or its check; or a replay's derivatives, which are numbers, would be
    # differentiated again.
    if modes.recorder is not None or is_internal() or transforms.is_differentiated_again():
        return dispatch.function(*arguments, **keywords)
    if dispatch.keeping is not None:
        found, kept = _kept(dispatch, arguments, keywords, False)
        if found is None:
            return _eager_value(dispatch.serving, arguments, keywords, kept)
        return found[0]
    if dispatch.rests():
        return _eager_value(dispatch, arguments, keywords)
    call = flatten_call(arguments, keywords, differentiate=False, texts=dispatch.texts)
    found = _served(dispatch, call, lambda run: _answer(dispatch, run, call))
    return _eager_value(dispatch, arguments, keywords, call) if found is None else found[0]


def value_and_grad(
    dispatch: Dispatch,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    out: Any = None,
    at_once: bool = False,
) -> Any:
    """``CompiledFunction.value_and_grad``; see there.

    ``at_once``: by machine code from the first call on, where there can be some.
    """
    if not keywords:
        answer = dispatch.answer(arguments, True, out)
        if answer is not None:
            if out is None:
                return answer
            number, gradient = (answer, out) if type(answer) is float else answer
            return number, fill(out, gradient)
    return unanswered_value_and_grad(dispatch, arguments, keywords, out, at_once)


def unanswered_value_and_grad(
    dispatch: Dispatch,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    out: Any = None,
    at_once: bool = False,
    name: str = "value_and_grad",
) -> Any:
    """The same, where the gate has no answer; ``name``: of the transform, for messages."""
    if not arguments:
        raise TypeError("value_and_grad takes the argument to differentiate by first")
    if modes.recorder is not None:
        modes.recorder.forbid("value_and_grad of a compiled function")
    if transforms.is_nested() or is_internal():
        # The derivative may depend on what an outer transform differentiates by.
        return _eager_value_and_grad(dispatch, arguments, keywords, out, name)
    if dispatch.keeping is not None:
        found, kept = _kept(dispatch, arguments, keywords, True, at_once)
        if found is None:
            return _eager_value_and_grad(dispatch.serving, arguments, keywords, out, name, kept)
        return found[0][0], fill(out, found[0][1])
    if not at_once and dispatch.gate.derivation is None:
        dispatch.gate.derivation = _derivation(dispatch.function)
    if not at_once and dispatch.rests(has_graph=True):
        return _eager_value_and_grad(dispatch, arguments, keywords, out, name)
    call = flatten_call(arguments, keywords, differentiate=True, texts=dispatch.texts)

    def differentiated(run: Run) -> tuple[Any, Any]:
        result = _with_float(_floats(run))
        return result, _gradient(dispatch, run, call, result)

    result, grads = _served(dispatch, call, differentiated, at_once) or (None, None)
    if grads is None:  # outside the lock: eager code may call other compiled functions
        return _eager_value_and_grad(dispatch, arguments, keywords, out, name, call)
    return result, fill(out, like_first(call.structure[0][0], arguments[0], grads))


def sized_value_and_grad(dispatch: Dispatch, arguments: tuple[Any, ...]) -> tuple[Any, int]:
    """The same eagerly, and how many nodes the graph has; for whoever keeps the books of it."""
    dispatch.serving.leave_to_eager()
    x, *others = arguments
    value, gradient, result = transforms.value_and_derivative(
        "value_and_grad", dispatch.function, x, others, {}, _main
    )
    return (_with_extras(value, result), gradient), nodes_of(_main(result))


def derivative(dispatch: Dispatch, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """``CompiledDerivative.__call__``; the first argument is what it differentiates by.

    The gate has no answer.
    """
    if dispatch.gate.rest():
        return _rested_value(dispatch, arguments, keywords)
    if dispatch.rests() or holds_values(arguments[0]):
        return _eager_value(dispatch, arguments, keywords)
    call = flatten_call(arguments, keywords, differentiate=True)
    result = _served(dispatch, call, lambda run: (_floats(run),))
    return _eager_value(dispatch, arguments, keywords, call) if result is None else result[0]


def _served(
    dispatch: Dispatch, call: Call, read: Callable[[Run], Any], at_once: bool = False
) -> Any:
    """What ``read`` makes of the run of a call; None for one that has to run eagerly."""
    with dispatch.lock:
        alone, dispatch.busy = not dispatch.busy, True
        try:
            if dispatch.keeping is not None:  # another thread has found out what it changes
                dispatch.serving.leave_to_eager()
                return None
            run = dispatch.run(call, at_once) if alone else EAGERLY
            note_changes(dispatch)
            if run.path is Path.EAGER:
                return None
            dispatch.cache(call, run)
            return read(run)
        finally:
            dispatch.busy = not alone


# --- of functions that keep numbers outside -------------------------------------------------------


def _kept(
    outer: Dispatch,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    differentiate: bool,
    at_once: bool = False,
) -> tuple[Any, Call | None]:
    """What a replay gave, in a tuple, and the numbers outside are changed; None for eager.

    The lock is held from reading them until they are written.
    """
    with outer.lock:
        keeping: Keeping = outer.keeping
        dispatch = keeping.dispatch
        if not keywords:
            before = keeping.begin()
            answer = dispatch.answer((*arguments, *before), differentiate)
            if answer is not None and keeping.answered(arguments):
                found = keeping.finish(before, answer[0] if differentiate else answer)
                if found is not None:
                    return ((found[0], answer[1]),) if differentiate else found, None
        if not at_once and dispatch.rests():
            if differentiate and outer.gate.derivation is None:
                outer.gate.derivation = _derivation(outer.function)
            return None, None
        call, before = keeping.call(arguments, keywords, differentiate)
        if call is None:
            dispatch.leave_to_eager()
            return None, None

        def read(run: Run) -> Any:
            assert run.variant is not None
            keeping.note(run.variant, call)
            if not differentiate:
                pair = _answer(dispatch, run, call)
                return None if pair is None else keeping.finish(before, pair[0])
            pair = _with_float(_floats(run))
            grads = _gradient(dispatch, run, call, pair)
            if grads is None or not has_extras(pair):
                return None
            result = keeping.finish(before, pair)
            gradient = like_first(call.structure[0][0], arguments[0], grads)
            return None if result is None else ((result[0], gradient),)

        found = _served(dispatch, call, read, at_once)
        keeping.extend()
        return found, call


# --- from a run -----------------------------------------------------------------------------------


def _assembled(dispatch: Dispatch, run: Run, call: Call) -> Any:
    """What a plain call returns, and what it was passed is changed; or NotImplemented."""
    assert run.variant is not None
    outputs = run.variant.recording.outputs
    numbers = iter(run.numbers([x.position for x in outputs]).tolist())
    found: list[Any] = []
    for leaf in run.variant.assembly.leaves:
        if isinstance(leaf, ArrayOutput):
            row = list(itertools.islice(numbers, len(leaf.positions)))
            found.append(leaf.filled(np.array(row, np.float64)))
        else:
            found.append(next(numbers))
    captured, given = dispatch.captured, (call.arguments, call.keywords)

    def may_change(changed: list[Any]) -> bool:
        return captured is not None and are_free(captured, changed) and come_once(changed, *given)

    return run.variant.assembly.run(found, *given, may_change)


def _floats(run: Run) -> Any:
    """What the function returned, as floats."""
    assert run.variant is not None
    outputs = run.variant.recording.outputs
    if len(outputs) == 1:
        found = [run.number(outputs[0].position)]
    else:
        found = run.numbers([x.position for x in outputs]).tolist()
    rest = iter(found)

    def number(x: Any) -> Any:
        if isinstance(x, ArrayOutput):
            return x.filled(np.array(list(itertools.islice(rest, len(x.positions))), np.float64))
        return x.plain(next(rest)) if isinstance(x, Output) else x

    return map_leaves(number, run.variant.recording.result, records=True)


def _with_float(result: Any) -> Any:
    """The value that is differentiated as a float, also where it is a plain integer."""
    value = first_of(result)
    return (value, result[1]) if has_extras(result) else value


def _gradient(dispatch: Dispatch, run: Run, call: Call, result: Any) -> Floats | None:
    """The gradient by all floats of the call; None where only eager can tell."""
    assert run.variant is not None
    root = root_of(run.variant.recording.result)
    if root is not None:
        swept = run.sweep(root.position)
        return None if swept is None else swept[: call.size].copy()
    if isinstance(first_of(result), float):
        return np.zeros(call.size)  # a number that does not depend on the argument
    return None  # eager says what is wrong with it


def _answer(dispatch: Dispatch, run: Run, call: Call) -> tuple[Any] | None:
    """What a plain call returns: one node over the Values involved, or floats.

    None where only eager can tell.
    """
    variant = run.variant
    assert variant is not None
    children = (*call.values, *variant.captured) if call.values else variant.captured
    if not (children and variant.returns_values):  # numbers, or Values of constants
        found = _assembled(dispatch, run, call)
        return None if found is NotImplemented else (found,)
    root = root_of(variant.recording.result)
    assert root is not None  # see Variant.returns_several
    y = run.number(root.position)
    if modes.grad:
        slopes = run.sweep(root.position)
        if slopes is None:
            return None
        places = value_places(call, len(variant.captured))
        expansion = Expansion.of(dispatch, run, call, root.position, places)
        node = compiled_node(y, Condensed(dispatch.name, expansion), children, slopes[places])
    else:
        node = Value(y)
    if isinstance(variant.recording.result, tuple):
        return ((node, *_floats(run)[1:]),)
    return (node,)


# --- eagerly --------------------------------------------------------------------------------------


def _rested_value(dispatch: Dispatch, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A plain call that the gate has counted already."""
    try:
        return dispatch.function(*arguments, **keywords)
    except BaseException:
        dispatch.gate.failed += 1
        raise


def _eager_value(
    dispatch: Dispatch,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    call: Call | None = None,
) -> Any:
    try:
        result = dispatch.function(*arguments, **keywords)
    except BaseException:
        dispatch.failed()
        raise
    dispatch.ran_eagerly(result, call)
    if call is not None:
        dispatch.block(call)
    return result


def _eager_value_and_grad(
    dispatch: Dispatch,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    out: Any,
    name: str,
    call: Call | None = None,
) -> Any:
    """Exactly the eager call, on the user's own objects; extras that ``f`` returns come along."""
    x, *others = arguments
    try:
        value, gradient, result = transforms.value_and_derivative(
            name, dispatch.function, x, others, keywords, _main
        )
    except BaseException:
        dispatch.failed()
        raise
    dispatch.ran_eagerly(_main(result))
    if call is not None:
        dispatch.block(call)
    return _with_extras(value, result), fill(out, gradient)


def _main(result: Any) -> Any:
    return result[0] if has_extras(result) else result


def _with_extras(value: Any, result: Any) -> Any:
    return (value, transforms.as_numbers(result[1])) if has_extras(result) else value


def _derivation(function: Callable[..., Any]) -> Any:
    """What runs ``value_and_grad`` of a function eagerly in C; None on the reference engine."""
    name = "value_and_grad"

    def slow(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        x, *others = arguments
        value, gradient, result = transforms.value_and_derivative(
            name, function, x, others, keywords, _main
        )
        return _with_extras(value, result), gradient

    def finish(x: Any, leaves: list[Value], result: Any) -> Any:
        value, gradient = transforms.derived(name, function, x, None, leaves, _main(result))
        return _with_extras(value, result), gradient

    if kernels is None:
        return None
    plain = transforms.as_numbers
    return kernels.Derivation(function, usual, slow, finish, plain, 0, PAIR_IF_TUPLE, False)
