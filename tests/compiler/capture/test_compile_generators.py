"""Generators of random numbers that a function makes of a seed it is passed."""

# ruff: noqa: B905, RUF015  # functions as people write them

import copy
import math
import random
import threading
from random import Random

import numpy as np
import pytest
from numpy.random import default_rng

import chainrule
from chainrule import Value, tanh, where

ALIAS = random.Random
P = [0.3, -1.2, 0.7, 1.1, -0.4, 0.9]
SEEDS = [0, 1, 2, 3, 17, 10**6, 2**40, 5, 4, 2**70, 12345, 99, 1, 0]


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def same(function, calls, recordings=None, **options):
    """All calls give what eager gives; after at most so many recordings."""
    fast = chainrule.compile(function, on_fallback="eager", **options)
    eager = chainrule.value_and_grad(function)
    for k, arguments in enumerate([*calls, *calls]):
        got = outcome(lambda a=arguments: fast.value_and_grad(*a))
        wanted = outcome(lambda a=arguments: eager(*a))
        assert repr(got) == repr(wanted), (k, arguments)
    if recordings is not None:
        counts = fast.dispatch.counts
        assert counts.traces <= recordings, fast.report()
        assert counts.replayed > len(calls), fast.report()
    return fast


def of_seeds(function, recordings=None, seeds=SEEDS, **options):
    return same(function, [(P, seed) for seed in seeds], recordings, **options)


def mixed(draw):
    """A function that multiplies parameters by six draws."""

    def f(p, seed):
        rng = random.Random(seed)
        return sum(w * draw(rng) for w in p) ** 2

    return f


