"""Runs of independent elements: found, verified, and computed as the interpreter does."""

import ctypes
import random
import threading
from dataclasses import replace

import numpy as np
import pytest

import chainrule
from chainrule import cos, exp, log, sin, sqrt, tanh, where
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.codegen import emit, jit
from chainrule.compiler.lift import strips
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.interpreter import run
from chainrule.compiler.lift.strips import Run, schedule
from chainrule.compiler.runtime.machine import cache_aligned
from chainrule.compiler.runtime.results import lifted_of, wanted_of

WIDTHS = [2, 4, 8]
COUNT = 75  # elements: no multiple of any width


class Case:
    """A function's array program, what it returns, and the numbers of one call."""

    def __init__(self, function, *arguments):
        call = flatten_call(arguments, {}, differentiate=False)
        made = trace(function, survey(function), call)
        recording = lifted_of(made.recording, call, made.captured)
        source = RecordedCall.of(call, recording, wanted_of(recording).position)
        self.program = source.program()
        self.program.verify()
        self.returned = self.program.address[source.returned]
        self.inputs = np.concatenate([np.ravel(x) for x in call.floats])
        self.order = schedule(self.program, int(self.returned[0]), self.returned)
        for one in self.runs:
            one.verify(self.program)
        done = []
        for item in self.order:
            done += item.instructions if isinstance(item, Run) else [item]
        assert sorted(done) == [*range(len(self.program.instructions))]

    @property
    def runs(self):
        return [item for item in self.order if isinstance(item, Run)]

    def machine(self, width, dtype="float64", contract=True, inputs=None, in_strips=True):
        """What machine code returns, and the number that is finite if all is well."""
        program, inputs = self.program, self.inputs if inputs is None else inputs
        returned = self.returned if in_strips else None
        made = emit.machine(program, None, width, None, 1, dtype, contract, returned=returned)
        assert bool(made.stripped) == (in_strips and bool(self.runs))
        library = jit.Library(made.text)
        own = cache_aligned(program.size - program.shared + made.scratch + 16, dtype)
        shared = cache_aligned(program.shared + 16, dtype)
        own[:], shared[:] = np.nan, 7.25  # nothing that is not computed may be read
        own[-16:] = 7.25
        shared[: program.inputs] = inputs
        shared[program.inputs : program.shared] = program.constants
        own[: len(program.private)] = inputs[program.private]
        gathers = np.zeros(1, np.int64)
        counts = np.zeros(max(1, len(made.walks)), np.int64)
        real = ctypes.c_double if dtype == "float64" else ctypes.c_float
        forward = ctypes.CFUNCTYPE(real, *[ctypes.c_void_p] * 4)(library.address("forward"))
        flag = forward(*[x.ctypes.data for x in (shared, own, gathers, counts)])
        assert (own[-16:] == 7.25).all(), "written past the end"
        assert (shared[program.shared :] == 7.25).all()
        places = made.place(self.returned, program.size)
        both = np.concatenate([shared[: program.shared], own])
        return both[places].astype(np.float64), float(flag)

    def check(self, runs=1):
        """Every width, fused and not, in both number types, against the interpreter."""
        assert len(self.runs) == runs, [*map(str, self.runs)]
        wanted = run(self.program, self.inputs, np.zeros(0, np.int64))[self.returned]
        for width in WIDTHS:
            found, flag = self.machine(width, contract=False)
            np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-14)
            assert np.isfinite(flag)
            found, flag = self.machine(width)
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
            assert np.isfinite(flag)
        found, flag = self.machine(16, "float32")
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


RNG = np.random.default_rng(5)
XS = RNG.uniform(0.5, 2.0, COUNT)
PAIRS = RNG.uniform(0.5, 2.0, (COUNT, 2))
ROWS = RNG.uniform(0.5, 2.0, (9, 5))
WHICH = RNG.integers(0, 9, COUNT).tolist()


def chained(xs, a):
    """Every element by itself, with what all of them share."""
    return [sqrt(sin(x * a[0]) ** 2 + a[1] * x + 1.0) * tanh(x) for x in xs]


def by_rows(rows, pairs):
    """Rows of a table that elements select: neighbouring numbers, transposed."""
    found = []
    for k, pair in enumerate(pairs):
        row = rows[WHICH[k]]
        u = row[0] * pair[0] + row[1] * pair[1] + row[2]
        found += [u / (1.0 + u * u), exp(row[3] * u * 0.1) - row[4], u]
    return found


def around(xs):
    """A reduction in the middle: two runs."""
    ys = [x * x * sin(x) + cos(x) for x in xs]
    total = sum(ys)
    return [(y - total) * (y + 1.0) / (1.0 + y * y) for y in ys]


