"""Who is let in, and how queries end before they are done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from adbc_driver_flightsql import DatabaseOptions

from sqlstream.errors import UsageError
from sqlstream.server.flight import queries, watching
from sqlstream.server.flight.messages import packed, parsed
from sqlstream.server.flight.queries import FlightLimits
from sqlstream.server.flight.server import FlightServer
from tests.certificates import Authority
from tests.processes import wait_until
from tests.server.flight.conftest import Served, connect, fetch, flight_server
from tests.server.serving import await_idle

LONG = "SELECT count(*) FROM range(1000000000000) r WHERE r.range % 7 = 3"
ENDLESS = "FROM range(1000000000000)"
TOKEN = "correct horse battery staple"


@pytest.fixture(scope="module")
def guarded(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server with a token and a certificate, and the certificate of its authority."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority("tests")
    file = str(authority.give("server", folder / "server.pem"))
    with flight_server(served.root, allows=lambda token: token == TOKEN, certificate=(file, file)) as server:
        yield server.url, authority.write(folder / "authority.pem").read_text()


@pytest.mark.slow
def test_a_token_is_a_password_or_comes_by_itself(guarded: tuple[str, str]) -> None:
    url, authority = guarded
    assert url.startswith("grpc+tls://127.0.0.1:")
    tls, header = {DatabaseOptions.TLS_ROOT_CERTS.value: authority}, DatabaseOptions.AUTHORIZATION_HEADER.value
    for options in ({"username": "anybody", "password": TOKEN}, {header: f"Bearer {TOKEN}"}):
        with connect(url, **tls, **options) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM counts")
            assert cursor.fetchall() == [(2,)]
    refused: list[dict[str, str]] = [
        {},
        {"username": "anybody", "password": TOKEN[:-1]},
        {header: f"Bearer {TOKEN}x"},
        {header: "Basic ?"},
        {header: TOKEN},
    ]
    for options in refused:
        with pytest.raises(adbc_driver_manager.Error, match=r"UNAUTHENTICATED.*a token of the server is needed"):
            asked(url, **tls, **options)
    # Without the authority the certificate is not trusted, and without TLS nothing is said.
    for place in (url, url.replace("grpc+tls", "grpc")):
        with pytest.raises(adbc_driver_manager.Error):
            asked(place, **{header: f"Bearer {TOKEN}"})


def asked(url: str, **options: str) -> None:
    """Ask a server something, for which it is to let one in."""
    with connect(url, **options) as connection:
        connection.adbc_get_table_types()


def test_everybody_may_come_where_there_are_no_tokens(served: Served) -> None:
    asked(served.url, username="x", password="whatever it is")


def test_other_machines_need_a_token_and_a_certificate(served: Served) -> None:
    with pytest.raises(UsageError, match="are not served"):
        FlightServer(served.server._reader._processes, "0.0.0.0", 0, allows=lambda _: True)


def test_a_port_that_is_taken(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(UsageError, match="cannot be listened on"),
        FlightServer(served.server._reader._processes, port=served.server.port),
    ):
        pass
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_query_has_no_more_time_than_the_server_gives(served: Served) -> None:
    with flight_server(served.root, limits=FlightLimits(seconds=0.2)) as server, connect(server.url) as connection:
        # When rows are read, when a query is bound, and when it waits for its turn.
        for sql in (LONG, f"FROM counts AT (VERSION => ({LONG}))"):
            with connection.cursor() as cursor, pytest.raises(connection.OperationalError, match=r"longer than 0\.2 s"):
                fetch(cursor, sql)


def test_a_client_cancels_its_query(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.execute(LONG)
        wait_until(lambda: served.server.queries.running == 1)
        cursor.adbc_cancel()
        with pytest.raises(connection.Error, match=r"(?i)cancel"):
            cursor.fetchall()
    nothing_runs(served.server)


def nothing_runs(server: FlightServer) -> None:
    """Wait until no query of a server runs: nothing but an interruption ends those of these tests."""
    wait_until(lambda: server.queries.running == 0)


def info_of(client: fl.FlightClient, sql: str) -> Any:
    return client.get_flight_info(fl.FlightDescriptor.for_command(packed("CommandStatementQuery", query=sql)))


def test_another_connection_cancels_a_query(served: Served) -> None:
    with fl.connect(served.url) as client, fl.connect(served.url) as other:
        for sql in (LONG, ENDLESS):
            info = info_of(client, sql)
            ended: list[BaseException] = []

            def read(ticket: fl.Ticket = info.endpoints[0].ticket, ended: list[BaseException] = ended) -> None:
                try:
                    for _ in client.do_get(ticket):
                        pass
                except pa.ArrowException as error:
                    ended.append(error)

            reader = threading.Thread(target=read)
            reader.start()
            wait_until(lambda: served.server.queries.running == 1)
            request = packed("ActionCancelQueryRequest", info=info.serialize())
            kind = "CancelQuery"
            if sql == LONG:
                request, kind = fl_cancel(info), "CancelFlightInfo"
            [result] = other.do_action(fl.Action(kind, request))
            reader.join()
            assert "the query was cancelled" in str(ended)
            nothing_runs(served.server)
            if kind == "CancelFlightInfo":
                assert parsed("CancelFlightInfoResult", result.body.to_pybytes()).status == 1
        # One that nobody runs.
        [result] = other.do_action(fl.Action("CancelFlightInfo", fl_cancel(info)))
        assert parsed("CancelFlightInfoResult", result.body.to_pybytes()).status == 3


def fl_cancel(info: Any) -> bytes:
    """Return the message with which Flight cancels a query."""
    body: bytes = info.serialize()
    length, size = len(body), b""
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return b"\x0a" + size + bytes([length]) + body


def test_a_query_ends_when_its_client_has_left(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.execute(ENDLESS)
        # Rows come while there are more than there can be room for.
        assert cursor.fetch_record_batch().read_next_batch().num_rows > 0
        assert served.server.queries.running == 1
    nothing_runs(served.server)
    with fl.connect(served.url) as client:
        reader = client.do_get(info_of(client, LONG).endpoints[0].ticket)
        wait_until(lambda: served.server.queries.running == 1)
        reader.cancel()
    nothing_runs(served.server)


@pytest.mark.slow
def test_queries_take_turns(served: Served) -> None:
    with (
        flight_server(served.root, limits=FlightLimits(queries=1)) as server,
        fl.connect(server.url) as client,
        connect(server.url) as connection,
        connection.cursor() as cursor,
    ):
        idle = client.do_get(info_of(client, ENDLESS).endpoints[0].ticket)
        idle.read_chunk()
        # Whoever is slow to read takes nobody's turn.
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]
        busy = client.do_get(info_of(client, LONG).endpoints[0].ticket)
        wait_until(lambda: server.queries.running == 2)
        wait_until(lambda: server.queries._turns._value == 0)
        waiting: list[object] = []

        def ask() -> None:
            cursor.execute("SELECT 2")
            waiting.extend(cursor.fetchall())

        thread = threading.Thread(target=ask)
        thread.start()
        assert not waiting
        busy.cancel()
        thread.join()
        assert waiting == [(2,)]
        idle.cancel()
        nothing_runs(server)


@pytest.mark.slow
def test_results_that_are_read_at_once_have_a_limit(served: Served) -> None:
    with flight_server(served.root, limits=FlightLimits(results=1)) as server, fl.connect(server.url) as client:
        first = client.do_get(info_of(client, ENDLESS).endpoints[0].ticket)
        first.read_chunk()
        with pytest.raises(fl.FlightUnavailableError, match="1 results are being read"):
            client.do_get(info_of(client, "SELECT 1").endpoints[0].ticket).read_all()
        # Columns may have one name twice.
        assert info_of(client, "SELECT 1 AS a, 2 AS a").schema.names == ["a", "a"]
        first.cancel()
        nothing_runs(server)


@pytest.mark.slow
def test_results_that_are_read_hold_no_more_together_than_they_may(served: Served) -> None:
    # Sorted rows are held until the last one is read.
    held = "SELECT i, repeat('x', 100) || i AS text FROM range(200000) t(i) ORDER BY hash(i)"
    with (
        flight_server(served.root, limits=FlightLimits(memory=1 << 20)) as server,
        fl.connect(server.url) as client,
    ):
        # Alone it may hold as much as a query may.
        first = client.do_get(info_of(client, held).endpoints[0].ticket)
        first.read_chunk()
        with pytest.raises(fl.FlightUnavailableError, match=r"hold \S+ MiB of memory together, and 1\.0 MiB"):
            client.do_get(info_of(client, held).endpoints[0].ticket).read_all()
        assert sum(len(chunk.data) for chunk in first) > 100_000
        assert client.do_get(info_of(client, held).endpoints[0].ticket).read_all().num_rows == 200_000
        nothing_runs(server)


@pytest.mark.slow
def test_a_client_that_reads_nothing_is_cut_off_after_its_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_READING_SECONDS", 0.1)
    with (
        flight_server(served.root, limits=FlightLimits(seconds=0.3)) as server,
        fl.connect(server.url) as other,
        fl.connect(server.url) as client,
    ):
        await_idle(server._reader._processes)
        reader = client.do_get(info_of(client, ENDLESS).endpoints[0].ticket)
        reader.read_chunk()
        nothing_runs(server)
        with pytest.raises(pa.ArrowException):
            reader.read_all()
        # Others stay connected.
        assert info_of(other, "SELECT 1").schema.names == ["1"]


@pytest.mark.slow
def test_a_client_that_reads_nothing_does_not_hold_up_the_end(served: Served) -> None:
    with flight_server(served.root) as server:
        client = fl.connect(server.url)
        reader = client.do_get(info_of(client, ENDLESS).endpoints[0].ticket)
        reader.read_chunk()
        busy = client.do_get(info_of(client, LONG).endpoints[0].ticket)
    for one in (reader, busy):
        with pytest.raises(pa.ArrowException):
            one.read_all()
    client.close()


@pytest.mark.slow
def test_a_ticket_is_good_for_as_long_as_it_is_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with fl.connect(served.url) as client:
        ticket = info_of(client, "FROM counts ORDER BY k").endpoints[0].ticket
        # What was opened is used once; the ticket says what to open again.
        for _ in range(2):
            assert client.do_get(ticket).read_all().to_pydict() == {"k": ["a", "b"], "n": [1, 2]}
        many = queries._MOST_WAITING + 4
        tickets = [info_of(client, f"SELECT {n} AS n").endpoints[0].ticket for n in range(many)]
        assert len(served.server.queries._waiting) <= queries._MOST_WAITING
        assert [client.do_get(t).read_all().to_pydict()["n"] for t in tickets] == [[n] for n in range(many)]
        monkeypatch.setattr(queries, "_WAITING_SECONDS", 0)
        info_of(client, "SELECT 1")
        assert len(served.server.queries._waiting) == 1


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xff", b"SELECT 1", packed("TicketStatementQuery", statement_handle=b"\xc1")]
)
def test_what_is_no_message_is_refused(served: Served, data: bytes) -> None:
    with fl.connect(served.url) as client:
        calls: list[Callable[[], object]] = [
            lambda: client.get_flight_info(fl.FlightDescriptor.for_command(data)),
            lambda: client.get_flight_info(fl.FlightDescriptor.for_path("counts")),
            lambda: client.do_get(fl.Ticket(data)).read_all(),
            lambda: list(client.do_action(fl.Action("CreatePreparedStatement", data))),
            lambda: list(client.do_action(fl.Action("CancelFlightInfo", data + b"\x0a\x01x"))),
            lambda: list(client.do_action(fl.Action("Other", data))),
            lambda: list(client.list_flights()),
            lambda: info_of_handle(client, data),
        ]
        for call in calls:
            with pytest.raises(pa.ArrowException) as raised:
                call()
            assert "Traceback" not in str(raised.value)
            assert "internal error" not in str(raised.value)
        with pytest.raises(pa.ArrowException):
            client.get_schema(fl.FlightDescriptor.for_command(data))


def info_of_handle(client: fl.FlightClient, handle: bytes) -> Any:
    command = packed("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    return client.get_flight_info(fl.FlightDescriptor.for_command(command))