NUMBERS = {
    "random": lambda rng: rng.random(),
    "uniform": lambda rng: rng.uniform(-1, 2.5),
    "gauss": lambda rng: rng.gauss(0, 0.1),
    "gauss by name": lambda rng: rng.gauss(mu=1.0, sigma=0.1),
    "gauss by default": lambda rng: rng.gauss(),
    "normalvariate": lambda rng: rng.normalvariate(0.5, 2),
    "expovariate": lambda rng: rng.expovariate(0.5),
    "triangular": lambda rng: rng.triangular(0, 2, 1),
    "triangular of one": lambda rng: rng.triangular(1, 1),
    "lognormvariate": lambda rng: rng.lognormvariate(0, 0.2),
    "gammavariate": lambda rng: rng.gammavariate(0.7, 2.0),
    "betavariate": lambda rng: rng.betavariate(2, 3),
    "paretovariate": lambda rng: rng.paretovariate(3),
    "weibullvariate": lambda rng: rng.weibullvariate(1, 2),
    "vonmisesvariate": lambda rng: rng.vonmisesvariate(0, 4),
    "randint": lambda rng: rng.randint(2, 14),
    "randrange": lambda rng: rng.randrange(0, 100, 7),
    "getrandbits": lambda rng: rng.getrandbits(8),
    "mixture": lambda rng: rng.random() + rng.randint(1, 3) * rng.gauss(0, 1),
    "an integer of a float": lambda rng: rng.randint(1, 9) / 7,
    "choice of floats": lambda rng: rng.choice([0.5, 1.5, 2.5]),
    "choice of integers": lambda rng: rng.choice((1, 4, 9)),
    "sample": lambda rng: sum(a * b for a, b in zip(rng.sample([1.0, 2.0, 3.0], 2), (1, 10))),
    "choices": lambda rng: sum(rng.choices([1.0, 2.0, 3.0], k=2)),
    "a list": lambda rng: sum([rng.random() for _ in range(3)]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_draws_are_made_again_at_every_call(name):
    of_seeds(mixed(NUMBERS[name]), recordings=1)


@pytest.mark.parametrize("name", NUMBERS)
def test_so_they_are_by_machine_code(name):
    of_seeds(mixed(NUMBERS[name]), lift=None)
    fast = chainrule.compile(mixed(NUMBERS[name]), lift=True)
    for seed in SEEDS:
        value, gradient = fast.value_and_grad(P, seed)
        wanted, slopes = chainrule.value_and_grad(mixed(NUMBERS[name]))(P, seed)
        assert value == pytest.approx(wanted, rel=1e-12)
        assert gradient == pytest.approx(slopes, rel=1e-12)


def test_ways_to_make_one():
    def method(p, seed):
        draw = random.Random(seed).random
        return p[0] * draw() + p[1] * draw()

    def imported(p, seed):
        rng = Random(seed)
        return p[0] * rng.random()

    def helper(p, seed):
        return p[1] * noise(random.Random(seed + 1), p) + noise(random.Random(seed), p)

    def noise(rng, p):
        return sum(w * rng.gauss(0, 1) for w in p)

    def computed(p, seed):
        return p[0] * random.Random(seed * 31 + 7).random()

    def two(p, seed):
        a, b = random.Random(seed), random.Random(seed + 1)
        return p[0] * a.random() + p[1] * b.random() + p[2] * a.random() - p[3] * b.gauss(0, 1)

    def twice_the_same(p, seed):
        a, b = random.Random(seed), random.Random(seed)
        return p[0] * a.random() + p[1] * a.random() + p[2] * b.random()

    def generated(p, seed):
        def stream(rng):
            while True:
                yield rng.random()

        return sum(w * x for w, x in zip(p, stream(random.Random(seed))))

    def several(p, seed):
        return sum(w * random.Random(seed + k).random() for k, w in enumerate(p))

    for f in (method, imported, helper, computed, two, twice_the_same, generated, several):
        of_seeds(f, recordings=1)


def test_draws_that_decide():
    def branch(p, seed):
        rng = random.Random(seed)
        return sum((tanh(w) / 0.8 if rng.random() < 0.8 else w * 0.0) for w in p)

    def index(p, seed):
        rng = random.Random(seed)
        return p[rng.randrange(6)] * p[rng.randint(0, 5)] + rng.choice(p) * 2

    def selected(p, seed):
        rng = random.Random(seed)
        return sum(where(rng.random() < 0.5, w, w * w) for w in p)

    def shuffled(p, seed):
        order = list(range(6))
        random.Random(seed).shuffle(order)
        return sum(p[i] * p[j] for i, j in enumerate(order[:3]))

    def shuffled_parameters(p, seed):
        mine = list(p)
        random.Random(seed).shuffle(mine)
        return mine[0] * mine[1] - mine[2] * 3

    def sampled(p, seed):
        a, b, c = random.Random(seed).sample(p, 3)
        return a * b - c

    def loop(p, seed):
        rng, n = random.Random(seed), 0
        while rng.random() < 0.6 and n < 4:
            n += 1
        return p[0] * n + p[1]

    same_bits = {"lift": False}
    of_seeds(branch)
    of_seeds(branch, **same_bits)
    for f in (index, shuffled, sampled, shuffled_parameters, selected):
        of_seeds(f, recordings=1)
    of_seeds(loop, seeds=[*range(40)])


def test_parameters_and_data_as_arguments_of_a_draw():
    def of_parameters(p, seed):
        rng = random.Random(seed)
        return rng.gauss(p[0], p[1]) + rng.uniform(p[2], p[3]) * rng.normalvariate(p[4], 0.5)

    def of_data(p, x, seed):
        rng = random.Random(seed)
        return p[0] * rng.gauss(x, 0.1) + p[1] * rng.uniform(0, x) + p[2] * rng.gauss(-0.0, x)

    def of_integers(p, n, seed):
        rng = random.Random(seed)
        return p[0] * rng.randint(0, n) + p[1] * rng.uniform(0, n)

    def of_data_by_c(p, x, seed):
        return p[0] * random.Random(seed).gammavariate(x, 1.0)

    of_seeds(of_parameters, recordings=1)
    same(of_data, [(P, 0.1 * k - 0.3, k) for k in range(12)], recordings=1)
    same(of_integers, [(P, k % 3, k) for k in range(12)])
    same(of_data_by_c, [(P, 0.5 + 0.1 * k, k) for k in range(8)])


def test_other_seeds_than_integers():
    def f(p, seed):
        return p[0] * random.Random(seed).random()

    def g(p, seed):
        return p[0] * np.random.default_rng(seed).random()

    kinds = [3, True, False, -3, 2.5, "text", None, np.int64(3), np.int32(3), np.float64(2.5)]
    for h in (f, g):
        for seed in kinds:
            if seed is not None:
                same(h, [(P, seed)] * 3)
        same(h, [(P, seed) for seed in kinds if seed is not None])
        same(h, [(P, -3), (P, 3), (P, -1), (P, 4), (P, 2**64), (P, 2**200), (P, 7)])
    fast = chainrule.compile(f, on_fallback="eager")
    assert len({fast.value_and_grad(P, None)[0] for _ in range(20)}) == 20
    fast = chainrule.compile(g, on_fallback="eager")
    assert len({fast.value_and_grad(P, None)[0] for _ in range(20)}) == 20


def test_generators_without_a_seed_draw_anew():
    for make in (
        lambda p: p[0] * (2 if random.Random().random() < 0.5 else 3),
        lambda p: p[0] * (2 if random.Random(None).random() < 0.5 else 3),
        lambda p: p[0] * (2 if Random().random() < 0.5 else 3),
        lambda p: p[0] * (2 if np.random.default_rng().random() < 0.5 else 3),
        lambda p: p[0] * (2 if default_rng(None).random() < 0.5 else 3),
        lambda p: p[0] * (2 if default_rng(seed=None).random() < 0.5 else 3),
        lambda p: p[0] * (2 if [m() for m in [np.random.default_rng]][0].random() < 0.5 else 3),
        lambda p: p[0] * (2 if [m() for m in [random.Random]][0].random() < 0.5 else 3),
        lambda p: p[0] * (2 if ALIAS().random() < 0.5 else 3),
        lambda p: p[0] * (2 if Halved().random() < 0.25 else 3),
    ):
        for _ in range(3):
            fast = chainrule.compile(make, on_fallback="eager")
            assert {fast.value_and_grad(P)[0] for _ in range(60)} == {0.6, 0.3 * 3}


def test_what_else_is_done_with_one():
    def seeded_again(p, seed):
        rng = random.Random(seed)
        a = rng.random()
        rng.seed(seed + 1)
        return p[0] * a + p[1] * rng.random()

    def state(p, seed):
        rng = random.Random(seed)
        a, kept = rng.random(), rng.getstate()
        b = rng.random()
        rng.setstate(kept)
        return p[0] * a + p[1] * b + p[2] * rng.random()

    def copied(p, seed):
        rng = random.Random(seed)
        a = rng.gauss(0, 1)
        other = copy.copy(rng)
        return p[0] * a + p[1] * rng.gauss(0, 1) + p[2] * other.gauss(0, 1) + p[3] * rng.random()

    def deeply_copied(p, seed):
        rng = random.Random(seed)
        rng.random()
        return p[0] * copy.deepcopy([rng])[0].random() + p[1] * rng.random()

    def attribute(p, seed):
        rng = random.Random(seed)
        a = rng.gauss(0, 1)
        rng.gauss_next = None
        return p[0] * a + p[1] * rng.gauss(0, 1)

    def read(p, seed):
        rng = random.Random(seed)
        a = rng.gauss(0, 1)
        return p[0] * a + p[1] * rng.gauss_next + p[2] * rng.random()

    def asked(p, seed):
        rng = random.Random(seed)
        kind = isinstance(rng, random.Random) and type(rng) is random.Random
        return p[0] * rng.random() if kind else p[1]

    def weighted(p, seed):
        rng = random.Random(seed)
        return p[0] * rng.random() + rng.choices(p, weights=[1, 2, 3, 4, 5, 6], k=2)[1]

    def of_a_range(p, seed):
        rng = random.Random(seed)
        return p[rng.choice(range(6))] * rng.random() + p[rng.sample(range(6), k=2)[1]]

    def text(p, seed):
        rng = random.Random(seed)
        return p[0] * (2 if rng.choice(["a", "b"]) == "a" else 3) + p[1] * rng.random()

    def bytes_of(p, seed):
        rng = random.Random(seed)
        return p[0] * rng.randbytes(1)[0] + p[1] * rng.random()

    def unbound(p, seed):
        rng = random.Random(seed)
        return p[0] * random.Random.gauss(rng, 0, 1) + p[1] * rng.random()

    def compared(p, seed):
        a, b = random.Random(seed), random.Random(seed)
        return p[0] * (2 if a == b else 3) + p[1] * (a.random() if a is not b else b.random())

    def hashed(p, seed):
        table = {random.Random(seed): 1.0}
        return p[0] * sum(table.values()) + p[1] * next(iter(table)).random()

    def subclassed(p, seed):
        return p[0] * Halved(seed).random() + p[1] * Halved(seed).uniform(0, 2)

    def system(p, seed):
        return p[0] * (random.SystemRandom(seed).random() < 2)

    def wrong(p, seed):
        rng = random.Random(seed)
        try:
            return p[0] * rng.randint(5, 2)
        except ValueError:
            return p[1] * rng.random()

    def raising(p, seed):
        return p[0] * random.Random(seed).randrange(0)

    def missing(p, seed):
        return p[0] * random.Random(seed).normal()

    def too_many(p, seed):
        rng = random.Random(seed)
        return p[0] * rng.random(3)

    def empty(p, seed):
        return random.Random(seed).choice([]) * p[0]

    for f in list(locals().values()):
        of_seeds(f)


class Halved(random.Random):
    def random(self):
        return super().random() / 2


def test_what_is_kept_beyond_the_call():
    kept = []

    def leaks(p, seed):
        rng = random.Random(seed)
        kept.append(rng)
        return p[0] * rng.random()

    def returned(p, seed):
        rng = random.Random(seed)
        return p[0] * rng.random(), {"rng": rng}

    def drawn(p, seed):
        rng = random.Random(seed)
        return p[0] * rng.random(), [rng.random(), rng.randint(1, 6)]

    of_seeds(leaks)
    assert all(type(rng) is random.Random and 0 <= rng.random() < 1 for rng in kept)
    fast = chainrule.compile(returned, on_fallback="eager")
    for seed in SEEDS:
        value, rest = fast.value_and_grad(P, seed)[0]
        assert value == P[0] * random.Random(seed).random()
        assert type(rest["rng"]) is random.Random
    fast = chainrule.compile(drawn, on_fallback="eager")
    for seed in [*SEEDS, *SEEDS]:
        rng = random.Random(seed)
        value, rest = fast.value_and_grad(P, seed)[0]
        assert [value / P[0], *rest] == [
            rng.random() * P[0] / P[0],
            rng.random(),
            rng.randint(1, 6),
        ]
        assert [type(x) for x in rest] == [float, int]


def test_methods_that_are_replaced():
    def f(p, seed):
        rng = random.Random(seed)
        return p[0] * rng.gauss(0, 1) + p[1] * rng.uniform(p[2], p[3]) + rng.choice(p)

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for seed in range(8):
        assert fast.value_and_grad(P, seed) == eager(P, seed)
    for name, method in {
        "gauss": lambda self, a, b: 0.25,
        "uniform": lambda self, a, b: 0.5,
        "choice": lambda self, items: items[0],
        "random": lambda self: 0.125,
        "seed": lambda self, *_: None,
    }.items():
        before = vars(random.Random).get(name)
        try:
            setattr(random.Random, name, method)
            for seed in range(8):
                if name != "seed":
                    assert fast.value_and_grad(P, seed) == eager(P, seed), name
        finally:
            if before is None:
                delattr(random.Random, name)
            else:
                setattr(random.Random, name, before)
        for seed in range(8):
            assert fast.value_and_grad(P, seed) == eager(P, seed), name


def test_a_class_that_is_replaced(monkeypatch):
    def f(p, seed):
        return p[0] * random.Random(seed).random() + p[1] * np.random.default_rng(seed).random()

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for seed in range(8):
        assert fast.value_and_grad(P, seed) == eager(P, seed)
    monkeypatch.setattr(random, "Random", Halved)
    for seed in range(8):
        assert fast.value_and_grad(P, seed) == eager(P, seed)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Halved(seed))
    for seed in range(8):
        assert fast.value_and_grad(P, seed) == eager(P, seed)
    monkeypatch.undo()
    for seed in range(8):
        assert fast.value_and_grad(P, seed) == eager(P, seed)


ARRAYS = {
    "random": lambda rng: rng.random(6),
    "normal": lambda rng: rng.normal(size=6),
    "normal with parameters": lambda rng: rng.normal(1.0, 0.5, 6),
    "standard_normal": lambda rng: rng.standard_normal(6),
    "uniform": lambda rng: rng.uniform(-1, 1, size=(6,)),
    "matrix": lambda rng: rng.normal(size=(6, 2)).sum(axis=1),
    "one number": lambda rng: [rng.random() for _ in range(6)],
    "one normal": lambda rng: [rng.normal() for _ in range(6)],
    "integers": lambda rng: rng.integers(0, 10, size=6),
    "one integer": lambda rng: [rng.integers(10) for _ in range(6)],
    "poisson": lambda rng: rng.poisson(3.0, 6),
    "exponential": lambda rng: rng.exponential(2.0, size=6),
    "permutation": lambda rng: rng.permutation(6),
    "choice": lambda rng: rng.choice(6, size=6, replace=True),
    "empty and then some": lambda rng: [*rng.normal(size=0), *rng.normal(size=6)],
    "arithmetic": lambda rng: (rng.normal(size=6) * 0.1 + 1) / 2,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_draws_of_numpys(name):
    def f(p, seed):
        rng = np.random.default_rng(seed)
        return sum(w * x for w, x in zip(p, ARRAYS[name](rng))) ** 2 + p[0] * rng.random()

    def imported(p, seed):
        return sum(w * x for w, x in zip(p, ARRAYS[name](default_rng(seed=seed))))

    of_seeds(f, recordings=1)
    of_seeds(imported, recordings=1)
    same(f, [(P, np.int64(k)) for k in range(12)])


def test_a_seed_of_numpys_that_is_always_the_same():
    def f(p, x):
        rng = np.random.default_rng(7)
        noise = rng.normal(size=6)
        noise[0] = 2.0
        return sum(w * e for w, e in zip(p, noise)) * rng.random() * x

    same(f, [(P, 0.1 * k) for k in range(8)], recordings=1)


def test_what_else_is_done_with_one_of_numpys():
    data = np.arange(6.0)

    def shuffled(p, seed):
        x = np.arange(6.0)
        np.random.default_rng(seed).shuffle(x)
        return sum(w * v for w, v in zip(p, x))

    def chosen(p, seed):
        return p[0] * np.random.default_rng(seed).choice(data)

    def of_single_precision(p, seed):
        x = np.random.default_rng(seed).random(6, dtype=np.float32)
        return sum(w * v for w, v in zip(p, x))

    def by_an_array(p, seed):
        return sum(w * v for w, v in zip(p, np.random.default_rng(seed).normal(data)))

    def state(p, seed):
        rng = np.random.default_rng(seed)
        return p[0] * rng.bit_generator.random_raw() / 2**64

    def spawned(p, seed):
        return p[0] * np.random.default_rng(seed).spawn(1)[0].random()

    def of_a_list(p, seed):
        return p[0] * np.random.default_rng([seed, 1]).random()

    def handed_on(p, seed):
        make = np.random.default_rng
        return p[0] * make(seed).random()

    def mapped(p, seed):
        return sum(p[0] * rng.random() for rng in map(np.random.default_rng, [seed, seed + 1]))

    def negative(p, seed):
        return p[0] * np.random.default_rng(-seed - 1).random()

    def wrong(p, seed):
        try:
            return p[0] * np.random.default_rng(seed).normal(scale=-1.0)
        except ValueError:
            return p[1] * 2

    def legacy(p, seed):
        return p[0] * np.random.RandomState(seed % 2**32).rand()

    def written(p, seed):
        x = np.random.default_rng(seed).normal(size=6)
        x[2] = 5.0
        x *= 2
        return sum(w * v for w, v in zip(p, x))

    def masked(p, seed):
        rng = np.random.default_rng(seed)
        return sum(w * v for w, v in zip(p, (rng.random(6) < 0.8) / 0.8))

    def as_integers(p, seed):
        x = np.random.default_rng(seed).integers(0, 6, size=3)
        return p[x[0]] * p[int(x[1])] + p[x[2] - 1]

    def infinite(p, seed):
        return p[0] * np.random.default_rng(seed).exponential(1e308) * 1e-308

    for f in [x for x in locals().values() if callable(x)]:
        of_seeds(f)


def test_infinite_draws_raise_as_in_eager_mode():
    def f(p, seed):
        return p[0] * math.sin(random.Random(seed).lognormvariate(0, 800))

    of_seeds(f, seeds=range(30))


def test_threads_have_their_own_draws():
    def f(p, seed):
        rng = random.Random(seed)
        return sum(w * rng.gauss(0, 1) for w in p) ** 2

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    wanted = {seed: eager(P, seed) for seed in range(50)}
    wrong = []

    def work(first):
        for k in range(400):
            seed = (first + 7 * k) % 50
            if fast.value_and_grad(P, seed) != wanted[seed]:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_recursive_call_meanwhile():
    class Counting(random.Random):
        pass

    def inner(p, seed):
        rng = random.Random(seed)
        return p[0] * rng.random() + p[1] * rng.gauss(0, 1)

    fast = chainrule.compile(inner)

    def outer(p, seed):
        return fast(p, seed) * fast(p, seed + 1) + random.Random(seed).random()

    of_seeds(outer, recordings=1)


def noisy(p, seed):
    rng = random.Random(seed)
    return sum((w - rng.gauss(0, 1)) ** 2 for w in p)


def test_batches_training_and_maps():
    fast, eager = chainrule.compile(noisy), chainrule.value_and_grad(noisy)
    p, seeds = np.array(P), list(range(23))
    value, gradient = fast.batch_value_and_grad(p, [(seed,) for seed in seeds])
    found = [eager(p, seed) for seed in seeds]
    assert value == pytest.approx(np.mean([v for v, _ in found]), rel=1e-12)
    assert gradient == pytest.approx(np.mean([g for _, g in found], axis=0), rel=1e-12)
    by_steps, by_hand = np.array(P), np.array(P)
    losses = fast.train(
        by_steps, [(seed,) for seed in seeds], chainrule.optim.SGD(by_steps, lr=0.01), 30
    )
    for step in range(30):
        value, gradient = eager(by_hand, seeds[step % 23])
        assert losses[step] == pytest.approx(value, rel=1e-9)
        by_hand = by_hand - 0.01 * gradient

    def of_numpys(p, seed):
        return sum((w - x) ** 2 for w, x in zip(p, np.random.default_rng(seed).normal(size=6)))

    mapped = chainrule.compile(of_numpys)
    values = mapped.map(p, np.arange(17))
    slopes = mapped.map_value_and_grad(p, np.arange(17))[1]
    for seed in range(17):
        wanted, slope = chainrule.value_and_grad(of_numpys)(p, seed)
        assert values[seed] == pytest.approx(wanted, rel=1e-12)
        assert slopes[seed] == pytest.approx(slope, rel=1e-12)


def test_derivatives_of_derivatives():
    fast = chainrule.compile(noisy)
    for seed in range(5):
        assert chainrule.hessian(fast)(P, seed) == pytest.approx(2 * np.eye(6))
        assert chainrule.jacobian(fast)(P, seed) == pytest.approx(
            np.array(chainrule.grad(noisy)(P, seed))
        )


def test_it_cannot_be_saved_or_translated(tmp_path):
    fast = chainrule.compile(noisy)
    with pytest.raises(chainrule.SaveError, match="random numbers from a seed"):
        fast.save(tmp_path / "noisy", P, 3)
    for translate in (fast.to_numpy, fast.to_c):
        with pytest.raises(chainrule.TranslationError, match="random numbers from a seed"):
            translate(np.array(P), 3)


def test_interrupts_while_numbers_are_drawn():
    fast = chainrule.compile(noisy)
    for seed in range(8):
        fast.value_and_grad(P, seed)
    stop = KeyboardInterrupt()
    selection = next(
        variant.recording.selection
        for structure in fast.dispatch.structures.values()
        for variant in structure.variants
    )
    draws = next(x for x in selection.program.constants if hasattr(x, "asks"))

    def interrupted(seed):
        raise stop

    assert draws.again(5)
    draws.make = interrupted
    with pytest.raises(KeyboardInterrupt):
        fast.value_and_grad(P, 3)
    draws.make = random.Random
    assert fast.value_and_grad(P, 3) == chainrule.value_and_grad(noisy)(P, 3)


def test_values_as_parameters():
    def f(p, seed):
        rng = random.Random(seed)
        return sum(w * rng.random() for w in p)

    fast = chainrule.compile(f)
    for seed in [*range(6), *range(6)]:
        leaves, others = [Value(x) for x in P], [Value(x) for x in P]
        y, z = fast(leaves, seed), f(others, seed)
        y.backward(), z.backward()
        assert y.data == z.data
        assert [v.grad for v in leaves] == [v.grad for v in others]