def neighbours(xs):
    """Elements that read each other's numbers: a run before, and one after."""
    ys = [exp(x * 0.1) * x + sin(x) for x in xs]
    return [tanh(ys[k] - ys[k + 1]) * ys[k] + cos(ys[k]) * 0.5 for k in range(len(ys) - 1)]


def edges(xs):
    """The first and the last element have a form of their own."""
    n = len(xs)
    return [
        xs[k] * xs[k] * tanh(xs[k]) - (xs[k - 1] if k else 0.0) - (xs[k + 1] if k + 1 < n else 0.0)
        for k in range(n)
    ]


def largest(pairs):
    """The larger of two numbers of an element."""
    return [max(a * b, a + b, a) * tanh(b) + min(a, b) for a, b in pairs]


def dead(xs):
    """Numbers that nobody reads, a constant, an input, and one that is returned twice."""
    found = []
    for x in xs:
        y = x * x + sin(x)
        found += [y * tanh(y), x, 2.5, y * tanh(y)]
    return found


def backwards(xs):
    """Results in another order than they are computed in."""
    ys = [x * tanh(x) + sin(x) * 2.0 for x in xs]
    return [*ys[::-2], *[y * y for y in ys[1::3]]]


PROGRAMS = [
    (chained, (XS, [0.7, 1.3]), 1),
    (by_rows, (ROWS, PAIRS), 1),
    (around, (XS,), 2),
    (neighbours, (XS,), 2),
    (edges, (XS,), 1),
    (largest, (PAIRS,), 1),
    (dead, (XS,), 1),
    (backwards, (XS,), 1),
]


@pytest.mark.parametrize(
    ("function", "arguments", "runs"), PROGRAMS, ids=[f.__name__ for f, _, _ in PROGRAMS]
)
def test_strips_compute_what_the_interpreter_does(function, arguments, runs):
    Case(function, *arguments).check(runs)


@pytest.mark.parametrize("count", [64, 65, 71, 72, 79, 80])
def test_any_number_of_elements(count):
    xs = np.linspace(0.1, 3.0, count)
    Case(chained, xs, [0.7, 1.3]).check()


@pytest.mark.parametrize("count", [2, 3, 5, 8, 9])
@pytest.mark.parametrize("function", [chained, largest, dead, backwards])
def test_fewer_elements_than_lanes(function, count, monkeypatch):
    monkeypatch.setattr(strips, "LEAST", 2)
    monkeypatch.setattr(strips, "FEWEST", 1)
    arguments = {chained: (XS[:count], [0.7, 1.3]), largest: (PAIRS[:count],)}
    Case(function, *arguments.get(function, (XS[:count],))).check()


def test_a_sum_that_joins_elements_is_undone():
    """Elements that an instruction would have joined are as they were before it."""

    def function(xs):
        ys = [x * x + sin(x) for x in xs]
        sums = [sum(ys[(k + j) % len(ys)] for j in range(40)) for k in range(len(ys))]
        return [y * tanh(y) * cos(y) for y in ys] + [s * s + tanh(s) for s in sums]

    case = Case(function, XS)
    case.check()
    assert {strip.count for run in case.runs for strip in run.strips} == {COUNT}


def test_a_run_prints_what_it_is():
    (found,) = Case(chained, XS, [0.7, 1.3]).runs
    assert str(found).startswith(f"{len(found.instructions)} instructions: {COUNT} × ")
    assert "1 kept" in str(found)


def test_few_elements_are_left_alone():
    assert Case(chained, XS[:40], [0.7, 1.3]).runs == []


def test_elements_that_are_too_large_are_left_alone():
    def long(xs):
        found = []
        for x in xs:
            y = x
            for k in range(400):
                y = y * 0.5 + (x * k) * tanh(x + y) * 0.001
            found.append(y)
        return found

    assert Case(long, XS).runs == []


def test_matrix_products_stay_matrix_products():
    a, b = RNG.normal(size=(70, 70)), RNG.normal(size=70)

    def product(a, b):
        return [sum(x * y for x, y in zip(row, b, strict=True)) for row in a]

    assert Case(product, a, b).runs == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("at", [0, 7, COUNT - 1])
@pytest.mark.parametrize("name", ["chained", "largest", "dead"])
def test_what_is_not_finite_shows_in_any_lane(bad, at, name):
    function, arguments, _ = next(p for p in PROGRAMS if p[0].__name__ == name)
    case = Case(function, *arguments)
    each = 2 if name == "largest" else 1
    inputs = case.inputs.copy()
    inputs[each * at] = bad
    wanted = run(case.program, inputs, np.zeros(0, np.int64))
    for width in WIDTHS:
        _, flag = case.machine(width, inputs=inputs)
        if not np.isfinite(wanted).all():
            assert not np.isfinite(flag)


# --- what verify finds ----------------------------------------------------------------------------


