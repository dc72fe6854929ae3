"""The examples of the README and of docs/ run, in order, and print what the pages say they print.

A Python block is executed, or taken as a doctest where it has prompts; so is every line of a shell
block that calls chainrule. A text block right after it is the output.
"""

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from chainrule import lessons
from chainrule.cli import main

ROOT = Path(__file__).parents[1]
COURSE = sorted((ROOT / "docs" / "course").glob("[0-9]*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
SET_UP = re.compile(r"^## Set up\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


def blocks(text):
    """(line, language, body, directly): whether nothing but blank lines lies before the block."""
    end = 0
    for match in FENCE.finditer(text):
        directly = not text[end : match.start()].strip()
        line = text.count("\n", 0, match.start()) + 1
        yield line, match[1], match[3], directly
        end = match.end()


def examples(text, languages=("python",)):
    """(line, language, code, output or None): a block and the output block right after it."""
    found = list(blocks(text))
    for place, (line, language, body, _) in enumerate(found):
        if language in languages:
            following = found[place + 1] if place + 1 < len(found) else None
            shown = following and following[3] and following[1] in ("", "text", "console")
            yield line, language, body, following[2] if shown else None


def lines(text):
    return [line.rstrip() for line in text.strip().splitlines()]


# --- running ------------------------------------------------------------------------------------


def run_python(code, line, page, namespace):
    if code.startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), line)
        report = []
        result = doctest.DocTestRunner().run(test, out=report.append, clear_globs=False)
        assert result.failed == 0, "".join(report)
        namespace.update(test.globs)
    else:
        exec(compile("\n" * line + code, page.name, "exec"), namespace)


def run_shell(code, monkeypatch):
    """Every chainrule command in turn; training is cut short."""
    monkeypatch.setattr("webbrowser.open", lambda url: None)
    for command in code.splitlines():
        words = shlex.split(command)
        if words[0] != "chainrule":
            continue
        if words[1] == "train":
            words += ["--samples", "2", *([] if "--resume" in words else ["--steps", "2"])]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, command


def learners_file(page):
    """my_value.py as it is at the end of a page of the course; later blocks add, or replace all."""
    source = ""
    for earlier in COURSE[: COURSE.index(page) + 1]:
        for match in FENCE.finditer(earlier.read_text(encoding="utf-8")):
            if "my_value.py" in match[2]:
                source = f"{source}\n\n{match[3]}" if "added" in match[2] else match[3]
    return source


@pytest.mark.parametrize("page", [*PAGES, *COURSE], ids=lambda page: page.name)
def test_examples_print_what_the_page_shows(page, tmp_path, monkeypatch):
    text = page.read_text(encoding="utf-8")
    set_up = SET_UP.search(text)  # .ci/run runs these
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__page__"}
    compared = 0
    if page in COURSE:
        Path("my_value.py").write_text(learners_file(page), encoding="utf-8")
        exec(learners_file(page), namespace)
    for line, language, code, expected in examples(text, ("python", "sh")):
        if language == "sh" and set_up and code in set_up[0]:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if language == "sh":
                run_shell(code, monkeypatch)
            else:
                run_python(code, line, page, namespace)
        if expected is not None:
            compared += 1
            assert lines(printed.getvalue()) == lines(expected), f"{page.name}, line {line}"
        elif language == "python":
            assert printed.getvalue() == "", f"{page.name}, line {line}: printed, but not shown"
    assert compared >= 1 or ">>>" in text or page.name == "glossary.md"


@pytest.mark.parametrize("page", COURSE, ids=lambda page: page.name)
def test_every_step_of_the_course_has_a_picture_an_exercise_and_its_check(page):
    text = page.read_text(encoding="utf-8")
    number = int(page.name[:2])
    assert f"chainrule lessons check --step {number} my_value.py" in text
    assert "\n## Exercise\n" in text
    assert "](../pictures/" in text
    following = [p for p in COURSE if int(p.name[:2]) == number + 1]
    assert all(f"]({p.name})" in text for p in following)


def test_a_step_of_the_course_is_not_done_before_its_exercise(tmp_path):
    """The file of the step before fails the check: each step asks for something new."""
    for page in COURSE[1:10]:
        file = tmp_path / "my_value.py"
        file.write_text(learners_file(COURSE[COURSE.index(page) - 1]), encoding="utf-8")
        assert not lessons.check_file(file, step=int(page.name[:2])).ok, page.name


def test_the_reader_of_pages_pairs_code_with_the_output_after_it():
    text = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n"
    text += "```python\nx = 2\n```\n\nwords\n\n```\nno\n```\n"
    assert [(code, out) for _, _, code, out in examples(text)] == [
        ("print(1)\n", "1\n"),
        ("x = 2\n", None),
    ]


# --- what else a page can get wrong ---------------------------------------------------------------


def test_the_set_up_is_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    job, tests = (code for *_, code, _ in examples(SET_UP.search(text)[0], ("sh",)))
    assert job.endswith(".venv/bin/chainrule train\n")
    assert ".venv/bin/pytest" in tests


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        *COURSE,
        ROOT / "docs/course/README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "SECURITY.md",
        ROOT / "CODE_OF_CONDUCT.md",
        ROOT / "benchmarks/README.md",
    ],
    ids=lambda page: f"{page.parent.name}/{page.name}",
)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http:", "https:", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


def test_the_table_of_operations_is_up_to_date():
    make = [sys.executable, ROOT / "tools" / "make_operations.py", "--check"]
    result = subprocess.run(make, capture_output=True, text=True, encoding="utf-8", check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_files_and_folders_that_the_map_names_exist():
    text = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", FENCE.sub("", text)))
    assert len(named) > 15
    present = [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("src/**/*.py")]
    present += [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("t*/**/*.py")]
    folders = {path.rpartition("/")[0] + "/" for path in present}
    missing = [n for n in named if not any(p.endswith(f"/{n}") for p in {*present, *folders})]
    assert missing == []
