"""Pages of graphs in the browser."""

import pytest
from live_page import DESKTOP

from chainrule.see.page import LIMIT, explore


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
        context.set_default_timeout(180_000)  # the machine may be busy
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
