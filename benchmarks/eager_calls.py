"""Eager derivatives of functions beside the same by hand: Values, the function, ``backward()``.

``transforms`` and ``fallback`` are sections of ``eager.py``: for many kinds of arguments, what
``grad`` and ``value_and_grad`` take of a function, and of a compiled one that runs eagerly.
"""

import itertools
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
from harness import clock, figure, ratio, repeated, table, take_turns, title

import chainrule
from chainrule import Value

US = 1e6
WARM = 300  # calls of a compiled function before it is timed
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
    for a, b in itertools.pairwise(x):
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


def of_listed(function):
    """The shortest way, for a function that does not mind a list."""

    def call(x):
        leaves = [Value(number) for number in x.tolist()]
        y = function(leaves)
        y.backward()
        return y.data, np.array([leaf.grad for leaf in leaves])

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
    found["array of 10, by hand a list"] = (rosenbrock, (ramp(10),), of_listed, {})
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
    begin = clock()
    function()
    return max(1, min(1000, int(seconds / (clock() - begin + 1e-7))))


def measured(ways, arguments, repeats):
    """The seconds of a call of each way, by name."""
    calls = {name: lambda way=way: way(*arguments) for name, way in ways.items()}
    count = calls_for(next(iter(calls.values())), 2e-3)
    best = take_turns({name: repeated(call, count) for name, call in calls.items()}, repeats)
    return {name: times["call"] for name, times in best.items()}


def compare(ways_of, repeats):
    """Print a row for every case; ``ways_of`` makes the ways to call a function, by name."""
    rows = []
    for name, (function, arguments, by_hand, options) in cases().items():
        ways = ways_of(function, arguments, by_hand, options)
        hand, *others = ways
        expected = ways[hand](*arguments)
        if not same(ways[others[0]](*arguments), expected):
            raise SystemExit(f"{others[0]} and backward() differ for {name}")
        best = measured(ways, arguments, repeats)
        times = [figure(best[way], US) for way in ways]
        rows.append([name, *times, *[ratio(best[way], best[hand]) for way in others]])
    table(["", hand, *others, *others], rows)


def transforms(quick):
    repeats = 20 if quick else 100
    title(
        "Eager derivatives beside Values, the function and backward() by hand, microseconds "
        "(making the Values and reading the gradients is part of all; the results are equal; "
        f"minima of {repeats} repeats)"
    )

    def ways(function, arguments, by_hand, options):
        return {
            "by hand": by_hand(function),
            "value_and_grad": chainrule.value_and_grad(function, **options),
            "grad": chainrule.grad(function, **options),
        }

    compare(ways, repeats)


def counting(function):
    """The same, with an effect that no recording can repeat."""
    calls = [0]

    def counted(*arguments):
        calls[0] += 1
        return function(*arguments)

    return counted


def fallback(quick):
    repeats = 20 if quick else 100
    title(
        "The same for a compiled function that runs eagerly because it counts its calls, "
        f"microseconds (after {WARM} calls; minima of {repeats} repeats)"
    )

    def ways(function, arguments, by_hand, options):
        fast = chainrule.compile(counting(function), on_fallback="eager")
        transformed = chainrule.value_and_grad(fast, **options)
        method = transformed if options.get("argnums") else fast.value_and_grad
        for _ in range(WARM):
            method(*arguments)
            transformed(*arguments)
        hand = by_hand(counting(function))
        return {"by hand": hand, "fast.value_and_grad": method, "value_and_grad(fast)": transformed}

    compare(ways, repeats)
