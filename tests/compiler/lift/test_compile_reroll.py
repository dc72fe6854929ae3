"""Loops in time: stretches of a recording that do the same again and again."""

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from compile_view import View
from hypothesis import given
from hypothesis import strategies as st

import chainrule
from chainrule.compiler.capture.recordings import (
    CONSTANT,
    FIRST_RULE,
    INPUT,
    Guard,
    Output,
    Recording,
)
from chainrule.compiler.lift.loops import Loop, find_loops
from chainrule.compiler.lift.time_loop import fixed_operands
from chainrule.core import ops

# --- recordings of programs -----------------------------------------------------------------------


def variant_of(function: Callable[..., Any], *arguments: Any) -> Any:
    compiled = chainrule.compile(function, on_fallback="raise")
    compiled.value_and_grad(*arguments)
    (structure,) = View(compiled).structures
    return structure.variants[-1]


def checked(recording: Recording) -> tuple[Loop, ...]:
    """The loops of a recording, every promise of theirs kept."""
    loops = find_loops(recording)
    for loop in loops:
        loop.verify(recording)
        operands = fixed_operands(recording)
        part = operands[loop.start : loop.stop].reshape(loop.count, loop.period, 3)
        np.testing.assert_array_equal(loop.unrolled(recording), part)
    for one, other in pairwise(loops):
        assert one.stop <= other.start
    return loops


def loops_of(function: Callable[..., Any], *arguments: Any) -> tuple[Recording, tuple[Loop, ...]]:
    variant = variant_of(function, *arguments)
    return variant.recording, checked(variant.recording)


def euler(params):
    x, y, z = params["start"]
    for _ in range(100):
        dx = params["sigma"] * (y - x)
        dy = x * (params["rho"] - z) - y
        dz = x * y - params["beta"] * z
        x, y, z = x + dx * 0.01, y + dy * 0.01, z + dz * 0.01
    return x + y + z


def runge_kutta(params):
    state, h = params["start"], 0.01

    def slope(state):
        x, y, z = state
        return [params["sigma"] * (y - x), x * (params["rho"] - z) - y, x * y - params["beta"] * z]

    def moved(state, slopes, h):
        return [s + d * h for s, d in zip(state, slopes, strict=True)]

    for _ in range(60):
        k1 = slope(state)
        k2 = slope(moved(state, k1, h / 2))
        k3 = slope(moved(state, k2, h / 2))
        k4 = slope(moved(state, k3, h))
        each = zip(k1, k2, k3, k4, strict=True)
        state = moved(state, [a + b * 2 + c * 2 + d for a, b, c, d in each], h / 6)
    return sum(state)


LORENZ = {"start": np.array([1.0, 2.0, 20.0]), "sigma": 10.0, "rho": 28.0, "beta": 8.0 / 3.0}


def leapfrog(params):
    angle, speed = params["angle"], params["speed"]
    for _ in range(100):
        speed = speed - angle.sin() * (0.01 / 2)
        angle = angle + speed * 0.01
        speed = speed - angle.sin() * (0.01 / 2)
    return angle * angle + speed * speed


def cell(params, state, x):
    return [
        (sum((w * h for w, h in zip(row, state, strict=True)), bias) + w_in * x).tanh()
        for row, w_in, bias in zip(params["w"], params["w_in"], params["bias"], strict=True)
    ]


def error_of(params, state, target):
    guess = sum(w * h for w, h in zip(params["w_out"], state, strict=True))
    return (guess - target) ** 2


def rnn_accumulated(params, xs, targets):
    state, loss = params["start"], 0
    for x, target in zip(xs, targets, strict=True):
        state = cell(params, state, x)
        loss = loss + error_of(params, state, target)
    return loss * (1.0 / len(xs))


def rnn_collected(params, xs, targets):
    state, losses = params["start"], []
    for x, target in zip(xs, targets, strict=True):
        state = cell(params, state, x)
        losses.append(error_of(params, state, target))
    return sum(losses) / len(losses)


