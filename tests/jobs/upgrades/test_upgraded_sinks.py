"""Sinks across an upgrade: no row is lost or comes twice, also where the job died in the middle of a batch."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sqlstream import Session, SqlStreamError
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime.commits import Commits
from sqlstream.warehouse.commits import last_committed, write_commit
from tests.jobs.savepoint_jobs import open_session, put
from tests.jobs.upgrades.upgrade_jobs import rows_of
from tests.local.test_engine import wait_for_rows
from tests.processes import SECONDS, wait_until

READ = """
CREATE TABLE {name} (k BIGINT, ts TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
"""
INPUT = READ.format(name="t", folder="in")


def start(session: Session, script: str, *, upgrade: bool = False, savepoint: str | None = None) -> Any:
    script = f"SET 'pipeline.name' = 'j'; {script}" if "pipeline.name" not in script else script
    [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
    restore = Restore(savepoint) if savepoint is not None else None
    return session._jobs.start(
        planned, {}, engine=LocalEngine(), restore=restore, upgrade=Upgrade() if upgrade else None
    )


def run(
    folder: Path,
    script: str,
    rows: int,
    *,
    upgrade: bool = False,
    savepoint: str | None = None,
    notices: list[str] | None = None,
) -> None:
    """Run the job of a script until it has read so many rows in all, and stop it."""
    with open_session(folder, notices) as session:
        job = start(session, script, upgrade=upgrade, savepoint=savepoint)
        wait_for_rows(job, rows)
        paths = session.warehouse.job(job.name)
        wait_until(lambda: last_committed(session.warehouse.fs, paths) == job._run.totals.version)
        job.stop()
        assert job.wait(SECONDS)


def fail(folder: Path, script: str, reason: str, *, upgrade: bool = False) -> None:
    """Run the job of a script until it fails."""
    with open_session(folder) as session, pytest.raises(SqlStreamError, match=reason):
        start(session, script, upgrade=upgrade).wait(SECONDS)


def die_before_commit(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let the process die when sinks have a batch, and the job has not committed it."""

    def dying(fs: Any, paths: Any, batch: int, millis: int) -> None:
        if batch == number:
            raise RuntimeError("died")
        write_commit(fs, paths, batch, millis)

    patch.setattr("sqlstream.local.batches.write_commit", dying)


TABLES = """
CREATE TABLE a (k BIGINT, x BIGINT) WITH ('connector' = 'sqlite', 'path' = 'd.db', 'table' = 'a', 'sink.create-table' = 'true');
CREATE TABLE b (k BIGINT, x BIGINT) WITH ('connector' = 'sqlite', 'path' = 'd.db', 'table' = 'b', 'sink.create-table' = 'true');
CREATE TABLE f (k BIGINT, x BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
"""


def writing(x: int, *tables: str, source: str = "t") -> str:
    inserts = "".join(f"INSERT INTO {table} SELECT k, {x} AS x FROM {source};" for table in tables)
    return f"{TABLES} EXECUTE STATEMENT SET BEGIN {inserts} END;"


def table_of(folder: Path, name: str) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(folder / "d.db")) as con:
        return sorted(con.execute(f"SELECT k, x FROM {name}").fetchall())


def files_of(folder: Path) -> list[tuple[int, int]]:
    lines = [line for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines()]
    return sorted((row["k"], row["x"]) for row in map(json.loads, lines))


def test_a_batch_that_sinks_have_and_the_job_has_not_is_repeated_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "other", "x", [(8, 8)])
    (tmp_path / "other" / "in").rename(tmp_path / "more")
    first = READ.format(name="u", folder="more") + INPUT
    both = "(SELECT k FROM u UNION ALL SELECT k FROM t)"
    put(tmp_path, "a", [(1, 1)])
    run(tmp_path, first + writing(1, "f", "a", source=both), 2)
    put(tmp_path, "b", [(2, 2)])
    with monkeypatch.context() as patch:
        die_before_commit(patch, last_batch(tmp_path) + 1)
        fail(tmp_path, first + writing(1, "f", "a", source=both), "died")
    assert table_of(tmp_path, "a") == files_of(tmp_path) == [(1, 1), (2, 1), (8, 1)]
    # The other batch would be one with this row, too.
    put(tmp_path, "c", [(3, 3)])
    # The sinks change their places, one is new; so do the sources, and one goes.
    run(tmp_path, INPUT + writing(10, "a", "b", "f"), 4, upgrade=True)
    assert table_of(tmp_path, "a") == [(1, 1), (2, 1), (3, 10), (8, 1)]
    assert table_of(tmp_path, "b") == [(2, 10), (3, 10)]
    # Files can be taken back: the new query writes those of the batch.
    assert files_of(tmp_path) == [(1, 1), (2, 10), (3, 10), (8, 1)]


def last_batch(folder: Path) -> int:
    with open_session(folder) as session:
        found = last_committed(session.warehouse.fs, session.warehouse.job("j"))
        assert found is not None
        return found


