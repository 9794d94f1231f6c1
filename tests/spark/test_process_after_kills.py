"""A process function on Spark, killed on the way: each row counts once in its state, in every bucket if it is broadcast; timers
fire once.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.processes import SECONDS, kill_group, wait_with
from tests.spark.orders import start, version

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES, ROWS = 8, 400
FUNCTION = """
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import add

from sqlstream import Context, ListState, MapState, ReducingState, Row, ValueState, process, state, table


@dataclass
class Told:
    what: str
    id: int
    total: int


@process
class Ledger:
    total: ValueState[int] = state()
    ids: ListState[int] = state()
    last: MapState[int, int] = state()
    marked: ReducingState[int] = state(broadcast=True, reduce=add)
    marks: ListState[int] = state(broadcast=True)

    @table(broadcast=True)
    def marking(self, ctx: Context, row: Row) -> None:
        self.marked.add(row.id)
        self.marks.append(row.id)
        ctx.count("marks")

    @table
    def events(self, ctx: Context, row: Row) -> Iterator[Told]:
        self.total.value = (self.total.value or 0) + row.id
        self.ids.append(row.id)
        self.last[row.id % 3] = row.id
        ctx.timers.at(ctx.event_time + timedelta(seconds=1))
        ctx.timers.at(datetime(2030, 1, 1), "end")
        ctx.count("rows")
        yield Told("row", row.id, self.total.value)

    def on_timer(self, ctx: Context) -> Iterator[Told]:
        if ctx.timer.name == "end":
            for number, id in enumerate(self.ids):
                yield Told("item", id, number)
            for key, id in self.last.items():
                yield Told("last", id, key)
            yield Told("marks", self.marked.value, len(self.marks))
        else:
            yield Told("timer", int((ctx.timer.time - datetime(2026, 1, 1)) / timedelta(milliseconds=1)), 0)
"""
SCRIPT = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE events (k STRING, id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'filesystem', 'path' = 'events', 'format' = 'parquet', 'source.max-files-per-batch' = '1');
CREATE TABLE marks (id BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'marks', 'format' = 'parquet', 'source.max-files-per-batch' = '1');
CREATE TABLE told (k STRING, what STRING, id BIGINT, total BIGINT);
INSERT INTO told SELECT k, what, id, total FROM ledger(
    TABLE marks BROADCAST, TABLE events PARTITION BY k, on_time => DESCRIPTOR(ts), uid => 'ledger');
"""
# By the order of files, then rows: that of the ids.
EXPECTED = """
SELECT k, 'row', id, sum(id) OVER (PARTITION BY k ORDER BY id)::BIGINT FROM events
UNION ALL SELECT k, 'item', id, row_number() OVER (PARTITION BY k ORDER BY id) - 1 FROM events
UNION ALL SELECT k, 'last', max(id), id % 3 FROM events GROUP BY k, id % 3
UNION ALL SELECT DISTINCT k, 'timer', epoch_ms(ts) - epoch_ms(TIMESTAMP '2026-01-01') + 1000, 0 FROM events
UNION ALL SELECT DISTINCT k, 'marks', (SELECT sum(id) FROM marks)::BIGINT, (SELECT count(*) FROM marks) FROM events
ORDER BY ALL
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with events of 50 keys, one of them NULL, that are up to 50 seconds out of order."""
    (tmp_path / "events").mkdir()
    (tmp_path / "marks").mkdir()
    with duckdb.connect() as con:
        for number in range(FILES):
            path = tmp_path / "events" / f"{number}.parquet"
            con.execute(
                f"""COPY (
                    SELECT nullif('k' || hash(i) % 50, 'k7') AS k, i AS id,
                        TIMESTAMP '2026-01-01' + to_milliseconds(CAST(i * 100 + hash(i, 1) % 500 * 100 AS BIGINT)) AS ts
                    FROM range({number * ROWS}, {(number + 1) * ROWS}) t(i)
                ) TO '{path}' (FORMAT parquet)"""
            )
            os.utime(path, (1_700_000_000 + number,) * 2)
            con.execute(
                f"COPY (SELECT {number} + i AS id FROM range(5) t(i)) TO '{tmp_path}/marks/{number}.parquet' (FORMAT parquet)"
            )
    (tmp_path / "orders.sql").write_text(SCRIPT)
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "ledger.py").write_text(FUNCTION)
    return tmp_path


@pytest.mark.thorough
def test_a_process_function_goes_on_after_kills(project: Path) -> None:
    warehouse = Warehouse(str(project / "warehouse"))
    for _ in range(2):
        # There are at least as many batches as files.
        wanted = min(version(project, "told") + 2, FILES - 1)
        run = start(project, "--set-table", "events.source.monitor-interval=100 ms")
        wait_with(run, lambda wanted=wanted: version(project, "told") >= wanted)
        kill_group(run)
    run = start(project)
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    with duckdb.connect() as con:
        for name in ("events", "marks"):
            con.execute(f"CREATE VIEW {name} AS FROM '{project}/{name}/*.parquet'")
        expected = con.execute(EXPECTED).fetchall()
    assert len(expected) > FILES * ROWS * 2
    assert open_query(warehouse, "SELECT * FROM told ORDER BY ALL").fetchall() == expected
    assert open_query(warehouse, "SELECT counters FROM sqlstream.operators").fetchall() == [
        ({"marks": FILES * 5, "rows": FILES * ROWS},)
    ]
    assert open_query(warehouse, "SELECT count(*) FROM state.told.ledger_timers").fetchall() == [(0,)]
    assert open_query(warehouse, "SELECT count(*) FROM state.told.ledger_ids").fetchall() == [(FILES * ROWS,)]
    assert open_query(warehouse, "SELECT count(*) FROM state.told.ledger_marks").fetchall() == [(FILES * 5,)]
