"""Jobs whose rows are all in VALUES: they run in this process, as one batch, without Spark."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlstream import profiling
from sqlstream.connectors.discovery import Split
from sqlstream.connectors.values.connector import ALL
from sqlstream.errors import JobError, SqlStreamError
from sqlstream.options import LOCAL
from sqlstream.profiling import BATCH, DRIVER
from sqlstream.runtime import tasks as stages
from sqlstream.runtime.batch_descriptors import Descriptor, from_lines, to_lines
from sqlstream.runtime.commits import Commits, Totals
from sqlstream.runtime.engine import Receivers, hand_on
from sqlstream.runtime.watermarks import Watermarks
from sqlstream.runtime.worker import JobSpec
from sqlstream.storage.retention import sweep_directory
from sqlstream.units import END_OF_INPUT, ProcessingTime, now
from sqlstream.warehouse.commits import KEPT_COMMITS, write_commit
from sqlstream.warehouse.status import FAILED, FINISHED, RUNNING, Status, write_status


def values_splits(job: JobSpec) -> Mapping[int, Sequence[Split]]:
    """Return the splits of the scans of VALUES, one for each, by the index of the scan in the plan."""
    return {i: [ALL] for i, scan in enumerate(job.plan.scans) if scan.table.is_values}


class ImmediateRun:
    """A run that ends within `start`. A later job of the same name adds a batch to the rows that it wrote."""

    is_waiting = is_stopping = False
    untold: tuple[type[SqlStreamError], ...] = ()
    engine = LOCAL

    def __init__(self, job: JobSpec, receivers: Receivers):
        self.job = job
        self.state = RUNNING
        self.error: SqlStreamError | None = None
        self.cause: BaseException | None = None
        self._commits = Commits(job, partial(hand_on, receivers, self))

    @property
    def totals(self) -> Totals:
        return self._commits.totals

    def start(self) -> None:
        """Run the batch; return when it is committed or has failed."""
        started = now()
        try:
            self._run(started)
            self.state = FINISHED
        except SqlStreamError as e:
            self.state, self.error = FAILED, e
            if isinstance(e, JobError):
                e.kind = f'job "{self.job.name}" failed'
        finally:
            self._commits.close()
        self._write_status(started)

    def _run(self, time: ProcessingTime) -> None:
        batch = self.totals.version + 1
        with profiling.span(BATCH, DRIVER, job=self.job.name, batch=batch):
            self._run_batch(batch, time)

    def _run_batch(self, batch: int, time: ProcessingTime) -> None:
        commits = self._commits
        fs, paths = commits.warehouse.fs, commits.paths
        descriptor = Descriptor(batch, time, values_splits(self.job), {}, last=True)
        outputs, watermarks = [], Watermarks.none(self.job.plan)
        for work in from_lines(to_lines(descriptor, self.job.labels)):
            outputs += [output for _, output in stages.run_scan(self.job, work.scan, [work], batch, watermarks)]
        commits.commit(
            batch, [o for o in outputs if isinstance(o, stages.Output)], replace(watermarks, job=END_OF_INPUT), time
        )
        # From here on, readers see the rows.
        write_commit(fs, paths, batch)
        commits.tell_sinks(batch)
        if batch >= KEPT_COMMITS:
            fs.delete(f"{paths.commits}/{batch - KEPT_COMMITS}")
        for sink, plan in enumerate(self.job.plan.sinks):
            if plan.kind == "table":
                sweep_directory(fs, self.job.sink_paths(commits.warehouse, sink), batch - 1, time)

    def _write_status(self, started: ProcessingTime) -> None:
        error = self.error.render() if self.error else None
        version = self.totals.version if self.state == FINISHED else None
        status = Status(
            self.state, os.getpid(), socket.gethostname(), started, now(), error, version, engine=self.engine
        )
        write_status(self._commits.warehouse.fs, self._commits.paths, status)

    # -- what a session asks of a run

    def request_stop(self, *, drain: bool = False) -> None:
        """Does nothing: the run has ended within `start`."""

    def take_warnings(self) -> list[str]:
        return []

    def join(self, timeout: float | None = None) -> None:
        """Return at once: the run has ended within `start`."""

    def is_alive(self) -> bool:
        return False
