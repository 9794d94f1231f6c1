"""How a class says that it is a process function: `@process`, `@table`, `state(..)` and `side_output()`."""

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
    """Stands for the default of a state that has none. It travels by name: there is one in each process."""

    def __reduce__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Any = _NoDefault()


class Row:
    """The hint of a row with all columns of its table: they are its attributes, and it is a named tuple."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What `@process(...)` was told; None stands for what the class itself says.

    A `vectorized` class gets Arrow tables of the rows of a key, or of a bucket; `emits` is the class of the rows in those that
    it returns. Those of a bucket come `ordered`, or in any order. A class whose tables may have `changes` learns of each row
    whether it is taken away; one that has a `changelog_mode` emits changes itself.
    """

    name: str | None = None
    vectorized: Literal["key", "bucket"] | None = None
    emits: Any = None
    ordered: bool = False
    changes: bool = False
    changelog_mode: Literal["retract", "upsert"] | None = None


@dataclass(frozen=True, slots=True)
class TableMethodOptions:
    """What `@table(...)` was told; None stands for the method's own name."""

    name: str | None = None
    changes: bool = False
    broadcast: bool = False


class DeclaredState:
    """What `state(..)` leaves in a class: the operator puts a handle for the current key in its place."""

    # What an instance has where no key is the current one: it says why its states are not there.
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
        # The operator puts handles into the instance, which come before this.
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

    A value, an item of a list or an entry of a map expires when it was not written for `ttl`; with `refresh="read"` reading
    counts, too. `ttl="0 s"` is for ever, and without one the query and the session say. An expired value is not seen;
    with `visibility="until_cleaned"` it is, as long as it is stored. A ReducingState combines two values with `reduce`. An
    AggregatingState has an `aggregate`: the name of one of DuckDB's that merges, or a class under `udaf`. A ValueState has its
    `default` where it holds nothing.

    With `broadcast=True` there is one state for all keys: methods under `@table(broadcast=True)` write it, all others read it.
    """
    return DeclaredState(ttl, reduce, refresh, visibility, broadcast, aggregate, default)


class SideOutput(Generic[T]):
    """A further output of a process function, which emits rows of `T` there: `ctx.emit("rejected", Rejected(..))`."""


class DeclaredSideOutput:
    """What `side_output()` leaves in a class."""


def side_output() -> Any:
    """Declare a further output of a process function: `rejected: SideOutput[Rejected] = side_output()`.

    SQL reads it with `SELECT * FROM SIDE_OUTPUT(TABLE alerts, 'rejected')`, `alerts` being a view of the call.
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

    Its name in SQL is that of the class in lower case with underscores, or `name`. The method `process(self, ctx, row)` gets
    every row and yields rows; of several tables each has a method under `@table`. `on_timer(self, ctx)` is called for timers.
    Parameters of `__init__` are constants that the call gives. `open()` is called before the first row in a process,
    `close()` when the process is done with the job.

    With `vectorized=True` (or "key") a method gets the rows of a key in a batch as one Arrow table, and returns or yields Arrow
    tables, whose columns are the fields of `emits`. With `vectorized="bucket"` it gets those of all keys of a bucket, and
    their state, `process(self, ctx, rows, state)`, and returns both, `(rows, state)`; `ordered=True` sorts both by key, and
    rows by arrival.

    With `changes=True` tables may change: `ctx.is_retraction` says whether a row is taken away. With `changelog_mode="retract"`
    the class emits changes: a row that it yields is added, `ctx.retract(row)` takes one away. With "upsert" a row takes the
    place of the one that the key had before, and `ctx.retract()` takes that away.
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
    """Mark the method that gets the rows of one table argument; the argument has the method's name, or `name`.

    The tables of a call are in the order of these methods. With `changes=True` the table may change. The rows of a table with
    `broadcast=True` are for all keys: its method writes states with `broadcast=True`, what it yields has no key, and
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
    found: ProcessOptions = vars(function).get(_PROCESS, ProcessOptions())
    return found


def table_options(method: object) -> TableMethodOptions | None:
    """Return what `@table` said of a method, None where it is not there."""
    found: TableMethodOptions | None = getattr(method, _TABLE, None)
    return found
