"""The canonical graph: it computes what was recorded, and the kernel makes it as Python does."""

import hashlib
import importlib.util
import itertools
import random
import sys
import types
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compile_programs import (
    TAME,
    WILD,
    random_arguments,
    random_integer_source,
    random_source,
    run_source,
)
from compile_twins import outcome
from compile_view import View
from programs import count

import chainrule
from chainrule import tanh
from chainrule.compiler.capture.recordings import FIRST_RULE, Guard, Output, Recording
from chainrule.compiler.capture.selection import Gather, Selection
from chainrule.compiler.lift.annotations import Annotations
from chainrule.compiler.lift.canonical import (
    CONSTANT,
    EXTREME,
    GATHER,
    INPUT,
    RULE,
    SUM,
    Graph,
    canonicalise,
    canonicalise_in_python,
)
from chainrule.compiler.lift.graph import Given
from chainrule.core import ops
from chainrule.core.backend import kernels

needs_kernels = pytest.mark.skipif(kernels is None, reason="there is no kernel to compare with")

# --- recordings -----------------------------------------------------------------------------------


def recordings_of(function: Any, *calls: tuple[Any, ...], **keywords: Any) -> list[Any]:
    """The recordings, and what their operands do with integers, that some calls lead to."""
    fast = chainrule.compile(function, on_fallback="eager")
    for arguments in calls:
        outcome(fast.value_and_grad, *arguments, **keywords)
    return [v.recording for v in View(fast).variants]


def graph_of(function: Any, *arguments: Any, **options: Any) -> Graph:
    (recording,) = recordings_of(function, arguments)
    return canonicalise(recording, **options)


def lines(graph: Graph) -> list[str]:
    return [line.split(" = ")[1] for line in str(graph).splitlines()[graph.inputs :]]


RULES = [
    *(rule for rule in ops.TABLE.values() if rule.arity <= 3 and len(rule.parameters) <= 2),
    *(ops.select, ops.less, ops.detach, ops.first_max, ops.first_min),
]
NUMBERS = [0.0, 0.0, -0.0, 1.0, 0.5, -np.inf, np.inf, np.nan]


class RandomRecording:
    """Sums, products and maxima that grow side by side, and other operations on what there is."""

    def __init__(self, rng: random.Random, size: int) -> None:
        self.rng, self.inputs = rng, rng.randint(1, 5)
        chained = [ops.add, ops.mul, ops.first_max, ops.first_min]
        others = [rule for rule in RULES if rule not in chained]
        self.rules = [*chained, *rng.sample(others, rng.randint(1, 5))]
        rng.shuffle(self.rules)
        most = size + 3  # a step makes up to four instructions
        self.codes, self.number = np.zeros(most, np.int32), np.zeros(most, np.bool_)
        self.operands, self.constants = np.full((most, 3), -1, np.int32), np.zeros((most, 2))
        self.made = self.inputs
        self.chains: list[tuple[ops.Op, int]] = []  # their last instructions
        self.others = list(range(self.inputs))  # what is no part of a chain
        self.stray = rng.choice([0.0, 0.02, 0.3])  # how often an operand is just anything
        while self.made < size:
            self.step()

    def operand(self) -> int:
        if self.rng.random() < self.stray:
            return self.rng.randrange(self.made)
        return self.rng.choice(self.others[-8:] if self.rng.random() < 0.5 else self.others)

    def instruction(self, rule: ops.Op, *operands: int, number: float | None = None) -> int:
        i = self.made
        self.codes[i] = FIRST_RULE + self.rules.index(rule)
        self.operands[i, : len(operands)] = operands
        parameters = [self.rng.choice(NUMBERS[:5]) for _ in rule.parameters]
        self.constants[i, : len(parameters)] = parameters
        if number is not None:
            self.number[i], self.constants[i, 0] = True, number
        self.made += 1
        return i

    def constant(self, number: float) -> int:
        self.codes[self.made], self.constants[self.made, 0] = CONSTANT, number
        self.made += 1
        return self.made - 1

    def term(self) -> int:
        if self.rng.random() < 0.5:
            return self.instruction(ops.mul, self.operand(), self.operand())
        return self.operand()

    def step(self) -> None:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.15:
            rule = rng.choice([ops.add, ops.add, ops.first_max, ops.first_min])
            self.chains.append((rule, self.start(rule)))
        elif kind < 0.6 and self.chains:
            k = rng.randrange(len(self.chains))
            rule, last = self.chains[k]
            if rng.random() < 0.1:
                self.others.append(last)
                del self.chains[k]
            else:
                right = self.term() if rule is ops.add else self.operand()
                pair = (last, right) if rng.random() < 0.95 else (right, last)
                self.chains[k] = (rule, self.instruction(rule, *pair))
        elif kind < 0.65:
            self.others.append(self.constant(rng.choice(NUMBERS)))
        else:
            rule = rng.choice(self.rules)
            if rule in (ops.add, ops.mul, ops.maximum) and rng.random() < 0.5:
                number = rng.choice(NUMBERS)
                self.others.append(self.instruction(rule, self.operand(), number=number))
            else:
                operands = [self.operand() for _ in range(rule.arity)]
                self.others.append(self.instruction(rule, *operands))

    def start(self, rule: ops.Op) -> int:
        if rule is ops.add:
            zero = self.rng.random() < 0.5
            left = self.term()
            return (
                self.instruction(rule, left, number=0.0)
                if zero
                else self.instruction(rule, left, self.term())
            )
        return self.instruction(
            rule, self.operand(), self.constant(-np.inf if rule is ops.first_max else np.inf)
        )


