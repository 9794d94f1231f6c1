"""A session: SQL text in, running jobs and query results out. The only module that knows every phase."""

from __future__ import annotations

import difflib
import io
import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, assert_never

import duckdb
import pyarrow as pa

from sqlstream.answering import Answer, WarehouseQuery
from sqlstream.catalog import VALUES
from sqlstream.compiler import Compiled, Compiler, Explanation, PlannedJob, Question
from sqlstream.connectors.file_sink import discard
from sqlstream.errors import JobError, Source, SqlStreamError, UsageError, missing
from sqlstream.explaining import explained
from sqlstream.functions.declare import declare
from sqlstream.launch import check_only_writer, hash_probe, job_record, worker_job
from sqlstream.options import Options
from sqlstream.output import RowPrinter
from sqlstream.project import Project, find_project, load_project
from sqlstream.queries import query
from sqlstream.runtime.commits import Totals
from sqlstream.runtime.feed import check_input
from sqlstream.runtime.immediate import ImmediateRun
from sqlstream.runtime.worker import Job as WorkerJob
from sqlstream.storage.filesystem import Warehouse
from sqlstream.storage.jobs import JobRecord, effective_status, read_record, read_status, write_record
from sqlstream.storage.locks import JobLock, SessionLock


class Job:
    """A job that was started, or skipped because it had finished before."""

    def __init__(
        self, name: str, run: Any = None, lock: JobLock | None = None, on_end: Callable[[], None] | None = None
    ):
        self.name = name
        self._run = run
        self._lock = lock
        self._on_end = on_end

    def __repr__(self) -> str:
        return f"Job({self.name!r}, {self.status})"

    @property
    def status(self) -> str:
        """RUNNING, FINISHED, STOPPED or FAILED."""
        return "FINISHED" if self._run is None else str(self._run.state)

    @property
    def progress(self) -> Totals:
        """What the job has done up to its last batch: rows in and out, watermark (microseconds), state per operator."""
        return Totals() if self._run is None else self._run.totals

    @property
    def is_waiting(self) -> bool:
        """Whether the job has read all there is, and waits for more."""
        return self._run is not None and bool(self._run.is_waiting)

    @property
    def error(self) -> SqlStreamError | None:
        return None if self._run is None else self._run.error

    @property
    def cause(self) -> BaseException | None:
        """What Spark or Python raised, for debugging."""
        return None if self._run is None else self._run.cause

    def warnings(self) -> list[str]:
        """Return what the job has to say since the last call: files that were rewritten after they had been read."""
        return [] if self._run is None else list(self._run.take_warnings())

    def stop(self) -> None:
        """Ask the job to stop after the batch that is running; `wait` tells when it has."""
        if self._run is not None:
            self._run.request_stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end (or so many seconds) and return whether it came; raise the error that ended it, if one did."""
        if self._run is None:
            return True
        self._run.join(timeout)
        if self._run.is_alive():
            return False
        self.release()
        if self._run.error is not None:
            raise self._run.error
        return True

    def release(self) -> None:
        """Give back what the job holds; it has ended."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
            if self._on_end:
                self._on_end()


