"""How jobs end and are deleted, as far as that needs no Spark."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import sqlstream
from sqlstream.errors import UsageError
from sqlstream.queries.query import Sandbox
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import DRAINED, STOPPED, read_status, write_status
from tests.jobs.test_state_checks import done, put, start
from tests.kinds import job_of
from tests.processes import wait_until

TWO = """
CREATE TABLE t (a INT); CREATE TABLE u (a INT);
INSERT INTO t VALUES (1);
INSERT INTO u SELECT a FROM (VALUES (2)) AS v(a)
"""


def session(project: Path, notices: list[str] | None = None) -> sqlstream.Session:
    return sqlstream.Session(str(project), notice=([] if notices is None else notices).append)


@pytest.fixture
def opened_session(tmp_path: Path) -> Iterator[sqlstream.Session]:
    with sqlstream.Session(
        str(tmp_path), conf={"sqlstream.unbounded-state": "allow"}, notice=lambda text: None
    ) as opened:
        yield opened


@pytest.mark.slow
def test_a_job_without_a_name_spoils_nothing(tmp_path: Path) -> None:
    with session(tmp_path) as made:
        made.sql(TWO)
    # What an older version left of INSERT INTO ``: it lies among the folders of jobs and tables.
    jobs, tables = tmp_path / "warehouse" / "jobs", tmp_path / "warehouse" / "tables"
    shutil.copytree(jobs / "t_values", jobs, dirs_exist_ok=True)
    shutil.copytree(tables / "t" / "t_values", tables, dirs_exist_ok=True)
    with session(tmp_path) as looking:
        for table in ("jobs", "operators", "snapshots", "watermarks"):
            found = looking.query(f"SELECT DISTINCT job FROM sqlstream.{table}").fetchall()
            assert {name for (name,) in found} <= {"t_values", "u"}
        assert looking.query("SELECT t.a, u.a FROM t, u").fetchall() == [(1, 2)]
        assert looking.query("SHOW ALL TABLES").fetchall()
        with pytest.raises(UsageError) as error:
            looking.drop("")
        assert error.value.message == "a job has a name"
        assert error.value.detail is not None
        assert "was left by a job that had no name" in error.value.detail
        assert looking.query("SELECT count(*) FROM sqlstream.jobs").fetchall() == [(2,)]
        # And to delete one job deletes one job.
        looking.drop("u")
        assert looking.query("SELECT job FROM sqlstream.jobs").fetchall() == [("t_values",)]
        assert looking.query("FROM t").fetchall() == [(1,)]


def test_jobs_are_listed_at_each_step_of_dropping_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with session(tmp_path) as made:
        made.sql(TWO)
    seen: list[list[str]] = []
    looking = Sandbox(Warehouse(str(tmp_path / "warehouse")))

    def look() -> None:
        seen.append([job for (job,) in looking.query("SELECT job FROM sqlstream.jobs ORDER BY job").fetchall()])

    def watched(delete: Callable[[LocalFilesystem, str], None]) -> Callable[[LocalFilesystem, str], None]:
        def deleted(fs: LocalFilesystem, path: str) -> None:
            look()
            delete(fs, path)
            look()

        return deleted

    with session(tmp_path) as dropping:
        monkeypatch.setattr(LocalFilesystem, "delete", watched(LocalFilesystem.delete))
        monkeypatch.setattr(LocalFilesystem, "delete_tree", watched(LocalFilesystem.delete_tree))
        dropping.drop("u")
        monkeypatch.undo()
    looking.close()
    assert seen[0] == ["t_values", "u"]
    assert seen[-1] == ["t_values"]
    assert all("t_values" in jobs for jobs in seen)


@pytest.mark.parametrize(("status", "text"), [("INCOMPATIBLE", '{"format": 5, "job": "u"}'), ("DAMAGED", "")])
def test_a_job_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, status: str, text: str) -> None:
    with session(tmp_path) as made:
        made.sql(TWO)
    (tmp_path / "warehouse" / "jobs" / "u" / "job.json").write_text(text)
    with session(tmp_path) as looking:
        jobs = looking.query("SELECT job, status, error IS NULL FROM sqlstream.jobs ORDER BY job").fetchall()
        assert jobs == [("t_values", "FINISHED", True), ("u", status, False)]
        assert looking.query("SELECT a FROM t").fetchall() == [(1,)]
        assert looking.query("SHOW ALL TABLES").fetchall()
        with pytest.raises(sqlstream.SqlStreamError):
            looking.query("SELECT a FROM u")
        readable = [checkup.job for checkup in looking.check() if not checkup.unreadable and not checkup.damaged]
        assert readable == ["t_values"]
        looking.drop("u")
        assert looking.query("SELECT job FROM sqlstream.jobs").fetchall() == [("t_values",)]
        assert "u" not in [row[0] for row in looking.query("SHOW ALL TABLES").fetchall()]


def test_a_job_that_never_committed_takes_the_corrected_query(tmp_path: Path) -> None:
    wrong = "CREATE TABLE u (a INT); INSERT INTO u SELECT CAST(a AS INT) FROM (VALUES ('{}')) AS v(a)"
    with session(tmp_path) as failing:
        with pytest.raises(sqlstream.SqlStreamError, match="one"):
            job_of(failing.sql(wrong.format("one"))).wait()
        assert failing.query("SELECT job, status FROM sqlstream.jobs").fetchall() == [("u", "FAILED")]
    with session(tmp_path) as corrected:
        job_of(corrected.sql(wrong.format("1"))).wait()
        assert corrected.query("FROM u").fetchall() == [(1,)]
        # Now it has committed a batch: what it wrote is not thrown away.
        with pytest.raises(UsageError, match='job "u" exists with another query'):
            corrected.sql(wrong.format("2"))


def test_rows_that_were_never_written_are_no_reason_to_refuse_others(tmp_path: Path) -> None:
    with session(tmp_path) as failing, pytest.raises(sqlstream.SqlStreamError, match="99999999999"):
        failing.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (99999999999)")
    with session(tmp_path) as corrected:
        corrected.sql("CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (99999999999)")
        assert corrected.query("FROM t").fetchall() == [(99999999999,)]


def test_a_drained_job_is_skipped_and_says_why(tmp_path: Path) -> None:
    notices: list[str] = []
    with session(tmp_path, notices) as once:
        once.sql(TWO)
        warehouse = Warehouse(str(tmp_path / "warehouse"))
        status = read_status(warehouse.fs, warehouse.job("u"))
        assert status is not None
        write_status(warehouse.fs, warehouse.job("u"), replace(status, state=DRAINED))
        job = job_of(once.sql("INSERT INTO u SELECT a FROM (VALUES (2)) AS v(a)"))
        assert job.status == DRAINED
        assert notices == [
            'job "u" is drained and was skipped. All its windows were closed, so it cannot continue; to run it anew, use --fresh.'
        ]
        with pytest.raises(UsageError, match='job "u" is not running') as error:
            once.stop("u", drain=True)
        assert error.value.hint is None


def test_only_a_job_that_runs_can_be_drained(tmp_path: Path) -> None:
    with session(tmp_path) as once:
        once.sql(TWO)
        with pytest.raises(UsageError) as error:
            once.stop("u", drain=True)
        assert (error.value.message, error.value.detail) == ('job "u" is not running', "It is FINISHED.")


def test_a_job_that_has_stopped_is_dropped_though_nobody_has_waited_for_it(opened_session: sqlstream.Session) -> None:
    put(opened_session, "1", (1, 5))
    job = start(opened_session)
    done(opened_session, job, 1)
    with pytest.raises(UsageError, match="is being run by process"):
        opened_session.drop("sums")
    job.stop()
    wait_until(lambda: opened_session.query("SELECT status FROM sqlstream.jobs").fetchall() == [(STOPPED,)])
    opened_session.drop("SUMS")
    assert opened_session.query("SELECT status FROM sqlstream.jobs").fetchall() == []


@pytest.mark.slow
def test_a_job_is_dropped_when_the_process_that_has_stopped_it_lets_go_of_it(
    opened_session: sqlstream.Session, tmp_path: Path
) -> None:
    put(opened_session, "1", (1, 5))
    job = start(opened_session)
    done(opened_session, job, 1)
    job.stop()
    wait_until(lambda: job.status == STOPPED)
    # It still has the lock.
    letting_go = threading.Timer(0.5, job.wait)
    letting_go.start()
    with session(tmp_path) as other:
        other.drop("sums")
    letting_go.join()
    assert opened_session.query("SELECT status FROM sqlstream.jobs").fetchall() == []
