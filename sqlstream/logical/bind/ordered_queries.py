"""Queries with ORDER BY or LIMIT: the first rows, those that come first, and append-only rows sorted by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from sqlglot import exp

from sqlstream.catalog import Catalog
from sqlstream.duck.time_variables import NOW
from sqlstream.errors import BindError, SourceText, Span, UnsupportedError
from sqlstream.logical.bind.clauses import CLAUSES, without
from sqlstream.logical.bind.expressions.arrival import ArrivalColumns
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.ordering import bound_items, row_count, with_hidden_items, with_ties
from sqlstream.logical.bind.over.over import check_zone, time_of, typed
from sqlstream.logical.bind.scope import Scope
from sqlstream.logical.plan.expressions import AggregateItem, Dependencies, Expression, Item, Schema
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.over import Over, OverFrame, OverItem, Sort
from sqlstream.logical.plan.predicates import Claims
from sqlstream.logical.plan.ranks import Rank
from sqlstream.logical.plan.relational import Filter, Projection
from sqlstream.sql.spans import span_of


@dataclass(frozen=True)
class OrderedQueries:
    """Binds ORDER BY of whole queries; `bind` returns the plan of a query without ORDER BY."""

    catalog: Catalog
    checker: TypeChecker
    source: SourceText
    bind: Callable[[exp.Expr], Node]

    def first_rows(self, query: exp.Expr, keys: int = 0) -> tuple[Node, Node]:
        """Return the plan of ORDER BY .. LIMIT n [OFFSET m]: a rank, and a filter on ranks from m + 1 to m + n.

        They are the ranks among rows that are equal in the last columns of the query, as many as `keys` says. The second node
        is the input of the rank. Raises UnsupportedError for OFFSET beside WITH TIES.
        """
        source = self.source
        node, fields, items = self._ordered(without(query, "limit", "offset", "with_"), keys)
        arrival = ArrivalColumns(node, self.checker, source)
        order_items = arrival.of(items)
        node = arrival.node
        order = self._typed_items(node, order_items)
        skipped, last = self._range(query)
        number = free_name("_number", node)
        span = span_of(query.args["order"], source)
        function = "row_number"
        if with_ties(query):
            if skipped:
                what = span_of(query.args["offset"], source)
                raise UnsupportedError("OFFSET beside WITH TIES", what, hint="Leave one of them out.")
            function = "rank"
        ranked = Rank(node, "", number, function, _last(fields, keys), order, last, span=span)
        return _only(_ranked(ranked, skipped), fields), node

    def first_to_come(self, query: exp.Expr, keys: int = 0) -> tuple[Node, Node]:
        """Return the plan of LIMIT n [OFFSET m] without ORDER BY: the rows that come first, as rows m + 1 to m + n.

        Append-only rows are counted as they come, so the result is append-only, and the state is a number. Of a result that
        changes they are a rank, in the order of arrival if it has one. `keys`: see `first_rows`. The second node is the query
        below. Raises BindError for WITH TIES.
        """
        limit = query.args["limit"]
        span = span_of(limit, self.source)
        if with_ties(query):
            raise BindError("WITH TIES without ORDER BY", span, hint="Add ORDER BY.")
        node = self.bind(without(query, "limit", "offset", "with_"))
        skipped, last = self._range(query)
        number, of = free_name("_number", node), _last(node.schema, keys)
        if node.is_changelog:
            ranked = Rank(node, "", number, "row_number", of, (), last, span=span)
            return _only(_ranked(ranked, skipped), node.schema), node
        clock = free_name("_clock", node)
        now = Expression(NOW, "TIMESTAMP WITH TIME ZONE", span, reads=Dependencies(time=True), is_now=True)
        timed = Projection(node, (*_columns(node.schema), Item(clock, now)))
        call = AggregateItem(number, "row_number", (), False, (), None, "BIGINT", span)
        by = Expression.of_column(clock, now.type, span)
        counted = Over(timed, "", of, clock, (by,), (OverItem(call, OverFrame("rows", None)),), span=span)
        return _only(Filter(counted, _among(number, skipped, last, span)), node.schema), node

    def of_time(self, query: exp.Expr) -> Node:
        """Return the plan of ORDER BY without LIMIT, whose first item must be a time attribute, ascending.

        Raises UnsupportedError for any other order, and over a changelog.
        """
        span = span_of(query.args["order"], self.source)
        node, fields, items = self._ordered(query)
        arrival = ArrivalColumns(node, self.checker, self.source)
        order = arrival.of(items)
        node = arrival.node
        time = time_of(node, order)
        if time is None:
            what, hint = CLAUSES["order"]
            raise UnsupportedError(what, span, hint=hint)
        check_zone(node, time, self.checker, span)
        ordered = Sort(node, "", time, self._typed_items(node, order), span)
        return ordered if fields == node.schema else _only(ordered, fields)

    def _ordered(self, query: exp.Expr, keys: int = 0) -> tuple[Node, Schema, list[exp.Expr]]:
        """Return the plan of a query without its ORDER BY, the columns of its result, and the bound items of ORDER BY.

        Columns that ORDER BY names outside the result are added to the plan, after the others. The last columns of the result,
        as many as `keys` says, have no position for ORDER BY.
        """
        node = self.bind(without(query, "order"))
        fields = node.schema
        whole = with_hidden_items(query, fields)
        if whole is not query:
            node = self.bind(without(whole, "order"))
        return node, fields, bound_items(whole.args["order"], fields[: len(fields) - keys], self._binder(node))

    def _range(self, query: exp.Expr) -> tuple[int, int]:
        """Return how many rows LIMIT and OFFSET leave out, and the number of the last one that they take."""
        offset = query.args.get("offset")
        skipped = row_count(offset, self.source) if offset is not None else 0
        return skipped, skipped + row_count(query.args["limit"], self.source)

    def _typed_items(self, node: Node, items: Sequence[exp.Expr]) -> tuple[Expression, ...]:
        return typed(items, node.schema, self._binder(node), None)

    def _binder(self, node: Node) -> ExpressionBinder:
        return ExpressionBinder(Scope("", node.schema, self.source, "the result"), self.catalog, self.checker)


def free_name(prefix: str, node: Node) -> str:
    """Return a name with a number that no column of a node has."""
    names = {f.name.lower() for f in node.schema}
    return next(name for i in count(1) if (name := f"{prefix}_{i}") not in names)


def _ranked(rank: Rank, skipped: int) -> Filter:
    """Return the rows of a rank up to its limit, without those that are `skipped`."""
    assert rank.limit is not None
    among = _among(rank.column, skipped, rank.limit, rank.span)
    return Filter(rank, replace(among, claims=Claims({rank.column: rank.limit}, parts=2)))


def _among(number: str, skipped: int, last: int, span: Span | None) -> Expression:
    position = Expression.of_column(number, "BIGINT", span)
    return Expression.over([position], f"{position} > {skipped} AND {position} <= {last}", "BOOLEAN")


def _last(fields: Schema, keys: int) -> tuple[Expression, ...]:
    """Return the last columns of some fields, as many as `keys` says."""
    return tuple(Expression.of_column(f.name, f.type) for f in fields[len(fields) - keys :])


def _only(node: Node, fields: Schema) -> Node:
    return Projection(node, _columns(fields))


def _columns(fields: Schema) -> tuple[Item, ...]:
    return tuple(Item(f.name, Expression.of_column(f.name, f.type)) for f in fields)
