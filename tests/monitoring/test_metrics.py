"""Metrics of a job, as Prometheus scrapes them: beside what the system tables say."""

from __future__ import annotations

import io
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sqlstream import Session
from sqlstream.cli.json_log import JsonLog, reporting
from sqlstream.cli.run import served
from sqlstream.cli.upgrades import ask
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, UsageError
from sqlstream.local.engine import LocalEngine
from sqlstream.monitoring.collector import JobCollector
from sqlstream.monitoring.endpoint import exposition, parse_address, registry
from sqlstream.monitoring.families import EXPORTED, FAMILIES
from sqlstream.queries.system import system_columns
from sqlstream.storage.facts import FACTS, OPERATOR_FACTS, SINK_FACTS, SOURCE_FACTS, column_types, counts
from sqlstream.storage.metrics import OperatorMetrics, SinkMetrics, SourceMetrics
from sqlstream.storage.snapshot import JobHistory
from sqlstream.testing import Stream
from sqlstream.units import SECOND, ProcessingTime, now
from sqlstream.warehouse.status import Backlog, effective_status, read_status, write_status
from tests.command_line import run_command
from tests.forked import run_python

DASHBOARD = Path(__file__).parents[2] / "examples" / "operations" / "grafana-dashboard.json"
SCRIPT = """
CREATE TABLE clicks (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'json.ignore-parse-errors' = 'true',
    'source.max-files-per-batch' = '1');
CREATE TABLE counts (k BIGINT, n BIGINT);
INSERT INTO Counts SELECT k, count(*) FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY k, window_start, window_end;
"""
# The second file has a row that is late, one that has no time, and one that cannot be read.
FILES: tuple[list[tuple[int, str | None]], ...] = (
    [(1, "00:00:01"), (2, "00:00:02"), (1, "00:00:25")],
    [(1, "00:00:03"), (2, None), (2, "00:00:41")],
)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    """Return the samples of the metrics of sqlstream, each by its name and its labels but the job's."""
    return {
        (
            s.name.removeprefix("sqlstream_"),
            tuple(sorted((k, v) for k, v in s.labels.items() if k != "job_name")),
        ): s.value
        for family in text_string_to_metric_families(text)
        if family.name.startswith("sqlstream_")
        for s in family.samples
    }


