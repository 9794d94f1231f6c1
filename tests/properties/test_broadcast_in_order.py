"""Broadcast tables with ORDER BY: any split into batches and any restart gives what the class gives over all rows in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream import Context, ListState, MapState, ReducingState, ValueState, process, state, table
from sqlstream.catalog import ProcessFunction
from sqlstream.functions.kinds import declare_any
from tests.kinds import of_type
from tests.properties import ordered_model
from tests.properties.examples import examples
from tests.properties.interval_model import delays, histories
from tests.properties.model import Bag, bag
from tests.properties.ordered_model import SECOND, Click, Note, by_x, check_history, stream_of, timed
from tests.properties.strategies import Row, Step

pytestmark = pytest.mark.slow


@process
class Ruled:
    """Says with every row and every timer what all keys know."""

    n: ValueState[int] = state()
    last: ValueState[str] = state(broadcast=True)
    highest: ReducingState[int] = state(broadcast=True, reduce=max)
    words: ListState[str] = state(broadcast=True)
    seen: MapState[str, int] = state(broadcast=True)

    @table
    def a(self, ctx: Context, row: Click) -> Iterator[Note]:
        ctx.timers.at(ctx.event_time + (row.x or 0) * SECOND)
        yield self.note(f"a {row.x} {row.s}")

    @table(broadcast=True)
    def b(self, ctx: Context, row: Click) -> None:
        assert ctx.watermark == ctx.event_time
        self.last.value = None if row.x == 1 else row.s
        self.words.append(row.s or "-")
        if row.x is None:
            self.seen.remove(row.s or "-")
        else:
            self.seen[row.s or "-"] = row.x
            self.highest.add(row.x)
        if row.x == 3:
            self.words.set(["3"])
            self.seen.clear()
            self.highest.clear()

    def on_timer(self, ctx: Context) -> Iterator[Note]:
        yield self.note(f"timer {ctx.timer.time}")

    def note(self, what: str) -> Note:
        self.n.value = (self.n.value or 0) + 1
        one = self.seen.get("a", -9)
        shared = (
            f"{self.last.value} {self.highest.value} {self.words.get()} {self.seen.items()} {one} {'b' in self.seen}"
        )
        return Note(self.n.value, f"{what}: {shared}")


# What runs in this process is the class as workers get it: its hints can be read before that.
RULED = of_type(ProcessFunction, declare_any(Ruled))


class Plain(dict[str, int]):
    """A map of a class in plain Python."""

    def items(self) -> Any:
        return sorted(super().items())

    def remove(self, key: str) -> None:
        self.pop(key, None)


def simulated(key: int | None, rows: Mapping[str, Sequence[Row]], up_to: int | None) -> Iterator[tuple[object, ...]]:
    """Yield what the class gives for a key over its rows, and those for all keys, in the order of time, up to a watermark."""
    one = Ruled()
    one.n, one.last, one.highest, one.words = ValueState(), ValueState(), ReducingState(max), ListState()
    one.seen = Plain()  # type: ignore[assignment]
    own = timed({"a": [row for row in rows["a"] if row[0] == key], "b": rows["b"]})
    # Of one time, those for all keys come first.
    ordered = sorted(own, key=lambda item: (item[0], item[1] != "b", *by_x(item[2])))
    return ordered_model.simulated(key, one, ordered, up_to, broadcast="b")


def answer(rows: Mapping[str, Sequence[Row]], up_to: int | None) -> Bag:
    keys = {row[0] for row in rows["a"]}
    return bag(note for key in keys for note in simulated(key, rows, up_to))


@examples(40)
@given(histories(), delays, st.integers(1, 3), st.booleans())
def test_batches_and_restarts_make_no_difference(
    history: list[Step], delay: dict[str, int], parallelism: int, small: bool
) -> None:
    order = "ORDER BY ts, x DESC NULLS FIRST"
    call = f"ruled(a => TABLE a PARTITION BY k {order}, b => TABLE b {order} BROADCAST, on_time => DESCRIPTOR(ts), uid => 'r')"
    check_history(stream_of(RULED, call, delay, parallelism), history, delay, answer, small=small)
