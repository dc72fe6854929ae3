"""The README's Python runs, in order, and prints what the README says it prints."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def blocks(text):
    """(line, language, body, directly): whether nothing but blank lines lies before the block."""
    end = 0
    for match in FENCE.finditer(text):
        directly = not text[end : match.start()].strip()
        line = text.count("\n", 0, match.start()) + 1
        yield line, match[1], match[2], directly
        end = match.end()


def examples(text):
    """(line, code, output or None): a Python block and the output block right after it."""
    found = list(blocks(text))
    for place, (line, language, body, _) in enumerate(found):
        if language in ("python", "py"):
            following = found[place + 1] if place + 1 < len(found) else None
            shown = following and following[3] and following[1] in ("", "text", "console")
            yield line, body, following[2] if shown else None


def lines(text):
    return [line.rstrip() for line in text.strip().splitlines()]


def test_readme_examples_print_what_they_show(tmp_path, monkeypatch):
    text = README.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__readme__"}
    compared = 0
    for line, code, expected in examples(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + code, str(README), "exec"), namespace)
        if expected is not None:
            compared += 1
            assert lines(printed.getvalue()) == lines(expected), f"README.md, line {line}"
        else:
            assert printed.getvalue() == "", f"README.md, line {line}: printed, but not shown"
    assert compared >= 1


def test_the_reader_of_the_readme_pairs_code_with_the_output_after_it():
    text = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n"
    text += "```python\nx = 2\n```\n\nwords\n\n```\nno\n```\n"
    assert [(code, out) for _, code, out in examples(text)] == [
        ("print(1)\n", "1\n"),
        ("x = 2\n", None),
    ]
