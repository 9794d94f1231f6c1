"""`sqlstream.toml`: profiles, the environment, what goes over what, and errors that name the line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sqlstream import Session, secrets
from sqlstream.cli.main import cli
from sqlstream.configuration import ARGUMENT, load
from sqlstream.errors import SqlStreamError
from tests.command_line import run_command

WHOLE = """\
warehouse = "state"
udfs = "functions"

[options]
parallelism.default = 2
"table.local-time-zone" = "Europe/Berlin"
sqlstream.unbounded-state = "allow"

[spark]
executor.memory = "2g"
"spark.hadoop.fs.s3a.secret.key" = "${S3_KEY}"

[server]
port = 8000
tokens = "secrets/tokens.toml"
paths = ["in", "/data"]

[profiles.dev.options]
parallelism.default = 1

[profiles.prod]
warehouse = "s3://bucket/warehouse"
options.parallelism.default = 8
server.host = "0.0.0.0"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(secrets, "_secret_values", set[str]())
    monkeypatch.setattr(secrets, "_of_files", set[str]())
    (tmp_path / "sqlstream.toml").write_text(WHOLE)
    return tmp_path


def loaded(folder: Path, **environment: str) -> dict[str, Any]:
    found = load(str(folder), {"S3_KEY": "planted-key", **environment})
    return {name: one.value for name, one in found.settings.items()}


def origins(folder: Path, **environment: str) -> dict[str, str]:
    found = load(str(folder), {"S3_KEY": "planted-key", **environment})
    return {name: one.origin for name, one in found.settings.items()}


def test_what_a_file_says(folder: Path) -> None:
    found = load(str(folder), {"S3_KEY": "planted-key"})
    assert found.folder("warehouse") == f"{folder}/state"
    assert found.folder("udfs") == f"{folder}/functions"
    assert found.folder("catalog") == f"{folder}/catalog"
    assert found.options == {
        "parallelism.default": "2",
        "table.local-time-zone": "Europe/Berlin",
        "sqlstream.unbounded-state": "allow",
        "spark.executor.memory": "2g",
        "spark.hadoop.fs.s3a.secret.key": "planted-key",
    }
    assert found.server == {
        "port": 8000,
        "tokens": f"{folder}/secrets/tokens.toml",
        "paths": [f"{folder}/in", "/data"],
    }


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    found = load(str(tmp_path), {})
    assert found.folder("warehouse") == f"{tmp_path}/warehouse"
    assert (found.options, found.server) == ({}, {})


