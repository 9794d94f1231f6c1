"""The rows that a function emits in a batch, by output, each with the key and the event time that it belongs to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.time_texts import python_value
from sqlstream.duck.time_variables import NEVER
from sqlstream.functions.invocation import shown
from sqlstream.functions.process.instances import Instance
from sqlstream.functions.process.shapes import ResultShape, RowMismatch
from sqlstream.functions.process.vectors import TableShape
from sqlstream.logical.plan.process import ROWTIME
from sqlstream.operators.operator import SideRows
from sqlstream.units import EventTime

# The optional column of emitted tables with the event times of their rows.
_OWN_TIME = Column(ROWTIME, "TIMESTAMP")
# The column of emitted rows with event times that says whether a row is late for the operators that read it.
LATE_RESULT = Column(internal("late"), "BOOLEAN")
_SHOWN = 200


class EmittedRows:
    """The emitted rows of an output. A *stretch* is successive rows that share a key, an event time, and whether they are late.

    Without `timed` rows have no event times. `where` names the output in errors. With `is_keyless` rows belong to no key: key
    columns have the values that the rows emit, or NULL.
    """

    # From so many rows on the output is drained.
    most = 8_000
    # The event time before which rows are late that have event times of their own.
    late_before: EventTime = NEVER

    def __init__(self, shape: ResultShape, timed: bool, where: str = "", *, is_keyless: bool = False):
        self.shape, self.timed, self.is_keyless = shape, timed, is_keyless
        self.write = shape.writer(where)
        self.rows: list[Any] = []
        self.ends: list[int] = []
        self.numbers: list[int] = []
        self.times: list[Any] = []
        self.late: list[bool] = []

    def stamp(self, number: int, time: Any, *, late: bool) -> int:
        """End a stretch: set the key's number and the event time of the rows emitted since the last stretch.

        Return the number of rows since the last `drain`.
        """
        size = len(self.rows)
        self.ends.append(size)
        self.numbers.append(number)
        if self.timed:
            self.times.append(time)
            self.late.append(late)
        return size

    def drain(self, keys: Mapping[str, pa.ChunkedArray]) -> pa.Table:
        """Return the rows that were emitted since the last call, and clear the output.

        `keys` maps the names of the key columns to their values, which stand at the numbers of the keys. The result has the key
        columns, the other columns of the output and, with `timed`, ROWTIME, a TIMESTAMP, and LATE_RESULT. Raises RowMismatch,
        with the key's number, for a row that does not fit the declared columns, or whose key column differs from its key.
        """
        try:
            columns = self._columns()
        except RowMismatch as error:
            raise RowMismatch(self.numbers[bisect_right(self.ends, error.number)], error.what) from error
        lengths = self._lengths()
        of_keys = pa.array(np.repeat(np.array(self.numbers, dtype=np.int64), lengths))
        all_columns: dict[str, Any] = {name: values.take(of_keys) for name, values in keys.items()}
        all_columns |= self._beside(all_columns, columns, of_keys)
        if self.timed:
            indexes = pa.array(np.repeat(np.arange(len(self.times)), lengths))
            times, late = pa.array(self.times, pa.timestamp("us")), pa.array(self.late, pa.bool_())
            all_columns |= self._timed(times.take(indexes), late.take(indexes), indexes)
        self._clear()
        return pa.table(all_columns)

    def _columns(self) -> Mapping[str, Any]:
        """Return the columns of the emitted rows. Raises RowMismatch, with the index among these rows."""
        return self.write(self.rows)

    def _lengths(self) -> npt.NDArray[Any]:
        """Return how many rows each stretch has."""
        ends = np.array([0, *self.ends], dtype=np.int64)
        return ends[1:] - ends[:-1]

    def _beside(self, keys: Mapping[str, Any], columns: Mapping[str, Any], of_keys: pa.Array) -> dict[str, Any]:
        """Return the columns that are not keys. A row that has a key column, too, must have the value of its key in it."""
        own = {name.lower(): name for name in keys}
        others: dict[str, Any] = {}
        for name, values in columns.items():
            if (key := own.get(name.lower())) is None:
                others[name] = values
            elif self.is_keyless:
                others[key] = _as_key(name, values, keys[key].type)
            elif (row := _astray(values, keys[key])) is not None:
                value, at = (shown(python_value(one[row]), _SHOWN) for one in (values, keys[key]))
                what = f'put {value} into "{name}", the column of the key, which is {at}'
                raise RowMismatch(of_keys[row].as_py(), what)
        return others

    def _timed(self, times: pa.Array, late: pa.Array, indexes: pa.Array) -> dict[str, Any]:
        """Return ROWTIME and LATE_RESULT. Each argument has one value per row: time, lateness and index of its stretch."""
        return {ROWTIME: times, LATE_RESULT.name: late}

    def _clear(self) -> None:
        for one in (self.rows, self.ends, self.numbers, self.times, self.late):
            one.clear()


class EmittedTables(EmittedRows):
    """The tables that a vectorized function emits: `rows` has a table where EmittedRows has a row."""

    most = 1_000

    def __init__(self, shape: ResultShape, timed: bool):
        super().__init__(shape, timed)
        columns = tuple(Column(name, type) for name, type, _ in shape.fields)
        self.columns = TableShape(columns, _OWN_TIME if timed else None)
        # `late_before` of each stretch.
        self.limits: list[EventTime] = []

    def stamp(self, number: int, time: Any, *, late: bool) -> int:
        self.limits.append(self.late_before)
        return super().stamp(number, time, late=late)

    def _columns(self) -> Mapping[str, Any]:
        rows = self.columns.fitted(self.rows, "emitted")
        self.own_times = rows.column(ROWTIME) if self.timed else None
        return {name: rows.column(name) for name, _, _ in self.shape.fields}

    def _lengths(self) -> npt.NDArray[Any]:
        sizes = np.cumsum([0, *(table.num_rows for table in self.rows)])
        return np.diff(sizes[[0, *self.ends]])

    def _timed(self, times: pa.Array, late: pa.Array, indexes: pa.Array) -> dict[str, Any]:
        """Return ROWTIME and LATE_RESULT: a row has its own event time or, if that is NULL, the time of its stretch."""
        own = pc.coalesce(self.own_times, times)
        # A row for the time of a timer is on time, although the watermark has passed it.
        is_behind = pc.less(own.cast(pa.int64()), pa.array(self.limits, pa.int64()).take(indexes))
        return {ROWTIME: own, LATE_RESULT.name: pc.and_(is_behind, pc.or_(late, pc.less(own, times)))}

    def _clear(self) -> None:
        super()._clear()
        self.limits.clear()


def _as_key(name: str, values: pa.Array, type: pa.DataType) -> pa.Array:
    """Return emitted values with the type of a key column. Raises RowMismatch if they cannot be cast."""
    try:
        return values.cast(type)
    except pa.ArrowException as error:
        raise RowMismatch(0, f'put {values.type} into "{name}", the column of the key, which is {type}') from error


def _astray(emitted: pa.Array, keys: pa.ChunkedArray) -> int | None:
    """Return the index of the first emitted value that differs from its key's, None if all are equal."""
    try:
        equal = pc.fill_null(pc.equal(emitted, keys), False).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        # Arrow does not compare all types.
        equal = np.zeros(len(emitted), dtype=bool)
    for index in np.flatnonzero(~equal).tolist():
        one, other = python_value(emitted[index]), python_value(keys[index])
        # NULL equals NULL, and NaN equals NaN.
        if one != other and (one == one or other == other):
            return int(index)
    return None


