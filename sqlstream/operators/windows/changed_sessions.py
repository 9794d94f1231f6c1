"""Changed results of sessions: new rows may move a session's end, and may join several sessions into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlstream.duck.sql import FALSE, TRUE, Condition, Relation, Relations, Select, names, rows_where
from sqlstream.operators.scratch import keep
from sqlstream.operators.windows.assigners import PARTIALS, between
from sqlstream.operators.windows.corrections import ARRIVED
from sqlstream.operators.windows.early_results import DUE, PENDING, EarlyResults
from sqlstream.operators.windows.emitted import EMITTED, EmittedResults
from sqlstream.operators.windows.sessions import of_keys, sessions_of, within
from sqlstream.operators.windows.window_batch import WindowBatch
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import EventTime

# The sessions whose results may change, and all current sessions of their keys.
_CHANGED = Relation("_changed_results")
_NOW = Relation("_now")


@dataclass(frozen=True)
class ChangedSessions:
    """Changed results of SESSION windows. An emitted result belongs to the session in which its stored start now lies."""

    emitted: EmittedResults
    early: EarlyResults | None = None

    @property
    def moving(self) -> tuple[str, ...]:
        # The emitted and the pending results of a session are stored as long as its rows.
        return (EMITTED,) if self.early is None else (EMITTED, PENDING)

    def closing(self, batch: WindowBatch, relations: Relations, condition: Condition) -> Select:
        new = {name: rows_where(relations[name], condition) for name in batch.row_tables}
        return self.emitted.changes(new, rows_where(relations[EMITTED], condition))

    def changes(self, batch: WindowBatch, after: EventTime | None) -> Iterator[Select]:
        watermark = batch.times.watermark
        if watermark is None and self.early is None:
            return
        relations = batch.rows()
        self._find(batch, relations[PARTIALS], after)
        [(some,)] = batch.con.execute(f"SELECT count(*) FROM {_CHANGED}").fetchall()
        if not some:
            return
        # Without early results an open session has none: what was emitted before it grew is retracted.
        shown = between(None, watermark) if self.early is None else TRUE
        keys = self.emitted.groups.key_names
        new = {name: within(rows, _CHANGED, keys, shown) for name, rows in relations.items()}
        yield self.emitted.changes(new, within(batch.relation(EMITTED), _CHANGED, keys, TRUE))

    def _find(self, batch: WindowBatch, pieces: Relation, after: EventTime | None) -> None:
        """Create the table of the sessions whose results may change."""
        con, times, keys = batch.con, batch.times, self.emitted.groups.key_names
        ends = between(after, times.watermark) if times.watermark is not None else FALSE
        listed = ", ".join(keys) or "1"
        selects = [f"SELECT {listed} FROM {ARRIVED}", f"SELECT {listed} FROM {pieces} WHERE {ends}"]
        if self.early is not None:
            selects.append(f"SELECT {listed} FROM ({self.early.due(batch.relation(PENDING), times)})")
        touched = keep(con, "_of_keys", Select(" UNION ".join(selects)))
        keep(con, _NOW, sessions_of(of_keys(pieces, touched, keys), keys))
        window_keys = names(self.emitted.groups.window_keys)
        selects = [f"SELECT {window_keys} FROM {_NOW} WHERE {ends}"]
        if self.early is None:
            selects.append(f"SELECT {window_keys} FROM {within(ARRIVED, _NOW, keys, TRUE)}")
        else:
            is_open = between(times.watermark, None)
            batch.store(self.early.added(within(ARRIVED, _NOW, keys, is_open), times))
            selects.append(self.early.due(self._pending(batch, is_open), times))
            ended = FALSE if times.watermark is None else between(None, times.watermark)
            selects.append(f"SELECT {window_keys} FROM {within(ARRIVED, _NOW, keys, ended)}")
        keep(con, _CHANGED, Select(" UNION ".join(selects)))
        if self.early is not None:
            batch.store(self.early.emitted(self._pending(batch, TRUE), _CHANGED))

    def _pending(self, batch: WindowBatch, condition: Condition) -> Relation:
        return within(batch.relation(PENDING), _NOW, self.emitted.groups.key_names, condition)

    def waiting(self, batch: WindowBatch) -> Select:
        # Where a session lay when it was added and when it was taken may differ.
        by = ", ".join([*self.emitted.groups.key_names, DUE])
        return Select(f"SELECT {DUE} FROM {batch.relation(PENDING)} GROUP BY {by} HAVING sum({WEIGHT}) > 0")
