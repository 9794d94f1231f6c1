"""Tables, views and functions by name: what a statement can refer to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from sqlstream.errors import Span, SqlStreamError, StatementWarning, missing, nearest
from sqlstream.units import Duration

# The connector of a table whose rows stand in the query; its option `rows` is DuckDB SQL: `(1, 'a'), (2, 'b')`.
VALUES = "values"
# The option of a source: after how long without rows it no longer holds back the watermark.
IDLE_TIMEOUT = "scan.watermark.idle-timeout"
# The option of a source: how far event times may be ahead of the clock. Rows that are further ahead are malformed.
MAX_AHEAD = "scan.watermark.max-ahead"
# Options of formats: the first skips malformed rows, the second writes them into a table.
IGNORE, ERRORS_TO = "ignore-parse-errors", "errors-to"
# The option that names the column of files with the kind of each change, and the format whose rows are changes.
OP_COLUMN = "changelog.op-column"
DEBEZIUM = "debezium-json"
# The option that reads the change feed of a table instead of its rows.
CHANGE_FEED = "scan.change-data-feed"
# The type of a value with the same columns as the input rows of a process function. Each call determines the columns.
ROW = "ROW"
# The name of the column when a process function emits plain values.
VALUE = "value"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its name, its DuckDB type, and the expression that computes it, if any.

    `expression` is DuckDB SQL over the physical columns of the same table; for PROCTIME() it is the clock of the batch.
    `metadata` is the key of a METADATA column. Such a column can be written only if its connector can write the key
    (`Table.writes_metadata`) and the column is not `virtual`. `reads_clock` is True if the expression depends on the time of
    the batch or on the watermark, `reads_watermark` if it depends on the watermark, `random` if it is another value each time.
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
    random: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """`WATERMARK FOR column AS expression`; the expression is DuckDB SQL over the table's columns."""

    column: str
    expression: str


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table. Without a `connector` option it is a warehouse table, written and read by sqlstream itself.

    The values of the columns `partitioned_by` are in the names of folders, not in files. `implementation` is the class of a
    Python source or sink, pickled by value (cloudpickle). A table with a `problem`, such as a package that is not installed, can
    be declared, but reading or writing it raises the problem. A table whose columns could not be inferred has no columns.
    """

    name: str
    columns: tuple[Column, ...]
    watermark: Watermark | None = None
    primary_key: tuple[str, ...] = ()
    # Some values are secret: see `secrets`.
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    temporary: bool = False
    span: Span | None = None
    partitioned_by: tuple[str, ...] = ()
    implementation: bytes | None = field(default=None, compare=False, repr=False)
    problem: SqlStreamError | None = field(default=None, compare=False, repr=False)
    # Whether its connector always reads changes, whatever the options are.
    changing: bool = field(default=False, repr=False)
    # The keys of METADATA columns that its connector can write.
    writes_metadata: frozenset[str] = field(default=frozenset(), repr=False)
    # The columns of a table in an envelope (such as Debezium's) that are NOT NULL.
    never_null: tuple[str, ...] = field(default=(), repr=False)
    # Folders in which its files must be, after links are followed; empty for anywhere.
    within: tuple[str, ...] = field(default=(), compare=False, repr=False)
    # What INSERT OVERWRITE says of the partition that it writes, by column; empty for all of them. None: rows are added.
    overwrites: tuple[tuple[str, str], ...] | None = field(default=None, repr=False)
    # The positions of the key and of the value of each option, by its name.
    option_spans: Mapping[str, tuple[Span, Span]] = field(default_factory=dict, compare=False, repr=False)
    # Warnings about its expressions, for the jobs that read it.
    notices: tuple[StatementWarning, ...] = field(default=(), compare=False, repr=False)
    # Its columns and its watermark in DuckDB's values, where these are others: jobs go on with them that began so.
    in_duckdbs: tuple[tuple[Column, ...], Watermark | None] | None = field(default=None, compare=False, repr=False)

    def option_span(self, name: str, *, value: bool = False) -> Span | None:
        """Return the position of an option's key, or of its value, in WITH; the table's position if the option is not there."""
        spans = self.option_spans.get(name)
        return spans[value] if spans is not None else self.span

    @property
    def connector(self) -> str | None:
        return self.options.get("connector")

    @property
    def is_values(self) -> bool:
        """Whether the table stands for a VALUES clause: the query itself has its rows."""
        return self.connector == VALUES

    @property
    def physical(self) -> tuple[Column, ...]:
        """The columns that a source must return: all but computed ones, with METADATA and partition columns."""
        return tuple(c for c in self.columns if c.expression is None)

    @property
    def writable(self) -> tuple[Column, ...]:
        """The columns that an INSERT writes.

        These are the visible columns without computed ones, and without METADATA that is VIRTUAL or that the connector cannot
        write.
        """
        return tuple(c for c in self.visible if c.expression is None and self._is_written(c))

    def _is_written(self, column: Column) -> bool:
        return column.metadata is None or (column.metadata in self.writes_metadata and not column.virtual)

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns in the table's files or messages: the physical ones without METADATA and partition columns."""
        return tuple(c for c in self.physical if c.metadata is None and c.name not in self.partitioned_by)

    @property
    def has_changes(self) -> bool:
        """Whether rows of the table are changes: some insert a row, others delete one."""
        if self.changing or self.options.get(CHANGE_FEED, "").lower() == "true":
            return True
        return OP_COLUMN in self.options or self.options.get("format", "").lower() == DEBEZIUM

    @property
    def operation(self) -> Column | None:
        """The declared column with the kind of each change, which an option names; None without one."""
        name = self.options.get(OP_COLUMN, "").lower()
        return next((c for c in self.columns if c.name.lower() == name), None)

    @property
    def visible(self) -> tuple[Column, ...]:
        """The columns that a query can name: all but the one with the kind of each change."""
        return tuple(c for c in self.columns if c is not self.operation)

    @property
    def definition(self) -> tuple[object, ...]:
        """The parts that make the declaration: two tables with equal definitions are declared alike."""
        return self.columns, self.watermark, self.primary_key, self.partitioned_by, tuple(sorted(self.options.items()))


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
        """The parts that make the declaration: two views with equal definitions are declared alike."""
        return self.columns, repr(self.query)


