"""Subjects from language models: a head read by tokens, attention, dropout and minibatches."""

from __future__ import annotations

from fuzz_drawing import Datum, Draw, Subject

SOFTMAX = """
<<def softmax(zs):
    largest = max(<<z.data if isinstance(z, Value) else z||float(z)||z>> for z in zs)
    exps = [exp(z - largest) for z in zs]
    <<total = sum(exps)
    return [e / total for e in exps]||return [e / sum(exps) for e in exps]>>
||def softmax(zs):
    exps = [<<exp(z)||exp(z - 0.5)>> for z in zs]
    total = <<sum(exps)||vsum(exps)>>
    return [e / total for e in exps]
||from chainrule import softmax
||from chainrule.nn import softmax>>
"""
LINEAR = """
<<def linear(x, w):
    return [<<sum(a * b for a, b in zip(row, x))||sum(row[i] * x[i] for i in range(len(x)))||chainrule.dot(row, x)>> for row in w]
||from chainrule import linear
||from chainrule.nn import linear>>
"""  # noqa: E501
NORM = """
<<def normed(x):
    scale = (sum(v * v for v in x) / len(x) + 1e-5) ** -0.5
    return [v * scale for v in x]
||def normed(x):
    mean = sum(x) / len(x)
    return [(v - mean) / sqrt(sum((u - mean) ** 2 for u in x) / len(x) + 0.1) for v in x]
||def normed(x):
    return <<x||[tanh(v) for v in x]||list(x)>>>>
"""

NLL = """<<-softmax(linear(x, {HEAD}))[{Y}].log()||-log(softmax(linear(x, {HEAD}))[{Y}])\
||-log(softmax([0.5 * z for z in linear(x, {HEAD})])[{Y}])\
||log(sum(exp(z) for z in linear(x, {HEAD}))) - linear(x, {HEAD})[{Y}]\
||chainrule.logsumexp(linear(x, {HEAD})) - linear(x, {HEAD})[{Y}]\
||sum(-log(q) for k, q in enumerate(softmax(linear(x, {HEAD}))) if k == {Y})>>"""


def language(draw: Draw) -> Subject:
    """A model of the next token: the result of a call is read by a token, often unnamed."""
    v, d = draw.size(3, 6), draw.size(2, 4)
    shapes = {"wte": (v, d), "head": (v, d)}
    if draw.chance(0.5):
        shapes["wpe"] = (8, d)
    if draw.chance(0.5):
        shapes["mlp"] = (d, d)
    p = draw.parameters(**shapes)
    words = {name.upper(): p.path(name) for name in shapes} | {"V": v}
    words["POSITION"] = "<<x||normed(x)>>"
    if "wpe" in shapes:
        words["POSITION"] = "[a + b for a, b in zip(x, {WPE}[pos])]"
    words["HIDDEN"] = "<<x||normed(x)>>"
    if "mlp" in shapes:
        words["HIDDEN"] = "[<<tanh(h)||relu(h)||h * h>> for h in linear(x, {MLP})]"
    body = draw.spelled(
        """
<<ids = [0] + list(tokens) + [0]||ids = [0, *tokens]||ids = tokens>>
loss = <<0.0||0||{WTE}[0][0] * 0.1>>
for <<pos in range(len(ids) - 1):
    t, y = ids[pos], ids[pos + 1]||pos, (t, y) in enumerate(zip(ids, ids[1:])):>>
    <<if t == {K}:
        <<continue||break||loss = loss * 0.5>>||>>
    x = <<{WTE}[t]||list({WTE}[t])||[w for w in {WTE}[t]]||normed({WTE}[t])>>
    x = {POSITION}
    x = {HIDDEN}
    loss = loss <<+ ({NLL})||- 0.5 * ({NLL}) + 0.1 * pos>>
<<loss = loss / (len(ids) - 1)||loss = loss / max(1, len(tokens))||>>
""",
        K=draw.size(0, v - 1),
        NLL=NLL,
        Y="<<ids[pos + 1]||y>>",
        **words,
    )
    module = draw.spelled(SOFTMAX + LINEAR + NORM)
    data = [draw.tokens("tokens", v - 1)]
    return Subject(module, body, p, data)


