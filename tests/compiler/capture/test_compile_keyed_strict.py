"""Containers under integer arguments: what a stand-in does not know is done by a true container."""

# ruff: noqa: B007, B008, B010, B905, C417, RUF007, RUF017, SIM108, SIM113, SIM118, UP031
# ruff: noqa: UP032 - written as people write

import collections
import copy
import functools
import heapq
import itertools
import operator
import random
from collections import Counter, abc, defaultdict, deque

import numpy as np
import pytest
from compile_twins import outcome

import chainrule
from chainrule.compiler.capture import tracing

pytestmark = pytest.mark.usefixtures("unchecked")
KIND = type
LENGTH = len
KINDS = (
    "Hashable Reversible Sized Container Mapping Set Sequence MutableSet MutableMapping Callable "
    "Collection MutableSequence KeysView Iterable"
)


def order(p, it):
    r = p[0]
    for i, k in enumerate(it):
        r = r * p[1] + p[i % 5] * k
    return r


def filled(ts):
    d = {}
    for i, t in enumerate(ts):
        d[t] = i + 1
    return d


def grouped(p, ts):
    d = defaultdict(list)
    for i, t in enumerate(ts):
        d[t].append(p[i % 5])
    return d


# --- items are taken at once, and looked at again at each step ------------------------------------


def late_generator(p, ts):
    d = filled(ts[:3])
    g = (p[k % 5] for k in d)
    d[ts[3]] = 1
    return sum(g)


def late_zip(p, ts):
    s = set(ts[:3])
    g = zip(s, range(9))
    s.add(ts[3])
    return sum(p[k % 5] for k, _ in g)


def late_enumerate(p, ts):
    d = filled(ts[:3])
    g = enumerate(d)
    d[ts[3]] = 1
    return sum(p[k % 5] * i for i, k in g)


def late_map(p, ts):
    d = filled(ts[:3])
    g = map(lambda k: p[k % 5], d)
    d[ts[3]] = 1
    return sum(g)


def late_values(p, ts):
    d = filled(ts[:3])
    g = (v * p[0] for v in d.values())
    d[ts[3]] = 7
    return sum(g)


def late_items(p, ts):
    d = filled(ts[:3])
    g = zip(d.items())
    d[ts[3]] = 7
    return sum(p[k % 5] * v for ((k, v),) in g)


def late_list(p, ts):
    d = grouped(p, ts[:3])
    g = (x * p[0] for x in d[ts[0]])
    d[ts[3]].append(p[4])
    return sum(g)


def appended_at_the_end(p, ts):
    d = grouped(p, ts)
    n = 0.0
    for x in d[ts[0]]:
        n = n + x
        if x is d[ts[0]][0]:
            d[ts[0]].append(p[1])
    return n


def stored_at_the_last(p, ts):
    d = filled(ts[:3])
    n = len(d)
    i = 0
    for k in d:
        i += 1
        if i == n:
            d[ts[3]] = 1
    return p[0] * len(d)


def added_in_loop(p, ts):
    s = set(ts[:3])
    for k in s:
        s.add(ts[4])
    return p[0] * len(s)


def two_views(p, ts):
    d = filled(ts)
    a, b = d.keys(), d.values()
    d[ts[0]] = 9
    return sum(p[k % 5] * v for k, v in zip(a, b)) + len(a) * p[1]


def view_read_later(p, ts):
    d = filled(ts[:2])
    v = d.items()
    d[ts[2]] = 5
    r = sum(p[k % 5] * x for k, x in v)
    d[ts[3]] = 6
    return r + sum(p[k % 5] * x * x for k, x in v)


def through_an_alias(p, ts):
    d = filled(ts[:3])
    e = d
    for k in d:
        e[ts[3]] = 4
    return sum(p[k % 5] * v for k, v in d.items()) * len(e)


def max_that_stores(p, ts):
    d = filled(ts[:3])

    def key(k):
        d[ts[3]] = 1
        return -k

    return p[max(d, key=key) % 5]


