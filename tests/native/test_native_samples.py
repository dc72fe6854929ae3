"""Samples of training taken apart in C, beside the same in Python; nothing crashes on bad input."""

import random
import sys

import numpy as np
import pytest

from chainrule import _native
from chainrule.compiler.training import structures
from chainrule.compiler.training.structures import Structures


def words(*numbers):
    return np.array(numbers, np.int64)


# --- sample_integers --------------------------------------------------------------------------------


class Whole(int):
    pass


SAME = [1, 2]
ODD = [
    *[(), ([],), ([1], [2]), ((1, 2),), ([1.0],), ([True],), ([1, None],), ([Whole(3)],), (3,)],
    *[([2**63],), ([-(2**63) - 1],), ([1, [2]],), ({1: 2},), ("12",), (np.array([1, 2]),)],
]


def test_integers_of_samples():
    samples = [([1, 2, 3],), ([-5],), ([2**63 - 1, -(2**63)],), ([7],)]
    lengths = np.zeros((3, 1), np.int64)
    found = _native.sample_integers(samples, words(2, 0, 1), lengths)
    assert lengths.ravel().tolist() == [2, 3, 1]
    assert np.frombuffer(found, np.int64).tolist() == [2**63 - 1, -(2**63), 1, 2, 3, -5]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_samples_of_anything_else_are_left_out(odd):
    lengths = np.zeros((3, 1), np.int64)
    found = _native.sample_integers([([4],), odd, ([5, 6],)], words(0, 1, 2), lengths)
    assert lengths.ravel().tolist() == [1, -1, 2]
    assert np.frombuffer(found, np.int64).tolist() == [4, 5, 6]


def test_one_list_twice_is_not_two_lists():
    lengths = np.zeros((2, 2), np.int64)
    found = _native.sample_integers([(SAME, SAME), (SAME, list(SAME))], words(0, 1), lengths)
    assert lengths.tolist() == [[-1, -1], [2, 2]]
    assert np.frombuffer(found, np.int64).tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((([1],), words(0), words(0)), TypeError),  # no list of samples
        (([([1],)], words(1), words(0)), IndexError),
        (([([1],)], words(-1), words(0)), IndexError),
        (([([1],)], words(0, 0), words(0)), TypeError),  # too short
        (([([1],)], np.zeros(1), words(0)), TypeError),
        (([([1],)], words(0), np.zeros(1)), TypeError),
        (([([1],)], words(0, 0), words(0, 0, 0, 0)[::2]), (TypeError, ValueError, BufferError)),
        (([([1],)], words(0), words(0).data.toreadonly()), (TypeError, ValueError, BufferError)),
        (([([1],)],), TypeError),
    ],
)
def test_reading_refuses_what_does_not_fit(arguments, error):
    with pytest.raises(error):
        _native.sample_integers(*arguments)


def test_reading_nothing():
    assert _native.sample_integers([], words(), words()) == b""
    lengths = np.zeros((2, 1), np.int64)
    assert _native.sample_integers([(3,), ()], words(0, 1), lengths) == b""
    assert lengths.tolist() == [[-1], [-1]]


def test_reading_keeps_no_references():
    numbers = [10**15 + k for k in range(5)]
    sample = (numbers,)
    before = [sys.getrefcount(x) for x in (sample, numbers, *numbers)]
    lengths = np.zeros((1, 1), np.int64)
    for _ in range(100):
        _native.sample_integers([sample], words(0), lengths)
    assert [sys.getrefcount(x) for x in (sample, numbers, *numbers)] == before


# --- kinds ---------------------------------------------------------------------------------------


def test_kinds_of_samples_are_those_of_python(monkeypatch):
    chance = random.Random(3)
    made = [([chance.randrange(9) for _ in range(chance.randrange(1, 5))],) for _ in range(40)]
    made[7:7] = [([True],), ([],), (2,), ([2**70],)]
    prepared = Structures(made, (), frozenset())

    def kinds():
        prepared.forget_calls()
        found = prepared.groups(np.arange(len(made)))
        return sorted((members, None if ids is None else ids.tolist()) for members, ids in found)

    found = kinds()
    assert sorted(k for members, _ in found for k in members) == list(range(len(made)))
    assert [made[k] for members, ids in found if ids is None for k in members] == [([2**70],)]
    monkeypatch.setattr(structures, "kernels", None)
    assert found == kinds()


