"""The command line as a person meets it: start to first result, a query on small state, EXPLAIN, Python's start included."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.bench.data import Dataset
from tests.bench.latency import JOB
from tests.bench.work import source_table

RUNS = 5
ARCHIVE_SECONDS = 180.0
SQLSTREAM = str(Path(sys.executable).with_name("sqlstream"))
SMALL = (
    "SELECT auction % 10 AS k, window_end, count(*) AS n FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) "
    "GROUP BY auction % 10, window_start, window_end"
)
QUERY = f"SELECT * FROM state.{JOB}.window_aggregate_1 ORDER BY auction"


def start_to_first_result(data: Dataset, folder: Path, log: Path) -> float:
    """Return the median seconds from the start of `sqlstream run` to the first printed row of a small windowed job.

    The run before the measured ones makes the archive of Java classes, if there is none; it is waited for.
    """
    (folder / "project").mkdir(parents=True)
    script = source_table(str(sorted(data.folder.iterdir())[0]), 1) + SMALL
    _first_row(script, folder, log)
    _await_archive()
    return statistics.median(_first_row(script, folder, log) for _ in range(RUNS))


def _first_row(script: str, folder: Path, log: Path) -> float:
    command = [
        SQLSTREAM,
        "run",
        "-e",
        script,
        "--project",
        str(folder / "project"),
        "--warehouse",
        str(folder / "starts"),
    ]
    begun = time.perf_counter()
    with open(log, "ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        found = next((time.perf_counter() - begun for line in process.stdout if line.startswith("+I")), None)
        process.stdout.read()
        process.wait()
    if found is None:
        raise RuntimeError(f"sqlstream run printed no row, see {log}")
    return found


def _await_archive() -> None:
    """Wait for the process that makes the archive of classes, if the first run has left one behind."""
    making = [p for p in psutil.process_iter(["cmdline"]) if "sqlstream.spark.class_data" in (p.info["cmdline"] or ())]
    psutil.wait_procs(making, timeout=ARCHIVE_SECONDS)


def query_seconds(warehouse: Path, project: Path) -> float:
    """Return the median seconds of `sqlstream query` on the state that the job of `latency` left."""
    return _seconds("query", QUERY, "--warehouse", str(warehouse), "--project", str(project))


def explain_seconds(data: Dataset, project: Path) -> float:
    """Return the median seconds of `sqlstream explain` of a small windowed job."""
    return _seconds("explain", "-e", source_table(str(data.folder), 1) + SMALL, "--project", str(project))


def _seconds(*arguments: str) -> float:
    seconds = []
    for _ in range(RUNS + 1):
        begun = time.perf_counter()
        subprocess.run([SQLSTREAM, *arguments], check=True, capture_output=True)
        seconds.append(time.perf_counter() - begun)
    # The first one may read the program from a cold disk.
    return statistics.median(seconds[1:])