# --- C code that goes through a container in another order, or all at once ------------------------


def set_of_set(p, ts):
    s = set()
    for t in ts:
        s.add(t)
    return order(p, set(s))


def set_of_dict(p, ts):
    return order(p, set(filled(ts)))


def set_of_keys(p, ts):
    return order(p, set(filled(ts).keys()))


def set_of_counter(p, ts):
    return order(p, set(Counter(ts)))


def starred_set(p, ts):
    s = set(ts)
    return order(p, {*s})


def starred_sets(p, ts):
    s = set(ts)
    return order(p, {1, *s, 40})


def starred_list(p, ts):
    s = set(ts)
    return order(p, [*s])


def starred_dict(p, ts):
    d = filled(ts)
    return order(p, {**d}) + len(dict(d)) * p[0]


def starred_call(p, ts):
    def f(*xs):
        return order(p, xs)

    return f(*set(ts))


def starred_names(p, ts):
    a, *b = set(ts)
    return order(p, b) + p[0] * a


def unpacked(p, ts):
    a, b = set(ts[:2]) if ts[0] != ts[1] else (1, 2)
    return order(p, [a, b])


def unpacks_what_c_makes(p, ts):
    a, b = itertools.starmap(set, [(set(ts),), (set(ts[2:]),)])
    return order(p, a) + order(p, b)


def spreads_what_c_makes(p, ts):
    s = set(ts)
    xs = [*itertools.starmap(frozenset, [(s,)])]
    a, *_ = itertools.starmap(set, [(s,)])
    return order(p, xs[0]) + order(p, a)


def starred_set_call(p, ts):
    s, a = set(ts), {1, 2, 33}
    a.update(*[s])
    return order(p, set(*[s])) + order(p, a)


def loops_over_what_c_makes(p, ts):
    s = set(ts)
    r = p[0]
    for x in itertools.starmap(set, [(s,), (s,)]):
        r = r + order(p, x)
    return r + sum(order(p, x) for x in map(set, [s]))


def partial_set(p, ts):
    s = set(ts)
    return order(p, functools.partial(set, s)())


def frozen_set(p, ts):
    return order(p, frozenset(set(ts)))


def updated(p, ts):
    s, a = set(ts), {1, 2, 33}
    a.update(s)
    return order(p, a)


def united(p, ts):
    a = {1, 2, 33}
    return order(p, a.union(set(ts))) + order(p, a | set(ts)) + order(p, a - set(ts))


def updates_itself(p, ts):
    s = set(ts[:3])
    s.update(ts[3:])
    s |= {1}
    return order(p, s)


def extended(p, ts):
    xs = [1]
    xs.extend(filled(ts))
    xs += set(ts)
    xs[:0] = filled(ts).values()
    return order(p, xs)


def counter_of(p, ts):
    c = Counter(filled(ts))
    return sum(p[k % 5] * v for k, v in c.items())


def counter_of_keys(p, ts):
    return order(p, Counter(filled(ts).keys()))


def dict_from_keys(p, ts):
    return order(p, dict.fromkeys(set(ts), 1))


def dict_from_items(p, ts):
    return order(p, dict(filled(ts).items()))


def numpys_array(p, ts):
    return p[0] * np.array(list(filled(ts).values())).sum() + np.array(grouped(p, ts)[ts[0]])[0]


def numpys_of_list(p, ts):
    return sum(np.sum(x) for x in grouped(p, ts).values())


def queued(p, ts):
    return order(p, deque(set(ts), 3))


def heaped(p, ts):
    return order(p, heapq.nsmallest(2, set(ts)))


def chained(p, ts):
    return order(p, itertools.chain(set(ts), filled(ts)))


def chained_lists(p, ts):
    return sum(itertools.chain.from_iterable(grouped(p, ts).values()))


def filtered(p, ts):
    return order(p, filter(lambda k: k > 3, filled(ts)))


def reduced(p, ts):
    return p[0] * functools.reduce(operator.add, filled(ts).values())


def explicit_iterator(p, ts):
    it = iter(filled(ts))
    return p[next(it) % 5]


