"""Rows that clients push over HTTP: what was acknowledged is read once, whatever becomes of the process that received it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest

from sqlstream.connectors import OwnTable, PushSource
from sqlstream.session.session import Session
from tests.processes import SECONDS

ROOT = Path(__file__).parents[2]
INBOX = """
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sqlstream.connectors import OwnTable, PushSource


class Inbox(PushSource):
    def __init__(self, folder: str, port: str, table: OwnTable):
        super().__init__(folder, table)
        self.port = int(port)

    def receive(self) -> None:
        source = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                try:
                    source.push(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                except ValueError as error:
                    self.send_error(400, "no rows of the table")
                else:
                    self.send_response(204)
                    self.end_headers()

            def log_message(self, *words: object) -> None: ...

        with ThreadingHTTPServer(("127.0.0.1", self.port), Handler) as server:
            server.timeout = 0.1
            while not self.stopping.is_set():
                server.handle_request()
"""
CATALOG = """
CREATE TABLE pushed (k BIGINT, name STRING) WITH (
    'connector' = 'python', 'class' = 'inbox.Inbox', 'folder' = '{folder}', 'port' = '{port}',
    'source.monitor-interval' = '50 ms');
CREATE TABLE kept (k BIGINT, name STRING);
"""


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def project(tmp_path: Path, port: int) -> Path:
    for name, text in (
        ("udfs/inbox.py", INBOX),
        ("catalog/t.sql", CATALOG.format(folder=tmp_path / "rows", port=port)),
    ):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
    return tmp_path


def started(project: Path) -> subprocess.Popen[bytes]:
    words = ["shell", "--project", str(project), "-c", "INSERT INTO kept SELECT * FROM pushed"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "tests.shell.in_process", *words], cwd=ROOT, env=environment)


def post(port: int, rows: object) -> bool:
    """Push rows; return whether they were acknowledged."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", json.dumps(rows).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return int(answer.status) == 204
    except (OSError, urllib.error.URLError):
        return False


def post_until_acknowledged(port: int, rows: object) -> None:
    deadline = time.monotonic() + SECONDS
    while not post(port, rows):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kept(project: Path) -> list[int]:
    with Session(str(project)) as session:
        return [k for (k,) in session.query("SELECT k FROM kept ORDER BY k").fetchall()]


@pytest.mark.slow
def test_what_was_acknowledged_outlives_kills(project: Path, port: int) -> None:
    acknowledged = []
    for life in range(3):
        process = started(project)
        try:
            for number in range(8):
                key = life * 8 + number
                post_until_acknowledged(port, [{"k": key, "name": f"row {key}"}])
                acknowledged.append(key)
        finally:
            # In the middle of whatever it does, the last rows not yet read.
            process.kill()
            process.wait()
    process = started(project)
    try:
        post_until_acknowledged(port, [{"k": 99}, {"K": 100, "name": None}])
        deadline = time.monotonic() + SECONDS
        while kept(project) != [*acknowledged, 99, 100]:
            assert time.monotonic() < deadline, kept(project)
            time.sleep(0.1)
        assert not post(port, [{"k": "no number"}])
        assert not post(port, [{"k": 1, "more": 2}])
        process.terminate()
        assert process.wait(SECONDS) == 0
        assert not post(port, [{"k": 5}])
    finally:
        process.kill()
        process.wait()
    assert kept(project) == [*acknowledged, 99, 100]


class Inert(PushSource):
    def receive(self) -> None:
        """Leave it to the test to push."""


def test_rows_are_stored_in_the_order_of_numbers(tmp_path: Path) -> None:
    table = OwnTable("t", {"k": "BIGINT", "name": "VARCHAR"})
    first, second = (Inert(str(tmp_path), table) for _ in range(2))
    with pytest.raises(RuntimeError, match="does not run"):
        first.push([{"k": 1}])
    assert first.latest_position("") == 0
    for wrong in ([{"k": 1}, {"more": 2}], [{"k": 1}, {"k": "b"}], [{"k": "b"}], pa.table({"k": [b"x"]})):
        with pytest.raises(ValueError, match=r"no column|do not fit"):
            first.push(wrong)
    first.push([{"k": 1}, {"name": "b"}])
    first.push(pa.table({"NAME": ["c"]}))
    first.push([])
    assert first.latest_position("") == 2
    first.push([{}])
    assert first.read("", 2, 3).to_pylist() == [{"k": None, "name": None}]
    (tmp_path / "000000000002.parquet").unlink()
    assert first.read("", 0, 2).to_pylist() == [
        {"k": 1, "name": None},
        {"k": None, "name": "b"},
        {"k": None, "name": "c"},
    ]
    with pytest.raises(RuntimeError, match="another job"):
        second.latest_position("")
    first.stop()
    assert second.latest_position("") == 2
    second.retention = None
    second.on_commit({"": 2})
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    os.utime(tmp_path / "000000000000.parquet", (0, 0))
    os.utime(tmp_path / "000000000001.parquet", (0, 0))
    second.retention = PushSource.retention
    second.on_commit({"": 2})
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["000000000001.parquet"]
    second.stop()
