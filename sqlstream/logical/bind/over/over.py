"""Binding of calls with OVER in the order of time: aggregates over frames, LAG and LEAD, first and last values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from sqlstream.catalog import AggregateFunction, Catalog
from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, Span, UnsupportedError
from sqlstream.logical.bind.expressions.aggregate_names import IGNORING
from sqlstream.logical.bind.expressions.intervals import constant_interval
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.expressions.user_aggregates import ordered_arguments, own_type
from sqlstream.logical.bind.scope import Scope
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Schema
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.joining import Joining
from sqlstream.logical.plan.joins import Join
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.over import POSITIONAL, Over, OverFrame, OverItem
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.time_domains import ordering_times
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import span_of

# Functions over all rows of a partition, which a stream never has.
_OF_WHOLE_PARTITIONS = ("percent_rank", "cume_dist")
_HINT = "Aggregates run, LAG, LEAD, FIRST_VALUE, LAST_VALUE, NTH_VALUE, ROW_NUMBER, RANK, DENSE_RANK and NTILE."
WAITED = "LEAD and n FOLLOWING emit rows behind the watermark: do this before them."
# A frame, up to the parenthesis that closes OVER.
_FRAME = re.compile(r"\b(?:ROWS|RANGE|GROUPS)\b(?:[^()]|\([^()]*\))*", re.IGNORECASE)
_DIRECTION = re.compile(r"\s+(ASC|DESC)\b", re.IGNORECASE)
_FRAMES = "Frames run from UNBOUNDED, n or INTERVAL .. PRECEDING to CURRENT ROW, or to n or INTERVAL .. FOLLOWING."


class OverBlock(Protocol):
    """The part of ExpressionBinder that binds calls with OVER."""

    scope: Scope
    catalog: Catalog
    checker: TypeChecker

    @property
    def rows(self) -> Schema: ...

    def rewrite(self, node: exp.Expr) -> exp.Expr: ...

    def is_volatile(self, bound: exp.Expr) -> bool: ...

    def span(self, node: exp.Expr) -> Span: ...


@dataclass(frozen=True, slots=True)
class Partition:
    """PARTITION BY and ORDER BY of a call with OVER, as bound expressions."""

    keys: tuple[exp.Expr, ...]
    order: tuple[exp.Expr, ...]

    @property
    def sql(self) -> tuple[object, ...]:
        """The value by which partitions are compared: the SQL of keys and order."""
        return *map(to_duckdb, self.keys), "", *map(to_duckdb, self.order)


def with_windows(select: exp.Select) -> exp.Select:
    """Return a query block without WINDOW clause: its named windows are copied into the calls with OVER."""
    if not select.args.get("windows"):
        return select
    select = select.copy()
    named: dict[str, exp.Window] = {}
    for window in select.args["windows"]:
        _complete(window, named)
        named[window.this.name.lower()] = window
    select.set("windows", None)
    parts = [*select.expressions, *([select.args["qualify"]] if select.args.get("qualify") else [])]
    for window in [w for part in parts for w in part.find_all(exp.Window)]:
        _complete(window, named)
    return select


def _complete(window: exp.Window, named: Mapping[str, exp.Window]) -> None:
    alias = window.args.get("alias")
    if alias is None:
        return
    for key in ("partition_by", "order", "spec"):
        if not window.args.get(key) and (clause := named[alias.name.lower()].args.get(key)):
            window.set(key, [f.copy() for f in clause] if isinstance(clause, list) else clause.copy())
    window.set("alias", None)


def bind_call(window: exp.Window, block: OverBlock) -> OverItem:
    """Return an aggregate, or another call in the order of time, with OVER; its result has no name yet.

    Raises UnsupportedError for a function that cannot run with OVER, or for a frame; BindError for a call that is wrong.
    """
    span = block.span(window)
    call = window.this.this if isinstance(window.this, exp.Filter) else window.this
    function = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    own = block.catalog.function(function) is not None
    python = block.catalog.aggregate_function(function)
    if own or (python is None and function not in POSITIONAL and function not in block.checker.aggregates):
        is_function = own or function in _OF_WHOLE_PARTITIONS or block.checker.knows(function)
        if function and not is_function:
            raise block.checker.no_function(call.name, span)
        raise UnsupportedError(f"{call.name.upper() or 'this'} with OVER", span, hint=_HINT)
    if (inner := next(iter(window.this.find_all(exp.Window)), None)) is not None:
        raise BindError("OVER is not allowed inside OVER", block.span(inner), hint="Compute it in a subquery in FROM.")
    if not window.args.get("order"):
        raise UnsupportedError(
            "OVER without ORDER BY", span, hint="Add ORDER BY the time attribute to its OVER clause."
        )
    if python is not None:
        return _python_call(python, window, block)
    bound = _bound(window.this, block)
    whole = exp.Window(this=bound, order=exp.Order(expressions=[exp.Ordered(this=exp.Literal.number(1))]), over="OVER")
    whole.meta.update(window.meta)
    type = block.checker.type(block.rows, whole, block.scope.source)
    return _item(function, bound, type, window, block)


def _python_call(function: AggregateFunction, window: exp.Window, block: OverBlock) -> OverItem:
    """Return a call of a user's aggregate function with OVER."""
    window = window.copy()
    call = window.this.this if isinstance(window.this, exp.Filter) else window.this
    # DISTINCT stands before the first argument, ORDER BY behind the last.
    last = call.expressions[-1] if call.expressions else None
    if isinstance(last, exp.IgnoreNulls | exp.RespectNulls):
        hint = "Filter NULLs with FILTER (WHERE x IS NOT NULL)."
        raise UnsupportedError(f"IGNORE NULLS of {function.name}", block.span(window), hint=hint)
    plain = [last.this if e is last and isinstance(last, exp.Order) else e for e in call.expressions]
    first = plain[0] if plain else None
    if isinstance(first, exp.Distinct):
        plain[:1] = first.expressions
    arguments = ordered_arguments(function, plain, call, block)
    type = own_type(function, arguments, call, block)
    call_arguments: list[exp.Expr] = (
        [exp.Distinct(expressions=arguments)] if isinstance(first, exp.Distinct) else list(arguments)
    )
    if isinstance(last, exp.Order):
        call_arguments[-1] = exp.Order(this=call_arguments[-1], expressions=last.expressions)
    call.set("expressions", call_arguments)
    item = _item(call.name.lower(), _bound(window.this, block), type, window, block)
    return replace(item, call=replace(item.call, python=function))


