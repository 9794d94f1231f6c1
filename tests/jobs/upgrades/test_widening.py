"""Wider types hold what narrower ones hold; the dates that a TIMESTAMP does not hold are refused, and the job stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import duckdb
import pytest

from sqlstream.errors import UsageError
from sqlstream.jobs.upgrades.changes import AdaptedOperator, Change, UnadaptableOperator
from sqlstream.jobs.upgrades.comparing import compare
from sqlstream.jobs.upgrades.widening import is_wider, unfit, widened
from tests.jobs.savepoint_jobs import open_session
from tests.jobs.upgrades.test_comparing import record
from tests.jobs.upgrades.test_upgraded_sinks import run, start
from tests.jobs.upgrades.upgrade_jobs import rows_of
from tests.kinds import last_job

_WHOLE = {
    "TINYINT": (-(2**7), 2**7 - 1),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "HUGEINT": (-(2**127), 2**127 - 1),
    "UTINYINT": (0, 2**8 - 1),
    "USMALLINT": (0, 2**16 - 1),
    "UINTEGER": (0, 2**32 - 1),
    "UBIGINT": (0, 2**64 - 1),
    "UHUGEINT": (0, 2**128 - 1),
}
_DECIMALS = ((3, 0), (5, 2), (9, 2), (18, 2), (18, 9), (19, 0), (20, 0), (38, 0), (38, 10), (38, 38))
FARTHEST = "5881580-07-10"
# The values of each type at its ends, and those that other types are likely to change, as SQL.
VALUES: dict[str, Sequence[str]] = {
    **{type: [str(low), str(high), str(high - 1)] for type, (low, high) in _WHOLE.items()},
    **{
        f"DECIMAL({width},{scale})": [f"{sign}{nines[: width - scale]}.{nines[width - scale :]}" for sign in ("", "-")]
        for width, scale in _DECIMALS
        for nines in ["9" * width]
    },
    "FLOAT": ["3.4028235e38", "-3.4028235e38", "1.1754944e-38", "1e-45", "0.1", "-0.0", "inf", "-inf", "nan"],
    "DOUBLE": ["1.7976931348623157e308", "5e-324", "0.1", "-0.0", "inf", "nan"],
    "BOOLEAN": ["true", "false"],
    "VARCHAR": ["", "ä"],
    "JSON": ['{"a": [1, null]}', "null", "1e400", '" "'],
    "ENUM('a', 'b c')": ["a", "b c"],
    "DATE": ["2026-01-01", "294247-01-10", "290309-12-22 (BC)", "0001-01-01", "infinity", "-infinity"],
    "TIMESTAMP": [
        "294247-01-10 04:00:54.775806",
        "290309-12-22 (BC) 00:00:00",
        "infinity",
        "2026-01-01 00:00:00.000001",
    ],
    "TIMESTAMP_S": ["2026-01-01 00:00:01"],
    "TIMESTAMP_MS": ["2026-01-01 00:00:00.001"],
    "TIMESTAMP_NS": ["2026-01-01 00:00:00.000000001"],
    "TIMESTAMP WITH TIME ZONE": ["2026-01-01 00:00:00+00"],
    "TIME": ["23:59:59.999999"],
    "INTERVAL": ["1 month"],
    "UUID": ["00000000-0000-0000-0000-000000000000"],
}
WIDER = [pair for pair in product(VALUES, VALUES) if is_wider(*pair)]


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    return con


@pytest.mark.parametrize(("old", "new"), WIDER)
def test_a_wider_type_holds_the_ends_of_a_type(con: duckdb.DuckDBPyConnection, old: str, new: str) -> None:
    for text in VALUES[old]:
        value = f"CAST('{text}' AS {old})"
        for narrow, wide, before in ((value, new, old), (f"[{value}, NULL]", f"{new}[]", f"{old}[]")):
            sql = widened("v", before, wide, "x")
            rows = con.execute(
                f"SELECT CAST({sql} AS {before}) IS NOT DISTINCT FROM v, typeof({sql}) FROM (SELECT {narrow} AS v)"
            ).fetchall()
            assert rows == [(True, wide)], f"{text}: {old} to {new}"
    assert con.execute(f"SELECT {widened('v', old, new, 'x')} FROM (SELECT CAST(NULL AS {old}) AS v)").fetchall() == [
        (None,)
    ]


def test_what_is_wider() -> None:
    assert ("DATE", "TIMESTAMP") in WIDER
    assert ("FLOAT", "DOUBLE") in WIDER
    # These round, overflow, or depend on the time zone.
    for pair in (
        ("HUGEINT", "DECIMAL(38,0)"),
        ("HUGEINT", "DOUBLE"),
        ("BIGINT", "DOUBLE"),
        ("DECIMAL(18,2)", "DOUBLE"),
        ("DECIMAL(9,2)", "FLOAT"),
        ("DATE", "TIMESTAMP WITH TIME ZONE"),
        ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
        ("TIMESTAMP", "TIMESTAMP_NS"),
        ("TIMESTAMP_S", "TIMESTAMP"),
    ):
        assert pair not in WIDER


@pytest.mark.parametrize("text", ["300000-01-01", FARTHEST, "290310-01-01 (BC)", "5877642-06-25 (BC)"])
def test_a_date_that_a_timestamp_does_not_hold_is_named(con: duckdb.DuckDBPyConnection, text: str) -> None:
    date = f"CAST('{text}' AS DATE)"
    for value, type, shown in (
        (date, "DATE", text),
        (f"[DATE '2026-01-01', {date}]", "DATE[]", f"[2026-01-01, {repr(text) if 'BC' in text else text}]"),
    ):
        wide = type.replace("DATE", "TIMESTAMP")
        sql = widened("v", type, wide, 'table "t": column d')
        with pytest.raises(duckdb.Error) as error:
            con.execute(f"SELECT {sql} FROM (SELECT {value} AS v)").fetchall()
        assert unfit(error.value) == f'table "t": column d has the {type} {shown}, which {wide} does not hold'


def test_other_errors_are_no_values_that_do_not_fit(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error) as error:
        con.execute("SELECT CAST('x' AS INTEGER)").fetchall()
    assert unfit(error.value) is None


# -- jobs

READ = """
CREATE TABLE t (k BIGINT, d {type})
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
"""
STATE = (
    READ
    + """
