"""The backward pass of one graph, as data: ``explain(v)``.

A Value comes in; out comes an ``Explanation``: a snapshot of the graph (``nodes``) and the steps of
three stages — how each value was computed, how the graph was sorted, how the gradients flowed back.
Tables, drawings and pages are made from these dataclasses; nothing else knows how a pass runs.
The pass is computed in scratch: no ``.grad`` is read or changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from chainrule.core.backend import Value, topological_order
from chainrule.core.errors import caller_frame
from chainrule.core.ops import Op
from chainrule.core.text import visible
from chainrule.core.value import sweep
from chainrule.see import words
from chainrule.see.explanation.corners import meaning, operand_sides
from chainrule.see.names import (
    NUMBERS,
    Kind,
    Naming,
    attribute,
    compact,
    naming,
    naming_by,
    product,
    short,
)

if TYPE_CHECKING:
    from chainrule.see.explanation.paths import Paths

__all__ = [
    "explain",
    "Explanation",
    "Node",
    "ForwardStep",
    "SortStep",
    "BackwardStep",
    "Contribution",
]

#: graphs with more nodes than this are summarised by str() and _repr_html_; .steps stays complete
TABLE_LIMIT = 60


#: the stages as every text, page and table numbers them; the steps of each count from 1
STAGE_NAMES = {"forward": "Stage 0", "sort": "Stage 1", "backward": "Stage 2"}


@dataclass(frozen=True, slots=True)
class Node:
    """One Value at the moment of the explanation. Steps refer to nodes by ``index``."""

    index: int  # its place in the topological order, inputs first: also its place in .nodes
    name: str  # for people; unique except for leaves that are called by their number
    kind: Kind  # of a leaf: input, weight, data or constant
    data: float
    grad: float  # what this one pass gives it, starting from zero
    op: str  # Value.op: "+", "**2", "tanh"; "" for a leaf
    children: tuple[int, ...]
    local_grads: tuple[float, ...]
    parameters: tuple[float, ...]
    location: str | None  # "file.py:41" where debug() was on
    rule: Op | str = field(repr=False, compare=False)
    #: per operand: the share of the gradient that went there, and the child's total after it
    shares: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ForwardStep:
    """Stage 0: one value, as it was computed."""

    step: int
    node: int
    formula: str  # "a * b"; "" for a leaf
    numbers: str  # "2 × 3"
    result: str  # "6"
    words: str  # "c = a * b = 2 × 3 = 6"


@dataclass(frozen=True, slots=True)
class SortStep:
    """Stage 1: one pop of the stack ``[(node, input index), ...]`` of the topological sort."""

    step: int  # 0 is the start, which pops nothing
    popped: tuple[int, int] | None
    action: Literal["start", "explore", "skip", "done"]
    child: int | None  # the input looked at by "explore" and "skip"
    pushed: tuple[tuple[int, int], ...]  # what this step put back, in order
    sorted_count: int  # how many nodes are sorted after it; "done" adds the popped node
    words: tuple[str, ...]
    _stack: _Stack = field(repr=False, compare=False)

    @property
    def stack(self) -> tuple[tuple[int, int], ...]:
        """The stack after this step, bottom first."""
        return tuple(_bottom_first(self._stack))

    @property
    def sorted_nodes(self) -> tuple[int, ...]:
        """The nodes sorted so far. Nodes are numbered by this very order."""
        return tuple(range(self.sorted_count))


@dataclass(frozen=True, slots=True)
class Contribution:
    """One ``child.grad += local × grad``."""

    child: int
    operand: int  # which operand of the node the child is; a + a contributes twice
    local_grad: float
    formula: str  # the local gradient in words: "b", "1 - y²"; "" where nobody knows
    because: str  # why a choice went this way: "e > 0"; mostly ""
    amount: float  # local_grad * the node's grad
    total: float  # child.grad after it
    words: str
    corner: str = ""  # where the local gradient is a convention: what holds on both sides


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """Stage 2: one node propagates its gradient to its children."""

    step: int
    node: int  # also its position in the sorted list, walked from the end
    grad: float
    contributions: tuple[Contribution, ...]  # none for a leaf, or where grad is 0
    words: str


Step = ForwardStep | SortStep | BackwardStep

# A stack that shares its lower part with the stack before it, so that keeping every state is cheap.
_Stack: TypeAlias = "tuple[tuple[int, int], _Stack] | None"


def _bottom_first(stack: _Stack) -> list[tuple[int, int]]:
    entries = []
    while stack is not None:
        entry, stack = stack
        entries.append(entry)
    return entries[::-1]


@dataclass(frozen=True, repr=False)
class Explanation:
    """Everything ``backward()`` does to one graph: see ``explain``."""

    nodes: tuple[Node, ...]  # inputs first, the explained Value last
    values: tuple[Value, ...] = field(compare=False)  # the Values themselves, in that order

    @property
    def root(self) -> Node:
        """The node that was explained."""
        return self.nodes[-1]

    @cached_property
    def forward(self) -> tuple[ForwardStep, ...]:
        """Stage 0: how each value was computed."""
        return tuple(map(self.forward_step, self.nodes))

    @cached_property
    def sort(self) -> tuple[SortStep, ...]:
        """Stage 1: the topological sort."""
        return tuple(self.sort_step(*pop) for pop in enumerate(pops(self.nodes)))

    @cached_property
    def backward(self) -> tuple[BackwardStep, ...]:
        """Stage 2: the gradients flowing back."""
        return tuple(map(self.backward_step, reversed(self.nodes)))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The three stages, one after the other."""
        return (*self.forward, *self.sort, *self.backward)

    def paths(self, leaf: Value | str, limit: int = 100) -> Paths:
        """Why the gradient of ``leaf`` is what it is: what each path to it contributes.

        >>> from chainrule import Value, explain
        >>> a, b = Value(2.0, label="a"), Value(3.0, label="b")
        >>> print(explain(a * b + a).paths(a))
        why a.grad is 4.0: 2 paths lead from v2 to a
        <BLANKLINE>
          v2 → v1 → a  1.0 × 3.0 = 3.0
          v2 → a             1.0 = 1.0
                             sum = 4.0
        """
        from chainrule.see.explanation.paths import find_paths

        return find_paths(self.nodes, self.index_of(leaf), limit)

    def meaning(self, node: Value | str) -> str:
        """What the gradient of a node says about the result, in words.

        >>> from chainrule import Value, explain
        >>> x = Value(0.0, label="x")
        >>> explain(x * x).meaning(x)
        'to first order, a little change of x does not change v1'
        >>> y = abs(x)
        >>> y.label = "y"
        >>> print(explain(y).meaning(x))
        y has a corner here: slope -1.0 to the left, 1.0 to the right of x; 0.0 is a convention
        """
        return meaning(self.nodes, self.index_of(node))

    def index_of(self, node: Value | str) -> int:
        """The index of a Value, or of a name shown in the tables."""
        if isinstance(node, str):
            found = [n.index for n in self.nodes if n.name == node]
            found = found or [i for i, v in enumerate(self.values) if v.label == node]
        else:
            found = [i for i, v in enumerate(self.values) if v is node]
        if found:
            return found[0]
        what = repr(node) if isinstance(node, str) else f"this Value ({node!r})"
        raise ValueError(f"{what} is not in the graph of {self.root.name}")

    def __str__(self) -> str:
        from chainrule.see.explanation.text import sections
        from chainrule.see.tables import as_text

        return as_text(*sections(self))

    __repr__ = __str__  # at a prompt, explain(v) shows the tables

    def _repr_html_(self) -> str:
        from chainrule.see.explanation.text import sections
        from chainrule.see.tables import PAGE_WIDTH, notebook_html

        return notebook_html(*sections(self, width=PAGE_WIDTH))

    # --- single steps: what the tuples above hold, and what a summary shows a few of --------------

    def operand_words(self, node: Node) -> list[words.Word]:
        """The operands of a node, ready to stand in a formula."""
        return [_word(self.nodes[i]) for i in node.children]

    def forward_step(self, node: Node) -> ForwardStep:
        """How one node was computed."""
        result = compact(node.data)
        if node.kind != "operation":
            text = node.name if node.kind in NUMBERS else f"{node.name} = {result}"
            return ForwardStep(node.index + 1, node.index, "", "", result, text)
        operands = self.operand_words(node)
        formula = words.formula(node.rule, operands, node.parameters, times="*")
        plain = [words.word(x.value) for x in operands]
        numbers = words.formula(node.rule, plain, node.parameters, times="×")
        text = f"{node.name} = {formula} = {numbers} = {result}"
        if _is_stale(node, operands):
            text += " (when it was made; .data has been set since)"
        return ForwardStep(node.index + 1, node.index, formula, numbers, result, text)

    def sort_step(self, step: int, pop: Pop) -> SortStep:
        """One pop of the sort, in words."""
        if pop.popped is None:
            name = self.root.name
            start = (f"push ({name},0)",)
            return SortStep(step, None, "start", None, pop.pushed, 0, start, pop.stack)
        node, i = self.nodes[pop.popped[0]], pop.popped[1]
        name, count = node.name, len(node.children)
        lines: tuple[str, ...]
        if pop.child is not None:
            child = self.nodes[pop.child].name
            news = f"{child} is new, push ({child},0) to explore it"
            lines = (
                f"{name} has inputs, index {i} < {count}:",
                f"push ({name},{i + 1}) to come back later",
                news if pop.action == "explore" else f"{child} already visited, skip",
            )
        elif count == 0:
            lines = (f"{name} has no inputs (leaf):", f"add {name} to sorted nodes")
        else:
            lines = (
                f"{name} has inputs, but index {i} = {count}:",
                f"inputs done, add {name} to sorted nodes",
            )
        return SortStep(
            step, pop.popped, pop.action, pop.child, pop.pushed, pop.sorted_count, lines, pop.stack
        )

    def backward_step(self, node: Node) -> BackwardStep:
        """One node's turn in stage 2, in words."""
        step = len(self.nodes) - node.index
        operands = self.operand_words(node)
        if node.kind != "operation":
            return BackwardStep(
                step, node.index, node.grad, (), f"{node.name} has no inputs (leaf), skip"
            )
        if not node.shares:
            zero = f"{attribute(node.name)} is 0: nothing to pass on"
            return BackwardStep(step, node.index, node.grad, (), zero)
        formulas = [("", "")] * len(operands)
        if not _is_stale(node, operands):
            formulas = words.derivatives(node.rule, _word(node), operands, node.parameters)
        contributions = tuple(
            self._contribution(node, i, *formulas[i], *share) for i, share in enumerate(node.shares)
        )
        names = ", ".join(self.nodes[i].name for i in node.children)
        slopes = ", ".join(map(short, node.local_grads))
        text = f"{node.name} has inputs [{names}] with local gradients [{slopes}]"
        return BackwardStep(step, node.index, node.grad, contributions, text)

    def _contribution(
        self, node: Node, operand: int, formula: str, because: str, amount: float, total: float
    ) -> Contribution:
        child, local = self.nodes[node.children[operand]], node.local_grads[operand]
        corner = operand_sides(node, self.nodes, operand) if because else None
        grad = attribute(child.name)
        text = f"{grad} += {product(local, node.grad, amount)}"
        if amount != total:
            text += f", now {short(total)}"
        note = f"a corner ({corner}), so {short(local)} is a convention" if corner else ""
        return Contribution(
            child.index, operand, local, formula, because, amount, total, text, note
        )


