"""Graphs as arrays and the tape that runs them: eager's bits, and nothing malformed is run."""

import ctypes
import gc
import math
from array import array
from random import Random

import numpy as np
import pytest
from native_engines import NATIVE, REFERENCE, bits, graph, outcome, run_python
from native_tapes import linearize
from programs import ALL_OPS, SEED_OPS, count, random_program, run

from chainrule import _native, nonfinite
from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Guard, Recording
from chainrule.compiler.runtime import tape as execute
from chainrule.core import ops
from chainrule.core.native import Value


def interior(root):
    return [v for v in NATIVE.topological_order(root) if v.children]


def fresh_gradients(root, leaves):
    root.zero_grad()
    root.backward()
    return [bits(v.grad) for v in leaves]


def assert_runs_like_eager(root):
    """The tape of a graph computes the numbers and gradients that the graph has."""
    before = graph(NATIVE, root)
    line = linearize(root)
    assert graph(NATIVE, root) == before, "flatten leaves no trace"
    undefined = line.run()
    nodes = interior(root)
    # A number operand that was looked at is a leaf by now; the tape knew it as a constant.
    expected = [bits(v.data) for v in [*line.leaves, *nodes]]
    assert [bits(x) for x in line.data] == expected
    assert [bits(x) for x in line.sweep()] == fresh_gradients(root, line.leaves)
    assert [bits(x) for x in line.sweep(-0.75)] == [bits(x) for x in line.sweep(-0.75)]
    return undefined


