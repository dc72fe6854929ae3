"""Every numeric example printed in the seed documents, in the dialect it is written in."""

import math

import pytest

from chainrule import Value, topological_order, vsum


def grads(*nodes):
    return [node.grad for node in nodes]


def test_relu_walkthrough_gives_the_table_of_gradients():
    a, b, d = Value(2.0), Value(-3.0), Value(10.0)
    c = a * b
    e = c + d
    f = e.relu()
    f.backward()
    assert [v.data for v in (c, e, f)] == [-6.0, 4.0, 4.0]
    assert grads(a, b, c, d, e, f) == [-3.0, 2.0, 1.0, 1.0, 1.0, 1.0]


def test_relu_walkthrough_verification_by_a_nudge():
    def f(a):
        return (Value(a) * Value(-3.0) + Value(10.0)).relu().data

    assert f(2.001) == pytest.approx(3.997, abs=1e-15)
    assert (f(2.001) - f(2.0)) / 0.001 == pytest.approx(-3.0, abs=1e-9)


def test_shared_leaf_exercise_gives_four_and_two():
    a, b = Value(2.0), Value(3.0)
    c = a * b
    loss = c + a
    assert c.local_grads == (3.0, 2.0)
    assert loss.local_grads == (1.0, 1.0)
    loss.backward()
    assert (c.data, loss.data) == (6.0, 8.0)
    assert grads(a, b, c, loss) == [4.0, 2.0, 1.0, 1.0]


def test_shared_leaf_exercise_sorts_as_the_trace_does():
    a, b = Value(2.0, label="a"), Value(3.0, label="b")
    c = a * b
    c.label = "c"
    loss = c + a
    loss.label = "L"
    assert [v.label for v in topological_order(loss)] == ["a", "b", "c", "L"]


def test_a_plus_a_has_two_edges_and_gradient_two():
    a = Value(3.0, label="a")
    b = a + a
    b.backward()
    assert b.data == 6.0
    assert a.grad == 2.0
    assert len(b.children) == 2
    assert b.children[0] is a
    assert b.children[1] is a


def test_shared_variables_in_a_larger_graph():
    a, b = Value(-2.0, label="a"), Value(3.0, label="b")
    d = a * b
    e = a + b
    f = d * e
    f.backward()
    assert (d.data, e.data, f.data) == (-6.0, 1.0, -6.0)
    assert grads(a, b, d, e, f) == [-3.0, -8.0, 1.0, -6.0, 1.0]


def neuron():
    """The tanh neuron of micrograd's notes, labels and all."""
    x1 = Value(2.0, label="x1")
    x2 = Value(0.0, label="x2")
    w1 = Value(-3.0, label="w1")
    w2 = Value(1.0, label="w2")
    b = Value(6.8813735870195432, label="b")
    x1w1 = x1 * w1
    x1w1.label = "x1*w1"
    x2w2 = x2 * w2
    x2w2.label = "x2*w2"
    x1w1x2w2 = x1w1 + x2w2
    x1w1x2w2.label = "x1*w1 + x2*w2"
    n = x1w1x2w2 + b
    n.label = "n"
    o = n.tanh()
    o.label = "o"
    return {v.label: v for v in (x1, x2, w1, w2, b, x1w1, x2w2, x1w1x2w2, n, o)}


NEURON_GRADS = {
    "o": 1.0,
    "n": 0.5,
    "b": 0.5,
    "x1*w1 + x2*w2": 0.5,
    "x1*w1": 0.5,
    "x2*w2": 0.5,
    "x1": -1.5,
    "w1": 1.0,
    "x2": 0.5,
    "w2": 0.0,
}


def assert_neuron_grads(nodes):
    assert nodes["o"].data == pytest.approx(math.sqrt(0.5), rel=1e-12)
    assert {k: v.grad for k, v in nodes.items()} == pytest.approx(NEURON_GRADS, rel=1e-12)


def test_tanh_neuron_gradients_node_by_node():
    nodes = neuron()
    nodes["o"].backward()
    assert_neuron_grads(nodes)
    assert nodes["w2"].grad == 0.0


def test_tanh_neuron_walked_by_hand_with_underscore_backward():
    nodes = neuron()
    o = nodes["o"]
    o.grad = 1.0
    topo = []
    visited = set()

    def build_topo(v):
        if v not in visited:
            visited.add(v)
            for child in v._prev:
                build_topo(child)
            topo.append(v)

    build_topo(o)
    assert topo == list(topological_order(o))
    for node in reversed(topo):
        node._backward()
    assert_neuron_grads(nodes)


