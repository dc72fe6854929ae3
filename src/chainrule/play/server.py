"""The server behind the page: loopback only, one secret in its address, nothing that runs text.

Python's own HTTP server is enough for one person at one machine: a handful of routes, and states
that stream one way as server-sent events. Every request must know the secret, name this machine as
its host, and come from this server's own pages; bodies are small and JSON.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import select
import socket
import sys
import threading
from collections import OrderedDict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import urlsplit

from chainrule.play import formulas
from chainrule.play.app import app_page
from chainrule.play.sessions import KINDS, Session
from chainrule.play.settings import PlayError

LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost")
LARGEST_BODY = 600_000  # bytes: a pasted text, escaped
MOST_PAGES = 4  # open at the same time: browsers open no more than six connections
MOST_GRAPHS = 16  # pages of graphs that are kept
MOST_CONNECTIONS = 64
SLOWEST = 20.0  # seconds in which a request must be read, or an answer taken
BEAT = 1.0  # seconds between two signs of life on a stream


class PlayServer(ThreadingHTTPServer):
    """The pages, their sessions, and the graphs they show."""

    daemon_threads = True
    # A port that is taken is an error, and one that was given up a moment ago is not.
    allow_reuse_address = os.name == "posix"
    allow_reuse_port = False

    def __init__(self, port: int = 0) -> None:
        self.secret = secrets.token_urlsafe(24)
        self.sessions: dict[str, Session] = {}
        self._graphs: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((LOOPBACK, port), Handler)

    def server_bind(self) -> None:
        """Bind, without asking the network for this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/{self.secret}/"

    def open_session(self) -> tuple[str, Session]:
        """A session for a page that has just been opened."""
        with self._lock:
            if len(self.sessions) >= MOST_PAGES:
                raise PlayError(f"{MOST_PAGES} pages are open already; close one of them")
            name = secrets.token_urlsafe(12)
            session = self.sessions[name] = Session()
        return name, session

    def close_session(self, name: str) -> None:
        """The page is gone, and its work with it."""
        with self._lock:
            session = self.sessions.pop(name, None)
        if session is not None:
            session.close()

    def keep(self, page: str) -> str:
        """Keep the page of a graph for the frame that will ask for it."""
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._graphs[name] = page.encode()
            while len(self._graphs) > MOST_GRAPHS:
                self._graphs.popitem(last=False)
        return name

    def graph(self, name: str) -> bytes | None:
        """The page of a graph, if it is still there."""
        with self._lock:
            return self._graphs.get(name)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, unless there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is nothing to tell; anything else is."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """End everything."""
        for name in list(self.sessions):
            self.close_session(name)
        super().server_close()


class Refused(Exception):
    """A request that is not served."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status, self.reason = status, reason


