"""Few keys of large segments: found by indexes, they are the rows that are found by reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation
from sqlstream.duck.types import encoded
from sqlstream.storage import key_index, point_reads
from sqlstream.storage.bucket import INDEX_MEMORY, Bucket
from sqlstream.storage.key_index import SegmentIndexes, forget_indexes
from sqlstream.storage.row_hashes import can_hash, hashed_rows
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, zset
from sqlstream.units import NO_TIME, EventTime, ProcessingTime
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import LocalFilesystem

TOUCHED = Relation("touched")
ROWS = 3_000
# Values of types as keys, of the number i; NULL where i is divisible by 7.
KEYS = {
    "BIGINT": "i",
    "UTINYINT": "i % 200",
    "HUGEINT": "i::HUGEINT * 1000000000000000000000",
    "DECIMAL(18, 2)": "i / 4",
    "DOUBLE": "CASE i % 5 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN -0.0 WHEN 2 THEN 0.0 ELSE i END",
    "BOOLEAN": "i % 2 = 0",
    "VARCHAR": "CASE WHEN i % 5 = 0 THEN '' ELSE 'key ' || i END",
    "BLOB": "encode('é' || i)",
    "DATE": "DATE '1960-01-01' + i::INTEGER",
    "TIME": "TIME '00:00' + to_seconds(i)",
    "TIMESTAMP": "make_timestamp(i * 1000003)",
    "TIMESTAMP WITH TIME ZONE": "make_timestamptz(i * 1000003)",
    "INTERVAL": "to_days((i % 60)::INTEGER)",
    "UUID": "CAST(md5(i::VARCHAR) AS UUID)",
    "ENUM('a', 'b', 'c')": "['a', 'b', 'c'][1 + i % 3]",
    "BIGINT[]": "[i, NULL]",
    "STRUCT(a BIGINT, b INTERVAL)": "{'a': nullif(i % 100, 3), 'b': to_days((i % 3)::INTEGER)}",
    "MAP(VARCHAR, BIGINT)": "MAP {'a': i}",
}
# Keys of these types have no hashes in memory: SQL looks for them.
BY_SQL = {"INTERVAL", "ENUM('a', 'b', 'c')", "BIGINT[]", "STRUCT(a BIGINT, b INTERVAL)", "MAP(VARCHAR, BIGINT)"}
# What `make quick` tries of them.
QUICK = ("BIGINT", "DOUBLE", "VARCHAR", "STRUCT(a BIGINT, b INTERVAL)")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let segments of a thousand rows be large ones."""
    monkeypatch.setattr(key_index, "LARGE_ROWS", 1_000)
    monkeypatch.setattr(key_index, "FEW", 2)
    monkeypatch.setattr(point_reads, "SMALL_ROWS", 1_000)
    yield
    forget_indexes()


class State:
    """A Z-set with two keys, in several segments, of which the first is large."""

    def __init__(self, directory: Path, type: str = "BIGINT", index_memory: int = INDEX_MEMORY):
        self.directory, self.index_memory = directory, index_memory
        self.manifest: str | None = None
        self.columns = (Column("k0", type), Column("k1", "BIGINT"), Column("value", type))
        self.con = duckdb.connect(config={"threads": 1})
        self.key = f"CAST({KEYS[type]} AS {type})"
        self.manifest = self.commit(0, f"range({ROWS})")
        self.manifest = self.commit(1, "range(0, 500, 3)", "-1")

    def bucket(self) -> Bucket:
        tables = [zset("rows", self.columns)]
        memory = self.index_memory
        return Bucket.open(
            LocalFilesystem(), str(self.directory), 0, tables, self.manifest, NO_TIME, index_memory=memory
        )

    def commit(self, batch: int, numbers: str, weight: str = "1") -> str:
        bucket = self.bucket()
        keys = f"CASE WHEN i % 7 > 0 THEN {self.key} END AS k0, i % 4 AS k1"
        rows = Relation(f"(SELECT {keys}, {self.key} AS value, {weight}::BIGINT AS {WEIGHT} FROM {numbers} r(i))")
        bucket.append("rows", self.con.sql(encoded((*self.columns, WEIGHT_COLUMN), rows)).to_arrow_table(), batch)
        return bucket.commit(self.con, batch, ProcessingTime(batch), None)

    def touch(self, where: str) -> None:
        """Look for the keys of some numbers."""
        keys = f"SELECT DISTINCT CASE WHEN i % 7 > 0 THEN {self.key} END AS k0, i % 4 AS k1 FROM range({2 * ROWS}) r(i)"
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE touched AS {keys} WHERE {where}")

    def check(self) -> int:
        """Compare the rows that are found with those of all that have the keys; return how many they are."""
        bucket = self.bucket()
        found = bucket.rows_of(self.con, "rows", ("k0", "k1"), TOUCHED)
        same = "s.k0 IS NOT DISTINCT FROM t.k0 AND s.k1 IS NOT DISTINCT FROM t.k1"
        expected = f"(SELECT * FROM {bucket.relation('rows')} s SEMI JOIN touched t ON {same})"
        for a, b in ((found, expected), (expected, found)):
            assert self.con.sql(f"SELECT * FROM {a} EXCEPT ALL SELECT * FROM {b}").fetchall() == []
        [(count,)] = self.con.sql(f"SELECT count(*) FROM {found}").fetchall()
        return int(count)


