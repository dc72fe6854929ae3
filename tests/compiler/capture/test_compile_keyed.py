"""Containers that a function builds under integer arguments: they are steps of a recording."""

# ruff: noqa: B905, RUF007, E721, C401 - written as people write

import collections
import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from compile_twins import assert_eagers_outcome, recordings

import chainrule
from chainrule import exp

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


def counts_by_get(p, ts):
    counts = {}
    for t in ts:
        counts[t] = counts.get(t, 0) + 1
    return sum(n * p[t] ** 2 for t, n in counts.items())


def counter(p, ts):
    return sum(n * exp(p[t]) * (i + 1) for i, (t, n) in enumerate(Counter(ts).items()))


def counter_of_module(p, ts):
    c = collections.Counter(ts)
    return sum(c[t] * exp(p[t]) for t in range(5)) + p[0] * len(c)


def sums_by_key(p, ts):
    acc = defaultdict(float)
    for k, t in enumerate(ts):
        acc[t] += p[k % 5] * k
    return sum(v * v * p[t] for t, v in acc.items())


def number_of_different(p, ts):
    return p[0] * len(set(ts)) + sum(p[t] for t in ts)


def unique(p, ts):
    tot = 0.0
    for t in set(ts):
        tot = tot + p[t] * p[0]
    return tot


def counts_of_pairs(p, ts):
    total = 0.0
    for (a, b), n in Counter(zip(ts, ts[1:])).items():
        total = total - n * p[a] * p[b] ** 2
    return total


def normalised(p, ts):
    d = defaultdict(float)
    for i, t in enumerate(ts):
        d[t] += exp(p[i])
    z = sum(d.values())
    for k in d:
        d[k] = d[k] / z
    return sum(p[k] * v for k, v in d.items())


def empties(p, ts):
    g = defaultdict(list)
    for t in ts:
        g[t]
    g[ts[0]].append(p[1])
    return sum((sum(x) + 1) * p[k] for k, x in g.items())


def grow(p, ts):
    g = defaultdict(int)
    for t in ts:
        g[t] += 1
    n = 0
    for t in list(g):
        n += g[(t + 1) % 5]
    return p[0] * n * len(g)


def setcomp(p, ts):
    s = {t % 3 for t in ts}
    return sum(p[t] for t in s) * len(s)


def setiter(p, ts):
    s = set()
    for t in ts:
        s.add(t * 7 - 9)
    out = 1.0
    for t in s:
        out = out * (t + p[0]) + p[t % 5]
    return out


def defmix(p, ts):
    d = {}
    for i, t in enumerate(ts):
        d[t] = d.get(t, 1.5) * p[i] + d.get(t - 1, 0)
    return sum(d.values())


def tuplekeys(p, ts):
    d = defaultdict(float)
    for i, (a, b) in enumerate(zip(ts, ts[1:])):
        d[a - 2, b] += p[i]
    return sum(v * v * p[a] * p[b] for (a, b), v in d.items())


def isdict(p, ts):
    d = {}
    for t in ts:
        d[t] = 1
    return p[0] * isinstance(d, dict) + p[1] * (type(d) is dict) + p[2] * (type(d) == dict) + len(d)


def kept_values(p, ts):
    d = {}
    for i, t in enumerate(ts):
        d[t] = (p[i], i)
    return sum(a * b for a, b in d.values())


def rowslist(p, ts):
    d = {}
    for i, t in enumerate(ts):
        d[t] = [p[i], p[0] * i]
    return sum(d[t][0] * d[t][1] for t in ts)


def unpack(p, ts):
    k, *rest = set(ts)
    (a, b), *more = Counter(ts).items()
    return p[k] * len(rest) + p[a] * b + len(more)


def inverse(p, ts):
    d = {t: i for i, t in enumerate(ts)}
    e = {v: k for k, v in d.items()}
    return sum(p[k] * (i + 1) for i, k in e.items()) + len(e)


def uniq_order(p, ts):
    u = list(dict.fromkeys(ts))
    return sum(p[t] * (i + 1) for i, t in enumerate(u))


def frozen(p, ts):
    s = frozenset(ts)
    return sum(p[t] for t in s) * p[0] + len(s)


