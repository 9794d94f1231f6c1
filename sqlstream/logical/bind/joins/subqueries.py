"""IN (SELECT ..) and EXISTS (SELECT ..) in WHERE, and their negations, as semi and anti joins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlstream.errors import BindError, UnsupportedError
from sqlstream.logical.bind.clauses import refuse_clauses, without
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.followed_hints import FollowedHints, nodes_below
from sqlstream.logical.bind.hints import check_followed, state_ttls
from sqlstream.logical.bind.joins.join_trees import Conjunct
from sqlstream.logical.bind.joins.joins import JoinBinder, parts_of, reads_join
from sqlstream.logical.bind.scope import Scope, VisibleRelation
from sqlstream.logical.bind.windows.window_hints import with_window_hints
from sqlstream.logical.plan.expressions import Expression, makes_rows
from sqlstream.logical.plan.joining import Kind
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Filter, Projection
from sqlstream.logical.plan.tables import Scan
from sqlstream.sql.spans import span_of

# Binds a subquery without correlated columns.
BindQuery = Callable[[exp.Expr], Node]
# Binds the FROM of a subquery, without its WHERE.
BindFrom = Callable[[exp.Select], JoinBinder]
_CLAUSES = ("group", "having", "distinct", "qualify", "limit", "offset", "order", "windows", "with_")


@dataclass(frozen=True, slots=True)
class SubqueryJoin:
    """IN or EXISTS as a join with `query`: kind semi, or anti if negated. `operand` is the left operand of IN, None for EXISTS.

    `parsed` is the parsed condition, which has the position in the text.
    """

    kind: Kind
    query: exp.Expr
    operand: exp.Expr | None
    parsed: exp.Expr


def split(where: exp.Expr) -> tuple[list[exp.Expr], list[SubqueryJoin]]:
    """Return the operands of AND in a condition without a subquery, and the operands that are IN or EXISTS with a subquery."""
    plain: list[exp.Expr] = []
    subqueries: list[SubqueryJoin] = []
    for part in parts_of(where):
        inner = part.unnest()
        negated = isinstance(inner, exp.Not)
        test = inner.this.unnest() if negated else inner
        kind: Kind = "anti" if negated else "semi"
        if isinstance(test, exp.Exists):
            subqueries.append(SubqueryJoin(kind, test.this, None, part))
        elif isinstance(test, exp.In) and test.args.get("query") is not None:
            subqueries.append(SubqueryJoin(kind, test.args["query"], test.this, part))
        else:
            plain.append(part)
    return plain, subqueries


class Subqueries:
    """Adds the subqueries of a block's WHERE to its joins."""

    def __init__(self, joins: JoinBinder, query: BindQuery, from_: BindFrom, hints: FollowedHints):
        self.joins, self.query, self.from_, self.hints = joins, query, from_, hints

    def add(self, matched: SubqueryJoin, scope: Scope) -> None:
        """Add the join with a subquery; `scope` is the scope of the block around it.

        Raises BindError if IN and the subquery differ in their numbers of columns, and as binding the subquery does.
        """
        select = _without_parentheses(matched.query)
        operands = _several(matched.operand)
        values: Sequence[exp.Expr] = ()
        conditions: list[exp.Expr] = []
        if isinstance(select, exp.Select) and self._is_plain(select):
            refuse_clauses(without(select, "joins"), self.joins.source)
            select = with_correlations_in_where(select, scope)
            inner = self.from_(select)
            own, conditions = self._correlated(select, inner)
            node = inner.tree([c for part in own for c in inner.conjuncts(part, inner.scope, "WHERE")])
            inputs = nodes_below(select, inner.nodes)
            self._check_ttls(select, node, inputs)
            node = with_window_hints(select, node, node, self.joins.source)
            node = self.hints.name(select, node, inputs, self.joins.source)
            visible: tuple[VisibleRelation, ...] = inner.scope.relations
            values = select.expressions
        else:
            node = self.query(select)
            fields = node.schema
            visible = (VisibleRelation("", "the subquery", {f.name: f.name for f in fields}),)
            if operands:
                values = [exp.Column(this=exp.Identifier(this=f.name, quoted=True)) for f in fields]
        span = span_of(matched.parsed, self.joins.source)
        if operands and (len(values) != len(operands) or any(v.is_star for v in values)):
            columns = "one column" if len(operands) == 1 else f"{len(operands)} columns"
            raise BindError(f"the subquery of IN has {columns}", span)
        names = self.joins.add_hidden(node)
        seen = tuple(replace(v, columns={n: names[own] for n, own in v.columns.items()}) for v in visible)
        below = Scope("", self.joins.fields[-1], scope.source, "the subquery", {}, seen, outer=scope)
        join_conditions = [c for part in conditions for c in self.joins.conjuncts(part, below, "WHERE")]
        if not operands:
            # Nobody reads the select list of EXISTS, but its names must exist.
            for value in (v for v in values if not v.is_star):
                self._binder(below).rewrite(value.unalias())
        join_conditions += [
            self._equal(matched, w, v.unalias(), scope, below) for w, v in zip(operands, values, strict=False)
        ]
        self.joins.match(matched.kind, join_conditions, span)

    def _is_plain(self, select: exp.Select) -> bool:
        """Return whether a subquery has only FROM and WHERE, so that it may be correlated."""
        if any(select.args.get(clause) for clause in _CLAUSES) or select.args.get("from_") is None:
            return False
        items = select.expressions
        block = self._binder(Scope("", (), self.joins.source, "the subquery"))
        return not any(e.find(exp.Window) is not None or makes_rows(e) or block.has_aggregates(e) for e in items)

    def _binder(self, scope: Scope) -> ExpressionBinder:
        return ExpressionBinder(scope, self.joins.catalog, self.joins.checker)

    def _check_ttls(self, select: exp.Select, node: Node, inputs: Collection[Node]) -> None:
        """Raise BindError for a STATE_TTL of a plain subquery that no join of its inputs follows."""
        ttls = self.hints.unapplied(state_ttls(select, self.joins.source))
        if select.args.get("joins") and reads_join(node):
            check_followed(node, inputs, ttls)
        elif ttls:
            hint = (
                "The time to live of its rows is that of the session. For one of their own, write a table of FROM: "
                "SELECT /*+ STATE_TTL('b' = '1 d') */ .. FROM a SEMI JOIN b ON a.k = b.k."
            )
            raise BindError("STATE_TTL in a subquery of IN or EXISTS", ttls[0].span, hint=hint)

    def _correlated(self, select: exp.Select, inner: JoinBinder) -> tuple[list[exp.Expr], list[exp.Expr]]:
        """Return the operands of AND in a subquery's WHERE: those over its own columns, and the correlated ones."""
        where = select.args.get("where")
        own: list[exp.Expr] = []
        others: list[exp.Expr] = []
        for part in parts_of(where.this) if where is not None else []:
            (own if all(self._knows(inner.scope, c) for c in part.find_all(exp.Column)) else others).append(part)
        return own, others

    def _knows(self, scope: Scope, column: exp.Column) -> bool:
        try:
            return scope.resolve(column.copy()) is not None
        except BindError:
            return False

    def _equal(self, matched: SubqueryJoin, operand: exp.Expr, value: exp.Expr, scope: Scope, below: Scope) -> Conjunct:
        """Return the join condition of IN; for NOT IN, sides that may be NULL also match if one of them is NULL."""
        joins = self.joins
        sides = [self._binder(s).rewrite(e) for s, e in ((scope, operand), (below, value))]
        equal: exp.Expr = exp.EQ(this=sides[0], expression=sides[1])
        equal.meta.update(matched.parsed.meta)
        if matched.kind == "anti" and not all(self._is_certain(side) for side in sides):
            for side in sides:
                equal = exp.Or(this=equal, expression=exp.Is(this=side.copy(), expression=exp.Null()))
        both = Scope("", (*below.schema, *scope.schema), scope.source, "")
        span = span_of(matched.parsed, joins.source)
        joins.checker.type(both.schema, equal, joins.source)
        return joins.conjunct(equal, Expression.of(equal, "BOOLEAN", span))

    def _is_certain(self, side: exp.Expr) -> bool:
        """Return whether a value is known not to be NULL: a literal, a NOT NULL column, or one that a filter below checks."""
        if isinstance(side, exp.Literal):
            return True
        if not isinstance(side, exp.Column) or side.name not in self.joins.indexes:
            return False
        node = self.joins.nodes[self.joins.indexes[side.name]]
        return node is not None and _never_null(node, side.name)


