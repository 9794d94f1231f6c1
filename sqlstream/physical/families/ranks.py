"""Plans of ranks, in windows and over all rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from sqlstream.duck.sql import TRUE
from sqlstream.duck.types import kind_of
from sqlstream.logical.plan.arrival import has_total_order
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.state_settings import RankState, WindowRankState
from sqlstream.operators.changelog.changelog_operator import ChangelogOperator
from sqlstream.operators.changelog.kept_rows import KeptRows
from sqlstream.operators.changelog.row_results import RankedRows
from sqlstream.operators.groups import ComputedColumns, Groups
from sqlstream.operators.keys import Keys
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.operators.windows.window_rows import Ranking, WindowRows
from sqlstream.physical.batch import keyed, windows
from sqlstream.physical.families.calls import named_keys
from sqlstream.physical.families.declared import InputOrigins, Item
from sqlstream.physical.families.family import OperatorPlan, columns_of, kept_rows
from sqlstream.physical.families.windowed import OverWindowsPlan
from sqlstream.physical.plan import ResultWindows
from sqlstream.units import NO_TIME

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery
    from sqlstream.physical.batch.rows import BatchRows


# The types whose values create_sort_key orders as ORDER BY does; of intervals it tells apart what ORDER BY takes to be equal.
_WITH_KEY = frozenset(
    {"tinyint", "smallint", "integer", "bigint", "hugeint", "decimal", "float", "double", "boolean", "varchar", "uuid"}
    | {"date", "time", "timestamp", "timestamp with time zone"}
)


class WindowRankPlan(OverWindowsPlan[WindowRank]):
    """Plans WindowRank."""

    def _operator(self) -> WindowOperator:
        groups = Groups(_keys(self.node), self._assigner())
        return self._rows(
            "window_rank", WindowRows(groups, columns_of(self.node.input), ranking=_ranking(self.node, windowed=True))
        )

    @property
    def result_windows(self) -> ResultWindows | None:
        window = self.node.window_columns
        return ResultWindows(window) if window is not None else None

    def items(self) -> Iterator[Item]:
        return kept_rows(self.node.input)

    def settings(self, inputs: InputOrigins) -> WindowRankState:
        node = self.node
        return WindowRankState(
            function=node.function,
            order=inputs.order(node.order),
            limit=node.limit,
            windows=inputs.windows(),
            late_rows=node.late_rows,
        )

    def batch(self, query: BatchQuery) -> BatchRows:
        return windows.ranked(query, self.node)


class RankPlan(OperatorPlan[Rank]):
    """Plans Rank."""

    @cached_property
    def operator(self) -> ChangelogOperator:
        node = self.node
        keys = Keys(_keys(node), node.ttl or NO_TIME)
        rows = KeptRows(keys, columns_of(node.input), node.input.is_changelog)
        return ChangelogOperator("rank", keys, RankedRows(rows, _ranking(node, windowed=False), node.passes_arrival))

    def items(self) -> Iterator[Item]:
        return kept_rows(self.node.input)

    def settings(self, inputs: InputOrigins) -> RankState:
        node = self.node
        return RankState(
            function=node.function, order=inputs.order(node.order), limit=node.limit, ttl=node.ttl or NO_TIME
        )

    def batch(self, query: BatchQuery) -> BatchRows:
        node = self.node
        if node.limit == 1 and node.function == "row_number" and not node.ttl and keyed.has_batches(query, node.input):
            return keyed.first_rows(query, node)
        return keyed.ranked(query, node, query.settled(node.input), (), TRUE)


def _ranking(node: Rank | WindowRank, *, windowed: bool) -> Ranking:
    order = tuple(o.sql for o in node.order)
    has_key = all(kind_of(o.type) in _WITH_KEY and " COLLATE " not in o.sql for o in node.order)
    is_total = has_total_order(node, windowed=windowed)
    return Ranking(node.column, node.function, order, node.limit, is_total=is_total, has_key=has_key)


def _keys(node: Rank | WindowRank) -> ComputedColumns:
    return named_keys(node.keys, [f"k{i}" for i in range(len(node.keys))])
