"""Kill jobs, their workers and the servers, and see that every row arrives once, whatever the source and the sink (`make proof`).

For each source one job writes into all sinks, in a process of its own on Spark. Rows come in all the time. Meanwhile the process,
one of its workers, or a server is killed with SIGKILL, each as often as `--kills` says, in an order and at moments of a seed.
Readers look at the sinks all the time: nobody may see a part of a batch. In the end each row must be there once. With
`--engine local` the job runs without Spark, and with `--engine both` each start of the job takes one or the other.

With `--savepoints` or `--scenario` other jobs are killed: each step with their state, or each kind of work after a batch.
"""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

import click
import psutil

from sqlstream.options import ENGINES
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from tests.processes import SECONDS, children_of, kill_family, wait_until
from tests.proof.inputs import Changes, Files, Input, Messages
from tests.proof.outputs import Delta, Iceberg, Looks, Output, ParquetFiles, PostgresTable, Topic, WarehouseTable
from tests.proof.savepoints.report import prove
from tests.proof.savepoints.step import LOCAL, SPARK
from tests.proof.scenarios.report import prove_scenarios
from tests.proof.scenarios.trials import SCENARIOS
from tests.proof.servers import Kafka, Postgres, servers

SOURCES = ("kafka", "files", "changes")
JOB, WORKER, SERVER = "job", "worker", "server"
HEAD = "SET 'pipeline.name' = 'proof';\nSET 'execution.end-of-input' = 'wait';\n"
# A word in the command line of Spark's Python workers.
WORKERS = "sqlstream.spark.daemon"


def main_script(given: Input, outputs: list[Output]) -> str:
    """Return a job that copies the rows, each with the time of its batch, into all outputs."""
    # A row that is taken back must be as it was.
    batch = "CAST(NULL AS TIMESTAMP(3))" if given.changes else "CAST(PROCTIME() AS TIMESTAMP(3))"
    inserts = "\n".join(f"INSERT INTO to_{o.name} SELECT id, v, {batch} FROM given;" for o in outputs)
    tables = ";\n".join([given.table, *(output.table for output in outputs)])
    return f"{HEAD}{tables};\nEXECUTE STATEMENT SET BEGIN\n{inserts}\nEND;\n"


