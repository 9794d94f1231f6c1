"""Sessions: rows of a key that follow each other within a gap. Their bounds are known only when they close.

Sessions are stored in pieces, which come from single batches. As in Flink, pieces that touch are one session; a read joins them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.duck.types import time_literal
from sqlstream.operators.groups import ComputedColumns
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
from sqlstream.operators.windows.session_pieces import SessionPieces
from sqlstream.storage.segments import Segment
from sqlstream.units import EventTime

# The temporary table of sessions, while windows close or rows are admitted.
_SESSIONS = "_sessions"


@dataclass(frozen=True)
class Sessions:
    """Rows are stored per piece of a session.

    A piece is forgotten when the watermark passes its end. If its session continues, the piece is stored again with the current
    end of the session, so no part of an open session is forgotten. A row is late when its session, formed with all stored
    pieces, has closed.
    """

    pieces: SessionPieces

    @property
    def columns(self) -> ComputedColumns:
        return self.pieces.columns

    @property
    def value_columns(self) -> ComputedColumns:
        return tuple((column, column.name) for column, _ in self.columns)

    @property
    def group_by(self) -> tuple[str, ...]:
        return self.pieces.group_by

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
        # A piece that was stored again and the piece that it replaces differ in their ends.
        return False

    @property
    def may_be_late(self) -> str:
        # A session takes rows that begin before the watermark as long as it is open.
        return START

    @property
    def admits_late(self) -> bool:
        # Only when `admit` has put rows into sessions is it known which sessions have closed.
        return True

    def late(self, rows: str, keys: Sequence[str], watermark: EventTime) -> str:
        return within(rows, _SESSIONS, keys, ended(watermark))

    def reach(self, watermark: EventTime) -> EventTime | None:
        return None

    def source(self, keys: Sequence[str]) -> str:
        return self.pieces.source(keys)

    def is_early(self, segment: Segment, read: Read, watermark: EventTime) -> bool:
        # What begins after the watermark touches nothing that the watermark closes.
        first = pc.min(read(segment, [START]).column(START)).cast(pa.int64()).as_py()
        return bool(first > watermark)

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        return self.pieces.arrive(rows, watermark)

    def due(
        self, con: duckdb.DuckDBPyConnection, relations: Relations, keys: Sequence[str], span: WindowSpan
    ) -> Due | None:
        """Return the rows of sessions that close, and the passed rows of sessions that continue, to be stored again."""
        past, pieces = ended(span.watermark), relations[PARTIALS]
        passed = {name: f"(SELECT * FROM {rows} WHERE {past})" for name, rows in relations.items()}
        present = self.pieces.present(passed[PARTIALS])
        [(some,)] = con.execute(f"CREATE OR REPLACE TEMP TABLE _passed AS FROM {present}").fetchall()
        if not some:
            return None
        passed[PARTIALS] = "_passed"
        # All pieces of a session that closes have passed. The bounds of other pieces show which sessions continue.
        begun = f"{START} <= {time_literal(span.watermark, 'TIMESTAMP')}"
        other_pieces = self.pieces.present(
            of_keys(f"(SELECT * FROM {pieces} WHERE NOT ({past}) AND {begun})", "_passed", keys)
        )
        all_pieces = f"(SELECT {_bounds(keys)} FROM _passed UNION ALL SELECT {_bounds(keys)} FROM {other_pieces})"
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_SESSIONS} AS {sessions_of(all_pieces, keys)}")
        closed = {name: within(rows, _SESSIONS, keys, past) for name, rows in passed.items()}
        again = {name: within(rows, _SESSIONS, keys, f"NOT ({past})") for name, rows in passed.items()}
        return Due(closed, again)

    def admit(
        self,
        con: duckdb.DuckDBPyConnection,
        relations: Relations,
        after: Relations,
        keys: Sequence[str],
        watermark: EventTime,
    ) -> Admitted:
        """Store rows whose session is open or opens with them; rows whose session has closed are late."""
        both = f"(SELECT * FROM {relations[PARTIALS]} UNION ALL BY NAME SELECT * FROM {after[PARTIALS]})"
        pieces = of_keys(both, after[PARTIALS], keys)
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_SESSIONS} AS {sessions_of(pieces, keys)}")
        past = ended(watermark)
        rows = {name: within(rows, _SESSIONS, keys, f"NOT ({past})") for name, rows in after.items()}
        return Admitted(rows, within(after[PARTIALS], _SESSIONS, keys, past))

    def open(self, relations: Relations, keys: Sequence[str], watermark: str) -> Relations:
        sessions = f"({sessions_of(self.pieces.present(relations[PARTIALS]), keys)})"
        return {name: within(rows, sessions, keys, "true") for name, rows in relations.items()}

    def count(self, rows: str, keys: Sequence[str], watermark: str) -> str:
        return f"SELECT count(*) FILTER (WHERE _begins = 1) FROM ({begun(rows, keys)})"

    def next_time(self, earliest: EventTime | None, watermark: EventTime | None) -> EventTime | None:
        return earliest


def _bounds(keys: Sequence[str]) -> str:
    return ", ".join([*keys, START, END])


def sessions_of(pieces: str, keys: Sequence[str]) -> str:
    """Return the SELECT of the sessions that pieces form: keys, START, END. `pieces` is a FROM item."""
    # Equal pieces may be in another order here than above, so they are added up together: by RANGE, not ROWS.
    numbered = f"sum(_begins) OVER ({_in_order(keys)}) AS _number"
    rows = f"SELECT {_bounds(keys)}, {numbered} FROM ({begun(pieces, keys)})"
    bounds = f"min({START}) AS {START}, max({END}) AS {END}"
    return f"SELECT {', '.join([*keys, bounds])} FROM ({rows}) GROUP BY {', '.join([*keys, '_number'])}"


def begun(pieces: str, keys: Sequence[str]) -> str:
    """Return the SELECT of the keys and bounds of pieces, with `_begins`: 1 where a session begins, else 0."""
    before = f"max({END}) OVER ({_in_order(keys)} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return f"SELECT {_bounds(keys)}, CASE WHEN {START} <= {before} THEN 0 ELSE 1 END AS _begins FROM {pieces}"


def _in_order(keys: Sequence[str]) -> str:
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    return f"{by}ORDER BY {START}, {END}"


def within(rows: str, sessions: str, keys: Sequence[str], condition: str) -> str:
    """Return a FROM item: rows whose START lies in a session, with the bounds of that session.

    `sessions` is a relation of keys and bounds; `condition` on the bounds selects among its rows.
    """
    on = " AND ".join(
        [
            *(f"_rows_.{k} IS NOT DISTINCT FROM _in_.{k}" for k in keys),
            f"_rows_.{START} BETWEEN _in_.{START} AND _in_.{END}",
        ]
    )
    selection = f"(SELECT * FROM {sessions} WHERE {condition})"
    bounds = f"_in_.{START}, _in_.{END}"
    return f"(SELECT _rows_.* EXCLUDE ({START}, {END}), {bounds} FROM {rows} _rows_ JOIN {selection} _in_ ON {on})"


def of_keys(rows: str, by: str, keys: Sequence[str]) -> str:
    """Return a FROM item: the rows whose keys occur in the relation `by`; without keys, all rows."""
    if not keys:
        return rows
    same = " AND ".join(f"_rows_.{k} IS NOT DISTINCT FROM _by_.{k}" for k in keys)
    return f"(SELECT * FROM {rows} _rows_ SEMI JOIN {by} _by_ ON {same})"
