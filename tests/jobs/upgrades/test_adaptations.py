"""State of operators made of that of others: what follows is what DuckDB says of all rows, or of those since."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlstream.jobs.upgrades.changes import AdaptedOperator, UnadaptableOperator
from tests.jobs.upgrades.driver import Driven, Row, total

TABLE = """
CREATE TABLE {name} ({columns}, ts TIMESTAMP, WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'json');
"""
A = TABLE.format(name="a", columns="k STRING, x INT, y INT")
WIDE = TABLE.format(name="a", columns="k STRING, x BIGINT, y INT")
B = TABLE.format(name="b", columns="k STRING, z INT, w INT")


def row(k: str, x: int | None, seconds: int = 0, y: int = 0) -> Row:
    return {"k": k, "x": x, "y": y, "ts": _time(seconds)}


def _time(seconds: int) -> str:
    return f"1970-01-01 00:{seconds // 60:02}:{seconds % 60:02}"


BEFORE = [row("u", 1, 1, 5), row("v", 2, 2), row("u", None, 4, 6), row("w", 9, 7)]
AFTER = [row("u", 7, 21, 1), row("v", 4, 22), row("z", 3, 23), row("v", None, 24)]


def batch(sql: str, **rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return what DuckDB says of tables of rows, sorted."""
    with duckdb.connect() as con:
        for name, given in rows.items():
            columns = {"a": ("k", "x", "y", "ts"), "b": ("k", "z", "w", "ts")}[name]
            types = {"k": "VARCHAR", "ts": "TIMESTAMP"}
            listed = ", ".join(f"{c} {types.get(c, 'BIGINT')}" for c in columns)
            con.execute(f"CREATE TABLE {name} ({listed})")
            con.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", [[r.get(c) for c in columns] for r in given])
        return sorted(con.execute(sql).fetchall(), key=repr)


def refused(old: Driven, script: str, folder: Path) -> str:
    change = old.change(Driven(script, folder))
    assert isinstance(change, UnadaptableOperator), change
    return change.reason


# -- GROUP BY


def test_aggregates_are_made_of_what_is_kept_or_begin_now(tmp_path: Path) -> None:
    old = Driven(f"{A} SELECT k, count(*) AS n, sum(x) AS s, count(x) AS c FROM a GROUP BY k", tmp_path / "old")
    old.step(a=BEFORE)
    new, change = old.upgraded(
        f"{A} SELECT k, sum(x) AS s, count(*) AS many, avg(x) AS mean, max(y) AS top FROM a GROUP BY k",
        tmp_path / "new",
    )
    new.step(a=AFTER)
    whole = batch("SELECT k, sum(x), count(*), avg(x) FROM a GROUP BY k", a=BEFORE + AFTER)
    assert new.shown("k, s, many, mean") == whole
    since = dict(batch("SELECT k, max(y) FROM a GROUP BY k", a=AFTER))
    assert dict(new.shown("k, top")) == {k: since.get(k) for k, *_ in whole}
    assert change.notes == (
        'result "n" is called "many" now',
        '"mean": from what is kept',
        '"top": {since}; rows before are not in it',
        '"c": no longer kept',
    )


def test_types_become_wider_and_keys_get_other_names_and_places(tmp_path: Path) -> None:
    old = Driven(f"{A} SELECT k, y, sum(x) AS s, min(x) AS low, list(x) AS l FROM a GROUP BY k, y", tmp_path / "old")
    old.step(a=BEFORE)
    calls, renamed = "sum(x) AS s, min(x) AS low, list(x) AS l", "(SELECT k AS airport, x, y FROM a)"
    query = f"{WIDE} SELECT y, airport, {calls} FROM {renamed} GROUP BY y, airport"
    new, change = old.upgraded(query, tmp_path / "new")
    late = [*AFTER, row("u", 3_000_000_000, 25, 5)]
    new.step(a=late)
    sql = "SELECT y, k, sum(x), min(x), list(x ORDER BY x NULLS LAST) FROM a GROUP BY y, k"
    assert new.shown("y, airport, s, low, l") == batch(sql, a=BEFORE + late)
    assert 'key "k" is called "airport" now' in change.notes
    assert 'result "low" becomes BIGINT, and was INTEGER' in change.notes
    assert "is gone" in refused(old, f"{A} SELECT k, sum(x) AS s FROM a GROUP BY k", tmp_path / "other")


