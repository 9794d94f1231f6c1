"""A session: SQL text in, running jobs and query results out. The only module that knows every phase."""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TextIO, assert_never

import duckdb
import pyarrow as pa

from sqlstream.catalog import VALUES
from sqlstream.compiler.catalog_answers import Answer, WarehouseQuery
from sqlstream.compiler.compiler import Compiled, Compiler, Explanation, PlannedJob, Question
from sqlstream.compiler.project import Project, find_project, load_project
from sqlstream.errors import DamageError, SourceText, SqlStreamError, UsageError, missing, plainly
from sqlstream.functions.declare import declare
from sqlstream.jobs import ending
from sqlstream.jobs.difference import difference
from sqlstream.jobs.job import Job
from sqlstream.jobs.launch import check_only_writer, job_record, worker_job
from sqlstream.local.values import ImmediateRun
from sqlstream.options import Options
from sqlstream.runtime.feed import check_input
from sqlstream.runtime.worker import Job as WorkerJob
from sqlstream.session.changes import ChangeReceiver, Changes, RowReceiver
from sqlstream.session.explaining import explained
from sqlstream.session.output import Receiver, RowPrinter
from sqlstream.session.state_queries import query
from sqlstream.sql.nodes import head
from sqlstream.state.check import Checkup, check_job, repair_job
from sqlstream.state.recovery import Versions
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.filesystem import make_folder
from sqlstream.warehouse.jobs import JobRecord, read_record, write_record
from sqlstream.warehouse.locks import JobLock, SessionLock
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import DRAINED, FINISHED, read_status


