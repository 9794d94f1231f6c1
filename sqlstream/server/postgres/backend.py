"""What a connection runs: statements of a session, queries of the catalog, and queries of the warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb

from sqlstream.errors import SourceText
from sqlstream.server.placeholders import filled, parameter_count
from sqlstream.server.postgres.catalog import ClientCatalog, catalog_query
from sqlstream.server.postgres.parameters import arrays, literal, null
from sqlstream.server.postgres.results import ClientAnswer, SentRows, TextRows
from sqlstream.server.postgres.session import ClientSession, Reply, Written
from sqlstream.server.postgres.types import TEXT
from sqlstream.server.state_reader import RunningQuery, StateReader, failure


@dataclass(slots=True)
class Prepared:
    """A statement with its parameters' types: PostgreSQL's numbers, 0 for those that are not said. Nothing for no statement."""

    written: Written | None
    types: tuple[int, ...] = ()

    def typed(self) -> tuple[int, ...]:
        """Return the types of all parameters; those that are not said are text, or lists of it."""
        return tuple(oid or TEXT.oid for oid in self._known())

    def _known(self) -> tuple[int, ...]:
        """Return the types of all parameters as far as they are known: 0 is a text that becomes what it is compared with."""
        sql = self.written.sql if self.written else ""
        lists = arrays(sql)
        given = dict(enumerate(self.types, 1))
        numbers = range(1, parameter_count(sql) + 1)
        return tuple(given.get(n) or (TEXT.array if n in lists else 0) for n in numbers)

    def literals(self, values: Sequence[bytes | None], formats: Sequence[int]) -> list[str]:
        """Return the values of parameters as SQL. Raises ProtocolError."""
        wanted = formats if len(formats) == len(values) else [*formats, 0][:1] * len(values)
        return [literal(t, v, binary=bool(f)) for t, v, f in zip(self._known(), values, wanted, strict=False)]

    def nulls(self) -> list[str]:
        """Return NULL for each parameter, as SQL."""
        return [null(oid) for oid in self._known()]


@dataclass(slots=True)
class Portal:
    """A statement with values for its parameters: its answer, once it has been asked for, and the rows sent so far."""

    prepared: Prepared
    literals: Sequence[str]
    formats: Sequence[int]
    running: RunningQuery = field(default_factory=RunningQuery)
    answer: ClientAnswer | None = None
    reply: Reply | None = None
    sent: int = 0
    done: bool = False
    # The text that runs, for the places of errors.
    source: SourceText | None = None


class Backend:
    """Opens what clients ask for; its methods run in threads."""

    def __init__(self, reader: StateReader, session: ClientSession, process: int, row_limit: int | None):
        self._reader, self._session = reader, session
        self._catalog = ClientCatalog(session, process)
        self._row_limit = row_limit

    def open(self, portal: Portal) -> None:
        """Bind a portal's query: then its columns are known. Raises SqlStreamError, QueryStopped, ProtocolError."""
        written = portal.prepared.written
        assert written is not None
        portal.source = filled(written.sql, portal.literals)
        portal.answer = self._query(portal.source, portal.running, portal.formats)

    def _query(self, source: SourceText, running: RunningQuery, formats: Sequence[int]) -> ClientAnswer:
        asked = catalog_query(source.text)
        if asked is None:
            try:
                relation = self._reader.open(source.text, running)
            except duckdb.Error as error:
                raise failure(error, source, running) from error
            return SentRows(relation, source, running, formats, self._row_limit)
        running.check()
        relation = self._catalog.answer(asked, source, self._reader.tables(), running)
        return SentRows(relation, source, running, formats).computed()

    def close(self) -> None:
        self._catalog.close()


def answer_of(reply: Reply) -> ClientAnswer | None:
    """Return the rows of a statement of the session, if it has some."""
    return TextRows(reply.columns, reply.rows) if reply.columns else None
