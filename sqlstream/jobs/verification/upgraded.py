"""Verification of upgraded jobs: takes the rows of the earlier query as correct, and checks what the new query added."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import duckdb

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.duck.sql import Condition, Relation, Relations, Select, quote_name, quoted, rows_where, same_columns
from sqlstream.errors import SqlStreamError
from sqlstream.jobs.launch import job_record, job_spec
from sqlstream.jobs.upgrades.changes import (
    AdaptedOperator,
    Comparison,
    DroppedOperator,
    KeptOperator,
    NewOperator,
    SinkChange,
)
from sqlstream.jobs.upgrades.comparing import compare
from sqlstream.jobs.upgrades.forms import optional_form
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.process import Process
from sqlstream.logical.plan.tables import Scan
from sqlstream.physical.batch.rows import BATCH, CannotVerify
from sqlstream.physical.plan import SinkPlan
from sqlstream.runtime.batch_descriptors import Work, from_lines
from sqlstream.storage.descriptors import Descriptors
from sqlstream.storage.snapshot import JobHistory, JobVersion
from sqlstream.storage.views import table_view
from sqlstream.warehouse.jobs import TABLE, JobRecord
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import Savepoint, find_savepoint

_AS_ANOTHER = "Run the query as a job of another name over all input, and compare the tables."


@dataclass(frozen=True)
class EarlierJob:
    """A job before its query changed: the savepoint of the upgrade, and how the upgrade treated its operators and tables.

    The rows that the earlier query wrote count as correct. The rows that the new query added are compared with batch answers of
    the new query. If an operator `goes_on` with its state, they must be the difference between the answers over the input up to
    now and up to the upgrade; otherwise, the answer over the input since the upgrade.
    """

    savepoint: Savepoint
    saved: JobRecord
    version: JobVersion
    sequence: int
    comparison: Comparison

    @classmethod
    def of(cls, warehouse: Warehouse, planned: PlannedJob, record: JobRecord) -> EarlierJob:
        """Return a job before its upgrade. Raises CannotVerify if no batch query can tell what its tables must hold."""
        savepoint = _savepoint(warehouse, record)
        history = JobHistory(savepoint.warehouse, savepoint.record.job.lower())
        assert history.record is not None
        assert history.newest is not None
        spec = job_spec(planned, warehouse.root, record.bucket_labels, name=record.job)
        comparison = compare(history.record, job_record(planned, spec, 1), planned.physical.stages)
        before = history.record
        comparison = replace(comparison, ties=planned.ties, ties_before=before.ties)
        comparison = replace(comparison, semantics=planned.semantics, semantics_before=before.semantics)
        sequence = history.newest.newest.sequence
        earlier = cls(savepoint, history.record, history.newest, sequence, comparison)
        if reasons := list(earlier._reasons(planned)):
            raise CannotVerify(
                f'job "{record.job}" goes on with a changed query after version {savepoint.record.version}',
                detail="\n".join(f"{reason}." for reason in reasons),
                hint=f"{_AS_ANOTHER} `sqlstream verify {record.job} OLD.sql --at {savepoint.location}` verifies what it was"
                " before.",
            )
        return earlier

    def _reasons(self, planned: PlannedJob) -> Iterator[str]:
        """Yield, for people, why no batch query can tell what the tables of the job must hold."""
        if self.saved.upgraded_from:
            yield "Its query had changed before: what three queries made of the rows has no batch answer"
        if self.comparison.ties != self.comparison.ties_before and self.goes_on:
            yield "Columns decided ties before, and the order of arrival does now"
        if planned.has_semantics and self.comparison.semantics != self.comparison.semantics_before and self.goes_on:
            yield "Expressions had DuckDB's values before, and have Flink's now"
        for one in self.comparison.operators:
            notes = "; ".join(one.notes) if isinstance(one, KeptOperator | AdaptedOperator | NewOperator) else ""
            if isinstance(one, AdaptedOperator) or (isinstance(one, KeptOperator) and notes):
                yield f'What operator "{one.operator}" made of both queries\' rows has no batch answer: {_plain(notes)}'
            elif isinstance(one, NewOperator) and self.goes_on:
                yield f'Operator "{one.operator}" begins without state, beside others that go on with theirs'
        indexes = [source.was for source in self.comparison.sources]
        if None in indexes or len(indexes) < len(self.saved.scans):
            yield "It reads other tables than before"
        elif any(
            optional_form(self.saved.scans[was].watermark_expression) != optional_form(scan.watermark)
            for was, scan in zip(indexes, planned.physical.scans, strict=True)
            if was is not None
        ):
            yield "A table that it reads has another watermark than before"
        if any(isinstance(node, Process) for sink in planned.logical for node in walk(sink)):
            yield "What a process function makes of both queries' rows has no batch answer"
        for change, sink in zip(self.comparison.sinks, planned.physical.sinks, strict=True):
            if change.was is not None and sink.kind != TABLE:
                yield f'What the earlier query wrote into table "{change.table}" ({sink.kind}) is not in the savepoint'
            if (
                sink.changing
                and self.goes_on
                and (change.was is None or (change.columns and not sink.table.primary_key))
            ):
                yield f'Table "{change.table}" lacks what the earlier query made, which rows take back'

    @property
    def goes_on(self) -> bool:
        """Whether an operator continues with its earlier state."""
        return any(not isinstance(one, NewOperator | DroppedOperator) for one in self.comparison.operators)

    @property
    def note(self) -> str:
        """What the verification does not check, for people."""
        job, location = self.saved.job, self.savepoint.location
        return (
            f"what the job had written before its query changed, up to version {self.version.version}, is taken as it is;"
            f" sqlstream verify {job} OLD.sql --at {location} verifies that"
        )

    # -- the input

    def read(self) -> Iterator[list[Work]] | None:
        """Return the input of the batches before the upgrade, by the new plan's scans; None if it is not stored."""
        folder = self.savepoint.warehouse
        texts = Descriptors(folder.fs, folder.job(self.saved.job).splits).texts(self.sequence)
        indexes = {source.was: index for index, source in enumerate(self.comparison.sources)}
        if texts is None:
            return None
        return ([replace(one, scan=indexes[one.scan]) for one in from_lines(text)] for text in texts)

    def part(self, read: Callable[[Scan], Relation], *, is_before: bool) -> Callable[[Scan], Relation]:
        """Return a function that reads scans: rows before the upgrade or, without `is_before`, the input of the new query.

        That is all rows if an operator `goes_on` with its state, else the rows since the upgrade.
        """
        if self.goes_on and not is_before:
            return read
        condition = Condition(f"{BATCH.name} {'<=' if is_before else '>'} {self.sequence}")
        return lambda scan: rows_where(read(scan), condition)

    # -- the expected rows

    def added(
        self,
        con: duckdb.DuckDBPyConnection,
        plan: SinkPlan,
        answers: Relations,
        answer: Callable[..., Relations],
    ) -> dict[str, Relation]:
        """Return tables of the rows that both queries should have written, by cause, from batch answers of the new query.

        `answer` returns the batch answers over the rows before the upgrade.
        """
        [change] = [one for one in self.comparison.sinks if one.table.lower() == plan.table.name.lower()]
        written = self._written(con, plan, change)
        # Results that the earlier query has not written, because they were late or not due, count as the new query's.
        before = list(answer(self, is_before=True).values())[-1] if self.goes_on else None
        tables: dict[Relation, Relation] = {}
        for after in answers.values():
            if after not in tables:
                tables[after] = Relation(f"_both_{len(tables)}")
                con.execute(
                    f"CREATE OR REPLACE TEMP TABLE {tables[after]} AS {self._both(plan, written, after, before)}"
                )
        return {cause: tables[after] for cause, after in answers.items()}

    def _written(self, con: duckdb.DuckDBPyConnection, plan: SinkPlan, change: SinkChange) -> Relation:
        """Return a table of the rows that the earlier query wrote, with the columns of the new query."""
        table = quoted(f"_written_{plan.table.name.lower()}")
        types = dict(plan.columns)
        if change.was is None:
            items = ", ".join(f"CAST(NULL AS {type}) AS {quote_name(column)}" for column, type in types.items())
            con.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {items} WHERE false")
            return table
        rows = table_view(self.savepoint.warehouse, self.saved.sinks[change.was].table, [(self.saved, self.version)])
        own = change.columns or {column: quote_name(column) for column in types}
        items = ", ".join(f"CAST({own[column]} AS {type}) AS {quote_name(column)}" for column, type in types.items())
        con.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {items} FROM ({rows})")
        return table

    def _both(self, plan: SinkPlan, written: Relation, after: Relation, before: Relation | None) -> Select:
        """Return the rows that the earlier query wrote, with the changes of the batch answer applied."""
        come, gone = f"FROM {after}", f"FROM {after} WHERE false"
        if before is not None:
            come, gone = f"FROM {after} EXCEPT ALL FROM {before}", f"FROM {before} EXCEPT ALL FROM {after}"
        keys = list(map(quote_name, plan.table.primary_key if plan.changing else ()))
        if not keys:
            return Select(f"(FROM {written} EXCEPT ALL ({gone})) UNION ALL ({come})")
        # A key has one row: the one of the new query, if it has one.
        listed, same = ", ".join(keys), same_columns("w", "t", keys)
        touched = f"SELECT {listed} FROM ({come}) UNION ALL SELECT {listed} FROM ({gone})"
        return Select(f"(SELECT w.* FROM {written} AS w ANTI JOIN ({touched}) AS t ON {same}) UNION ALL ({come})")


def _savepoint(warehouse: Warehouse, record: JobRecord) -> Savepoint:
    """Return the savepoint of a job's upgrade. Raises CannotVerify when it is gone, or another savepoint has its name."""
    gone: SqlStreamError | None = None
    try:
        savepoint = find_savepoint(warehouse, record.upgraded_from)
        if savepoint.record.job_created_at == record.created_at:
            return savepoint
    except SqlStreamError as error:
        gone = error
    raise CannotVerify(
        f'job "{record.job}" goes on with a changed query, and savepoint "{record.upgraded_from}" is gone, which kept what it was'
        " before",
        hint=_AS_ANOTHER,
    ) from gone


def _plain(notes: str) -> str:
    """Return notes for people: in an upgraded job, `{since}` is the upgrade."""
    return notes.replace("{since}", "from the upgrade on") or "its state was made of that of the earlier query"
