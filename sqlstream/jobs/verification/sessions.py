"""Sessions as a stream has them, for a batch answer: one that the watermark has closed takes no more rows, whatever comes later.

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
from sqlstream.duck.sql import quote_name
from sqlstream.physical.batch.rows import BATCH
from sqlstream.physical.batch.windows import END, PASSED, START

_NUMBER, _ISLAND, _BEGINS, _DISTURBED = (internal(name) for name in ("number", "island", "begins", "disturbed"))
# A row by its number: the batch in which it came (None: on time, whatever batch), the session that it is alone, and the time by
# which sessions had closed when it came.
Arrived: TypeAlias = tuple[int, int | None, int, int, int | None]


@dataclass
class RunsSessions:
    """Gives rows the bounds of their sessions, in tables of a connection of the job; equal SELECTs are one table."""

    con: duckdb.DuckDBPyConnection
    _tables: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)

    def __call__(self, rows: str, keys: Sequence[str]) -> str:
        """Return a table of the rows that were in time for their session, with its bounds in START and END.

        In the SELECT each row has the bounds there of the session that it would be alone. Sessions that ended up to PASSED had
        closed when the row came.
        """
        asked = rows, tuple(keys)
        if asked not in self._tables:
            self._tables[asked] = self._bounded(rows, keys, f"_sessions_{len(self._tables)}")
        return self._tables[asked]

    def _bounded(self, rows: str, keys: Sequence[str], table: str) -> str:
        self._number_islands(rows, keys)
        order = f"{_ISLAND}, {BATCH.name} NULLS FIRST"
        columns = f"{_NUMBER}, {BATCH.name}, {START}, {END}, {PASSED}"
        disturbed = self.con.execute(f"SELECT {_ISLAND}, {columns} FROM _islands WHERE {_DISTURBED} ORDER BY {order}")
        found = [
            bounds
            for _, island in groupby(disturbed.fetchall(), lambda row: row[0])
            for bounds in in_order_of_arrival(row[1:] for row in island)
        ]
        numbers, starts, ends = zip(*found, strict=True) if found else ((), (), ())
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

    def _number_islands(self, rows: str, keys: Sequence[str]) -> None:
        """Keep the rows with the number of their island: the session that all rows of a key make, whenever they came.

        A row beyond what has passed touches no session that has closed. So only islands are disturbed, by the order in which
        their rows came, of which a row is not.
        """
        by = f"PARTITION BY {', '.join(map(quote_name, keys))} " if keys else ""
        order = f"{by}ORDER BY {START}, {END}"
        before = f"max({END}) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        begun = f"SELECT *, row_number() OVER () AS {_NUMBER}, coalesce({START} > {before}, true) AS {_BEGINS} FROM ({rows})"
        # Of rows of one place in the order one begins; the number of that is the island's.
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
    """Yield the rows of a key, in the order of their batches, that were in time for a session, with its bounds.

    A batch closes first what ended before it. Then its rows join what is open, and each other; what is over by then is late.

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
    """Return sessions with those in one that touch."""
    found: list[_Session] = []
    for piece in sorted(pieces, key=lambda session: session.start):
        if found and piece.start <= found[-1].end:
            found[-1].end = max(found[-1].end, piece.end)
            found[-1].rows += piece.rows
        else:
            found.append(piece)
    return found


def _bounds(sessions: Iterable[_Session]) -> Iterator[tuple[int, int, int]]:
    for session in sessions:
        yield from ((number, session.start, session.end) for number in session.rows)
