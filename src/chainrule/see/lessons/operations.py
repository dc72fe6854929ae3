"""The traps of the later steps: more operations, a neuron, training, attention, a GPT.

They are about what a learner's file has beside its class: operators with plain numbers, functions
such as ``tanh``, and from step 8 on the functions that the course asks for, ``neuron``,
``train_step``, ``softmax`` and ``attention``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from chainrule.core import functions
from chainrule.core.backend import Value
from chainrule.see.lessons.dialects import Engine
from chainrule.see.lessons.graphs import apply, graph
from chainrule.see.lessons.traps import Finding, Row, close, describe, run, trap, with_graph

_POINTS = {"log": (0.5, 2.0), "sqrt": (0.25, 2.0), "relu": (-1.5, 2.0)}
_FUNCTIONS = ("relu", "tanh", "exp", "log", "sigmoid", "sqrt", "sin", "cos")
_NEEDED = ("relu", "tanh", "exp", "log")  # by the course's later steps
_RULES = {
    "relu": ("1 where x > 0, else 0", "(1.0 if self.data > 0 else 0.0,)"),
    "tanh": ("1 - tanh(x)²: of the result, not of x", "(1 - t * t,)"),
    "exp": ("the result itself", "(y,)"),
    "log": ("1 / x", "(1 / self.data,)"),
    "sigmoid": ("s · (1 - s)", "(s * (1 - s),)"),
    "sqrt": ("1 / (2 · the result)", "(0.5 / y,)"),
    "sin": ("cos(x)", "(math.cos(self.data),)"),
    "cos": ("-sin(x)", "(-math.sin(self.data),)"),
}


def _one(
    name: str, engine: Engine, text: str, idea: str, why: str, right: str, **inputs: float
) -> Finding | None:
    """None where a learner's engine is right on one graph."""
    g = graph(text, **inputs)
    got, error = run(engine, g)
    if error:
        finding = Finding(name, "wrong", idea, why, right, error=error)
        return with_graph(finding, g, ())
    nodes = g.build(engine.number, engine.apply)
    truth = g.truth
    data = {x: engine.data(v) for x, v in nodes.items()}
    if not close(truth.data[g.output], data[g.output]):
        rows = tuple(Row(x, truth.data[x], truth.data[x], data[x]) for x in g.names)
        return with_graph(Finding(name, "wrong", idea, why, right, column=".data"), g, rows)
    if all(close(truth.grads[x], got[x]) for x, _ in g.inputs):
        return None
    rows = tuple(Row(x, truth.data[x], truth.grads[x], got[x]) for x in g.names)
    return with_graph(Finding(name, "wrong", idea, why, right), g, rows)


@trap(7)
def powers(engine: Engine) -> Finding:
    """x ** p for a plain number p."""
    if not engine.has("pow"):
        right = "def __pow__(self, p): ... (p * self.data ** (p - 1),)"
        return Finding("powers", "missing", "the operation **", right=right)
    why = "The slope of x**p is p · x**(p-1), times the gradient that came from above."
    line = "(p * self.data ** (p - 1),)"
    for p in (2, 3, -1):
        idea = "the local gradient of a power"
        found = _one("powers", engine, f"b = a ** {p}; c = b * a", idea, why, line, a=2.0)
        if found is not None:
            return found
    return Finding("powers", "right")


@trap(7)
def minus_and_division(engine: Engine) -> Finding:
    """-a, a - b and a / b, built from + * and **."""
    why = "-a is a * -1, a - b is a + (-b), a / b is a * b**-1: no new derivative is needed."
    for op, text in (("neg", "c = -a"), ("sub", "c = a - b"), ("truediv", "c = a / b")):
        if not engine.has(op):
            right = f"def __{op}__(self{'' if op == 'neg' else ', other'}): ..."
            return Finding("minus_and_division", "missing", f"the operation {op}", why, right)
        inputs = {"a": 2.0} if op == "neg" else {"a": 2.0, "b": 4.0}
        name, idea = "minus_and_division", "operations built from others"
        found = _one(name, engine, f"{text}; d = c * a", idea, why, "a * b**-1", **inputs)
        if found is not None:
            return found
    return Finding("minus_and_division", "right")


