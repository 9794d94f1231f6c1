"""The two things that a task does for a job: scan splits, and advance an operator; each runs the fragment that follows.

Spark's workers and the in-process runner call these, so both run the same code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import duckdb
import msgspec
import pyarrow as pa

from sqlstream import profiling
from sqlstream.catalog import Column
from sqlstream.connectors.discovery import Split
from sqlstream.connectors.interface import ReadContext, WorkerSink
from sqlstream.connectors.lookup import open_lookup
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.connectors.registry import sink_of
from sqlstream.duck import errors as duckdb_errors
from sqlstream.duck.sql import Relation, Select, subquery, typed
from sqlstream.duck.time_variables import ABOVE_VARIABLE
from sqlstream.duck.types import encoded
from sqlstream.errors import JobError, SqlStreamError
from sqlstream.functions.registration import recover
from sqlstream.operators.operator import SideRows, StepTimes
from sqlstream.operators.process.batch import user_counters
from sqlstream.physical.plan import Exchange, Fragment, Lookup, ScanStage
from sqlstream.profiling import BUCKET, SCAN, TASKS
from sqlstream.runtime import fragments as execute
from sqlstream.runtime import malformed
from sqlstream.runtime.batch_descriptors import Work
from sqlstream.runtime.fragments import ScanStats, newest
from sqlstream.runtime.frames import METRICS, OUTPUT, Frame, Write, pack, pack_for_all, port_of, serialise
from sqlstream.runtime.scan_rows import ScanRows
from sqlstream.runtime.times import least
from sqlstream.runtime.watermarks import BatchTimes, Watermarks
from sqlstream.runtime.worker import CHUNK, JobSpec, connection
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.metrics import COUNTERS, BucketMetrics, BucketReport, PartitionReport, ScanReport
from sqlstream.storage.segments import Segment, write_segment
from sqlstream.storage.views import behind
from sqlstream.storage.zsets import VERSION
from sqlstream.units import END_OF_INPUT, EventTime, ProcessingTime
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.paths import Warehouse
from sqlstream.zones import instant_of

# The one table of a sink's directory.
ROWS = "rows"
_OF_A_SUM = re.compile(r"Overflow in (HUGEINT addition|SUM of DECIMAL)")


@dataclass(frozen=True, slots=True)
class Output:
    """A message of a task to the driver, whose `body` is JSON, by its `kind`.

    "segment" is a Segment that was written for a sink, "written" is [number of rows, records for the committer] of a sink's
    Writer, "metrics" is a Report. `sink` is the index of the sink in the plan.
    """

    kind: str
    body: str
    sink: int = 0

    def framed(self, bucket: int, time: ProcessingTime) -> Frame:
        """Return the control frame that carries it past later stages to the driver."""
        if self.kind == "metrics":
            return Frame(bucket, METRICS, time, self.body.encode())
        return Frame(bucket, OUTPUT, time, msgspec.json.encode(self))

    @classmethod
    def of(cls, frame: Frame) -> Output:
        """Return the output that a control frame carries."""
        if frame.port == METRICS:
            return cls("metrics", frame.payload.decode())
        return msgspec.json.decode(frame.payload, type=cls)


def run_scan(
    job: JobSpec, scan: int, work: Sequence[Work], batch: int, watermarks: Watermarks
) -> Iterator[tuple[EventTime | None, Frame | Output]]:
    """Read the splits of a task; yield the frames and outputs of its fragments, each with the watermark of the scan.

    `work` is not empty. If partitions have watermarks, a task reads only some of them: then only ticks advance the scan's
    watermark. `watermarks` are the watermarks before the batch. Raises JobError for rows that fail.
    """
    stage = job.plan.scans[scan]
    with profiling.span(SCAN, TASKS, job=job.name, batch=batch, operator=stage.name, bucket=work[0].slot):
        yield from _run_scan(job, scan, work, batch, watermarks)


def _run_scan(
    job: JobSpec, scan: int, work: Sequence[Work], batch: int, watermarks: Watermarks
) -> Iterator[tuple[EventTime | None, Frame | Output]]:
    stage, times = job.plan.scans[scan], BatchTimes(batch, work[0].time, watermarks)
    tick = max((w.tick for w in work if w.tick is not None), default=None)
    if any(w.fires_timers for w in work):
        yield from ((tick, frame) for frame in fire_timers(job, times.time))
    if any(w.opens for w in work):
        yield from ((tick, frame) for frame in opening(job, times))
    reading, watermark = SplitReading(job, stage, work), tick
    with connection(job) as con:
        execute.set_times(con, times.time, watermarks.scans[scan])
        if reading.splits:
            explain = partial(reading.explain, con)
            with user_errors(stage.name, explain):
                rows = reading.start(con)
                if not stage.has_partitions:
                    watermark = newest(reading.stats.watermark, tick)
                for fragment in stage.fragments:
                    for output in run_fragment(job, con, fragment, rows, times, explain):
                        yield watermark, output
                reading.end(con)
                if reading.skipped and stage.errors is not None:
                    segment = malformed.keep(con, job, stage, reading.splits, batch, times.time)
                    if segment is not None:
                        yield watermark, Output("segment", segment.to_json(), stage.errors)
        yield watermark, reading.report(work[0], watermark)


class SplitReading:
    """Reads the splits of a scan in a task: by the plan of their source, or by its other plan if that one fails.

    `stats` are known once it has started, `skipped`, `lost` (rows) and `size` (bytes) once it has ended.
    """

    def __init__(self, job: JobSpec, stage: ScanStage, work: Sequence[Work]):
        self._job, self._stage = job, stage
        self._context = ReadContext(job.project, job.warehouse, work[0].time)
        self._rows = ScanRows(stage.table, work, self._context)
        self._source, self.splits = self._rows.source, self._rows.splits
        self.stats = ScanStats()
        self.skipped = self.lost = self._unfit = 0
        self.size: int | None = None
        self._plan: ReadPlan | None = None
        # The error of the first plan, if that one failed.
        self._failure: duckdb.Error | None = None

    def start(self, con: duckdb.DuckDBPyConnection) -> Select:
        """Return the rows. Raises DataError for rows that are malformed, unless they are to be skipped."""
        stage, source = self._stage, self._source
        bounds = execute.time_bounds(stage.table, self._context.time)
        plan = self._rows.take(con)
        try:
            rows, self.stats = self._input(con, plan, bounds)
        except duckdb.Error as error:
            again = self._rows.read_again(con, error)
            if again is None:
                raise
            self._failure = error
            plan.forget(con)
            plan = again
            rows, self.stats = self._input(con, plan, bounds)
        self._plan = plan
        self._unfit = execute.count_unfit(con, stage, rows)
        if self.stats.astray and not malformed.drops_astray(stage.table):
            raise malformed.astray_error(con, stage, self.splits)
        if stage.changes == "whole" and execute.lacks_rows_before(con, rows):
            execute.check_updates(con, stage, source, self.splits, partial(self._relation, con))
        return rows

    def _input(
        self, con: duckdb.DuckDBPyConnection, plan: ReadPlan, bounds: execute.TimeBounds
    ) -> tuple[Select, ScanStats]:
        return execute.scan_input(
            con,
            self._stage,
            self._rows.well_formed(con, plan),
            keep=plan.keep,
            bounds=bounds,
            zone=self._job.zone_of(self._stage),
        )

    def _relation(self, con: duckdb.DuckDBPyConnection, split: Split) -> Relation:
        """Return the rows of one split as a FROM item, by the plan that did not fail."""
        return self._rows.of_split(con, split, self._failure)

    def explain(self, con: duckdb.DuckDBPyConnection, error: duckdb.Error) -> SqlStreamError | None:
        """Return the error to show for an error of DuckDB over the rows; None if neither the source nor a row explains it."""
        unreadable = self._source.explained(error, self.splits)
        return unreadable or execute.explain_row(
            con, self._stage, self._source, self.splits, partial(self._relation, con), finder(self._job)
        )

    def end(self, con: duckdb.DuckDBPyConnection) -> None:
        """Count the skipped and lost rows and the bytes, and drop the rows."""
        assert self._plan is not None
        self.skipped, self.lost = self._plan.skipped(con) + self.stats.astray + self._unfit, self._plan.lost
        self.size = self._source.bytes_read(self.splits)
        self._plan.forget(con)

    def report(self, work: Work, watermark: EventTime | None) -> Output:
        """Return the report for the driver."""
        stats = self.stats
        partitions = {n: PartitionReport(s.rows, s.max_event_time, s.watermark) for n, s in stats.partitions.items()}
        report = ScanReport(
            self._stage.name,
            work.sequence,
            work.last,
            stats.rows,
            stats.null_rows,
            self.skipped,
            stats.max_event_time,
            watermark,
            self.lost,
            partitions,
            self.size,
            work.clock,
        )
        return Output("metrics", msgspec.json.encode(report).decode())


def fire_timers(job: JobSpec, time: ProcessingTime) -> Iterator[Frame]:
    """Yield frames without rows for all buckets of the operators with processing-time timers, which call these operators."""
    nothing = pa.table({})
    for number, stage in enumerate(job.plan.stages):
        if stage.fires_timers:
            for label in job.labels:
                yield Frame(label, port_of(number, 0), time, serialise(nothing))


def opening(job: JobSpec, times: BatchTimes) -> Iterator[Frame | Output]:
    """Run the opening fragments of operators, in the first batch, before any input; yield their frames and outputs."""
    with connection(job) as con:
        for fragment in (f for stage in job.plan.stages for f in stage.opening):
            yield from run_fragment(job, con, fragment, Select("SELECT 1 AS one"), times)


class Advance:
    """One call of an operator for one bucket: state before, frames in, frames out, state after.

    Once `run` is exhausted, `manifest` is the JSON of the bucket's new state, and `event_timer` the time of its next timer.
    """

    def __init__(self, job: JobSpec, stage: int, bucket: int, manifest: str | None, times: BatchTimes):
        self.job, self.bucket, self.times = job, bucket, times
        self.stage, self.watermark = job.plan.stages[stage], times.watermarks.operators[stage]
        self.state = job.open_bucket(stage, bucket, manifest)
        self.event_timer: EventTime | None = None
        self.manifest = manifest or ""

    def run(self, arrived: Sequence[Frame]) -> Iterator[Frame | Output]:
        """Run the operator over frames, and commit the bucket's state; yield what the fragments behind it emit, then metrics."""
        job, batch, operator = self.job.name, self.times.batch, self.stage.name
        with profiling.span(BUCKET, TASKS, job=job, batch=batch, operator=operator, bucket=self.bucket):
            yield from self._run(arrived)

    def _run(self, arrived: Sequence[Frame]) -> Iterator[Frame | Output]:
        inputs = ((self.stage.ports[f.input], f.rows()) for f in arrived)
        delay = self.stage.delay
        # The machine's clock may have been set back: then the time of the operator stands still, as that of its input does.
        before = [] if self.state.manifest is None else [self.state.manifest.time]
        if (clock := self.times.watermarks.clock) is not None and clock != END_OF_INPUT:
            # What goes by the clock above is as far.
            before.append(instant_of(clock, self.job.clock_zone))
        self.times = replace(self.times, time=max([self.times.time, *before, *(f.time for f in arrived)]))
        name, watermark = self.stage.name, self.watermark
        with connection(self.job) as con, user_errors(name), overflows(name):
            execute.set_times(con, self.times.time, watermark)
            if watermark is not None:
                # It never goes back, even if an earlier version of sqlstream used a shorter delay.
                reached = behind(watermark, delay)
                closed = self.state.closed
                watermark = reached if closed is None else max(reached, closed)
            times = StepTimes(self.times.batch, watermark, self.times.time)
            waiting: dict[str, list[pa.RecordBatch]] = {}
            size = emitted = 0
            for changes in self.stage.operator.step(con, self.state, inputs, times):
                output, rows = (changes.output, changes.rows) if isinstance(changes, SideRows) else ("", changes)
                waiting.setdefault(output, []).append(rows)
                size += rows.nbytes
                emitted += rows.num_rows
                if size >= CHUNK:
                    yield from self._after(waiting)
                    waiting, size = {}, 0
            yield from self._after(waiting, con)
            if self.state.event_timer is not None and self.state.event_timer != END_OF_INPUT:
                self.state.event_timer = EventTime(self.state.event_timer + delay)
            self.manifest = self.state.commit(con, times.batch, times.time, times.watermark)
        self.event_timer = self.state.event_timer
        metrics = bucket_metrics(self.state, self.stage.operator.tables)
        report = BucketReport(self.stage.name, self.bucket, metrics, emitted)
        yield Output("metrics", msgspec.json.encode(report).decode())

    def _after(
        self, waiting: Mapping[str, Sequence[pa.RecordBatch]], last: duckdb.DuckDBPyConnection | None = None
    ) -> Iterator[Frame | Output]:
        """Run the fragments behind the operator over the rows of its outputs, by name of the output.

        Once the operator has ended, `last` is its connection. Before, it may be in the middle of a result there.
        """
        operator = self.stage.operator
        for output, batches in waiting.items():
            columns = operator.side_outputs[output] if output else operator.outputs
            fragments = [fragment for fragment in self.stage.fragments if fragment.output == output]
            # Lookups make tables, whose names the operator may use.
            shared = None if any(fragment.lookups for fragment in fragments) else last
            with connection(self.job) if shared is None else nullcontext(shared) as con:
                if shared is None:
                    execute.set_times(con, self.times.time, self.watermark)
                con.register("_changes", pa.Table.from_batches(batches))
                rows = Select(f"SELECT {typed(columns)} FROM _changes")
                for fragment in fragments:
                    yield from run_fragment(self.job, con, fragment, rows, self.times)


