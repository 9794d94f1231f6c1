"""Calls that run in processes beside the driver, all at the same time: what such processes are, and what they answer."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from sqlstream.errors import JobError, SqlStreamError

T = TypeVar("T")


class Workers(Protocol):
    """Processes that make calls for a sink.

    What a call keeps in its process, the next one in the same place may find there, or not: another process may run it, also
    after one that has died with the call half done.
    """

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls, which pickle can carry, and return what they return. Raises the first error, when all have ended."""

    def close(self) -> None:
        """End the processes that nobody else uses."""


def answer(call: bytes) -> bytes:
    """Make a pickled call in this process; return what `answers` takes: errors are no reason to try again."""
    error: SqlStreamError
    try:
        return pickle.dumps((pickle.loads(call)(), None))
    except SqlStreamError as raised:
        error = raised
    except Exception as raised:
        error = JobError(f"{type(raised).__qualname__}: {raised}")
    if error.span is not None:
        error.span = replace(error.span, source=error.span.source.without_secrets())
    return pickle.dumps((None, error))


def answers(given: Sequence[bytes]) -> list[Any]:
    """Return what calls returned. Raises the error of the first one that failed."""
    found = [pickle.loads(one) for one in given]
    for _, error in found:
        if error is not None:
            raise error
    return [value for value, _ in found]
