"""Values of JSON are parsed as few times as can be: what comes of them is what comes of asking one thing after the other."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.catalog import IGNORE, Column
from sqlstream.connectors.formats.json_lines import _json_key, _misfit, json_values
from sqlstream.connectors.formats.malformed import does_not_hold
from sqlstream.connectors.formats.whole_numbers import FLOATS, as_text, fraction
from sqlstream.connectors.read_plan import VALUE, WRONG
from sqlstream.duck import databases
from sqlstream.duck.sql import Relation, quote_name, quote_text
from tests.connectors.formats.reading_files import Con, table
from tests.properties.examples import examples

TYPES = {
    "b": "BIGINT",
    "i": "UTINYINT",
    "f": "BOOLEAN",
    "d": "DOUBLE",
    "n": "DECIMAL(6,2)",
    "it's": "VARCHAR",
    "json": "VARCHAR",
    "t": "TIMESTAMP",
    "z": "TIMESTAMP WITH TIME ZONE",
    "day": "DATE",
    "s": 'STRUCT(x INTEGER, "Y" VARCHAR[])',
    "o": 'STRUCT(x INTEGER, "Y" VARCHAR, k STRUCT(x BOOLEAN, y VARCHAR))',
    "l": "BIGINT[]",
    "m": "MAP(VARCHAR, DOUBLE)",
    "j": "JSON",
}
NO_OBJECT = "The value is not a JSON object"
TEXTS = (
    *("", "12", " 7 ", "-0", "1.5", "12.0", "1.2e1", "15e-1", "1e999", "0x1F", "1_000", "true", "nan", "x", "{", "é\0"),
    *(
        "2026-01-01",
        "2026-01-01 10:00:00.5",
        "2026-01-01T10:00:00+02:00",
        "9223372036854775808",
        "a text of some length",
    ),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-300, 300),
    st.sampled_from([2**63, 2**64, 10**30, -(2**63), 1.0, 1.5, -0.0, 1e-7, 1e300, 9999.999, math.nan, math.inf]),
    st.sampled_from(TEXTS),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "Y", "y", "k"]), inner, max_size=3)
    ),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from([*TYPES, "more", "B"]), VALUES, max_size=6).map(json.dumps)
NUMBERS = st.sampled_from(["1e5", "0.1e1", "-0.0", "1E2", "12.50", "1e-1", "5e18", "1e19", "-7", "256", "-0", "1.0e+2"])
# Where DOUBLE, in which numbers are read, ends to be exact, and the ends of BIGINT.
BORDERS = (
    *("4503599627370495", "4503599627370495.5", "4503599627370496", "4503599627370496.5", "4503599627370497.5"),
    *("9007199254740991", "9007199254740991.4", "9007199254740992", "9007199254740993", "9.007199254740993e15"),
    *("9223372036854775807", "9223372036854775808", "9223372036854775807.0", "2251799813685247.75", "1e400", "1e-400"),
)
RANGES = {
    "UTINYINT": (0, 2**8 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "UBIGINT": (0, 2**64 - 1),
    "HUGEINT": (-(2**127), 2**127 - 1),
}
TOLD = ["b", "i", "f", "it's", "json", "o"]
# Nearly all that a struct of texts, integers and booleans needs.
STRUCTS = st.builds(
    lambda x, k: json.dumps({"o": {"x": x, "Y": "y", "k": k}, "b": 1}),
    SCALARS,
    st.builds(lambda x: {"x": x, "y": "y"}, SCALARS) | st.just({"x": True, "y": "y"}) | VALUES,
)
NUMBERED = st.builds(
    lambda name, number: f'{{"{name}": {number}, "o": {{"x": {number}}}}}',
    st.sampled_from(TOLD),
    NUMBERS | st.sampled_from(BORDERS),
)
# Whole objects, and what is nearly one.
LINES = st.one_of(
    OBJECTS,
    OBJECTS,
    STRUCTS,
    NUMBERED,
    st.builds(lambda a, b: a[:-1] + ("," if len(a) > 2 < len(b) else "") + b[1:], OBJECTS, OBJECTS),
    st.builds(lambda text, end: text[: len(text) * end // 8], OBJECTS, st.integers(0, 7)),
    st.builds(lambda text, more: more.replace("@", text), OBJECTS, st.sampled_from([" @\n", "@ @", "\ufeff@", "[@]"])),
    st.sampled_from(
        ["null", "true", "5", '"{}"', "[]", "{}", '{"b": 1,}', '{"b": 01}', '{"b": NaN}', "no json", "/**/{}"]
    ),
    st.none(),
)


def asked_one_by_one(con: Con, columns: list[Column]) -> str:
    """Return the rows of `lines` with WRONG: a text is checked, made JSON, asked what it is, and then transformed."""
    objects = f"SELECT *, CASE WHEN json_valid({VALUE}) THEN CAST({VALUE} AS JSON) END AS _json FROM lines"
    typed = [(c, con.sqltype(c.type)) for c in columns]
    shape = quote_text(json.dumps({c.name: as_text(t, None) or c.type for c, t in typed}))
    items, suspicious, cases = ["kept"], [], []
    for c, t in typed:
        name = f"_row.{quote_name(c.name)}"
        item = name if as_text(t, None) is None else f"TRY_CAST({name} AS {c.type})"
        items.append(f"{item} AS {quote_name(c.name)}")
        nested = t.id in ("struct", "list", "map", "array")
        suspicious += ["true"] if nested else [f"{item} IS NULL", *filter(None, [fraction(name, t, floats=False)])]
        suspicious += [f"isinf({name})"] if t.id in FLOATS else []
        fault = _misfit(f"json_extract(_json, {_json_key(c.name)})", t)
        cases.append(f"WHEN {fault} THEN {quote_text(does_not_hold(c))}")
    wrong = f"CASE WHEN {' OR '.join(suspicious)} THEN CASE {' '.join(cases)} END END"
    no_row = "_json IS NULL OR json_type(_json) NOT IN ('OBJECT', 'NULL')"
    items.append(f"CASE WHEN {no_row} THEN {quote_text(NO_OBJECT)} ELSE {wrong} END AS {WRONG}")
    return f"SELECT {', '.join(items)} FROM (SELECT *, json_transform(_json, {shape}) AS _row FROM ({objects}))"


def shown(con: Con, sql: str) -> list[tuple[Any, ...]]:
    """Return rows as texts: NaN is not equal to itself."""
    return con.sql(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({sql}) ORDER BY ALL").fetchall()


def columns_of(names: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True)


@pytest.mark.slow
@given(st.lists(LINES, min_size=1, max_size=40), columns_of([*TYPES]) | columns_of(TOLD))
@examples(60)
def test_values_are_what_their_parts_are(lines: list[str | None], names: list[str]) -> None:
    same(lines, names)


@pytest.mark.slow
@given(st.lists(STRUCTS | NUMBERED, min_size=1, max_size=10))
@examples(40)
def test_a_struct_is_told_by_what_it_lacks(lines: list[str | None]) -> None:
    same(lines, ["o", "b"])


def same(lines: list[str | None], names: list[str]) -> None:
    """Assert that values are read as they are where one thing is asked after the other."""
    declared = table("json", {name: TYPES[name] for name in names})
    skipping = replace(declared, options={**declared.options, f"json.{IGNORE}": "true"})
    columns = list(declared.columns)
    with databases.passing() as con:
        con.register("lines", pa.table({VALUE: pa.array(lines, pa.string()), "kept": range(len(lines))}))
        expected = shown(con, asked_one_by_one(con, columns))
        items = ", ".join(["kept", *map(quote_name, names), WRONG])
        for read in (declared, skipping):
            found = json_values(con, Relation("lines"), read, columns, ["kept"])
            assert shown(con, f"SELECT {items} FROM {found}") == expected


@pytest.mark.parametrize("type_", ["UTINYINT", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT"])
def test_integers_are_exact_though_they_are_read_as_floating_point(type_: str) -> None:
    lowest, highest = RANGES[type_]
    numbers = [n + d for n in (0, 2**8, 2**31, 2**52, 2**53, 2**63, 2**64, lowest, highest) for d in (-1, 0, 1)]
    # What has a point or an exponent is a DOUBLE to the parser of JSON, whatever is made of it.
    real = [n for n in numbers if abs(n) <= 2**53]
    written = [str(n) for n in numbers] + [f"{n}.0" for n in real] + [f"{n}e0" for n in real]
    written += [f"{n}.5" for n in (0, 1, 255, 2**31, 2**51)] + ["-0.0", "15e-1", "150e-1", "true", "false", '"true"']
    lines = [f'{{"k": {text}, "other": {other}}}' for text in written for other in ("1", "true")]
    values = [number_of(text) for text in written for _ in range(2)]
    fitting = [n if n is not None and n.denominator == 1 and lowest <= n <= highest else None for n in values]
    # DuckDB takes no minus before an unsigned zero.
    held = [None if type_.startswith("U") and '"k": -0' in t else n for t, n in zip(lines, fitting, strict=True)]
    declared = table("json", {"k": type_})
    with databases.passing() as con:
        con.register("lines", pa.table({VALUE: pa.array(lines, pa.string()), "number": range(len(lines))}))
        found = json_values(con, Relation("lines"), declared, declared.columns, ["number"])
        rows = con.sql(f"SELECT k, {WRONG} IS NULL FROM {found} ORDER BY number").fetchall()
    assert [(k if fine else None) for k, fine in rows] == held


def number_of(text: str) -> Fraction | None:
    return None if "e" in text.strip('"')[-1:] else Fraction(text)


@pytest.mark.parametrize("written", ["-0.0", "-1e-400", '"-.0"', '"-1e-400"', '"\\u002d0.0"'])
def test_a_zero_with_a_sign_is_no_unsigned_number(written: str) -> None:
    for type_, found in (("UBIGINT", (None, False)), ("BIGINT", (0, True))):
        assert read_alone(f'{{"k": {written}}}', "k", type_) == found


@pytest.mark.parametrize("name", ["*", "**", 'a"b', "a\\b", "[*]", "$", "a.b", "/a"])
def test_a_column_with_any_name_is_exact(name: str) -> None:
    assert read_alone(json.dumps({name: 2**53 + 1, "other": 5}), name, "BIGINT") == (2**53 + 1, True)


def read_alone(line: str, name: str, type_: str) -> tuple[Any, bool]:
    """Return a value of an object, and whether it is one of its column."""
    declared = table("json", {name: type_})
    with databases.passing() as con:
        con.register("lines", pa.table({VALUE: [line]}))
        found = json_values(con, Relation("lines"), declared, declared.columns, [])
        [row] = con.sql(f"SELECT {quote_name(name)}, {WRONG} IS NULL FROM {found}").fetchall()
    return row[0], row[1]


@pytest.mark.parametrize("value", ["no json", "[1]", "5", '{"b": 1', None])
def test_a_value_that_is_no_object_is_malformed(value: str | None) -> None:
    for name in ("b", "it's", "s", "o"):
        declared = table("json", {name: TYPES[name]})
        with databases.passing() as con:
            con.register("lines", pa.table({VALUE: pa.array([value, "{}", "null"], pa.string())}))
            found = json_values(con, Relation("lines"), declared, declared.columns, [])
            assert con.sql(f"SELECT {WRONG} FROM {found}").fetchall() == [(NO_OBJECT,), (None,), (None,)]
