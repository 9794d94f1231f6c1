"""Manifests: which segments hold the rows of a bucket.

A manifest answers every retained version, not only its own. Rows have the batch that added them, so version v with watermark W
sees the rows of a table with `__sqlstream_batch` <= v and, where the table has a time column, time > W.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from uuid import uuid4

from sqlstream.storage.segments import Segment
from sqlstream.units import Duration, EventTime, ProcessingTime, from_millis, upgraded_times
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.records import Record, UnreadableFormat, Upgrade, read_json, read_sealed

FORMAT = 5
HISTORY_LENGTH = 64
# Counters whose names start with this hold the processing time of the last sweep for expired keys.
SWEPT_AT = "swept_at"
# The counter of the processing time up to which the bucket's timers have fired.
FIRED_AT = "timers_fired_at"


class Moment(NamedTuple):
    """A version of a bucket: its batch, its processing time, its watermark."""

    batch: int
    time: ProcessingTime
    watermark: EventTime | None


def _in_microseconds(content: dict[str, Any]) -> dict[str, Any]:
    """Convert a manifest of format 4, as JSON values: from milliseconds to microseconds, and with today's name of the timer."""
    content = upgraded_times(content, ("time", "processing_timer"))
    if (timer := content.pop("wake_at", None)) is not None:
        content["event_timer"] = timer
    history = [(batch, from_millis(time), watermark) for batch, time, watermark in content.get("history", ())]
    swept = [name for name in content.get("counters", ()) if name.startswith(SWEPT_AT)]
    return {**content, "history": history, "counters": upgraded_times(content.get("counters", {}), swept)}


class Manifest(Record, frozen=True, omit_defaults=True, tag_field="format", tag=FORMAT):
    """The segments of one bucket after one batch, including those that only older versions read.

    `time` is the batch's processing time; the bucket has forgotten rows up to `watermark` (None before the first). `history` is a
    sample of versions up to this one, oldest first. Versions before `oldest` cannot be read: some of their rows may be gone.
    `counters` are sums over the bucket's life. `event_timer` and `processing_timer` are the times at which the operator must
    run next.
    """

    upgrades: ClassVar[Mapping[int, Upgrade]] = {4: _in_microseconds}

    batch: int
    time: ProcessingTime
    watermark: EventTime | None
    tables: Mapping[str, tuple[Segment, ...]]
    counters: Mapping[str, int] = {}
    history: tuple[Moment, ...] = ()
    event_timer: EventTime | None = None
    processing_timer: ProcessingTime | None = None
    oldest: int = 0

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return the manifest in a text. Raises OtherVersionError."""
        try:
            return read_json(text, cls)
        except UnreadableFormat as other:
            raise other.error("the state of the job") from other


def manifest_name(batch: int) -> str:
    """Return a new name for a manifest. Attempts of one batch differ by their uuid; names sort by batch."""
    return f"{batch:010d}-{uuid4().hex[:16]}.json"


def batch_of(name: str) -> int:
    """Return the batch in the name of a manifest or a segment.

    >>> batch_of("0000000012-0f3c.json"), batch_of("my%2Dtable-x-12-0f3c.parquet")
    (12, 12)
    """
    return int(name.rsplit("-", 2)[-2])


def read_manifest(fs: Filesystem, path: str) -> Manifest:
    """Return the manifest in a file. Raises FileNotFoundError, DamageError when it is not intact, and OtherVersionError."""
    return Manifest.from_json(read_sealed(fs, path))


def horizon(history: Sequence[Moment], retention: Duration, retention_batches: int) -> Moment | None:
    """Return the oldest version that must stay readable, None when all must.

    It is the newest version in `history` that, at the last version, is at least as old as the retention, in time and in batches.
    """
    now = history[-1]
    old = [m for m in history if m.time <= now.time - retention and m.batch <= now.batch - retention_batches]
    return old[-1] if old else None


def thinned(history: Sequence[Moment]) -> tuple[Moment, ...]:
    """Return at most 64 moments of a history, spread evenly over its time.

    Where a version is missing, an older one becomes the horizon: more is kept, never less.
    """
    moments = list(history)
    while len(moments) > HISTORY_LENGTH:
        gaps = [
            (moments[i + 1].time - moments[i - 1].time, moments[i + 1].batch - moments[i - 1].batch)
            for i in range(1, len(moments) - 1)
        ]
        del moments[gaps.index(min(gaps)) + 1]
    return tuple(moments)
