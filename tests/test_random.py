"""``chainrule.random``: numbers of a key, the same bits in every engine, and random enough."""

import numpy as np
import pytest

import chainrule
from chainrule import Value, random
from chainrule.core import randomness

COUNT = 1 << 16


def numbers(key, count=COUNT):
    """``uniform`` of the first counters, by the formula over arrays."""
    bits = randomness.bits.forward(*key, np.arange(count, dtype=float), 0.0)
    return bits / randomness.WORDS


# --- the numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 12345, 1 << 30, -7])
def test_moments_are_those_of_uniform_numbers(seed):
    u = numbers(random.key(seed))
    assert 0 <= u.min() < u.max() < 1
    # Each within five standard deviations of what it is for independent numbers.
    assert abs(u.mean() - 1 / 2) < 5 / np.sqrt(12 * COUNT)
    assert abs((u**2).mean() - 1 / 3) < 5 * np.sqrt(4 / 45 / COUNT)
    assert abs((u**3).mean() - 1 / 4) < 5 * np.sqrt(9 / 112 / COUNT)
    for lag in (1, 2, 16, 64, 4096):
        assert abs(np.corrcoef(u[:-lag], u[lag:])[0, 1]) < 5 / np.sqrt(COUNT)


@pytest.mark.parametrize("lag", [1, 7, 128])
def test_pairs_of_numbers_fill_the_square_evenly(lag):
    u = numbers(random.key(3))
    counts = np.histogram2d(u[:-lag], u[lag:], bins=16, range=[[0, 1], [0, 1]])[0]
    expected = (COUNT - lag) / 256
    assert abs(((counts - expected) ** 2 / expected).sum() - 255) < 5 * np.sqrt(510)


def test_keys_that_are_next_to_each_other_give_unrelated_numbers():
    rows = [numbers(random.key(seed)) for seed in range(4)]
    rows += [numbers(random.fold_in(random.key(0), k)) for k in range(4)]
    related = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(related).max() < 5 / np.sqrt(COUNT)


def test_every_bit_of_the_key_and_counter_changes_half_of_the_bits():
    chance = np.random.default_rng(0)
    words = [chance.integers(0, randomness.WORDS, 4000) for _ in range(3)]
    before = randomness.bits.forward(*[w.astype(float) for w in words], 0.0).astype(int)
    for which in range(3):
        for bit in range(24):
            moved = [w ^ (1 << bit) if k == which else w for k, w in enumerate(words)]
            after = randomness.bits.forward(*[w.astype(float) for w in moved], 0.0).astype(int)
            flipped = ((before ^ after)[:, None] >> np.arange(24)) & 1
            assert np.abs(flipped.mean(axis=0) - 0.5).max() < 0.05


@pytest.mark.parametrize("stream", [0.0, 1.0, 2.0, 3.0, 4.0])
def test_floats_arrays_and_float32_find_the_same_bits(stream):
    chance = np.random.default_rng(1)
    words = chance.integers(0, randomness.WORDS, (3, 500)).astype(float)
    words[:, :2] = 0.0, randomness.WORDS - 1.0
    by_arrays = randomness.bits.forward(*words, stream)
    one_by_one = [randomness.bits.forward(*column, stream) for column in words.T.tolist()]
    assert by_arrays.tolist() == one_by_one
    single = randomness._scrambled(*words.astype(np.float32), np.float32(stream))
    assert single.dtype == np.float32
    assert single.tolist() == one_by_one


def test_keys_of_many_numbers_are_those_of_fold_in():
    key, first = random.key(5), randomness.WORDS - 2
    made = random.numbered(key, first, 4)
    assert made.tolist() == [random.fold_in(key, first + k).tolist() for k in range(4)]
    assert len({tuple(row) for row in made.tolist()}) == 4


# --- dropout --------------------------------------------------------------------------------------


def test_dropout_drops_its_share_and_keeps_the_mean():
    kept = np.array(random.dropout([1.0] * 20_000, 0.2, random.key(1)))
    assert set(kept.tolist()) == {0.0, 1.25}
    assert abs((kept == 0).mean() - 0.2) < 5 * np.sqrt(0.2 * 0.8 / 20_000)