def test_an_average_does_not_begin_beside_a_sum_that_goes_on(tmp_path: Path) -> None:
    old = Driven(f"{A} SELECT k, sum(x) AS s FROM a GROUP BY k", tmp_path / "old")
    reason = refused(old, f"{A} SELECT k, sum(x) AS s, avg(x) AS m FROM a GROUP BY k", tmp_path / "new")
    shares = '"m" needs more than what is kept for "s", and shares that with it'
    assert reason == f'{shares}: count("x") is not kept, and count(*) counts NULLs, too'
    counted = Driven(f"{A} SELECT k, count(x) AS n FROM a GROUP BY k", tmp_path / "counted")
    reason = refused(counted, f"{A} SELECT k, count(x) AS n, avg(x) AS m FROM a GROUP BY k", tmp_path / "new")
    assert reason.endswith(': sum("x") is not kept')
    # Of itself it may.
    new = Driven(f"{A} SELECT k, avg(x) AS m FROM a GROUP BY k", tmp_path / "new")
    assert not isinstance(old.change(new), UnadaptableOperator)


def test_aggregates_over_changes(tmp_path: Path) -> None:
    query = "SELECT x, {} FROM (SELECT k, max(x) AS x, max(y) AS y FROM a GROUP BY k) GROUP BY x"
    old = Driven(f"{A} {query.format('sum(y) AS s, count(*) AS n')}", tmp_path, place=1)
    new = Driven(f"{WIDE} {query.format('count(*) AS n, avg(y) AS m')}", tmp_path, place=1)
    change = old.change(new)
    assert isinstance(change, AdaptedOperator)
    [sums] = new.operator.tables
    assert [c.name for c in sums.columns] == ["__sqlstream_k0", "_rows", "s0", "s1", "s2", "_at", "__sqlstream_weight"]
    with duckdb.connect() as con:
        [table] = old.operator.tables
        con.execute(f"CREATE TABLE sums ({', '.join(f'{c.name} {c.type}' for c in table.columns)})")
        # The number of values, their sum, the number of rows.
        con.execute("INSERT INTO sums VALUES (1, 9, 7, 70, 9, 5, 1), (1, 8, 6, 60, 8, 4, -1)")
        assert con.execute(change.tables["sums"]).fetchall() == [(1, 9, 9, 7, 70, 5, 1), (1, 8, 8, 6, 60, 4, -1)]
    # A sum that begins now would be less than what is taken away.
    more = Driven(f"{A} {query.format('sum(y) AS s, count(*) AS n, sum(y + 1) AS t')}", tmp_path, place=1)
    reason = old.change(more)
    assert isinstance(reason, UnadaptableOperator)
    assert reason.reason.startswith('"t": rows that were not counted in it may be taken back')
    rows = old.change(Driven(f"{A} {query.format('sum(y) AS s, max(y) AS top')}", tmp_path, place=1))
    assert isinstance(rows, UnadaptableOperator)
    assert rows.reason == "the new aggregates follow from rows, and the job kept sums"


# -- windows

TUMBLE = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '{}' SECOND)"
HOP = "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '{}' SECOND, INTERVAL '{}' SECOND)"
BOUNDS = "k, window_start, window_end"


def windowed(windows: str, calls: str = "sum(x) AS s, count(*) AS n", hint: str = "") -> str:
    return f"{A} SELECT {hint} k, window_end, {calls} FROM {windows} GROUP BY {BOUNDS}"


def in_windows(size: int, slide: int, after: int) -> str:
    """Return the batch query of windows that end after a time."""
    ends = (
        f"SELECT *, unnest(generate_series(sec - sec % {slide} + {slide}, sec - sec % {slide} + {size}, {slide})) AS e"
    )
    rows = f"{ends} FROM (SELECT *, epoch(ts)::BIGINT AS sec FROM a)"
    items = "k, make_timestamp(e * 1000000), sum(x), count(*)"
    return f"SELECT {items} FROM ({rows}) WHERE sec >= e - {size} AND e > {after} GROUP BY k, e"


