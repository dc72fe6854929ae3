"""``to_c``: C99 that compiles without a warning and gives eager's numbers, or says why not."""

import itertools
import math
import random
import shutil
import subprocess

import c_fuzz
import compiled_c
import numpy as np
import pytest
from compiled_c import Compiled, leaves
from test_compile_lifted import Writer
from test_translate import benchmark_program

import chainrule
from chainrule import TranslationError, exp, floor, log, sqrt, tanh, where
from chainrule.core import ops

pytestmark = pytest.mark.skipif(
    compiled_c.skip_reason() is not None, reason=str(compiled_c.skip_reason())
)
OK, OTHER_BRANCH, BAD_INTEGER, UNSURE, UNDEFINED = range(5)
CLOSE = 1e-12


def to_c(function, *example, **keywords):
    return chainrule.compile(function).to_c(*example, **keywords)


def compiled(function, *example):
    return Compiled(to_c(function, *example), "-O1")


def flat(tree):
    return np.concatenate([np.ravel(np.asarray(x, float)) for x in leaves(tree)])


def agrees(model, function, *arguments):
    """Value and gradient are eager's, to 1e-12 of the largest."""
    status, value, grad = model.value_and_grad(*arguments)
    expected, slopes = chainrule.value_and_grad(function)(*arguments)
    assert status == OK
    assert model.value(*arguments) == (OK, value)
    assert value == pytest.approx(expected, rel=CLOSE, abs=CLOSE)
    slopes = flat(slopes)
    assert np.abs(grad - slopes).max() <= CLOSE * max(1.0, np.abs(slopes).max())


# --- programs -------------------------------------------------------------------------------------

LIFTED = ["gpt-8", "moons", "mixture", "option", "convolution", "rosenbrock", "lorenz", "rnn"]


@pytest.mark.parametrize("name", [*LIFTED, "pendulum"])
def test_benchmark_programs_have_eagers_value_and_gradient(name):
    program = benchmark_program(name)
    source = to_c(program.loss, program.params, *program.samples[0])
    assert "PLACES" not in source.source, "every place has a formula"
    model = Compiled(source, "-O1")
    for sample in program.samples[:2]:
        agrees(model, program.loss, program.params, *sample)


def kalman(params, measured):
    noise, error, decay = exp(params[0]), exp(params[1]), params[2]
    mean, variance, likelihood = 0.0, 1.0, 0.0
    for y in measured:
        mean, variance = decay * mean, decay * decay * variance + noise
        spread = variance + error
        gain, surprise = variance / spread, y - mean
        likelihood = likelihood - 0.5 * (log(spread) + surprise * surprise / spread)
        mean, variance = mean + gain * surprise, (1 - gain) * variance
    return likelihood


def test_a_filter_is_a_loop_in_time():
    measured = np.sin(np.arange(30.0))
    source = to_c(kalman, [0.1, 0.2, 0.9], measured)
    assert "for (int t = 0; t < 29; t++) {" in source.source
    assert "for (int t = 29 - 1; t >= 0; t--) {" in source.source
    agrees(Compiled(source, "-O1"), kalman, [0.3, -0.2, 0.7], measured)


def without_structure(xs):
    chance, nodes = random.Random(3), list(xs)
    for _ in range(560):
        a, b = chance.choice(nodes[-40:]), chance.choice(nodes)
        what = chance.randrange(6)
        if what == 0:
            nodes.append(a * b)
        elif what == 1:
            nodes.append(a - b * 0.5)
        elif what == 2:
            nodes.append(tanh(a + b))
        elif what == 3:
            nodes.append(exp(-a * a))
        elif what == 4:
            nodes.append(sqrt(b * b + 1.0))
        else:
            nodes.append(where(xs[0] < xs[1], a * 0.5, b.sin()))
    return sum(nodes[-30:])


def test_a_graph_without_structure_is_written_operation_by_operation():
    xs = np.random.default_rng(0).normal(size=8)
    source = to_c(without_structure, xs)
    assert "backward2(" in source.source, "a long function is written as several"
    agrees(Compiled(source, "-O0"), without_structure, xs * 0.9)


def cholesky(p):
    n = 5
    a = [[p[abs(i - j)] * (4.0 if i == j else 1.0) for j in range(n)] for i in range(n)]
    low = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = a[i][j] - sum(low[i][k] * low[j][k] for k in range(j))
            low[i][j] = sqrt(rest) if i == j else rest / low[j][j]
    return sum(log(low[i][i]) for i in range(n))


