"""Operators that keep rows with other columns: Top-N, the rows of a table with a key, windows of so many rows, rows in order."""

from __future__ import annotations

import re

from sqlstream.jobs.upgrades.adaptations.aggregates import kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt, Carrying, listed
from sqlstream.jobs.upgrades.adaptations.windows import limit_of, limit_words, n_notes
from sqlstream.jobs.upgrades.changes import Adapted
from sqlstream.jobs.upgrades.forms import key_form, text_form, value_form
from sqlstream.logical.plan.state_settings import NormalizeState, RankState
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord

# What stands behind the value of an item of ORDER BY.
_DIRECTION = re.compile(r"(?: ASC| DESC)?(?: NULLS (?:FIRST|LAST))?$")


def adapt_rows(old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> Adapted:
    """Return how kept rows get other columns, or another number of them counts. Raises CannotAdapt."""
    carrying = Carrying(old, new)
    carrying.check_settings(("ttl", "limit"))
    old_settings, new_settings = carrying.old_settings, carrying.new_settings
    changing = bool(new_settings.changing) and not isinstance(new_settings, NormalizeState)
    if changing and carrying.added:
        raise CannotAdapt(f"the column {listed(carrying.added)} was not kept, and rows without it may be taken back")
    before, after = limit_of(old_settings), limit_of(new_settings)
    is_smaller = after is not None and (before is None or after < before)
    if is_smaller and changing:
        raise CannotAdapt(
            f"rows beyond the best {after} were emitted, and would have to be taken back; filter the table that is written"
        )
    if (before != 1 or changing) and (column := _breaks_ties(carrying)) is not None:
        raise CannotAdapt(
            f'rows that are equal in the order were numbered by "{column}" next, and would be numbered otherwise: '
            "numbers that were emitted would have to be taken back"
        )
    notes = [*carrying.widened(), *carrying.recomputed_below(), *ttl_notes(carrying)]
    limits = f"n: was {limit_words(before)}, is {limit_words(after)}"
    if changing and before != after:
        notes.append(f"{limits}; all rows are kept")
    elif is_smaller:
        notes.append(f"{limits}; of a key the rows beyond that are taken back when its next row comes")
    else:
        notes += n_notes(carrying)
    notes += [*kept_columns_note(carrying.added), *removed_notes(carrying)]
    return Adapted(new.name, old.name, tuple(notes), carrying.tables())


def _breaks_ties(carrying: Carrying) -> str | None:
    """Return the first column by which equal rows were numbered, and would not be now: numbers that were given would change.

    ROW_NUMBER goes on with all columns in their order. A column that is new is NULL in all rows so far.
    """
    settings = carrying.old_settings
    if not isinstance(settings, RankState) or settings.function != "row_number":
        return None
    # What is the same in rows that are equal in the order decides nothing.
    order = (text_form(_DIRECTION.sub("", item.text)) for item in settings.order)
    same = {*order, *(key_form(carrying.old_shape, key) for key in carrying.old_shape.keys)}
    before = [item for item in carrying.old_shape.items if value_form(item) not in same]
    after = [pair.old for pair in carrying.items if value_form(pair.old) not in same]
    return next((b.name for b, a in zip(before, after, strict=False) if b != a), None)