def rnn_translates(params, xs, targets):
    """One loop reads, work between, another loop writes."""
    state, loss = params["start"], 0
    for x in xs:
        state = cell(params, state, x)
    state = [(h * h + 1.0).sqrt() for h in state]
    for target in targets:
        state = [h.tanh() for h in cell(params, state, 1.0)]
        loss = loss + error_of(params, state, target)
    return loss


def weights(width=6, seed=3):
    rng = np.random.default_rng(seed)
    return {
        "start": rng.normal(size=width),
        "w": rng.normal(0, 0.3, (width, width)),
        "w_in": rng.normal(size=width),
        "bias": rng.normal(size=width),
        "w_out": rng.normal(size=width),
    }


def sequence(length=40):
    return np.sin(0.3 * np.arange(length)), np.cos(0.3 * np.arange(length))


def rule_count(recording: Recording, loop: Loop, rule: Any) -> int:
    codes = recording.codes[loop.start : loop.start + loop.period]
    return int((codes == recording.rules.index(rule) + FIRST_RULE).sum())


def test_lorenz_by_euler():
    recording, (loop,) = loops_of(euler, LORENZ)
    assert (loop.count, loop.reach, len(loop.carried)) == (99, 1, 3)
    assert rule_count(recording, loop, ops.mul) + rule_count(recording, loop, ops.add) == 18
    assert loop.period == 18
    assert len(recording) - loop.stop < 18


def test_lorenz_by_runge_kutta_is_one_loop_of_whole_steps():
    recording, (loop,) = loops_of(runge_kutta, LORENZ)
    assert (loop.count, loop.reach, len(loop.carried)) == (59, 1, 3)
    assert (len(recording) - recording.inputs) // 60 == loop.period


def test_a_pendulum_without_parameters():
    recording, (loop,) = loops_of(leapfrog, {"angle": 1.0, "speed": 0.0})
    assert (loop.count, loop.reach, len(loop.carried)) == (99, 1, 2)
    assert rule_count(recording, loop, ops.sin) == 2


@pytest.mark.parametrize("function", [rnn_accumulated, rnn_collected])
def test_the_period_of_a_network_is_a_step_in_time_not_a_neuron(function):
    recording, (loop,) = loops_of(function, weights(), *sequence())
    assert loop.count == 39
    assert loop.reach == 1
    assert len(loop.carried) == 6 + (function is rnn_accumulated)
    assert rule_count(recording, loop, ops.tanh) == 6
    # inputs and targets are streamed, weights are not
    first = recording.operands[loop.start : loop.start + loop.period]
    streamed = first[(loop.deltas != 0) & (loop.deltas != loop.period)]
    assert len(streamed) == 6 + 1
    assert set(loop.deltas[first >= 0].tolist()) == {0, 1, loop.period}
    invariant = first[(first >= 0) & (loop.deltas == 0)]
    assert len(invariant) == len(set(invariant.tolist())) == 36 + 6 + 6 + 6


def test_the_loop_begins_where_a_step_begins():
    recording, (loop,) = loops_of(rnn_accumulated, weights(), *sequence())
    assert (loop.start - recording.inputs) % loop.period == 0
    assert loop.start - recording.inputs == loop.period, "the first step is peeled"
    assert loop.stop == len(recording) - 1


def test_the_inputs_of_a_sequence_may_be_given_as_values_or_made_in_the_loop():
    def made(params):
        state = params["start"]
        for t in range(30):
            state = cell(params, state, chainrule.Value(math.sin(t)))
        return sum(state)

    recording, (loop,) = loops_of(made, weights())
    assert loop.count >= 28
    codes = recording.codes[loop.start : loop.stop].reshape(loop.count, loop.period)
    assert (codes == CONSTANT).sum(axis=1).tolist() == [1] * loop.count
    numbers = recording.constants[loop.start : loop.stop, 0].reshape(loop.count, loop.period)
    assert len(np.unique(numbers[:, codes[0] == CONSTANT])) == loop.count


