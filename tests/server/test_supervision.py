"""Jobs that are submitted go on: when their process is killed, when the server is, and when another server takes over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from sqlstream.errors import UsageError
from sqlstream.jobs.ending import stop
from sqlstream.server import submitting
from sqlstream.server.access import Role, Tokens
from sqlstream.server.messages import SubmissionReply, SubmitRequest
from sqlstream.server.processes import JobProcess
from sqlstream.server.settings import ServerSettings
from sqlstream.server.submissions import (
    ENDED,
    FAILED,
    Submission,
    SubmissionState,
    read_state,
    submissions,
    write_state,
    write_submission,
)
from sqlstream.server.submitting import keep, prepare
from sqlstream.server.supervisor import Supervisor
from sqlstream.session.session import Session
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import effective_status
from tests.clocks import HOURS, WrongClock, set_clock
from tests.processes import is_gone, wait_until
from tests.server.serving import serving, settings_of, without_spark

pytestmark = pytest.mark.slow

SQL = """
SET 'restart-strategy.type' = 'fixed-delay';
SET 'restart-strategy.fixed-delay.attempts' = '100';
SET 'restart-strategy.fixed-delay.delay' = '10 ms';
SET 'execution.checkpointing.interval' = '20 ms';
CREATE TABLE given (a INT);
INSERT INTO given VALUES (1), (2);
CREATE TABLE numbers (n BIGINT) WITH (
    'connector' = 'filesystem', 'path' = 'in', 'format' = 'csv', 'source.monitor-interval' = '20 ms');
CREATE TABLE sums (n BIGINT PRIMARY KEY NOT ENFORCED, times BIGINT);
INSERT INTO sums SELECT n, COUNT(*) FROM numbers GROUP BY n;
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "in").mkdir()
    return tmp_path


def feed(project: Path, number: object) -> None:
    """Add a file with a number."""
    file = project / f".{number}"
    file.write_text(f"{number}\n")
    file.rename(project / "in" / f"{number}.csv")


def rows(client: httpx.Client, sql: str) -> list[list[object]]:
    found = client.post("/v1/query", json={"sql": sql})
    return list(found.json()["rows"]) if found.status_code == 200 else []


def job(client: httpx.Client, name: str = "sums") -> dict[str, object]:
    return next((j for j in client.get("/v1/jobs").json()["jobs"] if j["job"] == name), {})


def runs(client: httpx.Client) -> bool:
    return job(client).get("status") == "RUNNING"


def counted(client: httpx.Client, project: Path, number: int) -> None:
    """Feed a number, and wait until the job has counted it, and all before it, once."""
    feed(project, number)
    wait_until(lambda: [number, 1] in rows(client, "SELECT * FROM sums") or job(client).get("status") == "FAILED")
    assert rows(client, "SELECT * FROM sums ORDER BY n") == [[n, 1] for n in range(1, number + 1)]


@contextmanager
def ended(client: httpx.Client) -> Iterator[None]:
    """Let no process of a job live on."""
    try:
        yield
    finally:
        pid = job(client).get("pid")
        if isinstance(pid, int) and not is_gone(pid):
            os.kill(pid, signal.SIGKILL)


def submit(settings: ServerSettings, sql: str) -> SubmissionReply:
    script = prepare(settings, Role.ADMIN, SubmitRequest(sql))
    return keep(Warehouse(settings.project.warehouse), script)


