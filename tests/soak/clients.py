"""Who asks the server while its jobs run and are killed: programs over HTTP and PostgreSQL's protocol, in this process,
Prometheus, and what a page listens to. Each is a thread.

An error is expected while the server is down, and is counted apart. Any other one, and any answer that is wrong, is a failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator
from urllib.parse import urljoin

import httpx
import psycopg
from playwright.sync_api import Error, sync_playwright
from prometheus_client.parser import text_string_to_metric_families

from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.page.chromium import found
from tests.soak.checks import Check, chosen
from tests.soak.workload import CUSTOMERS, SHOPS

# A connection may be noticed to be gone so long after the server is back.
AFTERWARDS = 1.0
TIMEOUT = 60.0
# No more failures of a client than these are told: they are all the same by then.
MOST = 20


class Wrong(Exception):
    """An answer that cannot be right."""


class Outages:
    """When the server was down: from the moment before it is killed until it answers again."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        began = time.monotonic()
        self._spans.append((began, float("inf")))
        yield
        self._spans[-1] = (began, time.monotonic())

    def covers(self, began: float, ended: float) -> bool:
        """Tell whether the server was down at some moment of a request."""
        return any(began <= up + AFTERWARDS and ended >= down for down, up in self._spans)

    @property
    def seconds(self) -> float:
        return sum(up - down for down, up in self._spans)


class Client(threading.Thread, ABC):
    """Does one thing after another, with a pause, and notes how long each took, by its kind."""

    def __init__(self, name: str, outages: Outages, pause: float):
        super().__init__(name=f"soak-{name}", daemon=True)
        self.client, self._outages, self._pause = name, outages, pause
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.expected: Counter[str] = Counter()
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()
        self._stopping = threading.Event()

    @abstractmethod
    def ask(self) -> str:
        """Do one thing, and return its kind. Raises what goes wrong, and Wrong for what cannot be right."""

    def let_go(self) -> None:
        """Close what an error may have broken."""

    def run(self) -> None:
        while not self._stopping.wait(self._pause):
            began = time.monotonic()
            try:
                kind = self.ask()
                self.seconds[kind].append(time.monotonic() - began)
            except Exception as error:
                self.let_go()
                self._note(error, began)
        self.let_go()

    def _note(self, error: Exception, began: float) -> None:
        if not isinstance(error, Wrong) and self._outages.covers(began, time.monotonic()):
            self.expected[type(error).__name__] += 1
        elif len(self.failures) < MOST:
            known = isinstance(error, (Wrong, httpx.HTTPError, psycopg.Error))
            text = f"{type(error).__name__}: {error}" if known else traceback.format_exc()
            self.failures.append(f"{self.client} at {time.strftime('%H:%M:%S')}: {text}")

    def stop(self) -> None:
        self._stopping.set()


class HttpClient(Client):
    """Queries live and old state over HTTP, and looks up keys."""

    def __init__(self, url: str, outages: Outages, checks: tuple[Check, ...], seed: int):
        super().__init__("HTTP", outages, pause=0.2)
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT)
        self._checks, self._random = checks, random.Random(seed)

    def ask(self) -> str:
        if self._random.random() < 0.4:
            return self._look_up()
        check, sql, kind = chosen(self._checks, self._random)
        response = self._client.post("/v1/query", json={"sql": sql})
        _check_status(response)
        _check_answer(check, kind, response.json()["rows"][0][0])
        return f"{kind} state"

    def _look_up(self) -> str:
        shop, customer = self._random.randrange(SHOPS), self._random.randrange(CUSTOMERS)
        response = self._client.get("/v1/state/ranks/totals", params={"key": [shop, customer]})
        _check_status(response)
        found = response.json()
        names = [column["name"] for column in found["columns"]]
        rows = [dict(zip(names, row, strict=True)) for row in found["rows"]]
        if len(rows) > 1 or any((row["shop"], row["customer"]) != (shop, customer) for row in rows):
            raise Wrong(f"a lookup of shop {shop}, customer {customer} found {rows}")
        return "lookup"

    def let_go(self) -> None:
        # Connections of the pool that the server had are of no use any more; httpx notices that itself.
        pass


