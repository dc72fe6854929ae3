"""The stand-in of a string: what a recorded function sees of a text whose characters may change.

In: the code points of its characters, integers of the integer program (``integers``); its length is
part of the structure of a call. Out: characters and parts of it, which are such stand-ins too;
``ord`` of a character and comparisons, which are traced, as reads by it are (``words``). Whatever
else Python does with it makes it static: the recording holds for this text only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.integers import TEXT
from chainrule.compiler.capture.operators import BINARY
from chainrule.compiler.capture.standins import Detached, StandIn, plain
from chainrule.compiler.capture.traced import Traced
from chainrule.core import errors

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

#: what is never equal to a text, whatever that is
_OTHERS = frozenset((int, float, bool, type(None), list, tuple, dict, Detached, Traced))
_ZERO, _NINE = ord("0"), ord("9")


class TracedText(StandIn):
    """A string, or a part of one, that was passed to a recorded function."""

    __slots__ = ("_recorder", "nodes")

    def __init__(self, recorder: Recorder, nodes: Sequence[int]) -> None:
        self._recorder = recorder
        self.nodes = tuple(nodes)  # of the integer program: a code point for each character

    @property
    def value(self) -> str:
        """The text in this recording. Whoever looks at it must make it static."""
        return "".join([chr(self._recorder.integers.value(node)) for node in self.nodes])

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return str

    def plain(self, use: str = "") -> str:
        """The text itself, which becomes static."""
        return self.static()

    def static(self) -> str:
        """The text itself: from here on the recording is for this text."""
        line = f"{errors.caller()}{TEXT}"
        for node in self.nodes:
            self._recorder.integers.guard(node, False, line)
        return self.value

    def code(self) -> Traced:
        """``ord`` of a single character."""
        (node,) = self.nodes
        return Traced(self._recorder, node)

    def digit(self) -> Traced | None:
        """``int`` of a single character, where that is one of 0 to 9: two guards; else None."""
        if len(self.nodes) != 1 or not "0" <= self.value <= "9":
            return None
        code: Any = self.code()
        if not (bool(code >= _ZERO) and bool(code <= _NINE)):
            return None
        found: Traced = code - _ZERO
        return found

    def part(self, nodes: Sequence[int]) -> Any:
        """Some of its characters, and others; without any it is a plain string."""
        return TracedText(self._recorder, nodes) if nodes else ""

    def nodes_of(self, other: Any) -> tuple[int, ...] | None:
        """The code points of another text; None where it is none."""
        if type(other) is TracedText:
            return other.nodes
        if type(other) is str:
            return tuple([self._recorder.integers.constant(ord(c)) for c in other])
        return None

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[TracedText]:
        return iter([TracedText(self._recorder, (node,)) for node in self.nodes])

    def __getitem__(self, key: Any) -> Any:
        if type(key) is slice:
            return self.part(self.nodes[key])
        if type(key) is Traced and key.__class__ is int and self._has(key.value):
            return self.part((self._recorder.integers.step("choose", key.node, *self.nodes),))
        key = plain(key)
        if type(key) is int and self._has(key):
            return self.part((self.nodes[key],))
        return self.static()[key]

    def _has(self, place: int) -> bool:
        return -len(self.nodes) <= place < len(self.nodes)

    def __contains__(self, part: Any) -> bool:
        return bool(self.has(part))

    def has(self, part: Any) -> Any:
        """``part in self``: of a single character, a traced truth."""
        nodes = self.nodes_of(part)
        if nodes is None or len(nodes) != 1:
            return plain(part) in self.static()
        return self._any("eq", [*zip(self.nodes, nodes * len(self.nodes), strict=True)])

    def __add__(self, other: Any) -> Any:
        nodes = self.nodes_of(other)
        return NotImplemented if nodes is None else self.part((*self.nodes, *nodes))

    def __radd__(self, other: Any) -> Any:
        nodes = self.nodes_of(other)
        return NotImplemented if nodes is None else self.part((*nodes, *self.nodes))

    def __mul__(self, times: Any) -> Any:
        times = plain(times)
        return self.part(self.nodes * times) if type(times) is int else self.static() * times

    def __rmul__(self, times: Any) -> Any:
        times = plain(times)
        return self.part(self.nodes * times) if type(times) is int else times * self.static()

    def _any(self, name: str, pairs: Sequence[tuple[int, int]], joined: str = "or_") -> Any:
        """Whether some characters compare so, or, joined by ``and_``, all of them."""
        integers = self._recorder.integers
        node, *others = [integers.step(name, a, b) for a, b in pairs]
        for other in others:
            node = integers.step(joined, node, other)
        return Traced(self._recorder, node)

    def _equals(self, name: str, other: Any) -> Any:
        nodes = self.nodes_of(other)
        if nodes is None:
            # Python asks the other one, and then which objects they are.
            is_other = type(other) in _OTHERS
            return NotImplemented if is_other else BINARY[f"__{name}__"](self.static(), other)
        if len(nodes) != len(self.nodes):
            return name == "ne"
        pairs = [*zip(self.nodes, nodes, strict=True)]
        return self._any(name, pairs, "and_" if name == "eq" else "or_")

    def __eq__(self, other: Any) -> Any:
        return self._equals("eq", other)

    def __ne__(self, other: Any) -> Any:
        return self._equals("ne", other)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(str, name):  # which text it is does not matter, as where numpy asks
            raise AttributeError(f"'str' object has no attribute {name!r}")
        return getattr(self.static(), name)

    def __array__(self, *arguments: Any, **keywords: Any) -> Any:
        return np.array(self.static(), *arguments, **keywords)


def _ordered(name: str) -> Callable[..., Any]:
    def compare(self: TracedText, other: Any) -> Any:
        nodes = self.nodes_of(other)
        if nodes is not None and len(nodes) == len(self.nodes) == 1:
            return self._any(name, [(*self.nodes, *nodes)])
        return BINARY[f"__{name}__"](self.static(), plain(other))

    return compare


for _name in ("lt", "le", "gt", "ge"):
    setattr(TracedText, f"__{_name}__", _ordered(_name))


def _static_use(name: str) -> Callable[..., Any]:
    def method(self: TracedText, *arguments: Any) -> Any:
        return getattr(self.static(), name)(*map(plain, arguments))

    return method


for _name in "hash str repr format mod rmod reduce_ex getnewargs sizeof".split():
    setattr(TracedText, f"__{_name}__", _static_use(f"__{_name}__"))

# Python's own messages name the types: "can only concatenate str (not "int") to str".
TracedText.__name__ = TracedText.__qualname__ = "str"
