"""Programs in steps: triangular and shrinking loops, tables, and whatever has no equal shapes."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import Value, exp, log, maximum, sin, sqrt, tanh
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.lift import alignment, commands, interpreter, schedule
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.graph import NotLiftable
from chainrule.compiler.lift.powers import with_powers_alike
from chainrule.compiler.runtime.machine import MachineCode
from chainrule.compiler.runtime.tape import executor

pytest.importorskip("llvmlite")

# --- programs ------------------------------------------------------------------------------------


def tree(n):
    """An option that may be exercised early: each step has one price less than the one before."""

    def price(x):
        up, down, strike = x[0], x[1], x[2]
        prices = [x[3] * up**k * down ** (n - k) for k in range(n + 1)]
        values = [maximum(strike - s, 0.0) for s in prices]
        for step in range(n - 1, -1, -1):
            prices = [s * up for s in prices[: step + 1]]
            values = [
                maximum(0.99 * (0.6 * values[k + 1] + 0.4 * values[k]), strike - prices[k])
                for k in range(step + 1)
            ]
        return values[0]

    return price, (np.array([1.03, 0.97, 1.1, 1.0]),)


def cholesky(n):
    """The likelihood of a Gaussian process."""
    xs = np.random.default_rng(n).normal(size=n).tolist()

    def likelihood(theta):
        matrix = [
            [
                theta[0] * exp(-(((a - b) / theta[1]) ** 2)) + (theta[2] if a == b else 0.0)
                for b in xs
            ]
            for a in xs
        ]
        factor: list[list[Any]] = []
        for i in range(n):
            factor.append([])
            for j in range(i + 1):
                s = matrix[i][j]
                for k in range(j):
                    s = s - factor[i][k] * factor[j][k]
                if i != j:
                    s = s / factor[j][j]
                factor[i].append(sqrt(s) if i == j else s)
        solved: list[Any] = []
        for i in range(n):
            rest = xs[i] - sum(factor[i][k] * solved[k] for k in range(i))
            solved.append(rest / factor[i][i])
        total = sum(z * z for z in solved) + theta[0]
        return total + sum(log(factor[i][i]) for i in range(n))

    return likelihood, (np.array([1.2, 0.7, 0.5]),)


def elimination(n):
    """Gauss, then the sum of squares of the solution."""
    rng = np.random.default_rng(n)

    def solve(a, b):
        a, b = [list(row) for row in a], list(b)
        for k in range(n):
            for i in range(k + 1, n):
                factor = a[i][k] / a[k][k]
                for j in range(k, n):
                    a[i][j] = a[i][j] - factor * a[k][j]
                b[i] = b[i] - factor * b[k]
        x: list[Any] = [0.0] * n
        for i in range(n - 1, -1, -1):
            x[i] = (b[i] - sum(a[i][j] * x[j] for j in range(i + 1, n))) / a[i][i]
        return sum(v * v for v in x) * 0.5 + sum(b)

    return solve, (rng.normal(size=(n, n)) + n * np.eye(n), rng.normal(size=n))


def jordan(n):
    """Gauss and Jordan: every row but one changes in each step."""
    rng = np.random.default_rng(n)

    def solve(a):
        rows = [[*row, 1.0] for row in a]
        for k in range(n):
            pivot = rows[k][k]
            rows[k] = [x / pivot for x in rows[k]]
            for i in range(n):
                if i != k:
                    factor = rows[i][k]
                    rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
        return sum(row[n] ** 2 for row in rows)

    return solve, (rng.normal(size=(n, n)) + n * np.eye(n),)


def warping(n):
    """Soft dynamic time warping: a table whose diagonals are independent."""
    rng = np.random.default_rng(n)

    def distance(a, b):
        table: list[list[Any]] = [[10.0] * (n + 1) for _ in range(n + 1)]
        table[0][0] = 0.0
        for i in range(1, n + 1):
            for j in range(1, n + 1):
                near = [table[i - 1][j], table[i][j - 1], table[i - 1][j - 1]]
                softest = log(sum(exp(-x) for x in near))
                table[i][j] = (a[i - 1] - b[j - 1]) ** 2 - softest
        return table[n][n]

    return distance, (rng.normal(size=n), rng.normal(size=n))


def best_path(n):
    """The best path through a table, with Python's own max."""
    rng = np.random.default_rng(n)

    def score(a):
        row = [a[0][0] * (0.1 * j) for j in range(n)]
        for i in range(n):
            row = [max(row[max(0, j - 1) : j + 2]) + tanh(a[i][j]) for j in range(n)]
        return max(row)

    return score, (rng.normal(size=(n, n)),)


