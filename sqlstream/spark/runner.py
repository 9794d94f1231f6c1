"""One job on Spark, from start to end: feeds batches, records what they did, notices the end, stops between batches."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlstream.errors import JobError, SqlStreamError
from sqlstream.runtime.commits import Commits, Totals
from sqlstream.runtime.engine import Pace, Receivers, hand_on, have_enough
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.fragments import newest
from sqlstream.runtime.idle import idle_ticks
from sqlstream.runtime.tasks import Output
from sqlstream.runtime.worker import JobSpec
from sqlstream.secrets import masked
from sqlstream.spark.carried_errors import carried, find_carried
from sqlstream.spark.failures import failure_of
from sqlstream.spark.jvm import death_of_jvm
from sqlstream.spark.moved import settle
from sqlstream.spark.offsets import logged_offsets, read_and_begun
from sqlstream.spark.pipeline import build
from sqlstream.spark.source import DescriptorSource
from sqlstream.state.retention import sweep, sweep_directory
from sqlstream.units import END_OF_INPUT, EventTime, now, seconds
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.status import DRAINED, STOPPED, Status, requested_stop, write_status

# Descriptors that are ready before their batch starts: the next one, so that no batch waits for a listing.
AHEAD = 2
POLL_SECONDS = 0.02
SWEEP_SECONDS = 10.0
STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Where a job's relative paths start from, how many tasks it has, how it is driven, and where Spark logs."""

    project: str
    partitions: int
    pace: Pace
    log_file: str


