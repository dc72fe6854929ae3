"""Containers that a function builds under integer arguments: whatever is done with them."""

# ruff: noqa: B905, RUF007, RUF017 - written as people write

import copy
import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from compile_twins import assert_eagers_outcome

import chainrule

pytestmark = pytest.mark.usefixtures("unchecked")


def compared(f, count=60, **options):
    """The function compiled, after calls with many tokens that gave eager's results."""
    rng = random.Random(f.__name__)
    fast = chainrule.compile(f, on_fallback="eager", **options)
    eager = chainrule.value_and_grad(f)
    for _ in range(count):
        p = [rng.uniform(-1, 1) for _ in range(5)]
        arguments = p, [rng.randrange(5) for _ in range(5)]
        assert_eagers_outcome(fast, eager, *arguments)
    return fast


def maxkey(p, ts):
    c = Counter(ts)
    return p[max(c, key=c.get)] * 2


def maxkey2(p, ts):
    c = Counter(ts)
    k = max(sorted(c), key=lambda t: c[t])
    return p[k] ** 2 * c[k]


def most_common(p, ts):
    return sum(p[t] * n for t, n in Counter(ts).most_common(2))


def dict_of(p, ts):
    c = Counter(ts)
    d = dict(c)
    e = {**c}
    return sum(p[t] * n for t, n in d.items()) + len(e)


def deleted(p, ts):
    d = {}
    for i, t in enumerate(ts):
        d[t] = i
    if ts[0] in d:
        del d[ts[0]]
    return sum(p[t] * n for t, n in d.items()) + p[0]


def popped(p, ts):
    d = {}
    for i, t in enumerate(ts):
        d[t] = p[i]
    x = d.pop(ts[0])
    return sum(v * v for v in d.values()) + x


def alias(p, ts):
    e = []
    d = {}
    for i, t in enumerate(ts):
        d.setdefault(t, e).append(p[i])
    return sum(e) * len(d)


def alias2(p, ts):
    d = {}

    def g(k, e, x):
        d.setdefault(k, e)
        e.append(x)

    for i, t in enumerate(ts):
        g(t, [], p[i])
    return sum(sum(v) * p[k] for k, v in d.items())


def lists_sorted(p, ts):
    g = defaultdict(list)
    for i, t in enumerate(ts):
        g[t].append(p[i] * i)
    for x in g.values():
        x.sort()
    return sum(x[0] for x in g.values())


def lists_np(p, ts):
    g = defaultdict(list)
    for i, t in enumerate(ts):
        g[t].append(p[i] * i)
    return sum(np.mean(x) for x in g.values())


def lists_pop(p, ts):
    g = defaultdict(list)
    for i, t in enumerate(ts):
        g[t].append(p[i])
    return sum(g[t].pop() * i for i, t in enumerate(ts))


def lists_handle(p, ts):
    g = defaultdict(list)
    first = g[ts[0]]
    for i, t in enumerate(ts):
        g[t].append(p[i])
    return sum(first) * len(g) + (first is g[ts[0]]) * p[0]


def setops(p, ts):
    a, b = set(ts[:3]), set(ts[2:])
    return p[0] * len(a & b) + p[1] * len(a | b) + p[2] * len(a - b)


def setdiscard(p, ts):
    s = set(ts)
    s.discard(2)
    return sum(p[t] for t in s) + p[0]


def setcond_iter(p, ts):
    s = set()
    tot = 0.0
    for t in ts:
        if t > 1:
            s.add(t)
    for t in s:
        tot = tot * p[0] + p[t]
    return tot + p[1]


def floatcond(p, ts):
    d = {}
    for i, t in enumerate(ts):
        if p[i] > 0:
            d[t] = p[i]
    return sum(p[k] * v for k, v in d.items()) + p[0]


def getnone(p, ts):
    d = {}
    tot = 0.0
    for i, t in enumerate(ts):
        x = d.get(t)
        if x is None:
            d[t] = p[i]
        else:
            tot = tot + x
    return tot + p[0]


