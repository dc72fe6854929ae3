"""The stages of lifting: index, the array program in numpy, the code of the op table."""

import ctypes
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compile_view import View
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays
from temporary_rows import temporary_row

import chainrule
from chainrule import Value, exp, log, sigmoid, sqrt, tanh, vsum, where
from chainrule.compiler.codegen import emit, jit
from chainrule.compiler.codegen.contraction import Emitter
from chainrule.compiler.codegen.instructions import differentiated
from chainrule.compiler.codegen.ir import Code, Vector, literal
from chainrule.compiler.codegen.walks import Walks
from chainrule.compiler.lift import interpreter as arrays
from chainrule.compiler.lift.canonical import NotLiftable, canonicalise
from chainrule.compiler.lift.grouping import Program, group
from chainrule.compiler.lift.program import distinct
from chainrule.compiler.lift.strides import IterationSpace, StridedLoop, iteration_space, repeated
from chainrule.compiler.runtime.machine import cache_aligned
from chainrule.compiler.runtime.tape import FINE, Interpreter
from chainrule.core import ops

pytest.importorskip("llvmlite")

# --- index ---------------------------------------------------------------------------------------

strides = st.integers(-9, 9)


def same_addresses(columns: Sequence[Any]) -> IterationSpace:
    """The space of some columns; whatever part of it is walked walks that part of them."""
    found, table = iteration_space(columns), np.stack(columns)
    np.testing.assert_array_equal(found.addresses(), table)
    points = table.shape[1]
    assert found.outer(points) == outermost(found)
    assert found.outer(0) == 0
    for first in range(1, points + 1):
        trips = found.outer(first)
        if trips is not None:
            part = shortened(found, trips).addresses()
            np.testing.assert_array_equal(part, table[:, :first])
    assert found.outer(points + 1) is None
    for chosen in ([0], list(range(len(table)))[::-1], [0, *range(len(table))]):
        for keep in (False, True):
            some = found.select(chosen, keep)
            np.testing.assert_array_equal(some.addresses(), table[chosen])
            if keep:
                assert outermost(some) == outermost(found)
    return found


@given(st.lists(st.integers(0, 10**6) | st.integers(0, 9), max_size=30))
def test_distinct_addresses_are_those_of_numpy(numbers):
    addresses = np.array(numbers, np.int64)
    for some in (addresses, np.sort(addresses), np.unique(addresses)):
        np.testing.assert_array_equal(distinct(some), np.unique(some))


def outermost(found: IterationSpace) -> int:
    """How many trips the outermost loop, or the loop over the rows, takes."""
    return found.rows if found.rows > 1 or not found.loops else found.loops[0].count


def shortened(found: IterationSpace, trips: int) -> IterationSpace:
    """The space with fewer outermost trips, as machine code with a run-time count walks it."""
    if found.rows > 1 or not found.loops:
        lengths = None if found.lengths is None else found.lengths[:trips]
        return IterationSpace(found.bases[:trips], lengths, found.run, found.loops, found.middle)
    loops = (StridedLoop(trips, found.loops[0].strides), *found.loops[1:])
    return IterationSpace(found.bases, found.lengths, found.run, loops)


def affine(bases: Sequence[int], loops: Sequence[tuple[int, Sequence[int]]]) -> list[Any]:
    """Columns that nested loops of these counts and strides walk."""
    columns = []
    for c, base in enumerate(bases):
        walked = np.array([base])
        for count, steps in loops:
            walked = (walked[:, None] + steps[c] * np.arange(count)).ravel()
        columns.append(walked)
    return columns


@st.composite
def affine_columns(draw: Any, most: int = 3) -> list[Any]:
    width = draw(st.integers(1, 3))
    bases = draw(st.lists(st.integers(0, 500), min_size=width, max_size=width))
    loop = st.tuples(st.integers(1, 5), st.lists(strides, min_size=width, max_size=width))
    return affine(bases, draw(st.lists(loop, max_size=most)))


@given(affine_columns())
def test_affine_columns_are_reproduced(columns):
    same_addresses(columns)


