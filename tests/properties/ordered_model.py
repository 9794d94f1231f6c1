"""Process functions over rows in the order of time, as plain Python runs their classes, and the streams that are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from sqlstream import ListState
from sqlstream.catalog import ProcessFunction
from sqlstream.testing import Stream
from tests.properties.interval_model import Times, feed
from tests.properties.model import Bag, emitted, limits
from tests.properties.strategies import Restart, Row, Step

SECOND = timedelta(seconds=1)
START = datetime(1970, 1, 1)
# In the place of a key: the rows for all keys emit for nobody.
EVERYONE = object()

# The time of a row, its table, and the row.
Timed: TypeAlias = tuple[datetime, str, Row]


class Click(NamedTuple):
    x: int | None
    s: str | None


class Note(NamedTuple):
    n: int
    what: str


class Timers:
    """The timers of a key in plain Python."""

    def __init__(self) -> None:
        self.known: dict[str | datetime, datetime] = {}

    def at(self, time: datetime, name: str = "") -> None:
        self.known[name or time] = time

    def delete(self, timer: str | datetime) -> None:
        self.known.pop(timer, None)

    def list(self) -> list[Any]:
        shown = [(due, name if isinstance(name, str) else "") for name, due in self.known.items()]
        return [SimpleNamespace(name=name, time=due) for due, name in sorted(shown)]

    def next(self, before: datetime) -> Any:
        """Take out the first timer that is due before a time, if there is one."""
        found = next((t for t in self.list() if t.time < before), None)
        if found is not None:
            del self.known[found.name or found.time]
        return found


def timed(rows: Mapping[str, Iterable[Row]]) -> list[Timed]:
    """Return the rows of tables with their times."""
    return [(START + timedelta(microseconds=r[3] or 0), name, r) for name, found in rows.items() for r in found]


def by_x(row: Row) -> tuple[bool, int]:
    """The order of rows of one time: x DESC NULLS FIRST. Equal ones stay in the order of their arrival."""
    _, x, _, _ = row
    return (x is not None, -(x or 0))


def simulated(
    key: Any,
    one: Any,
    rows: Iterable[Timed],
    up_to: int | None,
    *,
    states: Sequence[Any] = (),
    broadcast: Sequence[str] = (),
    shared: Sequence[ListState[Any]] = (),
    holds: Callable[[], bool] | None = None,
) -> Iterator[tuple[object, ...]]:
    """Yield what an instance gives for a key over its rows, which are in order, and its timers between them, up to a watermark.

    `states` are what `ctx.clear()` clears; rows of `broadcast` tables, which write `shared`, let no timer wait for them. What
    these emit is there for EVERYONE, who has no rows else; the calls that they ask for come where `holds` says that the key has
    state, or it has timers.
    """
    timers = Timers()

    def clear() -> None:
        for kept in states:
            kept.clear()
        timers.known.clear()

    ctx: Any = SimpleNamespace(timers=timers, clear=clear, input_ended=False)
    reached = datetime.min

    def called(method: Callable[..., Any], time: datetime, *given: Any) -> Iterator[tuple[object, ...]]:
        nonlocal reached
        reached = ctx.event_time = ctx.watermark = max(time, reached)
        yield from ((key, *note, reached) for note in method(ctx, *given) or ())

    def fired(before: datetime) -> Iterator[tuple[object, ...]]:
        while timer := timers.next(before):
            ctx.timer = timer
            yield from called(one.on_timer, timer.time)

    def broadcasted(time: datetime, given: Sequence[Timed]) -> Iterator[tuple[object, ...]]:
        """Yield what rows for all keys give. A visit sees the states as its row left them, timers as all rows of the time did."""
        visits: list[tuple[Callable[..., Any], tuple[Any, ...], list[Any]]] = []
        for _, name, (_, x, s, _) in given:
            ctx.watermark = ctx.event_time = time
            asked: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
            ctx.for_each_key = lambda method, *given, asked=asked: asked.append((method, given))
            notes = list(getattr(one, name)(ctx, Click(x, s)) or ())
            if key is EVERYONE:
                yield from ((None, *note, time) for note in notes)
            visits += [(method, given, [state.get() for state in shared]) for method, given in asked]
        last = [state.get() for state in shared]
        for method, given, then in visits if key is not EVERYONE else ():
            yield from fired(time)
            if timers.known or (holds is not None and holds()):
                show(then)
                yield from called(method, time, *given)
                show(last)

    def show(values: Sequence[Any]) -> None:
        for state, value in zip(shared, values, strict=True):
            state.set(value)

    end = datetime.max if up_to is None else START + timedelta(microseconds=up_to)
    on_time = (row for row in rows if row[0] < end)
    for (time, is_broadcast), group in groupby(on_time, lambda row: (row[0], row[1] in broadcast)):
        if is_broadcast:
            yield from fired(time)
            yield from broadcasted(time, list(group))
            continue
        for _, name, (_, x, s, _) in group:
            yield from fired(time)
            yield from called(getattr(one, name), time, Click(x, s))
    yield from fired(end)


def stream_of(function: ProcessFunction, call: str, delay: Mapping[str, int], parallelism: int) -> Stream:
    """Return the stream of a call over the tables a and b."""
    declared = "".join(
        f"CREATE TABLE {t} (k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, "
        f"WATERMARK FOR ts AS ts - INTERVAL '{delay[t]}' MICROSECOND);"
        for t in "ab"
    )
    script = f"{declared} CREATE TABLE out (k BIGINT, n BIGINT, what STRING, t TIMESTAMP); INSERT INTO out SELECT * FROM {call}"
    return Stream(script, functions=[function], parallelism=parallelism)


def check_history(
    opened: Stream,
    history: Sequence[Step],
    delay: dict[str, int],
    answer: Callable[[Mapping[str, Sequence[Row]], int | None], Bag],
    *,
    small: bool,
) -> None:
    """Assert that a stream has emitted the answer over the rows so far, that are not late, after each batch and at the end."""
    times, rows, late = Times(("a", "b"), delay), {"a": list[Row](), "b": list[Row]()}, 0
    with limits(small=small), opened as stream:
        for step in history:
            feed(stream, step, "ab")
            if isinstance(step, Restart):
                continue
            for name, taken in rows.items():
                on_time = times.on_time(step, name, end=lambda ts: ts + 1)
                late += sum(row[3] is not None for row in step.of(name)) - len(on_time)
                taken += on_time
            times.batch(step)
            assert emitted(stream) == (answer(rows, times.watermark) if times.watermark is not None else Bag())
        stream.finish()
        assert emitted(stream) == answer(rows, None)
        assert stream.query("SELECT coalesce(sum(late_rows), 0) FROM sqlstream.operators") == [(late,)]
