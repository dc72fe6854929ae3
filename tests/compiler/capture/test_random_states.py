"""Whether random numbers were drawn is seen, whatever drew them; and they can be put back."""

import random

import numpy as np
import pytest

import chainrule
from chainrule.compiler.capture import random_states as states_of
from chainrule.compiler.capture.random_states import random_states, random_states_kept

DRAWS = {
    "random": random.random,
    "gauss": lambda: random.gauss(0.0, 1.0),
    "seed": lambda: random.seed(5),
    "shuffle": lambda: random.shuffle([1, 2, 3]),
    "numpy": lambda: np.random.rand(),  # noqa: NPY002
    "numpy's normal": lambda: np.random.randn(),  # noqa: NPY002
    "numpy's seed": lambda: np.random.seed(5),  # noqa: NPY002
    "numpy's permutation": lambda: np.random.permutation(4),  # noqa: NPY002
}


def drawn():
    """The next numbers of all four kinds."""
    return random.random(), random.gauss(0.0, 1.0), np.random.rand(), np.random.randn()  # noqa: NPY002


@pytest.fixture(params=[True, False], ids=["in memory", "asked for"])
def way(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(states_of, "_is_known", lambda: False)


@pytest.mark.parametrize("halves", [0, 1], ids=["none kept", "one kept"])
@pytest.mark.parametrize("name", DRAWS)
def test_every_draw_is_seen_and_taken_back(way, name, halves):
    random.seed(1), np.random.seed(1)  # noqa: NPY002
    for _ in range(halves):  # the second of two numbers made at once waits to be drawn
        random.gauss(0.0, 1.0), np.random.randn()  # noqa: NPY002
    before = random_states()
    assert not before.changed()
    DRAWS[name]()
    assert before.changed()
    before.restore()
    assert not before.changed()
    with random_states_kept():
        first = drawn()
    assert drawn() == first


def test_the_second_of_two_normal_numbers_is_known_after_the_state_was_set_again(way):
    np.random.seed(2)  # noqa: NPY002
    np.random.randn()  # noqa: NPY002
    halfway = np.random.get_state()  # noqa: NPY002
    np.random.randn()  # noqa: NPY002
    assert not random_states().changed()  # known as they are now, with nothing kept
    np.random.set_state(halfway)  # noqa: NPY002
    with random_states_kept():
        second = np.random.randn()  # noqa: NPY002
    assert np.random.randn() == second  # noqa: NPY002


def test_this_python_and_numpy_keep_their_states_where_they_are_looked_for():
    assert states_of._is_known()


def test_another_generator_of_numpys_is_asked_for_its_state():
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        states = random_states()
        assert states.memory is None
        assert not states.changed()
        np.random.rand()  # noqa: NPY002
        assert states.changed()
    finally:
        np.random.set_bit_generator(before)


def test_a_recording_that_draws_is_refused_though_the_state_was_looked_at_before():
    def draws(x, generator):
        return x * generator()

    fast = chainrule.compile(draws, on_fallback="eager")
    random.seed(4)
    first = [fast.value_and_grad(2.0, random.random) for _ in range(3)]
    random.seed(4)
    assert first == [chainrule.value_and_grad(draws)(2.0, random.random) for _ in range(3)]
