"""The queries of examples/nexmark: events a second once warm, from the built-in generator and from Parquet files.

python -m tests.bench.nexmark '{"query": "q5", "source": "generator", "events": 2000000, ...}'  prints a NexmarkRun as JSON
"""

from __future__ import annotations

import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.catalog import Table
from sqlstream.connectors.nexmark.source import COLUMNS, Settings, events
from sqlstream.storage.snapshot import JobHistory
from sqlstream.units import Duration, seconds
from sqlstream.warehouse.paths import Warehouse
from tests.bench.child import answer
from tests.kinds import job_of

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "nexmark"
GENERATOR, PARQUET = "generator", "Parquet"
SOURCES = (GENERATOR, PARQUET)
QUERIES = tuple(f"q{number}" for number in range(24))
BASE_TIME = "2026-01-01 00:00:00"
RATE = 10_000


@dataclass(frozen=True, slots=True)
class Task:
    """A query, where its events come from (a folder of files, for Parquet), how many there are, and where it may write."""

    query: str
    source: str
    data: str
    events: int
    files_per_batch: int
    cores: int
    folder: str


@dataclass(frozen=True, slots=True)
class NexmarkRun:
    """Events a second once warm (None of a query that the system refuses), and the seconds of the whole run.

    Warm are the batches after the first quarter, on Flink all after the first.
    """

    events_per_second: float | None
    whole_seconds: float


def nexmark_files(root: Path, count: int, files: int) -> Path:
    """Return a folder of the generator's events as Parquet files, made now unless it is there."""
    folder = root / f"nexmark-{count}-{files}"
    if folder.exists():
        return folder
    making = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    options = {"connector": "nexmark", "events.num": str(count), "first-event.rate": str(RATE), "base-time": BASE_TIME}
    settings = Settings.of(Table("nexmark", COLUMNS, options=options))
    assert settings.base is not None
    for number in range(files):
        path = making / f"part-{number:05d}.parquet"
        first, end = number * count // files, (number + 1) * count // files
        pq.write_table(pa.Table.from_batches(events(settings, first, end, settings.base)), path)
        os.utime(path, (1_000_000_000 + number,) * 2)
    making.rename(folder)
    return folder


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
    text = script(task.query)
    if task.source == PARQUET:
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
    begun = time.time()
    os.chdir(ROOT)
    with Session(str(folder / "project"), warehouse, {"parallelism.default": str(task.cores)}) as session:
        job = job_of(session.sql(_script(task)))
        job.wait()
        name = job.name
    whole = time.time() - begun
    entries = [e for e in JobHistory(Warehouse(warehouse), name).entries if e.rows_in]
    warm = max(1, len(entries) // 4)
    rows, taken = sum(e.rows_in for e in entries[warm:]), entries[-1].committed_at - entries[warm - 1].committed_at
    return NexmarkRun(rows / seconds(Duration(taken)), whole)


if __name__ == "__main__":
    answer(Task, measure)
