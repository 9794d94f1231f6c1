"""Python aggregate functions give the same for any split into batches and any restart as for all rows at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream import udaf
from sqlstream.testing import Stream
from tests.properties.examples import examples

pytestmark = pytest.mark.slow

# k, x, y, and seconds behind the full minute.
Row = tuple[int, int | None, int | None, int]

SCRIPT = """
CREATE TABLE t (k BIGINT, x BIGINT, y BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE);
CREATE TABLE grouped (k BIGINT, bag STRING, vectors STRING, kept STRING, some STRING, few STRING, PRIMARY KEY (k) NOT ENFORCED);
CREATE TABLE changing (n BIGINT, bag STRING, vectors STRING, PRIMARY KEY (n) NOT ENFORCED);
CREATE TABLE windows (k BIGINT, s TIMESTAMP, bag STRING, vectors STRING, kept STRING);
CREATE TABLE sessions (k BIGINT, s TIMESTAMP, bag STRING, vectors STRING);
CREATE TABLE running (k BIGINT, x BIGINT, y BIGINT, ts TIMESTAMP, bag STRING, vectors STRING, kept STRING,
  recent STRING);
INSERT INTO grouped SELECT k, bag(x, y), vector_bag(x), kept_bag(x), bag(y) FILTER (WHERE x > 0), vector_bag(DISTINCT x)
  FROM t GROUP BY k;
INSERT INTO changing SELECT n, bag(k), vector_bag(k) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY n;
INSERT INTO windows SELECT k, window_start, bag(x, y), vector_bag(y), kept_bag(y)
  FROM HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND) GROUP BY k, window_start, window_end;
INSERT INTO sessions SELECT k, window_start, bag(x, y), vector_bag(y)
  FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY k, window_start, window_end;
INSERT INTO running SELECT k, x, y, ts, bag(x, y) OVER w, vector_bag(y) OVER w, kept_bag(x) OVER w,
  bag(x) OVER (w ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)
  FROM t WINDOW w AS (PARTITION BY k ORDER BY ts, x, y)
"""
TABLES = ("grouped", "changing", "windows", "sessions", "running")


@dataclass
class Seen:
    values: list[int] = field(default_factory=list)


class _Bag:
    """All that was accumulated, as a text that does not depend on the order."""

    def finish(self, acc: Seen) -> str:
        return " ".join(map(str, sorted(acc.values)))


@udaf
class Bag(_Bag):
    def accumulate(self, acc: Seen, x: int, y: int = 1) -> None:
        acc.values.append(100 * x + y)

    def merge(self, acc: Seen, other: Seen) -> None:
        acc.values += other.values


@udaf
class KeptBag(_Bag):
    def accumulate(self, acc: Seen, x: int | None) -> None:
        acc.values.append(-999 if x is None else x)


@udaf(vectorized=True, accumulator="STRUCT(vals BIGINT[])", returns="VARCHAR", parameters={"x": "BIGINT"})
class VectorBag:
    def accumulate(self, groups: pa.Array, x: pa.Array) -> pa.Table:
        return self.lists(groups, [[value] for value in x.to_pylist()])

    def merge(self, groups: pa.Array, accumulators: pa.Table) -> pa.Table:
        return self.lists(groups, accumulators["vals"].to_pylist())

    def finish(self, accumulators: pa.Table) -> pa.Array:
        texts = [" ".join(sorted(map(str, values))) for values in accumulators["vals"].to_pylist()]
        return pa.array(texts, pa.string())

    def lists(self, groups: pa.Array, parts: Sequence[list[int | None]]) -> pa.Table:
        found: dict[int, list[int | None]] = {}
        for group, part in zip(groups.to_pylist(), parts, strict=True):
            found.setdefault(group, []).extend(part)
        return pa.table({"vals": pa.array([found[group] for group in sorted(found)], pa.list_(pa.int64()))})


class _Takes(_Bag):
    """A bag that gives rows back, and knows which it has."""

    def accumulate(self, acc: Seen, x: int, y: int) -> None:
        acc.values.append(100 * x + y)

    def retract(self, acc: Seen, x: int, y: int) -> None:
        acc.values.remove(100 * x + y)


@udaf
class Taking(_Takes):
    """It takes rows out of what it has."""


@udaf
class TakingParts(_Takes):
    """It merges, too."""

    def merge(self, acc: Seen, other: Seen) -> None:
        acc.values += other.values


@udaf(vectorized=True, accumulator="STRUCT(vals BIGINT[])", returns="VARCHAR", parameters={"x": "BIGINT"})
class TakingVectors(VectorBag):
    def retract(self, accumulators: pa.Table, groups: pa.Array, x: pa.Array) -> pa.Table:
        found = accumulators["vals"].to_pylist()
        for group, value in zip(groups.to_pylist(), x.to_pylist(), strict=True):
            found[group].remove(value)
        return pa.table({"vals": pa.array(found, pa.list_(pa.int64()))})


CHANGES = """
CREATE TABLE t (op STRING, k BIGINT, x BIGINT, y BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = 't', 'changelog.op-column' = 'op');
CREATE TABLE taken (k BIGINT, bag STRING, parts STRING, vectors STRING, some STRING, n BIGINT, total BIGINT,
  PRIMARY KEY (k) NOT ENFORCED);
CREATE TABLE anew (k BIGINT, bag STRING, parts STRING, vectors STRING, some STRING, n BIGINT, total BIGINT,
  PRIMARY KEY (k) NOT ENFORCED);
