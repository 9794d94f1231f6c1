"""The works as process functions of sqlstream: a file of a user's project."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream import Context, MapState, ValueState, process, state, table, udaf

PATIENCE = dt.timedelta(seconds=10)
EVERY = 3


class Reading(NamedTuple):
    sensor: int
    temperature: float


class Alert(NamedTuple):
    temperature: float
    difference: float


@process
class TemperatureAlerts:
    """Emits a reading that differs from the last one of its sensor by more than `threshold`."""

    last: ValueState[float] = state()

    def __init__(self, threshold: float):
        self.threshold = threshold

    def process(self, ctx: Context, readings: Reading) -> Iterator[Alert]:
        last, temperature = self.last.value, readings.temperature
        self.last.value = temperature
        if last is not None and abs(temperature - last) > self.threshold:
            yield Alert(temperature, temperature - last)


@process(vectorized=True, emits=Alert)
class AlertsByKey:
    """The same over the rows of a key as a table."""

    last: ValueState[float] = state()

    def __init__(self, threshold: float):
        self.threshold = threshold

    def process(self, ctx: Context, readings: Annotated[pa.Table, Reading]) -> pa.Table | None:
        temperatures = readings["temperature"].to_numpy()
        before = np.empty_like(temperatures)
        before[0], before[1:] = self.last.value, temperatures[:-1]
        self.last.value = float(temperatures[-1])
        differences = temperatures - before
        is_alert = np.abs(differences) > self.threshold
        if not is_alert.any():
            return None
        return pa.table({"temperature": temperatures[is_alert], "difference": differences[is_alert]})


@process(vectorized="bucket", emits=Alert, ordered=True)
class AlertsByBucket:
    """The same over the rows of all keys of a bucket: they come by key, and the state has a row for each, in that order."""

    last: ValueState[float] = state()

    def __init__(self, threshold: float):
        self.threshold = threshold

    def process(
        self, ctx: Context, readings: Annotated[pa.Table, Reading], state: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        sensors, temperatures = readings["sensor"].to_numpy(), readings["temperature"].to_numpy()
        firsts = np.flatnonzero(np.append(True, sensors[1:] != sensors[:-1]))
        before = np.empty_like(temperatures)
        before[1:] = temperatures[:-1]
        before[firsts] = state["last"].to_numpy()
        differences = temperatures - before
        is_alert = np.abs(differences) > self.threshold
        alerts = {"temperature": temperatures[is_alert], "difference": differences[is_alert]}
        lasts = np.append(firsts[1:], len(temperatures)) - 1
        kept = pa.table({"sensor": state["sensor"], "last": temperatures[lasts]})
        return pa.table({"sensor": sensors[is_alert], **alerts}), kept


class Ride(NamedTuple):
    driver: int
    ts: dt.datetime


class Fare(NamedTuple):
    amount: int
    ts: dt.datetime


class Reconciled(NamedTuple):
    driver: int | None
    amount: int | None
    ts: dt.datetime


@process
class Reconcile:
    """A ride and a fare wait for each other; what has waited in vain is emitted alone."""

    ride: ValueState[Ride] = state()
    fare: ValueState[Fare] = state()

    @table
    def rides(self, ctx: Context, ride: Ride) -> Iterator[Reconciled]:
        fare = self.fare.value
        if fare is None:
            self.ride.value = ride
            ctx.timers.at(ride.ts + PATIENCE)
        else:
            ctx.clear()
            yield Reconciled(ride.driver, fare.amount, ride.ts)

    @table
    def fares(self, ctx: Context, fare: Fare) -> Iterator[Reconciled]:
        ride = self.ride.value
        if ride is None:
            self.fare.value = fare
            ctx.timers.at(fare.ts + PATIENCE)
        else:
            ctx.clear()
            yield Reconciled(ride.driver, fare.amount, ride.ts)

    def on_timer(self, ctx: Context) -> Iterator[Reconciled]:
        ride, fare = self.ride.value, self.fare.value
        ctx.clear()
        if ride is not None:
            yield Reconciled(ride.driver, None, ride.ts)
        if fare is not None:
            yield Reconciled(None, fare.amount, fare.ts)


class Visit(NamedTuple):
    page: int


class Regular(NamedTuple):
    page: int
    visits: int


@process
class RegularVisits:
    """Emits every third visit of a visitor to a page."""

    visits_of: MapState[int, int] = state()

    def process(self, ctx: Context, visits: Visit) -> Iterator[Regular]:
        page = visits.page
        count = self.visits_of.get(page, 0) + 1
        self.visits_of[page] = count
        if count % EVERY == 0:
            yield Regular(page, count)


@dataclass(slots=True)
class Sums:
    total: int = 0
    n: int = 0


@udaf
class RowMean:
    """A mean, row by row."""

    def accumulate(self, acc: Sums, x: int) -> None:
        acc.total += x
        acc.n += 1

    def merge(self, acc: Sums, other: Sums) -> None:
        acc.total += other.total
        acc.n += other.n

    def finish(self, acc: Sums) -> float | None:
        return acc.total / acc.n if acc.n else None


@udaf(vectorized=True, accumulator=Sums, returns="DOUBLE", parameters={"x": "BIGINT"})
class VectorMean:
    """The same over the rows of many groups."""

    def accumulate(self, groups: pa.Array, x: pa.Array) -> pa.Table:
        return self.sums(groups, pa.table({"total": x, "n": pa.repeat(1, len(x))}))

    def merge(self, groups: pa.Array, accumulators: pa.Table) -> pa.Table:
        return self.sums(groups, accumulators)

    def finish(self, accumulators: pa.Table) -> pa.Array:
        return pc.divide(accumulators["total"].cast(pa.float64()), accumulators["n"].cast(pa.float64()))

    def sums(self, groups: pa.Array, rows: pa.Table) -> pa.Table:
        """Add up rows per group: groups are whole stretches of rows."""
        starts = np.flatnonzero(np.diff(groups.to_numpy(), prepend=-1))
        return pa.table({name: np.add.reduceat(rows[name].to_numpy(), starts) for name in ("total", "n")})
