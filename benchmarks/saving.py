"""A saved GPT: loading it and its first call, beside compiling it from its source.

    python benchmarks/saving.py            --quick: fewer repeats

Every turn is a fresh process that has imported chainrule. Times are processor time, minima over
turns; the losses that all of them compute are compared.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path

from harness import WHOLE, Laps, figure, fresh_process, machine, ratio, table, take_turns, title

import chainrule
import chainrule.compiler
from chainrule.gpt import GPT, Config

CONFIG = Config()
LENGTHS = (16, 9, 7, 5)
WAYS = {
    "load: the first call on the tape": "load",
    "load(build=True): by machine code": "build",
    "compile from source, LLVM's part from a folder": "cached",
    "compile from source: by machine code": "compile",
}


def loss(weights, tokens):
    return GPT.of(CONFIG, weights).loss(tokens)


def arguments(length):
    """Weights, and a text of so many letters."""
    return GPT(CONFIG, 27).arrays(), [26, *[k % 26 for k in range(length - 1)], 26]


def first_call(way, path):
    """Seconds until there is a function, and of its first call; and its value."""
    weights, tokens = arguments(LENGTHS[0])
    if way == "cached":  # from the second turn on
        os.environ["CHAINRULE_CODE_CACHE"] = str(Path(path).with_name("code"))
    laps = Laps()
    if way in ("compile", "cached"):
        function = chainrule.compile(loss, lift=True)
    else:
        function = chainrule.load(path, build=way == "build")
    laps("function")
    value, _ = function.value_and_grad(weights, tokens)
    laps("first call")
    return laps.seconds, value


def turn(way, path, values):
    seconds, value = fresh_process(first_call, way, path)
    values.append(value)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    repeats = 3 if parser.parse_args().quick else 15
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gpt.chainrule")
        fast = chainrule.compile(loss, lift=True)
        for length in LENGTHS:
            fast.save(path, *arguments(length))
        print(machine())
        size = f"{path.stat().st_size / 1e6:.1f} MB"
        title(
            f"A GPT for {len(LENGTHS)} lengths, a file of {size}; minima of {repeats}, milliseconds"
        )
        values = []
        turns = {name: partial(turn, way, path, values) for name, way in WAYS.items()}
        best = take_turns(turns, repeats)
    assert max(values) - min(values) < 1e-12 * abs(values[0]), "all compute the same loss"
    slowest = best[list(WAYS)[-1]][WHOLE]
    rows = [
        [
            name,
            *[figure(found[phase], 1e3, 1) for phase in ("function", "first call", WHOLE)],
            ratio(slowest, found[WHOLE]),
        ]
        for name, found in best.items()
    ]
    table(["", "function", "first call", "both", "from source ÷ it"], rows)


if __name__ == "__main__":
    main()