class PostgresClient(Client):
    """Queries live and old state over a connection as psql has it."""

    def __init__(self, port: int, outages: Outages, checks: tuple[Check, ...], seed: int):
        super().__init__("PostgreSQL", outages, pause=0.2)
        self._at = f"host=127.0.0.1 port={port} user=soak dbname=soak connect_timeout=10"
        self._checks, self._random = checks, random.Random(seed)
        self._connection: psycopg.Connection[tuple[int, ...]] | None = None

    def ask(self) -> str:
        if self._connection is None:
            self._connection = psycopg.connect(self._at, autocommit=True)
        check, sql, kind = chosen(self._checks, self._random)
        row = self._connection.execute(sql).fetchone()
        _check_answer(check, kind, row and row[0])
        return f"{kind} state"

    def let_go(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
        self._connection = None


class InProcessClient(Client):
    """Reads the files with DuckDB, without any server: nothing excuses an error."""

    def __init__(self, warehouse: str, checks: tuple[Check, ...], seed: int):
        super().__init__("in process", Outages(), pause=2.0)
        self._warehouse = Warehouse(warehouse)
        self._checks, self._random = checks, random.Random(seed)

    def ask(self) -> str:
        check, sql, kind = chosen(self._checks, self._random)
        [(found,)] = open_query(self._warehouse, sql).fetchall()
        _check_answer(check, kind, found)
        return f"{kind} state"


class Scraper(Client):
    """Reads the metrics as Prometheus does; what is counted never goes back."""

    def __init__(self, url: str, outages: Outages):
        super().__init__("Prometheus", outages, pause=2.0)
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT)
        self._counted: dict[tuple[str, str], float] = {}

    def ask(self) -> str:
        response = self._client.get("/metrics")
        _check_status(response)
        for family in text_string_to_metric_families(response.text):
            if family.type == "counter" and family.name.startswith("sqlstream_"):
                for sample in family.samples:
                    at = (sample.name, json.dumps(sample.labels, sort_keys=True))
                    before = self._counted.get(at, 0.0)
                    if sample.value < before:
                        raise Wrong(f"{sample.name}{sample.labels} went back from {before} to {sample.value}")
                    self._counted[at] = sample.value
        return "scrape"


class Listener(Client):
    """Listens to the events of the server, as its page does; each batch of a job follows the one before it."""

    def __init__(self, url: str, outages: Outages):
        super().__init__("events", outages, pause=0.1)
        self._url = url
        self._versions: dict[str, int] = {}

    def ask(self) -> str:
        self._versions.clear()
        kind = ""
        with (
            httpx.Client(base_url=self._url, timeout=TIMEOUT) as client,
            client.stream("GET", "/v1/events") as response,
        ):
            if response.status_code != 200:
                raise Wrong(f"HTTP {response.status_code} instead of events")
            for line in response.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    self._take(kind, json.loads(line.removeprefix("data: ")))
                if self._stopping.is_set():
                    return "connection"
        raise httpx.ReadError("the events ended")

    def _take(self, kind: str, data: dict[str, object]) -> None:
        self.counts[kind] += 1
        if kind != "batch":
            return
        job, version = str(data["job"]), int(str(data["version"]))
        before = self._versions.get(job)
        if before is not None and version != before + 1:
            raise Wrong(f"after batch {before} of job {job} came batch {version}")
        self._versions[job] = version


class Page(Client):
    """Opens the server's page, and what it needs, by plain HTTP; there may be none."""

    def __init__(self, url: str, outages: Outages):
        super().__init__("page", outages, pause=5.0)
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT, follow_redirects=True)

    def ask(self) -> str:
        response = self._client.get("/", headers={"Accept": "text/html"})
        if response.status_code == 404:
            return "not there"
        _check_status(response)
        for path in re.findall(r"""(?:src|href)=["']([^"'#:]+)["']""", response.text):
            _check_status(self._client.get(urljoin(str(response.url), path)))
        return "page"


class Browser(Client):
    """Has the page open in Chromium, and looks whether it says that something went wrong."""

    def __init__(self, url: str, outages: Outages):
        super().__init__("Chromium", outages, pause=1.0)
        self._url = url

    def ask(self) -> str:
        chromium = found()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium.path,
                env={**os.environ, **chromium.environment},
                args=["--no-sandbox", "--disable-gpu"],
            )
            page = browser.new_page()
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    page.goto(self._url)
                    page.wait_for_timeout(20_000)
                    self.seconds["page"].append(time.monotonic() - began)
                except Error as error:
                    self._note(error, began)
                    time.sleep(1.0)
                if errors:
                    self._note(Wrong("; ".join(errors)), began)
                    errors.clear()
            browser.close()
        return "session"


def _check_status(response: httpx.Response) -> None:
    if response.status_code != 200:
        raise Wrong(f"HTTP {response.status_code}: {response.text[:500]}")


def _check_answer(check: Check, kind: str, found: object) -> None:
    if found != 0:
        raise Wrong(f"{check.name} ({kind}): {found}")
