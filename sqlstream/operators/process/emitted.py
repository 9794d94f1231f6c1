"""The rows that a function emits in a batch, by output, with the keys and event times that they belong to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.functions.invocation import shown
from sqlstream.functions.process.shapes import Misfit, ResultShape
from sqlstream.logical.plan.process import ROWTIME
from sqlstream.operators.operator import SideRows

# The column of emitted rows with event times that says whether a row is late for the operators that read it.
LATE_RESULT = Column(internal("late"), "BOOLEAN")
_SHOWN = 200


class EmittedRows:
    """The emitted rows of an output, in stretches: of each its end, its key's number, its event time, and whether it is late.

    Without `timed` rows have no event times. `where` names the output in errors. Rows that are `is_keyless` belong to no key:
    they can have key columns of their own, which are NULL otherwise.
    """

    def __init__(self, shape: ResultShape, timed: bool, where: str = "", *, is_keyless: bool = False):
        self.shape, self.timed, self.is_keyless = shape, timed, is_keyless
        self.write = shape.writer(where)
        self.rows: list[Any] = []
        self.ends: list[int] = []
        self.numbers: list[int] = []
        self.times: list[Any] = []
        self.late: list[bool] = []

    def mark(self, number: int, time: Any, *, late: bool) -> int:
        """End a stretch: note the key's number and the event time of the rows since the last mark; return how many rows wait."""
        size = len(self.rows)
        self.ends.append(size)
        self.numbers.append(number)
        if self.timed:
            self.times.append(time)
            self.late.append(late)
        return size

    def taken(self, keys: Mapping[str, pa.ChunkedArray]) -> pa.Table:
        """Return the waiting rows, and clear the output.

        `keys` are the values of the key columns, by name, at the places of the keys' numbers. The columns are the keys, the other
        columns of the output and, with `timed`, ROWTIME, a TIMESTAMP, and LATE_RESULT. Raises Misfit, with the key's number, for
        a row that does not fit the declared columns, or whose key column differs from its key.
        """
        try:
            written = self.write(self.rows)
        except Misfit as error:
            raise Misfit(self.numbers[bisect_right(self.ends, error.number)], error.what) from error
        ends = np.array([0, *self.ends], dtype=np.int64)
        lengths = ends[1:] - ends[:-1]
        of_keys = pa.array(np.repeat(np.array(self.numbers, dtype=np.int64), lengths))
        found: dict[str, Any] = {name: values.take(of_keys) for name, values in keys.items()}
        own = {name.lower(): name for name in keys}
        for name, values in written.items():
            if (key := own.get(name.lower())) is None:
                found[name] = values
            elif self.is_keyless:
                found[key] = _as_key(name, values, found[key].type)
            elif (row := _astray(values, found[key])) is not None:
                value, at = (shown(one[row].as_py(), _SHOWN) for one in (values, found[key]))
                what = f'put {value} into "{name}", the column of the key, which is {at}'
                raise Misfit(of_keys[row].as_py(), what)
        if self.timed:
            times = pa.array(self.times, pa.timestamp("us"))
            found[ROWTIME] = times.take(places := pa.array(np.repeat(np.arange(len(self.times)), lengths)))
            found[LATE_RESULT.name] = pa.array(self.late, pa.bool_()).take(places)
        for one in (self.rows, self.ends, self.numbers, self.times, self.late):
            one.clear()
        return pa.table(found)


def _as_key(name: str, values: pa.Array, type: pa.DataType) -> pa.Array:
    """Return emitted values with the type of a key column. Raises Misfit if they cannot be cast."""
    try:
        return values.cast(type)
    except pa.ArrowException as error:
        raise Misfit(0, f'put {values.type} into "{name}", the column of the key, which is {type}') from error


def _astray(emitted: pa.Array, keys: pa.ChunkedArray) -> int | None:
    """Return the place of the first emitted value that differs from its key's, None if all are equal."""
    try:
        equal = pc.fill_null(pc.equal(emitted, keys), False).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        # Arrow does not compare all types.
        equal = np.zeros(len(emitted), dtype=bool)
    for place in np.flatnonzero(~equal).tolist():
        one, other = emitted[place].as_py(), keys[place].as_py()
        # NULL equals NULL, and NaN equals NaN.
        if one != other and (one == one or other == other):
            return int(place)
    return None


class SideOutputs:
    """The emitted rows of all side outputs, by the names of the outputs."""

    def __init__(self, shapes: Mapping[str, ResultShape], timed: bool, *, is_keyless: bool = False):
        self.outputs = {
            name: EmittedRows(shape, timed, f' of side output "{name}"', is_keyless=is_keyless)
            for name, shape in shapes.items()
        }
        # How many rows wait.
        self.size = 0

    def add(self, name: str, row: Any, number: int, time: Any, *, late: bool) -> None:
        """Add a row to the side output `name`, for a key's number and an event time.

        Raises ValueError if there is no such output, and TypeError if the row has another class than the output declares.
        """
        output = self.outputs.get(name)
        if output is None:
            there = (
                f"there are: {', '.join(self.outputs)}"
                if self.outputs
                else "declare it: x: SideOutput[T] = side_output()"
            )
            raise ValueError(f'"{name}" is no side output; {there}')
        made = output.shape.made
        if made is not None and not isinstance(row, made):
            kind = type(row).__qualname__
            raise TypeError(f'side output "{name}" takes {made.__name__}, not {shown(row, _SHOWN)} ({kind})')
        output.rows.append(row)
        output.mark(number, time, late=late)
        self.size += 1

    def taken(self, keys: Mapping[str, pa.ChunkedArray]) -> Iterator[SideRows]:
        """Yield the waiting rows of all side outputs, and clear these; for `keys` and errors see EmittedRows.taken."""
        self.size = 0
        for name, output in self.outputs.items():
            if output.rows:
                yield from (SideRows(name, rows) for rows in output.taken(keys).combine_chunks().to_batches())