def _without_parentheses(query: exp.Expr) -> exp.Expr:
    """Return the query in parentheses that have nothing but it: ((SELECT ..) ORDER BY x LIMIT 1) stays as it is."""
    while isinstance(query, exp.Subquery) and not any(v for k, v in query.args.items() if k not in ("this", "alias")):
        query = query.this
    return query


def with_correlations_in_where(select: exp.Select, outer: Scope) -> exp.Select:
    """Return a subquery with correlated conditions of ON moved to WHERE, which is equivalent for inner joins.

    Raises UnsupportedError if the subquery has any other join, too.
    """
    joins = select.args.get("joins") or ()
    own = {r.alias_or_name.lower() for r in (select.args["from_"].this, *(j.this for j in joins))}
    correlated = [j for j in joins if (on := j.args.get("on")) is not None and any(columns_of_outer(outer, own, on))]
    if not correlated:
        return select
    if (other := next((j for j in joins if j.side or j.kind in ("SEMI", "ANTI")), None)) is not None:
        column = next(columns_of_outer(outer, own, correlated[0].args["on"]))
        word = other.side or other.kind
        raise UnsupportedError(
            f'column "{column.sql()}" of the query around it in ON, beside a {word} JOIN in the subquery',
            span_of(column, outer.source),
            hint="Write the condition into WHERE of the subquery.",
        )
    select = select.copy()
    for join in select.args["joins"]:
        if (on := join.args.get("on")) is not None and any(columns_of_outer(outer, own, on)):
            join.set("on", None)
            select.where(*parts_of(on), copy=False)
    return select


def columns_of_outer(outer: Scope, own: Collection[str], condition: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns of a condition that a relation of the outer block qualifies, and none of the subquery's `own`."""
    for column in condition.find_all(exp.Column):
        table = column.table.lower()
        if table and table not in own and outer.relation(table) is not None:
            yield column


def _several(operand: exp.Expr | None) -> Sequence[exp.Expr]:
    """Return the left operands of IN: one value, the values of (a, b), or none for EXISTS."""
    if operand is None:
        return ()
    inner = operand.unnest()
    return inner.expressions if isinstance(inner, exp.Tuple) else (operand,)


def _never_null(node: Node, column: str) -> bool:
    match node:
        case Scan():
            return any(c.name == column and c.not_null for c in node.table.columns)
        case Filter():
            return column in node.predicate.claims.never_null or _never_null(node.input, column)
        case Projection():
            own = next((i.expression.column for i in node.items if i.name == column), None)
            return own is not None and _never_null(node.input, own)
        case _:
            return False
