"""Write the example's data, always the same: DATA/{readings,bounds,rides,fares,clicks}/1.parquet to 4.parquet, an hour each.

Rows are in the order of their times, over all files of a table.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

BEGIN = datetime(2026, 1, 1, 8)
HOURS = 4
DATA = Path(__file__).parent / ".demo"
TIME = pa.timestamp("us")
SCHEMAS = {
    "readings": pa.schema({"sensor": pa.string(), "temperature": pa.float64(), "ts": TIME}),
    "bounds": pa.schema({"name": pa.string(), "temperature": pa.float64(), "ts": TIME}),
    "rides": pa.schema({"ride_id": pa.int64(), "taxi": pa.string(), "event": pa.string(), "ts": TIME}),
    "fares": pa.schema({"ride_id": pa.int64(), "amount": pa.float64(), "ts": TIME}),
    "clicks": pa.schema({"user_id": pa.int64(), "page": pa.string(), "ts": TIME}),
}


def readings(chance: random.Random) -> Iterator[tuple[Any, ...]]:
    """Sensors that report every other minute, and now and then are silent for a while."""
    for sensor in "abc":
        at, temperature = BEGIN, 20.0
        while at < BEGIN + timedelta(hours=HOURS):
            temperature += chance.choice([-6, -1, -0.5, 0, 0, 0.5, 1, 6])
            yield sensor, temperature, at + timedelta(seconds=chance.randrange(60))
            at += timedelta(minutes=chance.choice([2, 2, 2, 2, 2, 2, 4, 25]))


def bounds(chance: random.Random) -> Iterator[tuple[Any, ...]]:
    """Between which temperatures sensors should be: people change their minds every now and then."""
    for name, temperature in (("low", 14.0), ("high", 26.0)):
        at = BEGIN
        while at < BEGIN + timedelta(hours=HOURS):
            yield name, temperature + chance.choice([-3, 0, 2]), at
            at += timedelta(minutes=chance.choice([20, 35, 50]), seconds=30)


def rides(chance: random.Random) -> Iterator[tuple[Any, ...]]:
    """Rides that begin and end; some never end, some last for hours."""
    for ride in range(60):
        begin = BEGIN + timedelta(minutes=4 * ride, seconds=chance.randrange(200))
        taxi = f"taxi {chance.randrange(1, 9)}"
        yield ride, taxi, "begin", begin
        if chance.random() < 0.95:
            yield ride, taxi, "end", begin + timedelta(minutes=chance.choice([8, 15, 22, 40, 130]))


def fares(chance: random.Random) -> Iterator[tuple[Any, ...]]:
    """A fare for most rides, some for rides that nobody knows."""
    for ride in range(64):
        if chance.random() < 0.9:
            at = BEGIN + timedelta(minutes=4 * ride + chance.randrange(45), seconds=7)
            yield ride, chance.randrange(500, 6000) / 100, at


def clicks(chance: random.Random) -> Iterator[tuple[Any, ...]]:
    """Users who look around, and sometimes pay."""
    for user in range(1, 7):
        at = BEGIN
        while (at := at + timedelta(seconds=chance.choice([40, 90, 200, 700, 1500]))) < BEGIN + timedelta(hours=HOURS):
            yield user, chance.choice(["home", "search", "item", "pay"]), at


def tables() -> dict[str, pa.Table]:
    """Return all tables, sorted by time."""
    found = {}
    for make in (readings, bounds, rides, fares, clicks):
        rows = sorted(make(random.Random(13)), key=lambda row: row[-1])
        schema = SCHEMAS[make.__name__]
        found[make.__name__] = pa.table(
            [pa.array(column, type) for column, type in zip(zip(*rows, strict=True), schema.types, strict=True)],
            schema=schema,
        )
    return found


def hours(table: pa.Table) -> list[pa.Table]:
    """Return the rows of a table by the hour; the last part has all that come later."""
    times = table.column("ts").to_pylist()
    ends = [sum(t < BEGIN + timedelta(hours=hour) for t in times) for hour in range(1, HOURS)]
    return [table.slice(a, b - a) for a, b in zip([0, *ends], [*ends, len(times)], strict=True)]


def write(folder: Path) -> None:
    for name, table in tables().items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(hours(table), 1):
            pq.write_table(part, folder / name / f"{number}.parquet")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
