"""The integer program of a recording in C, beside the same in Python; nothing crashes on bad input."""

import random

import numpy as np
import pytest
from programs import count

pytest.importorskip("chainrule._native")

import chainrule
from chainrule import _native
from chainrule.compiler.capture import integer_code
from chainrule.compiler.capture.integer_code import ANOTHER_PATH, BEYOND_BITS, KNOWN, decider
from chainrule.compiler.capture.integers import (
    BEYOND,
    EXACT,
    STEPS,
    IntegerGuard,
    IntegerProgram,
)
from chainrule.compiler.capture.selection import Gather, Selection

pytestmark = pytest.mark.skipif(
    chainrule.engine != "native", reason="the reference engine decides in Python"
)

BINARY = (
    *("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift"),
    *("lt", "le", "eq", "ne", "gt", "ge"),
)
UNARY = ("neg", "invert", "abs", "int", "bool")
NOTABLE = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    7,
    62,
    63,
    64,
    65,
    -64,
    EXACT,
    -EXACT,
    EXACT + 1,
    BEYOND - 1,
    -BEYOND,
]


def an_integer(chance):
    kind = chance.random()
    if kind < 0.4:
        return chance.choice(NOTABLE)
    if kind < 0.5:
        return chance.choice(NOTABLE[12:]) + chance.randrange(-3, 4)
    return chance.randrange(-12, 12) if kind < 0.9 else chance.randrange(-(2**40), 2**40)


def a_selection(chance, arguments, steps):
    """A program of all kinds of steps, whose first path is that of some integers."""
    constants = [chance.randrange(-5, 6) for _ in range(3)]
    constants += [True, 4, 3]
    constants += [tuple(chance.randrange(-9, 9) for _ in range(6)), (0.5, -0.0, 1e300, 2.5)]
    constants.append({k * chance.randrange(1, 4): chance.randrange(5) for k in range(-4, 5)})
    table, floats, places = (arguments + len(constants) - k for k in (3, 2, 1))
    nodes = [*range(arguments), *range(arguments, arguments + len(constants) - 3)]
    made, numbers, first = [], [], arguments + len(constants)
    for node in range(first, first + steps):
        kind = chance.choice(("binary", "binary", "unary", "table", "floats", "places", "several"))
        index = chance.choice(nodes)
        if kind == "binary":
            name = chance.choice(BINARY)
            # What is shifted by 2**50 fits into no memory.
            among = range(arguments, arguments + 6) if name == "lshift" else nodes
            made.append((name, (index, chance.choice(among))))
        elif kind == "unary":
            made.append((chance.choice(UNARY), (index,)))
        elif kind == "table":
            made.append(("read", (table, index)))
        elif kind == "places":
            made.append((chance.choice(("read", "find")), (places, index)))
        elif kind == "floats":
            made.append(("read", (floats, index)))
            numbers.append(node)
            continue
        else:
            name = chance.choice(("choose", "max", "min", "count", "wrap", "pow"))
            if name in ("wrap", "pow"):
                made.append((name, (index, arguments + chance.choice((4, 5)))))
            else:
                made.append((name, tuple(chance.choices(nodes, k=chance.randrange(2, 5)))))
        nodes.append(node)
    numbers += chance.sample(nodes, 2)
    gathers = [
        Gather(np.arange(10, 10 + chance.randrange(1, 9), dtype=np.int32), chance.choice(nodes))
        for _ in range(chance.randrange(3))
    ]
    return IntegerProgram(arguments, tuple(constants), tuple(made), ()), gathers, numbers, nodes


def in_python(program, gathers, numbers, integers, unused):
    """What Selection.decide says without C."""
    selection = Selection(
        program,
        (*gathers, unused),
        np.zeros(0, np.int32),
        np.arange(len(gathers), dtype=np.int32),
        tuple(numbers),
    )
    selection.__dict__["decider"] = None
    return selection.decide(integers)


def test_every_step_has_a_code():
    for name in STEPS.keys() - {"seeded", "item"}:  # of generators: see test_compile_generators
        operands = (1, 0) if name in ("read", "find") else (0, 0)
        table = {5: 0, 6: 1} if name == "find" else (5, 6)
        program = IntegerProgram(1, (table,), ((name, operands),), ())
        assert decider(program, [], []) is not None


