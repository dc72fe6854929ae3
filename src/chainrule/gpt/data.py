"""Documents to learn from: one per line of a UTF-8 text file, or the names that come with us.

Lines are stripped of white space and empty ones skipped. The documents are shuffled once, as
microgpt shuffles them; the last part is held out to measure how well the model does on what it has
not seen, and the rest is read in order, over and over. (The names are from the census of 1990: see
``names_source.md``.)
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import BinaryIO

from chainrule.gpt.errors import GPTError

BUNDLED = "the bundled names"
PIECE = 1 << 20  # bytes that are read at once


def names() -> list[str]:
    """The first names that come with chainrule, in alphabetical order.

    >>> from chainrule import gpt
    >>> len(gpt.names()), gpt.names()[0]
    (5163, 'aaron')
    """
    return resources.files("chainrule.gpt").joinpath("names.txt").read_text("utf-8").split()


def read_documents(path: str | Path) -> list[str]:
    """The documents of a text file, one per line; a clear error if it is not one.

    >>> import pathlib, tempfile
    >>> from chainrule import gpt
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "text.txt")
    ...     _ = path.write_text("ada\\n\\n  bob \\n")
    ...     gpt.read_documents(path)
    ['ada', 'bob']
    """
    name = repr(str(path))
    documents = []
    try:
        with open(path, "rb") as file:
            position = 0  # in bytes, of the line's beginning
            for line in _lines(file, name):
                text = line.decode("utf-8" if position else "utf-8-sig")
                stripped = (part.strip() for part in text.split("\r"))  # an end of line of old
                documents += [part for part in stripped if part]
                position += len(line)
    except FileNotFoundError:
        raise GPTError(f"there is no file {name}") from None
    except OSError as error:
        raise GPTError(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise GPTError(
            f"{name} is not UTF-8 text: byte {error.object[error.start]:#04x} "
            f"at position {position + error.start}"
        ) from None
    except ValueError as error:  # a null byte in the name
        raise error if isinstance(error, GPTError) else GPTError(f"{name}: {error}") from None
    if not documents:
        raise GPTError(f"{name} is empty: there is nothing to learn from")
    return documents


def _lines(file: BinaryIO, name: str) -> Iterator[bytearray]:
    """The lines of a file, each read in pieces: what has no lines is not held in memory first."""
    line = bytearray()
    while piece := file.readline(PIECE):
        if b"\0" in piece:
            raise GPTError(f"{name} is a binary file; a text file was expected")
        line += piece
        if piece.endswith(b"\n"):
            yield line
            line = bytearray()
    yield line


@dataclass(frozen=True)
class Data:
    """Documents in the order they are read, and those held out.

    >>> from chainrule import gpt
    >>> data = gpt.Data(["ada", "bob", "eve"], ["mia"], "a list")
    >>> data.batch(step=1, size=2)
    ['eve', 'ada']
    """

    training: list[str]
    validation: list[str]
    source: str  #: the file's path, or BUNDLED

    @staticmethod
    def split(
        documents: Sequence[str],
        rng: random.Random,
        validation: float = 0.1,
        source: str = "",
    ) -> Data:
        """Shuffle, and hold out a fraction (at least one document stays for training).

        >>> import random
        >>> from chainrule import gpt
        >>> data = gpt.Data.split(gpt.names(), random.Random(42))
        >>> len(data.training), len(data.validation)
        (4647, 516)
        """
        if not 0 <= validation < 1:
            raise GPTError(f"the validation share must be from 0 to less than 1, not {validation}")
        if not documents:
            raise GPTError("there are no documents to learn from")
        shuffled = list(documents)
        rng.shuffle(shuffled)
        held_out = min(int(len(shuffled) * validation), len(shuffled) - 1)
        cut = len(shuffled) - held_out
        return Data(shuffled[:cut], shuffled[cut:], source)

    def batch(self, step: int, size: int) -> list[str]:
        """The documents of one step: the next ``size`` of them, starting over at the end."""
        first = step * size
        return [self.training[(first + i) % len(self.training)] for i in range(size)]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the documents and their order: a run can only be resumed with the same data."""
        digest = hashlib.sha256()
        for part in (self.training, self.validation):
            digest.update(len(part).to_bytes(8, "little"))
            for document in part:
                digest.update(document.encode() + b"\n")
        return digest.hexdigest()


def load(path: str | Path | None) -> tuple[list[str], str]:
    """The documents of a file, or of no file the bundled names; and what to call them."""
    return (names(), BUNDLED) if path is None else (read_documents(path), str(path))
