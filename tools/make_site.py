"""The documentation site: pages of docs/ and pages made from the package in, the folder site/ out.

python tools/make_site.py                build it, strictly, and check every link
python tools/make_site.py --serve        the same, then serve it at http://127.0.0.1:8000/
python tools/make_site.py --serve 9000   at another port

The pages of docs/ link to one another and to files of the repository, so that they can be read
there too. Links that lead out of docs/ are changed here: to the page that a file became, or to the
repository. Made here besides: the API reference from ``chainrule.__all__``, the command line's
help, and live pages.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "site"

#: files of the repository that are pages of the site too
MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "docs/course/README.md": "course/index.md",
}
NOT_COPIED = {"README.md"}  # the site's first page, docs/index.md, says the same with live pages

#: the live pages, by the arguments of ``chainrule explore`` that make them
LIVE = {
    "neuron": ["n = x1*w1 + x2*w2 + b; o = tanh(n)", *"x1=2 x2=0 w1=-3 w2=1 b=6.75".split()],
    "paths": ["c = a*b; L = c + a", "a=2", "b=3"],
}

#: the API reference: the page, its title, what it begins with, and the public names on it
REFERENCE = {
    "values": (
        "Values",
        "One number that remembers how it was computed, and what makes and walks graphs of them. "
        "A Value `v` has `v.data` and `v.grad`, floats that may be set; `v.label` and `v.op`, its "
        "name and the operation that made it; and `v.children` and `v.local_grads`, its operands "
        "and the derivative with respect to each. Every [operation](../operations.md) is a method "
        "too. "
        "`chainrule.engine` is `'native'` or `'reference'`: see [engines](../engines.md).",
        "Value vsum dot linear topological_order no_grad nonfinite".split(),
    ),
    "derivatives": (
        "Derivatives",
        "Functions that give derivatives of functions, to any order, and the check of a gradient; "
        "[derivatives](../derivatives.md) explains them.",
        "grad value_and_grad jacobian hessian hvp jvp vjp gradients check_gradients GradientReport "
        "GradientError".split(),
    ),
    "seeing": (
        "Seeing",
        "The backward pass as tables, as a drawing and as a live page; and where a NaN began.",
        "explain draw draw_dot explore debug find_nonfinite".split(),
    ),
    "several": (
        "Functions of several numbers",
        "Short programs of operations, over lists, arrays and nests of Values or floats.",
        "logsumexp softmax norm safe_norm cumsum interp solve det cholesky smooth_step smooth_max "
        "stop_gradient".split(),
    ),
    "own": (
        "Operations of one's own",
        "Formulas that every engine evaluates, calls of other code, and derivatives through "
        "solvers; [a toolbox for engineers](../engineers.md) shows them.",
        "operation implicit_root fixed_point checkpoint SolverError".split(),
    ),
    "compile": (
        "compile",
        "Machine code from a function of Values; [compile](../compile.md) explains it.",
        "compile load Windows FallbackWarning FallbackError SaveError TranslationError".split(),
    ),
}
MODULES = {"nn": "nn", "optim": "optim", "random": "random", "gpt": "gpt", "lessons": "see.lessons"}


def main() -> None:
    _, *options = sys.argv
    gather()
    strict = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    plain = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(strict, cwd=ROOT, capture_output=True, text=True, env=plain, check=False)
    if done.returncode:
        sys.exit(f"zensical build --strict failed:\n{done.stdout}{done.stderr}")
    problems = list(check(SITE))
    if problems:
        sys.exit("\n".join(problems))
    pages = len(list(SITE.rglob("*.html")))
    print(
        f"{SITE.name}/: {pages} pages, every link leads somewhere, nothing is loaded from elsewhere"
    )
    if options[:1] == ["--serve"]:
        serve(int(options[1]) if len(options) > 1 else 8000)


# --- gathering the pages --------------------------------------------------------------------------


def gather() -> None:
    """Write build/pages: what zensical reads."""
    shutil.rmtree(PAGES, ignore_errors=True)
    repository = project()["urls"]["Repository"]
    for path in sorted((ROOT / "docs").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".md" and name not in MOVED:
            write(name.removeprefix("docs/"), adapted(name, repository))
        elif path.is_file() and name not in MOVED:
            target = PAGES / path.relative_to(ROOT / "docs")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for name, page in MOVED.items():
        if name not in NOT_COPIED:
            write(page, adapted(name, repository))
    write_reference()
    write_command_line()
    for name, arguments in LIVE.items():
        (PAGES / "live").mkdir(exist_ok=True)
        chainrule("explore", *arguments, "-o", str(PAGES / "live" / f"{name}.html"))
    listed = set(pages_of(navigation()))
    written = {path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md")}
    if listed != written:
        sys.exit(f"zensical.toml: 'nav' and the pages differ in {sorted(listed ^ written)}")


def project() -> dict:
    return tomllib.loads(read("pyproject.toml"))["project"]


def navigation() -> list:
    return tomllib.loads(read("zensical.toml"))["project"]["nav"]


def pages_of(nav: object) -> Iterator[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_of(part)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def write(page: str, text: str) -> None:
    path = PAGES / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


_LINK = re.compile(r"(?<=\]\()([^)\s#]+)")
_FENCE = re.compile(r"^( *)```.*?^\1```[ ]*$", re.MULTILINE | re.DOTALL)


def adapted(name: str, repository: str) -> str:
    """The text of a file as a page of the site: links that lead out of docs/ changed."""
    page = MOVED.get(name, name.removeprefix("docs/"))
    change = functools.partial(link, name, page, repository)
    text, result, end = read(name), [], 0
    for fence in [*_FENCE.finditer(text), None]:  # code is left as it is
        prose = text[end : fence.start() if fence else len(text)]
        result.append(_LINK.sub(lambda found: change(found[1]), prose))
        if fence:
            result.append(fence[0])
            end = fence.end()
    return "".join(result)


def link(name: str, page: str, repository: str, target: str) -> str:
    """Where a link of the file ``name`` leads on the site, where the file is ``page``."""
    if urlsplit(target).scheme:
        return target
    place = os.path.normpath((Path(name).parent / target).as_posix())
    place = Path(place).as_posix()
    if place in MOVED or place.startswith("docs/"):
        new = MOVED.get(place, place.removeprefix("docs/"))
        return Path(os.path.relpath(new, Path(page).parent)).as_posix()
    kind = "tree" if (ROOT / place).is_dir() else "blob"
    return f"{repository}/{kind}/main/{place}"


# --- pages made from the package ------------------------------------------------------------------


def write_reference() -> None:
    import chainrule as package
    from chainrule.core import functions

    placed = {"engine", *MODULES, *functions.__all__}
    for page, (title, intro, names) in REFERENCE.items():
        placed.update(names)
        parts = [f"::: chainrule.{name}\n" for name in names]
        write(f"reference/{page}.md", "\n".join([f"# {title}\n", f"{intro}\n", *parts]))
    if placed != set(package.__all__):
        sys.exit(
            f"the reference and chainrule.__all__ differ in {sorted(placed ^ {*package.__all__})}"
        )
    for name, place in MODULES.items():
        module = getattr(package, name)
        intro = (inspect.getdoc(module) or "").partition("\n\n")[0]
        parts = [f"::: chainrule.{place}.{member}\n" for member in module.__all__]
        write(f"reference/{name}.md", "\n".join([f"# chainrule.{name}\n", f"{intro}\n", *parts]))
    write("reference/functions.md", "\n".join(functions_page(functions)))


def functions_page(functions: object) -> Iterator[str]:
    """The op table's functions, which exist at run time only."""
    from doctest_blocks import fenced

    yield "# Functions of the operations\n"
    yield "Their derivatives are in the table of [operations](../operations.md).\n"
    for name in functions.__all__:
        function = getattr(functions, name)
        yield f"## {name} {{ #chainrule.{name} }}\n"
        yield f"```python\n{name}{signature(function)}\n```\n"
        yield fenced(inspect.getdoc(function) or "") + "\n"