def keyerror(p, ts):
    d = {}
    for t in ts[:3]:
        d[t] = p[t]
    return d[ts[4]] * 2


def boolkeys(p, ts):
    d = Counter(t > 2 for t in ts)
    return p[0] * d[True] - p[1] * d[False]


def mixkeys(p, ts):
    d = {}
    for t in ts:
        d[t] = p[t]
    d[2.0] = p[0]
    d["a"] = p[1]
    return sum(d.values())


def tuplekeys2(p, ts):
    d = defaultdict(int)
    for a, b in zip(ts, ts[1:]):
        d[min(a, b), max(a, b)] += 1
    return sum(n * p[a] * p[b] for (a, b), n in sorted(d.items()))


def nested(p, ts):
    d = {}
    for a, b in zip(ts, ts[1:]):
        d.setdefault(a, Counter())[b] += 1
    return sum(n * p[a] * p[b] for a, c in d.items() for b, n in c.items())


def matched(p, ts):
    d = {}
    for t in ts:
        d[t] = 2
    match d:
        case {3: x}:
            return p[0] * x
        case {}:
            return p[1]


def matchseq(p, ts):
    d = defaultdict(list)
    for i, t in enumerate(ts):
        d[t].append(p[i])
    tot = 0.0
    for g in d.values():
        match g:
            case [a]:
                tot = tot + a
            case [a, b]:
                tot = tot + a * b
            case [a, *rest]:
                tot = tot - a + len(rest)
    return tot


def text(p, ts):
    d = {}
    for t in ts:
        d[t] = 1
    return p[0] * len(str(d))


def eqd(p, ts):
    d = {}
    e = {1: 1, 2: 1}
    for t in ts:
        d[t] = 1
    return p[0] * (d == e) + p[1] * (d != e) + p[2] * (d.keys() == {1, 2})


def arrays(p, ts):
    d = {}
    for i, t in enumerate(ts):
        d[t] = d.get(t, np.zeros(2)) + np.array([p[i], p[0]])
    return sum((v * v).sum() for v in d.values())


def arrays_inplace(p, ts):
    d = {}
    z = np.zeros(2, dtype=object)
    for i, t in enumerate(ts):
        if t not in d:
            d[t] = z
        d[t] += p[i]
    return sum((v * v).sum() for v in d.values()) + z[0]


def rowsmut(p, ts):
    d = {}
    for i, t in enumerate(ts):
        d[t] = [p[i], p[0] * i]
    for t in ts:
        d[t][0] = d[t][0] * 2
    return sum(x[0] * x[1] for x in d.values())


def memo(p, ts):
    cache = {}

    def f(n):
        if n in cache:
            return cache[n]
        v = p[0] if n < 1 else f(n - 1) * p[n % 5] + 1
        cache[n] = v
        return v

    return sum(f(t) for t in ts)


def anyall(p, ts):
    d = Counter(ts)
    return (
        p[0] * any(n > 1 for n in d.values())
        + p[1] * all(n < 3 for n in d.values())
        + p[2] * max(d.values())
    )


def updated(p, ts):
    c = Counter()
    c.update(ts)
    c.update(ts[:2])
    d = {}
    d.update({1: 2})
    d.update(zip(ts, ts))
    return sum(p[t] * n for t, n in c.items()) + sum(p[t] * v for t, v in d.items())


def copied(p, ts):
    c = Counter(ts)
    d = c.copy()
    e = copy.copy(c)
    d[1] += 5
    return sum(p[t] * n for t, n in c.items()) + sum(e.values()) * p[0] + d[1]


def caught(p, ts):
    d = {}
    for t in ts[:2]:
        d[t] = p[t]
    tot = p[0]
    for t in ts:
        try:
            tot = tot + d[t]
        except KeyError:
            tot = tot * 0.5
    return tot


