"""The operator of a query in one bucket, batch after batch, and another query that goes on with its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.duck.internal_columns import ARRIVED, MODIFIED, PATH, ROW
from sqlstream.duck.sql import Select, no_rows, quote_name, subquery, typed
from sqlstream.duck.types import encoded
from sqlstream.errors import SourceText
from sqlstream.functions.kinds import declare_any
from sqlstream.jobs.upgrades.adaptations.registry import adapted
from sqlstream.jobs.upgrades.changes import AdaptedOperator, UnadaptableOperator
from sqlstream.jobs.upgrades.shapes import shapes
from sqlstream.logical.plan.state_settings import Ties
from sqlstream.operators.operator import Port, StepTimes
from sqlstream.runtime.fragments import part_queries, set_times
from sqlstream.storage.bucket import Bucket
from sqlstream.units import NO_TIME, SECOND, EventTime, from_millis
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.jobs import OperatorRecord, TableRecord
from tests.kinds import of_type

Row = Mapping[str, object]
CON = duckdb.connect()


class Driven:
    """An operator of the last query of a script, the first one unless a `place` says another; `ties` says what decides ties."""

    def __init__(
        self,
        script: str,
        folder: Path,
        functions: Sequence[Callable[..., Any]] = (),
        place: int = 0,
        ties: Ties = "arrival",
    ):
        compiler = Compiler()
        try:
            compiler.add_functions([declare_any(f) for f in functions])
            job = of_type(PlannedJob, compiler.scripts([SourceText("test", script)])[-1])
            self.plan = job.decided_by(ties).physical
        finally:
            compiler.close()
        self.place, self.stage = place, self.plan.stages[place]
        self.operator = self.stage.operator
        self.folder = str(folder)
        self.con = CON.cursor()
        self.manifest: str | None = None
        self.batch = 0
        self.watermark: EventTime | None = None

    @property
    def record(self) -> OperatorRecord:
        stage, shape = self.stage, shapes(self.plan)[self.place]
        tables = tuple(map(TableRecord.of, stage.operator.tables))
        return OperatorRecord(
            stage.name,
            stage.operator.kind,
            (),
            tables,
            Select(""),
            (),
            "",
            hash_columns=stage.hash_columns,
            shape=shape,
        )

    def step(self, watermark: int | None = None, **given: Sequence[Row]) -> list[tuple[Any, ...]]:
        """Advance by a batch of rows of tables; return the changes that leave: rows, with weights where they have some.

        The watermark is seconds of the day.
        """
        if watermark is not None:
            self.watermark = EventTime(watermark * SECOND)
        times = StepTimes(self.batch, self.watermark, from_millis(self.batch * 1000))
        set_times(self.con, times.time, times.watermark)
        state = Bucket.open(LocalFilesystem(), self.folder, 0, self.operator.tables, self.manifest, NO_TIME)
        found = self.operator.step(self.con, state, self._inputs(given), times)
        tables = [rows for rows in found if isinstance(rows, pa.RecordBatch)]
        self.manifest = state.commit(self.con, self.batch, times.time, times.watermark)
        self.batch += 1
        if not tables:
            return []
        self.con.register("_changes", pa.Table.from_batches(tables))
        left = self.con.sql(f"SELECT {typed(self.operator.outputs)} FROM _changes").fetchall()
        self.con.unregister("_changes")
        return left

    def picked(self, changes: Sequence[tuple[Any, ...]], *names: str) -> list[tuple[Any, ...]]:
        """Return some columns of changes, sorted."""
        places = [[c.name for c in self.operator.outputs].index(name) for name in names]
        return sorted((tuple(change[place] for place in places) for change in changes), key=repr)

    def _inputs(self, given: Mapping[str, Sequence[Row]]) -> list[tuple[Port, pa.Table]]:
        arrived = []
        for scan in self.plan.scans:
            rows = given.get(scan.table.name, ())
            if not rows:
                continue
            columns = scan.table.physical
            # As files have them: a time, a path, and the number of the row; and its place in the order of arrival.
            first = 1000 * self.batch
            numbered = [
                {**row, MODIFIED.name: 0, PATH.name: f"{self.batch:06}", ROW.name: n, ARRIVED.name: first + n}
                for n, row in enumerate(rows)
            ]
            values = [f"({', '.join(_literal(row.get(c.name), c.type) for c in columns)})" for row in numbered]
            listed = ", ".join(quote_name(c.name) for c in columns)
            arrival = f"SELECT * FROM (VALUES {', '.join(values)}) AS _t({listed})"
            source = Select(f"WITH _input AS ({arrival}) {scan.columns}")
            for fragment in scan.fragments:
                assert fragment.exchange is not None
                ports = dict(fragment.exchange.ports)
                for name, sql in part_queries(self.con, fragment, source, lambda *_: pa.table({})):
                    arrived.append((self.stage.ports[ports[name]], self.con.sql(sql).to_arrow_table()))
        return arrived

    def upgraded(
        self, script: str, folder: Path, functions: Sequence[Callable[..., Any]] = ()
    ) -> tuple[Driven, AdaptedOperator]:
        """Return the operator of another script with the state that an adaptation makes of that of this one."""
        new = Driven(script, folder, functions)
        change = self.change(new)
        assert isinstance(change, AdaptedOperator), change
        old = Bucket.open(LocalFilesystem(), self.folder, 0, self.operator.tables, self.manifest, NO_TIME)
        for table in self.operator.tables:
            rows = old.relation(table.name) or subquery(no_rows(table.columns))
            self.con.execute(f"CREATE OR REPLACE TEMP VIEW {quote_name(table.name)} AS SELECT * FROM {rows}")
        state = Bucket.open(LocalFilesystem(), new.folder, 0, new.operator.tables, None, NO_TIME)
        set_times(self.con, from_millis(self.batch * 1000), self.watermark)
        for table in new.operator.tables:
            columns = ", ".join(quote_name(c.name) for c in table.columns)
            kept = f"SELECT {columns} FROM {quote_name(table.name)}"
            made = self.con.sql(f"SELECT * FROM ({change.tables.get(table.name, kept)})")
            assert made.columns == [c.name for c in table.columns]
            rows = subquery(Select(made.sql_query()))
            state.append(table.name, self.con.sql(encoded(table.columns, rows)).to_arrow_table(), self.batch)
        for table in self.operator.tables:
            self.con.execute(f"DROP VIEW {quote_name(table.name)}")
        new.manifest = state.commit(self.con, self.batch, from_millis(self.batch * 1000), self.watermark)
        new.batch, new.watermark = self.batch + 1, self.watermark
        return new, change

    def shown(self, columns: str = "*") -> list[tuple[Any, ...]]:
        """Return columns of the current result, sorted."""
        state = Bucket.open(LocalFilesystem(), self.folder, 0, self.operator.tables, self.manifest, NO_TIME)
        relations = {t.name: state.relation(t.name) or subquery(no_rows(t.columns)) for t in self.operator.tables}
        watermark = "CAST(NULL AS BIGINT)" if self.watermark is None else str(self.watermark)
        set_times(self.con, from_millis(self.batch * 1000), self.watermark)
        return sorted(
            self.con.sql(f"SELECT {columns} FROM ({self.operator.current(relations, watermark)})").fetchall(), key=repr
        )

    def change(self, new: Driven) -> AdaptedOperator | UnadaptableOperator:
        """Return what becomes of the operator in another plan."""
        return adapted(self.record, new.record, new.stage)


def _literal(value: object, type: str) -> str:
    text = "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"
    return f"CAST({text} AS {type})"


def total(changes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return the rows that changes with weights add up to, sorted. None may be taken away that is not there."""
    found: dict[tuple[Any, ...], int] = {}
    for *row, weight in changes:
        found[tuple(row)] = found.get(tuple(row), 0) + weight
    assert all(count >= 0 for count in found.values()), found
    return sorted((tuple(row) for row, count in found.items() for _ in range(count)), key=repr)
