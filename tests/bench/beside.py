"""Measure this checkout of sqlstream beside another one, in one run (`make bench BESIDE=../other`).

Machines are shared and their speed drifts, so the two take turns on each work, the first of a pair being the second of the
next, and each pair gives a ratio. What is printed is the median of the ratios with the least and the greatest of them: above
1 this checkout is faster. Both must give the same result. The other checkout needs its `.venv` with the benchmark's packages
(`make .venv/.bench` there); each is measured by its own copy of `tests/bench`, over the same files.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tests.bench import changing, joining, latency, throughput
from tests.bench.changing_work import changing_data, changing_works_of
from tests.bench.commits import MAX_BATCHES
from tests.bench.data import dataset
from tests.bench.join_work import join_data, join_works_of
from tests.bench.memory import run_measured
from tests.bench.throughput import SQLSTREAM
from tests.bench.work import works_of

ROOT = Path(__file__).resolve().parents[2]
LATENCIES = "smallest_batch"
# One of each kind of operator.
DEFAULT = ("stateless", "tumbling_many", "hopping_few", "session_many", "group_by_few_some", "interval_join", LATENCIES)
SMALL_FILES, SMALL_WARM_UP = 45, 15

console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: how long it took in a unit of its own (seconds a row, or milliseconds a batch), and its result."""

    cost: float
    shown: str
    summary: tuple[Any, ...]


# Runs a work once in a checkout.
Run = Callable[[Path], Measured]


@click.command()
@click.argument("other", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--rows", default=6_000_000, show_default=True, help="Rows of each data set.")
@click.option("--batches", default=12, show_default=True, help="Micro-batches that they come in.")
@click.option("--repeat", default=5, show_default=True, help="Pairs of runs of each work.")
@click.option("--only", multiple=True, help=f"Works or groups of them (default: {', '.join(DEFAULT)}).")
@click.option(
    "--data", default=ROOT / ".demo" / "bench", type=Path, help="Where the data is made, once, and runs write."
)
def main(other: Path, rows: int, batches: int, repeat: int, only: tuple[str, ...], data: Path) -> None:
    """Compare this checkout with OTHER."""
    if not 4 <= batches <= MAX_BATCHES:
        raise click.UsageError(f"--batches must be from 4 to {MAX_BATCHES}")
    data.mkdir(parents=True, exist_ok=True)
    bench = _Beside(data.resolve(), rows, batches)
    table = Table(title=f"{ROOT} beside {other.resolve()}, {repeat} pairs of runs", title_justify="left")
    for name in ("work", "this one", "the other", "faster by (median)", "least", "greatest"):
        table.add_column(name, justify="left" if name == "work" else "right")
    for title, run in bench.works(only or DEFAULT).items():
        pairs = [_pair(run, other.resolve(), number) for number in range(repeat)]
        ratios = sorted(theirs.cost / ours.cost for ours, theirs in pairs)
        middle = sorted(pairs, key=lambda pair: pair[0].cost)[repeat // 2]
        cells = [f"{ratio:.3f}" for ratio in (statistics.median(ratios), ratios[0], ratios[-1])]
        table.add_row(title, middle[0].shown, middle[1].shown, *cells)
        console.print(title, *cells)
    shutil.rmtree(bench.runs)
    console.print(table)


def _pair(run: Run, other: Path, number: int) -> tuple[Measured, Measured]:
    """Run a work in both checkouts, in turns; return this one's run and the other's."""
    if number % 2:
        theirs, ours = run(other), run(ROOT)
    else:
        ours, theirs = run(ROOT), run(other)
    if ours.summary != theirs.summary:
        raise RuntimeError(f"the checkouts do not agree: {ours.summary} and {theirs.summary}")
    return ours, theirs


class _Beside:
    """The works, each as something that runs in one checkout."""

    def __init__(self, data: Path, rows: int, batches: int):
        self.data, self.rows, self.batches = data, rows, batches
        self.cores = os.cpu_count() or 1
        # Of this run alone; it stays behind when something fails, with the log in it.
        self.runs = Path(tempfile.mkdtemp(prefix="beside-", dir=data))

    def works(self, names: tuple[str, ...]) -> Mapping[str, Run]:
        """Return the named works by their titles."""
        found: dict[str, Run] = {}
        for work in works_of(names):
            source = dataset(self.data, self.rows, work.keys, self.batches * self.cores, work.seconds)
            found[work.title] = self._rows_per_second(
                "throughput",
                throughput.Task(
                    system=SQLSTREAM,
                    work=work.name,
                    data=str(source.folder),
                    rows=source.rows,
                    files=source.files,
                    closed_until=source.closed_until,
                    batches=self.batches,
                    warm_up=max(2, self.batches // 4),
                    cores=self.cores,
                    folder=str(self.runs / work.name),
                ),
            )
        for change in changing_works_of(names):
            files = str(changing_data(self.data, change, self.cores))
            task = changing.Task(SQLSTREAM, change.name, files, self.cores, str(self.runs / change.name))
            found[change.title] = self._milliseconds("changing", asdict(task))
        for join in join_works_of(names):
            rows, per_batch = self.rows * 3 // 10, self.rows // self.batches
            inputs = join_data(self.data, join, rows, max(4, rows * len(join.inputs) // per_batch), self.cores)
            found[join.title] = self._rows_per_second(
                "joining",
                joining.Task(
                    SQLSTREAM,
                    join.name,
                    str(inputs.folder),
                    inputs.batches,
                    inputs.rows_per_batch,
                    max(2, inputs.batches // 4),
                    self.cores,
                    str(self.runs / join.name),
                ),
            )
        if LATENCIES in names:
            small = latency.Task(SQLSTREAM, SMALL_FILES, SMALL_WARM_UP, self.cores, str(self.runs / "small"))
            found["smallest batch"] = self._milliseconds("latency", asdict(small))
        return found

    def _rows_per_second(self, module: str, task: throughput.Task | joining.Task) -> Run:
        def run(checkout: Path) -> Measured:
            values = self._run(checkout, module, asdict(task))
            speed = values["rows_per_second"]
            return Measured(1 / speed, f"{speed / 1e6:.2f} M rows/s", tuple(values["summary"]))

        return run

    def _milliseconds(self, module: str, task: dict[str, object]) -> Run:
        def run(checkout: Path) -> Measured:
            values = self._run(checkout, module, task)
            return Measured(values["batch_ms"], f"{values['batch_ms']:.0f} ms", tuple(values.get("summary", ())))

        return run

    def _run(self, checkout: Path, module: str, task: dict[str, object]) -> dict[str, Any]:
        python = str(checkout / ".venv" / "bin" / "python")
        command = [python, "-m", f"tests.bench.{module}", json.dumps(task)]
        output, _ = run_measured(command, self.runs / "log.txt", folder=checkout)
        shutil.rmtree(str(task["folder"]))
        values: dict[str, Any] = json.loads(output)
        return values


if __name__ == "__main__":
    main()
