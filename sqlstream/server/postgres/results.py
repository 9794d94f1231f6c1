"""The rows of an answer as messages, in parts: a client takes as many rows as it requests, while they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlstream.server.postgres.messages import ResultColumn, text_rows
from sqlstream.server.postgres.types import TEXT, SentType
from sqlstream.server.state_reader import RunningAnswer


class ClientAnswer(Protocol):
    """The answer to a statement: columns, and rows that can be read once."""

    @property
    def columns(self) -> Sequence[ResultColumn]:
        """The columns of the result."""

    def take(self, count: int | None) -> tuple[bytes, int, bool]:
        """Return (messages of the next rows, at most `count`; their number; whether there may be more)."""

    def close(self) -> None:
        """Drop the remaining rows."""


class TextRows:
    """Rows of texts in memory."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[str | None]]):
        self.columns: Sequence[ResultColumn] = [ResultColumn(name, SentType(TEXT)) for name in columns]
        self._rows = list(rows)

    def take(self, count: int | None) -> tuple[bytes, int, bool]:
        part, self._rows = (self._rows, []) if count is None else (self._rows[:count], self._rows[count:])
        return text_rows(part, len(self.columns)), len(part), bool(self._rows)

    def close(self) -> None:
        self._rows = []


class StreamedRows:
    """The rows of a query in its own process, which sends them as messages."""

    def __init__(self, answer: RunningAnswer):
        self.columns: Sequence[ResultColumn] = answer.head
        self._answer = answer

    def take(self, count: int | None) -> tuple[bytes, int, bool]:
        """Return the next rows, at most a batch; see `ClientAnswer`. Raises SqlStreamError, QueryStopped and ProtocolError."""
        if self._answer.is_whole:
            return b"", 0, False
        rows: tuple[bytes, int, bool] = self._answer.part(count)
        return rows

    @property
    def since(self) -> float:
        """When rows were last requested, in seconds of the monotonic clock."""
        return self._answer.since

    def close(self) -> None:
        self._answer.close()
