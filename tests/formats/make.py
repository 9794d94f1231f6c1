"""Write an archive of this folder: python tests/formats/make.py FILE.zip

It has the project of `job.sql` after some batches on Spark, with its warehouse, and a savepoint where the version of sqlstream
that is imported can take one. So that any version can be run, it uses nothing but what all of them have.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream import Session

SCRIPT = Path(__file__).with_name("job.sql")
# The rows of the archives: customer, amount and second; customer and name.
ORDERS = [(1, 5, 1), (1, 7, 2), (2, 4, 3), (4, 1, 5), (5, 8, 12), (1, 6, 13), (6, 9, 14)]
CUSTOMERS = [(1, "ann"), (5, "eve")]
# How many of them are in the first file.
FIRST_ORDERS, FIRST_CUSTOMERS = 4, 1


def put(folder: Path, name: str, orders: list[tuple[int, int, int]], customers: list[tuple[int, str]]) -> None:
    """Write files of orders and of customers where the job reads them."""
    tables = {
        "orders": pa.table(
            {
                "customer": [customer for customer, _, _ in orders],
                "amount": [amount for _, amount, _ in orders],
                "ts": pa.array([second * 1_000_000 for *_, second in orders], pa.timestamp("us")),
            }
        ),
        "customers": pa.table({"customer": [c for c, _ in customers], "name": [name for _, name in customers]}),
    }
    for table, rows in tables.items():
        (folder / "in" / table).mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, folder / f".{name}")
        (folder / f".{name}").rename(folder / "in" / table / f"{name}.parquet")


def run(folder: Path) -> None:
    """Run the job over two files of each table, one after the other."""
    put(folder, "a", ORDERS[:FIRST_ORDERS], CUSTOMERS[:FIRST_CUSTOMERS])
    conf = {"execution.checkpointing.interval": "0 s", "parallelism.default": "2"}
    with Session(str(folder), conf=conf) as session:
        job: Any = session.sql(SCRIPT.read_text())
        wait(session, "SELECT count(*) FROM state.kept.by_customer", 3)
        put(folder, "b", ORDERS[FIRST_ORDERS:], CUSTOMERS[FIRST_CUSTOMERS:])
        wait(session, "SELECT count(*) FROM windows", 3)
        wait(session, "SELECT count(*) FROM named", 4)
        job.stop()
        job.wait()
        if hasattr(job, "savepoint"):
            job.savepoint("kept_1")


def wait(session: Session, sql: str, count: int) -> None:
    deadline = time.monotonic() + 300
    while session.query(sql).fetchall() != [(count,)]:
        if time.monotonic() > deadline:
            raise TimeoutError(sql)
        time.sleep(0.1)


def pack(folder: Path, archive: Path) -> None:
    """Put the files of a project into an archive, without logs and what only running processes need."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and "logs" not in name.parts and "sessions" not in name.parts:
                file.write(path, name)


if __name__ == "__main__":
    print(inspect.getfile(Session))
    with tempfile.TemporaryDirectory() as made:
        run(Path(made))
        pack(Path(made), Path(sys.argv[1]))
