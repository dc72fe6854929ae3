"""The nodes of a graph by their shapes, in C."""

import numpy as np
import pytest

from chainrule import _native

RNG = np.random.default_rng(0)


def grouped(kinds, signatures, leaf=1, most=400, members=True):
    kinds, signatures = np.array(kinds, np.uint8), np.array(signatures, np.uint64)
    found = _native.group_shapes(kinds, signatures.view(np.int64), leaf, most, members)
    if found is None:
        return None
    shapes = np.frombuffer(found[0], np.uint64).tolist()
    columns = [np.frombuffer(x, np.int64).tolist() for x in found[1:3]]
    nodes = None if found[3] is None else np.frombuffer(found[3], np.int32).tolist()
    return shapes, *columns, nodes


def test_nodes_by_signature_leaves_apart():
    big = 2**64 - 5
    found = grouped([0, 2, 3, 1, 2, 5, 2], [9, big, 7, 7, big, 3, 7])
    assert found == ([3, 7, big], [1, 2, 2], [5, 2, 1], [5, 2, 6, 1, 4])
    assert grouped([2, 3], [4, 4], members=False) == ([4], [2], [0], None)
    assert grouped([0, 1], [4, 4]) == ([], [], [], [])
    assert grouped([], []) == ([], [], [], [])


@pytest.mark.parametrize("scale", [1, 64, 2**58])
def test_many_nodes_are_those_of_numpy(scale):
    signatures = RNG.integers(0, 50, 5000).astype(np.uint64) * np.uint64(scale)
    kinds = RNG.integers(0, 6, 5000)
    shapes, counts, first, nodes = grouped(kinds, signatures)
    inner = np.flatnonzero(kinds > 1)
    wanted, wanted_counts = np.unique(signatures[inner], return_counts=True)
    assert (shapes, counts) == (wanted.tolist(), wanted_counts.tolist())
    parts = [inner[signatures[inner] == shape] for shape in wanted]
    assert nodes == np.concatenate(parts).tolist()
    assert first == [part[0] for part in parts]


def test_more_shapes_than_asked_for():
    assert grouped([2] * 3, [1, 2, 3], most=2) is None
    assert grouped([2] * 3, [1, 2, 2], most=2) is not None
    assert grouped([2], [1], most=0) is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((np.zeros(2), np.zeros(2, np.int64), 1, 4, True), TypeError),
        ((np.zeros(2, np.uint8), np.zeros(2), 1, 4, True), TypeError),
        ((np.zeros(2, np.uint8), np.zeros(1, np.int64), 1, 4, True), TypeError),
        ((np.zeros(2, np.uint8), np.zeros(2, np.int64), 1, -1, True), ValueError),
        ((np.zeros(2, np.uint8), np.zeros(2, np.int64), 1, 1 << 30, True), ValueError),
        ((np.zeros(2, np.uint8), np.zeros(2, np.int64), 1), TypeError),
    ],
)
def test_what_does_not_fit_is_refused(arguments, error):
    with pytest.raises(error):
        _native.group_shapes(*arguments)
