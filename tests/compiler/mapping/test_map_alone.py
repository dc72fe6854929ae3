"""Maps of few samples: cached calls one after the other, with the bits that these have."""

import numpy as np
import pytest

import chainrule
from chainrule import log, tanh
from chainrule.compiler.mapping import costs
from chainrule.compiler.mapping.rounds import Rounds
from chainrule.compiler.runtime.ledger import allowance
from chainrule.core.backend import kernels

pytest.importorskip("llvmlite")
native = pytest.mark.skipif(kernels is None, reason="there is no gate without C")

PARAMS = {"w": np.array([0.3, -0.2]), "b": np.array([0.1])}
ROWS, TARGETS = np.arange(12.0).reshape(6, 2) / 10, np.linspace(-1, 1, 6)


def loss(p, x, y):
    return (tanh(sum(w * v for w, v in zip(p["w"], x, strict=True)) + p["b"][0]) - y) ** 2


@pytest.fixture
def lanes(monkeypatch):
    """How often samples went in lanes."""
    seen, run = [], Rounds.run

    def watching(self, alone=False):
        seen.extend([] if alone else [self])
        return run(self, alone)

    monkeypatch.setattr(Rounds, "run", watching)
    return seen


def rows_of(fast, params=PARAMS):
    found = [fast.value_and_grad(params, x, y) for x, y in zip(ROWS, TARGETS, strict=True)]
    return [v for v, _ in found], {k: np.stack([g[k] for _, g in found]) for k in params}


@native
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_few_samples_have_the_bits_of_calls(dtype, lanes):
    params = {name: array.astype(dtype) for name, array in PARAMS.items()}
    fast = chainrule.compile(loss, lift=True, dtype=dtype)
    for _ in range(8):
        rows_of(fast, params)
        values, slopes = fast.map_value_and_grad(params, ROWS, TARGETS)
    wanted, gradients = rows_of(fast, params)
    assert values.tolist() == wanted
    assert slopes.keys() == gradients.keys()
    for name, array in slopes.items():
        np.testing.assert_array_equal(array, gradients[name])
        assert array.flags.writeable
    before = fast.dispatch.gate.quick
    fast.map_value_and_grad(params, ROWS, TARGETS)
    assert fast.dispatch.gate.quick == before + len(ROWS)
    assert not lanes


@native
@pytest.mark.parametrize(("reduce", "share"), [("sum", 1), ("mean", 6)])
def test_they_are_added_up(reduce, share):
    fast = chainrule.compile(loss, lift=True)
    for _ in range(8):
        rows_of(fast)
        value, slopes = fast.map_value_and_grad(PARAMS, ROWS, TARGETS, reduce=reduce)
    wanted, gradients = rows_of(fast)
    assert value == pytest.approx(sum(wanted) / share, rel=1e-14)
    for name, array in slopes.items():
        assert array.shape == PARAMS[name].shape
        np.testing.assert_allclose(array, gradients[name].sum(axis=0) / share, rtol=1e-13)


def test_many_samples_go_in_lanes(monkeypatch, lanes):
    monkeypatch.setattr(costs, "PREPARE", 0.0)
    fast = chainrule.compile(loss, lift=True)
    for _ in range(4):
        rows_of(fast)
        values, _ = fast.map_value_and_grad(PARAMS, ROWS, TARGETS)
    np.testing.assert_allclose(values, rows_of(fast)[0], rtol=1e-12)
    assert lanes


@native
def test_where_the_gate_has_no_answer_samples_go_in_lanes(monkeypatch, lanes):
    """Extras of a call have no place in a row."""
    fast = chainrule.compile(lambda p, x: (p["w"][0] * x[0] * x[1], x[0]), lift=True)
    for _ in range(8):
        fast.value_and_grad(PARAMS, ROWS[0])
        (values, firsts), slopes = fast.map_value_and_grad(PARAMS, ROWS)
    np.testing.assert_allclose(values, 0.3 * ROWS[:, 0] * ROWS[:, 1])
    assert firsts.tolist() == ROWS[:, 0].tolist()
    np.testing.assert_allclose(slopes["w"][:, 0], ROWS[:, 0] * ROWS[:, 1])
    assert lanes


@native
@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_function_that_is_only_mapped_has_the_bits_of_one_that_is_called(count, dtype, lanes):
    params = {name: array.astype(dtype) for name, array in PARAMS.items()}
    called = chainrule.compile(loss, lift=True, dtype=dtype)
    mapped = chainrule.compile(loss, lift=True, dtype=dtype)
    for _ in range(4):
        wanted, gradients = rows_of(called, params)
        before = mapped.dispatch.gate.quick
        values, slopes = mapped.map_value_and_grad(params, ROWS[:count], TARGETS[:count])
    assert mapped.dispatch.gate.quick == before + count  # in C
    assert not lanes
    wanted, gradients = rows_of(called, params)
    assert values.tolist() == wanted[:count]
    for name, array in slopes.items():
        np.testing.assert_array_equal(array, gradients[name][:count])


