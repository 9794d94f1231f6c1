"""The input: bids in event-time order with slight disorder, in equal Parquet files that are made once and kept.

10,000 rows are one second of event time, so that a window of 10 s holds 100,000 of them, whatever the number of rows. When
that would be too short a time for some windows of a work to close, fewer rows are a second, and many keys fewer in proportion.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import duckdb

ROWS_PER_SECOND = 10_000
# Rows are up to this late; the watermark trails by more.
DISORDER_SECONDS = 2
DELAY_SECONDS = 4
FEW_KEYS = 100
# With 100,000 rows in a window, this many equally likely keys make 39,000 groups: 0.39 groups per row.
MANY_KEYS = 43_300
# With a gap of 200 s, a million of these many sessions are open at a time.
SESSION_KEYS = 1_250_000
# How many windows (or gaps) of the longest kind the data spans at least.
SPANS = 3
# 2026-01-01 00:00:00, a multiple of the window.
START_MICROS = 1_767_225_600_000_000
COLUMNS = {"auction": "BIGINT", "bidder": "BIGINT", "price": "DOUBLE", "channel": "STRING", "ts": "TIMESTAMP"}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A folder of `files` Parquet files with `rows` rows, `micros` of event time apart, over `keys` auctions."""

    folder: Path
    rows: int
    keys: int
    files: int
    micros: int

    @property
    def rows_per_file(self) -> int:
        return self.rows // self.files

    @property
    def closed_until(self) -> int:
        """The last instant (µs) up to which every system must have emitted its windows."""
        return START_MICROS + self.rows * self.micros - (DELAY_SECONDS + DISORDER_SECONDS) * 1_000_000


def dataset(root: Path, rows: int, keys: int, files: int, longest: float) -> Dataset:
    """Return the data set for a work, made now unless it is there; `rows` is rounded down to full files.

    `keys` are those at the full rate of rows, `longest` is the length of the work's longest windows in seconds.
    """
    rows = rows // files * files
    rate = max(1, min(ROWS_PER_SECOND, round(rows / longest / SPANS)))
    if keys > FEW_KEYS:
        keys = max(FEW_KEYS, keys * rate // ROWS_PER_SECOND)
    folder = root / f"bids-{rows}-{keys}-{files}-{rate}"
    found = Dataset(folder, rows, keys, files, 1_000_000 // rate)
    if not folder.exists():
        _generate(found)
    return found


def _generate(data: Dataset) -> None:
    folder = data.folder
    making = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    with duckdb.connect() as con:
        for number in range(data.files):
            path = making / f"part-{number:05d}.parquet"
            con.execute(f"COPY ({_bids(data, number)}) TO '{path}' (FORMAT parquet)")
            # Both systems read files in the order of their modification times.
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    making.rename(folder)


def _bids(data: Dataset, file: int) -> str:
    """Return the SELECT of the rows of a file."""
    first, count, keys = file * data.rows_per_file, data.rows_per_file, data.keys
    # Prices are whole numbers, so that their sums do not depend on the order of adding.
    return f"""
    SELECT CAST(hash(i, 'auction') % {keys} AS BIGINT) AS auction,
           CAST(hash(i, 'bidder') % 1000000 AS BIGINT) AS bidder,
           CAST(hash(i, 'price') % 10000 AS DOUBLE) AS price,
           ['web', 'mobile', 'partner', 'phone'][1 + CAST(hash(i, 'channel') % 4 AS INTEGER)] AS channel,
           make_timestamp(CAST({START_MICROS} + i * {data.micros} - hash(i, 'late') % {DISORDER_SECONDS * 1_000_000}
                               AS BIGINT)) AS ts
    FROM range({first}, {first + count}) r(i)"""


def small_files(folder: Path, count: int) -> list[Path]:
    """Make `count` files of one row each, a second of event time apart; return them in order."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = []
    with duckdb.connect() as con:
        for number in range(count):
            path = folder / f"part-{number:05d}.parquet"
            row = (
                f"SELECT {number % 10}::BIGINT AS auction, 1::BIGINT AS bidder, 1.0::DOUBLE AS price, 'web' AS channel, "
                f"make_timestamp({START_MICROS + number * 1_000_000}) AS ts"
            )
            con.execute(f"COPY ({row}) TO '{path}' (FORMAT parquet)")
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
            paths.append(path)
    return paths
