"""The settings of an operator that determine its state, as typed plain data in the record of a job.

Upgrades compare the operators of a changed query and of a job by these values. A new field needs a default that is true of
all records before it. Expressions are SQL over the columns that the tables and operators below emit, durations are microseconds.

The values of `settings` are other ones: the record has only their digest, and they leave out what may change while a job lives.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from sqlstream.units import MICROSECOND, MILLISECOND, NO_TIME, Duration

# What decides which of several rows is the first one if they are equal in an order: which one came first, or the values of all
# their columns.
Ties: TypeAlias = Literal["arrival", "columns"]
# Whose values expressions have: Flink's, or DuckDB's in jobs that began before there was the choice.
Semantics: TypeAlias = Literal["flink", "duckdb"]
# Names and types.
Columns = tuple[tuple[str, str], ...]


class Sql(msgspec.Struct, frozen=True, eq=False):
    """An expression. Two expressions are equal if their canonical forms are, however they are written.

    >>> Sql('("a" + 1)') == Sql('"a"+1'), Sql('"a" + 1') == Sql('"a" + 2')
    (True, False)
    """

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sql) and (self.text == other.text or self.form == other.form)

    def __ne__(self, other: object) -> bool:
        # The base class has its own, which does not call __eq__.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.form)

    @property
    def form(self) -> str:
        """The canonical form."""
        # To read records takes no SQL parser.
        from sqlstream.logical.plan.canonical import canonical

        return canonical(self.text)


# -- windows


class GridWindows(msgspec.Struct, frozen=True, omit_defaults=True, tag="grid"):
    """TUMBLE, HOP and CUMULATE windows."""

    kind: Literal["TUMBLE", "HOP", "CUMULATE"]
    time: Sql
    size: Duration
    slide: Duration
    offset: Duration = NO_TIME
    zone: str | None = None


class CalendarWindows(msgspec.Struct, frozen=True, omit_defaults=True, tag="months"):
    """TUMBLE by months: windows are aligned to `shift` months and the `offset` after the beginning of 1970."""

    time: Sql
    months: int
    shift: int = 0
    offset: Duration = NO_TIME
    zone: str | None = None


class SessionWindows(msgspec.Struct, frozen=True, omit_defaults=True, tag="session"):
    """Sessions; `gap` is a duration, or an expression over each row."""

    time: Sql
    gap: Duration | Sql
    zone: str | None = None


class RowWindows(msgspec.Struct, frozen=True, omit_defaults=True, tag="rows"):
    """Count windows; `size` and `slide` are numbers of rows."""

    size: int
    slide: int
    zone: str | None = None


Windows: TypeAlias = GridWindows | CalendarWindows | SessionWindows | RowWindows


class WindowBounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """The names of the columns with a window's bounds. The state does not depend on them."""

    start: str | None = None
    end: str | None = None
    time: str | None = None


