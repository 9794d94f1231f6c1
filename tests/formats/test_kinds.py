"""What earlier versions have written of every kind of stateful operator: it is queried, continued, upgraded and restored.

Each archive in `kinds` has the project of `kinds.sql` as one version left it (see `make_kinds.py`).
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import get_args

import pytest

from sqlstream import Session
from sqlstream.jobs.restoring import Restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.warehouse.jobs import read_record
from tests.formats.make_kinds import FUNCTION, SCRIPT, put, rows_of
from tests.jobs.savepoint_jobs import open_session, planned
from tests.processes import SECONDS, wait_until

pytestmark = pytest.mark.slow

JOB = "kinds"
ARCHIVES = sorted(path for path in (Path(__file__).parent / "kinds").glob("*.zip"))
TABLES = re.findall(r"INSERT INTO (\w+)", SCRIPT.read_text())
Results = dict[str, list[tuple[object, ...]]]


def results(session: Session) -> Results:
    return {table: sorted(session.query(f"FROM {table}").fetchall(), key=repr) for table in TABLES}


def run(
    folder: Path, script: str, files: tuple[str, ...], *, restore: Restore | None = None, upgrade: Upgrade | None = None
) -> Results:
    """Run the job in this process until it has read some files of each table, in all since it began."""
    with open_session(folder) as session:
        job = session._jobs.start(planned(session, script), {}, engine=LocalEngine(), restore=restore, upgrade=upgrade)
        wait_until(lambda: job.progress.rows_in >= rows_of(*files) or job.wait(0))
        job.stop()
        assert job.wait(SECONDS)
        assert job.error is None
        return results(session)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Results]:
    """What the code of today makes of the same rows from the beginning, which the golden scripts compare with DuckDB."""
    found: dict[tuple[str, ...], Results] = {}
    for files in (("a", "b"), ("a", "b", "c")):
        folder = tmp_path_factory.mktemp("anew")
        (folder / "udfs").mkdir()
        (folder / "udfs" / "totals.py").write_text(FUNCTION)
        for name in files:
            put(folder, name)
        found[files] = run(folder, SCRIPT.read_text(), files)
    return found


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.stem)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(request.param) as file:
        file.extractall(tmp_path)
    return tmp_path


def test_an_archive_has_every_kind_of_stateful_operator(project: Path) -> None:
    with open_session(project) as session:
        record = read_record(session.warehouse.fs, session.warehouse.job(JOB))
        assert record is not None
        shapes = [operator.shape for operator in record.operators]
        assert {shape.operator for shape in shapes if shape} == {kind.__name__ for kind in get_args(Stateful)}
        held = dict(
            session.query("SELECT operator, state_rows FROM sqlstream.operators WHERE job = 'kinds'").fetchall()
        )
        # Of the windows of rows the aggregate keeps nothing, nor need rows wait to be sorted.
        assert {operator for operator, rows in held.items() if not rows} <= {"by_count", "sort_1"}


def test_its_results_and_state_can_be_queried(project: Path, expected: dict[tuple[str, ...], Results]) -> None:
    with open_session(project) as session:
        found, now = results(session), expected["a", "b"]
        # It let a row leave when the watermark was at its time; today it must be beyond.
        assert set(found.pop("temporal_join")) >= set(now["temporal_join"])
        assert found == {table: rows for table, rows in now.items() if table != "temporal_join"}
        for (operator,) in session.query("SELECT operator FROM sqlstream.operators").fetchall():
            session.query(f"FROM state.{JOB}.{operator}").fetchall()
        assert [checkup.damaged for checkup in session.check()] == [()]


def test_the_job_continues(project: Path, expected: dict[tuple[str, ...], Results]) -> None:
    put(project, "c")
    assert run(project, SCRIPT.read_text(), ("a", "b", "c")) == expected["a", "b", "c"]


def test_the_job_continues_with_a_changed_query(project: Path, expected: dict[tuple[str, ...], Results]) -> None:
    put(project, "c")
    # One more result; the operators are the same.
    more = "INSERT INTO large SELECT customer, amount FROM orders WHERE amount >= 5;\nEND;"
    changed = "CREATE TABLE large (customer BIGINT, amount BIGINT);\n" + SCRIPT.read_text().replace("END;", more)
    upgraded = run(project, changed, ("a", "b", "c"), upgrade=Upgrade())
    assert upgraded == expected["a", "b", "c"]


def test_the_job_is_restored_from_its_savepoint(project: Path, expected: dict[tuple[str, ...], Results]) -> None:
    with open_session(project) as session:
        session.drop(JOB)
    put(project, "c")
    restored = run(project, SCRIPT.read_text(), ("a", "b", "c"), restore=Restore("kinds_1"))
    assert restored == expected["a", "b", "c"]