class Session:
    """Tables, functions and jobs of one project in one process. Use it as a context manager; Spark starts with the first job.

    `sql` runs statements, `query` reads state and results, `register` makes a function of Python one of SQL; `jobs` are those
    that were started here, `stop` and `drop` end any job of the warehouse, `wait` and `close` all of this session.

    `conf` holds options as `SET` takes them, `table_options` by table what goes over the options of its CREATE TABLE (an empty
    value takes an option away); `output` is where `print` tables and bare SELECTs
    print. Without `load`, the project's tables and functions stay unknown: enough to stop and drop jobs.
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
        self.options = Options(conf)
        self.compiler = Compiler(self.options, project=self.project.root, table_options=table_options)
        self.compiler.catalog.written = lambda: self.warehouse.tables()
        self.jobs: list[Job] = []
        self.output: TextIO | io.TextIOBase = output or sys.stdout
        self.notice = notice or (lambda text: print(text, file=sys.stderr))
        # Whether the reader of `output` has gone.
        self.is_unread = False
        self._lock: SessionLock | None = None
        self._spark: Any = None
        self._queries = 0
        # The jobs of INSERT .. VALUES: a second one must keep what the first one wrote, --fresh or not.
        self._appended: set[str] = set()
        self._changes: list[Changes] = []
        if load:
            with plainly():
                load_project(self.project, self.compiler)
            for error in self.compiler.catalog.broken:
                self.notice(f"warning: {error.message}; its functions are not known")

    # -- statements

    def sql(
        self, text: str, *, fresh: bool | Collection[str] = False
    ) -> Job | Changes | duckdb.DuckDBPyRelation | None:
        """Run statements; return what the last of them gives: a job, changes, a relation, or nothing.

        INSERT gives a job, which is not waited for (see `Job.wait`). A bare SELECT over input that ends gives a relation of its
        rows, once there are all; over other input an iterator of changes (see `Changes`). SHOW, DESCRIBE and EXPLAIN give
        relations. Where there are several jobs, a bounded one has ended before the next begins; one of nothing but VALUES has
        always ended. `fresh` discards what the jobs, or those that it names, had before.
        """
        with plainly():
            return self._sql(text, fresh)

    def _sql(self, text: str, fresh: bool | Collection[str]) -> Job | Changes | duckdb.DuckDBPyRelation | None:
        result: Job | Changes | duckdb.DuckDBPyRelation | None = None
        compiled = self.compile(SourceText("sql", text))
        anew = fresh_jobs(compiled, fresh)
        for number, one in enumerate(compiled, 1):
            if not isinstance(one, PlannedJob):
                result = self.answer(one)
                continue
            for warning in one.warnings:
                # That of whoever called `sql`: contextlib's is between.
                warnings.warn(warning.render(), stacklevel=3)
            if one.is_query and number == len(compiled):
                return self._select(one)
            result = job = self.start(one, fresh=one.name in anew)
            if one.is_immediate or (one.bounded and number < len(compiled)):
                job.wait()
        return result

    def _select(self, planned: PlannedJob) -> Changes | duckdb.DuckDBPyRelation:
        """Return the result of a bare SELECT: as a relation where its input ends."""
        [sink] = planned.physical.sinks
        if planned.bounded:
            rows = RowReceiver(sink)
            self.start(planned, receiver=rows).wait()
            return rows.relation()
        receiver = ChangeReceiver(sink)
        changes = Changes(receiver.columns, self.start(planned, receiver=receiver), receiver.held)
        self._changes.append(changes)
        return changes

    def answer(self, question: Question) -> duckdb.DuckDBPyRelation:
        """Return what SHOW, DESCRIBE or EXPLAIN asks for, as a relation."""
        match question:
            case WarehouseQuery(sql):
                if self.warehouse.fs.local:
                    # Before the first job there is nothing to show, which is an answer.
                    make_folder(self.warehouse.root)
                return self.query(sql)
            case Explanation(job, stage):
                lines = explained(job, stage).splitlines()
                return answer_relation(Answer(("plan",), tuple((line,) for line in lines)))
            case Answer():
                return answer_relation(question)
            case _:
                assert_never(question)

    def compile(self, source: SourceText) -> list[Compiled]:
        """Parse and bind a script; definitions take effect, jobs and questions are returned and wait for their turn."""
        return self.compiler.scripts([source])

    def register(self, function: Callable[..., Any], **options: Any) -> None:
        """Make a Python function callable in SQL: from a notebook or `__main__`, too. Options are those of `@udf`."""
        self.compiler.add_functions([declare(function, **options)])

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Query state, tables and `sqlstream.*`; needs no running job, and no Spark."""
        with plainly():
            return query(self.project, self.compiler, sql)

    # -- jobs

    def start(self, planned: PlannedJob, *, fresh: bool = False, receiver: Receiver | None = None) -> Job:
        """Start a job, or go on with it; one that has finished is skipped with a notice.

        What a bare SELECT gives goes to the receiver, without one to `output`.

        Raises UsageError when another process runs it, or a job of this name has another plan.
        """
        if planned.is_query:
            self._queries += 1
        name = f"select_{int(time.time() * 1000)}_{self._queries}" if planned.is_query else planned.name
        paths = self.warehouse.job(name)
        lock = JobLock.acquire(self.warehouse.fs, paths, self._session_lock(), in_turn=planned.appends)
        try:
            if fresh and name not in self._appended:
                self._discard(name)
            self._settle(name)
            record = self._record(planned, name)
            if planned.appends:
                self._appended.add(name)
                _check_appended(planned, record)
            if record is None:
                check_only_writer(self.warehouse, planned, name)
            ended = self._ended(planned, record) if record is not None and not planned.appends else None
            if ended is not None:
                lock.release()
                job = Job(name, ended=ended)
            else:
                run = self._run(planned, name, record, receiver)
                job = Job(name, run, lock, (lambda: self._discard(name, lock=True)) if planned.is_query else None)
                run.start()
                if planned.is_immediate:
                    # It has ended; the next INSERT .. VALUES may come before anybody waits for this one.
                    job.release()
        except BaseException:
            lock.release()
            if planned.is_query:
                self._discard(name, lock=True)
            raise
        self.jobs.append(job)
        return job

    def _settle(self, name: str) -> None:
        """Let a job go on that a power cut has damaged. Raises DamageError when it cannot by itself."""
        versions = Versions(self.warehouse, name)
        if versions.newest < 0 and isinstance(record := versions.record(), DamageError) and record.torn:
            # It had hardly begun.
            self._discard(name)
        newest = versions.newest
        if faults := versions.settle():
            first = versions.newest + 1
            batches = f"batch {first} is" if first == newest else f"batches {first} to {newest} are"
            self.notice(f'job "{name}": {batches} repeated, because of damage: {faults[0].message}')

    def _record(self, planned: PlannedJob, name: str) -> JobRecord | None:
        """Return what the warehouse has about a job; what never committed a batch is forgotten if the query is another now."""
        fs, paths = self.warehouse.fs, self.warehouse.job(name)
        record = read_record(fs, paths)
        if record is None or record.plan_fingerprint == planned.fingerprint or last_committed(fs, paths) is not None:
            return record
        status = read_status(fs, paths)
        if status is not None and status.version is not None:
            # It has, and what says so is gone.
            return record
        self._discard(name)
        return None

    def _ended(self, planned: PlannedJob, record: JobRecord) -> str | None:
        """Return how a job has ended for good, None for one that can go on; raise when it cannot go on with this query."""
        if record.plan_fingerprint != planned.fingerprint:
            raise UsageError(
                f'job "{planned.name}" exists with another query',
                head(planned.statement),
                detail=difference(record.plan_text, planned.plan_text),
                hint="Give it another name with SET 'pipeline.name', or start it anew with --fresh.",
            )
        status = read_status(self.warehouse.fs, self.warehouse.job(planned.name))
        if status is None or status.state not in (FINISHED, DRAINED):
            return None
        why = (
            " To read new files in later runs, set 'execution.end-of-input' = 'wait' before it finishes,"
            " or 'source.monitor-interval' on its tables; to run it anew, use --fresh."
        )
        if status.state == DRAINED:
            why = " All its windows were closed, so it cannot go on; to run it anew, use --fresh."
        self.notice(f'job "{planned.name}" is {status.state.lower()} and was skipped.{why}')
        return status.state

    def _run(self, planned: PlannedJob, name: str, record: JobRecord | None, receiver: Receiver | None) -> Any:
        if not planned.is_immediate:
            return self._spark_run(planned, name, record, receiver)
        job = worker_job(planned, self.project.warehouse, (0,), name=name)
        if record is None:
            write_record(self.warehouse.fs, self.warehouse.job(name), job_record(planned, job, 1))
        return ImmediateRun(job, self._emit(self._receivers(job, receiver), lambda: None))

    def _spark_run(self, planned: PlannedJob, name: str, record: JobRecord | None, receiver: Receiver | None) -> Any:
        from sqlstream.spark.labels import spread_labels
        from sqlstream.spark.runner import JobRun, Settings

        if record is None:
            # One that goes on may have read all that it needs.
            check_input(planned.physical.scans, self.project.root)
        spark = self._start_spark(planned).newSession()
        partitions = record.partitions if record else planned.options.parallelism
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        labels: Sequence[int] = record.bucket_labels if record else spread_labels(partitions, partitions)
        job = worker_job(planned, self.project.warehouse, labels, name=name, project=self.project.root)
        made = job_record(planned, job, partitions)
        if record is not None:
            # What a job may go on with changed, such as how long it remembers, its views must know.
            made = replace(made, created_at=record.created_at, versions=record.versions)
        if made != record:
            write_record(self.warehouse.fs, self.warehouse.job(name), made)
        settings = Settings(
            project=self.project.root,
            partitions=partitions,
            finish=planned.options.finish,
            interval=planned.options.milliseconds("execution.checkpointing.interval") / 1000,
            log_file=self.project.log_file,
        )
        receivers = self._receivers(job, receiver)
        run = JobRun(spark, job, settings, self._emit(receivers, lambda: run.request_stop()))
        if isinstance(receiver, ChangeReceiver):
            receiver.held.is_ending = lambda: run.is_stopping
        limited = [one for one in receivers.values() if one.limit is not None]
        if limited:
            run.is_satisfied = lambda: limited[0].is_full
        return run

    def _receivers(self, job: WorkerJob, receiver: Receiver | None) -> dict[int, Receiver]:
        """Return what takes the rows of sinks, by their place in the plan: prints them, unless a receiver is given."""
        if receiver is not None:
            return {0: receiver}
        printers: dict[int, Receiver] = {}
        for number, sink in enumerate(job.plan.sinks):
            if sink.kind == "print":
                title = "" if sink.limit is not None or job.name.startswith("select_") else sink.table.name
                printers[number] = RowPrinter(self.output, sink, title=title)
        return printers

    def _emit(
        self, receivers: Mapping[int, Receiver], unread: Callable[[], None]
    ) -> Callable[[int, Sequence[str]], None]:
        """Return what hands on a batch; `unread` is called when nobody reads it any more, as in `sqlstream run .. | head`."""

        def emit(sink: int, files: Sequence[str]) -> None:
            if sink not in receivers:
                return
            try:
                receivers[sink].receive(files)
            except BrokenPipeError:
                self.is_unread = True
                unread()

        return emit

    def _session_lock(self) -> SessionLock:
        if self._lock is None:
            self._lock = SessionLock.open(self.warehouse)
        return self._lock

    def _start_spark(self, planned: PlannedJob) -> Any:
        if self._spark is None:
            from sqlstream.spark.java import find_java
            from sqlstream.spark.jvm import start_spark

            # What is wrong with the machine or the input is said before anything is started.
            find_java()
            self.notice("starting Spark ...")
            options = planned.options
            conf = options.spark
            master = conf.pop("spark.master", f"local[{options.parallelism},4]")
            make_folder(os.path.dirname(self.project.log_file))
            self._spark = start_spark(
                master=master,
                conf=conf,
                log_file=self.project.log_file,
                pass_fds=(self._session_lock().descriptor,),
            )
        return self._spark

    # -- the warehouse

    def stop(self, name: str, timeout: float | None = None, *, drain: bool = False) -> None:
        """Ask the process that runs a job to end it, and wait until it has, by default for a minute (ten with `drain`).

        It ends after its batch, and goes on when its script runs again. With `drain` it reads no more, closes all windows as at
        the end of its input, and is over for good.
        """
        ending.stop(self.warehouse, name, drain=drain, timeout=timeout)

    def check(self, name: str | None = None) -> list[Checkup]:
        """Look whether the files of a job, or of all, are as they were written."""
        names = self.warehouse.jobs() if name is None else [ending.existing(self.warehouse, name).name]
        return [check_job(self.warehouse, job) for job in names]

    def repair(self, name: str) -> list[str]:
        """Take a job back to its newest whole version; return sentences on what was done. Raises when a process runs it."""
        paths = ending.existing(self.warehouse, name)
        lock = JobLock.acquire(self.warehouse.fs, paths, self._session_lock())
        try:
            return repair_job(self.warehouse, paths.name)
        finally:
            lock.release()

    def drop(self, name: str) -> None:
        """Delete a job: its state, its checkpoint, and the rows that it wrote."""
        ending.drop(self.warehouse, self._session_lock(), name, self.project.root)

    def _discard(self, name: str, *, lock: bool = False) -> None:
        ending.discard(self.warehouse, name, self.project.root, lock=lock)

    # -- the end

    def wait(self, jobs: Iterable[Job] | None = None) -> None:
        """Wait for jobs (all by default); raise the first error."""
        for job in jobs if jobs is not None else self.jobs:
            job.wait()

    def close(self) -> None:
        """Stop what still runs, after its batch, and Spark."""
        for changes in self._changes:
            changes.close()
        for job in self.jobs:
            job.stop()
        for job in self.jobs:
            try:
                job.wait()
            except SqlStreamError:
                # Whoever waited for the job was told.
                continue
        if self._spark is not None:
            from sqlstream.spark.jvm import stop_spark

            stop_spark(self._spark)
            self._spark = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self.compiler.close()

    def __dir__(self) -> list[str]:
        return ["close", "drop", "jobs", "query", "register", "sql", "stop", "wait"]

    def __repr__(self) -> str:
        return f"Session({self.project.root!r}, warehouse={self.warehouse.root!r})"

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def fresh_jobs(compiled: Iterable[Compiled], fresh: bool | Collection[str]) -> set[str]:
    """Return the names of the jobs that are to begin anew: all or none of them, or those named. Raises UsageError."""
    names = {job.name.lower(): job.name for job in compiled if isinstance(job, PlannedJob) and not job.is_query}
    if isinstance(fresh, bool):
        return set(names.values()) if fresh else set()
    for name in fresh:
        if name.lower() not in names:
            hint = missing("job", name, names.values()) if names else None
            raise UsageError(f'there is no job "{name}" in the SQL to begin anew', hint=hint)
    return {names[name.lower()] for name in fresh}


def _check_appended(planned: PlannedJob, record: JobRecord | None) -> None:
    """Raise when the job of INSERT .. VALUES is another one, or wrote a table of the same name with other columns."""
    [sink] = planned.physical.sinks
    if record is None:
        return
    [written] = record.sinks
    if written.columns == sink.columns and all(s.table == VALUES for s in record.scans):
        return
    raise UsageError(
        f'job "{planned.name}" exists, and writes other columns',
        head(planned.statement),
        detail=f"It writes {', '.join(f'{name} {type}' for name, type in written.columns)}.",
        hint=f'Delete it and the rows that it wrote: sqlstream drop "{planned.name}".',
    )


def answer_relation(answer: Answer) -> duckdb.DuckDBPyRelation:
    """Return an answer as a relation of text columns."""
    columns = list(zip(*answer.rows, strict=True)) or [()] * len(answer.columns)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return duckdb.connect().from_arrow(pa.table(arrays, names=list(answer.columns)))
