"""The broken engines: each a few lines that differ from the right ones in a single place.

They work on a bare ``Node``: a number, a gradient, children and local gradients. ``build`` makes
the graph anew, around the same inputs, as one step of a training loop does.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    """One Value of a tiny engine."""

    data: float
    children: tuple[Node, ...] = ()
    local_grads: tuple[float, ...] = ()
    grad: float = 0.0
    inputs: list[Node] = field(default_factory=list)  # at the output: all leaves


Build = Callable[[], Node]

_IMPORTS = """
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Build = Callable[[], "Node"]
"""


@dataclass(frozen=True)
class Mistake:
    """One way to get it wrong."""

    name: str
    title: str
    why: str
    seen: str  # where people met it
    run: Callable[[Build], None]
    passes: int = 1  # how many times the right gradient a right engine would leave here

    @property
    def code(self) -> str:
        """The broken engine's source: a comment says what is wrong, the next what is right."""
        source = inspect.getsource(self.run)
        return source[source.index("def ") :].strip()

    @property
    def engine(self) -> str:
        """The same as a program: with its imports, the class of a node and the helpers it uses."""
        helpers = [helper for helper in (sort, edges) if f"{helper.__name__}(" in self.code]
        parts = [_IMPORTS, inspect.getsource(Node), *map(inspect.getsource, helpers), self.code]
        return "\n\n".join(part.strip() + "\n" for part in parts)


#: every mistake by its name
MISTAKES: dict[str, Mistake] = {}


def mistake(
    why: str, seen: str, passes: int = 1
) -> Callable[[Callable[[Build], None]], Callable[[Build], None]]:
    """Add a broken engine to the list."""

    def add(run: Callable[[Build], None]) -> Callable[[Build], None]:
        title = (run.__doc__ or "").strip().rstrip(".")
        MISTAKES[run.__name__] = Mistake(run.__name__, title, why, seen, run, passes)
        return run

    return add


# --- the right way --------------------------------------------------------------------------------


def sort(root: Node) -> list[Node]:
    """The topological order, inputs first."""
    topo: list[Node] = []
    visited: set[int] = set()

    def build_topo(v: Node) -> None:
        if id(v) not in visited:
            visited.add(id(v))
            for child in v.children:
                build_topo(child)
            topo.append(v)

    build_topo(root)
    return topo


def edges(v: Node) -> Iterator[tuple[Node, float]]:
    """Each child with its local gradient."""
    return zip(v.children, v.local_grads, strict=True)


def right(build: Build) -> None:
    """The right engine, for comparison."""
    root = build()
    root.grad = 1.0
    for v in reversed(sort(root)):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad


# --- the mistakes ---------------------------------------------------------------------------------


@mistake(
    why="A value used twice gets a contribution from each use; = keeps only the last of them.",
    seen="micrograd's lecture, until a + a shows it",
)
def overwrite(build: Build) -> None:
    """Writing = instead of +=."""
    root = build()
    root.grad = 1.0
    for v in reversed(sort(root)):
        for child, local_grad in edges(v):
            # wrong: this forgets what was there
            # right: child.grad += local_grad * v.grad
            child.grad = local_grad * v.grad


@mistake(
    why="A shared node is sorted once per use, so it propagates its gradient once per use. An "
    "input may be sorted twice without harm: it has nothing to propagate.",
    seen="the C# chapter's warning at step 7 of its trace",
)
def no_visited(build: Build) -> None:
    """No visited set."""
    topo: list[Node] = []

    def build_topo(v: Node) -> None:
        # wrong: nobody asks whether v was here before
        # right: if id(v) in visited: return
        #        visited.add(id(v))
        for child in v.children:
            build_topo(child)
        topo.append(v)

    root = build()
    build_topo(root)
    root.grad = 1.0
    for v in reversed(topo):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad


@mistake(
    why="The recursion enters a shared node once per use, and propagates its gradient so far "
    "each time: what came by the first path is counted again with the second.",
    seen="micrograd's issues 2, 21 and 68: 'why not just call backward on the children?'",
)
def recursion(build: Build) -> None:
    """Recursion without a topological order."""

    def backward(v: Node) -> None:
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad
        for child in v.children:
            # wrong: child.grad may not be complete yet
            # right: for v in reversed(sort(root)), each node once
            backward(child)

    root = build()
    root.grad = 1.0
    backward(root)