SENT = """
CREATE TABLE sent (k BIGINT, x BIGINT)
WITH ('connector' = 'python', 'class' = 'tests.connectors.own_connectors.Later', 'file' = 'sent');
INSERT INTO sent SELECT k, {x} AS x FROM t;
"""


def test_rows_of_a_committed_batch_that_were_not_sent_yet_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", [(1, 1)])
    script = (INPUT + SENT).replace("'sent')", f"'{tmp_path}/sent')")
    # Of this class the first call fails, unless one has.
    (tmp_path / "sent.failed").touch()
    tell = Commits.tell_sinks

    def dying(commits: Commits, version: int) -> None:
        if version >= 0:
            raise RuntimeError("died")
        tell(commits, version)

    with monkeypatch.context() as patch:
        patch.setattr(Commits, "tell_sinks", dying)
        fail(tmp_path, script.format(x=1), "died")
    assert last_batch(tmp_path) == 0
    put(tmp_path, "b", [(2, 2)])
    run(tmp_path, script.format(x=10), 2, upgrade=True)
    sent = [json.loads(line) for line in (tmp_path / "sent").read_text().splitlines()]
    assert [row for _, rows in sent for row in rows] == [{"k": 1, "x": 1}, {"k": 2, "x": 10}]


PUBLISHED = """
CREATE TABLE kept (k BIGINT) WITH ('sqlstream.publish' = 'delta');
INSERT INTO kept SELECT k FROM t WHERE k < {bound};
"""


def test_a_published_table_has_each_row_once(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    put(tmp_path, "a", [(1, 1)])
    run(tmp_path, INPUT + PUBLISHED.format(bound=50), 1)
    put(tmp_path, "b", [(2, 2)])
    run(tmp_path, INPUT + PUBLISHED.format(bound=60), 2, upgrade=True)
    with open_session(tmp_path) as session:
        folder = session.warehouse.published("kept")
    assert sorted(deltalake.DeltaTable(folder).to_pyarrow_table()["k"].to_pylist()) == [1, 2]


KEYED = """
CREATE TABLE {name} (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
SET 'pipeline.name' = '{job}';
INSERT INTO {name} WITH by_key AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT k, n FROM by_key;
"""


def test_a_table_with_a_key_that_another_job_writes_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a", [(1, 1)])
    run(tmp_path, INPUT + KEYED.format(name="ours", job="j"), 1)
    run(tmp_path, INPUT + KEYED.format(name="theirs", job="other"), 1)
    with pytest.raises(SqlStreamError, match='job "other" writes it already'):
        run(tmp_path, INPUT + KEYED.format(name="theirs", job="j"), 1, upgrade=True)
    assert rows_of(tmp_path, "FROM ours") == rows_of(tmp_path, "FROM theirs") == [(1, 1)]
    assert rows_of(tmp_path, "SELECT savepoint FROM sqlstream.savepoints") == []


def test_a_job_goes_back_behind_its_upgrade_as_long_as_sinks_have_no_more(tmp_path: Path) -> None:
    put(tmp_path, "a", [(1, 1)])
    old, new = (INPUT + writing(x, "a", "f") for x in (1, 10))
    run(tmp_path, old, 1)
    notices: list[str] = []
    with open_session(tmp_path, notices) as session:
        job = start(session, new, upgrade=True)
        wait_until(lambda: job.is_waiting)
        job.stop()
        assert job.wait(SECONDS)
        [kept] = [notice.split('"')[1] for notice in notices if "keeps job" in notice]
        assert (
            f'savepoint "{kept}" keeps job "j" as it was: run --from goes back to it until the job writes into '
            in "".join(notices)
        )
    put(tmp_path, "b", [(2, 2)])
    notices.clear()
    run(tmp_path, old, 2, savepoint=kept, notices=notices)
    assert table_of(tmp_path, "a") == files_of(tmp_path) == [(1, 1), (2, 1)]
    # Nothing comes again.
    assert not any("comes again" in notice for notice in notices)
    put(tmp_path, "c", [(3, 3)])
    run(tmp_path, new, 3, upgrade=True)
    with pytest.raises(SqlStreamError, match="cannot go back") as refused:
        run(tmp_path, old, 3, savepoint=kept)
    assert 'tables outside of the warehouse: "a" (sqlite).' in (refused.value.detail or "")


def test_a_job_does_not_go_back_behind_what_it_may_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", [(1, 1)])
    old = INPUT + writing(1, "a")
    run(tmp_path, old, 1)
    with open_session(tmp_path) as session:
        take_savepoint(session.warehouse, "j", "one")
    put(tmp_path, "b", [(2, 2)])
    with monkeypatch.context() as patch:
        die_before_commit(patch, last_batch(tmp_path) + 1)
        fail(tmp_path, INPUT + writing(10, "a"), "died", upgrade=True)
    assert table_of(tmp_path, "a") == [(1, 1), (2, 10)]
    with pytest.raises(SqlStreamError, match='cannot go back to savepoint "one"'):
        run(tmp_path, old, 2, savepoint="one")
