"""Rescaling: the state of an operator is written into another number of buckets.

SQL reads segments and writes them again, each row into the bucket that the hash of its key now picks. Rows keep their batch, and
segments that only older versions read are moved as well, so every readable version stays readable. The old files stay: nothing
counts until the log names the new manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from msgspec.structs import replace

from sqlstream.catalog import Column
from sqlstream.duck import key_hash
from sqlstream.duck.sql import Select, union_all
from sqlstream.storage.bucket import WEIGHTS, Bucket
from sqlstream.storage.manifests import FIRED_AT, SWEPT_AT, Manifest, manifest_name, thinned
from sqlstream.storage.metrics import earliest
from sqlstream.storage.segments import ROW_GROUP_ROWS, Segment, check_segments, scan_stored, write_segment
from sqlstream.storage.zsets import KEYS, WEIGHT
from sqlstream.units import NO_TIME, VersionRetention
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import BucketedPaths
from sqlstream.warehouse.records import write_sealed

_MOVED, _BUCKET = "_moved", "_bucket"


@dataclass(frozen=True, slots=True)
class DistributedState:
    """An operator's state: its directory, its tables, the columns whose hash picks the bucket, its manifests by bucket.

    `written` is called with the number of rows written since the last call; the numbers add up to `rows`.
    """

    fs: Filesystem
    paths: BucketedPaths
    tables: Sequence[TableDeclaration]
    hashed: Sequence[Column]
    manifests: Mapping[int, Manifest]
    written: Callable[[int], None] = lambda rows: None

    @property
    def rows(self) -> int:
        """The number of stored rows of the newest version, without replicated tables."""
        names = [table.name for table in self.tables if not table.replicated]
        segments = (s for m in self.manifests.values() for name in names for s in m.tables.get(name, ()))
        return sum(segment.rows for segment in segments if segment.until is None)

    def over(
        self, con: duckdb.DuckDBPyConnection, labels: Sequence[int], version: int, retention: VersionRetention
    ) -> dict[int, Bucket]:
        """Write the state after a version into buckets with these labels; return them by label, with their manifests written.

        `con` must have the function that hashes keys. Raises DamageError.
        """
        moved: dict[int, dict[str, list[Segment]]] = {label: {t.name: [] for t in self.tables} for label in labels}
        for table in self.tables:
            for group in self._groups(table):
                for label, segment in self._move(con, table, group, labels, version):
                    moved[label][table.name].append(segment)
        common = merged(self.manifests)
        buckets = {}
        for label in labels:
            manifest = replace(common, tables={name: tuple(segments) for name, segments in moved[label].items()})
            buckets[label] = Bucket.open(self.fs, self.paths.root, label, self.tables, manifest.to_json(), *retention)
            count_forgotten(con, buckets[label], self.tables)
        share_counters(self.manifests.values(), buckets)
        self._share_weights(con, buckets)
        for label, bucket in buckets.items():
            older = {name: tuple(s for s in segments if s.until is not None) for name, segments in moved[label].items()}
            self._write(label, bucket, common, older, version)
        # No older version has its state in these buckets.
        written = [
            f"{self.paths.data(label)}/{s.name}" for label, of in moved.items() for one in of.values() for s in one
        ]
        self.fs.make_durable(written)
        return buckets

    # -- rows

    def _groups(self, table: TableDeclaration) -> Iterator[dict[int, list[Segment]]]:
        """Yield segments of a table by bucket: the current ones, then those that others replaced, by version."""
        buckets = [min(self.manifests)] if table.replicated else sorted(self.manifests)
        segments = [(bucket, s) for bucket in buckets for s in self.manifests[bucket].tables.get(table.name, ())]
        for until in sorted({s.until for _, s in segments}, key=lambda until: (until is not None, until or 0)):
            group: dict[int, list[Segment]] = {}
            for bucket, segment in segments:
                if segment.until == until:
                    group.setdefault(bucket, []).append(segment)
            yield group

    def _move(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDeclaration,
        group: Mapping[int, list[Segment]],
        labels: Sequence[int],
        version: int,
    ) -> Iterator[tuple[int, Segment]]:
        """Write the rows of some segments, by bucket, into new segments; yield these with their labels."""
        every = [segment for segments in group.values() for segment in segments]
        span = min(s.first_batch for s in every), max(s.last_batch for s in every)
        selects = []
        for bucket, segments in group.items():
            check_segments(self.fs, self.paths.data(bucket), segments)
            target = self._target_bucket(table, bucket, len(labels))
            rows = scan_stored(self.fs, self.paths.data(bucket), table.columns, segments)
            selects.append(Select(f"SELECT *, {target} AS {_BUCKET} FROM ({rows})"))
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_MOVED} AS {union_all(selects)}")
        for number, label in enumerate(labels):
            where = "" if table.replicated else f" WHERE {_BUCKET} = {number}"
            rows = con.sql(f"SELECT * EXCLUDE {_BUCKET} FROM {_MOVED}{where}").to_arrow_reader(ROW_GROUP_ROWS)
            if every[0].until is None and not table.replicated:
                rows = self._counted(rows)
            segment = write_segment(
                self.fs,
                self.paths.data(label),
                table.name,
                version,
                rows,
                time_column=table.time_column,
                batches=span,
            )
            if segment is not None:
                yield label, replace(segment, until=every[0].until)
        con.execute(f"DROP TABLE {_MOVED}")

    def _counted(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """Return the same rows; calls `written` as they are read."""

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                yield batch
                self.written(batch.num_rows)

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    def _target_bucket(self, table: TableDeclaration, bucket: int, count: int) -> str:
        """Return the SQL of a row's new bucket, counted from 0; `bucket` is its old one."""
        names = {c.name for c in table.columns}
        if all(column.name in names for column in self.hashed):
            return key_hash.bucket(self.hashed, count)
        # Rows that are stored for people to see, and belong to no key: any bucket is right.
        return str(sorted(self.manifests).index(bucket) % count)

    # -- manifests

    def _share_weights(self, con: duckdb.DuckDBPyConnection, buckets: Mapping[int, Bucket]) -> None:
        """Set each bucket's WEIGHTS as the operator counts them: over all Z-sets, or over all but KEYS."""
        old = [
            Bucket.open(self.fs, self.paths.root, label, self.tables, manifest.to_json(), NO_TIME)
            for label, manifest in self.manifests.items()
        ]
        total = sum(bucket.counters.get(WEIGHTS, 0) for bucket in old)
        for counted in (self.tables, [t for t in self.tables if t.name != KEYS]):
            if total == sum(weights(con, bucket, counted) for bucket in old):
                for bucket in buckets.values():
                    bucket.counters[WEIGHTS] = weights(con, bucket, counted)
                return

    def _write(
        self,
        label: int,
        bucket: Bucket,
        common: Manifest,
        older: Mapping[str, tuple[Segment, ...]],
        version: int,
    ) -> None:
        tables = {t.name: (*bucket.segments(t.name), *older[t.name]) for t in self.tables}
        bucket.manifest = replace(common, tables=tables, counters=dict(bucket.counters))
        bucket.manifest_name = manifest_name(version)
        write_sealed(
            self.fs, f"{self.paths.manifests(label)}/{bucket.manifest_name}", bucket.manifest.to_json(), durable=True
        )


