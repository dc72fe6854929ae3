"""The command line: ``chainrule explain "relu(a*b + d)" a=2 b=-3 d=10`` and the other commands."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version

from cyclopts import App

from chainrule.commands import models, see


def _version() -> str:
    try:
        return version("chainrule")
    except PackageNotFoundError:
        return "of this checkout (not installed)"


app = App(
    name="chainrule",
    help="Scalar automatic differentiation: explained, verified, fast.",
    version=_version,
    help_format="plaintext",  # markdown would take the * of a*b
    help_epilogue="Examples:\n\n"
    '  chainrule explain "relu(a*b + d)" a=2 b=-3 d=10\n'
    '  chainrule draw "c = a*b; L = c + a" a=2 b=3 -o graph.svg\n'
    "  chainrule lessons",
)
see.register(app)
models.register(app)


def main() -> None:
    """Run the command line and exit with its code."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without × and ∂ still gets its tables
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as head, has seen enough. Nothing more can be said on this stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
