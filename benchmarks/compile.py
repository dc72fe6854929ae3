"""How fast compiled functions are: tape and lifted code beside eager mode and JAX.

    python benchmarks/compile.py               everything, some minutes
    python benchmarks/compile.py --quick       fewer repeats
    python benchmarks/compile.py gpt-8 lorenz  some programs; their names are in programs.py

Every contestant must find the same loss and gradient before anything is timed. What each table
holds is described in the README beside this file. A new contestant is one more of ``CONTESTANTS``.
"""

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle, repeat
from typing import Any

import numpy as np
import scalar_gpt
from harness import WHOLE, clock, figure, machine, ratio, table, take_turns, title, whole
from programs import PROGRAMS, Program, flat, nested

import chainrule
from chainrule.compiler.runtime.ledger import allowance
from chainrule.core import value as reference

US, NS = 1e6, 1e9
TURN = 0.01  # seconds: a shorter call is repeated until its turn takes about as long

# --- contestants ----------------------------------------------------------------------------------
# A contestant is made for a program. Calling it computes the loss of the next sample and its
# gradient; ``result()`` does that too and returns both, the gradient as a list of floats. They may
# differ from the reference engine's by ``tolerance`` of the largest; None: not by a bit.


class Eager:
    """Build the graph and sweep it, every time. Gradients add up; an optimiser would zero them."""

    tolerance = None

    def __init__(self, program, value_class):
        self.loss = program.loss
        self.params = nested(program.params, value_class)
        self.samples = cycle([nested(sample, float) for sample in program.samples])

    def __call__(self):
        loss = self.loss(self.params, *next(self.samples))
        loss.backward()
        return loss

    def result(self):
        leaves = flat(self.params)
        for p in leaves:
            p.grad = 0.0
        return self().data, [p.grad for p in leaves]


class Compiled:
    """The function compiled; arrays in, arrays out."""

    tolerance = None
    lift = False

    def __init__(self, program):
        self.function = chainrule.compile(program.loss, on_fallback="raise", lift=self.lift)
        self.params = program.params
        self.samples = cycle(program.samples)

    def __call__(self):
        return self.function.value_and_grad(self.params, *next(self.samples))

    def result(self):
        value, grads = self()
        return value, flat(grads)


class Lifted(Compiled):
    """The same, its recording made an array program in machine code."""

    tolerance = 1e-12
    lift = True


state_dict = scalar_gpt.parameters(chainrule.Value)


def loss_of_script(tokens):
    return scalar_gpt.loss(state_dict, tokens)


class Script(Eager):
    """microgpt's manner: the parameters are global Values, and the loss is one big node of them."""

    def __init__(self, program):
        self.function = chainrule.compile(loss_of_script, on_fallback="raise", lift=False)
        self.params = state_dict
        self.samples = cycle(program.samples)

    def loss(self, _, tokens):
        return self.function(tokens)


def jax_jit(program):
    import tensors

    return tensors.JaxJit(program)


@dataclass(frozen=True)
class Contestant:
    """Who takes part: in which programs, and how."""

    make: Callable[[Program], Any]
    takes_part: Callable[[str], bool] = lambda name: True
    package: str | None = None  # that must be installed
    builds: bool = False  # its first call takes much longer than the others
    turns: int | None = None  # that are enough


TAPE, LIFTED = "tape", "lifted"

CONTESTANTS = {
    "reference": Contestant(lambda program: Eager(program, reference.Value), turns=4),
    "native": Contestant(lambda program: Eager(program, chainrule.Value)),
    TAPE: Contestant(Compiled, builds=True),
    "tape, script": Contestant(Script, lambda name: name.startswith("gpt-"), builds=True),
    LIFTED: Contestant(Lifted, package="llvmlite", builds=True),
    "JAX": Contestant(jax_jit, lambda name: name != "irregular", "jax", builds=True),
}

allowance.left = math.inf  # recorded and built at the first call, whatever that costs

# --- the parts of a compiled call -----------------------------------------------------------------


def variant_of(function):
    """The one recording of a compiled function, ready to run."""
    (structure,) = function.dispatch.structures.values()
    (variant,) = structure.variants
    return variant


def tape_passes(function):
    """The tape's two passes, each alone."""
    variant = variant_of(function)
    executor, root = variant.executor, variant.recording.result.position
    return {
        "run": lambda: executor.run(variant.inputs),
        "sweep": lambda: executor.sweep(root, 1.0, variant.grads),
    }


def lifted_parts(function):
    """What machine code does in a call, each part alone: its calls are in one piece."""
    variant = variant_of(function)
    code, counts = variant.machine.code, variant.binding.fit.counts_at
    return {
        "freshness": function.dispatch.captured.changed,
        "run": lambda: code.run(counts),
        "sweep": lambda: code.sweep(counts),
    }


