"""How many rows a second the sinks of databases write, and what that takes of the processor, there and in the job.

The sinks are those of jobs, in this process; they get batches as jobs hand them over. A table without a key takes rows only. One
with a key gets changes: first keys that it does not have, then new rows of keys that it has, each key once in a batch, all over
the table. The servers are on the same machine. They are those of the tests, which keep too little on the disk, and MariaDB in
too little memory: here both do as their makers have set them.
"""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psutil

from sqlstream.catalog import Column, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.registry import sink_of
from sqlstream.connectors.relational.writer import DatabaseSink, DatabaseWriter
from sqlstream.duck.sql import quote_text
from sqlstream.storage.zsets import WEIGHT
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests import mariadb_server, postgres_server

APPENDED, NEW, KNOWN = "without a key", "new keys", "known keys"
# Of each kind; the first is for warming up.
BATCHES = 6
COLUMNS = (
    Column("id", "BIGINT"),
    Column("customer", "VARCHAR"),
    Column("amount", "DECIMAL(12, 2)"),
    Column("orders", "BIGINT"),
    Column("last_at", "TIMESTAMP"),
)
ROW = """
id, 'customer ' || id % 100000 AS customer, (id % 1000000 / 100)::DECIMAL(12, 2) AS amount, {orders}::BIGINT AS orders,
TIMESTAMP '2026-01-01' + to_milliseconds(id) AS last_at
"""


@dataclass(frozen=True, slots=True)
class SinkRun:
    """What was measured: the median of the batches' rows a second, and microseconds of the processor for a row.

    `server` is what the server takes, with all that it does meanwhile, None where the database is a file.
    """

    connector: str
    kind: str
    rows_per_second: float
    batch_ms: float
    job: float
    server: float | None

    @property
    def text(self) -> str:
        there = "" if self.server is None else f", of the server {self.server:.1f} us"
        return (
            f"{self.connector}, {self.kind}: {self.rows_per_second:,.0f} rows/s, {self.batch_ms:,.0f} ms a batch;"
            f" processor time of the job {self.job:.1f} us a row{there}"
        )


@dataclass(frozen=True, slots=True)
class _Database:
    """A database: the options of a table in it, how to count a table's rows, and the process of its server."""

    connector: str
    options: Mapping[str, str]
    count: Callable[[str], int]
    server: psutil.Process | None = None


@dataclass(frozen=True, slots=True)
class _Spent:
    """Seconds of a batch: by the clock, of the processor here, and of the server's."""

    seconds: float
    job: float
    server: float


def missing(connector: str) -> str | None:
    """Return why a database cannot be measured here."""
    if connector == "mysql" and not mariadb_server.is_fetched():
        return "`make mariadb` fetches its server"
    return None


def measure(folder: Path, connector: str, rows: int, runs: int) -> list[SinkRun]:
    """Write batches of so many rows into a database, as often as is asked for; the medians are those of all runs."""
    files = _files(folder, rows)
    every: dict[str, list[_Spent]] = {kind: [] for kind in files}
    with OPEN[connector](folder) as database:
        for run in range(runs):
            for table, key, kinds in ((f"plain_{run}", (), (APPENDED,)), (f"keyed_{run}", ("id",), (NEW, KNOWN))):
                paths = [path for kind in kinds for path in files[kind]]
                spent = _fill(folder, database, table, key, paths)
                for number, kind in enumerate(kinds):
                    every[kind] += spent[number * BATCHES + 1 : (number + 1) * BATCHES]
                if (count := database.count(table)) != rows * BATCHES:
                    raise RuntimeError(f"{connector}: {table} has {count} rows, not {rows * BATCHES}")
        has_server = database.server is not None
    return [_result(connector, kind, rows, spent, has_server=has_server) for kind, spent in every.items()]


def _result(connector: str, kind: str, rows: int, spent: Sequence[_Spent], *, has_server: bool) -> SinkRun:
    median = statistics.median(one.seconds for one in spent)
    # Now and then a server writes what other batches have left to it: a median would not have that.
    job, server = (
        statistics.mean(times) / rows * 1e6 for times in zip(*((s.job, s.server) for s in spent), strict=True)
    )
    return SinkRun(connector, kind, rows / median, median * 1000, job, server if has_server else None)


def _fill(folder: Path, database: _Database, table: str, key: tuple[str, ...], paths: Sequence[str]) -> list[_Spent]:
    """Write files into a table, each as a batch; return what each took."""
    with _writer(folder, database, table, key) as writer:
        batches = [Batch(number, COLUMNS, (path,), bool(key), key) for number, path in enumerate(paths)]
        return [_written(writer, database, batch) for batch in batches]


