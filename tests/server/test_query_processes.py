"""Queries that heed nothing: each protocol answers in time, and their processes and places are free again.

The function `forever` stands for what DuckDB does not interrupt: it writes the number of its process into a file, and sleeps.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from sqlstream.errors import SqlStreamError
from sqlstream.queries.query import QueryLimits
from sqlstream.server.endpoints import Service
from sqlstream.server.flight.messages import packed
from sqlstream.server.http_answers import JSON, HttpQuery, HttpRequest
from sqlstream.server.query_processes.pool import QueryProcesses
from sqlstream.server.settings import Address, Limits, ServerSettings
from sqlstream.server.state_reader import QueryStopped, RunningAnswer, RunningQuery, StateReader
from tests.kafka_broker import free_port
from tests.processes import wait_until
from tests.server.serving import await_idle, serving, settings_of

pytestmark = pytest.mark.slow

FUNCTIONS = """
import os
import resource
import time
from pathlib import Path

from sqlstream import udf


@udf
def forever(place: str) -> int:
    Path(place).mkdir(exist_ok=True)
    Path(place, str(os.getpid())).touch()
    while True:
        time.sleep(3600)


@udf
def process(n: int) -> int:
    return os.getpid()


@udf
def addresses(n: int) -> int:
    return resource.getrlimit(resource.RLIMIT_AS)[0]


@udf
def dies(n: int) -> int:
    os.kill(os.getpid(), 11)
    return n
