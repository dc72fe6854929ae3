"""Programs about a subject: the numerical work of ordinary programs, in random spellings.

``fuzz_programs`` writes statements at random, which seldom come to an elimination with pivots or
to attention. Here every seed of ``EVERY`` has a subject instead, one after the other, so that each
comes often enough in any run. What is drawn: sizes, spellings, how parameters and data are kept,
statements after it, the calls, and the way in which the compiled function is called.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from fuzz_algebra import cholesky, fourier, gauss, gauss_jordan, triangular
from fuzz_captured import cached, dates, ordered
from fuzz_classes import classes_of
from fuzz_drawing import Draw, Subject
from fuzz_dynamics import alignment, kalman, runge_kutta
from fuzz_language import attention, big_table, dropout, language, minibatch
from fuzz_lengths import independent
from fuzz_scope import Scope
from fuzz_statements import Statements, indent

EVERY = 8  # one seed of so many has a subject
IMPORTS = "import datetime\nfrom collections import OrderedDict"
SUBJECTS: tuple[Callable[[Draw], Subject], ...] = (
    *(language, gauss, ordered, runge_kutta, dropout, fourier, minibatch, dates, cholesky),
    *(attention, triangular, cached, kalman, gauss_jordan, big_table, alignment, independent),
)
NOT_STACKED = (dates,)  # whose arguments are no numbers
NEED_ARRAYS = ("train", "out", "bound")
WITH_SAMPLES = ("batch", "train", "map")
MODES = {"value_and_grad": 7, "call": 1, "values": 1, "batch": 1, "train": 1}
MODES |= {"interleaved": 3, "out": 2, "bound": 2, "map": 2}


@dataclass(frozen=True)
class Written:
    """A program about a subject, in parts: the source after the header, and the calls."""

    source: str
    calls: list[tuple[str, str]]  # what happens before, and the arguments
    mode: str
    options: dict[str, object]


def subject_of(seed: int) -> Callable[[Draw], Subject] | None:
    """The subject of a seed, if it has one."""
    turn, rest = divmod(seed, EVERY)
    return SUBJECTS[turn % len(SUBJECTS)] if rest == EVERY - 1 else None


def written(seed: int, subject: Callable[[Draw], Subject]) -> Written:
    """The program of a seed that has a subject."""
    rng = random.Random(f"chainrule subject {seed}")
    weights = {m: w for m, w in MODES.items() if m != "map" or subject not in NOT_STACKED}
    mode = rng.choices(list(weights), list(weights.values()))[0]
    arrays = mode in NEED_ARRAYS or rng.random() < 0.4
    drawn = subject(Draw(rng, mode, arrays))
    masked = mode not in WITH_SAMPLES and rng.random() < 0.2  # as in fuzz_programs
    names = ["p", *(datum.name for datum in drawn.data), *["shown"] * masked]
    lines = drawn.body.splitlines() + _ending(rng, drawn, mode, masked)
    head = f"def f({', '.join(names)}):"
    blocks = [IMPORTS, drawn.module, "\n".join([head, *indent(lines)])]
    blocks[1:1] = [text for text, _ in classes_of(blocks[-1])]
    source = "\n\n\n".join(blocks) + "\n"
    lift = rng.choices([None, True, False], [6, 2, 2])[0]
    options = {} if lift is None else {"lift": lift}
    return Written(source, _calls(rng, drawn, mode, masked), mode, options)


def _ending(rng: random.Random, drawn: Subject, mode: str, masked: bool) -> list[str]:
    """A few statements at random over what the subject has, and what is returned."""
    scope = Scope(rng, used={"p", "loss", "shown"}, effects=False)
    for text, type_ in drawn.parameters.names():
        scope.add(text, type_, weight=3.0)
    for datum in drawn.data:
        scope.used.add(datum.name)
        if datum.type is not None:
            scope.add(datum.name, datum.type, weight=6.0)
    extras = mode in ("value_and_grad", "out", "bound") and rng.random() < 0.1
    writer = Statements(scope, "loss", extras)
    lines = writer.body(rng.choice([0, 0, 1, 1, 2]), 1)
    result = rng.choice(["loss", "loss", "tanh(loss)", "loss * 0.5"])
    return [*lines, writer.returned(f"({result}) * shown" if masked else result)]


def _calls(rng: random.Random, drawn: Subject, mode: str, masked: bool) -> list[tuple[str, str]]:
    """What is done with ``f``."""
    count = rng.randint(2, 3) if mode in WITH_SAMPLES else rng.randint(6, 16)
    often = drawn.often if drawn.events and rng.random() < 0.6 else 0.0
    steady = rng.choice([0.0, 0.5, 1.0])  # how often the parameters stay
    parameters, made = drawn.parameters.text(), []
    for number in range(count):
        if rng.random() >= steady:
            parameters = drawn.parameters.text()
        event = rng.choice(drawn.events) if rng.random() < often else ""
        if mode in WITH_SAMPLES:
            samples = [_sample(drawn) for _ in range(rng.randint(2, 6))]
            arguments = f"({parameters}, [{', '.join(f'({s},)' for s in samples)}])"
        else:
            shown = ", 0.0" if number <= count // 3 else ", 1.0"
            arguments = f"({parameters}, {_sample(drawn)}{shown * masked},)"
            if made and rng.random() < drawn.again:
                arguments = rng.choice(made)[1]
        made.append((event, arguments))
    return made


def _sample(drawn: Subject) -> str:
    return ", ".join(datum.make() for datum in drawn.data)
