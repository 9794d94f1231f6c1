"""Rules that simplify a logical plan before it is cut into fragments. DuckDB optimises each fragment; rules shape the plan.

No rule moves a node across a projection: a projection with UNNEST changes the number of rows.

A rule is a function from a node to a node, and returns the same object if it does not apply. The examples print the plan of a
query over a table t(k, x, ts) after some rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import Expression, Item
from sqlstream.logical.plan.graph import rebuilt
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.over import Over
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Filter, Lateral, Projection, Union

Rule = Callable[[Node], Node]
_MOST_INPUTS = 1000


def merge_filters(node: Node) -> Node:
    """Merge two adjacent filters.

    >>> both = "SELECT x FROM (SELECT * FROM t WHERE k > 1) WHERE x < 5"
    >>> rewritten(both, drop_identity_projections, merge_filters)
    Project "x" AS x
      Filter ("k" > 1) AND ("x" < 5)
        Scan t
    """
    match node:
        # A filter that tells malformed rows from others stays as it is.
        case Filter(input=Filter(unfit=None) as below, unfit=None):
            first, second = below.predicate, node.predicate
            both = Expression.both(second, first, f"({first.sql}) AND ({second.sql})")
            return Filter(below.input, both)
        case _:
            return node


def drop_identity_projections(node: Node) -> Node:
    """Drop a projection that passes every column on under its own name, in the same order.

    >>> rewritten("SELECT k, x, ts FROM t", drop_identity_projections)
    Scan t
    """
    match node:
        case Projection(input=below) if [(i.name, i.expression.column) for i in node.items] == [
            (f.name, f.name) for f in below.schema
        ]:
            return below
        case _:
            return node


def flatten_unions(node: Node) -> Node:
    """Merge nested unions whose columns have the same names and types.

    >>> three = "SELECT k FROM t UNION ALL (SELECT k FROM t UNION ALL SELECT k FROM t)"
    >>> rewritten(three, flatten_unions)
    Union of 3
      Project "k" AS k
        Scan t
      Project "k" AS k
        Scan t
      Project "k" AS k
        Scan t
    """
    match node:
        case Union() if any(isinstance(i, Union) and i.schema == node.schema for i in node.inputs):
            inputs: list[Node] = []
            for child in node.inputs:
                inputs += child.inputs if isinstance(child, Union) and child.schema == node.schema else (child,)
            # A union that is read twice by a union that is read twice, and so on, would get exponentially many inputs.
            return Union(tuple(inputs)) if len(inputs) <= _MOST_INPUTS else node
        case _:
            return node


def push_rank_limit(node: Node) -> Node:
    """Set the limit of a rank from a filter above that keeps only rows up to a rank: the others need not be stored.

    >>> ranked = "SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) AS n FROM t"
    >>> rewritten(f"SELECT k FROM ({ranked}) WHERE n < 3", push_rank_limit)
    Project "k" AS k
      Filter "n" < 3
        Project "k" AS k, "n" AS n
          Rank row_number by "k" order "x" limit 2 AS n
            Scan t
    """
    match node:
        case Filter():
            for column, limit in node.predicate.claims.at_most.items():
                new_input = _limited(node.input, column, limit)
                if new_input is not node.input:
                    return replace(node, input=new_input)
    return node


def merge_overs(node: Node) -> Node:
    """Merge two adjacent nodes of OVER calls with the same keys, order and time to live, so that each row waits once.

    >>> below = "SELECT *, LAG(k) OVER (ORDER BY ts) AS b FROM t"
    >>> both = f"SELECT *, LAG(x) OVER (ORDER BY ts) AS a FROM ({below})"
    >>> rewritten(both, drop_identity_projections, merge_overs)
    Over by no key order "ts": lag("k") AS b [rows 1 preceding], lag("x") AS a [rows 1 preceding]
      Scan t
    """
    match node:
        case Over(input=Over() as below) if (
            (node.keys, node.time, node.order, node.ttl) == (below.keys, below.time, below.order, below.ttl)
            # Calls that wait for later rows work on stored rows, never on partial results.
            and not node.waits
            and not below.waits
            and not any(c.call.name in e.reads.columns for c in below.calls for e in node.expressions)
        ):
            return replace(below, name=node.name or below.name, calls=(*below.calls, *node.calls))
        case _:
            return node


def _limited(node: Node, column: str | None, limit: int) -> Node:
    """Return a plan in which the rank behind a column of the result has a limit; the same object if there is no such rank."""
    match node:
        case Projection():
            below = next((i.expression.column for i in node.items if i.name == column), None)
            new_input = _limited(node.input, below, limit)
            return node if new_input is node.input else replace(node, input=new_input)
        case Filter():
            new_input = _limited(node.input, column, limit)
            return node if new_input is node.input else replace(node, input=new_input)
        case WindowRank() | Rank() if node.column == column and (node.limit is None or node.limit > limit):
            if not node.counts_rows:
                return node
            return replace(node, limit=limit)
        case _:
            return node


def merge_joins(node: Node) -> Node:
    """Merge two inner joins by the same keys into one, which stores no intermediate result.

    A view that is a join is an input with a time to live, which the inputs of the view must have, too.

    >>> three = "SELECT a.x FROM t AS a JOIN t AS b ON a.k = b.k JOIN t AS c ON a.k = c.k"
    >>> rewritten(three, merge_joins, narrow_joins)
    Project "x" AS x
      Join inner by "k" = "k_1" = "k_2"
        Project "k" AS k, "x" AS x
          Scan t
        Project "k" AS k_1
          Scan t
        Project "k" AS k_2
          Scan t
    """
    match node:
        case Join(kind="inner", inputs=(Join(kind="inner") as below, more)) if not node.aliases[0] or all(
            ttl == node.ttls[0] for ttl in below.ttls
        ):
            keys = [k.sql for k in node.keys[0]]
            for input_keys in below.keys:
                if sorted(k.sql for k in input_keys) == sorted(keys) and len(set(keys)) == len(keys):
                    own = tuple(node.keys[1][keys.index(k.sql)] for k in input_keys)
                    return replace(
                        below,
                        inputs=(*below.inputs, more),
                        name=node.name or below.name,
                        keys=(*below.keys, own),
                        condition=_both(below.condition, node.condition),
                        aliases=(*below.aliases, node.aliases[1]),
                        ttls=(*below.ttls, node.ttls[1]),
                        unread=below.unread or node.unread,
                    )
    return node


def narrow_joins(node: Node) -> Node:
    """Remove columns that are not used above a join from its inputs, since it would store them.

    >>> rewritten("SELECT a.x FROM t AS a JOIN t AS b ON a.k = b.k", narrow_joins)
    Project "x" AS x
      Join inner by "k" = "k_1"
        Project "k" AS k, "x" AS x
          Scan t
        Project "k" AS k_1
          Scan t
    """
    match node:
        case Projection() | Aggregate() | WindowAggregate():
            below = _narrowed(node.input, _looked_at(node))
            return node if below is node.input else replace(node, input=below)
        case _:
            return node


def _looked_at(node: Projection | Aggregate | WindowAggregate) -> frozenset[str]:
    """Return the columns of its input that a node reads."""
    bounds = node.window.names if isinstance(node, WindowAggregate) else ()
    return _read_by(node.expressions).union(bounds)


def _read_by(expressions: Iterable[Expression]) -> frozenset[str]:
    return frozenset[str]().union(*(e.reads.columns for e in expressions))


def _narrowed(node: Node, columns: frozenset[str]) -> Node:
    """Return a plan with at least the columns `columns`, in which joins read no column that no node needs."""
    match node:
        case Filter():
            below = _narrowed(node.input, columns | node.predicate.reads.columns)
            return node if below is node.input else replace(node, input=below)
        case Lateral():
            below = _narrowed(node.input, columns | _read_by(node.expressions))
            return node if below is node.input else replace(node, input=below)
        case Join() | IntervalJoin() | TemporalJoin():
            used = columns | _read_by(k for keys in node.keys for k in keys)
            used |= node.condition.reads.columns if node.condition else frozenset()
            used |= frozenset(node.times) if not isinstance(node, Join) else frozenset()
            # Queries of late rows see all columns.
            whole = node.late_reads.inputs if not isinstance(node, Join) and node.late_reads else ()
            inputs = enumerate(node.inputs)
            return node.with_children(tuple(below if n in whole else _only(below, used) for n, below in inputs))
        case _:
            return node


def _only(node: Node, columns: frozenset[str]) -> Node:
    """Return a plan with only the columns `columns` of a node; with the first column if it has none of them."""
    fields = node.schema
    remaining = tuple(f for f in fields if f.name in columns) or fields[:1]
    below = _narrowed(node, frozenset(f.name for f in remaining))
    if len(remaining) == len(fields):
        return below
    # An item with UNNEST decides the number of rows, even if nobody reads it.
    if isinstance(below, Projection) and not any(i.expression.makes_rows for i in below.items):
        return Projection(below.input, tuple(i for i in below.items if any(i.name == f.name for f in remaining)))
    return Projection(below, tuple(Item(f.name, Expression.of_column(f.name, f.type)) for f in remaining))


def _both(a: Expression | None, b: Expression | None) -> Expression | None:
    if a is None or b is None:
        return a or b
    return Expression.both(a, b, f"{a.sql} AND {b.sql}")


# The order matters: without identity projections, filters and unions become adjacent and can be merged. Limits are set when
# filters are merged. `narrow_joins` is last, since it adds projections.
RULES: tuple[Rule, ...] = (
    drop_identity_projections,
    merge_filters,
    flatten_unions,
    merge_overs,
    push_rank_limit,
    merge_joins,
    narrow_joins,
)


def optimize(node: Node, rules: Sequence[Rule] = RULES) -> tuple[Node, tuple[str, ...]]:
    """Return the plan after all rules, each applied to all nodes, children first, and the names of the rules that changed it."""
    changed = []
    for rule in rules:
        after = rebuilt(node, rule)
        if after is not node:
            changed.append(rule.__name__)
            node = after
    return node, tuple(changed)
