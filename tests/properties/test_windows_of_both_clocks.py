"""Windows of event time, of the clock, and of the clock over results of those of event time, in one job, beside a plain model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.strategies import RESTART, Restart

pytestmark = pytest.mark.slow

# In seconds: of windows of event time and of the clock, and how far the watermark is behind the newest row.
EVENT, CLOCK, DELAY = 10, 7, 3
BASE = "TIMESTAMP '2026-01-01 00:00:00'"
SCRIPT = f"""
    CREATE TABLE t (k INT, s INT, ts AS {BASE} + INTERVAL 1 SECOND * s, p AS PROCTIME(),
                    WATERMARK FOR ts AS ts - INTERVAL '{DELAY}' SECOND);
    CREATE TABLE of_event (k INT, s BIGINT, n BIGINT);
    CREATE TABLE of_clock (k INT, s BIGINT, n BIGINT);
    CREATE TABLE of_both (k INT, s BIGINT, windows BIGINT, n BIGINT);
    CREATE VIEW counts AS SELECT k, epoch(window_start - {BASE})::BIGINT AS s, COUNT(*) AS n, PROCTIME() AS p
        FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{EVENT}' SECOND) GROUP BY k, window_start, window_end;
    EXECUTE STATEMENT SET BEGIN
    INSERT INTO of_event SELECT k, s, n FROM counts;
    INSERT INTO of_clock SELECT k, epoch(window_start)::BIGINT, COUNT(*)
        FROM TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '{CLOCK}' SECOND) GROUP BY k, window_start, window_end;
    INSERT INTO of_both SELECT k, epoch(window_start)::BIGINT, COUNT(*), SUM(n)
        FROM TUMBLE(TABLE counts, DESCRIPTOR(p), INTERVAL '{CLOCK}' SECOND) GROUP BY k, window_start, window_end;
    END;
"""


@dataclass
class Model:
    """What the three queries have added up, and what they have emitted; `now` is the clock, all in seconds."""

    now: int = 0
    watermark: int | None = None
    late: int = 0
    # By key and start of the window.
    open_by_event: Counter[tuple[int, int]] = field(default_factory=Counter)
    by_event: dict[tuple[int, int], int] = field(default_factory=dict)
    by_clock: Counter[tuple[int, int]] = field(default_factory=Counter)
    windows: Counter[tuple[int, int]] = field(default_factory=Counter)
    rows: Counter[tuple[int, int]] = field(default_factory=Counter)

    def batch(self, rows: list[tuple[int, int]]) -> None:
        """Take rows: keys, and seconds of event time. The watermark is that of the batches before."""
        for key, second in rows:
            self.by_clock[key, self.now // CLOCK * CLOCK] += 1
            start = second // EVENT * EVENT
            if self.watermark is not None and start + EVENT <= self.watermark:
                self.late += 1
            else:
                self.open_by_event[key, start] += 1
        self._move(max((second for _, second in rows), default=None))

    def _move(self, newest: int | None) -> None:
        if newest is not None:
            self.watermark = newest - DELAY if self.watermark is None else max(self.watermark, newest - DELAY)
        if self.watermark is not None:
            self.close(self.watermark)

    def close(self, watermark: int) -> None:
        """Let the windows of event time leave that a watermark has passed; their rows come to those of the clock now."""
        for (key, start), n in list(self.open_by_event.items()):
            if start + EVENT <= watermark:
                del self.open_by_event[key, start]
                self.by_event[key, start] = n
                at = self.now // CLOCK * CLOCK
                self.windows[key, at] += 1
                self.rows[key, at] += n

    def over(self, start: int, *, ended: bool) -> bool:
        return ended or start + CLOCK <= self.now

    def answers(self, *, ended: bool) -> list[list[tuple[int, ...]]]:
        """Return what each query has emitted; a window of the clock leaves when that has reached its end."""
        of_event = [(key, start, n) for (key, start), n in self.by_event.items()]
        of_clock = [(key, start, n) for (key, start), n in self.by_clock.items() if self.over(start, ended=ended)]
        of_both = [
            (key, start, n, self.rows[key, start])
            for (key, start), n in self.windows.items()
            if self.over(start, ended=ended)
        ]
        return [sorted(of_event), sorted(of_clock), sorted(of_both)]


# Seconds that pass before a step, and its rows.
steps = st.tuples(
    st.integers(0, 12),
    st.one_of(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 60)), max_size=4), st.just(RESTART)),
)


@examples(25)
@given(st.lists(steps, min_size=1, max_size=10), st.integers(1, 3))
def test_each_operator_goes_by_its_own_time(
    history: list[tuple[int, list[tuple[int, int]] | Restart]], parallelism: int
) -> None:
    model = Model()
    with Stream(SCRIPT, parallelism=parallelism) as stream:
        for passed, rows in history:
            stream.advance(f"{passed} s")
            model.now += passed
            assert _emitted(stream) == model.answers(ended=False)
            if isinstance(rows, Restart):
                stream.restart()
            elif rows:
                stream.batch("t", rows)
                model.batch(rows)
            assert _emitted(stream) == model.answers(ended=False)
        stream.finish()
        model.close(10**9)
        assert _emitted(stream) == model.answers(ended=True)
        assert stream.query("SELECT sum(late_rows) FROM sqlstream.operators") == [(model.late,)]
        event("windows of event time reached those of the clock" if len(model.windows) > 1 else "few windows")


def _emitted(stream: Stream) -> list[list[tuple[object, ...]]]:
    return [stream.query(f"SELECT * FROM {table} ORDER BY ALL") for table in ("of_event", "of_clock", "of_both")]
