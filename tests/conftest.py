"""Collects golden scripts (see `golden`): an item per case. `--update` writes what comes out in the place of what should.

Deals the tests out so that parallel workers end together.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.durations import Recorder
from tests.elasticsearch_server import NoServer, SearchServer
from tests.elasticsearch_server import started as started_elasticsearch
from tests.forked import kill_left
from tests.golden import Case, Different, InProcess, Record, Runner, compare, named, parse, shown_by, updated
from tests.kafka_broker import shared_broker
from tests.mariadb_server import MariaDBServer
from tests.mariadb_server import started as started_mariadb
from tests.postgres_server import PostgresServer, started
from tests.properties.examples import SHARE
from tests.seed import commit_seed
from tests.slt_functions import FUNCTIONS
from tests.spark.shared import share, shared_spark, stop_shared
from tests.tiers import TIERS, drawn, is_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of the slow cases of golden scripts `make test` takes one in so many, and it verifies the jobs of one case in so many, as
# `make quick` does: `verify` takes a quarter of the time, and what a case shows is what it showed when it was verified.
SLOW_CASES = 3
VERIFIED = 3

# How long an example takes says nothing on a machine that others use, too.
settings.register_profile(
    "sqlstream", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False, print_blob=True
)
settings.load_profile("sqlstream")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite the expected results of golden scripts")
    parser.addoption("--spark", action="store_true", help="run golden scripts on Spark, not in process")
    parser.addoption(
        "--tier", choices=TIERS, default="all", help="which tests to run: those of make quick, make test or all"
    )
    parser.addoption("--durations-to", metavar="FILE", help="show how long tests take, and write it into a file")
    parser.addoption("--budget", action="store_true", help="say if the run takes longer than it should")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Before Hypothesis looks for it. All workers of a run have one seed.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = getattr(config, "workerinput", {}).get("seed") or commit_seed()
    if (path := config.option.durations_to) and not hasattr(config, "workerinput"):
        workers = getattr(config.option, "numprocesses", None) or 1
        config.pluginmanager.register(Recorder(Path(path), has_budget=config.option.budget, workers=workers))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.option.hypothesis_seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed of properties: {config.option.hypothesis_seed}, {SHARE:g} of their examples"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if terminalreporter.stats.get("failed"):
        seed, share = config.option.hypothesis_seed, f"{SHARE:g}"
        terminalreporter.write_line(f"properties again: PROPERTY_EXAMPLES={share} pytest --hypothesis-seed={seed}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    stop_shared()
    if session.config.getoption("spark"):
        from tests.slt_spark import OnSpark

        OnSpark.stop()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End a worker before the interpreter takes its modules apart.

    A DuckDB connection with Python functions that is still open at the end of a process makes DuckDB's binding list every
    function of its own as leaked. Which connections of the tests stay open is not known. `sqlstream` itself ends in the same
    way.
    """
    gc.unfreeze()
    if hasattr(config, "workerinput"):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Kafka broker, one for all workers of a run: name topics, groups and transactional ids uniquely.

    `KAFKA=host:port` takes one that runs already.
    """
    if running := os.environ.get("KAFKA"):
        yield running
        return
    folder = tmp_path_factory.getbasetemp()
    with shared_broker((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "kafka") as servers:
        yield servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server, one for each worker: make a database of your own."""
    with started() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    """A MariaDB server, one for each worker: make a database of your own."""
    with started_mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def elasticsearch() -> Iterator[SearchServer]:
    """An Elasticsearch server, one for each worker: name indexes uniquely. Without its jars, or Java, tests are skipped."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(started_elasticsearch())
        except NoServer as error:
            pytest.skip(f"there is no Elasticsearch: {error}")
        yield server


@pytest.fixture(scope="module")
def shared_jvm() -> Iterator[Callable[[], SparkSession]]:
    """Let sessions run their jobs on a JVM that tests share; return what gives its Spark session."""
    with pytest.MonkeyPatch.context() as patch:
        share(patch)
        yield shared_spark


def shares(item: pytest.Item) -> bool:
    """Tell whether a test runs on the JVM that tests share."""
    return "shared_jvm" in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop the JVM that tests share before a test that starts one of its own: there is one in a process."""
    if on_spark(item) and not shares(item):
        stop_shared()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Let no program outlive the test that has started it."""
    kill_left()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.option.tier == "quick" and is_long(collection_path) else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return Script.from_parent(parent, path=file_path) if file_path.suffix == ".slt" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is there before the first test, thousands of items and modules, out of every garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests of the tier, and deal out what the markers have left."""
    tests = TIERS[config.option.tier](items, config.option.hypothesis_seed)
    numbers = {*map(id, tests)}
    if others := [item for item in items if id(item) not in numbers]:
        config.hook.pytest_deselected(items=others)
    items[:] = tests
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = dealt(items, workers)


