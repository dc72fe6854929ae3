"""The commands train, sample, inspect and compare, as users run them."""

import io
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from chainrule import gpt
from chainrule.cli import app, display, main, reporting, training
from chainrule.core.interrupts import safe_point
from chainrule.gpt import checkpoints, engines, metrics, room

DOCUMENTS = ["abca", "bccab", "cab", "dabcad", "acdb", "bb", "d", "abab", "cc", "bad", "dab", "ca"]
TINY = ["--width", "2", "--heads", "1", "--block", "3", "--seed", "3"]
COLOUR = re.compile(r"\x1b\[[0-9;]*[349][0-9][0-9;]*m")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """A folder of its own, with something to learn from."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n".join(DOCUMENTS), "utf-8")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def chainrule(capsys):
    """Run a command; returns its exit code, output and errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as exit_:
            app([str(a) for a in arguments])
        captured = capsys.readouterr()
        return exit_.value.code, captured.out, captured.err

    return run


@pytest.fixture
def trained(chainrule, workplace):
    code, _, errors = chainrule("train", "text.txt", *TINY, "--steps", 20, "--output", "run")
    assert (code, errors) == (0, "")
    return workplace / "run"


def weights(folder):
    loaded = gpt.load(folder)
    return {name: array.tobytes() for name, array in loaded.weights.items()}


# --- train --------------------------------------------------------------------------------------


def test_training_reports_saves_and_prints_new_documents(chainrule, workplace):
    code, out, errors = chainrule("train", "text.txt", *TINY, "--steps", 30, "--samples", 4)
    assert (code, errors) == (0, "")
    assert "\x1b" not in out, "what is piped is plain text"
    assert "12 documents from text.txt, 1 of them held out; 5 tokens" in out
    assert "74 parameters: 1 layer, width 2, 1 head, block 3; eager" in out
    assert re.search(r"^step 3/30  loss \d\.\d{4}  [\d.]+ steps/s$", out, re.MULTILINE)
    assert len(re.findall(r"^step ", out, re.MULTILINE)) == 10
    assert re.search(r"loss \d\.\d{4} \(mean of the last 30 steps\), validation loss \d", out)
    files = "checkpoint.safetensors, best.safetensors, metrics.csv, loss.svg"
    assert f"saved in runs/1: {files}" in out
    new = out.split("none of them in the data:\n")[1].split()
    assert len(set(new)) == 4
    assert not set(new) & set(DOCUMENTS)
    names = sorted(path.name for path in (workplace / "runs" / "1").iterdir())
    assert names == ["best.safetensors", "checkpoint.safetensors", "loss.svg", "metrics.csv"]