def bucket_metrics(state: Bucket, tables: Sequence[TableDeclaration]) -> BucketMetrics:
    """Return the metrics of a bucket for the job's log; `tables` are the state tables of its operator."""
    return BucketMetrics(
        manifest=state.manifest_name,
        state_rows=state.live_rows,
        state_bytes=state.bytes,
        segments=sum(len(state.segments(t.name)) for t in tables),
        **{name: state.counters.get(name, 0) for name in COUNTERS},
        event_timer=state.event_timer,
        processing_timer=state.processing_timer,
        counters=user_counters(state.counters),
    )


# Returns the error to show for an error of DuckDB, None if it does not know one.
Explain = Callable[[duckdb.Error], SqlStreamError | None]


def run_fragment(
    job: JobSpec,
    con: duckdb.DuckDBPyConnection,
    fragment: Fragment,
    rows: Select,
    times: BatchTimes,
    explain: Explain = lambda error: None,
) -> Iterator[Frame | Output]:
    """Run a fragment over `rows`: yield frames if an exchange follows, else outputs for the driver.

    Raises JobError for rows that fail, as `explain` explains them.
    """
    find, batch, watermarks = finder(job), times.batch, times.watermarks
    # The positions of expressions above several inputs, and of the operator that the rows go to.
    elsewhere = {name: least(watermarks.scans[i] for i in indexes) for name, indexes in job.plan.watermark_variables}
    if job.plan.asks_watermark and fragment.exchange is not None:
        elsewhere[ABOVE_VARIABLE] = watermarks.operators[fragment.exchange.stage]
    execute.set_watermarks(con, elsewhere)
    if fragment.exchange is not None:
        stage = fragment.exchange.stage
        ports = {part: port_of(stage, number) for part, number in fragment.exchange.ports}
        with overflows(job.plan.stages[stage].name, explain):
            for part, reader in execute.part_batches(con, fragment, rows, len(job.labels), find):
                write = segment_writer(job, fragment.exchange, part, batch)
                packed = pack_for_all if fragment.exchange.broadcast else pack
                yield from packed(reader, ports[part], times.time, job.labels, write)
        return
    sink = job.plan.sinks[fragment.sink]
    with user_errors(sink.table.name, lambda e: execute.explain_refused(con, fragment, rows, sink, find) or explain(e)):
        target = sink_of(sink.table)
        if isinstance(target, WorkerSink):
            [(_, written)] = execute.part_queries(con, fragment, rows, find)
            columns = [Column(name, type) for name, type in sink.columns]
            outcome = target.writer(job.sink_context(fragment.sink)).write(con, columns, written, batch)
            yield Output("written", json.dumps(outcome), fragment.sink)
            return
        for _, reader in execute.part_batches(con, stored(fragment, job, batch), rows, 1, find):
            warehouse = Warehouse(job.warehouse)
            directory = job.sink_paths(warehouse, fragment.sink).data(0)
            segment = write_segment(warehouse.fs, directory, ROWS, batch, reader)
            if segment is not None:
                yield Output("segment", segment.to_json(), fragment.sink)


