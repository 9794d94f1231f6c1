"""Tables, views and functions by name: what a statement can refer to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from sqlstream.errors import Span, SqlStreamError, missing, nearest
from sqlstream.units import Duration

# The connector of a table whose rows stand in the query; its option `rows` is DuckDB SQL: `(1, 'a'), (2, 'b')`.
VALUES = "values"
# The option that says how long the rows of a table that is read may stay away before it no longer holds the watermark.
IDLE_TIMEOUT = "scan.watermark.idle-timeout"
# The option that says how far event times may be ahead of the clock; rows that are further are malformed.
MAX_AHEAD = "scan.watermark.max-ahead"
# What the options of a format are called that leave malformed rows out, and that keep them in a table.
IGNORE, ERRORS_TO = "ignore-parse-errors", "errors-to"
# The option that names the column of files which says what a row does, and the format whose rows are changes.
OP_COLUMN = "changelog.op-column"
DEBEZIUM = "debezium-json"
# The option with which what a table elsewhere records of its changes is read.
CHANGE_FEED = "scan.change-data-feed"
# The type of what has the columns of the rows of a process function's tables: each call says which.
ROW = "ROW"
# The column of a plain value that a process function emits.
VALUE = "value"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its name, its DuckDB type, and the expression that computes it, if any.

    `expression` is DuckDB SQL over the physical columns of the same table; that of PROCTIME() is the batch's clock.
    `metadata` is what a source tells about a row, by its key; such a column is written only where the connector can
    (`Table.writes_metadata`), and never if it is `virtual`. `reads_clock` and `reads_watermark`
    say whether the expression depends on the batch's time or the watermark, and on the watermark.
    """

    name: str
    type: str
    expression: str | None = None
    not_null: bool = False
    processing_time: bool = False
    metadata: str | None = None
    reads_clock: bool = False
    reads_watermark: bool = False
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """`WATERMARK FOR column AS expression`; the expression is DuckDB SQL over the table's columns."""

    column: str
    expression: str


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table. Without a `connector` option it is a warehouse table, written and read by sqlstream itself.

    Columns of `partitioned_by` stand in the names of folders, not in files. `implementation` is the class of a Python
    source or sink by value (cloudpickle). A table with a `problem`, such as a package that is not installed, can be named; what
    reads or writes it fails with that. It has no columns where these could not be inferred.
    """

    name: str
    columns: tuple[Column, ...]
    watermark: Watermark | None = None
    primary_key: tuple[str, ...] = ()
    # Some are secret: see `secrets`.
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    temporary: bool = False
    span: Span | None = None
    partitioned_by: tuple[str, ...] = ()
    implementation: bytes | None = field(default=None, compare=False, repr=False)
    problem: SqlStreamError | None = field(default=None, compare=False, repr=False)
    # Whether its connector says that its rows are changes, whatever its options are.
    changing: bool = field(default=False, repr=False)
    # The keys of METADATA that its connector can write, too.
    writes_metadata: frozenset[str] = field(default=frozenset(), repr=False)
    # Of a table whose rows stand in an envelope: which of their columns are NOT NULL.
    never_null: tuple[str, ...] = field(default=(), repr=False)
    # Folders in which its files must lie, wherever links lead; none for anywhere.
    within: tuple[str, ...] = field(default=(), compare=False, repr=False)
    # Where the key and the value of an option stand, by its name.
    places: Mapping[str, tuple[Span, Span]] = field(default_factory=dict, compare=False, repr=False)

    def option_span(self, name: str, *, value: bool = False) -> Span | None:
        """Return where an option, or its value, stands in WITH; the table's name where it does not stand there."""
        place = self.places.get(name)
        return place[value] if place is not None else self.span

    @property
    def connector(self) -> str | None:
        return self.options.get("connector")

    @property
    def is_values(self) -> bool:
        """Whether it is the rows that stand in a query."""
        return self.connector == VALUES

    @property
    def physical(self) -> tuple[Column, ...]:
        """The columns that a reader must deliver."""
        return tuple(c for c in self.columns if c.expression is None)

    @property
    def writable(self) -> tuple[Column, ...]:
        """The columns that an INSERT gives."""
        return tuple(c for c in self.visible if c.expression is None and self._is_written(c))

    def _is_written(self, column: Column) -> bool:
        return column.metadata is None or (column.metadata in self.writes_metadata and not column.virtual)

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns that files of the table hold."""
        return tuple(c for c in self.physical if c.metadata is None and c.name not in self.partitioned_by)

    @property
    def has_changes(self) -> bool:
        """Whether rows of the table are changes: some add a row, others take one away."""
        if self.changing or self.options.get(CHANGE_FEED, "").lower() == "true":
            return True
        return OP_COLUMN in self.options or self.options.get("format", "").lower() == DEBEZIUM

    @property
    def operation(self) -> Column | None:
        """The declared column that says what a row does."""
        name = self.options.get(OP_COLUMN, "").lower()
        return next((c for c in self.columns if c.name.lower() == name), None)

    @property
    def visible(self) -> tuple[Column, ...]:
        """The columns that a query can name."""
        return tuple(c for c in self.columns if c is not self.operation)

    @property
    def definition(self) -> tuple[object, ...]:
        """What two declarations of one table must agree on to be the same declaration."""
        options = tuple(sorted(self.options.items()))
        return self.columns, self.watermark, self.primary_key, self.partitioned_by, options


@dataclass(frozen=True, slots=True)
class View:
    """A named query. `query` is the parsed statement; it is bound again wherever the view is used."""

    name: str
    columns: tuple[str, ...]
    query: Any
    temporary: bool = False
    span: Span | None = None

    @property
    def definition(self) -> tuple[object, ...]:
        return self.columns, repr(self.query)


FunctionKind = Literal["scalar", "table"]


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function, by SQL name, with DuckDB types of its parameters and of its result.

    That of a table function is the list of its rows, whose `columns` have names and types. `pickled` is the function itself by
    value (cloudpickle), so that a worker process needs none of the user's files. `defaults` are SQL, None for a parameter that
    must be given.
    """

    name: str
    parameters: tuple[str, ...]
    returns: str
    nullable: tuple[bool, ...]
    pickled: bytes
    deterministic: bool = True
    location: str = ""
    names: tuple[str, ...] = ()
    defaults: tuple[str | None, ...] = ()
    kind: FunctionKind = "scalar"
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A user's aggregate function, by SQL name, with DuckDB types of its parameters, of its accumulator and of its result.

    Without `merges` its accumulators cannot be put together, without `retracts` no row can be taken out of one. A NULL for a
    parameter that is not `nullable` leaves the row out. `pickled` is the class by value, as that of a Function. A `vectorized`
    one makes accumulators of rows for many groups at a time.
    """

    name: str
    parameters: tuple[str, ...]
    accumulator: str
    returns: str
    merges: bool
    retracts: bool
    nullable: tuple[bool, ...]
    pickled: bytes = field(repr=False)
    deterministic: bool = True
    location: str = field(default="", compare=False, repr=False)
    names: tuple[str, ...] = ()
    defaults: tuple[str | None, ...] = ()
    vectorized: bool = False

    def step(self, name: str) -> str:
        """Return what DuckDB calls a step of it: `accumulate` takes a list of rows, `merge` one of accumulators."""
        return f"_{name}_{self.name}"

    @property
    def extends(self) -> bool:
        """Whether rows can be taken into an accumulator that has some already."""
        return self.merges or not self.vectorized

    @property
    def row(self) -> str:
        """The type of a row as its steps take it: that of the argument, or a struct of several."""
        fields = ", ".join(f"p{i} {type}" for i, type in enumerate(self.parameters))
        return self.parameters[0] if len(self.parameters) == 1 else f"STRUCT({fields})"


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A constant that a process function takes: a parameter of its class. `default` is SQL, None where it must be given."""

    name: str
    type: str
    nullable: bool
    default: str | None = None