def _bound(node: exp.Expr, block: OverBlock) -> exp.Expr:
    """Return a copy of a call whose arguments are bound."""
    copy = node.copy()
    for child in list(copy.iter_expressions()):
        if isinstance(node, exp.Filter) and child is copy.this:
            child.replace(_bound(child, block))
        elif not isinstance(child, exp.Star):
            child.replace(block.rewrite(child))
    return copy


def _item(function: str, bound: exp.Expr, type: str, window: exp.Window, block: OverBlock) -> OverItem:
    where = bound.expression.this if isinstance(bound, exp.Filter) else None
    call = bound.this if isinstance(bound, exp.Filter) else bound
    arguments = [a for a in call.expressions if not isinstance(a, exp.Star)]
    order: list[exp.Expr] = []
    distinct = ignore_nulls = False
    if arguments and isinstance(arguments[-1], exp.IgnoreNulls | exp.RespectNulls):
        ignore_nulls = isinstance(arguments[-1], exp.IgnoreNulls)
        arguments[-1] = arguments[-1].this
    elif function in IGNORING and block.checker.meaning.is_flinks:
        block.checker.meaning.differs = ignore_nulls = True
    if arguments and isinstance(arguments[-1], exp.Order):
        order = list(arguments[-1].expressions)
        arguments[-1:] = [arguments[-1].this]
    if arguments and isinstance(arguments[0], exp.Distinct):
        distinct = True
        arguments = [*arguments[0].expressions, *arguments[1:]]
    item = AggregateItem(
        name="",
        function=function,
        arguments=_expressions(arguments, block),
        distinct=distinct,
        order_by=_expressions(order, block),
        filter=_expressions([where], block)[0] if where is not None else None,
        type=type,
        span=block.span(window),
    )
    return OverItem(item, _frame_of(item, ignore_nulls, window, block), ignore_nulls)


def _expressions(nodes: Sequence[exp.Expr], block: OverBlock) -> tuple[Expression, ...]:
    values = [n.this if isinstance(n, exp.Ordered) else n for n in nodes]
    types = block.checker.types(block.rows, values, block.scope.source)
    return tuple(Expression.of(n, t, block.span(n), block.is_volatile(n)) for n, t in zip(nodes, types, strict=True))


# -- frames


