"""The commands about savepoints, beside a job that runs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sqlstream import SqlStreamError
from sqlstream.cli.main import cli
from tests.jobs.savepoint_jobs import FIRST, JOB, batch, open_session, put, rows_of, start, wait_until_done
from tests.processes import SECONDS


def sqlstream(folder: Path, *arguments: str) -> str:
    """Run a command, and return what it prints."""
    result = CliRunner().invoke(
        cli, [*arguments, "--project", str(folder)], catch_exceptions=False, standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    return result.output


def test_savepoints_of_a_job_that_runs_and_when_it_is_drained(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        job = start(s)
        wait_until_done(s, job, FIRST)
        said = sqlstream(tmp_path, "savepoint", JOB, "noon")
        assert said.startswith(f'savepoint "noon" of job "{JOB}" at version ')
        with pytest.raises(SqlStreamError, match='savepoint "noon" exists already'):
            sqlstream(tmp_path, "stop", JOB, "--savepoint", "noon")
        said = sqlstream(tmp_path, "stop", JOB, "--savepoint", "evening", "--drain")
        assert 'drained: all its windows are closed\nsavepoint "evening"' in said
        assert job.wait(SECONDS)
        at = "SELECT * FROM windows AT (SAVEPOINT => '{}')"
        assert rows_of(s, at.format("noon")) == batch(FIRST)[0]
        assert rows_of(s, at.format("evening")) == batch(FIRST, drained=True)[0]
        assert [line.split()[0] for line in sqlstream(tmp_path, "savepoints", JOB).splitlines()[2:4]] == [
            "noon",
            "evening",
        ]
        assert "(0 rows)" in sqlstream(tmp_path, "savepoints", "another")
        said = sqlstream(tmp_path, "savepoint", JOB, "--to", str(tmp_path / "out"))
        assert f'in "{tmp_path / "out"}"' in said
        with pytest.raises(SqlStreamError, match='job "noon" does not exist') as refused:
            sqlstream(tmp_path, "drop", "noon")
        assert refused.value.hint == 'There is a savepoint of this name: sqlstream drop --savepoint "noon".'
        assert sqlstream(tmp_path, "drop", "--savepoint", "noon") == 'savepoint "noon" dropped\n'
        with pytest.raises(SqlStreamError, match='savepoint "noon" does not exist'):
            sqlstream(tmp_path, "drop", "--savepoint", "noon")
        with pytest.raises(SqlStreamError, match="drop takes the name of a job, or --savepoint"):
            sqlstream(tmp_path, "drop", JOB, "--savepoint", "evening")


def test_what_run_is_told_of_savepoints_fits_together(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    sql = "CREATE TABLE t (a INT); INSERT INTO t SELECT k AS a FROM (VALUES (1)) AS v(k)"
    with pytest.raises(SqlStreamError, match="--as names a job that begins from a savepoint"):
        sqlstream(tmp_path, "run", "-e", sql, "--as", "other")
    with pytest.raises(SqlStreamError, match="a job begins anew, or from a savepoint"):
        sqlstream(tmp_path, "run", "-e", sql, "--fresh", "--from", "noon")
    other = "CREATE TABLE u (a INT); INSERT INTO u SELECT k AS a FROM (VALUES (1)) AS v(k)"
    with pytest.raises(SqlStreamError, match='there is no job "t" in the SQL to start anew'):
        sqlstream(tmp_path, "run", "-e", f"{sql}; {other}", "--job", "u", "--fresh=t")
    with pytest.raises(SqlStreamError, match='savepoint "noon" does not exist'):
        sqlstream(tmp_path, "run", "-e", sql, "--from", "noon")
    two = f"{sql}; INSERT INTO t SELECT k AS a FROM (VALUES (1)) AS v(k)"
    with pytest.raises(SqlStreamError, match="a fork is one job, and the SQL has 2"):
        sqlstream(tmp_path, "run", "-e", two, "--from", "noon", "--as", "other")