@given(affine_columns(1), affine_columns(2), affine_columns(3))
def test_pieces_of_affine_columns_are_reproduced(a, b, c):
    width = min(len(a), len(b), len(c))
    same_addresses([np.concatenate([a[k], b[k], c[k]]) for k in range(width)])


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 7)), min_size=1, max_size=12),
    st.lists(st.integers(-3, 3), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_ragged_columns_are_reproduced(rows, run, inner):
    columns = []
    for c, stride in enumerate(run):
        parts = [base * (c + 1) + stride * np.arange(length) for base, length in rows]
        column = np.concatenate(parts)
        columns.append((column[:, None] + (c + 1) * np.arange(inner)).ravel())
    same_addresses(columns)


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.integers(1, 60).flatmap(
            lambda length: numpy_arrays(np.int64, (width, length), elements=st.integers(0, 1000))
        )
    )
)
def test_arbitrary_columns_are_reproduced(table):
    same_addresses(list(table))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(2, 9))
def test_a_matrix_product_is_one_row(n, m, k):
    i, j, r = np.meshgrid(np.arange(n), np.arange(m), np.arange(k), indexing="ij")
    columns = [(i * m + j).ravel(), 100 + (i * k + r).ravel(), 500 + (r * m + j).ravel()]
    found = same_addresses(columns)
    assert found.rows == 1
    assert len(found.loops) <= 3


@pytest.mark.parametrize("positions", [3, 5, 9, 16])
def test_causal_rows_are_ragged(positions):
    rows = [(t, s) for t in range(positions) for s in range(t + 1)]
    found = same_addresses([np.array([t for t, _ in rows]), 100 + np.array([s for _, s in rows])])
    assert found.rows <= positions


def test_one_address_and_equal_addresses():
    assert same_addresses([np.array([7])]).rows == 1
    assert same_addresses([np.full(6, 7)]).loops == (StridedLoop(6, (0,)),)


# --- the array program in numpy ------------------------------------------------------------------


def softmax(xs):
    top = max(x.data for x in xs)
    es = [exp(x - top) for x in xs]
    total = sum(es)
    return [e / total for e in es]


def mlp(p):
    x = [0.3, -0.7, 1.1]
    h = [tanh(sum(p[3 * i + j] * x[j] for j in range(3)) + p[12 + i]) for i in range(4)]
    return sum((a - b) ** 2 for a, b in itertools.pairwise(h))


def causal(p):
    total = 0.0
    for t in range(5):
        weights = softmax([p[t] * p[s + 5] for s in range(t + 1)])
        total = total + sum(w * p[s + 10] for s, w in enumerate(weights)) ** 2
    return total


def mixed(p):
    a = sum(p[i] * p[i + 1] + p[i + 2] for i in range(9))
    b = vsum(p[::-1]) - p[3] * 0.5 + p[2] * p[2]
    return a * b + where(p[0] > p[1], p[2], p[3] * 2) + maximum_of(p)


def maximum_of(p):
    return sum(
        chainrule.maximum(a, b) * sigmoid(a - b.data) for a, b in zip(p[:8], p[8:], strict=True)
    )


def squares(p):
    return sqrt(sum(x**2 for x in p) + 1.0) * log(sum(x**4 for x in p) + 2.0)


def through_max(p):
    return max(p) * min(p[3:9]) + max(p[0], p[1]) ** 2


def picked(p, ids):
    return sum(p[i] * p[i + 1] for i in ids) + exp(p[ids[0]])


PROGRAMS = [
    (mlp, ()),
    (causal, ()),
    (mixed, ()),
    (squares, ()),
    (through_max, ()),
    (picked, ([1, 4, 2],)),
    (picked, ([0, 0, 14],)),
]


