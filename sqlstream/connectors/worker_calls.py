"""Calls that run in parallel in processes beside the driver: the protocol of such processes, and their replies."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from sqlstream.errors import JobError, SqlStreamError

T = TypeVar("T")


class Workers(Protocol):
    """Processes that run calls for a sink.

    A process may keep objects between calls, such as connections, but a call cannot rely on them: any process may run the next
    call with the same index. If a process dies, its call runs again.
    """

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run calls in parallel, and return their results in order. Calls and results must be picklable.

        Raises the first error, after all calls have ended.
        """

    def close(self) -> None:
        """End the processes that nobody else uses."""


def answer(call: bytes) -> bytes:
    """Run a pickled call in this process, and return its result or its error, pickled, for `answers`.

    An error is returned, not raised, so that the engine does not run the call again.
    """
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


def answers(replies: Sequence[bytes]) -> list[Any]:
    """Return the results in replies of `answer`. Raises the error of the first call that failed."""
    outcomes = [pickle.loads(one) for one in replies]
    for _, error in outcomes:
        if error is not None:
            raise error
    return [value for value, _ in outcomes]
