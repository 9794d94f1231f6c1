"""Values on their way to a client and back: as text and in binary they are what DuckDB has."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest

from sqlstream.errors import QueryError
from sqlstream.server.placeholders import parameter_count
from sqlstream.server.postgres.encoding import packed_numeric
from sqlstream.server.postgres.errors import ProtocolError
from sqlstream.server.postgres.messages import Body
from sqlstream.server.postgres.parameters import _numeric, literal
from tests.server.postgres.conftest import Served

_ID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
VALUES: dict[str, Any] = {
    "true": True,
    "NULL::INTEGER": None,
    "1::TINYINT": 1,
    "255::UTINYINT": 255,
    "-2::SMALLINT": -2,
    "65535::USMALLINT": 65535,
    "-3": -3,
    "4294967295::UINTEGER": 4294967295,
    "9223372036854775807": 2**63 - 1,
    "18446744073709551615::UBIGINT": Decimal(2**64 - 1),
    "170141183460469231731687303715884105727::HUGEINT": Decimal(2**127 - 1),
    "12345.678::DECIMAL(12,3)": Decimal("12345.678"),
    "-0.00012::DECIMAL(10,5)": Decimal("-0.00012"),
    "0::DECIMAL(5,2)": Decimal("0.00"),
    "10000::DECIMAL(9,0)": Decimal(10000),
    "1.5::FLOAT": 1.5,
    "1e300::DOUBLE": 1e300,
    "'-inf'::DOUBLE": -math.inf,
    "'héé'": "héé",
    "''": "",
    r"'\x00\xFF'::BLOB": b"\x00\xff",
    "DATE '2024-02-29'": date(2024, 2, 29),
    "TIME '10:11:12.5'": time(10, 11, 12, 500_000),
    "'10:00:00+02'::TIMETZ": time(10, tzinfo=datetime.strptime("+0200", "%z").tzinfo),
    "TIMESTAMP '1999-12-31 23:59:59.25'": datetime(1999, 12, 31, 23, 59, 59, 250_000),
    "TIMESTAMP_NS '2024-01-01 00:00:00.000001'": datetime(2024, 1, 1, microsecond=1),
    "TIMESTAMPTZ '2024-01-01 10:00:00+02'": datetime(2024, 1, 1, 8, tzinfo=UTC),
    "INTERVAL '3 days 4.5 seconds'": timedelta(days=3, seconds=4.5),
    "INTERVAL '-1 day' - INTERVAL '2 seconds'": timedelta(days=-1, seconds=-2),
    f"'{_ID}'::UUID": UUID(_ID),
    "{'a': 1, 'b': [1, 2]}": {"a": 1, "b": [1, 2]},
    "MAP {'k': 1}": {"k": 1},
    """'{"z": [1, "x"]}'::JSON""": {"z": [1, "x"]},
    "[1, NULL, 3]": [1, None, 3],
    "[]::INTEGER[]": [],
    "NULL::INTEGER[]": None,
    r"""['a,"b"', NULL, '', 'NULL', 'x y', '\', '{}']""": ['a,"b"', None, "", "NULL", "x y", "\\", "{}"],
    "[TIMESTAMP '2024-01-01', NULL]": [datetime(2024, 1, 1), None],
    "[true, false]": [True, False],
    "[1.5::DECIMAL(4,2)]": [Decimal("1.50")],
    "[INTERVAL '1 day']": [timedelta(days=1)],
    r"['\xAB'::BLOB]": [b"\xab"],
    f"['{_ID}'::UUID]": [UUID(_ID)],
    "[[1], [2, 3]]": [[1], [2, 3]],
    "[{'a': 1}]": [{"a": 1}],
    "'a'::ENUM ('a', 'b')": "a",
    "'101'::BIT": "101",
}


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_each_type_arrives_as_what_it_is(served: Served, binary: bool) -> None:
    with served.connect() as con, con.cursor(binary=binary) as cursor:
        query = "SELECT " + ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(VALUES))
        row = cursor.execute(query.encode()).fetchone()
    assert row is not None
    assert dict(zip(VALUES, row, strict=True)) == VALUES


def test_moments_without_end(served: Served) -> None:
    # Python has no such dates: psycopg says what it was sent.
    for binary in (False, True):
        with served.connect() as con, con.cursor(binary=binary) as cursor:
            for value in ("'infinity'::TIMESTAMP", "'-infinity'::DATE", "'infinity'::TIMESTAMPTZ"):
                with pytest.raises(psycopg.DataError, match=r"too (large|small)|infinity|year"):
                    cursor.execute(f"SELECT {value}".encode()).fetchone()
            row = cursor.execute(b"SELECT 'nan'::DOUBLE").fetchone()
            assert row is not None
            assert math.isnan(row[0])


