"""Sessions of rows that come and go: which rows are there when the watermark passes decides which sessions there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from sqlstream.operators.sessions import Sessions, begun, of_keys, same_keys, sessions_of
from sqlstream.operators.windowing import END, PARTIALS, START, Admitted, Due, Relations, Span
from sqlstream.storage.segments import time_literal
from sqlstream.storage.zsets import WEIGHT


@dataclass(frozen=True)
class ChangingSessions(Sessions):
    """Rows are stored one by one, with weights and their own starts; those that differ in their ends only are one row.

    The stored end of a row is its own, or the last of a session that it was in when that passed: so long it is kept, also when
    the session has fallen apart meanwhile. A session closes when the watermark has passed the stored ends of all its rows.
    A change is late when it is near no session that is open, with all rows that were there before it or are there now.
    """

    def source(self, keys: Sequence[str]) -> str:
        end = f"{self.time} + to_microseconds({self.gap})"
        return f"(SELECT *, {self.time} AS {START}, {end} AS {END} FROM _rows)"

    def due(self, con: duckdb.DuckDBPyConnection, relations: Relations, keys: Sequence[str], span: Span) -> Due | None:
        at, rows = time_literal(span.watermark, "TIMESTAMP"), relations[PARTIALS]
        passed = f"SELECT * FROM {rows} WHERE {END} <= {at}"
        [(some,)] = con.execute(f"CREATE OR REPLACE TEMP TABLE _passed AS {passed}").fetchall()
        if not some:
            return None
        weight = f"coalesce(sum({WEIGHT}) FILTER (WHERE {END} <= {at}), 0) AS _gone"
        self._find(
            con, f"SELECT {_ROW}, {weight} FROM {of_keys(rows, '_passed', keys)} GROUP BY ALL", "_total > 0", keys
        )
        closed = f"(SELECT * EXCLUDE (_gone) FROM {_members('_present', '_sessions', keys, f'_in_._held <= {at}')})"
        # What passes is kept for the sake of what does not: copies of the row, or a session that it is near.
        kept = f"greatest(_held, coalesce(_near, _held)) AS {END}, _gone AS {WEIGHT}"
        again = f"SELECT * EXCLUDE (_total, _held, _near, _gone), {kept} FROM {self._near('_found', keys)}"
        return Due({PARTIALS: closed}, {PARTIALS: f"(SELECT * FROM ({again}) WHERE {WEIGHT} <> 0 AND {END} > {at})"})

    def admit(
        self,
        con: duckdb.DuckDBPyConnection,
        relations: Relations,
        after: Relations,
        keys: Sequence[str],
        watermark: int,
    ) -> Admitted:
        """Tell rows that are near a session which is open, or open themselves, from those that are late."""
        at, new = time_literal(watermark, "TIMESTAMP"), after[PARTIALS]
        both = f"(SELECT *, 0 AS _new FROM {relations[PARTIALS]} UNION ALL BY NAME SELECT *, 1 AS _new FROM {new})"
        before = (
            f"SELECT {_ROW.replace('EXCLUDE (', 'EXCLUDE (_new, ')}, sum({WEIGHT}) FILTER (WHERE _new = 0) AS _before"
        )
        there = "_total > 0 OR coalesce(_before, 0) > 0"
        self._find(con, f"{before} FROM {of_keys(both, new, keys)} GROUP BY ALL", there, keys)
        rows = f"SELECT * EXCLUDE ({END}, _near), greatest({END}, coalesce(_near, {END})) AS {END} FROM {self._near(new, keys)}"
        admitted, late = (f"(SELECT * FROM ({rows}) WHERE {END} {sign} {at})" for sign in (">", "<="))
        return Admitted({PARTIALS: admitted}, late)

    def open(self, relations: Relations, keys: Sequence[str]) -> Relations:
        present = _present(relations[PARTIALS])
        return {PARTIALS: _members(present, f"({sessions_of(self._pieces(present, keys), keys)})", keys, "true")}

    def count(self, rows: str, keys: Sequence[str]) -> str:
        pieces = self._pieces(_present(rows), keys)
        return f"SELECT count(*) FILTER (WHERE _begins = 1) FROM ({begun(pieces, keys)})"

    def _find(self, con: duckdb.DuckDBPyConnection, rows: str, there: str, keys: Sequence[str]) -> None:
        """Keep the rows that a SELECT finds, those that are there, and the sessions that these make up, with their last end."""
        con.execute(f"CREATE OR REPLACE TEMP TABLE _found AS {rows}")
        con.execute(f"CREATE OR REPLACE TEMP TABLE _present AS SELECT * FROM _found WHERE {there}")
        same = " AND ".join([*same_keys(keys), f"_rows_.{START} BETWEEN _in_.{START} AND _in_.{END}"])
        sessions = f"({sessions_of(self._pieces('_present', keys), keys)})"
        held = f"SELECT _in_.*, max(_held) AS _held FROM {sessions} _in_ JOIN _present _rows_ ON {same} GROUP BY ALL"
        con.execute(f"CREATE OR REPLACE TEMP TABLE _sessions AS {held}")

    def _pieces(self, rows: str, keys: Sequence[str]) -> str:
        return f"(SELECT {', '.join([*keys, START])}, {START} + to_microseconds({self.gap}) AS {END} FROM {rows})"

    def _near(self, rows: str, keys: Sequence[str]) -> str:
        """Return rows with the last end, `_near`, of the sessions that they touch."""
        touches = [
            f"_rows_.{START} <= _in_.{END}",
            f"_rows_.{START} + to_microseconds({self.gap}) >= _in_.{START}",
        ]
        last = f"SELECT max(_in_._held) FROM _sessions _in_ WHERE {' AND '.join([*same_keys(keys), *touches])}"
        return f"(SELECT _rows_.*, ({last}) AS _near FROM {rows} _rows_)"


# Rows added up: how often each is there, and how long it is kept.
_ROW = f"* EXCLUDE ({END}, {WEIGHT}), CAST(sum({WEIGHT}) AS BIGINT) AS _total, max({END}) AS _held"


def _present(rows: str) -> str:
    return f"(SELECT * FROM (SELECT {_ROW} FROM {rows} GROUP BY ALL) WHERE _total > 0)"


def _members(rows: str, sessions: str, keys: Sequence[str], condition: str) -> str:
    """Return rows with the bounds of the sessions that they are in, where a condition on those holds."""
    on = " AND ".join([*same_keys(keys), f"_rows_.{START} BETWEEN _in_.{START} AND _in_.{END}", condition])
    items = f"_rows_.* EXCLUDE ({START}, _total, _held), _in_.{START}, _in_.{END}, _rows_._total AS {WEIGHT}"
    return f"(SELECT {items} FROM {rows} _rows_ JOIN {sessions} _in_ ON {on})"
