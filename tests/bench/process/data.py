"""The input of process functions: rows in event-time order with slight disorder, made by hashes of their numbers.

A batch of an input is one file per core, and a key has all its rows in the files of one core, as in a partition of a log: all
systems then see the rows of a key in one order, that of `arrival`.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from tests.bench.data import DELAY_SECONDS, DISORDER_SECONDS, ROWS_PER_SECOND, START_MICROS
from tests.bench.process.work import PAGES, PATIENCE_SECONDS, ProcessWork

# Batches of a work that touches few keys: one of all keys, then some until everything is compiled, and those that count.
TOUCHING_BATCHES, TOUCHING_WARM_UP = 13, 5
# How many timers after each other the data spans at least.
SPANS = 10
# A fare's event time is up to this much behind that of its ride.
FARE_SECONDS = 5
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """What to run: a system, a work, its input, and where it may write.

    The input has `batches` batches of so many rows of all inputs, of which some are warm-up. Every system must have emitted
    what belongs to an event time up to `closed_until` (µs).
    """

    system: str
    work: str
    data: str
    batches: int
    warm_up: int
    rows_per_batch: int
    closed_until: int
    cores: int
    folder: str


@dataclass(frozen=True, slots=True)
class ProcessData:
    """A folder for each input, and what a `Task` says of them."""

    folder: Path
    batches: int
    warm_up: int
    rows_per_batch: int
    closed_until: int

    def task(self, system: str, work: ProcessWork, cores: int, folder: Path) -> Task:
        return Task(
            system=system,
            work=work.name,
            data=str(self.folder),
            batches=self.batches,
            warm_up=self.warm_up,
            rows_per_batch=self.rows_per_batch,
            closed_until=self.closed_until,
            cores=cores,
            folder=str(folder),
        )


def process_data(root: Path, work: ProcessWork, rows: int, batches: int, cores: int) -> ProcessData:
    """Return the input of a work, made now unless it is there. With few rows there are fewer keys: a tenth of them, or half."""
    paired = len(work.inputs) > 1
    keys = work.keys if work.touched else min(work.keys, rows // 2 if paired else rows // 10)
    # Of two inputs, each has a row of a key.
    count = keys if paired else rows
    rate = max(1, min(ROWS_PER_SECOND, count // (SPANS * PATIENCE_SECONDS)))
    span = count * _SECOND // rate
    closed_until = START_MICROS + span - (DELAY_SECONDS + DISORDER_SECONDS + PATIENCE_SECONDS) * _SECOND
    if work.touched:
        folder = root / f"process-{work.name}-{cores}"
        found = ProcessData(folder, TOUCHING_BATCHES, TOUCHING_WARM_UP, work.touched, closed_until)
    else:
        folder = root / f"process-{work.name}-{rows}-{batches}-{cores}"
        found = ProcessData(folder, batches, max(2, batches // 4), 0, closed_until)
    if not folder.exists():
        _generate(folder, work, found.batches, count, keys, rate, cores)
    # Some rides have no fare, and some fares no ride: what the files hold counts.
    return found if work.touched else replace(found, rows_per_batch=rows_in(folder) // batches)


def rows_in(folder: Path) -> int:
    """Return the number of rows of all Parquet files in a folder and those in it."""
    return sum(pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet"))


def _generate(folder: Path, work: ProcessWork, batches: int, count: int, keys: int, rate: int, cores: int) -> None:
    making = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(making, ignore_errors=True)
    with duckdb.connect() as con:
        for name, columns in work.inputs.items():
            rows = _touching(work) if work.touched else _rows(name, count, batches, keys, rate)
            con.execute(f"CREATE TABLE {name} AS SELECT * FROM ({rows}) ORDER BY arrival")
            (making / name).mkdir(parents=True)
            for number in range(batches * cores):
                batch, core = divmod(number, cores)
                path = making / name / f"part-{batch:05d}-{core}.parquet"
                chosen = f"FROM {name} WHERE batch = {batch} AND {work.key} % {cores} = {core}"
                con.execute(f"COPY (SELECT {', '.join(columns)} {chosen}) TO '{path}' (FORMAT parquet)")
                os.utime(path, (1_000_000_000 + number,) * 2)
    making.rename(folder)


def _rows(name: str, count: int, batches: int, keys: int, rate: int) -> str:
    """Return the SELECT of the rows of an input, with their `arrival` and their `batch`."""
    arrival, where = "i", "true"
    if name == "rides":
        # One ride in twenty gets lost, and one fare in twenty.
        columns, where = f"i AS ride_id, {_number('driver', 1000)} AS driver", "hash(i, 'lost') % 20 <> 0"
    elif name == "fares":
        columns, where = f"i AS ride_id, {_number('amount', 100)} AS amount", "hash(i, 'lost') % 20 <> 1"
        arrival = f"i + {_number('behind', FARE_SECONDS * rate)}"
    elif name == "visits":
        columns = f"{_number('visitor', keys)} AS visitor, {_number('page', PAGES)} AS page"
    else:
        columns = f"{_number('sensor', keys)} AS sensor, {_temperature('i')} AS temperature"
    return f"""
        SELECT *, {_time(f"arrival * {_SECOND // rate} - hash(arrival, 'late') % {DISORDER_SECONDS * _SECOND}")} AS ts,
               least(arrival * {batches} // {count}, {batches - 1}) AS batch
        FROM (SELECT {columns}, {arrival} AS arrival FROM range({count}) r(i) WHERE {where})"""


def _touching(work: ProcessWork) -> str:
    """Return the SELECT of readings: all sensors once, then batches that touch few of them."""
    # A number that has no divisor in common with the keys spreads those of a batch over all of them, each once.
    sensor = f"CAST((i * 7919 + batch * 104729) % {work.keys} AS BIGINT)"
    batch = f"SELECT i, i AS arrival, 0 AS batch FROM range({work.keys}) r(i)"
    others = f"""SELECT i, {work.keys} + b * {work.touched} + i AS arrival, b + 1 AS batch
        FROM range({TOUCHING_BATCHES - 1}) r(b), range({work.touched}) s(i)"""
    return f"""SELECT arrival, batch, {sensor} AS sensor, {_temperature("arrival")} AS temperature, {_time("arrival * 100")} AS ts
        FROM ({batch} UNION ALL {others})"""


def _number(name: str, below: int) -> str:
    # Hashed twice: else the hashes of one row under two names have low bits in common.
    return f"CAST(hash(hash(i, '{name}')) % {below} AS BIGINT)"


def _temperature(number: str) -> str:
    # Quarters of a degree: all systems compute the same differences.
    return f"CAST(20 + hash(hash({number}, 'temperature')) % 10 / 4 AS DOUBLE)"


def _time(micros: str) -> str:
    # Whole milliseconds: Flink's event times have no more.
    return f"make_timestamp(CAST({START_MICROS} + {micros} AS BIGINT) // 1000 * 1000)"
