"""The works as `StatefulProcessor`s of Spark's `transformWithState` in Python: row by row, and with pandas.

A call to the state is a round trip to the JVM: the code makes as few of them as it can. Each process of Python speaks to it by a
Unix socket. State is in RocksDB, the only store that Spark takes for this.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tests.bench import plain_spark
from tests.bench.data import DELAY_SECONDS
from tests.bench.process.work import EVERY, OUTPUT, PATIENCE_SECONDS, THRESHOLD, ProcessWork

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Of `Row`s, or of frames.
Rows = Iterator[Any]
ROWS, PANDAS = "Spark, rows", "Spark, pandas"
SYSTEMS = (ROWS, PANDAS)
_PATIENCE = dt.timedelta(seconds=PATIENCE_SECONDS)
_EPOCH = dt.datetime(1970, 1, 1)
_MILLISECOND = dt.timedelta(milliseconds=1)


class Alerts(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.last = handle.getValueState("last", "temperature DOUBLE")

    def handleInputRows(self, key: Any, rows: Rows, timerValues: Any) -> Rows:
        found = self.last.get()
        last = found[0] if found else None
        for row in rows:
            temperature = row.temperature
            if last is not None and abs(temperature - last) > THRESHOLD:
                yield Row(sensor=key[0], temperature=temperature, difference=temperature - last)
            last = temperature
        self.last.update((last,))

    def close(self) -> None:
        pass


class AlertsOfFrames(Alerts):
    def handleInputRows(self, key: Any, rows: Rows, timerValues: Any) -> Rows:
        found = self.last.get()
        last = found[0] if found else float("nan")
        for frame in rows:
            temperatures = frame["temperature"].to_numpy()
            differences = temperatures.copy()
            differences[0] -= last
            differences[1:] -= temperatures[:-1]
            last = float(temperatures[-1])
            is_alert = abs(differences) > THRESHOLD
            if is_alert.any():
                columns = {"temperature": temperatures[is_alert], "difference": differences[is_alert]}
                yield pd.DataFrame({"sensor": key[0], **columns})
        self.last.update((last,))


class Reconcile(StatefulProcessor):
    """Rides have a driver, fares an amount: a row of both inputs has the other one's column empty."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.waiting = handle.getValueState("waiting", "driver BIGINT, amount BIGINT, ts TIMESTAMP")

    def handleInputRows(self, key: Any, rows: Rows, timerValues: Any) -> Rows:
        found = self.waiting.get()
        stored = found is not None
        for row in rows:
            if found is None:
                found = (row.driver, row.amount, row.ts)
                continue
            driver, amount, ts = found
            if stored:
                self.waiting.clear()
                self.handle.deleteTimer(_due(ts))
            if row.driver is None:
                yield Row(ride_id=key[0], driver=driver, amount=row.amount, ts=ts)
            else:
                yield Row(ride_id=key[0], driver=row.driver, amount=amount, ts=row.ts)
            found, stored = None, False
        if found is not None and not stored:
            self.waiting.update(found)
            self.handle.registerTimer(_due(found[2]))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Rows:
        found = self.waiting.get()
        if found is not None:
            yield Row(ride_id=key[0], driver=found[0], amount=found[1], ts=found[2])
            self.waiting.clear()

    def close(self) -> None:
        pass


class ReconcileFrames(Reconcile):
    def handleInputRows(self, key: Any, rows: Rows, timerValues: Any) -> Rows:
        # A key has two rows at most: pandas has nothing to gain from them.
        each = (
            Row(driver=_integer(driver), amount=_integer(amount), ts=ts.to_pydatetime())
            for frame in rows
            for driver, amount, ts in zip(frame["driver"], frame["amount"], frame["ts"], strict=True)
        )
        for row in super().handleInputRows(key, each, timerValues):
            yield _frame(row)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Rows:
        for row in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield _frame(row)


class Visits(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.visits = handle.getMapState("visits", "page BIGINT", "visits BIGINT")

    def handleInputRows(self, key: Any, rows: Rows, timerValues: Any) -> Rows:
        for page, visits in self._counted(row.page for row in rows):
            yield Row(visitor=key[0], page=page, visits=visits)

    def _counted(self, pages: Iterator[int]) -> Iterator[tuple[int, int]]:
        counts: dict[int, int] = {}
        for page in pages:
            if page not in counts:
                found = self.visits.getValue((page,))
                counts[page] = found[0] if found else 0
            counts[page] += 1
            if counts[page] % EVERY == 0:
                yield page, counts[page]
        for page, visits in counts.items():
            self.visits.updateValue((page,), (visits,))

    def close(self) -> None:
        pass


class VisitsOfFrames(Visits):
    def handleInputRows(self, key: Any, rows: Rows, timerValues: Any) -> Rows:
        found = list(self._counted(int(page) for frame in rows for page in frame["page"]))
        if found:
            yield pd.DataFrame(found, columns=["page", "visits"]).assign(visitor=key[0])[["visitor", "page", "visits"]]


_PROCESSORS = {
    "alerts": (Alerts, AlertsOfFrames),
    "alerts_few": (Alerts, AlertsOfFrames),
    "alerts_many": (Alerts, AlertsOfFrames),
    "reconcile": (Reconcile, ReconcileFrames),
    "visits": (Visits, VisitsOfFrames),
}


def _due(ts: dt.datetime) -> int:
    # Rows come with the time zone UTC, state and frames without any.
    return (ts.replace(tzinfo=None) + _PATIENCE - _EPOCH) // _MILLISECOND


def _integer(value: Any) -> int | None:
    return None if value is None or pd.isna(value) else int(value)


def _frame(row: Row) -> pd.DataFrame:
    return pd.DataFrame([row.asDict()])


def run(work: ProcessWork, data: Path, folder: Path, cores: int, *, pandas: bool) -> None:
    """Run a work over all files, one per core and input in a batch, into Parquet files."""
    settings = {"spark.python.unix.domain.socket.enabled": "true"}
    session = plain_spark.session(cores, rocksdb=True, settings=settings)
    rows = _rows(session, work, data, cores).groupBy(work.key)
    transform = rows.transformWithStateInPandas if pandas else rows.transformWithState
    processor = _PROCESSORS[work.name][1 if pandas else 0]()
    output = ", ".join(f"{name} {type}" for name, type in work.columns.items())
    emitted = transform(processor, output, "Append", "EventTime" if work.timed else "None")
    writer = emitted.writeStream.format("parquet").outputMode("append")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start(str(folder / OUTPUT)).awaitTermination()
    session.stop()


def _rows(session: SparkSession, work: ProcessWork, data: Path, cores: int) -> DataFrame:
    """Return the rows of all inputs; of two, those of one have no value in the columns of the other."""
    found: DataFrame | None = None
    for name, columns in work.inputs.items():
        schema = ", ".join(f"{column} {type}" for column, type in columns.items())
        rows = session.readStream.schema(schema).option("maxFilesPerTrigger", cores).parquet(f"{data}/{name}")
        if not work.timed:
            rows = rows.drop("ts")
        found = rows if found is None else found.unionByName(rows, allowMissingColumns=True)
    assert found is not None
    return found.withWatermark("ts", f"{DELAY_SECONDS} seconds") if work.timed else found