class Proof:
    """One job and what is done to it."""

    def __init__(
        self,
        folder: Path,
        given: Input,
        outputs: list[Output],
        kafka: Kafka,
        postgres: Postgres,
        seed: int,
        engines: Sequence[str] = (SPARK,),
    ):
        # What starts of the job choose from, and how many have chosen each.
        self.engines, self.starts = engines, Counter[str]()
        self.folder, self.given, self.looks = folder, given, [Looks(output) for output in outputs]
        self.kafka, self.postgres, self.random = kafka, postgres, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self._done = Event()
        self._failed: list[BaseException] = []
        (folder / "udfs").mkdir()
        (folder / "proof.sql").write_text(main_script(given, outputs))
        self._start()

    def _start(self) -> None:
        self.engine = self.random.choice(self.engines)
        self.starts[self.engine] += 1
        command = [sys.executable, "-m", "sqlstream", "run", "--engine", self.engine, "proof.sql"]
        with (self.folder / "job.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _version(self) -> int:
        warehouse = Warehouse(str(self.folder / "warehouse"))
        found = last_committed(warehouse.fs, warehouse.job("proof"))
        return -1 if found is None else found

    def run(self, kills: int) -> None:
        """Kill each kind so often, in the order and at the moments of the seed, while rows come and readers look."""
        threads = [Thread(target=self._kept, args=(step,), daemon=True) for step in (self._feed, self._look)]
        for thread in threads:
            thread.start()
        try:
            order = [kind for kind in (JOB, WORKER, SERVER) for _ in range(kills)]
            self.random.shuffle(order)
            for kind in order:
                self._await_batches(1)
                time.sleep(self.random.uniform(0, 1.0))
                self._kill(kind)
                click.echo(f"  {self.given.name}: {sum(self.kills.values())} kills, the last one of a {kind}")
            self._await_batches(2)
        finally:
            self._done.set()
            for thread in threads:
                thread.join(SECONDS)
        if self._failed:
            raise self._failed[0]
        expected = self.given.rows
        wait_until(lambda: self._lives() and self._is_complete(expected))
        kill_family(self.process)

    def _is_complete(self, expected: set[tuple[int, int]]) -> bool:
        # To look at a sink costs what the job needs.
        time.sleep(1.0)
        return all(look.is_complete(expected) for look in self.looks)

    def _lives(self) -> bool:
        """Start the job again where it has ended, as an operator's supervisor does."""
        if self.process.poll() is not None:
            self.kills["ended by itself"] += 1
            self._start()
        return True

    def _await_batches(self, count: int) -> None:
        before = self._version()
        wait_until(lambda: self._lives() and self._version() >= before + count)

    def _kill(self, kind: str) -> None:
        # Without Spark there are no workers.
        if kind == JOB or (kind == WORKER and self.engine == LOCAL):
            kill_family(self.process)
            self._start()
        elif kind == WORKER:
            wait_until(self._killed_worker)
        else:
            server = self.kafka if self.random.random() < 0.5 else self.postgres
            server.kill()
        self.kills[kind] += 1

    def _killed_worker(self) -> bool:
        self._lives()
        try:
            found = children_of(self.process.pid, WORKERS)
            # The daemon that forks them has the same command line; Spark does without it, and so would this program.
            workers = [worker for worker in found if worker.parent() in found]
            if workers:
                self.random.choice(workers).kill()
        except psutil.NoSuchProcess:
            return False
        return bool(workers)

    def _kept(self, step: object) -> None:
        try:
            assert callable(step)
            while not self._done.is_set():
                step()
        except BaseException as error:
            self._failed.append(error)

    def _feed(self) -> None:
        self.given.more()
        time.sleep(0.2)

    def _look(self) -> None:
        for look in self.looks:
            look.look()
        time.sleep(1.0)


def input_of(name: str, folder: Path, kafka: Kafka, postgres: Postgres) -> Input:
    match name:
        case "kafka":
            return Messages(kafka)
        case "files":
            return Files(folder / "in")
        case _:
            return Changes(postgres)


def outputs_of(folder: Path, kafka: Kafka, postgres: Postgres, changes: bool) -> list[Output]:
    """Return all sinks; files take no changes."""
    found: list[Output] = [Topic(kafka, changes), PostgresTable(postgres, changes), Delta(folder / "delta", changes)]
    found += [Iceberg(folder / "iceberg", changes), WarehouseTable(folder / "warehouse", changes)]
    return found if changes else [*found, ParquetFiles(folder / "files")]


@click.command()
@click.option(
    "--kills",
    type=int,
    help="How often each is killed: the job, a worker, a server (20); of savepoints a step (3), in a scenario (25).",
)
@click.option("--source", "sources", multiple=True, type=click.Choice(SOURCES), help="Which sources; all unless given.")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--savepoints", is_flag=True, help="Kill savepoints, restores, forks, upgrades .. of each kind of operator."
)
@click.option("--kind", "kinds", multiple=True, help="With --savepoints: of this kind alone (can be repeated).")
@click.option("--step", "steps", multiple=True, help="With --savepoints: in this step alone (can be repeated).")
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    type=click.Choice([*SCENARIOS, "all"]),
    help="Kill a job of this kind after a batch of each process, so often (25).",
)
@click.option(
    "--spark", is_flag=True, help="With --savepoints, --scenario: jobs run on Spark, not in their own process."
)
@click.option(
    "--engine",
    type=click.Choice([*ENGINES, "both"]),
    default=SPARK,
    help="Of the copying jobs: what runs them; of both each start takes one.",
)
def main(
    kills: int | None,
    sources: tuple[str, ...],
    seed: int,
    savepoints: bool,
    kinds: tuple[str, ...],
    steps: tuple[str, ...],
    scenarios: tuple[str, ...],
    spark: bool,
    engine: str,
) -> None:
    """Run the proof, and print its table."""
    of_work = SPARK if spark else LOCAL
    if scenarios:
        chosen = tuple(SCENARIOS) if "all" in scenarios else scenarios
        sys.exit(not prove_scenarios(kills or 25, seed, chosen, of_work))
    if savepoints:
        sys.exit(not prove(kills or 3, seed, kinds, steps, of_work))
    engines = ENGINES if engine == "both" else (engine,)
    kills = kills or 20
    lines = ["| from | into | kills: job, worker, server | looks | result |", "|---|---|---|---|---|"]
    wrong = False
    for name, number in zip(sources or SOURCES, itertools.count(seed)):
        # PostgreSQL's socket wants a short path.
        folder = Path(tempfile.mkdtemp(prefix="proof-"))
        begun = time.monotonic()
        with servers(folder) as (kafka, postgres):
            project = folder / "project"
            project.mkdir()
            given = input_of(name, folder, kafka, postgres)
            outputs = outputs_of(project, kafka, postgres, given.changes)
            proof = Proof(project, given, outputs, kafka, postgres, number, engines)
            try:
                proof.run(kills)
            except BaseException:
                click.echo(f"what is left is in {folder}")
                kill_family(proof.process)
                raise
            expected = given.rows
            counts = ", ".join(str(proof.kills[kind]) for kind in (JOB, WORKER, SERVER))
            for look in proof.looks:
                fault = look.judge(expected)
                wrong = wrong or bool(fault)
                result = fault or f"{len(expected):,} rows, each once"
                lines.append(f"| {name} | {look.output.name} | {counts} | {look.looks} | {result} |")
            click.echo(
                f"{name}: {time.monotonic() - begun:.0f} s, the job ended by itself {proof.kills['ended by itself']} "
                f"times, starts: {', '.join(f'{count} {engine}' for engine, count in sorted(proof.starts.items()))}"
            )
        shutil.rmtree(folder, ignore_errors=True)
    click.echo("\n".join(lines))
    sys.exit(wrong)


if __name__ == "__main__":
    main()
