"""Loops in time on the lifted path: the array program in numpy, and its machine code."""

import random
import sys
import types
from typing import Any

import numpy as np
import pytest
import test_compile_reroll as hidden
from compile_view import View
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from programs import count
from test_compile_reroll import (
    LORENZ,
    Recorded,
    cell,
    error_of,
    euler,
    leapfrog,
    rnn_accumulated,
    rnn_collected,
    rnn_translates,
    runge_kutta,
    sequence,
    weights,
)

import chainrule
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.codegen import registers
from chainrule.compiler.lift import alignment
from chainrule.compiler.lift import interpreter as arrays
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.canonical import NotLiftable, canonicalise, canonicalise_in_python
from chainrule.compiler.lift.loops import find_loops
from chainrule.compiler.runtime.building import machine_code
from chainrule.compiler.runtime.machine import MachineCode
from chainrule.compiler.runtime.results import root_of
from chainrule.compiler.runtime.tape import Interpreter, executor
from chainrule.core import ops
from chainrule.core.backend import kernels

pytest.importorskip("llvmlite")

NOTHING = np.zeros(0, np.int64)


# --- programs -------------------------------------------------------------------------------------


def states_from_further_back(p):
    a, b, c = p["start"]
    for _ in range(60):
        a, b, c = b, c, (a * p["w"] + b).tanh() + c * p["v"]
    return a * b * c


def streamed_backwards(p, xs):
    state = p["start"]
    for x in reversed(xs):
        state = (state * p["w"] + (x * p["v"]).exp()).sin()
    return state


def differences(p, xs):
    """What is made of two iterations, outside of the loop."""
    states, total = [p["start"]], 0
    for x in xs:
        states.append((states[-1] * p["w"] + x * p["v"]).tanh())
    for before, after, x in zip(states, states[1:], xs, strict=False):
        total = total + (after - before) ** 2 * x
    return total


def result_inside(p, xs):
    state, seen = p["start"], []
    for x in xs:
        state = (state * p["w"] + x * p["v"]).tanh()
        seen.append(state)
    return seen[len(seen) // 2] * seen[3]


def total_on_the_way(p, xs):
    state, total = p["start"], 0
    for x in xs:
        state = (state * p["w"] + x + total * 0.1).tanh()
        total = total + state
    return total


def gated(p, xs):
    """Two kinds of state, a maximum and a choice in the loop."""
    states, cells = list(p["start"]), list(p["start"])
    for x in xs:
        mixed = sum(w * h for w, h in zip(p["w"], states, strict=True)) + x
        gates = [(mixed * w + c).sigmoid() for w, c in zip(p["w"], cells, strict=True)]
        cells = [g * c + (1 - g) * mixed.tanh() for g, c in zip(gates, cells, strict=True)]
        states = [
            chainrule.maximum(g * c.tanh(), c * 0.1) for g, c in zip(gates, cells, strict=True)
        ]
    return sum(states) + max(states)


def lasting_maximum(p, xs):
    state = p["start"]
    for x in xs:
        top = max(h * w for h, w in zip(state, p["w"], strict=True))
        state = [(h * x - top).tanh() + h for h in state]
    return sum(state)


def numbers_that_differ(p):
    """A number is zero at first: elsewhere that is the beginning of a sum."""
    state = p["start"]
    for k in range(50):
        state = (state * p["w"] + 0.1 * k).sin() * (1.0 + k)
    return state


def wide(p, xs):
    """States of several widths, each read as a whole."""
    small, large, total = p["small"], p["large"], 0
    for x in xs:
        large = [
            (sum(w * h for w, h in zip(row, small, strict=True)) + x).tanh() for row in p["up"]
        ]
        small = [
            (sum(w * h for w, h in zip(row, large, strict=True)) + h0 * 0.5).tanh()
            for row, h0 in zip(p["down"], small, strict=True)
        ]
        total = total + sum(h * h for h in large) * x
    return total + sum(small)


def wide_params():
    rng = np.random.default_rng(5)
    return {
        "small": rng.normal(size=3),
        "large": rng.normal(size=11),
        "up": rng.normal(0, 0.5, (11, 3)),
        "down": rng.normal(0, 0.3, (3, 11)),
    }


def bouncing(p):
    x, v = p["start"], p["v"]
    for _ in range(60):
        x = x + v * 0.1
        v = v * 0.99 if x < p["wall"] else v * -0.5
        v = v - 0.02 * x
    return x * v


def three_vectors(p, xs):
    """Loops one after another, the later ones reading all of what an earlier one made."""
    state, seen = p["start"], []
    for x in xs:
        state = cell(p, state, x)
        seen.append(state)
    other = p["start"]
    for states in reversed(seen):
        other = [(h * w + g).tanh() for h, w, g in zip(states, p["w_in"], other, strict=True)]
    for states in seen:
        other = [(h * g).sin() for h, g in zip(states, other, strict=True)]
    return error_of(p, other, 0.5)


SMALL = {"start": 0.3, "w": 0.7, "v": -0.4}
XS = np.linspace(-1.0, 1.0, 40)
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "euler": (euler, LORENZ),
    "runge-kutta": (runge_kutta, LORENZ),
    "pendulum": (leapfrog, {"angle": 1.0, "speed": 0.5}),
    "rnn": (rnn_accumulated, weights(), *sequence()),
    "rnn, collected": (rnn_collected, weights(), *sequence()),
    "rnn, 16 wide": (rnn_accumulated, weights(16), *sequence(14)),
    "two loops": (rnn_translates, weights(4), *sequence()),
    "three loops": (three_vectors, weights(4), XS),
    "further back": (states_from_further_back, SMALL | {"start": np.array([0.1, 0.2, 0.3])}),
    "backwards": (streamed_backwards, SMALL, XS),
    "differences": (differences, SMALL, XS),
    "result inside": (result_inside, SMALL, XS),
    "total": (total_on_the_way, SMALL, XS),
    "gates": (gated, {"start": np.array([0.1, -0.2, 0.3]), "w": np.array([0.5, -0.9, 1.1])}, XS),
    "maximum": (lasting_maximum, {"start": np.array([0.3, 1.0]), "w": np.array([0.9, -1.1])}, XS),
    "numbers": (numbers_that_differ, SMALL),
    "wide": (wide, wide_params(), XS),
    "bouncing": (bouncing, SMALL | {"wall": 5.0}),
}


