"""The statements and portals of a connection, and the queries that they open, over the catalog and the warehouse."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlstream.errors import SourceText
from sqlstream.server.placeholders import filled, parameter_count
from sqlstream.server.postgres.answers import PostgresRequest
from sqlstream.server.postgres.errors import ProtocolError
from sqlstream.server.postgres.parameters import arrays, literal, null
from sqlstream.server.postgres.results import ClientAnswer, StreamedRows, TextRows
from sqlstream.server.postgres.session import ClientSession, Reply, StatementText
from sqlstream.server.postgres.types import TEXT
from sqlstream.server.state_reader import RunningQuery, StateReader


@dataclass(slots=True)
class PreparedStatement:
    """A statement with the types (oid) of its parameters, 0 for an unspecified one. `statement` is None for an empty one."""

    statement: StatementText | None
    types: tuple[int, ...] = ()

    def typed(self) -> tuple[int, ...]:
        """Return the oids of the types of all parameters. A type that the client left open is text, or an array of text."""
        return tuple(oid or TEXT.oid for oid in self._parameter_types())

    def _parameter_types(self) -> tuple[int, ...]:
        """Return the oids of the types of all parameters. 0 is an untyped text: it takes the type that it is compared with."""
        sql = self.statement.sql if self.statement else ""
        lists = arrays(sql)
        types_by_number = dict(enumerate(self.types, 1))
        numbers = range(1, parameter_count(sql) + 1)
        return tuple(types_by_number.get(n) or (TEXT.array if n in lists else 0) for n in numbers)

    def literals(self, values: Sequence[bytes | None], formats: Sequence[int]) -> list[str]:
        """Return the values of parameters as SQL. Raises ProtocolError for a value that is not of its type."""
        value_formats = formats if len(formats) == len(values) else [*formats, 0][:1] * len(values)
        return [
            literal(t, v, binary=bool(f))
            for t, v, f in zip(self._parameter_types(), values, value_formats, strict=False)
        ]

    def nulls(self) -> list[str]:
        """Return NULL as SQL for each parameter."""
        return [null(oid) for oid in self._parameter_types()]


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of clients: connections, concurrent queries, seconds per statement, rows of a result, bytes of a message.

    None for seconds and rows is no limit. At most `results` results are open at the same time, whether they are read or not.
    `statements` and `portals` limit how many of them a connection has, and `characters` the size of all of them together.
    """

    connections: int = 100
    queries: int = 8
    seconds: float | None = 300.0
    rows: int | None = None
    message_bytes: int = 16 << 20
    results: int = 32
    statements: int = 1_000
    portals: int = 100
    characters: int = 48 << 20


class ResultLimit:
    """Limits the number of open results, because each of them occupies a process."""

    def __init__(self, most: int):
        self._most, self._count = most, 0
        self._changing = threading.Lock()

    def take(self) -> None:
        """Take a place. Raises ProtocolError if none is free."""
        with self._changing:
            if self._count >= self._most:
                hint = "Read others to their end, or close them."
                raise ProtocolError(f"{self._most} results are being read, which is the most", "53400", hint=hint)
            self._count += 1

    def leave(self) -> None:
        """Free a place."""
        with self._changing:
            self._count -= 1


@dataclass(slots=True)
class Portal:
    """A statement with values for its parameters: its answer, once it is executed, and the number of rows sent so far."""

    prepared: PreparedStatement
    literals: Sequence[str]
    formats: Sequence[int]
    # Whether only the columns are requested.
    is_described: bool = False
    running: RunningQuery = field(default_factory=RunningQuery)
    answer: ClientAnswer | None = None
    reply: Reply | None = None
    sent: int = 0
    done: bool = False
    # The text that runs, for the positions of errors.
    source: SourceText | None = None
    # Where its place is taken, while its query has a process.
    limit: ResultLimit | None = None

    def close(self) -> None:
        """Close the answer, which frees its process."""
        limit, self.limit = self.limit, None
        if self.answer is not None:
            self.answer.close()
        if limit is not None:
            limit.leave()

    def is_idle(self, since: float) -> bool:
        """Return whether its query has a process, and no rows were fetched after the time `since`."""
        return self.limit is not None and isinstance(self.answer, StreamedRows) and self.answer.since < since

    @property
    def size(self) -> int:
        """The number of characters of the values of its parameters, as SQL."""
        return sum(map(len, self.literals))


class Backend:
    """Opens the queries of a client; its methods run in threads."""

    def __init__(
        self, reader: StateReader, session: ClientSession, process: int, limits: ClientLimits, limit: ResultLimit
    ):
        self._reader, self._session, self._process = reader, session, process
        self._limits, self._limit = limits, limit

    def open(self, portal: Portal) -> None:
        """Bind a portal's query, which determines its columns. Raises SqlStreamError, QueryStopped and ProtocolError."""
        statement = portal.prepared.statement
        assert statement is not None
        portal.source = filled(statement.sql, portal.literals)
        request = PostgresRequest(
            portal.source.text, self._session, self._process, portal.formats, self._limits.rows, portal.is_described
        )
        self._limit.take()
        portal.limit = self._limit
        try:
            portal.answer = StreamedRows(self._reader.open(request, portal.running))
        except BaseException:
            portal.close()
            raise


def answer_of(reply: Reply) -> ClientAnswer | None:
    """Return the answer with the rows of a session statement's reply; None if the reply has no rows."""
    return TextRows(reply.columns, reply.rows) if reply.columns else None
