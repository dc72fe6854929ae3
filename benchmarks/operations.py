"""The time of one operation: on native Values, on the reference engine's, on plain floats."""

import math
from timeit import Timer

from harness import WHOLE, clock, figure, ratio, table, take_turns, title

NS = 1e9
UNROLL = 20

# Each operation, over floats and over Values; y is a Value or a number.
BINARY = {
    "+": ("x + y", "x + y"),
    "-": ("x - y", "x - y"),
    "*": ("x * y", "x * y"),
    "/": ("x / y", "x / y"),
    "**": ("x ** y", "x ** y"),
    "maximum": ("max(x, y)", "x.maximum(y)"),
}
UNARY = {
    "neg": ("-x", "-x"),
    "exp": ("exp(x)", "x.exp()"),
    "log": ("log(x)", "x.log()"),
    "relu": ("max(0.0, x)", "x.relu()"),
    "tanh": ("tanh(x)", "x.tanh()"),
    "sigmoid": ("1 / (1 + exp(-x))", "x.sigmoid()"),
    "sqrt": ("sqrt(x)", "x.sqrt()"),
    "sin": ("sin(x)", "x.sin()"),
    "cos": ("cos(x)", "x.cos()"),
}
FUNCTIONS = "exp log tanh sqrt sin cos".split()
FORMS = ["Value", "float y", "int y"]


def loop(body, x, y, count):
    """A contestant: ``count`` rounds over ``body``; ``x``, ``y``, ``exp`` ... are local names."""
    names = ", ".join(["x", "y", *FUNCTIONS])
    operands = (x, y, *[getattr(math, name) for name in FUNCTIONS])
    timer = Timer(body, f"{names} = operands", clock, {"operands": operands})
    return lambda: {"loop": timer.timeit(count)}


def measure(native, reference, repeats, count):
    """Seconds by operation and form, and the empty loop's share in each of them."""
    x, y = 0.75, 1.25
    x_native, y_native = native.Value(x), native.Value(y)
    x_reference, y_reference = reference.Value(x), reference.Value(y)
    rare = max(1, count // 50)
    contestants, rounds = {("", "empty"): loop("pass", x, y, count)}, {}
    for name, (plain, expression) in {**BINARY, **UNARY}.items():
        forms = {
            "float": (plain, x, y, count),
            "Value": (expression, x_native, y_native, count),
            "reference": (expression, x_reference, y_reference, rare),
        }
        if name in BINARY:
            forms["float y"] = (expression, x_native, y, count)
            forms["int y"] = (expression, x_native, 3, count)
        for form, (body, a, b, number) in forms.items():
            contestants[name, form] = loop("\n".join([body] * UNROLL), a, b, number)
            rounds[name, form] = number * UNROLL
    best = take_turns(contestants, repeats)
    empty = best["", "empty"][WHOLE] / (count * UNROLL)
    return {key: best[key][WHOLE] / number - empty for key, number in rounds.items()}, empty


def operations(native, reference, quick):
    repeats, count = (5, 500) if quick else (40, 1000)
    seconds, empty = measure(native, reference, repeats, count)
    title(
        f"One operation, nanoseconds (its node made and freed; the loop's {empty * NS:.1f} ns "
        f"subtracted; minima of {repeats} repeats of {count * UNROLL:,})"
    )
    rows = []
    for name, (plain, _) in {**BINARY, **UNARY}.items():
        floats, slow = seconds[name, "float"], seconds[name, "reference"]
        cells = [plain, figure(floats, NS, 1)]
        for form in FORMS:
            time = seconds.get((name, form))
            cells += [figure(time, NS, 1), ratio(time, floats)]
        rows.append([name, *cells, figure(slow, NS, 0), ratio(slow, seconds[name, "Value"])])
    headers = ["", "floats", "ns"]
    for form in FORMS:
        headers += [form, "vs floats"]
    table([*headers, "reference", "vs native"], rows)
