"""Binding of SIDE_OUTPUT(TABLE v, 'name') and LATE_ROWS(TABLE v): what an operator emits beside its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, Span, UnsupportedError, missing
from sqlstream.logical.bind.joins.joins import Relation
from sqlstream.logical.plan.aggregates import WindowAggregate
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Windowed
from sqlstream.logical.plan.process import ROWTIME, Process, SideOutputRead
from sqlstream.logical.plan.relational import Expand, Filter, Projection
from sqlstream.logical.plan.tables import Scan
from sqlstream.logical.plan.windows import SessionWindow
from sqlstream.sql.process_calls import ProcessCall, TableArgumentSQL
from sqlstream.sql.spans import span_of

SIDE_OUTPUT, LATE_ROWS = "SIDE_OUTPUT", "LATE_ROWS"
USAGE = {
    SIDE_OUTPUT: "Write SIDE_OUTPUT(TABLE v, 'name'), v being a view of a call of a process function.",
    LATE_ROWS: "Write LATE_ROWS(TABLE v), v being a view of windows.",
}


def bind_side_output(call: ProcessCall, source: SourceText, relation: Callable[[exp.Expr], Relation]) -> SideOutputRead:
    """Return the node that a call is; `relation` binds a table, a view or a subquery."""
    table, name = _arguments(call, source)
    named = relation(table.this)
    span = span_of(table.this, source)
    process = process_of(named.node)
    if process is None:
        hint = (
            "There are some of a view, or a query of WITH, that has nothing but the call of a process function in FROM."
        )
        raise BindError(f"{named.described} has no side outputs", span, hint=hint)
    function = process.function
    declared = [side.name for side in function.side_outputs]
    if not declared:
        raise BindError(
            f'process function "{function.name}" has no side outputs',
            span,
            detail=f" --> {function.location}",
            hint="Its class declares them: rejected: SideOutput[Rejected] = side_output().",
        )
    found = next((own for own in declared if own.lower() == name.name.lower()), None)
    at = span_of(name, source)
    if found is None:
        message = f'process function "{function.name}" has no side output "{name.name}"'
        raise BindError(message, at, hint=missing("side output", name.name, declared))
    node = SideOutputRead(process, found, span_of(call, source))
    _check_names(node, at)
    return node


def process_of(node: Node) -> Process | None:
    """Return the call whose rows a relation has, chosen and renamed at most."""
    match node:
        case Process():
            return node
        case Filter() | Projection():
            return process_of(node.input)
        case _:
            return None


def _arguments(call: ProcessCall, source: SourceText) -> tuple[TableArgumentSQL, exp.Literal]:
    given = [a.args["value"] for a in call.expressions if a.args.get("name") is None]
    if len(given) == len(call.expressions) == 2:
        table, name = given
        if _is_plain(table) and isinstance(name, exp.Literal) and name.is_string:
            return table, name
    raise BindError("SIDE_OUTPUT takes a table and a name in quotes", span_of(call, source), hint=USAGE[SIDE_OUTPUT])


def _is_plain(argument: exp.Expr) -> TypeGuard[TableArgumentSQL]:
    """Tell whether an argument is TABLE v, and no more."""
    parts = ("partition_by", "order_by", "broadcast")
    return isinstance(argument, TableArgumentSQL) and not any(argument.args.get(part) for part in parts)


def bind_late_rows(call: ProcessCall, source: SourceText, relation: Callable[[exp.Expr], Relation]) -> LateRows:
    """Return the node that a call of LATE_ROWS is; `relation` binds a table, a view or a subquery."""
    given = [a.args["value"] for a in call.expressions if a.args.get("name") is None]
    if len(call.expressions) != 1 or len(given) != 1 or not _is_plain(given[0]):
        raise BindError("LATE_ROWS takes a table", span_of(call, source), hint=USAGE[LATE_ROWS])
    table = given[0]
    named = relation(table.this)
    span = span_of(table.this, source)
    operator = windows_of(named.node)
    if operator is None:
        raise UnsupportedError(
            f"LATE_ROWS of {named.described}",
            span,
            hint="There are some of a view, or a query of WITH, whose SELECT aggregates or ranks in windows of time.",
        )
    if any(isinstance(n, Scan) and n.by_clock for n in walk(operator)):
        raise BindError(f"no row of {named.described} is late", span, hint="Its windows are by the batch's own time.")
    if _input_of(operator).on_time:
        hint = "Its rows come from another operator, which emits them in time."
        raise BindError(f"no row of {named.described} is late", span, hint=hint)
    return LateRows(operator, span_of(call, source))


def windows_of(node: Node) -> Windowed | None:
    """Return the operator over windows to which the rows of a query come that can be late."""
    found: list[Windowed] = []
    while isinstance(node, Projection | Filter | Expand | Windowed):
        if isinstance(node, Windowed):
            found.append(node)
        node = node.input
    if len(found) > 1 and isinstance(found[-1], SessionWindow) and isinstance(found[-2], WindowAggregate):
        # It makes the sessions itself.
        return found[-2]
    return found[-1] if found else None


def _input_of(node: Windowed) -> Node:
    """Return what makes the rows that come to an operator, and to the sessions that it may make."""
    below = node.input
    while isinstance(below, Projection | Filter | Expand | SessionWindow):
        below = below.input
    return below


def _check_names(node: SideOutputRead, span: Span) -> None:
    """Refuse a column of an output that has the name of a key, or of the event time."""
    taken = {name.lower(): "a partition column" for name in node.process.key_names}
    if node.time_attributes:
        taken[ROWTIME] = "the event time"
    for column in node.declaration.columns:
        if (before := taken.get(column.name.lower())) is not None:
            hint = "Rename the field in Python, or the column in a subquery: TABLE (SELECT k AS key, .. FROM t)."
            message = f'{node.label} has two columns "{column.name}", {before} and a column that is emitted'
            raise BindError(message, span, hint=hint)