@pytest.mark.filterwarnings(
    "ignore:Bitwise inversion:DeprecationWarning"
)  # of a bool, from 3.12 on
@pytest.mark.parametrize("seed", range(count(ci=60, soak=3000)))
def test_c_decides_what_python_decides(seed):
    chance = random.Random(seed)
    met = set()
    for _ in range(40):
        arguments = chance.randrange(1, 4)
        program, gathers, numbers, nodes = a_selection(chance, arguments, chance.randrange(7))
        integers = [an_integer(chance) for _ in range(arguments)]
        values = program.evaluate(integers)
        if values is not None and chance.random() < 0.7:
            guards = []
            for node in chance.sample(nodes, 2):
                truth = chance.random() < 0.5
                expected = bool(values[node]) if truth else values[node]
                guards.append(IntegerGuard(node, expected, truth, "here"))
            program = IntegerProgram(arguments, program.constants, program.steps, tuple(guards))
        unused = Gather(np.arange(5, dtype=np.int32), chance.choice(nodes))
        ranges = [(unused.index, 5)]
        made = decider(program, [(g.index, g.candidates) for g in gathers], numbers, ranges)
        if made is None:
            assert any(not -BEYOND <= g.expected < BEYOND for g in program.guards)
            continue
        for _ in range(6):
            selected, computed = np.zeros(len(gathers), np.int64), np.zeros(len(numbers))
            found = made.decide(integers, selected, computed)
            expected = in_python(program, gathers, numbers, integers, unused)
            met.add(found)
            if found == KNOWN:
                assert expected is not None
                assert selected.tolist() == expected[0].tolist()
                assert computed.tobytes() == np.array(expected[1]).tobytes()
            elif found == ANOTHER_PATH:
                assert expected is None
            if all(-BEYOND <= i < BEYOND for i in integers):
                rows = np.array([integers, integers], np.int64)
                two, numbered = np.zeros((2, len(gathers)), np.int64), np.zeros((2, len(numbers)))
                founds = np.full(2, 7, np.int64)
                made.decide_rows(rows, two, numbered, founds)
                assert founds.tolist() == [found, found]
                if found == KNOWN:
                    assert two.tolist() == [selected.tolist()] * 2
                    assert numbered.tobytes() == computed.tobytes() * 2
            integers[chance.randrange(arguments)] = an_integer(chance)
    assert met >= {KNOWN, ANOTHER_PATH}


@pytest.mark.parametrize("count", [1, 2, 4, 5, 9, 19, 40])
def test_sets_have_pythons_order(count):
    chance = random.Random(count)
    constants = tuple(range(count))
    steps = [("hashed", tuple(range(count)))]
    steps += [("item", (2 * count, count + k)) for k in range(count)]
    program = IntegerProgram(count, constants, tuple(steps), ())
    made = decider(program, [], range(2 * count + 1, 3 * count + 1))
    for _ in range(50):
        wide = chance.choice((3 * count, 2**10, 2**50))
        integers = chance.sample(range(-wide, wide), count)
        computed = np.zeros(count)
        assert made.decide(integers, np.zeros(0, np.int64), computed) == KNOWN
        assert computed.tolist() == [float(x) for x in set(integers)]
        assert program.evaluate(integers)[2 * count] == tuple(set(integers))


def test_what_does_not_fit_into_64_bits_is_left_to_python():
    steps = [
        ("add", (0, 1)),
        ("mul", (0, 0)),
        ("neg", (0,)),
        ("lshift", (1, 2)),
        ("abs", (0,)),
        ("sub", (1, 0)),
        ("floordiv", (0, 3)),
    ]
    for step in steps:
        program = IntegerProgram(1, (1, 200, -1), (step,), ())
        made, nothing = decider(program, [], []), np.zeros(0, np.int64)
        worst = BEYOND - 1 if step[0] == "add" else -BEYOND
        assert made.decide([worst], nothing, np.zeros(0)) == BEYOND_BITS, step
        assert made.decide([BEYOND], nothing, np.zeros(0)) == BEYOND_BITS
        if step[0] != "lshift":
            assert made.decide([5], nothing, np.zeros(0)) == KNOWN
    assert decider(IntegerProgram(1, (BEYOND,), (), ()), [], []) is None
    assert decider(IntegerProgram(1, ((BEYOND, 1),), (("read", (1, 0)),), ()), [], []) is None
    static = IntegerGuard(0, BEYOND, False, "here")
    assert decider(IntegerProgram(1, (), (), (static,)), [], []) is None


