"""Secrets in a real run: whatever fails, no file of the warehouse, no log and no line on the screen holds one."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path

import duckdb
import pytest

from tests.forked import run_python

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PASSWORD, NEW_PASSWORD, TOKEN, IN_URL = "hunter2-of-old", "tr0ub4dor-and-3", "xoxb-98765", "s3same/open"
# In a URL a slash is written so.
QUOTED = IN_URL.replace("/", "%2F")
OWN = """
import os

import pyarrow as pa

from sqlstream.connectors import Sink, Source


class Guarded(Source):
    def __init__(self, password: str, endpoint: str):
        self.password, self.endpoint = password, endpoint

    def latest_position(self, partition):
        return 3

    def read(self, partition, start, end):
        if os.path.exists("refuse_reading"):
            raise PermissionError(f"login with {self.password!r} at {self.endpoint} refused")
        return pa.table({"k": range(start, end)})


class Lines(Sink):
    def __init__(self, token: str):
        self.token = token

    def write(self, batch, table):
        if os.path.exists("refuse_writing"):
            raise PermissionError("refused: " + self.token)


def name(id: int) -> dict:
    return {"name": str(id)}


class Names:
    def __init__(self, api_key: str):
        self.key = api_key

    def __call__(self, id: int):
        if os.path.exists("refuse_lookups"):
            raise PermissionError("not known: " + self.key)
        return {"name": f"n{id}"}
"""
TABLES = f"""
CREATE TABLE numbers (k BIGINT, p AS PROCTIME())
WITH ('connector' = 'python', 'class' = 'own.Guarded', 'password' = '${{PASSWORD}}', 'endpoint' = 'https://ann:{QUOTED}@host');
CREATE TABLE names (id BIGINT, name STRING)
WITH ('connector' = 'python', 'function' = 'own.Names', 'api-key' = '{TOKEN}', 'lookup.max-retries' = '0');
CREATE TABLE lines (k BIGINT, name STRING) WITH ('connector' = 'python', 'class' = 'own.Lines', 'token' = '{TOKEN}');
CREATE TABLE found (k BIGINT, name STRING);
"""
JOB = """
EXECUTE STATEMENT SET BEGIN
INSERT INTO found SELECT k, name FROM numbers JOIN names FOR SYSTEM_TIME AS OF numbers.p ON names.id = k;
INSERT INTO lines SELECT k, name FROM numbers JOIN names FOR SYSTEM_TIME AS OF numbers.p ON names.id = k;
END;
"""


def run(project: Path, *arguments: str, password: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PASSWORD": password}
    return run_python("-m", "sqlstream", *arguments, cwd=project, environment=environment, job=True)


@pytest.mark.thorough
def test_nothing_that_a_run_leaves_behind_holds_a_secret(tmp_path: Path) -> None:
    for folder, file, text in (("udfs", "own.py", OWN), ("catalog", "tables.sql", TABLES), (".", "job.sql", JOB)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / file).write_text(text)
    shown = []
    for refused, what in (("reading", "login with"), ("lookups", "not known"), ("writing", "refused: ")):
        (tmp_path / f"refuse_{refused}").touch()
        failed = run(tmp_path, "run", "--debug", "job.sql", password=PASSWORD)
        assert failed.returncode == 1, failed
        assert what in failed.stderr
        assert "******" in failed.stderr
        shown += [failed.stdout, failed.stderr]
        (tmp_path / f"refuse_{refused}").unlink()
    # Another password goes on with the job.
    for arguments in (
        ("explain", "--stage", "logical", "job.sql"),
        ("run", "job.sql"),
        ("run", "-e", "SHOW CREATE TABLE lines"),
    ):
        done = run(tmp_path, *arguments, password=NEW_PASSWORD)
        assert done.returncode == 0, done
        shown += [done.stdout, done.stderr]
    listed = run(tmp_path, "query", "SELECT count(*), any_value(name) FROM found", password=NEW_PASSWORD)
    assert re.search(r"3\s+n0", listed.stdout), listed
    jobs = run(tmp_path, "query", "SELECT * FROM sqlstream.jobs", "--format", "json", password=NEW_PASSWORD)
    text = "".join([*shown, listed.stdout, jobs.stdout, jobs.stderr])
    secrets = (PASSWORD, NEW_PASSWORD, TOKEN, IN_URL, QUOTED)
    assert [s for s in secrets if s in text] == []
    assert leaks(tmp_path / "warehouse", *secrets) == []


def leaks(folder: Path, *secrets: str) -> list[tuple[str, str]]:
    """Return the files below a folder that hold a secret, also in errors as they are packed for the JVM."""
    found = []
    for path in (p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        packed = re.findall(rb"sqlstream-error:([A-Za-z0-9+/=]+):", content)
        content += b"".join(map(base64.b64decode, packed))
        if path.suffix == ".parquet":
            content += str(duckdb.read_parquet(str(path)).fetchall()).encode()
        found += [(str(path), s) for s in secrets if s.encode() in content]
    return found
