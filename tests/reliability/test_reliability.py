"""A small share of each experiment, and whether the experiments can find anything."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import trials

import chainrule

RUN = Path(__file__).with_name("experiments.py")
SHARES = {
    "expressions": 27,
    "pages": 1,
    "mutated": 200,
    "forged": 5,
    "calls": 800,
    "threads": 300,
    "signals": 64,
    "kills": 2,
}


def needs_native():
    if chainrule.engine != "native":
        pytest.skip("these are the native engine's entry points")


@pytest.mark.parametrize(("name", "count"), SHARES.items(), ids=SHARES)
def test_nothing_is_found(name, count):
    if name == "calls":
        needs_native()
    command = [sys.executable, str(RUN), name, "--count", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "0 found" in done.stdout


def test_there_is_no_experiment_of_that_name():
    done = subprocess.run([sys.executable, str(RUN), "kils"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no experiment 'kils': choose from expressions," in done.stderr


def test_what_is_found_is_printed_and_makes_the_status_1(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("reliability_run", RUN)
    runner = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    spec.loader.exec_module(runner)

    class Experiment:
        COUNT, THINGS = 3, "things"

        @staticmethod
        def trials(count, seed):
            yield trials.Outcome("fine", number=count - 1)
            yield trials.Outcome("wrong", f"thing 2 of seed {seed}")

    monkeypatch.setattr(runner, "EXPERIMENTS", {"things": "experiment_of_this_test"})
    monkeypatch.setitem(sys.modules, "experiment_of_this_test", Experiment)
    assert runner.run("things", None, 7) == 1
    out = capsys.readouterr().out
    assert "--- things: thing 2 of seed 7\nthings: 3 things in" in out
    assert "1 found\n         2 fine\n         1 wrong\n" in out


def test_every_entry_point_of_the_extension_is_called():
    needs_native()
    import wrong_calls

    assert wrong_calls.uncovered() == set()


@pytest.mark.parametrize(
    ("code", "out", "errors", "trouble"),
    [
        (0, "a = 1", "", ""),
        (0, "", "", "nothing was said"),
        (0, "\x1b[2J", "", "a control character was printed"),
        (2, "", "chainrule: this cannot be read\n  a*\n   ^\n", ""),
        (2, "", "chainrule: " + "v" * 500, "an error without end"),
        (
            1,
            "",
            "Traceback (most recent call last):\n  File ...\nKeyError\n",
            "not one clear error",
        ),
        (-11, "", "", "exit code -11"),
    ],
)
def test_answers_of_commands_are_judged(code, out, errors, trouble):
    import hostile_expressions

    assert hostile_expressions.wrong(code, out, errors) == trouble


def test_what_an_expression_would_execute_is_seen(tmp_path):
    import hostile_expressions

    watch = hostile_expressions.Watch(tmp_path)
    watch.on = True
    try:
        exec("2 + 2")
        (tmp_path / "page.html").write_text("ours")
        with pytest.raises(FileNotFoundError):
            Path("/no such file").read_text()
    finally:
        watch.on = False
    assert [event.partition("(")[0] for event in watch.seen] == ["exec", "open"]


def test_an_element_that_a_name_made_is_seen():
    import hostile_pages

    harmless = hostile_pages.elements('<p title="name">name</p>')
    assert hostile_pages.elements('<p title="other">&lt;b&gt;</p>') == harmless
    assert hostile_pages.elements('<p title="" onclick="">name</p>') != harmless
    assert hostile_pages.elements("<p title=''><b></b></p>") != harmless


def test_other_contents_of_a_checkpoint_are_seen(tmp_path):
    import mutated_checkpoints

    from chainrule import gpt

    run = gpt.Run.start(["abc", "cab"], gpt.Config(width=2, heads=1, block=3, steps=9))
    file = gpt.save(run.checkpoint(), tmp_path)
    wanted = mutated_checkpoints.contents(gpt.load(file))
    assert mutated_checkpoints.attempt(file, wanted) == ("the same contents", "")
    run.advance()
    gpt.save(run.checkpoint(), tmp_path)
    assert "other contents" in mutated_checkpoints.attempt(file, wanted)[1]
    file.write_bytes(file.read_bytes()[:-1])
    assert mutated_checkpoints.attempt(file, wanted) == ("refused", "")
