"""UNNEST, table functions and LATERAL in FROM: rows that are computed from a row's own values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
from sqlglot import exp

from sqlstream.catalog import Catalog
from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, SourceText, Span, UnsupportedError
from sqlstream.logical.bind.clauses import refuse_clauses
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.type_checker import NULL_TYPE, TypeChecker
from sqlstream.logical.bind.joins.lists import BoundList, ListBinder, named
from sqlstream.logical.bind.ordering import row_count, with_ties
from sqlstream.logical.bind.scope import Scope, VisibleRelation, column_reference
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.relational import Elements
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import span_of

# Aggregates that depend on the order of rows: over lists, that is the order of elements, which is added to their calls.
_ORDERED = {
    *("list", "array_agg", "string_agg", "group_concat", "listagg", "first", "last", "any_value", "arbitrary"),
    *("arg_min", "argmin", "min_by", "arg_max", "argmax", "max_by", "json_group_array", "json_group_object"),
}
_READ = {"expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "limit"}


@dataclass(frozen=True, slots=True)
class LateralRows:
    """A bound item of FROM that is computed from a row of the relations before it.

    `rows` is a SELECT over that row with the columns `fields`, or a list whose elements have these columns. `key` are columns
    that are unique among the rows that one row yields: empty if it yields at most one, None if nothing is known.
    """

    rows: Expression | Elements
    fields: Schema
    visible: VisibleRelation
    key: frozenset[str] | None


def is_lateral(item: exp.Expr) -> bool:
    """Return whether an item of FROM is UNNEST or LATERAL."""
    return isinstance(item, exp.Unnest | exp.Lateral)


class LateralBinder:
    """Binds UNNEST in FROM, and LATERAL without tables, which read a row of the relations before them.

    `scope` has these relations, `used_names` are the names of all columns so far.
    """

    def __init__(
        self, catalog: Catalog, checker: TypeChecker, source: SourceText, scope: Scope, used_names: Sequence[str]
    ):
        self.catalog, self.checker, self.source, self.scope = catalog, checker, source, scope
        self.lists = ListBinder(catalog, checker, source, used_names)

    def bind(self, item: exp.Expr) -> LateralRows:
        """Return the rows of UNNEST(..), of a table function, or of LATERAL (SELECT ..).

        Raises BindError for an item that is wrong, UnsupportedError for one that cannot run.
        """
        inner = item.this if isinstance(item, exp.Lateral) else item
        while isinstance(inner, exp.Subquery):
            refuse_clauses(inner, self.source)
            inner = inner.this
        match inner:
            case exp.Unnest() | exp.Anonymous():
                bound_list = self.lists.bind(item, self.scope, numbered=False)
                return LateralRows(
                    bound_list.elements,
                    bound_list.fields,
                    bound_list.visible,
                    frozenset({bound_list.number}) if bound_list.number else None,
                )
            case exp.Select():
                return self._select(inner, item.args.get("alias"))
            case exp.Values() | exp.SetOperation():
                hint = "Write UNNEST([a, b]) for several values of a row."
                raise self._unsupported(f"{inner.key.upper()} in LATERAL", inner, hint)
            case _:
                hint = "LATERAL takes a table function, UNNEST(..), or a subquery over the values of the row."
                raise self._unsupported("this in LATERAL", inner, hint)

    # -- LATERAL (SELECT ..)

    def _select(self, select: exp.Select, alias: exp.Expr | None) -> LateralRows:
        """Return the rows of a subquery over the values of the row, and over lists in its FROM."""
        for key, clause in select.args.items():
            if clause and key not in _READ:
                what = f"{key.strip('_').upper()} in LATERAL"
                at = clause if isinstance(clause, exp.Expr) else select
                raise self._unsupported(what, at, None)
        if (distinct := select.args.get("distinct")) is not None and distinct.args.get("on") is not None:
            raise self._unsupported("DISTINCT ON in LATERAL", distinct, "Write arg_min(a, b) and GROUP BY.")
        lists = self._lists(select)
        inner = self._inside(lists)
        binder = _RowBinder(inner, self.catalog, self.checker)
        numbers = [bound_list.number for bound_list in lists if bound_list.number is not None]
        items = [(_name(e, i), binder.item(e, numbers)) for i, e in enumerate(_expanded(select, inner))]
        names = [name for name, _ in items]
        columns = ", ".join(f"{sql} AS {quote_name(f'_{i}')}" for i, (_, sql) in enumerate(items))
        sql = f"SELECT {'DISTINCT ' if select.args.get('distinct') else ''}{columns}"
        sql += f" FROM {', '.join(f'({bound_list.sql})' for bound_list in lists)}" if lists else ""
        sql += self._clauses(select, binder, names, numbers)
        names = named(
            names, [c.name for c in alias.args.get("columns") or ()] if alias else [], alias or select, self.source
        )
        own = self.lists.own(names)
        renamed = ", ".join(f"{quote_name(f'_{i}')} AS {quote_name(name)}" for i, name in enumerate(own))
        sql = f"SELECT {renamed} FROM ({sql})"
        kinds = self._types(sql, select)
        fields = tuple(Field(name, kind) for name, kind in zip(own, kinds, strict=True))
        called = alias.name if alias is not None else ""
        described = f'subquery "{called}"' if called else "the subquery"
        rows = _rows(
            [*binder.bound, *(bound_list.elements.values for bound_list in lists)], sql, span_of(select, self.source)
        )
        one = not lists or (binder.aggregates and select.args.get("group") is None)
        return LateralRows(
            rows, fields, VisibleRelation(called, described, dict(zip(names, own, strict=True))), _one(one)
        )

    def _lists(self, select: exp.Select) -> list[BoundList]:
        """Return the lists in a subquery's FROM; each may use the row and the lists before it."""
        clause = select.args.get("from_")
        joins = select.args.get("joins") or ()
        lists: list[BoundList] = []
        for item in [*([clause.this] if clause is not None else []), *(j.this for j in joins)]:
            lists.append(self.lists.bind(item, self._inside(lists), numbered=True))
        for join in joins:
            if any(join.args.get(part) for part in ("side", "method", "on", "using")):
                raise self._unsupported("a join in LATERAL", join, "Write FROM UNNEST(a) AS x, UNNEST(b) AS y WHERE ..")
        return lists

    def _inside(self, lists: Sequence[BoundList]) -> Scope:
        """Return the scope of the columns of some lists, with the row as outer scope."""
        shown = {own for bound_list in lists for own in bound_list.visible.columns.values()}
        fields = tuple(f for bound_list in lists for f in bound_list.fields if f.name in shown)
        visible = tuple(bound_list.visible for bound_list in lists)
        return Scope("", fields, self.source, "the subquery", {}, visible, outer=self.scope)

    def _clauses(self, select: exp.Select, binder: _RowBinder, names: Sequence[str], numbers: Sequence[str]) -> str:
        """Return the SQL of the clauses after FROM."""
        sql = ""
        if (where := select.args.get("where")) is not None:
            binder.refuse_aggregates(where.this, "in WHERE")
            predicate = binder.bind(where.this)
            if predicate.type not in ("BOOLEAN", NULL_TYPE):
                message = f"WHERE needs a condition, not a value of type {predicate.type}"
                raise BindError(message, predicate.span)
            sql += f" WHERE {predicate.sql}"
        if (group := select.args.get("group")) is not None:
            if any(value for key, value in group.args.items() if key != "expressions"):
                raise self._unsupported("GROUP BY with ALL or grouping sets in LATERAL", group, "Name the columns.")
            sql += f" GROUP BY {', '.join(binder.item(e, ()) for e in group.expressions)}"
        if (having := select.args.get("having")) is not None:
            sql += f" HAVING {binder.item(having.this, numbers)}"
        order, limit = select.args.get("order"), select.args.get("limit")
        if order is None and limit is None:
            return sql
        if limit is None or order is None:
            hint = "Write both: they take the first elements."
            raise self._unsupported("ORDER BY or LIMIT alone in LATERAL", order or limit or select, hint)
        positions = {name.lower(): f"_{i}" for i, name in enumerate(names)}
        items = [binder.ordered(item, positions, numbers) for item in order.expressions]
        plain = not binder.aggregates and group is None and not select.args.get("distinct")
        # Elements that are equal in the order are ordered by their position, or by all columns.
        tie_breakers = map(quote_name, numbers if plain else positions.values())
        sql += f" ORDER BY {', '.join([*items, *tie_breakers])}"
        if with_ties(select):
            raise self._unsupported("WITH TIES in LATERAL", limit, "Leave it out, or say more in ORDER BY.")
        return f"{sql} LIMIT {row_count(limit, self.source)}"

    def _types(self, sql: str, select: exp.Select) -> list[str]:
        try:
            return [column.type for column in self.checker.columns(self.scope.rows, sql)]
        except duckdb.Error as error:
            raise self.checker.translate(error, select, self.source) from error

    def _unsupported(self, what: str, node: exp.Expr, hint: str | None) -> UnsupportedError:
        return UnsupportedError(what, span_of(node, self.source), hint=hint)


