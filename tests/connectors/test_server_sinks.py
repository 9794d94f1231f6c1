"""Tables of PostgreSQL and MariaDB servers that jobs write: what both do alike."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sqlstream.connectors.mysql.sink import MySQLTransaction, MySQLWriter
from sqlstream.connectors.postgresql.sink import PostgreSQLTransaction, PostgreSQLWriter
from sqlstream.errors import DataError
from sqlstream.testing import Stream
from tests.connectors.database_sinks import COUNTS, copying, write_and_crash
from tests.mariadb_server import MySQLDatabase
from tests.postgres_server import Database
from tests.processes import wait_until

pytestmark = pytest.mark.slow

TYPES: dict[str, tuple[type, type]] = {
    "postgresql": (PostgreSQLTransaction, PostgreSQLWriter),
    "mysql": (MySQLTransaction, MySQLWriter),
}


class Server:
    """A database of a server, and how jobs write into it."""

    def __init__(self, connector: str, database: Database | MySQLDatabase):
        self.connector, self.database = connector, database
        self.run = database.run

    def options(self, table: str, *, creates: bool = True) -> str:
        more = ", 'sink.create-table' = 'true'" if creates else ""
        return f"'connector' = '{self.connector}', 'url' = '{self.database.url}', 'table' = '{table}'{more}"

    def crash(self) -> None:
        (self.database.server if isinstance(self.database, MySQLDatabase) else self.database).crash()

    def session(self) -> Any:
        """Open a connection in which each transaction is to be committed."""
        import psycopg

        if isinstance(self.database, MySQLDatabase):
            return self.database.connect(autocommit=False)
        return psycopg.connect(self.database.url)

    def somebody_waits(self) -> bool:
        """Whether a transaction waits for another one."""
        if isinstance(self.database, MySQLDatabase):
            waiting = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            return self.database.server.administration().run(waiting) != [(0,)]
        return self.run("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)]


@pytest.fixture(scope="module", params=TYPES)
def server(request: pytest.FixtureRequest) -> Server:
    fixture = "postgres" if request.param == "postgresql" else "mariadb"
    return Server(request.param, request.getfixturevalue(fixture).database())


def test_changes_of_keys(server: Server) -> None:
    with Stream(COUNTS.format(options=server.options("counts"))) as stream:
        stream.batch("sold", [(1, 10), (1, 20), (2, 30)])
        assert sorted(server.run("SELECT * FROM counts")) == [(1, 2, 30), (2, 1, 30)]
        stream.batch("sold", [(1, 80), (2, 5), (3, 7)])
        stream.restart()
        # A row of somebody else's stays as it is.
        server.run("INSERT INTO counts VALUES (9, 9, 9)")
        stream.batch("sold", [(3, 1)])
        assert sorted(server.run("SELECT * FROM counts")) == [(2, 2, 35), (3, 2, 8), (9, 9, 9)]
    [(batch,)] = server.run("SELECT batch FROM sqlstream_batches WHERE sink LIKE 'counts-%'")
    assert batch == 2


def test_a_batch_that_comes_again_is_not_written_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Stream(copying("n BIGINT", server.options("once"))) as stream:
        rows = write_and_crash(stream, *TYPES[server.connector], monkeypatch)
        assert server.run("SELECT n FROM once ORDER BY n") == rows
        # The warehouse is a copy of an older one.
        server.run("UPDATE sqlstream_batches SET batch = 8 WHERE sink LIKE 'kept-%'")
        with pytest.raises(DataError, match="has batches up to 8 of the job, which has committed 3 only"):
            stream.restart()
    server.run("DELETE FROM sqlstream_batches")


def test_a_first_batch_whose_commit_comes_late(server: Server) -> None:
    """The connection was lost in the COMMIT, which the server still does while the batch comes again."""
    with Stream(copying("n BIGINT", server.options("lost"))) as stream, server.session() as lost:
        cursor = lost.cursor()
        cursor.execute("INSERT INTO lost VALUES (1)")
        cursor.execute("UPDATE sqlstream_batches SET batch = 0 WHERE sink LIKE 'kept-%'")

        def commit() -> None:
            wait_until(server.somebody_waits)
            lost.commit()

        committing = threading.Thread(target=commit)
        committing.start()
        stream.batch("given", [(1,)])
        committing.join()
        assert server.run("SELECT n FROM lost") == [(1,)]
        stream.batch("given", [(2,)])
    assert server.run("SELECT n FROM lost ORDER BY n") == [(1,), (2,)]
    server.run("DELETE FROM sqlstream_batches")


def test_a_key_that_is_there_already(server: Server) -> None:
    server.run("CREATE TABLE keyed (n bigint PRIMARY KEY)")
    with Stream(copying("n BIGINT", server.options("keyed", creates=False))) as stream:
        stream.batch("given", [(1,)])
        with pytest.raises(DataError) as refused:
            stream.batch("given", [(1,)])
    assert refused.value.hint == "Declare the PRIMARY KEY: then a row takes the place of the one that has its key."


def test_a_server_that_is_away(server: Server) -> None:
    with Stream(COUNTS.format(options=server.options("away"))) as stream:
        stream.batch("sold", [(1, 10)])
        server.crash()
        stream.batch("sold", [(1, 10)])
        assert server.run("SELECT n FROM away") == [(2,)]


def test_a_warehouse_that_went_back(server: Server) -> None:
    with Stream(COUNTS.format(options=server.options("back"))) as stream:
        stream.batch("sold", [(1, 10)])
        server.run("UPDATE sqlstream_batches SET batch = 7 WHERE sink LIKE 'counts-%'")
        stream.restart()
        assert stream.runs["counts"].commits.notices()
        stream.batch("sold", [(1, 10)])
        assert server.run("SELECT n FROM back") == [(2,)]
