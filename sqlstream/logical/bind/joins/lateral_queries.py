"""LATERAL (SELECT ..) over tables, as a join: its rows for each value that WHERE equates with one of the row before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, SqlStreamError, UnsupportedError
from sqlstream.logical.bind.aggregates.grouping import has_sets
from sqlstream.logical.bind.aliases import with_alias, with_name
from sqlstream.logical.bind.clauses import refuse_clauses
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.joins.joins import Correlation, Correlations, JoinBinder, Relation, parts_of
from sqlstream.logical.bind.joins.lists import is_list
from sqlstream.logical.bind.joins.subqueries import BindFrom, columns_of_outer, with_correlations_in_where
from sqlstream.logical.bind.over.over import with_windows
from sqlstream.logical.bind.scope import Scope
from sqlstream.logical.plan.node import Node
from sqlstream.sql.spans import span_of

# Binds a subquery; LIMIT takes the first rows of each of the values of its last columns, as many as the number says.
BindKeyed = Callable[[exp.Expr, int], Node]
# The aggregates that are 0 over no rows, and those that are NULL.
_ZERO = frozenset({"count", "count_if", "countif", "approx_count_distinct", "regr_count"})
_NULL = frozenset(
    {
        *("sum", "min", "max", "avg", "mean", "median", "mode", "stddev", "stddev_pop", "stddev_samp", "variance"),
        *("var_pop", "var_samp", "bool_and", "bool_or", "first", "last", "any_value", "first_value", "last_value"),
        *("arg_min", "argmin", "min_by", "arg_max", "argmax", "max_by", "list", "array_agg", "string_agg", "listagg"),
    }
)
# The clauses in which a subquery can name columns, but FROM and WHERE.
_CLAUSES = ("expressions", "distinct", "group", "having", "qualify", "order")
_BESIDE_AGGREGATES = ("distinct", "having", "qualify", "order", "limit", "offset")
_JOIN = (
    "Write a join with the condition in ON; for the first rows of each key, ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..) AS n "
    "over the join in a subquery, and WHERE n <= 3."
)
_ELSEWHERE = "WHERE of the subquery can equate it with columns of its tables; compute with it in the query around."
_IN_FROM = "Write UNNEST and table functions of a row into FROM before LATERAL, and the columns of the row into WHERE."
_ALONE = "Select COUNT, SUM, MIN, MAX or AVG alone, and compute with it in the query around; or add GROUP BY."


def over_tables(item: exp.Expr) -> exp.Select | None:
    """Return the subquery of LATERAL (SELECT ..) if its FROM has more than UNNEST and functions of a row; else None."""
    inner = item.this if isinstance(item, exp.Lateral) else None
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    if isinstance(inner, exp.Select) and not all(map(is_list, _relations(inner))):
        return inner
    return None


@dataclass(frozen=True, slots=True)
class _Names:
    """Tells the columns of a subquery's own tables from those of the relations before it, by the scopes of both."""

    own: Scope
    outer: Scope

    def is_outer(self, column: exp.Column) -> bool:
        """Return whether a column is one of the relations before the subquery: the subquery's own come first."""
        table = column.table
        if table and self.own.relation(table) is not None:
            return False
        # A row of the subquery, whose field it would be, comes before a relation of the same name.
        field = next((f for f in self.own.schema if f.name == self.own.find(table or column.name)), None)
        if table and self.outer.relation(table) is not None:
            return field is None or not field.type.startswith("STRUCT")
        if isinstance(column.this, exp.Star) or field is not None:
            return False
        return not _resolves(self.own, column) and _resolves(self.outer, column)


