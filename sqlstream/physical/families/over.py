"""Plans of operators that emit rows in the order of time: calls with OVER, and ORDER BY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from sqlstream.logical.plan.arrival import has_total_order
from sqlstream.logical.plan.expressions import Expression, arrived, declared
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.state_settings import OverState, SortState
from sqlstream.operators.over.over import OverOperator
from sqlstream.physical.batch import ordered
from sqlstream.physical.families.calls import named_keys, over_calls_of
from sqlstream.physical.families.declared import CallItem, InputOrigins, Item
from sqlstream.physical.families.family import OperatorPlan, columns_of, kept_rows
from sqlstream.physical.windows import order_time
from sqlstream.units import NO_TIME

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery
    from sqlstream.physical.batch.rows import BatchRows


class OverPlan(OperatorPlan[Over]):
    """Plans Over."""

    @cached_property
    def operator(self) -> OverOperator:
        node = self.node
        return OverOperator(
            named_keys(node.keys, [k.column or f"key_{i}" for i, k in enumerate(node.keys, 1)]),
            columns_of(node.input),
            order_time(node.input, node.time, by_instant=node.by_clock),
            _sqls(declared(node.order)[1:]),
            over_calls_of(node.calls),
            node.by_clock,
            ttl=node.ttl or NO_TIME,
            emits_late=node.late_reads is not None,
            tie_breakers=_sqls(arrived(node.order)),
            is_total=has_total_order(node),
            zone=node.zone,
        )

    def items(self) -> Iterator[Item]:
        yield from kept_rows(self.node.input)
        yield from (CallItem(one.call, one.manner) for one in self.node.calls)

    def settings(self, inputs: InputOrigins) -> OverState:
        node = self.node
        return OverState(
            time=inputs.time(node.time),
            order=inputs.order(node.order),
            by_clock=node.by_clock,
            reach=self.operator.reach,
            ttl=node.ttl or NO_TIME,
            zone=node.zone,
        )

    def batch(self, query: BatchQuery) -> BatchRows:
        return ordered.over_rows(query, self.node)


class SortPlan(OperatorPlan[Sort]):
    """Plans Sort: an OVER operator without calls."""

    @cached_property
    def operator(self) -> OverOperator:
        node = self.node
        time, order = order_time(node.input, node.time, by_instant=node.by_clock), _sqls(declared(node.order)[1:])
        tie_breakers = _sqls(arrived(node.order))
        columns, is_total = columns_of(node.input), has_total_order(node)
        return OverOperator(
            (), columns, time, order, by_clock=node.by_clock, sorts=True, tie_breakers=tie_breakers, is_total=is_total
        )

    def items(self) -> Iterator[Item]:
        return kept_rows(self.node.input)

    def settings(self, inputs: InputOrigins) -> SortState:
        node, reach = self.node, self.operator.reach
        return SortState(
            time=inputs.time(node.time), order=inputs.order(node.order), by_clock=node.by_clock, reach=reach
        )

    def batch(self, query: BatchQuery) -> BatchRows:
        return ordered.passed(query, self.node)


def _sqls(items: Iterable[Expression]) -> tuple[str, ...]:
    return tuple(item.sql for item in items)
