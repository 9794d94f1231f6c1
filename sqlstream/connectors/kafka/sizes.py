"""How long messages are, which their offsets do not tell: some are read, so that a batch does not take more bytes than it may."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.kafka.client import client_library, settings
from sqlstream.connectors.kafka.ranges import TopicPartition

# So many messages of a partition tell enough, or what came of them in so many seconds.
_SAMPLE, _SECONDS = 200, 2.0
# Of so few offsets the length matters little.
_FEW = 500
# Topics change; so old what is known of one may be, in seconds.
_KNOWN_SECONDS = 60.0
# A broker that does not answer is asked again so much later.
_AGAIN_SECONDS = 10.0
# What is not asked for is fetched with it.
_FETCH = {"queued.max.messages.kbytes": "1024", "fetch.message.max.bytes": "1000000", "fetch.wait.max.ms": "50"}


class MessageSizes:
    """About how many bytes of keys and values an offset stands for, in each partition."""

    def __init__(self, table: Table):
        self._table = table
        # With the moment when it was found.
        self._known: dict[TopicPartition, tuple[float, float]] = {}
        self._not_before = 0.0

    def cut(
        self, wanted: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], most: int
    ) -> dict[TopicPartition, int]:
        """Return how many of the wanted offsets of each partition, at least one, have about `most` bytes together.

        Where a broker does not answer in time, they are not cut: the next batch is.
        """
        moment = time.monotonic()
        old = moment - _KNOWN_SECONDS
        unknown = [p for p, count in wanted.items() if count > _FEW and self._known.get(p, (0.0, old))[1] <= old]
        if unknown and moment >= self._not_before:
            self._known |= self._found({p: starts[p] for p in unknown})
            self._not_before = time.monotonic() + _AGAIN_SECONDS
        total = sum(count * self._known[p][0] for p, count in wanted.items() if p in self._known)
        if total <= most:
            return dict(wanted)
        return {p: max(int(count * most / total), 1) if p in self._known else count for p, count in wanted.items()}

    def _found(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[float, float]]:
        """Read some messages of partitions from offsets on; return what their lengths tell, and when."""
        kafka = client_library(self._table)
        own = {"group.id": "sqlstream", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
        consumer = kafka.Consumer({"client.id": "sqlstream", **settings(self._table), **_FETCH, **own})
        sizes, ends, counts = dict.fromkeys(starts, 0), dict(starts), dict.fromkeys(starts, 0)
        try:
            consumer.assign([kafka.TopicPartition(*p, offset) for p, offset in starts.items()])
            deadline = time.monotonic() + _SECONDS
            while min(counts.values()) < _SAMPLE and time.monotonic() < deadline:
                for message in _messages(consumer.consume(_SAMPLE, 0.1)):
                    partition = TopicPartition(message.topic(), message.partition())
                    sizes[partition] += len(message.key() or b"") + len(message.value() or b"")
                    counts[partition] += 1
                    ends[partition] = message.offset() + 1
        except kafka.KafkaException:
            # Who reads the messages says what is wrong.
            return {}
        finally:
            consumer.close()
        moment = time.monotonic()
        return {p: (sizes[p] / (ends[p] - start), moment) for p, start in starts.items() if counts[p]}


def _messages(taken: Iterable[Any]) -> Iterable[Any]:
    return (message for message in taken if message.error() is None)
