"""One job on Spark: its streaming query runs the batches that the job's thread composes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlstream.errors import JobError, SqlStreamError
from sqlstream.runtime.engine import Layout, Pace, Receivers
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.job_thread import POLL_SECONDS, JobThread
from sqlstream.runtime.tasks import Output
from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.carried_errors import carried, find_carried
from sqlstream.spark.failures import failure_of
from sqlstream.spark.jvm import death_of_jvm
from sqlstream.spark.moved import settle
from sqlstream.spark.offsets import logged_offsets, read_and_begun
from sqlstream.spark.pipeline import build
from sqlstream.spark.source import DescriptorSource
from sqlstream.units import now

STOP_SECONDS = 60.0


class SparkRun(JobThread):
    """A job that runs in a thread, and in Spark's tasks. Spark logs to `log_file`."""

    def __init__(
        self, spark: SparkSession, log_file: str, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers
    ):
        super().__init__(job, layout, pace, receivers)
        self.spark, self.log_file = spark, log_file
        self._query: StreamingQuery | None = None

    def _begin(self, feed: Feed) -> None:
        marks = {
            i: mark
            for i, scan in enumerate(self.job.plan.scans)
            if (mark := self.totals.sources[scan.name].watermark) is not None
        }
        feed.remind(self.totals.sequence, marks)
        settle(self.spark, self.fs, self.paths)
        done, begun = read_and_begun(self.fs, self.paths)
        self._source = DescriptorSource(self.spark, self.layout.partitions, done)
        for tasks in feed.written(done, begun):
            self._source.offer(tasks)
        writer = build(self.job, self._source.frame()).writeStream.foreachBatch(self._commit)
        self._query = writer.option("checkpointLocation", self.paths.checkpoint).start()

    def _commit(self, frame: DataFrame, batch: int) -> None:
        with carried():
            self._record(frame, batch)

    def _record(self, frame: DataFrame, batch: int) -> None:
        offsets = logged_offsets(self.fs, self.paths, batch)
        self._source.fix(offsets.sequence)
        # Exactly one action, whatever happens: without it Spark would commit a batch that it never ran.
        rows = frame.collect()
        outputs = [Output(r.kind, r.body, r.sink) for r in rows]
        self.commits.commit(batch, outputs, offsets.watermark, offsets.time, now())

    def _run_next(self, tasks: Sequence[str]) -> None:
        self._source.offer(tasks)

    def _has_ended(self) -> bool:
        assert self._query is not None
        if self._query.isActive:
            return False
        failure = failure_of(self._query)
        if failure is not None:
            raise failure
        return True

    def _is_idle(self) -> bool:
        assert self._query is not None
        status = self._query.status
        return not status["isDataAvailable"] and not status["isTriggerActive"] and "Waiting" in status["message"]

    def _finish_batch(self) -> None:
        """Wait until the batch that is running is committed, and let no further one begin: Spark would interrupt it."""
        assert self._query is not None
        self._source.hold()
        quiet, deadline = 0, time.monotonic() + STOP_SECONDS
        # An empty batch may follow; between the two Spark looks idle for a moment.
        while quiet < 2 and time.monotonic() < deadline and self._query.isActive:
            done = self.totals.sequence >= self._source.shown and self._is_committed(self.totals.version)
            quiet = quiet + 1 if done and self._is_idle() else 0
            time.sleep(POLL_SECONDS)

    def _let_go(self) -> None:
        if isinstance(self.error, JobError):
            self.error.log_file = self.log_file
        if self._query is not None:
            self._query.stop()

    def _explained(self, error: Exception) -> SqlStreamError:
        return find_carried(str(error)) or death_of_jvm() or super()._explained(error)
