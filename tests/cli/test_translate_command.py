"""The command translate: source and formulas from a file, and one line for what goes wrong."""

import pytest

from chainrule.cli import app

MODEL = """
import chainrule
from chainrule import tanh

@chainrule.compile
def loss(params, points):
    total = 0.0
    for point in points:
        total += sum(tanh(sum(w * x for w, x in zip(row, point))) for row in params["W"])
    return total

def example():
    return {"W": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]}, [[1.0, 2.0], [3.0, 4.0]]

def of_sizes(N=5, H=6):
    return {"W": [[0.1 * k, 0.2] for k in range(H)]}, [[1.0, 2.0 * k] for k in range(N)]

def branch(p):
    return p[0] if p[0] > 0 else p[1]

pair = [1.0, 2.0]
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            app(["translate", *arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return run


def test_numpy_source_is_printed_and_runs(run):
    code, out, err = run("model.py:loss")
    assert (code, err) == (0, "")
    assert '    a = np.tanh(np.einsum("tj,ij->ti", points, W))\n' in out
    world = {}
    exec(out, world)
    assert world["loss"]({"W": [[0.0, 0.0]] * 3}, [[1.0, 2.0]] * 2) == 0.0


def test_source_for_any_size_is_printed_and_runs(run):
    code, out, err = run("model.py:loss", "--any-size", "--example", "of_sizes")
    assert (code, err) == (0, "")
    assert "    H = W.shape[0]\n" in out
    world = {}
    exec(out, world)
    assert world["loss"]({"W": [[0.0, 0.0]] * 20}, [[1.0, 2.0]] * 30) == 0.0
    assert run("model.py:loss", "--any-size", "--example", "pair")[0] == 2
    assert "'pair' of model.py is no function, but a list" in run("model.py:pair")[2]
    assert "numpy, JAX or torch" in run("model.py:loss", "--any-size", "--to", "c")[2]


def test_formulas_are_printed(run):
    code, out, _ = run("model.py:loss", "--to", "formulas")
    assert code == 0
    assert out.splitlines()[0] == "a[t,i] = tanh(Σ_j W[i,j]·points[t,j])  [2×3]"


def test_c_is_printed_with_its_header_and_written_as_two_files(run, tmp_path):
    code, out, err = run("model.py:loss", "--to", "c")
    assert (code, err) == (0, "")
    assert out.index("#ifndef LOSS_H") < out.index('#include "loss.h"')
    assert "    /* a[t,i] = tanh(Σ_j W[i,j]·points[t,j])  [2×3] */\n" in out
    assert run("model.py:loss", "--to", "c", "-o", "out") == (0, "", "")
    assert '#include "out.h"' in (tmp_path / "out.c").read_text(encoding="utf-8")
    assert "int loss_value_and_grad(" in (tmp_path / "out.h").read_text(encoding="utf-8")
    code, out, _ = run("model.py:branch", "--to", "c", "--example", "pair")
    assert code == 0
    assert "return BRANCH_OTHER_BRANCH;" in out


def test_source_is_written_to_a_file(run, tmp_path):
    assert run("model.py:loss", "-o", "out") == (0, "", "")
    assert "def loss(params, points):" in (tmp_path / "out.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model.py:branch", "--example", "pair"], "a branch at model.py:19"),
        (["model.py:nothing"], "model.py has no function named 'nothing'"),
        (["model.py:loss", "--example", "none"], "has no example (a tuple of arguments) named"),
        (["model.py:loss", "--example", "pair"], "loss raises with this example: TypeError"),
        (["model.py"], "name a file and a function, as in model.py:loss"),
        (["missing.py:loss"], "there is no file 'missing.py'"),
        (["broken.py:loss"], "broken.py raises ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_is_one_line(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.startswith("chainrule: ")
    assert err.count("\n") == 1


def test_branches_are_specialised_on_request(run):
    code, out, _ = run("model.py:branch", "--example", "pair", "--specialise")
    assert code == 0
    assert "return p[0], valid" in out
