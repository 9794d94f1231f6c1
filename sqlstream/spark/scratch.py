"""Spark's checkpoint: scratch, made anew each time a job starts.

Nothing in it is needed to go on: which input a batch reads is in its descriptor, the state in the manifests that the job's log
names, and the watermark in our own commits. So a job that goes on begins a new checkpoint. Spark counts its batches from 0 again;
its first one is `base` to us. It runs with the watermark that the last commit gives it, and calls all buckets: those whose timers
are due fire them, the others register theirs with Spark.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from sqlstream.errors import JobError, SqlStreamError
from sqlstream.names import path_name
from sqlstream.runtime.commits import Totals
from sqlstream.runtime.frames import WAKE, Frame
from sqlstream.runtime.times import to_spark_millis
from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.clusters import CHECKPOINT, checkpoint_files
from sqlstream.spark.offsets import BatchOffsets, logged_offsets
from sqlstream.storage.begun import Begun
from sqlstream.storage.joblog import LogEntry
from sqlstream.storage.snapshot import named_manifest
from sqlstream.units import EventTime, ProcessingTime, to_millis
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.records import digest


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """Where Spark's checkpoint of a job is, as the driver and the workers know it.

    Spark's batch 0 is `base` to us. Where the checkpoint is new and the job is not, `manifests` names those of the job's state by
    stage and bucket.
    """

    location: str
    base: int = 0
    manifests: Mapping[tuple[int, int], str] | None = None

    def offsets(self, batch: int) -> BatchOffsets:
        """Return what Spark fixed for one of its batches."""
        return logged_offsets(self.location, batch)

    def check_seen(self) -> None:
        """Raise JobError in a worker that does not see the folder in which the driver has made the checkpoint.

        What it wrote would be on its own machine, where nobody finds it.
        """
        if "://" not in self.location and not os.path.isdir(self.location):
            seen = os.path.dirname(os.path.dirname(self.location))
            raise JobError(
                f'"{seen}" on {socket.gethostname()} is not the folder that the driver has there',
                hint="All machines of the cluster must see it at this path: it is in the warehouse, or where "
                f"{CHECKPOINT} says.",
            )

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


def new_checkpoint(
    fs: Filesystem,
    paths: JobPaths,
    job: JobSpec,
    entry: LogEntry | None,
    begun: Begun | None,
    shared: str | None = None,
) -> SparkCheckpoint:
    """Return a checkpoint for a job that starts, or goes on after the version of an entry of its log.

    `shared` is where checkpoints can be that all workers see, a folder or a URI, if somebody has said so.
    """
    location = _new_folder(fs, paths) if shared is None else _shared_folder(shared, job)
    if entry is None:
        # What has begun is told to Spark, as where a job goes on.
        return SparkCheckpoint(location, manifests=None if begun is None else {})
    manifests = {
        (number, bucket): name
        for number, stage in enumerate(job.plan.stages)
        for bucket, name in entry.state_manifests(stage.name).items()
    }
    return SparkCheckpoint(location, entry.version + 1, manifests)


def _new_folder(fs: Filesystem, paths: JobPaths) -> str:
    """Return where a checkpoint can be: in the job's folder, which all workers see, or a temporary one for stores."""
    if fs.local:
        # A process that was killed left its own.
        fs.delete_tree(paths.scratch)
    # Spark renames files, which stores cannot.
    root = paths.scratch if fs.local else _temporary_folder()
    # Executors of a cluster that outlive their driver do not know this name.
    return f"{root}/{uuid4().hex[:12]}"


def _shared_folder(shared: str, job: JobSpec) -> str:
    """Return where a checkpoint can be in a folder of all jobs, of this and of other warehouses."""
    root = f"{shared.rstrip('/')}/{digest(job.warehouse)}/{path_name(job.name.lower())}"
    _delete(root)
    return f"{root}/{uuid4().hex[:12]}"


def _delete(root: str) -> None:
    """Delete a folder as far as it goes: executors may be writing there. The next start of the job deletes the rest."""
    fs, path = checkpoint_files(root)
    if fs.local:
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(SqlStreamError):
        fs.delete_tree(path)


_TEMPORARY = "sqlstream-checkpoint-"
# A file in a temporary folder that its process keeps locked.
_LOCK = "lock"
# The descriptors of those of this process.
_locks: dict[str, int] = {}


def _temporary_folder() -> str:
    """Make a folder for a checkpoint beside the other temporary files, and delete those of processes that were killed."""
    parent = tempfile.gettempdir()
    for name in os.listdir(parent):
        if name.startswith(_TEMPORARY) and _is_left(f"{parent}/{name}/{_LOCK}"):
            shutil.rmtree(f"{parent}/{name}", ignore_errors=True)
    root = tempfile.mkdtemp(prefix=_TEMPORARY)
    # Locked before it has its name, so that nobody takes it for one that was left.
    descriptor = os.open(f"{root}/.{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(f"{root}/.{_LOCK}", f"{root}/{_LOCK}")
    _locks[root] = descriptor
    return root


def _is_left(lock: str) -> bool:
    """Tell whether nobody holds a lock; of a folder without one, or of another user, that is not known."""
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_first_batch(
    spark: SparkSession, checkpoint: SparkCheckpoint, sources: int, millis: int, time: ProcessingTime
) -> None:
    """Make Spark begin with a batch that takes the first descriptor shown, with a watermark on its own scale."""
    assert spark._jvm is not None
    metadata: Any = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata
    head = json.loads(metadata.apply(millis, to_millis(time), spark._jsparkSession.conf()).json())
    # Spark takes no nulls of what it writes itself.
    head["conf"] = {name: value for name, value in head["conf"].items() if value is not None}
    fs, location = checkpoint_files(checkpoint.location)
    fs.write_text_atomic(f"{location}/offsets/0", "\n".join(["v1", json.dumps(head), *["0"] * sources]))
    fs.write_text_atomic(f"{location}/metadata", json.dumps({"id": str(uuid4())}))


def next_watermark_millis(job: JobSpec, totals: Totals, before: int) -> int:
    """Return the watermark, on Spark's scale, that Spark gives to the batch after the one that `totals` end with."""
    marks = [totals.sources[job.plan.scans[i].name].watermark for i in job.plan.watched]
    return max(before, min(map(to_spark_millis, marks), default=0))


def remove(checkpoint: SparkCheckpoint) -> None:
    """Delete a checkpoint that no run needs any more."""
    root = os.path.dirname(checkpoint.location)
    _delete(root)
    if (descriptor := _locks.pop(root, None)) is not None:
        os.close(descriptor)
