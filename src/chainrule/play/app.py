"""The page of ``play``: one file with its style and its script, assembled once."""

from __future__ import annotations

from functools import cache

from chainrule.see.page.assembly import assemble, asset

#: in this order; the first two are shared with the page of ``explore``
SHARED = ("numbers", "elements")
SCRIPT = ("server", "charts", "frame", "formulas", "network", "diagram", "language", "app")


@cache
def app_page() -> str:
    """The whole file. It may ask its own server, and show that server's pages in frames."""
    return assemble(
        asset("play", "app.html"),
        style=[asset("see.page", "base.css"), asset("play", "app.css")],
        script=[
            *(asset("see.page", f"script/{name}.js") for name in SHARED),
            *(asset("play", f"script/{name}.js") for name in SCRIPT),
        ],
        allowed="connect-src 'self'; frame-src 'self'; ",
    )
