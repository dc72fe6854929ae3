"""What a release checks: one version in all places, a changelog, a README that shows anywhere."""

import shutil
import sys
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import chainrule

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import package_readme  # noqa: E402
import release  # noqa: E402

FILES = [
    *("pyproject.toml", "CHANGELOG.md", "CITATION.cff", release.INIT),
    ".github/ISSUE_TEMPLATE/config.yml",
]


@pytest.fixture
def tree(tmp_path):
    """The files in which the version and the address stand."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_installed_version_is_the_packages():
    assert version("chainrule") == chainrule.__version__
    assert release.version_of(ROOT) == chainrule.__version__


def test_writing_a_version_makes_all_places_agree(tree):
    release.write_version(tree, "7.8.9", "2031-02-03")
    assert list(release.texts(tree)) == []
    assert release.version_of(tree) == "7.8.9"
    assert "date-released: 2031-02-03" in (tree / "CITATION.cff").read_text(encoding="utf-8")
    release.write_version(tree, "7.8.9", "2031-02-04")  # once more, a day later
    assert list(release.texts(tree)) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        (release.INIT, '"7.8.9"', '"7.8"', "no version"),
        (release.INIT, '"7.8.9"', '"7.9.0"', "CHANGELOG.md: the first version"),
        ("CHANGELOG.md", "[7.8.9] - 2031-02-03", "[7.8.9]", "no date"),
        ("CHANGELOG.md", "## [7.8.9]", "## [Unreleased]\n\n## [7.8.9]", "the first version"),
        (
            "CHANGELOG.md",
            "## [7.8.9] - 2031-02-03",
            "## [7.8.9] - 2031-02-03\n\n## [1.0.0]",
            "nothing",
        ),
        ("CITATION.cff", "version: 7.8.9", "version: 7.8.8", "CITATION.cff"),
        ("pyproject.toml", "github.com", "example.org", "does not name the repository"),
    ],
)
def test_what_does_not_fit_together_is_named(tree, name, old, new, complaint):
    release.write_version(tree, "7.8.9", "2031-02-03")
    text = (tree / name).read_text(encoding="utf-8")
    assert old in text
    (tree / name).write_text(text.replace(old, new), encoding="utf-8")
    assert any(complaint in problem for problem in release.texts(tree))


def test_links_of_the_readme_are_absolute_where_it_is_shown_elsewhere():
    text = "![two\nlines](docs/a.svg) [b](docs/b.md#c) [d](https://e/) [f](#g)"
    assert package_readme.absolute(text, "https://host/repo", "1.2.3") == (
        "![two\nlines](https://host/repo/raw/v1.2.3/docs/a.svg) "
        "[b](https://host/repo/blob/v1.2.3/docs/b.md#c) [d](https://e/) [f](#g)"
    )


def test_the_installed_description_has_no_relative_link():
    description = str(metadata("chainrule").get_payload())
    targets = [part.partition(")")[0] for part in description.split("](")[1:]]
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
