"""What is measured: each work as sqlstream's SQL, as plain Spark's built-in operators, and as DuckDB's batch SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import batch_sql, spark_frames
from tests.bench.data import COLUMNS, DELAY_SECONDS, FEW_KEYS, MANY_KEYS, SESSION_KEYS
from tests.bench.lengths import GAP, MINUTE, SHORT_GAP, SLIDE, STEP, TEN_MINUTES, WINDOW, interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

OUTPUT = "result"

_BIDS = {"auction": "BIGINT", "bidder": "BIGINT", "euros": "DOUBLE", "channel": "STRING", "ts": "TIMESTAMP(6)"}
_TOTALS = {"auction": "BIGINT", "window_end": "TIMESTAMP(6)", "n": "BIGINT", "total": "DOUBLE", "highest": "DOUBLE"}
_PLACES = {
    "auction": "BIGINT",
    "bidder": "BIGINT",
    "price": "DOUBLE",
    "window_end": "TIMESTAMP(6)",
    "place": "BIGINT",
}


@dataclass(frozen=True, slots=True)
class Work:
    """One benchmark: `query` is sqlstream's, `duckdb` has `{bids}` for its input, `frame` makes Spark's of the stream of bids.

    `seconds` is its longest window or gap, `group` another name for it and its like. `note` says how Spark does what it
    has no operator for.
    """

    name: str
    group: str
    keys: int
    title: str
    columns: Mapping[str, str]
    query: str
    duckdb: str
    frame: Callable[[DataFrame], DataFrame]
    seconds: float = WINDOW
    note: str = ""

    @property
    def windowed(self) -> bool:
        return "window_end" in self.columns

    def summary(self, rows: str, closed_until: int) -> str:
        """Return the SELECT of what must be the same in every system: how many rows there are, and a checksum of them.

        The last windows stay open in Spark, which does not know an end of input: they are left out.
        """
        values = ", ".join(
            f"epoch_us({name})" if type.startswith("TIMESTAMP") else f"CAST({name} AS {type})"
            for name, type in self.columns.items()
        )
        closed = f" WHERE epoch_us(window_end) <= {closed_until}" if self.windowed else ""
        return f"SELECT count(*), CAST(coalesce(sum(hash({values})), 0) % 1000000007 AS BIGINT) FROM {rows}{closed}"


def _aggregate(function: str) -> str:
    return f"""
    SELECT auction, window_end, count(*) AS n, sum(price) AS total, max(price) AS highest
    FROM TABLE({function}) GROUP BY auction, window_start, window_end"""


def _session(gap: float) -> str:
    return _aggregate(f"SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), {interval(gap)})")


def _top(*keys: str) -> str:
    by = ", ".join(["window_start", "window_end", *keys])
    return f"""
    SELECT auction, bidder, price, window_end, place FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY price DESC, bidder, ts) AS place
        FROM TABLE({_TUMBLE})) WHERE place <= 10"""


_TUMBLE = f"TUMBLE(TABLE bids, DESCRIPTOR(ts), {interval(WINDOW)})"
_TUMBLING = _aggregate(_TUMBLE)
_HOPPING = _aggregate(f"HOP(TABLE bids, DESCRIPTOR(ts), {interval(SLIDE)}, {interval(WINDOW)})")
_CUMULATIVE = _aggregate(f"CUMULATE(TABLE bids, DESCRIPTOR(ts), {interval(STEP)}, {interval(MINUTE)})")
_MERGED = "sum(n) AS n, sum(total) AS total, max(highest) AS highest"
_CASCADE = f"""
    WITH short AS (
        SELECT auction, window_time AS at, count(*) AS n, sum(price) AS total, max(price) AS highest
        FROM TABLE({_TUMBLE}) GROUP BY auction, window_start, window_end, window_time
    ), minutes AS (
        SELECT auction, window_time AS at, {_MERGED}
        FROM TABLE(TUMBLE(TABLE short, DESCRIPTOR(at), {interval(MINUTE)}))
        GROUP BY auction, window_start, window_end, window_time
    )
    SELECT auction, window_end, {_MERGED}
    FROM TABLE(TUMBLE(TABLE minutes, DESCRIPTOR(at), {interval(TEN_MINUTES)}))
    GROUP BY auction, window_start, window_end"""
_STATELESS = (
    "SELECT auction, bidder, price * 0.908 AS euros, upper(channel) AS channel, ts FROM {bids} WHERE price >= 5000"
)

_NO_CUMULATE = (
    "Spark has no cumulative windows: totals per slice of 10 s, then hopping windows of 1 min every 10 s over them, of which "
    "each keeps what its minute has so far (a row is aggregated once, and results come when they do in sqlstream)"
)
_NO_TOP = "Spark has no Top-N over a stream: max_by(row, order, 10) per group, unnested"


def _totals_of(
    group: str,
    title: str,
    query: str,
    duckdb: str,
    frame: Callable[[DataFrame], DataFrame],
    *,
    seconds: float = WINDOW,
    note: str = "",
) -> tuple[Work, ...]:
    """Return the totals per key and window for few keys and for many."""
    few, many = f"{title}, {FEW_KEYS} keys", f"{title}, many keys"
    return (
        Work(f"{group}_few", group, FEW_KEYS, few, _TOTALS, query, duckdb, frame, seconds, note),
        Work(f"{group}_many", group, MANY_KEYS, many, _TOTALS, query, duckdb, frame, seconds, note),
    )


def _sessions_of(name: str, keys: int, title: str, gap: float) -> Work:
    seconds = max(gap, WINDOW)
    return Work(
        name, "session", keys, title, _TOTALS, _session(gap), batch_sql.session(gap), spark_frames.session(gap), seconds
    )


def _top_of(name: str, title: str, *keys: str) -> Work:
    return Work(
        name, "top", FEW_KEYS, title, _PLACES, _top(*keys), batch_sql.top(*keys), spark_frames.top(*keys), note=_NO_TOP
    )


WORKS = (
    Work(
        "stateless",
        "stateless",
        MANY_KEYS,
        "filter and projection",
        _BIDS,
        _STATELESS.format(bids="bids"),
        _STATELESS,
        spark_frames.stateless,
    ),
    *_totals_of("tumbling", "tumbling window", _TUMBLING, batch_sql.TUMBLING, spark_frames.tumbling),
    *_totals_of("hopping", "hopping window, 10 s every 2 s", _HOPPING, batch_sql.HOPPING, spark_frames.hopping),
    *_totals_of(
        "cumulative",
        "cumulative window, 1 min by 10 s",
        _CUMULATIVE,
        batch_sql.CUMULATIVE,
        spark_frames.cumulative,
        seconds=MINUTE,
        note=_NO_CUMULATE,
    ),
    _sessions_of("session_few", FEW_KEYS, f"session window, {FEW_KEYS} keys", SHORT_GAP),
    _sessions_of("session_many", SESSION_KEYS, "session window, many open", GAP),
    _top_of("top_window", "10 rows per window"),
    _top_of("top_key", f"10 rows per window and key, {FEW_KEYS} keys", "auction"),
    *_totals_of(
        "cascade",
        "windows of 10 s, 1 min and 10 min over each other",
        _CASCADE,
        batch_sql.CASCADE,
        spark_frames.cascade,
        seconds=TEN_MINUTES,
    ),
)


def work_named(name: str) -> Work:
    return next(w for w in WORKS if w.name == name)


def works_of(names: tuple[str, ...]) -> list[Work]:
    """Return the works that are meant by their own names or by those of their groups."""
    return [w for w in WORKS if w.name in names or w.group in names]


def source_table(path: str, files_per_batch: int, *, monitored: bool = False) -> str:
    """Return the CREATE TABLE of the input for sqlstream."""
    monitor = ", 'source.monitor-interval' = '10 ms'" if monitored else ""
    columns = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
    return f"""
    CREATE TABLE bids ({columns}, WATERMARK FOR ts AS ts - {interval(DELAY_SECONDS)})
    WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet',
          'source.max-files-per-batch' = '{files_per_batch}'{monitor});"""


def sqlstream_script(work: Work, path: str, files_per_batch: int, *, monitored: bool = False) -> str:
    """Return the script whose last statement is the job, which writes the table `result`."""
    columns = ", ".join(f"{name} {type}" for name, type in work.columns.items())
    return f"""{source_table(path, files_per_batch, monitored=monitored)}
    CREATE TABLE {OUTPUT} ({columns});
    INSERT INTO {OUTPUT} {work.query}"""


def duckdb_query(work: Work, path: str) -> str:
    """Return the query over all files at once."""
    return work.duckdb.format(bids=f"read_parquet('{path}/*.parquet')")
