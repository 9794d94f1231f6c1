"""What the jobs of a soak read, compute and must have written in the end.

Rows come in files, a file for each table and tick, on a clock of their own: no row is late, however late its file is. Amounts are
whole numbers, and every order has another value to be ranked by, so that there is one answer.
"""

from __future__ import annotations

import heapq
import json
import random
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SHOPS, CUSTOMERS = 10, 100
# Rows are so much out of order, in seconds, which is less than what their watermark waits for.
DISORDER = 2.0
# A payment comes within so many seconds, or never.
PAID_WITHIN = 15.0
PAID_SHARE = 0.9

_RUNNING = """
SET 'restart-strategy.type' = 'fixed-delay';
SET 'restart-strategy.fixed-delay.attempts' = '1000000';
SET 'restart-strategy.fixed-delay.delay' = '500 ms';
SET 'execution.checkpointing.interval' = '500 ms';
SET 'parallelism.default' = '2';
SET 'sqlstream.state.retention' = '30 s';
SET 'sqlstream.unbounded-state' = 'allow';
SET 'spark.driver.memory' = '512m';
"""
_ORDERS = """
CREATE TABLE orders (id BIGINT, shop BIGINT, customer BIGINT, amount BIGINT, ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts - INTERVAL '3' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in/orders', 'format' = 'json', 'source.monitor-interval' = '200 ms');
"""
_PAYMENTS = """
CREATE TABLE payments (order_id BIGINT, paid BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in/payments', 'format' = 'json', 'source.monitor-interval' = '200 ms');
"""


@dataclass(frozen=True, slots=True)
class SoakJob:
    """A job: its script, its operator whose state is looked at, the tables that it reads, and what it must have written."""

    name: str
    script: str
    operator: str
    reads: tuple[str, ...]
    columns: str
    answer: str


SALES = SoakJob(
    "sales",
    f"""{_RUNNING}{_ORDERS}
CREATE TABLE sales (shop BIGINT, begun TIMESTAMP(3), n BIGINT, amount BIGINT, most BIGINT);
INSERT INTO sales
WITH by_window AS (
    SELECT shop, window_start, window_end, COUNT(*) AS n, SUM(amount) AS amount, MAX(amount) AS most
    FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY shop, window_start, window_end
)
SELECT shop, window_start, n, CAST(amount AS BIGINT), most FROM by_window;
""",
    "by_window",
    ("orders",),
    "shop, begun, n, amount, most",
    """SELECT shop, time_bucket(INTERVAL 10 SECOND, ts) AS begun, count(*), sum(amount)::BIGINT, max(amount)
    FROM orders GROUP BY ALL""",
)
MATCHES = SoakJob(
    "matches",
    f"""{_RUNNING}{_ORDERS}{_PAYMENTS}
CREATE TABLE matches (id BIGINT, amount BIGINT, paid BIGINT);
INSERT INTO matches
WITH paid_orders AS (
    SELECT o.id, o.amount, p.paid FROM orders AS o
    LEFT JOIN payments AS p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '20' SECOND
)
SELECT id, amount, paid FROM paid_orders;
""",
    "paid_orders",
    ("orders", "payments"),
    "id, amount, paid",
    """SELECT o.id, o.amount, p.paid FROM orders AS o
    LEFT JOIN payments AS p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 20 SECOND""",
)
RANKS = SoakJob(
    "ranks",
    f"""{_RUNNING}{_ORDERS}
CREATE TABLE ranks (shop BIGINT, customer BIGINT, total BIGINT, place BIGINT, PRIMARY KEY (shop, customer) NOT ENFORCED);
INSERT INTO ranks
WITH totals AS (
    SELECT shop, customer, COUNT(*) AS n, CAST(SUM(amount) AS BIGINT) AS total FROM orders GROUP BY shop, customer
), best AS (
    SELECT shop, customer, total, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY total DESC, customer) AS place FROM totals
)
SELECT shop, customer, total, place FROM best WHERE place <= 3;
""",
    "totals",
    ("orders",),
    "shop, customer, total, place",
    """SELECT shop, customer, sum(amount)::BIGINT AS total,
        row_number() OVER (PARTITION BY shop ORDER BY sum(amount) DESC, customer) AS place
    FROM orders GROUP BY shop, customer QUALIFY place <= 3""",
)
# In this order they are put on Spark, as many as are asked for.
JOBS = (SALES, MATCHES, RANKS)


