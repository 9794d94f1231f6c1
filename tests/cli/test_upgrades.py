"""What the commands say of a job whose query has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream import SqlStreamError
from tests.cli.test_savepoints import sqlstream
from tests.jobs.savepoint_jobs import FIRST, put
from tests.jobs.upgrades.test_upgrades import counted
from tests.jobs.upgrades.upgrade_jobs import go_on


def test_a_changed_query_is_explained_against_the_job_and_confirmed(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, counted(), FIRST)
    file = tmp_path / "totals.sql"
    file.write_text(counted("WHERE k < 3"))
    said = sqlstream(tmp_path, "explain", str(file), "--against", "totals")
    assert [line.split()[:2] for line in said.splitlines() if not line.startswith(" ")] == [
        ["--", "job"],
        ["kept", "by_key"],
        ["read", "t"],
        ["write", "totals"],
    ]
    assert "what was computed before is not computed again" in said
    with pytest.raises(SqlStreamError, match="an upgrade has to be confirmed") as error:
        sqlstream(tmp_path, "run", str(file), "--upgrade")
    assert error.value.hint is not None
    assert "--yes" in error.value.hint
    file.write_text(counted().replace("by_key", "by_other").replace("count(*) AS n", "count(*) AS n, max(ts) AS m"))
    said = sqlstream(tmp_path, "explain", str(file), "--against", "totals")
    assert "adapted   by_other" in said
    assert "it was called by_key" in said
    with pytest.raises(SqlStreamError, match='job "another" does not exist'):
        sqlstream(tmp_path, "explain", str(file), "--against", "another")


def test_the_hint_uid_names_an_operator_that_has_no_name(tmp_path: Path) -> None:
    table = "CREATE TABLE t (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet'); "
    hinted = table + "SELECT /*+ UID('totals') */ k, count(*) AS n FROM t GROUP BY k"
    assert 'Aggregate "totals"' in sqlstream(tmp_path, "explain", "-e", hinted, "--stage", "optimized")
    for wrong, message in (
        (table + "SELECT /*+ UID('totals') */ k FROM t", "UID in a SELECT whose state needs no name"),
        (hinted.replace("UID('totals')", "UID('a', 'b')"), "UID takes one name, once in a SELECT"),
    ):
        with pytest.raises(SqlStreamError, match=message) as error:
            sqlstream(tmp_path, "explain", "-e", wrong)
        assert error.value.span is not None
