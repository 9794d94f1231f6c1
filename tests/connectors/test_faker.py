"""Rows that `faker` makes up: expressions of Datafaker, types, and the same rows each time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from sqlstream.connectors.faker.expressions import METHODS, NAMES, ValueContext, parse, time_of
from sqlstream.connectors.faker.patterns import matching
from sqlstream.errors import BindError, UnsupportedError
from sqlstream.testing import Stream


def table(columns: str, expressions: Mapping[str, str], more: str = "", *, rows: int = 50) -> str:
    quoted = {name: text.replace("'", "''") for name, text in expressions.items()}
    fields = "".join(f", 'fields.{name}' = '{text}'" for name, text in quoted.items())
    return f"CREATE TABLE t ({columns}) WITH ('connector' = 'faker', 'number-of-rows' = '{rows}'{fields}{more});"


def rows_of(
    columns: str, expressions: Mapping[str, str], more: str = "", *, select: str = "*"
) -> list[tuple[Any, ...]]:
    with Stream(f"{table(columns, expressions, more)} SELECT {select} FROM t;") as stream:
        stream.finish()
        return stream.rows()


# Those of tutorials and cookbooks, with what they make.
EXPRESSIONS = {
    "#{Name.fullName}": r"\S+ .+",
    "#{Name.first_name} #{name.LastName}": r"\S+ \S+",
    "#{Internet.publicIpV4Address}": r"(\d{1,3}\.){3}\d{1,3}",
    "#{Internet.emailAddress}": r"\S+@\S+",
    "#{number.numberBetween '0','1000'}": r"\d{1,3}",
    "#{number.numberBetween '7','7'}": "7",
    "#{Number.randomDouble '2','1','5'}": r"[1-5]\.\d\d",
    "#{date.past '15','SECONDS'}": r"2026-01-0\d \d\d:\d\d:\d\d\.\d{3}",
    "#{date.past '15','5','SECONDS'}": r"2026-01-0\d \d\d:\d\d:\d\d\.\d{3}",
    "#{date.future '2','DAYS'}": r"2026-01-0\d \d\d:\d\d:\d\d\.\d{3}",
    "#{date.between '2025-01-01','2025-01-02'}": r"2025-01-01 \d\d:\d\d:\d\d\.\d{3}",
    "#{Options.option 'a','b','it''s'}": "a|b|it's",
    "#{regexify '(a|b){1}'}": "a|b",
    "#{regexify '(GET|POST|PUT){1}'} #{regexify '(/a\\.html|/b\\.html){1}'}": r"(GET|POST|PUT) /[ab]\.html",
    "#{numerify '##-#'}": r"\d\d-\d",
    "#{bothify '??-##'}": r"[a-z]{2}-\d\d",
    "#{bool.bool}": "true|false",
    "#{Commerce.price '5','6'}": r"[56]\.\d\d",
    "#{Address.city}, #{Address.country}": ".+, .+",
    "fixed": "fixed",
    "": "",
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(expression: str) -> None:
    make = parse(expression)
    for n in range(20):
        assert re.fullmatch(EXPRESSIONS[expression], make(context(n))), expression


def context(n: int) -> ValueContext:
    from faker import Faker

    fake = Faker("en_US", use_weighting=False).factories[0]
    fake.random = Random(n)
    return ValueContext(fake.random, fake, time_of(1_767_484_800_000_000))


def test_every_name_makes_a_text() -> None:
    for name in METHODS:
        assert parse(f"#{{{name}}}")(context(1)), name
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("#{Name.fulName}", 'did you mean "name.fullname"?'),
        ("#{Name.fullName", "is not as #{Name.fullName}"),
        ("#{number.numberBetween '0'}", "has arguments that do not fit"),
        ("#{number.numberBetween 'a','b'}", "has arguments that do not fit"),
        ("#{date.past '15','FORTNIGHTS'}", "has arguments that do not fit"),
        ("#{Options.option}", "has arguments that do not fit"),
        ("#{regexify '(a'}", '")" is missing'),
        ("#{regexify 'a)'}", "is not expected there"),
        ("#{regexify '(?=a)'}", "no group that can be made up"),
        ("#{regexify '*'}", "has nothing to repeat"),
        ("#{regexify '[z-a]'}", "is no range"),
        ("#{regexify 'a{2,1}'}", "ends before it begins"),
    ],
)
def test_wrong_expressions(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(expression)
    with pytest.raises(BindError, match=r'option "fields\.a\.expression"'):
        Stream(table("a STRING", {"a.expression": expression}))


@pytest.mark.parametrize(
    "pattern",
    ["", "abc", "(a|b|)", "[a-c]{2,4}x?", r"\d{3}\.\w+", "[^a-z]", "a*b+?", r"[\d_-]{5}", "(?:ab){2}", ".", "^a$"],
)
def test_texts_match_their_pattern(pattern: str) -> None:
    make = matching(pattern)
    texts = [make(Random(n)) for n in range(50)]
    assert all(re.fullmatch(pattern, text) for text in texts)


def test_types() -> None:
    columns = """i INT, d DECIMAL(10, 2), ok BOOLEAN, at TIMESTAMP(3), z TIMESTAMP_LTZ(3), day DATE, s STRING, a ARRAY<INT>,
        r ROW<x INT, y STRING>, m MAP<STRING, INT>, n STRING"""
    number = "#{number.numberBetween '0','9'}"
    expressions = {
        **{f"{name}.expression": number for name in ("i", "a", "r.x", "m.value")},
        "d.expression": "#{commerce.price}",
        "ok.expression": "#{bool.bool}",
        "day.expression": "#{date.birthday}",
        "at.expression": "#{date.past '1','MINUTES'}",
        "z.expression": "#{date.past '1','MINUTES'}",
        "s.expression": "#{Name.name}",
        "r.y.expression": "#{regexify '[a-z]'}",
        "m.key.expression": "k",
        "n.expression": "x",
        "n.null-rate": "0.5",
        "a.length": "3",
        "m.length": "2",
    }
    rows = rows_of(columns, expressions)
    assert len(rows) == 50
    assert rows == rows_of(columns, expressions)
    assert rows != rows_of(columns, expressions, ", 'seed' = '1'")
    assert all(len(row[7]) == 3 and set(row[8]) == {"x", "y"} and list(row[9]) == ["k"] for row in rows)
    assert {row[10] for row in rows} == {"x", None}


def test_a_restart_goes_on_with_the_next_row() -> None:
    script = table(
        "i INT, s STRING", {"i.expression": "#{number.numberBetween '0','9'}", "s.expression": "#{Name.name}"}
    )
    with Stream(f"{script} CREATE TABLE o (i INT, s STRING); INSERT INTO o SELECT i, s FROM t") as stream:
        stream.finish()
        assert sorted(stream.query("SELECT * FROM o")) == sorted(
            rows_of(
                "i INT, s STRING", {"i.expression": "#{number.numberBetween '0','9'}", "s.expression": "#{Name.name}"}
            )
        )
        assert stream.verify("o")


@pytest.mark.parametrize(
    ("columns", "expressions", "message"),
    [
        ("a STRING, b INT", {"a.expression": "x"}, 'column "b" has no expression'),
        ("a STRING", {"a.expression": "x", "b.expression": "x"}, 'option "fields.b.expression" does not exist'),
        ("a STRING", {"a.expression": "x", "a.lenth": "1"}, 'option "fields.a.lenth" does not exist'),
        ("a STRING", {"a.expression": "x", "a.null-rate": "2"}, '"2" is not between 0 and 1'),
        ("a INT", {"a.expression": "#{Name.name}"}, 'of column "a" is no INTEGER'),
        ("a ROW<b INT>", {"a.expression": "1"}, 'column "a.b" has no expression'),
    ],
)
def test_what_is_refused(columns: str, expressions: Mapping[str, str], message: str) -> None:
    with pytest.raises(BindError) as raised:
        Stream(table(columns, expressions))
    assert message in raised.value.message


def test_nested_arrays_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="a made-up column of type"):
        Stream(table("a ARRAY<ARRAY<INT>>", {"a.expression": "1"}))
