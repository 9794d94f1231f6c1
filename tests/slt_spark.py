"""Golden scripts on Spark: tables are folders that a job watches, a micro-batch is a file for each of its tables."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import duckdb
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from sqlstream.catalog import VALUES, Table
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import JobError, SourceText
from sqlstream.functions.registration import recover
from sqlstream.jobs.job import Job
from sqlstream.jobs.restarting import RestartingRun
from sqlstream.session.session import Session
from sqlstream.spark.run import SparkRun
from sqlstream.sql.statements import parse_script
from sqlstream.testing import write_rows
from sqlstream.testing.fed_tables import FedTables
from tests.golden import PARALLELISMS, Row
from tests.kinds import of_type
from tests.processes import SECONDS

# What nobody can do or see in a session; a case stops there.
ONLY_IN_PROCESS = {"tick", "advance", "output", "explain", "in-process", "answer"}


def has_started(job: Job) -> bool:
    return run_of(job)._has_begun


def has_read(job: Job, rows: int) -> bool:
    return job.progress.rows_in >= rows


def has_finished(job: Job) -> bool:
    return job.status == "FINISHED"


def run_of(job: Job) -> SparkRun:
    """Return what Spark runs of a job."""
    run = job._run
    return of_type(SparkRun, run.latest if isinstance(run, RestartingRun) else run)


def query_of(job: Job) -> StreamingQuery:
    """Return Spark's query, which has been started."""
    query = run_of(job)._query
    assert query is not None
    return query


def _standing(job: Job) -> str:
    """Describe where a job stands."""
    run = run_of(job)
    fed = None if run.feed is None else (run.feed.sequence, run.feed.ended, run.feed.backlog())
    query = None if run._query is None else run._query.status
    return f"{job.status}, totals {run.totals}, fed {fed}, query {query}"


class OnSpark:
    """Runs a case in a session. All share one JVM; `stop` ends it."""

    _spark: Any = None

    def __init__(self, functions: Sequence[Callable[..., Any]] = ()):
        self.folder = tempfile.mkdtemp(prefix="sqlstream-slt-")
        conf = {"parallelism.default": "3", "spark.master": "local[2,4]"}
        self.session = Session(self.folder, conf=conf, output=io.StringIO(), notice=lambda text: None)
        self.session._jobs.spark._session = OnSpark._spark
        for function in functions:
            self.session.register(function)
        self.tables = FedTables(self.session.compiler, self._watched)
        self.planned: list[PlannedJob] = []
        self.jobs: list[Job] = []
        self.files = 0
        self.parallelism = cycle(PARALLELISMS)

    def _watched(self, table: Table) -> dict[str, str]:
        path = os.path.join(self.folder, "fed", table.name.lower())
        os.makedirs(path, exist_ok=True)
        interval = {"source.monitor-interval": "100 ms"}
        return {"connector": "filesystem", "format": "parquet", "path": path, **interval}

    def statement(self, sql: str) -> None:
        for statement in parse_script(SourceText("sql", sql)):
            planned = self.tables.compile(statement)
            if isinstance(planned, PlannedJob):
                if planned.is_query:
                    pytest.skip("what a bare SELECT prints is compared in process")
                if any(s.table.connector is None for s in planned.physical.scans):
                    pytest.skip("when a job sees what another one wrote is compared in process")
                job = self._start(planned)
                if planned.is_immediate:
                    self._ended(job, SECONDS)
                    continue
                self.planned.append(planned)
                self.jobs.append(job)
                if any(s.table.connector == VALUES for s in planned.physical.scans):
                    # The first batch is what stands in the query.
                    self._wait(job, partial(has_read, job, 1))
                    query_of(job).processAllAvailable()

    def _start(self, planned: PlannedJob) -> Job:
        job = self.session.start(planned)
        OnSpark._spark = self.session._jobs.spark._session
        return job

    def batch(self, table: str, rows: list[list[str | None]]) -> None:
        declared = self.session.compiler.catalog.relation(table)
        assert isinstance(declared, Table)
        expected = [
            job.progress.rows_in
            + len(rows) * sum(s.table.name.lower() == table.lower() for s in planned.physical.scans)
            for job, planned in zip(self.jobs, self.planned, strict=True)
        ]
        self.files += 1
        written = os.path.join(self.folder, f"{self.files:06}.parquet")
        write_rows(declared, rows, written)
        # A path that the script declares is in the project.
        folder = os.path.join(self.folder, declared.options["path"])
        os.makedirs(folder, exist_ok=True)
        os.replace(written, os.path.join(folder, os.path.basename(written)))
        for job, count in zip(self.jobs, expected, strict=True):
            self._wait(job, partial(has_read, job, count))
            self._settle(job)

    def _settle(self, job: Job) -> None:
        """Wait for the batch without rows, in which windows close; a job that reads none of the rows may not have begun."""
        self._wait(job, partial(has_started, job))
        if run_of(job)._query is None:
            # It goes on when there is something to read.
            return
        try:
            query_of(job).processAllAvailable()
        except StreamingQueryException:
            self._ended(job, SECONDS)

    @staticmethod
    def _ended(job: Job, seconds: float) -> bool:
        """Tell whether a job has ended; raise the error that ended it as the runner in process words it."""
        try:
            return job.wait(seconds)
        except JobError as error:
            error.kind, error.log_file = "job failed", None
            raise

    def _wait(self, job: Job, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not done():
            if self._ended(job, 0.02) and not done():
                raise AssertionError(f'job "{job.name}" ended early')
            assert time.monotonic() < deadline, f'job "{job.name}" takes too long: {_standing(job)}'

    def tick(self, table: str, time: str) -> None:
        pytest.skip("a session cannot move a table's watermark")

    def advance(self, milliseconds: int) -> None:
        pytest.skip("nobody can move Spark's clock")

    def finish(self) -> None:
        for job in self.jobs:
            self._wait(job, partial(has_started, job))
            feed = run_of(job).feed
            assert feed is not None
            for scan in feed.scans:
                if not scan.bounded:
                    scan.interval = None
        for job in self.jobs:
            self._wait(job, partial(has_finished, job))

    def restart(self, where: str) -> None:
        for job in self.jobs:
            job.stop()
            job.wait(SECONDS)
        if where != "same":
            tasks = str(next(self.parallelism))
            for planned in self.planned:
                planned.options.set("parallelism.default", tasks)
        self.jobs = [self._start(planned) for planned in self.planned]
        for job in self.jobs:
            self._wait(job, partial(has_started, job))
            self._settle(job)

    def query(self, sql: str) -> list[Row]:
        try:
            return self.session.query(sql).fetchall()
        except duckdb.Error as error:
            raise recover(error) or error from error

    def output(self, job: str | None) -> list[Row]:
        pytest.skip("what a job prints is compared in process")

    def explain(self, sql: str, stage: str) -> str:
        pytest.skip("plans are compared in process")

    def in_process(self) -> None:
        pytest.skip("it shows the clock of the runner in process")

    def answer(self, sql: str) -> list[Row]:
        pytest.skip("answers about the catalog are compared in process")

    def close(self) -> None:
        for job in self.jobs:
            job.stop()
        self.session._jobs.spark._session = None
        self.session.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @classmethod
    def stop(cls) -> None:
        """Stop the JVM that all cases share."""
        if cls._spark is not None:
            from sqlstream.spark.jvm import stop_spark

            stop_spark(cls._spark)
            cls._spark = None
