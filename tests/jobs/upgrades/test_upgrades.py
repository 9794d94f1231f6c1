"""Jobs that go on with changed queries: what becomes of them, compared with rows of the old query and then of the new one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.jobs.savepoint_jobs import FIRST, INPUT, SECOND, put
from tests.jobs.upgrades.upgrade_jobs import go_on, rows_of

COUNTED = """
CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO totals WITH by_key AS (SELECT k, count(*) AS n FROM t {where} GROUP BY k) SELECT k, n{times} FROM by_key;
"""


def counted(where: str = "", times: str = "") -> str:
    return INPUT + COUNTED.format(where=where, times=times)


def counts(rows: object) -> list[tuple[object, ...]]:
    return sorted(Counter(k for k, _ in rows).items())  # type: ignore[attr-defined]


def test_an_operator_goes_on_under_another_filter_and_another_projection(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, counted(), FIRST)
    put(tmp_path, "b", SECOND)
    notices: list[str] = []
    changed = counted("WHERE k < 3", " * 10")
    go_on(tmp_path, changed, [*FIRST, *SECOND], upgrade=True, notices=notices)
    # What is counted before stays, what comes is filtered.
    expected = counts([*FIRST, *((k, s) for k, s in SECOND if k < 3)])
    assert rows_of(tmp_path, "SELECT k, n FROM state.totals.by_key") == expected
    touched = {k for k, _ in SECOND if k < 3}
    assert rows_of(tmp_path, "FROM totals") == [(k, n * 10 if k in touched else n) for k, n in expected]  # type: ignore[operator]
    assert any("keeps job" in notice for notice in notices)
