"""The command line: what it prints, where, and with which exit code."""

import os
import re
import signal
import subprocess
import sys
import time

import learners
import pytest
from rich.cells import cell_len

import chainrule
import chainrule.core.ops
import chainrule.see.expressions
import chainrule.see.lessons
from chainrule.cli import main

WALKTHROUGH = ["relu(a*b + d)", "a=2", "b=-3", "d=10"]


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command line in this process: (exit code, standard output, standard error)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["chainrule", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return exit_.value.code or 0, out, err

    return run


def process(*arguments, **options):
    environment = os.environ | options.pop("env", {})
    return subprocess.run(
        [sys.executable, "-m", "chainrule", *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env=environment | {"PYTHONIOENCODING": "utf-8"},
        **options,
    )


# --- explain ------------------------------------------------------------------------------------


def test_explain_prints_the_three_stages(command):
    code, out, err = command("explain", *WALKTHROUGH)
    assert (code, err) == (0, "")
    assert "v1 = a * b = 2 × (-3) = -6" in out
    assert "Stage 1" in out
    assert "∂v3/∂v2 = 1.0, as v2 > 0" in out
    assert "a.grad = -3.0" in out
    assert "\x1b" not in out
    assert all(cell_len(line) <= 80 for line in out.splitlines())


def test_explain_takes_statements(command):
    code, out, _ = command("explain", "c = a*b; L = c + a", "a=2", "b=3")
    assert code == 0
    assert "c = a * b = 2 × 3 = 6" in out
    assert "a.grad += 3.0 × 1.0 = 3.0, now 4.0" in out


def test_explain_shows_one_stage(command):
    _, out, _ = command("explain", *WALKTHROUGH, "--stage", "backward")
    assert "Stage 2" in out
    assert "Stage 0" not in out
    _, out, _ = command("explain", *WALKTHROUGH, "--stage", "forward", "--stage", "result")
    assert "Stage 0" in out
    assert "Result" in out
    assert "Stage 1" not in out


def test_explain_shows_paths(command):
    code, out, _ = command("explain", "c = a*b; L = c + a", "a=2", "b=3", "--paths", "a")
    assert code == 0
    assert out.startswith("why a.grad is 4.0: 2 paths lead from L to a\n")
    code, _, err = command("explain", "a*b", "a=2", "b=3", "--paths", "q")
    assert code == 2
    assert "there is no 'q'; the inputs are a, b" in err


def test_explain_writes_a_page(command, tmp_path):
    page = tmp_path / "page.html"
    code, out, _ = command("explain", "a*b", "a=2", "b=3", "-o", str(page))
    assert (code, out) == (0, f"wrote {page}\n")
    assert "a * b" in page.read_text(encoding="utf-8")
    assert "<script" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-a*b", "a=2", "b=-3"],
        ["-a*b", "a=2", "b=-3", "--stage", "forward"],
        ["--stage", "forward", "-a*b", "a=2", "b=-3"],
        ["--", "-a*b", "a=2", "b=-3"],
        ["-a*b", "a=-2", "b=-.5e-3"],
    ],
)
def test_expressions_and_numbers_may_start_with_a_minus(command, arguments):
    code, out, err = command("explain", *arguments)
    assert (code, err) == (0, "")
    assert "a * (-1)" in out


# --- what is wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["explain", "draw", "explore", "check", "lessons"])
def test_a_wrong_expression_is_one_line_and_a_caret_with_code_two(command, name):
    code, out, err = command(name, "a*b + tanhh(c)", "a=1", "b=2", "c=3")
    assert (code, out) == (2, "")
    assert err == (
        "chainrule: unknown function 'tanhh'; did you mean 'tanh'?\n  a*b + tanhh(c)\n        ^\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "a*b", "a=1"], "'b' has no value: add b=NUMBER"),
        (["explain", "a", "a=1", "b=2"], "'b' is given but not used"),
        (["explain", "a", "a=1", "a=2"], "'a' is given twice"),
        (["explain", "a+", "a=1"], "syntax error"),
        (["explain", "9**9**9"], "overflows"),
        (["explain", "a", "a=1", "--stge", "sort"], "--stge. Did you mean --stage?"),
        (["explain", "a", "a=1", "--stage", "sorted"], "sorted"),
        (["explain"], "requires an argument"),
        (["explian", "a"], 'Did you mean "explain"?'),
        (["draw", "a", "a=1", "--format", "png"], "name a file with -o"),
        (["draw", "a", "a=1", "-o", "graph.pdf"], "'graph.pdf': the name must end in one of .svg"),
        (
            ["draw", "a", "a=1", "-o", "graph.svg", "--format", "dot"],
            "does not fit the file's name",
        ),
        (["draw", "a", "a=1", "-o", "."], ". is a folder: name a file"),
        (["explore", "a", "a=1", "-o", "page.pdf"], "'page.pdf': the name must end in .html"),
        (["explore", "a", "a=1", "-o", "."], ". is a folder: name a file"),
        (["check", "a", "a=1", "--tolerance", "0"], "--tolerance must be more than 0, not 0.0"),
        (["lessons", "overwritten"], "did you mean 'overwrite'?"),
        (["check", "a = 2; a*a"], "give the inputs as values"),
        (["nudge", "a", "a=1", "--by", "0"], "--by must be a number other than 0"),
        (["lessons", "--step", "3"], "--step is for check"),
        (["lessons", "check"], "check takes one file"),
        (["lessons", "check", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["lessons", "check", "--step", "12", __file__], "the steps of the course are 1 to 11"),
    ],
)
def test_mistakes_end_with_code_two_and_words_on_standard_error(command, arguments, message):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_file_that_cannot_be_written_is_code_one(command, tmp_path):
    missing = tmp_path / "no" / "page.html"
    code, _, err = command("explain", "a", "a=1", "-o", str(missing))
    assert code == 1
    assert str(missing) in err


