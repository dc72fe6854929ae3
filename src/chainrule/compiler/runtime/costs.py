"""How long recordings, replays and eager calls take, estimated by counting.

In: how many instructions a call has. Out: seconds. Nothing is read from a clock: the same calls
take the same paths, and give the same bits, every time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from chainrule.core.backend import engine

TRACING = 0.4  # the part of a recording's cost that is running the function once
LISTED, FEW_LISTED = 1e-5, 1000  # seconds for each integer that is passed beyond so many
OF_NUMBERS = 1.5  # times the cost, where no Values are passed: some stand-ins are Python's


@dataclass(frozen=True)
class Cost:
    """Seconds for so many instructions; ``beyond``: what those after the first 20,000 add."""

    fixed: float
    each: float
    beyond: float = 0.0

    def of(self, instructions: int) -> float:
        """The estimate."""
        far = max(0, instructions - 20_000)
        return self.fixed + self.each * instructions + self.beyond * far


if engine == "native":
    EAGER, RECORD = Cost(8e-7, 4.5e-8, 2.5e-8), Cost(1.4e-3, 1.7e-6, -7e-7)
    JOIN, BUILD = Cost(2.4e-3, 5e-7), Cost(60e-3, 2e-6)
    REPLAY = Cost(6e-5, 1e-8)
else:
    EAGER, RECORD = Cost(2e-5, 4e-6), Cost(4e-3, 3.5e-5)
    JOIN, BUILD = Cost(4e-3, 1e-5), Cost(25e-3, 2e-5)
    REPLAY = Cost(6e-5, 2e-6)
QUICK_REPLAY = Cost(EAGER.fixed, REPLAY.each)  # by the fast path
STEP = 3e-5  # seconds of a training step in Python, beside its calls
FINDING = 1.5e-3  # seconds for all that a function reaches, and for its code made recordable
#: seconds of the allowance for a function's code of both sides of branches: half of what it takes
CONVERTING = 0.04 if engine == "native" else 0.0  # to rewrite this package's too, for the first one
SEARCHING = 8e-6  # seconds for each object that is gone through for that
FLATTENING = 2e-7  # seconds for each number that is passed, where the fast path has no answer
SAVED = 4e-8 if engine == "native" else 4e-6  # seconds by the fast path, for each instruction
READING = 6e-9  # what the fast path takes for a number in a list, which eager may never look at
CHOOSING = 3e-9  # and for one that an integer may choose
TRYING = 1e-5  # for a variant that turns out not to serve a call
COUNTING = 1.2e-8  # what it saves of a step that is computed from integers
CALLING = 3e-7  # what it takes longer to call a function of Python's
KEEPING = 6e-6  # seconds of a call by the fast path, with reading and writing numbers outside
LLVM = Cost(0.1, 4.5e-3)  # for instructions of an array program; half as many again if in steps
LIFTING = 0.08  # the part of building that comes before LLVM,
MARGINS = 6e-6  # and for each instruction, where rounding may decide something


@dataclass(frozen=True)
class Beside:
    """What a replay does beside its instructions."""

    called: int = 0  # functions of Python's, as the function itself does
    listed: int = 0  # numbers that are read, one by one, and that an eager call may not look at
    choices: int = 0  # among integers: of every item of the rows that an eager call chooses from
    steps: int = 0  # others that are computed from integers

    @property
    def reading(self) -> float:
        """Seconds for numbers that an eager call may not look at."""
        return self.listed * READING + self.choices * CHOOSING


def recording_takes(instructions: int, of_numbers: bool, integers: int = 0) -> float:
    """Seconds for a recording; ``of_numbers``: nothing in it is differentiated.

    ``integers``: that are passed, be it that the function looks at few of them.
    """
    listed = LISTED * max(0, integers - FEW_LISTED)
    return RECORD.of(instructions) * (OF_NUMBERS if of_numbers else 1.0) + listed


def margins_take(instructions: int, has_decisions: bool) -> float:
    """Seconds for what is computed beside the numbers that comparisons read, if there are any."""
    return MARGINS * instructions if has_decisions else 0.0


def building_takes(instructions: int, has_decisions: bool) -> float:
    """Seconds for machine code, as far as can be told before anything is lifted."""
    return BUILD.of(instructions) + margins_take(instructions, has_decisions)


def trying_takes(instructions: int) -> float:
    """Seconds for a variant that turns out not to serve a call, half way on average."""
    return TRYING + 0.5 * REPLAY.each * instructions


@dataclass
class Allowance:
    """Seconds that all functions of a process may spend before they have earned anything."""

    left: float = 0.3

    @property
    def is_endless(self) -> bool:
        """Whether cost is no object."""
        return math.isinf(self.left)


allowance = Allowance()