def test_plain_numbers_may_differ_between_iterations():
    def decaying(x):
        for t in range(50):
            x = (x * (1.0 / (t + 1))).sin() + 0.5
        return x

    _, (loop,) = loops_of(decaying, 0.3)
    assert (loop.period, loop.count >= 48) == (3, True)


def test_two_loops_with_work_between_them():
    recording, (reading, writing) = loops_of(rnn_translates, weights(), *sequence())
    assert (reading.count, writing.count) == (39, 39)
    assert reading.period < writing.period
    assert rule_count(recording, reading, ops.tanh) == 6
    assert rule_count(recording, writing, ops.tanh) == 12
    assert writing.start - reading.stop >= 18


def test_two_loops_of_one_body_one_right_after_the_other():
    def twice(params, xs):
        state = params["start"]
        for which in ("w", "u"):
            for x in xs:
                state = cell({**params, "w": params[which]}, state, x)
        return sum(state)

    params = {**weights(), "u": weights(seed=4)["w"]}
    recording, loops = loops_of(twice, params, sequence()[0])
    assert [loop.count for loop in loops] == [39, 40]
    assert {loop.period for loop in loops} == {(len(recording) - recording.inputs) // 80}


def test_a_loop_that_reads_what_an_earlier_one_made():
    def stacked(params, xs):
        state, seen = params["start"], []
        for x in xs:
            state = cell(params, state, x)
            seen.append(state[0] * 0.5)
        state = params["start"]
        for x in reversed(seen):
            state = cell(params, state, x)
        return sum(state)

    recording, (first, second) = loops_of(stacked, weights(), sequence()[0])
    operands = recording.operands[second.start : second.start + second.period]
    streamed = (operands >= 0) & (second.deltas != 0) & (second.deltas != second.period)
    assert set(second.deltas[streamed].tolist()) == {-first.period}


def test_layers_are_a_loop_whose_weights_are_streamed():
    def deep(layers, x):
        for layer in layers:
            x = [sum(w * v for w, v in zip(row, x, strict=True)).tanh() for row in layer]
        return sum(x)

    rng = np.random.default_rng(0)
    recording, (loop,) = loops_of(deep, rng.normal(size=(12, 4, 4)), [0.1, 0.2, 0.3, 0.4])
    assert (loop.count, len(loop.carried)) == (11, 4)
    assert sorted(set(loop.deltas[recording.operands[loop.start :][: loop.period] >= 0])) == [
        16,
        loop.period,
    ]


def test_states_from_further_back():
    def delayed(p):
        xs = [p[0], p[1], p[2]]
        for _ in range(80):
            xs.append((xs[-1] * p[3] + xs[-3] * p[4]).tanh())
        return xs[-1]

    _, (loop,) = loops_of(delayed, np.array([0.1, 0.2, 0.3, 0.8, -0.5]))
    assert loop.period == 4
    assert loop.reach >= 2
    assert loop.count >= 76


def test_cells_that_are_updated_every_other_step_have_a_period_of_two_steps():
    def clockwork(p):
        fast, slow = p[0], p[1]
        for t in range(60):
            fast = (fast * p[2] + slow).tanh()
            if t % 2:
                slow = (slow * p[3] + fast).tanh()
        return fast + slow

    recording, (loop,) = loops_of(clockwork, np.array([0.1, 0.2, 0.8, -0.5]))
    assert rule_count(recording, loop, ops.tanh) == 3
    assert loop.count >= 28


def test_what_the_first_iteration_makes_for_all_stays_in_front():
    def started(p):
        x, scale = p[0], None
        for _ in range(60):
            x = (x * p[1]).tanh()
            scale = x * 2.0 if scale is None else scale
            x = x * scale
        return x

    recording, (loop,) = loops_of(started, np.array([0.3, 0.7]))
    assert loop.count >= 57
    assert recording.operands[loop.start : loop.stop].max() < loop.stop


def test_a_loop_of_loops_is_the_outer_one():
    def nested(p):
        x = p[0]
        for _ in range(20):
            y = x
            for _ in range(10):
                y = (y * p[1] + 0.1).sin()
            x = (x + y * p[2]).tanh()
        return x

    recording, (loop,) = loops_of(nested, np.array([0.3, 0.7, 0.2]))
    assert rule_count(recording, loop, ops.tanh) == 1
    assert rule_count(recording, loop, ops.sin) == 10


# --- guards and integers --------------------------------------------------------------------------


def bouncing(p, steps=60):
    """A ball; the branch goes the other way when it hits the floor."""
    height, speed, hits = p[0], p[1], 0
    for _ in range(steps):
        speed = speed - p[2] * 0.01
        height = height + speed * 0.01
        if height < 0.0:
            height, speed, hits = height * -1.0, speed * -0.9, hits + 1
    return height * height + speed


def test_branches_that_go_the_same_way_are_part_of_the_loop():
    recording, (loop,) = loops_of(bouncing, np.array([50.0, 0.0, 9.81]))
    assert len(recording.guards) == 60
    assert loop.count >= 58
    assert len(loop.guards) == 1


def test_a_branch_that_goes_the_other_way_cuts_the_loop():
    recording, loops = loops_of(bouncing, np.array([0.2, 0.0, 9.81]))
    taken = [g.position for g in recording.guards if g.expected]
    assert taken
    assert loops
    for loop in loops:
        assert not any(loop.start <= position < loop.stop for position in taken)


def test_guards_out_of_step_cut_the_loop():
    recording, (loop,) = loops_of(bouncing, np.array([50.0, 0.0, 9.81]))
    middle = loop.start + 30 * loop.period + loop.guards[0]
    kept = tuple(g for g in recording.guards if g.position != middle)
    pieces = checked(dataclasses.replace(recording, guards=kept))
    assert len(pieces) == 2
    assert not any(piece.start <= middle < piece.stop for piece in pieces)
    other = tuple(
        dataclasses.replace(g, expected=1.0) if g.position == middle else g
        for g in recording.guards
    )
    assert len(checked(dataclasses.replace(recording, guards=other))) == 2


def test_an_operand_that_depends_on_an_integer_does_so_in_every_iteration():
    def embedded(params, ids):
        state, loss = params["start"], 0
        for k, i in enumerate(ids):
            state = cell(params, state, params["table"][i] if k != 9 else params["table"][3])
            loss = loss + sum(state)
        return loss

    params = {**weights(), "table": np.arange(9.0) * 0.1}
    ids = [random.Random(1).randrange(9) for _ in range(20)]
    recording = variant_of(embedded, params, ids).recording
    assert len(recording.selection.places)
    loops = checked(recording)
    assert [loop.count for loop in loops] == [8, 10]  # before the tenth iteration, and after it


# --- no loop in time ------------------------------------------------------------------------------


def moons(layers, points):
    total = 0
    for x in points:
        for rows in layers:
            x = [sum(w * v for w, v in zip(row, x, strict=True)).tanh() for row in rows]
        total = total + (x[0] - 1.0) ** 2
    return total


def test_iterations_that_only_add_up_are_no_loop_in_time():
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(4, 2)), rng.normal(size=(4, 4)), rng.normal(size=(1, 4))]
    assert loops_of(moons, layers, rng.normal(size=(40, 2)))[1] == ()
    assert loops_of(lambda p: sum(x * y for x, y in pairwise(p)), rng.normal(size=100))[1] == ()
    assert loops_of(lambda p: max(x * 2.0 for x in p), rng.normal(size=100))[1] == ()
    assert (
        loops_of(lambda p: sum((x * y).exp() for x in p for y in p), rng.normal(size=20))[1] == ()
    )