class JobRun(threading.Thread):
    """A job that runs in a thread, and in Spark's tasks."""

    def __init__(self, spark: SparkSession, job: JobSpec, settings: RunSettings, receivers: Receivers):
        super().__init__(name=f"sqlstream-{job.name}", daemon=True)
        self.spark, self.job, self.settings = spark, job, settings
        self.started_at = now()
        self.receivers = receivers
        self.commits = Commits(job, partial(hand_on, receivers, self), began=self.started_at)
        self.paths = self.commits.paths
        self.fs = self.commits.warehouse.fs
        self.state = "RUNNING"
        self.error: SqlStreamError | None = None
        self.cause: BaseException | None = None
        self._stop_requested = threading.Event()
        self._drain_requested = threading.Event()
        self._warnings: deque[str] = deque()
        self._warned: set[str] = set()
        self._query: StreamingQuery | None = None
        self._close_feed: Callable[[], None] = lambda: None
        self._swept = time.monotonic()
        self._fed_at = float("-inf")

    # -- what others ask of it

    def request_stop(self, *, drain: bool = False) -> None:
        """Ask the job to stop after the batch that is running, with `drain` when it has closed all windows."""
        (self._drain_requested if drain else self._stop_requested).set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop_requested.is_set() or self._drain_requested.is_set()

    def take_warnings(self) -> list[str]:
        """Return the warnings that nobody has taken yet."""
        taken = []
        while self._warnings:
            taken.append(self._warnings.popleft())
        return taken

    @property
    def is_waiting(self) -> bool:
        """Whether it has read all there is, and waits for more."""
        return self._query is not None and self.feed.sequence <= self.totals.sequence

    @property
    def totals(self) -> Totals:
        return self.commits.totals

    # -- its thread

    def run(self) -> None:
        try:
            # What was asked of an earlier process is no matter of this one's.
            self.fs.delete(self.paths.stop)
            self._write_status()
            self._start()
            self.state = self._drive()
        except SqlStreamError as e:
            self.state, self.error = "FAILED", e
        except Exception as e:
            self.state, self.cause = "FAILED", e
            self.error = find_carried(str(e)) or death_of_jvm() or JobError(_first_line(e))
        finally:
            if isinstance(self.error, JobError):
                self.error.kind = f'job "{self.job.name}" failed'
                self.error.log_file = self.settings.log_file
            self._end()

    def _start(self) -> None:
        self.feed = Feed(
            self.fs,
            f"{self.paths.root}/splits",
            self.job.plan.scans,
            range(self.settings.partitions),
            project=self.settings.project,
            finish=self.settings.pace.finish,
            warehouse=self.job.warehouse,
            opens=self.job.plan.opens,
        )
        self._close_feed = self.feed.close
        self._warnings.extend(self.feed.notices())
        marks = {
            i: mark
            for i, scan in enumerate(self.job.plan.scans)
            if (mark := self.totals.sources[scan.name].watermark) is not None
        }
        self.feed.remind(self.totals.sequence, marks)
        settle(self.spark, self.fs, self.paths)
        done, begun = read_and_begun(self.fs, self.paths)
        self._source = DescriptorSource(self.spark, self.settings.partitions, done)
        for tasks in self.feed.written(done, begun):
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

    def _drive(self) -> str:
        query = self._query
        assert query is not None
        while True:
            if not query.isActive:
                failure = failure_of(query)
                if failure is not None:
                    raise failure
                return "STOPPED"
            asked = requested_stop(self.fs, self.paths)
            if self._stop_requested.is_set() or asked == STOPPED:
                self._finish_batch(query)
                return STOPPED
            if self._drain_requested.is_set() or asked == DRAINED:
                self.feed.drain()
            self._feed()
            if have_enough(self.receivers):
                return "FINISHED"
            if self._at_end(query):
                if self.feed.drained:
                    return DRAINED
                return "FINISHED" if self.settings.pace.finish and self.feed.bounded else "STOPPED"
            self._keep_house()
            time.sleep(POLL_SECONDS)

    def _feed(self) -> None:
        moment = time.monotonic()
        interval = 0 if self.feed.drained else seconds(self.settings.pace.interval)
        if self.feed.sequence - self.totals.sequence >= AHEAD or moment - self._fed_at < interval:
            return
        descriptor = self.feed.compose(self.totals.event_timer, self._idle_ticks(), self.totals.processing_timer)
        for path in self.feed.changed() - self._warned:
            self._warned.add(path)
            self._warnings.append(f'file "{path}" was rewritten after it had been read; it is not read again')
        if descriptor is not None:
            self._source.offer(self.feed.write(descriptor))
            self._fed_at = moment

    def _idle_ticks(self) -> dict[int, EventTime]:
        if not any(self.commits.timeouts.values()):
            return {}
        time = now()
        under_way = self.feed.under_way(self.totals.sequence)
        clocks = {}
        for i, clock in self.commits.clocks().items():
            # A tick that is on its way need not be sent again.
            mark = newest(clock.mark, self.feed.ticked.get(i))
            clocks[i] = replace(clock, mark=mark, active_at=time if i in under_way else clock.active_at)
        return idle_ticks(clocks, time)

    def _at_end(self, query: StreamingQuery) -> bool:
        """Tell whether all input was read, and every window that it closes has been emitted."""
        totals = self.totals
        if totals.sequence < self.feed.sequence or not self._is_committed(totals.version):
            return False
        if self.feed.ended:
            # Without a watermark no window waits.
            waiting = bool(self.job.plan.stages and self.job.plan.watched)
            return totals.ended and (not waiting or totals.watermark == END_OF_INPUT)
        waits = self.feed.exhausted and not self.settings.pace.finish
        return waits and self._is_idle(query)

    def _is_committed(self, version: int) -> bool:
        return version < 0 or self.fs.exists(f"{self.paths.commits}/{version}")

    @staticmethod
    def _is_idle(query: StreamingQuery) -> bool:
        status = query.status
        return not status["isDataAvailable"] and not status["isTriggerActive"] and "Waiting" in status["message"]

    def _finish_batch(self, query: StreamingQuery) -> None:
        """Wait until the batch that is running is committed, and let no further one begin: Spark would interrupt it."""
        self._source.hold()
        quiet, deadline = 0, time.monotonic() + STOP_SECONDS
        # An empty batch may follow; between the two Spark looks idle for a moment.
        while quiet < 2 and time.monotonic() < deadline and query.isActive:
            done = self.totals.sequence >= self._source.shown and self._is_committed(self.totals.version)
            quiet = quiet + 1 if done and self._is_idle(query) else 0
            time.sleep(POLL_SECONDS)

    def _keep_house(self) -> None:
        totals = self.totals
        if time.monotonic() - self._swept < SWEEP_SECONDS or totals.version < 0:
            return
        self._swept = time.monotonic()
        today = now()
        newest = totals.version - 1
        oldest = self.commits.log.oldest_retained(newest, today, self.job.retention)
        sweep(self.fs, self.paths, oldest, newest, today)
        for sink, plan in enumerate(self.job.plan.sinks):
            if plan.kind == "table":
                sweep_directory(self.fs, self.job.sink_paths(self.commits.warehouse, sink), newest, today)
        self.feed.fold(totals.sequence)
        self._write_status()

    def _end(self) -> None:
        try:
            if self._query is not None:
                self._query.stop()
            self._close_feed()
        except Exception as e:
            self.cause = self.cause or e
        finally:
            self.fs.delete(self.paths.stop)
            self._write_status()

    def _committed(self) -> int | None:
        try:
            return last_committed(self.fs, self.paths)
        except SqlStreamError:
            # What the job has failed of says more.
            return None

    def _write_status(self) -> None:
        status = Status(
            state=self.state,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=self.started_at,
            updated_at=now(),
            error=self.error.render() if self.error else None,
            version=self._committed() if self.state != "RUNNING" else None,
        )
        try:
            write_status(self.fs, self.paths, status)
        except SqlStreamError as e:
            # A full disk: the first error is the one to tell.
            self.state, self.error = "FAILED", self.error or e


def _first_line(error: BaseException) -> str:
    text = masked(str(error)).strip() or type(error).__name__
    return text.splitlines()[0][:300]
