"""The `python` connector: sources and sinks that are classes of the user's, carried to workers by value."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets, monitor_interval
from sqlstream.connectors.lookup import OPTIONS as LOOKUP_OPTIONS
from sqlstream.connectors.options import MONITOR, SCAN_OPTIONS, TEXT, TableOption
from sqlstream.connectors.python.classes import Sink, Source
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, DataError, JobError, missing
from sqlstream.functions import pickling as carry
from sqlstream.functions.source_locations import raised_at
from sqlstream.secrets import harmless

OPTIONS = (
    TableOption(
        "class", TEXT, "the class of the source or sink, as `module.Class`", required=True, example="module.Class"
    ),
    TableOption("function", TEXT, "the function of a lookup table, as `module.function`", instead_of="class"),
    MONITOR,
)
# All others go to the class.
_OURS = {"connector", *(option.name for option in (*OPTIONS, *SCAN_OPTIONS, *LOOKUP_OPTIONS))}
# A file udfs/x.py is loaded as the module x of a package of this name.
_PROJECT = re.compile(r"udfs_[0-9a-f]{12}")


def implemented(table: Table) -> Table:
    """Return the table with its class, or its function, by value.

    It is found in the project's `udfs/`, or is installed. Raises BindError when it is neither.
    """
    if "class" not in table.options:
        found = _named(table, "function")
        if not callable(found):
            raise BindError(f'table "{table.name}": "{table.options["function"]}" cannot be called', table.span)
        return _carried(table, found)
    found = _named(table, "class")
    if not (isinstance(found, type) and issubclass(found, Source | Sink)):
        raise BindError(
            f'table "{table.name}": "{table.options["class"]}" is not a Source or a Sink',
            table.span,
            hint="Derive it from sqlstream.connectors.Source or sqlstream.connectors.Sink.",
        )
    return _carried(table, found)


def _carried(table: Table, found: Any) -> Table:
    try:
        return replace(table, implementation=carry.pack_class(found))
    except carry.Uncarriable as error:
        message = f'table "{table.name}": {_what(table)} cannot be sent to workers'
        raise BindError(message, table.span, detail=str(error)) from error


def _what(table: Table) -> str:
    kind = "class" if "class" in table.options else "function"
    return f'{kind} "{table.options[kind]}"'


def _named(table: Table, option: str) -> object:
    module, _, name = table.options[option].rpartition(".")
    where = "Put it into a file under udfs/, or install it."
    projects = [key.partition(".")[0] for key in sys.modules if _PROJECT.fullmatch(key)]
    candidates = [f"{package}.{module}" for package in reversed(projects)]
    loaded = next((sys.modules[c] for c in candidates if c in sys.modules), None)
    try:
        loaded = loaded or importlib.import_module(module)
    except Exception as error:
        needed = error.name if isinstance(error, ModuleNotFoundError) and error.name else module
        if module != needed and not module.startswith(f"{needed}."):
            # It is there, and needs what is not.
            where = f"Install it: pip install {needed.partition('.')[0]} (its package may have another name)."
        is_missing = isinstance(error, ImportError | ValueError) and not where.startswith("Install")
        reason = "does not exist" if is_missing else f"cannot be imported: {error}"
        raise BindError(f'table "{table.name}": module "{module}" {reason}', table.span, hint=where) from error
    if not hasattr(loaded, name):
        usable = isinstance if option == "class" else lambda v, _: callable(v)
        hint = missing(option, name, [k for k, v in vars(loaded).items() if usable(v, type)])
        raise BindError(f'table "{table.name}": module "{module}" has no {option} "{name}"', table.span, hint=hint)
    return getattr(loaded, name)


def kind(table: Table) -> type[Source] | type[Sink]:
    """Return the class of a table."""
    assert table.implementation is not None
    found: type[Source] | type[Sink] = carry.unpack_class(table.options["class"], table.implementation)
    return found


def function(table: Table) -> Any:
    """Return the function of a table; of a class, an instance that is made with the table's other options."""
    assert table.implementation is not None
    path = table.options["function"]
    found = carry.unpack_class(path, table.implementation)
    if not isinstance(found, type):
        return found
    return _made(table.name, path, table.implementation, tuple(sorted(table.options.items())))


def errors(table: Table) -> AbstractContextManager[None]:
    """Turn what the user's function raises into an error that names it, and the line."""
    return _errors(table.name, table.options["function"], "function")