def scraped(session: Session, planned: list[Any]) -> Samples:
    """Scrape over HTTP."""
    told: list[str] = []
    session.notice = told.append
    with served(session, planned, "0"):
        [url] = re.findall(r"http://\S+", told[-1])
        with urlopen(str(url)) as answer:
            return parsed(answer.read().decode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(FILES):
        lines = [json.dumps({"k": k, "ts": ts and f"2026-01-01 {ts}"}) for k, ts in rows]
        lines += ["{"] if number else []
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.slow
def test_a_scrape_says_what_the_system_tables_say(folder: Path) -> None:
    with Session(str(folder), notice=lambda text: None) as session:
        compiled = session.compile(SourceText("script", SCRIPT))
        [planned] = [one for one in compiled if isinstance(one, PlannedJob)]
        began = now()
        job = session._jobs.start(planned, {}, engine=LocalEngine())
        job.wait()
        found = scraped(session, compiled)
        [jobs] = session.query("SELECT version, rows_in, rows_out, restarts FROM sqlstream.jobs").fetchall()
        [source] = session.query("SELECT null_rows, malformed_rows, lost_rows FROM sqlstream.watermarks").fetchall()
        counts = ("state_rows", "state_bytes", "segments", "late_rows", "missed_windows", "expired_keys")
        [operator] = session.query(f"SELECT operator, {', '.join(counts)} FROM sqlstream.operators").fetchall()
        [written] = session.query("SELECT count(*) FROM counts").fetchall()
    one = {name: value for (name, labels), value in found.items() if not labels}
    assert (
        one["job_committed_batch"],
        one["job_rows_in_total"],
        one["job_rows_out_total"],
        one["job_restarts_total"],
    ) == jobs
    assert one["job_up"] == 0
    assert found["job_status", (("status", "FINISHED"),)] == 1
    assert sum(v for (name, _), v in found.items() if name == "job_status") == 1
    assert "job_watermark_lag_seconds" not in one, "its input has ended"

    of_source = (("source", "clicks"),)
    names = ("source_null_time_rows_total", "source_malformed_rows_total", "source_lost_rows_total")
    assert tuple(found[name, of_source] for name in names) == source == (1, 1, 0)
    assert found["source_rows_total", of_source] == jobs[1]
    assert found["source_bytes_total", of_source] == sum(f.stat().st_size for f in (folder / "in").iterdir())
    assert found["source_backlog_files", of_source] == 0
    newest = datetime(2026, 1, 1, 0, 0, 41)
    expected = (began / 1e6) - (newest - datetime(1970, 1, 1)).total_seconds()
    assert expected <= found["source_event_latency_seconds", of_source] <= expected + (now() - began) / 1e6 + 0.002

    of_operator = (("operator", operator[0]),)
    state = ("state_rows", "state_bytes", "state_segments", "operator_late_rows_total", "operator_missed_windows_total")
    assert tuple(found[name, of_operator] for name in (*state, "operator_expired_keys_total")) == operator[1:]
    assert operator[4] == 1

    of_table = (("table", "counts"),)
    assert found["sink_rows_total", of_table] == written[0] == jobs[2]
    assert found["sink_bytes_total", of_table] > 0
    for phase in ("plan", "process", "commit"):
        assert found["batch_duration_seconds_count", (("phase", phase),)] == jobs[0] + 1
        assert 0 < found["batch_duration_seconds_sum", (("phase", phase),)] < (now() - began) / 1e6
    assert {f"sqlstream_{name}" for name, _ in found} <= EXPORTED


# Of each kind of part of a job: its system table, the column with its name there, and the label of its metrics.
PARTS = {
    "sources": ("watermarks", "source", "source"),
    "operators": ("operators", "operator", "operator"),
    "sinks": ("sinks", "sink", "table"),
}


@pytest.mark.slow
def test_each_number_is_in_the_log_the_system_tables_the_metrics_the_progress_and_lines_of_json(folder: Path) -> None:
    with Session(str(folder), notice=lambda text: None) as session:
        compiled = session.compile(SourceText("script", SCRIPT))
        [planned] = [one for one in compiled if isinstance(one, PlannedJob)]
        job = session._jobs.start(planned, {}, engine=LocalEngine())
        job.wait()
        samples, progress, stream = scraped(session, compiled), job.progress, io.StringIO()
        JsonLog(stream).update([job])
        [name] = session.warehouse.jobs()
        entry = JobHistory(session.warehouse, name).newest_entry
        rows = {}
        for parts, (table, _, _) in PARTS.items():
            relation = session.query(f"FROM sqlstream.{table}")
            [row] = relation.fetchall()
            rows[parts] = dict(zip(relation.columns, row, strict=True))
    [line] = [line for text in stream.getvalue().splitlines() if (line := json.loads(text))["event"] == "batch"]
    assert entry is not None
    for parts, facts in FACTS.items():
        table, column, label = PARTS[parts]
        assert system_columns(table) == {"job": "VARCHAR", column: "VARCHAR", **column_types(facts)}
        [(part, logged)] = getattr(entry, parts).items()
        [shown] = getattr(progress, parts).values()
        assert rows[parts][column] == part
        for fact in counts(facts):
            number = getattr(logged, fact.name)
            assert rows[parts][fact.name] == getattr(shown, fact.name) == number is not None, fact
            [metric] = FAMILIES[fact.exported].exported
            assert samples[metric.removeprefix("sqlstream_"), ((label, part),)] == number
            if fact.total:
                assert progress.totals[fact.total] == line.get(fact.total, 0) == number
                assert not fact.older_total or line[fact.older_total] == number
        assert all(hasattr(shown, fact.attribute) for fact in facts if fact.attribute)
    assert {name for name, number in progress.totals.items() if number} >= {"null_rows", "malformed_rows", "late_rows"}
    for name in ("rows_in", "rows_out", "null_rows", "malformed_rows", "lost_rows", "late_rows"):
        assert getattr(progress, name) == progress.totals[name]


def test_what_the_log_says_of_a_part_is_a_fact() -> None:
    # Times of the driver's, by which it knows what is idle and what to read next; the latency is a metric of its own.
    driver = {"idle_timeout", "last_row_at", "said_at", "sequence", "last", "partitions", "latency"}
    assert {*SourceMetrics.__struct_fields__} - {fact.name for fact in SOURCE_FACTS} == driver
    # An operator's next event timer is its `next_end`.
    assert {*OperatorMetrics.__struct_fields__} - {fact.name for fact in OPERATOR_FACTS} == {"event_timer", "buckets"}
    assert [*SinkMetrics.__struct_fields__] == [fact.name for fact in SINK_FACTS]


def test_jobs_of_a_warehouse_are_told_apart_and_a_damaged_one_hides_none(folder: Path) -> None:
    with Session(str(folder), notice=lambda text: None) as session:
        session.sql("CREATE TABLE a (k BIGINT); CREATE TABLE b (k BIGINT);")
        session.sql("INSERT INTO a VALUES (1), (2)")
        session.sql("INSERT INTO b VALUES (3)")
        text = exposition(registry(session.warehouse)).decode()
        assert 'sqlstream_job_rows_out_total{job_name="a_values"} 2.0' in text
        assert 'sqlstream_job_rows_out_total{job_name="b_values"} 1.0' in text
        assert "process_cpu_seconds_total" in text
        assert 'job_name="b_values"' not in exposition(registry(session.warehouse, lambda: ["a_values"])).decode()
        job = session.warehouse.job("a_values")
        for file in Path(job.log).iterdir():
            file.write_text("x")
        text = exposition(registry(session.warehouse)).decode()
        assert 'sqlstream_job_rows_out_total{job_name="a_values"}' not in text
        assert 'sqlstream_job_up{job_name="a_values"} 0.0' in text
        assert 'sqlstream_job_rows_out_total{job_name="b_values"} 1.0' in text


def test_a_job_whose_process_is_gone_is_lost_and_its_backlog_is_known(folder: Path) -> None:
    with Session(str(folder), notice=lambda text: None) as session:
        session.sql("CREATE TABLE a (k BIGINT); INSERT INTO a VALUES (1)")
        fs, job = session.warehouse.fs, session.warehouse.job("a_values")
        status = read_status(fs, job)
        assert status is not None
        write_status(
            fs, job, type(status)("RUNNING", 1, status.host, now(), now(), backlog={"in": Backlog(7, "offsets")})
        )
        effective = effective_status(fs, job)
        assert effective is not None
        assert effective.state == "LOST"
        found = parsed(exposition(registry(session.warehouse)).decode())
    assert found["job_up", ()] == 0
    assert found["job_status", (("status", "LOST"),)] == 1
    assert found["source_backlog_offsets", (("source", "in"),)] == 7


def test_earlier_logs_have_less(folder: Path) -> None:
    with Session(str(folder), notice=lambda text: None) as session:
        session.sql("CREATE TABLE a (k BIGINT); INSERT INTO a VALUES (1)")
        entry = JobHistory(session.warehouse, "a_values").newest_entry
        assert entry is not None
        old = {k: v for k, v in json.loads(entry.to_json()).items() if k not in ("spent", "sinks")}
        assert type(entry).from_json(json.dumps(old)).rows_out == 1


def test_names_follow_the_conventions_of_prometheus() -> None:
    for family in FAMILIES.values():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", family.name), family.name
        # Base units; the ending of a counter is not part of the name.
        assert not re.search(r"_(ms|millis|minutes|mb|kb|total|count|sum)$", family.name), family.name
        assert family.meaning[0].islower() or family.meaning[0].isdigit()
        assert not family.meaning.endswith(".")


def test_the_dashboard_asks_for_metrics_that_are_exported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked: set[str] = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            asked |= set(re.findall(r"\bsqlstream_\w+", target["expr"]))
            for labels in re.findall(r"(sqlstream_\w+)\{([^}]*)\}", target["expr"]):
                known = next(f for f in FAMILIES.values() if labels[0] in f.exported).labels
                assert set(re.findall(r"(\w+)\s*(?:=~|!=|=)", labels[1])) <= set(known), target["expr"]
    asked |= set(re.findall(r"\bsqlstream_\w+", json.dumps(dashboard["templating"])))
    assert len(asked) > 15
    assert asked <= EXPORTED, asked - EXPORTED


@pytest.mark.parametrize("text", ["x", "", "70000", "host:", "1.5"])
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="neither PORT nor HOST:PORT"):
        parse_address(text)


