"""What the methods of a process function are told, and what they can ask for: time, timers, counters."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol

# What `ctx.event_time` is without `on_time`. Its type is that of calls which have one: no method need ask for None first.
NO_EVENT_TIME: Any = None

EPOCH = dt.datetime(1970, 1, 1)
_INSTANT = EPOCH.replace(tzinfo=dt.UTC)


class Timer(NamedTuple):
    """A timer of a key: its name (empty: it has none), when it is due, and by which clock.

    An event time has no time zone, a processing time is in UTC.
    """

    name: str
    time: dt.datetime
    is_event_time: bool


class Timers(Protocol):
    """The timers of the current key. One without a name is told by its time: to set it twice sets it once.

    To set one with the name of another replaces that.
    """

    def at(self, time: dt.datetime, name: str = "") -> None:
        """Call `on_timer` when the watermark reaches an event time; one in the past is due after this key's rows."""

    def at_processing_time(self, time: dt.datetime, name: str = "") -> None:
        """Call `on_timer` when the clock has reached a time."""

    def after(self, delay: dt.timedelta, name: str = "") -> None:
        """Call `on_timer` when the clock is so far beyond the time of this batch."""

    def delete(self, timer: str | dt.datetime) -> None:
        """Delete the timer of a name, or the one without a name that is due at a time, if there is one."""

    def clear(self) -> None:
        """Delete all timers of the key."""

    def list(self) -> list[Timer]:
        """Return the timers of the key, in the order of their times."""


class Context:
    """What the methods of a process function get with every row, and with every timer."""

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
    # The event time of the row, or that for which the timer is due. It is None without `on_time`, which a class that asks for
    # it has: so type checkers need no assertion.
    event_time: dt.datetime
    # How far event time has come: None before the first row.
    watermark: dt.datetime | None
    # The time of the batch, in UTC.
    processing_time: dt.datetime
    # Whether all of a bounded input has come: the watermark is then at the end of time.
    input_ended: bool
    # Whether the row is taken away, of a table that changes.
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
        # What tells whether the row is late, None where none can be.
        self._is_late: Callable[[], bool] | None = None

    @property
    def is_late(self) -> bool:
        """Whether the watermark was beyond the event time of the row before the row came, or a row set this timer behind it.

        What is emitted now is then late for windows above. It is never so with ORDER BY, without `on_time`, and in vectorized
        methods.
        """
        return self._is_late is not None and self._is_late()

    @property
    def key(self) -> Any:
        """The value of the partition column; a tuple where there are several, None without PARTITION BY."""
        return self._key

    def clear(self) -> None:
        """Forget all state and all timers of the current key."""
        self._clear()

    def emit(self, output: str, row: Any) -> None:
        """Emit a row of a side output: `ctx.emit("rejected", Rejected(..))`, for the time that a yielded row would have."""
        self._emit(output, row)

    def for_each_key(self, method: Callable[..., Any], *arguments: Any) -> None:
        """Call `method(ctx, *arguments)` for each key that has state or timers: `ctx.for_each_key(self.renew, rule)`.

        Methods of broadcast tables do so. The calls come once the method has returned; what they yield is emitted for the key.
        """
        raise RuntimeError("only methods of broadcast tables visit all keys; here there is one: ctx.key")

    def retract(self, row: Any = None) -> None:
        """Take a row away that was emitted; of a class that emits upserts, the row of the current key."""
        if self._retract is None:
            raise RuntimeError('only a class with @process(changelog_mode="retract"), or "upsert", takes rows away')
        self._retract(row)

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter of a name, which `sqlstream.operators` shows."""
        self._count(name, number)


class BroadcastContext(Context):
    """What methods of broadcast tables get: there is no key, so there are no timers; all keys can be visited."""

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
    """Return an event time as microseconds; an instant counts as it is in UTC."""
    since = time - (EPOCH if time.tzinfo is None else _INSTANT)
    # A division by a microsecond would take twice as long.
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def event_datetime(micros: int) -> dt.datetime:
    """Return microseconds as an event time; what is beyond Python's is its last moment."""
    try:
        return EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return dt.datetime.max if micros > 0 else dt.datetime.min


def instant_micros(time: dt.datetime) -> int:
    """Return a processing time as microseconds; one without a zone is in UTC."""
    return event_micros(time)


def instant(micros: int) -> dt.datetime:
    """Return microseconds as a processing time."""
    return event_datetime(micros).replace(tzinfo=dt.UTC)
