"""The jobs of examples/process: what they write is what is expected, however the data is cut into batches."""

from __future__ import annotations

import csv
import io
import re
import runpy
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sqlstream.functions import load
from sqlstream.queries.query import open_query
from sqlstream.testing import Stream
from sqlstream.warehouse.paths import Warehouse

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "process"
JOBS = sorted(path.stem for path in EXAMPLE.glob("*.sql"))
MAKE = runpy.run_path(str(EXAMPLE / "make_data.py"))
TABLES: dict[str, pa.Table] = MAKE["tables"]()

_BEFORE = "lag({0}) OVER (PARTITION BY sensor ORDER BY ts)"
_BEGUN = "SELECT ride_id, taxi, ts AS begun FROM rides WHERE event = 'begin'"
# DuckDB's answers over all rows at once, where SQL can say it.
ANSWERS = {
    "alerts": f"SELECT sensor, temperature, temperature - {_BEFORE.format('temperature')} AS difference, ts FROM readings "
    f"QUALIFY abs(difference) > 5 AND ts < {_BEFORE.format('ts')} + INTERVAL 10 MINUTE",
    "left_bounds": "WITH named AS (SELECT * FROM readings, (VALUES ('low'), ('high')) b(name)), "
    "bounded AS (SELECT n.*, b.temperature AS bound FROM named n ASOF LEFT JOIN bounds b ON n.name = b.name AND n.ts >= b.ts), "
    "pairs AS (SELECT sensor, temperature, ts, max(bound) FILTER (name = 'low') AS low, "
    "max(bound) FILTER (name = 'high') AS high FROM bounded GROUP BY ALL), judged AS (SELECT *, "
    "CASE WHEN temperature < low THEN 'low' WHEN temperature > high THEN 'high' ELSE 'normal' END AS state FROM pairs) "
    "SELECT sensor, temperature, state, CASE state WHEN 'low' THEN low WHEN 'high' THEN high END AS bound, ts FROM judged "
    "QUALIFY state <> coalesce(lag(state) OVER (PARTITION BY sensor ORDER BY ts), 'normal')",
    "paid": f"SELECT ride_id, taxi, amount FROM ({_BEGUN}) JOIN fares USING (ride_id)",
    "unmatched": "SELECT ride_id, taxi, amount, if(amount IS NULL, 'ride', 'fare') || ' without ' || "
    f"if(amount IS NULL, 'fare', 'ride') FROM ({_BEGUN}) FULL JOIN fares USING (ride_id) WHERE taxi IS NULL OR amount IS NULL",
    "long_rides": f"SELECT b.* FROM ({_BEGUN}) b LEFT JOIN (FROM rides WHERE event = 'end') e USING (ride_id) "
    "WHERE coalesce(e.ts >= begun + INTERVAL 2 HOUR, true)",
    "recent_means": "SELECT sensor, readings, mean, ts FROM (SELECT *, count(*) OVER recent AS readings, "
    "round(avg(temperature) OVER recent, 2) AS mean, row_number() OVER (PARTITION BY sensor ORDER BY ts) AS n FROM readings "
    "WINDOW recent AS (PARTITION BY sensor ORDER BY ts RANGE BETWEEN INTERVAL 1799999999 MICROSECOND PRECEDING AND CURRENT ROW)) "
    "WHERE n % 10 = 0",
    "top_two": "SELECT DISTINCT hour, list_aggregate(best, 'max'), best[2] FROM (SELECT date_trunc('hour', ts) AS hour, "
    "list_reverse_sort(list(amount) OVER (PARTITION BY date_trunc('hour', ts) ORDER BY ts, ride_id ROWS UNBOUNDED PRECEDING)) "
    "AS best FROM fares)",
}