def test_log_lines_are_json(folder: Path) -> None:
    done = run_command(
        folder, "run", "--log-format=json", "-e", "CREATE TABLE a (k BIGINT); INSERT INTO a VALUES (1), (2)"
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["event"], line.get("job")) for line in lines] == [("batch", "a_values"), ("status", "a_values")]
    assert {k: lines[0][k] for k in ("level", "batch", "rows_out")} == {"level": "info", "batch": 0, "rows_out": 2}
    assert lines[1]["status"] == "FINISHED"

    done = run_command(folder, "run", "-e", "SELECT\n  nothing FROM t", environment={"SQLSTREAM_LOG_FORMAT": "json"})
    [line] = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 2
    assert (line["level"], line["event"], line["kind"]) == ("error", "error", "error")
    assert (line["source"], line["line"]) == ("-e", 2)
    assert "does not exist" in line["message"]


NOISY = """
import logging, sys, threading, warnings

def fails():
    raise ValueError("in a thread")

def said():
    print("one", file=sys.stderr)
    warnings.warn("two")
    logging.getLogger("mine").error("three")
    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
    sys.stderr.write("without an end")

said()
"""


def test_what_functions_write_to_standard_error_is_json(folder: Path) -> None:
    (folder / "udfs").mkdir()
    (folder / "udfs" / "noisy.py").write_text(NOISY)
    done = run_command(folder, "run", "--log-format", "json", "-e", "CREATE TABLE a (k BIGINT)")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["event"] for line in lines} == {"notice"}
    texts = [line["message"] for line in lines]
    assert (texts[0], texts[2], texts[3]) == ("one", "three", "ValueError: in a thread")
    assert "UserWarning: two" in texts[1]
    assert "Traceback" in lines[3]["detail"]
    assert texts[-1] == "without an end"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nothing"], "No such option"),
        (["--metrics", "x", "-e", "CREATE TABLE a (k BIGINT)"], '--metrics "x" is neither PORT nor HOST:PORT'),
        (["no such file.sql"], "no such file.sql"),
        ([], "there is no SQL to run"),
    ],
)
def test_wrong_arguments_are_json(folder: Path, words: list[str], message: str) -> None:
    done = run_command(folder, "run", *words, environment={"SQLSTREAM_LOG_FORMAT": "json"})
    line = [json.loads(line) for line in done.stderr.splitlines()][-1]
    assert (done.returncode, line["level"], line["event"]) == (2, "error", "error")
    assert message in line["message"]


