"""Early results: which open windows to emit before their end, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import names
from sqlstream.operators.groups import Grouping, Groups
from sqlstream.operators.operator import Clock
from sqlstream.operators.windows.assigners import ROWS, same_columns
from sqlstream.operators.windows.emitted import weighted
from sqlstream.operators.windows.triggers import Early
from sqlstream.storage.zsets import WEIGHT
from sqlstream.warehouse.declarations import TableDeclaration

PENDING = "pending"
# When a changed result is due: a processing time in milliseconds (see `units`) or an event time; by rows it has no meaning.
DUE = "_due"


@dataclass(frozen=True)
class EarlyResults:
    """The table PENDING: per open window, how many rows no emitted result shows yet, and when they are due."""

    early: Early
    groups: Groups[Grouping]

    @cached_property
    def table(self) -> TableDeclaration:
        """The table PENDING; a weight is a number of rows."""
        return weighted(PENDING, (*self.groups.place, Column(DUE, "BIGINT")), self.groups.windows)

    @cached_property
    def _place(self) -> str:
        return names(self.groups.place)

    def due(self, pending: str, clock: Clock) -> str:
        """Return the SELECT of the windows to emit now, as `place`; `pending` is a FROM item."""
        now, waits = self.early.reached(clock), self.waiting(pending)
        due = "false" if now is None else f"min({DUE}) <= {now}"
        if self.early.by == "rows":
            due = f"sum({ROWS}) >= {self.early.every}"
        return f"SELECT {self._place} FROM ({waits}) GROUP BY {self._place} HAVING {due}"

    def waiting(self, pending: str) -> str:
        """Return the SELECT of windows with rows that no result shows: `place`, DUE, and the number of those rows as ROWS."""
        place, total = f"{self._place}, {DUE}", f"sum({WEIGHT})"
        return f"SELECT {place}, {total} AS {ROWS} FROM {pending} GROUP BY {place} HAVING {total} > 0"

    def added(self, arrived: str, clock: Clock) -> Mapping[str, str]:
        """Return what to store, as FROM items by table: open windows of the rows that `arrived`, DUE, and their number."""
        due = f"CAST({self.early.due(clock)} AS BIGINT) AS {DUE}"
        number = f"CAST(sum({ROWS}) AS BIGINT) AS {WEIGHT}"
        return {PENDING: f"(SELECT {self._place}, {due}, {number} FROM {arrived} GROUP BY {self._place})"}

    def emitted(self, pending: str, windows: str) -> Mapping[str, str]:
        """Return what to store, as FROM items by table, when `windows` are emitted: the rows in them are no longer pending.

        By rows, the remainder of their number divided by `every` stays pending.
        """
        number = f"{ROWS} - {ROWS} % {self.early.every}" if self.early.by == "rows" else ROWS
        same = same_columns("_waiting_", "_in_", [c.name for c in self.groups.place])
        rows = f"({self.waiting(pending)}) _waiting_ SEMI JOIN {windows} _in_ ON {same}"
        taken = f"(SELECT {self._place}, {DUE}, CAST(-({number}) AS BIGINT) AS {WEIGHT} FROM {rows})"
        return {PENDING: f"(SELECT * FROM {taken} WHERE {WEIGHT} <> 0)"}
