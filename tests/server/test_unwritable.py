"""A server on a warehouse that its user must not write: it answers what reads, supervises nothing, and says so once."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from sqlstream import Session
from tests.forked import Forked, start_python
from tests.processes import wait_until
from tests.users import OTHER, home, own, unwritable

pytestmark = pytest.mark.slow

SAYS = "this server answers queries, and supervises no jobs as long as that is so"


def address(server: Forked) -> tuple[str, str]:
    """Return the address of a server that has just been started, and what it has said by then."""
    assert server.stdout is not None
    said = ""
    for line in server.stdout:
        said += line
        if match := re.search(r"listening on (\S+)", line):
            return match[1], said
    raise AssertionError(said)


def test_a_server_on_a_warehouse_that_it_cannot_write(tmp_path: Path) -> None:
    project, environment = tmp_path / "project", home(tmp_path / "other")
    (project / "catalog").mkdir(parents=True)
    with Session(str(project), notice=lambda text: None) as session:
        session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)")
        session.sql("CREATE SAVEPOINT first FOR JOB t_values")
    own(project / "warehouse")
    words = ("-m", "sqlstream", "serve", "--port", "0", "--project", str(project))
    with unwritable(project / "warehouse"):
        server = start_python(*words, environment=environment, own_group=True, user=OTHER)
        url, said = address(server)
        with httpx.Client(base_url=url, timeout=60) as client:
            assert client.get("/v1/health").json()["status"] == "standby"
            assert client.get("/v1/ready").status_code == 503
            asked = client.post("/v1/query", json={"sql": "SELECT sum(a) FROM t"})
            assert asked.json()["rows"] == [[3]], asked.text
            assert [one["job"] for one in client.get("/v1/jobs").json()["jobs"]] == ["t_values"]
            assert [one["savepoint"] for one in client.get("/v1/savepoints").json()["savepoints"]] == ["first"]
            assert client.get("/v1/jobs/t_values/batches").status_code == 200
            for answer in (
                client.post("/v1/jobs", json={"sql": "CREATE TABLE x (a INT); INSERT INTO x VALUES (1)"}),
                client.post("/v1/jobs/t_values/savepoints", json={"name": "second"}),
                client.delete("/v1/jobs/t_values"),
                client.delete("/v1/savepoints/first"),
            ):
                assert answer.status_code == 409, answer.text
                assert f'the folder "{project}' in answer.json()["detail"]
                assert answer.json()["detail"].endswith('" cannot be written')
    with httpx.Client(base_url=url, timeout=60) as client:
        # From now on it can be written.
        wait_until(lambda: client.get("/v1/ready").status_code == 200)
    server.kill()
    assert server.stdout is not None
    said += server.stdout.read()
    assert said.count(SAYS) == 1, said
    assert said.count("this server supervises the jobs of the warehouse") == 1
    assert "Traceback" not in said
