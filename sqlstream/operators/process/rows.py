"""The rows of the keys of a batch as the user's code gets them: Python objects, or a table for each key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.duck.time_texts import time_text
from sqlstream.functions import types
from sqlstream.functions.process.context import event_datetime, event_micros
from sqlstream.functions.process.instances import Instance
from sqlstream.operators.process.arrivals import BLOCK, LATE, NUMBER, Arrivals, blocks
from sqlstream.operators.process.inputs import EVENT_TIME, InputPlan
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import EventTime

# The event times that Python's datetime has.
_FIRST, _LAST = event_micros(dt.datetime.min), event_micros(dt.datetime.max)


class KeyedRows:
    """The rows of an input, sorted by key, as iterators, with the number of rows of each key, `sizes`.

    `table` has the columns that Arrivals.rows returns; `reader` converts the columns that the function gets to rows.
    """

    # If some rows are on time behind the watermark: the event time of each row that is on time, None for a late one.
    in_time: Iterator[dt.datetime | None] | None = None
    # Whether each row is a retraction, if the input is a changelog.
    retractions: Iterator[bool] | None = None
    # If rows have event times: these, also in microseconds, and pairs of rows and times, which consume both iterators.
    times: Iterator[Any] | None = None
    micros: Iterator[EventTime]
    timed: Iterator[tuple[Any, Any]] | None = None

    def __init__(self, table: pa.Table, reader: Any, count: int):
        numbers = table.column(NUMBER).to_numpy()
        self.sizes: list[int] = np.bincount(numbers, minlength=count).tolist() if count else []
        self.rows: Iterator[Any] = chain.from_iterable(map(reader, blocks(values_of(table))))
        if LATE.name in table.column_names:
            times = pc.if_else(table.column(LATE.name), None, table.column(EVENT_TIME.name)).cast(pa.timestamp("us"))
            self.in_time = iter(times.to_pylist())
        if WEIGHT in table.column_names:
            self.retractions = iter(pc.less(table.column(WEIGHT), 0).to_pylist())
        if EVENT_TIME.name in table.column_names:
            micros = table.column(EVENT_TIME.name).to_numpy()
            self.times = chain.from_iterable(_listed(micros.astype("datetime64[us]")))
            self.timed = zip(self.rows, self.times, strict=False)
            self.micros = chain.from_iterable(_listed(micros))


class KeyedTables(KeyedRows):
    """The rows of an input as one table for each key that has rows, with the latest of their event times.

    `in_time` has the least time in each table that is not late, None if all are.
    """

    def __init__(self, table: pa.Table, names: list[str], count: int):
        numbers = table.column(NUMBER).to_numpy()
        ends = np.searchsorted(numbers, np.arange(count + 1))
        # A key that has rows has one table.
        self.sizes = (np.diff(ends) > 0).astype(int).tolist()
        rows = values_of(table).combine_chunks().rename_columns(names)
        stretches = [(start, end) for start, end in pairwise(ends.tolist()) if end > start]
        starts = [start for start, _ in stretches]
        self.rows = (rows.slice(start, end - start) for start, end in stretches)
        if EVENT_TIME.name not in table.column_names:
            return
        times = table.column(EVENT_TIME.name).to_numpy()
        latest = np.maximum.reduceat(times, starts) if starts else times
        self.timed = zip(self.rows, latest.astype("datetime64[us]").tolist(), strict=True)
        if LATE.name in table.column_names:
            late, none = table.column(LATE.name).to_numpy(zero_copy_only=False), np.iinfo(np.int64).max
            first = np.minimum.reduceat(np.where(late, none, times), starts) if starts else times
            self.in_time = (None if micros == none else event_datetime(micros) for micros in first.tolist())


# The methods that get rows of keys, each with its rows.
Calls: TypeAlias = list[tuple[Any, KeyedRows]]


def keyed_rows(instance: Instance, arrivals: Arrivals, count: int) -> Calls:
    """Return the methods that get rows of keys, each with the rows of its input; `count` is how many keys there are.

    Raises JobError for event times that Python lacks.
    """
    calls: Calls = []
    for number, one in arrivals.keyed:
        rows = arrivals.rows(number)
        check_times(instance, rows)
        if instance.function.vectorized:
            by_key: KeyedRows = KeyedTables(rows, [c.name for c, _ in one.columns], count)
        else:
            by_key = KeyedRows(rows, row_reader(instance, number, one), count)
        calls.append((instance.methods[number], by_key))
    return calls


def check_times(instance: Instance, rows: pa.Table) -> None:
    """Raise JobError if rows that Arrivals.rows has returned have an event time that Python's datetime lacks."""
    if EVENT_TIME.name not in rows.column_names:
        return
    for time in pc.min_max(rows.column(EVENT_TIME.name)).as_py().values():
        if time is not None and not _FIRST <= time <= _LAST:
            what = f"cannot take a row whose event time is {time_text(time)}: Python's datetime has the years 1 to 9999"
            raise instance.failed(what, hint="Leave such rows out, with WHERE in a subquery.")


def row_reader(instance: Instance, number: int, one: InputPlan) -> Any:
    """Return the function that converts a table of an input's columns to Python objects, one per row.

    `number` is the index of the input among all inputs. Raises JobError if the user's class cannot have values of these types.
    """
    argument = instance.function.tables[number]
    assert argument.columns is None or len(one.columns) == len(argument.columns)
    try:
        return instance.implementation.rows[number].reader([(c.name, c.type) for c, _ in one.columns])
    except types.UnusableType as error:
        raise instance.failed(f"cannot take its rows: {error}", location=argument.line) from error


def values_of(rows: pa.Table) -> pa.Table:
    """Select the columns that the function gets, from rows that Arrivals.rows returned."""
    return rows.select([name for name in rows.column_names if name.startswith("c")])


def _listed(values: Any) -> Iterator[list[Any]]:
    """Yield the values of an array as lists of Python objects."""
    for start in range(0, len(values), BLOCK):
        yield values[start : start + BLOCK].tolist()
