"""Drives a job in its own thread, for any engine: feeds batches, notices the end, and writes the job's status."""

from __future__ import annotations

import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from sqlstream import profiling
from sqlstream.connectors.worker_calls import Workers
from sqlstream.errors import JobError, NotWritableError, SqlStreamError
from sqlstream.profiling import DRIVER
from sqlstream.runtime.commits import Commits, Totals
from sqlstream.runtime.engine import Layout, Pace, Receivers, hand_on, have_enough
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.fragments import newest
from sqlstream.runtime.state_checks import StateChecks, as_left
from sqlstream.runtime.watermarks import idle_ticks
from sqlstream.runtime.worker import JobSpec
from sqlstream.secrets import masked
from sqlstream.storage.recovery import numbers
from sqlstream.storage.retention import sweep, sweep_directory
from sqlstream.units import END_OF_INPUT, EventTime, ProcessingTime, elapsed, now, seconds
from sqlstream.warehouse.commits import KEPT_COMMITS, last_committed
from sqlstream.warehouse.jobs import TABLE
from sqlstream.warehouse.leases import check_held
from sqlstream.warehouse.status import DRAINED, FAILED, FINISHED, RUNNING, STOPPED, Status, requested_stop, write_status

# Descriptors beyond the last finished batch: of the running batch and of the next one, so that no batch waits for a listing.
AHEAD = 2
POLL_SECONDS = 0.02
# The time between two looks into an object store for a request to stop: each costs a request.
ASK_SECONDS = 1.0
SWEEP_SECONDS = 10.0
# The same for an object store, which is slow to list.
SWEEP_STORE_SECONDS = 60.0
# The most pending warnings; the oldest are dropped first.
MOST_WARNINGS = 1_000


