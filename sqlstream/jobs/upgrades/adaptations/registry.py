"""The adaptations of all kinds of operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, assert_never

from sqlstream.jobs.upgrades.adaptations.adaptation import Adaptation
from sqlstream.jobs.upgrades.adaptations.aggregates import AggregateAdaptation
from sqlstream.jobs.upgrades.adaptations.joins import IntervalJoinAdaptation, JoinAdaptation, TemporalJoinAdaptation
from sqlstream.jobs.upgrades.adaptations.over import OverAdaptation
from sqlstream.jobs.upgrades.adaptations.process import ProcessAdaptation
from sqlstream.jobs.upgrades.adaptations.rows import (
    CountWindowsAdaptation,
    NormalizeAdaptation,
    RankAdaptation,
    SetOperationAdaptation,
    SortAdaptation,
)
from sqlstream.jobs.upgrades.adaptations.transfer import CannotAdapt
from sqlstream.jobs.upgrades.adaptations.windows import (
    SessionWindowAdaptation,
    WindowAggregateAdaptation,
    WindowRankAdaptation,
)
from sqlstream.jobs.upgrades.changes import SINCE, AdaptedOperator, KeptOperator, UnadaptableOperator
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.logical.plan.state_settings import (
    AggregateState,
    AnyState,
    CountWindowsState,
    IntervalJoinState,
    JoinState,
    NormalizeState,
    OverState,
    ProcessState,
    RankState,
    SessionWindowState,
    SetOperationState,
    SortState,
    TemporalJoinState,
    WindowAggregateState,
    WindowRankState,
)
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord

# Takes the recorded operator of a job, its record in the new plan, and its stage there.
Adapter: TypeAlias = Callable[
    [OperatorRecord, OperatorRecord, StatefulStage], KeptOperator | AdaptedOperator | UnadaptableOperator
]


def adapted(old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> AdaptedOperator | UnadaptableOperator:
    """Return how an operator takes over the state of a recorded operator of its kind with another shape, or why it cannot."""
    assert old.shape is not None
    assert new.shape is not None
    before, after = settings_of(old.shape), settings_of(new.shape)
    try:
        adaptation = _adaptation(after)(before, after, old, new, stage)
        change = adaptation.adapted()
        note = (f"ties: by arrival {SINCE}",) if adaptation.transfer.gains_arrival else ()
        return replace(change, notes=(*change.notes, *note))
    except CannotAdapt as reason:
        return UnadaptableOperator(new.name, str(reason))


def _adaptation(settings: AnyState) -> type[Adaptation[Any]]:
    match settings:
        case SessionWindowState():
            return SessionWindowAdaptation
        case CountWindowsState():
            return CountWindowsAdaptation
        case WindowAggregateState():
            return WindowAggregateAdaptation
        case AggregateState():
            return AggregateAdaptation
        case WindowRankState():
            return WindowRankAdaptation
        case RankState():
            return RankAdaptation
        case OverState():
            return OverAdaptation
        case SortState():
            return SortAdaptation
        case JoinState():
            return JoinAdaptation
        case IntervalJoinState():
            return IntervalJoinAdaptation
        case TemporalJoinState():
            return TemporalJoinAdaptation
        case NormalizeState():
            return NormalizeAdaptation
        case SetOperationState():
            return SetOperationAdaptation
        case ProcessState():
            return ProcessAdaptation
        case _:
            assert_never(settings)
