"""The training steps of ``train.py`` by others: JAX, hand-written C.

A contestant is made for a task, a run of the package at its first step, and so many names;
``advance(steps)`` trains on, in order, and returns the losses.
"""

import ctypes
import subprocess
import tempfile
from itertools import count, islice
from pathlib import Path

import numpy as np

FLAGS = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
C_NUMBERS = {"float64": "double", "float32": "float"}
#: the weights in the order of gpt_steps.c
C_WEIGHTS = (
    *("token_embedding", "position_embedding", "head"),
    *(f"layers.0.attention.{name}" for name in ("query", "key", "value", "output")),
    *("layers.0.mlp.widen", "layers.0.mlp.narrow"),
)


def encoded(task, run, most):
    """The first names as tokens, cut as the model cuts them."""
    names = run.data.training[:most]
    return [run.tokenizer.encode(name)[: task.config.block + 1] for name in names]


def adam_state(task, run):
    """Weights and moments for JAX."""
    import tensors

    weights = {
        name: tensors.jnp.asarray(array.astype(task.dtype))
        for name, array in run.model.arrays().items()
    }
    zeros, again = (
        tensors.jax.tree_util.tree_map(tensors.jnp.zeros_like, weights) for _ in range(2)
    )
    return weights, zeros, again


def adam_step(config, state, t, grads):
    """Adam, as optim has it."""
    import tensors

    each, (weights, m, v) = tensors.jax.tree_util.tree_map, state
    beta1, beta2 = config.beta1, config.beta2
    rate = config.learning_rate * (1 - t / config.steps)
    m = each(lambda m, g: beta1 * m + (1 - beta1) * g, m, grads)
    v = each(lambda v, g: beta2 * v + (1 - beta2) * g * g, v, grads)
    bias1, bias2 = 1 - beta1 ** (t + 1), 1 - beta2 ** (t + 1)

    def moved(p, m, v):
        return p - rate * (m / bias1) / (tensors.jnp.sqrt(v / bias2) + 1e-8)

    return each(moved, weights, m, v), m, v


class Jax:
    """One jitted step of loss, gradient and Adam, compiled anew for every length."""

    def __init__(self, task, run, most):
        import tensors

        jax, jnp = tensors.jax, tensors.jnp
        self.state = adam_state(task, run)

        def step(state, t, tokens):
            loss, grads = jax.value_and_grad(tensors.wide_gpt_loss)(state[0], tokens)
            return adam_step(task.config, state, t, grads), loss

        self.step, self.time = jax.jit(step, donate_argnums=0), count()
        self.samples = [jnp.asarray(tokens) for tokens in encoded(task, run, most)]

    def advance(self, steps):
        losses = []
        for t in islice(self.time, steps):
            tokens = self.samples[t % len(self.samples)]
            self.state, loss = self.step(self.state, float(t), tokens)
            losses.append(loss)
        return [float(loss) for loss in losses]


class JaxScan:
    """All steps in one ``lax.scan``; names are padded to the longest, those of a step stacked."""

    def __init__(self, task, run, most):
        import tensors

        jax, jnp = tensors.jax, tensors.jnp
        self.state, self.taken, batch = adam_state(task, run), 0, task.batch
        tokens = encoded(task, run, most)
        counts = np.array([len(row) - 1 for row in tokens])
        padded = np.zeros((len(tokens), task.config.block + 1), int)
        for row, name in zip(padded, tokens, strict=True):
            row[: len(name)] = name
        self.data = jnp.asarray(padded), jnp.asarray(counts)

        def loss(weights, names, counts):
            each = jax.vmap(tensors.padded_gpt_loss, (None, 0, 0))
            return each(weights, names, counts).mean()

        def step(data, state, t):
            chosen = (t * batch + jnp.arange(batch)) % len(tokens)
            value, grads = jax.value_and_grad(loss)(state[0], *[x[chosen] for x in data])
            # of these numbers the step would make doubles
            rated = t.astype(task.dtype)
            return adam_step(task.config, state, rated, grads), value

        def steps(data, state, times):
            return jax.lax.scan(lambda state, t: step(data, state, t), state, times)

        self.steps = jax.jit(steps, donate_argnums=1)
        self.numbers = jnp.arange

    def advance(self, steps):
        times = self.numbers(self.taken, self.taken + steps)
        self.state, losses = self.steps(self.data, self.state, times)
        self.taken += steps
        return np.asarray(losses).tolist()


class HandWritten:
    """``gpt_steps.c``, compiled for the sizes of the task."""

    def __init__(self, task, run, most):
        config, arrays = task.config, run.model.arrays()
        sizes = {
            "REAL": C_NUMBERS[task.dtype],
            "WIDTH": config.width,
            "VOCABULARY": run.model.vocabulary,
            "BLOCK": config.block,
        }
        source = Path(__file__).with_name("gpt_steps.c")
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "steps.so"
            defined = [f"-D{name}={value}" for name, value in sizes.items()]
            subprocess.run(["gcc", *FLAGS, *defined, source, "-o", library, "-lm"], check=True)
            self.train = ctypes.CDLL(str(library)).train
        weights = np.concatenate([arrays[name].ravel() for name in C_WEIGHTS]).astype(task.dtype)
        tokens = encoded(task, run, most)
        starts = np.cumsum([0, *map(len, tokens)])
        self.state = [weights, np.zeros_like(weights), np.zeros_like(weights)]
        self.data = [np.concatenate(tokens).astype(np.int32), starts.astype(np.int32)]
        self.taken, self.batch, self.config = 0, task.batch, config

    def advance(self, steps):
        config, losses = self.config, np.empty(steps)
        rate = config.learning_rates()
        rates = np.array([rate(step) for step in range(self.taken, self.taken + steps)])
        pointer = [ctypes.c_void_p(x.ctypes.data) for x in (*self.state, *self.data)]
        self.train(
            *pointer,
            *(ctypes.c_int(len(self.data[1]) - 1), ctypes.c_int(self.batch)),
            *(ctypes.c_long(self.taken), ctypes.c_long(steps), ctypes.c_void_p(rates.ctypes.data)),
            *(ctypes.c_double(config.beta1), ctypes.c_double(config.beta2)),
            ctypes.c_void_p(losses.ctypes.data),
        )
        self.taken += steps
        return losses.tolist()
