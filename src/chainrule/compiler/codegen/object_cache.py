"""Machine code in a folder, so that the next process need not build it again.

In: a key, the hash of all that machine code is built from. Out: the object code that was kept under
exactly this key, or None. There is a folder only where ``CHAINRULE_CODE_CACHE`` in the environment
names one. What comes out of it is executed, so it must be its user's alone; whatever is wrong with
the folder or a file in it costs the time to build the code, and never an error.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chainrule.core import errors
from chainrule.files import PARTIAL, write_atomically

FOLDER = "CHAINRULE_CODE_CACHE"  # in the environment: where machine code is kept
MOST_BYTES = 256 << 20  # of all files together: the least recently used goes
SUFFIX = ".object"
_HEAD = b"chainrule object code 1\n"
_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}")
_PARTIAL = re.compile(rf"\.{_NAME.pattern}.*{re.escape(PARTIAL)}")
_ABANDONED = 3600.0  # seconds: who began to write a file so long ago was killed
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_warned: set[str] = set()


class Refused(Exception):
    """Why a folder or a file is not used."""


def key_of(*parts: str) -> str:
    """The name of what is built from these texts, and from nothing else."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode()
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()


def current() -> ObjectCache | None:
    """The folder that the environment names; None where it names none."""
    name = os.environ.get(FOLDER)
    if not name:
        return None
    if os.name != "posix":
        _warn(f"{FOLDER} is ignored: on this system the owner of a folder cannot be checked")
        return None
    return ObjectCache(Path(name).expanduser().absolute())


@dataclass(frozen=True)
class ObjectCache:
    """A folder with a file for each module, named after its key."""

    folder: Path

    def read(self, key: str) -> bytes | None:
        """The object code of a key; None where there is none, or it cannot be used."""
        try:
            handle = self._open_folder()
        except FileNotFoundError:
            return None
        except (OSError, Refused) as error:
            _warn(f"{FOLDER}={self.folder} is not used: {_reason(error)}")
            return None
        try:
            return _content(handle, key)
        except FileNotFoundError:
            return None
        except (OSError, Refused) as error:
            _warn(f"machine code in {self.folder} is built again: {_reason(error)}")
            return None
        finally:
            os.close(handle)

    def write(self, key: str, code: bytes) -> None:
        """Keep object code, if that is possible; older files make room for it."""
        content = _HEAD + hashlib.sha256(key.encode() + code).digest() + code
        if len(content) > MOST_BYTES:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = self._open_folder()
        except Refused:
            return  # which ``read`` has said
        except OSError as error:
            self._not_kept(error)
            return
        try:
            write_atomically(self.folder / f"{key}{SUFFIX}", content)
            _make_room(handle)
        except OSError as error:
            self._not_kept(error)
        finally:
            os.close(handle)

    def _open_folder(self) -> int:
        """The folder, once it is known to be one that nobody else can put files into.

        Files are opened relative to it: it cannot be exchanged for another one in between.
        """
        handle = os.open(self.folder, _OPEN | os.O_DIRECTORY)
        found = os.fstat(handle)
        try:
            if found.st_uid != os.geteuid():
                raise Refused("it belongs to another user")
            if found.st_mode & 0o077:
                raise Refused("other users can open it: chmod 700 makes it yours alone")
        except Refused:
            os.close(handle)
            raise
        return handle

    def _not_kept(self, error: OSError) -> None:
        _warn(f"machine code is not kept in {self.folder}: {_reason(error)}")


def _content(folder: int, key: str) -> bytes:
    """The object code in the file of a key, now the most recently used."""
    with os.fdopen(os.open(f"{key}{SUFFIX}", _OPEN, dir_fd=folder), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise Refused(f"{key[:8]}… is not a file of this user")
        content = file.read()
        with suppress(OSError):
            os.utime(file.fileno())
    begin = len(_HEAD) + hashlib.sha256().digest_size
    head, code = content[:begin], content[begin:]
    if head != _HEAD + hashlib.sha256(key.encode() + code).digest():
        raise Refused(f"{key[:8]}… is damaged")
    return code


def _make_room(folder: int) -> None:
    """Delete the least recently used files of a folder that has become too large.

    Others may delete there at the same time. Files that are not of this cache stay.
    """
    kept: list[tuple[float, int, str]] = []
    abandoned = time.time() - _ABANDONED
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if _NAME.fullmatch(entry.name):
                    kept.append((found.st_mtime, found.st_size, entry.name))
                elif _PARTIAL.fullmatch(entry.name) and found.st_mtime < abandoned:
                    os.unlink(entry.name, dir_fd=folder)
    total = sum([size for _, size, _ in kept])
    for _, size, name in sorted(kept):
        if total <= MOST_BYTES:
            break
        total -= size
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _warn(message: str) -> None:
    """Once in a process."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, stacklevel=errors.caller_depth() + 1)
