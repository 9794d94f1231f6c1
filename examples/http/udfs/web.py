"""Sinks over HTTP, with nothing but Python's library: a webhook that gets batches, and a resource for each row."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from sqlstream.connectors import UpsertSink, WriteAheadSink

SECONDS = 30.0


def send(method: str, url: str, body: Any = None, **headers: str) -> None:
    """Send a request. Raises ConnectionError where trying again may help, such as while a server restarts."""
    data = None if body is None else json.dumps(body, default=str).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **named}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            pass
    except urllib.error.HTTPError as error:
        if error.code == 429 or error.code >= 500:
            raise ConnectionError(f"{url} answers {error.code}") from error
        raise
    except urllib.error.URLError as error:
        raise ConnectionError(f"{url} does not answer: {error.reason}") from error


class Webhook(WriteAheadSink):
    """POSTs each batch once it is committed: a list of objects, under a key that is the same when it is sent again."""

    def __init__(self, url: str, token: str = ""):
        self.url = url
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def send(self, batch: int, table: pa.Table) -> None:
        key = f"{self.identity}-{batch}"
        send("POST", self.url, table.to_pylist(), Idempotency_Key=key, **self.headers)


class Resources(UpsertSink):
    """PUTs the row of each key to <url>/<key>, and DELETEs it when the row is gone; many requests at a time."""

    def __init__(self, url: str, table: Any, at_a_time: str = "16"):
        [self.key] = table.primary_key
        self.url, self.at_a_time = url.rstrip("/"), int(at_a_time)

    async def write(self, batch: int, rows: pa.Table, deleted: pa.Table) -> None:
        free = asyncio.Semaphore(self.at_a_time)

        async def one(method: str, row: dict[str, Any]) -> None:
            url = f"{self.url}/{quote(str(row[self.key]), safe='')}"
            async with free:
                await asyncio.to_thread(send, method, url, row if method == "PUT" else None)

        puts = [one("PUT", row) for row in rows.to_pylist()]
        await asyncio.gather(*puts, *(one("DELETE", row) for row in deleted.to_pylist()))
