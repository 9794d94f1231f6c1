"""Joins in a batch query: each function adds the rows of a join to the query, and returns them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from sqlstream.duck.internal_columns import ADDS, ARRIVED, CHANGE, FILE_ORDER, internal
from sqlstream.duck.sql import TRUE, Condition, Relation, Select, all_of, quote_name, union_all
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.nodes import Joins
from sqlstream.logical.plan.tables import Scan
from sqlstream.physical.batch.rows import BATCH, UNTIMED, BatchRows, CannotVerify, listed
from sqlstream.physical.batch.windows import micros_of

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery

_AT = internal("at")
_THERE = internal("there")
_HOW = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "semi": "SEMI JOIN"}


def _condition(node: Joins, *more: str) -> Condition:
    equal = [" = ".join(f"({k.sql})" for k in pair) for pair in zip(*node.keys, strict=True)]
    return all_of([*equal, *more, *([f"({node.condition.sql})"] if node.condition else [])])


def regular(query: BatchQuery, node: Join) -> BatchRows:
    """Return the rows of a regular join over all rows of its inputs."""
    return _joined(query, node, [query.settled(below) for below in node.inputs], [])


def interval(query: BatchQuery, node: IntervalJoin) -> BatchRows:
    """Return the rows of an interval join; an outer or anti join has rows without a match once no match can arrive."""
    times = [micros_of(below, time) for below, time in zip(node.inputs, node.times, strict=True)]
    inputs = [
        # By the time of their batch no rows are late.
        query.settled(below, None if node.goes_by_clock else time, node)
        for below, time in zip(node.inputs, times, strict=True)
    ]
    left_time, right_time = times
    near = f"{right_time} BETWEEN {left_time} - {node.before} AND {left_time} + {node.after}"
    waits = [f"{time} + {max(0, wait)}" for time, wait in zip(times, (node.after, node.before), strict=True)]
    due = [query.is_over(node, time) for time in waits]
    return _joined(query, node, inputs, [near], due)


def _joined(
    query: BatchQuery, node: Joins, inputs: list[BatchRows], more: list[str], due: list[Condition] | None = None
) -> BatchRows:
    """Return the rows of a join; `due` are the conditions, one per input, under which its rows leave without a match."""
    columns = [f.name for f in node.schema]
    on = _condition(node, *more)
    first, *others = inputs
    name = node.name or "join"
    if len(others) > 1:
        joined = " CROSS JOIN ".join(rows.sql for rows in inputs)
        conditions = _many(node)
        return query.add(name, f"SELECT {listed(columns)} FROM {joined} WHERE {conditions}", columns)
    [second] = others
    kind = node.kind
    due = due or [TRUE, TRUE]
    if kind == "anti":
        sql = f"SELECT {listed(columns)} FROM {first.sql} ANTI JOIN {second.sql} ON {on} WHERE {due[0]}"
        return query.add(name, sql, columns)
    if kind in ("inner", "semi") or due == [TRUE, TRUE]:
        sql = f"SELECT {listed(columns)} FROM {first.sql} {_HOW[kind]} {second.sql} ON {on}"
        return query.add(name, sql, columns)
    selects = [Select(f"SELECT {listed(columns)} FROM {first.sql} JOIN {second.sql} ON {on}")]
    if kind in ("left", "full"):
        nothing = "".join(f", NULL AS {quote_name(c)}" for c in second.columns)
        alone = f"{first.sql} ANTI JOIN {second.sql} ON {on} WHERE {due[0]}"
        selects.append(Select(f"SELECT {first.listed}{nothing} FROM {alone}"))
    if kind in ("right", "full"):
        nothing = "".join(f"NULL AS {quote_name(c)}, " for c in first.columns)
        alone = f"{second.sql} ANTI JOIN {first.sql} ON {on} WHERE {due[1]}"
        selects.append(Select(f"SELECT {nothing}{second.listed} FROM {alone}"))
    return query.add(name, union_all(selects), columns)


def _many(node: Joins) -> Condition:
    """Return the condition of an inner join of more than two inputs."""
    equal = [f"({a.sql}) = ({b.sql})" for pair in zip(*node.keys, strict=True) for a, b in pairwise(pair)]
    return all_of([*equal, *([f"({node.condition.sql})"] if node.condition else [])])


def temporal(query: BatchQuery, node: TemporalJoin) -> BatchRows:
    """Return the rows of the first input that the watermark has passed, each with the version of its key at its time.

    Raises CannotVerify if the versions are a changelog that an operator computes.
    """
    time, since = (micros_of(below, time) for below, time in zip(node.inputs, node.times, strict=True))
    first = query.settled(node.inputs[0], time, node)
    versions = _versions(query, node, since)
    columns = [f.name for f in node.schema]
    due = query.is_over(node, time)
    lefts, rights = node.keys
    numbered = f"SELECT *, {time} AS {_AT}_0, row_number() OVER () AS {_AT}_n FROM {first.sql} WHERE {due}"
    conditions = [*(f"({a.sql}) = ({b.sql})" for a, b in zip(lefts, rights, strict=True)), f"{_AT}_0 >= {_AT}"]
    # Keys and time alone pick the version: if it does not meet the condition, no older one takes its place.
    newest = (
        f"SELECT * FROM ({numbered}) JOIN {versions.sql} ON {' AND '.join(conditions)}"
        f" QUALIFY row_number() OVER (PARTITION BY {_AT}_n ORDER BY {_AT} DESC) = 1"
    )
    matches = f"SELECT * FROM ({newest}) WHERE {_THERE} AND ({node.condition.sql if node.condition else 'true'})"
    if node.kind == "inner":
        sql = f"SELECT {listed(columns)} FROM ({matches})"
    else:
        matched = f"SELECT {listed(versions.columns)}, {_AT}_n FROM ({matches})"
        sql = f"SELECT {listed(columns)} FROM ({numbered}) LEFT JOIN ({matched}) USING ({_AT}_n)"
    return query.add(node.name or "temporal_join", sql, columns)


def _versions(query: BatchQuery, node: TemporalJoin, since: str) -> BatchRows:
    """Return the versions, one per key and time, with the columns _AT, their time, and _THERE, false for a delete."""
    below = node.inputs[1]
    columns = tuple(f.name for f in below.schema)
    keys = ", ".join(k.sql for k in node.keys[1])
    by = f"PARTITION BY {', '.join(filter(None, [keys, since]))}"
    if not below.is_changelog:
        rows = query.settled(below, since, node)
        sql = f"SELECT *, {since} AS {_AT}, true AS {_THERE} FROM {rows.sql}"
        order = f"{ARRIVED.name} DESC" if node.by_arrival else rows.listed
        sql += f" QUALIFY row_number() OVER ({by} ORDER BY {order}) = 1"
        return query.add(f"{rows.name}_versions", sql, columns)
    if not isinstance(below, Scan) or (read := query.scanned(below)) is None:
        raise CannotVerify("a join FOR SYSTEM_TIME AS OF over changes that are computed", node.span)
    where = f"{CHANGE.name} <> 'B' AND NOT {UNTIMED.name}"
    if query.corrections.late:
        where += f" AND {query.in_time(node, since)}"
    order = ", ".join(f"{c.name} DESC" for c in (BATCH, *FILE_ORDER))
    sql = f"SELECT {listed(columns)}, {since} AS {_AT}, {ADDS} AS {_THERE} FROM {read} WHERE {where}"
    sql += f" QUALIFY row_number() OVER ({by} ORDER BY {order}) = 1"
    return query.add(f"{below.alias}_versions", sql, columns)


def lookup(query: BatchQuery, node: LookupJoin, table: Relation) -> BatchRows:
    """Return each row joined with the rows that the lookup table, `table`, has for its keys now."""
    below = query.rows(node.input)
    columns = [f.name for f in node.schema]
    looked = [(f"{_AT}_{number}", column) for number, (_, column) in enumerate(node.keys)]
    items = [f"{quote_name(column)} AS {quote_name(f.name)}" for column, f in node.columns]
    items += [f"{quote_name(column)} AS {name}" for name, column in looked]
    on = " AND ".join(f"({key.sql}) = {name}" for (name, _), (key, _) in zip(looked, node.keys, strict=True))
    on += f" AND ({node.condition.sql})" if node.condition else ""
    how = "LEFT JOIN" if node.kind == "left" else "JOIN"
    table_rows = f"(SELECT {', '.join(items)} FROM {table})"
    sql = f"SELECT {listed(columns)}{below.hidden} FROM {below.sql} {how} {table_rows} ON {on}"
    return query.add(f"{below.name}_lookup", sql, columns, is_read=below.is_read)
