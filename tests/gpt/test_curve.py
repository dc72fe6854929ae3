"""The loss curve of a run: exact where it is told, and as large for any number of steps."""

import math
import random

import pytest

from chainrule.gpt import charts
from chainrule.gpt.curve import MOST, RECENT, Curve
from chainrule.gpt.metrics import Row, Rows


def rows_of(count, first=1):
    chance = random.Random(count)
    for step in range(first, first + count):
        validation = chance.random() if step % 10 == 0 else None
        yield Row(step, chance.gauss(3.0, 1.0), 0.1, validation)


COUNTS = [1, 2, MOST // 2 - 1, MOST // 2, MOST - 1, MOST, MOST + 1, 5 * MOST + 17, 70_000]


@pytest.mark.parametrize("count", COUNTS)
def test_each_stretch_has_the_extremes_and_the_sum_of_its_steps(count):
    rows = Rows(rows_of(count, first=5))
    curve = Curve(rows)
    stretches = curve.stretches()
    assert len(stretches) <= MOST
    assert len(stretches) == count or len(stretches) >= MOST // 2
    assert (len(curve), curve.steps) == (count, rows.steps)
    begin = 0
    for stretch in stretches:
        losses = rows.losses[begin : int(stretch["last"]) - 4]
        assert (stretch["low"], stretch["high"]) == (min(losses), max(losses))
        for name in ("low", "high"):
            assert rows.losses[stretch[f"{name}_step"] - 5] == stretch[name]
            assert begin <= stretch[f"{name}_step"] - 5 < begin + len(losses)
        assert math.isclose(stretch["sum"], math.fsum(losses), rel_tol=1e-12)
        begin += len(losses)
    assert begin == count


@pytest.mark.parametrize("count", COUNTS)
def test_the_last_losses_and_the_best_validation_are_exact(count):
    rows = Rows(rows_of(count))
    curve = Curve(rows)
    assert list(curve.recent) == list(rows.losses[-RECENT:])
    assert curve.validations == rows.validations
    best = min(rows.validations.items(), key=lambda item: item[1], default=None)
    assert curve.best == best


def test_of_very_many_validations_the_best_and_the_last_are_kept():
    count = 3 * MOST
    curve = Curve(Row(k, 1.0, 0.1, 0.5 if k == 100 else 1.0 + k) for k in range(1, count + 1))
    assert curve.best == (100, 0.5)
    assert MOST // 2 <= len(curve.validations) <= MOST
    assert list(curve.validations.items())[-1] == (count, 1.0 + count)


@pytest.mark.parametrize("count", COUNTS)
def test_the_running_mean_is_that_of_the_steps_before(count):
    rows = Rows(rows_of(count))
    reach = max(1, count // 20)
    places = charts.smoothed(Curve(rows), reach)
    each = math.ceil(count / MOST) * 2  # steps that the window may fall short of
    for step, mean in places[:: max(1, len(places) // 50)]:
        wanted = rows.losses[max(0, int(step) - reach) : int(step)]
        assert abs(mean - math.fsum(wanted) / len(wanted)) <= 1e-9 + (
            0.0 if count < MOST else 8.0 * each / reach
        )


def test_steps_must_follow_each_other():
    curve = Curve([Row(3, 1.0, 0.1)])
    with pytest.raises(ValueError, match="step 5 does not follow step 3"):
        curve.extend([Row(5, 1.0, 0.1)])
