"""Writing files so that nothing is lost and nobody else decides where the bytes go.

Paths and bytes come in; every picture, page and checkpoint of this package is written here. A file
is replaced in one step by a complete one, symbolic links are not followed, and what is not a plain
file (a terminal, a pipe, ``/dev/null``) is written to and stays what it is. ``FolderLock`` keeps a
second process out of a folder while a run writes there.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

PARTIAL = ".partial"
LOCK = ".lock"
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has none, and needs a right to make links
_BINARY = getattr(os, "O_BINARY", 0)
# What a file system without locks answers, some network ones among them.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_HELD = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_FAR = 1 << 20


def write_atomically(path: str | os.PathLike[str], content: str | bytes | Iterable[str]) -> None:
    """Replace a file so that at every moment the old content or the new is there, whole.

    The content may come in pieces, even out of the file that is replaced.

    >>> import pathlib, tempfile
    >>> from chainrule.files import write_atomically
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "hello.txt")
    ...     write_atomically(path, "hello")
    ...     path.read_text()
    'hello'
    """
    path = Path(path)
    pieces = [content] if isinstance(content, str | bytes) else content
    data = (piece.encode() if isinstance(piece, str) else piece for piece in pieces)
    before = _kind(path)
    if before is not None and not stat.S_ISREG(before):
        with path.open("wb") as file:
            file.writelines(data)
        return
    if before is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    # A random name that must be new: nobody can have put a link or a file of theirs there.
    partial = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        handle = _open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except OSError as error:
        error.filename = str(path)  # the user's own name for it
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            if before is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), stat.S_IMODE(before))
            file.writelines(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def append_to(path: Path) -> IO[str]:
    """A text file to add lines to, never through a symbolic link."""
    handle = _open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return os.fdopen(handle, "a", encoding="utf-8", newline="\n")


def remove_partial_files(folder: Path) -> None:
    """Delete what killed processes left half written; only the folder's one user may do this."""
    for path in folder.glob(f".*{PARTIAL}"):
        with suppress(OSError):
            path.unlink()


def _kind(path: Path) -> int | None:
    """The mode of what is there; an error for a link or a folder, None for nothing."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISLNK(mode):
        if path.absolute().parent != Path("/dev"):  # /dev/stdout is the system's own link
            raise OSError(errno.ELOOP, "symbolic links are not written through", str(path))
        return stat.S_IFIFO  # written to as it stands, whatever it leads to
    return mode


def _open(path: Path, flags: int) -> int:
    return os.open(path, flags | _NO_FOLLOW | _BINARY, 0o666)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return  # only POSIX systems let a folder be opened and synced
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- one process at a time ----------------------------------------------------------------------


class FolderLock:
    """Keeps a folder for one holder, as a context manager; the system lets go when that one dies.

    >>> import tempfile
    >>> from chainrule.files import FolderLock
    >>> with tempfile.TemporaryDirectory() as folder, FolderLock(folder):
    ...     try:
    ...         FolderLock(folder)
    ...     except BlockingIOError as error:
    ...         print(error.strerror)
    in use by this process
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._file = Path(folder) / LOCK
        self._handle: int | None = None
        while self._handle is None:
            handle = _open(self._file, os.O_RDWR | os.O_CREAT)
            try:
                self._lock(handle)
                if self._is_current(handle):  # and not one that its holder has just deleted
                    os.ftruncate(handle, 0)
                    os.write(handle, f"{os.getpid()} {socket.gethostname()}".encode())
                    self._handle = handle
            finally:
                if self._handle is None:
                    os.close(handle)

    def release(self) -> None:
        """Let the next one in; the folder is as if it had never been locked."""
        if self._handle is None:
            return
        if os.name == "posix":  # before another can take the lock
            with suppress(OSError):
                self._file.unlink()
        os.close(self._handle)
        self._handle = None
        if os.name != "posix":  # where an open file cannot be deleted
            with suppress(OSError):
                self._file.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _lock(self, handle: int) -> None:
        try:
            if sys.platform == "win32":
                import msvcrt

                os.lseek(handle, _FAR, os.SEEK_SET)  # a locked byte cannot be read by others
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
                os.lseek(handle, 0, os.SEEK_SET)
            else:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return
            if error.errno not in _HELD:
                raise
            os.lseek(handle, 0, os.SEEK_SET)
            holder = _named(os.read(handle, 300).decode("utf-8", "replace"))
            folder = str(self._file.parent)
            raise BlockingIOError(errno.EAGAIN, f"in use by {holder}", folder) from None

    def _is_current(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.lstat(self._file))
        except FileNotFoundError:
            return False


def _named(holder: str) -> str:
    number, _, host = holder.partition(" ")
    if not (number.isdecimal() and len(number) < 20 and host):
        return "another process"
    if host != socket.gethostname():
        return f"process {number} on {host}"
    return "this process" if int(number) == os.getpid() else f"process {number}"
