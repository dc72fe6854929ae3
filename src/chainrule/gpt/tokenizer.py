"""From text to token numbers and back.

A document becomes the numbers of its characters (or words) between two marks of its ends: the same
token, ``bos``, says "a document begins" and "it is over". Its number comes after all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from chainrule.gpt.errors import GPTError

_WORD = re.compile(r"\S+")


class Tokenizer:
    """Characters as tokens, in the order of their code points.

    >>> from chainrule import gpt
    >>> tokenizer = gpt.Tokenizer.of(["ada", "bob"])
    >>> tokenizer.size, tokenizer.bos
    (5, 4)
    >>> tokenizer.encode("bad")
    [4, 1, 0, 2, 4]
    >>> tokenizer.decode([1, 0, 2])
    'bad'
    """

    kind = "char"
    unit = "character"

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = list(tokens)
        self.bos = len(self.tokens)
        self._numbers = {token: number for number, token in enumerate(self.tokens)}
        if len(self._numbers) < len(self.tokens):
            raise GPTError("a vocabulary cannot hold a token twice")

    @classmethod
    def of(cls, documents: Iterable[str]) -> Tokenizer:
        """The tokenizer of some documents: every token that occurs in them."""
        return cls(sorted({token for text in documents for token in cls.split(text)}))

    @staticmethod
    def split(text: str) -> Iterator[str]:
        """The tokens of a text, one at a time: a document may be longer than a list could be."""
        return iter(text)

    @staticmethod
    def count(text: str) -> int:
        """How many tokens a text has."""
        return len(text)

    @staticmethod
    def join(tokens: Iterable[str]) -> str:
        """The text of some tokens."""
        return "".join(tokens)

    @property
    def size(self) -> int:
        """How many tokens there are, ``bos`` included."""
        return len(self.tokens) + 1

    def numbers(self, text: str, most: int | None = None) -> list[int]:
        """The tokens of a text, or the first ``most`` of them, without ``bos``."""
        tokens = list(islice(self.split(text), most))
        unseen = sorted(set(tokens) - self._numbers.keys())
        if unseen:
            shown = ", ".join(map(repr, unseen[:8])) + (", ..." if len(unseen) > 8 else "")
            plural = "s" if len(unseen) > 1 else ""
            raise GPTError(f"the model has never seen the {self.unit}{plural} {shown}")
        return [self._numbers[token] for token in tokens]

    def positions(self, text: str, block: int) -> int:
        """How many positions of a document a model with such a block reads."""
        return min(block, 1 + sum(1 for _ in islice(self.split(text), block)))

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """A document: its tokens between two ``bos``; or only the first ``most`` of all these."""
        return [self.bos, *self.numbers(text, most), self.bos][:most]

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of some token numbers, none of them ``bos``."""
        return self.join(self.tokens[number] for number in numbers)

    def name(self, number: int) -> str:
        """A token as people read it."""
        return "·" if number == self.bos else self.tokens[number]

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self.size} tokens"


class WordTokenizer(Tokenizer):
    """Words as tokens: what stands between spaces.

    >>> from chainrule import gpt
    >>> tokenizer = gpt.WordTokenizer.of(["the cat sat", "the dog ran"])
    >>> tokenizer.decode(tokenizer.numbers("the dog sat"))
    'the dog sat'
    """

    kind = "word"
    unit = "word"

    @staticmethod
    def split(text: str) -> Iterator[str]:
        """The words of a text."""
        return (match[0] for match in _WORD.finditer(text))

    @staticmethod
    def count(text: str) -> int:
        """How many words a text has."""
        return len(text.split())

    @staticmethod
    def join(tokens: Iterable[str]) -> str:
        """The text of some words, one space between them."""
        return " ".join(tokens)


KINDS: dict[str, type[Tokenizer]] = {kind.kind: kind for kind in (Tokenizer, WordTokenizer)}


def from_dict(saved: Any) -> Tokenizer:
    """The tokenizer that ``to_dict`` described, every part checked."""
    kind, tokens = (saved.get("kind"), saved.get("tokens")) if isinstance(saved, dict) else (0, 0)
    if (
        not (isinstance(kind, str) and kind in KINDS)
        or not isinstance(tokens, list)
        or not all(isinstance(token, str) and token for token in tokens)
    ):
        raise GPTError("the vocabulary is not one of a tokenizer")
    return KINDS[kind](tokens)


def to_dict(tokenizer: Tokenizer) -> dict[str, Any]:
    """A tokenizer as plain data, for a checkpoint."""
    return {"kind": tokenizer.kind, "tokens": tokenizer.tokens}
