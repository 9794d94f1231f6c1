"""Errors for Flight's clients: a status of Flight, and the text of our error with its position in the statement."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pyarrow.flight as fl

from sqlstream.errors import SourceText, Span, SqlStreamError
from sqlstream.secrets import masked
from sqlstream.server.flight.messages import NoMessage
from sqlstream.server.sqlstates import DAMAGE, FORBIDDEN, READ_ONLY, sqlstate
from sqlstream.server.state_reader import QueryStopped

# The beginnings of messages about queries that were stopped, but not cancelled.
TOO_LONG = "the query took longer than"
ENDS = "the server ends"
# A message is sent in a header, whose size is limited: this many bytes as it is sent.
_MOST_BYTES = 5000
# The width of lines that show the position of an error, in columns.
_WIDTH = 120
_log = logging.getLogger(__name__)


def flight_exception(error: Exception) -> Exception:
    """Convert an error to an exception of pyarrow.flight, which has a status; any other would show clients our stack frames.

    An error in SQL becomes a FlightServerError.
    """
    if isinstance(error, QueryStopped):
        # Not FlightCancelledError: pyarrow's client raises that as if Ctrl-C were pressed.
        kinds = {TOO_LONG: fl.FlightTimedOutError, ENDS: fl.FlightUnavailableError}
        return _raised(
            next((k for text, k in kinds.items() if str(error).startswith(text)), fl.FlightServerError), str(error)
        )
    if isinstance(error, NoMessage):
        return _raised(fl.FlightServerError, str(error))
    if isinstance(error, SqlStreamError):
        return _raised(_KINDS.get(sqlstate(error), fl.FlightServerError), error.render(_WIDTH))
    if isinstance(error, fl.FlightError):
        flight_error: Exception = error
        return flight_error
    _log.error("a request of a Flight client failed", exc_info=error)
    return _raised(fl.FlightInternalError, f"internal error: {type(error).__name__}")


_KINDS = {READ_ONLY: fl.FlightUnauthorizedError, FORBIDDEN: fl.FlightUnauthorizedError, DAMAGE: fl.FlightInternalError}


def _raised(kind: type[Exception], text: str) -> Exception:
    # pyarrow appends a sentence.
    return kind(_shortened(masked(text)).removesuffix("."))


def _shortened(text: str) -> str:
    """Return as much of a text as fits into a header.

    >>> len(_shortened("x" * 10_000)), _shortened("short")
    (5000, 'short')
    """
    while (size := len(quote(text, safe=" !\"#$&'()*+,-./:;<=>?@[]^_`{|}~"))) > _MOST_BYTES:
        text = text[: min(len(text) - 4, len(text) * _MOST_BYTES // size)].rstrip(".") + "..."
    return text


def with_client_span(error: SqlStreamError, source: SourceText) -> SqlStreamError:
    """Move the position of an error from the text that ran to the text that the client wrote; return the error."""
    if error.span is not None:
        error.span = Span(source, error.span.start, error.span.end)
    return error
