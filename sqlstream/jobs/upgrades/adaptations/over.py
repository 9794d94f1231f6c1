"""OVER with other calls: running results from what is kept or from now on, frames over the rows that are kept."""

from __future__ import annotations

from dataclasses import replace

from sqlstream.jobs.upgrades.adaptations.aggregates import added_calls, kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.calls import merged_parts
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt, Carrying, listed
from sqlstream.jobs.upgrades.changes import SINCE, Adapted
from sqlstream.logical.plan.state_settings import OverState
from sqlstream.operators.over.context import AT
from sqlstream.operators.over.over import ROWS, TOTALS, UNTIL, OverOperator
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord


def adapt_over(old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> Adapted:
    """Return how rows in order are kept for other calls. Raises CannotAdapt."""
    operator = stage.operator
    assert isinstance(operator, OverOperator)
    carrying = Carrying(old, new)
    carrying.check_settings(("ttl", "reach"))
    notes = [*carrying.widened(), *carrying.recomputed_below(), *ttl_notes(carrying)]
    running = {call.name: call.call for call in operator.calls if call.runs}
    made, said = added_calls(carrying, running, TOTALS, merged_parts)
    notes += said
    framed = [item for item in carrying.added if item.kind == "aggregate" and item.name not in running]
    if framed:
        notes.append(f"{listed(framed)}: over the rows that are kept so far, and all that come {SINCE}")
    before, after = _reaches(carrying)
    if before != after:
        made[ROWS, UNTIL] = f"{AT} + {after + 1}"
    notes += [*kept_columns_note(carrying.added), *removed_notes(carrying)]
    return Adapted(new.name, old.name, tuple(notes), replace(carrying, made=made).tables())


def _reaches(carrying: Carrying) -> tuple[int, int]:
    """Return how long rows stay for the old frames, and for the new ones. Raises CannotAdapt."""
    old, new = carrying.old_settings, carrying.new_settings
    assert isinstance(old, OverState)
    assert isinstance(new, OverState)
    before, after = old.reach, new.reach
    if (before.later, before.following) != (after.later, after.following):
        raise CannotAdapt("a row leaves when the rows after it in its frames are known, and those are others now")
    if after.span > before.span and after.last != 0:
        raise CannotAdapt("frames reach further back in time, beside frames of rows: some rows would be in neither")
    return before.span + before.later, after.span + after.later
