"""Neural networks in the manner of micrograd and its forks; attention in that of microgpt."""

import math
import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from chainrule import Value, dot, exp, gelu, linear, log, maximum, relu, sigmoid, silu, sqrt, tanh

from .registry import Field, as_lists, drifting

FIELD = Field("networks")


def weights(rng, *shape):
    return rng.normal(size=shape) * 0.3


def softmax(logits):
    largest = max(z.data for z in logits)
    exps = [(z - largest).exp() for z in logits]
    total = sum(exps)
    return [e / total for e in exps]


# --- multilayer perceptrons -----------------------------------------------------------------------


def layers(rng, *sizes):
    return [{"W": weights(rng, n, m), "b": weights(rng, n)} for m, n in zip(sizes, sizes[1:])]


def moons(rng, n):
    angle = rng.uniform(0, math.pi, size=n)
    side = rng.choice([-1, 1], size=n)
    points = np.column_stack([np.cos(angle) + (side < 0), np.sin(angle) * side])
    return points + 0.1 * rng.normal(size=(n, 2)), side


@FIELD.idiom
def perceptron(rng):
    for params in drifting(rng, layers(rng, 2, 8, 8, 1)):
        X, y = moons(rng, 16)
        yield params, X.tolist(), y.tolist()


@perceptron.spelling
def perceptron_hinge(params, X, y):
    scores = []
    for x in X:
        for i, layer in enumerate(params):
            x = [
                sum((w * xi for w, xi in zip(row, x)), b) for row, b in zip(layer["W"], layer["b"])
            ]
            if i < len(params) - 1:
                x = [xi.relu() for xi in x]
        scores.append(x[0])
    losses = [(1 + -yi * s).relu() for yi, s in zip(y, scores)]
    data_loss = sum(losses) * (1.0 / len(losses))
    reg_loss = 1e-4 * sum(w * w for layer in params for row in layer["W"] for w in row)
    return data_loss + reg_loss


class Neuron:
    """micrograd's neuron, given its weights."""

    def __init__(self, w, b, nonlin=True):
        self.w, self.b, self.nonlin = w, b, nonlin

    def __call__(self, x):
        act = sum((wi * xi for wi, xi in zip(self.w, x)), self.b)
        return act.tanh() if self.nonlin else act


class Network:
    """micrograd's MLP, built inside the loss from arrays of weights."""

    def __init__(self, params):
        self.layers = [
            [Neuron(w, b, nonlin=k < len(params) - 1) for w, b in zip(p["W"], p["b"])]
            for k, p in enumerate(params)
        ]

    def __call__(self, x):
        for layer in self.layers:
            x = [neuron(x) for neuron in layer]
        return x[0] if len(x) == 1 else x


@perceptron.spelling(adapt=as_lists)
def perceptron_objects(params, X, y):
    model = Network(params)
    return sum((model(x) - yi) ** 2 for x, yi in zip(X, y))


@perceptron.spelling(adapt=lambda params, X, y: (params, np.array(X), np.array(y)))
def perceptron_numpy(params, X, y):
    h = X
    for layer in params[:-1]:
        h = np.tanh(h @ layer["W"].T + layer["b"])
    out = (h @ params[-1]["W"].T + params[-1]["b"])[:, 0]
    return ((out - y) ** 2).mean()


@perceptron.spelling
def perceptron_accuracy_beside(params, X, y):
    total, right = 0.0, 0
    for x, yi in zip(X, y):
        h = x
        for layer in params[:-1]:
            h = [relu(dot(row, h) + b) for row, b in zip(layer["W"], layer["b"])]
        (out,) = [dot(row, h) + b for row, b in zip(params[-1]["W"], params[-1]["b"])]
        total = total + log(1 + exp(-yi * out))
        right += (out.data > 0) == (yi > 0)
    return total / len(X), right / len(X)


@perceptron.spelling(adapt=lambda params, X, y: (params, X[0], y[0]))
def perceptron_one_point(params, x, y):
    for layer in params:
        x = [
            tanh(sum(w * xi for w, xi in zip(row, x)) + b) for row, b in zip(layer["W"], layer["b"])
        ]
    return (x[0] - y) ** 2


ACTIVATIONS = {"relu": relu, "tanh": tanh, "sigmoid": sigmoid, "silu": silu, "none": lambda z: z}
config = SimpleNamespace(activation="tanh", decay=1e-3, scale=1.5)