def test_what_is_lifted_in_steps_comes_out_too():
    agrees(compiled(cholesky, [3.0, 0.5, 0.2, 0.1, 0.3]), cholesky, [2.0, 0.4, 0.3, 0.1, 0.2])


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed):
    world = {}
    exec(Writer(random.Random(seed)).source(), world)
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    params = tuple([numbers.normal(size=shape) for shape in (7, 4, (4, 5), (5, 3))])
    ids = [rng.randrange(4) for _ in range(3)]
    model = Compiled(to_c(world["f"], params, ids, 2), "-O0")
    agrees(model, world["f"], tuple([p * 0.9 + 0.01 for p in params]), ids[::-1], 1)


SANITIZED = {1: 4, 3: 4, 4: 1, 12: 3}  # programs, and how many of four calls have numbers


def test_random_programs_under_sanitizers():
    """More of them: ``python tests/compiler/translate/c_fuzz.py --programs 100``."""
    if c_fuzz.skip_reason() is not None:
        pytest.skip(c_fuzz.skip_reason())
    found = {seed: c_fuzz.examine(seed) for seed in SANITIZED}
    assert found == {seed: f"equal in {n} of 4 calls" for seed, n in SANITIZED.items()}


# --- operations -----------------------------------------------------------------------------------

POINTS = np.array([0.31, 0.47, 0.83])


def every_operation(xs):
    """A number for each row of the table, and for each point where it is defined."""
    found = []
    for op in ops.TABLE.values():
        for x, other in itertools.pairwise([*xs, xs[0]]):
            x = x + 1.2 if op.name == "acosh" else x
            if op.name == "where":
                found.append(where(x > 0.4, x * x, other))
            elif op.name == "pow":
                found += [x**p for p in (0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 2.5, -1.5)]
            elif op.arity == 2:
                found.append(op(x, other))
            else:
                found.append(op(x, *op.defaults))
                if op.domain is None:
                    found.append(op(-1.7 * x, *op.defaults))
    return found


def test_every_operation_and_its_derivatives():
    source = to_c(every_operation, POINTS)
    expected = chainrule.jacobian(every_operation)(POINTS)
    values = [float(x) for x in every_operation(list(POINTS))]
    status, found, rows = Compiled(source, "-O1").jacobian(len(values), POINTS)
    assert status == OK
    np.testing.assert_allclose(found, values, rtol=CLOSE, atol=CLOSE)
    np.testing.assert_allclose(rows, np.array(expected), rtol=CLOSE, atol=CLOSE)


def test_conventions_where_a_derivative_jumps_or_is_infinite():
    edges = [(op, edge) for op in ops.TABLE.values() for edge in op.edges]
    points = [x for _, edge in edges for x in edge.operands]

    def f(xs):
        found, rest = [], list(xs)
        for op, edge in edges:
            mine, rest = rest[: op.arity], rest[op.arity :]
            power = op.is_operator
            found.append(mine[0] ** edge.parameters[0] if power else op(*mine, *edge.parameters))
        return found

    status, values, rows = Compiled(to_c(f, points), "-O0").jacobian(len(edges), points)
    expected, at = np.zeros((len(edges), len(points))), 0
    for row, (_, edge) in zip(expected, edges, strict=True):
        row[at : at + len(edge.partials)] = edge.partials
        at += len(edge.partials)
    assert status == UNDEFINED  # some of them are infinite
    np.testing.assert_allclose(values, [edge.value for _, edge in edges], atol=1e-15)
    np.testing.assert_allclose(rows, expected, rtol=1e-15)


def test_a_zero_adjoint_passes_nothing_on_to_an_infinite_slope():
    def f(p):
        return sqrt(p[0] * p[1]) + 0.0 * sqrt(p[2]) + where(p[2] > 0, sqrt(p[2]), 0.0)

    status, value, grad = compiled(f, [1.0, 2.0, 3.0]).value_and_grad([0.0, 0.0, 0.0])
    assert (status, value, grad.tolist()) == (OK, 0.0, [0.0, 0.0, 0.0])
    assert chainrule.value_and_grad(f)([0.0, 0.0, 0.0]) == (0.0, [0.0, 0.0, 0.0])


def test_operations_of_the_users_own():
    @chainrule.operation(partials=lambda y, x: (exp(x) - exp(-x)) * 0.5)
    def double(x):  # a keyword of C
        return (exp(x) + exp(-x)) * 0.5

    def f(xs):
        return sum(double(x) * x for x in xs)

    agrees(compiled(f, np.arange(4.0)), f, np.arange(4.0) - 1.5)


# --- several results ------------------------------------------------------------------------------


def test_several_results_have_a_jacobian():
    def f(p, x):
        return {"a": [p["w"][i] * x[i] ** 2 for i in range(3)], "b": p["c"].data, "n": 2.0}

    params, x = {"w": np.array([1.0, 2.0, 3.0]), "c": 0.5}, np.array([1.0, -1.0, 2.0])
    status, values, rows = compiled(f, params, x).jacobian(5, params, x)
    assert (status, values.tolist()) == (OK, [1.0, 2.0, 12.0, 0.5, 2.0])
    expected = np.zeros((5, 4))
    expected[[0, 1, 2], [0, 1, 2]] = x**2
    assert rows.tolist() == expected.tolist()


