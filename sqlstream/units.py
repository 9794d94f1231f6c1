"""Units: the three kinds of time, and durations, byte sizes and booleans as options write them, in Flink's spelling.

Inside, every time is a whole number of microseconds. mypy tells three kinds apart, and refuses a bare int for any of them:

- EventTime: since 1970, on the scale of TIMESTAMP. Times of rows, watermarks, bounds of windows, event-time timers.
- ProcessingTime: since 1970 in UTC. Times at which a batch runs or was committed, and at which an operator is due. The clock is
  read in whole milliseconds (`now`), like Spark's, so storing a time in milliseconds loses nothing.
- Duration: a length of either. Sizes of windows, delays, lateness, times to live, timeouts, retention.

Other units are at the edges, and are converted there:

- Text of options and hints: `parse_duration`. Constant intervals in SQL: `logical.bind.expressions.intervals`.
- Spark, whose watermarks, timers and clock are milliseconds: `runtime.times`, `spark.worker` and `spark.offsets`.
- Descriptors of batches, and columns of state that are older than these types: they have no format number, and store
  processing times in milliseconds. `runtime.batches` and the operators that own such a column (`keyed_state.AT`,
  `early_results.DUE`) convert them.
- JSON records of a warehouse (manifests, log, status, job) are microseconds; what was written in milliseconds before is
  upgraded when it is read (`upgraded_times`).
- Waits of this process for something outside (a lock, a listing, a child): seconds as floats, like Python's clocks. `seconds`
  converts a Duration.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, NewType

EventTime = NewType("EventTime", int)
ProcessingTime = NewType("ProcessingTime", int)
Duration = NewType("Duration", int)

MICROSECOND: Final = Duration(1)
MILLISECOND: Final = Duration(1_000)
SECOND: Final = Duration(1_000_000)
NO_TIME: Final = Duration(0)
# Before anything was done, for clocks that go forward.
EPOCH: Final = ProcessingTime(0)
# As a watermark: later than the time of any row.
END_OF_INPUT: Final = EventTime(2**63 - 1)
_MICROSECONDS = {
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
}
# Flink's megabyte is 1024 * 1024 bytes, under either name.
_BYTES = {
    **dict.fromkeys(("b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mib", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gib", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tib", "tebibytes"), 1 << 40),
}
# So that a time and a duration add up to one that DuckDB has.
_LONGEST = Duration(1_000_000 * 86_400_000_000)
# Units of more than a second, as clocks show them.
_CLOCK = (("d", 86_400 * SECOND), ("h", 3_600 * SECOND), ("min", 60 * SECOND), ("s", SECOND))
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)


def now() -> ProcessingTime:
    """Return the time of this machine's clock."""
    return from_millis(int(time.time() * 1000))


