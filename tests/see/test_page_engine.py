"""The page's engine: generated from the op table, and the same numbers and words as Python's."""

import math
import random
import struct

import pytest
from live_page import EXACT_TEXT, engine_source, films, in_node

from chainrule import Value, explain, explore, lessons, nonfinite
from chainrule.core import ops
from chainrule.see.lessons.comparing import _paths
from chainrule.see.lessons.mistakes import MISTAKES
from chainrule.see.names import compact, quoted, short
from chainrule.see.page.data import graph_data
from chainrule.see.page.javascript import write_row, write_rules
from chainrule.see.page.stories import SWITCHES, stories

#: rows whose bits IEEE 754 fixes: no function of the C library in them, but for sqrt
EXACT = ["add", "mul", "sqrt", "abs", "relu", "leaky_relu", "maximum", "minimum", "clip", "where"]
EXACT += ["floor", "ceil", "trunc", "round", "sign", "mod", "floor_divide", "safe_sqrt", "ramp"]
GAMMA = ["lgamma", "digamma", "polygamma"]  # which have zeros, and the page its own lgamma
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 0.5, -2.5, 0.1, 1e-3, 7.0, -0.7]


def random_program(rng, rows, size):
    """What to compute, as data: the rows, which earlier values they take, and their parameters."""
    inputs = rng.randint(1, 4)
    steps = []
    for k in range(size):
        op = rng.choice(rows)
        taken = [rng.randrange(inputs + k) for _ in range(op.arity)]
        if rng.random() < 0.7:
            taken[0] = inputs + k - 1  # mostly a chain, so that few values are unused
        parameters = {
            "pow": lambda: (rng.choice([2.0, 3.0, -1.0, 0.5, 0.0, 1.0, 2.5, -2.0]),),
            "leaky_relu": lambda: (rng.choice([0.01, 0.25]),),
            "clip": lambda: (-1.5, 1.5),
            "where": lambda: (rng.choice([0.0, 1.0]),),
            "polygamma": lambda: (rng.choice([1.0, 2.0]),),
        }.get(op.name, lambda: ())()
        steps.append((op, taken, parameters))
    return inputs, steps


def build(program, xs):
    inputs, steps = program
    values = [Value(x, label=f"x{i}") for i, x in enumerate(xs)]
    for k, (op, taken, parameters) in enumerate(steps):
        y = Value._apply_op(op, tuple(values[i] for i in taken), parameters)
        if k % 3 == 0:
            y.label = f"y{k}"
        values.append(y)
    total = values[-1]
    for i in range(inputs):
        total = total + values[i] * 0.5
    return total


def random_graphs(count, rows, seed):
    rng = random.Random(seed)
    for _ in range(count):
        program = random_program(rng, rows, rng.randint(1, 9))
        points = [
            [
                rng.choice(NUMBERS) if rng.random() < 0.3 else rng.gauss(0, 2)
                for _ in range(program[0])
            ]
            for _ in range(2)
        ]
        yield program, points


def graph_only(v):
    """What the page is given, without the places of a drawing."""
    return {"graph": graph_data(explain(v))[1]}


def bits(x):
    return "nan" if x != x else struct.pack("<d", x)


ALL_NUMBERS = """
  const graph = makeGraph(job.data.graph);
  const moved = new Map((job.moved || []).map(([i, x]) => [i, Number(x)]));
  const { data, slope, grad, amount, total } = computeAll(graph, moved);
  return { data: exactText(data), slope: exactText(slope), grad: exactText(grad) };
"""


def expected(v):
    nodes = explain(v).nodes
    return {
        "data": [n.data for n in nodes],
        "slope": [x for n in nodes for x in n.local_grads],
        "grad": [n.grad for n in nodes],
    }


def test_every_row_of_the_table_is_live():
    _, written = write_rules(list(ops.TABLE.values()))
    assert {op.name for op in written} >= set(ops.TABLE)
    exact = [name for name in ops.TABLE if write_row(ops.TABLE[name]).exact_forward]
    assert sorted(exact) == sorted(EXACT)