class Generator(threading.Thread):
    """Writes a file for each table and tick, at a steady rate, until it is told to stop."""

    def __init__(self, folder: Path, seed: int, rows_a_second: int, tick: float):
        super().__init__(name="soak-generator", daemon=True)
        self.folder, self.tick = folder, tick
        self.rows_of_a_file = max(round(rows_a_second * tick), 1)
        self.rows = {"orders": 0, "payments": 0}
        self.bytes = 0
        self.error: BaseException | None = None
        self._random = random.Random(seed)
        self._due: list[tuple[float, int, int, float]] = []
        self._files = 0
        self._done = threading.Event()
        for table in self.rows:
            (folder / table).mkdir(parents=True)

    def run(self) -> None:
        began = time.monotonic()
        try:
            while not self._done.wait(max(began + self._files * self.tick - time.monotonic(), 0)):
                self.write_files()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Write no more files, and wait until that is so."""
        self._done.set()
        self.join()

    def write_files(self) -> None:
        """Write the files of the next tick."""
        at = (self._files + 1) * self.tick
        orders = [self._order(at) for _ in range(self.rows_of_a_file)]
        payments = []
        while self._due and self._due[0][0] <= at:
            _, id, paid, ts = heapq.heappop(self._due)
            payments.append({"order_id": id, "paid": paid, "ts": _text(ts)})
        self._write("orders", orders)
        self._write("payments", payments)
        self._files += 1

    def _order(self, at: float) -> dict[str, object]:
        chance = self._random
        id, amount = self.rows["orders"] + 1, chance.randint(1, 1_000)
        ts = at - chance.uniform(0, DISORDER)
        if chance.random() < PAID_SHARE:
            paid = ts + chance.uniform(0, PAID_WITHIN)
            # It comes late by a little, but not later than the watermark waits.
            heapq.heappush(self._due, (max(paid, at) + chance.uniform(0, DISORDER - self.tick), id, amount, paid))
        self.rows["orders"] += 1
        shop, customer = chance.randrange(SHOPS), int(CUSTOMERS * chance.random() ** 2)
        return {"id": id, "shop": shop, "customer": customer, "amount": amount, "ts": _text(ts)}

    def _write(self, table: str, rows: list[dict[str, object]]) -> None:
        if table == "payments":
            self.rows["payments"] += len(rows)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        making = self.folder / table / f".{self._files:09d}"
        making.write_text(text)
        making.rename(self.folder / table / f"{self._files:09d}.json")
        self.bytes += len(text)

    def expected_rows(self, job: SoakJob) -> int:
        """Return how many rows a job has read when it has read everything."""
        return sum(self.rows[table] for table in job.reads)


def _text(seconds: float) -> str:
    return (BEGIN + timedelta(milliseconds=round(seconds * 1000))).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def answers(folder: Path, job: SoakJob) -> set[tuple[object, ...]]:
    """Return what a job must have written, by DuckDB over all of its input at once."""
    types = {
        "orders": "{id: 'BIGINT', shop: 'BIGINT', customer: 'BIGINT', amount: 'BIGINT', ts: 'TIMESTAMP'}",
        "payments": "{order_id: 'BIGINT', paid: 'BIGINT', ts: 'TIMESTAMP'}",
    }
    with duckdb.connect() as con:
        for table, columns in types.items():
            files = f"read_json('{folder / table}/*.json', format = 'newline_delimited', columns = {columns})"
            con.execute(f"CREATE VIEW {table} AS FROM {files}")
        rows = con.execute(job.answer).fetchall()
    assert len(rows) == len(set(rows)), "the answer is to have each row once"
    return set(rows)
