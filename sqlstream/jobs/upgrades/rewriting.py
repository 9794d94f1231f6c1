"""Rewrites a savepoint for another query: unchanged state is linked, adapted state is computed by SQL.

The result is a savepoint as well: a warehouse with one job and one version, from which a job is restored as from any other. The
original savepoint stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import msgspec
from msgspec.structs import replace

from sqlstream.catalog import Column
from sqlstream.duck import key_hash
from sqlstream.duck.sql import Select, no_rows, over, quote_name, subquery, typed, union_all
from sqlstream.duck.types import encoded, time_literal
from sqlstream.jobs.redistribution import count_forgotten, merged, share_counters, weights
from sqlstream.jobs.savepoints.savepoint_folders import put_file
from sqlstream.storage.begun import BegunBatch
from sqlstream.storage.bucket import WEIGHTS, Bucket
from sqlstream.storage.joblog import JobLog, LogEntry, labels_of
from sqlstream.storage.manifests import FIRED_AT, Manifest, manifest_name, read_manifest
from sqlstream.storage.metrics import BucketMetrics, OperatorMetrics, SourceMetrics, earliest
from sqlstream.storage.segments import (
    BATCH_COLUMN,
    ROW_GROUP_ROWS,
    Segment,
    check_segments,
    scan,
    write_segment,
)
from sqlstream.storage.views import behind
from sqlstream.storage.zsets import KEYS
from sqlstream.units import MILLISECOND, NO_TIME, EventTime, ProcessingTime, now
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import BucketedPaths, Warehouse
from sqlstream.warehouse.records import sealed
from sqlstream.warehouse.savepoint_records import Savepoint, SavepointRecord, write_savepoint

_MADE, _BUCKET = "_made", "_bucket"
_ROWS = "rows"
# Returns the metrics of a bucket with these tables.
Measure = Callable[[Bucket, Sequence[TableDeclaration]], BucketMetrics]


@dataclass(frozen=True, slots=True)
class OperatorSource:
    """An operator whose state is made from the savepoint's operator `was`, which is empty if there is no single one.

    `tables` has each new table that is computed: all of its columns, over the names of the old tables. The other tables are
    linked. `hashed` are the columns whose hash picks the bucket. `timers` are the table and the column of the processing times,
    in microseconds, at which the operator must run, if it has any.
    """

    name: str
    was: str
    declared: tuple[TableDeclaration, ...]
    hashed: tuple[Column, ...]
    tables: Mapping[str, Select]
    timers: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class SinkSource:
    """A table that continues with the rows of the savepoint's table `was`; `columns` is the SQL of each, None: unchanged."""

    table: str
    was: str
    declared: TableDeclaration
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RewritePlan:
    """What to rewrite a savepoint into: the record of the job, and what each part of it is made from.

    `scans` maps new scans to scans of the savepoint, None for a scan that starts anew. `outputs` maps the indexes of sinks in the
    plan to those that they had. `positions` are texts by their paths below the folder of positions; `received` maps old folders
    of files there to new ones. With `by_clock` the job's watermark is processing time. `operators_by_clock` are the operators
    whose watermark is processing time in a job that also uses event time. `begun` is the batch that has begun, if any. `waiting`
    has files of the current job with rows that sinks have not sent yet, by their new paths below the folder of output.
    """

    record: JobRecord
    operators: tuple[OperatorSource, ...]
    sinks: tuple[SinkSource, ...]
    scans: Mapping[str, str | None]
    outputs: Mapping[int, int]
    positions: Mapping[str, str]
    received: Mapping[str, str]
    by_clock: bool = False
    operators_by_clock: frozenset[str] = frozenset()
    begun: BegunBatch | None = None
    waiting: Mapping[str, str] = field(default_factory=dict)


def rewrite(
    savepoint: Savepoint, folder: Warehouse, plan: RewritePlan, con: duckdb.DuckDBPyConnection, measure: Measure
) -> Savepoint:
    """Write the rewritten savepoint into a folder, and return it; what the folder had is deleted.

    Raises DamageError, and duckdb.Error where a SELECT fails.
    """
    folder.fs.delete_tree(folder.root)
    return _Rewriter(savepoint, folder, plan, con, measure).run()


