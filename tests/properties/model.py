"""A query over a history twice: by the in-process runner, and by DuckDB over all rows that were not late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import duckdb

from sqlstream.operators.process import large_keys
from sqlstream.runtime import fragments as execute
from sqlstream.runtime import frames
from sqlstream.storage import bucket as tables
from sqlstream.storage import compaction, point_reads
from sqlstream.testing import Stream
from tests.properties.strategies import Batch, Query, Restart, Row, Step, window_end

Bag = Counter[tuple[object, ...]]


@cache
def connection() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": 1})
    con.execute("SET TimeZone = 'UTC'")
    return con


@contextmanager
def batch_tables(rows: dict[str, list[Row]]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with tables a and b that hold some rows."""
    con = connection()
    for table in "ab":
        con.execute(f"CREATE OR REPLACE TEMP TABLE {table} (k BIGINT, x BIGINT, s VARCHAR, ts TIMESTAMP)")
        for row in rows.get(table, ()):
            con.execute(f"INSERT INTO {table} VALUES (?, ?, ?, make_timestamp(?))", row)
    yield con


def batch_answer(query: Query, rows: dict[str, list[Row]]) -> Bag:
    """Return DuckDB's answer over all rows."""
    with batch_tables(rows) as con:
        return bag(con.execute(query.batch()).fetchall())


def bag(rows: Iterable[Sequence[Any]]) -> Bag:
    return Counter(tuple(map(_hashable, row)) for row in rows)


def _hashable(value: object) -> object:
    # -0.0 and 0.0 are equal, and a DECIMAL of a HUGEINT equals an int.
    return repr(value) if isinstance(value, list | dict) else value


class Model:
    """Which rows are late, by the rule: the watermark of the batches before had passed the end of the row's window."""

    def __init__(self, query: Query, delays: dict[str, int]):
        self.query, self.delays = query, delays
        self.watermarks: dict[str, int | None] = dict.fromkeys(query.tables)
        self.accepted: dict[str, list[Row]] = {"a": [], "b": []}
        self.late: dict[str, list[Row]] = {"a": [], "b": []}

    @property
    def watermark(self) -> int | None:
        """The least of the tables' watermarks, in whole milliseconds, as Spark keeps it."""
        marks = [m for m in self.watermarks.values() if m is not None]
        return min(marks) if len(marks) == len(self.watermarks) else None

    def batch(self, batch: Batch) -> None:
        watermark = self.watermark
        for table in self.query.tables:
            for row in batch.of(table):
                if row[3] is None:
                    continue
                late = watermark is not None and window_end(row[3], self.query) <= watermark
                (self.late if late else self.accepted)[table].append(row)
                # Spark is told no time outside of the years 1 to 9999, and the watermark never falls.
                mark = min(row[3] - self.delays[table], _LAST) // 1000 * 1000
                if mark > _FIRST:
                    self.watermarks[table] = max(self.watermarks[table] or mark, mark)

    def late_rows(self) -> int:
        """Return how often a late row reached the operator: once for every branch whose condition it meets."""
        with batch_tables(self.late) as con:
            [(count,)] = con.execute(f"SELECT count(*) FROM ({self.query.source})").fetchall()
            return int(count)

    def split(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Return the accepted rows of closed and of open windows."""
        watermark = self.watermark
        closed: dict[str, list[Row]] = {"a": [], "b": []}
        opened: dict[str, list[Row]] = {"a": [], "b": []}
        for table, rows in self.accepted.items():
            for row in rows:
                passed = watermark is not None and window_end(row[3] or 0, self.query) <= watermark
                (closed if passed else opened)[table].append(row)
        return closed, opened


_FIRST = -62_135_596_800_000_000
_LAST = 253_402_300_799_999_000


def stream_of(
    query: Query, delays: dict[str, int], parallelism: int = 1, options: dict[str, str] | None = None
) -> Stream:
    """Return a stream with the query's result in table `out`."""
    with batch_tables({}) as con:
        columns = con.execute(f"DESCRIBE {query.batch()}").fetchall()
    declared = "".join(
        f"CREATE TABLE {t} (k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, "
        f"WATERMARK FOR ts AS ts - INTERVAL '{delays[t]}' MICROSECOND);"
        for t in "ab"
    )
    out = ", ".join(f'"{name}" {type}' for name, type, *_ in columns)
    script = f"{declared} CREATE TABLE out ({out}); INSERT INTO out {query.streaming()}"
    return Stream(script, parallelism=parallelism, options=options)


def play(stream: Stream, query: Query, step: Step) -> None:
    """Run one step; rows of tables that the query does not read are left out."""
    if isinstance(step, Restart):
        stream.restart()
        return
    given = {t: [(*r[:3], _text(r[3])) for r in step.of(t)] for t in query.tables if dict(step.rows).get(t) is not None}
    if given:
        stream.batches(given)


@cache
def _text(micros: int | None) -> str | None:
    if micros is None:
        return None
    [(text,)] = connection().execute("SELECT make_timestamp(?)::VARCHAR", [micros]).fetchall()
    return str(text)


def emitted(stream: Stream) -> Bag:
    return bag(stream.rows("out"))


@contextmanager
def limits(*, small: bool) -> Iterator[None]:
    """With `small`, every frame becomes a segment, two segments are compacted, and results leave two rows at a time.

    Maps are large then: an entry that is asked for is read alone.
    """
    if not small:
        yield
        return
    with (
        patch.object(frames, "INLINE_BYTES", 0),
        patch.object(compaction, "FAN", 2),
        patch.object(tables, "PENDING_BYTES", 1),
        patch.object(execute, "BATCH_ROWS", 2),
        patch.object(large_keys, "LARGE", 0),
        patch.object(large_keys, "ENTRIES", 0),
        patch.object(point_reads, "SMALL_ROWS", 2),
    ):
        yield
