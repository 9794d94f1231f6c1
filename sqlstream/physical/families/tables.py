"""Plans of tables of changes, and of INTERSECT and EXCEPT."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from sqlstream.catalog import Column
from sqlstream.duck.sql import quote_name
from sqlstream.logical.plan.relational import SetOperation
from sqlstream.logical.plan.state_settings import NormalizeState, SetOperationState
from sqlstream.logical.plan.tables import Normalize
from sqlstream.operators.changelog.changelog_operator import ChangelogOperator
from sqlstream.operators.changelog.kept_rows import KeptRows
from sqlstream.operators.changelog.last_rows import LastRows
from sqlstream.operators.changelog.row_results import SetRows
from sqlstream.operators.keys import Keys
from sqlstream.physical.batch import keyed
from sqlstream.physical.families.declared import ColumnItem, InputOrigins, Item
from sqlstream.physical.families.family import OperatorPlan, columns_of, key_columns
from sqlstream.units import NO_TIME

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery
    from sqlstream.physical.batch.rows import BatchRows


class NormalizePlan(OperatorPlan[Normalize]):
    """Plans Normalize."""

    @cached_property
    def operator(self) -> ChangelogOperator:
        node = self.node
        # No time to live: the table keeps a row until the source deletes it.
        keys = Keys(key_columns(node, node.keys))
        return ChangelogOperator("normalize", keys, LastRows(keys, columns_of(node), node.time_attribute))

    def items(self) -> Iterator[Item]:
        return (ColumnItem.of(field) for field in self.node.schema if field.name not in self.node.keys)

    def settings(self, inputs: InputOrigins) -> NormalizeState:
        return NormalizeState()

    def batch(self, query: BatchQuery) -> BatchRows:
        return keyed.normalized(query, self.node)


class SetOperationPlan(OperatorPlan[SetOperation]):
    """Plans SetOperation: INTERSECT and EXCEPT."""

    @cached_property
    def operator(self) -> ChangelogOperator:
        node = self.node
        keys = Keys(tuple((Column(f.name, f.type), quote_name(f.name)) for f in node.schema), node.ttl or NO_TIME)
        rows = KeptRows(keys, (Column(node.side, "INTEGER"),), node.input.is_changelog)
        return ChangelogOperator(node.function, keys, SetRows(rows, node.function, node.distinct))

    def items(self) -> Iterator[Item]:
        return (ColumnItem.of(field) for field in self.node.input.schema if field.name == self.node.side)

    def settings(self, inputs: InputOrigins) -> SetOperationState:
        node = self.node
        return SetOperationState(function=node.function, distinct=node.distinct, ttl=node.ttl or NO_TIME)

    def batch(self, query: BatchQuery) -> BatchRows:
        return keyed.set_operation(query, self.node)
