"""Dates and times beyond Python's calendar: as DuckDB writes them, there and back."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.duck.time_texts import arrow_time_text, date_text, microseconds_of, python_values, time_text
from tests.properties.examples import examples

# DuckDB's first and last time, in microseconds since 1970, and dates around the same years, in days.
FIRST, LAST = -9_223_372_022_400_000_000, 2**63 - 2
DAYS = 106_000_000


@examples(400)
@given(micros=st.integers(FIRST, LAST) | st.integers(-(10**17), 10**18))
def test_a_time_is_written_and_read_as_duckdb_does(micros: int) -> None:
    [(text,)] = duckdb.execute("SELECT CAST(make_timestamp(?) AS VARCHAR)", [micros]).fetchall()
    assert time_text(micros) == text
    assert microseconds_of(text) == micros


@examples(200)
@given(days=st.integers(-DAYS, DAYS) | st.integers(-1_000_000, 4_000_000))
def test_a_date_is_written_and_read_as_duckdb_does(days: int) -> None:
    [(text,)] = duckdb.execute("SELECT CAST(DATE '1970-01-01' + CAST(? AS INTEGER) AS VARCHAR)", [days]).fetchall()
    assert date_text(days) == text
    assert microseconds_of(text) == days * 86_400_000_000


@pytest.mark.parametrize(
    "text", ["2026-03-01 10:00:00+05:30", "0044-03-15 (BC) 00:00:00-00:00:30", "12000-01-01 00:00:00+00"]
)
def test_a_zone_is_read(text: str) -> None:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    [(micros,)] = con.execute("SELECT epoch_us(CAST(? AS TIMESTAMPTZ))", [text]).fetchall()
    assert microseconds_of(text) == micros


@pytest.mark.parametrize("text", ["soon", "2026-03-01 10:00", "2026-13-01 10:00:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        microseconds_of(text)


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("TIMESTAMP '2026-03-01 10:00:00'", datetime(2026, 3, 1, 10)),
        ("TIMESTAMP '10000-01-01'", "10000-01-01 00:00:00"),
        ("TIMESTAMP '0044-03-15 (BC)'", "0044-03-15 (BC) 00:00:00"),
        ("'-infinity'::TIMESTAMP", "-infinity"),
        ("'infinity'::TIMESTAMPTZ", "infinity"),
        ("TIMESTAMPTZ '20000-01-01 00:00:00.5+00'", "20000-01-01 00:00:00.5+00"),
        ("TIMESTAMP_S '10000-01-01'", "10000-01-01 00:00:00"),
        ("TIMESTAMP_MS '10000-01-01 00:00:00.25'", "10000-01-01 00:00:00.25"),
        ("DATE '20000-01-01'", "20000-01-01"),
        ("'infinity'::DATE", "infinity"),
        ("[DATE '20000-01-01', NULL, DATE '2026-03-01']", ["20000-01-01", None, date(2026, 3, 1)]),
        ("[DATE '20000-01-01']::DATE[1]", ["20000-01-01"]),
        ("{'a': 1, 'b': {'t': TIMESTAMP '10000-01-01'}}", {"a": 1, "b": {"t": "10000-01-01 00:00:00"}}),
        ("MAP {DATE '20000-01-01': [1, NULL]}", [("20000-01-01", [1, None])]),
    ],
)
def test_python_values(sql: str, value: Any) -> None:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    column: pa.ChunkedArray = con.sql(f"SELECT {sql} AS x UNION ALL SELECT NULL").to_arrow_table().column(0)
    assert python_values(column) == [value, None]


def test_nanoseconds() -> None:
    # With pandas, Arrow has a Python value for them.
    time = pa.scalar(1_772_359_200_123_456_780, pa.timestamp("ns"))
    assert arrow_time_text(time) == "2026-03-01 10:00:00.12345678"
