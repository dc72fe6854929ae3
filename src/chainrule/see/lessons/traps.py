"""The traps that a learner's engine is run through, one after the other.

An ``Engine`` comes in; each trap gives a ``Finding``: right, wrong with the smallest graph that
shows it and the idea that is missing, or not there yet. All of this runs in a process of its own
(``worker``), as nobody knows what a learner's code does.
"""

from __future__ import annotations

import math
import traceback
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from chainrule.see.lessons.dialects import Diagnosis, Engine, NoNode
from chainrule.see.lessons.graphs import Graph, graph, random_graphs, small_graphs, trees
from chainrule.see.lessons.suspects import SUSPECTS, explains

_EVIDENCE = 120  # graphs on which a suspect must agree
_ALL, _EVERY = 250, 11  # the smallest graphs are all tried, then every 11th

Status = Literal["right", "wrong", "advice", "missing"]


@dataclass(frozen=True)
class Row:
    """One node beside the right numbers."""

    name: str
    data: float
    right: float
    yours: float | None  # None where there is none

    @property
    def wrong(self) -> bool:
        """Whether the gradient is another."""
        return self.yours is None or not close(self.right, self.yours)


@dataclass(frozen=True)
class Finding:
    """What one trap found."""

    trap: str
    status: Status
    idea: str = ""  # what is missing, in one line
    why: str = ""
    right: str = ""  # the right line of code
    lesson: str = ""  # the broken engine of `chainrule lessons` that shows it
    program: str = ""
    inputs: Mapping[str, float] = field(default_factory=dict)
    column: str = ".grad"  # what the rows compare
    rows: tuple[Row, ...] = ()
    error: str = ""
    graphs: int = 0  # how many graphs were tried


def close(right: float, yours: float) -> bool:
    """Whether two numbers differ by rounding only."""
    return math.isclose(right, yours, rel_tol=1e-6, abs_tol=1e-9)


@dataclass(frozen=True)
class Trap:
    """One thing to try; ``step`` is the step of the course from which on it must hold."""

    name: str
    step: int
    title: str
    run: Callable[[Engine], Finding]


TRAPS: list[Trap] = []


def trap(step: int) -> Callable[[Callable[[Engine], Finding]], Callable[[Engine], Finding]]:
    """Add a trap to the list; its docstring's first line is its title."""

    def add(run: Callable[[Engine], Finding]) -> Callable[[Engine], Finding]:
        title = (run.__doc__ or "").strip().splitlines()[0].rstrip(".")
        insort(TRAPS, Trap(run.__name__, step, title, run), key=lambda one: one.step)
        return run

    return add


def spring(one: Trap, engine: Engine) -> Finding:
    """Run one trap; whatever the learner's code raises is a finding too."""
    try:
        return one.run(engine)
    except RecursionError:
        why = "A function of yours calls itself without end, or deeper than Python allows."
        return Finding(one.name, "wrong", "an end to the recursion", why, error="RecursionError")
    except NoNode as error:
        why = f"Here {error}. Is there a return, and does it return that?"
        right = "return Value(self.data + other.data, (self, other), ...)"
        if "list" in why:
            right = "return order"
        return Finding(one.name, "wrong", "a result that is returned", why, right)
    except MemoryError:
        why = "The program needed more memory than it may have: is something kept for ever?"
        return Finding(one.name, "wrong", "a bound on the work", why, error="MemoryError")
    except Exception as error:
        return Finding(one.name, "wrong", "code that runs", error=describe(error))


