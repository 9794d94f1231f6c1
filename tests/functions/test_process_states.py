"""The handles of states: what is loaded when, and what they answer."""

from __future__ import annotations

from typing import Any

import pytest

from sqlstream import ListState, MapState, ReducingState, ValueState


def loads() -> Any:
    raise AssertionError("it was loaded")


def test_to_append_and_to_put_loads_nothing() -> None:
    items: ListState[int] = ListState()
    items.load = loads
    items.append(1)
    items.extend([2, 3])
    assert bool(items)
    entries: MapState[str, int] = MapState()
    entries.load = loads
    entries["a"] = 1
    entries.update({"b": 2})
    del entries["c"]
    assert (entries["a"], entries.get("b"), "c" in entries, entries.get("c", 5)) == (1, 2, False, 5)
    with pytest.raises(AssertionError, match="it was loaded"):
        entries.get("d")


def test_an_entry_of_a_large_map_is_found_without_loading_it() -> None:
    entries: MapState[str, int] = MapState()
    entries.load = loads
    stored = {"a": 1, "b": 2}
    entries.find = lambda key: {key: stored[key]} if key in stored else {}
    assert (entries["a"], entries.get("c", 5), "b" in entries, "c" in entries) == (1, 5, True, False)
    entries["c"] = 3
    del entries["a"]
    assert (entries.get("a"), entries["c"], bool(entries), entries.is_read) == (None, 3, True, False)
    with pytest.raises(AssertionError, match="it was loaded"):
        len(entries)
    entries.clear()
    assert (entries.get("b"), len(entries), bool(entries)) == (None, 0, False)


def test_a_reducing_state_combines_values() -> None:
    largest: ReducingState[int] = ReducingState(max)
    largest.add(3)
    largest.add(2)
    assert (largest.value, largest.is_written) == (3, True)


def test_to_clear_loads_nothing() -> None:
    items: ListState[int] = ListState()
    items.load = loads
    items.clear()
    items.append(4)
    assert items.get() == [4]
    items.set([5, 6])
    assert (list(items), len(items)) == ([5, 6], 2)
    entries: MapState[str, int] = MapState()
    entries.load = loads
    entries.clear()
    entries["a"] = 1
    assert entries.items() == [("a", 1)]


def test_what_is_stored_and_what_was_changed_since_are_one() -> None:
    items: ListState[int] = ListState()
    items.load = lambda: [1, 2]
    items.append(3)
    found = items.get()
    assert found == [1, 2, 3]
    found.append(9)
    assert items.get() == [1, 2, 3]
    entries: MapState[str, int] = MapState()
    entries.load = lambda: {"a": 1, "b": 2, "c": 3}
    entries["b"] = 7
    entries["d"] = 4
    del entries["a"]
    assert entries.get_all() == {"b": 7, "c": 3, "d": 4}
    assert (entries.keys(), entries.values(), len(entries), bool(entries)) == (["b", "c", "d"], [7, 3, 4], 3, True)
    with pytest.raises(KeyError):
        entries["a"]


def test_a_value_counts_as_written_once_it_is_assigned() -> None:
    value: ValueState[list[int]] = ValueState()
    assert (value.value, value.is_read, value.is_written) == (None, True, False)
    value.value = [1]
    assert value.is_written
    value.clear()
    assert value.value is None
