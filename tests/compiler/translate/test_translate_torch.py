"""``to_torch``: the text of its source, its values and gradients, and torch's own tools.

Every translation was compared with eager's value and gradient, to 1e-9, before it was returned:
the tests below that only translate something rely on that. Those of the text need no torch.
"""

import sys

import numpy as np
import pytest
from test_translate import (
    LIFTED,
    MODELS,
    SCALE,
    benchmark_program,
    branching,
    layered,
    normal,
    with_chance,
)
from translate_fuzz import outcome

import chainrule
from chainrule import TranslationError, exp, relu, tanh, where
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.translate.dialects import DIALECTS
from chainrule.compiler.translate.function import recorded_call, signature_of, source_of
from chainrule.core import ops

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def translated(function, *example, **options):
    return chainrule.compile(function).to_torch(*example, **options)


def text(function, *example):
    """The source alone, which takes no torch."""
    recorded = recorded_call(function, flatten_call(example, {}, True))
    return source_of(recorded, signature_of(function, recorded, False), DIALECTS["torch"]).text


def tensors(tree, kind=None):
    if isinstance(tree, dict):
        return {key: tensors(item, kind) for key, item in tree.items()}
    return torch.tensor(np.asarray(tree), dtype=kind or torch.float64, requires_grad=True)


# --- text -----------------------------------------------------------------------------------------


def test_a_layer_is_one_line_of_torch():
    def layer(p, points):
        rows = list(zip(p["W"], p["b"], strict=True))
        return sum(
            sum(relu(sum(w * x for w, x in zip(row, point, strict=True)) + b) for row, b in rows)
            for point in points
        )

    source = text(layer, {"W": normal(1, 5, 3), "b": normal(2, 5)}, normal(3, 4, 3))
    assert "import torch\n" in source
    assert 'a = torch.relu(torch.einsum("tj,ij->ti", points, W) + b)\n' in source
    assert "chainrule." not in source.split('"""', 2)[2]
    compile(source, "source", "exec")


def test_what_torch_writes_in_another_way():
    def f(x, y, ts):
        near = sum(tanh(sum(y[j] * x[i + j] for j in range(3))) for i in range(8))
        back = sum(exp(x[9 - i]) * x[i] for i in range(10))
        return near + back + sum(where(x[t] > 0.5, 2.0, 0.1) * SCALE[t] for t in ts)

    source = text(f, normal(1, 10), normal(2, 3), [1, 2, 3])
    assert "x.flip(0)" in source  # no slices with a negative step
    assert "windows(x, 0, 8, 3)" in source
    assert "dtype=torch.float64)" in source  # a table keeps all of its digits
    assert "NUMBERS.to(x)[ts]" in source  # on the device of the arguments
    assert "x.new_tensor(2.0), 0.1)" in source
    assert "np." not in source


def test_without_torch_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    words = r"to_torch needs torch: pip install 'chainrule\[torch\]'"
    with pytest.raises(TranslationError, match=words):
        translated(lambda p: p[0] * 2, [1.0])


# --- value and gradient ---------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("name", [*LIFTED[1:], "pendulum"])
def test_benchmark_programs_come_out_without_tables_of_places(name):
    program = benchmark_program(name)
    model = translated(program.loss, program.params, *program.samples[0])
    assert "PLACES" not in model.source


@needs_torch
@pytest.mark.parametrize(
    ("function", "arguments"), MODELS, ids=lambda x: getattr(x, "__name__", "")
)
def test_models_are_translated(function, arguments):
    model = translated(function, *arguments)
    expected = chainrule.value_and_grad(function)(*arguments)[0]
    assert float(model(*arguments)) == pytest.approx(expected, rel=1e-9)


@needs_torch
@pytest.mark.parametrize("seed", range(20, 32))
def test_random_structured_programs_have_eagers_value_and_gradient(seed):
    assert outcome(seed, "torch") == "same"


@needs_torch
def test_all_operations_have_eagers_value_and_gradient():
    unary = [op for op in ops.TABLE.values() if op.arity == 1 and not op.is_operator]
    pairs = [op for op in ops.TABLE.values() if op.arity == 2 and op.name not in ("where", "pow")]

    def f(rows):
        total = 0
        for x, y, z in rows:
            total = total + sum(op(z if op.name == "acosh" else x, *op.defaults) for op in unary)
            total = total + sum(op(x, y) for op in pairs)
            total = total + where(x < y, x * z, y) + x**2.5 + x**-3
        return total

    assert len(unary) > 30
    translated(f, [[0.3 + 0.01 * k, 0.6 + 0.01 * k, 1.7] for k in range(4)])


EDGES = [(op, edge) for op in ops.TABLE.values() for edge in op.edges]


@needs_torch
@pytest.mark.parametrize(("op", "edge"), EDGES, ids=lambda x: getattr(x, "name", ""))
def test_derivatives_at_edges_are_the_tables(op, edge):
    def f(p):
        return op(*p[: len(edge.operands)], *edge.parameters)

    model = translated(f, list(edge.operands))
    p = tensors(edge.operands)
    model(p).backward()
    assert p.grad.numpy() == pytest.approx(np.array(edge.partials))


