"""Process functions without ORDER BY above every kind of operator: of rows in order none is late, in whatever batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream import Context, MapState, Row, process, state, table
from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.slt_process_functions import Echoes, Latenesses, PassedOn
from tests.slt_vectorized_process_functions import CopiesByBucket, LatenessesByKey

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, 10)


@dataclass
class Seen:
    is_late: bool
    is_ahead: bool


@process
class BothLatenesses:
    """Says whether rows are late, and whether broadcast ones were."""

    late: MapState[bool, int] = state(broadcast=True)

    @table
    def rows(self, ctx: Context, row: Row) -> Iterator[Seen]:
        assert ctx.event_time is not None
        yield Seen(ctx.is_late or True in self.late, ctx.watermark is not None and ctx.watermark >= ctx.event_time)

    @table(broadcast=True)
    def news(self, ctx: Context, row: Row) -> None:
        assert ctx.event_time is not None
        is_ahead = ctx.watermark is not None and ctx.watermark >= ctx.event_time
        self.late[ctx.is_late or is_ahead] = 1


TABLES = """
CREATE TABLE a (k BIGINT, temperature DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE TABLE b (k BIGINT, x BIGINT, ts TIMESTAMP, PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR ts AS ts);
CREATE TABLE straight (w TIMESTAMP, n BIGINT);
CREATE TABLE through (w TIMESTAMP, is_late BOOLEAN, is_ahead BOOLEAN, n BIGINT);
"""
TUMBLED = "TUMBLE({}, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
WINDOW = "k, window_start, window_end, window_time"
# Operators whose rows trail the watermark.
BELOW = {
    "over": "SELECT k, ts, COUNT(*) OVER (PARTITION BY k ORDER BY ts) AS n FROM a",
    "windows": f"SELECT k, window_time AS ts FROM {TUMBLED.format('TABLE a')} GROUP BY {WINDOW}",
    "sessions": "SELECT k, window_time AS ts FROM "
    f"SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '4' SECOND) GROUP BY {WINDOW}",
    "count windows": "SELECT k, window_time AS ts FROM TUMBLE_ROWS(TABLE a PARTITION BY k, DESCRIPTOR(ts), 2) "
    "GROUP BY k, window_id, window_start, window_end, window_time",
    "interval join": "SELECT a.k, a.ts FROM a LEFT JOIN b ON a.k = b.k "
    "AND b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts + INTERVAL '3' SECOND",
    "temporal join": "SELECT a.k, a.ts FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k",
    "function in order": "SELECT k, rowtime AS ts FROM passed_on(TABLE a PARTITION BY k ORDER BY ts, on_time => DESCRIPTOR(ts))",
    "timers": "SELECT k, rowtime AS ts FROM echoes(TABLE a PARTITION BY k, on_time => DESCRIPTOR(ts))",
    "over above an interval join": "SELECT k, ts, COUNT(*) OVER (PARTITION BY k ORDER BY ts) AS n FROM (SELECT a.k, a.ts FROM a "
    "LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '3' SECOND)",
    "temporal join above windows": f"SELECT w.k, w.ts FROM (SELECT k, window_time AS ts FROM {TUMBLED.format('TABLE a')} "
    f"GROUP BY {WINDOW}) AS w LEFT JOIN b FOR SYSTEM_TIME AS OF w.ts ON w.k = b.k",
}
FORMS = {
    "rows": "SELECT rowtime, is_late, is_ahead FROM latenesses(TABLE v PARTITION BY k, on_time => DESCRIPTOR(ts))",
    "tables of keys": 'SELECT rowtime, FALSE AS is_late, "value" AS is_ahead '
    "FROM latenesses_by_key(TABLE v PARTITION BY k, on_time => DESCRIPTOR(ts))",
    "tables of buckets": 'SELECT rowtime, FALSE AS is_late, "value" AS is_ahead '
    "FROM copies_by_bucket(TABLE v PARTITION BY k, on_time => DESCRIPTOR(ts))",
    "broadcast": 'SELECT rowtime, is_late, is_ahead FROM both_latenesses("rows" => TABLE v PARTITION BY k, '
    "news => TABLE v BROADCAST, on_time => DESCRIPTOR(ts, ts))",
}
JOB = """
CREATE VIEW v AS {below};
CREATE VIEW f AS {form};
EXECUTE STATEMENT SET BEGIN
INSERT INTO straight SELECT window_start, COUNT(*) FROM TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '7' SECOND)
GROUP BY window_start, window_end;
INSERT INTO through SELECT window_start, is_late, is_ahead, COUNT(*)
FROM TUMBLE(TABLE f, DESCRIPTOR(rowtime), INTERVAL '7' SECOND) GROUP BY window_start, window_end, is_late, is_ahead;
END
"""
FUNCTIONS = [Latenesses, LatenessesByKey, CopiesByBucket, BothLatenesses, PassedOn, Echoes]
# For each batch, how many seconds and microseconds after the row before a row of `a` or of `b` comes, and its key.
rows = st.tuples(st.booleans(), st.integers(1, 2), st.sampled_from([0, 0, 1, 1_000_000, 3_000_000, 12_000_000]))
histories = st.lists(st.lists(rows, max_size=4), min_size=1, max_size=5)
run = examples(6)
Timed = tuple[int, int, datetime]


def in_order(history: list[list[tuple[bool, int, int]]]) -> list[tuple[list[Timed], list[Timed]]]:
    """Return the rows of both tables for each batch, their times never going back."""
    time, number, found = START, 0, []
    for batch in history:
        sides: tuple[list[Timed], list[Timed]] = ([], [])
        for of_b, key, later in batch:
            time, number = time + timedelta(microseconds=later), number + 1
            sides[of_b].append((key, number, time))
        found.append(sides)
    return found


def answer(stream: Stream, batches: list[tuple[list[Timed], list[Timed]]]) -> tuple[Counter[object], Counter[object]]:
    """Give batches to a stream, with a restart behind the first; return what it gives without and with the function."""
    for number, (a, b) in enumerate(batches):
        stream.batches({"a": a, "b": b})
        if number == 0:
            stream.restart()
    stream.finish()
    assert stream.query("SELECT coalesce(sum(late_rows), 0) FROM sqlstream.operators") == [(0,)]
    through = stream.query("SELECT * FROM through")
    assert not any(is_late or is_ahead for _, is_late, is_ahead, _ in through), through
    counted = Counter({w: n for w, _, _, n in through})
    return Counter(dict(stream.query("SELECT * FROM straight"))), counted


@run
@pytest.mark.one_in(2)
@pytest.mark.parametrize("below", BELOW)
@given(form=st.sampled_from(sorted(FORMS)), history=histories, parallelism=st.integers(1, 2))
def test_rows_in_order_are_in_time(
    below: str, form: str, history: list[list[tuple[bool, int, int]]], parallelism: int
) -> None:
    script = TABLES + JOB.format(below=BELOW[below], form=FORMS[form])
    batches = in_order(history)
    with Stream(script, functions=FUNCTIONS, parallelism=parallelism) as stream:
        straight, through = answer(stream, batches)
    assert through == straight
    at_once = [([row for a, _ in batches for row in a], [row for _, b in batches for row in b])]
    with Stream(script, functions=FUNCTIONS, parallelism=parallelism) as stream:
        assert answer(stream, at_once) == (straight, through)
