"""The declarations of a process function: `@process`, `@table`, `state(..)` and `side_output()`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

T = TypeVar("T")
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
_PROCESS = "__sqlstream_process__"
_TABLE = "__sqlstream_table__"


class _NoDefault:
    """The default of a state that has none. It is pickled by name, so each process has one object of it."""

    def __reduce__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Any = _NoDefault()


class Row:
    """The hint of a row with all columns of its table: a named tuple whose attributes are the columns."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """The arguments of `@process(...)`; a `name` of None stands for the name of the class.

    A `vectorized` class receives Arrow tables with the rows of a key, or of a bucket; `emits` is the class of the rows in the
    tables that it returns. The rows of a bucket are `ordered`, or in any order. A class with `changes` accepts tables that
    change: its context says whether a row is a retraction. A class with a `changelog_mode` emits changes itself.
    """

    name: str | None = None
    vectorized: Literal["key", "bucket"] | None = None
    emits: Any = None
    ordered: bool = False
    changes: bool = False
    changelog_mode: Literal["retract", "upsert"] | None = None


@dataclass(frozen=True, slots=True)
class TableMethodOptions:
    """The arguments of `@table(...)`; a `name` of None stands for the name of the method."""

    name: str | None = None
    changes: bool = False
    broadcast: bool = False


class DeclaredState:
    """The class attribute that `state(..)` makes. In an instance, a handle for the current key takes its place."""

    # The attribute of an instance that says why its states are not available when there is no current key.
    REASON = "__sqlstream_no_current_key__"
    default: Any = NO_DEFAULT

    def __init__(
        self,
        ttl: str | dt.timedelta | None,
        reduce: Callable[[Any, Any], Any] | None,
        refresh: Literal["write", "read"],
        visibility: Literal["never", "until_cleaned"],
        broadcast: bool,
        aggregate: str | type | None,
        default: Any,
    ):
        self.ttl, self.reduce, self.refresh, self.visibility = ttl, reduce, refresh, visibility
        self.broadcast, self.aggregate, self.default = broadcast, aggregate, default
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        # Handles are attributes of the instance, which come before this.
        if (reason := vars(instance).get(self.REASON)) is not None:
            raise AttributeError(f'state "{self.name}" {reason}')
        raise AttributeError(f'state "{self.name}" is there only while the function runs, not in __init__ or open')


def state(
    *,
    ttl: str | dt.timedelta | None = None,
    reduce: Callable[[Any, Any], Any] | None = None,
    refresh: Literal["write", "read"] = "write",
    visibility: Literal["never", "until_cleaned"] = "never",
    broadcast: bool = False,
    aggregate: str | type | None = None,
    default: Any = NO_DEFAULT,
) -> Any:
    """Declare a state of a process function: `last: ValueState[float] = state(ttl="1 h")`.

    A value, an item of a list or an entry of a map expires if it was not written for `ttl`; with `refresh="read"` reading counts,
    too. With `ttl="0 s"` it never expires; without a `ttl`, the one of the query or the session applies. An expired value is
    hidden; with `visibility="until_cleaned"` it is visible as long as it is stored. A ReducingState combines two values with
    `reduce`. An AggregatingState has an `aggregate`: the name of a DuckDB aggregate whose partial results can be merged, or a
    class under `udaf`. A ValueState that holds nothing has its `default`.

    With `broadcast=True` all keys share one state: methods under `@table(broadcast=True)` write it, all others read it.
    """
    return DeclaredState(ttl, reduce, refresh, visibility, broadcast, aggregate, default)


class SideOutput(Generic[T]):
    """A side output of a process function for rows of `T`: `ctx.emit("rejected", Rejected(..))`."""


class DeclaredSideOutput:
    """The class attribute that `side_output()` makes."""


def side_output() -> Any:
    """Declare a side output of a process function: `rejected: SideOutput[Rejected] = side_output()`.

    SQL reads it with `SELECT * FROM SIDE_OUTPUT(TABLE alerts, 'rejected')`, where `alerts` is a view of the call.
    """
    return DeclaredSideOutput()


@overload
def process(function: C, /) -> C: ...
@overload
def process(
    *,
    name: str | None = None,
    vectorized: bool | Literal["key", "bucket"] = False,
    emits: Any = None,
    ordered: bool = False,
    changes: bool = False,
    changelog_mode: Literal["retract", "upsert"] | None = None,
) -> Callable[[C], C]: ...
def process(
    function: C | None = None,
    /,
    *,
    name: str | None = None,
    vectorized: bool | Literal["key", "bucket"] = False,
    emits: Any = None,
    ordered: bool = False,
    changes: bool = False,
    changelog_mode: Literal["retract", "upsert"] | None = None,
) -> C | Callable[[C], C]:
    """Mark a class as a process function, which SQL calls like a table: `SELECT * FROM f(TABLE t PARTITION BY k)`.

    Its name in SQL is `name`, or the name of the class in lower case with underscores. The method `process(self, ctx, row)`
    receives each row and yields rows; for several tables, each has a method under `@table`. `on_timer(self, ctx)` is called for
    timers. Parameters of `__init__` are constants of the call. `open()` is called before the first row in a process, `close()`
    when the process has finished the job.

    With `vectorized=True` (or "key") a method receives the rows of a key in a batch as one Arrow table, and returns or yields
    Arrow tables, whose columns are the fields of `emits`. With `vectorized="bucket"` it receives the rows of all keys of a bucket
    and their state, `process(self, ctx, rows, state)`, and returns both, `(rows, state)`; `ordered=True` sorts both by key, and
    rows by arrival.

    With `changes=True` tables may change: `ctx.is_retraction` says whether a row is a retraction. With
    `changelog_mode="retract"` the class emits changes: a row that it yields is an insertion, `ctx.retract(row)` a retraction.
    With "upsert" a row replaces the key's row, and `ctx.retract()` deletes that.
    """
    kind: Literal["key", "bucket"] | None = "key" if vectorized is True else vectorized or None

    def mark(function: C) -> C:
        setattr(function, _PROCESS, ProcessOptions(name, kind, emits, ordered, changes, changelog_mode))
        return function

    return mark if function is None else mark(function)


@overload
def table(method: F, /) -> F: ...
@overload
def table(*, name: str | None = None, changes: bool = False, broadcast: bool = False) -> Callable[[F], F]: ...
def table(
    method: F | None = None, /, *, name: str | None = None, changes: bool = False, broadcast: bool = False
) -> F | Callable[[F], F]:
    """Mark the method that receives the rows of a table argument, whose name is `name` or the method's.

    The tables of a call are in the order of these methods. With `changes=True` the table may change. The rows of a table with
    `broadcast=True` are for all keys: its method writes states with `broadcast=True`, rows that it yields have no key, and
    `ctx.for_each_key(self.renew, row)` calls a method for each key.
    """

    def mark(method: F) -> F:
        setattr(method, _TABLE, TableMethodOptions(name, changes, broadcast))
        return method

    return mark if method is None else mark(method)


def is_process(value: object) -> bool:
    """Return whether a value is a class under `@process`."""
    return isinstance(value, type) and _PROCESS in vars(value)


def process_options(function: type) -> ProcessOptions:
    """Return the options of `@process` on a class itself; the default options without it."""
    options: ProcessOptions = vars(function).get(_PROCESS, ProcessOptions())
    return options


def table_options(method: object) -> TableMethodOptions | None:
    """Return the options of `@table` on a method; None without it."""
    options: TableMethodOptions | None = getattr(method, _TABLE, None)
    return options
