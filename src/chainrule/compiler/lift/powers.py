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
from chainrule.core.ops import Op

FEW = 8  # exponents that each may be an instruction


def with_powers_alike(recording: Recording) -> Recording:
    """The recording, with exponents as numbers where they are many; positions are the same."""
    if has_few(recording, ops.pow):
        return recording
    powers = recording.codes == FIRST_RULE + recording.rules.index(ops.pow)
    codes, number = recording.codes.copy(), recording.number | powers
    codes[powers] = FIRST_RULE + len(recording.rules)
    return replace(
        recording, codes=codes, number=number, rules=(*recording.rules, ops.number_power)
    )


def has_few(recording: Recording, rule: Op) -> bool:
    """Whether an operation comes with few parameters, if at all."""
    if rule not in recording.rules:
        return True
    here = recording.codes == FIRST_RULE + recording.rules.index(rule)
    return len(np.unique(recording.constants[here, 0])) <= FEW
