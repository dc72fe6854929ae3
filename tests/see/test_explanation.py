"""`explain`: the seeds' tables row for row, steps that replay to the engine's gradients, text."""

import html.parser
import math
import re
import sys

import numpy as np
import pytest
from big_graphs import gpt_model, mlp_output
from hypothesis import given
from hypothesis import strategies as st
from number_systems import chainrule_functions
from programs import ALL_OPS, SEED_OPS, programs, run
from rich.cells import cell_len
from temporary_rows import temporary_row

import chainrule
from chainrule import Value, nn, nonfinite, topological_order
from chainrule.core import ops
from chainrule.see import words
from chainrule.see.explanation import BackwardStep, ForwardStep, SortStep, explain
from chainrule.see.explanation.corners import input_sides
from chainrule.see.explanation.corners import meaning as meaning_of
from chainrule.see.explanation.text import sections
from chainrule.see.names import compact, name_nodes, short
from chainrule.see.tables import as_text


def shared_leaf():
    """The C# chapter's exercise."""
    a, b = Value(2.0, label="a"), Value(3.0, label="b")
    c = a * b
    c.label = "c"
    loss = c + a
    loss.label = "L"
    return a, b, c, loss


def relu_walkthrough():
    a, b, d = (Value(x, label=n) for n, x in (("a", 2.0), ("b", -3.0), ("d", 10.0)))
    c = a * b
    c.label = "c"
    e = c + d
    e.label = "e"
    f = e.relu()
    f.label = "f"
    return a, b, d, c, e, f


# --- the seeds' tables --------------------------------------------------------------------------

# Step, pop, what happens, stack after, sorted nodes: the C# chapter's first table.
SORT_ROWS = [
    (0, None, "push (L,0)", "[(L,0)]", "[]"),
    (1, ("L", 0), "c is new, push (c,0) to explore it", "[(L,1), (c,0)]", "[]"),
    (2, ("c", 0), "a is new, push (a,0) to explore it", "[(L,1), (c,1), (a,0)]", "[]"),
    (3, ("a", 0), "add a to sorted nodes", "[(L,1), (c,1)]", "[a]"),
    (4, ("c", 1), "b is new, push (b,0) to explore it", "[(L,1), (c,2), (b,0)]", "[a]"),
    (5, ("b", 0), "add b to sorted nodes", "[(L,1), (c,2)]", "[a, b]"),
    (6, ("c", 2), "add c to sorted nodes", "[(L,1)]", "[a, b, c]"),
    (7, ("L", 1), "a already visited, skip", "[(L,2)]", "[a, b, c]"),
    (8, ("L", 2), "add L to sorted nodes", "[]", "[a, b, c, L]"),
]
# Step, i, node, grad, contributions (child, local gradient, amount, total): the second table.
BACKWARD_ROWS = [
    (1, 3, "L", 1.0, [("c", 1.0, 1.0, 1.0), ("a", 1.0, 1.0, 1.0)]),
    (2, 2, "c", 1.0, [("a", 3.0, 3.0, 4.0), ("b", 2.0, 2.0, 2.0)]),
    (3, 1, "b", 2.0, []),
    (4, 0, "a", 4.0, []),
]


def test_the_sort_has_the_rows_of_the_first_table():
    *_, loss = shared_leaf()
    explanation = explain(loss)
    name = [node.name for node in explanation.nodes]
    rows = [
        (
            step.step,
            step.popped and (name[step.popped[0]], step.popped[1]),
            f"[{', '.join(f'({name[node]},{i})' for node, i in step.stack)}]",
            f"[{', '.join(name[i] for i in step.sorted_nodes)}]",
        )
        for step in explanation.sort
    ]
    assert rows == [(step, pop, stack, done) for step, pop, _, stack, done in SORT_ROWS]
    for step, (_, _, happens, _, _) in zip(explanation.sort, SORT_ROWS, strict=True):
        assert step.words[-1].endswith(happens)
    actions = [step.action for step in explanation.sort]
    assert actions == "start explore explore done explore done done skip done".split()


def test_the_propagation_has_the_rows_of_the_second_table():
    *_, loss = shared_leaf()
    explanation = explain(loss)
    name = [node.name for node in explanation.nodes]
    rows = [
        (
            step.step,
            step.node,
            name[step.node],
            step.grad,
            [(name[c.child], c.local_grad, c.amount, c.total) for c in step.contributions],
        )
        for step in explanation.backward
    ]
    assert rows == BACKWARD_ROWS


