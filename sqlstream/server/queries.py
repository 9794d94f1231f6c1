"""State queries over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sqlstream.server.http_answers import Asked, HttpRequest
from sqlstream.server.settings import Limits
from sqlstream.server.state_reader import StateReader
from sqlstream.server.turns import RequestTurns, TurnLimits


class Queries(RequestTurns):
    """Runs state queries; a query without a free place is refused at once."""

    def __init__(self, reader: StateReader, limits: Limits):
        super().__init__(reader, TurnLimits(limits.queries, limits.query_seconds, "query", "queries are running"))

    def stream(self, query: Asked, form: str) -> AsyncIterator[bytes]:
        """Return the parts of an answer in a form (JSON or ARROW); see `parts` for its errors."""
        return self.parts(HttpRequest(query, form))