def test_dropout_of_nothing_and_a_key_that_is_off_change_nothing():
    xs = [Value(1.5), Value(-0.1)]
    assert random.dropout(xs, 0.0, random.key(1)) == xs
    assert [y.data for y in random.dropout(xs, 0.7, random.off())] == [1.5, -0.1]
    derived = random.fold_in(random.fold_in(random.off(), 3), 1 << 30)
    assert random.dropout([0.3] * 50, 0.9, derived) == [0.3] * 50


def test_what_is_dropped_gets_no_gradient():
    xs = [Value(float(k)) for k in range(1, 9)]
    dropped = random.dropout(xs, 0.5, random.key(3))
    chainrule.vsum(dropped).backward()
    assert [x.grad for x in xs] == [2.0, 0.0, 2.0, 2.0, 2.0, 0.0, 2.0, 0.0]


# --- compiled -------------------------------------------------------------------------------------


def loss(p, key, xs):
    inner = random.fold_in(key, 5)
    hidden = random.dropout([w * x for w, x in zip(p, xs, strict=True)], 0.25, inner)
    return sum(hidden) ** 2 * random.uniform(key, 7)


P, XS = np.linspace(-1.0, 2.0, 40), np.linspace(0.5, 1.5, 40)


@pytest.mark.parametrize(
    ("lift", "dtype"), [(True, "float64"), (False, "float64"), (True, "float32")]
)
def test_one_recording_serves_every_key_with_eagers_numbers(lift, dtype):
    fast = chainrule.compile(loss, lift=lift, dtype=dtype, on_fallback="raise")
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    for key in [*random.split(random.key(11), 6), random.key(0), np.array([2.0**24 - 1, 0.0])]:
        value, grads = fast.value_and_grad(P, key, XS)
        wanted, slopes = chainrule.value_and_grad(loss)(P, key, XS)
        assert np.isclose(value, wanted, rtol=tolerance)
        assert np.allclose(grads, slopes, rtol=tolerance, atol=tolerance)
        assert ((grads == 0) == (slopes == 0)).all()  # the same ones are dropped
    assert ": 8 replayed, 0 eager; 1 recordings" in fast.report()


def test_map_takes_a_row_of_keys():
    keys = random.split(random.key(2), 9)
    values = chainrule.compile(loss, lift=True).map(P, keys, XS, in_axes=(None, 0, None))
    assert np.allclose(values, [loss(P, key, XS) for key in keys], rtol=1e-12)


def test_a_saved_function_has_the_same_numbers(tmp_path):
    chainrule.compile(loss).save(tmp_path / "f.chainrule", P, random.key(0), XS)
    loaded = chainrule.load(tmp_path / "f.chainrule")
    wanted = chainrule.value_and_grad(loss)(P, random.key(4), XS)[0]
    assert np.isclose(loaded.value_and_grad(P, random.key(4), XS)[0], wanted, rtol=1e-12)


# --- what is no key -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: random.dropout([1.0], 1.0, random.key(0)), ValueError, "from 0 to less than 1"),
        (lambda: random.dropout([1.0], -0.1, random.key(0)), ValueError, "not -0.1"),
        (lambda: random.dropout([1.0], 0.5, None), TypeError, "random.key"),
        (lambda: random.uniform(42, 0), TypeError, "a key is two numbers"),
        (lambda: random.uniform([1.0, 2.0, 3.0], 0), TypeError, "a key is two numbers"),
        (lambda: random.uniform(random.key(0), -1), ValueError, "from 0 to 16777215, not -1"),
        (lambda: random.uniform(random.key(0), 1 << 24), ValueError, "16777216"),
        (lambda: random.uniform(random.off(), 0), ValueError, "needs a key"),
        (lambda: random.uniform([1e9, 0.0], 0), ValueError, "needs a key"),
        (lambda: random.fold_in(random.key(0), 1 << 48), ValueError, "from 0 to"),
        (lambda: random.key(1.5), TypeError, "integer"),
    ],
)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_compiled_calls_with_what_is_no_key_raise_as_eager_does():
    fast = chainrule.compile(lambda p, key: p[0] * random.uniform(key, 0), lift=True)
    fast.value_and_grad([2.0], random.key(1))
    for key in (random.off(), np.array([1e9, 0.0]), np.array([0.0, -3.0])):
        with pytest.raises(ValueError, match="needs a key"):
            fast.value_and_grad([2.0], key)