@native
def test_it_earns_machine_code_for_calls(lanes):
    """The tape would be slower than lanes: that says nothing of the machine code to come."""

    def long(p, x, y):
        for _ in range(60):
            y = y + loss(p, x, y) * 0.01
        return y

    fast = chainrule.compile(long)
    for _ in range(3000):
        values, _ = fast.map_value_and_grad(PARAMS, ROWS[:2], TARGETS[:2])
        if fast.dispatch.gate.answered and fast.dispatch.gate.answered.binding:
            break
    assert fast.dispatch.gate.answered.binding
    assert not lanes
    wanted = [long(PARAMS, x, y) for x, y in zip(ROWS[:2], TARGETS[:2], strict=True)]
    np.testing.assert_allclose(values, [float(w) for w in wanted], rtol=1e-12)


def test_samples_of_a_function_that_changes_something_are_calls_in_order():
    """Nothing of it can be cached: each sample is computed once, and the next sees what it did."""
    seen = []

    def f(p, x):
        seen.append(float(x[0]))
        return p["w"][0] * x[0] * len(seen)

    fast = chainrule.compile(f, on_fallback="eager")
    for times in range(6):
        seen.clear()
        values, slopes = fast.map_value_and_grad(PARAMS, ROWS[:3] + times)
        assert seen == (ROWS[:3, 0] + times).tolist()
        wanted = (ROWS[:3, 0] + times) * [1, 2, 3]
        np.testing.assert_allclose(values, 0.3 * wanted)
        np.testing.assert_allclose(slopes["w"][:, 0], wanted)


def test_what_is_undefined_raises_as_in_a_loop():
    fast = chainrule.compile(lambda p, x: log(x[0] + p["b"][0]) * p["w"][0], lift=True)
    for _ in range(8):
        fast.value_and_grad(PARAMS, ROWS[0])
        fast.map_value_and_grad(PARAMS, ROWS)
    odd = ROWS.copy()
    odd[4, 0] = -3.0
    with pytest.raises(ValueError, match="log"):
        fast.map_value_and_grad(PARAMS, odd)


def test_captured_state_and_structures_are_looked_at():
    scale = 1.0

    def scaled(p, x):
        return p["w"][0] * x[0] * scale

    fast = chainrule.compile(scaled, lift=True)
    for _ in range(8):
        fast.value_and_grad(PARAMS, ROWS[0])
        before, _ = fast.map_value_and_grad(PARAMS, ROWS)
    scale = -2.0
    after, slopes = fast.map_value_and_grad(PARAMS, ROWS)
    assert after.tolist() == (-2.0 * before).tolist()
    assert slopes["w"][:, 0].tolist() == (-2.0 * ROWS[:, 0]).tolist()
    more = {"w": np.ones(3), "b": PARAMS["b"]}
    _, slopes = fast.map_value_and_grad(more, ROWS)
    assert slopes["w"].shape == (6, 3)


@pytest.mark.parametrize("count", [6, 500])
@pytest.mark.parametrize("shapes", [[(2,), (4,)], [(4,), (2,)], [(2, 2), (2,)], [(1, 4), (2, 1)]])
def test_parameters_of_other_shapes_are_another_map(count, shapes):
    """As many numbers in all, in the same dict: each array has its own."""

    def f(p, x):
        first, second = (np.ravel(p[name]) for name in "ab")
        return sum(v * x[0] for v in first) + sum(v * x[1] for v in second)

    rows = np.random.default_rng(0).normal(size=(count, 2))
    fast = chainrule.compile(f, lift=True)
    for some in ([(3,), (3,)], shapes, [(3,), (3,)], shapes):
        params = {name: np.ones(shape) for name, shape in zip("ab", some, strict=True)}
        for _ in range(8):
            fast.value_and_grad(params, rows[0])
            values, slopes = fast.map_value_and_grad(params, rows)
            np.testing.assert_allclose(values, [f(params, row) for row in rows], rtol=1e-12)
            for k, name in enumerate("ab"):
                assert slopes[name].shape == (count, *some[k])
                wanted = np.broadcast_to(rows[:, k, None], (count, params[name].size))
                np.testing.assert_allclose(slopes[name].reshape(count, -1), wanted, rtol=1e-12)


