"""What ``report(stage="lifted")`` shows: formulas that say what the array program computes."""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from compile_view import View
from test_compile_lifted import GPTS, OTHERS, Writer, lorenz, normal

import chainrule
from chainrule import Value, exp, log, relu, tanh
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.formulas import input_names as naming
from chainrule.compiler.formulas import reading
from chainrule.compiler.formulas.decoding import Choice
from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Axis,
    Call,
    Expression,
    Number,
    Power,
    Product,
    Reduce,
    Ref,
    Select,
    Sum,
)
from chainrule.compiler.formulas.translation import Line
from chainrule.compiler.lift import interpreter as arrays
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.runtime.results import root_of
from chainrule.core import ops

# --- a function's array program, without machine code ---------------------------------------------


class Read:
    """The array program of a function's call, its numbers, and how it reads."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        fast = chainrule.compile(function, lift=False, on_fallback="raise")
        fast.value_and_grad(*arguments)
        view = View(fast)
        (key,), variant = view.dispatch.structures, view.variant
        call = flatten_call(arguments, {}, differentiate=True)
        root = root_of(variant.recording.result)
        assert root is not None
        position = root.position
        source = RecordedCall.of(call, variant.recording, position)
        self.program = program = source.program()
        self.root = int(program.address[position])
        self.inputs = naming.inputs(
            function, key[0][1], key[0][2], variant.captured, view.dispatch.captured
        )
        self.choice = Choice(variant.recording)
        selected, _ = variant.decide(call.ints)
        gathered = program.address[selected[program.places]]
        self.numbers = arrays.run(program, variant.inputs, gathered)
        self.integers = call.ints

    def reading(self) -> reading.Reading:
        return reading.Reading(self.program, self.inputs, self.choice, self.root)

    @property
    def lines(self) -> list[str]:
        found = self.reading().text()
        assert found == reading.read(self.program, self.inputs, self.choice, self.root)
        return found.splitlines()

    @property
    def formulas(self) -> list[str]:
        """The lines without sizes."""
        return [re.sub(r"  +\[.*", "", line) for line in self.lines]


# --- formulas as they are meant -------------------------------------------------------------------


class NoFormula(Exception):
    """A place is not known."""


class Meaning:
    """Computes formulas from the numbers of the program."""

    def __init__(self, read: Read) -> None:
        self.read, self.reading = read, read.reading()
        self.arena = self.reading.arena
        self.places: dict[Any, dict[tuple[int, ...], int]] = {}
        self.integers = {stretch: read.integers[slot:] for slot, stretch in self.arena.integers}

    def address(self, array: Any, at: tuple[int, ...]) -> int:
        if array not in self.places:
            rows = zip(*array.coordinates, strict=True) if array.axes else [()]
            self.places[array] = {tuple(map(int, row)): k for k, row in enumerate(rows)}
        return int(array.start + self.places[array][at])

    def index(self, place: AffineIndex, at: dict[Axis, int]) -> int:
        return place.constant + sum(times * at[axis] for times, axis in place.parts)

    def reads(self, x: Ref, at: dict[Axis, int]) -> float:
        found = []
        for place in x.places:
            if place is None or (isinstance(place, Select) and not place.exact):
                raise NoFormula
            if isinstance(place, Select):
                if None in place.at or len(place.at) > 1:
                    raise NoFormula
                slot = self.index(place.at[0], at) if place.at else 0
                found.append(self.integers[place.integers][slot])
            else:
                found.append(self.index(place, at))
        array: Any = x.arrays[found.pop(0) if len(x.arrays) > 1 else 0]
        if array.name.startswith("("):
            return float(eval(array.name)[found[0]])
        if array.name == "numbers":
            raise NoFormula
        return float(self.read.numbers[self.address(array, tuple(found))])

    def points(self, axes: tuple[Axis, ...], at: dict[Axis, int]) -> Iterator[dict[Axis, int]]:
        if not axes:
            yield at
            return
        axis, *others = axes
        count = axis.count if axis.length is None else self.index(axis.length, at)
        for k in range(count):
            yield from self.points(tuple(others), {**at, axis: k})

    def value(self, x: Expression, at: dict[Axis, int]) -> float:
        match x:
            case Number(value):
                return value
            case Ref():
                return self.reads(x, at)
            case Sum(terms, constant):
                return sum(self.value(y, at) for y in terms) + constant
            case Product(number, over, under):
                for y in over:
                    number *= self.value(y, at)
                for y in under:
                    number /= self.value(y, at)
                return number
            case Power(base, exponent):
                return self.value(base, at) ** self.value(exponent, at)
            case Reduce(symbol, axes, body):
                found = [self.value(body, p) for p in self.points(axes, at)]
                return {"Σ": sum, "max": max, "min": min}[symbol](found)
            case Call(name, operands):
                xs = [self.value(y, at) for y in operands]
                functions: dict[str, Callable[..., float]] = {
                    ".data": float,
                    "<": lambda a, b: a < b,
                    "≤": lambda a, b: a <= b,
                    "==": lambda a, b: a == b,
                    "where": lambda c, a, b: a if c else b,
                    "max": max,
                    "min": min,
                }
                return float((functions.get(name) or ops.TABLE[name])(*xs))

    def check(self, line: Line) -> int:
        """Compare a formula with what the program computed; how many numbers were compared."""
        if line.value is None:
            return 0
        compared = 0
        for at in self.points(line.axes, {}):
            places = tuple(self.index(p, at) for p in line.target.places)
            wanted = self.read.numbers[self.address(line.array, places)]
            try:
                found = self.value(line.value, at)
            except NoFormula:
                return compared
            assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12), self.reading.text()
            compared += 1
        if line.whole:
            assert compared == line.instruction.count
        return compared


def check(read: Read) -> float:
    """Every formula means what the program computes; the share of lines that have one."""
    meaning = Meaning(read)
    kept = [line for line in meaning.reading.lines if line.kept]
    found = [meaning.check(line) == line.instruction.count for line in kept]
    return sum(found) / len(found)


MODELS = [
    *[(model, (params(1), [1, 2, 3, 4, 0, 5])) for model, params in GPTS],
    *[(function, arguments(1)) for function, arguments in OTHERS.values()],
    (lorenz, (np.array([1.0, 1.0, 1.0, 10.0, 28.0, 8 / 3]),)),
]


@pytest.mark.parametrize(
    ("function", "arguments"), MODELS, ids=lambda x: getattr(x, "__name__", "")
)
def test_formulas_mean_what_the_program_computes(function, arguments):
    read = Read(function, *arguments)
    assert check(read) >= (1.0 if function.__name__ != "mlp" else 0.7)
    assert all(len(line) <= reading.WIDTH for line in read.lines)
    assert len(read.lines) <= 50
    assert "…" not in "".join(read.lines)


def test_random_programs_are_read():
    shares = []
    for seed in range(30):
        world: dict[str, Any] = {}
        exec(Writer(random.Random(seed)).source(), world)
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        params = tuple([numbers.normal(size=shape) for shape in (7, 4, (4, 5), (5, 3))])
        read = Read(world["f"], params, [rng.randrange(4) for _ in range(3)], 2)
        shares.append(check(read))
    assert np.mean(shares) > 0.8


# --- how it looks ---------------------------------------------------------------------------------


def layer(p, x):
    hidden = [
        [relu(sum(w * v for w, v in zip(row, point, strict=True)) + b) for row, b in rows]
        for point in x
        for rows in [list(zip(p["W1"], p["b1"], strict=True))]
    ]
    return sum(sum(h) ** 2 for h in hidden)


def layer_arguments() -> tuple[Any, ...]:
    return {"W1": normal(1, 5, 3), "b1": normal(2, 5)}, normal(3, 4, 3)


def test_a_layer_is_one_line():
    read = Read(layer, *layer_arguments())
    assert read.lines[0].split("  ")[0] == "a[t,i] = relu(Σ_j W1[i,j]·x[t,j] + b1[i])"
    assert read.lines[0].endswith("  [4×5]")
    assert read.formulas[1:] == ["b[t] = (Σ_i a[t,i])²", "result = Σ_t b[t]"]


def formulas(function: Callable[..., Any], *arguments: Any) -> list[str]:
    return Read(function, *arguments).formulas


def test_integers_that_select_are_shown():
    def f(table, ids):
        rows = [[exp(v) for v in table[t]] for t in ids[:-1]]
        picked = [log(row[t] / sum(row)) for row, t in zip(rows, ids[1:], strict=True)]
        return -sum(picked) / len(picked)

    assert formulas(f, normal(1, 5, 3), [2, 0, 1, 1]) == [
        "a[t,i] = exp(table[ids[t],i])",
        "b[t] = log(a[t,ids[t+1]] / (Σ_i a[t,i]))",
        "result = -Σ_t b[t] / 3",
    ]


def test_an_integer_by_itself_and_two_that_select_together():
    def f(table, row, column):
        return sum(tanh(table[row][column] * x) for x in table[0])

    assert formulas(f, normal(1, 4, 4), 2, 1) == ["result = Σ_i tanh(table[row,column]·table[0,i])"]


def test_integers_that_select_together_at_once_or_in_steps():
    def at_once(t, a, b, c):
        return sum(tanh(t[a, b, c] * x) for x in t[0, 0])

    def in_steps(t, a, b, c):
        return sum(tanh(t[a][b][c] * x) for x in t[0][0])

    def apart(t, a, b):
        return sum(tanh(t[a, k, b] * x) for k, x in enumerate(t[0, :, 0]))

    def pairs(table, ids):
        return sum(tanh(table[a][b]) for a, b in itertools.pairwise(ids))

    for f in (at_once, in_steps):
        found = formulas(f, normal(1, 4, 3, 2), 2, 1, 0)
        assert found == ["result = Σ_i tanh(t[a,b,c]·t[0,0,i])"]
    assert formulas(apart, normal(1, 4, 3, 2), 2, 1) == ["result = Σ_i tanh(t[a,i,b]·t[0,i,0])"]
    assert formulas(pairs, normal(1, 4, 4), [2, 0, 1, 3, 1]) == [
        "result = Σ_t<4 tanh(table[ids[t],ids[t+1]])"
    ]


def test_an_index_computed_from_an_integer_names_it_and_one_from_several_does_not():
    def f(t, a, b):
        return sum(tanh(t[a + 1][b] * x) for x in t[(a + b) % 4])

    assert formulas(f, normal(1, 4, 4), 2, 1) == ["result = Σ_i tanh(t[#a,b]·t[#integers,i])"]


def test_numbers_computed_from_integers_are_named_after_them():
    def of_each(p, ys):
        return sum(tanh(x * -y) for x, y in zip(p, ys, strict=True))

    def of_some(p, ys):
        return sum(tanh(x * -y) for x, y in zip(p, ys[1:], strict=True))

    def of_two(p, a, b):
        return sum(tanh(x * (a * 2 + b)) for x in p)

    assert formulas(of_each, normal(1, 4), [2, 1, 4, 3]) == ["result = Σ_i tanh(p[i]·neg(ys)[i])"]
    assert formulas(of_some, normal(1, 2), [2, 1, 4]) == [
        "result = Σ_c tanh(p[c]·{neg(ys[1]),neg(ys[2])}_c)"
    ]
    assert formulas(of_two, normal(1, 4), 2, 1) == ["result = Σ_i tanh(p[i]·add(mul(a, 2), b))"]
    fast = chainrule.compile(of_each, lift=True, on_fallback="raise")
    fast.value_and_grad(normal(1, 4), [2, 1, 4, 3])
    assert "neg(ys)[i]" in fast.report("lifted")


def test_ragged_rows():
    def f(p, x):
        return sum(tanh(sum(p[j] * x[j] for j in range(i + 1))) for i in range(len(p)))

    assert formulas(f, normal(1, 6), normal(2, 6)) == [
        "a[i] = tanh(Σ_j≤i p[j]·x[j])",
        "result = Σ_i a[i]",
    ]


def test_parts_of_arrays_have_bounds():
    def f(p):
        return sum(exp(a * b) for a, b in itertools.pairwise(p[1:8])) + sum(p[:5]) * p[8]

    assert formulas(f, normal(1, 9)) == ["result = p[8]·Σ_i<5 p[i] + Σ_i<6 exp(p[i+1]·p[i+2])"]


def test_steps_in_time():
    before, loop, *_, step, result = formulas(lorenz, np.ones(6))[-6:]
    assert before.startswith("e[-1] = ")
    assert loop == "39 times:"
    assert re.fullmatch(r"    (\w)\[t\] = \1\[t-1\] \+ .* / 100", step)
    assert result == "result = b[38]² + d[38] + e[38]"


def test_numbers_and_powers():
    def f(p):
        return sum((3.0 - x**2 / 7) * (x * x + 1e-5) ** -0.5 - x.data for x in p)

    assert formulas(f, normal(1, 6)) == [
        "result = Σ_i ((3 - p[i]² / 7)·(p[i]² + 1e-05)**-0.5 - p[i].data)"
    ]


# --- names ----------------------------------------------------------------------------------------


def test_names_of_arguments():
    def f(params, x, *rest, scale):
        everything = [*params["a"]["w"], *params["b"], *x["left"], *rest[0], *rest[1]]
        return sum(tanh(v * scale) for v in everything)

    numbers = [0.5, 0.25]
    call = flatten_call(
        (
            {"a": {"w": normal(1, 2)}, "b": numbers},
            {"left": [*numbers]},
            [*numbers],
            [[*numbers], [*numbers]],
        ),
        {"scale": 2.0},
        differentiate=True,
    )
    found = naming.arguments(f, call.key[1], call.key[2])
    assert [(x.name, x.shape) for x in found] == [
        ("a.w", (2,)),
        ("b", (2,)),
        ("x.left", (2,)),
        ("rest0", (2,)),
        ("rest1", (2, 2)),
        ("scale", ()),
    ]


def test_a_name_that_another_argument_has_is_not_shortened():
    call = flatten_call(({"x": 1.0}, 2.0), {}, differentiate=True)
    found = naming.arguments(lambda p, x: p["x"] * x, call.key[1], call.key[2])
    assert [x.name for x in found] == ["p.x", "x"]


def test_captured_values_have_the_names_of_their_variables():
    state = {"wte": [[Value(0.1 * i + j) for i in range(3)] for j in range(4)]}
    bias = Value(0.5, label="b")

    @chainrule.compile(lift=True, on_fallback="raise")
    def f(ids):
        return sum(sum(tanh(x + bias) for x in state["wte"][t]) for t in ids)

    pytest.importorskip("llvmlite")
    f([0, 2, 1])
    assert "tanh(wte[ids[t],i] + bias)" in f.report(stage="lifted")


# --- reports --------------------------------------------------------------------------------------


def test_reports_of_lengths():
    pytest.importorskip("llvmlite")

    @chainrule.compile(lift=True, on_fallback="raise")
    def f(p, ids):
        return sum(tanh(sum(p[t])) * p[k][0] for k, t in enumerate(ids))

    for ids in ([0, 1, 2, 1, 3, 0], [1, 2, 0, 3], [1, 2, 3, 0, 2]):
        f.value_and_grad(normal(1, 6, 3), ids)
    summary, shown = f.report(), f.report(stage="lifted")
    assert "machine code built in" in summary
    assert re.search(r"lifted to \d+ array instructions$", summary, re.MULTILINE)
    assert re.search(r"array instructions of a longer call$", summary, re.MULTILINE)
    assert shown.count("array instructions") == 1
    assert "serve 2 shorter calls too" in shown
    assert "  of p [6×3], ids [6]\n" in shown
    assert "p[ids[t],i]" in shown


def test_every_result_is_shown():
    pytest.importorskip("llvmlite")

    @chainrule.compile(lift=True, on_fallback="raise")
    def f(w, x):
        rows = [tanh(sum(a * b for a, b in zip(row, x, strict=True))) for row in w]
        return {"norm": sum(a * a for a in x), "rows": rows[::-1]}

    f(normal(1, 5, 3), normal(2, 3))
    rows = f.report(stage="lifted").splitlines()[-4:]
    assert [re.sub(" +", " ", row) for row in rows] == [
        "a = Σ_i x[i]²",
        "b[i] = tanh(Σ_j w[i,j]·x[j]) [5]",
        "result[0] = a",
        "result[i+1] = b[4-i] [5]",
    ]


def test_what_is_not_lifted_says_so():
    fast = chainrule.compile(lambda p: sum(p), on_fallback="raise")
    assert fast.report(stage="lifted") == ""
    fast.value_and_grad([1.0, 2.0])
    assert "not lifted: it is small" in fast.report(stage="lifted")


def test_a_program_that_cannot_be_read_is_listed():
    read = Read(layer, *layer_arguments())
    wrong = read.inputs[:-1]
    assert reading.read(read.program, wrong, read.choice, read.root) == str(read.program)
