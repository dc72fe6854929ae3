"""``to_numpy``: array source that means what the function means, reads well, and runs alone."""

import dataclasses
import importlib.util
import itertools
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from structured_programs import Writer
from test_compile_lifted import GPTS, OTHERS, lorenz, normal

import chainrule
from chainrule import TranslationError, exp, log, relu, tanh, where
from chainrule.core import ops

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SEED_PROGRAMS = 60


def translated(function, *example, **options):
    return chainrule.compile(function).to_numpy(*example, **options)


def body(model):
    """The lines of the function after those that read its arguments, without formulas."""
    lines = model.source[model.source.index(f"def {model.__name__}(") :].splitlines()[1:]
    reads = ("= array(", "= integers(", "expect(")
    kept = [line for line in lines if not any(word in line for word in reads)]
    return [line.strip() for line in kept if not line.strip().startswith("#")]


def benchmark_program(name):
    if not BENCHMARKS.exists():
        pytest.skip("there are no benchmarks here")
    if "benchmark_programs" not in sys.modules:  # tests/ has a programs.py too
        sys.path.append(str(BENCHMARKS))
        spec = importlib.util.spec_from_file_location(
            "benchmark_programs", BENCHMARKS / "programs.py"
        )
        assert spec is not None
        sys.modules["benchmark_programs"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["benchmark_programs"])
    return sys.modules["benchmark_programs"].PROGRAMS[name]()


LIFTED = ["gpt-8", "moons", "mixture", "option", "convolution", "rosenbrock", "lorenz", "rnn"]


@pytest.mark.parametrize("name", [*LIFTED, "pendulum"])
def test_benchmark_programs_come_out_without_tables_of_places(name):
    program = benchmark_program(name)
    model = translated(program.loss, program.params, *program.samples[0])
    assert "PLACES" not in model.source
    for sample in program.samples[:3]:
        expected = chainrule.value_and_grad(program.loss)(program.params, *sample)[0]
        assert model(program.params, *sample) == pytest.approx(expected, rel=1e-9)


def test_a_graph_without_structure_is_refused_in_one_line():
    program = benchmark_program("irregular")
    with pytest.raises(TranslationError, match=r"has no numpy source: .*no structure") as error:
        translated(program.loss, program.params)
    assert "\n" not in str(error.value)


MODELS = [
    *[(model, (params(1), [1, 2, 3, 4, 0, 5])) for model, params in GPTS],
    *[(function, arguments(1)) for function, arguments in OTHERS.values()],
    (lorenz, (np.array([1.0, 1.0, 1.0, 10.0, 28.0, 8 / 3]),)),
]


@pytest.mark.parametrize(
    ("function", "arguments"), MODELS, ids=lambda x: getattr(x, "__name__", "")
)
def test_models_are_translated(function, arguments):
    model = translated(function, *arguments)
    expected = chainrule.value_and_grad(function)(*arguments)[0]
    assert model(*arguments) == pytest.approx(expected, rel=1e-9)


def test_random_programs_are_translated():
    for seed in range(SEED_PROGRAMS):
        world = {}
        exec(Writer(random.Random(seed)).source(), world)
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        params = tuple([numbers.normal(size=shape) for shape in (7, 4, (4, 5), (5, 3))])
        ids = [rng.randrange(4) for _ in range(3)]
        model = translated(world["f"], params, ids, 2)
        other = tuple([p * 0.9 + 0.01 for p in params])
        expected = chainrule.value_and_grad(world["f"])(other, ids[::-1], 1)[0]
        assert model(other, ids[::-1], 1) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("op", ops.TABLE.values(), ids=lambda op: op.name)
def test_every_operation_is_translated(op):
    names = {"pow": lambda x: x**2.5, "add": lambda x: x + x, "mul": lambda x: x * x}
    base = 1.5 if op.name == "acosh" else 0.3

    def f(xs):
        if op.name in names:
            return sum(names[op.name](x) for x in xs)
        if op.name == "where":
            return sum(where(x > 0.32, x * x, x) for x in xs)
        if op.name == "power":
            return sum(x**y for x, y in itertools.pairwise(xs))
        if op.arity == 2:
            return sum(op(x, y) for x, y in itertools.pairwise(xs))
        return sum(op(x, *op.defaults) if op.defaults else op(x) for x in xs)

    xs = base + 0.01 * np.arange(6)
    if op.name in ("digamma", "polygamma", "normal_quantile"):
        with pytest.raises(TranslationError, match=f"numpy source has no {op.name}"):
            translated(f, xs)
        return
    expected = chainrule.value_and_grad(f)(xs)[0]
    assert translated(f, xs)(xs) == pytest.approx(expected, rel=1e-12)