def _instance(table: Table) -> Any:
    assert table.implementation is not None
    return _made(table.name, table.options["class"], table.implementation, tuple(sorted(table.options.items())))


@lru_cache(maxsize=64)
def _made(name: str, path: str, pickled: bytes, options: tuple[tuple[str, str], ...]) -> Any:
    arguments = {re.sub(r"[-.]", "_", key): value for key, value in options if key not in _OURS}
    with _errors(name, path):
        return carry.unpack_class(path, pickled)(**arguments)


@contextmanager
def _errors(table: str, path: str, what: str = "class") -> Iterator[None]:
    """Turn what the user's class raises into an error that names it, and the line."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        at = raised_at(error.__traceback__, "")
        reason = f"{type(error).__qualname__}: {error}" if str(error) else type(error).__qualname__
        message = f'{what} "{path}" of table "{table}" raised {reason}'
        raise JobError(message, detail=f" --> {at}" if at else None) from harmless(error)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """What a Python source has in one of its partitions between two positions, which are anything that JSON can hold."""

    partition: str
    start: Any
    end: Any
    bytes: ClassVar[int] = 1

    @property
    def reached(self) -> tuple[str, Any]:
        return self.partition, self.end

    def to_list(self) -> list[Any]:
        return [self.partition, self.start, self.end]


class PartitionDiscovery(Discovery):
    """Hands out what each partition of a Python source has got since the last time."""

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext):
        super().__init__()
        self.interval = monitor_interval(table)
        self.bounded = self.interval is None
        self._table, self._position, self._context = table, position, context
        self._source: Source = _instance(table)
        self._latest: Mapping[str, Any] | None = None
        self._pending: list[PartitionRange] = []

    def poll(self) -> int:
        """Ask for the latest positions."""
        latest = self._bound() if self.bounded else self._ask()
        found = []
        with _errors(self._table.name, self._table.options["class"]):
            for name, end in latest.items():
                start = self._position.get(name)
                start = self._source.first_position(name) if start is None else start
                if start != end:
                    found.append(PartitionRange(name, start, end))
        self._pending = found
        return len(found)

    def _ask(self) -> Mapping[str, Any]:
        with _errors(self._table.name, self._table.options["class"]):
            latest = {name: self._source.latest_position(name) for name in self._source.partitions()}
            # A position is compared with one that comes out of a file.
            return dict(json.loads(json.dumps(latest)))

    def _bound(self) -> Mapping[str, Any]:
        if self._latest is None:
            latest = self._ask()
            self._latest = self._context.remember("bound", latest) if self._context.finish else latest
        return self._latest or {}

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def next_batch(self) -> Sequence[PartitionRange] | None:
        splits, self._pending = self._pending, []
        self._position.add(splits)
        return splits or None


def read_python(con: duckdb.DuckDBPyConnection, splits: Sequence[PartitionRange], table: Table) -> ReadPlan:
    """Return how to read some partitions; their rows are registered with the connection."""
    source: Source = _instance(table)
    selects = []
    for number, split in enumerate(splits):
        with _errors(table.name, table.options["class"]):
            rows = source.read(split.partition, split.start, split.end)
            if not isinstance(rows, pa.Table):
                raise TypeError(f"read() returns a pyarrow.Table, not a {type(rows).__name__}")
        con.register(f"_part_{number}", rows)
        selects.append(f"SELECT {_items(rows, table)} FROM _part_{number}")
    return ReadPlan(" UNION ALL ".join(selects))


def _items(rows: pa.Table, table: Table) -> str:
    names = {name.lower(): name for name in rows.column_names}
    items = []
    for column in table.physical:
        if column.name.lower() not in names:
            hint = missing("column", column.name, names.values())
            message = f'class "{table.options["class"]}" of table "{table.name}" returns no column "{column.name}"'
            raise DataError(message, hint=hint)
        items.append(f"CAST({quote_name(names[column.name.lower()])} AS {column.type}) AS {quote_name(column.name)}")
    return ", ".join(items)


def write_batch(table: Table, batch: int, rows: Callable[[], pa.Table]) -> None:
    """Give a batch to a Python sink."""
    sink: Sink = _instance(table)
    found = rows()
    with _errors(table.name, table.options["class"]):
        sink.write(batch, found)
