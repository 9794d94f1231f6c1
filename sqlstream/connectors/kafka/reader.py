"""What a worker reads messages with: one consumer for each process and cluster, which goes on where it stands.

A consumer fetches ahead. To take up its messages costs nothing, to move it costs tens of milliseconds. So partitions stay
assigned between batches, and messages beyond the end of a range wait for the next one. A range ends by its offsets, never by
a count: markers of transactions and compaction leave holes.

Which process reads a partition changes from batch to batch. While another one reads it, its messages still come here: where
they are many, to take them and to drop them would cost as much as to read them. Then the partition is left.

Each message is an object of Python. So as little as can be is asked of one alone, and columns are made of few of them at a time,
before the next ones take their place in memory.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from sqlstream.connectors.kafka.client import reason
from sqlstream.connectors.kafka.ranges import OffsetRange, TopicPartition
from sqlstream.errors import DataError, JobError, OutageError

# Messages that one call takes: so few that they, and what is made of them, stay in the processor's cache. With ten times as many
# everything that is done with a message takes one and a half times as long.
_TAKEN = 1_000
# Messages of a partition that wait for the next batch, at most, and of one that this batch does not ask for: then it is left.
_KEPT, _PASSING = 50_000, 2_000
_POLL_SECONDS = 0.25
_QUERY_SECONDS = 10.0
# Settings that may be set otherwise: a fetch that finds nothing waits so long at the broker, and with it what is behind a hole.
_DEFAULTS = {
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "50",
    # A queue that was full is empty long before a second has passed.
    "fetch.queue.backoff.ms": "10",
    "client.id": "sqlstream",
}
_FIXED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # To go on elsewhere, without a word, would lose rows.
    "auto.offset.reset": "error",
    "log_level": 0,
}
_HINT = "Set 'scan.on-data-loss' = 'continue' to go on without them, and count them; or start anew with --fresh."


@dataclass
class _Standing:
    """Where a consumer stands in a partition: the next offset that it gives, and messages from there on that it has taken.

    `ends` is the last offset that was known to be the end: no message before it is still to come. Of one that is `behind` the
    last range was long, and more messages are there already.
    """

    offset: int
    waiting: list[Any] = field(default_factory=list)
    ends: int = -1
    behind: bool = False


# Returns the columns of some messages of a partition, in their order.
Columns = Callable[[Sequence[Any]], pa.RecordBatch]


@dataclass
class Found:
    """The columns of the messages of a range, part by part in their order, and how many of its offsets are gone.

    `reached` is the offset behind the last message.
    """

    range: OffsetRange
    columns: Columns
    parts: list[pa.RecordBatch] = field(default_factory=list)
    reached: int = 0
    lost: int = 0

    def add(self, messages: Sequence[Any]) -> None:
        if messages:
            self.parts.append(self.columns(messages))
            self.reached = messages[-1].offset() + 1


class MessageReader:
    """Reads ranges of offsets. `patience` is for how many seconds nothing may come before that is an error."""

    def __init__(self, settings: Mapping[str, Any]):
        import confluent_kafka

        self._kafka = confluent_kafka
        self._trouble = ""
        group = {"group.id": settings.get("group.id", "sqlstream")}
        told = {"error_cb": self._hear}
        self._consumer = confluent_kafka.Consumer({**_DEFAULTS, **settings, **group, **_FIXED, **told})
        self._standing: dict[TopicPartition, _Standing] = {}

    def _hear(self, error: Any) -> None:
        self._trouble = reason(error)

    def read(
        self, ranges: Sequence[OffsetRange], table: str, columns: Columns, *, patience: float, continues: bool
    ) -> dict[OffsetRange, Found]:
        """Return the columns of the messages of some ranges of different partitions.

        Raises DataError for offsets that are gone, unless it `continues`, and JobError when brokers answer no more.
        """
        self._move(ranges)
        found = {r: Found(r, columns, reached=r.start) for r in ranges}
        open_ranges = {r.partition: found[r] for r in ranges}
        try:
            with _uncollected():
                self._take(open_ranges, table, patience, continues=continues)
        except BaseException:
            # What was taken of these ranges is taken again.
            self._leave([r.partition for r in ranges if r.partition in self._standing])
            raise
        return found

    def _take(self, open_ranges: dict[TopicPartition, Found], table: str, patience: float, *, continues: bool) -> None:
        """Take messages until all ranges are whole."""
        wanted = set(open_ranges)
        self._settle(open_ranges)
        heard = time.monotonic()
        while open_ranges:
            first = self._consumer.poll(_POLL_SECONDS)
            if first is None:
                if time.monotonic() - heard > patience:
                    raise self._silence(table, open_ranges, patience)
                continue
            taken = [first, *self._consumer.consume(_TAKEN, 0)]
            # An error is true; to ask in a loop costs twice as much.
            faults = list(filter(self._kafka.Message.error, taken))
            if faults:
                taken = [m for m in taken if m.error() is None]
            if taken:
                heard = time.monotonic()
            self._keep(taken)
            # The end of a partition comes behind its messages.
            for message in faults:
                self._fault(message, table, open_ranges, continues=continues)
            self._settle(open_ranges)
            self._give_up(wanted, open_ranges)

    def _move(self, ranges: Iterable[OffsetRange]) -> None:
        """Let the consumer stand at the starts of ranges."""
        wanted = {r.partition for r in ranges}
        self._leave([p for p, s in self._standing.items() if s.behind and p not in wanted])
        moved = [r for r in ranges if (s := self._standing.get(r.partition)) is None or s.offset != r.start]
        self._leave([r.partition for r in moved if r.partition in self._standing])
        if moved:
            self._consumer.incremental_assign([self._kafka.TopicPartition(r.topic, r.number, r.start) for r in moved])
            self._standing |= {r.partition: _Standing(r.start) for r in moved}

    def _leave(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self._consumer.incremental_unassign([self._kafka.TopicPartition(*p) for p in partitions])
            for partition in partitions:
                del self._standing[partition]

    def _give_up(self, wanted: Collection[TopicPartition], open_ranges: Collection[TopicPartition]) -> None:
        """Leave partitions whose messages pile up, because the batch does not want them, or has its range already."""
        waiting = ((p, len(s.waiting)) for p, s in self._standing.items() if p not in open_ranges)
        self._leave([p for p, count in waiting if count > (_KEPT if p in wanted else _PASSING)])

    def _keep(self, messages: Sequence[Any]) -> None:
        """Add messages to what waits of their partitions."""
        topics = {name: number for number, name in enumerate({p.topic for p in self._standing})}
        for some in _runs(messages, topics):
            partition = TopicPartition(some[0].topic(), some[0].partition())
            if (standing := self._standing.get(partition)) is not None:
                standing.waiting += some

    def _settle(self, open_ranges: dict[TopicPartition, Found]) -> None:
        """Take out of what waits the messages of ranges; forget the ranges that are whole."""
        for partition, found in list(open_ranges.items()):
            standing, end = self._standing[partition], found.range.end
            waiting = standing.waiting
            whole = standing.ends >= end or found.range.start >= end
            if waiting and waiting[-1].offset() >= end - 1:
                cut = _first_from(waiting, end)
                found.add(waiting[:cut])
                standing.waiting = waiting[cut:]
                whole = True
            elif waiting:
                found.add(waiting)
                standing.waiting = []
            if whole:
                standing.offset = end
                standing.behind = standing.ends < end and end - found.range.start > _PASSING
                del open_ranges[partition]

    def _fault(self, message: Any, table: str, open_ranges: Mapping[TopicPartition, Found], *, continues: bool) -> None:
        """Take in what stands in the place of a message."""
        error, codes = message.error(), self._kafka.KafkaError
        partition = TopicPartition(message.topic(), message.partition())
        standing = self._standing.get(partition)
        if error.code() == codes._PARTITION_EOF:
            if standing is not None:
                standing.ends = max(standing.ends, message.offset())
        elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            if partition in open_ranges:
                self._lose(open_ranges[partition], table, continues=continues)
            elif standing is not None:
                # Fetched ahead: whoever asks for these offsets is told.
                self._leave([partition])
        elif error.code() in (codes._MAX_POLL_EXCEEDED,):
            pass
        elif error.retriable() or error.code() in _passing(codes):
            self._trouble = reason(error)
        else:
            raise JobError(f'table "{table}": {partition} cannot be read', detail=reason(error))

    def _lose(self, found: Found, table: str, *, continues: bool) -> None:
        """Go on behind offsets that the broker no longer has."""
        partition, end = found.range.partition, found.range.end
        standing = self._standing[partition]
        found.add(standing.waiting)
        standing.waiting = []
        reached = found.reached
        try:
            place = self._kafka.TopicPartition(*partition)
            low, high = self._consumer.get_watermark_offsets(place, timeout=_QUERY_SECONDS)
        except self._kafka.KafkaException as error:
            raise JobError(f'table "{table}": {partition} cannot be read', detail=reason(error)) from None
        first = min(low, end) if low > reached else end
        if not continues:
            raise lost_offsets(table, partition, reached, first, low, high)
        found.lost += first - reached
        self._leave([partition])
        self._consumer.incremental_assign([self._kafka.TopicPartition(*partition, first)])
        self._standing[partition] = _Standing(first, ends=first)

    def _silence(self, table: str, open_ranges: Mapping[TopicPartition, Found], patience: float) -> OutageError:
        where = ", ".join(str(p) for p in open_ranges)
        return OutageError(
            f'table "{table}": no broker of Kafka has answered for {patience:g} s',
            detail=f"{where} cannot be read{': ' + self._trouble if self._trouble else ''}",
            hint="The job can be started again when the brokers are back: it goes on after its last batch.",
        )

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let Python look for no garbage: it would look at every message, and messages refer to nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _runs(messages: Sequence[Any], topics: Mapping[str, int]) -> Iterator[Sequence[Any]]:
    """Yield the messages that follow one another in a partition; `topics` gives those that there are numbers."""
    if not messages:
        return
    places = np.fromiter(map(type(messages[0]).partition, messages), np.int64, len(messages))
    if len(topics) > 1:
        places += np.fromiter((topics.get(m.topic(), -1) << 32 for m in messages), np.int64, len(messages))
    cuts = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(messages)]
    yield from (messages[first:end] for first, end in pairwise(cuts))


def _first_from(messages: Sequence[Any], offset: int) -> int:
    """Return the place of the first message that is not before an offset."""
    low, high = 0, len(messages)
    while low < high:
        middle = (low + high) // 2
        if messages[middle].offset() < offset:
            low = middle + 1
        else:
            high = middle
    return low


def _passing(codes: Any) -> set[int]:
    """Return the errors that go away when brokers are back, or have elected a leader."""
    return {codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._TIMED_OUT, codes._RESOLVE, codes.UNKNOWN_TOPIC_OR_PART}


def lost_offsets(table: str, partition: TopicPartition, first: int, end: int, low: int, high: int) -> DataError:
    """Return the error for the offsets [first, end) of a partition, which the broker no longer has."""
    return DataError(
        f'table "{table}": offsets {first} to {end - 1} of {partition} are gone',
        detail=f"The topic has offsets {low} to {high - 1} now: retention removed what the job had not read, "
        "or the topic was made anew."
        if high > low
        else f"The topic has no message now, and its next offset is {high}.",
        hint=_HINT,
    )


def reader(settings: Mapping[str, Any], topics: str) -> MessageReader:
    """Return the reader of this process for some topics of a cluster; a forked process never uses its parent's.

    Those of a table are read at once. If others had the same reader, the messages of each would come while another one is read.
    """
    return _opened(os.getpid(), topics, tuple(sorted(settings.items())))


@lru_cache(maxsize=8)
def _opened(process: int, topics: str, settings: tuple[tuple[str, Any], ...]) -> MessageReader:
    return MessageReader(dict(settings))