def describe(error: BaseException) -> str:
    """An exception in one line, with the learner's line it came from."""
    text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    here = str(Path(__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if here not in frame.filename and not frame.filename.startswith("<frozen")
    ]
    if frames:
        text += f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    return text


# --- one number, + and * --------------------------------------------------------------------------


@trap(1)
def one_number(engine: Engine) -> Finding:
    """A number with a gradient that begins at 0."""
    v = engine.number(2.0)
    if not engine.data_name or not engine.grad_name:
        lacking = "data" if not engine.data_name else "grad"
        why = f"A node keeps its number in .data and its gradient in .grad; there is no .{lacking}."
        return Finding("one_number", "wrong", f"a .{lacking}", why, f"self.{lacking} = ...")
    if engine.data(v) != 2.0 or engine.grad(v) != 0.0:
        rows = (Row("a", 2.0, 0.0, engine.grad(v)),)
        why = "Nothing has been propagated yet, so the gradient is 0 and the number is what it was."
        return Finding("one_number", "wrong", "a clean start", why, "self.grad = 0.0", rows=rows)
    other = engine.number(3.0)
    engine.set_grad(v, 7.0)
    if engine.grad(other) != 0.0 or engine.grad(engine.number(1.0)) != 0.0:
        why = "Two numbers share one gradient: it belongs to the class, not to each object."
        right = "def __init__(self, data): self.grad = 0.0"
        return Finding("one_number", "wrong", "a gradient for each node", why, right)
    return Finding("one_number", "right")


@trap(2)
def forward(engine: Engine) -> Finding:
    """+ and * compute the right numbers and leave their operands alone."""
    for op in ("add", "mul"):
        if not engine.has(op):
            sign = "+" if op == "add" else "*"
            right = f"def __{op}__(self, other): ..."
            return Finding("forward", "missing", f"the operation {sign}", right=right)
    for g in (
        graph("b = a + a", a=2.0),
        graph("c = a + b", a=2.0, b=3.0),
        graph("c = a * b", a=2.0, b=3.0),
        graph("d = a * b; e = a + b; f = d * e", a=-2.0, b=3.0),
    ):
        finding = _forward(g, engine)
        if finding is not None:
            return finding
    return Finding("forward", "right")


def _forward(g: Graph, engine: Engine) -> Finding | None:
    nodes = g.build(engine.number, engine.apply)
    right = g.truth.data
    got = {name: engine.data(v) for name, v in nodes.items()}
    if all(close(right[name], got[name]) for name in right):
        return None
    rows = tuple(Row(name, right[name], right[name], got[name]) for name in g.names)
    changed = any(not close(right[name], got[name]) for name, _ in g.inputs)
    idea = "operands that stay as they are" if changed else "the result's own number"
    why = (
        "An operation makes a new node. It must not change the nodes that it is given."
        if changed
        else "The new node holds what the operation computes from the numbers of its operands."
    )
    right_line = "out = Value(self.data + other.data, ...)"
    return with_graph(Finding("forward", "wrong", idea, why, right_line, column=".data"), g, rows)


def with_graph(finding: Finding, g: Graph, rows: tuple[Row, ...]) -> Finding:
    """The finding, with the graph it was made on."""
    return replace(finding, program=str(g), inputs=dict(g.inputs), rows=rows)


@trap(2)
def remembers(engine: Engine) -> Finding:
    """A result remembers what it was made from."""
    a, b = engine.number(2.0), engine.number(3.0)
    children = engine.children(engine.apply("mul", a, b))
    if children is None:
        why = "The backward pass walks from the result to its inputs: each node must know its own."
        right = "Value(self.data * other.data, (self, other))"
        return Finding("remembers", "missing", "the children of a node", why, right)
    if len(children) != 2 or {id(c) for c in children} != {id(a), id(b)}:
        why = "c = a * b was made from the nodes a and b themselves, not from copies or numbers."
        right = "Value(self.data * other.data, (self, other))"
        return Finding("remembers", "wrong", "the children are the operands", why, right)
    leaf = engine.children(a)
    if leaf:
        why = (
            "A leaf was made from nothing, and this one has children: a list as a default argument "
            "is one list for all nodes."
        )
        return Finding("remembers", "wrong", "a leaf has no children", why, "children=()")
    return Finding("remembers", "right")


# --- local gradients and the sort -----------------------------------------------------------------


@trap(3)
def local_gradients(engine: Engine) -> Finding:
    """Each operation knows how fast it moves with each operand."""
    for op, expected in (("add", (1.0, 1.0)), ("mul", (3.0, 2.0))):
        a, b = engine.number(2.0), engine.number(3.0)
        out = engine.apply(op, a, b)
        got = engine.local_grads(out)
        if got is None:
            step = engine.one_step(out)
            if step is None:
                why = "Keep them with the node, or in a function that adds them to the operands."
                right = "Value(self.data * other.data, (self, other), (other.data, self.data))"
                return Finding("local_gradients", "missing", "local gradients", why, right)
            engine.set_grad(out, 1.0)
            step()
            got = [engine.grad(a), engine.grad(b)]
        if len(got) != 2 or not all(map(close, expected, got)):
            sign = "+" if op == "add" else "*"
            padded = [*got, None, None][:2]
            rows = tuple(
                Row(name, x, right, mine)
                for name, x, right, mine in zip("ab", (2.0, 3.0), expected, padded, strict=True)
            )
            why = (
                "When a moves by a little, a + b moves by just as much."
                if op == "add"
                else "When a moves by a little, a * b moves b times as much: each gets the other."
            )
            idea = f"the local gradients of {sign}"
            line = "(1.0, 1.0)" if op == "add" else "(other.data, self.data)"
            finding = Finding("local_gradients", "wrong", idea, why, line, column="local gradient")
            return with_graph(finding, graph(f"c = a {sign} b", a=2.0, b=3.0), rows)
    return Finding("local_gradients", "right")


@trap(4)
def sorting(engine: Engine) -> Finding:
    """The topological order has every node once, after its children."""
    tried = 0
    for g in (*list(small_graphs(2.0, 3.0))[:_ALL], *random_graphs(5, 20)):
        nodes = g.build(engine.number, engine.apply)
        order = engine.sort(nodes[g.output])
        if order is None:
            if engine.has_backward:
                return Finding("sorting", "right")  # it sorts inside backward(); that is tried next
            why = "Write it as a function, topological_order(v), that returns a list of nodes."
            return Finding("sorting", "missing", "a topological order", why)
        tried += 1
        fault = _order_fault(g, nodes, order)
        if fault:
            names = {id(v): name for name, v in nodes.items()}
            listed = " ".join(names.get(id(v), "?") for v in order)
            line = "if node not in visited:" if "visited" in fault else "order.append(node)  # last"
            finding = Finding("sorting", "wrong", fault, f"Your list: {listed}", line)
            return with_graph(finding, g, ())
    return Finding("sorting", "right", graphs=tried)


def _order_fault(g: Graph, nodes: Mapping[str, Any], order: list[Any]) -> str:
    place: dict[int, int] = {}
    for i, v in enumerate(order):
        if id(v) in place:
            return "a visited set: every node is in the list once"
        place[id(v)] = i
    needed = {g.output}
    for step in reversed(g.steps):
        if step.name in needed:
            needed |= {x for x in step.arguments if isinstance(x, str)}
    if {id(nodes[name]) for name in needed} != set(place):
        return "every node that the output depends on is in the list, and no other"
    for step in g.steps:
        for x in step.arguments:
            late = isinstance(x, str) and step.name in needed
            if late and place[id(nodes[str(x)])] > place[id(nodes[step.name])]:
                return "the order: every node comes after its children"
    return ""


# --- the backward pass ----------------------------------------------------------------------------


@trap(5)
def used_once(engine: Engine) -> Finding:
    """Gradients where every node is used once."""
    return _compared("used_once", engine, trees(2.0, 3.0, 5.0, 7.0))


@trap(6)
def fresh_graph(engine: Engine) -> Finding:
    """A second graph on the same inputs, after their gradients were set to 0."""
    if not engine.has_backward:
        return Finding("fresh_graph", "missing", "backward()", right="def backward(self): ...")
    g = graph("c = a * b", a=2.0, b=3.0)
    leaves = {name: engine.number(x) for name, x in g.inputs}
    got: dict[str, float] = {}
    for _pass in range(3):
        for v in leaves.values():
            engine.set_grad(v, 0.0)
        engine.backward(engine.apply("mul", leaves["a"], leaves["b"]))
        got = {name: engine.grad(v) for name, v in leaves.items()}
    right = g.truth.grads
    if all(close(right[name], got[name]) for name in got):
        return Finding("fresh_graph", "right")
    rows = tuple(Row(name, g.truth.data[name], right[name], got[name]) for name in got)
    idea = "a fresh start for every pass: topo and visited are made, or cleared, each time"
    why = (
        "Something of the first pass is still there in the second: a list or a set that belongs to "
        "the class, to the module or to a default argument."
    )
    right_line = "topo, visited = [], set()  # inside backward()"
    finding = Finding("fresh_graph", "wrong", idea, why, right_line, "stale_buffers")
    return with_graph(finding, g, rows)


@trap(6)
def sharing(engine: Engine) -> Finding:
    """Gradients where nodes are used several times."""
    graphs = [g for g in small_graphs(2.0, 3.0) if g.shares]
    rest = graphs[_ALL::_EVERY]  # many of the larger ones are alike
    return _compared("sharing", engine, [*graphs[:_ALL], *rest])


@trap(6)
def equal_numbers(engine: Engine) -> Finding:
    """Two nodes that hold the same number are two nodes."""
    same = [g for g in small_graphs(2.0, 2.0) if len(g.inputs) == 2][:200]
    return _compared("equal_numbers", engine, same)


@trap(6)
def larger_graphs(engine: Engine) -> Finding:
    """Gradients of larger graphs, in which much is shared."""
    return _compared("larger_graphs", engine, list(random_graphs(40, 25)))


def _compared(name: str, engine: Engine, graphs: Iterable[Graph]) -> Finding:
    """The first graph on which the gradients are wrong, and who would give the same numbers."""
    if not engine.has_backward:
        return Finding(name, "missing", "backward()", right="def backward(self): ...")
    tried = 0
    for tried, g in enumerate(graphs, 1):
        got, error = run(engine, g)
        leaves = [x for x, _ in g.inputs]
        right = g.truth.grads
        if not error and all(close(right[x], got[x]) for x in (*leaves, g.output)):
            continue
        rows = tuple(Row(x, g.truth.data[x], right[x], got.get(x)) for x in g.names)
        if error:
            finding = Finding(name, "wrong", "code that runs", error=error, graphs=tried)
            return with_graph(finding, g, ())
        return with_graph(diagnose(name, engine, g), g, rows)
    return Finding(name, "right", graphs=tried)


def run(engine: Engine, g: Graph) -> tuple[dict[str, float], str]:
    """The learner's gradients on one graph, or what was raised."""
    try:
        nodes = g.build(engine.number, engine.apply)
        engine.backward(nodes[g.output])
        return {name: engine.grad(v) for name, v in nodes.items()}, ""
    except Exception as error:
        return {}, describe(error)


def diagnose(name: str, engine: Engine, failing: Graph) -> Finding:
    """Which single mistake gives the learner's gradients on every graph, if one does.

    Later traps find the same mistake again: only the first one looks for its name.
    """
    if engine.diagnosis is None:
        engine.diagnosis = _diagnosis(engine, failing)
    return diagnosed(name, engine.diagnosis)


def diagnosed(name: str, found: Diagnosis) -> Finding:
    """The finding of a trap that meets a mistake whose name is known."""
    return Finding(name, "wrong", found.idea, found.why, found.right, found.lesson)


def _diagnosis(engine: Engine, failing: Graph) -> Diagnosis:
    graphs = [failing, *_evidence()]
    seen = []
    for g in graphs:
        got, error = run(engine, g)
        if not error:
            leaves = {x: got[x] for x, _ in g.inputs}
            seen.append((g, leaves))
    for suspect in SUSPECTS:
        if explains(suspect, seen):
            return Diagnosis(suspect.idea, suspect.why, suspect.right, suspect.lesson)
    return Diagnosis(*_guess(failing, seen[0][1]))


def _evidence() -> list[Graph]:
    small = list(small_graphs(2.0, 3.0))
    chosen = small[:: max(1, len(small) // _EVIDENCE)]
    return [*trees(2.0, 3.0, 5.0), *small[:20], *chosen, *list(small_graphs(2.0, 2.0))[5:30]]


def _guess(g: Graph, got: Mapping[str, float]) -> tuple[str, str]:
    """A hint where no single mistake explains all the numbers."""
    right = {x: g.truth.grads[x] for x, _ in g.inputs}
    if all(x == 0.0 for x in got.values()):
        return "the way to the inputs", "No gradient arrives: is every child's grad written to?"
    if any(math.isnan(x) or math.isinf(x) for x in got.values()):
        return "numbers that stay finite", "A gradient is inf or nan where nothing should be."
    ratios = {round(got[x] / right[x], 9) for x in right if right[x]}
    if len(ratios) == 1:
        by = f"Every gradient is {ratios.pop():g} times the right one: what is counted too often?"
        return "each contribution counted once", by
    return (
        "one contribution for each path",
        "Follow the smallest graph by hand: which += is missing, or one too many?",
    )
