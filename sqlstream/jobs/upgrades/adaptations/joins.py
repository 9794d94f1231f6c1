"""Adapts joins that store other columns of their inputs, for another time, or within another interval."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, TypeVar

from sqlstream.duck.sql import Select
from sqlstream.duck.time_variables import NOW
from sqlstream.jobs.upgrades.adaptations.adaptation import Adaptation
from sqlstream.jobs.upgrades.adaptations.aggregates import kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.transfer import CannotAdapt
from sqlstream.jobs.upgrades.changes import AdaptedOperator
from sqlstream.jobs.upgrades.settings_words import interval_words
from sqlstream.logical.plan.state_settings import IntervalJoinState, JoinState, TemporalJoinState
from sqlstream.operators.joins.interval_join import AT, UNTIL, IntervalJoinOperator
from sqlstream.operators.joins.regular_join import RegularJoin
from sqlstream.operators.keyed_state import AT as TOUCHED_AT
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import duration

J = TypeVar("J", bound=JoinState | IntervalJoinState | TemporalJoinState)


class JoinsAdaptation(Adaptation[J]):
    """The rows of the inputs of a join."""

    @property
    def _differing(self) -> tuple[str, ...]:
        """The settings that may change: the condition, too, if earlier results of an inner join can stay."""
        final = self.after.join == "inner" and not self.after.changing
        return (*self.may_differ, "condition") if final else self.may_differ

    def adapted(self) -> AdaptedOperator:
        transfer = self.transfer
        transfer.check_settings(self._differing)
        for item in transfer.added:
            if item.input in self.after.changing and not self.has_versions:
                raise CannotAdapt(f'the column "{item.name}" was not kept, and rows without it may be taken back')
        notes = [*transfer.widened(), *transfer.recomputed_below(), *ttl_notes(transfer)]
        expressions, length_notes = self._lengths()
        notes += length_notes
        sources = self._new_key_tables()
        expressions |= {(table, TOUCHED_AT.name): f"epoch_ms({NOW})" for table in sources}
        expressions |= {(table, WEIGHT): "1" for table in sources}
        if self.before.condition != self.after.condition:
            conditions = (self.before.condition, self.after.condition)
            was, now = (one.text if one is not None else "true" for one in conditions)
            notes.append(f"ON: was {was}, is {now}; pairs so far stay as they are")
        notes += [*kept_columns_note(transfer.added), *removed_notes(transfer)]
        tables = replace(transfer, expressions=expressions, sources=sources).tables()
        tables |= {name: Select(f"SELECT DISTINCT * FROM ({tables[name]})") for name in sources}
        return self.result(notes, tables)

    # -- the answers of kinds

    @property
    def has_versions(self) -> bool:
        """Whether an input has versions: stored versions are replaced by key, not retracted with all columns."""
        return False

    def _lengths(self) -> tuple[dict[tuple[str, str], str], list[str]]:
        """Return the SQL of the times until which rows stay, and notes, if they change. Raises CannotAdapt."""
        return {}, []

    def _new_key_tables(self) -> dict[str, str]:
        """Return the rows from which to build key tables for inputs that have gained a TTL. Raises CannotAdapt."""
        return {}


class TemporalJoinAdaptation(JoinsAdaptation[TemporalJoinState]):
    """The rows and the versions of a temporal join."""

    @property
    def has_versions(self) -> bool:
        return True


class IntervalJoinAdaptation(JoinsAdaptation[IntervalJoinState]):
    """The rows of an interval join, whose interval may change."""

    may_differ: ClassVar[tuple[str, ...]] = ("interval",)

    def _lengths(self) -> tuple[dict[tuple[str, str], str], list[str]]:
        operator, before, after = self.stage.operator, self.before.interval, self.after.interval
        assert isinstance(operator, IntervalJoinOperator)
        if before == after:
            return {}, []
        if operator.join not in ("inner", "semi"):
            raise CannotAdapt("rows without a match have left after another interval")
        # As the operator computes it for new rows.
        stay = operator.before + operator.after
        waits = {"left": max(stay, operator.after), "right": max(stay, operator.before)}
        expressions = {(side, UNTIL.name): f"{AT.name} + {max(wait, 0)}" for side, wait in waits.items()}
        notes = [f"interval: was {interval_words(before)}, is {interval_words(after)}; pairs so far stay as they are"]
        if after.length > before.length:
            notes.append(f"rows were kept for {duration(before.length)}: older ones are missing at first")
        return expressions, notes


class JoinAdaptation(JoinsAdaptation[JoinState]):
    """The rows of a regular join, whose TTLs may change."""

    may_differ: ClassVar[tuple[str, ...]] = ("ttls",)

    def _new_key_tables(self) -> dict[str, str]:
        operator = self.stage.operator
        assert isinstance(operator, RegularJoin)
        before, after = ({table.name for table in record.tables} for record in (self.old, self.new))
        if any(name.startswith("alone_") for name in before ^ after):
            raise CannotAdapt(
                "of an outer join it is kept which rows have no match only where rows of the other side are forgotten"
            )
        added = sorted(after - before)
        if added and not operator.matching.key_names:
            raise CannotAdapt("rows without a key cannot be forgotten by it")
        return {name: f"rows_{name.removeprefix('keys_')}" for name in added}