def test_without_arguments_names_are_learned_and_every_run_gets_its_own_folder(chainrule):
    options = ["--width", 4, "--heads", 1, "--block", 4, "--steps", 2]
    for number in (1, 2):
        code, out, _ = chainrule("train", *options)
        assert code == 0
        assert "5,163 documents from the bundled names, 516 of them held out; 27 tokens" in out
        assert f"saved in runs/{number}:" in out
        assert len(out.split("20 new names, none of them in the data:\n")[1].split("\n")) == 21
    assert weights("runs/1") == weights("runs/2"), "the same seed gives the same model"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--preset", "course"], {"block": 8, "activation": "squared relu", "schedule": "cosine"}),
        (["--preset", "course", "--block", 4], {"block": 4, "beta2": 0.95}),
        (["--layers", 2, "--batch", 3], {"layers": 2, "batch": 3}),
        (["--lr", 0.5, "--seed", 7], {"learning_rate": 0.5, "seed": 7}),
        (["--tokens", "word"], {"tokens": "word"}),
    ],
)
def test_options_reach_the_configuration(chainrule, options, expected):
    small = ["--width", 4, "--heads", 1, "--steps", 1, "--samples", 0, "--output", "run"]
    code, _, errors = chainrule("train", "text.txt", *small, *options)
    assert (code, errors) == (0, "")
    found = gpt.load("run").config.to_dict()
    assert {name: found[name] for name in expected} == expected
    assert found["width"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.txt"], "there is no file 'nowhere.txt'"),
        (["empty.txt"], "'empty.txt' is empty: there is nothing to learn from"),
        (["binary"], "'binary' is a binary file; a text file was expected"),
        (["latin.txt"], "'latin.txt' is not UTF-8 text: byte 0xe9 at position 3"),
        (["."], "cannot read '.': Is a directory"),
        (["--heads", "3"], "a width of 16 cannot be shared by 3 heads: it must be a multiple"),
        (["--steps", "0"], "steps must be a whole number from 1 to 1000000000000, not 0"),
        (["--lr=-1"], "learning_rate must be a number from 0 on, not -1.0"),
        (["--validation", "1"], "the validation share must be from 0 to less than 1, not 1.0"),
        (["--dtype", "float32", "--engine", "eager"], "--dtype float32 needs --engine compiled"),
        (["--preset", "book"], "a model of words needs a FILE of sentences"),
        (["--preset", "shakespeare"], "a stream needs a FILE, one long text"),
        (["--dropout", "1"], "dropout must be less than 1, not 1.0"),
        (["--dropout", "-0.1"], "dropout must be a number from 0 on"),
        (["--resume", "nowhere"], "there is no checkpoint at 'nowhere'"),
        (["--samples=-1"], "--samples must be at least 0"),
        (["text.txt", "--save-every", "0"], "--save-every must be at least 1, not 0"),
        (["text.txt", "--lr", "1e300", *TINY], "training broke down at step"),
        (["text.txt", "--output", "text.txt", *TINY], "File exists: text.txt"),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(chainrule, workplace, arguments, message):
    (workplace / "empty.txt").write_text("\n \n")
    (workplace / "binary").write_bytes(b"\x7fELF\0\1")
    (workplace / "latin.txt").write_bytes(b"caf\xe9")
    code, _, errors = chainrule("train", *arguments)
    assert code == 1
    assert errors.count("\n") == 1
    assert errors.startswith("chainrule: ")
    assert message in errors


@pytest.mark.parametrize("engine", ["eager", "compiled"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("rate", ["1e154", "1e200", "1e308"])
def test_a_learning_rate_that_breaks_everything_is_one_line(chainrule, engine, steps, rate):
    """Also where the step itself still works, and only the validation or a sample overflows."""
    options = [*TINY, "--steps", steps, "--engine", engine, "--lr", rate]
    code, _, errors = chainrule("train", "text.txt", *options)
    assert code == 1
    assert errors.count("\n") == 1
    assert "training broke down at step" in errors
    assert "a smaller learning rate may help" in errors


def offered(errors):
    """The arguments of the command that a message offers."""
    return re.search(r"chainrule (train --resume .*?)(, or begin again with that)?$", errors)[1]


@pytest.mark.parametrize(
    "options",
    [["--engine", "eager"], ["--engine", "compiled"], ["--dtype", "float32"], ["--stream"]],
    ids=str,
)
def test_after_a_breakdown_the_offered_command_works(chainrule, options):
    rate = "1e30" if "float32" in options else "1e200"
    options = [*options, *TINY, "--steps", 30, "--schedule", "constant", "--lr", rate]
    _, _, errors = chainrule("train", "text.txt", *options, "--output", "run")
    assert errors.count("\n") == 1
    assert "the weights after step 1 are of no use; go on after step 0 with" in errors
    assert errors.endswith("--resume run --lr 0.01 --clip 1, or begin again with that\n")
    code, _out, errors = chainrule(*offered(errors).split())
    assert (code, errors) == (0, "")
    assert gpt.load("run").step == 30


def test_after_a_breakdown_the_best_model_is_offered(chainrule, trained):
    options = ["--resume", "run", "--steps", 40, "--schedule", "constant", "--lr", "1e200"]
    _, _, errors = chainrule("train", *options)
    assert "are of no use; go on from the best model with" in errors
    assert gpt.load("run").step == 20, "a checkpoint that is of use is not overwritten"
    code, _, errors = chainrule(*offered(errors).split())
    assert (code, errors) == (0, "")
    assert gpt.load("run").step == 40


def test_after_a_breakdown_a_state_that_is_of_use_is_saved(chainrule, trained, monkeypatch):
    def breaks(engine, most):
        if engine.optimizer.steps == 25:
            raise OverflowError("the update overflows")
        return real(engine, 1)

    real = engines.Eager.advance
    monkeypatch.setattr(engines.Eager, "advance", breaks)
    (trained / checkpoints.BEST).unlink()
    _, _, errors = chainrule("train", "--resume", "run", "--steps", 40)
    assert "the state after step 25 is saved; go on with chainrule train --resume run" in errors
    assert gpt.load("run").step == 25


def test_where_no_checkpoint_is_of_use_there_is_but_one_way(chainrule, trained):
    (trained / checkpoints.BEST).unlink()
    lost = gpt.load(trained)
    for array in lost.weights.values():
        array *= 1e200
    gpt.save(lost, trained)
    _, _, errors = chainrule("train", "--resume", "run", "--steps", 40)
    assert "nor is any checkpoint; begin again with --lr 0.0025 --clip 1\n" in errors


def test_a_way_on_names_the_model_of_ones_own(chainrule, workplace):
    (workplace / "own.py").write_text(
        "from chainrule import gpt\n\nclass Own(gpt.GPT):\n    pass\n", "utf-8"
    )
    options = [*TINY, "--steps", 30, "--lr", "1e200", "--model", "own.py:Own"]
    _, _, errors = chainrule("train", "text.txt", *options, "--output", "run")
    assert "--resume run --model own.py:Own --lr 0.01" in errors
    code, _, errors = chainrule(*offered(errors).split())
    assert (code, errors) == (0, "")


# --- what does not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["--stream", "--block", "100000"],
        ["--width", "100000"],
        ["--layers", "10000", "--width", "1000"],
    ],
    ids=str,
)
def test_a_model_beyond_the_memory_is_refused_in_one_line(chainrule, workplace, options):
    (workplace / "book.txt").write_text("to be or not to be\n" * 10_000, "utf-8")
    code, _, errors = chainrule("train", "book.txt", *options, "--output", "run")
    assert code == 1
    assert re.fullmatch(
        r"chainrule: this model needs more than [\d,.]+ GB of memory, and there are [\d.,]+ GB: "
        r"choose a smaller --block, --width or --layers\n",
        errors,
    )
    assert not (workplace / "run").exists()


def test_a_model_that_may_not_fit_is_told_of(chainrule, monkeypatch):
    monkeypatch.setattr(room, "estimate", lambda *arguments: 12 * 10**9)
    monkeypatch.setattr(room, "memory", lambda: 16 * 10**9)
    code, out, errors = chainrule("train", "text.txt", *TINY, "--steps", 2, "--samples", 0)
    assert (code, errors) == (0, "")
    assert "this model needs more than 12 GB of memory, and there are 16 GB: if training" in out


def test_a_long_block_does_not_matter_to_short_documents(chainrule):
    options = ["--block", 30_000, "--width", 16, "--steps", 2, "--samples", 30]
    code, _out, errors = chainrule("train", "text.txt", *options, "--output", "run")
    assert (code, errors) == (0, "")


@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_a_probability_that_rounds_to_zero_does_not_end_training(chainrule, engine):
    options = [*TINY, "--steps", 30, "--lr", "1e6", "--engine", engine]
    code, out, errors = chainrule("train", "text.txt", *options, "--samples", 0)
    assert (code, errors) == (0, "")
    assert float(re.search(r"^loss ([\d.]+)", out, re.MULTILINE)[1]) > 100


def test_a_checkpoint_is_not_resumed_from_a_pipe_or_a_device(chainrule, trained, workplace):
    os.mkfifo(workplace / "pipe")
    for source in ("pipe", "/dev/zero"):
        (workplace / "text.txt").unlink(missing_ok=True)
        (workplace / "text.txt").symlink_to(source)
        code, _, errors = chainrule("train", "--resume", "run", "--steps", 21)
        assert code == 1
        assert "which is not here: name the file as well" in errors


def test_options_that_are_refused_leave_no_folder_behind(chainrule, workplace):
    chainrule("train", "--save-every", "0")
    assert not (workplace / "runs").exists()


def test_a_run_is_not_overwritten(chainrule, trained):
    before = weights(trained)
    code, _, errors = chainrule("train", "text.txt", *TINY, "--output", "run")
    assert code == 1
    assert "there is a run in 'run' already: continue it with --resume run" in errors
    assert weights(trained) == before


# --- resume -------------------------------------------------------------------------------------


def test_a_finished_run_resumes_to_the_same_samples(chainrule, trained):
    code, out, _ = chainrule("train", "--resume", "run")
    again = chainrule("train", "--resume", "run")[1]
    assert code == 0
    assert "step 20 was the last one; --steps with a larger number goes on" in out
    assert out == again


def test_one_document_is_not_called_documents(chainrule, trained, workplace):
    out = chainrule("train", "--resume", "run", "--samples", 1)[1]
    assert "1 new document, not in the data:" in out
    (workplace / "one.txt").write_text("ada\n")
    out = chainrule("train", "one.txt", *TINY, "--steps", 1, "--samples", 0)[1]
    assert "1 document from one.txt, nothing held out; 3 tokens" in out


def test_more_steps_may_be_asked_for(chainrule, trained):
    code, out, _ = chainrule("train", "--resume", "run", "--steps", 25, "--samples", 0)
    assert code == 0
    assert "continuing after step 20 of 25" in out
    assert gpt.load("run").step == 25
    assert len((trained / "metrics.csv").read_text().splitlines()) == 26


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--width", "4"], "--width cannot change a run that is resumed"),
        (["--seed", "4"], "--seed cannot change a run that is resumed"),
        (["--stream"], "--stream cannot change a run that is resumed"),
        (["--preset", "course"], "--preset cannot change"),
        (["--output", "other"], "--output cannot change"),
        (["--engine", "compiled"], "--engine cannot change"),
        (["--dtype", "float32"], "--dtype cannot change"),
        (["--steps", "3"], "the run is at step 20 already"),
    ],
)
def test_nothing_else_may_change_in_a_resumed_run(chainrule, trained, options, message):
    code, _, errors = chainrule("train", "--resume", "run", *options)
    assert code == 1
    assert message in errors