@pytest.mark.parametrize(
    ("before", "after", "size", "slide"),
    [
        (TUMBLE.format(10), TUMBLE.format(60), 60, 60),
        (TUMBLE.format(10), HOP.format(20, 60), 60, 20),
        (HOP.format(10, 30), TUMBLE.format(10), 10, 10),
        (HOP.format(10, 30), HOP.format(20, 40), 40, 20),
    ],
)
def test_windows_are_sums_of_what_was_kept(tmp_path: Path, before: str, after: str, size: int, slide: int) -> None:
    old = Driven(windowed(before), tmp_path / "old")
    first = [*BEFORE, row("u", 5, 12), row("v", 6, 13), row("u", 8, 33)]
    old.step(a=first)
    # No window has ended that has rows which the new ones need.
    old.step(watermark=8)
    new, change = old.upgraded(windowed(after), tmp_path / "new")
    then = [row("u", 7, 21), row("v", 4, 42), row("z", 3, 58)]
    left = new.step(watermark=9, a=then)
    left += new.step(watermark=35)
    left += new.step(watermark=200)
    assert new.picked(left, "k", "window_end", "s", "n") == batch(in_windows(size, slide, 8), a=first + then)
    assert change.notes[0].startswith("windows: were ")


def test_windows_have_the_rows_since_the_oldest_that_was_open(tmp_path: Path) -> None:
    old = Driven(windowed(TUMBLE.format(10)), tmp_path / "old")
    old.step(a=[row("u", 1, 1), row("u", 2, 11), row("u", 3, 21)])
    old.step(watermark=15)
    new, change = old.upgraded(windowed(TUMBLE.format(60)), tmp_path / "new")
    new.step(a=[row("u", 4, 31)])
    assert new.picked(new.step(watermark=60), "s") == [(2 + 3 + 4,)]
    assert "windows that begin before the oldest one that was open have only the rows since then" in change.notes


def test_windows_that_are_no_sums_are_refused(tmp_path: Path) -> None:
    old = Driven(windowed(TUMBLE.format(10)), tmp_path / "old")
    for windows in (TUMBLE.format(15), HOP.format(5, 10)):
        reason = refused(old, windowed(windows), tmp_path / "new")
        assert "are not sums of the stretches of 10 s that were kept" in reason
    assert "would make them the other" in refused(
        old, windowed(TUMBLE.format(10), hint="/*+ ALLOWED_LATENESS('1 min') */"), tmp_path / "new"
    )


def test_windows_of_months_go_on_and_are_made_of_no_others(tmp_path: Path) -> None:
    of = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL {})"
    old = Driven(windowed(of.format("'1' MONTH")), tmp_path / "old")
    old.step(a=BEFORE)
    new, _ = old.upgraded(windowed(of.format("'1' MONTH"), "count(*) AS many, sum(x) AS s"), tmp_path / "new")
    new.step(a=AFTER)
    assert new.step(watermark=30 * 86_400) == []
    ended = new.picked(new.step(watermark=31 * 86_400), "k", "many", "s")
    assert ended == batch("SELECT k, count(*), sum(x) FROM a GROUP BY k", a=BEFORE + AFTER)
    others = {
        "'3' MONTH": 'TUMBLE "ts" size 3 months',
        "'31' DAY": 'TUMBLE "ts" size 31 d',
        "'1' MONTH, INTERVAL '-1' DAY": 'TUMBLE "ts" size 1 month offset -1 d',
    }
    for size, words in others.items():
        reason = refused(old, windowed(of.format(size)), tmp_path / "other")
        assert reason == f'windows: were TUMBLE "ts" size 1 month, are {words}'


