"""Character models in the manner of makemore: bigrams, MLPs and recurrent networks."""

import random

import numpy as np

from chainrule import dot, exp, linear, log, sigmoid, tanh

from .registry import Field, as_lists, drifting

FIELD = Field("language")

CHARS = ".abcdefghijklmnopqrstuvwxyz"
stoi = {c: i for i, c in enumerate(CHARS)}
itos = dict(enumerate(CHARS))
V = len(CHARS)
BOS, PAD = 0, 0
NAMES = """emma olivia ava isabella sophia charlotte mia amelia harper evelyn abigail emily ella
elizabeth camila luna sofia avery mila aria scarlett penelope layla chloe victoria madison eleanor
grace nora riley zoey hannah hazel lily ellie violet lillian zoe stella aurora natalie emilia leah
aubrey willow addison lucy audrey bella nova brooklyn paisley savannah claire skylar isla genesis
naomi elena caroline eliana anna maya valentina ruby kennedy ivy ariana aaliyah cora madelyn alice
kinsley hailey gabriella allison gianna serenity samantha sarah autumn quinn eva piper sophie sadie
delilah josephine nevaeh adeline arya emery lydia clara vivian madeline peyton julia""".split()


def encode(name):
    return [stoi[c] for c in name]


def softmax(logits):
    largest = max(z.data for z in logits)
    exps = [exp(z - largest) for z in logits]
    total = sum(exps)
    return [e / total for e in exps]


def weights(rng, *shape):
    return rng.normal(size=shape) * 0.3


# --- bigram ---------------------------------------------------------------------------------------


@FIELD.idiom
def bigram(rng):
    for W in drifting(rng, weights(rng, V, V)):
        yield W, [BOS, *encode(rng.choice(NAMES)), BOS]


@bigram.spelling
def bigram_zip(W, tokens):
    loss, n = 0.0, 0
    for t1, t2 in zip(tokens, tokens[1:]):
        counts = [exp(z) for z in W[t1]]
        loss -= log(counts[t2] / sum(counts))
        n += 1
    return loss / n


@bigram.spelling
def bigram_range(W, tokens):
    nll = 0
    for i in range(len(tokens) - 1):
        probs = softmax(W[tokens[i]])
        nll = nll + -probs[tokens[i + 1]].log()
    return nll / (len(tokens) - 1)


@bigram.spelling
def bigram_unnamed_result(W, tokens):
    return sum(-softmax(W[a])[b].log() for a, b in zip(tokens, tokens[1:]))


@bigram.spelling
def bigram_numpy_rows(W, tokens):
    total = 0.0
    for t1, t2 in zip(tokens[:-1], tokens[1:]):
        row = W[t1]
        total += np.log(np.exp(row).sum()) - row[t2]
    return total / (len(tokens) - 1)


@bigram.spelling(adapt=lambda W, tokens: (W, np.array(tokens)))
def bigram_fancy_index(W, tokens):
    xs, ys = tokens[:-1], tokens[1:]
    logits = W[xs]
    counts = np.exp(logits)
    probs = counts / counts.sum(axis=1, keepdims=True)
    return -np.log(probs[np.arange(len(ys)), ys]).mean()


@bigram.spelling(adapt=lambda W, tokens: (W.tolist(), "".join(itos[t] for t in tokens)))
def bigram_string(W, word):
    total = 0.0
    for ch1, ch2 in zip(word, word[1:]):
        row = W[stoi[ch1]]
        total = total + log(sum(exp(z) for z in row)) - row[stoi[ch2]]
    return total


@bigram.spelling(adapt=lambda W, tokens: (W.tolist(), "".join(itos[t] for t in tokens[1:-1])))
def bigram_ord(W, name):
    ids = [0] + [ord(c) - ord("a") + 1 for c in name] + [0]
    losses = []
    for a, b in zip(ids, ids[1:]):
        losses.append(-log(softmax(W[a])[b]))
    return sum(losses) / len(losses)


@bigram.spelling(adapt=lambda W, tokens: (W, tokens[1:-1]))
def bigram_bos_inside(W, tokens):
    tokens = [BOS] + tokens + [BOS]
    loss = 0
    for pos in range(len(tokens) - 1):
        loss += -log(softmax(W[tokens[pos]])[tokens[pos + 1]])
    return loss / (len(tokens) - 1)


