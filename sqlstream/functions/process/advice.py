"""Hints for errors in process functions: what to write instead of a name that does not exist, such as one of Flink's."""

from __future__ import annotations

import dataclasses
import datetime as dt
import linecache
import re
import traceback
from collections.abc import Mapping
from types import MemberDescriptorType
from typing import Any

from sqlstream.errors import missing
from sqlstream.functions import source_locations
from sqlstream.functions.invocation import shown
from sqlstream.functions.process.context import Context, Timers
from sqlstream.functions.process.states import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from sqlstream.units import parse_duration

# What to write instead of names that other systems use, in lower case and without underscores.
_COMBINED = {"get": "value", "update": "add(..)", "set": "add(..)"}
_STATES: dict[type, dict[str, str]] = {
    AggregatingState: _COMBINED,
    ReducingState: _COMBINED,
    ValueState: {"get": "value", "update": "value = ..", "set": "value = ..", "exists": "value is not None"},
    ListState: {
        "add": "append(..)",
        "addall": "extend(..)",
        "appendlist": "extend(..)",
        "appendvalue": "append(..)",
        "put": "set(..)",
        "remove": "set(..)",
        "update": "set(..)",
        "value": "get()",
    },
    MapState: {
        "add": "put(key, ..)",
        "entries": "items()",
        "getvalue": "get(key)",
        "isempty": "keys() == []",
        "iterator": "items()",
        "pop": "remove(key)",
        "putall": "update(..)",
        "removekey": "remove(key)",
        "set": "put(key, ..)",
        "updatevalue": "put(key, ..)",
        "value": "get(key)",
    },
}
_CONTAINS = ("contains", "containskey")
_AFTER = "ctx.timers.after(timedelta(minutes=5))"
_AT = "ctx.timers.at(ctx.event_time + timedelta(minutes=5))"
_DELETE = "ctx.timers.delete(..) with the name or the time of a timer"
_OFFERED: dict[type, dict[str, str]] = {
    Context: {
        "collect": "yield row",
        "applytokeyedstate": "ctx.for_each_key(self.renew, row)",
        "currentkey": "ctx.key",
        "currentwatermark": "ctx.watermark",
        "getcurrentkey": "ctx.key",
        "ontime": "ctx.event_time",
        "output": 'ctx.emit("rejected", row)',
        "timerservice": "ctx.timers",
        "timestamp": "ctx.event_time",
    },
    Timers: {
        "add": _AT,
        "currentprocessingtime": "ctx.processing_time",
        "currentwatermark": "ctx.watermark",
        "deleteeventtimetimer": _DELETE,
        "deleteprocessingtimetimer": _DELETE,
        "registereventtimetimer": _AT,
        "registerprocessingtimetimer": _AFTER,
        "set": _AT,
    },
}
# Attributes here that are methods in Flink.
_CALLED = re.compile(r"\.(value|key|event_time|watermark|processing_time|timer|timers|input_ended|is_late)\(\)")

_QUOTED = re.compile(r"'(\w+)'")


def advice(error: BaseException, states: Mapping[str, Any], row: Any = None) -> str | None:
    """Return the hint for an exception of the user's code, or None. `states` are the handles by name, `row` the current row."""
    if notes := getattr(error, "__notes__", None):
        return str(notes[0])
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        return _instead(error.obj, error.name, states, row)
    if isinstance(error, TypeError):
        return _misused(error, states)
    return None


def _instead(owner: Any, name: str, states: Mapping[str, Any], row: Any) -> str | None:
    """Return the hint for the object `owner`, which has no attribute `name`."""
    plain, kinds = name.replace("_", "").lower(), type(owner).__mro__
    for kind, names in _STATES.items():
        if kind in kinds:
            own = next((f"self.{state}" for state, handle in states.items() if handle is owner), "state")
            if kind is MapState and plain in _CONTAINS:
                return f"Write key in {own}."
            return f"Write {own}.{names[plain].removesuffix('.')}." if plain in names else _existing(kind, name)
    for kind, names in _OFFERED.items():
        if kind in kinds:
            return f"Write {names[plain]}." if plain in names else _existing(kind, name)
    if owner is row or (isinstance(owner, tuple) and type(owner).__name__ == "Row"):
        fields = getattr(owner, "_fields", None)
        if fields is None and dataclasses.is_dataclass(owner):
            fields = [f.name for f in dataclasses.fields(owner)]
        return missing("column", name, fields) if fields else None
    return None


def _existing(kind: type, name: str) -> str:
    """Return the hint about a missing attribute: the public names of the class. Slots of states are left out as internal."""
    offered = {
        n: value for one in kind.__mro__ if one is not object for n, value in vars(one).items() if not n.startswith("_")
    }
    slots = kind is not Context
    return missing(
        "name", name, sorted(n for n, v in offered.items() if not (slots and isinstance(v, MemberDescriptorType)))
    )


def _misused(error: TypeError, states: Mapping[str, Any]) -> str | None:
    """Return the hint for a TypeError that comes from using a state where its value was meant, or from calling an attribute."""
    text = str(error)
    if "Context.emit() missing" in text:
        return 'Yield the rows of the result. ctx.emit("rejected", row) emits one of a side output.'
    if "object is not callable" in text and (called := _CALLED.search(_line(error))):
        return f"Write .{called[1]} without (): it is an attribute."
    quoted = _QUOTED.findall(text)
    own = {name: handle for name, handle in states.items() if type(handle).__name__ in quoted}
    if not own or isinstance(next(iter(own.values())), MapState):
        return None
    line = _line(error)
    used = [name for name in own if re.search(rf"\.{name}\b(?!\.)", line)]
    [name] = used if len(used) == 1 else list(own)[:1]
    return f"Write self.{name}.{'get()' if isinstance(own[name], ListState) else 'value'} for what it holds."


def _line(error: BaseException) -> str:
    """Return the line of the user's code that raised an error; empty if its text is unavailable."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if source_locations.is_user_file(frame.f_code.co_filename):
            return linecache.getline(frame.f_code.co_filename, line)
    return ""


def no_delay(delay: object) -> TypeError:
    """Return the error for a timer's delay that is no timedelta."""
    error = TypeError(f"the delay of a timer is a timedelta, not {shown(delay, 100)}")
    try:
        micros = parse_duration(f"{delay} s" if isinstance(delay, int | float) else str(delay))
        meant = repr(dt.timedelta(microseconds=micros)).removeprefix("datetime.")
    except ValueError:
        meant = "timedelta(minutes=5)"
    error.add_note(f"Write ctx.timers.after({meant}).")
    return error


def no_time(time: object, instead: str = _AT) -> TypeError:
    """Return the error for a timer's time that is no datetime; its hint says to write `instead`."""
    error = TypeError(f"the time of a timer is a datetime, not {shown(time, 100)}")
    error.add_note(f"Write {instead}.")
    return error


def no_processing_time(time: object) -> TypeError:
    """Return the error for a processing-time timer's time that is no datetime."""
    return no_time(time, _AFTER)


def no_timer_id(timer: object) -> TypeError:
    """Return the error for the identity of a timer that is neither a name nor a time."""
    return no_time(timer, _DELETE)


def no_name(name: object) -> TypeError:
    """Return the error for a timer's name that is no str."""
    error = TypeError(f"the name of a timer is a str, not {shown(name, 100)}")
    error.add_note(f"Write str({shown(name, 100)}).")
    return error
