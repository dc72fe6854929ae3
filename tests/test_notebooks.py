"""The notebooks of examples/ run, print what they show, and everything in them shows as HTML."""

import subprocess
import sys
from pathlib import Path

import pytest

from chainrule import (
    Value,
    check_gradients,
    compile,
    draw,
    explain,
    explore,
    find_nonfinite,
    lessons,
    nonfinite,
)

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def printed(notebook):
    """What the cells print, cell by cell."""
    return [
        "".join(out.text for out in cell.outputs if out.output_type == "stream")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def shown(notebook):
    """The kinds of what each cell shows last."""
    return [
        sorted(out.data)
        for cell in notebook.cells
        if cell.cell_type == "code"
        for out in cell.outputs
        if out.output_type == "execute_result"
    ]


@pytest.fixture(scope="module")
def rerun(tmp_path_factory):
    """The folder of the notebooks' new results; in a process without the event loops of others."""
    pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("notebooks")
    command = [sys.executable, ROOT / "tools" / "make_notebooks.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_a_notebook_runs_and_prints_what_it_shows(file, rerun):
    import nbformat

    stored, fresh = [nbformat.read(x, as_version=4) for x in (file, rerun / file.name)]
    assert printed(fresh) == printed(stored)
    assert shown(fresh) == shown(stored)
    assert all("text/html" in kinds for kinds in shown(fresh))


def test_there_are_two_notebooks_and_both_were_run():
    assert len(NOTEBOOKS) == 2
    for file in NOTEBOOKS:
        assert '"output_type": "execute_result"' in file.read_text(encoding="utf-8")


# --- what a notebook shows ------------------------------------------------------------------------


def loss():
    a, b = Value(2.0, label="a"), Value(3.0, label="<b>")
    return a * b + a


@compile
def square(x):
    return x * x


def everything():
    with nonfinite("allow"):
        nan = find_nonfinite(Value(0.0).log())
    square.value_and_grad(3.0)
    return {
        "explain": explain(loss()),
        "paths": explain(loss()).paths("a"),
        "draw": draw(loss()),
        "explore": explore(loss()),
        "check_gradients": check_gradients(lambda x, y: x.relu() + y, 0.0, 3.0),
        "find_nonfinite": nan,
        "lessons.compare": lessons.compare(loss()),
        "lessons.smallest": lessons.smallest("overwrite"),
        "report": square.report(),
    }


@pytest.mark.parametrize("name", everything())
def test_everything_has_html_that_keeps_labels_as_text(name):
    html = everything()[name]._repr_html_()
    assert html.startswith("<")
    assert "<b>" not in html, "a label is text"


def test_tables_are_aligned_to_the_left_against_a_notebooks_own_style():
    html = explain(loss())._repr_html_()
    assert 'class="cr chainrule-tables"' in html, "two classes outrank a notebook's one"
    assert "text-align: left" in html


def test_a_drawing_fits_its_cell_and_follows_the_notebooks_theme():
    html = draw(loss())._repr_html_()
    assert "max-width:100%" in html
    assert '[data-jp-theme-light="false"]' in html
    assert html.count("<style>") == 1, "the drawing's own style would follow the system instead"
    assert draw(loss(), format="png")._repr_html_() is None