class EarlyFiring(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often the result of an open window is emitted: `every` is a number of rows, or a Duration."""

    every: int
    by: Literal["time", "event", "rows"]


class FrameReach(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the frames of all calls reach: `span` and `later` are times before and after a row, `following` is rows after it.

    `last` is the number of a key's last rows that stay in the state, None if all rows do.
    """

    span: Duration = NO_TIME
    later: Duration = NO_TIME
    following: int = 0
    last: int | None = 0


class Interval(msgspec.Struct, frozen=True):
    """The bounds of an interval join; each may be negative."""

    before: Duration
    after: Duration

    @property
    def length(self) -> Duration:
        """The length of the interval in which a row can find matches."""
        return Duration(self.before + self.after)


class InputOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The order in which a process function receives the rows of an input; `broadcast` inputs go to all tasks.

    `ties` says what orders rows that are equal in `order`: the order of arrival, or all their columns.
    """

    order: tuple[Sql, ...] = ()
    time: Sql | None = None
    broadcast: bool = False
    ties: Literal["columns", "arrival"] = "columns"


# -- the kinds of operators


class StateSettings(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind"):
    """The base class: `changing` are the indexes (from 0) of the inputs that are changelogs."""

    # The unit of the times in state tables at which the last row of a key came.
    time_unit: ClassVar[Duration] = MILLISECOND
    # Whether it stores the rows of several inputs, with settings of each input.
    has_inputs: ClassVar[bool] = False

    changing: tuple[int, ...] = ()


class SessionWindowState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="session_window"):
    """The rows of open sessions."""

    windows: tuple[Windows, ...] = ()
    late_rows: str | None = None


class CountWindowsState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="count_windows"):
    """The last rows of each key; `time` orders them."""

    windows: tuple[Windows, ...] = ()
    time: Sql | None = None
    ttl: Duration = NO_TIME


class WindowAggregateState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="window_aggregate"):
    """Aggregates per window and key; `late_rows` names a table."""

    windows: tuple[Windows, ...] = ()
    bounds: WindowBounds | None = None
    lateness: Duration = NO_TIME
    early: EarlyFiring | None = None
    late_rows: str | None = None


class AggregateState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="aggregate"):
    """Aggregates per key; `empty_sets` are the numbers of the empty grouping sets."""

    ttl: Duration = NO_TIME
    empty_sets: tuple[int, ...] = ()


class RankState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="rank"):
    """The first `limit` rows of each key, or all rows."""

    function: str = ""
    order: tuple[Sql, ...] = ()
    limit: int | None = None
    ttl: Duration = NO_TIME


class WindowRankState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="window_rank"):
    """The first `limit` rows of each window and key, or all rows."""

    function: str = ""
    order: tuple[Sql, ...] = ()
    limit: int | None = None
    windows: tuple[Windows, ...] = ()
    late_rows: str | None = None


class OverState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="over"):
    """Rows that wait for the watermark, the rows in frames, and running results."""

    time: Sql | None = None
    order: tuple[Sql, ...] = ()
    by_clock: bool = False
    reach: FrameReach = FrameReach()
    ttl: Duration = NO_TIME
    zone: str | None = None


class SortState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="sort"):
    """Rows that wait for the watermark."""

    time: Sql | None = None
    order: tuple[Sql, ...] = ()
    by_clock: bool = False
    reach: FrameReach = FrameReach()


class JoinState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="join"):
    """The rows of the inputs; `ttls` are pairs of an input's index and its time to live, of the inputs that have one."""

    has_inputs: ClassVar[bool] = True

    join: str = ""
    condition: Sql | None = None
    ttls: tuple[tuple[int, Duration], ...] = ()


class IntervalJoinState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="interval_join"):
    """The rows of both inputs that may still find matches."""

    has_inputs: ClassVar[bool] = True

    join: str = ""
    condition: Sql | None = None
    times: tuple[Sql, ...] = ()
    interval: Interval = Interval(NO_TIME, NO_TIME)


class TemporalJoinState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="temporal_join"):
    """Rows that wait for the watermark, and the versions of the other input."""

    has_inputs: ClassVar[bool] = True

    join: str = ""
    condition: Sql | None = None
    times: tuple[Sql, ...] = ()
    # What decides which of several versions of one time is the last.
    ties: Literal["columns", "arrival"] = "columns"


class NormalizeState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="normalize"):
    """The current row of each key."""


class SetOperationState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="set_operation"):
    """The rows of both sides of INTERSECT or EXCEPT."""

    function: str = ""
    distinct: bool = False
    ttl: Duration = NO_TIME


class ProcessState(StateSettings, frozen=True, omit_defaults=True, kw_only=True, tag="process"):
    """The states of a process function; `state_ttls` are pairs of a state's name and its time to live.

    `inputs` are pairs of an input's index and its order, without orders that have only defaults. `outputs` are the columns of
    the result if the function emits upserts.
    """

    time_unit: ClassVar[Duration] = MICROSECOND
    has_inputs: ClassVar[bool] = True

    function: str = ""
    state_ttls: tuple[tuple[str, Duration], ...] = ()
    inputs: tuple[tuple[int, InputOrder], ...] = ()
    timers: bool = False
    changes: str | None = None
    outputs: Columns = ()
    late_rows: str | None = None


AnyState: TypeAlias = (
    SessionWindowState
    | CountWindowsState
    | WindowAggregateState
    | AggregateState
    | RankState
    | WindowRankState
    | OverState
    | SortState
    | JoinState
    | IntervalJoinState
    | TemporalJoinState
    | NormalizeState
    | SetOperationState
    | ProcessState
)
