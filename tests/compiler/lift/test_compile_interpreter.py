"""Recordings and what runs them: the interpreter, the native tape and eager agree bit for bit."""

import dataclasses
import math
from random import Random

import numpy as np
import pytest
from compile_programs import TAME, WILD, random_arguments, random_source, run_source
from compile_twins import bits
from number_systems import chainrule_functions
from programs import ALL_OPS, SEED_OPS, count, random_program, run

import chainrule
from chainrule import Value, maximum, nonfinite, vsum, where
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, INPUT, Output, Recording
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.runtime import tape as execute
from chainrule.compiler.runtime.tape import FINE, OTHER_BRANCH, UNDEFINED, Interpreter
from chainrule.core import ops
from chainrule.trees import map_leaves

NATIVE = chainrule.engine == "native"
FUNCTIONS = chainrule_functions()


def record(f, *arguments, **keywords):
    """The recording of one call with Values for its floats."""
    values = [map_leaves(lambda x: Value(x) if type(x) is float else x, a) for a in arguments]
    call = flatten_call(tuple(values), keywords, differentiate=False)
    return trace(f, survey(f), call).recording


def executors(recording):
    """The interpreter, and the native tape where there is one."""
    return [Interpreter(recording), *([execute.executor(recording)] if NATIVE else [])]


def results(executor, recording, inputs, roots):
    """Everything that one run shows."""
    status = tuple(executor.run(inputs))
    found = [status, [bits(executor.number(i)) for i in range(len(recording))]]
    for root in roots:
        out = np.full(recording.inputs, 7.0)
        executor.sweep(root, 1.0, out)
        found.append([bits(x) for x in out.tolist()])
        executor.sweep(root, -0.5, out)
        found.append([bits(x) for x in out.tolist()])
    return found


def assert_executors_agree(recording, inputs, rng):
    roots = {len(recording) - 1, rng.randrange(len(recording)), rng.randrange(len(recording))}
    first, *others = [results(e, recording, inputs, sorted(roots)) for e in executors(recording)]
    for other in others:
        for part, again in zip(first, other, strict=True):
            assert part == again, str(recording)
    return first[0][0]


def other_inputs(rng, recording):
    """Numbers for every input, sometimes special ones."""
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e308, 5e-324, 1.0]
    return np.array(
        [
            rng.choice(special) if rng.random() < 0.1 else rng.uniform(-3.0, 3.0)
            for _ in range(recording.inputs)
        ]
    )


@pytest.mark.parametrize("family", [SEED_OPS, ALL_OPS], ids=["seeds", "all"])
def test_recordings_of_straight_programs_run_alike(family):
    statuses = []
    for i in range(count(ci=60 if NATIVE else 25, soak=2_000)):
        rng = Random(f"interpreter {i}")
        program = random_program(rng, family, 4, 30)
        f = lambda xs, program=program: run(program, xs, FUNCTIONS)[-1]  # noqa: E731
        recording = record(f, list(program.inputs))
        recording.verify()
        statuses.append(assert_executors_agree(recording, np.array(program.inputs), rng))
        eager = [Value(x) for x in program.inputs]
        y = f(eager)
        y.backward()
        again = Interpreter(recording)
        assert again.run(np.array(program.inputs)) == (FINE, -1)
        assert bits(again.number(recording.result.position)) == bits(y.data)
        out = np.zeros(recording.inputs)
        again.sweep(recording.result.position, 1.0, out)
        assert [bits(x) for x in out.tolist()] == [bits(v.grad) for v in eager]
        for _ in range(3):
            statuses.append(assert_executors_agree(recording, other_inputs(rng, recording), rng))
    assert {FINE, UNDEFINED} <= set(statuses)


def test_what_numpy_caches_for_an_operation_does_not_stand_in_the_way():
    called = [ops.TABLE[name] for name in ("erf", "asinh")]
    for rule in called:
        rule.forward(np.array([0.25, 0.5]))
        f = lambda xs, rule=rule: FUNCTIONS[rule.name](xs[0]) * rule(xs[1])  # noqa: E731
        assert survey(f) is not None
        assert len(record(f, [0.25, 0.5])) == 5


