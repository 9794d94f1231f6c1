"""What is measured from Kafka to Kafka: a filter, sums in windows, an interval join, and windows over deduplicated rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.bench.data import DELAY_SECONDS, DISORDER_SECONDS, MANY_KEYS, ROWS_PER_SECOND, START_MICROS

REACH_SECONDS = 10
# A topic has so many partitions, or a divisor of it: a click that is sent again is then in the partition of the first one.
_PARTITIONS = 120
# Of so many runs of _PARTITIONS messages the last one has clicks that are sent again; the first ones are within so many of
# these groups of runs.
_RUNS, _GROUPS = 4, 25
CAMPAIGNS = 1_000
# Padding, so that a message has some 160 bytes, as one of Nexmark has.
_URL = "'https://www.example.com/item/' || (hash(i, 'url') % 100000000)"


@dataclass(frozen=True, slots=True)
class Topic:
    """Messages: their columns, and the SELECT of message `i` without FROM; `ts` is the event time."""

    columns: Mapping[str, str]
    row: str


@dataclass(frozen=True, slots=True)
class KafkaWork:
    """A query over topics, for sqlstream and Flink, and the same in Spark's SQL, if Spark has it.

    `ends` is the column that says when a row of the result is final, where Spark does not emit the last ones.
    """

    name: str
    title: str
    topics: tuple[str, ...]
    columns: Mapping[str, str]
    query: str
    spark: str | None
    ends: str = ""

    def summary(self, rows: str, until: int) -> str:
        """Return the SELECT of the number of rows, and a checksum of them: of those that are final at a time (µs)."""
        values = ", ".join(f"CAST({name} AS {type})" for name, type in self.columns.items())
        where = f" WHERE {self.ends} <= make_timestamp({until})" if self.ends else ""
        return f"SELECT count(*), CAST(coalesce(sum(hash({values})), 0) % 1000000007 AS BIGINT) FROM {rows}{where}"


def _first_sent() -> str:
    """Return the SQL of the number of the message that a click was first sent with: its own number, unless it is sent again."""
    back = f"{_PARTITIONS} * (1 + {_RUNS} * (hash(i, 'again') % {_GROUPS}))"
    again = f"(i // {_PARTITIONS}) % {_RUNS} = {_RUNS - 1}"
    first = f"CASE WHEN i >= {back} THEN i - {back} ELSE i - {_PARTITIONS} END"
    return f"CAST(CASE WHEN {again} THEN {first} ELSE i END AS BIGINT)"


def _time(behind: str = "0") -> str:
    late = f"hash(i, 'late') % {DISORDER_SECONDS * 1_000_000}"
    micros = f"{START_MICROS} + i * {1_000_000 // ROWS_PER_SECOND} + {behind} - {late}"
    return f"make_timestamp(CAST({micros} AS BIGINT) // 1000 * 1000) AS ts"


TOPICS = {
    "bids": Topic(
        {
            "auction": "BIGINT",
            "bidder": "BIGINT",
            "price": "BIGINT",
            "channel": "STRING",
            "url": "STRING",
            "ts": "TIMESTAMP",
        },
        f"""CAST(hash(i, 'auction') % {MANY_KEYS} AS BIGINT) AS auction, CAST(hash(i, 'bidder') % 1000000 AS BIGINT) AS bidder,
            CAST(hash(i, 'price') % 10000 AS BIGINT) AS price,
            ['web', 'mobile', 'partner', 'phone'][1 + CAST(hash(i, 'channel') % 4 AS INTEGER)] AS channel,
            {_URL} AS url, {_time()}""",
    ),
    "orders": Topic(
        {"id": "BIGINT", "amount": "BIGINT", "url": "STRING", "ts": "TIMESTAMP"},
        f"CAST(i AS BIGINT) AS id, CAST(hash(i, 'amount') % 10000 AS BIGINT) AS amount, {_URL} AS url, {_time()}",
    ),
    "shipments": Topic(
        {"order_id": "BIGINT", "carrier": "STRING", "url": "STRING", "ts": "TIMESTAMP"},
        f"""CAST(i AS BIGINT) AS order_id, ['sea', 'road', 'air'][1 + CAST(hash(i, 'carrier') % 3 AS INTEGER)] AS carrier,
            {_URL} AS url, {_time(f"CAST(hash(i, 'behind') % {2 * REACH_SECONDS * 1_000_000} AS BIGINT)")}""",
    ),
    # A click that is sent again has the id of the first one, and a cost and a time of its own.
    "clicks": Topic(
        {"id": "BIGINT", "campaign": "BIGINT", "cost": "BIGINT", "url": "STRING", "ts": "TIMESTAMP"},
        f"""{_first_sent()} AS id, CAST(hash({_first_sent()}, 'campaign') % {CAMPAIGNS} AS BIGINT) AS campaign,
            CAST(hash(i, 'cost') % 10000 AS BIGINT) AS cost, {_URL} AS url, {_time()}""",
    ),
}
KAFKA_WORKS = (
    KafkaWork(
        "kafka_filter",
        "filter and projection",
        ("bids",),
        {"auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT", "ts": "TIMESTAMP"},
        "SELECT auction, bidder, price, ts FROM bids WHERE price >= 5000",
        "SELECT auction, bidder, price, ts FROM bids WHERE price >= 5000",
    ),
    KafkaWork(
        "kafka_tumbling",
        "sums in windows of 10 s, many keys",
        ("bids",),
        {"window_end": "TIMESTAMP", "auction": "BIGINT", "bids": "BIGINT", "total": "BIGINT"},
        "SELECT window_end, auction, COUNT(*), SUM(price) "
        "FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, auction",
        "SELECT window.end AS window_end, auction, count(*) AS bids, sum(price) AS total "
        "FROM bids GROUP BY window(ts, '10 seconds'), auction",
        ends="window_end",
    ),
    KafkaWork(
        "kafka_join",
        f"interval join, {REACH_SECONDS} s",
        ("orders", "shipments"),
        {"id": "BIGINT", "amount": "BIGINT", "carrier": "STRING", "ts": "TIMESTAMP"},
        "SELECT o.id, o.amount, s.carrier, s.ts FROM orders AS o JOIN shipments AS s ON o.id = s.order_id "
        f"AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '{REACH_SECONDS}' SECOND",
        "SELECT o.id, o.amount, s.carrier, s.ts FROM orders AS o JOIN shipments AS s ON o.id = s.order_id "
        f"AND s.ts BETWEEN o.ts AND o.ts + INTERVAL {REACH_SECONDS} SECONDS",
    ),
    KafkaWork(
        "kafka_dedup",
        "the first row of each id by PROCTIME(), then sums in windows of 10 s",
        ("clicks",),
        {"window_end": "TIMESTAMP", "campaign": "BIGINT", "clicks": "BIGINT", "total": "BIGINT"},
        "WITH firsts AS (SELECT campaign, cost, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY p) AS n "
        "FROM (SELECT *, PROCTIME() AS p FROM clicks)) WHERE n = 1) "
        "SELECT window_end, campaign, COUNT(*), SUM(cost) "
        "FROM TABLE(TUMBLE(TABLE firsts, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, campaign",
        # Spark's dropDuplicates keeps any of the rows of a batch.
        None,
        ends="window_end",
    ),
)


def kafka_works_of(names: tuple[str, ...]) -> list[KafkaWork]:
    """Return the works of some names; `kafka` is all of them."""
    return [work for work in KAFKA_WORKS if work.name in names or "kafka" in names]


def work_named(name: str) -> KafkaWork:
    [found] = kafka_works_of((name,))
    return found


def closed_until(rows: int) -> int:
    """Return the time (µs) up to which all results are final once so many messages of a topic were read."""
    return START_MICROS + rows * (1_000_000 // ROWS_PER_SECOND) - (DELAY_SECONDS + DISORDER_SECONDS) * 1_000_000
