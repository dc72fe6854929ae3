"""C that ``to_c`` writes, compiled by gcc, beside chainrule's own machine code: loss and gradient.

    python benchmarks/c_source.py [PROGRAM ...]

Both are called from Python with the same arguments, C through ctypes, and compared with each other
first. In random order; the least of many turns counts.
"""

import math
import random
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import numpy as np
import programs
from compiled_c import Compiled, leaves

import chainrule
from chainrule.compiler.runtime.ledger import allowance

allowance.left = math.inf  # recorded and built at the first call, whatever that costs
SECONDS = 0.6  # for each program and way
REORDERED = ("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math")
WAYS = {
    "-O2": ("-O2",),
    "-O3": ("-O3", "-march=native"),
    "reordered": ("-O3", "-march=native", *REORDERED),
}


def compare(name):
    program = programs.PROGRAMS[name]()
    arguments = (program.params, *program.samples[0])
    fast = chainrule.compile(program.loss)
    calls = {"compiled": lambda: fast.value_and_grad(*arguments)}
    value, grads = calls["compiled"]()
    flat = np.concatenate([np.ravel(np.asarray(x, float)) for x in leaves(grads)])
    source = fast.to_c(*arguments)
    for way, flags in WAYS.items():
        model = Compiled(source, *flags)
        status, found, slopes = model.value_and_grad(*arguments)
        assert status == 0
        np.testing.assert_allclose(found, value, rtol=1e-9)
        np.testing.assert_allclose(slopes, flat, rtol=1e-9, atol=1e-9 * np.abs(flat).max())
        calls[way] = model.prepared(*arguments)
    best = dict.fromkeys(calls, float("inf"))
    until = time.perf_counter() + SECONDS * len(calls)
    while time.perf_counter() < until:
        for way in random.sample(list(calls), len(calls)):
            for _ in range(5):
                started = time.perf_counter()
                calls[way]()
                best[way] = min(best[way], time.perf_counter() - started)
    return best


def main():
    known = [name for name in programs.PROGRAMS if name != "irregular"]
    print(f"{'microseconds':14} " + " ".join(f"{way:>10}" for way in ("compiled", *WAYS)))
    for name in sys.argv[1:] or known:
        best = compare(name)
        print(f"{name:14} " + " ".join(f"{1e6 * x:10.1f}" for x in best.values()), flush=True)


if __name__ == "__main__":
    main()
