"""How connections begin, what they are refused, and how their queries end before they are done."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sqlstream.compiler.project import Project
from sqlstream.errors import UsageError
from sqlstream.server.postgres.server import PostgresServer
from sqlstream.server.query_pool import QueryPool
from tests.certificates import Authority
from tests.processes import wait_until
from tests.server.postgres import serving
from tests.server.postgres.conftest import Served

LONG = b"SELECT count(*) FROM range(1000000000000) r WHERE r.range % 7 = 3"
TOKEN = "correct horse battery staple"


@pytest.fixture(scope="module")
def guarded(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server with a token, a certificate and small limits, and the certificate of its authority."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority("tests")
    certificate = authority.give("server", folder / "server.pem")
    limits = {"connections": 1, "rows": 10_000}
    with serving.started(served.root, token=TOKEN, certificate=str(certificate), **limits) as port:
        yield f"host=127.0.0.1 port={port} user=anybody", authority.write(folder / "authority.pem")


def test_a_token_is_a_password_and_the_connection_is_encrypted(guarded: tuple[str, Path]) -> None:
    url, authority = guarded
    with only_one(f"{url} sslmode=verify-full sslrootcert={authority}") as con:
        assert con.pgconn.ssl_in_use
        assert con.execute("SELECT count(*) FROM counts").fetchone() == (2,)
    for password in ("wrong", TOKEN + "r", None):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(url, password=password)


def test_limits(guarded: tuple[str, Path]) -> None:
    url, _ = guarded
    with only_one(url) as con:
        with pytest.raises(psycopg.OperationalError, match="too many clients already"):
            psycopg.connect(url, password=TOKEN)
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="more than 10000 rows"):
            con.execute("FROM range(20000)")
        assert len(con.execute("FROM range(10000)").fetchall()) == 10_000
        con.execute("SET statement_timeout = '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            con.execute(LONG)


def test_a_client_has_no_more_time_than_the_server_gives(served: Served) -> None:
    with (
        serving.started(served.root, seconds=0.2) as port,
        psycopg.connect(f"host=127.0.0.1 port={port} user=x", autocommit=True) as con,
    ):
        con.execute("SET statement_timeout = '1h'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            con.execute(LONG)


def only_one(url: str) -> psycopg.Connection[Any]:
    """Return the only connection that there may be, as soon as the one before has gone."""
    found: list[psycopg.Connection[Any]] = []

    def connected() -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            found.append(psycopg.connect(url, password=TOKEN, autocommit=True))
        return bool(found)

    wait_until(connected)
    return found[0]


def test_a_client_cancels_its_query(served: Served) -> None:
    with served.connect() as con:
        ended = threading.Event()

        def cancel() -> None:
            # Once may be too early.
            while not ended.wait(0.05):
                con.cancel_safe()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                con.execute(LONG)
        finally:
            ended.set()
            canceller.join()
        assert con.execute("SELECT 1").fetchone() == (1,)


def test_a_query_ends_when_its_client_has_left(served: Served) -> None:
    with serving.started(served.root, queries=1) as port:
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(start())
            assert b"Z\0\0\0\x05I" in received(raw, b"Z\0\0\0\x05I")
            raw.sendall(b"Q" + struct.pack(">i", len(LONG) + 5) + LONG + b"\0")
        # It was the only query that may run.
        with psycopg.connect(f"host=127.0.0.1 port={port} user=x") as con:
            assert con.execute("SELECT 2").fetchone() == (2,)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("INSERT INTO counts VALUES ('x', 1)", psycopg.errors.ReadOnlySqlTransaction),
        ("DROP TABLE counts", psycopg.errors.ReadOnlySqlTransaction),
        ("WITH x AS (COPY (SELECT 1) TO 'f') FROM x", psycopg.errors.ReadOnlySqlTransaction),
        ("COPY counts TO STDOUT", psycopg.errors.ReadOnlySqlTransaction),
        ("FROM read_csv('/etc/passwd')", psycopg.errors.InsufficientPrivilege),
        # A query of the catalog runs elsewhere, and can reach nothing there.
        ("SELECT * FROM pg_class, read_csv('/etc/passwd')", psycopg.Error),
        ("SELECT pg_read_file('/etc/passwd')", psycopg.Error),
        ("SELECT 1 FROM pg_class, generate_series(1, 1000000)", psycopg.errors.ProgramLimitExceeded),
        ("SELECT nope FROM counts", psycopg.errors.UndefinedColumn),
        ("FROM nowhere", psycopg.errors.UndefinedTable),
        ("SELECT nope(1)", psycopg.errors.UndefinedFunction),
        ("SELECT 1 +", psycopg.errors.SyntaxError),
        ("SELECT 'abc", psycopg.errors.SyntaxError),
        ("SELECT 'x'::INTEGER", psycopg.errors.InvalidTextRepresentation),
        ("SELECT 2147483647::INTEGER + 1::INTEGER", psycopg.errors.NumericValueOutOfRange),
        ("SET client_encoding = 'LATIN1'", psycopg.errors.InvalidParameterValue),
        ("SET default_transaction_read_only = off", psycopg.errors.InvalidParameterValue),
    ],
)
def test_errors_have_states(served: Served, sql: str, error: type[psycopg.Error]) -> None:
    with served.connect() as con:
        with pytest.raises(error):
            con.execute(sql.encode())
        assert con.execute("SELECT 1").fetchone() == (1,)


def test_a_failed_transaction_takes_nothing_until_its_end(served: Served) -> None:
    with served.connect() as con:
        con.execute("BEGIN")
        with pytest.raises(psycopg.errors.UndefinedTable):
            con.execute("FROM nowhere")
        assert con.info.transaction_status.name == "INERROR"
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            con.execute("SELECT 1")
        assert con.execute("COMMIT").statusmessage == "ROLLBACK"
        assert con.execute("SELECT 1").fetchone() == (1,)


def test_parameters_of_a_session(served: Served) -> None:
    options = "-c application_name=report -c my.own=1"
    with served.connect(options=options) as con:
        assert con.info.parameter_status("application_name") == "report"
        assert con.execute("SHOW my.own").fetchone() == ("1",)
        con.execute("SET application_name TO 'other'")
        assert con.info.parameter_status("application_name") == "other"
        con.execute("RESET ALL")
        assert con.execute("SHOW application_name").fetchone() == ("report",)
        assert con.execute("SELECT current_setting('server_version'), current_database()").fetchone() == (
            "15.0",
            "flights",
        )
        assert ("counts", "k, n") in con.execute("SHOW TABLES").fetchall()


def test_a_portal_gives_its_rows_in_parts(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        raw.sendall(start())
        received(raw, b"Z\0\0\0\x05I")
        part = message(b"E", b"p\0" + struct.pack(">i", 2)) + message(b"H", b"")
        parse = message(b"P", b"s\0FROM range(5)\0\0\0")
        bind = message(b"B", b"p\0s\0\0\0\0\0\0\0")
        begin = message(b"Q", b"BEGIN\0")
        raw.sendall(begin + parse + bind + part + message(b"S", b""))
        assert received(raw, b"Z\0\0\0\x05T", times=2).count(b"D\0\0\0") == 2
        raw.sendall(part * 2 + message(b"S", b""))
        rest = received(raw, b"Z\0\0\0\x05T")
        assert rest.count(b"D\0\0\0") == 3
        assert b"SELECT 5" in rest


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x08\0\x09\0\0",
        b"\xff" * 100,
        b"\0\0\0\x10\0\x03\0\0user\0\0\0\0",
    ],
)
def test_what_is_no_client_is_sent_away(served: Served, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while raw.recv(1000):
                pass
    assert served.rows("SELECT 1") == [(1,)]


def test_other_machines_need_a_token_and_a_certificate(served: Served) -> None:
    with pytest.raises(UsageError, match="are not served"):
        PostgresServer(
            QueryPool(Project(str(served.root), str(served.root / "warehouse"))), "0.0.0.0", 0, allows=lambda _: True
        )


def test_a_port_that_is_taken(served: Served) -> None:
    async def start_again() -> None:
        async with PostgresServer(
            QueryPool(Project(str(served.root), str(served.root / "warehouse"))), port=served.port
        ):
            pass

    with pytest.raises(UsageError, match="cannot be listened on"):
        asyncio.run(start_again())


def start() -> bytes:
    """Return what a client begins with."""
    body = struct.pack(">i", 196608) + b"user\0x\0\0"
    return struct.pack(">i", len(body) + 4) + body


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def received(raw: socket.socket, end: bytes, times: int = 1) -> bytes:
    """Return what comes until an end has come so many times."""
    data = bytearray()

    def read() -> bool:
        data.extend(raw.recv(1 << 16))
        return data.count(end) >= times

    wait_until(read)
    return bytes(data)
