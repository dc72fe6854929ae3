"""A laboratory in a process of its own: ``python -m chainrule.play.worker network``.

Requests come in on standard input, one line of JSON each. Out go lines that begin with a letter:
``R`` and a number answer a request, ``S`` is how things stand. When the input ends, so does this
process, in the middle of whatever it does: its page is gone, and nobody waits for the rest.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any, BinaryIO

from chainrule.play.lab import Lab
from chainrule.play.settings import PlayError

FRAMES = 15  # states per second, at most
Request = dict[str, Any]


def main(kind: str) -> None:
    """Serve one page until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's; it ends this process
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints goes where people look, not into the answers
    requests: queue.Queue[Request] = queue.Queue(maxsize=32)
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
    _serve(_make(kind), requests, out)


def _make(kind: str) -> Lab:
    if kind == "network":
        from chainrule.play.network import NetworkLab

        return NetworkLab()
    from chainrule.play.language import LanguageLab

    return LanguageLab()


def _read(lines: BinaryIO, requests: queue.Queue[Request]) -> None:
    for line in lines:
        requests.put(json.loads(line))
    os._exit(0)


def _serve(lab: Lab, requests: queue.Queue[Request], out: BinaryIO) -> None:
    shown = 0.0
    while True:
        changed = False
        while not (requests.empty() and (lab.running or changed)):
            _write(out, *_answer(lab, requests.get()))
            changed = True
        if lab.running:
            changed = lab.advance() or changed
        if not lab.running or (changed and time.perf_counter() - shown > 1 / FRAMES):
            shown = time.perf_counter()
            _write(out, "S", lab.state())


def _answer(lab: Lab, request: Request) -> tuple[str, dict[str, Any]]:
    head = f"R {request['number']}"
    try:
        return head, {"answer": lab.handle(request["action"], request["given"])}
    except (PlayError, ArithmeticError, ValueError) as error:
        return head, {"error": str(error)}


def _write(out: BinaryIO, head: str, body: dict[str, Any]) -> None:
    try:
        out.write(f"{head} {json.dumps(body)}\n".encode())
        out.flush()
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
