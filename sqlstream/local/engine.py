"""An engine in this process: jobs run without Spark, one batch after the other."""

from __future__ import annotations

from sqlstream.local.immediate import ImmediateRun, values_splits
from sqlstream.local.run import LocalRun
from sqlstream.runtime.engine import Layout, Pace, Receivers, Resources, Run
from sqlstream.runtime.worker import JobSpec


class LocalEngine:
    """Runs jobs in this process, without Spark.

    A session uses it for jobs whose rows are all in VALUES: these have ended when `start` returns. Any other job runs in a
    thread, which has a thread for each task. A job can continue on another engine at each version.
    """

    can_run_again = True

    def layout(self, partitions: int) -> Layout:
        """Return the layout that a job has on Spark, so that it can continue there without spreading its state anew."""
        return Layout.of(partitions)

    def prepare(self, resources: Resources) -> None:
        """Does nothing: this engine needs no other process."""

    def run(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers) -> Run:
        if not job.plan.stages and len(values_splits(job)) == len(job.plan.scans):
            return ImmediateRun(job, receivers)
        return LocalRun(job, layout, pace, receivers)

    def close(self) -> None:
        """Does nothing: this engine has no other process."""
