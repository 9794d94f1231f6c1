"""Micro-batches of a job in this process, without Spark."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

from sqlstream import profiling
from sqlstream.profiling import BATCH, DRIVER
from sqlstream.runtime import tasks
from sqlstream.runtime.batch_descriptors import Work, from_lines
from sqlstream.runtime.commits import Commits
from sqlstream.runtime.frames import Frame
from sqlstream.runtime.tasks import Output
from sqlstream.runtime.times import from_spark_millis, timer_millis, to_spark_millis
from sqlstream.runtime.watermarks import BatchTimes, Watermarks
from sqlstream.storage.begun import BegunBatch
from sqlstream.storage.snapshot import named_manifest
from sqlstream.units import END_OF_INPUT, EventTime, ProcessingTime
from sqlstream.warehouse.commits import committed_spark_millis, write_commit


class LocalBatches:
    """Runs the batches of a job one after the other, beginning after the last committed batch.

    It holds what Spark holds between batches: the manifest of each bucket's state, the next timers, and the watermarks. As many
    threads as `tasks` says read the splits of scans and advance the buckets of an operator: DuckDB computes without the lock of
    the interpreter. `begin` is called before each batch.
    """

    def __init__(self, commits: Commits, tasks: int = 1, begin: Callable[[BegunBatch], None] | None = None):
        self.commits, self.job, self._begin = commits, commits.job, begin
        self._pool = ThreadPoolExecutor(tasks, f"sqlstream-{self.job.name}") if tasks > 1 else None
        self.number = commits.totals.version + 1
        # By stage and bucket: the manifest as JSON, and the next event-time timer.
        self.manifests: dict[tuple[int, int], str] = {}
        self.timers: dict[tuple[int, int], EventTime] = {}
        # The watermarks of the next batch.
        self.watermarks = Watermarks.none(self.job.plan)
        if self.number > 0:
            self._restore()

    def _restore(self) -> None:
        commits = self.commits
        fs, version = commits.warehouse.fs, commits.totals.version
        self.watermarks = commits.watermarks(from_spark_millis(committed_spark_millis(fs, commits.paths, version)))
        entry = commits.log.entry(version)
        assert entry is not None
        for number, stage in enumerate(self.job.plan.stages):
            for label, name in entry.state_manifests(stage.name).items():
                manifest = named_manifest(fs, commits.paths.operator(stage.name), label, name)
                self.manifests[number, label] = manifest.to_json()
                if manifest.event_timer is not None:
                    self.timers[number, label] = manifest.event_timer

    def run(self, lines: str, now: ProcessingTime) -> None:
        """Run the batch that a descriptor's lines describe, at the time `now`, then an empty batch if a watermark has moved."""
        before = self.watermarks.waking(self.job.plan)
        self.run_alone(lines, now)
        if self.watermarks.waking(self.job.plan) != before:
            self.run_alone("", now)

    @property
    def is_behind(self) -> bool:
        """Whether a watermark has moved, and no batch has had it yet."""
        plan = self.job.plan
        return self.number > 0 and self.watermarks.waking(plan) != self.commits.last_watermarks().waking(plan)

    @property
    def has_due(self) -> bool:
        """Whether a timer is due at the watermarks of the next batch, or the input of an operator has ended."""
        reached = [to_spark_millis(watermark) for watermark in self.watermarks.operators]
        due = any(timer_millis(timer) <= reached[stage] for (stage, _), timer in self.timers.items())
        return due or END_OF_INPUT in self.watermarks.waking(self.job.plan)

    def catch_up(self, now: ProcessingTime) -> None:
        """Run an empty batch if a watermark has moved since the last one."""
        if self.is_behind:
            self.run_alone("", now)

    def close(self) -> None:
        """End the threads, none of which works any more."""
        if self._pool is not None:
            self._pool.shutdown()

    def run_alone(self, lines: str, now: ProcessingTime) -> None:
        """Run the batch that a descriptor's lines describe; without lines an empty one."""
        with profiling.span(BATCH, DRIVER, job=self.job.name, batch=self.number):
            self._run_batch(lines, now)

    def _run_batch(self, lines: str, now: ProcessingTime) -> None:
        began = time.monotonic()
        arriving: dict[int | None, list[Frame | Output]] = defaultdict(list)
        work: dict[tuple[int, int], list[Work]] = defaultdict(list)
        for one in from_lines(lines):
            work[one.scan, one.slot].append(one)
        if self._begin is not None:
            read = max(
                (one.sequence for of_task in work.values() for one in of_task), default=self.commits.totals.sequence
            )
            self._begin(BegunBatch(self.number, read, now))
        scans = [partial(self._scan, scan, of_task) for (scan, _), of_task in work.items()]
        for output in self._all(scans):
            arriving[output.stage if isinstance(output, Frame) else None].append(output)
        times = BatchTimes(self.number, now, self.watermarks)
        for number in range(len(self.job.plan.stages)):
            frames = [f for f in arriving.pop(number, []) if isinstance(f, Frame)]
            for output in self._advance(number, frames, times):
                arriving[output.stage if isinstance(output, Frame) else None].append(output)
        outputs = [o for o in arriving.pop(None, []) if isinstance(o, Output)]
        self.commits.spend("process", began)
        self.commits.commit(self.number, outputs, self.watermarks, now)
        self.watermarks = self.watermarks.after(self.job.plan, self.commits.totals.sources, self.commits.totals.clock)
        with profiling.span("write commit", DRIVER):
            write_commit(
                self.commits.warehouse.fs, self.commits.paths, self.number, to_spark_millis(self.watermarks.job)
            )
        self.commits.tell_sinks(self.number)
        self.number += 1

    def _advance(self, stage: int, frames: Sequence[Frame], times: BatchTimes) -> Iterator[Frame | Output]:
        by_bucket: dict[int, list[Frame]] = defaultdict(list)
        for frame in frames:
            by_bucket[frame.bucket].append(frame)
        reached = to_spark_millis(times.watermarks.operators[stage])
        for (owner, bucket), due in list(self.timers.items()):
            if owner == stage and timer_millis(due) <= reached:
                by_bucket.setdefault(bucket, [])
        calls = [partial(self._call, stage, bucket, arrived, times) for bucket, arrived in by_bucket.items()]
        return self._all(calls)

    def _scan(self, scan: int, work: Sequence[Work]) -> list[Frame | Output]:
        return [output for _, output in tasks.run_scan(self.job, scan, work, self.number, self.watermarks)]

    def _call(self, stage: int, bucket: int, arrived: Sequence[Frame], times: BatchTimes) -> list[Frame | Output]:
        """Call an operator for a bucket; return what it emits, and keep the manifest and the timer of its state."""
        advance = tasks.Advance(self.job, stage, bucket, self.manifests.get((stage, bucket)), times)
        outputs = list(advance.run(arrived))
        self.manifests[stage, bucket] = advance.manifest
        self.timers.pop((stage, bucket), None)
        if advance.event_timer is not None:
            self.timers[stage, bucket] = advance.event_timer
        return outputs

    def _all(self, calls: Sequence[Callable[[], list[Frame | Output]]]) -> Iterator[Frame | Output]:
        """Yield the results of calls in their order. An error is raised when no call runs any more."""
        if self._pool is None or len(calls) < 2:
            for call in calls:
                yield from call()
            return
        running = [self._pool.submit(call) for call in calls]
        wait(running)
        for one in running:
            yield from one.result()