def test_the_page_opens_with_the_engines_numbers_to_the_last_bit():
    rows = list(ops.TABLE.values())
    with nonfinite("allow"):
        graphs = [build(p, points[0]) for p, points in random_graphs(2000, rows, seed=1)]
    jobs = [{"data": graph_only(v)} for v in graphs]
    for v, got in zip(graphs, in_node(jobs, ALL_NUMBERS), strict=True):
        for kind, numbers in expected(v).items():
            assert [bits(float(x)) for x in got[kind]] == [bits(x) for x in numbers], kind


def moved_graphs(rows, seed):
    """Graphs, each with a second point; and what the page makes of the first one moved there."""
    cases = []
    with nonfinite("allow"):
        for program, (first, second) in random_graphs(1500, rows, seed):
            v, w = build(program, first), build(program, second)
            names = [n.name for n in explain(v).nodes]
            moved = [(names.index(f"x{i}"), repr(x)) for i, x in enumerate(second)]
            cases.append((w, {"data": graph_only(v), "moved": moved}))
    return zip((w for w, _ in cases), in_node([job for _, job in cases], ALL_NUMBERS), strict=True)


def test_moved_inputs_give_the_engines_numbers_to_the_last_bit_where_ieee_fixes_them():
    for w, got in moved_graphs([ops.TABLE[name] for name in EXACT], seed=2):
        for kind, numbers in expected(w).items():
            assert [bits(float(x)) for x in got[kind]] == [bits(x) for x in numbers], kind


def test_with_moved_inputs_each_node_is_its_row_and_the_gradients_are_the_sweeps():
    """Of every row: JavaScript leaves the last digits of exp, tanh and the like open, and a choice
    further on may magnify them. So each node is compared with the row of its own operands."""
    for w, got in moved_graphs(list(ops.TABLE.values()), seed=3):
        data, slopes = (list(map(float, got[kind])) for kind in ("data", "slope"))
        rest = iter(slopes)
        totals = [0.0] * (len(data) - 1) + [1.0]
        taken = []
        for node in explain(w).nodes:
            taken.append([next(rest) for _ in node.children])
            if node.children:
                xs = [data[i] for i in node.children]
                y = data[node.index]
                assert near(y, node.rule(*xs, *node.parameters), 1e-15)
                for a, b in zip(
                    taken[-1], node.rule.local_grads(y, xs, node.parameters), strict=True
                ):
                    assert near(a, float(b), 1e-15), (node.op, xs, y)
        for node in reversed(explain(w).nodes):
            total = totals[node.index]
            for child, slope in zip(node.children, taken[node.index], strict=True):
                if total and slope:
                    totals[child] += slope * total
        assert [bits(float(x)) for x in got["grad"]] == [bits(x) for x in totals]


def near(a, b, least=1e-300):
    """A few units in the last place; ``least`` where terms cancel."""
    return bits(a) == bits(b) or a == b or abs(a - b) <= 2e-14 * abs(b) + least


@pytest.mark.parametrize("name", list(ops.TABLE))
def test_a_rows_value_and_derivatives_in_the_page(name):
    """Each row by itself, over the reals that its domain allows."""
    op = ops.TABLE[name]
    rng = random.Random(name)
    parameters = op.complete(()) if len(op.defaults) == len(op.parameters) else None
    points = []
    for _ in range(300):
        xs = [
            rng.choice([rng.gauss(0, 1), rng.uniform(-6, 6), rng.choice(NUMBERS)])
            for _ in range(op.arity)
        ]
        ps = (
            parameters if parameters is not None else (rng.choice([2.0, 3.0, -1.0, 0.5, 1.0, 0.0]),)
        )
        points.append((xs, ps, op(*xs, *ps)))
    body = """
      const rule = RULES[job.name];
      const all = [...job.xs.map(Number), ...job.ps.map(Number)];
      const y = Number(job.y);
      const slopes = rule.partials.map((partial) => partial(NUMBERS, y, ...all));
      return exactText([rule.forward(NUMBERS, ...all), ...slopes]);
    """
    jobs = [
        {"name": name, "xs": list(map(repr_js, xs)), "ps": list(map(repr_js, ps)), "y": repr_js(y)}
        for xs, ps, y in points
    ]
    for (xs, ps, y), got in zip(points, in_node(jobs, body), strict=True):
        wanted = [y, *op.local_grads(y, xs, ps)]
        for a, b in zip(map(float, got), map(float, wanted), strict=True):
            if name in EXACT:
                assert bits(a) == bits(b), (xs, a, b)
            else:
                assert near(a, b, 5e-15 if name in GAMMA else 1e-300), (xs, a, b)


