"""`sqlstream.diff` and `sqlstream.why`: against plain queries of the state at the same versions, for all kinds of operators."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from sqlstream.errors import QueryError
from sqlstream.jobs.savepoints.savepoint_folders import take
from sqlstream.session.rendering import values_of
from sqlstream.session.state_tools import Key, why_sql
from sqlstream.testing import Stream
from sqlstream.warehouse.paths import Warehouse
from tests.queries.state_kinds import KINDS, TABLES, WINDOWED, job_of, rows_at, versions
from tests.saved_streams import SavedStream

pytestmark = pytest.mark.slow

KEYS = ("a", "gone")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", KINDS)
def test_a_difference_is_that_of_plain_queries_and_a_key_has_its_rows(kind: str) -> None:
    with job_of(kind) as stream:
        known = versions(stream)
        listed = [name for name, _ in stream.query("SHOW ALL TABLES")]
        views = [name.removeprefix("state.result.") for name in listed if name.startswith("state.result.")]
        assert "o" in views
        for view in views:
            check_difference(stream, view, known[len(known) // 2], known[-1])
            check_savepoint(stream, view, known[-1])
        check_difference(stream, "o", known[0], known[-1])
        for key in KEYS:
            check_key(stream, views, key, known)
            check_key_in_savepoint(stream, key)


def check_difference(stream: Stream, view: str, older: int, newer: int) -> None:
    before, after = rows_at(stream, view, older), rows_at(stream, view, newer)
    found = stream.query(f"FROM sqlstream.diff('result.{view}', {older}, {newer})")
    assert Counter(str(row) for _, _, row, _ in found if row) == before - after
    assert Counter(str(row) for _, _, _, row in found if row) == after - before
    sides = {"added": (False, True), "removed": (True, False), "changed": (True, True)}
    assert all(sides[change] == (old is not None, new is not None) for change, _, old, new in found)
    assert {reason for _, reason, _, _ in found} <= {
        *("input", "window closed", "expired", "watermark", "input or watermark", "input or timer", "not known")
    }


def check_key(stream: Stream, views: list[str], key: str, known: list[int]) -> None:
    """Compare the rows of a key with those that a plain query finds in the version, or in the last one that has some."""
    found = stream.query(f"SELECT part, name, text, content::VARCHAR FROM sqlstream.why('result.o', k := '{key}')")
    shown = Counter((name, as_text(content)) for part, name, _, content in found if part == "state")
    assert shown == of_key(stream, views, key, known[-1])
    said = [text for part, _, text, _ in found if part == "nothing"]
    assert bool(said) == (not shown)
    if said:
        last = next((v for v in reversed(known) if of_key(stream, views, key, v)), None)
        never = f"nor was in any version since {known[0]}"
        assert (never if last is None else f"version {last} was the last that had it") in said[0]


def check_key_in_savepoint(stream: Stream, key: str) -> None:
    """Compare what is said of a key in a savepoint with what is said of the version of which it is, which the job still has."""
    [(version,)] = stream.query("SELECT version FROM sqlstream.savepoints WHERE savepoint = 'middle'")
    why = "SELECT part, name, text, content::VARCHAR FROM sqlstream.why('result.o', {}, k := '{}')"
    [head, *found] = stream.query(why.format("'Middle'", key))
    [plain, *expected] = stream.query(why.format(version, key))
    assert head[2] == f'{plain[2]} of savepoint "Middle"'
    # It does not know which version was the last that had the key.
    assert [row for row in found if row[0] != "nothing"] == [
        row for row in expected if row[0] not in ("nothing", "last")
    ]
    assert [row[0] for row in found if row[0] == "nothing"] == [row[0] for row in expected if row[0] == "nothing"]


def of_key(stream: Stream, views: list[str], key: str, version: int) -> Counter[tuple[str, str]]:
    """Return the rows of a key in all views, with their names."""
    selects = [
        f"SELECT '{view}', to_json(r)::VARCHAR AS row FROM state.result.{view} AT (VERSION => {version}) r"
        for view in views
    ]
    rows = stream.query(" UNION ALL ".join(selects))
    # A join may show the key of the other side.
    return Counter((view, as_text(row)) for view, row in rows if key in map(json.loads(row).get, ("k", "k_1")))


def as_text(content: str) -> str:
    return json.dumps(json.loads(content))


def check_savepoint(stream: Stream, view: str, newest: int) -> None:
    """Compare the difference from a savepoint with that from the version of which it is, which the job still has."""
    [(version,)] = stream.query("SELECT version FROM sqlstream.savepoints WHERE savepoint = 'middle'")
    difference = "FROM sqlstream.diff('result.{}', {}, {})"
    found = stream.query(difference.format(view, "'Middle'", newest))
    assert found == stream.query(difference.format(view, version, newest))
    assert stream.query(difference.format(view, version, "'middle'")) == []


def test_a_job_that_was_dropped_is_compared_by_its_savepoints() -> None:
    with job_of("group") as stream:
        warehouse = Warehouse(stream.warehouse)
        take(warehouse, "result", "last")
        found = stream.query("FROM sqlstream.diff('result.o', 'middle', 'last')")
        assert [change for change, *_ in found] == ["changed", "changed", "changed", "added"]
        with pytest.raises(QueryError, match="is older than version"):
            stream.query("FROM sqlstream.diff('result.o', 'last', 'middle')")
        warehouse.fs.delete_tree(warehouse.job("result").root)
        assert stream.query("FROM sqlstream.diff('result.o', 'middle', 'last')") == found
        explained = "SELECT content->>'n' FROM sqlstream.why('result.o', 'last', k := 'a') WHERE part = 'state'"
        assert stream.query(explained) == stream.query("SELECT n::VARCHAR FROM savepoint.last.o WHERE k = 'a'")


def test_windows_are_open_again_in_a_savepoint_from_before_a_job_went_back() -> None:
    script = """
    CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '30' SECOND);
    CREATE TABLE n (k BIGINT, n BIGINT);
    INSERT INTO n WITH w AS (
        SELECT k, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end
    ) SELECT k, n FROM w
    """
    with SavedStream(script) as stream:
        # Rows of a window that closes and of one that does not are in one file, which both versions have.
        stream.batch("t", [(1, "2026-01-01 00:00:01"), (2, "2026-01-01 00:00:35")])
        stream.savepoint("n", "early")
        stream.batch("t", [(3, "2026-01-01 00:01:00")])
        stream.savepoint("n", "late")
        stream.batch("t", [(4, "2026-01-01 00:01:01")])
        stream.go_back("n", "late")
        [(version,)] = stream.query("SELECT version FROM sqlstream.savepoints WHERE savepoint = 'late'")
        difference = "SELECT change, coalesce(before.k, after.k) FROM sqlstream.diff('n.w', {}, {}) ORDER BY ALL"
        assert stream.query(difference.format(version, "'early'")) == [("added", 1), ("removed", 3)]
        assert stream.query(difference.format("'early'", version)) == [("added", 3), ("removed", 1)]


def test_a_state_with_other_columns_is_compared_by_the_names_of_its_columns() -> None:
    script = f"{TABLES}WITH o AS (SELECT k, %s FROM t GROUP BY k) SELECT * FROM o"
    with Stream(script % "COUNT(*) AS n, MAX(v) AS x") as before, Stream(script % "MAX(v) AS x, SUM(v) AS s") as after:
        for stream in (before, after):
            stream.batch("t", [("a", 1, "2024-01-01 10:00"), ("b", 2, "2024-01-01 10:00")])
        before.batch("t", [("c", 3, "2024-01-01 10:00")])
        folder = Warehouse(f"{after.warehouse}/savepoints/before")
        take(Warehouse(before.warehouse), "result", "before", folder)
        items = "change, reason, before.k, before.n, before.x, after.k, after.n, after.x"
        found = after.query(f"SELECT {items} FROM sqlstream.diff('result.o', 'before', 0)")
    why = "input or migrated"
    assert found == [
        ("changed", why, "a", 1, 1, "a", None, 1),
        ("changed", why, "b", 1, 2, "b", None, 2),
        ("removed", why, "c", 1, 3, None, None, None),
    ]


def test_the_row_that_came_last_is_the_one_that_is_there() -> None:
    script = """CREATE TABLE t (k STRING, n INT, p AS PROCTIME()); CREATE TABLE result (k STRING, n INT);
        INSERT INTO result WITH o AS (SELECT * FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC) = 1)
        SELECT k, n FROM o"""
    with Stream(script) as stream:
        stream.batch("t", [("a", 9), ("a", 3), ("a", 7)])
        found = stream.query("SELECT content::VARCHAR FROM sqlstream.why('result.o', k := 'a') WHERE part = 'state'")
        [content] = [json.loads(text) for (text,) in found]
        assert {name for name in content if name.startswith("__")} == set()
        assert (content["k"], content["n"]) == ("a", 7)


def test_a_difference_says_why() -> None:
    with job_of("tumble") as stream:
        last = versions(stream)[-1]
        found = stream.query(f"SELECT change, reason, before.k, after.k FROM sqlstream.diff('result.o', 0, {last})")
    assert ("removed", "window closed", "gone", None) in found
    assert ("added", "input", None, "a") in found
    with job_of("group ttl") as stream:
        first, last = (versions(stream)[place] for place in (0, -1))
        found = stream.query(f"SELECT reason FROM sqlstream.diff('result.o', {first}, {last}) WHERE before.k = 'gone'")
        assert found == [("expired",)]
        found = stream.query(
            f"SELECT DISTINCT reason FROM sqlstream.diff('result.o', {first}, {last}) WHERE after.k = 'a'"
        )
        assert found == [("input",)]


def test_a_difference_of_merged_segments_has_what_came_and_went() -> None:
    script = f"{TABLES}WITH o AS (SELECT k, COUNT(*) AS n FROM t GROUP BY k) SELECT * FROM o"
    with Stream(script, parallelism=1) as stream:
        stream.batch("t", [(f"k{n}", n, "2024-01-01 10:00") for n in range(50)])
        for n in range(10):
            stream.batch("t", [(f"k{n}", n, "2024-01-01 10:00")])
        # Eight segments become one, of which the others are parts.
        assert stream.query("SELECT segments < 8 FROM sqlstream.operators") == [(True,)]
        known = versions(stream)
        for older, newer in ((known[0], known[-1]), (known[3], known[-1]), (known[5], known[9])):
            check_difference(stream, "o", older, newer)
        changed = stream.query(
            f"SELECT count(*) FROM sqlstream.diff('result.o', 0, {known[-1]}) WHERE change = 'changed'"
        )
        assert changed == [(10,)]


def test_what_is_said_of_a_key_tells_when_its_window_closes_and_what_holds_it_open() -> None:
    with job_of("late") as stream:
        said = dict(stream.query("SELECT part, text FROM sqlstream.why('result.o', 1, k := 'a') WHERE content IS NULL"))
    assert said["window"] == (
        "window from 2024-01-01 10:00:00 to 2024-01-01 11:00:00 closes when the watermark passes 2024-01-01 11:00:00 "
        "(1 h 3 min ahead), and can change until it passes 2024-01-01 11:20:00"
    )
    assert said["watermark"] == "the watermark is at 2024-01-01 09:57:00"
    assert said["source"].startswith("t holds the watermark: its newest row is of 2024-01-01 10:02:00")


def test_windows_beyond_the_calendar_of_python_have_an_outlook() -> None:
    select = WINDOWED.format(hint="", table="TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)")
    with Stream(f"{TABLES}WITH o AS ({select}) SELECT * FROM o") as stream:
        times = ("0044-03-15 (BC) 00:00:01", "9999-12-31 23:59:59", "12000-01-01 00:00:01")
        stream.batch("t", [("a", 1, times[0])])
        [(said,)] = stream.query("SELECT text FROM sqlstream.why('result.o', k := 'a') WHERE part = 'window'")
        assert said.startswith("window from 0044-03-15 (BC) 00:00:00 to 0044-03-15 (BC) 00:00:10 closes when")
        stream.batch("t", [("a", 1, time) for time in times[1:]])
        why = "FROM sqlstream.why('result.o', k := 'a') WHERE part = 'window'"
        assert [text.partition(" closes")[0] for (text,) in stream.query(f"SELECT text {why}")] == [
            "window from 9999-12-31 23:59:50 to 10000-01-01 00:00:00",
            "window from 12000-01-01 00:00:00 to 12000-01-01 00:00:10",
        ]
        assert stream.query(f"SELECT time::VARCHAR {why}") == [("10000-01-01 00:00:00",), ("12000-01-01 00:00:10",)]
        found = stream._query(why, lambda relation: list(values_of(relation)))
        assert found[0][3] == "10000-01-01 00:00:00"


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        ("diff('result.p', 0, 1)", 'job "result" has no operator "p"', "existing operators: o, missed"),
        ("diff('resul.o', 0, 1)", 'job "resul" does not exist', 'did you mean "result"?'),
        ("diff('result', 0, 1)", '"result" names no operator', "Write result.o or result.missed."),
        ("diff('result.o', 0, 99)", 'job "result" keeps no version 99', None),
        ("diff('result.o', 2, 1)", "version 1 is older than version 2", "Name the older version first."),
        ("diff('result.o', 0, 'spring')", '"spring" is no version', "Write a number, such as 10"),
        ("diff('result.o', 0, 'infinity')", '"infinity" is no version', "Write a number, such as 10"),
        ("diff('result.o', 0)", 'argument "newer" is missing', "Write sqlstream.diff("),
        ("diff('result.o', 0, 1, 2)", "this argument is one too many", "Write sqlstream.diff("),
        ("diff('result.o', 0, oldr := 1)", 'there is no argument "oldr"', 'did you mean "older"?'),
        ("diff('result.o', 0, until := 1)", 'there is no argument "until"', "existing arguments: state, older, newer"),
        ("diff('result.o', 0, older := 1)", 'argument "older" has two values', "Write sqlstream.diff("),
        ("diff('result.o', newer := NULL, older := 0)", 'argument "newer" is NULL', "Write sqlstream.diff("),
        ("dif('result.o', 0, 1)", 'function "sqlstream.dif" does not exist', 'did you mean "sqlstream.diff"?'),
        ("why('result.o')", 'there is no value for key column "k"', 'The key of "result.o" is k.'),
        ("why('result.o', kk := 'a')", '"kk" is no key column of "result.o"', 'did you mean "k"?'),
        ("why('result.o', k := 'a', k := 'b')", 'key column "k" has two values', None),
        ("why('result.o', 99, k := 'a')", 'job "result" keeps no version 99', None),
    ],
)
def test_mistakes_are_explained(late_job: Stream, call: str, message: str, hint: str | None) -> None:
    with pytest.raises(QueryError) as raised:
        late_job.query(f"FROM sqlstream.{call}")
    assert raised.value.message == message
    assert raised.value.span is not None
    assert (raised.value.hint or "").startswith(hint or "")
    if "keeps no" in message:
        assert "Its oldest version is 0 of" in (raised.value.detail or "")


def test_a_key_may_be_given_without_the_names_of_its_columns() -> None:
    script = f"{TABLES}WITH o AS (SELECT v, k, COUNT(*) AS n FROM t GROUP BY v, k) SELECT * FROM o"
    with Stream(script) as stream:
        stream.batch("t", [("a", 1, "2024-01-01 10:00"), (None, 2, "2024-01-01 10:00")])
        same: tuple[tuple[Key, str], ...] = (((1, "a"), "v := 1, k := 'a'"), ([2, None], "v := 2, k := NULL"))
        for values, named in same:
            found = stream.query(why_sql("result.o", values))
            assert found == stream.query(f"FROM sqlstream.why('result.o', {named})")
            assert [row[0] for row in found].count("state") == 1
        wrong: tuple[tuple[Key, str], ...] = (
            (["a", 1], '"a" is no value of key column "v"'),
            ([1, "a", "b"], '"b" is one value too many for a key'),
            (1, 'there is no value for key column "k"'),
        )
        for values, message in wrong:
            with pytest.raises(QueryError, match=message) as raised:
                stream.query(why_sql("result.o", values))
            assert raised.value.hint in (None, 'The key of "result.o" is v, k.')


def test_a_value_that_is_not_of_the_type_of_the_key_is_refused() -> None:
    script = f"{TABLES}WITH o AS (SELECT v, ts, COUNT(*) AS n FROM t GROUP BY v, ts) SELECT * FROM o"
    with Stream(script) as stream:
        stream.batch("t", [("a", 1, "2024-01-01 10:00")])
        found = "FROM sqlstream.why('result.o', V := {}, ts := '{}') WHERE part = 'state'"
        assert len(stream.query(found.format(1, "2024-01-01 10:00"))) == 1
        for value, time in (("'x'", "2024-01-01"), ("1.5", "2024-01-01"), ("1", "soon")):
            with pytest.raises(QueryError, match="is no value of key column"):
                stream.query(found.format(value, time))


@pytest.fixture(scope="module")
def late_job() -> Iterator[Stream]:
    with job_of("late") as stream:
        yield stream
