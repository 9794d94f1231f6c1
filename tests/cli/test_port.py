"""`sqlstream port`: what of a Flink script runs, as text and as JSON, and a script that runs."""

import json
from pathlib import Path

import pytest

from tests.command_line import run_command

SCRIPT = """\
-- A shop; its orders are in a database of documents.
ALTER SYSTEM SET x;
CREATE TABLE orders (id INT, amount INT) WITH ('connector' = 'datagen');
CREATE TABLE found (id INT) WITH (
  'connector' = 'mongodb', 'uri' = 'mongodb://db:27017'
);
CREATE TABLE broken (id INT, CHECK (id > 0)) WITH ('connector' = 'print');
INSERT INTO found SELECT id FROM orders WHERE amount > 5;
INSERT INTO broken SELECT id FROM orders;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sql"
    path.write_text(SCRIPT)
    return path


def test_text(script: Path) -> None:
    done = run_command(script.parent, "port", str(script))
    assert done.returncode == 1
    assert "line 4: CREATE TABLE found" in done.stdout
    assert "runs once its connector is replaced" in done.stdout
    assert "unsupported: CHECK" in done.stdout
    assert "waits for line 7" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last == "2 of 6 statements run as they are, 1 once their connectors are replaced, 3 do not"


def test_json(script: Path) -> None:
    done = json.loads(run_command(script.parent, "port", "--format", "json", str(script)).stdout)
    outcomes = [one["outcome"] for one in done["statements"]]
    assert outcomes == ["refused", "runs", "connector", "refused", "runs", "waits"]
    assert done["counts"] == {"runs": 2, "connector": 1, "refused": 2, "waits": 1}
    assert done["statements"][3]["problem"]["hint"] == "Filter the rows in the query that writes the table."


def test_the_script_that_is_written_runs(script: Path) -> None:
    target = script.with_name("ported.sql")
    run_command(script.parent, "port", str(script), "--write", str(target))
    text = target.read_text()
    assert "\n-- port: Filter the rows in the query that writes the table.\n-- CREATE TABLE broken" in text
    assert "mongodb" not in text.replace('connector "mongodb"', "")
    assert run_command(script.parent, "port", str(target)).returncode == 0
    assert not (script.parent / "warehouse").exists()


def test_the_script_itself_is_not_written(script: Path) -> None:
    done = run_command(script.parent, "port", str(script), "--write", str(script))
    assert done.returncode == 2
    assert script.read_text() == SCRIPT


def test_secrets_are_hidden(script: Path) -> None:
    script.write_text("CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 'hunter2hunter2')")
    for form in ("text", "json"):
        done = run_command(script.parent, "port", "--format", form, str(script))
        assert "CREATE TABLE t" in done.stdout
        assert "hunter2" not in done.stdout + done.stderr