def test_nine_to_the_nine_to_the_nine_answers_at_once():
    started = time.perf_counter()
    result = process("explain", "9**9**9")
    assert result.returncode == 2
    assert time.perf_counter() - started < 20


# --- the other commands -------------------------------------------------------------------------


def test_draw_writes_a_picture(command, tmp_path):
    picture = tmp_path / "graph.svg"
    code, out, _ = command("draw", *WALKTHROUGH, "-o", str(picture))
    assert (code, out) == (0, f"wrote {picture}\n")
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<")


def test_draw_says_what_a_png_needs(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)  # as if it were not installed
    code, out, err = command("draw", "a + a", "a=3", "-o", str(tmp_path / "sum.png"))
    assert (code, out) == (2, "")
    assert "PNG needs the package resvg-py: pip install resvg-py" in err
    assert "Traceback" not in err


def test_draw_prints_text_without_a_file(command):
    code, out, _ = command("draw", *WALKTHROUGH, "--format", "dot", "--rankdir", "TB")
    assert code == 0
    assert out.startswith("digraph")
    assert "TB" in out


def test_explore_writes_a_page(command, tmp_path):
    pytest.importorskip("chainrule.see.page")
    page = tmp_path / "page.html"
    code, out, _ = command("explore", *WALKTHROUGH, "-o", str(page))
    assert (code, out) == (0, f"wrote {page}\n")
    assert "<html" in page.read_text(encoding="utf-8")


def test_explore_says_what_it_wrote_when_the_name_has_no_suffix(command, tmp_path):
    code, out, _ = command("explore", "a*b", "a=2", "b=3", "-o", str(tmp_path / "page"))
    assert (code, out) == (0, f"wrote {tmp_path / 'page.html'}\n")
    assert (tmp_path / "page.html").exists()


def test_explore_opens_the_page_when_asked(command, tmp_path, monkeypatch):
    pytest.importorskip("chainrule.see.page")
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = tmp_path / "page.html"
    command("explore", "a*b", "a=2", "b=3", "-o", str(page), "--open")
    assert opened == [page.resolve().as_uri()]


@pytest.mark.parametrize("name", ["explain", "draw", "explore", "train", "inspect", "compare"])
def test_every_command_that_writes_calls_it_output(command, name):
    assert "--output -o" in command(name, "--help")[1]


@pytest.mark.parametrize("name", ["explain", "draw", "explore"])
def test_a_name_for_another_kind_of_file_is_refused_by_all_alike(command, tmp_path, name):
    file = tmp_path / "page.txt"
    code, _, err = command(name, "a*b", "a=2", "b=3", "-o", str(file))
    assert (code, file.exists()) == (2, False)
    assert "cannot write 'page.txt': the name must end in" in err


def test_a_page_of_one_stage_or_of_paths_holds_what_was_asked_for(command, tmp_path):
    page = tmp_path / "page.html"
    command("explain", "a*b", "a=2", "b=3", "-o", str(page), "--stage", "sort")
    text = page.read_text(encoding="utf-8")
    assert "Stage 1" in text
    assert "Stage 2" not in text
    command("explain", "a*b", "a=2", "b=3", "-o", str(page), "--paths", "a")
    text = page.read_text(encoding="utf-8")
    assert "why <" in text
    assert "Stage" not in text


def test_check_compares_with_differences(command):
    code, out, _ = command("check", "x**3 + sin(x*y)", "x=0.7", "y=2")
    assert code == 0
    assert len(re.findall(r"^[xy] .* agrees$", out, re.MULTILINE)) == 2


def test_check_says_what_is_not_smooth(command):
    code, out, _ = command("check", "relu(x) + y", "x=0", "y=2")
    assert code == 0
    assert re.search(r"^x .*not smooth: relu$", out, re.MULTILINE)


