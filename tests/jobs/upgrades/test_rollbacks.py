"""Ways back from an upgrade, and what is asked of a job whose upgrade was interrupted: sinks never get a row twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from sqlstream import SqlStreamError
from sqlstream.catalog import Table
from sqlstream.cli.main import cli
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.savepoints import rollbacks
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import plan_restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime.engine import Layout
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.jobs import ScanRecord
from sqlstream.warehouse.paths import Warehouse
from tests.jobs.savepoint_jobs import INPUT, open_session, put
from tests.jobs.upgrades.test_comparing import planned, record
from tests.jobs.upgrades.test_upgraded_sinks import die_before_commit, fail, last_batch, table_of
from tests.jobs.upgrades.upgrade_jobs import rows_of
from tests.local.test_engine import wait_for_rows
from tests.processes import SECONDS, wait_until

# A sink in which a row that comes twice, or is left out, is seen.
DATABASE = """
CREATE TABLE a (k BIGINT, x BIGINT) WITH ('connector' = 'sqlite', 'path' = 'd.db', 'table' = 'a', 'sink.create-table' = 'true');
CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
SET 'pipeline.name' = 'j';
EXECUTE STATEMENT SET BEGIN
INSERT INTO a SELECT k, {x} AS x FROM t;
INSERT INTO totals WITH by_key AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT k, n FROM by_key;
END;
"""


def database(x: int) -> str:
    return INPUT + DATABASE.format(x=x)


def go_on(folder: Path, script: str, rows: int, *, upgrade: bool = False, savepoint: str | None = None) -> list[str]:
    """Run the job of a script until it has read so many rows in all, and stop it; return the savepoints that there are."""
    with open_session(folder) as session:
        compiled = session.compile(SourceText("script", script))
        compiled, restored = plan_restore(compiled, session.warehouse, savepoint)
        [planned] = [one for one in compiled if isinstance(one, PlannedJob)]
        asked = Upgrade() if upgrade else None
        restore = restored.get(planned.name)
        job = session._jobs.start(planned, {}, engine=LocalEngine(), restore=restore, upgrade=asked)
        wait_for_rows(job, rows)
        wait_until(lambda: job.is_waiting)
        job.stop()
        assert job.wait(SECONDS)
        return list(session.warehouse.savepoints())


def savepoint(folder: Path, name: str) -> None:
    with open_session(folder) as session:
        take_savepoint(session.warehouse, "j", name)


def tasks(patch: pytest.MonkeyPatch, count: int) -> None:
    patch.setattr(LocalEngine, "layout", lambda engine, parallelism: Layout(count, tuple(range(count))))


@pytest.mark.slow
def test_a_job_goes_back_behind_an_upgrade_after_which_nothing_came(tmp_path: Path) -> None:
    put(tmp_path, "a", [(1, 1)])
    go_on(tmp_path, database(1), 1)
    [taken] = go_on(tmp_path, database(10), 1, upgrade=True)
    put(tmp_path, "b", [(1, 2)])
    go_on(tmp_path, database(1), 2, savepoint=taken)
    assert table_of(tmp_path, "a") == [(1, 1), (1, 1)]
    assert rows_of(tmp_path, "FROM totals") == [(1, 2)]
    # Once something came, it does not.
    go_on(tmp_path, database(10), 2, upgrade=True)
    put(tmp_path, "c", [(1, 3)])
    go_on(tmp_path, database(10), 3)
    with pytest.raises(SqlStreamError, match="cannot go back"):
        go_on(tmp_path, database(1), 3, savepoint=taken)
    assert table_of(tmp_path, "a") == [(1, 1), (1, 1), (1, 10)]


def test_a_job_goes_back_behind_another_parallelism_after_which_nothing_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", [(1, 1), (2, 2)])
    tasks(monkeypatch, 1)
    go_on(tmp_path, database(1), 2)
    savepoint(tmp_path, "one")
    tasks(monkeypatch, 2)
    go_on(tmp_path, database(1), 2)
    put(tmp_path, "b", [(2, 3), (3, 4)])
    go_on(tmp_path, database(1), 4, savepoint="one")
    assert table_of(tmp_path, "a") == [(1, 1), (2, 1), (2, 1), (3, 1)]
    assert rows_of(tmp_path, "FROM totals") == [(1, 1), (2, 2), (3, 1)]


class Killed(BaseException):
    """The process is gone."""


def killed_upgrade(folder: Path, patch: pytest.MonkeyPatch, script: str, rows: int) -> None:
    """Let an upgrade die when the old job is gone, and the new one is not there."""

    def dying(fs: LocalFilesystem, path: str) -> None:
        delete_tree(fs, path)
        if path.endswith("/commits"):
            raise Killed

    delete_tree: Callable[[LocalFilesystem, str], None] = LocalFilesystem.delete_tree
    with patch.context() as patched:
        patched.setattr(LocalFilesystem, "delete_tree", dying)
        with pytest.raises(Killed):
            go_on(folder, script, rows, upgrade=True)


def test_a_job_does_not_go_back_behind_its_sinks_because_an_upgrade_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", [(1, 1)])
    go_on(tmp_path, database(1), 1)
    savepoint(tmp_path, "early")
    put(tmp_path, "b", [(2, 2)])
    go_on(tmp_path, database(1), 2)
    savepoint(tmp_path, "late")
    killed_upgrade(tmp_path, monkeypatch, database(10), 2)
    with pytest.raises(SqlStreamError, match='cannot go back to savepoint "early"'):
        go_on(tmp_path, database(1), 2, savepoint="early")
    put(tmp_path, "c", [(3, 3)])
    go_on(tmp_path, database(1), 3, savepoint="late")
    assert table_of(tmp_path, "a") == [(1, 1), (2, 1), (3, 1)]
    assert rows_of(tmp_path, "FROM totals") == [(1, 1), (2, 1), (3, 1)]


def sqlstream(folder: Path, *arguments: str) -> None:
    """Run a command without a terminal. Raises what it raises."""
    result = CliRunner().invoke(
        cli, [*arguments, "--project", str(folder)], catch_exceptions=False, standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception


def test_another_upgrade_is_asked_about_where_one_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", [(1, 1)])
    go_on(tmp_path, database(1), 1)
    killed_upgrade(tmp_path, monkeypatch, database(10), 1)
    (tmp_path / "j.sql").write_text(database(100))
    with pytest.raises(SqlStreamError, match="an upgrade has to be confirmed"):
        sqlstream(tmp_path, "run", str(tmp_path / "j.sql"), "--upgrade")
    # Nothing was done: the upgrade that was confirmed is completed by the next start.
    put(tmp_path, "b", [(2, 2)])
    go_on(tmp_path, database(10), 2)
    assert table_of(tmp_path, "a") == [(1, 1), (2, 10)]


LEDGER = """
CREATE TABLE ledger (k BIGINT, n BIGINT)
WITH ('connector' = 'python', 'class' = 'tests.connectors.own_connectors.Ledger', 'file' = '{file}');
SET 'pipeline.name' = 'j';
INSERT INTO ledger WITH by_key AS (SELECT k, count(*) AS n FROM t {where} GROUP BY k) SELECT k, n FROM by_key;
"""


def ledger(folder: Path, where: str = "") -> str:
    return INPUT + LEDGER.format(file=folder / "ledger", where=where)


def test_a_batch_that_a_sink_may_have_is_not_taken_back_by_another_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink has the batch as the old query made it, and would be told to take back what the new one makes of it."""
    put(tmp_path, "a", [(1, 1), (2, 2)])
    go_on(tmp_path, ledger(tmp_path), 2)
    put(tmp_path, "b", [(1, 3), (2, 4)])
    with monkeypatch.context() as patch:
        die_before_commit(patch, last_batch(tmp_path) + 1)
        fail(tmp_path, ledger(tmp_path), "died")
    with pytest.raises(SqlStreamError) as refused:
        go_on(tmp_path, ledger(tmp_path, "WHERE k < 2"), 4, upgrade=True)
    assert 'table "ledger": it may have rows of a batch that has begun' in (refused.value.detail or "")
    go_on(tmp_path, ledger(tmp_path), 4)
    put(tmp_path, "c", [(1, 5), (2, 6)])
    go_on(tmp_path, ledger(tmp_path, "WHERE k < 2"), 6, upgrade=True)
    assert ledger_of(tmp_path) == [(1, 3), (2, 2)]


