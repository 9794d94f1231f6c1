"""What connectors say of their tables: what these reach, whether a job can go back or be forked, and what is left behind."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import ClassVar

import pytest

import sqlstream
from sqlstream import SqlStreamError
from sqlstream.catalog import VALUES
from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors import registry
from sqlstream.connectors.formats.value_source import ValueRows
from sqlstream.connectors.guarantees import Replay, Rollback
from sqlstream.connectors.interface import Connector, Reach, TableSource
from sqlstream.errors import SourceText, UsageError
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.rollbacks import rollback
from sqlstream.server.problems import HttpError
from sqlstream.server.restrictions import TableRestrictions
from sqlstream.testing import check_connector
from tests.connectors.outside_connectors import (
    JournalConnector,
    LedgerConnector,
    ScreenConnector,
    TicksConnector,
    installed,
    lines,
)
from tests.jobs.savepoint_jobs import INPUT, open_session, put, start
from tests.jobs.upgrades.test_upgraded_sinks import run
from tests.processes import SECONDS, wait_until
from tests.server.serving import settings_of

OUTSIDE = (JournalConnector, LedgerConnector, ScreenConnector, TicksConnector)
ALL = (registry.WAREHOUSE, VALUES, *registry.built_in())
COPY = """
CREATE TABLE o (k BIGINT) WITH ('connector' = '{}', 'path' = 'o.txt');
INSERT INTO o SELECT k FROM t;
"""


@pytest.mark.parametrize("name", ALL)
def test_connectors_say_all_that_nobody_can_assume(name: str) -> None:
    check_connector(type(registry.named(name)))


@pytest.mark.parametrize("connector", OUTSIDE)
def test_connectors_of_packages_do_so_too(connector: type[Connector]) -> None:
    check_connector(connector)


def test_what_they_say() -> None:
    by_reach = {reach: {name for name in ALL if registry.named(name).reach is reach} for reach in Reach}
    assert by_reach[Reach.NOTHING] == {"blackhole", "datagen", "faker", "nexmark", "print", VALUES}
    assert by_reach[Reach.FILE] == {"duckdb", "sqlite"}
    assert by_reach[Reach.STORE] == {"delta", "filesystem"}
    sinks = {name for name in registry.built_in() if registry.named(name).sink_type is not None}
    assert {name for name in sinks if rollback(name) is Rollback.NO_ROWS} == {"print", "blackhole"}
    assert {name for name in sinks if rollback(name) is Rollback.ROWS_REMOVED} == {"filesystem"}
    sources = {name: kind for name in ALL if (kind := registry.named(name).source_type) is not None}
    assert {name for name, kind in sources.items() if kind.slot is not None} == {"postgres-cdc"}
    databases = {"duckdb", "sqlite", "postgresql", "mysql"}
    assert {name for name, kind in sources.items() if not kind.rewinds} == {"postgres-cdc", "socket", *databases}


@pytest.mark.slow
def test_code_outside_of_the_connectors_asks_for_none_by_its_name() -> None:
    # Other things have these names, too.
    names = {*registry.built_in()} - {"delta", "duckdb", "python"}
    package = Path(sqlstream.__file__).parent
    places = []
    for path in package.rglob("*.py"):
        if path.relative_to(package).parts[0] == "connectors":
            continue
        constants = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
        places += [f"{path.relative_to(package)}:{node.lineno}" for node in constants if node.value in names]
    assert places == []


class Silent(ValueRows):
    """Says nothing."""


class Careless(ValueRows):
    """Contradicts itself."""

    replay = Replay.AT_MOST_ONCE
    replay_reason = "lines are lost"
    rewinds = True
    slot: str | None = None
    split_type = tuple


class SilentConnector(Connector):
    name = "silent"
    source_type = Silent


class CarelessConnector(Connector):
    name = "careless"
    summary = "lines"
    reach = Reach.FILE
    formats: ClassVar = ("yaml",)
    source_type = Careless

    def lookup(self, table: object) -> None:
        return None


def test_the_check_lists_all_that_is_missing() -> None:
    with pytest.raises(AssertionError) as raised:
        check_connector(SilentConnector)
    assert str(raised.value).splitlines() == [
        "connector SilentConnector:",
        "- summary is missing",
        "- SilentConnector.reach is missing",
        "- Silent.replay is missing",
        "- Silent.replay_reason is missing",
        "- Silent.rewinds is missing",
        "- Silent.slot is missing",
        "- Silent.split_type is missing",
    ]
    with pytest.raises(AssertionError) as raised:
        check_connector(CarelessConnector)
    assert str(raised.value).splitlines() == [
        "connector CarelessConnector:",
        "- lookup_type is missing, although lookup() is defined: it stands for all that lookup() returns",
        '- format "yaml" does not exist',
        '- reach is Reach.FILE, and there is no option "path"',
        "- Careless.rewinds is True, although its rows cannot be read again",
    ]


class Half(TableSource):
    replay = Replay.REPLAYABLE
    replay_reason = "lines are read again"

    def discovery(self, position: object, context: object) -> None:  # type: ignore[override]
        raise NotImplementedError

    def read(self, con: object, splits: object, context: object) -> None:  # type: ignore[override]
        raise NotImplementedError


class HalfConnector(Connector):
    name = "half"
    summary = "lines"
    source_type = Half


def test_a_job_does_not_read_a_source_that_leaves_out_what_nobody_can_assume(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler()
    script = """
        CREATE TABLE t (k BIGINT) WITH ('connector' = 'half');
        CREATE TABLE o (k BIGINT);
        INSERT INTO o SELECT k FROM t;
    """
    with installed(monkeypatch, HalfConnector), pytest.raises(UsageError) as raised:
        compiler.scripts([SourceText("test", script)])
    compiler.close()
    assert raised.value.message == 'connector "half": class "Half" does not declare rewinds, slot'
    assert "check_connector" in (raised.value.hint or "")


class Decoded(Connector):
    name = "decoded"
    summary = "generated values in a format"
    reach = Reach.NOTHING
    formats: ClassVar = ("json", "protobuf")


def test_sql_of_the_role_submit_uses_connectors_by_what_they_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = TableRestrictions(settings_of(tmp_path).project, ("in",))
    with installed(monkeypatch, JournalConnector, TicksConnector, Decoded):
        check("t", {"connector": "journal", "path": "in/x"}, None)
        check("t", {"connector": "decoded", "format": "json"}, None)
        for options, message in (
            ({"connector": "journal", "path": "out/x"}, "its path is outside"),
            ({"connector": "journal", "path": "s3://b/x"}, "its path is outside"),
            ({"connector": "journal", "path": "in/x", "position-path": "y"}, 'cannot set "position-path"'),
            ({"connector": "decoded", "protobuf.schema-file": "/etc/passwd"}, "cannot set"),
            ({"connector": "ticks"}, 'cannot use the connector "ticks"'),
            ({"connector": "journals", "path": "in/x"}, 'cannot use the connector "journals"'),
        ):
            with pytest.raises(HttpError, match=message):
                check("t", options, None)


def test_a_job_goes_back_whose_sink_removes_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []
    with installed(monkeypatch, JournalConnector):
        script = INPUT + COPY.format("journal")
        put(tmp_path, "a", [(1, 1)])
        run(tmp_path, script, 1)
        with open_session(tmp_path) as session:
            take_savepoint(session.warehouse, "j", "one")
        put(tmp_path, "b", [(2, 2)])
        run(tmp_path, script, 2)
        put(tmp_path, "c", [(3, 3)])
        run(tmp_path, script, 3, savepoint="one", notices=notices)
    assert lines(f"{tmp_path}/o.txt") == [1, 2, 3]
    assert not any("comes again" in notice for notice in notices)


def test_a_job_does_not_go_back_whose_rows_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, LedgerConnector, ScreenConnector):
        for name in ("ledger", "screen"):
            folder = tmp_path / name
            script = INPUT + COPY.format(name)
            put(folder, "a", [(1, 1)])
            run(folder, script, 1)
            with open_session(folder) as session:
                take_savepoint(session.warehouse, "j", "one")
            put(folder, "b", [(2, 2)])
            run(folder, script, 2)
            if name == "screen":
                run(folder, script, 2, savepoint="one")
                continue
            with pytest.raises(SqlStreamError, match='cannot go back to savepoint "one"') as refused:
                run(folder, script, 2, savepoint="one")
            assert '"o" (ledger)' in (refused.value.detail or "")


def run_some(folder: Path, script: str) -> None:
    """Run a job of a source without an end until it has read more rows, and stop it."""
    with open_session(folder) as session:
        job = start(session, script)
        before = job.progress.rows_in
        wait_until(lambda: job.progress.rows_in > before)
        job.stop()
        assert job.wait(SECONDS)


def test_a_source_with_a_place_on_a_server_has_no_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
        SET 'pipeline.name' = 'j';
        CREATE TABLE t (k BIGINT) WITH ('connector' = 'ticks', 'rows-per-second' = '1000');
        CREATE TABLE o (k BIGINT);
        INSERT INTO o SELECT k FROM t;
    """
    with installed(monkeypatch, TicksConnector):
        run_some(tmp_path, script)
        with open_session(tmp_path) as session:
            take_savepoint(session.warehouse, "j", "one")
        with open_session(tmp_path) as session:
            with pytest.raises(SqlStreamError, match=r'a fork cannot read table "t" \(ticks\)') as refused:
                start(session, script, restore="one", name="other")
            assert refused.value.detail == "Its cursor on the server is that of the first job."
        run_some(tmp_path, script)
        with (
            open_session(tmp_path) as session,
            pytest.raises(SqlStreamError, match=r'job "j" cannot go back in table "t" \(ticks\)'),
        ):
            start(session, script, restore="one")


def test_a_source_in_python_whose_rows_are_gone_does_not_go_back(tmp_path: Path) -> None:
    script = """
        SET 'pipeline.name' = 'j';
        CREATE TABLE t (k BIGINT, part STRING) WITH ('connector' = 'python',
          'class' = 'tests.connectors.outside_connectors.{name}', 'file' = '{file}', 'source.monitor-interval' = '10 ms');
        CREATE TABLE o (k BIGINT);
        INSERT INTO o SELECT k FROM t;
    """
    for name in ("Numbers", "Gone"):
        folder = tmp_path / name
        folder.mkdir()
        count = folder / "count"
        one = script.format(name=name, file=count)
        count.write_text("1")
        run(folder, one, 1)
        with open_session(folder) as session:
            take_savepoint(session.warehouse, "j", "one")
        count.write_text("2")
        run(folder, one, 2)
        if name == "Numbers":
            run(folder, one, 2, savepoint="one")
            continue
        with pytest.raises(SqlStreamError, match=r'job "j" cannot go back in table "t" \(python\)'):
            run(folder, one, 2, savepoint="one")