@needs_torch
@pytest.mark.parametrize(
    ("function", "example", "others"),
    [
        (
            lambda p, ts: sum(tanh(p[t + 1]) * SCALE[t] for t in ts[:-1]),
            ([0.1, 0.2, 0.3, 0.4, 0.5], [1, 3, 2, 2, 0, 1]),
            ([0, 0, 1, 3, 3, 2],),
        ),
        (
            lambda p, ts: sum((p[max(t, 1)] * 3 + t * 2) ** 2 * (t == 2) for t in ts),
            ([0.1, 0.2, 0.3], [1, 0, 2]),
            ([2, 2, 2], [0, 1, -1]),
        ),
    ],
)
def test_integers_select_and_compute(function, example, others):
    model = translated(function, *example)
    for integers in others:
        expected = chainrule.value_and_grad(function)(example[0], integers)[0]
        assert float(model(np.array(example[0]), integers)) == pytest.approx(expected, rel=1e-12)


@needs_torch
def test_an_index_out_of_range_raises():
    model = translated(lambda p, ts: sum(exp(p[t]) for t in ts), [1.0, 2.0], [0, 1, 1])
    with pytest.raises(IndexError):
        model([1.0, 2.0], [0, 1, 2])


@needs_torch
def test_the_first_of_equal_numbers_gets_the_derivative():
    model = translated(lambda p: max(p) * 2 + min(p[:2]) + sum(p), [3.0, 3.0, 1.0])
    p = tensors([3.0, 3.0, 1.0])
    model(p).backward()
    assert p.grad.tolist() == [4.0, 1.0, 1.0]


@needs_torch
def test_branches_sizes_and_lengths():
    either = translated(branching, [1.0, 2.0], [0.5, 1.5], specialise=True)
    assert either([1.0, 2.0], [0.5, 1.5])[1]
    assert not either([1.0, 2.0], [1.5, 0.5])[1]
    both = translated(branching, [1.0, 2.0], [0.5, 1.5], specialise=[([1.0, 2.0], [1.5, 0.5])])
    for xs in ([0.5, 1.5], [1.5, 0.5]):
        value, valid = both([1.0, 2.0], xs)
        assert valid
        assert float(value) == chainrule.value_and_grad(branching)([1.0, 2.0], xs)[0]

    def mean(p, xs, ts):
        return sum(tanh(p["w"][t] * x) for x, t in zip(xs, ts, strict=True)) / len(xs)

    def example(n):
        return {"w": normal(1, 3)}, normal(2, n), [k % 3 for k in range(n)]

    padded = translated(mean, *example(6), lengths=True)
    params, xs, ts = example(6)
    expected = chainrule.value_and_grad(mean)(params, xs[:4], ts[:4])[0]
    assert float(padded(params, [*xs[:4], 7.0, 7.0], [*ts[:4], 0, 0], 4)) == pytest.approx(expected)
    free = chainrule.compile(mean).to_torch(sizes=example)
    expected = chainrule.value_and_grad(mean)(*example(31))[0]
    assert float(free(*example(31))) == pytest.approx(expected, rel=1e-9)


# --- torch's own tools ----------------------------------------------------------------------------


@needs_torch
def test_a_gpt_with_backward_and_vmap():
    program = benchmark_program("gpt-8")
    model = translated(program.loss, program.params, *program.samples[0])
    eager = chainrule.value_and_grad(program.loss)
    tokens = np.array([sample[0] for sample in program.samples[:2]])
    expected = [eager(program.params, row.tolist()) for row in tokens]
    for row, (value, gradient) in zip(tokens, expected, strict=True):
        params = tensors(program.params)
        loss = model(params, torch.tensor(row))
        loss.backward()
        assert loss.item() == pytest.approx(value, rel=1e-9)
        for name, slopes in gradient.items():
            assert params[name].grad.numpy() == pytest.approx(slopes, rel=1e-9, abs=1e-12)
    params = tensors(program.params)
    rows = torch.func.vmap(model.function, (None, 0))(params, torch.tensor(tokens))
    assert rows.tolist() == pytest.approx([value for value, _ in expected], rel=1e-9)
    step = torch.func.vmap(torch.func.grad(model.function), (None, 0))
    slopes = step(params, torch.tensor(tokens))["wq"][1]
    assert slopes.detach().numpy() == pytest.approx(expected[1][1]["wq"], rel=1e-9, abs=1e-12)
    single = model(tensors(program.params, torch.float32), torch.tensor(tokens[0]))
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(expected[0][0], rel=1e-4)


@needs_torch
def test_random_numbers_are_chainrules_own():
    example = {"w": 0.5, "b": 2.0}, [0.1 * k for k in range(300)]
    model = translated(with_chance, *example, chainrule.random.key(1))
    key = chainrule.random.key(2**40 + 5)
    expected = chainrule.value_and_grad(with_chance)(*example, key)[0]
    for kind in (torch.float64, torch.float32):
        found = model(*[tensors(x, kind) for x in (*example, key)])
        assert found.item() == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="random numbers need a key, and parameters, of float32"):
        model(*[tensors(x, torch.bfloat16) for x in (*example, key)])


@needs_torch
def test_lists_of_tensors_keep_their_gradients():
    model = translated(lambda p: sum(tanh(w) * b for w, b in p), [[0.5, 1.0], [2.0, 3.0]])
    with torch.no_grad():  # it is compared with its gradient all the same
        translated(lambda p: sum(tanh(w) * b for w, b in p), [[0.5, 1.0], [2.0, 3.0]])
    p = [[tensors(x) for x in row] for row in ([0.5, 1.0], [2.0, 3.0])]
    model(p).backward()
    assert p[1][0].grad.item() == pytest.approx(3.0 * (1 - np.tanh(2.0) ** 2))


@needs_torch
def test_the_example_may_be_tensors_and_layers_are_a_loop():
    p = [{"W": torch.tensor(normal(k, 4, 4)), "b": torch.tensor(normal(k, 4))} for k in range(6)]
    model = translated(layered, p, torch.tensor(normal(9, 4)))
    assert model.source.count("einsum") == 1
