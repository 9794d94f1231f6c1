"""The plan of a process function: the user's code over the rows of each key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from sqlstream.catalog import Column
from sqlstream.duck.sql import Rows, quote_name
from sqlstream.errors import UnsupportedError
from sqlstream.functions import types
from sqlstream.logical.plan.arrival import arrival_of, has_arrival
from sqlstream.logical.plan.expressions import Expression
from sqlstream.logical.plan.process import Process, waits_by_arrival
from sqlstream.logical.plan.state_settings import InputOrder, ProcessState
from sqlstream.operators.process.inputs import InputPlan
from sqlstream.operators.process.operator import ProcessOperator
from sqlstream.physical.branches import branches
from sqlstream.physical.families.declared import ColumnItem, InputOrigins, Item, StateItem
from sqlstream.physical.families.family import FeedingPath, OperatorPlan, state_tables
from sqlstream.physical.row_order import OrderedPlan, arriving
from sqlstream.physical.windows import time_sql

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery
    from sqlstream.physical.batch.rows import BatchRows


class ProcessPlan(OperatorPlan[Process]):
    """Plans Process, the call of a process function."""

    @cached_property
    def operator(self) -> ProcessOperator:
        node = self.node
        for read in node.reads:
            for expression in read.expressions:
                _check_python(expression, node)
        return ProcessOperator(
            node.function,
            tuple(Column(n, k.type) for n, k in zip(node.key_names, node.keys, strict=True)),
            tuple(map(self._input, range(len(node.inputs)))),
            tuple(a.sql for a in node.arguments),
            tuple(node.ttl_of(s) for s in node.function.states),
            node.time_type,
            node.late_rows,
            node.late_reads.inputs if node.late_reads else (),
        )

    def _input(self, index: int) -> InputPlan:
        node, below, read = self.node, self.node.inputs[index], self.node.reads[index]
        return InputPlan(
            f"rows_{index}",
            node.function.tables[index].name,
            tuple(k.column or "" for k in read.keys),
            tuple(k.sql for k in read.keys),
            tuple((Column(i.name, i.expression.type), i.expression.sql) for i in read.columns),
            time_sql(below, read.time) if read.time else None,
            self.arriving(index).columns,
            tuple(map(_sorted_by, read.order[1:])) if read.order else None,
            below.is_changelog,
            read.broadcast,
        )

    def arriving(self, index: int) -> OrderedPlan:
        """Return the input at `index` with the columns of the order of its rows, if the function depends on that order."""
        node, below, read = self.node, self.node.inputs[index], self.node.reads[index]
        if has_arrival(below):
            index_column = arrival_of(below)
            return OrderedPlan(below, (Column(index_column.column or "", index_column.type),))
        whole_buckets = node.function.vectorized == "bucket" and not node.function.ordered
        wants_order = not read.order and (not whole_buckets or read.broadcast)
        return arriving(below) if wants_order and not below.is_changelog else OrderedPlan(below, ())

    def feeds(self) -> list[FeedingPath]:
        return [
            FeedingPath(branch.with_weight() if below.is_changelog else branch, (part,))
            for index, (below, part) in enumerate(zip(self.node.inputs, self.operator.parts, strict=True))
            for branch in branches(self.arriving(index).node)
        ]

    def side_views(self) -> Iterator[tuple[str, Rows]]:
        """Yield the views of lists, maps, timers and rows that wait for their order."""
        return self.operator.more_views(state_tables(self.operator))

    def late_views(self, name: str) -> Iterator[tuple[str, Rows]]:
        return self.operator.late_views(name)

    def items(self) -> Iterator[Item]:
        yield from map(StateItem, self.node.function.states)
        for index, read in enumerate(self.node.reads):
            table = self.node.function.tables[index].name
            yield from (ColumnItem(i.name, i.expression, index, f"{table}.{i.name}") for i in read.columns)

    def settings(self, inputs: InputOrigins) -> ProcessState:
        node, function = self.node, self.node.function
        ttls = ((state.name, node.ttl_of(state)) for state in function.states)
        orders = [self._order(index, inputs) for index in range(len(node.reads))]
        return ProcessState(
            function=function.name,
            state_ttls=tuple((name, ttl) for name, ttl in ttls if ttl),
            inputs=tuple((index, order) for index, order in enumerate(orders) if order != InputOrder()),
            timers=function.has_timers,
            changes=function.changelog_mode,
            outputs=tuple((c.name, c.type) for c in function.outputs) if function.changelog_mode == "upsert" else (),
            late_rows=node.late_rows,
        )

    def _order(self, index: int, inputs: InputOrigins) -> InputOrder:
        read = self.node.reads[index]
        time = inputs.time(read.time, index) if read.time else None
        ties: Literal["columns", "arrival"] = "arrival" if waits_by_arrival(self.node, index) else "columns"
        return InputOrder(inputs.order(read.order, index), time, read.broadcast, ties)

    def batch(self, query: BatchQuery) -> BatchRows:
        return query.output(self.node, "", self.node)


def _sorted_by(item: Expression) -> tuple[Column, str, str]:
    """Return the column of an item of ORDER BY, the SQL that reads it, and the SQL of its direction."""
    assert item.column is not None
    own = quote_name(item.column)
    return Column(item.column, item.type), own, item.sql.removeprefix(own)


def _check_python(expression: Expression, node: Process) -> None:
    """Raise UnsupportedError for a column of a type without values in Python."""
    try:
        types.codec(expression.type)
    except types.UnusableType as error:
        raise UnsupportedError(
            f'column "{expression.column or expression.sql}" of type {expression.type} in {node.label}',
            expression.span or node.span,
            detail=f"{error}.",
            hint="Leave it out, or cast it: TABLE (SELECT CAST(x AS VARCHAR) AS x, .. FROM t).",
        ) from error
