"""The names that a query block can use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, missing
from sqlstream.logical.plan.expressions import Schema
from sqlstream.sql.spans import span_of, with_span_of

# The key of a parsed reference's `meta` that holds the schema's column which it means.
_COLUMN = "column"
# The relation of a query without FROM: one row, and no column that a query may name.
ONE_ROW = "_one"


@dataclass(frozen=True, slots=True)
class VisibleRelation:
    """A relation that a block can name: its alias, its name in errors, and its columns.

    `columns` maps the names of columns in queries to their names in the scope's schema.
    """

    alias: str
    described: str
    columns: Mapping[str, str]

    def find(self, name: str) -> str | None:
        """Return the schema's column for a name in any case, None if there is none."""
        return next((own for column, own in self.columns.items() if column.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that a block reads, and the aliases that its own select list defines.

    A join has several relations, `joined`, and `merged` columns of USING, by name in lower case, with their names in the schema.
    A subquery can also name the columns of `outer`, the scope of the block around it. `absent` returns hints for missing names.
    """

    alias: str
    schema: Schema
    source: SourceText
    described: str
    select_aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    joined: tuple[VisibleRelation, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    outer: Scope | None = None
    absent: Callable[[], Mapping[str, str]] = dict

    @property
    def rows(self) -> Schema:
        """The columns that bound expressions can read, in this scope and in the outer ones."""
        return (*self.schema, *(self.outer.rows if self.outer is not None else ()))

    @property
    def relations(self) -> tuple[VisibleRelation, ...]:
        """The relations; columns that were added above a join are in a last one without an alias."""
        if not self.joined:
            return (VisibleRelation(self.alias, self.described, {f.name: f.name for f in self.schema}),)
        names = {own for relation in self.joined for own in relation.columns.values()} | {*self.merged.values()}
        added = {f.name: f.name for f in self.schema if f.name not in names}
        return (*self.joined, VisibleRelation("", self.described, added))

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns that a bare * stands for: pairs of name and schema's column; a merged column comes once."""
        pairs: dict[str, tuple[str, str]] = {}
        for relation in self.relations:
            for name, own in relation.columns.items():
                if name.lower() in self.merged:
                    pairs.setdefault(name.lower(), (name, self.merged[name.lower()]))
                else:
                    pairs[f"{name} {own}"] = name, own
        return [*pairs.values()]

    def relation(self, alias: str) -> VisibleRelation | None:
        """Return the relation with an alias in any case, None if there is none."""
        return next((r for r in self.relations if r.alias.lower() == alias.lower()), None)

    def find(self, name: str) -> str | None:
        """Return the schema's column for a name in any case, the first if there are several; None if there is none."""
        return next(iter(self._matches(name)), None)

    def _matches(self, name: str) -> list[str]:
        if name.lower() in self.merged:
            return [self.merged[name.lower()]]
        return [own for relation in self.relations if (own := relation.find(name)) is not None]

    def resolve(self, column: exp.Column) -> exp.Expr | None:
        """Return the bound form of a column reference; None if it is an alias of the select list.

        `a.b` is column b of relation a, or field b of the struct column a. Raises BindError for a name that does not exist, or
        that several relations have.
        """
        if (own := column.meta.get(_COLUMN)) is not None:
            return column_reference(own)
        names = _path(column)
        relation = self.relation(names[0]) if len(names) > 1 else None
        qualified = relation is not None and relation.find(names[1]) is not None
        fields = names[1:] if qualified else names
        schema_column = (
            relation.find(fields[0]) if relation is not None and qualified else self._only(fields[0], column)
        )
        if schema_column is None and relation is None and self.outer is not None:
            return self.outer.resolve(column)
        if schema_column is None:
            if len(names) == 1 and names[0].lower() in self.select_aliases:
                return None
            raise self.missing(column)
        span = span_of(column, self.source)
        bound = with_span_of(column_reference(schema_column), column, span)
        for name in fields[1:]:
            field = exp.Anonymous(this="struct_extract", expressions=[bound, exp.Literal.string(name)])
            bound = with_span_of(field, column, span)
        return bound

    def _only(self, name: str, column: exp.Column) -> str | None:
        matches = self._matches(name)
        if len(matches) > 1:
            candidates = [f"{r.alias}.{name}" for r in self.relations if r.alias and r.find(name) is not None]
            raise BindError(
                f'column "{name}" is in several tables',
                span_of(column, self.source),
                hint=f"Write {' or '.join(candidates)}.",
            )
        return next(iter(matches), None)

    def reference(self, name: str, own: str, at: exp.Expr) -> exp.Column:
        """Return a reference to the schema's column `own` that errors show as `name`, at the position of a node in the text."""
        reference = column_reference(name)
        reference.meta.update({**at.meta, _COLUMN: own})
        return reference

    def missing(self, column: exp.Column) -> BindError:
        """Return the error for a column that does not exist."""
        names, span = _path(column), span_of(column, self.source)
        if [r.alias for r in self.relations] == [ONE_ROW]:
            hint = f"Name a table: SELECT {'.'.join(names)} FROM t."
            return BindError(f'column "{names[0]}" in a query without FROM', span, hint=hint)
        existing = [name for name, _ in self.columns]
        relation = self.relation(names[0]) if len(names) > 1 else None
        if len(names) > 1 and relation is None:
            aliases = [r.alias for r in self.relations if r.alias]
            hint = missing("name", names[0], [*aliases, *existing] if aliases else existing)
            return BindError(f'"{names[0]}" is neither a table nor a column here', span, hint=hint)
        name = names[-1] if relation is None else names[1]
        described = self.described if relation is None else relation.described
        existing = existing if relation is None else [*relation.columns]
        hint = self.absent().get(name.lower()) or missing("column", name, existing)
        return BindError(f'column "{name}" does not exist in {described}', span, hint=hint)


def _path(column: exp.Column) -> list[str]:
    parts = (column.args.get(key) for key in ("catalog", "db", "table", "this"))
    return [part.name for part in parts if part is not None]


def column_reference(name: str) -> exp.Column:
    """Return the bound reference to a column of the schema."""
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def unique(names: list[str]) -> list[str]:
    """Return names in which repetitions have a number, as in DuckDB's subqueries; case does not matter.

    >>> unique(["a", "b", "a"])
    ['a', 'b', 'a_1']
    """
    seen: set[str] = set()
    unique_names = []
    for name in names:
        candidate, number = name, 0
        while candidate.lower() in seen:
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate.lower())
        unique_names.append(candidate)
    return unique_names
