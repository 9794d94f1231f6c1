"""When batches were committed, seen from outside: the times of the files in a checkpoint's `commits` folder.

Both sqlstream and plain Spark have that folder, so both are measured by the same clock. A batch's time is the time from the
commit of the batch before to its own: everything in between counts, waiting for files and compaction too.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path


def commit_times(checkpoint: Path) -> dict[int, float]:
    """Return when each batch was committed, in seconds."""
    files = [p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()]
    return {int(p.name): p.stat().st_mtime_ns / 1e9 for p in sorted(files, key=lambda p: int(p.name))}


def batch_seconds(checkpoint: Path, batches: int, warm_up: int) -> list[float]:
    """Return how long each of the first `batches` batches took, without those of the warm-up."""
    times = commit_times(checkpoint)
    return [times[n] - times[n - 1] for n in range(warm_up, batches)]


def spark_batch_seconds(checkpoint: Path, batches: Sequence[int]) -> list[float]:
    """Return the time from the start of each batch, as Spark notes it, to its commit."""
    import json

    times = commit_times(checkpoint)
    found = []
    for number in batches:
        metadata = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[1])
        found.append(times[number] - metadata["batchTimestampMs"] / 1000)
    return found


def median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000
