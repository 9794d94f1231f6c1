"""Operators and versions by the names that people use: `job.operator`, a number, a time, a savepoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

import duckdb

from sqlstream.duck.time_texts import time_text
from sqlstream.errors import QueryError, Span, missing
from sqlstream.storage.snapshot import JobHistory, JobVersion
from sqlstream.units import SECOND, ProcessingTime
from sqlstream.warehouse.jobs import OperatorRecord
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import Savepoint, read_savepoint

# A version: its number, or a time, in UTC if it has no zone.
Version = int | str | datetime
_WRITE = "Write a number, such as 10, or a time, such as '2026-03-01 10:05:00', in UTC."
_OR_SAVEPOINT = "Write a number, such as 10, a time, such as '2026-03-01 10:05:00', in UTC, or the name of a savepoint."


@dataclass(frozen=True, slots=True)
class StateRelation:
    """`state.<job>.<name>`, or `savepoint.<savepoint>.<name>`: `name` is an operator, or a further view of one."""

    job: JobHistory
    operator: OperatorRecord
    name: str
    savepoint: Savepoint | None = None

    @property
    def title(self) -> str:
        """`<job>.<operator>`: the name of the relation after `state.`."""
        return f"{self.job.record.job if self.job.record else self.job.name}.{self.name}"


def find_state(jobs: Mapping[str, JobHistory], name: object, span: Span | None) -> StateRelation:
    """Return the relation `job.operator`, without regard to case; `jobs` are by lower-case name.

    Raises QueryError, which lists the existing names, DamageError and OtherVersionError.
    """
    text = str(name)
    parts = text.split(".")
    if parts[0].lower() == "state" and len(parts) > 2 and "state" not in jobs:
        parts = parts[1:]
    # Names may have dots inside.
    pairs = [(".".join(parts[:i]), ".".join(parts[i:])) for i in range(1, len(parts) + 1)]
    job, operator = next((p for p in pairs if p[0].lower() in jobs), (parts[0], ""))
    history = jobs.get(job.lower())
    histories = {h.record.job: h for h in jobs.values() if h.readable_record and h.record}
    if history is None or history.record is None:
        raise QueryError(f'job "{job}" does not exist', span, hint=missing("job", job, histories))
    relations = [StateRelation(history, o, view) for o in history.record.operators for view in o.views]
    relation = next((r for r in relations if r.name.lower() == operator.lower()), None)
    if relation is not None:
        return relation
    names = [r.name for r in relations]
    if not names:
        raise QueryError(f'job "{job}" has no operator: it keeps no state', span)
    if not operator:
        hint = f"Write {' or '.join(f'{job}.{n}' for n in names[:3])}."
        raise QueryError(f'"{text}" names no operator', span, hint=hint)
    raise QueryError(f'job "{job}" has no operator "{operator}"', span, hint=missing("operator", operator, names))


@dataclass(frozen=True, slots=True)
class StateVersion:
    """A state at a version, with the warehouse that has it: the job's, or a savepoint's."""

    warehouse: Warehouse
    relation: StateRelation
    version: JobVersion


def find_moment(
    connection: duckdb.DuckDBPyConnection,
    warehouse: Warehouse,
    relation: StateRelation,
    moment: object,
    span: Span | None,
    folders: Mapping[str, Warehouse],
) -> StateVersion:
    """Return a state at the version that `find_version` returns, or in the savepoint that `moment` names. Raises QueryError.

    `folders` are savepoints outside of the warehouse that may be read, by the texts that name them.
    """
    opened = find_savepoint_named(warehouse, moment, span, folders)
    if opened is None:
        return StateVersion(warehouse, relation, find_version(connection, relation.job, moment, span, _OR_SAVEPOINT))
    record = opened.job.record
    operators = record.operators if record is not None else ()
    operator = next((o for o in operators if relation.name in o.views), None)
    if operator is None or opened.job.newest is None:
        raise QueryError(
            f'savepoint "{opened.savepoint.location}" has no "{relation.name}"',
            span,
            detail=f'It is of job "{opened.savepoint.record.job}".',
            hint=missing("operator", relation.name, [view for o in operators for view in o.views]),
        )
    there = StateRelation(opened.job, operator, relation.name, opened.savepoint)
    return StateVersion(opened.savepoint.warehouse, there, opened.job.newest)


@dataclass(frozen=True, slots=True)
class OpenedSavepoint:
    """A savepoint, and the history of its job, which has one version."""

    savepoint: Savepoint
    job: JobHistory


def find_savepoint_named(
    warehouse: Warehouse, name: object, span: Span | None, folders: Mapping[str, Warehouse]
) -> OpenedSavepoint | None:
    """Return the savepoint `name`, None if there is none. Raises QueryError if `name` is a folder that is not in `folders`."""
    if not isinstance(name, str) or _number(name) is not None:
        return None
    if name in folders:
        savepoint = read_savepoint(folders[name], name)
    elif name.lower() in warehouse.savepoints():
        savepoint = read_savepoint(warehouse.savepoint(name), name)
    elif "/" in name or os.sep in name:
        hint = "In SQL, name one of the warehouse. The commands diff and why, and those of Python, take folders, too."
        raise QueryError(f'a state query cannot read the savepoint in "{name}"', span, hint=hint)
    else:
        return None
    return OpenedSavepoint(savepoint, JobHistory(savepoint.warehouse, savepoint.record.job.lower()))


def find_version(
    connection: duckdb.DuckDBPyConnection, job: JobHistory, moment: object, span: Span | None, hint: str = _WRITE
) -> JobVersion:
    """Return the version of a number, or the newest version at a time. Raises QueryError if the job does not keep it.

    `moment` is a number, also as text; or a date, a timestamp or a text that DuckDB casts to TIMESTAMPTZ, in UTC without a zone.
    """
    number = _number(moment)
    if number is not None:
        version, what = job.at_version(number), f"version {number}"
    else:
        time = _time(connection, moment, span, hint)
        version, what = job.at_time(time), f"version of {instant(time)} or before"
    if version is None:
        raise no_version(job, what, span)
    return version


def _number(moment: object) -> int | None:
    if isinstance(moment, int):
        return moment
    return int(moment) if isinstance(moment, str) and moment.strip().isdecimal() else None


def _time(connection: duckdb.DuckDBPyConnection, moment: object, span: Span | None, hint: str) -> ProcessingTime:
    text = moment.isoformat() if isinstance(moment, date | datetime) else str(moment)
    try:
        [(micros,)] = connection.execute("SELECT epoch_us(CAST(? AS TIMESTAMPTZ))", [text]).fetchall()
    except duckdb.Error:
        micros = None
    if micros is None:
        # No time, or an infinite one.
        raise QueryError(f'"{text}" is no version', span, hint=hint)
    return ProcessingTime(micros)


def no_version(job: JobHistory, description: str, span: Span | None, oldest: int | None = None) -> QueryError:
    """Return the error that a job does not keep a version (`description`), with the job's oldest and newest versions."""
    name = job.record.job if job.record else job.name
    newest = job.newest_entry
    oldest = job.oldest if oldest is None else oldest
    if newest is None or oldest is None:
        return QueryError(f'job "{name}" has no version yet', span)
    first = next((e for e in job.entries if e.version >= oldest), newest)
    return QueryError(
        f'job "{name}" keeps no {description}',
        span,
        detail=f"Its oldest version is {first.version} of {instant(first.committed_at)}, "
        f"its newest {newest.version} of {instant(newest.committed_at)}.",
    )


def instant(time: ProcessingTime) -> str:
    """Return a processing time as text for people, in UTC, to the second."""
    return time_text(time - time % SECOND)
