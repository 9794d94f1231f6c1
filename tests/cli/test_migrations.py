"""The options of the commands that make state with SQL: what is shown before it is done, and where errors point."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream import SqlStreamError
from tests.cli.test_savepoints import sqlstream
from tests.jobs.savepoint_jobs import FIRST, JOB, SCRIPT, batch, open_session, put, results, run_over

pytestmark = pytest.mark.slow

REPAIR = f"MIGRATE STATE {JOB}.by_key AS\nSELECT k, n - 1 AS n, last FROM by_key.partials"


def test_state_that_sql_makes_is_explained_and_asked_about(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    script, repair = tmp_path / "job.sql", tmp_path / "repair.sql"
    script.write_text(SCRIPT)
    repair.write_text(REPAIR)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        said = sqlstream(tmp_path, "explain", str(script), "--against", JOB, "--migrate", str(repair)).splitlines()
        at = next(i for i, line in enumerate(said) if line.split() == ["adapted", "by_key"])
        assert said[at + 1].strip() == "MIGRATE STATE makes its state: partials"
        assert any(line.split() == ["kept", "by_window"] for line in said)
        with pytest.raises(SqlStreamError, match="an upgrade has to be confirmed, and there is no terminal"):
            sqlstream(tmp_path, "run", str(script), "--migrate", str(repair))
        with pytest.raises(SqlStreamError, match="--migrate is for a job that goes on"):
            sqlstream(tmp_path, "explain", str(script), "--migrate", str(repair))
        with pytest.raises(SqlStreamError, match="--stage and --against show different things"):
            sqlstream(tmp_path, "explain", str(script), "--against", JOB, "--stage", "state")
        with pytest.raises(SqlStreamError, match="a job begins anew, or is upgraded"):
            sqlstream(tmp_path, "run", str(script), "--migrate", str(repair), "--fresh")
        repair.write_text(REPAIR.replace("last FROM", "lost FROM"))
        with pytest.raises(SqlStreamError) as refused:
            sqlstream(tmp_path, "run", str(script), "--upgrade", "--yes", "--migrate", str(repair))
        assert 'column "lost" does not exist' in refused.value.render()
        assert f"{repair}:2:23" in refused.value.render()
        assert results(s) == batch(FIRST)
        assert s.warehouse.savepoints() == []
    assert "partials   last" in sqlstream(tmp_path, "query", f"DESCRIBE STATE {JOB}.by_key")
    assert "by_key.partials" in sqlstream(tmp_path, "explain", str(script), "--stage", "state")
