"""What a process function keeps for each key, as its code sees it.

A handle stands for the state of the key that is being processed. The operator moves it from key to key: it fills a handle before
the first row of a key, and collects what has changed after the last one.
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

# An entry of a map that was taken out.
REMOVED: Any = object()


class ValueState(Generic[T]):
    """One value for each key, None where there is none. A value that was changed in place counts once it is assigned again."""

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
        """Forget the value."""
        self.current = None
        self.is_written = True

    # A state in the place of its value would be true, and equal to nothing, whatever it holds.
    def __bool__(self) -> bool:
        raise TypeError(f"'{type(self).__name__}' object has no truth of its own")

    def __eq__(self, other: object) -> bool:
        raise TypeError(f"'{type(self).__name__}' object cannot be compared")

    __hash__ = object.__hash__


class DefaultingState(ValueState[T]):
    """One value for each key, the default where there is none: `state(default=0)`."""

    __slots__ = ("default",)

    def __init__(self, default: T) -> None:
        super().__init__()
        self.default = default

    @property
    def value(self) -> T:
        """The value of the current key; a default that can be changed is a copy."""
        self.is_read = True
        return copied(self.default) if self.current is None else self.current

    @value.setter
    def value(self, value: T | None) -> None:
        self.current = value
        self.is_written = True


def copied(default: T) -> T:
    """Return a default, or a copy of one that can be changed in place."""
    return default if isinstance(default, (int, float, str, bytes)) else copy.deepcopy(default)


class ReducingState(ValueState[T]):
    """One value for each key, into which a function combines every further one: `state(reduce=max)`."""

    __slots__ = ("reduce",)

    def __init__(self, reduce: Callable[[T, T], T]) -> None:
        super().__init__()
        self.reduce = reduce

    def add(self, value: T) -> None:
        """Combine the value of the current key with another one."""
        before = self.value
        self.value = value if before is None else self.reduce(before, value)


class AggregatingState(ValueState[OUT], Generic[IN, OUT]):
    """What an aggregate function makes of the values of each key: `state(aggregate="avg")`, or a class under `@udaf`."""

    __slots__ = ("aggregate",)

    def __init__(self, aggregate: Aggregator) -> None:
        super().__init__()
        self.aggregate = aggregate

    def add(self, value: IN) -> None:
        """Take in a value for the current key; those of several arguments are a tuple."""
        self.current = self.aggregate.add(self.current, value)
        self.is_written = True

    @property
    def value(self) -> OUT:
        """What the values of the current key amount to; without one, what the aggregate is over no rows."""
        self.is_read = True
        [self.current] = self.aggregate.settled([self.current])
        found: OUT = self.aggregate.result(self.current)
        return found

    @value.setter
    def value(self, value: Any) -> None:
        raise AttributeError("an AggregatingState has no value of its own: use add(..) and clear()")


class ListState(Generic[T]):
    """A list for each key. To append costs the same however long the list is; it is loaded when it is read."""

    __slots__ = ("added", "is_cleared", "is_read", "load", "stored")

    def __init__(self) -> None:
        # What is stored, once it is loaded, and what was appended since.
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
        """Forget the list."""
        self.is_cleared, self.stored, self.added = True, [], []

    def get(self) -> list[T]:
        """Return the items, in a list of their own."""
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
    """A map for each key. To read, put or remove an entry costs the same however large the map is.

    A small map is loaded when an entry is read, a large one when all of it is.
    """

    __slots__ = ("changed", "find", "is_cleared", "is_read", "load", "read_keys", "stored")

    def __init__(self) -> None:
        # What is stored, once it is loaded; and the entries that were put or removed since.
        self.stored: dict[K, V] | None = None
        self.changed: dict[K, V] = {}
        self.is_cleared = self.is_read = False
        self.load: Callable[[], dict[K, V]] = dict
        # What finds an entry of a large map: among others, if it is there; None where the map is to be loaded.
        self.find: Callable[[K], dict[K, V] | None] = not_found
        # The keys of entries that were read alone, where somebody wants to know.
        self.read_keys: dict[K, None] | None = None

    def _known(self) -> dict[K, V]:
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
        """Forget all entries."""
        self.is_cleared, self.stored, self.changed = True, {}, {}

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of an entry, the default where there is none."""
        if key in self.changed:
            found = self.changed[key]
            return default if found is REMOVED else found
        if self.read_keys is not None:
            self.read_keys[key] = None
        if self.stored is None:
            entries = self.find(key)
            if entries is not None:
                return entries.get(key, default)
            self.stored = self.load()
        return self.stored.get(key, default)

    def items(self) -> list[tuple[K, V]]:
        """Return the entries: those that were stored first."""
        return list(self.get_all().items())

    def get_all(self) -> dict[K, V]:
        """Return the entries, in a dict of their own."""
        merged = {**self._known(), **self.changed}
        return {key: value for key, value in merged.items() if value is not REMOVED}

    def keys(self) -> list[K]:
        return list(self.get_all())

    def values(self) -> list[V]:
        return list(self.get_all().values())

    def __getitem__(self, key: K) -> V:
        found: V = self.get(key, REMOVED)
        if found is REMOVED:
            raise KeyError(key)
        return found

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
    """Find no entry alone: the map is to be loaded."""


Handle = ValueState[Any] | ListState[Any] | MapState[Any, Any]
Kind = Literal["value", "list", "map"]
# What is stored of each class of handles.
KINDS: dict[type[Handle], Kind] = {
    ValueState: "value",
    ReducingState: "value",
    AggregatingState: "value",
    ListState: "list",
    MapState: "map",
}