@bigram.spelling(adapt=lambda W, tokens: ({c: W[i] for i, c in itos.items()}, tokens))
def bigram_dict_of_rows(rows, tokens):
    total = 0.0
    for a, b in zip(tokens, tokens[1:]):
        row = rows[itos[a]]
        total = total + log(sum(exp(z) for z in row)) - row[b]
    return total


# --- one-hot --------------------------------------------------------------------------------------


@FIELD.idiom
def one_hot(rng):
    for W in drifting(rng, weights(rng, 12, 12)):
        yield W, rng.integers(12, size=4).tolist(), rng.integers(12, size=4).tolist()


@one_hot.spelling
def one_hot_comparison(W, xs, ys):
    loss = 0.0
    for x, y in zip(xs, ys):
        inputs = [1.0 if i == x else 0.0 for i in range(12)]
        logits = [sum(inputs[i] * W[i][j] for i in range(12)) for j in range(12)]
        probs = softmax(logits)
        loss = loss - sum((1 if j == y else 0) * log(p) for j, p in enumerate(probs))
    return loss


@one_hot.spelling
def one_hot_assignment(W, xs, ys):
    loss = 0.0
    for x, y in zip(xs, ys):
        inputs = [0.0] * 12
        inputs[x] = 1.0
        logits = [dot(inputs, W[:, j]) for j in range(12)]
        loss = loss - log(softmax(logits)[y])
    return loss


@one_hot.spelling
def one_hot_eye(W, xs, ys):
    inputs = np.eye(12)[xs]
    logits = inputs @ W
    total = 0.0
    for row, y in zip(logits, ys):
        total = total + np.log(np.exp(row).sum()) - row[y]
    return total


@one_hot.spelling
def one_hot_skip(W, xs, ys):
    total = 0.0
    for x, y in zip(xs, ys):
        probs = softmax(W[x])
        for j, p in enumerate(probs):
            if j == y:
                total = total - p.log()
            else:
                total = total - 0.01 * (1 - p).log()
    return total


# --- MLP over a context of three characters -------------------------------------------------------


def mlp_params(rng, embedding=4, hidden=12, block=3):
    return {
        "C": weights(rng, V, embedding),
        "W1": weights(rng, hidden, embedding * block),
        "b1": weights(rng, hidden),
        "W2": weights(rng, V, hidden),
        "b2": weights(rng, V),
    }


@FIELD.idiom
def mlp_context(rng):
    for params in drifting(rng, mlp_params(rng)):
        yield params, rng.integers(V, size=3).tolist(), int(rng.integers(V))


@mlp_context.spelling
def mlp_context_loops(p, context, target):
    x = []
    for token in context:
        for e in p["C"][token]:
            x.append(e)
    h = []
    for row, b in zip(p["W1"], p["b1"]):
        acc = b
        for w, xi in zip(row, x):
            acc = acc + w * xi
        h.append(tanh(acc))
    logits = [sum(w * hi for w, hi in zip(row, h)) + b for row, b in zip(p["W2"], p["b2"])]
    return -log(softmax(logits)[target])


@mlp_context.spelling
def mlp_context_linear(p, context, target):
    x = [e for token in context for e in p["C"][token]]
    h = [(z + b).tanh() for z, b in zip(linear(x, p["W1"]), p["b1"])]
    return -softmax(linear(h, p["W2"]))[target].log()


@mlp_context.spelling(adapt=lambda p, context, target: (p, np.array(context), target))
def mlp_context_numpy(p, context, target):
    x = p["C"][context].reshape(-1)
    h = np.tanh(p["W1"] @ x + p["b1"])
    logits = p["W2"] @ h + p["b2"]
    return np.log(np.exp(logits).sum()) - logits[target]


@FIELD.idiom
def minibatch(rng):
    for params in drifting(rng, mlp_params(rng, 2, 6)):
        yield params, rng.integers(V, size=(32, 3)).tolist(), rng.integers(V, size=32).tolist()


@minibatch.spelling
def minibatch_zip(p, X, Y):
    losses = []
    for context, target in zip(X, Y):
        x = [e for token in context for e in p["C"][token]]
        h = [tanh(dot(row, x) + b) for row, b in zip(p["W1"], p["b1"])]
        logits = [dot(row, h) + b for row, b in zip(p["W2"], p["b2"])]
        losses.append(log(sum(exp(z) for z in logits)) - logits[target])
    return sum(losses) / len(losses)


