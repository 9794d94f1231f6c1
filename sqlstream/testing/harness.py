"""A harness for one process function, without SQL: rows, watermarks and time go in; emitted rows, state and timers come out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, ProcessFunction, ScalarArgument, StateDeclaration, Table
from sqlstream.duck import databases
from sqlstream.duck.sql import quote_name
from sqlstream.errors import UsageError, missing
from sqlstream.functions import types
from sqlstream.functions.codecs import decoded
from sqlstream.functions.declaration import literal
from sqlstream.functions.process.context import Timer, instant
from sqlstream.functions.process.declare import declare_process, implementation_of
from sqlstream.functions.process.shapes import ResultShape
from sqlstream.jobs.changelog import changelog
from sqlstream.logical.bind.process_rows import with_rows
from sqlstream.logical.plan.expressions import Field
from sqlstream.physical.plan import SinkPlan
from sqlstream.runtime.engine import Receiver
from sqlstream.testing.harness_tables import Row, harness_tables
from sqlstream.testing.stream import Stream, clock_step
from sqlstream.units import ProcessingTime

# The names of the operator, which is a view, of the job, and of the table with the function's rows; and the prefix of the tables
# with the rows of side outputs.
_OPERATOR, _JOB, _MAIN = "harness_operator", "harness_job", "harness_emitted"
_SIDE = "harness_side_"
_ALL: Any = object()


class Emitted(NamedTuple):
    """A row that a process function has emitted, with its key and its event time (None without `on_time`)."""

    key: Any
    row: Any
    time: datetime | None


class ProcessHarness:
    """Runs one process function, with the operator, the state and the timers of a job.

    Pass the arguments of the function's class by position or by name. `keys` are the columns that partition its tables, `on_time`
    is the column with the event time; mappings by table, if they differ. The columns of a table are the keys, the fields of its
    row, and `on_time`. The first rows determine types that have no hint, unless `columns` declares the columns of the table:
    `"sensor STRING, temperature DOUBLE"`, or a mapping by table. With `ordered`, rows wait for the watermark, and come in the
    order of their times, as with ORDER BY in the call. Broadcast tables have no keys. If `on_time` is a single name, it applies
    to broadcast tables only if rows are `ordered`.

    Each step is one micro-batch, and returns the rows that the function emits in it, sorted by key. The watermark moves only by
    `watermark` and `finish`; the clock starts in 1970 and moves by `advance`.
    """

    def __init__(
        self,
        function: type,
        /,
        *arguments: Any,
        keys: str | Sequence[str] | Mapping[str, str | Sequence[str]] = (),
        on_time: str | Mapping[str, str] | None = None,
        columns: str | Mapping[str, str] | None = None,
        ordered: bool = False,
        options: Mapping[str, str] | None = None,
        **named: Any,
    ):
        self._function: ProcessFunction = declare_process(function)
        self._implementation = implementation_of(function)
        self._tables = harness_tables(self._function, keys, on_time, columns, ordered=ordered)
        # The first table with keys; all tables with keys agree in keys and time.
        self._keyed = next(t for t in self._tables if not t.row.broadcast)
        if ordered and not all(t.time or t.row.broadcast for t in self._tables):
            raise UsageError("the order of rows is that of their event time", hint='Write on_time="ts".')
        for table in self._tables:
            table.ordered = ordered
        self._arguments = _constants(self._function, self._implementation.scalars, function, arguments, named)
        self._shapes = {_MAIN: self._implementation.result}
        self._shapes |= {f"{_SIDE}{name}": shape for name, shape in self._implementation.sides.items()}
        self._emitted: dict[str, list[Emitted]] = {name: [] for name in self._shapes}
        self._is_started = False
        self._stream = _Stream([self._function], options)

    # -- steps

    def rows(self, rows: Iterable[Row] = (), /, **tables: Iterable[Row]) -> list[Any]:
        """Pass rows to the function: `rows([..])`, or, by table, `rows(rides=[..], fares=[..])`; return the emitted rows.

        A row is a mapping, an object with fields, or a tuple in the order of the columns; times may be texts. Raises UsageError
        for a row or a table that does not fit.
        """
        rows_by_table = {name: list(some) for name, some in tables.items()}
        if first := list(rows):
            if len(self._tables) > 1:
                names = ", ".join(f"{t.name}=[..]" for t in self._tables)
                raise UsageError("the function reads several tables", hint=f"Give rows by table: rows({names}).")
            rows_by_table[self._tables[0].name] = first
        by_name = {t.name: t for t in self._tables}
        for name in rows_by_table:
            if name not in by_name:
                raise UsageError(f'the function has no table "{name}"', hint=missing("table", name, by_name))
        self._start(rows_by_table)
        return self._step(
            lambda: self._stream.batches({n: by_name[n].shaped(some) for n, some in rows_by_table.items()})
        )

    def watermark(self, time: str | datetime) -> list[Any]:
        """Move the watermark to an event time; event-time timers up to it fire. Return the emitted rows."""
        if not any(t.time for t in self._tables):
            raise UsageError("a watermark needs an event time", hint='Write ProcessHarness(.., on_time="ts").')
        self._start({})
        return self._step(lambda: self._stream.ticks({t.name: str(time) for t in self._tables if t.time}))

    def advance(self, time: str | timedelta) -> list[Any]:
        """Move the clock by a duration, such as "10 min"; return the emitted rows.

        Processing-time timers that are due fire, and state expires. Raises UsageError for a duration that is negative, or not of
        whole milliseconds.
        """
        self._stream.now = ProcessingTime(self._stream.now + clock_step(time, unit=None))
        return self._step(self._stream.run_empty) if self._is_started else []

    def finish(self) -> list[Any]:
        """End the input: all event-time timers fire. Return the emitted rows."""
        self._start({})
        return self._step(self._stream.finish)

    def restart(self) -> None:
        """Continue from the files on disk alone, as a new process would."""
        self._stream.restart()

    # -- rows, state and timers

    def emitted(self, side_output: str | None = None) -> list[Emitted]:
        """Return all rows emitted so far, by default of the main output, else of a side output, with their keys and times."""
        if side_output is None:
            return list(self._emitted[_MAIN])
        if f"{_SIDE}{side_output}" not in self._emitted:
            hint = missing("side output", side_output, self._implementation.sides)
            raise UsageError(f'the function has no side output "{side_output}"', hint=hint)
        return list(self._emitted[f"{_SIDE}{side_output}"])

    @property
    def now(self) -> datetime:
        """The processing time."""
        return instant(self._stream.now)

    def state(self, name: str, key: Any = _ALL) -> Any:
        """Return a state of a key, as the function sees it after the last step; without a key, a dict of the states of all keys.

        A missing value is None; a list state is a list, a map state a dict. A broadcast state has no key: it is returned itself.
        """
        declared = {s.name: s for s in self._function.states}
        if name not in declared:
            raise UsageError(f'the function has no state "{name}"', hint=missing("state", name, declared))
        state = declared[name]
        nothing: Any = {"value": None, "list": [], "map": {}}[state.kind]
        if state.broadcast:
            if key is not _ALL:
                raise UsageError(f'state "{name}" is broadcast: it is the same for all keys', hint="Leave the key out.")
            return self._collections(state).get(None, nothing)
        states = self._values(state) if state.kind == "value" else self._collections(state)
        return states if key is _ALL else states.get(_hashable(key), nothing)

    def timers(self, key: Any = _ALL) -> Any:
        """Return the timers of a key, event-time timers first, each kind by time; without a key, a dict with all keys."""
        timers: dict[Any, list[Timer]] = {}
        if self._is_started and self._function.has_timers:
            table = self._read(f"{_OPERATOR}_timers")
            kinds, names, times = (c.to_pylist() for c in table.columns[-3:])
            for at, kind, name, time in sorted(
                zip(self._keys(table), kinds, names, times, strict=True), key=lambda timer: (timer[1], timer[3])
            ):
                is_event = kind == "event time"
                due = time if is_event else instant(0) + (time - datetime(1970, 1, 1))
                timers.setdefault(_hashable(at), []).append(Timer(name or "", due, is_event))
        return timers if key is _ALL else timers.get(_hashable(key), [])

    def counters(self) -> dict[str, int]:
        """Return the counters of `ctx.count`, by name."""
        if not self._is_started:
            return {}
        [(counters,)] = self._stream.query(f"SELECT counters FROM sqlstream.operators WHERE operator = '{_OPERATOR}'")
        return dict(counters or {})

    def close(self) -> None:
        """Stop the job, and delete its files."""
        self._stream.close()

    def __enter__(self) -> ProcessHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    def _start(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Start the job once the columns of all tables are known."""
        if self._is_started:
            return
        self._check_state()
        self._stream.script(";\n".join(table.declare(rows.get(table.name, ())) for table in self._tables))
        self._take_columns()
        arguments = [*(table.argument for table in self._tables), *self._arguments]
        times = [quote_name(t.time) for t in self._tables if t.time and not t.row.broadcast]
        arguments += [f"on_time => DESCRIPTOR({', '.join(dict.fromkeys(times))})"] if times else []
        statements = [f"SET 'pipeline.name' = '{_JOB}'"]
        statements += [f"CREATE VIEW {_OPERATOR} AS SELECT * FROM {self._function.name}({', '.join(arguments)})"]
        # Rows go into tables that print; the harness stores what they print.
        statements += [
            f"CREATE TABLE {name} ({self._result_columns(shape)}) WITH ('connector' = 'print')"
            for name, shape in self._shapes.items()
        ]
        sides = [f"SIDE_OUTPUT(TABLE {_OPERATOR}, '{name}')" for name in self._implementation.sides]
        inserts = [
            f"INSERT INTO {name} SELECT * FROM {rows_of};"
            for name, rows_of in zip(self._shapes, [_OPERATOR, *sides], strict=True)
        ]
        statements.append(f"EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END")
        self._stream.script(";\n".join(statements))
        self._is_started = True

    def _take_columns(self) -> None:
        """Set the columns of states and outputs whose hint is `Row`, from the table, as a call of the function does."""
        schemas = [tuple(Field(c.name, c.type) for c in self._declared(t.name).visible) for t in self._tables]
        self._function = with_rows(self._function, schemas)
        self._implementation = self._implementation.over(self._function)
        self._shapes = {_MAIN: self._implementation.result}
        self._shapes |= {f"{_SIDE}{name}": shape for name, shape in self._implementation.sides.items()}

    def _declared(self, name: str) -> Table:
        table = self._stream.compiler.catalog.relation(name)
        assert isinstance(table, Table)
        return table

    def _check_state(self) -> None:
        if (self._function.keyed_states or self._function.has_timers) and not self._keyed.keys:
            hint = 'Say by which column its rows are partitioned: ProcessHarness(.., keys="sensor").'
            raise UsageError(f'process function "{self._function.name}" keeps state for each key', hint=hint)

    def _result_columns(self, shape: ResultShape) -> str:
        """Return the columns of an output's table, as SQL: the keys, the emitted columns, the time."""
        first = self._keyed
        table_types = {c.name.lower(): c.type for c in self._declared(first.name).columns}
        result_types = [table_types[key.lower()] for key in first.keys] + [c.type for c in self._beside(shape)]
        result_types += [table_types[first.time.lower()]] if first.time else []
        return ", ".join(f"c{i} {type}" for i, type in enumerate(result_types))

    def _step(self, step: Callable[[], None]) -> list[Any]:
        before = len(self._emitted[_MAIN])
        step()
        for name, tables in self._stream.take().items():
            rows = [row for table in tables for row in self._rows_of(table, self._shapes[name])]
            try:
                rows.sort(key=lambda row: row.key)
            except TypeError:
                rows.sort(key=lambda row: repr(row.key))
            self._emitted[name] += rows
        return [row.row for row in self._emitted[_MAIN][before:]]

    def _rows_of(self, table: pa.Table, shape: ResultShape) -> list[Emitted]:
        keys = [key.lower() for key in self._keyed.keys]
        beside = [c.name for c in self._beside(shape)]
        indexes = {name: i for i, name in enumerate(keys)} | {n: len(keys) + i for i, n in enumerate(beside)}
        own = [
            decoded(types.codec(type, hint), table.column(indexes.get(name, indexes.get(name.lower(), 0))))
            for name, type, hint in shape.fields
        ]
        rows = own[0] if shape.kind == "value" else list(map(_row_maker(shape), zip(*own, strict=True)))
        is_timed = table.num_columns > len(keys) + len(beside)
        times = table.column(table.num_columns - 1).to_pylist() if is_timed else [None] * len(rows)
        return [Emitted(*row) for row in zip(self._keys(table), rows, times, strict=True)]

    def _beside(self, shape: ResultShape) -> tuple[Column, ...]:
        """Return the columns of an output besides the keys; a function may emit its keys, too."""
        return self._function.beside(self._keyed.keys, (Column(name, type) for name, type, _ in shape.fields))

    def _keys(self, table: pa.Table) -> list[Any]:
        """Return the keys of the rows of a table, as `ctx.key` has them."""
        columns = [table.column(i).to_pylist() for i in range(len(self._keyed.keys))]
        if not columns:
            return [None] * table.num_rows
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _read(self, view: str) -> pa.Table:
        return self._stream.arrow(f'SELECT * FROM state."{_JOB}"."{view}"')

    def _values(self, state: StateDeclaration) -> dict[Any, Any]:
        if not self._is_started:
            return {}
        table = self._read(_OPERATOR)
        index = [s.name for s in self._function.keyed_states if s.kind == "value"].index(state.name)
        column = table.column(len(self._keyed.keys) + index)
        values = decoded(types.codec(state.type, self._implementation.hints[state.name][0]), column)
        by_key = {_hashable(k): v for k, v in zip(self._keys(table), values, strict=True) if v is not None}
        if (aggregate := self._implementation.aggregates.get(state.name)) is None:
            return by_key
        opened = aggregate.opened()
        try:
            return {key: opened.result(accumulator) for key, accumulator in by_key.items()}
        finally:
            opened.close()

    def _collections(self, state: StateDeclaration) -> dict[Any, Any]:
        if not self._is_started:
            return {}
        table = self._read(f"{_OPERATOR}_{state.name}")
        keys = 0 if state.broadcast else len(self._keyed.keys)
        hints = self._implementation.hints[state.name]
        if state.kind == "value":
            values = decoded(types.codec(state.type, hints[0]), table.column(0))
            return dict(zip([None], values, strict=False))
        items = decoded(types.codec(state.type, hints[-1]), table.column(keys + 1))
        if state.kind == "map":
            assert state.key_type is not None
            indexes = decoded(types.codec(state.key_type, hints[0]), table.column(keys))
        else:
            indexes = table.column(keys).to_pylist()
        items_by_key: dict[Any, dict[Any, Any]] = {}
        row_keys = [None] * len(items) if state.broadcast else self._keys(table)
        for key, index, item in zip(row_keys, indexes, items, strict=True):
            items_by_key.setdefault(_hashable(key), {})[index] = item
        if state.kind == "map":
            return items_by_key
        return {key: [item for _, item in sorted(own.items())] for key, own in items_by_key.items()}