def wide(explanation):
    return as_text(*sections(explanation, width=160), width=160)


def test_the_printed_tables_hold_the_two_tables_row_for_row():
    *_, loss = shared_leaf()
    lines = wide(explain(loss)).splitlines()
    place = next(i for i, line in enumerate(lines) if "Stage 1" in line)
    for step, pop, happens, stack, done in SORT_ROWS:
        shown = "(start)" if pop is None else f"({pop[0]}, {pop[1]})"
        start = f"{step or '':<4}  {shown}"
        place = next(i for i in range(place, len(lines)) if lines[i].startswith(start))
        assert re.search(rf"{re.escape(stack)}\s+{re.escape(done)}$", lines[place])
        assert happens in "\n".join(lines[place : place + 3])
    place = next(i for i, line in enumerate(lines) if "Stage 2" in line)
    for step, i, node, grad, contributions in BACKWARD_ROWS:
        row = re.compile(rf"{step} +{i} +{node} +{re.escape(str(grad))} ")
        place = next(j for j in range(place, len(lines)) if row.match(lines[j]))
        for offset, (child, local, amount, total) in enumerate(contributions):
            line = lines[place + offset]
            assert f"{child}.grad += {local} × {grad} = {amount}" in line
            assert (f"now {total}" in line) == (total != amount)
        if not contributions:
            assert "leaf, skip" in lines[place]


def test_the_text_at_eighty_columns_is_this():
    *_, loss = shared_leaf()
    text = str(explain(loss))
    assert "  c = a * b = 2 × 3 = 6\n  L = c + a = 6 + 2 = 8\n" in text
    assert (
        """\
Step  Pop      What happens                         Stack after     Sorted nodes
───── ──────── ──────────────────────────────────── ─────────────── ────────────
      (start)  push (L,0)                           [(L,0)]         []
1     (L, 0)   L has inputs, index 0 < 2:           [(L,1), (c,0)]  []
                push (L,1) to come back later
                c is new, push (c,0) to explore it
2     (c, 0)   c has inputs, index 0 < 2:           [(L,1), (c,1),  []
                push (c,1) to come back later       (a,0)]
                a is new, push (a,0) to explore it
"""
        in text
    )
    assert text.endswith(
        """\
Step  i  Node  .grad  Local gradient   What happens
───── ── ───── ────── ──────────────── ──────────────────────────────────
1     3  L     1.0    ∂L/∂c = 1.0      c.grad += 1.0 × 1.0 = 1.0
                      ∂L/∂a = 1.0      a.grad += 1.0 × 1.0 = 1.0
2     2  c     1.0    ∂c/∂a = b = 3.0  a.grad += 3.0 × 1.0 = 3.0, now 4.0
                      ∂c/∂b = a = 2.0  b.grad += 2.0 × 1.0 = 2.0
3     1  b     2.0                     leaf, skip
4     0  a     4.0                     leaf, skip

Result

  a.grad = 4.0  if a grows by a little h, L grows by 4.0·h
      L → c → a  1.0 × 3.0 = 3.0
      L → a            1.0 = 1.0
                       sum = 4.0
  b.grad = 2.0  if b grows by a little h, L grows by 2.0·h
  c.grad = 1.0  if c grows by a little h, L grows by 1.0·h
  L.grad = 1.0  the seed: where the pass starts"""
    )


def test_a_narrow_terminal_squeezes_the_words_not_the_numbers():
    *_, loss = shared_leaf()
    lines = as_text(*sections(explain(loss), width=50), width=50).splitlines()
    assert max(map(cell_len, lines)) <= 50
    assert any(re.match(r"1 +3 +L +1\.0 ", line) for line in lines)
    assert any(re.match(r"Step +Pop +", line) for line in lines)


