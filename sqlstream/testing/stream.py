"""Jobs that a test drives: it feeds rows, moves time, looks at results and state, restarts.

Tables without a connector that no INSERT writes are fed, as are those with files; other sources, and tables that jobs write,
feed themselves.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.catalog import AggregateFunction, AnyFunction, Function, ProcessFunction, Table
from sqlstream.compiler.compiler import Compiled, Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.filesystem.connector import FilesystemConnector
from sqlstream.connectors.filesystem.splits import FileSplit
from sqlstream.connectors.interface import SessionSink
from sqlstream.connectors.registry import sink_of
from sqlstream.duck import databases
from sqlstream.errors import BindError, SourceText, UsageError, missing
from sqlstream.functions.kinds import declare_any
from sqlstream.functions.registration import recover
from sqlstream.jobs.launch import check_only_writer, job_record, job_spec
from sqlstream.jobs.parallelism import newest_entry
from sqlstream.jobs.parallelism import spread as spread_state
from sqlstream.jobs.verification import Verification, verify_job
from sqlstream.local.fed_tables import FedTables
from sqlstream.local.given_rows import write_rows
from sqlstream.local.stepped import SteppedEngine, SteppedRun
from sqlstream.options import Options
from sqlstream.physical.plan import SinkPlan
from sqlstream.queries.query import Sandbox, translate
from sqlstream.runtime.changelog import changelog
from sqlstream.runtime.engine import Pace, Receiver
from sqlstream.runtime.worker import JobSpec, release
from sqlstream.sql.nodes import Statement
from sqlstream.sql.statements import parse_script
from sqlstream.storage.key_index import forget_indexes
from sqlstream.storage.segments import forget_known
from sqlstream.testing.sandboxes import StreamSandbox, projects
from sqlstream.units import END_OF_INPUT, EPOCH, MILLISECOND, NO_TIME, EventTime, ProcessingTime
from sqlstream.warehouse.jobs import write_record
from sqlstream.warehouse.paths import Warehouse

# Rows as tuples in the order of the physical columns, or as mappings by name (text is cast to the column's type); or an
# Arrow table.
Rows: TypeAlias = Iterable[Sequence[Any] | Mapping[str, Any]] | pa.Table

T = TypeVar("T")


class Stream:
    """One or several jobs of a script, run batch by batch.

    `functions` are Python functions, or what `sqlstream.functions.load` returns. `parallelism` is the number of tasks and of
    buckets. Times are microseconds since 1970, or text that DuckDB reads as a timestamp; the processing time starts at 0 ms
    and moves by `advance`, which takes milliseconds.
    """

    def __init__(
        self,
        script: str,
        *,
        functions: Iterable[Callable[..., Any] | AnyFunction] = (),
        options: Mapping[str, str] | None = None,
        parallelism: int = 2,
        name: str = "test",
    ):
        self._directory = tempfile.TemporaryDirectory(dir=projects(os.getpid()))
        self._files = 0
        self._parallelism = parallelism
        self.warehouse = f"{self._directory.name}/warehouse"
        self.compiler = Compiler(Options(options), project=self._directory.name)
        self.compiler.add_functions(
            [f if isinstance(f, Function | AggregateFunction | ProcessFunction) else declare_any(f) for f in functions]
        )
        self._sandbox: StreamSandbox | None = None
        self.now = EPOCH
        self._engine = SteppedEngine(lambda: self.now)
        # By the name of the job: what runs it, and what it has printed.
        self.runs: dict[str, SteppedRun] = {}
        self._planned: dict[str, PlannedJob] = {}
        self.printed: dict[str, list[tuple[Any, ...]]] = {}
        self._fed = FedTables(
            self.compiler,
            lambda table: {"connector": FilesystemConnector.name, "format": "parquet", "path": table.name},
        )
        self.script(script, name)

    def script(self, text: str, name: str = "test") -> None:
        """Run further statements."""
        for statement in parse_script(SourceText(name, text)):
            planned = self.compile(statement)
            if isinstance(planned, PlannedJob):
                self._start(planned)

    def compile(self, statement: Statement) -> Compiled | None:
        """Compile a statement as a session does, except that a table which nobody writes is fed by `batch`."""
        return self._fed.compile(statement)

    def _start(self, planned: PlannedJob) -> None:
        labels = self._engine.layout(self._parallelism).labels
        job = job_spec(planned, self.warehouse, labels, project=self._directory.name)
        warehouse = Warehouse(self.warehouse)
        check_only_writer(warehouse, planned, planned.name)
        write_record(warehouse.fs, warehouse.job(job.name), job_record(planned, job, self._parallelism))
        self._planned[planned.name.lower()] = planned
        self._run(planned.name.lower(), job).start()
        self.pull()

    def _run(self, name: str, job: JobSpec) -> SteppedRun:
        """Let the engine go on with a job, from its last batch."""
        rows = self.printed[name] = []
        shown = [(i, s) for i, s in enumerate(job.plan.sinks) if isinstance(sink_of(s.table), SessionSink)]
        receivers = {i: self._receiver(sink, rows) for i, sink in shown}
        layout = self._engine.layout(self._parallelism)
        run = self.runs[name] = self._engine.run(job, layout, Pace(finish=False, interval=NO_TIME), receivers)
        return run

    def _receiver(self, sink: SinkPlan, rows: list[tuple[Any, ...]]) -> Receiver:
        """Return what takes the rows that a job prints."""
        return PrintedRows(sink, rows)

    def batch(self, table: str, rows: Rows) -> None:
        """Give rows of one table to every job that reads it, in one micro-batch, and run the empty ones that become due."""
        self.batches({table: rows})

    def batches(self, rows: Mapping[str, Rows]) -> None:
        """Give rows of several tables in one micro-batch."""
        splits = {name.lower(): self._write(name, given) for name, given in rows.items()}
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
        """Give the jobs that read tables of the warehouse what other jobs have written there, and let idle sources follow."""
        for run in self.runs.values():
            run.follow()
            run.tick_idle()

    def tick(self, table: str, time: int | str) -> None:
        """Move a table's watermark to a time without a row."""
        self.ticks({table: time})

    def ticks(self, times: Mapping[str, int | str]) -> None:
        """Move the watermarks of several tables in one micro-batch."""
        marks = {name.lower(): _event_time(time) for name, time in times.items()}
        for run in self.runs.values():
            scans = {i: s.table.name.lower() for i, s in enumerate(run.job.plan.scans)}
            ticks = {i: marks[name] for i, name in scans.items() if name in marks}
            if ticks:
                run.batch({}, ticks)
        self.pull()

    def finish(self) -> None:
        """End the input: bounded sources that feed themselves are read to their end, and every window closes."""
        for run in self.runs.values():
            run.follow()
            run.pull()
            run.batch({}, dict.fromkeys(range(len(run.job.plan.scans)), END_OF_INPUT))

    def advance(self, milliseconds: int) -> None:
        """Move the processing time: windows over it close when their end has come, early results come, and sources fall idle."""
        self.now = ProcessingTime(self.now + milliseconds * MILLISECOND)
        for run in self.runs.values():
            run.fire_timers()
        self.pull()

    def restart(self, parallelism: int | None = None) -> None:
        """Forget everything that is not on disk, as a new process would; go on with another parallelism if one is given."""
        self._parallelism = self._parallelism if parallelism is None else parallelism
        labels = self._engine.layout(self._parallelism).labels
        forget_known()
        forget_indexes()
        for name, run in list(self.runs.items()):
            release(run.job)
            self._run(name, self._spread(run.job, labels))

    def _spread(self, job: JobSpec, labels: tuple[int, ...]) -> JobSpec:
        """Return a job that goes on, with its state in buckets with these labels."""
        entry = newest_entry(Warehouse(job.warehouse), job.name)
        spread = replace(job, labels=labels)
        if entry is not None and entry.labels != labels:
            spread_state(spread, entry, job.labels)
        return spread

    def rows(self, job: str | None = None) -> list[tuple[Any, ...]]:
        """Return what a job (or the only one) has emitted so far, in no particular order.

        What a job prints whose result changes begins with what each change does: +I, -U, +U or -D.
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
        """Query state and tables, as `sqlstream query` does."""
        return self._query(sql, lambda relation: relation.fetchall())

    def arrow(self, sql: str) -> pa.Table:
        """Query state and tables; return the rows as an Arrow table."""
        return self._query(sql, lambda relation: relation.to_arrow_table())

    def _query(self, sql: str, read: Callable[[duckdb.DuckDBPyRelation], T]) -> T:
        relation = self._open_sandbox().query(sql)
        try:
            return read(relation)
        except duckdb.Error as e:
            raise recover(e) or translate(e, sql) from e

    def verify(self, job: str | None = None) -> Verification:
        """Compare what a job (or the only one) has written with a batch in DuckDB over all rows that it has read.

        Raises CannotVerify where its query has no batch form.
        """
        name = (job or next(iter(self.runs))).lower()
        return verify_job(self._planned[name], self.runs[name].job)

    def planned(self, job: str) -> PlannedJob:
        """Return the plan of a job, at every stage."""
        return self._planned[job.lower()]

    def _open_sandbox(self) -> Sandbox:
        """Return the sandbox of all queries, a new one when there are other functions."""
        functions = self.compiler.catalog.duck_functions
        if self._sandbox is None or self._sandbox.functions != functions:
            if self._sandbox is not None:
                self._sandbox.close()
            self._sandbox = StreamSandbox(self.warehouse, functions)
        return self._sandbox.sandbox

    def state(self, operator: str, job: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of an operator's view."""
        return self.query(f'SELECT * FROM state."{job or next(iter(self.runs))}"."{operator}"')

    def _write(self, name: str, rows: Rows) -> FileSplit:
        table = self.compiler.catalog.relation(name)
        if not isinstance(table, Table):
            hint = self.compiler.catalog.relation_hint(name)
            raise BindError(f'table "{name}" does not exist', hint=hint)
        # Names are in the order of the batches, as those of files that arrive.
        self._files += 1
        path = f"{self._directory.name}/{self._files:06}-{uuid4().hex}.parquet"
        if isinstance(rows, pa.Table):
            pq.write_table(rows, path)
        else:
            write_rows(table, rows, path)
        return FileSplit(path, 1, 0, 1)

    def close(self) -> None:
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
    """Keeps what a job prints, as `Stream.rows` returns it."""

    is_gone = False

    def __init__(self, sink: SinkPlan, rows: list[tuple[Any, ...]]):
        self.sink, self.limit, self.rows = sink, sink.limit, rows

    @property
    def is_full(self) -> bool:
        return self.limit is not None and len(self.rows) >= self.limit

    def receive(self, files: Sequence[str]) -> None:
        """Take the rows of the Parquet files of one batch."""
        for file in files:
            with databases.passing() as con:
                found = con.execute(changelog(self.sink, file)).fetchall()
            if self.limit is not None:
                found = found[: self.limit - len(self.rows)]
            self.rows += found if self.sink.changing else [row[1:] for row in found]


def _event_time(time: int | str) -> EventTime:
    if isinstance(time, int):
        return EventTime(time)
    with databases.passing() as con:
        [(value,)] = con.execute("SELECT epoch_us(CAST(? AS TIMESTAMP))", [time]).fetchall()
    return EventTime(value)
