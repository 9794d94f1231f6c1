"""Collects the calls with OVER of a query block, and builds their nodes: ranks in windows, other ranks, calls by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, Span, UnsupportedError
from sqlstream.logical.bind.expressions.arrival import ArrivalColumns
from sqlstream.logical.bind.over.over import OverBlock, Partition, bind_call, over, time_of, typed
from sqlstream.logical.bind.windows.window_tables import tells_windows_apart
from sqlstream.logical.plan.expressions import AggregateItem, Field
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.over import NTILE, RANKS, Over, OverFrame, OverItem
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Filter, Projection
from sqlstream.sql.dialect import to_duckdb

Rewrite = Callable[[exp.Expr], exp.Expr]


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    partition: Partition
    windowed: bool
    span: Span
    # The window bounds in its PARTITION BY.
    bounds: tuple[str, ...] = ()

    @property
    def sql(self) -> tuple[object, ...]:
        """The value by which calls are compared."""
        return self.function, self.windowed, *self.partition.sql

    def in_order(self, column: str) -> OverItem:
        """Return the ranking call as an item of an Over node, with the name of its result."""
        return OverItem(
            AggregateItem(column, self.function, (), False, (), None, "BIGINT", self.span), OverFrame("rows", None)
        )


class Ranks:
    """The calls with OVER of one query block over the rows of `node`; equal calls are computed once."""

    def __init__(self, node: Node):
        self.node = node
        # The output name of the select item being bound, if the item is a call with OVER.
        self.output: str | None = None
        self._calls: dict[str, _Call] = {}
        self._overs: dict[str, tuple[Partition, OverItem]] = {}

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that the calls so far add."""
        ranks = (Field(column, "BIGINT") for column in self._calls)
        return (*ranks, *(Field(column, item.call.type) for column, (_, item) in self._overs.items()))

    def column(self, call: exp.Window, block: OverBlock) -> str:
        """Return the column of a call's result; the call is added if it is new. Raises UnsupportedError if it cannot run."""
        function = call.this.name.lower() if isinstance(call.this, exp.Anonymous) else ""
        if function not in (*RANKS, NTILE):
            return self._over(call, block)
        span = block.span(call)
        if function == NTILE:
            function = _ntile(call, span)
        elif call.this.expressions:
            raise UnsupportedError(f"{function.upper()} with an argument", span, hint="Leave it out.")
        if call.args.get("spec") is not None:
            raise UnsupportedError(f"{call.this.name.upper()} with a frame", span, hint="Leave it out.")
        if call.args.get("order") is None:
            raise UnsupportedError(
                f"{call.this.name.upper()} without ORDER BY", span, hint="Add ORDER BY to its OVER clause."
            )
        window = self.node.window_columns
        partition = [block.rewrite(p) for p in call.args.get("partition_by") or ()]
        own = (window.start, window.end, window.time) if window else ()
        bounds = {quote_name(c): c for c in own if c is not None}
        named = {sql for p in partition if (sql := to_duckdb(p)) in bounds}
        windowed = window is not None and tells_windows_apart(self.node, window, named)
        keys = tuple(p for p in partition if not windowed or to_duckdb(p) not in bounds)
        order = tuple(block.rewrite(o) for o in call.args["order"].expressions)
        new_call = _Call(
            function, Partition(keys, order), windowed, span, tuple(c for sql, c in bounds.items() if sql in named)
        )
        for column, other_call in self._calls.items():
            if other_call.sql == new_call.sql:
                return column
        column = self._free("_rank")
        self._calls[column] = new_call
        return column

    def _over(self, call: exp.Window, block: OverBlock) -> str:
        if call.meta.get("part"):
            # A part of a select item does not have its name.
            self.output = None
        item = bind_call(call, block)
        keys = tuple(block.rewrite(p) for p in call.args.get("partition_by") or ())
        partition = Partition(keys, tuple(block.rewrite(o) for o in call.args["order"].expressions))
        for column, (other, other_item) in self._overs.items():
            if other.sql == partition.sql and replace(other_item, call=replace(other_item.call, name="")) == item:
                return column
        column = self._free("_over")
        self._overs[column] = (partition, replace(item, call=replace(item.call, name=column)))
        return column

    def _free(self, prefix: str) -> str:
        """Return the output name of the select item if it is free, else the prefix with a number."""
        names = {f.name.lower() for f in (*self.node.schema, *self.fields)}
        output, self.output = self.output, None
        number = 1 + len(self._calls if prefix == "_rank" else self._overs)
        return output if output and output.lower() not in names else f"{prefix}_{number}"

    def above(self, node: Node, block: OverBlock) -> Node:
        """Return a plan that adds the results of all calls above `node`, which has the columns over which they were bound.

        Raises UnsupportedError for a call in the order of time that cannot run there.
        """
        arrival = ArrivalColumns(node, block.checker, block.scope.source)
        calls = {name: replace(c, partition=_arrived(c.partition, arrival)) for name, c in self._calls.items()}
        overs = [(_arrived(partition, arrival), item) for partition, item in self._overs.values()]
        node = _in_order(arrival.node, overs, block, waiting=False)
        for column, call in calls.items():
            window = node.window_columns if call.windowed else None
            # Where rows end up in n parts depends on all of them.
            is_final = not call.function.startswith(NTILE)
            if window is None and is_final and time_of(node, call.partition.order) is not None:
                node = over(node, call.partition, [call.in_order(column)], block)
                continue
            fields = node.schema
            keys, order = (
                typed(parts, fields, block, call.span) for parts in (call.partition.keys, call.partition.order)
            )
            if window is None:
                node = Rank(node, "", column, call.function, keys, order, span=call.span)
            else:
                node = WindowRank(
                    node, "", column, call.function, keys, window, order, None, span=call.span, named_bounds=call.bounds
                )
        # Rows that wait for later rows leave out of time order, so calls that wait come last.
        return _in_order(node, overs, block, waiting=True)