def test_extras_are_values_without_a_gradient():
    def f(p, x):
        y = p[0] * x + p[1]
        return y * y, [y, 7.0]

    status, values, grad = compiled(f, [1.5, 2.0], 3.0).value_and_grad([1.5, 2.0], 3.0, count=3)
    assert (status, values.tolist(), grad.tolist()) == (OK, [42.25, 6.5, 7.0], [39.0, 13.0])


def test_truths_among_extras_are_numbers():
    def f(p, token):
        return p[token] * 2, [token > 1, True, p[0] > p[1], token + 1]

    p = [1.0, 3.0, 2.0]
    status, values, _ = compiled(f, p, 2).value_and_grad(p, 2, count=5)
    assert (status, values.tolist()) == (OK, [4.0, 1.0, 1.0, 0.0, 3.0])


# --- calls that are not like the example ----------------------------------------------------------


def test_another_branch_is_a_status_and_no_number():
    def f(p):
        return p[0] * p[0] if p[0] > p[1] else p[1] * 2

    model = compiled(f, [2.0, 1.0])
    agrees(model, f, [3.0, 1.0])
    status, value, grad = model.value_and_grad([1.0, 3.0])
    assert status == OTHER_BRANCH
    assert np.isnan([value, *grad]).all()
    assert model.value([1.0, 3.0])[0] == OTHER_BRANCH


def test_many_branches():
    def f(xs):
        total = 0.0
        for x in xs:
            y = x * x - 1
            total = total + (y if y > 0 else -2 * y)
        return total

    xs = np.linspace(-2, 2, 12)
    model = compiled(f, xs)
    agrees(model, f, xs * 1.01)
    assert model.value(xs * 0)[0] == OTHER_BRANCH
    xs[0] = -1 - 1e-13  # the comparison of a computed number that rounding may decide
    assert model.value(xs)[0] == UNSURE


def test_a_jump_that_rounding_may_decide():
    def f(p):
        return floor(p[0] * 3) + p[0] * p[1]

    model = compiled(f, [1.1, 2.0])
    agrees(model, f, [1.2, 2.0])
    assert model.value([1.0, 2.0]) == (UNSURE, 5.0)


def test_undefined_numbers_are_not_finite():
    model = compiled(lambda p: log(p[0]) + p[1], [1.0, 2.0])
    status, value, _ = model.value_and_grad([-1.0, 2.0])
    assert status == UNDEFINED
    assert math.isnan(value)


TABLE = [3, 1, 2, 0]
NUMBERS = [0.5, 0.25, 1.5, 2.0]
LOOKUP = {0: 1, 1: 3, 2: 2, 3: 0}


