"""Ranges of offsets: the splits of a Kafka source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    @property
    def name(self) -> str:
        """Its name, as in Kafka.

        >>> TopicPartition("orders", 3).name
        'orders-3'
        """
        return f"{self.topic}-{self.number}"

    def __str__(self) -> str:
        return f'partition {self.number} of topic "{self.topic}"'


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [start, end) of a partition. Some of them may have no message."""

    topic: str
    number: int
    start: int
    end: int

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    @property
    def bytes(self) -> int:
        """The number of offsets, as the length of messages is unknown."""
        return self.end - self.start

    @property
    def reached(self) -> tuple[str, int]:
        return self.partition.name, self.end

    def to_list(self) -> list[Any]:
        return [self.topic, self.number, self.start, self.end]


def shared(waiting: dict[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition a batch takes: all that wait, or about equal shares of `limit`.

    >>> a, b, c = (TopicPartition("t", n) for n in range(3))
    >>> shared({a: 10, b: 2, c: 90}, 22) == {a: 10, b: 2, c: 10}
    True
    """
    shares: dict[TopicPartition, int] = {}
    ascending = sorted(waiting.items(), key=lambda item: item[1])
    for index, (partition, offsets) in enumerate(ascending):
        shares[partition] = min(offsets, max(limit // (len(ascending) - index), 1 if limit > 0 else 0))
        limit -= shares[partition]
    return {partition: shares[partition] for partition in waiting if shares[partition]}