@FIELD.idiom
def chosen_function(rng):
    for params in drifting(rng, weights(rng, 6, 4)):
        yield (
            params,
            rng.normal(size=4).tolist(),
            int(rng.integers(3)),
            str(rng.choice(["relu", "tanh"])),
        )


@chosen_function.spelling
def chosen_function_by_token(W, x, which, name):
    functions = [tanh, sigmoid, gelu]
    f = functions[which]
    return sum(f(dot(row, x)) for row in W) ** 2


@chosen_function.spelling
def chosen_function_by_name(W, x, which, name):
    f = ACTIVATIONS[name]
    return sum(f(dot(row, x)) for row in W) ** 2


@chosen_function.spelling
def chosen_function_config(W, x, which, name):
    f = ACTIVATIONS[config.activation]
    out = sum(f(dot(row, x)) for row in W) * config.scale
    return out**2 + config.decay * sum(w * w for row in W for w in row)


@chosen_function.spelling
def chosen_function_match(W, x, which, name):
    total = 0.0
    for row in W:
        z = dot(row, x)
        match which:
            case 0:
                total = total + relu(z)
            case 1:
                total = total + z * z
            case _:
                total = total + tanh(z)
    return total


@chosen_function.spelling
def chosen_function_lambdas(W, x, which, name):
    table = {0: lambda z: z * z, 1: lambda z: abs(z), 2: lambda z: (1 + z * z).sqrt() - 1}
    return sum(table[which](dot(row, x)) for row in W)


@dataclass
class Weights:
    """Parameters of a layer, as a dataclass."""

    W: list
    b: list
    gain: float = 1.0
    history: list = field(default_factory=list)


@FIELD.idiom
def chosen_functions(rng):
    for params in drifting(rng, weights(rng, 12)):
        yield params, rng.integers(3, size=12).tolist()


NONLINEAR = [tanh, relu, sigmoid]
OPERATIONS = {0: lambda a, b: a + b, 1: lambda a, b: a * b, 2: lambda a, b: a - 0.5 * b}


@chosen_functions.spelling
def chosen_functions_sum(p, kinds):
    return sum(NONLINEAR[k](v) for k, v in zip(kinds, p))


@chosen_functions.spelling
def chosen_functions_named(p, kinds):
    total = 0.0
    for k, v in zip(kinds, p):
        act = NONLINEAR[k]
        total += act(v) ** 2
    return total


@chosen_functions.spelling
def chosen_functions_program(p, kinds):
    accumulator = p[0]
    for k, v in zip(kinds, p):
        accumulator = tanh(OPERATIONS[k](accumulator, v))
    return accumulator


@FIELD.idiom
def dataclass_params(rng):
    for W, b in drifting(rng, (weights(rng, 5, 3), weights(rng, 5))):
        yield Weights(W.tolist(), b.tolist()), rng.normal(size=3).tolist(), float(rng.normal())


@dataclass_params.spelling
def dataclass_params_attributes(p, x, y):
    h = [tanh(dot(row, x) + b) for row, b in zip(p.W, p.b)]
    return (p.gain * sum(h) - y) ** 2


@dataclass_params.spelling(adapt=lambda p, x, y: ((p.W, p.b), {"x": x, "y": y}))
def dataclass_params_tuple_and_dict(params, sample):
    W, b = params
    h = [tanh(dot(row, sample["x"]) + bi) for row, bi in zip(W, b)]
    return (sum(h) - sample["y"]) ** 2


@dataclass_params.spelling(adapt=lambda p, x, y: (p.W, SimpleNamespace(x=x, y=y)))
def dataclass_params_namespace_sample(W, sample):
    return (sum(tanh(dot(row, sample.x)) for row in W) - sample.y) ** 2


# --- convolutions ---------------------------------------------------------------------------------


@FIELD.idiom
def convolution(rng):
    for params in drifting(rng, {"K": weights(rng, 2, 3, 3), "W": weights(rng, 3, 8)}):
        yield params, rng.random((6, 6)), int(rng.integers(3))


