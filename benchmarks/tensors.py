"""The programs over again for JAX, as somebody who knows it would write them: whole arrays.

Imported only where JAX is installed. float64, one thread, and no hand-over to another thread: for
calls as short as these that is the fastest way to run JAX, and processor time is then wall time.
"""

import math
import os
from itertools import cycle

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import programs
import scalar_gpt
from jax import lax
from jax.nn import logsumexp, relu

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_enable_async_dispatch", False)


def observe(p, feature):
    """Bundle adjustment: the residuals of one observation, of its 15 parameters in a row."""
    axis, center, point = p[:3], p[3:6], p[11:14]
    angle = jnp.sqrt(jnp.sum(axis * axis))
    unit, x = axis / angle, point - center
    c, s = jnp.cos(angle), jnp.sin(angle)
    x = x * c + jnp.cross(unit, x) * s + unit * (unit @ x) * (1 - c)
    flat = x[:2] / x[2]
    squared = jnp.sum(flat * flat)
    seen = flat * (1 + p[9] * squared + p[10] * squared**2) * p[6] + p[7:9]
    return jnp.concatenate([p[14] * (seen - feature), 1 - p[14:] ** 2])


def rmsnorm(x):
    return x * ((x * x).mean(-1, keepdims=True) + 1e-5) ** -0.5


def gpt_loss(weights, tokens):
    sources, targets = tokens[:-1], tokens[1:]
    positions, heads = len(sources), scalar_gpt.HEADS

    def split(x):
        return x.reshape(positions, heads, -1).swapaxes(0, 1)

    x = rmsnorm(weights["wte"][sources] + weights["wpe"][:positions])
    normed = rmsnorm(x)
    q, k, v = [split(normed @ weights[name].T) for name in ("wq", "wk", "wv")]
    scores = q @ k.swapaxes(1, 2) / jnp.sqrt(q.shape[-1])
    causal = jnp.tril(jnp.ones((positions, positions), bool))
    attention = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
    attended = (attention @ v).swapaxes(0, 1).reshape(positions, -1)
    x = x + attended @ weights["wo"].T
    x = x + relu(rmsnorm(x) @ weights["up"].T) @ weights["down"].T
    logits = x @ weights["lm_head"].T
    return (logsumexp(logits, axis=1) - logits[jnp.arange(positions), targets]).mean()


GPT_HEADS = ("query", "key", "value")
GPT_LAYER = [f"attention.{name}" for name in (*GPT_HEADS, "output")] + ["mlp.widen", "mlp.narrow"]


def wide_gpt_loss(weights, tokens):
    """The loss of chainrule's own GPT, of four heads, at the size of its weights."""
    return gpt_losses(weights, tokens).mean()


def padded_gpt_loss(weights, tokens, count):
    """The same of a text whose first ``count`` positions count; what follows is padding."""
    losses = gpt_losses(weights, tokens)
    return jnp.where(jnp.arange(len(losses)) < count, losses, 0).sum() / count.astype(losses.dtype)


def gpt_losses(weights, tokens):
    """The loss of each position."""
    sources, targets = tokens[:-1], tokens[1:]
    positions, heads = len(sources), 4

    def split(x):
        return x.reshape(positions, heads, -1).swapaxes(0, 1)

    causal = jnp.tril(jnp.ones((positions, positions), bool))
    x = rmsnorm(weights["token_embedding"][sources] + weights["position_embedding"][:positions])
    layers = sum(name.endswith("query") for name in weights)
    for k in range(layers):
        layer = {name: weights[f"layers.{k}.{name}"].T for name in GPT_LAYER}
        normed = rmsnorm(x)
        q, key, v = [split(normed @ layer[f"attention.{name}"]) for name in GPT_HEADS]
        scores = q @ key.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        attention = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
        attended = (attention @ v).swapaxes(0, 1).reshape(positions, -1)
        x = x + attended @ layer["attention.output"]
        x = x + relu(rmsnorm(x) @ layer["mlp.widen"]) @ layer["mlp.narrow"]
    logits = x @ weights["head"].T
    return logsumexp(logits, axis=1) - logits[jnp.arange(positions), targets]


def moons_loss(layers, points, labels):
    x = points
    for layer in layers[:-1]:
        x = relu(x @ layer["w"].T + layer["b"])
    scores = (x @ layers[-1]["w"].T + layers[-1]["b"])[:, 0]
    decay = sum((p * p).sum() for layer in layers for p in layer.values())
    return relu(1 - labels * scores).mean() + 1e-4 * decay


