"""Which results a batch changes: of windows that lie where they lie, and of sessions, which grow and merge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from sqlstream.duck.clock import NEVER
from sqlstream.duck.sql import names
from sqlstream.operators.operator import Clock
from sqlstream.operators.scratch import keep
from sqlstream.operators.windows.assigners import (
    END,
    PARTIALS,
    SLICE,
    AssignedWindows,
    Relations,
    SlicedWindows,
    WindowSpan,
)
from sqlstream.operators.windows.sessions import of_keys, sessions_of, within
from sqlstream.operators.windows.triggers import DUE, EMITTED, KEPT, PENDING, FiringAggregate, between, same_columns
from sqlstream.state.bucket import Bucket
from sqlstream.state.zsets import WEIGHT
from sqlstream.units import EventTime


@dataclass(frozen=True)
class FiringWindows(FiringAggregate):
    """TUMBLE, HOP and CUMULATE: of windows that have ended, those change for which rows came."""

    windows: AssignedWindows | SlicedWindows

    def _final(self, relations: Relations, condition: str) -> str:
        new = {name: f"(SELECT * FROM {rows} WHERE {condition})" for name, rows in relations.items() if name != EMITTED}
        old = None if self.early is None else f"(SELECT * FROM {relations[EMITTED]} WHERE {condition})"
        return self._changes(new, old)

    def _corrections(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, clock: Clock, after: EventTime | None
    ) -> Iterator[str]:
        emitted, watermark = self._of(state, EMITTED), clock.watermark
        if watermark is not None and (after is None or after < watermark):
            # Windows that end now, of all keys.
            stored = self._relations(state, EventTime(self.windows.reach(watermark) + self.lateness))
            rows = {name: self._ending(rows, after, None) for name, rows in stored.items()}
            due = self.windows.due(con, rows, self.key_names, WindowSpan(after, watermark))
            if due is not None:
                yield self._final(
                    {**due.closed, EMITTED: self._ending(emitted, after, None)}, between(after, watermark)
                )
        self._find(con, state, clock)
        [(low, high)] = con.execute(f"SELECT epoch_us(min({END})) - 1, epoch_us(max({END})) FROM _play").fetchall()
        if low is not None:
            # The last window that a slice is in ends less than a size after any other.
            first, to = EventTime(low), EventTime(high)
            last = EventTime(to + (self.windows.grid.size if isinstance(self.windows, SlicedWindows) else 0))
            stored = {name: self._ending(rows, first, last) for name, rows in self._relations(state).items()}
            rows = {name: self._of_windows(rows) for name, rows in stored.items()}
            same = same_columns("_row_", "_play_", self.place)
            old = f"(SELECT * FROM {self._ending(emitted, first, to)} _row_ SEMI JOIN _play _play_ ON {same})"
            yield self._changes(rows, old)

    def _ending(self, rows: str, after: EventTime | None, to: EventTime | None) -> str:
        """Return stored rows whose last window ends in a stretch of time: by the stored time, of which files have statistics."""
        first, last = (None if time is None else EventTime(time + self.lateness) for time in (after, to))
        return f"(SELECT * FROM {rows} WHERE {between(first, last, KEPT)})"

    def _find(self, con: duckdb.DuckDBPyConnection, state: Bucket, clock: Clock) -> None:
        """Keep the windows, beside those that end now, whose results are to change in the table `_play`."""
        # What ends after `closed` is emitted now.
        closed = NEVER if state.closed is None else state.closed
        late = self._in_windows("_arrived", self._kept_from(clock), closed)
        selects = [f"SELECT DISTINCT {names(self.place)} FROM {late}"]
        if self.early is not None:
            self._add_pending(con, state, self._in_windows("_arrived", clock.watermark, None), clock)
            selects.append(self._due(self._pending(state, clock), clock))
        keep(con, "_play", " UNION ".join(selects))
        if self.early is not None:
            self._clear_pending(con, state, self._pending(state, clock), clock.batch)

    def _pending(self, state: Bucket, clock: Clock) -> str:
        return f"(SELECT * FROM {self._of(state, PENDING)} WHERE {between(clock.watermark, None)})"

    def _unseen(self, state: Bucket, clock: Clock) -> str:
        return self._waiting(self._pending(state, clock))

    def _in_windows(self, rows: str, after: EventTime | None, to: EventTime | None) -> str:
        """Return rows as rows of the windows that they are in, of those that end after one time, and by another."""
        if isinstance(self.windows, AssignedWindows):
            return f"(SELECT * FROM {rows} WHERE {between(after, to)})"
        # At the end of input there is no later window, and no later number either.
        first = None if after is None else self.windows.grid.first_end(EventTime(min(after, -NEVER) + 1))
        return self.windows.spread(rows, first, None if to is None else str(to))

    def _of_windows(self, rows: str) -> str:
        """Return rows as rows of the windows in `_play`."""
        if isinstance(self.windows, AssignedWindows):
            return (
                f"(SELECT * FROM {rows} _row_ SEMI JOIN _play _play_ ON {same_columns('_row_', '_play_', self.place)})"
            )
        start = self.windows.grid.start_sql(f"epoch_us(_play_.{END})")
        keys = same_columns("_row_", "_play_", self.place[:-1])
        on = " AND ".join(
            [*([keys] if keys else []), f"_row_.{SLICE} > {start}", f"_row_.{SLICE} <= epoch_us(_play_.{END})"]
        )
        return f"(SELECT _row_.* EXCLUDE ({SLICE}, {END}), _play_.{END} FROM {rows} _row_ JOIN _play _play_ ON {on})"


@dataclass(frozen=True)
class FiringSessions(FiringAggregate):
    """Sessions: rows may move the end of one, and make one of several; what was emitted of them is found by where it lies."""

    def _stored(self, state: Bucket, up_to: EventTime | None = None) -> Relations:
        # What was emitted of a session, and what is to be, is kept as long as its rows.
        others = [EMITTED] if self.early is None else [EMITTED, PENDING]
        return {**self._relations(state, up_to), **{name: self._of(state, name) for name in others}}

    def _final(self, relations: Relations, condition: str) -> str:
        new = {t.name: f"(SELECT * FROM {relations[t.name]} WHERE {condition})" for t in self.row_tables}
        return self._changes(new, f"(SELECT * FROM {relations[EMITTED]} WHERE {condition})")

    def _corrections(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, clock: Clock, after: EventTime | None
    ) -> Iterator[str]:
        if clock.watermark is None and self.early is None:
            return
        relations = self._relations(state)
        self._find(con, state, relations[PARTIALS], clock, after)
        [(some,)] = con.execute("SELECT count(*) FROM _play").fetchall()
        if not some:
            return
        # Without early results an open session has none: what was emitted before it grew is taken back.
        shown = between(None, clock.watermark) if self.early is None else "true"
        new = {name: within(rows, "_play", self.key_names, shown) for name, rows in relations.items()}
        yield self._changes(new, within(self._of(state, EMITTED), "_play", self.key_names, "true"))

    def _find(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, pieces: str, clock: Clock, after: EventTime | None
    ) -> None:
        """Keep the sessions whose results are to change in the table `_play`."""
        ends = between(after, clock.watermark) if clock.watermark is not None else "false"
        keys = self.key_names
        listed = ", ".join(keys) or "1"
        selects = [f"SELECT {listed} FROM _arrived", f"SELECT {listed} FROM {pieces} WHERE {ends}"]
        if self.early is not None:
            selects.append(f"SELECT {listed} FROM ({self._due(self._of(state, PENDING), clock)})")
        keep(con, "_of_keys", " UNION ".join(selects))
        keep(con, "_now", sessions_of(of_keys(pieces, "_of_keys", keys), keys))
        place = names(self.place)
        selects = [f"SELECT {place} FROM _now WHERE {ends}"]
        if self.early is None:
            selects.append(f"SELECT {place} FROM {within('_arrived', '_now', keys, 'true')}")
        else:
            is_open = between(clock.watermark, None)
            self._add_pending(con, state, within("_arrived", "_now", keys, is_open), clock)
            selects.append(self._due(self._pending(state, is_open), clock))
            ended = "false" if clock.watermark is None else between(None, clock.watermark)
            selects.append(f"SELECT {place} FROM {within('_arrived', '_now', keys, ended)}")
        keep(con, "_play", " UNION ".join(selects))
        if self.early is not None:
            self._clear_pending(con, state, self._pending(state, "true"), clock.batch)

    def _pending(self, state: Bucket, condition: str) -> str:
        return within(self._of(state, PENDING), "_now", self.key_names, condition)

    def _unseen(self, state: Bucket, clock: Clock) -> str:
        # Where a session lay when it was added and when it was taken may differ.
        by = ", ".join([*self.key_names, DUE])
        return f"SELECT {DUE} FROM {self._of(state, PENDING)} GROUP BY {by} HAVING sum({WEIGHT}) > 0"