def test_verify_refuses_what_the_instructions_do_not_say():
    case = Case(by_rows, ROWS, PAIRS)
    (found,) = case.runs
    (strip,) = found.strips

    def changed(n, **parts):
        points = [*strip.points]
        points[n] = replace(points[n], **parts)
        return Run(found.instructions, (replace(strip, points=tuple(points)),))

    last = len(strip.points) - 1
    reading = next(n for n, p in enumerate(strip.points) if p.products)
    with pytest.raises(AssertionError):
        changed(reading, products=strip.points[reading].products[::-1]).verify(case.program)
    with pytest.raises(AssertionError):
        changed(last, out=np.roll(strip.points[last].out, 1)).verify(case.program)
    with pytest.raises(AssertionError):
        Run(found.instructions, ()).verify(case.program)
    own = strip.points[0].out
    with pytest.raises(AssertionError, match="an element reads another"):
        changed(last, operands=(own,), products=()).verify(case.program)
    with pytest.raises(AssertionError, match="before it is computed"):
        changed(0, operands=(last,), products=()).verify(case.program)


# --- random programs ------------------------------------------------------------------------------


def random_function(seed):
    """A function of some numbers and a table; mostly element by element, not always."""
    rng = random.Random(seed)
    depth, spread = rng.randint(3, 9), rng.random() < 0.3
    choices = [
        (rng.choice(["mul", "add", "sub", "sin", "tanh", "where", "sqrt", "div", "max", "reduce"]))
        for _ in range(depth)
    ]
    picks = [(rng.random(), rng.random()) for _ in range(depth)]
    which = [rng.randrange(9) for _ in range(200)]
    shift = rng.choice([0, 0, 1, 3])

    def function(xs, table):
        rows = [[x, table[which[k]][k % 2 if spread else 1]] for k, x in enumerate(xs)]
        for choice, (p, q) in zip(choices, picks, strict=True):
            total = sum(row[-1] for row in rows) * 0.01 if choice == "reduce" else None
            new = []
            for k, row in enumerate(rows):
                a = row[int(p * len(row))]
                other = rows[(k + shift) % len(rows)] if spread else row
                b = other[int(q * len(row))]
                new.append(
                    {
                        "mul": lambda a=a, b=b: a * b * 0.5,
                        "add": lambda a=a, b=b: a + b * 0.25,
                        "sub": lambda a=a, b=b: a - b + 0.125,
                        "sin": lambda a=a, b=b: sin(a) * b,
                        "tanh": lambda a=a, b=b: tanh(a + b),
                        "where": lambda a=a, b=b: where(a > b, a * 2.0, b),
                        "sqrt": lambda a=a, b=b: sqrt(a * a + 1.0) - log(b * b + 1.0),
                        "div": lambda a=a, b=b: a / (1.0 + b * b),
                        "max": lambda a=a, b=b: max(a, b),
                        "reduce": lambda a=a, b=b, total=total: a * b + total,
                    }[choice]()
                )
            for row, y in zip(rows, new, strict=True):
                row.append(y)
        return [y for row in rows for y in row[-2:]]

    return function


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_agree_with_eager(seed):
    function = random_function(seed)
    rng = np.random.default_rng(seed)
    xs, table = rng.uniform(-2, 2, rng.integers(64, 90)), rng.uniform(-2, 2, (9, 2))
    case = Case(function, xs, table)
    wanted = run(case.program, case.inputs, np.zeros(0, np.int64))[case.returned]
    for width in WIDTHS:
        found, flag = case.machine(width, contract=False)
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)
        _, usual = case.machine(width, contract=False, in_strips=False)
        assert np.isfinite(flag) == np.isfinite(usual)  # not where numbers tie
    fast = chainrule.compile(function, lift=True)
    slow = chainrule.jacobian(function)(xs, table)
    quick = chainrule.jacobian(fast)
    for _ in range(3):
        np.testing.assert_allclose(quick(xs, table), slow, rtol=1e-10, atol=1e-10)


def test_most_random_programs_have_strips():
    rng = np.random.default_rng(0)
    xs, table = rng.uniform(-2, 2, 70), rng.uniform(-2, 2, (9, 2))
    found = [bool(Case(random_function(seed), xs, table).runs) for seed in range(24)]
    assert sum(found) >= 12


# --- through the whole compiler -------------------------------------------------------------------


def observed(params, features):
    table, points = params
    found = []
    for k, feature in enumerate(features):
        a, b, c, d, e = table[WHICH[k]]
        x, y = points[(3 * k) % len(points)]
        if x > 10.0:
            x = x - 10.0
        r = x * x + y * y
        found += [a * x * (1.0 + b * r) + c - feature[0], d * y * sqrt(1.0 + r) * e - feature[1]]
    return found


