"""A batch of a process function in one bucket: the connection, the state and the clock that all code for it shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.sql import Select, subquery
from sqlstream.duck.time_variables import NEVER
from sqlstream.duck.types import encoded
from sqlstream.functions.process.context import Context, event_datetime, instant
from sqlstream.operators.operator import StepTimes
from sqlstream.operators.process.tables import StateTables
from sqlstream.storage.bucket import WEIGHTS, Bucket
from sqlstream.storage.manifests import SWEPT_AT
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import END_OF_INPUT, MILLISECOND, EventTime

# The prefix of the counters of the user's code.
COUNTED = "user."
# How many sweeps there are per shortest time to live.
SWEEPS = 4


@dataclass(frozen=True, slots=True)
class BucketBatch:
    """The connection, the state and the clock of a batch in a bucket."""

    con: duckdb.DuckDBPyConnection
    state: Bucket
    times: StepTimes

    @property
    def until(self) -> EventTime:
        """The watermark, NEVER as long as there is none."""
        return NEVER if self.times.watermark is None else self.times.watermark

    def selected(self, columns: Iterable[Column], sql: Select) -> pa.Table:
        """Run a SELECT, and return these columns of it, encoded as they are stored."""
        return self.con.sql(encoded(columns, subquery(sql))).to_arrow_table()

    def append(self, table: str, rows: pa.Table) -> None:
        """Append rows, encoded as they are stored, to a state table."""
        self.state.append(table, rows, self.times.batch)

    def change(self, table: str, changes: pa.Table) -> None:
        """Append changes, which are rows with weights, to a state table; add the weights to the counter WEIGHTS."""
        self.append(table, changes)
        self.state.count(WEIGHTS, pc.sum(changes.column(WEIGHT)).as_py() or 0)

    def count(self, name: str, number: int) -> None:
        """Add to a counter of the user's code."""
        self.state.count(f"{COUNTED}{name}", number)

    def set_times(self, context: Context, watermark: EventTime | None) -> None:
        """Set the times of a context: its watermark, the processing time of the batch, and whether the input has ended."""
        context.watermark = None if watermark is None else event_datetime(watermark)
        context.processing_time = instant(self.times.time)
        context.input_ended = self.times.watermark == END_OF_INPUT

    def is_sweep_due(self, tables: StateTables, name: str = "") -> bool:
        """Tell whether it is time to delete expired state from these tables; if so, record this batch as the last sweep.

        At least a quarter of the shortest time to live is between two sweeps. Tables with another `name` have their own sweeps.
        """
        counter = f"{SWEPT_AT}_{name}" if name else SWEPT_AT
        ttls = [one.ttl for one in tables.states if one.ttl]
        if not ttls:
            return False
        counters, now = self.state.counters, self.times.time
        if now - counters.setdefault(counter, now) < max(min(ttls) // SWEEPS, MILLISECOND):
            return False
        counters[counter] = now
        return True


def user_counters(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters of the user's code, among all counters of a bucket, under the names that it uses."""
    return {name.removeprefix(COUNTED): n for name, n in counters.items() if name.startswith(COUNTED)}