def test_tanh_neuron_called_node_by_node_in_order():
    nodes = neuron()
    nodes["o"].grad = 1.0
    for label in ("o", "n", "b", "x1*w1 + x2*w2", "x2*w2", "x1*w1"):
        nodes[label]._backward()
    assert_neuron_grads(nodes)


def test_underscore_backward_accumulates_both_edges_of_a_plus_a():
    a = Value(3.0)
    b = a + a
    b.grad = 1.0
    b._backward()
    assert a.grad == 2.0
    b._backward()
    assert a.grad == 4.0


def test_underscore_backward_of_a_leaf_does_nothing():
    a = Value(3.0)
    a.grad = 5.0
    a._backward()
    assert a.grad == 5.0


def test_assigning_to_underscore_backward_raises_with_advice():
    out = Value(1.0) + Value(2.0)
    with pytest.raises((AttributeError, TypeError)) as caught:
        out._backward = lambda: None
    message = str(caught.value)
    assert "_backward" in message
    assert "local_grads" in message or "Value(" in message


def test_tanh_by_the_lectures_formula_agrees():
    x = Value(0.8813735870195432)
    e = (2 * x).exp()
    o = (e - 1) / (e + 1)
    o.backward()
    assert o.data == pytest.approx(x.tanh().data, rel=1e-14)
    assert x.grad == pytest.approx(0.5, rel=1e-12)


def test_vsum_is_differentiable():
    values = [Value(x) for x in (1.0, 2.0, 3.5)]
    total = vsum(values)
    total.backward()
    assert total.data == 6.5
    assert grads(*values) == [1.0, 1.0, 1.0]


def test_micrograd_readme_example():
    a = Value(-4.0)
    b = Value(2.0)
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    assert f"{g.data:.4f}" == "24.7041"
    g.backward()
    assert f"{a.grad:.4f}" == "138.8338"
    assert f"{b.grad:.4f}" == "645.5773"


# --- the constructor, in every dialect ----------------------------------------------------------


def test_constructor_with_a_label():
    v = Value(2.0, label="a")
    assert (v.data, v.grad, v.label, v.op, v.children, v.local_grads) == (2.0, 0.0, "a", "", (), ())


def test_constructor_in_microgpts_dialect_takes_children_and_local_gradients():
    x, y = Value(2.0), Value(5.0)
    out = Value(10.0, (x, y), (5.0, 2.0))
    out.backward()
    assert grads(x, y) == [5.0, 2.0]
    assert out.children == (x, y)
    assert out.local_grads == (5.0, 2.0)


def test_constructor_for_a_custom_operation():
    x = Value(3.0)
    out = Value(9.0, (x,), (6.0,), op="square", label="s")
    out.backward(gradient=0.5)
    assert x.grad == 3.0
    assert (out.op, out._op, out.label) == ("square", "square", "s")


@pytest.mark.parametrize(
    ("word", "inputs", "data", "expected"),
    [
        ("+", (2.0, 5.0), 7.0, (1.0, 1.0)),
        ("*", (2.0, 5.0), 10.0, (5.0, 2.0)),
        ("tanh", (0.5,), math.tanh(0.5), (1 - math.tanh(0.5) ** 2,)),
        ("exp", (0.5,), math.exp(0.5), (math.exp(0.5),)),
        ("**3", (2.0,), 8.0, (12.0,)),
        ("**-1", (2.0,), 0.5, (-0.25,)),
    ],
)
@pytest.mark.parametrize("dialect", ["third place", "keywords", "_children keyword"])
def test_constructor_in_micrograds_dialect_finds_the_partials(
    word, inputs, data, expected, dialect
):
    children = tuple(Value(x) for x in inputs)
    if dialect == "third place":
        out = Value(data, children, word)
    elif dialect == "keywords":
        out = Value(data, _children=children, _op=word)
    else:
        out = Value(data, _children=children, op=word)
    out.backward()
    assert grads(*children) == pytest.approx(list(expected), rel=1e-15)
    assert out._op == word
    assert out._prev == children


def test_constructor_in_micrograds_dialect_takes_the_label_in_fourth_place():
    v = Value(2.0, (), "", "a")
    assert (v.data, v.label, v.children, v.op) == (2.0, "a", (), "")


def test_constructor_with_an_unknown_operation_and_no_partials_raises():
    with pytest.raises(TypeError, match="mystery"):
        Value(1.0, (Value(2.0),), "mystery")


def test_underscored_names_are_the_plain_ones():
    a, b = Value(2.0), Value(3.0)
    c = a * b
    assert c._prev == c._children == c.children == (a, b)
    assert c._local_grads == c.local_grads == (3.0, 2.0)
    assert c._op == c.op == "*"
