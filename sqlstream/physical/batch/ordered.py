"""Operators that emit rows in the order of time, in a batch query: ORDER BY and calls with OVER."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlstream.duck.sql import Items
from sqlstream.logical.plan.expressions import arrived, declared
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.physical.batch.calls import over
from sqlstream.physical.batch.rows import READ, STANDS, BatchRows
from sqlstream.physical.batch.windows import in_utc, micros_of, time_of

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery


def passed(query: BatchQuery, node: Over | Sort) -> BatchRows:
    """Return the input rows whose time the watermark has passed; over processing time, all of them.

    Rows that leave in the batch of their arrival keep the columns READ, but for their position in the batch.
    """
    if node.leaves_at_once:
        return _at_once(query, query.rows(node.input))
    time = _until_passed(node)
    below = query.settled(node.input, None if node.by_clock else time, node)
    due = "true" if node.by_clock else query.is_over(node, time)
    return query.add(f"{below.name}_passed", f"SELECT * FROM {below.sql} WHERE {due}", below.columns)


def over_rows(query: BatchQuery, node: Over) -> BatchRows:
    """Return the input rows with the results of calls with OVER, as soon as the watermark makes these final."""
    rows = passed(query, node)
    ordered_by = in_utc(node.time) if node.by_clock else time_of(node.input, node.time)
    order = tuple(o.sql for o in declared(node.order)[1:])
    tie_breakers = Items(", ".join([*(o.sql for o in arrived(node.order)), rows.listed]))
    by_arrival = bool(arrived(node.order))
    calls = [over(c, node.keys, ordered_by, order, tie_breakers, by_arrival=by_arrival) for c in node.calls]
    final = _final(query, node, ordered_by, order, tie_breakers)
    sql = f"SELECT {rows.listed}, {', '.join(calls)}{rows.hidden} FROM {rows.sql}{final}"
    return query.add(node.name or "over", sql, [f.name for f in node.schema], is_read=rows.is_read)


def _at_once(query: BatchQuery, below: BatchRows) -> BatchRows:
    if not below.is_read:
        return below
    hidden = "".join(f", {'0 AS ' if c is STANDS else ''}{c.name}" for c in READ)
    return query.add(
        f"{below.name}_passed", f"SELECT {below.listed}{hidden} FROM {below.sql}", below.columns, is_read=True
    )


def _until_passed(node: Over | Sort) -> str:
    # The watermark has passed a row when it is greater than the row's time: until then rows of the same time may arrive.
    return f"{micros_of(node.input, node.time)} + 1"


def _final(query: BatchQuery, node: Over, ordered_by: str, order: tuple[str, ...], tie_breakers: Items) -> str:
    """Return a QUALIFY clause that leaves out rows whose frames may still get rows; empty if there are no such rows."""
    by = f"PARTITION BY {', '.join(k.sql for k in node.keys)} " if node.keys else ""
    conditions = []
    if query.is_over(node, "0") != "true" and node.following:
        in_order = ", ".join([ordered_by, *order, tie_breakers])
        conditions.append(f"lead(true, {node.following}) OVER ({by}ORDER BY {in_order}) IS NOT NULL")
    later = max((c.frame.following for c in node.calls if c.frame.mode == "range"), default=0)
    if later > 0:
        conditions.append(query.is_over(node, f"{_until_passed(node)} + {later}"))
    return f" QUALIFY {' AND '.join(conditions)}" if conditions else ""