def test_aggregates_of_windows(tmp_path: Path) -> None:
    old = Driven(windowed(TUMBLE.format(60), "sum(x) AS s, avg(y) AS m, list(x) AS l"), tmp_path / "old")
    old.step(a=BEFORE)
    new, _ = old.upgraded(
        windowed(TUMBLE.format(60), "sum(y) AS t, count(y) AS c, list(x) AS l, min(x) AS low, list(y) AS ys"),
        tmp_path / "new",
    )
    new.step(a=AFTER)
    assert new.picked(new.step(watermark=60), "k", "t", "c", "l") == batch(
        "SELECT k, sum(y), count(y), list(x ORDER BY rowid) FROM a GROUP BY k", a=BEFORE + AFTER
    )


def test_lateness_of_windows_whose_results_change(tmp_path: Path) -> None:
    hint = "/*+ ALLOWED_LATENESS('{} s') */"
    old = Driven(windowed(TUMBLE.format(10), "sum(x) AS s", hint.format(60)), tmp_path / "old")
    names = ("k", "window_end", "s", "__sqlstream_weight")
    old.step(a=BEFORE)
    left = old.picked(old.step(watermark=12), *names)
    new, change = old.upgraded(windowed(TUMBLE.format(10), "sum(x) AS s", hint.format(30)), tmp_path / "new")
    late = [row("u", 100, 3), row("q", 1, 4)]
    left += new.picked(new.step(a=late), *names)
    left += new.picked(new.step(watermark=35, a=[row("u", 1000, 5)]), *names)
    new.step(watermark=45)
    # What comes behind the shorter lateness is dropped.
    left += new.picked(new.step(a=[row("u", 5000, 6)]), *names)
    expected = "SELECT k, make_timestamp(10000000), sum(x) FROM a GROUP BY k"
    assert total(left) == batch(expected, a=[*BEFORE, *late, row("u", 1000, 5)])
    assert "lateness: was 1 min, is 30 s" in change.notes


def test_early_results(tmp_path: Path) -> None:
    def early(hint: str, table: str = A) -> str:
        return windowed(TUMBLE.format(10), "sum(x) AS s", f"/*+ ALLOWED_LATENESS('60 s'){hint} */").replace(A, table)

    names = ("k", "window_end", "s", "__sqlstream_weight")
    old = Driven(early(", EARLY_FIRE(2, 'rows')"), tmp_path / "old")
    left = old.picked(old.step(a=BEFORE), *names)
    new, _ = old.upgraded(early(", EARLY_FIRE(1, 'rows')", WIDE), tmp_path / "new")
    left += new.picked(new.step(a=[row("u", 7, 8)]), *names)
    assert ("u", 8) in [(k, s) for k, _, s, _ in left]
    left += new.picked(new.step(watermark=12), *names)
    expected = "SELECT k, make_timestamp(10000000), sum(x) FROM a GROUP BY k"
    assert total(left) == batch(expected, a=[*BEFORE, row("u", 7, 8)])
    assert "emitted early, and would not be taken back" in refused(old, early(""), tmp_path / "late")


def test_sessions_get_a_longer_gap(tmp_path: Path) -> None:
    session = "SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '{}' SECOND)"
    old = Driven(windowed(session.format(5)), tmp_path / "old")
    old.step(watermark=5, a=[row("u", 1, 6), row("u", 2, 9)])
    new, _ = old.upgraded(windowed(session.format(20)), tmp_path / "new")
    left = new.step(watermark=10, a=[row("u", 4, 25)])
    left += new.step(watermark=100)
    assert new.picked(left, "s") == [(7,)]
    assert "parts of those" in refused(new, windowed(session.format(5)), tmp_path / "shorter")