@minibatch.spelling(adapt=lambda p, X, Y: (p, np.array(X), np.array(Y)))
def minibatch_numpy(p, X, Y):
    emb = p["C"][X].reshape(len(X), -1)
    h = np.tanh(emb @ p["W1"].T + p["b1"])
    logits = h @ p["W2"].T + p["b2"]
    lse = np.log(np.exp(logits).sum(axis=1))
    return (lse - logits[np.arange(len(Y)), Y]).mean()


@minibatch.spelling
def minibatch_index(p, X, Y):
    loss = 0
    for i in range(len(X)):
        x = list(p["C"][X[i][0]]) + list(p["C"][X[i][1]]) + list(p["C"][X[i][2]])
        h = []
        for j in range(len(p["b1"])):
            h.append((sum(p["W1"][j][k] * x[k] for k in range(len(x))) + p["b1"][j]).tanh())
        logits = [sum(w * a for w, a in zip(r, h)) for r in p["W2"]]
        loss += -softmax(logits)[Y[i]].log()
    return loss / len(X)


# --- recurrent networks ---------------------------------------------------------------------------


def rnn_params(rng, n=6):
    return {
        "wte": weights(rng, V, n),
        "Wxh": weights(rng, n, n),
        "Whh": weights(rng, n, n),
        "bh": weights(rng, n),
        "Who": weights(rng, V, n),
    }


@FIELD.idiom
def rnn(rng):
    for params in drifting(rng, rnn_params(rng)):
        yield params, [BOS, *encode(rng.choice(NAMES)), BOS]


@rnn.spelling
def rnn_every_position(p, tokens):
    h = [0.0] * 6
    loss = 0.0
    for token, target in zip(tokens, tokens[1:]):
        x = p["wte"][token]
        h = [tanh(dot(wx, x) + dot(wh, h) + b) for wx, wh, b in zip(p["Wxh"], p["Whh"], p["bh"])]
        logits = [dot(row, h) for row in p["Who"]]
        loss = loss + log(sum(exp(z) for z in logits)) - logits[target]
    return loss / (len(tokens) - 1)


@rnn.spelling
def rnn_last_position(p, tokens):
    h = [0.0 for _ in range(6)]
    for token in tokens[:-1]:
        x = p["wte"][token]
        h = [
            (sum(a * b for a, b in zip(wx, x)) + sum(a * b for a, b in zip(wh, h)) + b0).tanh()
            for wx, wh, b0 in zip(p["Wxh"], p["Whh"], p["bh"])
        ]
    return -softmax(linear(h, p["Who"]))[tokens[-1]].log()


@rnn.spelling
def rnn_numpy(p, tokens):
    h = np.zeros(6)
    loss = 0.0
    for t in range(len(tokens) - 1):
        h = np.tanh(p["Wxh"] @ p["wte"][tokens[t]] + p["Whh"] @ h + p["bh"])
        logits = p["Who"] @ h
        loss = loss + np.log(np.sum(np.exp(logits))) - logits[tokens[t + 1]]
    return loss


class Cell:
    """One step of a recurrent network; the hidden state is an attribute, as in a class of torch."""

    def __init__(self, p):
        self.p = p
        self.h = [0.0] * len(p["bh"])

    def __call__(self, token):
        x = self.p["wte"][token]
        rows = zip(self.p["Wxh"], self.p["Whh"], self.p["bh"])
        self.h = [tanh(dot(a, x) + dot(b, self.h) + c) for a, b, c in rows]
        return [dot(row, self.h) for row in self.p["Who"]]


@rnn.spelling
def rnn_class(p, tokens):
    cell = Cell(p)
    loss = 0.0
    for i in range(1, len(tokens)):
        loss += -log(softmax(cell(tokens[i - 1]))[tokens[i]])
    return loss


@FIELD.idiom
def padded(rng):
    for params in drifting(rng, rnn_params(rng)):
        name = encode(rng.choice(NAMES))[:10]
        yield params, [*name, *[PAD] * (10 - len(name))]


def rnn_step(p, token, h):
    x = p["wte"][token]
    rows = zip(p["Wxh"], p["Whh"], p["bh"])
    return [tanh(dot(a, x) + dot(b, h) + c) for a, b, c in rows]


@padded.spelling
def padded_break(p, tokens):
    h = [0.0] * 6
    loss, n = 0.0, 0
    for i in range(len(tokens) - 1):
        h = rnn_step(p, tokens[i], h)
        if tokens[i + 1] == PAD:
            break
        loss = loss - log(softmax([dot(row, h) for row in p["Who"]])[tokens[i + 1]])
        n += 1
    return loss / max(n, 1)


