"""Eager derivatives of functions beside the same done by hand: Values, the function, ``backward()``.

In: nothing. Out: a table of kinds of arguments and transforms, each with the time by hand, that of
the transform, and their ratio. ``eager.py`` prints it as its section ``transforms``, and the same
for compiled functions that run eagerly as ``fallback``.
"""

import warnings
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
from harness import figure, ratio, repeated, table, take_turns, title

import chainrule
from chainrule import Value

US = 1e6
Point = namedtuple("Point", "x y")


@dataclass
class Model:
    weights: object
    bias: object


# --- functions, over whatever holds their numbers -------------------------------------------------


def square(x):
    return (x * x + 1.0).tanh()


def rosenbrock(x):
    total = 0.0
    for a, b in zip(x[:-1], x[1:], strict=True):
        total = total + (1.0 - a) ** 2 + 100.0 * (b - a * a) ** 2
    return total


def quadratic(x):
    return (x * x).sum() + x.ravel()[0]


def of_dict(p):
    return rosenbrock(p["w"]) + p["b"] * p["b"]


def of_layers(layers):
    return sum(rosenbrock(layer["w"]) + layer["b"][0] for layer in layers)


def of_point(p):
    return (p.x - p.y) ** 2 + p.y


def of_model(m):
    return rosenbrock(m.weights) + m.bias * m.bias


def of_two(x, y):
    return rosenbrock(x) * y[0] + y[1]


def with_aux(x):
    y = rosenbrock(x)
    return y, {"value": y, "count": len(x)}


# --- by hand --------------------------------------------------------------------------------------


def of_numbers(function):
    def call(x):
        leaf = Value(x)
        y = function(leaf)
        y.backward()
        return y.data, leaf.grad

    return call


def of_lists(function):
    def call(x):
        xs = [Value(number) for number in x]
        y = function(xs)
        y.backward()
        return y.data, [leaf.grad for leaf in xs]

    return call


def filled(array):
    """An array of Values of the same shape, and these."""
    leaves = [Value(number) for number in array.ravel().tolist()]
    return np.fromiter(leaves, object, len(leaves)).reshape(array.shape), leaves


def grads(leaves, shape):
    return np.array([leaf.grad for leaf in leaves]).reshape(shape)


def of_arrays(function):
    def call(x):
        xs, leaves = filled(x)
        y = function(xs)
        y.backward()
        return y.data, grads(leaves, x.shape)

    return call


def of_dicts(function):
    def call(p):
        w, leaves = filled(p["w"])
        b = Value(p["b"])
        y = function({"w": w, "b": b})
        y.backward()
        return y.data, {"w": grads(leaves, p["w"].shape), "b": b.grad}

    return call


def of_nests(function):
    def call(layers):
        made = [{name: filled(array) for name, array in layer.items()} for layer in layers]
        y = function([{name: xs for name, (xs, _) in layer.items()} for layer in made])
        y.backward()
        return y.data, [
            {name: grads(leaves, xs.shape) for name, (xs, leaves) in layer.items()}
            for layer in made
        ]

    return call


def of_points(function):
    def call(p):
        x, y = Value(p.x), Value(p.y)
        z = function(Point(x, y))
        z.backward()
        return z.data, Point(x.grad, y.grad)

    return call


def of_models(function):
    def call(m):
        weights, bias = [Value(w) for w in m.weights], Value(m.bias)
        y = function(Model(weights, bias))
        y.backward()
        return y.data, Model([w.grad for w in weights], bias.grad)

    return call


def of_pairs(function):
    def call(x, y):
        xs, ys = [Value(number) for number in x], [Value(number) for number in y]
        z = function(xs, ys)
        z.backward()
        return z.data, ([leaf.grad for leaf in xs], [leaf.grad for leaf in ys])

    return call


def of_second(function):
    def call(x, y):
        ys = [Value(number) for number in y]
        z = function(x, ys)
        z.backward()
        return z.data, [leaf.grad for leaf in ys]

    return call


def of_aux(function):
    def call(x):
        xs = [Value(number) for number in x]
        y, aux = function(xs)
        y.backward()
        numbers = {k: v.data if isinstance(v, Value) else v for k, v in aux.items()}
        return (y.data, numbers), [leaf.grad for leaf in xs]

    return call


