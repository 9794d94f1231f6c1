"""Tables of databases as bounded sources: the rows of one query, copied once; a repeated batch reads the copy."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.relational import rows as copied_rows
from sqlstream.connectors.sqlite import lookup as sqlite_lookup
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.local.engine import LocalEngine
from sqlstream.testing import Stream
from tests.processes import SECONDS

MAKE = "CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR(100), amount DECIMAL(10, 2), since TIMESTAMP)"
ROWS = "INSERT INTO users VALUES (1, 'ann', 1.5, '2026-01-01 10:00:00'), (2, 'böb', NULL, NULL)"
MORE = "INSERT INTO users VALUES (3, 'cem', 7, NULL)"
COLUMNS = "id INT, name STRING, amount DECIMAL(10, 2), since TIMESTAMP(3)"
EXPECTED = [(1, "ann", "1.50", "2026-01-01 10:00:00"), (2, "böb", None, None)]


def read(stream: Stream) -> list[tuple[object, ...]]:
    return stream.query("SELECT id, name, amount::VARCHAR, since::VARCHAR FROM copy ORDER BY id")


def check(connector: str, change: object) -> None:
    """Check that a job reads the rows once, even if there are more when it starts again."""
    script = f"""CREATE TABLE users ({COLUMNS}) WITH ({connector}); CREATE TABLE copy ({COLUMNS});
    INSERT INTO copy SELECT * FROM users"""
    with Stream(script) as stream:
        stream.finish()
        assert read(stream) == EXPECTED
        assert callable(change)
        change()
        stream.restart()
        stream.finish()
        assert read(stream) == EXPECTED
        assert stream.verify("copy")


def sqlite_file(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as con:
        con.execute(MAKE)
        con.execute(ROWS)
        con.commit()
    return path


def more_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as con:
        con.execute(MORE)
        con.commit()


def test_sqlite(tmp_path: Path) -> None:
    path = sqlite_file(tmp_path / "a.db")
    check(f"'connector' = 'sqlite', 'path' = '{path}', 'table' = 'users'", lambda: more_sqlite(path))


def test_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"

    def execute(*statements: str) -> None:
        with duckdb.connect(str(path)) as con:
            for statement in statements:
                con.execute(statement)

    execute(MAKE, ROWS)
    options = f"'connector' = 'jdbc', 'url' = 'jdbc:duckdb:{path}', 'table-name' = 'users', 'scan.fetch-size' = '10'"
    check(options, lambda: execute(MORE))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_servers(kind: str, request: pytest.FixtureRequest) -> None:
    database = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb").database()
    database.run(MAKE.replace("TIMESTAMP", "TIMESTAMP" if kind == "postgresql" else "DATETIME"))
    database.run(ROWS)
    options = f"'connector' = '{kind}', 'url' = '{database.url}', 'table' = 'users'"
    check(options, lambda: database.run(MORE))


SCRIPT = """CREATE TABLE users (id INT, name STRING) WITH ('connector' = 'sqlite', 'path' = 'a.db', 'table' = '{}');
CREATE TABLE copy (id INT); INSERT INTO copy SELECT id FROM users"""


def run(project: Path, table: str = "users") -> list[int]:
    """Run a job that copies the table; return the numbers that it has written."""
    with Session(str(project), notice=lambda text: None) as session:
        compiled = session.compile(SourceText("script", SCRIPT.format(table)))
        [planned] = [one for one in compiled if isinstance(one, PlannedJob)]
        assert planned.bounded
        job = session._jobs.start(planned, {}, engine=LocalEngine())
        assert job.wait(SECONDS)
        return [number for (number,) in session.query("FROM copy ORDER BY id").fetchall()]


def test_a_job_goes_on_in_the_copy_where_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sqlite_file(tmp_path / "a.db")
    more_sqlite(path)
    # A file, and a batch, for each row.
    monkeypatch.setattr(sqlite_lookup, "CHUNK", 1)
    monkeypatch.setattr(copied_rows, "BATCH_BYTES", 1)
    read, calls = copied_rows.CopiedRows.read, list[int]()

    def dying(
        self: copied_rows.CopiedRows, con: duckdb.DuckDBPyConnection, splits: list[object], context: object
    ) -> object:
        calls.append(len(splits))
        if len(calls) == 2:
            raise OSError("killed")
        return read(self, con, splits, context)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(copied_rows.CopiedRows, "read", dying)
        with pytest.raises(Exception, match="killed"):
            run(tmp_path)
    assert calls == [1, 1]
    with closing(sqlite3.connect(path)) as con:
        con.execute("DELETE FROM users")
        con.commit()
    assert run(tmp_path) == [1, 2, 3]


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    sqlite_file(tmp_path / "a.db")
    with pytest.raises(SqlStreamError, match='has no table "nothing"'):
        run(tmp_path, "nothing")


def test_an_empty_table(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as con:
        con.execute(MAKE)
    assert run(tmp_path) == []
