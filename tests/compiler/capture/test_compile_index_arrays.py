"""Arrays read by integers and by arrays of them: one recording for all indices, never frozen."""

import numpy as np
import pytest
from compile_view import View

import chainrule

WEIGHTS = np.array([0.5, -1.5, 2.0, 0.25, 3.0])
FROZEN = np.arange(15.0).reshape(5, 3) / 7.0
STEPS = np.array([2, 0, 4, 1, 3])
HALVES = np.array([0.5, 1.5, 2.5, 3.5, 4.5], np.float32)


def tanh_sum(x):
    return np.tanh(x).sum()


def weighted(x):
    """A sum in which every item has a weight of its own."""
    flat = np.ravel(x)
    return sum(v * (0.3 * k + 1.0) for k, v in enumerate(flat.tolist()))


READS = {
    "E[X]": lambda E, X, Y: weighted(E[X]),
    "E[X, Y]": lambda E, X, Y: weighted(E[X, Y]),
    "E[:, Y]": lambda E, X, Y: weighted(E[:, Y]),
    "E[:, :, Z]": lambda E, X, Y: weighted(E[:, :, Y % 3]),
    "E[X, :, Z]": lambda E, X, Y: weighted(E[X, :, Y % 3]),
    "E[0, :, Z]": lambda E, X, Y: weighted(E[0, :, Y % 3]),
    "E[-1, Y]": lambda E, X, Y: weighted(E[-1, Y]),
    "E[X, 1:3]": lambda E, X, Y: weighted(E[X, 1:3]),
    "E[1:, Y, ::2]": lambda E, X, Y: weighted(E[1:, Y, ::2]),
    "E[X][:, Y]": lambda E, X, Y: weighted(E[X][:, Y]),
    "E[X][Y % 2]": lambda E, X, Y: weighted(E[X][Y % 2]),
    "E[[x, y]]": lambda E, X, Y: weighted(E[[X[0], Y[1]]]),
    "E[[x, 2], 1]": lambda E, X, Y: weighted(E[[X[0], 2], 1]),
    "E[x, Y]": lambda E, X, Y: weighted(E[X[0], Y]),
    "E[x, :, 1]": lambda E, X, Y: weighted(E[X[0], :, 1]),
    "E[x, y, z]": lambda E, X, Y: E[X[0], Y[0], X[1] % 3] * 2.0,
    "E[:, y]": lambda E, X, Y: weighted(E[:, Y[0]]),
    "E[1:3, y, :2]": lambda E, X, Y: weighted(E[1:3, Y[0], :2]),
    "E[x]": lambda E, X, Y: weighted(E[X[2]]) + weighted(E[X[2]]),
    "E[two rows]": lambda E, X, Y: weighted(E[np.stack([X, X[::-1]])]),
    "E[X[:, None], Y]": lambda E, X, Y: weighted(E[X[:, None], Y]),
    "E[arange, X]": lambda E, X, Y: weighted(E[np.arange(3), Y]),
    "E[X - 5]": lambda E, X, Y: weighted(E[X % 5 - 5]),
    "E[X[:-1], Y[1:]]": lambda E, X, Y: weighted(E[X[:-1], Y[1:]]),
    "weights": lambda E, X, Y: weighted(E[0, 0] * WEIGHTS[X]),
    "weights one by one": lambda E, X, Y: sum(E[0, 0, 0] * WEIGHTS[x] for x in X),
    "frozen rows": lambda E, X, Y: tanh_sum(E[0, 1] * FROZEN[X]),
    "a frozen row": lambda E, X, Y: tanh_sum(E[0, 1] * FROZEN[X[0]]),
    "a frozen column": lambda E, X, Y: tanh_sum(E[:, 0, 0] * FROZEN[:, Y[0] % 3]),
    "integers": lambda E, X, Y: weighted(E[STEPS[X]]),
    "integers one by one": lambda E, X, Y: weighted(E[STEPS[X[0]], 1]) * STEPS[Y[0]],
    "halves": lambda E, X, Y: E[0, 0, 0] * HALVES[X[0]],
}


def calls():
    chance = np.random.default_rng(3)
    for _ in range(6):
        yield chance.integers(0, 5, 3), chance.integers(0, 4, 3)
    yield np.array([-1, 2, -5]), np.array([-4, 3, -1])
    yield np.array([1, 1, 1]), np.array([0, 0, 0])


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


def agree(f, fast, E, *integers):
    found = outcome(fast.value_and_grad, E, *integers)
    expected = outcome(chainrule.value_and_grad(f), E, *integers)
    if isinstance(expected[0], type):
        assert found == expected
        return
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize("lift", [False, True])
@pytest.mark.parametrize("name", READS)
def test_arrays_are_read_by_arrays_of_integers(name, lift):
    f, E = READS[name], np.random.default_rng(1).normal(size=(5, 4, 3))
    fast = chainrule.compile(f, lift=lift)
    for X, Y in calls():
        agree(f, fast, E, X, Y)
    if name != "halves":  # numbers of 32 bits are static
        assert len(View(fast).variants) <= 2, fast.report()
        assert View(fast).eager_calls == 0


@pytest.mark.parametrize("name", ["E[X]", "E[X, Y]", "E[x]", "E[:, Y]", "weights", "frozen rows"])
def test_an_index_out_of_range_raises_as_numpy_does(name):
    f, E = READS[name], np.random.default_rng(1).normal(size=(5, 4, 3))
    fast = chainrule.compile(f, on_fallback="eager")
    good = np.array([1, 2, 3])
    for bad in ([9, 1, 5], [-7, 0, -6]):
        agree(f, fast, E, good, good)
        agree(f, fast, E, np.array(bad), np.array(bad))
    agree(f, fast, E, good[::-1].copy(), good)


