"""Windows of months and years: DuckDB's date_trunc and time_bucket over the rows that were not late, in any zone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import Bag, bag, connection, limits
from tests.properties.strategies import EPOCH, RESTART, Batch, Restart, Row, Step, keys, texts, values

pytestmark = pytest.mark.slow

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
UNITS = {1: "month", 3: "quarter", 12: "year"}


@dataclass(frozen=True)
class Months:
    """Windows of so many months, moved by months and days, of a TIMESTAMP_LTZ in a zone, or of a TIMESTAMP without one."""

    months: int
    shift: int = 0
    days: int = 0
    zone: str | None = None

    def streaming(self) -> str:
        moved = f", INTERVAL '{self.shift} months {self.days} days'" if self.shift or self.days else ""
        return f"TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '{self.months}' MONTH{moved})"

    def batch(self) -> str:
        """Return what DuckDB says of the rows of a table of instants."""
        local = f"timezone('{self.zone or 'UTC'}', ts) - INTERVAL '{self.days} days'"
        if self.months in UNITS and not self.shift:
            start = f"date_trunc('{UNITS[self.months]}', {local})"
        else:
            origin = f"TIMESTAMP '1970-01-01' + INTERVAL '{self.shift} months'"
            start = f"time_bucket(INTERVAL '{self.months} months', {local}, {origin})"
        days = f"INTERVAL '{self.days} days'"
        ends = f"first + {days} AS window_start, first + INTERVAL '{self.months} months' + {days} AS window_end"
        return f"(SELECT *, {ends} FROM (SELECT *, {start} AS first FROM a))"

    def local(self, micros: int) -> datetime:
        """Return an instant as clocks in the zone show it."""
        instant = EPOCH + timedelta(microseconds=micros)
        return instant.astimezone(ZoneInfo(self.zone) if self.zone else UTC).replace(tzinfo=None)

    def end(self, micros: int) -> datetime:
        """Return the end of the window that holds an instant."""
        moved = self.local(micros) - timedelta(days=self.days)
        month = (moved.year - 1970) * 12 + moved.month - 1
        after = month - (month - self.shift) % self.months + self.months
        return datetime(1970 + after // 12, after % 12 + 1, 1) + timedelta(days=self.days)


@dataclass
class Model:
    """Which rows are late: the watermark of the batches before had passed the end of their window by the lateness."""

    windows: Months
    delay: int
    lateness: int
    watermark: datetime | None = None
    accepted: list[Row] = field(default_factory=list)
    late: int = 0

    def batch(self, rows: Iterable[Row]) -> None:
        timed = [row for row in rows if row[3] is not None]
        for row in timed:
            end = self.windows.end(row[3] or 0) + timedelta(microseconds=self.lateness)
            if self.watermark is not None and end <= self.watermark:
                self.late += 1
            else:
                self.accepted.append(row)
        for row in timed:
            mark = self.windows.local((row[3] or 0) - self.delay)
            mark = mark.replace(microsecond=mark.microsecond // 1000 * 1000)
            self.watermark = max(self.watermark or mark, mark)

    @property
    def ended(self) -> list[Row]:
        """The rows of windows whose end the watermark has passed."""
        return [row for row in self.accepted if self.watermark and self.windows.end(row[3] or 0) <= self.watermark]


SELECT = """SELECT {}k, window_start, window_end, COUNT(*) AS n, SUM(x) AS total, COUNT(DISTINCT s) AS d, MAX(s) AS m
FROM {} GROUP BY k, window_start, window_end"""


def answer(windows: Months, rows: Iterable[Row]) -> Bag:
    con = connection()
    con.execute("CREATE OR REPLACE TEMP TABLE a (k BIGINT, x BIGINT, s VARCHAR, ts TIMESTAMPTZ)")
    for row in rows:
        con.execute("INSERT INTO a VALUES (?, ?, ?, make_timestamptz(?))", row)
    return bag(con.execute(SELECT.format("", windows.batch())).fetchall())


def stream_of(windows: Months, delay: int, lateness: int, parallelism: int) -> Stream:
    watermark = f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' MICROSECOND"
    script = f"CREATE TABLE a (k BIGINT, x BIGINT, s STRING, ts {'TIMESTAMP_LTZ' if windows.zone else 'TIMESTAMP'}, {watermark});"
    script += "CREATE TABLE out (k BIGINT, a TIMESTAMP, b TIMESTAMP, n BIGINT, total HUGEINT, d BIGINT, m STRING);"
    hint = f"/*+ ALLOWED_LATENESS('{lateness} us') */ " if lateness else ""
    script += f"INSERT INTO out {SELECT.format(hint, windows.streaming())}"
    options = {"table.local-time-zone": windows.zone} if windows.zone else {}
    return Stream(script, parallelism=parallelism, options=options)


def written(row: Row, windows: Months) -> tuple[object, ...]:
    """Return a row as the stream gets it."""
    if row[3] is None:
        return row
    instant = EPOCH + timedelta(microseconds=row[3])
    return (*row[:3], instant if windows.zone else instant.replace(tzinfo=None))


# Before 1970, too, and over leap years: 1900 and 2100 are none, 2000 is one.
TIMELESS = st.builds(
    Months,
    st.sampled_from([1, 1, 1, 3, 12, 2, 5, 7, 24]),
    st.sampled_from([0, 0, 1, 3, 11]),
    st.sampled_from([0, 0, 5, 14, 27, -1]),
)
ZONED = st.builds(
    Months,
    st.sampled_from([1, 1, 3, 12, 5]),
    st.sampled_from([0, 0, 3]),
    st.sampled_from([0, 0, 5]),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Months, list[Step]]:
    """Draw windows, and batches whose times move on by days to years, near the bounds of months, and a little out of order."""
    windows = draw(st.one_of(TIMELESS, ZONED))
    # What clocks showed in zones long ago, tables of zones do not agree in.
    years = (1980, 2035) if windows.zone else (1582, 2400)
    first = st.one_of(st.sampled_from([1899, 1900, 1969, 1970, 1999, 2000, 2023, 2024, 2099]), st.integers(*years))
    year = draw(first if windows.zone is None else st.integers(*years))
    month, steps = draw(st.integers(0, 11)), list[Step]()
    near = st.one_of(
        st.none(),
        st.sampled_from([-1, 0, 1, -1000, -HOUR, HOUR, -DAY, DAY, 5 * DAY, 14 * DAY, 27 * DAY, 28 * DAY, 29 * DAY]),
        st.integers(-40 * 24, 40 * 24).map(lambda hours: hours * HOUR),
    )
    for ahead in draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 13]), min_size=1, max_size=8)):
        month += ahead
        begin = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=ZoneInfo(windows.zone) if windows.zone else UTC)
        micros = (begin.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
        rows = draw(st.lists(st.tuples(keys, values, texts, near), min_size=1, max_size=5))
        moved = tuple((*row[:3], None if row[3] is None else micros + row[3]) for row in rows)
        steps.append(Batch((("a", moved),)))
        if draw(st.integers(0, 4)) == 0:
            steps.append(RESTART)
    return windows, steps


def at(year: int, month: int, day: int = 1, hour: int = 0) -> Batch:
    """Return a batch with a row of a time."""
    micros = (datetime(year, month, day, hour, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    return Batch((("a", ((1, 1, "a", micros),)),))


@examples(40)
@given(
    case=cases(),
    delay=st.sampled_from([0, DAY, 40 * DAY]),
    lateness=st.sampled_from([0, 0, 10 * DAY]),
    parallelism=st.integers(1, 3),
    small=st.booleans(),
)
@example(case=(Months(1), [at(2024, 2, 29), at(2024, 3)]), delay=0, lateness=0, parallelism=1, small=False)
@example(case=(Months(1), [at(1900, 2, 28, 23), at(1900, 3)]), delay=0, lateness=0, parallelism=1, small=False)
@example(
    case=(Months(1, zone="Europe/Berlin"), [at(2026, 3, 31, 21), at(2026, 3, 31, 22)]),
    delay=0,
    lateness=0,
    parallelism=2,
    small=False,
)
def test_windows_of_months_are_those_of_the_calendar(
    case: tuple[Months, list[Step]], delay: int, lateness: int, parallelism: int, small: bool
) -> None:
    windows, history = case
    model = Model(windows, delay, lateness)
    with limits(small=small), stream_of(windows, delay, lateness, parallelism) as stream:
        for step in history:
            if isinstance(step, Restart):
                stream.restart()
                continue
            stream.batch("a", [written(row, windows) for row in step.of("a")])
            model.batch(step.of("a"))
        assert bag(stream.rows("out")) == answer(windows, model.ended), "windows that the watermark has closed"
        shown = stream.query("SELECT DISTINCT window_start, window_end FROM state.out.window_aggregate_1")
        assert stream.query("SELECT open_windows FROM sqlstream.operators") == [(len(shown),)]
        assert stream.verify()
        stream.finish()
        assert stream.verify()
        assert bag(stream.rows("out")) == answer(windows, model.accepted)
        numbers = "late_rows, state_rows, open_windows, next_end"
        assert stream.query(f"SELECT {numbers} FROM sqlstream.operators") == [(model.late, 0, 0, None)]