def _ntile(call: exp.Window, span: Span) -> str:
    """Return the call NTILE(n) as the function of a rank. Raises BindError for a number that is no positive integer."""
    numbers = [e.name for e in call.this.expressions if isinstance(e, exp.Literal) and not e.is_string]
    if len(call.this.expressions) != 1 or not numbers or not numbers[0].isdigit() or int(numbers[0]) == 0:
        raise BindError("NTILE takes a positive integer", span, hint="Write NTILE(4) OVER (..).")
    return f"{NTILE}({int(numbers[0])})"


def _arrived(partition: Partition, arrival: ArrivalColumns) -> Partition:
    return Partition(arrival.of(partition.keys), arrival.of(partition.order))


def _in_order(node: Node, overs: Sequence[tuple[Partition, OverItem]], block: OverBlock, *, waiting: bool) -> Node:
    """Return a plan with an Over node above `node` for each partition, with some of the calls.

    With `waiting` these are the calls that wait for later rows, and calls of the same partition whose frame begins a number of
    rows before the current row; otherwise all other calls.
    """
    groups: dict[object, tuple[Partition, list[OverItem]]] = {}
    frames = [(partition.sql, item.frame) for partition, item in overs]
    wait = {sql for sql, frame in frames if frame.mode == "rows" and frame.following > 0}
    for partition, item in overs:
        frame = item.frame
        by_rows = frame.mode == "rows" and frame.preceding is not None
        if (frame.following > 0 or (by_rows and partition.sql in wait)) == waiting:
            way = (*partition.sql, frame.mode) if waiting else partition.sql
            groups.setdefault(way, (partition, []))[1].append(item)
    if waiting and len(groups) > 1:
        [_, (_, [item, *_])] = list(groups.values())[:2]
        raise UnsupportedError(
            "calls that wait for later rows, with different partitions or kinds of frames",
            item.call.span,
            hint="Write one PARTITION BY for LEAD and for frames that end at FOLLOWING, and those of ROWS or of RANGE.",
        )
    for partition, items in groups.values():
        node = over(node, partition, items, block)
    return node


def filtered(node: Filter) -> Filter:
    """Return a filter for the first n > 1 ranks by time, in which a Rank, which updates its result, replaces the Over node.

    A Rank emits the first n rows of a key before the watermark has passed them, and does not store the others. With n = 1 the
    Over stays: it emits the first row once, when it is final, and stores no rows for that.
    """
    below = node.input
    for column, limit in node.predicate.claims.at_most.items():
        if limit > 1:
            below = _as_ranks(below, column)
    return node if below is node.input else replace(node, input=below)


def _as_ranks(node: Node, column: str | None) -> Node:
    match node:
        case Projection():
            below = next((i.expression.column for i in node.items if i.name == column), None)
            new_input = _as_ranks(node.input, below)
        case Filter():
            new_input = _as_ranks(node.input, column)
        case Over(calls=(OverItem(call=call),)) if call.function in RANKS:
            own = call.name == column
            new_input = node.input if own else _as_ranks(node.input, column)
            if own or new_input is not node.input:
                return Rank(
                    new_input,
                    node.name,
                    call.name,
                    call.function,
                    node.keys,
                    node.order,
                    ttl=node.ttl,
                    span=call.span,
                    by_clock=node.by_clock,
                )
        case _:
            return node
    return node if new_input is node.input else replace(node, input=new_input)
