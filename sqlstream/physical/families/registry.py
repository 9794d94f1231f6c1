"""The plan class of each kind of stateful node."""

from __future__ import annotations

from typing import Any, assert_never

from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.count_windows import CountWindows
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import SetOperation
from sqlstream.logical.plan.tables import Normalize
from sqlstream.logical.plan.windows import SessionWindow
from sqlstream.physical.families.aggregates import AggregatePlan, WindowAggregatePlan
from sqlstream.physical.families.family import OperatorPlan
from sqlstream.physical.families.joins import IntervalJoinPlan, JoinPlan, TemporalJoinPlan
from sqlstream.physical.families.over import OverPlan, SortPlan
from sqlstream.physical.families.process import ProcessPlan
from sqlstream.physical.families.ranks import RankPlan, WindowRankPlan
from sqlstream.physical.families.tables import NormalizePlan, SetOperationPlan
from sqlstream.physical.families.windows import CountWindowsPlan, SessionWindowPlan


def operator_plan(node: Stateful) -> OperatorPlan[Any]:
    """Return the plan of a stateful node."""
    match node:
        case SessionWindow():
            return SessionWindowPlan(node)
        case CountWindows():
            return CountWindowsPlan(node)
        case WindowAggregate():
            return WindowAggregatePlan(node)
        case Aggregate():
            return AggregatePlan(node)
        case WindowRank():
            return WindowRankPlan(node)
        case Rank():
            return RankPlan(node)
        case Over():
            return OverPlan(node)
        case Sort():
            return SortPlan(node)
        case Join():
            return JoinPlan(node)
        case IntervalJoin():
            return IntervalJoinPlan(node)
        case TemporalJoin():
            return TemporalJoinPlan(node)
        case Normalize():
            return NormalizePlan(node)
        case SetOperation():
            return SetOperationPlan(node)
        case Process():
            return ProcessPlan(node)
        case _:
            assert_never(node)
