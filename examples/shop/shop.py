"""A shop on Kafka, PostgreSQL and Delta: starts all of it, kills the jobs once, and checks every result (`make demo-shop`).

Everything happens in .demo/shop/ at the root of the project, and in a folder for the database; both are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import answers
import events
from rich.console import Console
from rich.table import Table
from screen import SESSIONS, Screen, tables
from servers import Alerts, database, fill_database, make_topics

from tests.demo_parts import Part, PartFailed, start
from tests.kafka_broker import Broker, BrokerError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEMO = ROOT / ".demo" / "shop"
LAKE = DEMO / "lake"
SQLSTREAM = str(Path(sys.executable).with_name("sqlstream"))
PLACE = ("--warehouse", str(DEMO / "warehouse"), "--project", str(ROOT))
SCRIPTS = [HERE / f"{name}.sql" for name in ("tables", "orders", "sessions")]
OPEN_SESSIONS = f"""
SELECT customer_id, strftime(window_start, '%H:%M:%S') AS since, views, pages, count(*) OVER () AS n
FROM state.sessions.by_customer ORDER BY views DESC, customer_id LIMIT {SESSIONS}"""
TOTALS = "SELECT coalesce(sum(orders), 0), coalesce(sum(revenue), 0) FROM revenue"

console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)


class Shop:
    """The shop while it is open: its servers, and what is known of the jobs."""

    def __init__(self, options: argparse.Namespace, kafka: str, postgres: str, alerts: Alerts):
        self.options, self.kafka, self.postgres, self.alerts = options, kafka, postgres, alerts
        self.messages = events.messages(options.seed, options.minutes, options.per_minute)
        self.deadline = time.monotonic() + 180 + options.minutes * 60 / options.speed
        self.screen = Screen(console, 10.0)
        self.sessions: list[dict[str, Any]] = []
        self._asked = 0.0

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Ask as anyone could from another terminal: in a new process that is no part of the jobs."""
        command = (SQLSTREAM, "query", sql, *PLACE, "--format", "json")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            # The machine has too much to do; the shop has a deadline of its own.
            return []
        # Before their first batch the jobs have no state.
        return list(json.loads(done.stdout)) if done.returncode == 0 else []

    def rows_in(self) -> int:
        """How many messages the jobs have read."""
        return sum(row["rows_in"] or 0 for row in self.query("SELECT rows_in FROM sqlstream.jobs"))

    def totals(self) -> tuple[int, Any]:
        """The orders and the revenue of all minutes so far."""
        if not answers.database_rows(self.postgres, "SELECT 1 FROM pg_tables WHERE tablename = 'revenue'"):
            return 0, 0
        [(orders, revenue)] = answers.database_rows(self.postgres, TOTALS)
        return orders, revenue

    def show(self) -> None:
        """Show what there is now."""
        now = time.monotonic()
        if now >= self._asked + 4:
            self._asked = now
            self.sessions = self.query(OPEN_SESSIONS)
        if not self.totals()[0]:
            return
        self.alerts.read()
        revenue = answers.database_rows(self.postgres, "SELECT * FROM revenue")
        clock = f"{max(minute for _, minute, *_ in revenue):%H:%M}"
        number = self.sessions[0]["n"] if self.sessions else 0
        self.screen.show(now, tables(clock, revenue, self.sessions, number, self.alerts.rows))

    def show_until(self, part: Part, goal: str, orders: int) -> None:
        """Show what there is until so many orders are in the revenue."""

        def reached() -> bool:
            self.show()
            return self.totals()[0] >= orders

        part.wait_until(goal, reached)


@contextmanager
def jobs(shop: Shop, name: str) -> Iterator[Part]:
    """Run the jobs until they end, or are killed at the end of the block."""
    shop.screen.say(f"$ sqlstream run {' '.join(str(script.relative_to(ROOT)) for script in SCRIPTS)}")
    environment = {**os.environ, "KAFKA": shop.kafka, "POSTGRES": shop.postgres, "LAKE": str(LAKE)}
    command = (SQLSTREAM, "run", *SCRIPTS, *PLACE, "--set", "parallelism.default=2")
    with start(command, DEMO / f"{name}.log", console.print, environment, shop.deadline) as part:
        yield part


