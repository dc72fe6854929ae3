"""Columns of addresses as rows that are data: what calls of several lengths have in common."""

import numpy as np
import pytest

from chainrule.compiler.lift.graph import NotLiftable
from chainrule.compiler.lift.rows import common_space, points_of, rows_of
from chainrule.compiler.lift.strides import StridedLoop

WIDTH = 4


def scores(n):
    """Of queries and keys, side by side: [n, n, WIDTH]."""
    i, j, k = np.meshgrid(*map(np.arange, (n, n, WIDTH)), indexing="ij")
    return [(i * n + j).ravel(), (i * WIDTH + k).ravel(), (500 + j * WIDTH + k).ravel()]


def weighted(n):
    """Weights times values, summed over the keys: [n, WIDTH, n]."""
    i, k, j = np.meshgrid(*map(np.arange, (n, WIDTH, n)), indexing="ij")
    return [(i * WIDTH + k).ravel(), (900 + i * n + j).ravel(), (500 + j * WIDTH + k).ravel()]


def triangle(n):
    i, j = np.tril_indices(n)
    return [np.arange(len(i)), i, j]


def last(n):
    """A row that is elsewhere in each call."""
    return [np.arange(WIDTH), (n - 1) * WIDTH + np.arange(WIDTH)]


def pairs_in_one_row(n):
    return [np.arange(n * n), 700 + np.arange(n * n)]


def column_sums(n):
    """Strides that depend on the length: a row for each point."""
    j, i = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    return [j.ravel(), (i * n + j).ravel()]


@pytest.mark.parametrize(
    "columns", [scores, weighted, triangle, last, pairs_in_one_row, column_sums]
)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12])
def test_rows_of_another_length_walk_exactly_its_columns(columns, n):
    space = common_space(columns(11), columns(12), merge=False)
    rows = rows_of(space, columns(n))
    np.testing.assert_array_equal(points_of(space, rows), columns(n))


def test_what_is_the_same_at_all_lengths_is_a_loop_inside_of_the_rows():
    space = common_space(scores(11), scores(12), merge=False)
    assert space.loops == (StridedLoop(WIDTH, (0, 1, 1)),)
    assert space.run == (1, 0, WIDTH)
    assert len(rows_of(space, scores(7))) == 7
    space = common_space(weighted(11), weighted(12), merge=False)
    assert space.middle == (StridedLoop(WIDTH, (1, 0, 1)),)
    assert len(rows_of(space, weighted(7))) == 7


def test_one_long_row_is_no_loop_although_its_lengths_have_a_common_divisor():
    space = common_space([np.arange(55)], [np.arange(66)], merge=False)
    assert not space.loops
    np.testing.assert_array_equal(rows_of(space, [np.arange(7)]), [[7, 0]])


def test_a_run_goes_on_through_the_loops_in_it():
    apart = [np.concatenate([np.arange(12), 100 + np.arange(12)])]
    longer = [np.concatenate([np.arange(16), 100 + np.arange(16)])]
    assert not common_space(apart, longer, merge=True).loops


def test_columns_that_go_another_way_have_no_rows():
    space = common_space(scores(11), scores(12), merge=False)
    turned = scores(7)
    turned[2] = turned[2][::-1].copy()
    with pytest.raises(NotLiftable, match="another way"):
        rows_of(space, turned)


def test_no_points_are_no_rows():
    space = common_space(scores(11), scores(12), merge=False)
    rows = rows_of(space, [np.zeros(0, np.int64)] * 3)
    assert rows.shape == (0, 4)
    assert points_of(space, rows).shape == (3, 0)
