"""The server of ``play``: whom it answers, what it refuses, and when work ends."""

import http.client
import json
import queue
import re
import signal
import socket
import subprocess
import sys
import time
import types
import urllib.request
import webbrowser

import pytest
from test_play_labs import NETWORK

from chainrule.cli import play
from chainrule.play import PlayError, PlayServer
from chainrule.play import server as serving
from chainrule.play.sessions import Session


class Client:
    """Requests as the server's own page sends them, unless told otherwise."""

    def __init__(self, server):
        self.server = server
        self.port = server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"

    def request(self, method, path, body=None, headers=None, secret=None):
        secret = self.server.secret if secret is None else secret
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Host": self.host, **(headers or {})}
        if method == "POST":
            sent = {"Origin": f"http://{self.host}", "Content-Type": "application/json", **sent}
        given = {name: text for name, text in sent.items() if text is not None}
        connection.putrequest(method, f"/{secret}/{path}", skip_host=True)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is not None and "Content-Length" not in given:
            given["Content-Length"] = str(len(data))
        for name, text in given.items():
            connection.putheader(name, text)
        connection.endheaders(data)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response, text

    def status(self, *args, **kwargs):
        return self.request(*args, **kwargs)[0].status

    def post(self, path, **body):
        return json.loads(self.request("POST", path, body)[1])

    def ask(self, session, kind, action, **given):
        return self.post("ask", session=session, kind=kind, action=action, given=given)


class Stream:
    """The events of one page."""

    def __init__(self, client):
        self.socket = socket.create_connection(("127.0.0.1", client.port), timeout=60)
        path = f"/{client.server.secret}/events"
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {client.host}\r\n\r\n".encode())
        self.lines = self.socket.makefile("rb")
        while self.lines.readline().strip():
            pass
        self.session = self.next("session")

    def next(self, kind):
        """The data of the next event of a kind."""
        while True:
            line = self.lines.readline()
            assert line, "the stream has ended"
            if line.strip() == f"event: {kind}".encode():
                return json.loads(self.lines.readline().removeprefix(b"data: "))

    def close(self):
        self.lines.close()
        self.socket.close()


@pytest.fixture
def client(server):
    return Client(server)


@pytest.fixture
def stream(client):
    stream = Stream(client)
    yield stream
    stream.close()


def processes(server):
    return [lab._process for session in server.sessions.values() for lab in session._labs.values()]


def wait_until(holds, seconds=30):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


# --- whom it answers ----------------------------------------------------------------------------


def test_it_listens_on_the_loopback_only_and_its_secret_is_long(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert len(server.secret) >= 32
    assert server.secret in server.address
    other = PlayServer()
    other.server_close()
    assert other.secret != server.secret


def test_the_app_comes_with_a_strict_policy_and_asks_nobody_else(client):
    response, text = client.request("GET", "")
    page = text.decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy
    assert response.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-store"
    assert set(re.findall(r"https?://[\w.]+", page)) == {"http://www.w3.org"}  # the name of SVG


def test_localhost_and_a_tunnelled_port_are_names_of_this_machine_too(client):
    for host in ("localhost:8000", "127.0.0.1:9", "localhost"):
        assert client.status("GET", "", headers={"Host": host}) == 200
    body = {"text": "a+1", "values": ""}
    headers = {"Host": "localhost:8000", "Origin": "http://localhost:8000"}
    assert client.status("POST", "expression", body, headers) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "192.168.0.1", "", None, "[::1]"],
)
def test_other_hosts_are_refused(client, host):
    assert client.status("GET", "", headers={"Host": host}) in (400, 403)
    assert client.status("GET", "events", headers={"Host": host}) in (400, 403)
    assert client.status("POST", "expression", {}, headers={"Host": host}) in (400, 403)


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", ""),
        *("https://{host}", "http://{host}.evil.example", "http://evil.example/{host}"),
    ],
)
def test_other_origins_are_refused(client, origin):
    headers = {"Origin": origin.format(host=client.host)}
    assert client.status("GET", "", headers=headers) == 403
    assert client.status("GET", "events", headers=headers) == 403
    assert client.status("POST", "expression", {"text": "a", "values": ""}, headers) == 403


def test_a_request_that_changes_something_must_say_where_it_comes_from(client):
    body = {"text": "a", "values": ""}
    assert client.status("POST", "expression", body, {"Origin": None}) == 403


@pytest.mark.parametrize("secret", ["", "wrong", "undefined", "..", "%2e%2e", "é"])
def test_without_the_secret_nothing_is_served(client, secret):
    quoted = secret.encode("ascii", "ignore").decode()
    for path in ("", "events", "graph/x"):
        assert client.status("GET", path, secret=quoted) == 403
    assert client.status("POST", "expression", {"text": "a", "values": ""}, secret=quoted) == 403
    shorter = client.server.secret[:-1]
    assert client.status("GET", "", secret=shorter) == 403


