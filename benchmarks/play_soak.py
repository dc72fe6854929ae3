"""Memory of ``chainrule play`` while it trains: a network and a GPT stream to a page that reads.

Run: python benchmarks/play_soak.py [SECONDS] (20 unless told). Prints the resident memory of the
server and of both workers as they go, and ends with 1 if any of them grew by more than a tenth, or
16 MB, after the first quarter of the time. Linux only: memory is read from /proc.
"""

import json
import os
import sys
import threading
import time
import urllib.request
from pathlib import Path

from chainrule.play import PlayServer

NETWORK = {
    "data": "spiral",
    "points": 200,
    "noise": 0.02,
    "hidden": [8, 8],
    "activation": "tanh",
    "optimiser": "adam",
    "rate": 0.01,
    "seed": 1,
}
LANGUAGE = {
    "source": "names",
    "width": 16,
    "heads": 4,
    "layers": 1,
    "block": 16,
    "steps": 100_000,
    "rate": 0.01,
    "seed": 1,
}


def resident(pid: int) -> float:
    """Megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


class Page:
    """What a browser does, without drawing: reads the stream, and asks."""

    def __init__(self, server: PlayServer) -> None:
        self.address = server.address
        self.origin = server.address.rsplit("/", 2)[0]
        self.stream = urllib.request.urlopen(f"{self.address}events")
        self.states: dict[str, dict] = {}
        self.count = self.bytes = 0
        self.opened = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self.opened.wait(60)

    def _read(self) -> None:
        kind = ""
        for line in self.stream:
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                data = json.loads(line[6:])
                self.count, self.bytes = self.count + 1, self.bytes + len(line)
                if kind == "session":
                    self.session = data
                    self.opened.set()
                else:
                    self.states[kind] = data

    def ask(self, kind: str, action: str, given: dict) -> dict:
        body = {"session": self.session, "kind": kind, "action": action, "given": given}
        headers = {"Content-Type": "application/json", "Origin": self.origin}
        request = urllib.request.Request(
            f"{self.address}ask", json.dumps(body).encode(), headers, method="POST"
        )
        return json.load(urllib.request.urlopen(request))


def main(seconds: float = 20.0) -> int:
    server = PlayServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = Page(server)
    page.ask("network", "start", NETWORK)
    page.ask("language", "start", LANGUAGE)
    for kind in ("network", "language"):
        page.ask(kind, "run", {})
    (session,) = server.sessions.values()
    pids = {kind: lab._process.pid for kind, lab in session._labs.items()} | {"server": os.getpid()}
    print(f"{'seconds':>8} {'states':>8} {'MB sent':>8} {'steps':>12} {'GPT runs':>8}", end=" ")
    print(*(f"{name + ' MB':>12}" for name in pids))
    began, runs, early = time.monotonic(), 1, dict.fromkeys(pids, 0.0)
    largest = dict(early)
    pause = max(1.0, seconds / 30)
    while (passed := time.monotonic() - began) < seconds:
        time.sleep(pause)
        memory = {name: resident(pid) for name, pid in pids.items()}
        for name, megabytes in memory.items():
            where = early if passed < seconds / 4 else largest
            where[name] = max(where[name], megabytes)
        steps = page.states.get("network", {}).get("step", 0)
        print(f"{passed:8.0f} {page.count:8} {page.bytes / 1e6:8.1f} {steps:12,} {runs:8}", end=" ")
        print(*(f"{memory[name]:12.1f}" for name in pids), flush=True)
        if page.states.get("language", {}).get("step") == LANGUAGE["steps"]:
            page.ask("language", "start", LANGUAGE | {"seed": runs})
            page.ask("language", "run", {})
            runs += 1
    server.shutdown()
    server.server_close()
    grown = [n for n in pids if largest[n] > max(1.1 * early[n], early[n] + 16)]
    print("grew: " + ", ".join(grown) if grown else "memory is flat")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
