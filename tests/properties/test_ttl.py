"""Time to live: results are those over the rows since a key was last forgotten, for every kind of operator."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from sqlstream.units import SECOND
from tests.properties.examples import examples
from tests.properties.model import limits

pytestmark = pytest.mark.slow

TTL = 10 * SECOND
Row = tuple[int | None, int]
# The result of one key, given its rows: the rest of a row of (k, x).
Result = Callable[[list[int]], int | None]

HINT = "/*+ STATE_TTL('t' = '10 s') */"
# Each has rows (k, x), at most one of a key.
QUERIES: dict[str, Result] = {
    f"SELECT {HINT} k, CAST(SUM(x) AS BIGINT) FROM t GROUP BY k": sum,
    f"SELECT {HINT} k, COUNT(DISTINCT x) FROM t GROUP BY k": lambda xs: len(set(xs)),
    f"SELECT {HINT} k, MAX(x) FROM (SELECT * FROM t EXCEPT ALL SELECT * FROM none) AS t GROUP BY k": max,
    f"SELECT {HINT} k, x FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) = 1": max,
    f"SELECT {HINT} k, x FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) = 2": lambda xs: (
        sorted(xs)[1] if len(xs) > 1 else None
    ),
}


@dataclass
class Model:
    """What is remembered of each key, and what its row in a keyed table is."""

    result: Result
    rows: dict[int | None, list[int]] = field(default_factory=lambda: defaultdict(list))
    last: dict[int | None, int] = field(default_factory=dict)
    table: dict[int | None, int] = field(default_factory=dict)

    def add(self, rows: list[Row], now: int) -> None:
        for key in {k for k, _ in rows}:
            if key in self.last and self.last[key] <= now - TTL:
                self.rows[key] = []
            self.last[key] = now
            self.rows[key] += [x for k, x in rows if k == key]
            found = self.result(self.rows[key])
            if found is not None:
                self.table[key] = found

    def seen(self, now: int) -> dict[int | None, int]:
        found = {k: self.result(self.rows[k]) for k, at in self.last.items() if at > now - TTL}
        return {k: x for k, x in found.items() if x is not None}


rows = st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.integers(0, 4)), min_size=1, max_size=4)
# Milliseconds.
waits = st.sampled_from([0, 1, 3_000, 6_000, 9_999, 10_000, 25_000])


@examples(25)
@given(
    st.sampled_from(list(QUERIES)),
    st.lists(st.tuples(rows, waits, st.booleans()), min_size=2, max_size=8),
    st.integers(1, 3),
    st.booleans(),
)
def test_keys_are_forgotten(
    query: str, history: list[tuple[list[Row], int, bool]], parallelism: int, small: bool
) -> None:
    script = f"""CREATE TABLE t (k BIGINT, x BIGINT); CREATE TABLE none (k BIGINT, x BIGINT);
        CREATE TABLE out (k BIGINT, x BIGINT, PRIMARY KEY (k) NOT ENFORCED); INSERT INTO out {query}"""
    model = Model(QUERIES[query])
    with limits(small=small), Stream(script, parallelism=parallelism) as stream:
        for given_rows, wait, restarts in history:
            stream.batch("t", given_rows)
            model.add(given_rows, stream.now)
            [operator] = [s.name for s in stream.runs["out"].job.plan.stages if s.operator.kind != "except"]
            result = "k, x" if "QUALIFY" in query else "COLUMNS(*)"
            seen = stream.query(f'SELECT {result} FROM state.out."{operator}"')
            shown = {(row[0], row[1]) for row in seen}
            # Of the second one, the state has the first one, too.
            if "= 2" not in query:
                assert shown == set(model.seen(stream.now).items())
            assert dict(stream.rows()) == model.table
            if restarts:
                stream.restart()
            stream.advance(wait)


@dataclass
class Numbers:
    """The rows of each key with their numbers since it was last forgotten, and what has come out."""

    size: int
    slide: int
    rows: dict[int | None, list[int]] = field(default_factory=lambda: defaultdict(list))
    last: dict[int | None, int] = field(default_factory=dict)
    out: Counter[tuple[int | None, int, int]] = field(default_factory=Counter)

    def add(self, rows: list[Row], now: int) -> None:
        for key, x in rows:
            if self.last.setdefault(key, now) <= now - TTL:
                self.rows[key] = []
            self.last[key] = now
            known = self.rows[key]
            known.append(x)
            if len(known) % self.slide == 0:
                self.out.update((key, len(known) // self.slide, x) for x in known[-self.size :])


@examples(20)
@given(
    st.lists(st.tuples(rows, waits, st.booleans()), min_size=2, max_size=8),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
    st.integers(1, 3),
    st.booleans(),
)
def test_keys_of_windows_by_rows_are_forgotten(
    history: list[tuple[list[Row], int, bool]], size: int, slide: int, keyed: bool, parallelism: int, small: bool
) -> None:
    by = " PARTITION BY k" if keyed else ""
    script = f"""CREATE TABLE t (k BIGINT, x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
        CREATE TABLE out (k BIGINT, n BIGINT, x BIGINT);
        INSERT INTO out SELECT {HINT} k, window_id, x FROM HOP_ROWS(TABLE t{by}, DESCRIPTOR(ts), {slide}, {size})"""
    model, second = Numbers(size, slide), count()
    # Another row of the newest time may come: the last row of a batch waits for the next batch.
    waiting: list[Row] = []
    with limits(small=small), Stream(script, parallelism=parallelism) as stream:
        for given_rows, wait, restarts in history:
            given_rows = [(k if keyed else None, x) for k, x in given_rows]
            stream.batch(
                "t", [(*row, f"2026-01-01 10:{(n := next(second)) // 60:02}:{n % 60:02}") for row in given_rows]
            )
            *ready, newest = [*waiting, *given_rows]
            waiting = [newest]
            model.add(ready, stream.now)
            assert Counter(stream.rows()) == model.out
            if restarts:
                stream.restart()
            stream.advance(wait)