"""
MEMORY = 256 << 20


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("processes")
    (root / "catalog").mkdir()
    (root / "udfs").mkdir()
    (root / "udfs" / "functions.py").write_text(FUNCTIONS)
    (root / "warehouse").mkdir()
    return root


@pytest.fixture
def reader(project: Path) -> Iterator[StateReader]:
    processes = QueryProcesses(settings_of(project).project, QueryLimits(memory=MEMORY, spilled=0, threads=2))
    yield StateReader(processes)
    processes.close()


def settings(project: Path, **limits: Any) -> ServerSettings:
    """Return the settings of a server for all protocols, in which one query runs at a time."""
    query = QueryLimits(memory=MEMORY, spilled=0, threads=2)
    all_limits = replace(Limits(), queries=1, query=query, **limits)
    return replace(settings_of(project), limits=all_limits, postgres=free_port(), flight=Address(free_port()))


def answered(reader: StateReader, sql: str, running: RunningQuery | None = None) -> bytes:
    """Return all of the answer to a query."""
    answer = RunningAnswer(reader._processes, running or RunningQuery(), HttpRequest(HttpQuery(sql, 10), JSON))
    parts = [answer.head]
    while not answer.is_whole:
        parts.append(answer.part())
    return b"".join(parts)


def value(reader: StateReader, sql: str) -> int:
    return int(answered(reader, sql).split(b"[[")[1].split(b"]")[0])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def started_in(place: Path) -> int:
    """Return the process that runs `forever`, as soon as it does."""
    wait_until(lambda: place.is_dir() and list(place.iterdir()))
    [file] = place.iterdir()
    return int(file.name)


def test_processes_are_used_again_and_end_with_their_pool(project: Path, reader: StateReader) -> None:
    await_idle(reader._processes)
    pid = value(reader, "SELECT process(1)")
    assert value(reader, "SELECT process(1)") == pid != os.getpid()
    # A query that fails leaves its process as it was.
    with pytest.raises(SqlStreamError, match="nope"):
        answered(reader, "SELECT nope")
    assert value(reader, "SELECT process(1)") == pid
    # One whose answer was not read to its end does not.
    many = HttpRequest(HttpQuery("FROM range(1000000)", 1_000_000), JSON)
    answer = RunningAnswer(reader._processes, RunningQuery(), many)
    assert not answer.is_whole
    answer.close()
    wait_until(lambda: not is_alive(pid))
    assert reader._processes.lent == 0
    pid = value(reader, "SELECT process(1)")
    # Where a function has changed, another process has read it.
    (project / "udfs" / "more.py").write_text(
        "from sqlstream import udf\n\n\n@udf\ndef more(n: int) -> int:\n    return n + 1\n"
    )
    assert value(reader, "SELECT more(1)") == 2
    wait_until(lambda: not is_alive(pid))
    pid = value(reader, "SELECT process(1)")
    reader._processes.close()
    wait_until(lambda: not is_alive(pid))


def test_a_query_writes_nothing_of_its_progress(reader: StateReader) -> None:
    assert b"[false]" in answered(reader, "SELECT current_setting('enable_progress_bar')")


def test_a_query_is_stopped_whatever_it_does(tmp_path: Path, reader: StateReader) -> None:
    with ThreadPoolExecutor(1) as threads:
        running = RunningQuery()
        answer = threads.submit(answered, reader, f"SELECT forever('{tmp_path / 'here'}')", running)
        pid = started_in(tmp_path / "here")
        running.stop("it was enough")
        with pytest.raises(QueryStopped, match="it was enough"):
            answer.result(240)
        wait_until(lambda: not is_alive(pid))
    assert reader._processes.lent == 0
    assert value(reader, "SELECT 1") == 1
    # One that was stopped before it began does not begin.
    with pytest.raises(QueryStopped):
        answered(reader, "SELECT 1", running)


def test_a_process_that_ends_by_accident_ends_its_query_alone(reader: StateReader) -> None:
    with pytest.raises(SqlStreamError, match="the process of the query ended"):
        answered(reader, "SELECT dies(1)")
    assert value(reader, "SELECT 1") == 1
    # So does the process that others are forked from.
    seed = reader._processes._seed
    assert seed is not None
    seed._process.kill()
    wait_until(lambda: not seed.is_alive)
    pid = None
    for _ in range(4):
        # Those that it had forked have gone with it.
        with contextlib.suppress(SqlStreamError):
            pid = value(reader, "SELECT process(1)")
    assert pid is not None


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone bounds addresses")
def test_a_query_has_no_more_memory_than_it_may(reader: StateReader) -> None:
    assert MEMORY < value(reader, "SELECT addresses(1)") < MEMORY + (4 << 30)
    # DuckDB heeds no limit inside one function.
    for sql in ("SELECT len(range(1000000000))", "SELECT len(repeat('x', 4000000000)) + len(repeat('y', 4000000000))"):
        with pytest.raises(SqlStreamError, match=r"(?i)memory|allocat"):
            answered(reader, sql)
    assert value(reader, "SELECT 1") == 1


def over_http(server: httpx.Client, sql: str) -> str:
    found = server.post("/v1/query", json={"sql": sql})
    return "answered" if found.is_success else str(found.json()["detail"])


def over_postgres(settings: ServerSettings, sql: str) -> str:
    with psycopg.connect(f"host=127.0.0.1 port={settings.postgres} user=x", autocommit=True) as con:
        try:
            con.execute(sql.encode()).fetchall()
        except psycopg.Error as error:
            return str(error)
    return "answered"


def over_flight(settings: ServerSettings, sql: str) -> str:
    assert settings.flight is not None
    with fl.connect(f"grpc://127.0.0.1:{settings.flight.port}") as client:
        try:
            info = client.get_flight_info(fl.FlightDescriptor.for_command(packed("CommandStatementQuery", query=sql)))
            client.do_get(info.endpoints[0].ticket).read_all()
        except pa.ArrowException as error:
            return str(error)
    return "answered"


Ask = Callable[[str], str]
# What asks in a process of its own.
CLIENTS = {
    "http": "import httpx; httpx.post({url!r} + '/v1/query', json={{'sql': {sql!r}}}, timeout=None)",
    "postgres": "import psycopg; psycopg.connect('host=127.0.0.1 port={postgres} user=x').execute({sql!r})",
    "flight": "import adbc_driver_flightsql.dbapi as a; c = a.connect('grpc://127.0.0.1:{flight}').cursor(); "
    "c.execute({sql!r}); c.fetchall()",
}


@contextlib.contextmanager
def asked(settings: ServerSettings) -> Iterator[tuple[str, dict[str, Ask], Service]]:
    """Yield the address of a server, what asks it in each protocol, and what it answers with."""
    with serving(settings) as (url, service), httpx.Client(base_url=url, timeout=240) as http:
        await_idle(service.queries._reader._processes)
        ways: dict[str, Ask] = {
            "http": lambda sql: over_http(http, sql),
            "postgres": lambda sql: over_postgres(settings, sql),
            "flight": lambda sql: over_flight(settings, sql),
        }
        yield url, ways, service


def test_each_protocol_answers_at_the_deadline_and_has_its_place_free_again(project: Path, tmp_path: Path) -> None:
    with asked(settings(project, query_seconds=2.0)) as (_, ways, service):
        for name, ask in ways.items():
            said = ask(f"SELECT forever('{tmp_path / name}')")
            assert "took longer than 2 s" in said or "statement timeout" in said, said
            pid = started_in(tmp_path / name)
            wait_until(lambda pid=pid: not is_alive(pid))
            # Only one query may run at a time.
            await_idle(service.queries._reader._processes)
            assert ask("SELECT 1") == "answered"
        assert service.queries.running == 0
        # In the catalog of PostgreSQL's clients, too, functions are DuckDB's.
        said = ways["postgres"]("SELECT len(range(1000000000)) FROM pg_class")
        # On a busy machine its time ends before its memory does.
        assert any(end in said.lower() for end in ("memory", "allocate", "statement timeout")), said
        assert ways["postgres"]("SELECT 1 FROM pg_class") == "answered"


def test_a_query_ends_with_its_client(project: Path, tmp_path: Path) -> None:
    given = settings(project)
    with asked(given) as (url, ways, service):
        assert given.flight is not None
        for name, ask in ways.items():
            sql = f"SELECT forever('{tmp_path / name}')"
            program = CLIENTS[name].format(url=url, postgres=given.postgres, flight=given.flight.port, sql=sql)
            with subprocess.Popen([sys.executable, "-c", program]) as client:
                pid = started_in(tmp_path / name)
                client.kill()
            wait_until(lambda pid=pid: not is_alive(pid))
            wait_until(lambda ask=ask: ask("SELECT 1") == "answered")
        assert service.queries.running == 0


@pytest.mark.thorough
def test_what_holds_much_leaves_room_for_others(project: Path) -> None:
    with asked(settings(project)) as (_, ways, service):
        for ask in ways.values():
            # A row that is too large to be sent, or to be had.
            said = ask("SELECT repeat('x', 400000000)")
            assert said == "answered" or re.search(r"(?i)memory|allocat|64 MiB", said), said
            assert ask("SELECT 1") == "answered"
        wait_until(lambda: service.queries._reader._processes.lent == 0)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {'+'.join(['1'] * 200_000)}",
        f"SELECT 1 IN ({','.join(map(str, range(150_000)))})",
        f"SELECT {','.join(['1'] * 100_000)}",
    ],
    ids=["terms", "values", "columns"],
)
def test_a_text_that_takes_long_to_compile_is_refused(project: Path, sql: str) -> None:
    with asked(settings(project)) as (_, ways, _):
        for ask in ways.values():
            assert "a statement has 50,000 words and signs at most" in ask(sql)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone kills children with their parent")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_queries_end_with_the_server(project: Path, tmp_path: Path, number: int) -> None:
    words = [sys.executable, "-m", "sqlstream", "serve", "--port", "0", "--project", str(project)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        line = next(line for line in server.stderr if line.startswith("listening on "))
        url = line.removeprefix("listening on ").strip()
        body = {"sql": f"SELECT forever('{tmp_path / 'here'}')"}

        def ask() -> None:
            with contextlib.suppress(httpx.HTTPError):
                httpx.post(f"{url}/v1/query", json=body, timeout=None)

        client = threading.Thread(target=ask)
        client.start()
        pid = started_in(tmp_path / "here")
        server.send_signal(number)
        server.wait(60)
        client.join(60)
        assert not client.is_alive()
        wait_until(lambda: not is_alive(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
def test_a_process_that_computes_for_long_gives_way() -> None:
    program = """
import os
from sqlstream.server.query_processes.priority import ProcessPriority, SharedSpending
cores = os.sched_getaffinity(0)
priority = ProcessPriority(SharedSpending())
assert not priority.gives_way
with priority.working():
    while not priority.gives_way:
        sum(range(1000))
if os.path.exists("/proc/self/autogroup"):
    assert open("/proc/self/autogroup").read().split()[-1] == "19"
threads = list(map(int, os.listdir("/proc/self/task")))
assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} == {max(19, os.nice(0))}
assert {os.sched_getscheduler(thread) for thread in threads} == {os.SCHED_IDLE}
assert {len(os.sched_getaffinity(thread)) for thread in threads} == {(len(cores) + 1) // 2}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240, start_new_session=True)


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
def test_processes_that_come_in_the_place_of_killed_ones_give_way_at_once() -> None:
    program = """
import os
from sqlstream.server.query_processes.priority import ProcessPriority, SharedSpending
together = SharedSpending()
assert not together.add(2.0)
if not os.fork():
    together.add(2.0)
    os._exit(0)
os.wait()
priority = ProcessPriority(together)
with priority.working():
    assert priority.gives_way
assert os.getpriority(os.PRIO_PROCESS, 0) == 19
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240, start_new_session=True)