def test_the_relu_walkthrough_has_the_courses_four_steps():
    *_, f = relu_walkthrough()
    explanation = explain(f)
    name = [node.name for node in explanation.nodes]
    steps = [s for s in explanation.backward if s.contributions]
    assert [name[s.node] for s in steps] == ["f", "e", "c"]  # after the seed, which is f.grad = 1
    assert steps[0].grad == 1.0
    relu = steps[0].contributions[0]
    assert (relu.local_grad, relu.because) == (1.0, "e > 0")
    assert relu.words == "e.grad += 1.0 × 1.0 = 1.0"
    assert [c.words for c in steps[1].contributions] == [
        "c.grad += 1.0 × 1.0 = 1.0",
        "d.grad += 1.0 × 1.0 = 1.0",
    ]
    assert [(c.formula, c.words) for c in steps[2].contributions] == [
        ("b", "a.grad += -3.0 × 1.0 = -3.0"),
        ("a", "b.grad += 2.0 × 1.0 = 2.0"),
    ]
    assert {n.name: n.grad for n in explanation.nodes} == {
        "a": -3.0, "b": 2.0, "c": 1.0, "d": 1.0, "e": 1.0, "f": 1.0,
    }  # fmt: skip
    assert "if a grows by a little h, f shrinks by 3.0·h" in str(explanation)


# --- the steps are the pass ---------------------------------------------------------------------


def replay(steps):
    """Gradients by node, from the steps alone."""
    grads, done, stack = {}, [], []
    for step in steps:
        if isinstance(step, SortStep):
            assert step.popped is None or stack.pop() == step.popped
            stack.extend(step.pushed)
            done.extend([step.popped[0]] if step.action == "done" else [])
            assert (tuple(stack), tuple(done)) == (step.stack, step.sorted_nodes)
        elif isinstance(step, BackwardStep):
            grads.setdefault(step.node, 1.0 if step.node == done[-1] else 0.0)
            for c in step.contributions:
                grads[c.child] = grads.get(c.child, 0.0) + c.local_grad * grads[step.node]
    return grads


@given(st.sampled_from([SEED_OPS, ALL_OPS]).flatmap(programs))
def test_replaying_the_steps_gives_the_engines_gradients_bit_for_bit(program):
    leaves = [Value(x) for x in program.inputs]
    output = run(program, leaves, chainrule_functions())[-1]
    explanation = explain(output)
    order = topological_order(output)
    assert all(v.grad == 0.0 for v in order), "explaining changes no gradient"
    grads = replay(explanation.steps)
    output.backward()
    assert [grads[i].hex() for i in range(len(order))] == [v.grad.hex() for v in order]
    assert [n.grad.hex() for n in explanation.nodes] == [v.grad.hex() for v in order]
    assert explanation.values == tuple(order)


@given(st.sampled_from([SEED_OPS, ALL_OPS]).flatmap(programs))
def test_every_line_fits_eighty_columns_and_nothing_trails(program):
    text = str(explain(run(program, [Value(x) for x in program.inputs], chainrule_functions())[-1]))
    for line in text.splitlines():
        assert cell_len(line) <= 80
        assert line == line.rstrip()


@given(st.sampled_from([SEED_OPS, ALL_OPS]).flatmap(programs))
def test_paths_sum_to_the_gradient(program):
    leaves = [Value(x, label=f"x{i}") for i, x in enumerate(program.inputs)]
    output = run(program, leaves, chainrule_functions())[-1]
    explanation = explain(output)
    in_graph = set(topological_order(output))
    for leaf in leaves:
        if leaf in in_graph:
            paths = explanation.paths(leaf, limit=10_000)
            if paths.rest == 0:
                size = math.fsum(abs(p.product) for p in paths.listed)
                assert paths.total == pytest.approx(paths.gradient, rel=1e-12, abs=1e-12 * size)
                assert len({p.nodes + p.local_grads for p in paths.listed}) <= paths.count


def test_explaining_leaves_gradients_alone():
    a, b, c, loss = shared_leaf()
    for v, grad in zip((a, b, c, loss), (1.5, 2.5, 3.5, 4.5), strict=True):
        v.grad = grad
    str(explain(loss))
    assert [v.grad for v in (a, b, c, loss)] == [1.5, 2.5, 3.5, 4.5]


def test_steps_are_three_stages_in_order_and_frozen():
    *_, loss = shared_leaf()
    steps = explain(loss).steps
    kinds = [type(step) for step in steps]
    assert kinds == [ForwardStep] * 4 + [SortStep] * 9 + [BackwardStep] * 4
    with pytest.raises(AttributeError):
        steps[0].step = 5
    assert "popped=(3, 0)" in repr(steps[5])


def test_a_snapshot_does_not_change_with_the_graph():
    a, _, _, loss = shared_leaf()
    explanation = explain(loss)
    a.data = 100.0
    assert explanation.forward[2].words == "c = a * b = 2 × 3 = 6"
    assert "data has been set since" in explain(loss).forward[2].words