# --- how it reads ---------------------------------------------------------------------------------


def test_attention_is_two_products_and_a_mask():
    program = benchmark_program("gpt-8")
    source = translated(program.loss, program.params, *program.samples[0]).source
    assert "CAUSAL = np.arange(8) <= np.arange(8)[:, None]" in source
    assert "    # o[t,h,u≤t] = Σ_i<4 f[t,0,4h+i]·f[u,1,4h+i]  [8×4×≤8]\n" in source
    assert '    f = np.einsum("tj,cij->tci", e[:, None] * d, np.stack([wq, wk, wv]))\n' in source
    assert '    o = np.einsum("thi,uhi->htu", f[:, 0].reshape(8, 4, 4), ' in source
    assert "    result = -np.sum(np.log(e1[np.arange(8), tokens[1:]])) / 8.0\n" in source


def test_a_layer_is_one_line():
    def layer(p, points):
        rows = list(zip(p["W"], p["b"], strict=True))
        return sum(
            sum(relu(sum(w * x for w, x in zip(row, point, strict=True)) + b) for row, b in rows)
            for point in points
        )

    model = translated(layer, {"W": normal(1, 5, 3), "b": normal(2, 5)}, normal(3, 4, 3))
    assert body(model) == [
        'a = relu(np.einsum("tj,ij->ti", points, W) + b)',
        "d = np.sum(a, -1)",
        "result = np.sum(d)",
        "return result",
    ]


def test_axes_that_lie_side_by_side_are_summed_as_one():
    program = benchmark_program("convolution")
    model = translated(program.loss, program.params, *program.samples[0])
    assert '    d = np.einsum("ih,h->i", dense, b.reshape(100)) / 4.0' in model.source


def test_windows_slices_and_strides():
    def f(x, y):
        near = sum(tanh(sum(y[j] * x[i + j] for j in range(3))) for i in range(8))
        pairs = sum((x[2 * i] * x[2 * i + 1]) ** 2 for i in range(5))
        return near + pairs + sum(exp(x[9 - i]) * x[i] for i in range(10))

    model = translated(f, normal(1, 10), normal(2, 3))
    assert "windows(x, 0, 8, 3)" in model.source
    assert "x[::-1]" in model.source
    assert "x[::2]" in model.source
    assert "PLACES" not in model.source


def paths(step):
    """The sum of all prices along several paths."""

    def f(p, xs):
        total = 0
        for path in xs:
            y = p["y"]
            for x in path:
                y = step(p, y, x)
                total = total + y
        return total

    return f


def test_steps_over_many_paths_become_a_loop():
    f = paths(lambda p, y, x: tanh(y * p["a"] + x))
    model = translated(f, {"y": 1.5, "a": 0.3}, normal(1, 7, 12))
    assert any(line.startswith("for xs_now in ") for line in body(model))
    assert sum("np.tanh" in line for line in body(model)) <= 2


def test_products_of_exponentials_and_sums_are_cumulative():
    prices = translated(
        paths(lambda p, y, x: y * exp(p["a"] * x)), {"y": 1.5, "a": 0.3}, normal(1, 7, 12)
    )
    assert body(prices)[0] == "b = y * np.exp(np.cumsum(a * xs, 1))"
    assert "# b[-1,t] = y\n" in prices.source
    walks = translated(
        paths(lambda p, y, x: y + (p["a"] * x) ** 2), {"y": 1.5, "a": 0.3}, normal(1, 7, 12)
    )
    assert not any("for " in line for line in body(walks))


def layered(p, xs):
    for layer in p:
        xs = [
            tanh(sum(w * x for w, x in zip(row, xs, strict=True)) + b)
            for row, b in zip(layer["W"], layer["b"], strict=True)
        ]
    return sum(xs)


