"""Statements of clients, to which tickets and handles of prepared statements refer.

The server keeps the statements. Clients get keys, which nobody can guess, and which work only with the token of the client.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass

import pyarrow as pa

from sqlstream.errors import QueryError, SourceText
from sqlstream.server.flight.messages import NoMessage
from sqlstream.server.flight.parameters import MOST_BYTES, check_rows, literals
from sqlstream.server.placeholders import check_text, filled, parameter_count

# For each token this many statements are kept, with this many bytes in all; the least recently used ones are dropped.
_MOST = 1_000
_MOST_KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class FlightStatement:
    """A statement, its parameters as an Arrow stream, and the key of its query while the server has it open."""

    sql: str
    parameters: bytes = b""
    key: bytes = b""

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return len(self.sql) + len(self.parameters) + 200

    def check(self) -> None:
        """Raise QueryError if its text is too long."""
        check_text(self.sql)

    @property
    def count(self) -> int:
        """The number of parameters that it needs. Raises QueryError."""
        return parameter_count(self.sql)

    def source(self) -> SourceText:
        """Return the text to run, with its parameters. Raises QueryError if they do not fit, NoMessage if they are invalid."""
        values = literals(_table(self.parameters)) if self.parameters else []
        if len(values) < self.count:
            raise QueryError(f"{len(values)} parameters are given, and {self.count} are needed")
        return filled(self.sql, values)

    def described(self) -> SourceText:
        """Return the text with NULL for each parameter: its result has the same columns. Raises QueryError."""
        return filled(self.sql, ["NULL"] * self.count)

    def with_parameters(self, rows: pa.Table) -> FlightStatement:
        """Return the statement with values for its parameters. Raises QueryError if they have too many bytes."""
        if rows.nbytes > MOST_BYTES:
            raise QueryError(f"parameters have {MOST_BYTES} bytes at most")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        # Without columns there are no parameters.
        return FlightStatement(self.sql, sink.getvalue().to_pybytes() if rows.num_columns else b"")

    def parameter_schema(self) -> pa.Schema:
        """Return the types of the parameters, all strings: a text takes the type that it is compared with."""
        return pa.schema([pa.field(f"${number}", pa.string()) for number in range(1, self.count + 1)])


class FlightStatements:
    """The statements of all clients, by the digest of the client's token and by key."""

    def __init__(self, most: int = _MOST, most_bytes: int = _MOST_KEPT_BYTES):
        self._most, self._most_bytes = most, most_bytes
        self._statements: dict[bytes, OrderedDict[bytes, FlightStatement]] = {}
        self._changing = threading.Lock()

    def keep(self, owner: bytes, statement: FlightStatement) -> bytes:
        """Keep a statement for an owner (the digest of a token); return its key."""
        key = secrets.token_bytes(16)
        with self._changing:
            statements = self._statements.setdefault(owner, OrderedDict())
            statements[key] = statement
            while len(statements) > self._most or (
                len(statements) > 1 and sum(s.size for s in statements.values()) > self._most_bytes
            ):
                statements.popitem(last=False)
        return key

    def of(self, owner: bytes, key: bytes) -> FlightStatement:
        """Return the statement of a key. Raises NoMessage if it belongs to another owner, or was dropped."""
        with self._changing:
            statements = self._statements.get(owner, OrderedDict())
            if key not in statements:
                raise NoMessage("this statement is not known, or not any more: prepare it, or ask for it, again")
            statements.move_to_end(key)
            return statements[key]

    def forget(self, owner: bytes, key: bytes) -> None:
        """Drop the statement of a key, if there is one."""
        with self._changing:
            self._statements.get(owner, OrderedDict()).pop(key, None)


def _table(parameters: bytes) -> pa.Table:
    try:
        table = pa.ipc.open_stream(parameters).read_all()
    except (pa.ArrowException, OSError) as error:
        raise NoMessage("these are no parameters") from error
    # They come from the client, which may have written anything.
    check_rows(table)
    return table
