"""Maps and lists with many items: a batch reads what it touches, and sees what it would see of small ones."""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sqlstream import Context, ListState, MapState, Row, process, state, table
from sqlstream.operators.process import large_keys
from sqlstream.storage import key_index, point_reads, segments
from sqlstream.storage.key_index import KeyIndex
from sqlstream.storage.segments import Segment
from sqlstream.testing import ProcessHarness

MANY = 200_000


class Reads:
    """How many rows are read: of the segments that are, and of those that indexes give."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.rows = 0
        read, find = segments.read_parquet, KeyIndex.find

        def read_parquet(fs: Any, directory: str, read_segments: Iterable[Segment], options: str = "") -> str:
            found = list(read_segments)
            self.rows += sum(s.rows for s in found)
            return read(fs, directory, found, options)

        def counted(index: KeyIndex, hashes: Any) -> pa.Table:
            rows = find(index, hashes)
            self.rows += rows.num_rows
            return rows

        for module in (segments, key_index):
            monkeypatch.setattr(module, "read_parquet", read_parquet)
        monkeypatch.setattr(KeyIndex, "find", counted)


@process
class Large:
    """Does what each row says to a map, and to a list."""

    entries: MapState[int, int] = state()
    items: ListState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        match row.op:
            case "fill":
                self.entries.update({i: i for i in range(row.x)})
                self.items.extend(range(row.x))
            case "get":
                yield self.entries.get(row.x, -1)
            case "put":
                self.entries[row.x] = -7
            case "add":
                self.entries[row.x] = self.entries.get(row.x, 0) + 1
            case "remove":
                del self.entries[row.x]
            case "append":
                self.items.append(row.x)
            case "length":
                yield len(self.entries)
            case "last":
                yield self.items.get()[-1]
            case "clear":
                self.entries.clear()


def steps(*ops: tuple[str, int], key: int = 1) -> list[dict[str, Any]]:
    return [{"k": key, "op": op, "x": x} for op, x in ops]


@pytest.mark.slow
def test_a_batch_that_touches_an_entry_does_not_read_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(monkeypatch)

    def read(*ops: tuple[str, int], key: int = 1) -> tuple[list[Any], int]:
        reads.rows = 0
        return harness.rows(steps(*ops, key=key)), reads.rows

    with ProcessHarness(Large, keys="k") as harness:
        harness.rows(steps(("fill", MANY)))
        # To append reads the row of the key, which has the length, even before there is an index.
        assert read(("append", 5))[1] == 1
        # The first batch of a process makes the index.
        emitted, rows = read(("get", 77))
        assert (emitted, rows >= MANY) == ([77], True)
        for ops, expected in [
            ([("get", 78), ("get", MANY)], [78, -1]),
            ([("put", 3)], []),
            ([("put", MANY + 5), ("remove", 9)], []),
            ([("get", 3), ("get", 9), ("get", MANY + 5), ("add", 3), ("get", 3)], [-7, -1, -7, -6]),
            ([("add", 11), ("add", 11), ("append", 8)], []),
            ([("get", 11), ("get", 3)], [13, -6]),
        ]:
            emitted, rows = read(*ops)
            assert emitted == expected
            assert rows < 100
        # Nor does a batch that reads the map and the list of another key.
        read(("fill", 3), key=2)
        emitted, rows = read(("append", 6), ("length", 0), key=2)
        assert emitted == [3]
        assert read(("length", 0))[0] == [MANY]
        harness.restart()
        assert read(("get", 3), ("get", 9), ("get", 11))[0] == [-6, -1, 13]
        assert read(("last", 0))[0] == [8]
        harness.rows(steps(("clear", 0), ("add", 5)))
        assert read(("get", 3), ("get", 5), ("length", 0))[0] == [-1, 1, 1]


@pytest.fixture(params=[True, False])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let maps of two entries be large, or not."""
    if request.param:
        monkeypatch.setattr(large_keys, "LARGE", 1)
        monkeypatch.setattr(large_keys, "ENTRIES", 0)


@process
class Kept:
    """Reads single entries of maps that expire."""

    written: MapState[str, int] = state(ttl="1 min")
    read: MapState[str, int] = state(ttl="1 min", refresh="read")
    visible: MapState[str, int] = state(ttl="1 min", visibility="until_cleaned")

    def process(self, ctx: Context, row: Row) -> Iterator[str]:
        states = (self.written, self.read, self.visible)
        for one in states:
            if row.x is not None:
                one[row.name] = row.x
        if row.x is None:
            yield " ".join(str(one.get(row.name)) for one in states)


@pytest.mark.usefixtures("either")
def test_entries_expire_one_by_one() -> None:
    with ProcessHarness(Kept, keys="k", columns="k BIGINT, name STRING, x BIGINT") as harness:
        rows = [{"k": 1, "name": name, "x": x} for x, name in enumerate("abc")]
        harness.rows(rows)
        harness.advance("40 s")
        # Reading keeps the entry that is read, and no other.
        assert harness.rows([{"k": 1, "name": "a", "x": None}]) == ["0 0 0"]
        harness.rows([{"k": 1, "name": "b", "x": 5}])
        harness.advance("30 s")
        harness.restart()
        assert harness.rows([{"k": 1, "name": name, "x": None} for name in "abcd"]) == [
            "None 0 0",
            "5 5 5",
            "None None 2",
            "None None None",
        ]


