"""Window table functions: positional and named arguments, with and without TABLE( ), and what is wrong with them."""

import pytest
from sqlglot import exp

from sqlstream.errors import ParseError, SourceText, UnsupportedError
from sqlstream.sql.dialect import WindowTVF
from sqlstream.sql.nodes import Select
from sqlstream.sql.statements import parse_script, to_duckdb
from tests.kinds import of_type


def window(text: str) -> WindowTVF:
    [statement] = parse_script(SourceText("q", f"SELECT * FROM {text}"))
    return of_type(WindowTVF, of_type(Select, statement).query.find(WindowTVF))


def described(call: WindowTVF) -> tuple[str, str, str, list[str], str | None]:
    offset = call.args.get("offset")
    return (
        call.args["kind"],
        to_duckdb(call.this),
        to_duckdb(call.args["time_column"]),
        [to_duckdb(interval) for interval in call.args["intervals"]],
        offset and to_duckdb(offset),
    )


@pytest.mark.parametrize(
    "text",
    [
        "TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTES, INTERVAL '1' MINUTE)",
        "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTES, INTERVAL '1' MINUTE))",
        "table(tumble(table bid, descriptor(ts), interval '10' minutes, interval '1' minute))",
        "TUMBLE(DATA => TABLE bid, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' MINUTES, OFFSET => INTERVAL '1' MINUTE)",
        "TUMBLE(\"OFFSET\" => INTERVAL '1' MINUTE, size => INTERVAL '10' MINUTES, DATA => TABLE bid, TIMECOL => DESCRIPTOR(ts))",
        "TUMBLE(TIMECOL => DESCRIPTOR(ts), DATA => TABLE bid, SIZE => INTERVAL '10' MINUTES, `OFFSET` => INTERVAL '1' MINUTE)",
    ],
)
def test_all_ways_to_write_one_tumble(text: str) -> None:
    expected = ("TUMBLE", "bid", "ts", ["INTERVAL '10' MINUTES"], "INTERVAL '1' MINUTE")
    assert described(window(text)) == expected
    assert window(f"{text} AS w").alias == "w"
    assert window(f"{text} w (a, b)").alias_column_names == ["a", "b"]


def test_intervals_are_in_positional_order() -> None:
    hop = window(
        "HOP(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '2' HOUR, SLIDE => INTERVAL '1' HOUR)"
    )
    assert described(hop)[3] == ["INTERVAL '1' HOUR", "INTERVAL '2' HOUR"]
    cumulate = window("CUMULATE(TABLE t, DESCRIPTOR(t.ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR)")
    assert described(cumulate) == ("CUMULATE", "t", "t.ts", ["INTERVAL '1' HOUR", "INTERVAL '2' HOUR"], None)


@pytest.mark.parametrize("keys", ["(a, t.b)", "a"])
def test_session_keys(keys: str) -> None:
    session = window(f"SESSION(TABLE t PARTITION BY {keys}, DESCRIPTOR(ts), INTERVAL '5' MINUTES)")
    assert [to_duckdb(key) for key in session.args["partition_by"]] == keys.strip("()").split(", ")
    named = window(
        f"SESSION(DATA => TABLE t PARTITION BY {keys}, GAP => INTERVAL '5' MINUTES, TIMECOL => DESCRIPTOR(ts))"
    )
    assert to_duckdb(named) == to_duckdb(session)


@pytest.mark.parametrize("data", ["(SELECT * FROM t WHERE a > 1)", "TABLE (SELECT * FROM t WHERE a > 1)"])
def test_subquery_as_data(data: str) -> None:
    call = window(f"TUMBLE({data}, DESCRIPTOR(ts), INTERVAL '1' DAY)")
    assert isinstance(call.this, exp.Subquery)
    assert to_duckdb(call.this) == "(SELECT * FROM t WHERE a > 1)"


def test_windows_in_joins_and_in_from_first_queries() -> None:
    tumble = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)"
    [statement] = parse_script(
        SourceText("q", f"FROM {tumble} a JOIN TABLE({tumble}) AS b USING (k), {tumble} c SELECT 1")
    )
    query = of_type(Select, statement).query
    assert isinstance(query.args["from_"].this, WindowTVF)
    assert [type(join.this) for join in query.args["joins"]] == [WindowTVF, WindowTVF]
    assert to_duckdb(query) == f"SELECT 1 FROM {tumble} AS a JOIN {tumble} AS b USING (k), {tumble} AS c"


NAMES = "Existing arguments: DATA, TIMECOL, SIZE, OFFSET."
USAGE = "Write TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES)."


@pytest.mark.parametrize(
    ("arguments", "wrong", "message", "hint"),
    [
        ("bid, DESCRIPTOR(ts), INTERVAL '1' DAY", "bid", 'expected TABLE and the name of a table, found "bid"', USAGE),
        ("TABLE bid, ts, INTERVAL '1' DAY", "ts", 'expected DESCRIPTOR(time column), found "ts"', USAGE),
        ("TABLE bid, DESCRIPTOR(), INTERVAL '1' DAY", ")", 'expected a column, found ")"', None),
        ("TABLE bid, DESCRIPTOR(a, b), INTERVAL '1' DAY", ",", 'expected ")", found ","', None),
        ("TABLE bid, DESCRIPTOR(ts), 10", "10", 'expected an INTERVAL for SIZE, found "10"', USAGE),
        ("TABLE bid, DESCRIPTOR(ts)", ")", "TUMBLE needs the argument SIZE", USAGE),
        ("SIZE => INTERVAL '1' DAY", ")", "TUMBLE needs the argument DATA", USAGE),
        ("DATA => TABLE bid, DATA => TABLE b", "DATA", "the argument DATA is given twice", USAGE),
        ("TABLE bid, DATA => TABLE b", "DATA", "the argument DATA is given twice", USAGE),
        ("DATA => TABLE bid, ts", "ts", 'expected a named argument, found "ts"', NAMES),
        ("SIZ => INTERVAL '1' DAY", "SIZ", "TUMBLE has no argument SIZ", 'did you mean "SIZE"?'),
        ("TABLE b, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '1' DAY, 5", "5", "TUMBLE takes at most 4 arguments", USAGE),
        ("TABLE b, DESCRIPTOR(ts), INTERVAL '1' DAY", "the end", "", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "other, "])
def test_wrong_arguments(before: str, arguments: str, wrong: str, message: str, hint: str | None) -> None:
    closing = "" if wrong == "the end" else ")"
    with pytest.raises(ParseError) as caught:
        window(f"{before}TUMBLE({arguments}{closing}")
    if wrong == "the end":
        assert caught.value.message == 'expected ")", found the end of the statement'
        return
    assert caught.value.span is not None
    assert (caught.value.message, caught.value.span.text, caught.value.hint) == (message, wrong, hint)


def test_partition_by_is_for_sessions() -> None:
    with pytest.raises(UnsupportedError, match="PARTITION BY in TUMBLE"):
        window("TUMBLE(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' DAY)")
