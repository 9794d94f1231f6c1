"""Process functions with ORDER BY: any split into batches and any restart gives what the class gives over the sorted rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream import Context, ListState, MapState, ValueState, process, state, table
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
class Journal:
    """Says in which order it is called, with all that it keeps; sets timers before and behind the row, and at its time."""

    n: ValueState[int] = state()
    texts: ListState[str] = state()
    seen: MapState[str, int] = state()

    @table
    def a(self, ctx: Context, row: Click) -> Iterator[Note]:
        assert ctx.event_time is not None
        assert ctx.watermark == ctx.event_time
        assert not ctx.input_ended
        self.texts.append(row.s or "-")
        match row.x:
            case None:
                ctx.timers.delete("later")
            case -1:
                ctx.timers.at(ctx.event_time - 3 * SECOND)
            case 1:
                ctx.timers.at(ctx.event_time + 2 * SECOND)
            case 2:
                ctx.timers.at(ctx.event_time + 4 * SECOND, "later")
            case _:
                ctx.timers.at(ctx.event_time)
        yield self.note(f"a {row.x} {row.s} {[t.name for t in ctx.timers.list()]}")

    @table
    def b(self, ctx: Context, row: Click) -> Iterator[Note]:
        word = row.s or "-"
        self.seen[word] = self.seen.get(word, 0) + 1
        yield self.note(f"b {row.x} {row.s} {sorted(self.seen.items())}")
        if row.x == 3:
            ctx.clear()

    def on_timer(self, ctx: Context) -> Iterator[Note]:
        yield self.note(f"{ctx.timer.name} {ctx.timer.time} {ctx.watermark == ctx.event_time} {self.texts.get()}")
        if ctx.timer.name == "later":
            ctx.timers.at(ctx.timer.time + SECOND)
            self.texts.clear()

    def note(self, what: str) -> Note:
        self.n.value = (self.n.value or 0) + 1
        return Note(self.n.value, what)


# What runs in this process is the class as workers get it: its hints can be read before that.
JOURNAL = of_type(ProcessFunction, declare_any(Journal))


def simulated(key: int | None, rows: Mapping[str, Sequence[Row]], up_to: int | None) -> Iterator[tuple[object, ...]]:
    """Yield what the class gives for a key over its rows in the order of time, up to a watermark."""
    one = Journal()
    one.n, one.texts, one.seen = ValueState(), ListState(), MapState()
    own = timed({name: [row for row in found if row[0] == key] for name, found in rows.items()})
    ordered = sorted(own, key=lambda item: (*item[:2], *by_x(item[2])))
    return ordered_model.simulated(key, one, ordered, up_to, states=(one.n, one.texts, one.seen))


def answer(rows: Mapping[str, Sequence[Row]], up_to: int | None) -> Bag:
    keys = {row[0] for t in "ab" for row in rows[t]}
    return bag(note for key in keys for note in simulated(key, rows, up_to))


@examples(40)
@given(histories(), delays, st.integers(1, 3), st.booleans())
def test_batches_and_restarts_make_no_difference(
    history: list[Step], delay: dict[str, int], parallelism: int, small: bool
) -> None:
    order = "PARTITION BY k ORDER BY ts, x DESC NULLS FIRST"
    call = f"journal(a => TABLE a {order}, b => TABLE b {order}, on_time => DESCRIPTOR(ts), uid => 'journal')"
    check_history(stream_of(JOURNAL, call, delay, parallelism), history, delay, answer, small=small)
