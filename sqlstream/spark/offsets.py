"""Spark's own log of batches, in its checkpoint: written before a batch starts, unchanged when a task is repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlstream.spark.clusters import checkpoint_files
from sqlstream.units import ProcessingTime, from_millis

# The offset of a source that has none yet.
_NONE = "-"


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """The values that Spark fixed for a batch: its processing time, and what it reads.

    `sequence` numbers the last descriptor read when the batch is done. It is an earlier one if the batch reads none; -1: none.
    """

    time: ProcessingTime
    sequence: int


def logged_offsets(checkpoint: str, batch: int) -> BatchOffsets:
    """Return the values that Spark fixed for a batch that has started; `checkpoint` is the checkpoint's location."""
    # The version of the format, the clocks, then a line per use of the source in the query.
    fs, location = checkpoint_files(checkpoint)
    _, clocks, sequence, *_ = fs.read_text(f"{location}/offsets/{batch}").splitlines()
    values = json.loads(clocks)
    return BatchOffsets(from_millis(values["batchTimestampMs"]), -1 if sequence == _NONE else int(sequence))
