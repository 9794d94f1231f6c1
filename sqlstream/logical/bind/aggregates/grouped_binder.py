"""Binding of expressions above an aggregation."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlstream.catalog import Catalog
from sqlstream.logical.bind.aggregates.composed import composed
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.forms import filled, like
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.over.ranking import Ranks
from sqlstream.logical.bind.scope import Scope, column_reference
from sqlstream.logical.plan.expressions import Schema
from sqlstream.sql.dialect import to_duckdb

# Expressions over grouped rows.
_OF_GROUPS = (exp.Window,)


class GroupedBinder(ExpressionBinder):
    """Binds expressions above an aggregation, over its keys and the results of its aggregate calls.

    `keys` maps the SQL of keys to their names, `aggregate` returns the name of the result of an aggregate call, `grouping` the
    bound form of a call of GROUPING, and `grouped` the columns of the grouped rows so far.
    """

    def __init__(
        self,
        scope: Scope,
        catalog: Catalog,
        checker: TypeChecker,
        keys: dict[str, str],
        aggregate: Callable[[exp.Expr], str],
        grouping: Callable[[exp.Anonymous], exp.Expr],
        grouped: Callable[[], Schema],
        ranks: Ranks,
    ):
        super().__init__(scope, catalog, checker, ranks)
        self.keys = keys
        self.aggregate = aggregate
        self.grouping = grouping
        self.grouped = grouped
        self.below = ExpressionBinder(scope, catalog, checker)

    @property
    def rows(self) -> Schema:
        return self.grouped()

    def replacement(self, node: exp.Expr) -> exp.Expr | None:
        """Return the reference to the key, or to the aggregate's result, that a node is; None to bind its parts.

        Raises BindError for a column that is not a key, outside of aggregates.
        """
        if self.is_aggregate(node):
            average = self.decimal_average(node, self.below)
            if average is not None or (average := self._composed(node)) is not None:
                return average
            return like(node, column_reference(self.aggregate(node)))
        if isinstance(node, exp.Anonymous) and node.name.lower() in ("grouping", "grouping_id"):
            return like(node, self.grouping(node))
        self.below.unnests = self.unnests
        if isinstance(node, exp.Literal | exp.Identifier) or not isinstance(node, exp.Condition):
            return None
        if any(self.is_aggregate(n) or self._is_alias(n) or isinstance(n, _OF_GROUPS) for n in node.walk()):
            return None
        bound = self.below.rewrite(node)
        key_name = self.keys.get(to_duckdb(bound))
        if key_name is not None:
            return like(node, column_reference(key_name))
        if isinstance(node, exp.Column):
            if (field := self._field_of_key(bound)) is not None:
                return like(node, field)
            self._check_function_around(node)
            is_field = isinstance(bound, exp.Anonymous)
            text = node.name if node.name.isidentifier() and not is_field else to_duckdb(node)
            what = f'field "{text}"' if is_field else f'column "{node.name}"'
            raise self.error(
                f"{what} must be in GROUP BY or inside an aggregate",
                node,
                hint=f"Add {text} to GROUP BY, or write any_value({text}).",
            )
        return None

    def _composed(self, node: exp.Expr) -> exp.Expr | None:
        """Return a call of Flink's that is composed of DuckDB's aggregates, None for any other call."""
        call = node.this if isinstance(node, exp.Filter) else node
        if isinstance(call, exp.Anonymous) and self.catalog.aggregate_function(call.name) is not None:
            return None
        composition = composed(node, lambda part: self.below.type_of(self.below.rewrite(part)), self.scope.source)
        if composition is None:
            return None
        form, parts = composition
        return filled(form, node, lambda number: self._rewrite(parts[number].copy()))

    def _field_of_key(self, bound: exp.Expr) -> exp.Expr | None:
        """Return a field of a key, such as `r.a` if rows are grouped by `r`; None if it belongs to no key."""
        if not isinstance(bound, exp.Anonymous) or bound.name != "struct_extract":
            return None
        row, field = bound.expressions
        key = self.keys.get(to_duckdb(row))
        inner = column_reference(key) if key is not None else self._field_of_key(row)
        return None if inner is None else exp.Anonymous(this="struct_extract", expressions=[inner, field.copy()])

    def _is_alias(self, node: exp.Expr) -> bool:
        return (
            isinstance(node, exp.Column)
            and not node.table
            and node.name.lower() in self.scope.select_aliases
            and self.scope.find(node.name) is None
        )

    def _check_function_around(self, node: exp.Column) -> None:
        """Raise BindError if a column is an argument of a function that does not exist: an aggregate may be meant."""
        call = node.find_ancestor(exp.Anonymous)
        if call is not None and self.catalog.function(call.name) is None and not self.checker.knows(call.name):
            raise self.checker.no_function(call.name, self.span(call))
