"""A session: SQL text in, running jobs and query results out. This is the only module that uses every phase."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType, TracebackType
from typing import TextIO

import duckdb

from sqlstream.compiler.compiler import Compiled, Compiler, Question
from sqlstream.compiler.loading import load_project
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.duck.sql import quote_text
from sqlstream.errors import SourceText, UsageError, plainly
from sqlstream.functions.kinds import declare_any
from sqlstream.jobs import ending
from sqlstream.jobs.file_checks import Checkup, check_job
from sqlstream.jobs.job import Job
from sqlstream.jobs.launch import check_fresh, fresh_jobs
from sqlstream.jobs.savepoints.restore_plans import Restore, plan_restore
from sqlstream.jobs.session_jobs import SessionJobs
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.jobs.verification import Verification
from sqlstream.options import Options
from sqlstream.project import Project, find_project
from sqlstream.queries.versions import Version
from sqlstream.session.answers import answered
from sqlstream.session.changes import ChangeReceiver, Changes, RowPrinter, RowReceiver, printers
from sqlstream.session.porting import PortedScript, port
from sqlstream.session.state_queries import query
from sqlstream.session.state_tools import Key, diff_sql, folders_in, run_own_sql, why_sql
from sqlstream.session.upgrades import upgrade_with
from sqlstream.session.verifying import existing_record, verify, verify_planned
from sqlstream.warehouse.paths import Warehouse


class Session:
    """The tables, functions and jobs of one project in one process, as a context manager. Spark starts with the first job.

    `sql` runs statements, `query` reads state and results, `register` makes a Python function callable in SQL. `jobs` are the
    jobs that this session has started; `wait` waits for them, `close` stops them. `stop` and `drop` work on any job of the
    warehouse.

    `conf` has options as `SET` takes them. `table_options` override the options of CREATE TABLE, by table; "" removes an option.
    `print` tables and bare SELECTs print to `output`, `notice` receives messages for people. Without `load`, the project's
    tables and functions are not loaded, which is enough to stop and drop jobs.
    """

    def __init__(
        self,
        project: str | None = None,
        warehouse: str | None = None,
        conf: Mapping[str, str] | None = None,
        *,
        table_options: Mapping[str, Mapping[str, str]] | None = None,
        output: TextIO | None = None,
        notice: Callable[[str], None] | None = None,
        load: bool = True,
    ):
        self.project: Project = find_project(project, warehouse)
        self.warehouse = Warehouse(self.project.warehouse)
        configured = self.project.configuration
        files = {name: origin for name, origin in configured.option_origins.items() if name not in (conf or {})}
        self.options = Options({**configured.options, **(conf or {})}, files)
        self.compiler = Compiler(self.options, project=self.project.root, table_options=table_options)
        self.compiler.catalog.written_tables = lambda: self.warehouse.tables()
        self.compiler.warn = lambda warning: self.notice(warning.render())
        self.compiler.jobs_of = lambda table: ending.running_with(self.warehouse, table)
        self.output: TextIO | io.TextIOBase = output or sys.stdout
        self.notice = notice or (lambda text: print(text, file=sys.stderr))
        self._jobs = SessionJobs(self.project, self.warehouse, lambda text: self.notice(text))
        self._printers: list[RowPrinter] = []
        self._changes: list[Changes] = []
        if load:
            with plainly():
                load_project(self.project, self.compiler)
            faults = self.compiler.catalog.faults
            for error in (e for e in self.compiler.catalog.broken if all(e is not fault.error for fault in faults)):
                what = "its functions are" if "cannot be imported" in error.message else "it is"
                self.notice(f"warning: {error.message}; {what} not known")
            for fault in faults:
                self.notice(f"warning: {fault}")

    # -- statements

    def sql(
        self,
        text: str,
        *,
        fresh: bool | Collection[str] = False,
        savepoint: str | None = None,
        as_job: str | None = None,
        upgrade: bool = False,
        migrate: str | None = None,
    ) -> Job | Changes | duckdb.DuckDBPyRelation | None:
        """Run statements; return the result of the last one: a job, changes, a relation, or None.

        INSERT returns a job, and does not wait for it (see `Job.wait`). A bare SELECT over bounded input returns a relation of
        its rows, at its end; over unbounded input it returns an iterator of changes (see `Changes`). SHOW, DESCRIBE and EXPLAIN
        return relations. A bounded job ends before the next statement runs, a job of INSERT .. VALUES before `sql` returns.

        With `fresh`, all jobs, or the jobs that it names, start from scratch. `savepoint` is the name or the folder of a
        savepoint: its job continues from there. With `as_job`, the only job of the text continues from there instead, as a fork
        of that name. With `upgrade`, jobs whose queries have changed continue with the state that the new queries can use.
        `migrate` is a text of MIGRATE STATE statements, which compute state of operators, also for unchanged queries.
        Raises UsageError for `fresh` beside these, before anything is changed.
        """
        with plainly():
            check_fresh(fresh, restores=savepoint is not None, upgrades=upgrade or migrate is not None)
            compiled = self.compile(SourceText("sql", text))
            compiled, restored = plan_restore(
                compiled, self.warehouse, savepoint, as_job, self.compiler.table_options.starting
            )
            request = Upgrade() if upgrade else None
            if migrate is not None:
                source = SourceText("migrate", migrate)
                request = upgrade_with(self.project, self.compiler, compiled, source, restored.values())
            return self.run(compiled, fresh, restored, request)

    def run(
        self,
        compiled: Sequence[Compiled],
        fresh: bool | Collection[str] = False,
        restored: Mapping[str, Restore] = MappingProxyType({}),
        upgrade: Upgrade | None = None,
    ) -> Job | Changes | duckdb.DuckDBPyRelation | None:
        """Run compiled statements, as `sql` does; return the result of the last one."""
        check_fresh(fresh, restores=bool(restored), upgrades=upgrade is not None)
        result: Job | Changes | duckdb.DuckDBPyRelation | None = None
        anew = fresh_jobs(compiled, fresh)
        for number, one in enumerate(compiled, 1):
            if not isinstance(one, PlannedJob):
                result = self.answer(one)
                continue
            for warning in one.warnings:
                # The warning is for the caller of `sql`; a frame of contextlib is in between.
                warnings.warn(f"{one.name}: {warning.render()}", stacklevel=3)
            if one.is_query and number == len(compiled):
                return self._select(one)
            restore = restored.get(one.name)
            result = job = self.start(one, fresh=one.name in anew, restore=restore, upgrade=upgrade)
            if one.is_immediate or (one.bounded and number < len(compiled)):
                job.wait()
        return result

    def _select(self, planned: PlannedJob) -> Changes | duckdb.DuckDBPyRelation:
        """Return the result of a bare SELECT: a relation if its input is bounded, else changes."""
        [sink] = planned.physical.sinks
        if planned.bounded:
            rows = RowReceiver(sink)
            self.start(planned, receiver=rows).wait()
            return rows.relation()
        return self.changes(planned)

    def changes(self, planned: PlannedJob, *, as_text: bool = False) -> Changes:
        """Start the job of a bare SELECT, and return its changes; with `as_text` values are texts as DuckDB casts them."""
        [sink] = planned.physical.sinks
        receiver = ChangeReceiver(sink, as_text=as_text)
        changes = Changes(receiver.columns, self.start(planned, receiver=receiver), receiver.held)
        self._changes.append(changes)
        return changes

    def answer(self, question: Question) -> duckdb.DuckDBPyRelation:
        """Run a statement such as SHOW, DESCRIBE, EXPLAIN or CREATE SAVEPOINT, and return its answer as a relation."""
        return answered(question, self.warehouse, self.query)

    def compile(self, source: SourceText) -> list[Compiled]:
        """Parse and bind a script. Definitions take effect; jobs and other statements are returned, and do not run yet."""
        return self.compiler.scripts([source])

    def port(self, source: SourceText) -> PortedScript:
        """Return which statements of a Flink script run here, and what to write instead of the others. Nothing starts."""
        return port(source, self.compiler)

    def register(
        self,
        function: Callable[..., object],
        *,
        name: str | None = None,
        returns: str | type | None = None,
        parameters: Mapping[str, str] | None = None,
        deterministic: bool | None = None,
        vectorized: bool | None = None,
    ) -> None:
        """Make a Python function callable in SQL, also one of a notebook or `__main__`. The options are its decorator's."""
        declared = declare_any(
            function,
            name=name,
            returns=returns,
            parameters=parameters,
            deterministic=deterministic,
            vectorized=vectorized,
        )
        self.compiler.add_functions([declared])

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return the result of a query over state, tables and `sqlstream.*`; it needs no running job, and no Spark."""
        with plainly():
            return query(self.project, self.compiler, sql)

    def diff(self, state: str, older: Version, newer: Version) -> duckdb.DuckDBPyRelation:
        """Return the rows of a state, `job.operator`, that differ between two versions: numbers, times in UTC, or savepoints.

        The columns are `change` (added, removed or changed), `reason`, and the row `before` and `after`. Raises QueryError.
        """
        with plainly():
            folders = folders_in(older, newer)
            return run_own_sql(
                lambda sql: query(self.project, self.compiler, sql, folders), diff_sql(state, older, newer)
            )

    def why(self, state: str, key: Key = (), *, at: Version | None = None) -> duckdb.DuckDBPyRelation:
        """Return what a state, `job.operator`, has for a key, and when that will change.

        `key` maps key columns to values, or has values in the order of the columns, or is the value of the only column. `at` is
        an older version, or a savepoint.

        Each row has its `part` of the answer, the `name` of a view, window or source, a `text` or the `content` of a row of
        state, and the `time` that the row is about. Raises QueryError.
        """
        with plainly():
            folders = folders_in(*(() if at is None else (at,)))
            return run_own_sql(lambda sql: query(self.project, self.compiler, sql, folders), why_sql(state, key, at))

    def ttl(self, state: str, *ttls: str) -> duckdb.DuckDBPyRelation:
        """Return how many keys, rows and bytes of the state `job` or `job.operator` would remain with TTLs such as "1 h"."""
        return self.query(f"FROM sqlstream.ttl({', '.join(map(quote_text, (state, *ttls)))})")

    # -- jobs

    @property
    def jobs(self) -> list[Job]:
        """The jobs that this session has started."""
        return self._jobs.started

    def start(
        self,
        planned: PlannedJob,
        *,
        fresh: bool = False,
        receiver: ChangeReceiver | RowReceiver | None = None,
        restore: Restore | None = None,
        upgrade: Upgrade | None = None,
    ) -> Job:
        """Start a job, or continue it; a job that has finished is skipped with a notice.

        `fresh`, `restore` and `upgrade` are as in `Starter.start`. A `receiver` gets the rows of a bare SELECT, which are
        printed to `output` without it. Raises UsageError when another process runs the job, or a job of this name has another
        plan, for a receiver beside `restore` or `upgrade`, and for `fresh` beside these.
        """
        if receiver is not None:
            if restore is not None or upgrade is not None:
                way = "restored from a savepoint" if restore is not None else "upgraded"
                hint = "Leave them out: only the job of an INSERT has state from an earlier run."
                raise UsageError(f"the job of a bare SELECT cannot be {way}: it begins anew each time", hint=hint)
            return self._jobs.start(planned, {0: receiver}, fresh=fresh)
        printing = printers(planned.physical.sinks, self.output, titled=not planned.is_query)
        self._printers += printing.values()
        job = self._jobs.start(planned, printing, fresh=fresh, restore=restore, upgrade=upgrade)
        if not planned.is_query:
            job.verifier = partial(self._verify, planned)
        return job

    def _verify(self, planned: PlannedJob, at: Version | None) -> Verification:
        record = existing_record(self.warehouse, planned.name)
        return verify_planned(self.project, self.compiler, planned, record, at)

    def verify(self, job: str, *, at: Version | None = None, compiled: Iterable[Compiled] = ()) -> Verification:
        """Compare the rows that a job of the warehouse wrote with a batch query over all rows that it read; see `Job.verify`.

        Its plan comes from `compiled` scripts if there are any, else from its recorded script or the project's catalog.
        """
        with plainly():
            return verify(self.project, self.compiler, job, at, compiled)

    @property
    def is_unread(self) -> bool:
        """Whether the reader of `output` has closed it."""
        return any(printer.is_gone for printer in self._printers)

    # -- the warehouse

    def stop(self, name: str, timeout: float | None = None, *, drain: bool = False) -> None:
        """Stop a job that any process runs, and wait for its end, by default a minute (with `drain` ten).

        The job stops after its running batch, and continues when its script runs again. With `drain` it reads no more and closes
        all windows, as at the end of its input, and cannot continue. Raises UsageError when no process runs it, and JobError when
        it does not end in time.
        """
        ending.stop(self.warehouse, name, drain=drain, timeout=timeout)

    def check(self, name: str | None = None) -> list[Checkup]:
        """Check whether the files of a job, or of all jobs, are as they were written; return the result for each job."""
        names = self.warehouse.jobs() if name is None else [ending.existing(self.warehouse, name).name]
        return [check_job(self.warehouse, job) for job in names]

    def repair(self, name: str) -> list[str]:
        """Take a job back to its newest intact version; return sentences about what was done. See `SessionJobs.repair`."""
        return self._jobs.repair(name)

    def drop(self, name: str) -> None:
        """Delete a job: its state, its checkpoint, and the rows that it wrote. Raises UsageError when a process runs it."""
        self._jobs.drop(name)

    # -- the end

    def wait(self, jobs: Iterable[Job] | None = None) -> None:
        """Wait for jobs (all by default); raise the first error."""
        self._jobs.wait(jobs)

    def close(self) -> None:
        """Stop the running jobs after their batches, and Spark."""
        for changes in self._changes:
            changes.close()
        self._jobs.close()
        self.compiler.close()

    def __dir__(self) -> list[str]:
        return ["close", "diff", "drop", "jobs", "query", "register", "sql", "stop", "ttl", "verify", "wait", "why"]

    def __repr__(self) -> str:
        return f"Session({self.project.root!r}, warehouse={self.warehouse.root!r})"

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
