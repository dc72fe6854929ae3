"""Groups of a large graph, narrow addresses, and a graph without its recording."""

import math

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import exp, log
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.lift import graph as graph_module
from chainrule.compiler.lift import grouping, program
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.program import address_type
from chainrule.compiler.runtime.results import lifted_of, wanted_of


def mixture(params, points):
    total = 0
    for point in points:
        terms = [
            w - sum((m - x) * (m - x) for m, x in zip(row, point, strict=True)) * 0.5
            for w, row in zip(params["w"], params["m"], strict=True)
        ]
        top = max(v.data for v in terms)
        total = total + log(sum(exp(v - top) for v in terms)) + top
    return total * (1.0 / len(points))


def selected(params, tokens):
    rows = [params["e"][t] for t in tokens]
    scores = [[sum(a * b for a, b in zip(r, w, strict=True)) for w in params["e"]] for r in rows]
    return sum(log(sum(map(exp, s))) - s[t] for s, t in zip(scores, tokens[1:], strict=False))


def triangular(params, xs):
    total = 0.0
    for k in range(len(xs)):
        total = total + exp(sum(params[j] * xs[j] for j in range(k + 1))) * params[k]
    return total


RNG = np.random.default_rng(0)
CALLS = [
    (mixture, ({"w": RNG.normal(size=3), "m": RNG.normal(size=(3, 2))}, RNG.normal(size=(9, 2)))),
    (selected, ({"e": RNG.normal(size=(5, 3))}, [4, 0, 2, 1, 3, 3])),
    (triangular, (RNG.normal(size=8), RNG.normal(size=8).tolist())),
]


def recorded(function, arguments):
    call = flatten_call(arguments, {}, differentiate=True)
    made = trace(function, survey(function), call)
    recording = lifted_of(made.recording, call, made.captured)
    return RecordedCall.of(call, recording, wanted_of(recording).position)


def columns_of(made):
    """All that a program is, without the widths of its integers."""
    found = [made.address.tolist(), made.constants.tolist(), made.private.tolist(), made.size]
    for i in made.instructions:
        rows = [[t.owners.tolist(), *[c.tolist() for c in t.columns], t.each] for t in i.sums]
        reads = [c.tolist() for c in i.reads]
        found.append([i.key, i.kind, i.start, i.count, i.rule, i.parameters, reads, rows])
    return found


@pytest.mark.parametrize("in_python", [False, True])
@pytest.mark.parametrize(("function", "arguments"), CALLS)
def test_parts_of_a_large_graph_have_the_groups_of_the_whole(
    monkeypatch, function, arguments, in_python
):
    graph = recorded(function, arguments).graph
    whole = grouping.grouped(graph)
    if in_python:
        monkeypatch.setattr(grouping, "kernels", None)
    for part in (1, 7, 1000):
        monkeypatch.setattr(grouping, "PART", part)
        assert grouping.group_count(graph) == len(whole)
        for a, b in zip(whole, grouping.grouped(graph), strict=True):
            assert (a.key, a.stage) == (b.key, b.stage)
            assert a.nodes.tolist() == b.nodes.tolist()


def test_a_large_graph_with_too_many_shapes_says_how_many(monkeypatch):
    graph = recorded(triangular, CALLS[2][1]).graph
    words = []
    for part in (1 << 18, 3):
        monkeypatch.setattr(grouping, "PART", part)
        with pytest.raises(NotLiftable) as reason:
            grouping.grouped(graph, limit=2)
        words.append(str(reason.value))
    assert words[0] == words[1]
    assert "shapes among" in words[0]


@pytest.mark.parametrize(("function", "arguments"), CALLS)
def test_wide_addresses_are_the_narrow_ones(monkeypatch, function, arguments):
    assert address_type(program.NARROW) is np.int64
    found = []
    for narrow in (program.NARROW, 0):
        monkeypatch.setattr(program, "NARROW", narrow)
        made = recorded(function, arguments).program()
        made.verify()
        fast = chainrule.compile(function, lift=True, on_fallback="raise")
        value, gradient = fast.value_and_grad(*arguments)
        leaves = gradient.values() if isinstance(gradient, dict) else [gradient]
        code = View(fast).latest.machine
        terms = [t for i in code.lifted.instructions for t in i.sums]
        kinds = {c.dtype for t in terms for c in (t.owners, *t.columns)}
        assert kinds <= ({np.dtype(np.int64)} if narrow == 0 else {np.dtype(np.int32)})
        found.append((columns_of(made), value, [x.tolist() for x in leaves]))
    assert found[0] == found[1]


@pytest.mark.parametrize(("function", "arguments"), CALLS)
def test_a_graph_without_its_recording_makes_the_same_program(monkeypatch, function, arguments):
    call = recorded(function, arguments)
    wanted = columns_of(call.program())
    graph = call.graph
    monkeypatch.setattr(graph_module, "FEW", 0.0)
    less = graph.without_recording()
    assert less.rows is not None
    less.verify()
    assert str(less) == str(graph)
    assert less.without_recording() is less
    call.__dict__["graph"] = less
    assert columns_of(call.program()) == wanted


def test_a_graph_that_keeps_no_zeros_has_the_same_constants():
    numbers = [0.0, 2.5, -0.0, math.nan, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    pairs = zip(numbers, numbers[::-1], strict=True)
    choices = [np.arange(len(numbers), dtype=np.int32), np.array([3, 0, 3, 11]), np.array([], int)]
    for rows in ([[x] for x in numbers], [[x, y] for x, y in pairs]):
        given = graph_module.Given(
            np.zeros(len(rows), np.int32), np.zeros(len(rows), np.bool_), np.array(rows)
        )
        less = given.without_zeros()
        assert less.places is not None
        assert less.without_zeros() is less
        for some in choices:
            wanted, found = (x.constants_of(some) for x in (given, less))
            assert found.tobytes() == wanted.tobytes()
        assert less.constants_of(np.int32(1)).tolist() == given.constants_of(1).tolist()


def test_a_graph_keeps_all_constants_where_most_are_some():
    given = graph_module.Given(np.zeros(3, np.int32), np.zeros(3, np.bool_), np.ones((3, 1)))
    assert given.without_zeros() is given