def ramp(*shape):
    return np.linspace(-1.0, 1.0, int(np.prod(shape))).reshape(shape)


def nest(size):
    return [{"w": ramp(size), "b": ramp(2)} for _ in range(3)]


def cases():
    """By name: the function, its arguments, how it is done by hand, and the transform's options."""
    found = {
        "number": (square, (0.5,), of_numbers, {}),
        "numpy number": (square, (np.float64(0.5),), of_numbers, {}),
    }
    for n in (2, 10, 100, 1000):
        found[f"list of {n}"] = (rosenbrock, (ramp(n).tolist(),), of_lists, {})
    for n in (2, 5, 10, 30, 100, 1000, 10_000):
        found[f"array of {n}"] = (rosenbrock, (ramp(n),), of_arrays, {})
    for shape in ((1,), (2,), (2, 3), (10, 10)):
        name = "×".join(map(str, shape))
        found[f"array {name}, numpy's operations"] = (quadratic, (ramp(*shape),), of_arrays, {})
    integers, halves = np.arange(10), ramp(10).astype(np.float32)
    found["array of 10 integers"] = (rosenbrock, (integers,), of_arrays, {})
    found["array of 10 float32"] = (rosenbrock, (halves,), of_arrays, {})
    found["array of 10, every other"] = (rosenbrock, (ramp(20)[::2],), of_arrays, {})
    found["dict of array of 10, number"] = (of_dict, ({"w": ramp(10), "b": 0.5},), of_dicts, {})
    found["list of 3 dicts of 2 arrays"] = (of_layers, (nest(3),), of_nests, {})
    found["named tuple of 2"] = (of_point, (Point(0.5, 1.5),), of_points, {})
    model = Model(ramp(10).tolist(), 0.5)
    found["dataclass, list of 10, number"] = (of_model, (model,), of_models, {})
    pair = ramp(5).tolist(), [1.5, 2.5]
    found["argnums=(0, 1), lists of 5, 2"] = (of_two, pair, of_pairs, {"argnums": (0, 1)})
    found["argnums=1, lists of 5, 2"] = (of_two, pair, of_second, {"argnums": 1})
    found["has_aux, list of 10"] = (with_aux, (ramp(10).tolist(),), of_aux, {"has_aux": True})
    return found


def same(a, b):
    """Whether two results have the same numbers, in the same places."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Model):
        return same((a.weights, a.bias), (b.weights, b.bias))
    return type(a) is type(b) and a == b


def calls_for(function, seconds):
    """How many calls take so long."""
    begin = chainrule.cli.bench.clock()
    function()
    return max(1, min(1000, int(seconds / (chainrule.cli.bench.clock() - begin + 1e-7))))


def measured(ways, repeats):
    """The seconds of a call of each way, by name."""
    count = calls_for(next(iter(ways.values())), 2e-3)
    best = take_turns({name: repeated(way, count) for name, way in ways.items()}, repeats)
    return {name: times["call"] for name, times in best.items()}


def transforms(quick):
    repeats = 20 if quick else 100
    title(
        "Eager derivatives beside Values, the function and backward() by hand, microseconds (making "
        f"the Values and reading the gradients is part of both; results are equal; minima of "
        f"{repeats} repeats)"
    )
    rows = []
    for name, (function, arguments, by_hand, options) in cases().items():
        hand = by_hand(function)
        ways = {
            "by hand": hand,
            "value_and_grad": chainrule.value_and_grad(function, **options),
            "grad": chainrule.grad(function, **options),
        }
        expected = hand(*arguments)
        assert same(ways["value_and_grad"](*arguments), expected), name
        best = measured(
            {key: lambda way=way: way(*arguments) for key, way in ways.items()}, repeats
        )
        times = [figure(best[key], US) for key in ways]
        rows.append([name, *times, *[ratio(best[k], best["by hand"]) for k in list(ways)[1:]]])
    table(["", "by hand", "value_and_grad", "grad", "value_and_grad", "grad"], rows)


def refused(function):
    """The same function with something in it that no recording can repeat."""

    def reads_a_file(*arguments):
        with open("/dev/null"):
            return function(*arguments)

    return reads_a_file
