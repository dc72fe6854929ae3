"""What went into the numbers that comparisons read is found in one go, however long a recording."""

import pytest

import chainrule
from chainrule import sin, where
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.lift import alignment, margins
from chainrule.compiler.lift.accuracy import Accuracy
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.margins import has_decisions, with_margins
from chainrule.compiler.lift.nearness import Unknown


def recorded(f, *arguments):
    call = flatten_call(arguments, {}, differentiate=True)
    return call, trace(f, survey(f), call).recording


def wandering(p, xs):
    """A long sum of terms that cancel, which is compared again and again."""
    y, total = sin(p[0] - p[1] * p[2]), p[0]
    for x in xs:
        y = y - p[1] * x
        total = total + where(y > p[2], p[0] * y, p[1])
    return total


def falling(n):
    """An option that may be exercised early, with a power for each price."""

    def price(p):
        values = [max(p[2] - p[3] * p[0] ** (2 * k - n), 0.0) for k in range(n + 1)]
        for step in range(n - 1, -1, -1):
            for k in range(step + 1):
                later = 0.99 * (p[1] * values[k + 1] + (1 - p[1]) * values[k])
                now = p[2] - p[3] * p[0] ** (2 * k - step)
                values[k] = where(later > now, later, now)
        return values[0]

    return price


class Counted:
    """How often a method was called."""

    def __init__(self, patch, owner, name):
        self.count, given = 0, getattr(owner, name)

        def counted(*arguments):
            self.count += 1
            return given(*arguments)

        patch.setattr(owner, name, counted)


def steps_of_margins(n):
    """How many instructions, and how many steps finding their margins takes."""
    _, recording = recorded(wandering, [0.3, 0.7, 0.2], [0.1 + 0.01 * k for k in range(n)])
    assert has_decisions(recording)
    with pytest.MonkeyPatch.context() as patch:
        counted = [
            Counted(patch, Accuracy, "reads"),
            Counted(patch, margins._Margins, "_needed"),
            Counted(patch, margins._Margins, "_made_squares"),
            Counted(patch, margins._Margins, "_add"),
        ]
        made = with_margins(recording)
    assert len(made) > len(recording)
    return len(recording), [x.count for x in counted]


def test_twice_as_many_instructions_take_twice_as_many_steps():
    few, steps = steps_of_margins(100)
    many, more = steps_of_margins(200)
    assert many > 1.9 * few
    assert all(0 < b <= 2.1 * a for a, b in zip(steps, more, strict=True))


def test_what_cannot_be_told_is_found_out_once(monkeypatch):
    def never(rule, k):
        raise Unknown

    monkeypatch.setattr(margins, "slope_squared", never)
    few, steps = steps_of_margins(100)
    many, more = steps_of_margins(200)
    assert many > 1.9 * few
    assert all(0 < b <= 2.1 * a for a, b in zip(steps, more, strict=True))


def test_comparisons_of_what_was_passed_decide_nothing_that_rounding_could_move():
    def plain(p, x):
        return where(p[0] > x, p[1] * p[0], p[1] + x)

    _, recording = recorded(plain, [0.3, 0.7], 0.5)
    assert not has_decisions(recording)
    assert with_margins(recording) is recording


def test_a_program_in_steps_with_many_exponents_has_its_margins_found_once(monkeypatch):
    pytest.importorskip("llvmlite")
    counted = Counted(monkeypatch, alignment, "with_margins")
    call, recording = recorded(falling(24), [1.03, 0.6, 1.1, 1.0])
    assert has_decisions(recording)
    source = RecordedCall.of(call, recording, recording.outputs[0].position)
    assert source.program().steps is not None
    assert counted.count == 1


def test_its_results_are_eagers():
    pytest.importorskip("llvmlite")
    f, given = falling(24), [1.03, 0.6, 1.1, 1.0]
    fast = chainrule.compile(f, lift=True)
    value, gradient = fast.value_and_grad(given)
    expected, slopes = chainrule.value_and_grad(f)(given)
    assert "steps" in fast.report()
    assert value == pytest.approx(expected, rel=1e-12)
    assert gradient == pytest.approx(slopes, rel=1e-10)
