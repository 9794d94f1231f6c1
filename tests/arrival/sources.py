"""Sources of the rows: files, topics, a class of the user's, changes of tables of PostgreSQL and MariaDB, and VALUES."""

from __future__ import annotations

import json
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from sqlstream.connectors import Source
from tests.arrival.cases import CASES, COLUMNS, WATERMARK, Case, Row
from tests.connectors.kafka.topics import Topic
from tests.mariadb_server import MySQLDatabase
from tests.postgres_server import Database

# Rows of a file, and of a batch of other sources: all rows take many batches.
SOME = 30
_TO_LATEST = {"scan.bounded.mode": "latest-offset"}


class JsonLines(Source):
    """The rows of a file of JSON, a few at a time."""

    def __init__(self, file: str, most: str):
        self.file, self.most = file, int(most)

    def _lines(self) -> list[str]:
        with open(self.file) as file:
            return file.read().splitlines()

    def latest_position(self, partition: str) -> int:
        return len(self._lines())

    def batch_end(self, partition: str, start: int, latest: int) -> int:
        return min(start + self.most, latest)

    def read(self, partition: str, start: int, end: int) -> pa.Table:
        rows = [json.loads(line) for line in self._lines()[start:end]]
        times = pa.array([datetime.fromisoformat(row["ts"]) for row in rows], pa.timestamp("us"))
        return pa.table({name: [row[name] for row in rows] for name in ("k", "v", "n")} | {"ts": times})


class Feed(ABC):
    """A source that gets rows; `t` has them, and `versions` has them as the versions of their keys."""

    # Whether it takes rows back.
    changes = False
    has_watermark = True
    # The PRIMARY KEY of `t`.
    key = ""
    # Options of tables that are looked at again and again, and of those that end where they end now.
    live: Mapping[str, str] = {"source.monitor-interval": "0 s"}
    ending: Mapping[str, str] = {}

    def cases(self) -> tuple[Case, ...]:
        """Return the cases that can be asked of it."""
        return tuple(
            case for case in CASES if (self.has_watermark or not case.watermark) and not (self.changes and case.appends)
        )

    @abstractmethod
    def put(self, rows: Sequence[Row]) -> None:
        """Add rows behind those that there are."""

    @abstractmethod
    def options(self, table: str) -> dict[str, str]:
        """Return the options of a table."""

    def tables(self, *, live: bool) -> str:
        """Return the declarations of both tables, which end where they end now, or are `live`."""
        return f"{self._table('t', self.key, live)}{self._table('versions', 'k', live)}"

    def _table(self, name: str, key: str, live: bool) -> str:
        options = {**self.options(name), **(self.live if live else self.ending)}
        listed = ", ".join(f"'{option}' = '{value}'" for option, value in options.items())
        keyed = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
        return f"CREATE TABLE {name} ({COLUMNS}, p AS PROCTIME(), {WATERMARK}{keyed}) WITH ({listed});\n"


def _objects(rows: Sequence[Row]) -> Iterator[dict[str, object]]:
    return (dict(zip(("k", "v", "n", "ts"), row, strict=True)) for row in rows)


def _lines(rows: Sequence[Row]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in _objects(rows))


