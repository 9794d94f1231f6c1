"""What decides over the state of operators: values that records have, made of texts where an earlier version wrote these."""

from __future__ import annotations

import msgspec
import pytest

from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.jobs.upgrades.settings_words import changed_settings
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
from sqlstream.units import MILLISECOND, SECOND, Duration
from sqlstream.warehouse.jobs import OperatorShape

TS, MINUTE, HOUR, DAY = Sql('"ts"'), Duration(60 * SECOND), Duration(3600 * SECOND), Duration(86_400 * SECOND)


def seconds(count: int) -> Duration:
    return Duration(count * SECOND)


WINDOWS: dict[str, tuple[Windows, ...]] = {
    'TUMBLE "ts" size 10 s': (GridWindows("TUMBLE", TS, seconds(10), seconds(10)),),
    'HOP "ts" every 5 s size 1 min offset 3 s': (GridWindows("HOP", TS, MINUTE, seconds(5), seconds(3)),),
    'TUMBLE "ts" size 1 h offset -1.5 ms': (GridWindows("TUMBLE", TS, HOUR, HOUR, Duration(-1500)),),
    'TUMBLE "ts" size 1 d in Europe/Berlin': (GridWindows("TUMBLE", TS, DAY, DAY, zone="Europe/Berlin"),),
    'CUMULATE "ts" every 500 ms size 1 s': (GridWindows("CUMULATE", TS, SECOND, Duration(500 * MILLISECOND)),),
    'SESSION "ts" gap 1.5 s': (SessionWindows(TS, Duration(1_500_000)),),
    'SESSION "ts" gap to_seconds("g")': (SessionWindows(TS, Sql('to_seconds("g")')),),
    "2 rows every 1": (RowWindows(2, 1),),
    'TUMBLE coalesce("a", "b") size 1 h, SESSION "ts" gap 1 min': (
        GridWindows("TUMBLE", Sql('coalesce("a", "b")'), HOUR, HOUR),
        SessionWindows(TS, MINUTE),
    ),
}


@pytest.mark.parametrize("text", WINDOWS)
def test_windows_of_older_records(text: str) -> None:
    settings = settings_of(OperatorShape("WindowAggregate", texts={"windows": text}))
    assert settings == WindowAggregateState(windows=WINDOWS[text])


