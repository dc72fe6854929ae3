"""A function compiled, and the same calls in eager mode: numbers, errors and types."""

import numpy as np
import pytest

import chainrule


def outcome(f, *arguments):
    try:
        return f(*arguments)
    except Exception as error:
        return type(error), str(error)


def compared(f, calls):
    """The function compiled, after calls that all gave eager's numbers, errors and types."""
    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for arguments in calls:
        wanted, found = outcome(eager, *arguments), outcome(fast.value_and_grad, *arguments)
        if isinstance(wanted[0], type):
            assert found == wanted, arguments
            continue
        assert found[0] == pytest.approx(wanted[0], rel=1e-11, abs=1e-12), arguments
        assert np.ravel(found[1]) == pytest.approx(np.ravel(wanted[1]), rel=1e-10, abs=1e-11)
        assert type(found[0]) is type(wanted[0])
    return fast
