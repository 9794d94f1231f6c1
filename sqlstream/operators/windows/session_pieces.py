"""Pieces of sessions: what a batch knows of sessions from its rows alone.

A piece is [first event, last event + gap). Of append-only rows, those whose times lie between the same multiples of the gap
are one piece: no other row is needed to know that they are of one session. Rows of a changelog are pieces of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.operators.groups import Made
from sqlstream.operators.windows.assigners import END, START, Arrival, weights
from sqlstream.operators.windows.grid import remainder
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import Duration, EventTime

_PIECE = "_piece"
# The bounds of the session that a row would be alone.
_FROM, _TO = "_from", "_to"


class SessionPieces(Protocol):
    """How rows become pieces: with the columns `columns`, by grouping `source` by `group_by`."""

    @property
    def columns(self) -> Made: ...

    @property
    def group_by(self) -> tuple[str, ...]: ...

    def source(self, keys: Sequence[str]) -> str:
        """Return the rows of a batch with the bounds of the piece that each is in."""
        ...

    def present(self, pieces: str) -> str:
        """Return those of some stored pieces, to go behind FROM, that make sessions."""
        ...

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival: ...


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of append-only rows; `time` is the DuckDB expression of a row's event time.

    Without a `gap` each row has its own: `end` is the expression of the time until which it waits for another one.
    """

    time: str
    gap: Duration | None
    end: str = ""

    @property
    def columns(self) -> Made:
        if self.gap is None:
            return (Column(START, "TIMESTAMP"), f"min({_FROM})"), (Column(END, "TIMESTAMP"), f"max({_TO})")
        return (
            (Column(START, "TIMESTAMP"), f"min({self.time})"),
            (Column(END, "TIMESTAMP"), f"max({self.time}) + to_microseconds({self.gap})"),
        )

    @property
    def group_by(self) -> tuple[str, ...]:
        return (_PIECE,)

    def source(self, keys: Sequence[str]) -> str:
        pieces = f"PARTITION BY {', '.join([*keys, _PIECE])}"
        if self.gap is None:
            bounds = ", ".join(f"{sql} OVER ({pieces}) AS {c.name}" for c, sql in self.columns)
            return f"(SELECT *, {bounds} FROM ({self._islands(keys)}))"
        time = f"epoch_us({self.time})"
        numbered = f"({time} - {remainder(time, self.gap)}) AS {_PIECE}"
        last = f"max({self.time}) OVER ({pieces}) + to_microseconds({self.gap})"
        bounds = f"min({self.time}) OVER ({pieces}) AS {START}, {last} AS {END}"
        return f"(SELECT *, {bounds} FROM (SELECT *, {numbered} FROM _rows))"

    def _islands(self, keys: Sequence[str]) -> str:
        """Return the SELECT of the rows of a batch with the number of the session that each would be in among them alone."""
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        order = f"{by}ORDER BY {_FROM}, {_TO}"
        before = f"max({_TO}) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        rows = f"SELECT *, {self.time} AS {_FROM}, {self.end} AS {_TO} FROM _rows"
        begun = f"SELECT *, CASE WHEN {_FROM} <= {before} THEN 0 ELSE 1 END AS _begins FROM ({rows})"
        return f"SELECT *, sum(_begins) OVER ({order}) AS {_PIECE} FROM ({begun})"

    def present(self, pieces: str) -> str:
        return pieces

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        early = pc.greater(rows.column(START).cast(pa.int64()), watermark)
        if pc.all(early).as_py():
            return Arrival(rows)
        return Arrival(rows.filter(early), rows.filter(pc.invert(early)))


@dataclass(frozen=True, slots=True)
class ChangingPieces:
    """Rows of a changelog are pieces of their own, with weights. A change is late when the watermark has passed its row's time.

    So rows that the watermark has passed stay as they are. When their sessions, of them alone, have ended, no later change can
    touch those: neither lengthen nor part them. Else at most rows behind the watermark are taken away from what follows.
    `time` is the DuckDB expression of a row's event time, `end` that of the time until which it waits for another one.
    """

    time: str
    end: str

    @property
    def columns(self) -> Made:
        return (Column(START, "TIMESTAMP"), self.time), (Column(END, "TIMESTAMP"), self.end)

    @property
    def group_by(self) -> tuple[str, ...]:
        return tuple(sql for _, sql in self.columns)

    def source(self, keys: Sequence[str]) -> str:
        return f"(SELECT *, {self.time} AS {START}, {self.end} AS {END} FROM _rows)"

    def present(self, pieces: str) -> str:
        total = f"CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT}"
        return f"(SELECT * EXCLUDE ({WEIGHT}), {total} FROM {pieces} GROUP BY ALL HAVING sum({WEIGHT}) > 0)"

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        passed = pc.less_equal(rows.column(START).cast(pa.int64()), watermark)
        return Arrival(rows.filter(pc.invert(passed)), late_rows=int(weights(rows.filter(passed)).sum()))
