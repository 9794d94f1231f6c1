"""This process as an engine: jobs run in it one batch after the other, without Spark."""

from __future__ import annotations

from sqlstream.local.immediate import ImmediateRun, values_splits
from sqlstream.local.run import LocalRun
from sqlstream.runtime.engine import Layout, Pace, Receivers, Resources, Run
from sqlstream.runtime.worker import JobSpec


class LocalEngine:
    """Runs jobs in this process. A session gives it those of nothing but VALUES, which have ended when `start` returns.

    It runs any other job, too, in a thread. A job goes on with the engine that began it: a batch that Spark has begun
    is not known here.
    """

    can_run_again = True

    def layout(self, partitions: int) -> Layout:
        # One task at a time: more buckets would only be more files.
        return Layout(1, (0,))

    def prepare(self, resources: Resources) -> None:
        """There is nothing to start."""

    def run(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers) -> Run:
        if not job.plan.stages and len(values_splits(job)) == len(job.plan.scans):
            return ImmediateRun(job, receivers)
        return LocalRun(job, layout, pace, receivers)

    def close(self) -> None:
        """There is nothing to end."""