@padded.spelling
def padded_continue(p, tokens):
    h = [0.0] * 6
    loss = 0.0
    for token, target in zip(tokens, tokens[1:]):
        if token == PAD:
            continue
        h = rnn_step(p, token, h)
        loss = loss - log(softmax(linear(h, p["Who"]))[target])
    return loss


@padded.spelling
def padded_mask(p, tokens):
    mask = [float(t != PAD) for t in tokens[1:]]
    h = [0.0] * 6
    loss = 0.0
    for token, target, m in zip(tokens[:-1], tokens[1:], mask):
        h = rnn_step(p, token, h)
        logits = linear(h, p["Who"])
        loss = loss + m * (log(sum(exp(z) for z in logits)) - logits[target])
    return loss / sum(mask)


@padded.spelling
def padded_while(p, tokens):
    h, loss, i = [0.0] * 6, 0.0, 0
    while i + 1 < len(tokens) and tokens[i + 1] != PAD:
        h = rnn_step(p, tokens[i], h)
        loss = loss - softmax(linear(h, p["Who"]))[tokens[i + 1]].log()
        i += 1
    return loss


def gate_params(rng, n=5):
    gates = {gate: weights(rng, n, 2 * n + 1) for gate in ("z", "r", "n", "i", "f", "o", "g")}
    return {"E": weights(rng, V, n), "out": weights(rng, V, n), **gates}


@FIELD.idiom
def gated(rng):
    for params in drifting(rng, gate_params(rng)):
        yield params, [BOS, *encode(rng.choice(NAMES))]


@gated.spelling
def gated_gru(p, tokens):
    h, loss = [0.0] * 5, 0.0
    for token, target in zip(tokens, tokens[1:]):
        x = list(p["E"][token])
        z = [sigmoid(dot(w, [*x, *h, 1.0])) for w in p["z"]]
        r = [sigmoid(dot(w, [*x, *h, 1.0])) for w in p["r"]]
        rh = [a * b for a, b in zip(r, h)]
        n = [tanh(dot(w, [*x, *rh, 1.0])) for w in p["n"]]
        h = [(1 - zi) * ni + zi * hi for zi, ni, hi in zip(z, n, h)]
        loss = loss - log(softmax([dot(w, h) for w in p["out"]])[target])
    return loss / (len(tokens) - 1)


@gated.spelling
def gated_lstm(p, tokens):
    h, c, loss = [0.0] * 5, [0.0] * 5, 0.0
    for t in range(len(tokens) - 1):
        joint = list(p["E"][tokens[t]]) + h + [1.0]
        i, f, o = ([sigmoid(dot(w, joint)) for w in p[gate]] for gate in "ifo")
        g = [tanh(dot(w, joint)) for w in p["g"]]
        c = [f[k] * c[k] + i[k] * g[k] for k in range(5)]
        h = [o[k] * tanh(c[k]) for k in range(5)]
        logits = [dot(w, h) for w in p["out"]]
        loss += log(sum(exp(z) for z in logits)) - logits[tokens[t + 1]]
    return loss


# --- around the loss ------------------------------------------------------------------------------


@FIELD.idiom
def accuracy(rng):
    for params in drifting(rng, {"W": weights(rng, 8, 6), "b": weights(rng, 8)}):
        yield params, rng.normal(size=(5, 6)), rng.integers(8, size=5).tolist()


def classify(p, x):
    return [dot(row, x) + b for row, b in zip(p["W"], p["b"])]


@accuracy.spelling
def accuracy_index_of_max(p, X, Y):
    loss, right = 0.0, 0
    for x, y in zip(X, Y):
        zs = classify(p, x)
        loss = loss - log(softmax(zs)[y])
        if zs.index(max(zs)) == y:
            right += 1
    return loss, right / len(Y)


@accuracy.spelling
def accuracy_np_argmax(p, X, Y):
    loss, right = 0.0, 0
    for x, y in zip(X, Y):
        zs = classify(p, x)
        loss = loss - log(softmax(zs)[y])
        right += int(np.argmax([z.data for z in zs]) == y)
    return loss, right / len(Y)


@accuracy.spelling
def accuracy_max_by_key(p, X, Y):
    loss, hits = 0.0, []
    for x, y in zip(X, Y):
        zs = classify(p, x)
        loss = loss + log(sum(z.exp() for z in zs)) - zs[y]
        best = max(range(len(zs)), key=lambda i: zs[i].data)
        hits.append(best == y)
    return loss, sum(hits)


