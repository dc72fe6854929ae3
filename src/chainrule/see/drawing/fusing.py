"""Chains of sums and products as one unit each: the first step of collapsing a large graph.

In goes a topological order; out come ``Units``: every node belongs to one, most units are one node,
and ``w1*x1 + w2*x2 + w3*x3 + b`` is a single unit of the shape "dot product of 3, plus 1".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from chainrule.core.backend import Value
from chainrule.core.text import visible
from chainrule.see.names import compact, literal_leaves

#: graphs with up to this many labelled operations keep each of them as a unit of its own
MOST_LABELS = 12


@dataclass(frozen=True)
class Shape:
    """What a unit computes: its last operation, and what that is applied to."""

    head: str  # the operation's symbol; "" for a leaf
    counts: tuple[tuple[str, int], ...] = ()  # ("product", 16), ("other", 1), ...
    constant: float | None = None  # the number of "x * -1" and the like
    name: str = ""  # of a unit that is never joined with others
    kind: str = field(init=False)  # all but the counts: a sum of 3 and one of 8 are of one kind

    def __post_init__(self) -> None:
        terms = [what for what, _ in self.counts if what != "constant"]
        object.__setattr__(self, "kind", " ".join([self.head, *terms, self.name]))

    @property
    def is_reduction(self) -> bool:
        """Whether it takes many values to one."""
        terms = dict(self.counts)
        products = terms.get("product", 0) + terms.get("square", 0)
        return self.head == "+" and (products > 1 or products + terms.get("other", 0) > 2)


@dataclass(frozen=True, eq=False)
class Unit:
    """Some nodes with one result, their last."""

    nodes: tuple[int, ...]  # places in the topological order
    shape: Shape
    name: str  # of the result
    before: tuple[tuple[int, str], ...]  # the units it uses, each with how it is used
    level: int  # the longest way from a leaf
    is_leaf: bool  # made by no operation

    @property
    def result(self) -> int:
        """The node that others use."""
        return self.nodes[-1]


def fuse(order: Sequence[Value], names: Sequence[str]) -> list[Unit]:
    """The units of a graph, inputs first."""
    return _Fusing(order, names).units()


class _Fusing:
    def __init__(self, order: Sequence[Value], names: Sequence[str]) -> None:
        place = {id(v): i for i, v in enumerate(order)}
        self.children = [tuple([place[id(c)] for c in v.children]) for v in order]
        self.op = [visible(v.op) for v in order]
        self.data = [v.data for v in order]
        self.names = names
        self.uses = [0] * len(order)
        for children in self.children:
            for c in children:
                self.uses[c] += 1
        labelled = {i for i, v in enumerate(order) if v.label and v.children}
        self.kept = labelled if len(labelled) <= MOST_LABELS else set()
        literals = literal_leaves(order, names)
        self.constants = {i for i, v in enumerate(order) if id(v) in literals}
        self.root = self._roots()

    def _roots(self) -> list[int]:
        """For each node the last node of its unit."""
        root = list(range(len(self.op)))
        for i in reversed(range(len(root))):
            for c in self.children[i]:
                if self._joins(c, i):
                    root[c] = root[i]
        return root

    def _joins(self, child: int, parent: int) -> bool:
        # A node with one use can join its user and no cycle comes of it.
        if self.uses[child] != 1 or child in self.kept:
            return False
        if not self.children[child]:
            return child in self.constants
        inner, outer = self.op[child], self.op[parent]
        if outer == "+":
            return inner in ("+", "*", "**2")
        return outer == "*" and (inner == "*" or inner.startswith("**-"))

    def units(self) -> list[Unit]:
        members: defaultdict[int, list[int]] = defaultdict(list)
        for i, root in enumerate(self.root):
            members[root].append(i)
        number = {root: n for n, root in enumerate(sorted(members))}
        units: list[Unit] = []
        for root in number:
            before: dict[tuple[int, str], None] = {}
            for i in members[root]:
                for operand, c in enumerate(self.children[i]):
                    if self.root[c] != root:
                        use = "+" if self.op[i] == "+" else f"{self.op[i]} {operand}"
                        before[number[self.root[c]], use] = None
            level = max((units[n].level + 1 for n, _ in before), default=0)
            units.append(
                Unit(
                    tuple(members[root]),
                    self._shape(root),
                    self.names[root],
                    tuple(before),
                    level,
                    is_leaf=not self.children[root],
                )
            )
        return units

    def _shape(self, root: int) -> Shape:
        head = self.op[root]
        name = self.names[root] if root in self.kept else ""
        if head not in ("+", "*") or not self.children[root]:
            return _plain_shape(head, name)
        counts: Counter[str] = Counter()
        constants: list[float] = []
        stack = list(self.children[root])
        while stack:
            i = stack.pop()
            inside = self.root[i] == root
            if inside and not self.children[i]:
                constants.append(self.data[i])
            elif inside and self.op[i] == head:
                stack += self.children[i]
            else:
                counts[self._term(i) if inside else "other"] += 1
        scaled = counts.pop("scaled", 0)  # by a number; two and more are a dot product too
        counts["product" if scaled > 1 or counts["product"] else "other"] += scaled
        counts["constant"] = sum(1 for c in constants if c != (0.0 if head == "+" else 1.0))
        constant = constants[0] if len(set(constants)) == 1 else None
        return Shape(head, tuple(sorted((+counts).items())), constant, name)

    def _term(self, i: int) -> str:
        """What a node inside a sum or product adds to it."""
        if self.op[i] == "**2":
            return "square"
        if self.op[i] != "*":
            return "inverse"
        factors = self.children[i]
        numbers = [self.data[c] for c in factors if c in self.constants]
        if numbers:
            return "other" if numbers == [-1.0] else "scaled"
        return "square" if len(set(factors)) == 1 else "product"


@lru_cache
def _plain_shape(head: str, name: str) -> Shape:
    return Shape(head, name=name)


def title(shapes: Sequence[Shape]) -> str:
    """Shapes of one kind in words: "dot product of 16", "sum of 3-8", "tanh"."""
    head = shapes[0].head
    if shapes[0].name:
        return shapes[0].name
    count = {what: _Range(what, shapes) for what in ("product", "square", "other", "inverse")}
    products, squares, others, inverses = count.values()
    constants = {shape.constant for shape in shapes}
    constant = constants.pop() if len(constants) == 1 else None
    if head == "+":
        if not products and not squares:
            shift = "" if constant is None else f" {compact(constant)}"
            return f"sum of {others}" if others.high > 2 else f"add{shift}"
        if products.high == 1 and not squares:
            return "multiply and add" if others else "product"
        text = f"dot product of {products}" if products else f"sum of {squares} squares"
        if products and squares:
            text = f"sum of {products} products, {squares} squares"
        return f"{text}, plus {others}" if others else text
    if head == "*":
        if inverses:
            return "divide"
        if others.high == 1:
            if constant == -1.0:
                return "negate"
            return "scale" if constant is None else f"times {compact(constant)}"
        return "multiply" if others.high == 2 else f"product of {others}"
    return head or "operation"


class _Range:
    """How many of something shapes have: "16", or "3-8" where they differ."""

    def __init__(self, what: str, shapes: Sequence[Shape]) -> None:
        counts = [dict(shape.counts).get(what, 0) for shape in shapes]
        self.low, self.high = min(counts), max(counts)

    def __bool__(self) -> bool:
        return self.high > 0

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,}–{self.high:,}"
