"""Warehouse tables as sources: the committed batches of every job that writes the table, in order for each job.

Each row has the number of its batch, even after segments are merged, so a range of batches always has the same rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlstream.catalog import Column, Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets, monitor_interval
from sqlstream.connectors.options import MAX_BYTES
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.sql import Items, Select, no_rows, quote_name, union_all
from sqlstream.errors import DamageError, DataError, UsageError, missing
from sqlstream.storage.manifests import Manifest
from sqlstream.storage.segments import BATCH_COLUMN, check_segments, scan
from sqlstream.storage.snapshot import JobHistory, named_manifest
from sqlstream.units import ProcessingTime, parse_bytes
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import GONE

_ATTEMPTS = 4
_PIECES_PER_TASK = 2


@dataclass(frozen=True, slots=True)
class _Batch:
    """A committed batch with rows."""

    job: str
    created: int
    number: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BatchRange:
    """A split: the rows of a job's batches (after, up_to] in a warehouse table.

    `created` is when the job was created, in microseconds since 1970: a job of the same name may have been dropped. `bytes` is an
    estimate.
    """

    job: str
    created: int
    after: int
    up_to: int
    bytes: int

    @property
    def reached(self) -> tuple[str, Any]:
        return f"{self.job}@{self.created}", self.up_to

    def to_list(self) -> list[Any]:
        return [self.job, self.created, self.after, self.up_to, self.bytes]


class TableDiscovery(Discovery):
    """Hands out the committed batches of the jobs that write a table."""

    backlog_unit = "batches"

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext):
        super().__init__()
        self.interval = monitor_interval(table)
        self.bounded = self.interval is None
        self._table, self._position, self._context = table, position, context
        self._max_bytes = parse_bytes(table.options.get("source.max-bytes-per-batch", MAX_BYTES.default))
        self._pending: list[_Batch] = []
        self._bound: dict[str, int] | None = None
        # The records of the jobs that write the table, by the jobs' names.
        self._records: dict[str, JobRecord] = {}

    def poll(self) -> int:
        """Look for committed batches; return how many wait.

        Raises UsageError if a job that writes the table was started anew, went back behind rows that were read, or writes a
        changelog, and if no job has written a bounded table.
        """
        warehouse = self._context.warehouse
        batches: list[_Batch] = []
        newest = {}
        for job in warehouse.writers(self._table.name):
            record = read_record(warehouse.fs, warehouse.job(job))
            committed = last_committed(warehouse.fs, warehouse.job(job))
            if record is None or committed is None:
                continue
            self._check_same(job, record)
            self._check_added(record)
            self._records[job] = record
            newest[f"{job}@{record.created_at}"] = committed
        if self.bounded:
            newest = self._bounded(newest)
        for writer, up_to in sorted(newest.items()):
            job, _, created = writer.rpartition("@")
            after = self._read_up_to(job, int(created))
            if up_to > after:
                manifest = _written(warehouse, job, self._table.name)
                sizes = _sizes(manifest, after, up_to)
                batches += [_Batch(job, int(created), number, sizes[number]) for number in sorted(sizes)]
        self._pending = batches
        return len(batches)

    def _bounded(self, newest: dict[str, int]) -> dict[str, int]:
        """Return the last batch to read of each writer: the last one that was committed when the job started."""
        if self._bound is None:
            if not newest and not self._context.warehouse.writers(self._table.name):
                raise UsageError(
                    f'table "{self._table.name}" is empty: no job has written it yet',
                    hint="Run the job that writes it first, or set 'source.monitor-interval', such as '1 s', to follow it.",
                )
            self._bound = self._context.remember("bound", newest) if self._context.finish else newest
        return self._bound

    def _check_same(self, job: str, record: JobRecord) -> None:
        for writer in self._position.reached:
            name, _, created = writer.rpartition("@")
            if name != job or record.has_written(ProcessingTime(int(created)), self._position.get(writer)):
                continue
            writes = f'job "{record.job}", which writes table "{self._table.name}",'
            if int(created) in dict(record.lives):
                hint = (
                    "Let this job go back, too, to a savepoint from before these rows, or start it anew with --fresh."
                )
                raise UsageError(f"{writes} went back to a savepoint behind rows that had been read", hint=hint)
            raise UsageError(
                f"{writes} was started anew after its rows had been read",
                hint="Start this job anew, too, with --fresh.",
            )

    def _read_up_to(self, job: str, created: int) -> int:
        """Return the last batch of a job that was read, also in its `lives` before it went back to a savepoint; -1 for none."""
        record = self._records.get(job)
        before = (created_at for created_at, _ in record.lives) if record is not None else ()
        return max(int(self._position.get(f"{job}@{one}", -1)) for one in (created, *before))

    def _check_added(self, record: JobRecord) -> None:
        sink = record.sink(self._table.name)
        if sink is not None and sink.changing:
            raise UsageError(
                f'table "{self._table.name}" holds a changelog, written by job "{record.job}"; a job cannot read it',
                hint="Read what that job reads, with its query in FROM.",
            )

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def next_batch(self) -> Sequence[BatchRange] | None:
        """Return ranges of batches, of one job each, of about equal bytes; None if no batch waits.

        They have at most `source.max-bytes-per-batch` bytes, but at least one batch of one job.
        """
        count, room = 0, self._max_bytes
        while count < len(self._pending) and (count == 0 or self._pending[count].bytes <= room):
            room -= self._pending[count].bytes
            count += 1
        if not count:
            return None
        batches, self._pending = self._pending[:count], self._pending[count:]
        piece = sum(b.bytes for b in batches) / (_PIECES_PER_TASK * self._context.parallelism)
        splits: list[BatchRange] = []
        for batch in batches:
            last = splits[-1] if splits else None
            if last is not None and last.job == batch.job and last.bytes + batch.bytes <= piece:
                splits[-1] = BatchRange(last.job, last.created, last.after, batch.number, last.bytes + batch.bytes)
                continue
            same = last is not None and last.job == batch.job
            after = last.up_to if last and same else self._read_up_to(batch.job, batch.created)
            splits.append(BatchRange(batch.job, batch.created, after, batch.number, batch.bytes))
        self._position.add(splits)
        return splits


def _written(warehouse: Warehouse, job: str, table: str) -> Manifest | None:
    """Return the manifest of a job's rows in a table now; None without rows."""
    paths = warehouse.table(table).job(job)
    for attempt in range(_ATTEMPTS):
        newest = JobHistory(warehouse, job).newest_entry
        try:
            named = newest.table_manifests(table) if newest else {}
            return named_manifest(warehouse.fs, paths, 0, named[0]) if named else None
        except DamageError as error:
            # A newer manifest may have replaced it meanwhile.
            if error.fault != GONE or attempt == _ATTEMPTS - 1:
                raise
    return None


