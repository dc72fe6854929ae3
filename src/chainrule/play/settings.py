"""What a page asks for, checked: plain JSON in, numbers within their bounds out.

Everything that comes from the browser passes through here, so that nothing can be asked for that
takes all memory or all day. What is wrong ends as one line for the person at the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Given = Mapping[str, Any]


class PlayError(ValueError):
    """Something that cannot be done as asked; the message is one line for people."""


def whole(given: Given, name: str, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``.

    >>> from chainrule.play.settings import whole
    >>> whole({"steps": 10}, "steps", 1, 100)
    10
    """
    number = given.get(name)
    if type(number) is not int or not low <= number <= high:
        raise PlayError(f"{name} must be a whole number from {low:,} to {high:,}")
    return number


def real(given: Given, name: str, low: float, high: float) -> float:
    """A number from ``low`` to ``high``."""
    number = given.get(name)
    if type(number) not in (int, float) or not low <= number <= high or not math.isfinite(number):  # type: ignore[operator,arg-type]
        raise PlayError(f"{name} must be a number from {low:g} to {high:g}")
    return float(number)  # type: ignore[arg-type]


def choice(given: Given, name: str, choices: Sequence[str]) -> str:
    """One of some words."""
    word = given.get(name)
    if not isinstance(word, str) or word not in choices:
        raise PlayError(f"{name} must be one of {', '.join(choices)}")
    return word


def text(given: Given, name: str, longest: int) -> str:
    """A text of at most ``longest`` characters."""
    found = given.get(name)
    if not isinstance(found, str):
        raise PlayError(f"{name} must be a text")
    if len(found) > longest:
        raise PlayError(f"{name} has {len(found):,} characters; at most {longest:,} are read")
    return found


def numbers(given: Given, name: str, most: int, low: int, high: int) -> list[int]:
    """One to ``most`` whole numbers, each from ``low`` to ``high``."""
    found = given.get(name)
    if not isinstance(found, list) or not 1 <= len(found) <= most:
        raise PlayError(f"{name} must be a list of 1 to {most} numbers")
    return [whole({name: number}, name, low, high) for number in found]
