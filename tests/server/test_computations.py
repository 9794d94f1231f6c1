"""SQL that clients submit is compiled, and jobs are verified, in processes that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from sqlstream.errors import QueryError
from sqlstream.queries.query import QueryLimits
from sqlstream.server.access import Role, Tokens
from sqlstream.server.endpoints import Service
from sqlstream.server.query_processes.pool import QueryProcesses
from sqlstream.server.query_processes.protocol import ComputationCall
from sqlstream.server.settings import Limits
from sqlstream.server.state_reader import RunningAnswer, RunningQuery, StateReader
from tests.processes import wait_until
from tests.server.serving import await_idle, serving, settings_of
from tests.server.test_query_processes import is_alive

TOKEN = "s" * 20
ADDRESSES = {
    "/v1/jobs": "compilation",
    "/v1/plan": "compilation",
    "/v1/upgrade-plans": "compilation",
    "/v1/jobs/j/upgrade-plan": "compilation",
    "/v1/jobs/j/batch-query": "compilation",
    "/v1/jobs/j/verify": "verification",
}
COLUMNS = "CREATE TABLE s (a BIGINT) WITH ('connector' = 'datagen'); CREATE TABLE o (a BIGINT); INSERT INTO o SELECT "
# As many words as may be, which take a minute to compile.
SLOW = f"{COLUMNS}{','.join(['a'] * 24_000)} FROM s"
# Below the largest body.
LONG = {
    "terms": f"{COLUMNS}{'+'.join(['a'] * 200_000)} FROM s",
    "values": f"{COLUMNS} a FROM s WHERE a IN ({','.join(['1'] * 300_000)})",
    "columns": f"{COLUMNS}{','.join(['a'] * 100_000)} FROM s",
    "statements": "SHOW TABLES;" * 80_000,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("catalog", "warehouse"):
        (tmp_path / folder).mkdir()
    return tmp_path


@contextlib.contextmanager
def asked(project: Path, **limits: Any) -> Iterator[tuple[httpx.Client, Service]]:
    """Yield a client of a server in which one script is compiled at a time, with a token of the role `submit`."""
    given = replace(Limits(), queries=1, **limits)
    tokens = Tokens(((sha256(TOKEN.encode()).digest(), Role.SUBMIT),))
    settings = replace(settings_of(project), limits=given, tokens=tokens, paths=(".",))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        serving(settings) as (url, service),
        httpx.Client(base_url=url, timeout=240, headers=headers) as client,
    ):
        await_idle(processes(service))
        yield client, service


def processes(service: Service) -> QueryProcesses:
    return service.queries._reader._processes


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(("address", "noun"), ADDRESSES.items())
def test_each_address_answers_at_the_deadline_and_has_its_place_free_again(
    project: Path, address: str, noun: str
) -> None:
    with asked(project, compile_seconds=1.0, verify_seconds=1.5) as (client, service):
        found = client.post(address, json={"sql": SLOW})
        seconds = 1 if noun == "compilation" else 1.5
        assert (found.status_code, found.json()["detail"]) == (504, f"the {noun} took longer than {seconds:g} s")
        wait_until(lambda: processes(service).lent == 0)
        # On a busy machine this takes longer, too, once or twice.
        wait_until(lambda: client.post("/v1/jobs", json={"sql": "SHOW TABLES"}).status_code == 201)
        assert service.compilations.running == service.verifications.running == 0


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("address", ["/v1/jobs", "/v1/jobs/j/verify"])
def test_what_is_computed_ends_with_its_client(project: Path, address: str) -> None:
    with asked(project) as (client, service):
        program = (
            f"import httpx; httpx.post('{client.base_url}'.rstrip('/') + '{address}', json={{'sql': {SLOW!r}}},"
            f" timeout=None, headers={{'Authorization': 'Bearer {TOKEN}'}})"
        )
        with subprocess.Popen([sys.executable, "-c", program]) as other:
            wait_until(lambda: processes(service).lent == 1)
            [process] = processes(service)._lent
            other.kill()
        wait_until(lambda: not is_alive(process._pid))
        assert client.post("/v1/plan", json={"sql": "SHOW TABLES"}).status_code == 200
        assert service.compilations.running == service.verifications.running == 0


@pytest.mark.slow
def test_one_that_waits_for_its_turn_is_told_when_it_does_not_come(project: Path) -> None:
    with asked(project, compile_seconds=3.0) as (client, service):
        told: list[int] = []
        others = [
            threading.Thread(target=lambda: told.append(client.post("/v1/plan", json={"sql": SLOW}).status_code))
            for _ in range(3)
        ]
        for other in others:
            other.start()
        for other in others:
            other.join()
        # While the first one is compiled, its place is all that there is.
        assert 504 in told
        assert set(told) <= {429, 504}
        assert service.compilations.running == 0


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", list(LONG))
def test_a_text_that_takes_long_to_compile_is_refused(project: Path, name: str) -> None:
    with asked(project) as (client, _):
        for address in ("/v1/jobs", "/v1/plan", "/v1/jobs/j/verify"):
            found = client.post(address, json={"sql": LONG[name]})
            assert found.status_code == 400
            assert "a statement has 50,000 words and signs at most" in found.json()["detail"]


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", list(LONG))
def test_of_an_admin_it_is_compiled_as_long_as_the_limit_says(project: Path, name: str) -> None:
    settings = replace(settings_of(project), limits=replace(Limits(), compile_seconds=2.0))
    with serving(settings) as (url, service), httpx.Client(base_url=url, timeout=240) as client:
        await_idle(processes(service))
        found = client.post("/v1/plan", json={"sql": LONG[name]})
        assert found.status_code in (200, 400, 504), found.text[:1000]
        wait_until(lambda: processes(service).lent == 0)
        wait_until(lambda: client.post("/v1/plan", json={"sql": "SHOW TABLES"}).status_code == 200)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone bounds addresses")
def test_it_has_no_more_memory_than_it_may(project: Path) -> None:
    pool = QueryProcesses(settings_of(project).project, QueryLimits(memory=256 << 20, spilled=0, threads=1))
    reader = StateReader(pool)
    try:
        large = ComputationCall("compilation", bytes, (8 << 30,))
        with pytest.raises(QueryError, match="out of memory: the compilation takes more than the 256 MiB"):
            reader.open(large, RunningQuery())
        more = ComputationCall("verification", len_of_zeros, (2 << 30,), more_memory=2 << 30)
        assert RunningAnswer(pool, RunningQuery(), more).head == 2 << 30
        # What has had more than others is not used again.
        assert pool.lent == 0
        with pytest.raises(QueryError, match="out of memory: the compilation"):
            reader.open(ComputationCall("compilation", len_of_zeros, (2 << 30,)), RunningQuery())
    finally:
        pool.close()


def len_of_zeros(count: int) -> int:
    return len(bytes(count))


@pytest.mark.slow
def test_a_secret_that_was_seen_there_is_not_shown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "hunter2hunter2")
    options = "'connector' = 'kafka', 'topic' = 'x', 'properties.bootstrap.servers' = 'h:1', 'format' = 'json'"
    declared = f"CREATE TABLE k (a INT) WITH ({options}, 'properties.sasl.password' = '${{PLACE}}')"
    with serving(settings_of(project)) as (url, _), httpx.Client(base_url=url, timeout=240) as client:
        found = client.post("/v1/plan", json={"sql": f"{declared}; EXPLAIN SELECT hunter2hunter2 FROM k"})
        assert (found.status_code, found.json()["position"]["line"]) == (400, 1)
        assert "column" in found.json()["detail"]
        assert "hunter2hunter2" not in found.text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone kills children with their parent")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_is_computed_ends_with_the_server(project: Path, number: int) -> None:
    words = [sys.executable, "-m", "sqlstream", "serve", "--port", "0", "--project", str(project)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        line = next(line for line in server.stderr if line.startswith("listening on "))
        url = line.removeprefix("listening on ").strip()

        def ask() -> None:
            with contextlib.suppress(httpx.HTTPError):
                httpx.post(f"{url}/v1/jobs", json={"sql": SLOW}, timeout=None)

        client = threading.Thread(target=ask)
        client.start()
        pid = busy_below(server.pid)
        server.send_signal(number)
        # It waits for nothing that is computed.
        server.wait(60)
        client.join(60)
        assert not client.is_alive()
        wait_until(lambda: not is_alive(pid))


def busy_below(parent: int) -> int:
    """Return the process, of those of a server, that computes something, as soon as one does."""
    found: list[int] = []

    def is_busy() -> bool:
        for seed in psutil.Process(parent).children():
            found.extend(child.pid for child in seed.children() if child.cpu_times().user > 2)
        return bool(found)

    wait_until(is_busy)
    return found[0]
