"""Jobs that a test drives: it feeds rows, moves time, looks at results and state, and restarts.

The test feeds tables without a connector that no INSERT writes, and may feed tables of Parquet files. Jobs read other sources,
and tables that other jobs write, by themselves.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.catalog import AggregateFunction, AnyFunction, Function, ProcessFunction, Table
from sqlstream.compiler.compiler import Compiled, Compiler
from sqlstream.compiler.loading import load_project
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.filesystem.connector import FilesystemConnector
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.interface import SessionSink
from sqlstream.connectors.registry import connector_of, sink_of
from sqlstream.connectors.tables import check_usable
from sqlstream.duck import databases
from sqlstream.errors import BindError, SourceText, UsageError, missing
from sqlstream.functions.kinds import declare_any
from sqlstream.functions.registration import recover
from sqlstream.jobs.changelog import changelog
from sqlstream.jobs.launch import check_only_writer, job_record, job_spec
from sqlstream.jobs.parallelism import newest_entry
from sqlstream.jobs.parallelism import spread as spread_state
from sqlstream.jobs.verification import Verification, verify_job
from sqlstream.local.stepped import SteppedEngine, SteppedRun, takes_files
from sqlstream.options import Options
from sqlstream.physical.plan import SinkPlan
from sqlstream.project import find_project
from sqlstream.queries.query import Sandbox, translate
from sqlstream.runtime.engine import Pace, Receiver
from sqlstream.runtime.worker import JobSpec, release
from sqlstream.sql.nodes import Statement
from sqlstream.sql.statements import parse_script
from sqlstream.storage.caches import forget_all
from sqlstream.testing.fed_tables import FedTables
from sqlstream.testing.project_tables import without_connector
from sqlstream.testing.row_files import write_rows
from sqlstream.testing.sandboxes import StreamSandbox, projects
from sqlstream.units import (
    END_OF_INPUT,
    EPOCH,
    MILLISECOND,
    NO_TIME,
    Duration,
    EventTime,
    ProcessingTime,
    duration,
    duration_of,
    parse_duration,
)
from sqlstream.warehouse.jobs import write_record
from sqlstream.warehouse.paths import Warehouse

# Rows as tuples in the order of the physical columns, or as mappings by name (text is cast to the column's type); or an
# Arrow table.
Rows: TypeAlias = Iterable[Sequence[Any] | Mapping[str, Any]] | pa.Table

Functions: TypeAlias = Iterable[Callable[..., Any] | AnyFunction]

T = TypeVar("T")
# The folder for the rows that a test feeds to tables with a path of their own.
GIVEN = "given"
# The most rounds in which jobs read each other's results for one batch.
ROUNDS = 1000


class Stream:
    """One or several jobs of a script, run batch by batch.

    `functions` are Python functions, or entries of the catalog that `sqlstream.functions.load` returns. `parallelism` is the
    number of tasks and of buckets. Times are microseconds since 1970, or texts that DuckDB reads as timestamps. The processing
    time starts at `now`, by default in 1970, and moves by `advance`, in whole milliseconds. With the folder of a `project`, the
    script sees its catalog and functions: see `Stream.project`.
    """

    def __init__(
        self,
        script: str,
        *,
        functions: Functions = (),
        options: Mapping[str, str] | None = None,
        parallelism: int = 2,
        name: str = "test",
        now: int | str = EPOCH,
        project: str | None = None,
        keep: Iterable[str] = (),
    ):
        self._directory = tempfile.TemporaryDirectory(dir=projects(os.getpid()))
        self._files = 0
        self._parallelism = parallelism
        self.warehouse = f"{self._directory.name}/warehouse"
        test_project = find_project(project, self.warehouse) if project is not None else None
        self._root = test_project.root if test_project is not None else self._directory.name
        configured = test_project.configuration.options if test_project is not None else {}
        self.compiler = Compiler(Options({**configured, **(options or {})}), project=self._root)
        self._sandbox: StreamSandbox | None = None
        self.now = ProcessingTime(_event_time(now) // MILLISECOND * MILLISECOND)
        self._engine = SteppedEngine(lambda: self.now)
        # By the lower-case name of the job: its run, and the rows that it has printed.
        self.runs: dict[str, SteppedRun] = {}
        self._planned: dict[str, PlannedJob] = {}
        self.printed: dict[str, list[tuple[Any, ...]]] = {}
        # Tables that the test has fed.
        self._tables_with_rows: set[str] = set()
        # Tables of a project that keep their connectors; None: all do.
        self._keep = {table.lower() for table in keep} if test_project is not None else None
        self._fed = FedTables(self.compiler, self._feeding, self._replaced)
        if test_project is not None:
            load_project(test_project, self.compiler)
            self._fed.feed_catalog()
        self.compiler.add_functions(
            [f if isinstance(f, Function | AggregateFunction | ProcessFunction) else declare_any(f) for f in functions]
        )
        self.script(script, name)

    @classmethod
    def project(
        cls, folder: str = ".", script: str = "", *, keep: Iterable[str] = (), functions: Functions = (), **others: Any
    ) -> Stream:
        """Return a stream with a script of a project: the script sees the project's `catalog/`, `udfs/` and options.

        Tables lose their connectors, also tables that the script declares: a test feeds what jobs read, and what they write is in
        the warehouse of the stream. Tables that `keep` names, and tables that are only for lookups, stay as they are. `others`
        are further parameters of `Stream`.
        """
        return cls(script, project=folder, keep=keep, functions=functions, **others)

    def _replaced(self, table: Table) -> Table:
        return table if self._keep is None else without_connector(table, self._keep)

    @property
    def fed(self) -> set[str]:
        """The names of the tables that the test feeds, in lower case."""
        return self._tables_with_rows | self._fed.names

    def _feeding(self, table: Table) -> Mapping[str, str]:
        """Return the options of a fed table: Parquet files, which lookups can read, too."""
        path = table.name if table.name.lower() != "warehouse" else f"{GIVEN}/{table.name}"
        within = self._root == self._directory.name
        path = path if within else f"{self._directory.name}/{path}"
        return {"connector": FilesystemConnector.name, "format": "parquet", "path": path}

    def script(self, text: str, name: str = "test") -> None:
        """Compile further statements, and start their jobs; `name` stands for the text in errors."""
        statements = parse_script(SourceText(name, text))
        self._fed.expect(statements)
        for statement in statements:
            planned = self.compile(statement)
            if isinstance(planned, PlannedJob):
                self._start(planned)

    def compile(self, statement: Statement) -> Compiled | None:
        """Compile a statement as a session does, except that a table which no job writes is fed by `batch`."""
        return self._fed.compile(statement)

    def _start(self, planned: PlannedJob) -> None:
        labels = self._engine.layout(self._parallelism).labels
        job = job_spec(planned, self.warehouse, labels, project=self._root)
        warehouse = Warehouse(self.warehouse)
        check_only_writer(warehouse, planned, planned.name)
        write_record(warehouse.fs, warehouse.job(job.name), job_record(planned, job, self._parallelism))
        self._planned[planned.name.lower()] = planned
        self._run(planned.name.lower(), job).start()
        self.pull()

    def _run(self, name: str, job: JobSpec) -> SteppedRun:
        """Return a run that continues a job after its last batch."""
        rows = self.printed[name] = []
        shown = [(i, s) for i, s in enumerate(job.plan.sinks) if isinstance(sink_of(s.table), SessionSink)]
        receivers = {i: self._receiver(sink, rows) for i, sink in shown}
        layout = self._engine.layout(self._parallelism)
        run = self.runs[name] = self._engine.run(job, layout, Pace(finish=False, interval=NO_TIME), receivers)
        return run

    def _receiver(self, sink: SinkPlan, rows: list[tuple[Any, ...]]) -> Receiver:
        """Return the receiver of the rows that a job prints."""
        return PrintedRows(sink, rows)

    def batch(self, table: str, rows: Rows) -> None:
        """Feed rows of one table to all jobs that read it, in one micro-batch, and run the empty batches that become due."""
        self.batches({table: rows})

    def batches(self, rows: Mapping[str, Rows]) -> None:
        """Feed rows of several tables, in one micro-batch. See `Rows` for their form. Raises UsageError and BindError."""
        splits = {name.lower(): self._write(name, table_rows) for name, table_rows in rows.items()}
        self._tables_with_rows |= splits.keys()
        for run in self.runs.values():
            mine = {
                i: [splits[s.table.name.lower()]]
                for i, s in enumerate(run.job.plan.scans)
                if s.table.name.lower() in splits
            }
            if mine:
                run.batch(mine)
        self.pull()

    def pull(self) -> None:
        """Let jobs read what other jobs have written into tables of the warehouse, and move the watermarks of idle sources."""
        self._go_round()
        for run in self.runs.values():
            run.tick_idle()
        self._go_round()

    def _go_round(self) -> None:
        """Let jobs read what other jobs have written, until there is nothing new. Raises UsageError after ROUNDS rounds."""
        for _ in range(ROUNDS):
            # In a list, so that each job reads in each round.
            if not any(list(map(SteppedRun.follow, self.runs.values()))):
                return
        hint = "Let one of them leave out rows that have gone round, such as with a column that counts how often."
        raise UsageError(f"jobs feed each other without an end, {ROUNDS} times for a batch", hint=hint)

    def tick(self, table: str, time: int | str) -> None:
        """Move a table's watermark to an event time, without a row."""
        self.ticks({table: time})

    def ticks(self, times: Mapping[str, int | str]) -> None:
        """Move the watermarks of several tables to event times, in one micro-batch."""
        watermarks = {name.lower(): _event_time(time) for name, time in times.items()}
        for run in self.runs.values():
            scans = {i: s.table.name.lower() for i, s in enumerate(run.job.plan.scans)}
            ticks = {i: watermarks[name] for i, name in scans.items() if name in watermarks}
            if ticks:
                run.batch({}, ticks)
        self.pull()

    def finish(self) -> None:
        """End the input: jobs read bounded sources and files to their end, and every window closes."""
        for run in self._in_order():
            run.pull()
            run.read_files(self.fed)
            self._go_round()
            run.batch({}, dict.fromkeys(range(len(run.job.plan.scans)), END_OF_INPUT))
        self._go_round()
        for run in self.runs.values():
            run.commits.tell_sinks(run.totals.version)
            run.commits.end_sinks()

    def _in_order(self) -> list[SteppedRun]:
        """Return the jobs, each after the jobs whose tables it reads, unless they feed each other."""
        waiting, ordered = list(self.runs.values()), []
        while waiting:
            first = next((run for run in waiting if not any(_feeds(w, run) for w in waiting)), waiting[0])
            waiting.remove(first)
            ordered.append(first)
        return ordered

    def advance(self, time: int | str | timedelta) -> None:
        """Move the processing time by a duration such as "1 h"; an int is a number of milliseconds.

        The ints of `now` and `tick` are microseconds. Windows over processing time that have ended close, early results are
        emitted, and sources become idle. Raises UsageError for a duration that is negative, or not of whole milliseconds.
        """
        self.now = ProcessingTime(self.now + clock_step(time))
        for run in self.runs.values():
            run.fire_timers()
        self.pull()

    def restart(self, parallelism: int | None = None) -> None:
        """Drop all that is not on disk, as a new process would, and continue, with another `parallelism` if it is set."""
        self._parallelism = self._parallelism if parallelism is None else parallelism
        labels = self._engine.layout(self._parallelism).labels
        forget_all()
        for name, run in list(self.runs.items()):
            release(run.job)
            self._run(name, self._spread(run.job, labels))

    def _spread(self, job: JobSpec, labels: tuple[int, ...]) -> JobSpec:
        """Return a job whose state is spread over buckets with these labels."""
        entry = newest_entry(Warehouse(job.warehouse), job.name)
        spread = replace(job, labels=labels)
        if entry is not None and entry.labels != labels:
            spread_state(spread, entry, job.labels)
        return spread

    def rows(self, job: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows that a job (default: the first one) has emitted so far, in no particular order.

        Printed rows of a changing result begin with the kind of change: +I, -U, +U or -D. Raises UsageError if there is no such
        job, or it writes several tables.
        """
        name = (job or next(iter(self.runs))).lower()
        run = self.runs.get(name)
        if run is None:
            raise UsageError(f'job "{name}" does not exist', hint=missing("job", name, self.runs))
        [sink, *others] = [s for s in run.job.plan.sinks if not s.malformed]
        if others:
            raise UsageError(f'job "{name}" writes several tables', hint="Query them by their names.")
        if sink.kind == "table":
            return self.query(f'SELECT * FROM "{sink.table.name}"')
        return list(self.printed[name])

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query over state and tables, as `sqlstream query` has them."""
        return self._query(sql, lambda relation: relation.fetchall())

    def arrow(self, sql: str) -> pa.Table:
        """Return the rows of a query over state and tables as an Arrow table."""
        return self._query(sql, lambda relation: relation.to_arrow_table())

    def _query(self, sql: str, read: Callable[[duckdb.DuckDBPyRelation], T]) -> T:
        relation = self._open_sandbox().query(sql)
        try:
            return read(relation)
        except duckdb.Error as e:
            raise recover(e) or translate(e, sql) from e

    def verify(self, job: str | None = None) -> Verification:
        """Compare what a job (default: the first one) has written with a batch query in DuckDB over all rows that it has read.

        Raises CannotVerify when its query has no batch form.
        """
        name = (job or next(iter(self.runs))).lower()
        return verify_job(self._planned[name], self.runs[name].job)

    def planned(self, job: str) -> PlannedJob:
        """Return a job as the compiler has planned it."""
        return self._planned[job.lower()]

    def _open_sandbox(self) -> Sandbox:
        """Return the sandbox for queries, a new one if the functions have changed."""
        functions = self.compiler.catalog.duck_functions
        if self._sandbox is None or self._sandbox.functions != functions:
            if self._sandbox is not None:
                self._sandbox.close()
            self._sandbox = StreamSandbox(self.warehouse, functions)
        return self._sandbox.sandbox

    def state(self, operator: str, job: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of the view `state.<job>.<operator>`; the default job is the first one."""
        return self.query(f'SELECT * FROM state."{job or next(iter(self.runs))}"."{operator}"')

    def _write(self, name: str, rows: Rows) -> FileSplit:
        table = self.compiler.catalog.relation(name)
        if not isinstance(table, Table):
            hint = self.compiler.catalog.relation_hint(name)
            raise BindError(f'table "{name}" does not exist', hint=hint)
        self._check_fed(table)
        # Names sort in the order of the batches, as names of arriving files do.
        self._files += 1
        is_fed = table.name.lower() in self._fed.names
        folder = os.path.join(
            self._directory.name, table.options["path"] if is_fed else f"{GIVEN}/{table.name.lower()}"
        )
        os.makedirs(folder, exist_ok=True)
        path = f"{folder}/{self._files:06}-{uuid4().hex}.parquet"
        if isinstance(rows, pa.Table):
            pq.write_table(rows, path)
        else:
            write_rows(table, rows, path)
        return FileSplit(path, 1, 0, 1)

    def _check_fed(self, table: Table) -> None:
        """Raise UsageError for a table that cannot be fed."""
        check_usable(table)
        if table.name.lower() in self._fed.names:
            return
        if table.connector is None:
            message = f'table "{table.name}" is written by a job: rows are fed to tables that no job writes'
            raise UsageError(message, hint="Feed the tables that the job reads.")
        form = table.options.get("format", "parquet").lower()
        if not (source_of_files(table) and form == "parquet"):
            what = f'connector "{table.connector}"' + (f', format "{form}"' if source_of_files(table) else "")
            hint = "Declare it without a connector to feed it. finish() reads what sources have themselves."
            raise UsageError(f'table "{table.name}" cannot be fed ({what}): it reads its rows itself', hint=hint)

    def close(self) -> None:
        """Stop the jobs, and delete all files of the stream."""
        self._engine.close()
        if self._sandbox is not None:
            self._sandbox.close()
        self.compiler.close()
        self._directory.cleanup()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PrintedRows:
    """Stores the rows that a job prints, for `Stream.rows`."""

    is_gone = False

    def __init__(self, sink: SinkPlan, rows: list[tuple[Any, ...]]):
        self.sink, self.limit, self.rows = sink, sink.limit, rows

    @property
    def is_full(self) -> bool:
        return self.limit is not None and len(self.rows) >= self.limit

    def receive(self, files: Sequence[str]) -> None:
        """Store the rows of a batch's Parquet files."""
        for file in files:
            with databases.passing() as con:
                rows = con.execute(changelog(self.sink, file)).fetchall()
            if self.limit is not None:
                rows = rows[: self.limit - len(self.rows)]
            self.rows += rows if self.sink.changing else [row[1:] for row in rows]


def source_of_files(table: Table) -> bool:
    """Return whether a table is a source that reads files."""
    return connector_of(table).source(table) is not None and takes_files(table)


def _feeds(one: SteppedRun, other: SteppedRun) -> bool:
    """Return whether a job writes a table of the warehouse that another job reads."""
    written = {s.table.name.lower() for s in one.job.plan.sinks if s.kind == "table"}
    read = {s.table.name.lower() for s in other.job.plan.scans if s.table.connector is None}
    return one is not other and bool(written & read)


def clock_step(time: int | str | timedelta, *, unit: str | None = "ms") -> Duration:
    """Return by how much a clock moves; an int is milliseconds, and so is a text without a unit, unless `unit` is None.

    Raises UsageError for a duration that is negative, or not of whole milliseconds.
    """
    hint = 'Write advance("10 min").'
    try:
        if isinstance(time, int):
            if time < 0:
                raise ValueError(f"{time} ms is negative")
            return Duration(time * MILLISECOND)
        length = parse_duration(time, unit=unit) if isinstance(time, str) else duration_of(time)
    except ValueError as error:
        raise UsageError(str(error), hint=hint) from error
    if length % MILLISECOND:
        raise UsageError(f"the clock moves by whole milliseconds, not by {duration(length)}", hint=hint)
    return length


def _event_time(time: int | str) -> EventTime:
    if isinstance(time, int):
        return EventTime(time)
    with databases.passing() as con:
        [(value,)] = con.execute("SELECT epoch_us(CAST(? AS TIMESTAMP))", [time]).fetchall()
    return EventTime(value)