FunctionKind = Literal["scalar", "table"]


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function, by SQL name, with DuckDB types of its parameters and of its result.

    A table function returns the list of its rows; `columns` has their names and types. `pickled` is the function itself by
    value (cloudpickle), so that a worker process needs none of the user's files. `defaults` are SQL, None for a parameter
    without a default.
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

    Without `merges`, accumulators cannot be merged; without `retracts`, no row can be retracted. Rows with NULL for a parameter
    that is not `nullable` are skipped. `pickled` is the class by value, as in Function. A `vectorized` function accumulates
    the rows of many groups per call.
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
        """Return the name of a step's DuckDB function: `accumulate` takes a list of rows, `merge` a list of accumulators."""
        return f"_{name}_{self.name}"

    @property
    def extends(self) -> bool:
        """Whether rows can be added to an accumulator that already has rows."""
        return self.merges or not self.vectorized

    @property
    def row(self) -> str:
        """The DuckDB type of a row in its steps: the type of the only argument, or a struct of several (p0, p1, ..)."""
        fields = ", ".join(f"p{i} {type}" for i, type in enumerate(self.parameters))
        return self.parameters[0] if len(self.parameters) == 1 else f"STRUCT({fields})"


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A constant argument of a process function: a parameter of its class. `default` is SQL, None if there is none."""

    name: str
    type: str
    nullable: bool
    default: str | None = None


@dataclass(frozen=True, slots=True)
class TableArgument:
    """A table argument of a process function, and the method that receives its rows.

    `columns` are the columns that the type hint of the row names, with their types; None: all columns of the table. `line` is
    the position of the hint in the Python file. A table that `changes` may retract rows. The rows of a `broadcast` table have no
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
    """A state of a process function, which holds a value, a list or a map per key. `key_type` is the type of a map's keys.

    A `broadcast` state is shared by all keys: methods of broadcast tables write it, and all others read it. A `ttl` of 0 never
    expires; None takes the query's. The time counts from the last write; with `refreshed_by` "read" it counts from the last read,
    too. An expired value is hidden at once, unless it is `visible`: then it can be read until it is cleaned up.
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
    """A side output of a process function, with the columns of its rows."""

    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class ProcessFunction:
    """A user's process function, by SQL name: its arguments, its states and the columns of its output.

    `pickled` is the class by value, as in Function. A `vectorized` function receives Arrow tables with the rows of one key, or
    of one bucket, which are `ordered` by key and arrival or unordered. A function with a `changelog_mode` emits changes.
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
        """The states that are kept per key."""
        return tuple(s for s in self.states if not s.broadcast)

    @property
    def broadcast_states(self) -> tuple[StateDeclaration, ...]:
        """The states that all keys share."""
        return tuple(s for s in self.states if s.broadcast)

    @property
    def partitioned(self) -> tuple[TableArgument, ...]:
        """The tables that are partitioned by key: at least one."""
        return tuple(t for t in self.tables if not t.broadcast)

    def beside(self, keys: Iterable[str], emitted: Iterable[Column]) -> tuple[Column, ...]:
        """Return the emitted columns that follow the partition columns `keys` in the output.

        An emitted column with the name of a key is left out, because the output has the key already. Three kinds of columns
        always stay: the column `value` of plain values, and the columns of vectorized functions and of changelogs.
        """
        columns, names = tuple(emitted), {key.lower() for key in keys}
        if self.vectorized or self.changelog_mode or [c.name for c in columns] == [VALUE]:
            return columns
        return tuple(c for c in columns if c.name.lower() not in names)


# All kinds of user functions.
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
    """Return the names of the tables, views and functions that a text creates. The text may be invalid SQL.

    >>> names_declared('CREATE TABLE a (x INT) WITHH; create or replace view "b ""c" AS')
    ['a', 'b "c']
    """
    return [
        match["quoted"].replace('""', '"') if match["quoted"] else match["ticked"] or match["plain"]
        for match in _CREATE.finditer(text)
    ]


