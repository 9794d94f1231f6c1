"""Measure what it costs that the order of arrival decides ties: ranks and OVER by arrival beside the same by columns.

python -m tests.bench.ties [--rows 3200000] [--only last_p]

Both rules run in this process, in turns, over the same files. What counts is the time of all processors, which other programs
disturb less than a clock: the ratio is that of a pair of runs, one by each rule, and the table has the median of all pairs. The
rule by columns is that of jobs that earlier versions began; it reads no places, and compares rows that tie by all their columns.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sqlstream import Session
from sqlstream.errors import SourceText
from sqlstream.local.engine import LocalEngine
from sqlstream.logical.plan.state_settings import Ties
from tests.bench.data import COLUMNS, DELAY_SECONDS, MANY_KEYS, Dataset, dataset
from tests.bench.lengths import WINDOW, interval
from tests.kinds import jobs_of

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = "result"
RULES: tuple[Ties, Ties] = ("columns", "arrival")


def _first(order: str, limit: int, source: str = "bids", keys: str = "auction") -> str:
    return f"""
    SELECT auction, bidder, price, channel, ts FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {order}) AS place FROM {source}) WHERE place <= {limit}"""


_WINDOWS = f"TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), {interval(WINDOW)}))"
WORKS: Mapping[str, tuple[str, str]] = {
    "first_p": ("the first row of a key by PROCTIME()", _first("p", 1)),
    "last_p": ("the last row of a key by PROCTIME()", _first("p DESC", 1)),
    "last_ts": ("the last row of a key by event time", _first("ts DESC", 1)),
    "top_3": ("the 3 highest rows of a key", _first("price DESC", 3)),
    "window_top_3": (
        "the 3 highest rows of a window and key",
        _first("price DESC", 3, _WINDOWS, "window_start, window_end, auction"),
    ),
    "over": (
        "a sum OVER the last 3 rows of a key",
        """SELECT auction, bidder, SUM(price) OVER (PARTITION BY auction ORDER BY ts ROWS 2 PRECEDING) AS price,
        channel, ts FROM bids""",
    ),
}
console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class TiesRun:
    """The seconds of all processors and of a clock that a job took from its start to its end, and the rows of its result."""

    processors: float
    clock: float
    rows: int


@click.command()
@click.option("--rows", default=3_200_000, show_default=True, help="Rows of the data set.")
@click.option("--batches", default=8, show_default=True, help="Micro-batches that they come in, of one file each.")
@click.option("--files", default=1, show_default=True, help="Files of a batch.")
@click.option("--repeat", default=5, show_default=True, help="Pairs of runs of each work.")
@click.option("--only", multiple=True, type=click.Choice(list(WORKS)), help="Works (default: all).")
@click.option(
    "--data", default=ROOT / ".demo" / "bench", type=Path, help="Where the data is made, once, and runs write."
)
def main(rows: int, batches: int, files: int, repeat: int, only: tuple[str, ...], data: Path) -> None:
    """Compare the rules in each work."""
    data.mkdir(parents=True, exist_ok=True)
    source = dataset(data, rows, MANY_KEYS, batches * files, WINDOW)
    table = Table(title=f"{source.rows:,} rows in {batches} batches, {repeat} pairs of runs", title_justify="left")
    for name in ("work", "by columns", "by arrival", "ratio (median)", "least", "greatest"):
        table.add_column(name, justify="left" if name == "work" else "right")
    folder = Path(tempfile.mkdtemp(prefix="ties-", dir=data))
    for name in only or WORKS:
        pairs = [_pair(name, source, files, folder, turned=number % 2 == 1) for number in range(repeat + 1)][1:]
        ratios = sorted(arrival.processors / columns.processors for columns, arrival in pairs)
        seconds = [f"{statistics.median(pair[place].processors for pair in pairs):.2f} s" for place in (0, 1)]
        cells = [*seconds, *(f"{ratio:.3f}" for ratio in (statistics.median(ratios), ratios[0], ratios[-1]))]
        table.add_row(WORKS[name][0], *cells)
        console.print(f"{time.strftime('%H:%M:%S')} {name}", *cells, f"load {os.getloadavg()[0]:.1f}")
    shutil.rmtree(folder)
    console.print(table)


def _pair(name: str, source: Dataset, files: int, folder: Path, *, turned: bool) -> tuple[TiesRun, TiesRun]:
    """Run a work by both rules, by arrival first if `turned`; return the run by columns, then that by arrival."""
    order = reversed(RULES) if turned else RULES
    runs = {ties: run(name, ties, source, files, folder / f"{name}-{ties}") for ties in order}
    columns, arrival = (runs[ties] for ties in RULES)
    # Which rows tie differs, but not how many there are.
    if columns.rows != arrival.rows:
        raise RuntimeError(f"the rules do not agree on the rows of {name}: {columns.rows} and {arrival.rows}")
    return columns, arrival


def run(name: str, ties: Ties, source: Dataset, files: int, folder: Path) -> TiesRun:
    """Run a work by one rule in this process, from an empty `folder`, which is removed afterwards."""
    folder.mkdir(parents=True)
    with Session(str(folder), conf={"execution.checkpointing.interval": "0 s"}, notice=lambda text: None) as session:
        script = SourceText("bench", _script(name, source.folder, files))
        [planned] = jobs_of([one for one in session.compile(script) if one is not None])
        if not planned.depends_on_ties:
            raise RuntimeError(f"no rows tie in {name}")
        spent, began = time.process_time(), time.perf_counter()
        job = session._jobs.start(replace(planned.decided_by(ties), name=OUTPUT), {}, engine=LocalEngine())
        job.wait()
        processors, clock = time.process_time() - spent, time.perf_counter() - began
        [(count,)] = session.query(f"SELECT count(*) FROM {OUTPUT}").fetchall()
    shutil.rmtree(folder)
    return TiesRun(processors, clock, count)


def _script(name: str, path: Path, files: int) -> str:
    columns = ", ".join(f"{column} {type}" for column, type in COLUMNS.items())
    key = ", PRIMARY KEY (auction) NOT ENFORCED" if name in ("first_p", "last_p", "last_ts") else ""
    return f"""
    CREATE TABLE bids ({columns}, p AS PROCTIME(), WATERMARK FOR ts AS ts - {interval(DELAY_SECONDS)})
    WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet',
          'source.max-files-per-batch' = '{files}', 'source.max-bytes-per-batch' = '10 GB');
    CREATE TABLE {OUTPUT} ({columns}{key});
    SET 'sqlstream.unbounded-state' = 'allow';
    INSERT INTO {OUTPUT} {WORKS[name][1]}"""


if __name__ == "__main__":
    main()
