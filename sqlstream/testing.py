"""Run a query in this process, without a JVM: feed rows, move time, look at results and state, restart.

The physical plan, the operators, the state files and the commits are those of a job on Spark; only Spark's part (moving
frames, tracking the watermark, calling back) is played here. Tables without a connector that no INSERT writes are fed, as
are those with files; other sources, and tables that jobs write, feed themselves.

    with sqlstream.testing.Stream(script) as stream:
        stream.batch("bid", [(1, "2026-01-01 10:00:01"), (1, "2026-01-01 10:00:15")])
        assert stream.rows("counts") == [(1, 1)]
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeAlias
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.catalog import VALUES, Table
from sqlstream.compiler import Compiled, Compiler, PlannedJob
from sqlstream.connectors.splits import Split
from sqlstream.errors import BindError, Source, UsageError, missing
from sqlstream.functions.declare import declare
from sqlstream.functions.duck import recover, register_for_queries
from sqlstream.given_rows import connection, write_rows
from sqlstream.launch import check_only_writer, job_record, worker_job
from sqlstream.operators.step import Clock
from sqlstream.options import Options
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime import stages
from sqlstream.runtime.batches import Descriptor, from_lines, to_lines
from sqlstream.runtime.changelog import changelog
from sqlstream.runtime.commits import Commits
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.frames import Frame
from sqlstream.runtime.idle import idle_ticks
from sqlstream.runtime.immediate import values_splits
from sqlstream.runtime.stages import Output
from sqlstream.runtime.times import END_OF_INPUT, from_spark_millis, timer_millis, to_spark_micros
from sqlstream.runtime.worker import Job, release
from sqlstream.sql.nodes import CreateTable, Drop, Insert, Statement, StatementSet
from sqlstream.sql.statements import parse_script
from sqlstream.storage.files import Split as FileSplit
from sqlstream.storage.filesystem import Warehouse
from sqlstream.storage.jobs import committed_watermark, write_commit, write_record
from sqlstream.storage.query import open_query, translate
from sqlstream.storage.segments import forget_known
from sqlstream.storage.snapshot import named_manifest

# Rows as tuples in the order of the physical columns, or as mappings by name (text is cast to the column's type); or an
# Arrow table.
Rows: TypeAlias = Iterable[Sequence[Any] | Mapping[str, Any]] | pa.Table


class Stream:
    """One or several jobs of a script, run batch by batch.

    `parallelism` is the number of tasks and of buckets. Times are microseconds since 1970, or text that DuckDB reads as
    a timestamp; the processing time starts at 0 ms and moves by `advance`.
    """

    def __init__(
        self,
        script: str,
        *,
        functions: Iterable[Callable[..., Any]] = (),
        options: Mapping[str, str] | None = None,
        parallelism: int = 2,
        name: str = "test",
    ):
        self._directory = tempfile.TemporaryDirectory(prefix="sqlstream-test-")
        self._files = 0
        self._parallelism = parallelism
        self.warehouse = f"{self._directory.name}/warehouse"
        self.compiler = Compiler(Options(options), project=self._directory.name)
        self.compiler.add_functions([declare(f) for f in functions])
        self.now = 0
        self.runs: dict[str, LocalRun] = {}
        self._fed = FedTables(
            self.compiler, lambda table: {"connector": "filesystem", "format": "parquet", "path": table.name}
        )
        self.script(script, name)

    def script(self, text: str, name: str = "test") -> None:
        """Run further statements."""
        for statement in parse_script(Source(name, text)):
            planned = self.compile(statement)
            if isinstance(planned, PlannedJob):
                self._start(planned)

    def compile(self, statement: Statement) -> Compiled | None:
        """Compile a statement as a session does, except that a table which nobody writes is fed by `batch`."""
        return self._fed.compile(statement)

    def _start(self, planned: PlannedJob) -> None:
        labels = range(self._parallelism)
        job = worker_job(planned, self.warehouse, labels, project=self._directory.name)
        warehouse = Warehouse(self.warehouse)
        check_only_writer(warehouse, planned, planned.name)
        write_record(warehouse.fs, warehouse.job(job.name), job_record(planned, job, self._parallelism))
        self.runs[planned.name.lower()] = run = LocalRun(job, self.now)
        if splits := values_splits(job):
            run.batch(splits, {}, self.now)
        self.pull()

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
                run.batch(mine, {}, self.now)
        self.pull()

    def pull(self) -> None:
        """Give the jobs that read tables of the warehouse what other jobs have written there, and let idle sources follow."""
        for run in self.runs.values():
            run.follow(self.now)
            run.tick_idle(self.now)

    def tick(self, table: str, time: int | str) -> None:
        """Move a table's watermark to a time without a row."""
        at = _microseconds(time)
        for run in self.runs.values():
            ticks = {i: at for i, s in enumerate(run.job.plan.scans) if s.table.name.lower() == table.lower()}
            if ticks:
                run.batch({}, ticks, self.now)
        self.pull()

    def finish(self) -> None:
        """End the input: bounded sources that feed themselves are read to their end, and every window closes."""
        for run in self.runs.values():
            run.follow(self.now)
            run.pull(self.now)
            run.batch({}, dict.fromkeys(range(len(run.job.plan.scans)), END_OF_INPUT), self.now)

    def advance(self, milliseconds: int) -> None:
        """Move the processing time: windows over it close when their end has come, early results come, and sources fall idle."""
        self.now += milliseconds
        for run in self.runs.values():
            run.ring(self.now)
        self.pull()

    def restart(self) -> None:
        """Forget everything that is not on disk, as a new process would."""
        forget_known()
        for name, run in self.runs.items():
            release(run.job)
            self.runs[name] = LocalRun(run.job, self.now)

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
        return list(run.printed)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Query state and tables, as `sqlstream query` does."""
        functions = self.compiler.catalog.functions.values()
        relation = open_query(
            Warehouse(self.warehouse), sql, functions=[lambda con: register_for_queries(con, functions)]
        )
        try:
            return relation.fetchall()
        except duckdb.Error as e:
            raise recover(e) or translate(e, sql) from e

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
        for run in self.runs.values():
            release(run.job)
        self.compiler.close()
        self._directory.cleanup()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FedTables:
    """Compiles statements so that a table without a connector which nobody writes gets the options given for it."""

    def __init__(self, compiler: Compiler, options: Callable[[Table], Mapping[str, str]]):
        self._compiler, self._options = compiler, options
        # Tables that are fed, as they were declared, and those that jobs write.
        self._declared: dict[str, Table] = {}
        self._written: set[str] = set()

    def compile(self, statement: Statement) -> Compiled | None:
        match statement:
            case CreateTable() | Drop():
                self._declare_again(statement.name.text)
            case Insert():
                self._declare_again(statement.target.text)
            case StatementSet():
                for insert in statement.inserts:
                    self._declare_again(insert.target.text)
        planned = self._compiler.statement(statement)
        if isinstance(planned, PlannedJob):
            self._written |= {sink.table.name.lower() for sink in planned.physical.sinks}
        if isinstance(statement, CreateTable):
            self._feed(statement.name.text)
        return planned

    def _feed(self, name: str) -> None:
        table = self._compiler.catalog.relation(name)
        if isinstance(table, Table) and table.connector is None and name.lower() not in self._written:
            self._declared[name.lower()] = table
            self._compiler.catalog.add(replace(table, options={**table.options, **self._options(table)}))

    def _declare_again(self, name: str) -> None:
        """Make a table what its declaration says."""
        if (table := self._declared.pop(name.lower(), None)) is not None:
            self._compiler.catalog.add(table)


class LocalRun:
    """One job: what Spark would keep between batches, and one batch after another."""

    def __init__(self, job: Job, now: int = 0):
        self.job = job
        self.printed: list[tuple[Any, ...]] = []
        self.commits = Commits(job, self._print, began=now)
        self.paths = self.commits.paths
        self.batch_number = self.commits.totals.version + 1
        self.sequence = self.commits.totals.sequence
        self.manifests: dict[tuple[int, int], str] = {}
        self.timers: dict[tuple[int, int], int] = {}
        self.marks: dict[int, int] = {}
        self._feeds: dict[str, Feed] = {}
        # Spark's watermark, in its own milliseconds.
        self.watermark = 0
        if self.batch_number > 0:
            self._restore()

    def follow(self, now: int) -> None:
        """Read what other jobs have committed since the last time."""
        scans = {i: replace(s, table=_followed(s.table)) for i, s in self._scans() if s.table.connector is None}
        self._read("tables", scans, now)

    def pull(self, now: int) -> None:
        """Read what sources have that feed themselves; of one without an end, a batch."""
        self._read(
            "sources", {i: s for i, s in self._scans() if s.table.connector not in (None, "filesystem", VALUES)}, now
        )

    def _scans(self) -> Iterator[tuple[int, ScanStage]]:
        yield from enumerate(self.job.plan.scans)

    def _read(self, feed: str, scans: Mapping[int, ScanStage], now: int) -> None:
        if not scans:
            return
        if feed not in self._feeds:
            self._feeds[feed] = Feed(
                self.commits.warehouse.fs,
                f"{self.paths.root}/{feed}",
                list(scans.values()),
                self.job.labels,
                project=self.job.warehouse,
                finish=False,
                warehouse=self.job.warehouse,
                paced=False,
            )
        source, numbers = self._feeds[feed], list(scans)
        while (descriptor := source.compose()) is not None:
            source.write(descriptor)
            self.batch({numbers[i]: splits for i, splits in descriptor.splits.items()}, {}, now)
            if feed == "sources" and not source.bounded:
                break

    def _restore(self) -> None:
        fs, version = self.commits.warehouse.fs, self.commits.totals.version
        self.watermark = committed_watermark(fs, self.paths, version)
        entry = self.commits.log.entry(version)
        assert entry is not None
        for number, stage in enumerate(self.job.plan.stages):
            for label, name in entry.state_manifests(stage.name).items():
                manifest = named_manifest(fs, self.paths.operator(stage.name), label, name)
                self.manifests[number, label] = manifest.to_json()
                if manifest.wake_at is not None:
                    self.timers[number, label] = manifest.wake_at
        for number, scan in enumerate(self.job.plan.scans):
            mark = self.commits.totals.sources[scan.name]["watermark"]
            if mark is not None:
                self.marks[number] = to_spark_micros(mark) // 1000

    def batch(self, splits: Mapping[int, Sequence[Split]], ticks: Mapping[int, int], now: int) -> None:
        """Run a micro-batch, and an empty one when the watermark has moved; nothing once LIMIT was reached."""
        if self.is_full:
            return
        self.sequence += 1
        clocks = {i: now * 1000 for i, scan in enumerate(self.job.plan.scans) if scan.by_clock}
        opens = self.sequence == 0 and self.job.plan.opens
        descriptor = Descriptor(
            self.sequence, now, splits, {**clocks, **ticks}, rings=self._is_called(now), opens=opens
        )
        self.run(to_lines(descriptor, self.job.labels), now)

    def run(self, lines: str, now: int) -> None:
        """Run the micro-batch that a descriptor's lines describe, and an empty one when the watermark has moved."""
        before = self.watermark
        self._run(lines, now)
        if self.watermark > before:
            self._run("", now)

    def tick_idle(self, now: int) -> None:
        """Move the watermarks of idle sources as far as those of the others allow."""
        if ticks := idle_ticks(self.commits.clocks(), now):
            self.batch({}, ticks, now)

    def ring(self, now: int) -> None:
        """Run a micro-batch without rows if windows over processing time are to close, or an operator asked for it."""
        clocks = [i for i, scan in enumerate(self.job.plan.scans) if scan.by_clock]
        if self._is_called(now) or (clocks and any(due <= now * 1000 for due in self.timers.values())):
            self.batch({}, {}, now)

    def _is_called(self, now: int) -> bool:
        ring_at = self.commits.totals.ring_at
        return ring_at is not None and ring_at <= now

    def _run(self, lines: str, now: int) -> None:
        arriving: dict[int | None, list[Frame | Output]] = defaultdict(list)
        tasks: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for work in from_lines(lines):
            tasks[work.scan, work.slot].append(work)
        watermark = from_spark_millis(self.watermark)
        for (scan, _), task in tasks.items():
            for mark, output in stages.run_scan(self.job, scan, task, self.batch_number, watermark):
                self.marks[scan] = max(self.marks.get(scan, 0), to_spark_micros(mark) // 1000)
                arriving[output.stage if isinstance(output, Frame) else None].append(output)
        clock = Clock(self.batch_number, watermark, now)
        for number in range(len(self.job.plan.stages)):
            frames = [f for f in arriving.pop(number, []) if isinstance(f, Frame)]
            for output in self._advance(number, frames, clock):
                arriving[output.stage if isinstance(output, Frame) else None].append(output)
        outputs = [o for o in arriving.pop(None, []) if isinstance(o, Output)]
        self.commits.commit(self.batch_number, outputs, watermark, now)
        self.watermark = max(self.watermark, self._minimum())
        write_commit(self.commits.warehouse.fs, self.paths, self.batch_number, self.watermark)
        self.batch_number += 1

    def _minimum(self) -> int:
        return min((self.marks.get(i, 0) for i in self.job.plan.watched), default=0)

    def _advance(self, stage: int, frames: Sequence[Frame], clock: Clock) -> Iterator[Frame | Output]:
        by_bucket: dict[int, list[Frame]] = defaultdict(list)
        for frame in frames:
            by_bucket[frame.bucket].append(frame)
        for (owner, bucket), due in list(self.timers.items()):
            if owner == stage and timer_millis(due) <= self.watermark:
                by_bucket.setdefault(bucket, [])
        for bucket, arrived in by_bucket.items():
            advance = stages.Advance(self.job, stage, bucket, self.manifests.get((stage, bucket)), clock)
            yield from advance.run(arrived)
            self.manifests[stage, bucket] = advance.manifest
            self.timers.pop((stage, bucket), None)
            if advance.wake_at is not None:
                self.timers[stage, bucket] = advance.wake_at

    def _print(self, sink: int, files: Sequence[str]) -> None:
        plan = self.job.plan.sinks[sink]
        for file in files:
            found = connection().execute(changelog(plan, file)).fetchall()
            if plan.limit is not None:
                found = found[: plan.limit - len(self.printed)]
            self.printed += found if plan.changing else [row[1:] for row in found]

    @property
    def is_full(self) -> bool:
        """Whether a SELECT with LIMIT has its rows: then the job has ended, after the batch that brought the last of them."""
        limit = self.job.plan.sinks[0].limit
        return limit is not None and len(self.printed) >= limit


def _followed(table: Table) -> Table:
    return replace(table, options={**table.options, "source.monitor-interval": "0 s"})


def _microseconds(time: int | str) -> int:
    if isinstance(time, int):
        return time
    [(value,)] = connection().execute("SELECT epoch_us(CAST(? AS TIMESTAMP))", [time]).fetchall()
    return int(value)


__all__ = ["FedTables", "Stream", "write_rows"]
