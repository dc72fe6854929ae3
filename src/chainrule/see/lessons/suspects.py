"""What a learner's engine may be doing instead: one-pass engines, each wrong in a single way.

A graph comes in, the gradients that each wrong engine would give come out. The one that gives the
learner's numbers on every graph tried is what the learner's engine does, whatever its code looks
like: that is how ``lessons check`` knows which idea is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from chainrule.see.lessons.graphs import Graph
from chainrule.see.lessons.mistakes import MISTAKES, Node, edges, sort


@dataclass(frozen=True)
class Suspect:
    """One wrong way, the idea that is missing, and the line that would be right."""

    name: str
    idea: str
    why: str
    right: str
    run: Callable[[Node], None] = field(repr=False)
    locals: Callable[[str, tuple[float, ...]], tuple[float, ...]] | None = None
    lesson: str = ""  # the broken engine that shows it

    def gradients(self, graph: Graph, flipped: Sequence[bool] = ()) -> dict[str, float]:
        """The gradient of every node, as this engine would have it.

        ``flipped`` says for each step whether its second operand is visited first: a set of
        children, as micrograd has it, is walked in any order.
        """
        nodes = _nodes(graph, self.locals)
        for step, flip in zip(graph.steps, flipped, strict=False):
            if flip:
                node = nodes[step.name]
                node.children, node.local_grads = node.children[::-1], node.local_grads[::-1]
        self.run(nodes[graph.output])
        return {name: node.grad for name, node in nodes.items()}


def _nodes(
    graph: Graph, local_grads: Callable[[str, tuple[float, ...]], tuple[float, ...]] | None
) -> dict[str, Node]:
    data = graph.truth.data
    nodes = {name: Node(x) for name, x in graph.inputs}
    for step in graph.steps:
        names = [x for x in step.arguments if isinstance(x, str)]
        xs = tuple(data[x] for x in names)
        right = (1.0, 1.0) if step.op == "add" else (xs[1], xs[0])
        slopes = local_grads(step.op, xs) if local_grads else right
        nodes[step.name] = Node(data[step.name], tuple(nodes[x] for x in names), slopes)
    return nodes


SUSPECTS: list[Suspect] = []


def _suspect(
    idea: str, why: str, right: str, lesson: str = ""
) -> Callable[[Callable[[Node], None]], Callable[[Node], None]]:
    def add(run: Callable[[Node], None]) -> Callable[[Node], None]:
        SUSPECTS.append(Suspect(run.__name__, idea, why, right, run, lesson=lesson))
        return run

    return add


def _from_lessons(name: str, idea: str, right: str) -> None:
    mistake = MISTAKES[name]

    def run(root: Node) -> None:
        mistake.run(lambda: root)

    SUSPECTS.append(Suspect(name, idea, mistake.why, right, run, lesson=name))


_ACCUMULATE = "child.grad += local_grad * v.grad"

_from_lessons("overwrite", "accumulation: contributions are added up with +=", _ACCUMULATE)
_from_lessons(
    "no_visited",
    "one turn for each node: a topological order, made with a visited set",
    "if v not in visited: visited.add(v); ...",
)
_from_lessons(
    "recursion",
    "one turn for each node: a topological order, made with a visited set",
    "for v in reversed(topo): ...",
)
_from_lessons(
    "breadth_first",
    "a topological order: a queue takes nodes too early",
    "topo.append(v) after the loop over v's children, then reversed(topo)",
)
_from_lessons(
    "set_of_children",
    "a + a has two edges: children and local gradients are kept in a tuple, not in a set",
    "self._children = children",
)


@_suspect(
    "the seed gradient: the output's own gradient is 1",
    "Everything is multiplied by the output's gradient in the end. While that is 0, so is all "
    "the rest.",
    "self.grad = 1.0",
)
def no_seed(root: Node) -> None:
    """Nothing happens without a seed."""


@_suspect(
    "the order: sort first, then walk from the output back to the inputs, reversed(topo)",
    "The sorted list has the inputs first. Walked in that direction, or while it is being made, "
    "every node has its turn before its gradient has arrived.",
    "for v in reversed(topo):",
    "while_sorting",
)
def not_reversed(root: Node) -> None:
    """The sorted list, walked from its beginning."""
    root.grad = 1.0
    for v in sort(root):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad


@_suspect(
    "the order: a node joins the list after its children, not before",
    "Added before its children, a node stands in the list before what it uses, and the list is "
    "no topological order.",
    "for child in v._children: build_topo(child)\ntopo.append(v)",
)
def preorder(root: Node) -> None:
    """A depth-first list in which a node stands before its children."""
    root.grad = 1.0
    for v in _preorder(root):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad


@_suspect(
    "the order: a node joins the list after its children, not before",
    "Added before its children, a node stands in the list before what it uses; reversed, the "
    "list begins with the inputs.",
    "for child in v._children: build_topo(child)\ntopo.append(v)",
)
def preorder_reversed(root: Node) -> None:
    """The same list, from its end."""
    root.grad = 1.0
    for v in reversed(_preorder(root)):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad


def _preorder(root: Node) -> list[Node]:
    found: list[Node] = []
    seen: set[int] = set()

    def visit(v: Node) -> None:
        if id(v) not in seen:
            seen.add(id(v))
            found.append(v)
            for child in v.children:
                visit(child)

    visit(root)
    return found


def _sweep(change: Callable[[Node, Node, float], None]) -> Callable[[Node], None]:
    """A right walk in which one line, that of a contribution, is another."""

    def run(root: Node) -> None:
        root.grad = 1.0
        for v in reversed(sort(root)):
            for child, local_grad in edges(v):
                change(v, child, local_grad)

    return run


def _add(name: str, idea: str, why: str, right: str, run: Callable[[Node], None]) -> None:
    SUSPECTS.append(Suspect(name, idea, why, right, run))


def _seeded_with_data(root: Node) -> None:
    root.grad = root.data
    for v in reversed(sort(root)):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad


def _first_child_only(root: Node) -> None:
    root.grad = 1.0
    for v in reversed(sort(root)):
        for child, local_grad in list(edges(v))[:1]:
            child.grad += local_grad * v.grad


def _equal_is_visited(root: Node) -> None:
    """Two nodes with the same number count as one and the same in the visited set."""
    topo: list[Node] = []
    seen: set[float] = set()

    def build_topo(v: Node) -> None:
        if v.data not in seen:
            seen.add(v.data)
            for child in v.children:
                build_topo(child)
            topo.append(v)

    build_topo(root)
    root.grad = 1.0
    for v in reversed(topo):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad


def _add_local(v: Node, child: Node, local_grad: float) -> None:
    child.grad += local_grad


def _add_grad(v: Node, child: Node, local_grad: float) -> None:
    child.grad += v.grad


def _times_data(v: Node, child: Node, local_grad: float) -> None:
    child.grad += local_grad * v.data


def _subtract(v: Node, child: Node, local_grad: float) -> None:
    child.grad -= local_grad * v.grad


_add(
    "seeded_with_data",
    "the seed gradient: the output's own gradient is 1, not its number",
    "When the output moves, the output moves by just as much: the ratio is 1, however large it is.",
    "self.grad = 1.0",
    _seeded_with_data,
)
_add(
    "first_child_only",
    "every child gets its share, not only the first",
    "An operation with two operands has two local gradients, and passes on two contributions.",
    "for child, local_grad in zip(v._children, v._local_grads):",
    _first_child_only,
)
_add(
    "equal_is_visited",
    "identity: two nodes with the same number are still two nodes",
    "The visited set takes nodes for the same that only hold equal numbers: __eq__ and __hash__ of "
    "the class compare numbers. Leave both out, or put id(v) in the set.",
    "visited.add(id(v))",
    _equal_is_visited,
)
_add(
    "chain_left_out",
    "the chain rule: local gradient times the gradient that came from above",
    "The local gradient says how fast this node moves; how fast the output moves is that times "
    "the node's own gradient.",
    _ACCUMULATE,
    _sweep(_add_local),
)
_add(
    "local_left_out",
    "local gradients: what comes from above is multiplied by how fast this node moves",
    "A product moves as fast as its other factor is large: the gradient is passed on times that.",
    _ACCUMULATE,
    _sweep(_add_grad),
)
_add(
    "times_data",
    "the chain rule multiplies by the node's gradient, not by its number",
    "What comes from above is v.grad. v.data is the number that was computed going forward.",
    _ACCUMULATE,
    _sweep(_times_data),
)
_add(
    "subtracted",
    "the sign: contributions are added; only the update of the parameters subtracts",
    "The gradient points uphill. It is the training step that goes the other way.",
    _ACCUMULATE,
    _sweep(_subtract),
)


def _standard(root: Node) -> None:
    root.grad = 1.0
    for v in reversed(sort(root)):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad


def _wrong_rule(
    name: str,
    idea: str,
    why: str,
    right: str,
    rule: Callable[[str, float, float], tuple[float, float]],
) -> None:
    def local_grads(op: str, xs: tuple[float, ...]) -> tuple[float, ...]:
        return rule(op, xs[0], xs[1])

    SUSPECTS.append(Suspect(name, idea, why, right, _standard, local_grads))


_PRODUCT = "(self, other), (other.data, self.data)"
_wrong_rule(
    "own_factor",
    "the local gradients of a product: each factor gets the other one",
    "When a moves by a little, a*b moves b times as much: b is the local gradient of a.",
    _PRODUCT,
    lambda op, a, b: (1.0, 1.0) if op == "add" else (a, b),
)
_wrong_rule(
    "product_like_sum",
    "the local gradients of a product: each factor gets the other one, not 1",
    "When a moves by a little, a*b moves b times as much: b is the local gradient of a.",
    _PRODUCT,
    lambda op, a, b: (1.0, 1.0),
)
_wrong_rule(
    "sum_like_product",
    "the local gradients of a sum: 1 and 1",
    "When a moves by a little, a + b moves by just as much, however large b is.",
    "(self, other), (1.0, 1.0)",
    lambda op, a, b: (b, a),
)


def explains(suspect: Suspect, seen: Sequence[tuple[Graph, Mapping[str, float]]]) -> bool:
    """Whether a suspect gives the learner's gradients on every graph they were seen on."""
    return all(_matches(suspect, graph, got) for graph, got in seen)


def _matches(suspect: Suspect, graph: Graph, got: Mapping[str, float]) -> bool:
    for flipped in product((False, True), repeat=len(graph.steps)):
        grads = suspect.gradients(graph, flipped)
        if all(_same(grads[name], x) for name, x in got.items()):
            return True
    return False


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))
