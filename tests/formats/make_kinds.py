"""Write an archive of all kinds of stateful operators: python tests/formats/make_kinds.py FILE.zip

It has the project of `kinds.sql` after two batches of each table on Spark, with a savepoint.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream import Session
from tests.formats.make import pack, wait

SCRIPT = Path(__file__).with_name("kinds.sql")
FUNCTION = '''"""The process function of kinds.sql."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlstream import Context, Row, ValueState, process, state


@dataclass
class Total:
    paid: int
    total: int


@process
class RunningTotal:
    paid: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[Total]:
        self.paid.value = (self.paid.value or 0) + row.paid
        yield Total(row.paid, self.paid.value)
'''
Rows = Sequence[tuple[object, ...]]
COLUMNS = {
    "orders": ("customer", "amount", "ts"),
    "payments": ("customer", "paid", "ts"),
    "rates": ("customer", "rate", "ts"),
    "names": ("op", "customer", "name"),
}
# The rows of three files of each table; times are seconds, and never behind the watermark of the files before.
FILES: Mapping[str, Mapping[str, Rows]] = {
    "a": {
        "orders": [(1, 5, 1), (1, 7, 2), (2, 4, 3), (4, 1, 5), (3, 9, 8)],
        "payments": [(1, 5, 2), (2, 4, 6), (1, 7, 9)],
        "rates": [(1, 10, 1), (2, 20, 2), (1, 11, 6)],
        "names": [("I", 1, "ann"), ("I", 2, "bob"), ("I", 5, "eve")],
    },
    "b": {
        "orders": [(5, 8, 12), (1, 6, 13), (6, 9, 14), (2, 2, 15)],
        "payments": [(5, 8, 13), (3, 9, 14), (1, 6, 18)],
        "rates": [(5, 50, 11), (1, 12, 13), (6, 60, 18)],
        "names": [("U", 2, "bea"), ("D", 1, "ann")],
    },
    "c": {
        "orders": [(2, 3, 21), (7, 2, 22), (1, 1, 31), (5, 5, 32)],
        "payments": [(2, 2, 20), (7, 2, 24), (5, 1, 36)],
        "rates": [(7, 70, 21), (1, 13, 30), (2, 21, 35)],
        "names": [("I", 6, "fay"), ("U", 5, "eva"), ("I", 1, "amy")],
    },
}


def put(folder: Path, name: str) -> None:
    """Write a file of each table where the job reads it."""
    for table, rows in FILES[name].items():
        values = dict(zip(COLUMNS[table], map(list, zip(*rows, strict=True)), strict=True))
        if "ts" in values:
            values["ts"] = pa.array([int(str(second)) * 1_000_000 for second in values["ts"]], pa.timestamp("us"))
        (folder / "in" / table).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(values), folder / f".{name}")
        (folder / f".{name}").rename(folder / "in" / table / f"{name}.parquet")


def rows_of(*names: str, ties: str = "columns") -> int:
    """Return how many rows the job reads of some files.

    If columns decide its ties, as in the archives, it reads those of payments twice, by the process function's own scan, too.
    """
    scans = (*COLUMNS, "payments") if ties == "columns" else tuple(COLUMNS)
    return sum(len(FILES[name][table]) for name in names for table in scans)


def run(folder: Path) -> None:
    """Run the job over two files of each table, one after the other, and take a savepoint of it."""
    (folder / "udfs").mkdir()
    (folder / "udfs" / "totals.py").write_text(FUNCTION)
    conf = {"execution.checkpointing.interval": "0 s", "parallelism.default": "2"}
    read = "SELECT rows_in FROM sqlstream.jobs WHERE job = 'kinds'"
    with Session(str(folder), conf=conf) as session:
        put(folder, "a")
        job: Any = session.sql(SCRIPT.read_text())
        wait(session, read, rows_of("a"))
        put(folder, "b")
        wait(session, read, rows_of("a", "b"))
        job.stop()
        job.wait()
        job.savepoint("kinds_1")


if __name__ == "__main__":
    print(inspect.getfile(Session))
    with tempfile.TemporaryDirectory() as made:
        run(Path(made))
        pack(Path(made), Path(sys.argv[1]))