def test_neighbours_that_read_each_other_are_no_loop_in_time():
    def rough(p):
        before, total = p[0].tanh(), 0
        for x in p[1:]:
            now = x.tanh()
            total = total + (now - before) ** 2
            before = now
        return total

    assert loops_of(rough, np.linspace(-1, 1, 60))[1] == ()


def test_a_running_total_that_is_read_on_the_way_is_a_loop_in_time():
    def cumulative(p):
        total, result = p[0] * 1.0, 0
        for x in p[1:]:
            total = total + x
            result = result + total * total
        return result

    _, (loop,) = loops_of(cumulative, np.linspace(-1, 1, 60))
    assert loop.period == 3


@pytest.mark.parametrize("seed", range(5))
def test_no_structure_no_loop(seed):
    rng, recorded = random.Random(seed), Recorded(8)
    for _ in range(3_000):
        recorded.random(rng)
    assert checked(recorded.recording()) == ()


def test_exponents_that_differ_between_iterations_are_no_loop():
    def powers(x):
        for t in range(50):
            x = (x ** (t + 2)).sin() + 1.5
        return x

    def squares(x):
        for _ in range(50):
            x = (x**2).sin() + 1.5
        return x

    assert loops_of(powers, 1.1)[1] == ()
    assert len(loops_of(squares, 1.1)[1]) == 1


