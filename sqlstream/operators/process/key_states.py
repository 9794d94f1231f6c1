"""The state of the keys of a batch: read for all of them together, shown to the user's code key by key, stored once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlstream.duck.sql import Relation
from sqlstream.functions.process.instances import Instance
from sqlstream.functions.process.shapes import RowMismatch
from sqlstream.functions.process.states import MapState, ValueState
from sqlstream.operators.process.arrivals import TOUCHED
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.collections import Collection, KeyCollection
from sqlstream.operators.process.keyrows import KeyRows
from sqlstream.operators.process.tables import StateTables


class KeyStates:
    """The states of `tables`: `rows` has the values and the list lengths of each key, `collections` the items by state name.

    The keys of the batch are in the temporary table `touched`, with their numbers.
    """

    def __init__(self, batch: BucketBatch, tables: StateTables, instance: Instance, touched: Relation = TOUCHED):
        self.batch, self.tables, self.instance = batch, tables, instance
        hints = instance.implementation.hints
        self.rows = KeyRows(batch, tables, hints, instance.aggregates)
        self.collections = {
            one.state.name: Collection(batch, tables, one, hints[one.state.name], touched) for one in tables.collections
        }

    @property
    def _parts(self) -> tuple[KeyRows | Collection, ...]:
        return (self.rows, *self.collections.values())

    def in_turn(self, count: int) -> Iterator[int]:
        """Yield the number of each key in turn. The handles show its state until the next one, when its changes are recorded."""
        handles, now = self._handles(), self.batch.times.time
        by_handle = {
            id(handle): KeyCollection(self.collections[name], handle)
            for name, handle in self.instance.handles.items()
            if not isinstance(handle, ValueState)
        }
        collections = list(by_handle.values())
        maps = [one for one in collections if isinstance(one.handle, MapState)]
        for number, stored in zip(range(count), self.rows.load(), strict=False):
            index = 0
            for handle, is_value, has_ttl, _ in handles:
                if is_value:
                    handle.current = stored[index]
                    handle.is_written = handle.is_read = False
                index += 2 if has_ttl else 1
            for one in collections:
                one.enter(number)
            yield number
            row: list[Any] | None = None
            index = 0
            for handle, is_value, has_ttl, is_refreshed in handles:
                if is_value:
                    is_changed = handle.is_written or (handle.is_read and is_refreshed)
                    value = handle.current
                else:
                    length = by_handle[id(handle)].leave(stored[index] or 0)
                    is_changed, value = length is not None, length or None
                if is_changed:
                    row = list(stored) if row is None else row
                    row[index] = value
                    if has_ttl:
                        row[index + 1] = now if value is not None else None
                index += 2 if has_ttl else 1
            # A key that was empty before and is empty again needs no row.
            if row is not None and (_has_value(row) or _has_value(stored)):
                self.rows.change(number, row)
            for one in maps:
                one.leave(0)

    def _handles(self) -> list[tuple[Any, bool, bool, bool]]:
        """Return, for each state in the row of the key: its handle, whether it is a value, can expire, is refreshed by reads."""
        return [
            (
                self.instance.handles[one.state.name],
                one.state.kind == "value",
                one.write_time is not None,
                one.write_time is not None and one.state.refreshed_by == "read",
            )
            for one in self.tables.in_row
        ]

    def store(self) -> None:
        """Store what has changed. Raises RowMismatch, with the number of the key, for a value of another type."""
        for part in self._parts:
            try:
                part.store()
            except RowMismatch as error:
                raise RowMismatch(part.number_of(error.number), error.what) from error

    def sweep(self, name: str = "") -> None:
        """Delete expired state in the whole bucket, if a sweep is due; for the `name` see `BucketBatch.is_sweep_due`."""
        if self.batch.is_sweep_due(self.tables, name):
            for part in self._parts:
                part.sweep()


def _has_value(row: Sequence[Any]) -> bool:
    # Not any(..): for each key, a generator takes longer than this.
    for value in row:  # noqa: SIM110
        if value is not None:
            return True
    return False