def test_other_methods_and_paths_are_not_served(client):
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "HEAD"):
        assert client.status(method, "") == 501
    for path in ("nothing", "graph", "graph/../events/", "graph/unknown", "static/app.py"):
        assert client.status("GET", path) == 404
    assert client.status("POST", "nothing", {}) == 404


def test_the_address_without_its_last_slash_leads_to_the_page(client):
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    connection.request("GET", f"/{client.server.secret}", headers={"Host": client.host})
    response = connection.getresponse()
    assert (response.status, response.headers["Location"]) == (302, f"/{client.server.secret}/")
    connection.close()


# --- what it refuses to read --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {"Content-Length": str(serving.LARGEST_BODY + 1)}, 413),
        (b"{}", {"Content-Length": "9" * 30}, 411),
        (b"{}", {"Content-Length": "-1"}, 411),
        (b"{}", {"Content-Length": "two"}, 411),
        (b"0\r\n\r\n", {"Transfer-Encoding": "chunked", "Content-Length": None}, 411),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b"", {}, 400),
        (b"{", {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"[1]", {}, 400),
        (b"null", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"text": ' + b"9" * 10_000 + b"}", {}, 400),
    ],
)
def test_bodies_that_are_too_large_or_no_json_are_refused(client, body, headers, status):
    assert client.status("POST", "expression", body, headers) == status
    assert client.post("expression", text="a+1", values="")["result"] == 3.0  # and it lives on


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__bases__",
        "open('/etc/passwd')",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "f'{a}'",
        "a.__class__",
        "9**9**9",
        "(" * 500 + "a" + ")" * 500,
        "a\0b",
        "import os",
        "a" * 5_000,
        "",
        "\ud800",
        "</script><script>alert(1)</script>",
    ],
)
def test_text_is_parsed_and_never_run(client, text):
    answer = client.post("expression", text=text, values="")
    assert answer["error"]
    assert "graph" not in answer


def test_what_is_not_a_text_is_refused_in_words(client):
    for text in (None, 3, ["a"], {"a": 1}, "a" * 30_000):
        assert "text" in client.post("expression", text=text, values="")["error"]


# --- expressions --------------------------------------------------------------------------------


def test_an_expression_becomes_a_page_and_missing_inputs_get_values(client):
    answer = client.post("expression", text="relu(a*b + d)", values="b=-3, d=10")
    assert answer["values"] == "b=-3 d=10 a=0.5"
    assert answer["result"] == 8.5
    response, page = client.request("GET", answer["graph"])
    assert response.status == 200
    assert response.headers["Content-Security-Policy"] == "frame-ancestors 'self'"
    assert b"The backward pass of" in page


def test_errors_say_where(client):
    assert client.post("expression", text="  a*/b", values="")["column"] == 4
    answer = client.post("expression", text="log(a)", values="a=-1")
    assert (answer["where"], answer["column"]) == ("text", 0)
    assert "log(-1" in answer["error"]
    answer = client.post("expression", text="a", values="a=1 b=x")
    assert (answer["where"], answer["column"]) == ("values", 6)


def test_only_so_many_pages_of_graphs_are_kept(client):
    found = [
        client.post("expression", text="a+1", values="")["graph"]
        for _ in range(serving.MOST_GRAPHS + 1)
    ]
    assert client.status("GET", found[0]) == 404
    assert client.status("GET", found[1]) == 200


# --- laboratories, and when their work ends -----------------------------------------------------


def test_a_network_trains_and_its_states_stream(client, stream):
    started = client.ask(stream.session, "network", "start", **NETWORK)
    assert len(started["points"]) == 20
    assert stream.next("network")["step"] == 0
    assert client.ask(stream.session, "network", "step") == {}
    assert stream.next("network")["step"] == 1
    assert client.ask(stream.session, "network", "run") == {}
    wait_until(lambda: stream.next("network")["step"] > 1000)
    assert client.ask(stream.session, "network", "pause") == {}
    state = stream.next("network")
    while state["running"]:
        state = stream.next("network")
    assert state["loss"] < 0.5
    answer = client.ask(
        stream.session, "network", "weight", layer=0, of="w", row=1, column=0, point=3
    )
    assert answer["grad"] == pytest.approx(sum(answer["parts"]) / 20, rel=1e-3, abs=1e-9)
    assert client.status("GET", answer["graph"]) == 200


def test_closing_the_page_stops_the_work(client):
    stream = Stream(client)
    client.ask(stream.session, "network", "start", **NETWORK)
    client.ask(stream.session, "network", "run")
    (process,) = processes(client.server)
    assert process.poll() is None
    stream.close()
    wait_until(lambda: process.poll() is not None)
    wait_until(lambda: not client.server.sessions)
    assert "reload" in client.ask(stream.session, "network", "run")["error"]


