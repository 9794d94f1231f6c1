"""What an operator emits beside its result: every row is in one of the outputs, however the input is cut into batches."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.slt_process_functions import CheckedReadings

pytestmark = pytest.mark.slow

MORE = int(os.environ.get("PROPERTY_EXAMPLES", "1"))
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
Reading = tuple[str, float | None, datetime]
readings = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from([None, -300.0, 1.0, 2.0]),
    st.integers(0, 60).map(lambda seconds: START + timedelta(seconds=seconds)),
)
# Batches, and restarts between them.
histories = st.lists(st.lists(readings, max_size=5), min_size=1, max_size=5)
run = settings(max_examples=8 * MORE, deadline=None, suppress_health_check=[HealthCheck.too_slow])


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
