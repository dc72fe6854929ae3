"""What the page shows at each moment: steps of an ``Explanation`` in, ``Frame`` objects out.

A frame is one picture of the film: which box is in focus, which wires are lit, what is said, and
what has changed since the frame before. The page replays changes from the first frame on, so it
can be at any frame at once, forwards and backwards. Every number on it is written here, in Python:
the page computes and formats none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from chainrule.see.drawing.picture import Picture
from chainrule.see.explanation import (
    BackwardStep,
    Contribution,
    Explanation,
    ForwardStep,
    Node,
    SortStep,
    pops,
)
from chainrule.see.names import attribute, product, quoted, short

FORWARD, SORT, BACKWARD = range(3)


@dataclass(frozen=True)
class Frame:
    """One moment. Boxes and wires are numbers in the picture."""

    stage: int
    box: int  # in focus
    headline: str
    lines: tuple[str, ...] = ()
    exact: str = ""  # the numbers to the last digit, where the headline rounds them
    wires: tuple[int, ...] = ()
    about: tuple[int, ...] = ()  # the boxes in whose history this belongs
    # What changes:
    data: str = ""  # the box's number appears
    how: str = ""  # the formula it was computed by
    popped: bool = False
    pushed: tuple[tuple[int, int], ...] = ()
    sorted: bool = False  # the box joins the sorted list
    child: int | None = None  # whose gradient becomes `total`, by adding `amount`
    amount: str = ""
    total: str = ""
    added: bool = False  # the amount is one number, to be shown as part of a sum


def make_frames(explanation: Explanation, picture: Picture) -> list[Frame]:
    """Every frame, in order. A collapsed picture is stepped through box by box."""
    if picture.is_collapsed:
        return list(_collapsed(picture))
    wires = {(wire.target, wire.operand): n for n, wire in enumerate(picture.wires)}
    nodes = explanation.nodes
    return [
        *(_forward(step, nodes, wires) for step in explanation.forward),
        *(_sort(step, nodes, wires) for step in explanation.sort),
        _seed(explanation),
        *(frame for step in explanation.backward for frame in _backward(step, nodes, wires)),
    ]


Wires = dict[tuple[int, int], int]


def _forward(step: ForwardStep, nodes: Sequence[Node], wires: Wires) -> Frame:
    node = nodes[step.node]
    exact = _exactly([node.data])
    incoming = tuple(wires[step.node, k] for k in range(len(node.children)))
    frame = Frame(FORWARD, step.node, "", (), exact, incoming, data=short(node.data))
    frame = replace(frame, about=(step.node,))
    if node.kind == "constant":
        return replace(frame, headline=node.name, lines=("a constant in the formula",))
    if node.kind == "data":
        return replace(frame, headline=node.name, lines=("a number of the data",))
    if node.kind != "operation":
        said = "a weight" if node.kind == "weight" else "an input"
        return replace(frame, headline=f"{node.name} = {step.result}", lines=(said,))
    # "c = a * b = 2 × 3 = 6", and the remark that the words may end in.
    told = f"{node.name} = {step.formula} = {step.numbers} = {step.result}"
    remark = step.words.removeprefix(told).strip()
    lines = (f"= {step.numbers}", f"= {step.result}", *([remark] if remark else []))
    headline = f"{node.name} = {step.formula}"
    return replace(frame, headline=headline, lines=lines, how=step.formula)


def _sort(step: SortStep, nodes: Sequence[Node], wires: Wires) -> Frame:
    if step.popped is None:
        root = len(nodes) - 1
        return Frame(SORT, root, "start", step.words, about=(root,), pushed=step.pushed)
    box, index = step.popped
    looked_at = () if step.child is None else (wires[box, index],)
    return Frame(
        SORT,
        box,
        f"pop ({nodes[box].name}, {index})",
        step.words,
        wires=looked_at,
        about=(box,) if step.child is None else (box, step.child),
        popped=True,
        pushed=step.pushed,
        sorted=step.action == "done",
    )


def _seed(explanation: Explanation) -> Frame:
    root = explanation.root
    grad = short(explanation.backward[0].grad)
    return Frame(
        BACKWARD,
        root.index,
        f"{attribute(root.name)} = {grad}",
        (f"when {root.name} changes, {root.name} changes by just as much",),
        about=(root.index,),
        child=root.index,
        total=grad,
    )


def _backward(step: BackwardStep, nodes: Sequence[Node], wires: Wires) -> Iterator[Frame]:
    node = nodes[step.node]
    if not step.contributions:
        headline = f"{attribute(node.name)} is {short(step.grad)}"
        exact = _exactly([step.grad])
        yield Frame(BACKWARD, step.node, headline, (step.words,), exact, about=(step.node,))
    for contribution in step.contributions:
        yield _contribution(step, contribution, node, nodes[contribution.child], wires)


def _contribution(
    step: BackwardStep, added: Contribution, node: Node, child: Node, wires: Wires
) -> Frame:
    slope = f"∂{quoted(node.name)}/∂{quoted(child.name)}"
    local = short(added.local_grad)
    reason = f"{slope} = {local}"
    if added.formula and added.formula != local.removesuffix(".0"):
        reason = f"{slope} = {added.formula} = {local}"
    if added.because:
        reason += f", because {added.because}"
    lines = [
        f"= {product(added.local_grad, step.grad, added.amount)}",
        reason,
        _speed(node.name, child.name, added.local_grad),
    ]
    if added.total != added.amount:
        lines.append(f"{attribute(child.name)} is now {short(added.total)}")
    exact = [added.local_grad, step.grad, added.amount, added.total]
    return Frame(
        BACKWARD,
        step.node,
        f"{attribute(child.name)} += {slope} × {attribute(node.name)}",
        tuple(lines),
        _exactly(exact, "{} × {} = {}, now {}"),
        (wires[step.node, added.operand],),
        (step.node, child.index),
        child=child.index,
        amount=short(added.amount),
        total=short(added.total),
        added=True,
    )


def _speed(node: str, child: str, local_grad: float) -> str:
    """A local gradient in plain words."""
    if local_grad == 1.0:
        return f"{node} moves as fast as {child}"
    if local_grad == 0.0:
        return f"{node} does not move with {child}"
    against = ", the other way" if local_grad < 0.0 else ""
    return f"{node} moves {short(abs(local_grad))} times as fast as {child}{against}"


def _exactly(numbers: Sequence[float], form: str = "{}") -> str:
    if all(repr(x) == short(x) for x in numbers):
        return ""
    return f"exactly {form.format(*numbers)}"


# --- collapsed pictures -------------------------------------------------------------------------


def _collapsed(picture: Picture) -> Iterator[Frame]:
    """The same film over boxes: many steps at a time, numbers as ranges."""
    boxes = picture.boxes
    into: list[list[int]] = [[] for _ in boxes]
    for n, wire in enumerate(picture.wires):
        into[wire.target].append(n)
    order = _inputs_first([[picture.wires[n].source for n in wires] for wires in into])
    for number in order:
        box = boxes[number]
        lines = (f"data {box.data}", *([box.size] if box.is_group else []))
        wires = tuple(into[number])
        yield Frame(FORWARD, number, box.title, lines, "", wires, about=(number,), data=box.data)
    yield from _collapsed_sort(picture, order, into)
    root = boxes[-1]
    headline = f"{attribute(picture.name)} = {root.grad}"
    yield Frame(
        BACKWARD, root.number, headline, about=(root.number,), child=root.number, total=root.grad
    )
    waiting = [sum(1 for wire in picture.wires if wire.source == box.number) for box in boxes]
    for number in reversed(order):
        if not into[number]:
            headline = f"{boxes[number].title}: grad {boxes[number].grad}"
            yield Frame(
                BACKWARD, number, headline, ("inputs, nothing to propagate",), about=(number,)
            )
        for n in into[number]:
            wire = picture.wires[n]
            waiting[wire.source] -= 1
            yield _collapsed_contribution(picture, n, waiting[wire.source] == 0)


def _collapsed_sort(
    picture: Picture, order: Sequence[int], into: Sequence[Sequence[int]]
) -> Iterator[Frame]:
    place = {number: k for k, number in enumerate(order)}
    nodes = [
        Node(
            place[number],
            picture.boxes[number].title,
            "operation",
            0.0,
            0.0,
            "",
            tuple(place[picture.wires[n].source] for n in into[number]),
            (),
            (),
            None,
            "",
        )
        for number in order
    ]
    explanation = Explanation(tuple(nodes), ())
    wires = {(place[number], k): n for number in order for k, n in enumerate(into[number])}
    for step in (explanation.sort_step(*pop) for pop in enumerate(pops(nodes))):
        frame = _sort(step, nodes, wires)
        yield replace(
            frame,
            box=order[frame.box],
            about=tuple(order[k] for k in frame.about),
            pushed=tuple((order[k], index) for k, index in frame.pushed),
        )


def _collapsed_contribution(picture: Picture, n: int, is_last: bool) -> Frame:
    wire = picture.wires[n]
    source, target = picture.boxes[wire.source], picture.boxes[wire.target]
    count = f"{wire.edges:,} contributions" if wire.edges > 1 else "one contribution"
    lines = [f"from {target.title}: {count}, one for each edge"]
    if is_last:
        lines.append(f"all have come in: grad {source.grad}")
    return Frame(
        BACKWARD,
        wire.target,
        f"{source.title}: grad += …",
        tuple(lines),
        "",
        (n,),
        (wire.target, wire.source),
        child=wire.source,
        amount="…",
        total=source.grad if is_last else "…",
    )


def _inputs_first(children: Sequence[Iterable[int]]) -> list[int]:
    """The order in which a depth-first search from the last box finishes."""
    order: list[int] = []
    seen: set[int] = set()
    stack = [(len(children) - 1, iter(children[-1]))]
    seen.add(len(children) - 1)
    while stack:
        number, rest = stack[-1]
        for child in rest:
            if child not in seen:
                seen.add(child)
                stack.append((child, iter(children[child])))
                break
        else:
            order.append(number)
            stack.pop()
    return order
