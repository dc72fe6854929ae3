"""Many samples at once: ``fast.map_value_and_grad`` and ``batch_value_and_grad``, beside JAX.

    python benchmarks/map.py                  all sections; --quick: fewer repeats
    python benchmarks/map.py asian networks   some sections: asian, batch, networks

Times are of the clock on the wall, because several threads take part; minima over turns.
"""

import argparse
import math
import os
import sys
from importlib.util import find_spec
from time import perf_counter

import numpy as np
from harness import WHOLE, figure, machine, ratio, table, take_turns, title

import chainrule
from chainrule import exp, relu, sigmoid, tanh
from chainrule.compiler.mapping.blocks import thread_count

MS, US = 1e3, 1e6
PATHS, STEPS = 100_000, 20
SAMPLES = 10_000  # of a batch
MARKET = {"spot": 100.0, "rate": 0.05, "volatility": 0.2, "strike": 100.0}


def wall(function):
    """A contestant of ``take_turns``: a call, by the clock on the wall."""

    def turn():
        begin = perf_counter()
        function()
        return {"call": perf_counter() - begin}

    return turn


# --- an Asian option ------------------------------------------------------------------------------


def payoff(market, normals):
    drift = (market["rate"] - market["volatility"] ** 2 * 0.5) * (1.0 / len(normals))
    spread = market["volatility"] * math.sqrt(1.0 / len(normals))
    price, total = market["spot"], 0.0
    for normal in normals:
        price = price * exp(drift + spread * normal)
        total = total + price
    return exp(-market["rate"]) * relu(total * (1.0 / len(normals)) - market["strike"])


