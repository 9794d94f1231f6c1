"""Spark's own log of batches, in a job's checkpoint: written before a batch starts, the same when it is repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlstream.runtime.times import from_spark_millis
from sqlstream.storage.filesystem import Filesystem, JobPaths


@dataclass(frozen=True, slots=True)
class Offsets:
    """The clocks of a batch: the watermark before it in microseconds, its processing time in milliseconds."""

    watermark: int | None
    time: int


def logged_offsets(fs: Filesystem, job: JobPaths, batch: int) -> Offsets:
    """Return what Spark fixed for a batch that has started."""
    found = json.loads(fs.read_text(f"{job.checkpoint}/offsets/{batch}").splitlines()[1])
    return Offsets(from_spark_millis(found["batchWatermarkMs"]), found["batchTimestampMs"])
