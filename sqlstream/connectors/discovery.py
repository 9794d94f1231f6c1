"""The driver's side of a source: it decides which splits the next batch reads. Workers read the splits."""

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

# A value in a record or a descriptor.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


T = TypeVar("T")


class Split(Protocol):
    """A part of the input of a batch, which one task reads whole: a file, a range of offsets.

    Descriptors store it as JSON: `TableSource.split(split.to_list())` is an equal split.
    """

    @property
    def bytes(self) -> int:
        """The weight that balances splits over tasks: its size in bytes if the source is `measured`, else an estimate."""

    def to_list(self) -> list[Any]:
        """Return the split as values of JSON. By default `TableSource.split` passes them to `split_type`."""


class PartitionSplit(Split, Protocol):
    """A split of a partitioned source: a range of positions of one partition."""

    @property
    def reached(self) -> tuple[str, Any]:
        """The partition's name, and the position behind the split, at which the next one begins.

        The positions of a partition must be comparable, if a batch can have several splits of it.
        """


class Position(Protocol):
    """How far the batches of a job have read a source: the sum of all splits that were handed out.

    Add batches in their order; the splits of one batch may come in any order. Adding a batch twice has no further effect.
    """

    def add(self, splits: Any) -> None:
        """Move the position past the splits of a batch."""

    def to_bytes(self) -> bytes:
        """Return the position as bytes, which `TableSource.position` reads."""


class Offsets:
    """The position of a partitioned source: `reached` maps the name of a partition to the position behind its last split."""

    def __init__(self, reached: dict[str, Any] | None = None):
        self.reached: dict[str, Any] = reached or {}

    def add(self, splits: Iterable[PartitionSplit]) -> None:
        """Move the position past the splits of a batch."""
        batch: dict[str, Any] = {}
        for split in splits:
            partition, end = split.reached
            # A descriptor sorts the splits of a batch by size, not by position.
            batch[partition] = max(batch[partition], end) if partition in batch else end
        self.reached |= batch

    def get(self, partition: str, start: Any = None) -> Any:
        """Return the position of a partition; `start` if none of its splits was handed out."""
        return self.reached.get(partition, start)

    def to_bytes(self) -> bytes:
        """Return the position as JSON, which `from_bytes` reads."""
        return json.dumps(self.reached).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Offsets:
        """Return the position that `to_bytes` encoded."""
        return cls(json.loads(data))


class Discovery(ABC):
    """Finds the input of a source on the driver, and hands it out in batches.

    All state that must survive a restart is in its position. The job calls `poll` every `interval`, or only once if that is None.
    `changed` lists files that were rewritten after a batch had read them. `warnings` are messages for the job's log; the caller
    removes the ones that it has shown. `backlog_unit` names what `backlog` counts, in the plural.
    """

    backlog_unit: ClassVar[str] = "splits"
    interval: Duration | None = None
    bounded: bool

    def __init__(self) -> None:
        self.changed: list[str] = []
        self.warnings: list[str] = []

    @abstractmethod
    def poll(self) -> int:
        """Look for new input, and return `waiting`."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How much input is known and not handed out yet, in a unit of the source's choice. At 0 the job begins no batch."""

    @property
    def backlog(self) -> int:
        """How much input, in `backlog_unit`, no batch had taken at the last `poll`."""
        return self.waiting

    @property
    def remaining(self) -> int:
        """How much of a bounded source is still to be handed out: 0 at its end."""
        return self.waiting

    @abstractmethod
    def next_batch(self) -> Sequence[Split] | None:
        """Return the splits of the next batch, and move the position past them; None if nothing waits."""

    def partitions(self) -> Mapping[str, bool]:
        """Map each partition of a source that `has_partitions` to whether it has input that waits.

        Leave out partitions that have been read to their end: they must not hold back the watermark.
        """
        return {}

    def watermarks(self) -> Mapping[str, datetime]:
        """Return the watermark of each partition, if the source `has_watermarks`.

        No row of the partition that is still to be handed out has an earlier event time. For a time attribute with a time zone
        the datetime is aware, an instant; otherwise it is naive.
        """
        return {}

    def committed(self, position: Any) -> None:
        """React to a commit: committed batches have read the input up to `position`, so no batch will read it again.

        The job calls this after commits and at each start, where it may repeat the last call. It skips the call if
        `is_told_of_commits` is False. One call may stand for several batches.
        """

    @property
    def is_told_of_commits(self) -> bool:
        """Whether the job calls `committed`: by default, if a subclass defines it."""
        return type(self).committed is not Discovery.committed

    def notices(self) -> Sequence[str]:
        """Return notices for users who start the job."""
        return ()

    def close(self) -> None:
        """Close connections and other resources."""


class Remember(Protocol):
    """Stores a JSON value under a name with the job, once. Later calls return the stored value, also after a restart."""

    def __call__(self, name: str, value: T, /) -> T: ...


@dataclass(frozen=True, slots=True)
class DiscoveryContext:
    """What a job offers to a Discovery.

    `project` is a path, and `directory` the path of a folder in which the source may keep files. `parallelism` is the number of
    tasks that read a batch at the same time. `remember` stores values with the job. With `finish`, a bounded source ends at the
    input that exists when the job first starts; otherwise, at the input that exists at each start. Without `paced`, a generator
    ignores its rate. `clock` returns seconds on the monotonic clock.
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
    """Return the time between two looks for new input (`source.monitor-interval`); None for a bounded table."""
    text = table.options.get("source.monitor-interval")
    return None if text is None else parse_duration(text)
