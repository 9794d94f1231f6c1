"""What clients may send by mistake or in bad faith ends nothing but their own call."""

from __future__ import annotations

from uuid import UUID

import adbc_driver_manager
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from sqlstream.errors import QueryError
from sqlstream.server.flight.messages import NoMessage, packed, parsed, unpacked
from sqlstream.server.flight.metadata import _matches
from sqlstream.server.flight.statements import FlightStatement, FlightStatements
from sqlstream.server.placeholders import filled
from tests.server.flight.conftest import Served, connect, flight_server
from tests.server.flight.serving import started

ODD = "pässword\n"


@pytest.mark.slow
def test_a_password_may_be_any_text(served: Served) -> None:
    # It is in no header that is sent back. The server is a process of its own, which nothing is to end.
    with (
        started(served.root) as port,
        connect(f"grpc://127.0.0.1:{port}", username="x", password=ODD) as connection,
    ):
        assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]


def test_a_token_that_no_header_can_hold_is_refused(served: Served) -> None:
    with (
        flight_server(served.root, allows=lambda token: token == ODD) as server,
        pytest.raises(adbc_driver_manager.Error, match=r"UNAUTHENTICATED.*characters of ASCII"),
        connect(server.url, username="x", password=ODD) as connection,
    ):
        connection.adbc_get_table_types()


def stray() -> pa.RecordBatch:
    """Return a row whose value would be a piece of memory behind it."""
    offsets = np.array([0, 8], np.int32)
    value = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(b"x" * 8)])
    row = pa.record_batch({"a": value})
    # Behind the back of Arrow, which looks at what it is given.
    offsets[1] = 256
    return row


def nothings(count: int) -> pa.RecordBatch:
    """Return a row with a list of many NULLs, which take no room."""
    return pa.record_batch({"a": pa.ListArray.from_arrays([0, count], pa.nulls(count))})


@pytest.mark.parametrize(
    ("row", "said"), [(stray(), "these are no parameters"), (nothings(200_000), "100,000 values at most")]
)
def test_parameters_that_are_not_what_they_say(served: Served, row: pa.RecordBatch, said: str) -> None:
    with fl.connect(served.url) as client:
        request = packed("ActionCreatePreparedStatementRequest", query="SELECT ?")
        [result] = client.do_action(fl.Action("CreatePreparedStatement", request))
        _, prepared = unpacked(result.body.to_pybytes())
        handle = {"prepared_statement_handle": prepared.prepared_statement_handle}

        def put() -> None:
            descriptor = fl.FlightDescriptor.for_command(packed("CommandPreparedStatementQuery", **handle))
            writer, reader = client.do_put(descriptor, row.schema)
            writer.write_batch(row)
            writer.done_writing()
            answer = reader.read()
            writer.close()
            # Values are counted when the statement runs.
            known = parsed("DoPutPreparedStatementResult", answer.to_pybytes()).prepared_statement_handle
            command = packed("CommandPreparedStatementQuery", prepared_statement_handle=known)
            client.get_flight_info(fl.FlightDescriptor.for_command(command))

        with pytest.raises(pa.ArrowException, match=said):
            put()


def test_a_parameter_may_be_a_uuid(served: Served) -> None:
    value = UUID(int=7)
    row = pa.record_batch({"a": pa.array([value.bytes], pa.uuid())})
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT ?::VARCHAR", row)
        assert cursor.fetchall() == [(str(value),)]


def test_a_long_parameter_stands_in_a_statement_only_so_often() -> None:
    text = f"'{'x' * (1 << 20)}'"
    assert len(filled("SELECT $1, $1", [text]).text) > 2 << 20
    with pytest.raises(QueryError, match="characters at most"):
        filled(f"SELECT {', '.join(['$1'] * 100)}", [text])


def test_patterns_of_names_are_those_of_like() -> None:
    parts = ["a", "b", "%", "_", r"\%", r"\_", "%%"]
    patterns = [f"{x}{y}{z}{x}" for x in parts for y in parts for z in parts]
    names = ["", "a", "ab", "ba", "aab", "abab", "a%", "_b", "bb%b", "a\nb"]
    with duckdb.connect() as con:
        found = con.execute(
            r"SELECT p, n, n LIKE p ESCAPE '\' FROM unnest(?) a(p), unnest(?) b(n)", [patterns, names]
        ).fetchall()
    assert len(found) == len(patterns) * len(names)
    assert [(p, n) for p, n, is_like in found if _matches(p, n) != is_like] == []
    # Trying all places where each part may stand would take longer than anybody lives.
    assert not _matches("%a" * 60 + "b", "a" * 100)


@pytest.mark.slow
def test_a_ticket_is_a_key_that_is_good_for_its_token_alone(served: Served) -> None:
    tokens = ("correct horse battery staple", "another that is as long")
    with flight_server(served.root, allows=lambda token: token in tokens) as server, fl.connect(server.url) as client:
        mine, others = (
            fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())]) for token in tokens
        )
        sql = "SELECT 'planted' AS a"
        command = packed("CommandStatementQuery", query=sql)
        ticket = client.get_flight_info(fl.FlightDescriptor.for_command(command), mine).endpoints[0].ticket
        assert b"planted" not in ticket.ticket
        with pytest.raises(pa.ArrowException, match="this statement is not known"):
            client.do_get(ticket, others).read_all()
        assert client.do_get(ticket, mine).read_all().to_pylist() == [{"a": "planted"}]
        # So are prepared statements.
        request = fl.Action("CreatePreparedStatement", packed("ActionCreatePreparedStatementRequest", query=sql))
        _, prepared = unpacked(next(iter(client.do_action(request, mine))).body.to_pybytes())
        handle = {"prepared_statement_handle": prepared.prepared_statement_handle}
        described = fl.FlightDescriptor.for_command(packed("CommandPreparedStatementQuery", **handle))
        with pytest.raises(pa.ArrowException, match="this statement is not known"):
            client.get_flight_info(described, others)
        assert client.get_flight_info(described, mine).schema.names == ["a"]
        list(
            client.do_action(
                fl.Action("ClosePreparedStatement", packed("ActionClosePreparedStatementRequest", **handle)), mine
            )
        )
        with pytest.raises(pa.ArrowException, match="this statement is not known"):
            client.get_flight_info(described, mine)


def test_statements_that_are_kept_have_limits() -> None:
    kept = FlightStatements(most=2, most_bytes=1_000)
    first, second = (kept.keep(b"a", FlightStatement(f"SELECT {n}")) for n in range(2))
    assert kept.of(b"a", first).sql == "SELECT 0"
    # That of another token takes no room from it; one more of its own does, from the one that was used least lately.
    kept.keep(b"b", FlightStatement("SELECT 3"))
    third = kept.keep(b"a", FlightStatement("SELECT 2"))
    assert [kept.of(b"a", key).sql for key in (first, third)] == ["SELECT 0", "SELECT 2"]
    with pytest.raises(NoMessage, match="prepare it"):
        kept.of(b"a", second)
    # A large one stays alone.
    large = kept.keep(b"a", FlightStatement("x" * 2_000))
    assert kept.of(b"a", large).size > 1_000
    for key in (first, third):
        with pytest.raises(NoMessage):
            kept.of(b"a", key)
