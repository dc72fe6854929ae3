"""The preset ``shakespeare`` beside the same model in JAX and PyTorch: seconds for a training step.

    python benchmarks/shakespeare.py TEXT                  a table
    python benchmarks/shakespeare.py TEXT --picture P.svg  the whole run and its loss curve

A step is 12 windows of 64 characters through 4 layers of width 128, the gradient, its norm clipped,
and AdamW. All start from the same weights and read the same windows; the losses are compared.
Times are by the clock on the wall, with all cores, the minimum over turns.
"""

import argparse
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=true")

import numpy as np
from harness import WHOLE, figure, machine, table, take_turns, title

from chainrule import gpt
from chainrule.gpt import charts
from chainrule.windows import Windows

STEPS = 3  # of a turn
CLOSE = {"float64": 1e-6, "float32": 1e-3}  # torch adds 1e-6 to the norm that it clips by
DTYPES = ("float64", "float32")
OWN = "chainrule"


def started(path, dtype):
    config = gpt.Config.preset("shakespeare")
    lines = gpt.read_lines(path)
    return gpt.Run.start(lines, config, source=str(path), engine="compiled", dtype=dtype)


def batches(run):
    """What step number n reads."""
    config = run.config
    windows = run.data.samples(run.tokenizer, config.block, config.seed)
    assert isinstance(windows, Windows)
    return lambda n: windows.rows(windows.places(n * config.batch, config.batch))


# --- each takes some steps, from a step on, and returns their losses ------------------------------


def own(run):
    def advance(first, count):
        losses = []
        while len(losses) < count:
            losses += [row.loss for row in run.take_steps(count - len(losses))]
        return losses

    return advance


def in_jax(run, weights, dtype):
    import jax
    import jax.numpy as jnp
    from tensors import wide_gpt_loss

    config, rows = run.config, batches(run)
    rate, beta1, beta2 = config.learning_rates(), config.beta1, config.beta2
    mean_loss = jax.value_and_grad(
        lambda p, tokens: jax.vmap(wide_gpt_loss, (None, 0))(p, tokens).mean()
    )

    @jax.jit
    def step(p, m, v, tokens, n, lr):
        loss, g = mean_loss(p, tokens)
        norm = jnp.sqrt(sum((x * x).sum() for x in g.values()))
        g = {k: x * jnp.minimum(1.0, config.clip / norm) for k, x in g.items()}
        m = {k: beta1 * m[k] + (1 - beta1) * g[k] for k in g}
        v = {k: beta2 * v[k] + (1 - beta2) * g[k] ** 2 for k in g}
        first, second = 1 - beta1**n, 1 - beta2**n

        def moved(k):
            move = (m[k] / first) / (jnp.sqrt(v[k] / second) + 1e-8)
            return p[k] * (1 - lr * config.weight_decay) - lr * move

        return loss, {k: moved(k) for k in p}, m, v

    p = {k: jnp.array(x, dtype) for k, x in weights.items()}
    zeros = {k: jnp.zeros_like(x) for k, x in p.items()}
    state = [p, zeros, zeros]
    number = np.dtype(dtype).type

    def advance(first, count):
        losses = []
        for n in range(first, first + count):
            loss, *state[:] = step(*state, rows(n), number(n + 1), number(rate(n)))
            losses.append(loss)
        return [float(loss) for loss in losses]

    return advance


