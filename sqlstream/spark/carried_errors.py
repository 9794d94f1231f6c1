"""Carries errors from a Python worker through the JVM to the driver: they are pickled into the text of an exception."""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sqlstream.errors import JobError, SqlStreamError
from sqlstream.secrets import harmless

_MARK = re.compile(r"sqlstream-error:([A-Za-z0-9+/=]+):")


class CarriedError(Exception):
    """Raised in a worker in place of a SqlStreamError. Its text holds the error, as Spark passes on only the text."""


def carry(error: SqlStreamError) -> CarriedError:
    """Return an exception whose text holds the pickled error, without secrets of the script that it points into."""
    if error.span is not None:
        error.span = replace(error.span, source=error.span.source.without_secrets())
    return CarriedError(f"sqlstream-error:{base64.b64encode(pickle.dumps(error)).decode()}:")


@contextmanager
def carried() -> Iterator[None]:
    """Carry the errors that are raised inside on their way through the JVM, which logs them; no text holds a secret."""
    try:
        yield
    except SqlStreamError as error:
        raise carry(error) from None
    except Exception as error:
        if harmless(error) is None:
            raise carry(JobError(f"{type(error).__qualname__}: {error}")) from None
        raise


def find_carried(text: str) -> SqlStreamError | None:
    """Return the first error that a text such as a Java stack trace carries; None if it carries none."""
    match = _MARK.search(text)
    if match is None:
        return None
    error = pickle.loads(base64.b64decode(match.group(1)))
    return error if isinstance(error, SqlStreamError) else None
