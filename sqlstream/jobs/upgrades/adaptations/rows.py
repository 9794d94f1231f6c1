"""Operators that keep rows with other columns: Top-N, the rows of a table with a key, windows of so many rows, rows in order."""

from __future__ import annotations

from sqlstream.jobs.upgrades.adaptations.aggregates import kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt, Carrying, listed, same_text
from sqlstream.jobs.upgrades.adaptations.windows import n_notes
from sqlstream.jobs.upgrades.changes import Adapted
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord

_MAY_DIFFER = ("time to live", "n")


def adapt_rows(old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> Adapted:
    """Return how kept rows get other columns, or another number of them counts. Raises CannotAdapt."""
    carrying = Carrying(old, new)
    same_text(carrying.old_shape, carrying.new_shape, _MAY_DIFFER)
    changing = carrying.new_shape.settings.get("changes below") and carrying.new_shape.operator != "Normalize"
    if changing and carrying.added:
        raise CannotAdapt(f"the column {listed(carrying.added)} was not kept, and rows without it may be taken back")
    limits = [shape.settings.get("n") for shape in (carrying.old_shape, carrying.new_shape)]
    if limits[1] is not None and (limits[0] is None or int(limits[1]) < int(limits[0])):
        raise CannotAdapt(
            f"rows beyond the best {limits[1]} were emitted, and would have to be taken back; filter the table that is written"
        )
    notes = [*carrying.widened(), *carrying.recomputed_below(), *ttl_notes(carrying)]
    if changing and limits[0] != limits[1]:
        notes.append(f"n: was {limits[0] or 'all'}, is {limits[1] or 'all'}; all rows are kept")
    else:
        notes += n_notes(carrying)
    notes += [*kept_columns_note(carrying.added), *removed_notes(carrying)]
    return Adapted(new.name, old.name, tuple(notes), carrying.tables())
