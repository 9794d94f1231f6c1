"""Connections whose clients have shown no token have few places, and little time."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pyarrow.flight as fl
import pytest

from sqlstream.server import app, connections
from sqlstream.server.access import Role, Tokens
from sqlstream.server.connections import Connections, ListeningSocket
from sqlstream.server.flight import sockets
from sqlstream.server.flight.sockets import StrangerWatch
from sqlstream.server.postgres import server as postgres_server
from tests.processes import wait_until
from tests.server.flight.conftest import flight_server
from tests.server.postgres import serving as postgres
from tests.server.serving import serving, settings_of

pytestmark = pytest.mark.slow

TOKEN = "r" * 20


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def listening() -> Iterator[ListeningSocket]:
    with ListeningSocket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as found:
        found.bind(("127.0.0.1", 0))
        found.listen(128)
        yield found


def is_over(client: socket.socket) -> bool:
    """Tell whether the other side has ended a connection."""
    client.settimeout(60)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        client.recv(1)
        return False
    return True


def test_of_many_strangers_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_STRANGERS", 3)
    clock = Clock()
    with listening() as server, contextlib.ExitStack() as stack:
        known = server.connections = Connections(4, clock)

        def connect() -> tuple[socket.socket, socket.socket]:
            client = stack.enter_context(socket.create_connection(server.getsockname()))
            accepted, _ = server.accept()
            return client, stack.enter_context(accepted)

        pairs = [connect() for _ in range(3)]
        known.know(pairs[0][0].getsockname())
        pairs += [connect() for _ in range(2)]
        # The first one has shown a token, so the second one is the oldest stranger.
        assert is_over(pairs[1][0])
        assert all(is_open(pairs[n][0]) for n in (0, 2, 3, 4))
        # Time is over for those that were there before, and for no client.
        clock.now = connections.STRANGER_SECONDS + 1
        pairs.append(connect())
        known.sweep()
        assert all(is_over(pairs[n][0]) for n in (3, 4))
        assert all(is_open(pairs[n][0]) for n in (0, 5))
        assert known.strangers == 1
        for _, accepted in pairs[1:5]:
            accepted.close()
        # There is room for four; where all are clients, no one else gets in.
        for client, _ in (pairs[5], *(connect() for _ in range(2))):
            known.know(client.getsockname())
        assert known.strangers == 0
        late = stack.enter_context(socket.create_connection(server.getsockname()))
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
        assert is_over(late)


def test_a_client_has_as_much_time_for_each_request() -> None:
    clock = Clock()
    with listening() as server, contextlib.ExitStack() as stack:
        known = server.connections = Connections(4, clock)
        clients = []
        for _ in range(3):
            clients.append(stack.enter_context(socket.create_connection(server.getsockname())))
            stack.enter_context(server.accept()[0])
        slow, busy, next_one = clients
        for client in clients:
            known.know(client.getsockname())
        # A request that came while another one was answered.
        known.know(busy.getsockname())
        for client in clients:
            known.answered(client.getsockname())
        clock.now = connections.HEADER_SECONDS - 1
        known.know(next_one.getsockname())
        known.answered(next_one.getsockname())
        clock.now = connections.HEADER_SECONDS + 1
        known.sweep()
        assert {*known._clients} == {busy.getsockname(), next_one.getsockname()}
        clock.now += connections.HEADER_SECONDS
        known.sweep()
        assert {*known._clients} == {busy.getsockname()}
        assert slow.getsockname() not in known._clients
        assert known.strangers == 0


def test_a_connection_for_which_no_file_can_be_opened_is_closed() -> None:
    # In a process of its own, which has few files.
    program = f"""
import errno, os, resource, socket
from sqlstream.server.connections import ListeningSocket
listening = ListeningSocket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listening.bind(("127.0.0.1", 0))
listening.listen(128)
listening.setblocking(False)
client = socket.create_connection(listening.getsockname())
client.settimeout(60)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = []
try:
    while True:
        files.append(os.open(os.devnull, os.O_RDONLY))
except OSError as error:
    assert error.errno == {errno.EMFILE}
for _ in range(2):
    try:
        listening.accept()
    except BlockingIOError:
        pass
    else:
        raise AssertionError
assert client.recv(1) == b""
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


def test_the_server_says_that_it_may_open_too_few_files(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    words = [sys.executable, "-m", "sqlstream", "serve", "--port", "0", "--project", str(tmp_path)]
    found = subprocess.run(words, preexec_fn=few, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert found.returncode == 2, found.stderr
    assert "the server may have 64 files open at a time, and needs 256" in found.stderr
    assert "ulimit -n 1024" in found.stderr


def test_idle_connections_keep_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STRANGER_SECONDS", 1.0)
    (tmp_path / "catalog").mkdir()
    tokens = Tokens(((sha256(TOKEN.encode()).digest(), Role.READ),))
    with serving(replace(settings_of(tmp_path), tokens=tokens)) as (url, service), contextlib.ExitStack() as stack:
        address = urlsplit(url)
        with httpx.Client(base_url=url, timeout=60, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            assert client.get("/v1/jobs").status_code == 200
            idle = [stack.enter_context(socket.create_connection((address.hostname, address.port))) for _ in range(200)]
            # Half of a header.
            idle[-1].sendall(b"GET /v1/health HTTP/1.1\r\nHost: ")
            assert client.get("/v1/jobs").status_code == 200
            assert service.connections.strangers <= connections.MOST_STRANGERS
            assert all(map(is_over, idle))
            # That of a client that has shown a token stays.
            assert len(service.connections._clients) == 1
            assert client.get("/v1/jobs").status_code == 200
            assert len(service.connections._clients) == 1
        # A request that needs none does not make a client of its connection.
        with socket.create_connection((address.hostname, address.port)) as raw:
            raw.sendall(f"GET /v1/health HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            said = b""
            while part := raw.recv(1000):
                said += part
            assert b"connection: close" in said.lower()
        assert httpx.get(f"{url}/v1/jobs", timeout=60).status_code == 401


def test_headers_that_dribble_keep_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1.0)
    (tmp_path / "catalog").mkdir()
    tokens = Tokens(((sha256(TOKEN.encode()).digest(), Role.READ),))
    with serving(replace(settings_of(tmp_path), tokens=tokens)) as (url, _), contextlib.ExitStack() as stack:
        address = urlsplit(url)

        def asked(path: str) -> socket.socket:
            client = stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=60))
            client.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
            )
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
            return client

        stream = asked("/v1/events")
        client, ended = asked("/v1/jobs"), threading.Event()
        client.sendall(b"GET /v1/jobs HTTP/1.1\r\nX: ")
        dribble = threading.Thread(target=_dribble, args=(client, ended, False))
        dribble.start()
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1000):
                pass
        ended.set()
        dribble.join()
        # An answer that goes on is no request that does not come.
        stream.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while stream.recv(1000):
                pass
            raise AssertionError("the stream has ended")