def flat(nest: Any) -> list[float]:
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, list | tuple):
        return [x for item in nest for x in flat(item)]
    return np.asarray(nest, float).ravel().tolist()


class Case:
    """A recording with its numbers, and its derivatives by the interpreter."""

    def __init__(
        self,
        recording: Recording,
        numbers: Any,
        shared: int,
        exact: bool = True,
    ) -> None:
        self.recording = recording
        root = root_of(recording.result)
        assert root is not None
        self.root = root.position
        self.numbers = np.array(numbers)
        self.private = np.arange(shared, len(self.numbers))
        self.source = RecordedCall(recording, self.root, self.private, NOTHING)
        self.interpreter = (Interpreter if exact else executor)(recording)
        self.status = self.interpreter.run(self.numbers)
        self.value = self.interpreter.number(self.root)
        self.wanted = np.zeros(recording.inputs)
        self.interpreter.sweep(self.root, 1.0, self.wanted)

    def agree(self, value: float, gradient: Any, limit: float = 1e-12) -> None:
        scale = max(1.0, abs(self.value), float(np.abs(self.wanted).max()))
        assert abs(value - self.value) <= limit * scale
        assert np.abs(gradient - self.wanted).max() <= limit * scale

    def check_arrays(self) -> Any:
        program = self.source.program()
        arena = arrays.run(program, self.numbers, NOTHING)
        address = int(program.address[self.root])
        found = arrays.sweep(program, arena, NOTHING, address)
        found[program.private] = found[program.shared : program.shared + len(program.private)]
        self.agree(arena[address], found[: program.inputs])
        return program

    def check_machine(self, dtype: str = "float64", limit: float = 1e-12) -> MachineCode:
        lifted = machine_code(self.source, dtype=dtype)
        assert lifted.program.loops
        found = np.zeros(len(self.numbers))
        assert lifted.run(lifted.fit, NOTHING, self.numbers)
        assert lifted.sweep(found)
        value = lifted.number(self.root)
        assert value is not None
        self.agree(value, found, limit)
        return lifted


def case_of(name: str) -> Case:
    function, *given = PROGRAMS[name]
    variant = hidden.variant_of(function, *given)
    shared = len(flat(given[0]))
    return Case(variant.recording, flat(given), shared)


@pytest.fixture(scope="module", params=list(PROGRAMS))
def case(request: Any) -> Case:
    return case_of(request.param)


@pytest.fixture(autouse=True)
def _even_short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "FEW_SHAPES", 0)