def test_a_zero_gradient_passes_nothing_on():
    x = Value(0.0, label="x")
    y = (x.sqrt() * 0.0).relu()
    explanation = explain(y)
    assert explanation.nodes[explanation.index_of(x)].grad == 0.0
    assert "grad is 0: nothing to pass on" in str(explanation)


def test_an_input_alone_can_be_explained():
    a = Value(2.0, label="a")
    explanation = explain(a)
    assert [n.grad for n in explanation.nodes] == [1.0]
    assert "a.grad = 1.0" in str(explanation)
    assert "the output itself" in str(explanation.paths(a))


def test_explain_takes_a_value_only():
    with pytest.raises(TypeError, match="explain takes a Value, not a float"):
        explain(2.0)


# --- names --------------------------------------------------------------------------------------


def test_unlabelled_nodes_take_the_callers_variable_names():
    a, b = Value(2.0), Value(3.0)
    c = a * b
    weights = [[Value(1.0), Value(5.0)]]
    table = {"bias": Value(7.0)}
    out = c + a + weights[0][1] + table["bias"]
    names = [node.name for node in explain(out).nodes]
    assert names == ["a", "b", "c", "v1", "weights[0][1]", "v2", "table['bias']", "out"]
    del out


def test_nodes_nobody_named_are_numbered_in_order_and_constants_are_their_number():
    nodes = explain(Value(2.0, label="x") * 3 + 0.5).nodes
    assert [(n.name, n.kind) for n in nodes] == [
        ("x", "input"),
        ("3.0", "constant"),
        ("v1", "operation"),
        ("0.5", "constant"),
        ("v2", "operation"),
    ]


def test_names_are_unique_whatever_the_labels_are():
    twins = [Value(1.0, label="a") for _ in range(3)]
    out = (twins[0] + twins[1]) * twins[2]
    out.label = "a#2"
    other = Value(1.0, label="v1")
    names = name_nodes(topological_order(out + other))
    assert len(set(names)) == len(names)
    assert names[:2] == ["a", "a#3"]


def test_a_label_with_odd_characters_stays_on_its_line():
    a = Value(2.0, label="two\nlines\x1b[31m and a very long tail of words")
    explanation = explain(a * a)
    name = explanation.nodes[0].name
    assert name.isprintable()
    assert len(name) <= 28
    assert "\x1b" not in str(explanation)
    assert explanation.index_of(a.label) == 0


def test_a_label_that_is_a_formula_is_bracketed():
    n = Value(2.0, label="x1*w1")
    y = n * 3 + n
    y.label = "y"
    text = wide(explain(y))
    assert "y = v1 + (x1*w1) = 6 + 2 = 8" in text
    assert "(x1*w1).grad += 1.0 × 1.0 = 1.0" in text


@pytest.mark.parametrize(
    ("x", "expected"),
    [(4.0, "4.0"), (-3.0, "-3.0"), (0.1, "0.1"), (1 / 3, "0.33333"), (2.0**60, "1.1529e+18"),
     (math.inf, "inf"), (math.nan, "nan"), (123456.0, "1.2346e+05"), (12345.678, "12346.0")],
)  # fmt: skip
def test_numbers_are_short(x, expected):
    assert short(x) == expected
    assert compact(x) == expected.removesuffix(".0")


# --- formulas from the op table -----------------------------------------------------------------

POINTS = {"acosh": (1.7,), "where": (2.0, 3.0), "hypot": (3.0, 4.0)}
PARAMETERS = {"pow": (3.0,), "leaky_relu": (0.25,), "clip": (-1.0, 1.0), "where": (1.0,)}
PARAMETERS["polygamma"] = (1.0,)


@pytest.mark.parametrize("op", ops.TABLE.values(), ids=lambda op: op.name)
def test_every_rows_derivative_in_words_is_the_derivative(op):
    """The text itself, evaluated as Python, is the local gradient."""
    operands = [Value(x) for x in POINTS.get(op.name, (0.6, 0.8))[: op.arity]]
    parameters = PARAMETERS.get(op.name, ())
    y = Value._apply_op(op, operands, parameters)
    for v, label in zip([*operands, y], [*["first", "second"][: op.arity], "y"], strict=True):
        v.label = label
    step = next(s for s in explain(y).backward if s.contributions)
    known = {row.name: row for row in ops.TABLE.values()} | {
        v.label: v.data for v in [*operands, y]
    }
    for c in step.contributions:
        assert c.formula, "every row of the table explains itself"
        assert eval(c.formula.replace("²", "**2"), dict(known)) == pytest.approx(
            c.local_grad, rel=1e-4
        )