def open_shop(shop: Shop) -> None:
    """Let customers come, kill the jobs with -9, start them again, and end them when all messages are read."""
    options = shop.options
    numbers = ("seed", "minutes", "per_minute", "speed")
    chosen = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in numbers]
    generator = (sys.executable, HERE / "generate.py", "--kafka", shop.kafka, *chosen)
    orders = len({m.key for m in shop.messages if m.topic == "orders"})
    with start(generator, DEMO / "generate.log", shop.screen.say, os.environ, shop.deadline) as customers:
        with jobs(shop, "run") as part:
            shop.show_until(part, "a third of the orders", orders // 3)
            os.killpg(part.process.pid, signal.SIGKILL)
            before = shop.totals()
        shop.screen.say(f"\nThe jobs were killed with -9, after {before[0]} orders and a revenue of {before[1]:,}.")
        with jobs(shop, "again") as part:
            shop.show_until(part, "more orders than before", before[0] + 1)
            shop.screen.say(f"They go on where they were: {shop.totals()[0]} orders.\n")

            def all_read() -> bool:
                shop.show()
                return customers.process.poll() is not None and shop.rows_in() >= len(shop.messages)

            part.wait_until("the last message", all_read)
            customers.wait(0)
            shop.screen.say("\n$ sqlstream stop --drain --all")
            subprocess.run((SQLSTREAM, "stop", "--drain", "--all", *PLACE), check=True, capture_output=True)
            part.wait(0)


def check(shop: Shop) -> bool:
    """Compare every table and topic with DuckDB's answer over all messages at once."""
    shop.alerts.read_to_end()
    late = answers.late_orders(shop.postgres)
    expected = answers.expected(shop.messages, late)
    found = answers.found(shop.postgres, LAKE, shop.alerts.rows)
    table = Table(title="the jobs, and DuckDB over all messages at once", title_justify="left", box=None)
    for name in ("", "rows", "expected", "missing", "too many"):
        table.add_column(name, justify="left" if not name else "right")
    for name, rows in expected.items():
        missing, extra = (rows - found[name]).total(), (found[name] - rows).total()
        table.add_row(name, *(f"{n:,}" for n in (found[name].total(), rows.total(), missing, extra)))
    console.print(table)
    sent = [message.key for message in shop.messages if message.topic == "orders"]
    sold, distinct = sum(row[2] for row in expected["revenue"].elements()), len(set(sent))
    console.print(
        f"\n{len(shop.messages):,} messages, {len(sent):,} of them orders: {distinct:,} without those that were sent twice, "
        f"of which {sold:,} are in the revenue and {len(late):,} came too late (table late_orders)."
    )
    return sold + len(late) == distinct and all(found[name] == rows for name, rows in expected.items())


def run(options: argparse.Namespace) -> int:
    with Broker(DEMO / "broker") as broker, database() as postgres, Alerts(broker.servers) as alerts:
        make_topics(broker.servers)
        fill_database(postgres)
        shop = Shop(options, broker.servers, postgres, alerts)
        with shop.screen.running():
            open_shop(shop)
        if not check(shop):
            console.print("The results differ.", style="bold red")
            return 1
        console.print("All results are equal.", style="bold green")
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another one makes another history")
    parser.add_argument("--minutes", type=float, default=24, metavar="N", help="how long the shop is open, in its time")
    parser.add_argument("--per-minute", type=float, default=1200, metavar="N", help="messages in a minute of the shop")
    parser.add_argument("--speed", type=float, default=20, metavar="N", help="how much faster its time passes")
    parser.add_argument("--keep", action="store_true", help=f"leave {DEMO.relative_to(ROOT)} there")
    options = parser.parse_args()
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    # As an exception, the signal passes through every `finally` on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(options)
    except (PartFailed, BrokerError) as failure:
        console.print(f"\n{failure}", markup=False, style="red", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if not options.keep:
            shutil.rmtree(DEMO, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