@trap(7)
def plain_numbers(engine: Engine) -> Finding:
    """Numbers beside nodes: a + 1, 2 * a, 1 - a, 1 / a."""
    why = (
        "a + 1 needs the 1 as a node; 1 + a asks the number first, which gives up and asks your "
        "class for __radd__."
    )
    line = "other = other if isinstance(other, Value) else Value(other)"
    texts = [
        "b = a + 1.0",
        "b = 1.0 + a",
        "b = 2.0 * a",
        "b = a - 1.0",
        "b = 1.0 - a",
        "b = 1.0 / a",
    ]
    for text in texts:
        idea = f"plain numbers as operands: {text.partition(' = ')[2].replace('.0', '')}"
        found = _one("plain_numbers", engine, text, idea, why, line, a=2.0)
        if found is not None:
            return replace(found, status="missing") if found.error else found
    return Finding("plain_numbers", "right")


@trap(7)
def elementary_functions(engine: Engine) -> Finding:
    """tanh, exp, log, relu and what else there is."""
    lacking = [name for name in _NEEDED if not engine.has(name)]
    for name in _FUNCTIONS:
        if not engine.has(name):
            continue
        rule, line = _RULES[name]
        for x in _POINTS.get(name, (-0.5, 0.75)):
            idea = f"the local gradient of {name}"
            why = f"It is {rule}, times the gradient that came from above."
            text = f"b = {name}(a); c = b * a"
            found = _one("elementary_functions", engine, text, idea, why, line, a=x)
            if found is not None:
                return found
    if lacking:
        right = f"def {lacking[0]}(self): ... {_RULES[lacking[0]][1]}"
        return Finding("elementary_functions", "missing", f"{', '.join(lacking)}", right=right)
    return Finding("elementary_functions", "right")


# --- functions that the course asks for -----------------------------------------------------------


def _asked(engine: Engine, name: str) -> Callable[..., Any] | None:
    found = getattr(engine.module, name, None)
    return found if callable(found) else None


def _numbers(engine: Engine, xs: Any) -> Any:
    """Nested lists of numbers as nested lists of the learner's nodes."""
    if isinstance(xs, list):
        return [_numbers(engine, x) for x in xs]
    return engine.number(xs)


def _flat(xs: Any) -> list[Any]:
    return [y for x in xs for y in _flat(x)] if isinstance(xs, (list, tuple)) else [xs]


def _called(
    name: str,
    engine: Engine,
    function: str,
    arguments: Sequence[Any],
    expected: Any,
    idea: str,
    why: str,
) -> Finding:
    """Call a learner's function and compare its numbers and gradients with the right ones."""
    mine = _asked(engine, function)
    if mine is None:
        return Finding(name, "missing", f"a function {function}", why)
    inputs = _numbers(engine, list(arguments))
    try:
        out = mine(*inputs)
        results = _flat(out)
        data = [engine.data(v) for v in results]
        total = results[0]
        for v in results[1:]:
            total = engine.apply("add", total, v)
        squared = engine.apply("mul", total, results[0])
        engine.backward(squared)
    except Exception as error:
        return Finding(name, "wrong", idea, why, error=describe(error))
    leaves = _numbers_of(list(arguments))
    right_results = _flat(expected(*leaves))
    right_total = right_results[0]
    for v in right_results[1:]:
        right_total = right_total + v
    (right_total * right_results[0]).backward()
    right = [v.data for v in right_results]
    if len(data) != len(right) or not all(map(close, right, data)):
        padded = [*data, *[None] * len(right)][: len(right)]
        pairs = zip(right, padded, strict=True)
        rows = tuple(Row(f"result {i}", x, x, mine_) for i, (x, mine_) in enumerate(pairs))
        return Finding(name, "wrong", idea, why, column=".data", rows=rows)
    pairs = zip(_flat(leaves), _flat(inputs), strict=True)
    rows = tuple(
        Row(f"input {i}", leaf.data, leaf.grad, engine.grad(v)) for i, (leaf, v) in enumerate(pairs)
    )
    if any(row.wrong for row in rows):
        return Finding(name, "wrong", idea, why, rows=rows)
    return Finding(name, "right")


