"""How long messages are, which their offsets do not tell: some are read, so that a batch does not take more bytes than it may."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from statistics import mean
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.kafka.client import client_library, settings
from sqlstream.connectors.kafka.ranges import TopicPartition

# Brokers take no longer message, unless they are told to.
_LONGEST = 1 << 20
# How many messages of a partition are read, of how many partitions at a time, and for how many seconds at most.
_SAMPLE, _PARTITIONS, _SECONDS = 200, 16, 1.0
# After so many seconds a partition may have other messages; and a broker that did not answer is asked again.
_KNOWN_SECONDS, _AGAIN_SECONDS = 60.0, 10.0
_FIXED = {
    "group.id": "sqlstream",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "log_level": 0,
    "fetch.wait.max.ms": "50",
    # A consumer fetches more than is read of it: not much more.
    "queued.max.messages.kbytes": "1024",
    "fetch.message.max.bytes": "1000000",
}


class MessageSizes:
    """How many bytes of keys and values an offset stands for in each partition, as some of its messages tell."""

    def __init__(self, table: Table):
        self._table = table
        # With the moment when it was found.
        self._known: dict[TopicPartition, tuple[float, float]] = {}
        self._not_before = 0.0

    def cut(
        self, wanted: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], most: int
    ) -> dict[TopicPartition, int]:
        """Return how many of the wanted offsets of each partition, at least one, have about `most` bytes together.

        Partitions that are not known yet count as the others do. Where no broker answers in time, nothing is cut.
        """
        if sum(wanted.values()) * _LONGEST <= most:
            return dict(wanted)
        self._look(wanted, starts)
        known = {p: self._known[p][0] for p in wanted if p in self._known}
        if not known:
            return dict(wanted)
        other = mean(known.values())
        total = sum(count * known.get(p, other) for p, count in wanted.items())
        if total <= most:
            return dict(wanted)
        return {p: max(int(count * most / total), 1) for p, count in wanted.items()}

    def _look(self, wanted: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]) -> None:
        """Read messages of the partitions that most is wanted of, and that are not known, or were long ago."""
        moment = time.monotonic()
        old = moment - _KNOWN_SECONDS
        unknown = [p for p in wanted if p not in self._known or self._known[p][1] <= old]
        if not unknown or moment < self._not_before:
            return
        asked = sorted(unknown, key=lambda p: -wanted[p])[:_PARTITIONS]
        found = self._read({p: (starts[p], starts[p] + min(wanted[p], _SAMPLE)) for p in asked})
        moment = time.monotonic()
        self._known |= {p: (size, moment) for p, size in found.items()}
        if not found:
            self._not_before = moment + _AGAIN_SECONDS

    def _read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, float]:
        """Read messages of the offsets [start, end) of partitions; return how many bytes an offset has."""
        kafka = client_library(self._table)
        sizes, reached = dict.fromkeys(ranges, 0), {p: start for p, (start, _) in ranges.items()}
        open_ranges, deadline = set(ranges), time.monotonic() + _SECONDS
        try:
            with closing(kafka.Consumer({"client.id": "sqlstream", **settings(self._table), **_FIXED})) as consumer:
                consumer.assign([kafka.TopicPartition(*p, start) for p, (start, _) in ranges.items()])
                while open_ranges and time.monotonic() < deadline:
                    for message in consumer.consume(_SAMPLE, 0.1):
                        partition = TopicPartition(message.topic(), message.partition())
                        if partition not in open_ranges:
                            continue
                        # One with an error is the end of the partition, or what whoever reads the batch will say.
                        if message.error() is None:
                            sizes[partition] += _length(message)
                            reached[partition] = message.offset() + 1
                        if message.error() is not None or reached[partition] >= ranges[partition][1]:
                            open_ranges.discard(partition)
        except kafka.KafkaException:
            return {}
        return {p: sizes[p] / (reached[p] - start) for p, (start, _) in ranges.items() if reached[p] > start}


def _length(message: Any) -> int:
    return len(message.key() or b"") + len(message.value() or b"")
