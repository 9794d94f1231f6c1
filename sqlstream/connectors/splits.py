"""What a batch reads of a source: splits of every kind as descriptors hold them, and the positions that they add up to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from sqlstream.connectors.filesystem.splits import Split as FileSplit


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of a generator by their numbers: [first, end). `base` is the time of its first row in milliseconds."""

    kind: ClassVar[str] = "rows"
    first: int
    end: int
    base: int = 0

    @property
    def bytes(self) -> int:
        return self.end - self.first

    @property
    def reached(self) -> tuple[str, Any]:
        return "", self.end

    def to_list(self) -> list[Any]:
        return [self.first, self.end, self.base]


@dataclass(frozen=True, slots=True)
class BatchRange:
    """What a job wrote into a warehouse table: the batches (after, up_to].

    `created` tells the job from another one of its name; `bytes` is an estimate.
    """

    kind: ClassVar[str] = "batches"
    job: str
    created: int
    after: int
    up_to: int
    bytes: int

    @property
    def reached(self) -> tuple[str, Any]:
        return f"{self.job}@{self.created}", self.up_to

    def to_list(self) -> list[Any]:
        return [self.job, self.created, self.after, self.up_to, self.bytes]


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """What a Python source has in one of its partitions between two positions, which are anything that JSON can hold."""

    kind: ClassVar[str] = "partition"
    partition: str
    start: Any
    end: Any
    bytes: ClassVar[int] = 1

    @property
    def reached(self) -> tuple[str, Any]:
        return self.partition, self.end

    def to_list(self) -> list[Any]:
        return [self.partition, self.start, self.end]


@dataclass(frozen=True, slots=True)
class LinesFile:
    """A file of lines that the driver received, the nth of its source. Its path begins at the warehouse."""

    kind: ClassVar[str] = "lines"
    number: int
    path: str
    bytes: int

    @property
    def reached(self) -> tuple[str, Any]:
        return "", self.number + 1

    def to_list(self) -> list[Any]:
        return [self.number, self.path, self.bytes]


Split: TypeAlias = FileSplit | RowRange | BatchRange | PartitionRange | LinesFile


def encode(split: Split) -> list[Any]:
    """Return a split as JSON can hold it."""
    return ["file" if isinstance(split, FileSplit) else split.kind, *split.to_list()]


def decode(values: Sequence[Any]) -> Split:
    """Return the split that `encode` described."""
    kind, *rest = values
    match kind:
        case "file":
            return FileSplit.from_list(rest)
        case "rows":
            return RowRange(*rest)
        case "batches":
            return BatchRange(*rest)
        case "partition":
            return PartitionRange(*rest)
        case "lines":
            return LinesFile(*rest)
    raise ValueError(f'no such kind of split: "{kind}"')


class Offsets:
    """How far each partition of a source was handed out. Batches are added in their order; one may be added twice."""

    def __init__(self, reached: dict[str, Any] | None = None):
        self.reached: dict[str, Any] = reached or {}

    def add(self, splits: Iterable[Split]) -> None:
        """Remember that these splits were handed out."""
        batch: dict[str, Any] = {}
        for split in splits:
            assert not isinstance(split, FileSplit)
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