@convolution.spelling
def convolution_loops(p, image, label):
    features = []
    for kernel in p["K"]:
        rows = []
        for i in range(4):
            row = []
            for j in range(4):
                acc = 0.0
                for a in range(3):
                    for b in range(3):
                        acc = acc + kernel[a][b] * image[i + a][j + b]
                row.append(relu(acc))
            rows.append(row)
        for i in (0, 2):
            for j in (0, 2):
                features.append(max(rows[i][j], rows[i][j + 1], rows[i + 1][j], rows[i + 1][j + 1]))
    return -log(softmax(linear(features, p["W"]))[label])


@convolution.spelling
def convolution_patches(p, image, label):
    features = []
    for kernel in p["K"]:
        maps = np.array(
            [[(kernel * image[i : i + 3, j : j + 3]).sum() for j in range(4)] for i in range(4)]
        )
        maps = relu(maps)
        pooled = maps.reshape(2, 2, 2, 2).mean(axis=(1, 3))
        features.extend(pooled.flat)
    logits = [dot(row, features) for row in p["W"]]
    return log(sum(exp(z) for z in logits)) - logits[label]


@convolution.spelling
def convolution_padding(p, image, label):
    n = len(image)
    total = 0.0
    for kernel in p["K"]:
        for i in range(n):
            for j in range(n):
                z = 0.0
                for a in (-1, 0, 1):
                    for b in (-1, 0, 1):
                        if 0 <= i + a < n and 0 <= j + b < n:
                            z = z + kernel[a + 1][b + 1] * image[i + a][j + b]
                total = total + tanh(z)
    return (total / n - label) ** 2


# --- normalisation --------------------------------------------------------------------------------


@FIELD.idiom
def normalisation(rng):
    for params in drifting(rng, {"g": 1 + weights(rng, 12), "b": weights(rng, 12)}):
        yield params, rng.normal(size=12).tolist()


@normalisation.spelling
def normalisation_layernorm(p, x):
    mean = sum(x) / len(x)
    var = sum((xi - mean) ** 2 for xi in x) / len(x)
    y = [g * (xi - mean) / math.sqrt(var + 1e-5) + b for g, xi, b in zip(p["g"], x, p["b"])]
    return sum(v**3 for v in y)


@normalisation.spelling
def normalisation_rmsnorm(p, x):
    z = [a * b for a, b in zip(x, p["g"])]
    ms = sum(zi * zi for zi in z) / len(z)
    scale = (ms + 1e-5) ** -0.5
    return sum(zi * scale * b for zi, b in zip(z, p["b"]))


@normalisation.spelling
def normalisation_numpy(p, x):
    h = np.array(x) * p["g"] + p["b"]
    h = (h - h.mean()) / np.sqrt(((h - h.mean()) ** 2).mean() + 1e-5)
    return (h * np.arange(12)).sum()


# --- attention ------------------------------------------------------------------------------------


def attention_params(rng, n=6, vocabulary=10):
    names = {"wq": (n, n), "wk": (n, n), "wv": (n, n), "wo": (n, n)}
    params = {name: weights(rng, *shape) for name, shape in names.items()}
    return {
        "wte": weights(rng, vocabulary, n),
        "wpe": weights(rng, 12, n),
        **params,
        "fc1": weights(rng, 2 * n, n),
        "fc2": weights(rng, n, 2 * n),
        "head": weights(rng, vocabulary, n),
    }


@FIELD.idiom
def attention(rng):
    for params in drifting(rng, attention_params(rng)):
        yield params, rng.integers(1, 10, size=rng.integers(3, 9)).tolist()


def rmsnorm(x):
    ms = sum(xi * xi for xi in x) / len(x)
    scale = (ms + 1e-5) ** -0.5
    return [xi * scale for xi in x]


def gpt(tok, pos, keys, values, p):
    x = [a + b for a, b in zip(p["wte"][tok], p["wpe"][pos])]
    x = rmsnorm(x)
    residual = x
    q, k, v = linear(x, p["wq"]), linear(x, p["wk"]), linear(x, p["wv"])
    keys.append(k)
    values.append(v)
    out = []
    for h in (0, 3):
        qh = q[h : h + 3]
        kh = [ki[h : h + 3] for ki in keys]
        vh = [vi[h : h + 3] for vi in values]
        scores = [sum(qh[j] * kt[j] for j in range(3)) / 3**0.5 for kt in kh]
        w = softmax(scores)
        out.extend(sum(w[t] * vh[t][j] for t in range(len(vh))) for j in range(3))
    x = [a + b for a, b in zip(linear(out, p["wo"]), residual)]
    residual = x
    x = [xi.relu() for xi in linear(rmsnorm(x), p["fc1"])]
    x = [a + b for a, b in zip(linear(x, p["fc2"]), residual)]
    return linear(x, p["head"])