def test_closing_the_page_stops_what_is_being_compiled(client):
    stream = Stream(client)
    settings = {"source": "names", "width": 32, "heads": 4, "layers": 2, "block": 32}
    answer = client.ask(
        stream.session, "language", "start", **settings, steps=10_000, rate=0.01, seed=1
    )
    assert answer["parameters"] > 20_000
    client.ask(stream.session, "language", "run")  # recording takes seconds
    (process,) = processes(client.server)
    stream.close()
    wait_until(lambda: process.poll() is not None)


def test_a_paused_page_that_is_closed_ends_too(client):
    stream = Stream(client)
    client.ask(stream.session, "network", "start", **NETWORK)
    (process,) = processes(client.server)
    stream.close()
    wait_until(lambda: process.poll() is not None)


def test_stopping_the_server_stops_the_work(client, stream):
    client.ask(stream.session, "network", "start", **NETWORK)
    client.ask(stream.session, "network", "run")
    (process,) = processes(client.server)
    client.server.shutdown()
    client.server.server_close()
    assert process.poll() is not None


def test_a_process_that_dies_is_told_of_and_replaced(client, stream):
    client.ask(stream.session, "network", "start", **NETWORK)
    (process,) = processes(client.server)
    process.kill()
    state = stream.next("network")
    while "ended" not in state:
        state = stream.next("network")
    assert "exit code" in state["ended"]
    assert client.ask(stream.session, "network", "start", **NETWORK)["parameters"] == 13


def test_so_many_pages_and_no_more(client):
    streams = [Stream(client) for _ in range(serving.MOST_PAGES)]
    response, text = client.request("GET", "events")
    assert response.status == 503
    assert b"close one" in text
    streams.pop().close()
    wait_until(lambda: len(client.server.sessions) < serving.MOST_PAGES)
    streams.append(Stream(client))
    for stream in streams:
        stream.close()


def test_a_page_that_takes_nothing_costs_no_memory():
    session = Session()
    for step in range(100_000):
        session.put("network", b'{"step": %d}' % step)
    assert session.take(0) == {"network": b'{"step": 99999}'}
    assert session.take(0) == {}
    session.close()
    with pytest.raises(PlayError, match="closed"):
        session.ask("network", "run", {})


def test_what_cannot_be_done_is_refused_in_words(client, stream):
    answer = client.ask(stream.session, "network", "start", **NETWORK | {"hidden": [10_000]})
    assert answer == {"error": "hidden must be a whole number from 1 to 8"}
    assert "there is nothing called" in client.ask(stream.session, "network", "_start")["error"]
    client.ask(stream.session, "network", "run")  # there is no network yet: it pauses at once
    assert stream.next("network") == {"version": 0}


def test_only_laboratories_can_be_asked(client, stream):
    for kind in ("server", "", None, 3, ["network"]):
        assert "error" in client.ask(stream.session, kind, "start")
    assert "error" in client.post("ask", session=stream.session, kind="network", action=3, given={})
    assert "error" in client.post("ask", session="unknown", kind="network", action="run", given={})
    assert processes(client.server) == []


def test_the_worker_ends_with_its_input():
    process = subprocess.run(
        [sys.executable, "-m", "chainrule.play.worker", "network"],
        input=b"",
        capture_output=True,
        timeout=60,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")


# --- the command ----------------------------------------------------------------------------------


def test_the_command_prints_its_address_and_ends_cleanly_with_ctrl_c():
    process = subprocess.Popen(
        [sys.executable, "-m", "chainrule", "play", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = iter(process.stdout.readline, "")
    address = next(line.strip() for line in lines if line.startswith("  http://127.0.0.1:"))
    assert urllib.request.urlopen(address, timeout=60).status == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("stopped\n")


def test_a_port_that_is_taken_or_none_is_told_in_a_line(server, capsys):
    taken = server.server_address[1]
    for port, said in (
        (taken, f"port {taken} is taken; leave out --port"),
        (-1, "from 0 to 65535"),
    ):
        assert play.play(port=port, open=False) == 1
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("browser", [None, webbrowser.GenericBrowser("w3m")])
def test_where_no_browser_has_a_window_none_is_opened(monkeypatch, browser):
    def get():
        if browser is None:
            raise webbrowser.Error("could not locate runnable browser")
        return browser

    monkeypatch.setattr(webbrowser, "get", get)
    assert not play._open("http://127.0.0.1/")


def test_a_browser_is_opened_beside_the_server(monkeypatch):
    opened = queue.Queue()
    monkeypatch.setattr(webbrowser, "get", lambda: types.SimpleNamespace(open=opened.put))
    assert play._open("http://127.0.0.1/x/")
    assert opened.get(timeout=60) == "http://127.0.0.1/x/"
