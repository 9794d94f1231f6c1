"""Lists in FROM: UNNEST, and table functions, which DuckDB calls as scalar functions that return a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlstream.catalog import Catalog, Function
from sqlstream.duck.sql import quote_name
from sqlstream.duck.types import has_elements, kind_of
from sqlstream.errors import BindError, SourceText, Span, UnsupportedError, missing
from sqlstream.logical.bind.expressions.arguments import order_arguments
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.scope import Scope, VisibleRelation, unique
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.relational import Elements
from sqlstream.sql.spans import name_span, span_of

ORDINALITY = "ordinality"


@dataclass(frozen=True, slots=True)
class BoundList:
    """A bound list of FROM: `sql` is a SELECT of the columns `fields`, over the row.

    `number` is the column that numbers the elements, the last one, None without one; `visible` may leave it out.
    """

    sql: str
    fields: Schema
    visible: VisibleRelation
    number: str | None
    elements: Elements


@dataclass(frozen=True, slots=True)
class _ListSource:
    """A list of FROM: its expression, and its name for errors and columns. `offset` is the query's own name of the ordinality."""

    values: Expression
    name: str
    ordinality: bool
    offset: str | None


class ListBinder:
    """Binds lists over a row. `used_names` are names of columns that a list's columns must not have."""

    def __init__(self, catalog: Catalog, checker: TypeChecker, source: SourceText, used_names: Sequence[str]):
        self.catalog, self.checker, self.source, self.used_names = catalog, checker, source, list(used_names)

    def bind(self, item: exp.Expr, scope: Scope, *, numbered: bool) -> BoundList:
        """Return the elements of a list, or the entries of a map; with their numbers if `numbered`, or WITH ORDINALITY.

        `item` is UNNEST(..), a call of a table function, or LATERAL with one of these. Raises BindError for a value that is not a
        list or a map, and for a function that is not a table function; UnsupportedError for UNNEST of several lists.
        """
        inner = item.this if isinstance(item, exp.Lateral | exp.Table) else item
        alias = item.args.get("alias") or inner.args.get("alias")
        if isinstance(inner, exp.Unnest):
            list_source = self._unnested(inner, scope)
        else:
            assert isinstance(inner, exp.Anonymous)
            list_source = self._called(inner, scope, bool(item.args.get("ordinality")))
        return self._list(list_source, alias, scope, item, numbered=numbered)

    def _unnested(self, item: exp.Unnest, scope: Scope) -> _ListSource:
        if len(item.expressions) != 1:
            raise UnsupportedError(
                "UNNEST of several lists", span_of(item, self.source), hint="Write UNNEST(list_zip(a, b))."
            )
        [written] = item.expressions
        binder = ExpressionBinder(scope, self.catalog, self.checker)
        binder.refuse_aggregates(written, "in FROM")
        values = binder.bind(written)
        if kind_of(values.type) == "map":
            values = Expression.over([values], f"map_entries({values.sql})", "")
        elif not has_elements(values.type):
            kind = values.type.strip('"')
            message = f"UNNEST takes a list or a map, not {kind}"
            hint = "Name its fields: they are columns already." if kind_of(values.type) == "struct" else None
            raise BindError(message, values.span, hint=hint)
        offset = item.args.get("offset")
        # sqlglot keeps the last column name apart.
        name = offset.name if isinstance(offset, exp.Identifier) else None
        return _ListSource(values, "unnest", bool(offset), name)

    def _called(self, call: exp.Anonymous, scope: Scope, ordinality: bool) -> _ListSource:
        """Return the call of a table function, whose rows DuckDB gets as a list."""
        function = self._function(call)
        binder = ExpressionBinder(scope, self.catalog, self.checker)
        binder.refuse_aggregates(call, "in FROM")
        bound = call.copy()
        order_arguments(bound, function, self.source)
        bound.set("expressions", [binder.rewrite(argument) for argument in bound.expressions])
        return _ListSource(binder.typed(bound, call), function.name, ordinality, None)

    def _function(self, call: exp.Anonymous) -> Function:
        name = call.name
        function = self.catalog.function(name)
        if function is not None and function.kind == "table":
            return function
        span = name_span(call, self.source)
        if self.catalog.process_function(name) is not None:
            hint = f"Write FROM {name}(TABLE t ..): it takes tables."
            raise BindError(f'"{name}" is a process function, not a table function', span, hint=hint)
        if function is None and not self.checker.knows(name):
            raise self._no_function(name, span)
        if self.catalog.aggregate_function(name) is not None:
            hint = f"Write SELECT {name}(..) FROM t GROUP BY ..: it makes one value of many rows."
            raise BindError(f'"{name}" is an aggregate function, and no table function', span, hint=hint)
        hint = "Call it in the select list."
        if function is not None and has_elements(function.returns):
            hint = f"Write CROSS JOIN UNNEST({name}(..)) AS x for the elements of its list."
        raise BindError(f'"{name}" is not a table function: it returns one value', span, hint=hint)

    def _no_function(self, name: str, span: Span) -> BindError:
        if self.checker.broken:
            return self.checker.no_function(name, span)
        tables = [f.name for f in self.catalog.functions.values() if f.kind == "table"]
        hint = missing("table function", name, tables) if tables else "Mark a Python generator @udtf to make it one."
        return BindError(f'table function "{name}" does not exist', span, hint=hint)

    def _list(
        self, list_source: _ListSource, alias: exp.Expr | None, scope: Scope, item: exp.Expr, *, numbered: bool
    ) -> BoundList:
        sql = list_source.values.sql
        parts = self.checker.parts(scope.rows, f"({sql})[1]")
        whole = alias.name if alias is not None and alias.this is not None else list_source.name
        names = [part.name or whole for part in parts]
        column_names = [c.name for c in alias.args.get("columns") or ()] if alias is not None else []
        column_names += [list_source.offset] if list_source.offset is not None else []
        shown = named(
            [*names, *([ORDINALITY] if list_source.ordinality else [])], column_names, alias or item, self.source
        )
        numbered = numbered or list_source.ordinality
        own = self.own([*shown, *([ORDINALITY] if numbered and not list_source.ordinality else [])])
        fields = bool(parts[0].name)
        values_of = [f"struct_extract_at(_element, {i})" for i in range(1, len(parts) + 1)] if fields else ["_element"]
        items = [*values_of, *(["_number"] if numbered else [])]
        kinds = [*(part.type for part in parts), *(["BIGINT"] if numbered else [])]
        columns = ", ".join(f"{sql} AS {quote_name(name)}" for sql, name in zip(items, own, strict=True))
        rows = f"unnest({sql}) AS _element"
        rows += f", unnest(range(1, len({sql}) + 1)) AS _number" if numbered else ""
        called = alias.name if alias is not None else ""
        return BoundList(
            f"SELECT {columns} FROM (SELECT {rows})",
            tuple(Field(name, kind) for name, kind in zip(own, kinds, strict=True)),
            VisibleRelation(called, f'"{called}"' if called else list_source.name, dict(zip(shown, own, strict=False))),
            own[-1] if numbered else None,
            Elements(list_source.values, fields, numbered),
        )

    def own(self, names: Sequence[str]) -> list[str]:
        """Return names for columns that no other column has, numbered where needed, and add them to the used names."""
        own = unique([*self.used_names, *names])[len(self.used_names) :]
        self.used_names += own
        return own


def named(names: Sequence[str], aliases: Sequence[str], at: exp.Expr, source: SourceText) -> list[str]:
    """Return column names, the first of which are replaced by `aliases`. Raises BindError for too many aliases."""
    if len(aliases) > len(names):
        columns = "1 column" if len(names) == 1 else f"{len(names)} columns"
        raise BindError(f"{len(aliases)} names are given for {columns}", span_of(at, source))
    return unique([*aliases, *names[len(aliases) :]])


def is_list(item: exp.Expr) -> bool:
    """Return whether an item of FROM is UNNEST or a call of a function, with or without LATERAL."""
    inner = item.this if isinstance(item, exp.Lateral | exp.Table) else item
    return isinstance(inner, exp.Unnest | exp.Anonymous)
