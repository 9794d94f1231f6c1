"""A secret planted in every option that can hold one: no file, no line and no error of anything that a user does has it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sqlstream import secrets
from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.registry import built_in
from sqlstream.errors import JobError, SourceText, SqlStreamError
from sqlstream.jobs.job import Job
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.session.session import Session
from tests.command_line import run_command
from tests.connectors.test_secrets import leaks
from tests.processes import wait_until

PASSWORD, IN_URL, TOKEN, FILED = "planted-password-1", "planted-in-url-2", "planted-token-3", "planted-in-file-4"
SECRETS = (PASSWORD, IN_URL, TOKEN, FILED)
# By connector: options of a table, with a secret wherever the connector takes one.
TABLES = {
    "postgresql": f"""'url' = 'postgresql://ann:{IN_URL}@localhost:1/d?sslpassword={TOKEN}', 'table-name' = 't',
        'password' = '{PASSWORD}'""",
    "mysql": f"'url' = 'mysql://ann:{IN_URL}@localhost:1/d', 'table-name' = 't', 'password' = '{PASSWORD}'",
    "postgres-cdc": f"'url' = 'postgresql://ann:{IN_URL}@localhost:1/d', 'table-name' = 't', 'password' = '{PASSWORD}'",
    "mysql-cdc": f"'url' = 'mysql://ann:{IN_URL}@localhost:1/d', 'table-name' = 't', 'password' = '{PASSWORD}'",
    "elasticsearch": f"""'hosts' = 'http://ann:{IN_URL}@localhost:1', 'index' = 't', 'username' = 'ann',
        'password' = '{PASSWORD}', 'token' = '{TOKEN}'""",
    "kafka": f"""'properties.bootstrap.servers' = 'localhost:1', 'topic' = 't', 'format' = 'avro-confluent',
        'avro-confluent.url' = 'http://ann:{IN_URL}@localhost:1', 'avro-confluent.basic-auth.user-info' = 'ann:{TOKEN}',
        'properties.sasl.jaas.config' = 'org.apache.kafka.PlainLoginModule required username="a" password="{PASSWORD}";'""",
    "upsert-kafka": f"""'properties.bootstrap.servers' = 'localhost:1', 'topic' = 't', 'key.format' = 'json',
        'value.format' = 'json', 'properties.sasl.password' = '{PASSWORD}', 'properties.ssl.key.password' = '{TOKEN}'""",
    "delta": f"""'path' = 's3://bucket/t?endpoint_override=http://ann:{IN_URL}@localhost:1',
        'storage.secret_access_key' = '{PASSWORD}'""",
    "iceberg": f"""'warehouse' = 's3://bucket/w', 'catalog' = 'c', 'catalog.type' = 'rest', 'table' = 'd.t',
        'catalog.uri' = 'http://ann:{IN_URL}@localhost:1', 'catalog.token' = '{TOKEN}',
        'catalog.s3.secret-access-key' = '{PASSWORD}'""",
    "filesystem": f"'path' = 's3://key:{IN_URL}@bucket/t', 'format' = 'json', 'password' = '{PASSWORD}'",
    "duckdb": f"'path' = 'x.db', 'table' = 't', 'password' = '{PASSWORD}'",
    "sqlite": f"'path' = 'x.db', 'table' = 't', 'api-key' = '{PASSWORD}'",
    "socket": f"'hostname' = 'localhost', 'port' = '1', 'format' = 'csv', 'token' = '{TOKEN}'",
    "datagen": f"'password' = '{PASSWORD}'",
    "faker": f"'fields.k.expression' = '#{{number.numberBetween ''1'',''9''}}', 'password' = '{PASSWORD}'",
    "print": f"'password' = '{PASSWORD}'",
    "blackhole": f"'token' = '{TOKEN}'",
    "nexmark": f"'token' = '{TOKEN}'",
    "python": f"'class' = 'nowhere.Nothing', 'password' = '{PASSWORD}', 'endpoint' = 'https://ann:{IN_URL}@host/x'",
}
WITH = "CREATE TABLE t (k BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = '{name}', {options});"
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
    def __init__(self, token: str, api_key: str):
        self.token, self.key = token, api_key

    def write(self, batch, table):
        if os.path.exists("refuse_writing"):
            raise PermissionError("refused: " + self.token + self.key)
"""
SCRIPT = f"""
CREATE TABLE source (k BIGINT) WITH ('connector' = 'python', 'class' = 'own.Guarded', 'password' = '${{PLANTED}}',
    'endpoint' = 'https://ann:{IN_URL}@host/${{file:key}}', 'source.monitor-interval' = '10 ms');
CREATE TABLE sink (k BIGINT, n BIGINT) WITH ('connector' = 'python', 'class' = 'own.Lines', 'token' = '{TOKEN}',
    'api-key' = '{PASSWORD}');
CREATE TABLE counts (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
SET 'spark.hadoop.fs.s3a.secret.key' = '{PASSWORD}';
"""
JOB = "INSERT INTO counts SELECT k, count(*) AS n FROM source GROUP BY k;"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    secrets._secret_values.clear()
    secrets._of_files.clear()