def attention(draw: Draw) -> Subject:
    """Attention to the positions so far, or to all, with lists of keys and values that grow."""
    v, d = draw.size(3, 5), draw.size(2, 3)
    p = draw.parameters(wte=(v, d), wq=(d, d), wk=(d, d), wv=(d, d), head=(v, d))
    words = {name.upper(): p.path(name) for name in p.shapes} | {"D": d, "V": v}
    words |= {"NLL": NLL, "Y": "y"}
    causal = """
keys, values = [], []
loss = 0.0
for pos in range(len(tokens) - 1):
    t, y = tokens[pos], tokens[pos + 1]
    x = <<{WTE}[t]||normed({WTE}[t])>>
    q = linear(x, {WQ})
    <<keys.append(linear(x, {WK}))
    values.append(linear(x, {WV}))||keys += [linear(x, {WK})]
    values = [*values, linear(x, {WV})]||keys = keys + [linear(x, {WK})]
    values.append(linear(x, {WV}))>>
    {MIX}
    loss = loss + ({NLL})
<<loss = loss / len(tokens)||loss = loss / (len(tokens) - 1)||>>
"""
    everywhere = """
xs = [<<{WTE}[t]||normed({WTE}[t])>> for t in tokens]
keys = [linear(x, {WK}) for x in xs]
values = [linear(x, {WV}) for x in xs]
loss = 0.0
for <<pos, x in enumerate(xs):||pos in range(len(xs)):
    x = xs[pos]>>
    <<||if pos == 0:
        continue>>
    q, y = linear(x, {WQ}), tokens[<<pos||-1||pos - 1>>]
    {MIX}
    loss = loss + ({NLL})
<<loss = loss / len(xs)||>>
"""
    masked = everywhere.replace("{MIX}", "{MASKED}") if draw.chance(0.3) else everywhere
    words[
        "MIX"
    ] = """scores = [<<chainrule.dot(q, k)||sum(a * b for a, b in zip(q, k))>> / {D} ** 0.5 for k in keys]
    weights = softmax(scores)
    <<x = [sum(w * u[j] for w, u in zip(weights, values)) for j in range({D})]\
||x = [sum(weights[s] * values[s][j] for s in range(len(values))) for j in range({D})]\
||mixed = [0.0] * {D}
    for w, u in zip(weights, values):
        mixed = [m + w * z for m, z in zip(mixed, u)]
    x = mixed>>
    <<x = [a + b for a, b in zip(x, {WTE}[tokens[pos]])]||>>"""  # noqa: E501
    words["MASKED"] = """scores = []
    for j, k in enumerate(keys):
        <<if j > pos:
            <<continue||break||scores.append(-4.0)
            continue>>||>>
        scores.append(chainrule.dot(q, k))
    x = [sum(w * u[j] for w, u in zip(softmax(scores), values)) for j in range({D})]"""
    body = draw.spelled(causal if draw.chance(0.5) else masked, **words)
    module = draw.spelled(SOFTMAX + LINEAR + NORM)
    return Subject(module, body, p, [draw.tokens("tokens", v - 1, 2, 5)])


def dropout(draw: Draw) -> Subject:
    """Random numbers of a key that is passed."""
    n, h = draw.size(2, 4), draw.size(2, 5)
    p = draw.parameters(w=(h, n), out=(h,))
    rate = draw.rng.choice(["0.5", "0.25", "0.1", "0.0", "RATE"])
    body = draw.spelled(
        """
hidden = [<<tanh||relu||sigmoid>>(sum(a * b for a, b in zip(row, xs))) for row in {W}]
<<hidden = chainrule.random.dropout(hidden, {RATE}, key)\
||hidden = chainrule.random.dropout(hidden, {RATE}, chainrule.random.fold_in(key, <<0||3||layer>>))\
||one, two = chainrule.random.split(key)
hidden = chainrule.random.dropout(chainrule.random.dropout(hidden, {RATE}, one), 0.5, two)\
||hidden = [v if chainrule.random.uniform(key, k) < 0.6 else v * 0.5 for k, v in enumerate(hidden)]\
||hidden = [v * (chainrule.random.uniform(key, k + layer) - 0.5) for k, v in enumerate(hidden)]>>
loss = <<sum(a * b for a, b in zip({OUT}, hidden))||chainrule.dot({OUT}, hidden)>>
<<for step in range(layer):
    loss = loss + {OUT}[0] * chainrule.random.uniform(<<key||chainrule.random.fold_in(key, step)>>, step)
||if chainrule.random.uniform(key, 7) < 0.5:
    loss = <<loss * 2||tanh(loss)||loss + {OUT}[-1]>>
||>>
""",  # noqa: E501
        W=p.path("w"),
        OUT=p.path("out"),
        RATE=rate,
    )

    def key() -> str:
        if draw.fixed or draw.chance(0.8):
            return f"chainrule.random.key({draw.rng.choice([0, 3, draw.size(0, 10**12)])})"
        ways = ["chainrule.random.off()", "[5.0, 0.0]", "(5.0, 1.0)"]
        return draw.rng.choice(ways)

    steady = draw.reals("xs", n, n)
    data = [steady, draw.integer("layer", 0, 3), Datum("key", key)]
    return Subject("RATE = 0.3", body, p, data, ["RATE = 0.6", "RATE = 0"])