def test_training_may_change_when_a_run_goes_on(chainrule, trained):
    options = {"lr": 0.5, "batch": 2, "schedule": "constant", "weight-decay": 0.1, "clip": 1.0}
    options["dropout"] = 0.5
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    assert chainrule("train", "--resume", "run", "--steps", 25, "--samples", 0, *given)[0] == 0
    config = gpt.load("run").config
    found = (config.learning_rate, config.batch, config.schedule, config.weight_decay, config.clip)
    assert (*found, config.dropout) == tuple(options.values())
    assert (trained / "metrics.csv").read_text().splitlines()[-1].split(",")[2] == "0.5"


def test_a_run_finds_its_text_again_or_asks_for_it(chainrule, trained, workplace):
    (workplace / "text.txt").rename(workplace / "moved.txt")
    code, _, errors = chainrule("train", "--resume", "run")
    assert code == 1
    assert "started on 'text.txt', which is not here: name the file as well" in errors
    assert chainrule("train", "moved.txt", "--resume", "run", "--steps", 21)[0] == 0
    (workplace / "moved.txt").write_text("other\n")
    code, _, errors = chainrule("train", "--resume", "run")
    assert code == 1
    assert "the documents have changed" in errors


def test_damaged_checkpoints_are_refused_by_every_command(chainrule, trained):
    path = trained / checkpoints.FILE
    path.write_bytes(path.read_bytes()[:-1])
    for command in (["train", "--resume", "run"], ["sample", "run"], ["inspect", "run"]):
        code, out, errors = chainrule(*command)
        assert (code, out) == (1, "")
        assert errors.startswith("chainrule: cannot load 'run/checkpoint.safetensors': it is dam")
        assert errors.count("\n") == 1


