"""Jobs of earlier versions of sqlstream, whose folders contain a whole checkpoint of Spark, not only its commits."""

from __future__ import annotations

import json

from sqlstream.storage.begun import BegunBatch, write_begun
from sqlstream.units import from_millis
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths


def leave_checkpoint(fs: Filesystem, job: JobPaths, version: int) -> None:
    """Reduce a checkpoint of Spark to its commits, and record what the batch of `version` reads, if that has begun.

    `version` is the first one that is not committed. The call can be interrupted at any point, and repeated.
    """
    offsets = f"{job.checkpoint}/offsets"
    # Stores never had it.
    if not fs.local or not fs.exists(offsets):
        return
    begun = _begun(fs, f"{offsets}/{version}", version)
    if begun is not None:
        write_begun(fs, job, begun)
    for name in fs.entries(job.commits):
        if name.startswith("."):
            fs.delete(f"{job.commits}/{name}")
    files = {file.name for file in fs.infos(job.checkpoint)}
    for name in fs.entries(job.checkpoint):
        path = f"{job.checkpoint}/{name}"
        if path not in (job.commits, offsets):
            (fs.delete if name in files else fs.delete_tree)(path)
    fs.delete_tree(offsets)


def _begun(fs: Filesystem, path: str, version: int) -> BegunBatch | None:
    """Return the batch in Spark's log of offsets: a line with the format, one with clocks, then one per reading of the source.

    None if there is none, or if the file is cut off.
    """
    try:
        _, clocks, sequence, *_ = fs.read_text(path).splitlines()
        time = from_millis(json.loads(clocks)["batchTimestampMs"])
        return BegunBatch(version, -1 if sequence == "-" else int(sequence), time)
    except (FileNotFoundError, ValueError, LookupError):
        # It has not begun, or a power failure took the record.
        return None
