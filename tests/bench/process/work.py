"""Work for process functions: what each is given, what it emits, how SQL calls it, and the same as DuckDB's batch SQL.

The classes are in `functions` (sqlstream), `spark` and `flink_job`, with the same state and the same logic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.data import DELAY_SECONDS

THRESHOLD = 1.7
# A ride and a fare wait so long for each other, in event time.
PATIENCE_SECONDS = 10
KEYS, PAGES, EVERY = 100_000, 10, 3
# Of the works in which batches touch few of the keys there are.
TOUCHED, MANY_KEYS = 10_000, 5_000_000
WINDOW_SECONDS = 10
OUTPUT = "result"
# The vectorized forms of a class.
BY_KEY, BY_BUCKET = "sqlstream, by key", "sqlstream, by bucket"
# The forms of an aggregate function beside DuckDB's own.
UDAF, UDAF_BY_ROW = "sqlstream, @udaf vectorized", "sqlstream, @udaf by row"

_READINGS = {"sensor": "BIGINT", "temperature": "DOUBLE", "ts": "TIMESTAMP"}
_VISITS = {"visitor": "BIGINT", "page": "BIGINT", "ts": "TIMESTAMP"}
_RIDES = {"ride_id": "BIGINT", "driver": "BIGINT", "ts": "TIMESTAMP"}
_FARES = {"ride_id": "BIGINT", "amount": "BIGINT", "ts": "TIMESTAMP"}
_ALERTS = {"sensor": "BIGINT", "temperature": "DOUBLE", "difference": "DOUBLE"}


@dataclass(frozen=True, slots=True)
class ProcessWork:
    """A process function over inputs that are partitioned by their first column.

    `call` is sqlstream's, with a place for the function's name; `functions` has the names of the class's forms by what each
    is called in the report. `duckdb` has a place for each input; `arrival` in it is the order in which rows come. With
    `touched`, all `keys` come in a first batch, and so many in each further one.
    """

    name: str
    title: str
    inputs: Mapping[str, Mapping[str, str]]
    columns: Mapping[str, str]
    call: str
    duckdb: str
    keys: int
    functions: Mapping[str, str]
    touched: int = 0
    peers: bool = True

    @property
    def key(self) -> str:
        return next(iter(self.columns))

    @property
    def timed(self) -> bool:
        """Whether event time says what comes out: rows towards the end of the input may then still wait for it."""
        return "ts" in self.columns

    def summary(self, rows: str, closed_until: int) -> str:
        """Return the SELECT of what must be the same in every system: how many rows there are, and a checksum of them."""
        values = ", ".join(
            f"epoch_ms({name})" if type == "TIMESTAMP" else f"CAST({name} AS {type})"
            for name, type in self.columns.items()
        )
        closed = f" WHERE epoch_us(ts) <= {closed_until}" if self.timed else ""
        return f"SELECT count(*), CAST(coalesce(sum(hash({values})), 0) % 1000000007 AS BIGINT) FROM {rows}{closed}"

    def script(self, function: str, data: Path, files_per_batch: int) -> str:
        """Return sqlstream's script; its last statement is the job, which writes the table `result`."""
        tables = [self._table(name, data / name, files_per_batch) for name in self.inputs]
        columns = ", ".join(f"{name} {type}" for name, type in self.columns.items())
        job = f"INSERT INTO {OUTPUT} SELECT {', '.join(self.columns)} FROM {self.call.format(function=function)}"
        allow = "SET 'sqlstream.unbounded-state' = 'allow';"
        return "\n".join([allow, *tables, f"CREATE TABLE {OUTPUT} ({columns});", job])

    def _table(self, name: str, path: Path, files: int) -> str:
        columns = ", ".join(f"{column} {type}" for column, type in self.inputs[name].items())
        mark = f", WATERMARK FOR ts AS ts - INTERVAL '{DELAY_SECONDS}' SECOND" if self.timed else ""
        options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet', 'source.max-files-per-batch' = '{files}'"
        return f"CREATE TABLE {name} ({columns}{mark}) WITH ({options}, 'source.max-bytes-per-batch' = '10 GB');"