def variant_of(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The recording of a function and its array program."""
    compiled = chainrule.compile(function, on_fallback="raise", lift=True, **options)
    compiled.value_and_grad(*arguments)
    variant = View(compiled).variant
    assert variant.machine is not None, compiled.report()
    return variant


class Compiled:
    """An array program as machine code for some samples, with arenas that show what is written."""

    def __init__(
        self, program: Program, root: int, width: int, batch: int = 1, dtype: str = "float64"
    ) -> None:
        self.program, self.batch = program, batch
        made = emit.machine(program, root, width, None, batch, dtype)
        self.library = jit.Library(made.text)  # verifies
        counts = [0] * max(1, len(made.walks))
        for walk in made.walks:
            counts[walk.slot] = outermost(walk.space)
        self.counts = np.array(counts)
        own = (program.size - program.shared) * batch
        sizes = {"P": program.shared, "V": own, "Q": program.shared, "D": own, "S": batch}
        self.arenas = {
            name: cache_aligned(size + 16, np.dtype(dtype)) for name, size in sizes.items()
        }
        for arena in self.arenas.values():
            arena[:] = 7.25  # nothing may count on zeros, or touch the sixteen at the end
        self.real = {"float64": ctypes.c_double, "float32": ctypes.c_float}[dtype]

    def call(self, name: str, *arenas: str) -> float:
        given = [self.arenas[a] for a in arenas] + [self.gathers, self.counts]
        pointers = [a.ctypes.data for a in given]
        function = ctypes.CFUNCTYPE(self.real, *[ctypes.c_void_p] * len(given))
        return float(function(self.library.address(name))(*pointers))

    def run(self, inputs: Any, gathered: Any, seeds: Any) -> tuple[float, float]:
        """Forward and backward for inputs and gathers of each sample; their flags."""
        program, batch = self.program, self.batch
        self.arenas["P"][: program.inputs] = inputs[0]
        self.arenas["P"][program.inputs : program.shared] = program.constants
        own = self.arenas["V"][:-16].reshape(-1, batch)
        own[: len(program.private)] = inputs[:, program.private].T
        self.arenas["S"][:batch] = seeds
        self.gathers = np.ascontiguousarray(gathered).ravel().astype(np.int64)
        self.gathers = np.concatenate([self.gathers, [0]])
        flags = self.call("forward", "P", "V"), self.call("backward", "P", "V", "Q", "D", "S")
        for arena in self.arenas.values():
            assert (arena[-16:] == 7.25).all(), "written past the end"
        return flags

    def results(self, lane: int) -> Any:
        return self.arenas["V"][:-16].reshape(-1, self.batch)[:, lane]

    def gradient(self) -> tuple[Any, Any]:
        """By the shared inputs (over all samples), and by each sample's own."""
        program = self.program
        own = self.arenas["D"][:-16].reshape(-1, self.batch)[: len(program.private)]
        return self.arenas["Q"][: program.inputs], own


def selected(variant: Any, ids: Sequence[int]) -> tuple[Any, Any]:
    """Recorded operands and addresses that some integers select."""
    positions, _ = variant.decide(ids)
    program = variant.machine.program
    return positions, program.address[positions[program.places]]


def close(found: Any, wanted: Any, limit: float) -> None:
    scale = max(1e-3, np.abs(wanted).max(initial=0.0))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=limit * scale)


def name_of(x: Any) -> str:
    return getattr(x, "__name__", "")


@pytest.mark.parametrize(("function", "others"), PROGRAMS, ids=name_of)
def test_the_array_program_is_the_recording(function, others):
    """The interpreter of recordings, numpy over the array program and its machine code."""
    numbers = np.random.default_rng(3).normal(size=16)
    variant = variant_of(function, numbers, *others)
    recording, root = variant.recording, variant.recording.result.position
    recording.verify()
    canonicalise(recording).verify()
    lifted, oracle = variant.machine, Interpreter(recording)
    program = lifted.program
    program.verify()
    starts = [program.shared + len(program.private), *[i.start for i in program.instructions]]
    assert starts == sorted(starts)
    ids = others[0] if others else ()
    checked = 0
    for seed in range(4):
        fresh = np.random.default_rng(seed).normal(size=recording.inputs)
        fresh[len(numbers) :] = ids
        positions, gathered = selected(variant, ids)
        if len(positions):
            oracle.point(variant.recording.selection.places, positions)
        status, _ = oracle.run(fresh)
        arena = arrays.run(program, fresh, gathered)
        kept = program.address >= 0
        found, wanted = arena[program.address[kept]], np.array(oracle.data)[kept]
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
        assert lifted.run(variant.binding.fit, gathered, fresh) == (status == FINE)
        if status != FINE:
            continue
        checked += 1
        slopes, swept = np.zeros(recording.inputs), np.zeros(recording.inputs)
        oracle.sweep(root, 1.0, slopes)
        adjoint = arrays.sweep(program, arena, gathered, lifted.root)
        own = adjoint[program.shared : program.shared + len(program.private)]
        adjoint[program.private] = own
        close(adjoint[: recording.inputs], slopes, 1e-12)
        assert lifted.sweep(swept)
        close(swept, slopes, 1e-12)
        close(lifted.number(root), oracle.number(root), 1e-12)
    assert checked >= 2