def reversed_dict(p, ts):
    return order(p, reversed(filled(ts)))


def yielded(p, ts):
    def g():
        yield from set(ts)

    return order(p, g())


def joined(p, ts):
    return p[0] * len(",".join(map(str, filled(ts))))


def taken_by_builtins(p, ts):
    s, d = set(ts), filled(ts)
    r = order(p, list(s)) + order(p, tuple(d)) + order(p, sorted(d)) + sum(s) * p[0]
    r = r + min(s) * p[1] + max(d.values()) * p[2] + any(d) * p[3] + all(s) * p[4]
    return r + sum(p[k % 5] * i for i, k in enumerate(s)) + order(p, [a * b for a, b in zip(s, d)])


def sums_of_lists(p, ts):
    d = grouped(p, ts)
    return len(sum(d.values(), [])) * p[0] + sum(max(x) for x in d.values())


def largest_list(p, ts):
    d = grouped(p, ts)
    return sum(max(d.values(), key=len)) + len(max(d[ts[0]], d[ts[1]], key=len)) * p[0]


def set_members_in(p, ts):
    d = filled(ts)
    return p[0] * (3 in d.values()) + p[1] * (ts[0] in d.keys()) + p[2] * ((1, 1) in d.items())


# --- what can be asked ----------------------------------------------------------------------------


def has_append(p, ts):
    d = filled(ts)
    return d[ts[0]] * p[0] * (5 if hasattr(d, "append") else 1)


def has_own(p, ts):
    names = "put put_list tally item contains size log kind emptied of_lists in_order plain refuse"
    s, d, x = set(ts), filled(ts), grouped(p, ts)[ts[0]]
    n = 0
    for name in (*names.split(), "taken", "asked", "__dict__", "_recorder", "_cell", "_public"):
        n += hasattr(s, name) + 2 * hasattr(d, name) + 4 * hasattr(x, name)
        n += hasattr(d.items(), name)
    return p[0] * len(s) * (n + 1)


def get_size(p, ts):
    s = set(ts)
    return p[0] * len(s) * (5 if getattr(s, "size", None) is not None else 1)


def frozen_add(p, ts):
    s = frozenset(ts)
    return p[0] * len(s) * (5 if hasattr(s, "add") else 1)


def frozen_adds(p, ts):
    s = frozenset(ts)
    s.add(1)
    return p[0] * len(s)


def has_dict_names(p, ts):
    d = Counter(ts)
    n = sum(hasattr(d, x) for x in ("most_common", "get", "default_factory", "__missing__"))
    return p[0] * len(d) * n


def factory(p, ts):
    d = grouped(p, ts)
    return p[0] * (d.default_factory is list) + len(d)


def kinds(p, ts):
    d, s, x = filled(ts), set(ts), grouped(p, ts)[ts[0]]
    n = 1
    every = [getattr(abc, name) for name in KINDS.split()]
    for kind in (*every, dict, set):
        for y in (d, s, x, d.keys(), d.items(), d.values(), frozenset(ts), Counter(ts)):
            n = n * 2 + isinstance(y, kind)
    return p[0] * (n % 1_000_003) * len(s)


def hashable(p, ts):
    d = filled(ts)
    return p[0] * len(d) * (5 if isinstance(d, abc.Hashable) else 1)


def unseen_isinstance(p, ts):
    d = filled(ts)
    look = isinstance
    return p[0] * len(d) * (5 if look(d, abc.Hashable) else 1)


def unseen_type(p, ts):
    d = filled(ts)
    return p[0] * len(d) * (5 if KIND(d) is dict else 1)


def mapped_type(p, ts):
    d = filled(ts)
    return p[0] * len(d) * (5 if list(map(type, [d])) == [dict] else 1)


def type_as_key(p, ts):
    kinds = [k for k, _ in itertools.groupby([filled(ts), set(ts)], type)]
    return p[0] * len(set(ts)) * (kinds == [dict, set])


