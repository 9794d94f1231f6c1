"""The driver's side of a source: what the next batch reads. Workers read the splits that it hands out."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from sqlstream.catalog import Table
from sqlstream.units import Duration, parse_duration
from sqlstream.warehouse.paths import Warehouse

# What records and descriptors hold of a source or a sink: what JSON can.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


T = TypeVar("T")


class Split(Protocol):
    """A part of what a batch reads, for one task: a file, a range of offsets.

    Descriptors hold it as JSON: `type(split)(*split.to_list())` is the split again. `bytes` is how much work it is.
    """

    @property
    def bytes(self) -> int: ...

    def to_list(self) -> list[Any]: ...


class PartitionSplit(Split, Protocol):
    """A split of a source that is read by partitions: after it, a partition is read up to a position."""

    @property
    def reached(self) -> tuple[str, Any]: ...


class Position(Protocol):
    """How far a source was read: the sum of the splits that were handed out.

    Splits are added in the order of their batches, those of one batch in any order; a batch may be added twice.
    """

    def add(self, splits: Any) -> None: ...

    def to_bytes(self) -> bytes: ...


class Offsets:
    """How far each partition of a source was handed out."""

    def __init__(self, reached: dict[str, Any] | None = None):
        self.reached: dict[str, Any] = reached or {}

    def add(self, splits: Iterable[PartitionSplit]) -> None:
        """Remember that these splits were handed out."""
        batch: dict[str, Any] = {}
        for split in splits:
            partition, end = split.reached
            # A descriptor holds the splits of a batch by their size, not in their order.
            batch[partition] = max(batch[partition], end) if partition in batch else end
        self.reached |= batch

    def get(self, partition: str, start: Any = None) -> Any:
        return self.reached.get(partition, start)

    def to_bytes(self) -> bytes:
        return json.dumps(self.reached).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Offsets:
        """Return what `to_bytes` wrote."""
        return cls(json.loads(data))


class Discovery(ABC):
    """Finds what a source has and hands it out in batches. Everything that must outlive the process is in its position.

    `interval` is how often to look; a bounded source without one is looked at once. `changed` are files that were
    rewritten after they had been read. `warnings` are for whoever watches the job, who takes them. `backlog_unit` is what
    `backlog` counts, in the plural.
    """

    backlog_unit: ClassVar[str] = "splits"
    interval: Duration | None = None
    bounded: bool

    def __init__(self) -> None:
        self.changed: list[str] = []
        self.warnings: list[str] = []

    @abstractmethod
    def poll(self) -> int:
        """Look; return how much is waiting."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How much is known and was not handed out."""

    @property
    def backlog(self) -> int:
        """How far reading is behind what the source has, as of the last look: what no batch was given yet."""
        return self.waiting

    @property
    def remaining(self) -> int:
        """How much there is to come of a bounded source: 0 when it was read to its end."""
        return self.waiting

    @abstractmethod
    def next_batch(self) -> Sequence[Split] | None:
        """Return what the next batch reads, moving the position past it; None when nothing waits."""

    def partitions(self) -> Mapping[str, bool]:
        """Return the partitions of a source that has some (`TableSource.has_partitions`), and whether input of each waits.

        Those that were handed out to their end are not among them: they hold no watermark.
        """
        return {}

    def watermarks(self) -> Mapping[str, datetime]:
        """Return how far partitions are, if the source knows it by itself (`TableSource.has_watermarks`).

        No row of the partition that was not handed out yet is before that time, which is one of the time attribute; with a
        zone it is an instant.
        """
        return {}

    def committed(self, position: Any) -> None:
        """Learn up to which position rows were read by committed batches: they are never read again.

        Called after a commit, and at a start: then it may be a position that was told before. Called only where a subclass
        defines it. Several batches may be told of at once.
        """

    @property
    def is_told_of_commits(self) -> bool:
        return type(self).committed is not Discovery.committed

    def notices(self) -> Sequence[str]:
        """Return what whoever starts the job should know."""
        return ()

    def close(self) -> None:
        """Let go of what is held open."""


class Remember(Protocol):
    """Returns what was first given under a name, which JSON can hold: now, or in an earlier life of the job."""

    def __call__(self, name: str, value: T, /) -> T: ...


@dataclass(frozen=True, slots=True)
class DiscoveryContext:
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
    remember: Remember
    paced: bool = True
    clock: Callable[[], float] = time.monotonic


def monitor_interval(table: Table) -> Duration | None:
    """Return how often to look for more; None for a table that is bounded."""
    text = table.options.get("source.monitor-interval")
    return None if text is None else parse_duration(text)