def test_check_fails_with_code_one(command, monkeypatch):
    row = chainrule.core.ops.tanh
    wrong = type(row)(row.name, row.symbol, row.formula, row.forward, (lambda y, x: 2.0 + 0.0 * x,))
    monkeypatch.setitem(chainrule.see.expressions.FUNCTIONS, "tanh", wrong)
    code, out, _ = command("check", "tanh(x)", "x=0.5")
    assert code == 1
    assert "WRONG: look at tanh" in out


def test_check_says_where_differences_cannot_tell_with_code_three(command):
    code, out, _ = command("check", "sin(x)", "x=1e17")
    assert code == 3
    assert "not smooth" not in out
    assert re.search(r"^x .*not known: the", out, re.MULTILINE)


def test_nudge_shows_the_quotient_beside_the_gradient(command):
    code, out, _ = command("nudge", *WALKTHROUGH)
    assert code == 0
    assert re.search(r"^a +2\.0 +2\.001 +3\.997 +-3 +-3\.0$", out, re.MULTILINE)


def test_nudge_says_where_there_is_nothing_to_see(command):
    assert "undefined" in command("nudge", "log(x)", "x=0.001", "--by", "-0.01")[1]
    assert "h is too small" in command("nudge", "x*2", "x=1e20")[1]


def test_lessons_check_tells_what_is_missing_and_exits_with_one(command, tmp_path):
    file = tmp_path / "my_value.py"
    file.write_text(learners.WRONG["microgpt with ="][0], encoding="utf-8")
    code, out, _ = command("lessons", "check", str(file))
    assert code == 1
    assert "What is missing: accumulation" in out
    assert all(cell_len(line) <= 80 for line in out.splitlines())
    code, out, _ = command("lessons", "check", "--step", "5", str(file))
    assert (code, "Everything that was tried is right." in out) == (0, True)


def test_lessons_runs_everything(command):
    code, out, _ = command("lessons")
    assert code == 0
    assert "a.grad: expected 4, got 4.0" in out
    for name in chainrule.lessons.MISTAKES:
        assert re.search(rf"^{name} ", out, re.MULTILINE)
    assert all(cell_len(line) <= 80 for line in out.splitlines())


def test_lessons_shows_one_with_its_code(command):
    code, out, _ = command("lessons", "overwrite")
    assert code == 0
    assert "a.grad: expected 2.0, got 1.0" in out
    assert "def overwrite(" in out


def test_lessons_runs_an_expression_on_every_engine(command):
    code, out, _ = command("lessons", "c = a*b; L = c + a", "a=2", "b=3")
    assert code == 0
    assert re.search(r"^overwrite +a\.grad +4\.0 +3\.0", out, re.MULTILINE)


# --- help, version, and the world around --------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "explain",
        "draw",
        "explore",
        "check",
        "lessons",
        "train",
        "sample",
        "inspect",
        "compare",
        "play",
    ],
)
def test_every_command_has_help_with_examples(command, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = command(name, "--help")
    assert code == 0
    assert "Examples:" in out
    assert f"  chainrule {name}" in out
    assert not re.search(r"\S \n\S", out), "a line of the description was too long and was folded"


def test_help_lists_the_commands(command):
    for arguments in (["--help"], []):
        code, out, _ = command(*arguments)
        assert code == 0
        assert "explain" in out
        assert 'chainrule explain "relu(a*b + d)" a=2 b=-3 d=10' in out


def test_version(command):
    assert command("--version") == (0, f"{chainrule.__version__}\n", "")


def test_a_pipe_gets_plain_text():
    result = process("explain", *WALKTHROUGH)
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert "Stage 2" in result.stdout


def test_a_terminal_without_the_characters_gets_replacements():
    command = [sys.executable, "-m", "chainrule", "explain", "a*b", "a=2", "b=3"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, timeout=120, check=False, env=environment)
    assert result.returncode == 0
    assert b"2 ? 3 = 6" in result.stdout


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="there are no such pipes on this system")
def test_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-m", "chainrule", "lessons"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert running.wait(timeout=120) == 141
        assert running.stderr.read() == b""


def test_control_c_exits_with_130(command, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("chainrule.cli.see.evaluate", interrupted)
    code, out, err = command("explain", "a", "a=1")
    assert (code, out, err) == (130, "", "chainrule: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("no_color", [False, True])
def test_a_terminal_gets_colour_unless_it_asks_for_none(no_color):
    import pty

    master, slave = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "80"}
    if no_color:
        environment["NO_COLOR"] = "1"
    with subprocess.Popen(
        [sys.executable, "-m", "chainrule", "explain", "a*b", "a=2", "b=3", "--stage", "sort"],
        stdout=slave, stdin=slave, stderr=slave, env=environment,
    ) as running:  # fmt: skip
        os.close(slave)
        written = b""
        while True:
            try:
                block = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            if not block:
                break
            written += block
        assert running.wait(timeout=120) == 0
    os.close(master)
    assert (b"\x1b[36m" in written or b"\x1b[1;36m" in written) != no_color
    assert "push (v1,0)" in written.decode()
