"""Pieces of sessions: what a batch can tell about sessions from its own rows.

A piece is [first event, last event + gap). In append-only input, the rows of a key between the same two multiples of the gap are
one piece: whatever other rows arrive, they are in one session. In a changelog, each row is a piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Select, subquery
from sqlstream.operators.groups import ComputedColumns
from sqlstream.operators.windows.assigners import END, START, Arrival, weights
from sqlstream.operators.windows.grid import remainder
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import Duration, EventTime

_PIECE = "_piece"
# The bounds of the session that a row would be on its own.
_FROM, _TO = "_from", "_to"


class SessionPieces(Protocol):
    """How rows form pieces: GROUP BY keys and `group_by` over `source` computes `columns`."""

    @property
    def columns(self) -> ComputedColumns:
        """START and END of a piece, each with its SQL over the rows of a group."""
        ...

    @property
    def group_by(self) -> tuple[str, ...]:
        """The SQL expressions over `source` that follow the keys in GROUP BY."""
        ...

    def source(self, keys: Sequence[str]) -> Relation:
        """Return the rows of a batch with the bounds of their piece; `keys` is the SQL of the keys."""
        ...

    def present(self, pieces: Relation) -> Relation:
        """Return the stored pieces that form sessions. Rows of a changelog may cancel out."""
        ...

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        """Split pieces that arrive while sessions up to `watermark` close."""
        ...


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of append-only rows; `time` is the SQL of a row's event time.

    Without `gap`, each row has a gap of its own: `end` is the SQL of the time until which the session waits for a next row.
    """

    time: str
    gap: Duration | None
    end: str = ""

    @property
    def columns(self) -> ComputedColumns:
        if self.gap is None:
            return (Column(START, "TIMESTAMP"), f"min({_FROM})"), (Column(END, "TIMESTAMP"), f"max({_TO})")
        return (
            (Column(START, "TIMESTAMP"), f"min({self.time})"),
            (Column(END, "TIMESTAMP"), f"max({self.time}) + to_microseconds({self.gap})"),
        )

    @property
    def group_by(self) -> tuple[str, ...]:
        return (_PIECE,)

    def source(self, keys: Sequence[str]) -> Relation:
        pieces = f"PARTITION BY {', '.join([*keys, _PIECE])}"
        if self.gap is None:
            bounds = ", ".join(f"{sql} OVER ({pieces}) AS {c.name}" for c, sql in self.columns)
            return subquery(Select(f"SELECT *, {bounds} FROM ({self._islands(keys)})"))
        time = f"epoch_us({self.time})"
        numbered = f"({time} - {remainder(time, self.gap)}) AS {_PIECE}"
        last = f"max({self.time}) OVER ({pieces}) + to_microseconds({self.gap})"
        bounds = f"min({self.time}) OVER ({pieces}) AS {START}, {last} AS {END}"
        return subquery(Select(f"SELECT *, {bounds} FROM (SELECT *, {numbered} FROM _rows)"))

    def _islands(self, keys: Sequence[str]) -> Select:
        """Return a batch's rows, numbered by the sessions that they form without other rows."""
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        order = f"{by}ORDER BY {_FROM}, {_TO}"
        before = f"max({_TO}) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        rows = f"SELECT *, {self.time} AS {_FROM}, {self.end} AS {_TO} FROM _rows"
        begun = f"SELECT *, CASE WHEN {_FROM} <= {before} THEN 0 ELSE 1 END AS _begins FROM ({rows})"
        return Select(f"SELECT *, sum(_begins) OVER ({order}) AS {_PIECE} FROM ({begun})")

    def present(self, pieces: Relation) -> Relation:
        return pieces

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        early = pc.greater(rows.column(START).cast(pa.int64()), watermark)
        if pc.all(early).as_py():
            return Arrival(rows)
        return Arrival(rows.filter(early), rows.filter(pc.invert(early)))


@dataclass(frozen=True, slots=True)
class ChangingPieces:
    """Rows of a changelog: each is a piece, with a weight. A change is late when the watermark has passed its row's time.

    So rows that the watermark has passed are final. When a session of such rows has ended, no later change can extend or split
    it. In a session that has not ended, changes can only affect rows after the watermark. `time` is the SQL of a row's event
    time, `end` the SQL of the time until which the session waits for a next row.
    """

    time: str
    end: str

    @property
    def columns(self) -> ComputedColumns:
        return (Column(START, "TIMESTAMP"), self.time), (Column(END, "TIMESTAMP"), self.end)

    @property
    def group_by(self) -> tuple[str, ...]:
        return tuple(sql for _, sql in self.columns)

    def source(self, keys: Sequence[str]) -> Relation:
        return subquery(Select(f"SELECT *, {self.time} AS {START}, {self.end} AS {END} FROM _rows"))

    def present(self, pieces: Relation) -> Relation:
        total = f"CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT}"
        net = f"SELECT * EXCLUDE ({WEIGHT}), {total} FROM {pieces} GROUP BY ALL HAVING sum({WEIGHT}) > 0"
        return subquery(Select(net))

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        passed = pc.less_equal(rows.column(START).cast(pa.int64()), watermark)
        return Arrival(rows.filter(pc.invert(passed)), late_rows=int(weights(rows.filter(passed)).sum()))
