"""Adapts OVER to other calls: running results from stored results or from now on, frames over the stored rows."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from sqlstream.jobs.upgrades.adaptations.adaptation import Adaptation
from sqlstream.jobs.upgrades.adaptations.aggregates import added_calls, kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.calls import merged_parts
from sqlstream.jobs.upgrades.adaptations.transfer import CannotAdapt, listed
from sqlstream.jobs.upgrades.changes import SINCE, AdaptedOperator
from sqlstream.logical.plan.state_settings import FrameReach, OverState
from sqlstream.operators.over.context import AT
from sqlstream.operators.over.over import ROWS, TOTALS, UNTIL, OverOperator


class OverAdaptation(Adaptation[OverState]):
    """Calls with OVER."""

    may_differ: ClassVar[tuple[str, ...]] = ("ttl", "reach")

    def adapted(self) -> AdaptedOperator:
        self.check_settings()
        operator, transfer = self.stage.operator, self.transfer
        assert isinstance(operator, OverOperator)
        notes = [*transfer.widened(), *transfer.recomputed_below(), *ttl_notes(transfer)]
        running = {call.name: call.call for call in operator.calls if call.runs}
        expressions, call_notes = added_calls(transfer, running, TOTALS, merged_parts)
        notes += call_notes
        framed = [item for item in transfer.added if item.kind == "aggregate" and item.name not in running]
        if framed:
            notes.append(f"{listed(framed)}: over the rows that are kept so far, and all that come {SINCE}")
        before, after = _stays(self.before.reach, self.after.reach)
        if before != after:
            expressions[ROWS, UNTIL] = f"{AT} + {after + 1}"
        notes += [*kept_columns_note(transfer.added), *removed_notes(transfer)]
        return self.result(notes, replace(transfer, expressions=expressions).tables())


def _stays(before: FrameReach, after: FrameReach) -> tuple[int, int]:
    """Return how long rows stay in the state for the old frames and for the new ones. Raises CannotAdapt."""
    if (before.later, before.following) != (after.later, after.following):
        raise CannotAdapt("a row leaves when the rows after it in its frames are known, and those are others now")
    if after.span > before.span and after.last != 0:
        raise CannotAdapt("frames reach further back in time, beside frames of rows: some rows would be in neither")
    return before.span + before.later, after.span + after.later