def _files(folder: Path, rows: int) -> dict[str, list[str]]:
    """Write the batches of each kind into files, once for all databases."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {}
    for kind in (APPENDED, NEW, KNOWN):
        for number in range(BATCHES):
            path = folder / f"{kind.replace(' ', '_')}-{number}.parquet"
            if not path.exists():
                duckdb.sql(f"COPY ({_rows(kind, number, rows)}) TO {quote_text(str(path))} (FORMAT parquet)")
            found.setdefault(kind, []).append(str(path))
    return found


def _rows(kind: str, number: int, rows: int) -> str:
    """Return the query of a batch: its rows, of a changing one with weights, and what it takes away."""
    new, old = (f"SELECT {ROW.format(orders=orders)}" for orders in (number + 2, number + 1))
    if kind == KNOWN:
        touched = f"SELECT range AS id FROM range({rows * BATCHES}) ORDER BY hash(range, {number}) LIMIT {rows}"
        return (
            f"WITH touched AS MATERIALIZED ({touched})"
            f" {new}, 1 AS {WEIGHT} FROM touched UNION ALL {old}, -1 AS {WEIGHT} FROM touched"
        )
    weight = f", 1 AS {WEIGHT}" if kind == NEW else ""
    return f"{new}{weight} FROM (SELECT range * {BATCHES} + {number} AS id FROM range({rows}))"


@contextmanager
def _writer(folder: Path, database: _Database, name: str, key: tuple[str, ...]) -> Iterator[DatabaseWriter]:
    """Open the sink of a table, which it creates."""
    options = {"connector": database.connector, "table": name, "sink.create-table": "true", **database.options}
    sink = sink_of(Table(name, COLUMNS, primary_key=key, options=options))
    assert isinstance(sink, DatabaseSink)
    records = folder / "records" / database.connector / name
    writer = sink.open(SinkContext(LocalFilesystem(), str(folder), str(records), job="bench"))
    try:
        writer.recover()
        yield writer
    finally:
        writer.close()


def _written(writer: DatabaseWriter, database: _Database, batch: Batch) -> _Spent:
    there, here, began = _processor(database.server), time.process_time(), time.perf_counter()
    writer.write(batch)
    return _Spent(time.perf_counter() - began, time.process_time() - here, _processor(database.server) - there)


def _processor(server: psutil.Process | None) -> float:
    """Return the seconds that a server has taken of the processor, with its processes that are there and that have ended."""
    if server is None:
        return 0.0
    times = server.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in server.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            of_child = child.cpu_times()
            total += of_child.user + of_child.system
    return float(total)


@contextmanager
def _postgresql(folder: Path) -> Iterator[_Database]:
    with postgres_server.started() as server:
        database = server.database()
        database.run("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
        [(data,)] = database.run("SHOW data_directory")
        pid = int(Path(data, "postmaster.pid").read_text().splitlines()[0])
        yield _Database(
            "postgresql", {"url": database.url}, lambda table: _one(database.run(_count(table))), psutil.Process(pid)
        )


@contextmanager
def _mysql(folder: Path) -> Iterator[_Database]:
    with mariadb_server.started() as server:
        server.administration().run(
            "SET GLOBAL innodb_buffer_pool_size = 128 << 20",
            "SET GLOBAL innodb_log_file_size = 96 << 20",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
            "SET GLOBAL max_allowed_packet = 16 << 20",
        )
        database = server.database()
        yield _Database(
            "mysql", {"url": database.url}, lambda table: _one(database.run(_count(table))), psutil.Process(server.pid)
        )


@contextmanager
def _sqlite(folder: Path) -> Iterator[_Database]:
    path = str(folder / "written.sqlite")

    def count(table: str) -> int:
        with closing(sqlite3.connect(path)) as con:
            return _one(con.execute(_count(table)).fetchall())

    yield _Database("sqlite", {"path": path}, count)


@contextmanager
def _duckdb(folder: Path) -> Iterator[_Database]:
    path = str(folder / "written.duckdb")

    def count(table: str) -> int:
        with duckdb.connect(path) as con:
            return _one(con.execute(_count(table)).fetchall())

    yield _Database("duckdb", {"path": path}, count)


def _count(table: str) -> str:
    return f"SELECT count(*) FROM {table}"


def _one(rows: Sequence[tuple[object, ...]]) -> int:
    [(value,)] = rows
    return int(str(value))


OPEN: dict[str, Callable[[Path], AbstractContextManager[_Database]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "sqlite": _sqlite,
    "duckdb": _duckdb,
}
