"""The last iterations of loops in time are copied, so that shorter calls are prefixes."""

import numpy as np
import pytest
from recurrent_programs import (
    DIFFERING,
    SHARED,
    WIDTH,
    at_every_position,
    at_the_last_position,
    by_length,
    ended_early_if_short,
    params,
    step,
    text,
    the_last_but_one,
    the_state_itself,
    turned_if_short,
    twice_the_last_if_short,
)

from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.lift import interpreter
from chainrule.compiler.lift.alignment import ITERATIONS, Prefix, RecordedCall
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.endings import copied_by
from chainrule.compiler.runtime.decisions import runs_of, slots_among
from chainrule.compiler.runtime.machine import repeats_alike
from chainrule.compiler.runtime.results import wanted_of


def recorded(f, tokens, longest=None):
    call = flatten_call((params(), tokens), {}, differentiate=True)
    recording = trace(f, survey(f), call).recording
    runs, slots = runs_of(call.key)[1], None
    if longest is not None:
        slots = slots_among(runs, ((longest, True),), len(recording.selection.numbers))
    return call, RecordedCall.of(call, recording, wanted_of(recording).position, slots)


def ended(f, length):
    call, source = recorded(f, text(length, 0))
    return call, source, source.ended(source.in_loops())


def results(call, source, program):
    """The result and its derivative by every input."""
    recording = source.recording
    chosen = recording.operands.ravel()[recording.selection.places]
    gathered = program.address[chosen[program.places]]
    numbers = recording.selection.decide(list(call.ints))[1]
    inputs = np.array([*call.floats, *call.ints, *numbers], float)
    arena = interpreter.run(program, inputs, gathered)
    root = int(program.address[source.root])
    adjoint = interpreter.sweep(program, arena, gathered, root)
    return arena[root], adjoint[: source.layout.first]


@pytest.mark.parametrize("f", SHARED, ids=lambda f: f.__name__)
def test_copies_change_no_number(f):
    call, source, program = ended(f, 20)
    program.verify()
    value, slopes = results(call, source, program)
    expected, wanted = results(call, source, source.in_loops())
    assert value == pytest.approx(expected, rel=1e-14)  # terms of sums are in another order
    np.testing.assert_allclose(slopes, wanted, rtol=1e-12, atol=1e-15)
    unsorted = source.ended(source.in_loops(), sorts=False)
    value, slopes = results(call, source, unsorted)
    assert value == expected
    np.testing.assert_allclose(slopes, wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("f", SHARED, ids=lambda f: f.__name__)
def test_a_shorter_recording_is_a_prefix_with_fewer_iterations(f):
    _, _, program = ended(f, 20)
    for length in (19, 12, 5):
        _, shorter = recorded(f, text(length, 1), 20)
        prefix = Prefix(shorter, program)
        for here, there in zip(prefix.program.loops, program.loops, strict=True):
            assert there.count - here.count == 20 - length
            assert prefix.points()[there.first, ITERATIONS] == (here.count, there.count)
        assert repeats_alike(prefix)


def test_what_is_copied_of_a_loop():
    copies = {}
    for f in (at_every_position, at_the_last_position, the_state_itself, the_last_but_one):
        _, _, program = ended(f, 20)
        found = [i for i in program.instructions if i.ends is not None]
        copies[f] = [copied_by(i, program)[1] for i in found]
    assert copies == {
        at_every_position: [],  # all iterations are read
        at_the_last_position: [0],
        the_state_itself: [0],
        the_last_but_one: [0, 1],
    }


def test_a_number_in_the_loop_that_differs_is_found():
    _, _, program = ended(by_length, 20)
    _, shorter = recorded(by_length, text(19, 1), 20)
    assert not repeats_alike(Prefix(shorter, program))


@pytest.mark.parametrize("f", DIFFERING, ids=lambda f: f.__name__)
def test_a_text_that_does_something_else_is_no_prefix(f):
    _, _, program = ended(f, 20)
    if f is not twice_the_last_if_short:
        Prefix(recorded(f, text(17, 1), 20)[1], program)
    if f in (turned_if_short, ended_early_if_short):
        # The same program: integers select other rows, or the last of them select none.
        Prefix(recorded(f, text(12, 1), 20)[1], program)
        return
    with pytest.raises(NotLiftable):
        Prefix(recorded(f, text(12, 1), 20)[1], program)


def test_an_iteration_long_before_the_end_is_no_prefix():
    def fifth_from_the_end(p, tokens):
        h, states = [0.0] * WIDTH, []
        for token in tokens:
            h = step(p, h, token)
            states.append(h)
        return sum(states[-5])

    _, _, program = ended(fifth_from_the_end, 20)
    with pytest.raises(NotLiftable):
        Prefix(recorded(fifth_from_the_end, text(19, 1), 20)[1], program)


def test_without_copies_a_loop_has_one_number_of_iterations():
    _, source = recorded(at_every_position, text(20, 0))
    _, shorter = recorded(at_every_position, text(19, 1), 20)
    with pytest.raises(NotLiftable, match="repeats something else"):
        Prefix(shorter, source.in_loops())
