"""Graphs too large to look at, for the tests of drawing and of the page."""

import random
from itertools import pairwise


def gpt_loss(Value, width=16, heads=4, positions=7, vocabulary=27, layers=1):
    """The loss of a GPT in microgpt's manner: 60,000 nodes unless told otherwise."""
    rng = random.Random(1)

    def matrix(rows, columns):
        return [[Value(rng.gauss(0, 0.08)) for _ in range(columns)] for _ in range(rows)]

    def linear(x, weights):
        return [sum(w * xi for w, xi in zip(row, x, strict=True)) for row in weights]

    def softmax(logits):
        largest = max(z.data for z in logits)
        exps = [(z - largest).exp() for z in logits]
        total = sum(exps)
        return [e / total for e in exps]

    def rmsnorm(x):
        scale = (sum(xi * xi for xi in x) / len(x) + 1e-5) ** -0.5
        return [xi * scale for xi in x]

    token_table, position_table = matrix(vocabulary, width), matrix(positions, width)
    head = matrix(vocabulary, width)
    shapes = {"q": (1, 1), "k": (1, 1), "v": (1, 1), "o": (1, 1), "up": (4, 1), "down": (1, 4)}
    blocks = [
        {name: matrix(r * width, c * width) for name, (r, c) in shapes.items()}
        for _ in range(layers)
    ]
    keys, values = [[] for _ in blocks], [[] for _ in blocks]
    tokens = [rng.randrange(vocabulary) for _ in range(positions + 1)]
    losses = []
    for position in range(positions):
        x = zip(token_table[tokens[position]], position_table[position], strict=True)
        x = rmsnorm([t + p for t, p in x])
        for number, block in enumerate(blocks):
            residual, x = x, rmsnorm(x)
            query = linear(x, block["q"])
            keys[number].append(linear(x, block["k"]))
            values[number].append(linear(x, block["v"]))
            attended = []
            size = width // heads
            for start in range(0, width, size):
                part = slice(start, start + size)
                q, ks, vs = (
                    query[part],
                    [k[part] for k in keys[number]],
                    [v[part] for v in values[number]],
                )
                scores = [sum(a * b for a, b in zip(q, k, strict=True)) / size**0.5 for k in ks]
                weights = softmax(scores)
                attended += [
                    sum(w * v[j] for w, v in zip(weights, vs, strict=True)) for j in range(size)
                ]
            x = [a + b for a, b in zip(linear(attended, block["o"]), residual, strict=True)]
            residual = x
            hidden = [h.relu() for h in linear(rmsnorm(x), block["up"])]
            x = [a + b for a, b in zip(linear(hidden, block["down"]), residual, strict=True)]
        losses.append(-softmax(linear(x, head))[tokens[position + 1]].log())
    return (1 / positions) * sum(losses)


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
