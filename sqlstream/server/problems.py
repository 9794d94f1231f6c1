"""Errors as problem JSON (RFC 9457), with the position in the SQL."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sqlstream.errors import (
    DamageError,
    JobError,
    NotWritableError,
    OtherVersionError,
    OutageError,
    QueryError,
    Span,
    SqlStreamError,
    UsageError,
)

MEDIA_TYPE = "application/problem+json"
_TITLES = {
    400: "The request is wrong",
    401: "A token is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Not a method of this address",
    409: "Not possible now",
    408: "It did not come in time",
    413: "The request is too large",
    415: "Not a type that is read here",
    429: "Too many at a time",
    500: "It failed",
    501: "Not installed here",
    503: "Not available now",
    504: "It took too long",
}


class SqlPosition(msgspec.Struct, frozen=True):
    """A position in SQL: lines and columns count from 1, `start` and `end` are characters from 0."""

    source: str
    line: int
    column: int
    start: int
    end: int


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error. `detail` is its message, `text` all of it as text for people, with carets under the position in the SQL."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    explanation: str | None = None
    hint: str | None = None
    position: SqlPosition | None = None
    text: str | None = None


class HttpError(SqlStreamError):
    """An error with an HTTP status of its own."""

    def __init__(self, status: int, message: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None):
        super().__init__(message, hint=hint)
        self.status = status
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.status, self.message, self.hint, self.headers, self.span, self.detail)


def _rebuild(
    status: int, message: str, hint: str | None, headers: Mapping[str, str], span: Span | None, detail: str | None
) -> HttpError:
    error = HttpError(status, message, hint=hint, headers=headers)
    error.span, error.detail = span, detail
    return error


def problem_of(error: SqlStreamError) -> Problem:
    """Return an error as a problem, with its HTTP status."""
    status = status_of(error)
    span = error.span
    return Problem(
        title=_TITLES.get(status, "Error"),
        status=status,
        detail=error.message,
        explanation=error.detail,
        hint=error.hint,
        position=None if span is None else _position(span),
        text=error.render(),
    )


def _position(span: Span) -> SqlPosition:
    line, column = span.source.position(span.start)
    start, end = span.source.as_written(span.start, span.end)
    return SqlPosition(span.source.name, line, column, start, end)


def status_of(error: SqlStreamError) -> int:
    """Return the HTTP status for an error."""
    match error:
        case HttpError(status=status):
            return status
        case OutageError():
            return 503
        case OtherVersionError() | NotWritableError():
            return 409
        case DamageError() | JobError():
            return 500
        case UsageError(message=message) if message.endswith("does not exist"):
            return 404
        case QueryError(message=message) if error.span is None and any(part in message for part in _MISSING):
            return 404
        case UsageError(message=message) if any(part in message for part in _CONFLICTS):
            return 409
    return 400


# Messages about an address that names nothing.
_MISSING = ("does not exist", "has no operator", "names no operator", "has no version", "keeps no")
# Messages about a valid request that a job or a savepoint prevents.
_CONFLICTS = ("is not running", "is being run", "exists already", "exists with another query", "is locked by")
