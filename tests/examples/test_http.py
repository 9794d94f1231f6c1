"""`examples/http`: its script against a server that sometimes fails, and remembers the keys of batches."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sqlstream.errors import OutageError
from sqlstream.functions import load
from sqlstream.testing import Stream

EXAMPLE = Path(__file__).parents[2] / "examples" / "http"


class Shop:
    """What the server has: alerts by their keys, customers by their names."""

    def __init__(self) -> None:
        self.alerts: dict[str, Any] = {}
        self.customers: dict[str, Any] = {}
        self.posts = 0
        # So often it takes what it gets, and dies before it answers.
        self.failing = 0
        self.url = ""
        self.lock = threading.Lock()

    def take(self, method: str, path: str, key: str | None, body: Any) -> int:
        match method, path.split("/")[1:]:
            case "POST", ["hook"]:
                assert key is not None
                self.posts += 1
                self.alerts.setdefault(key, body)
            case "PUT", ["customers", name]:
                self.customers[name] = body["total"]
            case "DELETE", ["customers", name]:
                self.customers.pop(name, None)
            case _:
                return 404
        self.failing -= 1
        return 503 if self.failing >= 0 else 204


@contextmanager
def serving() -> Iterator[Shop]:
    shop = Shop()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"] or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            with shop.lock:
                status = shop.take(self.command, self.path, self.headers["Idempotency-Key"], body)
            self.send_response(status)
            self.end_headers()

        do_PUT = do_DELETE = do_POST

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shop.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield shop
    finally:
        server.shutdown()
        server.server_close()


def test_batches_and_rows_reach_a_server_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    load(str(EXAMPLE / "udfs"))
    with serving() as shop:
        monkeypatch.setenv("URL", shop.url)
        # The rows of a test are files of Parquet.
        script = (EXAMPLE / "orders.sql").read_text().replace("'json'", "'parquet'")
        with Stream(script) as stream:
            stream.batch("orders", [("ada", 120), ("bob", 30), ("a/b", 1)])
            assert shop.customers == {"ada": "120.00", "bob": "30.00", "a%2Fb": "1.00"}
            shop.failing = 1
            with pytest.raises(OutageError, match="answers 503"):
                stream.batch("orders", [("bob", 200)])
            stream.restart()
        # The batch was sent twice, and is there once.
        assert shop.posts == 3
        assert sorted((row["customer"], row["amount"]) for rows in shop.alerts.values() for row in rows) == [
            ("ada", "120.00"),
            ("bob", "200.00"),
        ]
        assert [key.rpartition("-")[2] for key in shop.alerts] == ["0", "1"]
