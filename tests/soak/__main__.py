"""Let a server, jobs and clients run for a while, kill at random, see that nothing is lost and nothing grows (`make soak`).

A server runs three jobs: windows on Spark, an interval join, and ranks over totals that change. Files come in at a steady rate.
Clients query live state and old versions all the time, over HTTP, PostgreSQL's protocol and in this process; metrics are scraped,
and events are listened to as a page does. In the first half jobs, their workers and the server are killed with SIGKILL. In the
second half nothing is, and memory and files must not grow. In the end the jobs have written what DuckDB answers over all input.

With `--batches` it runs thousands of small batches instead, of one job, and says what its folder holds and what a batch takes.
With `--queries` it is queried meanwhile, and memory and descriptors must stay.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console

from tests.soak.batches import run_batches
from tests.soak.report import judge, show, write
from tests.soak.running import Plan, Soak
from tests.soak.workload import JOBS

ROOT = Path(__file__).parents[2]


@click.command()
@click.option(
    "--minutes", default=10.0, show_default=True, help="How long it lasts, without its beginning and its end."
)
@click.option("--seed", default=1, show_default=True, help="What is killed, and when.")
@click.option("--rows", default=400, show_default=True, help="Orders in a second.")
@click.option(
    "--spark", default=1, show_default=True, type=click.IntRange(0, len(JOBS)), help="Jobs that run on Spark."
)
@click.option("--kill-every", default=10.0, show_default=True, help="Seconds between two kills, on average.")
@click.option(
    "--calm", default=0.5, show_default=True, help="The part of the time, at the end, in which nothing is killed."
)
@click.option("--page", is_flag=True, help="Have the page open in Chromium, too (`make chromium`).")
@click.option("--output", default=ROOT / "bench-results", type=click.Path(path_type=Path), help="Where the JSON goes.")
@click.option("--batches", metavar="N,..", help="Small batches instead: when to look, such as 300,1000,5000.")
@click.option("--queries", is_flag=True, help="With --batches: query the job meanwhile; its processes must not grow.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where to work; it is kept.")
def main(
    minutes: float,
    seed: int,
    rows: int,
    spark: int,
    kill_every: float,
    calm: float,
    page: bool,
    output: Path,
    batches: str | None,
    queries: bool,
    folder: Path | None,
) -> None:
    """Let jobs run for a while, kill at random, and see that nothing is lost and nothing grows."""
    if batches is not None:
        run_batches(batches, folder, with_queries=queries)
        return
    chosen = folder or Path(tempfile.mkdtemp(prefix="sqlstream-soak-"))
    chosen.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    def told(text: str) -> None:
        click.echo(f"{time.monotonic() - began:7.1f} s  {text}")

    # Whoever ends it ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    told(f"seed {seed}, in {chosen}")
    plan = Plan(minutes * 60, seed, rows, spark, kill_every, calm, page)
    soak = Soak(plan, chosen, told)
    soak.run()
    failures = judge(soak)
    show(soak, failures, Console(width=None if sys.stdout.isatty() else 150))
    path = output / f"soak-{datetime.now():%Y%m%d-%H%M%S}.json"
    write(soak, failures, path)
    told(f"written: {path}")
    if failures:
        told(f"what is left is in {chosen}")
    elif folder is None:
        shutil.rmtree(chosen, ignore_errors=True)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
