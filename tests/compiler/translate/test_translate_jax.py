"""``to_jax``: value and gradient of translated programs, and what JAX may do with them.

Every translation was compared with eager's value and gradient, to 1e-9, before it was returned:
the tests below that only translate something rely on that.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from test_translate import LIFTED, benchmark_program, branching, layered, normal, with_chance
from translate_fuzz import outcome

import chainrule
from chainrule import TranslationError, exp, gpt, tanh, where
from chainrule.core import ops

jax = pytest.importorskip("jax")
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "from-scalars-to-a-gpu.md"
jnp = jax.numpy


def translated(function, *example, **options):
    return chainrule.compile(function).to_jax(*example, **options)


def flat(tree):
    leaves = [tree[key] for key in tree] if isinstance(tree, dict) else list(tree)
    return np.concatenate([np.ravel(x) for x in leaves])


@pytest.mark.parametrize("name", [*LIFTED, "pendulum"])
def test_benchmark_programs_come_out_without_tables_of_places(name):
    program = benchmark_program(name)
    model = translated(program.loss, program.params, *program.samples[0])
    assert "PLACES" not in model.source
    assert ("lax.scan" in model.source) is (name in ("lorenz", "pendulum", "rnn"))


def test_a_gpt_under_jit_grad_and_vmap():
    program = benchmark_program("gpt-8")
    model = translated(program.loss, program.params, *program.samples[0])
    eager = chainrule.value_and_grad(program.loss)
    tokens = np.array([sample[0] for sample in program.samples[:2]])
    with jax.enable_x64(True):
        step = jax.jit(jax.value_and_grad(model))
        expected = [eager(program.params, row.tolist()) for row in tokens]
        for row, (value, gradient) in zip(tokens, expected, strict=True):
            found, slopes = step(program.params, row)
            assert found == pytest.approx(value, rel=1e-9)
            ordered = {name: slopes[name] for name in gradient}
            assert flat(ordered) == pytest.approx(flat(gradient), rel=1e-9, abs=1e-12)
        batch = jax.jit(jax.vmap(model, (None, 0)))(program.params, tokens)
        assert batch == pytest.approx([value for value, _ in expected], rel=1e-9)
    single = jax.jit(model)(program.params, tokens[0])
    assert single.dtype == jnp.float32
    assert single == pytest.approx(expected[0][0], rel=1e-4)


@pytest.mark.skipif(not PAGE.exists(), reason="there are no docs here")
def test_the_page_shows_the_source_there_is():
    config = gpt.Config(width=16, heads=4, block=8)

    def loss(weights, tokens):
        return gpt.GPT.of(config, weights).loss(tokens)

    weights = gpt.GPT(config, vocabulary=27).arrays()
    model = translated(loss, weights, [26, 1, 2, 3, 4, 5, 6, 7, 26])
    shown = PAGE.read_text().split("these are its formulas:")[1].split("What the source")[0]
    formulas, source = shown.split("and this is the JAX source:")
    for line in [x for x in source.splitlines() if " = " in x]:
        assert f"    {line}\n" in model.source
    for line in [x for x in formulas.splitlines() if " = " in x]:
        assert f"# {line.split('  ')[0]}  " in model.source


@pytest.mark.skipif(not PAGE.exists(), reason="there are no docs here")
def test_the_readme_shows_the_source_there_is():
    _, example, *_ = (ROOT / "README.md").read_text().split("```python\n", 2)
    namespace = {}
    exec(example.split("```")[0], namespace)
    points, targets = np.zeros((50, 2)), np.zeros(50)
    source = namespace["loss"].to_jax(namespace["params"], points, targets).source
    shown = example.split("`loss.to_jax(...)`")[1].split("```text\n")[1].split("```")[0]
    assert len(shown.splitlines()) == 6
    assert shown in source


@pytest.mark.parametrize("seed", range(12))
def test_random_structured_programs_have_eagers_value_and_gradient(seed):
    assert outcome(seed, "jax") == "same"


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


@pytest.mark.parametrize(("op", "edge"), EDGES, ids=lambda x: getattr(x, "name", ""))
def test_derivatives_at_edges_are_the_tables(op, edge):
    def f(p):
        return op(*p[: len(edge.operands)], *edge.parameters)

    model = translated(f, list(edge.operands))
    with jax.enable_x64(True):
        found = jax.grad(model)(np.array(edge.operands))
    assert found == pytest.approx(np.array(edge.partials))


def test_the_first_of_equal_numbers_gets_the_derivative():
    def f(p):
        return max(p) * 2 + min(p[:2]) + sum(p)

    model = translated(f, [3.0, 3.0, 1.0])
    assert jax.grad(model)(np.array([3.0, 3.0, 1.0])).tolist() == [4.0, 1.0, 1.0]


def test_the_example_may_be_arrays_of_jax():
    model = translated(lambda p, xs: p["w"] * sum(xs), {"w": jnp.float32(2.0)}, jnp.arange(3.0))
    assert model({"w": 3.0}, jnp.arange(3.0)) == 9.0


def test_data_pass_no_gradient_on():
    def f(p):
        top = max(x.data for x in p)
        return sum(exp(x - top) for x in p) * p[0].data

    model = translated(f, [0.5, 1.0, 0.25])
    assert "stop_gradient" in model.source


def test_an_index_out_of_range_gives_nan_and_a_negative_one_counts_from_the_end():
    model = translated(lambda p, ts: sum(tanh(p[t]) for t in ts), [1.0, 2.0, 3.0], [0, 1, 1])
    assert np.isnan(jax.jit(model)(np.array([1.0, 2.0, 3.0]), np.array([0, 1, 3])))
    last, minus = ([0, 1, k] for k in (2, -1))
    p = np.array([1.0, 2.0, 3.0])
    assert model(p, np.array(last)) == model(p, np.array(minus))


def test_a_specialised_translation_is_valid_or_not_under_jit():
    model = jax.jit(translated(branching, [1.0, 2.0], [0.5, 1.5], specialise=True))
    assert model(np.array([1.0, 2.0]), np.array([0.5, 1.5]))[1]
    assert not model(np.array([1.0, 2.0]), np.array([1.5, 0.5]))[1]


def test_random_numbers_are_exact_in_float32_and_refused_in_less():
    example = {"w": 0.5, "b": 2.0}, [0.1 * k for k in range(300)]
    model = translated(with_chance, *example, chainrule.random.key(1))
    key = chainrule.random.key(2**40 + 5)
    xs, single = np.array(example[1]), {name: np.float32(x) for name, x in example[0].items()}
    expected = chainrule.value_and_grad(with_chance)(*example, key)[0]
    assert jax.jit(model)(single, xs, key.astype(np.float32)) == pytest.approx(expected, rel=1e-5)
    half = {name: jnp.bfloat16(x) for name, x in example[0].items()}
    with pytest.raises(ValueError, match="random numbers need a key, and parameters, of float32"):
        model(half, xs, key)


def test_windows_of_images_are_convolutions():
    def convolved(maps, kernels, step):
        span = range((len(maps[0]) - 3) // step + 1)
        terms = [(c, i, j) for c in range(len(maps)) for i in range(3) for j in range(3)]
        return [
            [
                [
                    sum(
                        k[c][i][j] * maps[c][step * y + i][step * x + j] for c, i, j in terms
                    ).tanh()
                    for x in span
                ]
                for y in span
            ]
            for k in kernels
        ]

    def network(params, images, targets):
        total = 0
        for image, target in zip(images, targets, strict=True):
            maps = convolved(convolved([image], params["a"], 1), params["b"], 2)
            total = total + (sum(v for map_ in maps for row in map_ for v in row) - target) ** 2
        return total

    rng = np.random.default_rng(0)
    params = {"a": rng.normal(size=(3, 1, 3, 3)), "b": rng.normal(size=(2, 3, 3, 3))}
    # its value and gradient are compared with eager's
    model = chainrule.compile(network).to_jax(params, rng.normal(size=(2, 9, 9)), [0.5, -0.5])
    assert "convolve(images[:, None], a[:, 0][:, None], 1, 1)" in model.source
    assert ", b, 2, 2)" in model.source
    assert "windows(" not in model.source


@pytest.mark.parametrize("count", [12, 20])
def test_many_equal_layers_are_a_loop_and_very_many_a_scan(count):
    p = [{"W": normal(k, 4, 4), "b": normal(k, 4)} for k in range(count)]
    model = translated(layered, p, normal(9, 4))
    assert ("lax.scan" in model.source) is (count == 20)
    assert model.source.count("einsum") == 1


def test_derivatives_by_a_table_are_added_up_in_32_bits():
    def f(table, tokens):
        return sum(table[t] for t in tokens)

    tokens = [1] * 300 + [0] * 9
    model = translated(f, normal(1, 3), tokens)
    half = jax.grad(model.function)(jax.numpy.zeros(3, "bfloat16"), np.array(tokens))
    assert half.dtype == "bfloat16"
    assert half.tolist() == [9.0, 300.0, 0.0]  # 16 bits do not get beyond 256, one at a time


def test_an_exported_model_runs_without_its_source(tmp_path):
    def f(p, xs, ts):
        return sum(tanh(p["w"] * x) for x in xs) * p["t"][ts[0]]

    example = {"w": 0.5, "t": [1.0, 2.0]}, [1.0, 2.0, 3.0], [1]
    model = translated(f, *example)
    model.save(tmp_path / "model.stablehlo")
    loaded = jax.export.deserialize(bytearray((tmp_path / "model.stablehlo").read_bytes()))
    arguments = {"w": jnp.float32(0.7), "t": jnp.array([1.0, 3.0])}, jnp.arange(3.0), jnp.array([0])
    assert float(loaded.call(*arguments)) == pytest.approx(float(model(*arguments)), rel=1e-6)
    with pytest.raises(TranslationError, match="use to_jax"):
        chainrule.compile(f).to_numpy(*example).save(tmp_path / "model.stablehlo")


def test_without_jax_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(TranslationError, match=r"to_jax needs JAX: pip install 'chainrule\[jax\]'"):
        translated(lambda p: p[0] * 2, [1.0])
