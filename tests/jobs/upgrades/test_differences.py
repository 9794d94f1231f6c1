"""`sqlstream.diff` across an upgrade: what the old query's savepoint has and what the job makes of it, and why they differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.savepoint_jobs import FIRST, INPUT, Rows, open_session, put
from tests.jobs.upgrades.upgrade_jobs import go_on

SCRIPT = INPUT + (
    "CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);"
    "INSERT INTO totals WITH by_key AS (SELECT k, count(*) AS n{more} FROM t GROUP BY k) SELECT k, n FROM by_key;"
)
THEN: Rows = [(2, 14), (3, 15)]


@pytest.mark.slow
def test_a_difference_says_what_an_upgrade_has_changed(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, SCRIPT.format(more=", sum(k) AS s"), FIRST)
    put(tmp_path, "b", THEN)
    go_on(tmp_path, SCRIPT.format(more=""), [*FIRST, *THEN], upgrade=True)
    with open_session(tmp_path) as s:
        [(saved, version)] = s.query("SELECT savepoint, version FROM sqlstream.savepoints").fetchall()
        [(newest,)] = s.query("SELECT max(version) FROM sqlstream.snapshots").fetchall()
        columns = "change, reason, before.k, before.n, before.s, after.k, after.n, after.s"
        assert s.diff("totals.by_key", saved, version).project(columns).fetchall() == [
            ("changed", "migrated", 1, 3, 3, 1, 3, None),
            ("changed", "migrated", 2, 1, 2, 2, 1, None),
        ]
        why = "input or migrated"
        assert s.diff("totals.by_key", saved, newest).project(columns).fetchall() == [
            ("changed", why, 1, 3, 3, 1, 3, None),
            ("changed", why, 2, 1, 2, 2, 2, None),
            ("added", why, None, None, None, 3, 1, None),
        ]
        # What came after the upgrade is input alone.
        found = s.diff("totals.by_key", version, newest).project("reason, after.k, after.n").fetchall()
        assert found == [("input", 2, 2), ("input", 3, 1)]
