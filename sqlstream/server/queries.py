"""State queries over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sqlstream.server.http_answers import HttpQuery, HttpRequest
from sqlstream.server.settings import Limits
from sqlstream.server.state_reader import StateReader
from sqlstream.server.turns import RequestTurns, TurnLimits

# Many queries end within this many seconds. Whoever asks again and again does not do so hundreds of times a second.
_PATIENCE = 0.5


class Queries(RequestTurns):
    """Runs state queries. A query is refused if others take all places for longer than half a second."""

    def __init__(self, reader: StateReader, limits: Limits):
        turns = TurnLimits(limits.queries, limits.query_seconds, "query", "queries are running", _PATIENCE)
        super().__init__(reader, turns)

    def stream(self, query: HttpQuery, form: str) -> AsyncIterator[bytes]:
        """Return the parts of the answer to a query, in the form JSON or ARROW; for errors see `parts`."""
        return self.parts(HttpRequest(query, form))
