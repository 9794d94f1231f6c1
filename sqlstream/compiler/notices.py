"""Notices about what a script says and sqlstream does not need, such as options of Flink without an effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlstream.errors import StatementWarning


class Notices:
    """Gives each notice once in a session, whatever the number of tables and statements that it is about."""

    def __init__(self, warn: Callable[[StatementWarning], None]):
        self._warn = warn
        self._messages: set[str] = set()
        # Of tables of the project's catalog, by name in lower case: a job that uses the table gives them.
        self._waiting: dict[str, tuple[StatementWarning, ...]] = {}

    def give(self, notices: Iterable[StatementWarning]) -> None:
        """Warn about notices, except those whose message the session has already shown."""
        for notice in notices:
            if notice.message not in self._messages:
                self._messages.add(notice.message)
                self._warn(notice)

    def keep(self, table: str, notices: tuple[StatementWarning, ...]) -> None:
        """Keep notices about a table until a job uses it."""
        self._waiting[table.lower()] = notices

    def use(self, tables: Iterable[str]) -> None:
        """Give the notices that were kept about the tables of a job."""
        for table in tables:
            self.give(self._waiting.pop(table.lower(), ()))
