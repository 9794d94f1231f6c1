"""A job as its writers leave it, batch by batch, for tests of the read side: counts per key and window, in two buckets."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.sql import Select
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.metrics import BucketMetrics, OperatorMetrics, SourceMetrics
from sqlstream.units import SECOND, Duration, EventTime, ProcessingTime, from_millis
from sqlstream.warehouse.commits import write_commit
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.jobs import JobRecord, OperatorRecord, SinkRecord, TableRecord, write_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import Status, write_status

# Version n is committed n seconds after this.
EPOCH = from_millis(1_767_225_600_000)  # 2026-01-01 00:00:00

PARTIALS = TableDeclaration(
    "partials",
    (Column("k", "VARCHAR"), Column("n", "BIGINT"), Column("window_end", "TIMESTAMP")),
    time_column="window_end",
)
RESULTS = TableDeclaration("rows", (Column("k", "VARCHAR"), Column("n", "BIGINT")))

Row = tuple[str, int, int]
# Each job writes with a cursor of it: opening a database takes longer than most tests here.
CON = duckdb.connect(config={"threads": 1})


class SmallJob:
    """Writes state and results of a job; times of rows and watermarks are in seconds."""

    def __init__(
        self,
        root: Path,
        name: str = "hourly",
        table: str = "counts",
        retention: tuple[Duration, int] = (Duration(10**15), 100),
    ):
        self.warehouse = Warehouse(str(root))
        self.paths = self.warehouse.job(name)
        self.retention = retention
        self.version = -1
        self.rows_in = 0
        self.state: dict[int, str | None] = {0: None, 1: None}
        self.results: str | None = None
        self.results_directory = self.warehouse.table(table).job(name).root
        self.con = CON.cursor()
        view_columns = (("k", "VARCHAR"), ("window_end", "TIMESTAMP"), ("n", "BIGINT"))
        view = Select("SELECT k, window_end, sum(n)::BIGINT AS n FROM partials GROUP BY ALL")
        count = Select("SELECT count(DISTINCT window_end) FROM partials")
        operator = OperatorRecord(
            "departures",
            "window aggregate",
            ("k",),
            (TableRecord.of(PARTIALS),),
            view,
            view_columns,
            "watermark",
            count,
        )
        self.record = JobRecord(
            job=name,
            sql=f"INSERT INTO {table} SELECT ..",
            plan_fingerprint="",
            plan_text="",
            created_at=EPOCH,
            versions={},
            bucket_labels=(0, 1),
            partitions=2,
            scans=(),
            operators=(operator,),
            sinks=(SinkRecord("table", table, tuple((c.name, c.type) for c in RESULTS.columns)),),
        )
        write_record(self.warehouse.fs, self.paths, self.record)
        write_status(
            self.warehouse.fs,
            self.paths,
            Status("STOPPED", os.getpid(), "here", EPOCH, ProcessingTime(EPOCH + 5 * SECOND)),
        )

    def attempt(self, rows: list[Row], results: list[tuple[str, int]] = [], watermark: int | None = None) -> None:  # noqa: B006
        """Do what a batch does before its commit."""
        version = self.version + 1
        mark = None if watermark is None else EventTime(watermark * SECOND)
        self.next_state = dict(self.state)
        buckets = {}
        for number in self.state:
            bucket = Bucket.open(
                self.warehouse.fs,
                self.paths.operator("departures").root,
                number,
                [PARTIALS],
                self.state[number],
                *self.retention,
            )
            mine = [r for r in rows if ord(r[0][0]) % 2 == number]
            bucket.append("partials", _partials(mine), version)
            self.next_state[number] = bucket.commit(self.con, version, ProcessingTime(EPOCH + version * SECOND), mark)
            buckets[number] = BucketMetrics(bucket.manifest_name)
        sink = Bucket.open(self.warehouse.fs, self.results_directory, 0, [RESULTS], self.results, *self.retention)
        sink.append(
            "rows",
            pa.table({"k": [k for k, _ in results], "n": pa.array([n for _, n in results], pa.int64())}),
            version,
        )
        self.next_results = sink.commit(self.con, version, ProcessingTime(EPOCH + version * SECOND), None)
        self.rows_in += len(rows)
        entry = LogEntry(
            version,
            ProcessingTime(EPOCH + version * SECOND),
            mark,
            self.rows_in,
            len(results),
            {
                "bid": SourceMetrics(
                    max_event_time=mark,
                    watermark=mark,
                    holds_minimum=True,
                    holding_since=EPOCH,
                    idle_timeout=Duration(60 * SECOND),
                    last_row_at=ProcessingTime(EPOCH + version * SECOND),
                    null_rows=1,
                    rows=5,
                )
            },
            {
                "departures": OperatorMetrics(
                    state_rows=3,
                    state_bytes=99,
                    segments=2,
                    late_rows=1,
                    missed_windows=4,
                    event_timer=EventTime(20 * SECOND),
                    buckets=buckets,
                )
            },
            {self.record.sinks[0].table.lower(): sink.manifest_name},
        )
        JobLog(self.warehouse.fs, self.paths.log).append(entry)

    def commit(self) -> None:
        self.version += 1
        self.state, self.results = self.next_state, self.next_results
        write_commit(self.warehouse.fs, self.paths, self.version)

    def batch(self, rows: list[Row], results: list[tuple[str, int]] = [], watermark: int | None = None) -> None:  # noqa: B006
        self.attempt(rows, results, watermark)
        self.commit()


def _partials(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([k for k, _, _ in rows], pa.string()),
            "n": pa.array([n for _, n, _ in rows], pa.int64()),
            "window_end": pa.array([end * SECOND for _, _, end in rows], pa.timestamp("us")),
        }
    )