class LateralQueries:
    """Adds subqueries of LATERAL over tables to the joins of a block.

    A subquery is bound without the conditions that name the row before it, with the columns that these equate with the row as
    further columns. Its LIMIT, aggregates and calls with OVER are over the rows of each of their values.
    """

    def __init__(self, joins: JoinBinder, from_: BindFrom, query: BindKeyed):
        self.joins, self.from_, self.query = joins, from_, query
        self.source: SourceText = joins.source

    def add(self, join: exp.Join) -> None:
        """Add the join with the rows of LATERAL (SELECT ..), for which `over_tables` returns the subquery.

        Raises UnsupportedError for a subquery that names columns of the row before it elsewhere than in an equality of WHERE,
        BindError as binding the subquery does.
        """
        select, outer = over_tables(join.this), self.joins.scope
        assert select is not None
        inner = join.this.this
        while isinstance(inner, exp.Subquery):
            refuse_clauses(inner, self.source)
            inner = inner.this
        select = with_windows(with_correlations_in_where(select, outer)).copy()
        names = _Names(self._own_scope(select, outer), outer)
        self._check_clauses(select, names)
        inside, correlations, conditions = self._parts(select, names)
        counts = self._grouped(select, names, bool(correlations or conditions))
        select.set("where", None)
        if inside:
            select.where(*inside, copy=False)
        keys = [self._key(correlation, names) for correlation in correlations]
        _add_keys(select, keys, is_grouped=counts is not None or select.args.get("group") is not None)
        alias = join.this.args.get("alias")
        called = join.this.alias
        try:
            node = with_name(self.query(select, len(keys)), called)
        except (BindError, UnsupportedError) as error:
            where = select.args.get("where")
            below = where.find_all(exp.Query) if where is not None else ()
            raise self._of_row(error, select, below, outer, "in a subquery of WHERE", _ELSEWHERE) from error
        node = with_alias(node, alias, self.source, hidden=len(keys))
        relation = Relation(node, called, f'subquery "{called}"' if called else "the subquery")
        self.joins.add_correlated(
            join,
            relation,
            Correlations(tuple(correlation for correlation, _ in correlations), tuple(conditions), counts),
        )

    def _own_scope(self, select: exp.Select, outer: Scope) -> Scope:
        """Return the scope of a subquery's FROM, which cannot name the row before the subquery."""
        try:
            return self.from_(select).scope
        except (BindError, UnsupportedError) as error:
            raise self._of_row(error, select, _relations(select), outer, "in FROM of the subquery", _IN_FROM) from error

    def _of_row(
        self,
        error: SqlStreamError,
        select: exp.Select,
        parts: Iterable[exp.Expr],
        outer: Scope,
        where: str,
        hint: str,
    ) -> SqlStreamError:
        """Return the error for parts of a subquery, bound on their own, that name the row before it; else `error` itself."""
        own = {relation.alias_or_name.lower() for relation in _relations(select)}
        if (column := next((c for part in parts for c in columns_of_outer(outer, own, part)), None)) is None:
            return error
        return self._unsupported(f"{_described(column)} {where}", column, hint)

    def _check_clauses(self, select: exp.Select, names: _Names) -> None:
        """Raise UnsupportedError for a column of the row before outside WHERE, and for grouping sets."""
        aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
        for clause in _CLAUSES:
            value = select.args.get(clause)
            for part in value if isinstance(value, list) else [value] if isinstance(value, exp.Expr) else []:
                for column in _columns(part):
                    named = not column.table and clause != "expressions" and column.name.lower() in aliases
                    if not named and names.is_outer(column):
                        raise self._unsupported(f"{_described(column)} outside WHERE", column, _ELSEWHERE)
        group = select.args.get("group")
        if group is not None and (has_sets(group) or any(v for k, v in group.args.items() if k != "expressions")):
            raise self._unsupported("GROUP BY with ALL or grouping sets in LATERAL", group, "Name the columns.")

    def _parts(
        self, select: exp.Select, names: _Names
    ) -> tuple[list[exp.Expr], list[tuple[Correlation, exp.Expr]], list[exp.Expr]]:
        """Return the operands of AND in WHERE: those over the subquery's own tables, equalities, and those over the row before.

        An equality comes with its operand over the subquery's own tables.
        """
        inside: list[exp.Expr] = []
        correlations: list[tuple[Correlation, exp.Expr]] = []
        before: list[exp.Expr] = []
        where = select.args.get("where")
        for part in parts_of(where.this) if where is not None else ():
            columns = list(_columns(part))
            outer = [column for column in columns if names.is_outer(column)]
            if not outer:
                inside.append(part)
            elif (pair := _equality(part, names)) is not None:
                correlations.append((Correlation(pair[1], part), pair[0]))
            elif len(outer) == len(columns) and part.find(exp.Query) is None:
                before.append(part)
            else:
                what = f"{_described(outer[0])} in a condition of WHERE that is not an equality"
                raise self._unsupported(what, part, _JOIN)
        return inside, correlations, before

    def _grouped(self, select: exp.Select, names: _Names, is_correlated: bool) -> tuple[int, ...] | None:
        """Return the positions of the items that are 0 over no rows if a subquery has a row without GROUP BY, else None.

        Raises UnsupportedError if such a correlated subquery has more than aggregates whose values over no rows are known.
        """
        binder = ExpressionBinder(names.own, self.joins.catalog, self.joins.checker)
        aggregates = [binder.has_aggregates(item) for item in select.expressions]
        having = select.args.get("having")
        if select.args.get("group") is not None or not (any(aggregates) or having is not None) or not is_correlated:
            return None
        clauses = (clause for key in _BESIDE_AGGREGATES if (clause := select.args.get(key)) is not None)
        if (clause := next(clauses, None)) is not None:
            raise self._unsupported("this beside an aggregate without GROUP BY in LATERAL", clause, _ALONE)
        counts = []
        for index, item in enumerate(select.expressions):
            call = item.unalias().unnest()
            while isinstance(call, exp.Filter | exp.WithinGroup):
                call = call.this
            name = call.name.lower() if isinstance(call, exp.Anonymous) and binder.is_aggregate(call) else ""
            if name not in _ZERO | _NULL:
                raise self._unsupported("this in LATERAL, whose subquery aggregates without GROUP BY", item, _ALONE)
            if name in _ZERO:
                counts.append(index)
        return tuple(counts)

    def _key(self, correlation: tuple[Correlation, exp.Expr], names: _Names) -> exp.Expr:
        """Return the subquery's operand of an equality, cast to the type in which both operands are compared.

        Values that differ and are equal to the same one of the row, such as large integers beside a DOUBLE, are one key then.
        """
        sides = (names.own, correlation[1]), (names.outer, correlation[0].outer)
        checker = self.joins.checker
        binders = [(ExpressionBinder(scope, self.joins.catalog, checker), side) for scope, side in sides]
        own, other = (binder.type_of(binder.rewrite(side)) for binder, side in binders)
        if own is None or other is None or own == other or "VARCHAR" in (own, other):
            return correlation[1].copy()
        nulls = [exp.cast(exp.Null(), kind, dialect="duckdb") for kind in (own, other)]
        try:
            common = checker.type((), exp.Anonymous(this="coalesce", expressions=nulls), self.source)
        except BindError:
            # The join reports it.
            return correlation[1].copy()
        return correlation[1].copy() if common == own else exp.cast(correlation[1].copy(), common, dialect="duckdb")

    def _unsupported(self, what: str, node: exp.Expr, hint: str) -> UnsupportedError:
        return UnsupportedError(what, span_of(node, self.source), hint=hint)