def numpys_integers(p, ts):
    a = np.array(ts)
    d = {}
    for t in a:
        d[t] = d.get(t, 0) + 1
    return sum(p[k] * v for k, v in d.items()) * len(set(a))


def sumset(p, ts):
    s = set(ts)
    return p[0] * sum(s) + p[1] * max(s) + p[2] * min(s) + p[3] * len(s)


def bigints(p, ts):
    d = {}
    for t in ts:
        d[t * 2**62 - 2**61] = d.get(t * 2**62 - 2**61, 0) + 1
    s = set(t * 2**62 - 2**61 for t in ts)
    tot = 0.0
    for x in s:
        tot = tot * 0.5 + p[x % 5]
    return tot + sum(n * n for n in d.values()) * p[0]


def stored_while_gone_through(p, ts):
    d = {}
    for t in ts:
        d[t] = 1
    for k in d:
        d[k] = d[k] + len(d)
    return sum(p[k] * v for k, v in d.items())


@pytest.mark.parametrize(
    ("f", "most"),
    [
        (counts_by_get, 5),
        (counter, 5),
        (counter_of_module, 1),
        (sums_by_key, 5),
        (number_of_different, 1),
        (unique, 5),
        (counts_of_pairs, 5),
        (normalised, 5),
        (empties, 5),
        (grow, 5),
        (setcomp, 5),
        (setiter, 5),
        (defmix, 5),
        (tuplekeys, 5),
        (isdict, 1),
        (kept_values, 5),
        (rowslist, 1),
        (unpack, 5),
        (inverse, 5),
        (uniq_order, 5),
        (frozen, 5),
        (numpys_integers, 5),
        (sumset, 5),
        (bigints, 5),
        (stored_while_gone_through, 5),
    ],
)
def test_there_is_a_recording_for_each_number_of_keys(f, most):
    assert recordings(compared(f)) <= most


def seen(p, ts):
    s = set()
    total = 0.0
    for t in ts:
        if t not in s:
            total = total + p[t] ** 2
            s.add(t)
    return total


def counts_by_branch(p, ts):
    d = {}
    for t in ts:
        if t in d:
            d[t] += 1
        else:
            d[t] = 1
    return sum(p[t] * n for t, n in d.items())


def setcond(p, ts):
    s = set()
    tot = 0.0
    for t in ts:
        if t > 1 and t not in s:
            s.add(t)
            tot = tot + p[t]
        elif t in s:
            tot = tot * 0.5
        else:
            s.add(t + 1)
    return tot + len(s) * p[0]


def dictcond(p, ts):
    d = {}
    for i, t in enumerate(ts):
        if t > 1:
            d[t] = d.get(t, 0.0) + p[i]
        else:
            d[t + 1] = p[t]
    return sum(v * v * p[k % 5] * (i + 1) for i, (k, v) in enumerate(d.items()))


def dictcond2(p, ts):
    d = {}
    for i, t in enumerate(ts):
        if t in d:
            if d[t] > 1:
                d[t] += 1
            else:
                d[t] = 5
        elif i < 3:
            d[t] = 1
    return sum(p[k] * v for k, v in d.items()) + p[0]


def inter(p, ts):
    seen = {}
    tot = 0.0
    for i, t in enumerate(ts):
        if t in seen:
            tot = tot + p[t] / (i - seen[t])
        seen[t] = i
    return tot + p[0]


def sorted_set(p, ts):
    return sum(p[t] * (i + 1) for i, t in enumerate(sorted(set(ts))))


@pytest.mark.parametrize(
    ("f", "most"),
    [
        (seen, 8),
        (counts_by_branch, 8),
        (setcond, 8),
        (dictcond, 8),
        (dictcond2, 8),
        (inter, 8),
        (sorted_set, 8),
    ],
)
def test_branches_may_store_under_keys(f, most):
    assert recordings(compared(f)) <= most


def centroids(p, ts):
    groups = {}
    for k, t in enumerate(ts):
        groups.setdefault(t, []).append(p[k % 5] * k)
    centres = {k: sum(g) / len(g) for k, g in groups.items()}
    return sum((p[k % 5] - centres[t]) ** 2 for k, t in enumerate(ts))


