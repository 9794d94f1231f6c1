"""The rows of an answer, as messages: as they are computed, in as many parts as the client asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlstream.server.postgres.messages import ResultColumn, text_rows
from sqlstream.server.postgres.types import TEXT, SentType
from sqlstream.server.state_reader import RunningAnswer


class ClientAnswer(Protocol):
    """What a statement is answered with: columns, and rows that are taken once."""

    @property
    def columns(self) -> Sequence[ResultColumn]: ...

    def take(self, count: int | None) -> tuple[bytes, int, bool]:
        """Return the messages of the next rows, at most so many, how many they are, and whether there may be more."""

    def close(self) -> None:
        """Want no more rows."""


class TextRows:
    """Rows of texts that are there already."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[str | None]]):
        self.columns: Sequence[ResultColumn] = [ResultColumn(name, SentType(TEXT)) for name in columns]
        self._rows = list(rows)

    def take(self, count: int | None) -> tuple[bytes, int, bool]:
        taken, self._rows = (self._rows, []) if count is None else (self._rows[:count], self._rows[count:])
        return text_rows(taken, len(self.columns)), len(taken), bool(self._rows)

    def close(self) -> None:
        self._rows = []


class StreamedRows:
    """The rows of a query, which runs in a process of its own: they are messages when they come from there."""

    def __init__(self, answer: RunningAnswer):
        self.columns: Sequence[ResultColumn] = answer.head
        self._answer = answer

    def take(self, count: int | None) -> tuple[bytes, int, bool]:
        """Return the messages of a batch of rows at most. Raises SqlStreamError, QueryStopped and ProtocolError."""
        if self._answer.is_whole:
            return b"", 0, False
        rows: tuple[bytes, int, bool] = self._answer.part(count)
        return rows

    @property
    def since(self) -> float:
        """When a client asked for some of them last."""
        return self._answer.since

    def close(self) -> None:
        self._answer.close()