def finder(job: JobSpec) -> execute.Find:
    """Return the function that looks up rows in the lookup tables of a job."""

    def find(lookup: Lookup, keys: pa.Table) -> pa.Table:
        opened = open_lookup(lookup.table, keys.column_names, warehouse=job.warehouse, project=job.project)
        return opened.find(keys, lookup.span)

    return find


def segment_writer(job: JobSpec, exchange: Exchange, part: str, batch: int) -> Write:
    """Return the function that writes rows of a part as a segment into the state of the operator that receives them."""
    stage = job.plan.stages[exchange.stage]
    warehouse = Warehouse(job.warehouse)
    paths = warehouse.job(job.name).operator(stage.name)
    time_column = next((t.time_column for t in stage.operator.tables if t.name == part), None)

    def write(label: int, rows: pa.Table) -> Segment:
        segment = write_segment(warehouse.fs, paths.data(label), part, batch, rows, time_column=time_column)
        assert segment is not None
        return segment

    return write


def stored(fragment: Fragment, job: JobSpec, batch: int) -> Fragment:
    """Return the fragment with its rows encoded as the sink stores them, and with the batch for a sink of upserts."""
    sink = job.plan.sinks[fragment.sink]

    def versioned(sql: Select) -> Select:
        return Select(f"SELECT *, {batch} AS {VERSION} FROM ({sql})") if sink.upserts else sql

    parts = tuple((name, encoded(sink.stored, subquery(versioned(sql)))) for name, sql in fragment.parts)
    return replace(fragment, parts=parts)


