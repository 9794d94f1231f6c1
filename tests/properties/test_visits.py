"""Rows for all keys that emit, and visit all keys, give what the class gives in plain Python, with and without an order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream import Context, ListState, MapState, Row, ValueState, process, state, table
from sqlstream.catalog import ProcessFunction
from sqlstream.functions.kinds import declare_any
from sqlstream.testing import Stream
from tests.kinds import of_type
from tests.properties import ordered_model
from tests.properties.examples import examples
from tests.properties.interval_model import delays, histories
from tests.properties.model import Bag, bag, limits
from tests.properties.ordered_model import EVERYONE, Click, Note, by_x, check_history, stream_of, timed
from tests.properties.strategies import Row as StreamRow
from tests.properties.strategies import Step

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)


@process
class Visited:
    """Keeps a list and a map for each key, which rows for all keys see, change and clear."""

    items: ListState[int] = state()
    counts: MapState[str, int] = state()
    rules: ListState[str] = state(broadcast=True)

    @table
    def a(self, ctx: Context, row: Click) -> Iterator[Note]:
        if row.x is None:
            self.items.clear()
            self.counts.clear()
        elif row.x == 0:
            ctx.timers.at(ctx.event_time + 2 * SECOND)
        elif row.x == 1:
            self.items.append(row.x)
        elif row.x == 2:
            self.counts.remove(row.s or "-")
        else:
            self.counts[row.s or "-"] = self.counts.get(row.s or "-", 0) + 1
        yield self.note("a")

    @table(broadcast=True)
    def b(self, ctx: Context, row: Click) -> Iterator[Note]:
        yield Note(len(self.rules), f"b {row.x} {row.s}")
        self.rules.append(row.s or "-")
        match row.x:
            case 0:
                ctx.for_each_key(self.cleared, row.s)
            case 1 | 2:
                ctx.for_each_key(self.visited, row.s)
                ctx.for_each_key(self.visited, "again")
            case 3:
                ctx.for_each_key(self.timed, row.s)
                self.rules.set(["set"])

    def visited(self, ctx: Context, s: str | None) -> Iterator[Note]:
        yield self.note(f"visited {s}")
        if s == "again":
            self.items.append(7)

    def cleared(self, ctx: Context, s: str | None) -> Iterator[Note]:
        yield self.note(f"cleared {s}")
        ctx.clear()

    def timed(self, ctx: Context, s: str | None) -> None:
        for name, later in (("late", -3), ("soon", 1)):
            ctx.timers.at(ctx.event_time + later * SECOND, name)

    def on_timer(self, ctx: Context) -> Iterator[Note]:
        yield self.note(f"timer {ctx.timer.name} {ctx.timer.time}")

    def note(self, what: str) -> Note:
        return Note(len(self.items), f"{what}: {self.items.get()} {sorted(self.counts.items())} {self.rules.get()}")


# What runs in this process is the class as workers get it: its hints can be read before that.
VISITED = of_type(ProcessFunction, declare_any(Visited))


def simulated(key: Any, rows: Mapping[str, Sequence[StreamRow]], up_to: int | None) -> Iterator[tuple[object, ...]]:
    """Yield what the class gives for a key over its rows, and those for all keys, in the order of time, up to a watermark."""
    one = Visited()
    one.items, one.counts, one.rules = ListState(), MapState(), ListState()
    own = timed({"a": [row for row in rows["a"] if row[0] == key], "b": rows["b"]})
    ordered = sorted(own, key=lambda item: (item[0], item[1] != "b", *by_x(item[2])))
    states = [one.items, one.counts]
    yield from ordered_model.simulated(
        key, one, ordered, up_to, states=states, broadcast="b", shared=[one.rules], holds=lambda: any(map(bool, states))
    )


def answer(rows: Mapping[str, Sequence[StreamRow]], up_to: int | None) -> Bag:
    keys = [*{row[0] for row in rows["a"]}, EVERYONE]
    return bag(note for key in keys for note in simulated(key, rows, up_to))


@examples(40)
@given(histories(), delays, st.integers(1, 3), st.booleans())
def test_batches_and_restarts_make_no_difference_in_order(
    history: list[Step], delay: dict[str, int], parallelism: int, small: bool
) -> None:
    order = "ORDER BY ts, x DESC NULLS FIRST"
    call = f"visited(a => TABLE a PARTITION BY k {order}, b => TABLE b {order} BROADCAST, on_time => DESCRIPTOR(ts), uid => 'v')"
    check_history(stream_of(VISITED, call, delay, parallelism), history, delay, answer, small=small)


@process(name="summing")
class Summing:
    """Sums the values of each key; rows for all keys add to the sums, say them, and forget those that are small."""

    sum: ValueState[int] = state()
    added: ValueState[int] = state(broadcast=True, default=0)

    @table
    def rows(self, ctx: Context, row: Row) -> Iterator[tuple[str, int]]:
        self.sum.value = (self.sum.value or 0) + row.x
        yield "row", self.sum.value + (self.added.value or 0)

    @table(broadcast=True)
    def rules(self, ctx: Context, row: Row) -> Iterator[tuple[str, int]]:
        before = self.added.value or 0
        yield "rule", before
        self.added.value = before + row.x
        ctx.for_each_key(self.add, row.x)
        if row.x == 0:
            ctx.for_each_key(self.forget)

    def add(self, ctx: Context, x: int) -> Iterator[tuple[str, int]]:
        assert self.sum.value is not None
        self.sum.value += x
        yield "visit", self.sum.value * 100 + (self.added.value or 0)

    def forget(self, ctx: Context) -> None:
        if (self.sum.value or 0) < 3:
            self.sum.clear()


# Batches of values for all keys, and of keys with their values, each with whether the job starts anew before it.
Batch: TypeAlias = tuple[list[int], list[tuple[int | None, int]], bool]
keyed = st.tuples(st.one_of(st.none(), st.integers(0, 6)), st.integers(0, 3))
batches = st.tuples(st.lists(st.integers(0, 3), max_size=3), st.lists(keyed, max_size=5), st.booleans())

SCRIPT = """
CREATE TABLE t (k BIGINT, x BIGINT);
CREATE TABLE r (x BIGINT);
CREATE TABLE out (k BIGINT, what STRING, n BIGINT);
INSERT INTO out SELECT * FROM summing(TABLE t PARTITION BY k, rules => TABLE r BROADCAST, uid => 'summing');
"""


def summed(history: Sequence[Batch]) -> Iterator[tuple[object, ...]]:
    """Yield what the class emits, by the rules that the manual has."""
    sums: dict[int | None, int] = {}
    added = 0
    for some, rows, _ in history:
        for x in sorted(some):
            yield None, "rule", added
            added += x
            for key in sums:
                sums[key] += x
                yield key, "visit", sums[key] * 100 + added
            if x == 0:
                sums = {key: value for key, value in sums.items() if value >= 3}
        for key, x in sorted(rows, key=lambda row: row[1]):
            sums[key] = sums.get(key, 0) + x
            yield key, "row", sums[key] + added


@examples(40)
@given(st.lists(batches, min_size=1, max_size=6), st.integers(1, 3), st.booleans())
def test_visits_come_before_the_rows_of_a_batch(history: list[Batch], parallelism: int, small: bool) -> None:
    with limits(small=small), Stream(SCRIPT, functions=[Summing], parallelism=parallelism) as stream:
        for some, rows, anew in history:
            if anew:
                stream.restart()
            fed: dict[str, list[tuple[Any, ...]]] = {
                "t": sorted(rows, key=lambda row: row[1]),
                "r": [(x,) for x in sorted(some)],
            }
            stream.batches({name: own for name, own in fed.items() if own})
        assert bag(stream.rows("out")) == bag(summed(history))
        state = stream.query("SELECT count(*) FROM state.out.summing")
        assert state[0][0] <= len({key for _, rows, _ in history for key, _ in rows})
