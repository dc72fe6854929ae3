"""The one exception of this package: something the user gave or chose does not work."""

from __future__ import annotations


class GPTError(ValueError):
    """A file, a checkpoint or a setting that cannot be used; the message is one line for people.

    >>> from chainrule import gpt
    >>> gpt.Config(width=16, heads=3)
    Traceback (most recent call last):
        ...
    chainrule.gpt.errors.GPTError: a width of 16 cannot be shared by 3 heads...
    """
