"""The `kafka` connector as a source: messages of topics, whose values a format decodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.formats.value_source import BY_NUMBER, KEY, NUMBER, PLACE, KeyLayout, ValueRows
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.kafka import options
from sqlstream.connectors.kafka.client import settings
from sqlstream.connectors.kafka.keys import layout
from sqlstream.connectors.kafka.ranges import OffsetRange, TopicPartition
from sqlstream.connectors.read_plan import VALUE, ReadPlan
from sqlstream.duck.internal_columns import PARTITION, PATH, ROW
from sqlstream.units import seconds

if TYPE_CHECKING:
    import duckdb

    from sqlstream.connectors.interface import ReadContext
    from sqlstream.connectors.kafka.discovery import TopicDiscovery

# Keys of METADATA, with a line for the manual.
METADATA: Mapping[str, str] = {
    "topic": "name of the topic (STRING)",
    "partition": "number of the partition (INT)",
    "offset": "offset of the message in its partition (BIGINT)",
    "timestamp": "time of the message (TIMESTAMP_LTZ(3))",
    "timestamp-type": "whose time that is: `CreateTime`, `LogAppendTime` or `NoTimestampType`",
    "headers": "headers of the message (MAP<STRING, BYTES>)",
    "leader-epoch": "epoch of the leader that has the message (INT), NULL where none is known",
}
# The keys that a job can also write, as in Flink.
WRITABLE = frozenset({"timestamp", "headers"})
# The metadata of a part of a range: the bytes of the keys and headers of its messages.
_BESIDE = b"beside"
_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")


class Messages(ValueRows):
    """The messages of topics, each read once. NUMBER is the offset."""

    replay = Replay.REPLAYABLE
    replay_reason = "messages are read again by their offsets, as long as the topic keeps them"
    rewinds = True
    slot: str | None = None
    # In a partition, a message with a greater offset is newer; the rows of a key are in one partition.
    order = BY_NUMBER
    numbering = (PATH, ROW)
    split_type = OffsetRange
    has_partitions = True

    def __init__(self, table: Any):
        super().__init__(table)
        self._read: dict[OffsetRange, pa.Table] = {}
        # The bytes of each of these ranges.
        self._bytes: dict[OffsetRange, int] = {}
        self._lost = 0
        self._has_key = self.key is not None
        self._metadata = {c.metadata for c in table.physical if c.metadata in METADATA}

    @property
    def key(self) -> KeyLayout | None:
        return layout(self.table)

    @property
    def bounded(self) -> bool:
        return options.bounded_mode(self.table) != options.UNBOUNDED

    def check_input(self, project: str) -> None:
        from sqlstream.connectors.kafka.cluster import BrokersUnavailable, Cluster
        from sqlstream.connectors.kafka.discovery import unreachable

        try:
            Cluster(self.table).partitions()
        except BrokersUnavailable as trouble:
            raise unreachable(self.table, str(trouble)) from None

    def discovery(self, position: Offsets, context: DiscoveryContext) -> TopicDiscovery:
        from sqlstream.connectors.kafka.discovery import TopicDiscovery

        return TopicDiscovery(self.table, position, context)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[OffsetRange], context: ReadContext) -> ReadPlan:
        """Receive the messages of some ranges, and return the plan that decodes them; it counts lost offsets.

        Raises DataError for lost offsets, unless `scan.on-data-loss` is `continue`, and OutageError if brokers do not answer.
        """
        plan = super().read(con, splits, context)
        return replace(plan, lost=self._lost)

    def bytes_read(self, splits: Sequence[OffsetRange]) -> int | None:
        """Return the bytes of the messages just read, uncompressed: of their keys, values and headers."""
        return sum(self._bytes[split] for split in splits if split in self._bytes)

    def most_rows(self, split: OffsetRange) -> int:
        return split.end - split.start

    def first_row(self, split: OffsetRange) -> tuple[str, int]:
        return str(split.partition), split.start

    def place(self, split: OffsetRange, number: int) -> str:
        numbers = self.values([split]).select([VALUE, NUMBER]).to_pylist()
        offsets = [row[NUMBER] for row in numbers if row[VALUE] is not None]
        if self.upserts:
            offsets += [row[NUMBER] for row in numbers if row[VALUE] is None]
        at = f"offset {offsets[number - 1]} of " if number <= len(offsets) else ""
        return f'the message at {at}{split.partition} of table "{self.table.name}"'

    def values(self, splits: Sequence[OffsetRange]) -> pa.Table:
        """Return the messages of some ranges, and keep them, as they are needed again to explain malformed rows."""
        from sqlstream.connectors.kafka.reader import reader

        new = [split for split in splits if split not in self._read]
        if new:
            patience = seconds(options.duration_of(self.table, options.OUTAGE))
            topics = (self.table.options.get(o.name, "") for o in (options.TOPIC, options.TOPIC_PATTERN))
            continues = options.continues(self.table)
            with reader(settings(self.table), ";".join(topics), new) as opened:
                received = opened.read(new, self.table.name, self._columns, patience=patience, continues=continues)
            self._lost += sum(f.lost for f in received.values())
            self._read |= {split: self._whole(split.partition, f.parts) for split, f in received.items()}
            self._bytes |= {split: _bytes(f.parts) for split, f in received.items()}
        return _joined([self._read[split] for split in splits])

    def _columns(self, messages: Sequence[Any]) -> pa.RecordBatch:
        from confluent_kafka import Message

        keys = list(map(Message.key, messages))
        headers: Iterable[Any] = filter(None, map(Message.headers, messages))
        columns = {VALUE: binary(list(map(Message.value, messages))), NUMBER: pa.array(offsets_of(messages))}
        if self._has_key:
            columns[KEY] = binary(keys)
        columns |= {name: make(messages) for name, make in _OF_MESSAGES.items() if name in self._metadata}
        beside = sum(map(len, filter(None, keys))) + sum(map(_length, headers))
        return pa.RecordBatch.from_pydict(columns, metadata={_BESIDE: str(beside)})

    def _whole(self, partition: TopicPartition, parts: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return the messages of a range as a table, with the columns that have the same value in all of them."""
        # One chunk: DuckDB scans chunk by chunk, and the parts are small.
        rows = _joined([pa.Table.from_batches([part]) for part in parts or [self._columns([])]]).combine_chunks()
        columns = {
            PLACE: _repeated(str(partition), rows.num_rows),
            str(PARTITION.metadata): _repeated(partition.name, rows.num_rows),
            "topic": _repeated(partition.topic, rows.num_rows),
            "partition": pa.repeat(pa.scalar(partition.number, pa.int32()), rows.num_rows),
            "offset": rows.column(NUMBER),
        }
        for name, column in columns.items():
            if name in self._metadata or name not in METADATA:
                rows = rows.append_column(name, column)
        return rows