@attention.spelling
def attention_microgpt(p, tokens):
    keys, values, losses = [], [], []
    for pos in range(len(tokens) - 1):
        logits = gpt(tokens[pos], pos, keys, values, p)
        losses.append(-softmax(logits)[tokens[pos + 1]].log())
    return (1 / len(losses)) * sum(losses)


@attention.spelling
def attention_bos_both_ends(p, tokens):
    tokens = [0] + tokens + [0]
    n = min(12, len(tokens) - 1)
    keys, values, losses = [], [], []
    for pos_id in range(n):
        token_id, target_id = tokens[pos_id], tokens[pos_id + 1]
        logits = gpt(token_id, pos_id, keys, values, p)
        probs = softmax(logits)
        losses.append(-probs[target_id].log())
    return (1 / n) * sum(losses)


@attention.spelling
def attention_last_position_only(p, tokens):
    keys, values = [], []
    for pos, tok in enumerate(tokens[:-1]):
        logits = gpt(tok, pos, keys, values, p)
    return -softmax(logits)[tokens[-1]].log()


@attention.spelling
def attention_to_all_positions(p, tokens):
    xs = [[a + b for a, b in zip(p["wte"][t], p["wpe"][i])] for i, t in enumerate(tokens)]
    qs, ks, vs = ([linear(x, p[w]) for x in xs] for w in ("wq", "wk", "wv"))
    outs = []
    for q in qs:
        att = softmax([dot(q, k) / math.sqrt(6) for k in ks])
        outs.append([sum(a * v[j] for a, v in zip(att, vs)) for j in range(6)])
    mean = [sum(col) / len(outs) for col in zip(*outs)]
    return log(sum(exp(z) for z in linear(mean, p["head"]))) - linear(mean, p["head"])[tokens[0]]


@attention.spelling(adapt=lambda p, tokens: (p, np.array(tokens)))
def attention_numpy_causal(p, tokens):
    x = p["wte"][tokens] + p["wpe"][: len(tokens)]
    q, k, v = x @ p["wq"].T, x @ p["wk"].T, x @ p["wv"].T
    scores = q @ k.T / math.sqrt(6)
    weights = np.exp(scores) * np.tril(np.ones((len(tokens), len(tokens))))
    weights = weights / weights.sum(axis=1, keepdims=True)
    logits = (weights @ v) @ p["head"].T
    total = 0.0
    for t in range(len(tokens) - 1):
        total = total + np.log(np.exp(logits[t]).sum()) - logits[t][tokens[t + 1]]
    return total


@attention.spelling
def attention_mask_list(p, tokens):
    n = len(tokens)
    mask = [[0.0 if j <= i else -1e9 for j in range(n)] for i in range(n)]
    xs = [p["wte"][t] for t in tokens]
    qs, ks, vs = ([linear(x, p[w]) for x in xs] for w in ("wq", "wk", "wv"))
    loss = 0.0
    for i in range(n - 1):
        att = softmax([dot(qs[i], ks[j]) + mask[i][j] for j in range(n)])
        out = [sum(att[j] * vs[j][d] for j in range(n)) for d in range(6)]
        loss = loss - log(softmax(linear(out, p["head"]))[tokens[i + 1]])
    return loss


@attention.spelling
def attention_rotary_swiglu(p, tokens):
    def rotate(x, pos):
        out = []
        for i in range(0, len(x), 2):
            angle = pos / 10 ** (i / len(x))
            c, s = math.cos(angle), math.sin(angle)
            out += [x[i] * c - x[i + 1] * s, x[i] * s + x[i + 1] * c]
        return out

    keys, values, loss = [], [], 0.0
    for pos, (tok, target) in enumerate(zip(tokens, tokens[1:])):
        x = list(p["wte"][tok])
        keys.append(rotate(linear(x, p["wk"]), pos))
        values.append(linear(x, p["wv"]))
        q = rotate(linear(x, p["wq"]), pos)
        att = softmax([dot(q, k) for k in keys])
        x = [xi + sum(a * v[d] for a, v in zip(att, values)) for d, xi in enumerate(x)]
        up = linear(x, p["fc1"])
        gated = [silu(a) * b for a, b in zip(up[:6], up[6:])]
        loss = loss - log(softmax(linear(gated, p["head"]))[target])
    return loss / (len(tokens) - 1)


