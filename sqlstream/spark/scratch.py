"""Spark's checkpoint: temporary, made anew each time that a job starts.

A job needs nothing in it to continue: the input of a batch is in its descriptor, the state in the manifests that the job's log
names, and the watermark in our own commits. So a job that continues begins a new checkpoint. Spark counts its batches from
0 again; its batch 0 is our batch `base`. That batch runs with the watermark of the last commit, and calls all buckets: buckets
with timers that are due fire them, all others register their timers with Spark.
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
from sqlstream.runtime.frames import WAKE, Frame
from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.clusters import CHECKPOINT, checkpoint_files
from sqlstream.spark.offsets import BatchOffsets, logged_offsets
from sqlstream.storage.begun import BegunBatch
from sqlstream.storage.joblog import LogEntry
from sqlstream.storage.snapshot import named_manifest
from sqlstream.units import EventTime, ProcessingTime, to_millis
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.records import digest


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """Where Spark's checkpoint of a job is, for the driver and the workers.

    Spark's batch 0 is our batch `base`. If a job continues with a new checkpoint, `manifests` has the names of the manifests of
    its state, by (stage, bucket).
    """

    location: str
    base: int = 0
    manifests: Mapping[tuple[int, int], str] | None = None

    def offsets(self, batch: int) -> BatchOffsets:
        """Return the offsets that Spark fixed for one of its batches."""
        return logged_offsets(self.location, batch)

    def check_seen(self) -> None:
        """Raise JobError in a worker that does not see the folder of the checkpoint, which the driver has made.

        Without this check, it would write to a folder of the same path on its own machine.
        """
        if "://" not in self.location and not os.path.isdir(self.location):
            seen = os.path.dirname(os.path.dirname(self.location))
            raise JobError(
                f'"{seen}" on {socket.gethostname()} is not the folder that the driver has there',
                hint="All machines of the cluster must see it at this path: it is in the warehouse, or where "
                f"{CHECKPOINT} says.",
            )

    def stored(self, job: JobSpec, stage: int, bucket: int) -> tuple[str, EventTime | None] | None:
        """Return (manifest as JSON, next event-time timer) of a bucket's state from before the checkpoint; None without state."""
        name = (self.manifests or {}).get((stage, bucket))
        if name is None:
            return None
        warehouse = Warehouse(job.warehouse)
        paths = warehouse.job(job.name).operator(job.plan.stages[stage].name)
        manifest = named_manifest(warehouse.fs, paths, bucket, name)
        return manifest.to_json(), manifest.event_timer

    def calls(self, job: JobSpec, batch: int, time: ProcessingTime) -> list[Frame]:
        """Return frames that wake all buckets in Spark's first batch, [] in any other batch and for a new job."""
        if batch > 0 or self.manifests is None:
            return []
        return [Frame(label, WAKE, time, b"") for label in job.labels]


def new_checkpoint(
    fs: Filesystem,
    paths: JobPaths,
    job: JobSpec,
    entry: LogEntry | None,
    begun: BegunBatch | None,
    shared: str | None = None,
) -> SparkCheckpoint:
    """Return a checkpoint for a new job, or for one that continues after the version of a log entry.

    `begun` is the batch that has begun and is not committed, if any. `shared` is a folder or URI for checkpoints that all workers
    see, from the setting CHECKPOINT.
    """
    location = _new_folder(fs, paths) if shared is None else _shared_folder(shared, job)
    if entry is None:
        # Spark must repeat the batch that has begun, as for a job that continues.
        return SparkCheckpoint(location, manifests=None if begun is None else {})
    manifests = {
        (number, bucket): name
        for number, stage in enumerate(job.plan.stages)
        for bucket, name in entry.state_manifests(stage.name).items()
    }
    return SparkCheckpoint(location, entry.version + 1, manifests)


def _new_folder(fs: Filesystem, paths: JobPaths) -> str:
    """Return a new path for a checkpoint: in the job's folder, which all workers see; for stores in a temporary folder."""
    if fs.local:
        # A killed process has left its checkpoint.
        fs.delete_tree(paths.scratch)
    # Spark renames files, which stores cannot.
    root = paths.scratch if fs.local else _temporary_folder()
    # Executors of a cluster that outlive their driver do not know this name.
    return f"{root}/{uuid4().hex[:12]}"


def _shared_folder(shared: str, job: JobSpec) -> str:
    """Return a new path for a checkpoint in a folder that jobs of this and other warehouses share."""
    root = f"{shared.rstrip('/')}/{digest(job.warehouse)}/{path_name(job.name.lower())}"
    _delete(root)
    return f"{root}/{uuid4().hex[:12]}"


def _delete(root: str) -> None:
    """Delete a folder, without errors: executors may still write into it. The next start of the job deletes the rest."""
    fs, path = checkpoint_files(root)
    if fs.local:
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(SqlStreamError):
        fs.delete_tree(path)


_TEMPORARY = "sqlstream-checkpoint-"
# The file in a temporary folder that its process keeps locked.
_LOCK = "lock"
# The descriptors of the locks of this process, by folder.
_locks: dict[str, int] = {}


def _temporary_folder() -> str:
    """Make a folder for a checkpoint among the temporary files, and delete those of killed processes."""
    parent = tempfile.gettempdir()
    for name in os.listdir(parent):
        if name.startswith(_TEMPORARY) and _is_abandoned(f"{parent}/{name}/{_LOCK}"):
            shutil.rmtree(f"{parent}/{name}", ignore_errors=True)
    root = tempfile.mkdtemp(prefix=_TEMPORARY)
    # Locked before it has its name, so that nobody sees it unlocked.
    descriptor = os.open(f"{root}/.{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(f"{root}/.{_LOCK}", f"{root}/{_LOCK}")
    _locks[root] = descriptor
    return root


def _is_abandoned(lock: str) -> bool:
    """Return whether nobody holds a lock; False for a folder without one, or of another user."""
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_first_batch(
    spark: SparkSession, checkpoint: SparkCheckpoint, sources: int, millis: int, time: ProcessingTime
) -> None:
    """Write the offsets of Spark's batch 0, which reads the first descriptor and has the watermark `millis`, on Spark's scale."""
    assert spark._jvm is not None
    metadata: Any = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata
    head = json.loads(metadata.apply(millis, to_millis(time), spark._jsparkSession.conf()).json())
    # Spark cannot read the nulls that it writes itself.
    head["conf"] = {name: value for name, value in head["conf"].items() if value is not None}
    fs, location = checkpoint_files(checkpoint.location)
    fs.write_text_atomic(f"{location}/offsets/0", "\n".join(["v1", json.dumps(head), *["0"] * sources]))
    fs.write_text_atomic(f"{location}/metadata", json.dumps({"id": str(uuid4())}))


def remove(checkpoint: SparkCheckpoint) -> None:
    """Delete a checkpoint that no run needs."""
    root = os.path.dirname(checkpoint.location)
    _delete(root)
    if (descriptor := _locks.pop(root, None)) is not None:
        os.close(descriptor)