def _row_maker(shape: ResultShape) -> Callable[[tuple[Any, ...]], Any]:
    """Return the function that makes an emitted row of its values."""
    return tuple if shape.row_class is tuple else lambda values: shape.row_class(*values)


class _Stream(Stream):
    """A stream that stores what the job prints as Arrow tables, by table name."""

    def __init__(self, functions: Iterable[ProcessFunction], options: Mapping[str, str] | None):
        self._received: dict[str, list[pa.Table]] = {}
        super().__init__("", functions=functions, options=options, parallelism=1)

    def _receiver(self, sink: SinkPlan, rows: list[tuple[Any, ...]]) -> Receiver:
        received = self._received[sink.table.name] = []
        return _ResultTables(sink, received)

    def take(self) -> dict[str, list[pa.Table]]:
        """Return what was printed since the last call, by table name."""
        received = {name: list(tables) for name, tables in self._received.items()}
        for tables in self._received.values():
            tables.clear()
        return received

    def run_empty(self) -> None:
        """Run a batch without rows: due timers fire, and state expires."""
        for run in self.runs.values():
            run.batch({})


class _ResultTables:
    """Stores the rows of a job as Arrow tables."""

    limit, is_full, is_gone = None, False, False

    def __init__(self, sink: SinkPlan, tables: list[pa.Table]):
        self.sink, self.tables = sink, tables

    def receive(self, files: Sequence[str]) -> None:
        for file in files:
            with databases.passing() as con:
                self.tables.append(con.sql(changelog(self.sink, file)).to_arrow_table().remove_column(0))


def _constants(
    function: ProcessFunction,
    hints: Mapping[str, Any],
    implementation: type,
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
) -> list[str]:
    """Return the constants of a call as SQL. Raises UsageError for arguments that the class does not take."""
    try:
        values = inspect.signature(implementation).bind(*arguments, **named).arguments
    except TypeError as error:
        raise UsageError(f'process function "{function.name}" cannot be made: {error}') from error
    return [f"{s.name} => {_constant(s, hints[s.name], values[s.name])}" for s in function.scalars if s.name in values]


def _constant(scalar: ScalarArgument, hint: Any, value: Any) -> str:
    try:
        return literal(types.codec(scalar.type, hint), scalar.type, value)
    except (pa.ArrowException, duckdb.Error, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f'argument "{scalar.name}" is {scalar.type}, not {value!r}') from error


def _hashable(key: Any) -> Any:
    """Return a key that a dict can have: lists become tuples, dicts become texts."""
    if isinstance(key, list | tuple):
        return tuple(map(_hashable, key))
    return repr(key) if isinstance(key, dict) else key
