"""What earlier versions of sqlstream have written: jobs are queried, go on, and are taken back to savepoints.

Each archive has the project of `job.sql` as one version left it (see `make.py`).
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import duckdb
import pytest

from sqlstream import Session, SqlStreamError
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import FORMAT
from sqlstream.warehouse.records import opened, sealed
from sqlstream.warehouse.savepoint_records import FORMAT as SAVEPOINT_FORMAT
from tests.formats.archived import unpacked
from tests.formats.make import CUSTOMERS, ORDERS, SCRIPT, put
from tests.jobs.savepoint_jobs import start
from tests.processes import SECONDS, wait_until

JOB = "kept"
SAVED = "warehouse/savepoints/kept_1/savepoint.json"
HERE = Path(__file__).parent
ARCHIVES = sorted(path.stem for path in HERE.glob("*.zip"))
MORE_ORDERS = [(2, 3, 15), (7, 2, 16), (1, 1, 31)]
MORE_CUSTOMERS = [(2, "bea"), (6, "fay")]
Rows = list[tuple[object, ...]]


@pytest.fixture(params=ARCHIVES)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(HERE / f"{request.param}.zip", tmp_path)


def session(folder: Path, notices: list[str] | None = None) -> Session:
    said = [] if notices is None else notices
    return Session(str(folder), conf={"execution.checkpointing.interval": "0 s"}, notice=said.append)


def results(s: Session, prefix: str = f"state.{JOB}.") -> dict[str, Rows]:
    """Return what is in the tables, and in the state beside them."""
    asked = {
        "windows": "SELECT customer, n, mean FROM windows",
        "totals": "FROM totals",
        "largest": "FROM largest",
        "named": "FROM named",
    }
    return {name: sorted(s.query(sql).fetchall(), key=repr) for name, sql in asked.items()} | states(s, prefix)


def states(s: Session, prefix: str) -> dict[str, Rows]:
    asked = {
        "open windows": f"SELECT customer, n, mean FROM {prefix}by_window",
        "by_customer": f"SELECT customer, total FROM {prefix}by_customer",
        "top": f"SELECT customer, amount FROM {prefix}top",
    }
    return {name: sorted(s.query(sql).fetchall(), key=repr) for name, sql in asked.items()}


def batch(orders: list[tuple[int, int, int]], customers: list[tuple[int, str]]) -> dict[str, Rows]:
    """Return what DuckDB says of all rows at once."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE orders (customer BIGINT, amount BIGINT, second BIGINT)")
        con.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
        con.execute("CREATE TABLE customers (customer BIGINT, name VARCHAR)")
        con.executemany("INSERT INTO customers VALUES (?, ?)", customers)
        windows = "SELECT customer, count(*), avg(amount) FROM orders WHERE {} GROUP BY customer, second // 10"
        closed = "(second // 10 + 1) * 10 <= (SELECT max(second) FROM orders)"
        totals = "SELECT customer, sum(amount)::BIGINT FROM orders GROUP BY customer"
        place = "row_number() OVER (PARTITION BY customer ORDER BY amount DESC)"
        largest = f"SELECT customer, amount FROM orders QUALIFY {place} <= 2"
        asked = {
            "windows": windows.format(closed),
            "totals": totals,
            "largest": largest,
            "named": "SELECT name, amount FROM orders JOIN customers USING (customer)",
            "open windows": windows.format(f"NOT {closed}"),
            "by_customer": totals,
            "top": largest,
        }
        return {name: sorted(con.execute(sql).fetchall(), key=repr) for name, sql in asked.items()}


def go_on(folder: Path, *, restore: str | None = None) -> dict[str, Rows]:
    """Let the job read another file of each table, and return what there is then."""
    put(folder, "c", MORE_ORDERS, MORE_CUSTOMERS)
    expected = batch([*ORDERS, *MORE_ORDERS], [*CUSTOMERS, *MORE_CUSTOMERS])
    with session(folder) as s:
        job = start(s, SCRIPT.read_text(), restore=restore)
        wait_until(lambda: len(s.query("FROM windows").fetchall()) == len(expected["windows"]))
        wait_until(lambda: len(s.query("FROM named").fetchall()) == len(expected["named"]))
        job.stop()
        assert job.wait(SECONDS)
        return results(s)