@dataclass(frozen=True, slots=True)
class CatalogFault:
    """The error of a catalog file or of one of its statements, and the names that it would have declared."""

    error: SqlStreamError
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"{self.error.span}: " if self.error.span is not None else ""
        named = f"; so there is no {', '.join(self.names)}" if self.names else ""
        return f"{where}{self.error.message}{named}"


class Catalog:
    """Tables, views and functions by name. Names match in any case, as in DuckDB."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.views: dict[str, View] = {}
        self.functions: dict[str, Function] = {}
        self.aggregate_functions: dict[str, AggregateFunction] = {}
        self.process_functions: dict[str, ProcessFunction] = {}
        # Errors of the project's function files that could not be loaded.
        self.broken: list[SqlStreamError] = []
        # Faults of the project's catalog files.
        self.faults: list[CatalogFault] = []
        # Returns the names of tables that jobs have written, whether they are declared here or not.
        self.written_tables: Callable[[], Iterable[str]] = tuple
        # Applies the hint OPTIONS, which is at a position in the text, to a table.
        self.with_options: Callable[[Table, Mapping[str, str], Span], Table] = _merged

    def declared(self, name: str) -> Table | View | None:
        """Return the table or view that is declared under a name; None if there is none."""
        key = name.lower()
        return self.tables.get(key) or self.views.get(key)

    def relation(self, name: str) -> Table | View | None:
        """Return the table or view of a name; None if no file of the catalog declares it.

        Raises the problem of a table whose columns are unknown, and the error of a catalog file that should declare the name.
        """
        entry = self.declared(name)
        if isinstance(entry, Table) and not entry.columns and entry.problem is not None:
            raise entry.problem
        if entry is None and (fault := self.fault(name)) is not None:
            raise fault.error
        return entry

    def fault(self, name: str) -> CatalogFault | None:
        """Return the fault that prevented the declaration of a name; None if there is none."""
        return next((fault for fault in self.faults if name.lower() in map(str.lower, fault.names)), None)

    def leave_out(self, error: SqlStreamError, text: str = "") -> None:
        """Drop the names that a text, which may be invalid SQL, declares. A statement that uses one of them gets `error`."""
        names = names_declared(text)
        for name in names:
            self.drop(name)
        if _OF_FUNCTION.search(text):
            self.broken.append(error)
        position = next((i for i, fault in enumerate(self.faults) if fault.error is error), None)
        if position is None:
            self.faults.append(CatalogFault(error, tuple(names)))
        else:
            before = self.faults[position].names
            self.faults[position] = CatalogFault(error, tuple(dict.fromkeys([*before, *names])))

    def function(self, name: str) -> Function | None:
        """Return the scalar or table function of a name; None if there is none."""
        return self.functions.get(name.lower())

    def aggregate_function(self, name: str) -> AggregateFunction | None:
        """Return the aggregate function of a name; None if there is none."""
        return self.aggregate_functions.get(name.lower())

    @property
    def duck_functions(self) -> tuple[DuckFunction, ...]:
        """All functions that DuckDB calls."""
        return (*self.functions.values(), *self.aggregate_functions.values())

    def process_function(self, name: str) -> ProcessFunction | None:
        """Return the process function of a name; None if there is none."""
        return self.process_functions.get(name.lower())

    def any_function(self, name: str) -> AnyFunction | None:
        """Return the function of a name, of any kind; None if there is none."""
        return self.function(name) or self.aggregate_function(name) or self.process_function(name)

    @property
    def function_names(self) -> list[str]:
        return [f.name for f in (*self.duck_functions, *self.process_functions.values())]

    def add(self, entry: Table | View | AnyFunction) -> None:
        """Declare an entry under its name. It replaces an entry of the same kind."""
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
        """Remove the functions of a name, of every kind, if there are any."""
        self.functions.pop(name.lower(), None)
        self.aggregate_functions.pop(name.lower(), None)
        self.process_functions.pop(name.lower(), None)

    def drop(self, name: str) -> None:
        """Remove the table and the view of a name, if there are any."""
        self.tables.pop(name.lower(), None)
        self.views.pop(name.lower(), None)

    def relation_names(self) -> Iterable[str]:
        """Return the names of all tables, then of all views."""
        return [t.name for t in self.tables.values()] + [v.name for v in self.views.values()]

    def relation_hint(self, name: str, others: Iterable[str] = ()) -> str:
        """Return the hint for a table that does not exist; `others` are names that exist outside of the catalog."""
        declare = "It is a table of the warehouse: repeat its CREATE TABLE here, or put that into a file of catalog/."
        declared = [*others, *self.relation_names()]
        names = {name.lower() for name in declared}
        written = [table for table in self.written_tables() if table.lower() not in names]
        if name.lower() in (table.lower() for table in written):
            return declare
        if (near := nearest(name, [*declared, *written])) in written:
            return f'did you mean "{near}"? {declare}'
        return missing("table", name, declared)

    def __iter__(self) -> Iterator[Table | View]:
        yield from self.tables.values()
        yield from self.views.values()
