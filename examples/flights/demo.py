"""Run streaming SQL over real flights, and query the state of the running job from other processes (`make demo`).

Everything happens in .demo/ at the root of the project: data/ is prepared once, stream/ and warehouse/ start empty.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow.parquet as pq
from prepare import ROOT, prepare
from replay import replay
from rich.console import Console
from rich.text import Text

from tests.demo_parts import Part, PartFailed, start

HERE, DEMO = Path(__file__).resolve().parent, ROOT / ".demo"
DATA, STREAM, WAREHOUSE = DEMO / "data", DEMO / "stream", DEMO / "warehouse"
SQLSTREAM = str(Path(sys.executable).with_name("sqlstream"))
PLACE = ("--warehouse", str(WAREHOUSE), "--project", str(ROOT))
DAYS_AT_START, DAYS, SECONDS_PER_DAY = 3, 31, 1.5
DEADLINE = time.monotonic() + 600

OPEN_HOURS = """
SELECT origin, count(*) AS open_hours, sum(departed) AS departed, max(max_delay) AS max_delay,
       min(window_start) AS first_hour, max(window_start) AS last_hour
FROM state.departures.by_hour{at} GROUP BY origin ORDER BY origin"""
RESULTS = """
SELECT origin, count(*) AS hours, sum(departed) AS departed, sum(cancelled) AS cancelled,
       max(max_delay) AS max_delay
FROM departures GROUP BY origin ORDER BY origin"""
WEATHER = """
SELECT visibility, sum(i.departed) AS departed, round(sum(i.departed * i.mean_delay) / sum(i.departed), 1) AS mean_delay,
       sum(a.departed) AS departed_as_of, round(sum(a.departed * a.mean_delay) / sum(a.departed), 1) AS mean_as_of
FROM weather_delays i FULL JOIN weather_as_of a USING (window_start, visibility) GROUP BY visibility ORDER BY mean_delay"""
JOBS = "SELECT job, status, version, watermark, rows_in, rows_out FROM sqlstream.jobs ORDER BY job"

console = Console(highlight=False)
# The answer to a query is laid out for a pipe otherwise, not for the terminal that shows it.
ENVIRONMENT = {**os.environ, "COLUMNS": str(max(console.width, 100))}


def start_part(name: str, *command: object) -> AbstractContextManager[Part]:
    """Start a part of the demo; its stderr goes to .demo/<name>.log."""
    return start(command, DEMO / f"{name}.log", print_line, ENVIRONMENT, DEADLINE)


def print_line(line: str) -> None:
    console.print(Text.assemble(("│ ", "cyan"), line), soft_wrap=True)


def query(sql: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Ask as anyone could from another terminal: in a new process that is no part of the job."""
    command = (SQLSTREAM, "query", sql, *PLACE, *options)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)


def show(sql: str) -> None:
    """Print a query as a person would type it, its answer, and how long that took."""
    console.print(f'\n$ sqlstream query "{sql.strip()}"', style="bold", markup=False, soft_wrap=True)
    began = time.monotonic()
    done = query(sql)
    if done.returncode:
        raise PartFailed("sqlstream query", f"ended with exit code {done.returncode}", done.stderr)
    console.print(done.stdout.rstrip(), markup=False, soft_wrap=True)
    console.print(f"({time.monotonic() - began:.1f} s)\n", style="dim")


def newest(column: str) -> int:
    """Return a number that `sqlstream.jobs` has about the job, or -1 while there is none."""
    done = query(f"SELECT {column} FROM sqlstream.jobs WHERE job = 'departures'", "--format", "csv")
    words = done.stdout.split()
    value = words[1].strip('"') if done.returncode == 0 and len(words) == 2 else ""
    return int(value) if value else -1


def demo() -> None:
    """Prepare, run, look twice at the running state and once at its past, stop, and look at what is left."""
    console.rule("1. The flights of 2013 from New York, a Parquet file per day", align="left")
    for folder in (STREAM, WAREHOUSE):
        shutil.rmtree(folder, ignore_errors=True)
    prepare(DATA)
    rows = sum(pq.read_metadata(path).num_rows for path in sorted((DATA / "flights").glob("2013*"))[:DAYS])
    console.print(f"{DAYS_AT_START} days are in {STREAM.relative_to(ROOT)} when the job starts, {DAYS} when it ends")
    list(replay(DATA, STREAM, DAYS_AT_START))

    console.rule("2. Streaming SQL fills tables, joins the weather, and prints the worst hours", align="left")
    scripts = tuple(HERE / name for name in ("departures.sql", "weather.sql", "demo.sql"))
    console.print(f"$ sqlstream run {' '.join(str(script.relative_to(ROOT)) for script in scripts)}\n", style="bold")
    arrival = ("--from", DATA, "--to", STREAM, "--interval", SECONDS_PER_DAY, "--days", DAYS)
    with start_part("run", SQLSTREAM, "run", *scripts, *PLACE) as run:
        run.wait_until("the first version of its state", lambda: newest("version") >= 0)
        with start_part("replay", sys.executable, HERE / "replay.py", *arrival) as stream:
            console.rule("3. From other processes: the state of the running job is a table", align="left")
            first = newest("version")
            show(OPEN_HOURS.format(at=""))
            run.wait_until("three more versions", lambda: newest("version") >= first + 3)
            show(OPEN_HOURS.format(at=""))
            console.print(f"The past is a table too: version {first} was the newest one before the first query.")
            show(OPEN_HOURS.format(at=f" AT (VERSION => {first})"))
            stream.wait(0)
        run.wait_until("the end of January", lambda: newest("rows_in") >= rows)
        run.process.send_signal(signal.SIGTERM)
        run.wait(0, 143)

    console.rule("4. The jobs have stopped, their tables are still there", align="left")
    show(JOBS)
    show(RESULTS)
    console.print(
        "Each flight was joined with the weather within the hour before it left, and with the last one as of then:"
    )
    show(WEATHER)


def main() -> int:
    DEMO.mkdir(exist_ok=True)
    # As an exception, the signal passes through every `finally` on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        demo()
    except PartFailed as failure:
        console.print(f"\n{failure}", markup=False, style="red", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
