"""Graphs too large to look at, for the tests of drawing and of the page."""

import random
from itertools import pairwise

from chainrule import gpt


def gpt_loss(width=16, heads=4, positions=7, vocabulary=27, layers=1):
    """The loss of a GPT in microgpt's manner: 60,000 nodes unless told otherwise."""
    model, tokens = gpt_model(width, heads, positions, vocabulary, layers)
    return model.loss(tokens)


def gpt_model(width=16, heads=4, positions=7, vocabulary=27, layers=1):
    """That GPT, and a document for it to read."""
    rng = random.Random(1)
    config = gpt.Config(width=width, heads=heads, block=positions, layers=layers)
    model = gpt.GPT(config, vocabulary, rng)
    return model, [rng.randrange(vocabulary) for _ in range(positions + 1)]


def mlp_output(Value, sizes, seed=3):
    """A network of tanh neurons, micrograd's, applied to one sample."""
    rng = random.Random(seed)
    x = [Value(rng.gauss(0, 1)) for _ in range(sizes[0])]
    for inputs, outputs in pairwise(sizes):
        layer = [
            ([Value(rng.uniform(-1, 1)) for _ in range(inputs)], Value(rng.uniform(-1, 1)))
            for _ in range(outputs)
        ]
        x = [sum((w * xi for w, xi in zip(ws, x, strict=True)), b).tanh() for ws, b in layer]
    return sum(x)
