"""copy, deepcopy and pickle: whole graphs, leaves shared as before, nothing forgotten."""

import copy
import pickle
from random import Random

import numpy as np
import pytest
from number_systems import chainrule_functions
from programs import ALL_OPS, random_program, run

import chainrule
from chainrule import Value, gradients, topological_order

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
FUNCTIONS = chainrule_functions()


class Parameter(Value):
    """A leaf with attributes of its own. At module level, so that pickle finds it."""

    def __init__(self, data, name="", group=None):
        super().__init__(data)
        self.name = name
        self.group = group


class Slotted(Value):
    __slots__ = ("extra",)


def through_pickle(protocol):
    return lambda thing: pickle.loads(pickle.dumps(thing, protocol=protocol))


WAYS = {"deepcopy": copy.deepcopy} | {f"pickle {p}": through_pickle(p) for p in PROTOCOLS}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def duplicate(request):
    return request.param


def description(root):
    order = topological_order(root)
    index = {v: i for i, v in enumerate(order)}
    return [
        (v.data, v.grad, v.label, v.op, v.local_grads, [index[c] for c in v.children], type(v))
        for v in order
    ]


def test_a_copied_graph_is_equal_and_separate(duplicate):
    a, b = Value(2.0, label="a"), Value(-3.0, label="b")
    y = (a * b + 10.0).relu() / a
    y.label = "y"
    y.backward()
    twin = duplicate(y)
    assert description(twin) == description(y)
    assert not set(topological_order(twin)) & set(topological_order(y))
    twin.backward()
    assert a.grad != topological_order(twin)[0].grad
    assert y.children[0] is not twin.children[0]


def test_random_graphs_survive(duplicate):
    for i in range(40):
        program = random_program(Random(f"copy {i}"), ALL_OPS, 3, 20)
        y = run(program, map(Value, program.inputs), FUNCTIONS)[-1]
        y.backward()
        twin = duplicate(y)
        assert description(twin) == description(y)
        twin.zero_grad()
        twin.backward()
        assert description(twin) == description(y)


def test_static_parameters_survive(duplicate):
    """The copy knows its rows: a second derivative needs the exponent, the slope, the bounds."""
    x = Value(0.7)
    y = (
        x**3
        + x.leaky_relu(0.1) * x
        + chainrule.clip(x, -1.0, 1.0) ** 2
        + chainrule.where(x > 0, x * x, x)
        + x**x
    )

    def second(y, x):
        (g,) = gradients(y, [x], create_graph=True)
        return float(gradients(g, [x])[0])

    twin_y, twin_x = duplicate([y, x])
    assert second(twin_y, twin_x) == second(y, x)
    assert second(y, x) > 1.0


def test_shared_leaves_stay_shared_between_objects(duplicate):
    a, b = Value(2.0), Value(3.0)
    first, product = duplicate([a, a * b])
    assert product.children[0] is first
    product, last = duplicate([a * b, a])
    assert product.children[0] is last
    one, two = duplicate((a * b, a + b))
    assert one.children[0] is two.children[0]
    assert one.children[1] is two.children[1]
    model = duplicate({"w": [a, b], "loss": (a * b).tanh()})
    model["loss"].backward()
    assert model["w"][0].grad != 0.0
    assert a.grad == 0.0


def test_nodes_shared_within_a_graph_stay_shared(duplicate):
    a = Value(2.0)
    h = a * a
    twin = duplicate(h * h + a)
    square = twin.children[0]
    assert square.children[0] is square.children[1]
    assert square.children[0].children[0] is twin.children[1]


def test_custom_operations_survive(duplicate):
    a, b, c = Value(1.0), Value(2.0), Value(3.0)
    y = Value(6.0, (a, b, c), (1.0, 2.0, 3.0), op="mine", label="m") * 2.0
    twin = duplicate(y)
    assert description(twin) == description(y)
    twin.backward()
    assert [v.grad for v in twin.children[0].children] == [2.0, 4.0, 6.0]


def test_subclass_leaves_keep_their_type_and_attributes(duplicate):
    w, s = Parameter(2.0, "weight", group=[1, 2]), Slotted(3.0)
    w.label = "w"
    s.extra = "kept"
    w2, s2, y2 = duplicate([w, s, w * s])
    assert (type(w2), type(s2), type(y2)) == (Parameter, Slotted, Value)
    assert (w2.name, w2.group, w2.label, s2.extra) == ("weight", [1, 2], "w", "kept")
    assert w2.group is not w.group
    assert y2.children[0] is w2
    assert y2.children[1] is s2


def test_leaf_gradients_and_labels_survive(duplicate):
    a = Value(0.1, label="α")
    a.grad = -2.5
    twin = duplicate(a)
    assert repr(twin) == repr(a)
    assert twin is not a


def test_numbers_that_are_not_finite_survive(duplicate):
    v = Value(float("inf"))
    v.grad = float("-inf")
    twin = duplicate(v + float("nan"))
    assert twin.data != twin.data
    assert (twin.children[0].data, twin.children[0].grad) == (float("inf"), float("-inf"))


def test_copying_builds_the_same_graph_under_no_grad(duplicate):
    y = Value(2.0) * 3.0
    with chainrule.no_grad():
        twin = duplicate(y)
    assert description(twin) == description(y)


def test_a_shallow_copy_is_a_new_node_over_the_same_children():
    a, b = Value(2.0), Value(3.0)
    y = a * b
    y.grad, y.label = 4.0, "y"
    twin = copy.copy(y)
    assert twin is not y
    assert (twin.data, twin.grad, twin.label, twin.op) == (6.0, 4.0, "y", "*")
    assert twin.children == (a, b)
    twin.backward()
    assert (a.grad, b.grad) == (3.0, 2.0)
    assert y.grad == 4.0


def test_a_shallow_copy_of_a_subclass_leaf_keeps_type_and_attributes():
    w = Parameter(2.0, "weight", group=[1])
    twin = copy.copy(w)
    assert type(twin) is Parameter
    assert (twin.data, twin.name) == (2.0, "weight")
    assert twin.group is w.group
    twin.data = 5.0
    assert w.data == 2.0


def test_an_array_of_values_survives(duplicate):
    xs = np.array([Value(1.0), Value(2.0)])
    twins, total = duplicate((xs, xs.sum()))
    total.backward()
    assert [t.grad for t in twins] == [1.0, 1.0]
    assert [x.grad for x in xs] == [0.0, 0.0]