def test_a_job_goes_on_when_its_process_is_killed(project: Path) -> None:
    with (
        serving(settings_of(project), without_spark(project)) as (url, service),
        httpx.Client(base_url=url, timeout=60) as client,
        ended(client),
    ):
        found = client.post("/v1/jobs", json={"sql": SQL}).json()
        assert found["jobs"] == ["given_values", "sums"]
        wait_until(lambda: runs(client))
        counted(client, project, 1)
        again = client.post("/v1/jobs", json={"sql": SQL})
        assert (again.status_code, "is being run" in again.text) == (409, True)
        assert client.delete("/v1/jobs/sums").status_code == 409
        first = job(client)["pid"]
        assert isinstance(first, int)
        assert str(first) in str(job(client)["supervised"])
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: runs(client) and job(client)["pid"] != first)
        counted(client, project, 2)
        assert job(client)["restarts"] == 1
        # What ran once does not run again.
        assert rows(client, "SELECT * FROM given ORDER BY a") == [[1], [2]]
        stopped = client.post("/v1/jobs/sums/stop", json={"savepoint": "last"}).json()
        assert stopped["message"].startswith('job "sums" stopped; savepoint "last" at version')
        assert [s["savepoint"] for s in client.get("/v1/savepoints").json()["savepoints"]] == ["last"]
        wait_until(lambda: service.supervisor.about("sums") is None)
        assert job(client)["status"] == "STOPPED"
        # It goes on where it was when it is submitted again.
        assert client.post("/v1/jobs", json={"sql": SQL.replace("INSERT INTO given VALUES (1), (2);", "")}).is_success
        counted(client, project, 3)
    # The server has stopped it, and lets it go on when it is there again.
    with (
        serving(settings_of(project), without_spark(project)) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
        ended(client),
    ):
        counted(client, project, 4)
        client.post("/v1/jobs/sums/stop", json={})
        assert client.delete("/v1/jobs/sums").status_code == 200
        assert job(client) == {}


@pytest.mark.one_in(3, of="supervised jobs")
def test_what_ran_once_does_not_run_again_when_the_clock_was_wrong(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = set_clock(monkeypatch, WrongClock(HOURS))
    with (
        serving(settings_of(project), without_spark(project)) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
        ended(client),
    ):
        assert client.post("/v1/jobs", json={"sql": SQL}).is_success
        clock.wrong = 0.0
        wait_until(lambda: runs(client))
        counted(client, project, 1)
        first = job(client)["pid"]
        assert isinstance(first, int)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: runs(client) and job(client)["pid"] != first)
        counted(client, project, 2)
        assert rows(client, "SELECT * FROM given ORDER BY a") == [[1], [2]]


SERVE = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
import time
from sqlstream.server.serve import opened_service
from tests.server.serving import serving, settings_of, without_spark
project = Path(sys.argv[1])
with serving(settings_of(project), without_spark(project)) as (url, service):
    print(url, flush=True)
    while True:
        time.sleep(60)
