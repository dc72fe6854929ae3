"""The traps about whole passes: inner outputs, many paths, several passes, long chains.

They come after the small graphs of ``traps``. What the texts' own engines do as well, such as
counting inner gradients again in a second pass, is a note and not a mistake.
"""

from __future__ import annotations

from chainrule.see.lessons.dialects import Engine
from chainrule.see.lessons.graphs import graph
from chainrule.see.lessons.traps import Finding, Row, close, diagnosed, trap, with_graph

_DEEP = 3000  # nodes in a row
_DOUBLINGS = 40


@trap(6)
def inner_output(engine: Engine) -> Finding:
    """backward() from a node inside a larger graph."""
    if not engine.has_backward:
        return Finding("inner_output", "missing", "backward()", right="def backward(self): ...")
    g = graph("c = a * b", a=2.0, b=3.0)
    a, b = engine.number(2.0), engine.number(3.0)
    c = engine.apply("mul", a, b)
    engine.apply("add", c, a)  # uses c and a, and is no part of c's graph
    engine.backward(c)
    got = {"a": engine.grad(a), "b": engine.grad(b)}
    if all(close(g.truth.grads[name], x) for name, x in got.items()):
        return Finding("inner_output", "right")
    rows = tuple(Row(name, g.truth.data[name], g.truth.grads[name], x) for name, x in got.items())
    why = "The walk begins at the node whose backward() was called, and goes to what it depends on."
    finding = Finding(
        "inner_output", "wrong", "a pass belongs to its output", why, "build_topo(self)"
    )
    return with_graph(finding, g, rows)


@trap(6)
def doubling(engine: Engine) -> Finding:
    """A graph with more paths than anybody could follow."""
    if not engine.has_backward:
        return Finding("doubling", "missing", "backward()", right="def backward(self): ...")
    if engine.diagnosis is not None:  # wrong on small graphs already; this one may take for ever
        return diagnosed("doubling", engine.diagnosis)
    a = v = engine.number(1.0)
    for _ in range(_DOUBLINGS):
        v = engine.apply("add", v, v)
    engine.backward(v)
    if close(2.0**_DOUBLINGS, engine.grad(a)):
        return Finding("doubling", "right")
    rows = (Row("a", 1.0, 2.0**_DOUBLINGS, engine.grad(a)),)
    idea = "each node propagates once, with its whole gradient"
    return Finding("doubling", "wrong", idea, f"x = x + x, {_DOUBLINGS} times.", rows=rows)


@trap(6)
def accumulates(engine: Engine) -> Finding:
    """Two losses on the same inputs add up."""
    if not engine.has_backward:
        return Finding("accumulates", "missing", "backward()", right="def backward(self): ...")
    a = engine.number(3.0)
    for _loss in range(2):
        engine.backward(engine.apply("mul", a, engine.number(2.0)))
    if close(4.0, engine.grad(a)):
        return Finding("accumulates", "right")
    rows = (Row("a", 3.0, 4.0, engine.grad(a)),)
    why = (
        "The gradients of two losses should add up, so that a batch can be one sample after the "
        "other. Setting them to zero is the training loop's job, not backward()'s."
    )
    finding = Finding("accumulates", "advice", "gradients that add up over passes", why)
    return with_graph(finding, graph("b = a * 2.0", a=3.0), rows)


@trap(6)
def second_pass(engine: Engine) -> Finding:
    """backward() twice on one graph doubles the gradients."""
    if not engine.has_backward:
        return Finding("second_pass", "missing", "backward()", right="def backward(self): ...")
    g = graph("b = a + a; c = a + b", a=2.0)
    nodes = g.build(engine.number, engine.apply)
    for _call in range(2):
        engine.backward(nodes["c"])
    if close(6.0, engine.grad(nodes["a"])):
        return Finding("second_pass", "right")
    rows = (Row("a", 2.0, 6.0, engine.grad(nodes["a"])),)
    why = (
        "The nodes between keep the first pass's gradient and pass it on again. The texts' own "
        "engines do this too: build a new graph for each pass, or set these gradients to 0."
    )
    finding = Finding("second_pass", "advice", "interior gradients start at 0", why)
    return with_graph(finding, g, rows)


@trap(6)
def deep_chain(engine: Engine) -> Finding:
    """A chain of 3,000 nodes."""
    if not engine.has_backward:
        return Finding("deep_chain", "missing", "backward()", right="def backward(self): ...")
    a = engine.number(1.0)
    v = engine.apply("add", a, a)
    for _ in range(_DEEP):
        v = engine.apply("add", v, a)
    try:
        engine.backward(v)
    except RecursionError:
        why = (
            "build_topo calls itself once per node in a row, and Python allows about a thousand. "
            "The C# chapter's stack of pairs has no such limit."
        )
        return Finding("deep_chain", "advice", "a sort with a stack instead of recursion", why)
    if close(_DEEP + 2.0, engine.grad(a)):
        return Finding("deep_chain", "right")
    rows = (Row("a", 1.0, _DEEP + 2.0, engine.grad(a)),)
    return Finding("deep_chain", "wrong", "the same work at any depth", rows=rows)