class UpsertMessages(Messages):
    """The messages of topics in which a message replaces the one with the same key; a message without a value deletes it."""

    upserts = True


def _timestamp(message: Any) -> int | None:
    kind, millis = message.timestamp()
    return int(millis) if kind else None


def _headers(message: Any) -> list[tuple[str, bytes | None]]:
    # A map has a key once: the last one counts, as in Flink.
    return list(dict(message.headers() or ()).items())


# Metadata that differs from message to message, by the keys of METADATA.
_OF_MESSAGES: Mapping[str, Callable[[Sequence[Any]], pa.Array]] = {
    "timestamp": lambda messages: pa.array(map(_timestamp, messages), pa.timestamp("ms", "UTC")),
    "timestamp-type": lambda messages: pa.array([_TIMESTAMP_TYPES[m.timestamp()[0]] for m in messages], pa.string()),
    "headers": lambda messages: pa.array(map(_headers, messages), pa.map_(pa.string(), pa.binary())),
    "leader-epoch": lambda messages: pa.array([m.leader_epoch() for m in messages], pa.int32()),
}


def offsets_of(messages: Sequence[Any]) -> np.ndarray:
    """Return the offsets of messages of a partition, in order. Without holes, it reads only the first and the last one."""
    count = len(messages)
    if count and messages[-1].offset() - messages[0].offset() == count - 1:
        return np.arange(messages[0].offset(), messages[0].offset() + count, dtype=np.int64)
    return np.fromiter((m.offset() for m in messages), np.int64, count)


def _length(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def _bytes(parts: Sequence[pa.RecordBatch]) -> int:
    """Return the bytes of the messages of a range."""
    values = sum(pc.sum(pc.binary_length(part.column(VALUE))).as_py() or 0 for part in parts)
    return int(values + sum(int(part.schema.metadata[_BESIDE]) for part in parts))


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts, promote_options="permissive")


def _repeated(text: str, count: int) -> pa.Array:
    """Return a dictionary array that repeats a text `count` times."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), count), pa.array([text]))


def binary(values: Sequence[bytes | None]) -> pa.Array:
    """Return an array of type binary, or large_binary if the values are too long for it.

    >>> binary([b"a", None, b""]).to_pylist()
    [b'a', None, b'']
    """
    array = pa.array(values, pa.binary())
    # Values that do not fit into one array become a chunked one.
    return pa.array(values, pa.large_binary()) if isinstance(array, pa.ChunkedArray) else array