def test_a_few_steps_are_no_loop():
    assert loops_of(rnn_accumulated, weights(), *sequence(7))[1] == ()
    assert loops_of(lambda x: (x * 2.0).sin() + 1.0, 0.5)[1] == ()


# --- recordings made by hand ----------------------------------------------------------------------

RULES = (ops.add, ops.mul, ops.tanh, ops.sin, ops.power, ops.pow)


class Recorded:
    """A recording, one instruction after another."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.codes = [INPUT] * inputs
        self.operands = [(-1, -1, -1)] * inputs
        self.constants = [(0.0, 0.0)] * inputs
        self.number = [False] * inputs
        self.guards: list[Guard] = []

    def add(self, rule: Any, operands: Sequence[int], number: float | None = None) -> int:
        self.codes.append(RULES.index(rule) + FIRST_RULE)
        self.operands.append((*operands, *[-1] * (3 - len(operands))))
        self.constants.append((0.0 if number is None else number, 0.0))
        self.number.append(number is not None and not rule.parameters)
        return len(self.codes) - 1

    def constant(self, number: float) -> None:
        self.codes.append(CONSTANT)
        self.operands.append((-1, -1, -1))
        self.constants.append((number, 0.0))
        self.number.append(False)

    def random(self, rng: random.Random) -> None:
        """Any instruction on anything before."""
        rule = rng.choice(RULES[:5])
        self.add(rule, [rng.randrange(len(self.codes)) for _ in range(rule.arity)])

    def recording(self) -> Recording:
        recording = Recording(
            inputs=self.inputs,
            codes=np.array(self.codes, np.int32),
            operands=np.array(self.operands, np.int32),
            constants=np.array(self.constants),
            number=np.array(self.number),
            rules=RULES,
            unflagged=np.zeros(len(self.codes), np.bool_),
            guards=tuple(self.guards),
            result=Output(len(self.codes) - 1, is_value=True),
        )
        recording.verify()
        return recording


@dataclasses.dataclass
class Hidden:
    start: int
    period: int
    count: int
    reach: int


def hide_a_loop(recorded: Recorded, rng: random.Random, period: int, count: int) -> Hidden:
    """Add a loop whose last instruction needs itself; its other operands are of all kinds."""
    start = len(recorded.codes)
    most = min(3, (start - 1) // period)
    reach, body, guarded = 1, [], set()
    for i in range(period):
        rule = rng.choice(RULES[:4]) if i < period - 1 else ops.mul
        operands = []
        for j in range(rule.arity):
            kind = rng.choice(["own", "own", "invariant", "streamed", "carried"])
            if i == period - 1:
                kind = "own" if j else "itself"
            if kind == "own" and i:
                operands.append((start + rng.randrange(max(0, i - 5), i), period))
            elif kind == "streamed":
                step = rng.choice([1, 2, -1])
                room = start - 1 - abs(step) * count
                if room >= 0:
                    first = rng.randrange(room + 1)
                    operands.append((first if step > 0 else first + count, step))
                    continue
                operands.append((rng.randrange(start), 0))
            elif kind in ("carried", "itself") and most:
                back = 1 if kind == "itself" else rng.randint(1, most)
                slot = i if kind == "itself" else rng.randrange(period)
                reach = max(reach, back)
                operands.append((start + slot - back * period, period))
            else:
                operands.append((rng.randrange(start), 0))
        number = rng.random() < 0.2 and rule in (ops.add, ops.mul) and i < period - 1
        body.append((rule, operands[:1] if number else operands, number))
        if rng.random() < 0.1:
            guarded.add(i)
    for k in range(count):
        for i, (rule, operands, number) in enumerate(body):
            at = recorded.add(
                rule, [p + k * d for p, d in operands], rng.random() if number else None
            )
            if i in guarded:
                recorded.guards.append(Guard(at, 1.0, "here"))
    return Hidden(start, period, count, reach)


@given(
    st.integers(0, 2**32),
    st.integers(1, 12),
    st.integers(2, 40),
    st.integers(12, 60),
    st.integers(0, 80),
)
def test_a_hidden_loop_is_found(seed, inputs, period, count, work):
    rng, recorded = random.Random(seed), Recorded(inputs)
    for _ in range(period + rng.randrange(60)):
        recorded.random(rng)
    hidden = hide_a_loop(recorded, rng, period, max(count, 100 // period + 8))
    for _ in range(work):
        recorded.random(rng)
    loops = checked(recorded.recording())
    assert len(loops) == 1
    (loop,) = loops
    assert hidden.period % loop.period == 0
    assert loop.period * loop.count >= hidden.period * (hidden.count - 1) - loop.period
    assert loop.start < hidden.start + hidden.period
    assert loop.stop > hidden.start + hidden.period * (hidden.count - 1)


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_several_hidden_loops_are_found(seed, many):
    rng, recorded = random.Random(seed), Recorded(5)
    for _ in range(40):
        recorded.random(rng)
    hidden = []
    for _ in range(many):
        period = rng.randint(2, 30)
        hidden.append(hide_a_loop(recorded, rng, period, rng.randint(400, 600) // period))
        for _ in range(rng.randrange(20, 60)):
            recorded.random(rng)
    loops = checked(recorded.recording())
    assert len(loops) == many
    for loop, one in zip(loops, hidden, strict=True):
        assert one.period % loop.period == 0
        assert loop.stop - loop.start >= one.period * (one.count - 2)


def counting(count=40):
    """x = tanh(x * w) + constant, in which the constant is an instruction."""
    recorded = Recorded(2)
    x = 0
    for k in range(count):
        recorded.constant(float(k))
        x = recorded.add(ops.mul, [x, 1])
        x = recorded.add(ops.tanh, [x])
        x = recorded.add(ops.add, [x, x - 2])
    return recorded


def test_the_parts_of_a_loop():
    recording = counting().recording()
    (loop,) = checked(recording)
    assert (loop.start, loop.period, loop.count, loop.reach) == (6, 4, 39, 1)
    assert loop.carried == (3,)
    assert loop.deltas.tolist() == [[0, 0, 0], [4, 0, 0], [4, 0, 0], [4, 4, 0]]
    assert str(loop) == "%6..%161: 39 iterations of 4 instructions, 1 carried over 1 iteration"
    assert loop.describe(recording).splitlines()[1:] == [
        "    %0@k = constant 1 ...",
        "    %1@k = mul %3@k-1 %1",
        "    %2@k = tanh %1@k",
        "    %3@k = add %2@k %0@k",
    ]


def test_streams_and_numbers_are_shown():
    recorded = Recorded(70)
    x = 0
    for k in range(40):
        x = recorded.add(ops.mul, [x, 1 + k])
        x = recorded.add(ops.pow, [x], 2.0)
        x = recorded.add(ops.add, [x], 1.0 + k)
        recorded.guards.append(Guard(x, 1.0, "here"))
    recording = recorded.recording()
    (loop,) = checked(recording)
    assert loop.describe(recording).splitlines()[1:] == [
        "    %0@k = pow %2@k-1 2",
        "    %1@k = add %0@k 1",
        "    guard %1@k",
        "    %2@k = mul %1@k %2+1k",
    ]
    assert str(loop).endswith(", 1 guards")


def test_what_the_loop_streams_was_made_before_it():
    recorded = Recorded(2)
    for _ in range(200):  # reads its own results, half as fast as it makes them
        at = len(recorded.codes)
        recorded.add(ops.mul, [at - 1, 1])
        recorded.add(ops.add, [at, at // 2])
    for loop in checked(recorded.recording()):
        first = recorded.recording().operands[loop.start : loop.start + loop.period]
        assert (first + (loop.count - 1) * loop.deltas)[loop.deltas == 1].max() < loop.start


def test_adding_zero_is_another_operation():
    """It begins a sum."""
    recorded = Recorded(1)
    x = 0
    for k in range(60):
        x = recorded.add(ops.mul, [x, 0])
        x = recorded.add(ops.tanh, [x])
        x = recorded.add(ops.add, [x], float(k))
    (loop,) = checked(recorded.recording())
    assert loop.start > 3
    assert loop.count >= 58


def test_one_instruction_out_of_line_cuts_the_loop():
    recording = counting(100).recording()
    (whole,) = checked(recording)
    middle = whole.start + 50 * whole.period + 1
    for change in ("codes", "operands", "number", "unflagged"):
        array = getattr(recording, change).copy()
        if change == "codes":
            array[middle] = RULES.index(ops.add) + FIRST_RULE
        elif change == "operands":
            array[middle, 1] = 0
        elif change == "number":
            array[middle] = True
        else:
            array[middle] = True
        pieces = checked(dataclasses.replace(recording, **{change: array}))
        assert len(pieces) == 2
        # an operand that is off changes what comes from it, the operation itself stays the same
        assert not any(piece.start <= middle < piece.stop - whole.period for piece in pieces)


def broken(recording: Recording, loop: Loop) -> list[tuple[Recording, Loop]]:
    """Loops that are not loops of their recordings."""
    inside = loop.start + 5 * loop.period + 1
    codes, operands = recording.codes.copy(), recording.operands.copy()
    codes[inside] = RULES.index(ops.add) + FIRST_RULE
    operands[inside, 0] -= 1
    deltas = loop.deltas.copy()
    deltas[0, 0] = 1
    replace = dataclasses.replace
    return [
        (replace(recording, codes=codes), loop),
        (replace(recording, operands=operands), loop),
        (replace(recording, guards=(Guard(inside, 1.0, "here"),)), loop),
        (recording, replace(loop, deltas=deltas)),
        (recording, replace(loop, reach=2)),
        (recording, replace(loop, reach=0)),
        (recording, replace(loop, carried=())),
        (recording, replace(loop, guards=(1,))),
        (recording, replace(loop, count=loop.count + 1)),
        (recording, replace(loop, start=loop.start - loop.period)),
        (recording, replace(loop, period=loop.period + 1)),
    ]


def test_the_verifier_notices():
    recording = counting().recording()
    (loop,) = find_loops(recording)
    for other, wrong in broken(recording, loop):
        with pytest.raises(AssertionError):
            wrong.verify(other)
    selecting = dataclasses.replace(loop, selects=np.array([[0, 1]]))
    with pytest.raises(AssertionError):
        selecting.verify(recording)
