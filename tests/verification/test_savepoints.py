"""`verify` of what a savepoint keeps: the job as it was, over tables of the warehouse as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.physical.batch.rows import CannotVerify
from tests.jobs.savepoint_jobs import FIRST, INPUT, SECOND, open_session, put
from tests.verification.test_upgraded import run, verified

WRITES = INPUT + "CREATE TABLE passed (k BIGINT); INSERT INTO passed SELECT k FROM t;"
READS = (
    "CREATE TABLE passed (k BIGINT) WITH ('source.monitor-interval' = '10 ms'); CREATE TABLE doubled (k BIGINT, x BIGINT);"
    "INSERT INTO doubled SELECT k, k * 2 FROM passed;"
)
OUTSIDE = INPUT + (
    "CREATE TABLE files (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'parquet');"
    "INSERT INTO files SELECT k FROM t;"
)


def taken(folder: Path, job: str) -> str:
    with open_session(folder) as session:
        return take_savepoint(session.warehouse, job).record.name


def test_a_table_of_the_warehouse_is_read_where_it_is(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    run(tmp_path, WRITES, len(FIRST))
    run(tmp_path, READS, len(FIRST))
    savepoint = taken(tmp_path, "doubled")
    put(tmp_path, "b", SECOND)
    run(tmp_path, WRITES, len(FIRST) + len(SECOND))
    report = verified(tmp_path, READS, "doubled", savepoint)
    assert report, report
    assert report.read == (("passed", len(FIRST)),)
    assert [table.rows for table in report.tables] == [len(FIRST)]


def test_what_a_table_with_a_connector_held_is_not_known(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    run(tmp_path, OUTSIDE, len(FIRST))
    savepoint = taken(tmp_path, "files")
    put(tmp_path, "b", SECOND)
    run(tmp_path, OUTSIDE, len(FIRST) + len(SECOND))
    assert verified(tmp_path, OUTSIDE, "files")
    with pytest.raises(CannotVerify, match=r'what the job wrote into table "files" \(filesystem\) is in no savepoint'):
        verified(tmp_path, OUTSIDE, "files", savepoint)
