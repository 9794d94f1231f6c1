"""One job of PyFlink's DataStream API from start to end, in Flink's own virtual environment, which has nothing of ours.

PYTHONPATH=../../.. python flink_job.py '{"job": "alerts", "settings": {..}, "statements": [..], ...}'
prints the seconds, and how many rows its sources had read when, as JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyflink.common import Configuration, Row, Types
from pyflink.datastream import KeyedCoProcessFunction, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor
from pyflink.table import StreamTableEnvironment

from tests.bench.flink_progress import Progress

Task = dict[str, Any]
_ALERT = Types.ROW_NAMED(["sensor", "temperature", "difference"], [Types.LONG(), Types.DOUBLE(), Types.DOUBLE()])
_RIDE = Types.ROW_NAMED(["ride_id", "driver", "amount", "millis"], [Types.LONG()] * 4)
_VISITS = Types.ROW_NAMED(["visitor", "page", "visits"], [Types.LONG()] * 3)


class Alerts(KeyedProcessFunction):  # type: ignore[misc]
    def __init__(self, threshold: float):
        self.threshold = threshold

    def open(self, context: RuntimeContext) -> None:
        self.last = context.get_state(ValueStateDescriptor("last", Types.DOUBLE()))

    def process_element(self, value: Row, context: Any) -> Iterator[Row]:
        sensor, temperature = value
        last = self.last.value()
        self.last.update(temperature)
        if last is not None and abs(temperature - last) > self.threshold:
            yield Row(sensor, temperature, temperature - last)


class Reconcile(KeyedCoProcessFunction):  # type: ignore[misc]
    """A ride and a fare of one key wait for each other."""

    def __init__(self, patience_millis: int):
        self.patience = patience_millis

    def open(self, context: RuntimeContext) -> None:
        waiting = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.ride = context.get_state(ValueStateDescriptor("ride", waiting))
        self.fare = context.get_state(ValueStateDescriptor("fare", waiting))

    def process_element1(self, value: Row, context: Any) -> Iterator[Row]:
        ride_id, driver, _ = value
        millis = context.timestamp()
        fare = self.fare.value()
        if fare is None:
            self.ride.update((driver, millis))
            context.timer_service().register_event_time_timer(millis + self.patience)
        else:
            self.fare.clear()
            context.timer_service().delete_event_time_timer(fare[1] + self.patience)
            yield Row(ride_id, driver, fare[0], millis)

    def process_element2(self, value: Row, context: Any) -> Iterator[Row]:
        ride_id, amount, _ = value
        millis = context.timestamp()
        ride = self.ride.value()
        if ride is None:
            self.fare.update((amount, millis))
            context.timer_service().register_event_time_timer(millis + self.patience)
        else:
            self.ride.clear()
            context.timer_service().delete_event_time_timer(ride[1] + self.patience)
            yield Row(ride_id, ride[0], amount, ride[1])

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Row]:
        if (ride := self.ride.value()) is not None:
            self.ride.clear()
            yield Row(context.get_current_key(), ride[0], None, ride[1])
        if (fare := self.fare.value()) is not None:
            self.fare.clear()
            yield Row(context.get_current_key(), None, fare[0], fare[1])


class Visits(KeyedProcessFunction):  # type: ignore[misc]
    def __init__(self, every: int):
        self.every = every

    def open(self, context: RuntimeContext) -> None:
        self.visits = context.get_map_state(MapStateDescriptor("visits", Types.LONG(), Types.LONG()))

    def process_element(self, value: Row, context: Any) -> Iterator[Row]:
        visitor, page = value
        visits = (self.visits.get(page) or 0) + 1
        self.visits.put(page, visits)
        if visits % self.every == 0:
            yield Row(visitor, page, visits)


def _first(row: Row) -> Any:
    return row[0]


def alerts(tables: StreamTableEnvironment, task: Task) -> Any:
    readings = tables.to_data_stream(tables.sql_query("SELECT sensor, temperature FROM readings"))
    return readings.key_by(_first, Types.LONG()).process(Alerts(task["threshold"]), _ALERT)


def reconcile(tables: StreamTableEnvironment, task: Task) -> Any:
    rides, fares = (tables.to_data_stream(tables.from_path(name)) for name in ("rides", "fares"))
    both = rides.key_by(_first, Types.LONG()).connect(fares.key_by(_first, Types.LONG()))
    return both.process(Reconcile(task["patience_millis"]), _RIDE)


def visits(tables: StreamTableEnvironment, task: Task) -> Any:
    rows = tables.to_data_stream(tables.sql_query("SELECT visitor, page FROM visits"))
    return rows.key_by(_first, Types.LONG()).process(Visits(task["every"]), _VISITS)


JOBS = {"alerts": alerts, "reconcile": reconcile, "visits": visits}


def main(task: Task) -> None:
    configuration, progress = Configuration(), Progress()
    for name, value in (task["settings"] | progress.settings).items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    tables = StreamTableEnvironment.create(environment)
    progress.begin()
    for statement in task["statements"]:
        tables.execute_sql(statement)
    emitted = tables.from_data_stream(JOBS[task["job"]](tables, task))
    if task["job"] == "reconcile":
        emitted = tables.sql_query(f"SELECT ride_id, driver, amount, TO_TIMESTAMP_LTZ(millis, 3) AS ts FROM {emitted}")
    emitted.execute_insert(task["output"]).wait()
    print(json.dumps(progress.end()))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