EVERYTHING = batch([*ORDERS, *MORE_ORDERS], [*CUSTOMERS, *MORE_CUSTOMERS])


def test_there_is_an_archive_of_each_format() -> None:
    """One that is new needs an archive of the last version that wrote the one before: see CONTRIBUTING.md."""
    formats = {read_format(archive) for archive in ARCHIVES}
    assert formats == set(range(7, FORMAT + 1))


def read_format(archive: str) -> int:
    with zipfile.ZipFile(HERE / f"{archive}.zip") as file:
        text = file.read(f"warehouse/jobs/{JOB}/job.json").decode()
    return int(json.loads(text.splitlines()[0] if "digest" not in text else opened("job.json", text))["format"])


def test_its_state_and_its_results_can_be_queried(project: Path) -> None:
    with session(project) as s:
        assert results(s) == batch(ORDERS, CUSTOMERS)
        version = last_committed(s.warehouse.fs, s.warehouse.job(JOB))
        assert s.query("SELECT version FROM sqlstream.snapshots ORDER BY version DESC LIMIT 1").fetchall() == [
            (version,)
        ]
        assert [checkup.damaged for checkup in s.check()] == [()]


@pytest.mark.slow
def test_the_job_goes_on_with_the_batch_that_had_begun(project: Path) -> None:
    with session(project) as s:
        paths = s.warehouse.job(JOB)
        version = last_committed(s.warehouse.fs, paths)
        for name in (f"{version}", f".{version}.crc"):
            Path(paths.commits, name).unlink(missing_ok=True)
    assert go_on(project) == EVERYTHING


@pytest.mark.slow
def test_a_savepoint_is_taken_and_restored(project: Path) -> None:
    with session(project) as s:
        take_savepoint(s.warehouse, JOB, "now")
        s.drop(JOB)
        assert states(s, "savepoint.now.").items() <= batch(ORDERS, CUSTOMERS).items()
    assert go_on(project, restore="now") == EVERYTHING


def test_there_is_a_savepoint_of_each_format(tmp_path: Path) -> None:
    formats = set()
    for archive in ARCHIVES:
        with zipfile.ZipFile(HERE / f"{archive}.zip") as file:
            if SAVED in file.namelist():
                formats.add(json.loads(opened(SAVED, file.read(SAVED).decode()))["format"])
    assert formats == set(range(1, SAVEPOINT_FORMAT + 1))


@pytest.mark.slow
@pytest.mark.parametrize("archive", ["0.2-savepoint"])
def test_a_savepoint_that_was_taken_then_is_restored(tmp_path: Path, archive: str) -> None:
    project = unpacked(HERE / f"{archive}.zip", tmp_path)
    with session(project) as s:
        s.drop(JOB)
        assert states(s, "savepoint.kept_1.").items() <= batch(ORDERS, CUSTOMERS).items()
    assert go_on(project, restore="kept_1") == EVERYTHING


@pytest.mark.slow
def test_a_later_format_is_refused_by_name(tmp_path: Path) -> None:
    project = unpacked(HERE / f"{ARCHIVES[-1]}.zip", tmp_path)
    with session(project) as s:
        record = Path(s.warehouse.job(JOB).record)
        record.write_text(
            sealed(opened("", record.read_text()).replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'))
        )
        with pytest.raises(SqlStreamError) as refused:
            start(s, SCRIPT.read_text())
    assert f'job "{JOB}" was written by a later version of sqlstream' in refused.value.render()
    assert f"It has format {FORMAT + 1}; this version reads formats up to {FORMAT}." in refused.value.render()
    # Nothing was changed: with the format as it was the job goes on.
    record.write_text(sealed(opened("", record.read_text()).replace(f'"format": {FORMAT + 1}', f'"format": {FORMAT}')))
    assert go_on(project) == EVERYTHING
