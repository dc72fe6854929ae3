"""Random structured programs as array source, against eager mode: value and gradient.

    python tests/compiler/translate/translate_fuzz.py --programs 1000 --seed 0 --jobs 2

Program number i has the seed ``--seed`` + i: loops, sums, products of matrices, recurrences,
gathers by integers, causal sums, windows, slices. Each is translated ``--to`` numpy, jax and torch
(those that are installed), and called with other numbers and integers than its example. Prints how
many agree and how many are refused, with the reasons; the exit status is 1 if one differs.
``--show SEED`` prints a program.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import random
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from structured_programs import Writer

import chainrule
from chainrule import TranslationError

SHAPES = (7, 4, (4, 5), (5, 3))
CLOSE = 1e-9


def program(seed: int) -> Any:
    """The function of a seed, and its arguments: an example, and others."""
    world: dict[str, Any] = {}
    exec(Writer(random.Random(seed)).source(), world)
    rng, numbers = random.Random(seed), np.random.default_rng(seed)

    def arguments() -> tuple[Any, ...]:
        params = tuple([numbers.normal(size=shape) for shape in SHAPES])
        return params, [rng.randrange(4) for _ in range(3)], rng.choice((1, -1, 2))

    return world["f"], arguments(), arguments()


def flat(tree: Any) -> Any:
    return np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in tree])


def value_and_gradient(to: str, model: Any, arguments: tuple[Any, ...]) -> tuple[float, Any]:
    """Those of a translated function, in double precision; None where it has no gradient."""
    params, ids, scale = arguments
    if to == "numpy":
        return float(model(*arguments)), None
    if to == "torch":
        import torch

        leaves = tuple([torch.tensor(x, requires_grad=True) for x in params])
        value = model(leaves, ids, scale)
        slopes = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
        return value.item(), flat(slopes)
    import jax

    with jax.enable_x64(True):
        value, slopes = jax.jit(jax.value_and_grad(model))(params, np.array(ids), scale)
        return float(value), flat(slopes)


def outcome(seed: int, to: str) -> str:
    """``same``, or why a program is refused, or how it differs."""
    function, example, other = program(seed)
    try:
        model = getattr(chainrule.compile(function), f"to_{to}")(*example)
    except TranslationError as error:
        reason = str(error).partition(": ")[2]
        return f"different {seed}: {reason}" if "please report" in reason else f"refused: {reason}"
    value, slopes = chainrule.value_and_grad(function)(*other)
    found, gradient = value_and_gradient(to, model, other)
    wanted = flat(slopes)
    apart = abs(found - value) / max(1.0, abs(value))
    if gradient is not None:
        apart = max(apart, np.max(np.abs(gradient - wanted)) / max(1.0, np.max(np.abs(wanted))))
    return "same" if apart <= CLOSE else f"different {seed}: by {apart:.1e}"


def examined(job: tuple[int, str]) -> tuple[str, str]:
    seed, to = job
    try:
        return to, outcome(seed, to)
    except Exception as error:
        return to, f"different {seed}: {type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Random programs as array source.")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    every = [to for to in ("numpy", "jax", "torch") if find_spec(to)]
    parser.add_argument("--to", nargs="+", default=every, choices=every)
    parser.add_argument("--show", type=int)
    options = parser.parse_args()
    if options.show is not None:
        print(Writer(random.Random(options.show)).source())
        return 0
    seeds = range(options.seed, options.seed + options.programs)
    jobs = [(seed, to) for seed in seeds for to in options.to]
    found: dict[str, collections.Counter[str]] = {to: collections.Counter() for to in options.to}
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=100) as pool:
        for to, words in pool.imap_unordered(examined, jobs, 4):
            found[to][words] += 1
    for to, counted in found.items():
        print(f"{to}: {counted.pop('same', 0)} of {options.programs} the same")
        for words, count in counted.most_common():
            print(f"  {count} {words}")
    return int(any("different" in words for counted in found.values() for words in counted))


if __name__ == "__main__":
    sys.exit(main())