def fourier(n):
    """A fast Fourier transform of 2**n numbers, and its power."""
    size = 2**n

    def transform(re, im):
        if len(re) == 1:
            return re, im
        even, odd = (transform(re[k::2], im[k::2]) for k in (0, 1))
        half = len(re) // 2
        low, high = [], []
        for k in range(half):
            angle = -math.pi * k / half
            c, s = math.cos(angle), math.sin(angle)
            x, y = odd[0][k] * c - odd[1][k] * s, odd[0][k] * s + odd[1][k] * c
            low.append((even[0][k] + x, even[1][k] + y))
            high.append((even[0][k] - x, even[1][k] - y))
        return [x for x, _ in low + high], [y for _, y in low + high]

    def power(xs):
        re, im = transform(list(xs), [x * 0.0 for x in xs])
        pairs = enumerate(zip(re, im, strict=True))
        return sum((k + 1) * (a * a + b * b) ** 2 for k, (a, b) in pairs)

    return power, (np.random.default_rng(n).normal(size=size),)


def random_graph(seed, nodes=300):
    """No structure at all."""
    rng = random.Random(seed)
    plan = [
        (rng.randrange(5), [rng.randrange(6 + k) for _ in range(rng.randrange(2, 8))])
        for k in range(nodes)
    ]

    def f(p):
        made = list(p)
        for kind, at in plan:
            xs = [made[k] for k in at]
            if kind == 0:
                made.append(tanh(xs[0] * xs[1]))
            elif kind == 1:
                made.append(sin(xs[0]) - xs[1] * 0.5)
            elif kind == 2:
                made.append(tanh(sum(xs)))
            elif kind == 3:
                made.append(0.3 * xs[0] * xs[1] - sum(x * xs[0] for x in xs[1:]) * 0.1)
                made[-1] = sin(made[-1])
            else:
                made.append(max(x * (0.9 - 0.01 * k) for k, x in enumerate(xs)))
        return sum(made[-30:])

    return f, (np.random.default_rng(seed).normal(size=6),)


PROGRAMS = [tree, cholesky, elimination, jordan, warping, best_path, fourier]


class Stepped:
    """A call as a program in steps, whether it is worth it or not."""

    def __init__(self, function: Callable[..., Any], arguments: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr(schedule, "NARROW", 0)
        monkeypatch.setattr(schedule, "SHORTEST", 0)
        call = flatten_call(arguments, {}, differentiate=True)
        self.recording = trace(function, survey(function), call).recording
        root = self.recording.result.position
        self.call = RecordedCall.of(call, self.recording, root)
        self.program = schedule.schedule(
            self.call.graph, self.recording, self.call.private, self.call.arrays
        )
        self.inputs = np.zeros(self.recording.inputs)
        call.write(self.inputs[: call.size])

    def on_tape(self, inputs: Any) -> Any:
        """The value and every derivative, with eager's bits."""
        tape, slopes = executor(self.recording), np.zeros(len(inputs))
        tape.run(inputs)
        tape.sweep(self.call.root, 1.0, slopes)
        return np.append(slopes, tape.number(self.call.root))

    def interpreted(self, inputs: Any) -> Any:
        program, nothing = self.program, np.zeros(0, np.int64)
        root = int(program.address[self.call.root])
        arena = interpreter.run(program, inputs, nothing)
        adjoints = interpreter.sweep(program, arena, nothing, root)
        slopes = adjoints[: program.inputs].copy()
        own = program.shared + np.arange(len(program.private))
        slopes[program.private] = adjoints[own]
        return np.append(slopes, arena[root])

    def on_machine(self, machine: MachineCode, inputs: Any) -> Any:
        slopes = np.zeros(len(inputs))
        assert machine.run(machine.fit, np.zeros(0, np.int64), inputs)
        assert machine.sweep(slopes)
        value = machine.number(self.call.root)
        assert value is not None
        return np.append(slopes, value)


def near(found: Any, wanted: Any, limit: float = 1e-12) -> bool:
    return bool(np.abs(found - wanted).max() <= limit * max(1.0, np.abs(wanted).max()))


# --- every stage beside the tape -----------------------------------------------------------------


@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 11])
def test_every_stage_computes_what_the_tape_does(make, n, monkeypatch):
    if make is fourier:
        n = min(n, 5)
    stepped = Stepped(*make(n), monkeypatch)
    stepped.program.verify()
    machines = [
        MachineCode(stepped.call, stepped.program, contract=contract) for contract in (True, False)
    ]
    for seed in range(2):
        noise = np.random.default_rng(seed).normal(size=len(stepped.inputs))
        inputs = stepped.inputs * (1 + 0.01 * seed * noise)
        wanted = stepped.on_tape(inputs)
        assert near(stepped.interpreted(inputs), wanted)
        for machine in machines:
            assert near(stepped.on_machine(machine, inputs), wanted)


