"""Sessions: rows of a key that follow each other within a gap. Their bounds are known only when they close.

Sessions are stored in pieces, which come from single batches. As in Flink, pieces that touch are one session; a read joins them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.duck.sql import TRUE, Condition, Items, Relation, Relations, Select, rows_where, same_columns, subquery
from sqlstream.duck.types import time_literal
from sqlstream.operators.groups import ComputedColumns
from sqlstream.operators.scratch import keep, keep_and_count
from sqlstream.operators.windows.assigners import (
    END,
    PARTIALS,
    START,
    AdmittedRows,
    Arrival,
    DueRows,
    Read,
    WindowSpan,
    ended,
)
from sqlstream.operators.windows.session_pieces import SessionPieces
from sqlstream.storage.segments import Segment
from sqlstream.units import EventTime

# The temporary table of sessions, while windows close or rows are admitted.
_SESSIONS = Relation("_sessions")


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

    def late(self, rows: Relation, keys: Sequence[str], watermark: EventTime) -> Relation:
        return within(rows, _SESSIONS, keys, ended(watermark))

    def reach(self, watermark: EventTime) -> EventTime | None:
        return None

    def source(self, keys: Sequence[str]) -> Relation:
        return self.pieces.source(keys)

    def is_early(self, segment: Segment, read: Read, watermark: EventTime) -> bool:
        # What begins after the watermark touches nothing that the watermark closes.
        first = pc.min(read(segment, [START]).column(START)).cast(pa.int64()).as_py()
        return bool(first > watermark)

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        return self.pieces.arrive(rows, watermark)

    def due(
        self, con: duckdb.DuckDBPyConnection, relations: Relations, keys: Sequence[str], span: WindowSpan
    ) -> DueRows | None:
        """Return the rows of sessions that close, and the passed rows of sessions that continue, to be stored again."""
        past, pieces = ended(span.watermark), relations[PARTIALS]
        passed = {name: rows_where(rows, past) for name, rows in relations.items()}
        present = self.pieces.present(passed[PARTIALS])
        passed[PARTIALS], some = keep_and_count(con, "_passed", Select(f"FROM {present}"))
        if not some:
            return None
        # All pieces of a session that closes have passed. The bounds of other pieces show which sessions continue.
        begun = f"{START} <= {time_literal(span.watermark, 'TIMESTAMP')}"
        others = rows_where(pieces, Condition(f"NOT ({past}) AND {begun}"))
        other_pieces = self.pieces.present(of_keys(others, passed[PARTIALS], keys))
        all_pieces = f"SELECT {_bounds(keys)} FROM _passed UNION ALL SELECT {_bounds(keys)} FROM {other_pieces}"
        keep(con, _SESSIONS, sessions_of(subquery(Select(all_pieces)), keys))
        closed = {name: within(rows, _SESSIONS, keys, past) for name, rows in passed.items()}
        stays = Condition(f"NOT ({past})")
        again = {name: within(rows, _SESSIONS, keys, stays) for name, rows in passed.items()}
        return DueRows(closed, again)

    def admit(
        self,
        con: duckdb.DuckDBPyConnection,
        relations: Relations,
        after: Relations,
        keys: Sequence[str],
        watermark: EventTime,
    ) -> AdmittedRows:
        """Store rows whose session is open or opens with them; rows whose session has closed are late."""
        both = Relation(f"(SELECT * FROM {relations[PARTIALS]} UNION ALL BY NAME SELECT * FROM {after[PARTIALS]})")
        pieces = of_keys(both, after[PARTIALS], keys)
        keep(con, _SESSIONS, sessions_of(pieces, keys))
        past = ended(watermark)
        stays = Condition(f"NOT ({past})")
        rows = {name: within(rows, _SESSIONS, keys, stays) for name, rows in after.items()}
        return AdmittedRows(rows, within(after[PARTIALS], _SESSIONS, keys, past))

    def open(self, relations: Relations, keys: Sequence[str], watermark: str) -> Relations:
        sessions = subquery(sessions_of(self.pieces.present(relations[PARTIALS]), keys))
        return {name: within(rows, sessions, keys, TRUE) for name, rows in relations.items()}

    def count(self, rows: Relation, keys: Sequence[str], watermark: str) -> Select:
        return Select(f"SELECT count(*) FILTER (WHERE _begins = 1) FROM ({begun(rows, keys)})")

    def next_time(self, earliest: EventTime | None, watermark: EventTime | None) -> EventTime | None:
        return earliest


def _bounds(keys: Sequence[str]) -> Items:
    return Items(", ".join([*keys, START, END]))


def sessions_of(pieces: Relation, keys: Sequence[str]) -> Select:
    """Return the sessions that pieces form: keys, START, END."""
    # Equal pieces may be in another order here than above, so they are added up together: by RANGE, not ROWS.
    numbered = f"sum(_begins) OVER ({_in_order(keys)}) AS _number"
    rows = f"SELECT {_bounds(keys)}, {numbered} FROM ({begun(pieces, keys)})"
    bounds = f"min({START}) AS {START}, max({END}) AS {END}"
    return Select(f"SELECT {', '.join([*keys, bounds])} FROM ({rows}) GROUP BY {', '.join([*keys, '_number'])}")


def begun(pieces: Relation, keys: Sequence[str]) -> Select:
    """Return the keys and bounds of pieces, with `_begins`: 1 where a session begins, else 0."""
    before = f"max({END}) OVER ({_in_order(keys)} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    begins = f"CASE WHEN {START} <= {before} THEN 0 ELSE 1 END AS _begins"
    return Select(f"SELECT {_bounds(keys)}, {begins} FROM {pieces}")


def _in_order(keys: Sequence[str]) -> str:
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    return f"{by}ORDER BY {START}, {END}"


def within(rows: Relation, sessions: Relation, keys: Sequence[str], condition: Condition) -> Relation:
    """Return rows whose START lies in a session, with the bounds of that session.

    `sessions` are keys and bounds; `condition` on the bounds selects among them.
    """
    on = " AND ".join(
        [
            *(f"_rows_.{k} IS NOT DISTINCT FROM _in_.{k}" for k in keys),
            f"_rows_.{START} BETWEEN _in_.{START} AND _in_.{END}",
        ]
    )
    selection = rows_where(sessions, condition)
    items = f"_rows_.* EXCLUDE ({START}, {END}), _in_.{START}, _in_.{END}"
    return Relation(f"(SELECT {items} FROM {rows} _rows_ JOIN {selection} _in_ ON {on})")


def of_keys(rows: Relation, by: Relation, keys: Sequence[str]) -> Relation:
    """Return the rows whose keys occur in `by`; without keys, all rows."""
    if not keys:
        return rows
    return Relation(f"(SELECT * FROM {rows} _rows_ SEMI JOIN {by} _by_ ON {same_columns('_rows_', '_by_', keys)})")