class Session:
    """Tables, functions and jobs of one project in one process. Use it as a context manager; Spark starts with the first job.

    `conf` holds options as `SET` takes them; `output` is where `print` tables and bare SELECTs
    print. Without `load`, the project's tables and functions stay unknown: enough to stop and drop jobs.
    """

    def __init__(
        self,
        project: str | None = None,
        warehouse: str | None = None,
        conf: Mapping[str, str] | None = None,
        *,
        output: TextIO | None = None,
        notice: Callable[[str], None] | None = None,
        load: bool = True,
    ):
        self.project: Project = find_project(project, warehouse)
        self.warehouse = Warehouse(self.project.warehouse)
        self.options = Options(conf)
        self.compiler = Compiler(self.options, project=self.project.root)
        self.compiler.catalog.written = lambda: self.warehouse.tables()
        self.jobs: list[Job] = []
        self.output: TextIO | io.TextIOBase = output or sys.stdout
        self.notice = notice or (lambda text: print(text, file=sys.stderr))
        self._lock: SessionLock | None = None
        self._spark: Any = None
        self._queries = 0
        # The jobs of INSERT .. VALUES: a second one must keep what the first one wrote, --fresh or not.
        self._appended: set[str] = set()
        if load:
            load_project(self.project, self.compiler)

    # -- statements

    def sql(self, text: str, *, fresh: bool = False) -> Job | duckdb.DuckDBPyRelation | None:
        """Run statements; return what the last of them gives: a job, not waited for (see `Job.wait`), or a relation.

        Jobs come from INSERT and SELECT, relations from SHOW, DESCRIBE and EXPLAIN. Where there are several jobs, a
        bounded one has ended before the next begins; one of nothing but VALUES has always ended.
        """
        result: Job | duckdb.DuckDBPyRelation | None = None
        compiled = self.compile(Source("sql", text))
        for number, one in enumerate(compiled, 1):
            if not isinstance(one, PlannedJob):
                result = self.answer(one)
                continue
            for warning in one.warnings:
                warnings.warn(warning.render(), stacklevel=2)
            result = job = self.start(one, fresh=fresh)
            if one.is_immediate or (one.bounded and number < len(compiled)):
                job.wait()
        return result

    def answer(self, question: Question) -> duckdb.DuckDBPyRelation:
        """Return what SHOW, DESCRIBE or EXPLAIN asks for, as a relation."""
        match question:
            case WarehouseQuery(sql):
                if self.warehouse.fs.local:
                    # Before the first job there is nothing to show, which is an answer.
                    os.makedirs(self.warehouse.root, exist_ok=True)
                return self.query(sql)
            case Explanation(job, stage):
                lines = explained(job, stage).splitlines()
                return answer_relation(Answer(("plan",), tuple((line,) for line in lines)))
            case Answer():
                return answer_relation(question)
            case _:
                assert_never(question)

    def compile(self, source: Source) -> list[Compiled]:
        """Parse and bind a script; definitions take effect, jobs and questions are returned and wait for their turn."""
        return self.compiler.scripts([source])

    def register(self, function: Callable[..., Any], **options: Any) -> None:
        """Make a Python function callable in SQL: from a notebook or `__main__`, too. Options are those of `@udf`."""
        self.compiler.add_functions([declare(function, **options)])

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Query state, tables and `sqlstream.*`; needs no running job, and no Spark."""
        return query(self.project, self.compiler, sql)

    # -- jobs

    def start(self, planned: PlannedJob, *, fresh: bool = False) -> Job:
        """Start a job, or go on with it; one that has finished is skipped with a notice.

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
            record = read_record(self.warehouse.fs, paths)
            if planned.appends:
                self._appended.add(name)
                _check_appended(planned, record)
            if record is None:
                check_only_writer(self.warehouse, planned, name)
            if record is not None and not planned.appends and self._is_done(planned, record):
                lock.release()
                job = Job(name)
            else:
                run = self._run(planned, name, record)
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

    def _is_done(self, planned: PlannedJob, record: JobRecord) -> bool:
        if record.plan_fingerprint != planned.fingerprint:
            raise UsageError(
                f'job "{planned.name}" exists with another query',
                planned.statement.span,
                detail=difference(record.plan_text, planned.plan_text),
                hint="Give it another name with SET 'pipeline.name', or start it anew with --fresh.",
            )
        if record.versions.get("hash") != hash_probe():
            raise UsageError(
                f'job "{planned.name}" was made with DuckDB {record.versions.get("duckdb")}, whose state cannot be continued',
                hint="Run it with that version, or start it anew with --fresh.",
            )
        status = read_status(self.warehouse.fs, self.warehouse.job(planned.name))
        if status is None or status.state != "FINISHED":
            return False
        self.notice(
            f'job "{planned.name}" is finished and was skipped. To read new files in later runs, set'
            " 'execution.end-of-input' = 'wait' before it finishes, or 'source.monitor-interval' on its tables;"
            " to run it anew, use --fresh."
        )
        return True

    def _run(self, planned: PlannedJob, name: str, record: JobRecord | None) -> Any:
        if not planned.is_immediate:
            return self._spark_run(planned, name, record)
        job = worker_job(planned, self.project.warehouse, (0,), name=name)
        if record is None:
            write_record(self.warehouse.fs, self.warehouse.job(name), job_record(planned, job, 1))
        return ImmediateRun(job, self._emit(self._printers(job)))

    def _spark_run(self, planned: PlannedJob, name: str, record: JobRecord | None) -> Any:
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
        printers = self._printers(job)
        run = JobRun(spark, job, settings, self._emit(printers))
        limited = [printer for printer in printers.values() if printer.limit is not None]
        if limited:
            run.is_satisfied = lambda: limited[0].is_full
        return run

    def _printers(self, job: WorkerJob) -> dict[int, RowPrinter]:
        """Return what prints the rows of sinks, by their place in the plan."""
        printers = {}
        for number, sink in enumerate(job.plan.sinks):
            if sink.kind == "print":
                title = "" if sink.limit is not None or job.name.startswith("select_") else sink.table.name
                printers[number] = RowPrinter(self.output, sink, title=title)
        return printers

    @staticmethod
    def _emit(printers: Mapping[int, RowPrinter]) -> Callable[[int, Sequence[str]], None]:
        def emit(sink: int, files: Sequence[str]) -> None:
            if sink in printers:
                printers[sink].print_files(files)

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
            Path(self.project.log_file).parent.mkdir(parents=True, exist_ok=True)
            self._spark = start_spark(
                master=master,
                conf=conf,
                log_file=self.project.log_file,
                pass_fds=(self._session_lock().descriptor,),
            )
        return self._spark

    # -- the warehouse

    def stop(self, name: str, timeout: float = 60.0) -> None:
        """Ask the process that runs a job to stop it, and wait until it has."""
        paths = self._existing(name)
        status = effective_status(self.warehouse.fs, paths)
        if status is None or status.state != "RUNNING":
            raise UsageError(f'job "{name}" is not running', detail=f"It is {status.state}." if status else None)
        self.warehouse.fs.write_text_atomic(f"{paths.root}/stop", "")
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            status = effective_status(self.warehouse.fs, paths)
            if status is None or status.state != "RUNNING":
                return
            time.sleep(0.05)
        raise JobError(
            f'job "{name}" did not stop within {timeout:.0f} s', hint="Its batch may be a long one; look again."
        )

    def drop(self, name: str) -> None:
        """Delete a job: its state, its checkpoint, and the rows that it wrote."""
        self._existing(name)
        lock = JobLock.acquire(self.warehouse.fs, self.warehouse.job(name), self._session_lock())
        try:
            self._discard(name)
        finally:
            lock.release()

    def _existing(self, name: str) -> Any:
        paths = self.warehouse.job(name)
        if read_record(self.warehouse.fs, paths) is None:
            raise UsageError(f'job "{name}" does not exist', hint=missing("job", name, self.warehouse.jobs()))
        return paths

    def _discard(self, name: str, *, lock: bool = False) -> None:
        """Delete what a job left, its results first: what is half deleted can be deleted again."""
        fs, paths = self.warehouse.fs, self.warehouse.job(name)
        for sink in fs.entries(f"{paths.root}/output"):
            discard(fs, f"{paths.root}/output/{sink}", self.project.root)
        for table in self.warehouse.tables():
            if name.lower() in self.warehouse.writers(table):
                fs.delete_tree(self.warehouse.table(table).job(name).root)
                if not self.warehouse.writers(table):
                    fs.delete_tree(self.warehouse.table(table).root)
        if lock:
            fs.delete_tree(paths.root)
            return
        files = {f.name for f in fs.infos(paths.root)}
        for entry in fs.entries(paths.root):
            if not entry.startswith("lock"):
                (fs.delete if entry in files else fs.delete_tree)(f"{paths.root}/{entry}")

    # -- the end

    def wait(self, jobs: Iterable[Job] | None = None) -> None:
        """Wait for jobs (all by default); raise the first error."""
        for job in jobs if jobs is not None else self.jobs:
            job.wait()

    def close(self) -> None:
        """Stop what still runs, after its batch, and Spark."""
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

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
        planned.statement.span,
        detail=f"It writes {', '.join(f'{name} {type}' for name, type in written.columns)}.",
        hint=f'Delete it and the rows that it wrote: sqlstream drop "{planned.name}".',
    )


