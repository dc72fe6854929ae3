"""Python's plain data as JSON, and back, exactly: floats to the last bit, bytes, numpy's scalars.

In: what a recording holds beside its arrays: constants, keys, what a function returned. Out: lists,
dicts and text that JSON has. Reading checks every item and raises ``SaveError``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.core.text import visible

MOST_INTEGER_BITS = 4096  # of a number in a file
MOST_SHOWN = 1000  # characters of a text for people
_SCALARS = "biuf"  # numpy's kinds of numbers


class SaveError(ValueError):
    """A compiled function cannot be saved, or a file of one cannot be loaded.

    >>> from chainrule import SaveError
    >>> issubclass(SaveError, ValueError)
    True
    """


def damaged(what: str) -> SaveError:
    """The refusal of a file whose checksum is right and whose content is not."""
    return SaveError(f"it is damaged: {what}")


def encode(x: Any, where: str) -> Any:
    """Plain data as JSON; ``where`` it was found, for the refusal of anything else."""
    kind = type(x)
    if x is None or kind in (bool, int, str):
        return x
    if kind is float:
        return {"float": x.hex()}
    if kind is bytes:
        return {"bytes": x.hex()}
    if kind is tuple:
        return {"tuple": [encode(item, where) for item in x]}
    if isinstance(x, np.generic) and x.dtype.kind in _SCALARS and x.dtype.itemsize <= 8:
        return {
            "numpy": [
                x.dtype.newbyteorder("<").str,
                x.astype(x.dtype.newbyteorder("<")).tobytes().hex(),
            ]
        }
    raise SaveError(f"{where} holds a {kind.__name__}, which a file cannot")


def decode(x: Any) -> Any:
    """Plain data again."""
    if x is None or isinstance(x, (bool, str)):
        return x
    if isinstance(x, int):
        if x.bit_length() > MOST_INTEGER_BITS:
            raise damaged("an integer is too large")
        return x
    if isinstance(x, dict) and len(x) == 1:
        ((kind, content),) = x.items()
        try:
            if kind == "float":
                return float.fromhex(content)
            if kind == "bytes":
                return bytes.fromhex(content)
            if kind == "tuple":
                return tuple([decode(item) for item in items(content)])
            if kind == "numpy":
                return _numpy(*content)
        except (TypeError, ValueError, OverflowError):
            pass
    raise damaged("it holds something that is no plain data")


def _numpy(name: Any, digits: Any) -> Any:
    if not (
        isinstance(name, str) and len(name) <= 4 and name[:1] in "<|" and name[1:2] in _SCALARS
    ):
        raise ValueError
    (found,) = np.frombuffer(bytes.fromhex(digits), np.dtype(name))
    return found


# --- parts of a file ------------------------------------------------------------------------------


def items(x: Any) -> list[Any]:
    """A list, or the file is damaged."""
    if not isinstance(x, list):
        raise damaged("a list is missing")
    return x


def fields(x: Any, **kinds: type | tuple[type, ...]) -> list[Any]:
    """The values of these keys, each of its type; bools are no integers."""
    if not isinstance(x, dict) or x.keys() != kinds.keys():
        raise damaged("a part has other fields than it should")
    for name, kind in kinds.items():
        allowed = kind if isinstance(kind, tuple) else (kind,)
        if type(x[name]) not in allowed:
            raise damaged(f"{name!r} is of another type than it should")
    return [x[name] for name in kinds]


def counts(x: Any, below: int | None = None) -> list[int]:
    """A list of integers from 0, below a limit."""
    for item in items(x):
        if type(item) is not int or item < 0 or (below is not None and item >= below):
            raise damaged("a number is out of range")
    return list(x)


def count(x: Any, below: int | None = None) -> int:
    """An integer from 0, below a limit."""
    return counts([x], below)[0]


def texts(x: Any) -> list[str]:
    """A list of texts."""
    if any(type(item) is not str for item in items(x)):
        raise damaged("a text is missing")
    return list(x)


def readable(x: Any) -> list[str]:
    """A list of texts for people: none too long, none that could steer a terminal."""
    return [visible(text[:MOST_SHOWN]) for text in texts(x)]