def test_bounds_of_old_windows_are_not_kept(tmp_path: Path) -> None:
    for inside, calls in (("", "max(window_start) AS m"), (", epoch(window_end) AS e", "max(e) AS m")):
        rows = f"(SELECT *{inside} FROM {{}})"
        query = f"{A} SELECT k, {calls} FROM {rows} GROUP BY {BOUNDS}"
        old = Driven(query.format(TUMBLE.format(10)), tmp_path / "old")
        assert '"m" is made of the bounds' in refused(old, query.format(TUMBLE.format(60)), tmp_path / "new")
    filtered = f"{A} SELECT k, count(*) AS n FROM {{}} WHERE epoch(window_end) > 10 GROUP BY {BOUNDS}"
    old = Driven(filtered.format(TUMBLE.format(10)), tmp_path / "old")
    assert "are filtered by the bounds" in refused(old, filtered.format(TUMBLE.format(60)), tmp_path / "new")
    # Of results of windows nothing waits.
    ranks = "row_number() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS r"
    counts = f"SELECT {BOUNDS}, count(*) AS n FROM {{}} GROUP BY {BOUNDS}"
    top = f"{A} SELECT k, window_end FROM (SELECT *, {ranks} FROM ({counts})) WHERE r <= 2"
    old = Driven(top.format(TUMBLE.format(10)), tmp_path / "old", place=1)
    assert isinstance(old.change(Driven(top.format(TUMBLE.format(60)), tmp_path / "new", place=1)), AdaptedOperator)


# -- rows that are kept

TOP = "SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM a) WHERE r <= {n}"


def test_another_number_of_best_rows(tmp_path: Path) -> None:
    old = Driven(f"{A} {TOP.format(columns='k, x', n=2)}", tmp_path / "old")
    rows = [row("u", x) for x in (1, 5, 3, 4)]
    old.step(a=rows)
    more, change = old.upgraded(f"{A} {TOP.format(columns='k, x', n=3)}", tmp_path / "more")
    more.step(a=[row("u", 2)])
    # The 3 is missing.
    assert more.shown("k, x") == [("u", 2), ("u", 4), ("u", 5)]
    assert "of rows so far the best 2 were kept" in change.notes[0]


@pytest.mark.parametrize("before", ["WHERE r <= 4", ""])
@pytest.mark.parametrize("function", ["row_number", "rank", "dense_rank"])
def test_fewer_best_rows(tmp_path: Path, function: str, before: str) -> None:
    """Of a key that comes again there are as many rows as counted from the start, of another one those that were emitted."""
    ranks = f"SELECT k, x, {function}() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM a"
    query = f"{A} SELECT * FROM ({ranks}) {{}}"
    old, fewer = Driven(query.format(before), tmp_path / "old"), query.format("WHERE r <= 2")
    names = ("k", "x", "r", "__sqlstream_weight")
    first = [row(k, x) for k in "uv" for x in (1, 5, 5, 3, 4)]
    left = old.picked(old.step(a=first), *names)
    new, change = old.upgraded(fewer, tmp_path / "new")
    assert "when its next row comes" in change.notes[0]
    later = [[row("u", 4), row("w", 7)], [row("u", 9), row("w", 6), row("w", 5)]]
    for rows in later:
        left += new.picked(new.step(a=rows), *names)
    known = [r for r in [*first, *later[0], *later[1]] if r["k"] != "v"]
    sql = f"{ranks} QUALIFY r <= 2"
    untouched = batch(f"{ranks} QUALIFY r <= 4" if before else ranks, a=first)
    assert total(left) == sorted(batch(sql, a=known) + [r for r in untouched if r[0] == "v"], key=repr)


def test_fewer_best_rows_of_a_changelog_are_refused(tmp_path: Path) -> None:
    query = f"{A} {TOP.replace('FROM a', 'FROM (SELECT k, y, sum(x) AS x FROM a GROUP BY k, y)')}"
    old = Driven(query.format(columns="k, x", n=2), tmp_path / "old", place=1)
    new = Driven(query.format(columns="k, x", n=1), tmp_path / "new", place=1)
    change = old.change(new)
    assert isinstance(change, UnadaptableOperator)
    assert "rows beyond the best 1 were emitted" in change.reason


