"""Frames: how rows travel between fragments and operators, many at a time.

A frame is one Spark row `bucket INT, port INT, time BIGINT, payload BINARY`: rows for one port of one bucket, and the
processing time of the batch. Few rows travel in the payload (an Arrow IPC stream). Many are written as a segment into the
bucket's own state, and the payload names it: the operator takes it over as it is, and Spark copies a few bytes. Control
frames, whose port is negative, carry no rows: they have metrics or another output for the driver, or call a bucket's stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream import profiling
from sqlstream.duck.internal_columns import internal
from sqlstream.profiling import TASKS
from sqlstream.storage.segments import Segment
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.records import read_json

# Spark sorts frames by bucket and copies them, at 12 to 20 ms per MiB; a segment of this size is written in less.
INLINE_BYTES = 256 << 10
SEGMENT_BYTES = 32 << 20
# Ports of control frames. METRICS and OUTPUT carry an `Output` to the driver.
METRICS = -1
OUTPUT = -2
# Calls all stages of a bucket that have something due.
WAKE = -3
# The port of a data frame has the number of the input in its lower 16 bits, and the stage's index in the plan above them.
_PORT_BITS = 16
# Up to this number of buckets, one pass over the rows for each bucket is faster than sorting them.
_FEW = 8
# The column that a fragment adds for the exchange: which bucket a row belongs to.
BUCKET = internal("bucket")
# Writes rows as a segment of the bucket with a label.
Write = Callable[[int, pa.Table], Segment]


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows for one port of one bucket, or a control message."""

    bucket: int
    port: int
    time: ProcessingTime
    payload: bytes

    @property
    def is_control(self) -> bool:
        return self.port < 0

    @property
    def stage(self) -> int:
        """The index in the plan of the stage that receives the rows."""
        return self.port >> _PORT_BITS

    @property
    def input(self) -> int:
        """The number of the stage's input that receives the rows."""
        return self.port & ((1 << _PORT_BITS) - 1)

    def rows(self) -> pa.Table | Segment:
        """Return the rows of a data frame, or the segment in the bucket's state that holds them."""
        if self.payload.startswith(b"{"):
            return read_json(self.payload.decode(), Segment)
        return pa.ipc.open_stream(self.payload).read_all()


def port_of(stage: int, number: int) -> int:
    """Return the port of frames for an input of a stage, both by their numbers."""
    return stage << _PORT_BITS | number


def pack(
    rows: Iterable[pa.RecordBatch], port: int, time: ProcessingTime, labels: Sequence[int], write: Write
) -> Iterator[Frame]:
    """Split rows by their column BUCKET, from 0 to `len(labels)` - 1; yield frames for the labels of the buckets.

    A bucket's rows are collected up to SEGMENT_BYTES. From INLINE_BYTES on `write` stores them as a segment.
    """
    waiting: list[list[pa.RecordBatch]] = [[] for _ in labels]
    sizes = [0] * len(labels)
    for batch in rows:
        for number, part in _by_bucket(batch, len(labels)):
            waiting[number].append(part)
            sizes[number] += part.nbytes
            if sizes[number] >= SEGMENT_BYTES:
                yield _frame(waiting[number], port, time, labels[number], write)
                waiting[number], sizes[number] = [], 0
    for number, batches in enumerate(waiting):
        if batches:
            yield _frame(batches, port, time, labels[number], write)


def pack_for_all(
    rows: Iterable[pa.RecordBatch], port: int, time: ProcessingTime, labels: Sequence[int], write: Write
) -> Iterator[Frame]:
    """Yield frames that bring all rows to every bucket, of the sizes as in `pack`."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= SEGMENT_BYTES:
            yield from (_frame(waiting, port, time, label, write) for label in labels)
            waiting, size = [], 0
    if waiting:
        yield from (_frame(waiting, port, time, label, write) for label in labels)


def _frame(batches: list[pa.RecordBatch], port: int, time: ProcessingTime, label: int, write: Write) -> Frame:
    table = pa.Table.from_batches(batches)
    if table.nbytes < INLINE_BYTES:
        with profiling.span("make frame", TASKS) as span:
            span.note(rows=table.num_rows, bytes=table.nbytes)
            return Frame(label, port, time, serialise(table))
    return Frame(label, port, time, write(label, table).to_json().encode())


def _by_bucket(batch: pa.RecordBatch, count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    bucket = batch.column(BUCKET)
    rest = batch.drop_columns([BUCKET])
    if count == 1:
        yield 0, rest
        return
    if count <= _FEW:
        for number in range(count):
            part = rest.filter(pc.equal(bucket, number))
            if part.num_rows:
                yield number, part
        return
    # Rows are sorted once, not filtered once for each bucket. Parts are copies: a slice would keep the whole batch in memory.
    numbers = bucket.to_numpy().astype(np.uint32)
    order = np.argsort(numbers, kind="stable")
    buckets, begins = np.unique(numbers[order], return_index=True)
    for number, rows in zip(buckets.tolist(), np.split(order, begins[1:]), strict=True):
        yield number, rest.take(pa.array(rows))


def serialise(table: pa.Table) -> bytes:
    """Return rows as the payload of a frame, an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