@pytest.mark.parametrize("family", [SEED_OPS, ALL_OPS], ids=["seeds", "all"])
def test_the_tape_of_a_random_program_gives_eagers_bits(family):
    for i in range(count(ci=200, soak=5_000)):
        program = random_program(Random(f"tape {i}"), family, 4, 40)
        values = run(program, map(Value, program.inputs), NATIVE.functions)
        assert assert_runs_like_eager(values[-1]) == -1
        assert assert_runs_like_eager(values[len(values) // 2]) == -1


@pytest.mark.parametrize("family", [SEED_OPS, ALL_OPS], ids=["seeds", "all"])
def test_the_tape_with_other_numbers_equals_rebuilding(family):
    undefined = 0
    for i in range(count(ci=200, soak=5_000)):
        rng = Random(f"again {i}")
        program = random_program(rng, family, 4, 30)
        leaves = [Value(x) for x in program.inputs]
        line = linearize(run(program, leaves, NATIVE.functions)[-1])
        for _ in range(3):
            inputs = [rng.uniform(-3.0, 3.0) for _ in leaves]
            numbers = [leaf.data for leaf in line.leaves]
            for leaf, x in zip(leaves, inputs, strict=True):
                if leaf in line.leaves:
                    numbers[line.leaves.index(leaf)] = x
            position = line.run(np.array(numbers))
            again = [REFERENCE.Value(x) for x in inputs]
            eager = outcome(lambda again=again: run(program, again, REFERENCE.functions)[-1])
            if isinstance(eager, tuple):
                undefined += 1
                assert position >= len(line.leaves), (eager, str(line))
                continue
            assert position == -1
            assert bits(line.data[-1]) == bits(eager.data)
            eager.backward()
            grads = line.sweep()
            for leaf, twin in zip(leaves, again, strict=True):
                if leaf in line.leaves:
                    assert bits(grads[line.leaves.index(leaf)]) == bits(twin.grad)
    assert undefined > 5, "some of the programs must become undefined"


POINTS = [0.0, -0.0, 0.3, -0.3, 1.0, -1.0, 1.5, -2.5, 30.0, 710.0, -746.0, 1e200, -1e308, 5e-324]
POINTS += [math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("name", ops.TABLE)
def test_every_row_runs_on_the_tape(name):
    row = ops.TABLE[name]
    parameters = {
        "clip": [(-0.5, 1.5), (-math.inf, 0.0), (1.0, math.inf), (0.3, 0.3)],
        "leaky_relu": [(0.1,)],
        "polygamma": [(1.0,), (2.0,)],
        "where": [(0.0,), (1.0,)],
        "pow": [(2.0,), (-1.0,), (0.5,), (0.0,), (1.0,), (3.0,), (math.inf,), (math.nan,)],
    }.get(name, [()])
    rng = Random(name)
    NATIVE.modes.allow_nonfinite = True
    try:
        for static in parameters:
            for _ in range(len(POINTS) if row.arity == 1 else 60):
                xs = [rng.choice(POINTS) for _ in range(row.arity)]
                leaves = [Value(x) for x in xs]
                y = Value._apply_op(row, leaves, static)
                position = assert_runs_like_eager(y)
                NATIVE.modes.allow_nonfinite = False
                raises = isinstance(outcome(lambda: Value._apply_op(row, leaves, static)), tuple)
                NATIVE.modes.allow_nonfinite = True
                assert (position != -1) == raises, (name, xs, static)
                if row.arity == 2 and name != "where":
                    one = Value._apply_op(row, [leaves[0], xs[1]], static)
                    assert_runs_like_eager(one)
    finally:
        NATIVE.modes.allow_nonfinite = False


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/"])
@pytest.mark.parametrize("number", [0.0, -0.0, 2.0, math.inf, -math.inf, math.nan, 1e308])
def test_number_operands_are_undefined_on_the_tape_where_they_are_in_eager(symbol, number):
    functions = {
        "+": lambda v: v + number,
        "-": lambda v: number - v,
        "*": lambda v: v * number,
        "/": lambda v: number / v,
    }
    f = functions[symbol]
    line = linearize(f(Value(1.0)))
    for x in POINTS:
        raises = isinstance(outcome(f, Value(x)), tuple)
        assert (line.run(np.array([x])) != -1) == raises, (symbol, number, x)


def test_number_operands_need_no_leaf():
    y = Value(2.0) * 3.0 + 1.0
    line = linearize(y)
    assert (len(line.leaves), len(line)) == (1, 3)
    assert y.children[0].children[1].data == 3.0
    looked_at = linearize(y)
    assert (len(looked_at.leaves), len(looked_at)) == (3, 5)
    for each in (line, looked_at):
        assert each.run() == -1
        assert (each.data[-1], each.sweep()[0]) == (7.0, 3.0)


def test_a_leaf_alone_is_a_tape():
    v = Value(2.5)
    line = linearize(v)
    assert line.run() == -1
    assert line.data == [2.5]
    assert line.sweep(3.0) == [3.0]
    assert line.leaves == [v]


def test_a_long_graph_runs_on_the_tape_without_recursion():
    x = Value(1.0)
    y = x
    for _ in range(count(ci=200_000, soak=2_000_000)):
        y = y * 1.0 + 0.0
    line = linearize(y, NATIVE.topological_order(y))
    assert line.run() == -1
    assert line.tape.number(len(line) - 1) == 1.0
    assert line.sweep()[0] == 1.0


def test_custom_operations_cannot_be_put_on_a_tape():
    a = Value(1.0)
    for y in (
        Value(1.0, (a,), (2.0,), op="mine"),
        Value(1.0, (a, a, a, a), (1.0,) * 4, op="wide") * 2,
        Value(1.0, (a,), (2.0,)),
    ):
        a.grad = 5.0
        with pytest.raises(TypeError, match="tape"):
            linearize(y)
        assert a.grad == 5.0
        y.backward()
        assert a.grad > 5.0, "no mark stays behind"


# --- hand-made tapes ----------------------------------------------------------------------------

SQUARE_PLUS = ([0, 2, 3], [[-1] * 3, [0, 0, -1], [1, 0, -1]], [ops.mul, ops.add])  # x * x + x


def tape(
    codes,
    operands,
    rules,
    inputs=1,
    constants=None,
    number=None,
    unflagged=None,
    guards=(),
    expected=(),
):
    n = len(codes)
    return _native.Tape(
        inputs,
        np.array(codes, np.int32),
        np.array(operands, np.int32).reshape(-1, 3),
        np.zeros((n, 2)) if constants is None else np.array(constants, float),
        np.zeros(n, np.uint8) if number is None else np.array(number, np.uint8),
        np.zeros(n, np.uint8) if unflagged is None else np.array(unflagged, np.uint8),
        rules,
        np.array(guards, np.int32),
        np.array(expected, float),
    )


def swept(t, root, inputs=1):
    out = np.zeros(inputs)
    t.sweep(root, 1.0, out)
    return out.tolist()


def test_a_hand_made_tape_runs():
    t = tape(*SQUARE_PLUS)
    assert t.run(np.array([3.0])) == (0, -1)
    assert (t.number(2), swept(t, 2), swept(t, 1), swept(t, 0)) == (12.0, [7.0], [6.0], [1.0])
    assert [t.number(i) for i in range(3)] == [3.0, 9.0, 12.0]


N = [-1, -1, -1]
MALFORMED = {
    "an operand of its own": ([0, 2], [N, [1, 0, -1]], [ops.mul]),
    "an operand that comes later": ([0, 2, 2], [N, [2, 0, -1], [0, 0, -1]], [ops.mul]),
    "an operand far away": ([0, 2], [N, [2**31 - 1, 0, -1]], [ops.mul]),
    "one operand missing": ([0, 2], [N, [0, -1, -1]], [ops.mul]),
    "one operand too many": ([0, 2], [N, [0, 0, -1]], [ops.exp]),
    "no operands": ([0, 2], [N, N], [ops.exp]),
    "a gap": ([0, 2], [N, [-1, 0, -1]], [ops.exp]),
    "very negative operands": ([0, 2], [N, [-(2**31), 0, -1]], [ops.mul]),
    "a code too large": ([0, 3], [N, [0, -1, -1]], [ops.exp]),
    "a code far too large": ([0, 2**31 - 1], [N, [0, -1, -1]], [ops.exp]),
    "a negative code": ([0, -1], [N, [0, -1, -1]], [ops.exp]),
    "a very negative code": ([0, -(2**31)], [N, [0, -1, -1]], [ops.exp]),
    "no rules": ([0, 2], [N, [0, -1, -1]], []),
    "an input after the inputs": ([0, 0], [N, N], []),
    "a constant among the inputs": ([1], [N], []),
    "an operation among the inputs": ([2], [N], [ops.exp]),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_tapes_are_refused(case):
    with pytest.raises(ValueError, match="malformed"):
        tape(*MALFORMED[case])


@pytest.mark.parametrize(
    "more",
    [
        {"inputs": 2},
        {"inputs": 4},
        {"inputs": -1},
        {"inputs": 0},
        {"inputs": 2**40},
        {"number": [0, 1, 2]},
        {"number": [0, 255, 0]},
        {"number": [0, 1, 0]},
        {"guards": [3], "expected": [0.0]},
        {"guards": [-1], "expected": [0.0]},
        {"guards": [2**31 - 1], "expected": [0.0]},
    ],
    ids=str,
)
def test_malformed_settings_are_refused(more):
    with pytest.raises((ValueError, TypeError)):
        tape(*SQUARE_PLUS, **more)


def test_rules_of_another_shape_are_refused():
    class Three:
        arity, parameters = 1, ("a", "b", "c")

    class Four:
        arity, parameters = 4, ()

    class Broken:
        @property
        def arity(self):
            raise KeyError("arity")

    with pytest.raises(ValueError, match="malformed"):
        tape([0, 2], [N, [0, -1, -1]], [Three()])
    with pytest.raises(ValueError, match="malformed"):
        tape([0, 2], [N, [0, 0, 0]], [Four()])
    with pytest.raises(KeyError):
        tape([0, 2], [N, [0, -1, -1]], [Broken()])
    for wrong in (None, "rule", 3):
        with pytest.raises(AttributeError):
            tape([0, 2], [N, [0, -1, -1]], [wrong])


class Empty(ctypes.Structure):
    _fields_ = ()


WRONG_BUFFERS = [
    None,
    3,
    "text",
    [1.0, 2.0],
    b"",
    b"12345678" * 9,
    Empty(),
    (Empty * 3)(),
    array("d", [1.0] * 9),
    array("q", [1] * 9),
    np.zeros(9, np.float32),
    np.zeros(9, ">f8"),
    np.zeros(9, "V8"),
    np.zeros((9, 2))[:, 0],
    np.zeros(0),
    np.zeros((), np.float32),
    np.zeros(9, complex),
    np.zeros(9, "datetime64[s]"),
    np.zeros(9, np.int16),
]


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("wrong", WRONG_BUFFERS, ids=lambda x: f"{type(x).__name__} {x!r:.20}")
def test_tapes_made_of_other_things_are_refused_or_harmless(place, wrong):
    n = 3
    right = [
        np.array(SQUARE_PLUS[0], np.int32),
        np.array(SQUARE_PLUS[1], np.int32),
        np.zeros((n, 2)),
        np.zeros(n, np.uint8),
        np.zeros(n, np.uint8),
        SQUARE_PLUS[2],
        np.array([], np.int32),
        np.array([]),
    ]
    result = outcome(lambda: _native.Tape(1, *right[:place], wrong, *right[place + 1 :]))
    if isinstance(result, tuple):
        assert result[0] in ("TypeError", "ValueError", "BufferError", "AttributeError"), result
    else:
        assert result.run(np.array([3.0])) == (0, -1)
        assert result.number(2) == 12.0


@pytest.mark.parametrize("wrong", WRONG_BUFFERS, ids=lambda x: f"{type(x).__name__} {x!r:.20}")
def test_other_things_as_inputs_and_outputs_are_refused_or_harmless(wrong):
    t = tape(*SQUARE_PLUS)
    good = isinstance(wrong, array) and wrong.typecode == "d"
    for call in (
        lambda: t.run(wrong),
        lambda: t.sweep(2, 1.0, wrong),
        lambda: _native.gather((Value(1.0),), wrong),
    ):
        result = outcome(call)
        if good:
            assert result in ((0, -1), None)
        else:
            assert isinstance(result, tuple)
            assert result[0] in ("TypeError", "ValueError", "BufferError"), result
    with pytest.raises((TypeError, ValueError, BufferError)):
        t.point(wrong, wrong)


def test_a_read_only_output_is_refused():
    t = tape(*SQUARE_PLUS)
    out = np.zeros(1)
    out.flags.writeable = False
    assert t.run(out) == (0, -1)
    with pytest.raises((ValueError, BufferError)):
        t.sweep(2, 1.0, out)


@pytest.mark.parametrize("root", [-1, 3, 2**31, 2**40, -(2**40)])
def test_a_sweep_from_nowhere_is_refused(root):
    t = tape(*SQUARE_PLUS)
    with pytest.raises(ValueError, match="malformed"):
        t.sweep(root, 1.0, np.zeros(1))
    with pytest.raises(ValueError, match="malformed"):
        t.number(root)


@pytest.mark.parametrize(
    ("places", "positions"),
    [
        ([6], [2]),
        ([6], [3]),
        ([6], [-1]),
        ([9], [0]),
        ([-1], [0]),
        ([8], [0]),
        ([0], [0]),
        ([2**31 - 1], [0]),
    ],
)
def test_pointing_somewhere_impossible_is_refused(places, positions):
    t = tape(*SQUARE_PLUS)
    with pytest.raises(ValueError, match="malformed"):
        t.point(np.array(places, np.int32), np.array(positions, np.int32))
    assert t.run(np.array([3.0])) == (0, -1)
    assert (t.number(2), swept(t, 2)) == (12.0, [7.0])


def test_pointing_elsewhere_changes_numbers_and_order():
    t = tape([0, 0, 2, 3], [N, N, [0, 0, -1], [2, 0, -1]], [ops.mul, ops.add], inputs=2)
    xs = np.array([3.0, 5.0])
    assert t.run(xs) == (0, -1)
    assert (t.number(3), swept(t, 3, 2)) == (12.0, [7.0, 0.0])
    t.point(np.array([9], np.int32), np.array([1], np.int32))  # x1 + x0
    assert t.run(xs) == (0, -1)
    assert (t.number(3), swept(t, 3, 2)) == (8.0, [1.0, 1.0])
    t.point(np.array([9, 6], np.int32), np.array([2, 1], np.int32))  # x1 * x0 + x0
    assert t.run(xs) == (0, -1)
    assert (t.number(3), swept(t, 3, 2)) == (18.0, [6.0, 3.0])


def test_guards_and_undefined_instructions_are_reported():
    t = tape(
        [0, 2, 3, 4],
        [N, [0, 0, -1], [0, 1, -1], [0, -1, -1]],
        [ops.mul, ops.less, ops.log],
        guards=[2],
        expected=[1.0],
    )
    assert t.run(np.array([3.0])) == (0, -1)
    assert t.run(np.array([0.5])) == (1, 0)
    assert t.run(np.array([-3.0])) == (2, 3)
    assert t.run(np.array([math.nan]))[0] == 1


@pytest.mark.parametrize("name", ops.BLOCKS)
def test_the_building_blocks_are_the_tables(name):
    block = ops.BLOCKS[name]
    rng = Random(name)
    n = block.arity
    t = tape([*[0] * n, 2], [*[N] * n, [*range(n), *[-1] * (3 - n)]], [block], inputs=n)
    for _ in range(200):
        xs = [rng.choice(POINTS) for _ in range(n)]
        t.run(np.array(xs))
        parameters = [0.0] * len(block.parameters)  # those of the tape above
        y = float(block.forward(*xs, *parameters))
        assert bits(t.number(n)) == bits(y)
        slopes = [float(p(y, *xs, *parameters)) for p in block.partials]
        assert [bits(g + 0.0) for g in swept(t, n, n)] == [bits(g + 0.0) for g in slopes]


# --- random tapes beside the interpreter --------------------------------------------------------

HOT = ("add", "mul", "pow", "exp", "log", "relu", "abs", "tanh", "sigmoid", "sqrt", "sin", "cos")
FAST = [*[ops.TABLE[name] for name in HOT], ops.maximum, ops.power, *ops.BLOCKS.values()]
FAST += [ops.softplus, ops.clip, ops.minimum]
SLOW = [ops.erf, ops.hypot, ops.leaky_relu]  # in Python


def random_recording(rng, rules, size, reach):
    """Any instructions on any operands of the ``reach`` before them: no program need make sense."""
    inputs = rng.randrange(1, 5)
    n = inputs + size
    codes, number, flags = np.zeros((3, n), np.int32)
    operands, constants = np.full((n, 3), -1, np.int32), np.zeros((n, 2))
    usual = FIRST_RULE + rules.index(ops.add), FIRST_RULE + rules.index(ops.mul)
    for i in range(inputs, n):
        kinds = [*usual * 2, rng.randrange(FIRST_RULE, FIRST_RULE + len(rules)), CONSTANT]
        codes[i] = rng.choices(kinds, (3, 3, 3, 3, 6, 1))[0]
        constants[i] = rng.choice([(0.5, 1.5), (2.0, 3.0), (-1.0, 0.0), (0.0, 2.0)])
        if codes[i] != CONSTANT:
            rule = rules[codes[i] - FIRST_RULE]
            number[i] = rule in (ops.add, ops.mul, ops.maximum) and rng.random() < 0.2
            taken = rule.arity - number[i]
            operands[i, :taken] = [rng.randrange(max(0, i - reach), i) for _ in range(taken)]
        flags[i] = rng.random() < 0.1
    guards = () if rng.random() < 0.8 else (Guard(n - 1, 1.0, ""), Guard(n // 2, 0.0, ""))
    return Recording(
        inputs, codes, operands, constants, number == 1, tuple(rules), flags == 1, guards, None
    )


def random_numbers(rng, count, special):
    return np.array(
        [
            rng.choice(POINTS) if rng.random() < special else rng.uniform(-2.0, 2.0)
            for _ in range(count)
        ]
    )


def random_moves(rng, recording, share):
    """Some operands, and other instructions for them to read."""
    slots = np.flatnonzero((recording.operands >= 0).ravel())
    places = [place for place in slots.tolist() if rng.random() < share]
    return np.array(places, np.int32), lambda: np.array(
        [rng.randrange(place // 3) for place in places], np.int32
    )


def assert_tape_is_interpreter(rng, recording, tape, oracle, special):
    numbers = random_numbers(rng, recording.inputs, special)
    status = tape.run(numbers)
    assert status == oracle.run(numbers), str(recording)
    assert [bits(x) for x in map(tape.number, range(len(recording)))] == [
        bits(x) for x in oracle.data
    ], str(recording)
    some = np.array([0, len(recording) // 2, len(recording) - 1], np.int32)
    found, wanted = np.zeros(3), np.zeros(3)
    tape.numbers(some, found)
    oracle.numbers(some, wanted)
    assert [bits(x) for x in found.tolist()] == [bits(x) for x in wanted.tolist()]
    for root in [len(recording) - 1, *[rng.randrange(len(recording)) for _ in range(2)]]:
        found, wanted = np.full(recording.inputs, 7.0), np.full(recording.inputs, 7.0)
        seed = rng.choice([1.0, -0.5, 0.0, -0.0, math.inf, math.nan])
        tape.sweep(root, seed, found)
        oracle.sweep(root, seed, wanted)
        assert [bits(x) for x in found.tolist()] == [bits(x) for x in wanted.tolist()], (
            root,
            seed,
            str(recording),
        )
    return status[0]


@pytest.mark.parametrize("rules", [FAST, FAST + SLOW], ids=["in C", "with rows in Python"])
@pytest.mark.parametrize("special", [0.0, 0.3])
def test_random_tapes_with_operands_that_move_are_the_interpreters(rules, special):
    statuses = []
    for i in range(count(ci=250, soak=20_000)):
        rng = Random(f"moving {i} {special} {len(rules)}")
        recording = random_recording(rng, rules, rng.randrange(1, 60), rng.choice([3, 10, 1000]))
        tape, oracle = execute.executor(recording), execute.Interpreter(recording)
        statuses += [assert_tape_is_interpreter(rng, recording, tape, oracle, special)]
        places, positions = random_moves(rng, recording, rng.choice([0.0, 0.05, 0.5]))
        candidates = [positions() for _ in range(3)]
        for _ in range(6):
            chosen = rng.choice([*candidates, positions()])
            tape.point(places, chosen)
            oracle.point(places, chosen)
            statuses += [assert_tape_is_interpreter(rng, recording, tape, oracle, special)]
    assert set(statuses) == {0, 1, 2}


def test_memory_that_runs_out_leaves_the_tape_as_it_was():
    """While operands move, places are given anew by run, and the order of a sweep by sweep."""
    pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
    script = """
import _testcapi
import numpy as np
from random import Random
import test_native_tape as tests
from chainrule.compiler.runtime import tape as execute

felt = 0
for seed in range(5):
    rng = Random(seed)
    recording = tests.random_recording(rng, tests.FAST, 30, 10)
    places, positions = tests.random_moves(rng, recording, 0.3)
    first, second = positions(), positions()
    numbers, out = np.full(recording.inputs, 0.5), np.zeros(recording.inputs)
    root = len(recording) - 1
    for act in (lambda t: t.run(numbers), lambda t: t.sweep(root, 1.0, out)):
        n, failed = 0, True
        while failed:
            n += 1
            tape, oracle = execute.executor(recording), execute.Interpreter(recording)
            tape.point(places, first)
            tape.run(numbers)
            tape.sweep(0, 1.0, out)
            tape.point(places, second)
            oracle.point(places, second)
            _testcapi.set_nomemory(n, n + 1)
            try:
                act(tape)
                failed = False
            except MemoryError:
                felt += 1
            finally:
                _testcapi.remove_mem_hooks()
            tests.assert_tape_is_interpreter(rng, recording, tape, oracle, 0.0)
assert felt > 40, felt
print("alive")
"""
    assert run_python(script) == "alive\n"


def test_a_sum_nested_to_the_right_is_swept_without_recursion():
    n = count(ci=100_000, soak=1_000_000)
    leaves = [Value(0.5) for _ in range(3)]
    y = leaves[0] * leaves[1]
    for i in range(n):
        y = leaves[i % 3] * 1e-9 + y
    line = linearize(y, NATIVE.topological_order(y))
    assert line.run() == -1
    assert [bits(x) for x in line.sweep()] == fresh_gradients(y, line.leaves)


def test_nothing_is_passed_on_where_a_slope_or_an_adjoint_is_zero():
    x = Value(0.0)
    dead, alive = x.relu(), x + 2.0
    with nonfinite("allow"):
        for y in (dead * math.inf, (dead * math.inf) * x, dead**-1 * 0.0 + alive * alive):
            line = linearize(y)
            line.run()
            assert [bits(g) for g in line.sweep()] == fresh_gradients(y, line.leaves)
            assert [bits(g) for g in line.sweep(0.0)] == ["0" * 16] * len(line.leaves)


def test_a_rule_is_asked_for_its_shape_once():
    asked = []

    class Asked(Row):
        @property
        def arity(self):
            asked.append("arity")
            return 1

        @property
        def parameters(self):
            asked.append("parameters")
            return ()

    t = tape([0, 2, 2, 2], [N, [0, -1, -1], [1, -1, -1], [2, -1, -1]], [Asked(), None])
    assert t.run(np.array([1.0])) == (0, -1)
    assert (t.number(3), asked) == (8.0, ["arity", "parameters"])


# --- rows that misbehave ------------------------------------------------------------------------

CHAIN = ([0, 2, 2, 3], [N, [0, -1, -1], [1, -1, -1], [2, 0, -1]])  # row(row(x)) + x


class Row:
    """A rule of one's own that does something else meanwhile."""

    arity, parameters, differentiable = 1, (), (0,)

    def __init__(self, also=lambda: None, slopes=(2.0,), y=None):
        self.also, self.slopes, self.y = also, slopes, y

    def forward(self, *xs):
        self.also()
        return 2.0 * xs[0] if self.y is None else self.y

    def local_grads(self, y, xs, parameters):
        self.also()
        return self.slopes


def test_a_row_may_do_anything_while_the_tape_runs():
    codes, operands = (np.array(part, np.int32) for part in CHAIN)
    rules, out = [], np.zeros(1)
    parts = (codes, operands, np.zeros((4, 2)), np.zeros(4, np.uint8), np.zeros(4, np.uint8))
    again = []

    def also():
        codes[:] = 2**31 - 1
        operands[:] = 2**31 - 1
        rules.clear()
        gc.collect()
        if len(again) < 3:
            again.append(True)
            t.run(np.array([1.0]))
            t.sweep(3, 1.0, out)
            t.sweep(1, 1.0, out)
            t.point(np.array([6], np.int32), np.array([0], np.int32))
            t.point(np.array([6], np.int32), np.array([1], np.int32))

    rules += [Row(also), ops.add]
    t = _native.Tape(1, *parts, rules, np.zeros(0, np.int32), np.zeros(0))
    assert t.run(np.array([3.0]))[0] == 0
    t.sweep(3, 1.0, out)
    assert t.run(np.array([3.0])) == (0, -1)  # nothing nested any more
    t.sweep(3, 1.0, out)
    assert (t.number(3), out.tolist()) == (15.0, [5.0])


def test_a_row_may_move_operands_while_the_tape_runs():
    """Its own sweep may end anywhere, but the next is right, and nothing is read out of bounds."""
    for i in range(count(ci=150, soak=5_000)):
        rng = Random(f"meanwhile {i}")
        busy = []

        def also():
            if len(busy) < 2 and rng.random() < 0.5:
                busy.append(True)
                for _ in range(3):
                    rng.choice(actions)()
                busy.pop()

        rules = [*FAST, Row(also)]
        recording = random_recording(rng, rules, rng.randrange(1, 40), 10)
        t, oracle = execute.executor(recording), execute.Interpreter(recording)
        places, positions = random_moves(rng, recording, 0.3)
        numbers = random_numbers(rng, recording.inputs, 0.0)
        out = np.zeros(recording.inputs)
        actions = [
            lambda: t.run(numbers),
            lambda: t.sweep(rng.randrange(len(recording)), 1.0, out),
            lambda: t.point(places, positions()),
            lambda: t.number(1),
            gc.collect,
        ]
        for _ in range(10):
            rng.choice(actions)()
        busy += [True, True]  # nothing nested any more
        chosen = positions()
        t.point(places, chosen)
        oracle.point(places, chosen)
        assert_tape_is_interpreter(rng, recording, t, oracle, 0.0)


@pytest.mark.parametrize("slopes", [(), (1.0, 2.0), (1.0,) * 100_000, [1.0], None, "x", 1.0])
def test_a_row_with_other_slopes_is_refused(slopes):
    t = tape(*CHAIN, [Row(slopes=slopes), ops.add])
    t.run(np.array([3.0]))
    whole = np.arange(5.0)
    with pytest.raises((ValueError, TypeError)):
        t.sweep(3, 1.0, whole[2:3])
    assert whole[[0, 1, 3, 4]].tolist() == [0.0, 1.0, 3.0, 4.0], (
        "nothing beside the output is written"
    )


@pytest.mark.parametrize("y", ["x", None, [1.0], 1j])
def test_a_row_that_gives_no_number_is_refused(y):
    row = Row(y=y)
    row.forward = lambda *xs: y
    with pytest.raises(TypeError):
        tape(*CHAIN, [row, ops.add]).run(np.array([3.0]))
    row.forward = lambda *xs: 1.0
    row.slopes = (y,)
    t = tape(*CHAIN, [row, ops.add])
    t.run(np.array([3.0]))
    with pytest.raises(TypeError):
        t.sweep(3, 1.0, np.zeros(1))


def test_an_error_in_a_row_comes_through():
    def also():
        raise KeyError("mine")

    t = tape(*CHAIN, [Row(also), ops.add])
    with pytest.raises(KeyError, match="mine"):
        t.run(np.array([3.0]))
    with pytest.raises(KeyError, match="mine"):
        t.sweep(3, 1.0, np.zeros(1))


def test_a_row_whose_shape_changes_reads_no_strange_memory():
    seen = []

    class Growing:
        arity = 1
        parameters = ()

        def forward(self, *xs):
            seen.append(xs)
            return 1.0

        def local_grads(self, y, xs, parameters):
            seen.append((*xs, *parameters))
            return (1.0,)

    row = Growing()
    t = tape([0, 2], [N, [0, -1, -1]], [row])
    Growing.parameters = ("p",) * 50
    for call in (lambda: t.run(np.array([3.0])), lambda: t.sweep(1, 1.0, np.zeros(1))):
        outcome(call)
    assert all(len(xs) <= 3 for xs in seen)


def test_a_row_that_rewrites_the_arrays_while_they_are_checked_does_no_harm():
    script = """
import numpy as np
from chainrule import _native, nonfinite; from chainrule.core import ops

operands = np.array([[-1] * 3, [2**31 - 1, -1, -1], [1, 0, -1]], np.int32)

class Sly:
    parameters = ()
    @property
    def arity(self):
        operands[1] = (0, -1, -1)
        return 1
    def forward(self, *xs):
        return 1.0
    def local_grads(self, *rest):
        return (1.0,)

try:
    t = _native.Tape(1, np.array([0, 2, 3], np.int32), operands, np.zeros((3, 2)), np.zeros(3, np.uint8),
                     np.zeros(3, np.uint8), [Sly(), ops.add], np.zeros(0, np.int32), np.zeros(0))
    t.run(np.array([3.0]))
    t.sweep(2, 1.0, np.zeros(1))
except ValueError as error:
    assert "malformed" in str(error)
print("alive")
"""
    assert run_python(script) == "alive\n"


def test_more_rules_than_fit_in_sixteen_bits_are_kept_apart():
    rules = [Row(y=float(i)) for i in range(70_000)]
    t = tape([0, 2 + 69_999], [N, [0, -1, -1]], rules)
    assert t.run(np.array([3.0])) == (0, -1)
    assert t.number(1) == 69_999.0


# --- flatten, gather, compiled_node -------------------------------------------------------------


def test_flatten_names_a_value_nobody_told_of():
    a, b = Value(2.0), Value(3.0)
    y = a * b
    z = y + a
    assert _native.flatten([a, b], [y, z])[-1] is None
    assert _native.flatten([a], [y, z])[-1] is b
    assert _native.flatten([a, b], [z])[-1] is y
    custom = Value(1.0, (a,), (1.0,), op="mine")
    assert _native.flatten([a], [custom])[-1] is custom
    z.backward()
    assert (a.grad, b.grad, y.grad) == (4.0, 2.0, 1.0), "no mark stays behind"


def test_flatten_refuses_what_is_no_value_or_is_there_twice():
    a, b = Value(2.0), Value(3.0)
    y = a * b
    for inputs, nodes in [
        ([a, a], [y]), ([a, b], [y, y]), ([a, b], [a]), ([a, 3.0], [y]), ([a, b], [None]), ([REFERENCE.Value(1.0)], []),
    ]:  # fmt: skip
        a.grad = 7.0
        with pytest.raises(ValueError, match="entry"):
            _native.flatten(inputs, nodes)
        assert a.grad == 7.0
        a.grad = b.grad = 0.0
        y.backward()
        assert (a.grad, b.grad) == (3.0, 2.0), "no mark stays behind"
    for wrong in [(None, []), ([], ()), ((), [])]:
        with pytest.raises(TypeError):
            _native.flatten(*wrong)


def test_flatten_tells_where_gathers_and_wanted_values_are():
    a, b, chosen = Value(2.0), Value(3.0), Value(3.0)
    y = a * chosen
    z = chosen + y
    found = _native.flatten([a, b], [y, z], [chosen], [z, b, y])
    assert found[-1] is None
    operands, *rows = (np.frombuffer(found[k], np.int32).tolist() for k in (1, 5, 6, 7))
    assert operands[6:] == [0, -2, -1, -2, 2, -1]
    assert rows == [[7, 9], [0, 0], [3, 1, 2]]
    assert _native.flatten([a, b], [y, z], [chosen], [Value(1.0)])[-1].data == 1.0
    assert _native.flatten([a, b], [y, z], [chosen], [chosen])[-1] is chosen, "it is no instruction"
    for wrong in [([a], [y], [a], []), ([a], [y], [chosen], [3.0]), ([a], [y], [3.0], [])]:
        with pytest.raises(ValueError, match="not a Value"):
            _native.flatten(*wrong)
    z.backward()
    assert (a.grad, chosen.grad, y.grad) == (3.0, 3.0, 1.0), "no mark stays behind"


def test_instructions_are_compared_with_another_recording():
    def graph(number, other=None):
        a, b, chosen = Value(2.0), Value(3.0), Value(5.0)
        nodes = [Value(7.0), a * chosen]
        for _ in range(3_000):
            nodes += [nodes[-1] + b, nodes[-1] * number]
        if other is not None:
            nodes[other] = b * chosen
        return [a, b], nodes, [chosen], nodes[-1:]

    def written(parts, like):
        """(arrays, rules, places, owners, positions, unknown); arrays is None where it repeats."""
        inputs, nodes, gathers, wanted = parts
        made = _native.Instructions(inputs, inputs[:1], like)
        assert [made.add(node) for node in nodes] == list(range(len(nodes)))
        return made.finish([], gathers, wanted)

    def flattened(parts):
        """The arrays of a graph, with one constant each: no operation here has two parameters."""
        codes, operands, constants, number = _native.flatten(*parts)[:4]
        return codes, operands, np.frombuffer(constants)[::2].tobytes(), number

    arrays, _, places, owners, positions, _ = written(graph(0.5), None)
    assert arrays == flattened(graph(0.5)), "the same as from a graph"
    like = [np.frombuffer(x, k) for x, k in zip(arrays, ("i4", "i4", "f8", "u1"), strict=True)]
    again, rules, *rest, unknown = written(graph(0.5), (2, *like))
    assert again is None
    assert [rule.name for rule in rules] == ["mul", "add"]
    assert rest == [places, owners, positions]
    assert unknown is None
    changed = written(graph(0.25), (2, *like))[0]
    assert changed == flattened(graph(0.25)), "a constant differs"
    assert written(graph(0.5, other=1), (2, *like))[-1] is not None, "a node is not there"
    inputs, nodes, gathers, wanted = graph(0.5)
    shorter = written((inputs, nodes[:-1], gathers, nodes[:1]), (2, *like))[0]
    assert [len(row) for row in shorter] == [len(row) * 6_003 // 6_004 for row in arrays]
    inputs, nodes, gathers, wanted = graph(0.5)
    nodes[0], nodes[1] = nodes[1], nodes[0]
    swapped = written((inputs, nodes, gathers, wanted), (2, *like))[0]
    assert swapped is not None, "in another order"
    for k in range(4):
        wrong = [*like[:k], like[k].astype(np.float32), *like[k + 1 :]]
        with pytest.raises(TypeError, match="buffer"):
            written(graph(0.5), (2, *wrong))
    with pytest.raises(ValueError, match="there twice"):
        _native.Instructions([inputs[0], inputs[0]], [], None)


def test_flatten_is_not_disturbed_by_the_garbage_collector():
    script = """
import gc
from chainrule import _native
from chainrule.core.native import Value

def callback(phase, info):
    if phase == "start" and state:
        hit.append(True)
        y.backward()
        inputs.clear()
        nodes.clear()

state, hit, hold = [], [], []
gc.callbacks.append(callback)
gc.disable()
for i in range(400):
    a, b = Value(2.0), Value(3.0)
    y = a * b
    inputs, nodes = [a, b], [y, Value(1.0), Value(2.0) * 3.0, Value(2.0) * Value(4.0)]
    if i % 2:
        nodes += [nodes[1]]      # there twice: an error
    hold.append([[] for _ in range(120)])
    hold.append([() for _ in range(120)])
    state.append(1)
    gc.set_threshold(max(1, gc.get_count()[0] + i % 12 - 4), 1000, 1000)
    gc.enable()
    try:
        hold.append(_native.flatten(inputs, nodes))
    except ValueError:
        pass
    gc.disable()
    state.clear()
    a.grad = b.grad = 0.0
    y.backward()
    assert (a.grad, b.grad, y.grad) == (3.0, 2.0, 1.0), (i, a, b, y)
assert hit, "the collector must have come"
print("alive")
"""
    assert run_python(script) == "alive\n"


def test_gather_copies_numbers():
    out = np.full(4, 9.0)
    _native.gather((Value(1.5), Value(2.0) * 2), out)
    assert out.tolist() == [1.5, 4.0, 9.0, 9.0]
    for wrong in [(Value(1.0), None), (REFERENCE.Value(1.0),), (1.0,)]:
        with pytest.raises(TypeError):
            _native.gather(wrong, out)
    with pytest.raises(TypeError):
        _native.gather([Value(1.0)], out)


def test_a_compiled_node_is_a_custom_operation():
    a, b, c = Value(1.0), Value(2.0), Value(3.0) * 2
    y = _native.compiled_node(7.5, "compiled", (a, b, c), np.array([1.0, -2.0, 0.5]))
    assert (y.data, y.op, y.children, y.local_grads) == (
        7.5,
        "compiled",
        (a, b, c),
        (1.0, -2.0, 0.5),
    )
    (y * 2).backward()
    assert [v.grad for v in (a, b, c)] == [2.0, -4.0, 1.0]
    assert _native.compiled_node(1.0, "none", (), np.zeros(0)).children == ()
    for wrong in [
        ((a, 1.0), np.zeros(2)),
        ((a, b), np.zeros(1)),
        ((a,), np.zeros(1, np.float32)),
        ([a], np.zeros(1)),
    ]:
        with pytest.raises(TypeError):
            _native.compiled_node(1.0, "x", *wrong)


def test_a_compiled_node_makes_no_cycle():
    v = Value.__new__(Value)
    y = _native.compiled_node(1.0, "compiled", (v,), np.ones(1))
    with pytest.raises(TypeError, match="already built"):
        v.__init__(1.0, (y,), (1.0,))
    assert v.children == ()
