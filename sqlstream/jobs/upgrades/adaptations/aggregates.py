"""Adapts GROUP BY to other aggregates: they are computed from the stored state if it has their parts, else from now on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.jobs.upgrades.adaptations.adaptation import Adaptation
from sqlstream.jobs.upgrades.adaptations.calls import PartsOf, columns_in_others, merged_parts
from sqlstream.jobs.upgrades.adaptations.transfer import CannotAdapt, StateTransfer, listed
from sqlstream.jobs.upgrades.changes import SINCE, AdaptedOperator
from sqlstream.jobs.upgrades.forms import CallForm, call_form
from sqlstream.jobs.upgrades.settings_words import TTLS, changed_settings
from sqlstream.logical.plan.state_settings import AggregateState
from sqlstream.operators.aggregates.group_aggregate import MergedAggregates
from sqlstream.operators.aggregates.retracted_aggregates import SUMS, RetractedAggregates, is_linear, linear_parts
from sqlstream.operators.changelog.changelog_operator import ChangelogOperator
from sqlstream.operators.windows.assigners import PARTIALS, ROWS
from sqlstream.warehouse.jobs import OperatorRecord, ShapeItem


class AggregateAdaptation(Adaptation[AggregateState]):
    """Aggregates per key."""

    may_differ: ClassVar[tuple[str, ...]] = ("ttl",)

    def adapted(self) -> AdaptedOperator:
        self.check_settings()
        operator, transfer = self.stage.operator, self.transfer
        assert isinstance(operator, ChangelogOperator)
        notes = [*transfer.widened(), *transfer.recomputed_below(), *ttl_notes(transfer)]
        match operator.of:
            case MergedAggregates(calls=calls):
                _check_table(self.old, PARTIALS)
                expressions, call_notes = added_calls(transfer, dict(calls), PARTIALS, merged_parts)
                notes += call_notes
            case RetractedAggregates(calls=calls):
                _check_table(self.old, SUMS)
                linear = {name: call for name, call in calls if is_linear(call)}
                expressions, call_notes = added_calls(transfer, linear, SUMS, linear_parts, since=False)
                notes += call_notes
                if others := [item for item in transfer.added if item.name not in linear]:
                    raise CannotAdapt(f"{listed(others)}: {_TAKEN_BACK}")
            case _:
                _check_table(self.old, "rows")
                expressions = {}
                check_added_columns(transfer)
                notes += recomputed_notes(transfer)
        notes += removed_notes(transfer)
        return self.result(notes, replace(transfer, expressions=expressions).tables())


_TAKEN_BACK = "rows that were not counted in it may be taken back, so it cannot begin now"


def added_calls(
    transfer: StateTransfer, calls: Mapping[str, AggregateCall], table: str, parts_of: PartsOf, *, since: bool = True
) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return the SQL of added aggregates over the old table `table`, by table and column, and notes. Raises CannotAdapt.

    Without `since` it also raises CannotAdapt for an aggregate whose parts the old table does not have.
    """
    expressions: dict[tuple[str, str], str] = {}
    complete, begins = [], []
    for item in transfer.added:
        if item.kind != "aggregate" or item.name not in calls:
            continue
        sources = columns_in_others(item, calls[item.name], transfer.old_shape.items, table, parts_of)
        own = [c for columns in item.columns.values() for c in columns]
        if own and all(column in sources or column == ROWS for column in own):
            complete.append(item)
            expressions |= {(table, column): source for column, source in sources.items()}
            expressions |= {(table, column): ROWS for column in own if column == ROWS}
        else:
            begins.append(item)
    if begins and not since:
        raise CannotAdapt(f"{listed(begins)}: {_TAKEN_BACK}")
    goes_on = [*(pair.new for pair in transfer.items), *complete]
    held = {(t, column): item for item in goes_on for t, columns in item.columns.items() for column in columns}
    for item in begins:
        # One part of it would count all rows, another one only the rows from now on.
        if shared := [held[t, c] for t, columns in item.columns.items() for c in columns if (t, c) in held]:
            raise CannotAdapt(
                f'"{item.name}" needs more than what is kept for {listed(shared[:1])}, and shares that with it'
                f"{_lacks(item, shared[0])}"
            )
    notes = [f"{listed(complete)}: from what is kept"] if complete else []
    if begins:
        notes.append(f"{listed(begins)}: {SINCE}; rows before are not in it")
    return expressions, notes


def _lacks(item: ShapeItem, other: ShapeItem) -> str:
    """Return a clause about the part that an average lacks beside a stored sum or count; "" for other aggregates."""
    average, values = call_form(item.value), item.value.removeprefix("avg")
    if average is None or average.function != "avg":
        return ""
    lacks = {
        CallForm("sum", average.rest): f": count{values} is not kept, and count(*) counts NULLs, too",
        CallForm("count", average.rest): f": sum{values} is not kept",
    }
    there = call_form(other.value)
    return lacks.get(there, "") if there is not None else ""


def removed_notes(transfer: StateTransfer) -> list[str]:
    """Return a note about items that are not stored any more."""
    return [f"{listed(transfer.removed)}: no longer kept"] if transfer.removed else []


def ttl_notes(transfer: StateTransfer) -> list[str]:
    """Return notes about changed times to live."""
    return [
        f"{one.name}: was {one.before or 'for ever'}, is {one.after or 'for ever'}"
        for one in changed_settings(transfer.old_settings, transfer.new_settings)
        if one.field in TTLS
    ]


def check_added_columns(transfer: StateTransfer) -> None:
    """Raise CannotAdapt if there is a new column: stored rows, which lack it, may be retracted with it."""
    if missing := [item for item in transfer.added if item.kind == "column"]:
        raise CannotAdapt(f"the column {listed(missing)} was not kept, and rows without it may be taken back")


def recomputed_notes(transfer: StateTransfer) -> list[str]:
    """Return a note about new aggregates over stored rows."""
    anew = [item for item in transfer.added if item.kind == "aggregate"]
    return [f"{listed(anew)}: from all rows, which are kept"] if anew else []


def kept_columns_note(items: tuple[ShapeItem, ...]) -> list[str]:
    """Return a note about new columns of stored rows."""
    added = [item for item in items if item.kind == "column"]
    return [f"column {listed(added)}: a value {SINCE}, NULL in rows before"] if added else []


def _check_table(old: OperatorRecord, table: str) -> None:
    """Raise CannotAdapt if the old operator has stored its aggregates in another table."""
    if all(t.name != table for t in old.tables):
        how = ", ".join(t.name for t in old.tables)
        raise CannotAdapt(f"the new aggregates follow from {table}, and the job kept {how}")