def ledger_of(folder: Path) -> Sequence[tuple[int, int]]:
    """Return the rows that the batches of the sink add up to."""
    sums: dict[tuple[int, int], int] = {}
    for line in (folder / "ledger").read_text().splitlines():
        for row in json.loads(line)["rows"]:
            key = (row["k"], row["n"])
            sums[key] = sums.get(key, 0) + row["__sqlstream_weight"]
    assert set(sums.values()) <= {0, 1}, sums
    return sorted(key for key, count in sums.items() if count)


KEYED = """
CREATE TABLE pairs (k BIGINT, j BIGINT, n BIGINT, PRIMARY KEY ({key}) NOT ENFORCED);
SET 'pipeline.name' = 'j';
INSERT INTO pairs WITH by_key AS (SELECT k, k % 2 AS j, count(*) AS n FROM t GROUP BY k, k % 2) SELECT k, j, n FROM by_key;
"""


def test_another_key_of_a_table_is_another_query(tmp_path: Path) -> None:
    put(tmp_path, "a", [(1, 1)])
    go_on(tmp_path, INPUT + KEYED.format(key="k, j"), 1)
    savepoint(tmp_path, "first")
    with pytest.raises(SqlStreamError, match="exists with another query") as refused:
        go_on(tmp_path, INPUT + KEYED.format(key="j"), 1)
    assert "-Key of pairs: j, k\n+Key of pairs: j" in (refused.value.detail or "")
    with pytest.raises(SqlStreamError, match="is of a job with another query"):
        go_on(tmp_path, INPUT + KEYED.format(key="j"), 1, savepoint="first")
    with pytest.raises(SqlStreamError) as refused:
        go_on(tmp_path, INPUT + KEYED.format(key="j"), 1, upgrade=True)
    assert "it holds changes by the key k, j, and would hold changes by the key j" in (refused.value.detail or "")
    # The key of the table may be the same, and not that of the query.
    more = KEYED.format(key="k, j").replace("k, k % 2) SELECT", "k, k % 2, k % 3) SELECT")
    with pytest.raises(SqlStreamError) as refused:
        go_on(tmp_path, INPUT + more, 1, upgrade=True)
    told = 'table "pairs": the query gave one row for each key k, j, and would give several; write another table'
    assert told in (refused.value.detail or "")
    # The order of its columns says nothing.
    put(tmp_path, "b", [(1, 2)])
    go_on(tmp_path, INPUT + KEYED.format(key="J, k"), 2)
    assert rows_of(tmp_path, "FROM pairs") == [(1, 1, 2)]


class Source:
    def __init__(self, table: Table):
        self.rewinds = table.options["class"] == "a.Again"


@pytest.mark.parametrize("classes", [("a.Once", "a.Again"), ("a.Again", "a.Once"), ("a.Again", "a.Again")])
def test_a_table_that_is_read_with_several_sets_of_options_comes_again_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: tuple[str, str]
) -> None:
    monkeypatch.setattr(rollbacks, "source_of", Source)
    scans = tuple(ScanRecord(name, "t", kind="python") for name in ("t", "t_2"))
    saved = replace(record(planned("SELECT 1 AS one FROM u", "SELECT count(*) AS n FROM t"), tmp_path), scans=scans)
    tables = [Table("t", (), options={"connector": "python", "class": name}) for name in classes]
    way = rollbacks.way_back(Warehouse(str(tmp_path)), saved, tables)
    assert ('because rows of "t" (python) do not come again' in way) is ("a.Once" in classes)
