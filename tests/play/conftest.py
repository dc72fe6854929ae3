"""A server to ask, and pages of it in the browser."""

import threading

import pytest
from live_page import DESKTOP

from chainrule.play import PlayServer


@pytest.fixture
def server():
    server = PlayServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def visit(browser, server):
    """Opens the app; at the end, nothing was logged and nobody but the server was asked."""
    contexts, trouble = [], []

    def open_app(address="", *, theme="light", viewport=DESKTOP):
        context = browser.new_context(
            viewport=viewport, color_scheme=theme, reduced_motion="reduce"
        )
        contexts.append(context)
        context.set_default_timeout(180_000)  # the machine may be busy
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: request.url.startswith(server.address) or trouble.append(request.url),
        )
        page.goto(server.address + address)
        return page

    yield open_app
    for context in contexts:
        context.close()
    assert not trouble
