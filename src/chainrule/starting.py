"""Ctrl-C while the command ``chainrule`` is starting: one line and exit code 130, no traceback.

The package imports this module first, since a traceback could come out of any import. It does
nothing in any other program. Where the command begins its work, Ctrl-C is what it always was.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` is slower: it makes enumerations
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

INTERRUPTED = 130  # what a shell reports of a command that was ended by Ctrl-C


def _is_command() -> bool:
    """Whether this process runs the script ``chainrule``, or ``python -m chainrule``."""
    program = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    if program == "-m":  # the package is imported before its __main__
        return "chainrule" in sys.orig_argv
    return program.removesuffix(".exe") == "chainrule"


IS_COMMAND = _is_command()


def _leave(number: int, frame: object) -> None:
    with suppress(OSError):
        os.write(2, b"chainrule: interrupted\n")
    os._exit(INTERRUPTED)  # at once: an import may catch what is raised, and nothing has begun


def _change(before: object, after: object) -> None:
    """Another handler, if this is the command and the old one is there."""
    with suppress(ValueError):  # only the main thread may
        if IS_COMMAND and _signal.getsignal(_signal.SIGINT) is before:
            _signal.signal(_signal.SIGINT, after)


def guard() -> None:
    """From here on Ctrl-C ends the command in one line."""
    _change(_signal.default_int_handler, _leave)


def release() -> None:
    """From here on it raises KeyboardInterrupt again."""
    _change(_leave, _signal.default_int_handler)


@contextmanager
def guarded() -> Iterator[None]:
    """The block in which it ends the command."""
    guard()
    try:
        yield
    finally:
        release()


guard()
