"""Rows come back from a segment as they went in, whatever their type."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.catalog import Column
from sqlstream.duck import databases
from sqlstream.duck.sql import Relation, Select
from sqlstream.duck.types import check_encoded, encoded, stored_type, time_literal
from sqlstream.errors import UnsupportedError
from sqlstream.storage.segments import Segment, scan, scan_stored, write_segment
from sqlstream.units import EventTime
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.records import read_json

FS = LocalFilesystem()

VALUES = {
    "BOOLEAN": ["true"],
    "BIGINT": ["-9223372036854775807"],
    "UBIGINT": ["18446744073709551615"],
    "HUGEINT": ["170141183460469231731687303715884105727", "-170141183460469231731687303715884105727", "5"],
    "UHUGEINT": ["340282366920938463463374607431768211455", "0"],
    "BIGNUM": ["'123456789012345678901234567890123456789012345678901234567890'"],
    "DOUBLE": ["1e308", "'-inf'", "'nan'"],
    "DECIMAL(38,10)": ["1234567890123456789012345678.0123456789"],
    "DECIMAL(4,1)": ["-1.5"],
    "VARCHAR": ["'é''\"\n'", "''"],
    "BLOB": ["'\\x00\\xFF'"],
    "BIT": ["'0101'", "'1'"],
    "UUID": ["'3b241101-e2bb-4255-8caf-4136c566a962'"],
    "JSON": ["'{\"a\": [1]}'"],
    "ENUM('sad', 'it''s')": ["'it''s'"],
    "DATE": ["'0044-03-15 (BC)'", "'290000-01-01'", "'infinity'"],
    "TIME": ["'23:59:59.999999'"],
    "TIME_NS": ["'12:00:00.123456789'"],
    "TIMETZ": ["'12:00:00+02'", "'12:00:00-15:30:30'"],
    "TIMESTAMP": ["'2020-02-29 23:59:59.999999'", "'infinity'"],
    "TIMESTAMP_S": ["'2020-02-29 23:59:59'"],
    "TIMESTAMP_MS": ["'2020-02-29 23:59:59.5'"],
    "TIMESTAMP_NS": ["'2020-02-29 23:59:59.123456789'"],
    "TIMESTAMP WITH TIME ZONE": ["'2020-02-29 23:59:59.5+00'"],
    "INTERVAL": ["'1 month -3 days 5.000001 seconds'", "'30 days'", "'1 month'"],
    "INTEGER[]": ["[1, NULL, 3]", "[]"],
    "INTERVAL[2]": ["['1 day', NULL]"],
    'STRUCT(a INTEGER, "b c" INTERVAL, d STRUCT(e BIT[]))': ["{'a': 1, 'b c': '1 month', 'd': {'e': ['01']}}"],
    "MAP(VARCHAR, HUGEINT)": ["MAP {'k': 170141183460469231731687303715884105727}"],
    "MAP(INTERVAL, TIMETZ)": ["MAP {INTERVAL 1 day: TIMETZ '01:00:00+05'}"],
}


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with databases.passing() as con:
        yield con


def store(con: duckdb.DuckDBPyConnection, directory: Path, columns: list[Column], relation: Relation) -> Select:
    """Store rows fresh, store them again as compaction does, and return the SELECT of what came out."""
    rows = con.sql(encoded(columns, relation)).to_arrow_table()
    check_encoded(columns, rows.schema)
    fresh = write_segment(FS, str(directory), "rows", 7, rows)
    assert fresh
    again = con.sql(scan_stored(FS, str(directory), columns, [fresh])).to_arrow_reader(1000)
    compacted = write_segment(FS, str(directory), "rows", 7, again, batches=(7, 7))
    assert compacted
    assert compacted.rows == fresh.rows
    return scan(FS, str(directory), columns, [compacted])


@pytest.mark.parametrize("type", VALUES)
def test_values_survive(con: duckdb.DuckDBPyConnection, tmp_path: Path, type: str) -> None:
    values = ", ".join(f"(CAST({value} AS {type}))" for value in [*VALUES[type], "NULL"])
    con.execute(f"CREATE TEMP TABLE t AS SELECT * FROM (VALUES {values}) v(x)")
    stored = store(con, tmp_path, [Column("x", type)], Relation("t"))
    count = len(VALUES[type]) + 1
    assert con.execute(f"SELECT DISTINCT typeof(x) FROM ({stored})").fetchall() == [
        (con.execute("SELECT typeof(x) FROM t LIMIT 1").fetchall()[0][0],)
    ]
    # Text tells apart what compares equal: 30 days and 1 month.
    text = "SELECT x::VARCHAR FROM"
    assert con.execute(f"SELECT count(*) FROM ({text} t INTERSECT ALL {text} ({stored}))").fetchall() == [(count,)]
    positions = "SELECT x, row_number() OVER () AS i FROM"
    pairs = f"({positions} t) a JOIN ({positions} ({stored})) b USING (i)"
    same = f"SELECT count(*) FROM {pairs} WHERE a.x IS NOT DISTINCT FROM b.x"
    assert con.execute(same).fetchall() == [(count,)]


AGGREGATES = {
    "avg(x)": ("avg", ["BIGINT"], 'STRUCT("count" UBIGINT, "value" HUGEINT)'),
    "sum(x)": ("sum", ["BIGINT"], "HUGEINT"),
    "string_agg(y, ',')": ("string_agg", ["VARCHAR", "VARCHAR"], "VARCHAR"),
    "max_by(x, y)": ("max_by", ["BIGINT", "VARCHAR"], 'STRUCT("arg" BIGINT, "by" VARCHAR)'),
    "avg(i)": ("avg", ["INTERVAL"], 'STRUCT("count" BIGINT, "value" INTERVAL)'),
    "approx_count_distinct(x)": (
        "approx_count_distinct",
        ["BIGINT"],
        'STRUCT("precision" UTINYINT, "registers" UTINYINT[])',
    ),
}


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_exported_aggregate_states_survive(con: duckdb.DuckDBPyConnection, tmp_path: Path, aggregate: str) -> None:
    function, arguments, type = AGGREGATES[aggregate]
    con.execute(
        "CREATE TEMP TABLE t AS SELECT n % 3 AS k, n AS x, n::VARCHAR AS y, to_days(n::INTEGER) AS i FROM range(100) r(n)"
    )
    states = Relation(f"(SELECT k, {aggregate} EXPORT_STATE AS state FROM t GROUP BY k, x % 2)")
    stored = store(con, tmp_path, [Column("k", "BIGINT"), Column("state", type)], states)
    merged = f"finalize(combine_aggr(to_aggregate_state(state, '{function}', {arguments})))"
    actual = con.execute(f"SELECT k, {merged} FROM ({stored}) GROUP BY k ORDER BY k").fetchall()
    expected = con.execute(f"SELECT k, {aggregate} FROM t GROUP BY k ORDER BY k").fetchall()
    if function == "string_agg":
        actual, expected = ([(k, sorted(v.split(","))) for k, v in rows] for rows in (actual, expected))
    assert actual == expected


def test_rows_that_are_not_encoded_are_refused(con: duckdb.DuckDBPyConnection) -> None:
    rows = con.sql("SELECT [{'b': '01'::BIT}] AS x, 1 AS y").to_arrow_table()
    with pytest.raises(TypeError, match='column "x" of type STRUCT'):
        check_encoded([Column("x", "STRUCT(b BIT)[]"), Column("y", "INTEGER")], rows.schema)


def test_types_without_an_exact_form_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="VARIANT values cannot be kept in state"):
        stored_type("STRUCT(a VARIANT[])")


def test_segment_tells_its_rows_and_times(tmp_path: Path) -> None:
    times = pa.array([5_000_000, 2_000_000], pa.timestamp("us"))
    rows = pa.table({"t": times, "x": [1, 2]})
    segment = write_segment(FS, str(tmp_path), "open windows", 3, rows, time_column="t")
    assert segment
    path = tmp_path / segment.name
    assert segment == Segment(
        segment.name,
        2,
        path.stat().st_size,
        3,
        3,
        EventTime(2_000_000),
        EventTime(5_000_000),
        live=2,
        live_low=EventTime(2_000_000),
        crc=zlib.crc32(path.read_bytes()),
    )
    assert segment.name.startswith("open%20windows-3-")
    assert read_json(segment.to_json(), Segment) == segment
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert [group.column(i).is_stats_set for i in range(2)] == [True, False]
    assert [p.name for p in tmp_path.iterdir()] == [segment.name]


def test_no_rows_make_no_segment(tmp_path: Path) -> None:
    empty = pa.table({"x": pa.array([], pa.int64())})
    assert write_segment(FS, str(tmp_path / "a"), "t", 0, empty) is None
    assert write_segment(FS, str(tmp_path / "a"), "t", 0, empty.to_reader()) is None
    assert not (tmp_path / "a").exists()


def test_a_null_time_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    rows = pa.table({"t": pa.array([1, None], pa.int64())})
    with pytest.raises(ValueError, match='"t" of a state table holds NULL'):
        write_segment(FS, str(tmp_path), "t", 0, rows, time_column="t")
    assert list(tmp_path.iterdir()) == []


def test_scan_gives_each_row_its_batch_and_quotes_paths(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    directory = str(tmp_path / "it's [1]*" / "x=9")
    fresh = [write_segment(FS, directory, "t", b, pa.table({'a "b"': [b], "x": [1]})) for b in (4, 5)]
    columns = [Column('a "b"', "HUGEINT"), Column("x", "BIGINT")]
    stored = con.sql(scan_stored(FS, directory, columns, filter(None, fresh))).to_arrow_table()
    compacted = write_segment(FS, directory, "t", 6, stored, batches=(4, 5))
    segments = [s for s in (*fresh, compacted) if s]
    rows = con.execute(f"FROM ({scan(FS, directory, columns, segments, batch=True)}) ORDER BY ALL").fetchall()
    assert rows == [(4, 1, 4), (4, 1, 4), (5, 1, 5), (5, 1, 5)]
    assert con.sql(scan(FS, directory, columns, segments)).description[0][:2] == ('a "b"', duckdb.sqltypes.HUGEINT)


def test_time_literals_reach_beyond_the_calendar(con: duckdb.DuckDBPyConnection) -> None:
    for type in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "BIGINT"):
        ordered = [time_literal(EventTime(t), type) for t in (-(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1)]
        assert con.execute(f"SELECT [{', '.join(ordered)}] = list_sort([{', '.join(ordered)}])").fetchall() == [(True,)]
        assert con.execute(f"SELECT typeof({ordered[2]}), typeof({ordered[-1]})").fetchall() == [(type, type)]
