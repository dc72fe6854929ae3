"""What subjects draw: sizes, numbers as text, parameters, and one of several spellings.

A subject (see ``fuzz_subjects``) is a template. ``<<a||b||c>>`` in it is one of three spellings,
drawn at every place, and may span lines; ``{WORD}`` is a place for a word.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fuzz_scope import Type, literal

CHOICE = re.compile(r"<<((?:(?!<<|>>).)*)>>", re.DOTALL)
PLACE = re.compile(r"\{([A-Z][A-Z0-9]*)\}")
METHOD = re.compile(r"\.data\b(?! if)|\.log\(\)")
ONLY_DICTS = ("out", "bound", "map")  # these ways refuse parameters in a subclass of dict
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Datum:
    """An argument after the first: its name, its type if others may use it, how to make one."""

    name: str
    make: Callable[[], str]
    type: Type | None = None


@dataclass
class Subject:
    """The text of a program, and how its arguments are made.

    ``body`` are the lines of ``f`` that come to the number ``loss``, ``events`` what may change
    between calls.
    """

    module: str
    body: str
    parameters: Parameters
    data: list[Datum]
    events: list[str] = field(default_factory=list)
    often: float = 0.2  # the chance of an event before a call, in programs that have them
    again: float = 0.15  # the chance that arguments are those of an earlier call


class Parameters:
    """The first argument ``p``: named arrays or lists, kept in a dict, a list or alone."""

    def __init__(self, draw: Draw, shapes: dict[str, Shape]) -> None:
        self.draw, self.shapes = draw, shapes
        holders = ["dict", "dict", "list", "tuple"]
        holders += ["OrderedDict"] * (draw.mode not in ONLY_DICTS)
        self.holder = draw.rng.choice(holders)
        if len(shapes) == 1 and draw.chance(0.6):
            self.holder = "alone"

    def path(self, name: str) -> str:
        """How a part is read."""
        if self.holder == "alone":
            return "p"
        if self.holder in ("list", "tuple"):
            return f"p[{list(self.shapes).index(name)}]"
        return f'p["{name}"]'

    def names(self) -> list[tuple[str, Type]]:
        """The parts as names with types, for other statements."""
        kinds = ("varray", "vmatrix") if self.draw.arrays else ("values", "matrix")
        found = []
        for name, shape in self.shapes.items():
            if len(shape) in (1, 2):
                found.append((self.path(name), Type(kinds[len(shape) - 1], *shape)))
        return found

    def text(self) -> str:
        """New ones."""
        parts = {name: self.draw.array(shape) for name, shape in self.shapes.items()}
        if self.holder == "alone":
            return next(iter(parts.values()))
        if self.holder in ("list", "tuple"):
            inside = ", ".join(parts.values())
            return f"[{inside}]" if self.holder == "list" else f"({inside},)"
        if self.holder == "OrderedDict":
            pairs = ", ".join(f'("{name}", {part})' for name, part in parts.items())
            return f"OrderedDict([{pairs}])"
        return "{" + ", ".join(f'"{name}": {part}' for name, part in parts.items()) + "}"


class Draw:
    """A generator of random numbers with the words for programs.

    ``mode`` is that of the program, ``arrays``: the parameters are arrays.
    """

    def __init__(self, rng: random.Random, mode: str, arrays: bool) -> None:
        self.rng, self.mode, self.arrays = rng, mode, arrays
        self.fixed = mode == "map"  # data have one shape in all calls, and are numbers
        self.plain = mode in ("call", "interleaved")  # floats, without the methods of Values

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.rng.random() < probability

    def size(self, low: int, high: int) -> int:
        """A size, both ends included."""
        return self.rng.randint(low, high)

    def spelled(self, template: str, **words: Any) -> str:
        """The template with words in their places and one of each choice of spellings.

        Words may be templates themselves, which are spelled anew at each of their places.
        """
        while True:
            template = PLACE.sub(lambda place: str(words[place[1]]), template)
            if not (found := CHOICE.search(template)):
                return template.strip("\n")
            ways = found[1].split("||")
            if self.plain:
                ways = [way for way in ways if not METHOD.search(way)] or ways
            template = template[: found.start()] + self.rng.choice(ways) + template[found.end() :]

    # --- numbers as text --------------------------------------------------------------------------

    def number(self) -> str:
        """A parameter."""
        return repr(round(self.rng.uniform(-1.2, 1.2), 4))

    def nested(self, shape: Shape, number: Callable[[], str]) -> str:
        """Lists of lists."""
        if not shape:
            return number()
        return f"[{', '.join(self.nested(shape[1:], number) for _ in range(shape[0]))}]"

    def array(self, shape: Shape) -> str:
        """Parameters of a shape, as an array where parameters are arrays."""
        text = self.nested(shape, self.number)
        return f"np.array({text})" if self.arrays else text

    def ints(self, count: int, high: int, low: int = 0) -> str:
        """A list of integers."""
        return self.nested((count,), lambda: str(self.rng.randint(low, high)))

    def floats(self, *shape: int) -> str:
        """A list of data."""
        return self.nested(shape, lambda: literal(self.rng, "float"))

    # --- arguments --------------------------------------------------------------------------------

    def parameters(self, **shapes: Shape) -> Parameters:
        """The first argument."""
        return Parameters(self, shapes)

    def tokens(self, name: str, high: int, low: int = 2, longest: int = 6) -> Datum:
        """A list of integers from 0 to ``high``, whose length changes unless data are fixed."""
        steady = self.rng.randint(low, longest) if self.fixed or self.chance(0.4) else None
        array = self.chance(0.2)

        def make() -> str:
            text = self.ints(steady or self.rng.randint(low, longest), high)
            return f"np.array({text})" if array else text

        kind = "iarray" if array else "ints"
        type_ = Type(kind, steady or low, low=0, high=high, fixed=steady is not None)
        return Datum(name, make, type_)

    def integer(self, name: str, low: int, high: int) -> Datum:
        """An integer."""
        type_ = Type("int", low=low, high=high)
        return Datum(name, lambda: str(self.rng.randint(low, high)), type_)

    def real(self, name: str) -> Datum:
        """A float."""
        return Datum(name, lambda: literal(self.rng, "float"), Type("float"))

    def reals(self, name: str, low: int, longest: int) -> Datum:
        """A list of floats, whose length changes unless data are fixed."""
        steady = self.rng.randint(low, longest) if self.fixed or self.chance(0.5) else None
        array = self.chance(0.3)

        def make() -> str:
            text = self.floats(steady or self.rng.randint(low, longest))
            return f"np.array({text})" if array else text

        kind = "farray" if array else "floats"
        return Datum(name, make, Type(kind, steady or low, fixed=steady is not None))
