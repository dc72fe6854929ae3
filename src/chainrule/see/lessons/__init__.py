"""Engines broken on purpose: the classic mistakes of a backward pass, and what each does.

``compare(program)`` runs one program on the right engine and on every broken one;
``smallest(name)`` searches for the smallest graph on which a mistake shows; ``exercises`` are the
worked examples of the texts this package follows. ``check_file(path)`` runs a learner's own engine
through every trap (``traps``, ``passes``, ``operations``) in a process of its own (``worker``).
``HandMade`` is a Value in plain Python that can be taken apart.
"""

from chainrule.see.lessons.comparing import Case, Comparison, Lesson, compare, smallest
from chainrule.see.lessons.examining import Check, check_file
from chainrule.see.lessons.exercises import Exercise, exercises
from chainrule.see.lessons.handmade import HandMade
from chainrule.see.lessons.mistakes import MISTAKES, Mistake

__all__ = [
    "MISTAKES",
    "Case",
    "Check",
    "Comparison",
    "Exercise",
    "HandMade",
    "Lesson",
    "Mistake",
    "check_file",
    "compare",
    "exercises",
    "smallest",
]