class _Rewriter:
    def __init__(
        self,
        savepoint: Savepoint,
        folder: Warehouse,
        plan: RewritePlan,
        con: duckdb.DuckDBPyConnection,
        measure: Measure,
    ):
        self._savepoint, self._folder, self._plan, self._con = savepoint, folder, plan, con
        self._measure = measure
        self._source = savepoint.warehouse
        self._paths = savepoint.warehouse.job(savepoint.record.job)
        self._target = folder.job(plan.record.job)
        self._files: dict[str, int] = {}
        self._rows = self._bytes = 0
        entry = JobLog(self._source.fs, self._paths.log).entry(savepoint.record.version)
        old = read_record(self._source.fs, self._paths)
        assert entry is not None
        assert old is not None
        self._entry: LogEntry = entry
        self._old: JobRecord = old
        # A savepoint that lies elsewhere is copied.
        self._links = savepoint.warehouse.fs is folder.fs or savepoint.warehouse.root.startswith(
            folder.root.rpartition("/savepoints/")[0] + "/"
        )

    def run(self) -> Savepoint:
        plan, fs, target, version = self._plan, self._source.fs, self._target, self._entry.version
        self._write(target.record, sealed(msgspec.json.format(plan.record.to_json(), indent=2)))
        saved_operators = self._entry.operators
        operators = {
            one.name: self._operator(one) for one in plan.operators if one.was in saved_operators or one.tables
        }
        results = {s.table.lower(): self._table(s) for s in plan.sinks if s.was.lower() in self._entry.results}
        sources = {name: self._scan(was) for name, was in plan.scans.items()}
        entry = replace(
            self._entry,
            sources=sources,
            operators=operators,
            results=results,
            labels=labels_of(self._old, self._entry),
            watermarks={
                one.name: self._entry.watermarks[one.was] for one in plan.operators if one.was in self._entry.watermarks
            },
        )
        for name, text in plan.positions.items():
            self._write(f"{target.splits}/{name}", sealed(text))
        if plan.begun is not None:
            self._write(target.begun, sealed(plan.begun.to_json()))
        self._put_files()
        self._write(JobLog(self._folder.fs, target.log).path(version), sealed(entry.to_json()))
        self._write(f"{target.commits}/{version}", fs.read_text(f"{self._paths.commits}/{version}"))
        before = self._savepoint.record
        record = SavepointRecord(
            name=before.name,
            job=plan.record.job,
            job_created_at=plan.record.created_at,
            version=version,
            taken_at=now(),
            committed_at=before.committed_at,
            watermark=before.watermark,
            rows=self._rows,
            bytes=self._bytes,
            files=self._files,
        )
        self._folder.fs.make_durable([f"{self._folder.root}/{name}" for name in self._files])
        write_savepoint(self._folder, record)
        return Savepoint(self._folder, record, self._folder.root)

    def _scan(self, was: str | None) -> SourceMetrics:
        # All have read up to the last descriptor, those that begin nothing of it.
        metrics = self._entry.sources.get(was, SourceMetrics()) if was is not None else SourceMetrics()
        return replace(metrics, sequence=self._entry.sequence)

    # -- operators

    def _operator(self, operator: OperatorSource) -> OperatorMetrics:
        at, to = self._paths.operator(operator.was), self._target.operator(operator.name)
        metrics = self._entry.operators.get(operator.was, OperatorMetrics())
        manifests = {
            b: read_manifest(self._source.fs, f"{at.manifests(b)}/{one.manifest}") for b, one in metrics.buckets.items()
        }
        if not operator.tables:
            for bucket, one in metrics.buckets.items():
                self._link(at, to, bucket, [s for of in manifests[bucket].tables.values() for s in of])
                self._manifest(to, bucket, one.manifest, manifests[bucket])
            return metrics
        return self._adapted(operator, at, to, manifests)

    def _adapted(
        self, operator: OperatorSource, at: BucketedPaths, to: BucketedPaths, manifests: Mapping[int, Manifest]
    ) -> OperatorMetrics:
        before = [t.declaration for o in self._old.operators if o.name == operator.was for t in o.tables]
        rows = {t.name: self._current(t, at, manifests) for t in before}
        labels = labels_of(self._old, self._entry)
        tables: dict[int, dict[str, tuple[Segment, ...]]] = {label: {} for label in labels}
        for table in operator.declared:
            if table.name in operator.tables:
                by_label = self._make(table, over(rows, operator.tables[table.name]), operator.hashed, labels, to)
            else:
                by_label = {b: m.tables.get(table.name, ()) for b, m in manifests.items()}
                for bucket, segments in by_label.items():
                    self._link(at, to, bucket, segments)
            for label in labels:
                tables[label][table.name] = by_label.get(label, ())
        common = merged(manifests) if manifests else self._first_manifest(operator.name)
        buckets = {}
        for label in labels:
            manifest = replace(common, tables=tables[label])
            buckets[label] = Bucket.open(
                self._folder.fs, to.root, label, operator.declared, manifest.to_json(), NO_TIME
            )
            count_forgotten(self._con, buckets[label], operator.declared)
        share_counters(manifests.values(), buckets)
        self._weigh(before, operator.declared, at, manifests, buckets)
        for label, written in buckets.items():
            written.manifest_name = manifest_name(self._entry.version)
            current = {t.name: written.segments(t.name) for t in operator.declared}
            timer = self._timer(operator, written)
            written.event_timer = timer
            self._set_processing_timer(operator, written)
            written.manifest = replace(
                common,
                tables=current,
                counters=dict(written.counters),
                event_timer=timer,
                processing_timer=written.processing_timer,
            )
            self._manifest(to, label, written.manifest_name, written.manifest)
        return OperatorMetrics.of({label: self._measure(b, operator.declared) for label, b in buckets.items()})

    def _first_manifest(self, name: str) -> Manifest:
        """Return what all buckets of a new operator have in common: its manifest without tables."""
        delay = next(o.delay for o in self._plan.record.operators if o.name == name)
        watermark, version = self._entry.watermark, self._entry.version
        closed = None if watermark is None or name in self._plan.operators_by_clock else behind(watermark, delay)
        return Manifest(version, self._entry.committed_at, closed, {}, oldest=version)

    def _timer(self, operator: OperatorSource, bucket: Bucket) -> EventTime | None:
        """Return the event time at which the operator must run on a bucket, to process computed rows that are due."""
        lows = [s.live_low for t in operator.declared if t.name in operator.tables for s in bucket.segments(t.name)]
        first = earliest(lows)
        is_by_clock = self._plan.by_clock or operator.name in self._plan.operators_by_clock
        if first is not None and not is_by_clock and bucket.closed is not None:
            # Some are due before they are forgotten, such as those of the first of windows that overlap.
            first = EventTime(bucket.closed + MILLISECOND)
        return earliest((first, bucket.event_timer))

    def _set_processing_timer(self, operator: OperatorSource, bucket: Bucket) -> None:
        """Set the processing timer of a bucket to the first of its computed timers, even if it is due already."""
        if operator.timers is None or operator.timers[0] not in operator.tables:
            return
        table, due = operator.timers
        bucket.counters.pop(FIRED_AT, None)
        rows = bucket.relation(table)
        first = None if rows is None else self._con.execute(f"SELECT min({due}) FROM {rows}").fetchall()[0][0]
        bucket.processing_timer = None if first is None else ProcessingTime(first)

    def _current(self, table: TableDeclaration, at: BucketedPaths, manifests: Mapping[int, Manifest]) -> Select:
        """Return a table's rows that are not forgotten, in all buckets."""
        selects = []
        for bucket, manifest in sorted(manifests.items())[: 1 if table.replicated else None]:
            segments = [s for s in manifest.tables.get(table.name, ()) if s.until is None]
            if not segments:
                continue
            check_segments(self._source.fs, at.data(bucket), segments)
            rows = scan(self._source.fs, at.data(bucket), table.columns, segments)
            where = ""
            if table.time_column is not None and manifest.watermark is not None:
                closed = time_literal(manifest.watermark, table.time_type)
                where = f" WHERE {quote_name(table.time_column)} > {closed}"
            selects.append(Select(f"SELECT * FROM ({rows}){where}"))
        return union_all(selects) if selects else no_rows(table.columns)

    def _make(
        self, table: TableDeclaration, sql: Select, hashed: Sequence[Column], labels: Sequence[int], to: BucketedPaths
    ) -> dict[int, tuple[Segment, ...]]:
        """Write the rows of a SELECT into the buckets of their keys; return the segments by bucket."""
        names = {c.name for c in table.columns}
        target = key_hash.bucket(hashed, len(labels)) if all(c.name in names for c in hashed) else "0"
        stored = encoded(table.columns, subquery(Select(f"SELECT {typed(table.columns)} FROM ({sql})")))
        self._con.execute(f"CREATE OR REPLACE TEMP TABLE {_MADE} AS SELECT *, {target} AS {_BUCKET} FROM ({stored})")
        by_label: dict[int, tuple[Segment, ...]] = {}
        for number, label in enumerate(labels):
            where = "" if table.replicated else f" WHERE {_BUCKET} = {number}"
            rows = self._con.sql(f"SELECT * EXCLUDE {_BUCKET} FROM {_MADE}{where}").to_arrow_reader(ROW_GROUP_ROWS)
            segment = write_segment(
                self._folder.fs, to.data(label), table.name, self._entry.version, rows, time_column=table.time_column
            )
            if segment is not None:
                by_label[label] = (segment,)
                self._written(f"{to.data(label)}/{segment.name}", segment)
        self._con.execute(f"DROP TABLE {_MADE}")
        return by_label

    def _weigh(
        self,
        before: Sequence[TableDeclaration],
        after: Sequence[TableDeclaration],
        at: BucketedPaths,
        manifests: Mapping[int, Manifest],
        buckets: Mapping[int, Bucket],
    ) -> None:
        """Set each bucket's WEIGHTS as the operator counts them: over all Z-sets, or over all but KEYS."""
        old = [Bucket.open(self._source.fs, at.root, b, before, m.to_json(), NO_TIME) for b, m in manifests.items()]
        total = sum(bucket.counters.get(WEIGHTS, 0) for bucket in old)
        with_keys = total == sum(weights(self._con, bucket, before) for bucket in old)
        without = [t for t in before if t.name != KEYS]
        if with_keys and total == sum(weights(self._con, bucket, without) for bucket in old):
            with_keys = False
        counted = [t for t in after if with_keys or t.name != KEYS]
        for bucket in buckets.values():
            bucket.counters[WEIGHTS] = weights(self._con, bucket, counted)

    # -- tables

    def _table(self, sink: SinkSource) -> str:
        at = self._source.table(sink.was).job(self._paths.name)
        to = self._folder.table(sink.table).job(self._target.name)
        name = self._entry.results[sink.was.lower()]
        manifest = read_manifest(self._source.fs, f"{at.manifests(0)}/{name}")
        segments = [s for of in manifest.tables.values() for s in of if s.until is None]
        if sink.columns is None or not segments:
            self._link(at, to, 0, segments)
            self._manifest(to, 0, name, manifest)
            return name
        old = next(s for s in self._old.sinks if s.table.lower() == sink.was.lower())
        own = {c.name for c in sink.declared.columns} - set(sink.columns)
        internal = [c for c in sink.declared.columns if c.name in own]
        columns = [*(Column(n, t) for n, t in old.columns), *internal]
        check_segments(self._source.fs, at.data(0), segments)
        rows = scan(self._source.fs, at.data(0), columns, segments, batch=True)
        batch = Column(BATCH_COLUMN, "BIGINT")
        items = [f"{sql} AS {quote_name(n)}" for n, sql in sink.columns.items()]
        items += [quote_name(c.name) for c in (*internal, batch)]
        selected = Select(f"SELECT {', '.join(items)} FROM ({rows})")
        stored = encoded((*sink.declared.columns, batch), subquery(selected))
        span = min(s.first_batch for s in segments), max(s.last_batch for s in segments)
        segment = write_segment(
            self._folder.fs,
            to.data(0),
            _ROWS,
            self._entry.version,
            self._con.sql(stored).to_arrow_reader(ROW_GROUP_ROWS),
            batches=span,
        )
        [table] = manifest.tables
        new_segments = () if segment is None else (segment,)
        if segment is not None:
            self._written(f"{to.data(0)}/{segment.name}", segment)
        name = manifest_name(manifest.batch)
        self._manifest(to, 0, name, replace(manifest, tables={table: new_segments}))
        return name

    # -- files

    def _put_files(self) -> None:
        """Copy files that sources have received, and the job's records of its sinks."""
        root = f"{self._source.root}/"
        moved = {
            f"{self._paths.splits}/{old}": f"{self._target.splits}/{new}" for old, new in self._plan.received.items()
        }
        outputs = self._plan.outputs
        moved |= {f"{self._paths.output}/{old}/": f"{self._target.output}/{new}/" for new, old in outputs.items()}
        for name, size in self._savepoint.record.files.items():
            folder = next((old for old in moved if f"{root}{name}".startswith(old)), None)
            if folder is not None:
                to = moved[folder] + f"{root}{name}".removeprefix(folder)
                # Some of these are written again in their place.
                put_file(self._source.fs, f"{root}{name}", self._folder.fs, to, link=False)
                self._files[to.removeprefix(f"{self._folder.root}/")] = size
        for name, path in self._plan.waiting.items():
            to = f"{self._target.output}/{name}"
            # The job lies in the warehouse in which the folder is.
            put_file(self._folder.fs, path, self._folder.fs, to, link=False)
            self._files[to.removeprefix(f"{self._folder.root}/")] = self._folder.fs.size(to)

    def _link(self, at: BucketedPaths, to: BucketedPaths, bucket: int, segments: Sequence[Segment]) -> None:
        for segment in segments:
            target = f"{to.data(bucket)}/{segment.name}"
            put_file(self._source.fs, f"{at.data(bucket)}/{segment.name}", self._folder.fs, target, link=self._links)
            self._written(target, segment)

    def _written(self, path: str, segment: Segment) -> None:
        self._files[path.removeprefix(f"{self._folder.root}/")] = segment.bytes
        self._rows, self._bytes = self._rows + segment.rows, self._bytes + segment.bytes

    def _manifest(self, to: BucketedPaths, bucket: int, name: str, manifest: Manifest) -> None:
        self._write(f"{to.manifests(bucket)}/{name}", sealed(manifest.to_json()))

    def _write(self, target: str, text: str) -> None:
        self._files[target.removeprefix(f"{self._folder.root}/")] = len(text.encode())
        self._folder.fs.write_text_atomic(target, text)