def parts(table: pa.Table, number: int) -> list[pa.Table]:
    """Return a table in so many parts of about the same number of rows."""
    cuts = [table.num_rows * i // number for i in range(number + 1)]
    return [table.slice(a, b - a) for a, b in pairwise(cuts)]


def written(stream: Stream) -> dict[str, str]:
    """Return what all tables of a stream hold, as CSV."""
    sinks = [sink.table.name for run in stream.runs.values() for sink in run.job.plan.sinks]
    return {name: text(stream.arrow(f"SELECT * FROM {name}")) for name in sinks}


def text(table: pa.Table) -> str:
    with duckdb.connect() as con:
        con.register("given", table)
        found = con.sql("SELECT COLUMNS(*)::VARCHAR FROM given ORDER BY ALL")
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([found.columns, *found.fetchall()])
    return out.getvalue()


def expected(name: str) -> str:
    return (EXAMPLE / "expected" / f"{name}.csv").read_text()


def many(params: list[str]) -> list[object]:
    """Return parameters for tests of jobs over thousands of rows: `make quick` has the first."""
    return [params[0], *(pytest.param(name, marks=pytest.mark.slow) for name in params[1:])]


@pytest.fixture(
    params=[
        "an hour at a time",
        pytest.param("in eight parts, with restarts", marks=pytest.mark.slow),
        pytest.param("all at once", marks=pytest.mark.thorough),
    ]
)
def batches(request: pytest.FixtureRequest) -> dict[str, list[pa.Table]]:
    if request.param == "an hour at a time":
        return {name: MAKE["hours"](table) for name, table in TABLES.items()}
    return {name: parts(table, 1 if request.param == "all at once" else 8) for name, table in TABLES.items()}


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("job", many(JOBS))
def test_a_job_writes_what_is_expected(
    job: str, batches: dict[str, list[pa.Table]], request: pytest.FixtureRequest
) -> None:
    script = (EXAMPLE / "catalog" / "process.sql").read_text() + (EXAMPLE / f"{job}.sql").read_text()
    with Stream(script, functions=load(str(EXAMPLE / "udfs"))) as stream:
        read = {scan.table.name for run in stream.runs.values() for scan in run.job.plan.scans}
        for number in range(len(next(iter(batches.values())))):
            stream.batches({name: batches[name][number] for name in read})
            if number % 3 == 1:
                stream.restart()
        stream.finish()
        tables = written(stream)
    for name, found in tables.items():
        if request.config.getoption("update"):
            (EXAMPLE / "expected" / f"{name}.csv").write_text(found)
        assert found == expected(name), name


@pytest.mark.parametrize("table", ANSWERS)
def test_expected_is_the_batch_answer(table: str) -> None:
    with duckdb.connect() as con:
        for name, rows in TABLES.items():
            con.register(name, rows)
        found = text(con.sql(ANSWERS[table]).to_arrow_table())
    assert found.splitlines()[1:] == expected(table).splitlines()[1:]


def test_a_session_of_ones_own_is_that_of_sql() -> None:
    assert expected("fixed_sessions") == expected("built_in_sessions")
    assert expected("fixed_sessions") != expected("patient_sessions")


def test_the_readme_lists_every_job_and_function() -> None:
    listed = re.findall(r"^\| `(\w+)\.sql` \| (.+?) \|", (EXAMPLE / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(job for job, _ in listed) == JOBS
    named = {name for _, functions in listed for name in re.findall(r"`(\w+)`", functions)}
    marked = re.findall(r"^@process\nclass (\w+)", "\n".join(p.read_text() for p in EXAMPLE.glob("udfs/*.py")), re.M)
    assert named == set(marked)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough
def test_on_spark(tmp_path: Path) -> None:
    """All jobs of the folder as its README runs them."""
    project = tmp_path / "process"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns(".demo", "warehouse"))
    runpy.run_path(str(project / "make_data.py"))["write"](project / ".demo")
    command = [sys.executable, "-m", "sqlstream", "run", *(f"{job}.sql" for job in JOBS)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in sorted((EXAMPLE / "expected").glob("*.csv")):
        shown = open_query(Warehouse(str(project / "warehouse")), f"SELECT * FROM {path.stem}").to_arrow_table()
        assert text(shown) == path.read_text(), path.stem
