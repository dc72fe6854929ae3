"""Integers that are computed at each call may be returned beside the value that is differentiated.

The number of right answers beside a loss is one; so is a count of tokens.
"""

import itertools

import numpy as np
import pytest

import chainrule
from chainrule import Value, dot


def counted(report):
    """Calls that were replayed, and recordings."""
    words = report.splitlines()[1].replace(",", "").split()
    return int(words[2]), int(words[6])


def eagerly(f, p, *others):
    """What eager mode gives: the value, what is beside it, and the gradient."""
    values = [Value(x) for x in p]
    value, beside = f(values, *others)
    value.backward()
    return (value.data, beside), [v.grad for v in values]


def same(found, wanted):
    """Whether two results are the same, types included."""
    (value, beside), gradient = found
    (other, others), slopes = wanted
    assert (value, gradient) == (other, slopes)
    assert repr(beside) == repr(others)


def of_tokens(p, tokens):
    total, n = p[0] * p[1], 0
    for t in tokens:
        total = total + p[t % 2] * p[t % 2]
        n += t
    return total, n


def of_branches(p, tokens):
    n = 3 if tokens[0] > 1 else -tokens[1]
    return p[0] * p[1], {"n": n, "all": [n * n, (tokens[2], p[0])]}


def hidden(p, tokens):
    """What differs is multiplied by a number that is 0 in the first calls."""
    return p[0] * p[1] * tokens[2], tokens[0] * tokens[2] + tokens[2] // 2


@pytest.mark.parametrize("lift", [None, True, False])
@pytest.mark.parametrize("f", [of_tokens, hidden])
def test_an_integer_beside_the_value_is_computed_at_each_call(f, lift):
    fast = chainrule.compile(f, lift=lift)
    calls = [list(tokens) for tokens in itertools.product(range(4), repeat=3)]
    for tokens in [[5, 7, 0], *calls, [-3, 2, -1], [10**6, 10**6, 3]]:
        same(fast.value_and_grad([0.5, 2.0], tokens), eagerly(f, [0.5, 2.0], tokens))
    replayed, recordings = counted(fast.report())
    assert replayed >= 60
    assert recordings == 1


def test_integers_anywhere_beside_the_value_and_after_branches():
    def numbers(p, tokens):
        value, beside = of_branches(p, tokens)
        beside["all"][1] = tokens[2], tokens[1] - 7
        return value, beside

    fast = chainrule.compile(numbers)
    for tokens in itertools.product(range(-1, 4), repeat=3):
        same(fast.value_and_grad([0.5, 2.0], [*tokens]), eagerly(numbers, [0.5, 2.0], [*tokens]))
    assert counted(fast.report())[1] <= 3


def test_integers_that_floats_do_not_hold_are_eagers():
    def f(p, k):
        return p[0] ** 2, k * k * k

    fast = chainrule.compile(f, on_fallback="eager")
    for k in [1, 2, -3, 2**17, 2**18, -(2**18), 2**53 + 1, 10**30, 7, 0]:
        same(fast.value_and_grad([0.5], k), eagerly(f, [0.5], k))


def accuracy(p, X, Y):
    loss, hits = 0.0, []
    for x, y in zip(X, Y, strict=False):
        scores = [dot(row, x) for row in (p[:2], p[2:])]
        loss = loss + (scores[0] - scores[1]) ** 2
        best = max(range(2), key=lambda i: scores[i].data)
        hits.append(best == y)
    return loss, sum(hits)


def test_how_many_are_right_is_counted_beside_the_loss():
    fast, rng = chainrule.compile(accuracy), np.random.default_rng(0)
    for _ in range(60):
        p, X = rng.normal(size=4).tolist(), rng.normal(size=(4, 2)).tolist()
        Y = rng.integers(2, size=4).tolist()
        found, wanted = fast.value_and_grad(p, X, Y), eagerly(accuracy, p, X, Y)
        assert found[0][1] == wanted[0][1]
        assert type(found[0][1]) is int
        np.testing.assert_allclose(found[0][0], wanted[0][0], rtol=1e-9)
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-9)
    assert counted(fast.report())[1] <= 4


def test_truths_and_numbers_of_numpy_keep_their_types():
    def f(p, tokens, whole):
        return p[0] * p[1], (tokens[0] > 1, whole[0] * 2, tokens[0])

    fast = chainrule.compile(f, on_fallback="eager")
    for a, b in itertools.product(range(4), repeat=2):
        call = [0.5, 2.0], [a], np.array([b])
        same(fast.value_and_grad(*call), eagerly(f, *call))


def test_in_single_precision_they_are_right_too():
    fast = chainrule.compile(of_tokens, dtype="float32", lift=True)
    for t in (1, 2, 2**24 + 1, 5):
        (_, n), _ = fast.value_and_grad([0.5, 2.0], [t, 1, 0])
        assert n == t + 1
        assert type(n) is int


def test_code_for_any_size_and_sources_leave_them_to_recordings():
    def first(p, tokens):
        return p[0] * p[1] + sum(p[t] for t in tokens), tokens[0]

    def example(n):
        return [0.5, 2.0], [k % 2 for k in range(n)]

    fast = chainrule.compile(first, sizes=example)
    with pytest.warns(chainrule.FallbackWarning, match="returns integers"):
        same(fast.value_and_grad(*example(9)), eagerly(first, *example(9)))
    for n in (12, 30, 30):
        p, tokens = example(n)
        same(fast.value_and_grad(p, tokens[::-1]), eagerly(first, p, tokens[::-1]))
    with pytest.raises(chainrule.TranslationError, match="one case only"):
        fast.to_numpy([0.5, 2.0], [1, 0])


def test_they_are_mapped_and_saved(tmp_path):
    fast = chainrule.compile(of_tokens)
    rows = np.array([*itertools.product(range(3), repeat=3)])
    (values, counts), _ = fast.map_value_and_grad([0.5, 2.0], rows)
    assert counts.tolist() == rows.sum(axis=1).tolist()
    assert values.tolist() == [of_tokens([0.5, 2.0], row.tolist())[0] for row in rows]
    fast.value_and_grad([0.5, 2.0], [1, 2, 3])
    fast.save(tmp_path / "f.chainrule", [0.5, 2.0], [1, 2, 3])
    loaded = chainrule.load(tmp_path / "f.chainrule")
    same(loaded.value_and_grad([0.5, 2.0], [3, 0, 5]), eagerly(of_tokens, [0.5, 2.0], [3, 0, 5]))