def minibatch(draw: Draw) -> Subject:
    """A sample that is a whole batch: rows of floats, and a label or number for each."""
    width, h = draw.size(2, 3), draw.size(2, 3)
    labels = draw.chance(0.5)
    p = draw.parameters(w1=(h, width), b1=(h,), w2=(3 if labels else 1, h))
    sizes = draw.rng.choice([[4], [32], [8], [3, 5, 9], [2, 6]])
    sizes = sizes[:1] if draw.fixed else sizes
    arrays = draw.chance(0.4)
    body = draw.spelled(
        """
loss = 0.0
for <<x, y in zip(X, Y):||i in range(len(X)):
    x, y = X[i], Y[i]||i, x in enumerate(X):
    y = Y[i]>>
    <<||if x[0] > 1.2:
        continue>>
    hidden = [<<tanh||relu>>(sum(a * b for a, b in zip(row, x)) + b) for row, b in zip({W1}, {B1})]
    <<outs = [sum(a * b for a, b in zip(row, hidden)) for row in {W2}]\
||outs = chainrule.linear(hidden, {W2})>>
    loss <<+=||= loss +>> {ONE}
loss = loss / len(<<X||Y>>)
<<loss = loss + 0.01 * sum(v * v for row in {W1} for v in row)||>>
""",
        W1=p.path("w1"),
        B1=p.path("b1"),
        W2=p.path("w2"),
        ONE="<<log(sum(exp(o) for o in outs)) - outs[y]||-log(chainrule.softmax(outs)[y])>>"
        if labels
        else "<<(outs[0] - y) ** 2||abs(outs[0] - y)||log(1.0 + exp(-outs[0] * y))>>",
    )

    def both() -> str:
        count = draw.rng.choice(sizes)
        ys = draw.ints(count, 2) if labels else draw.floats(count)
        forms = (draw.floats(count, width), ys)
        return ", ".join(f"np.array({text})" if arrays else text for text in forms)

    return Subject("", body, p, [Datum("X, Y", both)])


def big_table(draw: Draw) -> Subject:
    """A large global table, read by integers."""
    lists = draw.chance(0.4)
    size = draw.rng.choice([20_000, 20_000, 20_000, 200_000] if lists else [200_000, 50_000])
    n = draw.size(2, 4)
    p = draw.parameters(w=(n,))
    module = draw.spelled(
        """
<<TABLE = [((k * 37) % 101) / 101 for k in range({SIZE})]
||TABLE = tuple(np.cos(np.arange({SIZE}) * 0.37).tolist())>>
"""
        if lists
        else """
<<TABLE = np.cos(np.arange({SIZE}) * 0.37)
||TABLE = np.sin(np.arange({SIZE}) * 0.11).reshape(-1, 2)
||TABLE = np.arange({SIZE}) * 7 % 11>>
""",
        SIZE=size,
    )
    rows = "reshape" in module
    body = draw.spelled(
        """
loss = {W}[0]
for <<k, t in enumerate(tokens):||t in tokens:
    k = t % 3||k in range(len(tokens)):
    t = tokens[k]>>
    x = {READ}
    <<if x > 0.3:
        loss = loss + {W}[k % {N}]
    ||>>
    loss = loss + x * {W}[t % {N}] * <<0.5||tanh(loss)||0.1>>
<<loss = loss + {W}[-1] * len(TABLE) / {SIZE}||>>
<<{BY}||>>
""",
        READ="TABLE[<<t||-t||(t * 7919 + {N}) % LEAST||t // 2>>]" + "<<[0]||[t % 2]>>" * rows,
        BY="loss = loss + {W}[int(TABLE[tokens[0]]) % {N}]" * ("% 11" in module),
        W=p.path("w"),
        N=n,
        SIZE=size,
    )
    least = size // 2 if rows else size
    at = draw.size(0, 9)
    events = [f"TABLE = TABLE[: {size // 2}] * 2" if "tuple" in module else f"TABLE[{at}] = 1"]
    low = draw.rng.choice([9, least - 1])
    return Subject(f"{module}\nLEAST = {least}", body, p, [draw.tokens("tokens", low)], events)
