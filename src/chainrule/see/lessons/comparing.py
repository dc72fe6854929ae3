"""The broken engines set to work: ``compare(program)`` and ``smallest(name)``.

A program's graph is built once with chainrule's own Value; the broken engines get copies of it, so
any program will do. What is right is what chainrule computes.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from chainrule.core.backend import Value
from chainrule.see.explanation import Explanation, explain
from chainrule.see.expressions import parse
from chainrule.see.lessons.graphs import LARGEST, small_graphs
from chainrule.see.lessons.mistakes import MISTAKES, Mistake, Node
from chainrule.see.names import attribute, short

_MOST_NODES = 300  # some of the broken engines recurse
_MOST_WORK = 200_000  # paths: two of the mistakes take each of them, one after the other

Program = Callable[[Any], Value]


@dataclass(frozen=True)
class Case:
    """One gradient: what is right and what the broken engine gives."""

    name: str
    expected: float
    got: float

    @property
    def wrong(self) -> bool:
        """Whether they differ by more than rounding."""
        return not math.isclose(self.expected, self.got, rel_tol=1e-9, abs_tol=1e-12)

    def __str__(self) -> str:
        return f"{attribute(self.name)}: expected {short(self.expected)}, got {short(self.got)}"


@dataclass(frozen=True)
class Lesson:
    """One mistake on one program."""

    mistake: Mistake
    program: str  # "" where it was not given as text
    cases: tuple[Case, ...]
    note: str = ""  # why there are no cases
    inputs: tuple[tuple[str, float], ...] = ()  # of a program given as text

    @property
    def wrong(self) -> bool:
        """Whether the mistake shows on this program."""
        return any(case.wrong for case in self.cases)

    @property
    def script(self) -> str:
        """A whole program that shows the mistake on this graph: save it and run it.

        >>> from chainrule import lessons
        >>> exec(lessons.smallest("overwrite").script, {"__name__": "__main__"})
        a.grad is 1.0, right is 2.0
        """
        graph = parse(self.program, dict(self.inputs))(**dict(self.inputs))
        nodes = explain(graph).nodes
        lines = [f"{n.name} = Node({n.data})" for n in nodes if not n.children]
        made = ["def build() -> Node:"]
        for n in nodes:
            if n.children:
                children = ", ".join(nodes[i].name for i in n.children)
                made.append(f"    {n.name} = Node({n.data}, ({children}), {n.local_grads})")
        leaves = ", ".join(n.name for n in nodes if not n.children)
        root = nodes[-1].name
        made += [f"    {root}.inputs = [{leaves}]", f"    return {root}"]
        shown = [
            f'print(f"{c.name}.grad is {{{c.name}.grad}}, right is {c.expected}")'
            for c in self.cases
        ]
        demonstration = [f"# {self.program}", *lines, "", "", *made, "", ""]
        call = f"{self.mistake.name}(build)"
        return "\n".join([self.mistake.engine, "", *demonstration, call, *shown, ""])

    def __str__(self) -> str:
        from chainrule.see.lessons.printing import lesson_text

        return lesson_text(self)

    def _repr_html_(self) -> str:
        from chainrule.see.lessons.printing import lesson_part
        from chainrule.see.tables import notebook_html

        return notebook_html(lesson_part(self))


@dataclass(frozen=True)
class Comparison:
    """One program on every engine."""

    program: str
    lessons: tuple[Lesson, ...]

    def __str__(self) -> str:
        from chainrule.see.lessons.printing import comparison_text

        return comparison_text(self)

    def _repr_html_(self) -> str:
        from chainrule.see.lessons.printing import comparison_parts
        from chainrule.see.tables import PAGE_WIDTH, notebook_html

        return notebook_html(*comparison_parts(self, PAGE_WIDTH))


def compare(program: Program | Value) -> Comparison:
    """Run a program on the right engine and on every broken one; print the result to see both.

    The program is a function that takes the class ``Value`` and returns the output; a Value that is
    already built will do too. Inputs are the leaves with a label or a variable's name.

    >>> from chainrule import lessons
    >>> def program(Value):
    ...     a = Value(3.0, label="a")
    ...     return a + a
    >>> result = lessons.compare(program)
    >>> for lesson in result.lessons:
    ...     if lesson.wrong:
    ...         print(lesson.mistake.name, *lesson.cases, sep=": ")
    overwrite: a.grad: expected 2.0, got 1.0
    not_reset: a.grad: expected 2.0, got 4.0
    stale_buffers: a.grad: expected 2.0, got 4.0
    set_of_children: a.grad: expected 2.0, got 1.0
    """
    output = program if isinstance(program, Value) else program(Value)
    if not isinstance(output, Value):
        raise TypeError(f"the program must return a Value, not a {type(output).__name__}")
    graph = explain(output)
    if len(graph.nodes) > _MOST_NODES:
        raise ValueError(
            f"lessons are for small graphs: this one has {len(graph.nodes):,} nodes, "
            f"not at most {_MOST_NODES:,}"
        )
    lines = [step.words for step in graph.forward if graph.nodes[step.node].kind == "operation"]
    text = "; ".join(line.rpartition(" = ")[0].rpartition(" = ")[0] for line in lines)
    return Comparison(text, tuple(_try(mistake, graph, text) for mistake in MISTAKES.values()))


def smallest(name: str) -> Lesson:
    """The smallest graph on which a mistake shows, found by trying all graphs in order of size.

    >>> from chainrule import lessons
    >>> print(lessons.smallest("overwrite").program)
    b = a + a
    >>> print(lessons.smallest("no_visited").program)
    b = a + a; c = b + b
    """
    return _smallest(_find(name))


@cache
def _smallest(mistake: Mistake) -> Lesson:
    for graph in small_graphs(2.0, 3.0):
        program, inputs = str(graph), dict(graph.inputs)
        lesson = _try(mistake, explain(parse(program, inputs)(**inputs)), program)
        if lesson.wrong:
            return replace(lesson, inputs=graph.inputs)
    raise LookupError(f"no graph of up to {LARGEST} nodes shows {mistake.name}")


def _find(name: str) -> Mistake:
    if name in MISTAKES:
        return MISTAKES[name]
    close = difflib.get_close_matches(name, MISTAKES, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(MISTAKES)}"
    raise ValueError(f"no mistake is called {name!r}{hint}")


def _try(mistake: Mistake, graph: Explanation, program: str) -> Lesson:
    """A mistake on copies of one graph."""
    if _paths(graph) > _MOST_WORK and mistake.name in ("no_visited", "recursion"):
        return Lesson(mistake, program, (), "would not finish: it follows every path on its own")
    leaves = {node.index: Node(node.data) for node in graph.nodes if not node.children}

    def build() -> Node:
        made = dict(leaves)
        for node in graph.nodes:
            if node.children:
                children = tuple(made[i] for i in node.children)
                made[node.index] = Node(node.data, children, node.local_grads)
        root = made[graph.root.index]
        root.inputs = list(leaves.values())
        return root

    mistake.run(build)
    named = [node for node in graph.nodes if node.kind in ("input", "weight")]
    shown = named or [node for node in graph.nodes if not node.children]
    cases = tuple(
        Case(node.name, mistake.passes * node.grad, leaves[node.index].grad) for node in shown
    )
    return Lesson(mistake, program, cases)


def _paths(graph: Explanation) -> int:
    """How many nodes a walk visits that never remembers where it was."""
    visits = [0] * len(graph.nodes)
    for node in graph.nodes:
        visits[node.index] = 1 + sum(visits[i] for i in node.children)
        if visits[node.index] > _MOST_WORK:
            return visits[node.index]
    return visits[-1]