def merged(manifests: Mapping[int, Manifest]) -> Manifest:
    """Return the manifest that all new buckets begin with, merged from the old manifests, without tables and counters.

    It has the latest of the old watermarks, because a bucket that the last batch did not run had nothing to do until then, and
    the earliest of the old timers.
    """
    old = list(manifests.values())
    history = {moment.batch: moment for manifest in old for moment in manifest.history}
    return Manifest(
        batch=max(m.batch for m in old),
        time=max(m.time for m in old),
        watermark=max((m.watermark for m in old if m.watermark is not None), default=None),
        tables={},
        history=thinned([history[batch] for batch in sorted(history)]),
        event_timer=earliest(m.event_timer for m in old),
        processing_timer=earliest(m.processing_timer for m in old),
        oldest=max(m.oldest for m in old),
    )


def count_forgotten(con: duckdb.DuckDBPyConnection, bucket: Bucket, tables: Iterable[TableDeclaration]) -> None:
    """Update how many rows of a new bucket are forgotten, up to its watermark."""
    if bucket.closed is not None:
        for table in tables:
            bucket.forget(con, table.name, bucket.closed)


def share_counters(old: Collection[Manifest], buckets: Mapping[int, Bucket]) -> None:
    """Give new buckets the counters of the old ones: sums go to the first bucket, the earliest of times to all buckets."""
    first = buckets[min(buckets)]
    counted = [manifest.counters for manifest in old]
    for name in sorted({name for counters in counted for name in counters}):
        values = [counters[name] for counters in counted if name in counters]
        if not name.startswith((SWEPT_AT, FIRED_AT)):
            first.counters[name] = sum(values)
        elif name.startswith(SWEPT_AT) or len(values) == len(counted):
            # The timers that have fired are gone. What is due in a bucket that was not called since must not seem so.
            for bucket in buckets.values():
                bucket.counters[name] = min(values)


def weights(con: duckdb.DuckDBPyConnection, bucket: Bucket, tables: Iterable[TableDeclaration]) -> int:
    """Return the number of rows, by weight, in the Z-sets among some tables."""
    relations = [bucket.relation(t.name) for t in tables if t.replaces]
    sums = [con.execute(f"SELECT sum({WEIGHT}) FROM {rows}").fetchall()[0][0] for rows in relations if rows is not None]
    return int(sum(sums))
