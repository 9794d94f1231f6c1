"""What joins share: how rows of inputs are stored, and the SQL of what matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.operators.groups import stored_columns
from sqlstream.operators.late_rows import LateOutput
from sqlstream.operators.operator import Holds
from sqlstream.units import Duration


@dataclass(frozen=True)
class Matching:
    """Which rows of some inputs match: those with equal keys, none of them NULL, for which the condition is true.

    `keys` are the types, each with the SQL that makes it from the rows of every input. `columns` are those of the inputs, all
    with different names; the condition is SQL over them.
    """

    keys: tuple[tuple[str, tuple[str, ...]], ...]
    columns: tuple[tuple[Column, ...], ...]
    condition: str | None = None

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(Column(f"{INTERNAL}k{i}", type) for i, (type, _) in enumerate(self.keys))

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.key_columns)

    def _own(self, place: int) -> list[tuple[Column, str]]:
        """Return an input's columns as they are stored, each with its own name as SQL; one that is a key is that."""
        keys = {(sqls[place], c.type): c for c, (_, sqls) in zip(self.key_columns, self.keys, strict=True)}
        return [(keys.get((sql, c.type), c), sql) for c, sql in stored_columns(self.columns[place])]

    def stored(self, place: int) -> tuple[Column, ...]:
        """Return the columns in which rows of an input are stored: the keys, then its others under names of ours."""
        return (*self.key_columns, *(c for c, _ in self._own(place) if c not in self.key_columns))

    def holds(self, tables: Iterable[tuple[int, str]]) -> Holds:
        """Return which columns hold those of the inputs, given tables that store rows of them, with the places of these."""
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for place, table in tables:
            for column, (own, _) in zip(self.columns[place], self._own(place), strict=True):
                found.setdefault(column.name, {})[table] = (own.name,)
        return found

    def late(self, place: int, time: str, kept_back: Duration) -> LateOutput:
        """Return the side output of late rows of an input, given the SQL of their event time (see LateOutput)."""
        columns = tuple((c, own.name) for c, (own, _) in zip(self.columns[place], self._own(place), strict=True))
        return LateOutput(place, columns, time, kept_back)

    def made(self, place: int, *more: str) -> str:
        """Return the SELECT of rows in that form, and more columns, from an input's `_rows`."""
        keys = [f"{sqls[place]} AS {c.name}" for c, (_, sqls) in zip(self.key_columns, self.keys, strict=True)]
        rows = [f"{sql} AS {c.name}" for c, sql in self._own(place) if c not in self.key_columns]
        return f"SELECT {', '.join([*keys, *rows, *more])} FROM _rows"

    def named(self, place: int, rows: str, *more: str) -> str:
        """Return stored rows, to go behind FROM, with their columns under their own names, the keys, and more columns."""
        own = [f"{c.name} AS {sql}" for c, sql in self._own(place)]
        return f"(SELECT {', '.join([*self.key_names, *own, *more])} FROM {rows})"

    def known(self, alias: str = "") -> str:
        """Return the condition that no key of a row is NULL."""
        return " AND ".join(f"{alias}{name} IS NOT NULL" for name in self.key_names) or "true"

    def on(self, a: str, b: str, *more: str, condition: bool = True) -> str:
        """Return the condition that rows of two relations match."""
        found = [f"{a}.{name} = {b}.{name}" for name in self.key_names] + list(more)
        if condition and self.condition is not None:
            found.append(f"({self.condition})")
        return " AND ".join(found) or "true"

    def shown(self, places: Sequence[int], padded: Sequence[int] = ()) -> str:
        """Return the select items of the columns of some inputs, those of the padded ones NULL."""
        items = [
            f"CAST(NULL AS {c.type}) AS {sql}" if place in padded else sql
            for place in places
            for c, (_, sql) in zip(self.columns[place], stored_columns(self.columns[place]), strict=True)
        ]
        return ", ".join(items)
