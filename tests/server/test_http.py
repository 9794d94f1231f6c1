"""What the server answers over HTTP, and whom."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import httpx
import pyarrow as pa
import pytest

from sqlstream.errors import QueryError, UsageError
from sqlstream.queries.query import QueryLimits
from sqlstream.server.access import Role, is_open, read_tokens
from sqlstream.server.client import Client
from sqlstream.server.endpoints import ENDPOINTS, EVENT_STREAM, PLAIN, Service
from sqlstream.server.http_answers import ARROW, JSON, HttpQuery, HttpRequest
from sqlstream.server.messages import Jobs
from sqlstream.server.query_processes.worker import Worker
from sqlstream.server.serve import serve
from sqlstream.server.settings import Limits, ServerSettings
from sqlstream.session.session import Session
from tests.certificates import Authority
from tests.processes import wait_until
from tests.server.serving import serving, settings_of

ENDLESS = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
TOKENS = {"read": "r" * 20, "submit": "s" * 20, "admin": "a" * 20}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose warehouse has a table."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "catalog").mkdir()
    with Session(str(folder)) as session:
        session.sql("CREATE TABLE t (a INT, b STRING); INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    return folder


@pytest.fixture(scope="module")
def served(project: Path) -> Iterator[tuple[httpx.Client, Service]]:
    with serving(settings_of(project)) as (url, service), httpx.Client(base_url=url, timeout=60) as client:
        yield client, service


@pytest.fixture
def client(served: tuple[httpx.Client, Service]) -> httpx.Client:
    return served[0]


def test_jobs_are_listed_and_shown(client: httpx.Client) -> None:
    [job] = client.get("/v1/jobs").json()["jobs"]
    assert (job["job"], job["status"], job["rows_out"], job["supervised"]) == ("t_values", "FINISHED", 2, None)
    shown = client.get("/v1/jobs/T_VALUES").json()
    assert shown["job"] == job
    assert {"from": "values", "to": "sink t"} in shown["graph"]["edges"]
    assert {"t", "sqlstream.jobs"} <= {r["name"] for r in client.get("/v1/relations").json()["relations"]}


@pytest.mark.slow
def test_the_batches_of_a_job_are_shown(client: httpx.Client) -> None:
    shown = client.get("/v1/jobs/T_VALUES/batches").json()["batches"]
    committed = client.post("/v1/query", json={"sql": "SELECT version FROM sqlstream.snapshots ORDER BY 1"}).json()[
        "rows"
    ]
    assert [[batch["version"]] for batch in shown] == committed
    assert [batch["rows_out"] for batch in shown][-1] == shown[-1]["sinks"]["t"]["rows"] == 2
    assert sum(shown[0]["took"].values()) > 0
    assert client.get("/v1/jobs/t_values/batches?last=1").json()["batches"] == shown[-1:]


def test_a_query_is_answered_as_json_and_as_arrow(client: httpx.Client) -> None:
    asked = {"sql": "SELECT a, b, 'nan'::DOUBLE AS c FROM t ORDER BY a"}
    found = client.post("/v1/query", json=asked)
    assert found.headers["content-type"] == "application/json"
    columns = [("a", "INTEGER"), ("b", "VARCHAR"), ("c", "DOUBLE")]
    assert [(c["name"], c["type"]) for c in found.json()["columns"]] == columns
    assert found.json()["rows"] == [[1, "x", "nan"], [2, None, "nan"]]
    assert not found.json()["truncated"]
    few = client.post("/v1/query", json={**asked, "limit": 1}).json()
    assert (few["rows"], few["truncated"]) == ([[1, "x", "nan"]], True)
    arrow = client.post("/v1/query", json=asked, headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert pa.ipc.open_stream(arrow.content).read_all().select(["a", "b"]).to_pylist() == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": None},
    ]


@pytest.mark.slow
def test_a_query_that_failed_leaves_no_database_open(project: Path) -> None:
    def opened() -> dict[int, duckdb.DuckDBPyConnection]:
        return {id(o): o for o in gc.get_objects() if isinstance(o, duckdb.DuckDBPyConnection)}

    # As in the process of a query.
    worker = Worker(settings_of(project).project, QueryLimits())
    failing = [
        ("SELECT nope FROM t", JSON),
        ("SELECT CAST(b AS INTEGER) FROM t", JSON),
        ("SELECT b::INT FROM t", ARROW),
    ]
    gc.collect()
    # What is left by then waits for the garbage collector, which may come an hour later.
    gc.disable()
    try:
        before = opened()
        for sql, form in failing:
            with pytest.raises(QueryError):
                HttpRequest(HttpQuery(sql, 10), form).open(worker)
        for left in (connection for number, connection in opened().items() if number not in before):
            with pytest.raises(duckdb.ConnectionException):
                left.execute("SELECT 1")
    finally:
        gc.enable()


def test_a_large_answer_comes_whole(client: httpx.Client) -> None:
    rows = 300_000
    sql = f"SELECT range AS i, repeat('x', 20) AS s FROM range({rows})"
    arrow = client.post("/v1/query", json={"sql": sql}, headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert pa.ipc.open_stream(arrow.content).read_all()["i"].to_pylist() == list(range(rows))
    found = client.post("/v1/query", json={"sql": sql, "limit": 20_000}).json()
    assert [row[0] for row in found["rows"]] == list(range(20_000))


@pytest.mark.parametrize(
    ("sql", "status", "detail", "place"),
    [
        ("SELECT a,\n  nope FROM t", 400, 'column "nope" does not exist', (2, 3)),
        ("FROM read_csv('/etc/passwd')", 400, "outside of what a query may read", None),
        ("SELECT 1; SELECT 2", 400, "one statement", None),
    ],
)
def test_an_error_is_a_problem_with_its_place(
    client: httpx.Client, sql: str, status: int, detail: str, place: tuple[int, int] | None
) -> None:
    found = client.post("/v1/query", json={"sql": sql})
    assert found.headers["content-type"] == "application/problem+json"
    problem = found.json()
    assert found.status_code == problem["status"] == status
    assert detail in problem["text"]
    if place is not None:
        assert (problem["position"]["line"], problem["position"]["column"]) == place
        assert problem["detail"] == detail
        assert "^^^^" in problem["text"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "detail"),
    [
        ("GET", "/v1/jobs/nope", None, 404, 'job "nope" does not exist'),
        ("GET", "/v1/jobs/nope/batches", None, 404, 'job "nope" does not exist'),
        ("GET", "/v1/jobs/t_values/batches?last=0", None, 400, "a number from 1 to 1,000"),
        ("GET", "/v1/jobs/t_values/batches?last=many", None, 400, "a number from 1 to 1,000"),
        ("POST", "/v1/jobs/nope/stop", {}, 404, 'job "nope" does not exist'),
        ("POST", "/v1/jobs/t_values/stop", {}, 409, 'job "t_values" is not running'),
        ("DELETE", "/v1/savepoints/nope", None, 404, 'savepoint "nope" does not exist'),
        ("GET", "/v1/nothing", None, 404, "there is nothing"),
        ("PUT", "/v1/jobs", {}, 405, "has no method PUT"),
        ("POST", "/v1/query", {"sqll": "SELECT 1"}, 400, "the body is not what is read here"),
        ("GET", "/v1/jobs?like=x", None, 400, 'there is no parameter "like"'),
        ("POST", "/v1/jobs", {"sql": "CREATE TABLE u (a INT); SELECT a FROM u"}, 400, "a SELECT alone is not a job"),
        ("POST", "/v1/jobs", {"sql": "INSERT INTO x SELECT 1"}, 400, 'table "x" does not exist'),
        ("POST", "/v1/query", {"sql": "x" * 3_000_000}, 413, "the body is larger"),
    ],
)
def test_what_is_wrong_is_said(
    client: httpx.Client, method: str, path: str, body: object, status: int, detail: str
) -> None:
    found = client.request(method, path, json=body)
    assert (found.status_code, found.headers["content-type"]) == (status, "application/problem+json")
    assert detail in found.json()["detail"]


def test_a_secret_is_not_kept_with_the_script(client: httpx.Client, project: Path) -> None:
    options = "'connector' = 'kafka', 'topic' = 'x', 'properties.sasl.password' = 'planted-secret'"
    sql = f"CREATE TABLE k (a INT) WITH ({options}); INSERT INTO t VALUES (3, 'y')"
    found = client.post("/v1/jobs", json={"sql": sql})
    assert found.status_code == 400, found.text
    assert "planted-secret" not in found.text
    plain = "INSERT INTO t VALUES (4, 'z')"
    for beside in (
        {"tables": {"t": {"password": "planted-secret"}}},
        {"settings": {"spark.a.password": "planted-secret"}},
    ):
        found = client.post(
            "/v1/jobs", json={"sql": f"CREATE TABLE IF NOT EXISTS t (a INT, b STRING); {plain}", **beside}
        )
        assert found.status_code == 400, found.text
        assert "planted-secret" not in found.text
    files = [file.read_bytes() for file in (project / "warehouse").rglob("*") if file.is_file()]
    assert not any(b"planted-secret" in content for content in files)


def test_the_server_describes_itself(client: httpx.Client) -> None:
    found = client.get("/v1/openapi.json").json()
    described = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    assert described == {(e.method, e.path) for e in ENDPOINTS}
    text = json.dumps(found)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in found["components"]["schemas"]
    required = found["components"]["schemas"]["QueryRequest"]["required"]
    assert required == ["sql"]
    # Each kind of endpoint answers in forms of its own.
    forms = {
        (path, status): {*answer["content"]}
        for path, methods in found["paths"].items()
        for method in methods.values()
        for status, answer in method["responses"].items()
    }
    assert forms["/v1/savepoints", "200"] == forms["/v1/jobs", "201"] == forms["/v1/plan", "200"] == {JSON}
    assert forms["/v1/query", "200"] == {JSON, ARROW}
    assert (forms["/metrics", "200"], forms["/v1/events", "200"]) == ({PLAIN}, {EVENT_STREAM})


def test_pages_of_other_sites_get_nothing(client: httpx.Client) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert client.get("/v1/jobs", headers=headers).status_code == 403
    assert client.get("/v1/jobs", headers={"Origin": str(client.base_url)}).status_code == 200
    # What a form can send without being asked.
    plain = client.post("/v1/query", content='{"sql": "SELECT 1"}', headers={"Content-Type": "text/plain"})
    assert plain.status_code == 415


def test_a_query_ends_when_its_client_has_gone(served: tuple[httpx.Client, Service]) -> None:
    client, service = served
    with pytest.raises(httpx.ReadTimeout):
        client.post("/v1/query", json={"sql": ENDLESS}, timeout=0.5)
    wait_until(lambda: service.queries.running == 0)


@pytest.mark.slow
def test_a_client_that_reads_nothing_does_not_keep_its_place(project: Path) -> None:
    limits = replace(Limits(), query_seconds=0.5)
    with serving(replace(settings_of(project), limits=limits)) as (url, service):
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            body = json.dumps({"sql": "SELECT repeat('x', 1000) FROM range(1000000)"})
            head = f"POST /v1/query HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
            head += f"Accept: application/vnd.apache.arrow.stream\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall((head + body).encode())
            wait_until(lambda: service.queries.running == 1)
            wait_until(lambda: service.queries.running == 0)


@pytest.mark.slow
def test_calls_that_wait_do_not_let_others_wait(project: Path) -> None:
    with serving(settings_of(project)) as (url, service):
        jobs, waiting, end = service.overview.jobs, threading.Semaphore(0), threading.Event()

        def slow() -> Jobs:
            waiting.release()
            assert end.wait(240)
            return jobs()

        limits = httpx.Limits(max_connections=65)
        with (
            pytest.MonkeyPatch.context() as patch,
            httpx.Client(base_url=url, timeout=240, limits=limits) as client,
            ThreadPoolExecutor(64) as threads,
        ):
            patch.setattr(service.overview, "jobs", slow)

            def wait(count: int) -> list[Future[httpx.Response]]:
                found = [threads.submit(client.get, "/v1/jobs") for _ in range(count)]
                assert all(waiting.acquire(timeout=60) for _ in found)
                return found

            try:
                # More than a loop has threads of its own.
                calls = wait(33)
                assert client.get("/v1/savepoints").status_code == 200
                # As many as there are threads. What asks whether the server lives waits for none of them.
                calls += wait(31)
                assert client.get("/v1/health").status_code == 200
            finally:
                end.set()
            assert {call.result().status_code for call in calls} == {200}


def test_a_long_text_does_not_stop_the_server(client: httpx.Client) -> None:
    # What says at its end only that it is not SHOW SAVEPOINTS.
    found = client.post("/v1/query", json={"sql": "SHOW SAVEPOINTS" + " " * 500_000 + "x"}, timeout=60)
    assert found.status_code == 400


@pytest.mark.slow
def test_a_query_has_limits(project: Path) -> None:
    limits = replace(Limits(), query_seconds=0.3, queries=1)
    with (
        serving(replace(settings_of(project), limits=limits)) as (url, service),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        found = client.post("/v1/query", json={"sql": ENDLESS})
        assert (found.status_code, found.json()["detail"]) == (504, "the query took longer than 0.3 s")
    limits = replace(Limits(), queries=1, query=replace(Limits().query, memory=40 << 20, spilled=1 << 20))
    with (
        serving(replace(settings_of(project), limits=limits)) as (url, service),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        large = "SELECT count(*) FROM (SELECT DISTINCT range, repeat('x', 100) || range FROM range(5000000))"
        found = client.post("/v1/query", json={"sql": large})
        assert found.status_code == 400
        assert "memory" in found.text.lower()
    with (
        serving(replace(settings_of(project), limits=replace(Limits(), queries=1))) as (url, service),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        other = threading.Thread(target=_asked_in_vain, args=(url,))
        other.start()
        wait_until(lambda: service.queries.running == 1)
        found = client.post("/v1/query", json={"sql": "SELECT 1"})
        assert (found.status_code, found.headers.get("retry-after")) == (429, "1"), found.text
    other.join()


def _asked_in_vain(url: str) -> None:
    # The server ends first.
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(f"{url}/v1/query", json={"sql": ENDLESS}, timeout=None)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("# who\n" + "".join(f"{role} {token}\n" for role, token in TOKENS.items()))
    path.chmod(0o600)
    return path


@pytest.mark.slow
def test_tokens_have_roles(project: Path, tokens: Path) -> None:
    settings = replace(settings_of(project), tokens=read_tokens(str(tokens)))
    with serving(settings) as (url, _), httpx.Client(base_url=url, timeout=60) as client:

        def status(method: str, path: str, token: str | None, body: object = None) -> int:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            return client.request(method, path, json=body, headers=headers).status_code

        for token in (None, "wrong", TOKENS["read"][:-1]):
            assert status("GET", "/v1/jobs", token) == 401
        assert "SQLSTREAM_TOKEN" in client.get("/v1/jobs").json()["hint"]
        # A file of a token ends with a line break.
        assert Client(url, f"{TOKENS['read']}\r\n").get("jobs")["jobs"]
        assert status("GET", "/v1/health", None) == 200
        assert status("GET", "/v1/jobs", TOKENS["read"]) == 200
        assert status("POST", "/v1/query", TOKENS["read"], {"sql": "FROM t"}) == 200
        for method, path in (("POST", "/v1/jobs"), ("DELETE", "/v1/jobs/t_values"), ("POST", "/v1/jobs/t_values/stop")):
            assert status(method, path, TOKENS["read"], {}) == 403
        assert status("POST", "/v1/jobs/t_values/stop", TOKENS["submit"], {}) == 409


def test_a_token_that_no_header_can_hold_is_not_shown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for token, wrong in (
        ("planted\ntoken", "a line break, the 8. of it"),
        ("plantedé", "U+00E9"),
        ("plan ted", "a space"),
    ):
        monkeypatch.setenv("SQLSTREAM_TOKEN", token)
        with pytest.raises(UsageError, match=re.escape(wrong)) as raised:
            Client("http://127.0.0.1:1")
        assert "plan" not in raised.value.render()


def test_metrics_need_a_library(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    answer = client.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (501, "application/problem+json")
    assert answer.json()["hint"] == "Install it: pip install -e '.[metrics]'."


def test_a_file_of_tokens(tokens: Path) -> None:
    assert read_tokens(str(tokens)).role_of(TOKENS["submit"]) is Role.SUBMIT
    tokens.write_text("read sha256:" + "0" * 64 + "\nroot " + "x" * 20)
    with pytest.raises(UsageError, match="line 2"):
        read_tokens(str(tokens))
    tokens.write_text("read short")
    with pytest.raises(UsageError, match="shorter than 16"):
        read_tokens(str(tokens))
    tokens.chmod(0o640)
    with pytest.raises(UsageError, match="open to others"):
        read_tokens(str(tokens))


def test_who_may_read_a_file_of_tokens() -> None:
    """A Secret of Kubernetes is a file of root's that the group of the pod reads."""
    pod, root = 10001, 0
    assert [is_open(mode, root, pod) for mode in (0o400, 0o440, 0o460, 0o444)] == [False, False, True, True]
    assert [is_open(mode, pod, pod) for mode in (0o400, 0o600, 0o440)] == [False, False, True]
    assert is_open(0o440, root, root)


