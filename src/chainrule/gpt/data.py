"""Documents to learn from: one per line of a UTF-8 text file, or the names that come with us.

Lines are stripped of white space and empty ones skipped. The documents are shuffled once, as
microgpt shuffles them; the last part is held out to measure how well the model does on what it has
not seen, and the rest is read in order, over and over. (The names are from the census of 1990: see
``names_source.md``.)
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from chainrule.gpt.errors import GPTError

BUNDLED = "the bundled names"


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
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise GPTError(f"there is no file {str(path)!r}") from None
    except OSError as error:
        raise GPTError(f"cannot read {str(path)!r}: {error.strerror}") from None
    if b"\0" in content:
        raise GPTError(f"{str(path)!r} is a binary file; a text file was expected")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GPTError(
            f"{str(path)!r} is not UTF-8 text: byte {content[error.start]:#04x} "
            f"at position {error.start}"
        ) from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    documents = [line.strip() for line in lines if line.strip()]
    if not documents:
        raise GPTError(f"{str(path)!r} is empty: there is nothing to learn from")
    return documents


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
