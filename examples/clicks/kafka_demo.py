"""Clicks from Kafka to Kafka: a broker, a job that counts them in windows, and a look at its open windows (`make demo-kafka`).

Everything happens in .demo/clicks/ at the root of the project, which is removed at the end.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from tests.demo_parts import Part, PartFailed, start
from tests.kafka_broker import Broker, BrokerError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEMO = ROOT / ".demo" / "clicks"
SQLSTREAM = str(Path(sys.executable).with_name("sqlstream"))
PLACE = ("--warehouse", str(DEMO / "warehouse"), "--project", str(ROOT))
PAGES = ("home", "search", "product", "cart")
# A second of the demo is ten of the visitors.
SPEED, PER_SECOND = 10, 500
# It takes a minute; a machine with much else to do needs longer.
DEADLINE = time.monotonic() + 300

OPEN = """
SELECT page, window_start, clicks, visitors FROM state.clicks_per_page.by_page
ORDER BY window_start, page"""

console = Console(highlight=False)


class Visitors(Thread):
    """Visitors who click, until they are told to leave: a page by chance, some clicks arriving after later ones."""

    def __init__(self, servers: str):
        super().__init__(daemon=True)
        self.clicks = 0
        self._servers, self._leaving = servers, Event()

    def run(self) -> None:
        chance = random.Random(7)
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 20})
        opened, began = datetime(2026, 3, 2, 9), time.monotonic()
        while not self._leaving.is_set():
            passed = self.clicks / PER_SECOND
            time.sleep(max(0.0, began + passed - time.monotonic()))
            clicked = opened + timedelta(seconds=max(0.0, passed * SPEED - chance.uniform(0, 4)))
            click = {"page": chance.choice(PAGES), "visitor": chance.randrange(300), "ts": str(clicked)[:23]}
            producer.produce("clicks", json.dumps(click), str(click["visitor"]))
            producer.poll(0)
            self.clicks += 1
        producer.flush()

    def leave(self) -> None:
        """Let them leave, and wait until all their clicks are sent."""
        self._leaving.set()
        self.join()


class Results:
    """What the job has written: committed messages only."""

    def __init__(self, servers: str):
        self.counted = 0
        settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition("clicks_per_page", 0, 0)])

    def show(self) -> None:
        """Print what has come since the last time."""
        for message in self._consumer.consume(100, 0.5):
            row = json.loads(message.value() or b"")
            self.counted += row["clicks"]
            console.print(
                f"│ clicks_per_page, offset {message.offset():>2}: {json.dumps(row)}", style="cyan", soft_wrap=True
            )

    def show_all(self) -> None:
        """Print all that is committed, and close."""
        place = TopicPartition("clicks_per_page", 0)
        _, end = self._consumer.get_watermark_offsets(place)
        # The end of a transaction has an offset, too: the last one is no message.
        while self._consumer.position([place])[0].offset < end:
            self.show()
        self._consumer.close()


def ask(sql: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Ask as anyone could from another terminal: in a new process that is no part of the job."""
    command = (SQLSTREAM, "query", sql, *PLACE, *options)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def show(sql: str) -> None:
    """Print a query as a person would type it, and its answer."""
    console.print(f'\n$ sqlstream query "{sql.strip()}"', style="bold", markup=False, soft_wrap=True)
    done = ask(sql)
    if done.returncode:
        raise PartFailed("sqlstream query", f"ended with exit code {done.returncode}", done.stderr)
    console.print(done.stdout, markup=False, soft_wrap=True)


def is_running() -> bool:
    return "RUNNING" in ask("SELECT status FROM sqlstream.jobs", "--format", "csv").stdout


def rows_in() -> int:
    words = ask("SELECT max(rows_in) FROM sqlstream.jobs", "--format", "csv").stdout.split()
    return int(words[-1]) if words and words[-1].isdigit() else 0


@contextmanager
def running(servers: str) -> Iterator[Part]:
    command = (SQLSTREAM, "run", HERE / "clicks.sql", *PLACE)
    with start(command, DEMO / "run.log", console.print, {**os.environ, "KAFKA": servers}, DEADLINE) as job:
        yield job


def demo(broker: Broker) -> None:
    """Start the job while visitors click, look at its windows twice, end it, and count."""
    console.rule("1. A Kafka broker, a topic of clicks, and a topic for the results", align="left")
    names = [NewTopic("clicks", 2), NewTopic("clicks_per_page", 1)]
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for created in admin.create_topics(names).values():
        created.result()
    console.print(f"the broker listens on {broker.servers}")

    console.rule("2. Streaming SQL counts the clicks of each page and minute", align="left")
    console.print("$ sqlstream run examples/clicks/clicks.sql\n", style="bold")
    visitors, results = Visitors(broker.servers), Results(broker.servers)
    with running(broker.servers) as job:
        job.wait_until("its start", is_running)
        visitors.start()
        job.wait_until("its first batch", lambda: rows_in() > 0)
        console.rule("3. From another process: the minutes that are still open", align="left")
        show(OPEN)
        watch(job, results, "its first result", 1)
        before = rows_in()
        job.wait_until("more clicks", lambda: rows_in() > before + PER_SECOND)
        show(OPEN)
        visitors.leave()
        job.wait_until("the last click", lambda: rows_in() >= visitors.clicks)
        console.rule("4. The job ends: it reads no more, and closes its windows", align="left")
        console.print("$ sqlstream stop --drain clicks_per_page\n", style="bold")
        subprocess.run((SQLSTREAM, "stop", "--drain", "clicks_per_page", *PLACE), check=True, capture_output=True)
        job.wait(0)
    results.show_all()
    if results.counted != visitors.clicks:
        how = f"counted {results.counted} of {visitors.clicks} clicks"
        raise PartFailed("the job", how, (DEMO / "run.log").read_text())
    console.print(f"\n{visitors.clicks:,} clicks were made, and {results.counted:,} were counted.", style="bold green")


def watch(job: Part, results: Results, goal: str, clicks: int) -> None:
    """Show results until they count so many clicks."""

    def reached() -> bool:
        results.show()
        return results.counted >= clicks

    job.wait_until(goal, reached)


def main() -> int:
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    # As an exception, the signal passes through every `finally` on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Broker(DEMO / "broker") as broker:
            demo(broker)
    except (PartFailed, BrokerError) as failure:
        console.print(f"\n{failure}", markup=False, style="red", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(DEMO, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
