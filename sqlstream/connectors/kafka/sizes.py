"""Estimates the bytes of messages from a sample, as offsets do not tell them, so that a batch keeps to its limit of bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from statistics import mean
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.kafka.client import client_library, settings
from sqlstream.connectors.kafka.ranges import TopicPartition

# The longest message that brokers accept by default.
_LONGEST = 1 << 20
# The most messages of a partition, partitions and seconds of a sample.
_SAMPLE, _PARTITIONS, _SECONDS = 200, 16, 1.0
# For how many seconds a sample is valid, and how many after a failed sample the next one is taken.
_VALID_SECONDS, _AGAIN_SECONDS = 60.0, 10.0
_FIXED = {
    "group.id": "sqlstream",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "log_level": 0,
    "fetch.wait.max.ms": "50",
    # Limits how much the consumer fetches beyond the sample.
    "queued.max.messages.kbytes": "1024",
    "fetch.message.max.bytes": "1000000",
}


class MessageSizes:
    """Estimates the bytes of keys and values per offset in each partition, from samples."""

    def __init__(self, table: Table):
        self._table = table
        # By partition: (bytes per offset, when it was sampled).
        self._samples: dict[TopicPartition, tuple[float, float]] = {}
        self._not_before = 0.0

    def cut(
        self, counts: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], most: int
    ) -> dict[TopicPartition, int]:
        """Reduce `counts`, the offsets to read by partition, to about `most` bytes in all, but to at least one offset each.

        `starts` are the next offsets to read. A partition without a sample is estimated by the average of the others. Without an
        answer of a broker in time, the result is `counts`.
        """
        if sum(counts.values()) * _LONGEST <= most:
            return dict(counts)
        self._look(counts, starts)
        sizes = {p: self._samples[p][0] for p in counts if p in self._samples}
        if not sizes:
            return dict(counts)
        other = mean(sizes.values())
        total = sum(count * sizes.get(p, other) for p, count in counts.items())
        if total <= most:
            return dict(counts)
        return {p: max(int(count * most / total), 1) for p, count in counts.items()}

    def _look(self, counts: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]) -> None:
        """Sample the partitions with the most offsets to read, unless their samples are still valid."""
        moment = time.monotonic()
        old = moment - _VALID_SECONDS
        unknown = [p for p in counts if p not in self._samples or self._samples[p][1] <= old]
        if not unknown or moment < self._not_before:
            return
        partitions = sorted(unknown, key=lambda p: -counts[p])[:_PARTITIONS]
        sizes = self._read({p: (starts[p], starts[p] + min(counts[p], _SAMPLE)) for p in partitions})
        moment = time.monotonic()
        self._samples |= {p: (size, moment) for p, size in sizes.items()}
        if not sizes:
            self._not_before = moment + _AGAIN_SECONDS

    def _read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, float]:
        """Read messages of the offsets [start, end) of partitions; return the bytes per offset."""
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
                        # An error is the end of the partition, or one that the reader of the batch will raise.
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
