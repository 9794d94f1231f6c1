"""A job's record and status come back as written; the last commit is what Spark's checkpoint says."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from sqlstream.catalog import Column
from sqlstream.duck.sql import Select
from sqlstream.errors import OtherVersionError, UsageError
from sqlstream.logical.plan.state_settings import AggregateState
from sqlstream.queries.query import open_query
from sqlstream.units import from_millis
from sqlstream.warehouse.commits import last_committed, write_commit
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.jobs import (
    FORMAT,
    JobRecord,
    OperatorRecord,
    OperatorShape,
    ScanRecord,
    SinkRecord,
    TableRecord,
    read_record,
    write_record,
)
from sqlstream.warehouse.locks import JobLock, SessionLock
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import write_sealed
from sqlstream.warehouse.status import (
    FAILED,
    FINISHED,
    LOST,
    RUNNING,
    Status,
    effective_status,
    read_status,
    write_status,
)

TABLE = TableDeclaration(
    "partials", (Column("k", "BIGINT"), Column("e", "TIMESTAMP")), "e", Select("SELECT * FROM merged_rows")
)
RECORD = JobRecord(
    job="Counts",
    sql="INSERT INTO counts SELECT ..",
    plan_fingerprint="0a1b",
    plan_text="Sink\n  Aggregate",
    created_at=from_millis(1_700_000_000_000),
    versions={"sqlstream": "0.1.0", "duckdb": "2.0.0"},
    bucket_labels=(0, 3, 5),
    partitions=3,
    scans=(ScanRecord("bid", "bid", "ts", "ts - INTERVAL 4 SECOND"), ScanRecord("other", "t")),
    operators=(
        OperatorRecord(
            "hot",
            "aggregate",
            ("k",),
            (TableRecord.of(TABLE),),
            Select("SELECT * FROM partials"),
            (("k", "BIGINT"),),
            "windows",
        ),
    ),
    sinks=(SinkRecord("table", "counts", (("k", "BIGINT"), ("n", "HUGEINT"))),),
)
STATUS = Status(RUNNING, os.getpid(), socket.gethostname(), from_millis(1000), from_millis(2000))


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path))


def test_a_record_comes_back_as_written(warehouse: Warehouse) -> None:
    job = warehouse.job("counts")
    assert read_record(warehouse.fs, job) is None
    write_record(warehouse.fs, job, RECORD)
    assert read_record(warehouse.fs, job) == RECORD


def test_a_record_of_a_later_format_is_refused() -> None:
    with pytest.raises(UsageError, match='job "Counts" was written by a later version of sqlstream') as refused:
        JobRecord.from_json(RECORD.to_json().replace(f'"format":{FORMAT}', '"format":99'))
    assert refused.value.detail == f"It has format 99; this version reads formats up to {FORMAT}."


def test_a_record_with_a_kind_of_operator_of_a_later_version_is_refused(warehouse: Warehouse) -> None:
    shape = OperatorShape("Aggregate", settings=AggregateState())
    record = replace(RECORD, operators=(replace(RECORD.operators[0], shape=shape),))
    job = warehouse.job("counts")
    write_sealed(warehouse.fs, job.record, record.to_json().replace('{"kind":"aggregate"}', '{"kind":"pattern"}'))
    with pytest.raises(OtherVersionError, match='job "Counts" was written by a later version of sqlstream') as refused:
        read_record(warehouse.fs, job)
    assert refused.value.detail == (
        "It has something that this version lacks: Invalid value 'pattern' - at $.operators[0].shape.values.kind."
    )
    assert refused.value.hint == "Use that version, or a later one."
    [row] = open_query(warehouse, "SELECT job, status, error FROM sqlstream.jobs").fetchall()
    assert row[:2] == ("counts", "INCOMPATIBLE")
    assert "was written by a later version" in row[2]


def test_a_status_comes_back_as_written(warehouse: Warehouse) -> None:
    job = warehouse.job("counts")
    assert read_status(warehouse.fs, job) is None
    assert effective_status(warehouse.fs, job) is None
    for status in (STATUS, replace(STATUS, state=FAILED, error="job failed: row 7")):
        write_status(warehouse.fs, job, status)
        assert read_status(warehouse.fs, job) == status


def test_a_job_that_says_running_is_lost_without_its_process(warehouse: Warehouse) -> None:
    job = warehouse.job("counts")
    write_status(warehouse.fs, job, STATUS)
    with SessionLock.open(warehouse) as session:
        JobLock.acquire(warehouse.fs, job, session)
        assert effective_status(warehouse.fs, job) == STATUS
    assert effective_status(warehouse.fs, job) == replace(STATUS, state=LOST)
    write_status(warehouse.fs, job, replace(STATUS, state=FINISHED))
    assert effective_status(warehouse.fs, job) == replace(STATUS, state=FINISHED)


def test_versions_are_the_numbers_in_the_checkpoint(warehouse: Warehouse) -> None:
    job = warehouse.job("counts")
    assert last_committed(warehouse.fs, job) is None
    os.makedirs(job.commits)
    for name in ("9", "10", ".11.crc", ".12.0123.tmp", "_metadata"):
        Path(job.commits, name).write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert last_committed(warehouse.fs, job) == 10


def test_a_commit_that_is_deleted_while_it_is_looked_for_is_no_damage(warehouse: Warehouse) -> None:
    job = warehouse.job("counts")
    for version in (9, 10):
        write_commit(warehouse.fs, job, version)
    listed = LocalFilesystem.entries

    class Deleting(LocalFilesystem):
        """Deletes the newest file behind each look."""

        def entries(self, directory: str) -> list[str]:
            found = listed(self, directory)
            for newest in sorted(found, key=int)[-1:]:
                os.unlink(f"{directory}/{newest}")
            return found

    assert last_committed(Deleting(), job) is None


def test_a_table_can_have_the_name_of_values() -> None:
    assert ScanRecord("v", "values", kind="values").is_values
    assert not ScanRecord("values", "values", kind="filesystem").is_values
    # Records of early versions have no kind.
    assert ScanRecord("values", "values").is_values
