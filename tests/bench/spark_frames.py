"""The works as built-in operators of Structured Streaming, over the stream of bids with its watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.lengths import MINUTE, SLIDE, STEP, TEN_MINUTES, WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.group import GroupedData


def stateless(bids: DataFrame) -> DataFrame:
    return bids.where("price >= 5000").selectExpr(
        "auction", "bidder", "price * 0.908D AS euros", "upper(channel) AS channel", "ts"
    )


def tumbling(bids: DataFrame) -> DataFrame:
    return _result(_totals(bids.groupBy("auction", _window("ts", WINDOW))))


def hopping(bids: DataFrame) -> DataFrame:
    return _result(_totals(bids.groupBy("auction", _window("ts", WINDOW, SLIDE))))


def session(gap: float) -> Callable[[DataFrame], DataFrame]:
    def frame(bids: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        window = F.session_window("ts", f"{round(gap * 1000)} milliseconds").alias("window")
        return _result(_totals(bids.groupBy("auction", window)))

    return frame


def cumulative(bids: DataFrame) -> DataFrame:
    """Hopping windows over the totals of slices; of each window, the slices of the minute that it ends in."""
    slices = _timed(_totals(bids.groupBy("auction", _window("ts", STEP))))
    spread = slices.withColumn("window", _window("at", MINUTE, STEP))
    held = spread.where("at >= date_trunc('MINUTE', window.end - INTERVAL '0.000001' SECOND)")
    return _result(_merged(held.groupBy("auction", "window")))


def cascade(bids: DataFrame) -> DataFrame:
    short = _timed(_totals(bids.groupBy("auction", _window("ts", WINDOW))))
    minutes = _timed(_merged(short.groupBy("auction", _window("at", MINUTE))))
    return _result(_merged(minutes.groupBy("auction", _window("at", TEN_MINUTES))))


def top(*keys: str) -> Callable[[DataFrame], DataFrame]:
    def frame(bids: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        row, order = F.struct("auction", "bidder", "price"), F.expr("struct(price, -bidder, -unix_micros(ts))")
        highest = bids.groupBy(*keys, _window("ts", WINDOW)).agg(F.max_by(row, order, 10).alias("rows"))
        places = highest.select("window", F.posexplode("rows").alias("place", "row"))
        return places.selectExpr("row.*", "window.end AS window_end", "CAST(place + 1 AS BIGINT) AS place")

    return frame


def _window(time: str, size: int, slide: int | None = None) -> Column:
    from pyspark.sql import functions as F

    return F.window(time, f"{size} seconds", f"{slide or size} seconds").alias("window")


def _totals(grouped: GroupedData) -> DataFrame:
    from pyspark.sql import functions as F

    return grouped.agg(F.count("*").alias("n"), F.sum("price").alias("total"), F.max("price").alias("highest"))


def _merged(grouped: GroupedData) -> DataFrame:
    from pyspark.sql import functions as F

    return grouped.agg(F.sum("n").alias("n"), F.sum("total").alias("total"), F.max("highest").alias("highest"))


def _timed(totals: DataFrame) -> DataFrame:
    """Return totals with their window's event time, for a window above."""
    return totals.selectExpr("auction", "window_time(window) AS at", "n", "total", "highest")


def _result(totals: DataFrame) -> DataFrame:
    return totals.selectExpr("auction", "window.end AS window_end", "n", "total", "highest")
