"""Sessions: rows of a key that follow each other within a gap. Their bounds are known only when they close.

What a batch knows of a session is stored as pieces of it, [first event, last event + gap). Rows whose times lie between the
same multiples of the gap are one piece: no other row is needed to know that they are of one session. Pieces that touch are one
session, as in Flink; they are joined when they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.types import time_literal
from sqlstream.operators.windows.assigners import (
    END,
    PARTIALS,
    START,
    Admitted,
    Arrival,
    Due,
    Read,
    Relations,
    WindowSpan,
    ended,
)
from sqlstream.operators.windows.grid import remainder
from sqlstream.state.segments import Segment
from sqlstream.units import Duration, EventTime

_PIECE = "_piece"
# The bounds of the session that a row would be alone.
_FROM, _TO = "_from", "_to"


@dataclass(frozen=True)
class Sessions:
    """Rows are stored per piece of a session; `time` is the DuckDB expression of a row's event time.

    Without a `gap` each row has its own: `end` is the expression of the time until which it waits for another one.
    A piece is forgotten when the watermark passes its end. If its session goes on, the piece is stored again with the end that
    the session has by then, so the watermark never finds a part of an open session. A row is late when the session that it
    would be in, with all that is stored, has closed.
    """

    time: str
    gap: Duration | None
    end: str = ""

    @property
    def columns(self) -> tuple[tuple[Column, str], ...]:
        if self.gap is None:
            return (Column(START, "TIMESTAMP"), f"min({_FROM})"), (Column(END, "TIMESTAMP"), f"max({_TO})")
        return (
            (Column(START, "TIMESTAMP"), f"min({self.time})"),
            (Column(END, "TIMESTAMP"), f"max({self.time}) + to_microseconds({self.gap})"),
        )

    @property
    def value_columns(self) -> tuple[tuple[Column, str], ...]:
        return tuple((column, column.name) for column, _ in self.columns)

    @property
    def group_by(self) -> tuple[str, ...]:
        return (_PIECE,)

    @property
    def bounds(self) -> tuple[str, ...]:
        return (START, END)

    @property
    def start(self) -> str:
        return START

    @property
    def meeting(self) -> tuple[str, ...]:
        return ()

    @property
    def mergeable(self) -> bool:
        # A piece that was stored again and the one that it replaces are told apart by their ends.
        return False

    def reach(self, watermark: EventTime) -> EventTime | None:
        return None

    def source(self, keys: Sequence[str]) -> str:
        """Return the rows of a batch with the number of the piece that each is in, and that piece's bounds."""
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

    def there(self, rows: str) -> str:
        """Return those of some stored rows, to go behind FROM, that make sessions."""
        return rows

    def is_early(self, segment: Segment, read: Read, watermark: EventTime) -> bool:
        # What begins after the watermark touches nothing that the watermark closes.
        first = pc.min(read(segment, [START]).column(START)).cast(pa.int64()).as_py()
        return bool(first > watermark)

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        early = pc.greater(rows.column(START).cast(pa.int64()), watermark)
        if pc.all(early).as_py():
            return Arrival(rows)
        return Arrival(rows.filter(early), rows.filter(pc.invert(early)))

    def due(
        self, con: duckdb.DuckDBPyConnection, relations: Relations, keys: Sequence[str], span: WindowSpan
    ) -> Due | None:
        past, pieces = ended(span.watermark), relations[PARTIALS]
        passed = {name: f"(SELECT * FROM {rows} WHERE {past})" for name, rows in relations.items()}
        there = self.there(passed[PARTIALS])
        [(some,)] = con.execute(f"CREATE OR REPLACE TEMP TABLE _passed AS FROM {there}").fetchall()
        if not some:
            return None
        passed[PARTIALS] = "_passed"
        # All pieces of a session that closes have passed. Others tell, by their bounds, which sessions go on.
        begun = f"{START} <= {time_literal(span.watermark, 'TIMESTAMP')}"
        going_on = self.there(of_keys(f"(SELECT * FROM {pieces} WHERE NOT ({past}) AND {begun})", "_passed", keys))
        known = f"(SELECT {_bounds(keys)} FROM _passed UNION ALL SELECT {_bounds(keys)} FROM {going_on})"
        con.execute(f"CREATE OR REPLACE TEMP TABLE _sessions AS {sessions_of(known, keys)}")
        closed = {name: within(rows, "_sessions", keys, past) for name, rows in passed.items()}
        again = {name: within(rows, "_sessions", keys, f"NOT ({past})") for name, rows in passed.items()}
        return Due(closed, again)

    def admit(
        self,
        con: duckdb.DuckDBPyConnection,
        relations: Relations,
        after: Relations,
        keys: Sequence[str],
        watermark: EventTime,
    ) -> Admitted:
        """Tell rows that a session takes which is open, or opens with them, from those whose session has closed."""
        both = f"(SELECT * FROM {relations[PARTIALS]} UNION ALL BY NAME SELECT * FROM {after[PARTIALS]})"
        pieces = of_keys(both, after[PARTIALS], keys)
        con.execute(f"CREATE OR REPLACE TEMP TABLE _sessions AS {sessions_of(pieces, keys)}")
        past = ended(watermark)
        rows = {name: within(rows, "_sessions", keys, f"NOT ({past})") for name, rows in after.items()}
        return Admitted(rows, within(after[PARTIALS], "_sessions", keys, past))

    def open(self, relations: Relations, keys: Sequence[str], watermark: str) -> Relations:
        known = f"({sessions_of(self.there(relations[PARTIALS]), keys)})"
        return {name: within(rows, known, keys, "true") for name, rows in relations.items()}

    def count(self, rows: str, keys: Sequence[str], watermark: str) -> str:
        return f"SELECT count(*) FILTER (WHERE _begins = 1) FROM ({begun(rows, keys)})"

    def next_time(self, earliest: EventTime | None, watermark: EventTime | None) -> EventTime | None:
        return earliest


