"""MIGRATE STATE and DESCRIBE STATE: what they name, where their queries stand, and what is no such statement."""

from __future__ import annotations

import pytest

from sqlstream.errors import ParseError, SourceText
from sqlstream.sql.migrations import only_migrations
from sqlstream.sql.nodes import Describe, DescribeState, MigrateState
from sqlstream.sql.statements import parse_script

SCRIPT = """
MIGRATE STATE shop.totals AS
  WITH a AS (SELECT 1 AS k) -- a comment; with a semicolon
  SELECT k, ';' AS s FROM a;
migrate state "My Job".joined."left" AS FROM x.y
"""


def test_a_statement_names_an_operator_or_one_of_its_tables() -> None:
    source = SourceText("repair.sql", SCRIPT)
    first, second = only_migrations(source, parse_script(source))
    assert (first.job.text, first.operator.text, first.table) == ("shop", "totals", None)
    assert first.query.text == "WITH a AS (SELECT 1 AS k) -- a comment; with a semicolon\n  SELECT k, ';' AS s FROM a"
    assert (second.job.text, second.operator.text, second.table and second.table.text) == ("My Job", "joined", "left")
    assert second.query.text == "FROM x.y"


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("MIGRATE STATE shop AS SELECT 1", 'expected "." and the name of an operator, found "AS"', "AS"),
        ("MIGRATE STATE shop.totals SELECT 1", 'expected AS, found "SELECT"', "SELECT"),
        ("MIGRATE STATE shop.totals AS", "expected a SELECT over the state that there is, found the end", ""),
        ("MIGRATE shop.totals AS SELECT 1", 'expected STATE, found "shop"', "shop"),
        (
            "SET 'a' = 'b'; MIGRATE STATE a.b AS SELECT 1",
            "a file of migrations has MIGRATE STATE statements only",
            "SET",
        ),
        ("-- nothing", "there is no MIGRATE STATE statement", ""),
    ],
)
def test_what_is_none(text: str, message: str, at: str) -> None:
    source = SourceText("repair.sql", text)
    with pytest.raises(ParseError) as refused:
        only_migrations(source, parse_script(source))
    assert message in refused.value.message
    assert refused.value.span is not None
    assert refused.value.span.text == at


def test_a_table_may_be_called_state() -> None:
    [asked] = parse_script(SourceText("a", "DESCRIBE STATE"))
    assert isinstance(asked, Describe)
    [asked] = parse_script(SourceText("a", "DESC STATE shop.totals"))
    assert isinstance(asked, DescribeState)
    assert (asked.job.text, asked.operator and asked.operator.text) == ("shop", "totals")
    assert isinstance(only_migrations(SourceText("b", SCRIPT), parse_script(SourceText("b", SCRIPT)))[0], MigrateState)
