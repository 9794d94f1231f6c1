"""The queries of examples/nexmark over Parquet files of its events: how many a system had read when.

python -m tests.bench.nexmark '{"query": "q5", "events": 2000000, ...}'  prints a NexmarkRun as JSON
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.catalog import Table
from sqlstream.connectors.nexmark.source import COLUMNS, Settings, events
from sqlstream.storage.snapshot import JobHistory
from sqlstream.warehouse.paths import Warehouse
from tests.bench.child import answer
from tests.bench.rates import Point, Rate, log_points, passes, steady_clock, warm_rate
from tests.bench.throughput import options_of
from tests.kinds import job_of

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "nexmark"
QUERIES = tuple(f"q{number}" for number in range(24))
BASE_TIME = "2026-01-01 00:00:00"
RATE = 10_000
# Events of a query, so that the slower one of sqlstream and Flink works for a minute or more on two cores.
MILLION = 1_000_000
EVENTS = {
    **dict.fromkeys(QUERIES, 20 * MILLION),
    **dict.fromkeys(("q3", "q8", "q14", "q21", "q22"), 40 * MILLION),
    **dict.fromkeys(("q0", "q1", "q2"), 80 * MILLION),
    **dict.fromkeys(("q4", "q6", "q7", "q9", "q15", "q18", "q19", "q20"), 8 * MILLION),
    "q16": 4 * MILLION,
    # With 8 million the join on the heap of Flink had not ended after seven minutes.
    "q23": 3 * MILLION,
}
# Events of a file, and files of a batch.
EVENTS_PER_FILE = 250_000


@dataclass(frozen=True, slots=True)
class Task:
    """A query, the system, the folder of files with its events, how many there are, and where it may write."""

    query: str
    system: str
    data: str
    events: int
    files_per_batch: int
    cores: int
    folder: str


@dataclass(frozen=True, slots=True)
class NexmarkRun:
    """How many events a system had read when, and the seconds of its whole process; no points of a query that it refuses.

    Warm are the events after the first quarter, on each system.
    """

    points: list[tuple[int, float]]
    whole_seconds: float

    def rate(self, events: int) -> Rate | None:
        """Return the rate once warm, None of a query that the system refuses; raises UnfitRunError."""
        if not self.points:
            return None
        return warm_rate((Point(rows, seconds) for rows, seconds in self.points), events, self.whole_seconds)


def kept(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder, which is filled now unless it is there."""
    if not folder.exists():
        making = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        make(making)
        making.rename(folder)
    return folder


def task_of(query: str, system: str, events: int, root: Path, cores: int, folder: Path) -> Task:
    """Return a task over files in `root`, which are made now unless they are there."""
    batch = MILLION if events >= 20 * MILLION else MILLION // 2
    files = max(4, events // EVENTS_PER_FILE)
    return Task(
        query,
        system,
        str(nexmark_files(root, events, files)),
        events,
        max(1, batch * files // events),
        cores,
        str(folder),
    )


def nexmark_files(root: Path, count: int, files: int) -> Path:
    """Return a folder of the generator's events as Parquet files, made now unless it is there."""
    return kept(root / f"nexmark-{count}-{files}", lambda folder: _write_files(folder, count, files))


def _write_files(folder: Path, count: int, files: int) -> None:
    options = {"connector": "nexmark", "events.num": str(count), "first-event.rate": str(RATE), "base-time": BASE_TIME}
    settings = Settings.of(Table("nexmark", COLUMNS, options=options))
    assert settings.base is not None
    for number in range(files):
        path = folder / f"part-{number:05d}.parquet"
        first, end = number * count // files, (number + 1) * count // files
        pq.write_table(pa.Table.from_batches(events(settings, first, end, settings.base)), path)
        os.utime(path, (1_000_000_000 + number,) * 2)


def script(query: str, columns: str = "", options: str = "") -> str:
    """Return the script of a query, which writes into a `blackhole`, as the benchmark does.

    With `columns` and `options` the events are not those of the generator, but those of such a table.
    """
    tables = (EXAMPLE / "tables.sql").read_text()
    if options:
        tables = re.sub(
            r"WITH \(\s*'connector' = 'nexmark'.*?\n\);", f"WITH ({options});", tables, count=1, flags=re.DOTALL
        )
        tables = tables.replace("CREATE TABLE nexmark (", f"CREATE TABLE nexmark ({columns},", 1)
    asked = (EXAMPLE / f"{query}.sql").read_text()
    sink = rf"(CREATE TABLE {query} \((?:(?!WITH \()[^;])*\));"
    return f"{tables}\n" + re.sub(sink, r"\1 WITH ('connector' = 'blackhole');", asked)


def _script(task: Task) -> str:
    options = f"""'connector' = 'filesystem', 'format' = 'parquet', 'path' = '{task.data}',
        'source.max-files-per-batch' = '{task.files_per_batch}', 'source.max-bytes-per-batch' = '10 GB'"""
    text = script(task.query, ", ".join(f"`{c.name}` {c.type}" for c in COLUMNS), options)
    return f"SET 'sqlstream.unbounded-state' = 'allow';\n{text}"


def measure(task: Task) -> NexmarkRun:
    """Run a task in this process."""
    from sqlstream import Session

    folder = Path(task.folder)
    shutil.copytree(ROOT / "udfs", folder / "project" / "udfs")
    os.environ |= {
        "NEXMARK_EVENTS": str(task.events),
        "NEXMARK_RATE": str(RATE),
        "NEXMARK_OUT": str(folder / "out"),
    }
    warehouse = str(folder / "warehouse")
    begun, monotonic = time.time(), time.monotonic()
    os.chdir(ROOT)
    with (
        steady_clock(),
        Session(str(folder / "project"), warehouse, options_of(task.system, task.cores)) as session,
    ):
        job = job_of(session.sql(_script(task)))
        job.wait()
        name = job.name
    whole = time.monotonic() - monotonic
    points = passes(log_points(JobHistory(Warehouse(warehouse), name).entries, begun), task.events)
    return NexmarkRun([(point.rows, point.seconds) for point in points], whole)


if __name__ == "__main__":
    answer(Task, measure)
