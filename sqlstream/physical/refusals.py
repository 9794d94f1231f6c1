"""Checks of a job's logical plans, before anything starts: each raises UnsupportedError for what cannot run."""

from __future__ import annotations

from collections.abc import Sequence

from sqlstream.connectors.registry import sink_of
from sqlstream.duck.internal_columns import ARRIVED, INTERNAL
from sqlstream.errors import UnsupportedError
from sqlstream.logical.plan.count_windows import CountWindows
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node, Overlap
from sqlstream.logical.plan.nodes import as_stateful
from sqlstream.logical.plan.relational import Projection
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.logical.plan.windows import SessionWindow, TimeWindows, WindowEndNode
from sqlstream.physical.families.registry import operator_plan
from sqlstream.physical.row_order import UnknownOrder, in_order, needs_order, one_row_a_key

# The most windows that a row may be in: if each gets a copy of the row, and if an aggregate merges them from slices.
MOST_COPIED, MOST_SLICED = 10_000, 1_000_000
# The prefix of the columns that rows have on their way beside those of the query.
_OWN = INTERNAL


def refuse(sinks: Sequence[ResultSink]) -> None:
    """Raise UnsupportedError if the queries of a job, one per sink, would give wrong results or never finish a batch."""
    refuse_many_windows(sinks)
    refuse_names(sinks)
    refuse_replay_differences(sinks)
    refuse_clock_over_changes(sinks)
    refuse_clock_in_order(sinks)
    refuse_windows_over_changes(sinks)
    refuse_unlike_rows(sinks)
    refuse_changes(sinks)


def refuse_many_windows(sinks: Sequence[ResultSink]) -> None:
    """Refuse overlapping windows if a row is in too many: more than MOST_COPIED or, if the aggregate makes them, MOST_SLICED."""
    pending: list[Node] = [*sinks]
    seen = set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        windows = operator_plan(as_stateful(node)).windows_made_here if isinstance(node, StatefulNode) else None
        if isinstance(windows, TimeWindows):
            # The aggregate merges windows from slices: each row is in one slice.
            _refuse_more(windows, windows.overlap, MOST_SLICED)
            pending.append(windows.input)
            continue
        if (overlap := node.overlap) is not None:
            _refuse_more(node, overlap, MOST_COPIED)
        pending += node.children


def _refuse_more(node: Node, overlap: Overlap, most: int) -> None:
    number = overlap.windows
    if number <= most:
        return
    hint = f"There can be {most:,}: make windows shorter, or let them follow each other at a greater distance."
    if most < MOST_SLICED and number <= MOST_SLICED and isinstance(node, TimeWindows):
        hint += (
            f" There can be {MOST_SLICED:,} where GROUP BY window_start, window_end stands right above them,"
            " and nothing below it looks at the bounds."
        )
    raise UnsupportedError(f"windows of {overlap.lengths}, of which each row is in {number:,}", node.span, hint=hint)


def refuse_names(sinks: Sequence[ResultSink]) -> None:
    """Refuse columns whose names begin with the reserved prefix `__sqlstream_`."""
    for node in (n for sink in sinks for n in walk(sink)):
        for index, field in enumerate(node.schema):
            if field.name.lower().startswith(_OWN) and not _passes_arrival(node, field.name):
                span = node.items[index].expression.span if isinstance(node, Projection) else None
                raise UnsupportedError(
                    f'a column with the name "{field.name}"',
                    span or next((n.span for n in walk(node) if isinstance(n, Scan)), None),
                    hint=f"Rows get columns on their way that begin with {_OWN}: give it another name, with AS.",
                )


def _passes_arrival(node: Node, name: str) -> bool:
    """Return whether a column is the order of arrival, which a rule has added, and no column of the user."""
    if name != ARRIVED.name:
        return False
    if isinstance(node, Scan):
        return ARRIVED in node.table.columns
    # No expression of a user reads it.
    if isinstance(node, Projection) and not all(
        name in i.expression.reads.columns for i in node.items if i.name == name
    ):
        return False
    return any(any(f.name == name for f in child.schema) for child in node.children)


def refuse_replay_differences(sinks: Sequence[ResultSink]) -> None:
    """Refuse functions such as random() in queries that keep state: a batch that runs again would get other values."""
    nodes = [n for sink in sinks for n in walk(sink)]
    if not any(isinstance(n, StatefulNode) for n in nodes):
        return
    for expression in (e for n in nodes for e in n.expressions):
        if expression.volatile:
            raise UnsupportedError(
                "a function whose result differs on replay cannot be used in a query that keeps state",
                expression.span,
                hint="A batch that is repeated after a crash must give the same rows; use a column of the input instead.",
            )


def refuse_clock_over_changes(sinks: Sequence[ResultSink]) -> None:
    """Refuse the current time, or watermark, over a changelog: a retraction would have another value than its row."""
    for node in (n for sink in sinks for n in walk(sink)):
        if any(n.is_changelog for n in node.children):
            for expression in node.expressions:
                if expression.reads.clock:
                    raise UnsupportedError(
                        "the current time in a query over a changelog",
                        expression.span,
                        hint="A retraction must have all values of its row, also the time; compute the time below the aggregate.",
                    )


