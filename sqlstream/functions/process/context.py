"""The context of the methods of a process function: time, timers, counters, outputs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol

# `ctx.event_time` without `on_time`. The attribute's type ignores it, so that methods need not check for None first.
NO_EVENT_TIME: Any = None

EPOCH = dt.datetime(1970, 1, 1)
_INSTANT = EPOCH.replace(tzinfo=dt.UTC)


class Timer(NamedTuple):
    """A timer of a key: its name (empty: none), its time, and whether that is an event time or a processing time.

    An event time has no time zone, a processing time is in UTC.
    """

    name: str
    time: dt.datetime
    is_event_time: bool


class Timers(Protocol):
    """The timers of the current key. A timer without a name is identified by its time: setting it twice sets it once.

    A timer with a name replaces the timer of that name.
    """

    def at(self, time: dt.datetime, name: str = "") -> None:
        """Call `on_timer` when the watermark reaches an event time; a past one is due after the rows of this key."""

    def at_processing_time(self, time: dt.datetime, name: str = "") -> None:
        """Call `on_timer` when the clock reaches a time."""

    def after(self, delay: dt.timedelta, name: str = "") -> None:
        """Call `on_timer` when the clock reaches the time of this batch plus the delay."""

    def delete(self, timer: str | dt.datetime) -> None:
        """Delete the timer with a name, or the unnamed timer at a time, if there is one."""

    def clear(self) -> None:
        """Delete all timers of the key."""

    def list(self) -> list[Timer]:
        """Return the timers of the key, in the order of their times."""


class Context:
    """The context that methods of a process function receive with each row, and with each timer."""

    __slots__ = (
        "_clear",
        "_count",
        "_emit",
        "_is_late",
        "_key",
        "_retract",
        "event_time",
        "input_ended",
        "is_retraction",
        "processing_time",
        "timer",
        "timers",
        "watermark",
    )

    # The values of the key columns: one value, or a tuple of several.
    _key: Any
    # The event time of the row or of the timer. It is None without `on_time`. A class that uses it is called with `on_time`, so
    # the type leaves None out.
    event_time: dt.datetime
    # The watermark; None before the first row.
    watermark: dt.datetime | None
    # The time of the batch, in UTC.
    processing_time: dt.datetime
    # Whether all of a bounded input was read: the watermark is then at the end of time.
    input_ended: bool
    # Whether the row is a retraction, of a table that changes.
    is_retraction: bool
    # The timer for which `on_timer` is called.
    timer: Timer
    timers: Timers

    def __init__(
        self,
        timers: Timers,
        clear: Callable[[], None],
        count: Callable[[str, int], None],
        emit: Callable[[str, Any], None],
        retract: Callable[[Any], None] | None = None,
    ):
        self.timers, self._clear, self._count, self._emit = timers, clear, count, emit
        self._key = self.watermark = None
        self.event_time = NO_EVENT_TIME
        self.input_ended = self.is_retraction = False
        self._retract = retract
        # Returns whether the row is late; None if no row can be late.
        self._is_late: Callable[[], bool] | None = None

    @property
    def is_late(self) -> bool:
        """Whether the row came after the watermark had passed its event time; of a timer: whether a row set it that late.

        If so, rows that are emitted now are late for windows that read them. It is always False with ORDER BY, without `on_time`,
        and in vectorized methods.
        """
        return self._is_late is not None and self._is_late()

    @property
    def key(self) -> Any:
        """The value of the partition column; a tuple if there are several, None without PARTITION BY."""
        return self._key

    def clear(self) -> None:
        """Delete all state and all timers of the current key."""
        self._clear()

    def emit(self, output: str, row: Any) -> None:
        """Emit a row to a side output: `ctx.emit("rejected", Rejected(..))`, with the event time of a yielded row."""
        self._emit(output, row)

    def for_each_key(self, method: Callable[..., Any], *arguments: Any) -> None:
        """Call `method(ctx, *arguments)` for each key that has state or timers: `ctx.for_each_key(self.renew, rule)`.

        Only methods of broadcast tables can do this; in others it raises RuntimeError. The calls happen once the calling method
        has returned. The rows that they yield are emitted for the key.
        """
        raise RuntimeError("only methods of broadcast tables visit all keys; here there is one: ctx.key")

    def retract(self, row: Any = None) -> None:
        """Retract an emitted row; with upserts, delete the current key's row. Raises RuntimeError without a changelog mode."""
        if self._retract is None:
            raise RuntimeError('only a class with @process(changelog_mode="retract"), or "upsert", takes rows away')
        self._retract(row)

    def count(self, name: str, number: int = 1) -> None:
        """Add `number` to the counter `name`, which the table `sqlstream.operators` shows."""
        self._count(name, number)


class BroadcastContext(Context):
    """The context of methods of broadcast tables: it has no key and no timers, but can visit all keys."""

    __slots__ = ("_visit",)

    def __init__(
        self,
        count: Callable[[str, int], None],
        emit: Callable[[str, Any], None],
        visit: Callable[[Callable[..., Any], tuple[Any, ...]], None],
    ):
        super().__init__(_NoTimers(), _clear_nothing, count, emit, _retract_nothing)
        self._visit = visit

    def for_each_key(self, method: Callable[..., Any], *arguments: Any) -> None:
        self._visit(method, arguments)

    @property
    def key(self) -> Any:
        """Raises RuntimeError: there is no key."""
        raise _without_key("ctx.key")


class _NoTimers:
    """The timers of no key."""

    def __getattr__(self, name: str) -> Any:
        raise _without_key(f"ctx.timers.{name}")


def _clear_nothing() -> NoReturn:
    raise _without_key("ctx.clear()")


def _retract_nothing(row: Any) -> NoReturn:
    raise _without_key("ctx.retract(..)")


def _without_key(what: str) -> RuntimeError:
    return RuntimeError(f"{what} needs a key, and rows of a broadcast table have none")


def event_micros(time: dt.datetime) -> int:
    """Return an event time as microseconds since 1970; a time with a zone counts in UTC."""
    since = time - (EPOCH if time.tzinfo is None else _INSTANT)
    # A division by a microsecond would take twice as long.
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def event_datetime(micros: int) -> dt.datetime:
    """Return microseconds since 1970 as an event time; Python's first or last moment if that is beyond its range."""
    try:
        return EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return dt.datetime.max if micros > 0 else dt.datetime.min


def instant_micros(time: dt.datetime) -> int:
    """Return a processing time as microseconds since 1970; a time without a zone is in UTC."""
    return event_micros(time)


def instant(micros: int) -> dt.datetime:
    """Return microseconds since 1970 as a processing time in UTC; beyond Python's range as `event_datetime`."""
    return event_datetime(micros).replace(tzinfo=dt.UTC)
