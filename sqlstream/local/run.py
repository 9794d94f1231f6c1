"""A run of a job in this process, without Spark: its thread composes batches and runs them."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep

from sqlstream.local.batches import LocalBatches
from sqlstream.options import LOCAL
from sqlstream.runtime.engine import Layout, Pace, Receivers
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.job_thread import JobThread
from sqlstream.runtime.worker import JobSpec, release
from sqlstream.storage.begun import BegunBatch, read_begun, write_begun
from sqlstream.units import ProcessingTime, now
from sqlstream.warehouse.commits import KEPT_COMMITS

# The time between two looks for input: they cost little here, and no batch of another engine waits for the processor.
POLL_SECONDS = 0.005
# A watermark that calls no operator waits for the next batch, or until there has been no input for so long.
QUIET_SECONDS = 0.2


class LocalRun(JobThread):
    """A job that runs in a thread of this process, one batch after the other."""

    engine = LOCAL

    def __init__(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers):
        super().__init__(job, layout, pace, receivers)
        self._batches: LocalBatches | None = None
        self._ran, self._ran_at = False, 0.0

    def _begin(self, feed: Feed) -> None:
        self._batches = LocalBatches(self.commits, self.layout.partitions, self._record)
        done = self.totals.sequence
        # It may have begun on another engine. Sinks may have rows of it, so it is repeated as it was.
        begun = read_begun(self.fs, self.paths, self.totals.version + 1)
        if begun is None or begun.sequence == done:
            self._batches.catch_up(now() if begun is None else begun.time)
            begun = None
        for tasks in feed.stored_descriptors(done, done if begun is None else begun.sequence):
            self._run(tasks, now() if begun is None else begun.time)
            begun = None

    def _record(self, batch: BegunBatch) -> None:
        write_begun(self.fs, self.paths, batch)

    def _run_next(self, tasks: Sequence[str]) -> None:
        self._run(tasks, now())

    def _run(self, tasks: Sequence[str], at: ProcessingTime) -> None:
        assert self._batches is not None, "_begin comes first"
        self._batches.run_alone("\n".join(tasks), at)
        self._forget_commits(self._batches)
        self._ran_at = monotonic()
        self._ran = True

    def _catch_up(self) -> None:
        """Run an empty batch if a watermark has moved since the last one."""
        if self._batches is not None and self._batches.is_behind:
            self._batches.catch_up(now())
            self._forget_commits(self._batches)

    def _forget_commits(self, batches: LocalBatches) -> None:
        """Delete the commit that is no longer kept, after each batch."""
        if (old := batches.number - 1 - KEPT_COMMITS) >= 0:
            self.fs.delete(f"{self.paths.commits}/{old}")

    def _pause(self) -> None:
        """Run an empty batch if there is no further input, and a watermark calls operators; else wait a moment."""
        if self._ran:
            self._ran = False
            return
        if self._batches is not None and (self._batches.has_due or monotonic() - self._ran_at >= QUIET_SECONDS):
            self._catch_up()
        sleep(POLL_SECONDS)

    def _has_ended(self) -> bool:
        return False

    def _is_idle(self) -> bool:
        self._catch_up()
        return True

    def _finish_batch(self) -> None:
        """Run the empty batch that was deferred: when this is called, no other batch runs."""
        self._catch_up()

    def _let_go(self) -> None:
        if self._batches is not None:
            self._batches.close()
        release(self.job)
