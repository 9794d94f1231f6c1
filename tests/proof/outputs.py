"""What a proof's job writes, and what others see of it meanwhile."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.proof.servers import Kafka, Postgres

# A row that others see: its key, its number, and the time of the batch that it came with.
Row = tuple[int, int, Any]


class Output(ABC):
    """A sink, which takes `columns`; `rows` are those that anybody sees now, or None when it cannot be reached."""

    name: str
    # Whether the rows of a batch appear all at once.
    atomic = True

    def __init__(self, changes: bool):
        self.changes = changes

    @property
    def columns(self) -> str:
        return "id BIGINT, v BIGINT, batch TIMESTAMP(3)" + (", PRIMARY KEY (id) NOT ENFORCED" if self.changes else "")

    @property
    @abstractmethod
    def options(self) -> str: ...

    @abstractmethod
    def rows(self) -> list[Row] | None: ...

    @property
    def table(self) -> str:
        options = f" WITH ({self.options})" if self.options else ""
        return f"CREATE TABLE to_{self.name} ({self.columns}){options}"


class Topic(Output):
    """A topic, as a reader of committed messages sees it."""

    name = "kafka"

    def __init__(self, kafka: Kafka, changes: bool):
        super().__init__(changes)
        self._kafka = kafka
        kafka.make("taken", 1)
        self._seen: list[tuple[bytes | None, bytes | None]] = []
        settings = {
            "bootstrap.servers": kafka.address,
            "group.id": "proof",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
        self._consumer = Consumer(settings)
        self._at = TopicPartition("taken", 0, 0)
        self._consumer.assign([self._at])

    @property
    def options(self) -> str:
        connector = (
            "upsert-kafka', 'key.format' = 'json', 'value.format' = 'json"
            if self.changes
            else "kafka', 'format' = 'json"
        )
        return f"""'connector' = '{connector}', 'topic' = 'taken', 'properties.bootstrap.servers' = '{self._kafka.address}',
            'sink.delivery-guarantee' = 'exactly-once'"""

    def rows(self) -> list[Row] | None:
        with contextlib.suppress(Exception):
            _, end = self._consumer.get_watermark_offsets(self._at, 10)
            while self._consumer.position([self._at])[0].offset < end:
                messages = self._consumer.consume(10_000, 0.2)
                self._seen += [(m.key(), m.value()) for m in messages if m.error() is None]
            return list(self._current())
        return None

    def _current(self) -> Iterable[Row]:
        if not self.changes:
            return [_parsed(value) for _, value in self._seen if value]
        last = dict(self._seen)
        return [_parsed(value) for value in last.values() if value]


def _parsed(value: bytes) -> Row:
    row = json.loads(value)
    return row["id"], row["v"], row["batch"]


class PostgresTable(Output):
    name = "postgresql"

    def __init__(self, postgres: Postgres, changes: bool):
        super().__init__(changes)
        self._postgres = postgres
        key = ", PRIMARY KEY (id)" if changes else ""
        with postgres.connect() as con:
            con.execute(f"CREATE TABLE taken (id BIGINT, v BIGINT, batch TIMESTAMP{key})")

    @property
    def options(self) -> str:
        return f"'connector' = 'postgresql', 'url' = '{self._postgres.address}', 'table' = 'taken'"

    def rows(self) -> list[Row] | None:
        with contextlib.suppress(Exception), self._postgres.connect() as con:
            return con.execute("SELECT id, v, batch FROM taken").fetchall()
        return None


class Delta(Output):
    name = "delta"

    def __init__(self, folder: Path, changes: bool):
        super().__init__(changes)
        self._folder = folder

    @property
    def options(self) -> str:
        return f"'connector' = 'delta', 'path' = '{self._folder}', 'sink.create-table' = 'true'"

    def rows(self) -> list[Row] | None:
        if not (self._folder / "_delta_log").exists():
            return []
        rows = DeltaTable(str(self._folder)).to_pyarrow_table()
        return list(zip(*(rows.column(name).to_pylist() for name in ("id", "v", "batch")), strict=True))


class Iceberg(Output):
    name = "iceberg"

    def __init__(self, folder: Path, changes: bool):
        super().__init__(changes)
        self._folder = folder
        folder.mkdir()
        self._uri = f"sqlite:///{folder}/catalog.db"
        self._catalog = SqlCatalog("default", uri=self._uri, warehouse=f"file://{folder}")
        self._catalog.create_namespace("db")

    @property
    def options(self) -> str:
        return f"""'connector' = 'iceberg', 'catalog.uri' = '{self._uri}', 'catalog.warehouse' = 'file://{self._folder}',
            'table' = 'db.taken', 'sink.create-table' = 'true'"""

    def rows(self) -> list[Row] | None:
        if not self._catalog.table_exists("db.taken"):
            return []
        rows = self._catalog.load_table("db.taken").scan().to_arrow()
        return list(zip(*(rows.column(name).to_pylist() for name in ("id", "v", "batch")), strict=True))


class ParquetFiles(Output):
    """Files appear one by one, each whole."""

    name = "files"
    atomic = False

    def __init__(self, folder: Path):
        super().__init__(False)
        self._folder = folder

    @property
    def options(self) -> str:
        return f"'connector' = 'filesystem', 'path' = '{self._folder}', 'format' = 'parquet'"

    def rows(self) -> list[Row] | None:
        if not list(self._folder.glob("*.parquet")):
            return []
        return duckdb.execute(f"SELECT id, v, batch FROM read_parquet('{self._folder}/*.parquet')").fetchall()


class WarehouseTable(Output):
    name = "warehouse"
    options = ""

    def __init__(self, warehouse: Path, changes: bool):
        super().__init__(changes)
        self._warehouse = Warehouse(str(warehouse))

    def rows(self) -> list[Row] | None:
        with contextlib.suppress(Exception):
            return open_query(self._warehouse, "SELECT id, v, batch FROM to_warehouse").fetchall()
        return None


class Looks:
    """What was seen of an output: how many rows each batch had at each look, so that half a batch is found out in the end."""

    def __init__(self, output: Output):
        self.output = output
        self.looks = 0
        self._counts: list[Counter[Any]] = []
        self.wrong: list[str] = []

    def look(self) -> None:
        """Look once; of changing accounts the sum must be zero."""
        rows = self.output.rows()
        if rows is None:
            return
        self.looks += 1
        if self.output.changes:
            if total := sum(v for _, v, _ in rows):
                self.wrong.append(f"a transaction in part: the accounts have {total}")
        elif self.output.atomic:
            self._counts.append(Counter(batch for *_, batch in rows))

    def judge(self, expected: set[tuple[int, int]]) -> str:
        """Return what is wrong in the end, empty where nothing is."""
        rows = self.output.rows()
        if rows is None:
            return "it cannot be read"
        found = Counter((id, v) for id, v, _ in rows)
        lost, twice = len(expected - set(found)), sum(n - 1 for n in found.values())
        strange = len(set(found) - expected)
        final = Counter(batch for *_, batch in rows)
        parts = sum(n != final[batch] for counts in self._counts for batch, n in counts.items())
        wrong = [
            f"{lost} lost" if lost else "",
            f"{twice} twice" if twice else "",
            f"{strange} strange" if strange else "",
        ]
        wrong += [f"{parts} batches seen in part" if parts else "", *self.wrong[:1]]
        return ", ".join(filter(None, wrong))

    def is_complete(self, expected: set[tuple[int, int]]) -> bool:
        rows = self.output.rows()
        return rows is not None and {(id, v) for id, v, _ in rows} >= expected