def test_idle_connections_of_postgresql_keep_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    with postgres.started(tmp_path) as port, contextlib.ExitStack() as stack:
        most = postgres_server._MOST_STRANGERS
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(most + 5)]
        assert all(is_over(one) for one in idle[:5])
        assert is_open(idle[-1])
        with psycopg.connect(f"host=127.0.0.1 port={port} user=x") as con:
            assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_idle_connections_of_flight_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "MOST_STRANGERS", 2)
    monkeypatch.setattr(sockets, "_SWEEP_SECONDS", 3600.0)
    (tmp_path / "warehouse").mkdir()
    with flight_server(tmp_path) as server, contextlib.ExitStack() as stack, fl.connect(server.url) as client:
        watch: StrangerWatch = server._strangers
        clock = watch._clock = Clock()
        assert len(list(client.list_actions())) > 0
        idle = []
        for _ in range(4):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            # gRPC takes it in a thread of its own.
            wait_until(lambda one=one: one.getsockname() in dict(sockets.connections(server.port)))
            idle.append(one)
            watch.sweep()
            clock.now += 1
        assert all(is_over_after_greeting(one) for one in idle[:2])
        clock.now += connections.STRANGER_SECONDS
        watch.sweep()
        assert all(is_over_after_greeting(one) for one in idle)
        # One that has made a call stays.
        assert len(list(client.list_actions())) > 0
        assert len(watch._clients) == 1


def is_over_after_greeting(client: socket.socket) -> bool:
    """Tell whether the other side has ended a connection, after what gRPC says first."""
    client.settimeout(60)
    try:
        while client.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("path", ["/v1/jobs/%00", "/v1/jobs/a%00b/batches", "/%00"])
def test_a_zero_character_in_a_path_is_no_fault_of_the_server(tmp_path: Path, path: str) -> None:
    (tmp_path / "catalog").mkdir()
    with serving(settings_of(tmp_path)) as (url, _):
        found = httpx.get(f"{url}{path}", timeout=60)
        assert (found.status_code, found.json()["detail"]) == (400, "an address has no zero character")


def test_a_zero_character_in_a_name_is_no_fault_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "warehouse").mkdir()
    with serving(settings_of(tmp_path)) as (url, _):
        for path, body in (
            ("/v1/diff", {"state": "a\0.b", "older": "\0/x", "newer": 2}),
            ("/v1/query", {"sql": "SELECT '\0'"}),
            (
                "/v1/jobs",
                {"sql": "CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = 'x\0', 'format' = 'csv')"},
            ),
            ("/v1/jobs", {"sql": "SHOW TABLES", "savepoint": "\0"}),
        ):
            found = httpx.post(
                f"{url}{path}", timeout=60, content=json.dumps(body), headers={"Content-Type": "application/json"}
            )
            assert found.status_code < 500, found.text
    assert os.listdir(tmp_path / "warehouse") != ["\0"]


@pytest.mark.parametrize(
    ("request_line", "status"), [("POST /v1/query", 408), ("GET /v1/jobs", 200), ("POST /v1/nothing", 404)]
)
def test_a_body_that_does_not_come_keeps_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_line: str, status: int
) -> None:
    monkeypatch.setattr(app, "_BODY_SECONDS", 0.5)
    (tmp_path / "catalog").mkdir()
    with serving(settings_of(tmp_path)) as (url, _):
        address = urlsplit(url)
        for length in ("Content-Length: 100000", "Transfer-Encoding: chunked"):
            with socket.create_connection((address.hostname, address.port)) as client:
                head = f"{request_line} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
                client.sendall(head.encode())
                ended = threading.Event()
                dribble = threading.Thread(target=_dribble, args=(client, ended, "chunked" in length))
                dribble.start()
                client.settimeout(60)
                said = b""
                with contextlib.suppress(ConnectionResetError):
                    while part := client.recv(1000):
                        said += part
                ended.set()
                dribble.join()
            assert said.startswith(f"HTTP/1.1 {status} ".encode()), said
            assert b"connection: close" in said.lower()
        assert httpx.get(f"{url}/v1/jobs", timeout=60).status_code == 200


def _dribble(client: socket.socket, ended: threading.Event, chunked: bool) -> None:
    """Send a byte of a body now and then."""
    with contextlib.suppress(OSError):
        while not ended.wait(0.1):
            client.sendall(b"1\r\nx\r\n" if chunked else b"x")
