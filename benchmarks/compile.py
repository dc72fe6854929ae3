"""How fast compiled functions are: the native tape beside eager mode and JAX.

    python benchmarks/compile.py               everything, some minutes
    python benchmarks/compile.py --quick       fewer repeats
    python benchmarks/compile.py gpt-8 lorenz  some programs; their names are in programs.py

Every contestant must find the same loss and gradient before anything is timed. What each table
holds is described in the README beside this file. A new contestant is one more of ``CONTESTANTS``.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import repeat
from typing import Any

import numpy as np
import scalar_gpt
from harness import WHOLE, figure, machine, ratio, table, take_turns, title, whole
from programs import PROGRAMS, Program, flat, nested

import chainrule
from chainrule import value as reference

US, NS = 1e6, 1e9
TURN = 4e-3  # seconds: a shorter call is repeated until its turn takes about as long

# --- contestants ----------------------------------------------------------------------------------
# A contestant is made for a program. Calling it computes the loss and its gradient; ``result()``
# does that too and returns both, the gradient as a list of floats in the order of the parameters.


class Eager:
    """Build the graph and sweep it, every time. Gradients add up; an optimiser would zero them."""

    exact = True

    def __init__(self, program, value_class):
        self.loss = program.loss
        self.params = nested(program.params, value_class)
        self.inputs = nested(program.inputs, float)

    def __call__(self):
        loss = self.loss(self.params, *self.inputs)
        loss.backward()
        return loss

    def result(self):
        leaves = flat(self.params)
        for p in leaves:
            p.grad = 0.0
        return self().data, [p.grad for p in leaves]


class Compiled:
    """The function compiled; arrays in, arrays out."""

    exact = True

    def __init__(self, program):
        self.function = chainrule.compile(program.loss, on_fallback="raise")
        self.arguments = program.params, *program.inputs

    def __call__(self):
        return self.function.value_and_grad(*self.arguments)

    def result(self):
        value, grads = self()
        return value, flat(grads)


state_dict = scalar_gpt.parameters(chainrule.Value)


def loss_of_script(tokens):
    return scalar_gpt.loss(state_dict, tokens)


class Script(Eager):
    """microgpt's manner: the parameters are global Values, and the loss is one big node of them."""

    def __init__(self, program):
        self.function = chainrule.compile(loss_of_script, on_fallback="raise")
        self.params = state_dict
        self.inputs = program.inputs

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


MAIN = "compiled"  # the ratios are to this one

CONTESTANTS = {
    "reference": Contestant(lambda program: Eager(program, reference.Value), turns=5),
    "native": Contestant(lambda program: Eager(program, chainrule.Value)),
    MAIN: Contestant(Compiled, builds=True),
    "script": Contestant(Script, lambda name: name.startswith("gpt-"), builds=True),
    "JAX": Contestant(jax_jit, lambda name: name != "irregular", "jax", builds=True),
}

# --- measuring ------------------------------------------------------------------------------------


def calls(function):
    """A contestant of ``take_turns``: seconds per call, of as many calls as a turn is long."""
    seconds = whole(function)()["call"]
    count = max(1, round(TURN / seconds))

    def turn():
        def several():
            for _ in repeat(None, count):
                function()

        return {"call": whole(several)()["call"] / count}

    return turn


def at_most(turns, contestant):
    """A contestant that is slow: after so many turns it repeats its best."""
    seen = []

    def turn():
        if len(seen) < turns:
            seen.append(contestant())
        return min(seen, key=lambda seconds: seconds["call"])

    return turn


def minima(contestants, repeats):
    return {name: best[WHOLE] for name, best in take_turns(contestants, repeats).items()}


def check(name, running):
    """Every contestant's loss and gradient: eager's, to the last bit or to 1e-9 of the largest."""
    value, grads = running["reference"].result()
    for other, contestant in running.items():
        contestant.result()  # so that what is compared is a replay
        found, slopes = contestant.result()
        if contestant.exact:
            agree = [x.hex() for x in (found, *slopes)] == [x.hex() for x in (value, *grads)]
        else:
            agree = np.isclose(found, value, rtol=1e-9, atol=0.0) and np.allclose(
                slopes, grads, rtol=0.0, atol=1e-9 * np.abs(grads).max()
            )
        if not agree:
            sys.exit(f"{name}: {other!r} does not find the loss and gradient of eager mode")


def parts(function):
    """What a replayed call is made of, each a function of its own; and its recording."""
    (structure,) = function._structures.values()
    (variant,) = structure.variants
    executor, root = variant.executor, variant.recording.result.position
    return variant.recording, {
        "freshness": function._surroundings.changed,
        "run": lambda: executor.run(variant.inputs),
        "sweep": lambda: executor.sweep(root, 1.0, variant.grads),
    }