def mixture_loss(params, points):
    scaled = (params["mean"] - points[:, None]) * jnp.exp(-params["log_scale"])
    weights = params["logit"] - params["log_scale"].sum(1)
    terms = weights - 0.5 * (scaled * scaled).sum(2)
    return logsumexp(params["logit"]) - logsumexp(terms, axis=1).mean()


def option_loss(params, normals):
    rate, volatility = params["rate"], params["volatility"]
    steps = normals.shape[1]
    drift = (rate - 0.5 * volatility * volatility) / steps
    growth = drift + volatility * jnp.sqrt(1 / steps) * normals
    prices = params["spot"] * jnp.exp(jnp.cumsum(growth, axis=1))
    return relu(prices.mean(1) - programs.STRIKE).mean() * jnp.exp(-rate)


def convolution_loss(params, image, target):
    maps = lax.conv(image[None, None], params["kernel"][:, None], (1, 1), "VALID")[0]
    maps = relu(maps + params["bias"][:, None, None])
    filters, size, _ = maps.shape
    pooled = maps.reshape(filters, size // 2, 2, size // 2, 2).mean((2, 4))
    logits = params["dense"] @ pooled.ravel()
    return logsumexp(logits) - logits[target]


def rosenbrock_loss(x):
    a, b = x[:-1], x[1:]
    return (100 * (b - a * a) ** 2 + (1 - a) ** 2).sum()


def lorenz_loss(params):
    step = programs.LORENZ_STEP

    def euler(state, _):
        x, y, z = state
        dx = params["sigma"] * (y - x)
        dy = x * (params["rho"] - z) - y
        dz = x * y - params["beta"] * z
        return (x + dx * step, y + dy * step, z + dz * step), None

    end, _ = lax.scan(euler, tuple(params["start"]), length=programs.LORENZ_STEPS)
    return sum(end)


def pendulum_loss(params):
    step = programs.PENDULUM_STEP

    def kick(angle, speed):
        force = params["gravity"] * jnp.sin(angle) + params["friction"] * speed
        return speed - force * (step / 2)

    def leapfrog(state, _):
        angle, speed = state
        speed = kick(angle, speed)
        angle = angle + speed * step
        return (angle, kick(angle, speed)), None

    start = params["angle"], params["speed"]
    (angle, speed), _ = lax.scan(leapfrog, start, length=programs.PENDULUM_STEPS)
    return 1 + jnp.cos(angle) + speed * speed * 0.5


def rnn_loss(params, xs):
    def cell(state, x):
        state = jnp.tanh(params["w"] @ state + params["w_in"] * x + params["bias"])
        return state, params["w_out"] @ state

    _, predictions = lax.scan(cell, params["start"], xs[:-1])
    return ((predictions - xs[1:]) ** 2).mean()


# By the scalar function. A graph without structure has no tensor version.
LOSSES = {
    scalar_gpt.loss: gpt_loss,
    programs.moons_loss: moons_loss,
    programs.mixture_loss: mixture_loss,
    programs.option_loss: option_loss,
    programs.convolution_loss: convolution_loss,
    programs.rosenbrock_loss: rosenbrock_loss,
    programs.lorenz_loss: lorenz_loss,
    programs.pendulum_loss: pendulum_loss,
    programs.rnn_loss: rnn_loss,
}


def arrays(tree):
    """A tree as JAX takes it at no further cost: on the device; a list of integers as one array."""
    if isinstance(tree, dict):
        return {name: arrays(item) for name, item in tree.items()}
    if isinstance(tree, list | tuple) and not all(isinstance(x, int) for x in tree):
        return [arrays(item) for item in tree]
    return jnp.asarray(tree)


def ordered(tree, like):
    """A tree from JAX, which sorts the keys of dicts, in the order of ``like``; numpy arrays."""
    if isinstance(like, dict):
        return {name: ordered(tree[name], item) for name, item in like.items()}
    if isinstance(like, list):
        return [ordered(item, other) for item, other in zip(tree, like, strict=True)]
    return np.asarray(tree)


class JaxJit:
    """A contestant: ``jit`` of ``value_and_grad``, its arguments on the device already."""

    tolerance = 1e-9  # it adds in another order

    def __init__(self, program):
        loss = LOSSES[program.loss]
        # A new function every time: jit remembers the ones it has compiled.
        self.function = jax.jit(jax.value_and_grad(lambda *arguments: loss(*arguments)))
        self.params = arrays(program.params)
        self.samples = cycle([[arrays(x) for x in sample] for sample in program.samples])
        self.like = program.params

    def __call__(self):
        return jax.block_until_ready(self.function(self.params, *next(self.samples)))

    def result(self):
        value, grads = self()
        return float(value), programs.flat(ordered(grads, self.like))
