"""Jobs in which columns have decided ties go on by columns, and an upgrade lets the order of arrival decide them.

Each archive in `ties` has the project of `ties.sql` as a version before the order of arrival left it (see `make_ties.py`), and
what that version made of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from sqlstream.jobs.identity import is_planned, planned_digests
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.physical.batch.rows import CannotVerify
from sqlstream.session.upgrades import compared_with
from tests.formats.archived import Results, expected, planned, records, semantics_and_ties, unpacked
from tests.formats.make_ties import FILES, JOBS, SCRIPT, TABLES, put, results, rows_of
from tests.jobs.savepoint_jobs import open_session
from tests.processes import SECONDS, wait_until

pytestmark = pytest.mark.slow

ARCHIVES = sorted(path for path in (Path(__file__).parent / "ties").glob("*.zip"))
BEFORE, ALL = ("a", "b"), ("a", "b", "c")


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.stem)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


def run(
    folder: Path,
    files: Sequence[str],
    *,
    script: str = "",
    restores: bool = False,
    upgrade: Upgrade | None = None,
    notices: list[str] | None = None,
) -> Results:
    """Run the jobs in this process until they have read some files, in all since they began."""
    with open_session(folder, notices) as session:
        for name, job in planned(session, script or SCRIPT.read_text()).items():
            restore = Restore(f"{name}_1") if restores else None
            running = session._jobs.start(job, {}, engine=LocalEngine(), restore=restore, upgrade=upgrade)
            wait_until(lambda r=running, n=name: r.progress.rows_in >= rows_of(n, *files) or r.wait(0))
            running.stop()
            assert running.wait(SECONDS)
            assert running.error is None
        return results(session)


def ties(project: Path) -> dict[str, str]:
    return {job: ties for job, (_, ties) in semantics_and_ties(project).items()}


def test_its_results_are_those_of_the_version_that_wrote_it(project: Path) -> None:
    with open_session(project) as session:
        assert results(session) == expected(project, "ab")
    assert ties(project) == dict.fromkeys(JOBS, "columns")


def test_the_jobs_are_known_and_planned_by_columns(project: Path) -> None:
    with open_session(project) as session:
        for name, job in planned(session, SCRIPT.read_text()).items():
            record = records(project, JOBS)[name]
            assert is_planned(record, job)
            assert job.ties == "arrival"
            # LAST_VALUE ignores NULLs in Flink; the archived job takes them.
            own = job.in_duckdbs or job
            before = own.decided_by("columns")
            assert planned_digests(before) == record.digests
            assert (planned_digests(own) == record.digests) == (not job.depends_on_ties)
            assert before.decided_by("arrival").physical is own.physical


@pytest.mark.one_in(2, of="jobs by columns")
def test_the_jobs_go_on_by_columns(project: Path) -> None:
    before = records(project, JOBS)
    put(project, "c")
    assert run(project, ALL) == expected(project, "abc")
    after = records(project, JOBS)
    assert {job: record.digests for job, record in after.items()} == {j: r.digests for j, r in before.items()}
    assert {after[job].ties for job in ("ties", "ties_by_clock")} == {"columns"}
    with open_session(project) as session:
        [job] = [one for one in planned(session, SCRIPT.read_text()).values() if one.name == "ties"]
        # Lists in no order of the query: an answer in one batch has them in another.
        with pytest.raises(CannotVerify, match="depends on the order in which rows come"):
            session.verify("ties", compiled=[job])


@pytest.mark.one_in(2, of="jobs by columns")
def test_the_jobs_are_restored_by_columns(project: Path) -> None:
    with open_session(project) as session:
        for job in JOBS:
            session.drop(job)
    put(project, "c")
    assert run(project, ALL, restores=True) == expected(project, "abc")
    assert {records(project, JOBS)[job].ties for job in ("ties", "ties_by_clock")} == {"columns"}


def test_new_jobs_are_by_arrival(tmp_path: Path) -> None:
    for name in BEFORE:
        put(tmp_path, name)
    found = run(tmp_path, BEFORE)
    assert set(ties(tmp_path).values()) == {"arrival"}
    assert found["last_by_p"] == ["(1, 3, 13)", "(2, 4, 14)", "(3, 2, 11)"]
    assert found["first_by_p"] == ["(1, 9, 0)", "(2, 5, 3)", "(3, 5, 10)"]


@pytest.mark.one_in(2, of="jobs by columns")
def test_an_upgrade_lets_the_order_of_arrival_decide(project: Path) -> None:
    notices: list[str] = []
    put(project, "c")
    found = run(project, ALL, upgrade=Upgrade(), notices=notices)
    assert set(ties(project).values()) == {"arrival"}
    # LAST_VALUE of this job ignores NULLs from now on, too.
    assert any('job "ties" goes on with Flink\'s values of expressions from version 3' in notice for notice in notices)
    assert any('job "ties_by_clock" goes on with ties by arrival from version' in notice for notice in notices)
    now = placed_answers()
    assert {table: found[table] for table in now} == now
    # These differ, and the others are as before.
    before = expected(project, "abc")
    changed = {table for table in TABLES if found[table] != before[table]}
    assert changed >= {"last_by_p", "last_by_ts", "over_p", "grouped"}
    # There is nothing more to upgrade, and the job goes on.
    assert run(project, ALL, upgrade=Upgrade()) == found


def placed_answers() -> Results:
    """Return answers of DuckDB: rows that were kept have one place before all others, among each other columns decide."""
    with duckdb.connect() as con:
        listed = ", ".join(f"{name} BIGINT" for name in ("customer", "amount", "number", "second", "place", "batch"))
        con.execute(f"CREATE TABLE orders ({listed})")
        for batch, name in enumerate(ALL):
            rows = [(*row, row[2] if name == "c" else -1, batch) for row in FILES[name]["orders"]]
            con.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", rows)
        columns = "customer, amount, number"
        # The rows that leave before the upgrade are as they were.
        first = f"SELECT {columns} FROM orders QUALIFY row_number() OVER (PARTITION BY customer ORDER BY {{}}, {columns}) = 1"
        asked = {
            "first_by_ts": f"FROM ({first.format('second, place')}) WHERE customer < 5",
            "last_by_ts": first.format("second DESC, place DESC"),
            "first_by_p": first.format("batch, place"),
            "last_by_p": first.format("batch DESC, place DESC"),
            "top": f"SELECT {columns}, row_number() OVER (PARTITION BY customer ORDER BY amount % 3 DESC, place, {columns}) AS n"
            " FROM orders QUALIFY n <= 2",
        }
        return {table: sorted(map(repr, con.execute(sql).fetchall())) for table, sql in asked.items()}


def test_the_plan_of_an_upgrade_says_what_decides_ties(project: Path) -> None:
    with open_session(project) as session:
        compiled = list(planned(session, SCRIPT.read_text()).values())
        texts = {job: compared_with(session, compiled, job) for job in JOBS}
    for job in ("ties", "ties_by_clock"):
        assert re.search(r"^ties +by arrival from batch 4 on, and were by columns$", texts[job], re.MULTILINE)
    assert "last_p\n            ties: by arrival from batch 4 on\n" in texts["ties_by_clock"]
    assert "sqlstream_" not in "".join(texts.values())
    assert "ties " not in texts["ties_keyed"].partition("\n")[2]
