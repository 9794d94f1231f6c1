"""State queries over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sqlstream.server.http_answers import Asked, HttpRequest
from sqlstream.server.settings import Limits
from sqlstream.server.state_reader import StateReader
from sqlstream.server.turns import RequestTurns, TurnLimits


class Queries(RequestTurns):
    """Runs queries of a project; one for which there is no place is not kept waiting."""

    def __init__(self, reader: StateReader, limits: Limits):
        super().__init__(reader, TurnLimits(limits.queries, limits.query_seconds, "query", "queries are running"))

    def stream(self, query: Asked, form: str) -> AsyncIterator[bytes]:
        """Return the parts of an answer, which raise errors before the first one."""
        return self.parts(HttpRequest(query, form))