def refuse_clock_in_order(sinks: Sequence[ResultSink]) -> None:
    """Refuse the current time in operators that compute expressions when a row leaves, which may be in a later batch."""
    for node in (n for sink in sinks for n in walk(sink)):
        if (
            isinstance(node, StatefulNode)
            and node.computes_when_leaving
            and (expression := next((e for e in node.expressions if e.reads.clock), None))
        ):
            raise UnsupportedError(
                f"the current time in {node.label}",
                expression.span or node.span,
                hint="Compute it in a subquery in FROM: that is done when a row comes.",
            )


def refuse_windows_over_changes(sinks: Sequence[ResultSink]) -> None:
    """Refuse windows over the changelog of an operator: no watermark tells when the last change of a window has arrived.

    Time windows over a table of changes, or over ranks of rows with an event time, are allowed, windows of rows are not: a change
    of a window that has closed is late.
    """
    for node in (n for sink in sinks for n in walk(sink)):
        if not isinstance(node, WindowEndNode | CountWindows):
            continue
        changing = node.input.changelog_origin
        if changing is not None and isinstance(node, SessionWindow) and node.goes_by_clock:
            raise UnsupportedError(
                "sessions by processing time over rows that are retracted",
                node.span,
                hint="A row could be retracted only in the batch in which it came. Use TUMBLE or HOP, or sessions by event time.",
            )
        timed = changing is not None and changing.changes_are_timed and not isinstance(node, CountWindows)
        if changing is not None and not timed:
            raise UnsupportedError(
                "a window over a changelog",
                node.span,
                hint="Leave out ALLOWED_LATENESS and EARLY_FIRE below: without them a window's result is emitted once."
                if isinstance(changing, StatefulNode) and changing.corrects
                else f"{_subject(changing)} may retract any row that it has emitted: "
                "aggregate in windows first, then aggregate their results.",
            )


def refuse_unlike_rows(sinks: Sequence[ResultSink]) -> None:
    """Refuse metadata and clock columns of tables of changes without a PRIMARY KEY: a row and its retraction would differ."""
    for scan in (n for sink in sinks for n in walk(sink) if isinstance(n, Scan)):
        table = scan.table
        if not table.has_changes or table.primary_key:
            continue
        for column in table.columns:
            what = "metadata" if column.metadata else "the current time" if column.reads_clock else None
            if what is not None:
                raise UnsupportedError(
                    f'column "{column.name}", {what}, in table "{table.name}" of changes without a PRIMARY KEY',
                    scan.span,
                    hint="The retraction of a row would have another value than the row: "
                    "leave the column out, or declare the PRIMARY KEY.",
                )


def refuse_changes(sinks: Sequence[ResultSink]) -> None:
    """Refuse to write a changelog into an append-only table, and unordered rows into a table with a PRIMARY KEY."""
    for sink in sinks:
        table, changing, target = sink.table, sink.changelog_origin, sink_of(sink.table)
        several = [s.table.name.lower() for s in sinks].count(table.name.lower()) > 1
        if changing is not None:
            if not target.takes_changes:
                raise UnsupportedError(
                    f'writing a changelog into table "{table.name}" ({table.connector}), which is append-only',
                    changing.span,
                    hint=f"{_subject(changing)} updates or deletes rows that it has emitted. Write into {target.for_changes}, "
                    f"or {_instead(changing)}.",
                )
            if target.replaces and table.connector is not None:
                _refuse_without_key(sink, changing, several)
        # A sink that takes changes without upserts just passes them on.
        if (target.takes_changes and not target.replaces) or not needs_order(sink):
            continue
        alike = not several or all(needs_order(s) for s in sinks if s.table.name.lower() == table.name.lower())
        order = in_order(sink, several=several) if alike else UnknownOrder("several queries write it")
        if isinstance(order, UnknownOrder) or not target.replaces:
            raise UnsupportedError(
                f'writing append-only rows into table "{table.name}" with a PRIMARY KEY',
                next((n.span for n in walk(sink) if isinstance(n, Scan)), None),
                detail=f"Which row of a key is the last one is not known: {order.why}."
                if target.replaces and isinstance(order, UnknownOrder)
                else None,
                hint="Say which row of a key counts: "
                "ROW_NUMBER() OVER (PARTITION BY key ORDER BY ts DESC) AS n in a subquery, and WHERE n = 1."
                if target.replaces
                else "No row takes the place of another one there: leave the PRIMARY KEY out, or write into a warehouse "
                "table (one without a connector).",
            )


def _refuse_without_key(sink: ResultSink, changing: Node, several: bool) -> None:
    """Refuse changes of an external table that is upserted, unless its PRIMARY KEY identifies the rows of the result."""
    table = sink.table
    if not table.primary_key:
        raise UnsupportedError(
            f'writing a changelog into table "{table.name}" ({table.connector}) without a PRIMARY KEY',
            changing.span,
            hint="Rows are found by their key there: declare PRIMARY KEY (..) NOT ENFORCED over columns of which the result "
            "has one row each.",
        )
    if several or not one_row_a_key(sink):
        why = "several queries write it" if several else "the result may have several rows of a key at a time"
        raise UnsupportedError(
            f'writing a changelog into table "{table.name}" ({table.connector}) with this PRIMARY KEY',
            changing.span,
            detail=f"A row takes the place of the one that has its key, and {why}.",
            hint="Put the columns of GROUP BY, or what else tells the rows of the result apart, into the PRIMARY KEY.",
        )


def _subject(node: Node) -> str:
    """Return the label of a node as the start of a sentence."""
    return node.label[:1].upper() + node.label[1:]


def _instead(changing: Node) -> str:
    return "leave the hint out" if isinstance(changing, StatefulNode) and changing.corrects else "aggregate in windows"