def test_a_new_row_explains_itself():
    x = Value(2.0, label="x")
    with temporary_row(
        "cube", "x³", lambda x: x * x * x, lambda y, x: 3.0 * x * ops.where(x > 1, x, x)
    ) as cube:
        step = explain(Value._apply_op(cube, (x,), ())).backward[0]
    assert (step.contributions[0].formula, step.contributions[0].because) == ("3 * x * x", "x > 1")


@pytest.mark.parametrize(
    ("build", "formula", "because"),
    [
        (lambda x: x**2, "2 * x", ""),
        (lambda x: x**-1, "-x**-2", ""),
        (lambda x: x.tanh(), "1 - y²", ""),
        (lambda x: x.sigmoid(), "y * (1 - y)", ""),
        (lambda x: x.relu(), "1", "x > 0"),
        (lambda x: (x * -1).relu(), "0", "v1 ≤ 0"),
        (lambda x: abs(x - 3), "-1", "v1 < 0"),
        (lambda x: x.maximum(x), "0.5", "x = x"),
        (lambda x: x.clip(-1, 1), "0", "x ≥ -1 and x > 1"),
    ],
)
def test_derivatives_in_words(build, formula, because):
    y = build(Value(2.0, label="x"))
    y.label = "y"
    contribution = explain(y).backward[0].contributions[0]
    assert (contribution.formula, contribution.because) == (formula, because)


def test_a_nan_in_a_comparison_is_said():
    with nonfinite("allow"):
        y = Value(math.nan, label="x").relu()
    assert "not comparable" in explain(y).backward[0].contributions[0].because


def test_words_are_bracketed_where_python_needs_it():
    a, b = words.name_word("a", 2.0), words.name_word("b", 3.0)
    assert (a - (b - a)).text == "a - (b - a)"
    assert (a * (b + 1)).text == "a * (b + 1)"
    assert (a + b + 1.0).text == "a + b + 1"
    assert (a / (b * a)).text == "a / (b * a)"
    assert (-(a + b)).text == "-(a + b)"
    assert ((a + b) * -1.5).text == "(a + b) * (-1.5)"
    assert ops.pow(a + b, 2.0).text == "(a + b)**2"


def test_a_custom_operation_is_called_by_its_name():
    x = Value(3.0, label="x")
    y = Value(9.0, (x,), (6.0,), op="square", label="y")
    explanation = explain(y)
    assert explanation.forward[1].words == "y = square(x) = square(3) = 9"
    assert explanation.backward[0].contributions[0].formula == ""
    assert "∂y/∂x = 6.0" in str(explanation)


# --- paths --------------------------------------------------------------------------------------


def test_why_a_grad_is_four():
    a, *_, loss = shared_leaf()
    paths = explain(loss).paths(a)
    assert [(p.names, p.local_grads, p.product) for p in paths.listed] == [
        (("L", "c", "a"), (1.0, 3.0), 3.0),
        (("L", "a"), (1.0,), 1.0),
    ]
    assert (paths.count, paths.total, paths.gradient, paths.rest) == (2, 4.0, 4.0, 0)
    assert str(explain(loss).paths("a")) == str(paths)
    assert "why a.grad is 4.0: 2 paths lead from L to a" in str(paths)


def test_both_edges_of_a_plus_a_are_paths():
    a = Value(3.0, label="a")
    assert [p.product for p in explain(a + a).paths(a).listed] == [1.0, 1.0]


def test_exponentially_many_paths_are_counted_exactly_and_the_largest_listed():
    x = Value(0.5, label="x")
    y = x
    for _ in range(200):
        y = y + y * 0.5
    paths = explain(y).paths(x, limit=250)
    assert paths.count == 2**200
    assert len(paths.listed) == 250
    products = [p.product for p in paths.listed]
    assert products == [1.0] + [0.5] * 200 + [0.25] * 49
    assert paths.rest == 2**200 - 250
    assert "1.60·10^60 paths" in str(paths)
    assert all(cell_len(line) <= 80 for line in str(paths).splitlines())