def explain(v: Value) -> Explanation:
    """The whole backward pass of ``v``, step by step: tables, and the steps as plain data.

    ``print`` it in a terminal, let a notebook display it, or read ``.steps`` (``.forward``,
    ``.sort`` and ``.backward`` in one tuple). ``.paths(leaf)`` takes one gradient apart. No
    ``.grad`` is changed. Nodes are called by their label, else by the caller's variable,
    else v1, v2, ...

    >>> from chainrule import Value, explain
    >>> a, b = Value(2.0), Value(3.0)
    >>> c = a * b
    >>> L = c + a
    >>> steps = explain(L)
    >>> steps.forward[-2].words
    'c = a * b = 2 × 3 = 6'
    >>> [w.words for step in steps.backward for w in step.contributions][2]
    'a.grad += 3.0 × 1.0 = 3.0, now 4.0'
    """
    if not isinstance(v, Value):
        raise TypeError(f"explain takes a Value, not a {type(v).__name__}")
    order = topological_order(v)
    return _explain_named(order, naming(order, caller_frame()))


def explain_with(v: Value, model: Any) -> Explanation:
    """The backward pass of ``v``, whose weights have the names that ``model`` gives them."""
    order = topological_order(v)
    return _explain_named(order, naming_by(order, model))


def _explain_named(order: Sequence[Value], called: Naming) -> Explanation:
    """The backward pass of the last of these nodes, which are in topological order."""
    position = {id(node): i for i, node in enumerate(order)}
    children = [tuple([position[id(c)] for c in node.children]) for node in order]
    edges: list[tuple[float, float]] = []
    grads = list(sweep(order, shares=edges).values())
    rest = iter(edges)  # of the nodes with a gradient, the last node first
    shares = [
        tuple(islice(rest, len(inputs) if grad else 0))
        for grad, inputs in zip(reversed(grads), reversed(children), strict=True)
    ]
    nodes = tuple(
        Node(
            index=i,
            name=called.names[i],
            kind=called.kinds[i],
            data=node.data,
            grad=grads[i],
            op=visible(node.op),
            children=inputs,
            local_grads=node.local_grads,
            parameters=node._parameters,
            location=node._location,
            rule=node._rule or "",
            shares=shares[-1 - i],
        )
        for i, (node, inputs) in enumerate(zip(order, children, strict=True))
    )
    return Explanation(nodes, tuple(order))


