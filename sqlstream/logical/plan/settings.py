"""The values that identify each kind of node, as typed plain data. The digest of a job is made of them.

Records keep that digest for years. A new field needs a default that is true of all jobs before it: defaults are left out of the
digest. If a field gets another name or meaning, existing jobs count as changed.

Expressions are in the form of `canonical`, durations in microseconds. Settings that may change while a job lives, such as a time
to live, are not among the values.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sqlstream.units import NO_TIME, Duration

# Names or types of columns, and names with expressions.
Pairs = tuple[tuple[str, str], ...]


class NodeSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base class of the values of one kind of node, beside keys, items, calls and columns, which all kinds share."""


class ScanSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A scan. `table` is empty for VALUES; `starts` are the options that set where reading begins, `options` the others.

    `watermark` is the time column and the watermark's expression; `computed` are the computed columns with their expressions.
    """

    table: str
    options: Pairs = ()
    starts: Pairs = ()
    changes: bool = False
    watermark: tuple[str, str] | None = None
    by_clock: bool = False
    computed: Pairs = ()


class FilterSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A filter."""

    predicate: str


class GridSettings(NodeSettings, frozen=True, omit_defaults=True):
    """TUMBLE, HOP and CUMULATE: `windows` is one of these names."""

    windows: str
    time: str
    size: int
    slide: int
    offset: int = 0
    zone: str | None = None


class MonthSettings(NodeSettings, frozen=True, omit_defaults=True):
    """TUMBLE by months: windows are aligned to `shift` months and `offset` microseconds after the beginning of 1970."""

    time: str
    months: int
    shift: int = 0
    offset: int = 0
    zone: str | None = None


class SessionSettings(NodeSettings, frozen=True, omit_defaults=True):
    """Sessions: `gap` is in microseconds, or an expression over each row."""

    time: str
    gap: int | str
    late_rows: str | None = None
    zone: str | None = None


class CountSettings(NodeSettings, frozen=True, omit_defaults=True):
    """Count windows; `size` and `slide` are numbers of rows."""

    time: str
    size: int
    slide: int
    zone: str | None = None


class WindowSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A window aggregate: `end` is the column of the window's end, `early` is as `EarlyFire`, `late_rows` names a table."""

    end: str | None = None
    lateness: Duration = NO_TIME
    early: tuple[int, str] | None = None
    late_rows: str | None = None


class RankSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A rank; in windows, `end` is the column of the window's end, and `late_rows` names a table."""

    function: str
    column: str
    order: tuple[str, ...]
    limit: int | None = None
    end: str | None = None
    late_rows: str | None = None


class OrderSettings(NodeSettings, frozen=True, omit_defaults=True):
    """ORDER BY, and the order of calls with OVER; `zone` is the time zone of the clock, up to which rows are kept."""

    order: tuple[str, ...]
    zone: str | None = None


class SideSettings(NodeSettings, frozen=True, omit_defaults=True):
    """INTERSECT or EXCEPT: `side` is the column with the number of a row's side."""

    function: str
    side: str
    distinct: bool


class JoinSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A join of kind `join`; an interval join has `times`, `before` and `after`, a temporal join has `times` and `ties`."""

    join: str
    condition: str | None = None
    times: tuple[str, ...] = ()
    before: int = 0
    after: int = 0
    windowed: bool = False
    ties: Literal["columns", "arrival"] = "columns"


class LookupSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A lookup join of kind `join`."""

    join: str
    table: str
    connector: str | None = None
    condition: str | None = None


class LateralSettings(NodeSettings, frozen=True, omit_defaults=True):
    """LATERAL over a SELECT, or over the `elements` of a list; `numbered`: with ordinality."""

    rows: str
    outer: bool = False
    elements: bool = False
    numbered: bool = False


class SetsSettings(NodeSettings, frozen=True, omit_defaults=True):
    """GROUPING SETS: the column with the number of a row's set, and the numbers."""

    column: str
    numbers: tuple[int, ...]


class NameSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A read of a side output, or of the late rows of an input, by its name."""

    name: str


class SinkSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A sink; `limit` is a number of rows, `overwrites` the partition that INSERT OVERWRITE names, None for INSERT INTO."""

    limit: int | None = None
    overwrites: Pairs | None = None


class ProcessInputSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table argument of a process function: `name` is its name in the class. `time` is None if `order` includes it.

    `ties` says what orders rows that are equal in `order`: the order of arrival, or all their columns.
    """

    name: str
    keys: tuple[str, ...]
    columns: Pairs
    broadcast: bool = False
    time: str | None = None
    order: tuple[str, ...] = ()
    ties: Literal["columns", "arrival"] = "columns"


class ProcessStateSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state of a process function: `form` is value, list or map."""

    name: str
    form: str
    type: str
    key_type: str | None = None
    broadcast: bool = False
    expires: bool = False


class ProcessSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A call of a process function: its inputs, states and outputs; `arguments` are the constants by name."""

    function: str
    tables: tuple[ProcessInputSettings, ...]
    states: tuple[ProcessStateSettings, ...]
    outputs: Pairs
    arguments: Pairs = ()
    side_outputs: tuple[tuple[str, Pairs], ...] = ()
    vectorized: str | None = None
    changelog_mode: str | None = None
    late_rows: str | None = None


class CallSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """An aggregate call. `frame` is mode, preceding and following of `OverFrame`.

    `accumulator` is the type that a user's function stores, `retracts` the same if it retracts rows of a changelog.
    """

    name: str
    function: str
    arguments: tuple[str, ...] = ()
    distinct: bool = False
    order: tuple[str, ...] = ()
    filter: str | None = None
    accumulator: str | None = None
    retracts: str | None = None
    frame: tuple[str, int | None, int] | None = None
    ignore_nulls: bool = False


class NodeValues(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values that identify a node of a plan: `inputs` are the digests of its children, a key is a tuple of names and forms.

    `time` is its time attribute, `changing` the unique key of a changelog (empty if none is known), None if it is append-only.
    """

    kind: str
    inputs: tuple[str, ...] = ()
    name: str = ""
    keys: tuple[tuple[str, ...], ...] = ()
    items: Pairs = ()
    calls: tuple[CallSettings, ...] = ()
    settings: NodeSettings | None = None
    columns: Pairs = ()
    time: str | None = None
    changing: tuple[str, ...] | None = None
