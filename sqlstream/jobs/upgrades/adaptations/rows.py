"""Operators that keep rows with other columns: Top-N, the rows of a table with a key, windows of so many rows, rows in order."""

from __future__ import annotations

import re

from sqlstream.jobs.upgrades.adaptations.aggregates import kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt, Carrying, listed, same_text
from sqlstream.jobs.upgrades.adaptations.windows import n_notes
from sqlstream.jobs.upgrades.changes import Adapted
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord

_MAY_DIFFER = ("time to live", "n")
# Between items of ORDER BY, but for those behind which there is a call; and what stands behind the value of one.
_ORDERED = re.compile(r", (?![^(]*\))")
_DIRECTION = re.compile(r"(?: ASC| DESC)?(?: NULLS (?:FIRST|LAST))?$")


def adapt_rows(old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> Adapted:
    """Return how kept rows get other columns, or another number of them counts. Raises CannotAdapt."""
    carrying = Carrying(old, new)
    same_text(carrying.old_shape, carrying.new_shape, _MAY_DIFFER)
    changing = carrying.new_shape.settings.get("changes below") and carrying.new_shape.operator != "Normalize"
    if changing and carrying.added:
        raise CannotAdapt(f"the column {listed(carrying.added)} was not kept, and rows without it may be taken back")
    limits = [shape.settings.get("n") for shape in (carrying.old_shape, carrying.new_shape)]
    is_smaller = limits[1] is not None and (limits[0] is None or int(limits[1]) < int(limits[0]))
    if is_smaller and changing:
        raise CannotAdapt(
            f"rows beyond the best {limits[1]} were emitted, and would have to be taken back; filter the table that is written"
        )
    if (limits[0] != "1" or changing) and (column := _breaks_ties(carrying)) is not None:
        raise CannotAdapt(
            f'rows that are equal in the order were numbered by "{column}" next, and would be numbered otherwise: '
            "numbers that were emitted would have to be taken back"
        )
    notes = [*carrying.widened(), *carrying.recomputed_below(), *ttl_notes(carrying)]
    if changing and limits[0] != limits[1]:
        notes.append(f"n: was {limits[0] or 'all'}, is {limits[1] or 'all'}; all rows are kept")
    elif is_smaller:
        notes.append(
            f"n: was {limits[0] or 'all'}, is {limits[1]}; of a key the rows beyond that are taken back when its next row comes"
        )
    else:
        notes += n_notes(carrying)
    notes += [*kept_columns_note(carrying.added), *removed_notes(carrying)]
    return Adapted(new.name, old.name, tuple(notes), carrying.tables())


def _breaks_ties(carrying: Carrying) -> str | None:
    """Return the first column by which equal rows were numbered, and would not be now: numbers that were given would change.

    ROW_NUMBER goes on with all columns in their order. A column that is new is NULL in all rows so far.
    """
    if carrying.old_shape.settings.get("function") != "row_number":
        return None
    # What is the same in rows that are equal in the order decides nothing.
    items = _ORDERED.split(carrying.old_shape.settings.get("order", ""))
    same = {key.value for key in carrying.old_shape.keys} | {_DIRECTION.sub("", item) for item in items}
    before = [item for item in carrying.old_shape.items if item.value not in same]
    after = [pair.old for pair in carrying.items if pair.old.value not in same]
    return next((b.name for b, a in zip(before, after, strict=False) if b != a), None)