@pytest.fixture(params=["registers", "slices"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both ways to emit a loop, whatever its size."""
    most = 10**9 if request.param == "registers" else -1
    monkeypatch.setattr(registers, "MOST_TERMS", most)
    monkeypatch.setattr(registers, "MOST_POINTS", most)
    return request.param


# --- what is checked of each ----------------------------------------------------------------------


def test_both_canonicalisers_make_one_graph(case):
    """The kernel, where there is one, and Python."""
    loops = find_loops(case.recording)
    assert loops
    graph = canonicalise(case.recording, loops=loops)
    again = canonicalise_in_python(case.recording, loops=loops)
    graph.verify()
    for name in ("kinds", "products", "plains", "at", "origin", "signature", "level", "codes"):
        assert getattr(graph, name).tobytes() == getattr(again, name).tobytes(), name


def test_the_array_program_is_the_recording(case):
    program = case.check_arrays()
    assert program.loops
    assert "times:" in str(program)


def test_the_machine_code_is_the_array_program(case, way):
    lifted = case.check_machine()
    program = lifted.program
    program.verify()
    arena = arrays.run(program, case.numbers, NOTHING)
    made = np.concatenate([i.out for i in program.instructions])
    scale = np.maximum(1.0, np.abs(arena[made]))
    found = lifted.code.own[made - program.shared]
    assert (np.abs(found - arena[made]) <= 1e-10 * scale).all()


@pytest.mark.parametrize(("batch", "dtype"), [(4, "float64"), (8, "float64"), (16, "float32")])
@pytest.mark.parametrize("name", ["pendulum", "rnn, 16 wide", "further back", "gates", "wide"])
def test_batches(name, batch, dtype, way):
    case = case_of(name)
    lifted = machine_code(case.source, dtype=dtype)
    kernel, program = lifted.kernel(batch), lifted.program
    rng = np.random.default_rng(3)
    rows = np.tile(case.numbers, (batch, 1))
    rows[:, case.private] += rng.normal(0, 0.1, (batch, len(case.private)))
    kernel.shared[: program.inputs] = case.numbers
    kernel.own[: len(case.private) * batch] = rows[:, case.private].T.ravel()
    kernel.seeds[:] = weights = rng.uniform(0.5, 1.5, batch)
    assert kernel.run(lifted.fit.counts_at)
    assert kernel.sweep(lifted.fit.counts_at)
    wanted, root = np.zeros(len(case.numbers)), (lifted.root - program.shared) * batch
    limit = 1e-12 if dtype == "float64" else 1e-4
    for k, row in enumerate(rows):
        one = Case(case.recording, row, len(row) - len(case.private), exact=False)
        assert abs(kernel.own[root + k] - one.value) <= limit * max(1.0, abs(one.value))
        wanted += one.wanted * weights[k]
        if len(case.private):
            mine = kernel.adjoints[: len(case.private) * batch].reshape(-1, batch)[:, k]
            scale = max(1.0, np.abs(one.wanted).max())
            assert np.abs(mine - weights[k] * one.wanted[case.private]).max() <= limit * scale
    first = len(case.numbers) - len(case.private)
    shared = kernel.shared_adjoints[:first]
    assert np.abs(shared - wanted[:first]).max() <= limit * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("name", ["pendulum", "rnn", "rnn, 16 wide", "wide", "differences"])
def test_float32(name, way):
    case_of(name).check_machine("float32", 1e-5)


def test_loops_are_used_where_there_are_some():
    compiled = chainrule.compile(rnn_accumulated, on_fallback="raise")
    params, (xs, targets) = weights(), sequence()
    for _ in range(3):
        value, grads = compiled.value_and_grad(params, xs, targets)
        leaves = {name: values(array) for name, array in params.items()}
        eager = rnn_accumulated(leaves, xs.tolist(), targets.tolist())
        eager.backward()
        assert abs(value - eager.data) <= 1e-12 * max(1.0, abs(value))
        for name, grad in grads.items():
            wanted = np.array(flat(derivatives(leaves[name])))
            np.testing.assert_allclose(np.ravel(grad), wanted, rtol=1e-10, atol=1e-12)
            params[name] = params[name] - 0.01 * grad
    (variant,) = View(compiled).variants
    assert variant.machine is not None
    assert variant.machine.program.loops


def values(array: Any) -> Any:
    return [values(row) for row in array] if np.ndim(array) else chainrule.Value(float(array))


def derivatives(nest: Any) -> Any:
    return [derivatives(item) for item in nest] if isinstance(nest, list) else nest.grad


# --- guards ---------------------------------------------------------------------------------------


def test_a_guard_that_fails_within_a_loop_is_noticed(way):
    case = case_of("bouncing")
    lifted = case.check_machine()
    numbers = case.numbers.copy()
    fails = []
    for wall in (3.0, 1.0, 0.62, 0.1):
        numbers[-1] = wall
        status = case.interpreter.run(numbers)
        assert lifted.run(lifted.fit, NOTHING, numbers) == (status[0] == 0)
        fails.append(status[0] != 0)
    assert True in fails


def test_a_call_that_branches_within_a_loop_is_redone():
    compiled = chainrule.compile(bouncing, on_fallback="raise")
    for wall in (5.0, 0.62, 5.0, 0.1, 3.0, 5.0):
        params = SMALL | {"wall": wall}
        value, grads = compiled.value_and_grad(params)
        leaves = {name: chainrule.Value(x) for name, x in params.items()}
        eager = bouncing(leaves)
        eager.backward()
        assert abs(value - eager.data) <= 1e-12
        for name, leaf in leaves.items():
            assert abs(grads[name] - leaf.grad) <= 1e-12


def test_what_is_not_finite_within_a_loop_is_noticed(way):
    def growing(p):
        x = p["x"]
        for _ in range(60):
            x = x * x * p["w"] + x * 0.5
        return 1 / (x + 1)

    variant = hidden.variant_of(growing, {"x": 0.1, "w": 0.5})
    case = Case(variant.recording, [0.1, 0.5], 2)
    lifted = case.check_machine()
    assert not lifted.run(lifted.fit, NOTHING, np.array([10.0, 0.5]))


# --- random loops ---------------------------------------------------------------------------------

FINITE = (ops.add, ops.mul, ops.tanh, ops.sin, ops.sigmoid)


def random_case(seed: int, loops: int) -> Case:
    rng, recorded = random.Random(seed), Recorded(6)
    for _ in range(rng.randrange(8, 20)):
        recorded.random(rng)
    for _ in range(loops):
        period = rng.randint(2, 12)
        hidden.hide_a_loop(recorded, rng, period, rng.randint(80, 160) // period + 9)
        for _ in range(rng.randrange(12)):
            recorded.random(rng)
    recorded.guards.clear()
    recorded.add(ops.add, [len(recorded.codes) - 1, len(recorded.codes) - 2])
    recording = recorded.recording()
    numbers = [rng.uniform(-1.5, 1.5) for _ in range(6)]
    return Case(recording, numbers, 4)


@settings(max_examples=count(ci=30, soak=1_000))
@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([10**9, -1]))
def test_random_loops(seed, loops, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registers, "MOST_TERMS", most)
        patch.setattr(registers, "MOST_POINTS", most)
        patch.setattr(hidden, "RULES", FINITE)
        patch.setattr(alignment, "FEW_SHAPES", 0)
        with np.errstate(all="ignore"):
            case = random_case(seed, loops)
        numbers = [case.interpreter.number(i) for i in range(len(case.recording))]
        assume(case.status[0] == 0 and (np.abs([*case.wanted, *numbers]) < 1e4).all())
        try:
            program = case.check_arrays()
        except NotLiftable:
            assume(False)
        assume(program.loops)
        case.check_machine()


# --- the kernel -----------------------------------------------------------------------------------


@pytest.mark.skipif(kernels is None, reason="the reference engine has no kernels")
def test_the_kernel_refuses_loops_that_do_not_fit():
    case = case_of("pendulum")
    loops = find_loops(case.recording)
    given: list[Any] = []

    def note(*arguments: Any) -> Any:
        given.extend(arguments)
        return kernels.canonicalise(*arguments)  # type: ignore[union-attr]

    with pytest.MonkeyPatch.context() as patch:
        module = sys.modules[canonicalise.__module__]
        patch.setattr(module, "kernels", types.SimpleNamespace(canonicalise=note))
        canonicalise(case.recording, loops=loops)
    for which in (-4, -3, -2):  # where loops begin, the iterations, the tokens
        wrong = list(given)
        wrong[which] = given[which][:-9]
        with pytest.raises(ValueError, match="do not fit"):
            kernels.canonicalise(*wrong)  # type: ignore[union-attr]
    rng = np.random.default_rng(1)
    for _ in range(50):  # any numbers will do
        wrong = list(given)
        for which in (-4, -3):
            wrong[which] = rng.integers(-(2**31), 2**31, len(given[which])).astype(np.int32)
        wrong[-2] = rng.bytes(len(given[-2]))
        assert len(kernels.canonicalise(*wrong)) == 10  # type: ignore[union-attr]