def test_it_does_not_open_itself_to_anybody(project: Path, tokens: Path) -> None:
    settings = replace(settings_of(project), host="0.0.0.0")
    with pytest.raises(UsageError, match="without tokens and without TLS"):
        settings.check()
    with pytest.raises(UsageError, match="without TLS"):
        replace(settings, tokens=read_tokens(str(tokens))).check()
    replace(settings, insecure=True).check()
    for host in ("127.0.0.1", "::1", "localhost"):
        ServerSettings(settings.project, host=host).check()


def test_addresses_that_are_none(project: Path) -> None:
    settings = settings_of(project)
    for options, wrong in (
        ({"port": 99_999}, "--port 99999 is no port"),
        ({"port": -1}, "--port -1 is no port"),
        ({"postgres": 70_000}, "--postgres 70000 is no port"),
        ({"limits": Limits(queries=0)}, "--queries 0 lets no query run"),
        ({"limits": Limits(query_seconds=float("nan"))}, "--query-seconds nan is no time"),
    ):
        with pytest.raises(UsageError, match=wrong):
            replace(settings, **options).check()
    for host in ("203.0.113.1", "no host", "x" * 100):
        with pytest.raises(UsageError, match="cannot listen") as raised:
            serve(replace(settings, host=host, insecure=True), lambda text: None)
        assert raised.value.render().startswith("error: ")
        assert "--host" in str(raised.value.hint)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="Address already in use") as raised:
            serve(replace(settings, port=taken.getsockname()[1]), lambda text: None)
    assert "--port" in str(raised.value.hint)


