"""The identity of a job: whether a planned job is the one that the warehouse has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace as data_replace

from msgspec.structs import replace

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.compiler.table_options import lasting
from sqlstream.logical.plan.canonical import PRINTER
from sqlstream.logical.plan.identity import digest_of, plan_digest
from sqlstream.logical.plan.tables import STARTUP
from sqlstream.physical.plan import SinkPlan
from sqlstream.warehouse.jobs import JobRecord, PlanDigests

# Written tables that have a key: their names and key columns, in lower case.
Keys = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a job: digests of its plan, its plan as text, and a line of text for each table with a key.

    Texts may change between releases of sqlstream, digests may not. Records of early releases have no digests: then texts are
    compared, and the next start of the job records its digests.
    """

    digests: PlanDigests | None
    plan_text: str
    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        """The plan and the keys as text; people are shown the difference of two such texts."""
        return "\n".join([self.plan_text, *self.keys])

    def is_same(self, other: Identity) -> bool:
        """Return whether two identities are of the same job: by their digests, or by their texts where one has no digests.

        Equal plans may have different digests if they were made with different releases of sqlglot: then texts decide.
        """
        one, two = self.digests, other.digests
        if one is None or two is None:
            return self.text == other.text
        if replace(one, printer="") == replace(two, printer=""):
            return True
        return one.printer != two.printer and self.text == other.text

    @property
    def without_sinks(self) -> Identity:
        """The identity without the tables that the job writes."""
        digests = replace(self.digests, tables="") if self.digests is not None else None
        return data_replace(self, digests=digests, plan_text=_without_sinks(self.plan_text), keys=())

    @property
    def without_starts(self) -> Identity:
        """The identity without the positions at which the sources start."""
        digests = replace(self.digests, plan="") if self.digests is not None else None
        return data_replace(self, digests=digests, plan_text=_without_starts(self.plan_text))


def recorded_identity(record: JobRecord) -> Identity:
    """Return the identity of a job in the warehouse."""
    keys = key_lines(keys_of((sink.table, sink.key) for sink in record.sinks))
    return Identity(record.digests, record.plan_text, keys)


def planned_identity(planned: PlannedJob) -> Identity:
    """Return the identity of a planned job."""
    keys = key_lines(_planned_keys(planned))
    return Identity(planned_digests(planned), planned.plan_text, keys)


def planned_digests(planned: PlannedJob) -> PlanDigests:
    """Return the digests of a planned job. They ignore options that may change while a job lives, such as rates of reading."""
    plans = lasting(planned.optimized)
    names = [(plan.table.name, plan.table.connector) for plan in planned.optimized]
    tables = digest_of((names, _planned_keys(planned)))
    return PlanDigests(plan_digest(plans), plan_digest(plans, starts=False), tables, PRINTER)


def _planned_keys(planned: PlannedJob) -> Keys:
    return keys_of((sink.table.name, written_key(sink)) for sink in planned.physical.sinks)


def is_planned(record: JobRecord, planned: PlannedJob) -> bool:
    """Return whether a recorded job and a planned job have the same identity under the record's rule for ties and semantics."""
    return recorded_identity(record).is_same(planned_identity(as_recorded(planned, record)))


def as_recorded(planned: PlannedJob, record: JobRecord | None) -> PlannedJob:
    """Return a planned job under the recorded job's rule for ties and semantics of expressions; unchanged without a record."""
    return planned if record is None else planned.under(record.ties, record.semantics)


def written_key(sink: SinkPlan) -> tuple[str, ...]:
    """Return the primary key of a sink's table if the job updates or deletes rows by it, else no columns."""
    return sink.table.primary_key if sink.changing else ()


def keys_of(tables: Iterable[tuple[str, tuple[str, ...]]]) -> Keys:
    """Return the tables that have a key, in lower case, with sorted key columns.

    >>> keys_of([("A", ("y", "X")), ("b", ())])
    (('a', ('x', 'y')),)
    """
    return tuple((table.lower(), tuple(sorted(map(str.lower, key)))) for table, key in tables if key)


def key_lines(keys: Keys) -> tuple[str, ...]:
    """Return a line of text for each table with a key, which plan texts do not show.

    >>> key_lines((("a", ("x", "y")),))
    ('Key of a: x, y',)
    """
    return tuple(f"Key of {table}: {', '.join(columns)}" for table, columns in keys)


def _without_sinks(plan_text: str) -> str:
    """Return a plan text without the names of the tables that it writes.

    >>> _without_sinks("Sink a (warehouse table): k BIGINT")
    'Sink: k BIGINT'
    """
    lines = plan_text.splitlines()
    return "\n".join(f"Sink{line[line.index('): ') + 1 :]}" if line.startswith("Sink ") else line for line in lines)


def _without_starts(plan_text: str) -> str:
    """Return a plan text without the options that say where its sources start.

    >>> _without_starts("Scan t (connector=delta, path=d, scan.startup.mode=latest) c")
    'Scan t (connector=delta, path=d) c'
    """
    return re.sub(rf", {re.escape(STARTUP)}[\w-]+=[^,)]*", "", plan_text)
