"""Errors on their way from a Python worker through the JVM: pickled into the message, found again on the driver."""

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
    """Raised in a worker in place of a SqlStreamError; Spark only hands on its text."""


def carry(error: SqlStreamError) -> CarriedError:
    """Return an exception whose text holds the whole error, but for secrets in the script that it points into."""
    if error.span is not None:
        error.span = replace(error.span, source=error.span.source.without_secrets())
    return CarriedError(f"sqlstream-error:{base64.b64encode(pickle.dumps(error)).decode()}:")


@contextmanager
def carried() -> Iterator[None]:
    """Let what is raised on its way to the JVM, which logs it, be carried; no text of it holds a secret."""
    try:
        yield
    except SqlStreamError as error:
        raise carry(error) from None
    except Exception as error:
        if harmless(error) is None:
            raise carry(JobError(f"{type(error).__qualname__}: {error}")) from None
        raise


def find_carried(text: str) -> SqlStreamError | None:
    """Return the first error carried in a text such as a Java stack trace."""
    found = _MARK.search(text)
    if found is None:
        return None
    error = pickle.loads(base64.b64decode(found.group(1)))
    return error if isinstance(error, SqlStreamError) else None