@FIELD.idiom
def class_weights(rng):
    for params in drifting(rng, {"W": weights(rng, 8, 6), "b": weights(rng, 8)}):
        yield params, rng.normal(size=6).tolist(), int(rng.integers(8))


CLASS_WEIGHTS = [1.0, 0.5, 2.0, 1.5, 0.25, 3.0, 1.0, 0.75]
CLASS_NAMES = dict(enumerate("cat dog fox owl bee ant cow hen".split()))
WEIGHT_BY_NAME = dict(zip(CLASS_NAMES.values(), CLASS_WEIGHTS))
FREQUENCIES = np.array([10, 20, 5, 8, 40, 3, 10, 15])


@class_weights.spelling
def class_weights_list(p, x, y):
    return -CLASS_WEIGHTS[y] * log(softmax(classify(p, x))[y])


@class_weights.spelling
def class_weights_dict_of_names(p, x, y):
    weight = WEIGHT_BY_NAME[CLASS_NAMES[y]]
    return -log(softmax(classify(p, x))[y]) * weight


@class_weights.spelling
def class_weights_frequencies(p, x, y):
    weight = FREQUENCIES.sum() / (len(FREQUENCIES) * FREQUENCIES[y])
    return weight * -log(softmax(classify(p, x))[y])


@class_weights.spelling
def class_weights_smoothing(p, x, y):
    probs = softmax(classify(p, x))
    eps = 0.1
    target = [1 - eps if i == y else eps / 7 for i in range(8)]
    return -sum(t * log(q) for t, q in zip(target, probs))


@class_weights.spelling
def class_weights_get(p, x, y):
    rare = {2: 2.0, 5: 3.0}
    return rare.get(y, 1.0) * -log(softmax(classify(p, x))[y])


@FIELD.idiom
def dropout(rng):
    for params in drifting(rng, {"W1": weights(rng, 10, 4), "W2": weights(rng, 10)}):
        mask = (rng.random(10) < 0.8) / 0.8
        yield (
            params,
            rng.normal(size=4),
            mask.tolist(),
            int(rng.integers(10**6)),
            float(rng.normal()),
        )


@dropout.spelling(adapt=lambda p, x, mask, seed, y: (p, x, mask, y))
def dropout_mask(p, x, mask, y):
    h = [tanh(dot(row, x)) * m for row, m in zip(p["W1"], mask)]
    return (dot(h, p["W2"]) - y) ** 2


@dropout.spelling(adapt=lambda p, x, mask, seed, y: (p, x, [bool(m) for m in mask], y))
def dropout_if_kept(p, x, keep, y):
    out = 0.0
    for row, w, kept in zip(p["W1"], p["W2"], keep):
        if kept:
            out = out + tanh(dot(row, x)) * w / 0.8
    return (out - y) ** 2


@dropout.spelling(adapt=lambda p, x, mask, seed, y: (p, x, seed, y))
def dropout_seed(p, x, seed, y):
    rng = random.Random(seed)
    h = [tanh(dot(row, x)) for row in p["W1"]]
    h = [a / 0.8 if rng.random() < 0.8 else a * 0.0 for a in h]
    return (dot(h, p["W2"]) - y) ** 2


@dropout.spelling(adapt=lambda p, x, mask, seed, y: (p, x, seed, y))
def dropout_numpy_seed(p, x, seed, y):
    rng = np.random.default_rng(seed)
    mask = (rng.random(10) < 0.8) / 0.8
    h = np.tanh(p["W1"] @ x) * mask
    return (h @ p["W2"] - y) ** 2


# --- embeddings -----------------------------------------------------------------------------------


@FIELD.idiom
def skip_gram(rng):
    for params in drifting(rng, {"center": weights(rng, 40, 5), "outer": weights(rng, 40, 5)}):
        yield (
            params,
            int(rng.integers(40)),
            int(rng.integers(40)),
            rng.integers(40, size=5).tolist(),
        )


@skip_gram.spelling
def skip_gram_negatives(p, center, positive, negatives):
    c = p["center"][center]
    loss = -log(sigmoid(dot(c, p["outer"][positive])))
    for k in negatives:
        loss = loss - log(sigmoid(-dot(c, p["outer"][k])))
    return loss


@skip_gram.spelling
def skip_gram_labels(p, center, positive, negatives):
    loss = 0.0
    for word in [positive] + negatives:
        score = sum(a * b for a, b in zip(p["center"][center], p["outer"][word]))
        label = 1 if word == positive else 0
        prob = sigmoid(score)
        loss = loss - (label * log(prob) + (1 - label) * log(1 - prob))
    return loss


