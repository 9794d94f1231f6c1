"""What small Z-sets amount to: a sum that is kept in memory and added to is what reading everything gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation
from sqlstream.duck.types import encoded
from sqlstream.errors import DamageError
from sqlstream.storage import sums
from sqlstream.storage.bucket import INDEX_MEMORY, Bucket
from sqlstream.storage.segments import forget_known
from sqlstream.storage.sums import forget_sums
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, zset
from sqlstream.units import NO_TIME, ProcessingTime
from sqlstream.warehouse.filesystem import LocalFilesystem

COLUMNS = (Column("k0", "BIGINT"), Column("value", "INTERVAL"))
KEYS = 100
TOUCHED = Relation("touched")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    forget_sums()
    yield
    forget_sums()


class State:
    """A Z-set of a row for each key: a batch takes those of some keys away, and adds others."""

    def __init__(self, directory: Path, memory: int = INDEX_MEMORY):
        self.directory, self.memory = directory, memory
        self.con = duckdb.connect(config={"threads": 1})
        self.con.execute(f"CREATE TEMP TABLE touched AS SELECT i AS k0 FROM range({KEYS}) r(i)")
        self.manifests: list[str | None] = [None]
        self.known: dict[int, int] = {}

    def bucket(self, version: int = -1) -> Bucket:
        tables = [zset("rows", COLUMNS)]
        given = self.manifests[version]
        return Bucket.open(LocalFilesystem(), str(self.directory), 0, tables, given, NO_TIME, index_memory=self.memory)

    def batch(self, step: int) -> None:
        """Change the row of every key that `step` divides."""
        changes = [(k, self.known[k], -1) for k in self.known if k % step == 0]
        batch = len(self.manifests)
        new = {k: batch * KEYS + k for k in range(KEYS) if k % step == 0}
        changes += [(k, days, 1) for k, days in new.items()]
        rows = ", ".join(f"({k}, to_days({days}), {weight}::BIGINT)" for k, days, weight in changes)
        bucket, listed = self.bucket(), Relation(f"(SELECT * FROM (VALUES {rows}) r(k0, value, {WEIGHT}))")
        bucket.append("rows", self.con.sql(encoded((*COLUMNS, WEIGHT_COLUMN), listed)).to_arrow_table(), batch)
        self.manifests.append(bucket.commit(self.con, batch, ProcessingTime(batch), None))
        self.known |= new

    def amounts(self, version: int = -1) -> dict[int, int]:
        rows = self.bucket(version).amounts(self.con, "rows", ("k0",), TOUCHED)
        found = self.con.sql(f"SELECT k0, datepart('day', value), {WEIGHT} FROM {rows}").fetchall()
        assert all(weight == 1 for _, _, weight in found)
        assert len({k for k, _, _ in found}) == len(found)
        return {k: days for k, days, _ in found}


def test_a_sum_is_added_to_and_segments_are_merged(tmp_path: Path) -> None:
    state = State(tmp_path)
    assert state.bucket().amounts(state.con, "rows", ("k0",), TOUCHED) is None
    # Eight segments become one: some are not those of the sum any more.
    for step in [1, 1, 2, 3, 1, 7, 2, 1, 5, 1, 3, 1]:
        state.batch(step)
        assert state.amounts() == state.known
        assert state.amounts() == state.known
    # An older version, as a batch that is repeated sees it, then the newest again.
    before = state.amounts(-2)
    assert before != state.known
    forget_sums()
    assert state.amounts(-2) == before
    assert state.amounts() == state.known


def test_what_is_in_the_sum_is_not_read_again(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.batch(1)
    state.amounts()
    [path] = tmp_path.rglob("*.parquet")
    path.write_bytes(b"")
    state.batch(2)
    assert state.amounts() == state.known
    forget_sums()
    forget_known()
    with pytest.raises(DamageError):
        state.amounts()


def test_sums_take_no_more_memory_than_given(tmp_path: Path) -> None:
    one, two = State(tmp_path / "one"), State(tmp_path / "two")
    for state in (one, two):
        state.batch(1)
        assert state.amounts() == state.known
    assert len(sums._sums) == 2
    size = max(s.rows.nbytes for s in sums._sums.values())
    # There is room for one: that which nobody has asked for the longest goes.
    two.memory = sums.SHARE * (size + size // 2)
    two.batch(2)
    assert two.amounts() == two.known
    assert [path.startswith(str(tmp_path / "two")) for path in sums._sums] == [True]
    one.memory = 0
    assert one.amounts() == one.known
    assert len(sums._sums) == 1


def test_few_keys_are_read_alone(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.batch(1)
    state.con.execute("CREATE OR REPLACE TEMP TABLE touched AS SELECT 7 AS k0")
    assert state.amounts() == {7: state.known[7]}
    assert not sums._sums
