"""Which arguments of a function have texts or truths that vary, so that recordings trace them.

In: calls that no recording serves. Out: the arguments, by place or keyword, whose strings are
integers from now on, one for each character, and whose bools are integers too, as are the items of
arrays of bools and of integers of few bits: all that is said of texts here holds for them as well.
At first every text is part of the structure of a call, as few texts (a mode, a name) mean few
recordings. Where an argument has had several in calls that are otherwise alike, its texts are
traced; and where recordings hold for one text all the same, or the function cannot be recorded so,
they are part of the structure again, for good.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, Texts
from chainrule.compiler.capture.integers import IntegerProgram
from chainrule.compiler.runtime.lengths import outline
from chainrule.compiler.runtime.variants import Variant
from chainrule.trees import FLOAT, INT, LONGEST_TEXT, Branch, Node, Numbers, Static, Text, Truth

FEW, FEW_MASKS = 3, 1  # texts of an argument that are part of the structure, and masks
MOST_ARGUMENTS = 64  # as in src/native/passed.c
MOST_KEPT = 64  # structures without texts

_ANY = Static(str, "")


class VaryingTexts:
    """What is known of the texts in the arguments of one function."""

    def __init__(self) -> None:
        self.traced: Texts = frozenset()
        self._refused: set[int | str] = set()
        #: by the structure without texts and lengths, and argument: those of the argument so far
        self._met: dict[Any, dict[int | str, set[Node]]] = {}

    def found(self, call: Call) -> bool:
        """Whether this call shows that more arguments have texts that vary."""
        met = self._of(call)
        few = {place: _few(node) for place, node in _parts(call) if place in met}
        vary = frozenset([place for place, nodes in met.items() if len(nodes) > few[place]])
        self.traced |= vary
        return bool(vary)

    def may_vary(self, call: Call) -> bool:
        """Whether an argument has had another text before, so that the next call may show it.

        Masks are taken to vary from the first call on: of one that does not the second call tells.
        """
        met = self._of(call)
        masks = [k for k, node in _parts(call) if k in met and _holds_mask(node)]
        return bool(masks) or any(len(nodes) > 1 for nodes in met.values())

    def _of(self, call: Call) -> dict[int | str, set[Node]]:
        """The structures so far of arguments like those of a call with texts, its own among them;
        without those of which it is known whether their texts are traced. Lists of another length
        of the same texts are no others, and masks of another length are.
        """
        settled = self.traced | self._refused
        parts = [(k, x) for k, x in _parts(call) if k not in settled and _holds_text(x)]
        if call.texts is None or not parts:
            return {}
        bare = tuple([(place, outline(_without_texts(node))) for place, node in _parts(call)])
        if bare not in self._met and len(self._met) >= MOST_KEPT:
            self._met.clear()
        met = self._met.setdefault(bare, {})
        for place, node in parts:
            nodes = met.setdefault(place, set())
            if len(nodes) <= FEW:
                nodes.add(outline(node))
        return {place: met[place] for place, _ in parts}

    def has_left(self, key: Any) -> bool:
        """Whether no call has a structure any more, as texts or bools in it are traced.

        Of arrays some are not, such as those of integers that are too large.
        """
        if not isinstance(key, tuple):  # of a file's, once it is called
            return False
        (_, arguments, named, _), _ = key
        parts = (*enumerate(arguments), *named)
        return any(place in self.traced and _holds_text(node, (str, bool)) for place, node in parts)

    def refuse(self, places: Texts) -> None:
        """Let the texts of some arguments be part of the structure again."""
        self.traced -= places
        self._refused |= places


def _parts(call: Call) -> Iterator[tuple[int | str, Node]]:
    """The arguments that may have texts to trace, by place or keyword."""
    yield from [*enumerate(call.structure[0])][:MOST_ARGUMENTS]
    yield from call.structure[1].items()


def _is_text(node: Node) -> bool:
    if not isinstance(node, Static):
        return False
    is_text = node.type is str and 0 < len(node.value) <= LONGEST_TEXT
    return is_text or node.type is bool or node.type is np.ndarray


def _holds_text(node: Node, kinds: tuple[type, ...] = (str, bool, np.ndarray)) -> bool:
    if isinstance(node, Branch):
        return any(_holds_text(item, kinds) for item in node.kinds)
    return isinstance(node, Static) and node.type in kinds and _is_text(node)


def _holds_mask(node: Node) -> bool:
    """Whether there are several truths in a row, or an array of them."""
    if isinstance(node, Branch):
        truths = [isinstance(x, Static) and x.type is bool for x in node.kinds]
        if len(node.items) > 1 and all(truths):
            return True
        return any(map(_holds_mask, node.kinds))
    return isinstance(node, Static) and node.type is np.ndarray


def _few(node: Node) -> int:
    return FEW_MASKS if _holds_mask(node) else FEW


def _without_texts(node: Node) -> Node:
    if isinstance(node, Branch):
        return node.map(_without_texts)
    return _ANY if _is_text(node) or isinstance(node, Text | Truth) or _is_narrow(node) else node


def _is_narrow(node: Node) -> bool:
    """Whether this is an array of bools or of integers of few bits that are traced."""
    return isinstance(node, Numbers) and node.kind is not FLOAT and node.kind is not INT


def traced_in(call: Call) -> Texts:
    """The arguments of a call that have traced texts."""
    return frozenset([place for place, node in _parts(call) if _slots(node, 0)[0]])


def static_in(call: Call, variant: Variant) -> Texts:
    """The arguments of a call whose traced texts are static, all characters, in a recording."""
    static, at, found = _static_slots(variant.recording.selection.program), 0, set()
    for place, node in _parts(call):
        slots, at = _slots(node, at)
        if slots and static.issuperset(slots):
            found.add(place)
    return frozenset(found)


def _slots(node: Node, at: int) -> tuple[list[int], int]:
    """Which integers of a call, from one on, are characters of texts in a part of it."""
    if isinstance(node, Branch):
        found: list[int] = []
        if node.kinds == {FLOAT}:
            return found, at
        for item in node.items:
            more, at = _slots(item, at)
            found += more
        return found, at
    if isinstance(node, Text):
        return list(range(at, at + node.length)), at + node.length
    if isinstance(node, Truth):
        return [at], at + 1
    if isinstance(node, Numbers) and node.kind is not FLOAT:
        end = at + math.prod(node.shape)
        return list(range(at, end)) if _is_narrow(node) else [], end
    return [], at + (node is INT)


def _static_slots(program: IntegerProgram) -> set[int]:
    """The integers of a call that have a part in what must be equal in every call."""
    parts = [{k} for k in range(program.arguments)] + [set()] * len(program.constants)
    for _, operands in program.steps:
        parts.append(set().union(*[parts[k] for k in operands]))
    return set().union(*[parts[guard.node] for guard in program.guards if not guard.truth])
