"""The command ``play``: serve the web app on this machine until Ctrl-C."""

from __future__ import annotations

import errno
import signal
import threading
import webbrowser

from cyclopts import App
from rich.console import Console

from chainrule.cli.reporting import complain, examples, reported, say


def register(app: App) -> None:
    """Add the command to the command line."""
    lines = ("chainrule play", "chainrule play --port 8000 --no-open")
    app.command(play, help_epilogue=examples(*lines))


@reported
def play(*, port: int = 0, open: bool = True) -> int:
    """Try expressions, networks and GPTs in the browser.

    Type an expression and watch its graph; train a network on points in
    the plane and ask a weight why its gradient is what it is; train a GPT
    and see what it expects next. Everything runs on this machine, and no
    other can reach it. Closing a page stops its work, Ctrl-C the server.

    Parameters
    ----------
    port
        The port to listen at; 0 takes any that is free.
    open
        Open the browser.
    """
    from chainrule.play import PlayServer

    if not 0 <= port <= 65535:
        complain(f"--port must be a number from 0 to 65535, not {port}")
        return 1
    try:
        server = PlayServer(port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        complain(f"port {port} is taken; leave out --port, and one that is free will be found")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    try:
        say(console, "chainrule play is at this address, which only this machine can open:")
        say(console)
        say(console, f"  {server.address}")
        say(console)
        say(console, "Ctrl-C ends it.")
        if open and not _open(server.address):
            say(
                console, "There is no browser here that could be opened: open the address yourself."
            )
        console.file.flush()  # to a pipe, too, now and not in the end
        server.serve_forever()
    except KeyboardInterrupt:
        say(console)
        say(console, "stopped")
    finally:
        server.server_close()
    return 0


def _open(address: str) -> bool:
    """Open the browser, beside the server; whether there is one with a window of its own."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    # A browser inside the terminal would take the terminal away from the server.
    if type(browser) is webbrowser.GenericBrowser:
        return False
    threading.Thread(target=browser.open, args=(address,), daemon=True).start()
    return True
