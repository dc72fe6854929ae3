"""``out=`` and ``bound``: the gradient goes where the user says, whatever path answers the call."""

import gc
import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import chainrule
from chainrule import tanh


@dataclass
class Line:
    w: np.ndarray
    b: np.ndarray


def chain(x):
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(len(x) - 1))


def grid(x):
    return sum(tanh(x[i, j] * x[j, i]) * (i + 1) for i in range(3) for j in range(3))


def sides(x):
    return x[0] * x[1] if x[0] > 0 else tanh(x[1]) - x[0]


def expected(f, *arguments):
    return chainrule.value_and_grad(f)(*arguments)


@pytest.mark.parametrize("lift", [False, True])
@pytest.mark.parametrize(("f", "shape"), [(chain, (10,)), (grid, (3, 3))])
def test_the_gradient_goes_into_out(f, shape, lift):
    fast = chainrule.compile(f, lift=lift)
    out = np.zeros(shape)
    for seed in range(30):
        x = np.random.default_rng(seed).normal(size=shape)
        out[...] = 7.0
        value, found = fast.value_and_grad(x, out=out)
        wanted, slopes = expected(f, x)
        assert found is out
        assert value == pytest.approx(wanted, rel=1e-13)
        np.testing.assert_allclose(out, slopes, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("lift", [False, True])
def test_arrays_of_every_form_are_filled_alike(lift):
    fast = chainrule.compile(chain, lift=lift)
    x = np.linspace(-1.0, 1.0, 10)
    _, slopes = expected(chain, x)
    for _ in range(20):
        fast.value_and_grad(x)
    for out in (
        np.zeros(20)[::2],
        np.zeros(10, np.float32),
        np.zeros(10, ">f8"),
        np.zeros((2, 10), order="F")[1],
        np.zeros(10).view(np.matrix).A1,
        np.ma.zeros(10),
    ):
        assert fast.value_and_grad(x, out=out)[1] is out
        np.testing.assert_allclose(out, slopes, rtol=1e-6)
    own = x.copy()
    fast.value_and_grad(own, out=own)
    np.testing.assert_allclose(own, slopes, rtol=1e-12)


def test_what_does_not_fit_is_told_and_nothing_changes():
    fast = chainrule.compile(chain, lift=True)
    x = np.linspace(-1.0, 1.0, 10)
    for _ in range(20):
        fast.value_and_grad(x)
    locked = np.zeros(10)
    locked.flags.writeable = False
    for out, error in (
        (np.zeros(11), "structure of the first argument"),
        (np.zeros((2, 5)), "structure of the first argument"),
        (np.zeros((10, 1)), "structure of the first argument"),
        (locked, "read-only"),
        (np.zeros(10, int), "arrays of floats, not of int64"),
    ):
        with pytest.raises((ValueError, TypeError), match=error):
            fast.value_and_grad(x, out=out)
        assert not out.any()


@pytest.mark.parametrize("lift", [False, True])
def test_a_bound_call_reads_its_arrays_where_they_are(lift):
    x = np.linspace(-1.0, 1.0, 10)
    bound = chainrule.compile(chain, lift=lift).bound(x)
    kept = bound.gradient
    for seed in range(30):
        x[:] = np.random.default_rng(seed).normal(size=10)
        wanted, slopes = expected(chain, x)
        assert bound() == pytest.approx(wanted, rel=1e-13)
        assert bound.gradient is kept
        np.testing.assert_allclose(kept, slopes, rtol=1e-12)


def test_bound_calls_take_other_branches_and_other_data():
    x, data = np.array([1.0, 2.0]), [0, 3.0]

    def f(x, data):
        return sides(x) * data[1] + x[data[0]]

    bound = chainrule.compile(f).bound(x, data)
    for step in range(40):
        x[:] = np.random.default_rng(step).normal(size=2)
        data[:] = [step % 2, float(step)]
        wanted, slopes = expected(f, x, data)
        assert bound() == pytest.approx(wanted, rel=1e-13)
        np.testing.assert_allclose(bound.gradient, slopes, rtol=1e-12)


def test_bound_calls_see_what_changes_around_the_function():
    scale = [2.0]
    x = np.array([1.0, 2.0, 3.0])
    bound = chainrule.compile(lambda x: sum(v * v for v in x) * scale[0]).bound(x)
    for number in (2.0, 2.0, 5.0, -1.0):
        scale[0] = number
        assert bound() == 14.0 * number
        np.testing.assert_array_equal(bound.gradient, 2.0 * number * x)


def test_trees_of_arrays_are_bound_too():
    line = Line(np.array([1.0, -2.0]), np.array(0.5))
    params = {"line": line, "rest": [np.ones((2, 2))]}

    def f(p, x):
        return tanh(p["line"].w[0] * x + p["line"].b.item()) * p["rest"][0][1, 0] + p["line"].w[1]

    bound = chainrule.compile(f).bound(params, 0.25)
    for step in range(20):
        line.w[:] = step / 10.0, step / 20.0
        wanted, slopes = expected(f, params, 0.25)
        assert bound() == pytest.approx(wanted, rel=1e-13)
        assert type(bound.gradient["line"]) is Line
        np.testing.assert_allclose(bound.gradient["line"].w, slopes["line"].w, rtol=1e-12)
        np.testing.assert_allclose(bound.gradient["line"].b, slopes["line"].b, rtol=1e-12)
        np.testing.assert_allclose(bound.gradient["rest"][0], slopes["rest"][0], rtol=1e-12)


def test_what_cannot_be_bound_is_told():
    fast = chainrule.compile(chain)
    for first, what in (
        ([1.0, 2.0], "not a float"),
        (np.arange(3), "not a int64 array"),
        (np.zeros(3, np.float32), "not a float32 array"),
    ):
        with pytest.raises(TypeError, match=what):
            fast.bound(first)
    with pytest.raises(TypeError, match="differentiate by first"):
        fast.bound()
    assert repr(fast.bound(np.zeros(3))) == "<chain, bound to its arguments>"


def test_a_bound_call_sees_all_that_changed():
    scale = [2.0]

    def f(x, more):
        return scale[0] * x[0] * (x[1] if x[1] > 0.0 else tanh(x[1])) + more[0][0] * x[1]

    fast = chainrule.compile(f, lift=True)
    x, more = np.array([1.5, 2.5]), [np.array([3.0])]
    bound = fast.bound(x, more)

    def compare():
        value = bound()
        wanted, slopes = expected(f, x, more)
        assert value == pytest.approx(wanted, rel=1e-13)
        np.testing.assert_allclose(bound.gradient, slopes, rtol=1e-12)

    for _ in range(3):
        compare()
    changes = [
        lambda: x.__setitem__(1, -1.0),  # another branch
        lambda: x.__setitem__(1, 2.0),
        lambda: scale.__setitem__(0, 3.0),
        lambda: more.__setitem__(0, np.array([5.0])),
        lambda: more.__setitem__(0, np.array([5.0, 6.0])),  # another shape
        lambda: more.__setitem__(0, [7.0]),
    ]
    for change in changes:
        change()
        for _ in range(3):
            compare()
    before = fast.dispatch.counts.calls
    for _ in range(100):
        bound()
    assert fast.dispatch.counts.calls == before + 100
    x[0] = np.inf
    bound()
    x[0] = 1.0
    compare()
    chainrule.value_and_grad(lambda y: y * bound())(2.0)  # inside another derivative
    bound.gradient.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        bound()


def test_a_bound_call_takes_no_arguments():
    bound = chainrule.compile(chain).bound(np.ones(3))
    for wrong in ((1.0,), (np.ones(3),)):
        with pytest.raises(TypeError):
            bound(*wrong)
    with pytest.raises(TypeError):
        bound(x=1.0)
    assert bound() == 0.0


@pytest.mark.parametrize("lift", [False, True])
def test_calls_that_were_answered_quickly_are_eager_inside_a_transform(lift):
    """The gate leaves them to the slow path, which knows what is differentiated around them."""
    fast, x = chainrule.compile(chain, lift=lift), np.linspace(-1.0, 1.0, 10)
    bound = fast.bound(x)
    for _ in range(20):
        fast(x), fast.value_and_grad(x), bound()
    _, wanted = expected(chain, x)

    def outer(s):
        return s * bound() + s * s * fast.value_and_grad(x)[0] + s * fast([v * s for v in x])

    slope = chainrule.grad(outer)(1.0)
    assert slope == pytest.approx(4.0 * chain(x) + np.dot(wanted, x), rel=1e-12)
    assert chainrule.grad(chainrule.grad(outer))(1.0) == pytest.approx(
        chainrule.grad(chainrule.grad(lambda s: s * s * chain(x) + s * chain([v * s for v in x])))(
            1.0
        ),
        rel=1e-12,
    )


def test_a_gate_keeps_neither_arguments_nor_answers():
    fast, x = chainrule.compile(chain, lift=True), np.linspace(-1.0, 1.0, 10)
    bound = fast.bound(x)
    for _ in range(70):
        fast(x), fast.value_and_grad(x), bound()
    gc.collect()  # what recording left
    before, kept = sys.getrefcount(x), []
    for _ in range(3):  # what calls keep, they keep each time; what others do, now and then
        gc.collect()
        blocks = sys.getallocatedblocks()
        for _ in range(2000):
            fast(x), fast.value_and_grad(x), fast.value_and_grad(x, out=bound.gradient), bound()
        gc.collect()
        kept.append(sys.getallocatedblocks() - blocks)
    assert sys.getrefcount(x) == before
    assert min(kept) < 100


def test_threads_share_a_bound_call():
    """One at a time: what a call writes is one point's gradient."""
    fast, x = chainrule.compile(chain, lift=True), np.linspace(-1.0, 1.0, 10)
    bound = fast.bound(x)
    value, slopes = bound(), bound.gradient.copy()
    failures = []

    def work():
        for _ in range(2000):
            other = fast.value_and_grad(2.0 * x)[0]
            if bound() != value or other == value or (bound.gradient != slopes).any():
                failures.append(other)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


NAMES = {"a": np.array([1.0, 2.0]), "b": np.array([5.0, 6.0])}


def named(p):
    return (p["a"] * p["a"]).sum() + 3.0 * p["b"].sum()


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_out_has_each_gradient_under_its_name_whatever_the_order(names):
    fast, out = chainrule.compile(named), {name: np.zeros(2) for name in names}
    for _ in range(3):
        _, found = fast.value_and_grad(NAMES, out=out)
        assert found is out
        assert out["a"].tolist() == [2.0, 4.0]
        assert out["b"].tolist() == [3.0, 3.0]
    _, found = chainrule.compile(lambda p, x: named(p) * x).batch_value_and_grad(
        NAMES, [(1.0,), (3.0,)], out=out
    )
    assert out["a"].tolist() == [4.0, 8.0]
    assert out["b"].tolist() == [6.0, 6.0]


@pytest.mark.parametrize(
    "out",
    [
        {"a": np.zeros(2), "c": np.zeros(2)},
        {"a": np.zeros(2)},
        {"a": np.zeros(2), "b": np.zeros(3)},
        [np.zeros(2), np.zeros(2)],
    ],
)
def test_an_out_of_another_structure_is_refused_and_not_written(out):
    fast = chainrule.compile(named)
    for _ in range(3):
        with pytest.raises(ValueError, match="structure of the first argument"):
            fast.value_and_grad(NAMES, out=out)
    arrays = out if isinstance(out, list) else out.values()
    assert not any(array.any() for array in arrays)


def test_out_may_hold_other_types_and_views():
    fast, wide = chainrule.compile(named), np.zeros((2, 4))
    out = {"a": np.zeros(2, np.float32), "b": wide[:, 1]}
    fast.value_and_grad(NAMES, out=out)
    assert out["a"].tolist() == [2.0, 4.0]
    assert wide[:, 1].tolist() == [3.0, 3.0]
    frozen = {"a": np.zeros(2), "b": np.zeros(2)}
    frozen["b"].flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fast.value_and_grad(NAMES, out=frozen)


def test_nested_trees_of_arrays_are_filled_in_place():
    tree = {"w": [np.ones((2, 3)), (np.ones(2),)], 1: np.ones(1)}

    def total(p):
        return (p["w"][0] ** 2).sum() + p["w"][1][0].sum() * 5.0 + p[1][0] * 7.0

    fast = chainrule.compile(total)
    out = {1: np.zeros(1), "w": [np.zeros((2, 3)), (np.zeros(2),)]}
    for _ in range(3):
        fast.value_and_grad(tree, out=out)
    assert out["w"][0].tolist() == [[2.0] * 3] * 2
    assert out["w"][1][0].tolist() == [5.0, 5.0]
    assert out[1].tolist() == [7.0]


def test_out_says_why_it_cannot_take_values():
    outside = chainrule.Value(2.0)
    fast = chainrule.compile(lambda p: p[0] * outside, on_fallback="eager")
    with pytest.raises(TypeError, match="out cannot take this gradient"):
        fast.value_and_grad(np.array([1.0]), out=np.zeros(1))
