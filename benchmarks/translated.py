"""Source that ``to_jax`` writes beside JAX written by hand: loss and gradient, in one process.

    pip install ".[jax]"
    python benchmarks/translated.py [PROGRAM ...]

Both are ``jax.jit(jax.value_and_grad(loss))`` in float64 on one thread, take the same samples in
turn, and are compared with each other first. Processor time, in random order; the least of
many turns counts; what matters is the ratio.
"""

import random
import sys
import time

import programs
import tensors  # before JAX: it says how JAX runs

import jax  # isort: skip
import numpy as np

import chainrule

TURNS = 40
SECONDS = 0.02  # of a turn


def prepared(loss, program):
    step = jax.jit(jax.value_and_grad(lambda *arguments: loss(*arguments)))
    params = tensors.arrays(program.params)
    samples = [tensors.arrays(sample) for sample in program.samples]
    calls = 0

    def call():
        nonlocal calls
        calls += 1
        return jax.block_until_ready(step(params, *samples[calls % len(samples)]))

    return call


def seconds(call, count):
    started = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - started) / count


def compare(name):
    program = programs.PROGRAMS[name]()
    written = chainrule.compile(program.loss).to_jax(program.params, *program.samples[0])
    contestants = [prepared(written, program), prepared(tensors.LOSSES[program.loss], program)]
    for one, other in zip(*[jax.tree.leaves(call()) for call in contestants], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    counts = [max(1, int(SECONDS / seconds(call, 20))) for call in contestants]
    best = [float("inf")] * 2
    for _ in range(TURNS):
        for k in random.sample(range(2), 2):
            best[k] = min(best[k], seconds(contestants[k], counts[k]))
    return best


def main():
    known = [name for name in programs.PROGRAMS if name != "irregular"]
    print(f"{'microseconds':14} translated  by hand  ratio")
    for name in sys.argv[1:] or known:
        one, other = compare(name)
        print(f"{name:14} {1e6 * one:10.1f} {1e6 * other:8.1f} {one / other:6.2f}", flush=True)


if __name__ == "__main__":
    main()
