"""Errors as clients get them: with an SQLSTATE, and a place in the statement."""

from __future__ import annotations

from collections.abc import Mapping

from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.secrets import masked
from sqlstream.server.sqlstates import sqlstate

CANCELLED = "57014"


class ProtocolError(Exception):
    """What a client did wrong, in a way that is none of SQL; `state` is an SQLSTATE. One that is `fatal` ends the connection."""

    # The process of a query sends it to the server.
    is_sent = True

    def __init__(self, message: str, state: str = "08P01", *, fatal: bool = False, hint: str | None = None):
        super().__init__(message)
        self.message, self.state, self.fatal, self.hint = message, state, fatal, hint

    def fields(self) -> Mapping[str, str]:
        """Return the fields of the error's message."""
        severity = "FATAL" if self.fatal else "ERROR"
        hint = {"H": self.hint} if self.hint else {}
        return {"S": severity, "V": severity, "C": self.state, "M": masked(self.message), **hint}


def cancelled(why: str) -> ProtocolError:
    """Return the error of a query that did not come to its end."""
    return ProtocolError(f"canceling statement due to {why}", CANCELLED)


def fields_of(error: SqlStreamError, written: SourceText | None = None, offset: int = 0) -> Mapping[str, str]:
    """Return the fields of an error's message.

    `written` is the text that ran, which knows what of it stands for what the client wrote; `offset` is where that began in
    the client's statements.
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
