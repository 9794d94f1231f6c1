"""Spark's own log of batches, in a job's checkpoint: written before a batch starts, the same when it is repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlstream.runtime.times import from_spark_millis
from sqlstream.units import EventTime, ProcessingTime, from_millis
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import CUT, GONE, damage

# What stands for the offset of a source that has none yet.
_NONE = "-"


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """What Spark fixed for a batch: the watermark before it, and its processing time.

    `sequence` is the last descriptor that was read when the batch is done, its own or, if it has none, an earlier one's.
    """

    watermark: EventTime | None
    time: ProcessingTime
    sequence: int


def logged_offsets(fs: Filesystem, job: JobPaths, batch: int) -> BatchOffsets:
    """Return what Spark fixed for a batch that has started."""
    path = f"{job.checkpoint}/offsets/{batch}"
    try:
        # The version of the format, the clocks, then a line for each time that the query names the source.
        _, clocks, sequence, *_ = fs.read_text(path).splitlines()
        found = json.loads(clocks)
        read = -1 if sequence == _NONE else int(sequence)
    except FileNotFoundError:
        raise damage(path, GONE) from None
    except ValueError as error:
        raise damage(path, CUT) from error
    watermark, time = from_spark_millis(found["batchWatermarkMs"]), from_millis(found["batchTimestampMs"])
    return BatchOffsets(watermark, time, read)


def read_and_begun(fs: Filesystem, job: JobPaths) -> tuple[int, int]:
    """Return the last descriptor that a committed batch has read, and the last that is fixed as a batch's; -1 if none is.

    They differ when a batch was not committed: Spark repeats it.
    """
    committed = last_committed(fs, job)
    logged = max((int(name) for name in fs.list(f"{job.checkpoint}/offsets") if name.isdigit()), default=None)
    read = -1 if committed is None else logged_offsets(fs, job, committed).sequence
    return read, read if logged is None else logged_offsets(fs, job, logged).sequence