def test_files_that_are_no_certificate_and_key(project: Path, tmp_path: Path) -> None:
    authority = Authority("authority")
    pem, other = (str(authority.give(name, tmp_path / f"{name}.pem")) for name in ("server", "other"))
    text, missing = tmp_path / "text.pem", str(tmp_path / "nope.pem")
    text.write_text("no certificate")
    for certificate, key, wrong in (
        (missing, pem, f'--tls-cert "{missing}" cannot be read\nNo such file'),
        (pem, missing, f'--tls-key "{missing}" cannot be read'),
        (str(text), pem, f'--tls-cert "{text}" has no certificate in PEM'),
        (pem, str(text), f'--tls-key "{text}" has no key in PEM'),
        (pem, other, f'--tls-key "{other}" is not the key of'),
    ):
        with pytest.raises(UsageError, match=re.escape(wrong)):
            replace(settings_of(project), certificate=certificate, key=key).check()


def test_tls_with_certificate_files(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority("authority")
    pem = str(authority.give("server", tmp_path / "server.pem"))
    trusted = ssl.create_default_context(cafile=str(authority.write(tmp_path / "ca.pem")))
    with pytest.raises(UsageError, match="takes a certificate and its key"):
        replace(settings_of(project), certificate=pem).check()
    with serving(replace(settings_of(project), certificate=pem, key=pem)) as (url, _):
        assert url.startswith("https://")
        assert httpx.get(f"{url}/v1/health", verify=trusted).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/v1/health")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{url.replace('https', 'http')}/v1/health")
        # The command line.
        with pytest.raises(UsageError, match="is not trusted") as raised:
            Client(url).get("health")
        assert "SSL_CERT_FILE" in str(raised.value.hint)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert Client(url).get("health")["version"]
