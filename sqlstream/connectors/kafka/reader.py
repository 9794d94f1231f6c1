"""Reading messages in a worker: consumers by cluster and topics, one for each thread that reads. They go on where they stopped.

A consumer fetches ahead. To take its messages costs nothing, to seek costs tens of milliseconds. So partitions stay assigned
between batches, and messages behind the end of a range wait for the next one. A range ends by its offsets, never by a count, as
transaction markers and compaction leave holes.

From batch to batch, another consumer may read a partition. Its messages still come here meanwhile; if there are many, to receive
and drop them would cost as much as to read them, so the partition is unassigned.

Each message is a Python object. So there are few operations per message, and columns are built from few messages at a time, while
these are in the processor's cache.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from sqlstream.connectors.kafka.client import reason
from sqlstream.connectors.kafka.ranges import OffsetRange, TopicPartition
from sqlstream.errors import DataError, JobError, OutageError

# The messages of one call: so few that they and their columns stay in the processor's cache. With ten times as many, each message
# takes one and a half times as long.
_MAX_MESSAGES = 1_000
# The most waiting messages of a partition that the batch reads, and of one that it does not read, before it is unassigned.
_MAX_WAITING, _PASSING = 50_000, 2_000
_POLL_SECONDS = 0.25
_QUERY_SECONDS = 10.0
# The most idle consumers that a process keeps, also for jobs that have ended, as a worker does not notice their end.
_MAX_IDLE = 32
# Settings that a table can override. An empty fetch waits at the broker for `fetch.wait.max.ms`, and with it messages behind a
# hole.
_DEFAULTS = {
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "50",
    # A full queue is empty again long before librdkafka's default of a second.
    "fetch.queue.backoff.ms": "10",
    "client.id": "sqlstream",
}
_FIXED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # A silent reset to another offset would lose rows.
    "auto.offset.reset": "error",
    "log_level": 0,
}
_HINT = "Set 'scan.on-data-loss' = 'continue' to go on without them, and count them; or start anew with --fresh."


@dataclass
class _PartitionState:
    """The state of an assigned partition.

    - `offset`: the next offset to return.
    - `waiting`: received messages from that offset on.
    - `ends`: the last known end of the partition; no further message before it will come.
    - `behind`: the last range was long, and did not reach the end.
    - `begun`: a message has come since the consumer began to read the partition.
    """

    offset: int
    waiting: list[Any] = field(default_factory=list)
    ends: int = -1
    behind: bool = False
    begun: bool = False


# Converts messages of one partition to columns, a row per message, in their order.
Columns = Callable[[Sequence[Any]], pa.RecordBatch]


@dataclass
class RangeMessages:
    """The messages of a range: `parts` are their columns, in order. `lost` counts offsets that the broker no longer has.

    `reached` is the offset behind the last message.
    """

    range: OffsetRange
    columns: Columns
    parts: list[pa.RecordBatch] = field(default_factory=list)
    reached: int = 0
    lost: int = 0

    def add(self, messages: Sequence[Any]) -> None:
        """Append messages of the range."""
        if messages:
            self.parts.append(self.columns(messages))
            self.reached = messages[-1].offset() + 1


class MessageReader:
    """Reads ranges of offsets with one consumer; `settings` are librdkafka's."""

    def __init__(self, settings: Mapping[str, Any]):
        import confluent_kafka

        self._kafka = confluent_kafka
        self._trouble = ""
        group = {"group.id": settings.get("group.id", "sqlstream")}
        callbacks = {"error_cb": self._hear}
        self._consumer = confluent_kafka.Consumer({**_DEFAULTS, **settings, **group, **_FIXED, **callbacks})
        self._standing: dict[TopicPartition, _PartitionState] = {}

    def _hear(self, error: Any) -> None:
        self._trouble = reason(error)

    def read(
        self, ranges: Sequence[OffsetRange], table: str, columns: Columns, *, patience: float, continues: bool
    ) -> dict[OffsetRange, RangeMessages]:
        """Read the messages of some ranges, each of another partition; `table` is the table's name for errors.

        Raises DataError for lost offsets unless it `continues`, which counts them instead, JobError for a partition that cannot
        be read, and OutageError if no message comes for `patience` seconds.
        """
        self._move(ranges)
        by_range = {r: RangeMessages(r, columns, reached=r.start) for r in ranges}
        open_ranges = {r.partition: by_range[r] for r in ranges}
        try:
            with _uncollected():
                self._take(open_ranges, table, patience, continues=continues)
        except BaseException:
            # Messages that were already taken from these ranges must be read again.
            self._leave([r.partition for r in ranges if r.partition in self._standing])
            raise
        return by_range

    def count_at_start(self, ranges: Iterable[OffsetRange]) -> int:
        """Return how many of some ranges continue where this reader stands."""
        standing = ((self._standing.get(r.partition), r.start) for r in ranges)
        return sum(state is not None and state.offset == start for state, start in standing)

    def _take(
        self, open_ranges: dict[TopicPartition, RangeMessages], table: str, patience: float, *, continues: bool
    ) -> None:
        """Receive messages until all ranges are complete."""
        partitions = set(open_ranges)
        self._settle(open_ranges)
        heard = time.monotonic()
        while open_ranges:
            first = self._consumer.poll(_POLL_SECONDS)
            messages = [] if first is None else [first, *self._consumer.consume(_MAX_MESSAGES, 0)]
            # `filter` keeps messages with an error; a loop in Python takes twice as long.
            faults = list(filter(self._kafka.Message.error, messages))
            if faults:
                messages = [m for m in messages if m.error() is None]
            if messages:
                heard = time.monotonic()
            self._keep(messages)
            # An event or error of a partition comes after the messages before it.
            for message in faults:
                self._fault(message, table, open_ranges, continues=continues)
            self._settle(open_ranges)
            self._give_up(partitions, open_ranges)
            if open_ranges and time.monotonic() - heard > patience:
                raise self._silence(table, open_ranges, patience)

    def _move(self, ranges: Iterable[OffsetRange]) -> None:
        """Assign the partitions of ranges, and seek to their starts, unless the consumer is there already."""
        partitions = {r.partition for r in ranges}
        self._leave([p for p, s in self._standing.items() if s.behind and p not in partitions])
        moved = [r for r in ranges if (s := self._standing.get(r.partition)) is None or s.offset != r.start]
        self._leave([r.partition for r in moved if r.partition in self._standing])
        if moved:
            self._consumer.incremental_assign([self._kafka.TopicPartition(r.topic, r.number, r.start) for r in moved])
            self._standing |= {r.partition: _PartitionState(r.start) for r in moved}

    def _leave(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self._consumer.incremental_unassign([self._kafka.TopicPartition(*p) for p in partitions])
            for partition in partitions:
                del self._standing[partition]

    def _give_up(self, partitions: Collection[TopicPartition], open_ranges: Collection[TopicPartition]) -> None:
        """Unassign partitions with too many waiting messages, which the batch does not read, or has read to its range's end."""
        waiting = ((p, len(s.waiting)) for p, s in self._standing.items() if p not in open_ranges)
        self._leave([p for p, count in waiting if count > (_MAX_WAITING if p in partitions else _PASSING)])

    def _keep(self, messages: Sequence[Any]) -> None:
        """Append messages to the waiting ones of their partitions; drop messages of unassigned partitions."""
        topics = {name: number for number, name in enumerate({p.topic for p in self._standing})}
        for some in _runs(messages, topics):
            partition = TopicPartition(some[0].topic(), some[0].partition())
            if (standing := self._standing.get(partition)) is not None:
                standing.waiting += some
                standing.begun = True

    def _settle(self, open_ranges: dict[TopicPartition, RangeMessages]) -> None:
        """Move waiting messages into their ranges, and remove complete ranges from `open_ranges`."""
        for partition, messages in list(open_ranges.items()):
            standing, end = self._standing[partition], messages.range.end
            waiting = standing.waiting
            whole = standing.ends >= end or messages.range.start >= end
            if waiting and waiting[-1].offset() >= end - 1:
                cut = _first_from(waiting, end)
                messages.add(waiting[:cut])
                standing.waiting = waiting[cut:]
                whole = True
            elif waiting:
                messages.add(waiting)
                standing.waiting = []
            if whole:
                standing.offset = end
                standing.behind = standing.ends < end and end - messages.range.start > _PASSING
                del open_ranges[partition]

    def _fault(
        self, message: Any, table: str, open_ranges: dict[TopicPartition, RangeMessages], *, continues: bool
    ) -> None:
        """Handle an event or an error that the consumer returned instead of a message; earlier messages are handled first.

        Raises JobError for an error that is not temporary, and DataError for lost offsets unless it `continues`.
        """
        error, codes = message.error(), self._kafka.KafkaError
        partition = TopicPartition(message.topic(), message.partition())
        standing = self._standing.get(partition)
        is_loss = error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE)
        if error.code() == codes._PARTITION_EOF:
            if standing is not None:
                standing.ends = max(standing.ends, message.offset())
            return
        if error.code() == codes._MAX_POLL_EXCEEDED:
            return
        if not is_loss and self._is_passing(error):
            self._trouble = reason(error)
            return
        if is_loss and standing is not None:
            standing.ends = max(standing.ends, self._read_up_to(partition, standing))
        self._settle(open_ranges)
        if is_loss and partition in open_ranges:
            self._lose(open_ranges[partition], message.offset(), table, continues=continues)
        elif partition in open_ranges or message.partition() is None:
            where = str(partition) if partition in open_ranges else "Kafka"
            raise JobError(f'table "{table}": {where} cannot be read', detail=reason(error))
        elif standing is not None:
            # The range is complete, and the consumer fetched ahead: a batch that reads these offsets gets the error.
            self._leave([partition])

    def _is_passing(self, error: Any) -> bool:
        """Whether an error ends when brokers are back, or have elected a leader."""
        codes = self._kafka.KafkaError
        passing = (codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._TIMED_OUT, codes._RESOLVE)
        return bool(error.retriable()) or error.code() in (*passing, codes.UNKNOWN_TOPIC_OR_PART)

    def _read_up_to(self, partition: TopicPartition, standing: _PartitionState) -> int:
        """Return the offset behind the last message or control record that has come; negative if it is not known.

        Control records end transactions. They have offsets, and are no messages.
        """
        if not standing.begun:
            # The consumer may still tell the position of an earlier assignment.
            return -1
        [topic_partition] = self._consumer.position([self._kafka.TopicPartition(*partition)])
        return int(topic_partition.offset)

    def _lose(self, messages: RangeMessages, offset: int | None, table: str, *, continues: bool) -> None:
        """Continue a range behind offsets that the broker no longer has, and count them. It refused `offset`.

        All messages that came are in `messages`. Raises DataError for lost offsets unless it `continues`.
        """
        partition, end = messages.range.partition, messages.range.end
        standing = self._standing[partition]
        reached = first = max(messages.reached, standing.ends)
        # librdkafka may deliver the error of an earlier assignment, before the first message of this one.
        is_old = not standing.begun and offset is not None and offset != reached
        try:
            low, high = self._offsets_of_broker(partition)
        except self._kafka.KafkaException as error:
            if not self._is_passing(error.args[0]):
                raise JobError(f'table "{table}": {partition} cannot be read', detail=reason(error)) from None
            # Where brokers are away, the consumer gets the error again when they are back.
            self._trouble = reason(error)
        else:
            # If what an old error says is true of this assignment, too, the consumer says so again, at the offset reached.
            if not (is_old and low <= reached):
                first = min(low, end) if low > reached else end
                if not continues:
                    raise lost_offsets(table, partition, reached, first, low, high)
                messages.lost += first - reached
        self._leave([partition])
        self._consumer.incremental_assign([self._kafka.TopicPartition(*partition, first)])
        self._standing[partition] = _PartitionState(first, ends=first)

    def _offsets_of_broker(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the offset of the first message that the broker has, and that behind the last one that it shows.

        Where an open transaction has begun before the first message, none is shown: both are equal. librdkafka's query for both
        returns them sorted then, with the beginning of the transaction as the first message.
        """
        topic_partition = self._kafka.TopicPartition(*partition, self._kafka.OFFSET_BEGINNING)
        [begin] = self._consumer.offsets_for_times([topic_partition], timeout=_QUERY_SECONDS)
        _, high = self._consumer.get_watermark_offsets(topic_partition, timeout=_QUERY_SECONDS)
        return int(begin.offset), max(int(high), int(begin.offset))

    def _silence(self, table: str, open_ranges: Mapping[TopicPartition, RangeMessages], patience: float) -> OutageError:
        where = ", ".join(str(p) for p in open_ranges)
        return OutageError(
            f'table "{table}": no broker of Kafka has answered for {patience:g} s',
            detail=f"{where} cannot be read{': ' + self._trouble if self._trouble else ''}",
            hint="The job can be started again when the brokers are back: it goes on after its last batch.",
        )

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable Python's garbage collection: it would visit every message, and messages have no references."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _runs(messages: Sequence[Any], topics: Mapping[str, int]) -> Iterator[Sequence[Any]]:
    """Yield runs of consecutive messages of the same partition; `topics` numbers the assigned topics."""
    if not messages:
        return
    numbers = np.fromiter(map(type(messages[0]).partition, messages), np.int64, len(messages))
    if len(topics) > 1:
        numbers += np.fromiter((topics.get(m.topic(), -1) << 32 for m in messages), np.int64, len(messages))
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(messages)]
    yield from (messages[first:end] for first, end in pairwise(cuts))


def _first_from(messages: Sequence[Any], offset: int) -> int:
    """Return the index of the first message at or after an offset, by binary search."""
    low, high = 0, len(messages)
    while low < high:
        middle = (low + high) // 2
        if messages[middle].offset() < offset:
            low = middle + 1
        else:
            high = middle
    return low


def lost_offsets(table: str, partition: TopicPartition, first: int, end: int, low: int, high: int) -> DataError:
    """Return the error about the lost offsets [first, end) of a partition, of which the broker has [low, high)."""
    return DataError(
        f'table "{table}": offsets {first} to {end - 1} of {partition} are gone',
        detail=f"The topic has offsets {low} to {high - 1} now: retention removed what the job had not read, "
        "or the topic was made anew."
        if high > low
        else f"The topic has no message now, and its next offset is {high}.",
        hint=_HINT,
    )


# The key of a reader: topics of a cluster, and librdkafka's settings.
_ReaderKey: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]


class _Readers:
    """The idle readers of a process, least recently used first. Two threads never share a reader.

    With a shared one a thread would take messages from the broker that belong to a range which the other one has open.
    """

    def __init__(self) -> None:
        self._idle: list[tuple[_ReaderKey, MessageReader]] = []
        self._lock = threading.Lock()

    @contextmanager
    def one_for(self, key: _ReaderKey, ranges: Sequence[OffsetRange]) -> Iterator[MessageReader]:
        """Yield the idle reader that stands at the start of most of the ranges, or a new one, to this thread alone."""
        messages = self._idle_reader(key, ranges) or MessageReader(dict(key[1]))
        try:
            yield messages
        finally:
            with self._lock:
                self._idle.append((key, messages))
            self.close(_MAX_IDLE)

    def _idle_reader(self, key: _ReaderKey, ranges: Sequence[OffsetRange]) -> MessageReader | None:
        with self._lock:
            of_key = [number for number, (own, _) in enumerate(self._idle) if own == key]
            if not of_key:
                return None
            best = max(of_key, key=lambda number: (self._idle[number][1].count_at_start(ranges), number))
            return self._idle.pop(best)[1]

    def close(self, limit: int = 0) -> None:
        """Close the least recently used idle readers, until at most `limit` remain."""
        with self._lock:
            old = self._idle[: max(len(self._idle) - limit, 0)]
            del self._idle[: len(old)]
        for _, unused in old:
            unused.close()


# By process: a forked process neither uses nor closes its parent's readers.
_by_process: dict[int, _Readers] = {}


def reader(
    settings: Mapping[str, Any], topics: str, ranges: Sequence[OffsetRange]
) -> AbstractContextManager[MessageReader]:
    """Return a context with one of this process's readers for some topics of a cluster; it is meant to read `ranges`.

    Tables with other topics have other readers: with a shared one, messages of one table would arrive while another is read.
    """
    readers = _by_process.setdefault(os.getpid(), _Readers())
    return readers.one_for((topics, tuple(sorted(settings.items()))), ranges)
