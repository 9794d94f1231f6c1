"""Errors as clients get them: with an SQLSTATE, and a place in the statement."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlstream.errors import DamageError, SourceText, SqlStreamError
from sqlstream.secrets import masked

CANCELLED = "57014"
READ_ONLY = "25006"

# The first that is found in a message tells its SQLSTATE.
_STATES: tuple[tuple[str, str], ...] = (
    (r'^table ".*" does not exist|^savepoint ".*" does not exist|there is no warehouse', "42P01"),
    (r'^column ".*" does not exist', "42703"),
    (r"ambiguous reference|ambiguous column", "42702"),
    (r'^function ".*" does not exist|no function matches|the table function ".*" is not available', "42883"),
    (r"outside of what a query may read", "42501"),
    (r"syntax error|unterminated|there is no query|is not complete|only one statement|is not a query", "42601"),
    (r"must appear in the GROUP BY|cannot contain aggregates", "42803"),
    (r"does not have \"|no version|version that old", "42704"),
    (r"out of memory|failed to allocate", "53200"),
    (r"is damaged|state changed", "40001"),
    (r"division by zero", "22012"),
    (r"out of range|overflow", "22003"),
    (r"could not convert|cannot be cast|can't be cast|conversion|invalid input|malformed", "22P02"),
    (r"cannot compare|cannot mix|type mismatch|could not choose", "42804"),
)
_WRITES = {
    *("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "CREATE", "DROP", "ALTER", "COPY", "GRANT", "REVOKE"),
    *("VACUUM", "ATTACH", "DETACH", "INSTALL", "LOAD", "CHECKPOINT", "EXPORT", "IMPORT", "REFRESH", "COMMENT"),
}


class ProtocolError(Exception):
    """What a client did wrong, in a way that is none of SQL; `state` is an SQLSTATE. One that is `fatal` ends the connection."""

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


def sqlstate(error: SqlStreamError) -> str:
    """Return the SQLSTATE of an error.

    >>> sqlstate(SqlStreamError('column "x" does not exist'))
    '42703'
    >>> sqlstate(SqlStreamError("INSERT is not a query"))
    '25006'
    """
    if isinstance(error, DamageError):
        return "XX001"
    word = re.match(r"(?:([A-Z]+) is not a query|a query cannot contain ([A-Z]+))", error.message)
    if word and (word[1] or word[2]) in _WRITES:
        return READ_ONLY
    found = (state for pattern, state in _STATES if re.search(pattern, error.message, re.IGNORECASE))
    return next(found, "42000")
