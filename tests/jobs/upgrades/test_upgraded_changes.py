"""A job from changes of a PostgreSQL table into keyed tables elsewhere, killed while it is upgraded: each key is there once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.kafka.topics import Topic
from tests.connectors.kafka.written import messages
from tests.jobs.savepoint_jobs import open_session
from tests.jobs.upgrades.test_upgraded_servers import killed
from tests.jobs.upgrades.test_upgraded_sinks import run
from tests.postgres_server import Database, PostgresServer

deltalake = pytest.importorskip("deltalake")
sql_catalog = pytest.importorskip("pyiceberg.catalog.sql")
pytestmark = [pytest.mark.slow, pytest.mark.kafka]

SCRIPT = """
CREATE TABLE t (id BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'postgres-cdc', 'url' = '{url}', 'table-name' = 'orders', 'source.monitor-interval' = '10 ms');
CREATE TABLE topic (id BIGINT, x BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json',
    'value.format' = 'json', 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{topic}');
CREATE TABLE delta (id BIGINT, x BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'delta', 'path' = 'delta', 'sink.create-table' = 'true');
CREATE TABLE iceberg (id BIGINT, x BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'iceberg', 'catalog.uri' = 'sqlite:///{folder}/catalog.db', 'catalog.warehouse' = 'file://{folder}/lake',
    'table' = 'db.taken', 'sink.create-table' = 'true');
CREATE TABLE own (id BIGINT, x BIGINT, PRIMARY KEY (id) NOT ENFORCED);
SET 'pipeline.name' = 'j';
EXECUTE STATEMENT SET BEGIN
{inserts}
END;
"""
SINKS = ("topic", "delta", "iceberg", "own")


class Keyed:
    """Where the job reads and writes, and the scripts of both queries."""

    def __init__(self, servers: str, database: Database, folder: Path):
        self.servers, self.folder, self._topic = servers, folder, Topic(servers)
        (folder / "lake").mkdir()
        self._catalog = sql_catalog.SqlCatalog(
            "default", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake"
        )
        self._catalog.create_namespace("db")
        places = {"url": database.url, "topic": self._topic.name, "servers": servers, "folder": folder}
        self.old, self.new = (
            SCRIPT.format(**places, inserts="\n".join(f"INSERT INTO {s} SELECT id, {x} AS x FROM t;" for s in SINKS))
            for x in (1, 10)
        )

    def rows(self) -> Iterator[list[tuple[int, int]]]:
        """Yield the rows of each sink."""
        last = {m.key: m.value for m in messages(self.servers, self._topic.name)}
        yield sorted((row["id"], row["x"]) for row in (json.loads(value) for value in last.values() if value))
        lake = (
            deltalake.DeltaTable(f"{self.folder}/delta").to_pyarrow_table(),
            self._catalog.load_table("db.taken").scan().to_arrow(),
        )
        for table in lake:
            yield sorted(zip(table["id"].to_pylist(), table["x"].to_pylist(), strict=True))

    def check(self, *rows: tuple[int, int]) -> None:
        for found in self.rows():
            assert found == list(rows)

    def check_own(self, *rows: tuple[int, int]) -> None:
        with open_session(self.folder) as session:
            assert session.query("FROM own ORDER BY id").fetchall() == list(rows)


@pytest.mark.thorough
def test_keyed_sinks_have_each_key_once_wherever_the_job_or_its_upgrade_is_killed(
    kafka: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    database = postgres.database()
    database.run("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)")
    ends = Keyed(kafka, database, tmp_path)
    try:
        run(tmp_path, ends.old, 2)
        ends.check((1, 1), (2, 1))
        database.run("INSERT INTO orders VALUES (3)", "DELETE FROM orders WHERE id = 1")
        killed(tmp_path, ends.old, 4, "written")
        # The sinks have a batch that the job has not.
        ends.check((2, 1), (3, 1))
        ends.check_own((1, 1), (2, 1))
        database.run("INSERT INTO orders VALUES (4)")
        for where in ("after 12", "laid-out"):
            killed(tmp_path, ends.new, 4, where)
            ends.check((2, 1), (3, 1))
        killed(tmp_path, ends.new, 5, "written")
        ends.check((2, 1), (3, 1), (4, 10))
        database.run("INSERT INTO orders VALUES (5)", "DELETE FROM orders WHERE id = 2")
        run(tmp_path, ends.new, 7, upgrade=True)
        ends.check((3, 1), (4, 10), (5, 10))
        # Its own table was written anew in the batch that others had already, by the new query.
        ends.check_own((3, 10), (4, 10), (5, 10))
    finally:
        database.drop_slots()
