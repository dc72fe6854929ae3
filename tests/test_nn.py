"""micrograd's modules, and the functions of vectors: values, gradients, edges, errors."""

import math
import random

import literal
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import Value, nn, topological_order

NUMBERS = st.lists(st.floats(-50, 50), min_size=1, max_size=6)


def data(xs):
    return [x.data for x in xs]


def slopes(f, xs, step=1e-6):
    """Derivatives of f by central differences."""
    out = []
    for i in range(len(xs)):
        up, down = list(xs), list(xs)
        up[i] += step
        down[i] -= step
        out.append((f(up) - f(down)) / (2 * step))
    return out


# --- modules ------------------------------------------------------------------------------------


def test_modules_print_as_micrograd_prints_them():
    assert repr(nn.Neuron(3)) == "ReLUNeuron(3)"
    assert repr(nn.Neuron(3, nonlin=False)) == "LinearNeuron(3)"
    assert repr(nn.MLP(2, [2, 1])) == (
        "MLP of [Layer of [ReLUNeuron(2), ReLUNeuron(2)], Layer of [LinearNeuron(2)]]"
    )


def test_mlp_draws_its_weights_as_micrograd_does():
    random.seed(7)
    model = nn.MLP(2, [2, 1])
    rng = random.Random(7)
    expected = []
    for inputs in (2, 2, 2):
        expected += [rng.uniform(-1, 1) for _ in range(inputs)] + [0.0]
    assert data(model.parameters()) == expected


def test_mlp_is_micrograds_graph_bit_for_bit():
    random.seed(3)
    model = nn.MLP(3, [4, 1])
    weights = iter([literal.Value(p.data) for p in model.parameters()])

    def neuron(xs, nonlin):
        w = [next(weights) for _ in xs]
        act = sum((wi * xi for wi, xi in zip(w, xs, strict=True)), next(weights))
        return (act.relu() if nonlin else act), [*w]

    inputs = [0.5, -1.25, 2.0]
    hidden = [neuron(inputs, True) for _ in range(4)]
    expected, _ = neuron([h for h, _ in hidden], False)
    expected.backward()
    result = model(inputs)
    result.backward()
    assert result.data == expected.data
    assert len(topological_order(result)) == len(literal.topological_order(expected))
    assert model.layers[0].neurons[0].w[0].grad == hidden[0][1][0].grad


def test_zero_grad_and_parameters():
    model = nn.MLP(2, [3, 1])
    assert len(model.parameters()) == 3 * 3 + 4
    model([1.0, 2.0]).backward()
    assert any(p.grad for p in model.parameters())
    model.zero_grad()
    assert not any(p.grad for p in model.parameters())
    assert nn.Module().parameters() == []


def test_a_layer_of_one_gives_a_value_and_layers_of_one_chain():
    assert isinstance(nn.Layer(2, 1)([1.0, 2.0]), Value)
    assert isinstance(nn.MLP(2, [1, 1])([1.0, 2.0]), Value)
    assert len(nn.Layer(2, 3)(np.array([1.0, 2.0]))) == 3


def test_a_neuron_says_how_many_inputs_it_takes():
    with pytest.raises(ValueError, match="a neuron with 2 inputs was given 3"):
        nn.Neuron(2)([1.0, 2.0, 3.0])


# --- functions ----------------------------------------------------------------------------------

