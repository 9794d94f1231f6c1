"""Interval joins, window joins and regular joins. All systems read the same files in the same batches.

Orders and shipments: 10,000 of each are one second of event time, a shipment comes up to 10 s behind its order. Bids and
accounts: 5 million accounts come in the first batch, then small batches of bids. Three inputs have one key.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb

from tests.bench.data import DELAY_SECONDS, DISORDER_SECONDS, ROWS_PER_SECOND, START_MICROS

OUTPUT = "result"
REACH = 10
ACCOUNTS, BIDS, SMALL_BATCHES = 5_000_000, 10_000, 14
VERSION_KEYS = 1_000_000


@dataclass(frozen=True, slots=True)
class Input:
    """A table: its columns, the SELECT of its rows over `range(..) r(i)`, its key; if `timed`, `ts` is its event time."""

    columns: Mapping[str, str]
    rows: str
    timed: bool = True
    key: str = ""


@dataclass(frozen=True, slots=True)
class JoinWork:
    """A query over inputs; `spark` is the same in Spark's SQL, empty where Spark has nothing like it.

    With `reports` "rows" it is measured by the rows of all inputs in a second, else by the time of a batch. With `loads_first`
    the first batch is a large state for small ones: Flink, which reads all inputs at the same time, cannot be told to wait.
    """

    name: str
    title: str
    inputs: Mapping[str, Input]
    columns: Mapping[str, str]
    query: str
    spark: str
    duckdb: str
    reports: Literal["rows", "batch"] = "rows"
    loads_first: bool = False

    def summary(self, rows: str) -> str:
        """Return the SELECT of how many rows there are, and a checksum of them."""
        values = ", ".join(f"CAST({name} AS {type})" for name, type in self.columns.items())
        return f"SELECT count(*), CAST(coalesce(sum(hash({values})), 0) % 1000000007 AS BIGINT) FROM {rows}"

    def script(self, data: Path, files_per_batch: int) -> str:
        """Return sqlstream's script; its last statement is the job, which writes the table `result`."""
        tables = [_table(name, given, data / name, files_per_batch) for name, given in self.inputs.items()]
        columns = ", ".join(f"{name} {type}" for name, type in self.columns.items())
        allow = "SET 'sqlstream.unbounded-state' = 'allow';"
        return "\n".join([allow, *tables, f"CREATE TABLE {OUTPUT} ({columns});", f"INSERT INTO {OUTPUT} {self.query}"])


def _table(name: str, given: Input, path: Path, files: int) -> str:
    columns = ", ".join(f"{column} {type}" for column, type in given.columns.items())
    mark = f", WATERMARK FOR ts AS ts - INTERVAL '{DELAY_SECONDS}' SECOND" if given.timed else ""
    mark += f", PRIMARY KEY ({given.key}) NOT ENFORCED" if given.key else ""
    return f"""CREATE TABLE {name} ({columns}{mark}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet',
        'source.max-files-per-batch' = '{files}', 'source.max-bytes-per-batch' = '10 GB');"""


def _time(behind: str) -> str:
    micros = f"{START_MICROS} + i * {1_000_000 // ROWS_PER_SECOND} + {behind} - hash(i, 'late') % {DISORDER_SECONDS * 1_000_000}"
    # Whole milliseconds: Flink's event times have no more.
    return f"make_timestamp(CAST({micros} AS BIGINT) // 1000 * 1000) AS ts"


_ORDERS = Input(
    {"id": "BIGINT", "amount": "BIGINT", "ts": "TIMESTAMP"},
    f"SELECT CAST(i AS BIGINT) AS id, CAST(hash(i, 'amount') % 1000 AS BIGINT) AS amount, {_time('0')}",
)
# So many rows before its shipment came, an order came.
_BEHIND = f"CAST(hash(i, 'way') % {REACH * ROWS_PER_SECOND} AS BIGINT)"
_SHIPMENTS = Input(
    {"order_id": "BIGINT", "weight": "BIGINT", "ts": "TIMESTAMP"},
    f"SELECT i - {_BEHIND} AS order_id, CAST(hash(i, 'weight') % 1000 AS BIGINT) AS weight, {_time('0')}",
)
_BOTH = {"orders": _ORDERS, "shipments": _SHIPMENTS}
_PAIRS = {"id": "BIGINT", "amount": "BIGINT", "weight": "BIGINT"}
_PAIR = "SELECT o.id, o.amount, s.weight FROM"
_NEAR = f"o.id = s.order_id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '{REACH}' SECOND"
_INTERVAL = f"{_PAIR} orders o JOIN shipments s ON {_NEAR}"
_TUMBLE = f"TABLE(TUMBLE(TABLE {{}}, DESCRIPTOR(ts), INTERVAL '{REACH}' SECOND))"
_SAME = "o.id = s.order_id AND o.window_start = s.window_start AND o.window_end = s.window_end"
_WINDOWED = f"(SELECT *, window(ts, '{REACH} seconds') AS w FROM {{}})"
_BUCKETED = f"(SELECT *, time_bucket(INTERVAL '{REACH}' SECOND, ts) AS w FROM {{}})"
_KEYED = "o.id = s.order_id AND o.w = s.w"


def _windows(form: str, on: str) -> str:
    return f"{_PAIR} {form.format('orders')} o JOIN {form.format('shipments')} s ON {on}"