class Stopwatches:
    """Measure the parts of a call on the tape from inside, in its executor's place."""

    def __init__(self, function):
        variant, state = variant_of(function), function.dispatch.captured
        executor = variant.executor
        self.seconds = {"freshness": 0.0, "run": 0.0, "sweep": 0.0}
        self.number, self.point = executor.number, executor.point
        self.run = self._timed("run", executor.run)
        self.sweep = self._timed("sweep", executor.sweep)
        state.changed = self._timed("freshness", state.changed)
        variant.executor = self

    def _timed(self, part, function):
        def timed(*arguments):
            begin = clock()
            result = function(*arguments)
            self.seconds[part] += clock() - begin
            return result

        return timed

    def watching(self, count=500):
        """What measuring nothing takes: the part that is measured, and the whole."""
        nothing = self._timed("run", int)
        self.seconds["run"], begin = 0.0, clock()
        for _ in repeat(None, count):
            nothing()
        return self.seconds["run"] / count, (clock() - begin) / count

    def turn(self, call, count):
        """A contestant of ``take_turns``: seconds of each part, per call."""
        inside, around = map(min, zip(*[self.watching() for _ in range(5)], strict=True))
        self.seconds, begin = dict.fromkeys(self.seconds, 0.0), clock()
        for _ in repeat(None, count):
            call()
        whole = (clock() - begin) / count - around * len(self.seconds)
        parts = {part: seconds / count - inside for part, seconds in self.seconds.items()}
        return {**parts, "left": whole - sum(parts.values())}


# --- measuring ------------------------------------------------------------------------------------


def calls_in_a_turn(function):
    return max(1, round(TURN / whole(function)()["call"]))


def calls(function):
    """A contestant of ``take_turns``: seconds per call, of as many calls as a turn is long."""
    count = calls_in_a_turn(function)

    def several():
        for _ in repeat(None, count):
            function()

    return lambda: {"call": whole(several)()["call"] / count}


def at_most(turns, contestant):
    """A contestant that is slow: after so many turns it repeats its best."""
    seen = []

    def turn():
        if len(seen) < turns:
            seen.append(contestant())
        return min(seen, key=lambda seconds: seconds["call"])

    return turn


def warm_up(contestant, program):
    """Let it see every sample, so that it has nothing more to build."""
    for _ in program.samples:
        contestant()


def check(name, program, running):
    """Every contestant's losses and gradients must be eager's."""
    results = {n: [c.result() for _ in program.samples] for n, c in running.items()}
    for other, found in results.items():
        for (value, grads), (expected, slopes) in zip(found, results["reference"], strict=True):
            tolerance = running[other].tolerance
            if tolerance is None:
                agree = [x.hex() for x in (value, *grads)] == [x.hex() for x in (expected, *slopes)]
            else:
                agree = np.isclose(value, expected, rtol=tolerance, atol=0.0) and np.allclose(
                    grads, slopes, rtol=0.0, atol=tolerance * np.abs(slopes).max()
                )
            if not agree:
                sys.exit(f"{name}: {other!r} does not find the loss and gradient of eager mode")


@dataclass(frozen=True)
class Measured:
    """One program's figures, in seconds."""

    nodes: int  # recorded, without the inputs
    first: dict[str, float]  # until the first result
    call: dict[str, float]
    tape: dict[str, float]  # each pass alone
    parts: dict[str, dict[str, float]]  # inside the calls of those that are compiled functions


def enter(name, program, contestants):
    """Those who take part in a program, with nothing more to build; not who cannot be lifted."""
    running = {n: c.make(program) for n, c in contestants.items() if c.takes_part(name)}
    for n in list(running):
        if contestants[n].builds:
            warm_up(running[n], program)
        if isinstance(running[n], Lifted) and variant_of(running[n].function).machine is None:
            print(f"{name}: not lifted: {variant_of(running[n].function).not_lifted}")
            del running[n]
    return running


def measure(name, contestants, quick):
    program = PROGRAMS[name]()
    running = enter(name, program, contestants)
    check(name, program, running)
    entered = {n: contestants[n] for n in running}
    recording = variant_of(running[TAPE].function).recording

    building = {n: whole(lambda c=c: c.make(program)()) for n, c in entered.items() if c.builds}
    first = take_turns(building, 1 if quick else 3)

    turns = {n: calls(contestant) for n, contestant in running.items()}
    turns |= {n: at_most(c.turns, turns[n]) for n, c in entered.items() if c.turns}
    passes = tape_passes(running[TAPE].function)
    turns |= {("tape alone", part): calls(function) for part, function in passes.items()}
    pieces = lifted_parts(running[LIFTED].function) if LIFTED in running else {}
    turns |= {("lifted alone", part): calls(function) for part, function in pieces.items()}
    watched = [n for n, c in running.items() if isinstance(c, Compiled | Script) and n != LIFTED]
    for n in watched:
        contestant = entered[n].make(program)
        warm_up(contestant, program)
        watches, count = Stopwatches(contestant.function), calls_in_a_turn(contestant)
        turns["parts", n] = lambda w=watches, c=contestant, count=count: w.turn(c, count)
    best = take_turns(turns, 5 if quick else 40)
    parts = {n: best["parts", n] for n in watched}
    if pieces:
        seconds = {part: best["lifted alone", part][WHOLE] for part in pieces}
        parts[LIFTED] = {**seconds, "left": best[LIFTED][WHOLE] - sum(seconds.values())}
    return Measured(
        len(recording) - recording.inputs,
        {n: seconds[WHOLE] for n, seconds in first.items()},
        {n: best[n][WHOLE] for n in running},
        {part: best["tape alone", part][WHOLE] for part in passes},
        parts,
    )


