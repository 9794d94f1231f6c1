"""Adapts operators to other columns of stored rows: Top-N, the rows of a table with a key, count windows, sorted rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from sqlstream.jobs.upgrades.adaptations.adaptation import Adaptation, S
from sqlstream.jobs.upgrades.adaptations.aggregates import kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.limits import limit_notes, limit_words
from sqlstream.jobs.upgrades.adaptations.transfer import CannotAdapt, listed
from sqlstream.jobs.upgrades.changes import AdaptedOperator
from sqlstream.jobs.upgrades.forms import key_form, text_form, value_form
from sqlstream.logical.plan.state_settings import (
    CountWindowsState,
    NormalizeState,
    RankState,
    SetOperationState,
    SortState,
)

# The end of an item of ORDER BY, behind its expression.
_DIRECTION = re.compile(r"(?: ASC| DESC)?(?: NULLS (?:FIRST|LAST))?$")


class RowsAdaptation(Adaptation[S]):
    """The stored rows of an operator, which get other columns."""

    may_differ: ClassVar[tuple[str, ...]] = ("ttl",)

    @property
    def takes_back(self) -> bool:
        """Whether the input may retract stored rows, with all their columns."""
        return bool(self.after.changing)

    def adapted(self) -> AdaptedOperator:
        self.check_settings()
        transfer = self.transfer
        if self.takes_back and transfer.added:
            raise CannotAdapt(
                f"the column {listed(transfer.added)} was not kept, and rows without it may be taken back"
            )
        notes = [*transfer.widened(), *transfer.recomputed_below(), *ttl_notes(transfer), *self._more_notes()]
        notes += [*kept_columns_note(transfer.added), *removed_notes(transfer)]
        return self.result(notes, transfer.tables())

    def _more_notes(self) -> Iterator[str]:
        """Yield the notes of a kind. Raises CannotAdapt."""
        yield from ()


class NormalizeAdaptation(RowsAdaptation[NormalizeState]):
    """The current rows of a table with a key."""

    @property
    def takes_back(self) -> bool:
        """The stored row is retracted, whatever its columns are."""
        return False


class SetOperationAdaptation(RowsAdaptation[SetOperationState]):
    """The rows of both sides of INTERSECT or EXCEPT."""


class CountWindowsAdaptation(RowsAdaptation[CountWindowsState]):
    """The rows of count windows."""


class SortAdaptation(RowsAdaptation[SortState]):
    """The rows that ORDER BY keeps until the watermark passes them."""


class RankAdaptation(RowsAdaptation[RankState]):
    """The first rows of each key; n may change."""

    may_differ: ClassVar[tuple[str, ...]] = ("ttl", "limit")

    def _more_notes(self) -> Iterator[str]:
        before, after = self.before.limit, self.after.limit
        is_smaller = after is not None and (before is None or after < before)
        if is_smaller and self.takes_back:
            raise CannotAdapt(
                f"rows beyond the best {after} were emitted, and would have to be taken back; filter the table that is written"
            )
        if (before != 1 or self.takes_back) and (column := self._breaks_ties()) is not None:
            raise CannotAdapt(
                f'rows that are equal in the order were numbered by "{column}" next, and would be numbered otherwise: '
                "numbers that were emitted would have to be taken back"
            )
        limits = limit_words(before, after)
        if self.takes_back and before != after:
            yield f"{limits}; all rows are kept"
        elif is_smaller:
            yield f"{limits}; of a key the rows beyond that are taken back when its next row comes"
        else:
            yield from limit_notes(before, after)

    def _breaks_ties(self) -> str | None:
        """Return the first column that broke ties between rows, and would not now, so that emitted numbers would change.

        ROW_NUMBER breaks ties by all columns in their order. A new column is NULL in all stored rows.
        """
        if self.before.function != "row_number":
            return None
        # Columns that are equal in all rows of a tie cannot break it.
        order, old = (text_form(_DIRECTION.sub("", item.text)) for item in self.before.order), self.transfer.old_shape
        same = {*order, *(key_form(old, key) for key in old.keys)}
        before = [item for item in old.items if value_form(item) not in same]
        after = [pair.old for pair in self.transfer.items if value_form(pair.old) not in same]
        return next((b.name for b, a in zip(before, after, strict=False) if b != a), None)