@given(programs(SEED_OPS, inputs=1, instructions=5))
def test_the_listed_paths_are_the_largest(program):
    x = Value(program.inputs[0], label="x")
    output = run(program, [x], chainrule_functions())[-1]
    if x not in topological_order(output):
        return
    explanation = explain(output)
    everything = explanation.paths(x, limit=5_000)
    few = explanation.paths(x, limit=3)
    sizes = sorted((abs(p.product) for p in everything.listed), reverse=True)
    assert [abs(p.product) for p in few.listed] == pytest.approx(sizes[:3], rel=1e-9)


def test_a_node_outside_the_graph_has_no_paths():
    a, *_, loss = shared_leaf()
    with pytest.raises(ValueError, match="is not in the graph of L"):
        explain(loss).paths(Value(1.0))
    with pytest.raises(ValueError, match="'q' is not in the graph"):
        explain(loss).paths("q")
    assert explain(loss).paths("c").total == 1.0
    assert str(explain(a).paths(a)) == "a.grad is 1.0: it is the output itself"


# --- big graphs ---------------------------------------------------------------------------------


def chain(length):
    x = Value(0.5, label="x")
    y = x
    for _ in range(length):
        y = (y + 0.001).tanh()
    return x, y


def test_a_big_graph_is_summarised():
    _, y = chain(100)
    text = str(explain(y))
    assert len(text.splitlines()) < 110
    assert re.search(r"inputs +1\n +constants +100\n +\+ +100\n +tanh +100\n", text)
    assert re.search(r"depth +200\n", text)
    assert "… 194 more operations …" in text
    assert "more steps …" in text
    assert re.search(r"largest +y\.grad = 1\.0", text)
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert "… 194 more operations …" in explain(y)._repr_html_()


def test_a_graph_of_two_hundred_thousand_nodes_is_explained():
    x, y = chain(70_000)
    limit = sys.getrecursionlimit()
    explanation = explain(y)
    assert len(explanation.nodes) == 210_001
    assert "210,001 nodes" in str(explanation)
    assert len(explanation._repr_html_()) < 30_000
    assert explanation.paths(x).count == 1
    assert sys.getrecursionlimit() == limit


def test_twenty_thousand_doublings_are_counted_up_to_a_bound():
    x = Value(0.0, label="x")
    y = x
    for _ in range(20_000):
        y = y + y
    with nonfinite("allow"):
        paths = explain(y).paths(x, limit=5)
    assert paths.count == 10**1000
    assert "more than 10^999 paths" in str(paths)


def test_steps_of_a_deep_graph_share_their_stacks():
    _, y = chain(2_000)
    steps = explain(y).sort
    deepest = max(steps, key=lambda step: len(step.stack))
    assert len(deepest.stack) == 4_001


# --- HTML ---------------------------------------------------------------------------------------


class Reader(html.parser.HTMLParser):
    VOID = frozenset({"meta", "br"})

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(markup):
    reader = Reader()
    reader.feed(markup)
    reader.close()
    assert reader.open == []
    return reader


def test_html_shows_labels_as_text_and_has_no_script():
    a = Value(2.0, label="<script>alert(1)</script>")
    b = Value(3.0, label="<b>&\"'")
    reader = read(explain(a * b + a)._repr_html_())
    assert "script" not in reader.tags
    assert "b" not in reader.tags
    text = "".join(reader.text)
    assert "<script>alert(1)</script>" in text
    assert "<b>&\"'" in text


def test_html_holds_the_same_rows_as_the_text():
    *_, loss = shared_leaf()
    text = "".join(read(explain(loss)._repr_html_()).text)
    for _, _, happens, stack, done in SORT_ROWS:
        assert happens in text
        assert stack + done in text
    assert "a.grad += 3.0 × 1.0 = 3.0, now 4.0" in text
    assert "c = a * b = 2 × 3 = 6" in text


# --- corners: where a gradient is a convention ----------------------------------------------------


def meaning(build, x):
    x = Value(x, label="x")
    y = build(x)
    y.label = "y"
    return explain(y).meaning(x)


