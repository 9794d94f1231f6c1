"""Early results: which open windows to emit before their end, and when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from sqlstream.catalog import Column
from sqlstream.duck.sql import FALSE, Condition, Items, Relation, Relations, Select, names, rows_where, same_columns
from sqlstream.duck.time_variables import NEVER
from sqlstream.operators.groups import Grouping, Groups
from sqlstream.operators.operator import StepTimes
from sqlstream.operators.windows.assigners import ROWS
from sqlstream.operators.windows.emitted import weighted
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import MILLISECOND, Duration, to_millis
from sqlstream.warehouse.declarations import TableDeclaration

PENDING = "pending"
# When a changed result is due: a processing time in milliseconds (see `units`) or an event time; by rows it has no meaning.
DUE = "_due"


@dataclass(frozen=True, slots=True)
class EveryInterval:
    """Results are due at the multiples of an interval of processing time ("time") or event time ("event")."""

    every: Duration
    by: Literal["time", "event"]

    def due(self, times: StepTimes) -> int:
        """Return when a result must show a row of this batch at the latest, as DUE is stored: the next multiple of the interval.

        Before the first watermark, event time gives NEVER.
        """
        now = times.time if self.by == "time" else times.watermark
        if now is None:
            return NEVER
        due = (now // self.every + 1) * self.every
        # The clock goes by milliseconds: the first one from which on it is due.
        return -(-due // MILLISECOND) if self.by == "time" else due

    def condition(self, times: StepTimes) -> Condition:
        """Return the condition on the pending rows of a window that its result is due in this batch."""
        now = to_millis(times.time) if self.by == "time" else times.watermark
        return FALSE if now is None else Condition(f"min({DUE}) <= {now}")

    @property
    def shown(self) -> str:
        """How many of ROWS pending rows are no longer pending when a result is emitted, as SQL."""
        return ROWS


@dataclass(frozen=True, slots=True)
class EveryRows:
    """A result is due after so many rows."""

    rows: int

    def due(self, times: StepTimes) -> int:
        """Return the value to store in DUE, which is not read if results are due by numbers of rows."""
        return self.rows

    def condition(self, times: StepTimes) -> Condition:
        """Return the condition on the pending rows of a window that its result is due."""
        return Condition(f"sum({ROWS}) >= {self.rows}")

    @property
    def shown(self) -> str:
        """How many of ROWS pending rows are no longer pending when a result is emitted, as SQL: the remainder stays."""
        return f"{ROWS} - {ROWS} % {self.rows}"


Early = EveryInterval | EveryRows


@dataclass(frozen=True)
class EarlyResults:
    """The table PENDING: per open window, how many rows no emitted result shows yet, and when they are due."""

    interval: Early
    groups: Groups[Grouping]

    @cached_property
    def table(self) -> TableDeclaration:
        """The table PENDING; a weight is a number of rows."""
        return weighted(PENDING, (*self.groups.window_keys, Column(DUE, "BIGINT")), self.groups.windows)

    @cached_property
    def _window_keys(self) -> Items:
        return names(self.groups.window_keys)

    def due(self, pending: Relation, times: StepTimes) -> Select:
        """Return the windows to emit now, as `window_keys`."""
        due = self.interval.condition(times)
        return Select(
            f"SELECT {self._window_keys} FROM ({self.waiting(pending)}) GROUP BY {self._window_keys} HAVING {due}"
        )

    def waiting(self, pending: Relation) -> Select:
        """Return the windows with rows that no result shows: `window_keys`, DUE, and the number of those rows as ROWS."""
        window_keys, total = f"{self._window_keys}, {DUE}", f"sum({WEIGHT})"
        return Select(
            f"SELECT {window_keys}, {total} AS {ROWS} FROM {pending} GROUP BY {window_keys} HAVING {total} > 0"
        )

    def added(self, arrived: Relation, times: StepTimes) -> Relations:
        """Return what to store, by table: open windows of the rows that `arrived`, DUE, and their number."""
        due = f"CAST({self.interval.due(times)} AS BIGINT) AS {DUE}"
        number = f"CAST(sum({ROWS}) AS BIGINT) AS {WEIGHT}"
        return {
            PENDING: Relation(
                f"(SELECT {self._window_keys}, {due}, {number} FROM {arrived} GROUP BY {self._window_keys})"
            )
        }

    def emitted(self, pending: Relation, windows: Relation) -> Relations:
        """Return what to store, by table, when `windows` are emitted: the rows in them are no longer pending."""
        same = same_columns("_waiting_", "_in_", [c.name for c in self.groups.window_keys])
        rows = f"({self.waiting(pending)}) _waiting_ SEMI JOIN {windows} _in_ ON {same}"
        number = f"CAST(-({self.interval.shown}) AS BIGINT) AS {WEIGHT}"
        deductions = Relation(f"(SELECT {self._window_keys}, {DUE}, {number} FROM {rows})")
        return {PENDING: rows_where(deductions, Condition(f"{WEIGHT} <> 0"))}
