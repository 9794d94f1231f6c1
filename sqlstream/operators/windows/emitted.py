"""Emitted results of windows that can still change, and how current results differ from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Relations, Select, names, quote_name, subquery
from sqlstream.operators.aggregates.grouped import GroupedCalls
from sqlstream.operators.groups import Grouping, Groups
from sqlstream.operators.windows.assigners import START, window_time
from sqlstream.operators.windows.retention import KEPT, Retention
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, difference, summed
from sqlstream.warehouse.declarations import MERGED, TableDeclaration

EMITTED = "emitted"
# The bounds in an emitted row; the session's bounds may have changed since.
_START, _END = "_shown_start", "_shown_end"


def weighted(name: str, columns: Sequence[Column], windows: Grouping) -> TableDeclaration:
    """Return the declaration of a table of rows with weights, with KEPT as time column. Compaction adds weights up.

    Not for sessions, where rows with different ends must stay apart.
    """
    stored = (*columns, KEPT)
    merge = summed(stored, MERGED) if windows.mergeable else None
    return TableDeclaration(name, (*stored, WEIGHT_COLUMN), KEPT.name, merge)


@dataclass(frozen=True)
class EmittedResults:
    """The table EMITTED: emitted rows of a result, with the bounds that they show, and the current bounds of their windows."""

    result: GroupedCalls
    retention: Retention

    @property
    def groups(self) -> Groups[Grouping]:
        return self.result.groups

    @cached_property
    def table(self) -> TableDeclaration:
        """The table EMITTED: keys, current bounds, emitted bounds and results, KEPT, weight."""
        return weighted(EMITTED, (*self.groups.window_keys, *self._shown), self.groups.windows)

    @cached_property
    def _shown(self) -> tuple[Column, ...]:
        """The columns of an emitted row besides keys and current bounds."""
        calls = (Column(f"r{i}", call.result_type) for i, (_, call) in enumerate(self.result.calls))
        return (Column(_START, "TIMESTAMP"), Column(_END, "TIMESTAMP"), *calls)

    @cached_property
    def _renamed(self) -> GroupedCalls:
        """The result under internal names."""
        groups = self.groups
        keys = tuple((column, sql) for column, (_, sql) in zip(groups.key_columns, groups.keys, strict=True))
        calls = tuple((f"r{i}", call) for i, (_, call) in enumerate(self.result.calls))
        return GroupedCalls(Groups(keys, groups.windows), (_START, _END, None), calls)

    def changes(self, new: Relations, old: Relation | None) -> Select:
        """Return the changes, with weights, that turn emitted rows into the current result.

        `new` are rows in windows; `old` are emitted rows, None if nothing was emitted.
        """
        bounds = ", ".join(f"{_START if name == START else _END} AS {name}" for name in self.groups.windows.bounds)
        items = ", ".join([*self.groups.key_names, bounds, names(self._shown)])
        rows = Select(f"SELECT {items}, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({self._renamed.result(new)})")
        return rows if old is None else difference((*self.groups.window_keys, *self._shown), subquery(rows), old)

    def leaving(self, changes: Relation) -> Select:
        """Return changes as the operator emits them: output columns and weight."""
        result = self.result
        output_names = [c.name for c, _ in self.groups.keys] + [n for n in result.bounds if n is not None]
        output_names += [n for n, _ in result.calls]
        shown = (_START, _END, window_time(_END))
        bounds = [sql for sql, name in zip(shown, result.bounds, strict=True) if name is not None]
        sqls = [*self.groups.key_names, *bounds, *(f"r{i}" for i in range(len(result.calls)))]
        items = ", ".join(f"{sql} AS {quote_name(name)}" for sql, name in zip(sqls, output_names, strict=True))
        rows = Select(f"SELECT {items}, {WEIGHT} FROM {changes}")
        # Sessions that differ in bounds which are not asked for are one.
        return rows if self.groups.windows.mergeable else summed(result.outputs, subquery(rows))