class Outputs:
    """All that a function emits in a batch: the rows of its result and of its side outputs.

    For `timed` and `is_keyless` see EmittedRows. A `result` that is not None takes the rows of the result.
    """

    def __init__(self, instance: Instance, timed: bool, *, is_keyless: bool = False, result: EmittedRows | None = None):
        self.result = result or EmittedRows(instance.implementation.result, timed, is_keyless=is_keyless)
        # The rows of the result since the last `drain`.
        self.rows = self.result.rows
        # The number of the current key.
        self.number = 0
        self.sides = {
            name: EmittedRows(shape, timed, f' of side output "{name}"', is_keyless=is_keyless)
            for name, shape in instance.implementation.sides.items()
        }
        # How many rows of side outputs there are since the last `drain`.
        self.side_rows = 0

    def add(self, name: str, row: Any, time: Any, *, late: bool) -> None:
        """Add a row to the side output `name`, for the current key and an event time.

        Raises ValueError if there is no such output, and TypeError if the row has another class than the output declares.
        """
        output = self.sides.get(name)
        if output is None:
            there = (
                f"there are: {', '.join(self.sides)}" if self.sides else "declare it: x: SideOutput[T] = side_output()"
            )
            raise ValueError(f'"{name}" is no side output; {there}')
        row_class = output.shape.row_class
        if row_class is not None and not isinstance(row, row_class):
            kind = type(row).__qualname__
            raise TypeError(f'side output "{name}" takes {row_class.__name__}, not {shown(row, _SHOWN)} ({kind})')
        output.rows.append(row)
        output.stamp(self.number, time, late=late)
        self.side_rows += 1

    def drain(self, keys: Mapping[str, pa.ChunkedArray]) -> list[pa.RecordBatch | SideRows]:
        """Return the emitted rows of the result, then of all side outputs, and clear them; see EmittedRows.drain."""
        batches: list[pa.RecordBatch | SideRows] = []
        if self.rows:
            batches += self.result.drain(keys).combine_chunks().to_batches()
        for name, output in self.sides.items():
            if output.rows:
                batches += (SideRows(name, rows) for rows in output.drain(keys).combine_chunks().to_batches())
        self.side_rows = 0
        return batches
