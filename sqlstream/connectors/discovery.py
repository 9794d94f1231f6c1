"""The driver's side of a source: what the next batch reads. Workers read the splits that it hands out (`reading`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlstream.catalog import VALUES, Table
from sqlstream.connectors.filesystem.roots import Root
from sqlstream.connectors.filesystem.splits import Seen
from sqlstream.connectors.splits import Offsets, Split
from sqlstream.units import parse_duration
from sqlstream.warehouse.paths import Warehouse


class Position(Protocol):
    """How far a source was read: the sum of the splits that were handed out."""

    def add(self, splits: Any) -> None: ...

    def to_bytes(self) -> bytes: ...


class Discovery(Protocol):
    """Finds what a source has and hands it out in batches. Everything that must outlive the process is in its position.

    `interval` is how often to look, in seconds; a bounded source without one is looked at once. `remaining` is 0 when
    nothing that a bounded source has is left; `changed` are files that were rewritten after they had been read.
    """

    interval: float | None
    changed: list[str]

    @property
    def bounded(self) -> bool: ...

    def poll(self) -> int:
        """Look; return how much is waiting."""
        ...

    @property
    def waiting(self) -> int: ...

    @property
    def remaining(self) -> int: ...

    def next_batch(self) -> Sequence[Split] | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a source may ask of the job that reads it.

    `remember` returns what was first given to it under a name, also after a restart. With `finish` bounded means what
    there is when the job first starts, else what there is at every start. Without `paced` a generator hands out its rows
    as fast as they are asked for.
    """

    project: str
    warehouse: Warehouse
    directory: str
    parallelism: int
    finish: bool
    remember: Callable[[str, Any], Any]
    paced: bool = True
    clock: Callable[[], float] = time.monotonic


def new_position(table: Table, project: str, data: bytes | None = None) -> Position:
    """Return the position of a table that was not read yet, or the one that `to_bytes` wrote."""
    if table.connector not in ("filesystem", VALUES):
        return Offsets() if data is None else Offsets.from_bytes(data)
    root = Root.of(table.options["path"], project) if table.connector == "filesystem" else None
    return Seen(root) if data is None else Seen.from_bytes(data, root)


def monitor_interval(table: Table) -> float | None:
    """Return how often to look for more, in seconds; None for a table that is bounded."""
    text = table.options.get("source.monitor-interval")
    return None if text is None else parse_duration(text).total_seconds()
