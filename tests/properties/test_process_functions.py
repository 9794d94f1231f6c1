"""Process functions give what a plain simulation of the same class gives, however the rows are cut into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream import Context, ListState, MapState, Row, ValueState, process, state
from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import limits

pytestmark = pytest.mark.slow
# `make fuzz` tries more.

START = datetime(2026, 1, 1, 10)


class Step(NamedTuple):
    """A row: its key, what is to be done for it, a value, a name, and seconds after the start."""

    k: int | None
    op: str
    x: int
    s: str
    at: int


OPS = ["add", "append", "set", "put", "remove", "get", "increase", "show", "clear", "forget"]
OPS += ["timer", "named", "unset"]
steps = st.builds(
    Step,
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from(OPS),
    st.integers(-2, 5),
    st.sampled_from(["a", "b", "ä'"]),
    st.integers(0, 30),
)
# Batches of rows, each with whether the job starts anew before it.
histories = st.lists(st.tuples(st.lists(steps, max_size=6), st.booleans()), min_size=1, max_size=5)
# Those of some keys that put, and look for, entries of their maps.
entries = st.builds(
    Step,
    st.integers(0, 1),
    st.sampled_from([*3 * ["put", "get"], "increase", "remove", "show", "forget"]),
    st.integers(-2, 5),
    st.sampled_from(["a", "b", "ä'"]),
    st.just(0),
)
entry_histories = st.lists(st.tuples(st.lists(entries, min_size=3, max_size=8), st.booleans()), min_size=3, max_size=5)


@dataclass
class Shown:
    total: int | None
    items: list[int]
    entries: dict[str, int]
    timer: str


@process(name="machine")
class Machine:
    """Does what each row says."""

    total: ValueState[int] = state()
    items: ListState[int] = state()
    entries: MapState[str, int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[Shown]:
        match row.op:
            case "add":
                self.total.value = (self.total.value or 0) + row.x
            case "append":
                self.items.extend([row.x, row.x + 1])
            case "set":
                self.items.set([row.x])
            case "put":
                self.entries[row.s] = row.x
            case "remove":
                del self.entries[row.s]
            case "get":
                yield Shown(None, [], {row.s: self.entries.get(row.s, -9)}, str(row.s in self.entries))
            case "increase":
                self.entries[row.s] = self.entries.get(row.s, 0) + 1
            case "show":
                yield self.shown("")
            case "clear":
                ctx.clear()
            case "forget":
                self.entries.clear()
                self.items.clear()
            case "timer":
                ctx.timers.at(START + timedelta(seconds=row.at + row.x))
            case "named":
                ctx.timers.at(START + timedelta(seconds=row.at + row.x), row.s)
            case "unset":
                ctx.timers.delete(row.s)

    def on_timer(self, ctx: Context) -> Iterator[Shown]:
        self.items.append(len(self.items))
        yield self.shown(f"{ctx.timer.name} {ctx.timer.time:%S}")
        if len(self.items) == 3:
            ctx.timers.at(ctx.timer.time + timedelta(seconds=1), "third")

    def shown(self, timer: str) -> Shown:
        return Shown(self.total.value, self.items.get(), dict(sorted(self.entries.items())), timer)


class Key:
    """The state of a key, as a plain Python program has it."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.items: list[int] = []
        self.entries: dict[str, int] = {}
        # By name, or by time for those without one.
        self.timers: dict[str | int, int] = {}

    def row(self, step: Step) -> Iterator[tuple[Any, ...]]:
        match step.op:
            case "add":
                self.total = (self.total or 0) + step.x
            case "append":
                self.items += [step.x, step.x + 1]
            case "set":
                self.items = [step.x]
            case "put":
                self.entries[step.s] = step.x
            case "remove":
                self.entries.pop(step.s, None)
            case "get":
                yield None, [], {step.s: self.entries.get(step.s, -9)}, str(step.s in self.entries)
            case "increase":
                self.entries[step.s] = self.entries.get(step.s, 0) + 1
            case "show":
                yield self.shown("")
            case "clear":
                self.__init__()  # type: ignore[misc]
            case "forget":
                self.items, self.entries = [], {}
            case "timer":
                self.timers[step.at + step.x] = step.at + step.x
            case "named":
                self.timers[step.s] = step.at + step.x
            case "unset":
                self.timers.pop(step.s, None)

    def fire(self, watermark: float) -> Iterator[tuple[Any, ...]]:
        while due := [(at, str(name), name) for name, at in self.timers.items() if at <= watermark]:
            at, _, name = min(due)
            del self.timers[name]
            self.items.append(len(self.items))
            shown = name if isinstance(name, str) else ""
            yield self.shown(f"{shown} {START + timedelta(seconds=at):%S}")
            if len(self.items) == 3:
                self.timers["third"] = at + 1

    def shown(self, timer: str) -> tuple[Any, ...]:
        return self.total, list(self.items), dict(sorted(self.entries.items())), timer