def _numbers_of(xs: Any) -> Any:
    return [_numbers_of(x) for x in xs] if isinstance(xs, list) else Value(xs)


def _right_neuron(weights: list[Value], inputs: list[Value], bias: Value) -> Value:
    return functions.tanh(sum((w * x for w, x in zip(weights, inputs, strict=True)), bias))


@trap(8)
def a_neuron(engine: Engine) -> Finding:
    """neuron(weights, inputs, bias): a weighted sum through tanh."""
    why = "tanh(w1*x1 + w2*x2 + b): multiply in pairs, add up with the bias, then tanh."
    arguments = ([-3.0, 1.0], [2.0, 0.5], 6.8813735870195432)
    idea = "a weighted sum, then tanh"
    return _called("a_neuron", engine, "neuron", arguments, _right_neuron, idea, why)


@trap(9)
def a_training_step(engine: Engine) -> Finding:
    """train_step(parameters, rate): downhill, and gradients back to 0."""
    why = "Each parameter goes against its gradient: p.data -= rate * p.grad; then p.grad = 0."
    step = _asked(engine, "train_step")
    if step is None:
        return Finding("a_training_step", "missing", "a function train_step(parameters, rate)", why)
    p, q = engine.number(2.0), engine.number(-1.0)
    engine.set_grad(p, 0.5)
    engine.set_grad(q, -4.0)
    try:
        step([p, q], 0.1)
    except Exception as error:
        return Finding("a_training_step", "wrong", "code that runs", why, error=describe(error))
    right, got = (1.95, -0.6), (engine.data(p), engine.data(q))
    rows = tuple(Row(n, x, r, y) for n, x, r, y in zip("pq", (2.0, -1.0), right, got, strict=True))
    if close(2.05, got[0]) and close(-1.4, got[1]):
        idea = "the sign: downhill is against the gradient"
        right_line = "p.data -= rate * p.grad"
        return Finding("a_training_step", "wrong", idea, why, right_line, column=".data", rows=rows)
    if any(row.wrong for row in rows):
        idea = "the update: rate times gradient"
        return Finding("a_training_step", "wrong", idea, why, column=".data", rows=rows)
    grads = (engine.grad(p), engine.grad(q))
    if any(grads):
        rows = tuple(Row(n, x, 0.0, y) for n, x, y in zip("pq", got, grads, strict=True))
        idea = "gradients go back to 0 before the next pass"
        return Finding(
            "a_training_step", "wrong", idea, why, "p.grad = 0.0", "not_reset", rows=rows
        )
    return Finding("a_training_step", "right")


@trap(9)
def training(engine: Engine) -> Finding:
    """A small network learns exclusive or with your engine."""
    neuron, step = _asked(engine, "neuron"), _asked(engine, "train_step")
    if neuron is None or step is None:
        return Finding("training", "missing", "neuron and train_step")
    rng = random.Random(1)
    hidden = [[engine.number(rng.uniform(-1, 1)) for _ in range(3)] for _ in range(4)]
    last = [engine.number(rng.uniform(-1, 1)) for _ in range(5)]
    parameters = [*_flat(hidden), *last]
    data = [((-1.0, -1.0), -1.0), ((-1.0, 1.0), 1.0), ((1.0, -1.0), 1.0), ((1.0, 1.0), -1.0)]

    def loss() -> Any:
        total = engine.number(0.0)
        for point, target in data:
            x = [engine.number(c) for c in point]
            inner = [neuron(w[:2], x, w[2]) for w in hidden]
            miss = engine.apply("add", neuron(last[:4], inner, last[4]), engine.number(-target))
            total = engine.apply("add", total, engine.apply("mul", miss, miss))
        return total

    try:
        first = engine.data(loss())
        for _ in range(60):
            result = loss()
            engine.backward(result)
            step(parameters, 0.1)
        end = engine.data(loss())
    except Exception as error:
        return Finding("training", "wrong", "code that runs", error=describe(error))
    if end < 0.2 * first:
        return Finding("training", "right")
    rows = (Row("loss", first, 0.2 * first, end),)
    why = "After 60 steps the loss should be less than a fifth of what it was."
    return Finding("training", "wrong", "a loss that falls", why, column="the loss", rows=rows)