def _frame_of(item: AggregateItem, ignore_nulls: bool, window: exp.Window, block: OverBlock) -> OverFrame:
    if item.function not in ("lag", "lead"):
        return _frame(window, block)
    if item.order_by:
        hint = "Leave it out: the rows before and after a row are those in the order of OVER."
        span = item.order_by[0].span or item.span
        raise UnsupportedError(f"ORDER BY inside {item.function.upper()}", span, hint=hint)
    offset = item.arguments[1].sql if len(item.arguments) > 1 else "1"
    if not offset.isdigit():
        raise BindError(f"{item.function.upper()} needs a constant number of rows", item.arguments[1].span)
    if item.function == "lag":
        return OverFrame("rows", None if ignore_nulls else int(offset))
    if ignore_nulls:
        raise UnsupportedError("LEAD with IGNORE NULLS", item.span, hint="Filter NULLs in a subquery in FROM.")
    return OverFrame("rows", 0, int(offset))


def _frame(window: exp.Window, block: OverBlock) -> OverFrame:
    """Return the frame of an OVER clause; by default all rows up to the current row and its peers."""
    spec = window.args.get("spec")
    if spec is None:
        return OverFrame("range", None)
    mode, span = spec.args["kind"].upper(), _frame_span(window, block)
    if mode not in ("ROWS", "RANGE"):
        raise UnsupportedError(f"{mode} in OVER", span, hint=_FRAMES)
    if spec.args.get("exclude"):
        raise UnsupportedError("EXCLUDE in OVER", span, hint="Filter the rows with FILTER (WHERE ..).")
    first = _bound_of(spec.args.get("start"), spec.args.get("start_side"), mode, block)
    last = _bound_of(spec.args.get("end"), spec.args.get("end_side"), mode, block)
    following = 0 if last is None else -last
    if first is not None and last is not None and last > first:
        hint = "Write the bound that lies further back first: BETWEEN 2 PRECEDING AND 1 PRECEDING."
        raise BindError("the frame ends before it starts", span, hint=hint)
    if spec.args.get("end") is not None and last is None:
        raise UnsupportedError("a frame to UNBOUNDED FOLLOWING", span, hint=_FRAMES)
    if mode == "RANGE":
        if following < 0 or (first is not None and first < 0):
            raise UnsupportedError("a RANGE frame without the current row", span, hint=_FRAMES)
        if following and first is None:
            raise UnsupportedError("a RANGE frame from UNBOUNDED PRECEDING to FOLLOWING", span, hint=_FRAMES)
        return OverFrame("range", first, following)
    return OverFrame("rows", first, following)


def _frame_span(window: exp.Window, block: OverBlock) -> Span:
    """Return the position of the frame of an OVER clause in the text, after its ORDER BY."""
    order = block.span(window.args["order"])
    match = _FRAME.search(order.source.text, order.end)
    if match is None:
        return block.span(window)
    return Span(order.source, match.start(), match.start() + len(match[0].rstrip()))


def _bound_of(value: object, side: str | None, mode: str, block: OverBlock) -> int | None:
    """Return the distance of a frame's bound before the current row (negative: after it), None for UNBOUNDED.

    The unit is rows for ROWS, microseconds for RANGE.
    """
    if value is None or value == "CURRENT ROW":
        return 0
    if value == "UNBOUNDED":
        return None
    assert isinstance(value, exp.Expr)
    sign = -1 if (side or "").upper() == "FOLLOWING" else 1
    if mode == "RANGE":
        length = constant_interval(block.checker, value, block.scope.source)
        if length < 0:
            raise BindError("a frame's interval must not be negative", block.span(value))
        return sign * length
    if not (isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit()):
        raise BindError("a frame of ROWS needs a constant number of rows", block.span(value))
    return sign * int(value.name)


# -- the rows below


def time_of(node: Node, order: Sequence[exp.Expr]) -> str | None:
    """Return the time attribute, or the processing time, that is the first item of an order, ascending.

    None if it is another column, and over a changelog.
    """
    first = order[0]
    value = first.this if isinstance(first, exp.Ordered) else first
    if node.is_changelog or (isinstance(first, exp.Ordered) and first.args.get("desc")):
        return None
    return next((t for t in _times(node) if to_duckdb(value) == quote_name(t)), None)


def _times(node: Node) -> tuple[str, ...]:
    """Return the times by which rows can be ordered: of several event times, as after an interval join, the first."""
    return tuple(t for t in ordering_times(node) if t in node.clock_times or t == node.time_attribute)