class _RowBinder(ExpressionBinder):
    """Binds the expressions of LATERAL (SELECT ..), in which aggregates are over the elements of lists."""

    aggregates = False

    def __init__(self, scope: Scope, catalog: Catalog, checker: TypeChecker):
        super().__init__(scope, catalog, checker)
        # All expressions that were bound.
        self.bound: list[Expression] = []

    def replacement(self, node: exp.Expr) -> exp.Expr | None:
        """Return None, since DuckDB computes aggregates here; note whether there are any. COUNT(*) becomes COUNT()."""
        self.aggregates = self.aggregates or self.is_aggregate(node)
        if (
            isinstance(node, exp.Anonymous)
            and node.name.lower() == "count"
            and isinstance(node.expressions[0], exp.Star)
        ):
            node.set("expressions", [])
        return None

    def bind(self, node: exp.Expr) -> Expression:
        """Return the bound expression, which is added to `bound`."""
        found = super().bind(node)
        self.bound.append(found)
        return found

    def item(self, node: exp.Expr, numbers: Sequence[str]) -> str:
        """Return the SQL of an expression that may contain aggregates; ordered ones get the order of elements, by `numbers`."""
        inner = node.this if isinstance(node, exp.Alias) else node
        bound = self.rewrite(inner)
        self.bound.append(Expression.of(bound, "", volatile=self.is_volatile(bound)))
        if not any(self.is_aggregate(n) for n in bound.walk()):
            return self.typed(bound, inner).sql
        for call in bound.find_all(exp.Anonymous):
            if self.catalog.aggregate_function(call.name) is not None:
                hint = "Write the rows of UNNEST into a subquery in FROM, and GROUP BY over it."
                raise self.unsupported(f"a Python aggregate function, {call.name}, in LATERAL (SELECT ..)", inner, hint)
            if numbers and call.name.lower() in _ORDERED and call.expressions:
                last = call.expressions[-1]
                if not isinstance(last, exp.Order):
                    by = last.expressions if isinstance(last, exp.Distinct) else map(column_reference, numbers)
                    order = [exp.Ordered(this=e.copy(), nulls_first=False) for e in by]
                    last.replace(exp.Order(this=last.copy(), expressions=order))
        return to_duckdb(bound)

    def ordered(self, item: exp.Expr, positions: dict[str, str], numbers: Sequence[str]) -> str:
        """Return the SQL of an item of ORDER BY with its direction; it may name a column of the select list, by `positions`."""
        value = item.this if isinstance(item, exp.Ordered) else item
        if isinstance(value, exp.Column) and not value.table and (position := positions.get(value.name.lower())):
            sql = quote_name(position)
        else:
            sql = self.item(value, numbers)
        descending = isinstance(item, exp.Ordered) and item.args.get("desc")
        first = isinstance(item, exp.Ordered) and item.args.get("nulls_first")
        return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def _expanded(select: exp.Select, scope: Scope) -> list[exp.Expr]:
    """Return the select list with a star replaced by the columns of the lists."""
    items: list[exp.Expr] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) and not any(item.args.values()):
            items += [exp.alias_(scope.reference(name, own, item), name, quoted=True) for name, own in scope.columns]
        else:
            items.append(item)
    return items


def _name(item: exp.Expr, position: int) -> str:
    return item.alias_or_name or f"column{position}"


def _rows(parts: Sequence[Expression], sql: str, span: Span) -> Expression:
    """Return a SELECT as an expression that consists of `parts`."""
    return replace(Expression.over(parts, sql, ""), span=span)


def _one(is_one: bool) -> frozenset[str] | None:
    return frozenset() if is_one else None