def condalias(p, ts):
    e = []
    d = {}
    for i, t in enumerate(ts):
        d[t] = e if i % 2 else []
        d[t].append(p[i])
    return sum(sum(v) for v in d.values()) + sum(e) * p[0]


def condalias2(p, ts):
    e = []
    d = {}
    for i, t in enumerate(ts):
        d.setdefault(t, e if i % 2 else []).append(p[i])
    return sum(sum(v) for v in d.values()) + sum(e) * p[0]


def callalias(p, ts):
    e = []
    d = {}

    def g(x):
        return e

    for i, t in enumerate(ts):
        d[t] = g([])
        d[t].append(p[i])
    return sum(sum(v) for v in d.values()) + sum(e) * p[0]


def callalias2(p, ts):
    e = []
    d = {}

    def g(x):
        return e

    for i, t in enumerate(ts):
        d.setdefault(t, g([])).append(p[i])
    return sum(sum(v) for v in d.values()) + sum(e) * p[0]


def chainalias(p, ts):
    d = {}
    tot = 0.0
    for i, t in enumerate(ts):
        d[t] = mine = []
        d[t].append(p[i])
        tot = tot + sum(mine)
        mine.append(p[0])
    return sum(sum(v) for v in d.values()) * 2 + tot


def walrus(p, ts):
    d = {}
    tot = 0.0
    for i, t in enumerate(ts):
        d.setdefault(t, (mine := [])).append(p[i])
        tot = tot + sum(mine)
    return sum(sum(v) for v in d.values()) * 2 + tot


def oldhandle(p, ts):
    d = {}
    for i, t in enumerate(ts):
        if t not in d:
            d[t] = []
        g = d[t]
        g.append(p[i])
        d[t] = [p[0]]
        g.append(p[1])
        d[t].append(sum(g))
    return sum(sum(v) for v in d.values())


def handle_after(p, ts):
    d = {}
    hs = []
    for i, t in enumerate(ts):
        d.setdefault(t, []).append(p[i])
        hs.append(d[t])
    return sum(sum(x) * (i + 1) for i, x in enumerate(hs))


def itself(p, ts):
    d = {}
    for i, t in enumerate(ts):
        d.setdefault(t, []).append(p[i])
    d2 = d
    for t in ts[:2]:
        d2[t].append(p[0])
    return sum(sum(v) * len(v) for v in d.values()) + (d is d2) * p[0]


def adjacency(p, ts):
    nb = {}
    for a, b in zip(ts, ts[1:]):
        nb.setdefault(a, []).append(b)
        nb.setdefault(b, []).append(a)
    tot = 0.0
    for n, others in nb.items():
        m = sum(p[o] for o in others) / len(others)
        tot = tot + (p[n] - m) ** 2
    return tot


def callback(p, ts):
    e = []
    d = {}
    sum(map(d.setdefault, ts, [e] * 5), [])
    for i, t in enumerate(ts):
        d[t].append(p[i])
    return sum(sum(v) for v in d.values()) + sum(e) * p[0]


@pytest.mark.parametrize(
    "f",
    [
        maxkey,
        maxkey2,
        most_common,
        dict_of,
        deleted,
        popped,
        alias,
        alias2,
        lists_sorted,
        lists_np,
        lists_pop,
        lists_handle,
        setops,
        setdiscard,
        setcond_iter,
        floatcond,
        getnone,
        keyerror,
        boolkeys,
        mixkeys,
        tuplekeys2,
        nested,
        matched,
        matchseq,
        text,
        eqd,
        arrays,
        arrays_inplace,
        rowsmut,
        memo,
        anyall,
        updated,
        copied,
        caught,
        condalias,
        condalias2,
        callalias,
        callalias2,
        chainalias,
        walrus,
        oldhandle,
        handle_after,
        itself,
        adjacency,
        callback,
    ],
)
def test_whatever_else_is_done_with_them_gives_eagers_results(f):
    compared(f)
