"""INSERT .. VALUES without Spark: what a crash leaves, and several writers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sqlstream import Session
from sqlstream.local import immediate

TABLE = "CREATE TABLE t (a INT);"


def rows(project: Path) -> list[int]:
    with Session(str(project)) as session:
        return sorted(a for (a,) in session.query("FROM t").fetchall())


def test_rows_of_a_crash_before_the_commit_are_not_seen(tmp_path: Path) -> None:
    with Session(str(tmp_path)) as session:
        session.sql(TABLE + "INSERT INTO t VALUES (1)")
        status = (tmp_path / "warehouse/jobs/t_values/status.json").read_text()
        session.sql("INSERT INTO t VALUES (2)")
    # The commit is the last thing that is written, before the status.
    (tmp_path / "warehouse/jobs/t_values/checkpoint/commits/1").unlink()
    (tmp_path / "warehouse/jobs/t_values/status.json").write_text(status)
    assert rows(tmp_path) == [1]
    with Session(str(tmp_path)) as session:
        session.sql(TABLE + "INSERT INTO t VALUES (3)")
    assert rows(tmp_path) == [1, 3]


def test_several_sessions_take_turns(tmp_path: Path) -> None:
    def insert(number: int) -> None:
        with Session(str(tmp_path)) as session:
            session.sql(TABLE)
            for i in range(3):
                session.sql(f"INSERT INTO t VALUES ({10 * number + i})")

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(insert, number) for number in range(3)]:
            done.result()
    assert rows(tmp_path) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


@pytest.mark.slow
def test_many_inserts_stay_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(immediate, "KEPT_COMMITS", 10)
    with Session(str(tmp_path)) as session:
        session.sql(TABLE)
        for i in range(70):
            session.sql(f"INSERT INTO t VALUES ({i})")
    assert rows(tmp_path) == list(range(70))
    log = list((tmp_path / "warehouse/jobs/t_values/log").iterdir())
    assert len(log) < 70
    assert len(list((tmp_path / "warehouse/jobs/t_values/checkpoint/commits").iterdir())) == 10
