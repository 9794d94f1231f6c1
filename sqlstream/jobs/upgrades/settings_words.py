"""The settings of operators in words for people. The words follow from the values, and are never compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from sqlstream.jobs.upgrades.arrival import declared_order
from sqlstream.logical.plan.month_windows import months_text, offset_text
from sqlstream.logical.plan.state_settings import (
    AnyState,
    CalendarWindows,
    EarlyFiring,
    FrameReach,
    GridWindows,
    Interval,
    RowWindows,
    SessionWindows,
    Sql,
    WindowBounds,
    Windows,
)
from sqlstream.units import Duration, duration

# The fields with times to live.
TTLS = ("ttl", "ttls", "state_ttls")
# The setting that says whether the order of arrival decides ties; of a process function "ties of input 0".
TIES = "ties"


@dataclass(frozen=True, slots=True)
class StateSetting:
    """A setting: the field with its value, the value, and the value in words."""

    field: str
    value: object
    words: str


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A setting whose value differs: its field, and in words its name and both values, "" for a value that is not set."""

    field: str
    name: str
    before: str
    after: str

    @property
    def gains_arrival(self) -> bool:
        """Whether the order of arrival decides ties, and columns did before."""
        return self.name.startswith(TIES) and not self.before


def changed_settings(old: AnyState, new: AnyState) -> Iterator[ChangedSetting]:
    """Yield the settings of two operators of one kind whose values differ."""
    before, after = _by_name(old), _by_name(new)
    for name in dict.fromkeys((*before, *after)):
        pair = before.get(name), after.get(name)
        there = [one for one in pair if one is not None]
        if len(there) < len(pair) or there[0].value != there[1].value:
            words = (one.words if one is not None else "" for one in pair)
            yield ChangedSetting(there[0].field, name, *words)


def _by_name(settings: AnyState) -> Mapping[str, StateSetting]:
    """Return the settings by their names for people, without those that are not set."""
    return {
        name: StateSetting(field.name, value, words)
        for field in structs.fields(settings)
        for name, value, words in _parts(settings, field.name)
        if words
    }


def _parts(settings: AnyState, field: str) -> Iterator[tuple[str, object, str]]:
    """Yield the settings of a field: names, values and words."""
    value: Any = getattr(settings, field)
    match field:
        case "changing":
            for index in value:
                yield f"changes of input {index}" if settings.has_inputs else "changes below", True, "yes"
        case "ttls":
            for index, ttl in value:
                yield f"time to live of input {index}", ttl, _length(ttl)
        case "state_ttls":
            for name, ttl in value:
                yield f"time to live of {name}", ttl, _length(ttl)
        case "times":
            for index, time in enumerate(value):
                yield f"time of input {index}", time, time.text
        case "inputs":
            for index, one in value:
                yield f"order of input {index}", one.order, _sql_list(one.order)
                yield f"time of input {index}", one.time, one.time.text if one.time is not None else ""
                yield f"broadcast of input {index}", one.broadcast, _yes(one.broadcast)
                yield f"{TIES} of input {index}", one.ties, _ties(one.ties)
        case "order":
            ordered = declared_order(value)
            yield "order", ordered, _sql_list(ordered)
            yield TIES, "arrival", "by arrival" if len(ordered) < len(value) else ""
        case _:
            name, words = _FIELDS[field]
            yield name, value, words(value) if value is not None else ""


def windows_words(windows: Iterable[Windows]) -> str:
    """Return windows in words, or an empty text if there are none."""
    return ", ".join(map(_windows, windows))


def _windows(windows: Windows) -> str:
    match windows:
        case GridWindows():
            offset = f" offset {signed(windows.offset)}" if windows.offset else ""
            zone = f" in {windows.zone}" if windows.zone else ""
            every = "" if windows.kind == "TUMBLE" else f" every {duration(windows.slide)}"
            return f"{windows.kind} {windows.time.text}{every} size {duration(windows.size)}{offset}{zone}"
        case CalendarWindows():
            offset = f" offset {text}" if (text := offset_text(windows.shift, windows.offset)) else ""
            zone = f" in {windows.zone}" if windows.zone else ""
            return f"TUMBLE {windows.time.text} size {months_text(windows.months)}{offset}{zone}"
        case SessionWindows():
            gap = windows.gap.text if isinstance(windows.gap, Sql) else duration(windows.gap)
            zone = f" in {windows.zone}" if windows.zone else ""
            return f"SESSION {windows.time.text} gap {gap}{zone}"
        case RowWindows():
            zone = f" in {windows.zone}" if windows.zone else ""
            return f"{windows.size} rows every {windows.slide}{zone}"


def interval_words(interval: Interval) -> str:
    """Return the bounds of an interval join in words."""
    return f"{signed(interval.before)} before to {signed(interval.after)} after"


def signed(length: Duration) -> str:
    """Return a length of time, which may be negative, in words."""
    return f"-{duration(Duration(-length))}" if length < 0 else duration(length)


def _ties(ties: str) -> str:
    # Said only where it is not what it was in all jobs.
    return "by arrival" if ties == "arrival" else ""


def _length(length: Duration) -> str:
    return duration(length) if length else ""


def _sql_list(expressions: Iterable[Sql]) -> str:
    return ", ".join(one.text for one in expressions)


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _bounds(bounds: WindowBounds) -> str:
    names = ((name, getattr(bounds, name)) for name in ("start", "end", "time"))
    return ", ".join(f"{index} {name}" for index, name in names if name)


def _early(early: EarlyFiring) -> str:
    if early.by == "rows":
        return f"every {early.every} rows"
    return f"every {duration(Duration(early.every))} of {'event time' if early.by == 'event' else 'processing time'}"


def _reach(reach: FrameReach) -> str:
    last = "all" if reach.last is None else reach.last
    times = f"{duration(reach.span)} before to {duration(reach.later)} after a row"
    return f"{times}, the last {last} rows before it, {reach.following} after it"


def _columns(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {type}" for name, type in columns)


# The names of fields for people, and the functions that make words of their values.
_FIELDS: Mapping[str, tuple[str, Any]] = {
    "windows": ("windows", windows_words),
    "bounds": ("window bounds", _bounds),
    "lateness": ("lateness", _length),
    "early": ("early results", _early),
    "late_rows": ("late rows", str),
    "ttl": ("time to live", _length),
    "empty_sets": ("empty sets", lambda sets: ", ".join(map(str, sets))),
    "function": ("function", str),
    "limit": ("n", str),
    "distinct": ("distinct", _yes),
    "join": ("join", str),
    "ties": (TIES, _ties),
    "condition": ("condition", lambda condition: condition.text),
    "interval": ("interval", interval_words),
    "time": ("time", lambda time: time.text),
    "by_clock": ("clock", lambda by_clock: "processing time" if by_clock else ""),
    "reach": ("rows in frames", _reach),
    "zone": ("time zone", str),
    "timers": ("timers", _yes),
    "changes": ("changes", str),
    "outputs": ("result", _columns),
}
