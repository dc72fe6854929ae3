"""microgpt: a GPT learns first names, in one short script of scalars.

Karpathy's microgpt.py teaches the whole algorithm with its own Value class. Here the class is
chainrule's and nothing else is hidden: the tokens, the model, Adam and the sampling are all below.
Run: python microgpt.py [STEPS] [compiled]

With "compiled" the loss is recorded and replayed as one big operation. Nothing else changes, and
the losses are the same.
"""

import random
import sys

import chainrule
from chainrule import Value, gpt, linear, no_grad

random.seed(42)

# Documents, and the tokens they consist of: letters, and one mark for both ends of a document.
docs = gpt.names()
random.shuffle(docs)
letters = sorted(set("".join(docs)))
BOS = len(letters)
vocabulary = BOS + 1

# The weights: random numbers at first. They are all that the model knows.
LAYERS, WIDTH, HEADS, BLOCK = 1, 16, 4, 16
SIZE = WIDTH // HEADS


def matrix(rows, columns, std=0.08):
    return [[Value(random.gauss(0, std)) for _ in range(columns)] for _ in range(rows)]


weights = {
    "tokens": matrix(vocabulary, WIDTH),
    "positions": matrix(BLOCK, WIDTH),
    "head": matrix(vocabulary, WIDTH),
}
for i in range(LAYERS):
    for name in ("query", "key", "value", "output"):
        weights[f"{name}{i}"] = matrix(WIDTH, WIDTH)
    weights[f"widen{i}"] = matrix(4 * WIDTH, WIDTH)
    weights[f"narrow{i}"] = matrix(WIDTH, 4 * WIDTH)
params = [p for rows in weights.values() for row in rows for p in row]


# The model: from a token, its position and what came before to a score for every next token.
def softmax(xs):
    largest = max(x.data for x in xs)
    exps = [(x - largest).exp() for x in xs]
    total = sum(exps)
    return [e / total for e in exps]


def rmsnorm(xs):
    scale = (sum(x * x for x in xs) / len(xs) + 1e-5) ** -0.5
    return [x * scale for x in xs]


def add(xs, ys):
    return [x + y for x, y in zip(xs, ys, strict=True)]


def model(token, position, keys, values):
    x = rmsnorm(add(weights["tokens"][token], weights["positions"][position]))
    for i in range(LAYERS):
        before, x = x, rmsnorm(x)
        query = linear(x, weights[f"query{i}"])
        keys[i].append(linear(x, weights[f"key{i}"]))
        values[i].append(linear(x, weights[f"value{i}"]))
        gathered = []
        for h in range(0, WIDTH, SIZE):
            scores = [
                sum(query[h + j] * k[h + j] for j in range(SIZE)) / SIZE**0.5 for k in keys[i]
            ]
            shares = softmax(scores)
            for j in range(h, h + SIZE):
                gathered.append(sum(s * v[j] for s, v in zip(shares, values[i], strict=True)))
        x = add(linear(gathered, weights[f"output{i}"]), before)
        before, x = x, rmsnorm(x)
        x = [h.relu() for h in linear(x, weights[f"widen{i}"])]
        x = add(linear(x, weights[f"narrow{i}"]), before)
    return linear(x, weights["head"])


def new_memory():
    return [[] for _ in range(LAYERS)], [[] for _ in range(LAYERS)]


# Training: predict each next letter of a name, see how wrong that was, change every weight a bit.
def loss_of(tokens):
    n = min(BLOCK, len(tokens) - 1)
    keys, values = new_memory()
    losses = []
    for position in range(n):
        probs = softmax(model(tokens[position], position, keys, values))
        losses.append(-probs[tokens[position + 1]].log())
    return (1 / n) * sum(losses)


if "compiled" in sys.argv:
    loss_of = chainrule.compile(loss_of)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
rate, beta1, beta2, eps = 0.01, 0.85, 0.99, 1e-8
m, v = [0.0] * len(params), [0.0] * len(params)
print(f"{len(docs)} names, {vocabulary} tokens, {len(params)} parameters")

for step in range(steps):
    tokens = [BOS, *(letters.index(c) for c in docs[step % len(docs)]), BOS]
    loss = loss_of(tokens)
    loss.backward()

    for i, p in enumerate(params):
        m[i] = beta1 * m[i] + (1 - beta1) * p.grad
        v[i] = beta2 * v[i] + (1 - beta2) * p.grad**2
        m_hat, v_hat = m[i] / (1 - beta1 ** (step + 1)), v[i] / (1 - beta2 ** (step + 1))
        p.data -= rate * (1 - step / steps) * m_hat / (v_hat**0.5 + eps)
        p.grad = 0
    print(f"step {step + 1:4d} / {steps:4d}  loss {loss.data!r}")

# Sampling: let it talk.
with no_grad():
    for _ in range(20):
        keys, values = new_memory()
        token, name = BOS, ""
        for position in range(BLOCK):
            logits = model(token, position, keys, values)
            probs = softmax([logit / 0.5 for logit in logits])
            token = random.choices(range(vocabulary), weights=[p.data for p in probs])[0]
            if token == BOS:
                break
            name += letters[token]
        print(name)