def test_a_fault_of_the_program_is_json(folder: Path) -> None:
    program = (
        "import sys; from sqlstream.cli import main; main.cli.main = lambda **_: 1 / 0;"
        " sys.argv[1:] = ['run', '--log-format=json']; main.main()"
    )
    (folder / "faulty.py").write_text(program)
    done = run_python("faulty.py", cwd=folder)
    [line] = [json.loads(line) for line in done.stderr.splitlines()]
    assert (done.returncode, line["kind"], line["message"]) == (
        1,
        "internal error",
        "ZeroDivisionError: division by zero",
    )
    assert "Traceback" in line["detail"]


def test_upgrade_plans_are_json_and_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with reporting("json") as log:
        ask(["job a:\n  goes on"], yes=True, asks=False)
        ask(["job b:\n  goes on"], yes=False, asks=False)
    assert log is not None
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["message"] for line in lines] == [
        "job a:\n  goes on",
        "job b:\n  goes on",
        "an upgrade has to be confirmed, and lines of JSON ask no questions",
    ]
    assert log.exit_code == 2


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_the_lag_is_behind_the_local_clock_where_event_times_are_local(zone: str) -> None:
    script = f"""
    SET 'table.local-time-zone' = '{zone}'; SET 'pipeline.name' = 'job';
    CREATE TABLE e (k INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts);
    CREATE TABLE c (k INT, p AS PROCTIME());
    CREATE TABLE days (n BIGINT);
    EXECUTE STATEMENT SET BEGIN
    INSERT INTO days SELECT COUNT(*) FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' DAY) GROUP BY window_start, window_end;
    INSERT INTO days SELECT COUNT(*) FROM TUMBLE(TABLE c, DESCRIPTOR(p), INTERVAL '1' DAY) GROUP BY window_start, window_end;
    END;
    """
    noon = ProcessingTime(1_767_268_800 * SECOND)
    with Stream(script, now="2026-01-01 12:00:00") as stream:
        stream.batch("e", [(1, "2026-01-01 11:59:00+00")])
        stream.batch("c", [(1,)])
        stream.batch("e", [(1, "2026-01-01 11:59:30+00")])
        [run] = stream.runs.values()
        collector = JobCollector(run.commits.warehouse, clock=lambda: ProcessingTime(noon + 10 * SECOND))
        found = {(s.name, *s.labels.values()): s.value for family in collector.collect() for s in family.samples}
    lags = {name: round(lag) for name, lag in found.items() if "_lag_" in name[0] or "latency" in name[0]}
    assert lags == {
        ("sqlstream_job_watermark_lag_seconds", "job"): 40,
        ("sqlstream_operator_watermark_lag_seconds", "job", "window_aggregate_2"): 10,
        ("sqlstream_source_watermark_lag_seconds", "job", "e"): 40,
        ("sqlstream_source_event_latency_seconds", "job", "e"): 30,
    }
