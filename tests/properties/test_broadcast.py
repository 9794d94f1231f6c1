"""Broadcast tables without ORDER BY: in a batch their rows come first; restarts, buckets and small files make no difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream import Context, ListState, MapState, Row, ValueState, process, state, table
from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import bag, limits

pytestmark = pytest.mark.slow


class Rule(NamedTuple):
    """What a row of the broadcast table does, with a name and a value."""

    op: str
    s: str | None
    x: int


rules = st.builds(
    Rule,
    st.sampled_from(["put", "put", "increase", "remove", "append", "set", "value", "clear"]),
    st.sampled_from([None, "a", "b", "\u00e4'"]),
    st.integers(-2, 5),
)
# Batches of rows for all keys, and of keys, each with whether the job starts anew before it.
batches = st.tuples(
    st.lists(rules, max_size=4), st.lists(st.one_of(st.none(), st.integers(0, 6)), max_size=5), st.booleans()
)
histories = st.lists(batches, min_size=1, max_size=6)


@dataclass
class Known:
    n: int
    entries: str


@process(name="knowing")
class Knowing:
    """Emits with each row how many have come for its key, and what all keys know."""

    n: ValueState[int] = state()
    entries: MapState[str | None, int] = state(broadcast=True)
    items: ListState[int] = state(broadcast=True)
    value: ValueState[int] = state(broadcast=True)

    @table
    def rows(self, ctx: Context, row: Row) -> Iterator[Known]:
        self.n.value = (self.n.value or 0) + 1
        one = self.entries.get("a", -9)
        entries = sorted(self.entries.items(), key=repr)
        yield Known(self.n.value, f"{entries} {one} {self.items.get()} {self.value.value}")

    @table(broadcast=True)
    def rules(self, ctx: Context, rule: Row) -> None:
        match rule.op:
            case "put":
                self.entries[rule.s] = rule.x
            case "increase":
                self.entries[rule.s] = self.entries.get(rule.s, 0) + 1
            case "remove":
                self.entries.remove(rule.s)
            case "append":
                self.items.append(rule.x)
            case "set":
                self.items.set([rule.x, rule.x])
            case "value":
                self.value.value = rule.x if rule.x >= 0 else None
            case "clear":
                self.entries.clear()
                self.items.clear()


def simulated(history: Sequence[tuple[list[Rule], list[int | None], bool]]) -> Iterator[tuple[Any, ...]]:
    """Yield what the class emits, by the rules that the manual has."""
    entries: dict[str | None, int] = {}
    items: list[int] = []
    counts: dict[int | None, int] = {}
    value: int | None = None
    for some, keys, _ in history:
        for rule in some:
            match rule.op:
                case "put":
                    entries[rule.s] = rule.x
                case "increase":
                    entries[rule.s] = entries.get(rule.s, 0) + 1
                case "remove":
                    entries.pop(rule.s, None)
                case "append":
                    items.append(rule.x)
                case "set":
                    items = [rule.x, rule.x]
                case "value":
                    value = rule.x if rule.x >= 0 else None
                case "clear":
                    entries, items = {}, []
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
            yield key, counts[key], f"{sorted(entries.items(), key=repr)} {entries.get('a', -9)} {items} {value}"


SCRIPT = """
CREATE TABLE t (k BIGINT);
CREATE TABLE r (op STRING, s STRING, x BIGINT);
CREATE TABLE out (k BIGINT, n BIGINT, entries STRING);
INSERT INTO out SELECT * FROM knowing(TABLE t PARTITION BY k, rules => TABLE r BROADCAST, uid => 'knowing');
"""


@examples(25)
@given(histories, st.integers(1, 3), st.booleans())
def test_rows_for_all_keys_come_first_in_each_batch(
    history: list[tuple[list[Rule], list[int | None], bool]], parallelism: int, small: bool
) -> None:
    with limits(small=small), Stream(SCRIPT, functions=[Knowing], parallelism=parallelism) as stream:
        for some, keys, anew in history:
            if anew:
                stream.restart()
            rows: dict[str, list[tuple[Any, ...]]] = {"t": [(key,) for key in keys], "r": [tuple(r) for r in some]}
            stream.batches({name: own for name, own in rows.items() if own})
        assert bag(stream.rows("out")) == bag(simulated(history))
        seen = stream.query("SELECT entry, value FROM state.out.knowing_entries")
        assert len(seen) == len({entry for entry, _ in seen})
