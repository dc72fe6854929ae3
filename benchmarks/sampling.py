"""New documents from a GPT, in tokens per second: eager, compiled, and numpy written by hand.

    python benchmarks/sampling.py               three models; --quick: fewer repeats, two of them
    python benchmarks/sampling.py --width 32 --layers 2 --block 32     another one

Processor time of one core, minima over turns. A token is one that the model reads. Before anything
is timed, the documents of all must be the same.
"""

import argparse
import os
import random
import sys
from importlib.util import find_spec

os.environ["CHAINRULE_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy reads it once

import numpy as np
from harness import WHOLE, clock, figure, machine, ratio, table, take_turns, title, whole

from chainrule import gpt
from chainrule.gpt import sampling
from chainrule.gpt.side_by_side import Step, step_of

MODELS = [(16, 1, 16), (64, 2, 16), (128, 4, 64)]  # width, layers, block
CHOICE = gpt.Choice(temperature=1.0)
EAGER_TOKENS = 1.5e7  # times weights: what eager mode reads in some tenths of a second
TOKENS = 2e10  # likewise, the others
MANY = 4096  # documents at most


class NumpyStep(Step):
    """The same step as operations on whole arrays, many documents in each."""

    def __init__(self, config):
        self._config, self._pays = config, True

    def read(self, weights, tokens, positions, remembered):
        heads, slots = self._config.heads, np.arange(remembered.shape[3])
        each = np.arange(len(tokens))
        x = norm(weights["token_embedding"][tokens] + weights["position_embedding"][positions])
        news = np.empty((len(x), 2, *remembered.shape[2:3], x.shape[1]))
        hidden = np.where(slots < positions[:, None], 0.0, -np.inf)[:, None]
        for layer in range(self._config.layers):
            name = f"layers.{layer}.attention"
            y = norm(x)
            query, key, value = (
                (y @ weights[f"{name}.{part}"].T).reshape(len(x), heads, -1)
                for part in ("query", "key", "value")
            )
            news[:, 0, layer], news[:, 1, layer] = (z.reshape(len(x), -1) for z in (key, value))
            keys, values = (
                z.reshape(len(x), len(slots), heads, -1).transpose(0, 2, 1, 3)
                for z in (remembered[:, 0, layer], remembered[:, 1, layer])
            )
            matches = np.concatenate(
                [
                    (keys @ query[..., None])[..., 0] / query.shape[2] ** 0.5 + hidden,
                    (key * query).sum(axis=2, keepdims=True) / query.shape[2] ** 0.5,
                ],
                axis=2,
            )
            shares = np.exp(matches - matches.max(axis=2, keepdims=True))
            shares /= shares.sum(axis=2, keepdims=True)
            gathered = (shares[:, :, None, :-1] @ values)[:, :, 0] + shares[..., -1:] * value
            x = x + gathered.reshape(len(x), -1) @ weights[f"{name}.output"].T
            hidden_units = np.maximum(norm(x) @ weights[f"layers.{layer}.mlp.widen"].T, 0.0)
            x = x + hidden_units @ weights[f"layers.{layer}.mlp.narrow"].T
        return (x @ weights["head"].T)[each], news


def norm(x):
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)


def tokens_of(texts, block):
    return sum(min(len(text) + 1, block) for text in texts)


def measured(width, layers, block, turns):
    """Tokens per second of each way, and the seconds until a compiled step has read its first."""
    tokenizer = gpt.Tokenizer.of(gpt.names())
    config = gpt.Config(width=width, layers=layers, block=block, std=1.0 / width**0.5)
    model = gpt.GPT(config, tokenizer.size, random.Random(1))
    weights = len(model.parameters())

    def sample(count, engine="compiled", step=step_of):
        sampling.step_of = step
        rng = random.Random(5)
        return list(gpt.documents(model, tokenizer, rng, count, CHOICE, engine=engine))

    few = max(2, round(EAGER_TOKENS / weights / block))
    many = min(MANY, max(32, round(TOKENS / weights / block)))
    begin = clock()
    sample(2)
    first = clock() - begin
    texts = sample(few, "eager")
    if not texts == sample(few) == sample(few, step=NumpyStep):
        sys.exit("the documents differ")
    ways = {
        "eager": (few, lambda: sample(few, "eager")),
        "compiled": (many, lambda: sample(many)),
        "numpy": (many, lambda: sample(many, step=NumpyStep)),
    }

    best = take_turns({name: whole(call) for name, (_, call) in ways.items()}, turns)
    read = {few: tokens_of(texts, block), many: tokens_of(sample(many), block)}
    speeds = [read[count] / best[name][WHOLE] for name, (count, _) in ways.items()]
    return list(ways), speeds, first


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats, two models")
    parser.add_argument("--width", type=int, help="of a model of your own")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--block", type=int, default=16)
    options = parser.parse_args()
    if not find_spec("llvmlite"):
        sys.exit("there is no machine code without llvmlite")
    print(machine())
    turns, models = (3, MODELS[:2]) if options.quick else (10, MODELS)
    if options.width:
        models = [(options.width, options.layers, options.block)]
    rows, names = [], []
    for width, layers, block in models:
        names, speeds, first = measured(width, layers, block, turns)
        name = f"width {width}, {layers} layer{'s' * (layers > 1)}, block {block}"
        cells = [figure(speed, 1, 0) for speed in speeds]
        ahead = [ratio(speeds[1], speeds[0]), ratio(speeds[1], speeds[2])]
        rows.append([name, *cells, *ahead, figure(first, 1, 1)])
    title(f"Tokens per second (from minima of {turns} turns); seconds until the first is compiled")
    table(["", *names, "compiled / eager", "compiled / numpy", "first"], rows)


if __name__ == "__main__":
    main()