@dataclass(frozen=True, slots=True)
class TableArgument:
    """A table that a process function takes, and the method that gets its rows.

    `columns` are those that the hint of the row names, with their types; None: the row has all columns of the table. `line` is
    the place of the hint in the Python file. A table that `changes` may take rows back. The rows of a `broadcast` one have no
    key: they are for all keys.
    """

    name: str
    method: str
    columns: tuple[Column, ...] | None
    line: str = ""
    changes: bool = False
    broadcast: bool = False


@dataclass(frozen=True, slots=True)
class StateDeclaration:
    """A state of a process function: what it keeps for each key. Of a map, `key_type` is the type of its keys.

    A `broadcast` state is one for all keys: methods of broadcast tables write it, and all others read it. A `ttl` of 0 is for
    ever, None is as the query says. It counts from the last write, with `refreshed_by` "read" also from the last read. An
    expired value is `visible` until it is cleaned up, or not at all.
    """

    name: str
    kind: Literal["value", "list", "map"]
    type: str
    key_type: str | None = None
    ttl: Duration | None = None
    refreshed_by: Literal["write", "read"] = "write"
    visible: bool = False
    broadcast: bool = False


@dataclass(frozen=True, slots=True)
class SideOutputDeclaration:
    """A further output of a process function, and the columns of what it emits there."""

    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class ProcessFunction:
    """A user's process function, by SQL name: what a call gives it, what it keeps, and the columns of what it emits.

    `pickled` is the class by value, as that of a Function. A `vectorized` function gets Arrow tables: of the rows of a key, or
    of a bucket, which come `ordered` by key and arrival, or in any order. One with a `changelog_mode` emits changes.
    """

    name: str
    tables: tuple[TableArgument, ...]
    scalars: tuple[ScalarArgument, ...]
    states: tuple[StateDeclaration, ...]
    outputs: tuple[Column, ...]
    pickled: bytes = field(compare=False, repr=False)
    has_timers: bool = False
    location: str = field(default="", compare=False)
    vectorized: Literal["key", "bucket"] | None = None
    ordered: bool = False
    changelog_mode: Literal["retract", "upsert"] | None = None
    side_outputs: tuple[SideOutputDeclaration, ...] = ()

    @property
    def keyed_states(self) -> tuple[StateDeclaration, ...]:
        """The states that each key has of its own."""
        return tuple(s for s in self.states if not s.broadcast)

    @property
    def broadcast_states(self) -> tuple[StateDeclaration, ...]:
        """The states that all keys share."""
        return tuple(s for s in self.states if s.broadcast)

    @property
    def partitioned(self) -> tuple[TableArgument, ...]:
        """The tables that are not broadcast: there is one at least."""
        return tuple(t for t in self.tables if not t.broadcast)

    def beside(self, keys: Iterable[str], emitted: Iterable[Column]) -> tuple[Column, ...]:
        """Return the columns that rows have beside partition columns: what is emitted under the name of one has its value.

        A plain value, whose column is called `value`, is another one.
        """
        columns, names = tuple(emitted), {key.lower() for key in keys}
        if self.vectorized or self.changelog_mode or [c.name for c in columns] == [VALUE]:
            return columns
        return tuple(c for c in columns if c.name.lower() not in names)


