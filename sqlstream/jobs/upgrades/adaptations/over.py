"""OVER with other calls: running results from what is kept or from now on, frames over the rows that are kept."""

from __future__ import annotations

from dataclasses import replace

from sqlstream.jobs.upgrades.adaptations.aggregates import added_calls, kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.calls import merged_parts
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt, Carrying, listed, same_text
from sqlstream.jobs.upgrades.changes import SINCE, Adapted
from sqlstream.operators.over.context import AT
from sqlstream.operators.over.over import ROWS, TOTALS, UNTIL, OverOperator
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord

_FRAMES = "rows in frames"


def adapt_over(old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> Adapted:
    """Return how rows in order are kept for other calls. Raises CannotAdapt."""
    operator = stage.operator
    assert isinstance(operator, OverOperator)
    carrying = Carrying(old, new)
    same_text(carrying.old_shape, carrying.new_shape, ("time to live", _FRAMES))
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
    before, after = (_numbers(shape.settings[_FRAMES]) for shape in (carrying.old_shape, carrying.new_shape))
    if (before["later"], before["following"]) != (after["later"], after["following"]):
        raise CannotAdapt("a row leaves when the rows after it in its frames are known, and those are others now")
    if after["span"] > before["span"] and after["last"]:
        raise CannotAdapt("frames reach further back in time, beside frames of rows: some rows would be in neither")
    return before["span"] + before["later"], after["span"] + after["later"]


def _numbers(text: str) -> dict[str, int]:
    """Return the numbers of a setting such as `span 60000000 later 0 following 2 last 5`."""
    words = text.split()
    return {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}