CREATE TABLE latest (k BIGINT, d {type}, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO latest WITH by_key AS (SELECT k, max(d) AS d FROM t GROUP BY k) SELECT k, d FROM by_key;
"""
)
ROWS = (
    READ.format(type="DATE")
    + "CREATE TABLE out (k BIGINT, d {type}); INSERT INTO out SELECT k, CAST(d AS {type}) FROM t;"
)
NAMED = {
    "state": (STATE, 'Operator "by_key": "d" has the DATE 300000-01-01, which TIMESTAMP does not hold.'),
    "rows": (ROWS, 'Table "out": column d has the DATE 300000-01-01, which TIMESTAMP does not hold.'),
}


def put(folder: Path, name: str, *dates: str) -> None:
    (folder / "in").mkdir(exist_ok=True)
    with duckdb.connect() as con:
        rows = ", ".join(f"({k}, DATE '{date}')" for k, date in enumerate(dates))
        con.sql(f"FROM (VALUES {rows}) AS v(k, d)").write_parquet(str(folder / f".{name}"))
    (folder / f".{name}").rename(folder / "in" / f"{name}.parquet")


def ends(folder: Path, table: str) -> list[tuple[object, ...]]:
    """Return the rows of a table, with dates as text."""
    return rows_of(folder, f"SELECT k, CAST(CAST(d AS DATE) AS VARCHAR) FROM {table}")


@pytest.mark.parametrize("kind", NAMED)
def test_a_job_with_a_date_that_does_not_fit_stays_as_it_was(tmp_path: Path, kind: str) -> None:
    script, named = NAMED[kind]
    table = "latest" if kind == "state" else "out"
    put(tmp_path, "a", "2026-01-01", "300000-01-01")
    run(tmp_path, script.format(type="DATE"), 2)
    with open_session(tmp_path) as session:
        with pytest.raises(UsageError) as refused:
            start(session, script.format(type="TIMESTAMP"), upgrade=True)
        assert refused.value.message == 'job "j" cannot go on with this query'
        assert refused.value.detail == f"{named}\nNothing was changed."
        assert "Leave the type of the column as it is." in str(refused.value.hint)
        assert session.query("FROM sqlstream.savepoints").fetchall() == []
    put(tmp_path, "b", "2026-01-02")
    run(tmp_path, script.format(type="DATE"), 3)
    first = (0, "2026-01-02")
    rest = [] if kind == "state" else [(0, "2026-01-01")]
    assert ends(tmp_path, table) == sorted([*rest, first, (1, "300000-01-01")])


@pytest.mark.parametrize("kind", NAMED)
def test_a_job_with_other_dates_goes_on(tmp_path: Path, kind: str) -> None:
    script, table = NAMED[kind][0], "latest" if kind == "state" else "out"
    put(tmp_path, "a", "2026-01-01", "294247-01-10")
    run(tmp_path, script.format(type="DATE"), 2)
    put(tmp_path, "b", "2025-01-02")
    run(tmp_path, script.format(type="TIMESTAMP"), 3, upgrade=True)
    more = [] if kind == "state" else [(0, "2025-01-02")]
    assert ends(tmp_path, table) == sorted([*more, (0, "2026-01-01"), (1, "294247-01-10")])


@pytest.mark.parametrize(("before", "after"), [("DOUBLE", "BIGINT"), ("DECIMAL(9,2)", "INTEGER"), ("BIGINT", "DOUBLE")])
def test_a_sum_does_not_follow_from_an_average_of_other_values(tmp_path: Path, before: str, after: str) -> None:
    [change] = averages_to_sums(tmp_path, before, after)
    assert isinstance(change, UnadaptableOperator)
    assert "does not have all of its values" in change.reason


@pytest.mark.parametrize(
    ("before", "after"), [("INTEGER", "BIGINT"), ("DECIMAL(9,2)", "DECIMAL(18,2)"), ("SMALLINT", "INTEGER")]
)
def test_a_sum_follows_from_an_average_of_narrower_values(tmp_path: Path, before: str, after: str) -> None:
    [change] = averages_to_sums(tmp_path, before, after)
    assert isinstance(change, AdaptedOperator)
    # The average of a DECIMAL is a sum and a count, and the sum is what it was.
    note = 'result "sum_x" is called "r" now' if before.startswith("DECIMAL") else "from what is kept"
    assert note in " ".join(change.notes)


def averages_to_sums(folder: Path, before: str, after: str) -> Sequence[Change]:
    """Return what becomes of an average of a column of one type, if the query asks for the sum of one of another type."""
    script = "CREATE TABLE t (k STRING, x {}) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');"
    script += "SELECT k, {}(x) AS r FROM t GROUP BY k"
    old, new = last_job(script.format(before, "avg")), last_job(script.format(after, "sum"))
    return compare(record(old, folder), record(new, folder), new.physical.stages).operators
