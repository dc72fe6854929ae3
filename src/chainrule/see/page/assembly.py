"""One HTML file out of a template, styles, scripts and data: what ``explore`` and ``play`` share.

The file asks nobody for anything, and its Content-Security-Policy lets nothing run but its one
script and its one style, named by their hashes. What came from outside is escaped, or reaches the
script as JSON.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any


class Markup(str):
    """Text that is HTML already; any other is escaped."""


def assemble(
    template: str,
    *,
    style: Sequence[str],
    script: Sequence[str],
    data: Any = None,
    allowed: str = "",
    **filled: str,
) -> str:
    """The template with its places, such as ``{{title}}``, filled in.

    ``allowed`` is what the policy permits beside the page's own style and script.

    >>> from chainrule.see.page.assembly import assemble
    >>> assemble("<p>{{name}}</p>{{data}}", style=[], script=[], data=["</script>"], name="a < b")
    '<p>a &lt; b</p>["\\\\u003c/script>"]'
    """
    styles = "\n".join(style)
    scripts = "\n".join(['"use strict";', "(() => {", *script, "})();"])
    policy = (
        f"default-src 'none'; script-src '{_hash(scripts)}'; style-src '{_hash(styles)}'; "
        f"{allowed}base-uri 'none'; form-action 'none'"
    )
    places = {name: _escaped(text) for name, text in filled.items()}
    places |= {"policy": policy, "style": styles, "script": scripts, "data": as_json(data)}
    # One pass over the template: what is filled in is never searched for further places.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: places[match[1]], template)


def asset(part: str, name: str) -> str:
    """A file of this package: ``asset("see.page", "page.css")``."""
    return resources.files(f"chainrule.{part}").joinpath(name).read_text(encoding="utf-8")


def as_json(data: Any) -> str:
    """JSON that no text inside it can end early: ``</script>`` and ``<!--`` have no ``<`` left."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(text)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