@FIELD.idiom
def bag_of_words(rng):
    for params in drifting(rng, {"E": weights(rng, 50, 4), "w": weights(rng, 4)}):
        yield params, rng.integers(50, size=rng.integers(2, 12)).tolist(), int(rng.integers(2))


@bag_of_words.spelling
def bag_of_words_mean(p, words, label):
    mean = [sum(p["E"][w][k] for w in words) / len(words) for k in range(4)]
    prob = sigmoid(dot(mean, p["w"]))
    return -log(prob) if label == 1 else -log(1 - prob)


@bag_of_words.spelling
def bag_of_words_unique(p, words, label):
    total = [0.0] * 4
    for w in set(words):
        total = [a + b for a, b in zip(total, p["E"][w])]
    z = dot(total, p["w"])
    return log(1 + exp(-z)) if label else log(1 + exp(z))


@bag_of_words.spelling
def bag_of_words_counts(p, words, label):
    counts = {}
    for w in words:
        counts[w] = counts.get(w, 0) + 1
    z = sum(n * dot(p["E"][w], p["w"]) for w, n in counts.items())
    return (sigmoid(z) - label) ** 2


@bag_of_words.spelling(adapt=lambda p, words, label: as_lists(p, words, label))
def bag_of_words_sum_of_lists(p, words, label):
    rows = [p["E"][w] for w in words]
    mean = [sum(column) / len(rows) for column in zip(*rows)]
    z = sum(a * b for a, b in zip(mean, p["w"]))
    return -(label * log(sigmoid(z)) + (1 - label) * log(sigmoid(-z)))


# --- a whole corpus outside of the function -------------------------------------------------------

CORPUS = " ".join(NAMES) * 2_000  # 1.1 million characters
LETTERS = sorted(set(CORPUS))
place = {c: i for i, c in enumerate(LETTERS)}
TOKENS = [place[c] for c in CORPUS]
TOKENS_KEPT = tuple(TOKENS)


@FIELD.idiom
def corpus(rng):
    for W in drifting(rng, weights(rng, len(LETTERS), len(LETTERS))):
        yield W, int(rng.integers(len(CORPUS) - 64))


@corpus.spelling
def corpus_characters(W, start):
    loss = 0.0
    for k in range(32):
        logits = W[place[CORPUS[start + k]]]
        loss -= log(softmax(logits)[place[CORPUS[start + k + 1]]])
    return loss / 32


@corpus.spelling
def corpus_tokens(W, start):
    loss = 0.0
    for k in range(32):
        loss -= log(softmax(W[TOKENS[start + k]])[TOKENS[start + k + 1]])
    return loss / 32


@corpus.spelling
def corpus_tuple(W, start):
    loss = 0.0
    for k in range(32):
        loss -= log(softmax(W[TOKENS_KEPT[start + k]])[TOKENS_KEPT[start + k + 1]])
    return loss / 32


@corpus.spelling
def corpus_slice(W, start):
    block = TOKENS[start : start + 33]
    return sum(-log(softmax(W[a])[b]) for a, b in zip(block, block[1:])) / 32


@corpus.spelling
def corpus_scores(W, start):  # a number for each pair, and no network
    score = 0.0
    for k in range(64):
        score = score + tanh(W[place[CORPUS[start + k]]][place[CORPUS[start + k + 1]]])
    return score


# --- a vocabulary of many words -------------------------------------------------------------------


@FIELD.idiom
def large_vocabulary(rng):
    for E in drifting(rng, weights(rng, 4_000, 4)):
        yield E, rng.integers(4_000, size=100).tolist()


@large_vocabulary.spelling(adapt=as_lists)
def large_vocabulary_rows(E, tokens):
    return sum(tanh(sum(E[t])) for t in tokens)


@large_vocabulary.spelling
def large_vocabulary_array(E, tokens):
    return sum(tanh(sum(E[t])) for t in tokens)


@large_vocabulary.spelling(adapt=as_lists)
def large_vocabulary_pairs(E, tokens):
    return sum(dot(E[a], E[b]) ** 2 for a, b in zip(tokens, tokens[1:]))


@large_vocabulary.spelling(adapt=as_lists)
def large_vocabulary_mean(E, tokens):
    rows = [E[t] for t in tokens]
    hidden = [sum(column) / len(rows) for column in zip(*rows)]
    return sum(tanh(h) ** 2 for h in hidden)