def in_torch(run, weights, dtype):
    import torch
    from torch.nn import functional

    config, rows, rate = run.config, batches(run), run.config.learning_rates()
    p = {k: torch.tensor(x, dtype=getattr(torch, dtype)) for k, x in weights.items()}
    for x in p.values():
        x.requires_grad_(True)
    betas = (config.beta1, config.beta2)
    adam = torch.optim.AdamW(p.values(), lr=1.0, betas=betas, weight_decay=config.weight_decay)

    def norm(x):
        return x * ((x * x).mean(-1, keepdim=True) + 1e-5) ** -0.5

    def split(x):
        return x.unflatten(-1, (config.heads, -1)).transpose(1, 2)

    def loss_of(tokens):
        x = p["token_embedding"][tokens[:, :-1]] + p["position_embedding"]
        x = norm(x)
        for k in range(config.layers):
            at, normed = f"layers.{k}.attention", norm(x)
            q, key, v = [split(normed @ p[f"{at}.{w}"].T) for w in ("query", "key", "value")]
            attended = functional.scaled_dot_product_attention(q, key, v, is_causal=True)
            x = x + attended.transpose(1, 2).flatten(2) @ p[f"{at}.output"].T
            wide = functional.relu(norm(x) @ p[f"layers.{k}.mlp.widen"].T)
            x = x + wide @ p[f"layers.{k}.mlp.narrow"].T
        logits = x @ p["head"].T
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def advance(first, count):
        losses = []
        for n in range(first, first + count):
            loss = loss_of(torch.from_numpy(rows(n)))
            adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(p.values(), config.clip)
            adam.param_groups[0]["lr"] = rate(n)
            adam.step()
            losses.append(loss.item())
        return losses

    return advance


# --- the table ------------------------------------------------------------------------------------


class Contestant:
    """Takes its next steps in every turn, and keeps their losses."""

    def __init__(self, make):
        begin = time.perf_counter()
        self.advance, self.losses = make(), []
        self.losses += self.advance(0, 1)
        self.first = time.perf_counter() - begin

    def __call__(self):
        begin = time.perf_counter()
        self.losses += self.advance(len(self.losses), STEPS)
        return {"step": (time.perf_counter() - begin) / STEPS}


def compared(path, repeats):
    runs = {dtype: started(path, dtype) for dtype in DTYPES}
    weights = {dtype: run.engine.weights() for dtype, run in runs.items()}
    peers = {"JAX": ("jax", in_jax), "PyTorch": ("torch", in_torch)}
    makers = {(OWN, dtype): (lambda run=run: own(run)) for dtype, run in runs.items()}
    for name, (module, make) in peers.items():
        if find_spec(module) is None:
            print(f"{name} is not installed: skipped")
            continue
        for dtype in DTYPES:
            makers[name, dtype] = lambda make=make, d=dtype: make(runs[d], weights[d], d)
    found = {}
    for key, make in makers.items():
        found[key] = Contestant(make)
        print(f"{', '.join(key)}: first step after {found[key].first:.1f} s", file=sys.stderr)
    best = take_turns(found, repeats)
    for (name, dtype), contestant in found.items():
        wanted = np.array(found[OWN, dtype].losses)
        error = float(np.abs(np.array(contestant.losses) / wanted - 1).max())
        assert error < CLOSE[dtype], f"{name}, {dtype}: losses differ by {error}"
    title(f"A training step of the preset shakespeare; minima of {repeats} turns of {STEPS} steps")
    rows = []
    for name, dtype in found:
        seconds = best[name, dtype][WHOLE]
        ratio = seconds / best[OWN, dtype][WHOLE]
        first = figure(found[name, dtype].first, digits=1)
        rows.append([f"{name}, {dtype}", figure(seconds, 1e3, 0), figure(ratio), first])
    table(["", "ms", "to chainrule's", "first step after s"], rows)
    print(f"losses of the first {len(found[OWN, 'float64'].losses)} steps agree")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", type=Path, help="one long text, in UTF-8")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--picture", type=Path, help="train, and draw the loss curve here")
    options = parser.parse_args()
    print(machine())
    if options.picture is None:
        compared(options.text, options.repeats)
        return
    begin, run = time.perf_counter(), started(options.text, "float64")
    rows = gpt.train(run)
    options.picture.write_text(charts.losses({"": rows}))
    last = f"validation loss {rows[-1].validation_loss:.4f}"
    print(f"{len(rows)} steps in {time.perf_counter() - begin:.0f} s: {last}")


if __name__ == "__main__":
    main()
