"""Process functions that the golden scripts call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlstream import (
    Context,
    ListState,
    MapState,
    ReducingState,
    Row,
    SideOutput,
    ValueState,
    process,
    side_output,
    state,
    table,
)


@dataclass
class Reading:
    sensor: str
    temperature: float


@dataclass
class Alert:
    temperature: float
    difference: float


@process
class TemperatureAlerts:
    last: ValueState[float] = state(ttl="1 h")

    def __init__(self, threshold: float = 1.7):
        self.threshold = threshold

    def process(self, ctx: Context, reading: Reading) -> Iterator[Alert]:
        before = self.last.value
        self.last.value = reading.temperature
        if before is not None and abs(reading.temperature - before) > self.threshold:
            yield Alert(reading.temperature, reading.temperature - before)


class Visit(NamedTuple):
    pages: list[str]
    opened: dict[str, int]


@process
class Visits:
    """Emits the pages of a user who has opened none for some seconds."""

    pages: ListState[str] = state()
    opened: MapState[str, int] = state()
    clicks: ValueState[int] = state()

    def __init__(self, gap: timedelta = timedelta(seconds=10)):
        self.gap = gap

    def process(self, ctx: Context, click: Row) -> None:
        self.pages.append(click.page)
        self.opened[click.page] = self.opened.get(click.page, 0) + 1
        self.clicks.value = (self.clicks.value or 0) + 1
        ctx.count("clicks")
        ctx.timers.at(ctx.event_time + self.gap, "end")

    def on_timer(self, ctx: Context) -> Iterator[Visit]:
        yield Visit(self.pages.get(), self.opened.get_all())
        ctx.clear()


@dataclass
class Paid:
    street: str
    amount: float


@process
class Reconcile:
    street: ValueState[str] = state(ttl="1 d")
    amount: ValueState[float] = state(ttl="1 d")

    @table
    def rides(self, ctx: Context, ride: Row) -> Iterator[Paid]:
        self.street.value = ride.street
        yield from self.both(ctx)

    @table
    def fares(self, ctx: Context, fare: Row) -> Iterator[Paid]:
        self.amount.value = fare.amount
        yield from self.both(ctx)

    def both(self, ctx: Context) -> Iterator[Paid]:
        if self.street.value is not None and self.amount.value is not None:
            yield Paid(self.street.value, self.amount.value)
            ctx.clear()


@process(name="doubled_rows")
class Doubled:
    def process(self, ctx: Context, row: Row) -> list[int]:
        return [2 * row.x] if row.x else []


@process
class Reminders:
    """Emits what time it is by the clock, some seconds after a row, unless another row comes before."""

    def process(self, ctx: Context, row: Row) -> None:
        ctx.timers.after(timedelta(seconds=5), "remind")

    def on_timer(self, ctx: Context) -> Iterator[datetime]:
        yield ctx.timer.time.replace(tzinfo=None)


@process
class Inverse:
    total: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[float]:
        self.total.value = (self.total.value or 0) + row.x
        yield 1 / self.total.value


@process
class FileKinds:
    """Emits what kind of file a row comes from."""

    def process(self, ctx: Context, row: Row) -> Iterator[str]:
        yield row.file.rsplit(".")[-1]


@dataclass
class Rejected:
    reason: str
    temperature: float | None


@process
class CheckedReadings:
    """Emits readings that there can be; others in a side output, and the highest of each sensor in another one, at the end."""

    rejected: SideOutput[Rejected] = side_output()
    hottest: SideOutput[float] = side_output()
    highest: ValueState[float] = state()

    def process(self, ctx: Context, reading: Row) -> Iterator[float]:
        if reading.temperature is None or reading.temperature < -273.15:
            ctx.emit(
                "rejected", Rejected("unknown" if reading.temperature is None else "too cold", reading.temperature)
            )
            return
        yield reading.temperature
        ctx.count("checked")
        if self.highest.value is None or reading.temperature > self.highest.value:
            self.highest.value = reading.temperature
        if ctx.event_time is not None:
            ctx.timers.at(datetime.max, "end")

    def on_timer(self, ctx: Context) -> None:
        if self.highest.value is not None:
            ctx.emit("hottest", self.highest.value)


@process(name="parted")
class Parted:
    odd: SideOutput[int] = side_output()

    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        if row.x % 2:
            ctx.emit("odd", row.x)
        else:
            yield row.x


@process
class Astray:
    rejected: SideOutput[Rejected] = side_output()

    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        rows = {1: ("rejectd", row), 2: ("rejected", row), 3: ("rejected", Rejected("", "cold"))}  # type: ignore[arg-type]
        ctx.emit(*rows[row.x])
        yield row.x


@process
class Forgetful:
    """States that expire after a minute: from the last write, the last read, and one that is seen until it is cleaned up."""

    written: ValueState[int] = state(ttl="1 min")
    read: ValueState[int] = state(ttl="1 min", refresh="read")
    visible: ValueState[int] = state(ttl="1 min", visibility="until_cleaned")
    items: ListState[int] = state(ttl="1 min")
    read_items: ListState[int] = state(ttl="1 min", refresh="read")
    largest: ReducingState[int] = state(reduce=max, ttl="1 min")
    entries: MapState[str, int] = state(ttl="1 min")
    read_entries: MapState[str, int] = state(ttl="1 min", refresh="read")

    def process(self, ctx: Context, row: Row) -> Iterator[str]:
        if row.op == "set":
            self.written.value = self.read.value = self.visible.value = row.x
            self.items.append(row.x)
            self.largest.add(row.x)
            self.read_items.append(row.x)
            self.entries[f"e{row.x}"] = self.read_entries[f"e{row.x}"] = row.x
        if row.op == "show":
            values = (self.written.value, self.read.value, self.visible.value)
            lists = (self.items.get(), self.read_items.get())
            yield f"{values} {self.largest.value} {lists} {self.entries.get_all()} {self.read_entries.get_all()}"


class Noted(NamedTuple):
    n: int
    what: str


@process
class Notes:
    """Says in which order rows and timers come: a timer is set some seconds behind each row."""

    n: ValueState[int] = state()

    def __init__(self, gap: timedelta = timedelta(seconds=10)):
        self.gap = gap

    @table
    def clicks(self, ctx: Context, click: Row) -> Iterator[Noted]:
        assert ctx.event_time is not None
        assert ctx.watermark == ctx.event_time
        assert not ctx.input_ended
        ctx.timers.at(ctx.event_time + self.gap, "end")
        yield self.note(click.page)

    def on_timer(self, ctx: Context) -> Iterator[Noted]:
        yield self.note(f"{ctx.timer.name} {ctx.timer.time:%H:%M:%S}")

    def note(self, what: str) -> Noted:
        self.n.value = (self.n.value or 0) + 1
        return Noted(self.n.value, what)


@process
class BothNotes:
    """Says in which order the rows of two tables come."""

    n: ValueState[int] = state()

    @table
    def rides(self, ctx: Context, ride: Row) -> Iterator[Noted]:
        yield self.note(ride.street)

    @table
    def fares(self, ctx: Context, fare: Row) -> Iterator[Noted]:
        yield self.note(str(fare.amount))

    def note(self, what: str) -> Noted:
        self.n.value = (self.n.value or 0) + 1
        return Noted(self.n.value, what)


PROCESS_FUNCTIONS = (
    *(TemperatureAlerts, Visits, Reconcile, Doubled, Reminders, Inverse, FileKinds, Forgetful),
    *(CheckedReadings, Parted, Astray, Notes, BothNotes),
)


@dataclass
class Passed:
    value: float | None
    seen: datetime


@process
class PassedOn:
    """Emits a row for each reading."""

    def process(self, ctx: Context, reading: Row) -> Iterator[Passed]:
        yield Passed(reading.temperature, reading.ts)


@dataclass
class Told:
    what: str
    is_late: bool


@process
class LateRowsTold:
    """Says of rows, of timers that they set for their own time, and of rows of a side output whether they are late."""

    told: SideOutput[Told] = side_output()

    def process(self, ctx: Context, click: Row) -> Iterator[Told]:
        assert ctx.event_time is not None
        ctx.timers.at(ctx.event_time, click.page)
        ctx.emit("told", Told(click.page, ctx.is_late))
        yield Told(click.page, ctx.is_late)

    def on_timer(self, ctx: Context) -> Iterator[Told]:
        yield Told(f"timer of {ctx.timer.name}", ctx.is_late)


@dataclass
class Lateness:
    is_late: bool
    is_ahead: bool


@process
class Latenesses:
    """Says of each row whether it is late, and whether the watermark has reached its time."""

    def process(self, ctx: Context, row: Row) -> Iterator[Lateness]:
        assert ctx.event_time is not None
        yield Lateness(ctx.is_late, ctx.watermark is not None and ctx.watermark >= ctx.event_time)


@process
class Echoes:
    """Emits a row three seconds after each row, by a timer."""

    def process(self, ctx: Context, row: Row) -> None:
        assert ctx.event_time is not None
        ctx.timers.at(ctx.event_time + timedelta(seconds=3))

    def on_timer(self, ctx: Context) -> Iterator[Lateness]:
        yield Lateness(ctx.is_late, False)


@process
class RowsBefore:
    """Emits the row of a key before each, all columns of it."""

    last: ValueState[Row] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[Row]:
        if self.last.value is not None:
            yield self.last.value
        self.last.value = row


@process
class RidesAndFares:
    """Takes rows of two tables, which need no key."""

    @table
    def rides(self, ctx: Context, ride: Row) -> Iterator[tuple[str, int]]:
        yield ride.street, ride.ride_id

    @table
    def fares(self, ctx: Context, fare: Row) -> Iterator[tuple[str, int]]:
        yield str(fare.amount), fare.ride_id
