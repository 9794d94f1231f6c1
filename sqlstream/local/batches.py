"""Micro-batches of a job in this process, without Spark."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sqlstream.runtime import tasks
from sqlstream.runtime.batch_descriptors import Work, from_lines
from sqlstream.runtime.commits import Commits
from sqlstream.runtime.frames import Frame
from sqlstream.runtime.tasks import Output
from sqlstream.runtime.times import from_spark_millis, timer_millis, to_spark_millis
from sqlstream.runtime.watermarks import BatchTimes, Watermarks
from sqlstream.storage.snapshot import named_manifest
from sqlstream.units import EventTime, ProcessingTime
from sqlstream.warehouse.commits import committed_spark_millis, write_commit


class LocalBatches:
    """Runs the batches of a job one after the other, beginning after the last committed batch.

    It holds what Spark holds between batches: the manifest of each bucket's state, the next timers, and the watermarks.
    """

    def __init__(self, commits: Commits):
        self.commits, self.job = commits, commits.job
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
        self._run(lines, now)
        if self.watermarks.waking(self.job.plan) != before:
            self._run("", now)

    def catch_up(self, now: ProcessingTime) -> None:
        """Run the empty batch that is due after the last one, if the process ended before it ran."""
        plan = self.job.plan
        if self.number > 0 and self.watermarks.waking(plan) != self.commits.last_watermarks().waking(plan):
            self._run("", now)

    def _run(self, lines: str, now: ProcessingTime) -> None:
        began = time.monotonic()
        arriving: dict[int | None, list[Frame | Output]] = defaultdict(list)
        work: dict[tuple[int, int], list[Work]] = defaultdict(list)
        for one in from_lines(lines):
            work[one.scan, one.slot].append(one)
        for (scan, _), of_task in work.items():
            for _, output in tasks.run_scan(self.job, scan, of_task, self.number, self.watermarks):
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
        write_commit(self.commits.warehouse.fs, self.commits.paths, self.number, to_spark_millis(self.watermarks.job))
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
        for bucket, arrived in by_bucket.items():
            advance = tasks.Advance(self.job, stage, bucket, self.manifests.get((stage, bucket)), times)
            yield from advance.run(arrived)
            self.manifests[stage, bucket] = advance.manifest
            self.timers.pop((stage, bucket), None)
            if advance.event_timer is not None:
                self.timers[stage, bucket] = advance.event_timer
