"""Make a release: one command that writes the version, one that checks and builds everything.

python3 tools/release.py 0.2.0          write the version and today's date where they stand
python3 tools/release.py                check all of it, build into dist/, try what was built
python3 tools/release.py --tag v0.2.0   besides, the tag must be this version's (for the workflow)

The version lives in ``__version__`` of src/chainrule/__init__.py; the package's metadata is made
from that. The changelog and CITATION.cff must agree with it. Uploading is the work of the workflow
release.yml, which a tag starts: nobody needs a password, and every file is signed.
"""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
INIT = "src/chainrule/__init__.py"
_VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
_HEADING = re.compile(r"^## \[(.+?)\](?: - (\S+))?$", re.MULTILINE)
_NUMBER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(rc\d+)?")


def main() -> None:
    match sys.argv[1:]:
        case [] | ["--tag", _]:
            release(tag=sys.argv[2] if len(sys.argv) > 1 else None)
        case [version] if _NUMBER.fullmatch(version):
            write_version(ROOT, version, datetime.date.today().isoformat())
            print(f"version {version} written; read the changelog, commit, and run this again")
        case _:
            sys.exit((__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])


def write_version(root: Path, version: str, date: str) -> None:
    """Put the version where it stands; the changelog's unreleased part becomes this version's."""
    rewrite(root / INIT, _VERSION, f'__version__ = "{version}"')
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"## [{version}]" not in text:
        rewrite(
            root / "CHANGELOG.md",
            re.compile(r"^## \[Unreleased\]$", re.M),
            f"## [{version}] - {date}",
        )
    citation = root / "CITATION.cff"
    rewrite(
        citation,
        re.compile(r"^version: .*(\ndate-released: .*)?", re.M),
        f"version: {version}\ndate-released: {date}",
    )


def rewrite(path: Path, pattern: re.Pattern[str], replacement: str) -> None:
    text, count = pattern.subn(lambda _: replacement, path.read_text(encoding="utf-8"))
    if count != 1:
        sys.exit(f"{path.name}: expected one place that matches {pattern.pattern}, found {count}")
    path.write_text(text, encoding="utf-8")


def release(tag: str | None) -> None:
    problems = [*texts(ROOT), *repository(tag)]
    if problems:
        sys.exit("not ready for a release:\n" + "\n".join(f"- {problem}" for problem in problems))
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    subprocess.run([ROOT / "tools" / "check_wheels.sh", ROOT / "dist"], check=True)
    version = version_of(ROOT)
    print(
        f"\nchainrule {version} is ready. dist/ holds what was tried here; the wheels for all\n"
        "systems are built and uploaded by the workflow release.yml, which this starts:\n\n"
        f"  git tag -a v{version} -m 'chainrule {version}' && git push origin v{version}\n"
    )


def version_of(root: Path) -> str:
    found = _VERSION.search((root / INIT).read_text(encoding="utf-8"))
    return found[1] if found else ""


def texts(root: Path) -> Iterator[str]:
    """What the files say that does not fit together, one line each."""
    version = version_of(root)
    if not _NUMBER.fullmatch(version):
        yield f"{INIT}: {version!r} is no version such as 1.2.3"
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = [*_HEADING.finditer(changelog)]
    first = headings[0] if headings else None
    if first is None or first[1] != version:
        yield f"CHANGELOG.md: the first version in it must be [{version}] - YYYY-MM-DD"
    else:
        if not first[2] or not re.fullmatch(r"\d{4}-\d\d-\d\d", first[2]):
            yield f"CHANGELOG.md: [{version}] has no date such as 2026-01-31"
        end = headings[1].start() if len(headings) > 1 else len(changelog)
        if "\n- " not in changelog[first.end() : end]:
            yield f"CHANGELOG.md: nothing is written under [{version}]"
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    if f"\nversion: {version}\n" not in citation:
        yield f"CITATION.cff: its version is not {version}"
    urls = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    for name in ("CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml"):
        if urls["Repository"] not in (root / name).read_text(encoding="utf-8"):
            yield f"{name}: does not name the repository of pyproject.toml, {urls['Repository']}"


def repository(tag: str | None) -> Iterator[str]:
    """What git says against a release, one line each."""
    version = version_of(ROOT)
    if git("status", "--porcelain"):
        yield "git: there are changes that are not committed"
    if tag is None and git("tag", "--list", f"v{version}"):
        yield f"git: there is a tag v{version} already; choose the next version"
    if tag is not None and tag != f"v{version}":
        yield f"git: the tag is {tag}, and the version {version}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = re.sub(r"^git@([^:]+):", r"https://\1/", git("remote", "get-url", "origin"))
    if address.removesuffix(".git") != project["urls"]["Repository"]:
        yield (
            f"pyproject.toml: the repository is {project['urls']['Repository']}, but git's remote "
            f"'origin' is {address or 'not set'}"
        )


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()
