"""The comparison of a job with a changed query, as plain data: a change for each operator, source and sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlstream.duck.sql import Select
from sqlstream.logical.plan.state_settings import Semantics, Ties

# A placeholder in notes for the batch from which on something counts; the code that shows the notes replaces it.
SINCE = "{since}"


@dataclass(frozen=True, slots=True)
class KeptOperator:
    """An operator continues with its state unchanged. `was` is its name in the job."""

    operator: str
    was: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdaptedOperator:
    """An operator continues with state that is computed from its old state. `was` is its name in the job, "" if it had none.

    `tables` maps names of the new operator's state tables to queries over the names of the old operator's state tables. A query
    has the declared columns in their order and types, also internal ones such as weights. A Z-set may get several rows of a key:
    their weights are added when it is read. A table without a query keeps the files of the old table of its name unchanged, or is
    empty if there was none. The engine picks the bucket of every row.
    """

    operator: str
    was: str
    notes: tuple[str, ...]
    tables: Mapping[str, Select] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewOperator:
    """An operator that the job does not have: it begins without state."""

    operator: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DroppedOperator:
    """An operator of the job that the new query does not have: its state is deleted."""

    was: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnadaptableOperator:
    """An operator whose state cannot be computed from the old state. `reason` is a sentence in lower case without a full stop."""

    operator: str
    reason: str


# The change of one operator.
Change: TypeAlias = KeptOperator | AdaptedOperator | NewOperator | DroppedOperator | UnadaptableOperator


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A table, or one of its scans, that the new query reads.

    `was` is the index of the scan in the job's record that it continues, None if the options of the table say where to start.
    """

    table: str
    was: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkChange:
    """A table that the new query writes. `was` is the index of the sink in the job's record that it continues, None if it is new.

    `columns` has the SQL of each column over the old columns, for a table of the warehouse whose columns differ.
    """

    table: str
    was: int | None
    notes: tuple[str, ...] = ()
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes of a job under a changed query, in the order of the new plan; dropped operators come last.

    `dropped_sources` and `dropped_sinks` are the names of tables, or of scans, that the new query no longer has. `refusals` are
    reasons against the upgrade, besides the reasons in `operators`. `ties` is the rule for ties from now on, `ties_before` the
    rule so far; `keeps_ties` are the reasons if the job must keep an older rule. `semantics`, `semantics_before` and
    `keeps_semantics` say the same about the semantics of expressions.
    """

    operators: tuple[Change, ...]
    sources: tuple[SourceChange, ...]
    sinks: tuple[SinkChange, ...]
    dropped_sources: tuple[str, ...] = ()
    dropped_sinks: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    ties: Ties = "arrival"
    ties_before: Ties = "arrival"
    keeps_ties: tuple[str, ...] = ()
    semantics: Semantics = "flink"
    semantics_before: Semantics = "flink"
    keeps_semantics: tuple[str, ...] = ()

    @property
    def begins_anew(self) -> frozenset[str]:
        """The names of the operators that begin without state and, with `-` before them, of operators that are dropped."""
        return frozenset(
            one.operator if isinstance(one, NewOperator) else f"-{one.was}"
            for one in self.operators
            if isinstance(one, NewOperator | DroppedOperator)
        )

    @property
    def refused(self) -> tuple[str, ...]:
        """The reasons why the job cannot continue with the new query; empty if it can."""
        own = (f'operator "{o.operator}": {o.reason}' for o in self.operators if isinstance(o, UnadaptableOperator))
        return (*own, *self.refusals)