LIMITS = {"float64": 1e-12, "float32": 1e-4}


@pytest.mark.parametrize(("function", "others"), PROGRAMS[:-1], ids=name_of)
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("width", "batch"), [(1, 1), (2, 3), (4, 1), (4, 4), (8, 8), (16, 5)])
def test_modules_verify_and_agree_at_every_width(function, others, width, batch, dtype):
    """Several samples at once, each with its own numbers, integers and weight."""
    numbers = np.random.default_rng(3).normal(size=16)
    variant = variant_of(function, numbers, *others)
    program, root = variant.machine.program, variant.machine.root
    code = Compiled(program, root, width, batch, dtype)
    rng = np.random.default_rng(width * batch)
    seeds = rng.normal(size=batch)
    inputs = np.repeat(rng.normal(size=(1, program.inputs)), batch, axis=0)
    inputs[:, program.private] = rng.normal(size=(batch, len(program.private)))
    choices = list(itertools.product(*map(range, selectable(variant))))
    chosen = [choices[k] for k in rng.integers(len(choices), size=batch)]
    gathered = np.stack([selected(variant, ids)[1] for ids in chosen])
    flags = code.run(inputs, gathered, seeds)
    assert np.isfinite(flags).all()
    shared = np.zeros(program.inputs)
    for lane in range(batch):
        arena = arrays.run(program, inputs[lane], gathered[lane])
        close(code.results(lane), arena[program.shared :], LIMITS[dtype])
        adjoint = arrays.sweep(program, arena, gathered[lane], root) * seeds[lane]
        shared += adjoint[: program.inputs]
        count = differentiated(program)  # data, which come last, have none
        own = adjoint[program.shared : program.shared + count]
        close(code.gradient()[1][:count, lane], own, LIMITS[dtype])
    shared[program.private] = code.gradient()[0][program.private]  # holes
    close(code.gradient()[0], shared, LIMITS[dtype])


def selectable(variant: Any) -> list[int]:
    """How many items each integer argument may select from, three at most."""
    selection = variant.recording.selection
    return [
        min([3, *[len(g.candidates) for g in selection.gathers if g.index == k]])
        for k in range(selection.program.arguments)
    ]


def test_printers_name_what_they_show():
    variant = variant_of(causal, np.ones(16))
    graph = canonicalise(variant.recording)
    assert "sum" in str(graph)
    assert "exp" in str(variant.machine.program)
    assert "products" in str(variant.machine.program)
    assert "affine" in str(iteration_space([np.arange(4)]))


def test_the_verifier_names_what_is_wrong_with_a_program():
    program = variant_of(mlp, np.ones(16)).machine.program
    first, *rest = program.instructions
    program.verify()
    for instructions, reason in (
        ([*rest, first], "comes later"),
        ([*program.instructions, first], "two instructions write"),
        (program.instructions[:-1], "not written"),
    ):
        with pytest.raises(AssertionError, match=reason):
            replace(program, instructions=instructions).verify()


def test_a_graph_without_structure_is_not_lifted():
    fast = chainrule.compile(irregular(5), on_fallback="raise", lift=True)
    fast.value_and_grad(np.random.default_rng(0).normal(size=8))
    variant = View(fast).variant
    recording = variant.recording
    with pytest.raises(NotLiftable, match="no structure"):
        group(canonicalise(recording), recording, np.zeros(0, np.int64))
    assert "no structure" in fast.report()


def irregular(seed: int, nodes: int = 1500) -> Callable[..., Any]:
    rng = random.Random(seed)
    plan = [
        (rng.randrange(1, 9 + min(k, 31)), rng.randrange(8 + k), rng.randrange(4))
        for k in range(nodes)
    ]

    def f(p):
        made = list(p)
        for back, place, kind in plan:
            a, b = made[-back], made[place]
            made.append(
                (a * b).tanh()
                if kind == 0
                else (a + b).sin()
                if kind == 1
                else a * 0.5 - b
                if kind == 2
                else (a * b + a).tanh()
            )
        return sum(made[-20:])

    return f


# --- the code of the op table --------------------------------------------------------------------


