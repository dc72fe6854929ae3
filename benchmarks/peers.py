"""Loss and gradient of one GPT by chainrule and by the libraries one would take instead.

    python benchmarks/peers.py            --quick: fewer repeats

chainrule and micrograd run the scalar program of scalar_gpt.py; autograd, JAX and torch get it over
whole arrays, as somebody who knows them would write it. What is not installed is skipped.
"""

import argparse
import math
from importlib.util import find_spec
from itertools import cycle

import numpy as np
import programs
import scalar_gpt
from harness import WHOLE, clock, figure, machine, ratio, repeated, table, take_turns, title

import chainrule

MS = 1e3
TURN = 0.02  # seconds: shorter calls are repeated until a turn takes about as long
OWN = "chainrule, compiled"
PROGRAM = programs.gpt(letters=7)
SAMPLES = [tokens for (tokens,) in PROGRAM.samples]


def eager(cls, functions=scalar_gpt.METHODS):
    """Build the graph and walk it backwards."""
    weights, turn = programs.nested(PROGRAM.params, cls), cycle(SAMPLES)

    def call():
        found = scalar_gpt.loss(weights, next(turn), functions=functions)
        found.backward()
        return found.data

    return call


def compiled(lift):
    function, turn = chainrule.compile(PROGRAM.loss, lift=lift), cycle(SAMPLES)
    return lambda: function.value_and_grad(PROGRAM.params, next(turn))[0]


def micrograd():
    """Its class has neither exp nor log: they are those of its author's lecture."""
    from micrograd.engine import Value

    def operation(name, function, slope):
        def apply(x):
            out = Value(function(x.data), (x,), name)

            def backward():
                x.grad += slope(x.data, out.data) * out.grad

            out._backward = backward
            return out

        return apply

    exp = operation("exp", math.exp, lambda x, y: y)
    log = operation("log", math.log, lambda x, y: 1 / x)
    methods = scalar_gpt.METHODS
    return eager(Value, scalar_gpt.Functions(exp, log, methods.relu, methods.number))


def array_loss(weights, tokens, causal, library, relu):
    """The loss over whole arrays; ``causal`` is 1 where a position looks at another, else 0."""
    sources, targets = tokens[:-1], tokens[1:]
    count = len(sources)

    def rmsnorm(x):
        return x * ((x * x).mean(-1, keepdims=True) + 1e-5) ** -0.5

    def heads(x):
        return x.reshape(count, scalar_gpt.HEADS, -1).swapaxes(0, 1)

    before = rmsnorm(weights["wte"][sources] + weights["wpe"][:count])
    x = rmsnorm(before)
    query, key, value = (heads(x @ weights[name].T) for name in ("wq", "wk", "wv"))
    scores = query @ key.swapaxes(1, 2) / query.shape[-1] ** 0.5
    exps = library.exp(scores) * causal
    shares = exps / exps.sum(-1, keepdims=True)
    gathered = (shares @ value).swapaxes(0, 1).reshape(count, scalar_gpt.WIDTH)
    before = before + gathered @ weights["wo"].T
    x = before + relu(rmsnorm(before) @ weights["up"].T) @ weights["down"].T
    logits = x @ weights["lm_head"].T
    totals = library.log(library.exp(logits).sum(-1))
    return (totals - logits[library.arange(count), targets]).mean()


def causal_mask():
    count = len(SAMPLES[0]) - 1
    return np.tril(np.ones((count, count)))


def autograd():
    import autograd as peer
    from autograd import numpy as library

    causal, turn = causal_mask(), cycle(SAMPLES)

    def relu(x):
        return library.maximum(x, 0.0)

    function = peer.value_and_grad(lambda w, tokens: array_loss(w, tokens, causal, library, relu))
    return lambda: function(PROGRAM.params, next(turn))[0]


def jax():
    import tensors

    call = tensors.JaxJit(PROGRAM)
    return lambda: float(call()[0])


def torch():
    import torch as peer

    peer.set_num_threads(1)
    causal, turn = peer.tensor(causal_mask()), cycle(SAMPLES)
    weights = {name: peer.tensor(a, requires_grad=True) for name, a in PROGRAM.params.items()}

    def call():
        for weight in weights.values():
            weight.grad = None
        found = array_loss(weights, next(turn), causal, peer, peer.relu)
        found.backward()
        return found.item()

    return call


PEERS = {"micrograd": micrograd, "autograd": autograd, "jax": jax, "torch": torch}


def contestants():
    """By name, all agreeing on the losses; what is built for each sample is built already."""
    found = {
        f"chainrule, {chainrule.engine} engine": eager(chainrule.Value),
        "chainrule, tape": compiled(lift=False),
        OWN: compiled(lift=True),
    }
    found |= {name: make() for name, make in PEERS.items() if find_spec(name)}
    losses = {name: [call() for _ in SAMPLES] for name, call in found.items()}
    wanted = next(iter(losses.values()))
    for name, some in losses.items():
        if not np.allclose(some, wanted, rtol=1e-9, atol=0.0):
            raise SystemExit(f"{name}: its losses are {some}, expected {wanted}")
    return found


def turn(call):
    begin = clock()
    call()
    return repeated(call, max(1, round(TURN / (clock() - begin))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    repeats = 5 if parser.parse_args().quick else 40
    best = take_turns({name: turn(call) for name, call in contestants().items()}, repeats)
    print(machine())
    title(
        f"Loss and gradient of a GPT like microgpt's, milliseconds per name of seven letters "
        f"(minima of {repeats} repeats; losses agree)"
    )
    rows = []
    for name, seconds in best.items():
        time = seconds[WHOLE]
        rows.append([name, figure(time, MS, 3), ratio(time, best[OWN][WHOLE])])
    table(["", "ms", "vs compiled"], rows)
    for name in PEERS:
        if not find_spec(name):
            print(f"{name} is not installed: skipped")


if __name__ == "__main__":
    main()
