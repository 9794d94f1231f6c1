"""Frames: how rows travel between fragments and operators, many at a time.

A frame is one Spark row `bucket INT, port INT, time BIGINT, payload BINARY`: Arrow rows (an IPC stream) for one port of
one bucket, and the processing time (ms) of the batch. Control frames carry what belongs to the batch but is no row: metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# Spark sorts frames by bucket and copies them; a payload of 128 MiB once killed a driver with a heap of 1 GiB.
MAX_PAYLOAD = 8 << 20
TARGET_PAYLOAD = 4 << 20
METRICS = -1
# The column that a fragment adds for the exchange: which bucket a row belongs to.
BUCKET = "_bucket"


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows for one port of one bucket, or a control message."""

    bucket: int
    port: int
    time: int
    payload: bytes

    @property
    def is_control(self) -> bool:
        return self.port < 0

    def table(self) -> pa.Table:
        """Return the rows of a data frame."""
        return pa.ipc.open_stream(self.payload).read_all()

    def message(self) -> dict[str, Any]:
        """Return the content of a control frame."""
        value: dict[str, Any] = json.loads(self.payload)
        return value


def control(bucket: int, time: int, message: dict[str, Any]) -> Frame:
    """Return a frame that carries a message to the driver."""
    return Frame(bucket, METRICS, time, json.dumps(message, separators=(",", ":")).encode())


def pack(rows: Iterable[pa.RecordBatch], port: int, time: int, labels: Sequence[int]) -> Iterator[Frame]:
    """Split rows by their `_bucket` column (0..B-1) into frames for the buckets' labels."""
    waiting: list[list[pa.RecordBatch]] = [[] for _ in labels]
    sizes = [0] * len(labels)
    for batch in rows:
        for number, part in _by_bucket(batch, len(labels)):
            for piece in _cut(part):
                waiting[number].append(piece)
                sizes[number] += piece.nbytes
                if sizes[number] >= TARGET_PAYLOAD:
                    yield Frame(labels[number], port, time, _serialise(waiting[number]))
                    waiting[number], sizes[number] = [], 0
    for number, batches in enumerate(waiting):
        if batches:
            yield Frame(labels[number], port, time, _serialise(batches))


def pack_changes(rows: Iterable[pa.RecordBatch], bucket: int, time: int) -> Iterator[Frame]:
    """Put what an operator emits into frames; they keep the operator's bucket label."""
    for batch in rows:
        for piece in _cut(batch):
            yield Frame(bucket, 0, time, _serialise([piece]))


def _by_bucket(batch: pa.RecordBatch, count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    bucket = batch.column(BUCKET)
    rest = batch.drop_columns([BUCKET])
    if count == 1:
        yield 0, rest
        return
    for number in range(count):
        part = rest.filter(pc.equal(bucket, number))
        if part.num_rows:
            yield number, part


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch so that no piece alone fills a frame (a row larger than that travels by itself)."""
    if batch.nbytes <= TARGET_PAYLOAD or batch.num_rows <= 1:
        yield batch
        return
    rows = max(1, batch.num_rows * TARGET_PAYLOAD // batch.nbytes)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _serialise(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