@pytest.mark.parametrize("weights", [TAME, WILD], ids=["tame", "wild"])
def test_recordings_of_random_functions_run_alike(weights):
    statuses = []
    for i in range(count(ci=60 if NATIVE else 25, soak=1_500)):
        rng = Random(f"functions {i}")
        world = run_source(random_source(rng, weights), "recorded")
        arguments = random_arguments(rng)
        numbers = list(arguments.p), [Value(x) for x in arguments.xs]
        try:
            recording = record(world["f"], *numbers, *arguments.rest, **arguments.named)
        except (Unrecordable, ArithmeticError, LookupError, ValueError, RuntimeError):
            continue  # refused, or undefined for these numbers
        recording.verify()
        assert str(recording).count("\n") >= len(recording) - recording.inputs
        for _ in range(3):
            statuses.append(assert_executors_agree(recording, other_inputs(rng, recording), rng))
    assert {FINE, OTHER_BRANCH} <= set(statuses)
    assert UNDEFINED in statuses or not NATIVE, "few programs are run without the native engine"
    assert len(statuses) > 30


def test_a_run_says_which_guard_or_instruction_is_to_blame():
    def f(x, y):
        z = x.log() + y
        if z > 0:
            z = z * 2
        return z * y if y < 3 else z

    recording = record(f, 2.0, 1.0)
    assert [g.expected for g in recording.guards] == [1.0, 1.0]
    for executor in executors(recording):
        assert tuple(executor.run(np.array([2.0, 1.0]))) == (FINE, -1)
        assert tuple(executor.run(np.array([2.0, -3.0]))) == (OTHER_BRANCH, 0)
        assert tuple(executor.run(np.array([2.0, 5.0]))) == (OTHER_BRANCH, 1)
        assert tuple(executor.run(np.array([0.5, -5.0]))) == (OTHER_BRANCH, 0)
        status, position = executor.run(np.array([1e-320, 2.9999]))
        assert status == OTHER_BRANCH
        assert position == 0
    undefined = record(lambda x, y: x.log() * y, 2.0, 1.0)
    for executor in executors(undefined):
        status, position = executor.run(np.array([-2.0, 1.0]))
        assert status == UNDEFINED
        assert undefined.describe(position).startswith("log")
        assert tuple(executor.run(np.array([math.nan, 1.0]))) == (FINE, -1), "nan is no surprise"
        assert tuple(executor.run(np.array([3.0, math.inf]))) == (FINE, -1)


def test_what_was_allowed_to_be_undefined_is_not_flagged():
    def f(x):
        with nonfinite("allow"):
            y = x.log()
        return y * 2

    recording = record(f, 2.0)
    for executor in executors(recording):
        assert tuple(executor.run(np.array([0.0]))) == (FINE, -1)
        assert executor.number(len(recording) - 1) == -math.inf
        out = np.zeros(1)
        executor.sweep(len(recording) - 1, 1.0, out)
        assert out[0] == math.inf


def test_operands_can_be_pointed_elsewhere():
    def f(p, i):
        return p[i] * p[0] + p[i].exp()

    p = [0.5, -1.0, 2.0]
    recordings = [record(f, p, i) for i in range(3)]
    base = recordings[0]
    for i, other in enumerate(recordings):
        assert np.array_equal(base.codes, other.codes)
        places = np.flatnonzero(base.operands.ravel() != other.operands.ravel()).astype(np.int32)
        assert len(places) == (2 if i else 0)
        inputs = np.array([*p, float(i)])
        wanted = results(Interpreter(other), other, inputs, [len(other) - 1])
        for executor in executors(base):
            executor.run(np.array([*p, 0.0]))
            executor.sweep(len(base) - 1, 1.0, np.zeros(base.inputs))
            executor.point(places, other.operands.ravel()[places])
            assert results(executor, base, inputs, [len(base) - 1]) == wanted
            executor.point(places, base.operands.ravel()[places])
            assert results(executor, base, inputs, [len(base) - 1]) == results(
                Interpreter(base), base, inputs, [len(base) - 1]
            )


@pytest.mark.skipif(not NATIVE, reason="the native engine is not in use")
@pytest.mark.parametrize(
    ("places", "positions"),
    [
        *(([0], [0]), ([-1], [0]), ([10_000], [0]), ([15], [100])),
        *(([15], [-2]), ([15], [5]), ([15, 16], [0])),
    ],
)
def test_a_tape_refuses_operands_that_do_not_come_before(places, positions):
    recording = record(lambda x, y: (x * y + x).tanh() * y, 1.0, 2.0)
    executor = execute.executor(recording)
    executor.run(np.array([1.0, 2.0]))
    before = executor.number(len(recording) - 1)
    with pytest.raises((ValueError, IndexError, TypeError)):
        executor.point(np.array(places, np.int32), np.array(positions, np.int32))
    executor.run(np.array([1.0, 2.0]))
    assert executor.number(len(recording) - 1) == before


