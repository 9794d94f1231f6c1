"""What the systems do: the same queries as sqlstream's SQL, as built-in Spark operators, and as DuckDB's batch SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.data import DELAY_SECONDS, FEW_KEYS, MANY_KEYS, WINDOW_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUTPUT = "result"
_STATELESS = "SELECT auction, bidder, price * 0.908 AS euros, upper(channel) AS channel, ts{from_} WHERE price >= 5000"
_STATELESS_SUMMARY = "SELECT count(*), sum(auction)::BIGINT, sum(bidder)::BIGINT FROM {rows}"
# The last windows stay open in Spark, which does not know an end of input: they are left out.
_WINDOW_SUMMARY = (
    "SELECT count(*), sum(n)::BIGINT, sum(total)::BIGINT FROM {rows} WHERE epoch_us(window_end) <= {closed_until}"
)


@dataclass(frozen=True, slots=True)
class Work:
    """One benchmark. `summary` is SQL over `{rows}`, the result, that must give the same in every system."""

    name: str
    title: str
    keys: int
    windowed: bool
    summary: str


WORKS = (
    Work("stateless", "filter and projection", MANY_KEYS, False, _STATELESS_SUMMARY),
    Work("few_keys", f"tumbling window, {FEW_KEYS} keys", FEW_KEYS, True, _WINDOW_SUMMARY),
    Work("many_keys", "tumbling window, many keys", MANY_KEYS, True, _WINDOW_SUMMARY),
)


def work_named(name: str) -> Work:
    return next(w for w in WORKS if w.name == name)


def source_table(path: str, files_per_batch: int, *, monitored: bool = False) -> str:
    """Return the CREATE TABLE of the input for sqlstream."""
    monitor = ", 'source.monitor-interval' = '10 ms'" if monitored else ""
    return f"""
    CREATE TABLE bids (
        auction BIGINT, bidder BIGINT, price DOUBLE, channel STRING, ts TIMESTAMP(6),
        WATERMARK FOR ts AS ts - INTERVAL '{DELAY_SECONDS}' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet',
            'source.max-files-per-batch' = '{files_per_batch}'{monitor});"""


def sqlstream_script(work: Work, path: str, files_per_batch: int, *, monitored: bool = False) -> str:
    """Return the script whose last statement is the job, which writes the table `result`."""
    table = source_table(path, files_per_batch, monitored=monitored)
    if not work.windowed:
        return f"""{table}
        CREATE TABLE {OUTPUT} (auction BIGINT, bidder BIGINT, euros DOUBLE, channel STRING, ts TIMESTAMP(6));
        INSERT INTO {OUTPUT} {_STATELESS.format(from_=" FROM bids")}"""
    return f"""{table}
    CREATE TABLE {OUTPUT} (auction BIGINT, window_end TIMESTAMP(6), n BIGINT, total DOUBLE, highest DOUBLE);
    INSERT INTO {OUTPUT}
    SELECT auction, window_end, count(*) AS n, sum(price) AS total, max(price) AS highest
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '{WINDOW_SECONDS}' SECOND))
    GROUP BY auction, window_start, window_end"""


def duckdb_query(work: Work, path: str) -> str:
    """Return the query over all files at once."""
    source = f" FROM read_parquet('{path}/*.parquet')"
    if not work.windowed:
        return _STATELESS.format(from_=source)
    window = f"time_bucket(INTERVAL {WINDOW_SECONDS} SECOND, ts) + INTERVAL {WINDOW_SECONDS} SECOND"
    return (
        f"SELECT auction, {window} AS window_end, count(*) AS n, sum(price) AS total, max(price) AS highest"
        f"{source} GROUP BY ALL"
    )


def spark_frame(work: Work, bids: DataFrame) -> DataFrame:
    """Return the work as built-in operators over the stream of bids."""
    from pyspark.sql import functions as F

    if not work.windowed:
        return bids.where("price >= 5000").selectExpr(
            "auction", "bidder", "price * 0.908D AS euros", "upper(channel) AS channel", "ts"
        )
    grouped = bids.withWatermark("ts", f"{DELAY_SECONDS} seconds").groupBy(
        "auction", F.window("ts", f"{WINDOW_SECONDS} seconds").alias("window")
    )
    totals = grouped.agg(F.count("*").alias("n"), F.sum("price").alias("total"), F.max("price").alias("highest"))
    return totals.selectExpr("auction", "window.end AS window_end", "n", "total", "highest")