def answer_relation(answer: Answer) -> duckdb.DuckDBPyRelation:
    """Return an answer as a relation of text columns."""
    columns = list(zip(*answer.rows, strict=True)) or [()] * len(answer.columns)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return duckdb.connect().from_arrow(pa.table(arrays, names=list(answer.columns)))


# Of a long difference the first so many lines are shown, and of a long line what differs.
_DIFFERENCES = 6
_LINE = 120


def difference(before: str, after: str) -> str:
    """Return the lines in which two plans differ: the first few, long ones cut to where they differ."""
    old, new = before.splitlines(), after.splitlines()
    lines = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        pairs = itertools.zip_longest(old[a:b], new[c:d], fillvalue="")
        for ours, theirs in pairs:
            start = next((i for i, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y), 0)
            lines += [f"-{_excerpt(ours, start)}"] if ours else []
            lines += [f"+{_excerpt(theirs, start)}"] if theirs else []
    more = len(lines) - _DIFFERENCES
    return "\n".join(
        ["--- the job's", "+++ yours", *lines[:_DIFFERENCES], *([f"({more} more lines differ)"] if more > 0 else [])]
    )


def _excerpt(line: str, start: int) -> str:
    """Return a line, or of a long one the part from shortly before a place on.

    >>> _excerpt("x" * 150 + " AS y", 151)
    '...xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx AS y'
    """
    if len(line) <= _LINE:
        return line
    first = max(0, start - _LINE // 3)
    part = line[first : first + _LINE]
    return f"{'...' if first else ''}{part}{'...' if first + _LINE < len(line) else ''}"