def test_a_recording_prints_as_a_list_of_instructions():
    def f(x, y, n):
        z = x * y + 2
        if z > 1.5:
            z = maximum(z, x.data) ** 3
        return where(x > y, z, y), {"n": z.data}

    recording = record(f, 1.0, 2.0, 4)
    lines = str(recording).splitlines()
    assert lines[0] == f"{len(recording)} instructions, 3 inputs, 1 guards"
    assert "%3 = mul %0 %1" in lines
    assert "%4 = add %3 2" in lines
    guards = [line for line in lines if line.startswith("    guard %")]
    assert len(guards) == 1
    assert "== 1  (test_compile_interpreter.py:" in guards[0]
    assert any(line.endswith(" 3") and "= pow" in line for line in lines)
    assert lines[-1].startswith("return (%")
    assert all(line.startswith(("%", "    guard", "return")) for line in lines[1:])
    for i in range(len(recording)):
        assert recording.describe(i).split(" ")[0] in {
            *("input", "constant"),
            *ops.TABLE,
            *ops.BLOCKS,
        }


def test_a_recording_keeps_every_node_also_those_the_result_does_not_reach():
    def f(xs):
        unused = [x.exp() for x in xs]
        return xs[0] * 2 if unused else xs[0]

    recording = record(f, [1.0, 2.0, 3.0])
    assert sum(recording.describe(i).startswith("exp") for i in range(len(recording))) == 3


def test_a_recording_is_flat_and_typed():
    recording = record(lambda x, y: vsum([x * 2, y, x]) * 3.0, 1.0, 2.0)
    n = len(recording)
    assert (recording.codes.dtype, recording.codes.shape) == (np.int32, (n,))
    assert (recording.operands.dtype, recording.operands.shape) == (np.int32, (n, 3))
    assert (recording.constants.dtype, recording.constants.shape) == (np.float64, (n, 1))
    assert recording.number.dtype == recording.unflagged.dtype == np.bool_
    assert (recording.codes[:2] == INPUT).all()
    with pytest.raises(dataclasses.FrozenInstanceError):
        recording.inputs = 3
    assert isinstance(recording.result, Output)


def test_a_constant_is_an_instruction_without_operands():
    recording = record(lambda x: Value(2.5) * x, 1.0)
    place = int(np.flatnonzero(recording.codes == CONSTANT)[0])
    assert recording.describe(place) == "constant 2.5"
    for executor in executors(recording):
        executor.run(np.array([3.0]))
        assert executor.number(place) == 2.5
        assert executor.number(len(recording) - 1) == 7.5


def broken():
    """Ways to put a recording out of order, by name."""
    base = record(lambda x, y: (x * y + 1).tanh() if x > 0 else x, Value(1.0), Value(2.0))
    n = len(base)

    def changed(name, place, number):
        array = getattr(base, name).copy()
        array[place] = number
        return dataclasses.replace(base, **{name: array})

    mul = int(np.flatnonzero([base.describe(i).startswith("mul") for i in range(n)])[0])
    guard = base.guards[0]
    return base, {
        "operand after its use": changed("operands", (mul, 0), n - 1),
        "operand is itself": changed("operands", (mul, 0), mul),
        "operand missing": changed("operands", (mul, 1), -1),
        "operand too many": changed("operands", (mul, 2), 0),
        "operand below -1": changed("operands", (mul, 0), -5),
        "first operand missing": changed("operands", (mul, slice(0, 2)), (-1, 0)),
        "unknown code": changed("codes", mul, FIRST_RULE + 99),
        "negative code": changed("codes", mul, -1),
        "input in the middle": changed("codes", mul, INPUT),
        "input that is none": changed("codes", 0, CONSTANT),
        "number beside two operands": changed("number", mul, True),
        "operands too short": dataclasses.replace(base, operands=base.operands[:-1]),
        "constants too short": dataclasses.replace(base, constants=base.constants[:-1]),
        "numbers too short": dataclasses.replace(base, number=base.number[:-1]),
        "flags too short": dataclasses.replace(base, unflagged=base.unflagged[:-1]),
        "guard outside": dataclasses.replace(
            base, guards=(dataclasses.replace(guard, position=n),)
        ),
        "guard before": dataclasses.replace(
            base, guards=(dataclasses.replace(guard, position=-1),)
        ),
        "too many inputs": dataclasses.replace(base, inputs=n + 1),
        "negative inputs": dataclasses.replace(base, inputs=-1),
        "result outside": dataclasses.replace(base, result=Output(n, is_value=True)),
        "rule of another arity": dataclasses.replace(
            base, rules=tuple(ops.exp if r is ops.mul else r for r in base.rules)
        ),
    }


