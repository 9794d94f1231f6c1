"""Which kinds of operators can be adapted to another shape, and by what.

An adaptation is a pure function of the operator as the job recorded it, and as the new plan would record it, both with their
shapes, and of its stage in that plan. It is asked only where the two are of one kind and their shapes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from sqlstream.jobs.upgrades.adaptations.aggregates import adapt_aggregate
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt
from sqlstream.jobs.upgrades.adaptations.joins import adapt_join
from sqlstream.jobs.upgrades.adaptations.over import adapt_over
from sqlstream.jobs.upgrades.adaptations.process import adapt_process
from sqlstream.jobs.upgrades.adaptations.rows import adapt_rows
from sqlstream.jobs.upgrades.adaptations.windows import adapt_windows
from sqlstream.jobs.upgrades.changes import Adapted, Kept, NotAdaptable
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord

Adaptation: TypeAlias = Callable[[OperatorRecord, OperatorRecord, StatefulStage], Kept | Adapted | NotAdaptable]
_Family: TypeAlias = Callable[[OperatorRecord, OperatorRecord, StatefulStage], Adapted]

_FAMILIES: Mapping[str, _Family] = {
    "Aggregate": adapt_aggregate,
    **dict.fromkeys(("WindowAggregate", "WindowRank", "SessionWindow"), adapt_windows),
    **dict.fromkeys(("Rank", "Normalize", "SetOperation", "CountWindows", "Sort"), adapt_rows),
    **dict.fromkeys(("Join", "IntervalJoin", "TemporalJoin"), adapt_join),
    "Over": adapt_over,
    "Process": adapt_process,
}


def _adapt(family: _Family, old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> Adapted | NotAdaptable:
    """Return how an operator becomes another one, or why it cannot."""
    try:
        return family(old, new, stage)
    except CannotAdapt as reason:
        return NotAdaptable(new.name, old.name, str(reason))


# By `OperatorShape.operator`.
ADAPTATIONS: Mapping[str, Adaptation] = {kind: partial(_adapt, family) for kind, family in _FAMILIES.items()}
