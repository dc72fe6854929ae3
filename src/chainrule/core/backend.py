"""Which engine runs: the C one where it was built, else the reference.

``CHAINRULE_ENGINE=reference`` or ``native`` in the environment forces one. A free-threaded Python
has the reference engine only: the native one relies on the lock that such builds do without.
Everything above this module takes ``Value`` and its helpers from here.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING


def _choose(wanted: str) -> tuple[str, ModuleType, ModuleType | None]:
    """The engine's name, its module, and the module of native kernels where there is one."""
    if wanted not in ("", "native", "reference"):
        raise ImportError(f"CHAINRULE_ENGINE must be 'native' or 'reference', not {wanted!r}")
    without_gil = "free-threading" in sys.version  # a build whose threads run C code at once
    if wanted == "native" and without_gil:
        raise ImportError(
            "CHAINRULE_ENGINE=native, but this is a free-threaded Python, which the native engine "
            "does not support: use the reference engine"
        )
    if wanted != "reference" and not without_gil:
        try:
            kernels = importlib.import_module("chainrule._native")
        except ModuleNotFoundError:
            if wanted == "native":
                raise ImportError(
                    "CHAINRULE_ENGINE=native, but the native engine was not built here: "
                    "install chainrule with a C compiler, or use the reference engine"
                ) from None
        else:
            return "native", importlib.import_module("chainrule.core.native"), kernels
    return "reference", importlib.import_module("chainrule.core.reference"), None


if TYPE_CHECKING:
    from chainrule.core.reference import Value, dot, linear, modes, topological_order, vsum

    engine: str
    kernels: ModuleType | None
else:
    engine, _module, kernels = _choose(os.environ.get("CHAINRULE_ENGINE", ""))
    Value, modes = _module.Value, _module.modes
    topological_order = _module.topological_order
    vsum, dot, linear = _module.vsum, _module.dot, _module.linear

__all__ = [
    "Value",
    "dot",
    "engine",
    "kernels",
    "linear",
    "modes",
    "no_grad",
    "nonfinite",
    "topological_order",
    "vsum",
]


@contextmanager
def _mode(name: str, setting: bool) -> Iterator[None]:
    before = getattr(modes, name)
    setattr(modes, name, setting)
    try:
        yield
    finally:
        setattr(modes, name, before)


@contextmanager
def no_grad() -> Iterator[None]:
    """Inside this block operations give plain leaves: no graph is kept, so sampling stays small.

    >>> from chainrule import Value, no_grad
    >>> with no_grad():
    ...     y = Value(2.0) * 3
    >>> y.children
    ()
    """
    with _mode("grad", False):
        yield


@contextmanager
def nonfinite(rule: str) -> Iterator[None]:
    """Inside this block undefined results ``"raise"`` (the default) or are ``"allow"``-ed.

    >>> from chainrule import Value, nonfinite
    >>> with nonfinite("allow"):
    ...     print(Value(0.0).log().data)
    -inf
    """
    if rule not in ("raise", "allow"):
        raise ValueError(f'nonfinite takes "raise" or "allow", not {rule!r}')
    with _mode("allow_nonfinite", rule == "allow"):
        yield