def elapsed() -> Duration:
    """Return the time of the monotonic clock, which setting the machine's clock does not change: for lengths of time."""
    return Duration(time.monotonic_ns() // 1000)


def from_millis(millis: int) -> ProcessingTime:
    """Return the processing time that is `millis` milliseconds after 1970."""
    return ProcessingTime(millis * MILLISECOND)


def to_millis(time: ProcessingTime) -> int:
    """Return a processing time in whole milliseconds since 1970.

    >>> to_millis(from_millis(1_500))
    1500
    """
    return time // MILLISECOND


def seconds(length: Duration) -> float:
    """Return a duration in seconds, as Python's clocks count."""
    return length / SECOND


def upgraded_times(content: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the content of an old record with its fields `names` converted from milliseconds to microseconds.

    >>> upgraded_times({"state": "RUNNING", "started_at": 5, "ended_at": None}, ("started_at", "ended_at"))
    {'state': 'RUNNING', 'started_at': 5000, 'ended_at': None}
    """
    old = {name: content[name] for name in names if content.get(name) is not None}
    return {**content, **{name: millis * MILLISECOND for name, millis in old.items()}}


def parse_duration(text: str, *, unit: str | None = "ms") -> Duration:
    """Return the duration. A number without a unit counts milliseconds, as in Flink's options; with `unit=None` it is refused.

    Raises ValueError with a message for people.

    >>> parse_duration("1 s"), parse_duration("500")
    (1000000, 500000)
    """
    length = _quantity(text, _MICROSECONDS, "a duration, such as 500 ms, 1 s, 2 min, 1 h or 1 d", unit)
    if length > _LONGEST:
        raise ValueError(f'"{text}" is longer than {duration(_LONGEST)}')
    return Duration(length)


class VersionRetention(NamedTuple):
    """How long old versions stay readable: for `time` and for `batches`, whichever is longer."""

    time: Duration
    batches: int


# How many batches stay readable if a retention is only a time.
RETAINED_BATCHES = 100
# A job that a power cut has damaged goes back by some batches.
FEWEST_BATCHES = 10
_MOST_BATCHES = 10**9


def parse_version_retention(text: str) -> VersionRetention:
    """Return the retention in a text: a duration, a number of batches, or both.

    A duration alone also retains RETAINED_BATCHES batches. Raises ValueError with a message for people.

    >>> parse_version_retention("1 s"), parse_version_retention("500 batches")
    (VersionRetention(time=1000000, batches=100), VersionRetention(time=0, batches=500))
    >>> parse_version_retention("1 s, 20 batches")
    VersionRetention(time=1000000, batches=20)
    """
    time, _, counted = (part.strip() for part in text.rpartition(","))
    match = re.fullmatch(r"(\d+)\s*batches", counted.lower())
    if match is None:
        # A number alone could be one of batches.
        return VersionRetention(parse_duration(text, unit=None), RETAINED_BATCHES)
    if not FEWEST_BATCHES <= int(match[1]) <= _MOST_BATCHES:
        raise ValueError(f"needs a number of batches from {FEWEST_BATCHES} to {_MOST_BATCHES}")
    return VersionRetention(parse_duration(time, unit=None) if time else NO_TIME, int(match[1]))


def duration_of(length: object) -> Duration:
    """Return the duration of a `timedelta`. Raises TypeError for anything else, and ValueError for one that is negative."""
    if not isinstance(length, dt.timedelta):
        raise TypeError(f"{length!r} ({type(length).__qualname__}) is not a duration")
    if length < dt.timedelta():
        raise ValueError(f"{length} is negative")
    return Duration(length // dt.timedelta(microseconds=1))


def duration(length: Duration) -> str:
    """Return a length of time in words, in the largest unit that divides it.

    >>> duration(Duration(90_000_000)), duration(Duration(3_600_000_000)), duration(Duration(1500))
    ('90 s', '1 h', '1.5 ms')
    """
    for unit, micros in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
        if length % micros == 0:
            return f"{length // micros} {unit}"
    return f"{length / 1000:g} ms" if length < 1_000_000 else f"{length / 1_000_000:.6f}".rstrip("0") + " s"


def rounded_duration(length: Duration) -> str:
    """Return a length of time in words: rounded, in its two largest units, or in one unit below a minute.

    >>> rounded_duration(Duration(283_511_034)), rounded_duration(Duration(3_000_000_000)), rounded_duration(Duration(1_500_000))
    ('4 min 44 s', '50 min', '1.5 s')
    >>> rounded_duration(Duration(90_061_000_000)), rounded_duration(Duration(59_960_000)), rounded_duration(Duration(20))
    ('1 d 1 h', '1 min', '0.02 ms')
    """
    if length < SECOND:
        return f"{length / MILLISECOND:.3g} ms"
    if length < 59_950_000:
        return f"{length / SECOND:.1f}".removesuffix(".0") + " s"
    index = next(i for i, (name, step) in enumerate(_CLOCK) if length >= step or name == "min")
    (name, step), (smaller, part) = _CLOCK[index : index + 2]
    count, rest = divmod(round(length / part) * part, step)
    return f"{count} {name}" + (f" {rest // part} {smaller}" if rest else "")


def parse_bytes(text: str, *, unit: str | None = "b") -> int:
    """Return the number of bytes. A number without a unit counts bytes, as in Flink's options; with `unit=None` it is refused.

    Raises ValueError with a message for people.

    >>> parse_bytes("128 MB"), parse_bytes("4096")
    (134217728, 4096)
    """
    return _quantity(text, _BYTES, "a size, such as 64 kb, 128 MB or 1 GiB", unit)


def parse_boolean(text: str) -> bool:
    """Return the truth of `true` or `false`, in any case. Raises ValueError with a message for people."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(f'"{text}" is not true or false')


def parse_count(text: str) -> int:
    """Return a whole number of at least 1. Raises ValueError with a message for people."""
    if not re.fullmatch(r"\s*0*[1-9]\d*\s*", text):
        raise ValueError(f'"{text}" is not a whole number of at least 1')
    return int(text)


def _quantity(text: str, units: dict[str, int], expected: str, default: str | None) -> int:
    match = _QUANTITY.fullmatch(text)
    if match:
        number, unit = float(match[1]), match[2].lower() or default or ""
        if unit in units:
            return round(number * units[unit])
        if not unit and number == 0:
            return 0
    raise ValueError(f'"{text}" is not {expected}')