def test_numbers_of_equal_rows_stay(tmp_path: Path) -> None:
    """Rows that are equal in the order are numbered by all columns: another order of these would give other numbers."""
    query = f"{A} {TOP.replace('FROM a', 'FROM (SELECT {inner} FROM a)')}"

    def best(inner: str, n: int = 2) -> str:
        return query.format(columns="k, x, y, r", n=n, inner=inner)

    old = Driven(best("k, y, x, -y AS z"), tmp_path / "old")
    names = ("k", "x", "y", "r", "__sqlstream_weight")
    left = old.picked(old.step(a=[row("u", 5, y=1), row("u", 5, y=2)]), *names)
    assert '"y" next' in refused(old, best("k, x, -y AS z, y"), tmp_path / "other")
    # What no earlier column leaves open decides nothing, nor do the key and what is ordered by.
    new, _ = old.upgraded(best("x, y, k"), tmp_path / "new")
    left += new.picked(new.step(a=[row("u", 9, y=3)]), *names)
    assert total(left) == [("u", 5, 1, 2), ("u", 9, 3, 1)]
    one = Driven(best("k, x, y, -y AS z", n=1), tmp_path / "one")
    assert isinstance(one.change(Driven(best("k, x, -y AS z, y", n=1), tmp_path / "two")), AdaptedOperator)


def test_columns_of_best_rows(tmp_path: Path) -> None:
    narrow = TABLE.format(name="a", columns="k STRING, x INT")
    old = Driven(f"{narrow} {TOP.format(columns='k, x', n=2)}", tmp_path / "old")
    old.step(a=BEFORE)
    new, change = old.upgraded(f"{WIDE} {TOP.format(columns='k, x, y', n=2)}", tmp_path / "new")
    new.step(a=AFTER)
    known = [{**r, "y": None} for r in BEFORE] + AFTER
    sql = "SELECT k, x, y FROM a QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC NULLS LAST) <= 2"
    assert new.shown("k, x, y") == batch(sql, a=known)
    assert 'column "y": a value {since}, NULL in rows before' in change.notes


def test_best_rows_of_windows(tmp_path: Path) -> None:
    ranks = "row_number() OVER (PARTITION BY window_start, window_end ORDER BY x DESC) AS r"
    top = f"SELECT {{}} FROM (SELECT *, {ranks} FROM {TUMBLE.format(60)}) WHERE r <= {{}}"
    narrow = TABLE.format(name="a", columns="k STRING, x INT")
    old = Driven(narrow + top.format("k, x", 2), tmp_path / "old")
    old.step(a=BEFORE)
    new, change = old.upgraded(WIDE + top.format("k, x, y", 1), tmp_path / "new")
    new.step(a=[row("u", 7, 21, 1)])
    assert new.picked(new.step(watermark=60), "k", "x", "y") == [("w", 9, None)]
    assert len(change.notes) == 3


def test_columns_of_a_table_with_a_key(tmp_path: Path) -> None:
    changes = """CREATE TABLE c (op STRING, id INT, x {}, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json', 'changelog.op-column' = 'op');"""
    old = Driven(changes.format("INT") + "SELECT id, x FROM c", tmp_path / "old")
    old.step(c=[{"op": "I", "id": 1, "x": 5}, {"op": "I", "id": 2, "x": 6}, {"op": "D", "id": 2}])
    new, _ = old.upgraded(changes.format("BIGINT, y INT") + "SELECT id, y, x FROM c", tmp_path / "new")
    left = new.step(c=[{"op": "U", "id": 1, "x": 7, "y": 8}, {"op": "I", "id": 3, "x": 9}])
    # What is taken back has no value for the new column, as the row that was emitted.
    assert new.picked(left, "id", "x", "y", "__sqlstream_weight") == [(1, 5, None, -1), (1, 7, 8, 1), (3, 9, None, 1)]


# -- joins

ON = "FROM a JOIN b ON a.k = b.k"


def b(k: str, z: int, seconds: int = 0, w: int = 0) -> Row:
    return {"k": k, "z": z, "w": w, "ts": _time(seconds)}


LEFT, RIGHT = [row("u", 1, 1), row("v", 2, 2)], [b("u", 10, 1, 3), b("w", 20, 2, 4)]
LEFT2, RIGHT2 = [row("w", 3, 4), row("u", 6, 5)], [b("u", 30, 3, 1), b("v", 40, 4, 2)]


