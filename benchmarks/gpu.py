"""Source that ``to_jax`` writes beside JAX written by hand, on a GPU, in float32.

    python benchmarks/gpu.py --write FOLDER    # where chainrule is: writes the sources
    python benchmarks/gpu.py FOLDER            # where the GPU is: needs jax and numpy only

Each row is one ``jax.jit(jax.value_and_grad(mean over the batch))`` for each of the two, compared
with each other first, then timed in random order; the least of the means of several turns counts.
"""

import argparse
import importlib.util
import os
import random
import time
from pathlib import Path

import numpy as np

TURNS, CALLS = 9, 20
NAMES = {"gpt": "gpt-16", "option": "option", "rnn": "rnn", "lorenz": "lorenz"}


def write(folder):
    """The sources, by the names of the programs."""
    import programs

    import chainrule

    folder.mkdir(parents=True, exist_ok=True)
    for name, program_name in NAMES.items():
        program = programs.PROGRAMS[program_name]()
        model = chainrule.compile(program.loss).to_jax(program.params, *program.samples[0])
        model.save(folder / f"written_{name}.py")


def loaded(folder, name, function):
    spec = importlib.util.spec_from_file_location(name, folder / f"written_{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


def rows(jax, folder):
    """(words, generated, by hand, arguments), the losses as means over a batch."""
    import programs
    import tensors

    jax.config.update("jax_enable_x64", False)
    rng = np.random.default_rng(0)

    def mean(loss, batched):
        return lambda *xs: jax.vmap(loss, batched)(*xs).mean()

    def single(tree):
        return jax.tree.map(lambda x: np.float32(x), tree)

    gpt = programs.gpt(15)
    made = loaded(folder, "gpt", "loss")
    for batch in (1, 16, 1024, 16384):
        tokens = rng.integers(0, 26, (batch, 17), dtype=np.int32)
        pair = [mean(loss, (None, 0)) for loss in (made, tensors.gpt_loss)]
        yield f"microgpt, {batch:,} names", *pair, (single(gpt.params), tokens)
    option = programs.option()
    made = loaded(folder, "option", "option_loss")
    for blocks in (500, 5_000, 50_000):
        normals = rng.normal(size=(blocks, 200, 20)).astype(np.float32)
        whole = lambda p, x: tensors.option_loss(p, x.reshape(-1, 20))  # noqa: E731
        words = f"Asian option, {200 * blocks:,} paths"
        yield words, mean(made, (None, 0)), whole, (single(option.params), normals)
    rnn = programs.rnn()
    made = loaded(folder, "rnn", "rnn_loss")
    for count in (1, 4096):
        xs = rng.normal(size=(count, 201)).astype(np.float32)
        pair = [mean(loss, (None, 0)) for loss in (made, tensors.rnn_loss)]
        yield f"RNN, {count:,} sequences of 200", *pair, (single(rnn.params), xs)
    lorenz = programs.lorenz()
    made = loaded(folder, "lorenz", "lorenz_loss")
    starts = (lorenz.params["start"] + rng.normal(0, 0.1, (4096, 3))).astype(np.float32)
    params = {**single(lorenz.params), "start": starts}
    axes = ({name: 0 if name == "start" else None for name in params},)
    pair = [mean(loss, axes) for loss in (made, tensors.lorenz_loss)]
    yield "Lorenz, 4,096 starts, 1,000 steps", *pair, (params,)


def measured(jax, contestants, arguments):
    arguments = jax.device_put(arguments)
    steps = [jax.jit(jax.value_and_grad(loss)) for loss in contestants]
    values = [jax.block_until_ready(step(*arguments)) for step in steps]
    apart = max(
        float(np.max(np.abs(a - b)) / (1e-6 + np.max(np.abs(b))))
        for a, b in zip(*map(jax.tree.leaves, values), strict=True)
    )
    best = [float("inf")] * 2
    for _ in range(TURNS):
        for k in random.sample(range(2), 2):
            started = time.perf_counter()
            for _ in range(CALLS):
                found = steps[k](*arguments)
            jax.block_until_ready(found)
            best[k] = min(best[k], (time.perf_counter() - started) / CALLS)
    return best, apart


def folder_named(text):
    folder = Path(text)
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}: --write makes it")
    return folder


def main():
    parser = argparse.ArgumentParser(description="Generated JAX beside JAX written by hand.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", metavar="FOLDER", type=Path, help="write the sources")
    what.add_argument("folder", nargs="?", type=folder_named, help="a folder with the sources")
    options = parser.parse_args()
    if options.write is not None:
        write(options.write)
        return
    missing = [name for name in NAMES if not (options.folder / f"written_{name}.py").is_file()]
    if missing:
        parser.error(f"{options.folder} has no written_{missing[0]}.py: write it by --write")
    os.environ.setdefault("JAX_PLATFORMS", "cuda")  # else the hand-written programs take the CPU
    import jax

    print(jax.__version__, jax.devices())
    print(f"{'microseconds':36} written  by hand  ratio  apart")
    for words, one, other, arguments in rows(jax, options.folder):
        (a, b), apart = measured(jax, (one, other), arguments)
        line = f"{words:36} {1e6 * a:7.0f} {1e6 * b:8.0f} {a / b:6.2f} {apart:.1e}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
