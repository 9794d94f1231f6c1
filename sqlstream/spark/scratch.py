"""Spark's checkpoint where the warehouse is no place for it: a local folder, made anew each time a job starts.

Spark writes its checkpoint by renaming files, which object stores cannot. Nothing in it is needed to go on: which input a batch
reads is in its descriptor, the state in the manifests that the job's log names, and the watermark in our own commits. So a job
that goes on begins a new checkpoint. Spark counts its batches from 0 again; its first one is `base` to us. It runs with the
watermark that the last commit gives it, and calls all buckets, so that those whose timers are due fire them, and the others
register theirs with Spark.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from sqlstream.runtime.commits import Totals
from sqlstream.runtime.frames import WAKE, Frame
from sqlstream.runtime.times import to_spark_millis
from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.offsets import BatchOffsets, logged_offsets
from sqlstream.storage.joblog import LogEntry
from sqlstream.storage.snapshot import named_manifest
from sqlstream.units import EventTime, ProcessingTime, to_millis
from sqlstream.warehouse.filesystem import Filesystem, LocalFilesystem
from sqlstream.warehouse.leases import check_held
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.records import Record, read_json, read_sealed, write_sealed


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """Where Spark's checkpoint of a job is, as the driver and the workers know it.

    Spark's batch 0 is `base` to us. Where the checkpoint is new and the job is not, `manifests` names those of the job's state by
    stage and bucket.
    """

    root: str
    base: int = 0
    manifests: Mapping[tuple[int, int], str] | None = None

    @property
    def location(self) -> str:
        return JobPaths(self.root).checkpoint

    def offsets(self, batch: int) -> BatchOffsets:
        """Return what Spark fixed for one of its batches."""
        return logged_offsets(LocalFilesystem(), JobPaths(self.root), batch)

    def stored(self, job: JobSpec, stage: int, bucket: int) -> tuple[str, EventTime | None] | None:
        """Return the manifest of a bucket's state as it was before the checkpoint, and the timer that it waits for."""
        name = (self.manifests or {}).get((stage, bucket))
        if name is None:
            return None
        warehouse = Warehouse(job.warehouse)
        paths = warehouse.job(job.name).operator(job.plan.stages[stage].name)
        manifest = named_manifest(warehouse.fs, paths, bucket, name)
        return manifest.to_json(), manifest.event_timer

    def calls(self, job: JobSpec, batch: int, time: ProcessingTime) -> list[Frame]:
        """Return the frames that call all buckets in Spark's first batch."""
        if batch > 0 or self.manifests is None:
            return []
        return [Frame(label, WAKE, time, b"") for label in job.labels]


def is_needed(fs: Filesystem, job: JobPaths) -> bool:
    """Whether Spark's checkpoint cannot be in a warehouse, or the job was restored from a savepoint, which has none."""
    return not fs.local or fs.exists(job.restored)


def new_checkpoint(job: JobSpec, entry: LogEntry | None, begun: Begun | None) -> SparkCheckpoint:
    """Return a checkpoint for a job that starts, or goes on after the version of an entry of its log."""
    root = tempfile.mkdtemp(prefix="sqlstream-checkpoint-")
    if entry is None:
        # What has begun is told to Spark, as where a job goes on.
        return SparkCheckpoint(root, manifests=None if begun is None else {})
    manifests = {
        (number, bucket): name
        for number, stage in enumerate(job.plan.stages)
        for bucket, name in entry.state_manifests(stage.name).items()
    }
    return SparkCheckpoint(root, entry.version + 1, manifests)


class Begun(Record, frozen=True, tag_field="format", tag=1):
    """A batch that has begun: the last descriptor that was read when it is done, its own or an earlier one's, and its time.

    Sinks may have its rows before it is committed. So it reads the same when it is repeated.
    """

    version: int
    sequence: int
    time: ProcessingTime


def write_begun(fs: Filesystem, job: JobPaths, begun: Begun) -> None:
    """Fix what a batch reads, before it does anything. Raises JobError when another process may run the job by now."""
    check_held(job)
    write_sealed(fs, job.begun, begun.to_json())


def read_begun(fs: Filesystem, job: JobPaths, version: int) -> Begun | None:
    """Return the batch of a version if it has begun."""
    try:
        begun = read_json(read_sealed(fs, job.begun), Begun)
    except FileNotFoundError:
        return None
    return begun if begun.version == version else None


def write_first_batch(
    spark: SparkSession, checkpoint: SparkCheckpoint, sources: int, millis: int, time: ProcessingTime
) -> None:
    """Make Spark begin with a batch that takes the first descriptor shown, with a watermark on its own scale."""
    assert spark._jvm is not None
    metadata: Any = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata
    head = json.loads(metadata.apply(millis, to_millis(time), spark._jsparkSession.conf()).json())
    # Spark takes no nulls of what it writes itself.
    head["conf"] = {name: value for name, value in head["conf"].items() if value is not None}
    fs, location = LocalFilesystem(), checkpoint.location
    fs.write_text_atomic(f"{location}/offsets/0", "\n".join(["v1", json.dumps(head), *["0"] * sources]))
    fs.write_text_atomic(f"{location}/metadata", json.dumps({"id": str(uuid4())}))


def next_watermark_millis(job: JobSpec, totals: Totals, before: int) -> int:
    """Return the watermark, on Spark's scale, that Spark gives to the batch after the one that `totals` end with."""
    marks = [totals.sources[job.plan.scans[i].name].watermark for i in job.plan.watched]
    return max(before, min(map(to_spark_millis, marks), default=0))


def remove(checkpoint: SparkCheckpoint) -> None:
    """Delete a checkpoint that no run needs any more."""
    shutil.rmtree(checkpoint.root, ignore_errors=True)