@pytest.mark.parametrize("name", TABLES)
def test_options_of_every_connector(name: str, tmp_path: Path) -> None:
    """Whether the connector knows the option or refuses it, and whatever it cannot reach: what is said has no secret."""
    declared = WITH.format(name=name, options=TABLES[name])
    said: list[str] = []
    with Session(str(tmp_path), notice=said.append) as session:
        for text in (declared, "SHOW CREATE TABLE t", "DESCRIBE t", "EXPLAIN SELECT * FROM t", f"{declared} nonsense"):
            try:
                found = session.sql(text)
                said.append(str(found))
                said.extend(map(str, found.fetchall() if found is not None and hasattr(found, "fetchall") else ()))
            except SqlStreamError as error:
                said += [error.render(), str(error), repr(error)]
    assert len(said) > 3
    assert [text for text in said for secret in SECRETS if secret in text] == []
    assert leaks(tmp_path, *SECRETS) == []


def test_every_connector_is_tried() -> None:
    assert set(built_in()) <= set(TABLES)


def started(session: Session, script: str, **more: Any) -> Job:
    compiled = session.compile(SourceText("script", script))
    [planned] = [one for one in compiled if isinstance(one, PlannedJob)]
    return session._jobs.start(planned, {}, engine=LocalEngine(), **more)


def lived(folder: Path) -> list[str]:
    """Let jobs run, fail, and go on with another query; return all that was said."""
    said: list[str] = []
    with Session(str(folder), notice=said.append) as session:
        job = started(session, SCRIPT + JOB)
        wait_until(lambda: job.progress.batch is not None or job.error is not None)
        assert job.savepoint("sp") == "sp"
        job.stop()
        job.wait()
        said.extend(job.warnings())
    for refused in ("refuse_reading", "refuse_writing"):
        (folder / refused).touch()
        with Session(str(folder), notice=said.append) as session:
            job = started(session, SCRIPT + "INSERT INTO sink SELECT k, 1 AS n FROM source;")
            with pytest.raises(JobError, match="refused") as raised:
                job.wait()
            assert "******" in raised.value.render()
            said += [raised.value.render(), *job.warnings(), "".join(traceback.format_exception(raised.value))]
            said += map(str, session.query("FROM sqlstream.jobs").fetchall())
        (folder / refused).unlink()
    with Session(str(folder), notice=said.append) as session:
        job = started(session, SCRIPT + JOB.replace("count(*)", "count(*) + 1"), upgrade=Upgrade())
        job.stop()
        job.wait()
    return said


@pytest.mark.slow
def test_what_jobs_leave_and_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run, break, take a savepoint, upgrade, show and explain: then search everything."""
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "own.py").write_text(OWN)
    (tmp_path / "key").write_text(f"{FILED}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANTED", PASSWORD)
    said = lived(tmp_path)
    assert len(said) > 4
    assert [text for text in said for secret in SECRETS if secret in text] == []
    environment = {"PLANTED": PASSWORD}
    (tmp_path / "job.sql").write_text(SCRIPT + JOB)
    nothing = SCRIPT + "INSERT INTO nothing SELECT 1"
    for code, *words in (
        (0, "explain", "job.sql", "--verbose"),
        (0, "explain", "job.sql", "--against", "counts"),
        (0, "query", "--format=json", "FROM sqlstream.jobs"),
        (0, "query", "FROM sqlstream.restarts"),
        (0, "jobs"),
        (0, "check"),
        (0, "savepoints"),
        (0, "run", "-e", SCRIPT + "SHOW CREATE TABLE sink; SHOW CREATE TABLE source"),
        (0, "explain", "job.sql", "--stage=logical"),
        (2, "run", "--log-format=json", "-e", nothing),
        (0, "config", "--all"),
    ):
        done = run_command(tmp_path, *map(str, words), environment=environment)
        assert done.returncode == code, done.stderr
        assert [s for s in SECRETS if s in done.stdout + done.stderr] == [], words
    assert len([*tmp_path.rglob("job.json")]) == 4, "two jobs, a savepoint, and the one of the upgrade"
    # Nothing but what was written here has one.
    assert {Path(path).name for path in leaks(tmp_path, *SECRETS)} == {"job.sql", "key"}


def test_a_file_of_a_secret_that_is_missing() -> None:
    with pytest.raises(SqlStreamError, match='file "/nowhere/x" of a secret cannot be read') as raised:
        Compiler().scripts([SourceText("s", "CREATE TABLE t (k INT) WITH ('password' = '${file:/nowhere/x}')")])
    assert raised.value.span is not None
    assert raised.value.span.source.position(raised.value.span.start) == (1, 44)