def machine(formula: Callable[..., Any], operands: int, width: int) -> Callable[..., Any]:
    """A formula over Vectors as a function of arrays, through machine code."""
    code = Code()

    def body(at: str | None, lanes: int, shift: int) -> None:
        xs = [code.load(f"%X{k}", [(at, width), (None, shift)], lanes) for k in range(operands)]
        y = formula(*xs)
        y = y if isinstance(y, Vector) else code.constant(float(y), lanes)
        code.store("%Y", [(at, width), (None, shift)], y)

    with code.loop("%n") as i:
        body(i, width, 0)
    given = ", ".join(["ptr %Y", *(f"ptr %X{k}" for k in range(operands)), "i64 %n"])
    lines = "\n".join(code.lines)
    declared = "\n".join(sorted(code.declarations))
    text = f"{declared}\ndefine void @f({given}) {{\nentry:\n  br label %start\nstart:\n{lines}\n"
    text += "  ret void\n}"
    library = jit.Library(text)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (operands + 1), ctypes.c_int64)(
        library.address("f")
    )

    def run(*columns: Any) -> Any:
        columns = tuple(np.ascontiguousarray(c, np.float64) for c in columns)
        count = -(-len(columns[0]) // width) * width
        padded = [np.concatenate([c, np.ones(count - len(c))]) for c in columns]
        y = np.zeros(count)
        function(y.ctypes.data, *[c.ctypes.data for c in padded], count // width)
        assert library is not None
        return y[: len(columns[0])]

    return run


def ulps(found: Any, wanted: Any) -> Any:
    """The distance in units of the last place; infinite where only one is nan or infinite."""
    with np.errstate(all="ignore"):
        step = np.maximum(np.spacing(np.abs(wanted)), 5e-324)
        away = np.abs(found - wanted) / step
    special = ~np.isfinite(found) | ~np.isfinite(wanted)
    equal = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    return np.where(equal, 0.0, np.where(special, np.inf, away))


SPECIAL = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, math.inf, -math.inf, math.nan, 5e-324),
        *(2.2250738585072014e-308, 2.225073858507201e-308, 1e-310, -1e-310, 1e-300, 1e300, -1e300),
        *(1.7976931348623157e308, -1.7976931348623157e308, 709.0, 709.78, 709.782712893384, 709.79),
        *(710.0, 710.5, 1e4, -708.0, -708.5, -720.0, -744.9, -745.1, -745.2, -746.0, -750.0, -1e4),
        *(1.0 + 2**-52, 1.0 - 2**-53, 1.0 + 1e-8, 1.0 - 1e-8, math.sqrt(2), math.sqrt(0.5), math.e),
        *(1e-8, -1e-8, 1e-17, 3.0, -3.0, 10.0, 0.6931471805599453, 0.34657359027997264, 20.0),
        *(-20.0, -5e-324),
    ]
)  # fmt: skip


def samples(count: int = 20_000) -> Any:
    rng = np.random.default_rng(11)
    parts = [
        SPECIAL,
        rng.normal(size=count),
        rng.uniform(-745, 710, size=count),
        1 + rng.normal(size=count) * 10.0 ** rng.uniform(-16, -1, size=count),
        rng.choice([-1.0, 1.0], size=count) * 10.0 ** rng.uniform(-308, 308, size=count),
        rng.integers(0, 1 << 52, size=count).view(np.float64),  # subnormals
        2.0 ** rng.integers(-1074, 1024, size=count),
        np.arange(-1000, 1000) * (math.log(2) / 2),
    ]
    return np.concatenate(parts)