def signature(function: Callable[..., object]) -> inspect.Signature:
    """The signature without its annotations, which say Any where numbers of all kinds may come."""
    full = inspect.signature(function)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in full.parameters.values()]
    return inspect.Signature(bare)


def chainrule(*arguments: str) -> str:
    """What a command of the command line prints."""
    from chainrule.cli import main

    os.environ.update(COLUMNS="90", NO_COLOR="1", TERM="dumb")
    sys.argv = ["chainrule", *arguments]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{' '.join(sys.argv)} failed: {end.code}\n{printed.getvalue()}")
    return printed.getvalue()


def write_command_line() -> None:
    overview = chainrule("--help")
    commands = re.findall(r"^│ ([a-z]+)  ", overview, re.MULTILINE)
    text = f"# Command line\n\nWhat `chainrule --help` prints:\n\n```text\n{overview}```\n"
    for command in commands:
        text += f"\n## chainrule {command}\n\n```text\n{chainrule(command, '--help')}```\n"
    write("reference/command-line.md", text)


# --- checking what was built ----------------------------------------------------------------------


class Links(HTMLParser):
    """What a page offers as targets of links, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.ids.update(filter(None, (found.get("id"), found.get("name"))))
        relations = ("canonical", "prev", "next", "edit")
        if tag in ("a", "area") or (tag == "link" and found.get("rel") in relations):
            self.links.append(found.get("href") or "")
        else:
            names = ("src", "href", "data", "poster")
            self.loads += [value for name in names if (value := found.get(name))]


def check(site: Path) -> Iterator[str]:
    """What is wrong with the links of a built site, one line each."""
    parsed = {
        path: Links(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))
    }
    live = site / "live"  # their scripts make what their links lead to
    for path, page in parsed.items():
        here = path.relative_to(site).as_posix()
        for target in [*page.links, *page.loads]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loads and parts.scheme != "data":
                    yield f"{here}: loads {target}"
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.path.startswith("/") and path.name == "404.html":
                place = site / unquote(parts.path).lstrip("/")
            place = place / "index.html" if place.is_dir() else place
            fixed = place.suffix == ".html" and live not in place.parents
            if not place.exists():
                yield f"{here}: {target} leads nowhere"
            elif fixed and parts.fragment and unquote(parts.fragment) not in parsed[place].ids:
                yield f"{here}: {target}: no such place on that page"
    for path in sorted(site.rglob("*.css")):
        for target in re.findall(
            r"(?:url\(|@import\s+)[\"']?(https?:)?//", path.read_text("utf-8")
        ):
            yield f"{path.relative_to(site)}: loads from {target}"


def serve(port: int) -> None:
    handler: Callable[..., http.server.SimpleHTTPRequestHandler]
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    print(f"http://127.0.0.1:{port}/  (Ctrl-C to stop)", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        http.server.ThreadingHTTPServer(("127.0.0.1", port), handler).serve_forever()


if __name__ == "__main__":
    main()
