"""The settings of recorded operators: values, or in records of earlier versions texts.

Only this module reads these texts. All others take values from `settings_of`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias, cast

from sqlstream.logical.plan.state_settings import (
    AggregateState,
    AnyState,
    CountWindowsState,
    EarlyFiring,
    FrameReach,
    GridWindows,
    InputOrder,
    Interval,
    IntervalJoinState,
    JoinState,
    NormalizeState,
    OverState,
    ProcessState,
    RankState,
    RowWindows,
    SessionWindows,
    SessionWindowState,
    SetOperationState,
    SortState,
    Sql,
    TemporalJoinState,
    WindowAggregateState,
    WindowBounds,
    WindowRankState,
    Windows,
)
from sqlstream.units import NO_TIME, Duration, parse_duration
from sqlstream.warehouse.jobs import OperatorShape

Texts: TypeAlias = Mapping[str, str]


def settings_of(shape: OperatorShape) -> AnyState:
    """Return the settings of a recorded operator that determine its state."""
    if shape.settings is not None:
        return shape.settings
    return _KINDS[shape.operator](shape.texts)


# -- the parts of texts

_LENGTH = r"-?[\d.]+ \w+"
_GRID = re.compile(
    rf"(?P<kind>TUMBLE|HOP|CUMULATE) (?P<time>.*?)(?: every (?P<slide>{_LENGTH}))? size (?P<size>{_LENGTH})"
    rf"(?: offset (?P<offset>{_LENGTH}))?(?: in (?P<zone>.*))?",
    re.DOTALL,
)
_SESSION = re.compile(rf"SESSION (?P<time>.*?) gap (?:(?P<length>{_LENGTH})|(?P<gap>.*))", re.DOTALL)
_ROWS = re.compile(r"(?P<size>\d+) rows every (?P<slide>\d+)")
# Between the windows in a text that has several.
_NEXT = re.compile(r", (?=(?:TUMBLE|HOP|CUMULATE|SESSION) |\d+ rows every )")
_INTERVAL = re.compile(r"(-?\d+) before to (-?\d+) after")
_BOUNDS = re.compile(r"(?:start (?P<start>.*?))?(?:(?:^|, )end (?P<end>.*?))?(?:(?:^|, )time (?P<time>.*))?", re.DOTALL)
_OF_INPUT = re.compile(r"(?P<what>.+) of input (?P<place>\d+)")
_OF_STATE = re.compile(r"time to live of (?P<state>.+)")


def _duration(text: str) -> Duration:
    length = parse_duration(text.removeprefix("-")) if text else NO_TIME
    return Duration(-length) if text.startswith("-") else length


def _windows(texts: Texts) -> tuple[Windows, ...]:
    return tuple(map(_one_windows, filter(None, _NEXT.split(texts.get("windows", "")))))


def _one_windows(text: str) -> Windows:
    """Return the windows in a text: `HOP "ts" every 5 s size 10 s`, `SESSION "ts" gap 5 s`, `3 rows every 1`."""
    if grid := _GRID.fullmatch(text):
        size = _duration(grid["size"])
        slide = _duration(grid["slide"]) if grid["slide"] else size
        kind = cast(Literal["TUMBLE", "HOP", "CUMULATE"], grid["kind"])
        return GridWindows(kind, Sql(grid["time"]), size, slide, _duration(grid["offset"] or ""), grid["zone"])
    if session := _SESSION.fullmatch(text):
        gap = _duration(session["length"]) if session["length"] else Sql(session["gap"])
        return SessionWindows(Sql(session["time"]), gap)
    rows = _ROWS.fullmatch(text)
    assert rows is not None, text
    return RowWindows(int(rows["size"]), int(rows["slide"]))


def _sql(text: str | None) -> Sql | None:
    return Sql(text) if text else None


def _order(text: str) -> tuple[Sql, ...]:
    return tuple(map(Sql, _listed(text)))


def _listed(text: str) -> Iterator[str]:
    """Yield the items of a list that is separated by commas, except those in parentheses and quotes.

    >>> list(_listed('"a, b", greatest("c", 1) DESC'))
    ['"a, b"', 'greatest("c", 1) DESC']
    """
    depth, begin, quote = 0, 0, ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and not depth:
            yield text[begin:index].strip()
            begin = index + 1
    if rest := text[begin:].strip():
        yield rest


def _limit(texts: Texts) -> int | None:
    return int(texts["n"]) if "n" in texts else None


def _by_index(texts: Texts, what: str) -> dict[int, str]:
    """Return the texts of a setting that each input has, such as `time of input 0`, by the index of the input."""
    matches = ((_OF_INPUT.fullmatch(name), text) for name, text in texts.items())
    return {int(match["place"]): text for match, text in matches if match and match["what"] == what}


def _times(texts: Texts) -> tuple[Sql, ...]:
    return tuple(Sql(text) for _, text in sorted(_by_index(texts, "time").items()))


def _changing(texts: Texts) -> tuple[int, ...]:
    """Return the indexes of the inputs that are changelogs. Operators with one input have a text without an index."""
    return tuple(sorted(_by_index(texts, "changes"))) or ((0,) if "changes below" in texts else ())


# -- the kinds of operators


def _session_window(texts: Texts) -> SessionWindowState:
    return SessionWindowState(changing=_changing(texts), windows=_windows(texts), late_rows=texts.get("late rows"))


def _count_windows(texts: Texts) -> CountWindowsState:
    time, ttl = _sql(texts.get("time")), _duration(texts.get("time to live", ""))
    return CountWindowsState(changing=_changing(texts), windows=_windows(texts), time=time, ttl=ttl)


def _window_aggregate(texts: Texts) -> WindowAggregateState:
    names, early = _BOUNDS.fullmatch(texts.get("window bounds", "")), texts.get("early results", "").split()
    bounds = WindowBounds(**names.groupdict()) if names is not None else WindowBounds()
    return WindowAggregateState(
        changing=_changing(texts),
        windows=_windows(texts),
        bounds=bounds if bounds != WindowBounds() else None,
        lateness=_duration(texts.get("lateness", "")),
        early=EarlyFiring(int(early[0]), cast(Literal["time", "event", "rows"], early[1])) if early else None,
        late_rows=texts.get("late rows"),
    )


def _aggregate(texts: Texts) -> AggregateState:
    empty = tuple(map(int, _listed(texts.get("empty sets", ""))))
    return AggregateState(changing=_changing(texts), ttl=_duration(texts.get("time to live", "")), empty_sets=empty)


def _rank(texts: Texts) -> RankState:
    return RankState(
        changing=_changing(texts),
        function=texts.get("function", ""),
        order=_order(texts.get("order", "")),
        limit=_limit(texts),
        ttl=_duration(texts.get("time to live", "")),
    )


def _window_rank(texts: Texts) -> WindowRankState:
    return WindowRankState(
        changing=_changing(texts),
        function=texts.get("function", ""),
        order=_order(texts.get("order", "")),
        limit=_limit(texts),
        windows=_windows(texts),
        late_rows=texts.get("late rows"),
    )


def _reach(texts: Texts) -> FrameReach:
    """Return the reach of frames in a text such as `span 60000000 later 0 following 2 last 5`; -1 stands for all rows."""
    words = texts.get("rows in frames", "").split()
    numbers = {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}
    last = numbers.get("last", 0)
    span, later = Duration(numbers.get("span", 0)), Duration(numbers.get("later", 0))
    return FrameReach(span, later, numbers.get("following", 0), None if last < 0 else last)


def _over(texts: Texts) -> OverState:
    return OverState(
        changing=_changing(texts),
        time=_sql(texts.get("time")),
        order=_order(texts.get("order", "")),
        by_clock="clock" in texts,
        reach=_reach(texts),
        ttl=_duration(texts.get("time to live", "")),
    )


def _sort(texts: Texts) -> SortState:
    time, order = _sql(texts.get("time")), _order(texts.get("order", ""))
    return SortState(changing=_changing(texts), time=time, order=order, by_clock="clock" in texts, reach=_reach(texts))


def _join(texts: Texts) -> JoinState:
    ttls = tuple((index, _duration(text)) for index, text in sorted(_by_index(texts, "time to live").items()))
    condition = _sql(texts.get("condition"))
    return JoinState(changing=_changing(texts), join=texts.get("join", ""), condition=condition, ttls=ttls)


def _interval_join(texts: Texts) -> IntervalJoinState:
    lengths = _INTERVAL.fullmatch(texts.get("interval", ""))
    before, after = map(int, lengths.groups()) if lengths is not None else (0, 0)
    return IntervalJoinState(
        changing=_changing(texts),
        join=texts.get("join", ""),
        condition=_sql(texts.get("condition")),
        times=_times(texts),
        interval=Interval(Duration(before), Duration(after)),
    )


def _temporal_join(texts: Texts) -> TemporalJoinState:
    join, condition = texts.get("join", ""), _sql(texts.get("condition"))
    return TemporalJoinState(changing=_changing(texts), join=join, condition=condition, times=_times(texts))


def _normalize(texts: Texts) -> NormalizeState:
    return NormalizeState(changing=_changing(texts))


def _set_operation(texts: Texts) -> SetOperationState:
    return SetOperationState(
        changing=_changing(texts),
        function=texts.get("function", ""),
        distinct="distinct" in texts,
        ttl=_duration(texts.get("time to live", "")),
    )


def _process(texts: Texts) -> ProcessState:
    states = ((_OF_STATE.fullmatch(name), text) for name, text in texts.items())
    columns = (column.partition(" ") for column in _listed(texts.get("result", "")))
    return ProcessState(
        changing=_changing(texts),
        function=texts.get("function", ""),
        state_ttls=tuple((match["state"], _duration(text)) for match, text in states if match),
        inputs=tuple(_input_orders(texts)),
        timers="timers" in texts,
        changes=texts.get("changes"),
        outputs=tuple((name, type) for name, _, type in columns),
        late_rows=texts.get("late rows"),
    )


def _input_orders(texts: Texts) -> Iterator[tuple[int, InputOrder]]:
    orders, times, broadcast = (_by_index(texts, what) for what in ("order", "time", "broadcast"))
    for index in sorted(orders.keys() | times.keys() | broadcast.keys()):
        yield index, InputOrder(_order(orders.get(index, "")), _sql(times.get(index)), index in broadcast)


# By `OperatorShape.operator`.
_KINDS: Mapping[str, Callable[[Texts], AnyState]] = {
    "SessionWindow": _session_window,
    "CountWindows": _count_windows,
    "WindowAggregate": _window_aggregate,
    "Aggregate": _aggregate,
    "WindowRank": _window_rank,
    "Rank": _rank,
    "Over": _over,
    "Sort": _sort,
    "Join": _join,
    "IntervalJoin": _interval_join,
    "TemporalJoin": _temporal_join,
    "Normalize": _normalize,
    "SetOperation": _set_operation,
    "Process": _process,
}