"""


def start_server(project: Path) -> tuple[subprocess.Popen[str], str]:
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(root=root), str(project)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.mark.one_in(3, of="supervised jobs")
def test_a_second_server_takes_over_when_the_first_one_is_killed(project: Path) -> None:
    first, url = start_server(project)
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            wait_until(lambda: client.get("/v1/ready").status_code == 200)
            with (
                serving(settings_of(project), without_spark(project)) as (other_url, _),
                httpx.Client(base_url=other_url, timeout=60) as other,
                ended(other),
            ):
                # The standby answers, and takes submissions, which the other one runs.
                assert other.get("/v1/health").json()["status"] == "standby"
                assert other.get("/v1/ready").status_code == 503
                assert other.post("/v1/jobs", json={"sql": SQL}).status_code == 201
                wait_until(lambda: runs(client))
                counted(other, project, 1)
                pid = job(other)["pid"]
                first.kill()
                first.communicate()
                wait_until(lambda: other.get("/v1/ready").status_code == 200)
                # The job has not noticed.
                counted(other, project, 2)
                assert job(other)["pid"] == pid
                wait_until(lambda: job(other)["supervised"] == f"process {pid}")
                assert isinstance(pid, int)
                os.kill(pid, signal.SIGKILL)
                counted(other, project, 3)
                assert job(other)["pid"] != pid
                assert other.post("/v1/jobs/sums/stop", json={}).is_success
    finally:
        first.kill()
        first.wait()


def kept(project: Path, sql: str, starts: int) -> Submission:
    """Submit SQL, and leave it as a server does that is killed after it has started the process so many times."""
    settings = settings_of(project)
    id = submit(settings, sql).id
    warehouse = Warehouse(settings.project.warehouse)
    assert id is not None
    write_state(warehouse, id, SubmissionState(starts=starts))
    return next(one for one in submissions(warehouse) if one.id == id)


@pytest.mark.one_in(3, of="supervised jobs")
def test_a_server_goes_on_where_one_was_killed_in_the_middle_of_a_start(project: Path) -> None:
    (project / "catalog" / "tables.sql").write_text("CREATE TABLE done (a INT); CREATE TABLE due (a INT);")
    with Session(str(project)) as session:
        # Its process ran INSERT .. VALUES, and died before its job began.
        kept(project, SQL, 1)
        session.sql("CREATE TABLE given (a INT); INSERT INTO given VALUES (1), (2)")
        done = kept(project, "INSERT INTO done VALUES (3)", 1)
        session.sql("INSERT INTO done VALUES (3)")
        due = kept(project, "INSERT INTO due VALUES (4)", 1)
    with (
        serving(settings_of(project), without_spark(project)) as (url, service),
        httpx.Client(base_url=url, timeout=60) as client,
        ended(client),
    ):
        counted(client, project, 1)
        assert rows(client, "SELECT * FROM given ORDER BY a") == [[1], [2]]
        wait_until(lambda: None not in [read_state(service.warehouse, one.id).outcome for one in (done, due)])
        assert [read_state(service.warehouse, one.id).outcome for one in (done, due)] == [ENDED, FAILED]
        client.post("/v1/jobs/sums/stop", json={})


@pytest.mark.one_in(3, of="supervised jobs")
def test_a_server_finds_a_process_that_the_one_before_could_not_write_down(project: Path) -> None:
    submission = kept(project, SQL, 0)
    words = without_spark(project)(submission, ())
    orphan = JobProcess.start(words, SQL, str(project), str(project / "output"))
    warehouse = Warehouse(settings_of(project).project.warehouse)
    try:
        wait_until(lambda: effective_status(warehouse.fs, warehouse.job("sums")))
        with (
            serving(settings_of(project), without_spark(project)) as (url, _),
            httpx.Client(base_url=url, timeout=60) as client,
            ended(client),
        ):
            counted(client, project, 1)
            assert job(client)["pid"] == orphan.pid
            os.kill(orphan.pid, signal.SIGKILL)
            counted(client, project, 2)
            assert rows(client, "SELECT * FROM given ORDER BY a") == [[1], [2]]
            client.post("/v1/jobs/sums/stop", json={})
    finally:
        if orphan.is_alive:
            os.kill(orphan.pid, signal.SIGKILL)


@pytest.mark.one_in(3, of="supervised jobs")
def test_a_job_that_was_stopped_just_before_the_server_stays_so(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse(settings_of(project).project.warehouse)
    with (
        serving(settings_of(project), without_spark(project)) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
        ended(client),
    ):
        id = client.post("/v1/jobs", json={"sql": SQL}).json()["id"]
        counted(client, project, 1)
        # Nobody looks between the stop and the end of the server.
        monkeypatch.setattr(Supervisor, "_supervise", lambda supervisor: None)
        pid = job(client)["pid"]
        assert isinstance(pid, int)
        stop(warehouse, "sums")
        wait_until(lambda: is_gone(pid))
    monkeypatch.undo()
    with (
        serving(settings_of(project), without_spark(project)) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
        ended(client),
    ):
        wait_until(lambda: read_state(warehouse, id).outcome is not None or runs(client))
        assert (read_state(warehouse, id).outcome, job(client)["status"]) == (ENDED, "STOPPED")


def test_of_two_submissions_of_a_job_at_the_same_time_one_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, errors = settings_of(project), list[str]()

    def second() -> None:
        try:
            submit(settings, SQL)
        except UsageError as error:
            errors.append(error.message)

    thread = threading.Thread(target=second)

    def kept_slowly(warehouse: Warehouse, made: Submission) -> None:
        if not thread.is_alive():
            monkeypatch.undo()
            thread.start()
            # It gets as far as it can meanwhile.
            thread.join(2)
        write_submission(warehouse, made)

    monkeypatch.setattr(submitting, "write_submission", kept_slowly)
    submit(settings, SQL)
    thread.join()
    assert errors == ['job "sums" is being run by a server: it was submitted before']
    assert len(list(submissions(Warehouse(settings.project.warehouse)))) == 1


@pytest.mark.one_in(3, of="supervised jobs")
def test_a_job_can_be_dropped_as_soon_as_it_is_seen_to_have_stopped(project: Path) -> None:
    with (
        serving(settings_of(project), without_spark(project)) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
        ended(client),
    ):
        for _ in range(3):
            client.post("/v1/jobs", json={"sql": SQL}).raise_for_status()
            wait_until(lambda: runs(client))
            # Whoever stops it is answered when its process has ended, others see before what it says of itself.
            stopping = threading.Thread(target=stop, args=(Warehouse(str(project / "warehouse")), "sums"))
            stopping.start()
            wait_until(lambda: job(client).get("status") == "STOPPED")
            dropped = client.delete("/v1/jobs/sums")
            stopping.join()
            assert dropped.status_code == 200, dropped.text


@pytest.mark.one_in(3, of="supervised jobs")
def test_a_job_that_fails_stays_so_and_says_why(project: Path) -> None:
    with (
        serving(settings_of(project), without_spark(project)) as (url, service),
        httpx.Client(base_url=url, timeout=60) as client,
        ended(client),
    ):
        assert client.post("/v1/jobs", json={"sql": SQL}).status_code == 201
        counted(client, project, 1)
        feed(project, "seven")
        wait_until(lambda: job(client).get("status") == "FAILED")
        wait_until(lambda: service.supervisor.about("sums") is None)
        assert "seven" in str(job(client)["error"])
        assert job(client)["restarts"] == 0


@pytest.mark.one_in(3, of="supervised jobs")
def test_what_happens_is_heard(project: Path) -> None:
    with (
        serving(settings_of(project), without_spark(project)) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
        ended(client),
        client.stream("GET", "/v1/events?job=sums", timeout=240) as events,
    ):
        lines = events.iter_lines()
        client.post("/v1/jobs", json={"sql": SQL})
        wait_until(lambda: runs(client))
        feed(project, 1)
        heard = []
        for line in lines:
            if line.startswith("event: "):
                heard.append(line.removeprefix("event: "))
            if heard[-1:] == ["batch"] and '"rows_in":1' in line:
                break
        assert '"operators":{"aggregate_1":{"state_rows":1' in line
        assert "job" in heard
        client.post("/v1/jobs/sums/stop", json={})
        assert any('"status":"STOPPED"' in line for line in lines)


def test_a_file_that_becomes_a_link_after_its_job_was_accepted_is_not_read(project: Path) -> None:
    token = "s" * 20
    tokens = Tokens(((sha256(token.encode()).digest(), Role.SUBMIT),))
    settings = replace(settings_of(project), tokens=tokens, paths=("in",))
    (project / "private.csv").write_text("42\n")
    headers = {"Authorization": f"Bearer {token}"}
    sql = SQL.replace("attempts' = '100'", "attempts' = '1'")
    with (
        serving(settings, without_spark(project)) as (url, _),
        httpx.Client(base_url=url, timeout=60, headers=headers) as client,
        ended(client),
    ):
        assert client.post("/v1/jobs", json={"sql": sql}).status_code == 201
        wait_until(lambda: runs(client))
        counted(client, project, 1)
        (project / "in" / "2.csv").symlink_to(project / "private.csv")
        wait_until(lambda: job(client).get("status") == "FAILED")
        assert "leads outside of where its files may be" in str(job(client))
        assert rows(client, "SELECT * FROM sums") == [[1, 1]]
        # Nor does verifying read it, whoever asks for that.
        (project / "in" / "2.csv").unlink()
        (project / "in" / "1.csv").unlink()
        (project / "in" / "1.csv").symlink_to(project / "private.csv")
        found = client.post("/v1/query", json={"sql": "FROM sqlstream.verify('sums')"})
        assert "leads outside of where its files may be" in found.text
        found = client.post("/v1/jobs/sums/verify", json={"sql": sql})
        assert found.status_code == 403
        assert "leads outside" in found.text
