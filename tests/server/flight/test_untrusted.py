"""What clients may send by mistake or in bad faith ends nothing but their own call."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import adbc_driver_manager
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from sqlstream.errors import QueryError
from sqlstream.server.flight.messages import packed, parsed
from sqlstream.server.flight.metadata import _matches
from sqlstream.server.flight.statements import FlightStatement
from sqlstream.server.placeholders import filled
from tests.server.flight.conftest import Served, connect, flight_server
from tests.server.flight.serving import started

ODD = "pässword\n"


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
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, row.schema) as writer:
        writer.write_batch(row)
    statement = FlightStatement("SELECT ?", written.getvalue().to_pybytes())
    handle = {"prepared_statement_handle": FlightStatement("SELECT ?").packed()}
    with fl.connect(served.url) as client:

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

        def get() -> None:
            client.do_get(fl.Ticket(packed("TicketStatementQuery", statement_handle=statement.packed()))).read_all()

        calls: list[Callable[[], None]] = [put, get]
        for call in calls:
            with pytest.raises(pa.ArrowException, match=said):
                call()


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