# --- sample_numbers ---------------------------------------------------------------------------------


def read_numbers(samples, floats, integers):
    """How many were read, and the rows of numbers."""
    rows = np.zeros((len(samples), floats)), np.zeros((len(samples), integers), np.int64)
    found = _native.sample_numbers(samples, np.ndarray, np.float64, *rows)
    return found, rows[0].tolist(), rows[1].tolist()


def test_numbers_of_samples():
    samples = [
        (1.5, [2.0, 3], {"a": np.array([4.0, 5.0]), "n": 6}),
        (-1.5, [-2.0, -3], {"a": np.array([-4.0, -5.0]), "n": -6}),
    ]
    wanted = [[1.5, 2.0, 4.0, 5.0], [-1.5, -2.0, -4.0, -5.0]]
    assert read_numbers(samples, 4, 2) == (2, wanted, [[3, 6], [-3, -6]])


@pytest.mark.parametrize(
    "odd",
    [
        *[(), (1,), ("a",), (None,), (True,), ([1.0],), (1.0, 2.0), (np.float64(1.0),), [1.0]],
        *[(np.zeros(2),), (np.zeros(1, np.float32),), (object,), ({"x": 1.0},), 3, None],
    ],
    ids=repr,
)
def test_numbers_end_at_a_sample_of_another_structure(odd):
    assert read_numbers([(1.0,), (2.0,), odd, (3.0,)], 1, 0)[0] == 2
    assert read_numbers([(1.0,), odd], 1, 0)[0] == 1


@pytest.mark.parametrize("odd", [(2**63,), (-(2**70),)])
def test_numbers_end_at_an_integer_beyond_64_bits(odd):
    assert read_numbers([(1,), odd], 0, 1)[0] == 1


def test_numbers_of_arrays_that_do_not_lie_in_one_piece_are_left():
    table = np.arange(12.0).reshape(3, 4)
    assert read_numbers([(table[0],), (table[:, 1],)], 4, 0)[0] == 1
    assert read_numbers([(table[::2],)], 8, 0)[0] == 0
    assert read_numbers([(np.zeros(0),)], 0, 0)[0] == 1  # nothing of it is anywhere


def test_numbers_are_as_many_as_there_is_room_for():
    assert read_numbers([(1.0, 2.0)], 1, 0)[0] == 0
    assert read_numbers([(1.0, 2.0)], 3, 0)[0] == 0
    assert read_numbers([(1.0, 2)], 1, 0)[0] == 0
    assert read_numbers([(np.zeros(5),)], 4, 0)[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        (((1.0,),), np.ndarray, np.float64, np.zeros(1), words(0)),
        ([(1.0,)], 1, np.float64, np.zeros(1), words(0)),
        ([(1.0,)], np.ndarray, None, np.zeros(1), words(0)),
        ([(1.0,)], np.ndarray, np.float64, words(0), words(0)),
        ([(1.0,)], np.ndarray, np.float64, np.zeros(1), np.zeros(1)),
        ([(1.0,)], np.ndarray, np.float64, None, words(0)),
        ([(1.0,)],),
    ],
)
def test_reading_numbers_refuses_what_does_not_fit(arguments):
    with pytest.raises(TypeError):
        _native.sample_numbers(*arguments)


def test_reading_numbers_keeps_no_references():
    array, number = np.zeros(3), 1234.5
    samples = [(array, number, [2**65]), (array, number, [2**65])]
    before = [sys.getrefcount(x) for x in (array, number, samples[0][2])]
    for _ in range(100):
        read_numbers(samples, 4, 1)
        read_numbers(samples[:1] * 2, 3, 1)
    assert [sys.getrefcount(x) for x in (array, number, samples[0][2])] == before
    assert read_numbers([], 0, 0) == (0, [], [])
