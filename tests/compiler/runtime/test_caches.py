"""Models that are called with a cache which grows: what they cost, and what becomes of caches."""

import copy
import random

import pytest
from handed_trees import picture

import chainrule
from chainrule import Value, exp, log
from chainrule.compiler.runtime import building, lengths
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.ledger import allowance

WIDTH = 3
native = pytest.mark.skipif(chainrule.engine != "native", reason="what is earned in C")


def matrix(rng, rows, columns=WIDTH):
    return [[rng.gauss(0.0, 0.5) for _ in range(columns)] for _ in range(rows)]


def weights(rng, tokens=5):
    return {"wte": matrix(rng, tokens), "wk": matrix(rng, WIDTH), "head": matrix(rng, tokens)}


def linear(x, w):
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in w]


def scores(p, x, keys):
    matches = [exp(sum(a * b for a, b in zip(x, key, strict=True))) for key in keys]
    total = sum(matches)
    mixed = [sum(m * key[j] for m, key in zip(matches, keys, strict=True)) for j in range(WIDTH)]
    return linear([v / total for v in mixed], p["head"])


def returned(p, token, keys):
    x = p["wte"][token]
    keys = [*keys, linear(x, p["wk"])]
    return scores(p, x, keys), keys


def appended(p, token, keys):
    x = p["wte"][token]
    keys.append(linear(x, p["wk"]))
    return scores(p, x, keys), keys


def kept_in_a_dict(p, token, cache):
    x = p["wte"][token]
    cache["keys"] = cache["keys"] + [linear(x, p["wk"])]
    cache["length"] = len(cache["keys"])
    return scores(p, x, cache["keys"]), cache


def of_two_caches(p, token, keys, others=None):
    x = p["wte"][token]
    keys.append(linear(x, p["wk"]))
    if others is not None:
        others.append([2.0 * v for v in keys[-1]])
        return scores(p, x, others), keys
    return scores(p, x, keys), keys


def raising(p, token, keys):
    x = p["wte"][token]
    keys.append(linear(x, p["wk"]))
    level = log(
        1.5 - sum(v * v for v in keys[-1]) - 0.1 * len(keys)
    )  # of a number below 0, by and by
    keys.append([level * v for v in x])
    return scores(p, x, keys), keys


BEGIN = {
    returned: list,
    appended: list,
    kept_in_a_dict: lambda: {"keys": [], "length": 0},
    of_two_caches: list,
    raising: list,
}


def rows_of(cache):
    return cache["keys"] if isinstance(cache, dict) else cache


def session(function, call, begin, seed, calls=50):
    """What calls gave, with caches that are shared, copied, cut, reset, aliased and passed on."""
    rng = random.Random(seed)
    models = [weights(rng), weights(rng)]
    caches, given = [begin(), begin()], []
    for _ in range(calls):
        k, p = rng.randrange(len(caches)), rng.choice(models)
        token, cache, what = rng.randrange(5), caches[k], rng.randrange(12)
        if what == 0:
            caches[k] = begin()
            continue
        if what == 1 and rows_of(cache):
            del rows_of(cache)[rng.randrange(len(rows_of(cache))) :]
        elif what == 2 and len(caches) < 4:
            caches.append(copy.deepcopy(cache))  # a beam
        elif what == 3 and len(caches) < 4:
            caches.append(cache)  # the same one, under two names
        elif what == 4 and rows_of(cache):
            rows_of(cache).append(rows_of(cache)[0])  # a row that is in it twice
        elif what == 5 and rows_of(cache):
            rows_of(cache)[-1] = rng.choice(models)["wk"][0]  # and one of the weights themselves
        elif what == 6 and rows_of(cache):
            rows_of(cache)[0] = [rng.gauss(0, 1) for _ in range(WIDTH)]
        try:
            if what == 7:
                found = call(
                    p, token=token, **{"cache" if isinstance(cache, dict) else "keys": cache}
                )
            elif what == 8 and function is of_two_caches:
                found = call(p, token, cache, rng.choice(caches))  # perhaps one list twice
            else:
                found = call(p, token, cache)
        except (ArithmeticError, ValueError) as error:
            given.append((type(error), str(error)))
        else:
            given.append(picture(found[0]))
            if function is returned:
                caches[k] = found[1]
            else:
                assert found[1] is cache
        given.append(picture([models, caches]))
    return given


@pytest.mark.parametrize("lift", [None, False])
@pytest.mark.parametrize("function", BEGIN, ids=lambda f: f.__name__)
def test_caches_that_are_shared_cut_copied_and_reset_are_as_eager_mode_leaves_them(function, lift):
    fast = chainrule.compile(function, lift=lift, on_fallback="eager")
    for seed in range(2):
        found = session(function, fast, BEGIN[function], seed)
        wanted = session(function, function, BEGIN[function], seed)
        for mine, eagers in zip(found, wanted, strict=True):
            assert mine == eagers
    assert fast.dispatch.counts.replayed > 0


# --- what it costs --------------------------------------------------------------------------------


@pytest.fixture
def usual_allowance():
    allowance.left = 0.3