@pytest.mark.parametrize(
    ("build", "x", "left", "right"),
    [
        (abs, 0.0, "-1.0", "1.0"),
        (chainrule.relu, 0.0, "0.0", "1.0"),
        (lambda x: chainrule.leaky_relu(x, 0.25), 0.0, "0.25", "1.0"),
        (lambda x: chainrule.clip(x, -1, 1), 1.0, "1.0", "0.0"),
        (lambda x: chainrule.maximum(x, 2 * x), 0.0, "1.0", "2.0"),
        (lambda x: chainrule.minimum(3.0, x), 3.0, "1.0", "0.0"),
        (lambda x: chainrule.hypot(x, 0.0), 0.0, "-1.0", "1.0"),
        (lambda x: 1 / (1 + abs(x - 3)), 3.0, "1.0", "-1.0"),
        (lambda x: (x * -2 + 6).relu() * 5, 3.0, "-10.0", "0.0"),
    ],
)
def test_at_a_corner_both_sides_are_told_and_that_the_gradient_is_a_convention(
    build, x, left, right
):
    words = meaning(build, x)
    assert f"corner here: slope {left} to the left, {right} to the right of x; " in words
    assert words.endswith(" is a convention")
    leaf, h = Value(x), 2.0**-20
    slopes = [(build(leaf + s * h).data - build(leaf).data) / (s * h) for s in (-1, 1)]
    assert slopes == pytest.approx([float(left), float(right)], abs=1e-5)


@pytest.mark.parametrize(
    ("build", "x"),
    [
        (lambda x: chainrule.maximum(x, x), 1.0),
        (lambda x: chainrule.minimum(x, x) * 2, -1.0),
        (lambda x: chainrule.maximum(x, 3.0) * chainrule.minimum(x, 3.0), 3.0),
        (lambda x: chainrule.gelu_tanh(x), 1000.0),
        (lambda x: chainrule.sigmoid(x), 0.0),
    ],
)
def test_corners_that_cancel_and_ties_without_a_corner_read_as_any_slope(build, x):
    assert meaning(build, x).startswith("if x grows by a little h, y grows by ")


def test_a_convention_that_differs_from_the_true_slope_is_called_one():
    words = meaning(lambda x: x.relu() - (-x).relu(), 0.0)  # this is x itself
    assert words.startswith("0.0 is a convention at a corner on the way; y itself has slope 1.0")


@pytest.mark.parametrize("build", [lambda x: x**2, lambda x: abs(x**2), lambda x: x.relu() ** 2])
def test_a_flat_point_is_flat_to_first_order(build):
    expected = "to first order, a little change of x does not change y"
    assert meaning(build, 0.0) == expected


def test_a_zero_that_stops_an_infinite_slope_is_called_a_convention():
    assert "convention" in meaning(lambda x: (x**2).sqrt(), 0.0)  # this is |x|
    assert meaning(lambda x: x.sqrt(), 0.0) == "y has no finite slope here"


def test_the_backward_table_says_which_operation_has_the_corner():
    x = Value(0.0, label="x")
    y = abs(x)
    (added,) = explain(y).backward[0].contributions
    assert added.corner == (
        "a corner (slope -1.0 to the left, 1.0 to the right), so 0.0 is a convention"
    )
    assert "so 0.0 is a" in as_text(*sections(explain(y), ["backward"]))


def test_the_result_has_a_line_for_every_node_between_inputs_and_output():
    a, b, d = Value(2.0, label="a"), Value(-3.0, label="b"), Value(10.0, label="d")
    c = a * b
    e = c + d
    f = e.relu()
    lines = as_text(*sections(explain(f), ["result"])).splitlines()
    assert "  c.grad = 1.0   if c grows by a little h, f grows by 1.0·h" in lines
    assert lines[-1] == "  f.grad = 1.0   the seed: where the pass starts"


# --- weights, data and literals -------------------------------------------------------------------


class Linear:
    def __init__(self, inputs, outputs):
        self.w = [[Value(0.1 * (i + 1) + j) for i in range(inputs)] for j in range(outputs)]
        self.b = np.array([Value(0.0) for _ in range(outputs)])

    def __call__(self, xs):
        rows = zip(self.w, self.b, strict=True)
        return [sum((w * x for w, x in zip(ws, xs, strict=True)), b) for ws, b in rows]


class Network:
    def __init__(self):
        self.layers = [Linear(2, 2), Linear(2, 1)]

    def __call__(self, xs):
        for layer in self.layers:
            xs = layer(xs)
        return xs[0]


def test_weights_have_the_names_that_their_model_gives_them():
    network = Network()
    data = [[0.3712345, -1.25]]
    loss = (network(data[0]) - 1) ** 2
    found = {node.name: node.kind for node in explain(loss).nodes if not node.children}
    for name in ("layers.0.w[1,0]", "layers.0.b[1]", "layers.1.w[0,1]", "layers.1.b[0]"):
        assert found[name] == "weight"
    assert found["0.37123"] == found["-1.25"] == "data"
    assert found["-1.0"] == "constant"
    assert loss.data == explain(loss).root.data
    assert network.layers[0].w[1][0].grad == 0.0


