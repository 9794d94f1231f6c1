"""Passwords, tokens and keys in options: used, and never shown nor stored."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlstream import secrets
from sqlstream.catalog import Table
from sqlstream.compiler.catalog_answers import create_table
from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import BindError, JobError, ParseError, SourceText, SqlStreamError
from sqlstream.session.explaining import explained
from sqlstream.sql.statements import parse_script
from sqlstream.testing import Stream

PASSWORD, OTHER = "hunter2'7", "tr0ub4dor"
DSN, IN_URL = "host=db;pw=xyzzy-1", "s3same"
SECRETS = (PASSWORD, PASSWORD.replace("'", "''"), OTHER, DSN, IN_URL)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    secrets._secret_values.clear()
    secrets._of_files.clear()


def guarded(tmp_path: Path, password: str = PASSWORD, user: str = f"ann:{IN_URL}") -> str:
    (tmp_path / "n").write_text("3")
    return f"""CREATE TABLE numbers (k BIGINT) WITH ('connector' = 'python', 'class' = 'tests.connectors.own_connectors.Guarded',
        'file' = '{tmp_path / "n"}', 'password' = '{password.replace("'", "''")}', 'dsn' = '{DSN}',
        'endpoint' = 'https://{user}@host/x');"""


def planned(script: str) -> PlannedJob:
    [job] = Compiler().jobs([SourceText("test", script)])
    return job


def test_what_is_secret() -> None:
    for name in (
        "password",
        "db.PassWord",
        "api-key",
        "api_key",
        "aws.secret-access-key",
        "token",
        "auth-params",
        "dsn",
        "ssl.pwd",
    ):
        assert secrets.is_secret(name), name
    for name in (
        "key",
        "path",
        "url",
        "user",
        "table",
        "changelog.op-column",
        "fields.token.length",
        "kdsn",
        "lookup.cache",
    ):
        assert not secrets.is_secret(name), name


def test_a_plan_has_no_secrets(tmp_path: Path) -> None:
    query = "CREATE TABLE out (k BIGINT); INSERT INTO out SELECT k FROM numbers"
    jobs = [planned(guarded(tmp_path, *given) + query) for given in ((PASSWORD,), (OTHER, "ann:new"), ("x", "ann"))]
    assert len({job.fingerprint for job in jobs}) == 1
    for stage in ("ast", "logical", "optimized", "physical"):
        text = explained(jobs[0], stage)
        assert not any(secret in text for secret in SECRETS)
    assert "https://ann@host/x" in jobs[0].plan_text
    assert planned(guarded(tmp_path, user="bob") + query).fingerprint != jobs[0].fingerprint


def test_show_create_table_hides_them(tmp_path: Path) -> None:
    compiler = Compiler()
    compiler.scripts([SourceText("test", guarded(tmp_path))])
    table = compiler.catalog.relation("numbers")
    assert isinstance(table, Table)
    text = create_table(table)
    assert "'password' = '******'" in text
    assert "'dsn' = '******'" in text
    assert "'endpoint' = 'https://ann:******@host/x'" in text
    assert table.options["password"] == PASSWORD
    assert PASSWORD not in repr(table)


WRONG = [
    (
        "WITH ('connector' = 'postgresql', 'password' = 'hunter2', 'nope' = '1')",
        "WITH ('connector' = 'postgresql', 'password' = '******', ",
    ),
    (
        "WITH ('connector' = 'postgresql', 'url' = 'postgresql://a:hunter2@h/d', 'nope' = '1')",
        "'postgresql://a:******@h/d'",
    ),
    ("WITH ('connector' = 'postgresql', password = 'hunter2')", "password = '******'"),
    ("WITH ('connector' = 'postgresql', 'password' 'hunter2')", "'password' '******'"),
    ("WITH ('connector' = 'postgresql', 'password' = 'hunter2)", "'password' = '******"),
    ("WITH ('password' = 'hunter2') SELECT", "'password' = '******'"),
]


@pytest.mark.parametrize(("options", "shown"), WRONG)
def test_error_snippets_hide_them(options: str, shown: str) -> None:
    with pytest.raises(SqlStreamError) as raised:
        Compiler().scripts([SourceText("test", f"CREATE TABLE t (a INT) {options}")])
    text = raised.value.render()
    assert shown in text
    assert "hunter2" not in text


def test_carets_stay_below_what_they_mark() -> None:
    text = "CREATE TABLE t (a INT) WITH ('connector' = 'print', 'password' = 'a long secret', 'nope' = '1')"
    with pytest.raises(ParseError) as raised:
        parse_script(SourceText("test", f"{text} nonsense"))
    line, carets = raised.value.render().splitlines()[3:5]
    assert line.endswith("'password' = '******', 'nope' = '1') nonsense")
    assert carets.index("^") == line.index("nonsense")


def test_variables_stay_in_the_text_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "from-outside")
    job = planned("CREATE TABLE t (a STRING) WITH ('connector' = 'datagen'); SELECT a || '${TOKEN}' FROM t")
    assert job.sql == "SELECT a || '${TOKEN}' FROM t"


def test_they_reach_neither_the_warehouse_nor_an_error(tmp_path: Path) -> None:
    query = "CREATE TABLE out (k BIGINT); INSERT INTO out SELECT k FROM numbers"
    (tmp_path / "n.refused").touch()
    with Stream(guarded(tmp_path) + query) as stream:
        with pytest.raises(JobError, match=r'login as "\*+" at \*+ or https://ann:\*+@host/x refused') as raised:
            stream.finish()
        assert not any(secret in raised.value.render() for secret in SECRETS)
        assert raised.value.__cause__ is None
        assert leaks(Path(stream.warehouse), *SECRETS) == []


def test_an_error_from_outside_names_options_only(tmp_path: Path) -> None:
    compiler = Compiler(table_options={"numbers": {"password": OTHER, "source.monitor-interval": "soon"}})
    with pytest.raises(BindError) as raised:
        compiler.scripts([SourceText("test", guarded(tmp_path))])
    assert OTHER not in raised.value.render()


def leaks(folder: Path, *values: str) -> list[str]:
    """Return the files of a folder that hold one of some values, also in errors as they are packed for the JVM."""
    found = []
    for path, _, files in os.walk(folder):
        for name in files:
            content = (Path(path) / name).read_bytes()
            packed = re.findall(rb"sqlstream-error:([A-Za-z0-9+/=]+):", content)
            content += b"".join(map(base64.b64decode, packed))
            found += [f"{path}/{name}" for value in values if value.encode() in content]
    return found


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    error = ValueError("it cannot be read")
    error.__cause__ = error
    assert secrets.harmless(error) is error
