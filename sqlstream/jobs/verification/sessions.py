"""Session windows for a batch answer, as a stream has them: a session that the watermark has closed takes no more rows.

The rule is written out here row by row, and not in the operator's SQL: an answer to compare with must not repeat its mistakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

import duckdb
import pyarrow as pa

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Relation, Select, quote_name
from sqlstream.physical.batch.rows import BATCH
from sqlstream.physical.batch.windows import END, PASSED, START

_NUMBER, _ISLAND, _BEGINS, _DISTURBED = (internal(name) for name in ("number", "island", "begins", "disturbed"))
# A row: its number, its batch (None: on time, in any batch), the bounds of a session of the row alone, and the time up to which
# sessions had closed when it came, or None. Times are in microseconds.
Arrived: TypeAlias = tuple[int, int | None, int, int, int | None]


@dataclass
class RunsSessions:
    """Finds the sessions of rows, in temporary tables of `con`; equal SELECTs share one table."""

    con: duckdb.DuckDBPyConnection
    _tables: dict[tuple[Select, tuple[str, ...]], Relation] = field(default_factory=dict)

    def __call__(self, rows: Select, keys: Sequence[str]) -> Relation:
        """Return a table of the rows that were in time for a session, with the bounds of the session in START and END.

        `rows` have in START and END the bounds of a session of the row alone, and in PASSED the time up to which sessions had
        closed when the row came, all in microseconds.
        """
        key = rows, tuple(keys)
        if key not in self._tables:
            self._tables[key] = self._bounded(rows, keys, Relation(f"_sessions_{len(self._tables)}"))
        return self._tables[key]

    def _bounded(self, rows: Select, keys: Sequence[str], table: Relation) -> Relation:
        self._number_islands(rows, keys)
        order = f"{_ISLAND}, {BATCH.name} NULLS FIRST"
        columns = f"{_NUMBER}, {BATCH.name}, {START}, {END}, {PASSED}"
        disturbed = self.con.execute(f"SELECT {_ISLAND}, {columns} FROM _islands WHERE {_DISTURBED} ORDER BY {order}")
        row_bounds = [
            bounds
            for _, island in groupby(disturbed.fetchall(), lambda row: row[0])
            for bounds in in_order_of_arrival(row[1:] for row in island)
        ]
        numbers, starts, ends = zip(*row_bounds, strict=True) if row_bounds else ((), (), ())
        self.con.register(
            "_replayed",
            pa.table([pa.array(c, pa.int64()) for c in (numbers, starts, ends)], names=[_NUMBER, START, END]),
        )
        own = f"* EXCLUDE ({START}, {END}, {_DISTURBED})"
        at_once = (
            f"SELECT {own}, min({START}) OVER (PARTITION BY {_ISLAND}) AS {START}, "
            f"max({END}) OVER (PARTITION BY {_ISLAND}) AS {END} FROM _islands WHERE NOT {_DISTURBED}"
        )
        replayed = f"SELECT {own}, _replayed.{START}, _replayed.{END} FROM _islands JOIN _replayed USING ({_NUMBER})"
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {at_once} UNION ALL BY NAME {replayed}")
        self.con.unregister("_replayed")
        return table

    def _number_islands(self, rows: Select, keys: Sequence[str]) -> None:
        """Number the islands of the rows: an island is the session that rows of a key make if their order does not matter.

        A row that starts after PASSED touches no closed session. So the order matters only in islands that have another row:
        these are _DISTURBED.
        """
        by = f"PARTITION BY {', '.join(map(quote_name, keys))} " if keys else ""
        order = f"{by}ORDER BY {START}, {END}"
        before = f"max({END}) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        begun = f"SELECT *, row_number() OVER () AS {_NUMBER}, coalesce({START} > {before}, true) AS {_BEGINS} FROM ({rows})"
        # Of rows with equal bounds one begins an island; the number of that row is the number of the island.
        first = f"CASE WHEN {_BEGINS} THEN {_NUMBER} END"
        number = f"last_value({first} IGNORE NULLS) OVER ({order}, {_BEGINS} DESC ROWS UNBOUNDED PRECEDING)"
        numbered = f"SELECT * EXCLUDE ({_BEGINS}), {number} AS {_ISLAND} FROM ({begun})"
        touched = f"coalesce(bool_or({START} <= {PASSED}) OVER (PARTITION BY {_ISLAND}), false) AS {_DISTURBED}"
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE _islands AS SELECT *, {touched} FROM ({numbered})")


@dataclass(slots=True)
class _Session:
    start: int
    end: int
    rows: list[int]


def in_order_of_arrival(rows: Iterable[Arrived]) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, end) of each row of a key that was in time for a session; `rows` are in the order of their batches.

    A row is (number, batch, start, end, passed), see `Arrived`. A batch first closes the sessions that end at `passed` or before.
    Then its rows join open sessions, and each other. Rows whose sessions still end at `passed` or before are late.

    >>> early, late = (1, 0, 0, 4, None), (2, 1, 3, 7, 5)
    >>> list(in_order_of_arrival([early, late, (3, 1, 9, 13, 5)]))
    [(1, 0, 4), (2, 3, 7), (3, 9, 13)]
    >>> list(in_order_of_arrival([early, (2, 1, 0, 4, 5)]))
    [(1, 0, 4)]
    """
    open_sessions: list[_Session] = []
    for _, batch in groupby(rows, lambda row: row[1]):
        arrived = list(batch)
        passed = arrived[0][4]
        if passed is not None:
            yield from _bounds(session for session in open_sessions if session.end <= passed)
            open_sessions = [session for session in open_sessions if session.end > passed]
        open_sessions += [_Session(start, end, [number]) for number, _, start, end, _ in arrived]
        open_sessions = [s for s in _joined(open_sessions) if passed is None or s.end > passed]
    yield from _bounds(open_sessions)


def _joined(pieces: Iterable[_Session]) -> list[_Session]:
    """Merge the sessions that touch; return all sessions by their start."""
    sessions: list[_Session] = []
    for piece in sorted(pieces, key=lambda session: session.start):
        if sessions and piece.start <= sessions[-1].end:
            sessions[-1].end = max(sessions[-1].end, piece.end)
            sessions[-1].rows += piece.rows
        else:
            sessions.append(piece)
    return sessions


def _bounds(sessions: Iterable[_Session]) -> Iterator[tuple[int, int, int]]:
    for session in sessions:
        yield from ((number, session.start, session.end) for number in session.rows)