@pytest.mark.parametrize(
    "f",
    [
        lambda E, X: weighted(E[X > 2]),
        lambda E, X: weighted(E[[x > 2 for x in X]]),
        lambda E, X: weighted(E[X, ...]),
        lambda E, X: weighted(E[X, None]),
        lambda E, X: weighted(E[X][np.argmax(X)]),
        lambda E, X: weighted(E[X * 1.0]),
        lambda E, X: weighted(E[X, X, X, X]),
        lambda E, X: weighted(E[X, [0, 1]]),
        lambda E, X: weighted(E.tolist()[X]),
        lambda E, X: weighted(E[X.astype(np.int32)]),
        lambda E, X: weighted(np.take(E, X, axis=0)),
        lambda E, X: weighted(E.take(X, axis=0)),
    ],
)
def test_other_keys_mean_what_numpy_means(f):
    E = np.random.default_rng(1).normal(size=(5, 4, 3))
    fast = chainrule.compile(f, on_fallback="eager")
    for X in ([0, 1, 3, 4, 2], [4, 3, 3, 1, 0], [0, 0, 1, 4, 4]):
        agree(f, fast, E, np.array(X))
        agree(f, fast, E * 2.0, np.array(X))


def changed_row(E, X):
    row = E[X[0]]
    row[0] = E[1, 1]
    return weighted(E) + weighted(row)


def changed_original(E, X):
    row = E[X[0], :, 1]
    E = E + 0.0
    E[X[1]] = E[0]
    return weighted(E) + weighted(row)


def changed_selection(E, X):
    rows = E[X]
    rows[0] = rows[1]
    return weighted(rows) + weighted(E)


def changed_frozen(E, X):
    row = FROZEN[X[0]]
    row *= 2.0
    row *= 0.5
    return weighted(E[0, 0] * row)


@pytest.mark.parametrize("f", [changed_row, changed_original, changed_selection, changed_frozen])
def test_what_was_read_may_be_changed(f):
    fast = chainrule.compile(f, on_fallback="eager")
    eager = chainrule.value_and_grad(f)
    for X in ([0, 1], [2, 0], [1, 1], [3, 4]):
        arguments = np.random.default_rng(1).normal(size=(5, 4, 3)), np.array(X)
        before = FROZEN.copy()
        found, expected = fast.value_and_grad(*arguments), eager(*arguments)
        assert found[0] == pytest.approx(expected[0], rel=1e-12)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)
        np.testing.assert_array_equal(FROZEN, before)


def test_observations_by_index_arrays_are_recorded_once():
    def loss(p, cameras, points, seen):
        total = 0.0
        for k in range(len(cameras)):
            camera, point = p["cameras"][cameras[k]], p["points"][points[k]]
            x = point[0] * camera[0] - point[1] * camera[1] + camera[2]
            total = total + (x - seen[k]) ** 2
        return total

    chance = np.random.default_rng(5)
    p = {"cameras": chance.normal(size=(6, 3)), "points": chance.normal(size=(40, 2))}
    fast, eager = chainrule.compile(loss), chainrule.value_and_grad(loss)
    for _ in range(5):
        data = chance.integers(0, 6, 120), chance.integers(0, 40, 120), chance.normal(size=120)
        (found, slopes), (expected, wanted) = fast.value_and_grad(p, *data), eager(p, *data)
        assert found == pytest.approx(expected, rel=1e-10)
        for name in p:
            np.testing.assert_allclose(slopes[name], wanted[name], rtol=1e-9)
    assert len(View(fast).variants) == 1
    assert View(fast).ran_machine_code


TABLE = np.random.default_rng(8).normal(size=(3000, 3))


def of_a_large_table(p, tokens):
    total = 0.0
    for t in tokens:
        total = total + sum(a * b for a, b in zip(p, TABLE[t], strict=True))
    return total


def test_rows_of_a_large_table_are_read_as_they_are_now():
    """Its numbers are compared and not hashed; other numbers in it are other rows."""
    fast, eager = chainrule.compile(of_a_large_table), chainrule.value_and_grad(of_a_large_table)
    rng, kept = np.random.default_rng(1), TABLE.copy()
    try:
        for k in range(12):
            tokens = rng.integers(0, 3000, 4).tolist()
            TABLE[tokens[0], k % 3] = [np.nan, -0.0, 2.5, 0.0][k % 4]
            value, gradient = fast.value_and_grad([0.5, -1.0, 2.0], tokens)
            wanted, slopes = eager([0.5, -1.0, 2.0], tokens)
            assert value == pytest.approx(wanted, nan_ok=True)
            assert gradient == pytest.approx(slopes, nan_ok=True)
    finally:
        TABLE[:] = kept


def reading_twice(p, table, i):
    first = p[0] * table[i][0]
    table = table + 1.0
    return first + p[1] * table[i][0]


def test_large_tables_with_other_numbers_are_not_mistaken_for_each_other():
    fast, eager = chainrule.compile(reading_twice), chainrule.value_and_grad(reading_twice)
    for i in range(8):
        assert fast.value_and_grad([1.0, 2.0], TABLE, i) == eager([1.0, 2.0], TABLE, i)


def reading_globals(p, i):
    return p[0] * TABLE[i][0] + p[1] * (TABLE + 0.0)[i][1] + p[0] * (-TABLE)[i][0]


def test_a_copy_and_a_negative_of_a_large_table():
    fast, eager = chainrule.compile(reading_globals), chainrule.value_and_grad(reading_globals)
    for i in range(8):
        assert fast.value_and_grad([1.0, 2.0], i) == eager([1.0, 2.0], i)
