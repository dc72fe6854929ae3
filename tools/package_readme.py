"""The README as package indexes show it: with absolute links to the files of its version.

In: README.md, whose links are relative, so that they work in a checkout and in a fork. Out: the
``readme`` of the package's metadata. The build backend calls this; see pyproject.toml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)\s]+)\)")


def absolute(text: str, repository: str, version: str) -> str:
    """The text with every relative link leading to the repository, pictures to their bytes."""

    def link(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}{words}({repository}/{kind}/v{version}/{target})"

    return _LINK.sub(link, text)


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    text = Path("README.md").read_text(encoding="utf-8")
    text = absolute(text, project["urls"]["Repository"], project["version"])
    return {"readme": {"content-type": "text/markdown", "text": text}}
