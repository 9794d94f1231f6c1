"""Reads the input of a job again, with the batch of each row and the watermark before that batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import duckdb

from sqlstream.connectors.interface import ReadContext
from sqlstream.duck.internal_columns import ADDS, FILE_ORDER
from sqlstream.duck.sql import Relation, Select, no_rows, quote_name
from sqlstream.errors import SqlStreamError
from sqlstream.jobs.verification.watermarks import JobWatermarks
from sqlstream.logical.plan.tables import Scan
from sqlstream.physical.batch.rows import AT, BATCH, STANDS, TIMES, UNTIMED, WATERMARK, CannotVerify
from sqlstream.physical.plan import CLOCK, ScanStage
from sqlstream.runtime import fragments as execute
from sqlstream.runtime.batch_descriptors import Work
from sqlstream.runtime.scan_rows import ScanRows
from sqlstream.runtime.times import from_spark_millis, to_spark_micros
from sqlstream.runtime.worker import JobSpec
from sqlstream.storage.joblog import LogEntry
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import EventTime, ProcessingTime


@dataclass(frozen=True, slots=True)
class BatchRead:
    """A batch that had a descriptor: the number of the descriptor, and the processing time of the batch.

    With `joins_next`, no empty batch followed: the watermark that this batch has reached was first used by the next `BatchRead`.
    """

    sequence: int
    time: ProcessingTime
    joins_next: bool = False


@dataclass
class ReadAgain:
    """Temporary tables of `con` with the rows that each scan of a job has read; `moments` are the batches that read them.

    `index_of` returns the index of a scan of the logical plan among the scans of the job, None if the job has no such scan.
    `watermarks` takes the watermarks before each batch.
    """

    job: JobSpec
    con: duckdb.DuckDBPyConnection
    index_of: Callable[[Scan], int | None]
    watermarks: JobWatermarks
    moments: list[BatchRead] = field(default_factory=list)
    _scan_millis: dict[int, int] = field(default_factory=dict)
    _reached: int = 0
    _tables: set[int] = field(default_factory=set)

    def read(self, batches: Iterable[Sequence[Work]]) -> None:
        """Read the input of batches, in their order. Raises CannotVerify when a part of it is no longer there."""
        for work in batches:
            before, own = from_spark_millis(self._reached), any(one.own_watermarks for one in work)
            scans = [from_spark_millis(self._scan_millis.get(i, 0)) for i in (*range(len(self.job.plan.scans)), CLOCK)]
            if work:
                self.moments.append(BatchRead(work[0].sequence, work[0].time))
                self.watermarks.add(work[0].sequence, scans, own=own)
            for number in sorted({one.scan for one in work}):
                self._batch(number, [one for one in work if one.scan == number], scans[number] if own else before)
            clocks = [to_spark_micros(one.clock) // 1000 for one in work if one.clock is not None]
            self._scan_millis[CLOCK] = max([self._scan_millis.get(CLOCK, 0), *clocks])
            watermarks = [self._scan_millis.get(i, 0) for i in (self.job.plan.watched if own else self.job.plan.timed)]
            self._reached = max(self._reached, min(watermarks, default=0))
        for number, stage in enumerate(self.job.plan.scans):
            if number not in self._tables:
                # The job has read nothing from this scan.
                self._fill(number, _nothing(stage))

    def join(self, entries: Sequence[LogEntry]) -> None:
        """Set `joins_next` of the batches from the log: such a batch has a single entry, because no empty batch followed it."""
        counts = Counter(entry.sequence for entry in entries)
        newest = max(counts, default=-1)
        joined = {sequence for sequence, count in counts.items() if count == 1 and sequence < newest}
        self.moments = [replace(one, joins_next=one.sequence in joined) for one in self.moments]

    def relation(self, scan: Scan) -> Relation:
        """Return the table with the rows of a scan of the logical plan. Raises CannotVerify if there is none."""
        index = self.index_of(scan)
        if index is None:
            raise CannotVerify(f'what was read of table "{scan.table.name}" is not known')
        return _table(index)

    def _batch(self, number: int, work: Sequence[Work], before: EventTime | None) -> None:
        stage = self.job.plan.scans[number]
        ticks = [to_spark_micros(one.tick) // 1000 for one in work if one.tick is not None]
        if any(one.split is not None for one in work):
            try:
                ticks.append(self._take(number, stage, work, before))
            except (SqlStreamError, duckdb.Error, OSError) as error:
                why = error.message if isinstance(error, SqlStreamError) else str(error).splitlines()[0]
                raise CannotVerify(
                    f'what the job has read of table "{stage.table.name}" cannot be read again', detail=f"{why}."
                ) from error
        self._scan_millis[number] = max([self._scan_millis.get(number, 0), *ticks])

    def _take(
        self,
        number: int,
        stage: ScanStage,
        work: Sequence[Work],
        before: EventTime | None,
    ) -> int:
        """Read the splits of a batch; return the watermark of the scan after it as milliseconds of Spark, 0 for none."""
        con, batch, time = self.con, work[0].sequence, work[0].time
        execute.set_times(con, time, before)
        scanned = ScanRows(stage.table, work, ReadContext(self.job.project, self.job.warehouse, time))
        plan = scanned.take(con)
        try:
            self._add(number, stage, scanned.well_formed(con, plan), batch, time, before)
        except duckdb.Error as error:
            again = scanned.read_again(con, error)
            if again is None:
                raise
            plan.forget(con)
            plan = again
            self._add(number, stage, scanned.well_formed(con, plan), batch, time, before)
        plan.forget(con)
        if stage.watermark is None or stage.has_partitions or stage.has_watermarks or stage.by_clock:
            return 0
        mine = f"SELECT * FROM {_table(number)} WHERE {BATCH.name} = {batch} AND NOT {UNTIMED.name}"
        [(watermark,)] = con.execute(f"SELECT max(epoch_us({stage.watermark})) FROM ({mine})").fetchall()
        return to_spark_micros(watermark) // 1000

    def _add(
        self,
        number: int,
        stage: ScanStage,
        relation: Relation,
        batch: int,
        time: ProcessingTime,
        before: EventTime | None,
    ) -> None:
        """Add the rows of a batch to the table of a scan."""
        rows = execute.over_input(Select(f"SELECT * FROM {relation}"), stage.columns)
        column_names = {name.lower() for name in self.con.sql(rows).columns}
        index = [c.name for c in FILE_ORDER] if {c.name.lower() for c in FILE_ORDER} <= column_names else []
        self._fill(number, _stamped(stage, rows, before, batch, time, index))

    def _fill(self, number: int, rows: Select) -> None:
        how = f"INSERT INTO {_table(number)}" if number in self._tables else f"CREATE TEMP TABLE {_table(number)} AS"
        self.con.execute(f"{how} {rows}")
        self._tables.add(number)

    def count(self) -> tuple[tuple[str, int], ...]:
        """Return the number of rows that all scans of each table have read, as (table, rows)."""
        counts = Counter[str]()
        for number, stage in enumerate(self.job.plan.scans):
            [(count,)] = self.con.execute(f"SELECT count(*) FROM {_table(number)}").fetchall()
            counts[stage.table.name] += count
        return tuple(counts.items())


def _table(number: int) -> Relation:
    return Relation(f"_read_{number}")


def _stamped(
    stage: ScanStage,
    rows: Select,
    before: EventTime | None,
    batch: int,
    time: ProcessingTime,
    index: Sequence[str] = (),
) -> Select:
    """Return a batch's rows, with columns that say when they were read; `index` are the columns of their order."""
    untimed, where = "false", ""
    if stage.time_column is not None:
        name = quote_name(stage.time_column)
        bounds = execute.time_bounds(stage.table, time)
        untimed = f"isfinite({name}) IS NOT TRUE"
        if stage.changes == "keyed":
            untimed = f"({untimed} OR {execute.astray(name, bounds)}) AND {ADDS}"
        else:
            where = f" WHERE ({execute.astray(name, bounds)}) IS NOT TRUE"
    times, left_out = ("1", "")
    if stage.changes == "whole":
        times, left_out = WEIGHT, f" EXCLUDE ({WEIGHT})"
    stamps = {
        WATERMARK: "NULL" if before is None else str(before),
        BATCH: str(batch),
        AT: str(time),
        TIMES: times,
        STANDS: f"row_number() OVER (ORDER BY {', '.join(index)})" if index else "0",
        UNTIMED: untimed,
    }
    items = ", ".join(f"CAST({sql} AS {column.type}) AS {column.name}" for column, sql in stamps.items())
    return Select(f"SELECT *{left_out}, {items} FROM ({rows}){where}")


def _nothing(stage: ScanStage) -> Select:
    rows = execute.over_input(no_rows(stage.table.physical), stage.columns)
    return _stamped(stage, rows, None, 0, ProcessingTime(0))