@pytest.mark.parametrize("seed", range(6))
def test_irregular_places_are_read_right(seed, monkeypatch):
    stepped = Stepped(*random_graph(seed), monkeypatch)
    stepped.program.verify()
    wanted = stepped.on_tape(stepped.inputs)
    assert near(stepped.interpreted(stepped.inputs), wanted)
    machine = MachineCode(stepped.call, stepped.program)
    assert near(stepped.on_machine(machine, stepped.inputs), wanted)


def test_of_equal_numbers_the_tape_says_which_is_the_largest(monkeypatch):
    function, arguments = best_path(5)
    stepped = Stepped(lambda a: function([[a[0][0] * 0.0] * 5, *a]), arguments, monkeypatch)
    machine = MachineCode(stepped.call, stepped.program)
    assert not machine.run(machine.fit, np.zeros(0, np.int64), stepped.inputs)


@pytest.mark.parametrize("seed", range(20))
def test_runs_come_to_every_point_once(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 40))
    steps = np.sort(rng.integers(0, 4, size=count))
    moves = rng.choice([0, 1, 1, 1, 7], size=(3, count))
    columns = list(
        np.cumsum(np.where(rng.random(count) < 0.7, np.ones((3, 1), int), moves), axis=1)
    )
    starts, lengths, strides = commands._runs(columns, steps)
    assert lengths.sum() == count
    for k, column in enumerate(columns):
        walked = [
            column[a] + strides[k, r] * np.arange(n)
            for r, (a, n) in enumerate(zip(starts, lengths, strict=True))
        ]
        assert np.array_equal(np.concatenate([np.zeros(0, int), *walked]), column)
    for a, n in zip(starts, lengths, strict=True):
        assert len(set(steps[a : a + n].tolist())) == 1


# --- through compile -----------------------------------------------------------------------------


def same_as_eager(fast: Any, function: Callable[..., Any], *arguments: Any) -> None:
    value, slopes = fast.value_and_grad(*arguments)
    leaves = np.vectorize(Value, otypes=[object])(arguments[0])
    result = function(leaves, *arguments[1:])
    result.backward()
    wanted = np.array([leaf.grad for leaf in leaves.ravel()])
    assert near(np.append(slopes, value), np.append(wanted, result.data))


@pytest.mark.parametrize(
    ("make", "n"), [(tree, 40), (cholesky, 24), (elimination, 18), (warping, 12), (fourier, 7)]
)
def test_what_had_no_structure_is_machine_code(make, n):
    function, arguments = make(n)
    fast = chainrule.compile(function, on_fallback="raise", lift=True)
    for factor in (1.0, 1.01):
        same_as_eager(fast, function, arguments[0] * factor, *arguments[1:])
        assert View(fast).ran_machine_code, fast.report()
    assert View(fast).variant.machine.program.steps is not None


@pytest.mark.parametrize("make", [tree, cholesky, elimination, jordan, warping])
def test_no_size_is_too_small(make):
    for n in range(1 if make in (jordan, warping) else 0, 4):
        function, arguments = make(n)
        if len(arguments) > 1 and not n:
            continue  # nothing is returned but the int 0
        fast = chainrule.compile(function, on_fallback="eager", lift=True)
        same_as_eager(fast, function, *arguments)


def test_float32_and_batches_run_in_steps_too():
    function, (theta,) = cholesky(24)

    def scaled(theta, x):
        return function(theta) * x[0] + x[1] * theta[1]

    samples = [(np.array([1.0 + 0.1 * k, 0.3 * k]),) for k in range(11)]
    fast = chainrule.compile(scaled, on_fallback="raise", lift=True)
    mean, slopes = fast.batch_value_and_grad(theta, samples)
    each = [fast.value_and_grad(theta, *sample) for sample in samples]
    assert View(fast).variant.machine.program.steps is not None
    assert near(mean, np.mean([value for value, _ in each]))
    assert near(slopes, np.mean([slope for _, slope in each], axis=0))
    single = chainrule.compile(scaled, dtype="float32", on_fallback="raise", lift=True)
    value, slopes = single.value_and_grad(theta, *samples[3])
    assert View(single).ran_machine_code
    assert near(np.append(slopes, value), np.append(each[3][1], each[3][0]), 1e-4)


