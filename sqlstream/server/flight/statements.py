"""Statements of clients on their way: what a ticket and a prepared statement are known by says all about them.

So the server keeps nothing of a prepared statement, and a client may take one to another server on the same warehouse.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from sqlstream.errors import QueryError, SourceText
from sqlstream.server.flight.messages import NoMessage
from sqlstream.server.flight.parameters import MOST_BYTES, check_rows, literals
from sqlstream.server.placeholders import filled, parameter_count


class FlightStatement(msgspec.Struct, frozen=True, array_like=True):
    """A statement, its parameters as a stream of Arrow, and by what it is known while the server has it open."""

    sql: str
    parameters: bytes = b""
    key: bytes = b""

    def packed(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @property
    def count(self) -> int:
        """How many parameters it needs. Raises QueryError."""
        return parameter_count(self.sql)

    def source(self) -> SourceText:
        """Return the text that runs. Raises QueryError for parameters that do not fit."""
        values = literals(_table(self.parameters)) if self.parameters else []
        if len(values) < self.count:
            raise QueryError(f"{len(values)} parameters are given, and {self.count} are needed")
        return filled(self.sql, values)

    def described(self) -> SourceText:
        """Return the text with NULL for each parameter, whose result has the same columns."""
        return filled(self.sql, ["NULL"] * self.count)

    def with_parameters(self, rows: pa.Table) -> FlightStatement:
        """Return the statement with values for its parameters. Raises QueryError for too many of them."""
        if rows.nbytes > MOST_BYTES:
            raise QueryError(f"parameters have {MOST_BYTES} bytes at most")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        # Of no columns there are no parameters.
        return FlightStatement(self.sql, sink.getvalue().to_pybytes() if rows.num_columns else b"")

    def parameter_schema(self) -> pa.Schema:
        """Return the types of parameters: a text becomes what it is compared with."""
        return pa.schema([pa.field(f"${number}", pa.string()) for number in range(1, self.count + 1)])


def statement_of(packed: bytes) -> FlightStatement:
    """Return what is in a ticket or what a prepared statement is known by. Raises NoMessage."""
    try:
        return msgspec.msgpack.decode(packed, type=FlightStatement)
    except msgspec.DecodeError as error:
        raise NoMessage("this statement is not known") from error


def _table(parameters: bytes) -> pa.Table:
    try:
        found = pa.ipc.open_stream(parameters).read_all()
    except (pa.ArrowException, OSError) as error:
        raise NoMessage("these are no parameters") from error
    # They come from the client, which may have written anything.
    check_rows(found)
    return found