FUNCTIONS = {
    "softmax": (nn.softmax, lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum()),
    "log_softmax": (
        nn.log_softmax,
        lambda x: x - x.max() - np.log(np.exp(x - x.max()).sum()),
    ),
    "rmsnorm": (nn.rmsnorm, lambda x: x / np.sqrt((x * x).mean() + 1e-5)),
    "layernorm": (nn.layernorm, lambda x: (x - x.mean()) / np.sqrt(x.var() + 1e-5)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(numbers=NUMBERS)
def test_functions_of_vectors_agree_with_numpy(name, numbers):
    function, expected = FUNCTIONS[name]
    result = function([Value(x) for x in numbers])
    assert isinstance(result, list)
    # For equal numbers layernorm divides the rounding of their mean by √1e-5.
    rounding = 1e-12 * (1 + max(map(abs, numbers)))
    wanted = pytest.approx(expected(np.array(numbers)).tolist(), rel=1e-9, abs=rounding)
    assert data(result) == wanted
    plain = function(numbers)
    assert plain == wanted
    assert all(type(x) is float for x in plain)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_agree_with_differences(name):
    function, expected = FUNCTIONS[name]
    numbers, weights = [0.3, -1.2, 2.0, 0.7], [1.0, -2.0, 0.5, 3.0]
    xs = [Value(x) for x in numbers]
    sum(w * y for w, y in zip(weights, function(xs), strict=True)).backward()
    differences = slopes(lambda x: float(np.dot(weights, expected(np.array(x)))), numbers)
    assert [x.grad for x in xs] == pytest.approx(differences, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_stay_arrays_and_rows_are_taken_row_by_row(name):
    function, expected = FUNCTIONS[name]
    rows = [[0.3, -1.2, 2.0], [1.0, 1.0, 1.0]]
    array = np.array([[Value(x) for x in row] for row in rows])
    result = function(array)
    assert isinstance(result, np.ndarray)
    assert result.shape == (2, 3)
    assert isinstance(result[0, 0], Value)
    nested = function([[Value(x) for x in row] for row in rows])
    for row, found, again in zip(rows, result, nested, strict=True):
        assert data(found) == data(again)
        assert data(found) == pytest.approx(expected(np.array(row)).tolist())
    assert function(np.array(rows)).dtype == float


def test_softmax_is_microgpts_graph_bit_for_bit():
    numbers = [0.25, -1.5, 3.0]
    xs, ys = [Value(x) for x in numbers], [literal.Value(x) for x in numbers]
    largest = max(y.data for y in ys)
    exps = [(y - largest).exp() for y in ys]
    total = sum(exps)
    expected = [e / total for e in exps]
    result = nn.softmax(xs)
    assert data(result) == data(expected)
    (-result[1].log()).backward()
    (-expected[1].log()).backward()
    assert [x.grad for x in xs] == [y.grad for y in ys]


def test_no_logit_is_too_large():
    huge = [Value(1e6), Value(0.0), Value(-1e6)]
    assert data(nn.softmax(huge)) == [1.0, 0.0, 0.0]
    assert data(nn.log_softmax(huge)) == [0.0, -1e6, -2e6]
    loss = nn.cross_entropy(huge, 2)
    loss.backward()
    assert loss.data == 2e6
    assert [x.grad for x in huge] == [1.0, 0.0, -1.0]


def test_cross_entropy_of_one_row_and_of_many():
    rows = [[0.5, -1.0, 2.0], [1.0, 0.0, 0.0]]
    softmax = FUNCTIONS["softmax"][1]
    expected = [-math.log(softmax(np.array(rows[0]))[2]), -math.log(softmax(np.array(rows[1]))[0])]
    assert nn.cross_entropy([Value(x) for x in rows[0]], 2).data == pytest.approx(expected[0])
    many = nn.cross_entropy([[Value(x) for x in row] for row in rows], [2, 0])
    assert many.data == pytest.approx(sum(expected) / 2)


def test_linear_adds_a_bias_and_takes_rows():
    weights = [[Value(1.0), Value(2.0)], [Value(3.0), Value(4.0)], [Value(0.0), Value(1.0)]]
    assert data(nn.linear([1.0, 1.0], weights)) == [3.0, 7.0, 1.0]
    assert data(nn.linear([1.0, 1.0], weights, [1.0, 0.0, -1.0])) == [4.0, 7.0, 0.0]
    both = nn.linear(np.array([[1.0, 1.0], [0.0, 1.0]]), weights)
    assert both.shape == (2, 3)
    assert data(both[1]) == [2.0, 4.0, 1.0]


def test_layernorm_scales_and_moves():
    y = nn.layernorm([Value(1.0), Value(3.0)], weight=[2.0, 2.0], bias=[0.0, 1.0])
    assert data(y) == pytest.approx([-2.0, 3.0], abs=1e-4)


def test_losses():
    xs = [Value(1.0), Value(-2.0)]
    mse = nn.mse(xs, [0.0, 0.0])
    mse.backward()
    assert mse.data == 2.5
    assert [x.grad for x in xs] == [1.0, -2.0]
    assert nn.mse(Value(3.0), 1.0).data == 4.0
    assert nn.mse(np.array(xs), np.array([1.0, -2.0])).data == 0.0
    assert nn.hinge([Value(2.0), Value(-0.5)], [1, -1]).data == 0.25
    assert nn.hinge([Value(-1.0)], [1]).data == 2.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.softmax([]), ValueError, "the input of softmax is empty"),
        (lambda: nn.softmax(Value(1.0)), TypeError, "must be a list or an array, not a Value"),
        (lambda: nn.mse([1.0], [1.0, 2.0]), ValueError, "1 numbers need as many targets, got 2"),
        (lambda: nn.hinge([], []), ValueError, "hinge of nothing is undefined"),
        (lambda: nn.cross_entropy([1.0, 2.0], 2), IndexError, "target 2 is not one of 2 classes"),
        (lambda: nn.cross_entropy([1.0, 2.0], -1), IndexError, "target -1 is not one of 2"),
        (lambda: nn.cross_entropy([[1.0]], [0, 0]), ValueError, "1 rows need as many targets"),
        (lambda: nn.linear([1.0], [[1.0, 2.0]]), ValueError, "rows of 1 weights, got 2"),
        (lambda: nn.linear([1.0], [[1.0]], [1.0, 2.0]), ValueError, "1 outputs need as many"),
        (lambda: nn.layernorm([1.0], weight=[1.0, 2.0]), ValueError, "needs a weight of 1"),
    ],
)
def test_errors_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()