# As records of earlier versions have them.
TEXTS: dict[str, tuple[dict[str, str], AnyState]] = {
    "SessionWindow": (
        {"changes below": "yes", "windows": 'SESSION "ts" gap 3 s', "late rows": "late"},
        SessionWindowState(changing=(0,), windows=(SessionWindows(TS, seconds(3)),), late_rows="late"),
    ),
    "CountWindows": (
        {"windows": "3 rows every 1", "time": '"ts"', "time to live": "1 h"},
        CountWindowsState(windows=(RowWindows(3, 1),), time=TS, ttl=HOUR),
    ),
    "WindowAggregate": (
        {
            "windows": 'TUMBLE "ts" size 10 s',
            "window bounds": "start window_start, end e, time window_time",
            "lateness": "1 min",
            "early results": "2000000 event",
            "late rows": "late",
        },
        WindowAggregateState(
            windows=(GridWindows("TUMBLE", TS, seconds(10), seconds(10)),),
            bounds=WindowBounds("window_start", "e", "window_time"),
            lateness=MINUTE,
            early=EarlyFiring(2_000_000, "event"),
            late_rows="late",
        ),
    ),
    "Aggregate": (
        {"time to live": "90 s", "empty sets": "1, 3"},
        AggregateState(ttl=seconds(90), empty_sets=(1, 3)),
    ),
    "WindowRank": (
        {"function": "rank", "order": '"v" DESC', "n": "2", "windows": 'TUMBLE "ts" size 10 s'},
        WindowRankState(
            function="rank",
            order=(Sql('"v" DESC'),),
            limit=2,
            windows=(GridWindows("TUMBLE", TS, seconds(10), seconds(10)),),
        ),
    ),
    "Rank": (
        {"function": "row_number", "order": 'greatest("a", "b") DESC, "c, d"', "time to live": "1 d"},
        RankState(function="row_number", order=(Sql('greatest("a", "b") DESC'), Sql('"c, d"')), ttl=DAY),
    ),
    "Over": (
        {
            "time": '"ts"',
            "order": '"ts", "v"',
            "rows in frames": "span 60000000 later 5 following 2 last -1",
            "time to live": "1 h",
        },
        OverState(time=TS, order=(TS, Sql('"v"')), reach=FrameReach(MINUTE, Duration(5), 2, None), ttl=HOUR),
    ),
    "Sort": (
        {
            "time": '"ts"',
            "order": '"ts"',
            "clock": "processing time",
            "rows in frames": "span 0 later 0 following 0 last 0",
        },
        SortState(time=TS, order=(TS,), by_clock=True),
    ),
    "Join": (
        {
            "changes below": "yes",
            "join": "left",
            "condition": '"v" > "x"',
            "changes of input 1": "yes",
            "time to live of input 1": "1 h",
        },
        JoinState(changing=(1,), join="left", condition=Sql('"v" > "x"'), ttls=((1, HOUR),)),
    ),
    "IntervalJoin": (
        {"join": "inner", "time of input 0": '"ts"', "time of input 1": '"us"', "interval": "-5 before to 10 after"},
        IntervalJoinState(join="inner", times=(TS, Sql('"us"')), interval=Interval(Duration(-5), Duration(10))),
    ),
    "TemporalJoin": (
        {
            "changes below": "yes",
            "changes of input 1": "yes",
            "join": "left",
            "time of input 0": '"ts"',
            "time of input 1": '"us"',
        },
        TemporalJoinState(changing=(1,), join="left", times=(TS, Sql('"us"'))),
    ),
    "Normalize": ({"changes below": "yes"}, NormalizeState(changing=(0,))),
    "SetOperation": (
        {"function": "except", "distinct": "yes", "time to live": "1 min"},
        SetOperationState(function="except", distinct=True, ttl=MINUTE),
    ),
    "Process": (
        {
            "function": "f",
            "time to live of paid": "1 h",
            "order of input 1": '"ts", "v"',
            "time of input 1": '"ts"',
            "broadcast of input 2": "yes",
            "changes of input 0": "yes",
            "changes below": "yes",
            "timers": "yes",
            "changes": "upsert",
            "result": "a DECIMAL(10,2), b STRUCT(x INTEGER, y INTEGER)",
            "late rows": "late",
        },
        ProcessState(
            changing=(0,),
            function="f",
            state_ttls=(("paid", HOUR),),
            inputs=((1, InputOrder((TS, Sql('"v"')), TS)), (2, InputOrder(broadcast=True))),
            timers=True,
            changes="upsert",
            outputs=(("a", "DECIMAL(10,2)"), ("b", "STRUCT(x INTEGER, y INTEGER)")),
            late_rows="late",
        ),
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_settings_of_older_records(kind: str) -> None:
    texts, values = TEXTS[kind]
    older = OperatorShape(kind, texts=texts)
    assert msgspec.json.decode(msgspec.json.encode(older), type=OperatorShape) == older
    assert settings_of(older) == values
    assert not list(changed_settings(settings_of(older), values))


@pytest.mark.parametrize("kind", TEXTS)
def test_records_have_values(kind: str) -> None:
    shape = OperatorShape(kind, settings=TEXTS[kind][1])
    written = msgspec.json.encode(shape)
    assert msgspec.json.decode(written)["values"]["kind"].replace("_", "") == kind.lower()
    again = msgspec.json.decode(written, type=OperatorShape)
    assert settings_of(again) == settings_of(shape) == TEXTS[kind][1]
    assert type(settings_of(again)) is type(TEXTS[kind][1])


@pytest.mark.parametrize("kind", TEXTS)
def test_changed_settings_have_names_and_words(kind: str) -> None:
    values = TEXTS[kind][1]
    fields = {field for field in values.__struct_fields__ if getattr(values, field) != getattr(type(values)(), field)}
    changed = list(changed_settings(type(values)(), values))
    assert {one.field for one in changed} == fields
    assert all(one.name and one.after for one in changed)
    assert {one.field for one in changed_settings(values, type(values)())} == fields


def test_expressions_are_equal_however_they_are_written() -> None:
    assert Sql('lower("a") = "b"') == Sql('("b" = LOWER("a"))')
    assert len({Sql('"a" + 1'), Sql('("a" + 1)'), Sql('"a" + 2')}) == 2
    assert GridWindows("TUMBLE", Sql('("ts")'), HOUR, HOUR) == GridWindows("TUMBLE", TS, HOUR, HOUR)
    differ = Sql('("v")') != Sql('"v"')
    assert not differ
    assert Sql('"v" DESC') != Sql('"v"')
