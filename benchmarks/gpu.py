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
ANY_SIZE = "gpt_any_size"  # a GPT of so many layers and heads, from recordings at small sizes
LAYERS, HEADS = 4, 4


def write(folder):
    """The sources, by the names of the programs."""
    import programs

    import chainrule

    folder.mkdir(parents=True, exist_ok=True)
    for name, program_name in NAMES.items():
        program = programs.PROGRAMS[program_name]()
        model = chainrule.compile(program.loss).to_jax(program.params, *program.samples[0])
        model.save(folder / f"written_{name}.py")
    any_size().save(folder / f"written_{ANY_SIZE}.py")


def any_size():
    """The loss of chainrule's own GPT for any width of a head, positions and vocabulary."""
    import chainrule
    from chainrule import gpt

    def loss(weights, tokens):
        width, block = len(weights["token_embedding"][0]), len(weights["position_embedding"])
        config = gpt.Config(layers=LAYERS, heads=HEADS, width=width, block=block)
        return gpt.GPT.of(config, weights).loss(tokens)

    def example(D=2, T=4, V=5):
        config = gpt.Config(layers=LAYERS, heads=HEADS, width=HEADS * D, block=T)
        shapes = {name: x.shape for name, x in gpt.GPT(config, vocabulary=V).arrays().items()}
        rng = np.random.default_rng(D)
        weights = {name: rng.normal(0.0, 0.3, shape) for name, shape in shapes.items()}
        return weights, rng.integers(0, V, T + 1).tolist()

    return chainrule.compile(loss).to_jax(sizes=example)


def wide_weights(width, positions, vocabulary):
    """Those of a GPT as ``any_size`` has it."""
    rng = np.random.default_rng(0)
    shapes = {
        "token_embedding": (vocabulary, width),
        "position_embedding": (positions, width),
        "head": (vocabulary, width),
    }
    for layer in range(LAYERS):
        for name in ("query", "key", "value", "output"):
            shapes[f"layers.{layer}.attention.{name}"] = (width, width)
        shapes[f"layers.{layer}.mlp.widen"] = (4 * width, width)
        shapes[f"layers.{layer}.mlp.narrow"] = (width, 4 * width)
    return {name: rng.normal(0.0, 0.02, shape) for name, shape in shapes.items()}


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
    made = loaded(folder, ANY_SIZE, "loss")
    pair = [mean(loss, (None, 0)) for loss in (made, tensors.wide_gpt_loss)]
    for width, positions, vocabulary, batch, kind in (
        (128, 128, 1_024, 16, "float32"),
        (768, 1_024, 32_768, 4, "float32"),
        (768, 1_024, 32_768, 4, "bfloat16"),
    ):
        weights = wide_weights(width, positions, vocabulary)
        weights = jax.tree.map(lambda x, kind=kind: jax.numpy.asarray(x, kind), weights)
        tokens = rng.integers(0, vocabulary, (batch, positions + 1), dtype=np.int32)
        words = f"GPT, width {width}, {positions:,} positions, {kind}"
        yield words, *pair, (weights, tokens)
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
    missing = [
        name for name in (*NAMES, ANY_SIZE) if not (options.folder / f"written_{name}.py").is_file()
    ]
    if missing:
        parser.error(f"{options.folder} has no written_{missing[0]}.py: write it by --write")
    os.environ.setdefault("JAX_PLATFORMS", "cuda")  # else the hand-written programs take the CPU
    import jax

    print(jax.__version__, jax.devices())
    print(f"{'microseconds':44} written  by hand  ratio  apart")
    for words, one, other, arguments in rows(jax, options.folder):
        (a, b), apart = measured(jax, (one, other), arguments)
        line = f"{words:44} {1e6 * a:7.0f} {1e6 * b:8.0f} {a / b:6.2f} {apart:.1e}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