@contextmanager
def overflows(name: str, explain: Explain | None = None) -> Iterator[None]:
    """Turn the overflow of a sum into a JobError that names the operator, or into the error of `explain` for a single row."""
    try:
        yield
    except (duckdb.OutOfRangeException, OSError) as error:
        e = duckdb_errors.of_duckdb(error)
        if e is None or not _OF_A_SUM.search(str(e)):
            raise
        hint = "Let it round: SUM(CAST(x AS DOUBLE)). A sum of integers or of DECIMAL is exact, with at most 38 digits."
        message = f'a sum in "{name}" does not fit: {duckdb_errors.plain(e)}'
        raise (explain(e) if explain else None) or JobError(message, hint=hint) from error


def _explained(error: duckdb.Error, explain: Explain) -> SqlStreamError | None:
    """Return the error of `explain`; None if it has none, or if DuckDB fails during the explanation."""
    try:
        return explain(error)
    except duckdb.Error:
        return None


@contextmanager
def user_errors(name: str, explain: Explain | None = None) -> Iterator[None]:
    """Turn DuckDB's errors into the error of a user's function, or the error of `explain`, or else a JobError with `name`."""
    try:
        yield
    except (duckdb.Error, OSError) as error:
        e = duckdb_errors.of_duckdb(error)
        if e is None:
            raise
        explanation = recover(e) or (_explained(e, explain) if explain else None)
        translation = duckdb_errors.translate(e, "")
        raise explanation or JobError(f'"{name}": {translation.message}', detail=translation.detail) from error
