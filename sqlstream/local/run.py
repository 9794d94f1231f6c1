"""A run of a job in this process, without Spark: its thread composes batches and runs them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlstream.local.batches import LocalBatches
from sqlstream.runtime.engine import Layout, Pace, Receivers
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.job_thread import JobThread
from sqlstream.runtime.worker import JobSpec, release
from sqlstream.units import now
from sqlstream.warehouse.commits import KEPT_COMMITS


class LocalRun(JobThread):
    """A job that runs in a thread of this process, one batch after the other."""

    def __init__(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers):
        super().__init__(job, layout, pace, receivers)
        self._ran = False

    def _begin(self, feed: Feed) -> None:
        self._batches = LocalBatches(self.commits)
        self._batches.catch_up(now())
        done = self.totals.sequence
        for tasks in feed.stored_descriptors(done, done):
            self._run_next(tasks)

    def _run_next(self, tasks: Sequence[str]) -> None:
        self._batches.run("\n".join(tasks), now())
        # At most two batches have run since the last call.
        oldest = self._batches.number - KEPT_COMMITS
        self.fs.delete_all(f"{self.paths.commits}/{old}" for old in (oldest - 2, oldest - 1) if old >= 0)
        self._ran = True

    def _pause(self) -> None:
        if not self._ran:
            super()._pause()
        self._ran = False

    def _has_ended(self) -> bool:
        return False

    def _is_idle(self) -> bool:
        return True

    def _finish_batch(self) -> None:
        """Does nothing: when this is called, no batch runs."""

    def _let_go(self) -> None:
        release(self.job)