def with_integers(p, a, n):
    total = p[a[0]] * p[TABLE[a[1]]] + (n - 2) * p[1]
    for x in a:
        total = total + p[(x * x + n) % 5] * NUMBERS[x] + p[-x] + p[LOOKUP[x]] * max(x, n)
        total = total + p[abs(x - 2)] + p[x // 2] + p[(x << 1) % 3] + p[x & 1] + p[(x ^ 1) >> 1]
        total = total + p[(x < n) + (x >= 2)] + p[min(x, n, 3)] + p[(x**2 | 1) % 6] + p[~x]
    return total if n > 0 else total * 2


def test_integers_are_computed_as_python_does():
    p = np.arange(1.0, 7.0) / 3
    model = compiled(with_integers, p, [1, 2, 3, 0], 2)
    statuses = set()
    for a in itertools.product((0, 3, -1, -2, 5), (0, 2), (1, 3), (0,)):
        for n in (2, 1, 5, -1, 2**40):
            status, value, grad = model.value_and_grad(p, list(a), n)
            statuses.add(status)
            try:
                expected, slopes = chainrule.value_and_grad(with_integers)(p, list(a), n)
            except (IndexError, KeyError):
                assert status == BAD_INTEGER
                continue
            assert status == (OK if n > 0 else OTHER_BRANCH)
            if status == OK:
                assert value == pytest.approx(expected, rel=CLOSE)
                np.testing.assert_allclose(grad, slopes, rtol=CLOSE)
            else:
                assert np.isnan([value, *grad]).all()
    assert statuses == {OK, OTHER_BRANCH, BAD_INTEGER}
    assert model.value(p, [2**62, 2, 3, 0], 2)[0] == BAD_INTEGER  # its square has 125 bits


def test_tokens_out_of_range_and_from_the_end():
    def f(table, tokens):
        return sum(row[t] * row[t] for row, t in zip(table, tokens, strict=True))

    table = np.arange(12.0).reshape(3, 4)
    model = compiled(f, table, [0, 1, 2])
    agrees(model, f, table, [3, -1, -4])
    assert model.value_and_grad(table, [3, 4, 0])[0] == BAD_INTEGER
    assert model.value(table, [0, 0, -5])[0] == BAD_INTEGER


@pytest.mark.parametrize(
    "function",
    [
        lambda p, tokens, k: p[tokens[k]] ** 2,
        lambda p, tokens, k: p[tokens[k % 4]] * p[1],
        lambda p, tokens, k: p[tokens[TABLE[k]]] + p[tokens[tokens[k]]],
        lambda p, tokens, k: p[0] * float(tokens[k]) + p[tokens[k]],
    ],
)
def test_a_passed_list_is_read_by_a_passed_integer(function):
    p, tokens = np.arange(1.0, 7.0), [1, 0, 2, 3]
    model = compiled(function, p, tokens, 1)
    for k in range(-3, 4):
        for chosen in (tokens, [3, 2, 1, 0]):
            try:
                chainrule.value_and_grad(function)(p, chosen, k)
            except (IndexError, KeyError):
                assert model.value(p, chosen, k)[0] == BAD_INTEGER
            else:
                agrees(model, function, p, chosen, k)
    assert model.value(p, [9, 9, 9, 9], 0)[0] == BAD_INTEGER


def test_a_static_integer_is_a_branch():
    model = compiled(lambda p, n: sum(p[i] * i for i in range(n)), [1.0, 2.0, 3.0], 3)
    assert model.value([1.0, 2.0, 3.0], 3) == (OK, 8.0)
    assert model.value([1.0, 2.0, 3.0], 2)[0] == OTHER_BRANCH


# --- files and names ------------------------------------------------------------------------------


def test_names_of_arguments_are_made_fit_for_c():
    def double(int, work, σ, unused):
        return int[0] * work + exp(σ["λ"]) * int[1] + σ["*/ a"] + σ["sum"] * σ["a"]

    example = ([1.0, 2.0], 4.0, {"λ": 0.5, "*/ a": 1.0, "sum": 2.0, "a": 3.0}, ["x", 2.0])
    source = to_c(double, *example)
    assert "int double__value(" in source.header
    assert "    double lambda;\n    double a;\n    double sum;\n    double a_;\n" in source.header
    model = Compiled(source, "-O1")
    status, value, grad = model.value_and_grad(*example[:3], 2.0)
    assert (status, grad.tolist()) == (OK, [4.0, math.exp(0.5)])
    assert value == pytest.approx(11.0 + 2.0 * math.exp(0.5))


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler (g++)")
def test_it_compiles_as_cpp_and_in_gnu_mode(tmp_path):
    program = benchmark_program("gpt-8")
    to_c(program.loss, program.params, *program.samples[0]).save(tmp_path / "model.c")
    for command in (["g++", "-x", "c++", "-std=c++11"], [compiled_c.compiler(), "-std=gnu99"]):
        strict = ["-Wall", "-Wextra", "-Werror", "-c", "model.c", "-o", "model.o"]
        made = subprocess.run(
            [*command, *strict], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr


def test_save_writes_a_header_of_the_same_name(tmp_path):
    source = to_c(kalman, [0.1, 0.2, 0.9], [0.5, 0.25])
    source.save(tmp_path / "filter.c")
    assert (tmp_path / "filter.h").read_text(encoding="utf-8") == source.header
    assert '#include "filter.h"\n' in (tmp_path / "filter.c").read_text(encoding="utf-8")
    assert '#include "kalman.h"\n' in source.source
    with pytest.raises(ValueError, match=r"ends in \.c, not 'filter\.py'"):
        source.save(tmp_path / "filter.py")


def test_the_header_names_constants_and_the_structure_of_the_example():
    source = to_c(with_integers, np.arange(6.0), [1, 2, 3, 0], 2)
    assert "TABLE = [3, 1, 2, 0]" in " ".join(source.header.replace(" * ", " ").split())
    assert "these lengths, no others" in source.header


def test_what_has_no_source_is_refused_in_one_line():
    opaque = chainrule.operation(math.sin, name="g", partials=lambda y, x: x, opaque=True)
    weight = chainrule.Value(2.0)
    cases = [
        (lambda p: opaque(p[0]), "C has no g: it is no formula"),
        (lambda p: p[0] * weight, "it reads weight from outside: pass it as an argument"),
        (lambda p: "nothing", "it returns no number that it computes"),
        (lambda p: p[0] * random.random(), "runs eagerly"),
    ]
    for function, reason in cases:
        with pytest.raises(TranslationError) as error:
            to_c(function, [1.0])
        assert reason in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(TranslationError, match="needs example arguments"):
        to_c(kalman)
