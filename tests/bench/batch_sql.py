"""The works as one DuckDB query over all rows, `{bids}`: the limit of what an engine that need not wait can do."""

from __future__ import annotations

from tests.bench.lengths import MINUTE, SLIDE, STEP, TEN_MINUTES, WINDOW, interval

_TOTALS = "count(*) AS n, sum(price) AS total, max(price) AS highest"
_MERGED = "CAST(sum(n) AS BIGINT) AS n, sum(total) AS total, max(highest) AS highest"


def _end(time: str, seconds: int) -> str:
    return f"time_bucket({interval(seconds)}, {time}) + {interval(seconds)}"


def _slices(seconds: int) -> str:
    """Return the totals per stretch of time that no window's bound divides."""
    return f"SELECT auction, {_end('ts', seconds)} AS slice_end, {_TOTALS} FROM {{bids}} GROUP BY ALL"


def _windows(slices: int, last_end: str) -> str:
    ends = f"unnest(generate_series(slice_end, {last_end}, {interval(slices)})) AS window_end"
    spread = f"SELECT * EXCLUDE (slice_end), {ends} FROM ({_slices(slices)})"
    return f"SELECT auction, window_end, {_MERGED} FROM ({spread}) GROUP BY ALL"


TUMBLING = f"SELECT auction, {_end('ts', WINDOW)} AS window_end, {_TOTALS} FROM {{bids}} GROUP BY ALL"
HOPPING = _windows(SLIDE, f"slice_end + {interval(WINDOW - SLIDE)}")
CUMULATIVE = _windows(STEP, _end(f"slice_end - {interval(STEP)}", MINUTE))

_MINUTES = (
    f"SELECT auction, {_end(f'window_end - {interval(WINDOW)}', MINUTE)} AS minute_end, {_MERGED} "
    f"FROM ({TUMBLING}) GROUP BY ALL"
)
CASCADE = (
    f"SELECT auction, {_end(f'minute_end - {interval(MINUTE)}', TEN_MINUTES)} AS window_end, {_MERGED} "
    f"FROM ({_MINUTES}) GROUP BY ALL"
)


def session(gap: float) -> str:
    """Return the sessions of each auction, told apart by how many have begun before."""
    by = "OVER (PARTITION BY auction ORDER BY ts"
    begins = f"CASE WHEN ts <= lag(ts) {by}) + {interval(gap)} THEN 0 ELSE 1 END AS begins"
    marked = f"SELECT auction, ts, price, {begins} FROM {{bids}}"
    numbered = f"SELECT *, sum(begins) {by}) AS number FROM ({marked})"
    return (
        f"SELECT auction, max(ts) + {interval(gap)} AS window_end, {_TOTALS} FROM ({numbered}) GROUP BY auction, number"
    )


def top(*keys: str) -> str:
    """Return the ten highest bids per window and keys."""
    end = _end("ts", WINDOW)
    order = f"PARTITION BY {', '.join([end, *keys])} ORDER BY price DESC, bidder, ts"
    place = f"row_number() OVER ({order}) AS place"
    return f"SELECT auction, bidder, price, {end} AS window_end, {place} FROM {{bids}} QUALIFY place <= 10"
