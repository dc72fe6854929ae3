"""C source is compared with eager mode before anybody gets it, through its Python twin.

In: a function, its recorded call, and the twin. Out: nothing where values and derivatives agree;
else an ``Untranslatable``. A call that the source refuses must not be the example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.random_states import random_states_kept
from chainrule.compiler.runtime.results import as_floats, gradient_up_to, has_extras
from chainrule.compiler.translate.c.mirror import Mirror
from chainrule.compiler.translate.checking import (
    calls_like,
    compare,
    numbers_of,
    plain_arguments,
    run_on_values,
)
from chainrule.compiler.translate.module import Signature
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.core.backend import Value
from chainrule.trees import Floats, map_leaves


def check(function: Callable[..., Any], call: Call, mirror: Mirror, signature: Signature) -> None:
    """Compare with the function itself, for this call, for other numbers and other integers."""
    with random_states_kept():
        for k, other in enumerate(calls_like(call)):
            try:
                wanted, slopes = _eager(function, other)
            except Exception:
                if k == 0:
                    raise
                continue  # out of a domain, or an index out of range
            found = _mirrored(mirror, other, signature)
            if found is None:
                if k == 0:
                    raise Untranslatable("its source refuses the example (please report this)")
                continue
            values, rows = found
            compare(wanted, np.array(values, np.float64), "value")
            for row, slope in zip(rows, slopes, strict=False):
                compare(slope, row, "gradient")


def _eager(function: Callable[..., Any], call: Call) -> tuple[Floats, list[Floats]]:
    """The numbers that a call returns, and the derivatives of those that are Values."""
    result, inputs = run_on_values(function, call)
    first = result[0] if has_extras(result) and isinstance(result[0], Value) else result
    found: list[Floats] = []

    def slope(x: Any) -> Any:
        if isinstance(x, np.ndarray) and x.dtype == object:
            return [slope(item) for item in x.ravel().tolist()]
        known = isinstance(x, Value)
        found.append(gradient_up_to(x, inputs) if known else np.zeros(len(inputs)))
        return x

    map_leaves(slope, first, True)
    return numbers_of(as_floats(result)), found


def _mirrored(
    mirror: Mirror, call: Call, signature: Signature
) -> tuple[list[float], list[Floats]] | None:
    arguments = plain_arguments(call)
    space = dict(zip(signature.parameters, arguments, strict=True))
    rows: list[Floats] = []
    integers: list[int] = []
    for named in signature.inputs:
        if named.integers:
            found = np.ravel(np.asarray(eval(named.path, {}, dict(space))))
            integers += [int(x) for x in found.tolist()]
        else:
            code = eval(named.path, {}, dict(space)) if named.path else np.zeros(named.size)
            rows.append(np.ravel(np.asarray(code, np.float64)))
    try:
        status, values, slopes = mirror(rows, integers)
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Untranslatable(f"its loops fail with {text} (please report this)") from error
    return None if status in (1, 2) else (values, slopes)