_ACCOUNTS = Input(
    {"account": "BIGINT", "rating": "BIGINT"},
    "SELECT CAST(i AS BIGINT) AS account, CAST(hash(i, 'rating') % 100 AS BIGINT) AS rating",
    timed=False,
)
_SMALL_BIDS = Input(
    {"bidder": "BIGINT", "price": "BIGINT"},
    f"SELECT CAST(hash(i, 'bidder') % {ACCOUNTS} AS BIGINT) AS bidder, CAST(hash(i, 'price') % 1000 AS BIGINT) AS price",
    timed=False,
)
_RATED = "SELECT b.bidder, b.price, a.rating FROM bids b JOIN accounts a ON b.bidder = a.account"
_THREE = "SELECT a.k, a.x, b.x AS y, c.x AS z FROM a JOIN b ON a.k = b.k JOIN c ON c.k = a.k"


_VERSIONS = Input(
    {"k": "BIGINT", "rate": "BIGINT", "ts": "TIMESTAMP"},
    f"SELECT CAST(i % {VERSION_KEYS} AS BIGINT) AS k, CAST(hash(i, 'rate') % 100 AS BIGINT) AS rate, {_time('0')}",
    key="k",
)
_PROBES = Input(
    {"id": "BIGINT", "k": "BIGINT", "ts": "TIMESTAMP"},
    f"SELECT CAST(i AS BIGINT) AS id, CAST(hash(i, 'k') % {VERSION_KEYS} AS BIGINT) AS k, {_time('0')}",
)
_AS_OF = "SELECT p.id, v.rate FROM probes p"


def _keyed(name: str) -> Input:
    rows = f"SELECT CAST(hash(i, '{name}') % 1000000 AS BIGINT) AS k, CAST(i AS BIGINT) AS x"
    return Input({"k": "BIGINT", "x": "BIGINT"}, rows, timed=False)


JOIN_WORKS = (
    JoinWork("interval_join", f"interval join, {REACH} s", _BOTH, _PAIRS, _INTERVAL, _INTERVAL, _INTERVAL),
    JoinWork(
        "window_join",
        f"join of windows of {REACH} s",
        _BOTH,
        _PAIRS,
        _windows(_TUMBLE, _SAME),
        _windows(_WINDOWED, _KEYED),
        _windows(_BUCKETED, _KEYED),
    ),
    JoinWork(
        "regular_join",
        f"join with {ACCOUNTS:,} rows of state, {BIDS:,} a batch",
        {"bids": _SMALL_BIDS, "accounts": _ACCOUNTS},
        {"bidder": "BIGINT", "price": "BIGINT", "rating": "BIGINT"},
        _RATED,
        _RATED,
        _RATED,
        "batch",
        loads_first=True,
    ),
    JoinWork(
        "three_way_join",
        "join of three inputs by one key",
        {name: _keyed(name) for name in "abc"},
        dict.fromkeys(("k", "x", "y", "z"), "BIGINT"),
        _THREE,
        _THREE,
        _THREE,
    ),
    JoinWork(
        "temporal_join",
        f"join as of an event time, {VERSION_KEYS:,} keys",
        {"probes": _PROBES, "versions": _VERSIONS},
        {"id": "BIGINT", "rate": "BIGINT"},
        f"{_AS_OF} JOIN versions FOR SYSTEM_TIME AS OF p.ts AS v ON p.k = v.k",
        "",
        f"{_AS_OF} ASOF JOIN versions v ON p.k = v.k AND p.ts >= v.ts",
    ),
)


def join_work(name: str) -> JoinWork:
    return next(w for w in JOIN_WORKS if w.name == name)


def join_works_of(names: tuple[str, ...]) -> list[JoinWork]:
    """Return the works that are meant by their own names or by that of all."""
    return [w for w in JOIN_WORKS if w.name in names or "joins" in names]


@dataclass(frozen=True, slots=True)
class JoinData:
    """The folder of a work's inputs, how many batches they come in, and the rows of all of them in a batch once warm."""

    folder: Path
    batches: int
    rows_per_batch: int


def join_data(root: Path, work: JoinWork, rows: int, batches: int, files_per_batch: int) -> JoinData:
    """Return the input of a work, made now unless it is there: a folder for each table; `rows` are those of each."""
    if work.name == "regular_join":
        batches, shares = SMALL_BATCHES, {"accounts": [ACCOUNTS], "bids": [BIDS] * SMALL_BATCHES}
        per_batch = BIDS
    else:
        shares = {name: [rows // batches] * batches for name in work.inputs}
        per_batch = rows // batches * len(work.inputs)
    folder = root / f"joins-{work.name}-{rows}-{batches}-{files_per_batch}"
    if not folder.exists():
        making = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(making, ignore_errors=True)
        with duckdb.connect() as con:
            for name, given in work.inputs.items():
                (making / name).mkdir(parents=True)
                for number, (first, end) in enumerate(_files(shares[name], files_per_batch)):
                    path = making / name / f"part-{number:05d}.parquet"
                    con.execute(f"COPY ({given.rows} FROM range({first}, {end}) r(i)) TO '{path}' (FORMAT parquet)")
                    os.utime(path, (1_000_000_000 + number,) * 2)
        making.rename(folder)
    return JoinData(folder, batches, per_batch)


def _files(shares: list[int], files: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the first row of every file, and of the one behind its last."""
    begin = 0
    for share in shares:
        for part in range(files):
            yield begin + share * part // files, begin + share * (part + 1) // files
        begin += share