PARAMETERS = [
    *(1, -5, 2**40, 2**70, "it's $1; --", "", 1.5, -1e-7, Decimal("1.25"), Decimal("-12345678.000001"), True, None),
    *(date(2024, 1, 2), time(1, 2, 3), datetime(1969, 1, 2, 3, 4, 5, 6), datetime(2024, 1, 2, tzinfo=UTC)),
    *(timedelta(days=1, seconds=3, microseconds=5), UUID(int=5), b"\x00\x01'\\", [1, 2], [1.5, None], [True]),
]


@pytest.mark.parametrize("placeholder", ["%t", "%b"], ids=["text", "binary"])
def test_a_parameter_comes_back(served: Served, placeholder: str) -> None:
    with served.connect() as con:
        query = "SELECT " + ", ".join([placeholder] * len(PARAMETERS))
        row = con.execute(query.encode(), PARAMETERS).fetchone()
    assert row is not None
    assert list(row) == PARAMETERS


def test_parameters_are_compared_limit_and_travel(served: Served) -> None:
    assert served.rows("SELECT k FROM counts WHERE n = %s OR k = %s ORDER BY k LIMIT %s", 1, "b", 1) == [("a",)]
    assert served.rows("SELECT k FROM counts WHERE k = ANY(%s)", ["b", "x,y"]) == [("b",)]
    assert served.rows("FROM counts AT (VERSION => %s)", 0) == [("a", 1)]
    # A text is compared as what it is compared with.
    assert served.rows("SELECT 1 WHERE TIMESTAMP '2024-01-01' < %s", "2024-01-02 00:00:00") == [(1,)]


def test_a_parameter_cannot_become_a_part_of_the_statement() -> None:
    # A digit below zero, and a sign before it, would be a comment.
    with pytest.raises(ProtocolError, match="no value of its type"):
        literal(1700, struct.pack(">hhHhh", 1, 0, 0x4000, 0, -1), binary=True)


def test_no_statement_has_more_parameters_than_a_message() -> None:
    assert parameter_count("SELECT 'é', $65535") == 65_535
    with pytest.raises(QueryError, match="there is no parameter"):
        parameter_count("SELECT $2147483647")
    assert Body(b"\xff\xff").count() == 65_535


@pytest.mark.parametrize(
    "text", ["0", "1", "-1", "10000", "0.0001", "-99999999.9999", "1e20", "0.10", "123456789012.5"]
)
def test_numerics_are_unpacked_as_they_were_packed(text: str) -> None:
    assert Decimal(_numeric(packed_numeric(text))) == Decimal(text)


def test_times_beyond_the_calendar_of_python(served: Served) -> None:
    texts = {
        "TIMESTAMP '0044-03-15 (BC) 01:02:03'": "0044-03-15 01:02:03 BC",
        "TIMESTAMPTZ '0044-03-15 (BC) 01:02:03+00'": "0044-03-15 01:02:03+00 BC",
        "DATE '0044-03-15 (BC)'": "0044-03-15 BC",
        "TIMESTAMP '12000-01-01'": "12000-01-01 00:00:00",
    }
    with served.connect() as con, con.cursor() as cursor:
        cursor.execute(("SELECT " + ", ".join(texts)).encode())
        assert cursor.pgresult is not None
        assert [cursor.pgresult.get_value(0, i) for i in range(len(texts))] == [t.encode() for t in texts.values()]


@pytest.mark.parametrize(
    ("oid", "form", "value", "sql"),
    [
        (1114, ">q", 316_537_804_800_000_000, "CAST('12030-09-07 00:00:00' AS TIMESTAMP)"),
        (1114, ">q", -63_500_000_000_000_000, "CAST('0014-10-07 (BC) 07:06:40' AS TIMESTAMP)"),
        (1114, ">q", 2**63 - 1, "CAST('infinity' AS TIMESTAMP)"),
        (1082, ">i", 5_000_000, "CAST('15689-07-14' AS DATE)"),
    ],
)
def test_parameters_beyond_the_calendar_of_python(oid: int, form: str, value: int, sql: str) -> None:
    assert literal(oid, struct.pack(form, value), binary=True) == sql


def test_a_parameter_beyond_all_years_is_refused() -> None:
    with pytest.raises(ProtocolError, match="beyond the years that are possible"):
        literal(1114, struct.pack(">q", 2**63 - 2), binary=True)
