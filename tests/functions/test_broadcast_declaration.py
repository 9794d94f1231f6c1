"""Classes with broadcast tables: what is said of those that are wrong, and how their states look at a moment."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from sqlstream.errors import SqlStreamError
from sqlstream.functions import load
from sqlstream.functions.process.broadcast_states import (
    BroadcastStateHandle,
    SharedList,
    SharedMap,
    SharedReducing,
    SharedValue,
)

HEAD = """\
from collections.abc import Iterator
import pyarrow as pa
from sqlstream import ListState, MapState, ReducingState, SideOutput, ValueState, process, side_output, state, table

"""
WRONG = {
    """
    @process
    class F:
        x: ValueState[int] = state(broadcast=True)
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'broadcast state "x" of process function "f": no table is broadcast',
    """
    @process
    class F:
        x: ValueState[int] = state(broadcast=True)
        @table(broadcast=True)
        def b(self, ctx, row) -> None: ...
        def on_timer(self, ctx) -> Iterator[int]: ...
    """: 'all tables of process function "f" are broadcast',
    """
    @process(changelog_mode="upsert")
    class F:
        x: ValueState[int] = state(broadcast=True)
        @table
        def a(self, ctx, row) -> Iterator[int]: ...
        @table(broadcast=True)
        def b(self, ctx, row) -> Iterator[int]: ...
    """: 'method "b" of process function "f" emits rows, but those of a broadcast table have no key, and the class emits changes',
    """
    @process
    class F:
        x: ValueState[int] = state(broadcast=True)
        @table
        def a(self, ctx, row) -> Iterator[int]: ...
        @table(broadcast=True)
        def b(self, ctx, row) -> None:
            yield 1
    """: 'method "b" of process function "f" yields rows, but its hint is None',
    """
    @process(vectorized=True, emits=int)
    class F:
        x: ValueState[int] = state(broadcast=True)
        @table
        def a(self, ctx, rows): ...
        @table(broadcast=True)
        def b(self, ctx, rows):
            yield rows
    """: 'method "b" of process function "f" emits rows of a broadcast table, but the class is vectorized',
    """
    @process
    class F:
        x: ValueState[int] = state(broadcast=True, refresh="read")
        @table
        def a(self, ctx, row) -> Iterator[int]: ...
        @table(broadcast=True)
        def b(self, ctx, row) -> None: ...
    """: 'broadcast state "x" of process function "f" has refresh="read"',
    """
    @process
    class F:
        x: ValueState[int] = state(broadcast=True, visibility="until_cleaned")
        @table
        def a(self, ctx, row) -> Iterator[int]: ...
        @table(broadcast=True)
        def b(self, ctx, row) -> None: ...
    """: 'broadcast state "x" of process function "f" has visibility="until_cleaned"',
    """
    @process(vectorized="bucket", emits=int)
    class F:
        x: ValueState[int] = state(broadcast=True)
        @table
        def a(self, ctx, rows): ...
        @table
        def b(self, ctx, rows): ...
        @table(broadcast=True)
        def c(self, ctx, rows): ...
    """: 'process function "f" takes several tables, but is vectorized by bucket',
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_a_class_is_said_with_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "wrong.py").write_text(HEAD + dedent(text).lstrip())
    with pytest.raises(SqlStreamError) as raised:
        load(str(tmp_path / "udfs"))
    assert WRONG[text] in str(raised.value)
    assert "udfs/wrong.py:" in str(raised.value)


def written(handle: Any, places: list[Any], items: list[Any], *rows: Any) -> Any:
    """Return a handle after rows that write, each of them a function of it."""
    handle.begin("x", lambda: (list(places), list(items)))
    handle.writes = True
    for handle.row, row in enumerate(rows, 1):
        row(handle)
    handle.writes = False
    return handle


def seen(handle: BroadcastStateHandle, read: Any) -> list[Any]:
    """Return what is read after no row, after each of three, and at the end."""
    found = []
    for handle.version in (0, 1, 2, 3, None):
        found.append(read(handle))
    return found


def test_a_value_is_seen_as_it_was() -> None:
    def rise(one: Any) -> None:
        one.value = (one.value or 0) + 1

    one = written(SharedValue(), [0], [5], rise, lambda one: one.clear(), rise)
    assert seen(one, lambda one: one.value) == [5, 6, None, 1, 1]
    assert one.changes == (False, [(0, 1)])
    most = written(SharedReducing(max), [], [], lambda one: one.add(2), lambda one: one.add(1), lambda one: one.add(3))
    assert seen(most, lambda one: one.value) == [None, 2, 2, 3, 3]
    assert written(SharedValue(), [0], [5]).changes == (False, [])


def test_a_list_is_seen_as_it_was() -> None:
    one = written(SharedList(), [3, 4], ["a", "b"], lambda one: one.append("c"), lambda one: one.extend(["d", "e"]))
    assert seen(one, list) == [["a", "b"], ["a", "b", "c"], [*"abcde"], [*"abcde"], [*"abcde"]]
    assert one.changes == (False, [(5, "c"), (6, "d"), (7, "e")])
    one = written(
        SharedList(), [3], ["a"], lambda one: one.append("b"), lambda one: one.set("x"), lambda one: one.append("y")
    )
    assert seen(one, list) == [["a"], ["a", "b"], ["x"], ["x", "y"], ["x", "y"]]
    assert one.changes == (True, [(0, "x"), (1, "y")])


def test_a_map_is_seen_as_it_was() -> None:
    def first(one: Any) -> None:
        one["b"] = 1
        del one["c"]

    one = written(
        SharedMap(), ["c", "d"], [7, 8], first, lambda one: one.clear(), lambda one: one.update({"c": 9, "a": 0})
    )
    entries = [{"c": 7, "d": 8}, {"b": 1, "d": 8}, {}, {"a": 0, "c": 9}, {"a": 0, "c": 9}]
    assert seen(one, lambda one: list(one.items())) == [list(e.items()) for e in entries]
    assert seen(one, lambda one: {k: one[k] for k in "abcd" if k in one}) == entries
    assert seen(one, len) == [2, 2, 0, 2, 2]
    left, puts = one.changes
    assert not left
    assert {key for key, _ in puts} == set("abcd")


def test_keys_that_have_no_order_have_one_all_the_same() -> None:
    one = written(SharedMap(), [None, (1,)], [1, 2], lambda one: one.put("x", 3))
    assert one.keys() == ["x", (1,), None]
