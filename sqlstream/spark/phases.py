"""The phases of a batch as Spark's progress of a streaming query tells them, for a profile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from sqlstream import profiling
from sqlstream.profiling import TRIGGER

# In the order in which Spark runs them; it says how long each took, not when it began.
_ORDER = (
    "latestOffset",
    "getOffset",
    "walCommit",
    "getBatch",
    "queryPlanning",
    "addBatch",
    "commitBatch",
    "commitOffsets",
)
# Spark keeps the progress of ten batches (spark.sql.streaming.numRecentProgressUpdates): look at it before it forgets one.
_BATCHES_PER_LOOK = 4
# The commits of the state stores in milliseconds, summed over all tasks and operators; they are a part of the tasks of a batch.
# The time of updates is no use: it has what the task waits for, some of it twice.
_COMMIT = "commitTimeMs"


class SparkPhases:
    """Records the batches of a query. `base` is the version of its first batch."""

    def __init__(self, query: StreamingQuery, job: str, base: int):
        self._query: Any = query._jsq
        self._job, self._base = job, base
        self._last, self._looked_at = -1, -1

    def look(self, version: int | None = None) -> None:
        """Record what is new, if a look is due after `version`, or anyway."""
        if version is not None and version < self._looked_at + _BATCHES_PER_LOOK:
            return
        self._looked_at = self._looked_at if version is None else version
        for progress in self._query.recentProgress():
            # A trigger without new rows has the number of the next batch.
            if progress.batchId() > self._last and record(json.loads(progress.json()), self._job, self._base):
                self._last = progress.batchId()


def record(progress: Mapping[str, Any], job: str, base: int) -> bool:
    """Record a batch by the progress of its query; return whether it is one, and no trigger that found nothing to do."""
    millis: dict[str, int] = dict(progress["durationMs"])
    if "addBatch" not in millis:
        return False
    whole = millis.pop("triggerExecution")
    names = sorted(millis, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    began = int(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1_000_000)
    commits = sum(int(operator.get(_COMMIT, 0)) for operator in progress["stateOperators"]) * 1000
    # Without state there is no commit of it.
    store = {"state store commit": commits} if progress["stateOperators"] else {}
    lengths = {name: millis[name] * 1000 for name in names}
    labels: dict[str, str | int] = {"job": job, "batch": base + int(progress["batchId"])}
    profiling.phases(f"Spark: {job}", TRIGGER, began, whole * 1000, lengths, **labels, **store)
    return True
