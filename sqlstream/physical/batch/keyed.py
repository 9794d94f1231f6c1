"""Operators over all rows of a key in a batch query: tables of changes, aggregates, ranks and set operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlstream.duck.internal_columns import ADDS, FILE_ORDER, internal
from sqlstream.duck.sql import Condition, quote_name, same_columns
from sqlstream.logical.plan.aggregates import Aggregate
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import SetOperation
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import Normalize
from sqlstream.physical.batch.calls import aggregate
from sqlstream.physical.batch.rows import (
    AT,
    BATCH,
    READ,
    STANDS,
    TIMES,
    UNTIMED,
    WATERMARK,
    BatchRows,
    CannotVerify,
    listed,
)
from sqlstream.units import Duration

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery

_LIFE = internal("life")
_WAS = internal("was")
_NUMBER = internal("place")
_NEXT = "_next"


def normalized(query: BatchQuery, node: Normalize) -> BatchRows:
    """Return the changes of a table with a PRIMARY KEY as weighted rows: each retracts the previous row of its key."""
    columns = [f.name for f in node.schema]
    read = query.scanned(node.input)
    if read is None:
        return query.rows(node.input)
    name, by = node.input.alias, listed(node.keys)
    order = ", ".join([BATCH.name, *(c.name for c in FILE_ORDER)])
    there = f"{ADDS}" + (f" AND NOT {UNTIMED.name}" if query.corrections.untimed else "")
    hidden = ", ".join(c.name for c in READ if c is not TIMES)
    numbered = query.add(
        f"{name}_changes",
        f"SELECT *, {there} AS {_LIFE}, row_number() OVER (PARTITION BY {by} ORDER BY {order}) AS {_WAS} FROM {read}",
        columns,
    )
    after = f"SELECT {listed(columns)}, {hidden}, 1 AS {TIMES.name} FROM {numbered.sql} WHERE {_LIFE}"
    same = same_columns("_new", "_old", map(quote_name, node.keys))
    olds = ", ".join(f"_old.{quote_name(c)}" for c in columns)
    marks = ", ".join(f"_new.{c.name}" for c in READ if c is not TIMES)
    before = (
        f"SELECT {olds}, {marks}, -1 AS {TIMES.name} FROM {numbered.sql} _new JOIN {numbered.sql} _old"
        f" ON {same} AND _new.{_WAS} = _old.{_WAS} + 1 WHERE _old.{_LIFE}"
    )
    return query.add(name, f"{after} UNION ALL {before}", columns, is_read=True)


def aggregated(query: BatchQuery, node: Aggregate) -> BatchRows:
    """Return a row for each key; with the rule `expired`, one for each life of a key that got no row for its time to live.

    Raises CannotVerify for a time to live over a changelog, or over the rows of another operator.
    """
    columns = [f.name for f in node.schema]
    keys = [f"{k.expression.sql} AS {quote_name(k.name)}" for k in node.keys]
    calls = [aggregate(a, runs=query.runs) for a in node.aggregates]
    if node.ttl and query.corrections.expired:
        below = _lives(query, node, node.ttl)
        by = ", ".join([*(str(ordinal) for ordinal in range(1, len(keys) + 1)), _LIFE])
    else:
        below = query.settled(node.input)
        by = ", ".join(str(ordinal) for ordinal in range(1, len(keys) + 1))
    grouped = f" GROUP BY {by}" if by else ""
    sql = f"SELECT {', '.join([*keys, *calls])} FROM {below.sql}{grouped}"
    for number in node.empty_sets:
        [*others, last] = node.keys
        of_set = f"FROM {below.sql} WHERE {last.expression.sql} = {number}"
        nothing = [f"CAST(NULL AS {k.expression.type}) AS {quote_name(k.name)}" for k in others]
        items = ", ".join([*nothing, f"{number} AS {quote_name(last.name)}", *calls])
        sql += f" UNION ALL SELECT {items} {of_set} HAVING count(*) = 0"
    return query.add(node.name or ("aggregate" if calls else "distinct"), sql, columns)


def _lives(query: BatchQuery, node: Aggregate, ttl: Duration) -> BatchRows:
    """Return the input rows with _LIFE, the number of a key's life: the first row after the time to live begins a new one."""
    below = query.rows(node.input)
    if not below.is_read or node.input.is_changelog:
        raise CannotVerify("a time to live over rows that change, or that another operator emits", node.span)
    by = ", ".join(k.expression.sql for k in node.keys) or "1"
    since = f"lag({AT.name}) OVER (PARTITION BY {by} ORDER BY {AT.name})"
    # All rows of one batch are one moment. The result over all rows, of a grouping set without keys, is never forgotten.
    lasts = (
        f" AND {node.keys[-1].expression.sql} NOT IN ({', '.join(map(str, node.empty_sets))})"
        if node.empty_sets
        else ""
    )
    begins = f"SELECT *, coalesce({AT.name} - {since} >= {ttl}, false){lasts} AS {_WAS} FROM {below.sql}"
    life = f"sum(CAST({_WAS} AS INTEGER)) OVER (PARTITION BY {by} ORDER BY {AT.name})"
    sql = f"SELECT {below.listed}, {life} AS {_LIFE} FROM ({begins})"
    return query.add(f"{below.name}_lives", sql, (*below.columns, _LIFE))