def unseen_length(p, ts):
    return p[0] * LENGTH(set(ts)) + sum(map(LENGTH, grouped(p, ts).values()))


def identities(p, ts):
    d = grouped(p, ts)
    return p[0] * len({id(d[t]) for t in ts}) + p[1] * (id(d[ts[0]]) == id(d[ts[0]]))


def callables(p, ts):
    d = filled(ts)
    return p[0] * (1 + callable(d)) * len(d) + callable(d.get)


def directories(p, ts):
    d = filled(ts)
    return p[0] * len(dir(d)) * len(d)


def method_names(p, ts):
    d = filled(ts)
    keys = d.keys
    return p[0] * len(keys.__qualname__) * len(keys())


def method_key(p, ts):
    d = filled(ts)
    return p[max(d, key=d.get) % 5]


def operators(p, ts):
    d = filled(ts)
    got = operator.itemgetter(ts[0])(d) + operator.getitem(d, ts[1]) + operator.contains(d, 3)
    return p[0] * got + operator.methodcaller("get", 7, 0)(d)


def sets_attribute(p, ts):
    d = filled(ts)
    d.name = 3
    return p[0] * len(d) * d.name


def sets_own_attribute(p, ts):
    s = set(ts)
    setattr(s, "kind", frozenset)
    return p[0] * len(s)


def deletes_attribute(p, ts):
    s = set(ts)
    del s.kind
    return p[0] * len(s)


def formats(p, ts):
    d = {1: 2}
    for t in ts:
        d[t] = 3
    return p[0] * len("{0[1]} {0.size}".format(d))


def special_methods(p, ts):
    d, s = filled(ts), set(ts)
    return p[0] * d.__len__() + p[1] * s.__contains__(2) + p[2] * d.__getitem__(ts[0])


def set_methods(p, ts):
    s, true = set(ts), {1, 2}
    n = true.issubset(s) + 2 * true.isdisjoint(s) + 4 * (true <= s) + 8 * (true == s)
    return p[0] * n + len({1: 1, 7: 1}.keys() & s) + p[1] * ({1: 1}.keys() == s)


def pairs_of_dict(p, ts):
    d = filled(ts)
    return sum(p[i % 5] * k * v for i, (k, v) in enumerate(sorted(d.items(), key=lambda x: -x[1])))


def of_the_class(p, ts):
    d = filled(ts)
    return p[0] * dict.get(d, ts[0]) + p[1] * len(dict.keys(d))


def match_mapping(p, ts):
    match filled(ts):
        case {3: x, **rest}:
            return p[0] * x + len(rest)
        case dict(x):
            return p[1] * len(x)


def match_list(p, ts):
    match grouped(p, ts)[ts[0]]:
        case [a, b]:
            return a * b
        case list() as x:
            return x[0] * len(x)


# --- other sides of branches ----------------------------------------------------------------------


def side_size(p, ts):
    s = set(ts)
    r = p[0]
    if ts[1] > 3:
        r = r * s.size()
    return r


def side_put(p, ts):
    s = set()
    for t in ts:
        s.add(t)
    if ts[1] > 3:
        s.put(7)
    return p[0] * len(s)


def side_item(p, ts):
    d = filled(ts)
    r = p[0]
    if ts[1] > 3:
        r = r * d.item(ts[1])
    return r


def side_set_of_set(p, ts):
    s = set(ts)
    r = p[0]
    if ts[1] > 3:
        r = order(p, set(s))
    return r


def side_of_integer(p, ts):
    if ts[1] > 3:
        r = p[0] * ts[0].value
    else:
        r = p[1]
    return r


def integer_has(p, ts):
    return p[0] * (ts[0].value if hasattr(ts[0], "value") else ts[0] * 2)


def integer_gets(p, ts):
    return p[0] * getattr(ts[0], "value", ts[0]) + getattr(ts[1] > 2, "node", 3)


def operators_is(p, ts):
    return p[0] if operator.is_(ts[0] > 2, True) else p[1] * operator.is_not(ts[1], 1)


# --- where they go --------------------------------------------------------------------------------