@dataclass(frozen=True)
class Measured:
    """One program's figures, in seconds."""

    nodes: int  # recorded, without the inputs
    first: dict[str, float]  # until the first result
    call: dict[str, float]
    parts: dict[str, dict[str, float]]  # of the contestants that are compiled functions


def measure(name, contestants, quick):
    program = PROGRAMS[name]()
    entered = {n: c for n, c in contestants.items() if c.takes_part(name)}
    running = {n: c.make(program) for n, c in entered.items()}
    check(name, running)

    first = minima(
        {n: whole(lambda c=c: c.make(program)()) for n, c in entered.items() if c.builds},
        1 if quick else 3,
    )
    turns = {n: calls(contestant) for n, contestant in running.items()}
    turns |= {n: at_most(c.turns, turns[n]) for n, c in entered.items() if c.turns}
    compiled = {n: c for n, c in running.items() if isinstance(c, Compiled | Script)}
    for n, contestant in compiled.items():
        recording, pieces = parts(contestant.function)
        nodes = len(recording) - recording.inputs
        turns |= {(n, part): calls(function) for part, function in pieces.items()}
    best = minima(turns, 5 if quick else 40)
    return Measured(
        nodes,
        first,
        {n: best[n] for n in running},
        {n: {part: best[n, part] for part in pieces} for n in compiled},
    )


# --- tables ---------------------------------------------------------------------------------------


def calls_table(results, names, quick):
    title(
        "Loss and gradient, microseconds per call (one sample per call, float64; reference, native "
        f"and compiled agree to the last bit, JAX to 1e-9; minima of {5 if quick else 40} turns, of "
        f"the reference {CONTESTANTS['reference'].turns})"
    )
    rows = [
        [name, figure(r.nodes, digits=0), *[figure(r.call.get(n), US, 1) for n in names]]
        for name, r in results.items()
    ]
    table(["", "nodes", *names], rows)


def ratios_table(results, names):
    others = [n for n in names if n != MAIN]
    title(f"How many calls of {MAIN!r} fit into one of the others")
    rows = [
        [name, *[ratio(r.call.get(n), r.call[MAIN]) for n in others]] for name, r in results.items()
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
        "Where a compiled call's time goes: the tape, forward and backward, in nanoseconds per "
        "node; and in microseconds the check that nothing around the function has changed, the "
        "tape's two passes, and what is left (arguments, indices, the gradient's arrays)"
    )
    rows = []
    for name, r in results.items():
        for n, seconds in r.parts.items():
            left = r.call[n] - sum(seconds.values())
            rows.append(
                [
                    name if n == MAIN else f"{name}, {n}",
                    *[figure(seconds[part], NS / r.nodes, 2) for part in ("run", "sweep")],
                    *[figure(seconds[part], US, 1) for part in ("freshness", "run", "sweep")],
                    figure(left, US, 1),
                    figure(r.call[n], US, 1),
                ]
            )
    headers = ["", "run, ns", "sweep, ns", "freshness", "run", "sweep", "left", WHOLE]
    table(headers, rows)


# --- a guard --------------------------------------------------------------------------------------

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
    contestants, programs = {}, {"without": without_guards, "with": with_guards}
    recorded = {}
    for name, loss in programs.items():
        program = Program(loss, 1.0, (), "")
        contestants[name, "first"] = calls(lambda p=program: Compiled(p)())
        compiled = Compiled(program)
        compiled()
        recorded[name], pieces = parts(compiled.function)
        pieces["call"] = compiled
        contestants |= {(name, part): calls(function) for part, function in pieces.items()}
    best = minima(contestants, 20 if quick else 200)

    title(
        f"What a guard costs: a program of {2 * GUARDS} nodes, with {GUARDS} branches and without"
    )
    columns = ["first", "call", "run", "sweep"]
    rows = []
    for name, recording in recorded.items():
        cells = [figure(best[name, column], US, 2) for column in columns]
        rows.append([f"{name} guards, µs", str(len(recording) - recording.inputs), *cells])
    each = [(best["with", c] - best["without", c]) / GUARDS for c in columns]
    rows.append(["a guard, ns", "", *[figure(seconds, NS, 1) for seconds in each]])
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
    for name in CONTESTANTS.keys() - here.keys():
        print(f"{name} is not installed: skipped")
    chosen = options.programs or list(PROGRAMS)
    results = {name: measure(name, here, options.quick) for name in chosen}
    calls_table(results, list(here), options.quick)
    ratios_table(results, list(here))
    first_table(results, list(here))
    parts_table(results)
    guards_table(options.quick)


if __name__ == "__main__":
    main()
