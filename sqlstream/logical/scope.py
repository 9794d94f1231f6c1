"""Which names a query block can see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from sqlstream.errors import BindError, Source, missing
from sqlstream.logical.nodes import Schema
from sqlstream.sql.spans import span_of


@dataclass(frozen=True, slots=True)
class Scope:
    """The relation that a block reads, by alias, and the names that its own select list defines."""

    alias: str
    schema: Schema
    source: Source
    described: str
    select_aliases: Mapping[str, exp.Expr] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        """Return the column of this name, matched without regard to case."""
        return next((f.name for f in self.schema if f.name.lower() == name.lower()), None)

    def resolve(self, column: exp.Column) -> exp.Expr | None:
        """Return the bound form of a column reference; None when it is an alias of the select list.

        `a.b` is column b of relation a, or field b of the struct column a.
        """
        names = _path(column)
        qualified = len(names) > 1 and names[0].lower() == self.alias.lower() and self.find(names[1]) is not None
        fields = names[1:] if qualified else names
        found = self.find(fields[0])
        if found is None:
            if len(names) == 1 and names[0].lower() in self.select_aliases:
                return None
            raise self.missing(column)
        bound: exp.Expr = column_reference(found)
        bound.meta.update(column.meta)
        for name in fields[1:]:
            bound = exp.Anonymous(this="struct_extract", expressions=[bound, exp.Literal.string(name)])
            bound.meta.update(column.meta)
        return bound

    def missing(self, column: exp.Column) -> BindError:
        """Return the error for a column that does not exist."""
        names, span = _path(column), span_of(column, self.source)
        existing = [f.name for f in self.schema]
        if len(names) > 1 and names[0].lower() != self.alias.lower():
            hint = missing("name", names[0], [self.alias, *existing] if self.alias else existing)
            return BindError(f'"{names[0]}" is neither a table nor a column here', span, hint=hint)
        name = names[-1] if len(names) == 1 else names[1]
        return BindError(
            f'column "{name}" does not exist in {self.described}', span, hint=missing("column", name, existing)
        )


def _path(column: exp.Column) -> list[str]:
    parts = (column.args.get(key) for key in ("catalog", "db", "table", "this"))
    return [part.name for part in parts if part is not None]


def column_reference(name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def unique(names: list[str]) -> list[str]:
    """Number names that occur before, as DuckDB does in a subquery.

    >>> unique(["a", "b", "a"])
    ['a', 'b', 'a_1']
    """
    seen: set[str] = set()
    found = []
    for name in names:
        candidate, number = name, 0
        while candidate.lower() in seen:
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate.lower())
        found.append(candidate)
    return found
