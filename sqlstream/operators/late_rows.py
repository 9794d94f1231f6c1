"""Late rows as a side output, for operators whose input is single rows rather than partial aggregates."""

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

# The event time of a late row, and the watermark that it came behind.
TIME = Column(plan.TIME, "TIMESTAMP")
WATERMARK = Column(plan.WATERMARK, "TIMESTAMP")


def late_output(index: int) -> str:
    """Return the name of the side output with the late rows of the input at `index`; no output of a user can have it."""
    return internal(f"late_{index}")


@dataclass(frozen=True)
class LateOutput:
    """The side output of the late rows of one input, whose index (from 0) is `index`.

    `columns` are the columns of the rows, each with the name of the column in which it arrives; `time` is the SQL of the event
    time, a TIMESTAMP, over arriving rows. Values are emitted as they are encoded for storage. `kept_back` is how far the
    operator's watermark is behind the watermark of its inputs; the side output shows the latter.
    """

    index: int
    columns: tuple[tuple[Column, str], ...]
    time: str
    kept_back: Duration = NO_TIME

    @property
    def leaving(self) -> tuple[Column, ...]:
        """The columns of the side output: the rows' columns as c0, c1, .., then TIME and MARK."""
        return (*(Column(f"c{i}", c.type) for i, (c, _) in enumerate(self.columns)), TIME, WATERMARK)

    def rows(
        self, con: duckdb.DuckDBPyConnection, dropped: Sequence[pa.Table], watermark: EventTime
    ) -> Iterator[SideRows]:
        """Yield `dropped`, tables of late rows as they arrived, as rows of the side output; nothing if all are empty.

        `watermark` is the operator's watermark, which had passed the rows when they arrived.
        """
        if not any(rows.num_rows for rows in dropped):
            return
        con.register("_dropped", pa.concat_tables(dropped, promote_options="permissive"))
        items = [f"{arrived} AS c{i}" for i, (_, arrived) in enumerate(self.columns)]
        items += [
            f"{self.time} AS {TIME.name}",
            f"{time_literal(EventTime(watermark + self.kept_back), WATERMARK.type)} AS {WATERMARK.name}",
        ]
        side_rows = con.sql(f"SELECT {', '.join(items)} FROM _dropped").to_arrow_table()
        yield from (SideRows(late_output(self.index), some) for some in side_rows.to_batches())


def late_outputs(of: Iterable[LateOutput]) -> dict[str, tuple[Column, ...]]:
    """Return the columns of the side outputs of late rows by the names of the outputs."""
    return {late_output(one.index): one.leaving for one in of}
