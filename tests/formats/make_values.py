"""Write an archive of jobs whose expressions have DuckDB's values: python tests/formats/make_values.py FILE.zip

It has the project of `values.sql` after two batches, with a savepoint of each job, and in `expected.json` what the version of
sqlstream that is imported makes of these rows, and of those of one more batch. Versions in which expressions have Flink's values
cannot write one: run it with a checkout of commit 0e7c0f64 or one before.
"""

from __future__ import annotations

import datetime
import inspect
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from tests.formats.make import pack
from tests.processes import SECONDS, wait_until

JOBS = ("buckets", "averages", "texts")
SCRIPT = Path(__file__).with_name("values.sql")
TABLES = re.findall(r"INSERT INTO (\w+)", SCRIPT.read_text())
EXPECTED = "expected.json"
# The rows of the results of each table, as text, in an order of their own.
Results = dict[str, list[str]]
# Customers, amounts, numbers and seconds.
FILES: Mapping[str, Sequence[tuple[int, str, int, float]]] = {
    "a": [(1, "2.50", 6, 1), (2, "3.10", 17, 2.5), (1, "0.25", 24, 3)],
    "b": [(1, "9.99", 15, 4), (3, "1.00", 3, 5)],
    "c": [(2, "3.11", 19, 6), (3, "2.01", 26, 7.125)],
}


def put(folder: Path, name: str) -> None:
    """Write a file where the jobs read it."""
    customers, amounts, numbers, seconds = zip(*FILES[name], strict=True)
    start = datetime.datetime(2026, 1, 1)
    columns = {
        "customer": pa.array(customers, pa.int32()),
        "amount": pa.array(map(Decimal, amounts), pa.decimal128(10, 2)),
        "v": pa.array(numbers, pa.int32()),
        "ts": pa.array([start + datetime.timedelta(seconds=s) for s in seconds], pa.timestamp("us")),
    }
    (folder / "in" / "orders").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f".{name}")
    (folder / f".{name}").rename(folder / "in" / "orders" / f"{name}.parquet")


def results(session: Session) -> Results:
    """Return what is in the tables."""
    return {table: sorted(map(repr, session.query(f"FROM {table}").fetchall())) for table in TABLES}


def run(
    folder: Path,
    files: Sequence[str],
    *,
    saves: bool = False,
    restores: bool = False,
    upgrade: Upgrade | None = None,
    notices: list[str] | None = None,
) -> Results:
    """Run the jobs in this process until they have read some files, in all since they began."""
    said = [] if notices is None else notices
    with Session(str(folder), conf={"execution.checkpointing.interval": "0 s"}, notice=said.append) as session:
        compiled = session.compile(SourceText("script", SCRIPT.read_text()))
        for job in (one for one in compiled if isinstance(one, PlannedJob)):
            restore = Restore(f"{job.name}_1") if restores else None
            running = session._jobs.start(job, {}, engine=LocalEngine(), restore=restore, upgrade=upgrade)
            rows = sum(len(FILES[name]) for name in files)
            wait_until(lambda r=running, n=rows: r.progress.rows_in >= n or r.wait(0))
            running.stop()
            assert running.wait(SECONDS)
            assert running.error is None
            if saves:
                running.savepoint(f"{job.name}_1")
        return results(session)


def write(folder: Path, archive: Path) -> None:
    """Run the jobs in a folder, and write the archive of it."""
    project, later = folder / "project", folder / "later"
    project.mkdir()
    put(project, "a")
    run(project, ["a"])
    put(project, "b")
    before = run(project, ["a", "b"], saves=True)
    shutil.copytree(project, later)
    put(later, "c")
    after = run(later, ["a", "b", "c"])
    (project / EXPECTED).write_text(json.dumps({"ab": before, "abc": after}, indent=1))
    pack(project, archive)


if __name__ == "__main__":
    print(inspect.getfile(Session))
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), Path(sys.argv[1]))
