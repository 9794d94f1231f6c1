"""A server for tests of the page: a shop whose orders and payments come as files, and whose jobs run without a JVM."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from sqlstream.server.endpoints import Service
from tests.processes import is_gone, wait_until
from tests.server.serving import serving, settings_of, without_spark

_TABLES = """
CREATE TABLE orders (
    id BIGINT, item STRING, price DOUBLE, ordered_at TIMESTAMP(3),
    WATERMARK FOR ordered_at AS ordered_at - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'in/orders', 'format' = 'csv', 'source.monitor-interval' = '20 ms');
CREATE TABLE payments (
    order_id BIGINT, paid_at TIMESTAMP(3), WATERMARK FOR paid_at AS paid_at - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'in/payments', 'format' = 'csv', 'source.monitor-interval' = '20 ms');
"""

# The job of most tests: payments joined with their orders, and summed up in windows.
REVENUE = """
SET 'execution.checkpointing.interval' = '20 ms';

CREATE TABLE revenue (item STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), orders BIGINT, total DOUBLE);

CREATE VIEW paid AS
SELECT o.item, o.price, p.paid_at
FROM orders AS o JOIN payments AS p
  ON o.id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '10' SECOND;

INSERT INTO revenue
SELECT item, window_start, window_end, COUNT(*) AS orders, SUM(price) AS total
FROM TABLE(TUMBLE(TABLE paid, DESCRIPTOR(paid_at), INTERVAL '10' SECOND))
GROUP BY item, window_start, window_end;
"""

ITEMS = ("tea", "coffee", "bread", "honey", "apples")
# Orders in a step of the feed, which is a second of event time.
PER_STEP = 20


@dataclass
class Site:
    """The server, its project, and how far its feed is. `start` is the event time of the first step."""

    url: str
    folder: Path
    service: Service
    client: httpx.Client
    start: datetime
    steps: int = 0

    def submit(self, sql: str = REVENUE) -> None:
        """Submit SQL, and wait until its jobs run."""
        found = self.client.post("/v1/jobs", json={"sql": sql})
        assert found.status_code == 201, found.text
        for name in found.json()["jobs"]:
            wait_until(lambda name=name: self.job(name).get("status") == "RUNNING")

    def feed(self, steps: int = 1) -> None:
        """Let so many seconds of orders come, and of their payments, each 1 s after its order."""
        for _ in range(steps):
            number, self.steps = self.steps, self.steps + 1
            at = self.start + timedelta(seconds=number)
            ids = range(number * PER_STEP, (number + 1) * PER_STEP)
            self._add(
                "orders", number, [f"{i},{ITEMS[(i + i // 7) % 5]},{i % 40 + 0.5},{at:%Y-%m-%d %H:%M:%S}" for i in ids]
            )
            paid = at + timedelta(seconds=1)
            self._add("payments", number, [f"{i},{paid:%Y-%m-%d %H:%M:%S}" for i in ids])

    def feed_slowly(self, steps: int) -> None:
        """Feed step by step, each after the batches that have read the one before, so that there are as many batches at least."""
        for _ in range(steps):
            self.feed()
            wait_until(lambda: self.read("revenue") == 2 * PER_STEP * self.steps)

    def read(self, job: str) -> int:
        """Return how many rows a job has read."""
        batches = self.client.get(f"/v1/jobs/{job}/batches?last=1").json()["batches"]
        return int(batches[-1]["rows_in"]) if batches else 0

    def _add(self, table: str, number: int, lines: list[str]) -> None:
        # A file is there at once, and whole.
        file = self.folder / f".{table}-{number}"
        file.write_text("\n".join(lines) + "\n")
        file.rename(self.folder / "in" / table / f"{number:05}.csv")

    def job(self, name: str) -> dict[str, object]:
        return next((j for j in self.client.get("/v1/jobs").json()["jobs"] if j["job"] == name), {})

    def rows(self, sql: str) -> list[list[object]]:
        """Return the rows of a state query."""
        found = self.client.post("/v1/query", json={"sql": sql})
        assert found.status_code == 200, found.text
        return list(found.json()["rows"])


@contextlib.contextmanager
def opened_site(folder: Path) -> Iterator[Site]:
    """Serve a project in a folder. What runs at the end is killed."""
    for part in ("catalog", "in/orders", "in/payments"):
        (folder / part).mkdir(parents=True)
    (folder / "catalog" / "shop.sql").write_text(_TABLES)
    # A feed that is faster than the clock stays behind it.
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=90)
    with (
        serving(settings_of(folder), without_spark(folder)) as (url, service),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        site = Site(url, folder, service, client, start)
        try:
            yield site
        finally:
            for job in client.get("/v1/jobs").json()["jobs"]:
                pid = job["pid"]
                if isinstance(pid, int) and job["status"] in ("RUNNING", "RESTARTING") and not is_gone(pid):
                    os.kill(pid, signal.SIGKILL)