def on_spark(item: pytest.Item) -> bool:
    """Tell whether a test starts a JVM."""
    return item.get_closest_marker("spark") is not None


def waits(item: pytest.Item) -> bool:
    """Tell whether a test waits more than it computes."""
    return any(map(item.get_closest_marker, ("spark", "kafka")))


def dealt(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order tests for `--dist worksteal`, which gives each worker a run of as many, and moves them from the end of a run.

    Tests on Spark and Kafka wait for a JVM, a broker or a killed process for much of their time, the others compute. Of three
    workers two begin with files of the former. These are whole, and those of few tests, the longest, come first. Spark's come
    behind Kafka's, for its classes may be being archived. All that share a JVM are of the first worker, so that only one starts,
    and warms up. The third worker has only tests that compute, and keeps the cores busy. So have the others behind the
    files: these tests are short, and are moved.
    """
    files = sorted((list(tests) for _, tests in groupby(filter(waits, items), lambda item: item.path)), key=len)
    shared = [file for file in files if any(map(shares, file))]
    alone = [file for file in files if any(map(on_spark, file)) and not any(map(shares, file))]
    others = [file for file in files if not any(map(on_spark, file))]
    rest = iter([item for item in items if not waits(item)])
    waiting = workers - workers // 3
    lanes = [others[worker::waiting] for worker in range(waiting)]
    lanes[0] += shared
    for worker in range(1, waiting):
        lanes[worker] += alone[worker - 1 :: waiting - 1]
    order: list[pytest.Item] = []
    for worker in range(workers):
        end = len(items) * (worker + 1) // workers
        if worker < waiting:
            order += [test for file in lanes[worker] for test in file]
        order += [test for _, test in zip(range(end - len(order)), rest, strict=False)]
    return [*order, *rest]


class Script(pytest.File):
    """A golden script."""

    def collect(self) -> Iterator[CaseItem]:
        self.shown: list[tuple[Record, list[str]]] = []
        for case in parse(self.path):
            yield CaseItem.from_parent(self, name=case.name or self.path.stem, case=case)

    def teardown(self) -> None:
        if self.config.getoption("update"):
            text = self.path.read_text()
            new = updated(text, {record.line: (record, shown) for record, shown in self.shown}.values())
            if new != text:
                self.path.write_text(new)


class CaseItem(pytest.Item):
    """A case of a golden script."""

    def __init__(self, *, case: Case, **arguments: object):
        super().__init__(**arguments)  # type: ignore[arg-type]
        self.case = case
        if any(record.verb == "slow" for record in case.records):
            self.add_marker("slow")
            self.add_marker(pytest.mark.one_in(SLOW_CASES, of="slow golden cases"))

    def runner(self) -> Runner:
        functions = named(self.case, FUNCTIONS)
        if self.config.getoption("spark"):
            from tests.slt_spark import OnSpark

            return OnSpark(functions)
        return InProcess(functions)

    def is_verified(self) -> bool:
        if self.config.getoption("tier") == "all":
            return True
        return drawn(str(self.config.option.hypothesis_seed), self.nodeid) % VERIFIED == 0

    def runtest(self) -> None:
        script = self.parent
        assert isinstance(script, Script)
        for record, shown in shown_by(self.case, self.runner(), verifies=self.is_verified()):
            script.shown.append((record, shown))
            if not self.config.getoption("update"):
                compare(self.path, record, shown)

    def repr_failure(self, info: pytest.ExceptionInfo[BaseException]) -> str:  # type: ignore[override]
        if isinstance(info.value, Different):
            return str(info.value)
        return f"{self.path}: {self.case.name}\n{info.getrepr(style='short')}"

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.line, self.name