def test_weights_in_a_dictionary_of_matrices_are_called_by_matrix_and_place():
    state_dict = {
        name: [[Value(0.5 * i + j) for j in range(3)] for i in range(2)] for name in ("wq", "wk")
    }
    params = [p for matrix in state_dict.values() for row in matrix for p in row]
    p = params[-1]
    y = sum(params) * 0.37
    found = {node.name: node.kind for node in explain(y).nodes if not node.children}
    assert found["wq[1,2]"] == found["wk[1,2]"] == "weight", "though p and params hold it too"
    assert found["0.37"] == "constant"
    assert p.data == 2.5


def test_two_models_with_the_same_names_are_told_apart_by_their_variables():
    first, second = nn.Neuron(1), nn.Neuron(1)
    y = first([1.0]) + second([2.0])
    names = {node.name for node in explain(y).nodes}
    assert {"first.w[0]", "first.b", "second.w[0]", "second.b"} <= names


def test_a_models_cycles_properties_and_strangers_are_no_problem():
    class Odd:
        def __init__(self):
            self.me = self
            self.parts = {"inner": [self, {"deep": Value(2.5)}]}
            self.open = open

        @property
        def trouble(self):
            raise RuntimeError("a property must not be asked")

    odd = Odd()
    y = odd.parts["inner"][1]["deep"] * 2.0
    assert explain(y).nodes[0].name == "parts.inner.1.deep"


def test_the_summary_of_a_network_counts_its_weights():
    model, tokens = gpt_model(width=4, heads=1, positions=2, vocabulary=3)
    loss = model.loss(tokens)
    text = str(explain(loss))
    used = len({id(p) for p in model.parameters()} & {id(v) for v in topological_order(loss)})
    assert re.search(rf"^ +weights +{used}$", text, re.MULTILINE)
    assert "token_embedding[" in text, "the walk starts at the embedding"


def test_leaves_of_a_large_graph_that_nobody_holds_are_not_called_constants():
    y = mlp_output(Value, [4, 6, 2])
    leaves = [node for node in explain(y).nodes if not node.children]
    assert {node.kind for node in leaves if not node.data.is_integer()} == {"input"}


def test_an_object_that_leads_back_to_the_callers_variables_is_no_model():
    class Shell:
        def __init__(self, namespace):
            self.namespace = namespace

    a, b = Value(2.0), Value(3.0)
    c = a * b
    shell = Shell(sys._getframe().f_locals)
    shell.globals = globals()
    assert [node.name for node in explain(c).nodes] == ["a", "b", "c"]
    assert {node.kind for node in explain(c).nodes} == {"input", "operation"}


PIECEWISE = {
    "relu": lambda a, b: a.relu(),
    "abs": lambda a, b: abs(a),
    "leaky": lambda a, b: chainrule.leaky_relu(a, 0.25),
    "clip": lambda a, b: chainrule.clip(a, -1.0, 1.0),
    "max": chainrule.maximum,
    "min": chainrule.minimum,
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
    "twice": lambda a, b: 2 * a,
}


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(PIECEWISE)), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=6,
    ),
    st.tuples(*[st.sampled_from([-1.0, 0.0, 0.5, 1.0])] * 2),
)
def test_what_is_said_of_slopes_holds_on_both_sides_of_every_point(program, point):
    """Of sums of corners the slopes are known exactly: a small step to either side shows them."""

    def build(*numbers):
        values = [Value(x, label=name) for name, x in zip("xy", numbers, strict=True)]
        for op, i, j in program:
            values.append(PIECEWISE[op](values[i % len(values)], values[j % len(values)]))
        return values

    *_, result = build(*point)
    nodes = explain(result).nodes
    h = 2.0**-20
    for k, name in enumerate("xy"):
        index = next((node.index for node in nodes if node.name == name), None)
        if index is None or len(nodes) == 1:
            continue
        left, right = (
            (build(*[x + s * h * (i == k) for i, x in enumerate(point)])[-1].data - result.data)
            / (s * h)
            for s in (-1, 1)
        )
        sides = input_sides(nodes, index)
        if sides is None:
            assert (left, right) == (nodes[index].grad,) * 2
        else:
            assert (sides.left, sides.right) == (left, right)
        words = meaning_of(nodes, index)
        assert ("convention" in words) == ((left, right) != (nodes[index].grad,) * 2)
