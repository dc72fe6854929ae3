"""Look at the built site as a reader does: in chromium, on a phone and a desk, in light and dark.

python tools/check_site.py    needs site/ (tools/make_site.py), playwright and chromium

Opens the folder without a server. A page may ask for nothing outside the folder, may not be wider
than the window, and may not fail in its scripts. The search must find a page. Pictures of the first
pages of every section are left in screenshots/site/.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, Request, sync_playwright
from playwright.sync_api import Error as PlaywrightError

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
PICTURES = ROOT / "screenshots" / "site"
WINDOWS = {"phone": (390, 844), "desk": (1280, 800)}
THEMES = ("light", "dark")
SHOWN = (
    "index backward-pass tutorial-engineers operations reference/derivatives course/index".split()
)


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("check_site: there is no chromium here")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        problems = [*look(browser), *search(browser)]
        browser.close()
    if problems:
        sys.exit("\n".join(problems))
    print(f"no request leaves {SITE.name}/, no page is wider than a phone, the search finds")


def watched(page: Page, problems: list[str]) -> Page:
    """A page whose requests and errors are written down."""

    def asked(url: str) -> None:
        if not url.startswith((SITE.as_uri(), "data:", "blob:", "about:")):
            problems.append(f"{page.url}: asks for {url}")

    def failed(request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # by going on to the next page
            problems.append(f"{page.url}: {request.url}: {request.failure}")

    page.on("request", lambda request: asked(request.url))
    page.on("requestfailed", failed)
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    return page


def look(browser: Browser) -> Iterator[str]:
    problems: list[str] = []
    for window, (width, height) in WINDOWS.items():
        for theme in THEMES:
            view = {"width": width, "height": height}
            context = browser.new_context(viewport=view, color_scheme=theme)
            context.set_default_timeout(180_000)  # the machine may be busy
            page = watched(context.new_page(), problems)
            # Requests and errors depend on neither theme nor window: all pages are opened once.
            # The page for wrong addresses only works on a server.
            paths = {*SITE.rglob("*.html")} - {SITE / "404.html"}
            if (window, theme) != ("phone", "light"):
                paths = set()
            shown = [SITE / f"{name}.html" for name in SHOWN]
            for path in dict.fromkeys([*shown, *sorted(paths)]):
                page.goto(path.as_uri())
                if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                    problems.append(f"{path.relative_to(SITE)}: wider than a {window}")
                if path in shown:
                    page.wait_for_timeout(300)
                    name = path.relative_to(SITE).with_suffix("").as_posix().replace("/", "-")
                    page.screenshot(path=PICTURES / f"{name}-{window}-{theme}.png")
            context.close()
    yield from problems


def search(browser: Browser) -> Iterator[str]:
    """From the folder, without a server: a word that only one page explains."""
    problems: list[str] = []
    page = watched(browser.new_page(), problems)
    page.goto((SITE / "index.html").as_uri())
    page.click("button:has-text('Search')")
    page.keyboard.type("free-threaded", delay=20)
    try:
        page.get_by_text("When a part is missing").wait_for(timeout=10_000)
    except PlaywrightError as error:
        problems.append(f"the search does not find: {error}")
    page.screenshot(path=PICTURES / "search.png")
    yield from problems


if __name__ == "__main__":
    main()
