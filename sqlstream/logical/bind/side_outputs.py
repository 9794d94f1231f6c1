"""Binding of SIDE_OUTPUT(TABLE v, 'name'): a further output of the process function that a view calls."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, Span, missing
from sqlstream.logical.bind.joins.joins import Relation
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.process import ROWTIME, Process, SideOutput
from sqlstream.logical.plan.relational import Filter, Projection
from sqlstream.sql.process_calls import ProcessCall, TableArgumentSQL
from sqlstream.sql.spans import span_of

SIDE_OUTPUT = "SIDE_OUTPUT"
USAGE = "Write SIDE_OUTPUT(TABLE v, 'name'), v being a view of a call of a process function."


def bind_side_output(call: ProcessCall, source: SourceText, relation: Callable[[exp.Expr], Relation]) -> SideOutput:
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
    node = SideOutput(process, found, span_of(call, source))
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
        more = any(table.args.get(part) for part in ("partition_by", "order_by", "broadcast"))
        if isinstance(table, TableArgumentSQL) and not more and isinstance(name, exp.Literal) and name.is_string:
            return table, name
    raise BindError("SIDE_OUTPUT takes a table and a name in quotes", span_of(call, source), hint=USAGE)


def _check_names(node: SideOutput, span: Span) -> None:
    """Refuse a column of an output that has the name of a key, or of the event time."""
    taken = {name.lower(): "a partition column" for name in node.process.key_names}
    if node.time_attributes:
        taken[ROWTIME] = "the event time"
    for column in node.declaration.columns:
        if (before := taken.get(column.name.lower())) is not None:
            hint = "Rename the field in Python, or the column in a subquery: TABLE (SELECT k AS key, .. FROM t)."
            message = f'{node.label} has two columns "{column.name}", {before} and a column that is emitted'
            raise BindError(message, span, hint=hint)