@native
def test_plain_calls_earn_machine_code_though_numbers_have_no_graph(monkeypatch):
    allowance.left = 0.0
    monkeypatch.setattr(building, "cost_of", lambda program: 0.3)
    rng = random.Random(0)
    p, x = matrix(rng, 60, 60), [rng.gauss(0, 1) for _ in range(60)]
    fast = chainrule.compile(lambda p, x: linear(linear(x, p), p))
    for _ in range(25_000):
        found = fast(p, x)
    assert "lifted to" in fast.report()
    assert found == pytest.approx(linear(linear(x, p), p))


@native
def test_not_every_length_finds_out_that_machine_code_is_too_dear_yet(monkeypatch, usual_allowance):
    lifted, make = [], building.machine_code

    def counted(*arguments):
        lifted.append(arguments)
        return make(*arguments)

    monkeypatch.setattr(building, "machine_code", counted)
    monkeypatch.setattr(building, "cost_of", lambda program: 1.0)
    rng = random.Random(0)
    p = {"wte": matrix(rng, 5, 12), "wk": matrix(rng, 12, 12), "head": matrix(rng, 40, 12)}
    fast = chainrule.compile(lambda p, keys: [linear(k, p["head"]) for k in keys])
    for n in range(1, 9):
        keys = matrix(rng, n, 12)
        for _ in range(400):
            fast(p, keys)
    assert fast.dispatch.counts.traces > 5
    assert len(lifted) <= 2


def test_the_lengths_of_a_call_are_found_without_its_parameters(monkeypatch):
    def steps(size):
        seen, add = [], lengths._add_lengths
        p = {"a": matrix(random.Random(0), size, size), "b": [1.0] * size}
        call = chainrule.compiler.capture.arguments.flatten_call(
            (p, matrix(random.Random(1), 4)), {}, False
        )
        with monkeypatch.context() as patch:
            patch.setattr(lengths, "_add_lengths", lambda *given: seen.append(1) or add(*given))
            found = lengths.lengths_of(call.key)
        assert found == {(1,): 4, (1, -1): 3}
        return len(seen)

    assert steps(3) == steps(40)


# --- Values in caches -----------------------------------------------------------------------------


def of_values(p, token, keys):
    keys.append([v.tanh() for v in chainrule.linear(p["wte"][token], p["wk"])])
    return scores(p, p["wte"][token], keys)


def returning_values(p, token, keys):
    keys = [*keys, [v.tanh() for v in chainrule.linear(p["wte"][token], p["wk"])]]
    return scores(p, p["wte"][token], keys), keys


@pytest.mark.parametrize("function", [of_values, returning_values])
@pytest.mark.parametrize("are_values", [False, True])
def test_values_in_a_cache_keep_their_graph_from_call_to_call(function, are_values):
    def run(call):
        p, keys = weights(random.Random(3)), []
        if are_values:
            p = {name: [[Value(x) for x in row] for row in rows] for name, rows in p.items()}
        for token in (0, 3, 1, 3, 2, 0):
            found = call(p, token, keys)
            found, keys = (found, keys) if function is of_values else found
        sum(found).backward()
        cached = [[(v.data, v.grad) for v in row] for row in keys]
        return [v.data for v in found], cached, [v.grad for v in p["wk"][0]] if are_values else None

    fast = chainrule.compile(function, on_fallback="eager")
    for _ in range(3):
        assert run(fast) == run(function)


@pytest.mark.parametrize("function", [of_values, returning_values])
def test_with_values_in_a_cache_a_warning_says_what_to_pass_instead(function):
    fast, keys = chainrule.compile(function), [[Value(0.1), Value(0.2), Value(0.3)]]
    with pytest.warns(chainrule.FallbackWarning, match="pass numbers, and keep .data of Values"):
        fast(weights(random.Random(0)), 1, keys)


def test_what_is_to_be_passed_instead_is_replayed():
    def keeping_data(p, token, keys):
        keys.append([v.data for v in chainrule.linear(p["wte"][token], p["wk"])])
        return scores(p, p["wte"][token], keys)

    fast, p, mine, eagers = chainrule.compile(keeping_data), weights(random.Random(0)), [], []
    for token in (0, 3, 1, 3, 2):
        found, wanted = fast(p, token, mine), keeping_data(p, token, eagers)
        assert [type(x) for x in found] == [type(x) for x in wanted]
        assert found == pytest.approx(wanted)
    assert mine == eagers
    assert fast.dispatch.counts.replayed == 5


@native
def test_calls_with_many_numbers_that_are_refused_are_seldom_looked_at(
    monkeypatch, usual_allowance
):
    rng, looked, run = random.Random(0), [], Dispatch.run
    monkeypatch.setattr(Dispatch, "run", lambda self, *given: looked.append(1) or run(self, *given))
    p = {"wte": matrix(rng, 3000), "wk": matrix(rng, WIDTH), "head": matrix(rng, 3000)}
    fast, keys = chainrule.compile(of_values, on_fallback="eager"), [[Value(0.1)] * 3]
    for _ in range(500):
        del keys[1:]
        fast(p, 1, keys)
    assert len(looked) < 60
