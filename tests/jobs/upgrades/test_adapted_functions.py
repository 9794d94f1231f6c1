"""States of process functions made of those that another class had: by their names, and as `migrate` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sqlstream import Context, ListState, ValueState, process, state
from tests.jobs.upgrades.driver import Driven
from tests.jobs.upgrades.test_adaptations import A, row


class Amount(NamedTuple):
    k: str
    x: int


class Total(NamedTuple):
    total: float
    visits: int
    seen: str


@process
class Spent:
    """Adds up amounts."""

    cents: ValueState[int] = state()
    visits: ValueState[int] = state()
    seen: ListState[int] = state()
    other: ValueState[str] = state()

    def process(self, ctx: Context, a: Amount) -> Iterator[Total]:
        self.cents.value = (self.cents.value or 0) + a.x
        self.visits.value = (self.visits.value or 0) + 1
        self.seen.append(a.x)
        yield Total(self.cents.value, self.visits.value, str(list(self.seen)))


@process(name="spent")
class SpentLater:
    """Adds up amounts, in euros, under other names."""

    last: ValueState[int] = state()
    all: ListState[int] = state()
    visits: ValueState[int] = state(ttl="1 h")
    euros: ValueState[float] = state()

    @staticmethod
    def migrate(states: dict[str, str]) -> dict[str, str]:
        assert states == {"cents": "BIGINT", "visits": "BIGINT", "seen": "BIGINT", "other": "VARCHAR"}
        return {"euros": "cents / 100", "all": "seen"}

    def process(self, ctx: Context, a: Amount) -> Iterator[Total]:
        self.euros.value = (self.euros.value or 0) + a.x / 100
        self.visits.value = (self.visits.value or 0) + 1
        self.all.append(a.x)
        self.last.value = a.x
        yield Total(self.euros.value, self.visits.value, str(list(self.all)))


def test_states_of_a_process_function(tmp_path: Path) -> None:
    query = f"{A} SELECT * FROM Spent(TABLE a PARTITION BY k)"
    rows = [row("u", 100), row("v", 250), row("u", 5), row("q", 1)]
    old = Driven(query, tmp_path / "old", [Spent])
    old.step(a=rows)
    new, change = old.upgraded(query, tmp_path / "new", [SpentLater])
    left = new.step(a=[row("u", 20), row("v", 1)])
    assert new.picked(left, "k", "total", "visits", "seen") == [
        ("u", 1.25, 3, "[100, 5, 20]"),
        ("v", 2.51, 2, "[250, 1]"),
    ]
    assert change.notes == (
        'state "seen" is called "all" now',
        "time to live of visits: was for ever, is 1 h",
        'state "euros": by migrate, cents / 100',
        'state "last": empty',
        '"cents", "other": no longer kept',
    )
    # The time to live counts from when the key was last written, in the second 0.
    new.batch = 3599
    assert dict(new.shown("k, visits"))["q"] == 1
    new.batch = 3601
    assert dict(new.shown("k, visits"))["q"] is None


@process(name="spent")
class SpentTwice:
    """Keeps a state that it had, and begins two others with it."""

    doubled: ValueState[int] = state()
    visits: ValueState[int] = state()
    first: ValueState[int] = state()
    cents: ValueState[int] = state()

    @staticmethod
    def migrate(states: dict[str, str]) -> dict[str, str]:
        return {"first": "cents", "doubled": "cents * 2", "visits": "cents"}

    def process(self, ctx: Context, a: Amount) -> Iterator[Total]:
        yield Total(0, 0, f"{self.first.value} {self.doubled.value} {self.cents.value} {self.visits.value}")


def test_states_that_begin_with_one_that_stays(tmp_path: Path) -> None:
    query = f"{A} SELECT * FROM Spent(TABLE a PARTITION BY k)"
    old = Driven(query, tmp_path / "old", [Spent])
    old.step(a=[row("u", 100), row("u", 5)])
    new, _ = old.upgraded(query, tmp_path / "new", [SpentTwice])
    assert new.picked(new.step(a=[row("u", 1)]), "seen") == [("105 210 105 105",)]
