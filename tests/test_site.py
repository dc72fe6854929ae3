"""The parts of the documentation site that can be tested without building it."""

import sys
from pathlib import Path

import chainrule
from chainrule.core import functions

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import make_site  # noqa: E402


def test_every_page_of_the_docs_is_in_the_navigation():
    listed = [*make_site.pages_of(make_site.navigation())]
    assert len(listed) == len(set(listed))
    docs = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    expected = {make_site.MOVED.get(name, name.removeprefix("docs/")) for name in docs}
    expected |= {page for name, page in make_site.MOVED.items() if name != "README.md"}
    assert {page for page in listed if not page.startswith("reference/")} == expected


def test_every_public_name_has_its_place_in_the_reference():
    names = [name for *_, names in make_site.REFERENCE.values() for name in names]
    names += [*make_site.MODULES, *functions.__all__, "engine"]
    assert sorted(names) == sorted(chainrule.__all__)
    assert all(getattr(chainrule, name).__all__ for name in make_site.MODULES)


def test_links_out_of_the_docs_lead_to_pages_or_to_the_repository():
    def link(name, target):
        page = make_site.MOVED.get(name, name.removeprefix("docs/"))
        return make_site.link(name, page, "https://host/repo", target)

    assert link("docs/guide.md", "compile.md") == "compile.md"
    assert link("docs/course/02-plus-and-times.md", "../glossary.md") == "../glossary.md"
    assert link("docs/course/02-plus-and-times.md", "README.md") == "index.md"
    assert link("docs/guide.md", "../CHANGELOG.md") == "changelog.md"
    assert link("CHANGELOG.md", "docs/guide.md") == "guide.md"
    assert link("docs/engines.md", "../benchmarks/README.md") == "benchmarks.md"
    assert link("docs/gpt.md", "../examples") == "https://host/repo/tree/main/examples"
    assert link("docs/gpt.md", "../LICENSE") == "https://host/repo/blob/main/LICENSE"
    assert link("docs/gpt.md", "https://other/") == "https://other/"


def test_code_is_left_as_it_is(tmp_path, monkeypatch):
    text = "[a](../LICENSE)\n\n```python\nx = [f](../LICENSE)\n```\n\n[b](../LICENSE)\n"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(make_site, "ROOT", tmp_path)
    changed = make_site.adapted("docs/page.md", "https://host/repo")
    assert changed.count("(https://host/repo/blob/main/LICENSE)") == 2
    assert "x = [f](../LICENSE)" in changed


def test_the_check_finds_what_is_wrong(tmp_path):
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "page.html").write_text("<p>made by a script", encoding="utf-8")
    (tmp_path / "good.html").write_text(
        '<h1 id="top">A</h1><a href="https://elsewhere/">b</a><img src="data:image/png;base64,AA">'
        '<iframe src="live/page.html#step=3"></iframe><a href="good.html#top">c</a><a href="#top">',
        encoding="utf-8",
    )
    assert [*make_site.check(tmp_path)] == []
    (tmp_path / "bad.html").write_text(
        '<script src="https://cdn/x.js"></script><link rel="stylesheet" href="//cdn/y.css">'
        '<a href="missing.html">a</a><a href="good.html#bottom">b</a><img src="missing.png">',
        encoding="utf-8",
    )
    (tmp_path / "bad.css").write_text("@import url('https://cdn/font.css');", encoding="utf-8")
    problems = [*make_site.check(tmp_path)]
    assert len(problems) == 6
    assert all(problem.startswith("bad.") for problem in problems)
