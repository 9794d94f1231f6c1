"""The state of one bucket of an operator: append tables that forget rows as the watermark passes, in few segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from duckdb import DuckDBPyConnection
from msgspec.structs import replace

from sqlstream import profiling
from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Select, all_of, over, quote_name, subquery, typed, union_all
from sqlstream.duck.types import check_encoded, microseconds, stored_type
from sqlstream.profiling import STORAGE
from sqlstream.storage.compaction import Compaction, compare, merge
from sqlstream.storage.key_index import KEY_ROWS, KeyLookup, SegmentIndexes, forget_indexes, has_large
from sqlstream.storage.manifests import Manifest, Moment, horizon, manifest_name, thinned
from sqlstream.storage.point_reads import PointReads
from sqlstream.storage.segments import (
    Segment,
    check_segments,
    read_parquet,
    scan,
    write_segment,
)
from sqlstream.storage.sums import SHARE, keep_sum, known_sum
from sqlstream.units import Duration, EventTime, ProcessingTime
from sqlstream.warehouse.declarations import MERGED, TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import BucketedPaths
from sqlstream.warehouse.records import write_sealed

PENDING_BYTES = 32 << 20
# Bytes that indexes of large segments may take in a process by default; sums of small ones may take a part of it besides.
INDEX_MEMORY = 256 << 20
# A batch has many of a table's keys if there is more than one of them per this many stored rows.
MANY = 20
# The counter of the rows in an operator's Z-sets, by weight.
WEIGHTS = "weights"
# The counters of keys that have expired, and of expired keys that came again while they were still stored.
EXPIRED, RETURNED = "expired_keys", "returned_keys"


class Bucket:
    """The tables of one bucket during one batch.

    `append` adds rows, `relation` reads them; a later batch sees them once `commit` has written the manifest. `counters`,
    `event_timer` and `processing_timer` belong to the operator, and the manifest stores them. Rows that all buckets get are
    counted only by the bucket that `is_first`.
    """

    def __init__(
        self,
        fs: Filesystem,
        paths: BucketedPaths,
        bucket: int,
        tables: Sequence[TableDeclaration],
        manifest: Manifest | None,
        retention: Duration,
        retention_batches: int,
        is_first: bool = True,
        index_memory: int = INDEX_MEMORY,
    ):
        self.manifest, self.is_first = manifest, is_first
        # The file of the manifest that `commit` wrote.
        self.manifest_name = ""
        self.counters: dict[str, int] = dict(manifest.counters) if manifest else {}
        self.event_timer = manifest.event_timer if manifest else None
        self.processing_timer = manifest.processing_timer if manifest else None
        self._fs = fs
        self._data = paths.data(bucket)
        self._manifests = paths.manifests(bucket)
        self._declarations = {t.name: t for t in tables}
        self._retention = (retention, retention_batches)
        self._index_memory = index_memory
        # The number of temporary tables of rows in memory.
        self._registrations = 0
        table_segments = manifest.tables if manifest else {}
        self._segments: dict[str, list[Segment]] = {
            t.name: [s for s in table_segments.get(t.name, ()) if s.until is None] for t in tables
        }
        # The segments that only older versions read.
        self._replaced = {t.name: [s for s in table_segments.get(t.name, ()) if s.until is not None] for t in tables}
        self._forgotten: dict[str, EventTime | None] = {
            t.name: manifest.watermark if manifest else None for t in tables
        }
        self._pending: dict[str, list[pa.Table]] = {t.name: [] for t in tables}
        self._pending_bytes = 0
        self._batch = -1

    @classmethod
    def open(
        cls,
        fs: Filesystem,
        operator_directory: str,
        bucket: int,
        tables: Sequence[TableDeclaration],
        manifest_json: str | None,
        retention: Duration,
        retention_batches: int = 100,
        is_first: bool = True,
        index_memory: int = INDEX_MEMORY,
    ) -> Bucket:
        """Return the bucket as the manifest of an earlier batch left it, empty without one. Refuses types that cannot be stored.

        `index_memory` is in bytes, for the indexes of large segments of all buckets in this process.
        """
        for column in (c for t in tables for c in t.columns):
            stored_type(column.type)  # refuses what cannot be stored
        manifest = Manifest.from_json(manifest_json) if manifest_json else None
        paths = BucketedPaths(operator_directory)
        return cls(fs, paths, bucket, tables, manifest, retention, retention_batches, is_first, index_memory)

    def segments(self, table: str) -> tuple[Segment, ...]:
        """Return the segments that no other ones have replaced; rows that wait to be written are in none."""
        return tuple(self._segments[table])

    @property
    def live_rows(self) -> int:
        """The number of written rows, in all tables, that are not forgotten; rows of Z-sets count by weight."""
        plain = (self._segments[t.name] for t in self._declarations.values() if not t.replaces)
        return self.counters.get(WEIGHTS, 0) + sum(s.live for segments in plain for s in segments)

    @property
    def bytes(self) -> int:
        """The size of the segments that no other ones have replaced."""
        return sum(s.bytes for segments in self._segments.values() for s in segments)

    @property
    def closed(self) -> EventTime | None:
        """The watermark of the last committed batch."""
        return self.manifest.watermark if self.manifest else None

    def count(self, counter: str, number: int) -> None:
        """Add to a counter."""
        if number:
            self.counters[counter] = self.counters.get(counter, 0) + number

    def append(self, table: str, rows: pa.Table, batch: int) -> None:
        """Add rows, selected with `encoded`, to a table.

        They are written when there are PENDING_BYTES of them, when they are read, and at the commit.
        """
        if not rows.num_rows:
            return
        columns = self._declarations[table].columns
        check_encoded(columns, rows.schema)
        if batch != self._batch:
            self._flush()
            self._batch = batch
        self._pending[table].append(rows.select([c.name for c in columns]))
        self._pending_bytes += rows.nbytes
        if self._pending_bytes > PENDING_BYTES:
            self._flush()

    def adopt(self, table: str, segments: Iterable[Segment]) -> None:
        """Add segments that another task has written into this bucket's data directory."""
        self._segments[table].extend(segments)

    def read(self, segment: Segment, columns: list[str] | None = None, *, repeated: Sequence[str] = ()) -> pa.Table:
        """Return all or some columns of a segment in this bucket's data directory, as they are stored. Raises DamageError.

        Columns in `repeated` are read as dictionaries.
        """
        self._check([segment])
        return self._fs.read_parquet(f"{self._data}/{segment.name}", columns, repeated)

    def _check(self, segments: Iterable[Segment]) -> None:
        check_segments(self._fs, self._data, segments)

    def _flush(self) -> None:
        for table, pending in self._pending.items():
            if pending:
                time_column = self._declarations[table].time_column
                rows = pa.concat_tables(pending, promote_options="permissive")
                segment = write_segment(self._fs, self._data, table, self._batch, rows, time_column=time_column)
                self._segments[table] += [segment] if segment else []
                pending.clear()
        self._pending_bytes = 0

    def relation(self, table: str, *, up_to: EventTime | None = None) -> Relation | None:
        """Return the rows that are not forgotten, with a time of at most `up_to` if set; None: there are none.

        It includes rows appended in this batch. Raises DamageError.
        """
        segments, where = self._visible(table, up_to)
        if not segments:
            return None
        rows = scan(self._fs, self._data, self._declarations[table].columns, segments)
        return Relation(f"(SELECT * FROM ({rows}){where})")

    def rows_of(self, con: DuckDBPyConnection, table: str, keys: Sequence[str], touched: Relation) -> Relation | None:
        """Return the rows whose keys are in the temporary table `touched`, None if a table has no rows.

        It is valid until the batch ends. Without `keys` it has all rows. Indexes find few keys in large segments.
        """
        rows, equals = self._candidates(con, table, keys, touched)
        if rows is None or not keys:
            return rows
        same = " AND ".join(f"_row.{quote_name(k)} {equals} _key.{quote_name(k)}" for k in keys)
        return Relation(f"(SELECT * FROM {rows} _row SEMI JOIN {touched} _key ON {same})")

    def candidates(
        self, con: DuckDBPyConnection, table: str, keys: Sequence[str], touched: Relation
    ) -> Relation | None:
        """Return what `rows_of` does, possibly with rows of other keys: for callers that join the rows to the keys."""
        return self._candidates(con, table, keys, touched)[0]

    def amounts(self, con: DuckDBPyConnection, table: str, keys: Sequence[str], touched: Relation) -> Relation | None:
        """Return a Z-set's rows with summed weights, at least for the keys in `touched`; None: there are none.

        It is valid until the batch ends. Where a batch has many of the keys, the process caches the sum of all rows.
        """
        declaration, (segments, where) = self._declarations[table], self._visible(table)
        if not segments:
            return None
        [(count,)] = con.execute(f"SELECT count(*) FROM {touched}").fetchall() if keys else [(0,)]
        if where or has_large(segments) or count * MANY < sum(s.rows for s in segments):
            rows = self.rows_of(con, table, keys, touched)
            assert declaration.merge is not None
            return subquery(over({MERGED: Select(f"SELECT * FROM {rows}")}, declaration.merge))
        cached_sum, newer = known_sum(f"{self._data}/{table}", segments)
        selects = [scan(self._fs, self._data, declaration.columns, newer)] if newer else []
        if cached_sum is not None:
            selects.append(self._registered(con, cached_sum.rows, declaration.columns))
        if cached_sum is not None and not newer:
            return subquery(selects[0])
        total = con.sql(merge(declaration, union_all(selects))).to_arrow_table()
        keep_sum(f"{self._data}/{table}", segments, total, self._index_memory // SHARE)
        return subquery(self._registered(con, total, declaration.columns))

    def large_keys(self, con: DuckDBPyConnection, table: str, keys: Sequence[str], most: int) -> Relation | None:
        """Return keys with more than `most` rows in a segment, and KEY_ROWS in that segment; None: there are none.

        A process counts a segment's rows once; weights do not matter.
        """
        indexes, segments = self._indexes(table, keys), self._visible(table)[0]
        counts = [indexes.large_keys(con, s, most) for s in segments if s.rows > most]
        if not any(rows.num_rows for rows in counts):
            return None
        columns = (*(c for c in self._declarations[table].columns if c.name in keys), KEY_ROWS)
        return subquery(self._registered(con, pa.concat_tables(counts, promote_options="permissive"), columns))

    def point_reads(self, con: DuckDBPyConnection, table: str, keys: Sequence[str]) -> PointReads:
        """Return lookups of single keys in a table without a time column, valid until the batch ends."""
        return PointReads(con, self._visible(table)[0], self._indexes(table, keys, points=True))

    def _indexes(self, table: str, keys: Sequence[str], points: bool = False) -> SegmentIndexes:
        columns = self._declarations[table].columns
        return SegmentIndexes(self._fs, self._data, columns, tuple(keys), self._index_memory, points)

    def _registered(self, con: DuckDBPyConnection, rows: pa.Table, columns: Sequence[Column]) -> Select:
        """Return stored rows that are in memory, with declared types."""
        self._registrations += 1
        con.register(f"_in_memory_{self._registrations}", rows)
        return Select(f"SELECT {typed(columns)} FROM _in_memory_{self._registrations}")

    def _candidates(
        self, con: DuckDBPyConnection, table: str, keys: Sequence[str], touched: Relation
    ) -> tuple[Relation | None, str]:
        """Return all rows of the keys and maybe others, and the SQL operator that compares keys."""
        segments, where = self._visible(table)
        if not segments:
            return None, ""
        columns, equals = self._declarations[table].columns, "IS NOT DISTINCT FROM"
        indexed: list[pa.Table] = []
        if keys and has_large(segments):
            lookup = KeyLookup(con, columns, keys, touched)
            indexes, segments = self._indexes(table, keys).split(con, segments, lookup.count)
            indexed, equals = lookup.find(indexes), lookup.equals
        selects = [scan(self._fs, self._data, columns, segments)] if segments else []
        selects += [self._registered(con, rows, columns) for rows in indexed]
        return Relation(f"(SELECT * FROM ({union_all(selects)}){where})"), equals

    def _visible(self, table: str, up_to: EventTime | None = None) -> tuple[list[Segment], str]:
        """Return the segments with rows that are not forgotten, of a time up to `up_to`, and the WHERE that selects these."""
        self._flush()
        declaration = self._declarations[table]
        segments = self._segments[table]
        conditions = []
        if declaration.time_column is not None:
            forgotten = self._forgotten[table]
            segments = [s for s in segments if s.live_low is not None and (up_to is None or s.live_low <= up_to)]
            if forgotten is not None and any(s.low is None or s.low <= forgotten for s in segments):
                conditions.append(compare(declaration, ">", forgotten))
            if up_to is not None:
                conditions.append(compare(declaration, "<=", up_to))
        self._check(segments)
        return list(segments), f" WHERE {all_of(conditions)}" if conditions else ""

    def forget(self, con: DuckDBPyConnection, table: str, watermark: EventTime) -> EventTime | None:
        """Hide rows of a time up to the watermark, and return the least time that remains, if any.

        The rows stay in their files for older versions. DuckDB reads only segments that lose some, but not all, of their rows.
        """
        self._flush()
        declaration = self._declarations[table]
        if declaration.time_column is None:
            return None
        forgotten = self._forgotten[table]
        watermark = watermark if forgotten is None else max(watermark, forgotten)
        self._forgotten[table] = watermark
        segments = [_forget(s, watermark) for s in self._segments[table]]
        cut = [s for s in segments if s.live_low is not None and s.live_low <= watermark]
        if cut:
            counted = self._count_newer(con, declaration, cut, watermark)
            segments = [s if s not in cut else _with_live(s, *counted.get(s.name, (0, None))) for s in segments]
        self._segments[table] = segments
        return min((s.live_low for s in segments if s.live_low is not None), default=None)

    def _count_newer(
        self,
        con: DuckDBPyConnection,
        declaration: TableDeclaration,
        segments: list[Segment],
        watermark: EventTime,
    ) -> dict[str, tuple[int, EventTime | None]]:
        self._check(segments)
        source = read_parquet(self._fs, self._data, segments, ", filename = '_file'")
        counted = con.sql(
            f"SELECT _file, count(*), min({quote_name(declaration.time_column or '')}) FROM {source} "
            f"WHERE {compare(declaration, '>', watermark)} GROUP BY _file"
        ).to_arrow_table()
        names = [path.rpartition("/")[2] for path in counted.column(0).to_pylist()]
        lows = [microseconds(low) for low in counted.column(2)]
        return dict(zip(names, zip(counted.column(1).to_pylist(), lows, strict=True), strict=True))

    def commit(self, con: DuckDBPyConnection, batch: int, time: ProcessingTime, watermark: EventTime | None) -> str:
        """Write pending rows and the manifest; return the manifest as JSON, which the engine keeps as the bucket's state.

        All tables forget up to the watermark. Compaction runs when due: it drops rows that no retained version can see, and,
        where a table declares how, merges rows that every retained version sees.
        """
        with profiling.span("commit state", STORAGE):
            return self._commit(con, batch, time, watermark)

    def _commit(self, con: DuckDBPyConnection, batch: int, time: ProcessingTime, watermark: EventTime | None) -> str:
        self._flush()
        old = self.manifest
        history = (*(old.history if old else ()), Moment(batch, time, watermark))
        bound = horizon(history, *self._retention)
        for table, declaration in self._declarations.items():
            if bound and bound.watermark is not None and declaration.time_column is not None:
                gone = bound.watermark
                self._segments[table] = [s for s in self._segments[table] if s.high is None or s.high > gone]
            if watermark is not None:
                self.forget(con, table, watermark)
            if bound:
                self._replaced[table] = [s for s in self._replaced[table] if (s.until or 0) > bound.batch]
            self._compact(con, declaration, batch, bound)
            if watermark is not None and declaration.merge is not None:
                self.forget(con, table, watermark)  # counts merged rows
        oldest = old.oldest if old else 0
        manifest = Manifest(
            batch=batch,
            time=time,
            watermark=watermark,
            tables={name: (*segments, *self._replaced[name]) for name, segments in self._segments.items()},
            counters=dict(self.counters),
            history=thinned([m for m in history if bound is None or m.batch >= bound.batch]),
            event_timer=self.event_timer,
            processing_timer=self.processing_timer,
            oldest=max(oldest, bound.batch) if bound else oldest,
        )
        text = manifest.to_json()
        self.manifest_name = manifest_name(batch)
        with profiling.span("write manifest", STORAGE):
            write_sealed(self._fs, f"{self._manifests}/{self.manifest_name}", text)
        self.manifest = manifest
        return text

    def _compact(
        self, con: DuckDBPyConnection, declaration: TableDeclaration, batch: int, bound: Moment | None
    ) -> None:
        segments = self._segments[declaration.name]
        compaction = Compaction(self._fs, self._data, declaration)
        while group := compaction.due(segments):
            self._check(group)
            names = {s.name for s in group}
            for name in names:
                forget_indexes(f"{self._data}/{name}")
            if declaration.replaces:
                merged = compaction.summed(con, group, batch)
                self._replaced[declaration.name] += [replace(s, until=batch) for s in group if s.first_batch < batch]
            else:
                merged = compaction.merged(con, group, batch, bound)
            segments = [s for s in segments if s.name not in names] + ([merged] if merged else [])
        self._segments[declaration.name] = segments


def _forget(segment: Segment, watermark: EventTime) -> Segment:
    """Return the segment, marked as having no live rows if the watermark has reached the time of its newest row."""
    return _with_live(segment, 0, None) if segment.high is not None and segment.high <= watermark else segment


def _with_live(segment: Segment, live: int, live_low: EventTime | None) -> Segment:
    return replace(segment, live=live, live_low=live_low)
