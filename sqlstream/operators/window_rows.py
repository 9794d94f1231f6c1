"""Rows that wait for their window to close: the rows of sessions, and the ranks of rows in their window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.operators.window_operator import WindowOperator
from sqlstream.operators.windowing import END, PARTIALS, Windowing
from sqlstream.storage.manifests import TableDeclaration
from sqlstream.storage.segments import encoded, quote_name


@dataclass(frozen=True)
class Ranking:
    """A ranking function over the rows of a window and key: its result's name, its ORDER BY, the last rank that counts."""

    name: str
    function: str
    order: tuple[str, ...]
    limit: int | None

    def call(self, partition: str, columns: tuple[Column, ...]) -> str:
        """Return the window function; rows that are equal in the order are numbered in that of all columns."""
        ties = [quote_name(c.name) for c in columns] if self.function == "row_number" else []
        order = ", ".join([*self.order, *ties])
        return f"{self.function}() OVER (PARTITION BY {partition} ORDER BY {order})"


@dataclass(frozen=True)
class WindowRows(WindowOperator):
    """The operator: keys, the windows that rows are in, the columns of the rows, and how they are ranked, if at all.

    `bounds` are names of the window's start, end and time to be added to the rows; None adds none.
    """

    name: str
    keys: tuple[tuple[Column, str], ...]
    windows: Windowing
    columns: tuple[Column, ...]
    bounds: tuple[str, str, str] | None = None
    ranking: Ranking | None = None

    @property
    def kind(self) -> str:
        return self.name

    @cached_property
    def _stored(self) -> tuple[tuple[Column, str], ...]:
        """The stored columns of the rows, with the SQL that makes them from input rows."""
        return tuple((Column(f"c{i}", c.type), quote_name(c.name)) for i, c in enumerate(self.columns))

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        columns = (*self.group, *(c for c, _ in self._stored))
        merge = None
        if self.ranking is not None and self.ranking.limit is not None:
            # Rows beyond the limit among some are beyond it among all.
            names = ", ".join(c.name for c in columns)
            rows = f"(SELECT {', '.join([*(c.name for c in self.group), self._named()])} FROM {{rows}})"
            made = ", ".join([*(c.name for c in self.group), *(f"{sql} AS {c.name}" for c, sql in self._stored)])
            ranked = f"SELECT {made}, {self._rank()} AS _rank FROM {rows}"
            merge = f"SELECT {names} FROM ({ranked}) WHERE _rank <= {self.ranking.limit}"
        return (TableDeclaration(PARTIALS, columns, END, merge),)

    def _named(self) -> str:
        """The stored columns under the names of the input."""
        return ", ".join(f"{c.name} AS {sql}" for c, sql in self._stored)

    def _rank(self) -> str:
        assert self.ranking is not None
        return self.ranking.call(self.names, self.columns)

    @cached_property
    def parts(self) -> dict[str, str]:
        """What the fragment before the exchange computes from `_rows`, in the form in which it is stored."""
        keys = [f"{sql} AS {name}" for name, (_, sql) in zip(self.key_names, self.keys, strict=True)]
        bounds = [f"{sql} AS {c.name}" for c, sql in self.windows.value_columns]
        source = self.windows.source([sql for _, sql in self.keys])
        items = ", ".join([*keys, *bounds, *(f"{sql} AS {c.name}" for c, sql in self._stored)])
        rows = f"SELECT {items} FROM {source}"
        if self.ranking is not None and self.ranking.limit is not None:
            partition = ", ".join([*(sql for _, sql in self.keys), *(sql for _, sql in self.windows.value_columns)])
            rows += f" QUALIFY {self.ranking.call(partition, self.columns)} <= {self.ranking.limit}"
        [table] = self.tables
        return {PARTIALS: encoded(table.columns, f"({rows})")}

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        added = tuple(Column(name, "TIMESTAMP") for name in self.bounds or ())
        rank = (Column(self.ranking.name, "BIGINT"),) if self.ranking is not None else ()
        return (*self.columns, *added, *rank)

    def result(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the result over rows that are in windows."""
        items = [self._named()]
        if self.bounds is not None:
            start, end, time = map(quote_name, self.bounds)
            items += [f"{self.windows.start} AS {start}, {END} AS {end}, {END} - INTERVAL 1 MILLISECOND AS {time}"]
        if self.ranking is None:
            return f"SELECT {', '.join(items)} FROM {relations[PARTIALS]}"
        rank = quote_name(self.ranking.name)
        named = f"(SELECT {self.names}, {', '.join(items)} FROM {relations[PARTIALS]})"
        columns = ", ".join(quote_name(c.name) for c in self.columns)
        ranked = f"SELECT {columns}, {self._rank()} AS {rank} FROM {named}"
        if self.ranking.limit is None:
            return ranked
        return f"SELECT * FROM ({ranked}) WHERE {rank} <= {self.ranking.limit}"
