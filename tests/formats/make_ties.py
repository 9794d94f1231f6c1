"""Write an archive of jobs that decide ties by columns: python tests/formats/make_ties.py FILE.zip

It has the project of `ties.sql` after two batches of each table on Spark, with a savepoint of each job, and in `expected.json`
what the version of sqlstream that is imported makes of these rows, and of those of one more batch. Versions in which the order of
arrival decides ties cannot write one: run it with a checkout of commit c01d66d0 or one before.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream import Session
from tests.formats.make import pack, wait

# The jobs, and the tables that they scan.
JOBS = {"ties": ("orders", "rates"), "ties_by_clock": ("orders", "orders"), "ties_keyed": ("orders",)}
SCRIPT = Path(__file__).with_name("ties.sql")
TABLES = re.findall(r"INSERT INTO (\w+)", SCRIPT.read_text())
EXPECTED = "expected.json"
CONF = {"execution.checkpointing.interval": "0 s", "parallelism.default": "2"}
Rows = Sequence[tuple[int, ...]]
# The rows of the results of each table, as text, in an order of their own.
Results = dict[str, list[str]]
COLUMNS = {"orders": ("customer", "amount", "number", "ts"), "rates": ("customer", "rate", "number", "ts")}
# The rows of three files of each table, in their order. Times are seconds, and never behind the watermark of the files before;
# rows of one time are in one file, and in two.
FILES: Mapping[str, Mapping[str, Rows]] = {
    "a": {
        "orders": [
            (1, 9, 0, 1),
            (1, 3, 1, 1),
            (1, 7, 2, 1),
            (2, 5, 3, 2),
            (2, 1, 4, 2),
            (1, 7, 5, 8),
            (2, 6, 6, 8),
            (2, 2, 7, 8),
        ],
        "rates": [(1, 9, 0, 1), (1, 3, 1, 1), (1, 7, 2, 1), (2, 20, 3, 2), (2, 15, 4, 2), (1, 11, 5, 8)],
    },
    "b": {
        "orders": [
            (1, 8, 8, 8),
            (1, 4, 9, 8),
            (3, 5, 10, 12),
            (3, 2, 11, 12),
            (2, 6, 12, 12),
            (1, 3, 13, 15),
            (2, 4, 14, 15),
        ],
        "rates": [(1, 10, 6, 8), (3, 50, 7, 12), (3, 40, 8, 12), (2, 21, 9, 15)],
    },
    "c": {
        "orders": [
            (1, 2, 15, 15),
            (1, 9, 16, 15),
            (2, 1, 17, 15),
            (3, 1, 18, 21),
            (3, 9, 19, 21),
            (4, 5, 20, 21),
            (4, 6, 21, 21),
            (5, 3, 22, 31),
            (5, 1, 23, 31),
        ],
        "rates": [(2, 5, 10, 15), (2, 8, 11, 15), (4, 60, 12, 20), (4, 61, 13, 20), (3, 30, 14, 35)],
    },
}


def put(folder: Path, name: str) -> None:
    """Write a file of each table where the jobs read it."""
    for table, rows in FILES[name].items():
        values: dict[str, Any] = dict(zip(COLUMNS[table], map(list, zip(*rows, strict=True)), strict=True))
        values["ts"] = pa.array([second * 1_000_000 for second in values["ts"]], pa.timestamp("us"))
        (folder / "in" / table).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(values), folder / f".{name}")
        (folder / f".{name}").rename(folder / "in" / table / f"{name}.parquet")


def rows_of(job: str, *names: str) -> int:
    """Return how many rows a job reads of some files."""
    return sum(len(FILES[name][table]) for name in names for table in JOBS[job])


def results(session: Session) -> Results:
    """Return what is in the tables."""
    return {table: sorted(map(repr, session.query(f"FROM {table}").fetchall())) for table in TABLES}


def run(folder: Path, files: Sequence[str], *, saves: bool = False) -> Results:
    """Let the jobs read more files, one after the other, take a savepoint of each, and return the results."""
    with Session(str(folder), conf=CONF) as session:
        names = sorted(path.stem for path in (folder / "in" / "orders").glob("*.parquet"))
        jobs: Any = ()
        for name in files:
            put(folder, name)
            names.append(name)
            if not jobs:
                session.sql(SCRIPT.read_text())
                jobs = list(session.jobs)
            for job in JOBS:
                wait(session, f"SELECT rows_in FROM sqlstream.jobs WHERE job = '{job}'", rows_of(job, *names))
        for job in jobs:
            job.stop()
            job.wait()
            if saves:
                job.savepoint(f"{job.name}_1")
        return results(session)


def write(folder: Path, archive: Path) -> None:
    """Run the jobs in a folder, and write the archive of it."""
    project, later = folder / "project", folder / "later"
    project.mkdir()
    before = run(project, ["a", "b"], saves=True)
    shutil.copytree(project, later)
    after = run(later, ["c"])
    (project / EXPECTED).write_text(json.dumps({"ab": before, "abc": after}, indent=1))
    pack(project, archive)


if __name__ == "__main__":
    print(inspect.getfile(Session))
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), Path(sys.argv[1]))
