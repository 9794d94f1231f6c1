"""Run the flights of January and three Nexmark queries on a Spark cluster, and kill its workers (`make cluster-demo`).

Everything runs here first, then on the cluster with the warehouse in a folder that all its processes see, then with the warehouse
in a store that speaks S3. The results must be the same. All files are in .demo/cluster at the root of the project.
"""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from sqlstream.queries.query import open_query
from sqlstream.spark.clusters import CHECKPOINT
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from tests.cluster.standalone import StandaloneCluster, standalone_cluster
from tests.demo_parts import PartFailed, start
from tests.stores.server import S3Server

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / ".demo" / "cluster"
PROJECT = DEMO / "project"
EXAMPLES = ROOT / "examples"
SECONDS = 300.0
console = Console(highlight=False)


@dataclass(frozen=True)
class Work:
    """Some scripts of an example: which jobs and tables they have, and what is set for them to have a middle."""

    name: str
    scripts: tuple[str, ...]
    jobs: tuple[str, ...]
    tables: tuple[str, ...]
    arguments: tuple[str, ...]


FLIGHTS = Work(
    "flights",
    ("flights/departures.sql", "flights/delay_bands.sql", "flights/weather.sql"),
    ("departures", "delay_bands", "weather"),
    ("departures", "delay_bands", "weather_delays", "weather_as_of"),
    ("flights.source.max-files-per-batch=2", "weather.source.max-files-per-batch=2"),
)
NEXMARK = Work(
    "nexmark",
    ("nexmark/tables.sql", "nexmark/q5.sql", "nexmark/q9.sql", "nexmark/q20.sql"),
    ("q5", "q9", "q20"),
    ("q5", "q9", "q20"),
    ("nexmark.rate.limited=true",),
)


def say(text: str, style: str = "") -> None:
    console.print(Text(text, style), soft_wrap=True)


def run(work: Work, warehouse: str, settings: Sequence[str], cluster: StandaloneCluster | None) -> None:
    """Run the scripts to their end; on a cluster a worker is killed in the middle, and another one takes its place."""
    words = [str(EXAMPLES / script) for script in work.scripts]
    place = ("--project", PROJECT, "--warehouse", warehouse)
    tables = [word for one in work.arguments for word in ("--set-table", one)]
    command = (sys.executable, "-m", "sqlstream", "run", *words, *place, *settings, *tables)
    say(
        f"$ sqlstream run {' '.join(f'examples/{s}' for s in work.scripts)} --warehouse {warehouse} {' '.join(settings)}",
        "bold",
    )
    began = time.monotonic()
    with start(command, DEMO / f"{work.name}.log", say, os.environ, began + SECONDS) as part:
        if cluster is not None:
            part.wait_until("some versions of a job", lambda: max(versions(warehouse, work)) >= 2)
            victim = cluster.workers[-1]
            executors = [one.pid for one in cluster.executors()]
            victim.kill()
            say(f"executors {executors}: killed worker {victim.pid} at versions {versions(warehouse, work)}", "yellow")
            cluster.start_worker()
        part.wait(0)
    at = dict(zip(work.jobs, versions(warehouse, work), strict=True))
    say(f"done in {time.monotonic() - began:.0f} s, versions {at}\n", "dim")


def versions(warehouse: str, work: Work) -> list[int]:
    """Return the last version of each job, -1 where there is none."""
    found = Warehouse(warehouse)
    there = {name.lower() for name in found.jobs()}
    last = [last_committed(found.fs, found.job(job)) if job in there else None for job in work.jobs]
    return [-1 if one is None else one for one in last]


def compare(work: Work, warehouse: str, expected: str) -> None:
    """Raise ClickException unless two warehouses have the same rows."""
    for table in work.tables:
        found, wanted = (Counter(open_query(Warehouse(at), f"FROM {table}").fetchall()) for at in (warehouse, expected))
        if found != wanted:
            raise click.ClickException(
                f"{table}: {len(found - wanted)} rows too many, {len(wanted - found)} are missing"
            )
        say(f"{table}: the {found.total():,} rows of the local run", "green")


def prepare() -> None:
    """Make a project with January's flights, whose tables end."""
    shutil.rmtree(DEMO, ignore_errors=True)
    runpy.run_path(str(EXAMPLES / "flights" / "prepare.py"))["prepare"](PROJECT / ".demo" / "stream", 31)
    shutil.copytree(ROOT / "udfs", PROJECT / "udfs")
    (PROJECT / "catalog").mkdir()
    declared = (ROOT / "catalog" / "flights.sql").read_text()
    bounded = declared.replace(
        "'format' = 'parquet',\n    'source.monitor-interval' = '1 s'\n", "'format' = 'parquet'\n"
    )
    (PROJECT / "catalog" / "flights.sql").write_text(bounded)


def demo(checkpoint: str | None, jars: str | None) -> None:
    prepare()
    local, shared = str(DEMO / "local"), str(DEMO / "shared")
    parallel = ("--set", "parallelism.default=2")
    console.rule("1. On this machine alone", align="left")
    for work in (FLIGHTS, NEXMARK):
        run(work, local, parallel, None)
    with standalone_cluster(DEMO / "spark") as cluster:
        console.rule("2. On a Spark cluster, with the warehouse in a folder that all its machines see", align="left")
        say(f"a master and two workers of one core each; its page: {cluster.web}\n", "bold cyan")
        settings = (*parallel, *cluster.arguments)
        for work in (FLIGHTS, NEXMARK):
            run(work, shared, settings, cluster)
            compare(work, shared, local)
        console.rule("3. On the cluster, with the warehouse in a store that speaks S3", align="left")
        server = S3Server()
        try:
            # As a user exports them. The cluster's workers were started without.
            os.environ |= {**server.environment, "SQLSTREAM_CACHE": str(DEMO / "cache")}
            bucket = server.bucket()
            scratch = checkpoint.format(bucket=bucket.removeprefix("s3://")) if checkpoint else str(DEMO / "scratch")
            more = [f"{CHECKPOINT}={scratch}", f"spark.executorEnv.SQLSTREAM_CACHE={DEMO / 'cache'}"]
            more += [f"spark.jars={jars}"] if jars else []
            for work in (FLIGHTS, NEXMARK):
                run(work, f"{bucket}/warehouse", (*settings, *(w for m in more for w in ("--set", m))), cluster)
                compare(work, f"{bucket}/warehouse", local)
        finally:
            server.close()
    say("\nall results are those of the local run; the cluster has ended", "bold green")


@click.command()
@click.option(
    "--checkpoint", help="Spark's checkpoint in part 3, such as s3a://{bucket}/scratch; default: a shared folder"
)
@click.option("--jars", help="jars for it, separated by commas")
def main(checkpoint: str | None, jars: str | None) -> None:
    """Run jobs on a standalone cluster, kill workers, and compare the results with local runs."""
    # As an exception, the signal passes through every `finally` on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        demo(checkpoint, jars)
    except PartFailed as failure:
        raise click.ClickException(str(failure)) from None


if __name__ == "__main__":
    main()