@attention.spelling
def attention_sliding_window(p, tokens):
    ks, vs, loss = [], [], 0.0
    for pos in range(len(tokens) - 1):
        x = p["wte"][tokens[pos]]
        ks.append(linear(x, p["wk"]))
        vs.append(linear(x, p["wv"]))
        q = linear(x, p["wq"])
        window = range(max(0, pos - 2), pos + 1)
        att = softmax([dot(q, ks[j]) for j in window])
        out = [sum(a * vs[j][d] for a, j in zip(att, window)) for d in range(6)]
        loss += -softmax(linear(out, p["head"]))[tokens[pos + 1]].log()
    return loss


# --- choosing among Values ------------------------------------------------------------------------


@FIELD.idiom
def experts(rng):
    for params in drifting(rng, {"gate": weights(rng, 5, 4), "w": weights(rng, 5, 4)}, 0.1):
        yield params, rng.normal(size=4).tolist(), float(rng.normal())


@experts.spelling
def experts_top_two_sorted(p, x, y):
    scores = [dot(row, x) for row in p["gate"]]
    order = sorted(range(5), key=lambda i: scores[i].data, reverse=True)[:2]
    gates = softmax([scores[i] for i in order])
    out = sum(g * tanh(dot(p["w"][i], x)) for g, i in zip(gates, order))
    return (out - y) ** 2


@experts.spelling
def experts_argsort(p, x, y):
    scores = [dot(row, x) for row in p["gate"]]
    order = np.argsort([-s.data for s in scores])[:2]
    total = sum(scores[i].exp() for i in order)
    return (sum(scores[i].exp() / total * dot(p["w"][i], x) for i in order) - y) ** 2


@experts.spelling
def experts_index_array(p, x, y):
    scores = p["gate"] @ np.array(x)
    best = np.argsort([s.data for s in scores])[-2:]
    shares = np.exp(scores[best]) / np.exp(scores[best]).sum()
    return ((shares * (p["w"][best] @ np.array(x))).sum() - y) ** 2


@experts.spelling
def experts_sorted_pairs(p, x, y):
    pairs = sorted(
        ((dot(g, x), dot(w, x)) for g, w in zip(p["gate"], p["w"])),
        key=lambda pair: pair[0],
        reverse=True,
    )
    return (sum(sigmoid(a) * b for a, b in pairs[:2]) - y) ** 2


@experts.spelling
def experts_hardest_argmax(p, x, y):
    scores = [dot(row, x) for row in p["gate"]]
    best = scores.index(max(scores))
    return (dot(p["w"][best], x) * scores[best] - y) ** 2


@experts.spelling
def experts_max_pool(p, x, y):
    outs = [dot(g, x) * dot(w, x) for g, w in zip(p["gate"], p["w"])]
    return (max(outs) - min(outs) - y) ** 2


@experts.spelling
def experts_threshold(p, x, y):
    total = 0.0
    for g, w in zip(p["gate"], p["w"]):
        score = dot(g, x)
        if score > 0.1:
            total = total + score * dot(w, x)
    return (total - y) ** 2


@experts.spelling
def experts_maxout(p, x, y):
    h = [maximum(dot(g, x), dot(w, x)) for g, w in zip(p["gate"], p["w"])]
    return (sum(h) - y) ** 2 + sqrt(sum(v * v for v in h) + 1e-6)


# --- parameters that are global Values ------------------------------------------------------------


random.seed(1)
SCRIPT_WEIGHTS = [[Value(random.gauss(0, 0.3)) for _ in range(4)] for _ in range(3)]


@FIELD.idiom
def global_values(rng):
    while True:
        yield rng.normal(size=3).tolist(), rng.normal(size=4).tolist(), float(rng.normal())


@global_values.spelling
def global_values_beside_params(p, x, y):
    h = [tanh(sum(w * xi for w, xi in zip(row, x))) for row in SCRIPT_WEIGHTS]
    return (sum(a * b for a, b in zip(p, h)) - y) ** 2