def simulated(batches: Sequence[Sequence[Step]]) -> list[tuple[Any, ...]]:
    """Return what the class emits for batches, by the rules that the manual has."""
    keys: dict[int | None, Key] = {}
    emitted: list[tuple[Any, ...]] = []
    watermark = float("-inf")

    def run(batch: Sequence[Step]) -> None:
        for k in {*keys, *(step.k for step in batch)}:
            key = keys.setdefault(k, Key())
            found = list(key.fire(watermark))
            for step in batch:
                found += list(key.row(step)) if step.k == k else []
            found += list(key.fire(watermark))
            emitted.extend((k, *row) for row in found)

    for batch in batches:
        run(batch)
        if batch and max(step.at for step in batch) > watermark:
            watermark = max(step.at for step in batch)
            run([])
    watermark = float("inf")
    run([])
    return emitted


def streamed(
    history: Sequence[tuple[Sequence[Step], bool]], parallelism: int, *, small: bool = False
) -> list[tuple[Any, ...]]:
    script = """
    CREATE TABLE t (k BIGINT, op STRING, x BIGINT, s STRING, ts TIMESTAMP, at BIGINT, WATERMARK FOR ts AS ts);
    CREATE TABLE out (k BIGINT, total BIGINT, items BIGINT[], entries MAP<STRING, BIGINT>, timer STRING);
    INSERT INTO out SELECT k, total, items, entries, timer FROM machine(TABLE t PARTITION BY k, on_time => DESCRIPTOR(ts));
    """
    with limits(small=small), Stream(script, functions=[Machine], parallelism=parallelism) as stream:
        for batch, again in history:
            if again:
                stream.restart()
            rows = [(s.k, s.op, s.x, s.s, START + timedelta(seconds=s.at), s.at) for s in batch]
            stream.batch("t", rows)
        stream.finish()
        return stream.rows("out")


def comparable(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, rows))


@examples(25)
@given(histories, st.integers(1, 3), st.booleans())
def test_any_history_gives_what_a_simulation_gives(
    history: list[tuple[list[Step], bool]], parallelism: int, small: bool
) -> None:
    given = streamed(history, parallelism, small=small)
    assert comparable(given) == comparable(simulated([batch for batch, _ in history]))


@examples(15)
@given(histories)
def test_without_timers_the_cuts_between_batches_do_not_matter(history: list[tuple[list[Step], bool]]) -> None:
    history = [([s for s in batch if s.op not in ("timer", "named")], again) for batch, again in history]
    whole = [step for batch, _ in history for step in batch]
    assert (
        comparable(streamed(history, 2)) == comparable(streamed([(whole, False)], 2)) == comparable(simulated([whole]))
    )


@examples(5)
@given(entry_histories)
def test_entries_that_are_read_alone_are_those_of_the_map(history: list[tuple[list[Step], bool]]) -> None:
    given = streamed(history, 1, small=True)
    assert comparable(given) == comparable(simulated([batch for batch, _ in history]))
