"""A browser for the tests of the page."""

import os

import pytest
from live_page import CHROMIUM, DESKTOP, FLAGS

from chainrule.see.page import LIMIT, explore


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        if os.environ.get("CI", "").lower() in ("", "0", "false"):
            pytest.skip("chromium is not installed (the browser tests need Debian's package)")
        pytest.fail("chromium is not installed, and CI must run the browser tests")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Opens a page; at the end, nothing was logged and nothing was asked of the network."""
    contexts, trouble = [], []

    def open_page(v, *, theme="light", viewport=DESKTOP, motion="reduce", limit=LIMIT):
        file = explore(v, limit=limit).save(tmp_path / "page.html")
        context = browser.new_context(
            viewport=viewport, color_scheme=theme, reduced_motion=motion, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: request.url != file.as_uri() and trouble.append(request.url),
        )
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not trouble
