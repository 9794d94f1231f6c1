"""Measure sqlstream, plain Spark Structured Streaming and DuckDB on the same data, one after the other (`make bench`).

Work: a filter with a projection, windows of all kinds with few and with many keys, the highest rows of windows, and windows
over windows (`work.WORKS`); results that change, of states of 100,000 and of 5 million keys (`changing_work`). All from
Parquet files to Parquet files; all systems must give the same result. Spark and sqlstream
read the same files in the same batches: one file per core. With `--rows` from 6,000,000 on, a million sessions are open at a
time in the work of many sessions; with less, it and other works have fewer keys (see `data`).

Process functions (`process`) run over a third of the rows, on Spark in Python and on PyFlink, too.

From Kafka to Kafka (`kafka`): one broker on this machine, the same topics, JSON, also on Flink.

Savepoints, restores, forks and another parallelism (`savepoints`) with a state of 5 million keys, in this process and on Spark.

The queries of examples/nexmark run over Parquet files of its events, in turns with Flink; `--record` keeps the runs (see
`nexmark_results`).

Topics of Kafka (`--only kafka`) are read in batches as large as sqlstream's default, whatever `--batches` says, by Spark, too.

With `--only scaling`: two works with 1, 2 and 4 tasks at a time. With `--only buckets`: what a batch takes of the driver as the
state has up to 1,000 buckets (see `buckets`).

With `--only lookups`: lookups of single keys over HTTP, in a state of at most 5 million keys, while its job goes on.

With `--only ties`: ranks and OVER where the order of arrival decides ties, beside the same by columns (see `ties`).

With `--only databases`: what the sinks of PostgreSQL, MariaDB, SQLite and DuckDB write, in batches of the same size (see
`databases`).

- *rows/s once warm*: rows of the batches after the warm-up (a quarter of all), divided by the time from the commit of the
  last batch of the warm-up to that of the last batch with data. Commits are dated by the files in the checkpoint, in both
  systems alike. Whatever happens in between counts: compaction of state, finding files, snapshots. Flink says how many rows
  it has read: its rate is that of the same rows. With several runs (`--repeat`) it is the median. DuckDB has no batches: rows
  divided by the median time of three runs in one process.
- *batch*: the median of those batches. *whole run*: from the start of the session to the end, all included.
- *peak memory*: of the process, its JVM and its workers together, counting what they share once.
- *smallest batch*: files of one row arrive one at a time; see `latency`. *start* and *query*: see `commands`.

*sqlstream* runs on Spark, *sqlstream in process* on its own engine (`execution.engine`), but for process functions.

Plain Spark has the settings in `plain_spark.SETTINGS`; sqlstream has none set.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from tests.bench import (
    changing,
    joining,
    latency,
    nexmark,
    nexmark_flink,
    nexmark_results,
    rates,
    report,
    saving,
    throughput,
)
from tests.bench.changing_work import CHANGING_WORKS, ChangingWork, changing_data, changing_work, changing_works_of
from tests.bench.child import TRACES
from tests.bench.commands import explain_seconds, query_seconds, start_to_first_result
from tests.bench.commits import MAX_BATCHES
from tests.bench.data import dataset
from tests.bench.flink import BACKENDS, HEAP, Flink
from tests.bench.join_work import JOIN_WORKS, JoinWork, join_data, join_works_of
from tests.bench.kafka.jars import flink_jars, spark_jars
from tests.bench.kafka.measure import KafkaBench
from tests.bench.kafka.run import SPARK
from tests.bench.kafka.work import KAFKA_WORKS, KafkaWork, kafka_works_of
from tests.bench.memory import run_measured
from tests.bench.plain_spark import HEAP_STORE, ROCKSDB_STORE, STORES
from tests.bench.process import flink as process_flink
from tests.bench.process.data import process_data
from tests.bench.process.run import systems_of
from tests.bench.process.work import PROCESS_WORKS, ProcessWork, process_works_of
from tests.bench.rates import addition_seconds
from tests.bench.report import Figures, Results
from tests.bench.throughput import DUCKDB, IN_PROCESS, SQLSTREAM
from tests.bench.work import WORKS, Work, work_named, works_of

ROOT = Path(__file__).resolve().parents[2]
ROWS = 10_000_000
SMALL_FILES, SMALL_WARM_UP = 45, 15
LATENCIES, COMMANDS = "smallest_batch", "commands"
# Of the works of which the result changes.
GROUPS = ("group_by", "two_levels", "top_ten", "keep_last")
JOINS, PROCESS, NEXMARK, KAFKA, SAVEPOINTS = "joins", "process", "nexmark", "kafka", "savepoints"
LOOKUPS, LOOKUP_KEYS = "lookups", 5_000_000
# As a job grows: the same work with more tasks, and many buckets.
SCALING, SCALED_WORKS, SCALED_TASKS = "scaling", ("tumbling_few", "tumbling_many"), (1, 2, 4)
BUCKETS = "buckets"
DATABASES, TIES = "databases", "ties"
KNOWN = [
    *dict.fromkeys(w.group for w in WORKS),
    *GROUPS,
    JOINS,
    PROCESS,
    NEXMARK,
    KAFKA,
    SAVEPOINTS,
    LOOKUPS,
    DATABASES,
    TIES,
    SCALING,
    BUCKETS,
    LATENCIES,
    COMMANDS,
]

AnyWork = Work | ChangingWork | JoinWork | ProcessWork | KafkaWork

console = Console(highlight=False)


@click.command()
@click.option(
    "--rows", type=int, help=f"Rows of each data set: {ROWS:,}, but of Nexmark as many as take its queries a minute."
)
@click.option("--batches", default=20, show_default=True, help="Micro-batches that they come in.")
@click.option("--repeat", default=1, show_default=True, help="Runs of each; the median counts.")
@click.option(
    "--only",
    multiple=True,
    help=f"What to measure (repeat for several): {', '.join(KNOWN)}; or one work or query: hopping_few, q5, ..",
)
@click.option(
    "--without", multiple=True, help='Systems to leave out: "RocksDB" leaves out all whose name has that word.'
)
@click.option(
    "--flink",
    type=Path,
    help="A virtual environment with Flink, to run joins, process functions and Nexmark on it, too (`make bench FLINK=1`).",
)
@click.option(
    "--data", default=ROOT / ".demo" / "bench", type=Path, help="Where the data is made, once, and runs write."
)
@click.option("--output", default=ROOT / "bench-results", type=Path, help="Where results.json, table.md, plot.png go.")
@click.option(
    "--record",
    is_flag=True,
    help="Keep the runs of Nexmark in tests/bench/results.",
)
@click.option(
    "--trace", type=Path, help="Profile sqlstream meanwhile: a folder for traces of Perfetto and tables, by work."
)
@click.option("--busy", is_flag=True, help="Measure although other programs run.")
def main(
    rows: int | None,
    batches: int,
    repeat: int,
    only: tuple[str, ...],
    without: tuple[str, ...],
    flink: Path | None,
    data: Path,
    output: Path,
    record: bool,
    trace: Path | None,
    busy: bool,
) -> None:
    """Run the benchmark and write its results."""
    if not busy and (reason := rates.busy()):
        raise click.ClickException(f"{reason}, and figures would mean little; --busy measures all the same")
    if not 4 <= batches <= MAX_BATCHES:
        raise click.UsageError(f"--batches must be from 4 to {MAX_BATCHES}")
    for name in only:
        known = [*works_of((name,)), *changing_works_of((name,)), *join_works_of((name,)), *process_works_of((name,))]
        if name not in (*KNOWN, *nexmark.QUERIES) and not known and not kafka_works_of((name,)):
            every: list[AnyWork] = [*WORKS, *CHANGING_WORKS, *JOIN_WORKS, *PROCESS_WORKS, *KAFKA_WORKS]
            raise click.UsageError(f'there is no work "{name}": {", ".join([*KNOWN, *(w.name for w in every)])}')
    is_left_out = any(word.lower() in SQLSTREAM for word in without)
    if is_left_out and not (only and all(name == NEXMARK or name in nexmark.QUERIES for name in only)):
        raise click.UsageError(f"the others are compared with {SQLSTREAM}: only Nexmark runs without it")
    if trace is not None:
        os.environ[TRACES] = str(trace.resolve())
    results = Results(report.machine(), rows or ROWS, batches, repeat)
    output.mkdir(parents=True, exist_ok=True)
    bench = _Bench(results, data.resolve(), (output / "log.txt").resolve(), without)
    try:
        for work in works_of(only) if only else WORKS:
            bench.throughput(work)
        for changing_work in changing_works_of(only or GROUPS):
            bench.changes(changing_work)
        for join in join_works_of(only or (JOINS,)):
            bench.joins(join, Flink(flink.resolve()) if flink else None)
        for process in process_works_of(only or (PROCESS,)):
            bench.processes(process, Flink(flink.resolve()) if flink else None)
        for kafka_work in kafka_works_of(only or (KAFKA,)):
            bench.kafka(kafka_work, Flink(flink.resolve(), tuple(flink_jars())) if flink else None)
        for query in nexmark.QUERIES if not only or NEXMARK in only else [q for q in nexmark.QUERIES if q in only]:
            events = rows or nexmark.EVENTS[query]
            bench.nexmark(query, events, Flink(flink.resolve()) if flink else None, record=record)
        if not only or SAVEPOINTS in only:
            bench.savepoints()
        if LOOKUPS in only:
            bench.lookups(min(results.rows, LOOKUP_KEYS))
        if DATABASES in only:
            bench.databases()
        if TIES in only:
            bench.ties()
        if SCALING in only:
            bench.scaling()
        if BUCKETS in only:
            bench.buckets()
        if not only or LATENCIES in only or COMMANDS in only:
            bench.latencies()
        if not only or COMMANDS in only:
            bench.commands()
    finally:
        # What was measured before something failed is worth keeping: a run takes long.
        report.write(results, output)
    shutil.rmtree(bench.runs)
    if results.works or results.changes or results.joins or results.processes:
        console.print(report.table(results))
    console.print(report.targets(results))
    if results.kafka:
        console.print(report.kafka_table(results))
    if results.savepoints:
        console.print(report.saving_table(results))
    if results.nexmark:
        console.print(nexmark_results.table(results.nexmark), soft_wrap=True)


class _Bench:
    def __init__(self, results: Results, data: Path, log: Path, without: tuple[str, ...]):
        self.results, self.data, self.log, self.without = results, data, log, without
        self.cores = os.cpu_count() or 1
        data.mkdir(parents=True, exist_ok=True)
        # Of this run alone; it stays behind when something fails, with Spark's log in it.
        self.runs = Path(tempfile.mkdtemp(prefix="runs-", dir=data))
        self.log.unlink(missing_ok=True)

    @property
    def _rows_per_batch(self) -> int:
        return self.results.rows // self.results.batches

    def _wanted(self, *systems: str) -> list[str]:
        return [s for s in systems if not any(word.lower() in s.lower() for word in self.without)]

    def throughput(self, work: Work) -> None:
        """Run every system on one work, in turns."""
        batches = self.results.batches
        source = dataset(self.data, self.results.rows, work.keys, batches * self.cores, work.seconds)

        def run(system: str, folder: Path) -> Figures:
            task = throughput.Task(
                system=system,
                work=work.name,
                data=str(source.folder),
                rows=source.rows,
                files=source.files,
                closed_until=source.closed_until,
                batches=batches,
                warm_up=max(2, batches // 4),
                cores=self.cores,
                folder=str(folder),
            )
            return self._figures("throughput", asdict(task))

        stores = STORES if work.windowed else (HEAP_STORE,)
        systems = self._wanted(SQLSTREAM, IN_PROCESS, *stores, DUCKDB)
        found = self.results.works.setdefault(work.name, {})
        self._in_turns(work.name, work.title, systems, run, found)
        if tuple(found[SQLSTREAM].summary) == (0, 0):
            raise RuntimeError(f"no window of {work.name} has closed: take more rows")

    def changes(self, work: ChangingWork) -> None:
        """Run every system on one work whose result changes.

        Only plain aggregates are something that Spark can do; a state of 5 million keys is for its RocksDB store.
        """
        source = changing_data(self.data, work, self.cores)
        found = self.results.changes.setdefault(work.name, {})
        for system in self._wanted(
            SQLSTREAM, IN_PROCESS, *((ROCKSDB_STORE,) if work.spark else ()), changing.DUCKDB_ANEW
        ):
            folder = self.runs / f"{work.name}-{system.replace(' ', '_')}"
            task = changing.Task(system, work.name, str(source), self.cores, str(folder))
            output, _ = self._measured("changing", asdict(task))
            found[system] = changing.BatchRun(**json.loads(output))
            console.print(f"{work.title}, {system}: {found[system].batch_ms:,.0f} ms a batch")
            shutil.rmtree(folder)
        if len({tuple(run.summary) for run in found.values()}) > 1:
            answers = {system: run.summary for system, run in found.items()}
            raise RuntimeError(f"the systems do not agree on {work.name}: {answers}")

    def joins(self, work: JoinWork, flink: Flink | None) -> None:
        """Run every system on one join; each of its inputs has as many rows as a data set of other works has for three.

        Batches have as many rows as those of other works.
        """
        rows, per_batch = self.results.rows * 3 // 10, self._rows_per_batch
        source = join_data(self.data, work, rows, max(4, rows * len(work.inputs) // per_batch), self.cores)

        def run(system: str, folder: Path) -> Figures:
            per_batch, warm_up = source.rows_per_batch, max(2, source.batches // 4)
            task = joining.Task(
                system, work.name, str(source.folder), source.batches, per_batch, warm_up, self.cores, str(folder)
            )
            if flink and system in BACKENDS:
                return Figures(**asdict(flink.join(task, work, self.log)), peak_bytes=0)
            return self._figures("joining", asdict(task))

        stores = (joining.STATE_4, joining.STATE_2) if work.spark else ()
        flinks = tuple(BACKENDS) if flink and work.spark and not work.loads_first else ()
        systems = self._wanted(SQLSTREAM, IN_PROCESS, *stores, *flinks, DUCKDB)
        self._in_turns(work.name, work.title, systems, run, self.results.joins.setdefault(work.name, {}))

    def processes(self, work: ProcessWork, flink: Flink | None) -> None:
        """Run every system on one process function; it has rows as a join has, at least in six batches."""
        rows, per_batch = self.results.rows * 3 // 10, self._rows_per_batch
        source = process_data(self.data, work, rows, max(6, rows // per_batch), self.cores)

        def run(system: str, folder: Path) -> Figures:
            task = source.task(system, work, self.cores, folder)
            if flink and system in process_flink.SYSTEMS:
                return Figures(**asdict(process_flink.measure(flink, task, work, self.log)), peak_bytes=0)
            return self._figures("process.run", asdict(task))

        systems = self._wanted(*systems_of(work, has_flink=flink is not None))
        self._in_turns(work.name, work.title, systems, run, self.results.processes.setdefault(work.name, {}))

    def kafka(self, work: KafkaWork, flink: Flink | None) -> None:
        """Run every system on one work from Kafka to Kafka."""
        systems = tuple(
            self._wanted(SQLSTREAM, IN_PROCESS, *((SPARK,) if work.spark else ()), *((HEAP,) if flink else ()))
        )
        bench = KafkaBench(spark_jars() if SPARK in systems else [], flink, self.runs, self.log)
        results = self.results
        runs = bench.run(work, results.rows, self.cores, results.repeat, systems)
        for system, every in runs.items():
            median = sorted(every, key=lambda run: run.rows_per_second)[len(every) // 2]
            results.kafka.setdefault(work.name, {})[system] = median
            console.print(f"{work.title}, {system}: {median.rows_per_second:,.0f} rows/s from Kafka to Kafka")

    def ties(self) -> None:
        """Run ranks and OVER by both rules, in a process of their own, which prints its table."""
        counts = {"--rows": self.results.rows, "--batches": self.results.batches, "--repeat": self.results.repeat}
        options = [text for name, count in counts.items() for text in (name, str(count))]
        command = [sys.executable, "-m", "tests.bench.ties", *options, "--data", str(self.data)]
        subprocess.run(command, check=True)

    def _in_turns(
        self,
        name: str,
        title: str,
        systems: list[str],
        run: Callable[[str, Path], Figures],
        found: dict[str, Figures],
    ) -> None:
        """Run systems one after the other, as often as is asked for; `found` has the median of each, also when one fails."""
        every: dict[str, list[Figures]] = {}
        for number in range(self.results.repeat):
            for system in systems:
                folder = self.runs / f"{name}-{system.replace(' ', '_')}-{number}"
                figures = run(system, folder)
                every.setdefault(system, []).append(figures)
                found |= _medians(every)
                speed = f"{figures.rows_per_second:,.0f} rows/s, {figures.batch_ms:,.0f} ms a batch"
                console.print(f"{title}, {system}: {speed}")
                shutil.rmtree(folder)
        _agree(name, every)

    def nexmark(self, query: str, events: int, flink: Flink | None, *, record: bool) -> None:
        """Run a query of the example over files of its events, in turns with Flink."""
        speed = addition_seconds()
        for number in range(self.results.repeat):
            for system in self._wanted(SQLSTREAM, IN_PROCESS, *(BACKENDS if flink else ())):
                folder = self.runs / f"nexmark-{query}-{system.replace(' ', '_')}-{number}"
                folder.mkdir()
                task = nexmark.task_of(query, system, events, self.data, self.cores, folder)
                if flink and system in BACKENDS:
                    run = nexmark_flink.measure(flink, task, system, self.log)
                else:
                    output, _ = self._measured("nexmark", asdict(task))
                    run = nexmark.NexmarkRun(**json.loads(output))
                result = nexmark_results.result(query, system, events, run, speed)
                console.print(f"{query}, {system}: {result.text}")
                self.results.nexmark.append(result)
                if record:
                    nexmark_results.record(result)
                shutil.rmtree(folder)

    def lookups(self, keys: int) -> None:
        """Measure lookups of single keys; what comes out is printed, and not kept with the other results."""
        from tests.bench.lookups import measure

        for run in measure(self.runs / LOOKUPS, keys):
            console.print(run.text)

    def databases(self) -> None:
        """Measure the sinks of databases with batches as large as those of other works; what comes out is printed."""
        from tests.bench.databases import OPEN, measure, missing

        for connector in self._wanted(*OPEN):
            if reason := missing(connector):
                console.print(f"{connector}: not measured, {reason}")
                continue
            for run in measure(self.runs / DATABASES, connector, self._rows_per_batch, self.results.repeat):
                console.print(run.text)
        console.print(f"{self._rows_per_batch:,} rows a batch; {self._load()}")

    def scaling(self) -> None:
        """Run works with more and more tasks over the same files; what comes out is printed."""
        batches, most = self.results.batches, max(SCALED_TASKS)
        for work in map(work_named, SCALED_WORKS):
            source = dataset(self.data, self.results.rows, work.keys, batches * most, work.seconds)
            for tasks in SCALED_TASKS:
                folder = self.runs / f"{work.name}-{tasks}-tasks"
                about = (str(source.folder), source.rows, source.files, source.closed_until)
                task = throughput.Task(SQLSTREAM, work.name, *about, batches, max(2, batches // 4), tasks, str(folder))
                found = self._figures("throughput", asdict(task))
                speed = f"{found.rows_per_second:,.0f} rows/s, {found.batch_ms:,.0f} ms a batch"
                console.print(f"{work.title}, {tasks} tasks on {self.cores} cores: {speed}; {self._load()}")
                shutil.rmtree(folder)

    def buckets(self) -> None:
        """Measure what a batch takes of the driver, by the number of buckets; what comes out is printed."""
        from tests.bench.buckets import COUNTS, SPARK_COUNTS, measure, measure_on_spark

        for count in COUNTS:
            console.print(measure(self.runs / f"buckets-{count}", count).text)
        for count in SPARK_COUNTS:
            console.print(measure_on_spark(self.runs / f"buckets-spark-{count}", count).text)
        console.print(self._load())

    @staticmethod
    def _load() -> str:
        return f"load of the machine {os.getloadavg()[0]:.1f}"

    def savepoints(self) -> None:
        """Measure savepoints, restores, forks and another parallelism, with a state of 5 million keys."""
        source = changing_data(self.data, changing_work(saving.WORK), 1)
        for engine in self._wanted(*saving.ENGINES):
            folder = self.runs / f"savepoints-{engine.replace(' ', '_')}"
            output, _ = self._measured("saving", asdict(saving.Task(engine, str(source), str(folder))))
            found = json.loads(output)
            steps = [saving.Step(**step) for step in found["steps"]]
            self.results.savepoints[engine] = saving.SavingRun(steps, found["state_rows"])
            console.print(f"savepoints, {engine}: " + ", ".join(f"{s.name} {s.seconds:.2f} s" for s in steps))
            shutil.rmtree(folder)

    def latencies(self) -> None:
        """Measure the smallest batch of sqlstream and of both stores."""
        for system in self._wanted(SQLSTREAM, IN_PROCESS, *STORES):
            folder = self._small(system)
            task = latency.Task(system, SMALL_FILES, SMALL_WARM_UP, self.cores, str(folder))
            output, _ = self._measured("latency", asdict(task))
            self.results.latencies[system] = latency.Latency(**json.loads(output))
            console.print(f"smallest batch, {system}: {self.results.latencies[system].batch_ms:.0f} ms")

    def commands(self) -> None:
        """Time the command line; the state is that of the smallest batches."""
        small = self._small(SQLSTREAM)
        self.results.commands["query"] = query_seconds(small / "warehouse", small / "project")
        few = work_named("tumbling_few")
        source = dataset(self.data, self.results.rows, few.keys, self.results.batches * self.cores, few.seconds)
        self.results.commands["start"] = start_to_first_result(source, self.runs / "starts", self.log)
        self.results.commands["explain"] = explain_seconds(source, self.runs / "starts" / "project")

    def _small(self, system: str) -> Path:
        return self.runs / f"small-{system.replace(' ', '_')}"

    def _figures(self, module: str, task: dict[str, object]) -> Figures:
        output, peak = self._measured(module, task)
        return Figures(**json.loads(output), peak_bytes=peak)

    def _measured(self, module: str, task: dict[str, object]) -> tuple[str, int]:
        Path(str(task["folder"])).parent.mkdir(parents=True, exist_ok=True)
        return run_measured([sys.executable, "-m", f"tests.bench.{module}", json.dumps(task)], self.log)


def _agree(work: str, found: dict[str, list[Figures]]) -> None:
    """Raise RuntimeError unless all runs of a work gave the same result."""
    answers = {system: figures[0].summary for system, figures in found.items()}
    if any(f.summary != next(iter(answers.values())) for figures in found.values() for f in figures):
        raise RuntimeError(f"the systems do not agree on {work}: {answers}")


def _medians(found: dict[str, list[Figures]]) -> dict[str, Figures]:
    return {
        system: sorted(figures, key=lambda f: f.rows_per_second)[len(figures) // 2] for system, figures in found.items()
    }


if __name__ == "__main__":
    main()