CREATE TABLE everything (bag STRING, parts STRING, vectors STRING);
INSERT INTO taken WITH g AS (SELECT k, taking(x, y), taking_parts(x, y), taking_vectors(x), taking(x, y) FILTER (WHERE x > 0),
  COUNT(*), SUM(y) FROM t GROUP BY k) SELECT * FROM g;
INSERT INTO anew SELECT k, taking(x, y), taking_parts(x, y), taking_vectors(x), taking(x, y) FILTER (WHERE x > 0),
  COUNT(*), SUM(y) FROM t GROUP BY k HAVING MAX(x) IS NULL OR MAX(x) < 99;
INSERT INTO everything SELECT taking(x, y), taking_parts(x, y), taking_vectors(x) FROM t
"""


small = st.one_of(st.none(), st.integers(-2, 3))
rows = st.lists(st.tuples(st.integers(0, 2), small, small, st.integers(0, 40)), min_size=1, max_size=8)


def results(batches: Sequence[Sequence[Row]], restarts: frozenset[int], parallelism: int) -> dict[str, list[object]]:
    with Stream(SCRIPT, functions=[Bag, KeptBag, VectorBag], parallelism=parallelism) as stream:
        for number, batch in enumerate(batches):
            if number in restarts:
                stream.restart()
            stream.batch("t", [(k, x, y, f"2026-01-01 10:00:{s:02}") for k, x, y, s in batch])
        stream.finish()
        return {table: sorted(stream.query(f"FROM {table}"), key=repr) for table in TABLES}


@examples(6)
@given(st.lists(rows, min_size=2, max_size=4), st.frozensets(st.integers(1, 3)), st.integers(1, 2))
def test_any_split_equals_all_rows_at_once(
    batches: list[list[Row]], restarts: frozenset[int], parallelism: int
) -> None:
    at_once = results([[row for batch in batches for row in batch]], frozenset(), 1)
    assert results(batches, restarts, parallelism) == at_once


@examples(3)
@given(st.lists(rows, min_size=1, max_size=3))
def test_groups_are_what_python_makes_of_their_rows(batches: list[list[Row]]) -> None:
    found = {row[0]: row[1:] for row in results(batches, frozenset(), 2)["grouped"]}  # type: ignore[index]
    for key in {row[0] for batch in batches for row in batch}:
        mine = [(x, y) for batch in batches for k, x, y, _ in batch if k == key]

        def text(values: list[int]) -> str:
            return " ".join(map(str, sorted(values)))

        assert found[key] == (
            text([100 * x + y for x, y in mine if x is not None and y is not None]),
            " ".join(sorted(str(x) for x, _ in mine)),
            text([-999 if x is None else x for x, _ in mine]),
            text([100 * y + 1 for x, y in mine if y is not None and x is not None and x > 0]),
            " ".join(sorted({str(x) for x, _ in mine})),
        )


Change = tuple[str, int, int | None, int | None]


@st.composite
def changes(draw: st.DrawFn) -> list[list[Change]]:
    """Batches of changes that take away only rows that are there; a batch may take away what it has added."""
    there: list[tuple[int, int | None, int | None]] = []
    batches: list[list[Change]] = []
    for _ in range(draw(st.integers(1, 4))):
        batch: list[Change] = []
        for _ in range(draw(st.integers(1, 8))):
            if draw(st.booleans()) and there:
                batch.append(("D", *there.pop(draw(st.integers(0, len(there) - 1)))))
            else:
                there.append((draw(st.integers(0, 2)), draw(small), draw(small)))
                batch.append(("I", *there[-1]))
        batches.append(batch)
    return batches


@examples(8)
@given(changes(), st.frozensets(st.integers(1, 3)), st.integers(1, 2))
def test_rows_that_are_taken_away_leave_what_python_makes_of_the_rest(
    batches: list[list[Change]], restarts: frozenset[int], parallelism: int
) -> None:
    with Stream(CHANGES, functions=[Taking, TakingParts, TakingVectors], parallelism=parallelism) as stream:
        left: Counter[tuple[int, int | None, int | None]] = Counter()
        for number, batch in enumerate(batches):
            if number in restarts:
                stream.restart()
            stream.batch("t", batch)
            for kind, k, x, y in batch:
                left[k, x, y] += 1 if kind == "I" else -1
            rows = list(left.elements())
            expected = [(k, *_expected([r for r in rows if r[0] == k])) for k in sorted({r[0] for r in rows})]
            assert sorted(stream.query("FROM taken")) == expected
            assert sorted(stream.query("FROM anew")) == expected
            bag, parts, vectors, *_ = _expected(rows)
            assert stream.query("FROM everything") == [(bag, parts, vectors if rows else None)]
            assert {row[0] for row in stream.query("SELECT k FROM state.taken.g")} == {row[0] for row in expected}


def _expected(rows: Sequence[tuple[int, int | None, int | None]]) -> tuple[object, ...]:
    """What Python makes of the rows of a group."""
    known = [(x, y) for _, x, y in rows if x is not None and y is not None]

    def text(values: Sequence[int]) -> str:
        return " ".join(map(str, sorted(values)))

    bag = text([100 * x + y for x, y in known])
    ys = [y for _, _, y in rows if y is not None]
    vectors = " ".join(sorted(str(x) for _, x, _ in rows))
    return bag, bag, vectors, text([100 * x + y for x, y in known if x > 0]), len(rows), sum(ys) if ys else None