class Handler(BaseHTTPRequestHandler):
    """One request after the other, on one connection."""

    server: PlayServer
    server_version, sys_version = "chainrule", ""
    protocol_version = "HTTP/1.1"
    timeout = SLOWEST

    def do_GET(self) -> None:
        """The app, the page of a graph, or the stream of states."""
        self._serve(self._get)

    def do_POST(self) -> None:
        """Something that is asked: JSON in, JSON out."""
        self._serve(self._post)

    def _serve(self, serve: Any) -> None:
        try:
            serve(self._checked_path())
        except Refused as refused:
            self.close_connection = True  # whatever else was sent is not read
            self._answer(refused.status, "text/plain; charset=utf-8", refused.reason.encode())
        except PlayError as error:  # an answer for the person at the page, if it asked
            asked = self.command == "POST"
            status = HTTPStatus.OK if asked else HTTPStatus.SERVICE_UNAVAILABLE
            self._json({"error": str(error)}, status)

    def _checked_path(self) -> str:
        """The path after the secret, of a request that may be served."""
        host = self.headers.get("Host", "")
        if host.partition(":")[0] not in NAMES or len(self.headers.get_all("Host") or []) != 1:
            raise Refused(HTTPStatus.FORBIDDEN, "this server answers only to this machine's names")
        origin = self.headers.get("Origin")
        if origin != f"http://{host}" and (origin is not None or self.command == "POST"):
            raise Refused(HTTPStatus.FORBIDDEN, "this server answers only to its own pages")
        _, secret, *rest = (urlsplit(self.path).path + "/").split("/", 2)
        if not hmac.compare_digest(secret.encode(), self.server.secret.encode()):
            reason = "open the whole address that chainrule play has printed"
            raise Refused(HTTPStatus.FORBIDDEN, reason)
        return rest[0].rstrip("/") if rest else ""

    # --- GET --------------------------------------------------------------------------------------

    def _get(self, path: str) -> None:
        kind, _, name = path.partition("/")
        if path == "" and not urlsplit(self.path).path.endswith("/"):
            self._answer(
                HTTPStatus.FOUND, "text/plain", b"", {"Location": f"/{self.server.secret}/"}
            )
        elif path == "":
            self._page(app_page().encode(), "'none'")
        elif path == "events":
            self._stream()
        elif kind == "graph" and (page := self.server.graph(name)) is not None:
            self._page(page, "'self'")
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here (any more)")

    def _page(self, page: bytes, ancestors: str) -> None:
        """A page, whose own policy says what it may do; here, who may show it in a frame."""
        policy = {"Content-Security-Policy": f"frame-ancestors {ancestors}"}
        self._answer(HTTPStatus.OK, "text/html; charset=utf-8", page, policy)

    def _stream(self) -> None:
        """States, for as long as the page is there."""
        name, session = self.server.open_session()
        self.close_connection = True
        try:
            self._head(HTTPStatus.OK, "text/event-stream", {"Connection": "close"})
            self._event("session", json.dumps(name).encode())
            while not session.closed and not self._is_gone():
                news = session.take(BEAT)
                for kind, state in news.items():
                    self._event(kind, state)
                if not news:
                    self.wfile.write(b": \n\n")
        except (ConnectionError, TimeoutError):
            pass  # gone, or it has stopped taking anything
        finally:
            self.server.close_session(name)

    def _event(self, kind: str, data: bytes) -> None:
        self.wfile.write(b"event: %s\ndata: %s\n\n" % (kind.encode(), data))

    def _is_gone(self) -> bool:
        """Whether the page has closed its end of the connection."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    # --- POST -------------------------------------------------------------------------------------

    def _post(self, path: str) -> None:
        given = self._body()
        if path == "expression":
            answer = formulas.draw(given)
        elif path == "ask":
            answer = self._ask(given)
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")
        if "page" in answer:
            answer["graph"] = f"graph/{self.server.keep(answer.pop('page'))}"
        self._json(answer)

    def _ask(self, given: dict[str, Any]) -> dict[str, Any]:
        session = self.server.sessions.get(str(given.get("session")))
        kind, action, rest = given.get("kind"), given.get("action"), given.get("given")
        if session is None:
            raise PlayError("the connection to this page was lost; reload it")
        if kind not in KINDS or not isinstance(action, str) or not isinstance(rest, dict):
            raise PlayError("this is not something that can be asked")
        return session.ask(kind, action, rest)

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not length.isdecimal() or len(length) > 9:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "say how long the body is")
        if int(length) > LARGEST_BODY:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this is too much to read")
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "only JSON is read")
        try:
            given = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refused(HTTPStatus.BAD_REQUEST, "this is no JSON") from None
        if not isinstance(given, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "this is no JSON object")
        return given

    # --- answers ----------------------------------------------------------------------------------

    def _json(self, answer: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._answer(status, "application/json", json.dumps(answer).encode())

    def _answer(
        self, status: HTTPStatus, kind: str, body: bytes, more: dict[str, str] | None = None
    ) -> None:
        closing = {"Connection": "close"} if self.close_connection else {}
        self._head(status, kind, {"Content-Length": str(len(body)), **closing, **(more or {})})
        self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, text in {"Content-Type": kind, **_ALWAYS, **more}.items():
            self.send_header(name, text)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: the terminal is for people."""


_ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
