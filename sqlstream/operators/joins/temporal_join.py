"""The temporal join: each row is joined with the version that is valid at its event time.

Rows and versions wait in state until the watermark passes their times; then the valid version is final, and the row is emitted.
Of the versions that the watermark has passed, a later row can need only the newest of its key. These are a Z-set, in which a
batch reads and changes only the keys that it has rows of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import ADDS, ARRIVED, CHANGE, FILE_ORDER, INTERNAL, internal
from sqlstream.duck.sql import (
    Relation,
    Relations,
    Rows,
    Select,
    names,
    no_rows,
    quote_name,
    rows_where,
    subquery,
    typed,
    union_all,
)
from sqlstream.duck.time_variables import NEVER
from sqlstream.duck.types import encoded
from sqlstream.logical.plan.windows import UNTIL_PASSED
from sqlstream.operators.groups import stored_columns
from sqlstream.operators.joins.matching import JoinCondition
from sqlstream.operators.keyed_state import KeyedState
from sqlstream.operators.late_rows import LateOutput, late_outputs
from sqlstream.operators.operator import Holds, Inputs, Operator, SideRows, StepTimes
from sqlstream.operators.scratch import keep, keep_and_count, leaving
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import WEIGHT, summed, zset
from sqlstream.units import NO_TIME, EventTime
from sqlstream.warehouse.declarations import TableDeclaration

# The state tables: waiting rows, waiting versions, and of each key the newest version that the watermark has passed.
ROWS, VERSIONS, CURRENT = "rows", "versions", "current"
# The event time of a row or version in microseconds; whether the key exists from then on, or was deleted then.
AT, THERE = Column(internal("at"), "BIGINT"), Column(internal("there"), "BOOLEAN")


@dataclass(frozen=True)
class TemporalJoinOperator(Operator):
    """Joins each row of the left input with the newest version, at its event time, of its key in the right input.

    `join` is inner or left; `times` are the SQL of the event times of rows and of versions. With `changing` the right input is a
    changelog with a key. If a key has several versions at one time, one is valid: with `changing` the last one in the order of
    the source; else the last one to arrive, if versions have the column ARRIVED; else the first one in the order of all columns.
    The operator drops late rows; `late_inputs` are the indexes of the inputs whose late rows are side outputs.
    """

    matching: JoinCondition
    join: str
    times: tuple[str, str]
    changing: bool = False
    late_inputs: tuple[int, ...] = ()

    # -- what is stored

    @property
    def kind(self) -> str:
        return "join"

    @property
    def hash_columns(self) -> tuple[str, ...]:
        return self.matching.key_names

    @cached_property
    def _row(self) -> tuple[Column, ...]:
        return (*self.matching.stored(0), AT)

    @cached_property
    def _passed_version(self) -> tuple[Column, ...]:
        """The state columns of a version that the watermark has passed."""
        return (*self.matching.stored(1), AT)

    @cached_property
    def _version(self) -> tuple[Column, ...]:
        """The state columns of a waiting version."""
        return (*self._passed_version, THERE, *(FILE_ORDER if self.changing else ()))

    @cached_property
    def _current_state(self) -> KeyedState:
        return KeyedState(self.matching.key_names, {CURRENT: self._passed_version}, CURRENT, NO_TIME)

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        waiting = (TableDeclaration(ROWS, self._row, AT.name), TableDeclaration(VERSIONS, self._version, AT.name))
        return (*waiting, zset(CURRENT, self._passed_version))

    @property
    def holds(self) -> Holds:
        return self.matching.holds(((0, ROWS), (1, VERSIONS), (1, CURRENT)))

    @cached_property
    def parts(self) -> dict[str, Select]:
        """`rows` and `versions`: their state columns.

        Rows with a NULL key are left out in an inner join, versions with one always. Of a changelog, rows before an update and
        rows without a finite time are left out.
        """
        times = [f"epoch_us({time}) AS {AT.name}" for time in self.times]
        rows = self.matching.select(0, times[0])
        where = "" if self.join == "left" else f" WHERE {self.matching.has_keys()}"
        there = f"{ADDS} AS {THERE.name}" if self.changing else f"true AS {THERE.name}"
        # The row after an update says all that the row before it does. A change without a finite time is no version.
        news = f" WHERE {CHANGE.name} <> 'B' AND isfinite({self.times[1]})" if self.changing else ""
        indexes = (c.name for c in self._version[len(self._passed_version) + 1 :])
        versions = Relation(f"({self.matching.select(1, times[1], there, *indexes)}{news})")
        return {
            ROWS: encoded(self._row, Relation(f"(SELECT * FROM ({rows}){where})")),
            VERSIONS: encoded(self._version, rows_where(versions, self.matching.has_keys())),
        }

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return tuple(c for columns in self.matching.columns for c in columns)

    @cached_property
    def _late(self) -> dict[int, LateOutput]:
        return {
            index: self.matching.late(index, f"make_timestamp({AT.name})", UNTIL_PASSED) for index in self.late_inputs
        }

    @cached_property
    def side_outputs(self) -> dict[str, tuple[Column, ...]]:
        return late_outputs(self._late.values())

    # -- a batch

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        times: StepTimes,
    ) -> Iterator[pa.RecordBatch | SideRows]:
        """Emit late rows as side outputs, then the rows that the watermark has passed, joined with their versions.

        Event times are microseconds; a row is late if the watermark has reached its time. The event timer is the least time of
        the waiting rows and versions.
        """
        late: dict[str, list[pa.Table]] = {ROWS: [], VERSIONS: []}
        behind = self._arrive(state, inputs, times, late)
        if times.watermark is not None:
            for index, output in self._late.items():
                yield from output.rows(con, late[(ROWS, VERSIONS)[index]], times.watermark)
        if times.watermark is not None:
            rows = self._passed(con, state, "_due", ROWS, self._row, behind[ROWS], times.watermark)
            news = self._passed(con, state, "_news", VERSIONS, self._version, behind[VERSIONS], times.watermark)
            if rows or news:
                self._find_versions(con, state, times)
            if rows:
                yield from leaving(con, self.outputs, self._joined)
            if news:
                self._current_state.store(con, state, CURRENT, subquery(self._newest), times)
        due_times = (
            state.forget(con, t, NEVER if times.watermark is None else times.watermark) for t in (ROWS, VERSIONS)
        )
        state.event_timer = min((t for t in due_times if t is not None), default=None)

    def _arrive(
        self, state: Bucket, inputs: Inputs, times: StepTimes, late: dict[str, list[pa.Table]]
    ) -> dict[str, list[pa.Table]]:
        """Store rows that the watermark has not passed. Return on-time rows that it has, by table; add late ones to `late`."""
        passed_rows: dict[str, list[pa.Table]] = {ROWS: [], VERSIONS: []}
        for port, rows in inputs:
            if isinstance(rows, Segment):
                if times.watermark is None or (rows.low is not None and rows.low > times.watermark):
                    state.adopt(port.part, [rows])
                    continue
                rows = state.read(rows)
            if times.watermark is not None and rows.num_rows:
                passed = pc.less_equal(rows.column(AT.name), times.watermark)
                behind, rows = rows.filter(passed), rows.filter(pc.invert(passed))
                if port.never_late:
                    passed_rows[port.part].append(behind)
                else:
                    state.count("late_rows", behind.num_rows)
                    late[port.part].append(behind)
            state.append(port.part, rows, times.batch)
        return passed_rows

    def _passed(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        name: str,
        table: str,
        columns: tuple[Column, ...],
        behind: list[pa.Table],
        watermark: EventTime,
    ) -> int:
        """Make a temporary table of the rows that the watermark has passed since the last batch, and return their number.

        These are rows of the state table `table` and `behind`, rows that came after the watermark had passed them, but on time.
        """
        selects = [Select(f"SELECT * FROM {waited}")] if (waited := state.relation(table, up_to=watermark)) else []
        if any(rows.num_rows for rows in behind):
            con.register(f"_behind_{table}", pa.concat_tables(behind, promote_options="permissive"))
            selects.append(Select(f"SELECT {typed(columns)} FROM _behind_{table}"))
        _, count = keep_and_count(con, name, union_all(selects or [no_rows(columns)]))
        return count

    def _find_versions(self, con: duckdb.DuckDBPyConnection, state: Bucket, times: StepTimes) -> None:
        """Make the temporary table `_versions` for the keys of `_due` and `_news`: one version for each key and time."""
        keys = ", ".join(self.matching.key_names)
        touched = Select(f"SELECT {keys} FROM _due UNION SELECT {keys} FROM _news")
        keep(con, self._current_state.touched_by, touched)
        self._current_state.load(con, state, times)
        stored = names((*self._passed_version, THERE))
        one = f"row_number() OVER (PARTITION BY {keys}, {AT.name} ORDER BY {', '.join(self._order)}) = 1"
        news = f"SELECT {stored} FROM _news QUALIFY {one}"
        old = f"SELECT {names(self._passed_version)}, true AS {THERE.name} FROM _old_{CURRENT}"
        keep(con, "_versions", Select(f"({news}) UNION ALL {old}"))

    @property
    def _order(self) -> list[str]:
        """The order of the versions of one key and time, of which the first is valid."""
        if self.changing:
            return [f"{c.name} DESC" for c in FILE_ORDER]
        own = zip(self.matching.columns[1], self.matching.own_columns(1), strict=True)
        arrived = [f"{stored.name} DESC" for c, stored in own if c.name == ARRIVED.name]
        # Versions that the job stored before it recorded the order of arrival share one position in it.
        return [*arrived, *(c.name for c in self.matching.stored(1))]

    @property
    def _joined(self) -> Select:
        """The rows of `_due`, each joined with its version."""
        rows = self.matching.named(0, Relation("_due"), AT.name)
        versions = self.matching.named(1, Relation("_versions"), AT.name, THERE.name)
        on = self.matching.on("_0", "_1", f"_0.{AT.name} >= _1.{AT.name}", condition=False)
        holds = f"_1.{THERE.name}" + (f" AND ({self.matching.condition})" if self.matching.condition else "")
        if self.join == "inner":
            joined = f"{rows} _0 ASOF JOIN {versions} _1 ON {on} WHERE {holds}"
            return Select(f"SELECT {self.matching.shown((0, 1))} FROM {joined}")
        own = self.matching.shown((0,))
        others = [sql for _, sql in stored_columns(self.matching.columns[1])]
        matched = f"SELECT {self.matching.shown((0, 1))}, coalesce({holds}, false) AS {INTERNAL}matched"
        padded = ", ".join(f"CASE WHEN {INTERNAL}matched THEN {c} END AS {c}" for c in others)
        return Select(f"SELECT {own}, {padded} FROM ({matched} FROM {rows} _0 ASOF LEFT JOIN {versions} _1 ON {on})")

    @property
    def _newest(self) -> Select:
        """The newest version of each key, with weights; a deleted key has none."""
        keys = ", ".join(self.matching.key_names)
        last = f"row_number() OVER (PARTITION BY {keys} ORDER BY {AT.name} DESC) = 1"
        newest = f"SELECT * FROM _versions QUALIFY {last}"
        items = f"{names(self._passed_version)}, CAST(1 AS BIGINT) AS {WEIGHT}"
        return Select(f"SELECT {items} FROM ({newest}) WHERE {THERE.name}")

    # -- the views

    def view(self, index: int, relations: Relations, watermark: str) -> Select:
        """Return the waiting rows (`index` 0), or versions: the waiting ones, and the newest of each key.

        `relations` read the state tables; the watermark is not used.
        """
        own, at = self.matching.shown((index,)), f"make_timestamp({AT.name})"
        if index == 0:
            rows = self.matching.named(0, relations[ROWS], AT.name)
            return Select(f"SELECT {own}, {at} AS _event_time FROM {rows}")
        waiting = f"SELECT {names((*self._passed_version, THERE))}, 'waiting' AS _state FROM {relations[VERSIONS]}"
        newest = summed(self._passed_version, relations[CURRENT])
        current = f"SELECT {names(self._passed_version)}, true AS {THERE.name}, 'kept' AS _state FROM ({newest})"
        both = Relation(f"({waiting} UNION ALL {current})")
        rows = self.matching.named(1, both, AT.name, THERE.name, "_state")
        deleted = f", NOT {THERE.name} AS _deleted" if self.changing else ""
        view = Select(f"SELECT {own}, {at} AS _event_time, _state{deleted} FROM {rows}")
        shown = ", ".join(quote_name(c.name) for c in self.view_columns(1))
        return Select(f"SELECT {shown} FROM ({view})")

    def view_columns(self, index: int) -> tuple[Column, ...]:
        """Return the columns of `view`: the input's columns and `_event_time`.

        Versions have `_state`, too, `waiting` or `kept`, and in a changelog `_deleted`, a BOOLEAN.
        """
        time, deleted = Column("_event_time", "TIMESTAMP"), Column("_deleted", "BOOLEAN")
        more = (Column("_state", "VARCHAR"), *([deleted] if self.changing else [])) if index else ()
        return (*_shown(self.matching.columns[index]), time, *more)

    def side_views(self, relations: Relations, watermark: str) -> tuple[Rows, ...]:
        indexes = range(len(self.matching.columns))
        return tuple(Rows.of(self.view(p, relations, watermark), self.view_columns(p)) for p in indexes)

    def current(self, relations: Relations, watermark: str) -> Select:
        """Return the rows and versions in state; `_side` is `left` or `right`, the other side's columns are NULL."""
        sides = enumerate(("left", "right"))
        both = [f"SELECT '{side}' AS _side, * FROM ({self.view(p, relations, watermark)})" for p, side in sides]
        return Select(" UNION ALL BY NAME ".join(both))

    @cached_property
    def viewed(self) -> tuple[Column, ...]:
        """The columns of `current`: `_side`, the columns of both inputs, and the columns that the view of versions adds."""
        more = self.view_columns(1)[len(_shown(self.matching.columns[1])) :]
        return (Column("_side", "VARCHAR"), *_shown(self.outputs), *more)


def _shown(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns that users see."""
    return tuple(c for c in columns if c.name != ARRIVED.name)