def recurrent(params, tokens):
    """A recurrent network over tokens: embeddings are selected in front of each step."""
    hidden = [0.0] * 6
    total = 0.0
    for now, after in pairwise(tokens):
        seen = params["embed"][now]
        hidden = [
            tanh(
                sum(w * h for w, h in zip(row, hidden, strict=True))
                + sum(u * x for u, x in zip(other, seen, strict=True))
            )
            for row, other in zip(params["within"], params["into"], strict=True)
        ]
        scores = [sum(o * h for o, h in zip(row, hidden, strict=True)) for row in params["out"]]
        top = max(s.data for s in scores)
        powers = [exp(s - top) for s in scores]
        total = total + log(sum(powers)) - log(powers[after])
    return total


def network(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    shapes = {"embed": (5, 6), "within": (6, 6), "into": (6, 6), "out": (5, 6)}
    return {name: rng.normal(size=shape) * 0.4 for name, shape in shapes.items()}


@pytest.fixture
def no_loops(monkeypatch):
    """Recurrences are done in steps, as those are in which no loop in time is found."""
    monkeypatch.setattr(alignment, "LOOPS", False)


def test_integers_select_operands_of_steps(no_loops):
    params = network()
    fast = chainrule.compile(recurrent, on_fallback="raise", lift=True)
    tape = chainrule.compile(recurrent, on_fallback="raise", lift=False)
    rng = np.random.default_rng(1)
    for length in (40, 40, 40, 33):
        tokens = rng.integers(0, 5, size=length).tolist()
        found, wanted = (f.value_and_grad(params, tokens) for f in (fast, tape))
        assert View(fast).ran_machine_code, fast.report()
        assert near(found[0], wanted[0])
        assert all(near(found[1][name], wanted[1][name]) for name in params)
    assert View(fast).structures[0].variants[0].machine.program.steps is not None


def test_other_lengths_share_the_machine_code(no_loops):
    rng = np.random.default_rng(4)
    fast = chainrule.compile(recurrent, on_fallback="raise", lift=True)
    tokens = [rng.integers(0, 5, size=length).tolist() for length in (40, 36, 45)]
    params = network()
    for some in tokens:
        fast.value_and_grad(params, some)
        assert View(fast).ran_machine_code, fast.report()
    machines = [variant.machine for variant in View(fast).variants]
    assert len({id(machine) for machine in machines}) == len(tokens)
    assert len({machine.code.forward for machine in machines}) == 1


def test_a_program_in_steps_trains(no_loops):
    rng = np.random.default_rng(2)
    samples = [(rng.integers(0, 5, size=36).tolist(),) for _ in range(6)]
    losses = []
    for lift in (True, False):
        params = network(3)
        fast = chainrule.compile(recurrent, on_fallback="raise", lift=lift)
        losses.append(fast.train(params, samples, chainrule.optim.SGD(params, lr=0.05), 12))
        if lift:
            assert View(fast).structures[0].variants[0].machine.program.steps is not None
    assert near(losses[0], losses[1], 1e-9)


# --- what eager does at the edges ----------------------------------------------------------------


def test_a_product_that_overflows_raises_though_a_small_number_scales_it():
    def f(x):
        total = x[0]
        for k in range(40):
            total = tanh(total * x[k % 3]) + 1e-200 * (x[3] * x[4]) + x[(k * 7) % 5] * x[0]
        return total

    fast = chainrule.compile(f, on_fallback="eager", lift=True)
    fine = np.array([0.3, 0.2, 0.1, 1e100, 1e90])
    same_as_eager(fast, f, fine)
    with pytest.raises(OverflowError):
        fast.value_and_grad(np.array([0.3, 0.2, 0.1, 1e200, 1e190]))


def test_an_undefined_value_in_a_step_raises_what_eager_raises():
    function, (theta,) = cholesky(24)
    fast = chainrule.compile(function, on_fallback="raise", lift=True)
    fast.value_and_grad(theta)
    assert View(fast).ran_machine_code
    with pytest.raises(ValueError, match="sqrt"):
        fast.value_and_grad(np.array([1.2, 0.7, -2.0]))
    assert np.isfinite(fast.value_and_grad(theta)[0])


def test_what_goes_one_by_one_or_has_no_runs_is_left_to_the_tape():
    def chain(x):
        total = x[0]
        for k in range(900):
            total = tanh(total * x[(k * k) % 7]) if k % 11 else sin(total) + x[k % 3]
        return total

    for function, arguments in ((chain, (np.ones(7) * 0.5,)), random_graph(1, 3000)):
        fast = chainrule.compile(function, on_fallback="raise", lift=True)
        fast.value_and_grad(*arguments)
        assert not View(fast).ran_machine_code
        assert "not lifted" in fast.report()


def test_a_step_that_reads_what_comes_later_is_found(monkeypatch):
    stepped = Stepped(*warping(4), monkeypatch)
    program = stepped.program
    assert program.steps is not None
    program.steps[[0, -1]] = program.steps[[-1, 0]]
    with pytest.raises(NotLiftable, match="comes later"):
        program.check_order()


# --- powers with many exponents -------------------------------------------------------------------


def american(n, extreme):
    """The tree, with each price a power of its own."""

    def price(x):
        up, strike = x[0], x[1]
        down = 1.0 / up
        values = [extreme(strike - x[2] * up**k * down ** (n - k), 0.0) for k in range(n + 1)]
        for step in range(n - 1, -1, -1):
            for k in range(step + 1):
                held = 0.99 * (0.6 * values[k + 1] + 0.4 * values[k])
                values[k] = extreme(held, strike - x[2] * up**k * down ** (step - k))
        return values[0]

    return price


@pytest.mark.parametrize("extreme", [max, maximum])
def test_powers_with_many_exponents_are_one_instruction(extreme):
    price = american(30, extreme)
    fast = chainrule.compile(price, on_fallback="raise", lift=True)
    for x in ([1.03, 1.1, 1.0], [1.01, 0.9, 1.2], [1.2, 3.0, 2.0]):
        value, gradient = fast.value_and_grad(x)
        wanted, slopes = chainrule.value_and_grad(price)(x)
        assert value == pytest.approx(wanted, rel=1e-12)
        assert gradient == pytest.approx(slopes, rel=1e-10)
    assert "array instructions, done in" in fast.report()


def shrinking_powers(exponents):
    def f(x):
        values = [a**p for p in exponents for a in x]
        while len(values) > 1:
            values = [0.5 * a + 0.5 * tanh(b) for a, b in pairwise(values)]
        return values[0]

    return f


@pytest.mark.parametrize(
    "exponents",
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
        [-1, -2, -3, -4, -5, 0.0, -0.0, 1, 2, 3, 4, 5],
        [0.5, 1.5, 2.5, -0.5, 0, 1, 1e-3, 7.25, 11, 12, 13.5],
    ],
)
def test_bases_of_any_sign_and_size_as_eager_has_them(exponents):
    """Powers of zero, of negative numbers and of nearly nothing; what is undefined raises."""
    f = shrinking_powers(exponents)
    fast = chainrule.compile(f, on_fallback="eager", lift=True)
    eager = chainrule.value_and_grad(f)
    fast.value_and_grad([0.3, 0.7, 1.1])
    assert "lifted" in fast.report()
    for x in (
        *([1.5, 0.2, 0.9], [-1.5, 0.2, 0.9], [0.0, 1.0, 2.0], [-0.0, -1.0, 2.0]),
        *([1e-30, 1e30, 1.0], [5e-324, 1.0, 1.0], [1.0, 1.0, 1.0], [-3.0, -0.5, -1e-3]),
    ):
        try:
            wanted, slopes = eager(x)
        except (ValueError, ZeroDivisionError, OverflowError, ArithmeticError) as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                fast.value_and_grad(x)
            continue
        value, gradient = fast.value_and_grad(x)
        assert value == pytest.approx(wanted, rel=1e-12, abs=1e-300)
        assert gradient == pytest.approx(slopes, rel=1e-11, abs=1e-300, nan_ok=True)


def test_a_few_exponents_stay_parameters():
    f = shrinking_powers([2, 3])
    call = flatten_call(([0.5] * 12,), {}, differentiate=True)
    recording = trace(f, survey(f), call).recording
    assert with_powers_alike(recording) is recording
    f = shrinking_powers(range(12))
    recording = trace(f, survey(f), call).recording
    alike = with_powers_alike(recording)
    alike.verify()
    assert str(alike) == str(recording).replace(" pow ", " number_power ")