def groups_by_key(p, ts):
    groups = defaultdict(list)
    for k, t in enumerate(ts):
        groups[t].append(p[k % 5] * k)
    return sum(sum(g) ** 2 / len(g) for g in groups.values())


def adjacency_of_edges(p, ts):
    nb = defaultdict(list)
    for a, b in zip(ts, ts[1:]):
        nb[a].append(b)
    return sum(p[a] * sum(p[o] for o in os) / len(os) for a, os in nb.items())


def lists_ops(p, ts):
    g = defaultdict(list)
    for i, t in enumerate(ts):
        g[t].append(p[i] * i)
    return sum(x[0] * x[-1] + max(x) - (x[1] if len(x) > 1 else 0.0) for x in g.values())


def lists_assigned(p, ts):
    d = {}
    for i, t in enumerate(ts):
        if t not in d:
            d[t] = []
        d[t].append(p[i])
    return sum(sum(v) ** 2 / len(v) for v in d.values())


def lists_assigned1(p, ts):
    d = {}
    for i, t in enumerate(ts):
        if t in d:
            d[t].append(p[i])
        else:
            d[t] = [p[i]]
    return sum(sum(v) ** 2 / len(v) for v in d.values())


def helper(p, ts):
    def group(xs, ks):
        out = {}
        for x, k in zip(xs, ks):
            out.setdefault(k, []).append(x)
        return out

    g = group(p, ts)
    return sum(max(v) - min(v) for v in g.values()) + sum(sum(v) for v in g.values())


def reset(p, ts):
    d = {}
    for i, t in enumerate(ts):
        if i % 3 == 0 or t not in d:
            d[t] = []
        d[t].append(p[i])
    return sum(sum(v) * p[k] * len(v) for k, v in d.items())


@pytest.mark.parametrize(
    ("f", "most"),
    [
        (centroids, 24),
        (groups_by_key, 24),
        (adjacency_of_edges, 24),
        (lists_ops, 24),
        (lists_assigned, 24),
        (lists_assigned1, 24),
        (helper, 24),
        (reset, 32),
    ],
)
def test_lists_under_keys_are_recorded_by_their_lengths(f, most):
    fast = compared(f, 150)
    assert recordings(fast) <= most
    assert "eager because" not in fast.report()


@pytest.mark.parametrize(
    "f",
    [
        counts_by_get,
        counter,
        counter_of_module,
        sums_by_key,
        number_of_different,
        unique,
        counts_of_pairs,
        normalised,
        empties,
        grow,
        setcomp,
        setiter,
        defmix,
        tuplekeys,
        isdict,
        kept_values,
        rowslist,
        unpack,
        inverse,
        uniq_order,
        frozen,
        numpys_integers,
        sumset,
        bigints,
        stored_while_gone_through,
        seen,
        counts_by_branch,
        setcond,
        dictcond,
        dictcond2,
        inter,
        sorted_set,
        centroids,
        groups_by_key,
        adjacency_of_edges,
        lists_ops,
        lists_assigned,
        lists_assigned1,
        helper,
        reset,
    ],
)
def test_bits_are_eagers_on_the_tape(f):
    compared(f, 30, lift=False)


def test_a_file_does_not_hold_the_order_of_a_set(tmp_path):
    fast = compared(unique)
    with pytest.raises(chainrule.SaveError, match="goes through a set in its order"):
        fast.save(tmp_path / "unique.safetensors")


def test_a_file_holds_what_is_counted_under_keys(tmp_path):
    compared(counter).save(tmp_path / "counter.safetensors")
    again = chainrule.load(tmp_path / "counter.safetensors")
    p, ts = [0.1, 0.2, 0.3, 0.4, 0.5], [3, 1, 1, 4, 3]
    assert again.value_and_grad(p, ts) == chainrule.value_and_grad(counter)(p, ts)


def test_the_report_says_that_it_is_the_number_of_items():
    fast = compared(groups_by_key, 12)
    line = groups_by_key.__code__.co_firstlineno + 4
    assert f"the number of items is static at test_compile_keyed.py:{line}" in fast.report()