def random_recording(rng: random.Random, size: int) -> Any:
    made = RandomRecording(rng, size)
    size = made.made
    wanted = [rng.randrange(size) for _ in range(rng.randint(1, 3))]
    guards = [rng.randrange(made.inputs, size) for _ in range(rng.randrange(3))]
    recording = Recording(
        made.inputs,
        made.codes[:size],
        made.operands[:size],
        made.constants[:size],
        made.number[:size],
        tuple(made.rules),
        np.zeros(size, np.bool_),
        tuple(Guard(position, 1.0, "") for position in guards),
        [Output(position, is_value=True) for position in wanted],
    )
    recording.verify()
    candidates: dict[int, list[int]] = {}
    for _ in range(rng.choice([0, 0, 1, 3])):
        for place in rng.sample(range(3 * size), rng.randint(1, size)):
            if rng.random() < 0.2 and recording.operands.flat[place] >= 0:
                known = candidates.setdefault(place, [int(recording.operands.flat[place])])
                known.append(rng.randrange(place // 3))
    places = sorted(candidates)
    tables = [np.array(candidates[place], np.int32) for place in places]
    if rng.random() < 0.5:
        share(rng, recording, places, tables)
    gathers: list[Gather] = []
    owners: list[int] = []
    for k, table in enumerate(tables):
        read = recording.operands.flat[places[k]]
        alike = [owners[j] for j in range(k) if tables[j] is table]
        alike = [j for j in alike if recording.operands.flat[places[owners.index(j)]] == read]
        if alike and rng.random() < 0.5:
            owners.append(rng.choice(alike))
        else:
            gathers.append(Gather(table, 0))
            owners.append(len(gathers) - 1)
    selection = Selection(
        gathers=tuple(gathers),
        places=np.array(places, np.int32),
        owners=np.array(owners, np.int32),
    )
    return replace(recording, selection=selection)


def share(rng: random.Random, recording: Any, places: list[int], tables: list[Any]) -> None:
    """Let many of these places select from one table, which comes before all of them."""
    for first in rng.sample(range(len(places)), min(2, len(places))):
        later = [k for k in range(first, len(places)) if rng.random() < 0.7 or k == first]
        read = {k: int(recording.operands.flat[places[k]]) for k in later}
        before = places[first] // 3
        kept = [k for k in later if read[k] < before]
        more = [rng.randrange(before) for _ in range(rng.randrange(4))]
        table = np.array([*[read[k] for k in kept], *more], np.int32)
        for k in kept:
            tables[k] = table


@pytest.fixture(scope="module")
def benchmark_programs() -> Any:
    """benchmarks/programs.py, which has the name of a module of these tests."""
    path = Path(__file__).parents[3] / "benchmarks" / "programs.py"
    if not path.exists():
        pytest.skip("there are no benchmarks here")
    spec = importlib.util.spec_from_file_location("benchmark_programs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path.parent)
        patch.delitem(sys.modules, "programs")
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


# --- what is checked of each ----------------------------------------------------------------------


def assert_same(a: Graph, b: Graph) -> None:
    for f in fields(Graph):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if isinstance(x, np.ndarray):
            assert (x.dtype, x.shape) == (y.dtype, y.shape), f.name
            assert x.tobytes() == y.tobytes(), f.name
        elif isinstance(x, Given):
            assert all(p is q for p, q in zip(vars(x).values(), vars(y).values(), strict=True))
        else:
            assert x == y, f.name


def check(recording: Recording) -> None:
    """Both ways make one graph, which computes the recording; its signatures are structure."""
    some = (np.arange(recording.inputs) * 5 % 3 - 1).astype(np.int8)
    for classes, keep_dead in itertools.product((None, some), (True, False)):
        graph = canonicalise_in_python(recording, classes, keep_dead=keep_dead)
        assert_same(canonicalise(recording, classes, keep_dead=keep_dead), graph)
        graph.verify()
        assert_signatures_are_structure(graph, some * 0 if classes is None else classes)
        for row in recording.selection.rows(recording.operands)[:3]:
            assert_computes(graph, recording, row)


PRIME = (1 << 61) - 1


def applied(*words: Any) -> int:
    """What an operation gives, here: sums and products are those of integers modulo a prime, which
    know no rounding, and anything else is a number that depends on all it is made of."""
    digest = hashlib.blake2b(repr(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % PRIME


def named(constant: float) -> int:
    return 0 if constant == 0.0 else applied("number", float.hex(constant))


def values_of(recording: Recording, operands: Any) -> list[int]:
    values: list[int] = []
    for i, code in enumerate(recording.codes.tolist()):
        rule = recording.rules[code - FIRST_RULE]
        constants = recording.constants[i].tolist()
        if code < FIRST_RULE:
            values.append(applied("input", i) if code == 0 else named(constants[0]))
            continue
        xs = [values[p] for p in operands[i] if p >= 0]
        xs += [named(constants[0])] if recording.number[i] else []
        values.append(result_of(rule, xs, constants))
    return values


def result_of(rule: ops.Op, xs: list[int], constants: list[float]) -> int:
    if rule is ops.add:
        return (xs[0] + xs[1]) % PRIME
    if rule is ops.mul:
        return xs[0] * xs[1] % PRIME
    return applied(rule.name, xs, [float.hex(c) for c in constants[: len(rule.parameters)]])


def assert_computes(graph: Graph, recording: Recording, row: Any) -> None:
    """Every node that stands for an instruction has its number, with these operands selected."""
    operands = recording.operands.copy()
    operands.flat[recording.selection.places] = row
    wanted = values_of(recording, operands)
    made: list[int] = []
    for i in range(len(graph)):
        kind, code = graph.kinds[i], int(graph.codes[i])
        plains = graph.plains[graph.plain_at[i] : graph.plain_at[i + 1]].tolist()
        pairs = graph.products[graph.product_at[i] : graph.product_at[i + 1]].tolist()
        xs = [made[p] for p in plains]
        constants = graph.constants_of(i).tolist()
        if kind == INPUT:
            made.append(applied("input", i))
        elif kind == CONSTANT:
            made.append(named(constants[0]))
        elif kind == SUM:
            made.append((sum(made[a] * made[b] for a, b in pairs) + sum(xs)) % PRIME)
        elif kind == GATHER:
            selected = int(graph.at[row[int(graph.places_of(i))]])
            assert selected in plains
            made.append(made[selected])
        else:
            rule = recording.rules[code - FIRST_RULE]
            if kind == RULE:
                xs += [named(constants[0])] if graph.number[i] else []
                made.append(result_of(rule, xs, constants))
            else:
                assert kind == EXTREME
                best = named(-np.inf if rule is ops.first_max else np.inf)
                best = result_of(rule, [xs[0], best], constants)
                for x in xs[1:]:
                    best = result_of(rule, [best, x], constants)
                made.append(best)
    for i, node in enumerate(graph.at.tolist()):
        assert node < 0 or made[node] == wanted[i], recording.describe(i)
    outputs = [guard.position for guard in recording.guards]
    outputs += [o.position for o in np.ravel(recording.result) if isinstance(o, Output)]
    assert all(graph.at[outputs] >= 0)


def assert_signatures_are_structure(graph: Graph, classes: Any) -> None:
    """Nodes have one signature where their structures are equal, written out, and only there."""
    shapes: dict[Any, int] = {}
    shape: list[int] = []
    for i in range(len(graph)):
        kind, code = int(graph.kinds[i]), int(graph.codes[i])
        plains = graph.plains[graph.plain_at[i] : graph.plain_at[i + 1]].tolist()
        pairs = graph.products[graph.product_at[i] : graph.product_at[i + 1]].tolist()
        below: Any = [shape[p] for p in plains]
        if kind != RULE:
            below = frozenset(below)
        parameters = len(graph.rules[code - FIRST_RULE].parameters) if kind == RULE else 0
        key = (
            kind,
            code,
            bool(graph.number[i]),
            graph.constants_of(i)[:parameters].tobytes(),
            tuple(below) if kind == RULE else below,
            frozenset((shape[a], shape[b]) for a, b in pairs),
            len(plains) if pairs else -1,
            int(classes[i]) if kind == INPUT else None,
        )
        shape.append(shapes.setdefault(key, len(shapes)))
    both = set(zip(shape, graph.signature.tolist(), strict=True))
    assert len(both) == len(shapes) == len(set(graph.signature.tolist()))


# --- the kernel and Python ------------------------------------------------------------------------


@pytest.mark.parametrize("shard", range(4))
def test_random_recordings(shard):
    gathers = 0
    for i in range(count(ci=100, soak=3000)):
        rng = random.Random(f"recording {shard} {i}")
        recording = random_recording(rng, rng.choice([6, 20, 60, 150]))
        gathers += len(recording.selection.places) > 0
        check(recording)
    assert gathers > 20


@pytest.mark.parametrize("family", ["tame", "wild", "integers"])
def test_random_programs(family):
    found = 0
    for i in range(count(ci=12, soak=300)):
        rng = random.Random(f"canonicalise {family} {i}")
        calls: list[Any] = []
        if family == "integers":
            source = random_integer_source(rng)
            for _ in range(5):
                p = np.array([rng.uniform(-1, 1) for _ in range(4)])
                calls.append((p, *[rng.randrange(4) for _ in range(3)]))
        else:
            source = random_source(rng, TAME if family == "tame" else WILD)
            for _ in range(5):
                arguments = random_arguments(rng)
                calls.append((np.array(arguments.p), np.array(arguments.xs), *arguments.rest))
        for recording in recordings_of(run_source(source, "world")["f"], *calls):
            check(recording)
            found += 1
    assert found > 10


@needs_kernels
@pytest.mark.parametrize(
    "name",
    "gpt-8 gpt-16 moons mixture option convolution rosenbrock lorenz rnn irregular".split(),
)
def test_benchmark_programs(benchmark_programs, name):
    program = benchmark_programs.PROGRAMS[name]()
    calls = [(program.params, *sample) for sample in program.samples[:2]]
    (recording,) = recordings_of(program.loss, *calls)
    for options in ({}, {"classes": np.arange(recording.inputs) % 2, "keep_dead": False}):
        graph = canonicalise(recording, **options)
        assert_same(graph, canonicalise_in_python(recording, **options))
        graph.verify()


# --- what the graph is ----------------------------------------------------------------------------


def test_sums_take_products_apart_and_keep_their_order():
    def f(p):
        return tanh(sum(a * b for a, b in zip(p[:2], p[2:], strict=True)) + p[0] + p[1] * 2.0)

    assert lines(graph_of(f, np.ones(4))) == ["mul #1 2", "sum #0*#2 #1*#3 #0 #4", "tanh #5"]


def test_zero_plus_x_is_a_sum_and_x_plus_a_number_is_not():
    found = lines(graph_of(lambda p: (0 + p[0]).tanh() + (p[1] + 2).tanh(), np.ones(2)))
    assert found == ["sum #0", "tanh #2", "add #1 2", "tanh #4", "sum #3 #5"]


def test_what_is_used_twice_is_not_taken_apart():
    def f(p):
        product, total = p[0] * p[1], p[0] + p[1]
        return (product + p[0]) * (total + p[1]) + (product + total)

    assert lines(graph_of(f, np.ones(2))) == [
        "mul #0 #1",
        "sum #0 #1",
        "sum #2 #0",
        "sum #3 #1",
        "sum #2 #3",
        "sum #4*#5 #6",
    ]


def test_maxima_are_one_node_and_equal_operations_too():
    def f(p):
        return max(p) * min(p[:2]) + p[0].exp() * p[0].exp()

    found = lines(graph_of(f, np.array([1.0, 2.0, 3.0])))
    assert [w for w in found if w[:3] in ("fir", "exp")] == [
        "first_max #0 #1 #2",
        "first_min #0 #1",
        "exp #0",
    ]


def test_an_operand_that_follows_an_integer_is_a_gather():
    (recording,) = recordings_of(
        lambda p, i: p[i] * p[0] + p[1], (np.ones(4), 3), (np.ones(4), 1), (np.ones(4), 2)
    )
    graph = canonicalise(recording)
    (gather,) = np.flatnonzero(graph.kinds == GATHER)
    assert (
        {"#1", "#2", "#3"}
        <= set(graph.describe(gather).split())
        <= {"gather", "#0", *"#1 #2 #3".split()}
    )
    assert recording.selection.places[graph.places_of(gather)] == 3 * graph.origin[gather]
    assert lines(graph)[-1] == f"sum #{gather}*#0 #1"


def test_dead_code_is_kept_unless_told_otherwise():
    def f(p):
        product = p[0] * p[1]
        product.exp()
        return product + p[1]

    assert lines(graph_of(f, np.ones(2))) == ["mul #0 #1", "exp #2", "sum #2 #1"]
    graph = graph_of(f, np.ones(2), keep_dead=False)
    assert lines(graph) == ["sum #0*#1 #1"]
    assert graph.at.tolist() == [0, 1, -1, -1, 2]


# --- signatures -----------------------------------------------------------------------------------


def test_signatures_are_the_same_in_every_process():
    graph = graph_of(lambda p: p[0].tanh() ** 2 + p[1], np.ones(2))
    assert [f"{s:x}" for s in graph.signature[1:].tolist()] == [
        "cd9d328f0d27f493",
        "a652857dcc5a2c61",
        "e882b4c8716a4c9c",
        "907b45936a59609a",
    ]


def test_numbers_have_no_part_in_signatures_but_exponents_do():
    def signatures(number, exponent):
        return graph_of(lambda p: (p[0] * number + number) ** exponent, np.ones(1)).signature

    assert (signatures(2.0, 3.0) == signatures(-7.0, 3.0)).all()
    assert signatures(2.0, 3.0)[-1] != signatures(2.0, 4.0)[-1]


def test_inputs_of_two_classes_differ():
    def f(p):
        return p[0].exp() + p[1].exp() + p[2].exp()

    graph = graph_of(f, np.ones(3), classes=[0, 1, 0])
    a, b, c = (graph.signature[i] for i in (3, 4, 5))
    assert a == c != b
    with pytest.raises(ValueError, match="classes for 3 inputs"):
        graph_of(f, np.ones(3), classes=[0, 1])


def test_a_longer_text_has_every_signature_of_a_shorter_one(benchmark_programs):
    gpt = benchmark_programs.gpt(3)
    graphs = []
    for letters in (0, 1, 4):
        tokens = [26, *[3, 7, 25, 1][:letters], 26]
        (recording,) = recordings_of(gpt.loss, (gpt.params, tokens))
        graphs.append(canonicalise(recording))
    for short, long in itertools.pairwise(graphs):
        assert len(short) < len(long)
        places = {s: k for k, s in enumerate(long.signature.tolist())}
        same = [places[s] for s in short.signature.tolist()]
        assert (short.kinds == long.kinds[same]).all()
        assert (short.level == long.level[same]).all()


def test_a_graph_that_does_not_fit_is_refused():
    graph = graph_of(lambda p: p[0] * p[1] + p[2].exp(), np.ones(3))
    graph.verify()
    wrong = {
        "kinds": RULE,
        "product_at": 0,
        "plains": len(graph) - 1,
        "origin": 0,
        "at": -1,
        "signature": graph.signature[0],
        "level": 1,
    }
    for name, last in wrong.items():
        row = getattr(graph, name).copy()
        row[-1] = last
        with pytest.raises(AssertionError):
            replace(graph, **{name: row}).verify()
    given = graph.given
    rows = {name: row for name, row in vars(given).items() if row is not None}
    short = [replace(given, **{name: row[1:]}) for name, row in rows.items()]
    assert len(short) == 3
    for many, last in ((2, len(given.codes)), (1, 0)):  # a row too far, and one constant too few
        places = np.array([-1, last], np.int32)
        short.append(replace(given, constants=given.constants[:many], places=places))
    codes = np.zeros_like(given.codes)
    for name, row in [
        ("gathers", np.zeros(1, np.int32)),
        ("given", replace(given, codes=codes)),
        *[("given", less) for less in short],
    ]:
        with pytest.raises(AssertionError):
            replace(graph, **{name: row}).verify()


# --- the kernel by itself -------------------------------------------------------------------------


def arguments(recording: Recording) -> list[Any]:
    """What canonicalise calls the kernel with."""
    seen: list[Any] = []

    def note(*given: Any) -> Any:
        seen.extend(given)
        return kernels.canonicalise(*given)  # type: ignore[union-attr]

    with pytest.MonkeyPatch.context() as patch:
        module = sys.modules[canonicalise.__module__]
        patch.setattr(module, "kernels", types.SimpleNamespace(canonicalise=note))
        canonicalise(recording)
    return [np.array(x) if isinstance(x, np.ndarray) else x for x in seen]


@needs_kernels
def test_the_kernel_refuses_what_does_not_fit():
    rng = random.Random(5)
    refused = fine = 0
    for _ in range(count(ci=1500, soak=50_000)):
        given = arguments(random_recording(rng, rng.choice([6, 20])))
        for k in rng.sample(range(len(given)), rng.randint(1, 3)):
            if isinstance(given[k], bytes):
                given[k] = given[k][: rng.randrange(len(given[k]) + 1)]
            elif isinstance(given[k], int):
                given[k] = rng.choice([-1, 0, 1, 3, 1000, 2**40])
            elif rng.random() < 0.1:
                given[k] = rng.choice([None, given[k][::2], given[k].tolist(), given[k][:-1]])
            elif given[k].size:
                given[k] = given[k].copy()
                worst = [-1, -2, 0, 1, 2, 5, 19, 60, 100]
                given[k].flat[rng.randrange(given[k].size)] = rng.choice(worst)
        try:
            made = kernels.canonicalise(*given)
        except (ValueError, TypeError, BufferError):
            refused += 1
        else:
            assert len(made) == 10
            fine += 1
    assert refused > 100
    assert fine > 100


def test_places_share_the_candidates_that_they_select_from():
    rng, shared = random.Random(8), 0
    for _ in range(200):
        recording = random_recording(rng, 30)
        notes = Annotations(recording, None, True, ())
        gathers = recording.selection.gathers
        tables = {id(g.candidates): np.unique(g.candidates) for g in gathers}
        assert len(notes.candidates) == sum(map(len, tables.values()))
        shared += len(tables) < len(gathers)
        for place, (begin, end) in zip(notes.places, notes.candidate_at, strict=True):
            (k,) = np.flatnonzero(recording.selection.places == place)
            gather = gathers[recording.selection.owners[k]]
            assert notes.candidates[begin:end].tolist() == tables[id(gather.candidates)].tolist()
    assert shared > 5


@needs_kernels
def test_the_kernel_survives_a_lack_of_memory():
    _testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
    given = arguments(random_recording(random.Random(1), 150))
    wanted = kernels.canonicalise(*given)
    failures = 0
    while True:
        made = None
        _testcapi.set_nomemory(failures, failures + 1)
        try:
            made = kernels.canonicalise(*given)
        except MemoryError:
            failures += 1
        finally:
            _testcapi.remove_mem_hooks()
        if made is not None:
            break
    assert failures > 10
    assert made == wanted
