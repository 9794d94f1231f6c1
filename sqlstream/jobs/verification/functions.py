"""Runs process functions again for a batch answer: the user's class over all its input rows, with a state of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import ARRIVED, FILE_ORDER, MODIFIED, PATH, ROW
from sqlstream.duck.sql import Condition, Relation, Relations, Select, names, no_rows, typed
from sqlstream.errors import SqlStreamError
from sqlstream.jobs.verification.inputs import BatchRead
from sqlstream.jobs.verification.watermarks import JobWatermarks
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.process import Process
from sqlstream.logical.plan.relational import Projection
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.operators.groups import ROWS_OF_BATCH
from sqlstream.operators.operator import Port, SideRows, StepTimes
from sqlstream.operators.process.inputs import InputPlan
from sqlstream.operators.process.operator import ProcessOperator
from sqlstream.physical.batch.query import FunctionInput
from sqlstream.physical.batch.rows import BATCH, STANDS, CannotVerify, StreamRules
from sqlstream.physical.families.process import ProcessPlan
from sqlstream.runtime import fragments as execute
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.snapshot import JobVersion
from sqlstream.storage.views import behind
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import END_OF_INPUT, NO_TIME, EventTime, ProcessingTime
from sqlstream.warehouse.filesystem import LocalFilesystem

# The condition of a step without rows.
_NONE = Condition("")


@dataclass(frozen=True, slots=True)
class _Step:
    """A call of the operator: processing time, watermark, and the condition of the rows that it gets (None: all, "": none)."""

    time: ProcessingTime
    watermark: EventTime | None
    where: Condition | None


@dataclass
class RunsFunctions:
    """Runs process functions over the rows of SELECTs, and stores the rows that they emit in temporary tables of `con`.

    `moments` are the batches of the job in their order, up to the version `at`; `watermarks` has the watermarks before each
    batch.
    """

    con: duckdb.DuckDBPyConnection
    moments: Sequence[BatchRead]
    watermarks: JobWatermarks
    at: JobVersion
    _tables: dict[tuple[object, ...], dict[str, Relation]] = field(default_factory=dict)
    _unrepeated: set[str] = field(default_factory=set)

    def __call__(self, node: Process, function_inputs: Sequence[FunctionInput], corrections: StreamRules) -> Relations:
        """Return the tables with the rows that a function emits, by output; "" is the main one. Equal calls run once.

        Raises CannotVerify when the user's code fails.
        """
        final = self.watermarks.reached(node, self.at) if corrections.due else END_OF_INPUT
        key = (id(node), tuple(one.sql for one in function_inputs), final, corrections.batches)
        if key not in self._tables:
            operator = ProcessPlan(node).operator
            inputs = [_with_arrival(node, index, one) for index, one in enumerate(operator.inputs)]
            operator = replace(operator, inputs=tuple(one for one, _ in inputs))
            for index, (one, (_, times)) in enumerate(zip(function_inputs, inputs, strict=True)):
                self._take(index, one, times)
            repeats = corrections.batches and can_repeat(function_inputs)
            steps = self._replayed(node) if repeats else self._at_once(final)
            try:
                self._tables[key] = self._run(node, operator, list(steps))
            except (SqlStreamError, duckdb.Error) as error:
                why = error.message if isinstance(error, SqlStreamError) else str(error).splitlines()[0]
                raise CannotVerify(f"{node.label} fails when it runs anew", node.span, detail=f"{why}.") from error
        reads_operators = any(isinstance(n, StatefulNode) for below in node.inputs for n in walk(below))
        if not node.in_order and (reads_operators or not can_repeat(function_inputs)):
            self._unrepeated.add(node.label)
        return self._tables[key]

    def notes(self) -> Iterator[str]:
        """Yield notes on functions whose results may depend on batches that are not known, for people."""
        for label in sorted(self._unrepeated):
            yield (
                f"{label} has no ORDER BY, and reads what operators emit: what it emits can depend on the batches in which that"
                " came, and on its order in them, which are not known. So a difference may be none of a fault."
            )

    # -- the input

    def _take(self, index: int, function_input: FunctionInput, times: str) -> None:
        """Store the rows of an input, with the columns of their order."""
        order = f"{BATCH.name}, {STANDS.name}" if function_input.is_read else "1"
        columns = {MODIFIED: "0", PATH: "''", ROW: f"row_number() OVER (ORDER BY {order})"}
        position_columns = ", ".join(
            f"CAST({sql} AS {column.type}) AS {column.name}" for column, sql in columns.items()
        )
        self.con.execute(
            f"CREATE OR REPLACE TEMP TABLE {_table(index)} AS SELECT *, {position_columns}{times} FROM ({function_input.sql})"
        )

    def _at_once(self, final: EventTime | None) -> Iterator[_Step]:
        """Yield the steps of a single batch: all rows come, then the watermark."""
        time = self.moments[-1].time if self.moments else ProcessingTime(0)
        yield _Step(time, None, None)
        if final is not None:
            yield _Step(time, final, _NONE)

    def _replayed(self, node: Process) -> Iterator[_Step]:
        """Yield the steps of the job: its batches, and the empty ones that follow when the watermark has moved."""
        before = self.watermarks.before(node)
        watermarks = [*(before[moment.sequence] for moment in self.moments), self.watermarks.reached(node, self.at)]
        for moment, (watermark, following) in zip(self.moments, pairwise(watermarks), strict=True):
            yield _Step(moment.time, watermark, Condition(f"{BATCH.name} = {moment.sequence}"))
            if following != watermark and not moment.joins_next:
                yield _Step(moment.time, following, _NONE)

    # -- running

    def _run(self, node: Process, operator: ProcessOperator, steps: Sequence[_Step]) -> dict[str, Relation]:
        columns = {"": operator.outputs, **operator.side_outputs}
        emitted: dict[str, list[pa.RecordBatch]] = {name: [] for name in columns}
        manifest: str | None = None
        with tempfile.TemporaryDirectory() as folder:
            for number, step in enumerate(steps):
                execute.set_times(self.con, step.time, step.watermark)
                watermark = None if step.watermark is None else behind(step.watermark, node.delay_below)
                state = Bucket.open(LocalFilesystem(), folder, 0, operator.tables, manifest, NO_TIME)
                arrived = [] if step.where == _NONE else list(self._arriving(node, operator, step.where))
                if not arrived and not _is_due(state, watermark, step.time):
                    continue
                for rows in operator.step(self.con, state, arrived, StepTimes(number, watermark, step.time)):
                    if isinstance(rows, SideRows):
                        emitted[rows.output].append(rows.rows)
                    else:
                        emitted[""].append(rows)
                manifest = state.commit(self.con, number, step.time, watermark)
        count = len(self._tables)
        return {
            output: self._keep(f"_emitted_{count}_{index}", columns[output], batches)
            for index, (output, batches) in enumerate(emitted.items())
        }

    def _arriving(
        self, node: Process, operator: ProcessOperator, where: Condition | None
    ) -> Iterator[tuple[Port, pa.Table]]:
        """Yield the rows of a batch as they arrive at the operator."""
        for index, one in enumerate(operator.inputs):
            chosen = f" WHERE {where}" if where else ""
            self.con.execute(f"CREATE OR REPLACE TEMP VIEW {ROWS_OF_BATCH} AS SELECT * FROM {_table(index)}{chosen}")
            rows = self.con.sql(f"SELECT * FROM ({operator.parts[one.name]})").to_arrow_table()
            if rows.num_rows:
                yield Port(one.name, never_late=node.inputs[index].never_late), rows

    def _keep(self, name: str, columns: Sequence[Column], batches: Sequence[pa.RecordBatch]) -> Relation:
        """Store the emitted rows in a table, without those that the function retracted, and return the table."""
        rows = no_rows(columns)
        if batches:
            self.con.register("_changes", pa.Table.from_batches(batches))
            rows = Select(f"SELECT {typed(columns)} FROM _changes")
        own = [c for c in columns if c.name != WEIGHT]
        if len(own) < len(columns):
            listed = names(own)
            summed = f"SELECT {listed}, CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT} FROM ({rows}) GROUP BY {listed}"
            rows = Select(f"SELECT {listed} FROM ({summed}), range({WEIGHT})")
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {rows}")
        if batches:
            self.con.unregister("_changes")
        return Relation(name)


def can_repeat(function_inputs: Sequence[FunctionInput]) -> bool:
    """Return whether the batch of every input row is known. It is known of rows from tables, but not from operators."""
    return all(one.is_read for one in function_inputs)


def _table(index: int) -> Relation:
    return Relation(f"_given_{index}")


def _with_arrival(node: Process, index: int, one: InputPlan) -> tuple[InputPlan, str]:
    """Return an input with the order in which its rows arrive, and SQL for the extra columns of that order."""
    arrival = ProcessPlan(node).arriving(index)
    if arrival.columns == FILE_ORDER or [c.name for c in arrival.columns] == [ARRIVED.name]:
        return one, ""
    if len(arrival.columns) == 1 and isinstance(arrival.node, Projection):
        # The output of an operator, in the order of a time.
        return one, f", {arrival.node.items[0].expression.sql} AS {arrival.columns[0].name}"
    return replace(one, order=()), ""


def _is_due(state: Bucket, watermark: EventTime | None, time: ProcessingTime) -> bool:
    event = state.event_timer is not None and watermark is not None and state.event_timer <= watermark
    return event or (state.processing_timer is not None and state.processing_timer <= time)