@pytest.mark.usefixtures("either")
def test_what_has_expired_is_seen_where_that_is_wanted_until_it_is_cleaned_up() -> None:
    with ProcessHarness(Kept, keys="k", columns="k BIGINT, name STRING, x BIGINT") as harness:
        harness.rows([{"k": 1, "name": name, "x": x} for x, name in enumerate("abc")])
        harness.advance("50 s")
        harness.rows([{"k": 2, "name": "a", "x": 1}])
        harness.advance("11 s")
        assert harness.rows([{"k": 1, "name": "b", "x": None}]) == ["None None 1"]


class Place(NamedTuple):
    country: str | None
    number: int


# What DECIMAL rounds to 1.
ALMOST = Decimal("1." + 30 * "0" + "1")
# Keys of maps: every other of the first five is put, all are asked for, also what is equal to one in Python alone.
PLACES: dict[str, tuple[Any, list[Any]]] = {
    "int": (int | None, [1, 2**62, None, 7, -1, True, 1.0, "a", 2**70]),
    "str": (str | None, ["", "ä", "a" * 300, "a" * 299 + "b", None, "aa", 1]),
    "float": (float, [0.0, -0.0, float("nan"), 1.5, float("inf"), 1, 1.5]),
    "decimal": (Decimal, [Decimal(1), Decimal(7), Decimal("3.50"), Decimal(8), Decimal("3.5"), ALMOST, 1]),
    "datetime": (dt.datetime, [dt.datetime(2026, 1, 1, 10), dt.datetime(1960, 1, 1), dt.datetime.max]),
    "timedelta": (dt.timedelta, [dt.timedelta(1), dt.timedelta(seconds=1), dt.timedelta(2)]),
    "tuple": (Place, [Place("a", 1), Place(None, 1), Place("a", 2), ("a", 1)]),
}


def answers(type: str) -> list[Any]:
    """Put some entries into a map, one a second time, and return what there is at all places."""
    hint, places = PLACES[type]

    def process_row(self: Any, ctx: Context, row: Row) -> Iterator[str]:
        if row.op == "put":
            self.entries.update({place: [f"{row.n} {place}", None] for place in places[row.n : 5 : 2]})
        else:
            yield str([self.entries.get(place) for place in places])

    entries: Any = MapState
    own: dict[str, Any] = {"__annotations__": {"entries": entries[hint, list[str | None]]}, "process": process_row}
    lookup = process(name="lookup")(builtins.type("Lookup", (), {**own, "entries": state(), "__module__": __name__}))
    with ProcessHarness(lookup, keys="k", columns="k BIGINT, op STRING, n BIGINT") as harness:
        for n in (0, 2):
            harness.rows([{"k": k, "op": "put", "n": n} for k in range(3)])
        return list(harness.rows([{"k": k, "op": "get", "n": 0} for k in range(4)]))


@pytest.mark.parametrize(
    ("type", "has_memory"),
    [("int", True), ("int", False), ("tuple", True)]
    + [pytest.param(t, True, marks=pytest.mark.slow) for t in PLACES if t not in ("int", "tuple")],
)
def test_an_entry_that_is_read_alone_is_that_of_the_map(
    type: str, has_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(type)
    assert "2 " in expected[0]
    monkeypatch.setattr(large_keys, "LARGE", 1)
    monkeypatch.setattr(large_keys, "ENTRIES", 0)
    monkeypatch.setattr(large_keys, "BY_SQL", 0)
    monkeypatch.setattr(point_reads, "SMALL_ROWS", 1)
    if not has_memory:
        monkeypatch.setattr(key_index, "_has_room", lambda size, memory: False)
    assert answers(type) == expected


@process
class Prices:
    """Reads single prices of a broadcast map."""

    prices: MapState[int, int] = state(broadcast=True)

    @table
    def rows(self, ctx: Context, row: Row) -> Iterator[int]:
        yield self.prices.get(row.x, -1)

    @table(broadcast=True)
    def given(self, ctx: Context, row: Row) -> None:
        if row.op == "fill":
            self.prices.update({i: i for i in range(row.x)})
        else:
            self.prices[row.x] = self.prices.get(row.x, 0) + 1


def test_broadcast_maps_are_not_loaded_for_single_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(monkeypatch)
    columns = {"rows": "k BIGINT, x BIGINT", "given": "op STRING, x BIGINT"}
    with ProcessHarness(Prices, keys="k", columns=columns) as harness:
        harness.rows(given=[{"op": "fill", "x": 20_000}])
        assert harness.rows(rows=[{"k": 1, "x": 5}]) == [5]
        reads.rows = 0
        assert harness.rows(given=[{"op": "add", "x": 5}], rows=[{"k": 1, "x": x} for x in (5, 7, 5, -2)]) == [
            6,
            7,
            6,
            -1,
        ]
        assert reads.rows < 100
        harness.restart()
        assert harness.rows(rows=[{"k": 1, "x": x} for x in (5, 7)]) == [6, 7]
