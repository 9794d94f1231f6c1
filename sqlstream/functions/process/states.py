"""The states of a process function, as its code sees them.

A handle is the state of the current key. The operator moves it from key to key: it fills a handle before the first row of a key,
and collects the changes after the last one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from sqlstream.functions.process.aggregating import Aggregator

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")

# The value of an entry of a map that was removed.
REMOVED: Any = object()


class ValueState(Generic[T]):
    """One value per key, None if there is none. A value that was changed in place must be assigned again."""

    __slots__ = ("current", "is_read", "is_written")

    def __init__(self) -> None:
        self.current: T | None = None
        self.is_written = self.is_read = False

    @property
    def value(self) -> T | None:
        """The value of the current key."""
        self.is_read = True
        return self.current

    @value.setter
    def value(self, value: T | None) -> None:
        self.current = value
        self.is_written = True

    def clear(self) -> None:
        """Delete the value."""
        self.current = None
        self.is_written = True

    # A handle that is used instead of its value would be true, and equal to nothing.
    def __bool__(self) -> bool:
        raise TypeError(f"'{type(self).__name__}' object has no truth of its own")

    def __eq__(self, other: object) -> bool:
        raise TypeError(f"'{type(self).__name__}' object cannot be compared")

    __hash__ = object.__hash__


class DefaultingState(ValueState[T]):
    """One value per key, or the default if there is none: `state(default=0)`."""

    __slots__ = ("default",)

    def __init__(self, default: T) -> None:
        super().__init__()
        self.default = default

    @property
    def value(self) -> T:
        """The value of the current key, or the default; a mutable default is copied."""
        self.is_read = True
        return copied(self.default) if self.current is None else self.current

    @value.setter
    def value(self, value: T | None) -> None:
        self.current = value
        self.is_written = True


def copied(default: T) -> T:
    """Return a default; a copy if it is mutable."""
    return default if isinstance(default, (int, float, str, bytes)) else copy.deepcopy(default)


class ReducingState(ValueState[T]):
    """One value per key, which a function combines with each further one: `state(reduce=max)`."""

    __slots__ = ("reduce",)

    def __init__(self, reduce: Callable[[T, T], T]) -> None:
        super().__init__()
        self.reduce = reduce

    def add(self, value: T) -> None:
        """Combine the value of the current key with another one."""
        before = self.value
        self.value = value if before is None else self.reduce(before, value)


class AggregatingState(ValueState[OUT], Generic[IN, OUT]):
    """The result of an aggregate function over the values of a key: `state(aggregate="avg")`, or a class under `@udaf`."""

    __slots__ = ("aggregate",)

    def __init__(self, aggregate: Aggregator) -> None:
        super().__init__()
        self.aggregate = aggregate

    def add(self, value: IN) -> None:
        """Add a value for the current key; a tuple if the aggregate has several arguments."""
        self.current = self.aggregate.add(self.current, value)
        self.is_written = True

    @property
    def value(self) -> OUT:
        """The result over the values of the current key; without values, the aggregate's result over no rows."""
        self.is_read = True
        [self.current] = self.aggregate.settled([self.current])
        result: OUT = self.aggregate.result(self.current)
        return result

    @value.setter
    def value(self, value: Any) -> None:
        raise AttributeError("an AggregatingState has no value of its own: use add(..) and clear()")


class ListState(Generic[T]):
    """A list per key. Appending costs the same at any length; the list is loaded when it is read."""

    __slots__ = ("added", "is_cleared", "is_read", "load", "stored")

    def __init__(self) -> None:
        # The stored items, once they are loaded, and the items that were appended since.
        self.stored: list[T] | None = None
        self.added: list[T] = []
        self.is_cleared = self.is_read = False
        self.load: Callable[[], list[T]] = list

    def append(self, item: T) -> None:
        """Add an item at the end."""
        self.added.append(item)

    def extend(self, items: Iterable[T]) -> None:
        """Add items at the end."""
        self.added.extend(items)

    def set(self, items: Iterable[T]) -> None:
        """Replace the list."""
        found = list(items)
        self.clear()
        self.added = found

    def clear(self) -> None:
        """Delete all items."""
        self.is_cleared, self.stored, self.added = True, [], []

    def get(self) -> list[T]:
        """Return the items in a new list."""
        self.is_read = True
        if self.stored is None:
            self.stored = self.load()
        return [*self.stored, *self.added]

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self.get())

    def __bool__(self) -> bool:
        return bool(self.added) or bool(self.get())


class MapState(Generic[K, V]):
    """A map per key. Reading, putting or removing an entry costs the same at any size.

    A small map is loaded when an entry is read, a large one when all of it is read.
    """

    __slots__ = ("changed", "find", "is_cleared", "is_read", "load", "read_keys", "stored")

    def __init__(self) -> None:
        # The stored entries, once they are loaded; and the entries that were put or removed since.
        self.stored: dict[K, V] | None = None
        self.changed: dict[K, V] = {}
        self.is_cleared = self.is_read = False
        self.load: Callable[[], dict[K, V]] = dict
        # Returns entries of a large map, among them the one of the key if it exists; None if the map must be loaded.
        self.find: Callable[[K], dict[K, V] | None] = not_found
        # The keys of entries that were read alone; None if nobody records them.
        self.read_keys: dict[K, None] | None = None

    def _stored_entries(self) -> dict[K, V]:
        self.is_read = True
        if self.stored is None:
            self.stored = self.load()
        return self.stored

    def put(self, key: K, value: V) -> None:
        """Set the value of an entry."""
        self.changed[key] = value

    def update(self, entries: Mapping[K, V]) -> None:
        """Set the values of some entries."""
        self.changed.update(entries)

    def remove(self, key: K) -> None:
        """Remove an entry, if it is there."""
        self.changed[key] = REMOVED

    def clear(self) -> None:
        """Delete all entries."""
        self.is_cleared, self.stored, self.changed = True, {}, {}

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of an entry, or the default if there is none."""
        if key in self.changed:
            value = self.changed[key]
            return default if value is REMOVED else value
        if self.read_keys is not None:
            self.read_keys[key] = None
        if self.stored is None:
            entries = self.find(key)
            if entries is not None:
                return entries.get(key, default)
            self.stored = self.load()
        return self.stored.get(key, default)

    def items(self) -> list[tuple[K, V]]:
        """Return (key, value) of each entry; the stored ones come first."""
        return list(self.get_all().items())

    def get_all(self) -> dict[K, V]:
        """Return the entries in a new dict; the stored ones come first."""
        merged = {**self._stored_entries(), **self.changed}
        return {key: value for key, value in merged.items() if value is not REMOVED}

    def keys(self) -> list[K]:
        """Return the keys; the stored ones come first."""
        return list(self.get_all())

    def values(self) -> list[V]:
        """Return the values; the stored ones come first."""
        return list(self.get_all().values())

    def __getitem__(self, key: K) -> V:
        value: V = self.get(key, REMOVED)
        if value is REMOVED:
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.get(key, REMOVED) is not REMOVED

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.get_all())

    def __bool__(self) -> bool:
        return any(value is not REMOVED for value in self.changed.values()) or len(self) > 0


def not_found(key: object) -> None:
    """The `find` of maps of which a single entry cannot be read: return None, so that `get` loads the whole map."""


Handle = ValueState[Any] | ListState[Any] | MapState[Any, Any]
Kind = Literal["value", "list", "map"]
# How each class of handles is stored.
KINDS: dict[type[Handle], Kind] = {
    ValueState: "value",
    ReducingState: "value",
    AggregatingState: "value",
    ListState: "list",
    MapState: "map",
}