def test_equal_layers_become_a_loop_over_their_weights():
    p = [{"W": normal(k, 5, 5), "b": normal(k, 5)} for k in range(6)]
    model = translated(layered, p, normal(9, 5))
    assert sum("einsum" in line for line in body(model)) == 1
    other = [{"W": 0.9 * x["W"], "b": x["b"] + 0.1} for x in p]
    expected = chainrule.value_and_grad(layered)(other, normal(9, 5))[0]
    assert model(other, normal(9, 5)) == pytest.approx(expected, rel=1e-12)


# --- integers -------------------------------------------------------------------------------------

FLAG = [0, 1, 0, 1]
SCALE = (0.5, 2.0, 3.0, -1.0)


@pytest.mark.parametrize(
    ("function", "example", "others"),
    [
        (
            lambda p, ts: sum(p[t] * FLAG[t] for t in ts),
            ([1.0, 2.0, 3.0, 4.0], [1, 3, 2, 2]),
            ([0, 0, 3, 1], [-1, 2, 3, -2]),
        ),
        (
            lambda p, ts: sum(tanh(p[t + 1]) * SCALE[t] for t in ts[:-1]),
            ([0.1, 0.2, 0.3, 0.4, 0.5], [1, 3, 2, 2, 0, 1]),
            ([0, 0, 1, 3, 3, 2],),
        ),
        (
            lambda p, ts: sum((p[t] * 3 + t * 2) ** 2 * (t == 2) for t in ts),
            ([0.1, 0.2, 0.3], [1, 0, 2]),
            ([2, 2, 2], [0, 1, -1]),
        ),
    ],
)
def test_integers_select_and_compute(function, example, others):
    model = translated(function, *example)
    for integers in others:
        expected = chainrule.value_and_grad(function)(example[0], integers)[0]
        assert model(example[0], integers) == pytest.approx(expected, rel=1e-12)


def test_an_index_out_of_range_raises():
    model = translated(lambda p, ts: sum(exp(p[t]) for t in ts), [1.0, 2.0], [0, 1, 1])
    with pytest.raises(IndexError):
        model([1.0, 2.0], [0, 1, 2])


# --- random numbers -------------------------------------------------------------------------------


def with_chance(p, xs, chance):
    kept = chainrule.random.dropout([p["w"] * x for x in xs], 0.3, chance)
    key = chainrule.random.fold_in(chance, 7)
    return sum(kept) + sum(p["b"] * chainrule.random.uniform(key, k) for k in range(5))


def test_random_numbers_are_chainrules_own():
    example = {"w": 0.5, "b": 2.0}, [0.1 * k for k in range(300)]
    model = translated(with_chance, *example, chainrule.random.key(1))
    for key in (chainrule.random.key(2), chainrule.random.key(2**40 + 5)):
        expected = chainrule.value_and_grad(with_chance)(*example, key)[0]
        assert model(*example, key) == pytest.approx(expected, rel=1e-12)


# --- what depends on one case ---------------------------------------------------------------------


def branching(p, xs):
    total = p[0]
    for x in xs:
        total = total * x if total > x else total + x
    return total * p[1]


def test_a_branch_is_refused_with_its_line():
    with pytest.raises(TranslationError, match=r"a branch at test_translate.py:\d+ .*specialise"):
        translated(branching, [1.0, 2.0], [0.5, 1.5])


def test_a_specialised_translation_says_whether_it_holds():
    model = translated(branching, [1.0, 2.0], [0.5, 1.5], specialise=True)
    for p, xs in (([1.0, 2.0], [0.5, 1.5]), ([1.2, -3.0], [0.7, 1.9])):
        value, valid = model(p, xs)
        assert valid
        assert value == chainrule.value_and_grad(branching)(p, xs)[0]
    assert not model([1.0, 2.0], [1.5, 0.5])[1]


def test_a_static_integer_is_refused_and_specialised():
    def f(p, n):
        return sum(x**2 for x in p[:n]) if n > 1 else p[0]

    with pytest.raises(TranslationError, match=r"an integer is static|a branch on integers"):
        translated(f, [1.0, 2.0, 3.0], 2)
    model = translated(f, [1.0, 2.0, 3.0], 2, specialise=True)
    assert model([1.0, 2.0, 3.0], 2) == (5.0, True)
    assert not model([1.0, 2.0, 3.0], 3)[1]


