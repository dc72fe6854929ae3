"""Pages of graphs whose labels and operation names are hostile: nothing of them becomes markup.

The page, the picture and the tables are parsed and compared, element by element and attribute by
attribute, with those of the same graph with harmless names. Where chromium is installed, it opens
the page: no error, no dialog, no request, and no element that does not belong there.
"""

import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from live_page import CHROMIUM, FLAGS
from trials import BAD, Outcome

from chainrule import Value, draw, explain, explore

COUNT = 132
THINGS = "pages with hostile names"
PIECES = (
    "<script>window.owned=1</script>",
    "</script><script>window.owned=1</script>",
    "<img src=x onerror=window.owned=1>",
    '"><img src=x onerror="window.owned=1">',
    "' onmouseover='window.owned=1",
    '" autofocus onfocus=window.owned=1 x="',
    "<svg onload=window.owned=1>",
    "</svg><iframe srcdoc='<script>top.owned=1</script>'>",
    "</text></svg><script>window.owned=1</script>",
    "</style><style>*{display:none}",
    "</textarea></title></noscript>",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?php ?>",
    "<a href=javascript:window.owned=1>x</a>",
    "javascript:window.owned=1",
    "<base href=//example.com>",
    "<meta http-equiv=refresh content=0>",
    "<link rel=stylesheet href=//example.com/x.css>",
    "<form action=//example.com><input name=a>",
    "&lt;script&gt;window.owned=1&lt;/script&gt;",
    "&#60;img src=x&#62;",
    "\\u003cscript\\u003ewindow.owned=1",
    "\\x3cimg src=x onerror=window.owned=1\\x3e",
    "${window.owned=1}",
    "`+(window.owned=1)+`",
    "';window.owned=1;//",
    '";window.owned=1;//',
    '"}];window.owned=1;//',
    "{{window.owned=1}}",
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "\u2028window.owned=1\u2029",
    "\x00\x1b[2J\x07",
    "\u202egnp.<gmi\u202c",
    "\ud800\udfff",
    "\ufeff\u200b\u00ad",
    "a" * 3_000,
    "日本語" * 40,
    "🏴‍☠️" * 20,
    "Z̸̢̛" * 50,
    "\n\r\t ",
    "",
    " ",
    "%3Cimg%3E",
    "%s%n%x",
    "../../etc/passwd",
    "NaN",
    "-Infinity",
    "1e999",
    "0",
)


def graph(labels: list[str], op: str) -> Value:
    """Two inputs, an operation that nobody knows, and some that are known."""
    a, b = Value(2.0, label=labels[0]), Value(3.0, label=labels[1])
    made = Value(6.0, (a, b), (3.0, 2.0), op=op)
    total = (made * a).tanh() + b
    total.label = labels[2]
    return total


class Elements(HTMLParser):
    """The elements of a page in order, each with the names of its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, ...]] = []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.seen.append((tag, *(name for name, _ in attributes)))


def elements(html: str) -> list[tuple[str, ...]]:
    parser = Elements()
    parser.feed(html)
    parser.close()
    return parser.seen


def forms(v: Value) -> dict[str, str]:
    """Everything that a browser may be given."""
    page = explore(v)
    return {
        "page": page.html,
        "page in a notebook": page._repr_html_(),
        "picture": draw(v).svg,
        "tables": explain(v)._repr_html_(),
    }


def any_name(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.choice((1, 1, 2, 3))))


class Browser:
    """Chromium, and what is wrong with a page in it."""

    def __init__(self, stack: ExitStack, scratch: Path) -> None:
        from playwright.sync_api import sync_playwright

        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        stack.callback(browser.close)
        self.context = browser.new_context(offline=True, reduced_motion="reduce")
        self.file = scratch / "page.html"

    def wrong(self, html: str) -> str:
        trouble: list[str] = []
        self.file.write_text(html, encoding="utf-8")
        page = self.context.new_page()
        page.on("console", lambda message: trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (trouble.append("a dialog"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: request.url != self.file.as_uri() and trouble.append(request.url),
        )
        page.goto(self.file.as_uri())
        for key in ("ArrowRight", "ArrowRight", "End", "Home"):
            page.keyboard.press(key)
        for tab in page.locator("[role=tab]").all():
            if tab.is_visible():
                tab.click()
        made = page.evaluate(
            """() => [...document.querySelectorAll("*")].filter((e) =>
              ["IMG", "IFRAME", "OBJECT", "EMBED", "BASE", "A"].includes(e.tagName) ||
              e.getAttributeNames().some((n) => n.startsWith("on") || n === "action")).map((e) => e.outerHTML)"""
        )
        if made or page.evaluate("'owned' in window"):
            trouble.append(f"made by a name: {made}")
        page.close()
        return "; ".join(trouble)


def trials(count: int, seed: int) -> Iterator[Outcome]:
    rng = random.Random(f"pages {seed}")
    twins: dict[tuple[bool, ...], dict[str, list[tuple[str, ...]]]] = {}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        browser = Browser(stack, scratch) if CHROMIUM else None
        for number in range(count):
            first = PIECES[number % len(PIECES)]  # each of them, then any mixture
            labels, op = [first, any_name(rng), any_name(rng)], any_name(rng)
            given = tuple(map(bool, [*labels, op]))  # nodes without a name look different
            if given not in twins:
                names = [name if there else "" for name, there in zip("pqrs", given, strict=True)]
                twin = forms(graph(names[:3], names[3]))
                twins[given] = {form: elements(text) for form, text in twin.items()}
            found = []
            for form, text in forms(graph(labels, op)).items():
                if BAD.search(text):
                    found.append(f"{form}: a control character")
                if elements(text) != twins[given][form]:
                    found.append(f"{form}: other elements than those of harmless names")
                if form == "page" and browser is not None:
                    trouble = browser.wrong(text)
                    found += [f"in chromium: {trouble}"] if trouble else []
            where = f"trial {number} of seed {seed}, labels {str(labels)[:300]}, operation {op[:100]!r}: "
            kind = "parsed, and opened in chromium" if browser else "parsed"
            yield Outcome(kind, where + "; ".join(found) if found else "")