def test_what_goes_over_what(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default, the file, the profile, the environment, arguments of Session, SET: each goes over those before it."""
    name = "options.parallelism.default"
    seen = [load(str(folder), {"SQLSTREAM_CONFIG": "/dev/null"}).settings[name]]
    for environment in (
        {},
        {"SQLSTREAM_PROFILE": "prod"},
        {"SQLSTREAM_PROFILE": "prod", "SQLSTREAM_OPTIONS_PARALLELISM_DEFAULT": "16"},
    ):
        seen.append(load(str(folder), {"S3_KEY": "k", **environment}).settings[name])
    assert [str(one.value) for one in seen] == ["", "2", "8", "16"]
    assert [one.origin for one in seen] == [
        "default",
        "sqlstream.toml:5",
        "sqlstream.toml:23 [profiles.prod]",
        "environment: SQLSTREAM_OPTIONS_PARALLELISM_DEFAULT",
    ]
    for variable, value in (("S3_KEY", "k"), ("SQLSTREAM_OPTIONS_PARALLELISM_DEFAULT", "16")):
        monkeypatch.setenv(variable, value)
    with Session(str(folder)) as session:
        assert session.options.parallelism == 16
    with Session(str(folder), conf={"parallelism.default": "32"}) as session:
        assert session.options.parallelism == 32
        session.sql("SET 'parallelism.default' = '64'")
        assert session.options.parallelism == 64
        session.sql("RESET 'parallelism.default'")
        assert session.options.parallelism == 32
    with Session(str(folder), str(folder / "other")) as session:
        assert session.warehouse.root == f"{folder}/other"


def test_a_profile_says_what_it_changes(folder: Path) -> None:
    prod = loaded(folder, SQLSTREAM_PROFILE="prod")
    assert prod["warehouse"] == "s3://bucket/warehouse"
    assert (prod["server.host"], prod["server.port"]) == ("0.0.0.0", 8000)
    assert origins(folder, SQLSTREAM_PROFILE="prod")["server.port"] == "sqlstream.toml:14"
    assert loaded(folder, SQLSTREAM_PROFILE="dev")["warehouse"] == f"{folder}/state"


def test_the_environment_has_numbers_and_lists(folder: Path) -> None:
    found = loaded(folder, SQLSTREAM_SERVER_PORT="9", SQLSTREAM_SERVER_INSECURE="true", SQLSTREAM_SERVER_NAMES="a,b")
    assert (found["server.port"], found["server.insecure"], found["server.names"]) == (9, True, ["a", "b"])


def test_secrets_come_from_files(folder: Path) -> None:
    (folder / "key").write_text("of-a-file\n")
    text = WHOLE.replace("${S3_KEY}", "x").replace("2g", "${file:" + str(folder / "key") + "}")
    (folder / "sqlstream.toml").write_text(text)
    assert load(str(folder), {}).options["spark.executor.memory"] == "of-a-file"
    assert secrets.masked("it is of-a-file") == "it is ******"


WRONG = [
    ("warehose = 'x'", "warehose", 1, '"warehose" is no setting'),
    ("[options]\n\n  parallelism.defualt = 2", "parallelism.defualt", 3, "does not exist"),
    ("[server]\nport = 'x'", "port", 2, "needs a whole number"),
    ("[server]\nport = true", "port", 2, "needs a whole number"),
    ("[options]\nparallelism.default = 0", "parallelism.default", 2, "needs a whole number from 1 on"),
    ("[options]\nparallelism.default = [1]", "parallelism.default", 2, "needs one value"),
    ("[profiles.dev.options]\nnope = 1", "nope", 2, "does not exist"),
    ("[profiles]\ndev = 1", "profiles", 1, "a profile is a table"),
    ("[spark]\na = 1\nb = '${NOT_SET}'", "b", 3, 'environment variable "NOT_SET" is not set'),
    ("a = 1\nb = = 2", "=", 2, "this is no TOML"),
    ("server = { nope = 1 }", "server", 1, '"server.nope" is no setting'),
    ("warehouse = 3", "warehouse", 1, "needs the path of a folder"),
]


@pytest.mark.parametrize(("text", "marked", "line", "message"), WRONG)
def test_what_is_wrong_is_told_with_its_line(folder: Path, text: str, marked: str, line: int, message: str) -> None:
    (folder / "sqlstream.toml").write_text(text)
    with pytest.raises(SqlStreamError, match=message) as raised:
        load(str(folder), {})
    assert raised.value.span is not None
    assert f"sqlstream.toml:{line}:" in str(raised.value.span)
    assert raised.value.span.text == marked


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SQLSTREAM_PROFILE": "prd"}, 'profile "prd" does not exist[\\s\\S]*did you mean "prod"'),
        ({"SQLSTREAM_CONFIG": "/nowhere/x.toml"}, "cannot be read"),
        ({"SQLSTREAM_OPTIONS_PARALELISM_DEFAULT": "3"}, "SQLSTREAM_OPTIONS_PARALLELISM_DEFAULT"),
        ({"SQLSTREAM_OPTIONS_PARALLELISM_DEFAULT": "0"}, "in environment: SQLSTREAM_OPTIONS_PARALLELISM_DEFAULT"),
        ({"SQLSTREAM_WAREHOSE": "x"}, 'no setting[\\s\\S]*did you mean "SQLSTREAM_WAREHOUSE"'),
        ({"SQLSTREAM_TOKN": "x"}, 'did you mean "SQLSTREAM_TOKEN"'),
        ({"SQLSTREAM_DB_PASSWORD": "x"}, "call others something else"),
        ({"SQLSTREAM_SERVER_PORT": "x"}, "SQLSTREAM_SERVER_PORT in the environment: needs a whole number"),
    ],
)
def test_what_is_wrong_in_the_environment(folder: Path, environment: dict[str, str], message: str) -> None:
    with pytest.raises(SqlStreamError, match=message):
        load(str(folder), {"S3_KEY": "k", **environment})


def test_variables_that_are_no_settings(folder: Path) -> None:
    others = ("TOKEN", "LOG_FORMAT", "CACHE", "CACHE_SIZE", "CDS")
    # Kubernetes makes these of Services.
    service = {"SQLSTREAM_SERVICE_HOST": "10.0.0.1", "SQLSTREAM_PORT_8642_TCP_ADDR": "10.0.0.1"}
    service |= {"SQLSTREAM_SERVER_PORT": "tcp://10.0.0.1:8642"}
    assert loaded(folder, **{f"SQLSTREAM_{name}": "1 GB" for name in others}, **service)["server.port"] == 8000


def test_all_variables_that_are_missing_are_told(folder: Path) -> None:
    (folder / "sqlstream.toml").write_text(
        'warehouse = "${A}"\n[profiles.prod]\nserver.host = "${B}"\nspark.x = "${A}${C}${D:-d}"\n'
    )
    with pytest.raises(SqlStreamError, match='are not set: "A", "B", "C"') as raised:
        load(str(folder), {"SQLSTREAM_PROFILE": "prod"})
    assert "sqlstream.toml:1:" in str(raised.value.span)
    with pytest.raises(SqlStreamError, match='the environment variable "B" is not set'):
        load(str(folder), {"SQLSTREAM_PROFILE": "prod", "A": "a", "C": "c"})


def test_a_line_with_a_secret_is_shown_without_it(folder: Path) -> None:
    for text in ('[spark]\nx.password = "planted-1"\nx.password = "planted-2"', '[nope]\nx.password = "planted-1"'):
        (folder / "sqlstream.toml").write_text(text)
        with pytest.raises(SqlStreamError) as raised:
            load(str(folder), {})
        assert "planted" not in raised.value.render()


def test_commands_have_the_configuration(folder: Path) -> None:
    environment = {"S3_KEY": "planted-key"}
    (folder / "catalog").mkdir()
    (folder / "below").mkdir()
    done = run_command(folder / "below", "config", "--profile=prod", "--format=json", environment=environment)
    rows = {row["setting"]: row for row in json.loads(done.stdout)}
    assert rows["warehouse"] == {
        "setting": "warehouse",
        "value": "s3://bucket/warehouse",
        "origin": "sqlstream.toml:22 [profiles.prod]",
    }
    assert rows["spark.hadoop.fs.s3a.secret.key"]["value"] == "******"
    assert rows["server.tokens"]["value"] == f"{folder}/secrets/tokens.toml"
    assert rows["project"]["value"] == str(folder)
    assert "options.sqlstream.memory" not in rows
    done = run_command(folder, "config", "--warehouse=w", "--all", environment=environment)
    assert "planted" not in done.stdout
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert lines["warehouse"] == [f"{folder}/w", ARGUMENT]
    assert lines["options.sqlstream.memory"] == ["1", "GB", "default"]

    noon = "CAST(TIMESTAMP '2026-01-01 12:00:00' AS TIMESTAMP_LTZ(3))"
    script = f"CREATE TABLE a (t TIMESTAMP_LTZ(3)); INSERT INTO a VALUES ({noon})"
    assert run_command(folder, "run", "-e", script, environment=environment).returncode == 0
    assert (folder / "state" / "jobs").is_dir()
    done = run_command(folder, "query", "--format=csv", "SELECT epoch(t)::BIGINT AS t FROM a", environment=environment)
    assert done.stdout.split() == ["t", "1767265200"], "noon in Berlin"
    (folder / "sqlstream.toml").rename(folder / "other.toml")
    for words in (["jobs"], ["check"], ["savepoints"], ["stop", "--all"]):
        done = run_command(folder, *words, "--config=other.toml", "--profile=nope", environment=environment)
        assert (done.returncode, 'profile "nope" does not exist' in done.stderr) == (2, True), words


def test_the_server_has_the_configuration(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it listens with; that it does is tested where servers are."""
    seen: list[Any] = []
    monkeypatch.setattr("sqlstream.server.serve.serve", lambda settings, notice: seen.append(settings))
    monkeypatch.setenv("S3_KEY", "k")
    (folder / "secrets").mkdir()
    (folder / "secrets" / "tokens.toml").write_text("read abcdefghijklmnopqrstuvwxyz\n")
    (folder / "secrets" / "tokens.toml").chmod(0o600)
    for words in ([], ["--port=9", "--allow-path=/x"], ["--profile=prod"]):
        cli.main(["serve", f"--project={folder}", *words], standalone_mode=False)
    assert [(one.host, one.port, one.paths) for one in seen] == [
        ("127.0.0.1", 8000, (f"{folder}/in", "/data")),
        ("127.0.0.1", 9, ("/x",)),
        ("0.0.0.0", 8000, (f"{folder}/in", "/data")),
    ]
    assert all(one.tokens is not None for one in seen)
    assert "SQLSTREAM_PROFILE" not in os.environ
