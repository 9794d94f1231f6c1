"""The node of joins with lookup tables, which are queried when a row arrives."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from sqlstream.catalog import Table
from sqlstream.duck.sql import unquoted
from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.joining import Kind
from sqlstream.logical.plan.node import Keys, PassThrough
from sqlstream.logical.plan.settings import LookupSettings, NodeValues
from sqlstream.logical.plan.values import form, optional_form


@dataclass(frozen=True)
class LookupJoin(PassThrough):
    """Joins each row, in the batch in which it arrives, with the rows that a lookup table has for its keys at that moment.

    Rows of the table match if the condition is true; a left join emits a row without a match with NULLs. `keys` are pairs of an
    expression over the row, and the column of the table that must have its value. `columns` are pairs of a column of the table,
    and its name and type in the result. Keeps no state.
    """

    node_kind: ClassVar[str] = "lookup_join"

    table: Table
    kind: Kind
    keys: tuple[tuple[Expression, str], ...]
    columns: tuple[tuple[str, Field], ...]
    condition: Expression | None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        condition = optional_form(self.condition)
        return NodeValues(
            self.node_kind,
            keys=tuple((column, form(key)) for key, column in self.keys),
            settings=LookupSettings(self.kind, self.table.name, self.table.connector, condition),
        )

    @property
    def by_primary_key(self) -> bool:
        """Whether a row has at most one match: the table has a PRIMARY KEY, and all of it is among the keys."""
        key = set(self.table.primary_key)
        return bool(key) and key <= {column for _, column in self.keys}

    @property
    def label(self) -> str:
        return f'lookup join with table "{self.table.name}"'

    @property
    def description(self) -> str:
        by = ", ".join(f"{self.table.name}.{column} = {key.sql}" for key, column in self.keys)
        where = f" where {self.condition.sql}" if self.condition else ""
        table = f"{self.table.name} ({self.table.connector or 'warehouse table'})"
        return f"LookupJoin {self.kind} {table} by {by}{where}"

    @property
    def effect(self) -> str:
        by = ", ".join(f"{column} = {unquoted(key.sql)}" for key, column in self.keys)
        return f"{self.kind} lookup join with table {self.table.name}, by {by}"

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        return (*(key for key, _ in self.keys), *((self.condition,) if self.condition else ()))

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *(f for _, f in self.columns))

    @cached_property
    def unique_keys(self) -> Keys:
        return self.input.unique_keys if self.by_primary_key else ()
