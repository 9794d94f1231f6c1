"""Results that change: states of 100 thousand and 5 million keys, of which a batch touches few or all.

A first batch brings every key once; each further one touches `touched` of them. Both systems read the same files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from tests.bench.data import COLUMNS, START_MICROS

FEW, MANY = 100_000, 5_000_000
SOME = 10_000
OUTPUT = "result"

_TOTALS = {"auction": "BIGINT", "n": "BIGINT", "total": "DOUBLE", "highest": "DOUBLE"}
_GROUP_BY = "SELECT auction, count(*) AS n, sum(price) AS total, max(price) AS highest FROM {bids} GROUP BY auction"
_PER_COUNT = {"n": "BIGINT", "auctions": "BIGINT", "total": "BIGINT"}
_TWO_LEVELS = """
    SELECT n, count(*) AS auctions, CAST(sum(total) AS BIGINT) AS total FROM (
        SELECT auction, count(*) AS n, sum(CAST(price AS BIGINT)) AS total FROM {bids} GROUP BY auction) GROUP BY n"""
_PLACES = {"auction": "BIGINT", "place": "BIGINT", "bidder": "BIGINT", "price": "DOUBLE", "ts": "TIMESTAMP(6)"}
_TOP = """
    SELECT auction, place, bidder, price, ts FROM (
        SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bidder, ts) AS place FROM {bids})
    WHERE place <= 10"""
_BIDS = {"auction": "BIGINT", "bidder": "BIGINT", "price": "DOUBLE", "ts": "TIMESTAMP(6)"}
_LAST = """
    SELECT auction, bidder, price, ts FROM (
        SELECT *, row_number() OVER (PARTITION BY auction ORDER BY ts DESC, bidder, price) AS place FROM {bids})
    WHERE place = 1"""


@dataclass(frozen=True, slots=True)
class ChangingWork:
    """A query over bids, the `key` of its result, how many auctions there are and how many a batch touches.

    With `spark`, Spark has an operator for it.
    """

    name: str
    title: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    query: str
    keys: int
    touched: int
    spark: bool = False

    @property
    def batches(self) -> int:
        """How many batches follow the first one: few where each takes long."""
        return 5 if self.touched > 1_000_000 else 12

    @property
    def warm_up(self) -> int:
        """How many batches do not count: that of all keys, and some until everything is compiled."""
        return 3 if self.touched > 1_000_000 else 5

    def summary(self, rows: str) -> str:
        """Return the SELECT of how many rows there are, and a checksum of them."""
        values = ", ".join(f"CAST({name} AS {type})" for name, type in self.columns.items())
        return f"SELECT count(*), CAST(coalesce(sum(hash({values})), 0) % 1000000007 AS BIGINT) FROM {rows}"

    def script(self, path: Path, files_per_batch: int) -> str:
        """Return sqlstream's script; its last statement is the job, which writes the table `result`."""
        bids = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
        columns = ", ".join(f"{name} {type}" for name, type in self.columns.items())
        return f"""
        CREATE TABLE bids ({bids}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet',
            'source.max-files-per-batch' = '{files_per_batch}', 'source.max-bytes-per-batch' = '10 GB');
        CREATE TABLE {OUTPUT} ({columns}, PRIMARY KEY ({", ".join(self.key)}) NOT ENFORCED);
        INSERT INTO {OUTPUT} {self.query.format(bids="bids")}"""


def _of_sizes(
    name: str, title: str, columns: Mapping[str, str], key: tuple[str, ...], query: str
) -> tuple[ChangingWork, ...]:
    return tuple(
        ChangingWork(f"{name}_{size}", f"{title}, {keys:,} keys, {SOME:,} touched", columns, key, query, keys, SOME)
        for size, keys in (("few", FEW), ("many", MANY))
    )


CHANGING_WORKS = (
    *(
        ChangingWork(
            f"group_by_{size}_{share}",
            f"GROUP BY, {keys:,} keys, {touched:,} touched",
            _TOTALS,
            ("auction",),
            _GROUP_BY,
            keys,
            touched,
            spark=True,
        )
        for size, keys in (("few", FEW), ("many", MANY))
        for share, touched in (("percent", keys // 100), ("some", SOME), ("all", keys))
    ),
    *_of_sizes("two_levels", "GROUP BY over GROUP BY", _PER_COUNT, ("n",), _TWO_LEVELS),
    *_of_sizes("top_ten", "10 rows per key", _PLACES, ("auction", "place"), _TOP),
    *_of_sizes("keep_last", "last row per key", _BIDS, ("auction",), _LAST),
)


def changing_work(name: str) -> ChangingWork:
    return next(w for w in CHANGING_WORKS if w.name == name)


def changing_works_of(names: tuple[str, ...]) -> list[ChangingWork]:
    """Return the works that are meant by their own names or by the beginnings of them."""
    return [w for w in CHANGING_WORKS if any(w.name == n or w.name.startswith(f"{n}_") for n in names)]


def changing_data(root: Path, work: ChangingWork, files_per_batch: int) -> Path:
    """Return the folder of a work's input, made now unless it is there: a first batch of all keys, and more."""
    folder = root / f"changes-{work.keys}-{work.touched}-{work.batches}-{files_per_batch}"
    if folder.exists():
        return folder
    making = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    with duckdb.connect() as con:
        for batch in range(work.batches + 1):
            for part in range(files_per_batch):
                path = making / f"part-{batch:05d}-{part}.parquet"
                con.execute(f"COPY ({_bids(work, batch, part, files_per_batch)}) TO '{path}' (FORMAT parquet)")
                os.utime(path, (1_000_000_000 + batch * files_per_batch + part,) * 2)
    making.rename(folder)
    return folder


def _bids(work: ChangingWork, batch: int, part: int, parts: int) -> str:
    rows = work.keys if batch == 0 else work.touched
    # A number that has no divisor in common with the keys spreads those of a batch over all of them, each once.
    key = f"(i * 7919 + {batch} * 104729) % {work.keys}"
    first = batch * work.keys
    return f"""
    SELECT CAST({key} AS BIGINT) AS auction, CAST(hash(i, {batch}, 'bidder') % 1000000 AS BIGINT) AS bidder,
           CAST(hash(i, {batch}, 'price') % 10000 AS DOUBLE) AS price, 'web' AS channel,
           make_timestamp(CAST({START_MICROS} + ({first} + i) * 100 AS BIGINT)) AS ts
    FROM range({part * rows // parts}, {(part + 1) * rows // parts}) r(i)"""
