"""Unions of all kinds of nodes. A `match` over one of them ends with `assert_never`: mypy then names a missing node."""

from __future__ import annotations

from typing import cast

from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.count_windows import CountWindows
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.month_windows import MonthWindows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, SetOperation, Union
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import Normalize, ResultSink, Scan
from sqlstream.logical.plan.windows import RegularWindows, SessionWindow

# They assign rows to windows by the times of the rows.
AnyTimeWindows = RegularWindows | MonthWindows
# They emit final results of windows; also if the input is a changelog.
Windowed = SessionWindow | WindowAggregate | WindowRank
# They emit a result at once, and update it.
Changing = Normalize | Aggregate | Rank | SetOperation
# They emit every row once, in the order of time.
InOrder = Over | Sort
Joins = Join | IntervalJoin | TemporalJoin
# They keep state from one batch to the next.
Stateful = Windowed | CountWindows | Changing | InOrder | Joins | Process
AnyNode = (
    Scan
    | Filter
    | Projection
    | AnyTimeWindows
    | Expand
    | Lateral
    | LookupJoin
    | SideOutputRead
    | LateRows
    | Stateful
    | Union
    | ResultSink
)


def as_any_node(node: Node) -> AnyNode:
    """Return the same node, typed as the union of all nodes, for an exhaustive `match`."""
    return cast(AnyNode, node)


def as_stateful(node: StatefulNode) -> Stateful:
    """Return the same node, typed as the union of all stateful nodes, for an exhaustive `match`."""
    return cast(Stateful, node)