def _sizes(manifest: Manifest | None, after: int, up_to: int) -> dict[int, int]:
    """Return the bytes of the batches (after, up_to] that have rows; the bytes of a merged segment are divided evenly."""
    sizes: dict[int, int] = defaultdict(int)
    for segments in manifest.tables.values() if manifest else ():
        for s in segments:
            share = -(-s.bytes // (s.last_batch - s.first_batch + 1))
            for number in range(max(s.first_batch, after + 1), min(s.last_batch, up_to) + 1):
                sizes[number] += share
    return sizes


def read_tables(warehouse: Warehouse, splits: Sequence[BatchRange], table: Table) -> ReadPlan:
    """Return the plan that reads ranges of batches, from the segments that now contain their rows.

    Raises DataError if a job was dropped or started anew, or does not write a column of the table.
    """
    by_job: dict[str, list[BatchRange]] = defaultdict(list)
    for split in splits:
        by_job[split.job].append(split)
    selects = [select for job, ranges in by_job.items() if (select := _select(warehouse, job, ranges, table))]
    return ReadPlan(union_all(selects or [no_rows(table.physical)]))


def _select(warehouse: Warehouse, job: str, ranges: Sequence[BatchRange], table: Table) -> Select | None:
    record = read_record(warehouse.fs, warehouse.job(job))
    if record is None or not all(record.has_written(ProcessingTime(r.created), r.up_to) for r in ranges):
        raise DataError(
            f'job "{job}", which wrote table "{table.name}", was {"dropped" if record is None else "started anew"}'
            " while its rows were being read",
            hint="Start this job anew, too, with --fresh.",
        )
    sink = record.sink(table.name)
    columns = tuple(Column(name, type) for name, type in (sink.columns if sink else ()))
    paths = warehouse.table(table.name).job(job)
    manifest = _written(warehouse, job, table.name)
    segments = [
        s
        for table_segments in (manifest.tables.values() if manifest else ())
        for s in table_segments
        if any(s.last_batch > r.after and s.first_batch <= r.up_to for r in ranges)
    ]
    if not segments:
        return None
    check_segments(warehouse.fs, f"{paths.root}/data/0", segments)
    rows = scan(warehouse.fs, f"{paths.root}/data/0", columns, segments, batch=True)
    chosen = " OR ".join(f"({BATCH_COLUMN} > {r.after} AND {BATCH_COLUMN} <= {r.up_to})" for r in ranges)
    return Select(f"SELECT {_items(columns, table, record)} FROM ({rows}) WHERE {chosen}")


def _items(written: Sequence[Column], table: Table, record: JobRecord) -> Items:
    names = {c.name.lower(): c.name for c in written}
    items = []
    for column in table.physical:
        if column.name.lower() not in names:
            hint = missing("column", column.name, names.values())
            message = f'table "{table.name}", as job "{record.job}" writes it, has no column "{column.name}"'
            raise DataError(message, hint=hint)
        items.append(f"CAST({quote_name(names[column.name.lower()])} AS {column.type}) AS {quote_name(column.name)}")
    return Items(", ".join(items))
