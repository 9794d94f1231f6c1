"""The input: bids in event-time order with slight disorder, in equal Parquet files that are made once and kept.

10,000 rows are one second of event time, whatever the number of rows, so that a window always holds 100,000 of them.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import duckdb

ROWS_PER_SECOND = 10_000
WINDOW_SECONDS = 10
# Rows are up to this late; the watermark trails by more.
DISORDER_SECONDS = 2
DELAY_SECONDS = 4
FEW_KEYS = 100
# With 100,000 rows in a window, this many equally likely keys make 39,000 groups: 0.39 groups per row.
MANY_KEYS = 43_300
# 2026-01-01 00:00:00, a multiple of the window.
START_MICROS = 1_767_225_600_000_000
COLUMNS = {"auction": "BIGINT", "bidder": "BIGINT", "price": "DOUBLE", "channel": "STRING", "ts": "TIMESTAMP"}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A folder of `files` Parquet files with `rows` rows over `keys` auctions."""

    folder: Path
    rows: int
    keys: int
    files: int

    @property
    def rows_per_file(self) -> int:
        return self.rows // self.files

    @property
    def closed_until(self) -> int:
        """The last instant (µs) up to which every system must have emitted its windows."""
        seconds = self.rows // ROWS_PER_SECOND - DELAY_SECONDS - WINDOW_SECONDS
        return START_MICROS + seconds * 1_000_000


def dataset(root: Path, rows: int, keys: int, files: int) -> Dataset:
    """Return the data set, made now unless it is there; `rows` is rounded down to full files."""
    rows = rows // files * files
    folder = root / f"bids-{rows}-{keys}-{files}"
    if not folder.exists():
        _generate(folder, rows, keys, files)
    return Dataset(folder, rows, keys, files)


def _generate(folder: Path, rows: int, keys: int, files: int) -> None:
    making = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    share = rows // files
    with duckdb.connect() as con:
        for number in range(files):
            path = making / f"part-{number:05d}.parquet"
            con.execute(f"COPY ({_bids(number * share, share, keys)}) TO '{path}' (FORMAT parquet)")
            # Both systems read files in the order of their modification times.
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    making.rename(folder)


def _bids(first: int, count: int, keys: int) -> str:
    micros = 1_000_000 // ROWS_PER_SECOND
    # Prices are whole numbers, so that their sums do not depend on the order of adding.
    return f"""
    SELECT CAST(hash(i, 'auction') % {keys} AS BIGINT) AS auction,
           CAST(hash(i, 'bidder') % 1000000 AS BIGINT) AS bidder,
           CAST(hash(i, 'price') % 10000 AS DOUBLE) AS price,
           ['web', 'mobile', 'partner', 'phone'][1 + CAST(hash(i, 'channel') % 4 AS INTEGER)] AS channel,
           make_timestamp(CAST({START_MICROS} + i * {micros} - hash(i, 'late') % {DISORDER_SECONDS * 1_000_000}
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
