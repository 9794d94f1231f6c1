"""Jobs in the process of the command: without Java, and without PySpark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_commands import environment
from tests.command_line import run_command

pytestmark = pytest.mark.slow

SCRIPT = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE clicks (page STRING, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'clicks', 'format' = 'json');
CREATE TABLE windows (page STRING, ends TIMESTAMP(3), total BIGINT);
CREATE TABLE pages (page STRING, total BIGINT, PRIMARY KEY (page) NOT ENFORCED);
SET 'pipeline.name' = 'clicks';
EXECUTE STATEMENT SET BEGIN
INSERT INTO windows SELECT page, window_end, SUM(n) FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY page, window_start, window_end;
INSERT INTO pages SELECT page, SUM(n) FROM clicks GROUP BY page;
END;
"""
# PySpark is not installed, as it were.
COMMAND = "import sys; sys.modules['pyspark'] = None; from sqlstream.cli.main import main; main()"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "clicks.sql").write_text(SCRIPT)
    (tmp_path / "clicks").mkdir()
    for minute in range(3):
        rows = [{"page": page, "n": minute + 1, "ts": f"2026-01-01 10:0{minute}:30"} for page in ("a", "b", "c")]
        (tmp_path / "clicks" / f"{minute}.json").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(
        command, cwd=project, env=environment("/nowhere"), capture_output=True, text=True, check=False
    )


def test_a_job_needs_neither_java_nor_pyspark(project: Path) -> None:
    ran = run(project, "run", "--engine", "local", "clicks.sql")
    assert ran.returncode == 0, ran.stderr
    assert "Spark" not in ran.stderr
    pages = run(project, "query", "SELECT * FROM pages ORDER BY page", "--format", "json").stdout
    assert json.loads(pages) == [{"page": page, "total": 6} for page in "abc"]
    total = run(project, "query", "SELECT sum(total)::INT AS n FROM windows", "--format", "json").stdout
    assert json.loads(total) == [{"n": 18}]
    assert run(project, "verify", "clicks").returncode == 0


def test_without_java_spark_says_what_runs_without_it(project: Path) -> None:
    failed = run_command(project, "run", "clicks.sql", environment=environment("/nowhere"))
    assert failed.returncode == 2
    assert "Without Java jobs run with --engine local, in this process." in failed.stderr


def test_settings_of_spark_without_spark_are_named(project: Path) -> None:
    ran = run(project, "run", "--engine", "local", "--set", "spark.executor.memory=1g", "clicks.sql")
    assert ran.returncode == 0, ran.stderr
    assert 'job "clicks" runs without Spark: spark.executor.memory has no effect' in ran.stderr


def test_the_engine_is_an_option_of_the_script(project: Path) -> None:
    (project / "clicks.sql").write_text(f"SET 'execution.engine' = 'local';\n{SCRIPT}")
    assert run(project, "run", "clicks.sql").returncode == 0
    wrong = run(project, "run", "--set", "execution.engine=flink", "clicks.sql")
    assert wrong.returncode == 2
    assert "needs one of spark, local" in wrong.stderr
