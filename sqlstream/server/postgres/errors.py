"""Errors for PostgreSQL's clients: with an SQLSTATE, and the position in the statement."""

from __future__ import annotations

from collections.abc import Mapping

from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.secrets import masked
from sqlstream.server.sqlstates import sqlstate

CANCELLED = "57014"


class ProtocolError(Exception):
    """An error of the protocol, a session or a limit, not of SQL. `state` is its SQLSTATE; a `fatal` one ends the connection."""

    # The process of a query can send it to the server.
    is_sent = True

    def __init__(self, message: str, state: str = "08P01", *, fatal: bool = False, hint: str | None = None):
        super().__init__(message)
        self.message, self.state, self.fatal, self.hint = message, state, fatal, hint

    def fields(self) -> Mapping[str, str]:
        """Return the fields of the error message by their letters in the protocol."""
        severity = "FATAL" if self.fatal else "ERROR"
        hint = {"H": self.hint} if self.hint else {}
        return {"S": severity, "V": severity, "C": self.state, "M": masked(self.message), **hint}


def cancelled(why: str) -> ProtocolError:
    """Return the error for a query that was stopped; `why` follows "due to" in its text."""
    return ProtocolError(f"canceling statement due to {why}", CANCELLED)


def fields_of(error: SqlStreamError, written: SourceText | None = None, offset: int = 0) -> Mapping[str, str]:
    """Return the fields of the message for an error, by their letters in the protocol.

    `written` is the text that ran, which maps the error's position to the client's statement. The client's text may have several
    statements: `offset` is where this one begins.
    """
    fields = {"S": "ERROR", "V": "ERROR", "C": sqlstate(error), "M": masked(error.message)}
    if error.detail:
        fields["D"] = masked(error.detail)
    if error.hint:
        fields["H"] = masked(error.hint)
    if error.span is not None:
        start, end = error.span.start, error.span.end
        if written is not None:
            start, _ = written.as_written(start, end)
        fields["P"] = str(offset + start + 1)
    return fields
