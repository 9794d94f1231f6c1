"""What joins share: the state columns of their inputs, and the SQL of the join condition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.duck.sql import Condition, Items, Relation, Select, all_of
from sqlstream.operators.groups import stored_columns
from sqlstream.operators.late_rows import LateOutput
from sqlstream.operators.operator import Holds
from sqlstream.units import Duration


@dataclass(frozen=True)
class JoinCondition:
    """The join condition: rows of the inputs match if their keys are equal, none is NULL, and `condition` is true.

    Here a `index` is the index of an input, from 0. Each of the `keys` is a type, and for every input the SQL that computes the
    key from its rows. `columns` are the columns of every input; no two columns of the join have the same name. `condition` is
    over these names (None: there are only keys).
    """

    keys: tuple[tuple[str, tuple[str, ...]], ...]
    columns: tuple[tuple[Column, ...], ...]
    condition: Condition | None = None

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The key columns in state: `__sqlstream_k0`, .., with the types of the keys."""
        return tuple(Column(f"{INTERNAL}k{i}", type) for i, (type, _) in enumerate(self.keys))

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.key_columns)

    def _own(self, index: int) -> list[tuple[Column, str]]:
        """Return the state column of each column of an input, with the column's quoted name.

        A column that is itself a key of the same type is stored once, as the key column.
        """
        keys = {(sqls[index], c.type): c for c, (_, sqls) in zip(self.key_columns, self.keys, strict=True)}
        return [(keys.get((sql, c.type), c), sql) for c, sql in stored_columns(self.columns[index])]

    def stored(self, index: int) -> tuple[Column, ...]:
        """Return the state columns of an input: the keys, then its other columns, each named c and its position in the input."""
        return (*self.key_columns, *(c for c, _ in self._own(index) if c not in self.key_columns))

    def own_columns(self, index: int) -> tuple[Column, ...]:
        """Return the state column of each column of an input."""
        return tuple(c for c, _ in self._own(index))

    def holds(self, tables: Iterable[tuple[int, str]]) -> Holds:
        """Map each column of the inputs to the state column that stores it, in each of `tables`: pairs of input and table."""
        state_columns: dict[str, dict[str, tuple[str, ...]]] = {}
        for index, table in tables:
            for column, (own, _) in zip(self.columns[index], self._own(index), strict=True):
                state_columns.setdefault(column.name, {})[table] = (own.name,)
        return state_columns

    def late(self, index: int, time: str, kept_back: Duration) -> LateOutput:
        """Return the side output of an input's late rows; `time` is the SQL of their event time (see LateOutput)."""
        columns = tuple((c, own.name) for c, (own, _) in zip(self.columns[index], self._own(index), strict=True))
        return LateOutput(index, columns, time, kept_back)

    def select(self, index: int, *more: str) -> Select:
        """Return the state columns of an input's `_rows`, then `more` select items."""
        keys = [f"{sqls[index]} AS {c.name}" for c, (_, sqls) in zip(self.key_columns, self.keys, strict=True)]
        rows = [f"{sql} AS {c.name}" for c, sql in self._own(index) if c not in self.key_columns]
        return Select(f"SELECT {', '.join([*keys, *rows, *more])} FROM _rows")

    def named(self, index: int, rows: Relation, *more: str) -> Relation:
        """Return stored rows of an input: the keys, its columns by their own names, `more` select items."""
        own = [f"{c.name} AS {sql}" for c, sql in self._own(index)]
        return Relation(f"(SELECT {', '.join([*self.key_names, *own, *more])} FROM {rows})")

    def has_keys(self, alias: str = "") -> Condition:
        """Return the condition that no key of a row is NULL; `alias`, with its dot, goes before the names."""
        return all_of(f"{alias}{name} IS NOT NULL" for name in self.key_names)

    def on(self, a: str, b: str, *more: str, condition: bool = True) -> Condition:
        """Return the condition that rows of the relations `a` and `b` match, which have the columns of `named`.

        `more` conditions are added; with `condition=False` only the keys are compared.
        """
        conditions = [f"{a}.{name} = {b}.{name}" for name in self.key_names] + list(more)
        if condition and self.condition is not None:
            conditions.append(f"({self.condition})")
        return all_of(conditions)

    def shown(self, indexes: Sequence[int], padded: Sequence[int] = ()) -> Items:
        """Return the columns of the inputs at `indexes`; columns of `padded` inputs are NULL."""
        items = [
            f"CAST(NULL AS {c.type}) AS {sql}" if index in padded else sql
            for index in indexes
            for c, (_, sql) in zip(self.columns[index], stored_columns(self.columns[index]), strict=True)
        ]
        return Items(", ".join(items))