# All that SQL can call by a name of the user's.
AnyFunction: TypeAlias = Function | AggregateFunction | ProcessFunction
# The kinds that run in DuckDB.
DuckFunction: TypeAlias = Function | AggregateFunction


def _merged(table: Table, options: Mapping[str, str], span: Span) -> Table:
    return replace(table, options={**table.options, **options})


_CREATE = re.compile(
    r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMPORARY\s+)?(?:TABLE|VIEW|FUNCTION)\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    r'(?:"(?P<quoted>(?:[^"]|"")+)"|`(?P<ticked>[^`]+)`|(?P<plain>\w+))',
    re.IGNORECASE,
)
_OF_FUNCTION = re.compile(r"\bCREATE\s+(?:TEMPORARY\s+)?FUNCTION\b", re.IGNORECASE)


def names_declared(text: str) -> list[str]:
    """Return the names that a text declares.

    >>> names_declared('CREATE TABLE a (x INT) WITHH; create or replace view "b ""c" AS')
    ['a', 'b "c']
    """
    return [
        found["quoted"].replace('""', '"') if found["quoted"] else found["ticked"] or found["plain"]
        for found in _CREATE.finditer(text)
    ]


@dataclass(frozen=True, slots=True)
class CatalogFault:
    """Why a file of the catalog, or a statement in one, declares nothing: an error, and the names that it would declare."""

    error: SqlStreamError
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.error.span}: " if self.error.span is not None else ""
        named = f"; so there is no {', '.join(self.names)}" if self.names else ""
        return f"{place}{self.error.message}{named}"