def ranked(
    query: BatchQuery, node: Rank | WindowRank, below: BatchRows, window: tuple[str | None, ...], due: Condition
) -> BatchRows:
    """Return the rows of `below` that meet the condition `due`, with their rank among rows of equal keys and window bounds.

    `window` are the columns of the bounds, if any. ROW_NUMBER numbers rows that are equal in the order by all their columns; the
    last item of the order can be the order of arrival.
    """
    by = [*(k.sql for k in node.keys), *(quote_name(name) for name in window if name is not None)]
    order = [o.sql for o in node.order]
    if node.numbers_rows:
        order.append(below.listed)
    partition = f"PARTITION BY {', '.join(by)} " if by else ""
    number = f"{node.call} OVER ({partition}ORDER BY {', '.join(order)}) AS {quote_name(node.column)}"
    limit = f" QUALIFY {quote_name(node.column)} <= {node.limit}" if node.limit is not None else ""
    columns = [f.name for f in node.schema]
    sql = f"SELECT {listed(columns[:-1])}, {number} FROM {below.sql} WHERE {due}{limit}"
    return query.add(node.name or node.function.partition("(")[0], sql, columns)


def has_batches(query: BatchQuery, node: Node) -> bool:
    """Return whether the batch of each row of a node is known, and rows are only added."""
    operators = (n for n in walk(node) if isinstance(n, StatefulNode))
    return not node.is_changelog and query.rows(node).is_read and all(n.leaves_at_once for n in operators)


def first_rows(query: BatchQuery, node: Rank) -> BatchRows:
    """Return the changes of the row of each key that has the number 1, as weighted rows with the columns READ.

    A batch adds the best of its rows if that is better than all before it, and retracts the best one before it.
    """
    below = query.rows(node.input)
    keys = [k.sql for k in node.keys]
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    order = ", ".join([*(o.sql for o in node.order), below.listed])
    numbered = f"SELECT *, row_number() OVER ({by}ORDER BY {order}) AS {_NUMBER} FROM {below.sql}"
    of_batch = f"min({_NUMBER}) OVER (PARTITION BY {', '.join([*keys, BATCH.name])})"
    best = f"SELECT * FROM ({numbered}) QUALIFY {_NUMBER} = {of_batch}"
    before = f"min({_NUMBER}) OVER ({by}ORDER BY {BATCH.name} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    better = f"SELECT * FROM ({best}) QUALIFY coalesce({_NUMBER} < {before}, true)"
    marks = (WATERMARK, BATCH, AT)
    nexts = ", ".join(f"lead({c.name}) OVER ({by}ORDER BY {BATCH.name}) AS {c.name}{_NEXT}" for c in marks)
    name = node.name or node.function
    first = query.add(f"{name}_changes", f"SELECT *, {nexts} FROM ({better})", below.columns, is_read=True)
    shown = [f.name for f in node.schema[:-1]]
    columns = f"{listed(shown)}, CAST(1 AS BIGINT) AS {quote_name(node.column)}"
    hidden = ", ".join(f"{c.name}{_NEXT} AS {c.name}" for c in marks)
    retracted = f"SELECT {columns}, {hidden}, -1 AS {TIMES.name}, 0 AS {STANDS.name} FROM {first.sql}"
    sql = f"SELECT {columns}{first.hidden} FROM {first.sql} UNION ALL {retracted} WHERE {BATCH.name}{_NEXT} IS NOT NULL"
    return query.add(name, sql, [f.name for f in node.schema], is_read=True)


def set_operation(query: BatchQuery, node: SetOperation) -> BatchRows:
    """Return the rows of INTERSECT or EXCEPT, each as often as the operation says."""
    below = query.settled(node.input)
    columns = [f.name for f in node.schema]
    side = quote_name(node.side)
    left_count, right_count = (f"count(*) FILTER (WHERE {side} = {ordinal})" for ordinal in (0, 1))
    if node.function == "intersect":
        times = f"least({left_count}, {right_count})"
    else:
        times = (
            f"greatest({left_count} - {right_count}, 0)"
            if not node.distinct
            else f"if({right_count} = 0, {left_count}, 0)"
        )
    if node.distinct:
        times = f"least({times}, 1)"
    counted = f"SELECT {listed(columns)}, {times} AS {TIMES.name} FROM {below.sql} GROUP BY {listed(columns)}"
    sql = f"SELECT {listed(columns)} FROM ({counted}), range({TIMES.name})"
    return query.add(node.name or node.function, sql, columns)
