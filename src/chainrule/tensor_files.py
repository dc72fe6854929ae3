"""Files of arrays and words: safetensors with a kind, a version and a checksum.

Arrays and text come in; a file goes out, and comes in again. Checkpoints and saved functions are
such files. Reading takes nothing on trust: the checksum covers every number and every word, and a
file of another kind, of a newer version, or damaged is refused in one line.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.files import write_atomically

Tensors = dict[str, npt.NDArray[Any]]


class TensorFileError(ValueError):
    """A file that cannot be used; the message says why, without its name."""


def write(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    words: Mapping[str, str],
    tensors: Tensors,
) -> None:
    """Replace a file by one of this kind, in one step; equal contents are equal bytes."""
    from safetensors.numpy import save as serialize

    metadata = {"format": kind, "version": str(version), **words}
    metadata["checksum"] = checksum(metadata, tensors)
    write_atomically(path, _in_order(serialize(tensors, metadata)))


def read(
    path: str | os.PathLike[str], kind: str, version: int, plural: str, types: Mapping[str, str]
) -> tuple[dict[str, str], Tensors]:
    """The words and arrays of a file of this kind, or a ``TensorFileError``.

    ``plural``: what such files are called; ``types``: of numbers that may be in it, by the names
    that safetensors has for them.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            metadata = dict(file.metadata() or {})
            if metadata.get("format") != kind:
                raise TensorFileError(f"it is a safetensors file, but not one of {plural}")
            _check_version(metadata.get("version", ""), version)
            tensors = {}
            for name in file.keys():  # noqa: SIM118 - not a dict
                if file.get_slice(name).get_dtype() not in types:
                    words = " or ".join(types.values())
                    raise TensorFileError(f"the tensor {name!r} is not one of {words} numbers")
                tensors[name] = np.array(file.get_tensor(name))
    except SafetensorError as error:
        raise TensorFileError(f"it is damaged or not a safetensors file ({error})") from None
    except OSError as error:
        raise TensorFileError(str(error.strerror or error)) from None
    if metadata.get("checksum") != checksum(metadata, tensors):
        raise TensorFileError("it is damaged (its checksum does not match its content)")
    return metadata, tensors


def _check_version(found: str, known: int) -> None:
    if found != str(known):
        is_newer = found.isascii() and found.isdecimal() and len(found) < 9 and int(found) > known
        by = ": a newer chainrule wrote it" if is_newer else ""
        raise TensorFileError(f"it has version {found}; this is {known}{by}")


def checksum(metadata: Mapping[str, str], tensors: Tensors) -> str:
    """A hash of every word and every number."""
    digest = hashlib.sha256()
    for key in sorted(metadata.keys() - {"checksum"}):
        digest.update(json.dumps([key, metadata[key]]).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(json.dumps([name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def _in_order(serialized: bytes) -> bytes:
    """The file with the keys of its header sorted: equal contents are equal bytes.

    The library writes the metadata in the order of a hash table, another one in every process.
    """
    (length,) = struct.unpack("<Q", serialized[:8])
    header = json.loads(serialized[8 : 8 + length])
    text = json.dumps(header, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the numbers stay aligned
    return struct.pack("<Q", len(text)) + text + serialized[8 + length :]