# --- tables ---------------------------------------------------------------------------------------


def calls_table(results, names, quick):
    title(
        "Loss and gradient, microseconds per call (one sample per call, float64; eager mode and "
        "the tape agree to the last bit, lifted code to 1e-12, JAX to 1e-9; minima of "
        f"{5 if quick else 40} turns, of the reference {CONTESTANTS['reference'].turns})"
    )
    rows = [
        [name, figure(r.nodes, digits=0), *[figure(r.call.get(n), US, 1) for n in names]]
        for name, r in results.items()
    ]
    table(["", "nodes", *names], rows)


def ratios_table(results, names, main):
    others = [n for n in names if n != main]
    title(f"How many calls of {main!r} fit into one of the others")
    rows = [
        [name, *[ratio(r.call.get(n), r.call[main]) for n in others]]
        for name, r in results.items()
        if main in r.call
    ]
    table(["", *others], rows)


def first_table(results, names):
    builders = [n for n in names if CONTESTANTS[n].builds]
    title("Seconds to the first result: recording and checking, or tracing and compiling")
    rows = [
        [name, *[figure(r.first.get(n), digits=3) for n in builders]] for name, r in results.items()
    ]
    table(["", *builders], rows)


def parts_table(results):
    title(
        "Where a compiled call's time goes, microseconds: the check that nothing around the "
        "function has changed, the two passes (where an index selects another node than in the "
        "call before, the tape finds the order of its sweep anew), and what is left: arguments, "
        "indices, the gradient's arrays or node. Then the tape's passes alone, in nanoseconds per "
        "node"
    )
    rows, parts = [], ("freshness", "run", "sweep", "left")
    for name, r in results.items():
        for n, seconds in r.parts.items():
            times = [*[seconds[part] for part in parts], r.call[n]]
            alone = [figure(r.tape[part], NS / r.nodes, 2) for part in ("run", "sweep")]
            cells = [*[figure(time, US, 1) for time in times], *(alone if n == TAPE else ["", ""])]
            rows.append([f"{name}, {n}", *cells])
    table(["", *parts, WHOLE, "run, ns", "sweep, ns"], rows)


# --- guards ---------------------------------------------------------------------------------------

GUARDS = 100


def without_guards(x):
    for _ in range(GUARDS):
        x = x * 0.99 + 0.02
    return x


def with_guards(x):
    for _ in range(GUARDS):
        if x > 0.5:
            x = x * 0.99 + 0.02
    return x


def guards_table(quick):
    contestants, nodes = {}, {}
    for loss in (without_guards, with_guards):
        program = Program(loss, 1.0)
        compiled = Compiled(program)
        compiled()
        recording = variant_of(compiled.function).recording
        nodes[loss] = len(recording) - recording.inputs
        measured = {"first": lambda p=program: Compiled(p)(), "call": compiled}
        measured |= tape_passes(compiled.function)
        contestants |= {(loss, part): calls(function) for part, function in measured.items()}
    best = take_turns(contestants, 20 if quick else 200)

    title(f"What a guard costs: the same program with {GUARDS} branches and without, microseconds")
    columns = ["first", "call", "run", "sweep"]
    seconds = {loss: [best[loss, column][WHOLE] for column in columns] for loss in nodes}
    rows = []
    for loss, count in nodes.items():
        cells = [figure(time, US, 2) for time in seconds[loss]]
        rows.append([loss.__name__.replace("_", " "), str(count), *cells])
    each = [(more - less) / GUARDS for less, more in zip(*seconds.values(), strict=True)]
    rows.append(["a guard", "", *[figure(time, US, 4) for time in each]])
    table(["", "nodes", "first result", *columns[1:]], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", metavar="program", help=", ".join(PROGRAMS))
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    options = parser.parse_args()
    if unknown := [name for name in options.programs if name not in PROGRAMS]:
        parser.error(f"no program {unknown[0]!r}: there are {', '.join(PROGRAMS)}")
    if chainrule.engine != "native":
        sys.exit("the native engine was not built: install chainrule with a C compiler")
    print(machine())
    here = {n: c for n, c in CONTESTANTS.items() if c.package is None or find_spec(c.package)}
    for name in [n for n in CONTESTANTS if n not in here]:
        print(f"{name} is not installed: skipped")
    chosen = options.programs or list(PROGRAMS)
    results = {name: measure(name, here, options.quick) for name in chosen}
    calls_table(results, list(here), options.quick)
    for main in (TAPE, LIFTED):
        if any(main in r.call for r in results.values()):
            ratios_table(results, list(here), main)
    first_table(results, list(here))
    parts_table(results)
    guards_table(options.quick)


if __name__ == "__main__":
    main()