class JobThread(threading.Thread, ABC):
    """Feeds batches to an engine, notices the end, stops between batches, and writes the status of the job.

    The runs of an engine are a subclass, which implements how a batch is run. `engine` is the name of the engine.
    """

    engine: ClassVar[str]

    def __init__(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers, workers: Workers | None = None):
        super().__init__(name=f"sqlstream-{job.name}", daemon=True)
        self.job, self.layout, self.pace, self.receivers = job, layout, pace, receivers
        self.started_at, self._began_at = now(), elapsed()
        emit = partial(hand_on, receivers, self)
        self.commits = Commits(job, emit, began=self.started_at, monotonic=self._monotonic_time, workers=workers)
        self.paths = self.commits.paths
        self.fs = self.commits.warehouse.fs
        self.state = RUNNING
        self.error: SqlStreamError | None = None
        self.cause: BaseException | None = None
        self.feed: Feed | None = None
        self.untold: tuple[type[SqlStreamError], ...] = ()
        self._has_begun = False
        self._checks, self._checked = StateChecks(job, self.commits.warehouse), -1
        self._stop_requested = threading.Event()
        self._drain_requested = threading.Event()
        self._warnings: deque[str] = deque(maxlen=MOST_WARNINGS)
        self._warned: set[str] = set()
        self._swept = time.monotonic()
        self._fed_at = self._asked_at = float("-inf")
        self._newest_committed = -1

    # -- what an engine does

    @abstractmethod
    def _begin(self, feed: Feed) -> None:
        """Prepare to run batches after the last committed one; a batch that has begun and was not committed is run again."""

    @abstractmethod
    def _run_next(self, tasks: Sequence[str]) -> None:
        """Run the next batch, or queue it; `tasks` has, for each task, its lines of the descriptor."""

    @abstractmethod
    def _has_ended(self) -> bool:
        """Whether the engine runs no more batches. Raises the error by which it failed."""

    @abstractmethod
    def _is_idle(self) -> bool:
        """Whether no batch runs, and none waits."""

    @abstractmethod
    def _finish_batch(self) -> None:
        """Wait until the running batch is committed, and start no other one."""

    @abstractmethod
    def _let_go(self) -> None:
        """Release the engine's resources for the job."""

    def _pause(self) -> None:
        """Wait a moment before looking again."""
        time.sleep(POLL_SECONDS)

    def _rotate_logs(self) -> None:
        """Cut the logs that the engine writes, when they have grown large."""

    def _explained(self, error: Exception) -> SqlStreamError:
        """Return the error to show for an exception that is no SqlStreamError."""
        return JobError(_first_line(error))

    # -- what others ask of it

    def request_stop(self, *, drain: bool = False) -> None:
        """Request a stop after the running batch; with `drain`, end the input instead, and stop when all windows are closed."""
        (self._drain_requested if drain else self._stop_requested).set()

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stop_requested.is_set() or self._drain_requested.is_set()

    def take_warnings(self) -> list[str]:
        """Return the pending warnings, and remove them."""
        warnings = []
        while self._warnings:
            warnings.append(self._warnings.popleft())
        return warnings

    @property
    def is_waiting(self) -> bool:
        """Whether the job has read all input that there is, and waits for more."""
        return self._has_begun and self.feed is not None and self.feed.sequence <= self.totals.sequence

    @property
    def totals(self) -> Totals:
        """The metrics of the job up to its last batch."""
        return self.commits.totals

    # -- its thread

    def run(self) -> None:
        """Run the job to its end in this thread. Errors are not raised: `error` and `cause` hold them."""
        ended = FAILED
        try:
            self._write_status(RUNNING)
            self.feed = self._open_feed()
            self._warnings.extend([*self.commits.notices(), *self.feed.notices()])
            self._check_before()
            # A killed process may have left more of them.
            old = [n for n in numbers(self.fs, self.paths.commits) if n <= self.totals.version - KEPT_COMMITS]
            self.fs.delete_all(f"{self.paths.commits}/{n}" for n in old)
            self._begin(self.feed)
            self._has_begun = True
            state = self._drive(self.feed)
            self._report_commits()
            if state in (FINISHED, DRAINED):
                self.commits.end_sinks()
            ended = state
        except SqlStreamError as e:
            self.error = _of_job(e)
        except Exception as e:
            self.cause, self.error = e, _of_job(self._explained(e))
        finally:
            if isinstance(self.error, JobError):
                self.error.kind = f'job "{self.job.name}" failed'
            self._end(ended)

    def _open_feed(self) -> Feed:
        return Feed(
            self.fs,
            f"{self.paths.root}/splits",
            self.job.plan.scans,
            range(self.layout.partitions),
            project=self.job.project,
            finish=self.pace.finish,
            warehouse=self.job.warehouse,
            opens=self.job.plan.opens,
            own_watermarks=self.job.plan.has_own_watermarks,
            has_clock=self.job.plan.has_clock,
            zone=self.job.clock_zone,
        )

    def _drive(self, feed: Feed) -> str:
        while not self._has_ended():
            check_held(self.paths)
            request = self._requested_state()
            if self._stop_requested.is_set() or request == STOPPED:
                self._finish_batch()
                return STOPPED
            if self._drain_requested.is_set() or request == DRAINED:
                feed.drain()
            self._give(feed)
            self._report_commits()
            self._check_state()
            if have_enough(self.receivers):
                return FINISHED
            if self._at_end(feed):
                self._check_state(every=True)
                if feed.drained:
                    return DRAINED
                return FINISHED if self.pace.finish and feed.bounded else STOPPED
            self._keep_house(feed)
            self._pause()
        return STOPPED

    def _requested_state(self) -> str | None:
        """Return the state in which another process requests the job to end, STOPPED or DRAINED; None if none does."""
        moment = time.monotonic()
        if not self.fs.local and moment - self._asked_at < ASK_SECONDS:
            return None
        self._asked_at = moment
        return requested_stop(self.fs, self.paths)

    def _give(self, feed: Feed) -> None:
        began = moment = time.monotonic()
        interval = 0 if feed.drained else seconds(self.pace.interval)
        if feed.sequence - self.totals.sequence >= AHEAD or moment - self._fed_at < interval:
            return
        watermarks, idle = self._ticks(feed)
        descriptor = feed.compose(self.commits.event_timers(), idle, self.totals.processing_timer, watermarks)
        self._warnings.extend(feed.take_warnings())
        for path in feed.changed() - self._warned:
            self._warned.add(path)
            self._warnings.append(f'file "{path}" was rewritten after it had been read; it is not read again')
        if descriptor is not None:
            self._fed_at = moment
            tasks = feed.write(descriptor)
            self.commits.spend("plan", began)
            profiling.interval("plan", DRIVER, began, job=self.job.name, descriptor=descriptor.sequence)
            self._run_next(tasks)

    def _monotonic_time(self) -> ProcessingTime:
        """Return when this run began, by the machine's clock, plus what the monotonic clock says has passed since.

        If the machine's clock is set forward, sources that have rows must not count as idle: their next rows would be late.
        """
        return ProcessingTime(self.started_at + elapsed() - self._began_at)

    def _ticks(self, feed: Feed) -> tuple[dict[int, EventTime], dict[int, EventTime]]:
        """Return, by scan, ticks of scans whose partitions have watermarks, and ticks of idle scans."""
        moment = self._monotonic_time()
        self.commits.source_activity.see_partitions(feed.partitions(self.totals.sequence), feed.watermarks(), moment)
        # A tick in a descriptor that no batch has finished yet need not be sent again.
        statuses = {
            i: replace(status, watermark=newest(status.watermark, feed.ticked.get(i)))
            for i, status in self.commits.watermark_statuses().items()
        }
        watermarks = {}
        for i, watermark in self.commits.partition_watermarks(moment).items():
            if (before := statuses[i].watermark) is None or watermark > before:
                watermarks[i] = watermark
                statuses[i] = replace(statuses[i], watermark=watermark)
        if not any(self.commits.source_activity.timeouts.values()):
            return watermarks, {}
        under_way = feed.under_way(self.totals.sequence)
        active = {i: replace(c, active_at=moment if i in under_way else c.active_at) for i, c in statuses.items()}
        return watermarks, idle_ticks(active, moment, self.job.plan.watermark_groups)

    def _at_end(self, feed: Feed) -> bool:
        """Whether all input was read, and every window that it closes was emitted."""
        totals = self.totals
        if totals.sequence < feed.sequence or not self._is_committed(totals.version):
            return False
        if feed.ended:
            # Without a watermark no window waits.
            waiting = bool(self.job.plan.stages and self.job.plan.watched)
            by_clock = self.commits.last_watermarks().by_clock(self.job.plan)
            watermarks = [*([totals.watermark] if waiting else []), *by_clock]
            return totals.ended and all(watermark == END_OF_INPUT for watermark in watermarks)
        waits = feed.exhausted and not self.pace.finish
        return waits and self._is_idle()

    def _is_committed(self, version: int) -> bool:
        if version > self._newest_committed and self.fs.exists(f"{self.paths.commits}/{version}"):
            self._newest_committed = version
        return version <= self._newest_committed

    def _report_commits(self) -> None:
        """Report the commit of the last batch to sinks, and to the sources that ask for it."""
        totals = self.totals
        feed = self.feed if self.feed is not None and self.feed.has_uncommitted else None
        if (feed is None and not self.commits.has_unreported) or not self._is_committed(totals.version):
            return
        self.commits.tell_sinks(totals.version)
        if feed is not None:
            feed.commit(totals.sequence)

    def _check_before(self) -> None:
        """Run all state checks before the first batch of this run. A new job has no state: its checks are only compiled."""
        if self.totals.version < 0:
            self._checks.compile()
        else:
            self._check_state(every=True)

    def _check_state(self, *, every: bool = False) -> None:
        """Run the state checks that are due after a commit. Raises JobError if a check is broken that stops the job."""
        totals = self.totals
        if (
            totals.version < 0
            or (totals.version == self._checked and not every)
            or not self._is_committed(totals.version)
        ):
            return
        self._checked = totals.version
        rows = {name: sum(one.state_rows for one in buckets.values()) for name, buckets in totals.buckets.items()}
        try:
            self._warnings.extend(self._checks.look(totals.version, rows, every=every))
        except JobError as error:
            if self._has_begun:
                self._finish_batch()
                if error.detail == as_left(self._checked) and self.totals.version > self._checked:
                    # A further batch had begun meanwhile.
                    error.detail = as_left(self.totals.version)
            raise

    def _keep_house(self, feed: Feed) -> None:
        totals = self.totals
        pause = SWEEP_SECONDS if self.fs.local else SWEEP_STORE_SECONDS
        if time.monotonic() - self._swept < pause or totals.version < 0:
            return
        self._swept = time.monotonic()
        moment = now()
        newest = totals.version - 1
        oldest = self.commits.log.oldest_retained(newest, moment, *self.job.retention)
        sweep(self.fs, self.paths, oldest, newest, moment)
        for sink, plan in enumerate(self.job.plan.sinks):
            if plan.kind == TABLE:
                sweep_directory(self.fs, self.job.sink_paths(self.commits.warehouse, sink), newest, moment)
        feed.fold(totals.sequence)
        self._checks.write()
        self._rotate_logs()
        try:
            self._write_status(RUNNING)
        except SqlStreamError as e:
            # It says only that the job lives: batches that cannot be committed fail it.
            self._warnings.append(f'the status of job "{self.job.name}" was not written: {e.message}')

    def _end(self, state: str) -> None:
        for step in (self._let_go, self._report_commits, self._close_feed, self.commits.close, self._checks.close):
            try:
                step()
            except Exception as e:
                self.cause = self.cause or e
        try:
            check_held(self.paths)
            if requested_stop(self.fs, self.paths) is not None:
                self._stop_requested.set()
            self.fs.delete(self.paths.stop)
        except Exception as e:
            # A store that is away: the job ends all the same.
            self.cause = self.cause or e
        if not isinstance(self.error, self.untold):
            try:
                # A job that another process has taken over has its status from there.
                check_held(self.paths)
                self._write_status(state)
            except Exception as e:
                # A full disk, a store that is away: the first error is the one to tell.
                explained = _of_job(e) if isinstance(e, SqlStreamError) else JobError(_first_line(e))
                state, self.error = FAILED, self.error or explained
        # Only now: who sees here that the job has ended sees it in the warehouse, too.
        self.state = state

    def _close_feed(self) -> None:
        if self.feed is not None:
            self.feed.close()

    def _committed(self) -> int | None:
        try:
            return last_committed(self.fs, self.paths)
        except SqlStreamError:
            # What the job has failed of says more.
            return None

    def _write_status(self, state: str) -> None:
        status = Status(
            state=state,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=self.started_at,
            updated_at=now(),
            error=self.error.render() if self.error else None,
            version=self._committed() if state != RUNNING else None,
            backlog={} if self.feed is None else self.feed.backlog(),
            engine=self.engine,
        )
        write_status(self.fs, self.paths, status)


def _of_job(error: SqlStreamError) -> SqlStreamError:
    """Return the error with which a job ends: a JobError if a folder cannot be written any more, which is no usage error."""
    if not isinstance(error, NotWritableError):
        return error
    hint = "Run the job again when that can be written; it continues after its last committed batch."
    return JobError(error.message, detail=error.detail, hint=hint)


def _first_line(error: BaseException) -> str:
    text = masked(str(error)).strip() or type(error).__name__
    return text.splitlines()[0][:300]