# --- arguments and results ------------------------------------------------------------------------


def test_other_shapes_lengths_and_words_are_refused():
    def f(p, xs, how="tanh"):
        scale = len(p["unused"])
        return sum(tanh(p["w"] * x) if how == "tanh" else x * p["w"] for x in xs) * scale

    p = {"w": 0.5, "unused": [1.0, 2.0]}
    model = translated(f, p, [1.0, 2.0, 3.0], how="tanh")
    assert model(p, [1.0, 2.0, 3.0], "tanh") == model(p, np.ones(3) * [1, 2, 3], how="tanh")
    for wrong in (
        ({"w": 0.5, "unused": [1.0, 2.0, 3.0]}, [1.0, 2.0, 3.0], "tanh"),
        (p, [1.0, 2.0], "tanh"),
        (p, [1.0, 2.0, 3.0], "relu"),
        ({**p, "more": 1.0}, [1.0, 2.0, 3.0], "tanh"),
    ):
        with pytest.raises(ValueError, match="this source is for"):
            model(*wrong)


def by_isinstance(p, xs):
    return sum(p[0] * x for x in xs) if isinstance(xs, list) else p[1] * xs[0]


def by_type(p, xs, kind=type):
    return sum(p[0] * x for x in xs) if kind(xs) is list else p[1] * xs[0]


def by_class(p, xs):
    return sum(p[0] * x for x in xs) if xs.__class__ is list else p[1] * xs[0]


def by_attribute(p, xs):
    return sum(p[0] * x for x in xs) if not hasattr(xs, "shape") else p[1] * xs[0]


def by_match(p, xs):
    match xs:
        case [first, *_]:
            return p[0] * first
    return p[1] * xs[0]


@pytest.mark.parametrize("f", [by_isinstance, by_type, by_class, by_attribute, by_match])
def test_a_source_insists_on_the_types_that_its_function_may_ask_for(f):
    p, others = np.array([0.4, 0.6]), {}
    for xs in ([1.0, 2.0], (1.0, 2.0), np.array([1.0, 2.0])):
        others[type(xs)] = translated(f, p, xs)
    for xs in ([1.5, 2.0], (1.5, 2.0), np.array([1.5, 2.0])):
        for kind, model in others.items():
            if kind is type(xs):
                assert model(p, xs) == pytest.approx(float(f(p, xs)), rel=1e-12)
                continue
            with pytest.raises(ValueError, match=r"this source is for '.*': translate it again"):
                model(p, xs)


def test_types_inside_of_arguments_are_looked_at_too():
    def f(p, rows):
        return sum(p[isinstance(row, list)] * row[0] for row in rows["rows"])

    p = [0.4, 0.6]
    model = translated(f, p, {"rows": [[1.0, 2.0], [3.0, 4.0]]})
    assert model(p, {"rows": [[2.0, 0.0], [3.0, 4.0]]}) == pytest.approx(3.0)
    for rows in ([(1.0, 2.0), (3.0, 4.0)], [[1.0, 2.0], (3.0, 4.0)], np.ones((2, 2))):
        with pytest.raises(ValueError, match="this source is for 'list of list of number'"):
            model(p, {"rows": rows})


def test_lists_and_arrays_stand_for_each_other_where_nobody_asks():
    model = translated(lambda p, xs: sum(p[0] * x for x in xs), [2.0], [1.0, 2.0])
    assert model(np.array([2.0]), np.array([1.0, 2.0])) == model([2.0], (1.0, 2.0)) == 6.0
    assert "container_types" not in model.source


def test_types_are_asked_for_in_sources_of_any_size_and_of_padded_lists():
    p = np.array([0.4, 0.6])
    examples = [(p, [0.5 * k for k in range(n)]) for n in (4, 5, 6, 7)]
    model = chainrule.compile(by_isinstance).to_numpy(sizes=examples)
    assert model(p, [1.0] * 9) == pytest.approx(3.6)
    with pytest.raises(ValueError, match="not 'array'"):
        model(p, np.ones(9))
    padded = chainrule.compile(by_isinstance).to_numpy(p, [1.0, 2.0, 3.0], lengths=True)
    assert padded(p, np.array([1.0, 2.0, 9.0]), 2) == pytest.approx(1.2)


