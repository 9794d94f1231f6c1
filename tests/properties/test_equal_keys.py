"""Values that SQL calls equal are one key: they have one bucket, however they are written and stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.catalog import Column
from sqlstream.duck import databases, key_hash
from sqlstream.duck.sql import Relation, quote_text
from sqlstream.duck.types import encoded
from tests.properties.examples import examples

pytestmark = pytest.mark.slow

# Of each type that a key can have, texts of values; some of them are equal.
TEXTS: Mapping[str, Sequence[str]] = {
    "BOOLEAN": ("true", "t", "1", "false", "0"),
    "TINYINT": ("1", "01", "-1", "0", "-0"),
    "SMALLINT": ("1", "1.0", "-1"),
    "INTEGER": ("1", "1e0", "7"),
    "BIGINT": ("1", "0x1", "9223372036854775807"),
    "HUGEINT": ("1", "1.0", "170141183460469231731687303715884105727"),
    "UTINYINT": ("1", "01", "255"),
    "UBIGINT": ("1", "18446744073709551615", "18446744073709551615.0"),
    "UHUGEINT": ("1", "01", "340282366920938463463374607431768211455"),
    "FLOAT": ("0", "-0.0", "1e-50", "nan", "-nan", "1.5", "15e-1"),
    "DOUBLE": ("0", "-0.0", "1e-400", "nan", "-nan", "1.5", "15e-1", "inf"),
    "DECIMAL(9,2)": ("1.5", "1.50", "-0.00", "0"),
    "DECIMAL(38,10)": ("1.5", "1.50", "-0.00", "0"),
    "VARCHAR": ("a", "A", "", "é", "e\u0301"),
    "BLOB": ("a", "\\x61", "b"),
    "UUID": ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B8109DAD11D180B400C04FD430C8"),
    "BIT": ("101", "0101"),
    "JSON": ('{"a":1}', '{ "a": 1}'),
    "ENUM('a', 'b')": ("a", "b"),
    "DATE": ("2026-01-02", "2026-1-2", "infinity"),
    "TIME": ("10:00", "10:00:00.000", "24:00:00"),
    "TIME WITH TIME ZONE": ("12:00:00+02", "12:00:00+02:00", "11:00:00+01", "10:00:00+00"),
    "TIMESTAMP": ("2026-01-02", "2026-01-02 00:00:00", "infinity"),
    "TIMESTAMP_S": ("2026-01-02", "2026-01-02 00:00:00"),
    "TIMESTAMP_MS": ("2026-01-02", "2026-01-02 00:00:00.0001"),
    "TIMESTAMP_NS": ("2026-01-02", "2026-01-02 00:00:00.000000000"),
    "TIMESTAMP WITH TIME ZONE": ("2026-01-02 02:00:00+02", "2026-01-02 00:00:00+00", "2026-01-01 19:00:00-05"),
    "INTERVAL": (
        *("1 month", "30 days", "720 hours", "1 month -1 hour", "29 days 23 hours", "-1 hour", "-60 minutes"),
        *("1 year", "12 months", "360 days", "0 days", "1 day -24 hours", "100000000 years", "1 day -0.5 seconds"),
    ),
}
HOLDERS: Mapping[str, tuple[str, str]] = {
    "plain": ("{}", "{}"),
    "list": ("{}[]", "[{}, NULL]"),
    "array": ("{}[1]", "[{}]"),
    "row": ('STRUCT("a b" {}, c INTEGER)', "{{'a b': {}, 'c': 1}}"),
    "map": ("MAP(INTEGER, {})", "MAP {{1: {}}}"),
    "rows of lists": ("STRUCT(l {}[])[]", "[{{'l': [{}]}}]"),
}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str, str]:
    """Draw a type, and the SQL of two of its values."""
    inner = draw(st.sampled_from(sorted(TEXTS)))
    type, value = HOLDERS[draw(st.sampled_from(sorted(HOLDERS)))]
    found = [
        value.format(f"CAST({quote_text(text)} AS {inner})")
        for text in draw(st.tuples(st.sampled_from(TEXTS[inner]), st.sampled_from(TEXTS[inner])))
    ]
    return type.format(inner), found[0], found[1]


@examples(400)
@given(pairs())
def test_equal_values_share_a_bucket(drawn: tuple[str, str, str]) -> None:
    type, one, other = drawn
    column = Column("k", type)
    hashed = key_hash.key_hash([("k", key_hash.hashed_type(type))])
    values = Relation(f"(SELECT CAST({one} AS {type}) AS k UNION ALL SELECT CAST({other} AS {type}))")
    with databases.passing() as con:
        key_hash.register(con)
        [(keys,)] = con.execute(f"SELECT count(*) FROM (SELECT DISTINCT k FROM {values})").fetchall()
        [(buckets,)] = con.execute(f"SELECT count(DISTINCT {hashed}) FROM ({encoded([column], values)})").fetchall()
    assert buckets <= keys