def check_zone(node: Node, time: str, checker: TypeChecker, span: Span) -> None:
    """Raise UnsupportedError for rows in the order of an event time of type TIMESTAMP_LTZ if the session's zone is not UTC.

    Watermarks are local times of the zone, which do not order rows when clocks are set back. Rows in the order of processing
    time leave in the batch in which they come: they are ordered by the instant, and no watermark decides about them.
    """
    kind = next(f.type for f in node.schema if f.name == time)
    if checker.zone != "UTC" and kind == "TIMESTAMP WITH TIME ZONE" and time not in node.processing_times:
        raise UnsupportedError(
            f"rows in the order of a TIMESTAMP_LTZ in the zone {checker.zone}",
            span,
            hint="Leave 'table.local-time-zone' at UTC, or make the time attribute a TIMESTAMP.",
        )


def typed(parts: Sequence[exp.Expr], fields: Schema, block: OverBlock, span: Span | None) -> tuple[Expression, ...]:
    """Return bound keys or items of ORDER BY as expressions with types; `span` is the place of parts without one."""
    source = block.scope.source
    types = block.checker.types(fields, [p.this if isinstance(p, exp.Ordered) else p for p in parts], source)
    return tuple(
        Expression.of(p, t, span_of(p, source, span), block.is_volatile(p)) for p, t in zip(parts, types, strict=True)
    )


def over(node: Node, partition: Partition, calls: Sequence[OverItem], block: OverBlock) -> Over:
    """Return the node of calls with OVER of one partition and order.

    Raises UnsupportedError if the order does not begin with a time of the input, or does not fit the frames.
    """
    span, source = calls[0].call.span, block.scope.source
    assert span is not None
    ordered = span_of(partition.order[0], source, span).to(span_of(partition.order[-1], source, span))
    if direction := _DIRECTION.match(source.text, ordered.end):
        ordered = Span(source, ordered.start, direction.end())
    time = time_of(node, partition.order)
    if time is None:
        raise _not_in_order(node, span, ordered)
    if time in node.processing_times and any(c.frame.mode == "range" and c.frame.following for c in calls):
        hint = "Write LEAD or ROWS .. FOLLOWING, or use an event time."
        raise UnsupportedError("a RANGE frame to FOLLOWING over processing time", span, hint=hint)
    check_zone(node, time, block.checker, span)
    if len(partition.order) > 1 and any(c.frame.mode == "range" and c.frame.preceding is not None for c in calls):
        raise UnsupportedError("a RANGE frame over several columns", ordered, hint=f"Write ORDER BY {time}.")
    keys, order = (typed(parts, node.schema, block, span) for parts in (partition.keys, partition.order))
    new = Over(node, "", keys, time, order, tuple(calls), span=span)
    zone = block.checker.zone
    return replace(new, zone=zone) if new.by_clock and new.keeps_by_time and zone != "UTC" else new


def waits_for_later(node: Node) -> bool:
    """Return whether rows leave a plan after the watermark has passed them, because they wait for later rows."""
    return any(isinstance(n, StatefulNode) and n.waits_for_later_rows for n in walk(node))


def lost_in_join(node: Node) -> str | None:
    """Return a hint if a join below has lost a time attribute, None if none has."""
    joins = [n for n in walk(node) if isinstance(n, Joining)]
    if any(isinstance(n, Join) for n in joins):
        bound = "AND b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts"
        return (
            f"A regular join keeps no time attribute. Make it an interval join: bound how far apart the times may be, {bound}. "
            "A table that says something about each row can be looked up, which keeps its time: JOIN b FOR SYSTEM_TIME AS OF "
            "a.p AS b, with p AS PROCTIME() in CREATE TABLE a."
        )
    if any(n.padded for n in joins):
        return "Of an outer interval join, only the time of the side that is never NULL is a time attribute."
    return None


def _not_in_order(node: Node, span: Span, ordered: Span) -> UnsupportedError:
    if node.is_changelog:
        hint = "OVER takes append-only rows: aggregate in windows first, and write OVER over their results."
        return UnsupportedError("OVER over a changelog", span, hint=hint)
    times = _times(node)
    hint = "Its input has no time attribute: declare WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, or p AS PROCTIME()."
    if waits_for_later(node):
        hint = WAITED
    hint = lost_in_join(node) or hint
    if times:
        hint = f"Write ORDER BY {' or '.join(times)}, ascending: rows are final in the order of time."
    return UnsupportedError("OVER in another order than that of time", ordered, hint=hint)