@pytest.mark.parametrize("within", ["", " AND b.ts BETWEEN a.ts - INTERVAL '9' SECOND AND a.ts + INTERVAL '9' SECOND"])
def test_columns_of_joins(tmp_path: Path, within: str) -> None:
    old = Driven(f"{A} {B} SELECT a.k, x, z {ON}{within}", tmp_path / "old")
    old.step(a=LEFT, b=RIGHT)
    new, change = old.upgraded(f"{WIDE} {B} SELECT a.k, x, w {ON}{within}", tmp_path / "new")
    left = new.step(a=LEFT2, b=RIGHT2)
    known = [{**r, "w": None} for r in RIGHT]
    pairs = f"SELECT x, w {ON}"
    before, after = batch(pairs, a=LEFT, b=known), batch(pairs, a=LEFT + LEFT2, b=known + RIGHT2)
    for pair in before:
        after.remove(pair)
    assert new.picked(left, "x", "w") == after
    assert 'column "w": a value {since}, NULL in rows before' in change.notes


def test_another_interval(tmp_path: Path) -> None:
    within = " AND b.ts BETWEEN a.ts - INTERVAL '{}' SECOND AND a.ts"
    old = Driven(f"{A} {B} SELECT a.k, x, z {ON}{within.format(5)}", tmp_path / "old")
    old.step(a=LEFT, b=RIGHT)
    new, change = old.upgraded(f"{A} {B} SELECT a.k, x, z {ON}{within.format(50)}", tmp_path / "new")
    new.step(watermark=30)
    left = new.step(a=[row("u", 6, 40)])
    assert new.picked(left, "x", "z") == [(6, 10)]
    assert change.notes[-1] == "rows were kept for 5 s: older ones are missing at first"


def test_a_time_to_live_of_a_join(tmp_path: Path) -> None:
    old = Driven(f"{A} {B} SELECT a.k, x, z {ON}", tmp_path / "old")
    old.step(a=LEFT, b=RIGHT)
    hint = "/*+ STATE_TTL('a' = '10 s', 'b' = '10 s') */"
    new, change = old.upgraded(f"{A} {B} SELECT {hint} a.k, x, z {ON}", tmp_path / "new")
    left = new.step(b=[b("v", 40)])
    assert new.picked(left, "x", "z") == [(2, 40)]
    new.batch += 60
    assert new.step(b=[b("u", 50)]) == []
    assert "time to live of input 0: was for ever, is 10 s" in change.notes


def test_columns_of_versions(tmp_path: Path) -> None:
    versions = B.replace("ts TIMESTAMP", "ts TIMESTAMP, PRIMARY KEY (k) NOT ENFORCED")
    query = "SELECT a.k, x, {} FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k"
    old = Driven(f"{A} {versions} {query.format('z')}", tmp_path / "old")
    old.step(a=[row("v", 2, 12)], b=[b("u", 10, 1, 3), b("v", 20, 2, 4), b("v", 30, 9, 5)])
    old.step(watermark=5)
    new, _ = old.upgraded(f"{A} {versions} {query.format('w, z')}", tmp_path / "new")
    new.step(a=[row("u", 1, 13)], b=[b("u", 40, 12, 6)])
    left = new.step(watermark=20)
    assert new.picked(left, "k", "z", "w") == [("u", 40, 6), ("v", 30, None)]


# -- OVER


def test_calls_over_rows(tmp_path: Path) -> None:
    over = "OVER (PARTITION BY k ORDER BY ts)"
    old = Driven(f"{A} SELECT k, x, ts, sum(x) {over} AS s, count(x) {over} AS c FROM a", tmp_path / "old")
    old.step(a=BEFORE)
    old.step(watermark=10)
    new, change = old.upgraded(
        f"{A} SELECT k, x, ts, sum(x) {over} AS s, avg(x) {over} AS m, max(x) {over} AS top FROM a", tmp_path / "new"
    )
    new.step(a=AFTER)
    left = new.step(watermark=60)
    sql = (
        f"SELECT k, x, s, m FROM (SELECT k, x, ts, sum(x) {over} AS s, avg(x) {over} AS m FROM a) WHERE epoch(ts) > 20"
    )
    assert new.picked(left, "k", "x", "s", "m") == batch(sql, a=BEFORE + AFTER)
    assert new.picked(left, "k", "x", "top") == batch(f"SELECT k, x, max(x) {over} FROM a", a=AFTER)
    assert '"m": from what is kept' in change.notes
