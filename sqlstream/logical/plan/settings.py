"""What each kind of node computes, as plain data with types: by these values a job is known, whatever words describe them.

Records keep a digest of them for years. A new field needs a default that says what was so before there was the field: defaults
are left out of the digest. Another name or meaning of a field makes other jobs of all that there are.

Expressions are in the form of `canonical`, durations in microseconds. What may change while a job lives, such as a time to live,
is none of the values.
"""

from __future__ import annotations

import msgspec

from sqlstream.units import NO_TIME, Duration

# Names or types of columns, and names with expressions.
Pairs = tuple[tuple[str, str], ...]


class NodeSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What there is to say of a kind of node beside its keys, what it computes, and its columns."""


class ScanSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A table that is read: the options by which it is known, its watermark, its computed columns."""

    table: str
    options: Pairs = ()
    starts: Pairs = ()
    changes: bool = False
    watermark: tuple[str, str] | None = None
    by_clock: bool = False
    computed: Pairs = ()


class FilterSettings(NodeSettings, frozen=True, omit_defaults=True):
    predicate: str


class GridSettings(NodeSettings, frozen=True, omit_defaults=True):
    """Windows of one size that lie at regular distances: TUMBLE, HOP, CUMULATE."""

    windows: str
    time: str
    size: int
    slide: int
    offset: int = 0
    zone: str | None = None


class SessionSettings(NodeSettings, frozen=True, omit_defaults=True):
    """Sessions: their gap is a duration, or an expression over each row."""

    time: str
    gap: int | str
    late_rows: str | None = None


class CountSettings(NodeSettings, frozen=True, omit_defaults=True):
    """Windows of so many rows."""

    time: str
    size: int
    slide: int


class WindowSettings(NodeSettings, frozen=True, omit_defaults=True):
    """An aggregate in windows: when its results leave, and what becomes of late rows."""

    end: str | None = None
    lateness: Duration = NO_TIME
    early: tuple[int, str] | None = None
    late_rows: str | None = None


class RankSettings(NodeSettings, frozen=True, omit_defaults=True):
    """Numbers of rows in an order, of each key, or of each key and window."""

    function: str
    column: str
    order: tuple[str, ...]
    limit: int | None = None
    end: str | None = None
    late_rows: str | None = None


class OrderSettings(NodeSettings, frozen=True, omit_defaults=True):
    order: tuple[str, ...]


class SideSettings(NodeSettings, frozen=True, omit_defaults=True):
    """INTERSECT or EXCEPT: the column that says from which side a row is."""

    function: str
    side: str
    distinct: bool


class JoinSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A join: `times` are the columns of its inputs, `before` and `after` how far these may be apart."""

    join: str
    condition: str | None = None
    times: tuple[str, ...] = ()
    before: int = 0
    after: int = 0
    windowed: bool = False


class LookupSettings(NodeSettings, frozen=True, omit_defaults=True):
    join: str
    table: str
    connector: str | None = None
    condition: str | None = None


class LateralSettings(NodeSettings, frozen=True, omit_defaults=True):
    rows: str
    outer: bool = False
    elements: bool = False
    numbered: bool = False


class SetsSettings(NodeSettings, frozen=True, omit_defaults=True):
    """GROUPING SETS: the column that numbers them."""

    column: str
    numbers: tuple[int, ...]


class NameSettings(NodeSettings, frozen=True, omit_defaults=True):
    """Which of several outputs, or inputs, it is."""

    name: str


class SinkSettings(NodeSettings, frozen=True, omit_defaults=True):
    limit: int | None = None


class ProcessInputSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    keys: tuple[str, ...]
    columns: Pairs
    broadcast: bool = False
    time: str | None = None
    order: tuple[str, ...] = ()


class ProcessStateSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    form: str
    type: str
    key_type: str | None = None
    broadcast: bool = False
    expires: bool = False


class ProcessSettings(NodeSettings, frozen=True, omit_defaults=True):
    """A call of a process function: what it is given, keeps and emits."""

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
    """A call of an aggregate: with `frame`, over so many rows before and behind a row. `accumulator` is what a user's keeps."""

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
    """All that makes a node of a plan another one: `inputs` are digests of what is below.

    `time` is its time attribute, `changing` the key by which rows that are taken back are told apart: None where none are.
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
