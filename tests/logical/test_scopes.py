"""What names mean: columns, struct fields, aliases, in any case."""

from __future__ import annotations

import pytest
from sqlglot import exp

from sqlstream.errors import BindError, SourceText
from sqlstream.logical.bind.scope import Scope, unique
from sqlstream.logical.plan.expressions import Field
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.statements import parse_expression

FIELDS = (Field("a", "STRUCT(b STRUCT(c INTEGER))"), Field("Price", "DOUBLE"), Field("t", "STRUCT(price INTEGER)"))


def resolved(text: str, aliases: tuple[str, ...] = (), alias: str = "t") -> str | None:
    source = SourceText("test", text)
    column = parse_expression(source)
    assert isinstance(column, exp.Column | exp.Dot)
    names = dict.fromkeys(aliases, exp.Null())
    scope = Scope(alias, FIELDS, source, 'table "t"', names)
    assert isinstance(column, exp.Column)
    bound = scope.resolve(column)
    return None if bound is None else to_duckdb(bound)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("a", '"a"'),
        ("PRICE", '"Price"'),
        ("t.Price", '"Price"'),
        ("T.a", '"a"'),
        ("a.b", "STRUCT_EXTRACT(\"a\", 'b')"),
        ("a.b.c", "STRUCT_EXTRACT(STRUCT_EXTRACT(\"a\", 'b'), 'c')"),
        ("t.a.b.c", "STRUCT_EXTRACT(STRUCT_EXTRACT(\"a\", 'b'), 'c')"),
        # The table's column goes before the field of a column of the table's name.
        ("t.price", '"Price"'),
        ("t.t.price", "STRUCT_EXTRACT(\"t\", 'price')"),
    ],
)
def test_a_path_is_a_column_of_the_table_or_a_field_of_a_column(text: str, sql: str) -> None:
    assert resolved(text) == sql


def test_a_column_goes_before_an_alias() -> None:
    assert resolved("price", aliases=("price", "other")) == '"Price"'
    assert resolved("other", aliases=("price", "other")) is None


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("pryce", 'column "pryce" does not exist in table "t"', 'did you mean "Price"?'),
        ("v.pryce", 'column "pryce" does not exist in table "t"', 'did you mean "Price"?'),
        ("u.price", '"u" is neither a table nor a column here', "existing names: v, a, Price, t"),
    ],
)
def test_a_name_that_does_not_exist(text: str, message: str, hint: str) -> None:
    with pytest.raises(BindError) as error:
        resolved(text, alias="v")
    assert (error.value.message, error.value.hint) == (message, hint)
    assert error.value.span is not None
    assert error.value.span.text == text


def test_equal_names_are_numbered_past_those_that_are_taken() -> None:
    assert unique(["a", "A", "a_1", "a"]) == ["a", "A_1", "a_1_1", "a_2"]
