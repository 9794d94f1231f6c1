"""Vectorized process functions that the golden scripts call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream import Context, ListState, ValueState, process, state
from tests.slt_process_functions import Alert, Reading


@process(vectorized=True, emits=Alert)
class AlertsByKey:
    """As TemperatureAlerts, over the rows of a key as a table."""

    last: ValueState[float] = state(ttl="1 h")

    def process(self, ctx: Context, readings: Annotated[pa.Table, Reading]) -> pa.Table:
        ctx.count("tables")
        temperatures = readings["temperature"].combine_chunks()
        before = pa.concat_arrays([pa.array([self.last.value], pa.float64()), temperatures[:-1]])
        self.last.value = temperatures[-1].as_py()
        found = pa.table({"temperature": temperatures, "difference": pc.subtract(temperatures, before)})
        return found.filter(pc.greater(pc.abs(found["difference"]), 1.7))


@dataclass
class Total:
    rows: int
    total: int


@process(vectorized=True, emits=Total)
class Totals:
    """Emits how many rows have come, and their total: some seconds after the last one, and at the time of each tenth."""

    rows: ValueState[int] = state()
    values: ListState[int] = state()

    def process(self, ctx: Context, numbers: pa.Table) -> Iterator[pa.Table]:
        assert ctx.event_time is not None
        self.rows.value = (self.rows.value or 0) + numbers.num_rows
        self.values.extend(numbers["x"].to_pylist())
        ctx.timers.at(ctx.event_time + timedelta(seconds=10), "end")
        tenth = numbers.filter(pc.equal(numbers["x"], 10))
        if tenth.num_rows:
            yield pa.table({"rows": pa.array([0] * tenth.num_rows), "total": tenth["x"], "rowtime": tenth["ts"]})

    def on_timer(self, ctx: Context) -> pa.Table:
        found = pa.table({"total": [sum(self.values)], "rows": [self.rows.value]})
        ctx.clear()
        return found


@process(vectorized="bucket", emits=Alert, ordered=True)
class AlertsByBucket:
    """As TemperatureAlerts, over all rows at once."""

    last: ValueState[float] = state(ttl="1 h")

    def process(
        self, ctx: Context, readings: Annotated[pa.Table, Reading], state: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        ctx.count("rows", readings.num_rows)
        sensors, temperatures = readings["sensor"].combine_chunks(), readings["temperature"].combine_chunks()
        known = dict(zip(state["sensor"].to_pylist(), state["last"].to_pylist(), strict=True))
        before = []
        for sensor, temperature in zip(sensors.to_pylist(), temperatures.to_pylist(), strict=True):
            before.append(known[sensor])
            known[sensor] = temperature
        difference = pc.subtract(temperatures, pa.array(before, pa.float64()))
        found = pa.table({"difference": difference, "temperature": temperatures, "sensor": sensors})
        last = pa.table({"sensor": list(known), "last": pa.array(known.values(), pa.float64())})
        return found.filter(pc.greater(pc.abs(difference), 1.7)), last


@process(vectorized="bucket", emits=int)
class Kept:
    """Keeps the last x of each key: -1 clears it, and of 0 nothing is returned. Emits x with the time of the row."""

    last: ValueState[int] = state()

    def process(self, ctx: Context, rows: pa.Table, state: pa.Table) -> tuple[pa.Table | None, pa.Table | None]:
        given = rows.group_by("k").aggregate([("x", "max")]).rename_columns(["k", "last"])
        given = given.filter(pc.not_equal(given["last"], 0))
        cleared = pc.if_else(pc.less(given["last"], 0), pa.scalar(None, pa.int64()), given["last"])
        found = rows.rename_columns({"x": "value", "ts": "rowtime"})
        return found, given.set_column(1, "last", cleared)


@process(vectorized=True, emits=Total)
class WrongTables:
    """Gives tables that are wrong in one way or another."""

    def __init__(self, how: str):
        self.how = how

    def process(self, ctx: Context, rows: pa.Table) -> Any:
        column = pa.array([1])
        match self.how:
            case "missing":
                return pa.table({"total": column} if rows["x"][0].as_py() < 9 else {"total": column, "rows": column})
            case "extra":
                return pa.table({"rows": column, "total": column, "k": column})
            case "type":
                return pa.table({"rows": column, "total": pa.array(["x"])})
            case "list":
                return [[1, 2]]
            case "number":
                return 1
        raise ValueError("how")


@process(vectorized="bucket", emits=int)
class WrongState:
    """Gives state that is wrong in one way or another."""

    last: ValueState[int] = state()
    name: ValueState[str] = state()

    def __init__(self, how: str):
        self.how = how

    def process(self, ctx: Context, rows: pa.Table, state: pa.Table) -> Any:
        match self.how:
            case "rows":
                return rows
            case "column":
                return None, state.rename_columns(["k", "last", "names"])
            case "type":
                return None, state.set_column(1, "last", pa.array(["x"] * state.num_rows))
            case "key":
                return None, state.set_column(0, "k", pc.add(state["k"], 100))
            case "twice":
                return None, pa.concat_tables([state, state])
            case "emitted":
                return rows.select(["k", "ts"]), state
            case "clear":
                ctx.clear()
            case "read":
                return None, self.last.value
            case "assign":
                self.last = 5  # type: ignore[assignment]
                return None, None
        raise ValueError("how")


@process(vectorized="bucket", emits=timedelta)
class Longest:
    """Keeps the longest of each key: an INTERVAL, which is stored as text."""

    longest: ValueState[timedelta] = state()
    name: ValueState[str] = state()

    def process(self, ctx: Context, rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        assert state.column_names == ["took", "longest", "name"]
        return pa.table({"took": state["took"], "value": state["longest"]}), state.set_column(
            1, "longest", state["took"]
        )


@process(vectorized="bucket", emits=int)
class Halves:
    def process(self, ctx: Context, rows: pa.Table) -> pa.Table | None:
        even = rows.filter(pc.equal(pc.bit_wise_and(rows["x"], 1), 0))
        return pa.table({"value": pc.divide(even["x"], 2)}) if even.num_rows else None


@process(vectorized=True, emits=bool)
class LatenessesByKey:
    """Says of the rows of a key whether the watermark has reached the time of the last one."""

    def process(self, ctx: Context, rows: pa.Table) -> pa.Table:
        assert ctx.event_time is not None
        ahead = ctx.watermark is not None and ctx.watermark >= ctx.event_time
        return pa.table({"value": pa.array([ahead] * rows.num_rows), "rowtime": rows["ts"]})


@process(vectorized="bucket", emits=bool)
class CopiesByBucket:
    """Says of rows whether the watermark has reached the time of the last one."""

    def process(self, ctx: Context, rows: pa.Table) -> pa.Table:
        ahead = ctx.watermark is not None and ctx.watermark >= pc.max(rows["ts"]).as_py()
        found = rows.append_column("value", pa.array([ahead] * rows.num_rows))
        return found.select(["k", "value", "ts"]).rename_columns(["k", "value", "rowtime"])


VECTORIZED_PROCESS_FUNCTIONS = (AlertsByKey, Totals, AlertsByBucket, Kept, WrongTables, WrongState, Halves, Longest)
