"""A training script in microgpt's manner, as a function of the `Value` class.

Embeddings, one layer of multi-head attention over lists of keys and values, an MLP with relu, cross
entropy, and Adam written out by hand: everything microgpt does, at width 8 over six characters.
The script only uses what the literal class in literal.py offers.
"""

import random

WIDTH, HEADS, BLOCK = 8, 2, 6
DOCUMENTS = ["abca", "bccab", "cabd", "dabca", "acdb"]
TOKENS = sorted(set("".join(DOCUMENTS)))
END = len(TOKENS)  # begins and ends every document
VOCABULARY = END + 1


def train(Value, steps=5, seed=42):
    """Train from a seed; returns every step's loss and all parameters at the end, as floats."""
    rng = random.Random(seed)

    def matrix(rows, columns, spread=0.2):
        return [[Value(rng.gauss(0, spread)) for _ in range(columns)] for _ in range(rows)]

    model = {
        "tokens": matrix(VOCABULARY, WIDTH),
        "positions": matrix(BLOCK, WIDTH),
        "query": matrix(WIDTH, WIDTH),
        "key": matrix(WIDTH, WIDTH),
        "value": matrix(WIDTH, WIDTH),
        "output": matrix(WIDTH, WIDTH, 0.02),
        "widen": matrix(4 * WIDTH, WIDTH),
        "narrow": matrix(WIDTH, 4 * WIDTH, 0.02),
        "head": matrix(VOCABULARY, WIDTH),
    }
    params = [p for weights in model.values() for row in weights for p in row]

    def linear(x, weights):
        return [sum(wi * xi for wi, xi in zip(row, x, strict=True)) for row in weights]

    def softmax(logits):
        largest = max(val.data for val in logits)
        exps = [(val - largest).exp() for val in logits]
        total = sum(exps)
        return [e / total for e in exps]

    def rmsnorm(x):
        ms = sum(xi * xi for xi in x) / len(x)
        scale = (ms + 1e-5) ** -0.5
        return [xi * scale for xi in x]

    def gpt(token, position, keys, values):
        x = [
            t + p for t, p in zip(model["tokens"][token], model["positions"][position], strict=True)
        ]
        x = rmsnorm(x)
        residual = x
        x = rmsnorm(x)
        q = linear(x, model["query"])
        keys.append(linear(x, model["key"]))
        values.append(linear(x, model["value"]))
        attended = []
        size = WIDTH // HEADS
        for h in range(HEADS):
            part = slice(h * size, (h + 1) * size)
            q_h = q[part]
            k_h = [k[part] for k in keys]
            v_h = [v[part] for v in values]
            scores = [sum(q_h[j] * k[j] for j in range(size)) / size**0.5 for k in k_h]
            weights = softmax(scores)
            attended += [sum(weights[t] * v_h[t][j] for t in range(len(v_h))) for j in range(size)]
        x = linear(attended, model["output"])
        x = [a + b for a, b in zip(x, residual, strict=True)]
        residual = x
        x = linear(rmsnorm(x), model["widen"])
        x = linear([xi.relu() for xi in x], model["narrow"])
        x = [a + b for a, b in zip(x, residual, strict=True)]
        return linear(x, model["head"])

    rate, beta1, beta2, eps = 0.01, 0.85, 0.99, 1e-8
    m = [0.0] * len(params)
    v = [0.0] * len(params)
    losses = []
    for step in range(steps):
        document = DOCUMENTS[step % len(DOCUMENTS)]
        tokens = [END, *(TOKENS.index(c) for c in document), END]
        n = min(BLOCK, len(tokens) - 1)
        keys, values, terms = [], [], []
        for position in range(n):
            probs = softmax(gpt(tokens[position], position, keys, values))
            terms.append(-probs[tokens[position + 1]].log())
        loss = (1 / n) * sum(terms)
        loss.backward()
        rate_now = rate * (1 - step / steps)
        for i, p in enumerate(params):
            m[i] = beta1 * m[i] + (1 - beta1) * p.grad
            v[i] = beta2 * v[i] + (1 - beta2) * p.grad**2
            m_hat = m[i] / (1 - beta1 ** (step + 1))
            v_hat = v[i] / (1 - beta2 ** (step + 1))
            p.data -= rate_now * m_hat / (v_hat**0.5 + eps)
            p.grad = 0
        losses.append(loss.data)
    return losses, [p.data for p in params]