def command(*arguments):
    return [sys.executable, "-m", "chainrule", *map(str, arguments)]


STEPS = ["--steps", "400", "--save-every", "4", "--samples", "0"]


def test_ctrl_c_while_recording_ends_at_the_checkpoint_and_says_so(workplace):
    """A model that takes seconds to record; the machine may be busy, so nothing is timed."""
    options = ["--width", "16", "--heads", "2", "--block", "12", "--engine", "compiled"]
    (workplace / "text.txt").write_text("\n".join("abcdefghijkl"[:n] for n in range(1, 13)))
    process = subprocess.Popen(
        command("train", "text.txt", *options, "--output", "run"),
        stdout=subprocess.PIPE, text=True, env=unbuffered(),
    )  # fmt: skip
    while not process.stdout.readline().startswith("recording 11 lengths"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    rest = process.communicate()[0]
    assert process.returncode == 130
    assert rest == (
        "stopped at once, at the checkpoint of step 0; "
        "continue with: chainrule train --resume run\n"
    )
    assert not (workplace / "run" / ".lock").exists()


@pytest.mark.parametrize(
    ("number", "engine"),
    [(signal.SIGINT, "eager"), (signal.SIGTERM, "eager"), (signal.SIGINT, "compiled")],
)
def test_a_run_of_400_steps_stopped_twice_ends_as_if_it_never_was(chainrule, number, engine):
    options = ["--engine", engine, *TINY]
    assert chainrule("train", "text.txt", *options, *STEPS[:2], "--output", "whole")[0] == 0
    first = ["train", "text.txt", *options, *STEPS, "--output", "parts"]
    resumed = ["train", "--resume", "parts", *STEPS[2:]]
    for arguments, line in ((first, "step 40/"), (resumed, "step 200/")):
        process = subprocess.Popen(
            command(*arguments), stdout=subprocess.PIPE, text=True, env=unbuffered()
        )
        while not process.stdout.readline().startswith(line):
            assert process.poll() is None
        process.send_signal(number)
        rest = process.communicate()[0]
        assert process.returncode == 128 + number
        stopped = re.search(r"stopped after step (\d+) of 400; continue with: (.*)", rest)
        assert stopped[2] == "chainrule train --resume parts"
        assert gpt.load("parts").step == int(stopped[1]) < 400
    assert chainrule(*resumed)[0] == 0
    assert weights("parts") == weights("whole")
    rows = [Path(folder, "metrics.csv").read_bytes() for folder in ("parts", "whole")]
    assert rows[0] == rows[1]


def test_ctrl_c_while_the_last_step_is_validated_ends_there_and_draws_no_samples(
    chainrule, monkeypatch
):
    validation_loss, pressed = gpt.Run.validation_loss, []

    def interrupted(run, *arguments):
        if run.step == run.config.steps and not pressed:
            pressed.append(run.step)
            os.kill(os.getpid(), signal.SIGINT)
            while True:  # until it arrives: no document is looked at
                safe_point()
                time.sleep(0.001)
        return validation_loss(run, *arguments)

    monkeypatch.setattr(gpt.Run, "validation_loss", interrupted)
    options = [*TINY, "--steps", 5, "--validate-every", 2, "--samples", 3, "--output", "run"]
    code, out, errors = chainrule("train", "text.txt", *options)
    assert (code, errors) == (128 + signal.SIGINT, "")
    assert "stopping after this step; Ctrl-C again stops at once\n" in out
    assert out.endswith(
        "stopped after step 5 of 5, before its validation; "
        "continue with: chainrule train --resume run\n"
    )
    assert gpt.load("run").step == 5
    assert [*metrics.read("run").validations] == [2, 4]
    code, out, errors = chainrule("train", "--resume", "run", "--samples", 0)
    assert (code, errors) == (0, "")
    assert re.search(r"validation loss \d", out)
    assert [*metrics.read("run").validations] == [2, 4, 5]


def test_a_run_that_goes_on_validates_as_often_as_before(chainrule):
    options = [*TINY, "--samples", 0, "--validate-every", 3, "--save-every", 4, "--save-seconds", 7]
    assert chainrule("train", "text.txt", *options, "--steps", 7, "--output", "run")[0] == 0
    assert chainrule("train", "--resume", "run", "--steps", 13, "--samples", 0)[0] == 0
    assert [*metrics.read("run").validations] == [3, 6, 7, 9, 12, 13]
    kept = gpt.load("run").intervals
    assert (kept.save_every, kept.save_seconds, kept.validate_every) == (4, 7, 3)
    assert chainrule("train", "--resume", "run", "--steps", 20, "--validate-every", 5)[0] == 0
    assert [*metrics.read("run").validations] == [3, 6, 7, 9, 12, 13, 15, 20]


def unbuffered():
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


# --- streams, models, texts ---------------------------------------------------------------------


MODEL = """
from chainrule import gpt

class Own(gpt.GPT):
    def mlp(self, x, layer, note=lambda name, numbers: None):
        return [h.tanh() for h in x]
"""


def test_a_stream_says_what_it_reads_and_ends_in_a_passage(chainrule, workplace):
    (workplace / "play.txt").write_text("To be,\n  or not\n\nto be: that is\nthe question\n" * 4)
    options = [*TINY, "--stream", "--steps", 3, "--samples", 2, "--output", "run"]
    code, out, errors = chainrule("train", "play.txt", *options)
    assert (code, errors) == (0, "")
    assert "one text of 160 characters from play.txt, the last 26 held out (9 windows);" in out
    passage = out.split("50 new tokens:\n")[1]
    assert len(passage) == 51
    assert gpt.load("run").config.stream
    assert chainrule("train", "--resume", "run", "--steps", 4)[0] == 0
    assert chainrule("sample", "run", "--count", 2)[0] == 0


def test_a_passage_is_seen_as_it_is_written_and_ends_its_line_when_it_is_stopped(monkeypatch):
    seen, flushed = io.StringIO(), []
    monkeypatch.setattr(sys, "stdout", seen)
    monkeypatch.setattr(reporting, "SHOWN", -1.0)
    monkeypatch.setattr(seen, "flush", lambda: flushed.append(seen.getvalue()), raising=False)

    def pieces():
        yield "to"
        yield " be\n"
        yield "\x1b[2J"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reporting.say_pieces(pieces())
    assert flushed == ["to", "to be\n", "to be\n\\x1b[2J"]
    assert seen.getvalue() == "to be\n\\x1b[2J\n"


def test_text_beyond_the_block_is_not_lost_without_a_word(chainrule):
    out = chainrule("train", "text.txt", *TINY, "--steps", 1, "--samples", 0)[1]
    assert re.search(
        r"^\d documents are longer than the block: \d+ tokens beyond it are not read "
        r"\(--block [67] reads all, --stream reads the text in windows\)$", out, re.MULTILINE
    )  # fmt: skip
    out = chainrule("train", "text.txt", *TINY, "--block", 7, "--steps", 1, "--samples", 0)[1]
    assert "not read" not in out


def test_a_model_of_ones_own_is_named_wherever_it_is_used(chainrule, workplace):
    (workplace / "own.py").write_text(MODEL)
    own = ["--model", "own.py:Own"]
    options = [*TINY, "--steps", 3, "--samples", 1, "--output", "run"]
    assert chainrule("train", "text.txt", *options, *own)[0] == 0
    for words in (["sample", "run"], ["inspect", "run"], ["train", "--resume", "run"]):
        code, _, errors = chainrule(*words)
        assert code == 1
        assert "of the class own.py:Own: name it with --model FILE:CLASS" in errors
        assert chainrule(*words, *own)[0] == 0


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("own.py", "--model takes FILE.py:CLASS, not 'own.py'"),
        ("no.py:Own", "there is no file 'no.py'"),
        ("text.txt:Own", "'text.txt' is not a Python file"),
        ("own.py:Other", "has no class Other that is derived from chainrule.gpt.GPT"),
        ("own.py:gpt", "has no class gpt that is derived"),
        ("broken.py:Own", "'broken.py' cannot be run: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_model(chainrule, workplace, place, message):
    (workplace / "own.py").write_text(MODEL)
    (workplace / "broken.py").write_text("1 / 0")
    code, _, errors = chainrule("train", "text.txt", *TINY, "--model", place)
    assert code == 1
    assert errors.count("\n") == 1
    assert message in errors


# --- in a terminal ------------------------------------------------------------------------------


def in_terminal(arguments, **environment):
    """Run in a terminal of 80 columns; returns the exit code and everything written to it."""
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    process = subprocess.Popen(
        command(*arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    return process.wait(), b"".join(parts).decode()


class Steps:
    """A run as the display sees it: a lot of steps, which took so many seconds."""

    def __init__(self):
        self.step, self.seconds, self.config = 0, 0.0, gpt.Config(steps=1000)
        self.tokenizer = gpt.Tokenizer.of(DOCUMENTS)

    def take(self, count, seconds, display):
        first, self.step = self.step, self.step + count
        self.seconds += seconds
        for step in range(first + 1, self.step + 1):
            display.note(gpt.Row(step, 1.0, 0.1))
            yield display.speed()


def test_of_slow_steps_the_seconds_of_each_are_shown():
    run = gpt.Run.start(DOCUMENTS, gpt.Config(width=2, heads=1, block=3, steps=40))
    shown = display.Display(Console(), run)
    for _ in range(3):
        row = run.advance()
        run.seconds = row.step * 25.0
        shown.note(row)
    assert shown.speed() == "25.0 s/step"


def test_the_clock_moves_while_something_is_compiled():
    """Also when all lengths have been recorded."""
    now = [0.0]
    line = display.Progress(display.Clock(), get_time=lambda: now[0])
    line.add_task("compiling", total=1, completed=1)
    (task,) = line.tasks
    shown = []
    for now[0] in (1.0, 2.0, 62.0):
        line.update(task.id, completed=1, total=1)
        shown.append(str(display.Clock().render(task)))
    assert shown == ["0:01", "0:02", "1:02"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--stream", "--validation", 0], "from text.txt, nothing held out; 5 tokens"),
        (["--stream", "--block", 20], "from text.txt, the last 5 held out: less than a block;"),
        (["--validation", 0], "12 documents from text.txt, nothing held out;"),
    ],
    ids=str,
)
def test_where_nothing_is_held_out_it_is_said(chainrule, options, told):
    options = ["--width", 2, "--heads", 1, *options, "--steps", 2, "--samples", 0]
    code, out, errors = chainrule("train", "text.txt", *options)
    assert (code, errors) == (0, "")
    assert told in out


def test_a_warning_is_one_line_of_the_command_and_told_once(chainrule, workplace):
    (workplace / "own.py").write_text(
        """
import warnings
from chainrule import gpt

class Own(gpt.GPT):
    def mlp(self, x, layer, note=lambda name, numbers: None):
        warnings.warn(f"the layer is odd {len(x)}", RuntimeWarning)
        warnings.warn("loss is slow to compile: one recording of 9 operations took 1.0 s so far")
        return super().mlp(x, layer, note)
""",
        "utf-8",
    )
    command = [sys.executable, "-m", "chainrule", "train", "text.txt", *TINY, "--steps", "3"]
    ran = subprocess.run(
        [*command, "--model", "own.py:Own", "--samples", "0"], capture_output=True, text=True
    )
    assert ran.returncode == 0
    assert ran.stderr == "chainrule: note: the layer is odd 2\n"


def test_the_speed_shown_is_that_of_the_last_stretch_of_steps():
    run = Steps()
    shown = display.Display(Console(), run)
    assert shown.speed() == "- steps/s"
    assert set(run.take(1, 10.0, shown)) == {"10.0 s/step"}, "there is no other yet"
    found = set(run.take(100, 0.5, shown))
    assert found == {"200.0 steps/s"}, "that of the whole lot, at each of its rows"
    assert set(run.take(100, 0.5, shown)) == {"200.0 steps/s"}
    for _ in range(5):
        found = set(run.take(50, 1.0, shown))
    assert found == {"50.0 steps/s"}, "what was before is forgotten"
    for _ in range(100):  # lots that take no time at all are put together
        list(run.take(1, 0.001, shown))
    assert len(shown._times) < 10


def test_a_loss_beyond_all_sense_is_told_once_with_what_to_do(chainrule):
    options = [*TINY, "--steps", 200, "--lr", "1e8", "--samples", 0]
    code, out, errors = chainrule("train", "text.txt", *options)
    assert (code, errors) == (0, "")
    told = re.findall(r"^the loss has risen to (\S+), that of guessing is 1.61: (.*)$", out, re.M)
    assert len(told) == 1
    assert float(told[0][0]) > 16.1
    assert told[0][1].endswith("such as --lr 0.01 --clip 1")
    out = chainrule("train", "text.txt", *TINY, "--steps", 200, "--samples", 0)[1]
    assert "has risen" not in out


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ([3.3] * 200, False),
        ([3.3, *[30.0] * 99], False),  # high, but not beyond
        ([1000.0 - k for k in range(300)], False),  # a model that begins badly and learns
        ([3.3, *[1e24] * 20], True),
        ([3.3, *[3.3 + k for k in range(300)]], True),
        ([1000.0, *[1e9] * 20], True),
    ],
)
def test_what_is_beyond_all_sense(losses, told):
    watch = display.Watch(27)
    found = [mean for loss in losses if (mean := watch.note(loss)) is not None]
    assert bool(found) == told


def test_a_terminal_shows_a_bar_of_one_line_with_loss_speed_and_time_left():
    code, text = in_terminal(["train", "text.txt", *TINY, "--steps", 60, "--samples", 1])
    assert code == 0
    assert COLOUR.search(text)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    bars = [line for line in re.split(r"[\r\n]+", plain) if "steps/s" in line]
    assert len(bars) >= 2
    assert all(len(line) <= 80 for line in bars)
    assert re.search(r"━+ 60/60 loss \d\.\d{4} [\d.]+ steps/s 00:00 left", bars[-1])


def test_no_color_means_none():
    code, text = in_terminal(["train", "text.txt", *TINY, "--steps", 5], NO_COLOR="1")
    assert code == 0
    assert "steps/s" in text
    assert not COLOUR.search(text)


def test_help_is_enough_to_use_it(chainrule):
    code, out, _ = chainrule("train", "--help")
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    for option in ("preset layers width heads block steps batch lr seed dtype output resume engine "
                   "tokens validation save-every samples stream clip weight-decay schedule model "
                   "dropout save-seconds validate-every").split():  # fmt: skip
        assert f"--{option} " in out
    for name in ("sample", "inspect", "compare"):
        assert chainrule(name, "--help")[0] == 0


# --- sample -------------------------------------------------------------------------------------


def test_sample_prints_documents_one_per_line(chainrule, trained):
    code, out, _ = chainrule("sample", "run", "--count", 5, "--seed", 1, "--temperature", 1)
    assert code == 0
    assert len(out.split("\n")) == 6
    assert out == chainrule("sample", "run", "--count", 5, "--seed", 1, "--temperature", 1)[1]
    assert out != chainrule("sample", "run", "--count", 5, "--seed", 2, "--temperature", 1)[1]
    lines = chainrule("sample", "run/checkpoint.safetensors", "--prefix", "ab")[1].splitlines()
    assert len(lines) == 20
    assert all(line.startswith("ab") for line in lines)
    greedy = chainrule("sample", "run", "--top-k", 1, "--count", 3)[1].splitlines()
    assert len(set(greedy)) == 1
    assert chainrule("sample", "run", "--top-p", 0.01, "--count", 3)[1].splitlines() == greedy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prefix", "aXY"], "the model has never seen the characters 'X', 'Y'"),
        (["--prefix", "aaaaaa"], "the prefix has 6 tokens; this model reads at most 3"),
        (["--temperature=-1"], "the temperature must be a number from 0 on, not -1.0"),
        (["--top-k", "0"], "top-k must be at least 1"),
        (["--top-p", "2"], "top-p must be more than 0 and at most 1"),
        (["--count=-1"], "--count must be at least 0"),
    ],
)
def test_samples_that_cannot_be(chainrule, trained, options, message):
    code, out, errors = chainrule("sample", "run", *options)
    assert (code, out) == (1, "")
    assert message in errors