def test_branches_go_their_own_ways():
    fast = chainrule.compile(
        lambda p, x: p["w"][0] * x[0] if x[0] > 0.35 else p["b"][0] * x[1], lift=True
    )
    for _ in range(8):
        values, _ = fast.map_value_and_grad(PARAMS, ROWS)
    wanted = np.where(ROWS[:, 0] > 0.35, 0.3 * ROWS[:, 0], 0.1 * ROWS[:, 1])
    np.testing.assert_allclose(values, wanted, rtol=1e-14)


@native
def test_the_gate_gives_rows_for_lists_of_samples_only():
    gate = chainrule.compile(loss, lift=True).dispatch.gate
    for wrong in ((PARAMS,), (PARAMS, ()), (PARAMS, []), (PARAMS, [1.0], 2)):
        with pytest.raises(TypeError, match="list of samples"):
            gate.rows(*wrong)
    assert gate.rows(PARAMS, [3.0]) is None
    assert gate.rows(PARAMS, [(ROWS[0], 1.0)]) is None


@native
def test_a_batch_of_floats_of_several_lengths_is_calls():
    """Packing them in Python took ten times as long."""

    def total(p, x):
        return sum(tanh(p["w"][0] * v) for v in x)

    samples = [(ROWS.ravel()[: 3 + k % 5],) for k in range(300)]
    fast = chainrule.compile(total, lift=True)
    fast.batch_value_and_grad(PARAMS, samples)
    for _ in range(3):
        fast.batch_value_and_grad(PARAMS, samples)
    before = fast.report()
    value, _ = fast.batch_value_and_grad(PARAMS, samples)
    wanted = [chainrule.value_and_grad(total)(PARAMS, *sample)[0] for sample in samples]
    assert value == pytest.approx(np.mean(wanted), rel=1e-12)
    assert fast.dispatch.gate.answered is not None
    assert before.splitlines()[0] == fast.report().splitlines()[0]


# --- samples that all go another way --------------------------------------------------------------


def by_hash(p, x):
    total = p[0] * x
    for _ in range(hash(float(x)) % 7):
        total = total * 0.5 + p[1]
    return total


@pytest.fixture
def waiting():
    """Nothing can be paid for: what is not worth while is not even looked for."""
    allowance.left = 0.0


WAYS = np.random.default_rng(0).normal(size=150)


@pytest.mark.parametrize("params", [[0.5, 0.25], [0.5, [0.25]], (0.5, 0.25), [[0.5], [0.25]]])
def test_samples_that_all_go_another_way_have_the_bits_of_calls(params, waiting):
    def f(p, x):
        flat = [n for row in p for n in (row if isinstance(row, list) else [row])]
        return by_hash([flat[0], flat[-1]], x)

    fast, slopes = chainrule.compile(f), chainrule.value_and_grad(f)
    found = [slopes(params, x) for x in WAYS]
    wanted = [v for v, _ in found]
    rows = np.array([numbers(g) for _, g in found])
    for _ in range(3):
        values, gradients = fast.map_value_and_grad(params, WAYS)
        assert values.tolist() == wanted
        np.testing.assert_array_equal(np.array(numbers(gradients)).T, rows)
        total, slope = fast.map_value_and_grad(params, WAYS, reduce="sum")
        assert total == pytest.approx(sum(wanted), rel=1e-13)
        np.testing.assert_allclose(numbers(slope), rows.sum(axis=0), rtol=1e-13)
    assert fast.dispatch.counts.eager > 700


def numbers(gradient):
    """The numbers of a nested gradient."""
    if isinstance(gradient, (list, tuple)):
        return [n for x in gradient for n in numbers(x)]
    return [gradient]


@pytest.mark.parametrize("bad", [3, 70, 149])
def test_the_error_is_that_of_the_first_sample_among_many_that_go_another_way(bad, waiting):
    calls = []

    def f(p, x):
        calls.append(x)
        if x == WAYS[bad]:
            raise ValueError("this one")
        return by_hash(p, x)

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(2):
        with pytest.raises(ValueError, match="this one"):
            fast.map_value_and_grad([0.5, 0.25], WAYS)
    assert calls == [*WAYS[: bad + 1]] * 2


@pytest.mark.parametrize("bad", [3, 70])
def test_a_sample_that_returns_more_is_an_error_before_later_ones_run(bad, waiting):
    last = []

    def f(p, x):
        last.append(x)
        found = by_hash(p, x)
        return (found, 1.0) if x == WAYS[bad] else found

    fast = chainrule.compile(f, on_fallback="eager")
    with pytest.raises(TypeError, match="one structure"):
        fast.map_value_and_grad([0.5, 0.25], WAYS)
    assert last == [*WAYS[: bad + 1]]