def _relations(select: exp.Select) -> list[exp.Expr]:
    """Return the items of FROM."""
    clause = select.args.get("from_")
    return [*([clause.this] if clause is not None else []), *(join.this for join in select.args.get("joins") or ())]


def _columns(expression: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns of an expression, without those of subqueries in it."""
    return (n for n in expression.walk(prune=lambda n: isinstance(n, exp.Query)) if isinstance(n, exp.Column))


def _resolves(scope: Scope, column: exp.Column) -> bool:
    try:
        return scope.resolve(column.copy()) is not None
    except BindError:
        return False


def _described(column: exp.Column) -> str:
    return f'column "{column.sql()}" of a table before LATERAL'


def _equality(part: exp.Expr, names: _Names) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the operands of an equality of the subquery's own columns, first, with columns of the row before; else None."""
    equal = part.unnest()
    if not isinstance(equal, exp.EQ) or equal.find(exp.Query) is not None:
        return None
    kinds = [{names.is_outer(column) for column in _columns(side)} for side in (equal.this, equal.expression)]
    if kinds == [{False}, {True}]:
        return equal.this, equal.expression
    return (equal.expression, equal.this) if kinds == [{True}, {False}] else None


def _add_keys(select: exp.Select, keys: Sequence[exp.Expr], is_grouped: bool) -> None:
    """Add keys to a query as its last columns, to its GROUP BY if it is grouped, and to PARTITION BY of its calls with OVER."""
    parts = [*select.expressions, *([select.args["qualify"]] if select.args.get("qualify") else [])]
    for part in parts:
        for window in part.walk(prune=lambda n: isinstance(n, exp.Query)):
            if isinstance(window, exp.Window):
                window.set("partition_by", [*(window.args.get("partition_by") or ()), *(k.copy() for k in keys)])
    if is_grouped and keys:
        if select.args.get("group") is None:
            select.set("group", exp.Group(expressions=[]))
        for key in keys:
            select.args["group"].append("expressions", key.copy())
    for number, key in enumerate(keys, 1):
        select.append("expressions", exp.alias_(key, f"_key_{number}", quoted=True))
