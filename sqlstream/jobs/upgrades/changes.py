"""What becomes of a job under a changed query, as plain data: of its operators, its sources and its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

# Stands in notes for the batch from which on something counts; whoever shows them knows it.
SINCE = "{since}"


@dataclass(frozen=True, slots=True)
class Kept:
    """An operator goes on with the state that it had, as it is. `was` is the name that it had in the job."""

    operator: str
    was: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Adapted:
    """An operator goes on with state that is made of what it had; `was` is empty where the job had no such one.

    `tables` has a DuckDB SELECT for tables of the new operator's state, by name: over the names of the old operator's state
    tables, with the declared columns in their order and types, internal ones such as weights included. The rows of a Z-set have
    weights, and those of a key may be several: they are summed up where it is read. A table that is not named here keeps the
    files of the table of its name, as they are, or is empty where there was none. The engine picks the bucket of every row.
    """

    operator: str
    was: str
    notes: tuple[str, ...]
    tables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class New:
    """An operator that the job did not have: it begins without state."""

    operator: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """An operator of the job that the query has no more: its state goes."""

    was: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotAdaptable:
    """An operator whose state cannot be made of what there is, for a reason: a sentence in lower case without a full stop."""

    operator: str
    was: str
    reason: str


# What becomes of one operator.
Change: TypeAlias = Kept | Adapted | New | Dropped | NotAdaptable


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A table that the new query reads: `was` is the place of the scan in the job, None where it begins anew."""

    table: str
    was: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkChange:
    """A table that the new query writes: `was` is the place of the sink in the job, None where it is another one.

    `columns` are, for a table of the warehouse whose columns differ, the SQL of each over the ones that it had.
    """

    table: str
    was: int | None
    notes: tuple[str, ...] = ()
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What becomes of a job under a changed query: in the order of the plan, then what is dropped.

    `dropped_sources` and `dropped_sinks` are the names of tables that the query does not have any more. `refusals` are reasons
    beside those of operators.
    """

    operators: tuple[Change, ...]
    sources: tuple[SourceChange, ...]
    sinks: tuple[SinkChange, ...]
    dropped_sources: tuple[str, ...] = ()
    dropped_sinks: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """Why the query cannot go on with the state of the job, none where it can."""
        own = (f'operator "{o.operator}": {o.reason}' for o in self.operators if isinstance(o, NotAdaptable))
        return (*own, *self.refusals)
