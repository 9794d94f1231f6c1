"""Whether a job of the warehouse is the one that a statement asks for."""

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

# Tables that are written, with the columns of their keys.
Keys = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a job computes: the digests by which it is known, its plan in words, and the keys of its tables in words.

    Words may change from version to version, digests may not. A job that an earlier version recorded has no digests: its words
    are compared, once, and then its record is written anew.
    """

    digests: PlanDigests | None
    plan_text: str
    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        """What it computes, for people: how it differs from another one is shown in this."""
        return "\n".join([self.plan_text, *self.keys])

    def is_same(self, other: Identity) -> bool:
        """Tell whether two jobs are the same one: by their digests, and by their words where one has none.

        Digests that were made with another release of sqlglot may differ without a cause: then words decide.
        """
        one, two = self.digests, other.digests
        if one is None or two is None:
            return self.text == other.text
        if replace(one, printer="") == replace(two, printer=""):
            return True
        return one.printer != two.printer and self.text == other.text

    @property
    def without_sinks(self) -> Identity:
        """The job, whichever tables it writes."""
        digests = replace(self.digests, tables="") if self.digests is not None else None
        return data_replace(self, digests=digests, plan_text=_without_sinks(self.plan_text), keys=())

    @property
    def without_starts(self) -> Identity:
        """The job, wherever its sources begin."""
        digests = replace(self.digests, plan="") if self.digests is not None else None
        return data_replace(self, digests=digests, plan_text=_without_starts(self.plan_text))


def recorded_identity(record: JobRecord) -> Identity:
    keys = key_lines(keys_of((sink.table, sink.key) for sink in record.sinks))
    return Identity(record.digests, record.plan_text, keys)


def planned_identity(planned: PlannedJob) -> Identity:
    keys = key_lines(_planned_keys(planned))
    return Identity(planned_digests(planned), planned.plan_text, keys)


def planned_digests(planned: PlannedJob) -> PlanDigests:
    """Return the digests of a planned job. What may change while a job lives, such as a time to live, is in none of them."""
    plans = lasting(planned.optimized)
    names = [(plan.table.name, plan.table.connector) for plan in planned.optimized]
    tables = digest_of((names, _planned_keys(planned)))
    return PlanDigests(plan_digest(plans), plan_digest(plans, starts=False), tables, PRINTER)


def _planned_keys(planned: PlannedJob) -> Keys:
    return keys_of((sink.table.name, written_key(sink)) for sink in planned.physical.sinks)


def is_planned(record: JobRecord, planned: PlannedJob) -> bool:
    """Tell whether a job of the warehouse is the planned one."""
    return recorded_identity(record).is_same(planned_identity(planned))


def written_key(sink: SinkPlan) -> tuple[str, ...]:
    """Return the columns by which a table tells apart the rows that a job changes in it."""
    return sink.table.primary_key if sink.changing else ()


def keys_of(tables: Iterable[tuple[str, tuple[str, ...]]]) -> Keys:
    """Return the tables that have keys, whatever the order of their columns.

    >>> keys_of([("A", ("y", "X")), ("b", ())])
    (('a', ('x', 'y')),)
    """
    return tuple((table.lower(), tuple(sorted(map(str.lower, key)))) for table, key in tables if key)


def key_lines(keys: Keys) -> tuple[str, ...]:
    """Return a line for each key of a table: plans say nothing of them.

    >>> key_lines((("a", ("x", "y")),))
    ('Key of a: x, y',)
    """
    return tuple(f"Key of {table}: {', '.join(columns)}" for table, columns in keys)


def _without_sinks(plan_text: str) -> str:
    """Return a plan without the names of the tables that it writes.

    >>> _without_sinks("Sink a (warehouse table): k BIGINT")
    'Sink: k BIGINT'
    """
    lines = plan_text.splitlines()
    return "\n".join(f"Sink{line[line.index('): ') + 1 :]}" if line.startswith("Sink ") else line for line in lines)


def _without_starts(plan_text: str) -> str:
    """Return a plan without where its sources begin.

    >>> _without_starts("Scan t (connector=delta, path=d, scan.startup.mode=latest) c")
    'Scan t (connector=delta, path=d) c'
    """
    return re.sub(rf", {re.escape(STARTUP)}[\w-]+=[^,)]*", "", plan_text)
