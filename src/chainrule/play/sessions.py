"""One session for each open page: its laboratories, and the latest state of each.

A lab is a process (``worker``). What it says last waits here until the page takes it; what it said
before that is dropped, so a slow page costs no memory. When the page goes, ``close`` ends the
processes, whatever they are doing.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import Any

from chainrule.play.settings import PlayError

KINDS = ("network", "language")
PATIENCE = 60.0  # seconds until an answer is given up
MOST_WAITING = 8  # requests to one lab


class Session:
    """What belongs to one page."""

    def __init__(self) -> None:
        self._labs: dict[str, _Process] = {}
        self._news: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self.closed = False

    def ask(self, kind: str, action: str, given: dict[str, Any]) -> dict[str, Any]:
        """Ask a lab, which is started if there is none yet; its answer, or a PlayError."""
        with self._changed:
            if self.closed:
                raise PlayError("this page is closed")
            lab = self._labs.get(kind)
            if lab is None or lab.ended:
                lab = self._labs[kind] = _Process(kind, self)
        return lab.ask(action, given)

    def put(self, kind: str, state: bytes) -> None:
        """The state of a lab, as JSON; it replaces one that has not been taken."""
        with self._changed:
            self._news[kind] = state
            self._changed.notify_all()

    def take(self, seconds: float) -> dict[str, bytes]:
        """The states since the last time, after at most so many seconds."""
        with self._changed:
            if not self._news and not self.closed:
                self._changed.wait(seconds)
            news, self._news = self._news, {}
            return news

    def close(self) -> None:
        """End all work."""
        with self._changed:
            self.closed = True
            labs = list(self._labs.values())
            self._changed.notify_all()
        for lab in labs:
            lab.end()


class _Process:
    """A lab's process, and the requests that wait for its answers."""

    def __init__(self, kind: str, session: Session) -> None:
        self._kind, self._session = kind, session
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chainrule.play.worker", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._count = 0
        self.ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, action: str, given: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                raise PlayError("one thing at a time: earlier requests are still being answered")
            if self.ended:
                raise PlayError("the process that trains has ended; start again")
            self._count += 1
            number = self._count
            self._waiting[number] = future
            request = {"number": number, "action": action, "given": given}
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):  # it has ended, and _read says so
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
        try:
            reply = future.result(PATIENCE)
        except TimeoutError:
            raise PlayError(f"no answer within {PATIENCE:.0f} seconds") from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if "error" in reply:
            raise PlayError(reply["error"])
        answer: dict[str, Any] = reply["answer"]
        return answer

    def end(self) -> None:
        """Kill it; there is nothing that it would have to finish."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        """Pass on what the process says, until it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            head, _, body = line.partition(b" ")
            if head == b"S":
                self._session.put(self._kind, body.rstrip(b"\n"))
                continue
            number, _, reply = body.partition(b" ")
            with self._lock:
                future = self._waiting.get(int(number))
            if future is not None:
                future.set_result(json.loads(reply))
        self._process.wait()
        with self._lock:
            self.ended = True
            waiting = list(self._waiting.values())
        self._process.stdout.close()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        reason = f"the process that trains has ended (exit code {self._process.returncode})"
        for future in waiting:
            if not future.done():
                future.set_result({"error": reason})
        if not self._session.closed:
            self._session.put(self._kind, json.dumps({"ended": reason}).encode())