def jax_payoff(normals):
    """The mean payoff and its gradient by ``jit`` and ``vmap``, its paths on the device already."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def one(market, normals):
        drift = (market["rate"] - market["volatility"] ** 2 * 0.5) / len(normals)
        spread = market["volatility"] * math.sqrt(1.0 / len(normals))
        prices = market["spot"] * jnp.exp(jnp.cumsum(drift + spread * normals))
        return jnp.exp(-market["rate"]) * jax.nn.relu(prices.mean() - market["strike"])

    def mean(market, normals):
        return jax.vmap(one, (None, 0))(market, normals).mean()

    function, paths = jax.jit(jax.value_and_grad(mean)), jnp.asarray(normals)
    market = {name: jnp.float64(x) for name, x in MARKET.items()}
    return lambda: jax.block_until_ready(function(market, paths))


def compare(found, wanted, name):
    value, grads = found
    same = np.isclose(float(value), wanted[0], rtol=1e-9) and all(
        np.isclose(float(grads[k]), wanted[1][k], rtol=1e-9) for k in MARKET
    )
    if not same:
        sys.exit(f"{name} does not find the value and the gradient of the others")


def first_call(normals):
    """Seconds of the first call of a new function."""
    fast = chainrule.compile(payoff)
    begin = perf_counter()
    fast.map_value_and_grad(MARKET, normals, reduce="mean", threads=1)
    return perf_counter() - begin


def asian(turns):
    normals = np.random.default_rng(0).normal(size=(PATHS, STEPS))
    fast, cores = chainrule.compile(payoff), thread_count(None)
    wanted = fast.map_value_and_grad(MARKET, normals, reduce="mean")
    contestants = {
        f"map, {n} thread{'s'[: n > 1]}": lambda n=n: fast.map_value_and_grad(
            MARKET, normals, reduce="mean", threads=n
        )
        for n in dict.fromkeys((1, cores))
    }
    contestants["map, a gradient for each path"] = lambda: fast.map_value_and_grad(MARKET, normals)
    contestants["map, values only"] = lambda: fast.map(MARKET, normals)
    if find_spec("jax"):
        contestants["JAX, jit of vmap"] = jax_payoff(normals)
        compare(contestants["JAX, jit of vmap"](), wanted, "JAX")
    for call in contestants.values():
        call()
    compare(fast.map_value_and_grad(MARKET, normals, reduce="mean"), wanted, "map")
    best = take_turns({name: wall(call) for name, call in contestants.items()}, turns)
    built = min(first_call(normals) for _ in range(3))
    title(
        f"An Asian option: {PATHS:,} paths of {STEPS} steps, price and four Greeks, milliseconds "
        f"(minima of {turns} turns; the first call of a function, with recording and LLVM, "
        f"takes {built:.2f} s)"
    )
    one = best["map, 1 thread"][WHOLE]
    rows = [[n, figure(s[WHOLE], MS, 2), ratio(s[WHOLE], one)] for n, s in best.items()]
    table(["", "ms", "beside one thread"], rows)


def batch(turns):
    normals = np.random.default_rng(0).normal(size=(SAMPLES, STEPS))
    samples = [(path,) for path in normals]
    fast = chainrule.compile(payoff)
    wanted = fast.map_value_and_grad(MARKET, normals, reduce="mean")
    compare(fast.batch_value_and_grad(MARKET, samples), wanted, "batch_value_and_grad")
    contestants = {
        "batch_value_and_grad of a list": lambda: fast.batch_value_and_grad(MARKET, samples),
        "map of an array": lambda: fast.map_value_and_grad(MARKET, normals, reduce="mean"),
    }
    if find_spec("jax"):
        contestants["JAX, jit of vmap"] = jax_payoff(normals)
    for call in contestants.values():
        call()
    best = take_turns({name: wall(call) for name, call in contestants.items()}, turns)
    title(f"The same over {SAMPLES:,} paths, milliseconds (minima of {turns} turns)")
    table(["", "ms"], [[n, figure(s[WHOLE], MS, 2)] for n, s in best.items()])


# --- networks -------------------------------------------------------------------------------------


def dense(rows, x):
    return [sum(w * v for w, v in zip(row, x, strict=True)) for row in rows]


def mlp(params, x, y):
    for layer in params["layers"]:
        x = [tanh(v) for v in dense(layer, x)]
    return (sum(x) - y) ** 2


def rnn(params, xs, y):
    state = [0.0] * len(params["b"])
    for x in xs:
        mixed = dense(params["W"], state)
        state = [
            tanh(m + u * x + b) for m, u, b in zip(mixed, params["U"], params["b"], strict=True)
        ]
    return (sum(o * s for o, s in zip(params["o"], state, strict=True)) - y) ** 2


def gru(params, xs, y):
    state = [0.0] * len(params["b"])
    for x in xs:
        update, reset = (
            [
                sigmoid(m + u * x + b)
                for m, u, b in zip(dense(params[W], state), params[U], params["b"], strict=True)
            ]
            for W, U in (("Wz", "Uz"), ("Wr", "Ur"))
        )
        kept = [r * s for r, s in zip(reset, state, strict=True)]
        new = [
            tanh(m + u * x + b)
            for m, u, b in zip(dense(params["Wc"], kept), params["Uc"], params["b"], strict=True)
        ]
        state = [(1 - z) * s + z * n for z, s, n in zip(update, state, new, strict=True)]
    return (sum(o * s for o, s in zip(params["o"], state, strict=True)) - y) ** 2


def networks(turns, width=16, length=12, count=64):
    rng = np.random.default_rng(1)
    square = {name: rng.normal(0, 0.2, (width, width)) for name in ("W", "Wz", "Wr", "Wc")}
    rows = {name: rng.normal(size=width) for name in ("U", "Uz", "Ur", "Uc", "b", "o")}
    weights = square | rows
    layers = [rng.normal(0, 0.3, shape) for shape in ((16, length), (16, 16), (4, 16))]
    samples = [(rng.normal(size=length), float(rng.normal())) for _ in range(count)]
    cells, cores = [], thread_count(None)
    for loss, params in ((mlp, {"layers": layers}), (rnn, weights), (gru, weights)):
        fast = chainrule.compile(loss, lift=True)

        def one_by_one(fast=fast, params=params):
            for sample in samples:
                fast.value_and_grad(params, *sample)

        def together(threads, fast=fast, params=params):
            os.environ["CHAINRULE_THREADS"] = str(threads)
            fast.batch_value_and_grad(params, samples)

        contestants = {
            "one by one": one_by_one,
            "1 thread": lambda together=together: together(1),
            f"{cores} threads": lambda together=together: together(cores),
        }
        for call in contestants.values():
            call()
        best = take_turns({name: wall(call) for name, call in contestants.items()}, turns)
        seconds = [best[name][WHOLE] / count for name in contestants]
        cells.append([loss.__name__, *[figure(s, US, 2) for s in seconds], ratio(*seconds[:2])])
    title(
        f"Batches of {count} samples, width {width}, {length} numbers each: microseconds per "
        f"sample (minima of {turns} turns)"
    )
    table(["", "one by one", "batch, 1 thread", f"{cores} threads", "one by one / 1 thread"], cells)


SECTIONS = {"asian": (asian, 40), "batch": (batch, 40), "networks": (networks, 40)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    options = parser.parse_args()
    if unknown := [name for name in options.sections if name not in SECTIONS]:
        parser.error(f"no section {unknown[0]!r}: there are {', '.join(SECTIONS)}")
    if not find_spec("llvmlite"):
        sys.exit("there is no machine code without llvmlite")
    print(machine())
    for name in options.sections or SECTIONS:
        section, turns = SECTIONS[name]
        section(8 if options.quick else turns)


if __name__ == "__main__":
    main()