def in_a_list(p, ts):
    ds = [filled(ts[:2]), filled(ts[2:])]
    return sum(p[k % 5] * v for d in ds for k, v in d.items()) + (ds[0] == ds[1]) * p[0]


def in_a_dict(p, ts):
    d = {}
    for a, b in zip(ts, ts[1:]):
        d.setdefault(a, set()).add(b)
    return sum(p[a % 5] * len(s) for a, s in d.items())


def lists_of_sets(p, ts):
    d = {}
    s = set()
    for a, b in zip(ts, ts[1:]):
        s.add(b)
        d.setdefault(a, []).append(s)
    return sum(p[a % 5] * len(x) * len(x[0]) for a, x in d.items())


def tuples_of_dicts(p, ts):
    d, e = {}, {}
    for a, b in zip(ts, ts[1:]):
        e[b] = a
        d[a] = (e, p[0])
    return sum(len(x) * y * p[a % 5] for a, (x, y) in d.items())


def returned(p, ts):
    return {"a": filled(ts), "b": p[0]}


def as_default(p, ts):
    def f(k, d=filled(ts)):
        d[k] = 8
        return len(d)

    return p[0] * f(ts[0]) + f(3)


def in_a_closure(p, ts):
    d = {}

    def put(k, v):
        d[k] = v

    for i, t in enumerate(ts):
        put(t, p[i % 5])
    return sum(d.values()) * len(d)


def copies(p, ts):
    d = filled(ts)
    e, f = copy.copy(d), copy.deepcopy(d)
    e[ts[0]] = 9
    f[3] = 8
    return p[0] * sum(d.values()) + p[1] * sum(e.values()) + p[2] * len(f)


def compared_sets(p, ts):
    a, b = set(ts[:3]), set(ts[2:])
    return p[0] * (a == b) + p[1] * (a <= b) + p[2] * (a < b) + p[3] * a.isdisjoint(b)


def texts_of(p, ts):
    d = filled(ts)
    return p[0] * (len(f"{d}") + len("%s" % d) + len(repr(set(ts))))


def ordered_dict(p, ts):
    return order(p, collections.OrderedDict(filled(ts)))


def removed(p, ts):
    d, s = filled(ts), set(ts)
    d.pop(ts[0])
    s.discard(ts[0])
    s.add(ts[0] + 1)
    return order(p, d) + order(p, s)


FUNCTIONS = [f for f in list(globals().values()) if getattr(f, "__module__", "") == __name__]
PROGRAMS = [f for f in FUNCTIONS if f.__code__.co_varnames[:2] == ("p", "ts") and f is not grouped]
SMALL, LARGE = 6, 45  # tokens: many are the same, or many collide in the table of a set


def calls(f, most, count):
    rng = random.Random(f"{f.__name__} {most}")
    yield [0.1, 0.2, 0.3, 0.4, 0.5], [0, 1, 2, 0, 1, 2]
    for _ in range(count):
        yield [rng.uniform(0.1, 1) for _ in range(5)], [rng.randrange(most) for _ in range(6)]


def shown(x):
    """As text; of plain numbers, compiled functions make floats of Python's."""
    return repr(float(x) if isinstance(x, np.floating) else x)


def test_there_are_programs():
    assert len(PROGRAMS) > 70


UNSEEN = (unseen_type, type_as_key, identities, callables)  # what no stand-in is told of


@pytest.mark.parametrize("f", [f for f in PROGRAMS if f not in UNSEEN], ids=lambda f: f.__name__)
def test_stand_ins_refuse_whatever_else_is_named(f, monkeypatch):
    monkeypatch.setattr(tracing, "names_only_known", lambda _: True)
    test_the_result_is_eagers(f, LARGE)


@pytest.mark.parametrize("most", [SMALL, LARGE])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_result_is_eagers(f, most):
    fast = chainrule.compile(f, on_fallback="eager", lift=False)
    for arguments in calls(f, most, 25):
        assert shown(outcome(fast, *arguments)) == shown(outcome(f, *arguments))
