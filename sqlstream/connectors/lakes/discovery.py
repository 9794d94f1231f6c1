"""Base class of discovery in a lakehouse: the splits of a table's commits wait in a queue, from which batches take them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets, monitor_interval
from sqlstream.connectors.options import MAX_BYTES
from sqlstream.units import parse_bytes


class LakeSplit(Protocol):
    """A split of a lakehouse table: its size in `bytes`, and the position that is `reached` when it was read."""

    @property
    def bytes(self) -> int: ...

    @property
    def reached(self) -> tuple[str, Any]: ...

    def to_list(self) -> list[Any]: ...


S = TypeVar("S", bound=LakeSplit)


class LakeDiscovery(Discovery, Generic[S]):
    """Hands out splits in the order of commits. A subclass's `poll` appends them to `_pending`."""

    backlog_unit = "files"

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext):
        super().__init__()
        self.interval = monitor_interval(table)
        self.bounded = self.interval is None
        self._table, self._position, self._context = table, position, context
        self._max_bytes = parse_bytes(table.options.get(MAX_BYTES.name, MAX_BYTES.default))
        self._pending: deque[S] = deque()

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def next_batch(self) -> Sequence[S] | None:
        """Return the next splits, up to `source.max-bytes-per-batch`, but at least one; None if none waits."""
        splits: list[S] = []
        room = self._max_bytes
        while self._pending and (not splits or self._pending[0].bytes <= room):
            splits.append(self._pending.popleft())
            room -= splits[-1].bytes
        self._position.add(splits)
        return splits or None
