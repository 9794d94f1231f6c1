"""What an operator emits beside its result: every row is in one of the outputs, however the input is cut into batches."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.slt_process_functions import CheckedReadings, PassedOn

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, 10)
TABLES = """
CREATE TABLE readings (sensor STRING, temperature DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE TABLE out (sensor STRING, e TIMESTAMP, n BIGINT);
CREATE TABLE late (sensor STRING, temperature DOUBLE, ts TIMESTAMP);
CREATE TABLE good (sensor STRING, value DOUBLE, seen TIMESTAMP);
CREATE TABLE bad (sensor STRING, reason STRING, value DOUBLE, seen TIMESTAMP);
"""
WINDOWS = """
CREATE VIEW w AS SELECT sensor, window_end, COUNT(*) AS n
FROM TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY sensor, window_start, window_end;
EXECUTE STATEMENT SET BEGIN
INSERT INTO out SELECT * FROM w;
INSERT INTO late SELECT sensor, temperature, ts FROM LATE_ROWS(TABLE w);
END
"""
CHECKED = """
CREATE VIEW checked AS SELECT * FROM checked_readings(TABLE readings PARTITION BY sensor, on_time => DESCRIPTOR(ts));
EXECUTE STATEMENT SET BEGIN
INSERT INTO good SELECT * FROM checked;
INSERT INTO bad SELECT * FROM SIDE_OUTPUT(TABLE checked, 'rejected');
END
"""
# Operators that emit each row of their input once, if it is not late.
ONE_BY_ONE = {
    "over": "SELECT *, COUNT(*) OVER (PARTITION BY sensor ORDER BY ts) AS n FROM readings",
    "merged over": "SELECT *, MAX(ts) OVER (PARTITION BY sensor ORDER BY ts) AS m FROM "
    "(SELECT *, COUNT(*) OVER (PARTITION BY sensor ORDER BY ts) AS n FROM readings)",
    "lead": "SELECT *, LEAD(ts) OVER (PARTITION BY sensor ORDER BY ts) AS n FROM readings",
    "count windows": "SELECT * FROM TUMBLE_ROWS(TABLE readings PARTITION BY sensor, DESCRIPTOR(ts), 1)",
    "process function": "SELECT sensor, value AS temperature, seen AS ts "
    "FROM passed_on(TABLE readings PARTITION BY sensor ORDER BY ts)",
}
EACH_ROW = """
CREATE TABLE passed (sensor STRING, temperature DOUBLE, ts TIMESTAMP);
CREATE VIEW v AS {query};
EXECUTE STATEMENT SET BEGIN
INSERT INTO passed SELECT sensor, temperature, ts FROM v;
INSERT INTO late SELECT sensor, temperature, ts FROM LATE_ROWS(TABLE v);
END
"""
JOINS = {
    "interval": "a FULL JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts + INTERVAL '3' SECOND",
    "temporal": "a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k",
}
JOINED = """
CREATE TABLE a (k BIGINT, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE TABLE b (k BIGINT, n BIGINT, ts TIMESTAMP, PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR ts AS ts);
CREATE TABLE passed (a BIGINT, b BIGINT);
CREATE TABLE late_a (n BIGINT, ts TIMESTAMP, watermark TIMESTAMP);
CREATE TABLE late_b (n BIGINT, ts TIMESTAMP, watermark TIMESTAMP);
CREATE VIEW v AS SELECT a.n AS a, b.n AS b FROM {join};
EXECUTE STATEMENT SET BEGIN
INSERT INTO passed SELECT * FROM v;
INSERT INTO late_a SELECT n, ts, _watermark FROM LATE_ROWS(TABLE v, 'a');
INSERT INTO late_b SELECT n, ts, _watermark FROM LATE_ROWS(TABLE v, 'b');
END
"""
Reading = tuple[str, float | None, datetime]
Late = tuple[int, datetime, datetime]
readings = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from([None, -300.0, 1.0, 2.0]),
    st.integers(0, 60).map(lambda seconds: START + timedelta(seconds=seconds)),
)
# The keys and the times, in seconds, of rows of two tables in one batch.
sides = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 60)), max_size=4)
pairs = st.lists(st.tuples(sides, sides), min_size=1, max_size=5)
# Batches, and restarts between them.
histories = st.lists(st.lists(readings, max_size=5), min_size=1, max_size=5)
run = examples(8)


def play(stream: Stream, history: list[list[Reading]]) -> list[Reading]:
    """Give batches to a stream, with a restart behind the first; return all rows."""
    for number, batch in enumerate(history):
        stream.batch("readings", batch)
        if number == 0:
            stream.restart()
    stream.finish()
    return [row for batch in history for row in batch]


@run
@given(histories, st.integers(1, 3))
def test_a_row_is_in_its_window_or_among_the_late_ones(history: list[list[Reading]], parallelism: int) -> None:
    with Stream(TABLES + WINDOWS, parallelism=parallelism) as stream:
        rows = play(stream, history)
        found = Counter({(sensor, end): n for sensor, end, n in stream.query("SELECT * FROM out")})
        late = stream.query("SELECT * FROM late")
        found.update((sensor, ended(ts)) for sensor, _, ts in late)
        assert found == Counter((sensor, ended(ts)) for sensor, _, ts in rows)
        newest, expected = None, Counter[Reading]()
        for batch in history:
            expected.update(row for row in batch if newest is not None and ended(row[2]) <= newest)
            newest = max([*([newest] if newest else []), *(ts for _, _, ts in batch)], default=None)
        assert Counter(late) == expected
        counted = stream.query("SELECT coalesce(sum(late_rows), 0), sum(state_rows) FROM sqlstream.operators")
        assert counted == [(len(late), 0)]


def ended(time: datetime) -> datetime:
    """Return the end of the window of a time."""
    return time + timedelta(seconds=10 - time.second % 10)


@run
@given(histories, st.integers(1, 3))
def test_a_row_is_emitted_in_one_output(history: list[list[Reading]], parallelism: int) -> None:
    with Stream(TABLES + CHECKED, functions=[CheckedReadings], parallelism=parallelism) as stream:
        rows = play(stream, history)
        good = [(sensor, value, at) for sensor, value, at in rows if value is not None and value > 0]
        assert Counter(stream.query("SELECT * FROM good")) == Counter(good)
        bad = stream.query("SELECT sensor, value, seen, reason FROM bad")
        assert Counter(row[:3] for row in bad) == Counter(rows) - Counter(good)
        assert all(reason == ("unknown" if value is None else "too cold") for _, value, _, reason in bad)
        assert [name for (name,) in stream.query("SELECT operator FROM sqlstream.operators")] == ["checked"]


@run
@pytest.mark.parametrize("name", ONE_BY_ONE)
@given(history=histories, parallelism=st.integers(1, 3))
def test_a_row_is_emitted_or_late(name: str, history: list[list[Reading]], parallelism: int) -> None:
    script = TABLES + EACH_ROW.format(query=ONE_BY_ONE[name])
    with Stream(script, functions=[PassedOn], parallelism=parallelism) as stream:
        rows = play(stream, history)
        late = stream.query("SELECT * FROM late")
        assert Counter(late) + Counter(stream.query("SELECT * FROM passed")) == Counter(rows)
        newest, expected = None, Counter[Reading]()
        for batch in history:
            expected.update(r for r in batch if newest is not None and r[2] < newest)
            newest = max([*([newest] if newest else []), *(ts for _, _, ts in batch)], default=None)
        assert Counter(late) == expected
        assert stream.query("SELECT sum(late_rows), count(*) FROM sqlstream.operators") == [(len(late), 1)]


@run
@pytest.mark.parametrize("name", JOINS)
@given(history=pairs, parallelism=st.integers(1, 3))
def test_a_row_of_either_input_is_joined_or_late(
    name: str, history: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]], parallelism: int
) -> None:
    number = 0
    given_rows: tuple[list[int], list[int]] = ([], [])
    expected: tuple[list[Late], list[Late]] = ([], [])
    newest: list[datetime | None] = [None, None]
    with Stream(JOINED.format(join=JOINS[name]), parallelism=parallelism) as stream:
        for place, batch in enumerate(history):
            watermark = None if None in newest else min(t for t in newest if t is not None)
            sent: list[list[tuple[int, int, datetime]]] = [[], []]
            for side, rows in enumerate(batch):
                for key, seconds in rows:
                    number, time = number + 1, START + timedelta(seconds=seconds)
                    sent[side].append((key, number, time))
                    given_rows[side].append(number)
                    if watermark is not None and time < watermark:
                        expected[side].append((number, time, watermark))
                times = [t for t in (newest[side], *(row[2] for row in sent[side])) if t is not None]
                newest[side] = max(times, default=None)
            stream.batches({"a": sent[0], "b": sent[1]})
            if place == 0:
                stream.restart()
        stream.finish()
        joined = stream.query("SELECT * FROM passed")
        for side, table in enumerate(("late_a", "late_b")):
            assert sorted(stream.query(f"SELECT * FROM {table}")) == sorted(expected[side])
            late = {row[0] for row in expected[side]}
            found = {pair[side] for pair in joined} - {None}
            assert not found & late
            # A temporal join has no rows for versions alone.
            assert found | late == set(given_rows[side]) or (name == "temporal" and side == 1)
        counted = stream.query("SELECT coalesce(sum(late_rows), 0), count(*) FROM sqlstream.operators")
        assert counted == [(len(expected[0]) + len(expected[1]), 1)]