def observed_params(seed):
    rng = np.random.default_rng(seed)
    return (rng.uniform(0.5, 2, (9, 5)), rng.uniform(0.5, 2, (30, 2))), rng.normal(size=(COUNT, 2))


def is_stripped(derivative):
    machine = derivative.dispatch.variants[0].machine
    return bool(machine.code.machine.stripped)


@pytest.fixture
def derivative():
    fast = chainrule.compile(observed, lift=True)
    return chainrule.jacobian(fast, sparse=True)


def test_a_sparse_jacobian_is_eagers_for_other_numbers_and_other_branches(derivative):
    eager = chainrule.jacobian(observed, sparse=True)
    for seed in [0, 0, 0, 1, 2]:
        params, features = observed_params(seed)
        found, wanted = derivative(params, features), eager(params, features)
        assert (found.indices == wanted.indices).all()
        np.testing.assert_allclose(found.data, wanted.data, rtol=1e-12)
    params, features = observed_params(3)
    params[1][0, 0] = 12.5  # the branch goes the other way, in one element
    for _ in range(3):
        found, wanted = derivative(params, features), eager(params, features)
        np.testing.assert_allclose(found.data, wanted.data, rtol=1e-12)
    params, features = observed_params(1)
    np.testing.assert_allclose(
        derivative(params, features).data, eager(params, features).data, rtol=1e-12
    )


def test_results_of_a_call_are_not_those_of_the_next(derivative):
    first = derivative(*observed_params(0))
    kept = first.data.copy()
    for seed in range(5):
        derivative(*observed_params(seed))
    assert (first.data == kept).all()


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e308, 0.0])
def test_what_is_not_finite_is_left_to_eager(derivative, bad):
    eager = chainrule.jacobian(observed, sparse=True)
    for _ in range(3):
        derivative(*observed_params(0))
    params, features = observed_params(1)
    params[0][3, 1] = bad
    for given in [(params, features), observed_params(2)]:
        found, wanted = attempted(derivative, given), attempted(eager, given)
        assert isinstance(found, Exception) == isinstance(wanted, Exception)
        if not isinstance(wanted, Exception):
            np.testing.assert_allclose(found.data, wanted.data, rtol=1e-12)


def attempted(function, given):
    try:
        return function(*given)
    except Exception as error:
        return error


def test_threads_get_their_own_results(derivative):
    wanted = {seed: derivative(*observed_params(seed)).data for seed in range(4)}
    wrong = []

    def work(seed):
        for _ in range(50):
            if not np.array_equal(derivative(*observed_params(seed)).data, wanted[seed]):
                wrong.append(seed)

    for _ in range(3):
        derivative(*observed_params(0))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_strips_are_used(derivative, monkeypatch):
    found = []
    original = strips._run
    monkeypatch.setattr(strips, "_run", lambda *a: found.append(original(*a)) or found[-1])
    for _ in range(3):
        derivative(*observed_params(0))
    assert any(isinstance(one, Run) for one in found), derivative.report()


def test_integers_that_vary_with_the_call():
    def picked(p, ids):
        ys = [tanh(p[i]) * p[i] + sin(p[i]) for i in ids]
        return [y * ys[ids[0] % len(ys)] + exp(y * 0.1) for y in ys]

    fast = chainrule.compile(picked, lift=True)
    rng = np.random.default_rng(0)
    quick, slow = chainrule.jacobian(fast), chainrule.jacobian(picked)
    for _ in range(6):
        p, ids = rng.normal(size=20), rng.integers(0, 20, 70).tolist()
        np.testing.assert_allclose(quick(p, ids), slow(p, ids), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(fast(p, ids), picked(p, ids), rtol=1e-12)


def test_lists_of_other_lengths():
    def rated(p, ids):
        return [tanh(p[i] * p[0]) * p[i] + sin(p[i]) * p[1] for i in ids]

    fast = chainrule.compile(rated, lift=True)
    rng = np.random.default_rng(0)
    for count in [100, 100, 100, 90, 70, 65, 64, 63, 20, 100, 120]:
        p, ids = rng.normal(size=20), rng.integers(0, 20, count).tolist()
        for _ in range(2):
            np.testing.assert_allclose(fast(p, ids), rated(p, ids), rtol=1e-12)


def test_saved_and_loaded(tmp_path):
    fast = chainrule.compile(observed, lift=True)
    params, features = observed_params(0)
    for _ in range(3):
        wanted = fast(params, features)
    fast.save(tmp_path / "observed.chainrule")
    loaded = chainrule.load(tmp_path / "observed.chainrule")
    np.testing.assert_allclose(loaded(params, features), wanted, rtol=1e-13)
    other = observed_params(1)
    np.testing.assert_allclose(loaded(*other), observed(*other), rtol=1e-12)
