"""Plans of joins: regular joins, interval joins and temporal joins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import structs

from sqlstream.duck.sql import Condition, Rows
from sqlstream.duck.time_variables import reached
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.nodes import Joins
from sqlstream.logical.plan.state_settings import Interval, IntervalJoinState, JoinState, Sql, TemporalJoinState
from sqlstream.operators.joins.interval_join import IntervalJoinOperator
from sqlstream.operators.joins.matching import JoinCondition
from sqlstream.operators.joins.regular_join import RegularJoin
from sqlstream.operators.joins.temporal_join import TemporalJoinOperator
from sqlstream.physical.batch import joins
from sqlstream.physical.branches import Branch, branches
from sqlstream.physical.families.declared import InputOrigins, Item
from sqlstream.physical.families.family import FeedingPath, OperatorPlan, columns_of, kept_rows, state_tables
from sqlstream.physical.windows import time_sql
from sqlstream.units import NO_TIME
from sqlstream.warehouse.declarations import ExpiringState

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery
    from sqlstream.physical.batch.rows import BatchRows

J = TypeVar("J", bound=Joins)


class JoinedPlan(OperatorPlan[J]):
    """The plan of a join; each input of the node feeds one part of the operator."""

    def feeds(self) -> list[FeedingPath]:
        return [
            FeedingPath(_with_changes(branch, is_changelog=below.is_changelog), (part,))
            for below, part in zip(self.node.inputs, self.operator.parts, strict=True)
            for branch in branches(below)
        ]

    @property
    def input_names(self) -> tuple[str, ...]:
        """The aliases of the inputs in the query; "left" or "right" for an input without one."""
        return tuple(alias or ("left", "right")[index] for index, alias in enumerate(self.node.aliases))

    def side_views(self) -> Iterator[tuple[str, Rows]]:
        operator = self.operator
        views = operator.side_views(state_tables(operator), reached(self.node.delay_below))
        return zip(self.input_names, views, strict=True)

    def items(self) -> Iterator[Item]:
        for index, below in enumerate(self.node.inputs):
            yield from kept_rows(below, index)

    @property
    def _matching(self) -> JoinCondition:
        node = self.node
        keys = tuple((pair[0].type, tuple(k.sql for k in pair)) for pair in zip(*node.keys, strict=True))
        condition = Condition(node.condition.sql) if node.condition else None
        return JoinCondition(keys, tuple(columns_of(below) for below in node.inputs), condition)


def _with_changes(branch: Branch, *, is_changelog: bool) -> Branch:
    """Return a path into a join, with weights if its input is a changelog."""
    return branch.with_weight() if is_changelog and not branch.ordered else branch


class JoinPlan(JoinedPlan[Join]):
    """Plans Join."""

    @cached_property
    def operator(self) -> RegularJoin:
        node = self.node
        changing = tuple(below.is_changelog for below in node.inputs)
        return RegularJoin(self._matching, node.kind, changing, tuple(ttl or NO_TIME for ttl in node.ttls))

    @property
    def remembered(self) -> tuple[ExpiringState, ...]:
        """The rows of each input, which a time to live bounds or could bound, under the name of the input."""
        pairs = zip(self.operator.remembered, self.input_names, strict=True)
        return tuple(structs.replace(one, name=name) for one, name in pairs)

    def settings(self, inputs: InputOrigins) -> JoinState:
        ttls = tuple((index, ttl) for index, ttl in enumerate(self.node.ttls) if ttl)
        return JoinState(join=self.node.kind, condition=inputs.condition(self.node.condition), ttls=ttls)

    def batch(self, query: BatchQuery) -> BatchRows:
        return joins.regular(query, self.node)


class IntervalJoinPlan(JoinedPlan[IntervalJoin]):
    """Plans IntervalJoin."""

    @cached_property
    def operator(self) -> IntervalJoinOperator:
        node = self.node
        left_time, right_time = (time_sql(below, time) for below, time in zip(node.inputs, node.times, strict=True))
        late = node.late_reads.inputs if node.late_reads else ()
        return IntervalJoinOperator(
            self._matching, node.kind, (left_time, right_time), node.before, node.after, late, node.kept_back
        )

    def settings(self, inputs: InputOrigins) -> IntervalJoinState:
        node = self.node
        return IntervalJoinState(
            join=node.kind,
            condition=inputs.condition(node.condition),
            times=_times(node, inputs),
            interval=Interval(node.before, node.after),
        )

    def batch(self, query: BatchQuery) -> BatchRows:
        return joins.interval(query, self.node)


class TemporalJoinPlan(JoinedPlan[TemporalJoin]):
    """Plans TemporalJoin."""

    @cached_property
    def operator(self) -> TemporalJoinOperator:
        node = self.node
        left_time, right_time = (time_sql(below, time) for below, time in zip(node.inputs, node.times, strict=True))
        late = node.late_reads.inputs if node.late_reads else ()
        return TemporalJoinOperator(
            self._matching, node.kind, (left_time, right_time), node.inputs[1].is_changelog, late
        )

    def settings(self, inputs: InputOrigins) -> TemporalJoinState:
        condition, times = inputs.condition(self.node.condition), _times(self.node, inputs)
        ties: Literal["columns", "arrival"] = "arrival" if self.node.by_arrival else "columns"
        return TemporalJoinState(join=self.node.kind, condition=condition, times=times, ties=ties)

    def batch(self, query: BatchQuery) -> BatchRows:
        return joins.temporal(query, self.node)


def _times(node: IntervalJoin | TemporalJoin, inputs: InputOrigins) -> tuple[Sql, ...]:
    """Return the times of the inputs."""
    return tuple(inputs.time(time, index) for index, time in enumerate(node.times))
