"""Columns of instances: they become Arrow, and objects again, field by field."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sqlstream import Context, ListState, MapState, Row, process, state
from sqlstream.functions import types
from sqlstream.functions.codecs import column, decoded
from sqlstream.operators.process import collections
from sqlstream.testing import ProcessHarness


class Kind(enum.Enum):
    CAR = "car"
    BIKE = "bike"


class Place(NamedTuple):
    x: int
    name: str | None


@dataclasses.dataclass
class Ride:
    at: dt.datetime
    kind: Kind
    place: Place | None
    tags: list[str]


@dataclasses.dataclass(kw_only=True)
class ByName:
    a: int
    b: str


@dataclasses.dataclass
class Counted:
    a: int
    b: str
    size: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.b)


class Further(Place):
    """An instance of it is one of Place."""


_NOON = dt.datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        (Place, [Place(1, "a"), Place(2, None)]),
        (Place, [None, Place(1, "a"), None]),
        (Place, [None]),
        (Place, []),
        (Ride, [Ride(_NOON, Kind.CAR, Place(1, None), ["a", "b"]), None, Ride(_NOON, Kind.BIKE, None, [])]),
        (ByName, [ByName(a=1, b="x"), None]),
        (Counted, [Counted(1, "abc"), None]),
        (list[Place], [[Place(1, "a")], [], None]),
    ],
)
def test_instances_come_back_as_they_were(hint: Any, values: list[Any]) -> None:
    codec = types.codec(types.sql_type(hint), hint)
    array = column(codec, values)
    assert array.type == codec.arrow
    found = decoded(codec, pa.chunked_array([array]))
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]
    # A slice of a column, and a column of several chunks.
    assert decoded(codec, pa.chunked_array([array.slice(1), array])) == [*values[1:], *values]


def test_fields_come_in_the_order_of_the_class() -> None:
    codec = types.codec("STRUCT(name VARCHAR, x BIGINT)", Place)
    array = column(codec, [Place(1, "a")])
    assert array.to_pylist() == [{"name": "a", "x": 1}]
    assert decoded(codec, pa.chunked_array([array])) == [Place(1, "a")]


def test_an_instance_of_a_subclass_is_one_of_the_class() -> None:
    codec = types.codec(types.sql_type(Place), Place)
    array = column(codec, [Further(1, "a"), Place(2, "b")])
    assert decoded(codec, pa.chunked_array([array])) == [Place(1, "a"), Place(2, "b")]


@pytest.mark.parametrize("value", [(1, "a"), Place("1", "a"), {"x": 1, "name": "a"}])  # type: ignore[arg-type]
def test_what_is_no_instance_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError, pa.ArrowException)):
        column(types.codec(types.sql_type(Place), Place), [Place(1, "a"), value])


@process
class Seen:
    """Emits what was kept of a key before its rows of the batch."""

    words: MapState[str, int] = state(ttl="1 h")
    numbers: ListState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[str]:
        yield f"{ctx.key}: {dict(self.words.items())} {self.numbers.get()}"
        if row.word is None:
            self.words.clear()
            self.numbers.clear()
        else:
            self.words[row.word] = self.words.get(row.word, 0) + 1
            self.numbers.append(row.number)


def _rows(numbers: Iterable[int], word: str | None) -> list[dict[str, Any]]:
    return [{"k": n, "word": word, "number": n} for n in numbers]


@pytest.mark.slow
@pytest.mark.parametrize("stretch", [1, 3, 50_000])
def test_keys_find_their_items_whatever_is_read_together(monkeypatch: pytest.MonkeyPatch, stretch: int) -> None:
    monkeypatch.setattr(collections, "STRETCH", stretch)
    with ProcessHarness(Seen, keys="k", columns="k BIGINT, word VARCHAR, number BIGINT") as harness:
        harness.rows(_rows(range(0, 20, 2), "a"))
        harness.rows(_rows(range(10), "b"))
        harness.rows(_rows(range(4), None))
        assert sorted(harness.rows(_rows(range(12), "a"))) == sorted(
            f"{n}: {words} {items}"
            for n, words, items in [
                *((n, {}, []) for n in range(4)),
                *((n, {"a": 1, "b": 1}, [n, n]) for n in (4, 6, 8)),
                *((n, {"b": 1}, [n]) for n in (5, 7, 9)),
                (10, {"a": 1}, [10]),
                (11, {}, []),
            ]
        )
        # Entries that have expired are seen no more, and are replaced by those that are put.
        harness.advance("2 h")
        [found] = harness.rows(_rows([4], "a"))
        assert found == "4: {} [4, 4, 4]"
        assert harness.state("words") == {4: {"a": 1}}
