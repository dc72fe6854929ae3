"""Arrays whose axes lie in another order in memory: eager's numbers and effects, order by order."""

import operator

import numpy as np
import pytest

import chainrule
from chainrule import relu

ROWS = np.arange(6.0).reshape(2, 3)
LAYOUTS = {
    "in order": ROWS.copy(),
    "Fortran": np.asfortranarray(ROWS),
    "a transposed array": np.arange(6.0).reshape(3, 2).T,
    "every other column": np.arange(12.0).reshape(2, 6)[:, ::2],
    "rows backwards": np.arange(6.0).reshape(2, 3)[::-1],
    "one row twice": np.broadcast_to(np.arange(3.0), (2, 3)),
}
ORDERS = [list(LAYOUTS), list(LAYOUTS)[::-1]]


def by_ravel(p, m):
    return p[0] * m.ravel(order="K")[1]


def by_function(p, m):
    return p[0] * np.ravel(m, "A")[1]


def by_flatten(p, m):
    return p[0] * m.flatten("K")[1]


def by_reshape(p, m):
    return p[0] * m.reshape(-1, order="A")[1]


def by_copy(p, m):
    return p[0] * m.copy("K").ravel("K")[1]


def by_another_like_it(p, m):
    return p[0] * np.zeros_like(m).strides[0]


def by_arithmetic(p, m):
    return p[0] * (m + 1.0).ravel("K")[1]


def by_transposing(p, m):
    flat = m.T.copy().ravel("A")
    return p[0] * flat[1]


def by_writing(p, m):
    copied = m * 1.0
    flat = copied.reshape(-1)
    flat[0] = 7.0
    return p[0] * copied[0, 0]


OBSERVING = [
    *(by_ravel, by_function, by_flatten, by_reshape, by_copy, by_another_like_it, by_arithmetic),
    *(by_transposing, by_writing),
]


@pytest.mark.parametrize("order", ORDERS, ids=["in order first", "in order last"])
@pytest.mark.parametrize("f", OBSERVING, ids=lambda f: f.__name__)
def test_what_asks_for_the_order_in_memory_gets_that_of_its_call(f, order):
    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for name in order * 3:
        expected = eager([2.0], LAYOUTS[name])
        assert fast.value_and_grad([2.0], LAYOUTS[name]) == expected, name
        assert fast([2.0], LAYOUTS[name]) == f([2.0], LAYOUTS[name]), name


@pytest.mark.parametrize("kind", [np.bool_, np.int32, np.int64])
def test_masks_and_integers_have_an_order_too(kind):
    def f(p, m):
        return p[0] * float(m.ravel("K")[1])

    fast = chainrule.compile(f, on_fallback="eager")
    rows = np.array([[1, 0, 1], [1, 1, 0]], kind)
    for m in [rows, np.asfortranarray(rows)] * 3:
        assert fast.value_and_grad([2.0], m) == chainrule.value_and_grad(f)([2.0], m)


def test_a_view_in_one_order_is_a_copy_in_another():
    def f(p, m):
        flat = m.T.ravel()  # of an array in Fortran's order these are its own numbers
        flat[0] = 7.0
        return p[0] * m[0, 0] + p[0] * flat[0]

    for order in ORDERS:
        fast = chainrule.compile(f, on_fallback="eager")
        for name in [n for n in order * 3 if LAYOUTS[n].flags.writeable]:
            mine, expected = LAYOUTS[name].copy("K"), LAYOUTS[name].copy("K")
            found = fast.value_and_grad([2.0], mine)
            assert found == chainrule.value_and_grad(f)([2.0], expected)
            assert (mine == expected).all()


@pytest.mark.parametrize("order", ORDERS, ids=["in order first", "in order last"])
def test_parameters_are_in_order_as_in_eager_mode(order):
    def f(m, x):
        return m.ravel(order="K")[1] * x

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for name in order * 3:
        value, gradient = fast.value_and_grad(LAYOUTS[name], 2.0)
        expected, slopes = eager(LAYOUTS[name], 2.0)
        assert value == expected
        assert (gradient == slopes).all()


def test_samples_of_a_batch_have_each_its_own_order():
    samples = [(LAYOUTS[name],) for name in ORDERS[0] * 4]
    params = np.array([2.0])
    fast = chainrule.compile(by_ravel, on_fallback="eager")
    expected = np.mean([by_ravel(params, m) for (m,) in samples])
    for _ in range(3):
        assert fast.batch_value_and_grad(params, samples)[0] == pytest.approx(expected)
    stacked = np.asfortranarray(np.random.default_rng(0).normal(size=(6, 2, 3)))
    found = chainrule.compile(by_ravel, on_fallback="eager").map(params, stacked, in_axes=(None, 0))
    assert found == pytest.approx([by_ravel(params, m) for m in stacked])


def test_a_saved_function_says_that_it_is_for_another_order(tmp_path):
    fast = chainrule.compile(by_ravel)
    fast.save(tmp_path / "f.chainrule", [2.0], LAYOUTS["in order"])
    loaded = chainrule.load(tmp_path / "f.chainrule")
    assert loaded.value_and_grad([2.0], LAYOUTS["in order"]) == (2.0, [1.0])
    with pytest.raises(chainrule.FallbackError, match="strides"):
        loaded.value_and_grad([2.0], LAYOUTS["Fortran"])


def whether_it_may_be_written(p, x):
    return relu(p[1]) * (2.0 if x.flags.writeable else 3.0) + p[0]


def whether_it_has_its_memory(p, x):
    return relu(p[1]) * (2.0 if x[:1].base is x else 3.0) + p[0]


def whether_a_part_has(p, x):
    return relu(p[1]) * (2.0 if x[1:].flags.owndata or x.base is not None else 3.0) + p[0]


def whether_a_getter_finds_its_base(p, x):
    return relu(p[1]) * (2.0 if operator.attrgetter("base")(x) is None else 3.0) + p[0]


def whether_it_steps_on(p, x):
    return relu(p[1]) * (2.0 if x.strides[0] > 0 else 3.0) + p[0]


def whether_its_bytes_may_be_written(p, x):
    return relu(p[1]) * (2.0 if x.__array_interface__["data"][1] else 3.0) + p[0]


def whether_they_share_memory(p, x):
    return relu(p[1]) * (2.0 if np.shares_memory(x, SHARED) else 3.0) + p[0]


SHARED = np.ones(4, bool)


@pytest.mark.parametrize(
    "f",
    [
        *(whether_it_may_be_written, whether_it_has_its_memory, whether_a_part_has),
        *(whether_a_getter_finds_its_base, whether_it_steps_on, whether_its_bytes_may_be_written),
        whether_they_share_memory,
    ],
)
@pytest.mark.parametrize("kind", [bool, np.int16, int, float, object])
def test_in_whose_memory_an_array_lies_is_asked_of_the_array_that_was_passed(f, kind):
    """It makes no difference in the first calls, where it is multiplied by 0."""
    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    eager = chainrule.value_and_grad(f)
    for scale in (-5.0, -1.0, 2.0, 3.0):
        others = [SHARED[:2], SHARED[1:3]] if kind is bool else [np.ones(4, kind)[:2]]
        for x in (np.ones(2, kind), *others, np.ones((1, 2), kind)[0], np.ones(2, kind)[::-1]):
            assert fast.value_and_grad([1.0, scale], x) == eager([1.0, scale], x)
            assert fast([1.0, scale], x) == f([1.0, scale], x)