def test_what_a_model_says_cannot_steer_the_terminal(chainrule, workplace):
    (workplace / "evil.txt").write_text("\x1b]0;x\x07\n[red]a\n" * 4, "utf-8")
    chainrule("train", "evil.txt", *TINY, "--steps", 1, "--samples", 0, "--output", "evil")
    out = chainrule("sample", "evil", "--count", 40, "--temperature", 5)[1]
    out += chainrule("inspect", "evil", "--text", "[red]\x1b")[1]
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\\x1b" in out
    assert "[" in out


def test_samples_are_not_markup_and_many_are_as_plain_as_few(chainrule, workplace, capsys):
    reporting.say_all(["[red]a[/red]", ":smile:", "a\x1b[31mb", "zoë", "  "])
    assert capsys.readouterr().out == "[red]a[/red]\n:smile:\na\\x1b[31mb\nzoë\n  \n"


def test_sampling_that_is_interrupted_says_so_in_a_line(trained, monkeypatch, capsys):
    def some(*_):
        yield "abc"
        raise KeyboardInterrupt

    monkeypatch.setattr(gpt, "documents", some)
    monkeypatch.setattr(sys, "argv", ["chainrule", "sample", "run"])
    with pytest.raises(SystemExit) as exit_:
        main()
    captured = capsys.readouterr()
    assert (exit_.value.code, captured.out) == (130, "abc\n")
    assert captured.err == "chainrule: interrupted\n"


