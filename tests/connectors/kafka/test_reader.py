"""What a reader makes of a partition's messages and events, however they are divided into polls, and whenever retention comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise, product

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, Message, TopicPartition

from sqlstream.connectors.kafka.ranges import OffsetRange
from sqlstream.connectors.kafka.reader import MessageReader
from sqlstream.errors import DataError

END, FETCHED = 14, 3


class Partition:
    """A partition and its consumer, which behaves as librdkafka: a poll returns up to `size` messages and events.

    Offsets that are no `messages` are control records. Before the consumer's fetch number `when`, retention removes all offsets
    before `low`.
    """

    def __init__(self, messages: Collection[int], size: int, when: int, low: int):
        self.messages, self._size, self._when, self._new_low = messages, size, when, low
        self._low = self._fetches = 0
        self.incremental_unassign([])

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        [place] = places
        self._next: int | None = place.offset

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        self._next, self._read, self._ended = None, OFFSET_INVALID, False
        self._events: deque[Message] = deque()

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return self._low, END

    def offsets_for_times(self, places: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert [place.offset for place in places] == [OFFSET_BEGINNING]
        return [TopicPartition("t", 0, self._low)]

    def position(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition("t", 0, self._read)]

    def poll(self, timeout: float) -> Message | None:
        while len(self._events) < self._size and self._fetch():
            pass
        return next(self._taken(), None)

    def consume(self, count: int, timeout: float) -> list[Message]:
        return [message for _, message in zip(range(self._size - 1), self._taken(), strict=False)]

    def _taken(self) -> Iterator[Message]:
        while self._events:
            message = self._events.popleft()
            if message.error() is None:
                self._read = int(message.offset() or 0) + 1
            if message.error() is not None or message.offset() in self.messages:
                yield message

    def _fetch(self) -> bool:
        """Fetch some offsets, or an event; return False if there is nothing to fetch."""
        if self._next is None or self._ended:
            return False
        if self._fetches == self._when:
            self._low = self._new_low
        self._fetches += 1
        if self._next < self._low:
            self._events.append(_event(self._next, KafkaError._AUTO_OFFSET_RESET))
            self._next = None
        elif self._next == END:
            self._events.append(_event(END, KafkaError._PARTITION_EOF))
            self._ended = True
        else:
            behind = min(self._next + FETCHED, END)
            self._events += [Message(topic="t", partition=0, offset=n, value=b"") for n in range(self._next, behind)]
            self._next = behind
        return True


def _event(offset: int, code: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, error=KafkaError(code))


def _offsets(messages: Sequence[Message]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"offset": [m.offset() for m in messages]})


def read(reader: MessageReader, split: OffsetRange, *, continues: bool = True) -> tuple[list[int], int]:
    found = reader.read([split], "t", _offsets, patience=5, continues=continues)[split]
    return [offset for part in found.parts for offset in part.column(0).to_pylist()], found.lost


@pytest.mark.parametrize("messages", [range(END), [0, 1, 2, 5, 6, 9, 11, 12]], ids=["messages", "transactions"])
def test_each_message_is_read_once_or_lost_once(messages: Collection[int], monkeypatch: pytest.MonkeyPatch) -> None:
    reader = MessageReader({"bootstrap.servers": "localhost:1"})
    reader.close()
    for size, when, low, first, second in product((1, 2, 3, 5, 8, 20), range(6), (2, 5, 8, END), (3, 5, 7), (9, 11)):
        cuts = [0, first, second, END]
        ranges = [OffsetRange("t", 0, start, end) for start, end in pairwise(cuts)]
        monkeypatch.setattr(reader, "_consumer", Partition(messages, size, when, low))
        reader._standing.clear()
        results = [read(reader, split) for split in ranges]
        case = (size, when, low, cuts, results)
        for split, (offsets, lost) in zip(ranges, results, strict=True):
            there = [n for n in messages if split.start <= n < split.end]
            assert offsets == [n for n in there if n in offsets], case
            missing = [n for n in there if n not in offsets]
            assert all(n < low for n in missing), case
            assert len(missing) <= lost <= max(min(low, split.end) - split.start, 0), case
        # A job that does not continue fails at the first range of which something is lost, and has read those before it.
        monkeypatch.setattr(reader, "_consumer", Partition(messages, size, when, low))
        reader._standing.clear()
        for split, result in zip(ranges, results, strict=True):
            if result[1]:
                with pytest.raises(DataError):
                    read(reader, split, continues=False)
                break
            assert read(reader, split, continues=False) == result, case
