"""Operators by their contract alone: tables and a clock in, tables out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.duck.sql import Select, quoted, typed
from sqlstream.operators.operator import Port, StepTimes
from sqlstream.physical.plan import Lookup
from sqlstream.runtime.fragments import part_queries, set_times
from sqlstream.storage.bucket import Bucket
from sqlstream.units import END_OF_INPUT, NO_TIME, EventTime, from_millis
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.kinds import last_job

TABLES = """
CREATE TABLE a (k STRING, x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
CREATE TABLE b (k STRING, y BIGINT, since TIMESTAMP, PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR since AS since)
WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'json');
"""
WINDOW = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
QUERIES = {
    "tumbling windows": f"SELECT k, window_end, sum(x) AS s FROM {WINDOW} GROUP BY k, window_start, window_end",
    "hopping windows": "SELECT k, window_end, sum(x) AS s FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND,"
    " INTERVAL '10' SECOND) GROUP BY k, window_start, window_end",
    "sessions": "SELECT k, window_end, sum(x) AS s FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND)"
    " GROUP BY k, window_start, window_end",
    "lateness": f"SELECT /*+ ALLOWED_LATENESS('1 min') */ k, sum(x) AS s FROM {WINDOW} GROUP BY k, window_start, window_end",
    "ranks in windows": f"SELECT * FROM (SELECT k, x, row_number() OVER (PARTITION BY window_start, window_end ORDER BY x DESC)"
    f" AS n FROM {WINDOW}) WHERE n <= 2",
    "aggregates": "SELECT k, sum(x) AS s, max(x) AS m FROM a GROUP BY k",
    "ranks": "SELECT k, x FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS n FROM a) WHERE n = 1",
    "rows in order": "SELECT k, x, sum(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '9' SECOND PRECEDING AND"
    " CURRENT ROW) AS s FROM a",
    "regular joins": "SELECT a.k, x, y FROM a JOIN b ON a.k = b.k",
    "interval joins": "SELECT a.k, x, y FROM a LEFT JOIN b ON a.k = b.k AND b.since BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts",
    "temporal joins": "SELECT a.k, x, y FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k",
}
A = [("u", 1, "10:00:01"), ("v", 2, "10:00:02"), ("u", 3, "10:00:04"), ("v", 9, "10:00:12"), ("u", 5, "10:00:13")]
B = [("u", 10, "10:00:00"), ("v", 20, "10:00:01"), ("u", 30, "10:00:03"), ("w", 40, "10:00:09")]

# Opening a database takes longer than most tests here.
CON = duckdb.connect()


class Driven:
    """The first operator of a query over `a` (and `b`), in one bucket, batch after batch."""

    def __init__(self, query: str, folder: Path):
        self.plan = last_job(f"{TABLES} {query}").physical
        self.stage = self.plan.stages[0]
        self.operator = self.stage.operator
        self.folder = str(folder)
        self.con = CON.cursor()
        self.manifest: str | None = None
        self.batch = 0

    def step(self, given: Sequence[pa.Table], watermark: EventTime | None) -> list[tuple[object, ...]]:
        """Advance by a batch of rows of `a` and `b`; return the rows that leave, in the form in which they are stored."""
        set_times(self.con, from_millis(self.batch * 1000), watermark)
        state = Bucket.open(LocalFilesystem(), self.folder, 0, self.operator.tables, self.manifest, NO_TIME)
        times = StepTimes(self.batch, watermark, from_millis(self.batch * 1000))
        found = self.operator.step(self.con, state, self.inputs(given), times)
        tables = [rows for rows in found if isinstance(rows, pa.RecordBatch)]
        self.manifest = state.commit(self.con, self.batch, times.time, watermark)
        self.batch += 1
        if not tables:
            return []
        self.con.register("_changes", pa.Table.from_batches(tables))
        left = self.con.sql(f"SELECT {typed(self.operator.outputs)} FROM _changes").fetchall()
        self.con.unregister("_changes")
        return left

    def inputs(self, given: Sequence[pa.Table]) -> list[tuple[Port, pa.Table]]:
        arrived = []
        for scan, rows in zip(self.plan.scans, given, strict=False):
            for fragment in scan.fragments:
                if not rows.num_rows or fragment.exchange is None:
                    continue
                self.con.register("_given", rows)
                # All rows came at the same time.
                values = ((0 if c == ARRIVED else c.name, c) for c in scan.table.physical)
                items = ", ".join(f"CAST({value} AS {c.type}) AS {c.name}" for value, c in values)
                source = Select(f"WITH _input AS (SELECT {items} FROM _given) {scan.columns}")
                ports = dict(fragment.exchange.ports)
                for name, sql in part_queries(self.con, fragment, source, _find):
                    arrived.append((self.stage.ports[ports[name]], self.con.sql(sql).to_arrow_table()))
                self.con.unregister("_given")
        return arrived

    def current(self) -> list[str]:
        """Return the columns of the view over state tables without rows."""
        for table in self.operator.tables:
            columns = ", ".join(f"{c.name} {c.type}" for c in table.columns)
            self.con.execute(f'CREATE OR REPLACE TEMP TABLE "{table.name}" ({columns})')
        relations = {table.name: quoted(table.name) for table in self.operator.tables}
        shown = self.con.sql(self.operator.current(relations, "CAST(NULL AS BIGINT)"))
        assert shown.fetchall() == []
        return shown.columns


def _find(lookup: Lookup, keys: pa.Table) -> pa.Table:
    raise AssertionError("nothing is looked up")


def table(rows: Sequence[tuple[str, int, str]], names: Sequence[str]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [columns[0], columns[1], [f"2026-01-01 {time}" for time in columns[2]]]
    types = [pa.string(), pa.int64(), pa.string()]
    return pa.table([pa.array(a, t) for a, t in zip(arrays, types, strict=True)], names=list(names))


def both(a: Sequence[tuple[str, int, str]], b: Sequence[tuple[str, int, str]]) -> list[pa.Table]:
    return [table(a, ["k", "x", "ts"]), table(b, ["k", "y", "since"])]


def summed(rows: Sequence[tuple[object, ...]], driven: Driven) -> dict[tuple[object, ...], int]:
    """Return what changes add up to; rows without a weight count once."""
    weighted = driven.operator.outputs[-1].name == "__sqlstream_weight"
    total: dict[tuple[object, ...], int] = {}
    for row in rows:
        key, weight = (row[:-1], row[-1]) if weighted else (row, 1)
        assert isinstance(weight, int)
        total[key] = total.get(key, 0) + weight
    return {row: count for row, count in total.items() if count}


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_the_order_of_rows_and_their_batches_do_not_matter(query: str, tmp_path: Path) -> None:
    at_once = Driven(query, tmp_path / "once")
    wanted = summed([*at_once.step(both(A, B), None), *at_once.step(both([], []), END_OF_INPUT)], at_once)
    assert wanted
    backwards = Driven(query, tmp_path / "backwards")
    assert (
        summed([*backwards.step(both(A[::-1], B[::-1]), None), *backwards.step(both([], []), END_OF_INPUT)], backwards)
        == wanted
    )
    one_by_one = Driven(query, tmp_path / "parts")
    rows = [row for given in A for row in one_by_one.step(both([given], []), None)]
    rows += [row for given in B for row in one_by_one.step(both([], [given]), None)]
    assert summed([*rows, *one_by_one.step(both([], []), END_OF_INPUT)], one_by_one) == wanted


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_nothing_happens_when_nothing_is_due(query: str, tmp_path: Path) -> None:
    driven = Driven(query, tmp_path)
    driven.step(both(A, B), None)
    assert driven.step(both([], []), None) == []
    driven.step(both([], []), END_OF_INPUT)
    assert driven.step(both([], []), END_OF_INPUT) == []


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_what_an_operator_says_of_itself_is_true(query: str, tmp_path: Path) -> None:
    driven = Driven(query, tmp_path)
    operator = driven.operator
    assert operator.kind
    assert len({t.name for t in operator.tables}) == len(operator.tables)
    for _, rows in driven.inputs(both(A, B)):
        assert set(operator.hash_columns) <= set(rows.column_names)
    assert driven.current()
