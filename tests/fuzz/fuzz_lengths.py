"""Subjects of several lists, each of which has another length in every call."""

from __future__ import annotations

from fuzz_drawing import Draw, Subject

PAIRS = """
left = [<<tanh({W}[0] * x)||{W}[0] * x + 0.5||x * x * {W}[1]>> for x in xs]
right = [<<{W}[1] * y||tanh({W}[1] + y)>> for y in ys]
loss = <<sum((a - b) ** 2 for a in left for b in right)\
||sum(relu(1.0 - a + b) for a in left for b in right)\
||sum(exp(-((a - b) ** 2)) for a in left for b in right)>>
loss = loss <</ (len(xs) * len(ys))||/ len(xs)||* 0.1>>
<<||loss = loss - sum(exp(-((a - b) ** 2)) for a in left for b in left) / len(xs) ** 2
>>"""
SHARES = """
loss = <<0.0||{W}[1] * 0.1>>
for <<j, y in enumerate(ys)||j, y in enumerate(reversed(ys))>>:
    weights = [exp(<<{W}[0] * x * y||-(({W}[0] * (x - y)) ** 2)||{W}[0] * x + {W}[1]>>) for x in xs]
    mixed = sum(w * x for w, x in zip(weights, xs)) / sum(weights)
    loss = loss + <<(mixed - y) ** 2||(mixed - {W}[1] * y) ** 2 / (1 + j)||tanh(mixed * y)>>
"""
STATES = """
h = <<0.0||{W}[1]>>
for x in <<xs||xs[::-1]>>:
    h = tanh({W}[0] * h + {W}[1] * x)
<<loss = h * 0.5
||loss = 0.0
>>for y in ys:
    <<h = tanh({W}[1] * h - y)||h = tanh({W}[1] * h - {W}[0] * y)>>
    loss = loss + <<h||h * y||(h - y) ** 2>>
"""
GROUPS = """
loss = 0.0
for <<rows in (xs, ys, zs)||name, rows in {"a": xs, "b": ys, "c": zs}.items()>>:
    mean = sum(rows) / len(rows)
    for r in rows:
        loss = loss + <<(r - {W}[0] * mean) ** 2||log(1.0 + exp({W}[0] * r + {W}[1]))>>
    <<||loss = loss / len(rows)>>
"""
HIDDEN = """
<<||if len(xs) == <<len(ys)||4>>:
    loss = loss + {W}[1] * xs[-1] ** 3||loss = loss + (len(xs) * len(ys) % 3) * {W}[0] * {W}[1]
||loss = loss if len(xs) < len(ys) else loss - ys[0] * {W}[0] ** 3>>
"""


def independent(draw: Draw) -> Subject:
    """Two lists, or three, and perhaps something else at some combinations of their lengths."""
    p = draw.parameters(w=(2,))
    body = draw.spelled(draw.rng.choice([PAIRS, SHARES, STATES, GROUPS]) + HIDDEN, W=p.path("w"))
    lists = [draw.reals(name, 1, draw.size(4, 9)) for name in ("xs", "ys", "zs")]
    return Subject("", body, p, lists)