def _bounds(keys: Sequence[str]) -> str:
    return ", ".join([*keys, START, END])


def sessions_of(pieces: str, keys: Sequence[str]) -> str:
    """Return the SELECT of the sessions that pieces make up: keys and bounds."""
    # Equal pieces may be in another order here than above, so they are added up together: by RANGE, not ROWS.
    numbered = f"sum(_begins) OVER ({_in_order(keys)}) AS _number"
    rows = f"SELECT {_bounds(keys)}, {numbered} FROM ({begun(pieces, keys)})"
    bounds = f"min({START}) AS {START}, max({END}) AS {END}"
    return f"SELECT {', '.join([*keys, bounds])} FROM ({rows}) GROUP BY {', '.join([*keys, '_number'])}"


def begun(pieces: str, keys: Sequence[str]) -> str:
    """Return the SELECT of the keys and bounds of pieces, with 1 for each with which a session begins, else 0."""
    before = f"max({END}) OVER ({_in_order(keys)} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return f"SELECT {_bounds(keys)}, CASE WHEN {START} <= {before} THEN 0 ELSE 1 END AS _begins FROM {pieces}"


def _in_order(keys: Sequence[str]) -> str:
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    return f"{by}ORDER BY {START}, {END}"


def within(rows: str, sessions: str, keys: Sequence[str], condition: str) -> str:
    """Return rows with the bounds of the sessions that they are in, where a condition on those bounds holds."""
    on = " AND ".join(
        [
            *(f"_rows_.{k} IS NOT DISTINCT FROM _in_.{k}" for k in keys),
            f"_rows_.{START} BETWEEN _in_.{START} AND _in_.{END}",
        ]
    )
    known = f"(SELECT * FROM {sessions} WHERE {condition})"
    bounds = f"_in_.{START}, _in_.{END}"
    return f"(SELECT _rows_.* EXCLUDE ({START}, {END}), {bounds} FROM {rows} _rows_ JOIN {known} _in_ ON {on})"


def of_keys(rows: str, by: str, keys: Sequence[str]) -> str:
    """Return the rows of the keys that some other rows have."""
    if not keys:
        return rows
    same = " AND ".join(f"_rows_.{k} IS NOT DISTINCT FROM _by_.{k}" for k in keys)
    return f"(SELECT * FROM {rows} _rows_ SEMI JOIN {by} _by_ ON {same})"
