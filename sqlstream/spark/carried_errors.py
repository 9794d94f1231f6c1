"""Errors on their way from a Python worker through the JVM: pickled into the message, found again on the driver."""

from __future__ import annotations

import base64
import pickle
import re

from sqlstream.errors import SqlStreamError

_MARK = re.compile(r"sqlstream-error:([A-Za-z0-9+/=]+):")


class CarriedError(Exception):
    """Raised in a worker in place of a SqlStreamError; Spark only hands on its text."""


def carry(error: SqlStreamError) -> CarriedError:
    """Return an exception whose text holds the whole error."""
    return CarriedError(f"sqlstream-error:{base64.b64encode(pickle.dumps(error)).decode()}:")


def find_carried(text: str) -> SqlStreamError | None:
    """Return the first error carried in a text such as a Java stack trace."""
    found = _MARK.search(text)
    if found is None:
        return None
    error = pickle.loads(base64.b64decode(found.group(1)))
    return error if isinstance(error, SqlStreamError) else None