@pytest.mark.parametrize("type", [t if t in QUICK else pytest.param(t, marks=pytest.mark.thorough) for t in KEYS])
def test_found_rows_are_those_of_the_keys(tmp_path: Path, type: str) -> None:
    state = State(tmp_path, type)
    state.touch("i % 61 = 0")
    assert state.check() == state.check() > 0
    for where in ("i % 61 = 5 AND i % 7 > 0", "i % 7 > 0", "i = 3", "false"):
        state.touch(where)
        state.check()
    # The larger segment has one; what is looked for are not always few keys.
    assert len(key_index._indexes) == 1


@pytest.mark.parametrize(
    ("type", "has_memory"),
    [("BIGINT", False), *((t, True) if t in QUICK else pytest.param(t, True, marks=pytest.mark.slow) for t in KEYS)],
)
def test_rows_of_single_keys_are_found_by_their_hashes(tmp_path: Path, type: str, has_memory: bool) -> None:
    state = State(tmp_path, type, INDEX_MEMORY if has_memory else 0)
    state.touch("i % 61 IN (0, 5)")
    for _ in range(2):
        bucket = state.bucket()
        asked = state.con.sql("SELECT k0, k1 FROM touched").to_arrow_table()
        if not all(map(can_hash, asked.schema.types)):
            assert type in BY_SQL
            return
        reads = bucket.point_reads(state.con, "rows", ("k0", "k1"))
        assert bool(reads.scanned) is not has_memory
        # Where there are indexes they say for which types they are right.
        if not reads.takes(asked.schema.types):
            assert type in BY_SQL
            return
        assert not has_memory or type not in BY_SQL
        found = reads.relation(reads.find(hashed_rows(asked.columns, asked.num_rows)))
        same = "s.k0 IS NOT DISTINCT FROM t.k0 AND s.k1 IS NOT DISTINCT FROM t.k1"
        own, expected = (
            f"(SELECT * FROM {rows} s SEMI JOIN touched t ON {same})" for rows in (found, bucket.relation("rows"))
        )
        for a, b in ((own, expected), (expected, own)):
            assert state.con.sql(f"SELECT * FROM {a} EXCEPT ALL SELECT * FROM {b}").fetchall() == []
        assert state.con.sql(f"SELECT count(*) FROM {own}").fetchall() > [(0,)]
        assert reads.find(hashed_rows(asked.columns, asked.num_rows)[:0]) == []