class Catalog:
    """Names to definitions; names are matched without regard to case, as in DuckDB."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.views: dict[str, View] = {}
        self.functions: dict[str, Function] = {}
        self.aggregate_functions: dict[str, AggregateFunction] = {}
        self.process_functions: dict[str, ProcessFunction] = {}
        # Why files of the project's functions could not be loaded.
        self.broken: list[SqlStreamError] = []
        # What the project's files with declarations could not declare.
        self.faults: list[CatalogFault] = []
        # Names of tables that jobs have written, whether they are declared here or not.
        self.written: Callable[[], Iterable[str]] = tuple
        # What becomes of a table under the hint OPTIONS, at a place in the text.
        self.with_options: Callable[[Table, Mapping[str, str], Span], Table] = _merged

    def declared(self, name: str) -> Table | View | None:
        """Return what is declared under this name."""
        key = name.lower()
        return self.tables.get(key) or self.views.get(key)

    def relation(self, name: str) -> Table | View | None:
        """Return the table or view of this name. Raises the problem of a table whose columns are not known.

        So does what is wrong with the file that would declare it.
        """
        found = self.declared(name)
        if isinstance(found, Table) and not found.columns and found.problem is not None:
            raise found.problem
        if found is None and (fault := self.fault(name)) is not None:
            raise fault.error
        return found

    def fault(self, name: str) -> CatalogFault | None:
        """Return why a name is not declared that a file of the catalog would declare."""
        return next((fault for fault in self.faults if name.lower() in map(str.lower, fault.names)), None)

    def leave_out(self, error: SqlStreamError, text: str = "") -> None:
        """Declare nothing of what a text would, which may be no SQL: an error tells why, to whoever uses it."""
        names = names_declared(text)
        for name in names:
            self.drop(name)
        if _OF_FUNCTION.search(text):
            self.broken.append(error)
        known = next((place for place, fault in enumerate(self.faults) if fault.error is error), None)
        if known is None:
            self.faults.append(CatalogFault(error, tuple(names)))
        else:
            before = self.faults[known].names
            self.faults[known] = CatalogFault(error, tuple(dict.fromkeys([*before, *names])))

    def function(self, name: str) -> Function | None:
        return self.functions.get(name.lower())

    def aggregate_function(self, name: str) -> AggregateFunction | None:
        return self.aggregate_functions.get(name.lower())

    @property
    def duck_functions(self) -> tuple[DuckFunction, ...]:
        """All functions that DuckDB calls."""
        return (*self.functions.values(), *self.aggregate_functions.values())

    def process_function(self, name: str) -> ProcessFunction | None:
        return self.process_functions.get(name.lower())

    def any_function(self, name: str) -> AnyFunction | None:
        """Return the function of this name, whatever kind it is of."""
        return self.function(name) or self.aggregate_function(name) or self.process_function(name)

    @property
    def function_names(self) -> list[str]:
        return [f.name for f in (*self.duck_functions, *self.process_functions.values())]

    def add(self, entry: Table | View | AnyFunction) -> None:
        """Put an entry under its name, replacing one of the same kind."""
        match entry:
            case ProcessFunction():
                self.process_functions[entry.name.lower()] = entry
            case AggregateFunction():
                self.aggregate_functions[entry.name.lower()] = entry
            case Table():
                self.tables[entry.name.lower()] = entry
            case View():
                self.views[entry.name.lower()] = entry
            case Function():
                self.functions[entry.name.lower()] = entry

    def drop_function(self, name: str) -> None:
        self.functions.pop(name.lower(), None)
        self.aggregate_functions.pop(name.lower(), None)
        self.process_functions.pop(name.lower(), None)

    def drop(self, name: str) -> None:
        self.tables.pop(name.lower(), None)
        self.views.pop(name.lower(), None)

    def relation_names(self) -> Iterable[str]:
        return [t.name for t in self.tables.values()] + [v.name for v in self.views.values()]

    def relation_hint(self, name: str, others: Iterable[str] = ()) -> str:
        """Return what to do about a table that does not exist; `others` are names that exist beside the catalog's."""
        declare = "It is a table of the warehouse: repeat its CREATE TABLE here, or put that into a file of catalog/."
        declared = [*others, *self.relation_names()]
        known = {name.lower() for name in declared}
        written = [table for table in self.written() if table.lower() not in known]
        if name.lower() in (table.lower() for table in written):
            return declare
        if (near := nearest(name, [*declared, *written])) in written:
            return f'did you mean "{near}"? {declare}'
        return missing("table", name, declared)

    def __iter__(self) -> Iterator[Table | View]:
        yield from self.tables.values()
        yield from self.views.values()
