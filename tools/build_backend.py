"""The build backend: scikit-build-core's, which also installs where there is no CMake to be had.

Offline it can neither find CMake nor fetch it. Then the pure wheel is built, as it is without a C
compiler (see [tool.scikit-build] in pyproject.toml), unless CHAINRULE_REQUIRE_NATIVE=1 forbids it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from scikit_build_core import build as backend
from scikit_build_core.errors import CMakeNotFoundError

build_sdist = backend.build_sdist
build_editable = backend.build_editable
get_requires_for_build_sdist = backend.get_requires_for_build_sdist
get_requires_for_build_editable = backend.get_requires_for_build_editable

Settings = dict[str, Any] | None
_YES = ("1", "on", "true", "yes")


def _says_yes(*names: str) -> bool:
    return any(os.environ.get(name, "").lower() in _YES for name in names)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """CMake and Ninja where they are missing, unless the user has said that nothing is fetched."""
    if _says_yes("PIP_NO_INDEX", "UV_NO_INDEX", "UV_OFFLINE"):
        return []
    return list(backend.get_requires_for_build_wheel(config_settings))


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """The wheel with the native engine, or without it where nothing can build that."""
    try:
        return str(backend.build_wheel(wheel_directory, config_settings, metadata_directory))
    except CMakeNotFoundError as error:
        if _says_yes("CHAINRULE_REQUIRE_NATIVE"):
            raise
        print(f"{error}: the wheel is built without the native engine", file=sys.stderr)
        pure = {**(config_settings or {}), "wheel.cmake": "false", "wheel.py-api": "py3"}
        return str(backend.build_wheel(wheel_directory, pure, metadata_directory))
