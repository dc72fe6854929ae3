"""Powers with many different exponents as one operation.

In: a recording. Out: the same with each ``pow`` an operation of a Value and a plain number, which
is a column of numbers in an array program, where an exponent that is a parameter is an instruction
of its own. A few exponents stay parameters: squares and roots are a multiplication, or a root.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from chainrule.compiler.capture.recordings import FIRST_RULE, Recording
from chainrule.core import ops

FEW = 8  # exponents that each may be an instruction


def with_powers_alike(recording: Recording) -> Recording:
    """The recording, with exponents as numbers where they are many; positions are the same."""
    if ops.pow not in recording.rules:
        return recording
    powers = recording.codes == FIRST_RULE + recording.rules.index(ops.pow)
    if len(np.unique(recording.constants[powers, 0])) <= FEW:
        return recording
    codes, number = recording.codes.copy(), recording.number | powers
    codes[powers] = FIRST_RULE + len(recording.rules)
    return replace(
        recording, codes=codes, number=number, rules=(*recording.rules, ops.number_power)
    )
