"""Versioned tables, as in Flink: relations whose rows are valid for a key from a time on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, Span, UnsupportedError
from sqlstream.logical.plan.expressions import Expression, Item
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.ranks import Rank
from sqlstream.logical.plan.relational import Filter, Projection
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import Scan
from sqlstream.units import NO_TIME, Duration


@dataclass(frozen=True, slots=True)
class AsOf:
    """The time of FOR SYSTEM_TIME AS OF: a column of the relations before, its text in the query, and the clause's position."""

    column: str
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class VersionedTable:
    """A plan whose rows, or changes, are versions, with its key columns and its time column.

    `ttl` is the time to live that a hint sets for the deduplication above these rows; a temporal join cannot apply it.
    """

    node: Node
    keys: tuple[str, ...]
    time: str
    ttl: Duration = NO_TIME

    @property
    def sqls(self) -> tuple[str, ...]:
        """The SQL of the key columns."""
        return tuple(map(quote_name, self.keys))


def versions(node: Node) -> VersionedTable | None:
    """Return the versioned table behind a relation, None if it has no versions.

    It is a table with a PRIMARY KEY and a watermark, or the input of a deduplication that keeps the newest row of each key.
    """
    match node:
        case StatefulNode() if node.is_table:
            return versions(node.children[0])
        case Scan():
            table = node.table
            if not table.primary_key or table.watermark is None:
                return None
            return VersionedTable(node, table.primary_key, table.watermark.column)
        case Projection():
            return _projected(node, versions(node.input))
        case Filter() if (bound := node.predicate.claims.only_bound) is not None and bound[1] == 1:
            return _newest(node.input, bound[0])
        case _:
            return None


def _newest(node: Node, column: str | None) -> VersionedTable | None:
    """Return the versions whose newest rows a node has where `column`, a ROW_NUMBER by descending time, is 1; else None."""
    match node:
        case Projection():
            below = next((i.expression.column for i in node.items if i.name == column), None)
            return _projected(node, _newest(node.input, below))
        case Rank(function="row_number") if node.column == column and not node.input.is_changelog:
            fields = node.input.schema
            keys = tuple(f.name for k in node.keys for f in fields if k.column == f.name)
            time = next((t for t in node.input.time_attributes if _is_newest_first(node, t)), None)
            if time is None or not keys or len(keys) < len(node.keys):
                return None
            own = (Item(f.name, Expression.of_column(f.name, f.type)) for f in fields)
            first = Item(node.column, Expression.over((), "CAST(1 AS BIGINT)", "BIGINT"))
            return VersionedTable(Projection(node.input, (*own, first)), keys, time, node.ttl or NO_TIME)
        case _:
            return None


def _is_newest_first(node: Rank, time: str) -> bool:
    return len(node.order) == 1 and node.order[0].column == time and node.order[0].descends


def _projected(node: Projection, below: VersionedTable | None) -> VersionedTable | None:
    """Return versions under the names of a projection; None if it drops a key column or the time."""
    if below is None:
        return None
    names = {i.expression.column: i.name for i in reversed(node.items)}
    if any(name not in names for name in (*below.keys, below.time)):
        return None
    keys = tuple(names[name] for name in below.keys)
    return VersionedTable(replace(node, input=below.node), keys, names[below.time], below.ttl)


def check_time(node: Node, as_of: AsOf) -> None:
    """Raise BindError unless AS OF names a time attribute of a node, UnsupportedError if the node is a changelog."""
    if as_of.column not in node.time_attributes:
        existing = ", ".join((*node.time_attributes, *node.batch_times)) or "none"
        hint = f"Time attributes of the rows before: {existing}."
        raise BindError(f"AS OF {as_of.text}: it is no time attribute", as_of.span, hint=hint)
    if node.is_changelog:
        hint = "Its left side must be append-only: join before rows are grouped or ranked, and read a table without changes."
        raise UnsupportedError("a temporal join after a changelog", as_of.span, hint=hint)


def no_versions(described: str, node: Node, span: Span) -> BindError:
    """Return the error for a relation that has no versions; `node` is its plan."""
    # A job reads no table of the warehouse that has a key.
    may_have_key = all(n.table.connector is not None for n in walk(node) if isinstance(n, Scan))
    declared = "declare PRIMARY KEY (k) NOT ENFORCED and a WATERMARK of it, or " if may_have_key else ""
    return BindError(
        f"{described} has no versions to find one of",
        span,
        hint="To look up what a table has when a row is read, name a processing time: a column p AS PROCTIME() of a table "
        f"before it. For what it had at an event time, {declared}join a view of all its rows: "
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM t) WHERE n = 1.",
    )


def no_time_to_live(described: str, span: Span) -> UnsupportedError:
    """Return the error for a versioned relation with STATE_TTL: a join keeps the newest version of each key."""
    hint = "Leave STATE_TTL out of it: a join with its versions keeps the newest one of each key."
    return UnsupportedError(f"versions of {described}, whose rows have a time to live", span, hint=hint)
