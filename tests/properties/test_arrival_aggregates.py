"""Aggregates that depend on the order of rows: the order in which they came, as DuckDB answers it with that order as a column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.examples import examples
from tests.properties.model import Bag, bag, connection, limits
from tests.properties.strategies import Restart, Step
from tests.properties.test_windows import Kind, Model, delays, finish, histories, kinds, micros_text, stream_of

pytestmark = pytest.mark.slow

# Calls over k, x, s and ts, with the type of the result, and what DuckDB has to say of rows with their place p.
CALLS = (
    ("FIRST_VALUE(x)", "BIGINT", "first(x ORDER BY p) FILTER (WHERE x IS NOT NULL)"),
    ("LAST_VALUE(x)", "BIGINT", "last(x ORDER BY p) FILTER (WHERE x IS NOT NULL)"),
    ("FIRST_VALUE(s) IGNORE NULLS", "STRING", "first(s ORDER BY p) FILTER (WHERE s IS NOT NULL)"),
    ("LAST_VALUE(s IGNORE NULLS)", "STRING", "last(s ORDER BY p) FILTER (WHERE s IS NOT NULL)"),
    ("last(x) FILTER (WHERE s <> 'b')", "BIGINT", "last(x ORDER BY p) FILTER (WHERE s <> 'b')"),
    ("first(x ORDER BY s)", "BIGINT", "first(x ORDER BY s, p)"),
    ("last(x ORDER BY ts DESC)", "BIGINT", "last(x ORDER BY ts DESC, p DESC)"),
    ("any_value(x)", "BIGINT", "any_value(x ORDER BY p)"),
    ("LIST(x)", "BIGINT[]", "list(x ORDER BY p)"),
    ("ARRAY_AGG(x ORDER BY s)", "BIGINT[]", "list(x ORDER BY s, p)"),
    ("COLLECT_LIST(x)", "BIGINT[]", "list(x ORDER BY p)"),
    ("LIST(x ORDER BY ts DESC)", "BIGINT[]", "list(x ORDER BY ts DESC, p DESC)"),
    ("LISTAGG(s, '|')", "STRING", "string_agg(s, '|' ORDER BY p)"),
    ("ARG_MAX(x, length(s))", "BIGINT", "arg_max(x, length(s) ORDER BY p)"),
    ("ARG_MIN(x, s)", "BIGINT", "arg_min(x, s ORDER BY p)"),
    ("ARG_MAX(x, ts)", "BIGINT", "arg_max(x, ts ORDER BY p DESC)"),
    ("ARG_MIN(x, s, 2)", "BIGINT[]", "list(x ORDER BY s, p) FILTER (WHERE x IS NOT NULL AND s IS NOT NULL)[:2]"),
    ("EARLIEST_BY_OFFSET(x, 2)", "BIGINT[]", "list(x ORDER BY p) FILTER (WHERE x IS NOT NULL)[:2]"),
    ("LATEST_BY_OFFSET(x, 3, FALSE)", "BIGINT[]", "list(x ORDER BY p)[-3:]"),
)
some_calls = st.lists(st.sampled_from(CALLS), min_size=1, max_size=5, unique=True)


def with_places(history: Iterable[Step]) -> Iterator[list[Any] | Restart]:
    """Yield the rows of each batch with their places, or a restart."""
    place = 0
    for step in history:
        if isinstance(step, Restart):
            yield step
        else:
            yield [(*row, place + n) for n, row in enumerate(step.of("a"))]
            place += len(step.of("a"))


def answer(rows: Iterable[tuple[object, ...]], select: str) -> Bag:
    """Return DuckDB's answer over rows with their places, and with the bounds of their windows."""
    con = connection()
    columns = "k BIGINT, x BIGINT, s VARCHAR, ts TIMESTAMP, p BIGINT, window_start TIMESTAMP, window_end TIMESTAMP"
    con.execute(f"CREATE OR REPLACE TEMP TABLE w ({columns})")
    for row in rows:
        con.execute("INSERT INTO w VALUES (?, ?, ?, make_timestamp(?), ?, make_timestamp(?), make_timestamp(?))", row)
    return bag(con.execute(select).fetchall())


def selected(calls: Iterable[tuple[str, str, str]], place: int) -> str:
    return ", ".join(f"{call[place]} AS c{n}" for n, call in enumerate(calls))


@examples(30)
@given(kinds | st.just(Kind("HOP", 10, 10)), histories(), delays, st.integers(1, 3), some_calls, st.booleans())
def test_in_windows(
    kind: Kind, history: list[Step], delay: int, parallelism: int, calls: list[tuple[str, str, str]], small: bool
) -> None:
    model = Model(kind, delay)
    select = "SELECT k, window_start, window_end, {} FROM {} GROUP BY k, window_start, window_end"
    columns = f"k BIGINT, a TIMESTAMP, b TIMESTAMP, {', '.join(f'c{n} {type}' for n, (_, type, _) in enumerate(calls))}"
    with (
        limits(small=small),
        stream_of(select.format(selected(calls, 0), kind.sql()), columns, delay, parallelism) as stream,
    ):
        for step in with_places(history):
            if isinstance(step, Restart):
                stream.restart()
                continue
            stream.batch("a", [(*row[:3], micros_text(row[3])) for row in step])
            model.batch(step)
        assert stream.verify()
        finish(stream, model)
        rows_in_windows = [(*row, start, end) for row, start, end in model.pairs]
        assert bag(stream.rows("out")) == answer(rows_in_windows, select.format(selected(calls, 2), "w"))


@examples(30)
@given(histories(), st.integers(1, 3), some_calls, st.booleans(), st.booleans())
def test_in_groups_at_every_version(
    history: list[Step], parallelism: int, calls: list[tuple[str, str, str]], keyed: bool, small: bool
) -> None:
    select = f"SELECT {'k' if keyed else '0'} AS k, {{}} FROM {{}}{' GROUP BY k' if keyed else ''}"
    types = ", ".join(f"c{n} {type}" for n, (_, type, _) in enumerate(calls))
    columns = f"k BIGINT, {types}, PRIMARY KEY (k) NOT ENFORCED"
    with limits(small=small), stream_of(select.format(selected(calls, 0), "a"), columns, 0, parallelism) as stream:
        so_far: list[tuple[object, ...]] = []
        for step in with_places(history):
            if isinstance(step, Restart):
                stream.restart()
                continue
            stream.batch("a", [(*row[:3], micros_text(row[3])) for row in step])
            # A row without a time is dropped.
            so_far += [(*row, None, None) for row in step if row[3] is not None]
            if so_far or not keyed:
                assert bag(stream.rows("out")) == answer(so_far, select.format(selected(calls, 2), "w"))
        assert stream.verify()