def libm(function: Callable[[float], float], xs: Any) -> Any:

    def one(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return -math.inf if x == 0 else math.nan

    return np.array([one(x) for x in xs.tolist()])


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize(
    ("row", "function"),
    [
        (ops.exp, math.exp),
        (ops.log, math.log),
        (ops.tanh, math.tanh),
        (ops.sin, math.sin),
        (ops.cos, math.cos),
        (ops.erf, math.erf),
        (ops.sqrt, math.sqrt),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_inline_functions_are_within_two_ulps_of_libm(row, function, width):
    xs = samples()
    found, wanted = machine(row, 1, width)(xs), libm(function, xs)
    away = ulps(found, wanted)
    worst = int(away.argmax())
    assert away[worst] <= 2, f"{row.name}({xs[worst]!r}) = {found[worst]!r}, not {wanted[worst]!r}"


def row_cases() -> list[Any]:
    found = []
    for op in [*ops.TABLE.values(), *ops.BLOCKS.values(), ops.raw_power]:
        if op.name == "raw_power" or not op.parameters:
            choices: list[tuple[float, ...]] = [()]
        elif op.name == "pow":
            exponents = (2, -1, 0.5, -0.5, 0, 1, 3, -2, -3, -1.5, 1.5, 4, -4, 0.3, 5, 2.5, 10)
            choices = [(float(p),) for p in exponents]
        elif op.name == "clip":
            choices = [(-1.0, 1.0), (-math.inf, math.inf), (0.0, math.inf)]
        elif op.name == "where":
            choices = [(1.0,), (0.0,)]
        elif op.name == "random_bits":
            choices = [(0.0,), (3.0,)]
        else:
            choices = [
                op.defaults or tuple([0.25] * len(op.parameters)),
                (0.7,) * len(op.parameters),
            ]
        found += [pytest.param(op, c, id="-".join([op.name, *map(str, c)])) for c in choices]
    return found


def operands_for(op: Any) -> list[Any]:
    rng = np.random.default_rng(5)
    moderate = [rng.normal(size=400) * 2, rng.uniform(-1, 1, 200), 1 + rng.uniform(0, 9, 200)]
    if len(op.partials) == 1:
        return [np.concatenate([SPECIAL, *moderate, 10.0 ** rng.uniform(-300, 300, 200)])]
    columns = np.array(np.meshgrid(*[SPECIAL[:22]] * len(op.partials))).reshape(
        len(op.partials), -1
    )
    extra = rng.normal(size=(len(op.partials), 600)) * 2
    extra[0, :300] = np.abs(extra[0, :300])
    return list(np.concatenate([columns, extra], axis=1))


def scalar(formula: Callable[..., Any], columns: Sequence[Any]) -> Any:
    with np.errstate(all="ignore"):
        return np.array(
            [float(formula(*xs)) for xs in zip(*[c.tolist() for c in columns], strict=True)]
        )


def within(
    found: Any,
    wanted: Any,
    allowed: float,
    tiny: float,
    what: str,
    columns: Any,
    cancels: int = 0,
) -> None:
    """So many ulps away at most; where terms like 1 + tanh(x) cancel, some ulps of x and of 1."""
    away = ulps(found, wanted)
    if cancels:
        with np.errstate(all="ignore"):
            x = np.abs(columns[-1])
            near = np.abs(found - wanted) <= cancels * np.spacing(np.maximum(x, 1.0))
        away[near & np.isfinite(x)] = 0.0
    away[(np.abs(found) < tiny) & (np.abs(wanted) < tiny)] = 0.0
    worst = int(away.argmax())
    at = tuple(float(c[worst]) for c in columns)
    assert away[worst] <= allowed, f"{what} at {at}: {found[worst]!r} is not {wanted[worst]!r}"


#: pow by arithmetic underflows half way, where the C library's is exact
TINY = 1e-290
#: near a jump, or from a number below TINY, machine code gives what is not finite
LEFT_TO_THE_TAPE = (
    *("floor", "ceil", "trunc", "round", "sign", "mod", "floor_divide", "log1mexp"),
    *("less", "less_equal", "equal"),
)
GAMMAS = ("lgamma", "digamma", "polygamma")  # sums of numbers of both signs


@pytest.mark.parametrize(("op", "parameters"), row_cases())
def test_every_row_gives_the_code_of_its_forward_rule(op, parameters):
    columns = operands_for(op)
    found = machine(lambda *xs: op(*xs, *parameters), len(columns), 4)(*columns)
    wanted = scalar(lambda *xs: op(*xs, *parameters), columns)
    if op is ops.pow and parameters[0] == 0.0:  # nan**0 is 1; a nan is for the tape anyway
        kept = np.isfinite(columns[0])
        found, wanted, columns = found[kept], wanted[kept], [columns[0][kept]]
    if op is ops.pow:
        kept = (np.abs(columns[0]) < 1e60) & (np.abs(columns[0]) > 1e-60) | (columns[0] == 0)
        kept &= ~((columns[0] == 0) & (np.signbit(columns[0])))
        found, wanted, columns = found[kept], wanted[kept], [columns[0][kept]]
    if op.name in LEFT_TO_THE_TAPE:
        found = np.where(np.isfinite(found), found, wanted)
    cancels = 8 if op.name in GAMMAS else 2 * (op is ops.gelu_tanh)
    within(found, wanted, 4, TINY, f"{op.name}{parameters}", columns, cancels)


@pytest.mark.parametrize(("op", "parameters"), row_cases())
def test_every_row_gives_the_code_of_its_partials(op, parameters):
    if op is ops.raw_power:
        return
    columns = operands_for(op)
    if op is ops.pow:
        kept = (np.abs(columns[0]) < 1e60) & (np.abs(columns[0]) > 1e-60)
        columns = [columns[0][kept]]
    y = scalar(lambda *xs: op(*xs, *parameters), columns)
    for j, partial in enumerate(op.partials):
        found = machine(lambda y, *xs, q=partial: q(y, *xs, *parameters), len(columns) + 1, 4)(
            y, *columns
        )
        wanted = scalar(lambda y, *xs, q=partial: q(y, *xs, *parameters), [y, *columns])
        allowed = 64 if op in (ops.gelu, ops.gelu_tanh, ops.silu, ops.sigmoid, ops.power) else 4
        if op.name in LEFT_TO_THE_TAPE:
            found = np.where(np.isfinite(found), found, wanted)
        cancels = 8 if op.name in GAMMAS else 2 * (op in (ops.gelu, ops.gelu_tanh, ops.silu))
        what = f"partial {j} of {op.name}"
        within(found, wanted, allowed, TINY, f"{what}{parameters}", columns, cancels)


@pytest.fixture
def added_row():
    with temporary_row(
        "softsign_of_two",
        "a·e^(-|b|) / (1 + |a|)",
        lambda a, b, s: s * a * ops.exp(-ops.abs(b)) / (1.0 + ops.abs(a)),
        lambda y, a, b, s: s * ops.exp(-ops.abs(b)) / ((1.0 + ops.abs(a)) * (1.0 + ops.abs(a))),
        lambda y, a, b, s: ops.where(b > 0, -y, ops.where(b < 0, y, 0.0)),
        parameters=("scale",),
    ) as row:
        yield row


def test_a_row_added_now_works_compiled(added_row):
    def f(p):
        rows = [Value._apply_op(added_row, (p[i], p[i + 6]), (1.5,)) for i in range(6)]
        return sum(r * r for r in rows)

    lifted, tape = (chainrule.compile(f, lift=lift, on_fallback="raise") for lift in (True, False))
    for seed in range(3):
        p = np.random.default_rng(seed).normal(size=12)
        (x, dx), (y, dy) = lifted.value_and_grad(p), tape.value_and_grad(p)
        assert x == pytest.approx(y, rel=1e-13)
        np.testing.assert_allclose(dx, dy, rtol=1e-12, atol=1e-14)
    assert "lifted to" in lifted.report()
    columns = list(np.random.default_rng(1).normal(size=(2, 500)))
    found = machine(lambda a, b: added_row(a, b, 1.5), 2, 8)(*columns)
    within(found, scalar(lambda a, b: added_row(a, b, 1.5), columns), 4, 0.0, "added", columns)


@given(st.floats(width=64))
def test_a_literal_is_the_double(x):
    assert int(literal(x), 16) == np.float64(x).view(np.uint64)


@settings(max_examples=25)
@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 8]))
def test_chunks_cover_every_lane_once(count, width):
    walks = Walks(variant_of(mlp, np.ones(16)).machine.program, set())
    covered = [at + i for at, w in Emitter(walks, width).chunks(count) for i in range(w)]
    assert covered == list(range(count))


def test_few_irregular_points_that_come_again_and_again():
    """A lower triangle for each of several components, and beside it a diagonal of its own."""
    owners, factors = [], []
    for k in range(5):
        for i in range(1, 4):
            owners += [3 * k + i] * (i + 1)
            factors += [100 + 4 * k + i, *[500 + 6 * k + i * (i - 1) // 2 + j for j in range(i)]]
    found = repeated([np.array(owners), np.array(factors)], 64)
    assert found is not None
    assert (found.count, found.bases.shape) == (5, (9, 2))
    walked = found.bases + found.steps * np.arange(found.count)[:, None, None]
    np.testing.assert_array_equal(walked.reshape(-1, 2).T, [owners, factors])
    assert repeated([np.array(owners), np.array(factors)], 8) is None
    factors[-1] += 1
    assert repeated([np.array(owners), np.array(factors)], 64) is None
