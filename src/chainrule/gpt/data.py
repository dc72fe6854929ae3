"""What to learn from: a UTF-8 text file, or the names that come with us.

Documents are the lines of a file, stripped of white space, without empty ones. They are shuffled
once, as microgpt shuffles them; the last part is held out to measure how well the model does on
what it has not seen, and the rest is read in order, over and over. (The names are from the census
of 1990: see ``names_source.md``.)

A stream is the whole text as it stands, a token between any two lines; its end is held out, and the
rest is read in windows, at random places.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from chainrule.gpt.errors import GPTError
from chainrule.gpt.tokenizer import Tokenizer
from chainrule.windows import Windows

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
    stripped = (line.strip() for line in read_lines(path))
    documents = [line for line in stripped if line]
    if not documents:
        raise GPTError(f"{str(path)!r} is empty: there is nothing to learn from")
    return documents


def read_lines(path: str | Path) -> list[str]:
    r"""The lines of a text file as they are, empty ones too: what a stream is read from.

    >>> import pathlib, tempfile
    >>> from chainrule import gpt
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "text.txt")
    ...     _ = path.write_text("To be,\n\n  or not\n")
    ...     gpt.read_lines(path)
    ['To be,', '', '  or not']
    """
    name = repr(str(path))
    found: list[str] = []
    try:
        with open(path, "rb") as file:
            position = 0  # in bytes, of the line's beginning
            for line in _lines(file, name):
                text = line.decode("utf-8" if position else "utf-8-sig")
                text = text.removesuffix("\n").removesuffix("\r")
                found += text.split("\r")  # an end of line of old
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
    if not any(map(str.strip, found)):
        raise GPTError(f"{name} is empty: there is nothing to learn from")
    return found


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
    if line:
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
    stream: bool = False  #: whether these are the lines of one text

    @staticmethod
    def split(
        documents: Sequence[str],
        rng: random.Random,
        validation: float = 0.1,
        source: str = "",
        stream: bool = False,
    ) -> Data:
        """Shuffle, and hold out a fraction (at least one document stays for training).

        A stream is not shuffled: the lines that make up the last part of it are held out.

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
        if stream:
            return _split_stream(list(documents), validation, source)
        shuffled = list(documents)
        rng.shuffle(shuffled)
        held_out = min(int(len(shuffled) * validation), len(shuffled) - 1)
        cut = len(shuffled) - held_out
        return Data(shuffled[:cut], shuffled[cut:], source)

    def batch(self, step: int, size: int) -> list[str]:
        """The documents of one step: the next ``size`` of them, starting over at the end."""
        first = step * size
        return [self.training[(first + i) % len(self.training)] for i in range(size)]

    def samples(
        self, tokenizer: Tokenizer, block: int, seed: int, most: int | None = None
    ) -> list[list[int]] | Windows:
        """What the steps of training read: documents, the first ``most`` of them, or windows."""
        if not self.stream:
            # What the model would cut is not split either.
            texts = islice(self.training, most)
            return [tokenizer.encode(text, block + 1) for text in texts]
        tokens = _joined(self.training, tokenizer)
        if len(tokens) <= block:
            raise GPTError(
                f"the text has {len(tokens)} tokens to learn from, and a block of {block} needs at "
                f"least {block + 1}: choose a smaller block"
            )
        return Windows(tokens, block + 1, seed)

    def held_out(
        self, tokenizer: Tokenizer, block: int, limit: int | None = None
    ) -> list[list[int]]:
        """What is held out, the first ``limit`` of it: documents, or windows side by side."""
        if not self.stream:
            return [tokenizer.encode(text, block + 1) for text in self.validation[:limit]]
        tokens = _joined(self.validation, tokenizer).tolist() if self.validation else []
        starts = range(0, len(tokens) - block, block)
        return [tokens[k : k + block + 1] for k in starts[:limit]]

    def lost(self, tokenizer: Tokenizer, block: int) -> tuple[int, int, int]:
        """How many documents are longer than the block, their tokens beyond it, and the longest.

        Nobody reads these tokens. (The mark of a document's end is one of them.)
        """
        if self.stream:
            return 0, 0, 0
        lengths = np.array([tokenizer.count(text) + 1 for text in self.training], np.int64)
        beyond = lengths[lengths > block]
        return len(beyond), int((beyond - block).sum()), int(lengths.max(initial=0))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the documents and their order: a run can only be resumed with the same data."""
        digest = hashlib.sha256()
        for part in (self.training, self.validation):
            digest.update(len(part).to_bytes(8, "little"))
            for document in part:
                digest.update(document.encode() + b"\n")
        return digest.hexdigest()


def _split_stream(lines: list[str], validation: float, source: str) -> Data:
    """Hold out the last lines, or of a single line its end."""
    total = sum(map(len, lines)) + len(lines)
    wanted, cut = int(total * validation), len(lines)
    held_out = 0
    while cut > 1 and held_out < wanted:
        cut -= 1
        held_out += len(lines[cut]) + 1
    if cut == len(lines) == 1 and wanted:
        middle = len(lines[0]) - wanted
        return Data([lines[0][:middle]], [lines[0][middle:]], source, stream=True)
    return Data(lines[:cut], lines[cut:], source, stream=True)


def _joined(lines: list[str], tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """The tokens of a text, with the mark that begins and ends documents between its lines."""
    found = [tokenizer.bos]
    for line in lines:
        found += tokenizer.numbers(line)
        found.append(tokenizer.bos)
    return np.array(found, np.int64)


def load(path: str | Path | None, stream: bool = False) -> tuple[list[str], str]:
    """The documents of a file, or its lines, or of no file the bundled names; what to call them."""
    if path is None:
        return names(), BUNDLED
    return (read_lines if stream else read_documents)(path), str(path)
