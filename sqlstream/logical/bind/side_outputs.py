"""Binding of SIDE_OUTPUT(TABLE v, 'name') and LATE_ROWS(TABLE v): further outputs of an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, Span, UnsupportedError, missing
from sqlstream.logical.bind.joins.joins import Relation
from sqlstream.logical.bind.process_checks import check_repeated
from sqlstream.logical.plan.expressions import Expression, Item
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.joining import TimedJoin
from sqlstream.logical.plan.late_rows import TIME, WATERMARK, LateRows
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.process import ROWTIME, Process, SideOutputRead
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection
from sqlstream.logical.plan.stateful import DropsLateRows, StatefulNode
from sqlstream.sql.process_calls import ProcessCall, TableArgumentSQL
from sqlstream.sql.spans import span_of

SIDE_OUTPUT, LATE_ROWS = "SIDE_OUTPUT", "LATE_ROWS"
USAGE = {
    SIDE_OUTPUT: "Write SIDE_OUTPUT(TABLE v, 'name'), v being a view of a call of a process function.",
    LATE_ROWS: "Write LATE_ROWS(TABLE v), or LATE_ROWS(TABLE v, 'a') for input a of a join.",
}


def bind_side_output(call: ProcessCall, source: SourceText, relation: Callable[[exp.Expr], Relation]) -> SideOutputRead:
    """Return the node of a call of SIDE_OUTPUT; `relation` binds a table, a view or a subquery.

    Raises BindError if the relation is not a process function's result, or has no side output of this name.
    """
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
    output = next((own for own in declared if own.lower() == name.name.lower()), None)
    at = span_of(name, source)
    if output is None:
        message = f'process function "{function.name}" has no side output "{name.name}"'
        raise BindError(message, at, hint=missing("side output", name.name, declared))
    node = SideOutputRead(process, output, span_of(call, source))
    _check_names(node, at)
    return node


def process_of(node: Node) -> Process | None:
    """Return the process function that a relation reads through filters and projections only; None if there is none."""
    match node:
        case Process():
            return node
        case Filter() | Projection():
            return process_of(node.input)
        case _:
            return None


def _arguments(call: ProcessCall, source: SourceText) -> tuple[TableArgumentSQL, exp.Literal]:
    values = [a.args["value"] for a in call.expressions if a.args.get("name") is None]
    if len(values) == len(call.expressions) == 2:
        table, name = values
        if _is_plain(table) and isinstance(name, exp.Literal) and name.is_string:
            return table, name
    raise BindError("SIDE_OUTPUT takes a table and a name in quotes", span_of(call, source), hint=USAGE[SIDE_OUTPUT])


def _is_plain(argument: exp.Expr) -> TypeGuard[TableArgumentSQL]:
    """Return whether an argument is TABLE v without clauses."""
    parts = ("partition_by", "order_by", "broadcast")
    return isinstance(argument, TableArgumentSQL) and not any(argument.args.get(part) for part in parts)


def bind_late_rows(call: ProcessCall, source: SourceText, relation: Callable[[exp.Expr], Relation]) -> Relation:
    """Return the relation of a call of LATE_ROWS; `relation` binds a table, a view or a subquery.

    Raises BindError if no row can be late, or the input is not named correctly, UnsupportedError if no operator drops late rows.
    """
    table, name = _late_arguments(call, source)
    named = relation(table.this)
    span = span_of(table.this, source)
    operator = dropping(named.node)
    if operator is None:
        _refuse_on_time(named, span)
        raise UnsupportedError(
            f"LATE_ROWS of {named.described}",
            span,
            hint="There are some of a view, or a query of WITH, with windows, OVER, a join by time, or a process function "
            "with ORDER BY.",
        )
    operator, index = _input(operator, name, named, span, source)
    if operator.inputs_never_late:
        hint = f"{operator.timed_part} by the batch's own time."
        raise BindError(f"no row of {named.described} is late", span, hint=hint)
    of = f'input "{name.name}" of {named.described}' if name is not None else named.described
    if isinstance(operator, Process) and not operator.reads[index].order:
        raise BindError(f"no row of {of} is dropped as late", span, hint="Without ORDER BY its rows come at once.")
    if _made_below(operator, index).never_late:
        hint = "Its rows come from another operator, which emits them in time."
        raise BindError(f"no row of {of} is late", span, hint=hint)
    late = LateRows(operator, index, span_of(call, source))
    node = _with_own_names(late)
    _check_late_rows(late, node, span)
    return Relation(node, "late_rows", late.label)


def _with_own_names(late: LateRows) -> Node:
    """Return late rows whose columns have the names of their own relation: a join may have renamed them."""
    operator, fields = late.operator, {f.name: f for f in late.schema}
    own = operator.names_in_table(late.index)
    if not own:
        return late
    pairs = [(name, fields[column]) for name, column in own if column in fields]
    pairs += [(f.name, f) for f in late.schema[-2:]]
    return Projection(late, tuple(Item(name, Expression.of_column(f.name, f.type)) for name, f in pairs))


def _late_arguments(call: ProcessCall, source: SourceText) -> tuple[TableArgumentSQL, exp.Literal | None]:
    values = [a.args["value"] for a in call.expressions if a.args.get("name") is None]
    if len(values) == len(call.expressions) and len(values) in (1, 2) and _is_plain(values[0]):
        name = values[1] if len(values) == 2 else None
        if name is None or (isinstance(name, exp.Literal) and name.is_string):
            return values[0], name
    message = "LATE_ROWS takes a table, and the name of an input in quotes"
    raise BindError(message, span_of(call, source), hint=USAGE[LATE_ROWS])


def dropping(node: Node) -> DropsLateRows | None:
    """Return the operator that drops the late rows of a query: the lowest one that drops any; None if there is none."""
    lowest: list[DropsLateRows] = []
    while True:
        if isinstance(node, DropsLateRows):
            if node.drops_late_rows:
                lowest.append(node)
            if not node.emits_its_rows:
                break
        elif not isinstance(node, Projection | Filter | Expand | Lateral | LookupJoin):
            break
        elif lowest and not isinstance(node, Projection | Filter | Expand):
            # LATERAL and lookup joins below an operator get only rows that were on time further below.
            break
        [node] = node.children
    if len(lowest) > 1 and lowest[-2].drops_for(lowest[-1]):
        return lowest[-2]
    return lowest[-1] if lowest else None


def _input(
    operator: DropsLateRows, name: exp.Literal | None, named: Relation, span: Span, source: SourceText
) -> tuple[DropsLateRows, int]:
    """Return the operator and the index of the input with a name, which is required if there are several. Raises BindError."""
    inputs = _inputs(operator)
    if name is None:
        if len(inputs) > 1:
            several = " or ".join(f"LATE_ROWS(TABLE v, '{own}')" for own in inputs)
            raise BindError(
                f"LATE_ROWS of {named.described} needs the name of an input", span, hint=f"Write {several}."
            )
        return operator, 0
    at = span_of(name, source)
    if not inputs:
        raise BindError(f"{named.described} has one input, and no name for it", at, hint="Write LATE_ROWS(TABLE v).")
    for own, operator_input in inputs.items():
        if own.lower() == name.name.lower():
            return operator_input
    raise BindError(f'{named.described} has no input "{name.name}"', at, hint=missing("input", name.name, inputs))


def _inputs(operator: DropsLateRows) -> dict[str, tuple[DropsLateRows, int]]:
    """Return the inputs of an operator by name, each an operator and a position; a join of three relations is two operators."""
    inputs: dict[str, tuple[DropsLateRows, int]] = {}
    for index, name in enumerate(operator.input_names):
        below = operator.children[index]
        while isinstance(below, Projection | Filter):
            below = below.input
        if isinstance(below, TimedJoin) and isinstance(operator, TimedJoin) and not operator.aliases[index]:
            inputs |= _inputs(below)
        else:
            inputs[name] = operator, index
    return inputs


def _refuse_on_time(named: Relation, span: Span) -> None:
    if any(isinstance(n, StatefulNode) and n.by_clock for n in walk(named.node)):
        raise BindError(f"no row of {named.described} is late", span, hint="It is by the batch's own time.")
    process = process_of(named.node)
    if process is not None:
        hint = "A process function without ORDER BY gets late rows, too: ctx.is_late tells them apart."
        raise BindError(f"no row of {named.described} is dropped as late", span, hint=hint)


def _check_late_rows(late: LateRows, node: Node, span: Span) -> None:
    """Refuse late changes, and late rows with a column named as one that LATE_ROWS adds."""
    if late.operator.children[late.index].is_changelog:
        hint = "Late changes are counted in late_rows of sqlstream.operators."
        raise UnsupportedError("LATE_ROWS of a table with changes", span, hint=hint)
    for field in node.schema[:-2]:
        if field.name.lower() in (TIME, WATERMARK):
            hint = "It adds one of that name: rename yours in a subquery."
            raise UnsupportedError(f'LATE_ROWS of rows with a column "{field.name}"', span, hint=hint)


def _made_below(node: DropsLateRows, index: int) -> Node:
    """Return the node whose `never_late` says whether rows of an input can be late, below sessions that the operator makes."""
    below = node.children[index]
    while isinstance(below, Projection | Filter | Expand) or node.drops_for(below):
        [below] = below.children
    return below


def _check_names(node: SideOutputRead, span: Span) -> None:
    """Refuse a column of a side output that has the name of a key, or of the event time."""
    columns = node.declaration.columns
    check_repeated(node.process, columns, node.label, "a column that is emitted", span)
    if node.time_attributes and any(c.name.lower() == ROWTIME for c in columns):
        hint = "Rename the field in Python, or the column in a subquery: TABLE (SELECT k AS key, .. FROM t)."
        message = f'{node.label} has two columns "{ROWTIME}", the event time and a column that is emitted'
        raise BindError(message, span, hint=hint)
