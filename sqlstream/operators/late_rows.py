"""Late rows as a side output of operators that get single rows: what they drop, for whoever reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.types import time_literal
from sqlstream.logical.plan import late_rows as plan
from sqlstream.operators.operator import SideRows
from sqlstream.units import NO_TIME, Duration, EventTime

TIME = Column(plan.TIME, "TIMESTAMP")
MARK = Column(plan.MARK, "TIMESTAMP")


def late_output(place: int) -> str:
    """Return the name of the side output of the late rows of an input: no side output of a function has it."""
    return internal(f"late_{place}")


@dataclass(frozen=True)
class LateOutput:
    """The late rows of an input: their columns, each with that in which it arrives, and the SQL of the event time.

    They leave in the form in which they arrive, that of storage. The watermark of the operator may be kept a microsecond behind,
    for rows of its time to be in time: `kept_back` says how far, and what is shown is that of the input.
    """

    place: int
    columns: tuple[tuple[Column, str], ...]
    time: str
    kept_back: Duration = NO_TIME

    @property
    def leaving(self) -> tuple[Column, ...]:
        """The columns of the side output: those of the rows under names of our own, the event time, the watermark."""
        return (*(Column(f"c{i}", c.type) for i, (c, _) in enumerate(self.columns)), TIME, MARK)

    def rows(
        self, con: duckdb.DuckDBPyConnection, dropped: Sequence[pa.Table], watermark: EventTime
    ) -> Iterator[SideRows]:
        """Yield rows that were dropped, as they arrived, as those of the side output."""
        if not any(rows.num_rows for rows in dropped):
            return
        con.register("_dropped", pa.concat_tables(dropped, promote_options="permissive"))
        items = [f"{arrived} AS c{i}" for i, (_, arrived) in enumerate(self.columns)]
        items += [
            f"{self.time} AS {TIME.name}",
            f"{time_literal(EventTime(watermark + self.kept_back), MARK.type)} AS {MARK.name}",
        ]
        found = con.sql(f"SELECT {', '.join(items)} FROM _dropped").to_arrow_table()
        yield from (SideRows(late_output(self.place), some) for some in found.to_batches())


def late_outputs(of: Iterable[LateOutput]) -> dict[str, tuple[Column, ...]]:
    """Return the columns of side outputs by their names."""
    return {late_output(one.place): one.leaving for one in of}
