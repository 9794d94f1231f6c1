"""${NAME} in scripts: replaced before the text is read, with errors at their place in the text as it was written."""

import pytest

from sqlstream.errors import BindError, ParseError, SourceText, SqlStreamError
from sqlstream.sql.nodes import CreateTable, Select, SetOption
from sqlstream.sql.statements import parse_script
from sqlstream.sql.variables import with_variables

ENVIRONMENT = {"DATA": "/data", "EMPTY": "", "QUOTED": 'it\'s "so"', "LONG": "a long value, on\ntwo lines", "N": "10"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("'${DATA}/bids'", "'/data/bids'"),
        ("${N}", "10"),
        ("'${MISSING:-here}' ${EMPTY}${N}", "'here' 10"),
        ("'${EMPTY:-not used}'", "''"),
        ("'${MISSING:-}'", "''"),
        ("'$${DATA} \\${DATA}'", "'${DATA} ${DATA}'"),
        ("'${QUOTED}' \"${QUOTED}\"", '\'it\'\'s "so"\' "it\'s ""so"""'),
        ("-- ${MISSING}\n/* ${ */ 1", "-- ${MISSING}\n/* ${ */ 1"),
        ('$${"json": 1}$$', '$${"json": 1}$$'),
        ("a$b '$5'", "a$b '$5'"),
    ],
)
def test_replaced(text: str, expanded: str) -> None:
    assert with_variables(SourceText("x", text), ENVIRONMENT).text == expanded


def test_a_variable_that_is_not_set() -> None:
    with pytest.raises(BindError) as caught:
        with_variables(SourceText("x", "SELECT 1;\nSELECT '${UNSET_ONE}'"), ENVIRONMENT)
    assert caught.value.render() == (
        'error: the environment variable "UNSET_ONE" is not set\n'
        "  --> x:2:9\n"
        "   |\n"
        " 2 | SELECT '${UNSET_ONE}'\n"
        "   |         ^^^^^^^^^^^^\n"
        "hint: Set it, or write a default: ${UNSET_ONE:-..}."
    )
    with pytest.raises(BindError, match='did you mean "QUOTED"'):
        with_variables(SourceText("x", "${QUOTEDD}"), ENVIRONMENT)


def test_what_is_no_variable() -> None:
    with pytest.raises(ParseError, match="not a variable"):
        with_variables(SourceText("x", "SELECT '${a-b}'"), ENVIRONMENT)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        # after a variable, in one, and over one
        ("SELECT ${N}, x FROM WHERE", [" --> x:1:21", " 1 | SELECT ${N}, x FROM WHERE", "^^^^^"]),
        ("SELECT '${LONG}' FROM WHERE", [" --> x:1:23", " 1 | SELECT '${LONG}' FROM WHERE", "^^^^^"]),
        ("SELECT 1 + ) ${LONG}", [" --> x:1:12", "^"]),
        ("SET a.b ${LONG}", [" --> x:1:5", "^^^^^^^^^^^"]),
    ],
)
def test_errors_point_at_the_text_as_written(monkeypatch: pytest.MonkeyPatch, text: str, lines: list[str]) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SqlStreamError) as caught:
        parse_script(SourceText("x", text))
    for line in lines:
        assert line in caught.value.render()


def test_in_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", "/data")
    text = "CREATE TABLE t (a INT) WITH ('path' = '${DATA}/x'); SET 'k' = '${DATA}'; SELECT a FROM ${T:-t}"
    table, option, query = parse_script(SourceText("x", text))
    assert isinstance(table, CreateTable)
    assert table.options["path"].value == "/data/x"
    assert str(table.options["path"].span) == "x:1:39"
    assert isinstance(option, SetOption)
    assert option.value.value == "/data"
    assert isinstance(query, Select)
    assert str(query.span) == "x:1:74"


def test_a_caret_under_a_whole_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "no such key")
    text = "SET '${KEY}' = '1'"
    with pytest.raises(ParseError) as caught:
        parse_script(SourceText("x", text))
    assert caught.value.render().splitlines()[3:5] == [f" 1 | {text}", "   |     ^^^^^^^^"]
