"""Time to live of the states of a process function: a plain program that notes when things were written sees the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream import Context, ListState, MapState, ReducingState, Row, ValueState, process, state
from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import limits

pytestmark = pytest.mark.slow
# `make fuzz` tries more.

TTL = 10_000
SCRIPT = """
CREATE TABLE t (k BIGINT, op STRING, x BIGINT, s STRING);
CREATE TABLE out (k BIGINT, value STRING);
INSERT INTO out SELECT * FROM mortal(TABLE t PARTITION BY k, uid => 'mortal');
"""


class Step(NamedTuple):
    k: int | None
    op: str
    x: int
    s: str


@process
class Mortal:
    """Does what each row says, to states whose time counts from writing, and to others where reading counts, too."""

    value: ValueState[int] = state(ttl="10 s")
    kept: ValueState[int] = state(ttl="10 s", refresh="read")
    most: ReducingState[int] = state(ttl="10 s", reduce=max)
    items: ListState[int] = state(ttl="10 s")
    listed: ListState[int] = state(ttl="10 s", refresh="read")
    entries: MapState[str, int] = state(ttl="10 s")
    named: MapState[str, int] = state(ttl="10 s", refresh="read")

    def process(self, ctx: Context, row: Row) -> Iterator[str]:
        match row.op:
            case "write":
                self.value.value = self.kept.value = row.x
                self.most.add(row.x)
            case "append":
                self.items.append(row.x)
                self.listed.append(row.x)
            case "set":
                self.items.set([row.x])
                self.listed.set([row.x])
            case "put":
                self.entries[row.s] = self.named[row.s] = row.x
            case "remove":
                del self.entries[row.s], self.named[row.s]
            case "clear":
                ctx.clear()
            case "value":
                yield repr((self.value.value, self.kept.value, self.most.value))
            case "items":
                yield repr((self.items.get(), self.listed.get()))
            case "get":
                yield repr((self.entries.get(row.s), self.named.get(row.s)))
            case "entries":
                yield repr((sorted(self.entries.items()), sorted(self.named.items())))


@dataclass
class Key:
    """What a key has, each with the time at which it was written; `read` is what counts as written by reading, too."""

    values: dict[str, tuple[int, int]] = field(default_factory=dict)
    lists: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {"items": [], "listed": []})
    maps: dict[str, dict[str, tuple[int, int]]] = field(default_factory=lambda: {"entries": {}, "named": {}})

    def forget(self, now: int) -> None:
        self.values = {n: (x, at) for n, (x, at) in self.values.items() if at > now - TTL}
        self.lists = {n: [(x, at) for x, at in own if at > now - TTL] for n, own in self.lists.items()}
        self.maps = {n: {s: (x, at) for s, (x, at) in own.items() if at > now - TTL} for n, own in self.maps.items()}

    def row(self, step: Step, now: int) -> Iterator[str]:
        match step.op:
            case "write":
                most = max(step.x, self.values.get("most", (step.x, 0))[0])
                self.values = {"value": (step.x, now), "kept": (step.x, now), "most": (most, now)}
            case "append" | "set":
                for name, own in self.lists.items():
                    self.lists[name] = [*(own if step.op == "append" else []), (step.x, now)]
            case "put":
                for entries in self.maps.values():
                    entries[step.s] = step.x, now
            case "remove":
                for entries in self.maps.values():
                    entries.pop(step.s, None)
            case "clear":
                self.__init__()  # type: ignore[misc]
            case "value":
                found = [self.values.get(name, (None, 0))[0] for name in ("value", "kept", "most")]
                if "kept" in self.values:
                    self.values["kept"] = self.values["kept"][0], now
                yield repr(tuple(found))
            case "items":
                self.lists["listed"] = [(x, now) for x, _ in self.lists["listed"]]
                yield repr(tuple([x for x, _ in own] for own in self.lists.values()))
            case "get":
                yield repr(tuple(own.get(step.s, (None, 0))[0] for own in self.maps.values()))
                if step.s in self.maps["named"]:
                    self.maps["named"][step.s] = self.maps["named"][step.s][0], now
            case "entries":
                self.maps["named"] = {s: (x, now) for s, (x, _) in self.maps["named"].items()}
                yield repr(tuple(sorted((s, x) for s, (x, _) in own.items()) for own in self.maps.values()))


OPS = [*2 * ["write", "append", "put", "value", "items", "get", "entries"], "set", "remove", "clear"]
steps = st.builds(Step, st.sampled_from([None, 1, 2]), st.sampled_from(OPS), st.integers(0, 5), st.sampled_from("ab"))
# Rows, how many milliseconds pass before them, and whether the job starts anew.
waits = st.sampled_from([0, 1, 2_500, 4_000, 6_000, 9_999, 10_000, 25_000])
histories = st.lists(st.tuples(st.lists(steps, min_size=1, max_size=6), waits, st.booleans()), min_size=2, max_size=7)


@examples(15)
@given(histories, st.integers(1, 3), st.booleans())
def test_nothing_is_seen_longer_than_it_lives(
    history: list[tuple[list[Step], int, bool]], parallelism: int, small: bool
) -> None:
    keys: dict[int | None, Key] = {}
    expected: list[tuple[int | None, str]] = []
    now = 0
    with limits(small=small), Stream(SCRIPT, functions=[Mortal], parallelism=parallelism) as stream:
        for rows, wait, again in history:
            if again:
                stream.restart()
            stream.advance(wait)
            now += wait
            stream.batch("t", list(rows))
            for key in keys.values():
                key.forget(now)
            for step in rows:
                expected += [(step.k, text) for text in keys.setdefault(step.k, Key()).row(step, now)]
        assert sorted(map(repr, stream.rows("out"))) == sorted(map(repr, expected))
        stream.advance(2 * TTL)
        # Each bucket has one of these keys, and is looked through.
        stream.batch("t", [(k, "nothing", 0, "") for k in range(100, 120)])
        assert stream.query("SELECT state_rows FROM sqlstream.operators") == [(0,)]