def test_numbers_beyond_floats_are_another_path():
    program = IntegerProgram(1, (), (), ())
    made, numbers = decider(program, [], [0]), np.zeros(1)
    assert made.decide([-EXACT], np.zeros(0, np.int64), numbers) == KNOWN
    assert numbers[0] == -EXACT
    assert made.decide([EXACT + 1], np.zeros(0, np.int64), numbers) == ANOTHER_PATH


def words(*rows):
    return np.array(rows, np.int64)


CODES = integer_code._CODES
GOOD = (
    *(
        2,
        words(7),
        words((0, 3, 0, 2, 0), (23, 4, 3, 0, 3), (CODES["guard equal"], 4, 9, 0, 0)),
        words(5, 9, 9),
    ),
    *(np.zeros(1), words((4, 0, 2)), words(3, 4), words((3, 0))),
)


def test_the_parts_of_a_program_fit_each_other():
    made = _native.Decider(*GOOD)
    selected, numbers = np.zeros(1, np.int64), np.zeros(1)
    assert made.decide([-5, 0], selected, numbers) == ANOTHER_PATH
    assert made.decide([-5, 9], selected, numbers) == ANOTHER_PATH
    wrong = {
        0: [-1, 2**62, "2", 3, 0],
        1: [words(), words(1, 2), np.zeros(1), None],
        2: [
            words((0, 3, 0, 3, 0)), words((0, 3, -1, 0, 0)), words((0, 2, 0, 0, 0)),
            words((0, 3, 4, 0, 0)), words((len(CODES), 3, 0, 0, 0)),
            words((CODES["guard range"], 3, 0, 0, 0)), words((-1, 3, 0, 0, 0)),
            words((23, 3, 0, 1, 3)), words((23, 3, 0, -1, 3)), words((23, 3, 0, 0, -1)),
            words((24, 3, 0, 0, 2)), words((25, 3, 0, 0, 2)), words((25, 3, 0, 0, 2**62)),
            words((CODES["find"], 3, 0, 0, 2)), words((CODES["find"], 3, 0, 0, 2**62)),
            words((CODES["choose"], 3, 0, 0, 1)), words((CODES["max"], 3, 0, 0, 0)),
            words((CODES["min"], 3, 0, 0, 3)), words((CODES["count"], 3, 0, 0, 3)),
            words((CODES["seeded"], 3, 0, 0, 0)), words((CODES["item"], 3, 0, 0, 0)),
            words((CODES["hashed"], 3, 0, 0, 1)), words((CODES["hashed"], 3, -1, 0, 0)),
            words((CODES["hashed"], 4, 0, 0, 0)), words((CODES["hashed"], 3, 0, 0, 4)),
            words((CODES["guard truth"], -1, 0, 0, 0)), words((0, 4, 0, 0, 0)),
        ],
        5: [words((5, 0, 2)), words((-1, 0, 2)), words((4, 1, 2)), words((4, -1, 2))],
        6: [words(3), words()],
        7: [words((5, 0)), words((-1, 0))],
    }  # fmt: skip
    for place, parts in wrong.items():
        for part in parts:
            with pytest.raises((TypeError, ValueError, OverflowError)):
                _native.Decider(*GOOD[:place], part, *GOOD[place + 1 :])


def test_a_decider_takes_integers_and_room_for_its_answer():
    made = _native.Decider(*GOOD)
    good = [1, 2], np.zeros(1, np.int64), np.zeros(1)
    made.decide(*good)
    for place, part in [
        (0, [1]),
        (0, [1, 2, 3]),
        (0, [1, 2.0]),
        (0, "12"),
        (0, [1, None]),
        (1, np.zeros(0, np.int64)),
        (1, np.zeros(1)),
        (2, np.zeros(0)),
        (2, np.zeros(1).data.toreadonly()),
    ]:
        with pytest.raises((TypeError, ValueError, BufferError)):
            made.decide(*good[:place], part, *good[place + 1 :])
    rows = words((1, 2)), words(0), np.zeros(1), words(0)
    made.decide_rows(*rows)
    for place, part in [
        (0, words((1, 2, 3))),
        (1, words(0, 0)),
        (2, np.zeros(2)),
        (3, words(0, 0)),
        (3, np.zeros(1)),
    ]:
        with pytest.raises((TypeError, ValueError, BufferError)):
            made.decide_rows(*rows[:place], part, *rows[place + 1 :])
