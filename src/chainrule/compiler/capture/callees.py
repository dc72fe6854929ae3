"""Which function is called, where an integer tells: ``ACTIVATIONS[k](x)``.

In: a table of functions, and a key that is known only when the recording runs. Out: what calls all
of them, each as the side of a branch, and gives what the integer selects. They may do what sides
may do (``forks``); where one does more, or their results are not alike, the key is a guard.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chainrule.compiler.capture.forks import SIDES, Checked, Fork, are_plain
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import modes

_MOST = 16  # functions that are called where Python calls one
_MOST_ITEMS = 256  # of a table of these


def chosen(site: Any, container: Any, key: Any) -> Any:
    """``container[key]``, which code only calls."""
    recorder = modes.recorder
    if recorder is not None and recorder.both and site not in recorder.plain_sites:
        table = _table(container)
        place = None if table is None else SIDES.read(table[0], SIDES.plain(site, key))
        if table is not None and type(place) is Traced:
            return Chosen(site, place, table[1])
    return SIDES.read(SIDES.container(site, container), SIDES.plain(site, key))


def _table(container: Any) -> tuple[Any, list[Any]] | None:
    """The same table with a place for each function, and the functions; None where it is none."""
    kind = type(container)
    if kind not in (list, tuple, dict) or not 1 < len(container) <= _MOST_ITEMS:
        return None
    items = list(container.values() if kind is dict else container)
    functions = list({id(x): x for x in items}.values())
    if not 1 < len(functions) <= _MOST or not all(map(callable, functions)):
        return None
    places = {id(x): k for k, x in enumerate(functions)}
    found = [places[id(x)] for x in items]
    return dict(zip(container, found, strict=True)) if kind is dict else kind(found), functions


@dataclass(frozen=True, eq=False)
class Chosen(Checked):
    """One of some functions, which an integer selects."""

    site: Any
    place: Traced
    functions: Sequence[Callable[..., Any]]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What the selected one gives."""
        site = self.site
        if not are_plain((*arguments, *keywords.values())):  # they may be used up
            selected = self.functions[operator.index(self.place)]
            return SIDES.call(site, selected)(*arguments, **keywords)

        def among(first: int, last: int) -> Any:
            if last - first == 1:
                return SIDES.call(site, self.functions[first])(*arguments, **keywords)
            middle = (first + last) // 2
            fork = Fork(site, operator.lt(self.place, middle))
            return fork.expression(lambda: among(first, middle), lambda: among(middle, last))

        return among(0, len(self.functions))
