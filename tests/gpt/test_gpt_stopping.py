"""Runs that are stopped while they validate, and runs that go on as they were asked to."""

import signal

import pytest
from test_gpt_engines import DOCUMENTS, TINY

from chainrule import gpt
from chainrule.gpt import engines, metrics
from chainrule.gpt.checkpoints import Intervals

CONFIG = TINY.replace(steps=12)
VALIDATED = [4, 8, 12]


def start(engine):
    return gpt.Run.start(DOCUMENTS, CONFIG, validation=0.4, engine=engine)


def files(folder):
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {"metrics.csv", "loss.svg", "best.safetensors", "checkpoint.safetensors"} <= {*found}
    return found


@pytest.fixture(scope="module", params=["eager", "compiled"])
def whole(request, tmp_path_factory):
    """The engine, and the files of a run that nobody stopped."""
    folder = tmp_path_factory.mktemp(request.param)
    gpt.train(start(request.param), folder, validate_every=4)
    assert [*metrics.read(folder).validations] == VALIDATED
    return request.param, files(folder)


class Stop:
    """Stops at one of the questions that are asked while the run validates."""

    def __init__(self, run, moment):
        self.run, self.left, self.after = run, moment, 0

    def __call__(self):
        if self.run.validating:
            self.after += self.left <= 0
            self.left -= 1
        return self.left <= 0


@pytest.mark.parametrize("step", VALIDATED)
@pytest.mark.parametrize("moment", [1, 2, 4])
def test_a_validation_that_is_stopped_is_made_up_for_when_the_run_goes_on(
    tmp_path, whole, step, moment
):
    engine, wanted = whole
    if engine == "compiled" and moment > 1:
        pytest.skip("it computes so few documents side by side, and asks once")
    run = start(engine)
    gpt.train(run, tmp_path, validate_every=4, stop=lambda: run.step >= step - 1)
    stop = Stop(run, moment)
    run.intervals = Intervals(validate_every=4)
    gpt.train(run, tmp_path, stop=stop)
    assert stop.after == 0, "it went on validating"
    assert run.step == step, "it went on taking steps"
    assert gpt.load(tmp_path).step == step
    assert step not in metrics.read(tmp_path).validations
    again = gpt.Run.resume(gpt.load(tmp_path), DOCUMENTS, gpt.load(tmp_path).source)
    gpt.train(again, tmp_path)
    assert files(tmp_path) == wanted


def test_ctrl_c_while_it_validates_does_not_wait_for_the_end_of_that(tmp_path, whole):
    engine, wanted = whole
    run, asked = start(engine), []

    def press():
        if run.validating:
            asked.append(run.step)
            signal.raise_signal(signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        gpt.train(run, tmp_path, validate_every=4, stop=press)
    assert asked == [4], "it went on validating"
    assert metrics.read(tmp_path)[-1].validation_loss is None
    gpt.train(run, tmp_path)
    assert files(tmp_path) == wanted


def test_a_stop_while_the_model_is_recorded_ends_there_and_the_run_goes_on(tmp_path, whole):
    engine, wanted = whole
    if engine == "eager":
        pytest.skip("it records nothing")
    run, asked = start(engine), []

    def stop():
        asked.append(run.step)
        return len(asked) >= 5

    gpt.train(run, tmp_path, validate_every=4, stop=stop)
    assert asked == [0] * 5 or asked == [0] * 6, "once more at most, before the first step"
    assert run.step == 0
    gpt.train(run, tmp_path)
    assert files(tmp_path) == wanted


def test_a_run_goes_on_with_its_intervals_until_others_are_given(tmp_path):
    run = start("eager")
    asked = {"validate_every": 5, "save_every": 3, "save_seconds": 2}
    gpt.train(run, tmp_path, **asked, stop=lambda: run.step > 6)
    kept = gpt.load(tmp_path)
    assert kept.intervals == Intervals(**asked)
    run = gpt.Run.resume(kept, DOCUMENTS, "")
    gpt.train(run, tmp_path, validate_every=11)
    assert [*metrics.read(tmp_path).validations] == [5, 11, 12]
    changed = gpt.load(tmp_path).intervals
    assert changed == Intervals(**{**asked, "validate_every": 11})


def test_a_run_that_was_asked_for_nothing_validates_by_its_steps(tmp_path):
    run = gpt.Run.start(DOCUMENTS, CONFIG.replace(steps=260))
    gpt.train(run, tmp_path)
    assert gpt.load(tmp_path).intervals == Intervals()
    assert [*metrics.read(tmp_path).validations] == [engines.validation_interval(260), 260]


@pytest.mark.parametrize(
    "wrong",
    [{"save_every": 0}, {"validate_every": 2.5}, {"save_seconds": -1}, {"save_seconds": "soon"}],
)
def test_intervals_that_are_none_are_refused(wrong):
    with pytest.raises(gpt.GPTError, match=next(iter(wrong))):
        Intervals(**wrong)
