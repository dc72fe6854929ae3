"""What samples gave: a row for each, or totals.

In: numbers and gradients, sample by sample or block by block. Out: a ``Results``, and which places
in what the function returns its columns have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.recordings import ArrayOutput, Output
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.mapping.blocks import Block
from chainrule.compiler.mapping.lane_code import LaneCode
from chainrule.compiler.mapping.stacks import Rows
from chainrule.compiler.runtime.results import as_floats
from chainrule.core import errors
from chainrule.trees import Floats, Leaf, map_leaves


@dataclass(frozen=True)
class Places(Leaf):
    """An array in what samples return: where its numbers begin among all of them, and its shape."""

    first: int
    shape: tuple[int, ...]

    def of(self, values: Floats) -> Floats:
        """The arrays of all samples, stacked; ``values``: a row of numbers for each sample."""
        last = self.first + math.prod(self.shape)
        return values[:, self.first : last].reshape(len(values), *self.shape).copy()


@dataclass(frozen=True)
class _Word(Leaf):
    """A number or array as a message has it."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _in_words(template: Any) -> str:
    """The structure of what a sample returned; many numbers in a row are counted."""

    def word(place: int | Places) -> _Word:
        return _Word(f"array of shape {place.shape}" if isinstance(place, Places) else "number")

    text = repr(map_leaves(word, template))
    return re.sub(r"number(, number){4,}", lambda m: f"{m[0].count('number')} numbers", text)


@dataclass(slots=True)
class Results:
    """What samples gave: rows, or totals."""

    differentiates: bool
    parameters: int
    count: int
    rows: bool  # a row for each sample; else totals
    template: Any = None  # what a sample returned, without its numbers
    values: Floats | None = None
    gradients: Floats | None = None
    value: float = 0.0
    gradient: Floats | None = None

    def __post_init__(self) -> None:
        if self.differentiates and self.rows:
            self.gradients = np.empty((self.count, self.parameters))
        elif self.differentiates:
            self.gradient = np.zeros(self.parameters)

    def kept(self) -> Results:
        """The same, with totals of its own; rows are those of the original."""
        made = copy(self)
        made.gradient = None if self.gradient is None else self.gradient.copy()
        return made

    def accept(self, name: str, result: Any) -> list[Any]:
        """The numbers of what a sample returned; TypeError where it has another structure."""
        leaves: list[Any] = []

        def place(leaf: Any) -> int | Places:
            first = len(leaves)
            if isinstance(leaf, ArrayOutput) and leaf.sparse is None:
                leaves.extend(leaf.items)
            elif isinstance(leaf, np.ndarray):
                leaves.extend([as_floats(x) for x in leaf.ravel().tolist()])
            else:
                leaves.append(leaf)
                return first
            if not (first or self.rows):
                raise TypeError(f"{name} returned an array: only numbers are added up")
            return Places(first, leaf.shape)

        template = map_leaves(place, result)
        for leaf in leaves:
            if not isinstance(leaf, Output) and not errors.is_real(leaf):
                raise TypeError(f"{name} returned a {type(leaf).__name__}: map stacks numbers only")
        if self.template is None:
            self.template = template
            if self.rows:
                self.values = np.empty((self.count, len(leaves)))
        elif template != self.template:
            found, other = _in_words(self.template), _in_words(template)
            raise TypeError(
                f"{name} returned {found} for one sample and {other} for another: "
                "map stacks results of one structure"
            )
        return leaves

    def add(self, name: str, k: int, result: Any, gradient: Floats | None) -> None:
        """What one sample gave."""
        numbers = [float(x) for x in self.accept(name, result)]
        if self.values is not None:
            self.values[k] = numbers
        self.value += numbers[0] if numbers else 0.0
        if gradient is not None and self.gradients is not None:
            self.gradients[k] = gradient
        elif gradient is not None and self.gradient is not None:
            self.gradient += gradient

    @property
    def adds_numbers(self) -> bool:
        """Whether samples gave a number each so far, and a gradient."""
        return self.differentiates and self.template == 0

    def add_numbers(self, some: Rows, values: list[float], gradients: Floats) -> None:
        """The numbers that some samples gave, with a row for each in ``gradients``."""
        if not values:
            return
        if self.values is not None:
            self.values[some, 0] = values
        for value in values:
            self.value += value
        if self.gradients is not None:
            self.gradients[some] = gradients
        elif self.gradient is not None:
            self.gradient += gradients.sum(axis=0)

    def take(self, blocks: Iterable[Block], code: LaneCode) -> Addresses | None:
        """Add up blocks, in their order; the samples that are left, or None: all of them."""
        value, totals = 0.0, np.zeros(code.totals)
        left: list[Addresses] = []
        for block in blocks:
            left.append(block.left)
            value += block.value
            if self.gradient is not None:
                totals += block.gradient
        if self.gradient is not None:
            gradient = code.gradient(totals)
            if gradient is None:
                return None
            self.gradient += gradient
        self.value += value
        return left[0] if len(left) == 1 else np.concatenate(left)
