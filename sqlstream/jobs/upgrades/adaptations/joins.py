"""Joins that keep other columns of their inputs, for another time, or within another interval."""

from __future__ import annotations

from dataclasses import replace

from sqlstream.duck.clock import NOW
from sqlstream.jobs.upgrades.adaptations.aggregates import kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt, Carrying
from sqlstream.jobs.upgrades.changes import Adapted
from sqlstream.jobs.upgrades.settings_words import interval_words
from sqlstream.logical.plan.state_settings import AnyState, Interval, IntervalJoinState, JoinState, TemporalJoinState
from sqlstream.operators.joins.interval_join import AT, UNTIL, IntervalJoinOperator
from sqlstream.operators.joins.regular_join import RegularJoin
from sqlstream.operators.keyed_state import AT as TOUCHED_AT
from sqlstream.operators.operator import Operator
from sqlstream.physical.plan import StatefulStage
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import duration
from sqlstream.warehouse.jobs import OperatorRecord


def adapt_join(old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> Adapted:
    """Return how the inputs of a join are kept otherwise. Raises CannotAdapt."""
    carrying, operator = Carrying(old, new), stage.operator
    before, after = _settings(carrying.old_settings), _settings(carrying.new_settings)
    final = after.join == "inner" and not after.changing
    carrying.check_settings(("interval", "ttls", *(("condition",) if final else ())))
    for item in carrying.added:
        if item.input in after.changing and not _has_versions(operator):
            raise CannotAdapt(f'the column "{item.name}" was not kept, and rows without it may be taken back')
    notes = [*carrying.widened(), *carrying.recomputed_below(), *ttl_notes(carrying)]
    made: dict[tuple[str, str], str] = {}
    sources: dict[str, str] = {}
    if isinstance(operator, IntervalJoinOperator):
        assert isinstance(before, IntervalJoinState)
        assert isinstance(after, IntervalJoinState)
        made, said = _interval(before.interval, after.interval, operator)
        notes += said
    elif isinstance(operator, RegularJoin):
        sources = _new_clocks(carrying, operator)
        made = {(table, TOUCHED_AT.name): f"epoch_ms({NOW})" for table in sources}
        made |= {(table, WEIGHT): "1" for table in sources}
    if before.condition != after.condition:
        was, now = (one.condition.text if one.condition is not None else "true" for one in (before, after))
        notes.append(f"ON: was {was}, is {now}; pairs so far stay as they are")
    notes += [*kept_columns_note(carrying.added), *removed_notes(carrying)]
    tables = replace(carrying, made=made, sources=sources).tables()
    tables |= {name: f"SELECT DISTINCT * FROM ({tables[name]})" for name in sources}
    return Adapted(new.name, old.name, tuple(notes), tables)


def _has_versions(operator: Operator) -> bool:
    """Tell whether changes of an input are versions: those that are kept are not taken back by their columns."""
    return not isinstance(operator, RegularJoin | IntervalJoinOperator)


def _settings(settings: AnyState) -> JoinState | IntervalJoinState | TemporalJoinState:
    assert isinstance(settings, JoinState | IntervalJoinState | TemporalJoinState)
    return settings


def _interval(
    before: Interval, after: Interval, operator: IntervalJoinOperator
) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return the SQL of how long rows stay, and sentences. Raises CannotAdapt."""
    if before == after:
        return {}, []
    if operator.join not in ("inner", "semi"):
        raise CannotAdapt("rows without a match have left after another interval")
    # As the operator makes it of new rows.
    stay = operator.before + operator.after
    waits = {"left": max(stay, operator.after), "right": max(stay, operator.before)}
    made = {(side, UNTIL.name): f"{AT.name} + {max(wait, 0)}" for side, wait in waits.items()}
    notes = [f"interval: was {interval_words(before)}, is {interval_words(after)}; pairs so far stay as they are"]
    if after.length > before.length:
        notes.append(f"rows were kept for {duration(before.length)}: older ones are missing at first")
    return made, notes


def _new_clocks(carrying: Carrying, operator: RegularJoin) -> dict[str, str]:
    """Return the rows of which the tables of keys are made that inputs with a new time to live have. Raises CannotAdapt."""
    known, wanted = ({table.name for table in record.tables} for record in (carrying.old, carrying.new))
    if any(name.startswith("alone_") for name in known ^ wanted):
        raise CannotAdapt(
            "of an outer join it is kept which rows have no match only where rows of the other side are forgotten"
        )
    added = sorted(wanted - known)
    if added and not operator.matching.key_names:
        raise CannotAdapt("rows without a key cannot be forgotten by it")
    return {name: f"rows_{name.removeprefix('keys_')}" for name in added}