def repr_js(x):
    return repr(float(x)).replace("inf", "Infinity").replace("nan", "NaN")


def test_the_film_says_what_the_explanation_says():
    rows = list(ops.TABLE.values())
    with nonfinite("allow"):
        graphs = [build(p, points[0]) for p, points in random_graphs(500, rows, seed=5)]
    for v, film in zip(graphs, films([explore(v) for v in graphs]), strict=True):
        explanation = explain(v)
        nodes = explanation.nodes
        frames = iter(film)
        for step in explanation.forward:
            frame = next(frames)
            if step.formula:
                assert " ".join([frame["headline"], *frame["lines"]]) == step.words
            else:
                assert frame["headline"] == step.words
        for step in explanation.sort:
            frame = next(frames)
            assert tuple(frame["lines"]) == step.words
        next(frames)  # the seed
        for step in explanation.backward:
            if not step.contributions:
                assert next(frames)["lines"] == [step.words]
            for added in step.contributions:
                frame = next(frames)
                assert bits(float(frame["total"])) == bits(added.total)
                assert f"{quoted(nodes[added.child].name)}.grad" in frame["headline"]
                reason = frame["lines"][1]
                if added.formula and added.formula != compact(added.local_grad):
                    assert f" = {added.formula} = {short(added.local_grad)}" in reason
                assert reason.endswith(f", because {added.because}") or not added.because
        assert next(frames, None) is None


def test_numbers_are_written_as_in_python():
    rng = random.Random(0)
    numbers = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e16, 1e15, 123456.0, 1e-5, 1e-4, -1234.25]
    numbers += [
        1234.35,
        5e-324,
        1.7976931348623157e308,
        99999.5,
        100000.5,
        0.1 + 0.2,
        12344.5,
        -99999.5,
    ]
    numbers += [rng.gauss(0, 1) * 10 ** rng.randint(-20, 20) for _ in range(3000)]
    numbers += [float(rng.randint(-(10**7), 10**7)) / rng.choice([1, 2, 4, 8]) for _ in range(3000)]
    numbers += [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(2000)]
    jobs = [repr_js(x) for x in numbers]
    got = in_node(jobs, "const x = Number(job); return [repr(x), short(x), compact(x)];")
    assert got == [[repr(x), short(x), compact(x)] for x in numbers]


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_broken_engine_in_the_page_is_that_of_the_lessons(name):
    rng = random.Random(name)
    graphs = []
    while len(graphs) < 150:
        v = build(random_program(rng, [ops.add, ops.mul], rng.randint(1, 8)), [1.5, -2.0, 3.0, 0.5])
        if _paths(explain(v)) < 5000:
            graphs.append(v)
    body = f"""
      const graph = makeGraph(job.graph);
      return exactText(brokenGradients(graph, computeAll(graph).slope, "{name}"));
    """
    jobs = [graph_only(v) for v in graphs]
    shown = 0
    for v, got in zip(graphs, in_node(jobs, body), strict=True):
        nodes = {n.name: n.index for n in explain(v).nodes}
        (lesson,) = [one for one in lessons.compare(v).lessons if one.mistake.name == name]
        for case in lesson.cases:
            assert float(got[nodes[case.name]]) == case.got
            shown += case.wrong
    assert shown, "the mistake shows on some of these graphs"


def test_the_other_broken_engines():
    a, b = Value(2.0, label="a"), Value(3.0, label="b")
    v = a * b + a
    with nonfinite("allow"):
        x = Value(0.0, label="x")
        w = x.sqrt() * 0.0 + x
    body = """
      const graph = makeGraph(job.graph);
      const { slope } = computeAll(graph);
      return Object.fromEntries(["no_seed", "not_reversed", "zero_times_inf", "right"].map(
        (name) => [name, exactText(brokenGradients(graph, slope, name)).map(Number)]));
    """
    first, second = in_node([graph_only(v), graph_only(w)], body)
    assert first["right"] == [4.0, 2.0, 1.0, 1.0]
    assert first["no_seed"] == [0.0] * 4
    assert first["not_reversed"] == [1.0, 0.0, 1.0, 1.0]
    assert first["zero_times_inf"] == first["right"]
    i = explain(w).index_of(x)
    assert (second["right"][i], second["zero_times_inf"][i]) == (1.0, None)  # nan is null in JSON


