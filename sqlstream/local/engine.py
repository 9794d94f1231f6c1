"""An engine in this process: jobs run without Spark, one batch after the other."""

from __future__ import annotations

from sqlstream.local.immediate import ImmediateRun, values_splits
from sqlstream.local.run import LocalRun
from sqlstream.runtime.engine import Layout, Pace, Receivers, Resources, Run
from sqlstream.runtime.worker import JobSpec


class LocalEngine:
    """Runs jobs in this process, without Spark.

    A session uses it for jobs whose rows are all in VALUES: these have ended when `start` returns. Any other job runs in a
    thread. A job continues on the engine that began it: this engine does not know of a batch that Spark has begun.
    """

    can_run_again = True

    def layout(self, partitions: int) -> Layout:
        """Return a layout with one task and one bucket: tasks run one at a time, so more buckets would only be more files."""
        return Layout(1, (0,))

    def prepare(self, resources: Resources) -> None:
        """Does nothing: this engine needs no other process."""

    def run(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers) -> Run:
        if not job.plan.stages and len(values_splits(job)) == len(job.plan.scans):
            return ImmediateRun(job, receivers)
        return LocalRun(job, layout, pace, receivers)

    def close(self) -> None:
        """Does nothing: this engine has no other process."""
