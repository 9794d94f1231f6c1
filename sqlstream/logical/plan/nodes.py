"""All nodes of a plan. A `match` over one of these unions ends with `assert_never`: mypy then names a node that it forgets."""

from __future__ import annotations

from typing import cast

from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, SetOperation, Union
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import Normalize, ResultSink, Scan
from sqlstream.logical.plan.windows import CountWindows, SessionWindow, TimeWindows

# They emit what is final, once: rows that a window has collected, also where the input is a changelog.
Windowed = SessionWindow | WindowAggregate | WindowRank
# They emit what is so now, and change it.
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
    | TimeWindows
    | Expand
    | Lateral
    | LookupJoin
    | SideOutputRead
    | LateRows
    | Stateful
    | Union
    | ResultSink
)


def closed(node: Node) -> AnyNode:
    """Return a node as one of all that there are, for a `match` that must know each of them."""
    return cast(AnyNode, node)


def known(node: StatefulNode) -> Stateful:
    """Return a node that keeps state as one of all that there are, for a `match` that must know each of them."""
    return cast(Stateful, node)