def test_constants_from_outside_are_listed():
    rate = 0.25
    model = translated(lambda p, ts: sum(p[t] * SCALE[t] * rate for t in ts), [1.0, 2.0], [0, 1, 1])
    head = model.source[: model.source.index("import")]
    assert "Constants, as they were in its surroundings: SCALE = (0.5, 2.0, 3.0, -1.0)" in head
    assert "rate = 0.25" in head


def test_a_loop_may_read_through_a_table():
    def lotka_volterra(p, steps=20):
        prey, predators = p[4], p[5]
        for _ in range(steps):
            born, eaten = p[0] * prey, p[1] * prey * predators
            grown, died = p[2] * prey * predators, p[3] * predators
            prey = prey + (born - eaten) * 0.01
            predators = predators + (grown - died) * 0.01
        return prey + predators * 2

    p = [1.1, 0.4, 0.1, 0.4, 10.0, 5.0]
    model = translated(lotka_volterra, p)
    assert "for _ in range(" in model.source
    other = [x * 1.1 for x in p]
    expected = chainrule.value_and_grad(lotka_volterra)(other)[0]
    assert model(other) == pytest.approx(expected, rel=1e-12)


def test_the_returned_tree_is_the_functions():
    def f(p, xs):
        return p["a"] * sum(xs), {"w": p["b"].data, "l": [p["a"] * 1, (p["b"] * 2, None)]}

    model = translated(f, {"a": 1.5, "b": 2.0}, [1.0, 2.0])
    assert model({"a": 1.5, "b": 2.0}, [1.0, 2.0]) == (4.5, {"w": 2.0, "l": [1.5, (4.0, None)]})


def test_dataclasses_are_read_by_their_fields():
    @dataclasses.dataclass
    class Model:
        w: list
        b: float

    def f(m, xs):
        return sum(w * x for w, x in zip(m.w, xs, strict=True)) + m.b

    m = Model([1.0, 2.0], 3.0)
    assert translated(f, m, [1.0, 1.0])(m, [2.0, 3.0]) == 11.0


def test_integers_among_the_parameters_do_not_overflow():
    def f(p):
        return sum(x**40 for x in p)

    assert translated(f, [3, 4, 5, 6])([3, 4, 5, 6]) == pytest.approx(
        sum(x**40 for x in range(3, 7))
    )


# --- bad use --------------------------------------------------------------------------------------


def test_bad_use_ends_in_one_clear_line():
    outside = chainrule.Value(2.0)
    row = [1.0, 2.0]
    cases = [
        (lambda p: p[0], (), "needs example arguments"),
        (lambda p: random.random() * p[0], ([1.0],), "runs eagerly"),
        (lambda p: p[0] * outside, ([1.0],), "outside"),
        (lambda p, rows: p[0] * rows[0][0], ([1.0], [row, row]), "comes twice"),
        (lambda p, np: p[0] * np, ([1.0], 2.0), "has the name np"),
        (lambda p: [x * 2 for x in p], ("text",), "not everything in its first argument"),
    ]
    for function, example, words in cases:
        with pytest.raises(TranslationError, match=words) as error:
            translated(function, *example)
        assert "\n" not in str(error.value)


def test_a_function_that_raises_with_the_example_raises_its_own_error():
    with pytest.raises(ValueError, match="log"):
        translated(lambda p: log(p[0]), [-1.0])


# --- without chainrule ----------------------------------------------------------------------------


def test_a_saved_module_runs_without_chainrule(tmp_path):
    model = translated(lambda p, xs: sum(tanh(p * x) for x in xs), 0.5, [1.0, 2.0])
    model.save(tmp_path / "model.py")
    code = "import sys; sys.modules['chainrule'] = None; import model; "
    code += f"print(model.{model.__name__}(0.5, [1.0, 2.0]))"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(found.stdout) == model(0.5, [1.0, 2.0])
    assert repr(model) == f"<{model.__name__} in numpy, {len(model.source.splitlines())} lines>"


def test_a_table_by_number_is_refused_in_words():
    def f(p, n):
        return p[0] * n + math.lgamma(n + 1)

    with pytest.raises(chainrule.TranslationError, match="an integer is looked up in a dict"):
        chainrule.compile(f, lift=True).to_numpy(np.array([0.1, 0.2]), 3)