class Files(Feed):
    """Files of JSON, two in a batch."""

    def __init__(self, folder: Path):
        self._folder, self._count = folder / "in", 0
        self._folder.mkdir()

    def put(self, rows: Sequence[Row]) -> None:
        for some in _batched(rows, SOME // 2):
            # The names are in another order than the times.
            path = self._folder / f"{999 - self._count}.json"
            path.with_suffix(".next").write_text(_lines(some))
            os.utime(path.with_suffix(".next"), (1_700_000_000 + self._count,) * 2)
            path.with_suffix(".next").rename(path)
            self._count += 1

    def options(self, table: str) -> dict[str, str]:
        path = f"{self._folder}/*.json"
        return {"connector": "filesystem", "path": path, "format": "json", "source.max-files-per-batch": "2"}


def _batched(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    return (rows[begin : begin + size] for begin in range(0, len(rows), size))


class Messages(Feed):
    """Messages of a topic; all of a key are in one partition."""

    live: Mapping[str, str] = {}
    ending = _TO_LATEST

    def __init__(self, servers: str, partitions: int):
        self.topic, self._partitions = Topic(servers, partitions), partitions

    def put(self, rows: Sequence[Row]) -> None:
        for row in _objects(rows):
            self.topic.add(row, partition=zlib.crc32(str(row["k"]).encode()) % self._partitions)
        self.topic.send()

    def options(self, table: str) -> dict[str, str]:
        return {
            "connector": "kafka",
            "topic": self.topic.name,
            "format": "json",
            "properties.bootstrap.servers": self.topic.servers,
            "scan.startup.mode": "earliest-offset",
            "scan.max-rows-per-batch": str(SOME),
        }


class OwnSource(Feed):
    """A class of the user's."""

    def __init__(self, folder: Path, module: str = __name__):
        self._file, self._module = folder / "rows.jsonl", module
        self._file.touch()

    def put(self, rows: Sequence[Row]) -> None:
        with self._file.open("a") as file:
            file.write(_lines(rows))

    def options(self, table: str) -> dict[str, str]:
        name = f"{self._module}.{JsonLines.__name__}"
        return {"connector": "python", "class": name, "file": str(self._file), "most": str(SOME)}


class Changes(Feed):
    """A table of a PostgreSQL server, with its changes: rows that are there at the start, and what comes by its log."""

    changes = True
    key = "n"
    ending = _TO_LATEST

    def __init__(self, database: Database):
        self._database = database
        columns = "(k text, v int, n int, ts timestamp(3), PRIMARY KEY ({}))"
        for table, key in (("t", "n"), ("versions", "k")):
            whole = f"ALTER TABLE {table} REPLICA IDENTITY FULL"
            database.run(f"CREATE TABLE {table} {columns.format(key)}", whole)

    def put(self, rows: Sequence[Row]) -> None:
        values = [f"('{k}', {v}, {n}, '{ts}')" for k, v, n, ts in rows]
        newest = "ON CONFLICT (k) DO UPDATE SET v = excluded.v, n = excluded.n, ts = excluded.ts"
        self._database.run(
            f"INSERT INTO t VALUES {', '.join(values)}",
            "; ".join(f"INSERT INTO versions VALUES {value} {newest}" for value in values),
        )

    def options(self, table: str) -> dict[str, str]:
        return {
            "connector": "postgres-cdc",
            "url": self._database.url,
            "table-name": table,
            "source.max-rows-per-batch": str(SOME),
            "source.monitor-interval": "0 s",
        }


class MySQLChanges(Feed):
    """A table of a MariaDB server, with its changes, by its binary log."""

    changes = True
    key = "n"
    ending = _TO_LATEST

    def __init__(self, database: MySQLDatabase):
        self._database = database
        columns = "(k varchar(20), v int, n int, ts datetime(3), PRIMARY KEY ({}))"
        database.run(*(f"CREATE TABLE {table} {columns.format(key)}" for table, key in (("t", "n"), ("versions", "k"))))

    def put(self, rows: Sequence[Row]) -> None:
        values = [f"('{k}', {v}, {n}, '{ts}')" for k, v, n, ts in rows]
        newest = "ON DUPLICATE KEY UPDATE v = VALUES(v), n = VALUES(n), ts = VALUES(ts)"
        versions = [f"INSERT INTO versions VALUES {value} {newest}" for value in values]
        self._database.run(f"INSERT INTO t VALUES {', '.join(values)}", "BEGIN", *versions, "COMMIT")

    def options(self, table: str) -> dict[str, str]:
        return {
            "connector": "mysql-cdc",
            "url": self._database.url,
            "table-name": table,
            "source.max-rows-per-batch": str(SOME),
            "source.monitor-interval": "0 s",
        }


class Constants(Feed):
    """VALUES, which have no watermark."""

    has_watermark = False

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def put(self, rows: Sequence[Row]) -> None:
        self._rows += rows

    def options(self, table: str) -> dict[str, str]:
        return {}

    def tables(self, *, live: bool) -> str:
        rows = ", ".join(f"('{k}', {v}, {n}, TIMESTAMP '{ts}')" for k, v, n, ts in self._rows)
        return f"CREATE VIEW t AS SELECT *, PROCTIME() AS p FROM (VALUES {rows}) AS rows (k, v, n, ts);\n"


# What `feed_of` takes: a topic by the number of its partitions.
SOURCES = [
    "files",
    "python",
    pytest.param("1", id="topic", marks=pytest.mark.kafka),
    pytest.param("3", id="topic-of-3", marks=pytest.mark.kafka),
    "changes",
    "mysql-changes",
]


def feed_of(request: pytest.FixtureRequest, folder: Path, module: str = __name__) -> Iterator[Feed]:
    """Yield the source that the parameter of a fixture names, in a folder; `module` is where the user's class is."""
    match request.param:
        case "files":
            yield Files(folder)
        case "python":
            yield OwnSource(folder, module)
        case "changes":
            database = request.getfixturevalue("postgres").database()
            yield Changes(database)
            database.drop_slots()
        case "mysql-changes":
            yield MySQLChanges(request.getfixturevalue("mariadb").database())
        case partitions:
            yield Messages(request.getfixturevalue("kafka"), int(partitions))
