"""Changed results of windows with fixed bounds: of windows that end, that late rows correct, or that are due early."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlstream.duck.sql import Condition, Relation, Relations, Select, names, rows_where, same_columns
from sqlstream.duck.time_variables import NEVER
from sqlstream.operators.scratch import keep
from sqlstream.operators.windows.assigners import END, FixedWindows, WindowSpan, between
from sqlstream.operators.windows.corrections import ARRIVED
from sqlstream.operators.windows.early_results import PENDING, EarlyResults
from sqlstream.operators.windows.emitted import EMITTED, EmittedResults
from sqlstream.operators.windows.retention import KEPT
from sqlstream.operators.windows.window_batch import WindowBatch
from sqlstream.units import EventTime

# The windows, other than those that end now, whose results may change.
_CHANGED = Relation("_changed_results")


@dataclass(frozen=True)
class ChangedWindows:
    """Changed results of TUMBLE, HOP and CUMULATE, whose windows have fixed bounds."""

    windows: FixedWindows
    emitted: EmittedResults
    early: EarlyResults | None = None

    @property
    def moving(self) -> tuple[str, ...]:
        return ()

    def closing(self, batch: WindowBatch, relations: Relations, condition: Condition) -> Select:
        new = {name: rows_where(relations[name], condition) for name in batch.row_tables}
        # Without early results nothing was emitted of a window that is open.
        old = None if self.early is None else rows_where(relations[EMITTED], condition)
        return self.emitted.changes(new, old)

    def changes(self, batch: WindowBatch, after: EventTime | None) -> Iterator[Select]:
        watermark = batch.times.watermark
        if watermark is not None and (after is None or after < watermark):
            yield from self._ended(batch, WindowSpan(after, watermark))
        self._find(batch)
        ends = f"SELECT epoch_us(min({END})) - 1, epoch_us(max({END})) FROM {_CHANGED}"
        [(low, high)] = batch.con.execute(ends).fetchall()
        if low is not None:
            yield self._corrected(batch, low, high)

    def _ended(self, batch: WindowBatch, span: WindowSpan) -> Iterator[Select]:
        """Yield the changes of windows that end now, for all keys."""
        windows = self.windows
        stored = batch.rows(batch.retention.stored_until(windows.reach(span.watermark)))
        rows = {name: self._in_range(batch, rows, span.closed, None) for name, rows in stored.items()}
        due = windows.due(batch.con, rows, self.emitted.groups.key_names, span)
        if due is not None:
            emitted = self._in_range(batch, batch.relation(EMITTED), span.closed, None)
            yield self.closing(batch, {**due.closed, EMITTED: emitted}, between(span.closed, span.watermark))

    def _corrected(self, batch: WindowBatch, low: EventTime, high: EventTime) -> Select:
        """Return the changes of the windows in _CHANGED, which end after `low` and at most at `high`."""
        windows, keys = self.windows, self.emitted.groups.key_names
        last = EventTime(high + windows.spread_over)
        stored = {name: self._in_range(batch, rows, low, last) for name, rows in batch.rows().items()}
        rows = {name: windows.among(rows, _CHANGED, keys) for name, rows in stored.items()}
        same = same_columns("_row_", "_in_", [c.name for c in self.emitted.groups.window_keys])
        emitted = self._in_range(batch, batch.relation(EMITTED), low, high)
        old = Relation(f"(SELECT * FROM {emitted} _row_ SEMI JOIN {_CHANGED} _in_ ON {same})")
        return self.emitted.changes(rows, old)

    @staticmethod
    def _in_range(batch: WindowBatch, rows: Relation, after: EventTime | None, to: EventTime | None) -> Relation:
        """Return rows whose last window ends in a range, by the stored time, for which files have statistics."""
        first, last = batch.retention.stored_until(after), batch.retention.stored_until(to)
        return rows_where(rows, between(first, last, KEPT.name))

    def _find(self, batch: WindowBatch) -> None:
        """Create the table of the windows, other than those that end now, whose results may change."""
        windows, times = self.windows, batch.times
        # What ends after `ended` is emitted now.
        ended = NEVER if batch.state.closed is None else batch.state.closed
        late = windows.ending(ARRIVED, batch.closed, ended)
        selects = [f"SELECT DISTINCT {names(self.emitted.groups.window_keys)} FROM {late}"]
        if self.early is not None:
            batch.store(self.early.added(windows.ending(ARRIVED, times.watermark, None), times))
            selects.append(self.early.due(self._pending(batch), times))
        keep(batch.con, _CHANGED, Select(" UNION ".join(selects)))
        if self.early is not None:
            batch.store(self.early.emitted(self._pending(batch), _CHANGED))

    @staticmethod
    def _pending(batch: WindowBatch) -> Relation:
        return rows_where(batch.relation(PENDING), between(batch.times.watermark, None))

    def waiting(self, batch: WindowBatch) -> Select:
        assert self.early is not None
        return self.early.waiting(self._pending(batch))