def test_keys_of_many_rows_are_counted_once(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.commit(2, "range(1500)", "1")
    counted = state.bucket().large_keys(state.con, "rows", ("k1",), 500)
    by_key = f"SELECT k1, count(*) AS n FROM range({ROWS}) r(i), (SELECT i % 4 AS k1) GROUP BY k1 HAVING n > 500"
    assert (
        state.con.sql(f"SELECT * FROM {counted} ORDER BY k1").fetchall()
        == state.con.sql(f"{by_key} ORDER BY k1").fetchall()
    )
    for path in tmp_path.rglob("*.parquet"):
        path.write_bytes(b"")
    assert state.bucket().large_keys(state.con, "rows", ("k1",), 500) is not None
    assert State(tmp_path / "other").bucket().large_keys(state.con, "rows", ("k0", "k1"), 500) is None


def test_the_first_look_reads_and_the_next_one_asks_the_index(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.touch("i % 100 = 1")
    first = state.check()
    assert not key_index._indexes
    assert state.check() == first
    assert len(key_index._indexes) == 1
    [segment, _] = state.bucket().segments("rows")
    # From here on the file is not read.
    [path] = tmp_path.rglob(segment.name)
    content = path.read_bytes()
    path.write_bytes(b"")
    found = state.bucket().rows_of(state.con, "rows", ("k0", "k1"), TOUCHED)
    assert state.con.sql(f"SELECT count(*) FROM {found}").fetchall() == [(first,)]
    path.write_bytes(content)
    # Of other keys the index knows nothing.
    assert state.bucket().rows_of(state.con, "rows", ("k1",), TOUCHED) is not None
    assert len(key_index._indexes) == 1


def test_indexes_take_no_more_memory_than_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = State(tmp_path / "one"), State(tmp_path / "two")
    one.touch("i % 100 = 1")
    two.touch("i % 100 = 1")
    for _ in range(2):
        one.check()
    [index] = key_index._indexes.values()
    assert 0 < index.bytes < 40 * ROWS
    two.index_memory = 2 * index.bytes - 1
    for _ in range(3):
        assert two.check() == one.check()
    assert list(key_index._indexes.values()) == [index]
    # An index that nobody asks for makes way.
    monkeypatch.setattr(key_index, "UNUSED_SECONDS", -1)
    two.index_memory = 40 * ROWS
    two.check()
    assert len(key_index._indexes) == 1
    assert list(key_index._indexes.values()) != [index]


def test_indexes_of_small_segments_go_when_nobody_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(tmp_path)
    first = state.bucket().segments("rows")
    [path] = tmp_path.rglob(first[0].name)
    columns = zset("rows", state.columns).columns
    indexes = SegmentIndexes(LocalFilesystem(), str(path.parent), columns, ("k0", "k1"), INDEX_MEMORY, points=True)
    for segment in first:
        assert indexes.index(state.con, segment) is not None
    monkeypatch.setattr(key_index, "SMALL_UNUSED_SECONDS", -1)
    state.manifest = state.commit(2, "range(10)")
    [newest] = [segment for segment in state.bucket().segments("rows") if segment not in first]
    assert indexes.index(state.con, newest) is not None
    assert [indexes.is_known(segment) for segment in (*first, newest)] == [True, False, True]


def test_a_segment_that_is_merged_loses_its_index(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.touch("i % 100 = 1")
    state.check()
    state.check()
    [(merged, _)] = key_index._indexes
    for batch in range(2, 12):
        state.manifest = state.commit(batch, f"range({batch}, {ROWS}, 2)")
    assert not any(merged.endswith(s.name) for s in state.bucket().segments("rows"))
    assert not key_index._indexes
    assert state.check() == state.check() > 0


def test_rows_that_the_watermark_has_passed_are_not_found(tmp_path: Path) -> None:
    timers = TableDeclaration("timers", (Column("k0", "BIGINT"), Column("due", "BIGINT")), "due")
    con = duckdb.connect(config={"threads": 1})
    bucket = Bucket.open(LocalFilesystem(), str(tmp_path), 0, [timers], None, NO_TIME)
    bucket.append("timers", con.sql(f"SELECT i % 100 AS k0, i AS due FROM range({ROWS}) r(i)").to_arrow_table(), 0)
    con.execute("CREATE TEMP TABLE touched AS SELECT 1::BIGINT AS k0")
    for passed in (100, 200, 2_800):
        bucket.forget(con, "timers", EventTime(passed))
        found = bucket.rows_of(con, "timers", ("k0",), TOUCHED)
        assert con.sql(f"SELECT count(*), min(due) FROM {found}").fetchall() == [(30 - passed // 100, passed + 1)]
    assert key_index._indexes
