"""The exceptions of this package: something the user gave or chose does not work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class GPTError(ValueError):
    """A file, a checkpoint or a setting that cannot be used; the message is one line for people.

    >>> from chainrule import gpt
    >>> gpt.Config(width=16, heads=3)
    Traceback (most recent call last):
        ...
    chainrule.gpt.errors.GPTError: a width of 16 cannot be shared by 3 heads...
    """


class UndefinedError(GPTError):
    """Something of which the result is undefined, or beyond all numbers."""


@contextmanager
def computing(what: str, advice: str = "") -> Iterator[None]:
    """Turn an undefined result in here, such as an overflow, into one line that says of what.

    >>> from chainrule.gpt.errors import computing
    >>> with computing("the model cannot be sampled"):
    ...     1 / 0
    Traceback (most recent call last):
        ...
    chainrule.gpt.errors.UndefinedError: the model cannot be sampled (division by zero)
    """
    try:
        yield
    except GPTError:
        raise
    except (ValueError, ArithmeticError) as error:
        raise UndefinedError(f"{what} ({error}){advice}") from error