def _right_softmax(xs: list[Value]) -> list[Value]:
    exps = [functions.exp(x) for x in xs]
    total = sum(exps, Value(0.0))
    return [e / total for e in exps]


def _right_attention(query: list[Value], keys: list[Any], values: list[Any]) -> list[Value]:
    scale = 1.0 / math.sqrt(len(query))
    scores = [
        sum((q * k for q, k in zip(query, key, strict=True)), Value(0.0)) * scale for key in keys
    ]
    weights = _right_softmax(scores)
    return [
        sum((w * v[i] for w, v in zip(weights, values, strict=True)), Value(0.0))
        for i in range(len(values[0]))
    ]


@trap(10)
def a_softmax(engine: Engine) -> Finding:
    """softmax(xs): positive shares that add up to 1."""
    why = "exp of each, divided by the sum of them all."
    arguments = ([0.5, -1.0, 2.0],)
    return _called(
        "a_softmax", engine, "softmax", arguments, _right_softmax, "shares of a sum", why
    )


@trap(10)
def an_attention(engine: Engine) -> Finding:
    """attention(query, keys, values): what is looked for decides what is taken."""
    why = (
        "Scores are query · key / √n, their softmax are the weights, and the result is the "
        "weighted sum of the values."
    )
    keys, values = [[1.0, 0.0], [0.5, -1.0], [0.0, 2.0]], [[1.0, 2.0], [-1.0, 0.5], [3.0, 0.0]]
    arguments = ([0.5, -0.25], keys, values)
    idea = "weights from queries and keys, then a weighted sum"
    return _called("an_attention", engine, "attention", arguments, _right_attention, idea, why)


@trap(11)
def a_gpt(engine: Engine) -> Finding:
    """A tiny GPT learns a word with your engine."""
    from chainrule.see.lessons.tiny_gpt import TinyGPT

    attention, softmax, step = (
        _asked(engine, name) for name in ("attention", "softmax", "train_step")
    )
    if attention is None or softmax is None or step is None:
        return Finding("a_gpt", "missing", "attention, softmax and train_step")
    if not engine.has("log"):
        return Finding("a_gpt", "missing", "log")
    mine = TinyGPT(engine.number, engine.apply, attention, softmax)
    right = TinyGPT(Value, apply, _right_attention, _right_softmax)
    try:
        losses = []
        for _ in range(40):
            loss = mine.loss()
            losses.append(engine.data(loss))
            engine.backward(loss)
            step(mine.parameters, 0.5)
    except Exception as error:
        return Finding("a_gpt", "wrong", "code that runs", error=describe(error))
    expected = []
    for _ in range(40):
        value = right.loss()
        expected.append(value.data)
        value.backward()
        for p in right.parameters:
            p.data -= 0.5 * p.grad
            p.grad = 0.0
    shown = (0, 1, 10, 39)
    rows = tuple(Row(f"step {i + 1}", expected[i], expected[i], losses[i]) for i in shown)
    if any(row.wrong for row in rows):
        why = "The same weights and the same steps give these losses."
        return Finding(
            "a_gpt", "wrong", "the same loss, step by step", why, column="the loss", rows=rows
        )
    return Finding("a_gpt", "right")
