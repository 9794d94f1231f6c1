"""States that all keys share: methods of broadcast tables write them, all other methods read them.

Each bucket of keys has a copy of the state; all copies receive the same rows in the same order. In a batch the rows of broadcast
tables come first, and are numbered; a state remembers its value after each of them. Then the rows of keys come, key by key. Each
sees the state of its own time: after a certain number of broadcast rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from sqlstream.functions.process.states import (
    REMOVED,
    ListState,
    MapState,
    ReducingState,
    ValueState,
    copied,
    not_found,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
# (number of rows of the batch, the state after them), in order; the first is the stored state.
History: TypeAlias = list[tuple[int, T]]
# How many snapshots of a map are kept.
SNAPSHOTS = 64
# The item keys, and the items: lists of equal length.
Stored: TypeAlias = tuple[list[Any], list[Any]]


class BroadcastStateHandle:
    """The base of the handles of broadcast states.

    While rows of keys are processed, a handle shows the state after the first `version` broadcast rows of the batch; None: after
    all rows. A state can be changed only while a row of a broadcast table is processed: then `writes` is True.
    """

    name = ""
    version: int | None = None
    writes = False
    # How many rows of the batch have come, including the row that writes.
    row = 0

    def begin(
        self, name: str, load: Callable[[], Stored], find: Callable[[Any], dict[Any, Any] | None] = not_found
    ) -> None:
        """Begin a batch of a bucket. `load` reads the whole state when needed; `find` reads one entry of a large map."""
        self.name, self.load_items, self.find_entry = name, load, find
        self.version, self.row = None, 0
        self._forget()

    @property
    def changes(self) -> tuple[bool, list[tuple[Any, Any]]]:
        """The changes of the state to store: (whether to delete all stored items first, [(item key, item)]).

        An item key is an index of a list, a key of a map, or 0 for a single value. The item REMOVED deletes the one at its item
        key.
        """
        raise NotImplementedError

    def _forget(self) -> None:
        raise NotImplementedError

    def _may_write(self) -> None:
        if not self.writes:
            raise RuntimeError(f'state "{self.name}" is broadcast: only the methods of broadcast tables write it')


def as_of(history: History[T], version: int) -> T:
    """Return the state after `version` rows of the batch. `history` has (number of rows, state after them), in order.

    >>> as_of([(0, "a"), (2, "b"), (2, "c")], 1), as_of([(0, "a"), (2, "b"), (2, "c")], 2)
    ('a', 'c')
    """
    return history[bisect_right(history, version, key=itemgetter(0)) - 1][1]


class _SharedValue(BroadcastStateHandle):
    def _forget(self) -> None:
        self._history: History[Any] | None = None

    def _loaded_history(self) -> History[Any]:
        if self._history is None:
            _, items = self.load_items()
            self._history = [(0, items[0] if items else None)]
        return self._history

    @property
    def value(self) -> Any:
        """The value."""
        history = self._history or self._loaded_history()
        return history[-1][1] if self.version is None else as_of(history, self.version)

    @value.setter
    def value(self, value: Any) -> None:
        self._put(value)

    def _put(self, value: Any) -> None:
        self._may_write()
        self._loaded_history().append((self.row, value))

    def clear(self) -> None:
        self.value = None

    @property
    def changes(self) -> tuple[bool, list[tuple[Any, Any]]]:
        history = self._history or []
        if len(history) < 2:
            return False, []
        _, value = history[-1]
        return False, [(0, REMOVED if value is None else value)]


class SharedValue(_SharedValue, ValueState[T]):
    """One value for all keys."""


class SharedDefaulting(SharedValue[T]):
    """One value for all keys, or the default if there is none."""

    def __init__(self, default: T) -> None:
        super().__init__()
        self.default = default

    @property
    def value(self) -> Any:
        """The value."""
        found = super().value
        return copied(self.default) if found is None else found

    @value.setter
    def value(self, value: Any) -> None:
        self._put(value)


class SharedReducing(_SharedValue, ReducingState[T]):
    """One value for all keys, which a function combines with each further one."""


class SharedList(BroadcastStateHandle, ListState[T]):
    """One list for all keys."""

    def _forget(self) -> None:
        # Lists, which later rows only extend, and their lengths after the row.
        self._history: History[tuple[list[T], int]] | None = None
        self._item_keys: list[int] = []

    def _loaded_history(self) -> History[tuple[list[T], int]]:
        if self._history is None:
            self._item_keys, items = self.load_items()
            self._history = [(0, (items, len(items)))]
        return self._history

    def append(self, item: T) -> None:
        self.extend([item])

    def extend(self, items: Iterable[T]) -> None:
        self._may_write()
        history = self._loaded_history()
        _, (now, _) = history[-1]
        now.extend(items)
        history.append((self.row, (now, len(now))))

    def set(self, items: Iterable[T]) -> None:
        self._may_write()
        found = list(items)
        self._loaded_history().append((self.row, (found, len(found))))

    def clear(self) -> None:
        self.set([])

    def get(self) -> list[T]:
        history = self._loaded_history()
        items, length = history[-1][1] if self.version is None else as_of(history, self.version)
        return items[:length]

    def __bool__(self) -> bool:
        return bool(self.get())

    @property
    def changes(self) -> tuple[bool, list[tuple[Any, Any]]]:
        history = self._history or []
        if len(history) < 2:
            return False, []
        (_, (before, length)), (_, (now, _)) = history[0], history[-1]
        if now is not before:
            return True, list(enumerate(now))
        return False, list(enumerate(now[length:], self._item_keys[-1] + 1 if self._item_keys else 0))


class SharedMap(BroadcastStateHandle, MapState[K, V]):
    """One map for all keys. Entries are in the order of their keys, whatever the batch in which they were put."""

    def _forget(self) -> None:
        # The stored entries, once all of them are loaded; and the history of each entry that has changed in this batch.
        self._entries: dict[K, V] | None = None
        self._history: dict[K, History[Any]] = {}
        self._snapshots: dict[int | None, dict[K, V]] = {}

    def _stored_entries(self) -> dict[K, V]:
        if self._entries is None:
            self._entries = dict(zip(*self.load_items(), strict=True))
        return self._entries

    def _stored(self, key: K) -> Any:
        """Return the stored value of an entry; REMOVED if there is none."""
        if self._entries is None:
            entries = self.find_entry(key)
            if entries is not None:
                return entries.get(key, REMOVED)
        return self._stored_entries().get(key, REMOVED)

    def _write(self, key: K, value: Any) -> None:
        self._may_write()
        history = self._history.get(key)
        if history is None:
            history = self._history[key] = [(0, self._stored(key))]
        history.append((self.row, value))
        self._snapshots.clear()

    def put(self, key: K, value: V) -> None:
        self._write(key, value)

    def update(self, entries: Mapping[K, V]) -> None:
        for key, value in entries.items():
            self._write(key, value)

    def remove(self, key: K) -> None:
        self._write(key, REMOVED)

    def clear(self) -> None:
        self._may_write()
        for key in self._snapshot():
            self._write(key, REMOVED)

    def get(self, key: K, default: Any = None) -> Any:
        history = self._history.get(key)
        if history is None:
            value = self._stored(key) if self._entries is None else self._entries.get(key, REMOVED)
        else:
            value = self._at(history)
        return default if value is REMOVED else value

    def _at(self, history: History[Any]) -> Any:
        return history[-1][1] if self.version is None else as_of(history, self.version)

    def get_all(self) -> dict[K, V]:
        if (snapshot := self._snapshots.get(self.version)) is None:
            if len(self._snapshots) >= SNAPSHOTS:
                self._snapshots.clear()
            snapshot = self._snapshots[self.version] = self._snapshot()
        return dict(snapshot)

    def _snapshot(self) -> dict[K, V]:
        entries: dict[K, Any] = dict(self._stored_entries())
        entries |= {key: self._at(history) for key, history in self._history.items()}
        try:
            keys = sorted(entries)  # type: ignore[type-var]
        except TypeError:
            keys = sorted(entries, key=repr)
        return {key: entries[key] for key in keys if entries[key] is not REMOVED}

    @property
    def changes(self) -> tuple[bool, list[tuple[Any, Any]]]:
        return False, [(key, history[-1][1]) for key, history in self._history.items()]


SharedHandle = SharedValue[Any] | SharedReducing[Any] | SharedList[Any] | SharedMap[Any, Any]