# --- inspect and compare ------------------------------------------------------------------------


def test_inspect_prints_tables_and_writes_pictures(chainrule, trained):
    code, out, errors = chainrule("inspect", "run", "--text", "abc")
    assert (code, errors) == (0, "")
    assert "step 20 of 20, 74 parameters" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    for word in ("token_embedding", "0.mlp.narrow", "5×2", "|gradient|", "'abc': loss "):
        assert word in out
    for name in ("attention", "probabilities", "activations", "gradients"):
        assert f"wrote run/inspect/{name}.svg" in out
        assert (trained / "inspect" / f"{name}.svg").read_text("utf-8").startswith("<svg")
    assert chainrule("inspect", "run", "--seed", 3, "--output", "elsewhere")[0] == 0
    assert Path("elsewhere/attention.svg").exists()
    code, _, errors = chainrule("inspect", "run", "--text", "xyz")
    assert code == 1
    assert "never seen the characters 'x', 'y', 'z'" in errors


def test_compare_draws_two_runs(chainrule, trained):
    chainrule("train", "text.txt", *TINY, "--lr", 0.1, "--steps", 30, "--output", "other")
    code, out, errors = chainrule("compare", "run", "other")
    assert (code, errors) == (0, "")
    assert re.search(r"run +\S +20 \S +\d\.\d{4}", out)
    assert re.search(r"other +\S +30 \S +\d\.\d{4}", out)
    svg = Path("compare.svg").read_text("utf-8")
    assert svg.count("<polyline") == 4
    assert ">other</text>" in svg
    assert chainrule("compare", "run", "other", "--output", "both.svg")[0] == 0
    chainrule("train", "text.txt", *TINY, "--steps", 10, "--output", "third")
    assert chainrule("compare", "run", "other", "third")[0] == 0
    assert Path("compare.svg").read_text("utf-8").count("<polyline") == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere"], "there is no metrics.csv in 'nowhere'"),
        (["run", "nowhere", "./run"], "a run can only be compared with another one"),
        (["run", "text.txt"], "there is no metrics.csv in 'text.txt'"),
    ],
)
def test_comparisons_that_cannot_be(chainrule, trained, arguments, message):
    code, _, errors = chainrule("compare", *arguments)
    assert code == 1
    assert message in errors


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ([], 0.01),
        (["--width", "32"], 0.01),
        (["--width", "64"], 0.005),
        (["--width", "128"], 0.0025),
        (["--width", "1024"], 0.001),
        (["--width", "128", "--lr", "0.01"], 0.01),
        (["--preset", "shakespeare", "--width", "384"], 0.001),
    ],
)
def test_the_learning_rate_suits_the_width(options, rate, monkeypatch, chainrule):
    found = []

    def started(file, config, *rest):
        found.append(config.learning_rate)
        raise gpt.GPTError("that is enough")

    monkeypatch.setattr(training, "_started", started)
    chainrule("train", *options)
    assert found == [rate]
