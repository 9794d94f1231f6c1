"""One job on Spark: its streaming query runs the batches that the job's thread composes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlstream import profiling
from sqlstream.errors import JobError, SqlStreamError
from sqlstream.options import SPARK
from sqlstream.profiling import ACTION, BATCH, DRIVER
from sqlstream.runtime.batch_descriptors import Descriptor, by_slot, to_lines
from sqlstream.runtime.engine import Layout, Pace, Receivers
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.job_thread import POLL_SECONDS, JobThread
from sqlstream.runtime.tasks import Output
from sqlstream.runtime.times import from_spark_millis, to_spark_millis
from sqlstream.runtime.watermarks import Watermarks
from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.carried_errors import carried, find_carried
from sqlstream.spark.clusters import CHECKPOINT
from sqlstream.spark.failures import failure_of
from sqlstream.spark.jvm import Jvm
from sqlstream.spark.phases import SparkPhases
from sqlstream.spark.pipeline import build
from sqlstream.spark.scratch import SparkCheckpoint, new_checkpoint, remove, write_first_batch
from sqlstream.spark.sink_workers import SparkWorkers
from sqlstream.spark.source import DescriptorSource
from sqlstream.spark.worker import MARKS
from sqlstream.storage.begun import BegunBatch, read_begun, write_begun
from sqlstream.units import now
from sqlstream.warehouse.commits import KEPT_COMMITS, committed_spark_millis, write_commit
from sqlstream.warehouse.log_files import rotate

STOP_SECONDS = 60.0


class SparkRun(JobThread):
    """A job that runs in a thread of this process and in Spark's tasks. Spark logs to `log_file`."""

    engine = SPARK

    def __init__(
        self,
        spark: SparkSession,
        jvm: Jvm,
        log_file: str,
        job: JobSpec,
        layout: Layout,
        pace: Pace,
        receivers: Receivers,
    ):
        super().__init__(job, layout, pace, receivers, SparkWorkers(spark))
        self.spark, self._jvm, self.log_file = spark, jvm, log_file
        # Held while a batch is recorded, in a thread of PySpark's. After the end, further calls of the JVM are refused.
        self._recording, self._is_over = threading.Lock(), False
        self._query: StreamingQuery | None = None
        # What Spark says of its batches, if the run is profiled.
        self._phases: SparkPhases | None = None
        # The sequence number of the first descriptor of Spark's stream, and the watermarks of Spark's next batch.
        self._first, self._watermarks = 0, Watermarks.none(job.plan)
        self._begun: BegunBatch | None = None
        self._checkpoint: SparkCheckpoint | None = None

    def _begin(self, feed: Feed) -> None:
        watermarks = {
            i: watermark
            for i, scan in enumerate(self.job.plan.scans)
            if (watermark := self.totals.sources[scan.name].watermark) is not None
        }
        feed.remind(self.totals.sequence, watermarks)
        done, version = self.totals.sequence, self.totals.version
        entry = self.commits.log.entry(version) if version >= 0 else None
        self._begun = read_begun(self.fs, self.paths, version + 1)
        shared = self.spark.conf.get(CHECKPOINT, None)
        self._checkpoint = new_checkpoint(self.fs, self.paths, self.job, entry, self._begun, shared)
        self._source = DescriptorSource(self.spark, self.layout.partitions)
        self._first = done + 1
        written = feed.stored_descriptors(done, done if self._begun is None else self._begun.sequence)
        if entry is not None:
            plan = self.job.plan
            self._watermarks = self.commits.watermarks(
                from_spark_millis(committed_spark_millis(self.fs, self.paths, version))
            )
            # The next batch may be an empty one, which has begun or which the last process did not reach.
            moved = bool(plan.stages) and self._watermarks.waking(plan) != self.commits.last_watermarks().waking(plan)
            if self._begun.sequence == done if self._begun is not None else moved and not written:
                ticks = {i: watermark for i, watermark in watermarks.items() if i in plan.watched}
                slots = range(self.layout.partitions)
                empty = to_lines(Descriptor(done, feed.time, {}, ticks, self.totals.ended), slots)
                self._first, written = done, [by_slot(empty, slots), *written]
        for tasks in written:
            self._source.offer(tasks)
        # Spark must know what its first batch reads before it starts.
        if written or self._checkpoint.manifests is None:
            self._start()

    def _start(self) -> None:
        assert self._checkpoint is not None
        if self._checkpoint.manifests is not None:
            time = self._begun.time if self._begun is not None else now()
            sources = len(self.job.plan.scans)
            # Where it only says that a watermark has moved, Spark's begins anew.
            reached = 0 if self.job.plan.has_several_watermarks else to_spark_millis(self._watermarks.job)
            write_first_batch(self.spark, self._checkpoint, sources, reached, time)
        writer = build(self.job, self._source.frame(), self._checkpoint).writeStream.foreachBatch(self._commit)
        self._query = writer.option("checkpointLocation", self._checkpoint.location).start()
        if profiling.is_on():
            self._phases = SparkPhases(self._query, self.job.name, self._checkpoint.base)

    def _commit(self, frame: DataFrame, batch: int) -> None:
        with carried(), self._recording:
            if self._is_over:
                raise JobError("the job has ended")
            self._record(frame, batch)

    def _record(self, frame: DataFrame, batch: int) -> None:
        assert self._checkpoint is not None
        with profiling.span(BATCH, DRIVER, job=self.job.name, batch=self._checkpoint.base + batch):
            self._record_batch(self._checkpoint, frame, batch)

    def _record_batch(self, checkpoint: SparkCheckpoint, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        with profiling.span("begin batch", DRIVER):
            offsets = checkpoint.offsets(batch)
            version = checkpoint.base + batch
            write_begun(self.fs, self.paths, BegunBatch(version, self._first + offsets.sequence, offsets.time))
            self._source.fix(offsets.sequence)
        # The tasks of this thread's action see it, as they see the number of Spark's batch.
        self.spark.sparkContext.setLocalProperty(MARKS, self._watermarks.to_json())
        # Exactly one action in any case: without one Spark would commit a batch that has not run.
        with profiling.span(ACTION, DRIVER):
            rows = frame.collect()
        outputs = [Output(r.kind, r.body, r.sink) for r in rows]
        self.commits.spend("process", began)
        self.commits.commit(version, outputs, self._watermarks, offsets.time, now())
        self._watermarks = self._watermarks.after(self.job.plan, self.totals.sources, self.totals.clock)
        with profiling.span("write commit", DRIVER):
            write_commit(self.fs, self.paths, version, to_spark_millis(self._watermarks.job))
        if version >= KEPT_COMMITS:
            self.fs.delete(f"{self.paths.commits}/{version - KEPT_COMMITS}")

    def _run_next(self, tasks: Sequence[str]) -> None:
        self._source.offer(tasks)
        if self._query is None:
            self._start()

    def _pause(self) -> None:
        if self._phases is not None:
            self._phases.look(self.totals.version)
        super()._pause()

    def _has_ended(self) -> bool:
        if self._query is None:
            # This raises if the JVM is gone.
            return bool(self.spark._jsparkSession.sparkContext().isStopped())
        if self._query.isActive:
            return False
        failure = failure_of(self._query)
        if failure is not None:
            # Spark's messages about missing files are arbitrary.
            raise self._jvm.loss() or failure
        return True

    def _is_idle(self) -> bool:
        if self._query is None:
            return True
        status = self._query.status
        return not status["isDataAvailable"] and not status["isTriggerActive"] and "Waiting" in status["message"]

    def _finish_batch(self) -> None:
        """Wait until the running batch is committed, and prevent a further one, which Spark would interrupt."""
        if self._query is None:
            return
        self._source.hold()
        quiet, deadline = 0, time.monotonic() + STOP_SECONDS
        # An empty batch may follow; in between, Spark looks idle for a moment.
        while quiet < 2 and time.monotonic() < deadline and self._query.isActive:
            done = self.totals.sequence >= self._first + self._source.shown and self._is_committed(self.totals.version)
            quiet = quiet + 1 if done and self._is_idle() else 0
            time.sleep(POLL_SECONDS)

    def _rotate_logs(self) -> None:
        rotate(self.log_file)

    def _let_go(self) -> None:
        if isinstance(self.error, JobError):
            self.error.log_file = self.log_file
        try:
            if self._query is not None and not self._jvm.has_ended:
                if self._phases is not None:
                    # Without a JVM that answers, the profile lacks Spark's last phases, and the query is stopped as ever.
                    with contextlib.suppress(Exception):
                        self._phases.look()
                self._query.stop()
        finally:
            # A JVM that died may leave a batch that is still being recorded: wait until it no longer writes to the sinks.
            with self._recording:
                self._is_over = True
            if self._checkpoint is not None:
                remove(self._checkpoint)

    def _explained(self, error: Exception) -> SqlStreamError:
        return find_carried(str(error)) or self._jvm.death() or self._jvm.loss() or super()._explained(error)
