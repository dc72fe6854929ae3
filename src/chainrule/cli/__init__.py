"""The command line: ``chainrule explain "relu(a*b + d)" a=2 b=-3 d=10`` and the other commands.

``see`` holds those about one expression (explain, draw, explore, check, nudge, lessons), ``models``
those about GPTs (train, sample, inspect, compare), ``bench`` the one about speed, ``play`` the web
app, ``translate`` the one that writes source; ``reporting`` prints lines and errors for all of
them.
"""

from __future__ import annotations

import os
import sys

from cyclopts import App
from rich.text import Text

from chainrule.cli import bench, models, play, see, translate
from chainrule.cli.reporting import complain, examples
from chainrule.starting import INTERRUPTED

app = App(
    name="chainrule",
    help="Scalar automatic differentiation: explained, verified, fast.",
    suppress_keyboard_interrupt=False,  # main says so in a line
    help_format="plaintext",  # markdown would take the * of a*b
    error_formatter=lambda error: Text.assemble(("chainrule: ", "bold red"), str(error)),
    help_epilogue=examples(
        'chainrule explain "relu(a*b + d)" a=2 b=-3 d=10',
        'chainrule draw "c = a*b; L = c + a" a=2 b=3 -o graph.svg',
        "chainrule play",
        "chainrule lessons",
        "chainrule train",
    ),
)
see.register(app)
models.register(app)
bench.register(app)
play.register(app)
translate.register(app)


def main() -> None:
    """Run the command line and exit with its code."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without × and ∂ still gets its tables
    try:
        try:
            app(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as head, has seen enough. Nothing more can be said on this stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