_ALERT_CALL = f"{{function}}(TABLE readings PARTITION BY sensor, threshold => {THRESHOLD})"
_ALERT_DUCKDB = f"""
    SELECT sensor, temperature, temperature - lag(temperature) OVER (PARTITION BY sensor ORDER BY arrival) AS difference
    FROM {{readings}} QUALIFY abs(difference) > {THRESHOLD}"""


def _window_means(name: str, keys: int) -> ProcessWork:
    """Means of windows: by DuckDB's AVG, and by Python. Those of whole numbers do not depend on the order."""
    value = "CAST(round(temperature * 100) AS BIGINT)"
    call = f"""(SELECT sensor, window_end AS ts, {{function}}({value}) AS mean
        FROM TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '{WINDOW_SECONDS}' SECOND)
        GROUP BY sensor, window_start, window_end)"""
    end = f"time_bucket(INTERVAL {WINDOW_SECONDS} SECOND, ts) + INTERVAL {WINDOW_SECONDS} SECOND"
    return ProcessWork(
        name,
        f"means of windows of {WINDOW_SECONDS} seconds, {keys:,} keys",
        {"readings": _READINGS},
        {"sensor": "BIGINT", "ts": "TIMESTAMP", "mean": "DOUBLE"},
        call,
        f"SELECT sensor, {end} AS ts, avg({value}) AS mean FROM {{readings}} GROUP BY ALL",
        keys,
        {"sqlstream": "avg", UDAF: "vector_mean", UDAF_BY_ROW: "row_mean"},
        peers=False,
    )


def _alerts(
    name: str,
    title: str,
    functions: Mapping[str, str],
    *,
    keys: int = KEYS,
    touched: int = 0,
    peers: bool = True,
) -> ProcessWork:
    inputs = {"readings": _READINGS}
    return ProcessWork(name, title, inputs, _ALERTS, _ALERT_CALL, _ALERT_DUCKDB, keys, functions, touched, peers)


_BY_ROW = {"sqlstream": "temperature_alerts"}
PROCESS_WORKS = (
    _alerts(
        "alerts",
        f"temperature alerts, {KEYS:,} keys, a value",
        {**_BY_ROW, BY_KEY: "alerts_by_key", BY_BUCKET: "alerts_by_bucket"},
    ),
    ProcessWork(
        "reconcile",
        "rides and fares, a million keys, values and timers",
        {"rides": _RIDES, "fares": _FARES},
        {"ride_id": "BIGINT", "driver": "BIGINT", "amount": "BIGINT", "ts": "TIMESTAMP"},
        """{function}(rides => TABLE rides PARTITION BY ride_id, fares => TABLE fares PARTITION BY ride_id,
            on_time => DESCRIPTOR(ts), uid => 'reconcile')""",
        "SELECT ride_id, driver, amount, coalesce(r.ts, f.ts) AS ts FROM {rides} r FULL JOIN {fares} f USING (ride_id)",
        1_000_000,
        {"sqlstream": "reconcile"},
    ),
    ProcessWork(
        "visits",
        f"visits by page, {KEYS:,} keys, a map of {PAGES} entries",
        {"visits": _VISITS},
        {"visitor": "BIGINT", "page": "BIGINT", "visits": "BIGINT"},
        "{function}(TABLE visits PARTITION BY visitor)",
        f"""SELECT visitor, page, row_number() OVER (PARTITION BY visitor, page ORDER BY arrival) AS visits
        FROM {{visits}} QUALIFY visits % {EVERY} = 0""",
        KEYS,
        {"sqlstream": "regular_visits"},
    ),
    _alerts("alerts_few", f"temperature alerts, {KEYS:,} keys, {TOUCHED:,} touched", _BY_ROW, touched=TOUCHED),
    _alerts(
        "alerts_many",
        f"temperature alerts, {MANY_KEYS:,} keys, {TOUCHED:,} touched",
        _BY_ROW,
        keys=MANY_KEYS,
        touched=TOUCHED,
        # The first batch of five million keys would take Spark a quarter of an hour.
        peers=False,
    ),
    _window_means("window_means_few", 1_000),
    _window_means("window_means_many", KEYS),
)


def process_work(name: str) -> ProcessWork:
    return next(w for w in PROCESS_WORKS if w.name == name)


def process_works_of(names: tuple[str, ...]) -> list[ProcessWork]:
    """Return the works that are meant by their own names or by that of all."""
    return [w for w in PROCESS_WORKS if w.name in names or "process" in names]