@mistake(
    why="Nodes are taken in the order they are discovered, so one that is also needed deeper down "
    "propagates its gradient before the deeper use has added to it.",
    seen="breadth-first searches written in place of the sort",
)
def breadth_first(build: Build) -> None:
    """A queue instead of a topological order."""
    root = build()
    root.grad = 1.0
    queue, visited = deque([root]), {id(root)}
    while queue:
        # wrong: other users of v may still be in the queue
        # right: for v in reversed(sort(root)):
        v = queue.popleft()
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad
            if id(child) not in visited:
                visited.add(id(child))
                queue.append(child)


@mistake(
    why="The search leaves the children before their parent: at that moment their gradients are "
    "still 0, so nothing arrives below the first level.",
    seen="micrograd's issue 96: 'why is the topological sort needed?'",
)
def while_sorting(build: Build) -> None:
    """Propagating while sorting."""
    visited: set[int] = set()

    def visit(v: Node) -> None:
        if id(v) not in visited:
            visited.add(id(v))
            for child in v.children:
                visit(child)
            # wrong: v.grad has not arrived yet
            # right: topo.append(v), and propagate after the search, in reverse
            for child, local_grad in edges(v):
                child.grad += local_grad * v.grad

    root = build()
    root.grad = 1.0
    visit(root)


@mistake(
    why="backward() adds to what is there. A training loop that does not set the gradients to zero "
    "moves along the sum of all the steps so far.",
    seen="the TypeScript chapter's note, and nearly everybody's first training loop",
)
def not_reset(build: Build) -> None:
    """Gradients not reset between steps."""
    for _step in range(2):
        root = build()
        # wrong: before this, every input's grad should go back to 0
        # right: for v in root.inputs: v.grad = 0.0
        root.grad = 1.0
        for v in reversed(sort(root)):
            for child, local_grad in edges(v):
                child.grad += local_grad * v.grad


@mistake(
    why="The interior nodes still hold the first pass's gradients and propagate them again, so the "
    "inputs get more than twice their gradient.",
    seen="micrograd's issue 53: 3 where 2 is expected",
    passes=2,
)
def second_backward(build: Build) -> None:
    """A second backward() on one graph."""
    root = build()
    for _call in range(2):
        root.grad = 1.0
        for v in reversed(sort(root)):
            for child, local_grad in edges(v):
                # wrong: interior gradients should start at 0
                # right: before each pass, v.grad = 0.0 for every v with children
                child.grad += local_grad * v.grad


@mistake(
    why="The sorted list kept from the last step still holds the last step's graph, whose "
    "gradients flow into the same inputs once more.",
    seen="the C# chapter's three-argument Backward, if its buffers are not cleared",
)
def stale_buffers(build: Build) -> None:
    """Stale buffers."""
    topo: list[Node] = []
    visited: set[int] = set()

    def build_topo(v: Node) -> None:
        if id(v) not in visited:
            visited.add(id(v))
            for child in v.children:
                build_topo(child)
            topo.append(v)

    for _step in range(2):
        root = build()
        for v in root.inputs:
            v.grad = 0.0
        # wrong: topo and visited should be cleared first
        # right: topo.clear(); visited.clear()
        build_topo(root)
        root.grad = 1.0
        for v in reversed(topo):
            for child, local_grad in edges(v):
                child.grad += local_grad * v.grad


@mistake(
    why="a + a has two edges to one node. A set, or a dictionary, keeps one of them.",
    seen="micrograd's _prev = set(_children), once the local gradients are kept beside it",
)
def set_of_children(build: Build) -> None:
    """A set of children."""
    root = build()
    root.grad = 1.0
    for v in reversed(sort(root)):
        # wrong: of two edges to one child, only one is kept
        # right: for child, local_grad in edges(v):
        distinct = {id(child): (child, slope) for child, slope in edges(v)}
        for child, local_grad in distinct.values():
            child.grad += local_grad * v.grad
