"""When batches were committed, seen from outside: the times of the files in a checkpoint's `commits` folder.

Both sqlstream and plain Spark have that folder, so both are measured by the same clock. A batch's time is the time from the
commit of the batch before to its own: everything in between counts, waiting for files and compaction too.
"""

from __future__ import annotations

from pathlib import Path

from tests.bench.rates import UnfitRunError

# As long as Spark keeps the files by default: 100 batches.
MAX_BATCHES = 100


def commit_times(checkpoint: Path) -> dict[int, float]:
    """Return when each batch was committed, in seconds."""
    files = [p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()]
    return {int(p.name): p.stat().st_mtime_ns / 1e9 for p in files}


def batch_seconds(checkpoint: Path, batches: int, warm_up: int) -> list[float]:
    """Return how long each of the first `batches` batches took, without those of the warm-up.

    Raises UnfitRunError for a batch that took no time: the clock was moved.
    """
    times = commit_times(checkpoint)
    if missing := [n for n in range(batches) if n not in times]:
        raise RuntimeError(f"the run ended without committing batches {missing} of {batches}: {checkpoint}")
    seconds = [times[n] - times[n - 1] for n in range(warm_up, batches)]
    if min(seconds) <= 0:
        raise UnfitRunError(f"a batch took {min(seconds):.3f} s: {checkpoint}")
    return seconds
