"""Segments: immutable Parquet files with the rows that one or several batches added to a table.

pyarrow writes them because DuckDB's own writer turns HUGEINT into DOUBLE. Types that Arrow or Parquet cannot carry exactly are
stored as text: writers select rows with `encoded`, and `scan` yields the declared types again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sqlstream import profiling
from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Items, Relation, Select, names, quote_text, typed, union_all
from sqlstream.duck.types import microseconds
from sqlstream.names import path_name
from sqlstream.profiling import STORAGE
from sqlstream.units import EventTime
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.records import CHANGED, CUT, EMPTY, GONE, Record, damage

BATCH_COLUMN = internal("batch")
ROW_GROUP_ROWS = 122_880


Rows: TypeAlias = pa.Table | pa.RecordBatchReader


class Segment(Record, frozen=True, omit_defaults=True):
    """A file of rows, by its name inside the bucket's data directory.

    `low` and `high` bound the time column of all its rows, in microseconds; `live` counts the rows that are not forgotten, and
    `live_low` is the least time among them. Unless `compacted`, all rows are of `first_batch`, and the file has no column of the
    batch. From version `until` on, other segments hold its rows. `crc` is the CRC-32 of the file's bytes.
    """

    name: str
    rows: int
    bytes: int
    first_batch: int
    last_batch: int
    low: EventTime | None = None
    high: EventTime | None = None
    live: int = 0
    live_low: EventTime | None = None
    compacted: bool = False
    until: int | None = None
    crc: int = 0


class _ChecksumFile:
    """A file that is written sequentially, with the checksum and the number of its bytes so far."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self.crc = self.size = 0

    def write(self, data: bytes) -> int:
        self.crc = zlib.crc32(data, self.crc)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Leave the file open: the caller closes it."""

    @property
    def closed(self) -> bool:
        return self._file.closed


# The paths of segments that this process wrote, or has checked: segments never change.
_checked_paths: dict[str, None] = {}
_MOST_CHECKED = 20_000
_PIECE = 1 << 20
# Every Parquet file ends with these bytes.
_END = b"PAR1"


def check_segments(fs: Filesystem, directory: str, segments: Iterable[Segment], *, content: bool = True) -> None:
    """Raise DamageError unless the files of some segments are intact: their sizes, and with `content` every byte.

    A process checks the content of a file once. Checksums of pages in Parquet do not suffice: DuckDB ignores them, and the footer
    of a file has none.
    """
    segments = list(segments)
    fs.fetch(path for s in segments if content and (path := f"{directory}/{s.name}") not in _checked_paths)
    for segment in segments:
        path = f"{directory}/{segment.name}"
        if path not in _checked_paths:
            with profiling.span("check segment", STORAGE):
                fault = segment_fault(fs, path, segment, content=content)
            if fault:
                raise damage(path, fault)
        if content:
            _remember(path)


def segment_fault(fs: Filesystem, path: str, segment: Segment, *, content: bool) -> str | None:
    """Return what is wrong with the file of a segment, None if nothing: its size, or with `content` any of its bytes."""
    try:
        size = fs.size(path)
        if size != segment.bytes:
            return EMPTY if not size else CUT if size < segment.bytes else CHANGED
        if not content:
            return None
        crc, end, blank = 0, b"", True
        with fs.open_bytes(path) as file:
            while piece := file.read(_PIECE):
                crc, end, blank = zlib.crc32(piece, crc), piece[-len(_END) :], blank and not piece.strip(b"\0")
    except FileNotFoundError:
        return GONE
    if crc == segment.crc:
        return None
    # Where its last bytes are missing others may be zeros.
    return EMPTY if blank else CUT if end != _END else CHANGED


def forget_known() -> None:
    """Forget which segments this process has checked, as a new process would."""
    _checked_paths.clear()


def _remember(path: str) -> None:
    _checked_paths[path] = None
    while len(_checked_paths) > _MOST_CHECKED:
        del _checked_paths[next(iter(_checked_paths))]


def write_segment(
    fs: Filesystem,
    directory: str,
    prefix: str,
    batch: int,
    rows: Rows,
    *,
    time_column: str | None = None,
    batches: tuple[int, int] | None = None,
) -> Segment | None:
    """Write encoded rows as a new segment and return it, None without rows. Raises ValueError for NULL in the time column.

    `batches`, the first and the last, says that the rows are compacted and have a column of the batch.
    """
    with profiling.span("write segment", STORAGE) as span:
        segment = _write_segment(fs, directory, prefix, batch, rows, time_column, batches)
        if segment is not None:
            span.note(rows=segment.rows, bytes=segment.bytes)
        return segment


def _write_segment(
    fs: Filesystem,
    directory: str,
    prefix: str,
    batch: int,
    rows: Rows,
    time_column: str | None,
    batches: tuple[int, int] | None,
) -> Segment | None:
    chunks: Iterator[pa.Table | pa.RecordBatch] = iter([rows] if isinstance(rows, pa.Table) else rows)
    first = next((c for c in chunks if c.num_rows), None)
    if first is None:
        return None
    name = f"{path_name(prefix)}-{batch}-{uuid4().hex[:16]}.parquet"
    statistics = [c for c in (time_column, BATCH_COLUMN) if c in rows.schema.names]
    count, low, high = 0, None, None
    with fs.create(f"{directory}/{name}") as opened:
        file = _ChecksumFile(opened)
        with pq.ParquetWriter(
            file,
            rows.schema,
            compression="lz4",
            use_dictionary=False,
            write_statistics=statistics or False,
            store_schema=False,
        ) as writer:
            for chunk in chain([first], chunks):
                if isinstance(chunk, pa.Table):
                    writer.write_table(chunk, row_group_size=ROW_GROUP_ROWS)
                else:
                    writer.write_batch(chunk, row_group_size=ROW_GROUP_ROWS)
                count += chunk.num_rows
                if time_column is not None and chunk.num_rows:
                    chunk_low, chunk_high = _time_range(chunk.column(time_column), time_column)
                    low = chunk_low if low is None else min(low, chunk_low)
                    high = chunk_high if high is None else max(high, chunk_high)
    _remember(f"{directory}/{name}")
    span = batches or (batch, batch)
    merged = batches is not None
    return Segment(name, count, file.size, *span, low, high, live=count, live_low=low, compacted=merged, crc=file.crc)


def _time_range(times: pa.ChunkedArray | pa.Array, name: str) -> tuple[EventTime, EventTime]:
    if times.null_count:
        raise ValueError(f'time column "{name}" of a state table holds NULL')
    bounds = pc.min_max(times)
    return microseconds(bounds["min"]), microseconds(bounds["max"])


def scan(
    fs: Filesystem, directory: str, columns: Sequence[Column], segments: Iterable[Segment], *, batch: bool = False
) -> Select:
    """Return the rows of one or more segments in declared types; with `batch`, also `__sqlstream_batch`.

    The caller checks the segments.
    """
    return _select(fs, directory, typed(columns), segments, batch)


def scan_stored(fs: Filesystem, directory: str, columns: Sequence[Column], segments: Iterable[Segment]) -> Select:
    """Return the rows of one or more segments as they are stored, with `__sqlstream_batch`."""
    return _select(fs, directory, names(columns), segments, True)


def _select(fs: Filesystem, directory: str, items: Items, segments: Iterable[Segment], batch: bool) -> Select:
    # Files that lack the column of the batch are of one batch each; they get it from here.
    groups: dict[int | None, list[Segment]] = {}
    for segment in segments:
        groups.setdefault(segment.first_batch if batch and not segment.compacted else None, []).append(segment)
    selects = []
    for number, group in groups.items():
        added = f", {number}::BIGINT AS {BATCH_COLUMN}" if number is not None else f", {BATCH_COLUMN}" if batch else ""
        selects.append(Select(f"SELECT {items}{added} FROM {read_parquet(fs, directory, group)}"))
    return union_all(selects)


def read_parquet(fs: Filesystem, directory: str, segments: Iterable[Segment], options: str = "") -> Relation:
    """Return the call of DuckDB's table function that reads some segments; `options` are further arguments."""
    paths = ", ".join(quote_text(fs.path_for_duckdb(f"{directory}/{s.name}")) for s in segments)
    return Relation(f"read_parquet([{paths}], hive_partitioning = false{options})")