@pytest.mark.parametrize("name", broken()[1])
def test_the_verifier_refuses_a_malformed_recording(name):
    base, wrong = broken()
    base.verify()
    with pytest.raises(AssertionError):
        wrong[name].verify()


@pytest.mark.skipif(not NATIVE, reason="the native engine is not in use")
@pytest.mark.parametrize("name", [name for name in broken()[1] if name != "result outside"])
def test_the_tape_refuses_a_malformed_recording(name):
    base, wrong = broken()
    execute.executor(base).run(np.array([1.0, 2.0]))
    with pytest.raises((ValueError, TypeError, MemoryError)) as error:
        execute.executor(wrong[name])
    assert not isinstance(error.value, MemoryError), "the size is wrong, memory is not short"


@pytest.mark.skipif(not NATIVE, reason="the native engine is not in use")
def test_a_tape_checks_what_it_is_given():
    recording = record(lambda x, y: x * y, 1.0, 2.0)
    tape = execute.executor(recording)
    with pytest.raises((ValueError, TypeError)):
        tape.run(np.zeros(1))
    with pytest.raises((ValueError, TypeError)):
        tape.run([1.0, 2.0])
    with pytest.raises((ValueError, TypeError)):
        tape.run(np.zeros(2, np.float32))
    tape.run(np.array([3.0, 4.0]))
    for root in (-1, len(recording), 10**9):
        with pytest.raises((ValueError, IndexError)):
            tape.sweep(root, 1.0, np.zeros(2))
        with pytest.raises((ValueError, IndexError)):
            tape.number(root)
    with pytest.raises((ValueError, TypeError, BufferError)):
        tape.sweep(2, 1.0, np.zeros(1))
    read_only = np.zeros(2)
    read_only.flags.writeable = False
    with pytest.raises((ValueError, TypeError, BufferError)):
        tape.sweep(2, 1.0, read_only)
    out = np.zeros(2)
    tape.sweep(2, 1.0, out)
    assert out.tolist() == [4.0, 3.0]


def test_the_gradient_of_an_input_by_itself_is_one():
    recording = record(lambda x, y: x * y, 1.0, 2.0)
    assert isinstance(recording, Recording)
    for executor in executors(recording):
        executor.run(np.array([1.0, 2.0]))
        out = np.zeros(2)
        executor.sweep(0, 2.5, out)
        assert out.tolist() == [2.5, 0.0]


@pytest.mark.parametrize("name", [*ops.TABLE, *ops.BLOCKS])
def test_every_rule_runs_alike_on_every_executor(name):
    """A recording made by hand of one instruction, with special numbers."""
    rule = ops.TABLE.get(name) or ops.BLOCKS[name]
    rng = Random(name)
    special = [0.0, -0.0, 0.3, -0.3, 1.0, -1.0, 2.5, -2.5, 30.0, 710.0, 1e308, 5e-324]
    special += [math.inf, -math.inf, math.nan]
    parameters = {"clip": (-0.5, 1.5), "leaky_relu": (0.1, 0.0), "pow": (3.0, 0.0)}
    parameters["random_keep"] = (0.25, 0.0)
    for static in [parameters.get(name, (1.0, 0.0)), (0.5, 0.75), (-1.0, 2.0)]:
        codes = np.array([INPUT] * rule.arity + [FIRST_RULE], np.int32)
        operands = np.full((rule.arity + 1, 3), -1, np.int32)
        operands[-1, : rule.arity] = range(rule.arity)
        constants = np.zeros((rule.arity + 1, 2))
        constants[-1, : len(rule.parameters)] = static[: len(rule.parameters)]
        nothing = np.zeros(rule.arity + 1, np.bool_)
        parts = (rule.arity, codes, operands, constants, nothing, (rule,), nothing, ())
        recording = Recording(*parts, result=Output(rule.arity, is_value=True))
        recording.verify()
        for _ in range(60):
            inputs = np.array([rng.choice(special) for _ in range(rule.arity)])
            first, *others = [
                results(e, recording, inputs, [rule.arity]) for e in executors(recording)
            ]
            assert all(other == first for other in others), (name, inputs, static)
            assert (
                bits(float(rule.forward(*inputs.tolist(), *static[: len(rule.parameters)])))
                in first[1]
            )
