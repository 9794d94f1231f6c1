"""Changes of a table as a server's log has them, and what in a log cannot be read as changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Operations: an inserted row, a row before and after an update, a deleted row. `changelogs` has the same letters.
INSERTED, BEFORE, AFTER, DELETED = "I", "B", "U", "D"


class TableTruncated(Exception):
    """The table has lost or changed rows without changes of rows; the message is what happened to it: it "was truncated"."""


class IncompleteLog(Exception):
    """The log lacks a row or a value that a change needs; the message names it."""


class ColumnGone(Exception):
    """The table has lost a column that is read; the message is its name."""


@dataclass
class DecodedChanges:
    """Changes in the order of the log: the operation of each, and by column the texts of all rows in UTF-8, None for NULL."""

    operations: list[str]
    columns: list[list[bytes | None]]

    @classmethod
    def none(cls, width: int) -> DecodedChanges:
        """Return no changes, of rows with `width` columns."""
        return cls([], [[] for _ in range(width)])

    def add(self, operation: str, row: Sequence[bytes | None]) -> None:
        """Append the change of a row, which has a value for each column."""
        self.operations.append(operation)
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def cut(self, length: int) -> None:
        """Remove all changes but the first `length`."""
        del self.operations[length:]
        for column in self.columns:
            del column[length:]


def merged(groups: Iterable[DecodedChanges], width: int, most: int) -> Iterable[DecodedChanges]:
    """Merge the changes of small transactions: yield groups of at least `most` changes of `width` columns, except the last."""
    pending = DecodedChanges.none(width)
    for group in groups:
        pending.operations += group.operations
        for column, values in zip(pending.columns, group.columns, strict=True):
            column += values
        if len(pending.operations) >= most:
            yield pending
            pending = DecodedChanges.none(width)
    if pending.operations:
        yield pending