def test_all_thirteen_mistakes_have_a_switch_and_a_story():
    assert {story["name"] for story in stories()} == SWITCHES
    assert set(MISTAKES) <= SWITCHES
    assert all("# wrong" in story["code"] for story in stories())


def test_paths_are_those_of_the_explanation():
    rng = random.Random(4)
    program = [ops.add, ops.mul, ops.TABLE["tanh"]]
    graphs = [build(random_program(rng, program, 6), [0.3, -1.2, 0.8, 2.0]) for _ in range(100)]
    body = """
      const graph = makeGraph(job.graph);
      const { slope } = computeAll(graph);
      const { count, listed } = findPaths(graph, slope, 0, 1000);
      return [count, listed.map(({ edges, product }) =>
        [repr(product), [graph.root, ...edges.map((e) => graph.child[e])]])];
    """
    for v, (count, listed) in zip(
        graphs, in_node([graph_only(v) for v in graphs], body), strict=True
    ):
        explanation = explain(v)
        paths = explanation.paths(explanation.nodes[0].name, limit=1000)
        assert count == paths.count == len(listed)
        wanted = sorted((path.nodes, path.product) for path in paths.listed)
        assert sorted((tuple(nodes), float(p)) for p, nodes in listed) == wanted
        sizes = [abs(float(p)) for p, _ in listed]
        assert sizes == sorted(sizes, reverse=True)


def test_what_the_page_cannot_compute_is_not_moved():
    x, y = Value(2.0, label="x"), Value(5.0, label="y")
    mine = Value(8.0, (x,), (12.0,), op="cube")
    set_by_hand = y * y
    v = mine + set_by_hand + y
    set_by_hand.data = 30.0
    body = """
      const graph = makeGraph(job.graph);
      const names = Object.fromEntries(graph.names.map((name, i) => [name, graph.frozen[i]]));
      const moved = computeAll(graph, new Map([[graph.names.indexOf("x"), 3]]));
      return [names.x, names.y, repr(moved.data[graph.root])];
    """
    ((x_reason, y_reason, result),) = in_node([graph_only(v)], body)
    assert x_reason == "the page does not know how cube is computed"
    assert y_reason.endswith("was set by hand after it was computed")
    assert result == "nan"  # rather than a wrong number


def test_a_slope_of_an_earlier_time_is_shown_as_the_engine_has_it():
    x, z = Value(0.0, label="x"), Value(1.0, label="z")
    y = x * z
    z.data = 2.0  # y.data is still right, ∂y/∂x is what it was when y was made
    ((x_grad, reason),) = in_node(
        [graph_only(y)],
        """const graph = makeGraph(job.graph);
        return [repr(computeAll(graph).grad[0]), graph.frozen[0]];""",
    )
    assert (float(x_grad), y.local_grads[0]) == (1.0, 1.0)
    assert "was set by hand" in reason


def test_the_browser_computes_the_engines_numbers(browser):
    """The same scripts in chromium: every row as the page opens, the exact ones moved."""
    jobs, graphs = [], []
    with nonfinite("allow"):
        for program, (first, _) in random_graphs(300, list(ops.TABLE.values()), seed=8):
            graphs.append(build(program, first))
            jobs.append({"data": graph_only(graphs[-1])})
        for program, (first, second) in random_graphs(300, [ops.TABLE[n] for n in EXACT], seed=9):
            v = build(program, first)
            names = [n.name for n in explain(v).nodes]
            moved = [(names.index(f"x{i}"), repr(x)) for i, x in enumerate(second)]
            graphs.append(build(program, second))
            jobs.append({"data": graph_only(v), "moved": moved})
    page = browser.new_page()
    page.add_script_tag(content=engine_source())
    work = f"const exactText = {EXACT_TEXT}; return jobs.map((job) => {{ {ALL_NUMBERS} }});"
    results = page.evaluate(f"(jobs) => {{ {work} }}", jobs)
    page.close()
    for v, got in zip(graphs, results, strict=True):
        for kind, numbers in expected(v).items():
            assert [bits(float(x)) for x in got[kind]] == [bits(x) for x in numbers], kind
