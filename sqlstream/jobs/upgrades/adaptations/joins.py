"""Joins that keep other columns of their inputs, for another time, or within another interval."""

from __future__ import annotations

import re
from dataclasses import replace

from sqlstream.duck.clock import NOW
from sqlstream.jobs.upgrades.adaptations.aggregates import kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt, Carrying, same_text
from sqlstream.jobs.upgrades.changes import Adapted
from sqlstream.operators.joins.interval_join import AT, UNTIL, IntervalJoinOperator
from sqlstream.operators.joins.regular_join import RegularJoin
from sqlstream.operators.keyed_state import AT as TOUCHED_AT
from sqlstream.operators.operator import Operator
from sqlstream.physical.plan import StatefulStage
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import Duration, duration
from sqlstream.warehouse.jobs import OperatorRecord

_INTERVAL = re.compile(r"(-?\d+) before to (-?\d+) after")


def adapt_join(old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> Adapted:
    """Return how the inputs of a join are kept otherwise. Raises CannotAdapt."""
    carrying, operator = Carrying(old, new), stage.operator
    inputs = range(len(operator.parts))
    allowed = ["interval", *(f"time to live of input {place}" for place in inputs)]
    final = carrying.new_shape.settings.get("join") == "inner" and not _changing(carrying)
    same_text(carrying.old_shape, carrying.new_shape, [*allowed, *(["condition"] if final else [])])
    for item in carrying.added:
        if carrying.new_shape.settings.get(f"changes of input {item.input}") and not _has_versions(operator):
            raise CannotAdapt(f'the column "{item.name}" was not kept, and rows without it may be taken back')
    notes = [*carrying.widened(), *carrying.recomputed_below(), *ttl_notes(carrying)]
    made: dict[tuple[str, str], str] = {}
    sources: dict[str, str] = {}
    if isinstance(operator, IntervalJoinOperator):
        made, said = _interval(carrying, operator)
        notes += said
    elif isinstance(operator, RegularJoin):
        sources = _new_clocks(carrying, operator)
        made = {(table, TOUCHED_AT.name): f"epoch_ms({NOW})" for table in sources}
        made |= {(table, WEIGHT): "1" for table in sources}
    settings = [shape.settings.get("condition") for shape in (carrying.old_shape, carrying.new_shape)]
    if settings[0] != settings[1]:
        notes.append(f"ON: was {settings[0] or 'true'}, is {settings[1] or 'true'}; pairs so far stay as they are")
    notes += [*kept_columns_note(carrying.added), *removed_notes(carrying)]
    tables = replace(carrying, made=made, sources=sources).tables()
    tables |= {name: f"SELECT DISTINCT * FROM ({tables[name]})" for name in sources}
    return Adapted(new.name, old.name, tuple(notes), tables)


def _has_versions(operator: Operator) -> bool:
    """Tell whether changes of an input are versions: those that are kept are not taken back by their columns."""
    return not isinstance(operator, RegularJoin | IntervalJoinOperator)


def _changing(carrying: Carrying) -> bool:
    return any(name.startswith("changes") for name in carrying.new_shape.settings)


def _interval(carrying: Carrying, operator: IntervalJoinOperator) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return the SQL of how long rows stay, and sentences. Raises CannotAdapt."""
    before, after = (_bounds(shape.settings["interval"]) for shape in (carrying.old_shape, carrying.new_shape))
    if before == after:
        return {}, []
    if operator.join not in ("inner", "semi"):
        raise CannotAdapt("rows without a match have left after another interval")
    # As the operator makes it of new rows.
    stay = operator.before + operator.after
    waits = {"left": max(stay, operator.after), "right": max(stay, operator.before)}
    made = {(side, UNTIL.name): f"{AT.name} + {max(wait, 0)}" for side, wait in waits.items()}
    notes = [f"interval: was {_said(before)}, is {_said(after)}; pairs so far stay as they are"]
    if sum(after) > sum(before):
        notes.append(f"rows were kept for {duration(Duration(sum(before)))}: older ones are missing at first")
    return made, notes


def _bounds(text: str) -> tuple[int, int]:
    found = _INTERVAL.fullmatch(text)
    assert found is not None
    return int(found[1]), int(found[2])


def _said(bounds: tuple[int, int]) -> str:
    texts = [f"-{duration(Duration(-b))}" if b < 0 else duration(Duration(b)) for b in bounds]
    return f"{texts[0]} before to {texts[1]} after"


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
