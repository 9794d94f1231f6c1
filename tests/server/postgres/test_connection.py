"""How connections begin, what they are refused, and how their queries end before they are done."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sqlstream.errors import UsageError
from sqlstream.project import Project
from sqlstream.server.postgres.server import PostgresServer
from sqlstream.server.query_processes.pool import QueryProcesses
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_query_ends_when_its_client_has_left(served: Served) -> None:
    parse, bind = message(b"P", b"\0" + LONG + b"\0\0\0"), message(b"B", b"\0\0\0\0\0\0\0\0")
    # What stands behind a query is not read before its end.
    rest = message(b"E", b"\0\0\0\0\0") + message(b"S", b"") + message(b"X", b"")
    with serving.started(served.root, queries=1, seconds=None) as port:
        for asked in (message(b"Q", LONG + b"\0"), parse + bind + rest):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(start())
                assert b"Z\0\0\0\x05I" in received(raw, b"Z\0\0\0\x05I")
                raw.sendall(asked)
        # It was the only query that may run, and nothing else ends it.
        with psycopg.connect(f"host=127.0.0.1 port={port} user=x", autocommit=True) as con:
            con.execute("SET statement_timeout = '60s'")
            assert con.execute("SELECT 2").fetchone() == (2,)


@pytest.mark.slow
def test_a_query_that_waits_for_others_ends_as_one_that_runs(served: Served) -> None:
    with serving.started(served.root, queries=1, seconds=None) as port:
        url = f"host=127.0.0.1 port={port} user=x"
        with psycopg.connect(url, autocommit=True) as first, psycopg.connect(url, autocommit=True) as con:
            ended: list[Exception] = []
            busy = threading.Thread(target=lambda: ended.append(cancelled_error(first)))
            busy.start()
            try:
                con.execute("SET statement_timeout = '300ms'")
                wait_until(lambda: "statement timeout" in str(cancelled_error(con, b"SELECT 1")))
                con.execute("SET statement_timeout = 0")
                waiting = threading.Thread(target=lambda: ended.append(cancelled_error(con, b"SELECT 1")))
                waiting.start()
                wait_until(lambda: cancelled(con, ended))
                waiting.join()
                assert "user request" in str(ended)
                # The other one still runs.
                assert busy.is_alive()
            finally:
                wait_until(lambda: cancelled(first, not busy.is_alive()))


def cancelled(con: psycopg.Connection[Any], is_over: object) -> object:
    """Cancel what a connection asks, unless it was over before; return whether it was."""
    if not is_over:
        con.cancel_safe()
    return is_over


def cancelled_error(con: psycopg.Connection[Any], sql: bytes = LONG) -> Exception:
    """Return with what a query ends; that it was answered, if it was."""
    try:
        return AssertionError(con.execute(sql).fetchall())
    except psycopg.errors.QueryCanceled as error:
        return error


def test_the_time_of_a_statement_is_that_of_all_its_rows_and_of_what_it_asks_before(served: Served) -> None:
    with served.connect() as con:
        con.execute("SET statement_timeout = '1ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            con.execute("FROM range(500000)")
        con.execute("SET statement_timeout = '0.3 s'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            con.execute(b"FROM counts AT (VERSION => (" + LONG + b"))")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            con.execute("SET statement_timeout = 'soon'")


@pytest.mark.slow
def test_a_client_that_reads_nothing_can_cancel_and_does_not_hold_up_the_end(served: Served) -> None:
    async def run() -> bytes:
        processes = QueryProcesses(Project(str(served.root), str(served.root / "warehouse")))
        async with PostgresServer(processes, port=0) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(start() + message(b"Q", b"FROM range(100000000)\0"))
            while not server._connections:
                await asyncio.sleep(0)
            [connection] = server._connections.values()
            await full(connection._writer)
            number, secret = connection.key
            _, canceller = await asyncio.open_connection("127.0.0.1", server.port)
            canceller.write(struct.pack(">iiii", 16, 80877102, number, secret))
            await canceller.drain()
            while connection._running is None or not connection._running.is_stopped:
                await asyncio.sleep(0.01)
            canceller.close()
            said = b""
            while not (b"57014" in said and said.endswith(b"Z\0\0\0\x05I")):
                said = said[-1000:] + await reader.read(1 << 16)
            writer.write(message(b"Q", b"FROM range(100000000)\0"))
            await full(connection._writer)
            ending = server.__aexit__(None, None, None)
            await asyncio.wait_for(ending, 60)
        processes.close()
        return said

    assert b"user request" in asyncio.run(run())


async def full(writer: asyncio.StreamWriter) -> None:
    """Wait until a writer waits for its reader."""
    while not writer.transport.get_write_buffer_size() > writer.transport.get_write_buffer_limits()[1]:
        await asyncio.sleep(0.01)


def test_who_does_not_speak_tls_is_no_fault_of_the_server(
    served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority("tests").give("server", tmp_path / "server.pem"))

    async def run() -> None:
        processes = QueryProcesses(Project(str(served.root), str(served.root / "warehouse")))
        async with PostgresServer(processes, port=0, certificate=context) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(struct.pack(">ii", 8, 80877103))
            assert await reader.readexactly(1) == b"S"
            writer.write(b"no TLS at all" * 10)
            await reader.read()
            writer.close()
            while server._tasks:
                await asyncio.sleep(0.01)

    asyncio.run(run())
    assert not [r for r in caplog.records if r.name.startswith("sqlstream")]


def test_a_newer_protocol_is_answered_with_this_one(served: Served) -> None:
    with served.connect(max_protocol_version="latest") as con:
        assert con.execute("SELECT 1").fetchone() == (1,)


def test_who_has_not_said_the_password_sends_little(guarded: tuple[str, Path]) -> None:
    port = int(guarded[0].split("port=")[1].split()[0])
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(start() + b"p" + struct.pack(">i", 1 << 20))
        assert b"too long" in received(raw, b"54000")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("INSERT INTO counts VALUES ('x', 1)", psycopg.errors.ReadOnlySqlTransaction),
        ("DROP TABLE counts", psycopg.errors.ReadOnlySqlTransaction),
        ("WITH x AS (COPY (SELECT 1) TO 'f') FROM x", psycopg.errors.ReadOnlySqlTransaction),
        ("COPY counts TO STDOUT", psycopg.errors.ReadOnlySqlTransaction),
        ("FROM read_csv('/etc/passwd')", psycopg.errors.InsufficientPrivilege),
        ("SELECT $70000", psycopg.Error),
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_parameters_of_a_session(served: Served) -> None:
    options = r"-c application_name=report --my.own=1 -cmy.other=non-c\ x"
    with served.connect(options=options) as con:
        assert con.info.parameter_status("application_name") == "report"
        assert con.execute("SHOW my.own").fetchone() == ("1",)
        assert con.execute("SHOW my.other").fetchone() == ("non-c x",)
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
            QueryProcesses(Project(str(served.root), str(served.root / "warehouse"))),
            "0.0.0.0",
            0,
            allows=lambda _: True,
        )


def test_a_port_that_is_taken(served: Served) -> None:
    async def start_again() -> None:
        async with PostgresServer(
            QueryProcesses(Project(str(served.root), str(served.root / "warehouse"))), port=served.port
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


@pytest.mark.slow
def test_a_connection_keeps_so_many_statements_and_values(served: Served) -> None:
    limits = {"statements": 2, "portals": 2, "characters": 2_000}

    def parsed(name: str, sql: str = "SELECT $1") -> bytes:
        return message(b"P", f"{name}\0{sql}\0".encode() + b"\0\0")

    def bound(portal: str, size: int = 1) -> bytes:
        value = struct.pack(">hhi", 0, 1, size) + b"x" * size
        return message(b"B", f"{portal}\0a\0".encode() + value + b"\0\0")

    sync, refused = (
        message(b"S", b""),
        [
            ([parsed("a"), parsed("b"), parsed("c")], b"keeps 2 prepared statements at most"),
            (
                [parsed("a"), parsed("b", "SELECT '" + "x" * 2_000 + "'")],
                b"keeps statements and values of 2000 characters",
            ),
            ([parsed("a"), bound("x"), bound("y"), bound("z")], b"keeps 2 portals at most"),
            ([parsed("a"), bound("x", 1_500), bound("y", 1_500)], b"keeps statements and values of 2000 characters"),
        ],
    )
    with serving.started(served.root, **limits) as port:
        for sent, said in refused:
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(start())
                received(raw, b"Z\0\0\0\x05I")
                raw.sendall(b"".join(sent) + sync)
                assert said in received(raw, b"Z\0\0\0\x05I")
                # What is closed makes room, and so does what takes the place of another.
                raw.sendall(
                    message(b"C", b"Sa\0") + message(b"C", b"Sb\0") + parsed("a") + bound("") + bound("") + sync
                )
                assert b"C54000" not in received(raw, b"Z\0\0\0\x05I")


@pytest.mark.slow
def test_a_result_that_nobody_reads_gives_its_place_back(served: Served) -> None:
    with serving.started(served.root, results=1, seconds=4) as port:
        url = f"host=127.0.0.1 port={port} user=x"
        with psycopg.connect(url, autocommit=True) as con:
            # From now on there are processes.
            wait_until(lambda: "1" in str(cancelled_error(con, b"SELECT 1")))
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(start() + message(b"Q", b"BEGIN\0"))
            received(raw, b"Z\0\0\0\x05T")
            asked = b"\0SELECT * FROM range(100000)\0\0\0"
            rest = message(b"B", b"p\0\0\0\0\0\0\0\0") + message(b"E", b"p\0\0\0\0\x01") + message(b"S", b"")
            raw.sendall(message(b"P", asked) + rest)
            # Its portal is open after the first row.
            assert b"s\0\0\0\x04" in received(raw, b"Z\0\0\0\x05T")
            with psycopg.connect(url, autocommit=True) as con:

                def has_place() -> bool:
                    try:
                        return con.execute("SELECT 1").fetchone() == (1,)
                    except (psycopg.errors.ConfigurationLimitExceeded, psycopg.errors.QueryCanceled):
                        return False

                wait_until(has_place)
            raw.sendall(message(b"E", b"p\0\0\0\0\x01") + message(b"S", b""))
            assert b"statement timeout" in received(raw, b"Z\0\0\0\x05E")