class Pop(NamedTuple):
    """One pop of the sort, before words."""

    popped: tuple[int, int] | None
    action: Literal["start", "explore", "skip", "done"]
    child: int | None
    pushed: tuple[tuple[int, int], ...]
    sorted_count: int
    stack: _Stack


def pops(nodes: Sequence[Node]) -> Iterator[Pop]:
    """The topological sort by an explicit stack, one pop at a time."""
    root = len(nodes) - 1
    stack: _Stack = ((root, 0), None)
    yield Pop(None, "start", None, ((root, 0),), 0, stack)
    visited = {root}
    done = 0
    while stack is not None:
        popped, stack = stack
        node, i = popped
        children = nodes[node].children
        if i == len(children):
            done += 1
            yield Pop(popped, "done", None, (), done, stack)
            continue
        child = children[i]
        again = (node, i + 1)
        stack = (again, stack)
        if child in visited:
            yield Pop(popped, "skip", child, (again,), done, stack)
        else:
            visited.add(child)
            stack = ((child, 0), stack)
            yield Pop(popped, "explore", child, (again, (child, 0)), done, stack)


def _word(node: Node) -> words.Word:
    return words.word(node.data) if node.kind in NUMBERS else words.name_word(node.name, node.data)


def _is_stale(node: Node, operands: Sequence[words.Word]) -> bool:
    return words.is_stale(node.rule, node.data, [x.value for x in operands], node.parameters)
