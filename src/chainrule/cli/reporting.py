"""What the commands share: lines on the terminal, and errors without a traceback."""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from chainrule.core.text import visible
from chainrule.gpt import GPTError
from chainrule.see.expressions import ExpressionError

Command = TypeVar("Command", bound=Callable[..., Any])

LONG_RECORDING = ".* is slow to compile: one recording of "  # of ``chainrule.FallbackWarning``
SHOWN = 0.1  # seconds: lines wait no longer

#: where a command writes: every command that writes has this option
Output = Annotated[Path, Parameter(alias="-o")]


def examples(*lines: str) -> str:
    """Command lines to try, for the end of a help page."""
    return "\n".join(("Examples:", "", *(f"  {line}" for line in lines)))


def reported(command: Command) -> Command:
    """End in a clear line or two where the user can do something about it, not a traceback.

    The exit code is 2 for an expression that cannot be used, 1 for files, models and settings.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with told_plainly():
                return command(*args, **kwargs)
        except BrokenPipeError:
            raise  # the reader of our output has gone; the command line knows what to do
        except (ExpressionError, GPTError) as error:
            complain(str(error))
            return 2 if isinstance(error, ExpressionError) else 1
        except OSError as error:
            reason = error.strerror or str(error)
            complain(f"{reason}: {error.filename}" if error.filename else str(error))
            return 1

    return run  # type: ignore[return-value]


@contextmanager
def told_plainly() -> Iterator[None]:
    """Show each warning once, as a line of the command's own: nobody here has its source line.

    That one recording takes long is not told: the user can do nothing about it but wait.
    """
    told: set[str] = set()

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        if (text := str(message)) not in told:
            told.add(text)
            complain(text, "chainrule: note: ", "bold yellow")

    with warnings.catch_warnings():
        warnings.showwarning = tell
        warnings.filterwarnings("ignore", LONG_RECORDING, UserWarning)
        yield


def file_named(path: Path, *suffixes: str) -> Path:
    """A file to write: the first suffix is added where there is none, another is the user's to fix.

    >>> from pathlib import Path
    >>> str(file_named(Path("page"), ".html", ".htm"))
    'page.html'
    """
    if path.is_dir():
        raise ExpressionError(f"{path} is a folder: name a file")
    if path.exists() and not path.is_file():
        return path  # a device or a pipe, which has the name that it has
    if path.suffix and path.suffix.lower() not in suffixes:
        known = " or ".join(suffixes)
        if len(suffixes) > 2:
            known = f"one of {', '.join(dict.fromkeys(suffixes))}"
        raise ExpressionError(f"cannot write {path.name!r}: the name must end in {known}")
    return path if path.suffix else path.with_suffix(suffixes[0])


def complain(message: str, mark: str = "chainrule: ", style: str = "bold red") -> None:
    """Print an error: its first line says what is wrong, the others show where."""
    first, *rest = message.splitlines() or [""]
    text = Text.assemble((mark, style), visible(first))
    for line in rest:
        text.append(f"\n{visible(line)}", "bold red" if line.strip() == "^" else "")
    Console(stderr=True).print(text, soft_wrap=True, highlight=False)


def say(console: Console, text: str = "", style: str = "") -> None:
    """Print a line as it is: nothing in it is markup, and it is not folded."""
    console.print(Text(visible(text), style), soft_wrap=True, highlight=False)


def say_all(lines: Iterable[str]) -> None:
    """Print many lines as they are, as ``say`` does, without asking the terminal about each."""
    _write(visible(line) + "\n" for line in lines)


def say_pieces(pieces: Iterable[str]) -> None:
    """Print a text whose pieces come one by one; its last line is ended whatever happens."""
    try:
        _write("\n".join(map(visible, piece.split("\n"))) for piece in pieces)
    finally:
        sys.stdout.write("\n")


def _write(texts: Iterable[str]) -> None:
    flushed = time.monotonic()
    for text in texts:
        sys.stdout.write(text)
        if time.monotonic() - flushed > SHOWN:  # what comes slowly is seen as it comes
            sys.stdout.flush()
            flushed = time.monotonic()
