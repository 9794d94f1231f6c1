"""Errors as Flight's clients get them: a status, and our text with the place in the statement."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pyarrow.flight as fl

from sqlstream.errors import SourceText, Span, SqlStreamError
from sqlstream.secrets import masked
from sqlstream.server.flight.messages import NoMessage
from sqlstream.server.sqlstates import DAMAGE, FORBIDDEN, READ_ONLY, sqlstate
from sqlstream.server.state_reader import QueryStopped

# What ends a query before its end begins with one of these, if nobody has cancelled it.
TOO_LONG = "the query took longer than"
ENDS = "the server ends"
# A message goes in a header, whose size has a limit: so many bytes as they are sent.
_MOST_BYTES = 5000
# How wide a line is with the place of an error.
_WIDTH = 120
_log = logging.getLogger(__name__)


def told(error: Exception) -> Exception:
    """Return what is raised in pyarrow for an error: it names a status, where other exceptions would show our frames.

    Of the statuses that it has, one says that a request failed: that is for what is wrong in SQL.
    """
    if isinstance(error, QueryStopped):
        # Not FlightCancelledError: in a client of pyarrow's that is as if somebody had pressed Ctrl-C.
        kinds = {TOO_LONG: fl.FlightTimedOutError, ENDS: fl.FlightUnavailableError}
        return _raised(
            next((k for text, k in kinds.items() if str(error).startswith(text)), fl.FlightServerError), str(error)
        )
    if isinstance(error, NoMessage):
        return _raised(fl.FlightServerError, str(error))
    if isinstance(error, SqlStreamError):
        return _raised(_KINDS.get(sqlstate(error), fl.FlightServerError), error.render(_WIDTH))
    if isinstance(error, fl.FlightError):
        known: Exception = error
        return known
    _log.error("a request of a Flight client failed", exc_info=error)
    return _raised(fl.FlightInternalError, f"internal error: {type(error).__name__}")


_KINDS = {READ_ONLY: fl.FlightUnauthorizedError, FORBIDDEN: fl.FlightUnauthorizedError, DAMAGE: fl.FlightInternalError}


def _raised(kind: type[Exception], text: str) -> Exception:
    # pyarrow goes on with a sentence of its own.
    return kind(_shortened(masked(text)).removesuffix("."))


def _shortened(text: str) -> str:
    """Return as much of a text as has room in a header.

    >>> len(_shortened("x" * 10_000)), _shortened("short")
    (5000, 'short')
    """
    while (size := len(quote(text, safe=" !\"#$&'()*+,-./:;<=>?@[]^_`{|}~"))) > _MOST_BYTES:
        text = text[: min(len(text) - 4, len(text) * _MOST_BYTES // size)].rstrip(".") + "..."
    return text


def placed(error: SqlStreamError, source: SourceText) -> SqlStreamError:
    """Let an error of the text that ran show its place in what the client wrote."""
    if error.span is not None:
        error.span = Span(source, error.span.start, error.span.end)
    return error
